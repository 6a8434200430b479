"""Williams designs: every item in every slot, and behind every other item, equally often."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray


def block_length(n_items: int) -> int:
    """Say how many batches a block has: one an item if their number is even, else two."""
    return n_items if n_items % 2 == 0 else 2 * n_items


def williams_block(n_items: int, rng: np.random.Generator) -> NDArray[np.int64]:
    """Draw one block, (`block_length`, n_items) int64: items in presentation order, a batch a row.

    In a block each item stands in each slot, and each ordered pair of items side by side, once (an
    even number of items) or twice (an odd one). Which item takes which place of the square is drawn
    anew, and so is the order of rows; columns stay, for they carry the balance.

    Parameters
    ----------
    n_items : > 0

    Source: [W49]; for an odd number the square and its mirror image.
    """
    return williams_blocks(1, n_items, rng).reshape(-1, n_items)


def williams_blocks(n_blocks: int, n_items: int, rng: np.random.Generator) -> NDArray[np.int64]:
    """Draw independent blocks as `williams_block`, (n_blocks, `block_length`, n_items) int64."""
    square = _square(n_items)
    items = rng.random((n_blocks, n_items)).argsort(axis=1)
    order = rng.random((n_blocks, len(square))).argsort(axis=1)
    blocks: NDArray[np.int64] = items[np.arange(n_blocks)[:, None, None], square[order]]
    return blocks


def _square(n: int) -> NDArray[np.int64]:
    """Write the square: row r is 0, 1, n-1, 2, n-2, … plus r, modulo n.

    The differences of neighbours are then all different, modulo n: 1, -2, 3, …. An odd number of
    items repeats half of them, and the mirror image has the other half.
    """
    if n < 1:
        raise ValueError(f"a block needs an item; there are {n}")
    up = np.arange(1, n + 1) // 2
    base = np.where(np.arange(n) % 2 == 1, up, -up)
    square = (base + np.arange(n)[:, None]) % n
    return square if n % 2 == 0 else np.concatenate([square, square[:, ::-1]])
