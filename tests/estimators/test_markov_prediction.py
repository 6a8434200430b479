"""Predictive checks and simulated judges."""

import numpy as np
import pytest
from scipy.special import expit

from estimators.batches import ABSENT, REFUSED, UNREADABLE, sequences
from estimators.markov_judge import MarkovJudge, simulate
from estimators.markov_model import fit_markov_glmm, fit_sequences
from estimators.markov_prediction import predictive_check, transitions
from tests.estimators.markov_data import judge, sequences_of, shuffled, two_groups


def test_two_sequences_have_their_counts_and_entropies():
    """(1,1,0,1,0) and (0,0,1,1,1); empty cells count 0."""
    found = transitions(np.array([[1, 1, 0, 1, 0], [0, 0, 1, 1, 1]], dtype=np.int8))
    assert found.joint[0] == pytest.approx([0.125, 0.25, 0.25, 0.375])
    assert found.conditional[0] == pytest.approx([1 / 3, 2 / 3, 0.4, 0.6])
    assert found.joint[2] == pytest.approx([0, 0.5, 0.25, 0.25])
    assert found.entropy == pytest.approx([0.951205, 0.666667, 0], abs=1e-6)


def test_copies_are_counted_apart():
    state = np.random.default_rng(0).integers(0, 2, (5, 20, 7)).astype(np.int8)
    together = transitions(state)
    for copy, joint, entropy in zip(state, together.joint, together.entropy, strict=True):
        assert transitions(copy).joint == pytest.approx(joint)
        assert transitions(copy).entropy == pytest.approx(entropy)


def test_only_pairs_of_ratings_count():
    found = transitions(np.array([[1, REFUSED, 1, 0], [1, 1, ABSENT, ABSENT]], dtype=np.int8))
    assert found.joint[0] == pytest.approx([0, 0, 0.5, 0.5])
    assert found.joint[1] == pytest.approx([0, 0, 0, 1])


def test_short_batches_have_no_deep_transitions():
    found = transitions(np.array([[1, 0]], dtype=np.int8))
    assert not found.joint[1:].any()


# --- simulated judges ---------------------------------------------------------------------------


def plain_loop(of, order, rng):
    """The same judge, one rating at a time."""
    effect = of.sigma * rng.standard_normal(len(order))
    uniform = rng.random(order.shape)
    said = np.zeros(order.shape, dtype=int)
    for n, row in enumerate(order):
        for s, item in enumerate(row):
            eta = of.theta[item] + effect[n]
            for k, beta in enumerate(of.lags):
                if s > k:
                    eta += beta * said[n, s - k - 1]
            if s < len(of.starts):
                eta += of.starts[s]
            said[n, s] = uniform[n, s] < expit(eta)
    return said


@pytest.mark.parametrize(("lags", "starts"), [([-0.6], [0.5]), ([-0.5, 0.8, -0.4], [1, 0, -1])])
def test_simulated_verdicts_are_those_of_a_plain_loop(lags, starts):
    of = judge(np.linspace(-1, 1, 7), lags, starts)
    order = np.argsort(np.random.default_rng(0).random((50, 7)), axis=-1)
    seen = simulate(of, order, np.random.default_rng(1))
    assert (seen == plain_loop(of, order, np.random.default_rng(1))).all()


def test_copies_of_one_judge_and_judges_of_their_own():
    order = np.argsort(np.random.default_rng(0).random((40, 6)), axis=-1)
    one = judge(np.linspace(-1, 1, 6))
    copies = simulate(one, np.broadcast_to(order, (3, 40, 6)), np.random.default_rng(2))
    same = MarkovJudge(
        theta=np.tile(one.theta, (3, 1)),
        lags=np.tile(one.lags, (3, 1)),
        starts=np.tile(one.starts, (3, 1)),
        sigma=np.full(3, one.sigma),
    )
    assert (simulate(same, order, np.random.default_rng(2)) == copies).all()


def test_slots_without_a_rating_stay_without():
    like = np.array([[1, REFUSED, 0, UNREADABLE], [0, 1, ABSENT, ABSENT]], dtype=np.int8)
    order = np.array([[0, 1, 2, 3], [1, 0, ABSENT, ABSENT]])
    seen = simulate(judge(np.zeros(4)), order, np.random.default_rng(0), like=like)
    assert (seen[like >= REFUSED] == like[like >= REFUSED]).all()
    assert (seen[1, 2:] == ABSENT).all()


def test_a_refusal_changes_the_next_verdict():
    of = MarkovJudge(
        theta=np.zeros(2),
        lags=np.array([0.0]),
        starts=np.array([0.0]),
        sigma=0.0,
        misses=np.array([40.0]),
    )
    like = np.full((30, 2), 0, dtype=np.int8)
    like[:, 0] = REFUSED
    order = np.tile([0, 1], (30, 1))
    assert simulate(of, order, np.random.default_rng(0), like=like)[:, 1].all()


# --- checks -------------------------------------------------------------------------------------


def parted(of, n, seed):
    source = shuffled(of, n, np.random.default_rng(seed))
    half = np.arange(n // 2)
    return source.take(half), source.take(half + n // 2)


def test_a_right_model_passes_and_bounds_widen_with_the_estimates_error():
    of = judge(two_groups(0.8, 0.9, 0.5), [-0.4], [0.6], 1.08)
    train, test = parted(of, 160, 2)
    fit = fit_sequences(train)
    found = predictive_check(fit, test, np.random.default_rng(0), copies=300)
    frozen = predictive_check(fit, test, np.random.default_rng(0), copies=300, propagate=False)
    assert found.passes
    assert (len(found.joint), len(found.conditional), len(found.entropy)) == (12, 12, 3)
    assert found.joint[1].name == "lag 1: 01"
    wider = [
        a.upper - a.lower > b.upper - b.lower
        for a, b in zip(found.joint, frozen.joint, strict=True)
    ]
    assert sum(wider) >= 10


def test_a_memory_that_is_missed_shows():
    of = judge(two_groups(0.0, 0.5, 0.5), [-0.5, 1.5, -0.5], [0.0, 0.0, 0.0], 0.3)
    train, test = parted(of, 240, 4)
    shallow = predictive_check(fit_sequences(train), test, np.random.default_rng(0), copies=200)
    deep = fit_sequences(train, lags=3)
    assert not shallow.passes
    assert predictive_check(deep, test, np.random.default_rng(0), copies=200).passes


def test_fewer_items_held_out_are_no_matter():
    of = judge(np.linspace(-1, 1, 6))
    source = shuffled(of, 60, np.random.default_rng(0))
    order = np.array([[row[0], row[1]] for row in source.order])
    rows = [
        (b, s, int(i), int(y))
        for b, (items, said) in enumerate(zip(order, source.state[:, :2], strict=True))
        for s, (i, y) in enumerate(zip(items, said, strict=True))
    ]
    found = predictive_check(
        fit_sequences(source), sequences(rows), np.random.default_rng(0), copies=100
    )
    assert found.joint[0].observed == pytest.approx(transitions(source.state[:, :2]).joint[0, 0])


def test_a_fit_that_predicts_nothing_is_refused():
    fit = fit_sequences(shuffled(judge(np.zeros(3)), 20, np.random.default_rng(0)))
    other = sequences_of(np.array([[0, 1, 2, 3]]), np.zeros((1, 4), dtype=np.int8))
    with pytest.raises(ValueError, match="lacks item 3"):
        predictive_check(fit, other, np.random.default_rng(0))
    with pytest.raises(ValueError, match="predicts nothing"):
        predictive_check(fit_markov_glmm([]), other, np.random.default_rng(0))
