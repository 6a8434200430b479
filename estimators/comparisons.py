"""Comparisons as they are told: who was shown first, who second, and which was better.

Two orders of one question are two comparisons. Whether a judge keeps to its word when the order is
turned is counted here, and enters no strength.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from orchestrator.core.query import Judged, Kind, Preference
from orchestrator.core.records import Record
from orchestrator.core.study import Study

Index = NDArray[np.int64]
Array = NDArray[np.float64]

OUTCOME = {Preference.FIRST: 1.0, Preference.TIE: 0.5, Preference.SECOND: 0.0}
"""What a preference is worth to the model that was shown first."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Comparisons:
    """Verdicts of comparisons, one a row.

    Parameters
    ----------
    left, right : (n,) int64, arms in presentation order
    outcome : (n,) float64, 1 left is better, .5 tie, 0 right is better
    item, judge, replicate : (n,) int64
    propensity : (n,) float64, of the question when it was asked; nan where nobody knows it
    """

    left: Index
    right: Index
    outcome: Array
    item: Index
    judge: Index
    replicate: Index
    propensity: Array

    def __len__(self) -> int:
        return len(self.left)

    def take(self, rows: NDArray[np.bool_] | Index) -> Comparisons:
        """Keep these rows."""
        return Comparisons(
            left=self.left[rows],
            right=self.right[rows],
            outcome=self.outcome[rows],
            item=self.item[rows],
            judge=self.judge[rows],
            replicate=self.replicate[rows],
            propensity=self.propensity[rows],
        )


class Told:
    """Collects the comparisons of one criterion from told questions.

    Attributes
    ----------
    asked, missing : (n_arms, n_arms) int64, questions by first and second arm; missing ones brought
        no verdict, for whatever reason
    n_not_applicable : verdicts that called the criterion not applicable
    """

    def __init__(self, study: Study, criterion: int) -> None:
        if study.kind is not Kind.COMPARE:
            raise ValueError(f"comparisons come of the task compare, not of {study.kind}")
        self._frame, self._criterion = study.frame, criterion
        n_arms = study.frame.n_arms
        self.asked = np.zeros((n_arms, n_arms), dtype=np.int64)
        self.missing = np.zeros((n_arms, n_arms), dtype=np.int64)
        self.n_not_applicable = 0
        self.n_prior = 0
        self._whole = array("q")
        self._real = array("d")
        self._table: Comparisons | None = None
        for record in study.prior:
            self.update(record, is_prior=True)
        self.n_prior = len(self)

    def __len__(self) -> int:
        return len(self._real) // 2

    def update(self, record: Record, *, is_prior: bool = False) -> None:
        """Take in one told question; the propensity of an earlier one is not known."""
        frame, query = self._frame, record.query
        left, right = (frame.arm_of(unit) for unit in query.units)
        if not is_prior:
            self.asked[left, right] += 1
        if not isinstance(record.outcome, Judged):
            self.missing[left, right] += not is_prior
            return
        said = next(
            (o.preference for o in record.outcome.observations if o.criterion == self._criterion),
            None,
        )
        if said is None:
            self.n_not_applicable += 1
            return
        item = frame.item_of(query.units[0])
        self._whole.extend((left, right, item, query.judge, query.replicate))
        self._real.extend((OUTCOME[said], np.nan if is_prior else query.propensity))
        self._table = None

    def take(self, table: Comparisons, missing: Index) -> None:
        """Take in a whole table at once; `missing` as the attribute."""
        whole = (table.left, table.right, table.item, table.judge, table.replicate)
        self._whole.frombytes(np.stack(whole, axis=1).astype(np.int64).tobytes())
        real = np.stack((table.outcome, table.propensity), axis=1)
        self._real.frombytes(real.astype(np.float64).tobytes())
        np.add.at(self.asked, (table.left, table.right), 1)
        self.asked += missing
        self.missing += missing
        self._table = None

    @property
    def table(self) -> Comparisons:
        """The comparisons so far, in telling order; earlier ones first."""
        if self._table is None:
            whole = np.array(self._whole, dtype=np.int64).reshape(-1, 5)
            real = np.array(self._real, dtype=np.float64).reshape(-1, 2)
            left, right, item, judge, replicate = np.ascontiguousarray(whole.T)
            outcome, propensity = np.ascontiguousarray(real.T)
            self._table = Comparisons(
                left=left,
                right=right,
                outcome=outcome,
                item=item,
                judge=judge,
                replicate=replicate,
                propensity=propensity,
            )
        return self._table

    def missing_share(self) -> dict[str, float]:
        """Give the share of each arm's questions that brought no verdict."""
        asked = (self.asked + self.asked.T).sum(axis=0)
        missing = (self.missing + self.missing.T).sum(axis=0)
        shares = np.divide(missing, asked, out=np.zeros(len(asked)), where=asked > 0)
        return dict(zip(self._frame.arms, shares.tolist(), strict=True))


class Turned(NamedTuple):
    """What became of questions that were asked in both orders.

    Attributes
    ----------
    n : questions asked in both orders
    kept : the same model was better both times, or there were two ties
    flipped : the better model was another one once the order was turned
    wavered : one tie, and one that was none
    to_first : flips in which the model shown first was better both times
    """

    n: int
    kept: int
    flipped: int
    wavered: int
    to_first: int


def turned(of: Comparisons) -> Turned:
    """Count what became of questions asked in both orders.

    Two comparisons are one question in both orders if item, judge and repeat are the same, and the
    models, turned. A flip is no tie and no win of either.
    """
    first, second = _both_orders(of)
    # From the view of the model that the first order shows first.
    before, after = of.outcome[first], 1 - of.outcome[second]
    flipped = np.abs(before - after) == 1
    return Turned(
        n=len(first),
        kept=int((before == after).sum()),
        flipped=int(flipped.sum()),
        wavered=int((np.abs(before - after) == 0.5).sum()),
        to_first=int((flipped & (before == 1)).sum()),
    )


def _both_orders(of: Comparisons) -> tuple[Index, Index]:
    """Match the rows of each question in its two orders; the one with left < right comes first."""
    low, high = np.minimum(of.left, of.right), np.maximum(of.left, of.right)
    is_turned = of.left > of.right
    key = np.stack((of.judge, of.item, low, high, of.replicate))
    order = np.lexsort((np.arange(len(of)), is_turned, *key[::-1]))
    same = (key[:, order[1:]] == key[:, order[:-1]]).all(axis=0)
    pairs = np.flatnonzero(same & ~is_turned[order[:-1]] & is_turned[order[1:]])
    return order[pairs], order[pairs + 1]


def balanced_weights(table: Comparisons, n_models: int) -> Array:
    """Weigh comparisons so that each pair before each judge that was asked of it counts alike.

    Within a judge's comparisons of a pair they weigh 1/propensity, and as the mean of these where
    nobody knows it; the sum of each is the same. 1/propensity alone is right only while the law can
    draw every pair and judge: once a pair has no items left, or a judge is away, all the others'
    probabilities grow, and what is asked from then on weighs too little beside what was asked before.

    Returns
    -------
    (n,) float64, > 0, with mean 1. Where a judge was not asked about all pairs, or not all the time,
    no weights make up for what was not asked: pairs then count by the number of their judges.
    """
    low, high = np.minimum(table.left, table.right), np.maximum(table.left, table.right)
    cells, cell = np.unique((table.judge * n_models + low) * n_models + high, return_inverse=True)
    is_known = ~np.isnan(table.propensity)
    odds = np.ones(len(table))
    odds[is_known] = 1 / table.propensity[is_known]
    n_known = np.bincount(cell[is_known], minlength=len(cells))
    sums = np.bincount(cell[is_known], odds[is_known], minlength=len(cells))
    means = np.divide(sums, n_known, out=np.ones(len(cells)), where=n_known > 0)
    odds = np.where(is_known, odds, means[cell])
    weights: Array = odds / np.bincount(cell, odds, minlength=len(cells))[cell]
    return weights * len(table) / max(len(cells), 1)


class JudgeRow(NamedTuple):
    """How one judge compares."""

    n: int
    n_ties: int
    n_first: int
    turned: Turned

    @property
    def first_share(self) -> float:
        """How often the model shown first is better, among verdicts that are no ties; else nan."""
        n = self.n - self.n_ties
        return self.n_first / n if n else float("nan")


def by_judge(of: Comparisons, n_judges: int) -> Iterator[JudgeRow]:
    """Describe each judge's verdicts."""
    for judge in range(n_judges):
        own = of.take(of.judge == judge)
        yield JudgeRow(
            n=len(own),
            n_ties=int((own.outcome == 0.5).sum()),
            n_first=int((own.outcome == 1).sum()),
            turned=turned(own),
        )


def criterion_of(study: Study, name: str | None) -> int:
    """Find the criterion that is estimated: the one named, or the only one.

    Raises
    ------
    ValueError
        There are several and none is named, or none is named so.
    """
    names: Sequence[str] = [criterion.name for criterion in study.criteria]
    if name is None and len(names) == 1:
        return 0
    if name is None:
        raise ValueError(f"criterion: name one of {', '.join(names)}")
    if name not in names:
        raise ValueError(f"criterion: {name!r} is none of {', '.join(names)}")
    return names.index(name)
