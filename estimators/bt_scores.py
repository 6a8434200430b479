"""Sums over comparisons of x x' and of scores, x = e_left - e_right beside other columns."""

from __future__ import annotations

import numpy as np

from estimators.bt_cells import Indices
from estimators.intervals import Array


def gram(left: Indices, right: Indices, weight: Array, extra: Array, n_models: int) -> Array:
    """Sum weight · x x', (M + q, M + q): an information, or the middle of a sandwich.

    Parameters
    ----------
    left, right, weight : (n,)
    extra : (n, q) columns beside the strengths, such as ones for the order's effect; q may be 0
    """
    x = _by_column(left, right, weight, extra, n_models)
    met = np.bincount(left * n_models + right, weight, n_models**2).reshape(n_models, n_models)
    met = met + met.T
    return np.block(
        [[np.diag(met.sum(axis=0)) - met, x[:n_models]], [x[:n_models].T, x[n_models:]]]
    )


def cluster_scores(
    left: Indices, right: Indices, score: Array, extra: Array, n_models: int, cluster: Indices
) -> Array:
    """Sum score · x over each cluster, (n_clusters, M + q); clusters are numbered from 0."""
    n, width = int(cluster.max()) + 1, n_models + extra.shape[1]
    total = np.zeros((n, width))
    for place, signed in ((left, score), (right, -score)):
        np.add.at(total, (cluster, place), signed)
    np.add.at(total[:, n_models:], cluster, extra * score[:, None])
    return total


def solve(information: Array) -> Array:
    """Invert an information where it can be: strengths sum to zero in each component."""
    return np.linalg.pinv(information, rcond=1e-10, hermitian=True).astype(np.float64)


def no_columns(n: int) -> Array:
    """Give no further columns, (n, 0)."""
    return np.empty((n, 0))


def _by_column(left: Indices, right: Indices, weight: Array, extra: Array, n_models: int) -> Array:
    """Sum weight · x extra', (M + q, q)."""
    weighted = extra * weight[:, None]
    total = np.zeros((n_models + extra.shape[1], extra.shape[1]))
    np.add.at(total, left, weighted)
    np.subtract.at(total, right, weighted)
    total[n_models:] = weighted.T @ extra
    return total
