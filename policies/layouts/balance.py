"""How even an order is: places, neighbours, and which items can be compared at all."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

NOTHING = -1
"""Stands where a slot has no item, or its rating was lost."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Balance:
    """Where items stood and what they followed.

    Parameters
    ----------
    at_slot : (n_items, n_slots) int64, how often an item stood in a slot
    followed : (n_items, n_items) int64, ``[i, j]``: how often j stood right behind i; the diagonal
        counts an item behind itself
    n_repeated : how often an item came once more in a batch
    """

    at_slot: NDArray[np.int64]
    followed: NDArray[np.int64]
    n_repeated: int

    @property
    def n_self(self) -> int:
        """How often an item stood right behind itself."""
        return int(np.trace(self.followed))

    @property
    def per_slot(self) -> tuple[int, int]:
        """The fewest and the most times that an item stood in a slot."""
        return int(self.at_slot.min()), int(self.at_slot.max())

    @property
    def per_pair(self) -> tuple[int, int]:
        """The fewest and the most times that one item stood right behind another."""
        others = self.followed[~np.eye(len(self.followed), dtype=bool)]
        return (int(others.min()), int(others.max())) if others.size else (0, 0)

    @property
    def is_even(self) -> bool:
        """Whether every item stood in every slot, and behind every other item, equally often."""
        (fewest, most), (rarest, commonest) = self.per_slot, self.per_pair
        return fewest == most and rarest == commonest and self.n_self == self.n_repeated == 0


def verify(rows: NDArray[np.int64], n_items: int | None = None) -> Balance:
    """Count places and neighbours of batches.

    A lost rating leaves its slot empty: it is not counted there, and it parts its neighbours.

    Parameters
    ----------
    rows : (n_batches, n_slots) int64, items in presentation order, `NOTHING` where there is none
    n_items : items in the pool; None: as many as there are slots
    """
    n_batches, n_slots = rows.shape
    n = n_slots if n_items is None else n_items
    seen = rows != NOTHING
    slots = np.broadcast_to(np.arange(n_slots), rows.shape)
    before, behind = rows[:, :-1], rows[:, 1:]
    both = seen[:, :-1] & seen[:, 1:]
    batches = np.broadcast_to(np.arange(n_batches)[:, None], rows.shape)
    times = _counts(batches[seen], rows[seen], (n_batches, n))
    return Balance(
        at_slot=_counts(rows[seen], slots[seen], (n, n_slots)),
        followed=_counts(before[both], behind[both], (n, n)),
        n_repeated=int(np.maximum(times - 1, 0).sum()),
    )


def components(rows: NDArray[np.int64], n_items: int) -> NDArray[np.int64]:
    """Number the groups of items that chains of shared batches connect, (n_items,) int64.

    Items of different components were never rated in one context, however indirectly: what batches
    have in common can't be told from what items have. Numbered from 0 by their first items.
    """
    parent = list(range(n_items))

    def root(item: int) -> int:
        while parent[item] != item:
            parent[item] = item = parent[parent[item]]
        return item

    for row in rows.tolist():
        first, *others = [item for item in row if item != NOTHING] or [0]
        for other in others:
            a, b = sorted((root(first), root(other)))
            parent[b] = a
    # Roots are the least items of their components, so their order is that of the first items.
    roots = [root(item) for item in range(n_items)]
    return np.unique(roots, return_inverse=True)[1].astype(np.int64)


def is_connected(rows: NDArray[np.int64], n_items: int) -> bool:
    """Say whether chains of shared batches connect all items."""
    return not components(rows, n_items).any()


def _counts(
    rows: NDArray[np.int64], columns: NDArray[np.int64], shape: tuple[int, int]
) -> NDArray[np.int64]:
    """Count the pairs of two index arrays."""
    flat = np.bincount(rows * shape[1] + columns, minlength=shape[0] * shape[1])
    return flat.reshape(shape).astype(np.int64)
