"""What the allocation costs: 100,000 items by 10 judges, ratios of times in one process.

Each figure is the lowest of seven. The bars: `oracle_allocation` at most 4 times
`(variance * cost).argmin(axis=1)`, which reads the same memory; at most 0.25 and `integer_plan` at
most 12, better 2, times sorting all cells where sorting is scalar. NumPy sorts many times faster where
the processor has wide registers, so the sort beside is the stable one, which is scalar everywhere; the
fast one is printed too. Memory is counted in arrays of (items, judges) floats.
"""

from __future__ import annotations

import json
import math
import os
import sys
import time
import tracemalloc
from collections.abc import Callable
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[1]))

from orchestrator.core.budget import BudgetView
from orchestrator.core.events import Asked
from orchestrator.core.frame import Frame
from orchestrator.core.ids import QNo
from orchestrator.core.money import Nano, PriceCard
from orchestrator.core.query import Judged, Kind, Observation
from orchestrator.core.records import Record
from orchestrator.core.scale import Criterion, Scale, ScaleType
from orchestrator.core.seeds import Seeds
from orchestrator.core.study import Panelist, Study
from policies import noise
from policies.est_ivwe import EstIvwe, EstIvweConfig, integer_plan, oracle_allocation

N_ITEMS, N_JUDGES = 100_000, 10


def best_ms(call: Callable[[], object], n: int = 7) -> float:
    times = []
    for _ in range(n):
        began = time.perf_counter()
        call()
        times.append(time.perf_counter() - began)
    return min(times) * 1e3


def arrays_held(call: Callable[[], object], size: int) -> float:
    """Peak memory of a call, its result included, in arrays of `size` bytes."""
    tracemalloc.start()
    before, _ = tracemalloc.get_traced_memory()
    tracemalloc.reset_peak()
    call()
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    return (peak - before) / size


def stream_s(n_answers: int = 100_000) -> float:
    """Tell est_ivwe the pilot's answers, one by one; give the seconds that telling took."""
    price, n_items = 10, n_answers // (6 * N_JUDGES) + 1
    study = Study(
        kind=Kind.RATE,
        frame=Frame.of([str(i) for i in range(n_items)]),
        panel=tuple(
            Panelist(name=str(j), card=PriceCard(per_call=1000 * price), planning=price)
            for j in range(N_JUDGES)
        ),
        criteria=(Criterion(name="score", scale=Scale(type=ScaleType.FLOAT)),),
        seeds=Seeds(0),
        cap=Nano(40 * n_items * N_JUDGES * price),
    )
    policy = EstIvwe(EstIvweConfig(kind="est_ivwe", target="common"), study)
    values = np.random.default_rng(0).random(n_answers).tolist()
    took = 0.0
    view = BudgetView(
        cap=None, settled=Nano(0), uncertain=Nano(0), held=Nano(0), price=lambda _: Nano(0)
    )
    for q, value in enumerate(values):
        query = policy.ask(view)
        policy.tell(Asked(q=QNo(q), query=query, hold=Nano(price)))
        said = (Observation(unit=query.units[0], value=value),)
        outcome = Judged(observations=said, cost=Nano(price), usage=None)
        record = Record(q=QNo(q), query=query, outcome=outcome)
        began = time.perf_counter()
        policy.tell(record)
        took += time.perf_counter() - began
    return took


def main() -> None:
    rows: list[tuple[str, str]] = []

    def note(bar: str, figure: str) -> None:
        rows.append((bar, figure))
        print(f"{bar:<78} {figure}", flush=True)

    rng = np.random.default_rng(0)
    variance = rng.gamma(1, 0.05, (N_ITEMS, N_JUDGES))
    cost = rng.integers(100, 700, N_JUDGES)
    df = np.full(variance.shape, 9.0)
    budget = 100 * N_ITEMS * int(cost.sum())

    def oracle() -> object:
        return oracle_allocation(variance, cost, budget, 2)

    def plan(p: float = 2, sweeps: int = 100) -> object:
        return integer_plan(variance, cost, budget // 100 * sweeps, p)

    argmin = best_ms(lambda: (variance * cost).argmin(axis=1))
    sort = best_ms(lambda: np.sort(variance.ravel()))
    scalar = best_ms(lambda: np.sort(variance.ravel(), kind="stable"))
    oracle_ms, plan_ms = best_ms(oracle), best_ms(plan)
    note(
        "C1 oracle_allocation / (variance * cost).argmin(axis=1) <= 4", f"{oracle_ms / argmin:.2f}"
    )
    note("C2 oracle_allocation / scalar sort of all cells <= 0.25", f"{oracle_ms / scalar:.3f}")
    note("C3 integer_plan / scalar sort of all cells <= 12, better 2", f"{plan_ms / scalar:.2f}")
    worst = max(best_ms(lambda p=p, s=s: plan(p, s)) for p in (1, 2, math.inf) for s in (3, 100))
    note("C3 the same, slowest of three norms and two budgets", f"{worst / scalar:.2f}")
    note("C4 telling est_ivwe 100,000 pilot answers of 10 judges <= 1 s", f"{stream_s():.2f} s")
    note("C5 arrays held by oracle_allocation <= 3", f"{arrays_held(oracle, variance.nbytes):.1f}")
    note("C5 arrays held by integer_plan <= 3", f"{arrays_held(plan, variance.nbytes):.1f}")
    note(
        "allocation, ms: argmin, fast sort, scalar sort; oracle, plan, panel's plan, shrinking",
        ", ".join(
            f"{x:.1f}"
            for x in (
                argmin,
                sort,
                scalar,
                oracle_ms,
                plan_ms,
                best_ms(lambda: integer_plan(variance, cost, budget, 2, "panel"), 3),
                best_ms(lambda: noise.shrunk(variance, df, 1.0, 3.0), 3),
            )
        ),
    )
    if path := os.environ.get("MEASURED"):
        with Path(path).open("a", encoding="utf-8") as file:
            file.writelines(
                json.dumps({"bar": bar, "figure": figure}) + "\n" for bar, figure in rows
            )


if __name__ == "__main__":
    main()
