"""A run directory: its name, its log, and the files that are derived from the log."""

from __future__ import annotations

import json
import re
import secrets
import shutil
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from orchestrator.core.errors import ConfigError, RunLocked, StoreError
from orchestrator.core.events import Event, Opened, Started
from orchestrator.core.money import Nano
from orchestrator.core.ports import Estimator
from orchestrator.core.wire import Json
from orchestrator.report import html, markdown
from orchestrator.report.data import ReportData, State
from orchestrator.report.export import export
from orchestrator.report.result import document
from orchestrator.report.screen import Progress
from orchestrator.report.summary import summarise
from orchestrator.store.lock import owner
from orchestrator.store.sqlite import DB_NAME, LOCK_NAME, SqliteReader, SqliteStore

EXAMINATION = "doctor"
"""What `sortition doctor` names its own campaigns."""

RESULT_NAME = "result.json"
PLAN_NAME = "plan.json"
GENERATIONS_NAME = "generations.jsonl"
"""What systems answered, where that is all that was asked for."""


def new_name(campaign: str) -> str:
    """Name a run: when, what, and four letters; legal on every file system, sorts by time."""
    slug = re.sub(r"[^a-z0-9]+", "-", campaign.lower()).strip("-")[:40] or "run"
    return f"{time.strftime('%Y%m%d-%H%M%S')}-{slug}-{secrets.token_hex(2)}"


async def create(target: Path, opening: Callable[[SqliteStore], list[Event]]) -> None:
    """Make a run directory appear at once, with its opening already durable.

    A kill before that leaves nothing to resume.

    Raises
    ------
    ConfigError
        The place is taken by something that is no run.
    RunLocked
        Another process has just made a run there.
    """
    if _is_taken(target):
        raise ConfigError(f"{target} exists and holds no run; choose another --run-dir")
    target.parent.mkdir(parents=True, exist_ok=True)
    unborn = target.with_name(f".{target.name}.{secrets.token_hex(4)}.new")
    unborn.mkdir()
    try:
        store = SqliteStore.create(unborn)
        try:
            await store.append(opening(store))
        finally:
            store.close()
        try:
            unborn.rename(target)
        except OSError as exc:
            if not _is_taken(target):
                raise
            raise RunLocked(f"another process has just made {target}; nothing was sent") from exc
    finally:
        shutil.rmtree(unborn, ignore_errors=True)


def _is_taken(path: Path) -> bool:
    return path.exists() and (not path.is_dir() or any(path.iterdir()))


@contextmanager
def reading(directory: Path) -> Iterator[SqliteReader]:
    """Read a run, also one that is under way."""
    reader = SqliteReader(directory)
    try:
        yield reader
    finally:
        reader.close()


def summary(
    directory: Path,
    *,
    unstopped: State = State.INTERRUPTED,
    fingerprint: str | None = None,
    estimators_without: Callable[[Nano | None, int], tuple[Estimator, ...]] | None = None,
) -> ReportData:
    """Summarise a run from its log.

    Who has just written the log gives its `fingerprint`; then the hashes are not checked again.
    `estimators_without` are those of the run's campaign, which is loaded again without them to say what
    the estimates would be without each judge.
    """
    # Loaded here since it loads campaigns, which import this module.
    from orchestrator.auditing import MOST_VOTES, audit_run  # noqa: PLC0415
    from orchestrator.sensitivity import without_judges  # noqa: PLC0415

    with reading(directory) as reader:
        rows = reader.read() if fingerprint is None else reader.read_unchecked()
        data = summarise(rows, run=directory.name, unstopped=unstopped, get_blob=reader.get_blob)
        fingerprint = reader.fingerprint if fingerprint is None else fingerprint
    return replace(
        data,
        path=str(directory),
        fingerprint=fingerprint,
        without_judge=without_judges(directory, data, estimators_without),
        audits=audit_run(directory, most=MOST_VOTES),
    )


def write_result(directory: Path, data: ReportData) -> dict[str, Json]:
    """Write `result.json`."""
    result = document(data)
    _write(directory / RESULT_NAME, json.dumps(result, indent=1, ensure_ascii=False) + "\n")
    return result


def write_manifest(directory: Path, manifest: Mapping[str, Json], resolved: str) -> None:
    """Write what the run was made from: versions, hashes, prices; and the file as resolved."""
    text = json.dumps(manifest, indent=1, ensure_ascii=False, sort_keys=True)
    _write(directory / "manifest.json", text + "\n")
    _write(directory / "config.resolved.yaml", resolved)


def write_plan(directory: Path, plan: Mapping[str, Json]) -> None:
    """Write what was planned before the run."""
    text = json.dumps(plan, indent=1, ensure_ascii=False, allow_nan=False)
    _write(directory / PLAN_NAME, text + "\n")


def write_report(data: ReportData, path: Path) -> None:
    """Write a report as HTML or, by the ending, Markdown."""
    text = markdown.render(data) if path.suffix == ".md" else html.render(data)
    _write(path, text)


def write_export(directory: Path, path: Path) -> int:
    """Export answers or scores, by the name and ending of the path; give how many rows."""
    with reading(directory) as reader:
        return export(path, reader.read(), reader.get_blob)


def running(directory: Path) -> str | None:
    """Say which process is carrying a run on, None if none is."""
    return owner(directory / LOCK_NAME)


def is_real(directory: Path) -> bool:
    """Whether a run spends real money."""
    with reading(directory) as reader:
        opened = reader.last(Opened)
    return opened is not None and opened.identity["money"] == "real"


def unstopped(directory: Path) -> State:
    """Say what a log without a stop means: its process lives, or it was interrupted."""
    return State.RUNNING if running(directory) else State.INTERRUPTED


def progress(directory: Path) -> Progress:
    """Read how a run stands, from its progress row: no fold, however long the log is."""
    with reading(directory) as reader:
        body = reader.progress()
        shown = Progress(run=directory.name) if body is None else Progress.from_json(body)
        if reader.stop() is not None or running(directory):
            return shown
    return replace(shown, state=str(State.INTERRUPTED), in_flight=0)


def newest(parent: Path, *, unfinished: bool, notice: Callable[[str], None]) -> Path:
    """Find the newest run of a folder; `notice` hears which are passed over as unreadable.

    Examinations of judges are no runs of the user's: they are passed over too.

    Raises
    ------
    StoreError
        There is none.
    """
    runs = sorted(
        (path.parent for path in parent.glob(f"*/{DB_NAME}")), key=lambda p: p.name, reverse=True
    )
    for run in runs:
        try:
            with reading(run) as reader:
                is_wanted = not unfinished or reader.stop() is None
                if is_wanted and not _is_examination(reader):
                    return run
        except StoreError as exc:
            notice(f"{run} is passed over: {exc}")
    kind = "unfinished run" if unfinished else "run"
    raise StoreError(f"no {kind} in {parent}")


def _is_examination(reader: SqliteReader) -> bool:
    """Whether a run is of `sortition doctor`: that puts its own name over the campaign file's."""
    started = reader.last(Started)
    campaign = {} if started is None else started.about.get("campaign", {})
    return bool(campaign.get("overrides", {}).get("name") == EXAMINATION)


def _write(path: Path, text: str) -> None:
    """Write a whole file or nothing of it."""
    unborn = path.with_name(f".{path.name}.new")
    unborn.write_text(text, encoding="utf-8", errors="replace", newline="\n")
    unborn.replace(path)
