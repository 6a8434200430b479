"""What people would say of all items, from a judge's scores of many and labels of a random few.

The unknown is the mean label of all N items. A judge scores n of them, drawn at random (or all), and
people label g of these, drawn at random. The labels alone are unbiased; the judge's scores say how the
labelled few differ from the rest.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import stdtrit

from estimators.intervals import FEW, FLAT, Array, betting
from estimators.subsample_bounds import Model, subsample_half_width

FEWEST_OFF = 6
"""Labels, by their effective number, that a variance must rest on.

Chosen: of a judge that is wrong in one of a hundred items, and always in one direction, 300 labels show 3.
Student's interval then missed 14 % at a level of .95. With 6 what is then given missed 1 to 7 % over 17 such
judges; 10 was as good, and left the judge out far more often.
"""


class Bounded(NamedTuple):
    """A mean, its standard error and its two-sided interval, in units of the labels.

    `interval` names how the ends were found: `t` or `betting`.
    """

    value: float
    se: float
    lower: float
    upper: float
    interval: str


class PredictionPowered(NamedTuple):
    """The corrected mean, and beside it what the labels say alone.

    Attributes
    ----------
    powered : None where there are fewer than 20 labels, or what the judge leaves open does not vary or
        hangs on fewer than `FEWEST_OFF` of them, so that no standard error can be had
    labels_only : always
    power : mean over folds of the weight of the judge's scores: about 0 for a judge that says nothing
    correlation : of labels and scores, over the labelled items; nan where either does not vary. The
        corrected interval is about √(1 - correlation²) times as wide as that of the labels alone
        where many more items are scored than labelled
    """

    powered: Bounded | None
    labels_only: Bounded
    power: float
    correlation: float


def prediction_powered(
    labels: ArrayLike,
    scores: ArrayLike,
    other_scores: ArrayLike,
    population: int,
    *,
    level: float = 0.95,
    low: float = 0.0,
    high: float = 1.0,
    folds: int = 10,
) -> PredictionPowered:
    """Correct labels of a few items by a judge's scores of many.

    With y the labels, f their items' scores and f_o the mean score of the items without one, the
    estimate is mean(y) - (1 - g/n) mean(lam (f - f_o)). lam = cov(y, f)/var(f) makes its variance
    least; for each item it is taken from the labelled items outside its fold, so that it can't follow
    the item's own label: given these, the fold and the items without a label are drawn alike, and the
    estimate is unbiased. Labels are a sample of the n items, these of the N; with r = y - lam f,

        variance = (1 - g/n) s²_r/g + (1 - n/N) s²_y/n.

    The interval is Student's with g - 1 degrees of freedom, cut at the ends of the scale. It is for a
    number of labels fixed beforehand, and does not cover watching. For that, with all N items scored
    by a judge on the labels' scale, bound the mean of y - f by `estimators.sequences_wor.betting_wor`
    within -R and R, and add the mean score.

    Which of the two intervals is the result is settled beforehand, never by looking at both.

    Parameters
    ----------
    labels, scores : (g,) of the labelled items, in random order
    other_scores : (n - g,) of items without a label
    population : N
    level : two-sided coverage, approximate
    low, high : ends of the labels' scale; the judge's scores may be on a scale of their own
    folds : parts of the labelled items, >= 2: item i is in part i mod `folds`

    Raises
    ------
    ValueError
        No label, numbers that don't fit, a label off the scale, a score that is missing, or a single
        fold.

    Source: [ADZ23] (power tuning), [ZC24] (cross-fitting), [C77] chapter 12 (the variance of double
    sampling from a finite population).
    """
    y, f, others = (np.asarray(each, dtype=np.float64) for each in (labels, scores, other_scores))
    n_labels, n_scored = len(y), len(y) + len(others)
    if not n_labels or len(f) != n_labels or n_scored > population:
        raise ValueError(f"{n_labels} labels, {len(f)} scores of theirs, {len(others)} others")
    if not ((y >= low) & (y <= high)).all() or np.isnan(f).any() or np.isnan(others).any():
        raise ValueError(f"labels must be within {low} to {high}, and no score may be missing")
    if folds < 2:
        raise ValueError(f"folds: {folds}; there must be two at least")
    alone = _labels_only(y, population, level, low, high)
    spread, correlation = _moments(y, f)
    if n_labels < FEW:
        return PredictionPowered(None, alone, math.nan, correlation)
    unlabelled = 1 - n_labels / n_scored
    power = _cross_fitted(y, f, folds)
    # Slopes of folds differ a little; taken from the middle, that adds nothing to the spread.
    centre = others.mean() if len(others) else f.mean()
    told = power * (f - centre)
    left = y - told
    value = float(y.mean() - unlabelled * told.mean())
    variance = unlabelled * left.var(ddof=1) / n_labels
    variance += (1 - n_scored / population) * spread / n_scored
    powered = None
    if _has_variance(left, high - low):
        powered = _student(value, float(variance), n_labels, level, low, high)
    return PredictionPowered(powered, alone, float(power.mean()), correlation)


def hoeffding_prediction_powered_half_width(
    n: int,
    population: int,
    n_labels: int,
    delta: float,
    score_range: float = 1.0,
    model: Model = "fixed",
) -> float:
    """Bound mean score plus mean (label - score) without looking at either, for reference.

    The half-widths of n scores in [0, R] and of g differences in [-R, R], each at delta/2. With 500
    labels it is 2.5 times as wide as that of the labels alone: the differences' range counts twice,
    and that they are small does not count.

    Parameters
    ----------
    n, n_labels : items scored and labelled
    population, delta, score_range, model : as `estimators.subsample_bounds.subsample_half_width`

    Raises
    ------
    ValueError
        As `subsample_half_width`.

    Source: union of [H63]-type bounds; see `subsample_half_width`.
    """
    scored = subsample_half_width(n, population, delta / 2, score_range, model)
    labelled = subsample_half_width(n_labels, population, delta / 2, 2 * score_range, model)
    return float(scored + labelled)


def _labels_only(y: Array, population: int, level: float, low: float, high: float) -> Bounded:
    n = len(y)
    variance = float((1 - n / population) * y.var(ddof=1) / n) if n > 1 else math.nan
    if n >= FEW and _has_variance(y, high - low):
        return _student(float(y.mean()), variance, n, level, low, high)
    # Its bound is for independent labels; those of a finite population vary no more.
    ends = betting((y - low) / (high - low), level)
    unseen = 1 - n / population
    sure = (y.sum() / population + unseen * low, y.sum() / population + unseen * high)
    lower = max(low + (high - low) * float(ends.lower), float(sure[0]))
    upper = min(low + (high - low) * float(ends.upper), float(sure[1]))
    return Bounded(float(y.mean()), math.sqrt(variance), lower, upper, "betting")


def _has_variance(values: Array, span: float) -> bool:
    """Say whether a variance can be read off values: of rare ones that are off, few say nothing."""
    squares = (values - values.mean()) ** 2
    if squares.mean() <= (FLAT * span) ** 2:
        return False
    # Their effective number, (Σ s²)²/Σ s⁴: about k for k rare ones, a third of all for a bell shape.
    return bool(squares.sum() ** 2 >= FEWEST_OFF * (squares**2).sum())


def _student(
    value: float, variance: float, n: int, level: float, low: float, high: float
) -> Bounded:
    se = math.sqrt(variance)
    half = float(stdtrit(n - 1, (1 + level) / 2)) * se
    return Bounded(value, se, max(value - half, low), min(value + half, high), "t")


def _moments(y: Array, f: Array) -> tuple[float, float]:
    """Give the labels' variance, and their correlation with the scores."""
    if len(y) < 2:
        return math.nan, math.nan
    spread = float(y.var(ddof=1))
    scale = math.sqrt(spread * float(f.var(ddof=1)))
    if scale == 0:
        return spread, math.nan
    return spread, float((y - y.mean()) @ (f - f.mean()) / (len(y) - 1)) / scale


def _cross_fitted(y: Array, f: Array, folds: int) -> Array:
    """Give each item the slope of y on f over the items outside its fold; 0 where f is constant."""
    fold = np.arange(len(y)) % folds
    slope = np.zeros(len(y))
    for part in range(min(folds, len(y))):
        outside = fold != part
        off = f[outside] - f[outside].mean()
        square = off @ off
        slope[~outside] = off @ y[outside] / square if square > 0 else 0.0
    return slope
