"""The cap: settled + uncertain + held never passes it, whatever judges, clocks and crashes do."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from orchestrator.core.errors import (
    BadRequest,
    Disconnected,
    Overloaded,
    RateLimited,
    TimedOut,
)
from orchestrator.core.events import Asked, CapChanged, Declined, Reopened, Sent, Stopped
from orchestrator.core.stopping import COMPLETE, StopReason
from orchestrator.core.wire import Billing, Finish
from orchestrator.engine.fold import State
from orchestrator.engine.scheduler import Operation
from orchestrator.engine.verify import verify
from orchestrator.store.memory import MemoryStore
from orchestrator.testing.fakes import FakeAdapter, MemoryArchive, Script, fake_crew
from orchestrator.testing.virtual import run_virtually


@pytest.mark.parametrize("concurrency", [1, 4, 20, 200])
@pytest.mark.parametrize("seed", range(5))
def test_sixteen_answers_fit_a_tenth_of_a_dollar_at_any_concurrency(concurrency, seed):
    """C01: hold $0.022, true cost $0.005, cap $0.10: 16 answers, $0.080000, whatever the timing."""
    rng = np.random.default_rng(seed)
    judge = FakeAdapter(lambda _: Script(latency_s=float(rng.exponential(2.0))))
    most_in_flight = 0

    def watch(state, events):
        nonlocal most_in_flight
        account = state.ledger.campaign
        assert account.settled + account.uncertain + account.held <= 100_000_000
        most_in_flight = max(most_in_flight, sum(at.sent for at in state.open.values()))

    run = run_virtually(
        fake_crew([judge]), watch=watch, operation=Operation(max_in_flight=concurrency)
    )
    account = run.state.ledger.campaign
    assert run.state.n_answered == len(judge.sent) == 16
    assert (account.settled, account.uncertain, account.held) == (80_000_000, 0, 0)
    assert most_in_flight <= min(concurrency, 4)
    assert run.state.stopped is StopReason.BUDGET


def test_a_raised_cap_goes_on_where_the_money_ended():
    """C53: raised to $0.20 the run continues; what was paid before stays as it was."""
    crew = fake_crew([FakeAdapter(lambda _: Script())])
    first = run_virtually(crew)
    again = run_virtually(
        crew,
        MemoryStore(first.store.lines, first.store.blobs),
        first=[Reopened(settled=80_000_000, uncertain=0), CapChanged(cap=200_000_000)],
    )
    assert again.events[: len(first.events)] == first.events
    assert again.state.ledger.campaign.settled == 180_000_000
    assert again.state.n_answered == 36


BILLED = {
    "rate limited": lambda: RateLimited(retry_after_s=3.0),
    "overloaded": Overloaded,
    "timeout": TimedOut,
    "dropped": Disconnected,
    "refused": BadRequest,
    "billed error": lambda: BadRequest(billing=Billing.YES),
}


@st.composite
def worlds(draw):
    """Draw prices, latencies and failures of every billing class for some judges."""
    n_judges = draw(st.integers(1, 3))
    seed = draw(st.integers(0, 2**32 - 1))
    holds = [draw(st.integers(0, 30)) for _ in range(n_judges)]
    p_fail = draw(st.sampled_from([0.0, 0.1, 0.5, 0.9]))
    return {
        "seed": seed,
        "holds": holds,
        "p_fail": p_fail,
        "cap": draw(st.integers(0, 300)),
        "judge_caps": [draw(st.none() | st.integers(0, 100)) for _ in range(n_judges)],
        "max_uncertain": draw(st.none() | st.integers(0, 50)),
        "window": draw(st.integers(1, 40)),
        "max_in_flight": draw(st.integers(1, 40)),
        "max_attempts": draw(st.integers(1, 4)),
        "interrupt_at_s": draw(st.none() | st.floats(0, 60)),
        "crashes": draw(st.lists(st.floats(0, 1), max_size=3)),
        "new_caps": draw(st.lists(st.integers(0, 400), max_size=2)),
    }


def scripted(rng, hold, p_fail):
    names = list(BILLED)

    def script(request):
        factor = 2 if request.attempt.widened else 1
        latency = float(rng.exponential(1.0))
        if rng.random() < p_fail:
            fault = int(rng.integers(len(names) + 2))
            if fault < len(names):
                return Script(latency_s=latency, error=BILLED[names[fault]]())
            finish = Finish.LENGTH if fault == len(names) else Finish.EMPTY
            return Script(latency_s=latency, cost=factor * hold, finish=finish)
        return Script(latency_s=latency, cost=int(rng.integers(0, factor * hold + 1)))

    return FakeAdapter(script, hold=hold)


def check_a_world(world):
    rng = np.random.default_rng(world["seed"])
    judges = [scripted(rng, hold, world["p_fail"]) for hold in world["holds"]]
    crew = fake_crew(
        judges,
        n_units=25,
        cap=world["cap"],
        judge_caps=world["judge_caps"],
        max_uncertain=world["max_uncertain"],
        window=world["window"],
        max_attempts=world["max_attempts"],
        concurrency=8,
    )
    cap = world["cap"]

    def watch(state, events):
        nonlocal cap
        for event in events:
            if isinstance(event, CapChanged):
                cap = event.cap
        for account in (state.ledger.campaign, *state.ledger.judges):
            assert account.cap is None or account.committed <= account.cap
            assert min(account.settled, account.uncertain, account.held) >= 0
        assert state.ledger.campaign.committed <= cap

    operation = Operation(max_in_flight=world["max_in_flight"])
    archive = MemoryArchive()
    run = run_virtually(
        crew,
        archive=archive,
        watch=watch,
        operation=operation,
        interrupt_at_s=world["interrupt_at_s"],
    )
    for share in world["crashes"]:
        kept = run.store.lines[: 1 + int(share * (len(run.store.lines) - 1))]
        run = run_virtually(crew, MemoryStore(kept), archive, watch=watch, operation=operation)
    if run.state.stopped is None:  # interrupted: whoever resumes it comes to an end
        run = run_virtually(crew, run.store, archive, watch=watch, operation=operation)
    for new_cap in world["new_caps"]:
        account = run.state.ledger.campaign
        if new_cap in range(account.committed) or new_cap == cap or run.state.stopped in COMPLETE:
            continue
        cap = new_cap
        changed = [
            Reopened(settled=account.settled, uncertain=account.uncertain),
            CapChanged(cap=new_cap),
        ]
        run = run_virtually(
            crew, run.store, archive, first=changed, watch=watch, operation=operation
        )
    assert run.state.stopped is not None
    assert run.state.is_drained
    assert run.state.ledger.campaign.held == 0
    every_event(run, crew)
    assert not list(verify(State(crew), run.store.read(), run.archive.recall))


def every_event(run, crew):
    """Replay one event at a time: the invariant holds after each, and sent follows asked."""
    state = State(crew)
    asked, sent = set(), 0
    for event in run.events:
        state.apply(event)
        account = state.ledger.campaign
        assert account.cap is None or account.committed <= account.cap
        match event:
            case Asked(q=q):
                asked.add(q)
            case Sent(q=q):
                assert q in asked
                sent += 1
            case Declined(query=query, hold=hold):
                assert state.ledger.lacking((query, hold))
            case Stopped():
                pass
            case _:
                pass
    assert state.ledger.campaign == run.state.ledger.campaign


@settings(max_examples=100, deadline=None)
@given(worlds())
def test_nothing_passes_the_cap_and_nothing_hangs(world):
    """Random prices, latencies, failures, interrupts, crashes and cap changes: the cap holds."""
    check_a_world(world)


@pytest.mark.slow
def test_nothing_passes_the_cap_and_nothing_hangs_in_a_thousand_worlds(measured):
    n = 0

    @settings(max_examples=1000, deadline=None)
    @given(worlds())
    def check(world):
        nonlocal n
        n += 1
        check_a_world(world)

    check()
    measured("the cap holds after every event, and no deadlock: 1,000 random schedules", f"{n}")
