"""One attempt: what it is, what came of it, how long to wait before another.

An attempt is repeated without a new hold only after `Billing.NO`, when the same hold still covers
it. Whatever may have been billed goes back to the decider, which takes a new hold in turn. This is
the only retry layer: adapters make one attempt, SDK retries are off.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import assert_never

import anyio
from tenacity import RetryCallState, wait_exponential_jitter

from orchestrator.core.errors import JudgeError, TimedOut
from orchestrator.core.ids import QNo
from orchestrator.core.judge import Judge
from orchestrator.core.money import Nano, PriceCard, cost
from orchestrator.core.ports import Unreadable
from orchestrator.core.query import Judged, Missing, MissingReason, Outcome, Query
from orchestrator.core.wire import Billing, Origin, Reply, Request, Usage
from orchestrator.engine.crew import Archive
from orchestrator.engine.rates import NOTHING, Taken

BACKOFF = wait_exponential_jitter(initial=1.0, max=60.0)
"""Pauses that double, with jitter. They can't reach a decision, so the jitter needs no seed."""


@dataclass(slots=True, kw_only=True, eq=False)
class Job:
    """One question on its way to a judge: what to send, what is held for it, and how it fared.

    Times are seconds on the clock of the run. `deadline` bounds all attempts and the pauses between
    them, waits for a place or a limit of the rate apart. `taken`: what the attempt under way is expected to
    use of the rates.
    """

    q: QNo
    query: Query
    request: Request
    hold: Nano
    judge: Judge
    card: PriceCard
    sent_at: float = -math.inf
    deadline: float = math.inf
    taken: Taken = NOTHING
    took_s: float = 0.0
    waited_s: float = 0.0
    limited_s: float = 0.0
    _came_back_at: float = math.nan
    _ready_at: float = -math.inf

    @property
    def number(self) -> int:
        """Which attempt of the question it is."""
        return self.request.attempt.number

    @property
    def is_first(self) -> bool:
        """Whether it is the first attempt inside its hold."""
        return math.isnan(self._came_back_at)

    def leave(self, now: float, taken: Taken, limited_s: float) -> None:
        """Note that an attempt leaves, after so long a wait for a limit of the rate."""
        if self.is_first:
            self.deadline = now + self.judge.timeouts.answer_s
        else:
            queued_s = now - self._ready_at
            self.deadline += queued_s
            limited_s = min(limited_s, queued_s)
            self.waited_s += self._ready_at - self._came_back_at
        self.sent_at, self.taken = now, taken
        self.limited_s += limited_s

    def come_back(self, now: float, ready_at: float) -> None:
        """Make it the next attempt of its question, which waits until a time."""
        attempt = self.request.attempt
        self.request = replace(self.request, attempt=replace(attempt, number=attempt.number + 1))
        self._came_back_at, self._ready_at = now, ready_at


@dataclass(frozen=True, slots=True, kw_only=True)
class Arrival:
    """What came of a job: the outcome and the reply that it was read in, None without one.

    `parks` says why its judge must not be asked again, if so.
    """

    job: Job
    outcome: Outcome
    reply: Reply | None = None
    parks: str | None = None


async def attempt(job: Job, clock: Callable[[], float]) -> Reply | JudgeError:
    """Make one attempt, within its own deadline and the answer's.

    Cancellation leaves it sent and unanswered in the log, so that a resume charges it as uncertain.
    """
    began = clock()
    deadline = min(began + job.judge.timeouts.attempt_s, job.deadline)
    result: Reply | JudgeError
    with anyio.CancelScope(deadline=deadline) as scope:
        try:
            result = await job.judge.adapter.send(job.request)
        except JudgeError as error:
            result = error
    if scope.cancelled_caught:
        result = TimedOut(f"no reply within {deadline - began:g} s")
    job.took_s += clock() - began
    return result


def jittered(n: int) -> float:
    """Give the pause after so many failures in a row, in seconds."""
    state = RetryCallState(None, None, (), {})  # type: ignore[arg-type]  # it reads the number alone
    state.attempt_number = n
    return BACKOFF(state)


def mean_pause(n: int) -> float:
    """Give the pause of `jittered` without its chance: the mean of it."""
    doubled = BACKOFF.initial * BACKOFF.exp_base ** (n - 1)
    return float(min(doubled + BACKOFF.jitter / 2, BACKOFF.max))


def answered(job: Job, reply: Reply, archive: Archive) -> Outcome:
    """Read and price the reply of an attempt; without usage the whole hold is charged.

    An answer that comes from the cache was paid for by an earlier run; one by the key is free.
    """
    flags = reply.flags
    if reply.origin in {Origin.CACHE, Origin.KEY}:
        charge = Nano(0)
    elif reply.usage is None:
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
            attempts=job.number,
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
        attempts=job.number,
        usage=usage,
        detail=detail,
    )
