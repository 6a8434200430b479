"""Raw group differences: their limit, their variance's parts, their finite-sample bound."""

import itertools
import math
from dataclasses import replace

import numpy as np
import pytest
from scipy import stats

from estimators.batches import sequences
from estimators.markov_judge import simulate
from estimators.markov_model import fit_sequences
from estimators.markov_naive import (
    deviation_bound,
    naive_contrast,
    naive_limit,
    order_variance_split,
)
from tests.estimators.markov_data import judge, sequences_of, shuffled, two_groups

A, B = list(range(15)), list(range(15, 30))
SQUARE = (np.array([0, 1, 5, 2, 4, 3]) + np.arange(6)[:, None]) % 6
"""Each ordered pair of symbols is adjacent once, each symbol once in each slot."""

BASE = np.array([0.55, 0.25, 0.1, 0.0, -0.1, -0.3])
PAIR = np.array([1.0, -1.0, 0, 0, 0, 0])
FLAT, UNEVEN = (0.3, [-0.3], [-0.18]), (-0.3, [-1.2], [1.8])


def as_if(of, v=30):
    """A fit whose estimates are a judge's truth."""
    fit = fit_sequences(shuffled(of, 20, np.random.default_rng(0)))
    return replace(fit, coef=np.r_[of.theta, of.lags, of.starts], sigma_b=float(of.sigma))


def test_the_naive_contrast_is_the_mean_difference_within_batches():
    source = shuffled(judge(two_groups(0, 1, 1, v=6)), 25, np.random.default_rng(0))
    by_hand = []
    for order, state in zip(source.order, source.state, strict=True):
        said = dict(zip(order.tolist(), state.tolist(), strict=True))
        by_hand.append(np.mean([said[i] for i in (0, 1, 2)]) - np.mean([said[i] for i in (3, 4)]))
    found = naive_contrast(source, [0, 1, 2], [3, 4])
    assert found.est == pytest.approx(np.mean(by_hand))
    assert found.z == pytest.approx(stats.ttest_1samp(by_hand, 0).statistic)
    assert found.n_batches == 25


def test_batches_without_one_of_the_groups_say_nothing():
    rows = [(0, 0, "a", 1), (0, 1, "b", 0), (1, 0, "a", 1), (2, 0, "a", 1), (2, 1, "b", None)]
    found = naive_contrast(sequences(rows), ["a"], ["b"])
    assert (found.est, found.n_batches) == (1.0, 1)
    assert math.isnan(found.z)


def test_the_naive_limit_at_equal_means_is_not_zero():
    """Unequal spreads, -0.65 ± 1.2 and ± 0.4: +.026 on the probability scale, published."""
    of = judge(two_groups(-0.65, 1.2, 0.4))
    found = naive_limit(as_if(of), A, B)
    assert found.slope == pytest.approx(0, abs=1e-9)
    assert found.curvature > 0.02
    assert found.exact == pytest.approx(0.0260, abs=5e-4)
    assert found.spreads == pytest.approx(3)
    assert found.warns


@pytest.mark.parametrize(
    "of",
    [
        judge(two_groups(-0.65, 1.2, 0.4)),
        judge(two_groups(0.5, 0.3, 0.9, gap=0.4), [-1.5, 0.8], [1.0, -0.5], 1.0),
    ],
)
def test_the_predicted_limit_is_where_many_batches_end(of):
    rng = np.random.default_rng(1)
    order = np.argsort(rng.random((30_000, 30)), axis=-1)
    seen = naive_contrast(sequences_of(order, simulate(of, order, rng)), A, B)
    fit = fit_sequences(shuffled(of, 20, np.random.default_rng(0)), lags=of.lags.shape[-1])
    truth = replace(fit, coef=np.r_[of.theta, of.lags, of.starts], sigma_b=float(of.sigma))
    assert naive_limit(truth, A, B).exact == pytest.approx(seen.est, abs=4 * seen.se)


def test_small_gaps_of_equal_spread_are_read_off_the_slope():
    found = naive_limit(as_if(judge(two_groups(0.0, 0.3, 0.3, gap=0.1))), A, B)
    assert found.slope == pytest.approx(found.exact, rel=0.05)
    assert found.curvature == pytest.approx(0, abs=1e-9)
    assert not found.warns
    assert found.ratio == 1


def test_unequal_groups_are_reported():
    assert naive_limit(as_if(judge(two_groups(0, 1, 1))), A[:5], B).ratio == 3


@pytest.mark.parametrize("design", ["shuffle", "williams"])
def test_enumerated_variances_are_what_simulation_gives(design):
    of = judge(UNEVEN[0] + BASE, *UNEVEN[1:], 0.7)
    rng, n = np.random.default_rng(4), 40_000
    if design == "shuffle":
        order = np.argsort(rng.random((n, 6)), axis=-1)
        split = order_variance_split(of, PAIR)
    else:
        names = np.argsort(rng.random((n, 6)), axis=-1)
        order = names[:, SQUARE].reshape(-1, 6)
        split = order_variance_split(of, PAIR, SQUARE)
    state = simulate(of, order, rng)
    y = np.zeros(order.shape)
    np.put_along_axis(y, order, state.astype(float), axis=1)
    unit = (y @ PAIR).reshape(n, -1).mean(axis=1)
    variance = unit.var() * len(SQUARE) if design == "williams" else unit.var()
    assert sum(split) == pytest.approx(variance, rel=4 * math.sqrt(2 / n))


@pytest.mark.parametrize(("setting", "low", "high"), [(FLAT, 0.98, 1.02), (UNEVEN, 0.82, 0.89)])
def test_balance_takes_the_ordering_part_away_where_there_is_one(setting, low, high):
    """D3: at equal qualities a Williams block has no ordering part, and in the uneven setting that
    is 15 % of the variance; published by simulation as .853 ± .012."""
    of = judge(np.full(6, setting[0] + BASE.mean()), *setting[1:], 0.7)
    shuffle, williams = order_variance_split(of, PAIR), order_variance_split(of, PAIR, SQUARE)
    assert williams.ordering == pytest.approx(0, abs=1e-12)
    assert williams.rating == pytest.approx(shuffle.rating)
    assert low <= sum(williams) / sum(shuffle) <= high


def test_a_cyclic_square_balances_places_and_no_neighbours():
    """So in unequal items it leaves more of the ordering part than a Williams square."""
    of = judge(UNEVEN[0] + 3 * BASE, [-2.5], [0.0], 0.7)
    cyclic = (np.arange(6) + np.arange(6)[:, None]) % 6
    assert order_variance_split(of, PAIR, SQUARE).ordering < (
        order_variance_split(of, PAIR, cyclic).ordering
    )


def test_without_memory_orders_make_no_difference():
    of = judge(BASE, [0.0], [0.0], 0.7)
    assert order_variance_split(of, PAIR).ordering == pytest.approx(0, abs=1e-15)


def test_too_many_items_are_not_enumerated():
    with pytest.raises(ValueError, match="8 items"):
        order_variance_split(judge(np.zeros(8)), np.ones(8))


def test_square_rows_adjoin_each_pair_once():
    """The square of these tests is what it says."""
    pairs = list(itertools.chain(*(itertools.pairwise(row) for row in SQUARE.tolist())))
    assert len(set(pairs)) == len(pairs) == 30


@pytest.mark.parametrize(("n", "epsilon"), [(40, 0.25), (200, 0.15)])
def test_the_finite_sample_bound_holds(n, epsilon):
    """2 exp(-n epsilon²/2), and Bernstein's is tighter for small variances."""
    assert deviation_bound(epsilon, n) == pytest.approx(min(1, 2 * math.exp(-n * epsilon**2 / 2)))
    of = judge(two_groups(0, 1, 1, v=6))
    rng = np.random.default_rng(0)
    order = np.argsort(rng.random((4000, n, 6)), axis=-1)
    state = simulate(of, order, rng)
    y = np.zeros(order.shape)
    np.put_along_axis(y, order, state.astype(float), axis=-1)
    mean = (y @ np.r_[np.full(3, 1 / 3), np.full(3, -1 / 3)]).mean(axis=1)
    seen = (np.abs(mean - mean.mean()) >= epsilon).mean()
    variance = float(mean.var() * n)
    assert seen <= deviation_bound(epsilon, n, variance=variance) <= deviation_bound(epsilon, n)


def test_blocks_count_as_one():
    assert deviation_bound(0.3, 120, block=6) == deviation_bound(0.3, 20)
