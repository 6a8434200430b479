"""`sortition init`: a first campaign that runs as it is."""

from __future__ import annotations

import json

import numpy as np
import pytest

from orchestrator import Campaign
from orchestrator.config import load_campaign
from orchestrator.core.errors import ConfigError
from orchestrator.core.money import NANO_PER_USD, Nano
from orchestrator.initial import CAMPAIGN, POLICIES, Range, Wishes, campaign, suits_pair, write
from orchestrator.planned import refused


def test_a_first_campaign_runs_as_it_is(sortition, tmp_path):
    """C57: from nothing to a report, without a key, a socket or a question; all of it says mock."""
    code, out, err = sortition("init", "first")
    assert code == 0
    assert out.split() == ["first/campaign.yaml", "first/rubric.md", "first/data/items.jsonl"]
    assert err.splitlines()[-1] == "next: sortition preview first/campaign.yaml"
    code, out, err = sortition("validate", "first/campaign.yaml")
    assert (code, "warning" in err) == (0, False)
    assert "20 items x 2 arms, 3 judges, policy uniform" in out
    code, out, _ = sortition("preview", "first/campaign.yaml")
    assert code == 0
    assert "mock" in out
    code, out, err = sortition("run", "first/campaign.yaml", "--run-dir", "run")
    assert code == 0
    assert "new is better than old" in out
    assert "mock" in out
    assert "mock" in err
    for name in ("result.json", "report.html", "report.md"):
        assert "mock" in (tmp_path / "run" / name).read_text(encoding="utf-8")
    assert sortition("verify", "run")[0] == 0


@pytest.mark.parametrize("policy", POLICIES[1:])
def test_the_other_policies_run_too(sortition, policy):
    """Exit 0 with less money than the default, and the log holds."""
    assert sortition("init", "-y", "--policy", policy)[0] == 0
    code, out, _ = sortition("run", "--run-dir", "run", "--budget-usd", "0.30", "-q")
    assert code == 0
    assert "mock" in out
    assert sortition("verify", "run")[0] == 0


def test_the_known_truth_is_found(tmp_path):
    """The interval of the difference holds the one that the rows were given."""
    write(tmp_path, campaign(Wishes(), name="first"))
    blueprint = Campaign.from_yaml(tmp_path / CAMPAIGN).build()
    expected = np.mean(
        [judge.adapter.expected()[:, 0].reshape(20, 2) for judge in blueprint.crew.judges],
        axis=(0, 1),
    )
    result = Campaign.from_yaml(tmp_path / CAMPAIGN).run(tmp_path / "run")
    (difference,) = (e for e in result.estimates if e.target == "difference")
    assert difference.lower[0] < expected[1] - expected[0] < difference.upper[0]


SCALES = ["1-5", "0-100", "yes-no"]


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("is_pair", [True, False])
@pytest.mark.parametrize("scale", SCALES)
def test_every_choice_gives_a_valid_campaign(tmp_path, policy, is_pair, scale):
    """Whatever was chosen, nothing has to be changed before it runs."""
    wishes = Wishes(policy=policy, is_pair=is_pair, scale=Range.read(scale))
    write(tmp_path, campaign(wishes, name='odd "name": [x]'))
    file = load_campaign(tmp_path / CAMPAIGN, environ={})
    assert file.campaign.name == 'odd "name": [x]'
    assert file.campaign.policy.kind == policy
    assert file.warnings == ()
    later = [problem.path for problem in refused(file)]
    if later:
        assert later == ["policy.kind"]
        return
    blueprint = Campaign(file).build()
    assert blueprint.warnings == ()
    assert (blueprint.study.frame.n_items, blueprint.study.frame.n_arms) == (20, 1 + is_pair)
    criterion = blueprint.study.criteria[0].scale
    truth = np.array([json.loads(line)["quality"] for line in rows(tmp_path)])
    assert criterion.low <= truth.min() < truth.max() <= criterion.high


def rows(folder):
    return (folder / "data" / "items.jsonl").read_text(encoding="utf-8").splitlines()


def test_the_file_teaches(tmp_path):
    """Each section has a comment, and the rubric names what is shown."""
    texts = campaign(Wishes(), name="first")
    assert texts[CAMPAIGN].count("#") > 15
    assert max(map(len, texts[CAMPAIGN].splitlines())) <= 120
    assert "{{ candidate }}" in texts["rubric.md"]
    assert len(texts["data/items.jsonl"].splitlines()) == 40
    assert len(campaign(Wishes(is_pair=False), name="x")["data/items.jsonl"].splitlines()) == 20


def test_on_a_terminal_three_questions_are_asked(sortition, tmp_path):
    code, _, err = sortition("init", "mine", answers=["one", "1-7", "2.5"])
    assert code == 0
    for question in ("What is judged", "On which scale", "What may it cost"):
        assert question in err
    file = load_campaign(tmp_path / "mine" / CAMPAIGN, environ={})
    assert file.campaign.budget.usd == 2.5 * NANO_PER_USD
    assert file.campaign.task.scale.high == 7
    assert file.campaign.data.arm is None


def test_an_empty_answer_takes_the_default(sortition, tmp_path):
    assert sortition("init", answers=["", "", ""])[0] == 0
    asked = (tmp_path / CAMPAIGN).read_text(encoding="utf-8")
    assert asked == campaign(Wishes(), name=tmp_path.name)[CAMPAIGN]


def test_yes_asks_nothing_on_a_terminal(sortition, tmp_path):
    code, out, err = sortition("init", "-y", "--policy", "est_ivwe", answers=[])
    assert code == 0
    assert "?" not in err
    assert err.splitlines()[-1] == "next: sortition preview"
    assert "est_ivwe" in (tmp_path / CAMPAIGN).read_text(encoding="utf-8")
    assert out


@pytest.mark.parametrize(
    "answers",
    [["three"], ["one", "5-1"], ["one", "a-b"], ["two", "1-5", "much"], ["two", "1-5", "0"]],
)
def test_an_answer_that_makes_no_sense_is_asked_again(sortition, tmp_path, answers):
    """The question comes again; broken off there, nothing is written."""
    code, _, err = sortition("init", "x", answers=answers)
    assert code == 2
    assert "wants" in err or "scale" in err or "not a number" in err
    assert "nothing was written" in err
    assert not (tmp_path / "x").exists()
    good = ["two", "1-7", "$2.50"]
    code, _, _ = sortition("init", "x", answers=[*answers, *good[len(answers) - 1 :]])
    assert code == 0
    assert "usd: 2.5" in (tmp_path / "x" / CAMPAIGN).read_text(encoding="utf-8")


def test_nothing_is_overwritten(sortition, tmp_path):
    """What is there is named, and nothing is written beside it."""
    (tmp_path / "rubric.md").write_text("mine", encoding="utf-8")
    code, _, err = sortition("init")
    assert code == 2
    assert err == "rubric.md: there already; nothing was written\n"
    assert [path.name for path in tmp_path.iterdir()] == ["rubric.md"]
    (tmp_path / "file").write_text("", encoding="utf-8")
    assert sortition("init", "file")[0] == 2


def test_an_unknown_policy_is_refused(sortition, tmp_path):
    code, _, err = sortition("init", "--policy", "unifrom")
    assert code == 2
    assert "uniform, two_phase, est_ivwe" in err
    assert not list(tmp_path.iterdir())


def test_programs_read_what_was_written(sortition):
    _, out, _ = sortition("init", "x", "--json")
    assert json.loads(out) == {
        "directory": "x",
        "files": ["campaign.yaml", "rubric.md", "data/items.jsonl"],
    }


def test_a_policy_for_differences_gets_two_versions():
    """Single scores are of one set of answers, unless one says otherwise."""
    assert [suits_pair(policy) for policy in POLICIES] == [True, True, False]
    with pytest.raises(ConfigError, match="more than 0"):
        Wishes(budget=Nano(0))
