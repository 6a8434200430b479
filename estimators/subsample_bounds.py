"""What a random part of a benchmark says about the whole, at a size that was fixed beforehand.

N items have scores in [0, R]; n of them are drawn at random without replacement, and their mean
stands for the mean of all. Every bound without data has the form

    P(|mean_n - mean_N| ≥ t) ≤ 2 exp(-2 t²/(R² v)),    half-width R √(v ln(2/delta)/2),

and differs in the variance factor v. R² v/4 is a sub-Gaussian proxy variance, so the factors of
independent parts add with the squares of their weights. Two readings of the probability:

- `fixed`, the default: the N scores are what they are, and chance is the draw alone. v is the least
  of `serfling_factor`, `bardenet_maillard_factor` and `barber_factor`; none of them looks at data, so
  that the least is a bound too.
- `exchangeable`: the scores are themselves random, part of a sequence that could go on for ever, and
  the probability is over them as well: `exchangeable_factor`. It is no theorem about N given scores.
  Scores 0 and 1, n = 1, t = .5: the draw misses with probability 1 and the bound says .7358. At the
  size of a benchmark the two differ by less than a thousandth.

A bound for a size that depends on the scores is a sequence: `estimators.confidence_sequences`. A run
that stops when a width *without data* is small enough stops at a size known beforehand, and needs
none.

Half-widths are in units of the score. For a difference of two scores in [0, R] the range is 2 R.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import betaln, digamma

from estimators.intervals import Array, Interval

Model = Literal["fixed", "exchangeable"]
"""Over what the probability is: the draw of items alone, or their scores too."""

Counts = NDArray[np.int64]


# --- variance factors --------------------------------------------------------------------------


def exchangeable_factor(n: ArrayLike, population: ArrayLike) -> Array:
    """Give v = (N - n)/(n N), the sum of squares of the weights of mean_n - mean_N.

    The weights sum to zero, so that what all scores have in common cancels.

    Source: [LFP26] Theorem 5.2, for infinitely exchangeable scores.
    """
    size, whole = _floats(n, population)
    return (whole - size) / whole * _inverse(size)


def serfling_factor(n: ArrayLike, population: ArrayLike) -> Array:
    """Give v = (1 - (n - 1)/N)/n, for a fixed population.

    Source: [S74] Corollary 1.1.
    """
    size, whole = _floats(n, population)
    return (1 - (size - 1) / whole) * _inverse(size)


def bardenet_maillard_factor(n: ArrayLike, population: ArrayLike) -> Array:
    """Give v = (1 - n/N)(1 + 1/n)/n, for a fixed population: below Serfling's where n > N/2.

    Source: [BM15] section 2.
    """
    size, whole = _floats(n, population)
    return (whole - size) / whole * (1 + _inverse(size)) * _inverse(size)


def barber_factor(n: ArrayLike, population: ArrayLike) -> Array:
    """Give v = (1 + eps_N)(N - n)/(n N), for a fixed population.

    Source: [B24], whose eps is `exchangeability_excess`.
    """
    return (1 + exchangeability_excess(population)) * exchangeable_factor(n, population)


def fixed_factor(n: ArrayLike, population: ArrayLike) -> Array:
    """Give the least of the three factors that hold for a fixed population."""
    rivals = (serfling_factor, bardenet_maillard_factor, barber_factor)
    least: Array = np.minimum.reduce([factor(n, population) for factor in rivals])
    return least


def exchangeability_excess(population: ArrayLike) -> Array:
    """Give eps_N = (H_N - 1)/(N - H_N), H_N = 1 + 1/2 + … + 1/N: what a fixed population costs.

    It is 1 for two items and 6.5e-4 for 14,042.

    Source: [B24].
    """
    # A single item has no contrast, so that any value serves.
    whole = np.maximum(np.asarray(population, dtype=np.float64), 2.0)
    harmonic = digamma(whole + 1) + np.euler_gamma
    return np.asarray((harmonic - 1) / (whole - harmonic))[()]


_FACTORS: dict[str, Callable[[ArrayLike, ArrayLike], Array]] = {
    "fixed": fixed_factor,
    "exchangeable": exchangeable_factor,
}


def _factor(model: Model) -> Callable[[ArrayLike, ArrayLike], Array]:
    if model not in _FACTORS:
        raise ValueError(f"model is {model!r}; it must be {' or '.join(_FACTORS)}")
    return _FACTORS[model]


# --- half-widths, tails, and how many items ----------------------------------------------------


def subsample_half_width(
    n: ArrayLike,
    population: ArrayLike,
    delta: ArrayLike,
    score_range: float = 1.0,
    model: Model = "fixed",
) -> Array:
    """Bound |mean_n - mean_N| with probability 1 - delta.

    min(R √(v ln(2/delta)/2), R (1 - n/N)): the second is where the mean lies whatever the scores of
    the items that were not drawn. 5,000 of 14,042 items at delta .05: .01541. It is 0 at n = N, and
    R at n = 0, where there is no estimate.

    Parameters
    ----------
    n, population : whole numbers, 0 <= n <= N, N >= 1; arrays of one shape, or numbers
    delta : two-sided error, in (0, 1). Of J simultaneous claims each gets delta/J.
    score_range : R, > 0
    model : see the module

    Returns
    -------
    in units of the score; a number where numbers went in

    Raises
    ------
    ValueError
        An argument is outside its range.

    Source: see the factors.
    """
    factor = _factor(model)
    size, whole = _checked(n, population, score_range)
    raw = score_range * np.sqrt(factor(size, whole) * _log_error(delta) / 2)
    least: Array = np.minimum(raw, score_range * (whole - size) / whole)
    return least


def exchangeable_half_width(
    n: ArrayLike, population: ArrayLike, delta: ArrayLike, score_range: float = 1.0
) -> Array:
    """Bound |mean_n - mean_N| for infinitely exchangeable scores, as the paper does.

    It is no bound for a given population: with scores 0 and 1 and n = 1 the error is .5 always, while
    this is below .5 from delta .736 on.

    Source: [LFP26] Theorem 5.2.
    """
    return subsample_half_width(n, population, delta, score_range, model="exchangeable")


def subsample_tail(
    half_width: ArrayLike,
    n: ArrayLike,
    population: ArrayLike,
    score_range: float = 1.0,
    model: Model = "fixed",
) -> Array:
    """Bound the probability that mean_n is off by `half_width` or more: 2 exp(-2 t²/(R² v)).

    It undoes `subsample_half_width`. 0 beyond what unseen items can make of the mean, so also for
    any t > 0 at n = N; 1 for t <= 0.

    Raises
    ------
    ValueError
        An argument is outside its range.
    """
    factor = _factor(model)
    size, whole = _checked(n, population, score_range)
    t = np.maximum(np.asarray(half_width, dtype=np.float64), 0.0) / score_range
    v = factor(size, whole)
    with np.errstate(divide="ignore", invalid="ignore"):  # v = 0 at n = N, where t decides below
        bound = np.minimum(1.0, 2 * np.exp(-2 * t**2 / v))
    # What is possible must not count as impossible for the rounding of t.
    is_impossible = t > (whole - size) / whole * (1 + 1e-9)
    return np.where(t == 0, 1.0, np.where(is_impossible, 0.0, bound))[()]


def items_for_half_width(
    half_width: ArrayLike,
    population: ArrayLike,
    delta: ArrayLike,
    score_range: float = 1.0,
    model: Model = "fixed",
) -> Counts:
    """Give the least n >= 1 at which `subsample_half_width` is at most `half_width`.

    It is found by bisection on that function itself, so that rounding can't move it by one.

    Parameters
    ----------
    half_width : >= 0, in units of the score
    population, delta, score_range, model : as there

    Raises
    ------
    ValueError
        An argument is outside its range.
    """
    wanted = np.asarray(half_width, dtype=np.float64)
    if not (wanted >= 0).all():
        raise ValueError(f"half_width is {half_width!r}; it must not be negative")
    _, whole = _checked(0, population, score_range)
    wanted, whole, delta = np.broadcast_arrays(wanted, whole, np.asarray(delta, dtype=np.float64))

    def is_enough(n: Counts) -> NDArray[np.bool_]:
        return np.asarray(subsample_half_width(n, whole, delta, score_range, model) <= wanted)

    return _first(is_enough, np.zeros(whole.shape, dtype=np.int64), whole.astype(np.int64))


def possible_range(
    total: ArrayLike, n: ArrayLike, population: ArrayLike, score_range: float = 1.0
) -> Interval:
    """Give where the mean of all lies for certain: every unseen score is between 0 and R.

    Parameters
    ----------
    total : sum of the n scores that were seen
    """
    size, whole = _checked(n, population, score_range)
    lower = np.asarray(total, dtype=np.float64) / whole
    return Interval(lower, lower + score_range * (whole - size) / whole)


def subsample_interval(
    total: ArrayLike,
    n: ArrayLike,
    population: ArrayLike,
    delta: ArrayLike,
    score_range: float = 1.0,
    model: Model = "fixed",
) -> Interval:
    """Bound the mean of all scores by the mean of n ± its half-width, cut at `possible_range`.

    Parameters
    ----------
    total : sum of the n scores that were seen; missing answers count 0 or R by a rule made
        beforehand, or both ways for the wider of two intervals, and are never dropped
    n, population, delta, score_range, model : as in `subsample_half_width`

    Raises
    ------
    ValueError
        An argument is outside its range.
    """
    low, high = possible_range(total, n, population, score_range)
    half = subsample_half_width(n, population, delta, score_range, model)
    mean = np.asarray(total, dtype=np.float64) / np.maximum(np.asarray(n), 1)
    # At n = 0 the half-width is R and the mean is no estimate: only the range is left.
    return Interval(np.maximum(mean - half, low), np.minimum(mean + half, high))


# --- bounds that look at the scores ------------------------------------------------------------


def hypergeometric_interval(
    k: ArrayLike, n: ArrayLike, population: ArrayLike, delta: float
) -> Interval:
    """Bound the share of ones among N by k ones among n, exactly.

    With M ones among N, k is hypergeometric. The lower end is the least M with P(K ≥ k) > delta/2,
    the upper end mirrors it. Coverage is at least 1 - delta for every M. With 5,000 of 14,042 and a
    share of .7 the half-width is .0103, where a bound without data has .0154.

    Parameters
    ----------
    k, n, population : whole numbers, 0 <= k <= n <= N; arrays of one shape, or numbers
    delta : two-sided error, in (0, 1)

    Returns
    -------
    Interval of multiples of 1/N; (0, 1) at n = 0, and k/N twice at n = N

    Raises
    ------
    ValueError
        An argument is outside its range.

    Source: [B87]. O(√N log N) for each k.
    """
    size, whole = _checked(n, population, 1.0)
    ones, size, whole = np.broadcast_arrays(np.asarray(k, dtype=np.float64), size, whole)
    if not ((ones >= 0) & (ones <= size) & (ones == np.floor(ones))).all():
        raise ValueError(f"k is {k!r}; it must be a whole number from 0 to n")
    log_alpha = -_log_error(delta)
    lower = _least_ones(ones, size, whole, log_alpha)
    upper = whole - _least_ones(size - ones, size, whole, log_alpha)
    return Interval((lower / whole)[()], (upper / whole)[()])


def _least_ones(k: Array, n: Array, whole: Array, log_alpha: Array) -> Counts:
    """Give the least number of ones with P(K ≥ k) > alpha."""

    def is_likely(ones: Counts) -> NDArray[np.bool_]:
        return np.asarray(_log_upper_tail(k, n, whole, ones.astype(np.float64)) > log_alpha)

    # Below k it can't be; with n - k zeros in all, k or more is certain.
    return _first(is_likely, (k - 1).astype(np.int64), (whole - n + k).astype(np.int64))


def _log_upper_tail(k: Array, n: Array, whole: Array, ones: Array) -> Array:
    """Give ln P(K ≥ k), K hypergeometric, by its terms from k on: each is the last times a ratio."""
    mean = n * ones / whole
    sd = np.sqrt(mean * (1 - ones / whole) * (whole - n) / np.maximum(whole - 1, 1))
    # What lies further than ten standard deviations below the mean is nothing beside alpha.
    least = np.maximum(0.0, n + ones - whole)
    first = np.maximum(np.maximum(k, least), np.floor(mean - 10 * sd))
    n_terms = int(20 * sd.max(initial=0.0)) + 40
    x = first[..., None] + np.arange(n_terms)
    m, size, zeros = ones[..., None], n[..., None], (whole - ones - n)[..., None]
    ratio = np.maximum(m - x, 0) * np.maximum(size - x, 0) / ((x + 1) * (zeros + x + 1))
    with np.errstate(divide="ignore"):  # past the last possible value the ratio is 0
        steps = np.cumsum(np.log(ratio), axis=-1)
    start = _log_choose(ones, first) + _log_choose(whole - ones, n - first) - _log_choose(whole, n)
    tail = start + np.logaddexp(0.0, np.logaddexp.reduce(steps, axis=-1))
    return np.where(first > np.minimum(n, ones), -np.inf, tail)


def _log_choose(n: Array, k: Array) -> Array:
    inside = np.clip(k, 0.0, n)
    return np.asarray(-np.log1p(n) - betaln(inside + 1, n - inside + 1))


def items_for_hypergeometric(half_width: float, population: int, delta: float, share: float) -> int:
    """Give an n from which on `hypergeometric_interval` has at most this half-width.

    It is for k = share · n, rounded, so for planning: at the true share a draw gives it or about it.
    Shares of a whole number of items make the width jump, so that n is exact up to a few items. For
    ±.01541 of 14,042 at delta .05: 1,844 at .8505, 2,405 at .7731, where a bound without data needs
    5,000.

    Parameters
    ----------
    half_width : half of upper - lower, >= 0
    share : of ones that is expected, in [0, 1]

    Raises
    ------
    ValueError
        An argument is outside its range.
    """
    if not 0 <= share <= 1:
        raise ValueError(f"share is {share}; it must be in [0, 1]")
    if not half_width >= 0:
        raise ValueError(f"half_width is {half_width!r}; it must not be negative")

    def is_enough(n: Counts) -> NDArray[np.bool_]:
        # Whole numbers of ones among n that the population can have.
        ones = np.clip(np.round(share * n), 0, n)
        lower, upper = hypergeometric_interval(ones, n, population, delta)
        return np.asarray((upper - lower) / 2 <= half_width)

    return int(_first(is_enough, np.array(0), np.array(population)))


def empirical_bernstein_half_width(
    sd: ArrayLike,
    n: ArrayLike,
    population: ArrayLike,
    delta: ArrayLike,
    score_range: float = 1.0,
) -> Array:
    """Bound |mean_n - mean_N| by the sample's standard deviation, for a fixed population.

    sd √(2 r l/n) + (7/3 + 3/√2) R l/n with l = ln(10/delta) and r the lesser of 1 - (n - 1)/N and
    (1 - n/N)(1 + 1/n). It pays for graded scores that vary little: with N = 14,042 and delta .05 it
    is below the bound without data from n = 544 (sd .1) or 1,221 (sd .2) on, and never from sd .3.
    Taking the narrower of the two after the data were seen needs delta split between them.

    Parameters
    ----------
    sd : of the n scores, with n in the denominator
    n, population, delta, score_range : as in `subsample_half_width`

    Raises
    ------
    ValueError
        An argument is outside its range.

    Source: [BM15] Theorem 4.3, one-sided at five times its delta; two-sided, that is delta/10.
    """
    size, whole = _checked(n, population, score_range)
    spread = np.asarray(sd, dtype=np.float64)
    if not (spread >= 0).all():
        raise ValueError(f"sd is {sd!r}; it must not be negative")
    log = _log_error(delta) + np.log(5)
    v = np.minimum(serfling_factor(size, whole), bardenet_maillard_factor(size, whole))
    # Without answers both terms are infinite; a spread of 0 must not make the first undefined.
    first = np.where(size > 0, spread, 1.0) * np.sqrt(2 * v * log)
    raw = first + (7 / 3 + 3 / np.sqrt(2)) * score_range * log * _inverse(size)
    least: Array = np.minimum(raw, score_range * (whole - size) / whole)
    return least


# --- weights and strata ------------------------------------------------------------------------


def contrast_half_width(
    weights: ArrayLike,
    delta: float,
    score_range: float = 1.0,
    model: Model = "fixed",
    *,
    block: ArrayLike | None = None,
) -> float:
    """Bound |Σ a x| for weights that sum to zero within every block of exchangeable scores.

    R √(Σ_blocks (1 + eps) Σ a² · ln(2/delta)/2), with eps of the block's size for a fixed population
    and 0 for exchangeable scores; never more than the largest value that Σ a x can take. Where the
    weights of a block do not cancel, neither does what its scores have in common, and there is no
    such bound.

    Parameters
    ----------
    weights : (N,) a, one for each score of the population, drawn or not
    block : (N,) numbers; None: one block

    Raises
    ------
    ValueError
        The weights of a block do not sum to zero, or an argument is outside its range.

    Source: [LFP26] Theorem 5.2; [B24] for a fixed population.
    """
    a = np.asarray(weights, dtype=np.float64)
    _checked(1, a.size, score_range)
    groups = np.zeros(a.shape, dtype=np.int64) if block is None else np.asarray(block)
    _, member, size = np.unique(groups, return_inverse=True, return_counts=True)
    sums, sizes = np.bincount(member, a), np.bincount(member, np.abs(a))
    if not (np.abs(sums) <= 1e-9 * sizes).all():
        worst = float(sums[np.argmax(np.abs(sums))])
        raise ValueError(f"the weights of a block sum to {worst:g}; they must sum to 0 in each")
    _factor(model)  # refuses another word
    excess = exchangeability_excess(size) if model == "fixed" else 0.0
    v = float(np.sum((1 + excess) * np.bincount(member, a * a)))
    raw = score_range * float(np.sqrt(v * _log_error(delta) / 2))
    return min(raw, score_range * float(sizes.sum()) / 2)


def stratified_half_width(
    n: ArrayLike,
    population: ArrayLike,
    weights: ArrayLike,
    delta: float,
    score_range: float = 1.0,
    model: Model = "fixed",
) -> float:
    """Bound the error of Σ_s w_s mean_s, drawn independently in every stratum.

    R √(Σ w_s² v_s ln(2/delta)/2). A stratum without answers cancels nothing: R/2 stands for its mean
    and w_s R/2 is added outside the root. Macro means have w_s = 1/S and micro means N_s/N; a simple
    draw from all is read as stratified by the numbers that it happened to give.

    Parameters
    ----------
    n, population : (S,) drawn from each stratum, and there are
    weights : (S,) w >= 0

    Raises
    ------
    ValueError
        An argument is outside its range.

    Source: [LFP26] Theorem 5.2 for each stratum; proxy variances of independent strata add.
    """
    factor = _factor(model)
    size, whole = _checked(n, population, score_range)
    w = _weights(weights, size)
    is_drawn = size > 0
    v = np.where(is_drawn, factor(np.maximum(size, 1), whole), 0.0)
    by_chance = np.sqrt(np.sum(w**2 * v) * _log_error(delta) / 2)
    unseen = np.sum(w * ~is_drawn) / 2
    certain = np.sum(w * np.where(is_drawn, (whole - size) / whole, 0.5))
    return score_range * min(float(by_chance + unseen), float(certain))


def allocate(n: int, population: ArrayLike, weights: ArrayLike) -> Counts:
    """Divide n draws among strata so that Σ w_s² (N_s - n_s)/(n_s N_s) is least.

    Exact in whole numbers: the next draw goes where it lowers the sum most, w²/(m (m + 1)), which
    falls in m. So n_s ∝ w_s, up to N_s; for macro means, the same of each. Ties go to the first.

    Parameters
    ----------
    n : draws in all, 0 <= n <= Σ N_s
    population, weights : (S,), w > 0

    Raises
    ------
    ValueError
        An argument is outside its range.

    Source: [C77] chapter 5, Neyman's rule for strata of equal variance. O(S) per bisection step.
    """
    _, whole = _checked(0, population, 1.0)
    w = _weights(weights, whole)
    if not (w > 0).all():
        raise ValueError("weights must be positive: a stratum without weight needs no draws")
    if not 0 <= n <= whole.sum():
        raise ValueError(f"n is {n!r}; there are {whole.sum():.0f} items")

    def drawn(scale: float) -> Array:
        """Give the draws that lower the sum by 1/scale² or more: m (m + 1) ≤ (w scale)²."""
        steps = np.floor((1 + np.sqrt(1 + 4 * (w * scale) ** 2)) / 2)
        return np.minimum(whole, steps if scale else np.zeros_like(w))

    low, high = 0.0, float((2 * whole / w).max())
    for _ in range(200):
        middle = (low + high) / 2
        if not low < middle < high:
            break
        low, high = (middle, high) if drawn(middle).sum() <= n else (low, middle)
    found = drawn(low).astype(np.int64)
    while (left := n - int(found.sum())) > 0:
        with np.errstate(divide="ignore"):  # the first draw of a stratum outweighs all others
            gain = np.where(found < whole, w * w / (found * (found + 1.0)), -np.inf)
        # Among strata without a draw the heaviest stand first.
        best = np.lexsort((np.arange(w.size), -w, -gain))[
            : min(left, int((gain == gain.max()).sum()))
        ]
        found[best] += 1
    return found


# --- any function of the scores ----------------------------------------------------------------


def bounded_difference_proxy(differences: ArrayLike, mixture: float = 0.0) -> float:
    """Give the proxy variance of a function of exchangeable scores: Σ c²/4 + sigma²_mix.

    Parameters
    ----------
    differences : (n,) c, how much the function can change with one score; R/n for their mean
    mixture : proxy variance of its expectation given the latent law, square units of the function;
        0 for contrasts, where it cancels

    Source: [LFP26] Theorem 4.2.
    """
    c = np.asarray(differences, dtype=np.float64)
    return float(np.sum(c * c) / 4 + mixture)


def sub_gaussian_half_width(proxy: ArrayLike, delta: ArrayLike) -> Array:
    """Give √(2 sigma² ln(2/delta)), which |f - E f| exceeds with probability at most delta."""
    return np.sqrt(2 * np.asarray(proxy, dtype=np.float64) * _log_error(delta))


def sub_gaussian_tail(half_width: ArrayLike, proxy: ArrayLike) -> Array:
    """Give min(1, 2 exp(-t²/(2 sigma²))), a bound for P(|f - E f| ≥ t)."""
    t = np.asarray(half_width, dtype=np.float64)
    bound: Array = 2 * np.exp(-(t**2) / (2 * np.asarray(proxy, dtype=np.float64)))
    return np.minimum(1.0, bound)


# --- arguments ---------------------------------------------------------------------------------


def _checked(n: ArrayLike, population: ArrayLike, score_range: float) -> tuple[Array, Array]:
    size, whole = _floats(n, population)
    if not ((whole >= 1) & (whole == np.floor(whole)) & np.isfinite(whole)).all():
        raise ValueError(f"population is {population!r}; it must be a whole number from 1 on")
    if not ((size >= 0) & (size <= whole) & (size == np.floor(size))).all():
        raise ValueError(f"n is {n!r}; it must be a whole number from 0 to {population!r}")
    if not 0 < score_range < np.inf:
        raise ValueError(f"score_range is {score_range}; it must be positive")
    return size, whole


def _weights(weights: ArrayLike, strata: Array) -> Array:
    w = np.asarray(weights, dtype=np.float64)
    if w.shape != strata.shape or not ((w >= 0) & np.isfinite(w)).all():
        raise ValueError(f"weights must be finite, not negative, one for each of {strata.shape}")
    return w


def _log_error(delta: ArrayLike) -> Array:
    """Give ln(2/delta), two-sided."""
    error = np.asarray(delta, dtype=np.float64)
    if not ((error > 0) & (error < 1)).all():
        raise ValueError(f"delta is {delta!r}; it must be in (0, 1)")
    return np.log(2 / error)


def _floats(n: ArrayLike, population: ArrayLike) -> tuple[Array, Array]:
    return np.asarray(n, dtype=np.float64), np.asarray(population, dtype=np.float64)


def _inverse(n: Array) -> Array:
    """Give 1/n, inf at 0: there every bound gives way to what is certain."""
    return np.divide(1.0, n, out=np.full_like(n, np.inf), where=n > 0)[()]


def _first(is_so: Callable[[Counts], NDArray[np.bool_]], low: Counts, high: Counts) -> Counts:
    """Give the least number in (low, high] of which a claim holds that holds from there on.

    Afterwards it holds of the result and not of the number before, whatever rounding does.
    """
    while (open_ := high - low > 1).any():
        middle = np.where(open_, (low + high) // 2, high)
        holds = is_so(middle)
        low, high = np.where(open_ & ~holds, middle, low), np.where(open_ & holds, middle, high)
    return high[()]
