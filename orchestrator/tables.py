"""Rows of CSV, JSONL and Parquet files, each with its number and line, and problems with them."""

from __future__ import annotations

import csv
import gzip
import json
import math
import zlib
from array import array
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from io import StringIO
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from orchestrator.core.errors import Problem
from orchestrator.wording import seen

MOST = 5
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


class Column(NamedTuple):
    """One column: `codes` (n_rows,) int64 into its distinct `values`, first seen first."""

    codes: NDArray[np.int64]
    values: Sequence[Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Columns:
    """Some columns of a file, each distinct cell kept once.

    Parameters
    ----------
    file : its name in problems
    n_rows : data rows
    lines : (n_rows,) int64, None where the file has no lines
    names : the columns that any row has, also those that were not read
    columns : those that were; a cell that a row lacks is None
    is_text : as in `Row`
    """

    file: str
    n_rows: int
    lines: NDArray[np.int64] | None
    names: Collection[str]
    columns: Mapping[str, Column]
    is_text: bool

    def row(self, index: int) -> Row:
        """Give the place of a row, without its cells."""
        line = None if self.lines is None else int(self.lines[index])
        return Row(self.file, index + 1, line, {}, self.is_text)


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
                message = f"and {count - MOST:,} more of this kind: {kind}"
                listed.append(Problem(file=file, path=path, message=message))
        return tuple(sorted(listed, key=lambda problem: (problem.file, problem.line or math.inf)))


class _Unreadable(Exception):
    """A file can't be read."""

    def __init__(self, message: str, line: int | None = None) -> None:
        super().__init__(message)
        self.line = line

    def problem(self, file: str) -> Problem:
        """Make it a problem of a file."""
        return Problem(file=file, line=self.line, message=str(self))


def read_table(path: Path, file: str, wanted: Sequence[str], problems: Problems) -> Table | None:
    """Read a file by its ending; give None, and add to the problems, where it can't be read.

    `file` is its name in them. Of Parquet only the `wanted` columns are read.
    """
    try:
        rows, columns = _rows(path, file, wanted, problems)
        return Table(list(rows), columns)
    except _Unreadable as exc:
        problems.add("unreadable", exc.problem(file))
    return None


def read_columns(
    path: Path, file: str, wanted: Collection[str], problems: Problems
) -> Columns | None:
    """Read the wanted columns as `read_table` reads rows, of which it keeps none."""
    try:
        if _ending(path) == ".parquet":
            return _parquet_columns(path, file, wanted)
        rows, names = _rows(path, file, wanted, problems)
        coders: dict[str, _Coder] = {}
        lines, n_names = array("q"), 0
        for number, row in enumerate(rows):
            if len(names) > n_names:
                n_names = len(names)
                new = [name for name in wanted if name in names and name not in coders]
                coders |= {name: _Coder(number) for name in new}
            lines.append(row.line or 0)
            for name, coder in coders.items():
                coder.add(row.cells.get(name))
    except _Unreadable as exc:
        problems.add("unreadable", exc.problem(file))
        return None
    return Columns(
        file=file,
        n_rows=len(lines),
        lines=np.array(lines, dtype=np.int64),
        names=names,
        columns={name: coder.column() for name, coder in coders.items()},
        is_text=_ending(path) == ".csv",
    )


class _Coder:
    """Numbers the distinct cells of a column, which so many rows before lack."""

    def __init__(self, n_lacking: int) -> None:
        self._codes = array("q")
        self._values: list[Any] = []
        self._index: dict[Any, int] = {}
        for _ in range(n_lacking):
            self.add(None)

    def add(self, cell: Any) -> None:
        """Take the next row's cell. In JSON 1, 1.0, true and "1" are four values."""
        key = cell if type(cell) is str else (type(cell), repr(cell))
        code = self._index.get(key)
        if code is None:
            code = self._index[key] = len(self._values)
            self._values.append(cell)
        self._codes.append(code)

    def column(self) -> Column:
        """Give the column."""
        return Column(np.array(self._codes, dtype=np.int64), self._values)


def _ending(path: Path) -> str:
    """Name the form of a file; text may be packed, Parquet packs itself."""
    name = path.name.lower()
    text = name.removesuffix(".gz")
    return "" if name != text and text.endswith(".parquet") else Path(text).suffix


def _rows(
    path: Path, file: str, wanted: Collection[str], problems: Problems
) -> tuple[Iterable[Row], Collection[str]]:
    """Open a file by its ending: its rows, and the columns known once all rows have passed."""
    match _ending(path):
        case ".csv":
            return _csv(_text(path), file, problems)
        case ".jsonl" | ".ndjson":
            columns: dict[str, None] = {}
            return _jsonl(_text(path), file, problems, columns), columns
        case ".parquet":
            return _parquet(path, file, wanted)
        case _:
            raise _Unreadable(f"wants .csv, .jsonl (also .gz) or .parquet, not {seen(path.name)}")


def _text(path: Path) -> str:
    """Read text as UTF-8, whatever the platform prefers; a lone surrogate passes."""
    try:
        raw = path.read_bytes()
        if path.name.lower().endswith(".gz"):
            raw = gzip.decompress(raw)
    except FileNotFoundError as exc:
        raise _Unreadable("no such file") from exc
    except (OSError, EOFError, zlib.error) as exc:
        raise _Unreadable(f"can't be read: {getattr(exc, 'strerror', None) or exc}") from exc
    try:
        text = raw.decode("utf-8", "surrogatepass")
    except UnicodeDecodeError as exc:
        raise _Unreadable("not UTF-8", raw.count(b"\n", 0, exc.start) + 1) from exc
    return text.removeprefix("\ufeff")


_WIDEST = 2**31 - 1
"""By default Python refuses cells of more than 128 KB, and a long conversation has more."""


def _csv(text: str, file: str, problems: Problems) -> tuple[Iterator[Row], Sequence[str]]:
    csv.field_size_limit(_WIDEST)
    reader = csv.reader(StringIO(text, newline=""), strict=True)
    try:
        header = next(reader, [])
    except csv.Error as exc:
        raise _Unreadable(f"not readable as CSV: {exc}", reader.line_num) from exc
    if len(header) == 1 and (other := next((c for c in ";\t|" if c in header[0]), None)):
        raise _Unreadable(f"its columns are separated by {seen(other)}; wants commas", 1)
    for name, count in Counter(header).items():
        if count > 1:
            message = f"column {seen(name)} stands {count} times"
            problems.add("header", Problem(file=file, line=1, message=message))

    def rows() -> Iterator[Row]:
        number, line = 0, reader.line_num + 1
        try:
            for cells in reader:
                if cells:
                    number += 1
                    named = dict(zip(header, cells, strict=False))
                    row = Row(file, number, line, named, is_text=True)
                    if len(cells) != len(header):
                        message = f"{len(cells)} cells for {len(header)} columns"
                        problems.add("cells", row.problem("", message))
                    yield row
                line = reader.line_num + 1
        except csv.Error as exc:
            raise _Unreadable(f"not readable as CSV: {exc}", reader.line_num) from exc

    return rows(), header


def _jsonl(text: str, file: str, problems: Problems, columns: dict[str, None]) -> Iterator[Row]:
    """Give the rows, and add to the columns what each of them has."""
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
        columns |= dict.fromkeys(cells)
        yield Row(file, number, line, cells)


def _parquet(path: Path, file: str, wanted: Collection[str]) -> tuple[Iterator[Row], Sequence[str]]:
    table, columns = _arrow(path, wanted)
    rows = (Row(file, number, None, cells) for number, cells in enumerate(table.to_pylist(), 1))
    return rows, columns


def _parquet_columns(path: Path, file: str, wanted: Collection[str]) -> Columns:
    import pyarrow as pa  # noqa: PLC0415 # an extra, and slow to import

    table, names = _arrow(path, wanted)
    found = {}
    for name, column in zip(table.column_names, table.columns, strict=True):
        plain = column.combine_chunks()
        if pa.types.is_dictionary(plain.type):
            plain = plain.dictionary_decode()
        try:
            coded = plain.dictionary_encode(null_encoding="encode")
        except pa.ArrowException as exc:
            raise _Unreadable(f"column {seen(name)} holds no plain cells: {exc}") from exc
        codes = coded.indices.to_numpy().astype(np.int64)
        found[name] = Column(codes, coded.dictionary.to_pylist())
    return Columns(
        file=file, n_rows=table.num_rows, lines=None, names=names, columns=found, is_text=False
    )


def _arrow(path: Path, wanted: Collection[str]) -> tuple[Any, Sequence[str]]:
    """Read columns of Parquet; give them as an Arrow table, and the names of all."""
    try:
        import pyarrow as pa  # noqa: PLC0415 # an extra, and slow to import
        import pyarrow.parquet as pq  # noqa: PLC0415 # the same
    except ImportError as exc:
        raise _Unreadable("Parquet wants pyarrow: pip install 'sortition[parquet]'") from exc
    try:
        with pq.ParquetFile(path) as parquet:
            columns: Sequence[str] = parquet.schema_arrow.names
            return parquet.read(columns=[name for name in wanted if name in columns]), columns
    except FileNotFoundError as exc:
        raise _Unreadable("no such file") from exc
    except (OSError, pa.ArrowException) as exc:
        raise _Unreadable(f"not readable as Parquet: {exc}") from exc


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Refuse a key that stands twice: whichever value was meant, the other would be lost."""
    cells = dict(pairs)
    if len(cells) < len(pairs):
        raise ValueError("a key stands twice")
    return cells
