"""Whether verdicts are missing more often in one arm than in another."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from scipy.special import chdtrc, gammaln

from estimators.intervals import Array


class MissingTest(NamedTuple):
    """A test that all arms miss verdicts equally often; `p` nan: there was nothing to test.

    `is_rough`: a cell of the table is expected to hold fewer than 5, so the p is approximate.
    """

    p: float = np.nan
    method: str = "none"
    is_rough: bool = False


def missing_test(got: Array, missing: Array) -> MissingTest:
    """Test equal shares of missing verdicts: exactly for two arms, by chi-square for more.

    Parameters
    ----------
    got, missing : (n_arms,) float64, numbers of verdicts; arms without either are left out
    """
    table = np.stack((got, missing))[:, got + missing > 0]
    n_arms = table.shape[1]
    if n_arms < 2 or not table.sum(axis=1).all():
        return MissingTest()
    if n_arms == 2:
        return MissingTest(fisher_p(table), "fisher")
    expected = np.outer(table.sum(axis=1), table.sum(axis=0)) / table.sum()
    statistic = ((table - expected) ** 2 / expected).sum()
    return MissingTest(
        float(chdtrc(n_arms - 1, statistic)), "chi_square", is_rough=bool(expected.min() < 5)
    )


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
