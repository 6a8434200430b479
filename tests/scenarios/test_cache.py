"""Verdicts kept between runs, over whole campaigns: what is asked again, and what it costs."""

from __future__ import annotations

import json
from dataclasses import dataclass, field, replace

import pytest

from judges.mock import MockJudge
from orchestrator.caching import entries
from orchestrator.core.events import Asked, LimitReached
from orchestrator.core.wire import Finish, Origin
from orchestrator.store.sqlite import SqliteReader

N_ITEMS = 12
TEXT = """\
version: 1
name: kept
seed: 5
data: {path: items.csv, id: id, fields: {candidate: reply}}
judges:
  - name: acme
    adapter: mock
    model: acme-std
    params: {max_output_tokens: 400, temperature: 0.5}
    price_usd_per_1m: {input: 2.0, output: 10.0}
    mock: {sd: 0.9, tokens: {in: 1000, out: 300}}
task:
  kind: rate
  rubric: How good is {{ candidate }}?
  scale: {type: integer, min: 1, max: 5}
policy: {kind: uniform, max_repeats: 1}
budget: {usd: 5}
cache: {dir: kept}
output: {formats: []}
"""


@dataclass
class Wire:
    """What reaches the judge, and what it is made to reply."""

    n_sent: int = 0
    alter: object = field(default=lambda reply, request: reply)

    def count(self):
        n, self.n_sent = self.n_sent, 0
        return n


@pytest.fixture
def wire(monkeypatch):
    found, send = Wire(), MockJudge.send

    async def counted(self, request):
        found.n_sent += 1
        return found.alter(await send(self, request), request)

    monkeypatch.setattr(MockJudge, "send", counted)
    return found


@pytest.fixture
def campaign(tmp_path):
    rows = "".join(f"i{n},reply {n % 10}\n" for n in range(N_ITEMS))  # two pairs are alike
    (tmp_path / "items.csv").write_text("id,reply\n" + rows, encoding="utf-8")
    path = tmp_path / "campaign.yaml"
    path.write_text(TEXT, encoding="utf-8")
    return path


@pytest.fixture
def run(sortition, campaign, tmp_path):
    """Run the campaign under a name; gives exit code and result."""

    def carry_out(name, *words):
        code, _, err = sortition("run", campaign, "--run-dir", name, "-q", *words)
        path = tmp_path / name / "result.json"
        assert path.exists(), err
        return code, json.loads(path.read_text(encoding="utf-8"))

    return carry_out


def asked(run):
    reader = SqliteReader(run)
    events = [row.event for row in reader.read()]
    reader.close()
    return [event for event in events if isinstance(event, Asked)], events


def test_a_run_that_is_repeated_asks_nothing_and_finds_the_same(run, wire, sortition, tmp_path):
    """C30, C58: no request, nothing held, $0, listed as cached, the same estimates."""
    _, first = run("one")
    assert wire.count() == N_ITEMS
    assert first["counts"]["cached"] == 0
    code, again = run("two")
    assert (code, wire.count()) == (0, 0)
    assert again["spend"]["settled_nano_usd"] == again["spend"]["uncertain_nano_usd"] == 0
    assert again["counts"]["cached"] == again["counts"]["answered"] == N_ITEMS
    for name in ("value", "se", "lower", "upper", "n_answers"):
        assert [e[name] for e in again["estimates"]] == [e[name] for e in first["estimates"]]
    questions, _ = asked(tmp_path / "two")
    assert {(event.hold, event.origin) for event in questions} == {(0, Origin.CACHE)}
    assert sortition("verify", tmp_path / "two")[0] == 0


CHANGES = [
    ("model: acme-std", "model: acme-big"),
    ("model: acme-std", "model: acme-std\n    base_url: https://other.example.com/v1"),
    ("max_output_tokens: 400", "max_output_tokens: 401"),
    ("temperature: 0.5", "temperature: 0.6"),
    ("temperature: 0.5", "temperature: 0.5, extra: {top_k: 3}"),
    ("How good is", "How very good is"),
    ("max: 5", "max: 6"),
    ("max: 5}", "max: 5}\n  output: {reason: before}"),
    ("max: 5}", "max: 5}\n  allow_na: true"),
]


def test_a_change_of_what_is_asked_misses(run, wire, campaign):
    """C30: after each change every question is asked; what was stored before is still there."""
    run("first")
    wire.count()
    for n, (old, new) in enumerate(CHANGES):
        assert old in TEXT
        campaign.write_text(TEXT.replace(old, new), encoding="utf-8")
        run(f"changed-{n}")
        assert wire.count() == N_ITEMS, new
    campaign.write_text(TEXT, encoding="utf-8")
    run("last")
    assert wire.count() == 0


def test_a_changed_item_alone_is_asked_again(run, wire, tmp_path):
    """C30: the candidate."""
    run("one")
    wire.count()
    items = tmp_path / "items.csv"
    items.write_text(items.read_text().replace("reply 4\n", "reply 4!\n"), encoding="utf-8")
    run("two")
    assert wire.count() == 1


def test_what_does_not_reach_the_judge_misses_nothing(run, wire, campaign):
    run("one")
    wire.count()
    text = TEXT.replace("name: kept", "name: other").replace("usd: 5", "usd: 6")
    campaign.write_text(text.replace("name: acme", "name: nadir"), encoding="utf-8")
    run("two")
    assert wire.count() == 0


def test_repeats_are_questions_of_their_own(run, wire, campaign):
    """C30: three repeats are three requests and n = 3; of a cached one only two are asked."""
    run("one")
    wire.count()
    campaign.write_text(TEXT.replace("max_repeats: 1", "max_repeats: 3"), encoding="utf-8")
    _, found = run("two")
    assert wire.count() == 2 * N_ITEMS
    assert found["counts"]["answered"] == 3 * N_ITEMS
    _, again = run("three")
    assert wire.count() == 0
    assert again["counts"]["answered"] == 3 * N_ITEMS
    assert [e["value"] for e in again["estimates"]] == [e["value"] for e in found["estimates"]]


@pytest.mark.parametrize("finish", [Finish.REFUSED, Finish.BLOCKED, Finish.EMPTY])
def test_a_refusal_is_never_served(run, wire, finish):
    """C30: the question is asked again, and its verdict is what is kept."""
    wire.alter = lambda reply, request: (
        replace(reply, finish=finish) if request.query.units == (3,) else reply
    )
    _, first = run("one")
    assert sum(first["counts"]["missing"].values()) == 1
    wire.count()
    wire.alter = lambda reply, request: reply
    _, second = run("two")
    assert wire.count() == 1
    assert second["counts"]["answered"] == N_ITEMS
    run("three")
    assert wire.count() == 0


def test_a_verdict_that_took_two_attempts_is_served(run, wire):
    """The first attempt was cut at its limit; the question is the same."""
    wire.alter = lambda reply, request: (
        reply if request.attempt.widened else replace(reply, finish=Finish.LENGTH)
    )
    _, first = run("one")
    assert wire.count() == 2 * N_ITEMS
    _, again = run("two")
    assert wire.count() == 0
    assert [e["value"] for e in again["estimates"]] == [e["value"] for e in first["estimates"]]


def test_without_words_kept_none_is_in_the_cache(run, wire, campaign, tmp_path):
    """C32: with `keep: none` neither a reason nor an item's text is stored, and a hit is a hit."""
    text = TEXT.replace("max: 5}", "max: 5}\n  output: {reason: before}")
    text = text.replace("formats: []", "formats: [], keep: {prompts: none, replies: none}")
    campaign.write_text(text, encoding="utf-8")
    wire.alter = lambda reply, request: replace(
        reply, text=json.dumps({"reason": "CANARY reply 3", **json.loads(reply.text)})
    )
    _, first = run("one")
    wire.count()
    stored = [entry.path.read_text(encoding="utf-8") for entry in entries(tmp_path / "kept")]
    assert len(stored) == N_ITEMS
    assert not any("CANARY" in text or "reply 3" in text for text in stored)
    _, again = run("two")
    assert wire.count() == 0
    assert [e["value"] for e in again["estimates"]] == [e["value"] for e in first["estimates"]]


def test_a_share_is_asked_again_and_an_unchanged_model_goes_on(run, wire, campaign):
    run("one")
    wire.count()
    campaign.write_text(TEXT.replace("dir: kept", "dir: kept, recheck: 0.5"), encoding="utf-8")
    _, found = run("two")
    n = wire.count()
    assert 0 < n < N_ITEMS
    assert found["counts"]["cached"] == N_ITEMS - n
    assert found["spend"]["settled_nano_usd"] == n * 5_000_000


def test_a_changed_model_behind_the_name_ends_the_run(run, wire, campaign, tmp_path):
    """The provider says that another model answers: cached and live verdicts are not mixed."""
    wire.alter = lambda reply, request: replace(reply, served_model="acme-01")
    run("one")
    campaign.write_text(TEXT.replace("dir: kept", "dir: kept, recheck: 1.0"), encoding="utf-8")
    wire.alter = lambda reply, request: replace(reply, served_model="acme-02")
    _, found = run("two")
    assert found["state"] == "stopped"
    _, events = asked(tmp_path / "two")
    (limit,) = [event for event in events if isinstance(event, LimitReached)]
    assert limit.which == "stale_cache"
    assert "acme-02 answers now" in limit.why


def test_a_run_without_the_key_keeps_nothing(run, wire, campaign, tmp_path):
    campaign.write_text(TEXT.replace("cache: {dir: kept}\n", ""), encoding="utf-8")
    run("one")
    run("two")
    assert wire.count() == 2 * N_ITEMS
    assert not (tmp_path / "kept").exists()


def test_a_question_that_was_cached_and_one_that_was_asked_make_one_run(run, wire, campaign):
    """Only what is new is paid."""
    run("one", "-n", 5)
    assert wire.count() == 5
    _, found = run("two")
    assert wire.count() == N_ITEMS - 5
    assert found["spend"]["settled_nano_usd"] == (N_ITEMS - 5) * 5_000_000
    assert found["counts"]["answered"] == N_ITEMS
