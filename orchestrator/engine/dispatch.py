"""Which of the asked questions are sent now: one lane a judge, and a limit over all of them.

Every wait happens here, before an attempt leaves: for a free place, for a limit of the rate, for a
pause that a provider asked for, for another attempt. When a question is sent depends on the clock
and the network; it can't influence what is asked.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Sequence
from heapq import heappop, heappush

from orchestrator.core.errors import Ambiguous, JudgeError, Overloaded, RateLimited
from orchestrator.core.ids import JudgeIx
from orchestrator.core.judge import Judge
from orchestrator.core.wire import Reply
from orchestrator.engine.attempts import Job, jittered
from orchestrator.engine.rates import NOTHING, Account, Rates, Taken, accounts

AMBIGUOUS_IN_ROW = 3
"""After so many attempts in a row of which no one knows what became, a judge is probed by one call
at a time, with pauses that grow."""


class Lane:
    """One judge's questions that wait to be sent, and how many of its calls may run.

    A lane starts with one call, so that a bad key or model name costs one request; each reply
    doubles the limit up to the judge's own. When the provider refuses calls for their rate, the
    limit is halved, once for all calls that were under way, and then grows by one in as many
    replies as it counts.
    """

    def __init__(
        self, judge: Judge, account: Account, rates: Rates, backoff: Callable[[int], float]
    ) -> None:
        self.judge = judge
        self._backoff = backoff
        self.account = account
        self.rates = rates
        self.concurrency = judge.limits.concurrency
        self.ready: deque[Job] = deque()
        self.later: list[tuple[float, int, Job]] = []
        self.in_flight = 0
        self.limit = 1.0
        self.has_cut = False
        self._n_ambiguous = 0
        self._n_refused = 0
        self._cut_at = -math.inf
        self._paused_until = -math.inf
        self._why_paused = ""
        self._limited_since: float | None = None

    @property
    def has_place(self) -> bool:
        """Whether one more of its calls may run."""
        return self.in_flight < int(self.limit)

    def ready_at(self, now: float) -> float:
        """Say from when on the next question can leave; infinity if none waits."""
        while self.later and self.later[0][0] <= now:
            self.ready.appendleft(heappop(self.later)[2])
        if not self.ready:
            return self.later[0][0] if self.later else math.inf
        at = self.paused_until
        if not self.rates.is_unlimited:
            at = max(at, self.rates.ready_at(self._expected(), now))
        if at <= now:
            return now
        if self._limited_since is None:
            self._limited_since = now
        return at

    @property
    def paused_until(self) -> float:
        """Until when nothing leaves, because a provider asked for it or does not answer."""
        return max(self._paused_until, self.account.paused_until)

    def is_beyond_patience(self, now: float) -> bool:
        """Whether it is paused for longer than one waits for its judge."""
        return self.paused_until - now > self.judge.timeouts.patience_s

    def start(self, now: float) -> Job:
        """Take the next question; it leaves now."""
        taken = self._expected()
        job = self.ready.popleft()
        if taken is not NOTHING:
            self.rates.take(taken, now)
        limited_s = 0.0
        if self._limited_since is not None:
            limited_s, self._limited_since = now - self._limited_since, None
        job.leave(now, taken, limited_s)
        self.in_flight += 1
        return job

    def ended(self, job: Job, result: Reply | JudgeError, now: float) -> None:
        """Note the end of an attempt, and learn from it how much the judge bears."""
        self.in_flight -= 1
        if result.usage is not None and job.taken is not NOTHING:
            self.rates.settle(job.taken, result.usage, now)
        match result:
            case RateLimited():
                self._refused(job, result, now)
            case Ambiguous():
                self._lost(now)
            case Overloaded(retry_after_s=float(wait_s)):
                self._pause(now + wait_s, f"overloaded, server asked {wait_s:g} s")
                self._bore()
            case _:
                self._bore()

    def drop(self) -> None:
        """Send nothing more of what waits."""
        self.ready.clear()
        self.later.clear()
        self._limited_since = None

    def waits_for(self, now: float) -> str:
        """Say why nothing more is sent at this moment; empty where something could be."""
        at = self.ready_at(now) if self.has_place else now
        if math.isinf(at) or at <= now:
            return ""
        wait = f"{at - now:.1f} s"
        if self.account.paused_until == at:
            return f"{self.account.why}: waiting {wait}"
        if self._paused_until == at:
            return f"{self._why_paused}: waiting {wait}"
        return f"rate limit: next in {wait}" if self.ready else f"trying again in {wait}"

    def _pause(self, until: float, why: str) -> None:
        if until > self._paused_until:
            self._paused_until, self._why_paused = until, why

    def _refused(self, job: Job, error: RateLimited, now: float) -> None:
        if job.sent_at > self._cut_at:
            self.limit, self._cut_at = max(1.0, self.limit // 2), now
            self.has_cut = True
            self._n_refused += 1
        asked = error.retry_after_s
        wait_s = self._backoff(self._n_refused) if asked is None else asked
        why = "429" if asked is None else f"429, server asked {asked:g} s"
        self.account.pause(now + wait_s, why)

    def _lost(self, now: float) -> None:
        self._n_ambiguous += 1
        if self._n_ambiguous >= AMBIGUOUS_IN_ROW:
            self.limit = 1.0
            wait_s = self._backoff(self._n_ambiguous - AMBIGUOUS_IN_ROW + 1)
            self._pause(now + wait_s, f"no reply to {self._n_ambiguous} attempts")

    def _bore(self) -> None:
        self._n_ambiguous = self._n_refused = 0
        grown = self.limit + 1 / int(self.limit) if self.has_cut else 2 * self.limit
        self.limit = min(grown, float(self.concurrency))

    def _expected(self) -> Taken:
        if self.rates.is_unlimited:
            return NOTHING
        return self.rates.expect(self.judge, self.ready[0].request)


class Dispatcher:
    """All lanes. `max_in_flight` bounds the calls of all judges together (`-j`); None: nothing does.

    `backoff` gives the pause, in seconds, after so many failures in a row.
    """

    def __init__(
        self,
        judges: Sequence[Judge],
        max_in_flight: int | None,
        now: float = 0.0,
        backoff: Callable[[int], float] = jittered,
    ) -> None:
        pairs = zip(judges, accounts(judges, now), strict=True)
        self.lanes = [Lane(judge, *pair, backoff) for judge, pair in pairs]
        self.backoff = backoff
        self.max_in_flight = math.inf if max_in_flight is None else max_in_flight
        self._n_put_back = 0

    @property
    def in_flight(self) -> int:
        """How many calls are running."""
        return sum(lane.in_flight for lane in self.lanes)

    def put(self, job: Job) -> None:
        """Let a question wait for its turn to be sent."""
        self.lanes[job.query.judge].ready.append(job)

    def put_back(self, job: Job, at: float, now: float) -> None:
        """Let a question wait for another attempt, not before a time."""
        job.come_back(now, at)
        self._n_put_back += 1  # ties among jobs keep their order
        heappush(self.lanes[job.query.judge].later, (at, self._n_put_back, job))

    def start(self, now: float) -> list[Job]:
        """Take the questions that are sent now, the longest asked first."""
        jobs = []
        room = self.max_in_flight - self.in_flight
        while room > 0:
            lanes = [lane for lane in self.lanes if lane.has_place and lane.ready_at(now) <= now]
            if not lanes:
                break
            lane = min(lanes, key=lambda lane: lane.ready[0].q)
            room -= 1
            jobs.append(lane.start(now))
        return jobs

    def wakes_at(self, now: float) -> float:
        """Say when a question can leave that now waits for the clock alone; infinity if none."""
        if self.in_flight >= self.max_in_flight:
            return math.inf
        return min((lane.ready_at(now) for lane in self.lanes if lane.has_place), default=math.inf)

    def ended(self, job: Job, result: Reply | JudgeError, now: float) -> Lane:
        """Note the end of an attempt; gives the lane of its judge."""
        lane = self.lanes[job.query.judge]
        lane.ended(job, result, now)
        return lane

    def drop(self, judge: JudgeIx) -> None:
        """Send nothing more to a judge."""
        self.lanes[judge].drop()

    def drop_all(self) -> None:
        """Send nothing more."""
        for lane in self.lanes:
            lane.drop()
