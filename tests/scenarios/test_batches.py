"""Whole campaigns of batches: what order does to raw verdicts, losses, crashes, looks and money."""

from __future__ import annotations

import json
from collections import Counter

import numpy as np
import pytest

from orchestrator import Campaign
from orchestrator.core.events import Asked, CapChanged, JudgeDown, Looked, Reopened
from orchestrator.core.query import Judged, Missing
from orchestrator.core.records import records
from orchestrator.core.stopping import StopReason
from orchestrator.engine.fold import State
from orchestrator.engine.verify import verify
from orchestrator.report import batches, markdown
from orchestrator.report.summary import summarise
from orchestrator.store.memory import MemoryStore
from orchestrator.testing.virtual import run_virtually
from policies.layouts.balance import verify as balance

WIDE, NARROW = (4.6, 4.2, -1.2, -1.4), (1.0, 1.1, 0.9, 1.0)
"""Log-odds of yes: the first group is better by 0.55 on average, and far wider."""

JUDGE = {
    "truth": "q",
    "log_odds": True,
    "carry_over": -1.0,
    "batch_sd": 0.5,
    "latency": {"constant": 1.0},
    "tokens": {"in": 1500, "out": 250},
}
PRICE = 2_500_000
"""Of a batch, nano-USD; the worst case is more."""


@pytest.fixture
def campaign(tmp_path):
    """Write a campaign of eight items in two groups; sections can be replaced."""

    def campaign(
        *, judges=("a",), attempts=1, mock=None, assume=None, a=WIDE, b=NARROW, **sections
    ):
        rows = [
            {"id": f"{group}{i}", "method": group, "text": f"item {group}{i}", "q": q}
            for group, qualities in (("A", a), ("B", b))
            for i, q in enumerate(qualities)
        ]
        items = tmp_path / "items.jsonl"
        items.write_text("".join(json.dumps(row) + "\n" for row in rows), "utf-8")
        document = {
            "version": 1,
            "name": "batches",
            "seed": 5,
            "data": {
                "path": "items.jsonl",
                "id": "id",
                "group": "method",
                "fields": {"candidate": "text"},
            },
            "judges": [
                {
                    "name": name,
                    "adapter": "mock",
                    "price_usd_per_1m": {"input": 1, "output": 4},
                    "max_attempts": attempts,
                    "mock": JUDGE | ((mock or {}).get(name) or {}),
                    "assume": assume or {},
                }
                for name in judges
            ],
            "task": {"kind": "rate_batch", "scale": {"type": "boolean"}},
            "policy": {"kind": "batch_design", "design": "williams", "balance": "group"},
            "budget": {"usd": 0.25},
            "stop": {"when": "gate_decided", "rule": "obrien_fleming", "min_items": 1},
            "estimate": [
                {
                    "name": "groups",
                    "kind": "markov_glmm",
                    "quadrature": 7,
                    "contrast": {"group": "A", "baseline": "B"},
                }
            ],
            "gate": [{"estimate": "groups", "rule": "superior"}],
        }
        path = tmp_path / "campaign.yaml"
        path.write_text(json.dumps(document | sections), "utf-8")
        return Campaign.from_yaml(path).build().crew

    return campaign


def summary(run):
    return summarise(run.store.read())


def groups(run):
    """The comparison at the stop, as the log holds it."""
    return run.state.last_look.estimates[0]


def asked(run, judge=0):
    return [e.query for e in run.events if isinstance(e, Asked) and e.query.judge == judge]


# --- what is answered ------------------------------------------------------------------------------


def test_raw_verdicts_are_wrong_the_model_is_right_and_the_report_says_why(campaign):
    """With carry-over -1 a better but wider group has fewer raw yeses, significantly; the model says
    that it is better; and the report names the spread as the reason."""
    crew = campaign(budget={"usd": 0.9})
    run = run_virtually(crew)
    assert run.state.stopped is StopReason.GATE_DECIDED
    assert not list(verify(State(crew), run.store.read(), run.archive.recall))
    data = summary(run)
    (row,) = data.answer.diagnostics["judges"]
    assert row["naive"]["est"] < 0
    assert row["naive"]["p"] < 0.01
    assert data.answer.lower[0] > 0
    assert data.gate == "passed"
    truth = np.mean(WIDE) - np.mean(NARROW)
    assert data.answer.lower[0] < truth < data.answer.upper[0]
    first, second = batches.why_naive(data.estimates)
    assert first.startswith("a: by raw verdicts A - B is below 0, by the model it is above 0.")
    assert "from unequal spread" in first
    assert "more of the groups' spread than of their quality" in second
    lag = row["carry_over"]["lag1"]
    assert abs(lag["est"] + 1) < 3 * lag["se"]
    assert "naive_biased" in data.answer.flags
    text = markdown.render(data)
    assert "**A is better than B by" in text
    assert "after a yes the odds of a yes are \N{MULTIPLICATION SIGN}" in text


def test_williams_blocks_are_whole_and_each_judge_has_its_own(campaign):
    """C36: each unit stands in every slot, and behind every other unit, equally often; judges get
    other orders; the slot is logged."""
    design = {"kind": "batch_design", "design": "williams", "balance": "group", "blocks": 4}
    run = run_virtually(campaign(judges=("a", "b"), policy=design, budget={"usd": 1}))
    data = summary(run)
    assert [(t.n_batches, t.asked, t.kept) for t in data.slots] == [
        (32, ((4, 4), (4, 4)), ((4, 4), (4, 4)))
    ] * 2
    assert (
        "Each unit stood 4 times in each slot, and 4 times right behind" in batches.design(data)[0]
    )
    a, b = ([query.units for query in asked(run, j)] for j in range(2))
    assert sorted(map(sorted, a)) == sorted(map(sorted, b))
    assert a != b
    for record in records(run.events):
        assert [o.slot for o in record.outcome.observations] == list(range(8))
        assert [o.unit for o in record.outcome.observations] == list(record.query.units)


# --- losses ------------------------------------------------------------------------------------------


def test_a_lost_batch_is_asked_again_in_its_order_as_a_new_one(campaign):
    """Its slots and neighbours belong to the design; a second loss is final."""
    faults = {"a": {"faults": {"empty": 0.2}}}
    design = {"kind": "batch_design", "design": "williams", "blocks": 8}
    run = run_virtually(campaign(mock=faults, policy=design, budget={"usd": 5}))
    told = list(records(run.events))
    lost = [r.query for r in told if isinstance(r.outcome, Missing)]
    n_planned = 64
    first = [q for q in lost if q.replicate < n_planned]
    again = [r.query for r in told if r.query.replicate >= n_planned]
    assert len(first) > 5
    assert [q.units for q in again] == [q.units for q in first]
    assert len({q.replicate for q in again}) == len(again)
    rated = Counter(r.query.units for r in told if isinstance(r.outcome, Judged))
    twice_lost = [q.units for q in lost if q.replicate >= n_planned]
    (tally,) = summary(run).slots
    assert (tally.n_batches, tally.n_missing) == (len(told), len(lost))
    assert sum(rated.values()) == n_planned - len(twice_lost)
    assert dict(tally.lost) == {"empty": 8 * len(lost)}


def test_units_lost_inside_answers_are_counted_and_unbalance_the_design(campaign):
    """C36: what a cut reply did not reach is lost in its slot, and the report holds it against what
    was asked."""
    faults = {"a": {"faults": {"truncated": 0.3}}}
    design = {"kind": "batch_design", "design": "williams", "blocks": 8}
    run = run_virtually(campaign(mock=faults, policy=design, budget={"usd": 5}))
    data = summary(run)
    (tally,) = data.slots
    n_rated = sum(len(r.outcome.observations) for r in records(run.events) if r.outcome is not None)
    assert set(tally.lost) == {"truncated"}
    assert tally.n_lost == 8 * tally.n_batches - n_rated > 0
    assert tally.asked.per_slot == (8, 8)
    assert tally.kept.per_slot[0] < 8
    assert tally.rated[0] > tally.rated[-1]
    (line,) = batches.design(data)
    assert (
        f"{tally.n_lost} units without a verdict where they stood: truncated {tally.n_lost}" in line
    )
    assert "Of what has a verdict: each unit stood" in line


def test_a_judge_that_goes_down_leaves_the_other_to_finish(campaign):
    """Both are read; the one that is gone has what it said until then, and what was under way."""
    mock = {"b": {"faults": {"401": {"after": 40}}}}
    run = run_virtually(campaign(judges=("a", "b"), mock=mock, budget={"usd": 0.6}))
    assert [e.judge for e in run.events if isinstance(e, JudgeDown)] == [1]
    data = summary(run)
    a, b = data.slots
    assert a.n_batches == 119
    assert 40 <= b.n_batches <= 39 + 16
    rows = {row["judge"]: row for row in data.answer.diagnostics["judges"]}
    assert rows.keys() == {"a", "b"}
    assert rows["b"]["n_batches"] < rows["a"]["n_batches"]
    assert data.answer.status == "ok"


def test_a_fixed_order_decides_no_gate(campaign):
    """Each unit always stands in one place: a difference may be the place's doing."""
    fixed = {"kind": "batch_design", "design": "fixed", "blocks": 40}
    run = run_virtually(campaign(policy=fixed, budget={"usd": 5}))
    data = summary(run)
    assert "fixed_order" in data.answer.flags
    assert data.gate == "undecided"
    assert run.state.stopped is StopReason.FINISHED


# --- looks and money -----------------------------------------------------------------------------------


def test_money_that_ends_first_leaves_the_verdict_of_the_last_planned_look(campaign):
    """What came after that look is shown beside it, and changes nothing.

    Batches cost more than was expected of them when their number was fixed.
    """
    run = run_virtually(campaign(a=(1.0, 1.2, 0.8, 1.0), assume={"output_tokens": 240}))
    assert run.state.stopped is StopReason.BUDGET
    data = summary(run)
    about = data.answer.diagnostics
    assert [look["batches"] for look in about["looks"]] == [16, 32, 48, 64, 80, 96]
    assert {look["of"] for look in about["looks"]} == {101}
    assert about["after_last_look"]["n_batches"] == run.state.n_told > 96
    looked = [e for e in run.events if isinstance(e, Looked) and e.n_told == 96]
    at_look = next(e for e in looked[0].estimates if e["target"] == "groups")
    assert data.answer.value[0] == at_look["value"][0]
    assert data.answer.lower[0] == at_look["lower"][0]
    assert data.answer.n_answers == 96 * 8
    (line,) = batches.after_looks(data.estimates)
    assert "the verdict stays that of the look" in line


def test_a_raised_cap_goes_on_to_the_planned_number_and_no_further(campaign):
    """The plan of looks is that of the cap with which the run was opened."""
    crew = campaign(a=(1.0, 1.2, 0.8, 1.0), assume={"output_tokens": 240})
    first = run_virtually(crew)
    spent = first.state.ledger.campaign
    again = run_virtually(
        crew,
        MemoryStore(first.store.lines, first.store.blobs),
        first=[
            Reopened(settled=spent.settled, uncertain=spent.uncertain),
            CapChanged(cap=10 * PRICE * 100),
        ],
    )
    assert again.state.stopped is StopReason.FINISHED
    assert again.state.n_told == 101
    looks = summary(again).answer.diagnostics["looks"]
    assert [(look["batches"], look["of"]) for look in looks][-2:] == [(96, 101), (101, 101)]
    seen = summary(first).answer.diagnostics["looks"]
    assert [look["bound"] for look in looks[: len(seen)]] == [look["bound"] for look in seen]


def test_a_raised_cap_goes_on_where_intervals_hold_anytime(campaign):
    """Such a run has no planned number: it asks whole blocks until the money ends, also money that
    came later, and the log says why each batch was asked."""
    anytime = {"when": "gate_decided", "check": "anytime", "min_items": 1}
    same = (1.0, 1.1, 0.9, 1.0)
    crew = campaign(a=same, stop=anytime, judges=("a", "b"))
    first = run_virtually(crew)
    assert first.state.stopped is StopReason.BUDGET
    spent = first.state.ledger.campaign
    again = run_virtually(
        crew,
        MemoryStore(first.store.lines, first.store.blobs),
        first.archive,
        first=[
            Reopened(settled=spent.settled, uncertain=spent.uncertain),
            CapChanged(cap=3 * crew.opened.cap),
        ],
    )
    assert again.state.stopped is StopReason.BUDGET
    assert again.state.n_told > 2.5 * first.state.n_told
    assert asked(again)[: len(asked(first))] == asked(first)
    whole = np.array([query.units for query in asked(again)])
    assert balance(whole[: len(whole) // 8 * 8]).is_even
    assert not list(verify(State(crew), again.store.read(), again.archive.recall))
    assert groups(again)["watching_covered"]


# --- crashes ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("how", [{"rule": "obrien_fleming"}, {"check": "anytime", "every": 16}])
def test_a_leader_that_is_proved_ends_the_run(campaign, how):
    """Two judges, one unit well ahead: the run ends at a look, says why, and can be verified."""
    sections = {
        "a": (2.0, 0.0, -0.5, -0.4),
        "b": (0.2, 0.1, -0.3, -0.8),
        "judges": ("a", "b"),
        "budget": {"usd": 2},
        "stop": {"when": "ranking_separated", **how},
        "estimate": [{"name": "best", "kind": "markov_glmm", "quadrature": 7}],
        "gate": [],
    }
    crew = campaign(**sections)
    run = run_virtually(crew)
    assert run.state.stopped is StopReason.SEPARATED
    assert not list(verify(State(crew), run.store.read(), run.archive.recall))
    found = run.state.last_look.estimates[0]["diagnostics"]
    assert (found["leader"], found["rivals"]) == ("A0", [])
    assert sum(found["first"].values()) == pytest.approx(1)
    data = summary(run)
    assert "The ranking is separated." in markdown.render(data)
    assert any(
        line.startswith("A0 is proved to be first") for line in batches.adequacy(data.estimates)
    )
    looks = [e for e in run.events if isinstance(e, Looked)]
    assert [look.is_decided for look in looks[-2:]] == [True, True]
    assert not any(look.is_decided for look in looks[:-2])


def test_units_that_are_alike_are_asked_about_to_the_end(campaign):
    sections = {"a": (0.5,) * 4, "b": (0.5,) * 4, "budget": {"usd": 0.1}, "gate": []}
    stop = {"when": "ranking_separated", "rule": "obrien_fleming"}
    estimate = [{"name": "best", "kind": "markov_glmm", "quadrature": 7}]
    run = run_virtually(campaign(stop=stop, estimate=estimate, **sections))
    assert run.state.stopped is not StopReason.SEPARATED
    data = summary(run)
    assert any("leads and is not proved" in line for line in batches.adequacy(data.estimates))


def test_a_crash_anywhere_resumes_to_the_same_batches_and_numbers(campaign):
    """Orders, looks, estimates and the chain of decisions are those of the unbroken run."""
    design = {"kind": "batch_design", "design": "williams", "blocks": 6}
    crew = campaign(judges=("a", "b"), attempts=3, policy=design, budget={"usd": 5})
    whole = run_virtually(crew)
    assert whole.state.stopped is StopReason.FINISHED
    for cut in range(1, len(whole.store.lines), 37):
        again = run_virtually(crew, MemoryStore(whole.store.lines[:cut], whole.store.blobs))
        assert [asked(again, j) for j in range(2)] == [asked(whole, j) for j in range(2)], cut
        assert groups(again) == groups(whole)
        assert summary(again).slots == summary(whole).slots
    assert not list(verify(State(crew), whole.store.read(), whole.archive.recall))


# --- error -------------------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("inference", ["panel", "items"])
def test_equal_groups_are_told_apart_no_more_often_than_claimed(campaign, inference, measured):
    """C39: equal panel means of unequal spread, ratings redrawn; a run ends at the first look that
    excludes 0, or where money of a random amount ends. Over 400 campaigns at 95 %."""
    n_runs, n_wrong = 400, 0
    wide = np.array([1.4, 0.5, -0.5, -1.4])
    rng = np.random.default_rng(39)
    for seed in range(n_runs):
        equal = {"a": tuple(0.3 + wide), "b": tuple(0.3 + wide / 3)}
        if inference == "items":  # the items are drawn too
            equal = {side: tuple(rng.normal(0.3, sd, 4)) for side, sd in (("a", 1.2), ("b", 0.4))}
        crew = campaign(
            **equal,
            seed=seed,
            assume={"output_tokens": 240},
            budget={"usd": float(np.round(rng.uniform(0.1, 0.25), 3))},
            estimate=[
                {
                    "name": "groups",
                    "kind": "markov_glmm",
                    "quadrature": 7,
                    "contrast": {"group": "A", "baseline": "B"},
                    "inference": inference,
                }
            ],
        )
        last = groups(run_virtually(crew))
        lower, upper = last["lower"][0], last["upper"][0]
        n_wrong += lower is not None and upper is not None and (lower > 0 or upper < 0)
    share = n_wrong / n_runs
    measured(f"A/A batches, {inference} inference, any look: <= 5 % + 3 SE", f"{share:.1%}")
    assert share <= 0.05 + 3 * (0.05 * 0.95 / n_runs) ** 0.5
