"""A crash in any phase of an adaptive policy resumes to the same plan, questions and numbers."""

from __future__ import annotations

from dataclasses import replace

import anyio
import numpy as np
import pytest

from orchestrator import Campaign
from orchestrator.core.events import DECISIONS, Asked, Opened, Reasked, Told
from orchestrator.core.query import Purpose
from orchestrator.core.stopping import StopReason
from orchestrator.engine.fold import State
from orchestrator.engine.verify import verify
from orchestrator.store.memory import MemoryStore
from orchestrator.testing.virtual import run_virtually

CAMPAIGN = """\
version: 1
name: phases
seed: 5
data: {path: items.csv, id: id}
judges:
  - {name: a, adapter: recorded, recorded: {path: r.csv, judge: a, usd_per_call: 0.003}}
  - {name: b, adapter: recorded, recorded: {path: r.csv, judge: b, usd_per_call: 0.001}}
task: {kind: rate, scale: {type: float, min: 0, max: 10}}
policy: {kind: est_ivwe, target: TARGET, window: 16}
budget: {usd: 12}
"""
N_ITEMS, N_REPEATS = 12, 10


class Slow:
    """A judge that takes its time, differently in every process."""

    def __init__(self, adapter, seed):
        self._adapter = adapter
        self._rng = np.random.default_rng(seed)
        self.ceiling, self.aclose = adapter.ceiling, adapter.aclose

    async def send(self, request):
        await anyio.sleep(float(self._rng.exponential(1.0)))
        return await self._adapter.send(request)


@pytest.fixture
def crew_of(tmp_path):
    """The campaign's crew with judges of a speed of their own; money buys all that is recorded."""
    rng = np.random.default_rng(0)
    (tmp_path / "items.csv").write_text("id\n" + "".join(f"i{i}\n" for i in range(N_ITEMS)))
    rows = ["item_id,judge,replicate,score"]
    for i in range(N_ITEMS):
        for judge in "ab":
            sd = rng.uniform(0.3, 1.5)
            rows += [
                f"i{i},{judge},{r},{'' if rng.random() < 0.05 else round(5 + sd * z, 3)}"
                for r, z in enumerate(rng.standard_normal(N_REPEATS))
            ]
    (tmp_path / "r.csv").write_text("\n".join(rows) + "\n")

    def build(target, seed):
        path = tmp_path / "c.yaml"
        path.write_text(CAMPAIGN.replace("TARGET", target))
        crew = Campaign.from_yaml(path, environ={}).build().crew
        slow = (replace(j, adapter=Slow(j.adapter, seed + i)) for i, j in enumerate(crew.judges))
        return replace(crew, judges=tuple(slow))

    return build


def chain(events):
    """The decisions without what mending a crash adds."""
    return [e for e in events if type(e).__name__ in DECISIONS and not isinstance(e, Reasked)]


def places(events):
    """Cut in the pilot, around the answer that ends it, and among the scores."""
    told_pilot = [
        i
        for i, e in enumerate(events)
        if isinstance(e, Told) and events_query(events, e.q).purpose is Purpose.PILOT
    ]
    barrier, end = told_pilot[-1], len(events)
    early = np.linspace(3, barrier - 1, 6).astype(int).tolist()
    return [
        *early,
        barrier,
        barrier + 1,
        barrier + 2,
        *np.linspace(barrier + 3, end - 1, 6).astype(int),
    ]


def events_query(events, q):
    return next(e.query for e in events if isinstance(e, Asked) and e.q == q)


@pytest.mark.parametrize("target", ["common", "panel", "population"])
def test_a_crash_in_any_phase_changes_nothing_but_the_repair(crew_of, target):
    """In the pilot, at the barrier and among the scores: same questions, counts and estimates."""
    whole = run_virtually(crew_of(target, 0))
    assert whole.state.stopped is StopReason.FINISHED
    asked = [e.query for e in whole.events if isinstance(e, Asked)]
    assert {q.purpose for q in asked} == {Purpose.PILOT, Purpose.POLICY}
    mended = 0
    for cut in places(whole.events):
        kept = MemoryStore(whole.store.lines[:cut], dict(whole.store.blobs))
        again = run_virtually(crew_of(target, 100 + int(cut)), kept, whole.archive)
        assert chain(again.events) == chain(whole.events), cut
        assert again.state.last_look.estimates == whole.state.last_look.estimates
        assert again.state.policy.explain() == whole.state.policy.explain()
        mended += any(isinstance(e, Reasked) for e in again.events)
        crew = crew_of(target, 0)
        opened = next(e for e in again.events if isinstance(e, Opened))
        state = State(replace(crew, opened=opened))
        assert not list(verify(state, again.store.read(), again.archive.recall))
    assert mended > 3
