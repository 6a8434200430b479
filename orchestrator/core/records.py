"""The join of asked, arrived and told that fold, report and export share."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace

from orchestrator.core.events import (
    Arrived,
    Asked,
    Event,
    Forfeited,
    Freed,
    JudgeDown,
    Late,
    LimitReached,
    Parked,
    PriceChanged,
    Reasked,
    Sent,
    Told,
    Withdrawn,
)
from orchestrator.core.ids import QNo
from orchestrator.core.money import Nano
from orchestrator.core.query import Missing, Outcome, Query
from orchestrator.core.wire import FIRST_ATTEMPT, Attempt, Origin


@dataclass(frozen=True, slots=True, kw_only=True)
class Record:
    """One question with the outcome that counts, as policies and estimators hear of it."""

    q: QNo
    query: Query
    outcome: Outcome

    @property
    def is_missing(self) -> bool:
        """Whether the question has no verdict."""
        return isinstance(self.outcome, Missing)


@dataclass(slots=True, kw_only=True)
class Open:
    """One question that is asked and not yet told.

    `sent`: an attempt left and nothing has come of it. `outcome`: what arrived and waits for its
    turn. `returned`: it comes back unasked, since its judge is down or its price has changed.
    """

    q: QNo
    query: Query
    hold: Nano
    origin: Origin
    attempt: Attempt = FIRST_ATTEMPT
    sent: bool = False
    outcome: Outcome | None = None
    returned: bool = False

    @property
    def is_due(self) -> bool:
        """Whether it can be told when its turn comes."""
        return self.outcome is not None or self.returned


class Join:
    """Follows questions from asked to told; holds only those that are open."""

    __slots__ = ("open",)

    def __init__(self) -> None:
        self.open: dict[QNo, Open] = {}

    def feed(self, event: Event) -> Record | None:
        """Take the next event; give the record that it completes, if any."""
        match event:
            case Asked(q=q, query=query, hold=hold, origin=origin):
                self.open[q] = Open(q=q, query=query, hold=hold, origin=origin)
            case Told(q=q):
                at = self.open.pop(q)
                if at.outcome is not None:
                    return Record(q=q, query=at.query, outcome=at.outcome)
            case Sent(q=q, attempt=number):
                at = self.open[q]
                at.sent = True
                if number != at.attempt.number:
                    at.attempt = replace(at.attempt, number=number)
            case Freed(q=q, attempt=number):
                at = self.open[q]
                at.sent, at.attempt = False, replace(at.attempt, number=number + 1)
            case Arrived(q=q, attempt=attempt, outcome=outcome):
                at = self.open[q]
                at.sent, at.attempt, at.outcome = False, attempt, outcome
            case Reasked(q=q, attempt=attempt, hold=hold):
                at = self.open[q]
                at.sent, at.attempt, at.hold, at.outcome = False, attempt, hold, None
            case JudgeDown(judge=judge) | PriceChanged(judge=judge):
                # What is not under way comes back: the judge can't be asked, or not at this hold.
                for at in self.open.values():
                    if at.query.judge == judge and not at.sent and at.outcome is None:
                        at.returned = True
            case LimitReached() if event.takes_back:
                for at in self.open.values():
                    if not at.sent and at.outcome is None:
                        at.returned = True
            case Parked(q=q) | Withdrawn(q=q) | Late(q=q) | Forfeited(q=q):
                del self.open[q]
            case _:
                pass
        return None


def records(events: Iterable[Event]) -> Iterator[Record]:
    """Join a log, in telling order."""
    join = Join()
    for event in events:
        record = join.feed(event)
        if record is not None:
            yield record
