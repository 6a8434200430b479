"""Rows of CSV, JSONL and Parquet files, each with its number and line, and problems with them."""

from __future__ import annotations

import csv
import gzip
import json
import math
import zlib
from collections import Counter, defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from io import StringIO
from pathlib import Path
from typing import Any, NamedTuple

from orchestrator.core.errors import Problem
from orchestrator.wording import seen

MOST = 50
"""How many problems of one kind are listed."""


class Row(NamedTuple):
    """One data row: its number from 1, and its line where the file has lines.

    `is_text`: the cells are text, of which an empty one is no value, as in CSV.
    """

    file: str
    number: int
    line: int | None
    cells: Mapping[str, Any]
    is_text: bool = False

    def problem(self, column: str, message: str) -> Problem:
        """Make a problem at a cell."""
        message = f"row {self.number}: {message}"
        return Problem(file=self.file, line=self.line, path=column, message=message)


@dataclass(frozen=True, slots=True)
class Table:
    """The rows of a file, and the columns that any of them has."""

    rows: Sequence[Row]
    columns: Collection[str]


class Problems:
    """Collects problems; of each kind, file and column at most `MOST` are listed, all counted."""

    def __init__(self) -> None:
        self._kept: defaultdict[tuple[str, str, str], list[Problem]] = defaultdict(list)
        self._count: Counter[tuple[str, str, str]] = Counter()

    def add(self, kind: str, problem: Problem) -> None:
        """Take a problem in."""
        key = (kind, problem.file, problem.path)
        self._count[key] += 1
        if self._count[key] <= MOST:
            self._kept[key].append(problem)

    def listed(self) -> tuple[Problem, ...]:
        """List the problems in the order of files and lines, and how many more there are."""
        listed = [problem for problems in self._kept.values() for problem in problems]
        for (kind, file, path), count in self._count.items():
            if count > MOST:
                message = f"{count - MOST} more of this kind: {kind}"
                listed.append(Problem(file=file, path=path, message=message))
        return tuple(sorted(listed, key=lambda problem: (problem.file, problem.line or math.inf)))


class _Unreadable(Exception):
    """A file can't be read."""

    def __init__(self, message: str, line: int | None = None) -> None:
        super().__init__(message)
        self.line = line


def read_table(path: Path, file: str, wanted: Sequence[str], problems: Problems) -> Table | None:
    """Read a file by its ending; give None, and add to the problems, where it can't be read.

    `file` is its name in them. Of Parquet only the `wanted` columns are read.
    """
    name = path.name.lower()
    ending = Path(name.removesuffix(".gz")).suffix
    try:
        match ending, name.endswith(".gz"):
            case ".csv", _:
                return _csv(_text(path), file, problems)
            case ((".jsonl" | ".ndjson"), _):
                return _jsonl(_text(path), file, problems)
            case ".parquet", False:
                return _parquet(path, file, wanted)
            case _:
                message = f"wants .csv, .jsonl (also .gz) or .parquet, not {seen(path.name)}"
                problems.add("unreadable", Problem(file=file, message=message))
    except _Unreadable as exc:
        problems.add("unreadable", Problem(file=file, line=exc.line, message=str(exc)))
    return None


def _text(path: Path) -> str:
    """Read text as UTF-8, whatever the platform prefers; a lone surrogate passes."""
    try:
        raw = path.read_bytes()
        if path.name.lower().endswith(".gz"):
            raw = gzip.decompress(raw)
    except (OSError, EOFError, zlib.error) as exc:
        raise _Unreadable(f"can't be read: {exc}") from exc
    try:
        text = raw.decode("utf-8", "surrogatepass")
    except UnicodeDecodeError as exc:
        raise _Unreadable("not UTF-8", raw.count(b"\n", 0, exc.start) + 1) from exc
    return text.removeprefix("\ufeff")


_WIDEST = 2**31 - 1
"""By default Python refuses cells of more than 128 KB, and a long conversation has more."""


def _csv(text: str, file: str, problems: Problems) -> Table:
    csv.field_size_limit(_WIDEST)
    reader = csv.reader(StringIO(text, newline=""), strict=True)
    rows: list[Row] = []
    try:
        header = next(reader, [])
        for name, count in Counter(header).items():
            if count > 1:
                message = f"column {seen(name)} stands {count} times"
                problems.add("header", Problem(file=file, line=1, message=message))
        line = reader.line_num + 1
        for cells in reader:
            if cells:
                named = dict(zip(header, cells, strict=False))
                row = Row(file, len(rows) + 1, line, named, is_text=True)
                rows.append(row)
                if len(cells) != len(header):
                    message = f"{len(cells)} cells for {len(header)} columns"
                    problems.add("cells", row.problem("", message))
            line = reader.line_num + 1
    except csv.Error as exc:
        raise _Unreadable(f"not readable as CSV: {exc}", reader.line_num) from exc
    return Table(rows, header)


def _jsonl(text: str, file: str, problems: Problems) -> Table:
    rows: list[Row] = []
    columns: dict[str, None] = {}
    number = 0
    # Not `splitlines`, which breaks at U+2028 too.
    for line, record in enumerate(text.split("\n"), 1):
        if not record or record.isspace():
            continue
        number += 1
        try:
            cells = json.loads(record, object_pairs_hook=_unique)
        except (ValueError, RecursionError) as exc:
            broken = Row(file, number, line, {})
            problems.add("unreadable", broken.problem("", f"not readable as JSON: {exc}"))
            continue
        if not isinstance(cells, dict):
            broken = Row(file, number, line, {})
            problems.add("unreadable", broken.problem("", f"wants an object, not {seen(cells)}"))
            continue
        rows.append(Row(file, number, line, cells))
        columns |= dict.fromkeys(cells)
    return Table(rows, columns)


def _parquet(path: Path, file: str, wanted: Sequence[str]) -> Table:
    try:
        import pyarrow as pa  # noqa: PLC0415 # an extra, and slow to import
        import pyarrow.parquet as pq  # noqa: PLC0415 # the same
    except ImportError as exc:
        raise _Unreadable("Parquet wants pyarrow: pip install 'sortition[parquet]'") from exc
    try:
        with pq.ParquetFile(path) as parquet:
            columns = parquet.schema_arrow.names
            table = parquet.read(columns=[name for name in wanted if name in columns])
    except (OSError, pa.ArrowException) as exc:
        raise _Unreadable(f"not readable as Parquet: {exc}") from exc
    rows = [Row(file, number, None, cells) for number, cells in enumerate(table.to_pylist(), 1)]
    return Table(rows, columns)


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Refuse a key that stands twice: whichever value was meant, the other would be lost."""
    cells = dict(pairs)
    if len(cells) < len(pairs):
        raise ValueError("a key stands twice")
    return cells
