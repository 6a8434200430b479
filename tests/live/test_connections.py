"""How many connections campaigns have to live judges, and what becomes of slow ones."""

from __future__ import annotations

import time

import pytest

from orchestrator import Campaign
from orchestrator.control import parse, post
from orchestrator.core.events import Arrived, Asked, Reasked
from orchestrator.core.query import MissingReason

PROVIDERS = ["chat", "responses", "anthropic", "google", "compatible"]
each = pytest.mark.parametrize("speaks", [*PROVIDERS, "python"], indirect=True)
by_clock = pytest.mark.parametrize(
    "speaks",
    ["compatible", *(pytest.param(n, marks=pytest.mark.slow) for n in PROVIDERS[:-1])],
    indirect=True,
)


@by_clock
def test_as_many_calls_run_as_are_allowed(bench, kit):
    """Also beyond what one pool of connections holds."""
    bench.server.answer = lambda seen, n: kit.Answer(delay_s=0.15)
    ran = bench.run(bench.judge(limits={"concurrency": 60}), n_items=240)
    assert ran.result["counts"]["answered"] == bench.server.n_requests == 240
    assert 40 < bench.server.most_under_way <= 60
    assert bench.server.n_connections <= 60


@by_clock
@pytest.mark.parametrize("jobs", [None, 8])
def test_more_calls_run_once_the_user_allows_more(bench, kit, jobs):
    """`sortition ctl set` raises what a judge was built for, and no call waits for a connection."""
    server = bench.server
    server.answer = lambda seen, n: kit.Answer(delay_s=0.1)
    file = bench.file(bench.judge(limits={"concurrency": 2}), n_items=50)
    said = []

    def observe(progress, events):
        if progress.n_told >= 4 and not said:
            said.append(post(directory, parse(["set", "judges.jury.concurrency=8"])))

    ran = bench.ran()
    directory = ran.directory
    Campaign.from_yaml(file).run(directory, observe=observe, max_in_flight=jobs)
    assert server.n_requests == 50
    assert server.most_under_way == 8
    assert max(arrived.took_s for arrived in ran.of(Arrived)) < 0.19


@each
def test_a_reply_that_drips_is_given_up_in_time(bench, kit):
    """C17: no single byte is late, and the whole is."""
    server = bench.server
    server.drips = lambda seen: kit.item_of(seen) == 1
    judge = bench.judge(timeouts={"attempt": 0.3, "answer": 0.9}, max_attempts=1)
    began = time.monotonic()
    ran = bench.run(judge, n_items=4)
    assert time.monotonic() - began < 2
    assert server.n_requests == 4
    assert ran.result["counts"]["answered"] == 3
    (late,) = (a.outcome for a in ran.of(Arrived) if a.took_s >= 0.3)
    assert late.reason is MissingReason.TIMEOUT
    assert late.uncertain > 0 == late.cost


@each
def test_a_server_that_hangs_up_between_calls_is_reconnected(bench, kit):
    """It keeps no connection and does not say so. Only a call that crosses the end of its connection
    is in doubt, and is asked again."""
    server = bench.server
    server.hangs_up = True
    ran = bench.run(bench.judge(limits={"concurrency": 2}), n_items=12)
    assert server.n_requests == ran.result["counts"]["answered"] == 12
    assert server.n_connections == 12
    assert ran.spend["settled_nano_usd"] == server.bill
    holds = {asked.q: asked.hold for asked in ran.of(Asked)}
    crossed = [holds[again.q] for again in ran.of(Reasked)]
    assert ran.spend["uncertain_nano_usd"] == sum(crossed)
    assert len(crossed) < 6
