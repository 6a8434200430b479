"""A judge's noise: it stays when all items are in, and numbers of calls are fixed beforehand."""

import json
import math

import numpy as np
import pytest

from estimators.confidence_sequences import Plan, betting_wor
from estimators.intervals import Interval
from estimators.judge_repeats import (
    best_repeats,
    expected_interval,
    judge_half_width,
    noise_half_width,
    repeat_means,
    stratified_judge_half_width,
)
from estimators.subsample_bounds import subsample_half_width

ITEMS = 14_042


def test_half_widths_are_those_of_another_program(shared_gold):
    vectors = json.loads((shared_gold / "exchangeable/vectors.json").read_text("utf-8"))
    for vector in vectors["halfwidth_judge"]:
        n, n_all, m, delta, r, is_fixed = vector["input"].values()
        model = "fixed" if is_fixed else "exchangeable"
        found = judge_half_width(n, n_all, m, delta, r, model)
        assert found == pytest.approx(vector["expected"], abs=1e-15)


@pytest.mark.parametrize(
    ("repeats", "half_width"), [(1, 0.0114609), (3, 0.0066169), (10, 0.0036242)]
)
def test_noise_stays_when_all_items_are_in(repeats, half_width):
    """A17, pitfall 20; one call an item is Hoeffding's bound for so many values."""
    assert judge_half_width(ITEMS, ITEMS, repeats, 0.05) == pytest.approx(half_width, abs=5e-8)
    assert noise_half_width(ITEMS, repeats, 0.05) == pytest.approx(half_width, abs=5e-8)
    plain = math.sqrt(math.log(40) / (2 * ITEMS * repeats))
    assert noise_half_width(ITEMS, repeats, 0.05, 10) == pytest.approx(10 * plain, rel=1e-12)


@pytest.mark.parametrize("model", ["fixed", "exchangeable"])
def test_a_judge_without_noise_leaves_the_draw_of_items(model):
    found = judge_half_width(5000, ITEMS, math.inf, 0.05, model=model)
    assert found == pytest.approx(float(subsample_half_width(5000, ITEMS, 0.05, model=model)))
    assert judge_half_width(ITEMS, ITEMS, math.inf, 0.05, model=model) == 0.0
    assert judge_half_width(0, ITEMS, 3, 0.05, 10) == 10
    # One call on each of the items drawn: as independent values, for scores that are random too.
    one = judge_half_width(5000, ITEMS, 1, 0.05, model="exchangeable")
    assert one == pytest.approx(math.sqrt(math.log(40) / 10_000))


@pytest.mark.parametrize("model", ["fixed", "exchangeable"])
def test_strata_add_their_proxies(model):
    """One stratum is the bound itself; independent ones add in squares; an empty one adds half its weight."""
    one = stratified_judge_half_width([30], [90], [1.0], 2, 0.05, 10, model)
    assert one == pytest.approx(judge_half_width(30, 90, 2, 0.05, 10, model), rel=1e-12)
    sizes, weights = [90, 40], [0.3, 0.7]
    both = stratified_judge_half_width([30, 40], sizes, weights, 2, 0.05, 10, model)
    halves = [
        judge_half_width(n, m, 2, 0.05, 10, model) for n, m in zip((30, 40), sizes, strict=True)
    ]
    assert both == pytest.approx(math.hypot(*np.multiply(weights, halves)), rel=1e-12)
    empty = stratified_judge_half_width([30, 0], sizes, weights, 2, 0.05, 10, model)
    assert empty == pytest.approx(0.3 * halves[0] + 0.35 * 10, rel=1e-12)
    assert stratified_judge_half_width([1, 0], [99, 9], [0.1, 0.9], 1, 1e-9) <= 1.0


@pytest.mark.parametrize("n_runs", [400, pytest.param(10_000, marks=pytest.mark.slow)])
def test_the_bound_for_items_and_noise_holds(n_runs, measured):
    """A17: 100 of 400 items, two calls each."""
    rng = np.random.default_rng(17)
    expected = rng.choice([0.05, 0.5, 0.95], 400)
    half, missed = judge_half_width(100, 400, 2, 0.05), 0
    for _ in range(n_runs):
        drawn = rng.permutation(expected)[:100]
        mean = (rng.random((100, 2)) < drawn[:, None]).mean()
        missed += abs(mean - expected.mean()) > half
    measured(
        f"A17: 100 of 400 items, 2 calls, {n_runs} runs: missed, <= .05", f"{missed / n_runs:.4f}"
    )
    assert missed / n_runs <= 0.05


@pytest.mark.parametrize("n_runs", [60, pytest.param(1000, marks=pytest.mark.slow)])
def test_a_sequence_over_item_means_holds_for_expected_scores(n_runs, measured):
    """All items, watched: alpha .04 for the items, .01 for the noise."""
    rng, missed = np.random.default_rng(18), 0
    expected = rng.choice([0.2, 0.6, 0.95], 500)
    for _ in range(n_runs):
        asked = rng.permutation(expected)
        means = repeat_means((rng.random((500, 2)) < asked[:, None]) * 1.0)
        items = betting_wor(means, 500, level=0.96, plan=Plan(n=150))
        lower, upper = expected_interval(items, 500, 2, 0.01)
        missed += bool(((lower > expected.mean()) | (upper < expected.mean())).any())
    measured(f"expected scores, watched, {n_runs} runs: missed, <= .05", f"{missed / n_runs:.4f}")
    assert missed / n_runs <= 0.05 + 3 * math.sqrt(0.05 * 0.95 / n_runs)


def test_ends_move_out_by_the_noise_and_stay_on_the_scale():
    items = Interval(np.array([0.0, 3.0]), np.array([9.9, 5.0]))
    noise = noise_half_width(100, 2, 0.01, 10.0)
    lower, upper = expected_interval(items, 100, 2, 0.01, high=10.0)
    assert lower.tolist() == [0.0, 3.0 - noise]
    assert upper.tolist() == [10.0, 5.0 + noise]


def test_calls_that_depend_on_the_scores_change_what_is_estimated():
    """Pitfall 21: two calls that agree say yes with .784 at q = .7; unequal numbers are refused."""
    rng, yes = np.random.default_rng(21), []
    for calls in (rng.random((40_000, 9)) < 0.7) * 1:
        seen = np.zeros(2, dtype=int)
        for call in calls:
            seen[call] += 1
            if seen[call] == 2:
                break
        yes.append(seen.argmax())
    assert np.mean(yes) == pytest.approx(0.784, abs=0.01)
    assert pytest.approx(0.784) == 0.7**2 * (3 - 2 * 0.7)
    with pytest.raises(ValueError, match="fixed beforehand"):
        repeat_means([[1, 1, math.nan], [0, 1, 0]])
    assert repeat_means([[1, 1, 0], [0, 1, 0]]).tolist() == [2 / 3, 1 / 3]


def test_more_calls_are_worth_it_where_items_are_dear():
    """Against every number of calls, tried at one budget."""
    assert best_repeats(0.2, 0.05, 0.0, 1.0) == 1
    for within, between, item, call in (
        (0.2, 0.05, 8.0, 1.0),
        (0.1, 0.3, 5.0, 2.0),
        (0.25, 0.01, 50, 1),
    ):
        tried = [(between + within / m) * (item + m * call) for m in range(1, 200)]
        assert best_repeats(within, between, item, call) == 1 + int(np.argmin(tried))


@pytest.mark.parametrize(
    "values",
    [
        (-1, 10, 1, 0.05),
        (11, 10, 1, 0.05),
        (5, 10, 0.5, 0.05),
        (5, 10, 1, 1.0),
        (5, 10, 1, 0.05, 0.0),
    ],
)
def test_numbers_out_of_range_are_refused(values):
    with pytest.raises(ValueError, match="range"):
        judge_half_width(*values)


def test_unknown_models_and_impossible_costs_are_refused():
    with pytest.raises(ValueError, match="model"):
        judge_half_width(5, 10, 1, 0.05, model="paper")
    with pytest.raises(ValueError, match="variances"):
        best_repeats(0.1, 0.0, 1.0, 1.0)
