"""Whole campaigns that choose their pairs: crash and resume, recorded verdicts, newcomers, stops."""

from __future__ import annotations

import json

import numpy as np
import pytest

from orchestrator import Campaign
from orchestrator.core.events import Asked, Looked
from orchestrator.core.records import records
from orchestrator.core.stopping import StopReason
from orchestrator.engine.fold import State
from orchestrator.engine.verify import verify
from orchestrator.rundir import reading
from orchestrator.store.memory import MemoryStore
from orchestrator.testing.virtual import run_virtually
from orchestrator.verification import check

TRUTH = {"alpha": 1.0, "beta": 0.4, "gamma": 0.0, "delta": -0.5}
PRICE = {"input": 1, "output": 4}


@pytest.fixture
def campaign(tmp_path):
    """Write a campaign of four arms of known strengths; sections can be replaced."""

    def campaign(*, base="campaign", truth=TRUTH, n_items=60, **sections):
        rows = [
            {"id": f"i{n}", "arm": arm, "kind": "xyz"[n % 3], "q": f"q{n}", "a": f"a{n}", "t": t}
            for n in range(n_items)
            for arm, t in truth.items()
        ]
        text = "".join(json.dumps(row) + "\n" for row in rows)
        (tmp_path / f"{base}.jsonl").write_text(text, encoding="utf-8")
        mock = {"truth": "t", "order_effect": 0.4, "latency": {"lognormal": [0.0, 0.7]}}
        document = {
            "version": 1,
            "name": "active",
            "seed": 11,
            "data": {
                "path": f"{base}.jsonl",
                "arm": "arm",
                "strata": "kind",
                "fields": {"question": "q", "candidate": "a"},
            },
            "judges": [
                {"name": "near", "adapter": "mock", "price_usd_per_1m": PRICE, "mock": mock},
                {
                    "name": "far",
                    "adapter": "mock",
                    "price_usd_per_1m": {"input": 2, "output": 6},
                    "mock": {"truth": "t", "nu": 0.5},
                },
            ],
            "task": {
                "kind": "compare",
                "criteria": [{"name": "overall", "scale": {"type": "preference", "ties": True}}],
            },
            "policy": {"kind": "active_pairwise"},
            "budget": {"usd": 0.2},
            "estimate": [
                {"name": "ranking", "kind": "bradley_terry", "judge_effects": "bias"},
                {"name": "by-kind", "kind": "bt_tensor", "context": "kind", "rank": 1},
            ],
            "output": {"dir": "runs", "formats": []},
        }
        path = tmp_path / f"{base}.yaml"
        path.write_text(json.dumps(document | sections), encoding="utf-8")
        return Campaign.from_yaml(path)

    return campaign


def asked(run):
    return [event.query for event in run.events if isinstance(event, Asked)]


def estimates(run):
    return [event.estimates for event in run.events if isinstance(event, Looked)]


@pytest.mark.parametrize("rule", ["aopt", "copt"])
def test_a_crash_anywhere_resumes_to_the_same_questions_and_propensities(campaign, rule):
    """Propensities are equal to the bit, and so are all estimates; the log checks."""
    policy = {"kind": "active_pairwise", "rule": rule, "rank": 1, "max_repeats": 1}
    # Money enough for what a crash charges in vain: what is in flight is then the window's business.
    crew = campaign(policy=policy, n_items=12, budget={"usd": 5}).build().crew
    whole = run_virtually(crew)
    assert whole.state.stopped is StopReason.FINISHED
    assert len(asked(whole)) == 2 * 6 * 12 * 2
    for cut in range(40, len(whole.store.lines), 173):
        again = run_virtually(crew, MemoryStore(whole.store.lines[:cut], whole.store.blobs))
        assert asked(again) == asked(whole), cut
        assert estimates(again)[-1] == estimates(whole)[-1]
    assert not list(verify(State(crew), whole.store.read(), whole.archive.recall))


def test_recorded_verdicts_are_replayed_through_a_whole_campaign(campaign, tmp_path):
    """All that the judges could say is recorded; a run on the recording asks the same questions with
    the same propensities and comes to the same numbers."""
    every = campaign(base="every", policy={"kind": "uniform", "max_repeats": 1}, budget={"usd": 9})
    every.run(tmp_path / "every")
    live = campaign().run(tmp_path / "live")
    recorded = [
        {
            "name": name,
            "adapter": "recorded",
            "planning_usd_per_call": usd,
            "recorded": {"path": "every", "judge": name, "usd_per_call": usd},
        }
        for name, usd in (("near", 0.0005), ("far", 0.001))
    ]
    sections = {"judges": recorded, "budget": {"usd": 0.15}}
    one, other = (
        campaign(base=base, **sections).run(tmp_path / base, max_in_flight=jobs)
        for base, jobs in (("one", 1), ("other", 7))
    )
    del live
    found = []
    for result in (one, other):
        with reading(result.directory) as reader:
            told = [*records(row.event for row in reader.read())]
        found.append([(r.query, r.outcome.observations[0].preference) for r in told])
        assert not [*check(result.directory)]
    assert len(found[0]) > 150
    assert found[0] == found[1]
    assert one.estimates == other.estimates


def test_strengths_are_found_with_the_orders_part_and_the_judges(campaign, tmp_path):
    """Each true strength lies in its interval, and near's advantage of the first place is seen."""
    result = campaign(budget={"usd": 1.0}).run(tmp_path / "run")
    ranking = next(e for e in result.estimates if e.name == "ranking")
    truth = np.array([*TRUTH.values()]) - np.mean([*TRUTH.values()])
    inside = (np.array(ranking.lower) <= truth) & (truth <= np.array(ranking.upper))
    assert inside.sum() >= 3
    judges = {row["judge"]: row for row in ranking.diagnostics["judges"]}
    assert judges["near"]["bias"] > judges["far"]["bias"]
    assert judges["near"]["turned"]["n"] > 50
    effect = ranking.diagnostics["order_effect"]
    assert effect["lower"] < 0.3
    by_kind = {e.target for e in result.estimates if e.name == "by-kind"}
    assert by_kind == {"strengths", "scores", "win probabilities"}


def test_earlier_judgments_come_in_at_no_cost(campaign, tmp_path):
    """A newcomer's campaign goes on from them: known arms are not asked about again and again."""
    old = {arm: t for arm, t in TRUTH.items() if arm != "delta"}
    campaign(base="old", truth=old, budget={"usd": 0.6}).run(tmp_path / "old")
    fields = {"question": "q", "candidate": "a"}
    data = {"path": "campaign.jsonl", "arm": "arm", "strata": "kind", "fields": fields}
    new = campaign(data=data | {"prior_judgments": ["old"]}, budget={"usd": 0.1})
    result = new.run(tmp_path / "new")
    ranking = next(e for e in result.estimates if e.name == "ranking")
    assert ranking.diagnostics["n_prior"] > 300
    with reading(result.directory) as reader:
        told = [*records(row.event for row in reader.read())]
    share = np.mean([3 in {unit % 4 for unit in r.query.units} for r in told])
    assert share > 0.7
    assert result.spend["settled_nano_usd"] < 10**8
    assert not [*check(tmp_path / "new")]


def test_earlier_judgments_of_another_kind_are_refused(campaign, tmp_path):
    from orchestrator.core.errors import InvalidCampaign  # noqa: PLC0415

    fields = {"question": "q", "candidate": "a"}
    data = {"path": "campaign.jsonl", "arm": "arm", "strata": "kind", "fields": fields}
    made = campaign(data=data | {"prior_judgments": ["campaign.jsonl"]})
    with pytest.raises(InvalidCampaign, match=r"prior_judgments\[0\].*no run"):
        made.build()
    del tmp_path


def test_length_is_controlled_for(campaign, tmp_path):
    """Raw strengths stand first; controlled ones beside them, with the slope."""
    estimate = [
        {
            "name": "ranking",
            "kind": "bradley_terry",
            "covariates": [
                {"name": "log_length", "from": "candidate"},
                {"name": "t2", "from": "t"},
            ],
            "report": ["raw", "controlled"],
        }
    ]
    result = campaign(estimate=estimate).run(tmp_path / "run")
    assert [e.target for e in result.estimates] == ["strengths", "controlled strengths"]
    raw, controlled = result.estimates
    assert raw.diagnostics["covariates"] == {"log_length": None, "t2": None}
    # Of each arm t2 is one number, and the answers are of one length: neither can be told apart.
    assert controlled.diagnostics["covariates"]["log_length"] is None
    assert "prior_holds" in controlled.flags


def test_a_run_ends_with_the_answers_that_were_asked_for(campaign):
    """Exactly so many, what is missing left out; and the log checks."""
    mock = {"truth": "t", "faults": {"refused": 0.2}}
    judges = [{"name": "near", "adapter": "mock", "price_usd_per_1m": PRICE, "mock": mock}]
    crew = campaign(judges=judges, stop={"max_answers": 77}, budget={"usd": 5}).build().crew
    run = run_virtually(crew)
    assert run.state.stopped is StopReason.LIMIT
    assert run.state.limit_reached == "max_answers"
    assert run.state.n_answered == 77
    assert run.state.n_told > 80
    assert not list(verify(State(crew), run.store.read(), run.archive.recall))


@pytest.mark.parametrize("separate", ["leader", "ranking"])
def test_a_run_ends_once_the_leader_or_all_are_proved(campaign, separate):
    """By sequences that hold watched; the leader alone takes fewer questions."""
    truth = {"a": 1.6, "b": 0.2, "c": -1.4}
    stop = {"when": "ranking_separated", "separate": separate, "check": "anytime"}
    estimate = [{"name": "ranking", "kind": "bradley_terry"}]
    policy = {"kind": "active_pairwise", "rule": "top1" if separate == "leader" else "aopt"}
    crew = (
        campaign(
            truth=truth, stop=stop, estimate=estimate, policy=policy, n_items=200, budget={"usd": 5}
        )
        .build()
        .crew
    )
    run = run_virtually(crew)
    assert run.state.stopped is StopReason.SEPARATED
    found = estimates(run)[-1][0]["diagnostics"]
    assert found["is_separated"][separate]
    assert found["leader"] == "a"
    assert 50 < run.state.n_told < 1500


# --- error -----------------------------------------------------------------------------------------


@pytest.mark.slow
def test_equal_arms_are_told_apart_no_more_often_than_claimed(campaign, measured):
    """C39: three equal arms; a run ends at the first look at which a leader is proved. 200 campaigns."""
    n_runs, n_wrong = 200, 0
    stop = {"when": "ranking_separated", "separate": "leader", "check": "anytime"}
    estimate = [{"name": "ranking", "kind": "bradley_terry"}]
    for seed in range(n_runs):
        crew = campaign(
            truth=dict.fromkeys("abc", 0.0),
            seed=seed,
            stop=stop,
            estimate=estimate,
            policy={"kind": "active_pairwise", "rule": "top1"},
            budget={"usd": 0.3},
        )
        run = run_virtually(crew.build().crew)
        n_wrong += run.state.stopped is StopReason.SEPARATED
    measured(
        "C39: equal arms, a leader declared, 200 campaigns <= 9.6 %", f"{n_wrong / n_runs:.1%}"
    )
    assert n_wrong / n_runs <= 0.05 + 3 * np.sqrt(0.05 * 0.95 / n_runs)
