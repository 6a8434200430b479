"""A round at a time: means of strata's means, exhausted strata, and watching."""

import math

import numpy as np
import pytest

from estimators.confidence_sequences import Plan, hoeffding_wor
from estimators.macro_sequence import MacroSequence, macro_round_robin
from estimators.subsample_bounds import subsample_half_width
from tests.estimators.mmlu_data import mmlu


def test_one_stratum_is_hoeffdings_sequence():
    """Its bets rise with what is left, here they are proportional to it: the same to first order."""
    x = np.random.default_rng(1).random(300)
    lower, upper = macro_round_robin([x], [10_000], Plan(n=200))
    plain = hoeffding_wor(x, 10_000, plan=Plan(n=200))
    assert lower == pytest.approx(plain.lower, abs=5e-3)
    assert upper == pytest.approx(plain.upper, abs=5e-3)


def test_rounds_are_as_written_out():
    """By a loop, with strata that are exhausted on the way, weights, and a scale of its own."""
    rng = np.random.default_rng(2)
    sizes, weights, low, high = [4, 30, 60], np.array([0.5, 0.2, 0.3]), -1.0, 3.0
    scores = [rng.uniform(low, high, n) for n in (4, 20, 20)]
    lower, upper = macro_round_robin(
        scores, sizes, Plan(n=15), weights=weights, low=low, high=high, level=0.9
    )
    limit, r2 = math.log(20), 16.0
    lam = math.sqrt(8 * limit / (15 * (weights**2).sum())) / 4
    gain = cost = 0.0
    best = [low, high]
    for r in range(1, 21):
        for w, n, own in zip(weights, sizes, scores, strict=True):
            if r <= n:
                rem = n - r + 1
                own_bet = lam * w * (1 - (r - 1) / n)
                gain += own_bet * (own[r - 1] + own[: r - 1].sum() / rem)
                cost += r2 / 8 * own_bet**2
            else:
                gain += lam * w * own.mean()
        centre, margin = gain / (lam * r), (limit + cost) / (lam * r)
        best = [max(best[0], centre - margin), min(best[1], centre + margin)]
        seen = [own[:r].sum() for own in scores]
        left = [max(n - r, 0) for n in sizes]
        sure = [
            sum(
                w * (s + k * end) / n for w, s, k, n in zip(weights, seen, left, sizes, strict=True)
            )
            for end in (low, high)
        ]
        assert lower[r - 1] == pytest.approx(max(best[0], sure[0]), abs=1e-12)
        assert upper[r - 1] == pytest.approx(min(best[1], sure[1]), abs=1e-12)


def test_strata_come_in_any_order_and_rounds_count_when_whole():
    rng = np.random.default_rng(3)
    sizes = [3, 5, 8]
    scores = [rng.random(n) for n in sizes]
    lower, upper = macro_round_robin(scores, sizes, Plan(n=4))
    assert len(lower) == 8
    sequence = MacroSequence(sizes, Plan(n=4))
    for score in scores[2]:
        sequence.update(2, score)
    assert sequence.rounds == 0
    assert tuple(sequence.interval()) == (0.0, 1.0)
    for score in scores[0]:
        sequence.update(0, score)
    for score in scores[1][:3]:
        sequence.update(1, score)
    assert sequence.rounds == 3
    assert tuple(sequence.interval()) == (lower[2], upper[2])
    for score in scores[1][3:]:
        sequence.update(1, score)
    # Nothing is left to wait for: the third stratum's own rounds follow at once.
    assert sequence.rounds == 8
    truth = np.mean([own.mean() for own in scores])
    assert tuple(sequence.interval()) == pytest.approx((truth, truth), abs=1e-12)
    with pytest.raises(ValueError, match="all 3 scores of stratum 0"):
        sequence.update(0, 0.5)


@pytest.mark.parametrize("n_runs", [60, pytest.param(4000, marks=pytest.mark.slow)])
def test_rounds_are_seldom_missed_when_watched(n_runs, measured):
    """Five strata of unequal sizes and means, watched to the last round."""
    rng, missed, sizes = np.random.default_rng(4), 0, np.array([20, 40, 60, 80, 100])
    shares = np.array([0.2, 0.5, 0.6, 0.8, 0.95])
    whole = [(np.arange(n) < p * n) * 1.0 for n, p in zip(sizes, shares, strict=True)]
    truth = np.mean([own.mean() for own in whole])
    for _ in range(n_runs):
        lower, upper = macro_round_robin([rng.permutation(own) for own in whole], sizes, Plan(n=25))
        missed += bool(((lower > truth + 1e-12) | (upper < truth - 1e-12)).any())
    measured(f"macro rounds, watched, {n_runs} runs: missed, <= .05", f"{missed / n_runs:.4f}")
    assert missed / n_runs <= 0.05 + 3 * math.sqrt(0.05 * 0.95 / n_runs)


def test_a_mean_over_items_is_no_mean_over_strata():
    """Pitfall 8's mistake, found: items of all strata as one sample miss the mean of strata's means."""
    rng = np.random.default_rng(5)
    small, large = np.zeros(100), np.ones(1534)
    lower, upper = macro_round_robin([small, large[:100]], [100, 1534], Plan(n=50))
    assert (lower <= 0.5).all()
    assert (upper >= 0.5).all()
    pooled = rng.permutation(np.concatenate((small, large)))
    assert hoeffding_wor(pooled, 1634, plan=Plan(n=500)).lower[-1] > 0.9


def test_rounds_need_less_than_a_sequence_a_stratum(shared_data):
    """On 57 real subjects: hardly wider at its plan than a bound for one number of rounds.

    57 sequences at alpha/57, one a subject, are four times as wide.
    """
    table = mmlu(shared_data)
    right = table.right[table.models.index("llama-3-70b")]
    rng = np.random.default_rng(6)
    own = [rng.permutation(right[table.subject == s]) for s in range(57)]
    sizes = [len(each) for each in own]
    truth = np.mean([each.mean() for each in own])
    assert truth == pytest.approx(0.7933, abs=5e-4)
    lower, upper = macro_round_robin([each[:40] for each in own], sizes, Plan(n=40))
    half = (upper[-1] - lower[-1]) / 2
    assert lower[-1] <= truth <= upper[-1]
    factors = [(n - 40) / (40 * n) for n in sizes]
    fixed = math.sqrt(math.log(40) / 2 * sum(factors)) / 57
    assert 0.9 * fixed < half < 1.2 * fixed
    union = np.mean([subsample_half_width(40, n, 0.05 / 57) for n in sizes])
    assert half < union / 4


def test_a_planned_half_width_is_met_near_its_rounds():
    sizes = np.full(20, 400)
    rng = np.random.default_rng(7)
    scores = [(rng.random(400) < 0.6) * 1.0 for _ in sizes]
    target = 0.04
    lower, upper = macro_round_robin(scores, sizes, Plan(half_width=target))
    reached = int(((upper - lower) / 2 <= target).argmax()) + 1
    for factor in (0.4, 2.5):
        other = macro_round_robin(scores, sizes, Plan(half_width=target * factor))
        assert int(((other.upper - other.lower) / 2 <= target).argmax()) + 1 > reached
    assert 40 < reached < 160


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"sizes": []}, "sizes"),
        ({"sizes": [0, 3]}, "sizes"),
        ({"weights": [1.0]}, "weights"),
        ({"weights": [1.0, 0.0]}, "weights"),
        ({"level": 0.0}, "level"),
        ({"high": 0.0}, "scale"),
        ({"plan": Plan()}, "plan"),
        ({"plan": Plan(half_width=0.1, n=3)}, "plan"),
    ],
)
def test_terms_that_cannot_be_are_refused(options, message):
    options = {"sizes": [2, 3], "plan": Plan(n=2), **options}
    with pytest.raises(ValueError, match=message):
        MacroSequence(options.pop("sizes"), options.pop("plan"), **options)


def test_scores_that_cannot_be_are_refused():
    with pytest.raises(ValueError, match="not within"):
        MacroSequence([2], Plan(n=2)).update(0, math.nan)
    with pytest.raises(ValueError, match="one array"):
        macro_round_robin([np.ones(2)], [2, 3], Plan(n=2))
