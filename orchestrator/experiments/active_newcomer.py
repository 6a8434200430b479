"""A new model among known ones: how many comparisons until its strength is as certain as is wanted."""

from __future__ import annotations

from concurrent.futures import Executor
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from scipy.special import expit

from estimators.intervals import Array
from orchestrator.experiments.active import (
    AOPT,
    AOPT_FLAT,
    ARENA,
    DOPT,
    UNIFORM,
    Sampler,
    campaign,
    score_widths,
    strengths,
)
from orchestrator.experiments.est_ivwe import ratio_of_means
from orchestrator.experiments.fanout import Progress, fan_out, silent
from orchestrator.experiments.figures import Figure, cited, mean
from policies.pairing.acquisition import pairs
from policies.pairing.posterior import Posterior


@dataclass(frozen=True, slots=True, kw_only=True)
class Study:
    """What is simulated.

    Parameters
    ----------
    n_models : the last is new, the others have `n_known` comparisons each, of uniform pairs
    width : of the newcomer's 95 % interval, at which it is certain enough
    n : comparisons of a replicate, in batches
    """

    n_models: int = 20
    n_known: int = 400
    spread: float = 0.8
    width: float = 0.8
    samplers: tuple[Sampler, ...] = (UNIFORM, ARENA, AOPT_FLAT, AOPT, DOPT)
    n: int = 2000
    batch: int = 5
    n_reps: int = 30
    seed: int = 104

    @property
    def title(self) -> str:
        """What a table of it is called."""
        return f"a new model beside {self.n_models - 1} with {self.n_known} comparisons each"


class Task(NamedTuple):
    """One replicate of one sampler."""

    study: Study
    sampler: Sampler
    rep: int


def run(study: Study, executor: Executor, progress: Progress = silent) -> dict[Sampler, Array]:
    """Simulate all replicates of all samplers; width of the newcomer after each batch, (n_reps, n)."""
    tasks = [Task(study, way, rep) for way in study.samplers for rep in range(study.n_reps)]
    found = np.array(fan_out(replicate, tasks, executor, progress))
    by_sampler = found.reshape(len(study.samplers), study.n_reps, study.n)
    return dict(zip(study.samplers, by_sampler, strict=True))


def replicate(task: Task) -> Array:
    """Simulate one replicate: the newcomer's width after each comparison, (n,).

    A comparison shows the width of the last batch that ended by then; before the first it is
    infinite. Strengths and known comparisons come from a generator seeded by (seed, replicate), the
    same for all samplers, the rest from one by (seed, replicate, 1).
    """
    study, sampler, rep = task
    m = study.n_models
    before = np.random.default_rng([study.seed, rep])
    theta = strengths(m, study.spread, before)
    first, second = pairs(m - 1)
    at = before.integers(len(first), size=study.n_known * (m - 1) // 2)
    a, b = first[at], second[at]
    state = Posterior(m)
    state.learn(a, b, before.random(len(a)) < expit(theta[a] - theta[b]))
    widths = np.full(study.n, np.inf)
    rng = np.random.default_rng([study.seed, rep, 1])
    for n in campaign(theta, sampler, study.batch, state, rng):
        if n > study.n:
            break
        widths[n - 1 :] = score_widths(state.known_cov)[-1]
    return widths


REFERENCE = {
    UNIFORM: "1124 ± 34",
    ARENA: "200 ± 7",
    AOPT_FLAT: "177 ± 5",
    AOPT: "124 ± 1",
    DOPT: "132 ± 2",
}


def figures_of(study: Study, seen: dict[Sampler, Array]) -> list[Figure]:
    """Give the comparisons until the newcomer is certain enough, and its width along the way.

    A replicate that never is counts with all its comparisons.
    """
    title, n = study.title, study.n
    figures: list[Figure] = []
    enough = {
        sampler: np.where(is_narrow.any(axis=1), is_narrow.argmax(axis=1) + 1.0, n)
        for sampler, is_narrow in ((way, widths <= study.width) for way, widths in seen.items())
    }
    for sampler, widths in seen.items():
        name = sampler.name
        figures += [
            mean(title, f"{name}: width", at, widths[:, at - 1])
            for at in (50, 100, 200, 500, 1000, 2000)
            if at <= n
        ]
        figures.append(mean(title, f"{name}: comparisons", n, enough[sampler]))
        if sampler is not UNIFORM and UNIFORM in enough:
            ratio, se = ratio_of_means(enough[sampler], enough[UNIFORM])
            figures.append(
                Figure(title, f"{name}: of uniform's comparisons", n, ratio, se, study.n_reps)
            )
    is_published = (study.n_models, study.n_known, study.width) == (20, 400, 0.8)
    known = {f"{way.name}: comparisons": {n: says} for way, says in REFERENCE.items()}
    return cited(figures, {}, known if is_published else {})


def table(study: Study, executor: Executor, progress: Progress = silent) -> list[Figure]:
    """Simulate the study."""
    return figures_of(study, run(study, executor, progress))
