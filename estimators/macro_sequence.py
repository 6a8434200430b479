"""A bound for a mean of strata's means that holds at every round: one item of each stratum a round."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike

from estimators.intervals import Array, Interval
from estimators.sequences_wor import Plan


class MacroSequence:
    """Bounds Σ_s w_s mean_s of a stratified finite population after each round of its strata.

    In round r the r-th item of each stratum comes in, in an order of its own that was fixed
    beforehand; strata that are exhausted sit out, and their means are known. With
    lam_{s,r} = lam w_s (N_s - r + 1)/N_s the sum of lam_{s,r} (x + sum_s/(N_s - r + 1)) has the
    expectation lam Σ_s w_s mean_s, whatever came before; so the mean of these sums over rounds is off
    by at most (ln(2/alpha) + R²/8 Σ lam_{s,j}²)/(lam r), at all rounds at once. One sequence a stratum,
    each at alpha/S, would be about √S times as wide.

    Scores may come in any order of strata; a round counts once it is whole. Intervals are
    intersected with those before and with the sure range.

    Parameters
    ----------
    sizes : (S,) N_s, items of each stratum
    plan : where the sequence is meant to end; its `n` and `most` are numbers of rounds. Chosen beforehand
    weights : (S,) w_s > 0; None: 1/S each
    level : chance, at least, that all intervals hold
    low, high : ends of the scale of the scores

    Raises
    ------
    ValueError
        No strata, an empty one, weights that do not fit or are not above 0, a level outside (0, 1), a
        scale without length, or no plan.

    Complexity: O(1) a score, O(S) a round.

    Source: [WR20] Hoeffding's sequence without replacement; its sum over strata is ours.
    """

    def __init__(
        self,
        sizes: ArrayLike,
        plan: Plan,
        *,
        weights: ArrayLike | None = None,
        level: float = 0.95,
        low: float = 0.0,
        high: float = 1.0,
    ) -> None:
        self._sizes = np.asarray(sizes, dtype=np.int64)
        n_strata = len(self._sizes)
        if n_strata == 0 or self._sizes.min() < 1:
            raise ValueError("sizes: each stratum has at least one item")
        share = np.full(n_strata, 1 / n_strata) if weights is None else np.asarray(weights) * 1.0
        if share.shape != self._sizes.shape or not (share > 0).all():
            raise ValueError("weights: one above 0 for each stratum")
        if not 0 < level < 1:
            raise ValueError(f"level: {level} is not within (0, 1)")
        if not -math.inf < low < high < math.inf:
            raise ValueError(f"scores from {low} to {high} are not a scale")
        self._weights, self._low, self._high = share, low, high
        self._log_limit = math.log(2 / (1 - level))
        squares = (high - low) ** 2 * float(share @ share)
        self._bet = math.sqrt(8 * self._log_limit / (self._planned_rounds(plan, squares) * squares))
        self._waiting: list[deque[float]] = [deque() for _ in range(n_strata)]
        self._n_ready, self._n_open, self._rounds = 0, n_strata, 0
        self._sums = np.zeros(n_strata)
        self._gain = self._cost = 0.0
        total = float(share.sum())
        self._ends = (low * total, high * total)

    def _planned_rounds(self, plan: Plan, squares: float) -> float:
        match plan:
            case Plan(half_width=None, n=int(rounds)) if rounds > 0:
                return rounds
            case Plan(half_width=float(width), n=None) if width > 0:
                # As if drawn with replacement, then what a finite population saves.
                needed = self._log_limit * squares / (2 * width**2)
                return min(needed / (1 + needed / float(self._sizes.mean())), plan.most or math.inf)
        raise ValueError("plan: a half-width or a number of rounds, above 0")

    @property
    def rounds(self) -> int:
        """Number of whole rounds."""
        return self._rounds

    def update(self, stratum: int, score: float) -> None:
        """Take in the next score of a stratum's order.

        Raises
        ------
        ValueError
            The score is off the scale, or the stratum is exhausted.
        """
        if not self._low <= score <= self._high:
            raise ValueError(f"a score of {score} is not within {self._low} to {self._high}")
        waiting = self._waiting[stratum]
        if self._rounds + len(waiting) >= self._sizes[stratum]:
            raise ValueError(
                f"all {self._sizes[stratum]} scores of stratum {stratum} are in already"
            )
        waiting.append(score)
        self._n_ready += len(waiting) == 1
        while 0 < self._n_ready == self._n_open:
            self._round()

    def interval(self) -> Interval:
        """Give the interval after the last whole round, as two numbers."""
        share = self._weights / self._sizes
        unseen = np.maximum(self._sizes - self._rounds, 0)
        least = float(share @ (self._sums + unseen * self._low))
        most = float(share @ (self._sums + unseen * self._high))
        lower, upper = max(self._ends[0], least), min(self._ends[1], most)
        if lower > upper:
            lower, upper = least, most
        return Interval(np.array(lower), np.array(upper))

    def _round(self) -> None:
        is_open = self._sizes > self._rounds
        size, weight, before = (each[is_open] for each in (self._sizes, self._weights, self._sums))
        scores = np.array([queue.popleft() for queue in self._waiting if queue])
        self._n_ready = sum(map(bool, self._waiting))
        remaining = size - self._rounds
        bet = self._bet * weight * remaining / size
        known = self._weights[~is_open] @ (self._sums[~is_open] / self._sizes[~is_open])
        self._gain += float(bet @ (scores + before / remaining) + self._bet * known)
        self._cost += (self._high - self._low) ** 2 / 8 * float(bet @ bet)
        self._sums[is_open] += scores
        self._rounds += 1
        self._n_open = int(np.count_nonzero(self._sizes > self._rounds))
        staked = self._bet * self._rounds
        centre, margin = self._gain / staked, (self._log_limit + self._cost) / staked
        self._ends = (max(self._ends[0], centre - margin), min(self._ends[1], centre + margin))


def macro_round_robin(
    scores: Sequence[Array],
    sizes: ArrayLike,
    plan: Plan,
    *,
    weights: ArrayLike | None = None,
    level: float = 0.95,
    low: float = 0.0,
    high: float = 1.0,
) -> Interval:
    """Bound a mean of strata's means after each whole round.

    Parameters
    ----------
    scores : S arrays (n_s,), each in the order of its stratum that was fixed beforehand
    sizes, plan, weights, level, low, high : as `MacroSequence`

    Returns
    -------
    two ends, (rounds,) each; with a chance of at least `level` all of them hold

    Raises
    ------
    ValueError
        As `MacroSequence`, or there is not one array for each stratum.

    Source: see `MacroSequence`.
    """
    sequence = MacroSequence(sizes, plan, weights=weights, level=level, low=low, high=high)
    if len(scores) != len(np.asarray(sizes)):
        raise ValueError("scores: one array for each stratum")
    found: list[Interval] = []
    for r in range(max(map(len, scores))):
        for stratum, own in enumerate(scores):
            if r < len(own):
                sequence.update(stratum, float(own[r]))
        if sequence.rounds > len(found):
            found.append(sequence.interval())
    return Interval(np.array([i.lower for i in found]), np.array([i.upper for i in found]))
