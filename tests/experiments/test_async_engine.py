"""A whole campaign whose wrong answers come back late: the run decides by the told prefix."""

from dataclasses import replace

import anyio
import numpy as np
import pytest

from estimators.subsample_bounds import hypergeometric_interval
from orchestrator import Campaign
from orchestrator.core.events import Arrived, Looked, Told
from orchestrator.core.stopping import StopReason
from orchestrator.testing.virtual import run_virtually

CAMPAIGN = """\
version: 1
name: late
seed: SEED
data: {path: items.csv, id: id}
judges:
  - name: key
    adapter: recorded
    limits: {concurrency: 64}
    recorded: {path: r.csv, judge: key, usd_per_call: 0.001}
task: {kind: rate, scale: {type: boolean}}
policy: {kind: subsample, window: 128}
budget: {usd: 2}
stop: {when: target, target_half_width: 0.07, check: anytime}
estimate:
  - {name: accuracy, kind: exchangeable}
"""
N_ITEMS, N_RIGHT = 1000, 700


class Late:
    """A judge that takes three times as long over a wrong answer as over a right one, on average."""

    def __init__(self, adapter, seed):
        self._adapter, self._rng = adapter, np.random.default_rng(seed)
        self.ceiling, self.aclose = adapter.ceiling, adapter.aclose

    async def send(self, request):
        reply = await self._adapter.send(request)
        is_right = "true" in reply.text.lower()
        await anyio.sleep(float(self._rng.exponential(1.0 if is_right else 3.0)))
        return reply


@pytest.fixture
def run(tmp_path):
    right = np.random.default_rng(0).permutation(N_ITEMS) < N_RIGHT
    (tmp_path / "items.csv").write_text("id\n" + "".join(f"i{i}\n" for i in range(N_ITEMS)))
    rows = "".join(f"i{i},key,{str(each).lower()}\n" for i, each in enumerate(right))
    (tmp_path / "r.csv").write_text("item_id,judge,score\n" + rows)

    def play(seed, pace):
        path = tmp_path / "c.yaml"
        path.write_text(CAMPAIGN.replace("SEED", str(seed)))
        crew = Campaign.from_yaml(path, environ={}).build().crew
        (judge,) = crew.judges
        late = Late(judge.adapter, pace)
        return run_virtually(replace(crew, judges=(replace(judge, adapter=late),)))

    return play, right


def at_the_stop(found):
    """Give the estimate of the look at which the run stopped."""
    (estimate,) = next(e for e in reversed(found.events) if isinstance(e, Looked)).estimates
    return estimate


def misses(interval, truth=N_RIGHT / N_ITEMS):
    return not interval[0] <= truth <= interval[1]


def test_the_pace_of_answers_moves_neither_the_stop_nor_the_interval(run):
    """A21: one seed, three paces: other answers are back by the end, the same are told."""
    play, _ = run
    found = [play(seed=1, pace=pace) for pace in (1, 2, 3)]
    assert len({tuple(e.q for e in each.events if isinstance(e, Arrived)) for each in found}) == 3
    assert {each.state.stopped for each in found} == {StopReason.PRECISION}
    assert len({tuple(e for e in each.events if isinstance(e, Told)) for each in found}) == 1
    first, *others = (at_the_stop(each) for each in found)
    assert all(other == first for other in others)


@pytest.mark.parametrize("n_runs", [10, pytest.param(100, marks=pytest.mark.slow)])
def test_a_run_is_right_where_its_first_answers_are_too_good(run, n_runs, measured):
    """A16, pitfall 18, by the engine: it stops rightly; the first 100 back are no random sample.

    The engine opens its lane step by step and sends only so far ahead, which lessens the bias.
    """
    play, _ = run
    n_wrong, n_control, bias = 0, 0, []
    for seed in range(n_runs):
        found = play(seed, pace=seed)
        said = [e.outcome.observations[0].value for e in found.events if isinstance(e, Arrived)]
        k = int(sum(said[:100]))
        n_control += misses(hypergeometric_interval(k, 100, N_ITEMS, 0.05))
        bias.append(k / 100 - N_RIGHT / N_ITEMS)
        estimate = at_the_stop(found)
        (lower,), (upper,) = estimate["lower"], estimate["upper"]
        assert (upper - lower) / 2 <= 0.07
        n_wrong += misses((lower, upper))
    measured(
        f"A16: {n_runs} campaigns to 7 points, wrong answers late: wrong at the stop <= .05; "
        "control, the first 100 back, exact: wrong, bias",
        f"{n_wrong / n_runs:.3f}; {n_control / n_runs:.2f}, {np.mean(bias):.3f}",
    )
    assert n_wrong / n_runs <= 0.05 + 3 * np.sqrt(0.05 * 0.95 / n_runs)
    assert n_control / n_runs > 0.25
    assert np.mean(bias) > 0.05
