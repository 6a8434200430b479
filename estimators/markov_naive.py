"""What raw verdicts say about two groups, where they tend to, and where their variance comes from.

Their difference does not tend to the difference of qualities: acceptance is a curved function of
quality, so a group that is spread wider has another mean at equal mean quality, and more batches
only make that difference more significant.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Hashable, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import brentq
from scipy.special import expit, ndtr

from estimators.batches import ABSENT, Sequences
from estimators.intervals import Array
from estimators.markov_judge import MarkovJudge
from estimators.markov_model import MarkovFit
from estimators.quadrature import gauss_hermite

SPREADS = (0.8, 1.25)
"""Ratios of the groups' spreads of quality beyond which the naive difference is warned of."""

MIDDLE = (0.35, 0.65)
"""Mean acceptance outside of which it is: there the curve is bent."""

MOST_ITEMS = 7
"""Items up to which all orders are enumerated."""


class NaiveContrast(NamedTuple):
    """The mean of the batches' differences of group means, on the probability scale.

    `z` and `p` use the spread between batches; nan with fewer than two batches with both groups.
    """

    est: float
    se: float
    z: float
    p: float
    n_batches: int


def naive_contrast(
    source: Sequences, first: Sequence[Hashable], second: Sequence[Hashable]
) -> NaiveContrast:
    """Compare two groups' raw acceptance, batch by batch."""
    side = np.zeros(len(source.items) + 1)
    place = {item: i for i, item in enumerate(source.items)}
    side[[place[item] for item in first]] = 1.0
    side[[place[item] for item in second]] = -1.0
    rated = source.is_rated
    of_slot = side[np.where(source.order == ABSENT, len(source.items), source.order)]
    in_first, in_second = rated & (of_slot > 0), rated & (of_slot < 0)
    is_both = in_first.any(axis=1) & in_second.any(axis=1)
    y, in_first, in_second = (part[is_both] for part in (source.state == 1, in_first, in_second))
    difference = (y & in_first).sum(axis=1) / in_first.sum(axis=1)
    difference -= (y & in_second).sum(axis=1) / in_second.sum(axis=1)
    n = len(difference)
    if n < 2:
        est = float(difference.mean()) if n else np.nan
        return NaiveContrast(est, np.nan, np.nan, np.nan, n)
    est, se = float(difference.mean()), float(difference.std(ddof=1) / np.sqrt(n))
    z = est / se if se > 0 else np.nan
    return NaiveContrast(est, se, z, float(2 * ndtr(-abs(z))), n)


class NaiveLimit(NamedTuple):
    """Where the naive difference tends to by a fit, and the parts of it.

    Attributes
    ----------
    slope : pi'(mu) delta, of the difference of mean qualities: what it should show
    curvature : pi''(mu)/2 (s_A² - s_B²), of the groups' spreads: what it shows besides
    exact : mean of pi over A less that over B, of which the two are the leading terms
    ratio : size of the larger group over the smaller
    spreads : SD of qualities in A over that in B; nan where B has none
    acceptance : mean acceptance of all items
    warns : the spreads or the acceptance are such that the naive difference misleads
    """

    slope: float
    curvature: float
    exact: float
    ratio: float
    spreads: float
    acceptance: float
    warns: bool


def naive_limit(
    fit: MarkovFit, first: Sequence[Hashable], second: Sequence[Hashable]
) -> NaiveLimit:
    """Predict the limit of the naive difference from a fit.

    pi(theta) is the acceptance of an item of that quality in a random slot of a batch of all items,
    among verdicts that accept with the mean rate of the same batch: for each batch effect b the rate
    a solves a = mean over items and slots, which is exact for what one item feels of many others.
    mu is the mean of the groups' mean qualities, s² the groups' variances.

    Source: [LD26].
    """
    place = {item: i for i, item in enumerate(fit.items)}
    a, b = (fit.theta[[place[item] for item in group]] for group in (first, second))
    theta = np.concatenate((a, b))
    mean = (float(a.mean()) + float(b.mean())) / 2
    spread = float(a.var()), float(b.var())
    h = 1e-3
    at = np.array([mean - h, mean, mean + h])
    value = _acceptance(fit, theta, np.concatenate((at, theta)))
    slope = (value[2] - value[0]) / (2 * h)
    bend = (value[2] - 2 * value[1] + value[0]) / h**2
    of_items = value[3:]
    rate = float(of_items.mean())
    ratio = math.sqrt(spread[0] / spread[1]) if spread[1] > 0 else np.nan
    is_even = SPREADS[0] <= ratio <= SPREADS[1]
    is_middle = MIDDLE[0] <= rate <= MIDDLE[1]
    sizes = len(a), len(b)
    return NaiveLimit(
        slope=float(slope * (a.mean() - b.mean())),
        curvature=float(bend / 2 * (spread[0] - spread[1])),
        exact=float(of_items[: len(a)].mean() - of_items[len(a) :].mean()),
        ratio=max(sizes) / min(sizes),
        spreads=ratio,
        acceptance=rate,
        warns=not (is_even and is_middle),
    )


def _acceptance(fit: MarkovFit, theta: Array, at: Array) -> Array:
    """Acceptance of items of quality `at` in a random slot among items of quality `theta`."""
    k, v = fit.lags, len(theta)
    slopes = fit.slopes
    lag = np.array([slopes[f"lag{j}"] for j in range(1, k + 1)])
    starts = fit.coef[len(fit.items) + k : len(fit.items) + 2 * k]
    rule = gauss_hermite(25)
    effects = np.sqrt(2) * fit.sigma_b * rule.nodes
    mass = np.exp(rule.log_weights - rule.nodes**2) / np.sqrt(np.pi)
    words = (np.arange(2**k)[:, None] >> np.arange(k)) & 1

    def in_batch(quality: Array, effect: float, rate: float) -> Array:
        chance = np.prod(np.where(words == 1, rate, 1 - rate), axis=1)
        eta = quality[:, None] + effect
        later = expit(eta + words @ lag) @ chance
        total = max(0, v - k) * later
        for s in range(min(k, v)):
            # In slot s + 1 only the first s lags are there.
            known = words[:, :s] @ lag[:s]
            total = total + expit(eta + starts[s] + known) @ chance
        found: Array = total / v
        return found

    value = np.zeros(len(at))
    for effect, part in zip(effects, mass, strict=True):
        rate = brentq(
            lambda r, e=effect: float(in_batch(theta, e, r).mean()) - r, 0.0, 1.0, xtol=1e-12
        )
        value += part * in_batch(at, float(effect), float(rate))
    return value


class VarianceSplit(NamedTuple):
    """Variance of one batch's weighted sum of verdicts, by where it comes from.

    `rating`: of the verdicts given the order, with the batch's effect. `ordering`: of what the order
    makes them expect; in a balanced block, per batch, of the block's mean times its batches.
    """

    rating: float
    ordering: float


def order_variance_split(
    judge: MarkovJudge, weights: Array, square: NDArray[np.int64] | None = None
) -> VarianceSplit:
    """Split the variance of Σ w y over a batch exactly, by all orders and all verdicts.

    var = E var(Σ w y | order) + var E(Σ w y | order). For independent shuffles every order has the
    same chance; a block of a square design has random names for its symbols, so its orders balance
    each other: in equal items its ordering part is 0.

    Parameters
    ----------
    weights : (v,), v up to 7
    square : (r, v) rows of symbols of one block; None: shuffles

    Raises
    ------
    ValueError
        There are too many items to enumerate.

    Cost: v! 2^v.
    Source: [LD26].
    """
    v = len(weights)
    if v > MOST_ITEMS:
        raise ValueError(f"{v} items have too many orders to enumerate; at most {MOST_ITEMS}")
    names = np.array(list(itertools.permutations(range(v))))
    mean, variance = _given_order(judge, weights, names)
    if square is None:
        return VarianceSplit(float(variance.mean()), float(mean.var()))
    # The place of an order among all, by reading it as a number.
    base = v ** np.arange(v)
    place = {int(key): i for i, key in enumerate(names @ base)}
    rows = np.array([[place[int(key)] for key in names[:, row] @ base] for row in square])
    of_block = mean[rows].mean(axis=0)
    return VarianceSplit(float(variance[rows].mean()), float(len(square) * of_block.var()))


def _given_order(
    judge: MarkovJudge, weights: Array, orders: NDArray[np.int64]
) -> tuple[Array, Array]:
    """Mean and variance of Σ w y given each order, over verdicts and batch effects."""
    n, v = orders.shape
    rule = gauss_hermite(25)
    effect = np.sqrt(2) * float(judge.sigma) * rule.nodes
    mass = np.exp(rule.log_weights - rule.nodes**2) / np.sqrt(np.pi)
    verdicts = (np.arange(2**v)[:, None] >> np.arange(v)) & 1
    mean, square = np.zeros(n), np.zeros(n)
    for said in verdicts:
        chance = np.broadcast_to(mass, (n, len(mass)))
        for s in range(v):
            eta = judge.theta[orders[:, s]]
            eta = eta + sum(judge.lags[k] * said[s - k - 1] for k in range(min(s, len(judge.lags))))
            if s < len(judge.starts):
                eta = eta + judge.starts[s]
            sign = 1.0 if said[s] else -1.0
            chance = chance * expit(sign * (eta[:, None] + effect))
        total = weights[orders] @ said
        p = chance.sum(axis=1)
        mean += p * total
        square += p * total**2
    return mean, square - mean**2


def deviation_bound(
    epsilon: float, n_batches: int, *, block: int = 1, variance: float | None = None
) -> float:
    """Bound P(|naive difference - its mean| ≥ epsilon) for a finite number of batches.

    Batches are independent and their differences lie in [-1, 1], so it is 2 exp(-n epsilon²/2)
    [H63]; with a variance v known beforehand 2 exp(-n epsilon²/(2 v + 4 epsilon/3)), Bernstein's.
    In a block design the blocks are what is independent: n is their number.

    Parameters
    ----------
    block : batches in a block
    variance : of one unit's difference; None: not known

    Source: [LD26]; [H63].
    """
    n = n_batches // block
    spread = 2.0 if variance is None else 2 * variance + 4 * epsilon / 3
    return min(1.0, 2 * math.exp(-n * epsilon**2 / spread))
