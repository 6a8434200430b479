"""Verdicts of live judges that are kept between runs."""

from __future__ import annotations

import pytest

from orchestrator.core.events import Arrived, Asked
from orchestrator.core.wire import Finish, Origin

each = pytest.mark.parametrize(
    "speaks",
    ["chat", "responses", "anthropic", "google", "compatible", "python"],
    indirect=True,
)
KEPT = {"cache": {"dir": "kept"}}


def counted(bench, *judges, **sections):
    """Run a campaign with the cache; gives how many requests it took, and how it ended."""
    before = bench.server.n_requests
    ran = bench.run(*judges, **KEPT, **sections)
    return bench.server.n_requests - before, ran


@each
def test_a_rerun_sends_nothing_and_costs_nothing(bench, kit):
    """C30, C58: hits hold nothing, cost nothing, and the estimates are the same."""
    bench.server.answer = lambda seen, n: kit.Answer(
        text=f'{{"score": {1 + kit.item_of(seen) % 5}}}'
    )
    n_first, first = counted(bench, n_items=8)
    n_again, again = counted(bench, n_items=8)
    assert (n_first, n_again) == (8, 0)
    assert again.result["estimates"] == first.result["estimates"]
    assert again.result["counts"]["cached"] == 8
    assert first.result["counts"]["cached"] == 0
    assert again.spend["settled_nano_usd"] == again.spend["uncertain_nano_usd"] == 0
    assert {(asked.hold, asked.origin) for asked in again.of(Asked)} == {(0, Origin.CACHE)}
    assert {arrived.outcome.cost for arrived in again.of(Arrived)} == {0}
    assert first.spend["settled_nano_usd"] == bench.server.bill == 8 * 800_000
    bench.verify(again)


@each
def test_hits_leave_the_spend_of_the_rest_unchanged(bench):
    """C58: four of eight are remembered, so that four are held, asked and paid."""
    counted(bench, n_items=4)
    n, ran = counted(bench, n_items=8)
    assert n == 4
    assert ran.result["counts"]["cached"] == 4
    assert ran.spend["settled_nano_usd"] == 4 * 800_000
    assert sorted(asked.hold > 0 for asked in ran.of(Asked)) == [False] * 4 + [True] * 4


@each
def test_repeats_are_draws_of_their_own(bench):
    """C30: three repeats are three requests in the first run, and none in the second."""
    thrice = {"policy": {"kind": "uniform", "max_repeats": 3, "allow_identical_repeats": True}}
    n_first, first = counted(bench, n_items=2, **thrice)
    n_again, again = counted(bench, n_items=2, **thrice)
    assert (n_first, n_again) == (6, 0)
    assert first.result["counts"]["answered"] == again.result["counts"]["answered"] == 6


_CHANGES = {
    "model": lambda b: {"judge": {"model": OTHER_MODEL[b.speaks.adapter]}},
    "rubric": lambda b: {"task": {"rubric": "Judge the style of {{ candidate }}."}},
    "candidate": lambda b: {"texts": ["item-0; other words", "item-1; other words"]},
    "output limit": lambda b: {"judge": {"params": {"max_output_tokens": 501}}},
    "temperature": lambda b: {"judge": {"params": {"max_output_tokens": 500, "temperature": 0.5}}},
    "schema": lambda b: {"task": {"output": {"reason": "after"}}},
    "base_url": lambda b: {"judge": {"base_url": f"{b.server.url}/elsewhere"}},
    "parameters of one's own": lambda b: {
        "judge": {"params": {"max_output_tokens": 500, "extra": {"top_k": 3}}}
    },
}
OTHER_MODEL = {
    "openai": "gpt-4.1",
    "anthropic": "claude-opus-4-5",
    "google": "gemini-2.5-pro",
    "compatible": "acme-new",
}


@pytest.mark.parametrize(
    "speaks",
    [
        "compatible",
        *(
            pytest.param(name, marks=pytest.mark.slow)
            for name in ("chat", "responses", "anthropic", "google")
        ),
    ],
    indirect=True,
)
def test_whatever_changes_the_question_is_asked_anew(bench):
    """C30: each of them misses, at the server; and what was asked first is still remembered."""
    assert counted(bench, n_items=2)[0] == 2
    for name, change in _CHANGES.items():
        given = change(bench)
        judge = bench.judge(**given.pop("judge", {}))
        assert counted(bench, judge, n_items=2, **given)[0] == 2, name
    assert counted(bench, n_items=2)[0] == 0


def test_another_adapter_asks_anew(bench, kit):
    """C30: the same words to the same model and address."""
    judge = bench.judge(model="gpt-4o-mini")
    assert counted(bench, judge, n_items=2)[0] == 2
    bench.server.speaks = bench.speaks
    other = {key: value for key, value in judge.items() if key != "compatible"}
    assert counted(bench, other | {"adapter": "openai"}, n_items=2)[0] == 2


@each
def test_what_is_no_verdict_is_never_remembered(bench, kit):
    """C30: a refusal, a cut and what can't be read are asked again by the next run."""
    finishes = [Finish.REFUSED, Finish.LENGTH, Finish.STOP]
    bench.server.answer = lambda seen, n: kit.Answer(
        text="I'd rather not.", finish=finishes[kit.item_of(seen)]
    )
    _, first = counted(bench, n_items=3)
    assert first.result["counts"]["answered"] == 0
    bench.server.answer = lambda seen, n: kit.Answer()
    n, second = counted(bench, n_items=3)
    assert n == 3
    assert second.result["counts"]["answered"] == 3
    assert second.result["counts"]["cached"] == 0
