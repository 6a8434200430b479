"""The sentences: what came out, why it ended, and how numbers are written."""

from __future__ import annotations

import math
from dataclasses import replace
from decimal import Decimal
from html import unescape

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.core.estimate import Status
from orchestrator.core.events import Commanded, JudgeDown, LimitReached, Parked, Started
from orchestrator.core.money import PriceCard
from orchestrator.core.query import Judged, MissingReason, Observation, Purpose
from orchestrator.core.stopping import StopReason
from orchestrator.report import html, markdown, panel, wording
from orchestrator.report.result import document
from orchestrator.report.screen import closing_lines
from orchestrator.report.summary import summarise


def sentence(log, estimate, arms=("new", "old")):
    log.opened(arms=arms, estimate=[{"name": estimate.name}]).judged(0, 3)
    log.stop(StopReason.FINISHED).look(estimate, is_final=True)
    return wording.answer(summarise(log.rows))


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ((0.42, 0.24, 0.60), "new is better than old by 0.42 [0.24, 0.60]."),
        ((-0.42, -0.60, -0.24), "new is worse than old by 0.42 [0.24, 0.60]."),
        (
            (0.12, -0.06, 0.30),
            "new and old cannot be told apart: the difference is 0.12 [-0.06, 0.30].",
        ),
        ((0.5, 0.0, 1.0), "new and old cannot be told apart: the difference is 0.50 [0.00, 1.00]."),
        (
            (0.5, math.nan, math.nan),
            "new differs from old by 0.500; how uncertain that is can't be known from these data.",
        ),
    ],
)
def test_a_difference_is_put_into_words(log, make, values, expected):
    assert sentence(log, make.difference(*values)) == expected


def gated(log, make, *gates, target=None):
    stop = {} if target is None else {"target_half_width": target}
    log.opened(arms=("new", "old"), estimate=[{"name": "effect"}], gate=list(gates), stop=stop)
    log.judged(0, 3).stop(StopReason.BUDGET).look(make.difference(), is_final=True)
    return summarise(log.rows)


@pytest.mark.parametrize(
    ("gates", "said"),
    [
        ([("superior", 0.0)], "the gate passed"),
        ([("superior", 1.0)], "the gate failed"),
        ([("superior", 0.3)], "the gate is undecided"),
        ([("superior", 0.3, "fail")], "the gate is undecided, which counts as failed"),
        ([("superior", 0.3, "pass")], "the gate is undecided, which counts as passed"),
        ([("superior", 0.0), ("non_inferior", 0.1)], "2 of 2 gates passed"),
        ([("superior", 0.0), ("superior", 1.0), ("superior", 0.3)], "1 of 3 gates failed"),
        ([("superior", 0.0), ("superior", 0.3)], "1 of 2 gates is undecided"),
        (
            [("superior", 0.3, "pass"), ("superior", 0.4, "pass")],
            "2 of 2 gates are undecided, which counts as passed",
        ),
    ],
)
def test_the_first_sentence_carries_the_verdict_of_the_gate(log, make, gates, said):
    made = [make.gate(rule, bar, on_undecided=(*rest, 6)[0]) for rule, bar, *rest in gates]
    data = gated(log, make, *made)
    assert wording.answer(data) == f"new is better than old by 0.42 [0.24, 0.60]; {said}."


def test_each_gate_is_told_with_its_interval_and_the_reason(log, make):
    gates = (
        make.gate("non_inferior", 0.1, criterion="score"),
        make.gate("superior", 0.3),
        make.gate("at_least", 0.7),
        make.gate("rank_at_most", 1, arm="new"),
        make.gate("superior", sources=("gone",)),
    )
    assert wording.gates(gated(log, make, *gates)) == [
        (
            "Gate passed: effect, score non-inferior within 0.1; it is 0.42 [0.24, 0.60]: the interval "
            "clears -0.1."
        ),
        (
            "Gate undecided: effect superior by more than 0.3; it is 0.42 [0.24, 0.60]: the interval "
            "straddles 0.3."
        ),
        "Gate failed: effect at least 0.7; it is 0.42 [0.24, 0.60]: the interval misses 0.7.",
        "Gate passed: effect, new rank at most 1; it is 1 [1, 1]: the interval clears 1.",
        "Gate undecided: effect superior by more than 0; it is not known: there is no estimate yet.",
    ]


def test_a_target_that_is_not_met_is_a_warning_beside_a_gate(log, make):
    """With a gate the gate decides."""
    data = gated(log, make, make.gate(), target=0.01)
    assert wording.precision(data) == (
        "Precision target ±0.01: not met, the half-width is ±0.18; the gate decides all the same."
    )


def test_page_markdown_and_screen_tell_of_each_gate(log, make):
    """What a name holds is escaped."""
    data = gated(log, make, make.gate(), make.gate(estimate="<b>", sources=("<b>",)))
    for text in (html.render(data), markdown.render(data), "\n".join(closing_lines(data))):
        assert "1 of 2 gates is undecided." in text
        assert text.count("Gate passed: ") == text.count("Gate undecided: ") == 1
    assert "Gate undecided: &lt;b&gt; superior" in html.render(data)
    assert "Gate undecided: &lt;b&gt; superior" in markdown.render(data)


def test_arms_whose_names_hold_dashes_are_told_apart(log, make):
    estimate = make.difference()
    names = ("a - b - a",)
    changed = make.estimate(
        name="effect",
        target="difference",
        names=names,
        value=estimate.value,
        se=estimate.se,
        lower=estimate.lower,
        upper=estimate.upper,
    )
    assert sentence(log, changed, arms=("a", "a - b")).startswith("a - b is better than a by")


def test_means_are_listed_and_many_are_told_by_their_ends(log, make):
    few = make.estimate(
        names=("new", "old"), value=(3.6, 3.2), se=(0.1, 0.1), lower=(3.4, 3.0), upper=(3.8, 3.4)
    )
    assert sentence(log, few) == "Mean: new 3.60 [3.40, 3.80], old 3.20 [3.00, 3.40]."


def test_of_many_names_the_ends_are_told(log, make):
    many = make.estimate(
        target="units",
        names=tuple("abcde"),
        value=(3.0, 1.0, math.nan, 5.0, 2.0),
        se=(0.1,) * 5,
        lower=(2.8, 0.8, math.nan, 4.8, 1.8),
        upper=(3.2, 1.2, math.nan, 5.2, 2.2),
    )
    assert sentence(log, many) == (
        "Of 5 units, d is highest, 5.00 [4.80, 5.20], and b lowest, 1.00 [0.80, 1.20]."
    )
    wide = replace(many, upper=(3.2, 5.0, math.nan, 5.2, 2.2))
    assert sentence(log, wide).endswith("; their intervals overlap.")


@pytest.mark.parametrize(
    ("purpose", "n_missing", "said"),
    [
        (Purpose.PILOT, 0, "of 1 verdict none enters the estimate, since they belong to a pilot."),
        (None, 2, "There is no answer: none of 2 questions got a verdict."),
    ],
)
def test_why_there_is_no_answer_is_said(log, make, purpose, n_missing, said):
    """Nothing but a pilot's answers, or nothing but failures: not the same as nothing yet."""
    empty = make.estimate(status=Status.EMPTY)
    log.opened(estimate=[{"name": empty.name}])
    if purpose is not None:
        said_3 = Judged(observations=(Observation(unit=0, value=3.0),), cost=1, usage=None)
        log.ask(0, purpose=purpose).send(0).arrive(0, said_3).tell(0, said_3)
    for q in range(n_missing):
        log.missed(q, MissingReason.REFUSED)
    log.stop(StopReason.FINISHED).look(empty, is_final=True)
    assert wording.answer(summarise(log.rows)).endswith(said)


@pytest.mark.parametrize("status", ["empty", "not_identified", "failed"])
def test_what_has_no_answer_says_so(log, make, status):
    assert sentence(log, make.estimate(status=status)).startswith("There is no answer")


@pytest.mark.parametrize("reason", StopReason)
def test_every_ending_has_its_sentence(log, reason):
    ending = wording.ending(summarise(log.opened().stop(reason).rows))
    assert ending[0].isupper()
    assert ending.endswith(".")


@pytest.mark.parametrize(
    ("nano", "text"),
    [
        (0, "$0.000"),
        (1, "$0.000000001"),
        (4_812_340, "$0.0048"),
        (22_000_000, "$0.022"),
        (1_234_567_890, "$1.235"),
        (-22_000_000, "-$0.022"),
        (9_999_999, "$0.010"),
    ],
)
def test_money_is_rounded_for_the_eye_and_never_to_nothing(nano, text):
    assert wording.usd(nano) == text


@given(st.integers(-(10**15), 10**15), st.integers(2, 9))
def test_rounded_money_is_within_half_of_its_last_digit_and_a_twentieth_of_itself(nano, decimals):
    text = wording.usd(nano, decimals).replace("$", "").replace(",", "")
    shown = int(Decimal(text) * 10**9)
    assert abs(shown - nano) <= 10 ** (9 - decimals) / 2
    assert abs(shown - nano) <= abs(nano) / 20


@pytest.mark.parametrize(
    ("half", "decimals"), [(0.18, 2), (0.095, 3), (1.8, 1), (18.0, 0), (0.0, 3), (math.nan, 3)]
)
def test_two_digits_of_the_half_width_decide_the_decimals(half, decimals):
    assert wording.places(half) == decimals


def test_zero_has_no_sign():
    assert wording.number(-0.0001, 2) == "0.00"


@pytest.mark.parametrize(
    ("card", "text"),
    [
        (PriceCard(), "free"),
        (PriceCard(input=2_000_000, output=10_000_000), "$2.00 in, $10.00 out per 1M tokens"),
        (PriceCard(input=100_000), "$0.10 in, $0.00 out per 1M tokens"),
        (PriceCard(per_call=3_300_000_000), "$0.0033 a call"),
    ],
)
def test_prices_are_in_the_units_of_price_sheets(card, text):
    assert wording.price(card) == text


@given(st.text())
def test_printable_text_is_valid_and_without_controls(text):
    """C23, C48: what is printed can be encoded and steers nothing."""
    shown = wording.printable(text)
    shown.encode()
    assert len(shown.splitlines()) <= 1
    assert not any(ord(c) < 32 or 0x7F <= ord(c) < 0xA0 for c in shown)


def test_limits_name_what_these_numbers_cannot_tell(log, make):
    log.opened().missed(0, "timeout", uncertain=1).look(make.estimate())
    text = " ".join(wording.limits(summarise(log.rows)))
    for word in ("bias", "one look", "last look", "never scored 0", "uncertain", "simulated"):
        assert word.lower() in text.lower()


def test_watching_is_a_limit_only_where_the_answer_does_not_hold_under_it(log, make):
    """Another estimate's interval does not speak for that of the primary one, in either way."""
    log.opened(estimate=[{"name": "a"}, {"name": "b"}])
    one, two = make.estimate(name="a"), make.estimate(name="b", watching_covered=True)
    data = summarise(log.look(one, two).rows)
    for primary, is_said in ((0, True), (1, False)):
        said = " ".join(wording.limits(replace(data, primary=primary)))
        assert ("one look at the end" in said) == is_said


def test_a_shared_bias_is_a_limit_only_without_human_labels(log, make):
    bare = wording.limits(summarise(log.opened().look(make.estimate()).rows))
    assert bare[0] == wording.NO_LABELS
    log.rows.clear()
    given = wording.limits(summarise(log.opened(labels={"n": 4}).look(make.estimate()).rows))
    assert given == bare[1:]


def test_agreement_with_labels_is_a_table_of_its_own(log, make):
    """Unknown figures are dashes; the correction is a column where there is one."""
    row = {"judge": "a", "n_units": 1200, "bias": 0.254, "se": 0.031, "rms": 0.5}
    row |= {"correlation": 0.814, "lower": 0.75, "upper": 0.86, "correction": "line", "slope": 1.2}
    unknown = dict.fromkeys(row) | {"judge": "b", "n_units": 0, "correction": "none"}
    found = make.estimate(diagnostics={"criterion": "tone", "labels": [row, unknown]})
    (grid,) = wording.labels(summarise(log.opened().look(found, found).rows))
    assert grid.title == "scores: tone"
    assert grid.head[-1] == "corrected by"
    assert grid.rows[0] == ("a", "1,200", "0.254", "0.0310", "0.500", "0.81 [0.75, 0.86]", "line")
    dash = "\N{EN DASH}"
    assert grid.rows[1] == ("b", "0", dash, dash, dash, f"{dash} not known", "none")
    assert wording.grids(found) == []


def test_worst_cases_stand_beside_estimates_where_something_is_missing(make):
    by_name = {"n_items": [4], "missing": [2], "worst_lower": [3.0], "worst_upper": [4.5]}
    shown = wording.columns_of(make.estimate(diagnostics={"by_name": by_name}), [0])
    assert shown["worst case"] == ["[3.00, 4.50]"]
    assert shown["items"] == ["4"]
    none = by_name | {"missing": [0]}
    assert "worst case" not in wording.columns_of(make.estimate(diagnostics={"by_name": none}), [0])


def test_diagnostics_are_a_line_of_values_and_tables_of_records(make):
    judges = [{"judge": "a", "repeat_variance": 0.25}, {"judge": "b", "repeat_variance": None}]
    found = make.estimate(
        diagnostics={
            "criterion": "score",
            "missing_test": {"p": 0.00001234, "is_rough": False},
            "judges": judges,
            "by_name": {"n_items": [4]},
        }
    )
    assert wording.diagnostics(found) == "criterion score; missing test: p 1.234e-05, is rough no"
    (grid,) = wording.grids(found)
    assert (grid.title, grid.head) == ("judges", ("judge", "repeat variance"))
    assert grid.rows == (("a", "0.25"), ("b", "\N{EN DASH}"))


def test_the_command_that_was_given_is_the_one_to_repeat(log):
    log.opened()
    assert wording.command(summarise(log.rows)) == "sortition run campaign.yaml --seed 7"
    log.add(Started(about={"command": "sortition run x.yaml"}))
    assert wording.command(summarise(log.rows)) == "sortition run x.yaml"


@pytest.mark.parametrize(
    ("changes", "is_said"),
    [
        ({}, True),
        ({"interval": "wilson"}, True),
        ({"target": "units"}, False),
        ({"estimand": "mean over these items, judged by this panel"}, False),
        ({"estimand": "mean over items like these, judged by judges like these"}, False),
        ({"interval": "betting"}, False),
        ({"interval": "asymptotic sequence", "watching_covered": True}, False),
    ],
)
def test_what_more_money_buys_is_said_only_where_the_root_law_holds(log, make, changes, is_said):
    log.opened(items=tuple("abcdefgh"), estimate=[{"name": "scores"}]).judged(0, 3)
    log.stop(StopReason.BUDGET).look(make.estimate(**changes), settled=5_000_000, is_final=True)
    said = wording.outlook(summarise(log.rows))
    assert (said is not None) == is_said
    assert said is None or "would bring it to about ±0.42" in said


def test_what_more_money_buys_with_an_anchor_is_not_guessed(log, make):
    log.opened(items=tuple("abcdefgh"), estimate=[{"name": "scores"}]).judged(0, 3)
    log.stop(StopReason.BUDGET)
    log.look(make.estimate(), settled=5_000_000, is_final=True)
    data = summarise(log.rows)
    assert wording.outlook(data) is not None
    assert wording.outlook(replace(data, policy={"anchor": "large"})) is None


def everywhere(data):
    """Page, Markdown and screen, as plain text."""
    return (
        unescape(html.render(data)),
        unescape(markdown.render(data)).replace("\\", ""),
        "\n".join(closing_lines(data)),
    )


@pytest.mark.parametrize(
    ("which", "reason", "sentence"),
    [
        ("user", "user", "The user stopped the run: seen enough."),
        ("user", "user", None),
        ("max_wait", "judges_down", "No judge is left that takes questions: large is down."),
        ("stale_cache", "limit", "The cache no longer holds what the judges say: large moved."),
        ("max_tokens", "limit", "A limit is reached: max_tokens."),
    ],
)
def test_why_a_limit_ended_the_run_is_said_everywhere(log, which, reason, sentence):
    why = sentence.rpartition(": ")[2].removesuffix(".") if sentence else ""
    why = "" if why == which else why
    log.opened().judged(0, 4).add(LimitReached(which=which, why=why)).stop(StopReason(reason))
    data = summarise(log.rows)
    for text in everywhere(data):
        assert (sentence or "The user stopped the run.") in text
    assert document(data)["stop_why"] == (why or None)


def test_a_stale_cache_is_the_first_doubt(log):
    log.opened().judged(0, 4).judged(1, 4, unit=1, cost=0)
    log.add(LimitReached(which="stale_cache", why="large: another model")).stop(StopReason.LIMIT)
    (line,) = panel.doubts(summarise(log.rows))
    assert line == (
        "0 answers of the estimates came from the cache, which may be of another model: large: "
        "another model."
    )


def test_a_judge_that_is_lost_says_what_of_its_questions_was_not_answered(log):
    log.opened().judged(0, 4)
    for q in (1, 2):
        log.missed(q, "judge_down", unit=q)
    log.ask(3, unit=3).add(JudgeDown(judge=0, until=None, why="401"), Parked(q=3))
    data = summarise(log.stop(StopReason.FINISHED).rows)
    said = "3 of its questions were not answered: 2 refused when it went down, 1 came back unasked"
    assert wording.ending(data).endswith(f"large went down after 1 answer (401); {said}.")
    assert panel.outages(data)[0].endswith(f": 401. {said}.")
    grid = panel.judges(data)
    row = dict(zip(grid.head, grid.rows[0], strict=True))
    assert [row[k] for k in ("asked", "answered", "missing", "given back")] == ["4", "1", "2", "1"]


def test_a_run_without_any_answer_says_why(log):
    log.opened()
    for q in range(6):
        log.missed(q, "server_error", unit=q % 4, detail="HTTP 503: overloaded.")
    data = summarise(log.stop(StopReason.FINISHED).rows)
    assert wording.ending(data) == (
        "All that could be asked was asked. No question was answered: 6 x server error, e.g. HTTP "
        "503: overloaded."
    )


def test_money_without_known_usage_is_a_row_and_no_oddity(log):
    log.opened().judged(0, 4, cost=22_000_000, flags=("usage_missing", "coerced"))
    data = summarise(log.rows)
    for text in everywhere(data)[:2]:
        assert "ooked at the worst case, usage not told: for 1 answer" in text
    assert [what for *_, what in wording.oddities(data)] == [wording.flag("coerced")]


def test_a_text_that_speaks_to_the_judge_is_a_doubt_with_its_items(log):
    log.opened(items=("i<1>", "b"))
    log.judged(0, 4, flags=("suspected_injection",))
    data = summarise(log.rows, get_blob=log.get_blob)
    (line,) = panel.doubts(data)
    assert line == (
        "1 answer of large may have been swayed by the judged text, which seems to speak to the "
        "judge: i<1>."
    )
    assert wording.oddities(data) == []
    assert "i<1>" not in html.render(data)


def test_commands_stand_in_page_markdown_and_document(log):
    told = {"name": "set", "path": "budget.usd", "value": "3", "reason": "<b>", "by": "me@box"}
    log.opened().add(Commanded(command=told | {"refused": "less than held"}))
    data = summarise(log.rows)
    for text in everywhere(data)[:2]:
        for word in ("Steered", "set budget.usd=3", "<b>", "me@box", "refused: less than held"):
            assert word in text
    (one,) = document(data)["diagnostics"]["steered"]
    assert (one["command"], one["path"], one["refused"]) == ("set", "budget.usd", "less than held")
    assert wording.steered(summarise(log.rows[:2])) is None


def test_an_interval_without_a_name_has_no_brackets(make):
    assert wording.method(make.estimate(interval="")).startswith("95% intervals; they ")


def test_the_run_is_named_as_a_command_takes_it(log):
    data = replace(summarise(log.opened().rows, run="r1"), path="my runs/r1")
    assert wording.place(data) == "'my runs/r1'"
    assert wording.place(replace(data, path="")) == "r1"
    for text in everywhere(data)[:2]:
        assert "sortition verify 'my runs/r1'" in text
