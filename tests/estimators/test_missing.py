"""Tests whether missing verdicts depend on the arm, against scipy."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from estimators.missing import fisher_p, missing_test


@given(table=st.lists(st.integers(0, 60), min_size=4, max_size=4))
def test_fisher_agrees_with_scipy(table):
    """Against scipy's exact test."""
    square = np.reshape(table, (2, 2)).astype(float)
    expected = stats.fisher_exact(square.astype(int)).pvalue
    assert fisher_p(square) == pytest.approx(expected, rel=1e-6)


def test_more_arms_are_compared_by_chi_square():
    """Against scipy; small expected counts are said to be rough; without missing there is none."""
    got, gone = one_each(np.array([[40, 45, 30, 0], [10, 5, 20, 0]]))
    test = missing_test(got, gone, None)
    expected = stats.chi2_contingency([[40, 45, 30], [10, 5, 20]], correction=False).pvalue
    assert (test.p, test.method) == (pytest.approx(expected), "chi_square")
    assert not test.is_rough
    few = one_each(np.array([[40, 45, 30, 0], [3, 0, 0, 0]]))
    assert missing_test(*few, None).is_rough
    assert math.isnan(missing_test(got, np.zeros_like(got), None).p)


def one_each(table):
    """Lay out a table (2, n_arms) of verdicts got and missing as items of one question each."""
    n_items = table.sum(axis=0).max()
    got, gone = np.zeros((2, table.shape[1], n_items))
    for arm, (n_got, n_gone) in enumerate(table.T):
        got[arm, :n_got] = 1
        gone[arm, n_got : n_got + n_gone] = 1
    return got, gone


def test_one_question_an_item_and_arm_is_tested_exactly():
    """Fisher's test of the table; with clusters of several questions it is not Fisher's."""
    got, gone = one_each(np.array([[50, 30], [0, 20]]))
    found = missing_test(got, gone, None)
    expected = stats.fisher_exact([[50, 30], [0, 20]]).pvalue
    assert (found.method, found.p) == ("fisher", pytest.approx(expected))
    assert found.p < 1e-5
    assert missing_test(got, gone, np.repeat(np.arange(25), 2)).method == "clusters"


def test_two_arms_of_clusters_are_swapped_within_them():
    """Against the test that swaps the arms of whole items at random, ties counted half."""
    rng = np.random.default_rng(1)
    share = rng.beta(0.3, 3, 60)
    gone = np.stack([rng.binomial(6, share), rng.binomial(6, np.minimum(2 * share, 1))]) * 1.0
    found = missing_test(6 - gone, gone, None)
    apart = gone[1] - gone[0]
    swaps = rng.choice([-1, 1], (20_000, 60))
    swapped, seen = np.abs(swaps @ apart), abs(apart.sum())
    expected = (swapped > seen).mean() + (swapped == seen).mean() / 2
    assert found.method == "clusters"
    assert found.p == pytest.approx(expected, abs=0.015)
    assert 0.01 < expected < 0.2


@pytest.mark.parametrize("n_arms", [2, 3])
def test_items_that_every_judge_refuses_accuse_no_arm(n_arms):
    """Six questions an item and arm that are answered or refused together: the level holds.

    By answers, as if they were independent, the test would reject far more often.
    """
    rng = np.random.default_rng(n_arms)
    n_runs, level = 2_000, 0.05
    p_items, p_answers = [], []
    for _ in range(n_runs):
        gone = 6.0 * (rng.random((n_arms, 60)) < 0.15)
        p_items.append(missing_test(6 - gone, gone, None).p)
        table = np.stack((6 * 60 - gone.sum(axis=1), gone.sum(axis=1)))
        p_answers.append(stats.chi2_contingency(table, correction=False).pvalue)
    rejects = np.mean(np.array(p_items) < level)
    assert rejects <= level + 3 * math.sqrt(level * (1 - level) / n_runs)
    assert rejects > level / 2
    assert np.mean(np.array(p_answers) < level) > 4 * level


def test_an_arm_that_misses_more_is_found_across_repeats():
    """Arm B misses all of 20 in 50 items, asked by three judges: still beyond doubt."""
    gone = np.zeros((2, 50))
    gone[1, :20] = 3
    assert missing_test(3 - gone, gone, None).p < 1e-4
