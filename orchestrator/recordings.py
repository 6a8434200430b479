"""What recorded judges and systems answer from: a file, or the log of another run."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import lru_cache
from hashlib import sha256
from pathlib import Path
from typing import NamedTuple

from judges.recorded import NOT_APPLICABLE, Rating, Recording, load, recording_of
from orchestrator import rundir
from orchestrator.core.errors import InvalidCampaign, Problem, StoreError
from orchestrator.core.ports import Row
from orchestrator.report.export import (
    GetBlob,
    answers,
    generations,
    holds_comparisons,
    votes,
)
from orchestrator.store.sqlite import DB_NAME


class Source(NamedTuple):
    """A recording, and the digest of what it was read from."""

    recording: Recording
    digest: str


def source(path: Path, *, of_systems: bool = False) -> Source:
    """Read a recording; of a run, what its judges said, or what its systems answered.

    A run is digested by the head of its chain of decisions, so it may be moved, and another run
    that came to the same decisions and answers is the same recording.

    Raises
    ------
    InvalidCampaign
        It can't be read.
    """
    if not path.is_dir():
        return Source(load(path, of_systems=of_systems), sha256(path.read_bytes()).hexdigest())
    states = [file.stat() for file in (path / DB_NAME, path / f"{DB_NAME}-wal") if file.exists()]
    try:
        about = tuple((state.st_mtime_ns, state.st_size) for state in states)
        return _of_run(path, about, of_systems)
    except StoreError as exc:
        raise InvalidCampaign(
            [Problem(file=str(path), path="recorded.path", message=str(exc))]
        ) from exc


@lru_cache(maxsize=4)
def _of_run(path: Path, states: tuple[tuple[int, int], ...], of_systems: bool) -> Source:  # noqa: FBT001  # a key of the cache
    del states  # they tell one state of the run from another
    with rundir.reading(path) as reader:
        of = _comparisons if holds_comparisons(reader.read()) else _ratings
        of = _generations if of_systems else of
        recording = recording_of(path, of(reader.read(), reader.get_blob))
        return Source(recording, reader.head.hex())


def _generations(rows: Iterable[Row], get_blob: GetBlob) -> Iterator[tuple[None, Rating]]:
    """Turn what systems answered into answers; one that is missing is blank, as in a file."""
    for row in generations(rows, get_blob):
        yield None, (row.id, row.system, "0", row.answer or "", "")


def _comparisons(rows: Iterable[Row], get_blob: GetBlob) -> Iterator[tuple[None, Rating]]:
    """Turn verdicts into comparisons; what is missing was not answered, and is left out."""
    for row in votes(rows, get_blob):
        if row.missing is None:
            said, criterion = row.winner or NOT_APPLICABLE, row.criterion or ""
            about = (row.item_id, row.judge, str(row.replicate))
            yield None, (*about, said, criterion, row.left, row.right)


def _ratings(rows: Iterable[Row], get_blob: GetBlob) -> Iterator[tuple[None, Rating]]:
    """Turn verdicts into ratings; what is missing was not answered, and is left out."""
    for row in answers(rows, get_blob):
        if row.missing is None:
            score = NOT_APPLICABLE if row.value is None else repr(row.value)
            criterion = row.criterion or ""
            yield None, (row.item, row.judge, str(row.replicate), score, criterion, row.arm)
