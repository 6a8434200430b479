"""Batches of units rated one after another, in an order that is designed before the first call."""

from __future__ import annotations

import math
from dataclasses import replace
from functools import partial
from typing import Annotated, Literal

import numpy as np
from pydantic import BaseModel, BeforeValidator, ConfigDict, Field

from orchestrator.core.batches import most_batches
from orchestrator.core.budget import BudgetView
from orchestrator.core.frame import Frame
from orchestrator.core.ids import JudgeIx, UnitIx
from orchestrator.core.ports import Plugin, PolicyEvent, Turn
from orchestrator.core.query import Kind, Query
from orchestrator.core.records import Record
from orchestrator.core.study import Study
from orchestrator.core.wire import Json
from policies.abreast import Abreast, Seat
from policies.layouts.design import REMAINDER, design
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
    blocks : of each judge; `auto` is what the cap pays for that the run was opened with, or with
        ``check: anytime`` whole blocks until the money ends, whatever the cap is by then
    balance : `group` gives each group, or else each arm, its share of every batch
    check : when intervals hold; None follows the stop rule
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    kind: Literal["batch_design"] = "batch_design"
    design: Literal["shuffle", "williams", "fixed"]
    batch_size: Annotated[int, Field(ge=2)] | None = None
    blocks: Annotated[int | Literal["auto"], BeforeValidator(_count_or_auto)] = "auto"
    balance: Literal["group", "none"] = "none"
    check: Literal["end", "anytime", "group_sequential"] | None = None


def length_of_block(config: BatchDesignConfig, frame: Frame) -> int:
    """Say how many batches a block of a campaign's design has."""
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
        self._block = length_of_block(config, frame)
        self._n_batches = most_batches(study, config.blocks, self._block)
        groups = groups_of(frame) if config.balance == "group" else None
        self._lay_out = partial(
            design,
            config.design,
            n_items=frame.n_units,
            size=size,
            seeds=study.seeds,
            groups=groups,
        )
        # Intervals that hold at any time hold after any number of batches, so no end is planned.
        self._is_open = config.blocks == "auto" and config.check == "anytime"
        self._end = math.inf if self._is_open else self._n_batches
        self._plans = [
            self._lay_out(n_batches=self._block, judge=j) for j in range(len(study.panel))
        ]
        self._panel = Abreast(
            [
                Seat(JudgeIx(j), account=f"judge:{panelist.name}", end=self._end)
                for j, panelist in enumerate(study.panel)
            ]
        )
        self._n_again = [0] * len(study.panel)

    def ask(self, view: BudgetView) -> Query | Turn:  # noqa: ARG002 - money is the engine's business
        """Propose the next batch of the judge that is furthest behind."""
        turn = self._panel.turn()
        return self._next(turn) if isinstance(turn, Seat) else turn

    def tell(self, event: PolicyEvent) -> None:
        """Follow what was asked, what came back, and who can be asked."""
        moved = self._panel.follow(event)
        if moved is not None:
            self._lay_out_more(moved)
        if isinstance(event, Record) and event.is_missing:
            self._ask_again(event.query)

    def explain(self) -> dict[str, Json]:
        """Say how many batches each judge is asked for, and how many it was."""
        config, names = self._config, [p.name for p in self._study.panel]
        n_rest = 0 if self._is_open else self._n_batches % self._block
        rest = f", and {n_rest} in random order that make no whole block" if n_rest else ""
        most = "until the money ends" if self._is_open else f"for {self._n_batches:,} batches"
        return {
            "design": config.design,
            "batch_size": config.batch_size or self._study.frame.n_units,
            "batches": None if self._is_open else self._n_batches,
            "block_length": self._block,
            "remainder": n_rest,
            "asked": {n: s.at for n, s in zip(names, self._panel.seats, strict=True)},
            "to_come": {
                n: self._end - s.at + len(s.returned)
                for n, s in zip(names, self._panel.seats, strict=True)
                if not self._is_open
            },
            "asked_again": dict(zip(names, self._n_again, strict=True)),
            "says": [f"each judge is asked {most}, in blocks of {self._block}{rest}"],
        }

    def _next(self, seat: Seat) -> Query:
        if seat.returned:
            return seat.returned[0]
        plan = self._plans[seat.judge]
        block = int(plan.block[seat.at])
        return Query(
            kind=Kind.RATE_BATCH,
            judge=seat.judge,
            units=tuple(map(UnitIx, plan.rows[seat.at].tolist())),
            replicate=seat.at,
            note="remainder" if block == REMAINDER else f"block {block}",
        )

    def _lay_out_more(self, seat: Seat) -> None:
        """Double the batches of a judge that is through with those laid out; the first stay."""
        n_batches = len(self._plans[seat.judge].rows)
        if seat.at == n_batches < self._end:
            n_batches = int(min(2 * n_batches, self._end))
            self._plans[seat.judge] = self._lay_out(n_batches=n_batches, judge=seat.judge)

    def _ask_again(self, lost: Query) -> None:
        """Line up a batch that was lost, as a new one in the same order; once.

        Its number is none of the design's: the first behind its end, or without one below 0.
        """
        if 0 <= lost.replicate < self._end:
            n = self._n_again[lost.judge]
            again = replace(lost, replicate=-1 - n if self._is_open else self._n_batches + n)
            self._n_again[lost.judge] += 1
            self._panel.seats[lost.judge].returned.append(again)


PLUGIN = Plugin(config=BatchDesignConfig, build=BatchDesign)
