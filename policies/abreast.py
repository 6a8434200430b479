"""Judges that are asked abreast: who is next, what came back unasked, and who can't be asked."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field

from orchestrator.core.events import (
    Asked,
    CapChanged,
    Declined,
    JudgeDown,
    JudgeUp,
    Parked,
    PriceChanged,
)
from orchestrator.core.ids import JudgeIx, QNo
from orchestrator.core.ports import FINISH, PAUSE, PolicyEvent, Turn
from orchestrator.core.query import Query
from orchestrator.core.records import Record


@dataclass(slots=True)
class Seat:
    """Where one judge stands in its sequence of questions, and whether it can be asked.

    `at` is the next place of `end`; `returned` are questions to ask again before anything new.
    """

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


class Abreast:
    """Keeps the judges of a policy in step; the judge furthest behind is next.

    A question that the campaign's money can't hold ends the design until cap or prices change,
    though a cheaper judge might still be paid: going on with it alone would unbalance the panel. One
    that its judge's own account can't hold leaves out that judge.
    """

    def __init__(self, seats: Sequence[Seat]) -> None:
        self.seats = seats
        self.open: dict[QNo, Query] = {}
        self.is_broke = False

    def turn(self) -> Seat | Turn:
        """Give the judge that is next, or say that there is none now, or none any more."""
        if self.is_broke:
            return FINISH
        wanted = [seat for seat in self.seats if seat.has_work]
        if up := [seat for seat in wanted if not seat.is_down]:
            return min(up, key=lambda seat: seat.rank)
        # What is outstanding may still come back unasked, so the end waits for it.
        return PAUSE if wanted or self.open else FINISH

    def follow(self, event: PolicyEvent) -> Seat | None:
        """Follow what was asked, what came back, and who can be asked.

        Gives the judge that was moved to its next place, if one was.
        """
        match event:
            case Asked(q=q, query=query):
                self.open[q] = query
                seat = self.seats[query.judge]
                if seat.returned and query == seat.returned[0]:
                    seat.returned.popleft()
                else:
                    seat.at += 1
                    return seat
            case Record(q=q):
                del self.open[q]
            case Parked(q=q):
                query = self.open.pop(q)
                self.seats[query.judge].returned.append(query)
            case Declined(query=query, account=account):
                seat = self.seats[query.judge]
                if account == seat.account:
                    seat.is_declined = True
                else:
                    self.is_broke = True
            case CapChanged() | PriceChanged():
                self.is_broke = False
                for seat in self.seats:
                    seat.is_declined = False
            case JudgeDown(judge=judge, until=until):
                self.seats[judge].is_down = True
                self.seats[judge].is_gone = until is None
            case JudgeUp(judge=judge):
                self.seats[judge].is_down = self.seats[judge].is_gone = False
        return None
