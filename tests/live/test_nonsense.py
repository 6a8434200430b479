"""Servers that say what makes no sense: it costs one question at most, and never the run."""

from __future__ import annotations

import json
import math

import pytest

from orchestrator.core.events import Arrived, Asked, JudgeDown
from orchestrator.core.query import Missing, MissingReason
from orchestrator.core.wire import Usage
from orchestrator.testing.server import Say

PROVIDERS = ["chat", "responses", "anthropic", "google", "compatible"]
each = pytest.mark.parametrize("speaks", [*PROVIDERS, "python"], indirect=True)
providers = pytest.mark.parametrize("speaks", PROVIDERS, indirect=True)

DEEP = b'{"a":' * 200_000
SERVED, VERDICT = "acme-2026-01-01", '{"score": 4}'
STRANGE = "lone \ud800, nothing \x00, red \x1b[31m, line\u2028break"


def changed(value, old, new):
    """Give JSON with one word of it replaced by another value."""
    match value:
        case dict():
            return {key: changed(inner, old, new) for key, inner in value.items()}
        case list():
            return [changed(inner, old, new) for inner in value]
        case _:
            return new if value == old else value


BODIES = {
    "deep": (lambda good: DEEP, MissingReason.SERVER_ERROR),
    "a huge number": (lambda good: b'{"a": ' + b"9" * 10_000 + b"}", MissingReason.SERVER_ERROR),
    "model of another type": (lambda good: changed(good, SERVED, 7), None),
    "model of strange letters": (lambda good: changed(good, SERVED, STRANGE), None),
    "tokens that are texts": (lambda good: changed(good, 300, "300"), None),
    "strange letters beside the verdict": (
        lambda good: changed(
            good, VERDICT, json.dumps({"score": 4, "reason": STRANGE}, ensure_ascii=False)
        ),
        None,
    ),
    "strange letters alone": (
        lambda good: changed(good, VERDICT, STRANGE),
        MissingReason.PARSE_FAILURE,
    ),
    "a deep verdict": (
        lambda good: changed(good, VERDICT, '{"score":' * 50_000),
        MissingReason.PARSE_FAILURE,
    ),
    "a huge verdict": (
        lambda good: changed(good, VERDICT, '{"score": ' + "9" * 5_000 + "}"),
        MissingReason.PARSE_FAILURE,
    ),
    "a megabyte": (
        lambda good: changed(good, VERDICT, "word " * 200_000),
        MissingReason.PARSE_FAILURE,
    ),
}
"""Bodies made of a good one, and why there is no verdict in them, if there is none."""


@each
def test_a_reply_that_makes_no_sense_costs_one_question(bench, kit):
    """C13, C23: it is charged, as far as it says by its tokens, and the run goes on."""
    server = bench.server
    names = list(BODIES)

    def answer(seen, n):
        item, good = kit.item_of(seen), server.speaks.reply(kit.Answer())
        return Say(body=BODIES[names[item]][0](good)) if item < len(names) else Say(body=good)

    server.answer = answer
    ran = bench.command(bench.judge(max_attempts=1), n_items=len(names) + 3)
    assert ran.code == 0, ran.err
    unit_of = {asked.q: asked.query.units[0] for asked in ran.of(Asked)}
    holds = {asked.q: asked.hold for asked in ran.of(Asked)}
    for arrived in ran.of(Arrived):
        outcome, unit = arrived.outcome, unit_of[arrived.q]
        name = names[unit] if unit < len(names) else "good"
        assert getattr(outcome, "reason", None) is BODIES.get(name, (None, None))[1], name
        if name in ("deep", "a huge number", "tokens that are texts"):
            charged = outcome.cost + getattr(outcome, "uncertain", 0)
            assert charged == holds[arrived.q], name
        else:
            assert outcome.cost == 800_000, name
    bench.verify(ran)


REFUSALS = {
    "deep": DEEP,
    "strange letters": json.dumps({"error": {"message": STRANGE, "type": STRANGE}}).encode(),
    "no text": b"\xff",
    "a number": b"7",
    "a huge number": b"9" * 10_000,
    "numbers for objects": b'{"error": {"message": 7, "type": {}, "code": [], "details": 7}}',
    "numbers inside": b'{"error": {"status": {}, "details": [7, {"violations": 7}]}}',
    "a list": b'[{"error": 7}, 8]',
}


@each
@pytest.mark.parametrize("status", [400, 429])
def test_a_refusal_that_makes_no_sense_means_what_its_status_says(bench, kit, status):
    """C13: one free request each."""
    server = bench.server
    bodies = list(REFUSALS.values())
    refused = set()

    def answer(seen, n):
        item = kit.item_of(seen)
        if item >= len(bodies) or item in refused:
            return kit.Answer()
        refused.add(item)
        return Say(status=status, body=bodies[item])

    server.answer = answer
    ran = bench.run(bench.judge(limits={"concurrency": 2}), n_items=len(bodies) + 2)
    n_answered = 2 if status == 400 else len(bodies) + 2
    assert ran.result["counts"]["answered"] == n_answered
    assert ran.spend["settled_nano_usd"] == server.bill == n_answered * 800_000
    assert ran.spend["uncertain_nano_usd"] == 0
    bench.verify(ran)


@each
def test_a_refused_key_that_makes_no_sense_parks_the_judge(bench, kit):
    """C15 b."""
    server = bench.server
    body = REFUSALS["strange letters"]
    server.answer = lambda seen, n: Say(status=401, body=body) if n == 3 else kit.Answer()
    ran = bench.command(bench.judge(limits={"concurrency": 1}), n_items=4)
    assert (ran.code, server.n_requests) == (4, 3)
    assert ran.of(JudgeDown)[0].why.isprintable()
    assert ran.result["counts"]["answered"] == 2
    bench.verify(ran)


@providers
def test_a_wait_without_end_parks_one_judge(bench, kit):
    """C14 e: the others go on, and the report can say until when it waits."""
    server = bench.server
    server.answer = lambda seen, n: (
        server.refuse(429, headers={"Retry-After": "9" * 20}) if n == 2 else kit.Answer()
    )
    judges = [
        bench.judge(name, limits={"concurrency": 1}, api_key_env=key)
        for name, key in (("one", "LIVE_KEY"), ("two", "OTHER_KEY"))
    ]
    output = {"formats": ["html", "md"]}
    ran = bench.command(
        *judges, n_items=4, budget={"usd": 50.0, "wall_clock": "20s"}, output=output
    )
    assert (ran.code, ran.result["stop_reason"]) == (4, "judges_down")
    assert max(judge["answered"] for judge in ran.result["judges"]) == 4
    assert server.n_requests == 1 + ran.result["counts"]["answered"]
    bench.verify(ran)


@pytest.mark.parametrize("wait", ["9" * 400, "1e9", "inf", "0x10", "\u00b2"])
def test_a_wait_that_is_no_number_is_a_usual_pause(bench, kit, wait):
    """C14 f."""
    server = bench.server
    server.answer = lambda seen, n: (
        server.refuse(429, headers={"Retry-After": wait}) if n == 2 else kit.Answer()
    )
    ran = bench.run(bench.judge(limits={"concurrency": 1}), n_items=3)
    assert ran.result["counts"]["answered"] == 3
    assert not ran.of(JudgeDown)


@pytest.mark.parametrize("speaks", ["chat", "google", "compatible"], indirect=True)
def test_probabilities_that_are_none_are_no_verdict(bench, kit):
    """C31."""
    server = bench.server
    odd = [math.nan, math.inf, -math.inf, 3.0, "x", None]

    def answer(seen, n):
        item = kit.item_of(seen)
        good = (("4", -0.1), ("5", -3.0))
        alternatives = (("4", odd[item]), ("5", odd[item])) if item < len(odd) else good
        return kit.Answer(
            text="4", alternatives=alternatives, usage=Usage(input_tok=300, output_tok=1)
        )

    server.answer = answer
    task = {"output": {"route": "logprob", "reason": "none"}}
    ran = bench.run(n_items=len(odd) + 2, task=task)
    assert ran.result["counts"]["answered"] == 2
    assert sum(isinstance(arrived.outcome, Missing) for arrived in ran.of(Arrived)) == len(odd)
    bench.verify(ran)
