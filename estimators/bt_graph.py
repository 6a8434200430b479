"""What the graph of comparisons lets one say: which strengths have a common scale, which are finite.

Two models have a common scale where a chain of comparisons connects them (weak components). The gap
between them has a finite estimate where each also beats or ties the other along some chain (strong
components of "beats", a tie counting both ways).
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array
from scipy.sparse.csgraph import connected_components

from estimators.intervals import Array

Labels = NDArray[np.int64]


class Components(NamedTuple):
    """Which models hang together.

    Attributes
    ----------
    n, weak : number of components of the comparison graph, and each model's, (m,)
    n_strong, strong : the same for the graph of who beats whom
    """

    n: int
    weak: Labels
    n_strong: int
    strong: Labels

    @property
    def is_connected(self) -> bool:
        """Whether all models have a common scale."""
        return self.n == 1

    @property
    def is_separated(self) -> bool:
        """Whether some gap on a common scale has no finite estimate."""
        return self.n_strong > self.n

    @property
    def size(self) -> Labels:
        """Number of models in each model's weak component, (m,)."""
        size: Labels = np.bincount(self.weak, minlength=1)[self.weak]
        return size


def components(beats: Array) -> Components:
    """Find what connects models and what bounds the gaps between them.

    A gap is finite if and only if both models are in one strong component [F57].

    Parameters
    ----------
    beats : (m, m); entry (a, b) is positive where a beat b or tied with it

    Raises
    ------
    ValueError
        `beats` is not square.
    """
    if beats.ndim != 2 or beats.shape[0] != beats.shape[1]:
        raise ValueError(f"beats has shape {beats.shape}; it must be square")
    if not len(beats):
        none = np.zeros(0, dtype=np.int64)
        return Components(0, none, 0, none)
    m, edges = len(beats), beats > 0
    if min(edges.sum(axis=0).min(), edges.sum(axis=1).min()) >= m / 2:
        # Whom one beats and who beats the other then share a model: all is one component.
        whole = np.zeros(m, dtype=np.int64)
        return Components(1, whole, 1, whole)
    # Built by hand: conversion from a dense array costs more than the search.
    row, column = np.divmod(np.flatnonzero(edges).astype(np.int32), np.int32(m))
    starts = np.searchsorted(row, np.arange(m + 1)).astype(np.int32)
    graph = csr_array((np.ones(len(row)), column, starts), shape=beats.shape)
    n_strong, strong = connected_components(graph, connection="strong")
    if n_strong == 1:
        return Components(1, np.zeros(m, dtype=np.int64), 1, strong.astype(np.int64))
    n, weak = connected_components(graph, connection="weak")
    return Components(int(n), _by_first(weak), int(n_strong), _by_first(strong))


def _by_first(labels: NDArray[np.int32]) -> Labels:
    """Number labels in the order in which models bring them up, so that names don't matter."""
    _, first, found = np.unique(labels, return_index=True, return_inverse=True)
    rank: Labels = np.argsort(np.argsort(first)).astype(np.int64)
    numbered: Labels = rank[found]
    return numbered
