"""The audit of a board of comparisons: of a table of votes, or of a run's own."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from estimators.board_audit import audit
from estimators.comparisons import Comparisons, Told
from orchestrator import rundir
from orchestrator.core.errors import ConfigError, DidNotConverge
from orchestrator.core.events import Opened
from orchestrator.core.frame import Frame
from orchestrator.core.money import FREE, Nano
from orchestrator.core.query import Judged, Kind, Role
from orchestrator.core.records import Record, records
from orchestrator.core.scale import Criterion
from orchestrator.core.seeds import Seeds
from orchestrator.core.study import Panelist, Study
from orchestrator.core.wire import Json
from orchestrator.estimating import votes_in
from orchestrator.report.data import BoardAudit
from orchestrator.sensitivity import loaded_again
from orchestrator.store.sqlite import SqliteReader
from orchestrator.votes import PREFERENCE, Votes

MOST_VOTES = 50_000
"""Votes of a run up to which its report has the audit; beyond it would take more than some seconds."""

_LEFT_OUT = (
    "the judgments of earlier runs, for the campaign that took them in can't be loaded again"
)


def audit_votes(votes: Votes) -> tuple[BoardAudit, ...]:
    """Audit a table of votes, each criterion by itself."""
    price = None
    if votes.cost is not None and len(votes.comparisons):
        price = Nano(round(votes.cost / len(votes.comparisons)))
    frame = Frame.of(votes.items, votes.models, cluster=votes.cluster)
    return tuple(
        _audited(
            votes.of_criterion(c), frame, name, judges=votes.judges, price=price, is_watched=False
        )
        for c, name in enumerate(votes.criteria)
    )


def audit_path(path: Path, names: Mapping[str, str] | None = None) -> tuple[BoardAudit, ...]:
    """Audit a run's directory, or a table of votes; `names` maps parts to columns.

    Raises
    ------
    ConfigError
        The table has problems, or the run compares nothing.
    StoreError
        The run can't be read.
    """
    if path.is_dir():
        found = audit_run(path)
        if not found:
            raise ConfigError(f"{path} is no run of comparisons")
        return found
    return audit_votes(votes_in(path, names or {}))


def audit_run(directory: Path, *, most: int | None = None) -> tuple[BoardAudit, ...]:
    """Audit the comparisons of a run, each criterion by itself; none where it compares nothing.

    Judgments of earlier runs that it took in count. The log does not hold them: its campaign is loaded
    again for them, and where that is gone or has changed, the audit says that it leaves them out.

    Parameters
    ----------
    most : comparisons beyond which there is no audit; None: no limit
    """
    with rundir.reading(directory) as reader:
        opened = reader.last(Opened)
        if opened is None or opened.identity["kind"] != str(Kind.COMPARE):
            return ()
        prior: tuple[Record, ...] | None = ()
        if "prior" in opened.identity["data"]:
            again = loaded_again(directory)
            prior = None if again is None else again.study.prior
        return tuple(_of_run(reader, opened, prior, most))


def _of_run(
    reader: SqliteReader, opened: Opened, prior: tuple[Record, ...] | None, most: int | None
) -> Iterator[BoardAudit]:
    """Audit a run; None for earlier judgments: there are some that can't be had."""
    study = _study(reader, opened, prior or ())
    told = [Told(study, c) for c in range(len(study.criteria))]
    spent, n = 0, 0
    for record in records(row.event for row in reader.read_unchecked()):
        if record.query.role is Role.JUDGE:
            for each in told:
                each.update(record)
            if isinstance(record.outcome, Judged):
                spent, n = spent + record.outcome.cost, n + 1
    if most is not None and n + len(study.prior) > most:
        return
    judges = [panelist.name for panelist in study.panel]
    if study.prior:
        judges.append("earlier judges")
    price = Nano(round(spent / n)) if n else None
    check = (opened.identity.get("stop") or {}).get("check")
    for each, criterion in zip(told, study.criteria, strict=True):
        one = _audited(
            each.table,
            study.frame,
            criterion.name,
            judges=judges,
            price=price,
            is_watched=check == "anytime",
        )
        yield replace(one, found={**one.found, "left_out": _LEFT_OUT}) if prior is None else one


def _study(reader: SqliteReader, opened: Opened, prior: tuple[Record, ...]) -> Study:
    """Read from a log what was studied, as far as comparisons need it."""
    identity = opened.identity
    blob = reader.get_blob(identity["data"]["frame"])
    labels: Mapping[str, Json] = json.loads(blob) if blob else {}
    items = labels.get("items") or [f"item {i}" for i in range(identity["data"]["n_items"])]
    return Study(
        kind=Kind.COMPARE,
        frame=Frame.of(items, identity["arms"], cluster=labels.get("cluster")),
        panel=tuple(Panelist(name=judge["name"], card=FREE) for judge in identity["judges"]),
        criteria=tuple(Criterion(name=c["name"], scale=PREFERENCE) for c in identity["criteria"]),
        seeds=Seeds(opened.seed),
        prior=prior,
    )


def _audited(
    table: Comparisons,
    frame: Frame,
    criterion: str,
    *,
    judges: Sequence[str],
    price: Nano | None,
    is_watched: bool,
) -> BoardAudit:
    try:
        found = audit(
            table,
            n_models=frame.n_arms,
            rng=np.random.default_rng(0),
            cluster=frame.cluster[table.item],
            price=price,
            is_watched=is_watched,
        ).as_json()
    except DidNotConverge as exc:
        found = {"findings": [], "n_votes": len(table), "reason": str(exc)}
    return BoardAudit(criterion=criterion, models=frame.arms, judges=tuple(judges), found=found)
