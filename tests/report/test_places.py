"""Effects of the place: exact where the answer is known, honest where there is none."""

from __future__ import annotations

from itertools import permutations

import numpy as np
import pytest
from scipy.special import chdtrc

from orchestrator.report.places import Places, holm


def told(answers):
    """Each answer: places of the things, and their verdicts."""
    places = Places(len(answers[0][0]))
    for order, values in answers:
        places.add(order, values)
    return places


def test_an_effect_of_the_place_is_found_as_it_is():
    """Each thing one higher at each later place: 1.2, 2.2, 3.2, 4.2, whatever the things are."""
    things = np.array([0.0, 2.0, -1.0, -1.0])
    orders = list(permutations(range(4)))[:17]
    effect = told([(order, things + 1.2 + np.array(order)) for order in orders]).effect()
    assert effect.means == pytest.approx((1.2, 2.2, 3.2, 4.2))
    assert effect.n_answers == 17
    assert effect.p < 1e-6


def test_the_statistic_is_that_of_permutations_within_answers():
    """By hand, two things: T = 1.5 at the first place of three answers, each S² summed."""
    answers = [([0, 1], [3.0, 1.0]), ([1, 0], [2.0, 2.0]), ([0, 1], [4.0, 3.0])]
    # Means of the things 3 and 2; what is left: (0, -1), (-1, 0), (1, 1). At place 0: 0 + 0 + 1,
    # at place 1: -1 - 1 + 1. Variances within answers: 1/2, 1/2, 0.
    effect = told(answers).effect()
    assert effect.statistic == pytest.approx((1**2 + (-1) ** 2) / 1.0)
    assert (effect.df, effect.p) == (1, pytest.approx(chdtrc(1, 2.0)))


def test_without_an_effect_it_is_rarely_found():
    """Statistical: of 600 judges about 5 % are accused, though answers of an item hang together."""
    rng = np.random.default_rng(7)
    n_accused = 0
    for _ in range(600):
        places = Places(3)
        for _ in range(12):
            item = rng.normal(0, 3, 3)
            for _ in range(2):
                places.add(rng.permutation(3).tolist(), (item + rng.normal(size=3)).tolist())
        n_accused += places.effect().p < 0.05
    # Three standard errors of a share of .05 among 600 are .027.
    assert 0.02 <= n_accused / 600 <= 0.077


def test_things_that_keep_their_place_say_nothing():
    assert told([([0, 1], [1.0, 2.0])] * 5).effect() is None
    assert Places(2).effect() is None


def test_verdicts_that_are_all_equal_have_no_effect():
    effect = told([([0, 1], [2.0, 2.0]), ([1, 0], [2.0, 2.0])]).effect()
    assert (effect.statistic, effect.p, effect.means) == (0.0, 1.0, pytest.approx((2.0, 2.0)))


def test_holm_by_hand():
    """[H79]: the least of three times 3, the next times 2, never falling, never above 1."""
    assert holm([0.02, 0.01, 0.9]) == pytest.approx([0.04, 0.03, 0.9])
    assert holm([0.5, 0.6]) == pytest.approx([1.0, 1.0])
    assert holm([]) == []
