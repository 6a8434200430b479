"""Items drawn with unequal chances: the estimate beside the bounds."""

import itertools
import math
from copy import deepcopy

import numpy as np
import pytest

from estimators.benchmark_bounds import Tally
from estimators.benchmark_order import Chances
from estimators.sequences_weighted import WeightedSequence, weighted_betting_wor
from estimators.unit_scores import Score
from estimators.weighted_draws import PlacedSequence, WeightedMean
from tests.estimators.test_benchmark_outlook import terms
from tests.estimators.test_sequences_weighted import drawn


def mean_of(scores, chances, population, low=0.0, high=1.0):
    found = WeightedMean(population, low, high)
    for score, chance in zip(scores, chances, strict=True):
        found.add(float(score), float(chance))
    return found


def test_equal_chances_give_the_plain_mean_and_its_error():
    """As `Tally` has them for items drawn alike."""
    x = np.random.default_rng(1).random(80) * 4 - 1
    found = mean_of(x, 1 / (200 - np.arange(80)), 200, -1.0, 3.0)
    plain = terms(low=-1.0, high=3.0, sizes=np.array([200]), is_binary=False)
    tally = Tally(plain)
    for score in x.tolist():
        tally.add(0, Score(score, score, score, 1))
    assert found.value == pytest.approx(x.mean())
    assert found.standard_error == pytest.approx(tally.standard_error(plain), rel=0.005)


def test_guesses_are_as_written_out():
    """By a loop over guesses at the mean of scores and at that of ones, and their ratio."""
    x, q, _ = drawn(
        np.random.default_rng(2), np.linspace(0, 1, 40) ** 2, np.linspace(0.1, 1, 40), 25
    )
    left = 40 - np.arange(25)
    before = np.cumsum(x) - x
    weight = 1 / (left * (left - 1))
    scores = weight @ (before + x / q)
    ones = weight @ (np.arange(25) + 1 / q)
    assert mean_of(x, q, 40).value == pytest.approx(scores / ones)


def test_guesses_are_unbiased_exactly():
    """Over all ordered draws of 3 of 5 items, the numerator has the sum's expectation."""
    scores, promise = np.array([0.1, 0.3, 0.9, 1.0, 0.2]), np.array([1.0, 3.0, 2.0, 0.5, 4.0])
    expected = 0.0
    for order in itertools.permutations(range(5), 3):
        left, chances, weight = [*range(5)], [], 1.0
        for item in order:
            chances.append(promise[item] / promise[left].sum())
            weight *= chances[-1]
            left.remove(item)
        expected += weight * mean_of(scores[[*order]], chances, 5)._sum_guess
    parts = sum(1 / (r * (r - 1)) for r in (5, 4, 3))
    assert expected == pytest.approx(parts * scores.sum())


def test_the_error_is_that_of_many_draws():
    """Mean and standard deviation over draws of 60 of 300, against truth and stated error."""
    rng = np.random.default_rng(3)
    scores = rng.beta(2, 3, 300)
    promise = 0.2 + scores + 0.3 * rng.random(300)
    found, errors = [], []
    for _ in range(300):
        x, q, _ = drawn(rng, scores, promise, 60)
        mean = mean_of(x, q, 300)
        found.append(mean.value)
        errors.append(mean.standard_error)
    sd = np.std(found)
    assert np.mean(found) == pytest.approx(scores.mean(), abs=4 * sd / math.sqrt(300) + 0.002)
    assert np.mean(errors) == pytest.approx(sd, rel=0.15)


def test_all_items_leave_no_error():
    rng = np.random.default_rng(4)
    scores = rng.random(30)
    x, q, _ = drawn(rng, scores, scores + 0.1, 30)
    found = mean_of(x, q, 30)
    assert found.value == pytest.approx(scores.mean())
    assert found.standard_error == 0.0


def test_equal_scores_are_their_mean_and_missing_ones_are_left_out():
    rng = np.random.default_rng(5)
    _, q, _ = drawn(rng, np.ones(40), rng.random(40) + 0.01, 20)
    x = np.full(20, 0.7)
    x[[3, 11]] = math.nan
    assert mean_of(x, q, 40).value == pytest.approx(0.7)
    nothing = mean_of([math.nan], [0.1], 40)
    assert nothing.value == 0.5
    assert math.isnan(nothing.standard_error)


def test_places_give_the_chances():
    """The sequence told its chances one by one, and through a copy."""
    rng = np.random.default_rng(6)
    scores = rng.random(100)
    x, q, least = drawn(rng, scores, scores + 0.2, 60)
    made = PlacedSequence(WeightedSequence(100), Chances(q, least))
    for score in x[:30].tolist():
        made.update(score)
    other = deepcopy(made)
    for score in x[30:].tolist():
        other.update(score)
    lower, upper = weighted_betting_wor(x, q, least, 100)
    assert made.interval() == (lower[29], upper[29])
    assert other.interval() == (lower[-1], upper[-1])
