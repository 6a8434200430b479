"""Bounds that hold at every look where items are drawn with chances that depend on what was seen.

An item may be drawn because it promises much: with the chance q of the item, known before the draw,
x/q is an unbiased guess at the sum of all scores not seen yet. Betting takes it in the score's place.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from estimators.intervals import Array, Interval
from estimators.sequences_wor import NO_PLAN, Plan, betting


class WeightedSequence:
    """Bounds the mean of a finite population whose items are drawn with unequal chances.

    Before each draw every item not yet seen has a chance above 0, and these sum to 1; they may
    depend on all scores seen so far, in any way. Guesses lie between 0 and R/(least chance), so that
    an item with a tiny chance makes every bet small: keep chances above a part of 1/remaining.

    Equal chances give `estimators.sequences_wor.betting`.

    Parameters
    ----------
    population, level, low, high, plan, candidates : as `estimators.sequences_wor.betting`

    Raises
    ------
    ValueError
        As `betting`.

    Source: [SXLLR23], with the bets of [WR20].
    """

    def __init__(
        self,
        population: int,
        *,
        level: float = 0.95,
        low: float = 0.0,
        high: float = 1.0,
        plan: Plan = NO_PLAN,
        candidates: int | None = None,
    ) -> None:
        self._bets = betting(
            population, level=level, low=low, high=high, plan=plan, candidates=candidates
        )
        self._pending: list[tuple[float, float, float]] = []

    @property
    def n(self) -> int:
        """Number of scores taken in."""
        return self._bets.n + len(self._pending)

    def update(self, score: float, chance: float, least: float) -> None:
        """Take in a drawn item's score.

        Parameters
        ----------
        chance : that the item had of being drawn now, among those not yet seen
        least : smallest chance that any item not yet seen had, this one among them

        Raises
        ------
        ValueError
            The score is off the scale, chances can't be so, or the population is exhausted.
        """
        self._check(*(np.array([each], dtype=np.float64) for each in (score, chance, least)))
        self._pending.append((score, chance, least))

    def extend(self, scores: ArrayLike, chances: ArrayLike, least: ArrayLike) -> Interval:
        """Take in items one after another and give the interval after each, (n,); see `update`."""
        scores, chances, least = (
            np.asarray(each, dtype=np.float64) for each in (scores, chances, least)
        )
        self._check(scores, chances, least)
        self._settle()
        return self._take(scores, chances, least)

    def interval(self) -> Interval:
        """Give the interval now, as two numbers."""
        self._settle()
        return self._bets.interval()

    def _settle(self) -> None:
        waiting, self._pending = self._pending, []
        if waiting:
            self._take(*np.array(waiting, dtype=np.float64).T)

    def _check(self, scores: Array, chances: Array, least: Array) -> None:
        bets = self._bets
        if not ((scores >= bets.low) & (scores <= bets.high)).all():
            raise ValueError(f"scores are not all within {bets.low} to {bets.high}")
        if self.n + len(scores) > bets.population:
            raise ValueError(f"there are more scores than the population's {bets.population}")
        remaining = bets.population - self.n - np.arange(len(scores))
        # Chances that sum to 1 have their smallest at 1/remaining or below.
        is_chance = (least > 0) & (least <= chances) & (chances <= 1)
        if not (is_chance & (least * remaining <= 1 + 1e-9)).all():
            raise ValueError("chances: 0 < least <= chance <= 1, and least at most 1/remaining")

    def _take(self, scores: Array, chances: Array, least: Array) -> Interval:
        bets = self._bets
        remaining = bets.population - bets.n - np.arange(len(scores))
        # From the low end of the scale, which is -1 here: a guess at the mean of those not yet seen.
        height = 2 * (scores - bets.low) / (bets.high - bets.low)
        drawn = height / (chances * remaining) - 1
        return bets.draw(scores, drawn, 2 / (least * remaining) - 1)


def weighted_betting_wor(
    scores: ArrayLike,
    chances: ArrayLike,
    least: ArrayLike,
    population: int,
    *,
    level: float = 0.95,
    low: float = 0.0,
    high: float = 1.0,
    plan: Plan = NO_PLAN,
    candidates: int | None = None,
) -> Interval:
    """Bound the mean after each of the items drawn so far, with unequal chances.

    Parameters
    ----------
    scores : (n,) in the order of the draws
    chances, least : (n,) see `WeightedSequence.update`
    population, level, low, high, plan, candidates : as `estimators.sequences_wor.betting`

    Returns
    -------
    two ends, (n,) each; with a chance of at least `level` all of them hold

    Raises
    ------
    ValueError
        As `WeightedSequence`.

    Source: [SXLLR23]; see `WeightedSequence`.
    """
    return WeightedSequence(
        population, level=level, low=low, high=high, plan=plan, candidates=candidates
    ).extend(scores, chances, least)
