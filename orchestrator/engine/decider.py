"""The deciding half of a run: what every shell around it shares, whoever calls the judges.

Decisions are applied at once and wait for the commit of their turn. Outcomes are told one at a
time: told all at once, 50 latency seeds gave 50 sequences of decisions.
"""

from __future__ import annotations

import time
from typing import Protocol

from anyio import to_thread

from orchestrator.core.estimate import Estimate
from orchestrator.core.events import (
    Arrived,
    Asked,
    Declined,
    Event,
    JudgeDown,
    Late,
    LimitReached,
    Reasked,
    Stopped,
    Told,
)
from orchestrator.core.ids import JudgeIx, QNo
from orchestrator.core.money import Nano
from orchestrator.core.query import Judged, Missing, MissingReason, Query, Role
from orchestrator.core.stopping import StopReason
from orchestrator.core.wire import Billing, Reply, Request
from orchestrator.engine.attempts import Arrival, Job, answered, unanswered
from orchestrator.engine.crew import Archive
from orchestrator.engine.decide import (
    Ask,
    Decline,
    Limit,
    Look,
    Park,
    Stop,
    Wait,
    decide,
    hear,
    origin_of,
)
from orchestrator.engine.fold import State
from orchestrator.engine.resume import close

SLOW_ESTIMATE_S = 0.02
"""Estimates that take longer leave the event loop for a thread."""

MOST_TOLD = 500
"""What needs no call could be told without end; a turn tells no more than this, and commits."""


class Outbox(Protocol):
    """Where questions wait that are asked and not yet sent."""

    def put(self, job: Job) -> None:
        """Let a question wait for its turn to be sent."""
        ...

    def drop(self, judge: JudgeIx) -> None:
        """Send nothing more to a judge."""
        ...

    def drop_all(self) -> None:
        """Send nothing more."""
        ...


class Decider:
    """Takes the decisions of a run and keeps the events of the turn until they are committed.

    `may_thread`: slow estimates may leave the event loop.
    """

    def __init__(self, state: State, outbox: Outbox, archive: Archive, *, may_thread: bool) -> None:
        self.state = state
        self._outbox = outbox
        self._archive = archive
        self._may_thread = may_thread
        self.has_more = False
        self._turn: list[Event] = []
        self._estimate_s = 0.0

    def do(self, event: Event) -> None:
        """Apply an event and let it wait for this turn's commit."""
        if isinstance(event, LimitReached) and event.takes_back:
            self._outbox.drop_all()
        self.state.apply(event)
        self._turn.append(event)

    def end_turn(self) -> list[Event]:
        """Give the events that this turn's commit makes durable, and begin another turn."""
        events, self._turn = self._turn, []
        return events

    def take_up_unsent(self) -> None:
        """Line up what an earlier process asked and never sent."""
        for at in list(self.state.open.values()):
            if not at.is_due:
                self._let_go(at.q)

    def take_in(self, arrival: Arrival) -> None:
        """Store what came of a question; it is told when its turn comes."""
        job = arrival.job
        if job.query.role is Role.SYSTEM and isinstance(arrival.outcome, Judged) and arrival.reply:
            self.state.generations.note_text(job.query.units[0], arrival.reply.text)
        if self.state.stopped is not None:
            self.do(Late(q=job.q, outcome=arrival.outcome))
            return
        self.do(
            Arrived(
                q=job.q,
                attempt=job.request.attempt,
                outcome=arrival.outcome,
                took_s=job.took_s,
                waited_s=job.waited_s,
                limited_s=job.limited_s,
            )
        )
        at = self.state.judges[job.query.judge]
        if arrival.parks is not None and not (at.is_down and at.down_until is None):
            self.park(JudgeIx(job.query.judge), arrival.parks)
        if job.query.role is Role.SYSTEM and isinstance(arrival.outcome, Judged):
            for q in [*self.state.generations.waiting(job.q)]:
                self._let_go(q)

    def remember(self, job: Job, reply: Reply, judged: Judged) -> None:
        """Keep an answer for later runs; end this one if what earlier ones kept is stale."""
        memory, state = self.state.crew.memory, self.state
        if memory is None:
            return
        stale = memory.keep(job.query, job.request.attempt, reply, judged)
        if stale and state.stopped is None and state.limit_reached is None:
            self.do(LimitReached(which="stale_cache", why=stale))

    async def decide(self) -> None:
        """Ask until the window is full, tell what is due, and so on until nothing is left to do.

        Or until enough is told for one commit: `has_more` says so.
        """
        n_told = 0
        self.has_more = False
        while not self.state.is_paused:
            await self._ask_until_full()
            at = self.state.next_due()
            if at is None or self.state.stopped is not None:
                return
            if n_told == MOST_TOLD:
                self.has_more = True
                return
            n_told += 1
            event = hear(self.state, at)
            waiting = [*self.state.generations.waiting(at.q)]
            self.do(event)
            if isinstance(event, Told) and isinstance(at.outcome, Missing):
                for q in waiting:
                    self._let_go(q)
            if isinstance(event, Reasked):
                self._put(at.q, at.query, self.state.render(at.query, event.attempt), event.hold)

    def park(self, judge: JudgeIx, why: str, until: float | None = None) -> None:
        """Ask a judge nothing more: for good, or until a time of day (POSIX seconds)."""
        self._outbox.drop(judge)
        self.do(JudgeDown(judge=judge, until=until, why=why))

    def close_unsent(self) -> None:
        """Take back what was not sent at the stop. What was sent is still received and charged."""
        for at in list(self.state.open.values()):
            if at.outcome is not None or not at.sent:
                self.do(close(at))

    async def _ask_until_full(self) -> None:
        state = self.state
        while True:
            match decide(state):
                case Ask(query=query, hold=hold, request=request, known=None):
                    q = QNo(state.n_asked)
                    self.do(Asked(q=q, query=query, hold=hold))
                    if request is None:
                        self._let_go(q)
                    else:
                        self._put(q, query, request, hold)
                case Ask(query=query, request=Request() as request, known=known) if (
                    known is not None
                ):
                    self._answer(query, request, known)
                case Decline(query=query, hold=hold, account=account):
                    self.do(Declined(query=query, hold=hold, account=account))
                case Look():
                    self.do(state.look(await self._estimate(), is_final=False))
                case Limit(which=which):
                    self.do(LimitReached(which=which))
                case Park(judge=judge, why=why):
                    self.park(judge, why)
                case Stop(reason=reason):
                    await self._stop(reason)
                    return
                case Wait():
                    return

    async def _stop(self, reason: StopReason) -> None:
        """Freeze the estimates."""
        self.do(self.state.look(await self._estimate(), is_final=True))
        self.do(Stopped(reason=reason))
        self._outbox.drop_all()

    def _answer(self, query: Query, request: Request, known: Reply | MissingReason) -> None:
        """Ask what is known; the answer arrives with the question."""
        q = QNo(self.state.n_asked)
        self.do(Asked(q=q, query=query, hold=Nano(0), origin=origin_of(known)))
        self.take_in(self._without_call(self._job(q, query, request, Nano(0)), known))

    def _without_call(self, job: Job, known: Reply | MissingReason) -> Arrival:
        if isinstance(known, Reply):
            return Arrival(job=job, outcome=answered(job, known, self._archive), reply=known)
        return Arrival(job=job, outcome=unanswered(job, known, Billing.NO))

    def _let_go(self, q: QNo) -> None:
        """Send a question once the answers that it reads are there, if it needs to be sent at all."""
        state = self.state
        at = state.open.get(q)
        if at is None or at.is_due or at.sent or state.generations.waits(at.query):
            return
        job = self._job(q, at.query, state.render(at.query, at.attempt), at.hold)
        known = state.known(at.query) or state.unsendable(at)
        if known is None:
            self._outbox.put(job)
        else:
            self.take_in(self._without_call(job, known))

    def _put(self, q: QNo, query: Query, request: Request, hold: Nano) -> None:
        self._outbox.put(self._job(q, query, request, hold))

    def _job(self, q: QNo, query: Query, request: Request, hold: Nano) -> Job:
        judge = query.judge
        return Job(
            q=q,
            query=query,
            request=request,
            hold=hold,
            judge=self.state.crew.judges[judge],
            card=self.state.cards[judge],
        )

    async def _estimate(self) -> tuple[Estimate, ...]:
        began = time.perf_counter()
        if self._may_thread and self._estimate_s > SLOW_ESTIMATE_S:
            estimates = await to_thread.run_sync(self.state.estimate)
        else:
            estimates = self.state.estimate()
        self._estimate_s = time.perf_counter() - began
        return estimates
