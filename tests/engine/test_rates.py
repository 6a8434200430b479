"""Buckets: what they let through in a minute, and what they learn."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.core.judge import Limits
from orchestrator.core.query import Kind, Query
from orchestrator.core.wire import FIRST_ATTEMPT, Request, Usage
from orchestrator.engine.rates import BURST_S, Bucket, Rates, accounts
from orchestrator.testing.fakes import FakeAdapter, fake_crew


def a_judge(limits, **changes):
    (judge,) = fake_crew([FakeAdapter(None)]).judges
    return replace(judge, limits=limits, **changes)


class Bounded:
    """Bounds a call by so many tokens in and out."""

    def __init__(self, n_in, n_out):
        self._tokens = (n_in, n_out)

    def ceiling(self, request, card):
        return (self._tokens[0] * card.input + self._tokens[1] * card.output) // 1000


def request():
    query = Query(kind=Kind.RATE, judge=0, units=(0,))
    return Request(query=query, attempt=FIRST_ATTEMPT, parts=(), max_output_tok=1, schema={})


@given(
    per_minute=st.integers(1, 10_000),
    amounts=st.lists(st.floats(0.1, 5_000.0), min_size=1, max_size=60),
    idle=st.lists(st.floats(0.0, 30.0), min_size=60, max_size=60),
)
def test_no_minute_sees_more_than_the_limit_and_a_burst(per_minute, amounts, idle):
    """Whatever is asked for whenever: at most ten seconds' worth on top, and the last amount."""
    bucket, now, taken = Bucket(per_minute, 0.0), 0.0, []
    for amount, pause in zip(amounts, idle, strict=False):
        now = max(now + pause, bucket.ready_at(amount, now + pause))
        bucket.take(amount, now)
        taken.append((now, amount))
    burst = max(1.0, per_minute / 60 * BURST_S)
    for begin, _ in taken:
        within = [amount for at, amount in taken if begin <= at < begin + 60.0]
        assert sum(within) <= per_minute + burst + max(within) + 1e-6 * per_minute


def test_a_bucket_lets_through_what_it_is_named_for():
    """A hundred at once: ten seconds' worth, then one a second."""
    bucket, now, at = Bucket(60, 0.0), 0.0, []
    for _ in range(100):
        now = bucket.ready_at(1, now)
        bucket.take(1, now)
        at.append(now)
    assert at[:10] == [0.0] * 10
    assert at[10:] == pytest.approx([float(k) for k in range(1, 91)])


def test_more_than_a_bucket_holds_leaves_it_in_debt():
    bucket = Bucket(60, 0.0)
    assert bucket.ready_at(25, 0.0) == 0.0
    bucket.take(25, 0.0)
    assert bucket.ready_at(1, 0.0) == pytest.approx(16.0)


def test_tokens_are_taken_by_what_calls_came_to():
    """Bytes bound tokens four times too high: after one reply the next counts a quarter."""
    judge = a_judge(Limits(input_tpm=6_000, output_tpm=600), adapter=Bounded(800, 400))
    rates = Rates(judge.limits, 0.0)
    first = rates.expect(judge, request())
    assert (first.input, first.output) == (800, 400)
    rates.take(first, 0.0)
    assert rates.ready_at(first, 0.0) > 0
    rates.settle(first, Usage(input_tok=150, cached_input_tok=50, output_tok=40), 1.0)
    again = rates.expect(judge, request())
    assert (again.input, again.output) == pytest.approx((200, 40))
    assert rates.ready_at(again, 1.0) == 1.0


def test_nothing_is_limited_where_nothing_is_said():
    rates = Rates(Limits(), 5.0)
    assert rates.is_unlimited
    assert rates.ready_at(rates.expect(a_judge(Limits()), request()), 5.0) == 5.0


def test_judges_of_one_model_and_key_share_the_lowest_limits():
    same = {"account": "k", "model": "m"}
    panel = [
        a_judge(Limits(rpm=60, input_tpm=10), **same),
        a_judge(Limits(rpm=30), **same),
        a_judge(Limits(rpm=90), account="k", model="other"),
        a_judge(Limits(rpm=7), model="m"),
        a_judge(Limits(), model="m"),
    ]
    (one, a), (two, b), (three, c), (four, d), (five, e) = accounts(panel, 0.0)
    assert one is two is three
    assert len({id(one), id(four), id(five)}) == 3
    assert a is b
    assert (a.limits.rpm, a.limits.input_tpm) == (30, 10)
    assert (c.limits.rpm, d.limits.rpm) == (90, 7)
    assert e.is_unlimited
