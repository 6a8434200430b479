"""`sortition verify`: everything that can be checked of a run, from its log."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path

from orchestrator import rundir
from orchestrator.build import Blueprint, identity_digest, looks_of, part_of
from orchestrator.campaign import Campaign
from orchestrator.core.events import Opened, Started
from orchestrator.core.ports import Row
from orchestrator.core.wire import Json
from orchestrator.engine.fold import State
from orchestrator.engine.verify import Kept, verify
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
        has_stopped = reader.stop() is not None
    # The result of a run under way is that of an earlier interrupt.
    if not faults and rundir.running(directory) is None:
        yield from _result(directory, has_stopped=has_stopped)


def _replay(reader: SqliteReader) -> Iterator[str]:
    first = next(reader.read_unchecked(), None)
    if first is None or not isinstance(first.event, Opened):
        yield "row 1: the log does not begin with the opening of a run"
        return
    opened = first.event
    about = _last_started(reader.read_unchecked())
    try:
        campaign = Campaign.again(about)
    except (LookupError, TypeError, AttributeError):
        yield "no row says which campaign file this run was started with"
        return
    blueprint = campaign.build()
    check_identity(opened, blueprint.crew.opened)
    if identity_digest(opened.identity) != opened.digest:
        yield "row 1: the identity is not the one that its digest names"
        return
    yield from (
        f"row 1: {name} is not what the campaign file says"
        for name in _differing(opened, blueprint)
    )
    if reader.get_blob(opened.identity["data"]["frame"]) is None:
        yield "the names of items and arms (a blob) are gone"
    state = State(replace(blueprint.crew, opened=opened))
    keep = blueprint.file.campaign.output.keep
    kept = Kept(
        prompts=keep.prompts != "none",
        replies=keep.replies == "full",
        by_own_loop=campaign.is_own_loop,
        cache=blueprint.file.campaign.cache is not None,
    )
    rows = reader.read_unchecked()
    for difference in verify(state, rows, partial(recall, reader), name_prompt, kept):
        yield f"row {difference.seq}: {difference.what}"
    yield from _money(state, blueprint, about)


_FIXED = ("seed", "judge_caps", "role_caps", "max_requests", "max_tok")
"""What the opening takes from the campaign file, besides what overrides and events may change."""


def _differing(opened: Opened, blueprint: Blueprint) -> Iterator[str]:
    """Name what the opening holds otherwise than the campaign file has it."""
    now, campaign = blueprint.crew.opened, blueprint.file.campaign
    yield from (name for name in _FIXED if getattr(opened, name) != getattr(now, name))
    if opened.max_uncertain != part_of(opened.cap, campaign.budget.max_uncertain):
        yield "max_uncertain"
    if opened.looks != looks_of(blueprint.file, blueprint.study, opened.cap):
        yield "looks"
    # Without a window of its own a campaign has that of the limits it was opened with.
    if campaign.policy.window is not None and opened.window != now.window:
        yield "window"


def _money(state: State, blueprint: Blueprint, about: Mapping[str, Json]) -> Iterator[str]:
    """Compare the cap and the prices that the log ends with: changes of the user's are rows of it.

    Prices of the sheet are compared while it is the sheet that the run read.
    """
    cap, now = state.ledger.campaign.cap, blueprint.crew.opened
    if cap != now.cap:
        yield f"the cap is {cap} nano-USD in the log and {now.cap} in the campaign file"
    sources = about.get("prices") or {}
    for ix, (judge, price) in enumerate(zip(state.crew.judges, blueprint.prices, strict=True)):
        is_same_sheet = price.source in {"campaign file", "free", sources.get(judge.name)}
        if is_same_sheet and state.cards[ix] != price.card:
            yield f"the prices of {judge.name} in the log are not those of: {price.source}"


def _result(directory: Path, *, has_stopped: bool) -> Iterator[str]:
    path = directory / rundir.RESULT_NAME
    if not path.exists():
        if has_stopped:
            yield f"{path.name} is gone; `sortition resume` writes it anew"
        return
    try:
        written = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as exc:
        yield f"{path.name} can't be read: {exc}"
        return
    if not isinstance(written, dict):
        yield f"{path.name} holds no result"
        return
    try:
        again = json.loads(json.dumps(document(rundir.summary(directory))))
    except Exception as exc:  # noqa: BLE001  # a forged row may break a sum in any way
        yield f"{path.name} can't be compared: the log does not add up: {exc!r}"
        return
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
