"""What may be said of a benchmark while answers come back in an order of their own.

Items are sent in a random order to so many workers, and wrong answers take longer. So what is back
first is too good, and an interval that takes it for a random sample is wrong. Two ways are right: the
items up to the first that is not back, and all that is back with open items counted both ways.
"""

from __future__ import annotations

import heapq
from concurrent.futures import Executor
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from estimators.confidence_sequences import Plan, betting, prior_posterior, prior_posterior_at
from estimators.in_flight import imputed_interval, told_prefix
from estimators.intervals import Array, Interval
from estimators.subsample_bounds import hypergeometric_interval
from orchestrator.experiments.fanout import Progress, fan_out, silent
from orchestrator.experiments.figures import By, Figure, cited, mean, share

METHODS = (
    "all that is back, exact",
    "all that is back, prior-posterior",
    "told prefix, prior-posterior",
    "told prefix, betting",
    "open items both ways, prior-posterior",
)
"""The first two take what is back for a random sample."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Study:
    """What is simulated.

    Parameters
    ----------
    p : share of right answers; made a whole number of items
    n_workers : items under way at a time
    slow : how many times as long a wrong answer takes, on average
    looks : numbers of items back at which one looks
    half_width : that betting is planned for
    """

    p: float = 0.7
    n_items: int = 1000
    n_workers: int = 64
    slow: float = 3.0
    looks: tuple[int, ...] = (200, 500, 800)
    alpha: float = 0.05
    half_width: float = 0.07
    n_reps: int = 300
    seed: int = 16

    @property
    def n_right(self) -> int:
        """Items that are answered rightly."""
        return round(self.p * self.n_items)


class Task(NamedTuple):
    """One run."""

    study: Study
    rep: int


def run(study: Study, executor: Executor, progress: Progress = silent) -> list[Figure]:
    """Give how often each interval is wrong at each look, its half-width, and why."""
    tasks = [Task(study, rep) for rep in range(study.n_reps)]
    found = np.array(fan_out(replicate, tasks, executor, progress))
    truth = study.n_right / study.n_items
    title = (
        f"{study.n_items:,} items, p = {study.p:g}, {study.n_workers} workers, "
        f"wrong answers take {study.slow:g} times as long"
    )
    figures = []
    for at, n in enumerate(study.looks):
        (bias, told), ends = found[:, at, 0].T, found[:, at, 1:]
        figures += [
            mean(title, "mean of what is back: bias, points", n, 100 * bias),
            mean(title, "items before the first open one", n, told),
        ]
        for name, (lower, upper) in zip(METHODS, ends.transpose(1, 2, 0), strict=True):
            is_wrong = (lower > truth) | (upper < truth)
            figures.append(share(title, f"{name}: wrong, %", n, is_wrong))
            figures.append(mean(title, f"{name}: ± points", n, 50 * (upper - lower)))
    is_measured = study == Study(n_reps=study.n_reps, seed=study.seed)
    return cited(figures, {}, _REFERENCE if is_measured else {})


def replicate(task: Task) -> Array:
    """Run once, (n_looks, 1 + n_methods, 2): bias and told items, then two ends each.

    Draws from a generator seeded by (seed, replicate).
    """
    study, rep = task
    rng = np.random.default_rng([study.seed, rep])
    scores = (rng.permutation(study.n_items) < study.n_right).astype(np.float64)
    sent_at, back_at = send(scores, study, rng)
    truth = study.n_right / study.n_items
    found = []
    for n in study.looks:
        now = np.partition(back_at, n - 1)[n - 1]
        so_far = np.where(back_at <= now, scores, np.nan)[sent_at <= now]
        told = told_prefix(so_far)
        found.append([(np.nanmean(so_far) - truth, told), *_intervals(study, so_far, told)])
    return np.array(found)


def send(scores: Array, study: Study, rng: np.random.Generator) -> tuple[Array, Array]:
    """Give when each item is sent and is back, (N,) each; workers take items in order."""
    lasts = rng.exponential(np.where(scores > 0, 1.0, study.slow))
    free = [0.0] * study.n_workers
    sent = np.empty_like(scores)
    for place, each in enumerate(lasts):
        sent[place] = free[0]
        heapq.heapreplace(free, free[0] + each)
    return sent, sent + lasts


def _intervals(study: Study, so_far: Array, told: int) -> list[Interval]:
    """Bound the mean by each of `METHODS`."""
    n_items, alpha, level = study.n_items, study.alpha, 1 - study.alpha
    k, n = np.nansum(so_far), int((~np.isnan(so_far)).sum())
    prefix = []
    for sequence in (
        prior_posterior(n_items, level=level),
        betting(n_items, level=level, plan=Plan(half_width=study.half_width)),
    ):
        sequence.extend(so_far[:told])
        prefix.append(sequence.interval())
    return [
        hypergeometric_interval(k, n, n_items, alpha),
        prior_posterior_at(k, n, n_items, level=level),
        *prefix,
        imputed_interval(so_far, n_items, is_binary=True, level=level),
    ]


_REFERENCE: By = {
    "mean of what is back: bias, points": {200: "7.7"},
    "all that is back, exact: wrong, %": {200: "74"},
    "all that is back, prior-posterior: wrong, %": {500: "9.7"},
    "all that is back, prior-posterior: ± points": {500: "4.9"},
    "told prefix, prior-posterior: ± points": {500: "15.9"},
    "open items both ways, prior-posterior: ± points": {500: "6.1"},
}
