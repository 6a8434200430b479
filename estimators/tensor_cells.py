"""Votes of pairs in contexts, summed by cell, and what a tensor's likelihood needs of the sums.

A vote is (left, right, context, outcome): 1 left wins, .5 a tie, 0 right wins. With eta = T[left, k] -
T[right, k] (+ gamma, the advantage of the one shown first) the chance of left is sigma(eta). Votes of
one (left, right, context) enter by sums only, so that nothing below costs more for more votes.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.sparse import csr_array
from scipy.special import expit

from estimators.intervals import Array
from estimators.tensor_dense import product

Integers = NDArray[np.int64]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Cells:
    """Sums over the votes of each cell, (c,); cells without votes have zeros.

    Attributes
    ----------
    left, right, context : of each cell
    count : votes
    weight, won : sums of w and w y
    weight2, won2, square2 : sums of w², w² y and w² y²
    n : votes in all
    n_models, n_contexts : lengths of the tensor, contexts flat
    """

    left: Integers
    right: Integers
    context: Integers
    count: Array
    weight: Array
    won: Array
    weight2: Array
    won2: Array
    square2: Array
    n: int
    n_models: int
    n_contexts: int

    def eta(self, tensor: Array, gamma: float = 0.0) -> Array:
        """Give the logit of left's chance, (c,); the tensor is (n_models, n_contexts)."""
        found: Array = tensor[self.left, self.context] - tensor[self.right, self.context] + gamma
        return found

    def log_likelihood(self, eta: Array) -> float:
        """Sum w (y eta - log(1 + e^eta)); with ties a quasi-likelihood."""
        return float((self.won * eta - self.weight * np.logaddexp(0.0, eta)).sum())

    def score(self, eta: Array) -> Array:
        """Sum w (y - p) by cell, (c,)."""
        found: Array = self.won - self.weight * expit(eta)
        return found

    def squares(self, eta: Array) -> Array:
        """Sum w² (y - p)² by cell, (c,)."""
        p = expit(eta)
        found: Array = np.maximum(self.square2 - 2 * p * self.won2 + p * p * self.weight2, 0.0)
        return found

    def contrast(self, of_cells: Array) -> Array:
        """Sum v (e_left - e_right) into the tensor's entries, (n_models, n_contexts)."""
        size = self.n_models * self.n_contexts
        ahead = np.bincount(self.left * self.n_contexts + self.context, of_cells, size)
        behind = np.bincount(self.right * self.n_contexts + self.context, of_cells, size)
        found: Array = np.subtract(ahead, behind, dtype=np.float64)
        return found.reshape(self.n_models, self.n_contexts)

    def laplacians(self, of_cells: Array) -> Array:
        """Sum v (e_left - e_right)(e_left - e_right)' by context, (n_contexts, n_models, n_models)."""
        m = self.n_models
        place = (self.context * m + self.left) * m + self.right
        one_way = np.bincount(place, of_cells, self.n_contexts * m * m).reshape(-1, m, m)
        beside = one_way + one_way.transpose(0, 2, 1)
        found: Array = -beside.astype(np.float64)
        found[:, range(m), range(m)] = beside.sum(axis=2) - beside[:, range(m), range(m)]
        return found


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Votes:
    """Votes in the order they came, and the cell of each.

    Attributes
    ----------
    left, right, context : (c,) of the distinct cells
    cell : (n,) which of them each vote is of
    outcome, weights : (n,); weights are target / propensity, or 1
    is_weighted : weights were given
    shape : models, then the lengths of the contexts' modes
    cluster : (n,) numbered from 0, what votes have in common; None: each stands alone
    """

    left: Integers
    right: Integers
    context: Integers
    cell: Integers
    outcome: Array
    weights: Array
    is_weighted: bool
    shape: tuple[int, ...]
    cluster: Integers | None = None

    def __len__(self) -> int:
        return len(self.cell)

    @property
    def n_contexts(self) -> int:
        """How many contexts there are, all their modes together."""
        return math.prod(self.shape[1:])

    @property
    def effective(self) -> float:
        """Effective sample size (sum of w)² / sum of w²."""
        square = float(self.weights @ self.weights)
        return float(self.weights.sum()) ** 2 / square if square else 0.0

    @property
    def has_ties(self) -> bool:
        """Whether some outcome is neither 0 nor 1."""
        return bool(((self.outcome != 0) & (self.outcome != 1)).any())

    def residuals(self, eta: Array, chosen: NDArray[np.bool_] | None = None) -> csr_array:
        """Sum w (y - p) by cluster and cell, (n_clusters, c).

        Parameters
        ----------
        eta : (c,) log-odds of the distinct cells
        chosen : (n,) which votes; None: all
        """
        assert self.cluster is not None
        here = slice(None) if chosen is None else chosen
        cluster, cell = np.unique(self.cluster[here], return_inverse=True)[1], self.cell[here]
        of_votes = self.weights[here] * (self.outcome[here] - expit(eta)[cell])
        shape = (int(cluster.max(initial=-1)) + 1, len(self.left))
        return csr_array((of_votes, (cluster, cell)), shape=shape)

    def cells(self, chosen: NDArray[np.bool_] | None = None) -> Cells:
        """Sum all votes, or those chosen, (n,) bool."""
        here = slice(None) if chosen is None else chosen
        cell, w, y = self.cell[here], self.weights[here], self.outcome[here]
        columns = (np.ones_like(w), w, w * y, w * w, w * w * y, w * w * y * y)
        names = ("count", "weight", "won", "weight2", "won2", "square2")
        return Cells(
            left=self.left,
            right=self.right,
            context=self.context,
            **{
                name: np.bincount(cell, column, len(self.left)).astype(np.float64)
                for name, column in zip(names, columns, strict=True)
            },
            n=len(cell),
            n_models=self.shape[0],
            n_contexts=self.n_contexts,
        )


def votes(
    left: ArrayLike,
    right: ArrayLike,
    context: ArrayLike,
    outcome: ArrayLike,
    *,
    shape: Sequence[int],
    weights: ArrayLike | None = None,
    cluster: ArrayLike | None = None,
) -> Votes:
    """Take votes in and check them.

    Parameters
    ----------
    left, right : (n,) models, 0 to M - 1; left was shown first
    context : (n,) place among the contexts; of several modes in C order
    outcome : (n,) in [0, 1]: 1 left wins, .5 a tie, 0 right wins
    shape : models, then the lengths of the contexts' modes
    weights : (n,) positive
    cluster : (n,) labels of what votes have in common

    Raises
    ------
    ValueError
        Lengths differ, a number is out of range, or a model meets itself.
    """
    a, b, k = (np.asarray(each, dtype=np.int64) for each in (left, right, context))
    y = np.asarray(outcome, dtype=np.float64)
    w = np.ones(len(y)) if weights is None else np.asarray(weights, dtype=np.float64)
    m, n_contexts = shape[0], math.prod(shape[1:])
    if not all(each.shape == y.shape == (len(y),) for each in (a, b, k, w)):
        raise ValueError("left, right, context, outcome and weights must be of one length")
    for name, of, most in (("left", a, m), ("right", b, m), ("context", k, n_contexts)):
        if len(of) and not (of.min() >= 0 and of.max() < most):
            raise ValueError(f"{name} must be 0 to {most - 1}")
    if (a == b).any():
        raise ValueError("a model is compared with itself")
    if not ((y >= 0) & (y <= 1)).all():
        raise ValueError("outcomes must be in [0, 1]")
    if not ((w > 0) & np.isfinite(w)).all():
        raise ValueError("weights must be positive")
    codes, cell = np.unique((a * m + b) * n_contexts + k, return_inverse=True)
    pair, of_cell = np.divmod(codes, n_contexts)
    return Votes(
        left=pair // m,
        right=pair % m,
        context=of_cell,
        cell=cell.reshape(-1),
        outcome=y,
        weights=w,
        is_weighted=weights is not None,
        shape=tuple(int(d) for d in shape),
        cluster=None if cluster is None else _coded(cluster, len(y)),
    )


def _coded(cluster: ArrayLike, n: int) -> Integers:
    labels = np.asarray(cluster)
    if labels.shape != (n,):
        raise ValueError(f"cluster has shape {labels.shape}; there are {n} votes")
    codes: Integers = np.unique(labels, return_inverse=True)[1].reshape(-1).astype(np.int64)
    return codes


class Tangent(NamedTuple):
    """Coordinates of the tangent space at a tensor, gamma behind them if it is a parameter.

    Attributes
    ----------
    basis : (n_models · n_contexts, D) orthonormal
    has_order : gamma is the last coordinate
    """

    basis: Array
    has_order: bool

    @property
    def size(self) -> int:
        """Number of coordinates."""
        return int(self.basis.shape[1]) + self.has_order

    def pulled(self, cells: Cells, of_cells: Array) -> Array:
        """Sum v x over cells, in coordinates: Q'(e_left - e_right), and 1 for gamma."""
        inner = product(cells.contrast(of_cells).reshape(1, -1), self.basis)[0]
        return np.append(inner, of_cells.sum()) if self.has_order else inner

    def rows(self, cells: Cells, directions: Array | None = None) -> Array:
        """Give x of each cell in coordinates, (c, size); or its products with directions, (c, q).

        Parameters
        ----------
        directions : (q, size) in coordinates
        """
        d, m = self.basis.shape[1], cells.n_contexts
        along = self.basis if directions is None else self.basis @ directions[:, :d].T
        found: Array = (
            along[cells.left * m + cells.context] - along[cells.right * m + cells.context]
        )
        if not self.has_order:
            return found
        if directions is None:
            return np.hstack((found, np.ones((len(found), 1))))
        shifted: Array = found + directions[:, d]
        return shifted

    def information(self, cells: Cells, of_cells: Array) -> Array:
        """Sum v x x' over cells, in coordinates.

        By contexts' Laplacians rather than by rows of Q: no cost depends on the number of cells.
        """
        d = self.basis.shape[1]
        q = self.basis.reshape(cells.n_models, cells.n_contexts, d).transpose(1, 0, 2)
        spread = [product(own, x) for own, x in zip(cells.laplacians(of_cells), q, strict=True)]
        inner = product(q.reshape(-1, d).T, np.concatenate(spread))
        inner = (inner + inner.T) / 2
        if not self.has_order:
            return inner
        edge = self.pulled(cells, of_cells)
        found = np.empty((d + 1, d + 1))
        found[:d, :d] = inner
        found[d] = found[:, d] = edge
        return found

    def gradients(self, of: Array) -> Array:
        """Bring gradients by entries, (q, n_models · n_contexts), into coordinates, (q, size)."""
        inner = product(of, self.basis)
        return np.pad(inner, ((0, 0), (0, int(self.has_order))))
