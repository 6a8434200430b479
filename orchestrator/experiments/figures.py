"""Figures with Monte-Carlo errors, beside those that were published: tables, JSON and curves."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from rich.box import SIMPLE_HEAD
from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from orchestrator.experiments.est_ivwe import mean_of
from orchestrator.experiments.plot import Panel
from orchestrator.experiments.worlds import Array

By = Mapping[str, Mapping[int, str]]
"""Figures of others as they print them, by what they are and the size they are of."""


class Figure(NamedTuple):
    """One figure of a study.

    Attributes
    ----------
    table : the setting
    what : what is measured, and in which unit
    n : size of each replicate: its batches, its comparisons, its models, as the study says
    value, se : mean over replicates and its Monte-Carlo standard error; nan: exact
    n_replicates : 0 for what is not simulated
    published : as [LD26] prints it; empty: it does not
    reference : what another program measured; empty: nothing
    """

    table: str
    what: str
    n: int
    value: float
    se: float
    n_replicates: int
    published: str = ""
    reference: str = ""


def cited(figures: Iterable[Figure], published: By, reference: By) -> list[Figure]:
    """Put the figures of others beside ours."""
    return [
        figure._replace(
            published=published.get(figure.what, {}).get(figure.n, ""),
            reference=reference.get(figure.what, {}).get(figure.n, ""),
        )
        for figure in figures
    ]


def share(table: str, what: str, n: int, happened: NDArray[np.bool_]) -> Figure:
    """Give how often something happened, percent of replicates."""
    p, reps = float(happened.mean()), len(happened)
    return Figure(table, what, n, 100 * p, 100 * math.sqrt(p * (1 - p) / reps), reps)


def mean(table: str, what: str, n: int, values: Array) -> Figure:
    """Give the mean over the replicates that have a value."""
    known = values[~np.isnan(values)]
    value, se = mean_of(known) if len(known) else (math.nan, math.nan)
    return Figure(table, what, n, value, se, len(known))


def median(table: str, what: str, n: int, values: Array) -> Figure:
    """Give the median; its error is half the way between the order statistics √n apart around it."""
    known = np.sort(values[~np.isnan(values)])
    reps = len(known)
    if not reps:
        return Figure(table, what, n, math.nan, math.nan, 0)
    root = math.sqrt(reps)
    places = np.clip(np.array([reps - root, reps + root]) / 2 - 0.5, 0, reps - 1)
    low, high = np.interp(places, np.arange(reps), known)
    return Figure(table, what, n, float(np.median(known)), float(high - low) / 2, reps)


def tables(figures: Sequence[Figure], x: str = "batches") -> list[RenderableType]:
    """Make a table a setting: a column for each size, `x`, figures of others below ours."""
    made: list[RenderableType] = []
    for name in dict.fromkeys(figure.table for figure in figures):
        own = [figure for figure in figures if figure.table == name]
        columns = sorted({figure.n for figure in own})
        table = Table(box=SIMPLE_HEAD)
        table.add_column(x)
        for n in columns:
            table.add_column(str(n), justify="right")
        for what in dict.fromkeys(figure.what for figure in own):
            row = {figure.n: figure for figure in own if figure.what == what}
            lines = [
                (what, {n: written(figure) for n, figure in row.items()}),
                ("  published", {n: figure.published for n, figure in row.items()}),
                ("  reference", {n: figure.reference for n, figure in row.items()}),
            ]
            for label, cells in lines:
                if any(cells.values()):
                    table.add_row(label, *(cells.get(n, "") for n in columns))
        made += [Text(name, style="italic"), table]
    return made


def crossed(figures: Sequence[Figure]) -> list[RenderableType]:
    """Make a table a setting of figures that are called `row: column`."""
    made: list[RenderableType] = []
    for name in dict.fromkeys(figure.table for figure in figures):
        cells: dict[str, dict[str, str]] = {}
        for figure in figures:
            if figure.table == name:
                row, _, column = figure.what.rpartition(": ")
                cells.setdefault(row, {})[column] = written(figure)
        columns = list(dict.fromkeys(column for row in cells.values() for column in row))
        table = Table(box=SIMPLE_HEAD)
        table.add_column("", no_wrap=True)
        for column in columns:
            table.add_column(column, justify="right", overflow="fold")
        for row, by_column in cells.items():
            table.add_row(row, *(by_column.get(column, "") for column in columns))
        made += [Text(name, style="italic"), table]
    return made


def written(figure: Figure) -> str:
    """Write a figure and its error, to two digits of the error."""
    if math.isnan(figure.value):
        return "-"
    if not figure.se > 0:
        is_whole = float(figure.value).is_integer()
        return f"{figure.value:.0f}" if is_whole else f"{figure.value:.4g}"
    if max(abs(figure.value), figure.se) < 1e-3:
        return f"{figure.value:.1e} ± {figure.se:.0e}"
    digits = max(0, 1 - math.floor(math.log10(figure.se)))
    return f"{figure.value:.{digits}f} ± {figure.se:.{digits}f}"


def as_json(figures: Sequence[Figure]) -> list[dict[str, object]]:
    """Give figures for programs: what is not a number is null."""
    return [
        {
            name: None if isinstance(value, float) and math.isnan(value) else value
            for name, value in figure._asdict().items()
        }
        for figure in figures
    ]


def panels(figures: Sequence[Figure], unit: str) -> list[Panel]:
    """Make a picture a setting of what is measured in a unit, against size."""
    made = []
    for name in dict.fromkeys(figure.table for figure in figures):
        curves: dict[str, list[tuple[float, float]]] = {}
        for figure in figures:
            if figure.table == name and figure.what.endswith(unit) and not math.isnan(figure.value):
                what = figure.what.removesuffix(unit).rstrip(", ")
                curves.setdefault(what, []).append((figure.n, figure.value))
        if curves:
            made.append(Panel(name, curves))
    return made
