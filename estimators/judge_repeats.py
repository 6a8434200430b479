"""Items that a judge scores with noise, each the same number of times: bounds for the expected scores.

Item i has the expected score q_i in [0, R]. m calls to the judge give m independent scores of it. The
unknown is the mean of q over all N items. It is missed by what was not drawn, and by the judge's
noise, which stays even where all items were drawn.

m is fixed beforehand. To call again until two agree, or to take a majority, changes what is
estimated: at q = .7 two calls that agree say yes with .784.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import ArrayLike

from estimators.intervals import Array, Interval
from estimators.subsample_bounds import Model, exchangeable_factor, fixed_factor

_FACTORS = {"fixed": fixed_factor, "exchangeable": exchangeable_factor}


def judge_half_width(
    n: int,
    population: int,
    repeats: float,
    delta: float,
    score_range: float = 1.0,
    model: Model = "fixed",
) -> float:
    """Bound the mean of n items' m-call means against the mean expected score of all N.

    R √(ln(2/delta)/2 · (v + 1/(N m))), with v the factor of `subsample_half_width`: as if all N m
    calls had been drawn up beforehand, so that the noise is that of N m calls and not of n m. At
    n = N and m = 1 this is Hoeffding's bound.

    Parameters
    ----------
    n, population : 0 <= n <= N; at n = 0 nothing is known
    repeats : m, >= 1; infinite for a judge without noise
    delta : two-sided error
    score_range : R
    model : what v is; see `estimators.subsample_bounds`

    Raises
    ------
    ValueError
        A number is out of range.

    Source: [LFP26] Theorem 5.2 and [H63], added as independent proxies.
    """
    is_right = 0 <= n <= population >= 1 and repeats >= 1 and 0 < delta < 1 and score_range > 0
    if not is_right or model not in _FACTORS:
        raise ValueError(
            f"n = {n} of {population}, {repeats} repeats, delta = {delta}, range {score_range}, "
            f"model {model}"
        )
    if n == 0:
        return score_range
    factor = float(_FACTORS[model](n, population))
    half = math.sqrt(math.log(2 / delta) / 2 * (factor + 1 / (population * repeats)))
    return score_range * min(half, 1.0)


def stratified_judge_half_width(
    n: ArrayLike,
    population: ArrayLike,
    weights: ArrayLike,
    repeats: float,
    delta: float,
    score_range: float = 1.0,
    model: Model = "fixed",
) -> float:
    """Bound Σ_s w_s mean_s of items' m-call means against that of the expected scores.

    R √(ln(2/delta)/2 · Σ w_s² (v_s + 1/(N_s m))). A stratum without items is off by w_s R/2 at most,
    which is added outside the root. One stratum is `judge_half_width`.

    Parameters
    ----------
    n, population : (S,) drawn from each stratum, and there are
    weights : (S,) w >= 0
    repeats, delta, score_range, model : as `judge_half_width`

    Source: as `judge_half_width`; proxy variances of independent strata add.
    """
    drawn, sizes, shares = (np.asarray(each, dtype=np.float64) for each in (n, population, weights))
    is_there = drawn > 0
    factor = _FACTORS[model](np.maximum(drawn, 1), sizes) + 1 / (sizes * repeats)
    by_chance = math.sqrt(math.log(2 / delta) / 2 * float((shares**2 * factor) @ is_there))
    return score_range * min(by_chance + float(shares @ ~is_there) / 2, float(shares.sum()))


def noise_half_width(
    population: int, repeats: float, delta: float, score_range: float = 1.0
) -> float:
    """Bound the mean score of N m calls against its expectation: R √(ln(2/delta)/(2 N m)).

    Parameters
    ----------
    population, repeats, delta, score_range : as `judge_half_width`

    Raises
    ------
    ValueError
        A number is out of range.

    Source: [H63] Theorem 2.
    """
    return judge_half_width(population, population, repeats, delta, score_range)


def expected_interval(
    sequence: Interval,
    population: int,
    repeats: float,
    delta: float,
    *,
    low: float = 0.0,
    high: float = 1.0,
) -> Interval:
    """Turn bounds for the mean of all items' m-call means into bounds for the expected scores.

    Both ends move out by the judge's noise. A sequence over m-call means at alpha_1 and `delta` =
    alpha_2 hold together with 1 - alpha_1 - alpha_2, at every look: the noise is one number, that of
    all N m calls.

    Parameters
    ----------
    sequence : ends of one shape, of a sequence over `repeat_means` in the order of sending
    population, repeats : N and m
    delta : alpha_2, the judge's part of the error
    low, high : ends of the scale

    Raises
    ------
    ValueError
        A number is out of range.

    Source: union of a sequence and [H63] Theorem 2.
    """
    noise = noise_half_width(population, repeats, delta, high - low)
    return Interval(
        np.maximum(sequence.lower - noise, low), np.minimum(sequence.upper + noise, high)
    )


def repeat_means(scores: ArrayLike) -> Array:
    """Give each item's mean over its calls, (n, m) to (n,).

    Raises
    ------
    ValueError
        An item lacks a score: numbers of calls that depend on the scores change what is estimated.
        What can't be had is to be scored by a rule fixed beforehand.
    """
    found = np.asarray(scores, dtype=np.float64)
    if found.ndim != 2 or np.isnan(found).any():
        raise ValueError("scores: each item needs the same number of calls, fixed beforehand")
    return np.asarray(found.mean(axis=1))


def best_repeats(
    within_variance: float, between_variance: float, item_cost: float, call_cost: float
) -> int:
    """Say how many calls an item are worth most, where an item costs something before its first call.

    √(within/between · item_cost/call_cost), to the whole number beside it with the smaller product of
    variance and cost, and at least 1. Without a cost of the item it is 1: a call on another item says
    more than one on the same.

    Parameters
    ----------
    within_variance : of calls on one item, >= 0
    between_variance : of items' expected scores, > 0
    item_cost, call_cost : in one currency, >= 0 and > 0

    Raises
    ------
    ValueError
        A variance or cost is out of range.

    Source: [C77] chapter 10, two-stage sampling.
    """
    if not (within_variance >= 0 and between_variance > 0 and item_cost >= 0 and call_cost > 0):
        raise ValueError("variances and costs: >= 0, and above 0 between items and for a call")

    def product(m: int) -> float:
        return (between_variance + within_variance / m) * (item_cost + m * call_cost)

    best = math.sqrt(within_variance / between_variance * item_cost / call_cost)
    below = max(1, math.floor(best))
    return min(below, below + 1, key=product)
