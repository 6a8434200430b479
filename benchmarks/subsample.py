"""What a benchmark of a million items costs: told item by item, looked at, and planned.

Scores are of yes and no, told in the order of the draw; times are CPU seconds of one thread. Beside an
update and a look stands the plain way, which computes the sequence anew from all scores so far.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[1]))

from estimators.benchmark_order import item_orders
from estimators.confidence_sequences import (
    MeanSequence,
    Plan,
    betting,
    betting_items,
    betting_wor,
    empirical_bernstein,
    hoeffding,
    prior_posterior,
)
from estimators.exchangeable import Exchangeable, ExchangeableConfig
from estimators.subsample_bounds import items_for_half_width, items_for_hypergeometric
from orchestrator.core.frame import Frame
from orchestrator.core.money import PriceCard
from orchestrator.core.query import Kind
from orchestrator.core.scale import Criterion, Scale, ScaleType
from orchestrator.core.seeds import Seeds
from orchestrator.core.study import Panelist, Study

N, TARGET = 1_000_000, 0.005
LOOK_AT = 50_000

SEQUENCES: dict[str, Callable[[], MeanSequence]] = {
    "betting": lambda: betting(N, plan=Plan(half_width=TARGET)),
    "prior-posterior": lambda: prior_posterior(N),
    "Hoeffding": lambda: hoeffding(N, plan=Plan(half_width=TARGET)),
    "empirical Bernstein": lambda: empirical_bernstein(N, plan=Plan(half_width=TARGET)),
}


def cpu_s(call: Callable[[], object]) -> float:
    began = time.process_time()
    call()
    return time.process_time() - began


def study() -> Study:
    return Study(
        kind=Kind.RATE,
        frame=Frame.of([str(i) for i in range(N)]),
        panel=(Panelist(name="judge", card=PriceCard(per_call=1000), planning=1),),
        criteria=(Criterion(name="score", scale=Scale(type=ScaleType.BOOLEAN)),),
        seeds=Seeds(0),
    )


def main() -> None:
    rows: list[tuple[str, str]] = []

    def note(bar: str, figure: str) -> None:
        rows.append((bar, figure))
        print(f"{bar:<92} {figure}", flush=True)

    scores = (np.random.default_rng(0).random(N) < 0.8).astype(float)
    one_by_one = scores.tolist()

    def told(sequence: MeanSequence, told_scores: list[float]) -> None:
        for score in told_scores:
            sequence.update(score)
        sequence.interval()

    for name, make in SEQUENCES.items():
        took = cpu_s(lambda make=make: told(make(), one_by_one))
        note(f"{name}: an item of 1,000,000, amortised <= 20 us", f"{took / N * 1e6:.2f} us")

    sequence = SEQUENCES["betting"]()
    told(sequence, one_by_one[:LOOK_AT])

    def more() -> None:
        sequence.update(1.0)
        sequence.interval()

    one = min(cpu_s(more) for _ in range(50))
    plan = Plan(half_width=TARGET)
    anew = cpu_s(lambda: betting_wor(scores[:LOOK_AT], N, plan=plan))
    note(
        f"betting, an item and a look after {LOOK_AT:,}: anew / from the last >= 100",
        f"{anew / one:.0f} ({one * 1e6:.0f} us)",
    )

    of = study()
    config = ExchangeableConfig(name="mean", check="anytime", target_half_width=TARGET)
    # The kind reads the order that the seed gives; it is drawn here, too, to tell along it.
    order = item_orders(of, "simple", None)[0].tolist()
    began = time.process_time()
    made = Exchangeable(config, of)
    note(
        "exchangeable, 1,000,000 items: made, with the order",
        f"{time.process_time() - began:.2f} s",
    )
    began = time.process_time()
    for unit, score in zip(order, one_by_one, strict=True):
        made.tell(unit, score)
    took = time.process_time() - began
    note("exchangeable: an item of 1,000,000, amortised <= 20 us", f"{took / N * 1e6:.2f} us")
    half = Exchangeable(config, of)
    for unit, score in zip(order[:LOOK_AT], one_by_one, strict=False):
        half.tell(unit, score)
    look = min(cpu_s(half.estimate) for _ in range(5))
    note(f"exchangeable: a look after {LOOK_AT:,} of 1,000,000", f"{look * 1e3:.2f} ms")

    def planned(width: float) -> None:
        items_for_half_width(width, N, 0.05)
        items_for_half_width(width, N, 0.05, model="exchangeable")
        for share in (0.5, 0.8, 0.97):
            items_for_hypergeometric(width, N, 0.05, share)
            betting_items(width, N, variance=share * (1 - share))

    slowest = max(cpu_s(lambda width=width: planned(width)) for width in (0.02, 0.005, 0.001))
    note(
        "plan of 1,000,000 items, four methods, three shares, slowest of three widths <= 1 s",
        f"{slowest:.2f} s",
    )
    if path := os.environ.get("MEASURED"):
        with Path(path).open("a", encoding="utf-8") as file:
            file.writelines(
                json.dumps({"bar": bar, "figure": figure}) + "\n" for bar, figure in rows
            )


if __name__ == "__main__":
    main()
