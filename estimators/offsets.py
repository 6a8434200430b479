"""By how much judges lie above the first one, or above labels, and whether it depends on the arm."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from scipy.special import stdtr

from estimators.cells import Clusters, Mask, Panel, by_cluster, ratio
from estimators.intervals import Array

NOTABLE = 0.02
"""Least offset, in units of the scale's span, that is worth a word."""

DEPENDS = 0.01
"""Level at which an offset is said to depend on the arm."""


class ArmTest(NamedTuple):
    """A test that no judge's offset depends on the arm; `p` nan: there was nothing to test.

    `p` is the least of all judges' and pairs of arms, times their number; `largest` is the greatest
    difference between arms among those that are below `DEPENDS` by this count, 0 without any.
    """

    p: float = np.nan
    largest: float = 0.0

    def depends(self, span: float) -> bool:
        """Say whether an offset depends on the arm, by more than chance and by enough to matter."""
        return self.largest > NOTABLE * span


class Offsets(NamedTuple):
    """Each judge's mean difference to a reference, over the units that both have scored.

    The reference is the first judge, or labels.

    Attributes
    ----------
    value : (n_judges,), 0 for the first judge as its own reference; nan where no unit is shared
    covariance : (n_judges, n_judges), between clusters of units; nan where fewer than two are shared
    df : (n_judges,) its degrees of freedom; infinite for the first judge as its own reference
    n_units : (n_judges,) units shared with the reference
    by_arm : (n_judges, n_arms), nan where nothing is shared
    arms : whether they depend on the arm
    """

    value: Array
    covariance: Array
    df: Array
    n_units: Array
    by_arm: Array
    arms: ArmTest

    @property
    def se(self) -> Array:
        """Standard errors, (n_judges,): 0 for the first judge as its own reference."""
        return np.sqrt(self.covariance.diagonal())

    def are_notable(self, span: float) -> bool:
        """Say whether a judge is off by more than 3 standard errors and 2 % of the span."""
        off = np.abs(self.value)
        return bool(((off > 3 * self.se) & (off > NOTABLE * span)).any())


def judge_offsets(
    panel: Panel,
    clusters: Clusters,
    arm_pairs: Sequence[tuple[int, int]],
    labels: Array | None = None,
) -> Offsets:
    """Estimate offsets δ_j: the mean, over shared units, of judge j's cell mean less the reference.

    The covariance is that of means between clusters, Σ_g z_g z_g' with z_gj = √(G/(G - 1)) times
    the sum of (difference - δ_j)/n_j over a cluster's units. Where judges have no views of their own
    on units it estimates Σ_k (σ²_kj + σ²_k1)/n over n_j², the noise alone; where they have, these
    are in it too.

    Parameters
    ----------
    clusters : of the items
    arm_pairs : the pairs of arms whose offsets are compared
    labels : (n_arms, n_items), NaN where there is none; None: the first judge that answered is the
        reference
    """
    # A judge without any answer can be no reference: the next one is.
    first = int(np.argmax(panel.answered.any(axis=(1, 2))))
    reference = panel.mean[first] if labels is None else labels
    shared = panel.answered & (panel.answered[first] if labels is None else ~np.isnan(labels))
    apart = np.where(shared, panel.mean - reference, 0.0)
    n_in_arm, in_arm = shared.sum(axis=2) * 1.0, apart.sum(axis=2)
    n_units = n_in_arm.sum(axis=1)
    value = ratio(in_arm.sum(axis=1), n_units)
    z, n_clusters = means_by_cluster(apart.sum(axis=1), shared.sum(axis=1) * 1.0, clusters)
    covariance, df = np.einsum("jg,lg->jl", z, z), n_clusters - 1
    compared = np.ones(len(value), dtype=bool)
    if labels is None:
        covariance[first], covariance[:, first], df[first] = 0.0, 0.0, np.inf
        compared[first] = False
    return Offsets(
        value,
        covariance,
        df,
        n_units,
        ratio(in_arm, n_in_arm),
        _arm_test(apart[compared], shared[compared], clusters, arm_pairs),
    )


def means_by_cluster(total: Array, n: Array, clusters: Clusters) -> tuple[Array, Array]:
    """Give what clusters add to each judge's mean, so scaled that Σ z² is its variance.

    `total` and `n` are sums of differences and their number, (n_judges, n_items); with z come the
    numbers of clusters.
    """
    total, n = by_cluster(total, clusters), by_cluster(n, clusters)
    n_clusters, whole = np.count_nonzero(n, axis=1) * 1.0, n.sum(axis=1)
    scale = np.sqrt(ratio(n_clusters, n_clusters - 1)) / np.maximum(whole, 1)
    mean = total.sum(axis=1) / np.maximum(whole, 1)
    return (total - mean[:, None] * n) * scale[:, None], n_clusters


def _arm_test(
    apart: Array, shared: Mask, clusters: Clusters, arm_pairs: Sequence[tuple[int, int]]
) -> ArmTest:
    """Test by Student's t, over items that have both arms, with Bonferroni's correction."""
    p, sizes = [], []
    for arm, other in arm_pairs:
        both = shared[:, arm] & shared[:, other]
        differ: Array = np.where(both, apart[:, arm] - apart[:, other], 0.0)
        counts = both.astype(np.float64)
        mean = ratio(differ.sum(axis=1), counts.sum(axis=1))
        z, n_clusters = means_by_cluster(differ, counts, clusters)
        se = np.sqrt((z * z).sum(axis=1))
        # Differences that are all equal have no standard error; they are no evidence either way.
        t = ratio(np.abs(mean), se)
        p.append(2 * stdtr(n_clusters - 1, -t))
        sizes.append(np.abs(mean))
    p_all, size = np.array(p).ravel(), np.array(sizes).ravel()
    is_tested = ~np.isnan(p_all)
    if not is_tested.any():
        return ArmTest()
    p_all = np.minimum(p_all[is_tested] * is_tested.sum(), 1.0)
    largest = float(np.max(size[is_tested], initial=0.0, where=p_all < DEPENDS))
    return ArmTest(float(p_all.min()), largest)
