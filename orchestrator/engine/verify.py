"""Re-check a log: every decision, every cost, every reading, every number.

The store's own audit compares rows and blobs with their hashes. Here the run is lived through
again: what was told is digested again, what was read is read again, what was charged is priced
again, and at each place where the log holds a decision, `decide` must reach the same.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from typing import NamedTuple

from orchestrator.core.errors import OrchestratorError
from orchestrator.core.events import (
    LOST,
    Arrived,
    Asked,
    Declined,
    Event,
    Forfeited,
    Late,
    LimitReached,
    Looked,
    Parked,
    Reasked,
    Reopened,
    Sent,
    Stopped,
    Told,
    Withdrawn,
)
from orchestrator.core.ids import QNo
from orchestrator.core.money import cost
from orchestrator.core.ports import Row, Unreadable
from orchestrator.core.query import Judged, Missing, Outcome, outcome_digest
from orchestrator.core.wire import Json, Reply, Request
from orchestrator.engine.decide import Ask, Decline, Limit, Look, Stop, decide, hear
from orchestrator.engine.fold import State
from orchestrator.engine.resume import after_loss

Recall = Callable[[str], Reply | None]
NamePrompt = Callable[[Request], str]


class Difference(NamedTuple):
    """One place where the log and what it should hold differ."""

    seq: int
    what: str


def verify(
    state: State, rows: Iterable[Row], recall: Recall, name_prompt: NamePrompt = lambda _: ""
) -> Iterator[Difference]:
    """Live through a log with a fresh state; name every difference.

    `recall` reads a kept reply by its digest; `name_prompt` digests a request as the archive does.

    Decisions are compared up to the first that differs, since all later ones follow from it; money
    and readings are compared to the end.
    """
    proposals_agree = True
    for row in rows:
        found = list(_facts(state, row.event, recall, name_prompt))
        if proposals_agree:
            try:
                found += _decisions(state, row.event)
            except OrchestratorError as exc:
                found.append(f"the policy can't be asked here: {exc}")
            proposals_agree = not found
        yield from (Difference(row.seq, what) for what in found)
        try:
            state.apply(row.event)
        except Exception as exc:  # noqa: BLE001  # a forged row may break any plug-in in any way
            yield Difference(row.seq, f"{type(row.event).__name__} can't follow: {exc!r}")
            return


def _facts(state: State, event: Event, recall: Recall, name_prompt: NamePrompt) -> Iterator[str]:
    match event:
        case Sent(q=q, attempt=number, prompt=prompt) if prompt and q in state.open:
            asked = state.open[q]
            request = state.render(asked.query, replace(asked.attempt, number=number))
            if name_prompt(request) not in {"", prompt}:
                yield f"question {q}: the prompt is not the one that its query renders to"
        case Told(q=q, digest=digest):
            at = state.open.get(q)
            if at is None or at.outcome is None:
                yield f"question {q} is told without an outcome"
            elif outcome_digest(at.outcome) != digest:
                yield f"question {q}: the outcome is not the one that was told (score or cost)"
        case Arrived(q=q, attempt=attempt) if q in state.open:
            if attempt != (sent := state.open[q].attempt):
                yield f"question {q}: {attempt} arrived, {sent} was sent"
            yield from _reading(state, q, event.outcome, recall)
        case Late(q=q, outcome=outcome) if q in state.open:
            if (arrived := state.open[q].outcome) is None:
                yield from _reading(state, q, outcome, recall)
            elif outcome != arrived:
                yield f"question {q}: what came late is not what had arrived"
        case Withdrawn(q=q) if q in state.open:
            if state.open[q].sent or state.open[q].outcome is not None:
                yield f"question {q} was sent and can't be withdrawn"
        case Forfeited(q=q) | Reasked(q=q, ended="lost") if q in state.open:
            if not state.open[q].sent or state.open[q].outcome is not None:
                yield f"question {q} was not under way and can't be lost"
        case _:
            pass


def _reading(state: State, q: QNo, outcome: Outcome, recall: Recall) -> Iterator[str]:
    at = state.open[q]
    judge = at.query.judge
    if outcome.usage is not None and outcome.cost != cost(outcome.usage, state.cards[judge]):
        yield f"question {q}: the cost is not usage times price"
    if isinstance(outcome, Judged) and outcome.usage is None and outcome.cost != at.hold:
        yield f"question {q}: without usage the cost is the hold"
    if isinstance(outcome, Missing):
        if outcome.uncertain not in {0, at.hold}:
            yield f"question {q}: what is uncertain is the hold or nothing"
        if outcome.usage is None and outcome.cost not in {0, at.hold}:
            yield f"question {q}: without usage the cost is the hold or nothing"
    reply = recall(outcome.blob) if outcome.blob else None
    if reply is None:
        if outcome.blob:
            yield f"question {q}: its reply is gone"
        return
    said = state.crew.judges[judge].rubric.read(at.query, reply)
    match outcome:
        case Judged(observations=observations):
            if said != observations:
                yield f"question {q}: the reply reads {said}, the log holds {observations}"
        case Missing(reason=reason):
            if not isinstance(said, Unreadable) or said.reason is not reason:
                yield f"question {q}: the reply reads {said}, the log holds {reason}"
    if reply.usage != outcome.usage:
        yield f"question {q}: the reply's usage is not the one in the log"


def _decisions(state: State, event: Event) -> Iterator[str]:
    match event:
        case Asked(query=query, hold=hold, q=q):
            action = decide(state)
            if not isinstance(action, Ask) or action.query != query:
                yield f"question {q}: {query} was asked, the policy proposes {action}"
            elif action.hold != hold:
                yield f"question {q}: {hold} nano-USD were held, the ceiling is {action.hold}"
        case Declined(query=query, hold=hold, account=account):
            action = decide(state)
            if action != Decline(query, hold, account):
                yield f"{query} was declined, the policy proposes {action}"
        case Told(q=q) | Parked(q=q) if q in state.open:
            if state.next_due() is not state.open[q]:
                yield f"question {q} was told out of turn"
            elif (due := hear(state, state.open[q])) != event:
                yield f"question {q} should have come to {due}"
        case Reasked(q=q, ended=ended) if ended != LOST and q in state.open:
            if hear(state, state.open[q]) != event:
                yield f"question {q} was asked again otherwise than its outcome asks for"
        case Reasked(q=q, attempt=attempt, hold=hold) if q in state.open:
            lost = state.open[q].attempt
            if attempt != after_loss(lost):
                yield f"question {q}: {attempt} can't follow {lost}, which was lost"
            ceiling = state.hold_for(state.render(state.open[q].query, attempt))
            if hold != ceiling:
                yield f"question {q}: {hold} nano-USD were held again, the ceiling is {ceiling}"
        case Reopened(settled=settled, uncertain=uncertain):
            spent = state.ledger.campaign
            if state.stopped is None:
                yield "a run that has not stopped can't be reopened"
            if (settled, uncertain) != (spent.settled, spent.uncertain):
                yield "the run is not reopened with the money that it had spent"
        case LimitReached(which=which) if which != "wall_clock":
            if decide(state) != Limit(which):
                yield f"limit {which} is not reached here"
        case Looked(is_final=is_final):
            if not isinstance(decide(state), Stop if is_final else Look):
                yield "no look is due here"
            again = state.look(state.estimate(), is_final=is_final)
            if not _agree(_numbers(again), _numbers(event)):
                yield "the estimates are not those of the recorded verdicts"
        case Stopped(reason=reason):
            if state.last_look is None or not state.last_look.is_final:
                yield "the run stopped without a last look"
            if decide(state) != Stop(reason):
                yield f"the run stopped with {reason}, the state says {decide(state)}"
        case _:
            pass


def _numbers(look: Looked) -> Json:
    return [
        look.n_told,
        look.settled,
        look.uncertain,
        look.held,
        look.is_precise,
        look.is_decided,
        list(look.half_widths),
        [dict(estimate) for estimate in look.estimates],
        dict(look.policy),
    ]


def _agree(a: Json, b: Json) -> bool:
    """Compare what is computed again with what the log holds.

    Floats to 1e-9, for logs that another machine's arithmetic wrote; keys that the log lacks are
    passed over, since a later release says more.
    """
    match a, b:
        case float(), float() | int():
            return math.isclose(a, b, rel_tol=1e-9, abs_tol=1e-12)
        case dict(), dict():
            return a.keys() >= b.keys() and all(_agree(a[k], b[k]) for k in b)
        case list(), list():
            return len(a) == len(b) and all(map(_agree, a, b))
        case _:
            return bool(a == b)
