"""The commands `prices list`, `show` and `check`."""

import json

import pytest

CAMPAIGN = """\
version: 1
name: priced
data: {{path: items.jsonl, fields: {{candidate: reply}}}}
judges:
  - {{name: large, adapter: openai, model: gpt-5}}
  - {{name: own, adapter: mock, price_usd_per_1m: {own}}}
  - {{name: home, adapter: compatible, model: local, base_url: "http://localhost:1/v1", price_usd_per_1m: free}}
task: {{kind: rate, scale: {{type: integer, min: 1, max: 5}}}}
policy: {{kind: uniform, max_repeats: 1}}
budget: {{usd: 0.000001}}
"""


@pytest.fixture
def campaign(tmp_path):
    def write(own="{input: 2, output: 8.5}"):
        (tmp_path / "items.jsonl").write_text('{"id": "a", "reply": "yes"}\n')
        path = tmp_path / "campaign.yaml"
        path.write_text(CAMPAIGN.format(own=own))
        return path

    return write


def test_one_model_is_shown_by_class_with_its_source(sortition):
    """Published prices of claude-haiku-4-5, in USD per million tokens."""
    code, out, _ = sortition("prices", "show", "claude-haiku-4-5")
    assert code == 0
    assert "genai-prices" in out.splitlines()[0]
    rows = {" ".join(line.split()[:-1]): line.split()[-1] for line in out.splitlines()[2:]}
    assert rows == {
        "input": "1.00",
        "cached input": "0.10",
        "cache write 5m": "1.25",
        "cache write 1h": "2.00",
        "output": "5.00",
    }


def test_tiers_are_said_and_the_dearest_is_booked(sortition):
    code, out, _ = sortition("prices", "show", "gemini-2.5-pro")
    assert code == 0
    assert "above 200,000 in" in out
    assert "1.25" in out
    assert "2.50" in out
    document = json.loads(sortition("prices", "show", "gemini-2.5-pro", "--json")[1])
    assert [step["above_input_tok"] for step in document["steps"]] == [0, 200_000]
    assert document["steps"][0]["pico_usd_per_token"]["input"] == 1_250_000
    assert document["pico_usd_per_token"] == document["steps"][1]["pico_usd_per_token"]


def test_an_unknown_model_is_refused_with_what_was_probably_meant(sortition):
    code, out, err = sortition("prices", "show", "gpt-55")
    assert (code, out) == (2, "")
    assert "gpt-5.5" in err
    code, _, err = sortition("prices", "list", "--provider", "opnai")
    assert code == 2
    assert 'did you mean "openai"?' in err


def test_the_list_is_of_the_providers_that_we_speak_to(sortition):
    models = json.loads(sortition("prices", "list", "--json")[1])
    assert {model["provider"] for model in models} == {"openai", "anthropic", "google"}
    assert len(models) > 100
    code, out, _ = sortition("prices", "list", "--provider", "anthropic")
    assert code == 0
    assert len(out.splitlines()) == 1 + sum(m["provider"] == "anthropic" for m in models)


def test_other_providers_are_there_when_asked_for(sortition):
    models = json.loads(sortition("prices", "list", "--provider", "mistral", "--json")[1])
    assert {model["provider"] for model in models} == {"mistral"}


def test_each_judge_of_a_campaign_is_checked_without_keys_or_money(sortition, campaign):
    """No key is in the environment, and the budget is too small for one call."""
    document = json.loads(sortition("prices", "check", campaign(), "--json")[1])
    assert document["sheet"]["version"].startswith("genai-prices ")
    assert document["sheet"]["age_days"] >= 0
    assert document["warnings"] == []
    sources = {name: judge["source"] for name, judge in document["judges"].items()}
    assert sources["own"] == "campaign file"
    assert sources["home"] == "free"
    assert sources["large"].endswith("openai/gpt-5")
    assert document["judges"]["own"]["pico_usd_per_token"]["output"] == 8_500_000
    code, out, err = sortition("prices", "check", campaign())
    assert code == 0
    assert "8.50" in out
    assert "days old" in err


def test_a_price_per_token_is_warned_of(sortition, campaign):
    """C06 e: a price per token where one per million is meant."""
    code, _, err = sortition("prices", "check", campaign("{input: 0.000002, output: 0.000008}"))
    assert code == 0
    assert err.count("looks like USD per token") == 2


def test_a_judge_without_a_price_is_named(sortition, campaign):
    """C06 a: refused, and which judge it is."""
    code, out, err = sortition("prices", "check", campaign("sheet"))
    assert (code, out) == (2, "")
    assert "own" in err
