"""Tensors of low Tucker rank whose columns over models sum to zero: points, directions, retraction.

A tensor T of models by contexts (categories, and judges if they are a mode) is

    T = G x_1 U_1 x_2 U_2 ... with U_m'U_m = 1 and 1'U_1 = 0.

All tensors of one rank are a smooth surface; its tangent space at T has an orthonormal basis of few
columns, in which everything that follows is a small dense system. Matrices are the case of two modes.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from estimators.intervals import Array
from estimators.tensor_dense import TILE, product, reflections, turned

_BESIDE = 8
_ITERATIONS = 4
"""How many singular vectors more are sought than needed, and in how many iterations."""


def full_rank(shape: Sequence[int], rank: int | Sequence[int]) -> tuple[int, ...]:
    """Give the rank of every mode, checked against the shape; one number stands for all modes.

    Raises
    ------
    ValueError
        There are fewer than two modes or models, or no tensor of the shape has that rank: a mode's
        rank is at most its length (for models one less, as they sum to zero) and at most the product
        of the other ranks.
    """
    if len(shape) < 2 or shape[0] < 2 or min(shape) < 1:
        raise ValueError(f"shape is {tuple(shape)}; it must be two models or more by contexts")
    ranks = (rank,) * len(shape) if isinstance(rank, int) else tuple(rank)
    if len(ranks) != len(shape):
        raise ValueError(f"rank is {ranks} for {len(shape)} modes")
    for m, r in enumerate(ranks):
        longest = shape[m] - (m == 0)
        most = min(longest, math.prod(ranks) // r if r else 0)
        if not 1 <= r <= most:
            raise ValueError(
                f"rank is {ranks} for shape {tuple(shape)}: mode {m + 1} can have 1 to {most}"
            )
    return ranks


def dimension(shape: Sequence[int], rank: int | Sequence[int]) -> int:
    """Count the free parameters: prod r + (M - 1 - r_1) r_1 + sum of (d_m - r_m) r_m over m > 1."""
    ranks = full_rank(shape, rank)
    lengths = (shape[0] - 1, *shape[1:])
    return math.prod(ranks) + sum((d - r) * r for d, r in zip(lengths, ranks, strict=True))


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class TuckerPoint:
    """A tensor in factors.

    Attributes
    ----------
    core : (r_1, r_2, ...) G
    factors : U_m, (d_m, r_m), orthonormal columns; those of the first sum to zero
    """

    core: Array
    factors: tuple[Array, ...]

    @property
    def shape(self) -> tuple[int, ...]:
        """Length of each mode."""
        return tuple(len(factor) for factor in self.factors)

    @property
    def rank(self) -> tuple[int, ...]:
        """Rank of each mode."""
        return self.core.shape

    @property
    def tensor(self) -> Array:
        """T, in its full shape."""
        return multiplied(self.core, self.factors)

    def basis(self) -> Array:
        """Give an orthonormal basis Q of the tangent space, (prod d, D), entries of T in C order.

        Its columns are kron(U_1, U_2, ...) for changes of the core; and for each mode m, with an
        orthonormal complement of U_m and the right singular vectors V_m of the core's unfolding
        G_(m), the products of the complement with (kron of the other U) V_m. These are orthogonal
        to each other, so that the projection on the tangent space is QQ'.
        """
        shape = self.shape
        parts = [_kron(self.factors)]
        for m, factor in enumerate(self.factors):
            beside = _complement(factor, is_centred=m == 0)
            others = _kron([each for k, each in enumerate(self.factors) if k != m])
            _, _, rows = np.linalg.svd(unfolded(self.core, m), full_matrices=False)
            both = np.einsum("ic,jv->ijcv", beside, others @ rows.T)
            rest = shape[:m] + shape[m + 1 :]
            laid = np.moveaxis(both.reshape(shape[m], *rest, -1), 0, m)
            parts.append(laid.reshape(math.prod(shape), -1))
        return np.concatenate(parts, axis=1)

    def project(self, direction: Array) -> Array:
        """Project a tensor on the tangent space, by contractions mode by mode, without a basis.

        P Z is the core part Z x_1 U_1U_1' x_2 ... and, for each mode, the fold of
        (1 - U_mU_m') Z_(m) K G_(m)⁺ G_(m) K' with K the kron of the other factors, Z being centred
        over models first.
        """
        z = direction - direction.mean(axis=0)
        found = multiplied(z, [u @ u.T for u in self.factors])
        for m, factor in enumerate(self.factors):
            others = [u.T for u in self.factors]
            others[m] = np.eye(len(factor))
            small = unfolded(multiplied(z, others), m)
            small = small - factor @ (factor.T @ small)
            g = unfolded(self.core, m)
            small = small @ np.linalg.pinv(g) @ g
            shape = [*self.rank]
            shape[m] = len(factor)
            back = [*self.factors]
            back[m] = np.eye(len(factor))
            found = found + multiplied(folded(small, m, shape), back)
        return found

    def bending(self, gradient: Array) -> Array:
        """Give how a function of gradient g bends because the surface does, (D, D) in coordinates.

        With (G + dG) x_m (U_m + C_m A_m), C_m the complement of U_m, for the neighbours of T, this is
        the second derivative of <g, .>: its terms are products of changes of two modes, and of the
        core and one mode. At a stationary point it is the difference between the function's second
        derivatives along the surface and those in the space around it.

        Parameters
        ----------
        gradient : of T's shape
        """
        g = gradient - gradient.mean(axis=0)
        besides, turns, starts = [], [], [self.core.size]
        for m, factor in enumerate(self.factors):
            besides.append(_complement(factor, is_centred=m == 0))
            left, sizes, _ = np.linalg.svd(unfolded(self.core, m), full_matrices=False)
            least = np.maximum(sizes, 1e-8 * sizes[0])[:, None]
            # At T = 0 every direction is tangent, and the surface does not bend.
            turns.append(np.divide(left.T, least, out=np.zeros_like(left.T), where=least > 0))
            starts.append(starts[-1] + besides[-1].shape[1] * factor.shape[1])
        found = np.zeros((starts[-1], starts[-1]))
        places = np.arange(self.core.size, dtype=np.float64).reshape(self.rank)
        for m, turn in enumerate(turns):
            rows = slice(starts[m], starts[m + 1])
            across = [u.T for u in self.factors]
            across[m] = besides[m].T
            normal = unfolded(multiplied(g, across), m)
            with_core = np.einsum("va,cj->cvaj", turn, normal)
            order = unfolded(places, m).reshape(-1).astype(np.int64)
            found[rows, order] = with_core.reshape(rows.stop - rows.start, len(order))
            for k in range(m):
                two = [*across]
                two[k] = besides[k].T
                rest = [j for j in range(len(turns)) if j not in {m, k}]
                pair = np.tensordot(multiplied(g, two), self.core, axes=(rest, rest))
                # Axes: complement of k, complement of m, core's k, core's m.
                turned = np.einsum("cdab,va,wb->dwcv", pair, turns[k], turn)
                columns = slice(starts[k], starts[k + 1])
                found[rows, columns] = turned.reshape(
                    rows.stop - rows.start, columns.stop - columns.start
                )
        return found + found.T


def hosvd(tensor: Array, rank: Sequence[int]) -> TuckerPoint:
    """Cut a tensor, centred over models, down to a rank: the leading left vectors of each unfolding.

    For matrices that is the nearest one of the rank. As T + direction is cut, a short step along a
    tangent direction comes back to the surface: a retraction.
    """
    centred = tensor - tensor.mean(axis=0)
    factors = [_leading(unfolded(centred, m), r, is_centred=m == 0) for m, r in enumerate(rank)]
    return TuckerPoint(core=multiplied(centred, [u.T for u in factors]), factors=tuple(factors))


def unfolded(tensor: Array, m: int) -> Array:
    """Lay mode m along the rows, the others along the columns in C order."""
    rest = tensor.shape[:m] + tensor.shape[m + 1 :]
    return np.moveaxis(tensor, m, 0).reshape(tensor.shape[m], math.prod(rest))


def folded(matrix: Array, m: int, shape: Sequence[int]) -> Array:
    """Undo `unfolded`."""
    rest = [d for k, d in enumerate(shape) if k != m]
    return np.moveaxis(matrix.reshape(shape[m], *rest), 0, m)


def multiplied(tensor: Array, matrices: Sequence[Array]) -> Array:
    """Multiply every mode by its matrix."""
    for m, matrix in enumerate(matrices):
        shape = [*tensor.shape]
        shape[m] = len(matrix)
        tensor = folded(product(matrix, unfolded(tensor, m)), m, shape)
    return tensor


def centred_basis(n: int) -> Array:
    """Give an orthonormal basis of the vectors that sum to zero, (n, n - 1), by Helmert."""
    found = np.zeros((n - 1, n))
    for k in range(1, n):
        found[k - 1, :k] = 1.0
        found[k - 1, k] = -float(k)
        found[k - 1] /= math.sqrt(k * (k + 1))
    return found.T


def _leading(matrix: Array, r: int, *, is_centred: bool) -> Array:
    """Give the r leading left singular vectors; where few are left, any that complete them.

    Vectors of models are sought within those that sum to zero, so that they do even where the
    matrix has a lower rank.
    """
    within = centred_basis(len(matrix)) if is_centred else np.eye(len(matrix))
    inner = product(within.T, matrix)
    return product(within, _left_vectors(inner, r))


def _left_vectors(matrix: Array, r: int) -> Array:
    """Give the r leading left singular vectors.

    Large matrices are first cut to a space that holds twice as many: of a tensor of the rank and one
    of its tangent directions, that is all. Others come as near as a few iterations bring them.
    """
    n, m = matrix.shape
    width = min(2 * r + _BESIDE, n, m)
    if max(n, m) <= TILE or width < r:
        left, _, _ = np.linalg.svd(matrix, full_matrices=m < r)
        return left[:, :r]
    largest = np.argsort(-(matrix * matrix).sum(axis=0), kind="stable")[:width]
    space = matrix[:, largest]
    for _ in range(_ITERATIONS):
        space = product(matrix, product(matrix.T, _orthonormal(space)))
    space = _orthonormal(space)
    inner = product(space.T, matrix)
    # Of a wide matrix the left vectors are those of R', with Q R its transpose.
    across = product(inner, _orthonormal(inner.T))
    left, _, _ = np.linalg.svd(across)
    return product(space, left[:, :r])


def _orthonormal(columns: Array) -> Array:
    """Give an orthonormal basis of a space that holds the columns, of their number."""
    return turned(reflections(columns), np.eye(*columns.shape))


def _complement(factor: Array, *, is_centred: bool) -> Array:
    """Give an orthonormal basis of what is orthogonal to the columns, summing to zero if they do."""
    d, r = factor.shape
    spanned = np.column_stack((np.ones(d) / math.sqrt(d), factor)) if is_centred else factor
    return turned(reflections(spanned), np.eye(d)[:, r + is_centred :])


def _kron(matrices: Sequence[Array]) -> Array:
    found: Array = np.ones((1, 1))
    for matrix in matrices:
        found = np.kron(found, matrix).astype(np.float64)
    return found
