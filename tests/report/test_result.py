"""The result document: exact keys, integer money, null for what is not known."""

from __future__ import annotations

import json
import math

import pytest

from orchestrator.core.gate import GateOutcome
from orchestrator.core.stopping import StopReason
from orchestrator.report.data import State, state_of
from orchestrator.report.result import document, exit_code
from orchestrator.report.summary import summarise

KEYS = [
    "schema",
    "run",
    "state",
    "stop_reason",
    "stop_why",
    "exit_code",
    "mock",
    "money",
    "fingerprint",
    "spend",
    "counts",
    "estimates",
    "gate",
    "policy",
    "diagnostics",
    "judges",
    "systems",
    "seed",
    "versions",
]


@pytest.mark.parametrize(
    ("reason", "target_met", "code"),
    [
        ("finished", None, 0),
        ("finished", True, 0),
        ("finished", False, 0),
        ("precision", True, 0),
        ("separated", None, 0),
        ("gate_decided", None, 0),
        ("budget", None, 0),
        ("budget", True, 0),
        ("budget", False, 3),
        ("deadline", None, 0),
        ("deadline", False, 3),
        ("limit", None, 0),
        ("limit", False, 3),
        ("user", None, 0),
        ("user", False, 3),
        ("overrun", None, 3),
        ("overrun", True, 3),
        ("judges_down", None, 4),
        ("judges_down", True, 4),
        ("storage", None, 5),
        ("interrupted", None, 130),
        ("interrupted", False, 130),
    ],
)
def test_exit_codes(reason, target_met, code):
    """C41, without gates."""
    reason = StopReason(reason)
    assert exit_code(state_of(reason), reason, target_met=target_met) == code


@pytest.mark.parametrize(
    ("reason", "gate", "code"),
    [
        ("finished", "passed", 0),
        ("finished", "failed", 1),
        ("finished", "undecided", 6),
        ("gate_decided", "passed", 0),
        ("gate_decided", "failed", 1),
        ("precision", "undecided", 6),
        ("budget", "passed", 0),
        ("budget", "failed", 1),
        ("deadline", "undecided", 6),
        ("user", "passed", 0),
        ("overrun", "passed", 3),
        ("overrun", "failed", 1),
        ("overrun", "undecided", 6),
        ("judges_down", "passed", 4),
        ("judges_down", "failed", 4),
        ("storage", "failed", 5),
        ("interrupted", "undecided", 130),
    ],
)
@pytest.mark.parametrize("target_met", [None, True, False])
def test_exit_codes_with_a_gate(reason, gate, target_met, code):
    """C41: the gate decides, whatever the target; 4, 5, 130 come before 1, 6, 3, 0."""
    reason, gate = StopReason(reason), GateOutcome(gate)
    assert exit_code(state_of(reason), reason, target_met=target_met, gate=gate) == code


def test_a_gate_stands_in_the_result_with_what_it_was_judged_by(log, make):
    found = make.difference(diagnostics={"missing_share": {"new": 0.02, "old": 0.04}})
    gates = [make.gate("non_inferior", 0.1, criterion="score", max_missing=0.05), make.gate(bar=1)]
    log.opened(arms=("new", "old"), gate=gates, estimate=[{"name": "effect"}])
    log.judged(0, 4).stop(StopReason.FINISHED).look(found, is_final=True)
    result = document(summarise(log.rows))
    first, second = result["gate"]
    assert first == {
        "estimate": "effect",
        "criterion": "score",
        "arm": None,
        "rule": "non_inferior",
        "bar": 0.1,
        "max_missing": 0.05,
        "on_undecided": 6,
        "outcome": "passed",
        "why": "the interval clears -0.1",
        "value": 0.42,
        "lower": 0.24,
        "upper": 0.6,
        "missing_share": 0.04,
    }
    assert (second["outcome"], second["why"]) == ("failed", "the interval misses 1")
    assert result["exit_code"] == 1


def test_before_the_stop_no_gate_is_judged(log, make):
    log.opened(arms=("new", "old"), gate=[make.gate()], estimate=[{"name": "effect"}])
    log.judged(0, 4).look(make.difference())
    result = document(summarise(log.rows))
    assert result["exit_code"] == 130
    assert result["gate"][0]["outcome"] == "undecided"
    assert result["gate"][0]["value"] is None
    assert result["estimates"][0]["value"] == [0.42]


def test_a_run_under_way_has_no_exit_code(log):
    assert exit_code(State.RUNNING, None, target_met=False) == 0
    result = document(summarise(log.opened().rows, unstopped=State.RUNNING))
    assert (result["state"], result["stop_reason"], result["exit_code"]) == ("running", None, None)


@pytest.mark.parametrize(("stop", "code"), [({"target_half_width": 0.1}, 3), ({}, 0)])
def test_a_used_up_budget_is_an_orderly_stop(log, make, stop, code):
    """C03: stopped by budget; exit 3 with the unmet target, exit 0 without one."""
    log.opened(stop=stop).judged(0, 3).stop(StopReason.BUDGET).look(make.estimate(), is_final=True)
    result = document(summarise(log.rows))
    assert (result["state"], result["stop_reason"]) == ("stopped", "budget")
    assert result["exit_code"] == code
    assert result["counts"]["missing"] == {}


def test_the_document_has_exactly_its_keys_and_is_json(log, make):
    log.opened(arms=("A", "B")).judged(0, 4).missed(1, "refused", unit=1, cost=1)
    unknown = make.estimate(se=(math.nan,), lower=(-math.inf,), diagnostics={"noise": [math.nan]})
    log.stop(StopReason.FINISHED).look(unknown, make.difference(), is_final=True)
    result = document(summarise(log.rows, fingerprint="ab" * 16, run="r1"))
    assert list(result) == KEYS
    assert json.loads(json.dumps(result, allow_nan=False)) == result
    assert (result["fingerprint"], result["run"], result["seed"]) == ("ab" * 16, "r1", 7)
    first, second = result["estimates"]
    assert (first["se"], first["lower"], first["value"]) == ([None], [None], [4.0])
    assert (first["primary"], second["primary"]) == (True, False)
    assert "diagnostics" not in first
    assert result["diagnostics"]["estimates"] == [{"noise": [None]}, {}]
    assert result["counts"]["missing_by_arm"]["B"]["missing"] == {"refused": 1}
    assert result["versions"] == {"sortition": "0.1.0"}
    assert result["gate"] is None


def test_money_is_whole_nano_dollars(log):
    log.opened().judged(0, 4, cost=4_812_341).judged(1, 5, cost=4_812_342)
    result = document(summarise(log.rows))
    assert result["spend"] == {
        "cap_nano_usd": 100_000_000,
        "settled_nano_usd": 9_624_683,
        "held_nano_usd": 0,
        "uncertain_nano_usd": 0,
        "overrun_nano_usd": 0,
        "by_judge": {
            "large": {"settled_nano_usd": 9_624_683, "uncertain_nano_usd": 0},
            "small": {"settled_nano_usd": 0, "uncertain_nano_usd": 0},
        },
        "by_system": {},
        "by_role": {"judge": {"settled_nano_usd": 9_624_683, "uncertain_nano_usd": 0}},
        "by_purpose": {"policy": {"settled_nano_usd": 9_624_683, "uncertain_nano_usd": 0}},
        "by_class": {"answers": {"settled_nano_usd": 9_624_683, "uncertain_nano_usd": 0}},
        "unmetered_nano_usd": 0,
    }
    assert result["judges"][0]["nano_usd_per_answer"] == 4_812_342
    assert result["judges"][1]["latency_s"] is None


def test_what_is_said_of_a_judge_is_in_the_document(log):
    """Every key by hand; what is not known is null."""
    log.opened(routes={"large": "schema"})
    log.judged(0, 4, served_model="m-1", flags=("coerced:score",))
    log.judged(1, 5, unit=1, served_model="m-2")
    log.missed(2, "timeout", uncertain=7)
    large, small = document(summarise(log.rows))["judges"]
    found = {key: large[key] for key in ("route", "cached", "flags", "answers_by_model", "outages")}
    assert found == {
        "route": "schema",
        "cached": 0,
        "flags": {"coerced:score": 1},
        "answers_by_model": {"m-1": 1, "m-2": 1},
        "outages": [],
    }
    assert large["billed_without_answer"] == {
        "attempts": 1,
        "settled_nano_usd": 0,
        "uncertain_nano_usd": 7,
    }
    unknown = {"value": None, "lower": None, "upper": None}
    assert large["scores"]["score"] == {
        "n": 2,
        "mean": 4.5,
        "sd": pytest.approx(0.5**0.5),
        "repeat_variance": None,
        "signal": unknown,
        "with_others": unknown | {"n_units": 0},
        "commonest": 4.0,
        "commonest_share": 0.5,
    }
    assert (small["route"], small["scores"]["score"]["commonest"]) == (None, None)


def test_what_is_said_of_the_panel_is_in_the_document(log, make):
    """Two judges, three units, both orders of two criteria: values by hand."""
    criteria = ({"name": "a", "low": 0, "high": 4}, {"name": "b", "low": 0, "high": 4})
    log.opened(criteria=criteria)
    for q in range(6):
        swapped = q % 2
        log.both(q, (q // 2, q // 2 + 1), swapped=swapped, unit=q // 2, judge=q % 2)
    diagnostics = document(summarise(log.rows))["diagnostics"]
    first = diagnostics["agreement"][0]
    assert first == {
        "criterion": "a",
        "metric": "interval",
        "n_judges": 2,
        "n_units": 3,
        "alpha": {"value": 1.0, "lower": None, "upper": None},
    }
    # One judge saw one order alone, so nothing changed its place for it.
    assert diagnostics["places"] == []
    assert diagnostics["without_judge"] == []
    assert json.loads(json.dumps(diagnostics, allow_nan=False)) == diagnostics


def test_a_run_without_an_answer_is_undecided():
    """Everything was asked and nothing answered: the design is complete, and says nothing."""
    done = {"target_met": None, "is_empty": True}
    assert exit_code(State.FINISHED, StopReason.FINISHED, **done) == 6
    assert exit_code(State.STOPPED, StopReason.BUDGET, **done) == 6
    assert exit_code(State.STOPPED, StopReason.JUDGES_DOWN, **done) == 4


def test_what_a_stop_does_not_say_shows_in_the_exit_code():
    """Late bills past the cap, a stale cache, and a design that lost a judge before its target."""
    precise = {"target_met": True}
    assert exit_code(State.FINISHED, StopReason.PRECISION, **precise, is_overrun=True) == 3
    assert exit_code(State.STOPPED, StopReason.LIMIT, target_met=None, is_stale=True) == 4
    done = {"target_met": False}
    assert exit_code(State.FINISHED, StopReason.FINISHED, **done) == 0
    assert exit_code(State.FINISHED, StopReason.FINISHED, **done, is_incomplete=True) == 3
