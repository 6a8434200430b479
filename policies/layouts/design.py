"""All batches that a judge is to be asked: blocks of a layout, and what the budget leaves over."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import count
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from orchestrator.core.seeds import Seeds, Stream
from policies.layouts.shuffle import fixed, subsets
from policies.layouts.williams import williams_blocks

Layout = Literal["shuffle", "williams", "fixed"]

REMAINDER = -1
"""The block of a batch that belongs to none."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Design:
    """Batches in the order in which they are asked.

    Parameters
    ----------
    rows : (n_batches, size) int64, items in presentation order
    block : (n_batches,) int64, the number of a batch's block, or `REMAINDER`: only whole blocks are
        balanced, and they are what can be drawn anew or stopped after
    """

    rows: NDArray[np.int64]
    block: NDArray[np.int64]


def design(
    layout: Layout,
    n_batches: int,
    *,
    n_items: int,
    size: int,
    seeds: Seeds,
    judge: int,
    groups: NDArray[np.int64] | None = None,
) -> Design:
    """Lay out so many batches for a judge.

    A block of `shuffle` is one batch of the whole pool, or a round of `subsets`; one of `williams`
    is a Williams block on the items of one subset, with rounds of subsets as long as they last; in
    `fixed` each batch is its own. Batches that make no whole block are a remainder in random order.

    Parameters
    ----------
    n_items, size, groups : of the pool and of a batch, as in `subsets`; `fixed` knows no groups
    judge : each has a layout of its own

    Draws round r of blocks from ``stream(LAYOUT, judge, r)``, that of a remainder from
    ``stream(LAYOUT, judge, -1 - r)``. More batches only add blocks.
    """
    if layout == "fixed":
        return Design(rows=fixed(n_batches, n_items, size), block=np.arange(n_batches))
    parts, block, n_left = [], [], n_batches
    for number, rows in enumerate(_blocks(layout, n_items, size, seeds, judge, groups)):
        if len(rows) > n_left:
            break
        parts.append(rows)
        block += [number] * len(rows)
        n_left -= len(rows)
        if n_left == 0:
            break
    for number in count():
        if n_left == 0:
            break
        rng = seeds.stream(Stream.LAYOUT, judge, -1 - number)
        rows = subsets(n_items, size, rng, groups=groups)[:n_left]
        parts.append(rows)
        block += [REMAINDER] * len(rows)
        n_left -= len(rows)
    empty = np.empty((0, size), dtype=np.int64)
    return Design(rows=np.concatenate([empty, *parts]), block=np.asarray(block, dtype=np.int64))


def _blocks(
    layout: Layout,
    n_items: int,
    size: int,
    seeds: Seeds,
    judge: int,
    groups: NDArray[np.int64] | None,
) -> Iterator[NDArray[np.int64]]:
    for number in count():
        rng = seeds.stream(Stream.LAYOUT, judge, number)
        round_ = subsets(n_items, size, rng, groups=groups)
        if layout == "williams":
            places = williams_blocks(len(round_), size, rng)
            yield from (items[rows] for items, rows in zip(round_, places, strict=True))
        else:
            yield round_
