"""The whole ranking at equal budgets: what choosing pairs brings, and what not.

After each batch a replicate's leader, order, widest interval and error are measured. A level counts as
reached where the mean over replicates has passed it for good.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from concurrent.futures import Executor
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from estimators.intervals import Array
from orchestrator.experiments.active import (
    AOPT,
    AOPT_FLAT,
    ARENA,
    DOPT,
    EIG,
    TOP1,
    UNIFORM,
    Sampler,
    campaign,
    score_widths,
    strengths,
)
from orchestrator.experiments.fanout import Progress, fan_out, silent
from orchestrator.experiments.figures import Figure, cited, mean
from policies.pairing.acquisition import pairs
from policies.pairing.posterior import Posterior

RESAMPLES = 200


@dataclass(frozen=True, slots=True, kw_only=True)
class Study:
    """What is simulated.

    Parameters
    ----------
    spread : standard deviation of strengths, log-odds
    n, batch : comparisons of a replicate, and of them between two measurements
    """

    n_models: int = 10
    spread: float = 0.8
    samplers: tuple[Sampler, ...] = (UNIFORM, ARENA, DOPT, AOPT_FLAT, AOPT, EIG, TOP1)
    n: int = 1500
    batch: int = 15
    n_reps: int = 60
    seed: int = 101

    @property
    def title(self) -> str:
        """What a table of it is called."""
        return f"{self.n_models} models, strengths' SD {self.spread:g}"

    @property
    def sizes(self) -> NDArray[np.int64]:
        """Comparisons at each measurement."""
        return np.arange(self.batch, self.n + 1, self.batch)


def grid(n_reps: int = 60, seed: int = 101) -> list[Study]:
    """Give the settings of the published tables."""
    fewer: tuple[Sampler, ...] = (UNIFORM, ARENA, AOPT_FLAT, AOPT, TOP1)
    return [
        *(Study(spread=spread, n_reps=n_reps, seed=seed) for spread in (0.8, 2.0)),
        *(
            Study(
                n_models=30,
                spread=spread,
                samplers=fewer,
                n=6000,
                batch=60,
                n_reps=max(2, n_reps * 2 // 5),
                seed=seed + 1,
            )
            for spread in (0.8, 2.0)
        ),
    ]


class Task(NamedTuple):
    """One replicate of one sampler."""

    study: Study
    sampler: Sampler
    rep: int


class Seen(NamedTuple):
    """What was measured, (n_reps, n_sizes) each.

    `regret` is the strength of the best model less that of the one found best; `tau` Kendall's with
    the true order; `width` the widest 95 % interval of a strength; `rmse` of strengths.
    """

    regret: Array
    tau: Array
    width: Array
    rmse: Array


def run(study: Study, executor: Executor, progress: Progress = silent) -> dict[Sampler, Seen]:
    """Simulate all replicates of all samplers."""
    tasks = [Task(study, way, rep) for way in study.samplers for rep in range(study.n_reps)]
    found = np.array(fan_out(replicate, tasks, executor, progress))
    by_sampler = found.reshape(len(study.samplers), study.n_reps, -1, len(Seen._fields))
    return {
        sampler: Seen(*np.moveaxis(own, -1, 0))
        for sampler, own in zip(study.samplers, by_sampler, strict=True)
    }


def replicate(task: Task) -> Array:
    """Simulate one replicate, (n_sizes, fields of `Seen`).

    Strengths come from a generator seeded by (seed, replicate), the same for all samplers, the rest
    from one by (seed, replicate, 1).
    """
    study, sampler, rep = task
    theta = strengths(study.n_models, study.spread, np.random.default_rng([study.seed, rep]))
    first, second = pairs(study.n_models)
    true_sign = np.sign(theta[first] - theta[second])
    state = Posterior(study.n_models)
    rng = np.random.default_rng([study.seed, rep, 1])
    found = []
    for n in campaign(theta, sampler, study.batch, state, rng):
        if n > study.n:
            break
        if n % study.batch:
            continue
        own = state.theta
        found.append(
            (
                theta.max() - theta[own.argmax()],
                (np.sign(own[first] - own[second]) * true_sign).mean(),
                score_widths(state.known_cov).max(),
                math.sqrt(((own - theta) ** 2).mean()),
            )
        )
    return np.array(found)


LEVELS: dict[str, tuple[Callable[[Seen], Array], float]] = {
    "leader's regret <= 0.05": (lambda seen: -seen.regret, -0.05),
    "tau >= 0.80": (lambda seen: seen.tau, 0.80),
    "tau >= 0.90": (lambda seen: seen.tau, 0.90),
    "tau >= 0.95": (lambda seen: seen.tau, 0.95),
    "widest <= 1.0": (lambda seen: -seen.width, -1.0),
    "widest <= 0.7": (lambda seen: -seen.width, -0.7),
    "RMSE <= 0.2": (lambda seen: -seen.rmse, -0.2),
}


def passage(values: Array, level: float, sizes: NDArray[np.int64]) -> float:
    """Give the comparisons from which a mean over replicates is at a level or above; nan: never.

    Parameters
    ----------
    values : (n_reps, n_sizes)
    """
    is_short = values.mean(axis=0) < level
    if is_short[-1]:
        return math.nan
    return float(sizes[len(sizes) - int(is_short[::-1].argmax())] if is_short.any() else sizes[0])


_NOT = "not reached"
_WHATS = (*LEVELS, "right leader, %", "tau", "widest", "RMSE")
REFERENCE: dict[tuple[int, float], dict[Sampler, str]] = {
    (10, 0.8): {
        UNIFORM: "330 ± 105|285 ± 32|1005 ± 171||525 ± 16|1035 ± 30|525 ± 21|88|0.921|0.58|0.117",
        ARENA: "345 ± 131|240 ± 31|1275 ± 204||525 ± 19|1050 ± 38|465 ± 36|95|0.916|0.59|0.118",
        DOPT: "450 ± 128|240 ± 35|1035 ± 207||555 ± 26|1125 ± 42|525 ± 29|88|0.905|0.59|0.114",
        AOPT_FLAT: "480 ± 170|315 ± 49|975 ± 174||480 ± 13|960 ± 22|510 ± 23|87|0.918|0.56|0.113",
        AOPT: "435 ± 136|225 ± 29|990 ± 141||465 ± 12|900 ± 17|555 ± 34|88|0.920|0.54|0.115",
        EIG: "300 ± 117|255 ± 28|915 ± 125||555 ± 22|1080 ± 38|570 ± 31|92|0.928|0.59|0.115",
        TOP1: "240 ± 83|300 ± 53|||1410 ± 63||810 ± 68|92|0.895|0.97|0.149",
    },
    (10, 2.0): {
        UNIFORM: "555 ± 143|90 ± 12|240 ± 72|975 ± 245|||1245 ± 134|92|0.957|1.28|0.181",
        ARENA: "225 ± 121|60 ± 5|270 ± 37|1170 ± 198|||1230 ± 146|100|0.964|1.31|0.187",
        DOPT: "150 ± 120|60 ± 9|150 ± 32|750 ± 195|||1185 ± 120|97|0.966|1.15|0.173",
        AOPT_FLAT: "270 ± 103|75 ± 12|255 ± 60|885 ± 154|||975 ± 63|97|0.963|1.07|0.155",
        AOPT: "300 ± 120|60 ± 7|225 ± 38|900 ± 249|1395 ± 66||990 ± 120|95|0.960|0.95|0.167",
        EIG: "165 ± 29|75 ± 7|225 ± 25|735 ± 218|||915 ± 61|95|0.966|1.14|0.159",
        TOP1: "75 ± 32|75 ± 8|375 ± 55|||||98|0.947|1.80|0.256",
    },
    (30, 0.8): {
        UNIFORM: "3540 ± 803|1020 ± 103|4140 ± 497||1980 ± 57|3840 ± 104|1800 ± 105|96|0.913|0.55|0.110",
        ARENA: "4200 ± 686|960 ± 101|4560 ± 476||2100 ± 74|4020 ± 104|1860 ± 111|88|0.915|0.57|0.109",
        AOPT_FLAT: "2460 ± 903|1080 ± 97|4920 ± 434||1680 ± 49|3300 ± 68|1920 ± 76|96|0.913|0.52|0.109",
        AOPT: "1740 ± 856|900 ± 73|3960 ± 304||1560 ± 37|3060 ± 82|1920 ± 100|88|0.928|0.49|0.102",
        TOP1: "720 ± 173|1440 ± 222|||||3420 ± 236|100|0.897|1.07|0.155",
    },
    (30, 2.0): {
        UNIFORM: "1500 ± 1902|300 ± 25|840 ± 100|3720 ± 400|||4080 ± 410|96|0.960|1.19|0.160",
        ARENA: "2820 ± 1138|300 ± 17|1020 ± 112|3240 ± 330|||3180 ± 206|92|0.962|1.17|0.143",
        AOPT_FLAT: "1800 ± 1352|300 ± 25|960 ± 37|3300 ± 520|4380 ± 254||3120 ± 151|88|0.961|0.86|0.138",
        AOPT: "1500 ± 477|300 ± 30|780 ± 34|3060 ± 456|3420 ± 103||2520 ± 228|100|0.968|0.75|0.123",
        TOP1: "480 ± 125|480 ± 75|2460 ± 282|||||100|0.933|1.85|0.250",
    },
}
"""By another program, as `_WHATS`; empty: the level was not reached."""


def figures_of(study: Study, seen: dict[Sampler, Seen]) -> list[Figure]:
    """Give when each level is reached, with its error by a bootstrap of replicates, and the end.

    The bootstrap draws from a generator seeded by (seed, n_reps).
    """
    title, n, sizes = study.title, study.n, study.sizes
    fifths = range(-1, len(sizes), math.ceil(len(sizes) / 5))[1:]
    shown = [*(k for k in fifths if k < len(sizes) - 1), len(sizes) - 1]
    rows = np.random.default_rng([study.seed, study.n_reps]).integers(
        study.n_reps, size=(RESAMPLES, study.n_reps)
    )
    figures: list[Figure] = []
    reference: dict[str, dict[int, str]] = {}
    for sampler, own in seen.items():
        name = sampler.name
        for level, (of, bar) in LEVELS.items():
            values = of(own)
            resampled = np.array([passage(values[row], bar, sizes) for row in rows])
            known = resampled[~np.isnan(resampled)]
            se = float(known.std()) if len(known) > RESAMPLES // 2 else math.nan
            at = passage(values, bar, sizes)
            figures.append(Figure(title, f"{name}: {level}", n, at, se, study.n_reps))
        figures.append(mean(title, f"{name}: right leader, %", n, 100.0 * (own.regret[:, -1] == 0)))
        for what, values in (("tau", own.tau), ("widest", own.width), ("RMSE", own.rmse)):
            figures += [mean(title, f"{name}: {what}", int(sizes[k]), values[:, k]) for k in shown]
        if says := REFERENCE.get((study.n_models, study.spread), {}).get(sampler):
            reference |= {
                f"{name}: {what}": {n: printed or _NOT}
                for what, printed in zip(_WHATS, says.split("|"), strict=True)
            }
        if sampler is not UNIFORM and UNIFORM in seen:
            harm = own.tau[:, -1] - seen[UNIFORM].tau[:, -1]
            figures.append(mean(title, f"{name}: tau less uniform's", n, harm))
    is_published = (n, study.batch) == {10: (1500, 15), 30: (6000, 60)}.get(study.n_models)
    return cited(figures, {}, reference if is_published else {})


def table(studies: list[Study], executor: Executor, progress: Progress = silent) -> list[Figure]:
    """Simulate all settings."""
    return [
        figure for study in studies for figure in figures_of(study, run(study, executor, progress))
    ]
