"""Errors of a tensor where votes of one prompt hang together."""

import numpy as np
import pytest
from scipy.special import expit

from estimators.tensor_functionals import gap, score
from estimators.tensor_model import fit_bt_tensor

M, K = 5, 3
TARGETS = (gap(0, 3, 0), gap(1, 2, 1), score(4, 2))


def votes(n, seed=0):
    rng = np.random.default_rng(seed)
    theta = np.outer(np.linspace(1, -1, M), [1.0, 0.6, 1.3])
    left = rng.integers(M, size=n)
    right = (left + 1 + rng.integers(M - 1, size=n)) % M
    context = rng.integers(K, size=n)
    won = rng.random(n) < expit(theta[left, context] - theta[right, context])
    return left, right, context, won.astype(float)


def fitted(rows, **how):
    return fit_bt_tensor(*rows, shape=(M, K), rank=1, order_effect=True, **how)


@pytest.mark.parametrize("kind", ["efficient", "whitened", "isotropic"])
def test_clusters_of_one_vote_change_nothing(kind):
    rows = votes(900)
    folds = np.arange(900) % 3
    plain = fitted(rows).one_step(*TARGETS, folds=folds, kind=kind)
    alone = fitted(rows, cluster=np.arange(900)).one_step(*TARGETS, folds=folds, kind=kind)
    np.testing.assert_allclose(alone.value, plain.value, atol=1e-12)
    np.testing.assert_allclose(alone.covariance, plain.covariance, rtol=1e-9)
    of_fit = fitted(rows, cluster=np.arange(900)).plug_in(*TARGETS)
    robust = fitted(rows).plug_in(*TARGETS, errors="sandwich")
    np.testing.assert_allclose(of_fit.covariance, robust.covariance, rtol=1e-9)


def test_a_vote_that_is_given_four_times_is_no_news():
    """Copies in one cluster leave values and errors as they were."""
    rows = votes(900)
    copies = tuple(np.tile(column, 4) for column in rows)
    cluster = np.tile(np.arange(900), 4)
    once = fitted(rows, ridge=0.0)
    often = fitted(copies, cluster=cluster)
    np.testing.assert_allclose(often.tensor, once.tensor, atol=1e-7)
    one, other = once.plug_in(*TARGETS, errors="sandwich"), often.plug_in(*TARGETS)
    np.testing.assert_allclose(other.se, one.se, rtol=1e-6)
    folds = np.arange(900) % 3
    one = once.one_step(*TARGETS, folds=folds, ridge=0.0)
    other = often.one_step(*TARGETS, folds=np.tile(folds, 4), ridge=0.0)
    np.testing.assert_allclose(other.value, one.value, atol=1e-6)
    np.testing.assert_allclose(other.se, one.se, rtol=1e-5)


def test_a_prompts_taste_widens_the_interval():
    """Votes of one prompt that share a taste tell less than as many prompts."""
    rng = np.random.default_rng(2)
    left, right, context, _ = votes(4000)
    prompt = rng.integers(60, size=4000)
    taste = rng.standard_normal((60, M)) * 1.5
    eta = taste[prompt, left] - taste[prompt, right]
    won = (rng.random(4000) < expit(eta)).astype(float)
    rows = (left, right, context, won)
    plain, clustered = fitted(rows), fitted(rows, cluster=prompt)
    assert (clustered.plug_in(*TARGETS).se > 1.4 * plain.plug_in(*TARGETS).se).all()
    wide = clustered.one_step(*TARGETS, by=prompt).se
    assert (wide > 1.4 * plain.one_step(*TARGETS, by=prompt).se).all()
