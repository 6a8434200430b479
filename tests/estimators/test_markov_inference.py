"""Robust errors, bootstrap, groups, memory, and what is fragile; closed forms where there are any."""

import math

import numpy as np
import pytest
from scipy import stats

from estimators.batches import sequences
from estimators.markov_inference import (
    Inference,
    acceptance,
    bootstrap,
    group_contrast,
    group_weights,
    lag_contrasts,
    position_profile,
    prior_sensitivity,
    raw_lag_contrast,
    sandwich,
    spread_test,
)
from estimators.markov_judge import simulate
from estimators.markov_model import FitStatus, fit_sequences
from tests.estimators.markov_data import (
    D6,
    drawn,
    halves,
    judge,
    sequences_of,
    shuffled,
    two_groups,
)

A, B = list(range(6)), list(range(6, 12))


@pytest.fixture(scope="module")
def fit():
    return fit_sequences(drawn(D6))


def test_groups_are_compared_by_their_means(fit):
    found = group_contrast(fit, A, B)
    assert found == fit.contrast(halves(12))
    assert group_weights([1, 2], [2]) == {1: 0.5, 2: -0.5}


def test_items_like_these_need_welch(fit):
    """The items are a sample too: Welch on their estimates, which have the ratings' error in them."""
    found = group_contrast(fit, A, B, Inference.ITEMS)
    by_scipy = stats.ttest_ind(fit.theta[:6], fit.theta[6:], equal_var=False)
    assert found.z == pytest.approx(by_scipy.statistic)
    assert found.p == pytest.approx(by_scipy.pvalue)
    assert found.df == pytest.approx(by_scipy.df)
    assert found.se > group_contrast(fit, A, B).se


def test_one_item_is_no_sample_of_items_like_it(fit):
    assert group_contrast(fit, [0], B, Inference.ITEMS).status is FitStatus.NOT_ESTIMABLE
    assert group_contrast(fit, [0], B).status is FitStatus.OK


def test_a_group_without_items_is_refused(fit):
    with pytest.raises(ValueError, match="no items"):
        group_contrast(fit, [], B)


# --- robust errors ------------------------------------------------------------------------------


def test_the_sandwich_agrees_with_the_model_where_the_model_holds():
    source = shuffled(judge(np.linspace(-1, 1, 6)), 500, np.random.default_rng(0))
    found = sandwich(fit_sequences(source))
    assert found.is_usable
    assert found.ratio == pytest.approx(np.ones(8), abs=0.15)
    assert not found.disagrees


def test_the_sandwich_objects_where_the_memory_varies_between_batches():
    """Half of the batches imitate, half avoid: one carry-over for all is too sure of itself."""
    rng = np.random.default_rng(2)
    halves_of = [
        shuffled(judge(np.zeros(12), [beta], [0.0], 0.3), 100, rng) for beta in (2.0, -2.0)
    ]
    order = np.concatenate([one.order for one in halves_of])
    state = np.concatenate([one.state for one in halves_of])
    found = sandwich(fit_sequences(sequences_of(order, state)))
    assert found.disagrees
    assert found.ratio[-2] > 1.25


def test_the_sandwich_shows_contrasts_that_vary_between_batches():
    """Two groups swing against each other: each item alone shows nothing, their contrast does."""
    rng = np.random.default_rng(3)
    swing = rng.choice([-1.5, 1.5], (300, 1))
    order = np.argsort(rng.random((300, 12)), axis=-1)
    eta = np.where(order < 6, swing, -swing)
    state = (rng.random(order.shape) < 1 / (1 + np.exp(-eta))).astype(np.int8)
    found = sandwich(fit_sequences(sequences_of(order, state)))
    assert found.ratio[:12] == pytest.approx(np.ones(12), abs=0.15)
    assert found.ratio_of(halves(12)) > 1.5


def test_the_sandwich_needs_more_batches_than_parameters():
    fit = fit_sequences(shuffled(judge(np.linspace(-1, 1, 12)), 10, np.random.default_rng(0)))
    assert not sandwich(fit).is_usable


# --- bootstrap ----------------------------------------------------------------------------------


def test_one_step_draws_are_near_full_refits(fit):
    """Correlated by .975 and more, with a slightly smaller spread; on d6 .217 was published, of
    200 draws, against Wald's .181."""
    one = bootstrap(fit, np.random.default_rng(0))
    full = bootstrap(fit, np.random.default_rng(0), steps=3)
    drawn_one, drawn_full = (each.draws[:, :12] @ halves(12) for each in (one, full))
    assert np.corrcoef(drawn_one, drawn_full)[0, 1] > 0.975
    assert 0.9 < drawn_one.std() / drawn_full.std() < 1.02
    assert one.contrast(halves(12)).se == pytest.approx(0.217, abs=0.03)
    assert one.contrast(halves(12)).est == fit.contrast(halves(12)).est


def test_three_steps_are_a_refit(fit):
    """A draw's weights, taken as batches told so many times, lead to the same estimates."""
    draws = bootstrap(fit, np.random.default_rng(5), draws=3, steps=4).draws
    weights = np.random.default_rng(5).multinomial(60, np.full(60, 1 / 60), size=3)
    for drawn_psi, w in zip(draws, weights, strict=True):
        rows = np.repeat(np.arange(60), w)
        again = sequences_of(fit.source.order[rows], fit.source.state[rows])
        refit = fit_sequences(again)
        assert drawn_psi == pytest.approx(refit.coef, abs=2e-4)


def test_percentiles_count_draws_on_the_other_side(fit):
    found = bootstrap(fit, np.random.default_rng(0), draws=200).contrast({0: 1, 1: -1})
    assert 0 < found.percentile_p <= 1
    assert found.p == pytest.approx(2 * stats.norm.sf(abs(found.est / found.se)))


def test_blocks_are_drawn_whole():
    """All batches of a block have one weight, and single ones at the end have their own."""
    of = judge(np.linspace(-1, 1, 4))
    fit = fit_sequences(shuffled(of, 48, np.random.default_rng(0)))
    blocks = np.repeat(np.arange(12), 4)
    by_number = bootstrap(fit, np.random.default_rng(3), unit="block", blocks=blocks)
    by_size = bootstrap(fit, np.random.default_rng(3), unit="block")
    assert by_number.status is FitStatus.OK
    assert by_number.draws == pytest.approx(by_size.draws, abs=1e-12)
    batches = bootstrap(fit, np.random.default_rng(3))
    assert batches.draws.std(axis=0) != pytest.approx(by_size.draws.std(axis=0), rel=1e-6)


@pytest.mark.parametrize(
    ("v", "n", "unit", "reason"),
    [
        (4, 29, "batch", "29 batches"),
        (6, 42, "block", "7 blocks"),
        (5, 40, "block", "4 blocks"),
    ],
)
def test_too_few_units_are_not_drawn_from(v, n, unit, reason):
    """Odd squares are twice as tall, so 40 batches of 5 are 4 blocks."""
    fit = fit_sequences(shuffled(judge(np.linspace(-1, 1, v)), n, np.random.default_rng(0)))
    found = bootstrap(fit, np.random.default_rng(0), unit=unit)
    assert found.status is FitStatus.NOT_ESTIMABLE
    assert reason in found.reason
    assert math.isnan(found.contrast({0: 1, 1: -1}).p)


@pytest.mark.parametrize("wrong", [{"unit": "rating"}, {"steps": 0}])
def test_other_units_are_refused(fit, wrong):
    with pytest.raises(ValueError, match="unit"):
        bootstrap(fit, np.random.default_rng(0), **wrong)


def test_draws_at_the_boundary_have_no_spread():
    fit = fit_sequences(
        shuffled(judge(np.linspace(-1, 1, 6), sigma=0.0), 40, np.random.default_rng(3))
    )
    assert fit.boundary
    found = bootstrap(fit, np.random.default_rng(0)).contrast({0: 1, 5: -1})
    assert found.se == pytest.approx(fit.contrast({0: 1, 5: -1}).se, rel=0.35)


# --- memory and spread --------------------------------------------------------------------------


def test_raw_lags_mislead_and_fitted_ones_do_not(fit):
    """d6: the raw difference is -.088, the fitted carry-over -1.25 log odds."""
    assert raw_lag_contrast(fit.source, 1)[0] == pytest.approx(-0.0878, abs=5e-5)
    lags = lag_contrasts(fit)
    assert [one.lag for one in lags] == [1, 2, 3]
    assert lags[0].lower < -1.5 < lags[0].upper < 0
    assert all(one.lower < 0 < one.upper for one in lags[1:])
    assert lags[2].n == 60 * 9


def test_the_lags_of_a_deep_fit_are_its_own():
    fit = fit_sequences(drawn(D6), lags=3)
    found = lag_contrasts(fit)[2]
    at = fit.coef_names.index("lag3")
    assert (found.est, found.se) == (fit.coef[at], fit.se[at])


def test_raw_lags_of_unvaried_verdicts_are_unknown():
    assert math.isnan(raw_lag_contrast(sequences([(0, 0, 0, 1), (0, 1, 1, 1)]), 1)[0])


def test_the_spread_is_tested_at_the_edge(fit):
    """Half a chi² with one degree of freedom."""
    found = spread_test(fit)
    assert found.p == pytest.approx(stats.chi2.sf(found.ratio, 1) / 2)
    assert found.p < 1e-6
    calm = fit_sequences(
        shuffled(judge(np.linspace(-1, 1, 6), sigma=0.0), 40, np.random.default_rng(3))
    )
    assert spread_test(calm) == (0.0, 1.0)


def test_a_prior_that_does_not_matter_is_conclusive(fit):
    found = prior_sensitivity(fit, halves(12))
    assert found.is_conclusive()
    assert [one.est for one in found.contrasts] == pytest.approx([-1.23] * 3, abs=0.05)


def test_acceptance_averages_over_batches(fit):
    effect = fit.sigma_b * np.random.default_rng(0).standard_normal(200_000)
    by_draws = (1 / (1 + np.exp(-fit.theta[3] - effect))).mean()
    assert acceptance(fit)[3] == pytest.approx(by_draws, abs=3e-3)


@pytest.mark.parametrize("lags", [[-1.2], [-0.8, 0.9]])
def test_the_position_profile_is_what_equal_items_get(lags):
    """Against simulated batches of the fitted judge."""
    of = judge(np.full(6, -0.3), lags, [1.8, -0.4][: len(lags)], 0.7)
    fit = fit_sequences(shuffled(of, 200, np.random.default_rng(0)), lags=len(lags))
    k, v = len(lags), 6
    like = judge(np.full(v, fit.theta.mean()), fit.coef[v : v + k], fit.coef[v + k :], fit.sigma_b)
    order = np.tile(np.arange(v), (60_000, 1))
    seen = simulate(like, order, np.random.default_rng(1)).mean(axis=0)
    assert position_profile(fit, v) == pytest.approx(seen, abs=4 * 0.5 / math.sqrt(60_000))


def test_group_effects_of_unequal_spread_are_fitted_not_averaged():
    """Equal mean quality, unequal spread: the fit sees no difference, raw means do."""
    theta = two_groups(-0.65, 1.2, 0.4)
    source = shuffled(judge(theta), 400, np.random.default_rng(3))
    found = group_contrast(fit_sequences(source), list(range(15)), list(range(15, 30)))
    assert abs(found.z) < 2.5
