"""What one more comparison teaches, and the probabilities made of it."""

import json

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.special import expit
from scipy.stats import chisquare

from policies.pairing.acquisition import gains, mutual_information, pairs, tensor_gains
from policies.pairing.posterior import Posterior, TangentPosterior, posterior_of
from policies.pairing.propensity import draw, mixture, propensities

RULES = ("uniform", "arena", "dopt", "aopt", "eig", "top1")

WINS = [[0, 3, 5, 2, 1], [1, 0, 2, 2, 4], [1, 2, 0, 3, 1], [0, 1, 1, 0, 2], [2, 0, 1, 2, 0]]


def state():
    return posterior_of(WINS)


@pytest.fixture(scope="module")
def gold(shared_gold):
    return json.loads((shared_gold / "pairwise/active.json").read_text(encoding="utf-8"))


@pytest.mark.shared
def test_the_posterior_is_the_gold_one(gold):
    assert gold["W"] == WINS
    found = state()
    assert found.theta == pytest.approx(gold["theta"], abs=1e-9)
    assert found.cov == pytest.approx(np.array(gold["C"]), abs=1e-9)


@pytest.mark.shared
@pytest.mark.parametrize("rule", RULES)
def test_gains_and_propensities_are_the_gold_ones(rule, gold):
    """Bar A8: power 1 and 4, and power 1 with a question in flight."""
    wanted = gold["rules"][rule]
    found = state()
    assert np.abs(gains(found, rule) - wanted["gains"]).max() <= 1e-9
    for power, name in ((1, "propensity"), (4, "propensity_power4")):
        q = propensities(found, rule=rule, power=power)
        assert np.abs(q - wanted[name]).max() <= 1e-9
        assert q.sum() == pytest.approx(1, abs=1e-12)
        assert q.min() >= 0.2 / 10 - 1e-15
    found.launch(0, 1)
    after = propensities(found, rule=rule, power=1)
    assert np.abs(after - wanted["propensity_after_launch_0_1"]).max() <= 1e-9


def test_the_mixed_probability_of_the_unordered_pair_is_what_is_logged():
    """Pitfall 9, pair (0, 1): before a launch of it .0972, after it .0859."""
    found = state()
    assert propensities(found, power=1)[0] == pytest.approx(0.0972, abs=5e-5)
    found.launch(1, 0)
    assert propensities(found, power=1)[0] == pytest.approx(0.0859, abs=5e-5)


def test_what_is_in_flight_is_not_asked_again_at_once():
    """Pitfall 10: the best pair six times over, with and without the launches before."""
    found, first, second = state(), *pairs(5)
    blind = int(gains(found, "aopt").argmax())
    assert (first[blind], second[blind]) == (2, 4)
    greedy = []
    for _ in range(6):
        k = int(gains(found, "aopt").argmax())
        greedy.append((int(first[k]), int(second[k])))
        found.launch(*greedy[-1])
    assert greedy == [(2, 4), (3, 4), (0, 1), (2, 3), (0, 4), (1, 3)]
    assert np.abs(found.all_cov - found.recomputed()).max() <= 1e-12


@pytest.mark.parametrize("pair", [0, 4, 7])
def test_a_gain_is_what_a_launch_changes(pair):
    found, again = state(), state()
    a, b = (int(side[pair]) for side in pairs(5))
    again.launch(a, b)
    assert gains(found, "aopt")[pair] == pytest.approx(
        np.trace(found.cov) - np.trace(again.cov), abs=1e-12
    )
    assert gains(found, "dopt")[pair] == pytest.approx(
        np.linalg.slogdet(found.cov)[1] - np.linalg.slogdet(again.cov)[1], abs=1e-12
    )
    leader = int(found.theta.argmax())
    rivals = [j for j in range(5) if j != leader]

    def variances(of):
        c = of.cov
        return np.array([c[leader, leader] + c[j, j] - 2 * c[leader, j] for j in rivals])

    z = (found.theta[leader] - found.theta[rivals]) / np.sqrt(variances(found))
    weight = np.exp(-(z**2) / 2)
    fall = weight / weight.sum() @ (variances(found) - variances(again))
    assert gains(found, "top1")[pair] == pytest.approx(fall, abs=1e-12)


def test_mutual_information_is_that_of_a_fine_grid():
    x = np.linspace(-10, 10, 200_001)
    weight = np.exp(-(x**2) / 2)
    weight /= weight.sum()

    def entropy(p):
        return -(p * np.log(p) + (1 - p) * np.log(1 - p))

    for mean, variance in ((0.0, 0.3), (1.2, 2.0), (-2.0, 1.0)):
        p = expit(mean + np.sqrt(variance) * x)
        exact = entropy(p @ weight) - entropy(p) @ weight
        found = mutual_information(np.array([mean]), np.array([variance]))[0]
        assert found == pytest.approx(exact, abs=1e-5)


@pytest.mark.parametrize("rule", RULES)
def test_relabelled_models_have_relabelled_probabilities(rule):
    order = np.array([3, 0, 4, 1, 2])
    moved = posterior_of(np.array(WINS)[np.ix_(order, order)])
    first, second = pairs(5)
    q, r = (np.zeros((5, 5)) for _ in range(2))
    q[first, second] = q[second, first] = propensities(state(), rule=rule)
    r[first, second] = r[second, first] = propensities(moved, rule=rule)
    assert r == pytest.approx(q[np.ix_(order, order)], abs=1e-10)


@pytest.mark.parametrize("rule", RULES)
def test_models_that_nothing_connects_are_compared_first(rule):
    """Pairs between two halves that never met have the greatest gain."""
    halves = np.zeros((6, 6))
    halves[:3, :3] = halves[3:, 3:] = 20 * (1 - np.eye(3))
    value = gains(posterior_of(halves), rule)
    first, second = pairs(6)
    is_bridge = (first < 3) & (second >= 3)
    if rule == "uniform":
        assert len(set(value)) == 1
    elif rule == "top1":
        assert is_bridge[value.argmax()]
    else:
        assert value[is_bridge].min() > value[~is_bridge].max()


# Probabilities


@given(
    st.lists(st.floats(0, 1e300), min_size=2, max_size=30),
    st.floats(0.05, 1),
    st.sampled_from([1.0, 4.0, 8.0]),
)
@settings(max_examples=200, deadline=None)
def test_a_mixture_sums_to_one_above_its_floor(values, floor, power):
    q = mixture(np.array(values), floor=floor, power=power)
    assert q.sum() == pytest.approx(1, abs=1e-12)
    assert q.min() >= floor / len(values) * (1 - 1e-12)


def test_tiny_gains_still_tell_pairs_apart():
    q = mixture(np.array([1e-120, 2e-120, 0.0]), floor=0.1, power=4)
    assert q == pytest.approx(0.1 / 3 + 0.9 * np.array([1 / 17, 16 / 17, 0]))
    assert mixture(np.zeros(4)) == pytest.approx(np.full(4, 0.25))


def test_a_law_bounds_the_weights_and_closes_pairs():
    law = np.array([4.0, 1, 0, 1, 2, 1, 1, 0, 1, 1])
    q = propensities(state(), law=law, floor=0.25)
    assert (q[law == 0] == 0).all()
    open_ = law > 0
    assert (law[open_] / law.sum() / q[open_]).max() <= 4 * (1 + 1e-12)
    assert q.sum() == pytest.approx(1, abs=1e-12)


def test_judges_are_chosen_by_gain_per_price():
    """Half the price, twice the value: 2^power as likely beside the floor; together they sum to one."""
    found, value = state(), gains(state(), "aopt")
    q = propensities(found, price=[0.02, 0.01], power=2)
    assert q.shape == (2, 10)
    assert q.sum() == pytest.approx(1, abs=1e-12)
    above = q - 0.2 / 20
    assert above[1] == pytest.approx(4 * above[0])
    assert above[0] == pytest.approx(0.8 * value**2 / (5 * (value**2).sum()))
    long_answers = np.ones((2, 10))
    long_answers[:, 3] = 10
    assert propensities(found, price=long_answers)[0, 3] < propensities(found)[3] / 2
    only_one = propensities(found, price=[0.02, 0.01], law=[[1], [0]])
    assert only_one[0] == pytest.approx(propensities(found))
    assert not only_one[1].any()


def test_a_floor_of_one_is_uniform():
    assert propensities(state(), floor=1) == pytest.approx(np.full(10, 0.1))


# Draws


def test_a_uniform_number_decides_and_nothing_improbable_is_drawn():
    q = np.array([0.0, 0.25, 0.0, 0.75, 0.0])
    assert [draw(q, u) for u in (0.0, 0.2499, 0.25, 0.999_999, 1 - 2**-53)] == [1, 1, 3, 3, 3]
    joint = np.array([[0.1, 0.2], [0.3, 0.4]])
    assert [draw(joint, u) for u in (0.05, 0.2, 0.5, 0.7)] == [0, 1, 2, 3]


def drawn_as_logged(n, rule):
    found = state()
    found.launch(0, 1)
    q = propensities(found, rule=rule)
    uniform = np.random.default_rng(7).random(n)
    counts = np.bincount([draw(q, u) for u in uniform], minlength=len(q))
    return chisquare(counts, q * n).pvalue


def test_draws_are_as_frequent_as_logged():
    assert drawn_as_logged(4000, "aopt") > 0.001


@pytest.mark.slow
@pytest.mark.parametrize("rule", RULES)
def test_draws_are_as_frequent_as_logged_at_length(rule, measured):
    """Bar B10: 100,000 draws from one state."""
    p = drawn_as_logged(100_000, rule)
    measured(f"B10 {rule}: draws against propensities, chi-square p > .001", f"{p:.3f}")
    assert p > 0.001


# Tensors


def tangent(seed=0, m=6, k=3, rank=2):
    """Make a table of strengths by context and the tangent space of its rank, by differences."""
    rng = np.random.default_rng(seed)
    left = rng.normal(size=(m, rank))
    left -= left.mean(axis=0)
    right = rng.normal(size=(k, rank))
    moves = [np.outer(e - e.mean(), right[:, r]) for e in np.eye(m) for r in range(rank)]
    moves += [np.outer(left[:, r], e) for e in np.eye(k) for r in range(rank)]
    u, s, _ = np.linalg.svd(np.array([move.ravel() for move in moves]).T, full_matrices=False)
    basis = u[:, s > 1e-9]
    assert basis.shape[1] == rank * (m - 1 + k - rank)
    root = rng.normal(size=(basis.shape[1], 80))
    return TangentPosterior(left @ right.T, basis, root @ root.T / 20)


def test_a_tensor_gain_is_the_fall_of_the_functionals_variances():
    """Sum of variances of two gaps in one context, before and after a launch."""
    before, after = tangent(), tangent()
    gradients = np.zeros((2, 6, 3))
    gradients[0, [0, 1], 2] = gradients[1, [3, 5], 0] = 1, -1
    value = tensor_gains(before, gradients)
    first, second = pairs(6)
    assert value.shape == (3, 15)

    def total(of):
        c = of.cov
        return sum(c[k][a, a] + c[k][b, b] - 2 * c[k][a, b] for k, a, b in ((2, 0, 1), (0, 3, 5)))

    for context, pair in ((2, 0), (0, 12), (1, 7)):
        again = tangent()
        again.launch(int(first[pair]), int(second[pair]), context)
        assert value[context, pair] == pytest.approx(total(before) - total(again), abs=1e-12)
    after.launch(0, 1, 2)
    x = after.basis[0, 2] - after.basis[1, 2]
    p = expit(after.tensor[0, 2] - after.tensor[1, 2])
    exact = np.linalg.inv(np.linalg.inv(before.inverse) + p * (1 - p) * np.outer(x, x))
    assert after.inverse == pytest.approx(exact, abs=1e-12)


def test_full_rank_and_all_scores_wanted_is_the_plain_rule():
    """One context, every strength a functional: c-optimality is `aopt` of strengths that sum to zero."""
    plain = state()
    basis = np.linalg.svd(np.eye(5) - 1 / 5)[0][:, :4]
    known = np.linalg.inv(plain.known_cov) - np.eye(5) / 4
    of = TangentPosterior(plain.theta[:, None], basis[:, None], basis.T @ known @ basis)
    gradients = (np.eye(5) - 1 / 5)[:, :, None]
    assert tensor_gains(of, gradients)[0] == pytest.approx(gains(plain, "aopt"), abs=1e-12)


def test_order_effects_leave_gains_the_same_for_both_orders():
    """A strong advantage of the first place makes near pairs less telling than it would seem."""
    rng = np.random.default_rng(0)
    a = rng.integers(3, size=4000)
    b = (a + 1 + rng.integers(2, size=4000)) % 3
    found = Posterior(3, bias="order")
    found.learn(a, b, (rng.random(4000) < expit(2.0)).astype(float))
    assert np.array_equal(found.information, found.information.T)
    assert found.information[0, 1] == pytest.approx(expit(2) * expit(-2), abs=0.01)
