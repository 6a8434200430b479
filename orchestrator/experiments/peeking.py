"""How often an interval for a benchmark's mean is wrong at some look, if one looks at every item.

A share p of N items is answered rightly; they come in random order. An interval for one number of items
holds at that number. Watched at each, it is wrong at one of them far more often, and a run that stops
there reports it. Sequences are made for that: all their looks together have the error of one.
"""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import Executor
from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtri
from scipy.stats import hypergeom

from estimators.confidence_sequences import (
    Plan,
    betting_wor,
    empirical_bernstein_wor,
    hoeffding_wor,
    maximal_half_width,
    prior_posterior_wor,
)
from estimators.intervals import Array, Interval
from estimators.subsample_bounds import (
    exchangeable_half_width,
    hypergeometric_interval,
    subsample_half_width,
)
from orchestrator.experiments.fanout import Progress, fan_out, silent
from orchestrator.experiments.figures import By, Figure, cited, mean, share

Truths = NDArray[np.bool_]


@dataclass(frozen=True, slots=True, kw_only=True)
class Study:
    """What is simulated.

    Parameters
    ----------
    p : share of right answers; made a whole number of items
    n_items : N
    alpha : two-sided error
    first : the look from which on one watches
    planned : number of items that sequences are planned for, from which on the maximal bound holds
    half_width : that betting is planned for where it plans its number again at each item
    n_looks : of the intervals that are looked at a few times only, evenly spread
    """

    p: float = 0.7
    n_items: int = 2000
    alpha: float = 0.05
    first: int = 30
    planned: int = 500
    half_width: float = 0.044
    n_looks: int = 9
    n_reps: int = 200
    seed: int = 12

    @property
    def n_right(self) -> int:
        """Items that are answered rightly."""
        return round(self.p * self.n_items)

    @property
    def shown(self) -> tuple[int, ...]:
        """Numbers of items that figures are given for; the last is all but one."""
        some = (self.n_items // 10, self.planned, self.n_items // 2, self.n_items - 1)
        return tuple(sorted({n for n in some if n >= self.first}))

    @property
    def looks(self) -> NDArray[np.int64]:
        """Numbers of items at the scheduled looks."""
        return np.arange(1, self.n_looks + 1) * self.n_items // (self.n_looks + 1)


class Task(NamedTuple):
    """One order of the items."""

    study: Study
    rep: int


class _Watched(NamedTuple):
    """Whether an interval is wrong after each item, (N - 1,), and its half-widths where shown."""

    is_wrong: Truths
    half: Array


def run(study: Study, executor: Executor, progress: Progress = silent) -> list[Figure]:
    """Give how often each method was wrong by then, and its half-width."""
    tasks = [Task(study, rep) for rep in range(study.n_reps)]
    wrong, half = np.stack(fan_out(replicate, tasks, executor, progress)).transpose(1, 2, 3, 0)
    title = f"p = {study.p:g}, {study.n_items:,} items, looked at each from {study.first} on"
    figures = [
        share(title, f"{name}: wrong by then, %", n, ever)
        for name, is_wrong in zip(methods(study), wrong > 0, strict=True)
        for n, ever in zip(study.shown, is_wrong, strict=True)
    ]
    figures += [
        _width(title, f"{name}: ± points", n, 100 * widths)
        for name, by_number in zip(methods(study), half, strict=True)
        for n, widths in zip(study.shown[:-1], by_number, strict=False)
    ]
    is_measured = study == Study(p=study.p, n_reps=study.n_reps, seed=study.seed)
    return cited(figures, {}, _reference(study) if is_measured else {})


def _width(table: str, what: str, n: int, widths: Array) -> Figure:
    """Give the mean half-width; one that does not depend on the scores is exact."""
    if np.ptp(widths) < 1e-9:
        return Figure(table, what, n, float(widths[0]), np.nan, 0)
    return mean(table, what, n, widths)


def methods(study: Study) -> tuple[str, ...]:
    """Name the methods: those for one number of items first, then those for every look."""
    return (
        "Wald",
        "exact",
        f"exact, {study.n_looks} looks",
        f"exact, {study.n_looks} looks at alpha/{study.n_looks}",
        "bound without data",
        "the paper's bound",
        f"maximal bound from {study.planned}",
        "prior-posterior",
        "betting, no plan",
        f"betting for {study.planned}",
        f"betting for ±{100 * study.half_width:.3g} points",
        f"Hoeffding for {study.planned}",
        f"empirical Bernstein for {study.planned}",
    )


def replicate(task: Task) -> Array:
    """Watch one order by all methods, (2, n_methods, n_shown): wrong by then, and half-width.

    Draws from a generator seeded by (seed, replicate).
    """
    study, rep = task
    rng = np.random.default_rng([study.seed, rep])
    scores = (rng.permutation(study.n_items) < study.n_right).astype(np.float64)
    at = np.array(study.shown) - 1
    found = []
    # At the last item all is known, and nothing is left to be wrong about.
    for is_wrong, half in _watch(study, scores[:-1]):
        counted = is_wrong & (np.arange(1, study.n_items) >= study.first)
        found.append((np.logical_or.accumulate(counted)[at], half))
    return np.array(found).transpose(1, 0, 2)


def _watch(study: Study, scores: Array) -> Iterator[_Watched]:
    """Give what each of `methods` says, in their order."""
    n_items, alpha = study.n_items, study.alpha
    n = np.arange(1, n_items)
    k = np.cumsum(scores)
    p = k / n
    spread = np.sqrt(p * (1 - p) / n * (n_items - n) / (n_items - 1))
    yield _around(study, p, -ndtri(alpha / 2) * spread)
    is_look = np.isin(n, study.looks)
    exact, strict = (_exact(study, k, each) for each in (alpha, alpha / study.n_looks))
    yield exact
    yield exact._replace(is_wrong=exact.is_wrong & is_look)
    yield strict._replace(is_wrong=strict.is_wrong & is_look)
    yield _around(study, p, subsample_half_width(n, n_items, alpha))
    yield _around(study, p, exchangeable_half_width(n, n_items, alpha))
    kept = maximal_half_width(study.planned, n_items, alpha)
    yield _around(study, p, np.where(n >= study.planned, kept, 1.0))
    level, planned = 1 - alpha, Plan(n=study.planned)
    yield _of(study, prior_posterior_wor(scores, n_items, level=level))
    for plan in (Plan(), planned, Plan(half_width=study.half_width)):
        yield _of(study, betting_wor(scores, n_items, level=level, plan=plan))
    yield _of(study, hoeffding_wor(scores, n_items, level=level, plan=planned))
    yield _of(study, empirical_bernstein_wor(scores, n_items, level=level, plan=planned))


def _around(study: Study, p: Array, half: Array) -> _Watched:
    return _of(study, Interval(p - half, p + half))


def _of(study: Study, found: Interval) -> _Watched:
    truth = study.n_right / study.n_items
    half = (found.upper - found.lower) / 2
    is_wrong = (found.lower > truth) | (found.upper < truth)
    return _Watched(is_wrong, half[np.array(study.shown) - 1])


def _exact(study: Study, k: Array, alpha: float) -> _Watched:
    """Invert the hypergeometric law: its interval leaves the truth out where k is in a tail of it."""
    least, most = _usual(study.n_items, study.n_right, alpha)
    n = np.array(study.shown)
    lower, upper = hypergeometric_interval(k[n - 1], n, study.n_items, alpha)
    return _Watched((k < least) | (k > most), (upper - lower) / 2)


@lru_cache(maxsize=8)
def _usual(n_items: int, n_right: int, alpha: float) -> tuple[Array, Array]:
    """Give the least and the most right answers that are in no tail, after each item."""
    law = hypergeom(n_items, n_right, np.arange(1, n_items))
    return law.ppf(alpha / 2), law.isf(alpha / 2)


_WRONG = {
    "Wald": "77.6",
    "exact": "63.7",
    "exact, 9 looks": "21.7",
    "exact, 9 looks at alpha/9": "3.4",
    "bound without data": "11.6",
    "prior-posterior": "2.4",
    "betting, no plan": "3.3",
    "betting for 500": "4.66",
    "Hoeffding for 500": "2.1",
    "empirical Bernstein for 500": "1.9",
}
_WRONG_ELSEWHERE = {
    0.5: {"prior-posterior": "4.2"},
    0.95: {"betting for 500": "4.39"},
}
_HALF = {
    "Wald": ("6.0", "3.5", "2.0"),
    "exact": ("6.2", "3.5", "2.0"),
    "bound without data": ("9.1", "5.3", "3.0"),
    "prior-posterior": ("10.0", "6.1", "3.7"),
    "betting, no plan": ("10.2", "6.8", "4.6"),
    "betting for 500": ("8.8", "4.4", "2.7"),
    "Hoeffding for 500": ("10.1", "5.3", "3.3"),
    "empirical Bernstein for 500": ("9.9", "5.5", "3.5"),
}


def _reference(study: Study) -> By:
    """Give what another program measured, at p = .7 and in part elsewhere."""
    last = study.n_items - 1
    wrong = _WRONG if study.p == 0.7 else _WRONG_ELSEWHERE.get(study.p, {})
    half = _HALF if study.p == 0.7 else {}
    return {
        **{f"{name}: wrong by then, %": {last: each} for name, each in wrong.items()},
        **{
            f"{name}: ± points": dict(zip((200, 500, 1000), row, strict=True))
            for name, row in half.items()
        },
    }
