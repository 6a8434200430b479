"""A judge made of recorded verdicts, at a declared price.

It reads tidy ratings (`item_id, judge, replicate, score`, optionally `dimension` or `criterion`,
and `arm`) or comparisons (`item_id, left, right, winner, judge, replicate`, and the same options;
`left` was shown first) from CSV or JSON lines, plain or gzipped, or is handed those of another run,
and serves each recorded repeat of a question once, in order of the recorded `replicate`. Answers come
as the JSON that a live judge would send, so they are read by the ordinary rubric. An empty score or
winner is a failure of the recorded judge: a repeat without a verdict, which costs a call like any
other. `null` is "not applicable".

A system under test is recorded likewise: by texts (`item_id, system, answer`, optionally
`replicate`), which are served as they are. An empty answer is a failure.
"""

from __future__ import annotations

import csv
import gzip
import json
import zlib
from collections.abc import Container, Iterable, Iterator, Sequence
from dataclasses import dataclass
from decimal import Decimal
from difflib import get_close_matches
from functools import lru_cache
from itertools import chain
from operator import itemgetter
from pathlib import Path
from typing import Literal, NoReturn, TextIO

from pydantic import BaseModel, ConfigDict, Field

from judges.rubrics.fence import well_formed
from orchestrator.core.errors import Exhausted, InvalidCampaign, Permanent, Problem
from orchestrator.core.money import Nano, PriceCard, ceiling_cost
from orchestrator.core.ports import JudgeSetting, Plugin
from orchestrator.core.query import Kind, MissingReason, Preference, Role
from orchestrator.core.scale import Criterion, ScaleType
from orchestrator.core.seeds import Stream
from orchestrator.core.wire import Finish, Json, Origin, Reply, Request, Usage


class RecordedConfig(BaseModel):
    """The key `recorded` of a judge.

    `path` is a file of ratings or comparisons, or the directory of a run, `judge` its name there; of a
    system a file of answers, as `sortition generate` writes it. `criterion` is the
    recorded dimension to read; without it a dimension is found by the name of the campaign's
    criterion, or is the only one. `usd_per_call` is both hold and cost of an answer, 0 for those of
    a run unless said. Where a question has no further repeat, `stop` answers `exhausted` at no cost
    and `resample` draws one of its repeats again, flagged `resampled`.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    path: Path
    judge: str
    criterion: str | None = None
    usd_per_call: Decimal | None = Field(default=None, ge=0, allow_inf_nan=False)
    on_exhausted: Literal["stop", "resample"] = "stop"


class RecordedJudge:
    """Serves the recorded repeats of each unit or comparison, in order.

    Units are found by item and, where the recording has arms, by arm; comparisons by item and by
    the arms in the order in which they were shown; a system's answers by item alone, since its arm
    is its own. What the recording lacks is exhausted from the start.

    Raises
    ------
    InvalidCampaign
        The file can't be read, lacks the judge or a criterion, fits no unit of the campaign, or has
        other records than are wanted: ratings, comparisons or answers.
    """

    def __init__(self, config: RecordedConfig, setting: JudgeSetting) -> None:
        study, frame = setting.study, setting.study.frame
        self._judge = setting.judge
        self._name = config.judge
        self._seeds = study.seeds
        self._resamples = config.on_exhausted == "resample"
        is_system = setting.role is Role.SYSTEM
        recording = setting.recording or load(config.path, of_systems=is_system)
        if is_system != (recording.holds == "answers"):
            wanted = "a system gives answers" if is_system else "a judge gives verdicts"
            _refuse(config.path, f"it holds {recording.holds}, and {wanted}")
        if not is_system and (recording.holds == "comparisons") != (study.kind is Kind.COMPARE):
            _refuse(config.path, f"it holds {recording.holds}, and the task is {study.kind}")
        items = {item: index for index, item in enumerate(frame.items)}
        said: dict[tuple[str, ...], Iterator[str]]
        if is_system:
            (table,) = recording.of(config.judge).values()
            said = {cell: _texts(texts) for cell, texts in table.items()}
            arms = {"": frame.arms.index(setting.name)}
        else:
            tables = _tables(recording, config, study.criteria)
            if frame.n_arms > 1 and not recording.has_arms:
                _refuse(config.path, f"no column arm, and the campaign has {frame.n_arms} arms")
            said = {
                cell: _answers([table.get(cell, {}) for table in tables], study.criteria)
                for cell in dict.fromkeys(chain(*tables))
            }
            arms = {arm: at for at, arm in enumerate(frame.arms if recording.has_arms else [""])}
        spelt: dict[str, str] = {}
        self._repeats: dict[tuple[int, ...], tuple[str, ...]] = {}
        for (item, *shown), answers in said.items():
            if item in items and arms.keys() >= set(shown):
                units = tuple(frame.unit(items[item], arms[arm]) for arm in shown)
                # The same few texts recur: one copy of each.
                self._repeats[units] = tuple(spelt.setdefault(text, text) for text in answers)
        if not self._repeats:
            what = "answers" if is_system else "verdicts"
            _refuse(
                config.path,
                f'none of the {what} of "{config.judge}" is on a unit of the campaign',
            )

    def ceiling(self, request: Request, card: PriceCard) -> Nano:
        """Give the price of a call: a recording counts no tokens."""
        del request
        return ceiling_cost(0, 0, card)

    def n_repeats(self, *units: int) -> int:
        """Say how often a unit was judged, or two in this order, failures included."""
        return len(self._repeats.get(units, ()))

    async def send(self, request: Request) -> Reply:
        """Serve the repeat that the question's `replicate` numbers.

        Resampling draws from `stream(MOCK, judge, units, replicate)`.

        Raises
        ------
        Exhausted
            There is no such repeat.
        NoVerdict
            The repeat is a failure, and this attempt asks for it again.
        """
        query = request.query
        repeats = self._repeats.get(query.units, ())
        flags: tuple[str, ...] = ()
        if query.replicate < len(repeats):
            text = repeats[query.replicate]
        elif self._resamples and repeats:
            rng = self._seeds.stream(Stream.MOCK, self._judge, *query.units, query.replicate)
            text = repeats[rng.integers(len(repeats))]
            flags = ("resampled",)
        else:
            raise Exhausted(f"{len(repeats)} repeats are recorded")
        if not text and request.attempt.paid:
            raise NoVerdict
        return Reply(
            text=text,
            finish=Finish.STOP if text else Finish.EMPTY,
            usage=_NO_TOKENS,
            served_model=self._name,
            origin=Origin.RECORDED,
            flags=flags,
        )

    async def aclose(self) -> None:
        """Close nothing: the file was read at the start."""


class NoVerdict(Permanent):
    """The recording holds a failure, which was charged; asking again can't change it."""

    reason = MissingReason.EMPTY


def repeats(config: RecordedConfig, recording: Recording) -> int | None:
    """Say how often the judge can answer the same question at most; None without a limit.

    Raises
    ------
    InvalidCampaign
        The recording lacks the judge.
    """
    if config.on_exhausted == "resample":
        return None
    dimensions = recording.of(config.judge)
    wanted = dimensions if config.criterion is None else [config.criterion]
    cells = (cell for name in wanted for cell in dimensions.get(name, {}).values())
    return max(map(len, cells), default=0)


Holds = Literal["answers", "ratings", "comparisons"]
"""What a recording is of."""

Table = dict[tuple[str, ...], dict[int, str]]
"""Verdicts or answers as they are written, by item and arm ("" without), or by item and two arms as
shown, and by recorded replicate."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Recording:
    """What a file or a run holds, by judge and dimension, or by system and the dimension ""."""

    path: Path
    judges: dict[str, dict[str, Table]]
    has_arms: bool
    holds: Holds = "ratings"

    def of(self, judge: str) -> dict[str, Table]:
        """Give the dimensions of a judge."""
        if judge not in self.judges:
            who = "system" if self.holds == "answers" else "judge"
            close = get_close_matches(judge, self.judges, n=1)
            hint = f'did you mean "{close[0]}"?' if close else f"there are {_listed(self.judges)}"
            _refuse(self.path, f'no {who} "{judge}"; {hint}', key="judge")
        return self.judges[judge]


Rating = tuple[str, ...]
"""Item, judge, replicate, score, dimension and arm of a rating, as they are written; item, judge,
replicate, winner, dimension, left and right of a comparison; or item, system, replicate, answer and
"" of an answer."""


def load(path: Path, *, of_systems: bool = False) -> Recording:
    """Read a file of ratings, comparisons or answers; judges that share one share the reading, unless it has changed.

    What a file should have that has none of their columns is what is wanted: of systems, answers.

    Raises
    ------
    InvalidCampaign
        It can't be read, lacks a column, or has rows that are broken or stand twice.
    """
    try:
        about = path.stat()
    except FileNotFoundError:
        _refuse(path, "no such file")
    except OSError as exc:
        _refuse(path, exc.strerror or str(exc))
    usual = _ANSWERED if of_systems else _RATED
    return _parse(path, about.st_mtime_ns, about.st_size, usual)


@lru_cache(maxsize=4)
def _parse(path: Path, mtime_ns: int, size: int, usual: _Columns) -> Recording:
    del mtime_ns, size  # they tell one state of the file from another
    is_json = path.name.removesuffix(".gz").endswith(".jsonl")
    try:
        with _opened(path) as lines:
            rows = _json_rows(lines, usual) if is_json else _csv_rows(lines, usual)
            return recording_of(path, rows)
    except _BadRow as bad:
        _refuse(path, str(bad), bad.line)
    except (OSError, EOFError, zlib.error, UnicodeError) as exc:
        _refuse(path, f"can't be read: {getattr(exc, 'strerror', None) or exc}")


def recording_of(path: Path, ratings: Iterable[tuple[int | None, Rating]]) -> Recording:
    """Sort ratings, each with its line; a repeat without a number counts in order of appearance.

    Raises
    ------
    InvalidCampaign
        The number of a repeat is none, or stands twice.
    """
    judges: dict[str, dict[str, Table]] = {}
    problems: list[Problem] = []
    has_arms, holds = False, _HOLDS[1]
    known: dict[str, str] = {}
    for line, (item, judge, replicate, score, dimension, *arms) in ratings:
        about = (item, *(arms or [""]))
        cell = judges.setdefault(judge, {}).setdefault(dimension, {}).setdefault(about, {})
        has_arms = has_arms or any(arms)
        holds = _HOLDS[len(arms)]
        if holds == "comparisons":
            score = _side(score, *arms)  # noqa: PLW2901  # as it is asked for
        repeat = _replicate(replicate, cell)
        if repeat is None or repeat in cell:
            what = "no whole number" if repeat is None else f"twice the same {_ONE_OF[holds]}"
            problems.append(_problem(path, f"{what}: replicate {replicate!r}", line))
        else:
            # A few scores recur thousands of times: one copy of each.
            cell[repeat] = known.setdefault(score, score)
        if len(problems) >= _MOST_PROBLEMS:
            break
    if problems:
        raise InvalidCampaign(problems)
    return Recording(path=path, judges=judges, has_arms=has_arms, holds=holds)


def _side(winner: str, left: str, right: str) -> str:
    """Say by its place which answer won; what is no side stays as it is, to be refused."""
    if winner in (left, right):
        return Preference.FIRST if winner == left else Preference.SECOND
    return _SIDES.get(winner, winner)


class _BadRow(ValueError):
    def __init__(self, message: str, line: int) -> None:
        super().__init__(message)
        self.line = line


def _opened(path: Path) -> TextIO:
    # utf-8-sig: a byte-order mark, which spreadsheets write, is no part of the first column's name.
    if path.suffix == ".gz":
        return gzip.open(path, "rt", encoding="utf-8-sig", newline="")
    return path.open(encoding="utf-8-sig", newline="")


def _csv_rows(lines: TextIO, usual: _Columns) -> Iterator[tuple[int, Rating]]:
    """Give line number and cells in the order of the columns, "" where there is no such column."""
    # By default Python refuses cells of more than 128 KB, and a long answer has more.
    csv.field_size_limit(2**31 - 1)
    reader = csv.reader(lines, strict=True)
    try:
        header = next(reader, [])
        columns = _columns(header, usual)
        if missing := [*_missing(columns, header)]:
            raise _BadRow(f"no column {_listed(missing)}; there are {_listed(header)}", 1)
        # The place -1 of an absent column is the empty cell that each row gets at its end.
        places = [
            next((header.index(name) for name in names if name in header), -1) for names in columns
        ]
        pick = itemgetter(*places)
        for row in reader:
            if len(row) != len(header):
                message = f"{len(row)} cells under a header of {len(header)}"
                raise _BadRow(message, reader.line_num)
            row.append("")
            yield reader.line_num, pick(row)
    except csv.Error as exc:
        raise _BadRow(str(exc), reader.line_num) from exc


def _json_rows(lines: TextIO, usual: _Columns) -> Iterator[tuple[int, Rating]]:
    """Give line number and values in the order of the columns, "" for absent ones and null."""
    columns = usual
    for number, line in enumerate(lines, start=1):
        if not line.strip():
            continue
        try:
            row = json.loads(line)
        except ValueError as exc:
            raise _BadRow(f"not JSON: {exc}", number) from exc
        if not isinstance(row, dict) or [*_missing(columns, row)]:
            columns = _columns(row if isinstance(row, dict) else (), usual)
            if not isinstance(row, dict) or [*_missing(columns, row)]:
                raise _BadRow(f"not an object with {_listed(_missing(columns, ()))}", number)
        yield (
            number,
            tuple(
                next((_text(row[name]) for name in names if name in row), "") for names in columns
            ),
        )


def _columns(header: Container[str], usual: _Columns) -> _Columns:
    """Tell ratings, comparisons and answers apart by what a table has; name each column."""
    told = (("score", _RATED), ("winner", _COMPARED), ("answer", _ANSWERED))
    return next((columns for name, columns in told if name in header), usual)


def _missing(columns: _Columns, header: Container[str]) -> Iterator[str]:
    for names in columns:
        if names and names[0] in _REQUIRED and not any(name in header for name in names):
            yield names[0]


def _text(value: Json) -> str:
    match value:
        case None:
            return ""
        case str():
            return value
        case _:
            return json.dumps(value)


def _replicate(text: str, cell: dict[int, str]) -> int | None:
    """Read the number of a repeat; repeats without one count in order of appearance."""
    if text == "":
        return len(cell)
    return int(text) if text.isdecimal() else None


def _tables(
    recording: Recording, config: RecordedConfig, criteria: Sequence[Criterion]
) -> list[Table]:
    """Find the recorded dimension of each criterion."""
    dimensions = recording.of(config.judge)
    names = [criterion.name for criterion in criteria]
    if len(names) == 1:
        if config.criterion is not None:
            names = [config.criterion]
        elif len(dimensions) == 1:
            names = list(dimensions)
    missing = [name for name in names if name not in dimensions]
    if missing:
        there = _listed(dimensions)
        _refuse(
            config.path,
            f'no dimension {_listed(missing)} of judge "{config.judge}"; there are {there}',
            key="criterion" if config.criterion is not None else "judge",
        )
    return [dimensions[name] for name in names]


def _answers(cells: Sequence[dict[int, str]], criteria: Sequence[Criterion]) -> Iterator[str]:
    """Write the recorded repeats of one unit as JSON answers; "" where a score is missing."""
    for repeat in sorted(set().union(*cells)):
        scores = [cell.get(repeat, "") for cell in cells]
        pairs = [
            f"{json.dumps(criterion.name)}: {_as_json(score, criterion.scale.type)}"
            for score, criterion in zip(scores, criteria, strict=True)
        ]
        yield "" if "" in scores else "{" + ", ".join(pairs) + "}"


def _texts(cell: dict[int, str]) -> Iterator[str]:
    """Give the recorded answers to one item, "" for one that is blank."""
    for repeat in sorted(cell):
        yield well_formed(cell[repeat]) if cell[repeat].strip() else ""


@lru_cache(maxsize=1024)
def _as_json(score: str, scale: ScaleType) -> str:
    """Write a recorded score as a judge would; what is no verdict stays text, to be refused."""
    if score == NOT_APPLICABLE:
        return score
    try:
        value = json.loads(score.lower())
    except ValueError:
        value = None
    match value:
        case bool():
            return score.lower()
        case 0 | 1 if scale is ScaleType.BOOLEAN:
            return "true" if value else "false"
        case int() | float():
            return score.lower()
        case _:
            return json.dumps(score)


def _listed(names: Iterable[str]) -> str:
    return ", ".join(f'"{name}"' for name in names)


def _problem(path: Path, message: str, line: int | None = None, key: str = "path") -> Problem:
    """Make a problem of a file, at the key of `recorded` that is not as the file has it."""
    return Problem(file=str(path), line=line, path=f"recorded.{key}", message=message)


def _refuse(path: Path, message: str, line: int | None = None, key: str = "path") -> NoReturn:
    raise InvalidCampaign([_problem(path, message, line, key)])


NOT_APPLICABLE = "null"
"""The score of a verdict that says so; it is one where the task has `allow_na`."""


_REQUIRED = frozenset({"item_id", "judge", "score", "winner", "left", "right", "system", "answer"})
_Columns = tuple[tuple[str, ...], ...]
_RATED: _Columns = (
    ("item_id",),
    ("judge",),
    ("replicate",),
    ("score",),
    ("dimension", "criterion"),
    ("arm",),
)
_COMPARED: _Columns = (
    ("item_id",),
    ("judge",),
    ("replicate",),
    ("winner",),
    ("dimension", "criterion"),
    ("left", "model_a"),
    ("right", "model_b"),
)
_ANSWERED: _Columns = (
    ("item_id", "id", "item"),
    ("system", "arm", "judge"),
    ("replicate",),
    ("answer",),
    (),
)
_HOLDS: tuple[Holds, ...] = ("answers", "ratings", "comparisons")
"""What a record is, by how many arms it has."""
_ONE_OF = {"answers": "answer", "ratings": "verdict", "comparisons": "verdict"}
_SIDES = {
    "left": Preference.FIRST,
    "model_a": Preference.FIRST,
    "right": Preference.SECOND,
    "model_b": Preference.SECOND,
    "tie": Preference.TIE,
    "tie (bothbad)": Preference.TIE,
}
"""The winner by its place, also as arenas write it."""
_MOST_PROBLEMS = 20
_NO_TOKENS = Usage()

PLUGIN = Plugin(config=RecordedConfig, build=RecordedJudge)
