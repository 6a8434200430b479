"""How judges disagree: pooled means, Cochran's test, interaction and its interval, levels."""

import math

import numpy as np
import pytest
from scipy import stats

from estimators.cells import Panel, Sums
from estimators.disagreement import cochran_test, judge_interaction, judge_spread, precision_mean


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


def test_means_are_pooled_by_precision():
    """C49: means 3.0 (variance 0.04) and 3.6 (0.16) give 3.12, variance 0.032, SE 0.1789."""
    means, variances = np.array([3.0, 3.6]), np.array([0.04, 0.16])
    found = precision_mean(means, 1 / variances)
    assert found.mean == pytest.approx(3.12)
    assert found.variance == pytest.approx(0.032)
    assert round(math.sqrt(found.variance), 4) == 0.1789
    # With two means Q is the squared difference over the sum of the variances.
    assert found.q == pytest.approx(0.6**2 / 0.2)


def test_pooling_is_least_squares():
    """Against weighted regression on a constant, and its weighted sum of squares."""
    rng = np.random.default_rng(1)
    means, variances = rng.normal(size=5), rng.uniform(0.1, 2, 5)
    root = 1 / np.sqrt(variances)
    solved, left, *_ = np.linalg.lstsq(root[:, None], root * means, rcond=None)
    found = precision_mean(means, 1 / variances)
    assert (found.mean, found.q) == (pytest.approx(solved[0]), pytest.approx(left[0]))
    assert found.variance == pytest.approx(1 / (root @ root))


def test_cochrans_test_is_the_f_test_where_judges_are_alike():
    """Two-way data with equal noise and repeats: units by judges against repeats, by scipy's F."""
    rng = np.random.default_rng(2)
    scores = 0.5 + rng.normal(0, 0.05, (3, 1, 40, 4)) + rng.normal(0, 0.03, (3, 1, 40, 1))
    panel = panel_of(scores)
    pooled = float(panel.noise.mean())
    found = cochran_test(panel, np.full(3, pooled), panel.noise_df.sum())
    cell = scores.mean(axis=3)[:, 0]
    between = 4 * ((cell - cell.mean(axis=0)) ** 2).sum()
    assert found.q == pytest.approx(between / pooled)
    assert found.df == 40 * 2
    assert found.p == pytest.approx(stats.f.sf(between / pooled / 80, 80, 3 * 40 * 3))
    assert found.p < 0.01
    assert found.share == pytest.approx(1 - 80 / found.q)


def test_cochrans_test_keeps_its_level():
    """Judges of unlike noise who agree: rejected at 5 % as often as that."""
    rng, n_runs = np.random.default_rng(3), 1_000
    sd = np.array([0.02, 0.05, 0.1]).reshape(3, 1, 1, 1)
    rejects = 0
    for _ in range(n_runs):
        panel = panel_of(0.5 + sd * rng.normal(size=(3, 1, 30, 4)))
        rejects += cochran_test(panel, panel.shrunk_noise(), panel.noise_df.sum()).p < 0.05
    assert abs(rejects / n_runs - 0.05) <= 3 * math.sqrt(0.05 * 0.95 / n_runs)


def test_one_judge_or_no_repeats_leave_nothing_to_test():
    """No second judge, or no repeat to know the noise by."""
    one = panel_of(np.full((1, 1, 5, 2), 0.5))
    assert math.isnan(cochran_test(one, np.array([0.1]), 5.0).p)
    single = panel_of(np.random.default_rng(0).random((2, 1, 5, 1)))
    assert math.isnan(cochran_test(single, single.shrunk_noise(), 0.0).p)


@pytest.mark.parametrize("clusters", [None, np.repeat(np.arange(12), 3)])
def test_the_interactions_interval_is_the_jackknife(clusters):
    """Leaving out one cluster after the other, each time estimated anew."""
    rng = np.random.default_rng(4)
    scores = 0.5 + rng.normal(0, 0.1, (3, 2, 36, 3)) + rng.normal(0, 0.05, (3, 2, 36, 1))
    scores[0, 1, 5] = scores[2, 0, 7, 1:] = np.nan
    panel = panel_of(scores)
    noise = panel.noise
    found = judge_interaction(panel, noise, clusters, 0.9)
    groups = np.arange(36) if clusters is None else clusters
    without = [
        judge_interaction(panel_of(scores[:, :, groups != g]), noise, None, 0.9).variance
        for g in np.unique(groups)
    ]
    n = len(without)
    se = math.sqrt((n - 1) / n * np.square(without - np.mean(without)).sum())
    half = stats.t.ppf(0.95, n - 1) * se
    assert (found.lower, found.upper) == (
        pytest.approx(found.variance - half),
        pytest.approx(found.variance + half),
    )


def test_the_interactions_interval_covers():
    """Simulated disagreement of SD 0.05 is within its 90 % interval as often as that, or nearly."""
    rng, n_runs = np.random.default_rng(5), 400
    hits = 0
    for _ in range(n_runs):
        scores = 0.5 + rng.normal(0, 0.06, (4, 1, 80, 2)) + rng.normal(0, 0.05, (4, 1, 80, 1))
        panel = panel_of(scores)
        found = judge_interaction(panel, panel.noise, None, 0.9)
        hits += found.lower <= 0.05**2 <= found.upper
    assert abs(hits / n_runs - 0.9) <= 3 * math.sqrt(0.9 * 0.1 / n_runs) + 0.01


def test_judges_levels_are_told_from_their_views_of_units():
    """The variance of levels is that of a two-way layout: (MS of judges - MS of the rest)/n."""
    rng = np.random.default_rng(6)
    scores = 0.5 + rng.normal(0, 0.1, (6, 1, 50, 1)) + rng.normal(0, 0.08, (6, 1, 1, 1))
    cell = scores[:, 0, :, 0]
    found = judge_spread([(cell, np.ones(50, bool))])
    judges = 50 * ((cell.mean(axis=1) - cell.mean()) ** 2).sum() / 5
    left = cell - cell.mean(axis=0) - cell.mean(axis=1, keepdims=True) + cell.mean()
    rest = (left**2).sum() / (5 * 49)
    assert found.variance == pytest.approx(judges / 50)
    assert found.of_levels == pytest.approx((judges - rest) / 50)
    panel = panel_of(scores)
    assert judge_interaction(panel, panel.noise, None, 0.9).judge_variance == pytest.approx(
        found.of_levels
    )


def test_a_judge_with_one_answer_or_two_equal_ones_takes_no_weight_by_luck():
    """C49: variances for weights are pulled to the panel's, with three degrees of freedom."""
    rng = np.random.default_rng(7)
    scores = np.full((4, 1, 30, 4), np.nan)
    scores[:2] = 0.5 + np.array([0.1, 0.2]).reshape(2, 1, 1, 1) * rng.normal(size=(2, 1, 30, 4))
    scores[2, 0, 0, 0] = 0.4
    scores[3, 0, 0, :2] = 0.7
    panel = panel_of(scores)
    own = scores[:2].var(axis=3, ddof=1).mean(axis=(1, 2))
    whole = own.mean()
    expected = [(90 * v + 3 * whole) / 93 for v in own]
    assert panel.shrunk_noise() == pytest.approx([*expected, whole, whole])
    assert np.isnan(panel_of(scores[2:]).shrunk_noise()).all()
