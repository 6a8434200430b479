"""Gauss-Hermite rules: what they integrate exactly, and how they are placed."""

import math

import numpy as np
import pytest

from estimators.quadrature import gauss_hermite


def integral(rule, log_integrand, mode, scale):
    v = rule.at(np.array([mode]), np.array([scale]))[0]
    return math.sqrt(2) * scale * np.exp(rule.log_weights + log_integrand(v)).sum()


@pytest.mark.parametrize("n", [1, 2, 7, 15, 41])
def test_a_normal_density_is_integrated_exactly_wherever_it_lies(n):
    rule = gauss_hermite(n)
    found = integral(
        rule, lambda v: -((v - 3) ** 2) / (2 * 0.25) - math.log(math.sqrt(2 * math.pi) / 2), 3, 0.5
    )
    assert found == pytest.approx(1, abs=1e-13)


def test_n_nodes_integrate_moments_up_to_the_order_2n_minus_1():
    rule = gauss_hermite(4)
    v = rule.at(np.zeros(1), np.ones(1))[0]
    weights = np.exp(rule.log_weights - rule.nodes**2) / math.sqrt(math.pi)
    assert weights @ v**6 == pytest.approx(15)
    assert weights @ v**8 != pytest.approx(105)


def test_one_node_is_laplace():
    """√(2π) τ e^h at the mode."""
    rule = gauss_hermite(1)
    assert integral(rule, lambda v: 1.5 - v**2 - v**4, 0.0, 0.7) == pytest.approx(
        math.sqrt(2 * math.pi) * 0.7 * math.exp(1.5)
    )


def test_weights_of_many_nodes_do_not_underflow():
    assert np.isfinite(gauss_hermite(83).log_weights).all()


@pytest.mark.parametrize("n", [0, 101])
def test_a_number_of_nodes_out_of_range_is_refused(n):
    with pytest.raises(ValueError, match="1 to 100"):
        gauss_hermite(n)
