"""Tests whether missing verdicts depend on the arm, against scipy."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from estimators.missing import fisher_p, missing_test


@given(table=st.lists(st.integers(0, 60), min_size=4, max_size=4))
def test_fisher_agrees_with_scipy(table):
    """Against scipy's exact test."""
    square = np.reshape(table, (2, 2)).astype(float)
    expected = stats.fisher_exact(square.astype(int)).pvalue
    assert fisher_p(square) == pytest.approx(expected, rel=1e-6)


def test_more_arms_are_compared_by_chi_square():
    """Against scipy; small expected counts are said to be rough; without missing there is none."""
    got, gone = np.array([40.0, 45.0, 30.0, 0.0]), np.array([10.0, 5.0, 20.0, 0.0])
    test = missing_test(got, gone)
    expected = stats.chi2_contingency(np.stack((got, gone))[:, :3], correction=False).pvalue
    assert (test.p, test.method) == (pytest.approx(expected), "chi_square")
    assert not test.is_rough
    assert missing_test(got, np.array([3.0, 0.0, 0.0, 0.0])).is_rough
    assert math.isnan(missing_test(got, np.zeros(4)).p)
