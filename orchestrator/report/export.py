"""Exports: one row a verdict or comparison, or one row a name of an estimate; streamed from the log."""

from __future__ import annotations

import csv
import io
import json
import math
import re
from collections.abc import Callable, Iterable, Iterator
from itertools import chain, islice
from pathlib import Path
from types import NoneType
from typing import IO, Any, NamedTuple, get_args, get_type_hints

from orchestrator.core.errors import ConfigError, CorruptLog
from orchestrator.core.events import LOST, Late, Looked, Opened, Reasked
from orchestrator.core.money import NANO_PER_USD
from orchestrator.core.ports import Row
from orchestrator.core.query import Judged, Kind, Missing, Outcome, Preference, Query, Role
from orchestrator.core.records import Join, Open, Record
from orchestrator.core.wire import Json
from orchestrator.report.summary import read_estimate

GetBlob = Callable[[str], bytes | None]


class Answer(NamedTuple):
    """One verdict that counts, or one that is missing; answers after the stop are left out.

    `value` is on the criterion's scale; empty with `missing` empty means "not applicable". A
    missing verdict has a row for each unit, without a criterion. `group` and `stratum` are those of the
    item, if the data have such. Money is that of the whole
    question, all its attempts included, and stands in its first row alone, so that sums are right; what
    systems under test cost is not in it. `flags` are what was odd about the answer, with semicolons
    between them. `answer` is the text of the system under test that was judged, where replies are kept.
    """

    q: int
    item: str
    arm: str
    group: str | None
    stratum: str | None
    judge: str
    criterion: str | None
    replicate: int
    slot: int
    value: float | None
    preference: str | None
    missing: str | None
    cost_usd: str | None
    cost_nano_usd: int | None
    uncertain_nano_usd: int | None
    propensity: float
    purpose: str
    origin: str | None
    served_model: str | None
    flags: str | None
    answer: str | None


class Vote(NamedTuple):
    """One comparison that counts, or one that is missing; `left` was shown first.

    `winner` is `left`, `right` or `tie`; empty with `missing` empty means "not applicable". A
    missing one has no criterion. The rest is as in `Answer`.
    """

    q: int
    item_id: str
    left: str
    right: str
    group: str | None
    winner: str | None
    judge: str
    criterion: str | None
    replicate: int
    slot: int
    missing: str | None
    cost_usd: str | None
    cost_nano_usd: int | None
    uncertain_nano_usd: int | None
    propensity: float
    purpose: str
    origin: str | None
    served_model: str | None
    flags: str | None


class Generation(NamedTuple):
    """One answer of a system under test, or why there is none; of a run that asks for nothing else.

    Money is that of all attempts; `uncertain_nano_usd` may have been billed.
    """

    id: str
    system: str
    answer: str | None
    missing: str | None
    cost_usd: str | None
    cost_nano_usd: int
    uncertain_nano_usd: int
    origin: str | None
    served_model: str | None
    flags: str | None


class Score(NamedTuple):
    """One name of an estimate, as of the last look that holds estimates."""

    estimate: str
    kind: str
    target: str
    name: str
    value: float | None
    se: float | None
    lower: float | None
    upper: float | None
    level: float
    interval: str
    estimand: str
    status: str
    n_items: int
    n_answers: int
    is_final: bool


def export(path: Path, rows: Iterable[Row], get_blob: GetBlob) -> int:
    """Write answers, comparisons where the run holds such, or scores if the file's name begins so.

    Gives how many rows.

    The ending chooses the form: `.jsonl`, `.csv` or `.parquet`. The file appears when it is whole.

    Raises
    ------
    ConfigError
        Another ending, or Parquet without pyarrow.
    """
    form = _FORMS.get(path.suffix)
    if form is None:
        known = ", ".join(_FORMS)
        raise ConfigError(f"{path.name}: can't export to {path.suffix!r}; known: {known}")
    rows = iter(rows)
    first = next(rows, None)
    rows = rows if first is None else chain([first], rows)
    kind: type[Exported]
    table: Table
    if path.stem.startswith("scores"):
        kind, table = Score, scores(rows)
    elif first is not None and holds_comparisons([first]):
        kind, table = Vote, votes(rows, get_blob)
    elif first is not None and holds_generations([first]):
        kind, table = Generation, generations(rows, get_blob)
    else:
        kind, table = Answer, answers(rows, get_blob)
    part = path.with_name(f"{path.name}.part")
    try:
        with part.open("wb") as sink:
            n = form(kind, table, sink)
        part.replace(path)
    finally:
        part.unlink(missing_ok=True)
    return n


# --- rows --------------------------------------------------------------------------------------


def holds_comparisons(rows: Iterable[Row]) -> bool:
    """Say whether a log is of a run that compares."""
    return _asks_for(rows) == Kind.COMPARE


def holds_generations(rows: Iterable[Row]) -> bool:
    """Say whether a log is of a run in which systems answer and nothing is judged."""
    return _asks_for(rows) == Kind.GENERATE


def _asks_for(rows: Iterable[Row]) -> str:
    first = next(iter(rows), None)
    if first is None or not isinstance(first.event, Opened):
        return ""
    return str(first.event.identity.get("kind"))


def answers(rows: Iterable[Row], get_blob: GetBlob) -> Iterator[Answer]:
    """Join a log into rows, in telling order; a comparison is a row of the unit shown first."""
    for record, labels, earlier in _told(rows, get_blob):
        if record.query.role is Role.JUDGE:
            yield from _rows(record, labels, earlier)


def generations(rows: Iterable[Row], get_blob: GetBlob) -> Iterator[Generation]:
    """Join a log into the answers of systems, in the order in which they were asked for."""
    for record, labels, (before, uncertain) in _told(rows, get_blob):
        (unit,), outcome = record.query.units, record.outcome
        if record.query.role is not Role.SYSTEM:
            continue
        cost = before + outcome.cost
        row = Generation(
            id=labels.item(unit),
            system=labels.arm(unit),
            answer=labels.answer(unit),
            missing=None,
            cost_usd=_decimal(cost),
            cost_nano_usd=cost,
            uncertain_nano_usd=uncertain,
            origin=None,
            served_model=None,
            flags=None,
        )
        match outcome:
            case Missing(reason=reason, uncertain=more):
                yield row._replace(missing=str(reason), uncertain_nano_usd=uncertain + more)
            case Judged(origin=origin, served_model=model, flags=flags):
                yield row._replace(
                    origin=str(origin), served_model=model or None, flags=";".join(flags) or None
                )


def votes(rows: Iterable[Row], get_blob: GetBlob) -> Iterator[Vote]:
    """Join a log of comparisons into rows, in telling order."""
    for record, labels, earlier in _told(rows, get_blob):
        if record.query.role is not Role.JUDGE:
            continue
        pair = [*map(labels.arm, record.query.units)]
        found = [*_rows(record, labels, earlier)]
        # A missing question has a row for each of its units, and here it is one of both.
        is_missing = any(row.missing for row in found)
        for row in found[:1] if is_missing else found:
            said = row._asdict()
            yield Vote(
                item_id=row.item,
                left=pair[0],
                right=pair[1],
                winner=None if row.preference is None else _WINNER[row.preference],
                **{name: said[name] for name in Vote._fields if name in said},
            )


_WINNER = {
    str(Preference.FIRST): "left",
    str(Preference.SECOND): "right",
    str(Preference.TIE): "tie",
}


def _told(
    rows: Iterable[Row], get_blob: GetBlob
) -> Iterator[tuple[Record, _Labels, tuple[int, int]]]:
    """Give each told question, and what its earlier attempts cost and may have cost (nano-USD)."""
    rows = iter(rows)
    first = next(rows, None)
    if first is None or not isinstance(first.event, Opened):
        raise CorruptLog("the log does not begin with the opening of a run", seq=1)
    labels = _Labels(first.event.identity, get_blob)
    join = Join()
    earlier: dict[int, tuple[int, int]] = {}
    for row in rows:
        event = row.event
        if isinstance(event, Reasked):
            at = join.open[event.q]
            cost, uncertain = _charge(at, is_lost=event.ended == LOST)
            before = earlier.get(event.q, (0, 0))
            earlier[event.q] = (before[0] + cost, before[1] + uncertain)
        if isinstance(event, Late):
            labels.answered(join.open[event.q].query, event.outcome)
        record = join.feed(event)
        if record is None:
            continue
        if record.query.role is Role.SYSTEM:
            labels.answered(record.query, record.outcome)
        yield record, labels, earlier.pop(record.q, (0, 0))


def scores(rows: Iterable[Row]) -> Iterator[Score]:
    """Give the estimates of the last look that holds any, name by name."""
    last: Looked | None = None
    for row in rows:
        if isinstance(row.event, Looked) and row.event.estimates:
            last = row.event
    if last is None:
        return
    for e in map(read_estimate, last.estimates):
        for i, name in enumerate(e.names):
            yield Score(
                estimate=e.name,
                kind=e.kind,
                target=e.target,
                name=name,
                value=_known(e.value[i]),
                se=_known(e.se[i]),
                lower=_known(e.lower[i]),
                upper=_known(e.upper[i]),
                level=e.level,
                interval=e.interval,
                estimand=e.estimand,
                status=e.status,
                n_items=e.n_items,
                n_answers=e.n_answers,
                is_final=last.is_final,
            )


class _Labels:
    """Names for indices; a log without its frame still exports, with numbers for names."""

    def __init__(self, identity: Json, get_blob: GetBlob) -> None:
        blob = get_blob((identity.get("data") or {}).get("frame") or "")
        frame = json.loads(blob) if blob else {}
        self._items: list[str] = frame.get("items") or []
        self._groups: list[str] = frame.get("group") or []
        self._strata: list[str] = frame.get("stratum") or []
        self._arms: list[str] = identity.get("arms") or [""]
        self._judges: list[str] = [str(j["name"]) for j in identity.get("judges") or []]
        self.criteria: list[str] = [str(c["name"]) for c in identity.get("criteria") or []]
        self._get_blob = get_blob
        self._answers: dict[int, str] = {}
        """Digests of the systems' last answers, by unit."""

    def answered(self, query: Query, outcome: Outcome) -> None:
        """Take in a system's answer to a unit."""
        if query.role is Role.SYSTEM and isinstance(outcome, Judged) and outcome.blob:
            self._answers[query.units[0]] = outcome.blob

    def answer(self, unit: int) -> str | None:
        """Read a system's answer to a unit; None where there is none, or it was not kept."""
        blob = self._get_blob(self._answers[unit]) if unit in self._answers else None
        return None if blob is None else str(json.loads(blob)["text"])

    def on(self, answer: Answer, unit: int) -> Answer:
        item, arm = divmod(unit, len(self._arms))
        group = self._groups[item] if self._groups else None
        stratum = self._strata[item] if self._strata else None
        return answer._replace(
            item=self.item(unit),
            arm=self._arms[arm],
            group=group,
            stratum=stratum,
            answer=self.answer(unit),
        )

    def item(self, unit: int) -> str:
        item = unit // len(self._arms)
        return self._items[item] if self._items else f"item {item}"

    def arm(self, unit: int) -> str:
        return self._arms[unit % len(self._arms)]

    def asked(self, record: Record) -> str:
        return self._judges[record.query.judge]


def _rows(record: Record, labels: _Labels, earlier: tuple[int, int]) -> Iterator[Answer]:
    query, outcome = record.query, record.outcome
    cost = earlier[0] + outcome.cost
    common = Answer(
        q=record.q,
        item="",
        arm="",
        group=None,
        stratum=None,
        judge=labels.asked(record),
        criterion=None,
        replicate=query.replicate,
        slot=0,
        value=None,
        preference=None,
        missing=None,
        cost_usd=_decimal(cost),
        cost_nano_usd=cost,
        uncertain_nano_usd=earlier[1],
        propensity=query.propensity,
        purpose=query.purpose,
        origin=None,
        served_model=None,
        flags=None,
        answer=None,
    )
    match outcome:
        case Missing(reason=reason, uncertain=uncertain):
            common = common._replace(missing=reason, uncertain_nano_usd=earlier[1] + uncertain)
            found = [
                labels.on(common, unit)._replace(slot=slot) for slot, unit in enumerate(query.units)
            ]
        case Judged(origin=origin, served_model=model, observations=observations, flags=flags):
            common = common._replace(
                origin=origin, served_model=model or None, flags=";".join(flags) or None
            )
            found = [
                labels.on(common, o.unit)._replace(
                    slot=o.slot,
                    criterion=labels.criteria[o.criterion],
                    value=o.value,
                    preference=o.preference,
                )
                for o in observations
            ]
    yield from found[:1]
    for row in found[1:]:
        yield row._replace(cost_usd=None, cost_nano_usd=None, uncertain_nano_usd=None)


def _charge(at: Open, *, is_lost: bool) -> tuple[int, int]:
    match at.outcome:
        case Missing(cost=cost, uncertain=uncertain) if not is_lost:
            return cost, uncertain
        case Judged(cost=cost) if not is_lost:
            return cost, 0
        case _:
            return 0, at.hold


def _decimal(nano: int) -> str:
    whole, fraction = divmod(nano, NANO_PER_USD)
    return f"{whole}.{fraction:09d}"


def _known(x: float) -> float | None:
    return x if math.isfinite(x) else None


# --- forms -------------------------------------------------------------------------------------

Exported = Answer | Vote | Generation | Score
Table = Iterable[Exported]

_SURROGATES = re.compile("[\ud800-\udfff]")
_LINE_ENDS = {0x85: "\\u0085", 0x2028: "\\u2028", 0x2029: "\\u2029"}
_FORMULA = ("=", "+", "-", "@", "\t", "\r")
_CHUNK = 10_000


def _valid(cell: Json) -> Json:
    """Replace lone surrogates, which UTF-8 cannot hold."""
    return _SURROGATES.sub("\N{REPLACEMENT CHARACTER}", cell) if isinstance(cell, str) else cell


def _inert(cell: Json) -> Json:
    """Put an apostrophe before a text that a spreadsheet would run as a formula."""
    if isinstance(cell, str) and cell.startswith(_FORMULA):
        return f"'{cell}"
    return cell


def _to_jsonl(kind: type[Exported], table: Table, sink: IO[bytes]) -> int:
    n = 0
    for row in table:
        record = dict(zip(kind._fields, map(_valid, row), strict=True))
        # JSON allows these three inside a string, but readers that split lines do not.
        line = json.dumps(record, ensure_ascii=False, allow_nan=False).translate(_LINE_ENDS)
        sink.write(line.encode() + b"\n")
        n += 1
    return n


def _to_csv(kind: type[Exported], table: Table, sink: IO[bytes]) -> int:
    text = io.TextIOWrapper(sink, encoding="utf-8", newline="", write_through=True)
    # The default line end makes the writer quote a bare carriage return inside a text, too.
    writer = csv.writer(text)
    writer.writerow(kind._fields)
    n = 0
    for row in table:
        writer.writerow([_inert(_valid(cell)) for cell in row])
        n += 1
    text.detach()
    return n


def _to_parquet(kind: type[Exported], table: Table, sink: IO[bytes]) -> int:
    try:
        import pyarrow as pa  # noqa: PLC0415  # an extra, and slow to load
        from pyarrow import parquet  # noqa: PLC0415
    except ImportError as exc:
        raise ConfigError("Parquet needs pyarrow: pip install 'sortition[parquet]'") from exc
    types = {str: pa.string(), int: pa.int64(), float: pa.float64(), bool: pa.bool_()}
    hints = get_type_hints(kind)
    schema = pa.schema([(name, types[_plain_type(hints[name])]) for name in kind._fields])
    n, rest = 0, iter(table)
    with parquet.ParquetWriter(sink, schema) as writer:
        while chunk := list(islice(rest, _CHUNK)):
            columns = zip(*chunk, strict=True)
            arrays = [
                pa.array([_valid(cell) for cell in column], field.type)
                for column, field in zip(columns, schema, strict=True)
            ]
            writer.write_batch(pa.record_batch(arrays, schema=schema))
            n += len(chunk)
    return n


def _plain_type(hint: Any) -> type:
    """Give the type of an optional column."""
    found: type = next((t for t in get_args(hint) if t is not NoneType), hint)
    return found


_FORMS = {".jsonl": _to_jsonl, ".csv": _to_csv, ".parquet": _to_parquet}
