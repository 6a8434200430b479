"""How far weights move strengths, against what chance does."""

import numpy as np
import pytest
from scipy.special import expit

from estimators.bt_model import fit_bradley_terry
from estimators.bt_weighting import Fitted, weighted_shift

M = 5


def shift(left, right, outcome, weights, *, order=False, cluster=None):
    fits = [
        fit_bradley_terry(left, right, outcome, n_models=M, weights=each, order_effect=order)
        for each in (None, weights)
    ]
    plain, weighted = (
        Fitted(fit.theta, expit(fit.theta[left] - fit.theta[right] + fit.gamma)) for fit in fits
    )
    return weighted_shift(
        left,
        right,
        outcome,
        weights,
        plain,
        weighted,
        extra=np.ones((len(left), 1)) if order else None,
        cluster=cluster,
    )


def drawn(rng, n, deviation=0.0, gamma=0.0):
    """Pairs by uneven known propensities; `deviation` makes a circle of the first three models."""
    first, second = np.triu_indices(M, 1)
    q = np.linspace(1, 6, len(first))
    q /= q.sum()
    at = rng.choice(len(q), n, p=q)
    turn = rng.random(n) < 0.5
    left, right = np.where(turn, first[at], second[at]), np.where(turn, second[at], first[at])
    theta = np.linspace(1, -1, M)
    circle = np.zeros((M, M))
    for a, b in ((0, 1), (1, 2), (2, 0)):
        circle[a, b], circle[b, a] = deviation, -deviation
    p = expit(theta[left] - theta[right] + circle[left, right] + gamma)
    return left, right, (rng.random(n) < p).astype(float), 1 / (len(q) * q[at])


@pytest.mark.parametrize("order", [False, True])
def test_the_error_of_the_difference_is_what_replicates_show(order):
    """150 sets where one strength a model is right: errors, and how often a shift is claimed."""
    found = [
        shift(*drawn(np.random.default_rng([1, rep]), 500, gamma=0.4 * order), order=order)
        for rep in range(150)
    ]
    differences = np.array([each.difference for each in found])
    errors = np.array([each.se for each in found])
    assert errors.mean(axis=0) == pytest.approx(differences.std(axis=0), rel=0.2)
    assert np.mean([each.is_apart for each in found]) <= 0.05 + 3 * np.sqrt(0.05 * 0.95 / 150)


def test_a_wrong_model_moves_the_weighted_fit():
    found = shift(*drawn(np.random.default_rng(2), 8000, deviation=1.5))
    assert found.is_apart
    assert found.largest == pytest.approx(
        abs(found.difference[found.model]) / found.se[found.model]
    )
    assert found.critical == pytest.approx(2.576, abs=1e-3)


def test_equal_weights_move_nothing():
    left, right, outcome, _ = drawn(np.random.default_rng(3), 400)
    found = shift(left, right, outcome, np.full(400, 0.7))
    assert np.abs(found.difference).max() < 1e-9
    assert not found.is_apart


def test_rows_of_one_cluster_add_up_before_they_are_squared():
    """Each comparison five times: errors without clusters are √5 too small, with them as of one."""
    left, right, outcome, weights = drawn(np.random.default_rng(4), 400)
    once = shift(left, right, outcome, weights)
    five = [np.repeat(each, 5) for each in (left, right, outcome, weights)]
    naive, clustered = shift(*five), shift(*five, cluster=np.repeat(np.arange(400), 5))
    assert clustered.se == pytest.approx(once.se)
    assert naive.se == pytest.approx(once.se / np.sqrt(5))
    alone = shift(left, right, outcome, weights, cluster=np.arange(400), order=True)
    assert alone.se == pytest.approx(shift(left, right, outcome, weights, order=True).se)
