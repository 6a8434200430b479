"""The contract of a store. A store's test subclasses it and says how to make and reopen one."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import anyio
import pytest

from orchestrator.core.errors import CorruptLog
from orchestrator.core.events import Asked, Opened, Sent, Told
from orchestrator.core.ids import JudgeIx, QNo, UnitIx
from orchestrator.core.money import Nano
from orchestrator.core.query import Kind, Query
from orchestrator.store.log import Chain


def asked(q: int) -> Asked:
    """Make a question event."""
    query = Query(kind=Kind.RATE, judge=JudgeIx(0), units=(UnitIx(q),))
    return Asked(q=QNo(q), query=query, hold=Nano(7))


class StoreContract:
    """What every store keeps to."""

    @pytest.fixture
    def store(self) -> Any:
        """Make an empty store."""
        raise AssertionError("a store's test overrides this fixture")

    @pytest.fixture
    def reopened(self) -> Callable[[Any], Any]:
        """Give a function that closes a store and opens what it held, fully read."""
        raise AssertionError("a store's test overrides this fixture")

    def test_what_was_appended_is_read_in_order(self, store: Any, reopened: Any) -> None:
        """All events come back as they were, numbered from 1."""
        events = [asked(0), Sent(q=QNo(0), attempt=1), asked(1), Told(q=QNo(0), digest="d")]

        async def main() -> None:
            assert await store.append(events[:1]) == 1
            assert await store.append(events[1:]) == len(events)

        anyio.run(main)
        again = reopened(store)
        rows = list(again.read())
        assert [row.event for row in rows] == events
        assert [row.seq for row in rows] == [1, 2, 3, 4]

    def test_head_chains_decision_events_alone(self, store: Any) -> None:
        """Facts leave the fingerprint as it is."""
        heads = []

        async def main() -> None:
            for event in (asked(0), Sent(q=QNo(0), attempt=1), asked(1)):
                await store.append([event])
                heads.append(store.head)

        anyio.run(main)
        assert heads[0] == heads[1] != heads[2]

    def test_head_is_taken_up_on_reopening(self, store: Any, reopened: Any) -> None:
        """A reopened log goes on with the same chain."""
        anyio.run(store.append, [asked(0), asked(1)])
        head = store.head
        assert reopened(store).head == head

    def test_appends_that_wait_together_keep_their_order(self, store: Any, reopened: Any) -> None:
        """Concurrent appends are all durable on return, in the order of the calls."""

        async def main() -> None:
            async with anyio.create_task_group() as tasks:
                for q in range(50):
                    tasks.start_soon(store.append, [asked(q)])

        anyio.run(main)
        assert [row.event for row in reopened(store).read()] == [asked(q) for q in range(50)]

    def test_blobs_are_found_by_their_digest(self, store: Any, reopened: Any) -> None:
        """A staged blob is there after the next append, and once for equal contents."""
        names = [store.put_blob(data) for data in (b"one", b"two", b"one")]
        anyio.run(store.append, [asked(0)])
        again = reopened(store)
        assert names[0] == names[2] != names[1]
        assert [again.get_blob(name) for name in names] == [b"one", b"two", b"one"]
        assert again.get_blob("0" * 32) is None

    def test_a_changed_row_is_refused_on_reading(self) -> None:
        """A log whose rows do not follow from each other can't be resumed."""
        lines = Chain().extend([asked(0), asked(1), asked(2)])
        changed = lines[1]._replace(body=lines[1].body.replace('"hold":7', '"hold":6'))
        with pytest.raises(CorruptLog, match="row 2"):
            list(Chain().follow([lines[0], changed, lines[2]]))

    def test_opening_event_survives_with_its_document(self, store: Any, reopened: Any) -> None:
        """Free-form JSON in an event comes back equal."""
        opened = Opened(
            identity={"name": "ü", "list": [1, 2.5, None, True], "deep": {"x": {}}},
            digest="d",
            seed=3,
            cap=None,
            judge_caps=(None, Nano(3)),
            role_caps={"judge": Nano(1)},
            cards=(),
            max_requests=None,
            max_tok=None,
            max_uncertain=None,
            window=4,
            looks=25,
        )
        anyio.run(store.append, [opened])
        (row,) = reopened(store).read()
        assert row.event == opened
