"""`sortition verify`: everything that can be checked of a run, from its log."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path

from orchestrator import rundir
from orchestrator.build import identity_digest
from orchestrator.campaign import Campaign
from orchestrator.core.events import Opened, Started
from orchestrator.core.ports import Row
from orchestrator.core.wire import Json
from orchestrator.engine.fold import State
from orchestrator.engine.verify import verify
from orchestrator.report.result import document
from orchestrator.session import check_identity, differences
from orchestrator.store.archive import name_prompt, recall
from orchestrator.store.sqlite import SqliteReader


def check(directory: Path) -> Iterator[str]:
    """Name every difference between a run's log and what it should hold.

    The hash chain and blobs; every decision, hold, cost and reading, lived through again with the
    campaign file; every number of `result.json`.

    Raises
    ------
    ConfigError, IdentityChanged
        The campaign file is gone or changed, so decisions can't be lived through again.
    """
    with rundir.reading(directory) as reader:
        faults = list(reader.audit())
        yield from (
            f"row {fault.seq}: {fault.what}" if fault.seq else fault.what for fault in faults
        )
        yield from _replay(reader)
    if not faults:
        yield from _result(directory)


def _replay(reader: SqliteReader) -> Iterator[str]:
    first = next(reader.read_unchecked(), None)
    if first is None or not isinstance(first.event, Opened):
        yield "row 1: the log does not begin with the opening of a run"
        return
    about = _last_started(reader.read_unchecked())
    crew = Campaign.again(about).build().crew
    check_identity(first.event, crew.opened)
    if identity_digest(first.event.identity) != first.event.digest:
        yield "row 1: the identity is not the one that its digest names"
    for name in _FIXED:
        if getattr(first.event, name) != getattr(crew.opened, name):
            yield f"row 1: {name} is not what the campaign file says"
    state = State(replace(crew, opened=first.event))
    rows = reader.read_unchecked()
    for difference in verify(state, rows, partial(recall, reader), name_prompt):
        yield f"row {difference.seq}: {difference.what}"


_FIXED = ("seed", "judge_caps", "role_caps", "max_requests", "max_tok", "looks")
"""What the opening takes from the campaign file, besides what overrides and events may change."""


def _result(directory: Path) -> Iterator[str]:
    path = directory / rundir.RESULT_NAME
    if not path.exists():
        return
    try:
        written = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as exc:
        yield f"{path.name} can't be read: {exc}"
        return
    again = json.loads(json.dumps(document(rundir.summary(directory))))
    written.pop("run", None)  # a run directory may be renamed
    again.pop("run")
    for name in differences(written, again):
        yield f"{path.name}: {name} is not what the log says"


def _last_started(rows: Iterable[Row]) -> Mapping[str, Json]:
    """Read how a run was started last: which file, with which overrides."""
    about: Mapping[str, Json] = {}
    for row in rows:
        if isinstance(row.event, Started):
            about = row.event.about
    return about
