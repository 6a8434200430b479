"""The least sub-Gaussian proxy variance of a Beta variable.

X is sigma²-sub-Gaussian if ln E exp(x (X - mu)) ≤ sigma² x²/2 for all x; the least such sigma² is

    max over x of 2 K(x)/x²,    K(x) = ln E exp(x (X - mu)).

It lies between the variance and 1/(4 (a + b + 1)), and is the variance for a = b alone. For
Beta(1, 50) it is eleven times the variance: a bound must not take the one for the other.
"""

from __future__ import annotations

import numpy as np
from scipy.optimize import minimize_scalar
from scipy.special import log_expit

from estimators.intervals import Array

_NODES = 800
"""Of the quadrature. 400 agree to 1e-12."""

_DROP = 50.0
"""Natural logs below the peak at which an integrand is cut: e^-50 is nothing in double precision."""

_STEPS = np.geomspace(1e-7, 1e17, 200) * np.array([[-1.0], [1.0]])
"""From a peak to either side, where the integrand's ends are looked for."""


def beta_proxy(a: float, b: float) -> float:
    """Give the least sub-Gaussian proxy variance of Beta(a, b).

    With a < b (else X is mirrored) 2 K(x)/x² has one maximum over x > 0, at x K'(x) = 2 K(x); since
    K'(x) ≤ 1 - mu there, x is at most (1 - mu)/variance. Near a = b the maximum is at x near 0, where
    a root of the stationary equation is lost in rounding and the maximum is not: it is searched for,
    by Brent's method in ln x.

    K is ln(1 + E g(x (X - mu))) with g(u) = e^u - 1 - u, which is positive, so that nothing cancels.
    The expectation is a trapezoid sum in u, logit X = sinh u: exponentially exact, for tails of any
    length.

    Parameters
    ----------
    a, b : > 0

    Returns
    -------
    square units of X; relative error about 1e-12

    Raises
    ------
    ValueError
        a or b is not positive and finite.

    Source: [MA17] Theorem 2.1, as a maximum instead of a root; 1/(4 (2a + 1)) for a = b.
    """
    if not (0 < a < np.inf and 0 < b < np.inf):
        raise ValueError(f"a, b are {a}, {b}; they must be positive and finite")
    a, b = min(a, b), max(a, b)
    variance = a * b / ((a + b) ** 2 * (a + b + 1))
    if a == b:
        return variance
    plain = _window(0.0, a, b)
    found = minimize_scalar(
        lambda log_x: -_curvature(float(np.exp(log_x)), a, b, plain),
        # Cumulants' ratios are of order 1/(a + b + 2), so that 2 K(x)/x² is flat below the lower end.
        bounds=(np.log(1e-6 * (a + b + 2)), np.log(b / (a + b) / variance)),
        method="bounded",
        options={"xatol": 1e-6},
    )
    return max(-float(found.fun), variance)


def bernoulli_proxy(p: float) -> float:
    """Give the least sub-Gaussian proxy variance of a Bernoulli variable: of Beta(a, b) for a + b → 0.

    (1 - 2p)/(2 ln((1 - p)/p)): 1/4 at p = ½, 0 at 0 and 1.

    Raises
    ------
    ValueError
        p is outside [0, 1].

    Source: [KS98].
    """
    if not 0 <= p <= 1:
        raise ValueError(f"p is {p}; it must be in [0, 1]")
    skew = abs(1 - 2 * p)
    if skew == 0:
        return 0.25
    return 0.0 if skew == 1 else skew / (4 * float(np.arctanh(skew)))


def _curvature(x: float, a: float, b: float, plain: tuple[float, float]) -> float:
    """Give 2 K(x)/x² for a < b, x > 0; `plain` is the window of x = 0."""
    tilted = _window(x, a, b)
    u = np.linspace(min(plain[0], tilted[0]), max(plain[1], tilted[1]), _NODES)
    s = np.sinh(u)
    log_up, log_down = log_expit(s), log_expit(-s)
    log_density = a * log_up + b * log_down + np.log(np.cosh(u))
    # X - mu without cancellation at either end: b X - a (1 - X), over a + b.
    centred = (b * np.exp(log_up) - a * np.exp(log_down)) / (a + b)
    excess = _log_sum(log_density + _log_excess(x * centred)) - _log_sum(log_density)
    return 2 * float(np.logaddexp(0.0, excess)) / x**2


def _window(x: float, a: float, b: float) -> tuple[float, float]:
    """Give where the density of u, times e^(x X), is within e^-50 of its peak.

    In s = logit X its derivative a - (a + b - x) t - x t² with t = X changes its sign once, so that
    it has one peak.
    """
    m = a + b - x
    # The root in (0, 1), in the form that does not cancel.
    root = np.sqrt(m * m + 4 * a * x)
    t = 2 * a / (m + root) if m > 0 else (root - m) / (2 * x)
    peak = np.log(t) - np.log1p(-t)
    s = peak + _STEPS
    height = a * log_expit(s) + b * log_expit(-s) + x * np.exp(log_expit(s))
    top = a * log_expit(peak) + b * log_expit(-peak) + x * t
    far = np.argmax(height < top - _DROP, axis=1)
    return float(np.arcsinh(s[0, far[0]])), float(np.arcsinh(s[1, far[1]]))


def _log_excess(u: Array) -> Array:
    """Give ln(e^u - 1 - u), which is positive; -inf at 0."""
    near = np.where(np.abs(u) < 0.25, u, 0.0)
    series = np.ones_like(u)
    for k in range(14, 2, -1):
        series = 1 + near / k * series
    with np.errstate(divide="ignore", over="ignore"):  # u = 0; and what the other branch is for
        small = np.log(np.where(np.abs(u) < 0.25, u * u / 2 * series, np.expm1(u) - u))
        large = u + np.log1p(-(1 + u) * np.exp(-np.abs(u)))
    return np.where(u > 1, large, small)


def _log_sum(logs: Array) -> float:
    top = logs.max()
    return float(top + np.log(np.exp(logs - top).sum()))
