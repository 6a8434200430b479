"""The page: complete, self-contained, and deaf to what its data say."""

from __future__ import annotations

import re
from html.parser import HTMLParser

import pytest

from orchestrator.core.events import Declined, JudgeDown, Started
from orchestrator.core.money import Nano
from orchestrator.core.query import Kind, Query
from orchestrator.core.stopping import StopReason
from orchestrator.report.data import State
from orchestrator.report.html import render
from orchestrator.report.summary import summarise

VOID = {"meta", "br", "img", "link", "input", "hr"}
LOADERS = {"script", "link", "img", "iframe", "object", "embed", "source", "video", "audio", "base"}
EVIL = '<script>alert(1)</script>\x1b[31m\u202e=HYPERLINK("http://x")&amp;'


class Page(HTMLParser):
    """Checks that tags are balanced and collects what there is."""

    def __init__(self, text):
        super().__init__()
        self.tags, self.attributes, self.words, self.stack = [], [], [], []
        self.ids = []
        self.feed(text)
        self.close()
        assert not self.stack

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        self.attributes += [(tag, name, value or "") for name, value in attrs]
        self.ids += [value for name, value in attrs if name == "id"]
        if tag not in VOID:
            self.stack.append(tag)

    def handle_startendtag(self, tag, attrs):
        self.tags.append(tag)
        self.attributes += [(tag, name, value or "") for name, value in attrs]

    def handle_endtag(self, tag):
        assert self.stack.pop() == tag

    def handle_data(self, data):
        if "style" not in self.stack:
            self.words.append(data)

    @property
    def text(self):
        return re.sub(r"\s+", " ", " ".join(self.words))


def page_of(log, **knows):
    return Page(render(summarise(log.rows, run="r1", fingerprint="ab" * 16, **knows)))


@pytest.fixture
def full(log, make):
    """A run with two arms, failures, a target and a refusal."""
    log.opened(
        arms=("new", "old"),
        stop={"target_half_width": 0.1},
        estimate=[{"name": "effect"}],
        cap=100_000_000,
    )
    log.add(Started(about={"prices": {"large": "sheet of 2026-11-20"}}))
    for q in range(16):
        log.judged(q, 3 + q % 2, unit=q % 8, judge=q % 2, cost=4_900_000)
        log.look(make.difference(), settled=4_900_000 * (q + 1))
    log.missed(16, "refused", unit=1, cost=1_600_000, detail="I can't judge this.")
    query = Query(kind=Kind.RATE, judge=0, units=(0,))
    log.add(Declined(query=query, hold=Nano(22_000_000), account="campaign"))
    log.stop(StopReason.BUDGET)
    arms = make.estimate(
        name="effect",
        names=("new", "old"),
        value=(3.6, 3.2),
        se=(0.1, 0.1),
        lower=(3.4, 3.0),
        upper=(3.8, 3.4),
    )
    return log.look(make.difference(), arms, settled=80_000_000, is_final=True)


def test_the_page_answers_first_and_ends_with_its_limits(full):
    page = page_of(full)
    order = ["answer", "money", "estimates", "curve", "judges", "missing", "repeat", "limits"]
    assert [i for i in page.ids if i in order] == order
    assert page.tags.count("h1") == 1
    assert "new is better than old by 0.42 [0.24, 0.60]." in page.text
    assert "95% intervals (t)" in page.text


def test_a_used_up_budget_says_what_the_next_call_needs(full):
    """C03: a full report with intervals and the line about the next call."""
    text = page_of(full).text
    assert "next call needs $0.022, $0.020 left" in text
    assert "Precision target ±0.1: not met" in text
    assert "[3.40, 3.80]" in text
    assert "$0.080000" in text


def test_missing_answers_stand_by_arm_with_their_bounds(full):
    text = page_of(full).text
    assert "old 9 8 1 (11.1%) refused 1" in text
    assert "I can't judge this." in text
    assert "1 attempt billed without an answer" in text


def test_the_page_says_how_to_repeat_the_run(full):
    text = page_of(full).text
    for fact in ("--seed 7", "sortition verify r1", "ab" * 16, "sortition 0.1.0", "d" * 32):
        assert fact in text
    assert "large: $2.00 in, $10.00 out per 1M tokens (sheet of 2026-11-20)" in text


def test_nothing_is_loaded_and_nothing_runs(full):
    text = render(summarise(full.rows))
    page = Page(text)
    assert not LOADERS & set(page.tags)
    assert not re.search(r"https?://|url\(|@import|@font-face", text)
    loading = {"src", "href", "data", "srcset", "action", "xlink:href"}
    assert not [a for a in page.attributes if a[1] in loading or a[1].startswith("on")]
    assert "default-src 'none'" in text


def test_text_from_judges_and_data_is_shown_and_never_obeyed(log, make):
    """C48: script tags, terminal escapes and formulas are only letters."""
    log.opened(name=EVIL, judges=(EVIL, "ok"), arms=(EVIL, "old"), estimate=[{"name": EVIL}])
    log.judged(0, 4, served_model=EVIL, flags=(EVIL,)).missed(1, "refused", detail=EVIL)
    log.add(JudgeDown(judge=0, until=None, why=EVIL))
    estimate = make.estimate(
        name=EVIL,
        names=(EVIL, "old"),
        value=(1.0, 2.0),
        se=(1.0, 1.0),
        lower=(0.0, 1.0),
        upper=(2.0, 3.0),
        estimand=EVIL,
        interval=EVIL,
        flags=(EVIL,),
        diagnostics={EVIL: EVIL},
    )
    log.stop(StopReason.FINISHED).look(estimate, is_final=True)
    text = render(summarise(log.rows, run=EVIL))
    page = Page(text)
    assert "script" not in page.tags
    assert "<script>alert(1)</script>" in page.text
    assert "\x1b" not in text
    assert "\u202e" not in text


def test_a_mock_run_says_so_first(log, make):
    """C57: every output carries the word mock."""
    log.opened(mock=True).judged(0, 4).stop(StopReason.FINISHED).look(
        make.estimate(), is_final=True
    )
    page = page_of(log)
    assert page.text.index("mock") < page.text.index("Mean")
    assert "made up by mock judges" in page.text


def test_a_run_that_is_not_over_is_called_so(log, make):
    log.opened().judged(0, 4).ask(1).look(make.estimate(), settled=5_000_000)
    text = page_of(log, unstopped=State.RUNNING).text
    assert "These are not final" in text
    assert "So far: Mean" in text
    assert "Held for questions under way $0.022000" in text


def test_a_run_without_any_answer_still_has_a_page(log):
    text = page_of(log.opened(cap=None)).text
    assert "There is no answer yet" in text


def test_of_very_many_units_the_ends_are_listed(log, make):
    n = 1_000
    names = tuple(f"item-{i:04d}" for i in range(n))
    value = tuple(float(i) for i in range(n))
    units = make.estimate(
        target="units",
        names=names,
        value=value,
        se=(1.0,) * n,
        lower=tuple(v - 2 for v in value),
        upper=tuple(v + 2 for v in value),
    )
    log.opened(items=names).stop(StopReason.FINISHED).look(units, is_final=True)
    text = render(summarise(log.rows))
    assert len(re.findall(r"<th scope=\"row\">item-", text)) == 40
    page = Page(text)
    assert "960 more between these" in page.text
    assert "scores.csv" in page.text
    assert len(text) < 100_000


def test_unknown_uncertainty_is_said_and_not_drawn(log, make):
    nan = (float("nan"),)
    unknown = make.estimate(se=nan, lower=nan, upper=nan, status="unknown_variance")
    log.opened().judged(0, 4).stop(StopReason.FINISHED).look(unknown, is_final=True)
    page = page_of(log)
    assert "4.000 (uncertainty unknown)" in page.text
    assert "unknown variance" in page.text
    assert "nan" not in page.text.lower()
    assert not [a for a in page.attributes if a[2] == "interval"]
