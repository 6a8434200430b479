"""How far judges disagree beyond repeat noise: on single units, in their levels, and by chance.

The cell means of judges by units are a two-way layout. What unit and judge means leave of them is
interaction and noise; the judges' own means differ by their offsets too.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from scipy.special import fdtrc, stdtrit

from estimators.cells import Clusters, Mask, Panel, by_cluster, by_judge
from estimators.intervals import Array


class Interaction(NamedTuple):
    """Variance of judges' own views of units: nan where unknown; negative by chance at times.

    `lower` and `upper` are its jackknife interval, nan with fewer than three clusters;
    `judge_variance` is that of the judges' levels.
    """

    variance: float = np.nan
    mean_square: float = np.nan
    n_units: int = 0
    n_judges: int = 0
    lower: float = np.nan
    upper: float = np.nan
    judge_variance: float = np.nan


def judge_interaction(panel: Panel, noise: Array, clusters: Clusters, level: float) -> Interaction:
    """Estimate how far judges differ on single units, beyond offsets and repeat noise.

    Over the units that every judge with answers has answered: the mean square of what unit and
    judge means leave of the cell means, less the mean of noise/n, which is what repeats put into
    it: the analysis of variance of a two-way layout with the judges' pooled variances. The interval
    leaves out one cluster of items after the other, and takes Student's quantile for the variance of
    the pseudo-values.

    Parameters
    ----------
    noise : (n_judges,) repeat variance; nan where unknown
    """
    takes_part = by_judge(panel.count) > 0
    n_judges, judges = int(takes_part.sum()), slice(None) if takes_part.all() else takes_part
    shared = panel.answered[judges].all(axis=0)
    n_units = int(shared.sum())
    if min(n_judges, n_units) < 2:
        return Interaction(n_units=n_units, n_judges=n_judges)
    y, each = panel.mean[judges], shared * 1.0
    off = (y - y.mean(axis=0)) * each
    part = (noise[judges][:, None, None] / np.maximum(panel.count[judges], 1)).sum(axis=0) * each
    # Sums over each cluster's units: what remains when it is left out is a difference.
    size, square_by, noise_by = by_cluster(
        np.stack((each.sum(axis=0), np.einsum("jai,jai->i", off, off), part.sum(axis=0))), clusters
    )
    level_by = by_cluster(off.sum(axis=1), clusters)
    levels, square, between = level_by.sum(axis=1), square_by.sum(), noise_by.sum()

    def estimated(n: Array, levels: Array, square: Array, between: Array) -> tuple[Array, Array]:
        mean_square = (square - (levels * levels).sum(axis=0) / n) / ((n_judges - 1) * (n - 1))
        return mean_square - between / (n_judges * n), mean_square

    variance, mean_square = map(float, estimated(np.array(n_units), levels, square, between))
    lower = upper = np.nan
    present = np.flatnonzero(size)
    left = n_units - size[present]
    if len(present) > 2 and left.min() > 1:
        without, _ = estimated(
            left,
            levels[:, None] - level_by[:, present],
            square - square_by[present],
            between - noise_by[present],
        )
        g = len(present)
        se = np.sqrt((g - 1) / g * ((without - without.mean()) ** 2).sum())
        half = float(stdtrit(g - 1, (1 + level) / 2) * se)
        lower, upper = variance - half, variance + half
    own = levels / n_units
    judge_variance = float((own * own).sum() / (n_judges - 1)) - mean_square / n_units
    return Interaction(variance, mean_square, n_units, n_judges, lower, upper, judge_variance)


class Spread(NamedTuple):
    """How a number differs between judges.

    `variance` is that of the judges' own values of it, `of_units` the part of it that comes from
    single units and would vanish with many.
    """

    variance: float
    of_units: float
    n_judges: int

    @property
    def of_levels(self) -> float:
        """The part that more units would not take away, at least 0."""
        return max(self.variance - self.of_units, 0.0)


def judge_spread(samples: Sequence[tuple[Array, Mask]]) -> Spread | None:
    """Compare judges over the items that all of them share; None below two of either.

    Parameters
    ----------
    samples : values (n_judges, n_items) and which items count, (n_items,); a second sample is
        counted negative
    """
    own, of_units = 0.0, 0.0
    n_judges = len(samples[0][0])
    for sign, (values, shared) in zip((1, -1), samples, strict=False):
        n_units = int(shared.sum())
        if min(n_judges, n_units) < 2:
            return None
        y = values[:, shared]
        means = y.mean(axis=1)
        left = y - y.mean(axis=0) - means[:, None] + means.mean()
        of_units += float((left * left).sum()) / ((n_judges - 1) * (n_units - 1) * n_units)
        own = own + sign * means
    return Spread(float(np.var(own, ddof=1)), of_units, n_judges)


class Disagreement(NamedTuple):
    """Cochran's test that judges agree on each unit but for noise; nan: nothing to test.

    `q` has expectation `df` if they do; `share` is how much of it noise does not explain (I²).
    """

    q: float = np.nan
    df: int = 0
    p: float = np.nan
    share: float = np.nan


class Pooled(NamedTuple):
    """Means weighted by precision, their variance, and Cochran's Q of what was pooled."""

    mean: Array
    variance: Array
    q: Array


def precision_mean(means: Array, precision: Array) -> Pooled:
    """Pool judges' means of one number along the first axis, each weighted by 1/variance.

    Parameters
    ----------
    means, precision : (n_judges, ...); precision 0 where a judge has no mean

    Source: [C54].
    """
    total = precision.sum(axis=0)
    whole = np.where(total > 0, total, 1.0)
    mean = (precision * means).sum(axis=0) / whole
    q = (precision * (means - mean) ** 2).sum(axis=0)
    return Pooled(mean, np.where(total > 0, 1 / whole, np.nan), q)


def cochran_test(panel: Panel, noise: Array, noise_df: float) -> Disagreement:
    """Test whether judges differ on units by more than their noise.

    Q is summed over the units of two and more judges; since the noise is estimated, Q/df is held
    against F with the noise's degrees of freedom.

    Parameters
    ----------
    noise : (n_judges,) variance of one answer; nan where unknown
    noise_df : degrees of freedom behind it

    Source: [C54].
    """
    precision = panel.count / noise[:, None, None]
    n_judges = panel.answered.sum(axis=0)
    df = int((n_judges - 1)[n_judges > 1].sum())
    if not df or not noise_df or bool(np.isnan(noise).any()):
        return Disagreement()
    q = float(precision_mean(panel.mean, precision).q.sum())
    share = max(0.0, 1 - df / q) if q > 0 else 0.0
    return Disagreement(q, df, float(fdtrc(df, noise_df, q / df)), share)
