"""The cycle of a cold start, its propensity, and who is shown first."""

from collections import Counter

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import chisquare

from policies.pairing.cold_start import cold_start
from policies.pairing.orders import Orders


def connected(n, edges):
    group = list(range(n))
    for a, b in edges:
        old, new = group[a], group[b]
        group = [new if g == old else g for g in group]
    return len(set(group)) == 1


@given(st.integers(2, 40), st.integers(0, 2**32))
def test_a_cycle_connects_all_models_in_two_comparisons_each(n, seed):
    start = cold_start(n, np.random.default_rng(seed))
    assert len(start) == n
    assert connected(n, [(a, b) for a, b, _ in start])
    assert set(Counter(m for a, b, _ in start for m in (a, b)).values()) == {2}
    assert all(a < b for a, b, _ in start)
    assert len({(a, b) for a, b, _ in start}) == (n if n > 2 else 1)


def test_the_same_stream_draws_the_same_cycle():
    one, other = (cold_start(9, np.random.default_rng(4)) for _ in range(2))
    assert one == other != cold_start(9, np.random.default_rng(5))


def test_the_propensity_is_the_frequency_of_a_pair_at_its_place():
    """Each place of the cycle, the closing one as well, holds every pair equally often."""
    rng = np.random.default_rng(0)
    cycles = [cold_start(5, rng) for _ in range(4000)]
    assert {each.propensity for each in cycles[0]} == {1 / 10}
    for place in (0, 2, 4):
        counts = Counter((cycle[place].a, cycle[place].b) for cycle in cycles)
        assert len(counts) == 10
        assert chisquare(list(counts.values())).pvalue > 1e-4


def test_known_models_are_not_cycled_again():
    """Of 20 models 19 are known: the newcomer meets two of them, drawn at random."""
    known = np.ones((20, 20)) - np.eye(20)
    known[19] = known[:, 19] = 0
    rng = np.random.default_rng(0)
    starts = [cold_start(20, rng, known) for _ in range(2000)]
    assert {len(start) for start in starts} == {2}
    assert {each.b for start in starts for each in start} == {19}
    assert {each.propensity for start in starts for each in start} == {1 / 19}
    assert chisquare(np.bincount([start[0].a for start in starts], minlength=19)).pvalue > 1e-4
    assert cold_start(20, rng, np.ones((20, 20)) - np.eye(20)) == []


def test_known_groups_that_never_met_are_bridged():
    halves = np.zeros((8, 8))
    halves[:4, :4] = halves[4:, 4:] = 3 * (1 - np.eye(4))
    halves[7] = halves[:, 7] = 0
    halves[7, 6] = halves[6, 7] = 1  # one comparison is not enough to be known
    start = cold_start(8, np.random.default_rng(1), halves)
    assert len(start) == 3
    sides = {frozenset(0 if m < 4 else 2 if m == 7 else 1 for m in (a, b)) for a, b, _ in start}
    assert sides == {frozenset({0, 1}), frozenset({0, 2}), frozenset({1, 2})}
    for a, b, propensity in start:
        size = {True: 4, False: 3}[min(a, b) < 4] if b == 7 else 12
        assert propensity == pytest.approx(1 / (3 * size))


# Orders


def shown(orders, pairs, uniform):
    made = []
    for (a, b), u in zip(pairs, uniform, strict=True):
        made.append(orders.ahead(a, b, u))
        assert orders.ahead(a, b, u) == made[-1]
        orders.launched(*made[-1])
    return made


@given(st.integers(0, 2**32), st.integers(1, 200))
def test_orders_of_a_pair_never_differ_by_more_than_one(seed, n):
    rng = np.random.default_rng(seed)
    pairs = [tuple(rng.choice(4, 2, replace=False).tolist()) for _ in range(n)]
    made = Counter(shown(Orders(4, "balanced_random"), pairs, rng.random(n)))
    for a, b in made:
        assert abs(made[a, b] - made[b, a]) <= 1


def test_the_first_of_two_is_a_fair_coin():
    """Bar B10: order within 4 SE of one half over all questions, and over the coins alone."""
    rng = np.random.default_rng(3)
    pairs = [tuple(sorted(rng.choice(40, 2, replace=False).tolist())) for _ in range(2000)]
    made = shown(Orders(40, "balanced_random"), pairs, rng.random(2000))
    low_first = np.mean([a < b for a, b in made])
    assert abs(low_first - 0.5) <= 4 * 0.5 / np.sqrt(2000)
    coins = [Orders(2, "balanced_random").ahead(0, 1, u) for u in rng.random(2000)]
    assert abs(np.mean([first == 0 for first, _ in coins]) - 0.5) <= 4 * 0.5 / np.sqrt(2000)


def test_both_orders_are_asked_one_after_the_other():
    orders = Orders(3, "both")
    assert not orders.owes(0, 2)
    assert orders.ahead(0, 2, 0.9) == (2, 0)
    orders.launched(2, 0)
    assert orders.owes(2, 0)
    assert orders.ahead(0, 2, 0.9) == (0, 2)
    orders.launched(0, 2)
    assert not orders.owes(0, 2)
    assert orders.ahead(0, 2, 0.1) == (0, 2)


def test_a_single_order_is_always_the_same():
    made = shown(Orders(3, "single"), [(2, 1)] * 4, [0.1, 0.9, 0.4, 0.6])
    assert set(made) == {(1, 2)}
    assert not Orders(3, "single").owes(1, 2)
