"""Whether one strength a model explains who beats whom, pair by pair.

It is held against a strength of its own for every pair. A circle of three models that beat each other
has no place on one line: what is left over of such pairs is their intransitivity.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, NamedTuple

import numpy as np
from scipy.optimize import brentq
from scipy.special import chdtrc, chndtr

from estimators.bt_cells import Indices
from estimators.bt_scores import no_columns
from estimators.intervals import Array

SMALL = 5.0
"""Expected wins or losses of a pair below which a chi-square law is not relied on: Cochran's rule."""

_PRIOR_TIES = 5.0
"""Comparisons that a pair's share of ties is drawn to the common one with. Chosen: a few."""

_LEAST_SPREAD = 0.1
"""A pair's variance is at least so much of p (1 - p), so that a pair of ties alone has one."""

_NULL = 1e-9
"""Part of a matrix or a pair that rounding leaves of nothing."""

_UNKNOWN = np.full(3, np.nan)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Goodness:
    """How far pairs are from what strengths predict.

    Attributes
    ----------
    statistic, df, p : sum of squared standardised residuals of pairs, and how likely a larger one is
        if one strength a model is right; p is nan where no pair is left over (df = 0)
    reference : the law that p is from
    spread, spread_lower, spread_upper : standard deviation of pairs' own log-odds around the
        strengths', with its interval; 0 if one strength a model is right
    pairs : (P, 2) models a < b
    n : (P,) comparisons
    observed, expected : (P,) share that a wins, a tie as half; and as predicted
    z : (P,) standardised residuals, > 0 if a wins more than predicted; nan for a pair that alone
        decides about a strength
    """

    statistic: float
    df: int
    p: float
    reference: Literal["chi-square", "parametric bootstrap"]
    spread: float
    spread_lower: float
    spread_upper: float
    pairs: Indices
    n: Array
    observed: Array
    expected: Array
    z: Array


def goodness(
    left: Indices,
    right: Indices,
    outcome: Array,
    chance: Array,
    rng: np.random.Generator,
    *,
    n_models: int,
    slope: Array | None = None,
    extra: Array | None = None,
    level: float = 0.95,
    draws: int = 999,
) -> Goodness:
    """Test one strength a model by pair cells.

    A pair's score S_ab = Σ (y - p), from a's side, is what its own strength would move. With V_ab its
    variance and G its derivatives by the fitted parameters, the statistic is
    min over β of (S - G β)' V⁻¹ (S - G β). Without ties and further columns β = 0, and it is
    Pearson's Σ S²/V. Ties as half wins vary less than p (1 - p) says, by a quarter of their share:
    V_ab = Σ p (1 - p) - ties/4, the ties of a pair smoothed by those of all.

    Its law is chi-square with P - rank G degrees of freedom where each pair expects five wins and
    five losses; otherwise it is simulated from the fitted chances, to first order in the estimates:
    measured, a test at 5 % then rejects 5 to 9 % of sound sets, down to two comparisons a pair.

    The spread solves E = df + spread² · tr for independent deviations of pairs; its interval inverts
    the noncentral chi-square law. It is about these pairs, as they are.

    Parameters
    ----------
    left, right, outcome : (n,) as fitted, 1 left wins, .5 tie, 0 right wins; not weighted
    chance : (n,) fitted chance that the left wins, a tie as half
    slope : (n,) derivative of `chance` by the log-odds of the model on the left; None: p (1 - p).
        Under Davidson's rule for ties it is the variance of the outcome
    extra : (n, q) columns that were fitted beside strengths, such as ones for the order's effect

    Determinism: `draws` from `rng` if the law is simulated.

    Source: Pearson's chi-square, and its generalised least squares form for quasi-likelihoods
    [M83].
    """
    slope = chance * (1 - chance) if slope is None else slope
    extra = no_columns(len(left)) if extra is None else extra
    cells = _cells(left, right, outcome, chance, slope, extra)
    scale = 1 / np.sqrt(cells.variance)
    basis, size, _ = np.linalg.svd(
        _derivatives(cells, n_models) * scale[:, None], full_matrices=False
    )
    basis = basis[:, size > _NULL * size.max(initial=0.0)]
    residual = _left_over(cells.score * scale, basis)
    share = np.maximum(1 - (basis * basis).sum(axis=1), 0.0)
    statistic, df = float(residual @ residual), len(residual) - basis.shape[1]
    rare = np.minimum(cells.expected, 1 - cells.expected) * cells.n
    is_small, p, ratio = bool((rare < SMALL).any()), np.nan, 1.0
    if df and is_small:
        noise = _simulated(cells, rng, draws) * scale
        simulated = (_left_over(noise.T, basis) ** 2).sum(axis=0)
        p = float((1 + (simulated >= statistic).sum()) / (1 + draws))
        ratio = df / max(float(simulated.mean()), _NULL)
    elif df:
        p = float(chdtrc(df, statistic))
    trace = float((cells.slope * scale) ** 2 @ share) * ratio
    spread = np.sqrt(_noncentrality(statistic * ratio, df, level) / trace) if df else _UNKNOWN
    return Goodness(
        statistic=statistic,
        df=df,
        p=p,
        reference="parametric bootstrap" if is_small else "chi-square",
        spread=float(spread[0]),
        spread_lower=float(spread[1]),
        spread_upper=float(spread[2]),
        pairs=cells.pairs,
        n=cells.n,
        observed=cells.expected + cells.score / cells.n,
        expected=cells.expected,
        z=np.where(share > _NULL, residual / np.sqrt(np.maximum(share, _NULL)), np.nan),
    )


class _Cells(NamedTuple):
    """Sums by pair, (P,); and by pair and chance, (c,), of which a draw is made.

    `expected` is the mean chance that the first of the pair wins; `columns` the pair's sums of
    the slope times each further column, from the first's side. `pair` numbers the pairs of the small
    cells, `times` counts their comparisons, `chance` and `tie` are from the first's side.
    """

    pairs: Indices
    n: Array
    score: Array
    slope: Array
    variance: Array
    expected: Array
    columns: Array
    pair: Indices
    times: Indices
    chance: Array
    tie: Array


def _cells(
    left: Indices, right: Indices, outcome: Array, chance: Array, slope: Array, extra: Array
) -> _Cells:
    is_told = ~np.isnan(outcome)
    slope, extra = slope[is_told], extra[is_told]
    left, right, y, p = left[is_told], right[is_told], outcome[is_told], chance[is_told]
    # A pair is seen from the side of the model with the lower number.
    is_first = left < right
    side = np.where(is_first, 1.0, -1.0)
    ends = np.stack((np.minimum(left, right), np.maximum(left, right)), axis=1)
    pairs, pair, n = np.unique(ends, axis=0, return_inverse=True, return_counts=True)
    pair, size = pair.ravel(), len(pairs)
    own = np.where(is_first, p, 1 - p)
    information, slopes, score = (
        np.bincount(pair, each, size).astype(np.float64)
        for each in (p * (1 - p), slope, side * (y - p))
    )
    columns = np.zeros((size, extra.shape[1]))
    np.add.at(columns, pair, (side * slope)[:, None] * extra)
    ties = np.bincount(pair, y == 0.5, size)
    # A common share of ties, for pairs of equal models; unequal ones tie less.
    common = ties.sum() / max(4 * information.sum(), 1e-300)
    mean_weight = information / n
    tied = (ties + _PRIOR_TIES * 4 * mean_weight * common) / (n + _PRIOR_TIES)
    variance = np.maximum(information - n * tied / 4, _LEAST_SPREAD * information)
    rows, times = np.unique(np.stack((pair, own), axis=1), axis=0, return_counts=True)
    at, small = rows[:, 0].astype(np.int64), rows[:, 1]
    return _Cells(
        pairs=pairs,
        n=n.astype(np.float64),
        score=score,
        slope=slopes,
        variance=variance,
        expected=np.bincount(pair, own, size) / n,
        columns=columns,
        pair=at,
        times=times,
        chance=small,
        tie=np.minimum(tied[at], 2 * np.minimum(small, 1 - small)),
    )


def _derivatives(cells: _Cells, n_models: int) -> Array:
    """Give the derivative of pairs' expected scores by strengths and further columns, (P, M + q)."""
    found = np.zeros((len(cells.n), n_models + cells.columns.shape[1]))
    row = np.arange(len(cells.n))
    found[row, cells.pairs[:, 0]] = cells.slope
    found[row, cells.pairs[:, 1]] = -cells.slope
    found[:, n_models:] = cells.columns
    return found


def _left_over(of: Array, basis: Array) -> Array:
    left: Array = of - basis @ (basis.T @ of)
    return left


def _simulated(cells: _Cells, rng: np.random.Generator, draws: int) -> Array:
    """Draw pairs' scores at the fitted chances and smoothed ties, (draws, P)."""
    win = cells.chance - cells.tie / 2
    tied = rng.binomial(cells.times, cells.tie, (draws, len(win)))
    open_share = np.where(cells.tie < 1, win / np.maximum(1 - cells.tie, 1e-300), 0.0)
    won = rng.binomial(cells.times - tied, np.clip(open_share, 0.0, 1.0))
    score = won + tied / 2 - cells.times * cells.chance
    by_pair = np.zeros((draws, len(cells.n)))
    np.add.at(by_pair.T, cells.pair, score.T)
    return by_pair


def _noncentrality(statistic: float, df: int, level: float) -> Array:
    """Estimate a noncentral chi-square's excess over its degrees of freedom, and bound it, (3,)."""
    tail = (1 - level) / 2

    def bound(chance: float) -> float:
        if chndtr(statistic, df, 0.0) <= chance:
            return 0.0
        top = 4 * (statistic + df) + 100
        return float(brentq(lambda excess: chndtr(statistic, df, excess) - chance, 0.0, top))

    return np.array([max(statistic - df, 0.0), bound(1 - tail), bound(tail)])
