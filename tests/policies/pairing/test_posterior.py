"""What is known of strengths: exact updates, fits, and the same bits from the same events."""

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import minimize
from scipy.special import expit

from estimators.tensor_dense import apply, inverse, product
from policies.pairing.posterior import Posterior, TangentPosterior, posterior_of, refit_after

BIASES = ("none", "order", "judge")


def compared(bias="none", m=6, n=200, n_judges=3, seed=0):
    rng = np.random.default_rng(seed)
    theta = rng.normal(0, 1, m)
    state = Posterior(m, n_judges=n_judges, bias=bias)
    a = rng.integers(m, size=n)
    b = (a + 1 + rng.integers(m - 1, size=n)) % m
    judge = rng.integers(n_judges, size=n)
    shift = np.array([0.0, 0.5, 1.0])[judge % 3] + 0.3
    y = (rng.random(n) < expit(theta[a] - theta[b] + shift)).astype(float)
    state.learn(a, b, y, judge)
    return state, (a, b, y, judge)


def events(m, n, seed):
    """Draw launches, landings out of their order, and some that bring nothing."""
    rng = np.random.default_rng(seed)
    flying = []
    for _ in range(n):
        if flying and rng.random() < 0.48:
            first, second, judge = flying.pop(rng.integers(len(flying)))
            outcome = rng.choice([1.0, 0.5, 0.0, np.nan])
            yield "land", (first, second, None if np.isnan(outcome) else float(outcome), judge)
        else:
            first = int(rng.integers(m))
            second = int((first + 1 + rng.integers(m - 1)) % m)
            flying.append((first, second, int(rng.integers(3))))
            yield "launch", flying[-1]


def told(state, of):
    for name, words in of:
        getattr(state, name)(*words)
    return state


@pytest.mark.parametrize("bias", BIASES)
def test_updates_equal_a_recomputation(bias):
    state, _ = compared(bias)
    for first, second, judge in ((0, 1, 0), (1, 0, 1), (0, 1, 2), (4, 2, 1)):
        state.launch(first, second, judge)
        assert np.abs(state.all_cov - state.recomputed()).max() <= 1e-12
    state.land(1, 0, None, 1)
    assert np.abs(state.all_cov - state.recomputed()).max() <= 1e-12
    state.land(0, 1, 1.0, 0)
    assert np.abs(state.all_cov - state.recomputed()).max() <= 1e-12


@given(st.integers(0, 2**32), st.sampled_from(BIASES), st.integers(2, 9))
@settings(max_examples=30, deadline=None)
def test_after_any_events_the_covariance_is_that_of_the_counts(seed, bias, m):
    state = told(Posterior(m, n_judges=3, bias=bias), events(m, 120, seed))
    assert np.abs(state.all_cov - state.recomputed()).max() <= 1e-12


def test_a_launch_that_brings_nothing_leaves_no_trace():
    state, _ = compared()
    before = state.cov.copy()
    state.launch(2, 3)
    assert state.cov[2, 2] < before[2, 2]
    state.land(2, 3, None)
    assert np.abs(state.cov - before).max() <= 1e-13
    assert not state._pending.any()


def test_what_is_in_flight_does_not_count_as_known():
    state, _ = compared()
    known = state.known_cov.copy()
    for _ in range(30):
        state.launch(0, 1)
    assert np.array_equal(state.known_cov, known)
    state.refit()
    assert np.abs(state.known_cov - known).max() < 1e-9
    assert state.cov[0, 0] < known[0, 0]


@pytest.mark.parametrize("bias", BIASES)
def test_strengths_are_the_posterior_mode(bias):
    state, (a, b, y, judge) = compared(bias)
    m, n_judges = 6, 3

    def cost(at):
        theta, order = at[:m], at[m:]
        shift = {
            "none": lambda: 0.0,
            "order": lambda: order[0],
            "judge": lambda: order[0] + order[1:][judge],
        }[bias]()
        eta = theta[a] - theta[b] + shift
        precision = np.full(len(at), 1 / 4)
        precision[m + 1 :] = 1.0
        return (np.logaddexp(0, eta) - y * eta).sum() + (precision * at**2).sum() / 2

    start = np.zeros(m + {"none": 0, "order": 1, "judge": 1 + n_judges}[bias])
    best = minimize(cost, start, method="BFGS", options={"gtol": 1e-9}).x
    assert state.theta == pytest.approx(best[:m], abs=1e-5)
    assert np.concatenate(([state.order_effect], state.judge_effects))[: len(best) - m] == (
        pytest.approx(best[m:], abs=1e-5)
    )
    assert state.theta.sum() == pytest.approx(0, abs=1e-12)


def test_an_order_effect_is_not_taken_for_strength():
    """Two equal models, one shown first four times as often, the first preferred in 70 %."""
    n = [(0, 1, 1.0)] * 56 + [(0, 1, 0.0)] * 24 + [(1, 0, 1.0)] * 14 + [(1, 0, 0.0)] * 6
    blind, fair = Posterior(2), Posterior(2, bias="order")
    for state in (blind, fair):
        state.learn(*zip(*n, strict=True))
    assert blind.theta[0] - blind.theta[1] > 0.4
    assert fair.theta[0] - fair.theta[1] == pytest.approx(0, abs=0.02)  # the prior shrinks gamma
    assert fair.order_effect == pytest.approx(np.log(7 / 3), abs=0.02)


def test_fits_wait_for_enough_landings():
    """At most every max(10, n/50) landings, counted from the events alone."""
    assert [refit_after(n) for n in (1, 500, 501, 1000, 5000)] == [10, 10, 10, 20, 100]
    state = Posterior(3)
    for k in range(1, 21):
        state.launch(0, 1)
        before = state.theta.copy()
        state.land(0, 1, 1.0)
        assert np.array_equal(state.theta, before) == (k % 10 != 0)


def test_warm_fits_come_to_the_mode():
    """Two steps from the last fit are enough to stay within a hundredth of an error of it."""
    state = told(Posterior(8), [e for e in events(8, 4000, 3) if e[1][2] is not None])
    state.refit()
    warm, se = state.theta.copy(), np.sqrt(np.diag(state.known_cov))
    state.refit(steps=50)
    assert (np.abs(warm - state.theta) / se).max() < 0.01


def test_all_wins_for_one_side_stay_finite():
    """C38 for the sampler: the prior holds what outcomes alone would send to infinity."""
    state = posterior_of([[0, 10_000, 0], [0, 0, 1], [0, 0, 0]])
    assert np.isfinite(state.theta).all()
    assert 5 < state.theta[0] - state.theta[1] < 12
    assert (np.diag(state.known_cov) > 0).all()


def test_a_far_start_does_not_run_away():
    """Strengths learned from a lopsided table, then the opposite."""
    state = posterior_of([[0, 500], [0, 0]])
    state.learn([1] * 100_000, [0] * 100_000, np.ones(100_000))
    fresh = Posterior(2)
    fresh.learn([0] * 500 + [1] * 100_000, [1] * 500 + [0] * 100_000, np.ones(100_500))
    assert state.theta == pytest.approx(fresh.theta, abs=1e-6)


def test_what_is_not_in_flight_cannot_land():
    with pytest.raises(ValueError, match="no question on 0 and 1 is in flight"):
        Posterior(2).land(0, 1, 1.0)


# The same events, the same bits

REPLAY = """
import hashlib
import numpy as np
from policies.pairing.posterior import Posterior
from policies.pairing.propensity import propensities
digest = hashlib.sha256()
for m, bias in ((12, "judge"), (110, "order"), (150, "none")):
    state = Posterior(m, n_judges=3, bias=bias)
    rng = np.random.default_rng(m)
    for k in range(300):
        a, b = rng.choice(m, 2, replace=False).tolist()
        state.launch(a, b, k % 3)
        if k % 4:
            state.land(a, b, float(rng.integers(3)) / 2, k % 3)
    for rule in ("aopt", "top1", "dopt"):
        digest.update(propensities(state, rule=rule).tobytes())
    digest.update(state.all_cov.tobytes() + state.theta.tobytes())
print(digest.hexdigest())
"""


def test_a_replay_has_the_same_bits_whatever_the_threads():
    """In processes of their own, with one BLAS thread and with four."""
    root = Path(__file__).parents[3]
    said = {
        subprocess.run(
            [sys.executable, "-c", REPLAY],
            env=os.environ | {"OPENBLAS_NUM_THREADS": threads, "PYTHONPATH": str(root)},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for threads in ("1", "4")
    }
    assert len(said) == 1


@given(st.integers(0, 2**32), st.sampled_from(BIASES))
@settings(max_examples=10, deadline=None)
def test_the_same_events_make_the_same_bits(seed, bias):
    one, other = (told(Posterior(5, n_judges=3, bias=bias), events(5, 150, seed)) for _ in range(2))
    for name in ("_at", "_all", "_known", "_landed", "_points", "_pending"):
        assert getattr(one, name).tobytes() == getattr(other, name).tobytes()


# Algebra


@pytest.mark.parametrize("n", [1, 3, 64, 65, 130])
def test_products_and_inverses_are_right(n):
    rng = np.random.default_rng(n)
    left, right = rng.normal(size=(n, n + 7)), rng.normal(size=(n + 7, 2 * n))
    assert product(left, right) == pytest.approx(left @ right, abs=1e-10)
    matrix = left @ left.T + n * np.eye(n)
    inverted = inverse(matrix)
    assert inverted @ matrix == pytest.approx(np.eye(n), abs=1e-10)
    assert np.array_equal(inverted, inverted.T)
    assert apply(matrix, left[:, 0]) == pytest.approx(matrix @ left[:, 0], abs=1e-10)


# In a tangent space


def test_the_tangent_space_of_full_rank_is_the_strengths_themselves():
    """One context and a basis of all sum-zero directions: covariances of gaps are those of the fit."""
    state, _ = compared(m=5)
    centred = np.linalg.svd(np.eye(5) - 1 / 5)[0][:, :4]
    information = np.linalg.inv(state.known_cov) - np.eye(5) / 4
    tangent = TangentPosterior(
        state.theta[:, None], centred[:, None], centred.T @ information @ centred
    )
    centring = np.eye(5) - 1 / 5
    assert tangent.cov[0] == pytest.approx(centring @ state.known_cov @ centring, abs=1e-12)
    tangent.launch(0, 3, 0)
    state.launch(0, 3)
    assert tangent.cov[0] == pytest.approx(centring @ state.cov @ centring, abs=1e-12)
    tangent.withdraw(0, 3, 0)
    assert tangent.cov[0] == pytest.approx(centring @ state.known_cov @ centring, abs=1e-12)
