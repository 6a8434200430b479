"""What is said of judges: plain, and only where the numbers bear it."""

from __future__ import annotations

import csv
import json
from dataclasses import replace

import numpy as np
import pytest

from orchestrator.core.events import JudgeDown, JudgeUp
from orchestrator.core.stopping import StopReason
from orchestrator.report import html, markdown, panel
from orchestrator.report.data import WithoutJudge
from orchestrator.report.export import export
from orchestrator.report.result import document
from orchestrator.report.screen import closing_lines
from orchestrator.report.summary import summarise

N = 40
JUDGES = ("good", "okay", "lots")


def rated(log, *columns, judges=JUDGES, n=N, **opening):
    """Each judge's verdicts on the units 0, 1, ...; a matrix has repeats in its rows."""
    log.opened(judges=judges, items=tuple(map(str, range(n))), **opening)
    q = 0
    for judge, column in enumerate(columns):
        for repeat in np.atleast_2d(column):
            for unit, value in enumerate(repeat):
                log.judged(q, float(value), unit=unit, judge=judge)
                q += 1
    return summarise(log.rows)


@pytest.fixture
def rng():
    return np.random.default_rng(4)


@pytest.fixture
def truth():
    return np.arange(N) % 5 + 1


def test_a_judge_that_draws_lots_is_named(log, truth, rng):
    data = rated(log, truth, np.clip(truth + rng.integers(0, 2, N), 1, 5), rng.integers(1, 6, N))
    (line,) = panel.doubts(data)
    found = data.judges[2].scores[0].with_others
    assert line == (
        "lots tells the items apart no better than chance, held against the other judges (alpha "
        f"{found.value:.2f} [{found.lower:.2f}, {found.upper:.2f}]): its verdicts are noise, or "
        "speak of something else."
    )
    assert found.lower <= 0 <= found.upper < 0.2


def test_of_two_judges_at_chance_nobody_is_named_alone(log, truth):
    """The second gives 1, 1, 2, 2, ...: over 40 items it has nothing to do with the first."""
    lots = np.random.default_rng(0).permutation(np.arange(400) % 5 + 1)
    data = rated(log, np.arange(400) % 5 + 1, lots, judges=JUDGES[:2], n=400)
    (line,) = panel.doubts(data)
    assert line.startswith("good and okay agree no better than chance (alpha ")
    assert "can't say which" in line


def test_where_no_judge_agrees_with_the_rest_all_are_listed(log):
    rng = np.random.default_rng(8)
    data = rated(log, *rng.integers(1, 6, (3, 400)), n=400)
    (line,) = panel.doubts(data)
    assert line.startswith(
        "The judges agree no better than chance (alpha against the others: good "
    )


def test_where_agreement_may_be_0_no_judge_is_singled_out(log):
    """One of three is at chance, and only one other is seen to agree with the rest."""
    rng = np.random.default_rng(28)
    truth = rng.integers(1, 6, 30)
    follows = np.where(rng.random(30) < 0.55, truth, rng.integers(1, 6, 30))
    data = rated(log, truth, follows, rng.integers(1, 6, 30), n=30)
    alpha = data.agreement[0].alpha
    assert alpha.lower <= 0 <= alpha.upper
    assert alpha.upper >= 0.2
    (line,) = panel.doubts(data)
    assert line == (
        "The judges together can't be shown to agree better than chance (Krippendorff's alpha "
        f"{panel.ranged(alpha)}): these verdicts alone can't say which of them tells the items apart."
    )


def test_good_judges_are_not_doubted(log, truth, rng):
    noisy = [np.clip(truth + rng.integers(-1, 2, (2, N)), 1, 5) for _ in range(3)]
    assert panel.doubts(rated(log, *noisy)) == []


def test_of_few_items_nothing_is_said(log, rng):
    assert panel.doubts(rated(log, *rng.integers(1, 6, (3, 12)), n=12)) == []


def test_a_judge_against_the_others_may_be_turned_round(log, truth, rng):
    turned = np.clip(6 - truth + rng.integers(0, 2, N), 1, 5)
    data = rated(log, truth, truth, truth, turned, judges=("a", "b", "c", "turned"))
    (line,) = panel.doubts(data)
    assert line.startswith("turned rates against the other judges (alpha -")
    assert line.endswith("its scale may be turned round.")


def test_a_nearly_constant_judge_is_named(log, truth):
    constant = np.full(N, 4)
    constant[7] = 5
    (line,) = panel.doubts(rated(log, truth, truth, constant))[:1]
    assert line == (
        "lots gave 4 in 98% of its 40 verdicts: nearly a constant, which tells few items apart."
    )


def test_a_judge_that_wavers_as_much_as_its_items_differ_is_named(log):
    """One judge alone: all that can be held against it are its own repeats."""
    rng = np.random.default_rng(2)
    data = rated(log, rng.integers(1, 6, (3, 200)), judges=("lots",), n=200)
    (line,) = panel.doubts(data)
    found = data.judges[0].scores[0].signal
    assert line == (
        "lots differs as much between repeats of one question as between items: "
        f"{found.value:.2f} [{found.lower:.2f}, {found.upper:.2f}] of its variance comes from the "
        "items."
    )


def test_several_criteria_are_named(log, truth):
    criteria = ({"name": "right", "low": 1, "high": 5}, {"name": "style", "low": 1, "high": 5})
    log.opened(criteria=criteria, items=tuple(map(str, range(N))))
    for q in range(N):
        log.both(q, (float(truth[q]), 3.0), unit=q)
    (line,) = panel.doubts(summarise(log.rows))
    assert line.startswith("large gave 3 in 100% of its 40 verdicts on style: ")


@pytest.mark.parametrize(("upper", "is_named"), [(0.09, True), (0.4, False), (None, False)])
def test_a_judge_that_does_not_follow_the_labels_is_named(log, make, upper, is_named):
    of = {"judge": "large", "n_units": 50, "correlation": 0.02, "lower": -0.05, "upper": upper}
    log.opened().judged(0, 4).stop(StopReason.FINISHED)
    twice = [make.estimate(diagnostics={"labels": [of]})] * 2
    log.look(*twice, is_final=True)
    expected = (
        "large follows the human labels no better than chance (correlation 0.02 [-0.05, 0.09])."
    )
    assert panel.doubts(summarise(log.rows)) == ([expected] if is_named else [])


def by_place(log, n=40):
    criteria = tuple({"name": name, "low": 1, "high": 10} for name in "abcd")
    log.opened(criteria=criteria, items=tuple(map(str, range(n))), judges=("small",))
    rng = np.random.default_rng(6)
    for q in range(n):
        order = rng.permutation(4)
        log.many(q, 1.2 + order, order, unit=q)
    return summarise(log.rows)


def test_an_effect_of_the_place_is_said_in_plain_words(log):
    data = by_place(log)
    assert panel.doubts(data)[-1] == (
        "small's verdicts depend on the place in which the criteria are listed: 1.20, 2.20, 3.20, "
        "4.20 by place, 3.00 apart on a scale 9 wide (p below 0.001)."
    )
    grid = panel.by_place(data)
    assert grid.rows == (("small", "40", "1.20", "2.20", "3.20", "4.20", "3.00", "below 0.001"),)
    for page in (html.render(data), markdown.render(data)):
        assert "Order" in page
        assert "4.20 by place" in page


def test_without_an_effect_the_table_stands_alone(log):
    data = by_place(log)
    calm = replace(data, places=tuple(replace(e, p=0.2) for e in data.places))
    assert not [line for line in panel.doubts(calm) if "place" in line]
    assert panel.by_place(calm).rows[0][-1] == "0.200"
    assert panel.by_place(replace(data, places=())) is None


def test_a_model_that_changed_during_the_run_is_named(log):
    log.opened().judged(0, 4, served_model="m-0801").judged(1, 4, served_model="m-0902")
    log.judged(2, 4, served_model="m-0902")
    data = summarise(log.rows)
    (line,) = panel.doubts(data)
    assert line == (
        "large was served by 2 models during the run: m-0801 (1 answer), m-0902 (2 answers); its "
        "answers may not be of one kind."
    )
    assert "served: m-0801 (1 answer), m-0902 (2 answers)" in html.render(data)


def test_outages_are_told_with_their_times_and_the_providers_words(log):
    """C54: which judge, when, after how many answers, and why."""
    log.opened().judged(0, 4).add(JudgeDown(judge=0, until=1_000_600.0, why="429: quota"))
    log.add(JudgeUp(judge=0), JudgeDown(judge=0, until=1_000_900.0, why="503"))
    log.add(JudgeDown(judge=1, until=None, why="401: no such key"))
    data = summarise(log.rows)
    past, open_, last = panel.outages(data)
    assert past == (
        "large took no questions from 13:46:46 UTC (after 1 answer) to 13:46:47 UTC: 429: quota"
    )
    assert open_ == (
        "large took no questions from 13:46:48 UTC (after 1 answer), and was to be asked again at "
        "14:01:40 UTC: 503"
    )
    assert last == (
        "small took no more questions from 13:46:49 UTC (after 0 answers): 401: no such key"
    )
    many = replace(data, judges=(replace(data.judges[0], n_outages=5), data.judges[1]))
    assert panel.outages(many)[2] == "large went down another 3 times."
    for page in (html.render(data), markdown.render(data)):
        assert "401: no such key" in page


def test_the_result_without_each_judge_is_set_beside_the_whole(log, make):
    """Estimates that share a name (two criteria of an entry) are told apart by their order."""
    log.opened().judged(0, 4).stop(StopReason.FINISHED)
    log.look(make.difference(), make.estimate(), make.estimate(value=(2.0,)), is_final=True)
    left = WithoutJudge(
        judge="small",
        n_answers=40,
        estimates=(make.estimate(value=(3.5,)), make.estimate(value=(2.5,))),
    )
    data = replace(summarise(log.rows), without_judge=(left,))
    first, second = panel.without_judge(data)
    assert first.head == ("", "answers left out", "all items")
    assert first.rows == (
        ("all judges", "", "4.00 [3.40, 4.60]"),
        ("without small", "40", "3.50 [3.40, 4.60]"),
    )
    assert [row[2][:4] for row in second.rows] == ["2.00", "2.50"]
    for page in (html.render(data), markdown.render(data)):
        assert "without small" in page
    assert panel.without_judge(replace(data, without_judge=())) == []


def test_what_each_judge_said_has_columns_as_they_are_needed(log):
    log.opened().judged(0, 4)
    plain = panel.said(summarise(log.rows))
    assert plain.head == ("judge", "criterion", "verdicts", "mean", "sd", "commonest")
    assert plain.rows[1][-1] == "\N{EN DASH}"
    log.judged(1, 2).judged(2, 3, judge=1).judged(3, 5, unit=1)
    full = panel.said(summarise(log.rows))
    assert full.head[6:] == (
        "sd of repeats",
        "share of variance from items",
        "agreement with the others",
    )
    assert full.rows[0][5:7] == ("4 in 33%", "1.414")


EVIL = "\x1b[2J<script>alert(1)</script>=HYPERLINK(1)|\x9b31m\u202e"


def test_no_word_of_a_provider_is_obeyed(log, make, tmp_path):
    """C48: in the page, the Markdown, the table, the result and on the terminal."""
    log.opened(routes={"large": "text"})
    log.judged(0, 4, served_model=f"={EVIL}", flags=(f"coerced:{EVIL}",))
    log.judged(1, 4, served_model="m", judge=0)
    log.missed(2, "refused", detail=EVIL)
    log.add(JudgeDown(judge=1, until=None, why=EVIL)).stop(StopReason.JUDGES_DOWN)
    log.look(make.estimate(), is_final=True)
    data = summarise(log.rows)
    page, text = html.render(data), markdown.render(data)
    result = json.dumps(document(data), ensure_ascii=False)
    for written in (page, text, result, *closing_lines(data)):
        assert not {c for c in written if not c.isprintable()} - {"\n"}
    assert "<script" not in page
    assert "<script" not in text
    assert page.count("alert(1)") >= 4
    path = tmp_path / "answers.csv"
    export(path, log.rows, log.get_blob)
    with path.open(encoding="utf-8", newline="") as file:
        models = [row["served_model"] for row in csv.DictReader(file)]
    assert models[0].startswith("'=")


def test_judges_have_the_columns_that_are_needed(log):
    """By hand: two answers of 2 s at $0.005, and one that was charged without an answer."""
    log.opened().judged(0, 4).judged(1, 5)
    plain = panel.judges(summarise(log.rows))
    assert plain.head == (
        "judge",
        "asked",
        "answered",
        "missing",
        "settled",
        "per answer",
        "mean time",
    )
    assert plain.rows[0][:7] == ("large", "2", "2", "0", "$0.010", "$0.005", "2.00 s")
    assert plain.rows[1][:7] == ("small", "0", "0", "0", "$0.000", "", "")
    log.missed(2, "timeout", uncertain=6_000_000)
    data = summarise(log.rows)
    more = panel.judges(replace(data, judges=(replace(data.judges[0], route="tool", cached=7),)))
    assert more.head[1:5] == ("by", "asked", "answered", "from the cache")
    (row,) = more.rows
    assert (row[1], row[4], row[6]) == ("tool", "7", "1 attempt, $0.006")
