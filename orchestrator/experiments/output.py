"""What a study found, as a table on screen, as CSV, and as curves."""

from __future__ import annotations

import csv
import math
from collections.abc import Sequence
from itertools import groupby
from pathlib import Path
from typing import Any, NamedTuple

from rich.console import RenderableType
from rich.table import Table

from orchestrator.experiments import est_ivwe, replay
from orchestrator.experiments.plot import Panel

LABELS = {
    "uniform": "uniform, equal weights",
    "uniform_plugin": "uniform, estimated weights",
    "uniform_known": "uniform, known weights",
    "price": "by price alone",
    "plain": "EST-IVWE plain",
    "shrink": "EST-IVWE shrink (default)",
    "eb": "EST-IVWE shrink: eb",
    "pooled": "EST-IVWE pooled reuse",
    "oracle": "oracle's plan",
    "common": "EST-IVWE target: common",
}


def write_csv(path: Path, rows: Sequence[NamedTuple]) -> None:
    """Write one line a row, its fields as columns."""
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, rows[0]._fields)
        writer.writeheader()
        writer.writerows(row._asdict() for row in rows)


def synthetic_tables(rows: Sequence[est_ivwe.Row]) -> list[RenderableType]:
    """Make one table for each kind of judges and prices: errors over that of the oracle's plan."""
    tables: list[RenderableType] = []
    for (world, prices), cells in _by(rows, "world", "prices"):
        table = Table(title=f"{world} judges, prices {prices}", title_justify="left")
        table.add_column("norm")
        table.add_column("error / oracle's")
        sweeps = list(dict.fromkeys(row.sweeps for row in cells))
        for n in sweeps:
            table.add_column(f"rho {n}", justify="right")
        for (norm,), of_norm in _by(cells, "norm"):
            for (method,), found in _by(of_norm, "method"):
                figures = [_with_error(row.to_oracle, row.to_oracle_se) for row in found]
                table.add_row(norm_name(norm), LABELS[method], *figures)
            by_sweeps = {row.sweeps: row for row in of_norm if row.method == "oracle"}
            closed = [f"{by_sweeps[n].closed_form / by_sweeps[n].error:.3f}" for n in sweeps]
            table.add_row(norm_name(norm), "closed form", *closed)
            gains = [row for row in of_norm if row.method == "shrink"]
            table.add_row(
                norm_name(norm),
                "uniform / shrink",
                *(_with_error(row.gain, row.gain_se) for row in gains),
                end_section=True,
            )
        tables.append(table)
    return tables


def closing_lines(rows: Sequence[est_ivwe.Row]) -> list[str]:
    """Say how to read the tables, and where the policy's default does not pay."""
    lines = ["figures ± Monte-Carlo standard errors; 1 is the oracle, that knows all variances"]
    lines += [
        f"the default loses: {cell.world}, prices {cell.prices}, rho {cell.sweeps}, "
        f"{norm_name(cell.norm)}: {LABELS[rival.method]} errs {rival.error / cell.error:.2f} of it"
        for cell, rival in est_ivwe.losses(rows)
    ]
    return lines


def replay_table(rows: Sequence[replay.Row]) -> RenderableType:
    """Make one table of errors against the panel's mean."""
    table = Table(title="mean squared error against the panel's mean", title_justify="left")
    for name in ("rho", "method"):
        table.add_column(name)
    for name in ("RMSE", "/ uniform", "/ price alone"):
        table.add_column(name, justify="right")
    for (sweeps,), found in _by(rows, "sweeps"):
        for row in found:
            table.add_row(
                str(sweeps),
                LABELS[row.method],
                f"{row.rmse:.4f}",
                _with_error(row.to_uniform, row.to_uniform_se),
                _with_error(row.to_price, row.to_price_se),
                end_section=row is found[-1],
            )
    return table


def synthetic_panels(rows: Sequence[est_ivwe.Row]) -> list[Panel]:
    """Make one picture for each kind of judges, prices and norm: error over the oracle's."""
    panels = []
    for (world, prices, norm), cells in _by(rows, "world", "prices", "norm"):
        curves = {
            LABELS[method]: [(row.sweeps, row.to_oracle) for row in found]
            for (method,), found in _by(cells, "method")
        }
        panels.append(Panel(f"{world}, {prices}, {norm_name(norm)}", curves))
    return panels


def replay_panels(rows: Sequence[replay.Row]) -> list[Panel]:
    """Make one picture of mean squared errors over that of uniform calls, `common` left out."""
    curves = {
        LABELS[method]: [(row.sweeps, row.to_uniform) for row in found]
        for (method,), found in _by(rows, "method")
        if method != "common"
    }
    return [Panel("recorded judges", curves)]


def norm_name(p: float) -> str:
    """Write the norm of order p: l1, l2, linf."""
    return "linf" if math.isinf(p) else f"l{p:g}"


def _with_error(value: float, se: float) -> str:
    return f"{value:.2f}" if math.isnan(se) else f"{value:.2f} ± {se:.2f}"


def _by(rows: Sequence[Any], *names: str) -> list[tuple[tuple[Any, ...], list[Any]]]:
    """Group rows by fields, groups in order of appearance."""
    order = list(dict.fromkeys(tuple(getattr(row, name) for name in names) for row in rows))

    def place(row: Any) -> int:
        return order.index(tuple(getattr(row, name) for name in names))

    return [(order[k], list(group)) for k, group in groupby(sorted(rows, key=place), place)]
