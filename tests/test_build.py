"""What is found while a campaign is put together: all of it, each at its field."""

import json
import re
import sys
from types import ModuleType

import pytest
from pydantic import BaseModel, ConfigDict

from orchestrator import Campaign
from orchestrator.core.errors import InvalidCampaign
from orchestrator.core.ports import Plugin

FILE = """\
version: 1
name: odd
data: {path: items.csv, fields: {candidate: text}%s}
judges: [{name: a, adapter: mock, price_usd_per_1m: {input: 1, output: 4}}]
task: {kind: rate, scale: {type: boolean}%s}
policy: {kind: "stubborn:POLICY", depth: 3}
budget: {usd: 1}
estimate:
  - {name: first, kind: "stubborn:ESTIMATE", reach: 9}
  - {name: second, kind: "stubborn:ESTIMATE", reach: 0}
  - {name: third, kind: "stubborn:ESTIMATE", reach: 1}
"""


class Depth(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)

    kind: str
    depth: int


class Reach(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)

    name: str
    kind: str
    reach: int


def _policy(config, study):
    raise ValueError(f"depth: {config.depth} is too deep for {study.frame.n_items} items")


def _estimate(config, study):
    if config.reach > 5:
        raise ValueError("stop.every: is too rare for such a reach: it wants less")
    raise ValueError("this study has nothing to read" if config.reach else "no reach: nothing")


@pytest.fixture
def said(tmp_path, monkeypatch):
    """Give the problems of a campaign of plug-ins that refuse every study."""
    module = ModuleType("stubborn")
    module.POLICY = Plugin(config=Depth, build=_policy)
    module.ESTIMATE = Plugin(config=Reach, build=_estimate)
    monkeypatch.setitem(sys.modules, "stubborn", module)
    (tmp_path / "items.csv").write_text("id,text\nx,one\ny,two\n", "utf-8")

    def said(data="", task=""):
        (tmp_path / "c.yaml").write_text(FILE % (data, task), "utf-8")
        with pytest.raises(InvalidCampaign) as caught:
            Campaign.from_yaml(tmp_path / "c.yaml").build()
        return [(p.line, p.path, p.message.split(" (in")[0]) for p in caught.value.problems]

    return said


STUBBORN = [
    (1, "stop.every", "is too rare for such a reach: it wants less"),
    (6, "policy.depth", "3 is too deep for 2 items"),
    (10, "estimate[1].kind", "no reach: nothing"),
    (11, "estimate[2].kind", "this study has nothing to read"),
]


def test_every_plug_in_that_refuses_the_study_is_named_at_its_key(said):
    """Its error begins with a key of its own or with the path of another field; else it is its kind."""
    assert said() == STUBBORN


def test_plug_ins_are_tried_though_something_else_is_wrong(said):
    labels = said(task=", output: {route: text}", data="}\nlabels: {path: items.csv, score: grade")
    assert {path for _, path, _ in labels} >= {path for _, path, _ in STUBBORN}
    assert any(path == "labels.score" for _, path, _ in labels)


# --- comparisons -------------------------------------------------------------------------------

PRICE = {"input": 1, "output": 4}


@pytest.fixture
def comparing(tmp_path):
    """Write a campaign of comparisons; `questions` gives the question of an item and an arm."""

    def comparing(name, *, arms="ab", criterion="score", order="both", prior=(), questions, **keys):
        rows = [
            {"id": f"i{n}", "arm": arm, "q": questions((n, arm)) or f"q{n}", "a": f"{arm}{n}"}
            for n in range(20)
            for arm in arms
        ]
        text = "".join(json.dumps(row) + "\n" for row in rows)
        (tmp_path / f"{name}.jsonl").write_text(text, "utf-8")
        document = {
            "version": 1,
            "name": name,
            "data": {
                "path": f"{name}.jsonl",
                "arm": "arm",
                "prior_judgments": [*prior],
                "fields": {"question": "q", "candidate": "a"},
            },
            "judges": [{"name": "j", "adapter": "mock", "price_usd_per_1m": PRICE}],
            "task": {
                "kind": "compare",
                "order": order,
                "criteria": [{"name": criterion, "scale": {"type": "preference"}}],
            },
            "policy": {"kind": "active_pairwise", "max_repeats": 1},
            "budget": {"usd": 1},
            "estimate": [{"name": "ranking", "kind": "bradley_terry", **keys}],
            "output": {"formats": []},
        }
        (tmp_path / f"{name}.yaml").write_text(json.dumps(document), "utf-8")
        return Campaign.from_yaml(tmp_path / f"{name}.yaml")

    return comparing


@pytest.fixture
def earlier(comparing, tmp_path):
    """The directory of a run of arms a, b and c."""
    comparing("earlier", arms="abc", questions=_alike).run(tmp_path / "old")
    return "old"


def _alike(_):
    return ""


def _prior_problem(campaign):
    with pytest.raises(InvalidCampaign) as caught:
        campaign.build()
    (problem,) = caught.value.problems
    return problem.path, problem.message


def test_earlier_judgments_of_other_arms_are_left_out_and_counted(comparing, earlier):
    """Of three pairs in both orders one is left."""
    built = comparing("part", prior=[earlier], questions=_alike).build()
    assert len(built.study.prior) == 40
    (warning,) = built.warnings
    assert warning.path == "data.prior_judgments[0]"
    assert warning.message == "left out of old: 80 judgments about other items or arms"


@pytest.mark.parametrize(
    ("keys", "why"),
    [
        ({"criterion": "tone"}, '120 judgments by "score", not by "tone"'),
        ({"arms": "xy"}, "120 judgments about other items or arms"),
    ],
)
def test_an_earlier_run_of_which_nothing_fits_is_refused_with_the_reason(
    comparing, earlier, keys, why
):
    path, message = _prior_problem(comparing("none", prior=[earlier], questions=_alike, **keys))
    assert path == "data.prior_judgments[0]"
    assert message == f"nothing of old can be taken in: {why}"


def test_an_earlier_run_counts_once(comparing, earlier, tmp_path):
    """By whatever path it is named."""
    (tmp_path / "link").symlink_to(tmp_path / earlier)
    both = comparing("twice", arms="abc", prior=[earlier, "link"], questions=_alike)
    path, message = _prior_problem(both)
    assert path == "data.prior_judgments[1]"
    assert re.search(r"the same judgments as data\.prior_judgments\[0\]", message)


@pytest.mark.parametrize(
    ("keys", "is_warned"),
    [
        ({"order": "single"}, True),
        ({"order": "single", "order_effect": False}, False),
        ({"order": "single", "arms": "abc"}, False),
        ({"order": "balanced_random"}, False),
    ],
)
def test_a_place_that_is_always_one_arms_is_warned_of(comparing, keys, is_warned):
    warnings = comparing("placed", questions=_alike, **keys).build().warnings
    assert [w.path for w in warnings] == ["task.order"] * is_warned
    assert all('"a" is always shown first' in w.message for w in warnings)


@pytest.mark.parametrize(("n_unlike", "is_warned"), [(0, False), (2, True), (3, False)])
def test_a_question_that_hardly_differs_between_arms_is_warned_of(comparing, n_unlike, is_warned):
    """Up to a tenth of the items are few; more are taken as meant."""

    def questions(unit):
        n, arm = unit
        return f"own {arm}" if n < n_unlike else ""

    warnings = comparing("odd", questions=questions).build().warnings
    assert [w.path for w in warnings] == ["data.fields.question"] * is_warned
    assert all("differs between arms in 2 of 20 items" in w.message for w in warnings)
