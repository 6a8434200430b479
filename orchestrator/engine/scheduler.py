"""The imperative shell: one task decides, many tasks call judges.

A turn takes all arrivals, tells one outcome, asks until the window is full, tells the next; then
one commit for all of it; only then the new questions are sent.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import NamedTuple, Protocol

import anyio
import anyio.lowlevel
from anyio.abc import TaskGroup

from orchestrator.core.errors import JudgeError, OrchestratorError
from orchestrator.core.events import Event, LimitReached
from orchestrator.core.ports import Store
from orchestrator.core.wire import Reply
from orchestrator.engine import signals
from orchestrator.engine.attempts import Job, attempt, jittered
from orchestrator.engine.crew import Archive
from orchestrator.engine.decider import Decider
from orchestrator.engine.dispatch import Dispatcher
from orchestrator.engine.fold import State
from orchestrator.engine.traffic import Traffic

BUSY = 32
"""Above so many calls in flight a turn waits `company_s` for more arrivals."""

POLL_S = 0.5
"""How often commands from outside are looked for, and waits shown anew."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Operation:
    """How a run is carried out. None of it can change what is asked.

    Parameters
    ----------
    max_in_flight : calls at a time over all judges; None: as many as the judges allow
    grace_s : how long calls under way may take to finish after the first interrupt
    company_s : a pause that lets arrivals share a commit; halves the CPU time at usual latencies
    wall_clock_s : asking ends after so long; None for no limit
    may_thread : slow estimates may leave the event loop (not under a virtual clock)
    takes_signals : SIGINT and SIGTERM interrupt the run, where the thread may take them
    clock : the event loop's own, in seconds; asyncio's is `time.monotonic`, and asking it through
        anyio costs 3 µs a call
    wall : the time of day, POSIX seconds; nothing waits by it
    backoff : the pause after so many failures in a row, seconds
    """

    max_in_flight: int | None
    grace_s: float = 30.0
    company_s: float = 0.0
    wall_clock_s: float | None = None
    may_thread: bool = False
    takes_signals: bool = False
    clock: Callable[[], float] = anyio.current_time
    wall: Callable[[], float] = time.time
    backoff: Callable[[int], float] = jittered


class Steering(Protocol):
    """Commands from outside, for a run under way."""

    def is_due(self) -> bool:
        """Whether a command waits. Asked twice a second, so it is cheap."""
        ...

    def obey(self, decider: Decider, dispatcher: Dispatcher, now: float) -> None:
        """Carry out the commands that wait."""
        ...

    def confirm(self) -> None:
        """Answer what was obeyed: it is durable now."""
        ...


class _End(NamedTuple):
    """The end of an attempt."""

    job: Job
    result: Reply | JudgeError


class Scheduler:
    """Carries a run from where its state is to its end.

    `progress` makes the store's progress row; `observe` hears events once they are durable;
    `steering` brings commands from outside.
    """

    def __init__(
        self,
        state: State,
        store: Store,
        archive: Archive,
        operation: Operation,
        *,
        progress: Callable[[State, Dispatcher], bytes] | None = None,
        observe: Callable[[Sequence[Event]], None] | None = None,
        steering: Steering | None = None,
    ) -> None:
        self.state = state
        self.is_draining = False
        self.is_cut = False
        self._now = operation.clock
        self.dispatcher = Dispatcher(
            state.crew.judges, operation.max_in_flight, self._now(), operation.backoff
        )
        self._decider = Decider(state, self.dispatcher, archive, may_thread=operation.may_thread)
        self._traffic = Traffic(self._decider, self.dispatcher, archive, operation.wall)
        self._store = store
        self._operation = operation
        self._steering = steering
        self._progress = progress
        self._observe = observe
        self._ends, self._inbox = anyio.create_memory_object_stream[_End | None](
            max_buffer_size=float("inf")
        )
        self._clocks: TaskGroup | None = None
        self._is_out_of_time = False

    async def run(self) -> None:
        """Decide and send until the run has stopped, or an interrupt has drained it.

        Raises
        ------
        StorageFailed
            A commit failed. Nothing was sent after it; calls under way are charged as uncertain
            when the run is resumed.
        """
        try:
            async with anyio.create_task_group() as clocks, self._ends, self._inbox:
                self._clocks = clocks
                if self._operation.takes_signals and signals.can_listen():
                    await clocks.start(signals.listen, self.interrupt)
                if self._operation.wall_clock_s is not None:
                    clocks.start_soon(self._run_out_of_time, self._operation.wall_clock_s)
                if self._steering is not None:
                    clocks.start_soon(self._tick, self._steering)
                try:
                    async with anyio.create_task_group() as calls:
                        await self._decide_to_the_end(calls)
                        calls.cancel_scope.cancel()
                finally:
                    self._clocks = None  # an interrupt that comes now has nothing to end
                clocks.cancel_scope.cancel()
        except BaseExceptionGroup as group:
            raise first_error(group) from None

    def interrupt(self) -> None:
        """Drain at the first call: ask nothing more, receive for the grace. Cut at the second."""
        if self.is_draining:
            self.is_cut = True
        else:
            self.is_draining = True
            if self._clocks is not None:
                self._clocks.start_soon(self._cut_after_grace)
        self._wake()

    # --- the loop -------------------------------------------------------------------------------

    async def _decide_to_the_end(self, calls: TaskGroup) -> None:
        self._decider.take_up_unsent()
        ends: list[_End] = []
        while True:
            await self._take_turn(ends, calls)
            if self._decider.has_more and not self._is_held:
                ends = await self._receive_at_once()
                continue
            if self._is_over():
                return
            ends = await self._receive()

    def _is_over(self) -> bool:
        if self.is_cut:
            return True
        if self.state.stopped is not None:
            return self.state.is_drained
        if self.is_draining:
            return not any(at.sent for at in self.state.open.values())
        if self.dispatcher.in_flight or self.state.is_paused:
            return False
        if math.isinf(self._traffic.wakes_at(self._now())):
            raise OrchestratorError("nothing is under way and nothing can be decided")
        return False

    @property
    def _is_held(self) -> bool:
        """Whether nothing is sent until a command or the end."""
        return self.is_draining or self.state.is_paused or self.state.stopped is not None

    async def _receive(self) -> list[_End]:
        wakes_at = self._traffic.wakes_at(self._now())
        if self._is_held or math.isinf(wakes_at):
            first = await self._inbox.receive()
        else:
            first = None
            with anyio.CancelScope(deadline=wakes_at):
                first = await self._inbox.receive()
        waiting = self._inbox.statistics().current_buffer_used
        in_flight = self.dispatcher.in_flight
        if self._operation.company_s and in_flight > BUSY and 4 * waiting < in_flight:
            await anyio.sleep(self._operation.company_s)
        return [*([] if first is None else [first]), *self._received()]

    async def _receive_at_once(self) -> list[_End]:
        """Take what has come, and let others have a turn: signals and workers."""
        await anyio.lowlevel.checkpoint()
        return self._received()

    def _received(self) -> list[_End]:
        ends: list[_End] = []
        while True:
            try:
                end = self._inbox.receive_nowait()
            except anyio.WouldBlock:
                return ends
            if end is not None:
                ends.append(end)

    async def _take_turn(self, ends: list[_End], calls: TaskGroup) -> None:
        decider, now = self._decider, self._now()
        for job, result in ends:
            self._traffic.ended(job, result, now)
        if self._steering is not None and self._steering.is_due():
            self._steering.obey(decider, self.dispatcher, now)
        if not self.is_draining and self.state.stopped is None:
            self._traffic.pass_time(now)
            if self._is_out_of_time and self.state.limit_reached is None:
                decider.do(LimitReached(which="wall_clock"))
            await decider.decide()
            if self._traffic.gives_up(now):
                await decider.decide()
        if self.state.stopped is not None:
            decider.close_unsent()
        jobs = [] if self._is_held else self._traffic.start(now)
        events = decider.end_turn()
        if events:
            await self._commit(events)
        for job in jobs:
            calls.start_soon(self._call, job)

    async def _commit(self, events: Sequence[Event]) -> None:
        progress = self._progress(self.state, self.dispatcher) if self._progress else None
        await self._store.append(events, progress)
        if self._observe is not None:
            self._observe(events)
        if self._steering is not None:
            self._steering.confirm()

    # --- the workers ----------------------------------------------------------------------------

    async def _call(self, job: Job) -> None:
        self._ends.send_nowait(_End(job, await attempt(job, self._now)))

    # --- clocks ---------------------------------------------------------------------------------

    def _wake(self) -> None:
        with suppress(anyio.ClosedResourceError):  # the run is over
            self._ends.send_nowait(None)

    async def _cut_after_grace(self) -> None:
        await anyio.sleep(self._operation.grace_s)
        self.is_cut = True
        self._wake()

    async def _tick(self, steering: Steering) -> None:
        """Look for commands from outside, and show how long the waits still are."""
        while True:
            await anyio.sleep(POLL_S)
            if steering.is_due():
                self._wake()
            if self._observe is not None:
                self._observe(())

    async def _run_out_of_time(self, wall_clock_s: float) -> None:
        await anyio.sleep(wall_clock_s)
        self._is_out_of_time = True
        self._wake()


def first_error(group: BaseExceptionGroup[BaseException]) -> BaseException:
    """Unwrap what task groups wrap: the first error, since one ends the run."""
    error: BaseException = group
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error
