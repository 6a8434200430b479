"""`sortition preview`: what would be sent, to the letter, and what it can cost."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path

import pytest

from orchestrator import Campaign
from orchestrator.core.errors import ConfigError
from orchestrator.core.events import Asked, Sent
from orchestrator.core.query import Kind, Query
from orchestrator.core.wire import FIRST_ATTEMPT, Chat, Image, Request, Route, Text, Turn
from orchestrator.previewing import as_text, preview, turns
from orchestrator.rundir import reading
from orchestrator.store.archive import name_prompt

QUICKSTART = Path(__file__).parents[1] / "configs" / "quickstart.yaml"


def quickstart(**overrides):
    return Campaign.from_yaml(QUICKSTART, overrides)


def test_the_preview_is_the_first_question_of_the_run(tmp_path):
    """To the last byte: the digest that the run keeps of its first prompt is that of the preview."""
    shown = preview(quickstart().build())
    quickstart().run(tmp_path / "run")
    with reading(tmp_path / "run") as reader:
        log = [row.event for row in reader.read()]
    asked = next(event for event in log if isinstance(event, Asked))
    sent = next(event for event in log if isinstance(event, Sent) and event.q == asked.q)
    assert shown.request.query == asked.query
    assert shown.hold == asked.hold
    assert name_prompt(shown.request) == sent.prompt
    assert shown.is_first


def test_bounds_and_price_are_those_of_the_judge():
    """450 tokens in and at most 200 out at $2 and $10; 60 out are expected."""
    shown = preview(quickstart().build(), judge="large")
    assert (shown.input_tok, shown.output_tok) == (450, 200)
    assert shown.hold == 450 * 2000 + 200 * 10000
    assert shown.expected == 450 * 2000 + 60 * 10000


def test_item_arm_and_judge_may_be_named():
    first = preview(quickstart().build())
    shown = preview(quickstart().build(), item="q07", arm="v2", judge="small")
    assert (shown.items, shown.arms, shown.judge) == (("q07",), ("v2",), "small")
    assert not shown.is_first
    same = preview(quickstart().build(), item=first.items[0], arm=first.arms[0], judge=first.judge)
    assert same == first


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ({"judge": "larg"}, 'did you mean "large"'),
        ({"arm": "v9x"}, "no arm is named"),
        ({"item": "none such"}, "there are 48"),
    ],
)
def test_an_unknown_name_is_refused(name, message):
    with pytest.raises(ConfigError, match=message):
        preview(quickstart().build(), **name)


def told(params, **judge):
    """Say what becomes of a judge's parameters: those that are sent, those that are not."""
    over = {f"judges.large.{key}": value for key, value in judge.items()}
    over |= {f"judges.large.params.{key}": value for key, value in params.items()}
    shown = preview(quickstart(**over).build(), judge="large")
    return shown.route, shown.params, shown.dropped


SAMPLING = {"temperature": 0.2, "top_p": 0.9, "seed": 3}


@pytest.mark.parametrize(
    ("judge", "sent", "dropped"),
    [
        ({"adapter": "openai", "model": "gpt-4o"}, ["temperature", "top_p", "seed"], []),
        ({"adapter": "openai", "model": "gpt-5"}, ["seed"], ["temperature", "top_p"]),
        (
            {"adapter": "openai", "model": "gpt-4o", "openai.api": "responses"},
            ["temperature", "top_p"],
            ["seed"],
        ),
        (
            {"adapter": "anthropic", "model": "claude-haiku-4-5"},
            ["temperature"],
            ["top_p", "seed"],
        ),
        ({}, [], ["temperature", "top_p", "seed"]),
    ],
)
def test_parameters_that_are_sent_and_dropped_are_told_apart(judge, sent, dropped):
    """Those of the file all stand in one of the two; a mock is sent none."""
    shown = told(SAMPLING, **judge)
    assert shown == (Route.SCHEMA, {name: SAMPLING[name] for name in sent}, tuple(dropped))


def test_a_mock_in_a_judges_place_hides_no_dropped_parameter():
    """Not even where the file wants none dropped, for which the judge itself would be refused."""
    strict = {"adapter": "openai", "model": "gpt-5", "strict_params": True}
    over = {f"judges.large.{key}": value for key, value in strict.items()}
    over["judges.large.params"] = {"temperature": 0.2, "extra": {"verbosity": "low"}}
    with pytest.raises(ConfigError, match="does not take temperature"):
        quickstart(**over).build()
    shown = preview(Campaign.from_yaml(QUICKSTART, over, mock=True).build(), judge="large")
    assert (shown.params, shown.dropped) == ({"verbosity": "low"}, ("temperature",))


def test_a_free_judge_is_expected_to_cost_nothing():
    """The shadow price that policies weigh it by is never booked."""
    free = {
        "judges.small.price_usd_per_1m": "free",
        "judges.small.planning_usd_per_call": "0.0002",
    }
    shown = preview(quickstart(**free).build(), judge="small")
    assert (shown.hold, shown.expected) == (0, 0)


def test_a_campaign_that_asks_nothing_has_no_preview():
    """A limit that is reached before the first question leaves nothing to show."""
    blueprint = quickstart().build()
    opened = replace(blueprint.crew.opened, max_requests=0)
    with pytest.raises(ConfigError, match="asks nothing"):
        preview(replace(blueprint, crew=replace(blueprint.crew, opened=opened)))


def test_roles_and_every_part_are_shown():
    query = Query(kind=Kind.RATE, judge=0, units=(0,))
    chat = Chat(turns=(Turn(role="system", content="be fair"), Turn(role="user", content="hi")))
    parts = (Text(text="rate"), chat, Image(media_type="image/png", data=b"1234"))
    request = Request(query=query, attempt=FIRST_ATTEMPT, parts=parts, max_output_tok=1, schema={})
    assert [turn.role for turn in turns(request)] == ["user", "system", "user", "user"]
    assert as_text(request) == "rate\nbe fair\nhi\n[image/png, 4 bytes]"


# --- batches -----------------------------------------------------------------------------------

BATCHES = """\
version: 1
name: edges
seed: 3
data: {path: items.csv, id: id, group: method, fields: {candidate: text}}
judges:
  - {name: a, adapter: openai, model: gpt-4o-mini, params: {max_output_tokens: 300}}
  - {name: b, adapter: anthropic, model: claude-haiku-4-5, params: {max_output_tokens: 300}}
task: {kind: rate_batch, scale: {type: boolean}}
policy: {kind: batch_design, design: shuffle, batch_size: 4, balance: group, blocks: 4}
budget: {usd: 0.5}
estimate: [{name: groups, kind: markov_glmm, contrast: {group: A, baseline: B}}]
"""


@pytest.fixture
def batches(tmp_path):
    """Write a campaign of ten items in two groups, four a batch, before two live judges."""
    rows = [f"{group}{i},{group},text {group}{i}" for group in "AB" for i in range(5)]
    (tmp_path / "items.csv").write_text("\n".join(["id,method,text", *rows]), "utf-8")
    path = tmp_path / "batches.yaml"
    path.write_text(BATCHES, "utf-8")
    return path


def asked_of(path, run):
    """Run with mocks; give the questions in the order of asking."""
    Campaign.from_yaml(path, mock=True).run(run)
    with reading(run) as reader:
        return [row.event for row in reader.read() if isinstance(row.event, Asked)]


def test_a_batch_is_shown_as_the_run_asks_it(batches, tmp_path):
    """All its units in their order, for each judge its own; or the first batch that holds an item."""
    asked = asked_of(batches, tmp_path / "run")
    blueprint = Campaign.from_yaml(batches, mock=True).build()
    first = preview(blueprint)
    assert first.request.query == asked[0].query
    assert (first.hold, first.is_first) == (asked[0].hold, True)
    names = blueprint.study.frame.items
    assert first.items == tuple(names[unit] for unit in asked[0].query.units)
    assert len(set(first.items)) == 4
    for judge, name in enumerate("ab"):
        own = next(event.query for event in asked if event.query.judge == judge)
        assert preview(blueprint, judge=name).request.query == own
        for unit, item in enumerate(names):
            holds = (e.query for e in asked if e.query.judge == judge and unit in e.query.units)
            assert preview(blueprint, item=item, judge=name).request.query == next(holds)


def test_a_batch_of_a_live_judge_is_shown_without_a_key(batches, sortition):
    code, out, err = sortition("preview", batches, "--judge", "b")
    first = out.splitlines()[0]
    assert code == 0
    assert re.match(r"question  a batch of 4: (\w\d, ){3}\w\d   judge b \(anthropic", first)
    shown = re.findall(r"^text (\w\d)$", out, re.MULTILINE)
    assert first.startswith(f"question  a batch of 4: {', '.join(shown)} ")
    assert "nothing was sent" in err
    document = json.loads(sortition("preview", batches, "--item", "B3", "--json")[1])
    units = [unit["item"] for unit in document["units"]]
    assert len(units) == 4
    assert "B3" in units
    assert document["item"] == units[0]
    assert sortition("preview", batches, "--item", "B9")[0] == 2


def test_a_batch_that_is_never_asked_is_not_made_up(batches, sortition):
    """The first order of the file leaves the last items out."""
    fixed = ("--set", "policy={kind: batch_design, design: fixed, batch_size: 4, blocks: 1}")
    code, _, err = sortition("preview", batches, *fixed, "--item", "B4")
    assert (code, err) == (2, "the policy asks no such question before it has answers\n")


# --- the command -------------------------------------------------------------------------------


def test_the_command_shows_all_of_it_and_sends_nothing(sortition, tmp_path, monkeypatch):
    """C57: sockets are blocked here; no run is made; the word mock stands in it."""
    monkeypatch.chdir(tmp_path)
    code, out, err = sortition(
        "preview", QUICKSTART, "--item", "q07", "--arm", "v2", "--judge", "mid"
    )
    assert code == 0
    assert "item q07   arm v2   judge mid (mock)" in out
    assert "message 1, role user" in out
    assert "<<<candidate " in out
    assert "<<<end " in out
    assert '"maximum": 5' in out
    assert "450 input + 200 output tokens at most" in out
    assert "hold      $0.001450" in out
    assert "expected  $0.000750" in out
    assert "answer    by schema" in out
    assert "params    none" in out
    assert "mock" in out
    assert err.splitlines()[-1] == f"next: sortition plan {QUICKSTART}"
    assert "nothing was sent" in err
    assert list(tmp_path.iterdir()) == []


def test_programs_get_the_same_as_json(sortition):
    code, out, _ = sortition("preview", QUICKSTART, "--json")
    document = json.loads(out)
    assert code == 0
    assert document["is_first"]
    assert document["mock"]
    assert [message["role"] for message in document["messages"]] == ["user", "user"]
    assert document["schema"]["required"] == ["score"]
    assert document["hold_nano_usd"] > document["expected_nano_usd"] > 0
    assert document["bound"] == {"input_tok": 450, "output_tok": 200}


def test_a_wrong_name_is_a_usage_error(sortition):
    assert sortition("preview", QUICKSTART, "--judge", "nobody")[0] == 2


def test_a_live_judge_is_shown_without_a_key(sortition, tmp_path):
    """Nothing is sent, so no key is needed; its calls are bounded by bytes."""
    text = QUICKSTART.read_text(encoding="utf-8").replace("data/", f"{QUICKSTART.parent}/data/")
    text = text.replace("file://rubrics", f"file://{QUICKSTART.parent}/rubrics")
    text = text.replace("adapter: mock", "adapter: openai\n    model: some-model", 1)
    path = tmp_path / "live.yaml"
    path.write_text(text, encoding="utf-8")
    code, out, _ = sortition("preview", path, "--judge", "large")
    assert code == 0
    assert "judge large (openai some-model)" in out
    assert "mock" not in out
    cold = ("--set", "judges.large.params.temperature=0.2", "--set", "policy.max_repeats=1")
    code, out, _ = sortition("preview", path, "--judge", "large", *cold)
    assert "params    none; left out: temperature" in out
    code, out, _ = sortition("preview", path, "--judge", "large", *cold, "--json")
    document = json.loads(out)
    assert [document[key] for key in ("route", "params", "dropped")] == [
        "schema",
        {},
        ["temperature"],
    ]
    code, out, _ = sortition("preview", path, "--judge", "large", "--mock")
    assert "mock" in out
