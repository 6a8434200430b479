"""A table of verdicts in sequence as numbers: which units stood in which batch, in which order."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from statistics import NormalDist
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from estimators.markov_glmm import GroupContrast, MarkovGlmm, MarkovGlmmConfig
from orchestrator.core.errors import ConfigError, Problem
from orchestrator.core.estimate import Estimate
from orchestrator.core.frame import Frame
from orchestrator.core.ids import JudgeIx, QNo, UnitIx
from orchestrator.core.money import FREE, Nano
from orchestrator.core.query import Judged, Kind, Observation, Query
from orchestrator.core.records import Record
from orchestrator.core.scale import Criterion, Scale, ScaleType
from orchestrator.core.seeds import Seeds
from orchestrator.core.study import Panelist, Study
from orchestrator.ratings import Labels, Ratings, Sort, read_order, read_ratings
from orchestrator.report.assessment import Naive
from orchestrator.tables import Columns, Problems
from orchestrator.wording import seen

PARTS: Mapping[str, tuple[str, ...]] = {
    "batch_id": ("batch",),
    "position": ("slot",),
    "item_id": ("item",),
    "judge": (),
    "y": (),
    "arm": (),
    "group": (),
}
"""The parts of a table of verdicts in sequence, and other names that their columns go by."""


YES_NO = Scale(type=ScaleType.BOOLEAN)

MOST_UNITS = 1000
"""Units that one model holds at most; its time goes with their square."""


@dataclass(frozen=True, kw_only=True, eq=False)
class InSequence:
    """Verdicts in sequence.

    Parameters
    ----------
    ratings : what each row rates, with y as its score
    batch : of each row; judges have batches of their own, whatever their names
    position : (n,) int64, of each row in its batch
    """

    ratings: Ratings
    batch: Labels
    position: NDArray[np.int64]

    @cached_property
    def units(self) -> Labels:
        """What each row rates: its item, or with arms that share items its item in its arm."""
        ratings = self.ratings
        n_arms = len(ratings.arm.names)
        pairs, code = np.unique(
            ratings.item.codes * n_arms + ratings.arm.codes, return_inverse=True
        )
        item, arm = pairs // n_arms, pairs % n_arms
        is_shared = len(np.unique(item)) < len(item)
        names = (
            f"{ratings.item.names[i]} ({ratings.arm.names[a]})"
            if is_shared
            else ratings.item.names[i]
            for i, a in zip(item.tolist(), arm.tolist(), strict=True)
        )
        return Labels(code.astype(np.int64), tuple(names))

    @cached_property
    def sides(self) -> Labels | None:
        """What is compared, of each unit: its arm where there are several, else its group."""
        ratings, (code, names) = self.ratings, self.units
        first = np.unique(code, return_index=True)[1]
        if len(ratings.arm.names) > 1:
            return Labels(ratings.arm.codes[first], ratings.arm.names)
        if ratings.group is None:
            return None
        labels = [ratings.group[i] for i in ratings.item.codes[first].tolist()]
        known = tuple(dict.fromkeys(labels))
        assert len(labels) == len(names)
        return Labels(np.array([known.index(label) for label in labels], dtype=np.int64), known)

    def batches(self) -> Iterator[NDArray[np.int64]]:
        """Give the rows of each batch in presentation order; batches as they begin in the table."""
        key = self._key()
        order = np.lexsort((self.position, key))
        starts = np.flatnonzero(np.diff(key[order], prepend=-1))
        rows = np.split(order, starts[1:])
        yield from sorted(rows, key=lambda of_batch: int(of_batch.min()))

    def records(self) -> Iterator[Record]:
        """Give the batches as told questions.

        A verdict that is missing leaves its slot out, so that nobody knows what the judge thought.
        """
        unit, judge, score = self.units.codes, self.ratings.judge.codes, self.ratings.score
        says_nothing = self.ratings.sort == Sort.NOT_APPLICABLE
        for number, rows in enumerate(self.batches()):
            query = Query(
                kind=Kind.RATE_BATCH,
                judge=JudgeIx(int(judge[rows[0]])),
                units=tuple(UnitIx(u) for u in unit[rows].tolist()),
                replicate=number,
            )
            said = tuple(
                Observation(
                    unit=UnitIx(int(unit[row])),
                    slot=slot,
                    value=None if says_nothing[row] else float(score[row]),
                )
                for slot, row in enumerate(rows.tolist())
                if says_nothing[row] or not np.isnan(score[row])
            )
            outcome = Judged(observations=said, cost=Nano(0), usage=None)
            yield Record(q=QNo(number), query=query, outcome=outcome)

    def refuse_repeats(self, columns: Mapping[str, str], problems: Problems) -> None:
        """Add a problem for each row whose place, or whose unit, its batch has already."""
        named = {"position": self.position, "item_id": self.units.codes}
        for part, code in named.items():
            pairs = np.stack((self._key(), code))
            first = np.unique(pairs, axis=1, return_index=True)[1]
            for row in sorted(set(range(len(code))) - set(first.tolist())):
                batch = seen(self.batch.names[self.batch.codes[row]])
                message = f"batch {batch} has this {part.removesuffix('_id')} already"
                problem = self.ratings.table.row(row).problem(columns[part], message)
                problems.add(f"{part} twice", problem)

    def _key(self) -> NDArray[np.int64]:
        return self.ratings.judge.codes * len(self.batch.names) + self.batch.codes


def read_sequence(
    table: Columns,
    columns: Mapping[str, str],
    problems: Problems,
    *,
    accept_from: float | None = None,
) -> InSequence:
    """Read a table of verdicts in sequence; what is wrong with cells is added to the problems.

    It can be used if there were none.

    Parameters
    ----------
    columns : part to column, all that `PARTS` names but `arm` and `group` among them
    accept_from : the lowest verdict that is a yes; None: verdicts are yes or no themselves
    """
    rated = {part: column for part, column in columns.items() if part in _RATED}
    ratings = read_ratings(table, rated | {"score": columns["y"]}, problems)
    batch, position = read_order(table, columns, problems)
    if accept_from is None:
        _refuse_others(ratings, columns["y"], problems)
    else:
        ratings = _accepted(ratings, columns["y"], accept_from, problems)
    found = InSequence(ratings=ratings, batch=batch, position=position)
    if not problems.listed():
        found.refuse_repeats(columns, problems)
    return found


_RATED = ("item_id", "judge", "arm", "group")


def _refuse_others(ratings: Ratings, column: str, problems: Problems) -> None:
    score = ratings.score
    for row in np.flatnonzero(~np.isnan(score) & (score != 0) & (score != 1)).tolist():
        message = (
            f"wants 1 or 0, true or false, not {score[row]:g}; or --accept-from, the lowest number "
            "that is a yes"
        )
        problems.add("no yes or no", ratings.table.row(row).problem(column, message))


def _accepted(ratings: Ratings, column: str, line: float, problems: Problems) -> Ratings:
    """Take verdicts from a line up as a yes; the line must part those that there are."""
    score, is_rated = ratings.score, ~np.isnan(ratings.score)
    for row in np.flatnonzero(ratings.sort == Sort.BOOLEAN).tolist():
        message = "true or false, where --accept-from wants numbers"
        problems.add("mixed types", ratings.table.row(row).problem(column, message))
    if not problems.listed() and is_rated.any():
        low, high = float(score[is_rated].min()), float(score[is_rated].max())
        if not low < line <= high:
            verdicts = f"{low:g}" if low == high else f"{low:g} to {high:g}"
            message = f"{line:g} parts no verdicts from others: column {column} has {verdicts}"
            problems.add("accept_from", Problem(path="--accept-from", message=message))
    return replace(ratings, score=np.where(is_rated, score >= line, np.nan))


def estimates_of(
    table: InSequence,
    *,
    name: str,
    confidence: float,
    contrast: tuple[str, str] | None,
    inference: Literal["panel", "items"],
) -> tuple[Estimate, ...]:
    """Estimate what a run with these verdicts would: a comparison of two sides, and each unit.

    Raises
    ------
    ConfigError
        The estimator refuses the request, or there are too many units.
    """
    ratings, names, sides = table.ratings, table.units.names, table.sides
    if len(names) > MOST_UNITS:
        raise ConfigError(f"{len(names):,} units are more than {MOST_UNITS:,}; split the table")
    group = None if sides is None else [sides.names[c] for c in sides.codes.tolist()]
    study = Study(
        kind=Kind.RATE_BATCH,
        frame=Frame.of(names, group=group),
        panel=tuple(Panelist(name=judge, card=FREE) for judge in ratings.judge.names),
        criteria=(Criterion(name=name, scale=YES_NO),),
        seeds=Seeds(0),
    )
    compared = None
    if contrast is not None:
        compared = GroupContrast(group=contrast[0], baseline=contrast[1])
    config = MarkovGlmmConfig(
        name=name, confidence=confidence, contrast=compared, inference=inference
    )
    try:
        estimator = MarkovGlmm(config, study)
        for record in table.records():
            estimator.update(record)
        return estimator.estimate()
    except ValueError as exc:
        raise ConfigError(f"markov_glmm can't estimate this: {exc}") from exc


def naive_of(table: InSequence, estimate: Estimate, contrast: tuple[str, str] | None) -> Naive:
    """Take every row as an independent item: shares of yes, along the estimate's names."""
    group, n_groups = table.units.codes, len(table.units.names)
    sides = table.sides
    if estimate.target == "groups" and sides is not None:
        group, n_groups = sides.codes[group], len(sides.names)
    score = table.ratings.score
    is_rated = ~np.isnan(score)
    group, score = group[is_rated], score[is_rated]
    n = np.bincount(group, minlength=n_groups)
    with np.errstate(divide="ignore", invalid="ignore"):  # what has no row is not known
        share = np.bincount(group, score, n_groups) / n
        variance = share * (1 - share) / np.where(n > 1, n - 1, np.nan)
    if estimate.target == "groups" and sides is not None and contrast is not None:
        both = [sides.names.index(side) for side in contrast]
        n, variance = n[both].sum(keepdims=True), variance[both].sum(keepdims=True)
        share = -np.diff(share[both])
    half = NormalDist().inv_cdf((1 + estimate.level) / 2) * np.sqrt(variance)
    return Naive(
        n_rows=tuple(n.tolist()),
        value=tuple(share.tolist()),
        lower=tuple((share - half).tolist()),
        upper=tuple((share + half).tolist()),
    )
