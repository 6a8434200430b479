"""How many more comparisons it takes until open gaps are proved.

If strengths are as estimated, information grows by p (1 - p) a comparison, and a gap's interval comes
to exclude 0 when its error has become small enough. Prices are the caller's.
"""

from __future__ import annotations

import numpy as np
from scipy.special import expit, ndtri

from estimators.bt_inference import Bound, Gaps
from estimators.bt_scores import gram, no_columns
from estimators.intervals import Array

_MOST = 1e12
"""Comparisons beyond which a gap counts as never proved."""


def needed_of_pair(theta: Array, found: Gaps, bound: Bound, *, chance: float = 0.8) -> Array:
    """Give how many more comparisons of a pair alone prove its gap, (M, M).

    After m more, se² = 1/(1/se² + m p (1 - p)) by the rank-one update, and m is the least at which
    |gap| ≥ (bound + z_chance) se: then the interval excludes 0 with that probability, if the gap is
    as estimated. At `chance` .5 it would end on 0 on average. Looking at every m, it is at most m.

    Parameters
    ----------
    theta : (M,) as in `found`
    bound : what the interval is made with

    Returns
    -------
    whole numbers as float64: 0 where it is proved, inf where no number helps (no gap), nan where
    the gap can't be estimated
    """
    wanted = _wanted_se(found, bound, chance)
    p = expit(theta[:, None] - theta)
    with np.errstate(divide="ignore"):  # an error of 0 is wanted of no gap
        more = (1 / wanted**2 - 1 / found.se**2) / (p * (1 - p))
    return _whole(more, found, bound)


def needed_of_design(
    theta: Array,
    cov: Array,
    found: Gaps,
    bound: Bound,
    *,
    design: Array | None = None,
    chance: float = 0.8,
) -> Array:
    """Give how many more comparisons of a design over pairs prove each gap, (M, M).

    After n more the covariance is (cov⁺ + n J)⁺, J the design's information of one comparison. The
    largest of all open gaps is what the whole ranking needs.

    Parameters
    ----------
    cov : (M, M) as in `found`
    design : (M, M) symmetric, how likely a comparison is of each pair, each counted twice; None: all
        pairs alike

    Returns
    -------
    as `needed_of_pair`
    """
    m = len(theta)
    first, second = np.triu_indices(m, 1)
    share = np.ones(len(first)) if design is None else design[first, second]
    p = expit(theta[first] - theta[second])
    weight = share / share.sum() * p * (1 - p)
    gain = gram(first, second, weight, no_columns(len(first)), m)
    # In coordinates in which cov⁺ is the identity and the gain is diagonal, each gap's variance is
    # a sum of parts c²/(1 + n gain).
    size, vectors = np.linalg.eigh(cov)
    is_known = size > 1e-10 * size.max(initial=0.0)
    half = vectors[:, is_known] * np.sqrt(size[is_known])
    gains, turned = np.linalg.eigh(half.T @ gain @ half)
    part = half @ turned
    square = (part[first] - part[second]) ** 2
    wanted = _wanted_se(found, bound, chance)[first, second] ** 2
    low, high = np.zeros(len(first)), np.full(len(first), np.log1p(_MOST))
    for _ in range(60):
        n = np.expm1((low + high) / 2)
        is_enough = (square / (1 + n[:, None] * np.maximum(gains, 0.0))).sum(axis=1) <= wanted
        low, high = (
            np.where(is_enough, low, (low + high) / 2),
            np.where(is_enough, (low + high) / 2, high),
        )
    n = np.where(high < np.log1p(_MOST) * (1 - 1e-12), np.expm1(high), np.inf)
    more = np.zeros((m, m))
    more[first, second] = more[second, first] = n
    return _whole(more, found, bound)


def _wanted_se(found: Gaps, bound: Bound, chance: float) -> Array:
    """Find the error at which |gap| is (bound + z) errors, by bisection: it falls with information."""
    gap, z = np.abs(found.est), ndtri(chance)
    se = np.where(found.se > 0, found.se, np.nan)
    low, high = np.full_like(se, -60.0), np.zeros_like(se)
    for _ in range(80):
        tried = se * np.exp((low + high) / 2)
        is_enough = (bound.of(tried) + z) * tried <= gap
        low, high = (
            np.where(is_enough, (low + high) / 2, low),
            np.where(is_enough, high, (low + high) / 2),
        )
    wanted: Array = np.where(low > -59.9, se * np.exp(low), 0.0)
    return np.where(np.isnan(se), np.nan, wanted)


def _whole(more: Array, found: Gaps, bound: Bound) -> Array:
    """Round up; nothing is needed of what is proved."""
    is_proved = np.abs(found.est) > bound.of(found.se) * found.se
    needed: Array = np.where(is_proved, 0.0, np.ceil(np.maximum(more, 0.0) - 1e-6))
    return np.where(np.isnan(found.se), np.nan, needed)
