"""What all stores share: sequence numbers, the two hash chains, and the audit of a log.

Every row carries a `link`, a hash over all rows up to it, so that any change to the log is found
and named by its row. A second chain over decision events alone gives the run's fingerprint.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import NamedTuple

from orchestrator.core.errors import CorruptLog
from orchestrator.core.events import DECISIONS, GENESIS, Event, Stopped, link
from orchestrator.core.ids import Seq
from orchestrator.core.ports import Row
from orchestrator.store.codec import decode, digest, encode


class Line(NamedTuple):
    """One row as it is kept."""

    seq: int
    kind: str
    version: int
    body: str
    link: bytes
    at: float


class Fault(NamedTuple):
    """Something in a log that is not as it was written."""

    seq: int
    what: str


class Chain:
    """Numbers and links the rows of one log."""

    __slots__ = ("clock", "fingerprint", "head", "last", "seq")

    def __init__(self, clock: Callable[[], float] = time.time) -> None:
        self.clock = clock
        self.seq = 0
        self.last = GENESIS
        """Link of the last row."""
        self.head = GENESIS
        """Head of the chain over decision events."""
        self.fingerprint = ""
        """The head at the last stop, in hex; empty before the first."""

    def extend(self, events: Sequence[Event]) -> list[Line]:
        """Encode events as the next rows."""
        at = self.clock()
        lines = []
        for event in events:
            kind, version, body = encode(event)
            self._advance(kind, version, body)
            lines.append(Line(self.seq, kind, version, body.decode(), self.last, at))
        return lines

    def follow(self, lines: Iterable[Line]) -> Iterator[Row]:
        """Decode rows in order, taking the chain along.

        Raises
        ------
        CorruptLog
            A row can't be decoded or does not follow its predecessor.
        """
        for line in lines:
            self._advance(line.kind, line.version, line.body.encode())
            if line.seq != self.seq or line.link != self.last:
                raise CorruptLog(
                    f"row {line.seq} of the log is not as it was written; run `sortition verify`",
                    seq=line.seq,
                )
            try:
                event = decode(line.kind, line.version, line.body)
            except ValueError as exc:
                raise CorruptLog(f"row {line.seq}: {exc}", seq=line.seq) from exc
            yield Row(Seq(line.seq), line.at, event, line.version)

    def _advance(self, kind: str, version: int, body: bytes) -> None:
        self.seq += 1
        self.last = link(self.last, kind, version, body)
        if kind in DECISIONS:
            self.head = link(self.head, kind, version, body)
            if kind == Stopped.__name__:
                self.fingerprint = self.head.hex()


def unchecked(lines: Iterable[Line]) -> Iterator[Row]:
    """Decode what can be decoded, whatever the hashes say: to tell what a changed row now claims."""
    for line in lines:
        try:
            event = decode(line.kind, line.version, line.body)
            yield Row(Seq(line.seq), line.at, event, line.version)
        except ValueError:
            continue


def audit(
    lines: Iterable[Line], blobs: Iterable[tuple[str, bytes]], end: tuple[int, bytes]
) -> Iterator[Fault]:
    """Compare a log with its own hashes: rows, blobs, and where it is known to `end`."""
    previous, seq = GENESIS, 0
    for line in lines:
        if line.seq != seq + 1:
            yield Fault(line.seq, f"rows {seq + 1} to {line.seq - 1} are gone")
        seq = line.seq
        if link(previous, line.kind, line.version, line.body.encode()) != line.link:
            yield Fault(line.seq, f"the {line.kind} row was changed")
        # Going on from the stored link names each changed row once, not all rows after it.
        previous = line.link
        try:
            decode(line.kind, line.version, line.body)
        except ValueError as exc:
            yield Fault(line.seq, f"the {line.kind} row can't be read: {exc}")
    if end != (seq, previous):
        yield Fault(seq, f"the log ends at row {seq}; it was written up to row {end[0]}")
    for name, data in blobs:
        if digest(data) != name:
            yield Fault(0, f"blob {name} was changed")
