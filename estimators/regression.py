"""Two-phase means: the anchor's mean, made sharper by cheaper judges who saw more items.

Everybody whom a helper rated counts, though the anchor rated only a random part of them: the
anchor's mean over its part is corrected by how far that part lies, in the helpers' eyes, from the
rest. What a helper gets wrong costs precision and never biases the mean.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from estimators.cells import Mask
from estimators.intervals import FLAT, Array, ClusterMean, cluster_mean

FOLDS = 5
"""Parts that the slopes are cross-fitted over: each fit sees four fifths of the anchored items."""

_SCARCE = 0.5
"""A helper is left out when the part of the items it rated outside the anchored ones is below this
fraction of its part of them. One that was asked in a pilot alone says nothing about the difference,
and would take weight from those that do."""

_SINGULAR = 1e-10
"""Directions of the helpers' scores with less than this part of the largest variance are left out:
equal columns, constant columns."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TwoPhaseMean:
    """A two-phase mean with its variance, and the anchor's own mean beside it.

    Attributes
    ----------
    value, variance, df : the estimate, its variance between clusters, degrees of freedom of that
    alone : the mean of the anchored items, without helpers
    slopes : (m,) float64, what a point of each helper is worth in points of the anchor; 0 for one
        that was left out
    r2 : the share of the anchor's variance that the helpers predict, on items that the prediction
        was not fitted to; negative where it harms, nan where it can't be known
    n_items, n_anchored : items that enter, and those of them that the anchor rated
    n_clusters, effective : clusters of anchored items, and how many equal ones would weigh as much
    """

    value: float
    variance: float
    df: float
    alone: ClusterMean
    slopes: Array
    r2: float
    n_items: int
    n_anchored: int

    @property
    def n_clusters(self) -> int:
        """How many clusters of anchored items."""
        return len(self.alone.clusters)

    @property
    def effective(self) -> float:
        """Number of equal clusters that would weigh as much as the anchored ones."""
        return self.alone.effective

    @property
    def uses_helpers(self) -> bool:
        """Whether the helpers move the estimate at all."""
        return bool(self.slopes.any())

    def is_thin(self, span: float) -> bool:
        """Say whether the variance is no ground for an interval; then take that of `alone`.

        Few clusters that carry weight are anchored, or what is left of the anchor's values by the
        helpers does not vary.
        """
        return self.alone.is_thin(span) or self.variance * self.n_clusters <= (FLAT * span) ** 2


def two_phase_mean(
    anchor: Array,
    helpers: Array,
    weight: Array,
    cluster: NDArray[np.int64],
    *,
    folds: int = FOLDS,
) -> TwoPhaseMean:
    """Estimate the anchor's mean over items of which it rated a random part, by regression.

    Let A be the anchored items, B the others that some helper rated, and f = b'h linear in the
    helpers' scores. Then

        value = mean_A(y) - k (mean_A(f) - mean_B(f)),    k = n_B/(n_A + n_B),

    which for equal weights is mean over all of f plus mean over A of (y - f). For any slopes that
    were fixed beforehand the bracket has mean 0, since A is a random part; so it is unbiased,
    however bad f is. Each anchored item's f has the slopes fitted to the other folds' items (and
    B's f the average of these), so they are as good as fixed. Written over A and B, which don't
    overlap, its variance is

        s²_A(y - k f)/n_A + k² s²_B(f)/n_B,

    for the right slopes S² ((1 - R²)/n_A + R²/(n_A + n_B)) as in [C77]. It is taken between
    clusters, whose deviations in A and in B are added first, so a cluster with items in both is
    no problem. n_A and n_B are effective numbers of clusters, which makes k the best one also
    where few clusters carry a part's weight.

    The slopes are those of least squares: cov(y, h)/var(h), which with k is the tuning of
    power-tuned prediction-powered inference, so helpers that predict nothing fall out as the
    anchored part grows ([ADZ23]). In a small part they are noise; they are shrunk by
    max(0, 1 - 1/F), F being the regression's F statistic, which is to first order what leaving out
    one item at a time would choose.

    A helper that is missing on an item counts as its own mean there. So no anchored item is lost
    (leaving it out would change the estimand to the items that helpers answer), and the estimate
    stays unbiased, as f may be any function; an indicator of its own would buy little and cost a
    slope that few items decide. The means are estimated, which the variance includes.
    An item whose anchor verdict is missing stands in B: its value is predicted, not left out, which
    is right where the helpers' scores explain what is missing.

    Parameters
    ----------
    anchor : (n,) float64, the anchor's value of each item, NaN where it has none
    helpers : (n, m) float64, the helpers' values, NaN where they have none; m may be 0
    weight : (n,) float64 > 0
    cluster : (n,) int64, numbered from 0
    folds : parts that slopes are cross-fitted over, at least 2; anchored clusters are dealt to them
        in turn, in the order of their numbers

    Items with neither anchor nor helpers are passed over.

    Returns
    -------
    TwoPhaseMean, for t intervals with its `df`. Where nothing is to be gained (no helper, no item
    outside A) it equals `alone` to the last bit.

    Raises
    ------
    ValueError
        No item is anchored.

    Source: [C77] chapter 12 (double sampling, regression), [ZC24] (cross-fitting), [ADZ23] (power tuning);
    weights, clusters, missing helpers and the shrinkage are ours.
    """
    is_rated = ~np.isnan(helpers)
    counts = ~np.isnan(anchor) | is_rated.any(axis=1)
    anchor, helpers, is_rated = anchor[counts], helpers[counts], is_rated[counts]
    weight, cluster, is_anchored = weight[counts], cluster[counts], ~np.isnan(anchor)
    if not is_anchored.any():
        raise ValueError("the anchor rated none of the items")
    y, w, c = anchor[is_anchored], weight[is_anchored], cluster[is_anchored]
    alone = cluster_mean(y, w, c)
    n_helpers = helpers.shape[1]
    nothing = TwoPhaseMean(
        value=alone.mean,
        variance=alone.variance,
        df=alone.df,
        alone=alone,
        slopes=np.zeros(n_helpers),
        r2=np.nan,
        n_items=len(anchor),
        n_anchored=len(y),
    )
    if is_anchored.all() or not n_helpers:
        return nothing

    in_a = weight * is_anchored / w.sum()
    in_b = weight * ~is_anchored / weight[~is_anchored].sum()
    part_a, part_b = in_a @ is_rated, in_b @ is_rated
    used = (part_b > _SCARCE * part_a) & (part_a > 0)
    if not used.any():
        return nothing
    part_a, part_b, is_rated = part_a[used], part_b[used], is_rated[:, used]
    seen = weight[:, None] * is_rated / (weight @ is_rated)
    g = np.where(is_rated, helpers[:, used], 0.0)
    g = np.where(is_rated, g - (seen * g).sum(axis=0), 0.0)

    fitted = _cross_fitted(y - alone.mean, g[is_anchored], w, c, folds)
    # Each fold's slopes count in B as they do in A, so that what they get wrong cancels.
    mean_slopes = fitted.share @ fitted.slopes
    slopes = np.tile(mean_slopes, (len(anchor), 1))
    slopes[is_anchored] = fitted.slopes[fitted.fold]
    f = (g * slopes).sum(axis=1)

    n_b = _effective(in_b, cluster)
    k = n_b / (alone.effective + n_b)
    left = np.where(is_anchored, anchor, 0.0) - k * f
    value_a, value_b = float(in_a @ left), float(k * (in_b @ f))
    # A helper's estimated mean moves f on the items that lack it, and so their balance.
    of_means = k * ((part_a - part_b) * mean_slopes * seen * g).sum(axis=1)
    z = np.where(is_anchored, in_a * (left - value_a), in_b * (k * f - value_b)) + of_means
    z_a, n_a = _by_cluster(z, cluster, is_anchored)
    z_b, n_b_clusters = _by_cluster(z, cluster, ~is_anchored)
    variance_a, variance_b = float((z_a * z_a).sum()), float((z_b * z_b).sum())
    variance = float(((z_a + z_b) ** 2).sum())
    df_a = max(1, n_a - 1 - int(used.sum()))
    spread = variance_a**2 / df_a + variance_b**2 / max(1, n_b_clusters - 1)
    kept = np.zeros(n_helpers)
    kept[used] = mean_slopes
    return TwoPhaseMean(
        value=value_a + value_b,
        variance=variance,
        df=max(1.0, (variance_a + variance_b) ** 2 / spread) if spread else float(df_a),
        alone=alone,
        slopes=kept,
        r2=_predicted(y, f[is_anchored], w),
        n_items=len(anchor),
        n_anchored=len(y),
    )


class _Fitted(NamedTuple):
    """Slopes by fold, (K, m); each item's fold, (n,); each fold's share of the weight, (K,)."""

    slopes: Array
    fold: NDArray[np.int64]
    share: Array


def _cross_fitted(y: Array, g: Array, w: Array, cluster: NDArray[np.int64], folds: int) -> _Fitted:
    """Fit, for each fold, the slopes of y on g over all other folds' items."""
    clusters, rank = np.unique(cluster, return_inverse=True)
    fold = rank % min(folds, len(clusters))
    n_folds = int(fold.max()) + 1
    # The sums of a fold: of w, wg, wy and of their products. Those of the others are the
    # difference from the whole, so one pass serves all folds.
    x = np.column_stack((np.ones(len(y)), g, y))
    sums = np.stack([(x[fold == i].T * w[fold == i]) @ x[fold == i] for i in range(n_folds)])
    share = sums[:, 0, 0] / sums[:, 0, 0].sum()
    n_clusters = np.bincount(np.arange(len(clusters)) % n_folds)
    slopes = np.stack(
        [
            _shrunk_slopes(others, int(n))
            for others, n in zip(sums.sum(axis=0) - sums, len(clusters) - n_clusters, strict=True)
        ]
    )
    return _Fitted(slopes, fold, share)


def _shrunk_slopes(sums: Array, n: int) -> Array:
    """Solve for the slopes and shrink them by max(0, 1 - 1/F); n clusters count as the sample."""
    m = len(sums) - 2
    if n < m + 3 or sums[0, 0] <= 0:
        return np.zeros(m)
    centred = sums[1:, 1:] - np.outer(sums[0, 1:], sums[0, 1:]) / sums[0, 0]
    slopes, _, rank, _ = np.linalg.lstsq(centred[:m, :m], centred[:m, m], rcond=_SINGULAR)
    explained = float(slopes @ centred[:m, m])
    left = float(centred[m, m]) - explained
    if explained <= 0:
        return np.zeros(m)
    shrunk: Array = slopes * max(0.0, 1 - rank * left / (explained * (n - rank - 1)))
    return shrunk


def _effective(share: Array, cluster: NDArray[np.int64]) -> float:
    """Number of equal clusters that would weigh as much: 1/Σ shares²."""
    by_cluster = np.bincount(cluster, share)
    return float(1 / (by_cluster * by_cluster).sum())


def _by_cluster(z: Array, cluster: NDArray[np.int64], part: Mask) -> tuple[Array, int]:
    """Add a part's deviations within clusters, scaled by √(G/(G - 1)), and count its clusters G."""
    n = len(np.unique(cluster[part]))
    total = np.bincount(cluster, z * part)
    scaled: Array = total * np.sqrt(n / max(1, n - 1))
    return scaled, n


def _predicted(y: Array, f: Array, w: Array) -> float:
    """The share of the variance of y that f takes away; both may be shifted."""
    whole = np.cov(y, aweights=w)
    return float(1 - np.cov(y - f, aweights=w) / whole) if len(y) > 1 and whole > 0 else np.nan
