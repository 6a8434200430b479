"""What judges answer, and what campaigns read of it."""

from __future__ import annotations

import json
import math

import pytest

from orchestrator.core.events import Arrived, Asked, Reasked
from orchestrator.core.query import Judged, MissingReason
from orchestrator.core.wire import Finish, Usage
from orchestrator.store.sqlite import DB_NAME
from orchestrator.testing.server import Say

PROVIDERS = ["chat", "responses", "anthropic", "google", "compatible"]
each = pytest.mark.parametrize("speaks", [*PROVIDERS, "python"], indirect=True)
providers = pytest.mark.parametrize("speaks", PROVIDERS, indirect=True)
one = pytest.mark.parametrize("speaks", ["compatible"], indirect=True)

TO_TEN = {"scale": {"type": "integer", "min": 1, "max": 10}, "output": {"route": "text"}}
ONE = {"concurrency": 1}


def outcomes(ran):
    """What came of each question, by its number; the last word counts."""
    return {arrived.q: arrived.outcome for arrived in ran.of(Arrived)}


def outcomes_by_unit(ran):
    came = outcomes(ran)
    return {asked.query.units[0]: came[asked.q] for asked in ran.of(Asked)}


def values(ran):
    return [
        outcome.observations[0].value if isinstance(outcome, Judged) else outcome.reason
        for _, outcome in sorted(outcomes(ran).items())
    ]


# --- texts of all scripts -----------------------------------------------------------------------

STRANGE = "Größe ✓ 漢字 🏳️\u200d🌈 line\u2028break"


@each
def test_texts_of_all_scripts_go_out_and_come_back(bench, kit):
    """C23: lone surrogates become U+FFFD, headers stay ASCII, and all files are UTF-8."""
    server = bench.server
    said = json.dumps({"score": 4, "reason": STRANGE}, ensure_ascii=False)
    server.answer = lambda seen, n: kit.Answer(text=said, served="modèle-✓")
    texts = [f"item-0; {STRANGE}", "item-1; lone \ud800!"]
    # JSON holds a lone surrogate as an escape, and so does a data file.
    ran = bench.command(
        bench.judge("Richter ✓ Größe"),
        texts=texts,
        task={"output": {"reason": "after"}},
        output={"formats": ["jsonl", "csv", "html", "md"]},
    )
    assert ran.code == 0, ran.err
    assert "lone surrogate became U+FFFD" in ran.err
    sent = [list(kit.strings_of(seen.json)) for seen in server.seen]
    shown = {
        kit.item_of(seen): "\n".join(texts) for seen, texts in zip(server.seen, sent, strict=True)
    }
    assert STRANGE in shown[0]
    assert "lone \ufffd!" in shown[1]
    for seen in server.seen:
        assert all((name + value).isascii() for name, value in seen.headers.items())
        assert "Richter" not in "".join(seen.headers.values())
    assert [judge["name"] for judge in ran.result["judges"]] == ["Richter ✓ Größe"]
    assert ran.result["judges"][0]["served_models"] == ["modèle-✓"]
    for path in ran.directory.rglob("*"):
        if path.is_file() and not path.name.startswith(DB_NAME):
            path.read_bytes().decode()
        assert path.name.isascii()
    lines = (ran.directory / "answers.jsonl").read_bytes().split(b"\n")
    records = [json.loads(line) for line in lines if line]
    assert len(records) == 2
    bench.verify(ran)


# --- reading ------------------------------------------------------------------------------------

SPOKEN = {
    '{"score": 8}': 8,
    "Score: 10": 10,
    "8/10": 8,
    "I would give it 8 out of 10.": 8,
    '```json\n{"score": 8}\n```': 8,
    "\uff18": 8,
    '{"score": "8"}': 8,
    '<verdict>{"score": 8}</verdict>': 8,
    "There are 5 reasons it earns a 9.": None,
    "0.8": None,
    "8.5": None,
    "85": None,
    "8/8": None,
    "\u22123": None,
    "eight": None,
    "NaN": None,
    '{"score": null}': None,
    '{"score": true}': None,
    '{"score": 8, "score": 3}': None,
    "Score: 8. No, score: 3.": None,
    '{"reason": "fine"}': None,
}


@each
def test_what_is_said_in_text_is_read_or_missing_and_never_guessed(bench, kit):
    """C26: every reply is charged, and what leaves a doubt is a parse failure."""
    texts = list(SPOKEN)
    bench.server.answer = lambda seen, n: kit.Answer(text=texts[kit.item_of(seen)])
    ran = bench.run(n_items=len(texts), task=TO_TEN)
    assert bench.server.n_requests == len(texts)
    by_unit = outcomes_by_unit(ran)
    for unit, (text, value) in enumerate(SPOKEN.items()):
        outcome = by_unit[unit]
        if value is None:
            assert outcome.reason is MissingReason.PARSE_FAILURE, text
            assert outcome.detail, text
        else:
            assert outcome.observations[0].value == value, text
    assert "coerced:score" in by_unit[texts.index('{"score": "8"}')].flags
    assert ran.spend["settled_nano_usd"] == bench.server.bill == len(texts) * 800_000
    bench.verify(ran)


@each
def test_an_empty_reply_is_tried_once_more(bench, kit):
    """C26, C29: and is then missing, both attempts charged."""
    bench.server.answer = lambda seen, n: kit.Answer(
        text="", finish=Finish.STOP, usage=Usage(input_tok=300, output_tok=1)
    )
    ran = bench.run(n_items=1, task=TO_TEN)
    assert bench.server.n_requests == 2
    assert values(ran) == [MissingReason.EMPTY]
    assert ran.spend["settled_nano_usd"] == 2 * 610_000


@each
@pytest.mark.parametrize("hidden", [False, True])
def test_a_verdict_that_is_cut_gets_one_retry_of_twice_the_length(bench, kit, hidden):
    """C27: both attempts are charged; what stood there of a number is never the verdict."""
    server = bench.server
    cut = kit.Answer(
        text="" if hidden else '{"score": 1',
        finish=Finish.LENGTH,
        usage=Usage(input_tok=300, output_tok=500, reasoning_tok=500 if hidden else 0),
    )
    server.answer = lambda seen, n: cut if n == 1 else kit.Answer(text='{"score": 10}')
    ran = bench.run(bench.judge(limits=ONE), n_items=1, task=TO_TEN)
    assert [server.speaks.limit_of(seen.json) for seen in server.seen] == [500, 1000]
    assert values(ran) == [10]
    assert ran.of(Reasked)[0].attempt.widened
    assert ran.spend["settled_nano_usd"] == server.bill == (600 + 5_000 + 800) * 1000
    bench.verify(ran)


@each
def test_a_second_cut_is_missing_and_names_the_limit(bench, kit):
    """C27: two requests though three are allowed, both charged."""
    server = bench.server
    server.answer = lambda seen, n: kit.Answer(
        text='{"score": 1',
        finish=Finish.LENGTH,
        usage=Usage(input_tok=300, output_tok=server.speaks.limit_of(seen.json)),
    )
    ran = bench.run(n_items=1, task=TO_TEN)
    assert [server.speaks.limit_of(seen.json) for seen in server.seen] == [500, 1000]
    (missing,) = outcomes(ran).values()
    assert missing.reason is MissingReason.TRUNCATED
    assert "max_output_tokens is 500" in missing.detail
    assert ran.spend["settled_nano_usd"] == server.bill == (600 + 5_000 + 600 + 10_000) * 1000


@each
def test_a_cut_verdict_is_not_tried_again_where_the_money_ends(bench, kit):
    """C27: "if it fits the budget"."""
    server = bench.server
    server.answer = lambda seen, n: kit.Answer(
        text="", finish=Finish.LENGTH, usage=Usage(input_tok=300, output_tok=500)
    )
    first = bench.run(n_items=1, task=TO_TEN)
    hold = first.of(Reasked)[0].hold
    server.say()
    cap = (hold + 5_600_000 - 1) / 1e9
    ran = bench.run(n_items=1, task=TO_TEN, budget={"usd": cap})
    assert server.n_requests == 1
    assert values(ran) == [MissingReason.TRUNCATED]
    assert ran.spend["settled_nano_usd"] == 5_600_000


@each
def test_a_refusal_is_missing_and_no_zero(bench, kit):
    """C28: 4, a refusal, 4: mean 4.0 of 2, one missing; the refusal is charged and not repeated."""
    server = bench.server
    refused = kit.Answer(
        text="I can't help with that.",
        finish=Finish.REFUSED,
        usage=Usage(input_tok=300, output_tok=9),
    )
    server.answer = lambda seen, n: refused if n == 2 else kit.Answer()
    ran = bench.run(bench.judge(limits=ONE), n_items=3)
    assert server.n_requests == 3
    (missing,) = ran.result["counts"]["missing"].items()
    # Google has no word for a refusal of the model: its filter blocks.
    assert missing == ("blocked" if bench.speaks.adapter == "google" else "refused", 1)
    assert ran.result["estimates"][0]["value"] == [4.0]
    assert ran.result["counts"]["answered"] == 2
    assert ran.spend["settled_nano_usd"] == server.bill == 2 * 800_000 + 690_000


@pytest.mark.parametrize("speaks", ["google"], indirect=True)
def test_shapes_of_a_reply_without_an_answer(bench, kit):
    """C29: each with its reason, none an exception; input tokens are charged where given."""
    used = {"promptTokenCount": 300, "totalTokenCount": 300}
    bodies = [
        {"promptFeedback": {"blockReason": "PROHIBITED_CONTENT"}, "usageMetadata": used},
        {"candidates": [{"finishReason": "SAFETY", "index": 0}], "usageMetadata": used},
        {
            "candidates": [{"finishReason": "RECITATION", "index": 0, "content": {}}],
            "usageMetadata": used,
        },
        {"candidates": [{"finishReason": "MAX_TOKENS", "index": 0}], "usageMetadata": used},
        {"usageMetadata": used},
    ]
    bench.server.answer = lambda seen, n: Say(body=bodies[kit.item_of(seen)])
    ran = bench.run(bench.judge(limits=ONE), n_items=5)
    by_unit = outcomes_by_unit(ran)
    assert [by_unit[n].reason for n in range(5)] == [
        *[MissingReason.BLOCKED] * 3,
        MissingReason.TRUNCATED,
        MissingReason.EMPTY,
    ]
    assert "PROHIBITED_CONTENT" in by_unit[0].detail
    assert "SAFETY" in by_unit[1].detail
    assert "RECITATION" in by_unit[2].detail
    assert bench.server.requests_by_item() == {0: 1, 1: 1, 2: 1, 3: 2, 4: 2}
    assert ran.spend["settled_nano_usd"] == 7 * 600_000
    bench.verify(ran)


# --- probabilities of labels --------------------------------------------------------------------

LABELS = (
    ("4", math.log(0.5)),
    ("5", math.log(0.25)),
    ("3", math.log(0.125)),
    ("Four", math.log(0.125)),
)
BY_LOGPROB = {
    "scale": {"type": "integer", "min": 1, "max": 5},
    "output": {"route": "logprob", "reason": "none"},
}
weighing = pytest.mark.parametrize("speaks", ["chat", "google", "compatible"], indirect=True)


@weighing
def test_a_verdict_is_the_mean_over_the_probabilities_of_labels(bench, kit):
    """C31: at the place of the verdict, normalised over the labels, with their mass."""
    bench.server.answer = lambda seen, n: kit.Answer(
        text="4", alternatives=LABELS, usage=Usage(input_tok=300, output_tok=1)
    )
    ran = bench.run(n_items=2, task=BY_LOGPROB)
    assert bench.server.n_requests == 2
    for outcome in outcomes(ran).values():
        (seen,) = outcome.observations
        assert seen.value == pytest.approx((4 * 0.5 + 5 * 0.25 + 3 * 0.125) / 0.875, abs=1e-9)
        assert seen.mass == pytest.approx(0.875, abs=1e-9)
    body = bench.server.seen[0].json
    config = body["generationConfig"] if bench.speaks.adapter == "google" else body
    asked = {"logprobs", "top_logprobs", "responseLogprobs"} & config.keys()
    assert asked == (
        {"logprobs", "responseLogprobs"}
        if bench.speaks.adapter == "google"
        else {"logprobs", "top_logprobs"}
    )
    assert ran.result["judges"][0]["route"] == "logprob"
    assert ran.spend["settled_nano_usd"] == 2 * 610_000
    bench.verify(ran)


@weighing
def test_labels_of_several_tokens_are_refused_before_anything_is_sent(bench):
    """C31: "10" may be two tokens."""
    scale = {"scale": {"type": "integer", "min": 1, "max": 10}}
    ran = bench.command(task={**BY_LOGPROB, **scale})
    assert (ran.code, bench.server.n_requests) == (2, 0)
    assert "single tokens" in ran.err


@pytest.mark.parametrize("speaks", ["anthropic", "responses"], indirect=True)
def test_a_route_that_a_judge_can_not_take_is_refused(bench):
    """C31: exit 2, and the routes that it takes are named."""
    model = {"model": "gpt-5"} if bench.speaks.adapter == "openai" else {}
    ran = bench.command(bench.judge(**model), task=BY_LOGPROB)
    assert (ran.code, bench.server.n_requests) == (2, 0)
    assert "schema, tool, text" in ran.err


# --- parameters that a model does not take ------------------------------------------------------

REJECTING = {
    "chat": "gpt-5",
    "responses": "gpt-5",
    "anthropic": "claude-opus-5",
    "google": "gemini-3.6-flash",
}
rejecting = pytest.mark.parametrize("speaks", list(REJECTING), indirect=True)


def rejecting_judge(bench, request, **keys):
    model = REJECTING[request.node.callspec.params["speaks"]]
    return bench.judge(model=model, params={"max_output_tokens": 500, "temperature": 0.2}, **keys)


@rejecting
def test_what_a_model_rejects_is_left_out_the_first_time(bench, kit, request):
    """C43 a: the right request first, one warning, and a flag of each answer."""
    server = bench.server

    def answer(seen, n):
        generation = seen.json.get("generationConfig", seen.json)
        is_misnamed = bench.speaks.adapter == "openai" and "max_tokens" in seen.json
        if "temperature" in generation or is_misnamed:
            return server.refuse(400)
        return kit.Answer()

    server.answer = answer
    ran = bench.command(rejecting_judge(bench, request), n_items=3)
    assert ran.code == 0, ran.err
    assert server.n_requests == 3
    assert {server.speaks.limit_of(seen.json) for seen in server.seen} == {500}
    assert all(outcome.flags == ("dropped:temperature",) for outcome in outcomes(ran).values())
    assert ran.result["judges"][0]["flags"] == {"dropped:temperature": 3}
    assert ran.err.count("does not take temperature") == 1


@rejecting
@pytest.mark.parametrize("command", ["plan", "doctor", "run"])
def test_strict_parameters_are_refused_before_any_call(bench, request, command):
    """C43 b: exit 2, and no judge is asked."""
    file = bench.file(rejecting_judge(bench, request, strict_params=True))
    code, out, err = bench.sortition(command, file, *(["-y"] if command == "run" else []))
    assert (code, bench.server.n_requests) == (2, 0), out + err
    assert "temperature" in err
    assert "Traceback" not in err


# --- comparisons --------------------------------------------------------------------------------

PAIRS = {
    "data": {
        "path": "items.jsonl",
        "id": "id",
        "arms": {"SECRET-OLD": {"candidate": "id"}, "SECRET-NEW": {"candidate": "reply"}},
    },
    "estimate": [{"name": "first", "kind": "orchestrator.testing.fakes:SHARE_OF_FIRST"}],
}


@each
def test_two_answers_are_compared_in_both_orders(bench, kit):
    """C34: a judge that always says first is heard in each order; no arm's name goes out."""
    bench.server.answer = lambda seen, n: kit.Answer(text='{"score": "first"}')
    task = {"kind": "compare", "scale": {"type": "preference", "ties": True}}
    ran = bench.run(task=task, n_items=4, **PAIRS)
    heard = {asked.query.units: outcomes(ran)[asked.q] for asked in ran.of(Asked)}
    assert sorted(heard) == [pair for n in range(0, 8, 2) for pair in ((n, n + 1), (n + 1, n))]
    for (first, _), outcome in heard.items():
        (seen,) = outcome.observations
        assert (seen.unit, seen.preference, seen.value) == (first, "first", None)
    assert len(bench.server.seen) == 8
    for seen in bench.server.seen:
        assert b"SECRET" not in seen.body
        assert b"first candidate" in seen.body
    bench.verify(ran)


@weighing
def test_a_preference_is_the_label_that_was_said(bench, kit):
    """C31: one token, 1, 2 or 0; the mass is that of all three."""
    said = (("2", math.log(0.5)), ("1", math.log(0.25)), ("0", math.log(0.125)))
    bench.server.answer = lambda seen, n: kit.Answer(text="2", alternatives=said)
    task = {
        "kind": "compare",
        "scale": {"type": "preference", "ties": True},
        "output": {"route": "logprob"},
    }
    ran = bench.run(task=task, n_items=1, **PAIRS)
    for outcome in outcomes(ran).values():
        (seen,) = outcome.observations
        assert (seen.preference, seen.value) == ("second", None)
        assert seen.mass == pytest.approx(0.875, abs=1e-9)
    assert bench.server.n_requests == 2
