"""Batches in random order: of the whole pool, or of parts of it that show all items equally often."""

from __future__ import annotations

from collections.abc import Sequence
from math import lcm

import numpy as np
from numpy.typing import NDArray

from policies.layouts.balance import is_connected


def shuffled(n_batches: int, n_items: int, rng: np.random.Generator) -> NDArray[np.int64]:
    """Draw independent uniform permutations of the pool, (n_batches, n_items) int64."""
    return rng.random((n_batches, n_items)).argsort(axis=1)


def fixed(n_batches: int, n_items: int, size: int) -> NDArray[np.int64]:
    """Show the pool in its own order, batch by batch and over again, (n_batches, size) int64.

    For contrast: what a slot does can't be told from what its item does.

    Raises
    ------
    ValueError
        The size is impossible, as in `subsets`.
    """
    _check(n_items, size)
    return np.arange(n_batches * size).reshape(n_batches, size) % n_items


def round_length(n_items: int, size: int) -> int:
    """Say how many batches a round of `subsets` has."""
    if size == n_items:
        return 1
    # Where batches divide the pool, one deal of it leaves them apart.
    n_deals = 2 if n_items % size == 0 else 1
    return lcm(n_deals * n_items, size) // size


def subsets(
    n_items: int,
    size: int,
    rng: np.random.Generator,
    *,
    groups: NDArray[np.int64] | None = None,
) -> NDArray[np.int64]:
    """Draw a round of batches that shows all items equally often, (n_batches, size) int64.

    A round is the shortest that can do so and connect all items; a whole pool is a round by itself.
    In each batch every group has its share of the seats, rounded up or down, and the order of a
    batch is uniform. Items are dealt from one shuffle of their group after the other, so up to any
    batch those of a group differ by one showing at most.

    Parameters
    ----------
    n_items : in the pool
    size : items of a batch, 2 to `n_items`, or 1 where there is one item
    groups : (n_items,) int64, any labels; None: all items are of one

    Raises
    ------
    ValueError
        The size is impossible, or batches of one can't be compared.
    """
    _check(n_items, size)
    if size == n_items:
        return shuffled(1, n_items, rng)
    labels = np.zeros(n_items, dtype=np.int64) if groups is None else groups
    members = [np.flatnonzero(labels == label) for label in np.unique(labels)]
    n_batches = round_length(n_items, size)
    rows = np.empty((n_batches, size), dtype=np.int64)
    for _ in range(_DEALS):
        seats = _seats([len(group) for group in members], size, n_batches, rng)
        hands = [_dealt(group, n, rng) for group, n in zip(members, seats.T, strict=True)]
        for batch, hand in enumerate(zip(*hands, strict=True)):
            rows[batch] = rng.permutation(np.concatenate(hand))
        if is_connected(rows, n_items):
            break
    return rows


_DEALS = 1000
"""Batches of two in a pool of n hang together once in about √n deals; larger ones almost always."""


def _check(n_items: int, size: int) -> None:
    if not min(2, n_items) <= size <= n_items:
        raise ValueError(f"a batch holds 2 to {n_items} items, not {size}")


def _seats(
    sizes: Sequence[int], size: int, n_batches: int, rng: np.random.Generator
) -> NDArray[np.int64]:
    """Divide the seats of each batch among groups, (n_batches, n_groups).

    Each has its share of a batch rounded down. The seats left over are drawn by lot, by how many of
    them a group is still due in the round, so that all get exactly theirs: a group that is due one
    in every batch that is left has it.
    """
    shares = size * np.asarray(sizes, dtype=np.int64)
    whole, rest = np.divmod(shares, sum(sizes))
    due = rest * n_batches // sum(sizes)
    seats = np.tile(whole, (n_batches, 1))
    for n_left, row in zip(range(n_batches, 0, -1), seats, strict=True):
        # The largest of powers 1/due of uniform numbers: a weighted draw without replacement.
        lots = rng.random(len(due)) ** (1 / np.maximum(due, 1))
        lots[due == 0], lots[due == n_left] = -1, 1
        drawn = np.argsort(-lots)[: size - whole.sum()]
        row[drawn] += 1
        due[drawn] -= 1
    return seats


def _dealt(
    members: NDArray[np.int64], seats: NDArray[np.int64], rng: np.random.Generator
) -> list[NDArray[np.int64]]:
    """Deal a group to batches from shuffles of it, one after the other, none twice in a batch."""
    hands = []
    deck = members[:0]
    for n in seats.tolist():
        hand, deck = deck[:n], deck[n:]
        if len(hand) < n:
            again = np.isin(members, hand)
            fresh = rng.permutation(members[~again])
            lacking = n - len(hand)
            hand = np.concatenate([hand, fresh[:lacking]])
            deck = rng.permutation(np.concatenate([fresh[lacking:], members[again]]))
        hands.append(hand)
    return hands
