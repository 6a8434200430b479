"""What the report says of comparisons: who leads, what judges preferred, strengths by category."""

from __future__ import annotations

import json
import math
import re
from dataclasses import replace
from xml.etree import ElementTree as ET

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.core.estimate import Status
from orchestrator.core.events import Asked
from orchestrator.core.ids import JudgeIx, QNo, UnitIx
from orchestrator.core.money import Nano
from orchestrator.core.query import Judged, Kind, Observation, Preference, Query
from orchestrator.core.stopping import StopReason
from orchestrator.report import board, charts, html, markdown, panel, result, wording
from orchestrator.report.summary import read_estimate, summarise

ARMS = ("a", "b", "c")
CRITERIA = (
    {"name": "overall", "type": "preference", "low": 0, "high": 1},
    {"name": "clear", "type": "preference", "low": 0, "high": 1},
)
FIRST, TIE, SECOND = Preference.FIRST, Preference.TIE, Preference.SECOND


def compared(log, q, said, *, arms=(0, 1), item=0, judge=0):
    """Ask, send, receive and tell a comparison of two arms; a verdict for each criterion."""
    units = tuple(UnitIx(len(ARMS) * item + arm) for arm in arms)
    seen = tuple(
        Observation(unit=units[0], criterion=c, slot=c, preference=word)
        for c, word in enumerate(said)
    )
    outcome = Judged(observations=seen, cost=Nano(0), usage=None)
    query = Query(kind=Kind.COMPARE, judge=JudgeIx(judge), units=units, propensity=0.1)
    log.add(Asked(q=QNo(q), query=query, hold=Nano(0))).send(q).arrive(q, outcome)
    return log.tell(q, outcome)


@pytest.fixture
def opened(log):
    """A run that compares three arms by two criteria."""
    entry = {"name": "ranking", "kind": "bradley_terry"}
    return log.opened(kind="compare", arms=ARMS, criteria=CRITERIA, estimate=[entry])


ABOUT = {
    "scale": "logit",
    "order_effect": {"est": 0.2, "se": 0.1, "lower": 0.0, "upper": 0.4},
    "covariates": {},
    "by_name": {
        "rank_lower": [1, 2, 2],
        "rank_upper": [1, 3, 3],
        "tier": [1, 2, 2],
        "component": [0, 0, 0],
    },
    "ranks_hold_watched": False,
    "leader": "a",
    "rivals": [],
    "is_separated": {"leader": True, "ranking": False},
    "neighbours": [
        {
            "above": "a",
            "below": "b",
            "gap": 1.0,
            "se": 0.2,
            "alone": [0.6, 1.4],
            "together": [0.5, 1.5],
        }
    ],
    "components": [["a", "b", "c"]],
    "separated": False,
    "judges": [
        {
            "judge": "large",
            "n": 20,
            "ties": 2,
            "first_share": 0.6,
            "turned": {"n": 10, "kept": 6, "flipped": 3, "wavered": 1, "to_first": 2},
        }
    ],
    "weighted": None,
    "fit": {"ridge": 0.0},
    "n_prior": 0,
}


@pytest.fixture
def ranking(make):
    """The strengths of three arms, the first proved above the others."""

    def of(**changes):
        own = {key: changes.pop(key) for key in tuple(changes) if key in ABOUT}
        values = {
            "name": "ranking",
            "kind": "bradley_terry",
            "target": "strengths",
            "names": ARMS,
            "value": (0.8, -0.2, -0.6),
            "se": (0.1, 0.1, 0.1),
            "lower": (0.6, -0.4, -0.8),
            "upper": (1.0, 0.0, -0.4),
            "interval": "Wald",
            "diagnostics": ABOUT | own,
        }
        return make.estimate(**values | changes)

    return of


@pytest.fixture
def tensor(make):
    """Strengths over two categories, and the scores by category."""
    whole = {
        "name": "by topic",
        "kind": "bt_tensor",
        "target": "strengths",
        "names": ARMS,
        "value": (-0.1, 0.6, -0.5),
        "se": (0.1, 0.1, 0.1),
        "lower": (-0.3, 0.4, -0.7),
        "upper": (0.1, 0.8, -0.3),
    }
    scores = (-0.4, 0.2, 0.5, 0.7, -0.1, -0.9)
    return (
        make.estimate(
            **whole,
            diagnostics={"categories": ["billing", "access"], "rank": [1, 1], "choice": None}
            | {"reason": "", "parameters": 4},
        ),
        make.estimate(
            **whole
            | {
                "target": "scores",
                "names": tuple(f"{arm} in {k}" for arm in ARMS for k in ("billing", "access")),
                "value": scores,
                "se": (0.1,) * 6,
                "lower": tuple(x - 0.25 for x in scores),
                "upper": tuple(x + 0.25 for x in scores),
            }
        ),
    )


# --- what judges preferred -------------------------------------------------------------------------


def test_preferences_are_counted_by_judge_and_criterion(opened):
    for q, said in enumerate([(FIRST, TIE), (FIRST, SECOND), (SECOND, None), (TIE, FIRST)]):
        compared(opened, q, said)
    compared(opened, 4, (SECOND, SECOND), judge=1)
    data = summarise(opened.rows)
    large, small = data.judges
    assert [tuple(p) for p in large.preferences] == [("overall", 2, 1, 1), ("clear", 1, 1, 1)]
    assert [p.n for p in small.preferences] == [1, 1]
    assert data.n_units_answered == 2
    assert panel.said(data).rows[:2] == (
        ("large", "overall", "4", "50.0%", "25.0%", "25.0%"),
        ("large", "clear", "3", "33.3%", "33.3%", "33.3%"),
    )
    document = result.document(data)
    assert document["judges"][0]["preferences"]["overall"] == {
        "n": 4,
        "first": 2,
        "tie": 1,
        "second": 1,
    }
    assert document["judges"][0]["scores"] == {}
    for page in (html.render(data), markdown.render(data)):
        assert panel.PREFERENCES_NOTE in page
        assert panel.SAID_NOTE not in page


def test_what_rates_has_no_preferences(log):
    log.opened().judged(0, 4.0)
    data = summarise(log.rows)
    assert data.judges[0].preferences == ()
    assert result.document(data)["judges"][0]["preferences"] == {}


@pytest.mark.parametrize(
    ("word", "said"),
    [
        (FIRST, "that the answer shown first is better"),
        (SECOND, "that the answer shown second is better"),
        (TIE, "a tie"),
    ],
)
def test_a_judge_that_names_one_place_is_a_doubt(opened, word, said):
    other = TIE if word is FIRST else FIRST
    for q in range(20):
        compared(opened, q, (word, word if q % 2 else other), item=q % 4)
        compared(opened, 20 + q, (word if q % 2 else other,) * 2, item=q % 4, judge=1)
    data = summarise(opened.rows)
    assert panel.doubts(data) == [
        f"large said {said} in 100% of its 20 verdicts on overall: its verdicts hang on no answer."
    ]


def test_of_few_comparisons_no_doubt_is_raised(opened):
    for q in range(19):
        compared(opened, q, (FIRST, FIRST))
    assert panel.doubts(summarise(opened.rows)) == []


def test_a_judge_that_votes_against_the_others_is_named(opened, ranking):
    compared(opened, 0, (FIRST, FIRST))
    (row,) = ABOUT["judges"]
    own = {"bias": 0.1, "discrimination": 0.4, "agreement": -0.2, "votes_against": True}
    opened.look(ranking(judges=[row | own]), is_final=True).stop(StopReason.FINISHED)
    data = summarise(opened.rows)
    assert panel.doubts(data) == ["large prefers the answers that the others find worse."]
    (e,) = data.estimates
    assert board.judges(e).rows[0][-2:] == ("0.10", "0.40")
    assert board.EFFECTS_NOTE in board.judges_note(e)


def test_what_an_order_and_covariates_bring_is_said(ranking):
    length = {"est": 0.31, "se": 0.1, "lower": 0.11, "upper": 0.51}
    assert board.order(ranking(covariates={"log_length": length, "format_marks": None})) == [
        PLACE,
        "An answer that has one more of log_length gains 0.31 [0.11, 0.51] in log-odds.",
    ]
    assert board.order(ranking(order_effect=None)) == []


@pytest.mark.parametrize(
    ("found", "said"),
    [
        (
            {"est": 0.5, "lower": 0.2, "upper": 0.8, "is_shown": True},
            "0.50 [0.20, 0.80]: judges favour their own kind.",
        ),
        (
            {"est": -0.5, "lower": -0.8, "upper": -0.2, "is_shown": True},
            "-0.50 [-0.80, -0.20]: judges are harder on their own kind.",
        ),
        (
            {"est": 0.1, "lower": -0.2, "upper": 0.4, "is_shown": False},
            "0.10 [-0.20, 0.40]: no favour is shown.",
        ),
        ({"est": None, "lower": None, "upper": None}, "what that does can't be told."),
    ],
)
def test_what_a_judges_own_family_gains_is_said(ranking, found, said):
    e = ranking()
    met = {"n": 40, "share": 0.1, "se": 0.15} | found
    (line,) = board.family(replace(e, diagnostics=dict(e.diagnostics) | {"family": met}))
    assert line.startswith("Judges and answers of one family meet in 40 comparisons (10%)")
    assert line.endswith(said)
    assert board.family(e) == []


def test_missing_comparisons_are_neither_ties_nor_losses(opened):
    compared(opened, 0, (FIRST, FIRST))
    opened.missed(1, "timeout")
    data = summarise(opened.rows)
    assert (
        "1 comparison without a verdict: left out of every strength, neither a tie nor a loss."
        in wording.limits(data)
    )
    assert "Worst case" not in html.render(data)


# --- the first sentence ----------------------------------------------------------------------------

PLACE = (
    "The answer shown first gains 0.20 [0.00, 0.40] in log-odds: of two equal answers it is preferred "
    "in 55%."
)
LEAD = "a leads, 0.80 [0.60, 1.00] in log-odds above the mean of the arms, "
AHEAD = "a is ahead, 0.80 [0.60, 1.00] in log-odds above the mean of the arms, "


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({}, f"{LEAD}and is proved above all others"),
        ({"rivals": ["b"]}, f"{AHEAD}but is not proved above b"),
        ({"rivals": ["b", "c"]}, f"{AHEAD}but is not proved above b and c"),
        (
            {"components": [["a", "b"], ["c"]]},
            "No arm leads: no chain of comparisons connects (a and b), c",
        ),
        (
            {"se": (math.nan,) * 3, "separated": True},
            "a leads, and is proved above all others; its strength has no finite estimate",
        ),
    ],
)
def test_a_ranking_is_told_by_who_leads(ranking, changes, said):
    assert wording.headline(ranking(**changes)) == said


def test_a_ranking_without_finite_strengths_says_why(opened, ranking):
    compared(opened, 0, (FIRST, FIRST))
    nan = (math.nan,) * 3
    parts = ranking(
        components=[["a"], ["b", "c"]],
        status=Status.NOT_IDENTIFIED,
        se=nan,
        lower=nan,
        upper=nan,
    )
    opened.look(parts, is_final=True).stop(StopReason.LIMIT)
    said = "No arm leads: no chain of comparisons connects a, (b and c)."
    assert wording.answer(summarise(opened.rows)) == said


def test_groups_that_nothing_connects_stand_apart(opened, ranking):
    """The weaker of two groups' leaders is no second: each strength says among whom it is."""
    by_name = ABOUT["by_name"] | {"component": [0, 1, 1], "tier": [1, 1, 1]}
    estimate = ranking(
        value=(0.0, 0.6, -0.6), by_name=by_name, components=[["a"], ["b", "c"]], neighbours=[]
    )
    grid = board.leaderboard(estimate)
    assert grid.head[-1] == "among"
    assert [(row[0], row[-1]) for row in grid.rows] == [
        ("b", "b and c"),
        ("c", "b and c"),
        ("a", "no other"),
    ]
    assert "among" not in board.leaderboard(ranking()).head


def test_of_two_arms_the_other_is_named(make, ranking):
    two = {"names": ("a", "b"), "components": [["a", "b"]]}
    cut = {key: getattr(ranking(), key)[:2] for key in ("value", "se", "lower", "upper")}
    assert wording.headline(ranking(**two, **cut)).endswith("and is proved above b")


@given(st.lists(st.text("xyz", min_size=1, max_size=3), min_size=1, max_size=20))
def test_a_list_of_names_loses_none(names):
    said = wording.listed(names)
    shown = names if len(names) <= 8 else names[:8]
    assert re.split(r", | and ", re.sub(r" and \d+ more$", "", said)) == shown
    assert ("more" in said) == (len(names) > 8)


def test_strengths_over_categories_are_told_by_the_first_two(tensor):
    whole, _ = tensor
    said = (
        "Over all categories the highest strength in log-odds has b 0.60 [0.40, 0.80], then a -0.10"
    )
    assert wording.headline(whole) == f"{said} [-0.30, 0.10]"
    close = replace(whole, upper=(0.5, 0.8, -0.3))
    assert wording.headline(close).endswith("; their intervals overlap")
    pooled = replace(whole, flags=("pooled",))
    assert wording.headline(pooled).endswith("; too few votes for strengths by category")


@pytest.mark.parametrize(
    ("ends", "said"),
    [
        ((0.3, 0.9), "a is better than b by 0.60 [0.30, 0.90] in log-odds."),
        (
            (0.7, math.inf),
            "a is better than b by 0.70 or more in log-odds; no comparison bounds it on the other side.",
        ),
        (
            (-0.1, math.inf),
            "a and b cannot be told apart: the difference is 0.600 [-0.100, ∞] in log-odds.",
        ),
    ],
)
def test_a_gap_is_told_in_log_odds(opened, ranking, ends, said):
    """Also one without an end on one side, as it stands in the log."""
    lower, upper = ends
    gap = ranking(
        target="difference",
        names=("a - b",),
        value=(0.6,),
        se=(0.15,),
        lower=(lower,),
        upper=(upper,),
    )
    compared(opened, 0, (FIRST, FIRST))
    opened.look(gap, is_final=True).stop(StopReason.FINISHED)
    assert wording.answer(summarise(opened.rows)) == said


@pytest.mark.parametrize(
    ("ends", "read"),
    [
        ((1.0, 2.0), (1.0, 2.0)),
        ((-math.inf, 2.0), (-math.inf, 2.0)),
        ((1.0, math.inf), (1.0, math.inf)),
        ((-math.inf, math.inf), (math.nan, math.nan)),
        ((math.nan, math.nan), (math.nan, math.nan)),
    ],
)
def test_an_interval_with_one_end_survives_the_log(make, ends, read):
    lower, upper = ends
    written = json.dumps(make.estimate(lower=(lower,), upper=(upper,)).as_json())
    e = read_estimate(json.loads(written))
    assert (e.lower[0], e.upper[0]) == pytest.approx(read, nan_ok=True)


@pytest.mark.parametrize(
    "word",
    [
        "disconnected",
        "separated",
        "prior_holds",
        "few_clusters",
        "few_effective",
        "few_effective_votes",
        "judge_votes_against",
        "pooled",
        "weakly_identified",
        "unstable",
    ],
)
def test_every_flag_of_rankings_has_words(word):
    assert len(wording.flag(word).split()) > 4


# --- pictures --------------------------------------------------------------------------------------


def test_a_ranking_is_drawn_with_the_best_first(opened, ranking):
    compared(opened, 0, (FIRST, FIRST))
    opened.look(ranking(value=(-0.6, math.nan, 0.8)), is_final=True).stop(StopReason.FINISHED)
    page = html.render(summarise(opened.rows))
    svg = re.search(r'<svg class="chart" role="img" aria-label="ranking: strengths".*?</svg>', page)
    names = [t.text for t in ET.fromstring(svg[0]).findall("text[@class='label']")]
    assert names == ["c", "a", "b"]
    assert ET.fromstring(svg[0]).find("line[@class='zero']") is not None


def test_strengths_by_category_are_coloured_and_tabulated(opened, tensor):
    compared(opened, 0, (FIRST, FIRST))
    opened.look(*tensor, is_final=True).stop(StopReason.FINISHED)
    data = summarise(opened.rows)
    (found,) = board.categories(data)
    assert (found.arms, found.categories) == (("b", "a", "c"), ("billing", "access"))
    grid = board.by_category(found)
    assert grid.rows[0] == ("b", "0.50 ±0.25", "0.70 ±0.25")
    assert grid.rows[1] == ("a", "-0.40 ±0.25", "0.20 ±0.25")
    page = html.render(data)
    svg = re.search(
        r'<svg class="chart" role="img" aria-label="by topic: strength by.*?</svg>', page
    )
    cells = ET.fromstring(svg[0]).findall("rect")
    assert [c.get("class") for c in cells] == ["above", "above", "below", "above", "below", "below"]
    fullness = [float(c.get("fill-opacity")) for c in cells]
    assert fullness == pytest.approx(
        [0.6 * x / 0.9 for x in (0.5, 0.7, 0.4, 0.2, 0.1, 0.9)], abs=0.01
    )


@given(
    st.lists(st.text(max_size=30), min_size=1, max_size=6),
    st.lists(st.text(max_size=30), min_size=1, max_size=8),
    st.data(),
)
def test_a_coloured_table_is_well_formed_and_inside_its_frame(rows, columns, data):
    number = st.floats(-1e6, 1e6) | st.just(math.nan)
    values = [[data.draw(number) for _ in columns] for _ in rows]
    root = ET.fromstring(charts.heat(rows, columns, values, title="<&>"))
    known = [x for row in values for x in row if math.isfinite(x)]
    cells = root.findall("rect")
    assert len(cells) == len(known)
    for cell in cells:
        x, width = (float(cell.get(key).rstrip("%")) for key in ("x", "width"))
        assert 20 <= x <= x + width <= 100.1
        assert 0 <= float(cell.get("fill-opacity")) <= 0.6


def test_many_categories_are_tabulated_only(opened, tensor):
    whole, scores = tensor
    about = dict(whole.diagnostics) | {"categories": [f"k{k}" for k in range(9)]}
    wide = replace(
        scores,
        names=tuple(f"{arm} in k{k}" for arm in ARMS for k in range(9)),
        **dict.fromkeys(("value", "se", "lower", "upper"), (0.1,) * 27),
        status=Status.OK,
    )
    compared(opened, 0, (FIRST, FIRST))
    opened.look(replace(whole, diagnostics=about), wide, is_final=True).stop(StopReason.FINISHED)
    page = html.render(summarise(opened.rows))
    assert '<i class="above">' not in page
    assert "by topic: strength by category" in page
