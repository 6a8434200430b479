"""The marginal likelihood: worked values, integrals by brute force, derivatives by differences."""

import math

import numpy as np
import pytest
from scipy.special import logsumexp

from estimators.batches import laid_out, sequences
from estimators.markov_fit import Penalty, maximise
from estimators.markov_likelihood import (
    batch_information,
    evaluate,
    log_likelihood,
    logistic,
    modes,
    predictor,
    softplus,
)
from estimators.quadrature import gauss_hermite
from tests.estimators.markov_data import D3, drawn, judge, shuffled

WORKED = laid_out(sequences([(0, 0, 0, 1), (0, 1, 1, 0)]), 1)
WORKED_PSI = np.array([0.3, -0.2, -0.6, 0.5, 0.9])


def brute_force(data, psi, points=1001):
    """Log likelihood by the trapezoid rule over v in [-9, 9]."""
    v = np.linspace(-9, 9, points)
    eta = predictor(data, psi)[:, None, :] + (psi[-1] * v)[:, None]
    height = (data.y[:, None, :] * eta - np.logaddexp(0, eta)).sum(axis=2)
    height -= v**2 / 2 + math.log(2 * math.pi) / 2
    return logsumexp(height, axis=1) + math.log(v[1] - v[0])


def some(v=7, n=12, seed=0, sigma=0.9, lags=(-0.6, 0.3), starts=(0.5, -0.2)):
    rng = np.random.default_rng(seed)
    of = judge(rng.normal(size=v), lags, starts, sigma)
    data = laid_out(shuffled(of, n, rng), len(lags))
    return data, np.concatenate((of.theta, lags, starts, [sigma]))


@pytest.mark.parametrize(
    ("nodes", "value"),
    [
        (1, -0.890968165404),
        (3, -0.885586070931),
        (5, -0.885611671869),
        (15, -0.885609527817),
    ],
)
def test_the_worked_batch_has_its_published_likelihood(nodes, value):
    """A missing √2, e^(z²) or τ, or nodes of the other convention, would show here."""
    assert log_likelihood(WORKED, WORKED_PSI, gauss_hermite(nodes)).sum() == pytest.approx(
        value, abs=1e-12
    )


def test_without_spread_it_is_the_logistic_likelihood():
    psi = np.append(WORKED_PSI[:-1], 0.0)
    assert log_likelihood(WORKED, psi, gauss_hermite(5)).sum() == pytest.approx(
        -0.742201331896, abs=1e-12
    )


@pytest.mark.parametrize(
    ("nodes", "theta", "sigma"), [(15, 0.330314, -0.26837), (1, 0.334471, -0.285947)]
)
def test_the_worked_batch_has_its_published_gradient(nodes, theta, sigma):
    """By the envelope alone, Laplace's would be 0.310026 and 0."""
    found = evaluate(WORKED, WORKED_PSI, gauss_hermite(nodes)).gradient
    assert found == pytest.approx([theta, -theta, -theta, theta, sigma], abs=1e-6)


@pytest.mark.parametrize("nodes", [1, 2, 5, 7, 15])
def test_the_gradient_is_that_of_the_approximation(nodes):
    """Against central differences: the nodes move with the parameters."""
    (data, psi), rule, h = some(), gauss_hermite(nodes), 1e-5
    differences = [
        (log_likelihood(data, psi + h * e, rule) - log_likelihood(data, psi - h * e, rule)).sum()
        / (2 * h)
        for e in np.eye(len(psi))
    ]
    assert evaluate(data, psi, rule).gradient == pytest.approx(differences, abs=1e-6)


def test_louis_information_is_the_curvature():
    (data, psi), rule, h = some(), gauss_hermite(15), 1e-5
    differences = np.array(
        [
            evaluate(data, psi - h * e, rule).gradient - evaluate(data, psi + h * e, rule).gradient
            for e in np.eye(len(psi))
        ]
    ) / (2 * h)
    found = evaluate(data, psi, rule).information
    assert np.abs(found - differences).max() <= 1e-6 * np.abs(differences).max()


def test_batches_add_up():
    (data, psi), rule = some(), gauss_hermite(7)
    weights = np.random.default_rng(1).integers(0, 3, len(data)).astype(float)
    each = batch_information(data, psi, rule)
    found = evaluate(data, psi, rule, weights=weights)
    assert found.information == pytest.approx(np.tensordot(weights, each, 1), abs=1e-10)
    assert found.gradient == pytest.approx(evaluate(data, psi, rule).gradient, abs=1e-12)


def test_parts_that_fit_the_cache_change_nothing(monkeypatch):
    (data, psi), rule = some(), gauss_hermite(15)
    whole = evaluate(data, psi, rule)
    monkeypatch.setattr("estimators.markov_likelihood._CHUNK", 7 * 15 * 5)
    parted = evaluate(data, psi, rule)
    assert parted.loglik == pytest.approx(whole.loglik, abs=1e-13)
    assert parted.information == pytest.approx(whole.information, abs=1e-11)
    assert log_likelihood(data, psi, rule) == pytest.approx(whole.loglik, abs=1e-13)


@pytest.mark.parametrize(("nodes", "error"), [(25, 1e-9), (15, 1.2e-7)])
def test_many_nodes_are_the_integral(nodes, error):
    """Against the trapezoid rule, on 160 batches of 30 ratings with a spread of 1.1."""
    data = laid_out(drawn(D3), 1)
    psi = maximise(data, penalty=Penalty(items=None)).psi
    found = log_likelihood(data, psi, gauss_hermite(nodes)).sum()
    assert found == pytest.approx(brute_force(data, psi).sum(), abs=error)


def test_nodes_stand_where_the_integrand_is():
    """At the fixed places of the normal law 5 nodes err by 8 units, and 15 still by 0.7."""
    data = laid_out(drawn(D3), 1)
    psi = np.r_[D3["theta"], D3["lags"], D3["starts"], 1.109]
    rule = gauss_hermite(5)
    fixed = predictor(data, psi)[:, None, :] + (psi[-1] * math.sqrt(2) * rule.nodes)[:, None]
    height = (data.y[:, None, :] * fixed).sum(axis=2) - softplus(fixed).total
    fixed_nodes = logsumexp(height + rule.log_weights - rule.nodes**2, axis=1).sum()
    fixed_nodes -= len(data) * math.log(math.pi) / 2
    exact = brute_force(data, psi).sum()
    assert abs(fixed_nodes - exact) > 5
    assert abs(log_likelihood(data, psi, rule).sum() - exact) < 0.05


def test_the_sign_of_the_spread_does_not_matter():
    (data, psi), rule = some(), gauss_hermite(15)
    mirrored = psi * np.append(np.ones(len(psi) - 1), -1)
    assert log_likelihood(data, mirrored, rule) == pytest.approx(
        log_likelihood(data, psi, rule), abs=1e-12
    )


def test_nothing_overflows():
    """ln(1 + e^800) is 800, and a thousand ratings in a batch are no product too large."""
    eta = np.array([[800.0], [-800.0]])
    assert logistic(eta).mu.ravel().tolist() == [1, 0]
    assert logistic(eta).slope.ravel().tolist() == pytest.approx([0, 0], abs=1e-300)
    assert softplus(eta).total.tolist() == [800, 0]
    assert softplus(np.zeros((1, 3000))).total == pytest.approx(3000 * math.log(2))
    assert softplus(np.array([[400.0, 400.0, -3.0]])).total == pytest.approx(
        800 + math.log1p(math.exp(-3))
    )


@pytest.mark.parametrize("sigma", [0.5, 6.0, 40.0])
def test_modes_are_found_however_steep_the_batches(sigma):
    """A plain Newton iteration would jump back and forth."""
    data, psi = some(v=12, n=40, seed=3)
    at = modes(data, predictor(data, psi), sigma).at
    eta = predictor(data, psi) + (sigma * at)[:, None]
    slope = sigma * (data.y - logistic(eta).mu).sum(axis=1) - at
    assert np.abs(slope).max() < 1e-6
