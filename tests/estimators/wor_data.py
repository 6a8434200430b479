"""Finite populations in random order, and sequences written out plainly, for tests."""

import math

import numpy as np
from scipy import stats
from scipy.special import betaln, gammaln


def yes_no(population, share):
    """A population of ones and zeros; the share of ones is as near as can be."""
    return (np.arange(population) < round(share * population)).astype(float)


def orders(rng, scores, n_orders):
    """Random orders of one population, (n_orders, N)."""
    return rng.permuted(np.tile(scores, (n_orders, 1)), axis=1)


def log_capital(x, mean, *, alpha=0.05, half_width=None, planned_n=None):
    """Logs of both capitals against one mean, after each score: scores in [0, 1], (..., N).

    The rule as it is written in the source, without a grid, for many orders at once.
    """
    n_all = x.shape[-1]
    t = np.arange(1, n_all + 1)
    after = np.cumsum(x, axis=-1)
    before = after - x
    guess = (0.5 + after) / (t + 1)
    squares = np.cumsum((x - guess) ** 2, axis=-1)
    variance = (0.25 + squares - (x - guess) ** 2) / t
    limit = math.log(2 / alpha)
    if half_width is not None:
        needed = 2 * limit * variance / half_width**2
        horizon = needed / (1 + needed / n_all)
    else:
        horizon = planned_n if planned_n is not None else t * np.log(t + 1)
    bet = np.sqrt(2 * limit / (variance * horizon))
    expected = np.clip((n_all * mean - before) / (n_all - t + 1), 0, 1)
    with np.errstate(divide="ignore"):
        below = np.minimum(bet, 0.5 / expected)
        above = np.minimum(bet, 0.5 / (1 - expected))
    up = np.cumsum(np.log1p(below * (x - expected)), axis=-1)
    down = np.cumsum(np.log1p(-above * (x - expected)), axis=-1)
    return up, down


def posterior_scan(k, n, population, alpha, a=1.0, b=1.0):
    """Shares of ones that prior over posterior doesn't refute: Bayes's rule, every count tried."""
    m = np.arange(population + 1)
    prior = np.exp(stats.betabinom.logpmf(m, population, a, b))
    posterior = prior * stats.hypergeom.pmf(k, population, m, n)
    posterior /= posterior.sum()
    # A tie is kept: it is as likely as one that is not refuted.
    kept = m[prior <= posterior / alpha * (1 + 1e-7)]
    return kept.min() / population, kept.max() / population


def log_choose(n, k):
    return gammaln(n + 1) - gammaln(k + 1) - gammaln(n - k + 1)


def log_posterior_ratio(k, n, population, ones):
    """Log of prior over posterior at the true number of ones, uniform prior."""
    data = log_choose(n, k) + betaln(k + 1, n - k + 1)
    likelihood = (
        log_choose(ones, k) + log_choose(population - ones, n - k) - log_choose(population, n)
    )
    return data - likelihood
