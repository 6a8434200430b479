"""Reads human labels: rows of a file into what humans say of the units."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from orchestrator.campaign_file import Labels
from orchestrator.core.errors import InvalidCampaign, Problem
from orchestrator.core.frame import Frame
from orchestrator.core.scale import Criterion, ScaleType
from orchestrator.ratings import Ratings, Sort, read_ratings
from orchestrator.tables import Problems, read_columns
from orchestrator.wording import did_you_mean, seen


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class HumanLabels:
    """What humans say of the units of a frame.

    `values` (n_units, n_criteria) float64 are on the criteria's scales, NaN where there is none.
    """

    frame: Frame
    values: NDArray[np.float64]
    warnings: tuple[Problem, ...] = ()

    def of(self, frame: Frame) -> NDArray[np.float64]:
        """Give the labels of a frame with some of the items, in its order."""
        at = {item: i for i, item in enumerate(self.frame.items)}
        by_item = self.values.reshape(self.frame.n_items, -1)
        found: NDArray[np.float64] = by_item[[at[item] for item in frame.items]]
        return found.reshape(frame.n_units, -1)


def digest_of(values: NDArray[np.float64]) -> str:
    """Digest labels, whichever file spelled them."""
    return sha256(values.astype("<f8").tobytes()).hexdigest()


def read_labels(
    spec: Labels,
    frame: Frame,
    criteria: Sequence[Criterion],
    *,
    base: Path,
    locate: Callable[[str, str], Problem],
) -> HumanLabels:
    """Read the labels that a campaign names, relative to `base`; empty cells are none.

    Several labels of one unit, by several raters, count as their mean. `locate` makes a problem at
    a field of the campaign file.

    Raises
    ------
    InvalidCampaign
        With every problem: columns that are not there or are missing, items, arms and criteria that
        the campaign lacks, scores off the scale, lines that can't be read, no label at all.
    """
    problems = Problems()
    for key, message in _misfits(spec, frame, criteria):
        problems.add("key", locate(key, message))
    base, path = base.absolute(), base.absolute() / spec.path
    file = str(path.relative_to(base)) if path.is_relative_to(base) else str(path)
    columns = _columns(spec)
    table = read_columns(path, file, list(columns.values()), problems)
    if table is not None:
        for part, column in columns.items():
            if column not in table.names:
                hint = did_you_mean(column, table.names)
                message = f"{file} has no column {seen(column)}{hint}"
                problems.add("no such column", locate(_KEYS[part], message))
    _refuse(problems)
    assert table is not None
    ratings = read_ratings(table, columns, problems)
    values, most = _joined(ratings, frame, criteria, problems)
    if not problems.listed() and np.isnan(values).all():
        problems.add("no labels", Problem(file=file, message="no unit has a label"))
    _refuse(problems)
    warnings = []
    if (n_several := int((most > 1).sum())) > 0:
        message = f"{n_several:,} of them are the mean of several raters, {most.max()} at most"
        warnings.append(locate("labels.path", message))
    return HumanLabels(frame=frame, values=values, warnings=tuple(warnings))


_KEYS = {
    "item_id": "labels.id",
    "score": "labels.score",
    "arm": "labels.arm",
    "criterion": "labels.criterion",
}
"""Each part of a table of ratings that labels have, and the key that names its column."""


def _columns(spec: Labels) -> Mapping[str, str]:
    named = {"item_id": spec.id, "score": spec.score, "arm": spec.arm, "criterion": spec.criterion}
    return {part: column for part, column in named.items() if column is not None}


def _misfits(
    spec: Labels, frame: Frame, criteria: Sequence[Criterion]
) -> Iterator[tuple[str, str]]:
    """Want a column for what there are several of."""
    if spec.arm is None and frame.n_arms > 1:
        yield "labels.arm", "missing; there are several arms, so wants the column that names it"
    if spec.arm is not None and frame.arms == ("",):
        yield "labels.arm", "the data have no arms; leave it out"
    if spec.criterion is None and len(criteria) > 1:
        message = "missing; there are several criteria, so wants the column that names it"
        yield "labels.criterion", message


def _joined(
    ratings: Ratings, frame: Frame, criteria: Sequence[Criterion], problems: Problems
) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
    """Average the labels of each unit and criterion; give them and their numbers."""
    names = [criterion.name for criterion in criteria]
    table, columns = ratings.table, ratings.columns

    def matched(
        part: str, rows: Sequence[str], known: Sequence[str], what: str
    ) -> NDArray[np.int64]:
        index = {name: i for i, name in enumerate(known)}
        codes = getattr(ratings, part).codes
        found = np.array([index.get(name, -1) for name in rows] or [-1])[codes]
        for row in np.flatnonzero((codes >= 0) & (found < 0)).tolist():
            name = rows[codes[row]]
            hint = did_you_mean(name, known) if len(known) <= _FEW else ""
            message = f"no {what} is named {seen(name)}{hint}"
            column = columns["item_id" if part == "item" else part]
            problems.add(f"no such {what}", table.row(row).problem(column, message))
        return np.where(codes >= 0, found, -1)

    item = matched("item", ratings.item.names, frame.items, "item of the data")
    n_rows = len(item)
    arm = criterion = np.zeros(n_rows, dtype=np.int64)
    if "arm" in columns:
        arm = matched("arm", ratings.arm.names, frame.arms, "arm")
    if "criterion" in columns:
        criterion = matched("criterion", ratings.criterion.names, names, "criterion")
    low = np.array([c.scale.low for c in criteria])[criterion]
    high = np.array([c.scale.high for c in criteria])[criterion]
    score = ratings.score
    is_known = (item >= 0) & (arm >= 0) & (criterion >= 0) & ~np.isnan(score)
    for row in np.flatnonzero(is_known & ((score < low) | (score > high))).tolist():
        message = f"wants a number from {low[row]:g} to {high[row]:g}, not {score[row]:g}"
        problems.add("off the scale", table.row(row).problem(columns["score"], message))
    is_yes_no = np.array([c.scale.type is ScaleType.BOOLEAN for c in criteria])[criterion]
    for row in np.flatnonzero(is_known & (ratings.sort == Sort.BOOLEAN) & ~is_yes_no).tolist():
        problem = table.row(row).problem(
            columns["score"], "true or false, where a number is wanted"
        )
        problems.add("true or false", problem)
    at = ((item * frame.n_arms + arm) * len(criteria) + criterion)[is_known]
    shape = frame.n_units, len(criteria)
    size = frame.n_units * len(criteria)
    count = np.bincount(at, minlength=size).reshape(shape)
    total = np.bincount(at, score[is_known], size).reshape(shape)
    values = np.full(shape, np.nan)
    np.divide(total, count, out=values, where=count > 0)
    return values, count


_FEW = 1000
"""Among more names than these none is looked for that is like a misspelt one."""


def _refuse(problems: Problems) -> None:
    if listed := problems.listed():
        raise InvalidCampaign(listed)
