"""What is found while a campaign is put together: all of it, each at its field."""

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
