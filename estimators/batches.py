"""Ratings that a judge gave one after another, in batches: as they came, and laid out for a fit.

A batch is one call; its slots are the items in the order in which they were shown. What a judge said
in a slot is a state: reject, accept, refused (the judge's context holds no rating), unreadable (it
rated, we can't tell how). The lags of a batch never reach into another one.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Hashable, Iterable
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from estimators.intervals import Array

REFUSED = 2
"""State of a slot in which the judge gave no rating: a third state of the judge's memory."""

UNREADABLE = 3
"""State of a slot in which the judge rated and nobody can tell how: what follows has no known lag."""

ABSENT = -1
"""State and item of places behind the end of a short batch."""

_STATES: dict[object, int] = {0: 0, 1: 1, None: REFUSED}
_STARTS = ("first", "second", "third", "fourth", "fifth")

MAX_LAGS = len(_STARTS)
"""Deepest memory that can be fitted."""

ENOUGH_FOLLOWERS = 5
"""Ratings right after a refused slot from which on, both outcomes given, the refusal's effect is
fitted; below, these ratings are left out, which leaves the others' likelihood as it is."""

Rating = tuple[Hashable, int, Hashable, float | None]
"""batch, slot, item, y: 1 accept, 0 reject, None refused, nan rated but unreadable."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Sequences:
    """Batches as they came: which item stood in which slot, and what was said.

    Attributes
    ----------
    items, batches : what the callers call them, ascending
    order : (n, s) int64, places in `items`, `ABSENT` behind a batch's end
    state : (n, s) int8: 0 reject, 1 accept, `REFUSED`, `UNREADABLE`, `ABSENT`
    """

    items: tuple[Hashable, ...]
    batches: tuple[Hashable, ...]
    order: NDArray[np.int64]
    state: NDArray[np.int8]

    def __len__(self) -> int:
        return len(self.order)

    @property
    def is_rated(self) -> NDArray[np.bool_]:
        """Where there is a rating, (n, s)."""
        rated: NDArray[np.bool_] = (self.state == 0) | (self.state == 1)
        return rated

    def take(self, rows: NDArray[np.int64]) -> Sequences:
        """Keep these batches, in this order; all items stay."""
        return Sequences(
            items=self.items,
            batches=tuple(self.batches[i] for i in rows),
            order=self.order[rows],
            state=self.state[rows],
        )

    def joined(self, more: Sequences) -> Sequences:
        """Put other batches behind these.

        Raises
        ------
        ValueError
            A batch is in both.
        """
        if both := set(self.batches) & set(more.batches):
            raise ValueError(f"batch {min(both, key=str)!r} is given twice")
        items = _ascending((*self.items, *more.items), "items")
        width = max(self.order.shape[1], more.order.shape[1])
        parts = []
        for one in (self, more):
            place = {item: i for i, item in enumerate(items)}
            moved = np.array([*(place[item] for item in one.items), ABSENT])
            pad = ((0, 0), (0, width - one.order.shape[1]))
            parts.append(
                (
                    np.pad(moved[one.order], pad, constant_values=ABSENT),
                    np.pad(one.state, pad, constant_values=ABSENT),
                )
            )
        return Sequences(
            items=items,
            batches=(*self.batches, *more.batches),
            order=np.concatenate([order for order, _ in parts]),
            state=np.concatenate([state for _, state in parts]),
        )


def sequences(ratings: Iterable[Rating]) -> Sequences:
    """Sort ratings into batches by slot; the order in which they are given does not matter.

    Within a batch only the order of the slots counts, not their numbers. A slot that was shown and
    brought no rating must be given (y None or nan), since the judge remembers it.

    Parameters
    ----------
    ratings : (batch, slot, item, y) with y 1, 0, None (refused) or nan (rated, unreadable)

    Raises
    ------
    ValueError
        Another y, a slot that is no integer, a slot or an item twice in one batch, or names that
        can't be put in order.
    """
    rows = list(ratings)
    for row in rows:
        if len(row) != 4:
            raise ValueError(f"a rating is (batch, slot, item, y), not {row!r}")
    if not rows:
        nothing = np.zeros((0, 0), dtype=np.int64)
        return Sequences(items=(), batches=(), order=nothing, state=nothing.astype(np.int8))
    in_batch, in_slot, of_item, said = zip(*rows, strict=True)
    batches, items = _ascending(in_batch, "batches"), _ascending(of_item, "items")
    n, size = len(batches), len(items)
    row_of = {key: i for i, key in enumerate(batches)}
    place_of = {key: i for i, key in enumerate(items)}
    batch = np.array([row_of[key] for key in in_batch])
    item = np.array([place_of[key] for key in of_item])
    state = np.array([_state(y) for y in said], dtype=np.int8)
    try:
        slot = np.array([operator.index(s) for s in in_slot])
    except TypeError as exc:
        raise ValueError(f"slots are integers: {exc}") from exc

    by_slot = np.lexsort((slot, batch))
    batch, slot, item, state = batch[by_slot], slot[by_slot], item[by_slot], state[by_slot]
    is_repeated = (np.diff(batch) == 0) & (np.diff(slot) == 0)
    if is_repeated.any():
        at = int(np.flatnonzero(is_repeated)[0])
        raise ValueError(f"batch {batches[batch[at]]!r} has slot {slot[at]} twice")
    times = np.bincount(batch * size + item, minlength=n * size)
    if times.max() > 1:
        b, i = divmod(int(times.argmax()), size)
        raise ValueError(f"batch {batches[b]!r} has item {items[i]!r} twice; once is allowed")
    length = np.bincount(batch, minlength=n)
    rank = np.arange(len(batch)) - (np.cumsum(length) - length)[batch]
    order = np.full((n, int(length.max())), ABSENT, dtype=np.int64)
    states = np.full(order.shape, ABSENT, dtype=np.int8)
    order[batch, rank], states[batch, rank] = item, state
    return Sequences(items=items, batches=batches, order=order, state=states)


def _ascending(names: Iterable[Hashable], what: str) -> tuple[Hashable, ...]:
    try:
        return tuple(sorted(set(names)))  # type: ignore[type-var]  # the error below says so
    except TypeError as exc:
        raise ValueError(f"{what} must be named by values of one kind: {exc}") from exc


def _state(y: float | None) -> int:
    if isinstance(y, Hashable) and y in _STATES:
        return _STATES[y]
    if isinstance(y, float) and math.isnan(y):
        return UNREADABLE
    raise ValueError(f"y is {y!r}; it must be 1, 0, None (refused) or nan (unreadable)")


class Balance(NamedTuple):
    """How often what was shown where; refused and unreadable slots were shown too.

    Attributes
    ----------
    slots : (v, s) times item i stood in slot s
    pairs : (v, v) times item j came right after item i
    asked, unrated : (s,) batches that reached the slot, and those without a rating there
    """

    slots: NDArray[np.int64]
    pairs: NDArray[np.int64]
    asked: NDArray[np.int64]
    unrated: NDArray[np.int64]


def balance(of: Sequences) -> Balance:
    """Count slots and neighbours, to see how even a design came out."""
    v, width = len(of.items), of.order.shape[1]
    is_shown = of.order != ABSENT
    place = of.order * width + np.arange(width)
    slots = np.bincount(place[is_shown], minlength=v * width).reshape(v, width)
    is_pair = is_shown[:, 1:]
    pair = of.order[:, :-1] * v + of.order[:, 1:]
    pairs = np.bincount(pair[is_pair], minlength=v * v).reshape(v, v)
    return Balance(slots, pairs, is_shown.sum(axis=0), (is_shown & ~of.is_rated).sum(axis=0))


class Counts(NamedTuple):
    """What became of the slots: rated, refused, unreadable; followers of those left out."""

    rated: int
    refused: int
    unreadable: int
    dropped: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Layout:
    """Ratings by batch and item, with their covariates.

    Attributes
    ----------
    y : (n, v) float64, 0 where nothing enters
    shown : (n, v) bool, where a rating enters
    x : (n, v, q) float64 covariates: lags, starts, refusals; 0 where nothing enters
    names : (q,) of the covariates
    rows : (n,) which batch each row is; batches without a rating have none
    """

    y: Array
    shown: NDArray[np.bool_]
    x: Array
    names: tuple[str, ...]
    rows: NDArray[np.int64]
    counts: Counts

    def __len__(self) -> int:
        return len(self.y)

    @property
    def n_items(self) -> int:
        """How many items, rated or not."""
        return int(self.y.shape[1])

    def take(self, at: NDArray[np.int64]) -> Layout:
        """Keep these rows; `counts` stay those of all."""
        return replace(self, y=self.y[at], shown=self.shown[at], x=self.x[at], rows=self.rows[at])

    @property
    def unanimous(self) -> NDArray[np.int8]:
        """1 for items all of whose ratings accept, -1 all reject, else 0; (v,)."""
        n, accepted = self.shown.sum(axis=0), self.y.sum(axis=0)
        return np.where(n == 0, 0, np.where(accepted == n, 1, np.where(accepted == 0, -1, 0)))

    def components(self) -> NDArray[np.int64]:
        """Number the parts of the items that no common batch connects, (v,).

        Two items in one part are joined by a chain of batches. An item without ratings is a part.
        """
        if self.shown.all(axis=1).any():
            return np.zeros(self.n_items, dtype=np.int64)
        part = np.arange(self.n_items)
        for row in np.unique(self.shown, axis=0):
            met = np.unique(part[row])
            part[np.isin(part, met[1:])] = met[0]
        return np.unique(part, return_inverse=True)[1].astype(np.int64)


def laid_out(of: Sequences, lags: int, names: tuple[str, ...] | None = None) -> Layout:
    """Lay batches out by item, each rating with what the judge had said before it.

    Covariates: `lag1` … `lagk`, whether the judge accepted k slots before; a start indicator for
    each of the first k slots, where a lag is undefined (so that 0/1 and centred lags are the same
    model); `miss1` … `missk`, whether the slot k before was refused, where there are
    `ENOUGH_FOLLOWERS` with both outcomes. Otherwise these ratings are left out, and so are those
    that follow an unreadable one: to leave out a conditional factor does no harm, a wrong lag does.

    Parameters
    ----------
    lags : depth of the memory, 0 to `MAX_LAGS`; 0 has no covariates at all
    names : covariates that another layout has, which decides on `miss1` … then; None: these data do
    """
    n, width = of.order.shape
    slots = np.arange(width)
    is_kept = of.is_rated
    n_rated = int(is_kept.sum())
    before = [_shifted(of.state, k) for k in range(1, lags + 1)]
    for state in before:
        is_kept &= state != UNREADABLE
    columns = {f"lag{k}": state == 1 for k, state in enumerate(before, 1)}
    for k in range(lags):
        columns[_STARTS[k]] = np.broadcast_to(slots == k, (n, width))
    for k, state in enumerate(before, 1):
        follows = state == REFUSED
        said = of.state[is_kept & follows]
        is_fitted = len(said) >= ENOUGH_FOLLOWERS and 0 < said.sum() < len(said)
        if is_fitted if names is None else f"miss{k}" in names:
            columns[f"miss{k}"] = follows
        else:
            is_kept &= ~follows

    rows = np.flatnonzero(is_kept.any(axis=1))
    batch, slot = np.nonzero(is_kept[rows])
    item = of.order[rows][batch, slot]
    size = (len(rows), len(of.items))
    y, shown, x = np.zeros(size), np.zeros(size, dtype=bool), np.zeros((*size, len(columns)))
    y[batch, item] = of.state[rows][batch, slot]
    shown[batch, item] = True
    for j, column in enumerate(columns.values()):
        x[batch, item, j] = column[rows][batch, slot]
    return Layout(
        y=y,
        shown=shown,
        x=x,
        names=tuple(columns),
        rows=rows,
        counts=Counts(
            rated=n_rated,
            refused=int((of.state == REFUSED).sum()),
            unreadable=int((of.state == UNREADABLE).sum()),
            dropped=n_rated - int(shown.sum()),
        ),
    )


def _shifted(state: NDArray[np.int8], by: int) -> NDArray[np.int8]:
    """What was said `by` slots before; `ABSENT` where the batch had not begun."""
    moved = np.full_like(state, ABSENT)
    moved[:, by:] = state[:, : max(0, state.shape[1] - by)]
    return moved
