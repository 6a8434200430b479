"""What a random part says of the whole: published values, exact enumeration, and what is refused."""

import heapq
import json
import time
from functools import partial

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from estimators.intervals import worst_case
from estimators.subsample_bounds import (
    allocate,
    barber_factor,
    bardenet_maillard_factor,
    bounded_difference_proxy,
    contrast_half_width,
    empirical_bernstein_half_width,
    exchangeability_excess,
    exchangeable_factor,
    exchangeable_half_width,
    fixed_factor,
    hypergeometric_interval,
    items_for_half_width,
    items_for_hypergeometric,
    possible_range,
    serfling_factor,
    stratified_half_width,
    sub_gaussian_half_width,
    sub_gaussian_tail,
    subsample_half_width,
    subsample_interval,
    subsample_tail,
)
from tests.estimators.mmlu_data import ITEMS, mmlu

FIXED = (serfling_factor, bardenet_maillard_factor, barber_factor)


@pytest.fixture(scope="module")
def vectors(shared_gold):
    return json.loads((shared_gold / "exchangeable/vectors.json").read_text(encoding="utf-8"))


def test_published_values_are_met(vectors):
    """Every value that an independent program computed for these bounds."""

    calls = {
        "sigma_eff2": bounded_difference_proxy,
        "subgaussian_halfwidth": sub_gaussian_half_width,
        "subgaussian_tail": sub_gaussian_tail,
        "halfwidth_exch": exchangeable_half_width,
        "halfwidth_fixedpop": subsample_half_width,
        "n_for_halfwidth_exch": partial(items_for_half_width, model="exchangeable"),
        "tail_exch": partial(subsample_tail, model="exchangeable"),
        "ci_hypergeom": hypergeometric_interval,
        "halfwidth_ebs": empirical_bernstein_half_width,
        "halfwidth_stratified": lambda *args: stratified_half_width(
            *args[:-1], model="fixed" if args[-1] else "exchangeable"
        ),
        "halfwidth_paired": lambda *args: subsample_half_width(*args[:-1], 2 * args[-1]),
        "allocate": allocate,
    }
    for name, call in calls.items():
        for case in vectors[name]:
            # Arguments stand in this order there too, by other names.
            found = call(*case["input"].values())
            assert found == pytest.approx(case["expected"], rel=1e-12, abs=1e-15), (name, case)
    for case in vectors["barber_eps"]:
        found = exchangeability_excess(case["input"]["N"])
        assert found == pytest.approx(case["expected"], rel=1e-12)


def test_five_thousand_of_mmlu_give_1_54_points():
    """A1: The headline figure, in both readings: .0154122 and .0154131."""
    assert exchangeable_half_width(5000, ITEMS, 0.05) == pytest.approx(0.0154122129, abs=1e-9)
    assert subsample_half_width(5000, ITEMS, 0.05) == pytest.approx(0.0154130651, abs=1e-9)
    by_hand = np.sqrt((ITEMS - 5000) * np.log(40) / (2 * 5000 * ITEMS))
    assert exchangeable_half_width(5000, ITEMS, 0.05) == pytest.approx(by_hand, rel=1e-14)


# --- edges, errors, and turning round ----------------------------------------------------------


@pytest.mark.parametrize("model", ["fixed", "exchangeable"])
def test_all_items_leave_no_error_and_none_no_estimate(model):
    """A1, pitfall 3: n = N is exactly 0, where Serfling's factor alone would leave 9.67e-5; n = 0 is R."""
    assert subsample_half_width(ITEMS, ITEMS, 0.05, model=model) == 0.0
    assert subsample_half_width(0, ITEMS, 0.05, 10.0, model) == 10.0
    assert subsample_half_width(1, 1, 0.05, model=model) == 0.0
    assert subsample_tail([0.1, 0.0, -1.0], 20, 20, model=model).tolist() == [0.0, 1.0, 1.0]
    assert subsample_tail(0.9, 0, 20, model=model) == 1.0
    alone = np.sqrt(serfling_factor(ITEMS, ITEMS) * np.log(40) / 2)
    assert alone == pytest.approx(9.67e-5, rel=1e-3)


@pytest.mark.parametrize(
    "bad",
    [
        {"n": 11},
        {"n": -1},
        {"n": 2.5},
        {"n": np.nan},
        {"population": 0},
        {"population": np.inf},
        {"delta": 0.0},
        {"delta": 1.0},
        {"delta": np.nan},
        {"score_range": 0.0},
        {"score_range": np.inf},
        {"model": "infinite"},
    ],
)
def test_arguments_outside_their_range_are_refused(bad):
    """A1."""
    given_ = {"n": 5, "population": 10, "delta": 0.05, **bad}
    with pytest.raises(ValueError, match=next(iter(bad))):
        subsample_half_width(**given_)


def test_the_error_is_two_sided_and_the_range_enters_once():
    """Pitfalls 2 and 5: ln(1/delta) would give .013889; R = 10 is ten times R = 1; delta .1 is .116107."""
    one_sided = np.sqrt(exchangeable_factor(5000, ITEMS) * np.log(20) / 2)
    assert one_sided == pytest.approx(0.013889, abs=1e-6)
    values = exchangeable_half_width(100, 1000, [0.05, 0.1])
    assert values == pytest.approx([0.128841, 0.116107], abs=1e-6)
    assert exchangeable_half_width(100, 1000, 0.05, 10.0) == pytest.approx(1.288408, abs=1e-6)


def test_differences_of_two_scores_have_twice_the_range():
    """Pitfall 6: .030826 for a paired difference of 0/1 scores, .154122 for scores from 0 to 10."""
    assert subsample_half_width(5000, ITEMS, 0.05, 2.0) == pytest.approx(0.030826, abs=1e-6)
    assert exchangeable_half_width(5000, ITEMS, 0.05, 10.0) == pytest.approx(0.154122, abs=1e-6)


def test_simultaneous_claims_divide_the_error():
    """Pitfall 23: 57 subjects at delta/57: .022313, 1.4478 times as wide."""
    found = exchangeable_half_width(5000, ITEMS, 0.05 / 57)
    assert found == pytest.approx(0.022313, abs=1e-6)
    assert found / exchangeable_half_width(5000, ITEMS, 0.05) == pytest.approx(1.4478, abs=1e-4)


def test_published_numbers_of_items_are_met():
    """A2, pitfall 4."""
    wanted = [0.01, 0.015, 0.015413, 0.02, 0.03, 0.05, 1e-9]
    found = items_for_half_width(wanted, ITEMS, 0.05, model="exchangeable")
    assert found.tolist() == [7973, 5176, 5000, 3472, 1789, 701, 14042]
    assert items_for_half_width(0.1, 50, 0.05, model="exchangeable") == 40
    assert items_for_half_width(0.0, 50, 0.05) == 50
    assert items_for_half_width(2.0, 50, 0.05) == 1
    with pytest.raises(ValueError, match="half_width"):
        items_for_half_width(-0.1, 50, 0.05)


@given(
    st.floats(1e-6, 1.0),
    st.integers(1, 10**7),
    st.floats(1e-6, 0.999),
    st.floats(1e-3, 1e3),
    st.sampled_from(["fixed", "exchangeable"]),
)
@settings(max_examples=200, deadline=None)
def test_the_number_of_items_is_the_least(share, population, delta, span, model):
    """A2."""
    t = share * span
    n = int(items_for_half_width(t, population, delta, span, model))
    assert 1 <= n <= population
    assert subsample_half_width(n, population, delta, span, model) <= t
    assert n == 1 or subsample_half_width(n - 1, population, delta, span, model) > t


@given(
    st.integers(2, 10**6),
    st.floats(0, 1),
    st.floats(1e-6, 0.999),
    st.sampled_from(["fixed", "exchangeable"]),
)
@settings(max_examples=200, deadline=None)
def test_tail_and_half_width_undo_each_other(population, share, delta, model):
    """A3: Wherever the width is not that of what is certain anyway."""
    n = min(population - 1, 1 + int(share * population))
    half = subsample_half_width(n, population, delta, 3.0, model)
    if half < 3.0 * (population - n) / population * (1 - 1e-9):
        assert subsample_tail(half, n, population, 3.0, model) == pytest.approx(delta, abs=1e-9)


@pytest.mark.parametrize("model", ["fixed", "exchangeable"])
def test_more_items_are_never_worse(model):
    half = subsample_half_width(np.arange(ITEMS + 1), ITEMS, 0.05, model=model)
    assert (np.diff(half) <= 0).all()


# --- is it true of a fixed population? ---------------------------------------------------------


def misses(population, ones, n):
    """Every |mean_n - mean_N| with the probability that it or more is missed."""
    k = np.arange(max(0, n + ones - population), min(n, ones) + 1)
    error = np.abs(k / n - ones / population)
    p = stats.hypergeom.pmf(k, population, ones, n)
    return error, np.array([p[error >= each - 1e-12].sum() for each in error])


def test_scores_zero_and_one_contradict_the_infinite_model():
    """A4, pitfall 1: N = 2: it misses by .5 always, the paper's bound says .7358. N = 4: 1/3, and .2707."""
    assert misses(2, 1, 1)[1].tolist() == [1.0, 1.0]
    assert subsample_tail(0.5, 1, 2, model="exchangeable") == pytest.approx(0.7358, abs=1e-4)
    assert subsample_tail(0.5, 1, 2) == 1.0
    error, p = misses(4, 2, 2)
    assert p[error == 0.5] == pytest.approx(1 / 3)
    assert subsample_tail(0.5, 2, 4, model="exchangeable") == pytest.approx(0.2707, abs=1e-4)
    assert subsample_tail(0.5, 2, 4) > 1 / 3


def test_the_fixed_bound_holds_for_every_small_population():
    """A4: All 0/1 populations up to 24 items, by enumeration; the paper's fails at 2, 4, 6 alone."""
    broken = {"fixed": set(), "exchangeable": set()}
    for population in range(2, 25):
        for n in range(1, population):
            cases = [misses(population, ones, n) for ones in range(1, population)]
            error, p = (np.concatenate(each) for each in zip(*cases, strict=True))
            for model, where in broken.items():
                bound = subsample_tail(error, n, population, model=model)
                if (p > bound + 1e-9).any():
                    where.add(population)
    assert broken == {"fixed": set(), "exchangeable": {2, 4, 6}}


def test_fixed_factors_bound_the_proxy_variance_of_every_draw():
    """A4: The numerically largest 2 K(x)/x² of hypergeometric means; the paper's is exceeded twofold."""
    x = np.geomspace(0.02, 400, 300)
    x = np.concatenate((-x[::-1], x))[:, None]
    worst = dict.fromkeys((*FIXED, fixed_factor, exchangeable_factor), 0.0)
    for population in range(2, 13):
        for n in range(1, population):
            for ones in range(1, population):
                k = np.arange(max(0, n + ones - population), min(n, ones) + 1)
                weight = stats.hypergeom.pmf(k, population, ones, n)
                error = k / n - ones / population
                log_mgf = np.logaddexp.reduce(np.log(weight) + x * error, axis=1)
                proxy = (2 * log_mgf / x[:, 0] ** 2).max()
                for factor, ratio in worst.items():
                    worst[factor] = max(ratio, 4 * proxy / factor(n, population))
    assert worst.pop(exchangeable_factor) == pytest.approx(2.0, rel=1e-3)
    assert all(0.99 < ratio <= 1 + 1e-6 for ratio in worst.values()), worst


def test_the_factors_differ_as_they_should():
    n = np.arange(1, 101)
    is_less = bardenet_maillard_factor(n, 100) < serfling_factor(n, 100)
    assert is_less.tolist() == (n > 50).tolist()
    assert exchangeability_excess(2) == pytest.approx(1.0, rel=1e-14)
    assert exchangeability_excess(ITEMS) == pytest.approx(6.50e-4, rel=1e-3)
    harmonic = (1 / np.arange(1, 1001)).sum()
    assert exchangeability_excess(1000) == pytest.approx((harmonic - 1) / (1000 - harmonic))
    ratio = subsample_half_width(n * 100, ITEMS, 0.05) / exchangeable_half_width(
        n * 100, ITEMS, 0.05
    )
    assert ratio.min() >= 1
    assert ratio.max() <= 1.0003251


# --- intervals ---------------------------------------------------------------------------------


def test_an_interval_stays_within_what_is_possible():
    """3 of 4 seen items are right, of 6: the mean lies from 3/6 to 5/6 whatever the others are."""
    assert possible_range(3, 4, 6) == pytest.approx((3 / 6, 5 / 6))
    assert subsample_interval(3, 4, 6, 0.05) == pytest.approx((3 / 6, 5 / 6))
    assert subsample_interval(0, 0, 6, 0.05, 2.0) == pytest.approx((0.0, 2.0))
    assert subsample_interval(3, 6, 6, 0.05) == (0.5, 0.5)
    lower, upper = subsample_interval(3500, 5000, ITEMS, 0.05)
    assert (lower, upper) == pytest.approx((0.7 - 0.0154130651, 0.7 + 0.0154130651))


def test_missing_answers_widen_and_are_not_dropped(shared_data):
    """Pitfall 19: Gemini 1.5 lacks 90 answers, 71 in one subject: with all asked, R missing/N is the width."""
    data = mmlu(shared_data)
    x = data.right[data.models.index("gemini-1.5-pro-preview-0409")]
    n, missing = len(x), int(np.isnan(x).sum())
    blocked = data.subjects.index("human_sexuality")
    assert (missing, int(np.isnan(x[data.subject == blocked]).sum())) == (90, 71)
    lower, upper = worst_case(np.nansum(x), n - missing, missing, 1.0)
    assert upper - lower == pytest.approx(missing / n)
    subset = x[np.random.default_rng(1).permutation(n)[:2000]]
    absent = np.isnan(subset)
    low = subsample_interval(np.where(absent, 0.0, subset).sum(), 2000, n, 0.05).lower
    high = subsample_interval(np.where(absent, 1.0, subset).sum(), 2000, n, 0.05).upper
    half = subsample_half_width(2000, n, 0.05)
    assert high - low == pytest.approx(2 * half + absent.sum() / 2000)
    assert low < lower < upper < high


@pytest.mark.parametrize(("population", "n"), [(30, 10), (50, 40), (20, 20)])
@pytest.mark.parametrize("delta", [0.05, 0.1])
def test_the_exact_interval_covers_every_population(population, n, delta):
    """A5."""
    k = np.arange(n + 1)
    lower, upper = hypergeometric_interval(k, n, population, delta)
    coverage = [
        stats.hypergeom.pmf(k, population, ones, n)[
            (lower <= ones / population) & (ones / population <= upper)
        ].sum()
        for ones in range(population + 1)
    ]
    assert min(coverage) >= 1 - delta - 1e-12
    assert n == population or min(coverage) < 1  # it is no trivial interval


@given(st.integers(1, 400), st.floats(0, 1), st.floats(0, 1), st.floats(1e-6, 0.5))
@settings(max_examples=60, deadline=None)
def test_the_exact_interval_is_the_scan_over_all_populations(population, share, right, delta):
    n = int(share * population)
    k = int(right * n)
    ones = np.arange(population + 1)
    above = stats.hypergeom.sf(k - 1, population, ones, n)
    below = stats.hypergeom.cdf(k, population, ones, n)
    # Where a tail is delta/2 but for rounding, either side is right.
    tie = 1e-9 * delta
    lower, upper = (
        np.round(end * population) for end in hypergeometric_interval(k, n, population, delta)
    )
    assert above[int(lower)] > delta / 2 - tie
    assert lower == 0 or above[int(lower) - 1] <= delta / 2 + tie
    assert below[int(upper)] > delta / 2 - tie
    assert upper == population or below[int(upper) + 1] <= delta / 2 + tie


def test_the_exact_interval_of_mmlu():
    """A5: 3,500 of 5,000: [.689645, .710155], 1.5 times narrower than the bound without data."""
    lower, upper = hypergeometric_interval(3500, 5000, ITEMS, 0.05)
    assert (lower, upper) == pytest.approx((0.689645, 0.710155), abs=1e-6)
    assert 2 * subsample_half_width(5000, ITEMS, 0.05) / (upper - lower) == pytest.approx(
        1.503, abs=1e-3
    )
    assert hypergeometric_interval(0, 0, 20, 0.05) == (0.0, 1.0)
    assert hypergeometric_interval(7, 20, 20, 0.05) == (0.35, 0.35)
    mirrored = hypergeometric_interval([1500, 3500], 5000, ITEMS, 0.05)
    assert mirrored.lower[0] == pytest.approx(1 - mirrored.upper[1])
    for k in (-1, 5001, 0.5):
        with pytest.raises(ValueError, match="k is"):
            hypergeometric_interval(k, 5000, ITEMS, 0.05)


@pytest.mark.parametrize(
    ("model", "n"), [("claude-3-opus-20240229", 1843), ("mixtral-8x22b", 2403)]
)
def test_an_exact_interval_needs_fewer_items_than_5000(shared_data, model, n):
    """±1.54 points at the true shares; whole numbers of ones move it by a few items."""
    data = mmlu(shared_data)
    share = data.right[data.models.index(model)].mean()
    found = items_for_hypergeometric(0.015412, ITEMS, 0.05, share)
    assert abs(found - n) <= 3
    ends = [hypergeometric_interval(round(share * m), m, ITEMS, 0.05) for m in (found - 1, found)]
    halves = [(upper - lower) / 2 for lower, upper in ends]
    assert halves[1] <= 0.015412 < halves[0]
    with pytest.raises(ValueError, match="share"):
        items_for_hypergeometric(0.01, ITEMS, 0.05, 1.1)
    with pytest.raises(ValueError, match="half_width"):
        items_for_hypergeometric(-0.01, ITEMS, 0.05, 0.5)


def test_small_spread_pays_from_some_size_on():
    """Against Hoeffding: from 544 (sd .1), from 1,221 (sd .2), never (sd .3)."""
    n = np.arange(1, ITEMS)
    plain = exchangeable_half_width(n, ITEMS, 0.05)
    firsts = []
    for sd in (0.1, 0.2, 0.3):
        found = empirical_bernstein_half_width(sd, n, ITEMS, 0.05)
        better = n[(found < plain) & (n < ITEMS - 10)]
        firsts.append(int(better[0]) if better.size else None)
    assert firsts == [544, 1221, None]
    assert empirical_bernstein_half_width(0.0, [0, ITEMS], ITEMS, 0.05).tolist() == [1.0, 0.0]
    with pytest.raises(ValueError, match="sd"):
        empirical_bernstein_half_width(-0.1, 5, 10, 0.05)


def test_small_spread_covers_graded_scores():
    """Graded scores of sd .05, 1,500 of 4,000: it covers, a third narrower than without data."""
    rng = np.random.default_rng(3)
    scores = np.clip(rng.normal(0.8, 0.05, 4000), 0, 1)
    draws = np.array([rng.permutation(scores)[:1500] for _ in range(300)])
    half = empirical_bernstein_half_width(draws.std(axis=1), 1500, 4000, 0.05)
    assert (np.abs(draws.mean(axis=1) - scores.mean()) <= half).mean() >= 0.95
    assert half.mean() < 0.7 * subsample_half_width(1500, 4000, 0.05)


# --- weights and strata ------------------------------------------------------------------------


def subset_weights(n, population):
    return np.where(np.arange(population) < n, 1 / n, 0.0) - 1 / population


def test_a_subsample_is_a_contrast():
    a = subset_weights(100, 1000)
    assert contrast_half_width(a, 0.05, 10.0, "exchangeable") == pytest.approx(1.288408, abs=1e-6)
    barber = 10 * np.sqrt(barber_factor(100, 1000) * np.log(40) / 2)
    assert contrast_half_width(a, 0.05, 10.0) == pytest.approx(barber)
    assert contrast_half_width(np.zeros(5), 0.05) == 0.0
    certain = subset_weights(999, 1000)
    assert contrast_half_width(certain, 0.05) == pytest.approx(0.001)


def test_weights_must_cancel_in_every_block():
    """A6, pitfall 7: Zero over all is not enough: the third subject has no answers, and nothing of it cancels."""
    with pytest.raises(ValueError, match="sum to"):
        contrast_half_width([0.5, 0.5, -0.9], 0.05)
    sizes, drawn = [100, 200, 300], [50, 50, 0]
    block = np.repeat([0, 1, 2], sizes)
    parts = [subset_weights(n, m) / 3 for n, m in zip(drawn[:2], sizes[:2], strict=True)]
    a = np.concatenate((*parts, np.full(300, 1e-3)))
    a[300:450] = -1e-3
    contrast_half_width(a, 0.05, block=block)
    a[300:] = 1e-3
    a[:300] -= 1e-3
    assert abs(a.sum()) < 1e-12
    with pytest.raises(ValueError, match="sum to"):
        contrast_half_width(a, 0.05, block=block)


def test_independent_strata_are_blocks():
    """A6."""
    sizes, drawn = [100, 200, 300], [50, 50, 50]
    a = np.concatenate([subset_weights(n, m) / 3 for n, m in zip(drawn, sizes, strict=True)])
    found = contrast_half_width(a, 0.05, model="exchangeable", block=np.repeat([0, 1, 2], sizes))
    by_strata = stratified_half_width(drawn, sizes, [1 / 3] * 3, 0.05, model="exchangeable")
    assert found == pytest.approx(by_strata, rel=1e-12)
    assert by_strata == pytest.approx(0.0924071, abs=1e-7)


def test_a_stratum_without_answers_cancels_nothing():
    """A6, pitfall 7: [50, 50, 0] of [100, 200, 300]: .2382449, a sixth of it certain; not .0716."""
    found = stratified_half_width(
        [50, 50, 0], [100, 200, 300], [1 / 3] * 3, 0.05, model="exchangeable"
    )
    assert found == pytest.approx(0.2382449, abs=1e-7)
    assert found - 1 / 6 == pytest.approx(0.071578, abs=1e-6)
    assert stratified_half_width([0, 0], [5, 5], [0.5, 0.5], 0.05, 2.0) == 1.0
    assert stratified_half_width([5, 7], [5, 7], [0.5, 0.5], 0.05) == 0.0


@given(st.integers(1, 30), st.integers(2, 9), st.lists(st.integers(1, 60), min_size=1, max_size=6))
def test_proportional_strata_are_the_simple_draw(drawn, per, units):
    """A6: n_s = N_s n/N and w_s = N_s/N: the same bound."""
    units = np.array(units)
    n, population = units * min(drawn, per), units * per
    found = stratified_half_width(n, population, units / units.sum(), 0.05, model="exchangeable")
    simple = exchangeable_half_width(n.sum(), population.sum(), 0.05)
    assert found == pytest.approx(float(simple), rel=1e-12, abs=1e-15)


def test_macro_is_not_micro():
    """A7, pitfalls 8 and 9: [100, 1534]: 100 of the small subject and 900 give .01455; in proportion, .05602."""
    w = [0.5, 0.5]

    def half(n):
        return stratified_half_width(n, [100, 1534], w, 0.05, model="exchangeable")

    assert allocate(1000, [100, 1534], w).tolist() == [100, 900]
    assert half([100, 900]) == pytest.approx(0.01455, abs=1e-5)
    assert half([61, 939]) == pytest.approx(0.05602, abs=1e-5)
    # As new draws from both subjects' populations: proxy 6.657e-4, and 1.530e-4 if micro.
    n = np.array([100.0, 1534.0])
    macro = bounded_difference_proxy(0.5 / np.sqrt(n))
    micro = bounded_difference_proxy(np.full(1634, 1 / 1634))
    assert macro == pytest.approx(6.657e-4, rel=1e-3)
    assert micro == pytest.approx(1.530e-4, rel=1e-3)
    widths = sub_gaussian_half_width([macro, micro], 0.05)
    assert widths == pytest.approx([0.07008, 0.03360], abs=1e-5)


@given(
    st.lists(
        st.tuples(st.integers(1, 40), st.sampled_from([0.1, 0.3, 0.5, 1.0, 7.0])),
        min_size=1,
        max_size=6,
    ),
    st.floats(0, 1),
)
def test_allocation_is_the_greedy_one(strata, share):
    """A7: One draw at a time from a heap is exact, the terms being convex."""
    population, w = (np.array(each) for each in zip(*strata, strict=True))
    n = int(share * population.sum())
    found = allocate(n, population, w)
    heap = [(-np.inf, -w[s], s) for s in range(len(w))]
    heapq.heapify(heap)
    greedy = np.zeros(len(w), dtype=int)
    for _ in range(n):
        *_, s = heapq.heappop(heap)
        greedy[s] += 1
        if greedy[s] < population[s]:
            heapq.heappush(heap, (-(w[s] ** 2) / (greedy[s] * (greedy[s] + 1)), -w[s], s))
    assert found.sum() == n
    assert (found <= population).all()
    drawn = found > 0
    assert drawn.sum() == (greedy > 0).sum()
    assert w[drawn].sum() == pytest.approx(w[greedy > 0].sum())
    assert (w[drawn] ** 2 / found[drawn]).sum() == pytest.approx(
        (w[greedy > 0] ** 2 / greedy[greedy > 0]).sum()
    )


def test_allocation_refuses_what_is_not_there():
    with pytest.raises(ValueError, match="n is"):
        allocate(11, [5, 5], [0.5, 0.5])
    with pytest.raises(ValueError, match="positive"):
        allocate(1, [5, 5], [0.5, 0.0])
    with pytest.raises(ValueError, match="weights"):
        allocate(1, [5, 5], [0.5])
    with pytest.raises(ValueError, match="weights"):
        stratified_half_width([1, 1], [5, 5], [0.5, -0.5], 0.05)


def test_planning_a_million_items_takes_no_time():
    """Widths, numbers of items, exact planning and allocation of a million, in all below 1 s."""
    start = time.process_time()
    subsample_half_width(np.arange(0, 10**6, 10), 10**6, 0.05)
    items_for_half_width(np.geomspace(1e-3, 0.5, 100), 10**6, 0.05)
    items_for_hypergeometric(0.002, 10**6, 0.05, 0.8)
    allocate(500_000, np.full(1000, 1000), np.full(1000, 1e-3))
    assert time.process_time() - start < 1.0
