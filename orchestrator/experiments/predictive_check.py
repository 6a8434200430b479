"""Whether a right model passes its predictive check: bounds from a fit frozen and with its error."""

from __future__ import annotations

from concurrent.futures import Executor
from typing import NamedTuple

import numpy as np

from estimators.intervals import Array
from estimators.markov_model import FitStatus
from estimators.markov_prediction import predictive_check
from orchestrator.experiments import ordering
from orchestrator.experiments.fanout import Progress, fan_out, silent
from orchestrator.experiments.figures import Figure, cited, mean
from orchestrator.experiments.order_groups import as_sequences, fitted
from orchestrator.experiments.ordering import OrderWorld, normal_grid

HALF = 80
"""Batches that are fitted, and as many that are predicted."""

PARTS = ("joint", "conditional", "entropy")
ROWS = (*PARTS, "passes")
HOW = ("propagated", "frozen")


class Task(NamedTuple):
    """One data set, and copies that are simulated of its second half."""

    rep: int
    seed: int
    copies: int


def world() -> OrderWorld:
    """Thirty items that are mostly accepted, before a judge with strong batch effects."""
    theta = 0.8 + np.concatenate([0.9 * normal_grid(15), 0.5 * normal_grid(15)])
    return OrderWorld(theta=theta, lags=(-0.4,), gamma=0.6, sigma=1.08, n_first=15)


def run(
    n_reps: int, copies: int, seed: int, executor: Executor, progress: Progress = silent
) -> list[Figure]:
    """Give the share of terms inside their 95 % bounds, and of data sets that pass."""
    tasks = [Task(rep, seed, copies) for rep in range(n_reps)]
    found = np.array(fan_out(replicate, tasks, executor, progress))
    table = f"terms of {HALF} held-out batches inside their 95 % bounds"
    figures = [
        mean(table, f"{part}, {how}, %", HALF, 100 * values)
        for how, by_part in zip(HOW, found.transpose(1, 2, 0), strict=True)
        for part, values in zip(ROWS, by_part, strict=True)
    ]
    return cited(figures, {}, REFERENCE)


def replicate(task: Task) -> Array:
    """Simulate, fit and check one data set, (2, 4): shares inside by part, and whether it passes.

    nan where there is no fit. Draws batches from a generator seeded by (seed, data set), and both
    checks from equal ones seeded by (seed, data set, 1).
    """
    rep, seed, copies = task
    rng = np.random.default_rng([seed, rep])
    ratings = ordering.simulate(world(), "shuffle", n_batches=2 * HALF, rng=rng)
    source = as_sequences(ratings)
    train, test = source.take(np.arange(HALF)), source.take(np.arange(HALF, 2 * HALF))
    found = np.full((len(HOW), len(PARTS) + 1), np.nan)
    fit = fitted(train, 1)
    if fit is None or fit.status is not FitStatus.OK:
        return found
    for how, row in zip(HOW, found, strict=True):
        rng = np.random.default_rng([seed, rep, 1])
        check = predictive_check(fit, test, rng, propagate=how == "propagated", copies=copies)
        terms = (check.joint, check.conditional, check.entropy)
        row[:] = *(np.mean([one.is_inside for one in part]) for part in terms), check.passes
    return found


REFERENCE = {
    f"{part}, {how}, %": {HALF: figure}
    for how, row in (("propagated", ("95", "93", "95", "88")), ("frozen", ("83", "81", "79", "68")))
    for part, figure in zip(ROWS, row, strict=True)
}
