"""Error spending: published bounds, an independent integral, and how often chance crosses."""

import itertools
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import multivariate_normal, norm

from estimators.group_sequential import bounds, obrien_fleming_spending, repeated_interval


@pytest.mark.parametrize(
    ("times", "published"),
    [
        ([0.2, 0.4, 0.6, 0.8, 1.0], [4.877, 3.357, 2.680, 2.290, 2.031]),
        ([0.5, 1.0], [2.963, 1.969]),
        ([1.0], [1.960]),
    ],
)
def test_equal_looks_have_the_published_bounds(times, published):
    """Other sides of alpha in the spending function would give 4.383, 3.100, 2.553, ..."""
    assert bounds(times) == pytest.approx(published, abs=1e-3)


def test_all_error_is_spent_at_the_end():
    assert obrien_fleming_spending(1.0) == pytest.approx(0.05)
    assert obrien_fleming_spending(1.3, 0.1) == pytest.approx(0.1)
    assert obrien_fleming_spending(0.3) < 0.001


def test_unequal_information_changes_the_correlations_alone():
    """Against the trivariate normal integral."""
    times, info = [0.3, 0.6, 1.0], [10.0, 37.0, 41.0]
    found = np.array(bounds(times, info))
    corr = np.sqrt(np.minimum.outer(info, info) / np.maximum.outer(info, info))
    for looks in (2, 3):
        inside = multivariate_normal(np.zeros(looks), corr[:looks, :looks]).cdf(
            found[:looks], lower_limit=-found[:looks]
        )
        assert 1 - inside == pytest.approx(obrien_fleming_spending(times[looks - 1]), abs=1e-4)
    assert found[0] == pytest.approx(bounds([0.3])[0])


def test_a_look_at_next_to_nothing_has_no_bound():
    assert math.isinf(bounds([0.01, 1.0])[0])
    assert bounds([0.01, 1.0])[1] == pytest.approx(norm.ppf(0.975), abs=1e-6)


@settings(max_examples=15, deadline=None)
@given(st.sets(st.integers(5, 99), min_size=1, max_size=4))
def test_the_last_bound_pays_for_the_looks_before_it(hundredths):
    """It is 1.96 for a single look, and rises with what was spent before."""
    looks = [t / 100 for t in sorted(hundredths)]
    last = [bounds([*looks[:n], 1.0])[-1] for n in range(len(looks) + 1)]
    assert last[0] == pytest.approx(norm.ppf(0.975), abs=1e-6)
    assert last[-1] < 2.5
    assert all(b > a - 1e-7 for a, b in itertools.pairwise((last[0], last[-1])))


def test_information_that_falls_by_chance_is_no_look_anew():
    """An estimated standard error can grow; the bounds then stay finite and valid."""
    found = bounds([0.4, 0.6, 1.0], [20.0, 19.0, 40.0])
    assert all(math.isfinite(bound) for bound in found)
    assert found[1] < found[0]


@pytest.mark.parametrize(
    ("times", "information"),
    [([0.5, 0.5], None), ([0.0, 1.0], None), ([0.5, 1.0], [1.0]), ([0.5, 1.0], [0.0, 1.0])],
)
def test_looks_without_order_or_information_are_refused(times, information):
    with pytest.raises(ValueError, match="look"):
        bounds(times, information)


def test_no_look_has_no_bound():
    assert bounds([]) == ()


def test_chance_crosses_as_often_as_is_spent():
    """Brownian motion at unequal looks: 5 % at most cross somewhere, and 1.96 would let 14 %."""
    rng, n, info = np.random.default_rng(0), 40_000, np.array([3.0, 5.0, 9.0, 10.0, 16.0])
    score = np.cumsum(rng.normal(size=(n, 5)) * np.sqrt(np.diff(info, prepend=0)), axis=1)
    z = np.abs(score / np.sqrt(info))
    crossed = (z > np.array(bounds([0.2, 0.4, 0.6, 0.8, 1.0], info))).any(axis=1).mean()
    assert crossed == pytest.approx(0.05, abs=3 * math.sqrt(0.05 * 0.95 / n))
    assert (z > 1.96).any(axis=1).mean() > 0.11


def test_the_repeated_interval_goes_with_the_verdict():
    look = repeated_interval(1.0, 0.4, 2.4)
    assert look.crosses == (look.lower > 0) is True
    assert (look.lower, look.upper) == pytest.approx((0.04, 1.96))
    assert not repeated_interval(-0.9, 0.4, 2.4).crosses
