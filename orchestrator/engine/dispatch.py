"""Which of the asked questions are sent now: one lane a judge, and a limit over all of them.

When a question is sent depends on the clock and the network; it can't influence what is asked.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence

from orchestrator.core.ids import JudgeIx
from orchestrator.core.judge import Judge
from orchestrator.engine.attempts import Arrival, Job

AMBIGUOUS_IN_ROW = 3
"""After so many attempts in a row of which no one knows what became, a judge starts anew."""


class Lane:
    """One judge's questions that wait to be sent, and how many of its calls may run.

    A lane starts with one call, so that a bad key or model name costs one request; each reply
    doubles the limit up to the judge's own.
    """

    __slots__ = ("in_flight", "judge", "limit", "n_ambiguous", "ready")

    def __init__(self, judge: Judge) -> None:
        self.judge = judge
        self.ready: deque[Job] = deque()
        self.in_flight = 0
        self.limit = 1
        self.n_ambiguous = 0

    @property
    def can_start(self) -> bool:
        """Whether a waiting question may be sent."""
        return bool(self.ready) and self.in_flight < self.limit

    def ended(self, arrival: Arrival | None) -> None:
        """Note the end of a call."""
        self.in_flight -= 1
        if arrival is None:
            return
        if arrival.is_ambiguous:
            self.n_ambiguous += 1
            if self.n_ambiguous >= AMBIGUOUS_IN_ROW:
                self.limit = 1
        else:
            self.n_ambiguous = 0
            self.limit = min(2 * self.limit, self.judge.limits.concurrency)


class Dispatcher:
    """All lanes. `max_in_flight` bounds the calls of all judges together (`-j`)."""

    def __init__(self, judges: Sequence[Judge], max_in_flight: int) -> None:
        self.lanes = [Lane(judge) for judge in judges]
        self.max_in_flight = max_in_flight

    @property
    def in_flight(self) -> int:
        """How many calls are running."""
        return sum(lane.in_flight for lane in self.lanes)

    def put(self, job: Job) -> None:
        """Let a question wait for its turn to be sent."""
        self.lanes[job.query.judge].ready.append(job)

    def start(self) -> list[Job]:
        """Take the questions that are sent now, the longest asked first."""
        jobs = []
        room = self.max_in_flight - self.in_flight
        while room > 0:
            lanes = [lane for lane in self.lanes if lane.can_start]
            if not lanes:
                break
            lane = min(lanes, key=lambda lane: lane.ready[0].q)
            lane.in_flight += 1
            room -= 1
            jobs.append(lane.ready.popleft())
        return jobs

    def ended(self, job: Job, arrival: Arrival | None) -> None:
        """Note the end of a call; None if it ended without an attempt."""
        self.lanes[job.query.judge].ended(arrival)

    def drop(self, judge: JudgeIx) -> None:
        """Send nothing more to a judge."""
        self.lanes[judge].ready.clear()

    def drop_all(self) -> None:
        """Send nothing more."""
        for lane in self.lanes:
            lane.ready.clear()
