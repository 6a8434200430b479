"""How many batches a campaign asks for: what its money pays for, that of each judge included."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.core.batches import batches_per_look, most_batches
from orchestrator.core.money import FREE, Nano, PriceCard
from orchestrator.core.query import Kind
from orchestrator.testing.policies import small_study

CARD = PriceCard(input=1)


def study(cap, *judges):
    """A study whose judges have an expected price, a worst case and a cap of their own each."""
    made = small_study(kind=Kind.RATE_BATCH, repeats=[None] * len(judges))
    panel = tuple(
        replace(judge, card=CARD, planning=price, worst=worst, cap=own)
        for judge, (price, worst, own) in zip(made.panel, judges, strict=True)
    )
    return replace(made, panel=panel, cap=None if cap is None else Nano(cap))


@given(
    cap=st.integers(500, 5000),
    own=st.lists(st.none() | st.integers(300, 5000), min_size=2, max_size=2),
    worst=st.lists(st.integers(10, 40), min_size=2, max_size=2),
)
def test_the_money_pays_for_all_batches_and_the_worst_case_of_the_last(cap, own, worst):
    """Of the campaign and of each judge with a cap of its own; and for one batch more it does not."""
    about = study(cap, (10, worst[0], own[0]), (20, max(20, worst[1]), own[1]))
    n = most_batches(about, "auto", 2)

    def is_paid(n):
        lasts = [
            judge.planning * (n - 1) + max(judge.worst, judge.planning) for judge in about.panel
        ]
        return sum(lasts) <= cap and all(
            judge.cap is None or last <= judge.cap
            for judge, last in zip(about.panel, lasts, strict=True)
        )

    assert is_paid(n)
    assert not is_paid(n + 1)


def test_a_number_of_blocks_is_meant_whatever_the_money():
    assert most_batches(study(None, (10, 10, 5)), 3, 4) == 12


def test_a_judge_that_is_free_limits_nothing():
    about = study(1000, (10, 10, None), (10, 10, 50))
    free = replace(about.panel[1], card=FREE)
    assert most_batches(about, "auto", 2) == 5
    assert most_batches(replace(about, panel=(about.panel[0], free)), "auto", 2) == 50


@pytest.mark.parametrize(
    ("about", "why"),
    [
        (study(None, (10, 10, None)), "auto wants budget.usd; or give the number of blocks"),
        (study(100, (0, 0, None)), "auto wants prices, and the judges are free"),
        (study(59, (10, 30, None)), "the cap pays for 3 batches of each judge"),
        (
            study(1000, (10, 10, None), (10, 30, 59)),
            "the cap of judge1 pays for 3 batches of judge1",
        ),
    ],
)
def test_a_cap_that_pays_for_no_block_is_named(about, why):
    with pytest.raises(ValueError, match=why):
        most_batches(about, "auto", 4)


def test_looks_come_after_whole_blocks():
    assert [batches_per_look(n, 4) for n in (3, 12, 100, 159, 400)] == [3, 12, 12, 16, 40]
