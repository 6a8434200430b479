"""Products and inverses whose last bit does not depend on how many threads the BLAS has.

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


def _tiles(n: int) -> list[slice]:
    """Cut n places into the fewest runs of at most `TILE`, of sizes that differ by one at most."""
    n_tiles = -(-n // TILE)
    ends = [n * i // n_tiles for i in range(n_tiles + 1)]
    return [slice(*span) for span in pairwise(ends)]
