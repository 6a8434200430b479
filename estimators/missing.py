"""Whether verdicts are missing more often in one arm than in another."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from scipy.special import chdtrc, fdtrc, gammaln

from estimators.cells import Clusters, by_cluster
from estimators.intervals import FEW, Array

ROUGH = 5
"""Expected numbers, or clusters that miss something, below which a test is called approximate."""


class MissingTest(NamedTuple):
    """A test that all arms miss verdicts equally often; `p` nan: there was nothing to test.

    `is_rough`: the p is approximate, since a cell of the table is expected to hold fewer than 5, or
    fewer than 5 clusters miss anything, or there are fewer than 20.
    """

    p: float = np.nan
    method: str = "none"
    is_rough: bool = False


def missing_test(got: Array, missing: Array, clusters: Clusters) -> MissingTest:
    """Test equal shares of missing verdicts.

    Where no cluster has more than one question in an arm, exactly for two arms, by chi-square for
    more. Else a cluster's questions hang together: what one judge refuses another will, and a
    repeat again. Then arms are compared by what whole clusters say.

    Parameters
    ----------
    got, missing : (n_arms, n_items) float64, numbers of verdicts; arms without either are left out
    clusters : of the items
    """
    if not missing.any():
        return MissingTest()
    has_arm = (got + missing).any(axis=1)
    got, missing = by_cluster(got[has_arm], clusters), by_cluster(missing[has_arm], clusters)
    table = np.stack((got.sum(axis=1), missing.sum(axis=1)))
    n_arms = table.shape[1]
    if n_arms < 2 or not table.sum(axis=1).all():
        return MissingTest()
    if (got + missing).max() > 1:
        return _cluster_test(got + missing, missing)
    if n_arms == 2:
        return MissingTest(fisher_p(table), "fisher")
    expected = np.outer(table.sum(axis=1), table.sum(axis=0)) / table.sum()
    statistic = ((table - expected) ** 2 / expected).sum()
    return MissingTest(
        float(chdtrc(n_arms - 1, statistic)), "chi_square", is_rough=bool(expected.min() < ROUGH)
    )


def _cluster_test(asked: Array, missing: Array) -> MissingTest:
    """Compare the arms' shares by the spread of what clusters add to their differences.

    With p the share over all, cluster g adds z_ga = (m_ga - p n_ga)/n_a to arm a's share less p.
    If arms are alike, their differences to the first arm have the covariance G/(G - 1) Σ_g z_g z_g',
    with arms of one cluster hanging together as they may; T² = D'S⁻¹D is held against F. For two
    arms and normal laws this is the test that swaps the arms of whole clusters.

    Parameters
    ----------
    asked, missing : (n_arms, n_clusters) float64

    Source: the score form of [H31].
    """
    present = asked.any(axis=0)
    asked, missing = asked[:, present], missing[:, present]
    n_clusters = asked.shape[1]
    z = (missing - missing.sum() / asked.sum() * asked) / asked.sum(axis=1, keepdims=True)
    apart = z[1:] - z[0]
    whole = apart.sum(axis=1)
    covariance = np.einsum("ag,bg->ab", apart, apart) * n_clusters / max(n_clusters - 1, 1)
    solved, _, df, _ = np.linalg.lstsq(covariance, whole, rcond=1e-10)
    df_left = n_clusters - int(df)
    if df < 1 or df_left < 1:
        return MissingTest()
    p = float(fdtrc(df, df_left, float(whole @ solved) / df))
    n_missing = int(missing.any(axis=0).sum())
    return MissingTest(p, "clusters", is_rough=n_missing < ROUGH or n_clusters < FEW)


def fisher_p(table: Array) -> float:
    """Give Fisher's exact two-sided p of a table (2, 2) of counts.

    It sums the probabilities of all tables with the same margins that are no likelier than this
    one. Linear in the smallest margin.
    """
    (a, b), (c, _) = table
    row, column, total = a + b, a + c, table.sum()
    k = np.arange(max(0.0, row + column - total), min(row, column) + 1)
    log_p = -sum(gammaln(cell + 1) for cell in (k, row - k, column - k, total - row - column + k))
    log_p -= np.logaddexp.reduce(log_p)
    # Tables that are equally likely differ by rounding.
    return float(np.exp(log_p[log_p <= log_p[int(a - k[0])] + 1e-7]).sum())
