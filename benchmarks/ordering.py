"""What simulating batched ratings costs: all replicates at once against a plain loop, in one process.

CPU time, the lowest of five. The bar: at least 10 times as many replicates a second.
"""

from __future__ import annotations

import json
import math
import os
import random  # noqa: TID251  # as a plain loop would
import sys
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[1]))

from orchestrator.experiments.ordering import OrderWorld, null, simulate, uneven

SIZES = ((uneven(), 18, 4000, 200), (null(), 150, 120, 8))
"""World, batches of a replicate, and how many replicates are drawn at once and in the loop."""


def plainly(world: OrderWorld, n_batches: int, rng: random.Random) -> list[list[tuple[int, int]]]:
    """Draw a replicate with shuffled batches, (item, accepted) by slot."""
    theta = world.theta.tolist()
    batches = []
    for _ in range(n_batches):
        order = list(range(len(theta)))
        rng.shuffle(order)
        shift = world.sigma * rng.gauss(0, 1)
        said: list[int] = []
        for slot, item in enumerate(order):
            eta = theta[item] + shift
            if slot == 0:
                eta += world.gamma
            for k, weight in enumerate(world.lags, 1):
                if slot >= k:
                    eta += weight * said[slot - k]
            said.append(int(rng.random() < 1 / (1 + math.exp(-eta))))
        batches.append(list(zip(order, said, strict=True)))
    return batches


def cpu_s(call: Callable[[], object]) -> float:
    times = []
    for _ in range(5):
        began = time.process_time()
        call()
        times.append(time.process_time() - began)
    return min(times)


def main() -> None:
    rows: list[tuple[str, str]] = []
    for world, n_batches, n_replicates, n_plain in SIZES:
        rng, plain = np.random.default_rng(0), random.Random(0)
        fast = n_replicates / cpu_s(
            lambda w=world, n=n_batches, r=n_replicates, g=rng: simulate(
                w, "shuffle", n_batches=n, n_replicates=r, rng=g
            )
        )
        slow = n_plain / cpu_s(
            lambda w=world, n=n_batches, r=n_plain, g=plain: [plainly(w, n, g) for _ in range(r)]
        )
        bar = f"simulated replicates / those of a plain loop, {world.n_items} items, {n_batches} batches >= 10"
        rows.append((bar, f"{fast / slow:.1f} ({fast:,.0f} against {slow:,.0f} a second)"))
        print(f"{rows[-1][0]:<78} {rows[-1][1]}", flush=True)
    if path := os.environ.get("MEASURED"):
        with Path(path).open("a", encoding="utf-8") as file:
            file.writelines(
                json.dumps({"bar": bar, "figure": figure}) + "\n" for bar, figure in rows
            )


if __name__ == "__main__":
    main()
