"""Where watched sequences are expected to end: their widths along the expected course of the scores.

A run ends at the first item at which its interval is narrow enough, so what is looked for is the median
half-width at each number of items. The reach of one look is found by letting each score be what it is
on average: a bet's capital grows by its expectation, and the variance so far is the expected one. Ends
are kept once they are reached while the mean that they stand around moves up and down, so that the
interval of all looks together is narrower: by the highest point of a random walk whose drift is the
falling of the reach, q/(2 drift) of variance q a unit of time, time being ln n. What is found is the
median number of items to about a twentieth, and no bound: half of all runs take more.

Of items that are drawn with chances of their own, scores are taken to have nothing to do with these
chances. Each draw's guess then has a larger variance and a longer way to go than the score itself.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import digamma, zeta

from estimators.benchmark_bounds import SequenceKind
from estimators.benchmark_order import Chances
from estimators.intervals import Array
from estimators.sequences_wor import prior_posterior_at

_POINTS = 200
"""Numbers of items at which a width is found, evenly spaced in logarithms from either end."""

_REACHES = 120
"""Distances from the mean at which capital is followed, evenly spaced in logarithms."""

_MEDIAN = 0.84
"""Median over mean of a sum of two highest points."""

_NEARBY = 0.12
"""Widths are compared at numbers that differ by so much of their logarithm, to see how they fall."""

_MOST_GAINED = 0.25
"""What looks before can take off a reach at most, as a share of it: early ends are far from steady."""

_STAKE = 0.5
"""Most that a bet can lose of its capital; as in `estimators.sequences_wor`."""

_OUTWARD, _MOST_OUTWARD = 0.01, 0.001
"""Half a candidate step, by which betting gives ends outward, as a share of the planned half-width."""

_ROUNDS, _SAME = 8, 1e-4
"""How often a width is planned for what the last plan reached; less when it changes by no more."""


class Scores(NamedTuple):
    """What scores are expected to be like.

    Attributes
    ----------
    low, high : ends of their scale
    mean, sd : in units of the scores; a sd that only yes and no can have makes them yes and no
    """

    low: float
    high: float
    mean: float
    sd: float


class _Law(NamedTuple):
    """Mean and SD on the scale from -1 to 1."""

    mean: float
    sd: float


class _Steps(NamedTuple):
    """What bets are made on, (n,) each or a number: on the scale from -1 to 1, with ends farther out.

    Attributes
    ----------
    mean, sd : of a score or, where chances differ, of a draw's guess at the mean
    low, high : ends between which it lies
    """

    mean: float
    sd: Array
    low: Array
    high: Array

    @classmethod
    def of(cls, law: _Law, t: Array, chances: Chances | None) -> _Steps:
        """Expect those around each number."""
        if chances is None:
            one = np.ones_like(t)
            return cls(law.mean, law.sd * one, -one, one)
        draws = _Draws.of(chances, t)
        return cls(law.mean, np.sqrt(draws.variance(law)), -np.ones_like(t), 2 * draws.most - 1)

    @property
    def mirrored(self) -> _Steps:
        """Those with their signs changed."""
        return _Steps(-self.mean, self.sd, -self.high, -self.low)

    def values(self) -> tuple[tuple[Array, Array], ...]:
        """Give two values and their chances: even ones where the scale has room, else at its end."""
        below, above = self.mean - self.low, self.high - self.mean
        up = np.clip(self.sd, 1e-12, np.maximum(above, 1e-12))
        down = self.sd**2 / up
        is_short = down > below
        down = np.where(is_short, below, down)
        up = np.where(is_short, self.sd**2 / np.maximum(below, 1e-12), up)
        share = down / np.maximum(down + up, 1e-300)
        return (self.mean - down, 1 - share), (self.mean + up, share)


class _Draws(NamedTuple):
    """What draws are like, (n,) each: how far from alike, and the longest that one counts for.

    With v = 1/(chance · items left) these are the mean of v² over draws, which is that of v over the
    items left, and the largest v. Both are 1 where all items have the same chance.
    """

    squares: Array
    most: Array

    @classmethod
    def of(cls, chances: Chances, t: Array) -> _Draws:
        """Read off an order's chances what they are like around each number."""
        left = np.arange(len(chances.own), 0, -1.0)
        sums = np.concatenate(([0.0], np.cumsum((chances.own * left) ** -2.0)))
        start, end = (
            np.floor(t / 2).astype(int),
            np.minimum(np.ceil(1.5 * t), len(left)).astype(int),
        )
        at = np.minimum(t.astype(int), len(left)) - 1
        squares = np.maximum((sums[end] - sums[start]) / (end - start), 1.0)
        return cls(squares, 1 / (chances.least * left)[at])

    def variance(self, law: _Law) -> Array:
        """Give that of the draws' guesses at the mean."""
        height = 1 + law.mean
        found: Array = self.squares * (law.sd**2 + height**2) - height**2
        return found


class _Course(NamedTuple):
    """Numbers of items, or of rounds, and the median half-width at each, on the scale from -1 to 1."""

    n: Array
    half_width: Array

    def first_at(self, half_width: float) -> float:
        """Find the number at which a half-width is reached."""
        return float(np.interp(-half_width, -self.half_width, self.n))

    def at(self, n: float) -> float:
        """Give the half-width at a number."""
        return float(np.interp(n, self.n, self.half_width))


# --- items of one order --------------------------------------------------------------------------


def items_for_sequence(
    kind: SequenceKind,
    half_width: float,
    population: int,
    *,
    alpha: float,
    scores: Scores,
    chances: Chances | None = None,
) -> int:
    """Predict at how many items half of all runs have this half-width, if it was planned.

    For ±.01541 of 14,042 yes-or-no scores at alpha .05 betting takes 810 at a mean of .97, 2,740 at
    .85, 3,560 at .77 and 4,610 at .5.

    Parameters
    ----------
    kind : see `estimators.sequences_wor`; prior-posterior wants yes or no
    half_width : > 0, in units of the scores
    population : N, items in all
    alpha : two-sided error, in (0, 1)
    chances : (N,) with which items are drawn, of betting; None: all alike

    Source: [WR20], [WR24] for the bets; following them at their expectation is ours.
    """
    half, law = _on_own_scale(scores)
    course = _course(kind, half_width / half, population, alpha, law, chances)
    return min(population, math.ceil(course.first_at(half_width / half)))


def sequence_half_width(
    kind: SequenceKind,
    n: int,
    population: int,
    *,
    alpha: float,
    scores: Scores,
    chances: Chances | None = None,
) -> float:
    """Predict the median half-width at n items, for a sequence that was planned for it.

    It undoes `items_for_sequence`. Without items it is half of the scale.
    """
    half, law = _on_own_scale(scores)
    if n >= population:
        return 0.0
    if n < 1:
        return half
    return half * _planned_for(
        _first_guess(law.sd**2, n, population, alpha),
        lambda width: _course(kind, width, population, alpha, law, chances).at(n),
    )


def _planned_for(width: float, reached: Callable[[float], float]) -> float:
    """Find the half-width that is reached by a plan for it; the plan matters little near there."""
    for _ in range(_ROUNDS):
        before, width = width, max(reached(width), 1e-9)
        if abs(width - before) <= _SAME * width:
            break
    return width


def _first_guess(variance: float, n: int, population: int, alpha: float) -> float:
    unseen = 1 / n - 1 / population
    return min(1.0, math.sqrt(2 * math.log(2 / alpha) * max(variance, 1e-4) * unseen))


def _course(
    kind: SequenceKind,
    half_width: float,
    population: int,
    alpha: float,
    law: _Law,
    chances: Chances | None,
) -> _Course:
    """Follow a sequence that is planned for a half-width."""
    ends = _numbers(population)
    n, log_limit = ends, math.log(2 / alpha)
    shaken: float | Array = law.sd
    match kind:
        case "betting":
            outward = min(_OUTWARD * half_width, _MOST_OUTWARD)
            steps = _Steps.of(law, _blocks(ends)[0], chances)
            shaken = steps.sd
            down, up = (
                _betting_reach(each, half_width, population, log_limit, ends) + outward
                for each in (steps, steps.mirrored)
            )
        case "prior_posterior":
            down, up = _posterior_reach(law, population, alpha, ends)
        case _:
            is_empirical = kind == "empirical_bernstein"
            down = up = _sums_reach(
                law, half_width, population, log_limit, ends, is_empirical=is_empirical
            )
    seen = n / population
    shake = shaken**2 / n
    if kind != "prior_posterior":
        # Sums weigh late scores by N/(N - t), so the mean that they stand around moves less.
        shake *= (seen / -np.log1p(-np.minimum(seen, 1 - 1e-9))) ** 2
    room = 1 - seen
    return _Course(
        n, _half_width(n, (down, up), shake, (room * (1 + law.mean), room * (1 - law.mean)))
    )


def _half_width(n: Array, reaches: Sequence[Array], shake: Array, rooms: Sequence[Array]) -> Array:
    """Give the median half-width of the interval of all looks up to each number.

    Parameters
    ----------
    reaches, rooms : below and above the mean: of one look, and of the sure range
    shake : variance of the mean's moves, a unit of ln n
    """
    sides = []
    for reach, room in zip(reaches, rooms, strict=True):
        kept = np.minimum.accumulate(reach)
        near, far = (np.interp(np.log(n) + by, np.log(n), kept) for by in (-_NEARBY, _NEARBY))
        fall = np.maximum((near - far) / (2 * _NEARBY), 1e-300)
        gained = np.minimum(_MEDIAN * shake / (2 * fall), _MOST_GAINED * kept)
        sides.append(np.minimum(np.minimum.accumulate(kept - gained), room))
    half: Array = (sides[0] + sides[1]) / 2
    return half


def _betting_reach(
    steps: _Steps, half_width: float, population: int, log_limit: float, ends: Array
) -> Array:
    """Say how far below the mean candidates are refuted, by capital that grows as it is expected to.

    A candidate d below the mean expects of a score N d/remaining less than it is.
    """
    t, lengths = _blocks(ends)
    variance = _learned(t, steps)
    bet = np.sqrt(2 * log_limit / (variance * _needed(log_limit, variance, half_width, population)))
    reach = np.geomspace(min(half_width, 1.0) / 8, 2.0, _REACHES)
    expected = steps.mean - population * reach / (population - t + 1)[:, None]
    stake = np.minimum(bet[:, None], _STAKE / np.maximum(expected - steps.low[:, None], 1e-300))
    growth = sum(
        share[:, None] * np.log1p(stake * (x[:, None] - expected)) for x, share in steps.values()
    )
    capital = np.cumsum(lengths[:, None] * growth, axis=0)
    # Capital rises with the distance; ln d is linear between two of them.
    beyond = capital >= log_limit
    after = np.where(beyond.any(axis=1), beyond.argmax(axis=1), _REACHES - 1)
    before, row = np.maximum(after - 1, 0), np.arange(len(t))
    less, more = capital[row, before], capital[row, after]
    share = np.clip((log_limit - less) / np.maximum(more - less, 1e-300), 0.0, 1.0)
    found: Array = reach[before] * (reach[after] / reach[before]) ** share
    return found


def _posterior_reach(law: _Law, population: int, alpha: float, ends: Array) -> tuple[Array, Array]:
    """Give both reaches of prior-posterior: between two whole numbers of ones they are linear."""
    n, share = ends.astype(np.int64), (1 + law.mean) / 2
    fewer = np.minimum(np.floor(share * n).astype(np.int64), n - 1)
    part = share * n - fewer
    few, many = (prior_posterior_at(k, n, population, level=1 - alpha) for k in (fewer, fewer + 1))
    lower, upper = (a + part * (b - a) for a, b in zip(few, many, strict=True))
    return 2 * np.maximum(share - lower, 0.0), 2 * np.maximum(upper - share, 0.0)


def _sums_reach(
    law: _Law,
    half_width: float,
    population: int,
    log_limit: float,
    ends: Array,
    *,
    is_empirical: bool,
) -> Array:
    """Give the margin of Hoeffding's or of the empirical-Bernstein sums, bets for scores in [0, 1]."""
    t, lengths = _blocks(ends)
    variance = _learned(t, law) if is_empirical else np.ones_like(t)
    needed = _needed(log_limit, variance, half_width, population)
    bet = np.minimum(
        2 * np.sqrt(2 * log_limit / (variance * needed)), _STAKE if is_empirical else 1
    )
    cost = bet**2 / 8
    if is_empirical:
        off = law.sd**2 * (1 + 1 / t) + (law.mean / t) ** 2
        cost = off / 4 * (-np.log1p(-bet) - bet)
    weight = np.cumsum(lengths * bet * population / (population - t + 1))
    margin: Array = 2 * (log_limit + np.cumsum(lengths * cost)) / weight
    return margin


def _numbers(most: int) -> Array:
    """Give numbers from 1 to the last, close to each other where a width changes fast: at both ends."""
    up = np.geomspace(1, most, _POINTS)
    found: Array = np.unique(np.round(np.concatenate((up, most + 1 - up))))
    return found


def _blocks(ends: Array) -> tuple[Array, Array]:
    """Give the middle and the length of each run of scores between two numbers."""
    starts = np.concatenate(([0.0], ends[:-1]))
    return (starts + 1 + ends) / 2, ends - starts


def _needed(log_limit: float, variance: Array, half_width: float, population: int) -> Array:
    """Count the scores that a plan expects to need; as in `estimators.sequences_wor`."""
    needed = 2 * log_limit * variance / half_width**2
    return needed / (1 + needed / population)


def _learned(t: Array, law: _Law | _Steps) -> Array:
    """Expect the variance that was learned before score t.

    (1 + Σ (x - S/(i + 1))²)/t over i < t; a term is s² (1 - 1/(i + 1) - 1/(i + 1)²) + mean²/(i + 1)².
    """
    harmonic = digamma(t + 1) + np.euler_gamma - 1
    squares = zeta(2.0) - zeta(2.0, t + 1) - 1
    scattered = law.sd**2 * np.maximum(t - 1 - harmonic - squares, 0)
    learned: Array = (1 + scattered + law.mean**2 * squares) / t
    return learned


# --- strata in turn ------------------------------------------------------------------------------


def items_for_rounds(
    half_width: float,
    sizes: ArrayLike,
    *,
    weights: ArrayLike | None = None,
    alpha: float,
    scores: Scores,
) -> int:
    """Predict at how many items half of all runs by `MacroSequence` have this half-width, if planned.

    Parameters
    ----------
    half_width : > 0, in units of the scores
    sizes, weights : as in `estimators.macro_sequence`
    scores : within a stratum, the same in all
    """
    half, law = _on_own_scale(scores)
    strata = _Strata.of(sizes, weights)
    rounds = strata.course(half_width / half, alpha, law).first_at(half_width / half)
    return strata.items(math.ceil(rounds))


def rounds_half_width(
    n: int,
    sizes: ArrayLike,
    *,
    weights: ArrayLike | None = None,
    alpha: float,
    scores: Scores,
) -> float:
    """Predict the median half-width at n items of strata in turn, if it was planned."""
    half, law = _on_own_scale(scores)
    strata = _Strata.of(sizes, weights)
    rounds = strata.rounds(n)
    if n >= strata.sizes.sum():
        return 0.0
    if rounds < 1:
        return half
    return half * _planned_for(0.1, lambda width: strata.course(width, alpha, law).at(rounds))


class _Strata(NamedTuple):
    """Sizes of strata, and the weights of their means."""

    sizes: Array
    shares: Array

    @classmethod
    def of(cls, sizes: ArrayLike, weights: ArrayLike | None) -> _Strata:
        whole = np.asarray(sizes, dtype=np.float64)
        equal = np.full(len(whole), 1 / len(whole))
        return cls(whole, equal if weights is None else np.asarray(weights, dtype=np.float64))

    def items(self, rounds: int) -> int:
        """Count the items of so many rounds."""
        return int(np.minimum(self.sizes, rounds).sum())

    def rounds(self, n: int) -> int:
        """Count the whole rounds of n items."""
        few, enough = 0, int(self.sizes.max()) + 1
        while enough - few > 1:
            middle = (few + enough) // 2
            few, enough = (middle, enough) if self.items(middle) <= n else (few, middle)
        return few

    def course(self, half_width: float, alpha: float, law: _Law) -> _Course:
        """Follow rounds that are planned for a half-width, as `MacroSequence` does."""
        log_limit = math.log(2 / alpha)
        squares = float(self.shares @ self.shares)
        needed = 2 * log_limit * squares / half_width**2
        planned = needed / (1 + needed / float(self.sizes.mean()))
        r = _numbers(int(self.sizes.max()))
        drawn = np.minimum(r[:, None], self.sizes)
        # Σ (1 - j/N)² over j < n.
        kept = drawn - drawn * (drawn - 1) / self.sizes
        kept += (drawn - 1) * drawn * (2 * drawn - 1) / (6 * self.sizes**2)
        cost = kept @ self.shares**2 / squares
        reach = (
            log_limit * (1 + cost / planned) / (math.sqrt(2 * log_limit / (planned * squares)) * r)
        )
        unseen = 1 - drawn / self.sizes
        shake = law.sd**2 * (unseen**2 @ self.shares**2) / r
        room = unseen @ self.shares
        return _Course(
            r, _half_width(r, (reach, reach), shake, (room * (1 + law.mean), room * (1 - law.mean)))
        )


def _on_own_scale(scores: Scores) -> tuple[float, _Law]:
    """Give half the length of the scale, and mean and SD on the scale from -1 to 1."""
    half = (scores.high - scores.low) / 2
    mean = (scores.mean - scores.low) / half - 1
    most = math.sqrt(max(0.0, 1 - mean**2))
    return half, _Law(mean, min(scores.sd / half, most))
