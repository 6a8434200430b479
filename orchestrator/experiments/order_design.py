"""A design of batches, and whether it keeps what its layout promises."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from orchestrator.core.errors import ConfigError
from orchestrator.core.seeds import Seeds
from policies.layouts.balance import Balance, is_connected, verify
from policies.layouts.design import REMAINDER, Design, Layout, design
from policies.layouts.shuffle import round_length
from policies.layouts.williams import block_length


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """A design as it is asked for.

    Parameters
    ----------
    batch_size : items of a batch; 0: all
    batches : of each judge; 0: as many whole blocks as `blocks` says
    groups : sizes of groups, which stand in the pool one after the other; none: one group
    """

    layout: Layout = "williams"
    n_items: int = 6
    batch_size: int = 0
    blocks: int = 1
    batches: int = 0
    groups: tuple[int, ...] = ()
    seed: int = 0

    @property
    def size(self) -> int:
        """How many items a batch has."""
        return self.batch_size or self.n_items

    @property
    def block_length(self) -> int:
        """How many batches a block has."""
        match self.layout:
            case "williams":
                return block_length(self.size)
            case "shuffle":
                return round_length(self.n_items, self.size)
            case "fixed":
                return 1

    @property
    def group_of(self) -> NDArray[np.int64]:
        """The group of each item, (n_items,) int64."""
        return np.repeat(np.arange(len(self.groups)), self.groups).astype(np.int64)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Verified:
    """One judge's batches, what was counted, and what is wrong with them.

    Attributes
    ----------
    balance : of all whole blocks
    n_remainder : batches that make no whole block
    seats : (n_groups,) pairs, the fewest and the most seats a group has in a batch
    """

    design: Design
    balance: Balance
    n_remainder: int
    is_connected: bool
    seats: tuple[tuple[int, int], ...]
    problems: tuple[str, ...]


def laid_out(wanted: Wanted, judge: int) -> Design:
    """Lay out a judge's batches, as a campaign of that seed does.

    Raises
    ------
    ConfigError
        The sizes don't fit together.
    """
    if wanted.groups and sum(wanted.groups) != wanted.n_items:
        raise ConfigError(
            f"--groups: {sum(wanted.groups)} items in groups, {wanted.n_items} in all"
        )
    if not min(2, wanted.n_items) <= wanted.size <= wanted.n_items:
        raise ConfigError(f"--batch-size: wants 2 to {wanted.n_items}, not {wanted.size}")
    return design(
        wanted.layout,
        wanted.batches or wanted.blocks * wanted.block_length,
        n_items=wanted.n_items,
        size=wanted.size,
        seeds=Seeds(wanted.seed),
        judge=judge,
        groups=wanted.group_of if wanted.groups else None,
    )


def verified(wanted: Wanted, made: Design) -> Verified:
    """Count slots and neighbours, and hold the batches against what their layout promises.

    Of a Williams block: each of its items in each slot, and behind each other one, equally often.
    Of a shuffled round: all items equally often, since slots are even on average only. A fixed order
    is held against what Williams promises. Of all: no item twice in a batch, groups in each batch by
    their share, and chains of shared batches between all items.
    """
    whole = made.rows[made.block != REMAINDER]
    balance = verify(whole, wanted.n_items)
    connected = is_connected(made.rows, wanted.n_items)
    seats = _seats(made.rows, wanted)
    problems = []
    if verify(made.rows, wanted.n_items).n_repeated:
        problems.append("an item comes twice in a batch")
    if not connected:
        problems.append("no chain of shared batches connects all items")
    if unevenness := _unevenness(wanted, made, balance):
        problems.append(unevenness)
    for k, (share, (fewest, most)) in enumerate(zip(_shares(wanted), seats, strict=True), 1):
        if fewest < np.floor(share) or most > np.ceil(share):
            problems.append(f"group {k} has {fewest} to {most} seats of a batch, not {share:g}")
    return Verified(
        design=made,
        balance=balance,
        n_remainder=int((made.block == REMAINDER).sum()),
        is_connected=connected,
        seats=seats,
        problems=tuple(problems),
    )


def as_json(wanted: Wanted, found: Sequence[Verified]) -> dict[str, object]:
    """Give designs and counts for programs; the block of a remainder is null."""
    return {
        "design": wanted.layout,
        "items": wanted.n_items,
        "batch_size": wanted.size,
        "block_length": wanted.block_length,
        "seed": wanted.seed,
        "balanced": not any(each.problems for each in found),
        "judges": [
            {
                "judge": j,
                "batches": [
                    {"block": None if block == REMAINDER else block, "items": items}
                    for block, items in zip(
                        each.design.block.tolist(), each.design.rows.tolist(), strict=True
                    )
                ],
                "at_slot": each.balance.at_slot.tolist(),
                "followed": each.balance.followed.tolist(),
                "remainder": each.n_remainder,
                "connected": each.is_connected,
                "group_seats": [list(pair) for pair in each.seats],
                "problems": list(each.problems),
            }
            for j, each in enumerate(found)
        ],
    }


def _unevenness(wanted: Wanted, made: Design, balance: Balance) -> str:
    """Say what of its layout's promise whole blocks don't keep; empty: nothing."""
    numbers = sorted({number for number in made.block.tolist() if number != REMAINDER})
    if not numbers:
        return f"there is no whole block of {wanted.block_length} batches"
    match wanted.layout:
        case "fixed":
            return "" if balance.is_even else "slots and neighbours are uneven"
        case "shuffle":
            shown = balance.at_slot.sum(axis=1)
            return "items are not shown equally often" if np.ptp(shown) else ""
        case "williams":
            uneven = [n + 1 for n in numbers if not _is_even(made.rows[made.block == n])]
            which = ", ".join(map(str, uneven))
            return f"slots or neighbours are uneven in blocks {which}" if uneven else ""


def _is_even(block: NDArray[np.int64]) -> bool:
    """Whether a block is even on the items that it has."""
    items, places = np.unique(block, return_inverse=True)
    return len(items) == block.shape[1] and verify(places.reshape(block.shape)).is_even


def _seats(rows: NDArray[np.int64], wanted: Wanted) -> tuple[tuple[int, int], ...]:
    if not wanted.groups:
        return ()
    group = wanted.group_of[rows]
    counts = [(group == k).sum(axis=1) for k in range(len(wanted.groups))]
    return tuple((int(count.min()), int(count.max())) for count in counts)


def _shares(wanted: Wanted) -> list[float]:
    """Seats of a batch that each group is due, whole or not."""
    return [wanted.size * n / wanted.n_items for n in wanted.groups]
