"""What strengths prove: gaps, the largest |z|, ranks, leaders and tiers, and what can't be proved."""

import csv

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from scipy import stats

from estimators.bt_inference import (
    AtEnd,
    gap_intervals,
    gaps,
    is_ranking_separated,
    leader,
    max_t,
    proved,
    rank_intervals,
    tiers,
    watched,
)
from estimators.bt_model import fit_bradley_terry
from estimators.confidence_sequences import sequence_bound


def balanced(n_models):
    return np.eye(n_models) - 1 / n_models


def random_cov(n_models, seed=0):
    x = np.random.default_rng(seed).standard_normal((n_models, 3 * n_models))
    x -= x.mean(axis=0)
    return x @ x.T / n_models


# --- gaps --------------------------------------------------------------------------------------


def test_a_gap_has_the_covariance_of_both(shared_gold):
    """Tacos and Sushi: .84880, and not the .73061 that two sum-zero variances add up to."""
    with (shared_gold / "pairwise/btl_food.csv").open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    names = sorted({row["left"] for row in rows} | {row["right"] for row in rows})
    left, right = (np.array([names.index(row[side]) for row in rows]) for side in ("left", "right"))
    outcome = np.array([float(row["y"]) for row in rows])
    fit = fit_bradley_terry(left, right, outcome, n_models=len(names))
    found = gaps(fit.theta, fit.cov)
    a, b = names.index("Tacos"), names.index("Sushi")
    assert found.est[a, b] == pytest.approx(0.82353, abs=1e-5)
    assert found.se[a, b] == pytest.approx(0.84880, abs=1e-5)
    assert np.hypot(fit.se[a], fit.se[b]) == pytest.approx(0.73061, abs=1e-5)
    assert np.isnan(np.diag(found.se)).all()
    assert np.array_equal(found.est.T, -found.est)


def test_gaps_that_cannot_be_estimated_have_no_error_and_no_interval():
    """Between components there is no number; between separated models there is one, and no error."""
    theta = np.array([1.0, 0.0, 2.0, 0.5])
    found = gaps(theta, balanced(4), np.array([0, 0, 0, 1]), np.array([0, 0, 1, 2]))
    assert np.isnan(found.est[3, :3]).all()
    assert found.est[2, 0] == 1.0
    assert np.isnan(found.se[2]).all()
    assert found.se[0, 1] == pytest.approx(np.sqrt(2))
    lower, upper = gap_intervals(found, AtEnd(1.96))
    assert lower[2, 0] == -np.inf
    assert upper[2, 0] == np.inf
    assert lower[0, 1] == pytest.approx(1 - 1.96 * np.sqrt(2))


# --- bounds ------------------------------------------------------------------------------------


@pytest.mark.parametrize(("n_models", "published"), [(10, 3.1637), (30, 3.7486)])
def test_the_largest_z_of_equal_errors_has_the_studentised_range(n_models, published):
    """Corrections 3; its own error is 1.4/sqrt(draws)."""
    draws = 50_000
    found = max_t(balanced(n_models), np.random.default_rng(1), draws=draws)
    assert found == pytest.approx(published, abs=4 * 1.4 / np.sqrt(draws))
    exact = stats.studentized_range.ppf(0.95, n_models, np.inf) / np.sqrt(2)
    assert exact == pytest.approx(published, abs=1e-4)


def test_the_largest_z_is_over_the_gaps_that_have_an_error():
    cov = random_cov(5)
    one = np.full((5, 5), np.nan)
    one[0, 1] = one[1, 0] = gaps(np.zeros(5), cov).se[0, 1]
    found = max_t(cov, np.random.default_rng(2), se=one, draws=100_000)
    assert found == pytest.approx(1.96, abs=0.02)
    assert np.isnan(max_t(cov, np.random.default_rng(2), se=np.full((5, 5), np.nan)))
    alone = cov.copy()
    alone[4] = alone[:, 4] = np.nan
    se = gaps(np.zeros(5), alone, np.array([0, 0, 0, 0, 1])).se
    rest = max_t(cov[:4, :4], np.random.default_rng(3), draws=100_000)
    assert max_t(alone, np.random.default_rng(3), se=se, draws=100_000) == pytest.approx(
        rest, abs=0.02
    )


def test_all_gaps_hold_together_at_the_level_of_the_largest_z():
    """Unequal and correlated errors: the share of draws in which some gap is missed is 5 %."""
    cov = random_cov(6, seed=4)
    c = max_t(cov, np.random.default_rng(5), draws=50_000)
    rng = np.random.default_rng(6)
    draws = rng.multivariate_normal(np.zeros(6), cov, 20_000, check_valid="ignore")
    off = draws[:, :, None] - draws[:, None]
    is_missed = (np.abs(off) > c * np.nan_to_num(gaps(np.zeros(6), cov).se, nan=1.0)).any((1, 2))
    assert is_missed.mean() == pytest.approx(0.05, abs=4 * np.sqrt(0.05 * 0.95 / 20_000) + 0.002)


@pytest.mark.parametrize(("n_models", "z"), [(10, 4.18), (30, 4.72)])
def test_a_watched_ranking_has_the_bound_of_all_pairs(n_models, z):
    """Corrections 3, at the planned information; elsewhere it is the sequence's."""
    bound = watched(n_models * (n_models - 1) // 2, planned_gap=0.3)
    planned = 1 / np.sqrt(bound.planned_information)
    assert bound.of(np.array([planned]))[0] == pytest.approx(z, abs=0.005)
    assert bound.of(np.array([planned])) * planned == pytest.approx(0.3)
    se = np.array([0.02, 0.5])
    for each, found in zip(se, bound.of(se), strict=True):
        assert found == sequence_bound(1 / each**2, bound.level, bound.planned_information)
        assert found > z


# --- claims ------------------------------------------------------------------------------------


def test_ranks_are_counted_from_what_is_proved():
    """[1 + models proved above, M - models proved below]."""
    theta, cov = np.array([2.0, 1.9, 0.0, -2.0]), balanced(4) * 0.01
    above = proved(gaps(theta, cov), AtEnd(3.0))
    best, worst = rank_intervals(above)
    assert best.tolist() == [1, 1, 3, 4]
    assert worst.tolist() == [2, 2, 3, 4]
    assert leader(theta, above) == (0, False, np.array([1]))
    assert not is_ranking_separated(above)
    assert tiers(theta, above).tolist() == [0, 0, 1, 2]
    apart = proved(gaps(theta, cov * 0.01), AtEnd(3.0))
    assert is_ranking_separated(apart)
    assert leader(theta, apart).is_separated


def test_models_that_nothing_connects_widen_each_others_ranks():
    """Two halves, each sure of its own order: nobody's rank is known across them, and no leader."""
    theta, cov = np.array([1.0, -1.0, 3.0, -3.0]), balanced(4) * 1e-4
    component = np.array([0, 0, 1, 1])
    above = proved(gaps(theta, cov, component), AtEnd(3.0))
    ranks = rank_intervals(above)
    assert ranks.best.tolist() == [1, 2, 1, 2]
    assert ranks.worst.tolist() == [3, 4, 3, 4]
    assert leader(theta, above).model == 2
    assert leader(theta, above).rivals.tolist() == [0, 1]
    assert tiers(theta, above).tolist() == [0, 0, 0, 0], "c is not proved above b: no cut"


def test_separated_models_rank_by_what_their_counts_prove():
    """A strength from a prior proves nothing; counts do, and through them who they are above."""
    theta, cov = np.array([9.0, 1.0, -1.0]), balanced(3) * 1e-4
    found = gaps(theta, cov, strong=np.array([0, 1, 1]))
    assert rank_intervals(proved(found, AtEnd(3.0))).best.tolist() == [1, 1, 2]
    by_counts = np.zeros((3, 3), dtype=bool)
    by_counts[0, 1] = True
    above = proved(found, AtEnd(3.0), by_counts)
    assert above[0].tolist() == [False, True, True]
    assert is_ranking_separated(above)
    against = by_counts.T.copy()
    against[2, 1] = True
    assert not proved(found, AtEnd(3.0), against)[2, 1], "where a gap has an error, it decides"


def test_a_model_that_was_never_compared_can_have_any_rank():
    fit = fit_bradley_terry([0, 1] * 200, [1, 0] * 200, [1, 0] * 150 + [0, 1] * 50, n_models=3)
    found = gaps(fit.theta, fit.cov, fit.component, fit.strong)
    c = max_t(fit.cov, np.random.default_rng(0), se=found.se)
    assert c == pytest.approx(1.96, abs=0.05)
    above = proved(found, AtEnd(c))
    ranks = rank_intervals(above)
    assert (ranks.best[2], ranks.worst[2]) == (1, 3)
    assert ranks.worst[0] == 2
    assert leader(fit.theta, above).model == 0
    assert not leader(fit.theta, above).is_separated


@given(
    theta=hnp.arrays(float, st.integers(1, 8), elements=st.floats(-3, 3)),
    drop=st.randoms(use_true_random=False),
)
def test_true_claims_give_intervals_that_hold_the_true_ranks(theta, drop):
    """Whatever part of the true order is claimed: all ranks hold, and tiers are the finest there are."""
    theta = np.round(theta, 1)
    m = len(theta)
    above = theta[:, None] > theta
    above &= np.array([[drop.random() < 0.7 for _ in range(m)] for _ in range(m)])
    found = gaps(theta, np.eye(m))
    found.se[:] = np.nan
    closed = proved(found, AtEnd(1.0), above)
    assert (closed >= above).all()
    assert not (closed & ~(theta[:, None] > theta)).any()
    best, worst = rank_intervals(closed)
    assert (best <= 1 + (theta[:, None] > theta).sum(axis=0)).all()
    assert (worst >= m - (theta[:, None] > theta).sum(axis=1)).all()
    tier = tiers(theta, closed)
    order = np.lexsort((np.arange(m), -theta))
    for k in range(1, m):
        ahead, behind = order[:k], order[k:]
        ends = closed[np.ix_(ahead, behind)].all()
        assert (tier[order[k]] > tier[order[k - 1]]) == ends
    assert leader(theta, closed).is_separated == bool(closed[order[0]].sum() == m - 1)
