"""Whole campaigns under virtual time: hours of waiting pass in milliseconds, exactly."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import anyio
import trio.testing

from orchestrator.core.events import Event, Started
from orchestrator.core.ports import Store
from orchestrator.engine.crew import Crew
from orchestrator.engine.fold import State
from orchestrator.engine.resume import repair, take_up
from orchestrator.engine.scheduler import Operation, Scheduler, first_error
from orchestrator.store.memory import MemoryStore
from orchestrator.testing.fakes import MemoryArchive


@dataclass(frozen=True, slots=True, kw_only=True)
class VirtualRun:
    """What a run under virtual time left behind."""

    state: State
    store: MemoryStore
    archive: MemoryArchive
    took_s: float

    @property
    def events(self) -> list[Event]:
        """All events of the log."""
        return [row.event for row in self.store.read()]

    @property
    def fingerprint(self) -> str:
        """The head of the chain over decision events."""
        return self.store.head.hex()


def run_virtually(
    crew: Crew,
    store: MemoryStore | None = None,
    archive: MemoryArchive | None = None,
    *,
    first: Sequence[Event] = (),
    interrupt_at_s: float | None = None,
    watch: Callable[[State, Sequence[Event]], None] | None = None,
    operation: Operation | None = None,
) -> VirtualRun:
    """Resume a log (empty: a new run) and carry it to its end.

    `first` are events to append before going on (a changed cap). `watch` hears the state after
    every commit.
    """
    log = store or MemoryStore()
    kept = archive or MemoryArchive()
    state = State(replace(crew, recall=kept.recall))
    clock = trio.testing.MockClock(autojump_threshold=0)

    async def main() -> float:
        await _start(state, log, first)
        scheduler = Scheduler(
            state,
            log,
            kept,
            operation or Operation(max_in_flight=64),
            observe=None if watch is None else lambda events: watch(state, events),
        )
        began = anyio.current_time()
        async with anyio.create_task_group() as tasks:
            if interrupt_at_s is not None:
                tasks.start_soon(_interrupt, scheduler, interrupt_at_s)
            await scheduler.run()
            tasks.cancel_scope.cancel()
        return anyio.current_time() - began

    try:
        took_s = anyio.run(main, backend="trio", backend_options={"clock": clock})
    except BaseExceptionGroup as group:
        raise first_error(group) from None
    return VirtualRun(state=state, store=log, archive=kept, took_s=took_s)


async def _start(state: State, store: Store, first: Sequence[Event]) -> None:
    take_up(state, store.read())
    is_new = not state.is_opened
    if is_new:
        state.apply(state.crew.opened)
        await store.append([state.crew.opened])
    events = repair(state)
    for event in first:
        state.apply(event)
    events += first
    if state.stopped is None and (events or not is_new):
        events.append(Started(about={}))
    if events:
        await store.append(events)


async def _interrupt(scheduler: Scheduler, at_s: float) -> None:
    await anyio.sleep(at_s)
    scheduler.interrupt()
