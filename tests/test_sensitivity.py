"""What the estimates of a run would be without each judge: exact, and only where it can be said."""

from __future__ import annotations

import json

import pytest

from orchestrator import rundir, sensitivity
from orchestrator.campaign import Campaign
from orchestrator.core.estimate import Status
from orchestrator.report import markdown
from orchestrator.sensitivity import without_judges

CAMPAIGN = """\
version: 1
name: panel
data: {path: items.jsonl, id: id, fields: {candidate: text}}
judges:
  - {name: steady, adapter: mock, price_usd_per_1m: {input: 1, output: 4}, mock: {truth: t, sd: 0}}
  - {name: dying, adapter: mock, price_usd_per_1m: {input: 1, output: 4}, %s}
  - {name: high, adapter: mock, price_usd_per_1m: {input: 1, output: 4}, mock: {truth: t, sd: 0, bias: 3}}
task: {kind: rate, scale: {type: float, min: -10, max: 10}}
policy: {kind: uniform, max_repeats: 1}
budget: {usd: 1}
"""
N = 60


@pytest.fixture
def ran(tmp_path):
    """Run the campaign with a judge that is as given; gives its result."""
    items = [{"id": f"i{i}", "text": f"text {i}", "t": i / 20} for i in range(N)]
    (tmp_path / "items.jsonl").write_text("".join(f"{json.dumps(i)}\n" for i in items))

    def run(dying):
        path = tmp_path / "campaign.yaml"
        path.write_text(run.text % dying)
        return Campaign.from_yaml(path).run(tmp_path / "run")

    run.text = CAMPAIGN
    return run


def means(data):
    return {left.judge: left.estimates[0].value[0] for left in data.without_judge}


def test_a_panel_without_each_of_its_judges(ran):
    """By hand: truth 0, 0.05, ... has the mean 1.475; judges add 0, 1 and 3."""
    data = ran("mock: {truth: t, sd: 0, bias: 1}").data
    assert data.answer.value[0] == pytest.approx(1.475 + 4 / 3)
    assert means(data) == pytest.approx({"steady": 3.475, "dying": 2.975, "high": 1.975})
    assert [left.n_answers for left in data.without_judge] == [N, N, N]


def test_a_judge_that_dies_is_named_and_the_result_shown_with_and_without_it(ran):
    """C54: 401 after 40 answers: down after one failure, its 40 answers stay, both results stand."""
    result = ran('mock: {truth: t, sd: 0, bias: 1, faults: {"401": {after: 41}}}')
    data, dying = result.data, result.data.judges[1]
    assert (dying.answered, dying.n_outages) == (40, 1)
    (outage,) = dying.outages
    assert outage.after <= 40
    assert (outage.until, outage.ended_at) == (None, None)
    assert outage.why == dying.down != ""
    assert "panel_incomplete" in data.answer.flags
    without = data.without_judge[1]
    assert (without.judge, without.n_answers) == ("dying", 40)
    assert without.estimates[0].value[0] == pytest.approx(1.475 + 1.5)
    assert data.answer.value[0] != pytest.approx(1.475 + 1.5)
    page = markdown.render(data)
    assert f"dying went down after {plural(outage.after)} ({outage.why})" in page
    assert "| without dying | 40 |" in page
    assert "| all judges |  |" in page
    entry = result.document["diagnostics"]["without_judge"][1]
    assert (entry["judge"], entry["n_answers"]) == ("dying", 40)
    assert entry["estimates"][0]["value"] == [without.estimates[0].value[0]]
    assert result.document["judges"][1]["outages"][0]["why"] == outage.why


def test_a_benchmark_counts_items_of_the_judges_that_are_left(ran, tmp_path):
    """Each unit waits for all judges of a panel, so a judge left out is left out of the panel too."""
    campaign = CAMPAIGN.replace("uniform, max_repeats: 1", "subsample")
    ran.text = campaign + "estimate: [{name: score, kind: exchangeable}]\n"
    result = ran("mock: {truth: t, sd: 0, bias: 1}")
    data = result.data
    assert data.answer.value[0] == pytest.approx(1.475 + 4 / 3)
    assert means(data) == pytest.approx({"steady": 3.475, "dying": 2.975, "high": 1.975})
    for left in data.without_judge:
        (e,) = left.estimates
        assert (e.status, e.n_items, e.n_answers) == (Status.OK, N, 2 * N)
    assert rundir.summary(result.directory).without_judge == data.without_judge


def plural(n):
    return f"{n} answers"


def test_a_later_reader_finds_the_same(ran):
    """The campaign is loaded again: from its log a run is summed up as by the run itself."""
    result = ran("mock: {truth: t, sd: 0.5}")
    assert rundir.summary(result.directory).without_judge == result.data.without_judge


@pytest.mark.parametrize("change", ["gone", "changed"])
def test_a_campaign_that_is_not_there_any_more_leaves_nobody_out(ran, tmp_path, change):
    """What was computed from another campaign would be no answer of this run."""
    result = ran("mock: {truth: t, sd: 0}")
    path = tmp_path / "campaign.yaml"
    if change == "gone":
        path.unlink()
    else:
        path.write_text(path.read_text().replace("max: 10", "max: 11"))
    assert rundir.summary(result.directory).without_judge == ()


def test_a_long_run_leaves_nobody_out(ran, monkeypatch):
    result = ran("mock: {truth: t, sd: 0}")
    monkeypatch.setattr(sensitivity, "MOST_QUESTIONS", 3 * N - 1)
    assert without_judges(result.directory, result.data) == ()
