"""What choosing pairs costs: selection, launch and refit, in CPU milliseconds, lowest of several.

The bars are for 100 models: a selection by `aopt` or `dopt` in 1 ms, a launch in .1 ms, a refit after
landings in 2 ms. A refit is measured with questions in flight, after 30 comparisons a model.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import get_args

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # as the command does, before NumPy is imported

import numpy as np
from scipy.special import expit

sys.path.insert(0, str(Path(__file__).parents[1]))

from policies.pairing.acquisition import Rule
from policies.pairing.posterior import Bias, Posterior
from policies.pairing.propensity import draw, propensities


def best_ms(call: Callable[[], object], n: int = 30) -> float:
    """Lowest CPU time of `n` calls."""
    times = []
    for _ in range(n):
        began = time.process_time()
        call()
        times.append(time.process_time() - began)
    return 1e3 * min(times)


def told(m: int, bias: Bias = "order") -> Posterior:
    """Give the posterior of 30 comparisons a model, a tenth of a model's in flight."""
    rng = np.random.default_rng(m)
    theta = rng.normal(0, 0.8, m)
    n = 15 * m
    first = rng.integers(m, size=n)
    second = (first + 1 + rng.integers(m - 1, size=n)) % m
    state = Posterior(m, bias=bias)
    state.learn(first, second, rng.random(n) < expit(theta[first] - theta[second] + 0.2))
    for k in range(m // 10):
        state.launch(k, k + 1)
    return state


def landed(state: Posterior) -> None:
    state.launch(0, 1)
    state.land(0, 1, 1.0)
    state.refit()


def main() -> None:
    noted: list[tuple[str, str]] = []

    def note(bar: str, figure: str) -> None:
        noted.append((bar, figure))
        print(f"{bar:<60} {figure}", flush=True)

    for m in (10, 30, 100, 300):
        for rule in get_args(Rule):
            if m == 300 and rule == "eig":
                continue  # hundreds of milliseconds on a loaded machine, and no better than dopt
            state = told(m)
            ms = best_ms(lambda state=state, rule=rule: draw(propensities(state, rule=rule), 0.5))
            bar = " <= 1 ms" if m == 100 and rule in {"aopt", "dopt"} else ""
            note(f"selection, {rule}, M = {m}{bar}", f"{ms:.3f} ms")
        state = told(m)
        ms = best_ms(lambda state=state: state.launch(0, 1))
        note(f"launch, M = {m}" + (" <= .1 ms" if m == 100 else ""), f"{ms:.4f} ms")
        state = told(m)
        ms = best_ms(lambda state=state: landed(state), 10)
        note(f"refit after a landing, M = {m}" + (" <= 2 ms" if m == 100 else ""), f"{ms:.3f} ms")
    if path := os.environ.get("MEASURED"):
        with Path(path).open("a", encoding="utf-8") as file:
            file.writelines(
                json.dumps({"bar": bar, "figure": figure}) + "\n" for bar, figure in noted
            )


if __name__ == "__main__":
    main()
