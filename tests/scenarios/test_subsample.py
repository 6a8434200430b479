"""A part of a benchmark asked about: repeats, draws by a column and labels, in whole campaigns."""

import json

import numpy as np
import pytest

from estimators.judge_repeats import noise_half_width
from orchestrator import Campaign
from orchestrator.core.errors import InvalidCampaign
from orchestrator.verification import check
from tests.test_systems import FILE as WITH_SYSTEMS

FILE = """\
version: 1
name: part
seed: 11
data: {path: items.jsonl, id: id, fields: {candidate: answer}}
judges:
  - {name: judge, adapter: mock, price_usd_per_1m: {input: 1, output: 1}, mock: {truth: truth, sd: 1.0}}
task: {kind: rate, scale: {type: integer, min: 0, max: 10}}
policy: {kind: subsample}
budget: {usd: 5}
stop: {target_half_width: 0.1}
estimate:
  - {name: score, kind: exchangeable}
"""
N = 150
OTHER = """\
  - {name: other, adapter: mock, price_usd_per_1m: {input: 1, output: 1}, mock: {truth: truth, sd: 2.0}}"""


@pytest.fixture
def campaign(tmp_path):
    rng = np.random.default_rng(0)
    truth = np.clip(rng.normal(6, 2, N), 0, 10).round(3)
    rows = [
        {"id": f"i{k}", "answer": f"a {k}", "truth": x, "promise": 1 + x, "odd": k - 3.0}
        for k, x in enumerate(truth.tolist())
    ]
    (tmp_path / "items.jsonl").write_text("\n".join(map(json.dumps, rows)), "utf-8")
    labels = [f"i{k},{int(truth[k])}" for k in rng.permutation(N)[:70]]
    (tmp_path / "labels.csv").write_text("\n".join(["id,score", *labels]), "utf-8")

    def campaign(*changes):
        text = FILE
        for old, new in changes:
            assert old in text
            text = text.replace(old, new)
        (tmp_path / "c.yaml").write_text(text, "utf-8")
        return Campaign.from_yaml(tmp_path / "c.yaml")

    return campaign


def problems_of(campaign, *changes):
    with pytest.raises(InvalidCampaign) as caught:
        campaign(*changes).build()
    return {problem.path: problem.message for problem in caught.value.problems}


def test_repeats_are_asked_and_their_mean_is_the_score(campaign, tmp_path):
    """The estimate follows the policy, and of all items the judge's noise is what is left open."""
    result = campaign(
        ("{kind: subsample}", "{kind: subsample, repeats: 4}"),
        ("kind: exchangeable}", "kind: exchangeable, judgment: expected, targets: [benchmark]}"),
    ).run(tmp_path / "run")
    assert (result.state, list(check(result.directory))) == ("finished", [])
    (score,) = result.estimates
    assert (score.n_items, score.n_answers) == (N, 4 * N)
    assert score.half_width == pytest.approx(noise_half_width(N, 4, 0.05, 10.0))
    assert score.flags == ("target_below_noise",)
    assert result.document["spend"]["settled_nano_usd"] > 0


def test_items_are_drawn_by_a_column_that_is_read_for_it(campaign, tmp_path):
    """A watched run whose estimate follows; what it asks is in the log with the chance of the draw."""
    result = campaign(
        ("{kind: subsample}", "{kind: subsample, draw_by: promise, max_items: 90}"),
        ("0.1}", "0.9, check: anytime}"),
    ).run(tmp_path / "run")
    assert list(check(result.directory)) == []
    (score,) = result.estimates
    assert score.interval == "weighted betting sequence without replacement"
    assert score.watching_covered
    assert score.lower[0] < 6 < score.upper[0]


def test_people_are_estimated_beside_the_judge(campaign, tmp_path):
    """Labels of some items, scores of more."""
    result = campaign(
        ("budget:", "labels: {path: labels.csv, id: id, score: score}\nbudget:"),
        ("{kind: subsample}", "{kind: subsample, max_items: 100}"),
        ("kind: exchangeable}", "kind: exchangeable, targets: [benchmark, human]}"),
    ).run(tmp_path / "run")
    assert list(check(result.directory)) == []
    _, people = result.estimates
    by_name = people.diagnostics["by_name"]
    assert by_name["n_labels"][0] > 30
    alone = by_name["labels_only"][0]
    assert people.half_width < 0.8 * (alone["upper"] - alone["lower"]) / 2
    assert people.lower[0] < 5.6 < people.upper[0]


def test_a_watched_run_is_planned_for_the_items_that_the_policy_asks_about(campaign, tmp_path):
    """Its last interval is far narrower than one whose bets wait for a target that is out of reach."""
    changes = [
        ("0.1}", "0.01, check: anytime}"),
        ("{kind: subsample}", "{kind: subsample, max_items: 30}"),
    ]
    (planned,) = campaign(*changes).run(tmp_path / "run").estimates
    changes += [("kind: exchangeable}", f"kind: exchangeable, max_items: {N}}}")]
    (other,) = campaign(*changes).run(tmp_path / "other").estimates
    assert planned.n_items == other.n_items == 30
    assert planned.half_width < 0.85 * other.half_width


def test_labels_are_held_against_judges_whatever_is_estimated(campaign, tmp_path):
    """Of each judge of a panel, also where the result is made without one of them."""
    result = campaign(
        (
            "budget:",
            "labels: {path: labels.csv, id: id, score: score}\noutput: {formats: [md]}\nbudget:",
        ),
        ("task:", f"{OTHER}\ntask:"),
        ("{kind: subsample}", "{kind: subsample, max_items: 60}"),
    ).run(tmp_path / "run")
    (score,) = result.estimates
    assert [of["judge"] for of in score.diagnostics["labels"]] == ["judge", "other"]
    assert {of["n_units"] for of in score.diagnostics["labels"]} < set(range(15, 60))
    assert len(result.document["diagnostics"]["without_judge"]) == 2
    assert "## Human labels" in (tmp_path / "run" / "report.md").read_text("utf-8")


def test_repeats_read_one_answer_of_a_system(tmp_path):
    """A system answers once; the judge is asked about that answer twice where the key leaves it open."""
    rows = [
        {"item": f"i{k}", "subject": "s", "question": f"q {k}", "answer": f"k{k}"}
        for k in range(30)
    ]
    (tmp_path / "items.jsonl").write_text("\n".join(map(json.dumps, rows)), "utf-8")
    (tmp_path / "c.yaml").write_text(WITH_SYSTEMS, "utf-8")
    made = Campaign.from_yaml(tmp_path / "c.yaml", {"policy.repeats": 2})
    result = made.run(tmp_path / "run")
    assert list(check(result.directory)) == []
    by_role = result.document["counts"]["by_role"]
    assert by_role["judge"]["answered"] == 2 * by_role["system"]["answered"] > 0
    assert {e.diagnostics["repeats"] for e in result.estimates} == {2}


@pytest.mark.parametrize(
    ("changes", "path", "message"),
    [
        (
            [
                ("sd: 1.0}", "sd: 1.0}, params: {temperature: 0}"),
                ("subsample}", "subsample, repeats: 2}"),
            ],
            "judges[0].params.temperature",
            "wants policy.repeats: 1 or policy.allow_identical_repeats",
        ),
        (
            [("kind: exchangeable}", "kind: exchangeable, targets: [human]}")],
            "estimate[0].targets",
            "human wants labels",
        ),
        (
            [("subsample}", "subsample, draw_by: odd}")],
            "policy.draw_by",
            "'odd' holds numbers that are not above 0",
        ),
        (
            [("subsample}", "subsample, draw_by: promises}")],
            "policy.draw_by",
            "items.jsonl has no column",
        ),
    ],
)
def test_what_can_not_be_is_refused_at_its_key(campaign, changes, path, message):
    assert message in problems_of(campaign, *changes)[path]
