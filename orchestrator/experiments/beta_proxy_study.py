"""What the best sub-Gaussian proxy of a Beta law is, beside the variance and looser bounds.

Subjects' chances follow Beta(a, b). A bound for a macro score as ability wants a proxy variance of that
law: the variance is too small for it, and says too little of the far tails; Elder's bound is simple and
safe; Kearns and Saul's knows the mean alone, and 1/4 nothing.
"""

from __future__ import annotations

from concurrent.futures import Executor
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from scipy.special import ndtri
from scipy.stats import beta

from estimators.beta_proxy import bernoulli_proxy, beta_proxy
from estimators.intervals import Array
from estimators.macro_ability import Mixture, independent_items_half_width, macro_ability
from estimators.subsample_bounds import sub_gaussian_half_width
from orchestrator.experiments.fanout import Progress, fan_out, silent
from orchestrator.experiments.figures import Figure, mean, share

MEANS = (0.5, 0.7, 0.9, 0.98)
SUMS = (1, 2, 5, 10, 30, 100, 1000)
"""Of a and b."""

ONE_IN = (20, 100, 1000, 10_000)
"""Errors: one in so many."""

SUBJECTS = (10, 20, 57)


class Law(NamedTuple):
    """A Beta law of chances."""

    a: float
    b: float

    @property
    def mean(self) -> float:
        """Expected chance."""
        return self.a / (self.a + self.b)

    @property
    def proxies(self) -> dict[str, float]:
        """Candidates for a proxy variance, by name; the first is none."""
        total = self.a + self.b
        return {
            "variance": self.mean * (1 - self.mean) / (total + 1),
            "best proxy": beta_proxy(self.a, self.b),
            "Elder's bound": 1 / (4 * (total + 1)),
            "Kearns and Saul's": bernoulli_proxy(self.mean),
            "1/4": 0.25,
        }

    def __str__(self) -> str:
        return f"Beta({self.a:g}, {self.b:g})"


USUAL, SKEWED = Law(7, 3), Law(1, 50)


@dataclass(frozen=True, slots=True, kw_only=True)
class Study:
    """What is simulated.

    Parameters
    ----------
    law : of subjects' chances
    n_items : of each subject
    """

    law: Law = USUAL
    n_items: int = 100
    alpha: float = 0.05
    n_reps: int = 100
    seed: int = 8


class Task(NamedTuple):
    """One benchmark of so many subjects."""

    study: Study
    n_subjects: int
    rep: int


def proxies() -> list[Figure]:
    """Give proxies over the variance, by mean and a + b; exact."""
    figures = []
    for mu in MEANS:
        title = f"chances of mean {mu:g}, by a + b"
        for total in SUMS:
            found = Law(mu * total, (1 - mu) * total).proxies
            variance = found["variance"]
            figures.append(Figure(title, "variance", total, variance, np.nan, 0))
            figures += [
                Figure(title, f"{name} / variance", total, each / variance, np.nan, 0)
                for name, each in found.items()
                if name != "variance"
            ]
    return figures


def tails(law: Law) -> list[Figure]:
    """Give how likely a chance lies beyond a half-width, over the error it is for; exact.

    Above 1 the half-width is no bound.
    """
    title = f"one chance from {law}, beyond its half-width for an error of one in"
    figures = []
    for n in ONE_IN:
        for name, proxy in law.proxies.items():
            half = float(sub_gaussian_half_width(proxy, 1 / n))
            beyond = beta.sf(law.mean + half, *law) + beta.cdf(law.mean - half, *law)
            what = f"by {_called(name)}: chance / error"
            figures.append(Figure(title, what, n, float(beyond * n), np.nan, 0))
    return figures


def _called(name: str) -> str:
    return name if name[0] in "1EK" else f"the {name}"


def run(study: Study, executor: Executor, progress: Progress = silent) -> list[Figure]:
    """Give half-widths of a macro score by each proxy, and how often ability lies outside."""
    law, reps = study.law, range(study.n_reps)
    tasks = [Task(study, n, rep) for n in SUBJECTS for rep in reps]
    found = np.array(fan_out(replicate, tasks, executor, progress))
    by_size = found.reshape(len(SUBJECTS), study.n_reps, len(METHODS), 2)
    title = f"ability by subjects, {study.n_items} items each, chances from {law}"
    figures = []
    for n, by_rep in zip(SUBJECTS, by_size, strict=True):
        for name, proxy in law.proxies.items():
            total = 1 / (4 * study.n_items * n) + proxy / n
            half = 100 * float(sub_gaussian_half_width(total, study.alpha))
            what = f"by {_called(name)}: ± points"
            figures.append(Figure(title, what, n, half, np.nan, 0))
        for name, (is_missed, half) in zip(METHODS, by_rep.transpose(1, 2, 0), strict=True):
            figures.append(mean(title, f"{name}: ± points", n, 100 * half))
            figures.append(share(title, f"{name}: misses, %", n, is_missed > 0))
    return figures


METHODS = ("fitted law", "fitted law, upper limit", "items taken for independent")
_MIXTURES: tuple[Mixture, Mixture] = ("plug_in", "upper")


def replicate(task: Task) -> Array:
    """Answer one benchmark, (n_methods, 2): whether ability is missed, and the half-width.

    Draws from a generator seeded by (seed, subjects, replicate).
    """
    study, n_subjects, rep = task
    rng = np.random.default_rng([study.seed, n_subjects, rep])
    n = np.full(n_subjects, study.n_items)
    k = rng.binomial(n, rng.beta(*study.law, n_subjects))
    found = [macro_ability(k, n, delta=study.alpha, mixture=mixture) for mixture in _MIXTURES]
    z = -float(ndtri(study.alpha / 2))
    halves = [*(each.half_width for each in found), independent_items_half_width(k, n, z=z)]
    off = abs(found[0].score - study.law.mean)
    return np.array([(off > half, half) for half in halves])
