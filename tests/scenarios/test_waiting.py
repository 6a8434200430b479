"""Waiting, parking and coming back, over whole campaigns under virtual time."""

from __future__ import annotations

from dataclasses import replace

import pytest

from orchestrator.core.errors import BadCredentials, Overloaded, QuotaExhausted, RateLimited
from orchestrator.core.events import (
    Arrived,
    Freed,
    JudgeDown,
    JudgeUp,
    LimitReached,
    Parked,
    Sent,
)
from orchestrator.core.judge import Limits, Timeouts
from orchestrator.core.query import MissingReason
from orchestrator.core.stopping import StopReason
from orchestrator.engine.fold import State
from orchestrator.engine.scheduler import Operation
from orchestrator.engine.verify import verify
from orchestrator.testing.fakes import FakeAdapter, Script, fake_crew
from orchestrator.testing.virtual import run_virtually

PLENTY = 10**12
GOOD = Script(latency_s=1.0)


def refusing(error, *, after, times=1):
    """A judge that works, and refuses some calls after so many."""
    n_sent = [0]

    def script(_):
        n_sent[0] += 1
        return Script(error=error) if after < n_sent[0] <= after + times else GOOD

    return FakeAdapter(script)


def crew_of(*adapters, accounts=None, **options):
    options = {"n_units": 12, "cap": PLENTY, "concurrency": 4} | options
    crew = fake_crew(list(adapters), **options)
    names = accounts or [""] * len(adapters)
    judges = [replace(j, account=a) for j, a in zip(crew.judges, names, strict=True)]
    return replace(crew, judges=tuple(judges))


def of(run, kind):
    return [event for event in run.events if isinstance(event, kind)]


def checked(run):
    """Nothing in the log contradicts the replay."""
    assert list(verify(State(run.state.crew), run.store.read(), run.archive.recall)) == []
    return run


def test_a_judge_told_to_wait_for_long_is_parked_and_the_others_go_on():
    """C14 e: no polling; its questions come back and are asked again once it is up."""
    limited = refusing(RateLimited(retry_after_s=600.0), after=2)
    free = FakeAdapter(lambda _: GOOD)
    run = checked(
        run_virtually(
            crew_of(limited, free), operation=Operation(max_in_flight=9, wall=lambda: 5e9)
        )
    )
    (down,), (up,) = of(run, JudgeDown), of(run, JudgeUp)
    assert (down.judge, down.until) == (0, 5e9 + 600.0)
    assert up.judge == 0
    assert of(run, Parked)
    assert [run.state.judges[j].answered for j in (0, 1)] == [12, 12]
    assert len(limited.sent) == 13
    assert 600 < run.took_s < 620
    assert run.state.stopped is StopReason.FINISHED


def test_a_run_whose_judges_are_all_down_for_too_long_stops():
    """C14 e: longer than `max_wait`; the word of the provider stands in the log."""
    judge = refusing(RateLimited("slow down", retry_after_s=7200.0), after=0)
    run = checked(run_virtually(crew_of(judge)))
    assert run.state.stopped is StopReason.JUDGES_DOWN
    (limit,) = of(run, LimitReached)
    assert limit.which == "max_wait"
    assert "7200 s" in limit.why
    assert run.took_s < 1
    assert len(judge.sent) == 1
    assert of(run, JudgeDown)[0].why == "slow down"


def test_a_run_does_not_wait_too_long_for_the_last_judge_either():
    """C14 e: the other judge has nothing left to answer; waiting two hours for one is no use."""
    judge = refusing(RateLimited(retry_after_s=7200.0), after=2)
    run = checked(run_virtually(crew_of(judge, FakeAdapter(lambda _: GOOD))))
    assert run.state.stopped is StopReason.JUDGES_DOWN
    assert [run.state.judges[j].answered for j in (0, 1)] == [2, 12]
    assert run.took_s < 30
    assert "judge0 is down for another" in of(run, LimitReached)[0].why


def test_the_run_waits_for_the_first_judge_to_come_back():
    judges = [refusing(RateLimited(retry_after_s=s), after=0) for s in (800.0, 100.0)]
    run = checked(run_virtually(crew_of(*judges)))
    assert [e.judge for e in of(run, JudgeUp)] == [1, 0]
    assert 800 < run.took_s < 830
    assert run.state.n_answered == 24


def test_a_refusal_parks_all_judges_of_its_key():
    """C14: two judges share one key, the third has its own and never waits."""
    shared = [refusing(RateLimited(retry_after_s=300.0), after=0), FakeAdapter(lambda _: GOOD)]
    own = FakeAdapter(lambda _: GOOD)
    run = checked(run_virtually(crew_of(*shared, own, accounts=["a", "a", "b"])))
    assert sorted(e.judge for e in of(run, JudgeDown)) == [0, 1]
    assert len({e.until for e in of(run, JudgeDown)}) == 1
    assert [run.state.judges[j].answered for j in range(3)] == [12, 12, 12]


@pytest.mark.parametrize("error", [RateLimited, Overloaded])
def test_no_call_leaves_before_the_time_the_server_named(error):
    """C14 a, b, d: within a tenth after it."""
    judge = refusing(error(retry_after_s=7.0), after=3)
    run = checked(run_virtually(crew_of(judge)))
    at = {q: a.waited_s + a.limited_s for a in of(run, Arrived) for q in [a.q]}
    waited = [s for s in at.values() if s]
    assert waited
    assert all(7.0 <= s <= 7.7 or s < 7.0 for s in waited)
    assert max(waited) >= 7.0
    assert not of(run, JudgeDown)


def test_waits_and_work_are_three_numbers():
    """C17: an attempt's own time, the pause before another, and the wait for the rate."""
    slow = refusing(Overloaded(), after=0)
    (judge,) = crew_of(slow).judges
    limited = replace(judge, limits=Limits(concurrency=4, rpm=6))
    crew = replace(crew_of(slow, n_units=3), judges=(limited,))
    run = run_virtually(crew, operation=Operation(max_in_flight=9, backoff=lambda _: 2.0))
    first, *others = sorted(of(run, Arrived), key=lambda e: e.q)
    assert first.took_s == 1.0
    assert first.waited_s == 2.0
    # Six a minute: one at once, then one every ten seconds.
    assert first.limited_s == pytest.approx(8.0)
    assert all(e.took_s == 1.0 for e in others)
    assert run.took_s == pytest.approx(31.0)


def test_a_wait_for_the_rate_does_not_use_up_the_answers_time():
    """C17: a limit on work is not hit by waiting."""
    slow = refusing(Overloaded(), after=0, times=2)
    timeouts = Timeouts(attempt_s=5.0, answer_s=12.0)
    crew = crew_of(slow, n_units=1, timeouts=timeouts)
    crew = replace(
        crew, judges=tuple(replace(j, limits=Limits(concurrency=1, rpm=2)) for j in crew.judges)
    )
    run = run_virtually(crew, operation=Operation(max_in_flight=9, backoff=lambda _: 2.0))
    assert run.state.n_answered == 1
    assert run.took_s == pytest.approx(61.0)


@pytest.mark.parametrize("error", [BadCredentials("no such key"), QuotaExhausted("pay first")])
def test_a_judge_that_is_refused_for_good_costs_one_request(error):
    """C15 a, b; C54: parked with the provider's own words; its answers stay, others go on."""
    revoked = refusing(error, after=4, times=10**6)
    crew = crew_of(revoked, FakeAdapter(lambda _: GOOD), concurrency=1)
    run = checked(run_virtually(crew))
    assert len(revoked.sent) == 5
    assert run.state.judges[0].answered == 4
    assert run.state.judges[0].why_down == str(error)
    assert run.state.judges[0].missing == {MissingReason.JUDGE_DOWN: 1}
    assert run.state.judges[1].answered == 12


def test_without_a_judge_left_the_run_stops():
    """C15: `judges_down`."""
    run = checked(run_virtually(crew_of(refusing(BadCredentials(), after=0, times=99))))
    assert run.state.stopped is StopReason.JUDGES_DOWN


def test_the_time_of_day_may_jump():
    """C46: buckets, pauses and parking go by the monotonic clock."""
    days = iter([1e9, 1e9 - 3600, 1e9 + 7200] * 1000)
    limited = refusing(RateLimited(retry_after_s=60.0), after=2)
    crew = crew_of(limited)
    run = run_virtually(crew, operation=Operation(max_in_flight=9, wall=lambda: next(days)))
    steady = run_virtually(crew_of(refusing(RateLimited(retry_after_s=60.0), after=2)))
    assert run.took_s == steady.took_s
    assert [e.q for e in of(run, Sent)] == [e.q for e in of(steady, Sent)]


def test_a_pause_that_grows_without_the_servers_word_ends_in_parking():
    """C14 f: normal back-off; beyond the judge's patience its questions come back."""
    always = refusing(RateLimited(), after=1, times=8)
    run = run_virtually(
        crew_of(always, FakeAdapter(lambda _: GOOD), max_attempts=99),
        operation=Operation(max_in_flight=9, backoff=lambda n: 2.0**n),
    )
    assert of(run, JudgeDown)
    assert run.state.judges[0].answered == 12
    assert len(of(run, Freed)) == 8


def test_a_crash_while_a_judge_is_parked_tries_it_again():
    """A resume brings parked judges back, and the questions that waited are asked."""
    limited = refusing(RateLimited(retry_after_s=600.0), after=2)
    crew = crew_of(limited, FakeAdapter(lambda _: GOOD))
    first = run_virtually(crew, interrupt_at_s=20.0)
    assert first.state.judges[0].is_down
    again = run_virtually(crew, first.store, first.archive, first=[JudgeUp(judge=0)])
    assert again.state.judges[0].answered == 12
    assert again.took_s < 60
    checked(again)
