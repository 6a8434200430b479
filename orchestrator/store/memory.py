"""The log in lists: for virtual time, rehearsals and tests. Commits inline, never yields."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from orchestrator.core.errors import StorageFailed
from orchestrator.core.events import Event
from orchestrator.core.ids import Seq
from orchestrator.core.ports import Row
from orchestrator.store.codec import digest
from orchestrator.store.log import Chain, Fault, Line, audit


class MemoryStore:
    """A log that lives as long as the process.

    `lines` and `blobs` start it from what another one held: a crash is a store made from a prefix.
    """

    def __init__(
        self,
        lines: Sequence[Line] = (),
        blobs: dict[str, bytes] | None = None,
        *,
        clock: Callable[[], float] = lambda: 0.0,
    ) -> None:
        self.lines = list(lines)
        self.blobs = dict(blobs or {})
        self.progress: bytes | None = None
        self._chain = Chain(clock)
        for _ in self._chain.follow(self.lines):
            pass

    @property
    def head(self) -> bytes:
        """Head of the chain over decision events."""
        return self._chain.head

    async def append(self, events: Sequence[Event], progress: bytes | None = None) -> Seq:
        """Append events; see `Store.append`."""
        if self._chain.seq < 0:
            raise StorageFailed("the store is closed")
        self.lines += self._chain.extend(events)
        if progress is not None:
            self.progress = progress
        return Seq(self._chain.seq)

    def read(self, after: int = 0) -> Iterator[Row]:
        """Read rows in order."""
        return (row for row in Chain().follow(self.lines) if row.seq > after)

    def put_blob(self, data: bytes) -> str:
        """Keep a blob."""
        name = digest(data)
        self.blobs[name] = data
        return name

    def get_blob(self, digest: str) -> bytes | None:
        """Fetch a blob."""
        return self.blobs.get(digest)

    def audit(self) -> Iterator[Fault]:
        """Compare the log with its own hashes."""
        return audit(self.lines, self.blobs.items(), (self._chain.seq, self._chain.last))

    def close(self) -> None:
        """Take no further events."""
        self._chain.seq = -1
