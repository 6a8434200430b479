"""A rehearsal takes the decisions of the live run, at the same times."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from orchestrator.core.errors import (
    BadCredentials,
    BadRequest,
    Disconnected,
    OrchestratorError,
    Overloaded,
    TimedOut,
)
from orchestrator.core.events import DECISIONS
from orchestrator.core.judge import Timeouts
from orchestrator.core.ports import PAUSE
from orchestrator.core.stopping import StopReason, StopRule
from orchestrator.core.wire import Finish, Reply, Usage
from orchestrator.engine.attempts import mean_pause
from orchestrator.engine.rehearse import _Stage, rehearse
from orchestrator.engine.scheduler import Operation
from orchestrator.testing.fakes import FakeAdapter, InTurnPolicy, Script, fake_crew
from orchestrator.testing.virtual import run_virtually


class Playing:
    """Does at once what the fake judge does in time."""

    def __init__(self, script):
        self._script = script

    def attempt(self, request):
        script = self._script(request)
        if script.error is not None:
            return script.error, script.latency_s
        unit = request.query.units[0]
        text = str(float(unit % 7))
        reply = Reply(text=text, finish=script.finish, usage=Usage(output_tok=script.cost))
        return reply, script.latency_s


ERRORS = {
    "overloaded": lambda: Overloaded(retry_after_s=1.5),
    "timeout": TimedOut,
    "dropped": Disconnected,
    "bad": BadRequest,
}


def scripted(seed, judge, *, hold, p_fail):
    """A script that depends on the question and the attempt alone."""

    def script(request):
        query, attempt = request.query, request.attempt
        rng = np.random.default_rng([seed, judge, *query.units, attempt.number])
        latency, factor = float(rng.exponential(2.0)), 2 if attempt.widened else 1
        if rng.random() < p_fail:
            fault = int(rng.integers(len(ERRORS) + 2))
            if fault < len(ERRORS):
                return Script(latency_s=latency, error=list(ERRORS.values())[fault]())
            finish = Finish.LENGTH if fault == len(ERRORS) else Finish.EMPTY
            return Script(latency_s=latency, cost=factor * hold, finish=finish)
        return Script(latency_s=latency, cost=int(rng.integers(0, factor * hold + 1)))

    return script


@st.composite
def worlds(draw):
    n_judges = draw(st.integers(1, 3))
    return {
        "seed": draw(st.integers(0, 2**32 - 1)),
        "holds": [draw(st.integers(0, 30)) for _ in range(n_judges)],
        "p_fail": draw(st.sampled_from([0.0, 0.2, 0.7])),
        "cap": draw(st.none() | st.integers(0, 400)),
        "max_uncertain": draw(st.none() | st.integers(0, 60)),
        "window": draw(st.integers(1, 40)),
        "max_in_flight": draw(st.integers(1, 40)),
        "concurrency": draw(st.integers(1, 12)),
        "max_requests": draw(st.none() | st.integers(1, 60)),
        "wall_clock_s": draw(st.none() | st.floats(1, 40)),
        "attempt_s": draw(st.sampled_from([2.0, 300.0])),
    }


def crew_of(world, **more):
    scripts = [
        scripted(world["seed"], judge, hold=hold, p_fail=world["p_fail"])
        for judge, hold in enumerate(world["holds"])
    ]
    crew = fake_crew(
        [
            FakeAdapter(script, hold=hold)
            for script, hold in zip(scripts, world["holds"], strict=True)
        ],
        n_units=30,
        cap=world["cap"],
        max_uncertain=world["max_uncertain"],
        window=world["window"],
        max_requests=world["max_requests"],
        concurrency=world["concurrency"],
        timeouts=Timeouts(attempt_s=world["attempt_s"], answer_s=900.0),
        **more,
    )
    return crew, [Playing(script) for script in scripts]


@settings(max_examples=80, deadline=None)
@given(worlds())
def test_a_rehearsal_is_the_live_run_decision_by_decision(world):
    """Latencies, failures, retries, caps, limits: same decisions, money and duration."""
    crew, players = crew_of(world)
    clock = world["wall_clock_s"]
    operation = Operation(
        max_in_flight=world["max_in_flight"], wall_clock_s=clock, backoff=mean_pause
    )
    live = run_virtually(crew, operation=operation)

    stage = _Stage(crew, players, world["max_in_flight"])
    heard = [crew.opened]
    apply = stage.state.apply

    def spy(event):
        heard.append(event)
        apply(event)

    stage.state.apply = spy
    if clock is not None:
        stage.ring_at(clock)
    seen = stage.perform()
    assert [e for e in heard if type(e).__name__ in DECISIONS] == [
        e for e in live.events if type(e).__name__ in DECISIONS
    ]
    accounts = live.state.ledger.judges
    assert list(seen.spent) == [a.settled + a.uncertain for a in accounts]
    assert seen.stop_reason is live.state.stopped
    assert seen.duration_s == pytest.approx(live.took_s, abs=1e-6)
    if seen.duration_s:
        assert sum(seen.bound_by.values()) == pytest.approx(1.0)


WORLD = {
    "seed": 4,
    "holds": [20, 7],
    "p_fail": 0.2,
    "cap": None,
    "max_uncertain": None,
    "window": 16,
    "max_in_flight": 8,
    "concurrency": 4,
    "max_requests": None,
    "wall_clock_s": None,
    "attempt_s": 300.0,
}


@pytest.mark.parametrize("n_told", [10, 25, 40])
def test_a_look_says_what_a_stop_there_comes_to(n_told):
    """Calls under way at a stop are still received and charged; a look foresees them."""
    stop = StopRule(every=5, target_half_width=3.0 / (n_told * 0.8) ** 0.5, min_items=1)
    crew, players = crew_of(WORLD, stop=stop)
    live = run_virtually(crew, operation=Operation(max_in_flight=8, backoff=mean_pause))
    assert live.state.stopped is StopReason.PRECISION
    seen = rehearse(crew, players, max_in_flight=8)
    sight = next(s for s in seen.sights if s.n_told == live.state.n_told)
    account = live.state.ledger.campaign
    assert sum(sight.spent) == account.settled + account.uncertain
    assert sight.at_s + sight.drain_s == pytest.approx(live.took_s)
    assert sight.half_width == pytest.approx(live.state.estimate()[0].half_width)
    assert seen.n_told > sight.n_told  # the target does not end a rehearsal


def test_the_last_look_is_the_end():
    crew, players = crew_of(WORLD)
    seen = rehearse(crew, players, max_in_flight=8)
    last = seen.sights[-1]
    assert (last.calls, last.spent, last.at_s) == (seen.calls, seen.spent, seen.duration_s)
    assert seen.stop_reason is StopReason.FINISHED
    assert seen.n_told == sum(seen.answered) + sum(seen.missing) == 60
    assert all(worst >= spent for worst, spent in zip(seen.worst, seen.spent, strict=True))


def steady(latency_s=1.0, cost=10, **crew):
    made = fake_crew([FakeAdapter(None, hold=20)] * crew.pop("n_judges", 1), **crew)
    script = Playing(lambda _: Script(latency_s=latency_s, cost=cost))
    return made, [script] * len(made.judges)


def test_a_look_tells_what_is_told_from_what_is_under_way():
    """Of calls at one price, those that are sent and not told are the rest."""
    crew, players = steady(n_units=40, cap=None, concurrency=4, stop=StopRule(every=10))
    for sight in rehearse(crew, players, max_in_flight=9).sights:
        assert sight.untold_calls == (sight.calls[0] - sight.n_told,)
        assert sight.untold_spent == (10 * sight.untold_calls[0],)
    assert sight.untold_calls == (0,)


def test_a_judges_concurrency_binds():
    """40 calls of a second, four at a time after 1 + 2: 11 s and a bit."""
    crew, players = steady(n_units=40, cap=None, concurrency=4)
    seen = rehearse(crew, players, max_in_flight=9)
    assert seen.duration_s == 12.0  # 1, 2, then 37 in fours
    assert seen.bound_by == pytest.approx(
        {"judge:judge0": 9 / 12, "start:judge0": 2 / 12, "last": 1 / 12}
    )
    assert seen.in_flight == pytest.approx(40 / 12)


@pytest.mark.parametrize(
    ("limit", "crew"),
    [
        ("jobs", {"max_in_flight": 2}),
        ("window", {"window": 3}),
        ("cap", {"cap": 60}),
    ],
)
def test_what_binds_is_named(limit, crew):
    max_in_flight = crew.pop("max_in_flight", 9)
    made, players = steady(n_units=40, **{"cap": None, **crew})
    seen = rehearse(made, players, max_in_flight=max_in_flight)
    assert next(iter(seen.bound_by)) == limit


def test_a_cap_ends_a_rehearsal_as_it_ends_a_run():
    """C01: 16 answers of $0.005 at a hold of $0.022 fit $0.10, 4 at a time at most."""
    crew = fake_crew([FakeAdapter(None)])
    seen = rehearse(crew, [Playing(lambda _: Script(latency_s=1.0))], max_in_flight=200)
    assert (seen.spent, seen.calls, seen.stop_reason) == ((80_000_000,), (16,), StopReason.BUDGET)


def test_chance_is_counted_by_question():
    """The SD of the sum is that of independent questions, what an extra attempt costs included."""
    totals, foretold = [], []
    for seed in range(60):
        world = WORLD | {"seed": seed}
        crew, players = crew_of(world)
        seen = rehearse(crew, players, max_in_flight=8)
        totals.append(sum(seen.spent))
        foretold.append(seen.chance_nano)
    # The SD of 60 totals has a relative error of 9 %; thrice that is allowed.
    assert np.std(totals) == pytest.approx(np.mean(foretold), rel=0.28)


def test_a_refused_key_parks_the_judge():
    crew = fake_crew([FakeAdapter(None)])
    player = Playing(lambda _: Script(latency_s=1.0, error=BadCredentials("no such key")))
    seen = rehearse(crew, [player], max_in_flight=200)
    assert (seen.stop_reason, sum(seen.calls), sum(seen.spent)) == (StopReason.JUDGES_DOWN, 1, 0)


def test_pauses_double_up_to_a_minute():
    """The live pause has a jitter of up to a second; its mean is half of one."""
    assert [mean_pause(n) for n in (1, 2, 3, 9)] == [1.5, 2.5, 4.5, 60.0]


class Sulking(InTurnPolicy):
    def ask(self, view):
        return PAUSE


def test_a_policy_that_pauses_for_nothing_is_refused():
    crew, players = steady(n_units=3)
    sulking = replace(crew, new_policy=lambda _: Sulking(3))
    with pytest.raises(OrchestratorError, match="pauses"):
        rehearse(sulking, players, max_in_flight=1)
