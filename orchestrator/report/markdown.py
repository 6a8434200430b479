"""The report as short Markdown, for a terminal, a pull request or a model to read."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from html import escape

from orchestrator.core.estimate import Estimate
from orchestrator.report import batches, benchmark, board, board_words, panel, wording
from orchestrator.report.data import ReportData
from orchestrator.report.wording import Grid, label, plural, usd

_MARKS = re.compile(r"([\\`*_\[\]|#~])")


def render(data: ReportData) -> str:
    """Write the report. All text from data, judges and providers is escaped."""
    return "\n".join(_lines(data)) + "\n"


def safe(text: str) -> str:
    """Take away from a text what Markdown or HTML would obey."""
    return _MARKS.sub(r"\\\1", escape(wording.printable(text), quote=False))


def _lines(data: ReportData) -> Iterator[str]:
    mock = " (mock)" if data.mock else ""
    yield f"# {safe(data.name)}{mock}: {data.state}"
    yield from ("", f"**{safe(wording.answer(data))}**", "")
    beside = wording.beside(data)
    if beside:
        yield from (safe(beside), "")
    notice, precision = wording.mock_notice(data), wording.precision(data)
    yield from (f"- {safe(line)}" for line in wording.gates(data))
    yield from (f"- {line}" for line in (notice, precision) if line)
    if data.answer:
        yield f"- {safe(wording.method(data.answer))}"
        yield from (f"- Note: {safe(line)}." for line in batches.notes(data.answer))
    yield from (f"- Doubt: {safe(line)}" for line in panel.doubts(data))
    yield from ("", "## Why it ended, and the money", "")
    yield from (f"{safe(wording.ending(data))} In {wording.money_kind(data)}.", "")
    yield from _table(("", "USD"), _money(data))
    steered = wording.steered(data)
    if steered is not None:
        yield from ("", "### Steered", "", *_grid(steered))
    yield from ("", "## Estimates", "")
    if not data.are_final:
        yield from ("These are not final: the run has not come to its stop.", "")
    for estimate in data.estimates:
        yield from _estimate(estimate, wording.twin(estimate, data))
    yield from _benchmark(data)
    yield from _outlook(data)
    yield from _without_judge(data)
    if data.systems:
        yield from ("## Systems under test", "", *_grid(panel.systems(data)))
        yield from ("", panel.SYSTEMS_NOTE, "")
    yield from ("## Judges", "")
    yield from _grid(panel.judges(data))
    told = (*wording.policy(data), *panel.outages(data), *panel.agreement(data))
    yield from (f"\n{safe(line)}" for line in told)
    said = panel.said(data)
    if said.rows:
        yield from ("", *_grid(said), "", panel.said_note(data))
    yield from ("", f"Time of all calls: {wording.time_spent(data.times)}.")
    yield from _order(data)
    yield from _board(data)
    yield from _batches(data)
    yield from _labels(data)
    yield from ("", "## Missing answers", "", wording.fate(data), "")
    yield from _table(("arm", "ended", "answered", "missing", "why"), _arms(data))
    oddities = wording.oddities(data)
    if oddities:
        yield from ("", "Odd but harmless:", "")
    yield from (f"- {safe(judge)}, {n}: {safe(what)}" for judge, n, what in oddities)
    yield from ("", "## How to repeat it", "", f"    {wording.printable(wording.command(data))}")
    yield from (f"    sortition verify {wording.printable(wording.place(data))}", "")
    yield from (f"- {key}: {safe(value)}" for key, value in wording.facts(data).items())
    yield from ("", "## Known limits", "")
    yield from (f"- {line}" for line in wording.limits(data))


def _table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> Iterator[str]:
    yield f"| {' | '.join(head)} |"
    yield f"|{' --- |' + ' ---: |' * (len(head) - 1)}"
    yield from (f"| {' | '.join(safe(cell) for cell in row)} |" for row in rows)


def _money(data: ReportData) -> Iterator[tuple[str, str]]:
    spend, counts = data.spend, data.counts
    yield "cap", "none" if spend.cap is None else usd(spend.cap, 6)
    yield "settled", usd(spend.settled, 6)
    yield "uncertain", usd(spend.uncertain, 6)
    if spend.held:
        yield "held", usd(spend.held, 6)
    if spend.unspent is not None:
        yield "unspent", usd(spend.unspent, 6)
    if spend.overrun:
        yield "billed beyond the cap", usd(spend.overrun, 6)
    if counts.billed_in_vain:
        attempts = plural(counts.billed_in_vain, "attempt")
        amount = counts.in_vain.settled + counts.in_vain.uncertain
        yield f"of it for {attempts} billed without an answer", usd(amount, 6)
    unmetered = wording.unmetered(data)
    if unmetered is not None:
        yield unmetered
    if len(spend.by_role) > 1:
        for role, charge in spend.by_role.items():
            yield f"of it for {role}s", usd(charge.settled + charge.uncertain, 6)
    if len(spend.by_purpose) > 1:
        for purpose, charge in spend.by_purpose.items():
            yield f"of it asked for {purpose}", usd(charge.settled + charge.uncertain, 6)
    yield from wording.money_by_class(data)


def _grid(grid: Grid) -> Iterator[str]:
    if grid.title:
        yield from (safe(grid.title), "")
    yield from _table([safe(head) for head in grid.head], grid.rows)


def _without_judge(data: ReportData) -> Iterator[str]:
    grids = panel.without_judge(data)
    if grids:
        yield from ("## Without each judge", "")
    for grid in grids:
        yield from (*_grid(grid), "")
    if grids:
        yield from (panel.WITHOUT_NOTE, "")


def _order(data: ReportData) -> Iterator[str]:
    grid = panel.by_place(data)
    if grid is not None:
        yield from ("", "## Order", "", *_grid(grid), "", panel.PLACES_NOTE)


def _board(data: ReportData) -> Iterator[str]:
    if data.pairs is None:
        return
    yield from ("", "## Comparisons", "")
    for estimate in board.boards(data.estimates):
        yield from (f"- {safe(line)}" for line in board.standing(estimate))
        yield from ("", *_grid(board.leaderboard(estimate)), "")
        yield from _maybe(board.neighbours(estimate))
        yield from (board.RANKS_NOTE, "")
        yield from (
            f"- {safe(line)}"
            for line in board.order(estimate) + board.family(estimate) + board.weights(estimate)
        )
        yield ""
        yield from _maybe(board.judges(estimate))
        yield from (board.judges_note(estimate), "")
    yield from (
        f"- {safe(line)}" for line in board.rank_choice(data.estimates) + board.why_asked(data)
    )
    yield ""
    for categories in board.categories(data):
        yield from _maybe(board.by_category(categories))
    yield from _maybe(board.asked(data))
    yield from _audit(data)


def _audit(data: ReportData) -> Iterator[str]:
    if data.audits:
        yield from ("", "### Is the board sound?", "")
    for one in data.audits:
        said = board_words.lines(one, with_criterion=len(data.audits) > 1)
        yield from (f"- {safe(line)}" for line in said)
        if one.found["findings"]:
            yield from ("", *_grid(board_words.table(one.found)), "", board_words.TABLE_NOTE, "")


def _maybe(grid: Grid | None) -> Iterator[str]:
    if grid is not None:
        yield from (*_grid(grid), "")


def _batches(data: ReportData) -> Iterator[str]:
    if not data.slots:
        return
    yield from ("", "## Batches", "")
    told = (batches.design(data), batches.memory(data.estimates), batches.adequacy(data.estimates))
    yield from (f"- {safe(line)}" for lines in told for line in lines)
    grid = batches.by_slot(data)
    if grid is not None:
        yield from ("", "### By slot", "", *_grid(grid), "", batches.SLOTS_NOTE)
    grids = batches.beside_naive(data.estimates)
    if grids:
        yield from ("", "### Raw verdicts beside ours", "")
    for grid in grids:
        yield from (*_grid(grid), "")
    if grids:
        yield from (batches.NAIVE_NOTE, "")
        yield from (f"- {safe(line)}" for line in batches.why_naive(data.estimates))
    grids = batches.looks(data.estimates)
    if grids:
        yield from ("", "### The stopping rule over time", "")
    for grid in grids:
        yield from (*_grid(grid), "")
    if grids:
        yield batches.LOOKS_NOTE
    yield from (f"\n{safe(line)}" for line in batches.after_looks(data.estimates))


def _estimate(estimate: Estimate, twin: Estimate | None) -> Iterator[str]:
    rows = wording.shown(estimate)
    columns = wording.columns_of(estimate, rows)
    status = "" if estimate.status == "ok" else f" ({estimate.status})"
    yield from (f"### {safe(estimate.name)}: {wording.target(estimate)}{status}", "")
    if twin is not None:
        yield from (f"The same as of {safe(twin.name)}.", "")
        return
    yield from _table(
        ("name", *columns),
        zip((label(estimate.names[i]) for i in rows), *columns.values(), strict=True),
    )
    left_out = len(estimate.names) - len(rows)
    more = f" {left_out:,} more names are in the export (scores.csv)." if left_out else ""
    yield from ("", f"{safe(wording.method(estimate))}{more}", "")


def _benchmark(data: ReportData) -> Iterator[str]:
    if not benchmark.parts(data):
        return
    yield from ("## Benchmark", "")
    yield from (f"- {safe(line)}" for line in benchmark.statements(data))
    yield ""
    for grid in benchmark.pairs(data):
        yield from (*_grid(grid), "")
    for grid in benchmark.looks(data):
        yield from (*_grid(grid), "")
    grids = benchmark.outlooks(data)
    if grids:
        yield from ("### What more money would buy", "")
    for grid in grids:
        yield from (*_grid(grid), "")
    if grids:
        yield from (benchmark.outlook_note(data), "")
    told = benchmark.ability(data)
    if told:
        yield from ("### This benchmark, and subjects like these", "")
        yield from (f"- {safe(line)}" for line in told)
        yield ""
    strata = benchmark.strata(data)
    if strata is not None:
        yield from ("### Strata", "", *_grid(strata), "", safe(benchmark.strata_note(data)), "")
        yield from (f"{safe(line)}\n" for line in benchmark.correlations_told(data))


def _outlook(data: ReportData) -> Iterator[str]:
    outlook = wording.outlook(data)
    if outlook:
        yield from ("## Precision against dollars", "", outlook, "")


def _labels(data: ReportData) -> Iterator[str]:
    grids = wording.labels(data)
    if grids:
        yield from ("", "## Human labels", "")
    for grid in grids:
        yield from (*_grid(grid), "")
    if grids:
        yield wording.LABELS_NOTE


def _arms(data: ReportData) -> Iterator[tuple[str, ...]]:
    for arm in data.arms:
        why = (f"{wording.reason_words(reason)} {n:,}" for reason, n in arm.missing.items())
        yield (
            label(arm.name),
            f"{arm.told:,}",
            f"{arm.answered:,}",
            f"{arm.n_lost:,}",
            ", ".join(why),
        )
