"""Do claims about strengths hold: rank intervals at a fixed end, and all claims while one watches.

`peeking` is about a pair of equal models, looked at again and again. `ranks` is about ten models at a
fixed end, and along the way: a run may end at any look, so it errs if it errs at one of them.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Executor
from dataclasses import dataclass
from typing import Literal, NamedTuple, get_args

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit, ndtri

from estimators.bt_inference import (
    AtEnd,
    Claims,
    gaps,
    leader,
    max_t,
    proved,
    rank_intervals,
    watched,
)
from estimators.bt_model import fit_bradley_terry
from estimators.confidence_sequences import (
    beta_binomial_sequence,
    increments_half_width,
)
from estimators.intervals import Array
from orchestrator.experiments.fanout import Progress, fan_out, silent
from orchestrator.experiments.figures import By, Figure, cited, mean, share
from policies.pairing.acquisition import pairs

Z = float(ndtri(0.975))
LEVEL = 0.95
DRAWS = 4_000
"""Of the largest |z|; the bound's own error is then 0.02."""

# --- a pair of equal models --------------------------------------------------------------------

PEEKS = range(50, 2001, 10)
PLANNED = 500
_PEEKING: By = {
    "fixed interval excludes 0 by then, %": {2000: "34.8"},
    "confidence sequence excludes 0 by then, %": {2000: "2.2"},
    "width, sequence / fixed": {500: "1.549", 2000: "1.595"},
}
_SHOWN = (50, 100, 200, 500, 1000, 2000)


def peeking(n_reps: int = 2000, seed: int = 3) -> list[Figure]:
    """Look at a pair of equal models after every 10 of 2,000 comparisons.

    Draws from generators seeded by (seed, replicate).
    """
    n = np.array(PEEKS, dtype=np.float64)
    outcomes = np.array(
        [np.random.default_rng([seed, rep]).random(PEEKS[-1]) < 0.5 for rep in range(n_reps)]
    )
    won = outcomes.cumsum(axis=1)[:, n.astype(np.int64) - 1].astype(np.float64)
    off = np.abs(won / n - 0.5)
    sd = np.sqrt(won / n * (1 - won / n) * n / (n - 1))
    wide = np.array([increments_half_width(1.0, int(each), LEVEL, PLANNED) for each in n])
    exact = beta_binomial_sequence(won, np.broadcast_to(n, won.shape), LEVEL)
    found = {
        "fixed interval": off > Z * sd / np.sqrt(n),
        "confidence sequence": off > sd * wide,
        "beta-binomial sequence": (exact.lower > 0.5) | (exact.upper < 0.5),
    }
    title = "two equal models, a look every 10 from 50"
    places = [PEEKS.index(each) for each in _SHOWN]
    figures = [
        share(title, f"{name} excludes 0 by then, %", each, is_out[:, place])
        for name, crossed in found.items()
        for is_out in (np.logical_or.accumulate(crossed, axis=1),)
        for each, place in zip(_SHOWN, places, strict=True)
    ]
    figures += [
        Figure(
            title, "width, sequence / fixed", each, float(wide[i] * np.sqrt(n[i]) / Z), np.nan, 0
        )
        for each, i in zip(_SHOWN, places, strict=True)
    ]
    return cited(figures, {}, _PEEKING)


# --- ranks -------------------------------------------------------------------------------------

Truth = Literal["far apart", "nearly tied", "two tiers", "all tied", "two tied leaders"]

TRUTHS: dict[Truth, Callable[[int], Array]] = {
    "far apart": lambda m: np.linspace(1.8, -1.8, m),
    "nearly tied": lambda m: np.linspace(0.09, -0.09, m),
    "two tiers": lambda m: np.where(np.arange(m) < m / 2, 0.5, -0.5) - 0.001 * np.arange(m),
    "all tied": np.zeros,
    "two tied leaders": lambda m: np.where(np.arange(m) < 2, 0.8, -0.2 - 0.1 * np.arange(m)),
}

_RANKS: dict[Truth, tuple[str, str, str]] = {
    "far apart": ("100.0", "100.0", "98.0"),
    "nearly tied": ("99.5", "98.3", "84.5"),
    "two tiers": ("99.8", "99.0", "82.0"),
}
"""By another program, with strengths of its own: percent of runs in which all ranks are held, by
max-t, by intervals that don't overlap, and by single tests of all pairs at 5 %."""


WATCHED = tuple(range(300, 3001, 300))
"""Comparisons at each look of a run that is watched."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Study:
    """What is simulated.

    Parameters
    ----------
    looks : comparisons at each look, ascending; the last is the fixed end
    """

    truth: Truth = "nearly tied"
    n_models: int = 10
    looks: tuple[int, ...] = (3000,)
    n_reps: int = 400
    seed: int = 9

    @property
    def theta(self) -> Array:
        """Strengths, (M,)."""
        return TRUTHS[self.truth](self.n_models)


class Task(NamedTuple):
    """One replicate of a study."""

    study: Study
    rep: int


METHODS = (
    "max-t",
    "intervals apart",
    "single tests",
    "sequences",
    "sequences of a leader",
)
"""Ways to claim that a model is better than another."""


class Seen(NamedTuple):
    """What was found, (n_reps, n_looks, n_methods) each.

    `is_held` says that all rank intervals hold the true ranks; `is_wrong` that a leader was declared
    who is not best; `is_settled` that one was declared; `width` is the mean number of ranks.
    """

    is_held: NDArray[np.bool_]
    is_wrong: NDArray[np.bool_]
    is_settled: NDArray[np.bool_]
    width: Array


def run(study: Study, executor: Executor, progress: Progress = silent) -> Seen:
    """Simulate all replicates."""
    tasks = [Task(study, rep) for rep in range(study.n_reps)]
    found = np.array(fan_out(replicate, tasks, executor, progress))
    held, wrong, settled, width = np.moveaxis(found, -1, 0)
    return Seen(held > 0, wrong > 0, settled > 0, width)


def replicate(task: Task) -> Array:
    """Simulate one replicate, (n_looks, n_methods, fields of `Seen`).

    Draws comparisons from a generator seeded by (seed, replicate), and the law of the largest |z|
    at each look from it, behind them.
    """
    study, rep = task
    rng = np.random.default_rng([study.seed, rep])
    theta, m = study.theta, study.n_models
    first, second = pairs(m)
    at = rng.integers(len(first), size=study.looks[-1])
    chance = expit(theta[first] - theta[second])[at]
    outcome = (rng.random(len(at)) < chance).astype(np.float64)
    # Of equal models none is above another: each may have any rank of theirs.
    best = 1 + (theta[:, None] > theta).sum(axis=0)
    worst = m - (theta[:, None] > theta).sum(axis=1)
    found = np.zeros((len(study.looks), len(METHODS), len(Seen._fields)))
    for n, row in zip(study.looks, found, strict=True):
        fit = fit_bradley_terry(first[at[:n]], second[at[:n]], outcome[:n], n_models=m)
        for cells, above in zip(row, _claims(fit.theta, fit.cov, fit.strong, rng), strict=True):
            ranks, first_one = rank_intervals(above), leader(fit.theta, above)
            cells[:] = (
                ((ranks.best <= best) & (worst <= ranks.worst)).all(),
                first_one.is_separated and worst[first_one.model] > 1,
                first_one.is_separated,
                (ranks.worst - ranks.best + 1).mean(),
            )
    return found


def _claims(
    theta: Array, cov: Array, strong: NDArray[np.int64], rng: np.random.Generator
) -> list[Claims]:
    """Claim by each of `METHODS`."""
    m = len(theta)
    found = gaps(theta, cov, strong=strong)
    n_pairs = m * (m - 1) // 2
    one = Z * np.sqrt(np.diag(cov))
    return [
        proved(found, AtEnd(max_t(cov, rng, se=found.se, level=LEVEL, draws=DRAWS))),
        np.subtract.outer(theta - one, theta + one) > 0,
        proved(found, AtEnd(Z)),
        proved(found, watched(n_pairs, level=LEVEL)),
        proved(found, watched(m - 1, level=LEVEL)),
    ]


def figures_of(study: Study, seen: Seen) -> list[Figure]:
    """Give how often all rank intervals held and a wrong leader was declared: at the end, and ever."""
    n, is_watched = study.looks[-1], len(study.looks) > 1
    title = f"{study.n_models} models, {study.truth}" + (", watched" if is_watched else "")
    figures = []
    for k, name in enumerate(METHODS):
        leader_only = name == METHODS[-1]
        held, wrong, settled = (
            part[..., k] for part in (seen.is_held, seen.is_wrong, seen.is_settled)
        )
        if not leader_only:
            figures.append(share(title, f"{name}: all ranks held at the end, %", n, held[:, -1]))
            if is_watched:
                what = f"{name}: all ranks held at every look, %"
                figures.append(share(title, what, n, np.logical_and.reduce(held, axis=1)))
            width = seen.width[:, -1, k]
            figures.append(mean(title, f"{name}: ranks in an interval, mean", n, width))
        if is_watched:
            for what, happened in (("wrong leader", wrong), ("leader", settled)):
                ever = np.logical_or.reduce(happened, axis=1)
                figures.append(share(title, f"{name}: {what} at some look, %", n, ever))
    known = zip(METHODS, _RANKS.get(study.truth, ()), strict=False)
    beside: By = {f"{name}: all ranks held at the end, %": {3000: each} for name, each in known}
    return cited(figures, {}, beside)


def ranks(n_reps: int, seed: int, executor: Executor, progress: Progress = silent) -> list[Figure]:
    """Bound ranks at a fixed end, and where a run is watched at ten looks."""
    studies = [
        *(Study(truth=truth, n_reps=n_reps, seed=seed) for truth in _RANKS),
        *(
            Study(truth=truth, looks=WATCHED, n_reps=n_reps, seed=seed)
            for truth in get_args(Truth)
            if truth not in _RANKS
        ),
    ]
    return [
        figure for study in studies for figure in figures_of(study, run(study, executor, progress))
    ]
