"""The log in one SQLite file: WAL, ``synchronous=FULL``, one writer, group commit.

A commit to disk costs some 4 ms of waiting, so everything that is appended while one runs goes
into the next. `append` returns only once its rows are on disk; `synchronous=NORMAL` would be a
hundred times faster and could forget a hold in a power cut.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from importlib.resources import files
from pathlib import Path
from typing import Any, TypeVar, cast

import anyio
from anyio import to_thread

from orchestrator.core.errors import CorruptLog, SchemaTooNew, StorageFailed, StoreError
from orchestrator.core.events import GENESIS, Event, Reopened, Stopped
from orchestrator.core.ids import Seq
from orchestrator.core.ports import Row
from orchestrator.store.codec import decode, digest
from orchestrator.store.lock import RunLock
from orchestrator.store.log import Chain, Fault, Line, audit, unchecked

SCHEMA_VERSION = 1
DB_NAME = "run.db"
LOCK_NAME = "run.lock"

E = TypeVar("E", bound=Event)

_SELECT_LAST = "SELECT kind, version, body FROM events"
_READ = "SELECT seq, kind, version, body, link, at FROM events ORDER BY seq"
_READ_BLOBS = "SELECT digest, data FROM blobs"


@dataclass(slots=True)
class _Batch:
    """Rows that wait for the next commit together."""

    lines: list[Line] = field(default_factory=list)
    blobs: list[tuple[str, bytes]] = field(default_factory=list)
    progress: bytes | None = None
    committed: anyio.Event = field(default_factory=anyio.Event)


class SqliteStore:
    """One run's log on disk, for its one writer."""

    def __init__(self, directory: Path, connection: sqlite3.Connection, lock: RunLock) -> None:
        self.directory = directory
        self.took_over = lock.took_over
        self._db = connection
        self._lock = lock
        self._chain = Chain()
        self._batch = _Batch()
        self._is_committing = False
        self._failure: StorageFailed | None = None
        self._thread = anyio.CapacityLimiter(1)

    @classmethod
    def create(cls, directory: Path) -> SqliteStore:
        """Start an empty log in an existing directory."""
        lock = RunLock(directory / LOCK_NAME)
        db = _tuned(sqlite3.connect(directory / DB_NAME, check_same_thread=False))
        schema = files("orchestrator.store").joinpath("schema.sql").read_text(encoding="utf-8")
        db.executescript(schema)
        with db:
            db.execute("INSERT INTO meta VALUES ('schema', ?)", (str(SCHEMA_VERSION),))
        return cls(directory, db, lock)

    @classmethod
    def open(cls, directory: Path) -> SqliteStore:
        """Open a run to go on with it. Call `read` to the end before the first append.

        Raises
        ------
        RunLocked, SchemaTooNew, CorruptLog, StoreError
            Another process owns it; a later version wrote it; its file is damaged; it is no run.
        """
        path = _existing(directory)
        lock = RunLock(directory / LOCK_NAME)
        try:
            db = _checked(sqlite3.connect(path, check_same_thread=False), path)
            with _undamaged():
                return cls(directory, _tuned(db), lock)
        except StoreError:
            lock.release()
            raise

    @property
    def head(self) -> bytes:
        """Head of the chain over decision events."""
        return self._chain.head

    @property
    def fingerprint(self) -> str:
        """Head of the chain at the last stop, in hex; empty before the first."""
        return self._chain.fingerprint

    def read(self, after: int = 0) -> Iterator[Row]:
        """Read rows in order. Reading to the end takes up the hash chains.

        Raises
        ------
        CorruptLog
            A row is not as it was written, or the log ends before the last commit did.
        """
        chain = Chain()
        for row in chain.follow(_lines(self._db)):
            if row.seq > after:
                yield row
        if (end := _end(self._db)) != (chain.seq, chain.last):
            raise CorruptLog(
                f"the log ends at row {chain.seq}; it was written up to row {end[0]}; "
                "run `sortition verify`",
                seq=chain.seq,
            )
        self._chain = chain

    async def append(self, events: Sequence[Event], progress: bytes | None = None) -> Seq:
        """Append events; see `Store.append`."""
        if self._failure is not None:
            raise self._failure
        batch = self._batch
        batch.lines += self._chain.extend(events)
        batch.progress = progress or batch.progress
        seq = Seq(self._chain.seq)
        if self._is_committing:
            await batch.committed.wait()
        else:
            # Others may wait for what this call has begun, so its cancellation waits too.
            with anyio.CancelScope(shield=True):
                await self._commit_all()
        if self._failure is not None:
            raise self._failure
        return seq

    def put_blob(self, data: bytes) -> str:
        """Stage a blob for the next append; give its digest."""
        name = digest(data)
        self._batch.blobs.append((name, data))
        return name

    def get_blob(self, digest: str) -> bytes | None:
        """Fetch a committed blob."""
        return _blob(self._db, digest)

    def close(self) -> None:
        """Close the file and give the run free."""
        self._db.close()
        self._lock.release()

    async def _commit_all(self) -> None:
        """Commit batch after batch until none waits: the first to append leads, others follow."""
        self._is_committing = True
        try:
            while self._batch.lines and self._failure is None:
                batch, self._batch = self._batch, _Batch()
                try:
                    await to_thread.run_sync(partial(self._commit, batch), limiter=self._thread)
                except Exception as exc:  # noqa: BLE001  # whatever it is, nothing was written
                    self._failure = StorageFailed(
                        f"the log in {self.directory} could not be written: {exc}"
                    )
                    self._failure.__cause__ = exc
                    self._batch.committed.set()
                finally:
                    batch.committed.set()
        finally:
            self._is_committing = False

    def _commit(self, batch: _Batch) -> None:
        last = batch.lines[-1]
        with self._db:
            self._db.executemany("INSERT INTO events VALUES (?, ?, ?, ?, ?, ?)", batch.lines)
            if batch.blobs:
                self._db.executemany("INSERT OR IGNORE INTO blobs VALUES (?, ?)", batch.blobs)
            self._db.execute(
                "INSERT INTO progress VALUES (1, ?, ?, ?) ON CONFLICT (id) DO UPDATE SET"
                " seq = excluded.seq, link = excluded.link,"
                " body = CASE WHEN excluded.body = '' THEN body ELSE excluded.body END",
                (last.seq, last.link, (batch.progress or b"").decode()),
            )


class SqliteReader:
    """Reads a run, also while its writer is at work; changes nothing in it.

    Raises
    ------
    StoreError
        It is no run. `CorruptLog`, here and in every method: its file is damaged.
    """

    def __init__(self, directory: Path) -> None:
        path = _existing(directory)
        # Only a connection that may write tidies up run.db-wal and run.db-shm when it closes.
        uri = f"{path.absolute().as_uri()}?mode=rw"
        self._db = _checked(sqlite3.connect(uri, uri=True, check_same_thread=False), path)
        self._db.execute("PRAGMA query_only = ON")
        self._chain = Chain()

    @property
    def fingerprint(self) -> str:
        """Head of the chain at the last stop, in hex, as far as was read."""
        return self._chain.fingerprint

    @property
    def head(self) -> bytes:
        """Head of the chain over decision events, as far as was read."""
        return self._chain.head

    def last(self, *kinds: type[E]) -> E | None:
        """Find the last event of some kinds, without reading the log."""
        names = [kind.__name__ for kind in kinds]
        marks = ", ".join("?" * len(names))
        query = f"{_SELECT_LAST} WHERE kind IN ({marks}) ORDER BY seq DESC LIMIT 1"
        row = next(_rows(self._db, query, *names), None)
        if row is None:
            return None
        try:
            return cast("E", decode(*row))
        except ValueError as exc:
            raise CorruptLog(f"the last {row[0]} row can't be read: {exc}", seq=0) from exc

    def stop(self) -> Stopped | None:
        """Give the stop that the run has come to, None while it can go on."""
        last = self.last(Stopped, Reopened)
        return last if isinstance(last, Stopped) else None

    def read(self, after: int = 0) -> Iterator[Row]:
        """Read rows in order from the first."""
        self._chain = Chain()
        return (row for row in self._chain.follow(_lines(self._db)) if row.seq > after)

    def read_unchecked(self) -> Iterator[Row]:
        """Read rows whatever their hashes say."""
        return unchecked(_lines(self._db))

    def progress(self) -> bytes | None:
        """Read what the run was doing at its last commit, without reading the log."""
        row = next(_rows(self._db, "SELECT body FROM progress"), None)
        return row[0].encode() if row and row[0] else None

    def get_blob(self, digest: str) -> bytes | None:
        """Fetch a blob."""
        return _blob(self._db, digest)

    def audit(self) -> Iterator[Fault]:
        """Compare the log with its own hashes, as it stands at one moment."""
        self._db.execute("BEGIN")
        try:
            blobs = cast("Iterator[tuple[str, bytes]]", _rows(self._db, _READ_BLOBS))
            yield from audit(_lines(self._db), blobs, _end(self._db))
        finally:
            self._db.rollback()

    def close(self) -> None:
        """Close the file."""
        self._db.close()


def _existing(directory: Path) -> Path:
    path = directory / DB_NAME
    if not path.is_file():
        raise StoreError(f"{directory} holds no run (no {DB_NAME})")
    return path


def _tuned(db: sqlite3.Connection) -> sqlite3.Connection:
    # One thread at a time uses it: the event loop before the first append, the writer after.
    db.execute("PRAGMA journal_mode = WAL")
    db.execute("PRAGMA synchronous = FULL")
    return db


def _checked(db: sqlite3.Connection, path: Path) -> sqlite3.Connection:
    """Give a connection back if it leads to a log that this version reads; else close it."""
    try:
        with _undamaged(str(path)):
            (version,) = db.execute("SELECT value FROM meta WHERE key = 'schema'").fetchone()
        is_later = int(version) > SCHEMA_VERSION
    except (StoreError, TypeError, ValueError) as exc:
        db.close()
        if isinstance(exc, StoreError):
            raise
        raise StoreError(f"{path} is not a log of Sortition: {exc}") from exc
    if is_later:
        db.close()
        raise SchemaTooNew(
            f"{path} has schema {version}; this version reads up to {SCHEMA_VERSION}"
        )
    return db


@contextmanager
def _undamaged(name: str = DB_NAME) -> Iterator[None]:
    """Say of a file that SQLite can't read that it is damaged."""
    try:
        yield
    except sqlite3.ProgrammingError:
        raise  # a bug of ours
    except sqlite3.DatabaseError as exc:
        raise CorruptLog(f"{name} is damaged, or is not a log of Sortition: {exc}", seq=0) from exc


def _rows(db: sqlite3.Connection, query: str, *values: object) -> Iterator[tuple[Any, ...]]:
    with _undamaged():
        # Not from the cursor itself, which would be closed with this: maybe after its connection.
        yield from map(tuple, db.execute(query, values))


def _lines(db: sqlite3.Connection) -> Iterator[Line]:
    return (Line(*row) for row in _rows(db, _READ))


def _end(db: sqlite3.Connection) -> tuple[int, bytes]:
    """Give the last row that was committed and its link; without a progress row nothing was."""
    row = next(_rows(db, "SELECT seq, link FROM progress"), None)
    return (0, GENESIS) if row is None else (row[0], row[1])


def _blob(db: sqlite3.Connection, digest: str) -> bytes | None:
    row = next(_rows(db, "SELECT data FROM blobs WHERE digest = ?", digest), None)
    return None if row is None else row[0]
