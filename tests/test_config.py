"""The campaign file: what it means, and every way of getting it wrong."""

import json
import subprocess
import sys
from copy import deepcopy
from decimal import Decimal
from pathlib import Path
from types import ModuleType
from typing import Annotated

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from pydantic import BaseModel, ConfigDict, Field

from orchestrator import quantities
from orchestrator.campaign import Campaign
from orchestrator.config import OPERATIONAL, json_schema, load_campaign
from orchestrator.core.errors import InvalidCampaign
from orchestrator.core.money import NANO_PER_USD, format_usd
from orchestrator.core.ports import Plugin
from orchestrator.core.scale import ScaleType
from orchestrator.document import parse
from orchestrator.planned import refused

INPUTS = Path(__file__).parent / "inputs"

PLAIN = """\
version: 1
name: plain
data: {path: items.csv, id: ticket, fields: {candidate: short_reply}}
judges:
  - {name: large, adapter: mock, price_usd_per_1m: {input: 2, output: 10}}
  - {name: small, adapter: mock, price_usd_per_1m: {input: 1, output: 4}}
task: {kind: rate, scale: {type: integer, min: 1, max: 5}}
policy: {kind: uniform, max_repeats: 1}
budget: {usd: 5}
"""


@pytest.fixture
def folder(tmp_path):
    """A folder of its own with the test inputs."""
    for path in INPUTS.iterdir():
        (tmp_path / path.name).write_bytes(path.read_bytes())
    return tmp_path


@pytest.fixture
def load(folder):
    def load(text, environ=None, **options):
        path = folder / "c.yaml"
        path.write_text(text, encoding="utf-8")
        return load_campaign(path, environ=environ or {}, **options)

    return load


@pytest.fixture
def problems(load, folder):
    """Give the problems of a file as text, without the folder."""

    def problems(text, **options):
        with pytest.raises(InvalidCampaign) as caught:
            load(text, **options)
        return [str(p).replace(f"{folder}/", "") for p in caught.value.problems]

    return problems


def plain(**sections):
    """The plain campaign with whole sections replaced, added, or left out (None)."""
    kept, replaced = [], False
    for line in PLAIN.splitlines(keepends=True):
        if not line.startswith(" "):
            replaced = line.split(":")[0] in sections
        if not replaced:
            kept.append(line)
    kept += [f"{key}: {value}\n" for key, value in sections.items() if value is not None]
    return "".join(kept)


# --- what a file means -------------------------------------------------------------------------


def test_a_whole_file_is_read():
    file = load_campaign(INPUTS / "campaign.yaml", environ={})
    campaign = file.campaign
    large, small, earlier = campaign.judges
    assert (campaign.name, campaign.seed) == ("replies", 3)
    assert campaign.budget.usd == 1_500_000_000
    assert campaign.budget.max_requests == 2000
    assert campaign.budget.wall_clock == 900
    assert large.price_usd_per_1m.input == 2_000_000
    assert large.price_usd_per_1m.cached_input == 200_000
    assert small.limits.input_tpm == 400_000
    assert [judge.limits.concurrency for judge in campaign.judges] == [16, 40, 16]
    assert earlier.own_settings.judge == "panel"
    assert campaign.task.rubric.startswith("Rate the reply")
    assert campaign.data.arm_names == ("terse", "warm")
    assert campaign.truth_column == "quality"
    assert campaign.policy.settings.max_repeats == 2
    assert campaign.stop.target_half_width == 0.2
    assert file.warnings == ()


def test_criteria_become_values_of_the_core(load):
    correct, helpful = load_campaign(
        INPUTS / "campaign.yaml", environ={}
    ).campaign.task.criteria_values()
    assert (correct.scale.type, correct.scale.labels) == (ScaleType.BOOLEAN, ("no", "yes"))
    assert (correct.weight, helpful.weight) == (2, 1)
    (score,) = load(PLAIN).campaign.task.criteria_values()
    assert (score.name, score.scale.low, score.scale.high) == ("score", 1, 5)


def test_defaults_of_judges_are_merged_block_by_block(load):
    judges = """
  - {name: a, adapter: mock, params: {temperature: 0.5}}
  - {name: b, adapter: mock, params: {max_output_tokens: 900}, price_usd_per_1m: {input: 3, output: 4}}"""
    defaults = """{params: {max_output_tokens: 300, top_p: 0.9}, max_attempts: 5,
      price_usd_per_1m: {input: 1, cached_input: 0.5, output: 2}}"""
    a, b = load(plain(judge_defaults=defaults, judges=judges)).campaign.judges
    assert (a.params.max_output_tokens, a.params.temperature, a.params.top_p) == (300, 0.5, 0.9)
    assert (b.params.max_output_tokens, b.params.top_p) == (900, 0.9)
    assert a.max_attempts == b.max_attempts == 5
    assert a.price_usd_per_1m.cached_input == 500_000
    assert b.price_usd_per_1m.cached_input is None


def test_the_estimate_is_the_scores_unless_given(load):
    (entry,) = load(PLAIN).campaign.estimate
    assert (entry.name, entry.kind, entry.settings.confidence) == ("scores", "score_means", 0.95)


def test_the_first_estimate_is_primary_unless_another_says_so(load):
    two = "[{name: a, kind: score_means}, {name: b, kind: score_means, primary: %s}]"
    assert load(plain(estimate=two % "false")).campaign.primary.name == "a"
    assert load(plain(estimate=two % "true")).campaign.primary.name == "b"


def test_arms_that_a_column_names_are_known_from_the_data_alone(load):
    data = "{path: items.csv, id: ticket, arm: topic, fields: {candidate: message}}"
    contrast = "[{name: d, kind: score_means, contrast: {arm: any, baseline: other}}]"
    assert load(plain(data=data, estimate=contrast)).campaign.data.arm_names is None


def test_no_and_yes_are_text_and_010_is_ten(load):
    """YAML 1.2: only true and false are booleans."""
    task = "{kind: rate, scale: {type: boolean, labels: [no, yes]}, allow_na: true}"
    campaign = load(plain(task=task, seed="010")).campaign
    assert campaign.task.scale.labels == ("no", "yes")
    assert campaign.task.allow_na is True
    assert campaign.seed == 10
    assert load(plain(seed="0x1F")).campaign.seed == 31
    assert load(plain(seed="0o17")).campaign.seed == 15


def test_a_date_is_text(load):
    """A model may be named by its date."""
    judges = "[{name: a, adapter: mock, model: 2026-08-01}]"
    assert load(plain(judges=judges)).campaign.judges[0].model == "2026-08-01"


def test_paths_are_relative_to_the_file(folder, monkeypatch):
    monkeypatch.chdir(folder.parent)
    file = load_campaign(Path(folder.name) / "campaign.yaml", environ={})
    assert file.campaign.data.path == folder / "items.csv"
    assert file.campaign.judges[2].recorded.path == folder / "ratings.csv"


def test_recorded_judges_are_asked_once_unless_resampled(load):
    judge = "[{name: a, adapter: recorded, recorded: {path: ratings.csv, judge: p, usd_per_call: 0.1%s}}]"
    data = "{path: items.csv, id: ticket}"
    once = load(plain(judges=judge % "", data=data, policy="{kind: uniform}"))
    again = ", on_exhausted: resample"
    more = load(plain(judges=judge % again, data=data, policy="{kind: uniform}"))
    assert once.campaign.policy.settings.max_repeats == 1
    assert more.campaign.policy.settings.max_repeats is None


# --- problems ----------------------------------------------------------------------------------


def test_all_problems_come_at_once_each_with_its_place(problems):
    """C25: unknown key, bad money, unknown judge, unknown kind: one line each, exit 2."""
    text = PLAIN.replace("budget: {usd: 5}", "buget: {usd: 5}\nbudget: {usd: %s}")
    said = {"0": "0", "-1": "-1", "five": '"five"'}
    for written, shown in said.items():
        found = problems(
            (text % written).replace(
                "{kind: uniform, max_repeats: 1}", "{kind: two_phase, anchor: larg}"
            )
        )
        wants = "an amount in USD such as 20 or 2.50" if written == "five" else "more than 0 USD"
        assert found == [
            'c.yaml:8:27  policy.anchor — no judge is named "larg"; did you mean "large"?',
            'c.yaml:9:1  buget — unknown key at top level; did you mean "budget"?',
            f"c.yaml:10:10  budget.usd — wants {wants}, not {shown}",
        ]
    assert problems(PLAIN.replace("uniform", "unifrom")) == [
        'c.yaml:8:10  policy.kind — no policy kind is named "unifrom"; did you mean "uniform"?'
    ]


def test_the_error_counts_the_problems(load):
    with pytest.raises(InvalidCampaign, match=r"2 problems; nothing was sent\Z"):
        load(plain(seed="-1", name="''"))


PRIMARY = "{name: %s, kind: score_means, primary: true}"


@pytest.mark.parametrize(
    ("section", "value", "path", "wants"),
    [
        ("version", "2", "version", "wants 1, not 2"),
        ("name", "3", "name", "wants text, not 3"),
        ("name", "' x'", "name", "wants a name on one line"),
        ("seed", "1.5", "seed", "wants a whole number, not 1.5"),
        ("seed", "true", "seed", "wants a whole number, not true"),
        ("judges", "[]", "judges", "wants at least one"),
        ("judges", "large", "judges", 'wants a list, not "large"'),
        ("task", "{kind: rat}", "task.kind", "wants rate, rate_batch, compare or check"),
        ("task", "{scale: {type: boolean}}", "task.kind", "missing"),
        ("task", "{kind: rate}", "task.scale", "missing"),
        (
            "task",
            "{kind: rate, scale: {type: boolean, labels: [a, a]}}",
            "task.scale.labels",
            "two different words",
        ),
        (
            "task",
            "{kind: compare, criteria: [{name: c, scale: {type: boolean}}]}",
            "task.criteria[0].scale.type",
            "wants preference",
        ),
        (
            "task",
            "{kind: rate, scale: {type: integer, min: 5, max: 5}}",
            "task.scale.max",
            "more than",
        ),
        (
            "task",
            "{kind: rate, scale: {type: integer, min: 0.5, max: 5}}",
            "task.scale.min",
            "whole",
        ),
        (
            "task",
            "{kind: rate, scale: {type: float, min: .nan, max: 5}}",
            "task.scale.min",
            "number",
        ),
        ("task", "{kind: rate, scale: {type: preference}}", "task.scale.type", "not preference"),
        (
            "task",
            "{kind: rate, criteria: [{name: composite, scale: {type: boolean}}]}",
            "task.criteria[0].name",
            "weighted mean",
        ),
        (
            "task",
            "{kind: rate, scale: {type: boolean}, criteria: [{name: a, scale: {type: boolean}}]}",
            "task.scale",
            "not both",
        ),
        (
            "task",
            "{kind: rate, scale: {type: boolean}, allow_na: yes}",
            "task.allow_na",
            'not "yes"',
        ),
        (
            "task",
            "{kind: rate, scale: {type: integer, min: 0, max: 1.0e+200}}",
            "task.scale.max",
            "wants at most 1e+12 in size",
        ),
        ("policy", "{kind: uniform, max_repeats: 1, window: 0}", "policy.window", "more than 0"),
        ("policy", "{kind: uniform, max_repeats: two}", "policy.max_repeats", "whole number"),
        ("policy", "{kind: uniform, max_repeat: 1}", "policy.max_repeat", '"max_repeats"?'),
        ("policy", "{max_repeats: 1}", "policy.kind", "missing"),
        ("policy", "{kind: est_ivwe, p: 0.5}", "policy.p", "wants a number from 1 up, not 0.5"),
        ("policy", "{kind: est_ivwe, weights: {larg: 1}}", "policy.weights.larg", '"large"?'),
        (
            "policy",
            "{kind: active_pairwise, floor: 0}",
            "policy.floor",
            "wants 0.1 or more, not 0",
        ),
        ("budget", "5", "budget", "wants a mapping, not 5"),
        ("budget", "{usd: 0.0000000001}", "budget.usd", "finer than one nano-USD"),
        ("budget", "{usd: 10000m}", "budget.usd", "at most 9 billion"),
        ("budget", "{usd: 5, max_uncertain: 10}", "budget.max_uncertain", "at most 1, not 10"),
        ("budget", "{usd: 5, wall_clock: 3x}", "budget.wall_clock", "30s, 15m, 6h or 30d"),
        ("budget", "{usd: 5, max_requests: 1.5}", "budget.max_requests", "whole number"),
        ("stop", "{when: target}", "stop.target_half_width", "missing"),
        ("stop", "{when: gate_decided}", "stop.when", "wants a gate"),
        ("stop", "{rule: obrien_fleming, check: end}", "stop.check", "implies group_sequential"),
        ("stop", "{confidence: 95}", "stop.confidence", "less than 1, not 95"),
        ("estimate", "[{name: a, kind: score_mean}]", "estimate[0].kind", '"score_means"?'),
        ("estimate", "[{kind: score_means}]", "estimate[0].name", "missing"),
        (
            "estimate",
            "[{name: a, kind: markov_glmm, contrast: {baseline: b}}]",
            "estimate[0].contrast",
            "wants group or arm",
        ),
        ("estimate", f"[{PRIMARY % 'a'}, {PRIMARY % 'b'}]", "estimate[1].primary", "already"),
        (
            "estimate",
            "[{name: a, kind: score_means, criterion: scor}]",
            "estimate[0].criterion",
            'did you mean "score"?',
        ),
        (
            "estimate",
            "[{name: a, kind: score_means, contrast: {arm: x, baseline: y}}]",
            "estimate[0].contrast.arm",
            'no arm is named "x"',
        ),
        ("gate", "[{estimate: score, rule: superior}]", "gate[0].estimate", 'mean "scores"?'),
        ("gate", "[{estimate: scores, rule: better}]", "gate[0].rule", "non_inferior"),
        ("output", "{dir: 3}", "output.dir", "wants a path, not 3"),
        ("output", "{formats: [pdf]}", "output.formats[0]", 'not "pdf"'),
        ("shutdown", "{grace: -1}", "shutdown.grace", "wants a duration"),
        ("data", "{path: itms.csv}", "data.path", "no such file"),
        ("data", "{id: a}", "data.path", "missing"),
        ("data", "{path: items.csv, arms: {a: items.csv}}", "data.path", "file of its own"),
        ("data", "{arms: {a: {candidate: x}}}", "data.path", "missing"),
        ("data", "{path: items.csv, arms: {a: {c: x}}, arm: b}", "data.arm", "not both"),
        ("data", "{arms: {}}", "data.arms", "at least one arm"),
        ("data", "{arms: {a: items.csv, b: {c: x}}}", "data.arms", "not both"),
        ("data", "{path: items.csv, arms: {a: {c: x}, b: {d: x}}}", "data.arms", "the same fields"),
        ("data", "{path: items.csv, arms: {a: {c: x}}, fields: {c: y}}", "data.fields.c", "too"),
        ("data", "{path: items.csv, fields: {9a: x}}", "data.fields.9a", "can't name a field"),
        ("data", "{path: items.csv, id: ticket}", "data.fields", "wants something to read"),
    ],
)
def test_each_mistake_is_named_at_its_place(problems, section, value, path, wants):
    found = [line for line in problems(plain(**{section: value})) if f"  {path} — " in line]
    assert found, problems(plain(**{section: value}))
    assert wants in found[0]
    assert found[0].startswith("c.yaml:")


RECORDED = "adapter: recorded, recorded: {path: ratings.csv, judge: p, usd_per_call: 1}"


@pytest.mark.parametrize(
    ("judge", "path", "wants"),
    [
        ("adapter: moc", "adapter", 'did you mean "mock"?'),
        ("adapter: moc, modl: x", "modl", 'did you mean "model"?'),
        ("adapter: openai", "model", "missing"),
        ("adapter: compatible, model: m", "base_url", "missing"),
        ("adapter: mock, base_url: 'localhost:80'", "base_url", "http://"),
        ("adapter: mock, base_url: 'http://[CANARY'", "base_url", "http://"),
        (
            "adapter: mock, price_usd_per_1m: {input: -1, output: 1}",
            "price_usd_per_1m.input",
            "price",
        ),
        ("adapter: mock, api_key_env: sk-CANARY-1", "api_key_env", "never a key"),
        ("adapter: mock, api_key: sk-CANARY-1", "api_key", "api_key_env"),
        ("adapter: mock, price_usd_per_1m: fre", "price_usd_per_1m", "wants sheet or free"),
        ("adapter: mock, price_usd_per_1m: {input: 1}", "price_usd_per_1m.output", "missing"),
        ("adapter: mock, mock: {bais: 1}", "mock.bais", 'did you mean "bias"?'),
        ("adapter: mock, mock: {tokens: {inn: 1}}", "mock.tokens.inn", 'did you mean "in"?'),
        ("adapter: mock, mock: {sd: '1'}", "mock.sd", 'wants a number, not "1"'),
        ("adapter: mock, settings: {}", "settings", "elsewhere"),
        ("adapter: recorded", "recorded", "missing"),
        (
            "adapter: recorded, recorded: {path: ratings.csv, judge: p}",
            "recorded.usd_per_call",
            "missing",
        ),
        ("adapter: recorded, recorded: {path: r.csv, judge: p}", "recorded.path", "no such file"),
        (f"price_usd_per_1m: free, {RECORDED}", "price_usd_per_1m", "never read"),
        ("adapter: mock, recorded: {path: ratings.csv, judge: p}", "recorded", "not mock"),
        ("adapter: mock, timeouts: {attempt: 20m}", "timeouts.attempt", "900 s, not 1200 s"),
        ("adapter: mock, limits: {rpm: 0}", "limits.rpm", "more than 0"),
        ("adapter: mock, max_attempts: 0", "max_attempts", "more than 0"),
        ("adapter: mock, budget_usd: 0", "budget_usd", "more than 0 USD"),
        ("adapter: mock, planning_usd_per_call: -1", "planning_usd_per_call", "0 USD or more"),
    ],
)
def test_each_mistake_about_a_judge_names_it(problems, judge, path, wants):
    found = problems(plain(judges=f"[{{name: Größe, {judge}}}]"))
    (line,) = [line for line in found if f"  judges[0].{path} — " in line]
    assert wants in line
    assert line.endswith('(in "Größe")')
    assert "CANARY" not in "".join(found)


def test_a_price_of_null_is_refused_with_the_judges_name(problems):
    """C06b: nothing is not a price."""
    (line,) = problems(PLAIN.replace("{input: 1, output: 4}", "null"))
    assert line == (
        "c.yaml:6:34  judges[1].price_usd_per_1m — wants sheet, free, or {input, output, ...} "
        'in USD per million tokens, not null (in "small")'
    )


FREE = "[{name: local, adapter: mock, price_usd_per_1m: free}]"


@pytest.mark.parametrize(
    ("budget", "policy"),
    [
        ("{max_requests: 10}", "{kind: uniform}"),
        ("{max_tokens: 1m}", "{kind: uniform}"),
        ("{wall_clock: 1h}", "{kind: uniform}"),
        ("{}", "{kind: uniform, max_repeats: 3}"),
    ],
)
def test_free_judges_need_an_end_and_no_money(load, budget, policy):
    """C06c: a local server is free, and some other limit ends the run."""
    campaign = load(plain(judges=FREE, budget=budget, policy=policy)).campaign
    assert campaign.judges[0].is_free
    assert campaign.budget.usd is None


def test_free_judges_without_an_end_are_refused(problems):
    """C06c, the other way."""
    (line,) = problems(plain(judges=FREE, budget=None, policy="{kind: uniform}"))
    assert "  budget — every judge is free" in line


def test_a_priced_judge_needs_a_budget(problems):
    (line,) = problems(plain(budget="{max_requests: 10}"))
    assert line == 'c.yaml:9:1  budget.usd — missing; judge "large" is not free'


def test_a_price_of_ones_own_is_read_exactly(load):
    """C06d: what the file states for a known model is used."""
    rates = load(PLAIN, overrides={"judges.large.price_usd_per_1m.input": "0.15"})
    assert rates.campaign.judges[0].price_usd_per_1m.input == 150_000


def test_a_price_per_token_is_warned_of(load):
    """C06e: 0.000002 is what a token costs, not a million of them."""
    file = load(PLAIN.replace("{input: 1, output: 4}", "{input: 0.000002, output: 4}"))
    (warning,) = file.warnings
    assert "judges[1].price_usd_per_1m.input — looks like USD per token" in str(warning)
    assert warning.line == 6


@pytest.mark.parametrize(
    ("adapter", "path", "is_warned"),
    [
        ("openai", "/v1/chat/completions", True),
        ("openai", "/v1/responses/", True),
        ("openai", "/v1", False),
        ("compatible", "/v1/chat/completions", True),
        ("compatible", "/v1", False),
        ("anthropic", "/v1", True),
        ("anthropic", "/v1/messages", True),
        ("anthropic", "/proxy", False),
    ],
)
def test_a_path_that_the_adapter_adds_itself_is_warned_of(load, adapter, path, is_warned):
    """A password in the address is not repeated."""
    live = f"adapter: {adapter}, model: m, base_url: 'https://me:pw@host{path}'"
    warnings = load(PLAIN.replace("adapter: mock", live, 1)).warnings
    assert [warning.path for warning in warnings] == ["judges[0].base_url"] * is_warned
    assert all("ends in /" in str(warning) and "pw" not in str(warning) for warning in warnings)


def test_repeats_at_temperature_zero_are_refused(load, problems):
    cold = PLAIN.replace("name: small,", "name: small, params: {temperature: 0},")
    more = cold.replace("max_repeats: 1", "max_repeats: 2")
    (line,) = problems(more)
    assert "  judges[1].params.temperature — repeats at temperature 0" in line
    load(cold)
    load(more.replace("max_repeats: 2", "max_repeats: 2, allow_identical_repeats: true"))


def test_names_are_given_once(problems):
    judges = "[{name: a, adapter: mock}, {name: a, adapter: mock}]"
    (line,) = problems(plain(judges=judges))
    assert '  judges[1].name — "a" is the name of judges[0] already' in line
    scale = "scale: {type: boolean}"
    task = f"{{kind: rate, criteria: [{{name: c, {scale}}}, {{name: c, {scale}}}]}}"
    (line,) = problems(plain(task=task))
    assert '  task.criteria[1].name — "c" is the name of task.criteria[0] already' in line


def test_mocks_share_one_truth(problems):
    judges = (
        "[{name: a, adapter: mock, mock: {truth: quality}}, "
        "{name: b, adapter: mock, mock: {truth: y}}]"
    )
    (line,) = problems(plain(judges=judges))
    assert '  judges[1].mock.truth — another mock takes "quality"' in line


def test_a_comparison_needs_two_arms(problems):
    (line,) = problems(plain(task="{kind: compare, scale: {type: preference}}"))
    assert "  data.arms — compare wants two arms or more" in line


def test_only_comparisons_take_in_earlier_judgments(problems):
    """What nobody would read is refused."""
    found = problems(plain(data="{path: d.csv, fields: {candidate: c}, prior_judgments: [r]}"))
    said = "data.prior_judgments — judgments of earlier runs are taken in by compare"
    assert any(said in line for line in found)


ARMS = (
    "{path: items.csv, id: ticket, strata: topic, fields: {question: message}, "
    "arms: {short: {candidate: short_reply}, long: {candidate: long_reply}}}"
)


def compared(estimate, ties="true", **sections):
    """A campaign of comparisons of two arms with one estimate."""
    task = f"{{kind: compare, scale: {{type: preference, ties: {ties}}}}}"
    return plain(**{"data": ARMS, "task": task, "estimate": f"[{estimate}]"} | sections)


@pytest.mark.parametrize(
    ("context", "said"),
    [
        ("topics", '"topics" is not the column that data.strata names; did you mean "topic"?'),
        ("quality", '"quality" is not the column that data.strata names; known: topic'),
    ],
)
def test_strengths_differ_by_the_categories_of_the_data(load, problems, context, said):
    tensor = "{name: t, kind: bt_tensor, context: %s}"
    assert load(compared(tensor % "topic")).warnings == ()
    (wrong,) = problems(compared(tensor % context))
    assert f"estimate[0].context — {said}" in wrong
    without = ARMS.replace(" strata: topic,", "")
    (unset,) = problems(compared(tensor % "topic", data=without))
    assert "estimate[0].context — data.strata is not set" in unset


WRONG_NAMES = {
    "covariates[0].from": 'items.csv has no column "qualty"; did you mean "quality"?',
    "covariates[1].from": 'no field is named "candid8"; did you mean "candidate"?',
    "families.judges": 'no judge is named "larg"; did you mean "large"?',
    "families.arms": 'no arm is named "shrt"; did you mean "short"?',
    "contrast.arm": 'no arm is named "lng"; did you mean "long"?',
    "contrast.baseline": 'no arm is named "shor"; did you mean "short"?',
}


@pytest.mark.parametrize("more", ["", ", ties: dav"])
def test_all_wrong_names_of_an_estimate_come_at_once(problems, more):
    """Though a key of it, the task or the data's columns are wrong too."""
    wrong = (
        "{name: r, kind: bradley_terry, covariates: [{name: qualty}, "
        "{name: log_length, from: candid8}], families: {judges: {larg: us}, arms: {shrt: us}}, "
        "contrast: {arm: lng, baseline: shor}%s}"
    )
    order = "{kind: compare, order: bth, scale: {type: preference}}"
    found = problems(compared(wrong % more, task=order))
    for key, said in WRONG_NAMES.items():
        (line,) = (line for line in found if f"  estimate[0].{key} — " in line)
        assert said in line
    assert len(found) == len(WRONG_NAMES) + 1 + bool(more)


@pytest.mark.parametrize(
    ("keys", "ties", "said"),
    [
        ("ties: davidson", "false", "davidson models ties, and the scale of"),
        ("ties: rao_kupper", "false", "rao_kupper models ties, and the scale of"),
        ("ties: davidson", "true", None),
        ("ties: half", "false", None),
        ("families: {judges: {large: us}, arms: {short: them}}", "true", "no judge has the family"),
        ("families: {judges: {large: us}, arms: {short: us}}", "true", None),
    ],
)
def test_what_an_estimate_of_comparisons_can_not_show_is_warned_of(load, keys, ties, said):
    warnings = load(compared(f"{{name: r, kind: bradley_terry, {keys}}}", ties)).warnings
    assert [w.path for w in warnings] == [f"estimate[0].{keys.split(':')[0]}"] * (said is not None)
    assert all(said in w.message for w in warnings)


def test_a_mistake_in_the_defaults_is_shown_there_once(problems):
    (line,) = problems(plain(judge_defaults="{params: {max_output_token: 3}}"))
    assert line == (
        "c.yaml:10:27  judge_defaults.params.max_output_token — unknown key; "
        'did you mean "max_output_tokens"?'
    )


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3)
    ),
    max_leaves=5,
)


def places(value, at=()):
    """All places in a document, by path."""
    yield at
    match value:
        case dict():
            inner = value.items()
        case list():
            inner = enumerate(value)
        case _:
            return
    for key, below in inner:
        yield from places(below, (*at, key))


WHOLE = {
    name: parse((INPUTS / f"{name}.yaml").read_text(encoding="utf-8"), name).data
    for name in ("campaign", "planned")
}


@pytest.mark.parametrize("name", ["campaign", "planned"])
@given(data=st.data())
@settings(
    deadline=None,
    max_examples=60,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
def test_any_value_anywhere_is_read_or_refused(folder, name, data):
    """No mistake ends in a traceback."""
    whole = deepcopy(WHOLE[name])
    *around, last = data.draw(st.sampled_from([at for at in places(whole) if at]))
    holder = whole
    for key in around:
        holder = holder[key]
    holder[last] = data.draw(JSON)
    (folder / "c.yaml").write_text(json.dumps(whole), encoding="utf-8")
    found = []
    try:
        file = load_campaign(folder / "c.yaml", environ={})
    except InvalidCampaign as exc:
        found = exc.problems
    else:
        json.dumps(file.identity_json(), allow_nan=False)
        found = refused(file)
        file.resolved_yaml()
    assert all(len(str(problem).splitlines()) == 1 for problem in found)


def test_everything_planned_is_valid_and_refused_by_name():
    file = load_campaign(INPUTS / "planned.yaml", environ={})
    assert {problem.path for problem in refused(file)} == {"judges[0].lane", "output.formats"}


# --- YAML --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("version: 1\nname: [\n", "c.yaml:3:1  not readable as YAML"),
        ("version: 1\n---\nversion: 1\n", "c.yaml:2:1  not readable as YAML"),
        ("a: \x01\n", "c.yaml  not readable as YAML"),
        ("", "c.yaml  wants a mapping of keys, not null"),
        ("- a\n", "c.yaml:1:1  wants a mapping of keys, not a list"),
    ],
)
def test_what_is_no_campaign_file_is_one_problem(problems, text, line):
    (found,) = problems(text)
    assert found.startswith(line)
    assert "\n" not in found


@pytest.mark.parametrize(
    ("more", "said"),
    [
        ("name: again\n", "c.yaml:10:1  name — given twice; first on line 2"),
        ("seed: !secret 3\n", "c.yaml:10:7  seed — the tag !secret is not read"),
        ("? [a]\n: 1\n", "c.yaml:10:3  a key must be plain text"),
        ("stop: &s {every: 5}\ncache: *s\n", "c.yaml:11:1  cache — an alias is not read"),
    ],
)
def test_oddities_of_yaml_are_refused(problems, more, said):
    assert any(line.startswith(said) for line in problems(PLAIN + more))


def test_a_file_that_is_not_there_or_not_utf8_is_a_problem(tmp_path):
    with pytest.raises(InvalidCampaign, match=r"none\.yaml  can't be read: No such file"):
        load_campaign(tmp_path / "none.yaml", environ={})
    (tmp_path / "latin.yaml").write_bytes("name: Größe".encode("latin-1"))
    with pytest.raises(InvalidCampaign, match=r"latin\.yaml  not UTF-8"):
        load_campaign(tmp_path / "latin.yaml", environ={})


def test_a_byte_order_mark_is_accepted(load):
    assert load("\ufeff" + PLAIN).campaign.name == "plain"


# --- rubrics -----------------------------------------------------------------------------------

RATE = "{kind: rate, scale: {type: boolean}, rubric: %s}"


def test_a_rubric_is_read_from_a_file_or_from_the_place(load):
    assert load(plain(task=RATE % "file://rubric.md")).campaign.task.rubric.startswith("Rate the")
    assert load(plain(task=RATE % "'Be fair.'")).campaign.task.rubric == "Be fair."
    assert load(PLAIN).campaign.task.rubric is None


@pytest.mark.parametrize(
    ("written", "wants"),
    [
        ("file://none.md", "no such file"),
        ("rubric.md", "looks like a file; wants file://rubric.md"),
        ("' '", "blank"),
        ("file://latin.md", "not UTF-8"),
    ],
)
def test_a_rubric_that_is_not_there_is_a_problem_with_its_line(problems, folder, written, wants):
    (folder / "latin.md").write_bytes("Größe".encode("latin-1"))
    (line,) = problems(plain(task=RATE % written))
    assert line.startswith("c.yaml:9:")
    assert wants in line


# --- overrides ---------------------------------------------------------------------------------


def test_overrides_win_and_go_by_name_or_index(load):
    campaign = load(
        PLAIN,
        overrides={
            "budget.usd": "7.5",
            "judges.large.limits.concurrency": "3",
            "judges[1].limits": "{rpm: 20}",
            "output.keep.prompts": "none",
            "name": "again",
            "stop.min_items": 4,
        },
    ).campaign
    assert campaign.budget.usd == 7_500_000_000
    assert campaign.judges[0].limits.concurrency == 3
    assert campaign.judges[1].limits.rpm == 20
    assert campaign.output.keep.prompts == "none"
    assert campaign.name == "again"
    assert campaign.stop.min_items == 4


def test_an_override_finds_a_name_with_dots(load):
    text = PLAIN.replace("name: large", "name: gpt-5.4").replace("name: small", "name: gpt-5")
    campaign = load(text, overrides={"judges.gpt-5.4.max_attempts": "1"}).campaign
    assert [judge.max_attempts for judge in campaign.judges] == [1, 3]


def test_an_override_is_no_exception_to_the_rules(problems):
    found = problems(
        PLAIN,
        overrides={
            "budget.usd": "five",
            "policy.windw": "3",
            "judges.larg.lane": "batch",
            "budget.usd.cents": "1",
            "seed": "[1",
            "sed": "1",
        },
    )
    assert found == [
        '--set  judges.larg.lane — no entry is named "larg"; did you mean "large"?',
        '--set  budget.usd.cents — can\'t be set, since budget.usd is "five"',
        "--set  seed — not readable as a value",
        '--set  policy.windw — unknown key; did you mean "window"?',
        '--set  budget.usd — wants an amount in USD such as 20 or 2.50, not "five"',
        '--set  sed — unknown key at top level; did you mean "seed"?',
    ]


def test_the_environment_says_where_results_go(load, folder, monkeypatch):
    monkeypatch.chdir(folder)
    file = load(plain(output="{dir: here}"), environ={"SORTITION_OUTPUT_DIR": "there"})
    assert file.campaign.output.dir == folder / "there"
    assert load(plain(output="{dir: here}")).campaign.output.dir == folder / "here"


# --- plug-ins from elsewhere -------------------------------------------------------------------


class FakeConfig(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)

    loud: bool = False
    word: Annotated[str, Field(max_length=3)] = ""


@pytest.fixture
def elsewhere(monkeypatch):
    module = ModuleType("somewhere")
    module.JUDGE = Plugin(config=FakeConfig, build=lambda config, setting: None)
    monkeypatch.setitem(sys.modules, "somewhere", module)


def test_an_adapter_from_elsewhere_has_settings(load, problems, elsewhere):
    judge = "[{name: a, adapter: 'somewhere:JUDGE', price_usd_per_1m: free%s}]"
    (quiet,) = load(plain(judges=judge % "")).campaign.judges
    (loud,) = load(plain(judges=judge % ", settings: {loud: true}")).campaign.judges
    assert (quiet.own_settings.loud, loud.own_settings.loud) == (False, True)
    (line,) = problems(plain(judges=judge % ", settings: {lod: true}"))
    assert 'settings.lod — unknown key; did you mean "loud"?' in line
    (line,) = problems(plain(judges=judge % ", settings: {word: long}"))
    assert "settings.word — string should have at most 3 characters" in line
    (line,) = problems(plain(judges="[{name: a, adapter: 'somewhere:NOBODY'}]"))
    assert "is no plug-in" in line


# --- the canonical examples --------------------------------------------------------------------


NAMED = [
    *(f"rubrics/{name}.md" for name in ("edge", "assistant", "faithfulness", "helpful", "correct")),
    *(f"out/{name}.jsonl" for name in ("v1", "v2", "01", "02", "03")),
    "prompts/answer.md",
    "edges.csv",
    "bench.parquet",
    "data/summaries.jsonl",
    "runs/20261123-checkpoints/run.db",
]


@pytest.fixture
def examples(shared_examples, tmp_path):
    """The canonical files, with something in the place of the data and texts that they name."""
    for path in shared_examples.glob("*.yaml"):
        (tmp_path / path.name).write_bytes(path.read_bytes())
    for name in NAMED:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("something\n", encoding="utf-8")
    return tmp_path


@pytest.mark.parametrize("name", ["batches", "benchmark", "gate", "pairwise", "scores"])
def test_canonical_files_are_valid(examples, name):
    file = load_campaign(examples / f"{name}.yaml", environ={})
    assert file.warnings == ()
    json.dumps(file.identity_json(), allow_nan=False)


@pytest.mark.parametrize("name", ["batches", "benchmark", "gate", "pairwise", "scores"])
def test_nothing_in_the_canonical_files_is_still_to_come(examples, name):
    assert refused(load_campaign(examples / f"{name}.yaml", environ={})) == []


GROUPS = "[{name: g, kind: markov_glmm, contrast: {group: repair, baseline: order}}]"


def batched(**sections):
    """A campaign of batches, with whole sections replaced or added."""
    usual = {
        "data": "{path: items.csv, id: ticket, group: topic, fields: {candidate: short_reply}}",
        "task": "{kind: rate_batch, scale: {type: boolean}}",
        "policy": "{kind: batch_design, design: williams}",
        "estimate": GROUPS,
    }
    return plain(**(usual | sections))


def paths(found):
    return [problem.split("  ")[1].split(" — ")[0] for problem in found]


def test_batches_their_policy_and_their_model_go_together(load, problems):
    """What asks batches, lays them out and reads them is named together, with the line."""
    assert load(batched()).warnings == ()
    found = problems(batched(task="{kind: rate, scale: {type: boolean}}"))
    assert paths(found) == ["policy.kind", "estimate[0].kind"]
    (lone,) = problems(batched(policy="{kind: uniform, max_repeats: 1}"))
    assert lone == (
        "c.yaml:9:10  policy.kind — uniform asks about one unit a call; rate_batch wants batch_design"
    )
    (wide,) = problems(batched(policy="{kind: batch_design, design: fixed, batch_size: 505}"))
    assert wide.endswith("policy.batch_size — a call names at most 504 units, not 505")


@pytest.mark.parametrize("line", [0, 6, 1])
def test_a_model_of_yes_and_no_wants_a_line_on_the_scale(load, problems, line):
    """The line between no and yes is missing, or parts nothing."""
    task = "{kind: rate_batch, scale: {type: integer, min: 1, max: 5}%s}"
    (missing,) = problems(batched(task=task % ""))
    assert "task.accept_from — missing; markov_glmm wants the lowest verdict" in missing
    (off,) = problems(batched(task=task % f", accept_from: {line}"))
    assert f"task.accept_from — {line} is no verdict that parts the others" in off
    assert load(batched(task=task % ", accept_from: 4")).campaign.task.accept_from == 4
    own = GROUPS.replace("name: g", "name: g, accept_from: 4")
    assert load(batched(task=task % "", estimate=own))


def test_planned_looks_want_an_estimate_that_spends_error_over_them(load, problems):
    """Stopping by looks reads a comparison of the model, and names what else would be read."""
    stop, gate = "{when: gate_decided, rule: obrien_fleming}", "[{estimate: g, rule: superior}]"
    assert load(batched(stop=stop, gate=gate)).campaign.stop.checking == "group_sequential"
    (other,) = problems(plain(stop="{rule: obrien_fleming}"))
    assert "stop.rule — the primary estimate is score_means; planned looks want" in other
    (checked,) = problems(plain(stop="{check: group_sequential}"))
    assert "stop.check — the primary estimate is score_means" in checked
    ranks = GROUPS.replace(", contrast: {group: repair, baseline: order}", "")
    assert (
        "stop.rule — planned looks want a contrast"
        in problems(batched(stop="{rule: obrien_fleming}", estimate=ranks))[0]
    )
    raw = GROUPS.replace("]", ", {name: raw, kind: score_means%s}]")
    (beside,) = problems(batched(stop=stop, gate=gate, estimate=raw % ""))
    assert "estimate[1].check — score_means has no bounds for planned looks" in beside
    assert load(batched(stop=stop, gate=gate, estimate=raw % ", check: end"))


def test_a_ranking_that_ends_the_run_wants_one_that_holds_at_every_look(load, problems):
    """What ranks is named, and what can be proved of a ranking meanwhile."""
    ranks = GROUPS.replace(", contrast: {group: repair, baseline: order}", "")
    for how in ("check: anytime", "rule: obrien_fleming"):
        stop = f"{{when: ranking_separated, {how}}}"
        assert load(batched(stop=stop, estimate=ranks)).campaign.stop.separates == "leader"
        (groups,) = problems(batched(stop=stop))
        assert "stop.when — ranking_separated wants a ranking; with a contrast" in groups
    anytime = "{when: ranking_separated, check: anytime%s}"
    (means,) = problems(plain(stop=anytime % ""))
    assert "stop.when — ranking_separated wants a ranking, and score_means makes none" in means
    pairs = "{kind: compare, scale: {type: preference}}"
    arms = "{path: d.csv, arms: {a: {candidate: a}, b: {candidate: b}}, strata: s}"
    tensor = "[{name: t, kind: bt_tensor, context: s}]"
    found = problems(plain(task=pairs, data=arms, estimate=tensor, stop=anytime % ""))
    assert any("ranking_separated wants a ranking, and bt_tensor makes none" in f for f in found)
    (peeking,) = problems(batched(stop="{when: ranking_separated}", estimate=ranks))
    assert "stop.check — a ranking that ends the run is read at every look" in peeking
    own = ranks.replace("}]", ", check: end}]")
    (ends,) = problems(batched(stop=anytime % "", estimate=own))
    assert "estimate[0].check — a ranking that ends the run" in ends
    (pairs,) = problems(batched(stop=anytime % ", separate: ranking", estimate=ranks))
    assert "stop.separate — markov_glmm separates the leader alone" in pairs
    (unread,) = problems(batched(stop="{separate: leader}", estimate=ranks))
    assert "stop.separate — when: target never reads it" in unread
    (level,) = problems(batched(stop=anytime % ", confidence: 0.9", estimate=ranks))
    assert "stop.confidence — the primary estimate has 0.95" in level


def test_groups_want_a_column_and_nothing_is_compared_with_itself(problems):
    without = "{path: items.csv, id: ticket, fields: {candidate: short_reply}}"
    (missing,) = problems(batched(data=without))
    assert "estimate[0].contrast.group — data.group is not set" in missing
    (same,) = problems(batched(estimate=GROUPS.replace("baseline: order", "baseline: repair")))
    assert 'estimate[0].contrast.baseline — "repair" can\'t be compared with itself' in same
    arms = "{arms: {new: {candidate: short_reply}, old: {candidate: long_reply}}, path: items.csv, id: ticket}"
    contrast = "[{name: e, kind: %s, contrast: {arm: new, baseline: new}}]"
    for kind in ("score_means", "markov_glmm"):
        (found,) = problems(batched(data=arms, estimate=contrast % kind))
        assert '"new" can\'t be compared with itself' in found


GRADES = "{kind: rate_batch, scale: {type: integer, min: 1, max: 5}%s}"
FREE = "[{name: large, adapter: mock, price_usd_per_1m: free}]"
ONE_GROUP = "{path: items.csv, id: ticket, group: ticket, fields: {candidate: short_reply}}"
BY_ARM = (
    "{arms: {new: {candidate: short_reply}, old: {candidate: long_reply}}, "
    "path: items.csv, id: ticket}"
)
ANYTIME = {
    "stop": "{when: gate_decided, check: anytime}",
    "gate": "[{estimate: g, rule: superior}]",
}


def model(**keys):
    """An estimate of the model with further keys."""
    more = "".join(f", {key}: {value}" for key, value in keys.items())
    return GROUPS.replace("}}]", f"}}{more}}}]")


@pytest.fixture
def refusals(problems, folder):
    """Give what is wrong with a campaign, as text without the folder: its file, or with its data."""

    def refusals(text, **options):
        (folder / "c.yaml").write_text(text, encoding="utf-8")
        with pytest.raises(InvalidCampaign) as caught:
            Campaign.from_yaml(folder / "c.yaml", **options).build()
        return [str(p).replace(f"{folder}/", "") for p in caught.value.problems]

    return refusals


def test_five_faults_of_a_batch_campaign_are_five_problems(refusals):
    """Each stands at its line with what is wanted, though some are found in the file and some only
    in the data."""
    faults = batched(
        task=GRADES % "",
        policy="{kind: batch_design, design: williams, batch_size: 9, balance: group}",
        budget="{max_requests: 100}",
        estimate=GROUPS.replace("repair", "repare").replace("order", "odrer"),
    )
    line = "missing; markov_glmm wants the lowest verdict that is a yes, above 1 and up to 5"
    found = [
        ("7:1", "task.accept_from", f"{line}, where the scale is"),
        ("8:48", "policy.batch_size", "9 is more than the 6 units that there are"),
        ("9:52", "estimate[0].contrast.group", _no_group("repare", "repair")),
        ("9:67", "estimate[0].contrast.baseline", _no_group("odrer", "order")),
        ("10:1", "budget.usd", 'missing; judge "large" is not free'),
    ]
    assert refusals(faults) == [f"c.yaml:{at}  {path} — {what}" for at, path, what in found]


def _no_group(name, meant):
    return f'no group is named "{name}"; did you mean "{meant}"? (in "g")'


@pytest.mark.parametrize(
    ("sections", "found"),
    [
        (
            {"policy": "{kind: batch_design, design: fixed, batch_size: 7, balance: group}"},
            {
                "policy.batch_size": "7 is more than the 6 units",
                "policy.balance": "fixed takes the file's order",
            },
        ),
        (
            {"estimate": GROUPS.replace("repair", "x"), "policy": "{kind: batch_design, design: a}"},
            {"policy.design": "wants shuffle, williams or fixed", "estimate[0].contrast.group": "x"},
        ),
        (
            {"policy": "{kind: batch_design, design: williams, batch_size: 2}",
             "estimate": model(lags=2, blocks=3, block_length=5, accept_from=0.5)},
            {
                "estimate[0].lags": "wants at most 1",
                "estimate[0].blocks": "policy.blocks, which it follows, is auto",
                "estimate[0].block_length": "have 2: leave it out",
                "estimate[0].accept_from": "a boolean scale has its yes",
            },
        ),
        (
            {"task": GRADES % "", "estimate": model(accept_from=6)},
            {"estimate[0].accept_from": "wants one above 1 and up to 5"},
        ),
        (
            {"data": BY_ARM, "estimate": GROUPS.replace("group: repair", "arm: newer")},
            {
                "estimate[0].contrast.arm": 'did you mean "new"?',
                "estimate[0].contrast.baseline": "known: new, old",
            },
        ),
        (
            {"data": ONE_GROUP, "estimate": GROUPS.replace("repair", "t1").replace("order", "t2")
             .replace("}}]", "}, inference: items}]")},
            {"estimate[0].inference": 'two units or more on each side, and "t'},
        ),
        (
            {"estimate": GROUPS.replace("group: repair", "arm: repair")},
            {
                "estimate[0].contrast.arm": "there are no arms",
                "estimate[0].contrast.baseline": "there are no arms",
            },
        ),
        ({"judges": FREE}, {"policy.blocks": "judges are free; wants a number"}),
        (
            {"judges": "[{name: large, adapter: recorded, recorded: {path: ratings.csv, judge: large, usd_per_call: 0.01}}]"},
            {"judges[0].adapter": "recordings hold verdicts on units one by one"},
        ),
        (
            {"policy": "{kind: batch_design, design: shuffle, check: anytime}"},
            {"policy.check": "the stop rule, which it follows, is end: leave it out"},
        ),
        (
            {"judges": "[{name: large, adapter: mock, price_usd_per_1m: free, mock: {truth: grade}}]",
             "policy": "{kind: batch_design, design: shuffle, blocks: 0}"},
            {"judges": 'no column "grade"', "policy.blocks": "wants a whole number above 0"},
        ),
        (
            {"judges": FREE.replace("free}", "free, planning_usd_per_call: 0.01}"),
             "budget": "{max_requests: 9}"},
            {"policy.blocks": "auto is what budget.usd pays for, and it is missing"},
        ),
        ({"budget": "{usd: 0.0001}", **ANYTIME}, {"policy.blocks": "the cap pays for 0 batches"}),
        ({"budget": "{usd: 0.0001}"}, {"policy.blocks": "the cap pays for 0 batches"}),
        (
            {"task": "{kind: rate_batch, scale: {type: boolean}, rubric: 'A {{ repply }}'}",
             "policy": "{kind: batch_design, design: shuffle, batch_size: 8}"},
            {"task.rubric": '"repply" is no field of data.fields (line 1 of the text)',
             "policy.batch_size": "8 is more"},
        ),
        (
            {"data": "{path: items.csv, id: ticket, group: topik, fields: {candidate: short_reply}}",
             "budget": "{}"},
            {"data.group": 'did you mean "topic"?', "budget.usd": "missing"},
        ),
    ],
)  # fmt: skip
def test_what_is_wrong_with_batches_is_named_together(refusals, sections, found):
    said = refusals(batched(**sections))
    assert sorted(set(paths(said))) == sorted(found)
    for path, words in found.items():
        assert any(f"{path} — " in line and words in line for line in said)
        assert all(line.startswith("c.yaml:") for line in said)


def test_a_pool_of_one_unit_is_no_batch(refusals):
    (alone,) = refusals(batched(estimate="[{name: g, kind: markov_glmm}]"), limit=1)
    assert "data — rate_batch wants two units or more in a call, and there is one" in alone


def test_balance_wants_something_to_balance(refusals, load, folder):
    balanced = "{kind: batch_design, design: shuffle, batch_size: 3, balance: group}"
    alone = "{path: items.csv, id: ticket, fields: {candidate: short_reply}}"
    ranks = "[{name: g, kind: markov_glmm}]"
    (nothing,) = refusals(batched(data=alone, policy=balanced, estimate=ranks))
    assert "policy.balance — there are neither groups nor arms: set data.group" in nothing
    load(batched(data=ONE_GROUP, policy=balanced, estimate=ranks))
    (rare,) = Campaign.from_yaml(folder / "c.yaml").build().warnings
    assert (rare.path, rare.line) == ("policy.balance", 9)
    assert "batches of 3 can't hold each of 6 groups" in rare.message
    one = refusals(batched(policy=balanced, estimate=ranks), limit=1)
    assert paths(one) == ["data", "policy.batch_size", "policy.balance"]
    assert 'all items are of one group, "' in one[2]


def test_an_end_of_free_judges_is_a_key_that_the_policy_takes(load, problems):
    """A number of blocks ends a run, as repeats do, and so does the end of a benchmark."""
    blocks = "{kind: batch_design, design: williams, blocks: 2}"
    assert load(batched(judges=FREE, budget="{}", policy=blocks)).warnings == ()
    (uniform,) = problems(plain(judges=FREE, budget="{}", policy="{kind: uniform}"))
    assert uniform.endswith("budget.wall_clock, stop.max_answers, or policy.max_repeats")
    assert load(plain(judges=FREE, budget="{}", policy="{kind: subsample}")).warnings == ()


def test_few_output_tokens_for_a_batch_are_warned_of(load, folder):
    """A live judge's answer about all units would be cut, and each one is paid for."""
    live = "[{name: large, adapter: openai, model: gpt-5-mini, price_usd_per_1m: {input: 1, output: 4}, params: {max_output_tokens: %d}}]"
    load(batched(judges=live % 59))
    (few,) = Campaign.from_yaml(folder / "c.yaml").build().warnings
    assert few.path == "judges[0].params.max_output_tokens"
    assert "59 are too few for 6 verdicts" in few.message
    load(batched(judges=live % 60))
    assert Campaign.from_yaml(folder / "c.yaml").build().warnings == ()


def test_a_cap_below_a_block_names_its_field_once(load, folder):
    load(batched(stop="{rule: obrien_fleming}", budget="{usd: 0.0001}"))
    with pytest.raises(InvalidCampaign) as caught:
        Campaign.from_yaml(folder / "c.yaml").build()
    (problem,) = caught.value.problems
    assert problem.path == "policy.blocks"
    assert problem.message.startswith("the cap pays for 0 batches")


def test_raw_means_of_batches_are_warned_of(load):
    """They are allowed beside the model, as what a spreadsheet would say."""
    raw = GROUPS.replace("]", ", {name: raw, kind: score_means}]")
    (warning,) = load(batched(estimate=raw)).warnings
    assert (warning.path, warning.line) == ("estimate[1].kind", 10)
    assert "hang on the order" in warning.message


def test_a_check_may_have_a_scale_or_is_right_or_wrong(load):
    check = "{kind: check, verdict: [{judge: large}, {judge: small}]%s}"
    (criterion,) = load(plain(task=check % "")).campaign.task.criteria_values()
    assert (criterion.name, criterion.scale.labels) == ("score", ("wrong", "right"))
    bounded = load(plain(task=check % ", scale: {type: float, min: 0, max: 2}"))
    assert bounded.campaign.task.criteria_values()[0].scale.high == 2


def test_a_policy_that_weighs_prices_wants_one_of_each_judge(load):
    """A free judge needs a planning price, and free judges alone a sum to spread all the same."""
    policy = "{kind: est_ivwe}"
    free = "[{name: big, adapter: mock, price_usd_per_1m: free}]"
    with pytest.raises(InvalidCampaign) as caught:
        load(plain(policy=policy, judges=free, budget="{max_requests: 9}"))
    assert [p.path for p in caught.value.problems] == [
        "judges[0].planning_usd_per_call",
        "budget.usd",
    ]
    planned = free.replace("free}", "free, planning_usd_per_call: 0.001}")
    assert load(plain(policy=policy, judges=planned)).warnings == ()


def test_the_batch_lane_is_refused_by_name_when_run(load):
    file = load(PLAIN.replace("name: small,", "name: small, lane: batch,"))
    (problem,) = refused(file)
    assert str(problem).endswith('judges[1].lane — batch is planned and not built yet (in "small")')
    assert refused(load(PLAIN)) == []


# --- identity and copies -----------------------------------------------------------------------

TOUCHED = """\
version: 1
name: touched
data: {arms: {a: items.csv, b: items.csv}, id: ticket, fields: {candidate: short_reply}}
judges:
  - name: large
    adapter: recorded
    base_url: https://user:CANARY@gpu:8000/v1?x=1
    recorded: {path: ratings.csv, judge: p, usd_per_call: 0.1}
    limits: {concurrency: 3}
    timeouts: {attempt: 5s}
    api_key_env: SOME_KEY
    budget_usd: 1
    assume: {sd: 1}
  - {name: small, adapter: mock, price_usd_per_1m: {input: 1, output: 4}}
task: {kind: rate, scale: {type: boolean}, rubric: file://rubric.md}
policy: {kind: uniform, max_repeats: 1, window: 8}
budget: {usd: 5, wall_clock: 1h}
cache: {dir: somewhere}
labels: {path: ratings.csv}
output: {dir: elsewhere}
shutdown: {grace: 1s}
"""


def test_identity_leaves_out_what_may_change(load, folder):
    """C19: concurrency, budget and prices may change; model, seed, rubric and judges may not."""
    identity = load(TOUCHED).identity_json()
    text = json.dumps(identity)
    for word in ("CANARY", str(folder), "concurrency", "grace", "SOME_KEY", "4000000", "somewhere"):
        assert word not in text
    planned = load_campaign(INPUTS / "planned.yaml", environ={}).identity_json()
    assert str(INPUTS) not in json.dumps(planned)
    for change in (
        {"judges.large.limits.concurrency": 9},
        {"budget.usd": 50},
        {"judges.small.price_usd_per_1m.input": 3},
        {"judges.large.timeouts.attempt": "9s"},
        {"output.dir": "another"},
    ):
        assert load(TOUCHED, overrides=change).identity_json() == identity
    for change in (
        {"seed": 9},
        {"judges.large.model": "other"},
        {"task.rubric": "Be fair."},
        {"policy.window": 9},
        {"policy.max_repeats": 2},
        {"judges.small.mock.sd": 2.0},
        {"judges.small.name": "tiny"},
        {"judges.large.base_url": "https://other/v1"},
        {"stop.target_half_width": 0.1},
        {"output.keep.replies": "parsed"},
        {"output.keep.prompts": "none"},
    ):
        assert load(TOUCHED, overrides=change).identity_json() != identity


def test_everything_operational_exists(load):
    """The table can't name a field that was renamed."""
    whole = load(TOUCHED).campaign.model_dump(mode="json", by_alias=True)
    for pattern in OPERATIONAL:
        found = [whole]
        for step in pattern.replace("judges|systems", "judges").split("."):
            found = [v[int(step)] if step.isdecimal() else v for v in found if v is not None]
            found = [
                inner
                for value in found
                for inner in (
                    list(value.values() if isinstance(value, dict) else value)
                    if step == "*"
                    else [value[step]]
                    if isinstance(value, dict) and step in value
                    else []
                )
            ]
        assert found, pattern


def test_a_resolved_copy_is_the_same_campaign(load, tmp_path):
    overrides = {"budget.usd": "7", "judges.large.limits.rpm": "20"}
    defaults = PLAIN + "judge_defaults: {params: {max_output_tokens: 90}}\n"
    file = load(defaults, overrides=overrides)
    copy = tmp_path / "elsewhere" / "resolved.yaml"
    copy.parent.mkdir()
    copy.write_text(file.resolved_yaml(), encoding="utf-8")
    again = load_campaign(copy, environ={})
    assert again.identity_json() == file.identity_json()
    assert again.campaign.budget == file.campaign.budget
    assert again.campaign.judges == file.campaign.judges
    assert again.campaign.data == file.campaign.data
    assert "CANARY" not in load(TOUCHED).resolved_yaml()


def test_other_rooms_can_name_a_place(load):
    file = load(PLAIN, overrides={"judges.small.model": "m"})
    assert str(file.locate("judges[0].price_usd_per_1m", "no price")).endswith(
        'c.yaml:5:34  judges[0].price_usd_per_1m — no price (in "large")'
    )
    assert file.locate("judges[1].model", "").file == "--set"
    assert file.locate("stop.every", "").line == 1


# --- schema and speed --------------------------------------------------------------------------


def test_the_shipped_json_schema_is_current():
    """Regenerate it with `sortition validate --schema > orchestrator/campaign.schema.json`."""
    shipped = Path(quantities.__file__).with_name("campaign.schema.json")
    assert json.loads(shipped.read_text(encoding="utf-8")) == json_schema()


def test_the_json_schema_knows_every_kind():
    text = json.dumps(json_schema())
    for kind in ("uniform", "two_phase", "score_means", "bradley_terry", "rate_batch"):
        assert f'"{kind}"' in text


def test_reading_a_file_imports_nothing_heavy():
    code = (
        "import sys; import orchestrator.config; "
        "print([m for m in ('scipy', 'jinja2', 'anyio', 'genai_prices', 'pyarrow', 'rich', "
        "'typer', 'judges.mock', 'policies.uniform') if m in sys.modules])"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        check=True,
        cwd=Path(__file__).parents[1],
    )
    assert done.stdout.strip() == "[]"


# --- quantities --------------------------------------------------------------------------------


@given(st.integers(min_value=0, max_value=quantities.LARGEST))
@example(10**9 + 1)
def test_money_is_read_as_it_is_written(nano):
    written = format_usd(nano).replace("$", "").replace(",", "")
    assert quantities.read_usd(written) == nano


@given(st.integers(min_value=-9000, max_value=9000), st.sampled_from(["", "k", "m", "K", "M"]))
def test_suffixes_multiply(number, suffix):
    times = {"": 1, "k": 1000, "m": 10**6}[suffix.lower()]
    assert quantities.read_count(f"{number}{suffix}") == number * times
    assert quantities.read_usd(f"{number}{suffix}") == number * times * NANO_PER_USD


@given(st.decimals(min_value=0, max_value=10**6, places=3), st.sampled_from("smhdSMHD"))
def test_durations_are_seconds(number, unit):
    seconds = {"s": 1, "m": 60, "h": 3600, "d": 86400}[unit.lower()]
    assert quantities.read_duration(f"{number}{unit}") == float(Decimal(number) * seconds)
    assert quantities.read_duration(float(number)) == float(number)


@pytest.mark.parametrize("text", ["1,5", "1e", "k", "", "∞", "٣", "1_000", "5 USD", "nan", "1.5q"])
@pytest.mark.parametrize(
    "read", [quantities.read_usd, quantities.read_count, quantities.read_duration]
)
def test_what_is_no_number_is_refused(read, text):
    with pytest.raises(ValueError, match="wants"):
        read(text)


@pytest.mark.parametrize("value", [True, None, [], float("nan"), float("inf")])
@pytest.mark.parametrize(
    "read", [quantities.read_usd, quantities.read_count, quantities.read_duration]
)
def test_what_is_no_number_of_yaml_is_refused(read, value):
    with pytest.raises(ValueError, match="wants"):
        read(value)
