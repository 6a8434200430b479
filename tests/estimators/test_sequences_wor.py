"""Sequences without replacement: against plain forms and published values, edges, and looks."""

import itertools
import json
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from estimators import confidence_sequences
from estimators.confidence_sequences import (
    Plan,
    betting,
    betting_items,
    betting_paired_wor,
    betting_wor,
    empirical_bernstein,
    empirical_bernstein_wor,
    hoeffding,
    hoeffding_wor,
    maximal_half_width,
    prior_posterior,
    prior_posterior_at,
    prior_posterior_wor,
)
from tests.estimators.wor_data import log_capital, posterior_scan, yes_no

PLANNED = Plan(half_width=0.05)
KINDS = [
    pytest.param(betting, betting_wor, {"plan": PLANNED}, id="betting"),
    pytest.param(betting, betting_wor, {}, id="betting-untuned"),
    pytest.param(hoeffding, hoeffding_wor, {"plan": PLANNED}, id="hoeffding"),
    pytest.param(empirical_bernstein, empirical_bernstein_wor, {"plan": PLANNED}, id="bernstein"),
    pytest.param(prior_posterior, prior_posterior_wor, {}, id="prior-posterior"),
]
kinds = pytest.mark.parametrize(("begin", "in_a_row", "options"), KINDS)


def half_width(interval):
    return (interval.upper - interval.lower) / 2


# --- published values -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("in_a_row", "name", "options"),
    [
        (hoeffding_wor, "cs_hoeffding_wor", {}),
        (empirical_bernstein_wor, "cs_eb_wor", {}),
        (betting_wor, "cs_betting_wor", {"candidates": 1000}),
    ],
)
def test_ends_are_those_of_another_program(shared_gold, in_a_row, name, options):
    vectors = json.loads((shared_gold / "exchangeable/vectors.json").read_text("utf-8"))
    for vector in vectors[name]:
        given_, expected = vector["input"], vector["expected"]
        x = np.array([1, 0, 1, 1, 0, 1, 1, 1, 0, 1] * 6)
        lower, upper = in_a_row(x, given_["N"], level=1 - given_["alpha"], **options)
        at = np.array(given_["report_at"]) - 1
        assert np.transpose([lower[at], upper[at]]) == pytest.approx(np.array(expected), abs=1e-12)


def test_prior_posterior_is_that_of_another_program(shared_gold):
    vectors = json.loads((shared_gold / "exchangeable/vectors.json").read_text("utf-8"))
    for vector in vectors["cs_ppr_binary"]:
        k, t, n_all, alpha = (vector["input"][key] for key in ("k", "t", "N", "alpha"))
        found = prior_posterior_at(k, t, n_all, level=1 - alpha)
        assert tuple(found) == pytest.approx(tuple(vector["expected"]), abs=1e-15)


def test_the_maximal_bound_is_the_published_one(shared_gold):
    """A19: .0154138 at 5,000 of 14,042."""
    vectors = json.loads((shared_gold / "exchangeable/vectors.json").read_text("utf-8"))
    for vector in vectors["maximal_halfwidth"]:
        n, n_all, delta, r = (vector["input"][key] for key in ("n0", "N", "delta", "R"))
        found = maximal_half_width(n, n_all, delta, r)
        assert found == pytest.approx(vector["expected"], abs=1e-15)
    assert maximal_half_width(5000, 14_042, 0.05) == pytest.approx(0.0154138, abs=5e-8)
    assert maximal_half_width(5000, 14_042, 0.05, 10.0) == pytest.approx(0.154138, abs=5e-7)
    assert maximal_half_width(0, 10, 0.05) == 1.0
    assert maximal_half_width(10, 10, 0.05) == 0.0
    # The scores not drawn bound it where they are few.
    assert maximal_half_width(9, 10, 0.05) == pytest.approx(0.1)
    with pytest.raises(ValueError, match="n = 11 of 10"):
        maximal_half_width(11, 10, 0.05)


# --- second algorithms ------------------------------------------------------------------------------


@pytest.mark.parametrize("plan", [Plan(), Plan(n=60), Plan(half_width=0.06)])
@pytest.mark.parametrize("is_graded", [False, True])
def test_betting_ends_are_where_the_plain_capital_reaches_its_limit(plan, is_graded):
    """Against the rule written out: the end is the last candidate that the capital refuted.

    Within rounding of the limit a candidate may be on either side; none is here.
    """
    rng = np.random.default_rng(5)
    x = rng.beta(2, 1, 240) if is_graded else rng.permutation(yes_no(240, 0.7))
    lower, upper = betting_wor(x, 240, plan=plan, candidates=400)
    tried = np.arange(401) / 400
    capitals = [log_capital(x, m, half_width=plan.half_width, planned_n=plan.n) for m in tried]
    up, down = (
        np.maximum.accumulate(each, axis=1) >= math.log(40) for each in zip(*capitals, strict=True)
    )
    total, unseen = np.cumsum(x), 240 - np.arange(1, 241)
    for t in range(240):
        least, most = total[t] / 240, (total[t] + unseen[t]) / 240
        from_below = tried[up[:, t]].max(initial=0.0)
        from_above = tried[down[:, t]].min(initial=1.0)
        assert lower[t] == pytest.approx(max(from_below, least), abs=1e-12)
        assert upper[t] == pytest.approx(min(from_above, most), abs=1e-12)


@pytest.mark.parametrize(("a", "b"), [(1.0, 1.0), (0.5, 0.5), (8.0, 2.0)])
@pytest.mark.parametrize("t", [0, 1, 10, 30, 60, 99, 100])
def test_prior_posterior_is_bayes_rule_for_every_count(t, a, b):
    """A14: the explicit posterior, all k and all numbers of ones of 100."""
    k = np.arange(t + 1)
    lower, upper = prior_posterior_at(k, np.full(t + 1, t), 100, a=a, b=b)
    scanned = [posterior_scan(each, t, 100, 0.05, a, b) for each in k]
    assert np.transpose([lower, upper]) == pytest.approx(np.array(scanned), abs=1e-12)


def test_prior_posterior_has_the_values_of_the_pitfalls():
    """Pitfall 17: k = t = 0 says nothing, all N everything."""
    k, t = [0, 70, 7, 42], [0, 100, 10, 60]
    lower, upper = prior_posterior_at(k, t, 100)
    assert lower.tolist() == [0.0, 0.7, 0.29, 0.57]
    assert upper.tolist() == [1.0, 0.7, 0.95, 0.8]
    big = prior_posterior_at(700_000, 1_000_000, 1_000_000)
    assert tuple(big) == (0.7, 0.7)
    with pytest.raises(ValueError, match="0 <= k <= n <= 100"):
        prior_posterior_at(3, 2, 100)


@pytest.mark.parametrize("population", [97, 300, 700])
def test_an_end_that_is_possible_stays_inside(population):
    """Ends are shares that may be the truth: rounding never moves one across."""
    x = np.random.default_rng(15).permutation(yes_no(population, 0.7))
    lower, upper = prior_posterior_wor(x, population)
    at = prior_posterior_at(np.cumsum(x), np.arange(1, population + 1), population)
    from_below, from_above = np.maximum.accumulate(at.lower), np.minimum.accumulate(at.upper)
    assert (lower <= from_below).all()
    assert (upper >= from_above).all()
    assert lower == pytest.approx(from_below, abs=1e-14)
    assert upper == pytest.approx(from_above, abs=1e-14)


def test_sums_are_as_written_in_the_source():
    """Both sums at n = 80 of 200 graded scores, by a loop over scores in [0, 1]."""
    x = np.random.default_rng(2).beta(3, 1, 80)
    limit, n_all = math.log(2 / 0.05), 200
    for in_a_row in (hoeffding_wor, empirical_bernstein_wor):
        lower, upper = in_a_row(x, n_all, plan=Plan(n=50))
        gain = weight = cost = total = 0.0
        squares, lows, highs = 0.25, [0.0], [1.0]
        for i, score in enumerate(x, start=1):
            rem, guess, variance = n_all - i + 1, (0.5 + total) / i, squares / i
            if in_a_row is hoeffding_wor:
                bet = min(1, math.sqrt(8 * limit / 50))
                cost += bet**2 / 8
            else:
                bet = min(0.5, math.sqrt(2 * limit / (variance * 50)))
                cost += (score - guess) ** 2 * (-math.log(1 - bet) - bet)
            gain += bet * (score + total / rem)
            weight += bet * (1 + (i - 1) / rem)
            total += score
            squares += (score - (0.5 + total) / (i + 1)) ** 2
            lows.append(max(lows[-1], (gain - limit - cost) / weight))
            highs.append(min(highs[-1], (gain + limit + cost) / weight))
            assert lower[i - 1] == pytest.approx(max(lows[-1], total / n_all), abs=1e-12)
            assert upper[i - 1] == pytest.approx(min(highs[-1], (total + rem - 1) / n_all))


# --- one after another ------------------------------------------------------------------------------


@kinds
@settings(max_examples=15, deadline=None)
@given(seed=st.integers(0, 10**6), blocks=st.lists(st.integers(1, 400), min_size=1, max_size=12))
def test_scores_one_by_one_give_the_bits_of_scores_in_a_row(begin, in_a_row, options, seed, blocks):
    """However scores are handed over, and whenever one looks."""
    rng = np.random.default_rng(seed)
    x = rng.permutation(yes_no(900, 0.8))
    lower, upper = in_a_row(x, 900, **options)
    one_by_one, in_parts, unwatched = (begin(900, **options) for _ in range(3))
    at = 0
    for size in blocks:
        part = x[at : at + size]
        found = in_parts.extend(part)
        assert found.lower.tolist() == lower[at : at + size].tolist()
        assert found.upper.tolist() == upper[at : at + size].tolist()
        for score in part:
            one_by_one.update(score)
            unwatched.update(score)
        at += len(part)
        assert one_by_one.n == at
        if at:
            assert tuple(one_by_one.interval()) == (lower[at - 1], upper[at - 1])
            assert tuple(one_by_one.interval()) == tuple(one_by_one.interval())
    assert tuple(unwatched.interval()) == tuple(one_by_one.interval())


@kinds
def test_each_look_gives_the_bits_of_scores_in_a_row(begin, in_a_row, options):
    x = np.random.default_rng(3).permutation(yes_no(300, 0.6))
    sequence, looks = begin(300, **options), []
    for score in x:
        sequence.update(score)
        looks.append(tuple(sequence.interval()))
    assert looks == list(zip(*(each.tolist() for each in in_a_row(x, 300, **options)), strict=True))


@kinds
def test_intervals_shrink_to_the_mean_and_keep_to_the_sure_range(begin, in_a_row, options):
    """Pitfall 17: after 30 ones of 100 no mean below .30 is left; at the end one is left, exactly."""
    rng = np.random.default_rng(4)
    for share in (0.0, 0.3, 0.7, 1.0):
        x = rng.permutation(yes_no(100, share))
        lower, upper = in_a_row(x, 100, **options)
        assert (np.diff(lower) >= 0).all()
        assert (np.diff(upper) <= 0).all()
        total, t = np.cumsum(x), np.arange(1, 101)
        assert (lower >= total / 100).all()
        assert (upper <= (total + 100 - t) / 100).all()
        assert lower[-1] == upper[-1] == x.mean()
    start = begin(100, **options)
    assert tuple(start.interval()) == (0.0, 1.0)
    assert start.extend([]).lower.shape == (0,)


@kinds
def test_where_every_mean_is_refuted_the_sure_range_is_given(begin, in_a_row, options):
    """All ones first: an order that chance would not give refutes the truth, but not what is sure."""
    x = np.sort(yes_no(2000, 0.5))[::-1]
    lower, upper = in_a_row(x, 2000, **options)
    assert (lower <= upper).all()
    assert lower[300] > 0.5
    assert lower[-1] == upper[-1] == 0.5


@kinds
def test_a_population_of_one_is_known_after_one(begin, in_a_row, options):
    assert [tuple(map(float, each)) for each in in_a_row([1], 1, **options)] == [(1.0,), (1.0,)]


@kinds
def test_the_scale_moves_and_stretches_the_ends(begin, in_a_row, options):
    """Scores of 0 or 10: ten times the half-width, once (pitfalls 2 and 6)."""
    x = np.random.default_rng(6).permutation(yes_no(400, 0.4))[:200]
    unit = in_a_row(x, 400, **options)
    wide = {"plan": Plan(half_width=0.5)} if options else {}
    ten = in_a_row(10 * x - 3, 400, low=-3, high=7, **wide)
    assert ten.lower == pytest.approx(10 * unit.lower - 3, abs=1e-9)
    assert ten.upper == pytest.approx(10 * unit.upper - 3, abs=1e-9)


@kinds
def test_what_is_no_score_is_refused(begin, in_a_row, options):
    sequence = begin(3, **options)
    with pytest.raises(ValueError, match=r"1\.5 is"):
        sequence.update(1.5)
    with pytest.raises(ValueError, match="nan"):
        sequence.update(math.nan)
    with pytest.raises(ValueError, match="not all"):
        sequence.extend([0, math.nan])
    with pytest.raises(ValueError, match="population's 3"):
        sequence.extend([0, 0, 0, 0])
    assert sequence.n == 0
    sequence.extend([0, 1, 1])
    with pytest.raises(ValueError, match="all 3 scores"):
        sequence.update(1)
    assert tuple(sequence.interval()) == (2 / 3, 2 / 3)


def test_graded_scores_are_none_for_counts():
    with pytest.raises(ValueError, match="neither"):
        prior_posterior(10).update(0.5)
    with pytest.raises(ValueError, match="not all"):
        prior_posterior_wor([0, 0.5], 10)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"population": 0}, "population"),
        ({"level": 1.0}, "level"),
        ({"low": 1.0}, "scale"),
        ({"plan": Plan(half_width=0.1, n=3)}, "plan"),
        ({"plan": Plan(half_width=0.0)}, "plan"),
        ({"plan": Plan(n=-1)}, "plan"),
    ],
)
@pytest.mark.parametrize("begin", [betting, hoeffding, empirical_bernstein])
def test_terms_that_cannot_be_are_refused(begin, options, message):
    options = {"population": 10, **options}
    with pytest.raises(ValueError, match=message):
        begin(options.pop("population"), **options)


def test_a_prior_has_to_be_one():
    with pytest.raises(ValueError, match="prior"):
        prior_posterior(10, a=0.0)


def test_a_smaller_error_widens():
    """Pitfall 23: for 57 claims at once each gets alpha/57."""
    x = np.random.default_rng(8).permutation(yes_no(2000, 0.7))[:800]
    for in_a_row, options in ((betting_wor, {"plan": PLANNED}), (prior_posterior_wor, {})):
        one, many = (
            half_width(in_a_row(x, 2000, level=lv, **options)) for lv in (0.95, 1 - 0.05 / 57)
        )
        assert (many >= one).all()
        assert many[-1] > 1.2 * one[-1]


# --- the plan ---------------------------------------------------------------------------------------


def test_the_planned_number_is_planned_again_from_earlier_scores_alone():
    """What comes later, changed, changes no earlier interval (pitfall 16)."""
    x = np.random.default_rng(9).permutation(yes_no(1000, 0.7))
    other = np.concatenate((x[:400], 1 - x[400:]))
    for plan in (PLANNED, Plan(n=300), Plan()):
        one, changed = (betting_wor(each, 1000, plan=plan) for each in (x, other))
        assert one.lower[:400].tolist() == changed.lower[:400].tolist()
        assert one.upper[:400].tolist() == changed.upper[:400].tolist()


def test_a_plan_is_tightest_where_it_ends():
    """At 500 of 2,000: planned for it, narrower than planned for 50 or 2,000, or not at all."""
    rng = np.random.default_rng(10)
    orders = [rng.permutation(yes_no(2000, 0.7))[:500] for _ in range(8)]

    def mean_half_width(plan):
        return np.mean([half_width(betting_wor(x, 2000, plan=plan))[-1] for x in orders])

    planned = mean_half_width(Plan(n=500))
    assert planned < 0.9 * min(mean_half_width(Plan(n=50)), mean_half_width(Plan(n=20_000)))
    assert planned < 0.9 * mean_half_width(Plan())
    assert mean_half_width(Plan(half_width=0.044)) == pytest.approx(planned, rel=0.05)


def test_the_number_needed_is_a_little_above_where_runs_stop():
    """A closed form, beside runs to 3 points of 2,000; and no more than there are."""
    rng, x = np.random.default_rng(12), yes_no(2000, 0.8)
    needed = betting_items(0.03, 2000, variance=0.16)
    draws = 2 * math.log(40) * 0.16 / 0.03**2
    assert needed == math.ceil(draws / (1 + draws / 2000))
    stops = []
    for _ in range(25):
        widths = half_width(betting_wor(rng.permutation(x), 2000, plan=Plan(half_width=0.03)))
        stops.append(int((widths <= 0.03).argmax()) + 1)
    assert 0.75 * needed < np.median(stops) < needed
    assert betting_items(1e-6, 50, variance=0.25) == 50
    assert betting_items(0.1, 50, variance=0.0) == 1
    assert betting_items(0.0154, 14_042, variance=0.25) == pytest.approx(5005, abs=3)
    with pytest.raises(ValueError, match="variance"):
        betting_items(0.1, 50, variance=-1.0)
    with pytest.raises(ValueError, match="plan"):
        betting_items(0.0, 50, variance=0.1)


def test_finer_candidates_change_an_end_by_less_than_a_step():
    x = np.random.default_rng(11).permutation(yes_no(3000, 0.85))[:1500]
    coarse, fine = (
        betting_wor(x, 3000, plan=Plan(half_width=0.02), candidates=c) for c in (500, 50_000)
    )
    assert (fine.lower - coarse.lower).min() > -1e-12
    assert (fine.lower - coarse.lower).max() <= 1 / 500 + 1e-12
    assert (coarse.upper - fine.upper).max() <= 1 / 500 + 1e-12


# --- pairs ------------------------------------------------------------------------------------------


@settings(max_examples=20, deadline=None)
@given(seed=st.integers(0, 10**6), is_graded=st.booleans())
def test_exchanged_systems_have_exchanged_ends(seed, is_graded):
    """A18: the same numbers with their signs changed, to the last bit."""
    rng = np.random.default_rng(seed)
    first, second = rng.random((2, 300)) if is_graded else rng.integers(0, 2, (2, 300))
    one = betting_paired_wor(first, second, 500, plan=PLANNED)
    other = betting_paired_wor(second, first, 500, plan=PLANNED)
    assert one.lower.tolist() == (-other.upper).tolist()
    assert one.upper.tolist() == (-other.lower).tolist()


def test_the_same_system_twice_is_never_told_apart():
    x = np.random.default_rng(12).random(1000)
    lower, upper = betting_paired_wor(x, x, 1000, plan=PLANNED)
    assert (lower <= 0).all()
    assert (upper >= 0).all()
    # Without any spread the interval narrows far faster than the plan's worst case.
    assert half_width(betting_paired_wor(x[:300], x[:300], 1000, plan=PLANNED))[-1] < 0.05


def test_pairs_are_differences_on_twice_the_range():
    rng = np.random.default_rng(13)
    first, second = rng.integers(0, 11, (2, 200))
    paired = betting_paired_wor(first, second, 400, score_range=10, plan=Plan(half_width=1.0))
    plain = betting_wor(first - second, 400, low=-10, high=10, plan=Plan(half_width=1.0))
    assert paired.lower.tolist() == plain.lower.tolist()
    with pytest.raises(ValueError, match="not pairs"):
        betting_paired_wor([1], [1, 0], 10)


def test_pairing_pays():
    """Hard items are hard for both: differences spread less than two separate means would."""
    rng = np.random.default_rng(14)
    hard = rng.random(2000) < 0.3
    first, second = ((rng.random(2000) < np.where(hard, 0.1, 0.95)) * 1.0 for _ in range(2))
    plan = Plan(half_width=0.06)
    paired = half_width(betting_paired_wor(first[:800], second[:800], 2000, plan=plan))[-1]
    apart = [
        half_width(betting_wor(s[:800], 2000, level=0.975, plan=Plan(half_width=0.03)))[-1]
        for s in (first, second)
    ]
    assert paired < 0.8 * sum(apart)


# --- exact coverage, small populations --------------------------------------------------------------


@pytest.mark.parametrize("ones", range(8))
def test_all_orders_of_a_small_population_miss_seldom_enough(ones):
    """Exact: all distinct orders of 7 scores are equally likely. alpha = .4, so that misses occur."""
    population, level = 7, 0.6
    orders = [np.isin(np.arange(7), at) * 1.0 for at in itertools.combinations(range(7), ones)]
    for begin, options in (
        (betting, {"plan": Plan(n=4)}),
        (prior_posterior, {}),
        (hoeffding, {"plan": Plan(n=4)}),
        (empirical_bernstein, {"plan": Plan(n=4)}),
    ):
        missed = 0
        for x in orders:
            sequence = begin(population, level=level, **options)
            lower, upper = sequence.extend(x)
            # At an empty intersection the sure range is given, and the miss was before.
            missed += bool(((lower > x.mean()) | (upper < x.mean())).any())
        assert missed <= (1 - level) * len(orders)


def test_the_names_are_offered():
    assert all(hasattr(confidence_sequences, name) for name in confidence_sequences.__all__)


def test_an_average_of_capital_is_one():
    """The martingale, exactly: over all orders of 6 graded scores, K+ and K- at the mean average 1."""
    scores = np.array([0.0, 0.1, 0.25, 0.6, 0.9, 1.0])
    orders = np.array(list(itertools.permutations(scores)))
    up, down = log_capital(orders, scores.mean(), planned_n=4)
    assert np.exp(up).mean(axis=0) == pytest.approx(np.ones(6), abs=1e-9)
    assert np.exp(down).mean(axis=0) == pytest.approx(np.ones(6), abs=1e-9)


def test_likelihoods_of_a_hypergeometric_are_compared():
    """The form that is bisected, against SciPy's laws: kept where P(k | M) > alpha P(k)."""
    population, n, k = 60, 25, 9
    m = np.arange(population + 1)
    kept = m[stats.hypergeom.pmf(k, population, m, n) > 0.05 * stats.betabinom.pmf(k, n, 1, 1)]
    found = prior_posterior_at(k, n, population)
    assert tuple(found) == (kept.min() / population, kept.max() / population)
