"""Bounds for the mean of a finite population that hold at every look: draws without replacement.

A population of N scores within [low, high] is seen in a random order that was fixed beforehand. The
unknown is its mean, of all N, not the mean of some law behind it. A `MeanSequence` takes one score
after another (`update`) and gives its interval when asked (`interval`); `extend` takes many and gives
the interval after each, the same to the last bit. `betting`, `prior_posterior`, `hoeffding` and
`empirical_bernstein` make one; the functions `*_wor` give the intervals of scores in a row.

Every interval is the intersection of all earlier ones with the sure range: the scores still unseen
are within [low, high]. So it shrinks to a point at the last score. Where the intersection is empty,
which happens with probability at most 1 - level, the sure range alone is given. Just before, the
interval is far too narrow: a run that stops there is one of those that the error allows for.

Which one: betting is the narrowest at its planned end and takes any scores. Prior-posterior is for
yes or no, needs no plan, and is made of counts. Hoeffding and empirical Bernstein are sums; the ends
of the first move with every score in the score's own direction, as those of prior-posterior do.

What is chosen beforehand (plan, prior, level) may not be chosen by looking at the scores: the
guarantee would be lost. What betting and empirical Bernstein learn from earlier scores, they learn
for later ones only, and that is allowed.
"""

from __future__ import annotations

import math
from functools import lru_cache
from typing import NamedTuple, Protocol

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import betaln, gammaln

from estimators.intervals import Array, Interval

_PENDING = 256
"""Scores that wait for each other, so that they are worked through together."""

_WORK = 16_384
"""Scores times candidate means in one go: what stays in a processor's cache."""

_STAKE = 0.5
"""Most that is lost of the capital in one bet; the source's c."""

_CELLS_A_HALF_WIDTH = 50
"""Candidate means in a planned half-width: an end is given at most 1/50 of it too wide."""

_LEAST_CELLS, _MOST_CELLS = 1_000, 200_000

_TINY = 1e-300


class Plan(NamedTuple):
    """Where a sequence is meant to end, and so where it is tightest; chosen beforehand.

    Attributes
    ----------
    half_width : to be reached, in units of the scores; the number that it needs is planned again at
        each score, from the variance so far
    n : number of scores, where it is known instead
    most : number of scores that there will be at most: nothing is staked for later ones
    """

    half_width: float | None = None
    n: int | None = None
    most: float | None = None


NO_PLAN = Plan()
"""Tight nowhere in particular: within a slowly growing factor of the best at any number."""


class Steps(NamedTuple):
    """Scores of a block and what was known before each, (b,); the scale's ends are -1 and 1.

    Attributes
    ----------
    t : their numbers, from 1
    drawn : the score; where draws have unequal chances, the draw's unbiased guess at `mean`
    top : largest value that `drawn` can have; the smallest is -1
    sum : of the scores before
    remaining : scores not yet seen before this one
    guess, variance : mean and variance of `drawn` so far, drawn towards 0 and 1
    """

    t: Array
    drawn: Array
    top: Array
    sum: Array
    remaining: Array
    guess: Array
    variance: Array


class Bound(Protocol):
    """How a `MeanSequence` bounds the mean; it may keep what it needs of the scores it was shown."""

    def block(self) -> int:
        """Say how many scores it wants at once, > 0; what it finds may not depend on that."""
        ...

    def after(self, steps: Steps) -> Interval:
        """Bound the mean after each score, (b,), on the scale from -1 to 1."""
        ...


class MeanSequence:
    """Bounds the mean of a finite population, score by score, at all looks at once.

    An update costs what its bound costs: candidate means for betting, O(log N) for prior-posterior,
    O(1) for sums.

    Parameters
    ----------
    bound : a new one, made for this population
    population : N, all scores there are
    low, high : ends of the scale of the scores
    is_binary : no score lies between the ends
    """

    def __init__(
        self, bound: Bound, population: int, low: float, high: float, *, is_binary: bool = False
    ) -> None:
        self._bound, self.population, self.low, self.high = bound, population, low, high
        self._is_binary = is_binary
        self._middle, self._half = (low + high) / 2, (high - low) / 2
        self._pending: list[float] = []
        self._n, self._total = 0, 0.0
        self._sum, self._drawn, self._squares = 0.0, 0.0, 0.0
        self._ends = Interval(np.array(-1.0), np.array(1.0))

    @property
    def n(self) -> int:
        """Number of scores taken in."""
        return self._n + len(self._pending)

    def update(self, score: float) -> None:
        """Take in the next score of the order.

        Raises
        ------
        ValueError
            The score is not on the scale, or there are no more scores than these in the population.
        """
        if self._is_binary and score not in {self.low, self.high}:
            raise ValueError(f"a score of {score} is neither {self.low} nor {self.high}")
        if not self.low <= score <= self.high:
            raise ValueError(f"a score of {score} is not within {self.low} to {self.high}")
        if self.n >= self.population:
            raise ValueError(f"all {self.population} scores of the population are in already")
        self._pending.append(score)
        if len(self._pending) >= _PENDING:
            self._settle()

    def extend(self, scores: ArrayLike) -> Interval:
        """Take in the next scores and give the interval after each, (n,).

        Raises
        ------
        ValueError
            As `update`; nothing is taken in then.
        """
        scores = np.asarray(scores, dtype=np.float64)
        if not ((scores >= self.low) & (scores <= self.high)).all():
            raise ValueError(f"scores are not all within {self.low} to {self.high}")
        if self.n + len(scores) > self.population:
            raise ValueError(f"there are more scores than the population's {self.population}")
        if self._is_binary and not ((scores == self.low) | (scores == self.high)).all():
            raise ValueError(f"scores are not all {self.low} or {self.high}")
        self._settle()
        drawn = (scores - self._middle) / self._half
        return self.draw(scores, drawn, np.ones_like(drawn))

    def draw(self, scores: Array, drawn: Array, top: Array) -> Interval:
        """Take in scores whose draws had chances of their own, (n,) each; see `Steps`."""
        found, at = [Interval(np.empty(0), np.empty(0))], 0
        while at < len(scores):
            block = slice(at, at + self._bound.block())
            found.append(self._step(scores[block], drawn[block], top[block]))
            at = block.stop
        lower, upper = zip(*found, strict=True)
        return Interval(np.concatenate(lower), np.concatenate(upper))

    def interval(self) -> Interval:
        """Give the interval now, as two numbers."""
        self._settle()
        lower, upper = self._cut(
            np.array([self._n]), np.array([self._total]), *(end[None] for end in self._ends)
        )
        return Interval(lower[0], upper[0])

    def _settle(self) -> None:
        waiting, self._pending = self._pending, []
        if waiting:
            self.extend(waiting)

    def _step(self, scores: Array, drawn: Array, top: Array) -> Interval:
        # Sums are accumulated one after another, so they don't depend on how scores are blocked.
        t = self._n + np.arange(1.0, len(scores) + 1)
        totals = _accumulated(self._total, scores)
        sums = _accumulated(self._sum, (scores - self._middle) / self._half)
        drawn_sums = _accumulated(self._drawn, drawn)
        squares = _accumulated(self._squares, (drawn - drawn_sums[1:] / (t + 1)) ** 2)
        steps = Steps(
            t=t,
            drawn=drawn,
            top=top,
            sum=sums[:-1],
            remaining=self.population - t + 1,
            guess=drawn_sums[:-1] / t,
            variance=(1 + squares[:-1]) / t,
        )
        lower, upper = self._bound.after(steps)
        lower = np.maximum.accumulate(np.maximum(lower, self._ends.lower))
        upper = np.minimum.accumulate(np.minimum(upper, self._ends.upper))
        self._n += len(scores)
        self._total, self._sum = totals[-1], sums[-1]
        self._drawn, self._squares = drawn_sums[-1], squares[-1]
        self._ends = Interval(lower[-1], upper[-1])
        return self._cut(t, totals[1:], lower, upper)

    def _cut(self, t: Array, total: Array, lower: Array, upper: Array) -> Interval:
        """Bring the ends to the scores' scale, and within the sure range."""
        unseen = self.population - t
        least = (total + unseen * self.low) / self.population
        most = (total + unseen * self.high) / self.population
        lower = np.maximum(self._middle + self._half * lower, least)
        upper = np.minimum(self._middle + self._half * upper, most)
        is_empty = lower > upper
        return Interval(np.where(is_empty, least, lower), np.where(is_empty, most, upper))


def _accumulated(before: float, values: Array) -> Array:
    return np.add.accumulate(np.concatenate(([before], values)))


class _Terms(NamedTuple):
    """What was agreed on beforehand, on the scale from -1 to 1."""

    population: int
    log_limit: float
    half_width: float | None
    n: int | None
    most: float | None

    def horizon(self, steps: Steps) -> Array:
        """Give the number of scores that the next bet is made for."""
        planned = self._planned(steps)
        return planned if self.most is None else np.minimum(planned, self.most)

    def _planned(self, steps: Steps) -> Array:
        if self.half_width is not None:
            return _needed(self.log_limit, steps.variance, self.half_width, self.population)
        if self.n is not None:
            return np.full_like(steps.t, self.n)
        return steps.t * np.log(steps.t + 1)

    def bet(self, steps: Steps) -> Array:
        """Give what is staked a unit of the scale from -1 to 1: √(2 ln(2/alpha)/(v n))."""
        return np.sqrt(2 * self.log_limit / (steps.variance * self.horizon(steps)))


def _needed(log_limit: float, variance: Array, half_width: float, population: int) -> Array:
    """Count the scores that a half-width needs: n0 = 2 ln(2/alpha) v/h², and n0/(1 + n0/N) of N."""
    needed = 2 * log_limit * variance / half_width**2
    return needed / (1 + needed / population)


def _terms(population: int, level: float, low: float, high: float, plan: Plan) -> _Terms:
    if population < 1:
        raise ValueError(f"population: there must be at least one score, not {population}")
    if not 0 < level < 1:
        raise ValueError(f"level: {level} is not within (0, 1)")
    if not -math.inf < low < high < math.inf:
        raise ValueError(f"scores from {low} to {high} are not a scale")
    if None not in plan[:2] or any(each is not None and not each > 0 for each in plan):
        raise ValueError("plan: a half-width or a number, above 0")
    width = None if plan.half_width is None else plan.half_width / ((high - low) / 2)
    return _Terms(population, math.log(2 / (1 - level)), width, plan.n, plan.most)


# --- betting -----------------------------------------------------------------------------------


class _Bets:
    """Capital of bets against candidate means, from above and from below.

    All on the scale from -1 to 1. If the mean of all is m, a score's expectation, given those
    before, is mu(m) = (N m - sum)/remaining. Against m from below, the capital
    K+ *= 1 + min(lam, c/(1 + mu)) (x - mu) is gathered; from above,
    K- *= 1 - min(lam, c/(top - mu)) (x - mu). Both are martingales at the true m, so that either
    reaches 2/alpha with probability at most alpha/2. Every factor of K+ falls in m, and of K- rises,
    so that the candidates that are left are a run of the grid, and only these are kept.
    """

    def __init__(self, terms: _Terms, cells: int) -> None:
        self._terms, self._cells = terms, cells
        # Whole steps to both sides of 0, so that scores with their signs changed are bounded by the
        # same numbers, with their signs changed.
        self._mean = np.arange(-cells, cells + 1) / cells
        self._first, self._last = 0, 2 * cells
        self._up = self._down = np.zeros(2 * cells + 1)

    def block(self) -> int:
        return min(max(_WORK // max(self._last - self._first + 1, 1), 1), _PENDING)

    def after(self, steps: Steps) -> Interval:
        first, last = self._first, self._last
        n_left = last - first + 1
        below = above = np.zeros(len(steps.t), dtype=np.int64)
        if n_left > 0:
            up, down = self._capital(steps, self._mean[first : last + 1])
            limit = self._terms.log_limit
            below = _run(up[:, ::-1] >= limit)
            above = _run(down >= limit)
            self._first, self._last = first + int(below[-1]), last - int(above[-1])
            kept = slice(self._first - first, max(self._last - first + 1, 0))
            self._up, self._down = up[-1, kept].copy(), down[-1, kept].copy()
        # An end is the last candidate that is refuted, not the first that is not.
        return Interval(
            self._mean[np.maximum(first + below - 1, 0)],
            self._mean[np.minimum(last - above + 1, 2 * self._cells)],
        )

    def _capital(self, steps: Steps, mean: Array) -> tuple[Array, Array]:
        """Give the logs of both capitals after each score, (b, candidates)."""
        bet = self._terms.bet(steps)[:, None]
        expected = (self._terms.population * mean - steps.sum[:, None]) / steps.remaining[:, None]
        off = steps.drawn[:, None] - expected
        # Candidates beyond what the scores still allow have no room on one side; they are refuted
        # by the sure range, and here must only give a number.
        up = np.log1p(np.minimum(bet, _STAKE / np.maximum(1 + expected, _TINY)) * off)
        room = np.maximum(steps.top[:, None] - expected, _TINY)
        down = np.log1p(-np.minimum(bet, _STAKE / room) * off)
        return _summed(self._up, up), _summed(self._down, down)


def _summed(before: Array, gains: Array) -> Array:
    gains[0] += before
    return np.add.accumulate(gains, axis=0, out=gains)


def _run(is_refuted: NDArray[np.bool_]) -> NDArray[np.int64]:
    """Count, after each score, the candidates up to the last that was refuted so far, from the end.

    Rows are scores; candidates run towards the end that is refuted, so that the first refuted one
    found is the innermost.
    """
    n = is_refuted.shape[1]
    found = np.where(is_refuted.any(axis=1), n - is_refuted.argmax(axis=1), 0)
    return np.maximum.accumulate(found)


def betting(
    population: int,
    *,
    level: float = 0.95,
    low: float = 0.0,
    high: float = 1.0,
    plan: Plan = NO_PLAN,
    candidates: int | None = None,
) -> MeanSequence:
    """Begin a sequence by betting, which adapts to the variance of the scores.

    With a planned half-width, what is staked on each score is what would be best if the run ended
    where the variance of the scores before it says that the half-width is reached.

    Parameters
    ----------
    population : N, all scores there are
    level : chance, at least, that the mean is within all intervals together
    low, high : ends of the scale of the scores
    plan : where the sequence is meant to end, chosen beforehand; it may go on
    candidates : steps of the scale in which means are tried; ends are given outward to them. None: 50
        in a planned half-width, and at least 1,000

    Raises
    ------
    ValueError
        The population is empty, the level is not within (0, 1), the scale has no length, or the plan
        is not above 0 or names both a half-width and a number.

    Complexity: what is left of the candidates, a score; before the interval has narrowed that is all.

    Source: [WR20], [WR24] with hedged capital; the planned number is ours.
    """
    terms = _terms(population, level, low, high, plan)
    if candidates is None:
        # The planned half-width on the scale from -1 to 1, for scores of any variance.
        width = terms.half_width or math.sqrt(2 * terms.log_limit / (terms.n or math.inf))
        wanted = 2 * _CELLS_A_HALF_WIDTH / width if width else 0.0
        candidates = math.ceil(min(max(wanted, _LEAST_CELLS), _MOST_CELLS))
    return MeanSequence(_Bets(terms, -(-candidates // 2)), population, low, high)


def betting_wor(
    scores: ArrayLike,
    population: int,
    *,
    level: float = 0.95,
    low: float = 0.0,
    high: float = 1.0,
    plan: Plan = NO_PLAN,
    candidates: int | None = None,
) -> Interval:
    """Bound the mean of a finite population after each of the scores seen so far, by betting.

    Parameters
    ----------
    scores : (n,) float64 within [low, high], in the random order that was fixed beforehand, n <= N
    population, level, low, high, plan, candidates : as `betting`

    Returns
    -------
    two ends, (n,) each: after the first score, the second, ...; with a chance of at least `level` all
    of them hold

    Raises
    ------
    ValueError
        As `betting`, or scores are off the scale or more than the population.

    Source: [WR20], [WR24]; see `betting`.
    """
    return betting(
        population, level=level, low=low, high=high, plan=plan, candidates=candidates
    ).extend(scores)


def betting_items(
    half_width: float, population: int, *, variance: float, level: float = 0.95
) -> int:
    """Say how many scores betting that is planned for a half-width needs at most, mostly.

    n0/(1 + n0/N) with n0 = 2 ln(2/alpha) v/h², rounded up. Half of all runs stop a tenth or more
    before. For a planning that must not go wrong, take the largest variance there can be.

    Parameters
    ----------
    half_width : h, in units of the scores
    variance : v of the scores, in these units squared: p (1 - p) for a share p

    Raises
    ------
    ValueError
        As `betting`, or the variance is negative.

    Source: [WR20], the bets' best number, with the saving of a finite population.
    """
    log_limit = _terms(population, level, 0.0, 1.0, Plan(half_width=half_width)).log_limit
    if not variance >= 0:
        raise ValueError(f"variance: {variance} is negative")
    return max(1, math.ceil(_needed(log_limit, np.array(variance), half_width, population)))


def betting_paired_wor(
    first: ArrayLike,
    second: ArrayLike,
    population: int,
    *,
    level: float = 0.95,
    score_range: float = 1.0,
    plan: Plan = NO_PLAN,
) -> Interval:
    """Bound by how much the first system's mean is above the second's, on the same items.

    The differences lie within -R to R; their spread is that of differences, so items that are hard
    for both cost nothing. Exchanged systems give the same ends, exchanged and with their signs
    changed, to the last bit.

    Parameters
    ----------
    first, second : (n,) scores of the same items in the order fixed beforehand
    score_range : R, length of the scores' scale
    population, level, plan : as `betting`; the planned half-width is that of the difference

    Raises
    ------
    ValueError
        As `betting_wor`, or the systems have different numbers of scores.

    Source: [WR20], [WR24]; see `betting`.
    """
    first, second = np.asarray(first, dtype=np.float64), np.asarray(second, dtype=np.float64)
    if first.shape != second.shape:
        raise ValueError(f"{len(first)} and {len(second)} scores are not pairs")
    return betting_wor(
        first - second, population, level=level, low=-score_range, high=score_range, plan=plan
    )


# --- prior-posterior ratio ---------------------------------------------------------------------

_ROUNDING = 2.0**-50
"""An end that is itself possible stays inside when the scale is changed."""

_LOG_ROUNDING = 1e-8
"""More than differences of logs of factorials of a few million are off by."""


class _Posterior:
    """Counts, for scores at the scale's ends."""

    def __init__(self, population: int, level: float, a: float, b: float) -> None:
        self._population, self._level, self._a, self._b = population, level, a, b

    def block(self) -> int:
        return _PENDING

    def after(self, steps: Steps) -> Interval:
        k = np.rint((steps.sum + steps.drawn + steps.t) / 2)
        lower, upper = prior_posterior_at(
            k, steps.t, self._population, level=self._level, a=self._a, b=self._b
        )
        return Interval(2 * lower - 1 - _ROUNDING, 2 * upper - 1 + _ROUNDING)


def prior_posterior(
    population: int,
    *,
    level: float = 0.95,
    low: float = 0.0,
    high: float = 1.0,
    a: float = 1.0,
    b: float = 1.0,
) -> MeanSequence:
    """Begin a sequence for scores that are `low` or `high` and nothing between.

    Parameters
    ----------
    a, b : the prior of the number of high scores is Beta-Binomial(N, a, b); chosen beforehand

    Raises
    ------
    ValueError
        As `betting`, or a or b is not above 0.

    Source: [WR20] prior-posterior-ratio martingale; see `prior_posterior_at`.
    """
    _terms(population, level, low, high, NO_PLAN)
    if not (a > 0 and b > 0):
        raise ValueError(f"a prior needs a and b above 0, not {a} and {b}")
    bound = _Posterior(population, level, a, b)
    return MeanSequence(bound, population, low, high, is_binary=True)


def prior_posterior_wor(
    scores: ArrayLike,
    population: int,
    *,
    level: float = 0.95,
    low: float = 0.0,
    high: float = 1.0,
    a: float = 1.0,
    b: float = 1.0,
) -> Interval:
    """Bound the mean after each of the yes-or-no scores so far; as `betting_wor`, by counts.

    Source: [WR20]; see `prior_posterior`.
    """
    return prior_posterior(population, level=level, low=low, high=high, a=a, b=b).extend(scores)


def prior_posterior_at(
    k: ArrayLike,
    n: ArrayLike,
    population: int,
    *,
    level: float = 0.95,
    a: float = 1.0,
    b: float = 1.0,
) -> Interval:
    """Bound the share of ones by k ones among n, at every n at once, without the looks before.

    Prior over posterior at the number M of ones is P(data)/P(data | M), a martingale at the true M
    that starts at 1. So the shares M/N are kept whose hypergeometric P(k | M) is above
    alpha · P(k), where P(k) is Beta-Binomial(n, a, b). P(k | M) rises to its greatest value and
    falls from there; each end is found by bisection.

    Parameters
    ----------
    k, n : arrays of one shape, 0 <= k <= n <= N; n = 0 gives (0, 1)

    Raises
    ------
    ValueError
        k or n is out of range.

    Complexity: O(log N) a pair, and once O(N) for a table of factorials.

    Source: [WR20].
    """
    n = np.asarray(n, dtype=np.int64)
    k = np.asarray(k, dtype=np.int64)
    if not ((k >= 0) & (k <= n) & (n <= population)).all():
        raise ValueError(f"k ones among n scores of {population}: 0 <= k <= n <= {population}")
    log_f = _log_factorials(population)
    log_prior = log_f[n] - log_f[k] - log_f[n - k] + betaln(k + a, n - k + b) - betaln(a, b)
    log_all = log_f[population] - log_f[n] - log_f[population - n]
    # A tie is kept, whatever its logs are rounded to.
    limit = log_prior + log_all + math.log(1 - level) - _LOG_ROUNDING
    fewest = _fewest(k, n, population, limit)
    most = population - _fewest(n - k, n, population, limit)
    return Interval(fewest / population, most / population)


Counts = NDArray[np.int64]


def _fewest(k: Counts, n: Counts, population: int, limit: Array) -> Counts:
    """Find the least M for which ln C(M, k) + ln C(N - M, n - k) is above the limit."""
    log_f = _log_factorials(population)
    likeliest = k * (population + 1) // np.maximum(n, 1)
    refuted, kept = k - 1, np.clip(likeliest, k, population - n + k)
    for _ in range(population.bit_length() + 1):
        # Rounded up: where the two are neighbours the kept one is tried again.
        m = (refuted + kept + 1) // 2
        likelihood = log_f[m] - log_f[k] - log_f[m - k]
        others = population - m
        likelihood += log_f[others] - log_f[n - k] - log_f[others - n + k]
        is_kept = likelihood > limit
        refuted, kept = np.where(is_kept, refuted, m), np.where(is_kept, m, kept)
    return kept


@lru_cache(maxsize=4)
def _log_factorials(n: int) -> Array:
    """Give ln 0!, ..., ln n!."""
    found: Array = gammaln(np.arange(1.0, n + 2))
    return found


# --- sums --------------------------------------------------------------------------------------


class _Sums:
    """Weighted sums of scores, each with what was known of the mean before it.

    x + sum/remaining has the expectation m N/remaining; sums of it with the weights of bets, and a
    margin of (ln(2/alpha) + costs)/Σ weights N/remaining.
    """

    def __init__(self, terms: _Terms, *, is_empirical: bool) -> None:
        self._terms, self._is_empirical = terms, is_empirical
        self._gain = self._weight = self._cost = 0.0

    def block(self) -> int:
        return _PENDING

    def after(self, steps: Steps) -> Interval:
        # Bets are for scores within [0, 1], as in the sources: twice those of the scale -1 to 1.
        if self._is_empirical:
            bet = np.minimum(2 * self._terms.bet(steps), _STAKE)
            cost = ((steps.drawn - steps.guess) / 2) ** 2 * (-np.log1p(-bet) - bet)
        else:
            bet = 2 * self._terms.bet(steps._replace(variance=np.ones_like(steps.t)))
            bet = np.minimum(bet, 1.0)
            cost = bet**2 / 8
        gain = _accumulated(self._gain, bet * (steps.drawn + steps.sum / steps.remaining))
        weight = _accumulated(self._weight, bet * self._terms.population / steps.remaining)
        costs = _accumulated(self._cost, cost)
        self._gain, self._weight, self._cost = gain[-1], weight[-1], costs[-1]
        margin = 2 * (self._terms.log_limit + costs[1:])
        return Interval((gain[1:] - margin) / weight[1:], (gain[1:] + margin) / weight[1:])


def hoeffding(
    population: int,
    *,
    level: float = 0.95,
    low: float = 0.0,
    high: float = 1.0,
    plan: Plan = NO_PLAN,
) -> MeanSequence:
    """Begin a sequence whose margin does not depend on the scores at all; as `betting`.

    Its bets are sqrt(8 ln(2/alpha)/n) with the planned n, at most 1.

    Source: [WR20] Hoeffding's sequence without replacement.
    """
    bound = _Sums(_terms(population, level, low, high, plan), is_empirical=False)
    return MeanSequence(bound, population, low, high)


def hoeffding_wor(
    scores: ArrayLike,
    population: int,
    *,
    level: float = 0.95,
    low: float = 0.0,
    high: float = 1.0,
    plan: Plan = NO_PLAN,
) -> Interval:
    """Bound the mean after each of the scores so far; as `betting_wor`, by `hoeffding`.

    Source: [WR20].
    """
    return hoeffding(population, level=level, low=low, high=high, plan=plan).extend(scores)


def empirical_bernstein(
    population: int,
    *,
    level: float = 0.95,
    low: float = 0.0,
    high: float = 1.0,
    plan: Plan = NO_PLAN,
) -> MeanSequence:
    """Begin a sequence whose margin follows the scores' variance; as `betting`.

    Source: [WR20] empirical Bernstein's sequence without replacement.
    """
    bound = _Sums(_terms(population, level, low, high, plan), is_empirical=True)
    return MeanSequence(bound, population, low, high)


def empirical_bernstein_wor(
    scores: ArrayLike,
    population: int,
    *,
    level: float = 0.95,
    low: float = 0.0,
    high: float = 1.0,
    plan: Plan = NO_PLAN,
) -> Interval:
    """Bound the mean after each of the scores so far; as `betting_wor`, by `empirical_bernstein`.

    Source: [WR20].
    """
    return empirical_bernstein(population, level=level, low=low, high=high, plan=plan).extend(
        scores
    )


# --- free looks after a fixed number -----------------------------------------------------------


def maximal_half_width(n: int, population: int, delta: float, score_range: float = 1.0) -> float:
    """Bound the means of the first n, n + 1, ... scores against the mean of all, together.

    R √((1 - n/N)(1 + 1/n) ln(2/delta)/(2 n)): the width that n scores have is kept, and one may look
    at every score from the n-th on. It is no rule for stopping before.

    Parameters
    ----------
    n : fixed beforehand, 0 <= n <= N; at 0 nothing is known, at N everything
    delta : chance, at most, that any of the means is farther off
    score_range : R

    Raises
    ------
    ValueError
        n, delta or R is out of range.

    Source: [BM15], the maximal inequality behind Theorem 2.4.
    """
    if not 0 <= n <= population or not 0 < delta < 1 or not score_range > 0:
        raise ValueError(f"n = {n} of {population}, delta = {delta}, range {score_range}")
    if n == 0:
        return score_range
    unseen = 1 - n / population
    half = math.sqrt(unseen * (1 + 1 / n) * math.log(2 / delta) / (2 * n))
    return score_range * min(half, unseen)
