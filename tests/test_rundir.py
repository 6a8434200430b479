"""A run directory: who makes it, which is the newest, what stays beside the log."""

from __future__ import annotations

import sqlite3
from concurrent.futures import ThreadPoolExecutor

import anyio
import pytest

from orchestrator import rundir
from orchestrator.core.errors import ConfigError, RunLocked, StoreError
from orchestrator.core.events import Stopped
from orchestrator.core.stopping import StopReason
from orchestrator.store.sqlite import SqliteStore
from orchestrator.testing.stores import asked


def make(target, *events):
    anyio.run(rundir.create, target, lambda _: list(events or [asked(0)]))


def names(folder):
    return sorted(path.name for path in folder.iterdir())


def test_of_two_that_make_one_directory_one_is_told_so_and_nothing_is_left(tmp_path):
    """Each makes its own folder unseen; the first to finish has the name."""
    target = tmp_path / "run"

    def slower(store):
        with ThreadPoolExecutor() as thread:  # the other process, meanwhile
            thread.submit(make, target, asked(7)).result()
        return [asked(0)]

    with pytest.raises(RunLocked, match="another process has just made"):
        anyio.run(rundir.create, target, slower)
    assert names(tmp_path) == ["run"]
    with rundir.reading(target) as reader:
        assert [row.event for row in reader.read()] == [asked(7)]


def test_an_opening_that_fails_leaves_no_folder(tmp_path):
    def fail(store):
        raise ConfigError("no")

    with pytest.raises(ConfigError):
        anyio.run(rundir.create, tmp_path / "run", fail)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("unfinished", [True, False])
def test_a_broken_run_is_passed_over_with_a_notice(tmp_path, unfinished):
    make(tmp_path / "a")
    make(tmp_path / "b", asked(0), Stopped(reason=StopReason.FINISHED))
    for name, damage in (("c", b"no database at all " * 100), ("d", b"")):
        (tmp_path / name).mkdir()
        (tmp_path / name / "run.db").write_bytes(damage)
    heard = []
    found = rundir.newest(tmp_path, unfinished=unfinished, notice=heard.append)
    assert found == tmp_path / ("a" if unfinished else "b")
    assert [line.split(" is passed over")[0] for line in heard] == [
        str(tmp_path / "d"),
        str(tmp_path / "c"),
    ]


def test_a_folder_of_broken_runs_holds_none(tmp_path):
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "run.db").write_bytes(b"")
    with pytest.raises(StoreError, match="no run in"):
        rundir.newest(tmp_path, unfinished=False, notice=lambda _: None)


def test_reading_leaves_no_file_beside_the_log(tmp_path):
    """Also where the writer closed while it was being read."""
    make(tmp_path / "run")
    run = tmp_path / "run"
    with rundir.reading(run) as reader:
        list(reader.read())
    assert names(run) == ["run.db", "run.lock"]
    store = SqliteStore.open(run)
    list(store.read())
    with rundir.reading(run) as reader:
        list(reader.read())
        anyio.run(store.append, [asked(1)])
        store.close()
    assert names(run) == ["run.db", "run.lock"]
    with sqlite3.connect(f"file:{run / 'run.db'}?immutable=1", uri=True) as alone:
        assert alone.execute("SELECT count(*) FROM events").fetchone() == (2,)
    alone.close()


def test_a_reader_can_change_nothing(tmp_path):
    make(tmp_path / "run")
    with (
        rundir.reading(tmp_path / "run") as reader,
        pytest.raises(sqlite3.OperationalError, match="readonly"),
    ):
        reader._db.execute("DELETE FROM events")
