"""Running sums of scores per unit and judge, and what they say about the judges.

A cell is one judge's answers about one unit. All arrays over cells are
(n_judges, n_arms, n_items): numpy sums over outer axes several times faster than over short inner
ones.
"""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from estimators.intervals import FLAT, Array
from orchestrator.core.query import Missing, MissingReason, Observation, Role
from orchestrator.core.records import Record
from orchestrator.core.scale import COMPOSITE, ScaleType
from orchestrator.core.study import Study

Mask = NDArray[np.bool_]


class Scoring:
    """How an answer becomes one score: a criterion's value, or the composite of all.

    An answer scores (sum of slope * (value - low)) / (sum of weights) over the criteria that apply
    to it, counted from the scale's low end. What does not apply leaves both sums.

    Parameters
    ----------
    criterion : its name, or `composite`; None: the only one, or the composite of several

    Raises
    ------
    ValueError
        No such criterion, or one that holds preferences.
    """

    def __init__(self, study: Study, criterion: str | None = None) -> None:
        known = {c.name: c for c in study.criteria}
        self.name = criterion or (next(iter(known)) if len(known) == 1 else COMPOSITE)
        is_composite = self.name == COMPOSITE
        if not is_composite and self.name not in known:
            raise ValueError(f"criterion: no {self.name!r} among {', '.join([*known, COMPOSITE])}")
        chosen = study.criteria if is_composite else (known[self.name],)
        if any(c.scale.type is ScaleType.PREFERENCE for c in chosen):
            raise ValueError(f"criterion: {self.name!r} holds preferences, which have no mean")
        scale = chosen[0].scale
        self.low, self.high = (0.0, 1.0) if is_composite else (scale.low, scale.high)
        self.is_boolean = not is_composite and scale.type is ScaleType.BOOLEAN
        self.terms = tuple(
            (c.scale.low, c.weight / c.scale.span, c.weight)
            if is_composite
            else (c.scale.low, float(c.name == self.name), float(c.name == self.name))
            for c in study.criteria
        )

    @property
    def span(self) -> float:
        """The distance between the scale's ends."""
        return self.high - self.low

    def of_answer(
        self, units: Sequence[int], observations: Sequence[Observation]
    ) -> list[tuple[int, float | None]]:
        """Score each unit of an answer; None where no criterion applies."""
        sums = dict.fromkeys(units, (0.0, 0.0))
        for o in observations:
            if o.value is not None:
                low, slope, part = self.terms[o.criterion]
                top, weight = sums[o.unit]
                sums[o.unit] = (top + slope * (o.value - low), weight + part)
        return [(unit, top / weight if weight else None) for unit, (top, weight) in sums.items()]

    def of_table(self, values: Array) -> Array:
        """Score rows of values (n, n_criteria), NaN where a criterion does not apply: (n,)."""
        top, weight = np.zeros(len(values)), np.zeros(len(values))
        for (low, slope, part), column in zip(self.terms, values.T, strict=True):
            applies = ~np.isnan(column)
            top[applies] += slope * (column[applies] - low)
            weight[applies] += part
        return ratio(top, weight)


class Cells:
    """Sums of scores per cell: `count`, `total` and `square` of those given, and what was not.

    `missing` leaves out what a recording could not repeat; `reasons` counts everything missing by
    arm and reason. With integer scores all sums are exact, whatever the order of adding.
    """

    def __init__(self, study: Study, scoring: Scoring) -> None:
        frame = study.frame
        shape = (len(study.panel), frame.n_arms, frame.n_items)
        self.scoring = scoring
        self.n_arms, self.n_items = frame.n_arms, frame.n_items
        # Reading and writing one element takes a third of numpy's time in an array of the standard
        # library; both see the same memory.
        zeros = bytes(8 * len(study.panel) * frame.n_units)
        self._sums = tuple(array("d", zeros) for _ in range(5))
        self.count, self.total, self.square, self.not_applicable, self.missing = (
            np.asarray(one).reshape(shape) for one in self._sums
        )
        self.reasons: dict[tuple[int, MissingReason], int] = {}

    def add(self, record: Record) -> None:
        """Add one told question; what systems were asked is passed over."""
        query, outcome = record.query, record.outcome
        if query.role is not Role.JUDGE:
            return
        count, total, square, not_applicable, missing = self._sums
        if isinstance(outcome, Missing):
            for unit in query.units:
                item, arm = divmod(unit, self.n_arms)
                self._add_reason(arm, outcome.reason)
                if outcome.reason is not MissingReason.EXHAUSTED:
                    missing[(query.judge * self.n_arms + arm) * self.n_items + item] += 1
            return
        for place, score in self.scoring.of_answer(query.units, outcome.observations):
            item, arm = divmod(place, self.n_arms)
            cell = (query.judge * self.n_arms + arm) * self.n_items + item
            if score is None:
                not_applicable[cell] += 1
            else:
                count[cell] += 1
                total[cell] += score
                square[cell] += score * score

    def add_table(
        self,
        unit: NDArray[np.int64],
        judge: NDArray[np.int64],
        values: Array,
        missing: Sequence[MissingReason | None],
    ) -> None:
        """Add many questions; the sums are those of `add` in the same order, to the last bit.

        Parameters
        ----------
        unit, judge : (n,) int64
        values : (n, n_criteria) float64, NaN where a criterion does not apply
        missing : (n,) why there is no verdict, None where there is one
        """
        item, arm = np.divmod(unit, self.n_arms)
        cell = (judge * self.n_arms + arm) * self.n_items + item
        score = self.scoring.of_table(values)
        is_missing = np.array([reason is not None for reason in missing], dtype=bool)
        is_exhausted = np.array([r is MissingReason.EXHAUSTED for r in missing], dtype=bool)
        is_scored = ~is_missing & ~np.isnan(score)
        for sums, which, weights in (
            (self.count, is_scored, None),
            (self.total, is_scored, score[is_scored]),
            (self.square, is_scored, score[is_scored] ** 2),
            (self.not_applicable, ~is_missing & ~is_scored, None),
            (self.missing, is_missing & ~is_exhausted, None),
        ):
            added = np.bincount(cell[which], weights, sums.size).reshape(sums.shape)
            np.add(sums, added, out=sums)
        for number, reason in zip(arm.tolist(), missing, strict=True):
            if reason is not None:
                self._add_reason(number, reason)

    def _add_reason(self, arm: int, reason: MissingReason) -> None:
        self.reasons[arm, reason] = self.reasons.get((arm, reason), 0) + 1


class Panel:
    """What the sums say of cells and judges.

    Attributes
    ----------
    answered : cells with an answer
    mean, variance : over cells, on the scale; 0 where there is no answer, no repeat
    noise, noise_df : (n_judges,) repeat variance pooled over a judge's cells, and its degrees of
        freedom. Without repeats it is nan; also where all are identical: these are copies.
    """

    def __init__(self, cells: Cells) -> None:
        n, low, span = cells.count, cells.scoring.low, cells.scoring.span
        self.count = n
        self.answered = n > 0
        at_least_one = np.maximum(n, 1)
        self.mean = np.where(self.answered, low + cells.total / at_least_one, 0)
        squares = cells.square - cells.total**2 / at_least_one
        # The subtraction leaves rounding where all repeats are equal; it is cut off.
        squares[squares <= n * (FLAT * span) ** 2] = 0
        df = at_least_one - 1
        self.variance = squares / np.maximum(df, 1)
        self.noise_df = df.sum(axis=(1, 2))
        self.noise = ratio(squares.sum(axis=(1, 2)), self.noise_df)
        self.noise[self.noise == 0] = np.nan

    def judge_means(self) -> Array:
        """Average each judge's cell means, (n_judges,)."""
        return ratio(self.mean.sum(axis=(1, 2)), self.answered.sum(axis=(1, 2)))

    def repeat_variances(self) -> Array:
        """Average each judge's sample variances over cells with repeats, (n_judges,)."""
        return ratio(self.variance.sum(axis=(1, 2)), (self.count >= 2).sum(axis=(1, 2)))

    def identical_repeats(self) -> tuple[Array, Array]:
        """Count each judge's cells of three and more repeats that are all equal, and all such."""
        is_repeated = self.count >= 3
        is_alike = is_repeated & (self.variance == 0)
        return is_alike.sum(axis=(1, 2)) * 1.0, is_repeated.sum(axis=(1, 2)) * 1.0

    def interaction(self) -> Interaction:
        """Estimate how far judges differ on single units, beyond offsets and repeat noise.

        Over the units that every judge with answers has answered: the mean square of what unit and
        judge means leave of the cell means, less the mean of noise/n, which is what repeats put
        into it: the analysis of variance of a two-way layout with the judges' pooled variances.
        """
        takes_part = self.answered.any(axis=(1, 2))
        shared = self.answered[takes_part].all(axis=0)
        y, n = self.mean[takes_part][:, shared], self.count[takes_part][:, shared]
        n_judges, n_units = y.shape
        df = (n_judges - 1) * (n_units - 1)
        if min(n_judges, n_units) < 2:
            return Interaction(np.nan, np.nan, n_units, n_judges)
        left = y - y.mean(axis=0) - y.mean(axis=1, keepdims=True) + y.mean()
        square = float((left**2).sum() / df)
        noise = self.noise[takes_part, None] / n
        return Interaction(square - float(noise.mean()), square, n_units, n_judges)


class Interaction(NamedTuple):
    """Variance of the judge by unit interaction: nan where unknown; negative by chance at times."""

    variance: float
    mean_square: float
    n_units: int
    n_judges: int


def ratio(top: Array, bottom: Array) -> Array:
    """Divide, nan where there is nothing to divide by."""
    unknown = np.full_like(top, np.nan, dtype=np.float64)
    quotient: Array = np.divide(top, bottom, out=unknown, where=bottom > 0)
    return quotient
