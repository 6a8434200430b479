"""Judges' offsets: values, their shared error, and whether they depend on the arm."""

import math

import numpy as np
import pytest
from scipy import stats

from estimators.calibration import to_first_judge
from estimators.cells import Panel, Sums
from estimators.offsets import judge_offsets


class Scale01:
    low, span = 0.0, 1.0


def panel_of(scores):
    """Sum scores (judge, arm, item, repeat) on [0, 1], NaN where nothing was asked."""
    sums = Sums(scores.shape[:3])
    known = ~np.isnan(scores)
    filled = np.where(known, scores, 0)
    sums.count[:] = known.sum(axis=3)
    sums.total[:] = filled.sum(axis=3)
    sums.square[:] = (filled**2).sum(axis=3)
    return Panel(sums, Scale01())


def test_offsets_are_mean_differences_to_the_first_judge():
    """Over the units that both have answered, by loops; a judge without such units has none."""
    rng = np.random.default_rng(1)
    scores = rng.random((4, 2, 12, 2))
    scores[1, 0, :5] = scores[0, 1, 3] = scores[3] = np.nan
    found = judge_offsets(panel_of(scores), None, [(0, 1)])
    cell = scores.mean(axis=3)
    for j in (1, 2):
        apart = (cell[j] - cell[0]).ravel()
        assert found.value[j] == pytest.approx(np.nanmean(apart))
        assert found.n_units[j] == np.isfinite(apart).sum()
        assert found.by_arm[j] == pytest.approx(np.nanmean(cell[j] - cell[0], axis=1))
    assert found.value[0] == found.se[0] == 0
    assert math.isnan(found.value[3])
    assert math.isnan(found.se[3])


def test_the_error_of_an_offset_is_the_paired_standard_error():
    """One arm, each item its own cluster: scipy's standard error; judges share the first's part."""
    rng = np.random.default_rng(2)
    scores = rng.random((3, 1, 40, 3))
    found = judge_offsets(panel_of(scores), None, [])
    apart = (scores[1:] - scores[0]).mean(axis=3)[:, 0]
    assert found.se[1:] == pytest.approx(stats.sem(apart, axis=1))
    assert found.covariance[1:, 1:] == pytest.approx(np.cov(apart) / 40)
    shares = np.array([0.2, 0.3, 0.5])
    error = to_first_judge(found)
    assert error.variance_of(shares) == pytest.approx(np.var(shares[1:] @ apart, ddof=1) / 40)
    assert error.df_of(shares) == 39
    assert error.variance_of(np.array([1.0, 0, 0])) == 0


def test_without_views_of_their_own_the_error_is_that_of_the_noise():
    """Judges who differ by an offset and noise alone: sqrt(sum of (s_j^2 + s_1^2)/n)/K."""
    rng = np.random.default_rng(3)
    item, sd = rng.normal(0.5, 0.1, (1, 1, 400, 1)), np.array([0.05, 0.1]).reshape(2, 1, 1, 1)
    shift = np.array([0.0, 0.07]).reshape(2, 1, 1, 1)
    scores = item + shift + sd * rng.normal(size=(2, 1, 400, 3))
    found = judge_offsets(panel_of(scores), None, [])
    noise = scores.var(axis=3, ddof=1).sum(axis=(0, 1)) / 3
    assert found.se[1] == pytest.approx(math.sqrt(noise.sum()) / 400, rel=0.15)
    assert found.are_notable(1.0)


def test_items_of_one_cluster_are_not_taken_for_independent():
    """Each cluster a pair of equal items: the error is that of half as many."""
    rng = np.random.default_rng(4)
    scores = np.repeat(rng.random((2, 1, 20, 2)), 2, axis=2)
    clustered = judge_offsets(panel_of(scores), np.repeat(np.arange(20), 2), [])
    single = judge_offsets(panel_of(scores[:, :, ::2]), None, [])
    assert clustered.se[1] == pytest.approx(single.se[1])
    assert clustered.df[1] == 19


def test_an_offset_that_depends_on_the_arm_is_found():
    """Against scipy's paired test of the differences, times the number of tests."""
    rng = np.random.default_rng(5)
    scores = rng.normal(0.5, 0.05, (3, 2, 60, 2))
    scores[1, 1] += 0.04
    found = judge_offsets(panel_of(scores), None, [(0, 1)]).arms
    cell = scores.mean(axis=3)
    apart = cell[1:] - cell[0]
    p = stats.ttest_rel(apart[:, 0], apart[:, 1], axis=1).pvalue
    assert found.p == pytest.approx(2 * p.min())
    assert found.largest == pytest.approx(abs((apart[0, 0] - apart[0, 1]).mean()))
    assert found.depends(1.0)
    # The same difference on a scale of which it is less than 2 %.
    assert not found.depends(10.0)


def test_an_offset_that_does_not_depend_on_the_arm_is_seldom_accused():
    """At the level .01 over three judges and three pairs of arms."""
    rng, n_runs = np.random.default_rng(6), 1_000
    pairs = [(0, 1), (0, 2), (1, 2)]
    shift = np.array([0, 0.2, -0.1]).reshape(3, 1, 1, 1)
    p = [
        judge_offsets(panel_of(0.5 + shift + rng.normal(0, 0.1, (3, 3, 25, 1))), None, pairs).arms.p
        for _ in range(n_runs)
    ]
    assert np.mean(np.array(p) < 0.05) <= 0.05 + 3 * math.sqrt(0.05 * 0.95 / n_runs)
