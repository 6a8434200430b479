"""Who is best: how many comparisons it takes to prove a leader, and how often a false one is proved.

After each batch the leader's gaps to all others are looked at, by two bounds: confidence sequences in
information time, each at alpha/(M - 1), which hold at every look; and the one-sided bound for one look
at a fixed end, taken at every look all the same, to show what that costs where two leaders are tied.
"""

from __future__ import annotations

from concurrent.futures import Executor
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from scipy.special import ndtri

from estimators import bt_inference
from estimators.bt_inference import AtEnd, Bound
from estimators.intervals import Array
from orchestrator.experiments.active import (
    AOPT,
    ARENA,
    DOPT,
    TOP1,
    TOP1_LOW,
    UNIFORM,
    Sampler,
    campaign,
)
from orchestrator.experiments.est_ivwe import ratio_of_means
from orchestrator.experiments.fanout import Progress, fan_out, silent
from orchestrator.experiments.figures import By, Figure, cited, mean, share
from policies.pairing.posterior import Posterior

ALPHA = 0.05
PLANNED_GAP = 0.4
LOOKS = (500, 1000, 2000, 4000, 8000, 16000, 32000)
"""Comparisons at which it is shown how many replicates have a leader by then."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Study:
    """What is simulated.

    The leader is `gap` above the runner-up, who is at 0; the others lie uniformly in (-2, 0).

    Parameters
    ----------
    gap : log-odds; 0: two leaders are tied, and whoever is proved to lead does not
    batch : comparisons between looks
    cap : comparisons after which a replicate ends without a leader
    """

    n_models: int = 10
    gap: float = 0.4
    samplers: tuple[Sampler, ...] = (UNIFORM, ARENA, AOPT, DOPT, TOP1, TOP1_LOW)
    batch: int = 15
    cap: int = 16000
    n_reps: int = 60
    seed: int = 103

    @property
    def title(self) -> str:
        """What a table of it is called."""
        lead = f"leader {self.gap:g} ahead" if self.gap else "two leaders tied"
        return f"{lead}, {self.n_models} models"


def grid(n_reps: int = 60, seed: int = 103) -> list[Study]:
    """Give the settings of the published table, and tied leaders beside."""
    return [
        Study(n_reps=n_reps, seed=seed),
        Study(
            n_models=30,
            samplers=(UNIFORM, ARENA, AOPT, TOP1, TOP1_LOW),
            batch=60,
            cap=32000,
            n_reps=max(2, n_reps * 2 // 5),
            seed=seed,
        ),
        Study(gap=0.0, samplers=(UNIFORM, TOP1), cap=4000, n_reps=n_reps, seed=seed),
    ]


class Task(NamedTuple):
    """One replicate of one sampler."""

    study: Study
    sampler: Sampler
    rep: int


class Ended(NamedTuple):
    """When a bound proved a leader, and whom, (n_reps,) each; infinity and nan: not by the cap."""

    n: Array
    leader: Array


class Seen(NamedTuple):
    """What one sampler came to by each bound."""

    sequence: Ended
    fixed: Ended


def run(study: Study, executor: Executor, progress: Progress = silent) -> dict[Sampler, Seen]:
    """Simulate all replicates of all samplers."""
    tasks = [Task(study, way, rep) for way in study.samplers for rep in range(study.n_reps)]
    found = np.array(fan_out(replicate, tasks, executor, progress))
    by_sampler = found.reshape(len(study.samplers), study.n_reps, 2, 2)
    return {
        sampler: Seen(*(Ended(*own[:, bound].T) for bound in range(2)))
        for sampler, own in zip(study.samplers, by_sampler, strict=True)
    }


def replicate(task: Task) -> Array:
    """Simulate one replicate to its leader or its cap: by bound, n and the leader, (2, 2).

    Strengths come from a generator seeded by (seed, models, replicate), the same for all samplers,
    pairs and verdicts from one by (seed, models, replicate, 1).
    """
    study, sampler, rep = task
    m = study.n_models
    others = np.random.default_rng([study.seed, m, rep]).uniform(-2, 0, m - 2)
    theta = np.concatenate(([study.gap, 0.0], others))
    bounds: tuple[Bound, ...] = (
        bt_inference.watched(m - 1, planned_gap=PLANNED_GAP, level=1 - ALPHA),
        AtEnd(float(ndtri(1 - ALPHA / (m - 1)))),
    )
    found = np.tile([np.inf, np.nan], (2, 1))
    state = Posterior(m)
    rng = np.random.default_rng([study.seed, m, rep, 1])
    for n in campaign(theta, sampler, study.batch, state, rng):
        if n > study.cap:
            break
        gaps = bt_inference.gaps(state.theta, state.known_cov)
        for bound, end in zip(bounds, found, strict=True):
            if np.isinf(end[0]):
                leader = bt_inference.leader(state.theta, bt_inference.proved(gaps, bound))
                if leader.is_separated:
                    end[:] = n, leader.model
        if np.isfinite(found[:, 0]).all():
            break
    return found


FIXED: dict[int, dict[Sampler, str]] = {
    10: {
        UNIFORM: "1977 ± 163",
        ARENA: "2134 ± 152",
        AOPT: "1802 ± 157",
        DOPT: "1574 ± 127",
        TOP1: "715 ± 50",
        TOP1_LOW: "640 ± 47",
    },
    30: {
        UNIFORM: "> 9962",
        ARENA: "> 10140",
        AOPT: "7162 ± 726",
        TOP1: "2282 ± 167",
        TOP1_LOW: "2340 ± 182",
    },
}
"""Another program's comparisons with the bound of a fixed end, by models; `>`: some were cut off."""

SEQUENCE: dict[int, dict[Sampler, str]] = {10: {UNIFORM: "> 4584", TOP1: "1499 ± 101"}}
"""The same with confidence sequences."""


def figures_of(study: Study, seen: dict[Sampler, Seen]) -> list[Figure]:
    """Give how many replicates have a leader when, after how many comparisons, and how many a false one.

    A replicate that was cut off counts with the cap.
    """
    title, cap = study.title, study.cap
    looks = [n for n in LOOKS if n <= cap]
    figures: list[Figure] = []
    reference: dict[str, dict[int, str]] = {}
    uniform = seen.get(UNIFORM)
    for sampler, (sequence, fixed) in seen.items():
        name = sampler.name
        figures += [share(title, f"{name}, separated, %", n, sequence.n <= n) for n in looks]
        for label, end in ((name, sequence), (f"{name}, fixed bound", fixed)):
            is_false = np.isfinite(end.n) & ((end.leader != 0) | (study.gap == 0))
            figures.append(mean(title, f"{label}: comparisons", cap, np.minimum(end.n, cap)))
            figures.append(share(title, f"{label}: false leader, %", cap, is_false))
        if study.gap and uniform and sampler is not UNIFORM:
            ratio, se = ratio_of_means(
                np.minimum(sequence.n, cap), np.minimum(uniform.sequence.n, cap)
            )
            what = f"{name}: of uniform's comparisons"
            figures.append(Figure(title, what, cap, ratio, se, study.n_reps))
        if study.gap == 0.4:
            reference[f"{name}: comparisons"] = {
                cap: SEQUENCE.get(study.n_models, {}).get(sampler, "")
            }
            reference[f"{name}, fixed bound: comparisons"] = {
                cap: FIXED.get(study.n_models, {}).get(sampler, "")
            }
    by: By = reference
    return cited(figures, {}, by)


def table(studies: list[Study], executor: Executor, progress: Progress = silent) -> list[Figure]:
    """Simulate all settings."""
    return [
        figure for study in studies for figure in figures_of(study, run(study, executor, progress))
    ]
