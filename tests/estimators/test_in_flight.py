"""Answers under way: what is back first is no random sample."""

import heapq
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from estimators.confidence_sequences import (
    Plan,
    betting_wor,
    hoeffding_wor,
    prior_posterior,
    prior_posterior_at,
    prior_posterior_wor,
)
from estimators.in_flight import imputed_interval, told_prefix
from tests.estimators.mmlu_data import mmlu
from tests.estimators.wor_data import yes_no


def sent(rng, x, n_workers, n_back):
    """Send scores in order to workers; wrong ones take three times as long. What is back is told."""
    time = rng.exponential(1.0, len(x)) * np.where(x > 0, 1.0, 3.0)
    scores, working, at, back, now = [], [], 0, 0, 0.0
    while back < n_back:
        while len(working) < n_workers and at < len(x):
            heapq.heappush(working, (now + time[at], at))
            scores.append(math.nan)
            at += 1
        now, item = heapq.heappop(working)
        scores[item] = x[item]
        back += 1
    return np.array(scores)


def test_the_told_prefix_ends_before_the_first_open_item():
    nan = math.nan
    assert told_prefix([]) == 0
    assert told_prefix([nan, 1]) == 0
    assert told_prefix([1, 0, nan, 1]) == 2
    assert told_prefix([1, 0]) == 2


@pytest.mark.parametrize("is_binary", [True, False])
def test_nothing_open_is_the_sequence_itself(is_binary):
    x = np.random.default_rng(1).permutation(yes_no(500, 0.7))[:200]
    found = imputed_interval(x, 500, is_binary=is_binary, plan=Plan(n=200))
    plain = prior_posterior_wor(x, 500) if is_binary else hoeffding_wor(x, 500, plan=Plan(n=200))
    assert tuple(found) == (plain.lower[-1], plain.upper[-1])
    assert tuple(imputed_interval([], 500, is_binary=is_binary)) == (0.0, 1.0)


@pytest.mark.parametrize("is_binary", [True, False])
@given(data=st.data())
def test_ends_hold_whatever_the_open_items_turn_out_to_be(is_binary, data):
    """Each completion's own interval is within the imputed one (unless it refutes every mean)."""
    n = data.draw(st.integers(1, 40))
    x = np.array(data.draw(st.lists(st.sampled_from([0.0, 1.0]), min_size=n, max_size=n)))
    is_open = np.array(data.draw(st.lists(st.booleans(), min_size=n, max_size=n)))
    if not is_binary:
        x = (x + 0.5) / 2
    plan = Plan(n=20)
    lower, upper = imputed_interval(
        np.where(is_open, math.nan, x), 60, is_binary=is_binary, plan=plan
    )
    whole = prior_posterior_wor(x, 60) if is_binary else hoeffding_wor(x, 60, plan=plan)
    assert lower <= whole.lower[-1] + 1e-12
    assert upper >= whole.upper[-1] - 1e-12


def test_ends_of_betting_may_move_against_a_score():
    """Why betting is not imputed: one better score, a larger variance, smaller bets, a lower end."""
    x = np.full(60, 0.7)
    better = x.copy()
    better[3] = 1.0
    plan = Plan(half_width=0.1)
    ends = [betting_wor(each, 200, plan=plan).lower for each in (x, better)]
    assert (ends[0] - ends[1]).max() > 5e-3
    ends = [hoeffding_wor(each, 200, plan=plan).lower for each in (x, better)]
    assert (ends[0] - ends[1]).max() <= 0


def test_what_never_comes_is_open_for_good(shared_data):
    """Pitfall 19: 90 answers that are lacking, not at random; with all else in, they are the width."""
    table = mmlu(shared_data)
    right = table.right[table.models.index("gemini-1.5-pro-preview-0409")]
    is_lost = np.isnan(right)
    assert is_lost.sum() == 90
    assert is_lost[table.subject == table.subjects.index("human_sexuality")].sum() == 71
    x = np.random.default_rng(3).permutation(right)
    lower, upper = imputed_interval(x, len(x), is_binary=True)
    assert upper - lower == pytest.approx(90 / len(x), abs=1e-12)
    assert lower == pytest.approx(np.nansum(x) / len(x), abs=1e-12)


@pytest.mark.parametrize("n_runs", [60, pytest.param(1500, marks=pytest.mark.slow)])
def test_quick_answers_are_no_random_sample(n_runs, measured):
    """A16: 64 workers, wrong answers three times as slow, 1,000 items, 500 back.

    The control: means of what is back miss, at 200 badly.
    """
    rng, missed, widths, prefixes, naive_widths = np.random.default_rng(16), 0, [], [], []
    early = naive = 0
    bias = []
    population = yes_no(1000, 0.7)
    for _ in range(n_runs):
        x = rng.permutation(population)
        scores = sent(rng, x, 64, 200)
        quick = scores[~np.isnan(scores)]
        bias.append(quick.mean() - 0.7)
        early += abs(quick.mean() - 0.7) > 1.96 * math.sqrt(0.21 / 200 * 800 / 999)
        scores = sent(rng, x, 64, 500)
        lower, upper = imputed_interval(scores, 1000, is_binary=True)
        missed += not lower <= 0.7 <= upper
        widths.append((upper - lower) / 2)
        told = prior_posterior(1000)
        told.extend(scores[: told_prefix(scores)])
        prefixes.append(np.diff(told.interval())[0] / 2)
        # As if what is back had been drawn at random: a sequence, so no fault of looking.
        as_drawn = prior_posterior_at(np.nansum(scores), 500, 1000)
        naive += not as_drawn.lower <= 0.7 <= as_drawn.upper
        naive_widths.append(np.diff(as_drawn)[0] / 2)
    measured(
        f"A16: 500 of 1,000 back, {n_runs} runs: missed, half-width: <= .05, <= .07",
        f"{missed / n_runs:.4f}, {np.mean(widths):.4f} (told prefix {np.mean(prefixes):.4f})",
    )
    measured(
        f"A16: control, {n_runs} runs: bias of the first 200 back, missed at 200 and at 500",
        f"{np.mean(bias):.3f}, {early / n_runs:.3f}, {naive / n_runs:.3f} "
        f"(half-width {np.mean(naive_widths):.3f})",
    )
    assert missed / n_runs <= 0.05 + 3 * math.sqrt(0.05 * 0.95 / n_runs)
    assert np.mean(widths) <= 0.07
    assert np.mean(widths) < np.mean(prefixes)
    assert np.mean(bias) > 0.05
    assert early / n_runs > 0.4
    assert naive > 5 * missed + 1
    assert naive / n_runs > 0.05


def test_the_order_of_coming_back_changes_nothing():
    """A21: the same items back, whichever way: the same interval; it is a function of the scores."""
    x = np.random.default_rng(4).permutation(yes_no(300, 0.5))[:100]
    one, other = np.full(100, math.nan), np.full(100, math.nan)
    back = np.random.default_rng(5).permutation(100)[:70]
    for at in back:
        one[at] = x[at]
    for at in back[::-1]:
        other[at] = x[at]
    assert imputed_interval(one, 300, is_binary=True) == imputed_interval(
        other, 300, is_binary=True
    )
