"""One attempt series: what is retried inside a hold, how long to wait, what came of it.

An attempt is repeated here only after `Billing.NO`, when the same hold still covers it. Whatever
may have been billed goes back to the decider, which takes a new hold in turn. This is the only
retry layer: adapters make one attempt, SDK retries are off.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace
from typing import assert_never

import anyio
from tenacity import (
    AsyncRetrying,
    RetryCallState,
    retry_if_exception_type,
    wait_exponential_jitter,
)

from orchestrator.core.errors import JudgeError, TimedOut, Transient
from orchestrator.core.ids import QNo
from orchestrator.core.judge import Judge
from orchestrator.core.money import Nano, PriceCard, cost
from orchestrator.core.ports import Unreadable
from orchestrator.core.query import Judged, Missing, MissingReason, Outcome, Query
from orchestrator.core.wire import Attempt, Billing, Reply, Request, Usage
from orchestrator.engine.crew import Archive

BACKOFF = wait_exponential_jitter(initial=1.0, max=60.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """One question on its way to a judge: what to send and what is held for it."""

    q: QNo
    query: Query
    request: Request
    hold: Nano
    judge: Judge
    card: PriceCard


@dataclass(frozen=True, slots=True, kw_only=True)
class Arrival:
    """What came of a job. `parks` says why its judge must not be asked again, if so."""

    job: Job
    attempt: Attempt
    outcome: Outcome
    took_s: float
    parks: str | None = None

    @property
    def is_ambiguous(self) -> bool:
        """Whether no one knows what became of the last attempt."""
        return isinstance(self.outcome, Missing) and self.outcome.uncertain > 0


class Series:
    """Carries out jobs.

    `freed` records that an attempt ended at no charge, `sent` that the next one leaves; both
    return once that is durable. `sent` gives False if the question is no longer wanted.
    """

    def __init__(
        self,
        archive: Archive,
        clock: Callable[[], float],
        sent: Callable[[Job, int], Awaitable[bool]],
        freed: Callable[[Job, int, str], Awaitable[None]],
    ) -> None:
        self._archive = archive
        self._clock = clock
        self._sent = sent
        self._freed = freed

    async def run(self, job: Job) -> Arrival | None:
        """Send a job's request, again where that is free, until there is an outcome.

        The first attempt is already recorded as sent. None: the question was taken back while it
        waited to be sent again. Cancellation leaves it sent and unanswered in the log, so that a
        resume charges it as uncertain.
        """
        at = _Progress(job, self._clock)
        parks = None
        try:
            reply = await self._reply(at)  # first: it may take several attempts
            outcome = answered(job, at.number, reply, self._archive)
        except _TakenBackError:
            return None
        except JudgeError as error:
            outcome = unanswered(
                job, at.number, error.reason, error.billing, usage=error.usage, detail=str(error)
            )
            parks = str(error) if error.parks_judge else None
        return Arrival(
            job=job,
            attempt=at.request().attempt,
            outcome=outcome,
            took_s=self._clock() - at.sent_at,
            parks=parks,
        )

    async def _reply(self, at: _Progress) -> Reply:
        try:
            return await at.attempt()
        except Transient as error:
            # The retry layer is entered only now: it costs 30 µs, of some 200 for a judgment.
            failed: Transient | None = error

        async def again() -> Reply:
            nonlocal failed
            if failed is not None:
                first, failed = failed, None
                raise first
            if not await self._sent(at.job, at.number + 1):
                raise _TakenBackError
            at.number += 1
            return await at.attempt()

        async def free(retry: RetryCallState) -> None:
            await self._freed(at.job, at.number, str(_error(retry)))

        return await AsyncRetrying(
            retry=retry_if_exception_type(Transient),
            stop=lambda retry: at.must_stop(retry.upcoming_sleep),
            wait=_wait,
            before_sleep=free,
            sleep=anyio.sleep,
            reraise=True,
        )(again)


def answered(job: Job, number: int, reply: Reply, archive: Archive) -> Outcome:
    """Read and price the reply of an attempt; without usage the whole hold is charged."""
    flags = reply.flags
    if reply.usage is None:
        charge, flags = job.hold, (*flags, "usage_missing")
    else:
        charge = cost(reply.usage, job.card)
    said = job.judge.rubric.read(job.query, reply)
    blob = archive.reply(reply)
    if isinstance(said, Unreadable):
        return Missing(
            reason=said.reason,
            cost=charge,
            uncertain=Nano(0),
            attempts=number,
            usage=reply.usage,
            detail=said.detail,
            blob=blob,
            request_id=reply.request_id,
        )
    return Judged(
        observations=said.observations,
        cost=charge,
        usage=reply.usage,
        served_model=reply.served_model,
        origin=reply.origin,
        blob=blob,
        flags=(*flags, *said.flags),
        request_id=reply.request_id,
    )


def unanswered(
    job: Job,
    number: int,
    reason: MissingReason,
    billing: Billing,
    *,
    usage: Usage | None = None,
    detail: str = "",
) -> Missing:
    """Price an attempt that brought no reply."""
    charge = uncertain = Nano(0)
    match billing:
        case Billing.YES:
            charge = job.hold if usage is None else cost(usage, job.card)
        case Billing.UNKNOWN:
            uncertain = job.hold
        case Billing.NO:
            pass
        case _:
            assert_never(billing)
    return Missing(
        reason=reason,
        cost=charge,
        uncertain=uncertain,
        attempts=number,
        usage=usage,
        detail=detail,
    )


class _TakenBackError(Exception):
    """The question was parked or withdrawn between two attempts."""


class _Progress:
    """How far a series is: which attempt runs, and how much time is left."""

    __slots__ = ("clock", "deadline", "job", "number", "sent_at")

    def __init__(self, job: Job, clock: Callable[[], float]) -> None:
        self.job = job
        self.clock = clock
        self.number = job.request.attempt.number
        self.sent_at = clock()
        self.deadline = self.sent_at + job.judge.timeouts.answer_s

    async def attempt(self) -> Reply:
        """Make one attempt, within its own deadline and the answer's."""
        if self.number > self.job.request.attempt.number:
            self.sent_at = self.clock()
        deadline = min(self.sent_at + self.job.judge.timeouts.attempt_s, self.deadline)
        with anyio.CancelScope(deadline=deadline):
            return await self.job.judge.adapter.send(self.request())
        raise TimedOut(f"no reply within {deadline - self.sent_at:g} s")

    def request(self) -> Request:
        """Give the request of the attempt that runs."""
        request = self.job.request
        if request.attempt.number == self.number:
            return request
        return replace(request, attempt=replace(request.attempt, number=self.number))

    def must_stop(self, wait_s: float) -> bool:
        """Whether attempts or time are used up."""
        is_last = self.number >= self.job.judge.max_attempts
        return is_last or self.clock() + wait_s >= self.deadline


def _error(retry: RetryCallState) -> JudgeError:
    error = retry.outcome.exception() if retry.outcome is not None else None
    assert isinstance(error, JudgeError)
    return error


def _wait(retry: RetryCallState) -> float:
    """Wait as long as the server says, else with doubling, jittered pauses."""
    asked = _error(retry).retry_after_s
    return BACKOFF(retry) if asked is None else asked
