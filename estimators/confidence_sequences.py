"""Intervals that hold at every look, however often one looks and whenever one stops.

Those for draws without replacement from a finite population are `estimators.sequences_wor`'s.
"""

from __future__ import annotations

import math
from functools import cache

import numpy as np
from scipy.special import betaln, lambertw, xlog1py, xlogy

from estimators.intervals import Array, Interval
from estimators.sequences_wor import (
    MeanSequence,
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

__all__ = [
    "MeanSequence",
    "Plan",
    "beta_binomial_sequence",
    "betting",
    "betting_items",
    "betting_paired_wor",
    "betting_wor",
    "empirical_bernstein",
    "empirical_bernstein_wor",
    "hoeffding",
    "hoeffding_wor",
    "increments_half_width",
    "maximal_half_width",
    "prior_posterior",
    "prior_posterior_at",
    "prior_posterior_wor",
    "sequence_bound",
    "sequence_bounds",
    "sequence_half_width",
    "tightest",
]


def sequence_half_width(se: float, level: float, planned_half_width: float) -> float:
    """Bound a mean at all looks at once, in information time.

    With I = 1/se², P(|error| > se √((I r + 1)/(I r) · ln((I r + 1)/alpha²)) at some look) tends to
    at most alpha = 1 - level, for estimates whose error is like a Brownian motion in I: means of
    independent values, as more and more come in. It is asymptotic: it needs enough values for the
    sample variance and the normal law to hold from the first look on.

    r sets where the bound is tightest: at the information at which the half-width is the planned
    one. There I r = x with x = ln((1 + x)/alpha²), and half-width² = (1 + x)/I.

    Parameters
    ----------
    se : standard error now, > 0
    planned_half_width : where the run is meant to end, > 0, on the scale of `se`

    Source: normal mixture [R70]; its asymptotic form [WSAK24].
    """
    planned = (1 + tightest(1 - level)) / planned_half_width**2
    return se * sequence_bound(1 / se**2, level, planned)


def sequence_bound(information: float, level: float, planned_information: float) -> float:
    """Bound |z| at all looks at once, in information time; see `sequence_half_width`.

    √((I r + 1)/(I r) · ln((I r + 1)/alpha²)), with r so that it is least at the planned information.

    Parameters
    ----------
    information, planned_information : 1/se² now, and where the run is meant to end; only their
        ratio counts

    Source: normal mixture [R70]; its asymptotic form [WSAK24].
    """
    return float(sequence_bounds(np.array(information), level, planned_information))


def sequence_bounds(information: Array, level: float, planned_information: float) -> Array:
    """Bound each |z| of an array, as `sequence_bound`: every one at `level`, not all together."""
    alpha = 1 - level
    x = tightest(alpha) * information / planned_information
    bound: Array = np.sqrt((1 + 1 / x) * np.log((1 + x) / alpha**2))
    return bound


def increments_half_width(sd: float, n: int, level: float, planned_n: int) -> float:
    """Bound a mean of n increments at all n at once, tightest at the planned number.

    sd √(2 (n r + 1)/(n² r) · ln(√(n r + 1)/alpha)): `sequence_bound` with n for the information.
    The increments are those of a martingale, such as influence values of an estimator under
    adaptive sampling, each centred by what was known before it.

    Parameters
    ----------
    sd : standard deviation of the increments, estimated from them

    Source: [WSAK24]; r makes the bound least at `planned_n` exactly, not to first order as there.
    """
    return sd / math.sqrt(n) * sequence_bound(n, level, planned_n)


def beta_binomial_sequence(k: Array, n: Array, level: float) -> Interval:
    """Bound a chance by k successes in n trials, at every n at once and for any rule of stopping.

    {p : B(k + ½, n - k + ½)/B(½, ½) < p^k (1 - p)^(n-k)/alpha}: the Beta(½, ½) mixture of likelihood
    ratios against the true p is a martingale that starts at 1, so by Ville's inequality it reaches
    1/alpha with probability at most alpha. It is exact. The number of trials may depend on their
    outcomes, as it does where pairs are chosen by what is known.

    Parameters
    ----------
    k, n : arrays of one shape, 0 <= k <= n; n = 0 gives (0, 1)

    Source: mixture of likelihood ratios [R70], with the conjugate prior for a Bernoulli chance.
    """
    k, n = np.asarray(k, dtype=np.float64), np.asarray(n, dtype=np.float64)
    return Interval(_chance_from(k, n, level), 1 - _chance_from(n - k, n, level))


def _chance_from(k: Array, n: Array, level: float) -> Array:
    """Find the lower end, where the mixture falls through its limit on the way from 0 to k/n."""
    mixture = betaln(k + 0.5, n - k + 0.5) - betaln(0.5, 0.5) + math.log(1 - level)
    below, above = np.zeros_like(n), k / np.maximum(n, 1.0)
    for _ in range(60):
        p = (below + above) / 2
        is_refuted = mixture >= xlogy(k, p) + xlog1py(n - k, -p)
        below, above = np.where(is_refuted, p, below), np.where(is_refuted, above, p)
    return below


@cache
def tightest(alpha: float) -> float:
    """Solve x = ln((1 + x)/alpha²), where (1 + 1/x) ln((1 + x)/alpha²) is least.

    With u = 1 + x: u e^(-u) = alpha²/e, so u = -W(-alpha²/e) on the lower branch of Lambert's W.
    """
    return float(-lambertw(-(alpha**2) / math.e, -1).real - 1)
