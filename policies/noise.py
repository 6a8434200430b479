"""What a few repeats say of judges' variances, for planning: shrunk towards the table, or plain.

A judge with near-binary scores often shows no variance at all in a few repeats, and would then be
taken for the best one. `shrunk` pulls each cell towards what its judge and its item show elsewhere;
`plain`, the paper's form, adds a margin to each standard deviation (arXiv 2605.23362).
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]

ITEM_WEIGHT = 5.0
"""Degrees of freedom with which an item's factor is pulled to 1: without it an item on which all
judges agree in the pilot would be taken for noiseless, and starve."""

MOST_WEIGHT = 20.0
"""The strongest pull that is estimated, in degrees of freedom."""

FLOOR = 1e-4
"""Least variance of the fit, in squares of the scale's span."""

_ROUNDS = 12


class Noise(NamedTuple):
    """Variances to plan with.

    `variance` and the `fit` they are pulled to are (K, J); `weight` is that of the fit, in degrees
    of freedom.
    """

    variance: Array
    fit: Array
    weight: float


def fitted(variance: Array, df: Array, span: float) -> Array:
    """Fit item factor times judge level, (K, J), to sample variances.

    By turns u_j = Σ_k df s²/d_k(-j) / Σ_k df and d_k = (Σ_j df s²/u_j + 5)/(Σ_j df + 5), where
    d_k(-j) leaves judge j out: divided by a factor of its own making, the level of a near-binary
    judge, which shows nothing on most items and much on a few, would come out far too low. The
    table is then scaled so that its mean is that of the variances. Cells without repeats (df 0)
    take part in nothing. A judge without any is given half the span.

    Parameters
    ----------
    variance, df : (K, J), unbiased sample variances and their degrees of freedom
    """
    floor = FLOOR * span**2
    if not df.any():
        return np.full(variance.shape, span**2 / 4)
    squares, df_judge = np.where(df > 0, variance * df, 0.0), df.sum(axis=0)
    weight = df.sum(axis=1, keepdims=True) + ITEM_WEIGHT
    of_others = np.ones(variance.shape)
    for _ in range(_ROUNDS):
        level = (squares / of_others).sum(axis=0) / np.maximum(df_judge, 1)
        level = np.maximum(level, floor)
        ratio = squares / level
        total = ratio.sum(axis=1, keepdims=True) + ITEM_WEIGHT
        of_others = (total - ratio) / (weight - df)
    fit = total / weight * level
    fit *= squares.sum() / (df * fit).sum()
    fit[:, df_judge == 0] = total / weight * span**2 / 4
    return np.asarray(np.maximum(fit, floor))


def shrunk(variance: Array, df: Array, span: float, weight: float | None) -> Noise:
    """Pull each cell's variance to the fit: (weight · fit + df · s²)/(weight + df).

    Parameters
    ----------
    weight : degrees of freedom of the fit; None: estimated, between 0 and `MOST_WEIGHT`
    """
    fit = fitted(variance, df, span)
    if weight is None:
        weight = _estimated_weight(variance, df, fit)
    own = np.where(df > 0, variance * df, 0.0)
    bottom = df + weight
    pulled = np.divide(weight * fit + own, bottom, out=fit.copy(), where=bottom > 0)
    return Noise(np.minimum(pulled, span**2 / 4), fit, weight)


def plain(variance: Array, df: Array, span: float, tau: float) -> Noise:
    """Add a margin to each standard deviation: (min(s, R/2) + tau)²; R/2 + tau where it is unknown."""
    sd = np.where(df > 0, np.sqrt(np.maximum(variance, 0)), span / 2)
    bound = (np.minimum(sd, span / 2) + tau) ** 2
    return Noise(bound, bound, 0.0)


def _estimated_weight(variance: Array, df: Array, fit: Array) -> float:
    """Estimate the pull that has the least squared error, as in linear credibility.

    With r = s²/fit and normal scores, E r² = (E r)² (1 + t)(1 + 2/df), where t is the relative
    variance of the true ratio; the best linear weight on the fit is then 2 (1 + t)/t degrees of
    freedom.
    """
    known = df > 0
    if not known.any():
        return MOST_WEIGHT
    r, df = variance[known] / fit[known], df[known]
    mean = float(np.average(r, weights=df))
    if mean == 0:
        return MOST_WEIGHT
    spread = float(np.average(r**2 / (1 + 2 / df), weights=df)) / mean**2 - 1
    return MOST_WEIGHT if spread <= 0 else min(MOST_WEIGHT, 2 * (1 + spread) / spread)
