"""Labels of a few items, corrected by a judge's scores of many."""

import json
import math

import numpy as np
import pytest
from scipy import stats

from estimators.confidence_sequences import Plan, betting_wor
from estimators.prediction_powered import (
    hoeffding_prediction_powered_half_width,
    prediction_powered,
)
from estimators.subsample_bounds import subsample_half_width


def world(rng, population=4000, noise=0.12):
    """Labels in [0, 1] of all items, and a judge's scores: on a scale of its own, with a bias."""
    labels = rng.beta(2, 1.5, population)
    return labels, 2 + 5 * labels**1.2 + rng.normal(0, 5 * noise, population)


def draw(rng, labels, scores, n_labels, n_scored):
    order = rng.permutation(len(labels))
    few, others = order[:n_labels], order[n_labels:n_scored]
    return labels[few], scores[few], scores[others]


def half_width(bounded):
    return (bounded.upper - bounded.lower) / 2


def test_the_estimate_is_as_written_out():
    """By a loop over items and folds, each with a slope from a least-squares fit of the others."""
    rng = np.random.default_rng(1)
    y, f, others = draw(rng, *world(rng), 60, 900)
    found = prediction_powered(y, f, others, 4000, folds=5, level=0.9)
    left, powers = [], []
    for i in range(60):
        outside = np.arange(60) % 5 != i % 5
        powers.append(np.polyfit(f[outside], y[outside], 1)[0])
        left.append(y[i] - powers[-1] * (f[i] - others.mean()))
    variance = (1 - 60 / 900) * np.var(left, ddof=1) / 60
    variance += (1 - 900 / 4000) * np.var(y, ddof=1) / 900
    # Labelled items stand for themselves, the others for what their scores predict.
    value = (60 * y.mean() + 840 * np.mean(left)) / 900
    assert found.powered.value == pytest.approx(value)
    assert found.powered.se == pytest.approx(math.sqrt(variance))
    assert half_width(found.powered) == pytest.approx(stats.t.ppf(0.95, 59) * math.sqrt(variance))
    assert found.power == pytest.approx(np.mean(powers))
    assert found.correlation == pytest.approx(np.corrcoef(y, f)[0, 1])
    alone = found.labels_only
    assert alone.value == pytest.approx(y.mean())
    assert alone.se == pytest.approx(stats.sem(y) * math.sqrt(1 - 60 / 4000))


def test_it_is_near_the_regression_estimate_of_double_sampling():
    """A closed form: labels' mean moved along one line fitted to all; the folds differ by little."""
    rng = np.random.default_rng(2)
    y, f, others = draw(rng, *world(rng), 400, 4000)
    found = prediction_powered(y, f, others, 4000)
    line = stats.linregress(f, y)
    closed = y.mean() + line.slope * (np.concatenate((f, others)).mean() - f.mean())
    assert found.powered.value == pytest.approx(closed, abs=0.1 * found.powered.se)
    narrowed = math.sqrt(1 - found.correlation**2)
    assert found.powered.se / found.labels_only.se == pytest.approx(narrowed, rel=0.05)


COVERAGE = [pytest.param(400, id="ci"), pytest.param(6000, id="full", marks=pytest.mark.slow)]


@pytest.mark.parametrize("n_runs", COVERAGE)
@pytest.mark.parametrize(("n_labels", "n_scored"), [(30, 300), (100, 1000), (500, 800)])
def test_both_intervals_cover_the_mean_of_all_items(n_runs, n_labels, n_scored, measured):
    """Fixed items; chance is the draw. 500 of 1,000: the finite population counts."""
    rng = np.random.default_rng(3)
    labels, scores = world(rng, population=1000)
    truth, hits, widths = labels.mean(), np.zeros(2), np.zeros(2)
    for _ in range(n_runs):
        found = prediction_powered(*draw(rng, labels, scores, n_labels, n_scored), 1000)
        for at, each in enumerate((found.powered or found.labels_only, found.labels_only)):
            hits[at] += each.lower <= truth <= each.upper
            widths[at] += half_width(each)
    error = 3 * math.sqrt(0.05 * 0.95 / n_runs)
    measured(
        f"prediction-powered, {n_labels} labels, {n_scored} of 1,000 scored, {n_runs} runs: coverage "
        "0.95, beside labels alone",
        f"{hits[0] / n_runs:.4f}, {hits[1] / n_runs:.4f}; {widths[0] / widths[1]:.2f} as wide",
    )
    assert hits / n_runs == pytest.approx([0.95, 0.95], abs=error + 0.008)
    assert widths[0] < 0.9 * widths[1]


@pytest.mark.parametrize("n_runs", COVERAGE)
@pytest.mark.parametrize(("n_labels", "n_off"), [(300, 30), (100, 100), (1000, 20)])
def test_a_few_that_are_off_are_no_ground_for_a_variance(n_runs, n_labels, n_off, measured):
    """A lenient judge, rarely wrong: labels show 2 to 4 of its errors, and miss 10 to 14 % by these."""
    rng, population = np.random.default_rng(9), 3000
    labels = (np.arange(population) < 2100).astype(float)
    scores = np.where(np.arange(population) >= population - n_off, 1.0, labels)
    missed = 0
    for _ in range(n_runs):
        found = prediction_powered(*draw(rng, labels, scores, n_labels, population), population)
        each = found.powered or found.labels_only
        missed += not each.lower <= labels.mean() <= each.upper
    measured(
        f"prediction-powered, {n_off} of 3,000 off, {n_labels} labels, {n_runs} runs: missed, about .05",
        f"{missed / n_runs:.4f}",
    )
    assert missed / n_runs <= 0.05 + 3 * math.sqrt(0.05 * 0.95 / n_runs) + 0.012


@pytest.mark.parametrize("n_runs", COVERAGE)
def test_a_judge_that_says_nothing_costs_little_and_a_misleading_one_is_turned(n_runs):
    """Its weight is about 0: not wider than labels alone by more than a few per cent; or negative."""
    rng = np.random.default_rng(4)
    labels, _ = world(rng, population=2000)
    noise, hits, ratio = rng.normal(size=2000), 0, []
    for _ in range(n_runs):
        found = prediction_powered(*draw(rng, labels, noise, 60, 2000), 2000)
        hits += found.powered.lower <= labels.mean() <= found.powered.upper
        ratio.append(half_width(found.powered) / half_width(found.labels_only))
    assert hits / n_runs >= 0.95 - 3 * math.sqrt(0.05 * 0.95 / n_runs) - 0.008
    assert np.mean(ratio) < 1.05
    turned = prediction_powered(*draw(rng, labels, -labels + 0.1 * noise, 100, 2000), 2000)
    assert turned.power < -0.7
    assert half_width(turned.powered) < 0.6 * half_width(turned.labels_only)


def test_the_judges_scale_does_not_matter():
    rng = np.random.default_rng(5)
    y, f, others = draw(rng, *world(rng), 80, 600)
    one, other = (
        prediction_powered(y, a * f + 3, a * others + 3, 4000).powered for a in (1.0, 100.0)
    )
    assert other[:4] == pytest.approx(one[:4], rel=1e-9)


def test_all_items_labelled_leave_nothing_open():
    rng = np.random.default_rng(6)
    y, f, others = draw(rng, *world(rng, population=300), 300, 300)
    found = prediction_powered(y, f, others, 300)
    for each in (found.powered, found.labels_only):
        assert each.value == pytest.approx(y.mean())
        assert each.se == 0.0
        assert each.lower == pytest.approx(each.upper)


def test_few_labels_stand_alone():
    rng = np.random.default_rng(7)
    y, f, others = draw(rng, *world(rng), 19, 500)
    found = prediction_powered(y, f, others, 4000)
    assert found.powered is None
    assert math.isnan(found.power)
    assert found.labels_only.interval == "betting"
    assert found.labels_only.lower < y.mean() < found.labels_only.upper
    one = prediction_powered([0.5], [1.0], [], 10)
    assert math.isnan(one.labels_only.se)
    assert one.labels_only.lower == pytest.approx(0.05)
    assert one.labels_only.upper == pytest.approx(0.95)
    assert math.isnan(one.correlation)


def test_equal_labels_have_no_interval_of_no_width():
    found = prediction_powered(np.ones(50), np.arange(50.0), np.arange(60.0), 1000)
    assert found.powered is None
    assert found.labels_only.interval == "betting"
    assert found.labels_only.lower < 1.0 == found.labels_only.upper
    assert math.isnan(found.correlation)
    rng = np.random.default_rng(8)
    y = rng.random(40)
    constant = prediction_powered(y, np.ones(40), np.ones(100), 1000)
    assert constant.power == 0.0
    assert constant.powered.value == pytest.approx(constant.labels_only.value)


def test_a_perfect_judge_leaves_no_error_of_its_own_to_be_read():
    """What is left does not vary, so that no standard error can be had: the labels stand alone."""
    rng = np.random.default_rng(9)
    labels = rng.random(1000)
    found = prediction_powered(*draw(rng, labels, labels, 100, 1000), 1000)
    assert found.powered is None
    assert found.power == pytest.approx(1.0)
    assert found.correlation == pytest.approx(1.0)


def test_the_bound_without_data_is_the_published_one(shared_gold):
    """2.5 times as wide as labels alone at 500, so it is there for reference."""
    vectors = json.loads((shared_gold / "exchangeable/vectors.json").read_text("utf-8"))
    for vector in vectors["halfwidth_ppi"]:
        n, n_all, g, delta, r = (vector["input"][key] for key in ("n", "N", "g", "delta", "R"))
        found = hoeffding_prediction_powered_half_width(n, n_all, g, delta, r)
        assert found == pytest.approx(vector["expected"], abs=1e-12)
    fixed = hoeffding_prediction_powered_half_width(5000, 14_042, 500, 0.05)
    assert fixed == pytest.approx(0.14682, abs=2e-5)
    assert fixed / subsample_half_width(500, 14_042, 0.05) == pytest.approx(2.5, abs=0.05)


@pytest.mark.parametrize("n_runs", [40, pytest.param(600, marks=pytest.mark.slow)])
def test_a_watched_correction_is_a_sequence_of_differences(n_runs, measured):
    """With all items scored: the mean score and betting on label minus score, watched at every label."""
    rng, missed, widths = np.random.default_rng(10), 0, np.zeros(2)
    chance = rng.beta(0.3, 0.2, 2000)
    labels, scores = (rng.random(2000) < chance) * 1.0, 0.9 * chance + 0.1
    for _ in range(n_runs):
        order = rng.permutation(2000)
        off = (labels - scores)[order]
        lower, upper = betting_wor(off, 2000, low=-1, high=1, plan=Plan(n=600))
        lower, upper = lower + scores.mean(), upper + scores.mean()
        missed += bool(((lower > labels.mean() + 1e-12) | (upper < labels.mean() - 1e-12)).any())
        plain = betting_wor(labels[order], 2000, plan=Plan(n=600))
        widths += upper[599] - lower[599], plain.upper[599] - plain.lower[599]
    measured(
        f"differences of labels and scores, watched, {n_runs} runs: missed",
        f"{missed / n_runs:.4f}",
    )
    assert missed / n_runs <= 0.05 + 3 * math.sqrt(0.05 * 0.95 / n_runs)
    assert widths[0] < 0.75 * widths[1]


@pytest.mark.parametrize(
    ("labels", "scores", "others", "options", "message"),
    [
        ([], [], [], {}, "0 labels"),
        ([1], [1, 2], [], {}, "1 labels, 2 scores"),
        ([1, 0], [1, 2], [3] * 9, {}, "9 others"),
        ([2, 0], [1, 2], [], {}, "within 0"),
        ([math.nan, 0], [1, 2], [], {}, "within 0"),
        ([1, 0], [1, math.nan], [], {}, "missing"),
        ([1, 0], [1, 2], [math.nan], {}, "missing"),
        ([1, 0], [1, 2], [], {"folds": 1}, "folds"),
    ],
)
def test_what_does_not_fit_is_refused(labels, scores, others, options, message):
    with pytest.raises(ValueError, match=message):
        prediction_powered(labels, scores, others, 10, **options)
