"""What each unit of a benchmark scores: the mean of all verdicts on it, once they are in."""

from __future__ import annotations

import math
from array import array
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from estimators.cells import Scoring
from estimators.intervals import Array
from orchestrator.core.study import Study


class Score(NamedTuple):
    """What one item scores.

    Attributes
    ----------
    lowest, highest : ends between which it lies
    value : nan where it has none
    n_verdicts : of which it is made
    is_missing : whether one that it wants is missing
    """

    lowest: float
    highest: float
    value: float
    n_verdicts: int
    is_missing: bool = False


class UnitScores:
    """What each unit scores once every judge has answered as often as it is asked, or can't.

    Parameters
    ----------
    missing : what a missing verdict scores: `lowest`, the low end of the scale; `impute`, either end
    repeats : how often each judge is asked about a unit
    """

    def __init__(self, study: Study, scoring: Scoring, missing: str, repeats: int) -> None:
        n_units = study.frame.n_units
        self._low, self._high = scoring.low, scoring.high
        self._is_lowest = missing == "lowest"
        self._n_wanted = len(study.panel) * repeats
        self._left = array("l", [self._n_wanted]) * n_units
        self._total = array("d", [0.0]) * n_units
        self._n_verdicts = array("l", [0]) * n_units
        # Sums of whole numbers of these are exact, so that the order of three verdicts does not matter.
        self._grain = 2.0 ** (math.frexp(self._high - self._low)[1] - 44)

    def tell(self, unit: int, score: float | None) -> None:
        """Take in a score, counted from the scale's low end; None: there is none."""
        if self._left[unit] > 0:
            self._left[unit] -= 1
            if score is not None:
                if self._n_wanted > 2:  # the sum of two is the same either way
                    score = round(score / self._grain) * self._grain
                self._total[unit] += score
                self._n_verdicts[unit] += 1

    def lose(self, unit: int) -> None:
        """Take in that there is nothing to judge."""
        self._left[unit] = 0

    def is_told(self, unit: int) -> bool:
        """Say whether all of a unit is told."""
        return self._left[unit] == 0

    def get(self, unit: int) -> Score | None:
        """Give a unit's score; None while a verdict has not been told."""
        if self._left[unit]:
            return None
        n, low, high = self._n_verdicts[unit], self._low, self._high
        if n == self._n_wanted:
            value = min(low + self._total[unit] / n, high)
            return Score(value, value, value, n)
        lowest = low + self._total[unit] / self._n_wanted
        if self._is_lowest:
            return Score(lowest, lowest, lowest, n, is_missing=True)
        highest = min(lowest + (high - low) * (1 - n / self._n_wanted), high)
        value = min(low + self._total[unit] / n, high) if n else math.nan
        return Score(lowest, highest, value, n, is_missing=True)

    def scores(self, units: NDArray[np.int64]) -> Array:
        """Give one number a told unit, (n,): without a verdict the middle of the scale."""
        total, n = (np.asarray(each)[units] for each in (self._total, self._n_verdicts))
        if self._is_lowest:
            return np.asarray(self._low + total / self._n_wanted)
        middle = np.full(len(units), (self._high - self._low) / 2)
        return np.asarray(self._low + np.divide(total, n, out=middle, where=n > 0))


def difference(first: Score | None, second: Score | None) -> Score | None:
    """Take one score from another; None while either is open."""
    if first is None or second is None:
        return None
    both = (first.n_verdicts, second.n_verdicts)
    return Score(
        first.lowest - second.highest,
        first.highest - second.lowest,
        first.value - second.value,
        sum(both) if all(both) else 0,
        first.is_missing or second.is_missing,
    )
