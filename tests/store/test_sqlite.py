import json
import os
import sqlite3
import subprocess
import sys
from contextlib import closing

import anyio
import anyio.lowlevel
import pytest

from orchestrator.core.errors import CorruptLog, RunLocked, SchemaTooNew, StorageFailed, StoreError
from orchestrator.store.sqlite import SqliteReader, SqliteStore
from orchestrator.testing.stores import StoreContract, asked


class TestSqliteStore(StoreContract):
    @pytest.fixture
    def store(self, tmp_path):
        store = SqliteStore.create(tmp_path)
        yield store
        store.close()

    @pytest.fixture
    def reopened(self, tmp_path):
        opened = []

        def reopen(store):
            store.close()
            again = SqliteStore.open(tmp_path)
            rows = list(again.read())
            again.read = lambda after=0: (row for row in rows if row.seq > after)
            opened.append(again)
            return again

        yield reopen
        for store in opened:
            store.close()


def test_a_reader_sees_rows_as_soon_as_append_returns(tmp_path):
    """What append has returned for is on disk for every other process."""
    store = SqliteStore.create(tmp_path)
    reader = SqliteReader(tmp_path)
    anyio.run(store.append, [asked(0)], b'{"n": 1}')
    assert [row.event for row in reader.read()] == [asked(0)]
    assert reader.progress() == b'{"n": 1}'
    anyio.run(store.append, [asked(1)])
    assert reader.progress() == b'{"n": 1}'
    assert list(reader.audit()) == []
    reader.close()
    store.close()


def test_a_second_owner_is_refused_and_told_who_owns_the_run(tmp_path):
    """C22: the lock names process, host and start; nothing is written."""
    store = SqliteStore.create(tmp_path)
    before = (tmp_path / "run.lock").read_bytes()
    with pytest.raises(RunLocked, match=f"process {os.getpid()} on .*, started "):
        SqliteStore.open(tmp_path)
    assert (tmp_path / "run.lock").read_bytes() == before
    store.close()


def test_the_lock_of_a_dead_process_is_taken_over_with_a_notice(tmp_path):
    """C22: the operating system frees the lock, and the new owner says whose it was."""
    SqliteStore.create(tmp_path).close()
    code = (
        "import os, pathlib; from orchestrator.store.sqlite import SqliteStore;"
        f"SqliteStore.open(pathlib.Path({str(tmp_path)!r})); print(os.getpid()); os._exit(9)"
    )
    dead = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    store = SqliteStore.open(tmp_path)
    assert store.took_over is not None
    assert f"process {dead.stdout.strip()}" in store.took_over
    store.close()


def test_a_full_disk_keeps_nothing_of_the_failed_commit_and_takes_no_more(tmp_path):
    """C52: a commit that fails leaves the log as it was; the store refuses all later appends."""
    store = SqliteStore.create(tmp_path)
    anyio.run(store.append, [asked(0)])
    pages = store._db.execute("PRAGMA page_count").fetchone()[0]
    store._db.execute(f"PRAGMA max_page_count = {pages}")
    with pytest.raises(StorageFailed, match="could not be written"):
        anyio.run(store.append, [asked(q) for q in range(1, 2000)])
    with pytest.raises(StorageFailed):
        anyio.run(store.append, [asked(1)])
    store.close()
    again = SqliteStore.open(tmp_path)
    assert [row.event for row in again.read()] == [asked(0)]
    again.close()


def test_all_who_wait_for_a_failed_commit_hear_of_it(tmp_path):
    """No append returns as durable when the commit it waits for fails."""
    store = SqliteStore.create(tmp_path)
    pages = store._db.execute("PRAGMA page_count").fetchone()[0]
    store._db.execute(f"PRAGMA max_page_count = {pages}")
    failed = []

    async def append(q):
        try:
            await store.append([asked(q * 1000 + i) for i in range(1000)])
        except StorageFailed:
            failed.append(q)

    async def main():
        async with anyio.create_task_group() as tasks:
            for q in range(8):
                tasks.start_soon(append, q)

    anyio.run(main)
    assert sorted(failed) == list(range(8))
    store.close()


def test_a_cancelled_append_leaves_nobody_waiting(tmp_path):
    """Who leads a commit and is cancelled still finishes it, and those that wait for theirs."""
    store = SqliteStore.create(tmp_path)
    done = []

    async def append(q):
        await store.append([asked(q)])
        done.append(q)

    async def main():
        async with anyio.create_task_group() as followers, anyio.create_task_group() as leader:
            leader.start_soon(append, 0)
            await anyio.lowlevel.checkpoint()
            for q in range(1, 5):
                followers.start_soon(append, q)
            await anyio.lowlevel.checkpoint()
            leader.cancel_scope.cancel()

    anyio.run(main)
    assert sorted(set(done) | {0}) == list(range(5))
    store.close()
    again = SqliteStore.open(tmp_path)
    assert [row.event for row in again.read()] == [asked(q) for q in range(5)]
    again.close()


def test_a_later_schema_is_refused(tmp_path):
    SqliteStore.create(tmp_path).close()
    db = sqlite3.connect(tmp_path / "run.db")
    db.execute("UPDATE meta SET value = '99' WHERE key = 'schema'")
    db.commit()
    db.close()
    with pytest.raises(SchemaTooNew, match="schema 99"):
        SqliteReader(tmp_path)


def test_a_folder_without_a_run_is_refused(tmp_path):
    with pytest.raises(StoreError, match="holds no run"):
        SqliteStore.open(tmp_path)
    (tmp_path / "run.db").write_text("not a database, but long enough to be read as one" * 40)
    for opens in (SqliteReader, SqliteStore.open, SqliteStore.open):
        with pytest.raises(StoreError, match="not a log of Sortition"):
            opens(tmp_path)


def test_any_failure_of_a_commit_is_heard_by_all_that_wait(tmp_path, monkeypatch):
    """Also one that SQLite knows nothing of: no append returns for rows that were never written."""
    store = SqliteStore.create(tmp_path)

    def fail(batch):
        raise OverflowError("too large an integer")

    monkeypatch.setattr(store, "_commit", fail)
    failed = []

    async def append(q):
        try:
            await store.append([asked(q)])
        except StorageFailed:
            failed.append(q)

    async def main():
        async with anyio.create_task_group() as tasks:
            for q in range(4):
                tasks.start_soon(append, q)

    anyio.run(main)
    assert sorted(failed) == list(range(4))
    store.close()


@pytest.mark.parametrize(
    ("tamper", "what"),
    [
        ("UPDATE events SET body = replace(body, '\"hold\":7', '\"hold\":6') WHERE seq = 2", "row"),
        ("DELETE FROM events WHERE seq = 3", "gone"),
        ("DELETE FROM events WHERE seq = 4", "the log ends at row 3"),
        ("UPDATE blobs SET data = X'00'", "blob"),
        ("DELETE FROM progress", "written up to row 0"),
    ],
)
def test_an_audit_names_what_was_changed(tmp_path, tamper, what):
    store = SqliteStore.create(tmp_path)
    store.put_blob(b"reply")
    anyio.run(store.append, [asked(q) for q in range(4)])
    store.close()
    db = sqlite3.connect(tmp_path / "run.db")
    db.execute(tamper)
    db.commit()
    db.close()
    reader = SqliteReader(tmp_path)
    faults = [fault.what for fault in reader.audit()]
    reader.close()
    assert any(what in fault for fault in faults), faults


def test_an_audit_sees_one_moment_of_a_run_under_way(tmp_path):
    """Rows that are committed while it reads are neither missing nor too many."""
    store = SqliteStore.create(tmp_path)
    anyio.run(store.append, [asked(0)])
    reader = SqliteReader(tmp_path)
    real = reader._db

    class Slow:
        """Lets the writer commit between two statements."""

        def execute(self, query, values=()):
            cursor = real.execute(query, values)
            if "progress" in query:
                anyio.run(store.append, [asked(1)])
            return cursor

        def rollback(self):
            real.rollback()

    reader._db = Slow()
    assert list(reader.audit()) == []
    reader._db = real
    assert len(list(reader.read())) == 2
    reader.close()
    store.close()


def damage(path):
    """Overwrite the pages behind the first, where the rows are."""
    data = bytearray(path.read_bytes())
    data[4096:] = b"\xff" * (len(data) - 4096)
    path.write_bytes(data)


def test_a_damaged_file_is_a_corrupt_log_for_whoever_reads_it(tmp_path):
    store = SqliteStore.create(tmp_path)
    anyio.run(store.append, [asked(q) for q in range(500)])
    store.close()
    damage(tmp_path / "run.db")

    def read():
        with closing(SqliteReader(tmp_path)) as reader:
            return list(reader.read())

    def audit():
        with closing(SqliteReader(tmp_path)) as reader:
            return list(reader.audit())

    def go_on():
        with closing(SqliteStore.open(tmp_path)) as opened:
            return list(opened.read())

    for use in (read, audit, go_on, go_on):
        with pytest.raises(CorruptLog, match="damaged"):
            use()


def test_a_log_whose_progress_is_gone_is_not_gone_on_with(tmp_path):
    store = SqliteStore.create(tmp_path)
    anyio.run(store.append, [asked(0)])
    store.close()
    with closing(sqlite3.connect(tmp_path / "run.db")) as db:
        db.execute("DELETE FROM progress")
        db.commit()
    with closing(SqliteStore.open(tmp_path)) as opened, pytest.raises(CorruptLog):
        list(opened.read())


def test_the_log_can_be_read_with_any_tool(tmp_path):
    """Bodies are JSON text."""
    store = SqliteStore.create(tmp_path)
    anyio.run(store.append, [asked(5)])
    (body,) = store._db.execute("SELECT body FROM events").fetchone()
    store.close()
    assert json.loads(body)["query"]["units"] == [5]
