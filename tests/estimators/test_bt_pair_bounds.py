"""Bounds from the counts of one pair: at a fixed end exactly, and whatever decides when to stop."""

import math

import numpy as np
import pytest
from scipy import special, stats

from estimators.bt_inference import AtEnd, gaps, max_t, proved, rank_intervals, watched
from estimators.bt_model import fit_bradley_terry
from estimators.bt_pair_bounds import claims, clopper_pearson, proved_by_counts, win_chances
from estimators.confidence_sequences import beta_binomial_sequence


def test_five_wins_of_five():
    """Pitfall 5: at least .47818, logit -.08735, at 97.5 %; so five wins prove nothing."""
    wins = np.array([[0.0, 5.0], [0.0, 0.0]])
    lower, upper = win_chances(wins, 0.95, is_watched=False)
    assert lower[0, 1] == pytest.approx(0.025**0.2)
    assert lower[0, 1] == pytest.approx(0.47818, abs=1e-5)
    assert special.logit(lower[0, 1]) == pytest.approx(-0.08735, abs=1e-5)
    assert (lower[1, 0], upper[0, 1]) == (0.0, 1.0)
    assert upper[1, 0] == pytest.approx(1 - lower[0, 1])
    assert not proved_by_counts(wins, level=0.95, is_watched=False).any()
    assert proved_by_counts(2 * wins, level=0.95, is_watched=False).tolist() == [
        [False, True],
        [False, False],
    ]


def test_pairs_share_the_error():
    """Six of six are enough for the one pair of two models, and not for each of three."""
    two, three = np.zeros((2, 2)), np.zeros((3, 3))
    two[0, 1] = three[0, 1] = 6.0
    assert proved_by_counts(two, level=0.95, is_watched=False)[0, 1]
    assert not proved_by_counts(three, level=0.95, is_watched=False).any()


@pytest.mark.parametrize(("k", "n"), [(0, 1), (0, 7), (3, 9), (9, 9), (40, 113)])
def test_at_a_fixed_end_it_is_clopper_and_pearsons(k, n):
    exact = stats.binomtest(k, n).proportion_ci(0.9)
    found = clopper_pearson(np.array([k]), np.array([n]), 0.9)
    assert (found.lower[0], found.upper[0]) == pytest.approx((exact.low, exact.high))


@pytest.mark.parametrize(("k", "n"), [(0, 1), (5, 5), (3, 9), (400, 1000), (7, 100_000)])
def test_the_sequence_ends_where_its_mixture_reaches_the_limit(k, n):
    """The mixture of likelihood ratios, by another form: log of a beta-binomial over a binomial."""
    lower, upper = beta_binomial_sequence(np.array([k]), np.array([n]), 0.95)
    mixed = stats.betabinom(n, 0.5, 0.5).logpmf(k)
    for end in (lower[0], upper[0]):
        if 0 < end < 1:
            assert mixed - stats.binom(n, end).logpmf(k) == pytest.approx(math.log(20), abs=1e-6)
    assert lower[0] <= k / n <= upper[0]
    assert (lower[0] == 0) == (k == 0)
    assert (upper[0] == 1) == (k == n)


def test_without_a_comparison_nothing_is_said():
    for is_watched in (True, False):
        lower, upper = win_chances(np.zeros((3, 3)), 0.95, is_watched=is_watched)
        assert (lower == 0).all()
        assert (upper == 1).all()


def test_watching_costs_more_certainty_than_a_fixed_end():
    wins = np.array([[0.0, 30.0], [10.0, 0.0]])
    fixed, seen = (win_chances(wins, 0.95, is_watched=watched) for watched in (False, True))
    assert seen.lower[0, 1] < fixed.lower[0, 1]
    assert seen.upper[0, 1] > fixed.upper[0, 1]


@pytest.mark.parametrize("chance", [0.5, 0.9])
def test_a_pair_compared_until_its_bound_excludes_the_truth_seldom_does(chance):
    """Corrections 5: 2,000 runs of up to 1,000 comparisons, stopped at the worst place.

    Stopping there, Clopper and Pearson's interval misses far more than 5 %; the sequence does not.
    """
    n_runs, n_most = 2000, 1000
    won = (np.random.default_rng(5).random((n_runs, n_most)) < chance).cumsum(axis=1)
    n = np.broadcast_to(np.arange(1, n_most + 1), won.shape)
    # Exact ends are needed at the truth alone: the mixture there, and the two tails there.
    mixture = special.betaln(won + 0.5, n - won + 0.5) - special.betaln(0.5, 0.5)
    log_chance = won * math.log(chance) + (n - won) * math.log(1 - chance)
    is_out = (mixture - log_chance >= math.log(20)).any(axis=1)
    limit = 0.05 + 3 * math.sqrt(0.05 * 0.95 / n_runs)
    assert is_out.mean() <= limit
    lower, upper = beta_binomial_sequence(won[:50], n[:50], 0.95)
    assert (((lower > chance) | (upper < chance)).any(axis=1) == is_out[:50]).all()
    tails = np.minimum(
        special.bdtr(won[:200], n[:200], chance), special.bdtrc(won[:200] - 1, n[:200], chance)
    )
    assert (tails < 0.025).any(axis=1).mean() > 0.2


def test_adaptive_choice_of_the_pair_is_covered():
    """Always asking the pair that looks closest to being proved: wrong claims stay below 5 %.

    Six pairs of equal models, 300 comparisons, looked at after each; all pairs share the 5 %.
    """
    rng, n_runs, n_pairs = np.random.default_rng(8), 400, 6
    k, n = np.zeros((n_runs, n_pairs)), np.zeros((n_runs, n_pairs))
    is_wrong = {"sequence": np.zeros(n_runs, bool), "Clopper-Pearson": np.zeros(n_runs, bool)}
    row = np.arange(n_runs)
    for _ in range(300):
        share = (k + 1) / (n + 2)
        near = np.abs(share - 0.5) * np.sqrt(n + 2) + 0.01 * rng.random(k.shape)
        pair = near.argmax(axis=1)
        k[row, pair] += rng.random(n_runs) < 0.5
        n[row, pair] += 1
        asked = k[row, pair], n[row, pair]
        for name, bound in (
            ("sequence", beta_binomial_sequence),
            ("Clopper-Pearson", clopper_pearson),
        ):
            lower, upper = bound(*asked, 1 - 0.05 / n_pairs)
            is_wrong[name] |= (lower > 0.5) | (upper < 0.5)
    assert is_wrong["sequence"].mean() <= 0.05 + 3 * math.sqrt(0.05 * 0.95 / n_runs)
    assert is_wrong["Clopper-Pearson"].mean() > 0.1


# --- by gaps and by counts ---------------------------------------------------------------------


def test_where_all_gaps_are_finite_counts_take_nothing():
    theta, cov = np.array([1.0, 0.3, -1.3]), (np.eye(3) - 1 / 3) * 0.05
    found, wins = gaps(theta, cov), np.full((3, 3), 50.0)
    at_end = claims(found, cov, wins, np.random.default_rng(1), is_watched=False).above
    bound = AtEnd(max_t(cov, np.random.default_rng(1), se=found.se))
    assert np.array_equal(at_end, proved(found, bound))
    seen = claims(
        found, cov, wins, np.random.default_rng(1), is_watched=True, planned_gap=0.3
    ).above
    assert np.array_equal(seen, proved(found, watched(3, planned_gap=0.3)))


def test_counts_take_a_tenth_of_the_error_where_some_gap_is_separated():
    """A gap between the bounds at alpha and at .9 alpha is proved only while nothing is separated."""
    se = 1.0
    full, less = (float(watched(3, level=1 - a).of(np.array([se]))[0]) for a in (0.05, 0.045))
    theta = np.array([0.0, (full + less) / 2, -20.0])
    cov = np.eye(3) * se**2 / 2
    wins, rng = np.ones((3, 3)), np.random.default_rng(0)
    whole = gaps(theta, cov)
    assert claims(whole, cov, wins, rng, is_watched=True).above[1, 0]
    parted = gaps(theta, cov, strong=np.array([0, 0, 1]))
    assert not claims(parted, cov, wins, rng, is_watched=True).above[1, 0]
    elsewhere = gaps(theta, cov, np.array([0, 0, 1]), np.array([0, 0, 1]))
    assert claims(elsewhere, cov, wins, rng, is_watched=True).above[1, 0]


@pytest.mark.parametrize("is_watched", [True, False])
def test_an_unbeaten_model_leads_once_its_counts_say_so(is_watched):
    """Never lost a comparison: first when it has won enough of them, and not before."""
    left, right = np.array([0, 1, 2, 1]), np.array([1, 2, 1, 0])
    for n, leads in ((4, False), (20, True)):
        outcome = np.tile([1.0, 1.0, 1.0, 0.0], n)
        fit = fit_bradley_terry(np.tile(left, n), np.tile(right, n), outcome, n_models=3)
        found = gaps(fit.theta, fit.cov, fit.component, fit.strong)
        wins = np.array([[0.0, 2 * n, 0.0], [0.0, 0.0, n], [0.0, n, 0.0]])
        above = claims(found, fit.cov, wins, np.random.default_rng(0), is_watched=is_watched).above
        assert above[0, 1] == leads
        assert not above[1:].any()
        assert rank_intervals(above).worst[1] == 3


def test_ranks_hold_at_every_look_from_the_first_comparisons_on():
    """One model far above five equal ones, asked where gaps look small; 15 looks from 20 on.

    Most runs are separated at first. All ranks hold at every look by sequences in 60 runs; by the
    largest |z| they don't.
    """
    theta = np.array([2.0, 0.0, 0.0, 0.0, 0.0, 0.0])
    first, second = np.triu_indices(6, 1)
    best, worst = np.array([1, 2, 2, 2, 2, 2]), np.array([1, 6, 6, 6, 6, 6])
    is_held, was_separated = np.ones((60, 2), dtype=bool), 0
    for rep in range(60):
        rng = np.random.default_rng([2, rep])
        at, won, law = np.zeros(0, dtype=int), np.zeros(0), np.ones(15)
        for look in range(15):
            more = rng.choice(15, 20, p=law / law.sum())
            chance = special.expit(theta[first[more]] - theta[second[more]])
            at, won = np.append(at, more), np.append(won, rng.random(20) < chance)
            fit = fit_bradley_terry(first[at], second[at], won, n_models=6)
            was_separated += look == 0 and fit.n_strong > fit.n_components
            found = gaps(fit.theta, fit.cov, fit.component, fit.strong)
            wins = np.zeros((6, 6))
            np.add.at(wins, (first[at], second[at]), won)
            np.add.at(wins, (second[at], first[at]), 1 - won)
            for k, is_watched in enumerate((True, False)):
                above = claims(found, fit.cov, wins, rng, is_watched=is_watched, draws=500).above
                ranks = rank_intervals(above)
                is_held[rep, k] &= ((ranks.best <= best) & (worst <= ranks.worst)).all()
            law = 0.1 + np.exp(-(np.nan_to_num(fit.theta[first] - fit.theta[second]) ** 2))
    assert was_separated > 20
    assert is_held[:, 0].mean() >= 0.95 - 3 * math.sqrt(0.05 * 0.95 / 60)
    assert is_held[:, 1].mean() < 0.9
