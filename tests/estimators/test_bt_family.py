"""Judges of a model's own family: which comparisons they are in, and what they give it."""

import numpy as np
import pytest
from scipy.special import expit

from estimators.bt_family import family_advantage, kinship

JUDGES, MODELS = ("Acme", "beta", ""), ("acme", "beta", "gamma", "ACME", "")


def test_kin_is_the_side_that_shares_the_judges_maker():
    left = np.array([0, 1, 0, 1, 0, 2, 4])
    right = np.array([1, 0, 3, 2, 1, 1, 0])
    judge = np.array([0, 0, 0, 1, 2, 1, 2])
    assert kinship(JUDGES, MODELS, left, right, judge).tolist() == [1, -1, 0, 1, 0, -1, 0]


def votes(rng, n, advantage):
    left = rng.integers(5, size=n)
    right = (left + rng.integers(1, 5, size=n)) % 5
    judge = rng.integers(3, size=n)
    kin = kinship(JUDGES, MODELS, left, right, judge)
    theta = np.linspace(0.8, -0.8, 5)
    p = expit(theta[left] - theta[right] + 0.3 + advantage * kin)
    return left, right, (rng.random(n) < p).astype(float), kin


@pytest.mark.parametrize("advantage", [0.0, 0.7])
def test_the_advantage_is_found_with_an_interval_that_holds(advantage):
    """100 sets of 800 comparisons."""
    found = []
    for rep in range(100):
        left, right, outcome, kin = votes(np.random.default_rng([1, rep]), 800, advantage)
        found.append(family_advantage(left, right, outcome, kin, n_models=5, order_effect=True))
    covers = np.mean([each.lower < advantage < each.upper for each in found])
    assert covers == pytest.approx(0.95, abs=3 * np.sqrt(0.05 * 0.95 / 100))
    assert np.mean([each.est for each in found]) == pytest.approx(advantage, abs=0.08)
    shown = np.mean([each.is_shown for each in found])
    assert shown > 0.9 if advantage else shown < 0.1
    assert found[0].n == pytest.approx(800 * found[0].share)


def test_without_a_judge_of_another_family_nothing_can_be_told():
    """Every comparison of the kin model is before its own family: that is its strength as well."""
    rng = np.random.default_rng(2)
    left, right = np.array([0, 1, 2] * 60), np.array([1, 2, 0] * 60)
    outcome = (rng.random(180) < 0.5).astype(float)
    kin = np.where(left == 0, 1.0, np.where(right == 0, -1.0, 0.0))
    found = family_advantage(left, right, outcome, kin, n_models=3)
    assert np.isnan(found.est)
    assert (found.lower, found.upper) == (-np.inf, np.inf)
    assert not found.is_shown
    assert found.n == 120


def test_a_panel_without_kin_has_no_advantage_to_show():
    found = family_advantage(
        np.array([0, 1]), np.array([1, 0]), [1.0, np.nan], np.array([0.0, 1.0]), n_models=2
    )
    assert (found.n, found.share) == (0, 0.0)
    assert np.isnan(found.se)


def test_half_wins_take_the_sandwich_and_clusters_theirs():
    left, right, outcome, kin = votes(np.random.default_rng(3), 600, 0.5)
    plain = family_advantage(left, right, outcome, kin, n_models=5)
    tied = outcome.copy()
    tied[::3] = 0.5
    assert family_advantage(left, right, tied, kin, n_models=5).se < plain.se
    five = [np.repeat(each, 5) for each in (left, right, outcome, kin)]
    clustered = family_advantage(*five, n_models=5, cluster=np.repeat(np.arange(600), 5))
    assert clustered.se == pytest.approx(plain.se, rel=0.1)
