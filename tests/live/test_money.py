"""What campaigns at live judges cost, to the nano-USD, by the usage that a server wrote."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from orchestrator.core.events import Arrived, Asked
from orchestrator.core.money import ceiling_cost
from orchestrator.core.query import Judged
from orchestrator.core.wire import Usage
from orchestrator.testing.server import Fault, Say

each = pytest.mark.parametrize(
    "speaks",
    ["chat", "responses", "anthropic", "google", "compatible", "python"],
    indirect=True,
)
reasoning = pytest.mark.parametrize(
    "speaks", ["chat", "responses", "google", "compatible"], indirect=True
)
C07 = Usage(input_tok=2_000, cached_input_tok=8_000, output_tok=500, reasoning_tok=300)


@reasoning
def test_cached_and_reasoning_tokens_are_charged_once(bench, kit):
    """C07: prompt 10,000 of which cached 8,000, output 500 of which reasoning 300: $0.0106."""
    bench.server.answer = lambda seen, n: kit.Answer(usage=C07)
    ran = bench.run(bench.judge(params={"max_output_tokens": 2_000}), n_items=3)
    assert [arrived.outcome.cost for arrived in ran.of(Arrived)] == [10_600_000] * 3
    assert ran.spend["settled_nano_usd"] == bench.server.bill == 3 * 10_600_000
    assert ran.spend["uncertain_nano_usd"] == ran.spend["overrun_nano_usd"] == 0


@pytest.mark.parametrize("speaks", ["anthropic"], indirect=True)
@pytest.mark.parametrize(
    ("cache", "written", "charge"),
    [
        ("5m", {"cache_write_5m_tok": 6_000}, 21_040_000),
        ("1h", {"cache_write_1h_tok": 6_000}, 30_040_000),
    ],
)
def test_cache_writes_have_prices_of_their_own(bench, kit, cache, written, charge):
    """C08: input 120, cache write 6,000, cache read 9,000, output 400."""
    usage = Usage(input_tok=120, cached_input_tok=9_000, output_tok=400, **written)
    bench.server.answer = lambda seen, n: kit.Answer(usage=usage)
    judge = bench.judge(anthropic={"cache": cache}, params={"max_output_tokens": 4_000})
    ran = bench.run(judge, n_items=3)
    assert [arrived.outcome.cost for arrived in ran.of(Arrived)] == [charge] * 3
    assert ran.spend["settled_nano_usd"] == bench.server.bill == 3 * charge
    assert {seen.json["system"][0]["cache_control"]["ttl"] for seen in bench.server.seen} == {cache}


@reasoning
def test_prices_of_a_batch_are_never_guessed(bench, kit):
    """C10: the lane is refused, exit 2; at half the prices the same usage costs $0.0053."""
    refused = bench.command(bench.judge(lane="batch"))
    assert refused.code == 2
    assert "lane" in refused.err
    assert not refused.directory.exists()
    assert bench.server.n_requests == 0

    bench.server.answer = lambda seen, n: kit.Answer(usage=C07)
    half = {name: usd / 2 for name, usd in kit.ACME.items()}
    judge = bench.judge(params={"max_output_tokens": 4_000}, price_usd_per_1m=half)
    assert bench.run(judge, n_items=2).spend["settled_nano_usd"] == 2 * 5_300_000


@each
def test_an_answer_without_usage_is_charged_its_hold(bench, kit):
    """C11: it counts, is flagged, and the result counts how many there were."""
    bench.server.answer = lambda seen, n: kit.Answer(usage=None if n == 2 else kit.SHORT)
    ran = bench.run(bench.judge(limits={"concurrency": 1}), n_items=4)
    holds = {asked.q: asked.hold for asked in ran.of(Asked)}
    outcomes = {arrived.q: arrived.outcome for arrived in ran.of(Arrived)}
    assert all(isinstance(outcome, Judged) for outcome in outcomes.values())
    (flagged,) = (q for q, outcome in outcomes.items() if "usage_missing" in outcome.flags)
    assert outcomes[flagged].cost == holds[flagged] > 800_000
    assert ran.spend["settled_nano_usd"] == 3 * 800_000 + holds[flagged]
    assert ran.result["diagnostics"]["flags"]["usage_missing"] == 1
    assert ran.result["judges"][0]["flags"]["usage_missing"] == 1
    assert ran.result["counts"]["answered"] == 4


@pytest.mark.parametrize("speaks", ["chat", "anthropic", "google", "compatible"], indirect=True)
@pytest.mark.parametrize("seed", range(3))
def test_the_servers_own_bill_never_passes_the_cap(bench, kit, seed):
    """C01: whatever fails, what a provider bills is within what was booked, and that in the cap.

    A reply that is cut, dropped or a 504 may have been worked for, so this server bills it.
    """
    rng = np.random.default_rng(seed)
    server = bench.server
    most = ceiling_cost(700, 500, kit.CARD)

    def bill_in_vain(_):
        server.bill += int(rng.integers(0, most + 1))

    def answer(seen, n):
        usage = Usage(
            input_tok=int(rng.integers(1, 350)),
            cached_input_tok=int(rng.integers(0, 350)),
            output_tok=int(rng.integers(1, 501)),
        )
        kind = rng.choice(
            ["good", "no usage", "unreadable", "drop", "cut", "504", "500", "429", "503", "408"],
            p=[0.5, 0.05, 0.05, 0.05, 0.1, 0.05, 0.05, 0.05, 0.05, 0.05],
        )
        delay_s = float(rng.exponential(0.005))
        said = kit.Answer(usage=usage, delay_s=delay_s)
        match kind:
            case "good":
                return said
            case "no usage":
                bill_in_vain(seen)
                return replace(said, usage=None)
            case "unreadable":
                return replace(said, text="I'd rather not say.")
            case "drop":
                bill_in_vain(seen)
                return Say(fault=Fault.DROPPED, delay_s=delay_s)
            case "cut":
                bill_in_vain(seen)
                return replace(server.say_of(said), fault=Fault.CUT)
            case "504" | "408":
                bill_in_vain(seen)
                return server.refuse(int(kind))
            case "500":
                # The one whose provider says that it is free.
                if bench.speaks.adapter != "google":
                    bill_in_vain(seen)
                return server.refuse(500)
            case _:
                return server.refuse(int(kind), headers={"retry-after-ms": "10"})

    server.answer = answer
    cap = 150_000_000
    judge = bench.judge(limits={"concurrency": 8})
    ran = bench.run(judge, n_items=60, budget={"usd": cap / 1e9, "max_uncertain": 1.0})
    spend = ran.spend
    booked = spend["settled_nano_usd"] + spend["uncertain_nano_usd"]
    assert ran.result["stop_reason"] == "budget"
    assert server.bill <= booked <= cap
    assert spend["settled_nano_usd"] > 0 < spend["uncertain_nano_usd"]
    assert spend["held_nano_usd"] == spend["overrun_nano_usd"] == 0
    bench.verify(ran)
