"""Products, inverses and bases whose last bit does not depend on how many threads the BLAS has.

A library that splits a product among threads rounds differently, and a campaign that is replayed on
a machine with another setting would then draw other pairs. Tiles of `TILE` rows and columns are below
every size from which OpenBLAS splits, and sums over tiles have a fixed order.
"""

from __future__ import annotations

from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]

TILE = 64

_MOST_STEPS = 60
_CLOSE = 1e-4
"""Steps to an inverse root at most, and the largest relative change that is the last: as steps square
the error, it is then right to about eight digits."""


def product(left: Array, right: Array) -> Array:
    """Multiply matrices, (m, k) by (k, n), tile by tile."""
    (m, k), n = left.shape, right.shape[1]
    if max(m, k, n) <= TILE:
        return left @ right
    made = np.empty((m, n))
    for i in _tiles(m):
        for j in _tiles(n):
            total = np.zeros((i.stop - i.start, j.stop - j.start))
            for c in _tiles(k):
                total += left[i, c] @ right[c, j]
            made[i, j] = total
    return made


def apply(matrix: Array, vector: Array) -> Array:
    """Multiply a matrix by a vector."""
    applied: Array = (matrix * vector).sum(axis=1)
    return applied


def inverse(matrix: Array) -> Array:
    """Invert a symmetric positive definite matrix, exactly symmetric.

    By halves: with matrix = [[A, B], [B', D]] and S = D - B' A⁻¹ B.
    """
    n = len(matrix)
    if n <= TILE:
        inverted = np.linalg.inv(matrix)
        return (inverted + inverted.T) / 2
    h = n // 2
    beside = matrix[:h, h:]
    corner = inverse(matrix[:h, :h])
    across = product(corner, beside)
    rest = inverse(matrix[h:, h:] - product(beside.T, across))
    link = product(across, rest)
    made = np.empty((n, n))
    made[:h, :h] = corner + product(link, across.T)
    made[:h, h:] = -link
    made[h:, :h] = -link.T
    made[h:, h:] = rest
    return (made + made.T) / 2


def whitener(matrix: Array) -> Array:
    """Give the lower triangular W with W · matrix · W' = 1, of a symmetric matrix.

    Raises
    ------
    LinAlgError
        The matrix is not positive definite.
    """
    n = len(matrix)
    if n <= TILE:
        return np.linalg.inv(np.linalg.cholesky(matrix))
    h = n // 2
    made = np.zeros((n, n))
    made[:h, :h] = whitener(matrix[:h, :h])
    beside = product(matrix[h:, :h], made[:h, :h].T)
    made[h:, h:] = whitener(matrix[h:, h:] - product(beside, beside.T))
    made[h:, :h] = -product(made[h:, h:], product(beside, made[:h, :h]))
    return made


def solved(matrix: Array, vector: Array) -> Array:
    """Solve a symmetric positive definite system."""
    if len(matrix) <= TILE:
        return np.linalg.solve(matrix, vector).astype(np.float64)
    return apply(inverse(matrix), vector)


def inverse_root(matrix: Array) -> Array:
    """Give about matrix^(-1/2) of a symmetric positive definite one: Newton's method with both roots.

    Source: [DB76].
    """
    root, inverted = matrix, np.eye(len(matrix))
    for _ in range(_MOST_STEPS):
        last = inverted
        root, inverted = (root + inverse(inverted)) / 2, (inverted + inverse(root)) / 2
        if np.abs(inverted - last).max() <= _CLOSE * np.abs(inverted).max():
            break
    return inverted


def reflections(columns: Array) -> Array:
    """Give Householder's vectors, (m, n), whose reflections in turn make the columns triangular."""
    rest = columns.copy()
    made = np.zeros_like(rest)
    for j in range(rest.shape[1]):
        v = rest[j:, j].copy()
        v[0] += np.copysign(np.sqrt((v * v).sum()), v[0])
        size = np.sqrt((v * v).sum())
        if size:
            made[j:, j] = v / size
            rest[j:, j:] = _reflected(rest[j:, j:], made[j:, j])
    return made


def turned(vectors: Array, matrix: Array) -> Array:
    """Multiply by the orthogonal matrix Q of `reflections`: its columns beyond n complete the first n."""
    for v in vectors.T[::-1]:
        matrix = _reflected(matrix, v)
    return matrix


def _reflected(matrix: Array, v: Array) -> Array:
    found: Array = matrix - 2 * v[:, None] * (v[:, None] * matrix).sum(axis=0)
    return found


def _tiles(n: int) -> list[slice]:
    """Cut n places into the fewest runs of at most `TILE`, of sizes that differ by one at most."""
    n_tiles = -(-n // TILE)
    ends = [n * i // n_tiles for i in range(n_tiles + 1)]
    return [slice(*span) for span in pairwise(ends)]
