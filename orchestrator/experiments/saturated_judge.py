"""Three judges of one panel, p against batches: a discerning one, a lenient one, a saturated one.

The saturated judge sees the same order of qualities but accepts most items whatever the batch, so
that its verdict on the groups hangs on how far unanimous items are thought to lie out.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from concurrent.futures import Executor
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from estimators.intervals import Array
from estimators.markov_inference import group_weights, prior_sensitivity
from estimators.markov_model import FitStatus, MarkovFit
from orchestrator.core.errors import DidNotConverge
from orchestrator.experiments import ordering
from orchestrator.experiments.fanout import Progress, fan_out, silent
from orchestrator.experiments.figures import Figure, cited, mean, median, share
from orchestrator.experiments.order_groups import LOOKS, as_sequences, fitted
from orchestrator.experiments.ordering import OrderWorld

JUDGES: dict[str, tuple[float, float]] = {
    "discerning": (0.0, 1.0),
    "lenient": (1.5, 1.0),
    "saturated": (8.3, 8.0),
}
"""Mean of the qualities that a judge sees, and how much wider they lie than for the first judge."""

SATURATED = {
    "accepts, %": {150: "86"},
    "unanimous items, %": {150: "60"},
}


class Task(NamedTuple):
    """One replicate of one judge."""

    judge: str
    rep: int
    seed: int


class Seen(NamedTuple):
    """What one judge's ratings say at one look, (n_reps,) each; `p` is nan where there is no verdict.

    `disagrees`: scales of the penalty lead to different verdicts, or a weak one to none.
    """

    p: Array
    accepted: Array
    unanimous: Array
    saturated: Array
    disagrees: Array


def world_of(judge: str) -> OrderWorld:
    """Give a judge's view of two groups of 15, whose means lie 0.45 apart for the first judge."""
    level, width = JUDGES[judge]
    world = ordering.gap()
    return replace(world, theta=level + width * (world.theta - world.theta.mean()))


def run(n_reps: int, seed: int, executor: Executor, progress: Progress = silent) -> list[Figure]:
    """Follow each judge's p over batches, and what is said about its verdict."""
    tasks = [Task(judge, rep, seed) for judge in JUDGES for rep in range(n_reps)]
    found = np.reshape(
        np.array(fan_out(replicate, tasks, executor, progress)),
        (len(JUDGES), n_reps, len(LOOKS), len(Seen._fields)),
    )
    figures = []
    for judge, replicates in zip(JUDGES, found, strict=True):
        table = f"{judge} judge: two groups of 15, means apart"
        own = []
        for n, at_look in zip(LOOKS, replicates.transpose(1, 2, 0), strict=True):
            seen = Seen(*at_look)
            is_doubted = (seen.saturated == 1) | (seen.disagrees == 1)
            own += [
                median(table, "p, median", n, seen.p),
                share(table, "p < 0.05, %", n, seen.p < 0.05),
                mean(table, "accepts, %", n, 100 * seen.accepted),
                mean(table, "unanimous items, %", n, 100 * seen.unanimous),
                share(table, "flagged saturated, %", n, seen.saturated == 1),
                share(table, "scales disagree, %", n, seen.disagrees == 1),
                share(table, "conclusive, %", n, (seen.p < 0.05) & ~is_doubted),
            ]
        figures += cited(own, SATURATED if judge == "saturated" else {}, {})
    return figures


def replicate(task: Task) -> Array:
    """Simulate one judge and fit it at each look, (n_looks, fields of `Seen`).

    Draws from a generator seeded by (seed, judge, replicate).
    """
    world = world_of(task.judge)
    rng = np.random.default_rng([task.seed, list(JUDGES).index(task.judge), task.rep])
    ratings = ordering.simulate(world, "shuffle", n_batches=LOOKS[-1], rng=rng)
    weights = group_weights(range(world.n_first), range(world.n_first, world.n_items))
    found, near = [], None
    for n in LOOKS:
        source = as_sequences(ratings.first(n))
        near = fitted(source, 1, near)
        found.append(_seen(near, weights, float(source.state.mean())))
    return np.array(found)


def _seen(fit: MarkovFit | None, weights: Mapping[Hashable, float], accepted: float) -> list[float]:
    """Give the fields of `Seen` of one replicate."""
    if fit is None:
        return [np.nan, accepted, np.nan, 0.0, 1.0]
    contrast = fit.contrast(weights)
    disagrees = False
    if contrast.prior_sensitive and contrast.status is FitStatus.OK:
        try:
            disagrees = not prior_sensitivity(fit, weights).is_conclusive()
        except DidNotConverge:
            disagrees = True
    unanimous = len(fit.unanimous) / len(fit.items)
    return [contrast.p, accepted, unanimous, float("saturated" in fit.flags), float(disagrees)]
