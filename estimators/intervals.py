"""Means of bounded values and their intervals, for few values and for many.

Which interval where:

- `wilson` for a share of independent yes/no answers.
- `t_interval` from `FEW` clusters or answers on, where they differ at all.
- `betting` below that, and where all values are equal, so that the sample variance says nothing.
  It holds for any bounded independent values and any fixed number of them, adapts to small
  variances, and was on average no wider than Hoeffding's wherever both were measured (n = 1 to 19;
  two-point, uniform, bell-shaped and constant values).
- `hoeffding` where the single values are not kept, only their sums: over a unit's answers.

None of them has zero width, and none holds while one watches: they are for a number of values that
was not chosen by looking at them.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtri, stdtrit

FEW = 20
"""Clusters, answers or degrees of freedom below which no interval rests on the sample variance.

Chosen, not derived: Student's interval is good for bell-shaped values at any number, and from here
on for the moderately skewed means of scores too; for rare events it needs many more.
"""

FLAT = 1e-7
"""Standard deviation, in units of the scale's span, up to which values count as all equal.

Sums of squares in double precision can't tell less from nothing.
"""

Array = NDArray[np.float64]


class Interval(NamedTuple):
    """Two ends: arrays of one shape, numbers where numbers went in."""

    lower: Array
    upper: Array


def wilson(k: float | Array, n: float | Array, level: float) -> Interval:
    """Bound a share by Wilson's score interval.

    The ends are the roots of (k/n - p)² = z² p (1 - p)/n; at k = 0 and k = n one of them is the
    scale's end, exactly.

    Parameters
    ----------
    k, n : successes and trials, n > 0
    level : two-sided coverage, in (0, 1)

    Source: [W27].
    """
    z = ndtri((1 + level) / 2)
    scale = n + z**2
    centre = (k + z**2 / 2) / scale
    half = z / scale * np.sqrt(k * (n - k) / n + z**2 / 4)
    lower = np.where(np.equal(k, 0), 0.0, centre - half)
    upper = np.where(np.equal(k, n), 1.0, centre + half)
    return Interval(lower, upper)


def hoeffding(
    mean: float | Array,
    n: float | Array,
    span: float,
    level: float | Array,
    low: float,
    high: float,
) -> Interval:
    """Bound a mean of independent values, each within its own range of length `span`.

    Half-width: span · √(ln(2/(1 - level)) / (2n)), cut at the ends `low` and `high`.

    Parameters
    ----------
    n : number of values; 1/Σa² for a weighted sum Σ a x in the mean's place

    Source: [H63] Theorem 2.
    """
    half = span * np.sqrt(np.log(2 / (1 - level)) / (2 * n))
    return Interval(np.maximum(mean - half, low), np.minimum(mean + half, high))


def t_interval(
    mean: float | Array, se: float | Array, df: float | Array, level: float, low: float, high: float
) -> Interval:
    """Bound a mean by Student's quantile with `df` degrees of freedom, cut at `low` and `high`."""
    half = stdtrit(df, (1 + level) / 2) * se
    return Interval(np.maximum(mean - half, low), np.minimum(mean + half, high))


def within(value: float, interval: Interval, low: float, high: float) -> tuple[float, Interval]:
    """Cut a value and its interval at the ends of the scale, so that the interval keeps a width.

    A corrected value can lie beyond an end, where the truth can't. It is moved to the end and its
    interval with it. That loses no coverage: the value comes nearer to every truth on the scale.
    """
    inside = min(max(value, low), high)
    shift = inside - value
    lower = max(float(interval.lower) + shift, low)
    return inside, Interval(np.array(lower), np.array(min(float(interval.upper) + shift, high)))


def pooled_df(parts: Array, df: Array) -> float:
    """Give the effective degrees of freedom of a sum of many variances with few each.

    f = (Σ v)²/Σ(v²/(df + 2)) - 2: since E v² = (1 + 2/df) times the square of what v estimates, this
    is the sum of the df for equal parts, and df for one. Satterthwaite's v²/df would give a third
    of it for cells of two answers.

    Source: [S46], with the correction for few degrees of freedom.
    """
    total = parts.sum()
    return float(total * total / (parts * parts / (df + 2)).sum() - 2)


_BETS = np.array([0.25, 0.5, 0.75, 0.999])
"""Shares of the stake that stay in one bet; the last is short of 1 so that its log is finite."""


def betting(values: Array, level: float, weights: Array | None = None) -> Interval:
    """Bound a weighted mean of independent values in [0, 1] by capital that bets against it.

    Against the claim "the mean is m" the capital K(m) = mean over f of Π (1 + f ω (x/m - 1)) with
    ω = w/max w is gathered. If the claim is true, E K ≤ 1: E(1 + f ω (x/m - 1)) is at most
    exp(f ω (μ/m - 1)), and these multiply to 1 whatever the single means μ are. So by Markov a
    true m has K(m) ≥ 2/(1 - level) with probability ≤ (1 - level)/2. K falls in m; the lower end
    is where it crosses, the upper end is that of 1 - x mirrored.

    K(mean) ≤ 1, so the mean lies strictly inside unless it is an end of the scale. The bets are
    fixed and mixed instead of chosen from past values, so the order of the values does not matter
    and the weights may differ.

    Parameters
    ----------
    values : (n,) float64 in [0, 1], n > 0
    weights : (n,) float64 > 0; None: equal

    Source: [WR24] hedged capital, with the mixed ("diversified Kelly") bets of its appendix B;
    weights and unequal means are ours, by the inequality above.
    """
    weights = np.ones_like(values) if weights is None else weights / weights.max()
    # Equal values need one term with its multiplicity: many equal answers are the common case.
    pairs, times = np.unique(np.stack((values, weights)), axis=1, return_counts=True)
    x = np.stack((pairs[0], 1 - pairs[0]))
    stake = _BETS[:, None, None] * pairs[1]
    target = np.log(2 * len(_BETS) / (1 - level))
    below = np.zeros(2)
    above = x @ (times * pairs[1]) / (times @ pairs[1])
    for _ in range(50):
        m = (below + above) / 2
        ratio = x / np.where(m > 0, m, 1.0)[:, None]
        log_capital = np.log1p(stake * (ratio - 1)) @ times
        is_refuted = np.logaddexp.reduce(log_capital, axis=0) >= target
        below = np.where(is_refuted, m, below)
        above = np.where(is_refuted, above, m)
    return Interval(below[0], 1 - below[1])


class ClusterMean(NamedTuple):
    """A weighted mean and what its clusters say of its variance.

    `means` and `shares` (n_clusters,) are each cluster's own mean and its part of the weight;
    `clusters` their numbers, ascending.
    """

    mean: float
    variance: float
    clusters: NDArray[np.int64]
    means: Array
    shares: Array

    @property
    def df(self) -> int:
        """Degrees of freedom of the variance."""
        return len(self.clusters) - 1

    @property
    def effective(self) -> float:
        """Number of equal clusters that would weigh as much as these: 1/Σ shares²."""
        return float(1 / (self.shares * self.shares).sum())

    def is_thin(self, span: float) -> bool:
        """Say whether the variance is no ground for an interval.

        Few clusters, or few that carry the weight (one heavy cluster pulls the mean to itself, so
        that its own deviation and with it the variance vanish), or all equal.
        """
        n = len(self.clusters)
        few = self.effective < FEW * (1 - FLAT)
        return few or self.variance * n <= (FLAT * span) ** 2


def cluster_mean(values: Array, weights: Array, clusters: NDArray[np.int64]) -> ClusterMean:
    """Average values and estimate the variance of the average between clusters.

    mean = Σ w x / Σ w. With z_g = Σ_{i in g} w (x - mean), variance = G/(G - 1) Σ z_g² / (Σ w)²,
    the linearised variance of a ratio over G clusters; with equal weights and each value its own
    cluster it is s²/n. It is nan for one cluster.

    Parameters
    ----------
    values, weights, clusters : (n,), n > 0, weights > 0, clusters numbered from 0

    Source: [C77] chapter 6, without the finite-population factor.
    """
    size = np.bincount(clusters, weights)
    present = np.flatnonzero(size)
    size = size[present]
    total = np.bincount(clusters, weights * values)[present]
    whole = size.sum()
    mean = float(total.sum() / whole)
    z = (total - mean * size) / whole
    n = len(present)
    # Not z @ z: a BLAS may spread it over threads, which costs more than the sum itself.
    variance = float((z * z).sum()) * n / (n - 1) if n > 1 else np.nan
    return ClusterMean(mean, variance, present, total / size, size / whole)


def worst_case(total: Array, count: Array, missing: Array, span: float) -> Interval:
    """Bound means of values in [0, span] that would hold with every missing value at an end.

    Parameters
    ----------
    total, count, missing : arrays of one shape: sum and number of the values, number missing

    Returns
    -------
    Interval of arrays, 0 where nothing was asked
    """
    asked = np.maximum(count + missing, 1)
    return Interval(total / asked, (total + span * missing) / asked)
