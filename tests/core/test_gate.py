"""Gates hold intervals against bars, and decide nothing that missing verdicts could turn."""

from __future__ import annotations

import json
import math
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.core.estimate import Estimate, Status
from orchestrator.core.gate import Gate, GateOutcome, Rule, Verdict, judge, overall
from orchestrator.core.stopping import StopRule

PASSED, FAILED, UNDECIDED = GateOutcome.PASSED, GateOutcome.FAILED, GateOutcome.UNDECIDED


def estimate(*intervals, names=("new - old",), name="effect", **changes):
    """An estimate with these intervals; each value is the middle."""
    lower, upper = zip(*intervals, strict=True)
    values = {
        "name": name,
        "kind": "score_means",
        "target": "difference",
        "estimand": "",
        "names": names,
        "value": tuple((lo + up) / 2 for lo, up in intervals),
        "se": (0.1,) * len(intervals),
        "lower": lower,
        "upper": upper,
        "level": 0.95,
        "interval": "t",
        "watching_covered": False,
        "alpha_split": "none",
        "family": "",
        "n_items": 50,
        "n_answers": 100,
        "status": Status.OK,
    }
    return Estimate(**values | changes)


def gate(rule="superior", bar=0.0, **changes):
    values = {"estimate": "effect", "sources": ("effect",), "arms": ("new", "old")}
    return Gate(rule=Rule(rule), bar=bar, **values | changes)


def outcome(a_gate, *estimates):
    return judge(a_gate, estimates).outcome


@pytest.mark.parametrize(
    ("rule", "bar", "interval", "expected"),
    [
        ("superior", 0.0, (0.01, 0.3), PASSED),
        ("superior", 0.0, (0.0, 0.3), UNDECIDED),
        ("superior", 0.0, (-0.3, 0.0), FAILED),
        ("superior", 0.2, (0.1, 0.3), UNDECIDED),
        ("superior", 0.2, (0.1, 0.2), FAILED),
        ("non_inferior", 0.1, (-0.09, 0.3), PASSED),
        ("non_inferior", 0.1, (-0.1, 0.3), UNDECIDED),
        ("non_inferior", 0.1, (-0.3, -0.1), UNDECIDED),
        ("non_inferior", 0.1, (-0.3, -0.11), FAILED),
        ("at_least", 4.0, (4.0, 4.5), PASSED),
        ("at_least", 4.0, (3.9, 4.0), UNDECIDED),
        ("at_least", 4.0, (3.5, 3.9), FAILED),
    ],
)
def test_an_interval_passes_fails_or_straddles_its_bar(rule, bar, interval, expected):
    assert outcome(gate(rule, bar), estimate(interval)) is expected


ENDS = st.tuples(st.floats(-1, 1), st.floats(-1, 1)).map(sorted)


@given(ENDS, st.sampled_from(["superior", "non_inferior", "at_least"]), st.floats(0.01, 0.9))
def test_a_wider_interval_never_decides_what_a_narrower_one_left_open(ends, rule, bar):
    lower, upper = ends
    narrow = outcome(gate(rule, bar), estimate((lower, upper)))
    wide = outcome(gate(rule, bar), estimate((lower - 0.1, upper + 0.1)))
    assert wide in {narrow, UNDECIDED}


@given(ENDS, st.floats(0.01, 0.9))
def test_what_is_superior_by_a_margin_is_not_inferior_to_it(ends, bar):
    found = estimate(tuple(ends))
    if outcome(gate("superior", bar), found) is PASSED:
        assert outcome(gate("non_inferior", bar), found) is PASSED
    if outcome(gate("non_inferior", bar), found) is FAILED:
        assert outcome(gate("superior", bar), found) is FAILED


def means(*intervals, **changes):
    names = ("a", "b", "c")[: len(intervals)]
    return estimate(*intervals, names=names, name="scores", target="arms", **changes)


def at_least(value, **changes):
    return gate(
        "at_least", value, **{"estimate": "scores", "sources": ("scores",), "arms": ()} | changes
    )


def test_without_an_arm_all_names_must_clear_the_value():
    good, unsure, bad = (4.1, 4.5), (3.8, 4.2), (3.1, 3.5)
    assert outcome(at_least(4), means(good, good)) is PASSED
    assert outcome(at_least(4), means(good, unsure)) is UNDECIDED
    assert outcome(at_least(4), means(good, unsure, bad)) is FAILED
    shown = judge(at_least(4), [means(good, bad)])
    assert (shown.value, shown.lower, shown.upper) == (3.3, 3.1, 3.5)


def test_with_an_arm_the_others_do_not_matter():
    found = [estimate((-9, 9), name="scores"), means((4.1, 4.5), (3.1, 3.5))]
    assert outcome(at_least(4, arm="a"), *found) is PASSED
    assert outcome(at_least(4, arm="b"), *found) is FAILED
    assert outcome(at_least(4, arm="z"), *found) is UNDECIDED


def rank(r, *differences):
    sources = tuple(f"scores (new - {k})" for k in range(len(differences)))
    a_gate = gate("rank_at_most", r, estimate="scores", sources=sources, arm="new", arms=())
    found = [
        estimate(ends, name=name, names=(f"new - {k}",))
        for k, (name, ends) in enumerate(zip(sources, differences, strict=True))
    ]
    return judge(a_gate, found)


BELOW, ABOVE, EVEN = (0.1, 0.5), (-0.5, -0.1), (-0.2, 0.3)


@pytest.mark.parametrize(
    ("r", "differences", "expected"),
    [
        (1, (BELOW, BELOW, BELOW), PASSED),
        (1, (BELOW, BELOW, EVEN), UNDECIDED),
        (1, (BELOW, BELOW, ABOVE), FAILED),
        (2, (BELOW, BELOW, EVEN), PASSED),
        (2, (BELOW, BELOW, ABOVE), PASSED),
        (2, (BELOW, EVEN, ABOVE), UNDECIDED),
        (2, (EVEN, ABOVE, ABOVE), FAILED),
        (3, (EVEN, ABOVE, ABOVE), UNDECIDED),
        (3, (ABOVE, ABOVE, ABOVE), FAILED),
    ],
)
def test_a_rank_counts_the_arms_that_surely_stand_below_and_above(r, differences, expected):
    assert rank(r, *differences).outcome is expected


@given(st.lists(st.sampled_from([BELOW, ABOVE, EVEN]), min_size=1, max_size=6), st.data())
def test_a_rank_passes_and_fails_by_counts_of_arms(differences, data):
    """The second witness: at least K - r arms below passes, at least r above fails."""
    n_arms = len(differences) + 1
    r = data.draw(st.integers(1, n_arms - 1))
    verdict = rank(r, *differences)
    expected = UNDECIDED
    if differences.count(BELOW) >= n_arms - r:
        expected = PASSED
    elif differences.count(ABOVE) >= r:
        expected = FAILED
    assert verdict.outcome is expected
    assert 1 <= verdict.lower <= verdict.value <= verdict.upper <= n_arms


CLEAR = (0.1, 0.3)
SHARES = {"missing_share": {"new": 0.04, "old": 0.06, "other": 0.9}}


def test_nothing_is_decided_without_an_estimate():
    verdict = judge(gate(), [])
    assert (verdict.outcome, verdict.why) == (UNDECIDED, "there is no estimate yet")
    assert outcome(gate(sources=("effect", "gone")), estimate(CLEAR)) is UNDECIDED


@pytest.mark.parametrize("status", [status for status in Status if status is not Status.OK])
def test_nothing_is_decided_by_an_estimate_that_can_not_be_read_as_it_stands(status):
    verdict = judge(gate(), [estimate(CLEAR, status=status)])
    assert verdict.outcome is UNDECIDED
    assert status.replace("_", " ") in verdict.why


@pytest.mark.parametrize("interval", [(math.nan, 0.3), (0.1, math.nan), (math.nan, math.nan)])
def test_nothing_is_decided_by_an_interval_that_is_not_known(interval):
    assert outcome(gate(), estimate(interval)) is UNDECIDED
    assert outcome(at_least(4), means((4.1, 4.5), interval)) is UNDECIDED
    assert rank(1, BELOW, interval).outcome is UNDECIDED


def test_too_much_missing_in_an_arm_that_takes_part_leaves_it_undecided():
    found = estimate(CLEAR, diagnostics=SHARES)
    assert outcome(gate(max_missing=0.06), found) is PASSED
    assert outcome(gate(), found) is PASSED
    verdict = judge(gate(max_missing=0.05), [found])
    assert (verdict.outcome, verdict.missing) == (UNDECIDED, 0.06)
    assert verdict.why == "6.0% of an arm's verdicts are missing, at most 5.0% may be"


@pytest.mark.parametrize("diagnostics", [{}, {"missing_share": {"new": 0.0, "old": None}}])
def test_a_share_of_missing_that_is_not_known_is_too_much(diagnostics):
    found = estimate(CLEAR, diagnostics=diagnostics)
    assert outcome(gate(max_missing=0.5), found) is UNDECIDED
    assert outcome(gate(), found) is PASSED


def test_a_gate_cannot_pass_where_missing_differs_by_arm():
    """C28: what is missing could turn the verdict."""
    verdict = judge(gate(), [estimate(CLEAR, flags=("missing_differs_by_arm",))])
    assert (verdict.outcome, verdict.why) == (UNDECIDED, "missing differs by arm")


def verdict_of(outcome, on_undecided=6):
    return Verdict(gate=gate(on_undecided=on_undecided), outcome=outcome, why="")


def test_an_undecided_gate_counts_as_the_user_says():
    counted = [verdict_of(UNDECIDED, said).counts_as for said in ("fail", "pass", 6)]
    assert counted == [FAILED, PASSED, UNDECIDED]
    assert verdict_of(PASSED, "fail").counts_as is PASSED
    assert verdict_of(FAILED, "pass").counts_as is FAILED


def test_of_several_gates_all_must_pass():
    assert overall([]) is None
    assert overall([PASSED, PASSED]) is PASSED
    assert overall([PASSED, UNDECIDED]) is UNDECIDED
    assert overall([UNDECIDED, FAILED, PASSED]) is FAILED


def test_a_gate_is_what_its_json_says():
    a_gate = gate("at_least", 4.0, arm="new", criterion="score", max_missing=0.1)
    document = json.loads(json.dumps(a_gate.as_json()))
    assert document == a_gate.as_json()
    assert Gate.from_json(document | {"later": 1}) == a_gate


# --- gates that end a run ----------------------------------------------------------------------

WATCHED = estimate(CLEAR, watching_covered=True)


def test_a_look_ends_a_run_once_all_gates_are_decided():
    second = gate("non_inferior", 0.1, estimate="b", sources=("b",))
    rule = StopRule(gates=(gate(), second), min_items=50)
    decided, open_ = replace(WATCHED, name="b"), replace(WATCHED, name="b", lower=(-0.2,))
    assert rule.is_decided([WATCHED, decided])
    assert not rule.is_decided([WATCHED, open_])
    assert not rule.is_decided([WATCHED])


def test_a_failed_gate_is_decided_too():
    assert StopRule(gates=(gate(bar=0.5),)).is_decided([WATCHED])


def test_no_run_ends_by_intervals_that_do_not_hold_under_watching():
    rule = StopRule(gates=(gate(),))
    assert rule.is_decided([WATCHED])
    assert not rule.is_decided([replace(WATCHED, watching_covered=False)])


def test_no_run_ends_before_its_gates_have_enough_items():
    assert not StopRule(gates=(gate(),), min_items=51).is_decided([WATCHED])


def test_without_gates_nothing_is_decided():
    assert not StopRule().is_decided([WATCHED])


def test_looks_do_not_thin_out_while_a_gate_waits_for_one():
    counts = range(1, 25 * 200)
    assert all(StopRule(gates=(gate(),)).is_look(n) == (n % 25 == 0) for n in counts)
