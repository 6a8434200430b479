"""Items of a benchmark that were drawn with unequal chances: their mean, and bounds by their places."""

from __future__ import annotations

import math

from estimators.benchmark_order import Chances
from estimators.intervals import Interval
from estimators.sequences_weighted import WeightedSequence

_TOGETHER = 256
"""Scores that wait for each other: checking and betting on many at once takes a tenth of the time."""


class PlacedSequence:
    """A `WeightedSequence` of an order whose chances are known beforehand, by place."""

    def __init__(self, sequence: WeightedSequence, chances: Chances) -> None:
        self._sequence, self._chances = sequence, chances
        self._waiting: list[float] = []

    def update(self, score: float) -> None:
        """Take in the score at the next place."""
        self._waiting.append(score)
        if len(self._waiting) >= _TOGETHER:
            self._settle()

    def interval(self) -> Interval:
        """Give the interval now, as two numbers."""
        self._settle()
        return self._sequence.interval()

    def _settle(self) -> None:
        at, n = self._sequence.n, len(self._waiting)
        if n:
            own, least = (each[at : at + n] for each in self._chances)
            self._sequence.extend(self._waiting, own, least)
            self._waiting = []


class WeightedMean:
    """Estimates the mean of all N items by those drawn so far.

    With q the chance of the k-th item, r the items not drawn before it and S their scores' sum before,
    t = (S + x/q)/N is an unbiased guess at the mean. Guesses are averaged with weights 1/(r (r - 1)):
    with equal chances that is the plain mean, and at the last item the mean of all. The same average
    with 1 for every score divides it, so that equal scores are their own mean. What has no score
    leaves both.

    Source: [R56] for the guesses; their weights are ours.
    """

    def __init__(self, population: int, low: float, high: float) -> None:
        self._population, self._low, self._span = population, low, high - low
        self._n, self._n_known = 0, 0
        self._sum, self._known = 0.0, 0.0
        self._sum_guess = self._known_guess = 0.0
        self._squares = 0.0
        self._moments = [0.0, 0.0, 0.0]

    def add(self, value: float, chance: float) -> None:
        """Take in the next item; nan: it has no score."""
        left = self._population - self._n
        self._n += 1
        is_known = not math.isnan(value)
        height, known = (value - self._low, 1.0) if is_known else (0.0, 0.0)
        if left == 1:  # all are in: nothing is guessed any more
            self._squares = 0.0
            self._sum_guess, self._known_guess = self._sum + height, self._known + known
        else:
            weight = 1 / (left * (left - 1))
            self._squares += (weight * left) ** 2
            self._sum_guess += weight * (self._sum + height / chance)
            self._known_guess += weight * (self._known + known / chance)
        self._sum += height
        self._known += known
        if is_known:
            blown_up = 1 / (chance * left)
            self._n_known += 1
            for power in range(3):
                self._moments[power] += blown_up**2 * height**power

    @property
    def value(self) -> float:
        """The estimate; the middle of the scale while no item has a score."""
        if not self._n_known:
            return self._low + self._span / 2
        return self._low + self._sum_guess / self._known_guess

    @property
    def standard_error(self) -> float:
        """Its standard error, to the first order; 0 once every item is drawn.

        As `estimators.benchmark_bounds.Tally`: one score as far off as can be is added to the variance.
        """
        if not self._n_known:
            return math.nan
        off = self.value - self._low
        ones, heights, squares = self._moments
        spread = max(squares - 2 * off * heights + off**2 * ones, 0.0) + self._span**2 / 4
        return math.sqrt(spread / (self._n_known + 1) * self._squares) / self._known_guess
