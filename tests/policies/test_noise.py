"""Variances to plan with: pulled to what judge and item show elsewhere, or with a margin."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.testing import assert_allclose
from scipy.optimize import root

from policies.noise import FLOOR, ITEM_WEIGHT, MOST_WEIGHT, fitted, plain, shrunk


def draws(rng, variance, n):
    """Draw unbiased variances of n normal scores."""
    return variance * rng.chisquare(n - 1, variance.shape) / (n - 1)


def test_a_table_that_is_a_product_is_fitted_exactly():
    """Item factor times judge level: with many degrees of freedom the fit is the table."""
    variance = np.outer([0.5, 1.0, 1.5], [0.01, 0.04])
    assert_allclose(fitted(variance, np.full((3, 2), 1e9), 1.0), variance, rtol=1e-6)


def test_the_fit_solves_its_equations():
    """Second witness: a root finder on the levels, each item's factor without the judge itself."""
    rng = np.random.default_rng(1)
    df = rng.integers(1, 9, (40, 3)).astype(float)
    variance = draws(rng, np.outer(rng.uniform(0.5, 2, 40), [0.01, 0.02, 0.08]), 4)

    def factors(level, used):
        squares = (variance * df / level)[:, used].sum(axis=1)
        return (squares + ITEM_WEIGHT) / (df[:, used].sum(axis=1) + ITEM_WEIGHT)

    def gap(log_level):
        level = np.exp(log_level)
        others = [factors(level, [i for i in range(3) if i != j]) for j in range(3)]
        found = [np.average(variance[:, j] / others[j], weights=df[:, j]) for j in range(3)]
        return np.log(found) - log_level

    level = np.exp(root(gap, np.log(variance.mean(axis=0))).x)
    table = factors(level, [0, 1, 2])[:, None] * level
    table *= (variance * df).sum() / (table * df).sum()
    assert_allclose(fitted(variance, df, 1.0), table, rtol=1e-3)


@pytest.mark.parametrize("n_judges", [1, 2, 3, 10])
def test_levels_of_judges_are_not_biased_by_the_factors_of_items(n_judges):
    """A near-binary judge among steady ones keeps its level: mean fit over mean truth within 10 %."""
    rng = np.random.default_rng(9)
    scores = rng.normal(0.9, 0.2, (4000, n_judges, 3))
    scores[:, 0] = rng.random((4000, 3)) < 0.9
    variance = np.var(scores, axis=2, ddof=1)
    fit = fitted(variance, np.full(variance.shape, 2.0), 1.0)
    ratio = fit.mean(axis=0) / np.where(np.arange(n_judges) == 0, 0.09, 0.04)
    assert ratio[0] == pytest.approx(1, abs=0.1)
    assert_allclose(ratio / ratio[0], 1, atol=0.15)


def test_an_item_that_shows_no_noise_is_not_taken_for_noiseless():
    """Where all judges agree in three repeats, the item keeps a third of the usual variance."""
    variance = np.full((50, 2), 0.04)
    variance[0] = 0
    fit = fitted(variance, np.full((50, 2), 2.0), 1.0)
    assert fit[0, 0] / fit[1, 0] == pytest.approx(ITEM_WEIGHT / (4 + ITEM_WEIGHT), rel=0.02)
    assert shrunk(variance, np.full((50, 2), 2.0), 1.0, 3.0).variance[0].min() > 0.01


def test_cells_without_repeats_take_no_part():
    """What stands where nothing was repeated, nan too, changes nothing; such cells get the fit."""
    rng = np.random.default_rng(2)
    variance, df = draws(rng, np.full((20, 3), 0.05), 5), np.full((20, 3), 4.0)
    df[3, 1] = df[:, 2] = 0
    first = shrunk(np.where(df > 0, variance, np.nan), df, 1.0, 3.0)
    second = shrunk(np.where(df > 0, variance, 99.0), df, 1.0, 3.0)
    assert_allclose(first.variance, second.variance)
    assert first.variance[3, 1] == pytest.approx(first.fit[3, 1])
    level = first.fit[:, 0] / first.fit[0, 0]
    assert_allclose(first.fit[:, 2] / first.fit[0, 2], level)
    assert first.fit[:, 2].max() <= 0.25 * 4  # half the span, times the item's factor


def test_nothing_known_is_half_the_span():
    """Without any repeat a cell is as noisy as the scale allows."""
    nothing = np.zeros((2, 3))
    assert_allclose(shrunk(nothing, nothing, 4.0, 3.0).variance, 4.0)
    assert_allclose(shrunk(nothing, nothing, 4.0, None).variance, 4.0)
    assert_allclose(plain(nothing * np.nan, nothing, 4.0, 0.5).variance, (2 + 0.5) ** 2)


def test_one_or_no_valid_score_is_unknown_not_precise():
    """Pitfall 13: a cell without two valid scores has the margin on top of half the span."""
    found = plain(np.array([[0.0, np.nan]]), np.array([[3.0, 0.0]]), 1.0, 0.1)
    assert_allclose(found.variance, [[0.1**2, 0.6**2]])


def test_the_margin_is_on_the_standard_deviation():
    """Pitfall 5: (s + tau)² at prices 1 and 4.5 is .16 against .18, so the noisy judge serves."""
    found = plain(np.array([[0.09, 0.01]]), np.full((1, 2), 9.0), 1.0, 0.1).variance
    assert_allclose(found * [1, 4.5], [[0.16, 0.18]])


def test_a_standard_deviation_above_half_the_span_is_cut():
    """No score on [0, R] spreads more than R/2; an unbiased estimate from two scores can say so."""
    two = np.array([[0.5]])  # 0 and 1
    assert_allclose(plain(two, np.ones((1, 1)), 1.0, 0.0).variance, 0.25)
    assert shrunk(two, np.ones((1, 1)), 1.0, 0.0).variance.max() <= 0.25


def test_the_pull_is_the_weighted_mean_of_fit_and_own_variance():
    rng = np.random.default_rng(3)
    variance, df = draws(rng, np.full((30, 4), 0.05), 4), np.full((30, 4), 3.0)
    found = shrunk(variance, df, 1.0, 3.0)
    assert_allclose(found.variance, np.minimum((3 * found.fit + 3 * variance) / 6, 0.25))
    assert_allclose(shrunk(variance, df, 1.0, 0.0).variance, np.minimum(variance, 0.25))
    assert found.weight == 3


def test_the_estimated_pull_follows_how_far_cells_differ():
    """A product table is pulled hard, cells of their own little; normal scores, many cells."""
    rng = np.random.default_rng(4)
    product = np.outer(rng.uniform(0.5, 1.5, 500), np.geomspace(0.001, 0.01, 10))
    df = np.full(product.shape, 5.0)
    alike = shrunk(draws(rng, product, 6), df, 1.0, None)
    assert alike.weight > 15
    own = product * np.exp(0.8 * rng.normal(size=product.shape))
    assert shrunk(draws(rng, own, 6), df, 1.0, None).weight < alike.weight / 2
    assert alike.weight <= MOST_WEIGHT


def test_the_estimated_pull_is_near_the_best_one():
    """Second witness: of all weights on a grid none has a much lower squared error."""
    rng = np.random.default_rng(5)
    fit = np.outer(rng.uniform(0.5, 1.5, 400), np.geomspace(0.001, 0.01, 10))
    truth = fit * rng.gamma(3, 1 / 3, fit.shape)
    seen, df = draws(rng, truth, 6), np.full(fit.shape, 5.0)

    def loss(weight):
        return float((((shrunk(seen, df, 1.0, weight).variance - truth) / fit) ** 2).mean())

    best = min(loss(w) for w in np.arange(0.0, 21.0))
    assert loss(None) <= 1.05 * best


def test_a_judge_that_looks_noiseless_is_not_chosen_for_it():
    """Pitfall 7: of a near-binary judge (.09) and a steady one (.04), three scores alike in 73 %.

    By raw variances the worse judge is taken in most runs; by pulled ones, over a table, seldom.
    """
    rng = np.random.default_rng(6)
    n_items = 2000
    binary = rng.random((n_items, 3)) < 0.9
    steady = rng.normal(0.9, 0.2, (n_items, 3))
    variance = np.stack([np.var(binary, axis=1, ddof=1), np.var(steady, axis=1, ddof=1)], axis=1)
    df = np.full(variance.shape, 2.0)
    worse = [
        float((v[:, 0] <= v[:, 1]).mean())
        for v in (variance, shrunk(variance, df, 1.0, 3.0).variance)
    ]
    assert worse[0] == pytest.approx(0.73, abs=0.04)
    assert worse[1] < 0.25


@given(
    seed=st.integers(0, 2**32 - 1),
    n_items=st.integers(1, 8),
    n_judges=st.integers(1, 5),
    span=st.sampled_from([1.0, 4.0, 9.0]),
    weight=st.one_of(st.none(), st.floats(0.5, 20)),
)
def test_variances_to_plan_with_are_positive_and_possible(seed, n_items, n_judges, span, weight):
    """Above the floor's part of the pull and at most half the span squared, whatever was seen."""
    rng = np.random.default_rng(seed)
    df = rng.integers(0, 4, (n_items, n_judges)).astype(float)
    variance = rng.gamma(0.3, span**2, df.shape) * rng.integers(0, 2, df.shape)
    found = shrunk(variance, df, span, weight)
    least = FLOOR * span**2 * found.weight / (found.weight + df)
    assert (found.variance >= least * (1 - 1e-9)).all()
    assert (found.variance <= span**2 / 4).all()
    assert 0 < found.weight <= MOST_WEIGHT
    assert (plain(variance, df, span, 0.1).variance <= (span / 2 + 0.1) ** 2 + 1e-12).all()


def test_scores_and_their_scale_have_one_unit():
    """A scale ten times as long gives variances a hundred times as large."""
    rng = np.random.default_rng(7)
    variance, df = draws(rng, np.full((30, 4), 0.05), 4), np.full((30, 4), 3.0)
    for weight in (3.0, None):
        small, large = (shrunk(variance * r**2, df, r, weight) for r in (1.0, 10.0))
        assert_allclose(large.variance, 100 * small.variance)
        assert math.isclose(small.weight, large.weight)
