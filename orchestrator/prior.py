"""Judgments of earlier runs, which a campaign takes in at no cost."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from orchestrator import rundir
from orchestrator.core.errors import InvalidCampaign, Problem, StoreError
from orchestrator.core.events import Opened
from orchestrator.core.frame import Frame
from orchestrator.core.ids import JudgeIx, UnitIx
from orchestrator.core.query import Judged, Kind, Role
from orchestrator.core.records import Record, records
from orchestrator.core.study import Study
from orchestrator.core.wire import Json
from orchestrator.report.wording import plural
from orchestrator.store.sqlite import SqliteReader
from orchestrator.wording import seen


class Into(NamedTuple):
    """What earlier judgments must fit: the kind of question, its units, judges and criteria."""

    kind: Kind
    frame: Frame
    judges: Sequence[str]
    criteria: Sequence[str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Prior:
    """Told questions of earlier runs, and what each run is known by: the head of its decisions."""

    records: tuple[Record, ...] = ()
    digests: tuple[str, ...] = ()
    warnings: tuple[Problem, ...] = ()


def read_prior(
    paths: Sequence[Path], into: Into, *, locate: Callable[[str, str], Problem]
) -> Prior:
    """Read the answered questions of runs, those about units and criteria that the campaign has.

    Names decide what is the same: the items', the arms' and the judges'. A judge of another name has
    the number behind the panel.

    Raises
    ------
    InvalidCampaign
        A path holds no run, one of another kind of question, one that is listed already, or none of
        whose judgments fits.
    """
    found: list[Record] = []
    digests: list[str] = []
    warnings, problems = [], []
    for index, path in enumerate(paths):
        field = f"data.prior_judgments[{index}]"
        try:
            with rundir.reading(path) as reader:
                translation = _translation(reader, into)
                rows = [] if translation is None else list(_read(reader, translation))
                digest = reader.head.hex()
        except StoreError as exc:
            problems.append(
                locate(field, f"{seen(str(path))} holds no run that can be read: {exc}")
            )
            continue
        if translation is None:
            problems.append(locate(field, f"{seen(str(path))} is no run of {into.kind}"))
            continue
        if digest in digests:
            same = f"data.prior_judgments[{digests.index(digest)}]"
            message = f"{seen(str(path))} holds the same judgments as {same}: they count once"
            problems.append(locate(field, message))
        digests.append(digest)
        kept = [row for row in rows if isinstance(row, Record)]
        found += (_renumbered(record, index, len(paths)) for record in kept)
        lost = Counter(row for row in rows if not isinstance(row, Record))
        whys = "; ".join(f"{plural(n, 'judgment')} {why}" for why, n in lost.items())
        if lost and kept:
            warnings.append(locate(field, f"left out of {path.name}: {whys}"))
        elif lost:
            problems.append(locate(field, f"nothing of {path.name} can be taken in: {whys}"))
    if problems:
        raise InvalidCampaign(problems)
    return Prior(records=tuple(found), digests=tuple(digests), warnings=tuple(warnings))


def _renumbered(record: Record, run: int, n_runs: int) -> Record:
    """Number a repeat below 0, apart from those of this campaign and of other earlier runs."""
    number = -1 - run - n_runs * record.query.replicate
    return replace(record, query=replace(record.query, replicate=number))


def prior_part(study: Study, items: NDArray[np.int64], judges: Sequence[int]) -> tuple[Record, ...]:
    """Give the earlier judgments on some items, as a study of these items and judges numbers them.

    Judges that are not among them have the number behind the panel.
    """
    if not study.prior:
        return ()
    n_arms = study.frame.n_arms
    place = {item: at for at, item in enumerate(items.tolist())}
    seat = {judge: at for at, judge in enumerate(judges)}

    def moved(unit: int) -> UnitIx:
        item, arm = divmod(unit, n_arms)
        return UnitIx(place[item] * n_arms + arm)

    found = []
    for record in study.prior:
        query, outcome = record.query, record.outcome
        if query.units[0] // n_arms not in place or not isinstance(outcome, Judged):
            continue
        said = tuple(replace(o, unit=moved(o.unit)) for o in outcome.observations)
        here = replace(
            query,
            units=tuple(map(moved, query.units)),
            judge=JudgeIx(seat.get(query.judge, len(judges))),
        )
        found.append(replace(record, query=here, outcome=replace(outcome, observations=said)))
    return tuple(found)


class _Translation(NamedTuple):
    """From a run's numbers to the campaign's; what has none is not there.

    `n_arms` and `n_ours` are the numbers of arms in the run and in the campaign; `unmatched` says why
    a judgment by other criteria than the campaign's is left out.
    """

    n_arms: int
    n_ours: int
    items: Mapping[int, int]
    arms: Mapping[int, int]
    judges: Sequence[int]
    criteria: Mapping[int, int]
    unmatched: str


def _translation(reader: SqliteReader, into: Into) -> _Translation | None:
    """Match the names of a run to the campaign's; None for another kind of question."""
    opened = reader.last(Opened)
    if opened is None or opened.identity["kind"] != str(into.kind):
        return None
    identity = opened.identity
    blob = reader.get_blob(identity["data"]["frame"])
    items: list[str] = json.loads(blob)["items"] if blob else []
    judges = [str(judge["name"]) for judge in identity["judges"]]
    panel = {name: i for i, name in enumerate(into.judges)}
    theirs = [str(criterion["name"]) for criterion in identity["criteria"]]
    return _Translation(
        n_arms=len(identity["arms"]),
        n_ours=into.frame.n_arms,
        items=_matched(items, into.frame.items),
        arms=_matched(identity["arms"], into.frame.arms),
        judges=[panel.get(name, len(panel)) for name in judges],
        criteria=_matched(theirs, into.criteria),
        unmatched=f"by {_listed(theirs)}, not by {_listed(into.criteria)}",
    )


def _listed(names: Sequence[str]) -> str:
    return ", ".join(map(seen, names))


def _matched(theirs: Sequence[Json], ours: Sequence[str]) -> dict[int, int]:
    place = {name: i for i, name in enumerate(ours)}
    return {i: place[name] for i, name in enumerate(theirs) if name in place}


def _read(reader: SqliteReader, to: _Translation) -> Iterator[Record | str]:
    """Give the answered questions as this campaign would number them, or why it can't."""
    for record in records(row.event for row in reader.read()):
        query, outcome = record.query, record.outcome
        if not isinstance(outcome, Judged) or query.role is not Role.JUDGE:
            continue
        units = [_unit(unit, to) for unit in query.units]
        said = tuple(
            replace(o, unit=UnitIx(unit), criterion=to.criteria[o.criterion])
            for o in outcome.observations
            if o.criterion in to.criteria and (unit := _unit(o.unit, to)) is not None
        )
        if not any(o.criterion in to.criteria for o in outcome.observations):
            yield to.unmatched
            continue
        if None in units or not said:
            yield "about other items or arms"
            continue
        yield Record(
            q=record.q,
            query=replace(
                query,
                judge=JudgeIx(to.judges[query.judge]),
                units=tuple(UnitIx(unit) for unit in units if unit is not None),
            ),
            outcome=replace(outcome, observations=said),
        )


def _unit(unit: int, to: _Translation) -> int | None:
    item, arm = divmod(unit, to.n_arms)
    if item not in to.items or arm not in to.arms:
        return None
    return to.items[item] * to.n_ours + to.arms[arm]
