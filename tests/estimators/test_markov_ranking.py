"""Rankings: pairwise tests, chances of being best, and whether raw ranks can be trusted."""

import numpy as np
import pytest

from estimators.markov_model import fit_markov_glmm, fit_sequences
from estimators.markov_ranking import naive_safety, ranking, root
from tests.estimators.markov_data import judge, ratings_of, shuffled

THETA = [-0.6, 1.0, 0.2, 0.0, 0.9, -0.2]


@pytest.fixture(scope="module")
def fit():
    return fit_sequences(shuffled(judge(THETA), 150, np.random.default_rng(0)))


@pytest.fixture(scope="module")
def found(fit):
    return ranking(fit, np.random.default_rng(1), draws=20_000)


def test_items_are_ordered_by_quality(fit, found):
    assert (np.diff(fit.theta[found.order]) <= 0).all()
    assert set(found.order[:2]) == {1, 4}


def test_pairs_are_the_fits_contrasts(fit, found):
    one = fit.contrast({1: 1, 3: -1})
    assert found.z[1, 3] == pytest.approx(one.z)
    assert found.p[1, 3] == pytest.approx(one.p)
    assert found.z == pytest.approx(-found.z.T, nan_ok=True)
    assert np.isnan(np.diag(found.z)).all()


def test_simultaneous_tests_lie_between_single_and_bonferroni_ones(found):
    """About 2.85 for six nearly balanced items: the studentised range's 4.03/√2."""
    assert found.critical == pytest.approx(2.85, abs=0.06)
    off = ~np.eye(6, dtype=bool)
    assert (found.simultaneous_p[off] >= found.p[off] - 0.01).all()
    assert (found.simultaneous_p[off] <= 15 * found.p[off] + 0.01).all()


def test_chances_of_being_best_sum_to_one(fit, found):
    assert found.p_first.sum() == pytest.approx(1)
    z = fit.contrast({1: 1, 4: -1}).z
    assert (found.p_first[1] > found.p_first[4]) == (z > 0)
    assert found.p_first[[0, 3, 5]].max() < 0.01


def test_a_root_of_a_singular_covariance_is_one():
    cov = np.array([[1.0, 1.0], [1.0, 1.0]])
    assert root(cov) @ root(cov).T == pytest.approx(cov)


def test_what_is_not_estimable_is_not_ranked():
    nothing = ranking(fit_markov_glmm([(0, 0, 0, 1), (0, 1, 1, 1)]), np.random.default_rng(0))
    assert np.isnan(nothing.p).all()
    assert np.isnan(nothing.p_first).all()


def test_items_apart_are_not_compared():
    rows = ratings_of(shuffled(judge([0.0, 1.0]), 40, np.random.default_rng(0)))
    rows += [(100 + b, s, 10 + i, y) for b, s, i, y in rows]
    apart = ranking(fit_markov_glmm(rows), np.random.default_rng(0))
    assert np.isfinite(apart.z[0, 1])
    assert np.isnan(apart.z[0, 2:]).all()
    assert np.isnan(apart.p_first).all()


def test_a_small_lead_is_not_safe_in_raw_ranks():
    """Below 4 |beta|/v it may be the mix of predecessors."""
    of = judge([0.0, 0.02, -1.0, -1.0], lags=[-1.5])
    near = naive_safety(fit_sequences(shuffled(of, 400, np.random.default_rng(2))))
    assert not near.is_safe
    assert near.needed == pytest.approx(2 * near.missing_self)
    far = judge([0.0, 3.0, -1.0, -1.0], lags=[-0.3])
    assert naive_safety(fit_sequences(shuffled(far, 400, np.random.default_rng(2)))).is_safe


def test_a_strong_memory_is_beyond_the_bound():
    of = judge([0.0, 0.5, -0.5, 1.0], lags=[-3.0])
    assert not naive_safety(fit_sequences(shuffled(of, 400, np.random.default_rng(2)))).is_bounded
