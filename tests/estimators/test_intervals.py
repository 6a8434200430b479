"""Intervals and variances, each against a second witness."""

import itertools
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import optimize, stats

from estimators.intervals import (
    betting,
    cluster_mean,
    hoeffding,
    t_interval,
    wilson,
    worst_case,
)

unit_values = st.lists(
    st.floats(0, 1) | st.sampled_from([0.0, 0.5, 1.0]), min_size=1, max_size=25
).map(np.array)


# --- Wilson ----------------------------------------------------------------------------------------


def test_wilson_of_none_and_all_of_twenty():
    """C37: 0 of 20 gives [0, 0.1611], 20 of 20 gives [0.8389, 1], the ends exact."""
    lower, upper = wilson(np.array([0.0, 20.0]), np.array([20.0, 20.0]), 0.95)
    assert (lower[0], upper[1]) == (0.0, 1.0)
    assert (round(upper[0], 4), round(lower[1], 4)) == (0.1611, 0.8389)


@pytest.mark.parametrize("level", [0.8, 0.95, 0.99])
@pytest.mark.parametrize(("k", "n"), [(0, 1), (1, 1), (3, 7), (50, 100), (999, 1000)])
def test_wilson_agrees_with_scipy_and_with_its_definition(k, n, level):
    """Scipy gives the same ends, and they solve the equation of the score test."""
    ours = wilson(k, n, level)
    theirs = stats.binomtest(k, n).proportion_ci(level, method="wilson")
    assert ours == pytest.approx((theirs.low, theirs.high), abs=1e-12)
    z = stats.norm.ppf((1 + level) / 2)
    for p in ours:
        assert (k / n - p) ** 2 == pytest.approx(z**2 * p * (1 - p) / n, abs=1e-12)


# --- Hoeffding and t -------------------------------------------------------------------------------


def test_hoeffding_is_where_its_bound_reaches_the_error():
    """At the half-width, 2 exp(-2 n h^2 / span^2) is the error; weights count by 1/sum a^2."""
    lower, upper = hoeffding(3.0, 50, 4.0, 0.95, 1.0, 5.0)
    assert 2 * math.exp(-2 * 50 * (upper - 3.0) ** 2 / 16) == pytest.approx(0.05)
    assert upper - 3 == pytest.approx(3 - lower)
    assert hoeffding(3.0, 1, 4.0, 0.95, 1.0, 5.0) == (1.0, 5.0)


def test_t_interval_agrees_with_scipy():
    """Against scipy's interval of Student's distribution, cut at the ends."""
    theirs = stats.t.interval(0.9, 7, loc=0.4, scale=0.1)
    assert t_interval(0.4, 0.1, 7, 0.9, 0.0, 1.0) == pytest.approx(theirs)
    assert t_interval(0.4, 0.9, 7, 0.9, 0.0, 1.0) == (0.0, 1.0)


# --- betting ---------------------------------------------------------------------------------------


def capital(values, weights, m):
    """The capital against a mean of m, multiplied out: the definition, in plain Python."""
    total = 0.0
    for bet in (0.25, 0.5, 0.75, 0.999):
        product = 1.0
        for x, w in zip(values, weights, strict=True):
            product *= 1 + bet * w / max(weights) * (x / m - 1)
        total += product / 4
    return total


@pytest.mark.parametrize("level", [0.9, 0.95])
@pytest.mark.parametrize(
    ("values", "weights"),
    [
        ([0.5], [1]),
        ([0.2, 0.9], [1, 1]),
        ([0.0, 0.0, 1.0, 0.3], [1, 1, 1, 1]),
        ([0.7] * 12, [1] * 12),
        ([0.1, 0.4, 0.8], [3, 1, 0.5]),
    ],
)
def test_betting_ends_where_the_capital_reaches_its_bound(values, weights, level):
    """A root finder on the definition, for both sides, gives the same ends."""
    lower, upper = betting(np.array(values), level, np.array(weights, float))
    mean = np.average(values, weights=weights)
    bound = 2 / (1 - level)

    def root(of, mean):
        return optimize.brentq(lambda m: capital(of, weights, m) - bound, 1e-9, mean, xtol=1e-14)

    assert lower == pytest.approx(root(values, mean), abs=1e-10)
    assert 1 - upper == pytest.approx(root([1 - x for x in values], 1 - mean), abs=1e-10)


def test_betting_on_equal_values_at_an_end():
    """All zeros: the lower end is exactly 0, the upper one solves for the capital in closed form."""
    lower, upper = betting(np.zeros(10), 0.95)
    assert lower == 0.0
    bets = np.array([0.25, 0.5, 0.75, 0.999])
    assert np.mean((1 + bets * (1 / (1 - upper) - 1)) ** 10) == pytest.approx(40)


@given(values=unit_values, level=st.sampled_from([0.8, 0.95, 0.999]))
def test_betting_holds_the_mean_and_has_width(values, level):
    """The mean lies inside, no interval is empty, and a higher level is not narrower."""
    lower, upper = betting(values, level)
    assert 0 <= lower <= values.mean() + 1e-12
    assert values.mean() - 1e-12 <= upper <= 1
    assert upper - lower > 1e-3 / len(values)
    wider = betting(values, (1 + level) / 2)
    assert wider.lower <= lower + 1e-12
    assert upper <= wider.upper + 1e-12


@given(values=unit_values, seed=st.integers(0, 99))
def test_betting_does_not_depend_on_order_and_mirrors(values, seed):
    """Shuffled values give the same interval, 1 - x the mirrored one."""
    shuffled = np.random.default_rng(seed).permutation(values)
    expected = betting(values, 0.95)
    assert betting(shuffled, 0.95) == pytest.approx(expected, abs=1e-12)
    mirrored = betting(1 - values, 0.95)
    assert (1 - mirrored.upper, 1 - mirrored.lower) == pytest.approx(expected, abs=1e-9)


@given(values=unit_values, times=st.integers(2, 4))
def test_betting_reads_repeated_values_as_so_many(values, times):
    """Gathering equal values before the product changes nothing."""
    weights = np.linspace(1, 2, len(values))
    lower, upper = betting(np.tile(values, times), 0.9, np.tile(weights, times))
    assert lower == 0 or capital(
        np.tile(values, times).tolist(), np.tile(weights, times).tolist(), lower
    ) == pytest.approx(20, rel=1e-6)
    assert upper >= lower


def two_point_coverage(interval, low, high, p, n):
    """Exact coverage for n draws that are `high` with probability p, else `low`."""
    mean = low + (high - low) * p
    chances = stats.binom.pmf(np.arange(n + 1), n, p)
    covered = [
        lower <= mean <= upper
        for lower, upper in (interval(np.array([high] * k + [low] * (n - k))) for k in range(n + 1))
    ]
    return chances[covered].sum()


@pytest.mark.parametrize("n", [1, 2, 5, 19])
@pytest.mark.parametrize("p", [0.02, 0.1, 0.3, 0.5, 0.8, 0.95])
@pytest.mark.parametrize(("low", "high"), [(0.0, 1.0), (0.45, 0.55), (0.0, 0.2), (0.0, 0.01)])
def test_coverage_at_two_point_laws_is_at_least_nominal(low, high, p, n):
    """Summed over all samples, betting and Hoeffding hold at skewed and narrow laws alike."""

    def bound(values):
        return hoeffding(values.mean(), n, 1.0, 0.9, 0.0, 1.0)

    assert two_point_coverage(lambda v: betting(v, 0.9), low, high, p, n) >= 0.9
    assert two_point_coverage(bound, low, high, p, n) >= 0.9


def test_betting_covers_a_weighted_mean_of_unequal_laws():
    """Independent values with means and weights of their own: still no less than nominal."""
    rng = np.random.default_rng(5)
    means, weights = np.array([0.05, 0.3, 0.5, 0.9, 0.97]), np.array([1.0, 3.0, 0.2, 2.0, 5.0])
    truth, n_runs = np.average(means, weights=weights), 1_000
    hits = 0
    for draw in rng.random((n_runs, 5)) < means:
        lower, upper = betting(draw.astype(float), 0.9, weights)
        hits += lower <= truth <= upper
    assert hits / n_runs >= 0.9 - 3 * math.sqrt(0.9 * 0.1 / n_runs)


def test_betting_is_seldom_wider_than_hoeffding_and_much_narrower_on_quiet_values():
    """What decides between the two below twenty values."""
    rng = np.random.default_rng(1)
    for n, draw in itertools.product((5, 10, 19), (rng.random, lambda n: rng.beta(20, 2, n))):
        values = draw(n)
        lower, upper = betting(values, 0.95)
        bound = hoeffding(values.mean(), n, 1.0, 0.95, 0.0, 1.0)
        assert upper - lower < bound.upper - bound.lower
    quiet = betting(np.full(19, 0.5), 0.95)
    assert quiet.upper - quiet.lower < 0.4 * (2 * math.sqrt(math.log(40) / 38))


# --- clusters --------------------------------------------------------------------------------------


def test_each_value_its_own_cluster_is_the_textbook_variance():
    """Equal weights without clusters give s^2/n."""
    x = np.array([1.0, 4.0, 2.0, 2.0, 9.0])
    found = cluster_mean(x, np.ones(5), np.arange(5))
    assert found.mean == pytest.approx(x.mean())
    assert found.variance == pytest.approx(x.var(ddof=1) / 5)
    assert found.df == 4


def test_equal_clusters_are_means_of_means():
    """With clusters of one size the variance is that of the cluster means."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=(6, 4))
    found = cluster_mean(x.ravel(), np.ones(24), np.repeat(np.arange(6), 4))
    assert found.mean == pytest.approx(x.mean())
    assert found.variance == pytest.approx(x.mean(axis=1).var(ddof=1) / 6)
    assert found.means == pytest.approx(x.mean(axis=1))


def test_unequal_clusters_agree_with_regression_on_a_constant():
    """The cluster-robust variance of a weighted regression on 1, written out by clusters."""
    rng = np.random.default_rng(3)
    cluster = rng.integers(0, 9, 60)
    x, w = rng.normal(size=60) + cluster, rng.uniform(0.5, 2, 60)
    found = cluster_mean(x, w, cluster)
    bread = 1 / w.sum()
    beta = bread * (w @ x)
    meat = sum((w[cluster == g] @ (x - beta)[cluster == g]) ** 2 for g in range(9))
    assert found.mean == pytest.approx(beta)
    assert found.variance == pytest.approx(9 / 8 * bread * meat * bread)


def test_gaps_in_the_numbering_are_no_clusters():
    """Clusters without values don't count."""
    found = cluster_mean(np.array([1.0, 2.0]), np.ones(2), np.array([2, 7]))
    assert found.clusters.tolist() == [2, 7]
    assert cluster_mean(np.array([1.0]), np.ones(1), np.array([3])).variance != 0
    assert math.isnan(cluster_mean(np.array([1.0]), np.ones(1), np.array([3])).variance)


def test_thin_samples_are_few_or_flat():
    """Nineteen clusters are few, twenty are not; equal values are flat at any number."""
    values = np.linspace(0, 1, 20)
    assert cluster_mean(values[:19], np.ones(19), np.arange(19)).is_thin(1.0)
    assert not cluster_mean(values, np.ones(20), np.arange(20)).is_thin(1.0)
    assert cluster_mean(np.full(500, 1 / 3), np.ones(500), np.arange(500)).is_thin(1.0)


# --- missing ---------------------------------------------------------------------------------------


def test_worst_case_puts_missing_values_at_the_ends():
    """Against every filling of two missing values by the ends."""
    values, span = [1.0, 3.0], 4.0
    fillings = [np.mean([*values, *ends]) for ends in itertools.product((0.0, span), repeat=2)]
    lower, upper = worst_case(np.array([4.0]), np.array([2.0]), np.array([2.0]), span)
    assert (lower[0], upper[0]) == (min(fillings), max(fillings))
    nothing = worst_case(np.zeros(1), np.zeros(1), np.zeros(1), span)
    assert (nothing.lower[0], nothing.upper[0]) == (0, 0)
