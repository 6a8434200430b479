"""Fits of the Beta-Binomial law: another optimiser, its edge statuses, recovery, upper limits."""

import json
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import optimize, stats

from estimators.beta_binomial import (
    BetaBinomialStatus,
    _profile,
    _scan,
    _tally,
    beta_binomial_loglik,
    fit_beta_binomial,
    upper_dispersion,
)
from tests.estimators.mmlu_data import mmlu


def by_simplex(k, n):
    """SciPy's law and Nelder and Mead's search: a second maximum."""

    def loss(logs):
        return -stats.betabinom.logpmf(k, n, *np.exp(logs)).sum()

    found = optimize.minimize(
        loss,
        [1.0, 1.0],
        method="Nelder-Mead",
        options={"xatol": 1e-9, "fatol": 1e-11, "maxiter": 4000},
    )
    return (*np.exp(found.x), -found.fun)


def test_published_fits_are_met(shared_gold):
    """A9."""
    vectors = json.loads((shared_gold / "exchangeable/vectors.json").read_text(encoding="utf-8"))
    for case in vectors["fit_beta_binomial"]:
        fit, expected = fit_beta_binomial(**case["input"]), case["expected"]
        found = {
            "S": fit.n_subjects,
            "mu": fit.mu,
            "phi": fit.phi,
            "rho": fit.icc,
            "M": fit.concentration,
            "a": fit.a,
            "b": fit.b,
            "loglik": fit.loglik,
            "loglik_binom": fit.loglik_binomial,
            "lr": fit.likelihood_ratio,
            "p_overdisp": fit.p_value,
        }
        assert fit.status == expected["status"]
        assert math.isnan(fit.phi) == (expected["phi"] is None)
        for key, value in expected.items():
            if key != "status" and value is not None:
                assert found[key] == pytest.approx(value, rel=1e-6, abs=1e-9), key


def test_a_published_set_has_its_law():
    """Pitfall 11: a = 5.30565, b = 2.67624, M = 7.9819, log-likelihood -25.051152."""
    fit = fit_beta_binomial([40, 55, 70, 62, 81, 90], [100] * 6)
    assert (fit.a, fit.b, fit.concentration) == pytest.approx((5.30565, 2.67624, 7.9819), abs=1e-5)
    assert fit.loglik == pytest.approx(-25.051152, abs=1e-6)
    assert fit.sd == pytest.approx(stats.beta(fit.a, fit.b).std())


@given(st.integers(0, 2**32), st.floats(0.05, 0.95), st.floats(0.3, 2.5), st.integers(3, 40))
@settings(max_examples=25, deadline=None)
def test_no_other_law_fits_better(seed, mu, log_m, n_subjects):
    """A9: By SciPy's law on a grid; beyond M = 1e4 its log-gammas lose too much to compare with."""
    rng = np.random.default_rng(seed)
    n = rng.integers(1, 150, n_subjects)
    k = rng.binomial(n, rng.beta(mu * 10**log_m, (1 - mu) * 10**log_m, n_subjects))
    fit = fit_beta_binomial(k, n)
    m = np.geomspace(0.05, 1e4, 40)[:, None, None]
    share = np.linspace(0.01, 0.99, 50)[:, None]
    grid = stats.betabinom.logpmf(k, n, share * m, (1 - share) * m).sum(axis=-1)
    assert fit.loglik >= grid.max() - 1e-6
    if fit.status is BetaBinomialStatus.OK and fit.concentration < 1e4:
        own = stats.betabinom.logpmf(k, n, fit.a, fit.b).sum()
        assert fit.loglik == pytest.approx(own, abs=1e-6)
        assert 0 < fit.p_value < 0.5
    if fit.status is BetaBinomialStatus.NO_OVERDISPERSION:
        assert fit.loglik == pytest.approx(stats.binom.logpmf(k, n, fit.mu).sum())
        assert fit.p_value == 1.0


def test_real_subjects_have_the_law_that_another_optimiser_finds(shared_data):
    """A9."""
    data = mmlu(shared_data)
    for model in data.models:
        k, n = data.counts(model)
        fit = fit_beta_binomial(k, n)
        a, b, loglik = by_simplex(k, n)
        assert (fit.a, fit.b) == pytest.approx((a, b), rel=1e-4)
        assert fit.loglik == pytest.approx(loglik, abs=1e-6)


@pytest.mark.parametrize(
    ("k", "n", "status", "phi"),
    [
        ([50] * 4, [100] * 4, "no_overdispersion", 0.0),
        ([0, 0, 0], [10, 20, 30], "degenerate_all_equal", 0.0),
        ([10, 20, 30], [10, 20, 30], "degenerate_all_equal", 0.0),
        ([3], [10], "not_identified", math.nan),
        ([0], [10], "not_identified", math.nan),
        ([3, 0], [10, 0], "not_identified", math.nan),
        ([0, 1, 1], [1, 1, 1], "not_identified", math.nan),
        ([0, 5, 7], [9, 5, 7], "at_phi_max", math.inf),
        ([0, 2, 1], [1, 2, 1], "at_phi_max", math.inf),
    ],
)
def test_edges_have_a_status_and_not_a_wandering_number(k, n, status, phi):
    """A9, pitfall 11."""
    fit = fit_beta_binomial(k, n)
    assert fit.status == status
    assert fit.phi == pytest.approx(phi, nan_ok=True)
    assert math.isfinite(fit.mu)


def test_equal_chances_have_the_binomial():
    """Pitfall 11: mu .5, log-likelihood -10.123506; a and b are infinite and not some large number."""
    fit = fit_beta_binomial([50] * 4, [100] * 4)
    assert (fit.mu, fit.a, fit.b, fit.icc) == (0.5, math.inf, math.inf, 0.0)
    assert fit.loglik == pytest.approx(-10.123506, abs=1e-6)
    sure = fit_beta_binomial([0, 0], [5, 5])
    assert (sure.mu, sure.a, sure.loglik) == (0.0, 0.0, 0.0)


def test_all_or_none_is_the_limit_of_large_dispersion():
    k, n = [0, 5, 5, 7], [7, 5, 5, 7]
    fit = fit_beta_binomial(k, n)
    assert (fit.mu, fit.icc, fit.concentration) == (0.75, 1.0, 0.0)
    assert fit.loglik == pytest.approx(beta_binomial_loglik(k, n, 0.75, 1e9), abs=1e-6)
    assert fit.loglik > beta_binomial_loglik(k, n, 0.75, 10.0)


def test_small_dispersion_is_the_binomial():
    """Pitfall 12: M = 1e10: a difference of log-gammas would lose six digits here."""
    small = beta_binomial_loglik([3, 5], [10, 10], 0.4, 1e-10)
    plain = stats.binom.logpmf([3, 5], 10, 0.4).sum()
    assert small == pytest.approx(plain, abs=1e-7)
    assert beta_binomial_loglik([3, 5], [10, 10], 0.4, 0.0) == pytest.approx(plain, abs=1e-12)
    exact = stats.betabinom.logpmf([3, 5], 10, 0.4 / 0.3, 0.6 / 0.3).sum()
    assert beta_binomial_loglik([3, 5], [10, 10], 0.4, 0.3) == pytest.approx(exact, abs=1e-10)
    assert beta_binomial_loglik([1], [2], 0.0, 0.0) == -math.inf
    assert beta_binomial_loglik([0], [2], 0.0, 0.0) == 0.0


def test_a_law_is_recovered():
    """A9: 57 subjects with M = 10: the median of 60 fits is near 10."""
    rng = np.random.default_rng(6)
    found = []
    for _ in range(60):
        n = rng.integers(100, 400, 57)
        found.append(fit_beta_binomial(rng.binomial(n, rng.beta(7, 3, 57)), n).concentration)
    assert 8.5 <= np.median(found) <= 12


def test_equal_chances_are_called_unequal_as_often_as_stated():
    """The likelihood ratio's law at phi = 0 is half at 0: 5 % of p-values are below .05."""
    rng = np.random.default_rng(7)
    n = np.full(40, 50)
    p = np.array([fit_beta_binomial(rng.binomial(n, 0.6), n).p_value for _ in range(250)])
    assert (p <= 0.05).mean() == pytest.approx(0.05, abs=3 * math.sqrt(0.05 * 0.95 / 250))
    assert (p == 1.0).mean() == pytest.approx(0.55, abs=0.1)


def test_the_upper_limit_is_where_the_profile_has_fallen():
    """By a likelihood maximised with SciPy: 2.7055/2 below its maximum, one-sided 95 %."""
    k, n = np.array([40, 55, 70, 62, 81, 90]), np.full(6, 100)
    fit, (mu, phi, loglik) = fit_beta_binomial(k, n), upper_dispersion(k, n)
    assert phi > fit.phi

    def loss(m):
        return -stats.betabinom.logpmf(k, n, m / phi, (1 - m) / phi).sum()

    best = optimize.minimize_scalar(loss, bounds=(0.01, 0.99), method="bounded")
    assert mu == pytest.approx(best.x, abs=1e-4)
    assert loglik == pytest.approx(-best.fun, abs=1e-8)
    assert 2 * (fit.loglik - loglik) == pytest.approx(stats.norm.ppf(0.95) ** 2, abs=1e-6)
    assert upper_dispersion(k, n, level=0.5).phi == pytest.approx(fit.phi, rel=1e-3)


def test_the_upper_limit_covers():
    """The true phi = .1 is below it in about 95 % of draws."""
    rng = np.random.default_rng(8)
    n = np.full(57, 100)
    limits = [upper_dispersion(rng.binomial(n, rng.beta(7, 3, 57)), n).phi for _ in range(120)]
    assert np.mean(np.array(limits) >= 0.1) >= 0.95 - 3 * math.sqrt(0.05 * 0.95 / 120)
    assert np.mean(limits) < 0.2


@pytest.mark.parametrize(
    ("k", "n"), [([0, 0], [5, 5]), ([3], [10]), ([0, 5], [5, 5]), ([0, 1, 1], [1, 1, 1])]
)
def test_nothing_bounds_a_dispersion_that_data_do_not_show(k, n):
    assert upper_dispersion(k, n).phi == math.inf


def test_equal_proportions_bound_the_dispersion_from_above():
    """phi is 0 and its upper limit is not, but shrinks with more answers."""
    few, many = (upper_dispersion([each // 2] * 4, [each] * 4).phi for each in (20, 200))
    assert 0 < many < few < 1


@pytest.mark.parametrize(
    ("k", "n"),
    [([1, 2], [1]), ([2], [1]), ([-1], [2]), ([0.5], [2]), ([0], [0]), ([], []), ([[1]], [[2]])],
)
def test_what_are_no_counts_is_refused(k, n):
    with pytest.raises(ValueError, match=r"k and n|no answer"):
        fit_beta_binomial(k, n)


def test_parameters_outside_their_range_are_refused():
    for mu, phi in [(-0.1, 0.0), (1.1, 0.0), (0.5, -1.0), (0.5, math.inf)]:
        with pytest.raises(ValueError, match="mu, phi"):
            beta_binomial_loglik([1], [2], mu, phi)
    with pytest.raises(ValueError, match="level"):
        upper_dispersion([1], [2], level=1.0)


@given(
    st.lists(st.tuples(st.integers(0, 40), st.integers(0, 40)), min_size=2, max_size=12).filter(
        lambda each: sum(k for k, _ in each) and sum(k < k + m for k, m in each)
    )
)
def test_dispersions_that_are_tried_together_are_those_that_are_tried_alone(subjects):
    k = [right for right, _ in subjects]
    table = _tally(k, [right + wrong for right, wrong in subjects])
    if not 0 < table.mean < 1:
        return
    phi = np.geomspace(1e-9, 1e6, 21)
    alone = [_profile(table, float(each)).loglik - table.log_choices for each in phi]
    assert _scan(table, phi) == pytest.approx(alone, rel=1e-9, abs=1e-9)
