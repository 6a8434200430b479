"""A log that processes carry on one after another, whatever befalls them."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from pathlib import Path

import anyio
import pytest
import trio.testing

from orchestrator.core.events import (
    CapChanged,
    Continued,
    JudgeUp,
    PriceChanged,
    Reopened,
    Started,
)
from orchestrator.core.stopping import COMPLETE, StopReason
from orchestrator.engine.fold import State
from orchestrator.engine.resume import repair, take_up
from orchestrator.engine.scheduler import Operation, Scheduler, first_error
from orchestrator.engine.verify import Kept, verify
from orchestrator.steering import Helm
from orchestrator.store.archive import name_prompt
from orchestrator.store.memory import MemoryStore
from orchestrator.testing.fakes import MemoryArchive

LONG_S = 1e6
"""No honest run takes as long."""


class Crash(Exception):
    """The process is gone."""


class Box:
    """A mailbox whose commands come at times."""

    def __init__(self, commands):
        self._commands = sorted(commands, key=lambda entry: entry[0])
        self.said = []

    def has_mail(self):
        return bool(self._commands) and anyio.current_time() >= self._commands[0][0]

    def take(self):
        found = []
        while self.has_mail():
            found.append((Path("command"), self._commands.pop(0)[1]))
        return found

    def answer(self, path, *, ok, message):
        self.said.append((ok, message))


@dataclass
class Attacked:
    """A log that processes carry on one after another."""

    crew: object
    operation: Operation
    store: MemoryStore = field(default_factory=MemoryStore)
    archive: MemoryArchive = field(default_factory=MemoryArchive)
    hear: object = lambda state, events: None
    state: State | None = None
    box: Box | None = None
    took_s: float = 0.0

    def go(
        self,
        *,
        commands=(),
        interrupt_at_s=None,
        crash_at_s=None,
        crash_after=None,
        reopens=False,
        cap=None,
        cards=None,
    ):
        """Take the run up and carry it on; says whether the process ended by itself.

        `cap` and `cards` (by judge) are what the campaign file says by now. A run that has stopped goes
        on if it `reopens`, and can.
        """
        self.state = State(replace(self.crew, recall=self.archive.recall))
        self.box = Box(commands)
        clock = trio.testing.MockClock(autojump_threshold=0)
        try:
            anyio.run(
                self._main,
                interrupt_at_s,
                crash_at_s,
                crash_after,
                (reopens, cap, cards or {}),
                backend="trio",
                backend_options={"clock": clock},
            )
        except BaseExceptionGroup as group:
            error = first_error(group)
            if not isinstance(error, Crash):
                raise error from None
            return False
        return True

    async def _main(self, interrupt_at_s, crash_at_s, crash_after, changes):
        await self._take_up(changes)
        n_commits = 0

        def observe(events):
            nonlocal n_commits
            n_commits += bool(events)
            self.hear(self.state, events)
            if n_commits == crash_after:
                raise Crash

        run = Scheduler(
            self.state,
            self.store,
            self.archive,
            self.operation,
            observe=observe,
            steering=Helm(self.box, lambda told: Started(about={"told": dict(told)})),
        )

        async def at(seconds, do):
            await anyio.sleep(seconds)
            do()

        def crash():
            raise Crash

        def hang():
            pytest.fail("the run hangs")

        began = anyio.current_time()
        async with anyio.create_task_group() as tasks:
            if interrupt_at_s is not None:
                tasks.start_soon(at, interrupt_at_s, run.interrupt)
            if crash_at_s is not None:
                tasks.start_soon(at, crash_at_s, crash)
            tasks.start_soon(at, LONG_S, hang)
            await run.run()
            tasks.cancel_scope.cancel()
        self.took_s = anyio.current_time() - began

    async def _take_up(self, changes):
        state = self.state
        take_up(state, self.store.read())
        if not state.is_opened:
            state.apply(self.crew.opened)
            await self.store.append([self.crew.opened])
            return
        events = repair(state) if state.stopped is not None else []
        for event in self._changes(*changes):
            state.apply(event)
            events.append(event)
        events += repair(state)
        if state.stopped is None:
            events.append(Started(about={}))
        if events:
            await self.store.append(events)
            self.hear(state, events)

    def _changes(self, reopens, cap, cards):
        """Bring into the log what may change between processes."""
        state = self.state
        account = state.ledger.campaign
        is_raised = cap is not None and account.cap is not None and cap > account.cap
        if state.stopped is not None:
            is_lasting = state.stopped in COMPLETE or not reopens
            if is_lasting or (state.stopped is StopReason.BUDGET and not is_raised):
                return
            yield Reopened(settled=account.settled, uncertain=account.uncertain)
        elif state.is_paused:
            yield Continued()
        if cap is not None and cap >= account.committed and cap != account.cap:
            yield CapChanged(cap=cap)
        for ix, judge in enumerate(state.judges):
            if cards.get(ix, state.cards[ix]) != state.cards[ix]:
                yield PriceChanged(judge=ix, card=cards[ix])
            if judge.is_down:
                yield JudgeUp(judge=ix)

    @property
    def events(self):
        return [row.event for row in self.store.read()]

    def of(self, kind):
        return [event for event in self.events if isinstance(event, kind)]

    def check(self, *, prompts=False):
        """Nothing in the log contradicts the replay."""
        kept = Kept(replies=True, cache=True, prompts=prompts)
        found = verify(
            State(self.crew),
            self.store.read(),
            self.archive.recall,
            name_prompt if prompts else lambda _: "",
            kept=kept,
        )
        differences = list(found)
        assert not differences, differences[0]
