"""What goes out and comes back, whatever the clock: the half of a shell that never waits.

The live scheduler and the rehearsal differ in how time passes and in who answers. What an attempt's
end means, who is parked until when, and what leaves next is the same, and is here.
"""

from __future__ import annotations

import math
from collections.abc import Callable

from orchestrator.core.errors import JudgeError, Transient
from orchestrator.core.events import Freed, JudgeUp, LimitReached, Sent
from orchestrator.core.ids import JudgeIx
from orchestrator.core.query import Judged
from orchestrator.core.wire import Billing, Reply
from orchestrator.engine.attempts import Arrival, Job, answered, unanswered
from orchestrator.engine.crew import Archive
from orchestrator.engine.decider import Decider
from orchestrator.engine.dispatch import Dispatcher, Lane


class Traffic:
    """Sends what is asked and takes in what comes of it; all times are passed in.

    `wall` tells the time of day (POSIX seconds), for events that people read.
    """

    def __init__(
        self,
        decider: Decider,
        dispatcher: Dispatcher,
        archive: Archive,
        wall: Callable[[], float],
    ) -> None:
        self._decider = decider
        self._dispatcher = dispatcher
        self._archive = archive
        self._wall = wall
        self._up_at: dict[JudgeIx, float] = {}

    def ended(self, job: Job, result: Reply | JudgeError, now: float) -> None:
        """Take in the end of an attempt: it counts, or waits to be made again."""
        lane = self._dispatcher.ended(job, result, now)
        match result:
            case Transient(billing=Billing.NO) if self._may_come_again(job, result, lane, now):
                return
            case _:
                pass
        arrival = self._arrival(job, result)
        self._decider.take_in(arrival)
        if isinstance(result, Reply) and isinstance(arrival.outcome, Judged):
            self._decider.remember(job, result, arrival.outcome)

    def start(self, now: float) -> list[Job]:
        """Let leave what can leave now; each is in the log before it does."""
        jobs = self._dispatcher.start(now)
        for job in jobs:
            prompt = self._archive.prompt(job.request)
            self._decider.do(Sent(q=job.q, attempt=job.number, prompt=prompt))
        return jobs

    def pass_time(self, now: float) -> None:
        """Let judges come back whose time has come."""
        state = self._decider.state
        for judge, at in sorted(self._up_at.items(), key=lambda entry: entry[1]):
            if at <= now:
                del self._up_at[judge]
                if state.judges[judge].down_until is not None:
                    self._decider.do(JudgeUp(judge=judge))

    def gives_up(self, now: float) -> bool:
        """End a run that waits for nothing but a judge that is down for too long."""
        state = self._decider.state
        is_over = state.stopped is not None or state.limit_reached is not None
        if is_over or state.is_paused or not state.is_drained or not self._up_at:
            return False
        judge = min(self._up_at, key=self._up_at.__getitem__)
        wait_s, asked = self._up_at[judge] - now, state.crew.judges[judge]
        if wait_s <= asked.timeouts.max_wait_s:
            return False
        why = (
            f"{asked.name} is down for another {wait_s:.0f} s and nothing else is left to ask; "
            f"its max_wait is {asked.timeouts.max_wait_s:g} s"
        )
        self._decider.do(LimitReached(which="max_wait", why=why))
        return True

    def wakes_at(self, now: float) -> float:
        """Say when the clock alone lets something happen; infinity for never."""
        return min(self._dispatcher.wakes_at(now), *self._up_at.values(), math.inf)

    def _may_come_again(self, job: Job, error: Transient, lane: Lane, now: float) -> bool:
        """Put a job back that cost nothing, or give up its judge for a time."""
        state, judge = self._decider.state, job.judge
        at = state.judges[job.query.judge]
        is_over = state.stopped is not None or state.is_ending
        comes_back = is_over or at.is_down or lane.is_beyond_patience(now)
        wait_s = error.retry_after_s
        if wait_s is None:
            wait_s = self._dispatcher.backoff(job.number)
        is_last = job.number >= judge.max_attempts or now + wait_s >= job.deadline
        if is_last and not comes_back:
            return False
        freed = Freed(q=job.q, attempt=job.number, error=self._archive.words(error))
        self._decider.do(freed)
        if not is_over:
            self._park(lane, str(freed.error), now)
        if not comes_back:
            self._dispatcher.put_back(job, now + wait_s, now)
        return True

    def _park(self, lane: Lane, why: str, now: float) -> None:
        """Park what a pause keeps waiting for longer than its patience, or for longer than known."""
        wall = self._wall()
        for ix, other in enumerate(self._dispatcher.lanes):
            judge, until = JudgeIx(ix), other.paused_until
            at = self._decider.state.judges[ix]
            is_known = at.is_down and (
                at.down_until is None or until <= self._up_at.get(judge, 0.0)
            )
            if other.account is lane.account and other.is_beyond_patience(now) and not is_known:
                self._up_at[judge] = until
                self._decider.park(judge, why, until=wall + until - now)

    def _arrival(self, job: Job, result: Reply | JudgeError) -> Arrival:
        match result:
            case Reply():
                return Arrival(job=job, outcome=answered(job, result, self._archive), reply=result)
            case JudgeError():
                said = self._archive.words(result)
                outcome = unanswered(
                    job, result.reason, result.billing, usage=result.usage, detail=said
                )
                return Arrival(job=job, outcome=outcome, parks=said if result.parks_judge else None)
