"""Whether judges agree, and whether a judge's verdicts tell one unit from another.

All that is kept of the verdicts are sums by judge and unit, so memory does not grow with repeats.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from orchestrator.core.scale import ScaleType
from orchestrator.report.data import Ranged

Array = NDArray[np.float64]

LEVEL = 0.95
METRICS = {
    ScaleType.BOOLEAN: "nominal",
    ScaleType.PREFERENCE: "nominal",
    ScaleType.INTEGER: "ordinal",
    ScaleType.FLOAT: "interval",
}
"""How far two verdicts lie apart on each kind of scale."""


class Verdicts:
    """What one judge said of units on one criterion: the first verdict and the moments of all."""

    __slots__ = ("first", "mean", "n", "squares")

    def __init__(self, n_units: int) -> None:
        self.n = array("q", bytes(8 * n_units))
        self.first, self.mean, self.squares = (array("d", bytes(8 * n_units)) for _ in range(3))

    def add(self, unit: int, value: float) -> None:
        """Take in one verdict, by Welford's update."""
        self.n[unit] = n = self.n[unit] + 1
        if n == 1:
            self.first[unit] = self.mean[unit] = value
            return
        step = value - self.mean[unit]
        self.mean[unit] += step / n
        self.squares[unit] += step * (value - self.mean[unit])

    def firsts(self) -> Array:
        """Give the first verdict on each unit, nan where there is none."""
        return np.where(
            np.frombuffer(self.n, dtype=np.int64) > 0, np.frombuffer(self.first), np.nan
        )

    def repeats(self) -> tuple[float, Ranged]:
        """Give the pooled variance of repeats, and the share of variance that is between units."""
        n = np.frombuffer(self.n, dtype=np.int64)
        has = n > 0
        return intraclass(
            n[has].astype(np.float64),
            np.frombuffer(self.mean)[has],
            np.frombuffer(self.squares)[has],
        )


# --- agreement ---------------------------------------------------------------------------------


class _Sums(NamedTuple):
    """What alpha is made of, by cluster of units: values, sum, squares, disagreement within units.

    `total` is (dims, n_clusters), the others are (n_clusters,).
    """

    n: Array
    total: Array
    squares: Array
    within: Array


def alpha(values: Array, metric: str, cluster: NDArray[np.int64]) -> Ranged:
    """Estimate Krippendorff's alpha, with the jackknife interval that leaves out each cluster.

    alpha = 1 - D_o/D_e, where D_o is the mean squared distance of two judges' verdicts on the same
    unit and D_e that of two verdicts of any units. Distances are those of the metric: for `ordinal`
    of the verdicts' middle ranks among all that count, for `nominal` 0 or 1, which is half the
    squared distance of indicators. With sums of squares over units u of m_u verdicts, n in all,

        alpha = 1 - (n - 1)/n Σ_u m_u SS_u/(m_u - 1) / SS.

    The interval takes Student's quantile for the spread of the estimates without one cluster, ranks
    held fixed; it is nan below three clusters, and where no estimate moves.

    Parameters
    ----------
    values : (n_judges, n_units) float64, NaN where a judge has not rated
    cluster : (n_units,) int64, numbered from 0

    Source: [K11]; for middle ranks, its ordinal metric is the difference of the cumulated numbers of
    verdicts below, half of a verdict's own counted.
    """
    is_paired = np.isfinite(values).sum(axis=0) > 1
    values = values[:, is_paired]
    if not values.size:
        return Ranged()
    return _jackknife(_summed(values, _placed(values, metric), cluster[is_paired]), _alpha)


def with_others(values: Array, judge: int, cluster: NDArray[np.int64]) -> tuple[Ranged, int]:
    """Hold one judge against the mean of the others, each judge's own level taken out.

    That is alpha of two on an interval scale, 1 - D_o/D_e, with D_e from deviations of each from its
    own mean: 2 cov/(sum of both variances). A lenient judge loses nothing by it; it is 0 for a judge
    whose verdicts do not go with the others'. Also gives how many units are behind it.
    """
    has = np.isfinite(values)
    level = np.array([np.mean(v[h]) if h.any() else 0.0 for v, h in zip(values, has, strict=True)])
    left = np.where(has, values - level[:, None], 0.0)
    n_others = has.sum(axis=0) - has[judge]
    shared = has[judge] & (n_others > 0)
    if not shared.any():
        return Ranged(), 0
    others = (left.sum(axis=0) - left[judge])[shared] / n_others[shared]
    pair = np.stack((left[judge][shared], others))
    pair -= pair.mean(axis=1, keepdims=True)
    sums = _summed(pair, pair[None], cluster[shared])
    return _jackknife(sums, _consistency), int(shared.sum())


def _summed(values: Array, points: Array, cluster: NDArray[np.int64]) -> _Sums:
    """Sum by cluster; `points` (dims, n_judges, n_units) stand for the values."""
    m = np.isfinite(values).sum(axis=0).astype(np.float64)
    sums, squares = np.nansum(points, axis=1), np.nansum(points * points, axis=(0, 1))
    within = m / (m - 1) * (squares - (sums * sums).sum(axis=0) / m)
    n_clusters = int(cluster.max()) + 1
    n, *total, squares, within = (
        np.bincount(cluster, x, n_clusters).astype(np.float64) for x in (m, *sums, squares, within)
    )
    present = n > 0
    return _Sums(n[present], np.array(total)[:, present], squares[present], within[present])


def _placed(values: Array, metric: str) -> Array:
    """Give points (dims, n_judges, n_units) whose squared distances are those of the metric."""
    has = np.isfinite(values)
    match metric:
        case "interval":
            centred: Array = values - values[has].mean()
            return centred[None]
        case "ordinal":
            _, kind, times = np.unique(values[has], return_inverse=True, return_counts=True)
            ranks = np.cumsum(times) - times / 2
            points = np.full(values.shape, np.nan)
            points[has] = (ranks - has.sum() / 2)[kind]
            return points[None]
        case _:
            kinds = np.unique(values[has])
            return np.where(has, values == kinds[:, None, None], np.nan)


def _alpha(s: _Sums) -> Array:
    return 1 - (s.n - 1) / s.n * s.within / _spread(s)


def _consistency(s: _Sums) -> Array:
    return 1 - s.within / _spread(s)


def _spread(s: _Sums) -> Array:
    """Give the sum of squares over all units; nan where all verdicts are equal but for rounding."""
    spread = s.squares - (s.total * s.total).sum(axis=0) / s.n
    return np.where(spread > 1e-12 * s.squares, spread, np.nan)


def _jackknife(by: _Sums, estimate: Callable[[_Sums], Array]) -> Ranged:
    from scipy.special import stdtrit  # noqa: PLC0415  # slow to load, and few commands need it

    whole = _Sums(*(x.sum(axis=-1) for x in by))
    value = float(estimate(whole))
    n = len(by.n)
    if n < 3:  # two estimates say nothing of their spread
        return Ranged(value)
    without = estimate(_Sums(*(w[..., None] - x for w, x in zip(whole, by, strict=True))))
    se = float(np.sqrt((n - 1) / n * ((without - without.mean()) ** 2).sum()))
    if not se > 1e-12:  # equal but for rounding; also where it is nan
        return Ranged(value)
    half = float(stdtrit(n - 1, (1 + LEVEL) / 2)) * se
    return Ranged(value, value - half, min(value + half, 1.0))


# --- repeats -----------------------------------------------------------------------------------


def intraclass(n: Array, mean: Array, squares: Array) -> tuple[float, Ranged]:
    """Estimate the share of variance between units, from repeats of the same question.

    The one-way analysis of variance over k units: with mean squares B between and W within units,
    and n0 = (N - Σn²/N)/(k - 1), the share is (B - W)/(B + (n0 - 1) W). Its interval comes from that
    of B/W, and is exact for normal verdicts with equal numbers of repeats. Also gives W. All is nan
    without repeats, and the interval where they are all equal.

    Parameters
    ----------
    n, mean, squares : (k,) number, mean and sum of squared deviations of each unit's verdicts

    Source: [SF79] ICC(1, 1) and its interval; n0 for unequal numbers.
    """
    from scipy.special import fdtri  # noqa: PLC0415  # slow to load, and few commands need it

    k, total = len(n), float(n.sum())
    between_df, within_df = k - 1, total - k
    if between_df < 1 or within_df < 1:
        return np.nan, Ranged()
    within = float(squares.sum()) / within_df
    between = float((n * (mean - (n * mean).sum() / total) ** 2).sum()) / between_df
    n0 = (total - float((n * n).sum()) / total) / between_df
    whole = between + (n0 - 1) * within
    if not whole > 0:
        return within, Ranged()
    value = (between - within) / whole
    if not within > 0:
        return within, Ranged(value)
    p = (1 + LEVEL) / 2

    def share(f: float) -> float:
        return (f - 1) / (f + n0 - 1)

    ratio = between / within
    lower = share(ratio / float(fdtri(between_df, within_df, p)))
    upper = share(ratio * float(fdtri(within_df, between_df, p)))
    return within, Ranged(value, lower, upper)
