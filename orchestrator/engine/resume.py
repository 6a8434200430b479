"""The only way a run starts: fold its log, then mend what a crash left open.

A new run resumes a log that holds nothing but `Opened`.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from orchestrator.core.events import (
    LOST,
    Arrived,
    Event,
    Forfeited,
    Late,
    Reasked,
    Withdrawn,
)
from orchestrator.core.money import Nano
from orchestrator.core.ports import Row
from orchestrator.core.query import Missing, MissingReason
from orchestrator.core.records import Open
from orchestrator.engine.decide import may_ask_again
from orchestrator.engine.fold import State


def take_up(state: State, rows: Iterable[Row]) -> None:
    """Fold a log. Policies are told, never asked, so no tie-break can make an old run unopenable."""
    for row in rows:
        state.apply(row.event)


def repair(state: State) -> list[Event]:
    """Mend the open questions of a log whose process is gone; gives the events, applied.

    Sent and unanswered: the attempt is charged as uncertain and, if attempts and money are left,
    asked again in its old place. Asked and never sent: left to be sent. Arrived: waits for its turn. After a stop
    nothing is asked again: answers count as late, the rest is forfeited or withdrawn.
    """
    events = []
    for at in list(state.open.values()):
        event = mended(state, at)
        if event is not None:
            state.apply(event)
            events.append(event)
    return events


def mended(state: State, at: Open) -> Event | None:
    """Mend one question of a log whose process is gone; None where there is nothing to mend."""
    if state.stopped is not None:
        return close(at)
    if not at.sent:
        return None
    attempt = replace(at.attempt, number=at.attempt.number + 1)
    hold = state.hold_for(state.render(at.query, attempt))
    may_ask = may_ask_again(state, at)
    if may_ask and state.ledger.has_room_instead(at.q, at.hold, hold):
        return Reasked(q=at.q, attempt=attempt, hold=hold, ended=LOST)
    return Arrived(
        q=at.q,
        attempt=at.attempt,
        outcome=Missing(
            reason=MissingReason.NO_MONEY_FOR_RETRY if may_ask else MissingReason.CONNECTION_LOST,
            cost=Nano(0),
            uncertain=at.hold,
            attempts=at.attempt.number,
            detail="the process ended before the reply came",
        ),
    )


def close(at: Open) -> Late | Forfeited | Withdrawn:
    """Close a question that is open after the stop."""
    if at.outcome is not None:
        return Late(q=at.q, outcome=at.outcome)
    return Forfeited(q=at.q) if at.sent else Withdrawn(q=at.q)
