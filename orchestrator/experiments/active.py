"""Campaigns that choose their pairs, simulated: true strengths in, the posterior after each batch out."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
from scipy.special import expit, ndtri

from estimators.intervals import Array
from policies.pairing.acquisition import Rule, pairs
from policies.pairing.cold_start import cold_start
from policies.pairing.posterior import Posterior
from policies.pairing.propensity import FLOOR, propensities

Z = float(ndtri(0.975))


class Sampler(NamedTuple):
    """How pairs are drawn; `name` is rule:power, and :floor where that is another than usual."""

    rule: Rule
    power: float = 1.0
    floor: float = FLOOR

    @property
    def name(self) -> str:
        """What figures of it are called."""
        if self.rule == "uniform":
            return "uniform"
        own = "" if self.floor == FLOOR else f":{self.floor:g}"
        return f"{self.rule}:{self.power:g}{own}"


UNIFORM = Sampler("uniform")
ARENA = Sampler("arena")
DOPT = Sampler("dopt", 4)
AOPT_FLAT = Sampler("aopt")
AOPT = Sampler("aopt", 4)
EIG = Sampler("eig", 4)
TOP1 = Sampler("top1")
TOP1_LOW = Sampler("top1", 1, 0.1)


def strengths(n_models: int, spread: float, rng: np.random.Generator) -> Array:
    """Draw normal strengths and bring their mean to 0 and their standard deviation to `spread`."""
    drawn = rng.standard_normal(n_models)
    scaled: Array = (drawn - drawn.mean()) / drawn.std() * spread
    return scaled


def campaign(
    theta: Array, sampler: Sampler, batch: int, state: Posterior, rng: np.random.Generator
) -> Iterator[int]:
    """Bring `state` on, batch by batch, and give the comparisons so far, without end.

    First comes the cycle of a cold start. A batch is drawn at once, independently, from the
    propensities before it: all of it is in flight together. The first batch is what fills the
    cycle up, so that later ones end at multiples of `batch`.
    """
    first, second = pairs(len(theta))
    start = cold_start(len(theta), rng, state.counts)
    a = np.array([each.a for each in start], dtype=np.int64)
    b = np.array([each.b for each in start], dtype=np.int64)
    n = 0
    while True:
        if n or not len(a):
            q = propensities(state, rule=sampler.rule, power=sampler.power, floor=sampler.floor)
            at = rng.choice(len(q), batch - n % batch, p=q)
            a, b = first[at], second[at]
        state.learn(a, b, rng.random(len(a)) < expit(theta[a] - theta[b]))
        n += len(a)
        yield n


def score_widths(cov: Array) -> Array:
    """Give the widths of 95 % intervals of strengths that sum to zero, (M,)."""
    m = len(cov)
    centred = np.eye(m) - 1 / m
    return np.asarray(2 * Z * np.sqrt(np.diag(centred @ cov @ centred)))
