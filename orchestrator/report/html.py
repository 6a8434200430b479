"""The report page: one file that needs no network, no font and no script."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from importlib.resources import files
from typing import TYPE_CHECKING, NamedTuple

from orchestrator.core.estimate import Estimate
from orchestrator.report import batches, benchmark, board, board_words, charts, panel, wording
from orchestrator.report.board import Categories
from orchestrator.report.charts import Bar, Interval, Part
from orchestrator.report.data import JudgeTally, ReportData
from orchestrator.report.wording import Grid, label, usd

if TYPE_CHECKING:
    from jinja2 import Template

_FEW = 12
_RANKED = 40
"""So many arms of a ranking are drawn by name."""
_WIDE = 8
"""So many categories fit beside each other."""


def render(data: ReportData) -> str:
    """Write the page. All text from data, judges and providers is escaped."""
    return _template().render(
        data=data,
        words=wording,
        panel=panel,
        batches=batches,
        board=board,
        benchmark=benchmark,
        parts=benchmark.parts(data),
        tracks=_tracks(data),
        correlations=_correlations(data),
        audit=board_words,
        spend=data.spend,
        counts=data.counts,
        tables=_tables(data.estimates),
        meter=_meter(data),
        curve=_curve(data),
        by_judge=_spent(data.judges, "Spend by judge"),
        by_system=_spent(data.systems, "Spend by system"),
        heats=[(of, _heat(of)) for of in board.categories(data)],
        doubts=panel.doubts(data),
        facts=wording.facts(data),
    )


class Line(NamedTuple):
    """One name of an estimate, in words."""

    name: str
    cells: tuple[str, ...]


class Table(NamedTuple):
    """One estimate as the page shows it; `picture` is drawn by us and is not escaped again."""

    estimate: Estimate
    title: str
    picture: str
    head: tuple[str, ...]
    lines: tuple[Line, ...]
    n_left_out: int
    diagnostics: str
    grids: tuple[Grid, ...]


def _tables(estimates: tuple[Estimate, ...]) -> list[Table]:
    """Make the tables; estimates of one entry share their diagnostics, so the first shows them."""
    names = [estimate.name for estimate in estimates]
    return [
        _table(estimate, is_first=estimate.name not in names[:i])
        for i, estimate in enumerate(estimates)
    ]


def _table(estimate: Estimate, *, is_first: bool) -> Table:
    rows = wording.shown(estimate)
    columns = wording.columns_of(estimate, rows)
    title = f"{estimate.name}: {wording.target(estimate)}"
    return Table(
        estimate,
        title,
        _picture(estimate, title),
        tuple(columns),
        tuple(
            Line(label(estimate.names[i]), cells)
            for i, cells in zip(rows, zip(*columns.values(), strict=True), strict=True)
        ),
        len(estimate.names) - len(rows),
        wording.diagnostics(estimate) if is_first else "",
        tuple(wording.grids(estimate)) if is_first else (),
    )


def _picture(estimate: Estimate, title: str) -> str:
    is_ranking = estimate.target.endswith("strengths")
    values = list(zip(estimate.value, estimate.lower, estimate.upper, strict=True))
    if len(values) > (_RANKED if is_ranking else _FEW):
        return charts.caterpillar([Interval("", "", *v) for v in values], title=title)
    order = list(range(len(values)))
    if is_ranking:  # the best first; those without a value are at the end
        known = wording.by_value(estimate)[::-1]
        order = known + [i for i in order if i not in known]
    rows = [
        Interval(label(estimate.names[i]), wording.with_interval(estimate, i), *values[i])
        for i in order
    ]
    return charts.forest(rows, title=title, with_zero=is_ranking or estimate.target == "difference")


def _heat(of: Categories) -> str:
    """Colour strengths by category; empty where there are too many categories to stand side by side."""
    if len(of.categories) > _WIDE:
        return ""
    values = [[of.scores.value[i] for i in places] for places in of.places]
    return charts.heat(of.arms, of.categories, values, title=of.title)


class Drawn(NamedTuple):
    """A picture with its title."""

    title: str
    picture: str


def _tracks(data: ReportData) -> list[Drawn]:
    """Draw how each interval came about."""
    return [
        Drawn(one.title, charts.band(one.track, title=one.title, target=one.target))
        for one in benchmark.tracks(data)
    ]


def _correlations(data: ReportData) -> str:
    """Colour the correlations of strata over systems; empty where there are none, or too many."""
    found = benchmark.correlations(data)
    if found is None or len(found.names) > benchmark.MOST_STRATA:
        return ""
    title, r = "Correlations of strata over systems", found.r.tolist()
    if len(found.names) <= _WIDE:
        return charts.heat(found.names, found.names, r, title=title)
    return charts.mosaic(found.names, r, title=title)


def _meter(data: ReportData) -> str:
    spend = data.spend
    total = spend.settled + spend.uncertain + spend.held
    if not (spend.cap or total):
        return ""
    cap = "no cap" if spend.cap is None else f"cap {usd(spend.cap, 2)}"
    bar = Bar(
        f"{usd(total)} spent, uncertain or held",
        cap,
        (
            Part("settled", spend.settled),
            Part("uncertain", spend.uncertain),
            Part("held", spend.held),
        ),
    )
    return charts.bars([bar], title="Money", total=max(total, spend.cap or 0))


def _curve(data: ReportData) -> str:
    points = [((look.settled + look.uncertain) / 1e9, w) for look, w in data.half_widths]
    if len(points) < 2 or points[-1][0] <= 0:
        return ""
    title = "Half-width of the primary estimate against dollars spent"
    return charts.curve(points, title=title, target=data.target_half_width)


def _spent(tallies: Sequence[JudgeTally], title: str) -> str:
    """Draw what each judge or system has cost; empty where nothing did."""
    rows = [
        Bar(
            one.name,
            f"{usd(one.charge.settled + one.charge.uncertain)}",
            (Part("settled", one.charge.settled), Part("uncertain", one.charge.uncertain)),
        )
        for one in tallies
    ]
    is_spent = any(part.size for row in rows for part in row.parts)
    return charts.bars(rows, title=title) if is_spent else ""


@cache
def _template() -> Template:
    # Loaded here because most commands write no page.
    from jinja2 import Environment, StrictUndefined  # noqa: PLC0415
    from markupsafe import Markup  # noqa: PLC0415

    def tame(value: object) -> object:
        if isinstance(value, Markup) or not isinstance(value, str):
            return value
        return wording.printable(value)

    environment = Environment(
        autoescape=True,
        undefined=StrictUndefined,
        finalize=tame,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    source = files("orchestrator.report") / "templates" / "report.html.j2"
    return environment.from_string(source.read_text(encoding="utf-8"))
