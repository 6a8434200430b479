"""Human labels of a campaign: what is read, what is refused, and where it goes."""

import gzip
import json

import numpy as np
import pytest

from orchestrator.build import build
from orchestrator.campaign import Campaign
from orchestrator.config import load_campaign
from orchestrator.core.errors import InvalidCampaign

ITEMS = "id,text\n" + "".join(f"t{k},Reply {k}.\n" for k in range(6))
ARMS = "id,arm,text\n" + "".join(f"t{k},{a},Reply {k}{a}.\n" for k in range(6) for a in "xy")
CAMPAIGN = """\
version: 1
name: labelled
data: {path: items.csv, id: id, DATA fields: {candidate: text}}
judges:
  - {name: a, adapter: mock, price_usd_per_1m: {input: 1, output: 4}}
  - {name: b, adapter: mock, price_usd_per_1m: {input: 1, output: 4}}
task: {kind: rate, SCALE}
policy: {kind: uniform, max_repeats: 1}
budget: {usd: 5}
estimate: [{name: s, kind: score_means}]
"""
ONE = "scale: {type: integer, min: 1, max: 5}"
TWO = "criteria: [{name: tone, ONE}, {name: fact, scale: {type: boolean}}]".replace("ONE", ONE)


@pytest.fixture
def campaign(tmp_path):
    """Load a campaign with labels of this text."""

    def make(text, keys="", *, name="people.csv", scale=ONE, data="", items=ITEMS, **overrides):
        (tmp_path / "items.csv").write_text(items)
        raw = text.encode()
        (tmp_path / name).write_bytes(gzip.compress(raw) if name.endswith(".gz") else raw)
        source = CAMPAIGN.replace("SCALE", scale).replace("DATA", data)
        (tmp_path / "c.yaml").write_text(f"{source}labels: {{path: {name}{keys}}}\n")
        return load_campaign(tmp_path / "c.yaml", overrides=overrides, environ={})

    return make


@pytest.fixture
def refused(campaign):
    """Give the problems with labels, one line each."""

    def make(*args, **kwargs):
        with pytest.raises(InvalidCampaign) as caught:
            build(campaign(*args, **kwargs))
        return [str(problem) for problem in caught.value.problems]

    return make


def column(blueprint, criterion=0):
    values = blueprint.study.labels[:, criterion].tolist()
    return [None if np.isnan(x) else x for x in values]


def test_labels_stand_at_their_units(campaign):
    """In any order; an empty cell and a unit without a row are no label."""
    found = build(campaign("item_id,score\nt4,2\nt0,5\nt1,\n"))
    assert column(found) == [5, None, None, None, 2, None]
    assert found.study.labels.dtype == np.float64
    assert "labels" not in [problem.path for problem in found.warnings]


@pytest.mark.parametrize("name", ["people.jsonl", "people.jsonl.gz", "people.parquet"])
def test_all_forms_of_tables_are_read(campaign, name, tmp_path):
    rows = [{"who": "t3", "mark": 4}, {"who": "t2", "mark": 1.5}]
    text = "\n".join(map(json.dumps, rows))
    file = campaign(text, ", id: who, score: mark", name=name)
    if name.endswith("parquet"):
        pq = pytest.importorskip("pyarrow.parquet")
        pa = pytest.importorskip("pyarrow")
        pq.write_table(pa.Table.from_pylist(rows), tmp_path / name)
    assert column(build(file)) == [None, None, 1.5, 4, None, None]


def test_several_raters_of_a_unit_are_averaged_and_it_is_said(campaign):
    found = build(campaign("item_id,score\nt0,5\nt0,4\nt0,3\nt1,2\n"))
    assert column(found)[:2] == [4, 2]
    (warning,) = [w for w in found.warnings if w.path == "labels.path"]
    assert "1 of them are the mean of several raters, 3 at most" in str(warning)


def test_arms_and_criteria_have_columns_of_their_own(campaign):
    text = "item_id,arm,what,score\nt0,y,tone,2\nt0,x,fact,true\nt1,y,fact,0\n"
    file = campaign(
        text,
        ", arm: arm, criterion: what",
        scale=TWO,
        data="arm: arm,",
        items=ARMS,
    )
    found = build(file)
    assert found.study.labels.shape == (12, 2)
    assert column(found)[:2] == [None, 2]
    assert column(found, 1)[:4] == [1, None, None, 0]


def test_a_sample_keeps_the_labels_of_its_items(campaign):
    text = "item_id,score\n" + "".join(f"t{k},{1 + k / 2}\n" for k in range(6))
    file = campaign(text)
    whole, part = build(file), build(file, limit=3)
    by_item = dict(zip(whole.study.frame.items, column(whole), strict=True))
    assert column(part) == [by_item[item] for item in part.study.frame.items]
    assert len(column(part)) == 3


def test_every_problem_is_named_with_its_line(refused):
    """Unknown items, scores off the scale, no numbers: all at once, in the order of the file."""
    text = "item_id,score\nt0,3\nt9,3\nt1,6\nt2,good\n,2\nt3,true\n"
    found = refused(text)
    for line, said in (
        (3, "no item of the data is named 't9'"),
        (4, "wants a number from 1 to 5, not 6"),
        (5, "wants a number, not 'good'"),
        (6, "missing"),
        (7, "true or false, where a number is wanted"),
    ):
        (one,) = [p for p in found if p.startswith(f"people.csv:{line}")]
        assert said.replace("'", "") in one.replace('"', "").replace("'", "")
    assert len(found) == 5


def test_unknown_arms_and_criteria_are_named(refused):
    text = "item_id,arm,what,score\nt0,z,tone,2\nt0,x,tune,2\n"
    found = refused(text, ", arm: arm, criterion: what", scale=TWO, data="arm: arm,", items=ARMS)
    assert [("arm" in p, "criterion" in p) for p in found] == [(True, False), (False, True)]
    assert "tone" in found[1], "the name that was probably meant"


@pytest.mark.parametrize(
    ("keys", "change", "said"),
    [
        ("", {"data": "arm: arm,", "items": ARMS}, "labels.arm — missing; there are several arms"),
        (", arm: item_id", {}, "labels.arm — the data have no arms"),
        ("", {"scale": TWO}, "labels.criterion — missing; there are several criteria"),
        (", id: item", {}, "labels.id — people.csv has no column"),
        (", score: points", {}, "labels.score — people.csv has no column"),
    ],
)
def test_a_column_that_is_wanted_is_named_in_the_campaign_file(refused, keys, change, said):
    found = refused("item_id,score\nt0,3\n", keys, **change)
    (one,) = [problem for problem in found if said in problem]
    assert "c.yaml:" in one


def test_a_file_without_labels_is_refused(refused):
    (one,) = refused("item_id,score\nt0,\n")
    assert "no unit has a label" in one


def test_labels_are_identity(campaign):
    """The values count, whichever file and order they stand in."""
    digest = build(campaign("item_id,score\nt0,3\nt1,4\n")).crew.opened.digest
    same = campaign("item_id,score\nt1,4.0\nt0,3\n", name="other.csv")
    assert build(same).crew.opened.digest == digest
    other = build(campaign("item_id,score\nt0,3\nt1,5\n"))
    assert other.crew.opened.digest != digest
    assert other.crew.opened.identity["labels"]["n"] == 2
    assert "path" not in other.crew.opened.identity["labels"]


@pytest.mark.parametrize("place", ["policy", "estimate[0]"])
def test_anchors_without_labels_are_refused_where_they_stand(tmp_path, campaign, place):
    campaign("item_id,score\nt0,3\n")
    text = (tmp_path / "c.yaml").read_text()
    text = text[: text.index("labels:")]
    if place == "policy":
        text = text.replace("uniform, max_repeats: 1", "est_ivwe, calibration: anchors")
    else:
        text = text.replace("score_means}", "score_means, calibration: anchors}")
    (tmp_path / "c.yaml").write_text(text)
    with pytest.raises(InvalidCampaign) as caught:
        load_campaign(tmp_path / "c.yaml", environ={})
    found = list(map(str, caught.value.problems))
    (one,) = [problem for problem in found if f"{place}.calibration" in problem]
    assert "`labels` is missing" in one
    assert "c.yaml:" in one


def test_a_run_with_anchors_says_what_labels_show(tmp_path, campaign):
    """From the file to the report: scores on the labels' scale, and how judges agree with it."""
    labels = "item_id,score\n" + "".join(f"t{k},{1 + k % 4}\n" for k in range(6))
    campaign(labels)
    overrides = {"estimate.s.calibration": "anchors", "output.formats": ["html", "md"]}
    found = Campaign.from_yaml(tmp_path / "c.yaml", overrides=overrides).run(tmp_path / "run")
    (arms,) = found.estimates
    assert arms.estimand.endswith("on the labels' scale")
    assert arms.value[0] == pytest.approx(np.mean([1 + k % 4 for k in range(6)]))
    for name in ("report.html", "report.md"):
        page = (tmp_path / "run" / name).read_text()
        assert "Human labels" in page
        assert "corrected by" in page
        assert "No human labels" not in page


def test_a_sample_without_a_label_runs_and_says_so(tmp_path, campaign):
    """A try on two items must not fail for want of labels on just these."""
    campaign("item_id,score\nt0,3\n")
    overrides = {"estimate.s.calibration": "anchors"}
    for seed in range(9):
        found = Campaign.from_yaml(
            tmp_path / "c.yaml", overrides={**overrides, "seed": seed}, limit=2
        )
        if np.isnan(found.build().study.labels).all():
            break
    (arms,) = found.run(tmp_path / "run").estimates
    assert "judge_without_labels" in arms.flags
    assert "labels" not in arms.estimand


def test_a_plan_knows_the_labels(tmp_path, campaign):
    """est_ivwe with anchors is rehearsed on parts of the items too, labels and all."""
    items = "id,text\n" + "".join(f"t{k},Reply {k}.\n" for k in range(600))
    labels = "item_id,score\n" + "".join(f"t{k},3\n" for k in range(0, 600, 20))
    campaign(labels, items=items)
    policy = {"kind": "est_ivwe", "calibration": "anchors", "target": "common"}
    overrides = {"policy": policy, "budget.usd": 9}
    plan = Campaign.from_yaml(tmp_path / "c.yaml", overrides=overrides).plan(rivals=False)
    assert sum(judge.calls for judge in plan.judges) > 0
