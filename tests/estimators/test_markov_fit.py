"""The maximum: what it is invariant to, where it lies at edges, and what the penalty does."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from estimators.batches import Counts, Layout, laid_out
from estimators.markov_fit import NoMaximum, Penalty, ascent, maximise, undetermined
from tests.estimators.markov_data import judge, shuffled

FREE = Penalty(items=None)


def layout(y, x=None, shown=None):
    y = np.asarray(y, dtype=float)
    x = np.zeros((*y.shape, 0)) if x is None else np.asarray(x, dtype=float)
    return Layout(
        y=y,
        shown=np.ones(y.shape, dtype=bool) if shown is None else shown,
        x=x,
        names=tuple(f"x{j}" for j in range(x.shape[2])),
        rows=np.arange(len(y)),
        counts=Counts(y.size, 0, 0, 0),
    )


def some(v=6, n=40, seed=2, sigma=0.8):
    rng = np.random.default_rng(seed)
    return laid_out(shuffled(judge(0.8 * rng.normal(size=v), sigma=sigma), n, rng), 1)


def relabelled(data, by):
    return Layout(
        y=data.y[:, by],
        shown=data.shown[:, by],
        x=data.x[:, by],
        names=data.names,
        rows=data.rows,
        counts=data.counts,
    )


@pytest.mark.parametrize("penalty", [FREE, Penalty()])
def test_names_of_items_do_not_matter(penalty):
    data, by = some(), np.array([3, 0, 5, 1, 4, 2])
    found, moved = maximise(data, penalty=penalty), maximise(relabelled(data, by), penalty=penalty)
    assert moved.psi[:6] == pytest.approx(found.psi[by], abs=1e-8)
    assert moved.psi[6:] == pytest.approx(found.psi[6:], abs=1e-8)
    assert moved.loglik == pytest.approx(found.loglik, abs=1e-8)


def test_a_batch_in_which_nothing_enters_changes_nothing():
    data = some()
    more = Layout(
        y=np.vstack((data.y, np.zeros((1, 6)))),
        shown=np.vstack((data.shown, np.zeros((1, 6), dtype=bool))),
        x=np.concatenate((data.x, np.zeros((1, 6, 2)))),
        names=data.names,
        rows=np.arange(len(data) + 1),
        counts=data.counts,
    )
    found, with_empty = maximise(data, penalty=FREE), maximise(more, penalty=FREE)
    assert with_empty.psi == pytest.approx(found.psi, abs=1e-9)
    assert with_empty.loglik == pytest.approx(found.loglik, abs=1e-9)


def test_verdicts_turned_round_turn_the_fit_round():
    """y to 1 - y and lag to 1 - lag: theta' = -(theta + beta), gamma' = beta - gamma, beta' = beta."""
    data = some()
    x = data.x.copy()
    x[..., 0] = np.where(x[..., 1] == 1, 0.0, 1 - x[..., 0])
    turned = layout(1 - data.y, x)
    found, other = maximise(data, penalty=FREE), maximise(turned, penalty=FREE)
    beta, gamma = found.psi[6:8]
    assert other.psi[:6] == pytest.approx(-(found.psi[:6] + beta), abs=1e-8)
    assert other.psi[6:] == pytest.approx([beta, beta - gamma, found.psi[-1]], abs=1e-8)
    assert other.loglik == pytest.approx(found.loglik, abs=1e-8)


@given(st.floats(-5, 5), st.floats(0.5, 20))
def test_the_penalty_shrinks_no_common_level(shift, scale):
    theta = np.array([0.3, -1.0, 2.0, 0.0, 0.0])
    moved = theta + np.array([shift, shift, shift, 0, 0])
    q = Penalty(items=scale).precision(3, 1)
    assert moved @ q @ moved == pytest.approx(theta @ q @ theta, abs=1e-9)
    assert not q[3:].any()


def test_all_accepting_batches_have_finite_numbers_under_weak_priors():
    """Eight batches of four: each item 6.238254 with an error of 5.23, and no spread."""
    found = maximise(layout(np.ones((8, 4))), penalty=Penalty(mean=10.0))
    assert found.psi == pytest.approx([6.238254] * 4 + [0], abs=1e-6)
    assert np.sqrt(np.diag(found.covariance))[:4] == pytest.approx([5.23] * 4, abs=5e-3)
    assert found.is_boundary


def test_tiny_batches_with_a_large_spread_get_the_nodes_they_need():
    """With 15 nodes the iteration would go round and round; more are taken by themselves."""
    reached = []
    for seed in range(40):
        rng = np.random.default_rng([9, seed])
        data = laid_out(shuffled(judge([0.5, -0.5], sigma=6.0), 12, rng), 1)
        try:
            found = maximise(data, penalty=Penalty(mean=10.0, slopes=5.0))
        except NoMaximum:
            continue
        reached.append(found.nodes)
        assert np.abs(found.gradient).max() <= 1e-5
        # At the most nodes it may remain, and is then reported.
        assert found.quadrature_error <= 1e-6 or found.nodes == 41
    assert max(reached) > 15


def test_who_asks_for_few_nodes_gets_them():
    """Laplace's approximation is asked for by one node, however rough."""
    found = maximise(some(), quadrature=1, penalty=FREE)
    assert found.nodes == 1
    assert np.isnan(found.quadrature_error)


def test_batches_of_one_opinion_have_no_maximum():
    y = np.repeat([[1.0], [0.0], [1.0], [0.0]], 5, axis=1)
    with pytest.raises(NoMaximum, match="spread"):
        maximise(layout(y), penalty=Penalty(mean=10.0))


def test_a_level_likelihood_has_no_maximum():
    """Single ratings: quality and spread can't be told apart."""
    with pytest.raises(NoMaximum, match="open"):
        maximise(layout([[1.0], [0.0], [1.0], [1.0], [0.0], [1.0]]), penalty=FREE)


def test_it_starts_off_the_boundary():
    """At sigma = 0 the gradient is 0 for all data: an iteration from there would stay."""
    data = some(v=12, n=60, sigma=1.2)
    found = maximise(data, penalty=FREE)
    stuck = np.append(found.psi[:-1], 0.0)
    again = maximise(data, penalty=FREE, start=stuck)
    assert found.psi[-1] > 0.5
    assert again.psi == pytest.approx(found.psi, abs=1e-7)


@pytest.mark.parametrize("seed", range(6))
def test_from_anywhere_it_is_the_same(seed):
    data = some(sigma=0.3, seed=seed)
    found = maximise(data, penalty=Penalty())
    start = found.psi + np.random.default_rng(seed).normal(size=len(found.psi))
    again = maximise(data, penalty=Penalty(), start=start)
    assert again.psi == pytest.approx(found.psi, abs=1e-7)
    assert again.objective == pytest.approx(found.objective, abs=1e-9)


def test_a_step_of_negative_curvature_still_climbs():
    gradient = np.array([1.0, -2.0])
    assert ascent(np.diag([2.0, -1.0]), gradient) @ gradient > 0


def test_separated_and_dependent_covariates_are_found():
    """All first slots accepted: the start's slope grows without end. A copied column: no slope."""
    rng = np.random.default_rng(0)
    x = np.zeros((20, 5, 4))
    x[:, 0, 0] = 1
    x[..., 1] = rng.random((20, 5)) < 0.5
    x[..., 2] = rng.random((20, 5)) < 0.5
    x[..., 3] = x[..., 2]
    y = (rng.random((20, 5)) < 0.5).astype(float)
    y[:, 0] = 1
    assert undetermined(layout(y, x)).tolist() == [True, False, True, True]
    y[0, 0] = 0
    assert undetermined(layout(y, x)).tolist() == [False, False, True, True]


def test_slopes_that_only_together_separate_are_found():
    """Neither column has one outcome alone, yet 'neither' always rejects."""
    patterns = np.array([[0, 0], [0, 0], [1, 0], [1, 0], [0, 1], [0, 1]], dtype=float)
    x = np.tile(patterns, (10, 1, 1))
    y = np.tile([0.0, 0, 1, 0, 1, 0], (10, 1))
    assert undetermined(layout(y, x)).tolist() == [True, True]


@settings(max_examples=20, deadline=None)
@given(st.integers(0, 10_000))
def test_the_maximum_is_a_maximum(seed):
    """No parameter vector nearby has more, at the reported information's scale."""
    data = some(v=4, n=15, seed=seed)
    penalty = Penalty(mean=10.0, slopes=5.0)
    found = maximise(data, penalty=penalty)
    assert np.abs(found.gradient).max() <= 1e-5
    free = slice(len(found.psi) - found.is_boundary)
    assert np.linalg.eigvalsh(found.information[free, free])[0] > 0
