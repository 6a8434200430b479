"""What strengths with standard errors cost: CPU time, and ratios to evalica, choix and arena-rank.

Calls take turns in one process and the lowest of several counts, so that all see the same machine.
Ours give two covariances, arena-rank one, evalica and choix none. arena-rank compiles its optimiser
at every fit, which is most of its time at 100,000 comparisons. What is not installed is left out.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable, Mapping
from importlib.util import find_spec
from pathlib import Path

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[1]))

from estimators.bt_cells import Cells, checked, index_names
from estimators.bt_model import fit_bradley_terry, fit_cells, refit

M = 100
SIZES = (100_000, 1_000_000)


def taking_turns(calls: Mapping[str, Callable[[], object]], n: int) -> dict[str, float]:
    """Lowest CPU time of each call over `n` rounds of all."""
    best = dict.fromkeys(calls, np.inf)
    for _ in range(n):
        for name, call in calls.items():
            began = time.process_time()
            call()
            best[name] = min(best[name], time.process_time() - began)
    return best


class Votes:
    """`n` comparisons of M models, 10 % ties, in the forms that programs take."""

    def __init__(self, n: int) -> None:
        rng = np.random.default_rng([7, n])
        theta = rng.normal(0, 1, M)
        self.left = rng.integers(0, M, n)
        self.right = (self.left + rng.integers(1, M, n)) % M
        p = 1 / (1 + np.exp(theta[self.right] - theta[self.left]))
        self.y = (rng.random(n) < p).astype(float)
        self.y[rng.random(n) < 0.1] = 0.5
        names = np.array([f"organisation/model-{i:03}" for i in range(M)], dtype=object)
        self.names = names[self.left].tolist(), names[self.right].tolist()


def ours(votes: Votes) -> dict[str, Callable[[], object]]:
    def from_names() -> object:
        (left, right), names = index_names(*votes.names)
        return fit_bradley_terry(left, right, votes.y, n_models=len(names))

    return {
        "ours int": lambda: fit_bradley_terry(votes.left, votes.right, votes.y, n_models=M),
        "ours str": from_names,
    }


def of_evalica(votes: Votes) -> dict[str, Callable[[], object]]:
    import evalica  # noqa: PLC0415  # a peer that may be absent

    side = {1.0: evalica.Winner.X, 0.5: evalica.Winner.Draw, 0.0: evalica.Winner.Y}
    winners = [side[y] for y in votes.y.tolist()]
    left, right = votes.left.tolist(), votes.right.tolist()
    ran = evalica.bradley_terry(left, right, winners)
    theta = np.log(ran.scores.sort_index().to_numpy())
    fit = fit_bradley_terry(votes.left, votes.right, votes.y, n_models=M)
    assert np.abs(theta - theta.mean() - fit.theta).max() < 1e-3
    return {
        "evalica int": lambda: evalica.bradley_terry(left, right, winners),
        "evalica str": lambda: evalica.bradley_terry(*votes.names, winners),
    }


def of_choix(votes: Votes) -> dict[str, Callable[[], object]]:
    import choix  # noqa: PLC0415  # a peer that may be absent

    pairs = np.where(
        votes.y[:, None] >= 0.5,
        np.column_stack((votes.left, votes.right)),
        np.column_stack((votes.right, votes.left)),
    )
    data = [tuple(pair) for pair in pairs.tolist()]
    return {"choix": lambda: choix.ilsr_pairwise(M, data)}


def of_arena_rank(votes: Votes) -> dict[str, Callable[[], object]]:
    import pandas as pd  # noqa: PLC0415  # a peer that may be absent
    from arena_rank.models.bradley_terry import BradleyTerry  # noqa: PLC0415  # the same
    from arena_rank.utils.data_utils import PairDataset  # noqa: PLC0415  # the same

    words = {1.0: "model_a", 0.5: "tie", 0.0: "model_b"}
    winner = [words[y] for y in votes.y.tolist()]

    def ranked(left: object, right: object) -> object:
        frame = pd.DataFrame({"model_a": left, "model_b": right, "winner": winner})
        data = PairDataset.from_pandas(frame)
        return BradleyTerry(n_competitors=M).compute_ratings_and_cis(data)

    return {
        "arena-rank int": lambda: ranked(votes.left, votes.right),
        "arena-rank str": lambda: ranked(*votes.names),
    }


PEERS = {"evalica": of_evalica, "choix": of_choix, "arena_rank": of_arena_rank}

BARS = (
    ("D1", "evalica int", "ours int", 8),
    ("D2", "evalica str", "ours str", 1.5),
    ("D3", "arena-rank int", "ours int", 30),
    ("D3", "arena-rank str", "ours str", 8),
    ("D4", "choix", "ours int", 30),
)


def main() -> None:
    noted: list[tuple[str, str]] = []

    def note(bar: str, figure: str) -> None:
        noted.append((bar, figure))
        print(f"{bar:<82} {figure}", flush=True)

    for n in SIZES:
        votes = Votes(n)
        calls = ours(votes)
        for name, peer in PEERS.items():
            if find_spec(name) is None:
                print(f"{name} is not installed")
                continue
            try:
                calls |= peer(votes)
            except ImportError as exc:
                print(f"{name} can't be imported: {exc}")
        best = taking_turns(calls, 7 if n <= 100_000 else 3)
        for bar, slow, fast, least in BARS:
            if slow in best:
                note(
                    f"{bar}: {slow} / {fast}, {n:,} comparisons of {M} models >= {least}",
                    f"{best[slow] / best[fast]:.1f} ({1e3 * best[fast]:.1f} ms)",
                )

    votes = Votes(SIZES[0])
    cells = Cells.of(checked(votes.left, votes.right, votes.y, n_models=M))
    fit = fit_cells(cells, order_effect=True)
    cells.add(3, 5, 1.0)
    best = taking_turns({"refit": lambda: refit(fit, cells)}, 50)
    note(f"D5: refit after one landing, {M} models <= 2 ms", f"{1e3 * best['refit']:.2f} ms")

    if path := os.environ.get("MEASURED"):
        with Path(path).open("a", encoding="utf-8") as file:
            file.writelines(
                json.dumps({"bar": bar, "figure": figure}) + "\n" for bar, figure in noted
            )


if __name__ == "__main__":
    main()
