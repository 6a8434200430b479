"""Functionals of a tensor: values, gradients, and intervals of probabilities."""

import numpy as np
import pytest
from scipy.special import expit, logit

from estimators.markov_model import FitStatus
from estimators.tensor_functionals import (
    Estimates,
    evaluate,
    gap,
    given,
    linear,
    mean_score,
    score,
    win_probability,
)

TENSOR = np.random.default_rng(0).standard_normal((6, 4))
TENSOR -= TENSOR.mean(axis=0)
ALL = [
    gap(0, 1, 2),
    score(3, 1),
    mean_score(2, [1, 2, 0, 1]),
    win_probability(4, 3, [0, 1]),
    linear("sum", [(0, 0, 1.0), (0, 0, 1.0), (5, 3, -0.5)]),
]


def test_values_are_what_they_are_called():
    values = evaluate(ALL, TENSOR).values
    assert values[0] == pytest.approx(TENSOR[0, 2] - TENSOR[1, 2])
    assert values[1] == TENSOR[3, 1]
    assert values[2] == pytest.approx(TENSOR[2] @ [0.25, 0.5, 0, 0.25])
    wins = 1 / (1 + np.exp(TENSOR[[0, 1], 3] - TENSOR[4, 3]))
    assert values[3] == pytest.approx(wins.mean())
    assert values[4] == pytest.approx(2 * TENSOR[0, 0] - 0.5 * TENSOR[5, 3])


@pytest.mark.parametrize("functional", ALL, ids=lambda each: each.name)
def test_gradients_are_the_values_differences(functional):
    gradient = functional.gradient(TENSOR)
    for place in np.ndindex(TENSOR.shape):
        step = np.zeros_like(TENSOR)
        step[place] = 1e-6
        slope = (functional.value(TENSOR + step) - functional.value(TENSOR - step)) / 2e-6
        assert gradient[place] == pytest.approx(slope, abs=1e-8)


def test_a_function_of_ones_own_is_taken_with_its_gradient():
    best = given("spread", lambda t: float((t**2).sum()), lambda t: 2 * t)
    found = evaluate([best], TENSOR)
    assert found.values[0] == pytest.approx((TENSOR**2).sum())
    assert found.gradients[0] == pytest.approx(2 * TENSOR.reshape(-1))


def test_a_gradient_counts_up_to_a_constant_a_column():
    """Columns sum to zero, so that nothing can move along a constant."""
    one = given(
        "score", lambda t: float(t[0, 0]), lambda t: score(0, 0).gradient(t) - [1 / 6, 0, 0, 0]
    )
    assert evaluate([one], TENSOR).values[0] == TENSOR[0, 0]


@pytest.mark.parametrize(
    ("gradient", "says"),
    [
        (lambda t: 2.001 * t, "slope"),
        (lambda t: t.sum(axis=1), "shape"),
        (lambda t: t * np.nan, "slope"),
    ],
)
def test_a_wrong_gradient_is_refused(gradient, says):
    wrong = given("spread", lambda t: float((t**2).sum()), gradient)
    with pytest.raises(ValueError, match=says):
        evaluate([wrong], TENSOR)


@pytest.mark.parametrize("pool", [[], [1, 4]])
def test_a_pool_without_rivals_is_refused(pool):
    with pytest.raises(ValueError, match="pool"):
        win_probability(4, 0, pool)


def test_weights_of_nothing_are_refused():
    with pytest.raises(ValueError, match="weights"):
        mean_score(0, [0, 0])


def estimates(value, se, *, is_probability, status=FitStatus.OK):
    return Estimates(
        names=("a",) * len(value),
        value=np.array(value),
        covariance=np.diag(np.array(se) ** 2),
        is_probability=np.full(len(value), is_probability),
        method="plug_in",
        n=100,
        effective=100.0,
        status=status,
    )


def test_intervals_of_probabilities_stay_inside():
    """On the logit scale by the delta method; nan only where nothing can be read."""
    found = estimates([0.5, 0.97, 1.02, -0.01], [0.05, 0.03, 0.03, 0.03], is_probability=True)
    lower, upper = found.interval()
    z = 1.959963984540054
    wide = z * 0.03 / (0.97 * 0.03)
    assert lower[1] == pytest.approx(expit(logit(0.97) - wide))
    assert upper[1] == pytest.approx(expit(logit(0.97) + wide))
    assert lower[0] == pytest.approx(1 - upper[0])
    assert upper[2] == 1
    assert lower[2] == pytest.approx(1.02 - z * 0.03)
    assert lower[3] == 0
    assert (lower < upper).all()


def test_intervals_of_logits_are_symmetric_and_wider_at_a_higher_level():
    found = estimates([1.5], [0.2], is_probability=False)
    lower, upper = found.interval()
    assert [lower[0], upper[0]] == pytest.approx([1.5 - 0.2 * 1.959964, 1.5 + 0.2 * 1.959964])
    assert found.interval(0.99).upper[0] > upper[0]


def test_what_can_not_be_read_has_no_interval():
    found = estimates([0.4], [0.1], is_probability=True, status=FitStatus.NOT_ESTIMABLE)
    assert np.isnan(found.interval().lower).all()
