"""The best proxy variance of a Beta variable: forty digits, closed forms, bounds and limits."""

import json
import time
from decimal import Decimal, localcontext

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.special import logsumexp

from estimators.beta_proxy import bernoulli_proxy, beta_proxy

PAIRS = [
    (1, 1.3),
    (2, 5),
    (0.1, 0.9),
    (0.01, 0.03),
    (7, 3),
    (20, 8),
    (5, 5.01),
    (5, 5.5),
    (1, 50),
    (0.5, 30),
    (300, 120),
    (40, 41),
    (0.3, 0.31),
    (90, 10),
    (12, 2),
    (150, 3),
]


def in_forty_digits(a, b):
    """The largest 2 K(x)/x² by a golden search, K by the power series of Kummer's function."""
    with localcontext() as context:
        context.prec = 60
        a, b = sorted((Decimal(str(a)), Decimal(str(b))))
        total = a + b
        mean = a / total
        variance = a * b / (total * total * (total + 1))

        def curvature(x):
            term, mgf, j = Decimal(1), Decimal(1), 0
            while term > mgf.scaleb(-58):
                term *= (a + j) * x / ((total + j) * (j + 1))
                mgf += term
                j += 1
            return 2 * (mgf.ln() - mean * x) / (x * x)

        golden = (Decimal(5).sqrt() - 1) / 2
        low, high = Decimal("1e-12"), (1 - mean) / variance
        left, right = high - golden * (high - low), low + golden * (high - low)
        at_left, at_right = curvature(left), curvature(right)
        while high - low > Decimal("1e-8") * high:
            if at_left < at_right:
                low, left, at_left = left, right, at_right
                right = low + golden * (high - low)
                at_right = curvature(right)
            else:
                high, right, at_right = right, left, at_left
                left = high - golden * (high - low)
                at_left = curvature(left)
        return float(max(at_left, at_right))


def variance(a, b):
    return a * b / ((a + b) ** 2 * (a + b + 1))


def test_published_values_are_met(shared_gold):
    """A8."""
    vectors = json.loads((shared_gold / "exchangeable/vectors.json").read_text(encoding="utf-8"))
    for case in vectors["beta_proxy"]:
        assert beta_proxy(**case["input"]) == pytest.approx(case["expected"], rel=1e-11)
    for case in vectors["bernoulli_proxy"]:
        assert bernoulli_proxy(**case["input"]) == pytest.approx(case["expected"], rel=1e-14)


@pytest.mark.parametrize(("a", "b"), PAIRS)
def test_it_is_the_maximum_in_forty_digits(a, b):
    """A8: Relative error below 1e-10, where 1e-8 is wanted."""
    assert beta_proxy(a, b) == pytest.approx(in_forty_digits(a, b), rel=1e-10)


def test_it_is_no_variance():
    """A8, pitfall 13: Beta(1, 50): 4.0384e-3, eleven times the variance 3.697e-4; 1/(4 (M + 1)) is safe, 4.808e-3."""
    found = beta_proxy(1, 50)
    assert found == pytest.approx(4.0384e-3, rel=1e-4)
    assert variance(1, 50) == pytest.approx(3.697e-4, rel=1e-3)
    assert found < 1 / (4 * 52)


def test_it_holds_where_a_root_finder_fails():
    """A8, pitfall 14: Near symmetry, far from it, and mirrored."""
    assert beta_proxy(5, 5.01) == pytest.approx(0.0227066277, rel=2e-9)
    assert beta_proxy(300, 120) == pytest.approx(5.811178719e-4, rel=1e-9)
    assert beta_proxy(1.3, 1) == beta_proxy(1, 1.3) == pytest.approx(0.07555100856, rel=1e-9)


@given(st.floats(1e-3, 1e4))
@settings(max_examples=40, deadline=None)
def test_a_symmetric_law_has_its_variance(a):
    """A8."""
    assert beta_proxy(a, a) == pytest.approx(1 / (4 * (2 * a + 1)), rel=1e-14)
    assert beta_proxy(a, a * (1 + 1e-7)) == pytest.approx(1 / (4 * (2 * a + 1)), rel=1e-6)


@given(st.floats(-6, 6), st.floats(-6, 6))
@settings(max_examples=40, deadline=None)
def test_it_lies_between_the_variance_and_the_simple_bound(log_a, log_b):
    """A8."""
    a, b = 10**log_a, 10**log_b
    found = beta_proxy(a, b)
    assert variance(a, b) <= found * (1 + 1e-12)
    assert found <= (1 + 1e-12) / (4 * (a + b + 1))
    assert found == beta_proxy(b, a)


@given(st.floats(-2, 2.5), st.floats(-2, 2.5), st.floats(-3, 4))
@settings(max_examples=40, deadline=None)
def test_the_law_is_sub_gaussian_with_it(log_a, log_b, log_x):
    """ln E exp(x (X - mu)) by the power series stays below proxy x²/2, whatever x."""
    a, b = sorted((10**log_a, 10**log_b))
    x = min(10**log_x, 20 * (a + b + 1))
    j = np.arange(int(3 * x) + 200)
    terms = np.log(a + j) - np.log(a + b + j) + np.log(x) - np.log(j + 1)
    log_mgf = logsumexp(np.concatenate(([0.0], np.cumsum(terms)))) - x * a / (a + b)
    assert log_mgf <= beta_proxy(a, b) * x**2 / 2 * (1 + 1e-9) + 1e-11


@pytest.mark.parametrize("p", [0.001, 0.3, 0.49, 0.7])
def test_few_draws_are_bernoulli(p):
    """A8: a + b → 0; Kearns and Saul's constant by another form."""
    direct = (1 - 2 * p) / (2 * np.log((1 - p) / p))
    assert bernoulli_proxy(p) == pytest.approx(direct, rel=1e-12)
    assert beta_proxy(1e-7 * p, 1e-7 * (1 - p)) == pytest.approx(direct, rel=1e-5)
    assert beta_proxy(1e-11 * p, 1e-11 * (1 - p)) == pytest.approx(direct, rel=1e-9)


def test_a_sure_thing_has_no_variance_and_a_coin_a_quarter():
    assert [bernoulli_proxy(p) for p in (0.0, 0.5, 1.0)] == [0.0, 0.25, 0.0]
    assert bernoulli_proxy(0.5 - 1e-12) == pytest.approx(0.25, rel=1e-12)


def test_many_draws_have_a_limit():
    """A8: (a + b) proxy → max (u - mu)²/(2 KL(mu‖u)): .24537 at mu = .7, where the variance has .21."""
    u = np.linspace(1e-4, 1 - 1e-4, 200_001)
    u = u[np.abs(u - 0.7) > 1e-3]
    divergence = 0.7 * np.log(0.7 / u) + 0.3 * np.log(0.3 / (1 - u))
    limit = ((u - 0.7) ** 2 / (2 * divergence)).max()
    assert limit == pytest.approx(0.24537, rel=1e-4)
    assert 5e4 * beta_proxy(35_000, 15_000) == pytest.approx(limit, rel=1e-4)
    assert 1e9 * beta_proxy(7e8, 3e8) == pytest.approx(limit, rel=1e-6)
    assert 5e4 * variance(35_000, 15_000) == pytest.approx(0.21, rel=1e-3)


def test_a_call_takes_less_than_50_ms():
    """A8."""
    start = time.process_time()
    for a, b in [(1, 1e4), (5000, 4999), (1e-3, 2), (9000, 1000), (5, 5.01)]:
        beta_proxy(a, b)
    assert time.process_time() - start < 5 * 0.05


@pytest.mark.parametrize("bad", [(0, 1), (1, -1), (np.nan, 1), (1, np.inf)])
def test_no_law_no_proxy(bad):
    with pytest.raises(ValueError, match="positive"):
        beta_proxy(*bad)
    with pytest.raises(ValueError, match="p is"):
        bernoulli_proxy(1.5)
