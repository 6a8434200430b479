"""Intervals of strengths whose comparisons were chosen along the way.

Batches are drawn from what the posterior says so far. The target is the fit to all pairs alike, without
noise: the truth where one strength a model is right, and its projection where it is not. An unweighted
fit estimates what the sampler's own pairs show, a fit weighted by uniform/propensity the target.
"""

from __future__ import annotations

from concurrent.futures import Executor
from dataclasses import dataclass
from typing import Literal, NamedTuple

import numpy as np
from scipy.special import expit, ndtri

from estimators.bt_model import BradleyTerryFit, fit_bradley_terry
from estimators.intervals import Array
from orchestrator.experiments.fanout import Progress, fan_out, silent
from orchestrator.experiments.figures import By, Figure, cited, mean, share
from policies.pairing.acquisition import Rule, pairs
from policies.pairing.posterior import Posterior
from policies.pairing.propensity import FLOOR, POWER, propensities

SPREAD = 1.5
"""Strengths are spread evenly from this to its negative: the mean width of the reference program's
intervals under uniform sampling, .492, is that of 1.5 to two digits. It does not say its strengths."""

DEVIATION = 0.6
"""Standard deviation of a pair's own log-odds where one strength a model is wrong."""

Z = float(ndtri(0.975))

Truth = Literal["one strength a model", "intransitive"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Study:
    """What is simulated.

    Parameters
    ----------
    rule, floor, power : of the sampler; a floor of 1 is uniform
    n, batch : comparisons, and of them between two fits of the sampler
    """

    truth: Truth = "one strength a model"
    rule: Rule = "uniform"
    floor: float = 1.0
    power: float = POWER
    n_models: int = 8
    n: int = 1200
    batch: int = 40
    n_reps: int = 250
    seed: int = 77

    @property
    def title(self) -> str:
        """What a table of it is called."""
        sampler = "uniform" if self.floor == 1 else f"{self.rule}, floor {self.floor:g}"
        power = "" if self.floor == 1 else f", power {self.power:g}"
        return f"{self.truth}: {sampler}{power}"

    @property
    def log_odds(self) -> Array:
        """Log-odds of each pair, (P,). Deviations are drawn once, from a generator seeded by `seed`."""
        theta = np.linspace(SPREAD, -SPREAD, self.n_models)
        first, second = pairs(self.n_models)
        gap: Array = theta[first] - theta[second]
        if self.truth == "intransitive":
            gap = gap + np.random.default_rng(self.seed).normal(0, DEVIATION, len(gap))
        return gap

    @property
    def target(self) -> Array:
        """Strengths that fit all pairs alike, (M,)."""
        first, second = pairs(self.n_models)
        p = expit(self.log_odds)
        return fit_bradley_terry(
            np.tile(first, 2),
            np.tile(second, 2),
            np.repeat([1.0, 0.0], len(first)),
            n_models=self.n_models,
            weights=np.concatenate((p, 1 - p)),
        ).theta


def grid(n_reps: int = 250, seed: int = 77) -> list[Study]:
    """Give the settings of the published table, and the default's."""
    samplers: tuple[tuple[Rule, float, float], ...] = (
        ("uniform", 1.0, 1.0),
        ("dopt", FLOOR, POWER),
        ("dopt", 0.1, POWER),
        ("dopt", 0.05, POWER),
        ("dopt", 0.02, 8.0),
        ("aopt", FLOOR, POWER),
    )
    truths: tuple[Truth, ...] = ("one strength a model", "intransitive")
    return [
        Study(truth=truth, rule=rule, floor=floor, power=power, n_reps=n_reps, seed=seed)
        for truth in truths
        for rule, floor, power in samplers
    ]


class Task(NamedTuple):
    """One replicate of a study."""

    study: Study
    rep: int


class Seen(NamedTuple):
    """What was found, (n_reps, M) each, and `ess` (n_reps,), the weights' over the comparisons.

    `se` is the model's, `robust_se` the sandwich's; `ipw` and `ipw_se` are of the weighted fit.
    """

    theta: Array
    se: Array
    robust_se: Array
    ipw: Array
    ipw_se: Array
    ess: Array


def run(study: Study, executor: Executor, progress: Progress = silent) -> Seen:
    """Simulate all replicates."""
    tasks = [Task(study, rep) for rep in range(study.n_reps)]
    found = fan_out(replicate, tasks, executor, progress)
    return Seen(*(np.array(part) for part in zip(*found, strict=True)))


def replicate(task: Task) -> tuple[Array, Array, Array, Array, Array, float]:
    """Sample and fit one replicate, as the fields of `Seen`.

    Draws pairs and verdicts from a generator seeded by (seed, replicate).
    """
    study, rep = task
    rng = np.random.default_rng([study.seed, rep])
    first, second = pairs(study.n_models)
    chance = expit(study.log_odds)
    state = Posterior(study.n_models)
    chosen, outcomes, weights = [], [], []
    for start in range(0, study.n, study.batch):
        size = min(study.batch, study.n - start)
        q = propensities(state, rule=study.rule, floor=study.floor, power=study.power)
        at = rng.choice(len(q), size, p=q)
        outcome = (rng.random(size) < chance[at]).astype(np.float64)
        state.learn(first[at], second[at], outcome)
        chosen.append(at)
        outcomes.append(outcome)
        weights.append(1 / (len(q) * q[at]))
    at, outcome, weight = map(np.concatenate, (chosen, outcomes, weights))
    fits: list[BradleyTerryFit] = [
        fit_bradley_terry(first[at], second[at], outcome, n_models=study.n_models, weights=each)
        for each in (None, weight)
    ]
    plain, ipw = fits
    ess = ipw.ess / study.n
    return plain.theta, plain.se, plain.se_sandwich, ipw.theta, ipw.se_sandwich, ess


REFERENCE: dict[str, tuple[str, str, str, str, str, str]] = {
    "one strength a model: uniform": ("95.1", "95.1", "95.1", "0.492", "0.017", "0.017"),
    "one strength a model: dopt, floor 0.2, power 4": (
        *("96.1", "96.1", "95.6", "0.478", "0.02", "0.016"),
    ),
    "one strength a model: dopt, floor 0.1, power 4": (
        *("95.3", "95.2", "93.6", "0.48", "0.031", "0.025"),
    ),
    "one strength a model: dopt, floor 0.05, power 4": (
        *("94.1", "94.2", "91.5", "0.48", "0.039", "0.033"),
    ),
    "one strength a model: dopt, floor 0.02, power 8": (
        *("94.4", "94.4", "86.9", "0.483", "0.035", "0.089"),
    ),
    "one strength a model: aopt, floor 0.2, power 4": (
        *("95.9", "95.8", "95.3", "0.478", "0.013", "0.019"),
    ),
    "intransitive: uniform": ("95.6", "95.6", "95.6", "0.466", "0.017", "0.017"),
    "intransitive: dopt, floor 0.2, power 4": ("93.7", "93.3", "95.3", "0.453", "0.119", "0.01"),
    "intransitive: dopt, floor 0.1, power 4": ("92.0", "91.6", "93.5", "0.453", "0.128", "0.005"),
    "intransitive: dopt, floor 0.05, power 4": ("91.7", "91.6", "93.6", "0.453", "0.131", "0.022"),
    "intransitive: dopt, floor 0.02, power 8": ("92.0", "91.3", "90.9", "0.454", "0.161", "0.049"),
    "intransitive: aopt, floor 0.2, power 4": ("95.9", "95.6", "95.2", "0.456", "0.066", "0.021"),
}
"""By another program, with strengths and deviations of its own: coverage of the unweighted fit by the
model's and the sandwich's error and of the weighted fit, percent; mean width; largest biases."""

_PLAIN, _ROBUST, _IPW = "unweighted", "unweighted, sandwich", "weighted"


def coverage(study: Study, seen: Seen) -> list[Figure]:
    """Give how often intervals hold the target: over strengths, and of the worst strength."""
    title, n, target = study.title, study.n, study.target
    figures = []
    for name, theta, se in (
        (_PLAIN, seen.theta, seen.se),
        (_ROBUST, seen.theta, seen.robust_se),
        (_IPW, seen.ipw, seen.ipw_se),
    ):
        is_held = np.abs(theta - target) <= Z * se
        worst = is_held[:, is_held.mean(axis=0).argmin()]
        figures += [
            mean(title, f"{name}: covers, %", n, 100 * is_held.mean(axis=1)),
            share(title, f"{name}: covers the worst strength, %", n, worst),
            mean(title, f"{name}: width, logits", n, (2 * Z * se).mean(axis=1)),
        ]
    for name, theta in ((_PLAIN, seen.theta), (_IPW, seen.ipw)):
        bias = theta - target
        most = bias[:, np.abs(bias.mean(axis=0)).argmax()]
        signed = mean(title, f"{name}: largest bias, logits", n, most)
        figures.append(signed._replace(value=abs(signed.value)))
    figures.append(mean(title, "effective size of weights, % of n", n, 100 * seen.ess))
    names = (
        *(f"{name}: covers, %" for name in (_PLAIN, _ROBUST, _IPW)),
        f"{_PLAIN}: width, logits",
        *(f"{name}: largest bias, logits" for name in (_PLAIN, _IPW)),
    )
    is_published = (study.n_models, study.n, study.batch) == (8, 1200, 40)
    known = dict(zip(names, REFERENCE.get(title, ()), strict=False)) if is_published else {}
    beside: By = {what: {n: figure} for what, figure in known.items()}
    return cited(figures, {}, beside)


def table(studies: list[Study], executor: Executor, progress: Progress = silent) -> list[Figure]:
    """Simulate all settings."""
    return [
        figure for study in studies for figure in coverage(study, run(study, executor, progress))
    ]
