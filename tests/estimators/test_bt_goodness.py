"""One strength a model, held against pairs: its law, what it finds, and how large that is."""

import numpy as np
import pytest
from scipy import stats
from scipy.special import expit

from estimators.bt_goodness import goodness
from estimators.bt_model import fit_bradley_terry
from estimators.bt_ties import davidson


def votes(rng, theta, n, *, deviation=None, gamma=0.0, ties=0.0):
    """Draw comparisons of random pairs; `ties` is the share that equal models tie."""
    m = len(theta)
    left = rng.integers(m, size=n)
    right = (left + rng.integers(1, m, size=n)) % m
    eta = theta[left] - theta[right] + gamma
    if deviation is not None:
        eta = eta + deviation[left, right]
    p = expit(eta)
    tied = np.minimum(4 * ties * p * (1 - p), 2 * np.minimum(p, 1 - p))
    u = rng.random(n)
    return left, right, np.where(u < p - tied / 2, 1.0, np.where(u < p + tied / 2, 0.5, 0.0))


def held(left, right, outcome, n_models, *, order=False, rng=None, level=0.95):
    fit = fit_bradley_terry(left, right, outcome, n_models=n_models, order_effect=order)
    chance = expit(fit.theta[left] - fit.theta[right] + fit.gamma)
    return goodness(
        left,
        right,
        outcome,
        chance,
        rng or np.random.default_rng(0),
        n_models=n_models,
        extra=np.ones((len(left), 1)) if order else None,
        level=level,
    )


def random_deviation(rng, m, sd):
    upper = np.triu(rng.normal(0, sd, (m, m)), 1)
    return upper - upper.T


def test_without_ties_it_is_pearsons_statistic():
    """Against the sum of (wins - expected)²/(n p (1 - p)) over pairs, and its degrees of freedom."""
    left, right, outcome = votes(np.random.default_rng(1), np.linspace(1, -1, 5), 1000)
    fit = fit_bradley_terry(left, right, outcome, n_models=5)
    total = 0.0
    for a in range(5):
        for b in range(a + 1, 5):
            first, second = ((left == x) & (right == y) for x, y in ((a, b), (b, a)))
            n = first.sum() + second.sum()
            won = outcome[first].sum() + (1 - outcome[second]).sum()
            p = expit(fit.theta[a] - fit.theta[b])
            total += (won - n * p) ** 2 / (n * p * (1 - p))
    found = held(left, right, outcome, 5)
    assert found.statistic == pytest.approx(total, rel=1e-6)
    assert (found.df, found.reference) == (6, "chi-square")
    assert found.p == pytest.approx(stats.chi2.sf(total, 6))
    assert found.n.sum() == 1000
    assert found.pairs.tolist() == [[a, b] for a in range(5) for b in range(a + 1, 5)]


def test_it_is_close_to_the_likelihood_ratio_against_a_strength_for_every_pair():
    left, right, outcome = votes(np.random.default_rng(2), np.linspace(1, -1, 6), 6000)
    fit = fit_bradley_terry(left, right, outcome, n_models=6)
    found = held(left, right, outcome, 6)
    share = found.observed
    saturated = (found.n * (share * np.log(share) + (1 - share) * np.log1p(-share))).sum()
    assert found.statistic == pytest.approx(2 * (saturated - fit.loglik), rel=0.05)


@pytest.mark.parametrize(
    ("n", "order", "ties"),
    [(1500, False, 0.0), (1500, True, 0.0), (1500, False, 0.4), (150, False, 0.0)],
)
def test_a_sound_set_is_seldom_rejected(n, order, ties):
    """120 sets of 7 models at 5 %; without the variance of ties it would be never."""
    p = []
    for rep in range(120):
        rng = np.random.default_rng([3, rep])
        drawn = votes(rng, np.linspace(1, -1, 7), n, gamma=0.5 * order, ties=ties)
        p.append(held(*drawn, 7, order=order, rng=rng).p)
    share = np.mean(np.array(p) < 0.05)
    assert share <= (0.05 if n > 1000 else 0.075) + 3 * np.sqrt(0.05 * 0.95 / 120)
    assert np.mean(np.array(p) < 0.3) >= 0.2


def test_a_circle_of_three_is_found_and_named():
    """Three of six models beat each other in turn: the largest residuals are theirs."""
    deviation = np.zeros((6, 6))
    for a, b in ((0, 1), (1, 2), (2, 0)):
        deviation[a, b], deviation[b, a] = 1.0, -1.0
    drawn = votes(np.random.default_rng(4), np.zeros(6), 2500, deviation=deviation)
    found = held(*drawn, 6)
    assert found.p < 1e-6
    assert found.spread_lower > 0.2
    worst = np.argsort(-np.abs(found.z))[:3]
    assert sorted(map(tuple, found.pairs[worst].tolist())) == [(0, 1), (0, 2), (1, 2)]
    signed = dict(zip(map(tuple, found.pairs.tolist()), found.z, strict=True))
    assert signed[0, 1] > 3
    assert signed[0, 2] < -3
    first = found.pairs.tolist().index([0, 1])
    assert found.observed[first] > found.expected[first] + 0.1


@pytest.mark.parametrize("ties", [0.0, 0.5])
def test_the_spread_is_that_of_pairs_own_log_odds(ties):
    """60 sets of pairs that deviate alike: its interval holds what 100,000 comparisons say."""
    theta = np.linspace(1, -1, 8)
    deviation = random_deviation(np.random.default_rng(5), 8, 0.4)

    def found(n, rep):
        rng = np.random.default_rng([6, rep])
        return held(*votes(rng, theta, n, deviation=deviation, ties=ties), 8)

    limit = found(100_000, 0)
    # What is left of the deviations by weighted least squares, where information weighs.
    first, second = np.triu_indices(8, 1)
    design = np.zeros((28, 8))
    design[range(28), first], design[range(28), second] = 1, -1
    p = expit((theta[:, None] - theta + deviation)[first, second])
    scale = np.sqrt(p * (1 - p))
    hat = scale[:, None] * design @ np.linalg.pinv(scale[:, None] * design)
    left_over = scale * deviation[first, second]
    left_over = left_over - hat @ left_over
    exact = np.sqrt((left_over @ left_over) / (scale**2 @ (1 - np.diag(hat))))
    assert limit.spread == pytest.approx(exact, abs=0.035)
    assert limit.spread_upper - limit.spread_lower < 0.07
    sets = [found(3000, rep) for rep in range(1, 61)]
    covers = np.mean([each.spread_lower < limit.spread < each.spread_upper for each in sets])
    assert covers >= 0.95 - 3 * np.sqrt(0.05 * 0.95 / 60)
    assert np.mean([each.spread for each in sets]) == pytest.approx(limit.spread, abs=0.03)
    assert held(*votes(np.random.default_rng(7), theta, 3000, ties=ties), 8).spread_lower == 0


def test_an_advantage_of_the_first_place_is_no_misfit_where_it_is_fitted():
    """Orders that differ by pair: without the column it looks like intransitivity."""
    rng = np.random.default_rng(7)
    left, right, outcome = votes(rng, np.linspace(1, -1, 5), 6000, gamma=0.8)
    keep = (left < right) ^ ((left + right) % 2 == 0)
    drawn = left[keep], right[keep], outcome[keep]
    assert held(*drawn, 5).p < 1e-3
    assert held(*drawn, 5, order=True).p > 0.01


def test_pairs_that_alone_decide_a_strength_leave_nothing_to_test():
    """A chain of models has as many pairs as gaps."""
    left, right = np.array([0, 0, 1, 1] * 30), np.array([1, 1, 2, 2] * 30)
    outcome = np.array([1.0, 0.0, 1.0, 1.0] * 15 + [1.0, 1.0, 0.0, 1.0] * 15)
    found = held(left, right, outcome, 3)
    assert found.df == 0
    assert np.isnan(found.p)
    assert np.isnan(found.spread)
    assert np.isnan(found.z).all()


def test_a_question_without_a_verdict_counts_for_nothing():
    left, right, outcome = votes(np.random.default_rng(8), np.zeros(4), 400)
    fit = fit_bradley_terry(left, right, outcome, n_models=4)
    chance = expit(fit.theta[left] - fit.theta[right])
    more = [np.append(each, extra) for each, extra in zip((left, right), (0, 1), strict=True)]
    rng = np.random.default_rng(0)
    one = goodness(left, right, outcome, chance, rng, n_models=4)
    two = goodness(*more, np.append(outcome, np.nan), np.append(chance, 0.5), rng, n_models=4)
    assert two.statistic == one.statistic
    assert two.n.tolist() == one.n.tolist()


@pytest.mark.parametrize("by", ["strengths", "order"])
def test_a_fit_that_is_a_little_off_is_put_right(by):
    """Strengths held by a prior, or another advantage of the first place, are no misfit of pairs."""
    left, right, outcome = votes(np.random.default_rng(9), np.linspace(1, -1, 5), 4000, gamma=0.5)
    keep = (left < right) ^ ((left + right) % 2 == 0)
    left, right, outcome = left[keep], right[keep], outcome[keep]
    fit = fit_bradley_terry(left, right, outcome, n_models=5, order_effect=True)
    theta, gamma = fit.theta, fit.gamma
    off = {"strengths": (theta * 0.85, gamma), "order": (theta, gamma - 0.15)}[by]
    found = [
        goodness(
            left,
            right,
            outcome,
            expit(strength[left] - strength[right] + order),
            np.random.default_rng(0),
            n_models=5,
            extra=np.ones((len(left), 1)),
        )
        for strength, order in ((theta, gamma), off)
    ]
    assert found[1].statistic == pytest.approx(found[0].statistic, abs=0.6)
    assert found[0].df == 10 - 4 - 1


def test_a_rule_for_ties_brings_its_own_slope():
    """Davidson's: its mean outcome rises by the outcome's variance. A circle is found there, too."""
    rng = np.random.default_rng(10)
    theta = np.linspace(1, -1, 6)
    left = rng.integers(6, size=4000)
    right = (left + rng.integers(1, 6, size=4000)) % 6
    for turn, is_sound in ((0.0, True), (1.0, False)):
        eta = (
            theta[left]
            - theta[right]
            + turn * np.where((left + right) == 5, 1, -1) * np.sign(right - left)
        )
        chances = davidson(eta, 0.0).cumsum(axis=0)
        outcome = (rng.random(4000) > chances[:2]).sum(axis=0) / 2
        fit = fit_bradley_terry(left, right, outcome, n_models=6, ties="davidson")
        lost, tied, won = davidson(fit.theta[left] - fit.theta[right], np.log(fit.nu))
        found = goodness(
            left,
            right,
            outcome,
            won + tied / 2,
            rng,
            n_models=6,
            slope=(won + lost) / 4 - ((won - lost) / 2) ** 2,
        )
        assert (found.p > 0.01) == is_sound
