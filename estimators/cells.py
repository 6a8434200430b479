"""Running sums of scores per unit and judge, and what they say about the judges.

A cell is one judge's answers about one unit. All arrays over cells are
(n_judges, n_arms, n_items): numpy sums over outer axes several times faster than over short inner
ones. Answers that a policy asked for to learn about judges (`Purpose.PILOT`) have sums of their own.
"""

from __future__ import annotations

from array import array
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from estimators.intervals import FLAT, Array
from orchestrator.core.query import Missing, MissingReason, Observation, Purpose, Query, Role
from orchestrator.core.records import Record
from orchestrator.core.scale import COMPOSITE, ScaleType
from orchestrator.core.study import Study
from orchestrator.core.wire import Origin

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
            raise ValueError(
                f"criterion: {self.name!r} holds preferences, which have no mean; bradley_terry and "
                "bt_tensor read them"
            )
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


class Sums:
    """What was scored in each cell (`count`, `total`, `square`), and how much was not.

    `missing` leaves out what a recording could not repeat.
    """

    def __init__(self, shape: tuple[int, int, int]) -> None:
        # Reading and writing one element takes a third of numpy's time in an array of the standard
        # library; both see the same memory.
        zeros = bytes(8 * shape[0] * shape[1] * shape[2])
        self.buffers = tuple(array("d", zeros) for _ in range(5))
        self.arrays = tuple(np.asarray(one).reshape(shape) for one in self.buffers)
        self.count, self.total, self.square, self.not_applicable, self.missing = self.arrays

    def __add__(self, other: Sums) -> Sums:
        both = Sums(self.count.shape)
        for one, a, b in zip(both.arrays, self.arrays, other.arrays, strict=True):
            np.add(a, b, out=one)
        return both


class Cells:
    """The sums of a study's answers: `main`, and `pilot` where exploration was asked for.

    `reasons` counts everything missing by arm and reason. With integer scores all sums are exact,
    whatever the order of adding.
    """

    def __init__(self, study: Study, scoring: Scoring) -> None:
        frame = study.frame
        self.scoring = scoring
        self.n_arms, self.n_items = frame.n_arms, frame.n_items
        self._shape = (len(study.panel), frame.n_arms, frame.n_items)
        self.main = Sums(self._shape)
        self.pilot: Sums | None = None
        self._keyed: NDArray[np.bool_] | None = None
        self.reasons: dict[tuple[int, MissingReason], int] = {}

    def add(self, record: Record) -> None:
        """Add one told question; what systems were asked is passed over."""
        query, outcome = record.query, record.outcome
        if query.role is not Role.JUDGE:
            return
        sums = self._pilot() if query.purpose is Purpose.PILOT else self.main
        count, total, square, not_applicable, missing = sums.buffers
        if isinstance(outcome, Missing):
            for unit in query.units:
                item, arm = divmod(unit, self.n_arms)
                self._add_reason(arm, outcome.reason)
                if outcome.reason is not MissingReason.EXHAUSTED:
                    missing[(query.judge * self.n_arms + arm) * self.n_items + item] += 1
            return
        if outcome.origin is Origin.KEY:
            self._note_keyed(query)
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
        is_pilot: Mask,
    ) -> None:
        """Add many questions; the sums are those of `add` in the same order, to the last bit.

        Parameters
        ----------
        unit, judge : (n,) int64
        values : (n, n_criteria) float64, NaN where a criterion does not apply
        missing : (n,) why there is no verdict, None where there is one
        is_pilot : (n,) whether it was asked to explore
        """
        item, arm = np.divmod(unit, self.n_arms)
        cell = (judge * self.n_arms + arm) * self.n_items + item
        score = self.scoring.of_table(values)
        is_missing = np.array([reason is not None for reason in missing], dtype=bool)
        is_exhausted = np.array([r is MissingReason.EXHAUSTED for r in missing], dtype=bool)
        is_scored = ~is_missing & ~np.isnan(score)
        parts = [(self.main, ~is_pilot)]
        if is_pilot.any():
            parts.append((self._pilot(), is_pilot))
        for sums, belongs in parts:
            scored = belongs & is_scored
            for one, which, weights in zip(
                sums.arrays,
                (
                    scored,
                    scored,
                    scored,
                    belongs & ~is_missing & ~is_scored,
                    belongs & is_missing & ~is_exhausted,
                ),
                (None, score[scored], score[scored] ** 2, None, None),
                strict=True,
            ):
                np.add(one, np.bincount(cell[which], weights, one.size).reshape(one.shape), out=one)
        for number, reason in zip(arm.tolist(), missing, strict=True):
            if reason is not None:
                self._add_reason(number, reason)

    def judged(self, sums: Sums) -> Sums:
        """Give sums without the cells that a key decided: no judge has said anything there."""
        if self._keyed is None:
            return sums
        left = Sums(self._shape)
        for one, whole in zip(left.arrays, sums.arrays, strict=True):
            np.copyto(one, whole, where=~self._keyed)
        return left

    def _note_keyed(self, query: Query) -> None:
        if self._keyed is None:
            self._keyed = np.zeros(self._shape, dtype=np.bool_)
        for unit in query.units:
            item, arm = divmod(unit, self.n_arms)
            self._keyed[query.judge, arm, item] = True

    def _pilot(self) -> Sums:
        if self.pilot is None:
            self.pilot = Sums(self._shape)
        return self.pilot

    def _add_reason(self, arm: int, reason: MissingReason) -> None:
        self.reasons[arm, reason] = self.reasons.get((arm, reason), 0) + 1


PRIOR_DF = 3.0
"""Degrees of freedom with which a judge's variance is pulled to the panel's, for weights.

A judge with one answer, or with two equal ones, so stays finite and takes no weight by luck.
"""

LEAST_SD = 0.01
"""Least standard deviation of an answer, in units of the scale's span, that a weight rests on."""

_ROUNDING = 2.3e-16
"""What one addition may round off, relative to the sum; so many answers, so many additions."""


class Panel:
    """What sums say of cells and judges.

    Attributes
    ----------
    answered : cells with an answer
    mean, variance : over cells, on the scale; 0 where there is no answer, no repeat
    squares, df : over cells, of `variance`
    noise, noise_df : (n_judges,) repeat variance pooled over a judge's cells, and its degrees of
        freedom. Without repeats it is nan; also where all are identical: these are copies.
    """

    def __init__(self, sums: Sums, scoring: Scoring) -> None:
        n, span = sums.count, scoring.span
        self.count = n
        self.answered = n > 0
        at_least_one = np.maximum(n, 1)
        self.mean = np.where(self.answered, scoring.low + sums.total / at_least_one, 0)
        squares = sums.square - sums.total**2 / at_least_one
        # The subtraction leaves rounding where all repeats are equal; it is cut off.
        squares[squares <= n * ((FLAT * span) ** 2 + _ROUNDING * sums.square)] = 0
        self.squares, self.df = squares, at_least_one - 1
        self.variance = squares / np.maximum(self.df, 1)
        self.noise_df = by_judge(self.df)
        self.noise = ratio(by_judge(squares), self.noise_df)
        self.noise[self.noise == 0] = np.nan
        self._least = (LEAST_SD * span) ** 2

    def shrunk_noise(self) -> Array:
        """Pull each judge's noise to that of all, (n_judges,): (df s² + 3 s²_all)/(df + 3).

        A judge whose noise is unknown gets that of all; nan where no judge's is known.
        """
        is_known = ~np.isnan(self.noise)
        if not is_known.any():
            return np.full(len(self.noise), np.nan)
        df = np.where(is_known, self.noise_df, 0)
        squares = df * np.where(is_known, self.noise, 0)
        pulled: Array = (squares + PRIOR_DF * squares.sum() / df.sum()) / (df + PRIOR_DF)
        return np.maximum(pulled, self._least)

    def judge_means(self) -> Array:
        """Average each judge's cell means, (n_judges,)."""
        return ratio(by_judge(self.mean), by_judge(self.answered))

    def repeat_variances(self) -> Array:
        """Average each judge's sample variances over cells with repeats, (n_judges,)."""
        return ratio(by_judge(self.variance), by_judge(self.count >= 2))

    def identical_repeats(self) -> tuple[Array, Array]:
        """Count each judge's cells of three and more repeats that are all equal, and all such."""
        is_repeated = self.count >= 3
        is_alike = is_repeated & (self.variance == 0)
        return by_judge(is_alike), by_judge(is_repeated)


def by_judge(values: Array | Mask) -> Array:
    """Sum over each judge's cells, (n_judges,)."""
    # Over one long axis numpy adds faster than over two.
    found: Array = values.reshape(len(values), -1).sum(axis=1, dtype=np.float64)
    return found


def ratio(top: Array, bottom: Array) -> Array:
    """Divide, nan where there is nothing to divide by."""
    unknown = np.full_like(top, np.nan, dtype=np.float64)
    quotient: Array = np.divide(top, bottom, out=unknown, where=bottom > 0)
    return quotient


Clusters = NDArray[np.int64] | None
"""The cluster of each item, (n_items,); None: each item is its own."""


def by_cluster(values: Array, clusters: Clusters) -> Array:
    """Sum over the items of each cluster: (n, n_items) to (n, n_clusters)."""
    if clusters is None:
        return values
    found = np.zeros((len(values), int(clusters.max()) + 1))
    for number, row in enumerate(values):
        found[number] = np.bincount(clusters, row)
    return found
