"""Batches of units rated one after another, in an order that is designed before the first call."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from typing import Annotated, Literal

import numpy as np
from pydantic import BaseModel, BeforeValidator, ConfigDict, Field

from orchestrator.core.batches import most_batches
from orchestrator.core.budget import BudgetView
from orchestrator.core.events import (
    Asked,
    CapChanged,
    Declined,
    JudgeDown,
    JudgeUp,
    Parked,
    PriceChanged,
)
from orchestrator.core.frame import Frame
from orchestrator.core.ids import JudgeIx, QNo, UnitIx
from orchestrator.core.ports import FINISH, PAUSE, Plugin, PolicyEvent, Turn
from orchestrator.core.query import Kind, Query
from orchestrator.core.records import Record
from orchestrator.core.study import Study
from orchestrator.core.wire import Json
from policies.layouts.design import REMAINDER, Design, design
from policies.layouts.shuffle import round_length
from policies.layouts.williams import block_length


def _count_or_auto(value: object) -> object:
    if value == "auto" or (type(value) is int and value > 0):
        return value
    raise ValueError(f"wants a whole number above 0 or auto, not {value!r}")


class BatchDesignConfig(BaseModel):
    """The keys of `policy: {kind: batch_design}`.

    Parameters
    ----------
    design : `shuffle` (each batch in an order of its own), `williams` (blocks in which every unit
        stands in every slot, and behind every other, equally often), or `fixed` (file order; for
        contrast, since it can't tell a slot from a unit)
    batch_size : units of a batch; None: all
    blocks : of each judge; `auto` is what the cap pays for
    balance : `group` gives each group, or else each arm, its share of every batch
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    kind: Literal["batch_design"] = "batch_design"
    design: Literal["shuffle", "williams", "fixed"]
    batch_size: Annotated[int, Field(ge=2)] | None = None
    blocks: Annotated[int | Literal["auto"], BeforeValidator(_count_or_auto)] = "auto"
    balance: Literal["group", "none"] = "none"


def length_of_block(config: BatchDesignConfig, study: Study) -> int:
    """Say how many batches a block of a campaign's design has."""
    frame = study.frame
    size = config.batch_size or frame.n_units
    match config.design:
        case "williams":
            return block_length(size)
        case "fixed":
            return 1
        case "shuffle":
            return round_length(frame.n_units, size)


def groups_of(frame: Frame) -> np.ndarray:
    """Give the group of each unit, (n_units,) int64: its item's, or without groups its arm."""
    units = np.arange(frame.n_units)
    return frame.group[units // frame.n_arms] if frame.groups else units % frame.n_arms


@dataclass(slots=True)
class _Seat:
    """One judge's batches: which are to be asked, from which place on, and what comes back."""

    judge: JudgeIx
    account: str
    plan: Design
    at: int = 0
    returned: deque[Query] = field(default_factory=deque)
    n_again: int = 0
    is_down: bool = False
    is_gone: bool = False
    is_declined: bool = False

    @property
    def has_work(self) -> bool:
        """Whether a batch is left that it can be asked, now or when it is up again."""
        is_out = self.is_gone or self.is_declined
        return not is_out and (bool(self.returned) or self.at < len(self.plan.rows))


class BatchDesign:
    """Asks each judge for its batches, in designed orders, all judges abreast.

    A batch that brought no verdict at all is asked once more, in the same order and as a new batch,
    since its slots and neighbours are part of the design.

    Raises
    ------
    ValueError
        The study is not one of batches; the batch is larger than the pool; the cap pays for no
        block.
    """

    def __init__(self, config: BatchDesignConfig, study: Study) -> None:
        if study.kind is not Kind.RATE_BATCH:
            raise ValueError(f"policy.kind: batch_design asks rate_batch, not {study.kind}")
        frame = study.frame
        size = config.batch_size or frame.n_units
        self._config, self._study = config, study
        self._block = length_of_block(config, study)
        self._n_batches = most_batches(study, config.blocks, self._block)
        groups = groups_of(frame) if config.balance == "group" else None
        self._seats = [
            _Seat(
                JudgeIx(j),
                f"judge:{panelist.name}",
                design(
                    config.design,
                    self._n_batches,
                    n_items=frame.n_units,
                    size=size,
                    seeds=study.seeds,
                    judge=j,
                    groups=groups,
                ),
            )
            for j, panelist in enumerate(study.panel)
        ]
        self._open: dict[QNo, Query] = {}
        self._is_broke = False

    def ask(self, view: BudgetView) -> Query | Turn:  # noqa: ARG002 - money is the engine's business
        """Propose the next batch of the judge that is furthest behind."""
        if self._is_broke:
            return FINISH
        wanted = [seat for seat in self._seats if seat.has_work]
        if up := [seat for seat in wanted if not seat.is_down]:
            return self._next(min(up, key=lambda seat: (seat.at, seat.judge)))
        return PAUSE if wanted or self._open else FINISH

    def tell(self, event: PolicyEvent) -> None:
        """Follow what was asked, what came back, and who can be asked."""
        match event:
            case Asked(q=q, query=query):
                self._open[q] = query
                seat = self._seats[query.judge]
                if seat.returned and query == seat.returned[0]:
                    seat.returned.popleft()
                else:
                    seat.at += 1
            case Record(q=q, query=query):
                del self._open[q]
                if event.is_missing and query.replicate < self._n_batches:
                    self._ask_again(query)
            case Parked(q=q):
                query = self._open.pop(q)
                self._seats[query.judge].returned.append(query)
            case Declined(query=query, account=account):
                seat = self._seats[query.judge]
                if account == seat.account:
                    seat.is_declined = True
                else:
                    self._is_broke = True
            case CapChanged() | PriceChanged():
                self._is_broke = False
                for seat in self._seats:
                    seat.is_declined = False
            case JudgeDown(judge=judge, until=until):
                self._seats[judge].is_down = True
                self._seats[judge].is_gone = until is None
            case JudgeUp(judge=judge):
                self._seats[judge].is_down = self._seats[judge].is_gone = False

    def explain(self) -> dict[str, Json]:
        """Say how many batches each judge is asked for, and how many it was."""
        config, names = self._config, [p.name for p in self._study.panel]
        n_rest = int((self._seats[0].plan.block == REMAINDER).sum()) if self._seats else 0
        rest = f", and {n_rest} in random order that make no whole block" if n_rest else ""
        return {
            "design": config.design,
            "batch_size": config.batch_size or self._study.frame.n_units,
            "batches": self._n_batches,
            "block_length": self._block,
            "remainder": n_rest,
            "asked": {n: s.at for n, s in zip(names, self._seats, strict=True)},
            "asked_again": {n: s.n_again for n, s in zip(names, self._seats, strict=True)},
            "says": [
                f"each judge is asked for {self._n_batches:,} batches, in blocks of {self._block}{rest}"
            ],
        }

    def _next(self, seat: _Seat) -> Query:
        if seat.returned:
            return seat.returned[0]
        row, block = seat.plan.rows[seat.at].tolist(), int(seat.plan.block[seat.at])
        return Query(
            kind=Kind.RATE_BATCH,
            judge=seat.judge,
            units=tuple(map(UnitIx, row)),
            replicate=seat.at,
            note="remainder" if block == REMAINDER else f"block {block}",
        )

    def _ask_again(self, query: Query) -> None:
        """Line up a batch that was lost, as a new one in the same order."""
        seat = self._seats[query.judge]
        again = self._n_batches + seat.n_again
        seat.n_again += 1
        seat.returned.append(
            Query(
                kind=query.kind,
                judge=query.judge,
                units=query.units,
                replicate=again,
                note=query.note,
            )
        )


PLUGIN = Plugin(config=BatchDesignConfig, build=BatchDesign)
