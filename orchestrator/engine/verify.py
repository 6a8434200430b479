"""Re-check a log: every decision, every cost, every reading, every number.

The store's own audit compares rows and blobs with their hashes. Here the run is lived through
again: what was told is digested again, what was read is read again, what was charged is priced
again, and at each place where the log holds a decision, `decide` must reach the same.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from typing import NamedTuple

from orchestrator.core.errors import OrchestratorError
from orchestrator.core.events import (
    LOST,
    Arrived,
    Asked,
    CapChanged,
    Commanded,
    Continued,
    Declined,
    Event,
    Forfeited,
    Freed,
    JudgeDown,
    JudgeUp,
    Late,
    LimitReached,
    Looked,
    Opened,
    Parked,
    Paused,
    PriceChanged,
    Reasked,
    Reopened,
    Sent,
    Started,
    Stopped,
    Told,
    Withdrawn,
)
from orchestrator.core.ids import JudgeIx
from orchestrator.core.money import cost
from orchestrator.core.ports import Reading, Row, Unreadable
from orchestrator.core.query import (
    Judged,
    Missing,
    MissingReason,
    Observation,
    Outcome,
    Query,
    outcome_digest,
)
from orchestrator.core.records import Open
from orchestrator.core.stopping import COMPLETE
from orchestrator.core.wire import Attempt, Finish, Json, Origin, Reply, Request
from orchestrator.engine.decide import (
    WAIT,
    Action,
    Ask,
    Decline,
    Limit,
    Look,
    Park,
    Stop,
    decide,
    hear,
    origin_of,
)
from orchestrator.engine.fold import State
from orchestrator.engine.resume import mended

Recall = Callable[[str], Reply | None]
NamePrompt = Callable[[Request], str]


class Difference(NamedTuple):
    """One place where the log and what it should hold differ."""

    seq: int
    what: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Kept:
    """What a campaign promises of its log, so that a row without it is a difference.

    Parameters
    ----------
    prompts : the digest of each prompt is kept
    replies : each reply is kept; then only a reply can have been refused, cut or unreadable
    by_own_loop : the user's own loop called the judges, and why a verdict is missing is its word
    cache : answers of earlier runs may be used
    """

    prompts: bool = False
    replies: bool = False
    by_own_loop: bool = False
    cache: bool = False


NOTHING_KEPT = Kept()


def verify(
    state: State,
    rows: Iterable[Row],
    recall: Recall,
    name_prompt: NamePrompt = lambda _: "",
    kept: Kept = NOTHING_KEPT,
) -> Iterator[Difference]:
    """Live through a log with a fresh state; name every difference.

    `recall` reads a kept reply by its digest, and raises ValueError where that is no reply;
    `name_prompt` digests a request as the archive does.

    Decisions are compared up to the first that differs, since all later ones follow from it; money
    and readings are compared to the end.
    """
    memory = _Remembered()
    state.crew = replace(state.crew, memory=memory, recall=recall)
    check = _Check(state, recall, name_prompt, kept, memory)
    proposals_agree = True
    for row in rows:
        event, check.version = row.event, row.version
        found = [*_all(check.place(event), event), *_all(check.facts(event), event)]
        if proposals_agree:
            found += _all(check.decisions(event), event)
            proposals_agree = not found
        yield from (Difference(row.seq, what) for what in found)
        try:
            state.apply(event)
        except Exception as exc:  # noqa: BLE001  # a forged row may break any plug-in in any way
            yield Difference(row.seq, f"{type(event).__name__} can't follow: {exc!r}")
            return
        check.previous = event


def _all(found: Iterator[str], event: Event) -> Iterator[str]:
    try:
        yield from found
    except OrchestratorError as exc:
        yield f"the policy can't be asked here: {exc}"
    except Exception as exc:  # noqa: BLE001  # as above: a judge or a unit that there is not
        yield f"{type(event).__name__} can't be checked: {exc!r}"


@dataclass(slots=True)
class _Remembered:
    """Stands for the cache: `holds` says whether it had the answer that is asked for."""

    holds: bool = False

    def find(self, query: Query) -> Reply | None:
        """Give something where there was something; what it said stands in the log."""
        del query
        return _SOMETHING if self.holds else None

    def keep(self, query: Query, attempt: Attempt, reply: Reply, judged: Judged) -> str:
        """Keep nothing: a replay answers nothing."""
        del query, attempt, reply, judged
        return ""


_SOMETHING = Reply(text="", finish=Finish.STOP, usage=None, origin=Origin.CACHE)

_TAKES_UP = CapChanged | PriceChanged | JudgeUp | Reopened
"""What only a process that takes a run up writes; `Started` follows it, after what it mends."""

_FOLLOWS_A_STOP = Reopened | Started | Freed | Commanded
"""What a stopped run may still hear of, besides what came of its open questions."""

_OUTSIDE = frozenset({"wall_clock", "user", "stale_cache"})
"""Limits that are facts of the world; nothing in the log could contradict them."""

_MENDS = Reasked | Arrived | Late | Forfeited | Withdrawn | Paused | Continued

_READ = frozenset({MissingReason.REFUSED, MissingReason.TRUNCATED, MissingReason.PARSE_FAILURE})
"""Reasons that are read in a reply and come from nowhere else."""


@dataclass(slots=True)
class _Check:
    """What is looked at before each event is applied."""

    state: State
    recall: Recall
    name_prompt: NamePrompt
    kept: Kept
    memory: _Remembered
    previous: Event | None = None
    version: int = 0
    taking_up: str = ""

    # --- where an event may stand ---------------------------------------------------------------

    def place(self, event: Event) -> Iterator[str]:
        """Name what can't stand here, whatever the policy says."""
        state, kind = self.state, type(event).__name__
        comes_back = isinstance(event, JudgeUp) and self._is_waited_for(event.judge)
        if isinstance(event, _TAKES_UP) or (isinstance(event, Reasked) and event.ended == LOST):
            self.taking_up = "" if comes_back and not self.taking_up else kind
        elif self.taking_up and not isinstance(event, _MENDS):
            if not isinstance(event, Started):
                yield f"{self.taking_up} stands where no process took up the run"
            self.taking_up = ""
        if isinstance(event, Late | Forfeited | Withdrawn):
            if state.stopped is None:
                yield f"{kind} stands before any stop"
        elif state.stopped is not None and not isinstance(event, _FOLLOWS_A_STOP):
            yield f"{kind} follows the stop"
        match event:
            case Opened() if state.is_opened:
                yield "the run is opened twice"
            case Reopened(settled=settled, uncertain=uncertain):
                spent = state.ledger.campaign
                if state.stopped is None or state.stopped in COMPLETE:
                    yield f"a run that stopped with {state.stopped} can't be reopened"
                if (settled, uncertain) != (spent.settled, spent.uncertain):
                    yield "the run is not reopened with the money that it had spent"
            case JudgeUp(judge=judge) if not state.judges[judge].is_down:
                yield f"judge {judge} was not down"
            case CapChanged(cap=cap) if cap == state.ledger.campaign.cap:
                yield "the cap was that already"
            case PriceChanged(judge=judge, card=card) if card == state.cards[judge]:
                yield f"the prices of judge {judge} were those already"
            case Paused() | Continued() if isinstance(event, Paused) == state.is_paused:
                yield f"{kind} changes nothing"
            case LimitReached(which=which) if state.limit_reached is not None:
                yield f"limit {which} follows {state.limit_reached}"
            case _:
                pass

    # --- what happened --------------------------------------------------------------------------

    def facts(self, event: Event) -> Iterator[str]:
        """Name what disagrees with what the log holds already, or with a reply."""
        state = self.state
        match event:
            case Sent(q=q, attempt=number, prompt=prompt) if q in state.open:
                at = state.open[q]
                if number != at.attempt.number or at.sent or at.is_due:
                    yield f"question {q}: attempt {number} was not to be sent"
                if state.generations.waits(at.query):
                    yield f"question {q} was sent before the answer that it reads was there"
                elif at.query.parent is not None and (
                    state.known(at.query) or state.unsendable(at)
                ):
                    yield f"question {q} was sent, and by the answer that it reads it needed no call"
                if not prompt:
                    if self.kept.prompts:
                        yield f"question {q}: its prompt is not named, and the campaign keeps them"
                elif self.name_prompt(state.render(at.query, at.attempt)) not in {"", prompt}:
                    yield f"question {q}: the prompt is not the one that its query renders to"
            case Freed(q=q, attempt=number) if q in state.open:
                if not state.open[q].sent or number != state.open[q].attempt.number:
                    yield f"question {q}: attempt {number} was not under way"
            case Told(q=q, digest=digest):
                told = state.open.get(q)
                if told is None or told.outcome is None:
                    yield f"question {q} is told without an outcome"
                elif outcome_digest(told.outcome) != digest:
                    yield f"question {q}: the outcome is not the one that was told (score or cost)"
            case Arrived(q=q, attempt=attempt, outcome=outcome) if q in state.open:
                at = state.open[q]
                if not at.sent and not self._is_without_call(at, outcome):
                    yield f"question {q}: what was not under way arrived"
                if at.sent and _is_for(outcome, MissingReason.NO_ANSWER):
                    yield f"question {q}: it was sent, so there was an answer"
                if attempt != at.attempt:
                    yield f"question {q}: {attempt} arrived, {at.attempt} was sent"
                yield from self._reading(at, attempt, outcome)
            case Late(q=q, outcome=outcome) if q in state.open:
                at = state.open[q]
                if at.outcome is None:
                    if not at.sent:
                        yield f"question {q}: what was not under way came late"
                    yield from self._reading(at, at.attempt, outcome)
                elif outcome != at.outcome:
                    yield f"question {q}: what came late is not what had arrived"
            case Withdrawn(q=q) if q in state.open:
                if state.open[q].sent or state.open[q].outcome is not None:
                    yield f"question {q} was sent and can't be withdrawn"
            case Forfeited(q=q) | Reasked(q=q, ended="lost") if q in state.open:
                if not state.open[q].sent or state.open[q].outcome is not None:
                    yield f"question {q} was not under way and can't be lost"
            case _:
                pass

    def _reading(self, at: Open, attempt: Attempt, outcome: Outcome) -> Iterator[str]:
        yield from self._bill(at, outcome)
        if isinstance(outcome, Missing) and outcome.attempts != attempt.number:
            yield f"question {at.q}: {outcome.attempts} attempts are counted, not {attempt.number}"
        if outcome.blob:
            reply = self.recall(outcome.blob)
            if reply is None:
                yield f"question {at.q}: its reply is gone"
            else:
                yield from self._reply(at, outcome, reply)
        elif self.kept.replies and (
            outcome.request_id or _needs_reply(outcome, attempt, self.kept)
        ):
            yield f"question {at.q}: no reply is named, and the campaign keeps them"

    def _is_without_call(self, at: Open, outcome: Outcome) -> bool:
        """Say whether a question can have come to this although nothing was sent."""
        state = self.state
        if at.origin is Origin.CACHE:
            return True
        self.memory.holds = isinstance(outcome, Judged) and outcome.origin is Origin.CACHE
        known = state.known(at.query)
        self.memory.holds = False
        if state.generations.waits(at.query):
            return False
        match known or state.unsendable(at):
            case Reply(origin=Origin.CACHE):
                return self.kept.cache
            case Reply() as reply:
                said = state.crew.judges[at.query.judge].rubric.read(at.query, reply)
                return _verdicts(said) == _verdicts(outcome)
            case reason:
                return _is_for(outcome, reason)

    def _bill(self, at: Open, outcome: Outcome) -> Iterator[str]:
        bill = at.hold if at.sent else 0
        if outcome.usage is not None and at.sent:
            bill = cost(outcome.usage, self.state.cards[at.query.judge])
        charge, uncertain = outcome.cost, 0
        is_wrong = charge != bill
        if isinstance(outcome, Missing):
            uncertain = outcome.uncertain
            is_wrong = is_wrong or uncertain != 0
            if not outcome.blob:  # or no one knows, or it was surely not billed
                is_wrong = is_wrong and (charge != 0 or uncertain not in {0, at.hold})
        if is_wrong:
            rule = "the hold" if outcome.usage is None else "usage times price"
            yield f"question {at.q}: the cost is not {rule}: {charge}, {uncertain} uncertain"

    def _reply(self, at: Open, outcome: Outcome, reply: Reply) -> Iterator[str]:
        said = self.state.crew.judges[at.query.judge].rubric.read(at.query, reply)
        match outcome:
            case Judged(observations=observations):
                if not isinstance(said, Reading) or observations not in self._forms(said):
                    yield f"question {at.q}: the reply reads {said}, the log holds {observations}"
                    return
                is_unpriced = reply.usage is None and at.sent
                unpriced = ("usage_missing",) if is_unpriced else ()
                flags = (*reply.flags, *unpriced, *said.flags)
                told = (outcome.served_model, outcome.origin, outcome.flags)
                if told != (reply.served_model, reply.origin, flags):
                    yield f"question {at.q}: the reply's model, origin or flags are not in the log"
            case Missing(reason=reason):
                if not isinstance(said, Unreadable) or said.reason is not reason:
                    yield f"question {at.q}: the reply reads {said}, the log holds {reason}"
        if (reply.usage, reply.request_id) != (outcome.usage, outcome.request_id):
            yield f"question {at.q}: the reply's request or usage is not the one in the log"

    def _forms(self, said: Reading) -> Iterator[tuple[Observation, ...]]:
        """Give the verdicts as the row can hold them: at first the place was not written."""
        yield said.observations
        if self.version == 1:
            yield tuple(replace(seen, slot=0) for seen in said.observations)

    # --- what was decided -----------------------------------------------------------------------

    def decisions(self, event: Event) -> Iterator[str]:
        """Name what the state and the policy would have decided otherwise."""
        state = self.state
        yield from self._unsaid(event)
        match event:
            case Asked(query=query, hold=hold, q=q, origin=origin):
                self.memory.holds = origin is Origin.CACHE
                action = decide(state)
                self.memory.holds = False
                if not isinstance(action, Ask) or action.query != query:
                    yield f"question {q}: {query} was asked, the policy proposes {action}"
                elif action.hold != hold:
                    yield f"question {q}: {hold} nano-USD were held, the ceiling is {action.hold}"
                elif q != state.n_asked or origin is not origin_of(action.known):
                    yield f"question {q}: it is the {state.n_asked}th that is asked"
                elif origin is Origin.CACHE and not self.kept.cache:
                    yield f"question {q} was remembered, and the campaign has no cache"
            case Declined(query=query, hold=hold, account=account):
                if Decline(query, hold, account) not in (due := self._due()):
                    yield f"{query} was declined, the policy proposes {due[0]}"
            case JudgeDown(judge=judge, until=until, why=why):
                if not self._is_parked_by(judge, until, why):
                    yield f"judge {judge} did not go down here by {why!r}"
            case Reasked(q=q, ended="lost") if q in state.open:
                if (mend := mended(state, state.open[q])) != event:
                    yield f"question {q} was lost, which comes to {mend}"
            case Arrived(q=q, outcome=Missing(reason=MissingReason.NO_MONEY_FOR_RETRY) as outcome):
                mend = mended(state, state.open[q]) if q in state.open else None
                if not isinstance(mend, Arrived) or mend.outcome != outcome:
                    yield f"question {q} was lost, which comes to {mend}"
            case Told(q=q) | Parked(q=q) | Reasked(q=q) if q in state.open:
                if WAIT not in (due := self._due()):
                    yield f"question {q} is heard of, where {due[0]} is due"
                if state.next_due() is not state.open[q]:
                    yield f"question {q} was told out of turn"
                elif (heard := hear(state, state.open[q])) != event:
                    yield f"question {q} should have come to {heard}"
            case LimitReached(which="max_wait"):
                is_down = any(judge.down_until is not None for judge in state.judges)
                if not (is_down and state.is_drained):
                    yield "the run waits for more than a judge that is down for a time"
            case LimitReached(which=which) if which not in _OUTSIDE:
                if Limit(which) not in self._due():
                    yield f"limit {which} is not reached here"
            case Looked(is_final=is_final):
                wanted = Stop if is_final else Look
                if not any(isinstance(action, wanted) for action in self._due()):
                    yield "no look is due here"
                again = state.look(state.estimate(), is_final=is_final)
                if not _agree(_numbers(again), _numbers(event)):
                    yield "the estimates are not those of the recorded verdicts"
            case Stopped(reason=reason):
                if not isinstance(self.previous, Looked) or not self.previous.is_final:
                    yield "the run stopped without a last look"
                if Stop(reason) not in (due := self._due()):
                    yield f"the run stopped with {reason}, the state says {due[0]}"
            case _:
                pass

    def _due(self) -> list[Action]:
        """Give what can be due here: with a cache it depends on whether that had what is proposed."""
        due = [decide(self.state)]
        if self.kept.cache:
            self.memory.holds = True
            due.append(decide(self.state))
            self.memory.holds = False
        return due

    def _is_waited_for(self, judge: JudgeIx) -> bool:
        return self.state.judges[judge].down_until is not None

    def _is_parked_by(self, judge: JudgeIx, until: float | None, why: str) -> bool:
        state, crew = self.state, self.state.crew
        if until is not None:
            # A refusal parks all judges of one account.
            match self.previous:
                case Freed(q=q, error=error):
                    cause = state.open[q].query.judge
                    account = crew.judges[cause].account
                    is_shared = bool(account) and account == crew.judges[judge].account
                    return error == why and (judge == cause or is_shared)
                case JudgeDown(judge=other, why=said):
                    account = crew.judges[other].account
                    return said == why and bool(account) and account == crew.judges[judge].account
                case _:
                    return False
        match self.previous:
            case Arrived(q=q, outcome=Missing(reason=MissingReason.JUDGE_DOWN, detail=detail)):
                is_its_own = state.open[q].query.judge == judge and detail in {"", why}
                return is_its_own and not self._is_down_for_good(judge)
            case _:
                return decide(state) == Park(judge, why)

    def _is_down_for_good(self, judge: int) -> bool:
        at = self.state.judges[judge]
        return at.is_down and at.down_until is None

    def _unsaid(self, event: Event) -> Iterator[str]:
        """Name a judge that an answer says is down, where the next row does not."""
        match self.previous, event:
            case Arrived(outcome=Missing(reason=MissingReason.JUDGE_DOWN)), JudgeDown():
                pass
            case Arrived(q=q, outcome=Missing(reason=MissingReason.JUDGE_DOWN)), _:
                judge = self.state.open[q].query.judge
                if not self._is_down_for_good(judge):
                    yield f"question {q}: judge {judge} is down, and the log does not say so"


def _verdicts(said: Reading | Unreadable | Outcome) -> tuple[Observation, ...] | MissingReason:
    match said:
        case Reading(observations=observations) | Judged(observations=observations):
            return observations
        case _:
            return said.reason


def _is_for(outcome: Outcome, reason: MissingReason | None) -> bool:
    return isinstance(outcome, Missing) and outcome.reason is reason


def _needs_reply(outcome: Outcome, attempt: Attempt, kept: Kept) -> bool:
    """Whether an outcome can only have been read in a reply.

    A recording that holds no verdict tells so with a reply, and at the next attempt without one.
    """
    match outcome:
        case Judged():
            return True
        case _ if kept.by_own_loop:
            return False
        case Missing(reason=MissingReason.EMPTY):
            return not attempt.paid
        case Missing(reason=reason):
            return reason in _READ


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
