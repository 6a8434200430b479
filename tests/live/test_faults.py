"""Servers that refuse, break off, are slow or say nothing, and what campaigns make of it."""

from __future__ import annotations

import time
from collections import Counter
from email.utils import formatdate
from itertools import pairwise

import pytest

from orchestrator.core.events import Arrived, Asked, Freed, JudgeDown, LimitReached, Parked, Reasked
from orchestrator.core.query import Judged, Missing, MissingReason
from orchestrator.testing.server import Fault, Say

PROVIDERS = ["chat", "responses", "anthropic", "google", "compatible"]
each = pytest.mark.parametrize("speaks", [*PROVIDERS, "python"], indirect=True)
providers = pytest.mark.parametrize("speaks", PROVIDERS, indirect=True)
# What the engine does by its clock is the same for all: the rest of them is slow.
by_clock = pytest.mark.parametrize(
    "speaks",
    ["compatible", *(pytest.param(n, marks=pytest.mark.slow) for n in PROVIDERS[:-1])],
    indirect=True,
)
ONE = {"concurrency": 1}


@each
def test_a_slow_answer_is_waited_for(bench, kit):
    """C05: at default timeouts one request, one answer, no retry, one charge."""
    bench.server.answer = lambda seen, n: kit.Answer(delay_s=0.3 if n == 1 else 0.0)
    ran = bench.run(n_items=2)
    assert bench.server.n_requests == 2
    arrived = ran.of(Arrived)
    assert [a.attempt.number for a in arrived] == [1, 1]
    assert max(a.took_s for a in arrived) >= 0.3
    assert ran.result["counts"]["answered"] == 2
    assert ran.spend["settled_nano_usd"] == bench.server.bill == 1_600_000
    assert ran.spend["uncertain_nano_usd"] == 0


@each
@pytest.mark.parametrize("max_attempts", [3, 1])
def test_a_500_is_tried_as_often_as_a_question_may_be(bench, max_attempts):
    """C13: exactly so many requests a question, and each is charged until proven free."""
    bench.server.answer = lambda seen, n: bench.server.refuse(500)
    ran = bench.run(bench.judge(max_attempts=max_attempts), n_items=2)
    assert bench.server.requests_by_item() == {0: max_attempts, 1: max_attempts}
    assert ran.result["counts"]["missing"] == {"server_error": 2}
    held = [event.hold for event in ran.of(Asked | Reasked)]
    # Google says of its own that it is free.
    is_free = bench.speaks.adapter == "google"
    assert len(held) == (2 if is_free else 2 * max_attempts)
    assert ran.spend["uncertain_nano_usd"] == (0 if is_free else sum(held))
    assert ran.spend["settled_nano_usd"] == 0
    bench.verify(ran)


# --- limits of the rate -------------------------------------------------------------------------

_WAITS = {
    "a Retry-After": ({"Retry-After": "0.3"}, 0.3),
    "b retry-after-ms": ({"retry-after-ms": "300", "Retry-After": "9"}, 0.3),
    "f no number": ({"Retry-After": "soon"}, 0.0),
}


@providers
@pytest.mark.parametrize("form", _WAITS)
def test_a_refusal_is_obeyed_as_long_as_it_asks(bench, kit, form):
    """C14 a, b, d, f: no request earlier, and the next at most a tenth later."""
    headers, wait_s = _WAITS[form]
    check_a_wait(bench, kit, wait_s, bench.server.refuse(429, headers=headers))


@by_clock
def test_a_date_is_read_by_the_servers_own_clock(bench, kit):
    """C14 c: the clock here is years behind."""
    headers = {
        "Date": formatdate(2e9, usegmt=True),
        "Retry-After": formatdate(2e9 + 1, usegmt=True),
    }
    check_a_wait(bench, kit, 1.0, bench.server.refuse(429, headers=headers))


@pytest.mark.parametrize("speaks", ["google"], indirect=True)
def test_a_wait_in_the_body_of_a_refusal_is_obeyed(bench, kit):
    """C14: as Gemini asks for it."""
    info = {"@type": "type.googleapis.com/google.rpc.RetryInfo", "retryDelay": "0.3s"}
    error = {"code": 429, "message": "slower", "status": "RESOURCE_EXHAUSTED", "details": [info]}
    check_a_wait(bench, kit, 0.3, Say(status=429, body={"error": error}))


def check_a_wait(bench, kit, wait_s, refusal):
    server = bench.server
    server.answer = lambda seen, n: refusal if n == 3 else kit.Answer()
    ran = bench.run(bench.judge(limits=ONE), n_items=5)
    assert server.n_requests == 6
    pause_s = server.arrived[3] - server.answered[2]
    # Servers count from when they answer, we from when we hear it.
    assert wait_s <= pause_s <= 1.1 * wait_s + 0.25
    assert ran.result["counts"]["answered"] == 5
    assert ran.spend["settled_nano_usd"] == server.bill
    assert not ran.of(JudgeDown)
    assert len(ran.of(Freed)) == 1


@by_clock
def test_judges_of_one_key_wait_together_and_others_do_not(bench, kit):
    """C14: two judges share a key, the third has its own."""
    server = bench.server
    asked = []

    def answer(seen, n):
        who = next(name for name in ("one", "two", "own") if f'"{name}"'.encode() in seen.body)
        asked.append((who, time.monotonic()))
        if who == "one" and sum(name == who for name, _ in asked) == 2:
            return server.refuse(429, headers={"retry-after-ms": "300"})
        return kit.Answer(delay_s=0.02)

    server.answer = answer
    judges = [
        bench.judge(name, limits=ONE, params=marked(bench, name))
        | ({"api_key_env": "OTHER_KEY"} if name == "own" else {})
        for name in ("one", "two", "own")
    ]
    ran = bench.run(*judges, n_items=12)
    refused = [at for name, at in asked if name == "one"][1]
    quiet = (refused + 0.05, refused + 0.3)
    during = {name for name, at in asked if quiet[0] < at < quiet[1]}
    assert during == {"own"}
    after = {name for name, at in asked if at >= quiet[1]}
    assert after >= {"one", "two"}
    assert ran.result["counts"]["answered"] == 36
    assert not ran.of(JudgeDown)


def marked(bench, name):
    """Parameters by which a server sees which judge asks."""
    key = "labels" if bench.speaks.adapter == "google" else "user"
    value = {"judge": name} if key == "labels" else name
    return {"max_output_tokens": 500, "extra": {key: value}}


@by_clock
def test_a_burst_of_refusals_is_one_cut(bench, kit):
    """C14: all calls that are under way at the first refusal halve the limit once."""
    server = bench.server
    burst = []

    def answer(seen, n):
        # By the sixteenth request eight calls run. No refusal is heard before the last one is due.
        now = time.monotonic()
        if n >= 16 and (not burst or now < burst[0] + 0.09):
            burst.append(now)
            return server.refuse(429, headers={"retry-after-ms": "100"}, delay_s=0.1)
        return kit.Answer(delay_s=0.05)

    server.answer = answer
    limits = []
    ran = bench.run(
        bench.judge(limits={"concurrency": 8}),
        n_items=40,
        observe=lambda progress, events: limits.append(progress.judges[0].limit),
    )
    cuts = [(a, b) for a, b in pairwise(limits) if b < a]
    assert cuts == [(8, 4)]
    assert len(ran.of(Freed)) == len(burst) >= 4
    assert server.n_requests == 40 + len(burst)
    assert ran.result["counts"]["answered"] == 40


@providers
def test_a_judge_told_to_wait_for_hours_is_parked_and_the_others_go_on(bench, kit):
    """C14 e: no polling; the run ends once nothing else is left to ask, and says why."""
    server = bench.server

    def answer(seen, n):
        if b'"far"' in seen.body:
            return server.refuse(429, headers={"Retry-After": "7200"})
        return kit.Answer()

    server.answer = answer
    judges = [
        bench.judge("far", params=marked(bench, "far")),
        bench.judge("near", params=marked(bench, "near"), api_key_env="OTHER_KEY"),
    ]
    ran = bench.command(*judges, n_items=8, budget={"usd": 50.0, "wall_clock": "20s"})
    assert (ran.code, ran.result["stop_reason"]) == (4, "judges_down")
    assert "7200 s" in ran.of(LimitReached)[0].why
    assert sum(b'"far"' in seen.body for seen in server.seen) == 1
    far, near = ran.result["judges"]
    assert (far["answered"], near["answered"]) == (0, 8)
    assert "word of the provider" in far["down"]
    (down,) = ran.of(JudgeDown)
    assert 7000 < down.until - time.time() <= 7200
    assert len(ran.of(Parked)) > 0


@providers
def test_without_another_judge_the_run_ends_at_once(bench):
    """C14 e: 7,200 s are more than max_wait: exit 4, after one request."""
    bench.server.answer = lambda seen, n: bench.server.refuse(429, headers={"Retry-After": "7200"})
    ran = bench.command()
    assert bench.server.n_requests == 1
    assert ran.code == 4
    assert ran.result["stop_reason"] == "judges_down"
    assert ran.result["diagnostics"]["limit"] == "max_wait"
    assert "7200 s" in ran.of(LimitReached)[0].why


# --- refused for good ---------------------------------------------------------------------------

_FINAL = {"a quota": None, "b key": 401, "c model": 404}


def refuse_for_good(bench, which):
    status = _FINAL[which]
    if status is not None:
        return bench.server.refuse(status)
    quota, body = bench.speaks.quota
    return Say(status=quota, body=body)


@providers
@pytest.mark.parametrize("which", _FINAL)
def test_a_judge_that_is_refused_for_good_costs_one_request(bench, kit, which):
    """C15 a, b, c: parked with the provider's own message; the others go on."""
    server = bench.server

    def answer(seen, n):
        return refuse_for_good(bench, which) if b'"bad"' in seen.body else kit.Answer()

    server.answer = answer
    judges = [bench.judge(name, params=marked(bench, name)) for name in ("bad", "fine")]
    ran = bench.run(*judges, n_items=8)
    assert sum(b'"bad"' in seen.body for seen in server.seen) == 1
    bad, fine = ran.result["judges"]
    assert (bad["answered"], fine["answered"]) == (0, 8)
    assert ("no credit" if which == "a quota" else "word of the provider") in bad["down"]
    assert ran.of(JudgeDown)[0].until is None
    assert ran.spend["settled_nano_usd"] == server.bill
    assert ran.spend["uncertain_nano_usd"] == 0


@providers
def test_without_a_judge_left_the_campaign_ends_with_exit_4(bench):
    """C15 a: after exactly one request."""
    bench.server.answer = lambda seen, n: refuse_for_good(bench, "a quota")
    ran = bench.command()
    assert (ran.code, bench.server.n_requests) == (4, 1)
    assert ran.result["exit_code"] == 4
    assert ran.result["stop_reason"] == "judges_down"


@providers
def test_a_key_that_is_not_set_is_found_before_any_request(bench, monkeypatch):
    """C15 d: exit 2, with the variable's name, and no run directory."""
    monkeypatch.delenv("LIVE_KEY")
    ran = bench.command()
    assert (ran.code, bench.server.n_requests) == (2, 0)
    assert "LIVE_KEY" in ran.err
    assert "Traceback" not in ran.err
    assert not ran.directory.exists()


@by_clock
def test_a_judge_that_fails_after_forty_answers_keeps_them(bench, kit):
    """C54: disabled after one failure; the others' work goes on, and the result names it."""
    server = bench.server
    by_judge = Counter()

    def answer(seen, n):
        who = next(name for name in ("one", "two", "six") if f'"{name}"'.encode() in seen.body)
        by_judge[who] += 1
        if who == "two" and by_judge[who] > 40:
            return server.refuse(401)
        return kit.Answer(text=f'{{"score": {2 if who == "two" else 4}}}')

    server.answer = answer
    judges = [
        bench.judge(name, limits=ONE, params=marked(bench, name)) for name in ("one", "two", "six")
    ]
    ran = bench.command(*judges, n_items=45)
    assert by_judge == {"one": 45, "two": 41, "six": 45}
    one, two, six = ran.result["judges"]
    assert (one["answered"], two["answered"], six["answered"]) == (45, 40, 45)
    assert two["missing"] == {"judge_down": 1}
    assert "word of the provider" in two["down"]
    assert two["outages"][0]["after_answers"] == 40
    (left,) = (w for w in ran.result["diagnostics"]["without_judge"] if w["judge"] == "two")
    assert left["n_answers"] == 40
    # Two fours and a two, against two fours.
    assert left["estimates"][0]["value"] == [4.0]
    assert ran.result["estimates"][0]["value"][0] < 4.0
    assert ran.spend["settled_nano_usd"] == server.bill == 130 * 800_000
    assert ran.code == 0


# --- silence ------------------------------------------------------------------------------------


@each
def test_silence_ends_by_the_answers_deadline_and_the_rest_goes_on(bench, kit):
    """C17: that answer is a timeout, the others finish meanwhile; waits and work are told apart."""
    server = bench.server

    def answer(seen, n):
        return Say(fault=Fault.SILENT) if kit.item_of(seen) == 3 else kit.Answer()

    server.answer = answer
    judge = bench.judge(
        timeouts={"attempt": 0.25, "answer": 0.8}, max_attempts=2, limits={"concurrency": 3}
    )
    began = time.monotonic()
    ran = bench.run(judge, n_items=30)
    assert time.monotonic() - began < 3
    assert server.requests_by_item()[3] == 2
    assert ran.result["counts"]["answered"] == 29
    assert ran.result["counts"]["missing"] == {"timeout": 1}
    (silent,) = (a for a in ran.of(Arrived) if isinstance(a.outcome, Missing) and a.attempt.paid)
    assert silent.outcome.reason is MissingReason.TIMEOUT
    # The others had all come when it was given up.
    last = [a for a in ran.of(Arrived) if isinstance(a.outcome, Judged)]
    events = ran.events
    assert events.index(last[-1]) < events.index(silent)
    held = [event.hold for event in ran.of(Asked | Reasked) if event.q == silent.q]
    assert len(held) == 2
    assert ran.spend["uncertain_nano_usd"] == sum(held)
    assert ran.spend["settled_nano_usd"] == server.bill == 29 * 800_000
    assert ran.spend["held_nano_usd"] == 0
    times = ran.result["judges"][0]
    assert times["working_s"] >= 0.5
    assert times["waited_s"] == times["limited_s"] == 0
    bench.verify(ran)


@by_clock
def test_waiting_is_not_work(bench, kit):
    """C17: waits for the rate, waits before another attempt, and work are three numbers."""
    server = bench.server
    server.answer = lambda seen, n: server.refuse(503) if n == 2 else kit.Answer(delay_s=0.03)
    # A burst of ten is free at 60 a minute, and the eleventh waits for what is left of a second.
    ran = bench.run(bench.judge(limits={"concurrency": 1, "rpm": 60}), n_items=10)
    assert server.n_requests == 11
    assert ran.result["counts"]["answered"] == 10
    times = ran.result["judges"][0]
    assert times["working_s"] >= 10 * 0.03
    assert times["waited_s"] >= 0.02
    assert times["limited_s"] >= 0.2
    parts = times["working_s"] + times["waited_s"] + times["limited_s"]
    took_s = server.answered[-1] - server.arrived[0]
    # One call at a time, so that the three make up the whole; a request is a while on its way.
    assert parts == pytest.approx(took_s, abs=0.15)
