"""One seed, one sequence of decisions, whatever the network does."""

from __future__ import annotations

import numpy as np
import pytest

from orchestrator.core.events import Told
from orchestrator.core.stopping import StopReason, StopRule
from orchestrator.engine.fold import State
from orchestrator.engine.scheduler import Operation
from orchestrator.engine.sequencer import Delivery
from orchestrator.engine.verify import verify
from orchestrator.testing.fakes import FakeAdapter, Script, fake_crew
from orchestrator.testing.virtual import run_virtually


def noisy(seed):
    """A judge of random speed, never past its deadline, whose cost depends on the question alone."""
    rng = np.random.default_rng(seed)

    def script(request):
        cost = 1_000_000 * (1 + request.query.units[0] % 9)
        return Script(latency_s=min(200.0, float(rng.lognormal(0, 1.5))), cost=cost)

    return FakeAdapter(script)


STOPS = [None, StopRule(every=7, target_half_width=0.6, min_items=10)]


def check_fingerprints(stop, n_seeds):
    prints, reasons = set(), set()
    for seed in range(n_seeds):
        crew = fake_crew(
            [noisy(seed), noisy(seed + 1000)], n_units=60, cap=400_000_000, window=24, stop=stop
        )
        operation = Operation(max_in_flight=(1, 4, 64)[seed % 3])
        run = run_virtually(crew, operation=operation)
        reasons.add(run.state.stopped)
        prints.add(run.fingerprint)
        assert not list(verify(State(crew), run.store.read(), run.archive.recall))
    assert len(prints) == 1
    assert reasons == {StopReason.PRECISION if stop else StopReason.BUDGET}


@pytest.mark.parametrize("stop", STOPS)
def test_the_fingerprint_is_that_of_the_seed(stop):
    """C40: equal at -j 1, 4, 64 and under random latencies, stops by target included."""
    check_fingerprints(stop, 20)


@pytest.mark.slow
@pytest.mark.parametrize("stop", STOPS)
def test_the_fingerprint_is_that_of_the_seed_under_two_hundred_latencies(stop, measured):
    check_fingerprints(stop, 200)
    measured(f"C40: one fingerprint under 200 latency seeds, stop rule {stop is not None}", "one")


def test_delivery_by_arrival_tells_as_outcomes_come():
    """`arrival` keeps no order of asking, and its own order is in the log."""
    crew = fake_crew([noisy(1)], n_units=40, cap=10**12, delivery=Delivery.ARRIVAL)
    run = run_virtually(crew)
    told = [e.q for e in run.events if isinstance(e, Told)]
    assert sorted(told) == list(range(40))
    assert told != sorted(told)
    assert not list(verify(State(crew), run.store.read(), run.archive.recall))
