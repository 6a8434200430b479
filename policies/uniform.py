"""Every item, every arm, every judge alike, until the money, the target or the repeats end."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from typing import Literal

from pydantic import BaseModel, ConfigDict, PositiveInt

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
from orchestrator.core.ids import JudgeIx, QNo, UnitIx
from orchestrator.core.ports import FINISH, PAUSE, Plugin, PolicyEvent, Turn
from orchestrator.core.query import Kind, Query
from orchestrator.core.records import Record
from orchestrator.core.study import Study
from orchestrator.core.wire import Json
from policies.order import Strata, unit_order


class UniformConfig(BaseModel):
    """Settings of `uniform`.

    `max_repeats` bounds how often a judge is asked about the same unit; None: no bound but the
    judge's own. `strata: proportional` interleaves the strata so that every prefix of the order
    holds them in their proportions; `ignore` draws items alone.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    kind: Literal["uniform"]
    max_repeats: PositiveInt | None = None
    strata: Strata = "proportional"


@dataclass(slots=True)
class _Seat:
    """Where one judge stands in the common sequence, and whether it can be asked."""

    judge: JudgeIx
    account: str
    end: float
    at: int = 0
    returned: deque[Query] = field(default_factory=deque)
    is_down: bool = False
    is_gone: bool = False
    is_declined: bool = False

    @property
    def has_work(self) -> bool:
        """Whether it is wanted for more, now or later."""
        return (
            not self.is_gone and not self.is_declined and bool(self.returned or self.at < self.end)
        )

    @property
    def rank(self) -> tuple[bool, int, int]:
        """Who comes first: what came back, then the smallest position, then the first judge."""
        return (not self.returned, self.at, self.judge)


class Uniform:
    """Walks all judges along one common sequence of units.

    The sequence runs in rounds, one repeat each: items in a fresh seeded order, the arms of an
    item together in a seeded order. The judge furthest behind is asked next, so a judge that was
    down catches up. A question that came back is asked again before anything new. What is missing
    stays missing. Given the seed every choice is certain, so the propensity is 1.

    A question that the campaign's money can't hold ends the design until cap or prices change,
    though a cheaper judge might still be paid: going on with it alone would no longer be uniform.
    One that its judge's own account can't hold leaves out that judge.

    Draws from `stream(POLICY, round)`.

    Raises
    ------
    ValueError
        The study asks for something else than one unit a question.
    """

    def __init__(self, config: UniformConfig, study: Study) -> None:
        if study.kind not in {Kind.RATE, Kind.CHECK}:
            raise ValueError(f"uniform asks about one unit at a time; the task is {study.kind}")
        self._config = config
        self._study = study
        n_units = study.frame.n_units
        bounds = [
            min((b for b in (p.repeats, config.max_repeats) if b is not None), default=float("inf"))
            for p in study.panel
        ]
        self._seats = [
            _Seat(JudgeIx(j), account=f"judge:{p.name}", end=bound * n_units)
            for j, (p, bound) in enumerate(zip(study.panel, bounds, strict=True))
        ]
        self._open: dict[QNo, Query] = {}
        self._is_broke = False
        self._rounds: dict[int, list[int]] = {0: self._order(0)}

    def ask(self, view: BudgetView) -> Query | Turn:  # noqa: ARG002 - money is the engine's business
        """Propose the next question of the judge that is furthest behind."""
        if self._is_broke:
            return FINISH
        wanted = [seat for seat in self._seats if seat.has_work]
        if up := [seat for seat in wanted if not seat.is_down]:
            return self._next(min(up, key=lambda seat: seat.rank))
        # What is outstanding may still come back unasked, so the end waits for it.
        return PAUSE if wanted or self._open else FINISH

    def tell(self, event: PolicyEvent) -> None:
        """Follow what was asked, what came back, and who can be asked."""
        match event:
            case Asked(q=q, query=query):
                self._open[q] = query
                self._advance(self._seats[query.judge], query)
            case Record(q=q):
                del self._open[q]
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
        """Say how many questions each judge has been asked in turn."""
        names = (p.name for p in self._study.panel)
        return {"asked": {n: s.at for n, s in zip(names, self._seats, strict=True)}}

    def _next(self, seat: _Seat) -> Query:
        if seat.returned:
            return seat.returned[0]
        replicate, place = divmod(seat.at, self._study.frame.n_units)
        unit = UnitIx(self._rounds[replicate][place])
        return Query(kind=self._study.kind, judge=seat.judge, units=(unit,), replicate=replicate)

    def _advance(self, seat: _Seat, query: Query) -> None:
        """Move a judge past its question; keep the orders of the rounds that judges stand in."""
        if seat.returned and query == seat.returned[0]:
            seat.returned.popleft()
            return
        seat.at += 1
        n_units = self._study.frame.n_units
        if seat.at % n_units == 0 and seat.at < seat.end:
            places = {s.at // n_units for s in self._seats if s.at < s.end}
            self._rounds = {r: self._rounds.get(r) or self._order(r) for r in places}

    def _order(self, replicate: int) -> list[int]:
        return unit_order(self._study, replicate, strata=self._config.strata)


PLUGIN = Plugin(config=UniformConfig, build=Uniform)
