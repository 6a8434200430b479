"""The report as Markdown says the same, shortly."""

from __future__ import annotations

import pytest

from orchestrator.core.events import Declined
from orchestrator.core.money import Nano
from orchestrator.core.query import Kind, Query
from orchestrator.core.stopping import StopReason
from orchestrator.report.markdown import render, safe
from orchestrator.report.summary import summarise


def test_it_says_the_answer_the_money_and_the_limits(log, make):
    """C03: stopped by budget, with what the next call needs."""
    log.opened(arms=("new", "old"), estimate=[{"name": "effect"}])
    for q in range(16):
        log.judged(q, 3, unit=q % 8)
    query = Query(kind=Kind.RATE, judge=0, units=(0,))
    log.add(Declined(query=query, hold=Nano(22_000_000), account="campaign"))
    log.stop(StopReason.BUDGET).look(make.difference(), settled=80_000_000, is_final=True)
    text = render(summarise(log.rows, run="r1"))
    assert text.startswith("# summaries: stopped\n")
    assert "**new is better than old by 0.42 \\[0.24, 0.60\\].**" in text
    assert "next call needs $0.022, $0.020 left" in text
    assert "| settled | $0.080000 |" in text
    assert "sortition verify r1" in text
    heads = [line for line in text.splitlines() if line.startswith("## ")]
    assert heads[0] == "## Why it ended, and the money"
    assert heads[-1] == "## Known limits"


def test_tables_have_as_many_cells_in_every_row(log, make):
    log.opened(arms=("a|b", "old")).judged(0, 3).missed(1, "refused", unit=1, cost=1)
    log.look(make.estimate(names=("x|y",)))
    for block in render(summarise(log.rows)).split("\n\n"):
        rows = [line for line in block.splitlines() if line.startswith("|")]
        assert len({line.replace("\\|", "").count("|") for line in rows}) <= 1


@pytest.mark.parametrize(
    "text", ["<script>alert(1)</script>", "[x](javascript:1)", "`a`\n# b", "\x1b[31m", "a|b"]
)
def test_text_from_data_is_not_obeyed(text):
    """C48 in Markdown: no tag, link, code, heading or escape comes of it."""
    shown = safe(text)
    assert "<" not in shown
    assert "\n" not in shown
    assert "\x1b" not in shown
    for mark in "[`|#":
        assert mark not in shown.replace(f"\\{mark}", "")


def test_a_mock_run_says_so_in_its_first_line(log):
    """C57: every output carries the word mock."""
    text = render(summarise(log.opened(mock=True).rows))
    assert "(mock)" in text.splitlines()[0]
