"""Reads the units: rows of files into a frame and the fields that judges are shown."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from hashlib import sha256
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from orchestrator.campaign_file import Data, Fields, FieldSource
from orchestrator.core.errors import InvalidCampaign, Problem
from orchestrator.core.frame import CANDIDATE, Frame
from orchestrator.core.seeds import Seeds, Stream
from orchestrator.core.wire import Chat, Turn
from orchestrator.material import shown
from orchestrator.tables import Problems, Row, read_table
from orchestrator.wording import did_you_mean, seen


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Dataset:
    """The units of a campaign.

    Parameters
    ----------
    frame : items, arms, clusters, strata, groups, weights
    fields : one mapping a unit, in the frame's order, all with the same names
    truth : (n_units,) float64, known truth of mock campaigns; None where no column holds it
    numbers : (n_units,) float64 of each further column that was asked for
    losses : items that each arm has and some other arm lacks; they are left out
    digest : sha256 over everything above but the losses
    warnings : what was odd and harmless
    """

    frame: Frame
    fields: tuple[Mapping[str, str | Chat], ...]
    truth: NDArray[np.float64] | None
    losses: Mapping[str, int]
    digest: str
    warnings: tuple[Problem, ...]
    numbers: Mapping[str, NDArray[np.float64]] = field(default_factory=dict)


def read_data(
    spec: Data,
    *,
    base: Path,
    truth: str | None = None,
    numbers: Mapping[str, str] | None = None,
    systems: Sequence[str] = (),
    locate: Callable[[str, str], Problem] = lambda path, message: Problem(
        path=path, message=message
    ),
) -> Dataset:
    """Read the files that a campaign names, relative to `base`.

    `truth` names the column of the known truth, `numbers` further columns of numbers, each by the key
    of the campaign file that wants it. With `systems` each row is a unit of each of them, whose answer
    is still to come. `locate` makes a problem at a field of the
    campaign file, for columns that no row has.

    Raises
    ------
    InvalidCampaign
        With every problem of every file: duplicate ids, missing and empty fields, bad numbers,
        lines that can't be read, unknown columns, arms that share no item.
    """
    reader = _Reader(spec, base, truth, numbers or {}, locate)
    if spec.files:
        for arm, path in spec.files.items():
            reader.read(path, arms=(arm,))
    elif spec.path is not None:
        reader.read(spec.path, arms=tuple(systems) or tuple(spec.arm_fields) or ("",))
    return reader.dataset()


def sample(dataset: Dataset, n: int, *, seeds: Seeds) -> Dataset:
    """Take n random items, in file order; a larger sample of one seed holds the smaller ones.

    Draws from `stream(LAYOUT, SAMPLE)`.
    """
    frame = dataset.frame
    if n >= frame.n_items:
        return dataset
    order = seeds.spawn(Stream.LAYOUT, SAMPLE).permutation(frame.n_items)
    kept = np.sort(order[:n])
    units = units_of(frame, kept)
    part = frame_part(frame, kept)
    fields = tuple(dataset.fields[unit] for unit in units)
    truth = None if dataset.truth is None else dataset.truth[units]
    numbers = {name: column[units] for name, column in dataset.numbers.items()}
    return replace(
        dataset,
        frame=part,
        fields=fields,
        truth=truth,
        numbers=numbers,
        digest=_digest(part, fields, truth, numbers),
    )


def frame_part(frame: Frame, kept: NDArray[np.int64]) -> Frame:
    """Make the frame of some of the items, given by index."""

    def labels(names: tuple[str, ...], codes: NDArray[np.int64]) -> list[str] | None:
        return [names[code] for code in codes[kept]] if names else None

    return Frame.of(
        [frame.items[i] for i in kept],
        frame.arms,
        cluster=labels(frame.clusters, frame.cluster),
        stratum=labels(frame.strata, frame.stratum),
        group=labels(frame.groups, frame.group),
        weight=frame.weight[kept].tolist(),
    )


def units_of(frame: Frame, items: NDArray[np.int64]) -> list[int]:
    """List the units of some items, given by index, in all arms."""
    return [int(i) * frame.n_arms + arm for i in items for arm in range(frame.n_arms)]


SAMPLE = int.from_bytes(b"sample")
"""The key of the stream that draws samples, apart from those of layouts, which are small."""


# --- units -------------------------------------------------------------------------------------


class _Unit(NamedTuple):
    """One unit as its row holds it; `labels` are those of `_LABELS`, which belong to the item."""

    row: Row
    labels: tuple[str | float | None, ...]
    fields: Mapping[str, str | Chat]
    truth: float
    numbers: tuple[float, ...]


_LABELS = ("cluster", "strata", "group", "weight")


class _Reader:
    """Reads rows into units, and joins the units of all arms."""

    def __init__(
        self,
        spec: Data,
        base: Path,
        truth: str | None,
        numbers: Mapping[str, str],
        locate: Callable[[str, str], Problem],
    ) -> None:
        self._spec = spec
        self._arm_fields = spec.arm_fields
        self._base = base.absolute()
        self._truth = truth
        self._numbers = tuple(dict.fromkeys(numbers.values()))
        self._locate = locate
        self._problems = Problems()
        self._warnings = Problems()
        self._units: dict[str, dict[str, _Unit]] = {}
        self._columns = {**dict(_columns(spec, truth)), **numbers}
        self._absent: set[str] = set()

    def read(self, path: Path, arms: tuple[str, ...]) -> None:
        """Read a file whose rows are units of these arms, unless a column names the arm."""
        path = self._base / path
        file = str(path.relative_to(self._base)) if path.is_relative_to(self._base) else str(path)
        wanted = list(dict.fromkeys(self._columns.values()))
        table = read_table(path, file, wanted, self._problems)
        if table is None:
            return
        self._absent = {column for column in wanted if column not in table.columns}
        if not table.rows:
            self._problems.add("no rows", Problem(file=file, message="no rows"))
            return
        for key, column in self._columns.items():
            if column in self._absent:
                hint = did_you_mean(column, table.columns)
                message = f"{file} has no column {seen(column)}{hint}"
                self._problems.add("no such column", self._locate(key, message))
        for row in table.rows:
            self._take(row, arms)

    def _take(self, row: Row, arms: tuple[str, ...]) -> None:
        spec = self._spec
        item = self._name(row, spec.id)
        if spec.arm is not None:
            arms = (self._name(row, spec.arm) or "",)
        labels = (
            self._name(row, spec.cluster),
            self._name(row, spec.strata),
            self._name(row, spec.group),
            self._number(row, spec.weight, above=0.0),
        )
        truth = self._number(row, self._truth)
        numbers = tuple(self._number(row, column) for column in self._numbers)
        fields = self._fields(row, spec.fields)
        for arm in arms:
            own = self._fields(row, self._arm_fields.get(arm, {}))
            unit = _Unit(row, labels, fields | own, truth, numbers)
            first = self._units.setdefault(arm, {}).setdefault(item or "", unit)
            if item and first is not unit and arm == arms[0]:
                line = "" if first.row.line is None else f" (line {first.row.line})"
                message = f"{seen(item)} is the id of row {first.row.number}{line} already"
                self._problems.add("a duplicate id", row.problem(spec.id, message))

    def _name(self, row: Row, column: str | None) -> str | None:
        """Read a label: text or a whole number."""
        if column is None or column in self._absent:
            return None
        match row.cells.get(column):
            case str() as text if text and not text.isspace():
                return self._well_formed(text, row, column)
            case None | str():
                self._problems.add("missing", row.problem(column, "missing"))
            case int() as number if not isinstance(number, bool):
                return str(number)
            case other:
                message = f"wants text or a whole number, not {seen(other)}"
                self._problems.add("no name", row.problem(column, message))
        return None

    def _number(self, row: Row, column: str | None, *, above: float = -math.inf) -> float:
        if column is None or column in self._absent:
            return math.nan
        value: Any = row.cells.get(column)
        try:
            number = math.nan if isinstance(value, bool) else float(value)
        except (TypeError, ValueError):
            number = math.nan
        if not above < number < math.inf:
            wanted = "a number" if above == -math.inf else f"a number above {above:g}"
            message = f"wants {wanted}, not {seen(value)}"
            self._problems.add("no number", row.problem(column, message))
        return number

    def _fields(self, row: Row, sources: Fields) -> dict[str, str | Chat]:
        return {
            name: self._field(row, name, source)
            for name, source in sources.items()
            if source.column not in self._absent
        }

    def _field(self, row: Row, name: str, source: FieldSource) -> str | Chat:
        column = source.column
        value = row.cells.get(column)
        if value is None or (row.is_text and not value):
            if not source.optional:
                what = "missing" if value is None else "empty"
                self._problems.add(what, row.problem(column, f"the field {name} is {what}"))
            return ""
        try:
            field = shown(value, source.kind, is_text=row.is_text)
        except ValueError as exc:
            self._problems.add("not readable", row.problem(column, str(exc)))
            return ""
        turns = field.turns if isinstance(field, Chat) else (Turn(role="", content=field),)
        if name == CANDIDATE and all(not t.content or t.content.isspace() for t in turns):
            self._problems.add("empty", row.problem(column, "the candidate is empty"))
        if isinstance(field, str):
            return self._well_formed(field, row, column)
        clean = [
            [self._well_formed(text, row, column) for text in (t.role, t.content)] for t in turns
        ]
        return Chat(turns=tuple(Turn(role=role, content=content) for role, content in clean))

    def _well_formed(self, text: str, row: Row, column: str) -> str:
        """Replace lone surrogates, which no encoding of the text could carry, by U+FFFD."""
        if text.isascii() or not _SURROGATE.search(text):
            return text
        problem = row.problem(column, "a lone surrogate became U+FFFD")
        self._warnings.add("a lone surrogate", problem)
        return _SURROGATE.sub("\ufffd", text)

    def dataset(self) -> Dataset:
        """Join the arms on the items that all of them have."""
        self._refuse()
        spec, by_arm = self._spec, list(self._units.values())
        items = [item for item in by_arm[0] if all(item in units for units in by_arm)]
        if not items:
            self._problems.add("no join", self._locate("data.arms", "no item is in every arm"))
        for item in items:
            self._compare([units[item] for units in by_arm])
        self._refuse()
        labels = [by_arm[0][item].labels for item in items]

        def column(key: str) -> list[Any] | None:
            index = _LABELS.index(key)
            return [values[index] for values in labels] if getattr(spec, key) else None

        losses = {arm: len(found) - len(items) for arm, found in self._units.items()}
        for arm, n in losses.items():
            if n:
                message = f"{n} items of {seen(arm)} are not in every arm; they are left out"
                self._warnings.add("left out", self._locate("data.arms", message))
        frame = Frame.of(
            items,
            tuple(self._units),
            cluster=column("cluster"),
            stratum=column("strata"),
            group=column("group"),
            weight=column("weight"),
        )
        units = [units[item] for item in items for units in by_arm]
        fields = tuple(unit.fields for unit in units)
        truth = np.array([unit.truth for unit in units]) if self._truth else None
        numbers = {
            name: np.array([unit.numbers[index] for unit in units])
            for index, name in enumerate(self._numbers)
        }
        return Dataset(
            frame=frame,
            fields=fields,
            truth=truth,
            losses=losses,
            digest=_digest(frame, fields, truth, numbers),
            warnings=self._warnings.listed(),
            numbers=numbers,
        )

    def _compare(self, units: Sequence[_Unit]) -> None:
        """Check that the arms of an item agree on what belongs to the item."""
        for unit in units[1:]:
            for key, own, other in zip(_LABELS, unit.labels, units[0].labels, strict=True):
                if own != other and getattr(self._spec, key):
                    message = f"{seen(own)}, where another arm of the item has {seen(other)}"
                    problem = unit.row.problem(getattr(self._spec, key), message)
                    self._problems.add("arms that disagree", problem)

    def _refuse(self) -> None:
        if problems := self._problems.listed():
            raise InvalidCampaign(problems)


_SURROGATE = re.compile("[\ud800-\udfff]")


def _columns(spec: Data, truth: str | None) -> Iterator[tuple[str, str]]:
    """Pair each key of the campaign file that names a column with the column."""
    for key in ("id", "arm", *_LABELS):
        if column := getattr(spec, key):
            yield f"data.{key}", column
    for name, source in spec.fields.items():
        yield f"data.fields.{name}", source.column
    for arm, fields in spec.arm_fields.items():
        for name, source in fields.items():
            yield f"data.arms.{arm}.{name}", source.column
    if truth is not None:
        yield "judges", truth


# --- the digest --------------------------------------------------------------------------------


def _digest(
    frame: Frame,
    fields: Sequence[Mapping[str, str | Chat]],
    truth: NDArray[np.float64] | None,
    numbers: Mapping[str, NDArray[np.float64]],
) -> str:
    """Digest everything that a campaign reads, however the files spell it."""
    digest = sha256()
    labels = [
        [names[code] for code in codes.tolist()] if names else [None] * frame.n_items
        for names, codes in (
            (frame.clusters, frame.cluster),
            (frame.strata, frame.stratum),
            (frame.groups, frame.group),
        )
    ]
    weights = frame.weight.tolist()
    truths = [None] * frame.n_units if truth is None else truth.tolist()
    for unit in range(frame.n_units):
        item, arm = divmod(unit, frame.n_arms)
        about = [column[item] for column in labels]
        row = [frame.items[item], frame.arms[arm], *about, weights[item], truths[unit]]
        row += [float(numbers[name][unit]) for name in sorted(numbers)]
        digest.update(_CANONICAL.encode([*row, fields[unit]]).encode())
    return digest.hexdigest()


_CANONICAL = json.JSONEncoder(
    sort_keys=True, default=lambda chat: [[turn.role, turn.content] for turn in chat.turns]
)
