"""Contrasts of several judges: the pool, their disagreement, the claim that some judge sees it."""

import math

import numpy as np
import pytest
from scipy import stats
from scipy.linalg import block_diag

from estimators.judge_pool import holm, pool_judges, pool_qualities
from estimators.markov_inference import Inference, group_contrast, wald, welch
from estimators.markov_model import Contrast, FitStatus, fit_markov_glmm, fit_sequences
from tests.estimators.markov_data import judge, ratings_of, shuffled

OPEN = Contrast(math.nan, math.nan, math.nan, math.nan, FitStatus.NOT_ESTIMABLE, "one batch")


def test_judges_are_pooled_by_precision():
    found = pool_judges({"a": wald(1.0, 0.5), "b": wald(0.0, 1.0)})
    assert found.pooled.est == pytest.approx(0.8)
    assert found.pooled.se == pytest.approx(math.sqrt(0.2))
    assert found.q == pytest.approx(0.04 / 0.25 + 0.64)
    assert found.q_p == pytest.approx(stats.chi2.sf(found.q, 1))
    assert not found.disagree


def test_judges_that_contradict_each_other_are_reported():
    assert pool_judges({"a": wald(1.0, 0.2), "b": wald(-1.0, 0.2)}).disagree


def test_a_judge_without_a_contrast_is_left_out():
    found = pool_judges({"a": wald(1.0, 0.5), "b": OPEN})
    assert found.left_out == ("b",)
    assert (found.pooled.est, found.df) == (1.0, 0)
    assert math.isnan(found.q)


def test_nothing_to_pool_is_a_status():
    assert pool_judges({"b": OPEN}).pooled.status is FitStatus.NOT_ESTIMABLE


def test_a_sensitive_part_makes_the_pool_sensitive():
    sensitive = wald(1.0, 0.5)._replace(prior_sensitive=True)
    assert pool_judges({"a": sensitive, "b": wald(1.0, 0.5)}).pooled.prior_sensitive


def test_holm_steps_down_and_never_falls():
    assert holm({"a": 0.04, "b": 0.01, "c": 0.03}) == pytest.approx(
        {"a": 0.06, "b": 0.03, "c": 0.06}
    )
    assert holm({"a": 0.9, "b": 0.8}) == {"a": 1.0, "b": 1.0}


# --- the penalty, which all judges share ------------------------------------------------------------

SPREAD = np.array([2.5, 0.8, 0.4, 0.0, -0.2, -0.5, -0.9, 0.4])
"""One unit of eight stands apart, and some judges accept it every time."""


def fits(theta, n_judges, n_batches, rng):
    return [fit_sequences(shuffled(judge(theta), n_batches, rng)) for _ in range(n_judges)]


def test_one_judge_is_its_own_pool():
    (fit,) = fits(SPREAD, 1, 30, np.random.default_rng(0))
    one = fit.contrast({0: 1.0, 1: -1.0})
    assert pool_judges({"a": one}).pooled.se == pytest.approx(one.se)
    pooled = pool_qualities([fit])
    centre = np.eye(8) - 1 / 8
    assert pooled.value == pytest.approx(centre @ fit.theta)
    assert pooled.cov == pytest.approx(centre @ fit.cov[:8, :8] @ centre)


def test_many_judges_leave_what_the_penalty_does():
    """Of a hundred like judges the ratings' part of the error vanishes, the penalty's stays."""
    (fit,) = fits([6.0, 0.0, 0.2, -0.3], 1, 20, np.random.default_rng(1))
    assert fit.unanimous == {0: "accept"}
    one = fit.contrast({0: 1.0, 1: -1.0})
    of_penalty = math.sqrt(sum(each**2 for each in one.lean.values()))
    many = pool_judges({str(j): one for j in range(100)}).pooled.se
    assert of_penalty < many < 1.1 * of_penalty
    assert many > 2 * one.se / 10
    pooled = pool_qualities([fit] * 100)
    w = np.array([1.0, -1.0, 0.0, 0.0])
    assert math.sqrt(w @ pooled.cov @ w) == pytest.approx(many)


def test_the_penaltys_part_is_what_a_prior_of_its_scale_does():
    """w'C Q C w, the variance of the bias -C Q theta over theta ~ N(0, Q⁻)."""
    (fit,) = fits(SPREAD, 1, 20, np.random.default_rng(2))
    w = np.array([1.0, 0, 0, -1.0, 0, 0, 0, 0])
    cov, q = fit.cov[:8, :8], fit.prior.precision(8, 0)[:8, :8]
    lean = fit.contrast(w).lean
    assert sum(each**2 for each in lean.values()) == pytest.approx(w @ cov @ q @ cov @ w)
    free = fit_markov_glmm(
        ratings_of(shuffled(judge([0.0, 0.1]), 30, np.random.default_rng(0))), penalty=None
    )
    assert not free.contrast([1.0, -1.0]).lean


def test_differences_of_pooled_qualities_are_pooled_differences():
    """Also of judges who see units differently and know them unequally well."""
    rng = np.random.default_rng(3)
    a, b = fits(SPREAD, 1, 60, rng)[0], fits(-0.5 * SPREAD, 1, 20, rng)[0]
    pooled = pool_qualities([a, b])
    weights = [
        (pooled.value[i] - pooled.value[0] - b.theta[i] + b.theta[0])
        / (a.theta[i] - a.theta[0] - b.theta[i] + b.theta[0])
        for i in range(1, 8)
    ]
    assert weights == pytest.approx([weights[0]] * 7)
    assert 0.5 < weights[0] < 1


# --- judges who rated other items --------------------------------------------------------------------

APART = np.array([0.5, 0.0, 0.0, 0.0, 2.5, 2.5])
"""Two items are well above the others; only some judges see them."""


def rated(theta, items, n_batches, rng, level=0.0):
    """Ratings of a judge that sees these items alone, and is so much more lenient."""
    source = shuffled(judge(np.asarray(theta)[items] + level), n_batches, rng)
    return [(b, s, items[i], y) for b, s, i, y in ratings_of(source)]


def partial(items, n_batches, rng, level=0.0):
    return fit_markov_glmm(rated(APART, items, n_batches, rng, level), quadrature=7)


def overlapping(n_batches, rng):
    """The first judge has seen none of the two high items, and the second neither of the first two."""
    sets = [0, 1, 2, 3], [2, 3, 4, 5]
    return [
        partial(items, n_batches, rng, level) for items, level in zip(sets, (0, -1.2), strict=True)
    ]


def test_judges_meet_in_the_items_that_both_have_rated():
    """Centred each at its own items, item 0 would lie .9 too high, and others as far off."""
    pooled = pool_qualities(overlapping(400, np.random.default_rng(4)))
    assert pooled.items == (0, 1, 2, 3, 4, 5)
    assert pooled.is_connected
    z = (pooled.value - APART + APART.mean()) / np.sqrt(np.diag(pooled.cov))
    assert np.abs(z).max() < 2.5
    assert np.sqrt(np.diag(pooled.cov)).max() < 0.15


def test_qualities_and_offsets_are_fitted_together():
    """By least squares with a weight a judge: the same by the design matrix, and so its error."""
    of = [
        *overlapping(60, np.random.default_rng(5)),
        partial([0, 2, 5], 40, np.random.default_rng(6)),
    ]
    pooled = pool_qualities(of)
    rows = [(j, fit.items[i]) for j, fit in enumerate(of) for i in range(len(fit.items))]
    design = np.array([[*np.eye(6)[item], *np.eye(3)[j]] for j, item in rows])
    weights, blocks, leans = [], [], []
    for fit in of:
        v = len(fit.items)
        centre = np.eye(v) - 1 / v
        weights += [np.mean(1 / np.diag(centre @ fit.cov[:v, :v] @ centre))] * v
        blocks.append(fit.cov[:v, :v])
        leans.append(fit.cov[:v, :v] @ centre @ np.eye(6)[list(fit.items)] / 5.0)
    root = np.sqrt(weights)
    taken = (np.linalg.pinv(design * root[:, None]) * root)[:6]
    taken -= taken.mean(axis=0)
    y = np.concatenate([fit.theta for fit in of])
    assert pooled.value == pytest.approx(taken @ y)
    of_ratings = block_diag(*blocks) - block_diag(*(lean @ lean.T for lean in leans))
    lean = taken @ np.concatenate(leans)
    assert pooled.cov == pytest.approx(taken @ of_ratings @ taken.T + lean @ lean.T)


def test_judges_without_a_common_item_are_not_compared():
    rng = np.random.default_rng(7)
    pooled = pool_qualities([partial([0, 1, 2], 60, rng), partial([3, 4], 60, rng, -1.2)])
    assert pooled.component.tolist() == [0, 0, 0, 1, 1]
    assert not pooled.is_connected
    assert pooled.contrast({0: 1.0, 3: -1.0}).status is FitStatus.NOT_ESTIMABLE
    within = pooled.contrast({3: 1.0, 4: -1.0})
    assert within.status is FitStatus.OK
    assert within.est == pytest.approx(pooled.value[3] - pooled.value[4])


def test_another_judge_can_connect_what_a_judges_batches_do_not():
    """One sees items in two sets of batches, which have levels of their own; one sees some of each."""
    rng = np.random.default_rng(8)
    first = rated(APART, [0, 1, 2], 200, rng)
    second = [(b + 200, s, i, y) for b, s, i, y in rated(APART, [3, 4, 5], 200, rng, level=-1.5)]
    split = fit_markov_glmm(first + second, quadrature=7)
    assert split.component.any()
    assert not pool_qualities([split]).is_connected
    pooled = pool_qualities([split, partial([0, 1, 4, 5], 200, rng)])
    assert pooled.is_connected
    found = pooled.contrast({2: 1.0, 3: -1.0})
    assert abs(found.est) < 2.5 * found.se
    assert found.se < 0.4


def test_an_item_without_a_rating_is_not_placed_by_the_penalty():
    rng = np.random.default_rng(9)
    lost = [(b, s, i, math.nan if i == 2 else y) for b, s, i, y in rated(APART, [0, 1, 2], 60, rng)]
    pooled = pool_qualities([fit_markov_glmm(lost, lags=0, quadrature=7)])
    assert np.isnan(pooled.value).tolist() == [False, False, True]
    assert np.isnan(np.diag(pooled.cov)).tolist() == [False, False, True]
    assert pooled.contrast({0: 1.0, 1: -1.0}).status is FitStatus.OK


def test_nothing_to_pool_gives_no_qualities():
    assert pool_qualities([]).items == ()
    alone = pool_qualities([fit_markov_glmm([(b, 0, 0, b % 2) for b in range(9)])])
    assert not np.isfinite(alone.value).any()


def overlap_errors(n_batches, seed):
    """Errors over standard errors: of items 0 and 1 against 4 and 5, and of item 0."""
    pooled = pool_qualities(overlapping(n_batches, np.random.default_rng(seed)))
    weights = np.array([0.5, 0.5, 0, 0, -0.5, -0.5]), np.eye(6)[0] - 1 / 6
    return [w @ (pooled.value - APART) / math.sqrt(w @ pooled.cov @ w) for w in weights]


@pytest.mark.slow
@pytest.mark.parametrize("n_batches", [30, 120])
def test_intervals_across_judges_hold(n_batches, measured):
    """.95 of a difference that no judge has seen, and of an item that one has, in 400 runs."""
    z = np.array([overlap_errors(n_batches, [10, run]) for run in range(400)])
    cover = (np.abs(z) <= 1.96).mean(axis=0)
    measured(
        f"two judges with two of six items in common, {n_batches} batches each: coverage >= .92",
        ", ".join(f"{each:.3f}" for each in cover),
    )
    assert (cover >= 0.92).all()


# --- what intervals over judges hold ----------------------------------------------------------------


def pooled_errors(theta, n_judges, n_batches, seed):
    """Errors over standard errors: of two groups, of a unit's lead and of a unit."""
    of = fits(theta, n_judges, n_batches, np.random.default_rng(seed))
    halves = pool_judges(
        {str(j): group_contrast(f, range(4), range(4, 8)) for j, f in enumerate(of)}
    )
    pooled = pool_qualities(of)
    found = [(halves.pooled.est - theta[:4].mean() + theta[4:].mean()) / halves.pooled.se]
    lead_and_unit = np.eye(8)[0] - np.eye(8)[1], np.eye(8)[0] - 1 / 8
    return found + [
        w @ (pooled.value - theta) / math.sqrt(w @ pooled.cov @ w) for w in lead_and_unit
    ]


def test_pooled_intervals_hold_in_short():
    z = np.array([pooled_errors(SPREAD, 3, 20, [5, run]) for run in range(12)])
    assert (np.abs(z) < 1.96).mean() > 0.8


@pytest.mark.slow
@pytest.mark.parametrize(("n_judges", "n_batches"), [(5, 16), (5, 30), (10, 30)])
def test_pooled_intervals_hold(n_judges, n_batches, measured):
    """.95 of groups, a lead and a unit, in 400 runs; three standard errors are .033."""
    z = np.array([pooled_errors(SPREAD, n_judges, n_batches, [6, run]) for run in range(400)])
    cover = (np.abs(z) <= 1.96).mean(axis=0)
    measured(
        f"pool of {n_judges} judges, {n_batches} batches each: coverage of groups, lead, unit >= .93",
        ", ".join(f"{each:.3f}" for each in cover),
    )
    assert (cover >= 0.93 - 0.01).all()


@pytest.mark.slow
def test_more_judges_are_no_more_items(measured):
    """Fresh items in each run, three judges: the items are one sample, whoever rates them."""
    rejected = {"as one sample": [], "as a sample a judge": []}
    for run in range(200):
        rng = np.random.default_rng([7, run])
        of = fits(0.8 * rng.normal(size=16), 3, 40, rng)
        value = pool_qualities(of).value
        rejected["as one sample"].append(welch(value[:8], value[8:]).p < 0.05)
        own = {
            str(j): group_contrast(f, range(8), range(8, 16), Inference.ITEMS)
            for j, f in enumerate(of)
        }
        rejected["as a sample a judge"].append(pool_judges(own).pooled.p < 0.05)
    one, each = (float(np.mean(found)) for found in rejected.values())
    measured(
        "A/A with fresh items, three judges: one sample <= .05 + 3 SE", f"{one:.3f}, {each:.3f}"
    )
    assert one <= 0.05 + 3 * math.sqrt(0.05 * 0.95 / 200)
    assert each > 0.15
