"""Gates from the campaign file to the exit code."""

from __future__ import annotations

import json
import sqlite3
from dataclasses import replace

import anyio
import numpy as np
import pytest
from scipy.stats import fisher_exact

from estimators.bradley_terry import BradleyTerryConfig
from estimators.bt_tensor import BtTensorConfig
from estimators.score_means import ScoreMeans, ScoreMeansConfig
from orchestrator import Campaign, resume
from orchestrator.core.errors import InvalidCampaign
from orchestrator.core.events import Looked
from orchestrator.core.frame import Frame
from orchestrator.core.gate import Gate, GateOutcome, Rule, judge
from orchestrator.core.money import FREE
from orchestrator.core.query import Kind
from orchestrator.core.scale import Criterion, Scale, ScaleType
from orchestrator.core.seeds import Seeds
from orchestrator.core.stopping import StopReason, StopRule
from orchestrator.core.study import Panelist, Study
from orchestrator.engine.fold import State
from orchestrator.engine.verify import verify
from orchestrator.gates import AtLeastGate, NonInferiorGate, SuperiorGate, misfits
from orchestrator.store.sqlite import SqliteStore
from orchestrator.testing.estimators import missing, rating
from orchestrator.testing.fakes import FakeAdapter, MeanEstimator, Script, fake_crew
from orchestrator.testing.virtual import run_virtually
from orchestrator.verification import check

TEXT = """\
version: 1
name: release
seed: 5
data: {arms: {old: old.csv, new: new.csv, odd: odd.csv}, fields: {candidate: reply}}
judges:
  - name: acme
    adapter: mock
    price_usd_per_1m: {input: 1.0, output: 1.0}
    mock: {sd: 0.3, truth: truth, tokens: {in: 500, out: 100}}
task:
  kind: rate
  criteria:
    - {name: correct, scale: {type: boolean}, weight: 2}
    - {name: helpful, scale: {type: float, min: 0, max: 1}}
policy: {kind: uniform, max_repeats: 1}
budget: {usd: 5}
estimate:
  - {name: effect, kind: score_means, criterion: helpful, contrast: {arm: new, baseline: old}}
  - {name: scores, kind: score_means, criterion: helpful}
  - {name: judges, kind: score_means, criterion: helpful, per: judge}
output: {dir: runs, formats: []}
"""
TRUTH = {"old": 0.5, "new": 0.7, "odd": 0.2}


@pytest.fixture
def folder(tmp_path):
    """A folder with a campaign of three arms; the truth is 0.5, 0.7 and 0.2 in each item."""
    for arm, truth in TRUTH.items():
        rows = "".join(f"i{n},reply,{truth}\n" for n in range(60))
        (tmp_path / f"{arm}.csv").write_text(f"id,reply,truth\n{rows}", encoding="utf-8")
    (tmp_path / "campaign.yaml").write_text(TEXT, encoding="utf-8")
    return tmp_path


def campaign(folder, *gates, **overrides):
    settings = {key.replace("__", "."): value for key, value in overrides.items()}
    settings["gate"] = f"[{', '.join(gates)}]"
    return Campaign.from_yaml(folder / "campaign.yaml", settings, environ={})


def problems(folder, *gates, **overrides):
    with pytest.raises(InvalidCampaign) as caught:
        campaign(folder, *gates, **overrides).build()
    return {problem.path: problem.message for problem in caught.value.problems}


# --- what goes together ------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("gate", "key", "wants"),
    [
        ("{estimate: efect, rule: superior}", "estimate", 'did you mean "effect"?'),
        ("{estimate: scores, rule: superior}", "estimate", "wants a contrast"),
        ("{estimate: scores, rule: non_inferior, margin: 0.1}", "estimate", "wants a contrast"),
        ("{estimate: effect, rule: superior, arm: old}", "arm", 'is that of "new"'),
        ("{estimate: effect, rule: superior, criterion: corect}", "criterion", '"correct"?'),
        ("{estimate: effect, rule: superior, margin: 1}", "margin", "wants less than 1"),
        ("{estimate: effect, rule: non_inferior, margin: 5}", "margin", "the length of the scale"),
        ("{estimate: scores, rule: at_least, value: 0}", "value", "more than 0 and at most 1"),
        ("{estimate: scores, rule: at_least, value: 1.1}", "value", "more than 0 and at most 1"),
        ("{estimate: effect, rule: at_least, value: -1}", "value", "more than -1"),
        ("{estimate: scores, rule: at_least, value: 0.5, arm: nw}", "arm", '"new"?'),
        ("{estimate: judges, rule: at_least, value: 0.5, arm: new}", "arm", "no estimate per arm"),
        ("{estimate: scores, rule: rank_at_most, rank: 3, arm: new}", "rank", "can't be missed"),
    ],
)
def test_a_gate_that_its_estimate_can_not_serve_is_named_at_its_key(folder, gate, key, wants):
    assert wants in problems(folder, gate)[f"gate[0].{key}"]


@pytest.mark.parametrize(
    "gate",
    [
        "{estimate: effect, rule: superior, arm: new}",
        "{estimate: effect, rule: at_least, value: -0.5}",
        "{estimate: effect, rule: at_least, value: 0.5, arm: odd}",
        "{estimate: judges, rule: at_least, value: 0.5}",
        "{estimate: judges, rule: rank_at_most, rank: 2, arm: odd}",
        "{estimate: scores, rule: at_least, value: 1}",
    ],
)
def test_a_gate_that_its_estimate_serves_is_accepted(folder, gate):
    campaign(folder, gate).build()


@pytest.mark.parametrize(
    "gate",
    [
        SuperiorGate(estimate="r", rule="superior", margin=1.0),
        NonInferiorGate(estimate="r", rule="non_inferior", margin=1.2),
        AtLeastGate(estimate="r", rule="at_least", value=1.5),
        AtLeastGate(estimate="r", rule="at_least", value=-3.0, arm="a"),
    ],
)
@pytest.mark.parametrize(
    "settings",
    [
        BradleyTerryConfig(name="r", contrast={"arm": "a", "baseline": "b"}),
        BtTensorConfig(name="r", context="kind", contrast={"arm": "a", "baseline": "b"}),
    ],
)
def test_gaps_in_log_odds_have_no_scale_to_end_at(gate, settings):
    scale = Scale(type=ScaleType.PREFERENCE, ties=True)
    criteria = (Criterion(name="overall", scale=scale),)
    assert not [*misfits(gate, settings, criteria, ("a", "b"))]


@pytest.mark.parametrize(
    "settings", [BradleyTerryConfig(name="r"), BtTensorConfig(name="r", context="kind")]
)
@pytest.mark.parametrize("value", [-3.0, 0.0, 1.5])
def test_a_strength_is_that_of_an_arm(settings, value):
    """All of them sum to zero, so that none of a bar above it could ever pass."""
    criteria = (Criterion(name="overall", scale=Scale(type=ScaleType.PREFERENCE)),)
    gate = AtLeastGate(estimate="r", rule="at_least", value=value)
    ((key, message),) = misfits(gate, settings, criteria, ("a", "b"))
    assert key == "arm"
    assert message.startswith("missing; strengths sum to 0")
    named = gate.model_copy(update={"arm": "a"})
    assert not [*misfits(named, settings, criteria, ("a", "b"))]


def test_arms_that_a_column_names_are_checked_with_the_data(folder):
    rows = "".join(f"i{n},{arm},r,{t}\n" for n in range(5) for arm, t in TRUTH.items())
    (folder / "all.csv").write_text(f"id,arm,reply,truth\n{rows}", encoding="utf-8")
    data = "{path: all.csv, arm: arm, fields: {candidate: reply}}"
    known = "{estimate: scores, rule: at_least, value: 0.5, arm: old}"
    campaign(folder, known, data=data).build()
    found = problems(folder, known.replace("old", "odl"), data=data)
    assert found == {"gate[0].arm": 'no arm is named "odl"'}


def test_a_name_that_a_gate_needs_for_itself_is_refused(folder):
    taken = "[{name: a, kind: score_means}, {name: a (correct), kind: score_means}]"
    found = problems(
        folder,
        "{estimate: a, criterion: correct, rule: at_least, value: 0.5}",
        estimate=taken,
    )
    assert found == {"gate[0].estimate": '"a (correct)" is its own name'}


SUPERIOR = "{estimate: effect, rule: superior}"


def test_an_estimate_for_the_end_alone_can_not_end_a_run(folder):
    found = problems(
        folder,
        SUPERIOR,
        stop="{when: gate_decided, check: anytime}",
        estimate__effect__check="end",
        estimate__scores__check="end",
    )
    assert list(found) == ["estimate[0].check"]


def test_more_items_than_there_are_is_a_warning(folder):
    blueprint = campaign(
        folder, SUPERIOR, stop="{when: gate_decided, check: anytime, min_items: 61}"
    ).build()
    assert [w.path for w in blueprint.warnings] == ["stop.min_items"]


@pytest.mark.parametrize(
    ("stop", "path", "wants"),
    [
        ("{when: gate_decided}", "stop.check", "wants anytime, not end"),
        (
            "{when: gate_decided, check: anytime, target_half_width: 1}",
            "stop.target_half_width",
            "never reads it",
        ),
        (
            "{when: gate_decided, check: anytime, confidence: 0.9}",
            "stop.confidence",
            "the primary estimate has 0.95",
        ),
    ],
)
def test_stopping_at_a_decided_gate_wants_intervals_that_hold_meanwhile(folder, stop, path, wants):
    assert wants in problems(folder, SUPERIOR, stop=stop)[path]


# --- what it is judged by ----------------------------------------------------------------------


def judged(folder, *gates, **overrides):
    return campaign(folder, *gates, **overrides).run(folder / "run")


def test_a_gate_on_the_estimates_own_criterion_reads_it_as_it_is(folder):
    result = judged(folder, SUPERIOR, "{estimate: effect, criterion: helpful, rule: superior}")
    names = dict.fromkeys(estimate.name for estimate in result.estimates)
    assert list(names) == ["effect", "scores", "judges"]
    assert result.document["gate"][0] == result.document["gate"][1]
    effect = result.estimates[0]
    assert result.document["gate"][0]["lower"] == effect.lower[0]


def test_another_criterion_is_estimated_alike(folder):
    """The estimate of a gate is the one that the file could have asked for itself."""
    gate = "{estimate: effect, criterion: correct, rule: superior}"
    result = judged(folder, gate)
    own = "{name: own, kind: score_means, criterion: correct, contrast: {arm: new, baseline: old}}"
    asked = campaign(folder, estimate=f"[{own}]").run(folder / "own")
    derived = next(e for e in result.estimates if e.name == "effect (correct)")
    assert replace(derived, name="own") == asked.estimates[0]
    (verdict,) = result.document["gate"]
    assert (verdict["criterion"], verdict["value"]) == ("correct", derived.value[0])
    assert result.document["estimates"][0]["primary"]
    assert result.document["estimates"][0]["name"] == "effect"


@pytest.mark.parametrize(
    ("arm", "rank", "outcome", "standing"),
    [
        ("new", 1, "passed", [1, 1, 1]),
        ("old", 1, "failed", [2, 2, 2]),
        ("old", 2, "passed", [2, 2, 2]),
        ("odd", 2, "failed", [3, 3, 3]),
    ],
)
def test_a_rank_is_judged_by_differences_that_share_the_error(folder, arm, rank, outcome, standing):
    """Three arms: each of the two differences has error 0.05/2."""
    gate = f"{{estimate: scores, rule: rank_at_most, arm: {arm}, rank: {rank}}}"
    result = judged(folder, gate)
    (verdict,) = result.document["gate"]
    assert verdict["outcome"] == outcome
    assert [verdict[key] for key in ("value", "lower", "upper")] == standing
    others = [name for name in TRUTH if name != arm]
    read = [e for e in result.estimates if e.name.startswith("scores (")]
    assert [e.names for e in read] == [(f"{arm} - {other}",) for other in others]
    assert {e.level for e in read} == {0.975}
    assert {(e.alpha_split, e.family) for e in read} == {
        ("Bonferroni", f"differences of {arm} to the 2 other arms")
    }


def test_gates_are_part_of_what_a_run_is(folder):
    one = campaign(folder, SUPERIOR).build().crew.opened
    other = campaign(folder, SUPERIOR.replace("}", ", margin: 0.1}")).build().crew.opened
    assert one.digest != other.digest
    (gate,) = other.identity["gate"]
    assert Gate.from_json(gate) == Gate(
        estimate="effect",
        rule=Rule.SUPERIOR,
        bar=0.1,
        sources=("effect",),
        arms=("new", "old"),
        criterion="helpful",
    )


# --- what is missing ---------------------------------------------------------------------------


def scored(n_items, arms):
    scale = Scale(type=ScaleType.INTEGER, low=1, high=5)
    study = Study(
        kind=Kind.RATE,
        frame=Frame.of([f"i{n}" for n in range(n_items)], arms),
        panel=(Panelist(name="acme", card=FREE),),
        criteria=(Criterion(name="score", scale=scale),),
        seeds=Seeds(1),
    )
    return ScoreMeans(ScoreMeansConfig(name="scores", kind="score_means"), study)


def the_gate(arms, max_missing=None):
    return Gate(
        estimate="scores",
        rule=Rule.AT_LEAST,
        bar=2.0,
        sources=("scores",),
        arms=arms,
        max_missing=max_missing,
    )


def test_a_refusal_is_missing_and_counts_against_the_share_that_may_be():
    """C28: scores 4, refusal, 4: mean 4.0 of n = 2, one of three missing."""
    means = scored(3, ("",))
    for record in (rating(0, 0, 4.0), missing(1, 1), rating(2, 2, 4.0)):
        means.update(record)
    (estimate,) = means.estimate()
    assert (estimate.value, estimate.n_answers) == ((4.0,), 2)
    assert estimate.diagnostics["by_name"]["missing"] == [1]
    verdict = judge(the_gate(("",), max_missing=0.3), [estimate])
    assert verdict.missing == 1 / 3
    assert verdict.outcome is GateOutcome.UNDECIDED
    assert "33.3%" in verdict.why


def test_a_gate_can_not_pass_while_missing_differs_by_arm():
    """C28: A 0/50 and B 20/50 missing: a warning, bounds, and the gate is undecided."""
    means = scored(50, ("A", "B"))
    for item in range(50):
        means.update(rating(2 * item, 2 * item, 4.0))
        unit = 2 * item + 1
        means.update(missing(unit, unit) if item < 20 else rating(unit, unit, 4.0))
    (estimate,) = means.estimate()
    assert fisher_exact([[50, 30], [0, 20]]).pvalue < 1e-5
    assert estimate.diagnostics["missing_test"]["p"] < 1e-5
    bounds = estimate.diagnostics["by_name"]
    assert bounds["worst_lower"] == pytest.approx([4.0, (30 * 4 + 20) / 50])
    assert bounds["worst_upper"] == pytest.approx([4.0, (30 * 4 + 100) / 50])
    assert min(estimate.lower) > 2.0
    verdict = judge(the_gate(("A", "B")), [estimate])
    assert (verdict.outcome, verdict.why) == (GateOutcome.UNDECIDED, "missing differs by arm")
    assert verdict.missing == 0.4


# --- a gate ends a run -------------------------------------------------------------------------


class WatchedMean(MeanEstimator):
    """The plain mean, whose interval is said to hold under watching."""

    def estimate(self):
        (found,) = super().estimate()
        return (replace(found, watching_covered=True),)


MEAN_GATE = Gate(estimate="mean", rule=Rule.AT_LEAST, bar=2.0, sources=("mean",), arms=())


def gated(estimator, **rule):
    crew = fake_crew([FakeAdapter(lambda _: Script(latency_s=1))], n_units=400, cap=10**12)
    stop = StopRule(every=5, gates=(MEAN_GATE,), **rule)
    opened = replace(crew.opened, looks=stop.every)
    return replace(crew, opened=opened, stop=stop, new_estimators=lambda _: (estimator(),))


def test_a_run_ends_at_the_first_look_that_decides_its_gates():
    """The mean of 0..6 is 3 and its half-width 3/√n: at least 2 is sure from n = 9 on."""
    run = run_virtually(gated(WatchedMean, min_items=1))
    looks = [event for event in run.events if isinstance(event, Looked)]
    assert run.state.stopped is StopReason.GATE_DECIDED
    assert [look.is_decided for look in looks] == [False] * (len(looks) - 2) + [True, True]
    assert looks[-1].is_final
    assert looks[-1].estimates == looks[-2].estimates
    lower = [look.estimates[0]["lower"][0] for look in looks]
    assert lower[-1] >= 2.0 > max(lower[:-2])
    again = verify(State(run.state.crew), run.store.read(), run.archive.recall)
    assert list(again) == []


def test_no_gate_ends_a_run_before_its_items_or_by_an_interval_for_the_end():
    assert run_virtually(gated(WatchedMean, min_items=100)).state.n_told == 100
    assert run_virtually(gated(MeanEstimator, min_items=1)).state.stopped is StopReason.FINISHED


def test_a_forged_decision_of_a_gate_is_found():
    run = run_virtually(gated(WatchedMean, min_items=1))
    crew = replace(run.state.crew, stop=StopRule(every=5))
    assert any(verify(State(crew), run.store.read(), run.archive.recall))


# --- whole campaigns ---------------------------------------------------------------------------

PASSES = "{estimate: effect, rule: non_inferior, margin: 0.05}"
FAILS = "{estimate: scores, arm: odd, rule: at_least, value: 0.5}"
STRADDLES = "{estimate: scores, arm: old, rule: at_least, value: 0.5}"


@pytest.fixture
def with_gates(sortition, folder, monkeypatch):
    """Run the command with gates; gives exit code, output and the result that stands in the run."""
    monkeypatch.chdir(folder)

    def run(*words, gates=()):
        given = ["--set", f"gate=[{', '.join(gates)}]"] if gates else []
        code, out, _ = sortition(*words, *given)
        path = folder / "r" / "result.json"
        return code, out, json.loads(path.read_text("utf-8")) if path.exists() else None

    return run


def with_undecided(gate, word):
    return gate.replace("}", f", on_undecided: {word}}}")


@pytest.mark.parametrize(
    ("gates", "code", "outcomes"),
    [
        ((PASSES,), 0, ["passed"]),
        ((FAILS,), 1, ["failed"]),
        ((STRADDLES,), 6, ["undecided"]),
        ((with_undecided(STRADDLES, "fail"),), 1, ["undecided"]),
        ((with_undecided(STRADDLES, "pass"),), 0, ["undecided"]),
        ((PASSES, STRADDLES), 6, ["passed", "undecided"]),
        ((STRADDLES, FAILS, PASSES), 1, ["undecided", "failed", "passed"]),
        ((with_undecided(FAILS, "pass"),), 1, ["failed"]),
    ],
)
def test_the_gate_decides_the_exit_code(with_gates, gates, code, outcomes):
    """C41: gate passed 0, failed 1, undecided 6; the same code stands in result.json."""
    got, _, found = with_gates("run", "--run-dir", "r", gates=gates)
    assert (got, found["exit_code"]) == (code, code)
    assert [verdict["outcome"] for verdict in found["gate"]] == outcomes
    assert with_gates("verify", "r")[0] == 0


def test_too_much_missing_is_undecided(with_gates):
    """C41, C28: an estimate that passes is undecided where too much is missing."""
    faults = "judges.acme.mock.faults={refused: 0.2}"
    lenient, strict = (PASSES.replace("}", f", max_missing: {m}}}") for m in (0.5, 0.05))
    code, _, found = with_gates("run", "--run-dir", "r", "--set", faults, gates=(lenient, strict))
    assert code == found["exit_code"] == 6
    assert [verdict["outcome"] for verdict in found["gate"]] == ["passed", "undecided"]
    assert found["gate"][1]["why"].endswith("are missing, at most 5.0% may be")
    assert 0.05 < found["gate"][1]["missing_share"] < 0.5


@pytest.mark.parametrize(("gates", "code"), [((PASSES,), 0), ((FAILS,), 1), ((), 3)])
def test_a_target_that_is_not_met_is_a_warning_beside_a_gate(with_gates, gates, code):
    """C03, C41: budget gone with the target unmet is 3, unless a gate decides."""
    words = ("--budget-usd", "0.10", "--set", "stop.target_half_width=0.0001")
    got, out, found = with_gates("run", "--run-dir", "r", *words, gates=gates)
    assert (got, found["exit_code"], found["stop_reason"]) == (code, code, "budget")
    assert found["state"] == "stopped"
    assert "not met" in out
    assert ("; the gate decides all the same" in out) == bool(gates)


def test_a_failed_gate_can_have_a_code_of_its_own(with_gates):
    """What is not a failed gate keeps its code, and so does result.json."""
    code, _, found = with_gates("run", "--run-dir", "r", "--exit-code-on-fail", 100, gates=(FAILS,))
    assert (code, found["exit_code"]) == (100, 1)
    assert with_gates("resume", "r", "--exit-code-on-fail", 7)[0] == 7
    assert with_gates("resume", "r")[0] == 1
    code, *_ = with_gates("run", "--run-dir", "s", "--exit-code-on-fail", 100, gates=(STRADDLES,))
    assert code == 6


def test_without_a_judge_there_is_no_verdict_and_the_code_is_4(with_gates):
    """C41: no judge left comes before the gate."""
    faults = "judges.acme.mock.faults={'401': 1.0}"
    code, _, found = with_gates("run", "--run-dir", "r", "--set", faults, gates=(FAILS,))
    assert code == found["exit_code"] == 4
    assert found["stop_reason"] == "judges_down"
    assert found["gate"][0]["outcome"] == "undecided"


@pytest.mark.parametrize(("gate", "code", "outcome"), [(PASSES, 0, "passed"), (FAILS, 1, "failed")])
def test_a_decided_gate_ends_the_run_and_leaves_the_money(folder, gate, code, outcome):
    """The verdict at the stop is the one of the look that ended the run; it replays."""
    stop = "{when: gate_decided, check: anytime, every: 9}"
    result = judged(folder, gate, stop=stop)
    assert (result.state, result.stop_reason, result.exit_code) == (
        "finished",
        "gate_decided",
        code,
    )
    assert result.document["counts"]["answered"] < 180
    assert [verdict["outcome"] for verdict in result.document["gate"]] == [outcome]
    assert all(e.watching_covered for e in result.estimates if e.name in {"effect", "scores"})
    assert resume(folder / "run").exit_code == code
    assert list(check(folder / "run")) == []


def test_a_gate_that_names_nothing_is_2_and_nothing_runs(with_gates):
    """C41: config error."""
    code, _, found = with_gates("run", "--run-dir", "r", gates=(PASSES.replace("effect", "x"),))
    assert (code, found) == (2, None)


def test_a_full_disk_is_5_whatever_the_gate(with_gates, monkeypatch):
    """C41: storage failure; nothing was judged."""
    real, n = SqliteStore._commit, 0

    def fail(self, batch):
        nonlocal n
        n += 1
        if n >= 5:
            raise sqlite3.OperationalError("database or disk is full")
        real(self, batch)

    monkeypatch.setattr(SqliteStore, "_commit", fail)
    code, _, found = with_gates("run", "--run-dir", "r", gates=(FAILS,))
    assert code == found["exit_code"] == 5
    assert found["gate"][0]["outcome"] == "undecided"


def test_an_interrupted_run_has_no_verdict_until_it_is_resumed(folder):
    """C41: interrupted is 130; the resumed run is judged."""

    async def main():
        async with campaign(folder, FAILS).open(folder / "r") as run:
            run.interrupt()
            async for _ in run:
                pass
        return run.result

    result = anyio.run(main)
    assert (result.exit_code, result.document["gate"][0]["outcome"]) == (130, "undecided")
    again = resume(folder / "r")
    assert (again.exit_code, again.document["gate"][0]["outcome"]) == (1, "failed")


def test_the_verdict_is_the_one_of_the_same_interval_computed_by_hand(folder):
    """The second witness: a t interval of the paired differences that were recorded."""
    result = judged(folder, SUPERIOR, output__formats="[jsonl]")
    lines = (folder / "run/answers.jsonl").read_text(encoding="utf-8").splitlines()
    answers = [json.loads(line) for line in lines]
    by_arm = {
        arm: {
            a["item"]: a["value"] for a in answers if (a["arm"], a["criterion"]) == (arm, "helpful")
        }
        for arm in ("new", "old")
    }
    d = np.array([by_arm["new"][item] - by_arm["old"][item] for item in by_arm["old"]])
    half = 2.0009953780882688 * d.std(ddof=1) / np.sqrt(len(d))  # Student's 0.975 quantile, 59 df
    (verdict,) = result.document["gate"]
    assert len(d) == 60
    assert verdict["lower"] == pytest.approx(d.mean() - half, rel=1e-9)
    assert verdict["outcome"] == ("passed" if d.mean() - half > 0 else "undecided")
