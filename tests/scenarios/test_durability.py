"""What is on disk when a judge is called: the question, its hold and the attempt, before a byte."""

from __future__ import annotations

import anyio
import numpy as np

from orchestrator.core.errors import Overloaded, TimedOut
from orchestrator.core.events import Asked, Reasked, Sent
from orchestrator.engine.fold import State
from orchestrator.engine.resume import repair, take_up
from orchestrator.engine.scheduler import Operation, Scheduler
from orchestrator.store.archive import BlobArchive, KeepPrompts, KeepReplies
from orchestrator.store.sqlite import SqliteReader, SqliteStore
from orchestrator.testing.fakes import FakeAdapter, Script, fake_crew


def test_a_second_connection_finds_question_and_attempt_when_send_is_called(tmp_path):
    """From inside `send`, a read-only connection sees Asked and Sent of this very attempt, and the
    holds on disk cover every call under way."""
    rng = np.random.default_rng(1)
    under_way, seen = set(), 0

    async def look(request):
        nonlocal seen
        unit, number = request.query.units[0], request.attempt.number
        under_way.add(unit)
        reader = SqliteReader(tmp_path)
        events = [row.event for row in reader.read()]
        reader.close()
        (asked,) = [e for e in events if isinstance(e, Asked) and e.query == request.query]
        assert any(isinstance(e, Sent) and (e.q, e.attempt) == (asked.q, number) for e in events)
        if number > 1 and request.attempt.paid:
            assert any(isinstance(e, Reasked) and e.q == asked.q for e in events)
        state = State(crew)
        for event in events:
            state.apply(event)
        assert state.ledger.campaign.held >= 22_000_000 * len(under_way)
        seen += 1

    def script(request):
        under_way.discard(request.query.units[0])
        draw = rng.random()
        error = TimedOut() if draw < 0.1 else Overloaded(retry_after_s=0.0) if draw < 0.2 else None
        return Script(latency_s=float(rng.exponential(0.002)), error=error)

    judge = FakeAdapter(script, before_send=look)
    crew = fake_crew([judge], n_units=40, cap=10**10, window=16)

    async def main():
        store = SqliteStore.create(tmp_path)
        await store.append([crew.opened])
        state = State(crew)
        take_up(state, store.read())
        assert repair(state) == []
        archive = BlobArchive(store, KeepPrompts.FULL, KeepReplies.FULL)
        await Scheduler(state, store, archive, Operation(max_in_flight=8)).run()
        store.close()
        return state

    state = anyio.run(main)
    assert state.n_told == 40
    assert seen == len(judge.sent) > 40
