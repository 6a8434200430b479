"""Draws with unequal chances: equal chances are the plain sequence, and unequal ones pay and hold."""

import itertools
import math

import numpy as np
import pytest

from estimators.confidence_sequences import Plan, betting_wor
from estimators.sequences_weighted import WeightedSequence, weighted_betting_wor
from tests.estimators.wor_data import yes_no


def drawn(rng, scores, promise, n, floor=0.5):
    """Draw items with chances of the promise, mixed with equal ones; scores, chances and least."""
    left, rows = np.arange(len(scores)), []
    for _ in range(n):
        share = promise[left] / promise[left].sum()
        share = floor / len(left) + (1 - floor) * share
        at = rng.choice(len(left), p=share / share.sum())
        rows.append((scores[left[at]], share[at], share.min()))
        left = np.delete(left, at)
    return np.array(rows).T


def equal_chances(n, population):
    return 1 / (population - np.arange(n))


def test_equal_chances_are_the_plain_sequence():
    x = np.random.default_rng(1).random(150)
    chance = equal_chances(150, 400)
    for plan in (Plan(half_width=0.1), Plan(n=100), Plan()):
        plain = betting_wor(x, 400, plan=plan)
        found = weighted_betting_wor(x, chance, chance, 400, plan=plan)
        assert found.lower == pytest.approx(plain.lower, abs=1.1e-3)
        assert found.upper == pytest.approx(plain.upper, abs=1.1e-3)
        assert np.median(np.abs(found.lower - plain.lower)) < 1e-12


def plain_capital(x, chances, least, population, mean, bet, stake=0.5):
    """Both capitals, as the source writes them: guesses at the sum of what is left."""
    up = down = 1.0
    seen = 0.0
    for score, q, q_min in zip(x, chances, least, strict=True):
        left = population * mean - seen
        guess = score / q
        up *= 1 + min(bet, stake / left) * (guess - left)
        down *= 1 - min(bet, stake / (1 / q_min - left)) * (guess - left)
        seen += score
        yield up, down


def test_the_capital_averages_one_over_all_draws():
    """The martingale, exactly: over all ordered draws of 5 items with chances of what was seen."""
    scores = np.array([0.1, 0.3, 0.9, 1.0, 0.2])
    totals = np.zeros((2, 4))
    for order in itertools.permutations(range(5), 4):
        x, chances, least, weight = [], [], [], 1.0
        for step, item in enumerate(order):
            left = [i for i in range(5) if i not in order[:step]]
            # Chances lean to items beside what was seen last.
            near = order[step - 1] if step else 2
            lean = np.array([1 / (1 + abs(i - near)) for i in left])
            share = lean / lean.sum()
            q = share[left.index(item)]
            x.append(scores[item])
            chances.append(q)
            least.append(share.min())
            weight *= q
        capital = np.array(list(plain_capital(x, chances, least, 5, scores.mean(), 0.3)))
        totals += weight * capital.T
    assert totals == pytest.approx(np.ones((2, 4)), abs=1e-12)


def test_ends_are_where_the_plain_capital_reaches_its_limit():
    """With a bet that is fixed by a plan: variance does not enter, since each is tried at its own."""
    rng = np.random.default_rng(3)
    scores = rng.beta(1, 3, 120)
    x, chances, least = drawn(rng, scores, scores + 0.1, 60)
    lower, upper = weighted_betting_wor(x, chances, least, 120, plan=Plan(n=60), candidates=400)
    # The bets of the product, on guesses at a mean of what is left.
    remaining = 120 - np.arange(60)
    guess = x / (chances * remaining)
    t = np.arange(1, 61)
    after = np.cumsum(guess)
    off = (guess - (0.5 + after) / (t + 1)) ** 2
    variance = (0.25 + np.cumsum(off) - off) / t
    bet = np.sqrt(2 * math.log(40) / (variance * 60))
    seen = np.cumsum(x) - x
    tried = np.arange(401)[:, None] / 400
    expected = (120 * tried - seen) / remaining
    is_possible = (expected > 0) & (expected < 1)
    expected = np.where(is_possible, expected, 0.5)
    top = 1 / (least * remaining)
    up = np.log1p(np.minimum(bet, 0.5 / expected) * (guess - expected))
    down = np.log1p(-np.minimum(bet, 0.5 / (top - expected)) * (guess - expected))
    from_below, from_above = (
        np.maximum.accumulate(np.cumsum(each, axis=1), axis=1)[:, -1] >= math.log(40)
        for each in (up, down)
    )
    whole = is_possible.all(axis=1)
    assert lower[-1] == pytest.approx(tried[whole & from_below].max(), abs=1e-12)
    assert upper[-1] == pytest.approx(tried[whole & from_above].min(), abs=1e-12)


def test_one_by_one_is_in_a_row():
    rng = np.random.default_rng(4)
    scores = rng.random(300)
    x, chances, least = drawn(rng, scores, scores, 200)
    lower, upper = weighted_betting_wor(x, chances, least, 300, plan=Plan(n=100))
    watched, unwatched = (
        WeightedSequence(300, plan=Plan(n=100)),
        WeightedSequence(300, plan=Plan(n=100)),
    )
    for i, row in enumerate(zip(x, chances, least, strict=True)):
        watched.update(*row)
        unwatched.update(*row)
        assert watched.n == i + 1
        assert tuple(watched.interval()) == (lower[i], upper[i])
    assert tuple(unwatched.interval()) == (lower[-1], upper[-1])


def test_chances_that_follow_the_scores_narrow_the_interval():
    """Rare ones that are guessed at well: half the width of equal chances, at the same number."""
    rng = np.random.default_rng(5)
    scores = rng.permutation(yes_no(1000, 0.05)) * rng.uniform(0.5, 1, 1000)
    widths = []
    for _ in range(5):
        x, chances, least = drawn(rng, scores, scores + 0.02, 300, floor=0.3)
        lower, upper = weighted_betting_wor(x, chances, least, 1000, plan=Plan(n=300))
        assert lower[-1] - 1e-12 <= scores.mean() <= upper[-1] + 1e-12
        plain = betting_wor(rng.permutation(scores)[:300], 1000, plan=Plan(n=300))
        widths.append(((upper - lower)[-1], (plain.upper - plain.lower)[-1]))
    found, equal = np.mean(widths, axis=0)
    assert found < 0.75 * equal


@pytest.mark.parametrize("n_runs", [60, pytest.param(1500, marks=pytest.mark.slow)])
def test_adaptive_chances_are_seldom_missed_when_watched(n_runs, measured):
    """Chances lean to kinds of items whose scores were high so far; and plain means of such draws fail."""
    rng, missed, plain_missed = np.random.default_rng(6), 0, 0
    kind = np.repeat([0, 1], 60)
    for _ in range(n_runs):
        scores = (rng.random(120) < np.where(kind == 0, 0.2, 0.8)) * 1.0
        left, rows, seen = np.arange(120), [], np.ones((2, 2))
        for _ in range(80):
            rate = seen[0] / seen.sum(axis=0)
            lean = rate[kind[left]]
            share = 0.3 / len(left) + 0.7 * lean / lean.sum()
            at = rng.choice(len(left), p=share / share.sum())
            item = left[at]
            rows.append((scores[item], share[at], share.min()))
            seen[int(scores[item] == 0), kind[item]] += 1
            left = np.delete(left, at)
        x, chances, least = np.array(rows).T
        lower, upper = weighted_betting_wor(x, chances, least, 120, plan=Plan(n=60))
        missed += bool(((lower > scores.mean()) | (upper < scores.mean())).any())
        plain = betting_wor(x, 120, plan=Plan(n=60))
        plain_missed += bool((plain.lower > scores.mean()).any())
    measured(f"weighted draws, watched, {n_runs} runs: missed, <= .05", f"{missed / n_runs:.4f}")
    assert missed / n_runs <= 0.05 + 3 * math.sqrt(0.05 * 0.95 / n_runs)
    assert plain_missed / n_runs > 0.18


def test_chances_that_cannot_be_are_refused():
    sequence = WeightedSequence(10)
    for row in ((0.5, 0.1, 0.2), (0.5, 0.1, 0.0), (0.5, 1.1, 0.1), (0.5, 0.5, 0.11)):
        with pytest.raises(ValueError, match="chances"):
            sequence.update(*row)
    with pytest.raises(ValueError, match="within 0"):
        sequence.update(2.0, 0.1, 0.1)
    with pytest.raises(ValueError, match="population's 10"):
        sequence.extend([0] * 11, [1] * 11, [0.01] * 11)
    assert sequence.n == 0
    assert tuple(sequence.interval()) == (0.0, 1.0)
