"""A table of ratings as numbers: what each row rates, the score, and what is known of the items."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal, InvalidOperation
from enum import IntEnum
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from orchestrator.core.money import NANO_PER_USD, Nano
from orchestrator.core.query import MissingReason
from orchestrator.core.scale import FARTHEST
from orchestrator.tables import Column, Columns, Problems
from orchestrator.task import DEFAULT_CRITERION
from orchestrator.wording import seen

Codes = NDArray[np.int64]
Array = NDArray[np.float64]
Mask = NDArray[np.bool_]

PARTS: Mapping[str, tuple[str, ...]] = {
    "item_id": ("item",),
    "judge": (),
    "replicate": (),
    "score": ("value",),
    "arm": (),
    "criterion": ("dimension",),
    "cluster": (),
    "stratum": (),
    "group": (),
    "weight": (),
    "propensity": (),
    "cost_usd": (),
    "missing": (),
}
"""The parts of a table of ratings, and other names that their columns go by.

`item`, `value` and `missing` are the names in our own exports.
"""

ONE_JUDGE = "judge"
"""The judge's name where the table names none."""


class Labels(NamedTuple):
    """What each row names: `codes` (n,) int64 into `names`, `NAMELESS` where it names nothing."""

    codes: Codes
    names: tuple[str, ...]


NAMELESS = -1
_BROKEN = -2


class Sort(IntEnum):
    """What a cell of the score column is."""

    NUMBER = 0
    BOOLEAN = 1
    TEXT = 2
    """A number that stands as text where numbers need not."""
    MISSING = 3
    NOT_APPLICABLE = 4
    UNREADABLE = 5


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Ratings:
    """A table of ratings as numbers.

    Parameters
    ----------
    table, columns : what was read, and the column of each part that it has
    item, arm, judge : of each row
    criterion : of each row; a missing verdict may be of no single one
    replicate : None without such a column
    score : (n,) float64, NaN where there is none
    sort : (n,) int64, a `Sort`
    reasons : (n,) why there is no verdict, None where there is one
    cluster, stratum, group : label of each item, None without such a column
    weight : (n_items,) float64 > 0
    propensity_use : what was made of the column of propensities, empty without one
    cost : sum of the column of costs, None without one
    n_repaired : names that held half a character
    """

    table: Columns
    columns: Mapping[str, str]
    item: Labels
    arm: Labels
    judge: Labels
    criterion: Labels
    replicate: Labels | None
    score: Array
    sort: Codes
    reasons: NDArray[np.object_]
    cluster: Sequence[str] | None
    stratum: Sequence[str] | None
    group: Sequence[str] | None
    weight: Array
    propensity_use: str
    cost: Nano | None
    n_repaired: int

    def questions(self) -> Codes:
        """Number what each row asks, (n,) int64 from 0: item, judge, arm and criterion."""
        return _keys(self.item, self.judge, self.arm, self.criterion)

    def rows_of(self, criterion: int) -> Mask:
        """Mark the rows of a criterion; a missing verdict of no single one is missing in all."""
        codes = self.criterion.codes
        mask: Mask = (codes == criterion) | (codes == NAMELESS)
        return mask


def read_ratings(table: Columns, columns: Mapping[str, str], problems: Problems) -> Ratings:
    """Read the parts of a table of ratings; what is wrong with cells is added to the problems.

    The ratings can be used if there were none.

    Parameters
    ----------
    columns : part to column, `item_id` and `score` among them
    """
    return Reader(table, columns, problems).ratings()


def read_order(
    table: Columns, columns: Mapping[str, str], problems: Problems
) -> tuple[Labels, Codes]:
    """Read the batch of each row and its place there, (n,) int64.

    Parameters
    ----------
    columns : part to column, `batch_id` and `position` among them
    """
    reader = Reader(table, columns, problems)
    return reader.batches(), reader.positions()


class Reader:
    """Reads the columns of a table one by one; what is wrong with cells is added to the problems."""

    def __init__(self, table: Columns, columns: Mapping[str, str], problems: Problems) -> None:
        self._table = table
        self._columns = columns
        self._problems = problems
        self._n_repaired = 0

    def ratings(self) -> Ratings:
        """Read everything."""
        item = self.labels("item_id")
        score, sort = self.scores()
        criterion = self.labels("criterion", otherwise=DEFAULT_CRITERION, may_lack=True)
        nameless = (criterion.codes == NAMELESS) & (sort != Sort.MISSING)
        self.complain("criterion", nameless, "missing", lambda _: "missing")
        weight, propensity_use = self._weights(item)
        ratings = Ratings(
            table=self._table,
            columns=self._columns,
            item=item,
            arm=self.labels("arm", otherwise=""),
            judge=self.labels("judge", otherwise=ONE_JUDGE),
            criterion=criterion,
            replicate=self.labels("replicate") if "replicate" in self._columns else None,
            score=score,
            reasons=self.reasons(sort),
            sort=sort,
            cluster=self.of_items("cluster", item),
            stratum=self.of_items("stratum", item),
            group=self.of_items("group", item),
            weight=weight,
            propensity_use=propensity_use,
            cost=self.cost(),
            n_repaired=self._n_repaired,
        )
        self._refuse_duplicates(ratings)
        return ratings

    def batches(self) -> Labels:
        """Read the batch of each row."""
        return self.labels("batch_id")

    def positions(self) -> Codes:
        """Read the place of each row in its batch: whole numbers, from wherever they count."""
        column = self.column("position")
        numbers = [_score(value, is_text=True)[0] for value in column.values]
        # What is not whole, or no number at all, is complained of; 0 stands for it.
        whole = [int(x) if math.isfinite(x) and x == int(x) else None for x in numbers]
        is_bad = np.array([x is None for x in whole])[column.codes]
        self.complain(
            "position",
            is_bad,
            "no place",
            lambda row: f"wants a whole number, not {self.cell('position', row)}",
        )
        return np.array([x or 0 for x in whole], dtype=np.int64)[column.codes]

    # --- cells

    def column(self, part: str) -> Column:
        """Give the column of a part."""
        return self._table.columns[self._columns[part]]

    def cell(self, part: str, row: int) -> str:
        """Quote a cell."""
        column = self.column(part)
        return seen(column.values[column.codes[row]])

    def _place(self, row: int) -> str:
        at = self._table.row(row)
        return f"row {at.number}" if at.line is None else f"row {at.number} (line {at.line})"

    def complain(self, part: str, rows: Mask, kind: str, say: Callable[[int], str]) -> None:
        """Add a problem for each of the marked rows; `say` gets the row's index."""
        for row in np.flatnonzero(rows).tolist():
            problem = self._table.row(row).problem(self._columns.get(part, part), say(row))
            self._problems.add(kind, problem)

    # --- columns

    def labels(self, part: str, *, otherwise: str | None = None, may_lack: bool = False) -> Labels:
        """Read labels: text or whole numbers. Without any, all rows have the other one."""
        if otherwise is not None and part not in self._columns:
            return Labels(np.zeros(self._table.n_rows, dtype=np.int64), (otherwise,))
        column = self.column(part)
        index: dict[str, int] = {}
        lookup = np.full(len(column.values), _BROKEN)
        for at, value in enumerate(column.values):
            name = _name(value)
            if name is not None:
                clean = name.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
                self._n_repaired += clean != name
                lookup[at] = index.setdefault(clean, len(index)) if clean else NAMELESS
        codes = lookup[column.codes]
        if otherwise is not None and not index and (codes == NAMELESS).all():
            return Labels(np.zeros_like(codes), (otherwise,))  # as the arms of a run without arms
        self.complain(
            part,
            codes == _BROKEN,
            "no name",
            lambda row: f"wants text or a whole number, not {self.cell(part, row)}",
        )
        if not may_lack:
            self.complain(part, codes == NAMELESS, "missing", lambda _: "missing")
        return Labels(codes, tuple(index))

    def scores(
        self, part: str = "score", words: Mapping[str, float] = MappingProxyType({})
    ) -> tuple[Array, Codes]:
        """Read verdicts, and a `Sort` of each; `words`, in small letters, stand for numbers."""
        column = self.column(part)
        read = [_score(value, is_text=self._table.is_text, words=words) for value in column.values]
        scores = np.array([score for score, _ in read], dtype=np.float64)[column.codes]
        sorts = np.array([sort for _, sort in read], dtype=np.int64)[column.codes]
        wanted = ", ".join(("a number", *words))
        self.complain(
            part,
            sorts == Sort.UNREADABLE,
            "no number",
            lambda row: (
                f"wants {wanted}, not {self.cell(part, row)}; a missing verdict is an empty cell"
            ),
        )
        return scores, sorts

    def reasons(self, sort: Codes, part: str = "score") -> NDArray[np.object_]:
        """Say why verdicts are missing; with a column of reasons, blank means "not applicable".

        `sort`, of the part that holds the verdict, is changed by that.
        """
        is_blank = sort == Sort.MISSING
        reasons = np.full(len(sort), None, dtype=object)
        if "missing" not in self._columns:
            reasons[is_blank] = MissingReason.EMPTY
            return reasons
        column = self.column("missing")
        known = np.full(len(column.values), None, dtype=object)
        is_unknown = np.zeros(len(column.values), dtype=bool)
        for code, value in enumerate(column.values):
            if value in tuple(MissingReason):
                known[code] = MissingReason(value)
            else:
                is_unknown[code] = not _is_blank(value)
        hint = f"known: {', '.join(MissingReason)}; --map missing= leaves the column out"
        self.complain(
            "missing",
            is_unknown[column.codes],
            "no reason",
            lambda row: f"no reason is named {self.cell('missing', row)}; {hint}",
        )
        has_reason = np.array([reason is not None for reason in known])[column.codes]
        self.complain(
            "missing",
            has_reason & ~is_blank,
            "a reason beside a score",
            lambda row: f"says why there is no {part}, and the {part} is {self.cell(part, row)}",
        )
        reasons[:] = known[column.codes]
        sort[is_blank & ~has_reason] = Sort.NOT_APPLICABLE
        return reasons

    def positive(self, part: str, most: float) -> Array:
        """Read numbers above 0 and up to `most`."""
        column = self.column(part)
        values = np.array([_score(v, is_text=True)[0] for v in column.values], dtype=np.float64)
        numbers: Array = values[column.codes]
        up_to = f" and up to {most:g}" if most < math.inf else ""
        self.complain(
            part,
            ~((numbers > 0) & (numbers <= most)),
            "no number",
            lambda row: f"wants a number above 0{up_to}, not {self.cell(part, row)}",
        )
        return numbers

    def _weights(self, item: Labels) -> tuple[Array, str]:
        """Weigh items by their weight and by 1/propensity, where each has one propensity.

        The mean is then Hájek's: a ratio of two sums over items, each over its propensity.
        """
        weight, use = np.ones(len(item.names)), ""
        if "weight" in self._columns:
            numbers = self.positive("weight", math.inf)
            self.refuse_disagreeing("weight", item, numbers)
            weight = numbers[first_rows(item)]
        if "propensity" in self._columns:
            numbers = self.positive("propensity", 1.0)
            if _disagreeing(item, numbers).any():
                use = "the propensity differs within items, so it is not used"
            else:
                use = "an item weighs 1/propensity, taken as the probability that it was drawn"
                weight = weight / numbers[first_rows(item)]
        return weight, use

    def of_items(self, part: str, item: Labels) -> list[str] | None:
        """Read the label of each item; a blank column is none, as the groups of a run without groups."""
        if part not in self._columns or all(map(_is_blank, self.column(part).values)):
            return None
        codes, names = self.labels(part)
        self.refuse_disagreeing(part, item, codes)
        return [names[code] if code >= 0 else "" for code in codes[first_rows(item)].tolist()]

    def refuse_disagreeing(
        self, part: str, of: Labels, values: NDArray[Any], *, what: str = "item"
    ) -> None:
        """Want all rows of an item, or of whatever else, to say the same of it."""
        first = first_rows(of)

        def say(row: int) -> str:
            other = int(first[of.codes[row]])
            mine, its = self.cell(part, row), self.cell(part, other)
            return f"{mine}, where {self._place(other)} of the {what} has {its}"

        self.complain(part, _disagreeing(of, values), f"{what} that disagrees with itself", say)

    def cost(self) -> Nano | None:
        """Sum the costs, None without a column."""
        if "cost_usd" not in self._columns:
            return None
        column = self.column("cost_usd")
        counts = np.bincount(column.codes, minlength=len(column.values)).tolist()
        amounts = [_usd(value) for value in column.values]
        is_bad = np.array([not amount.is_finite() for amount in amounts])
        self.complain(
            "cost_usd",
            is_bad[column.codes],
            "no amount",
            lambda row: f"wants an amount in USD, not {self.cell('cost_usd', row)}",
        )
        if is_bad.any():
            return None
        # Tables write costs finer than a nano-USD; only their sum is rounded.
        total = sum((a * n for a, n in zip(amounts, counts, strict=True)), Decimal())
        return Nano(round(total * NANO_PER_USD))

    def _refuse_duplicates(self, ratings: Ratings) -> None:
        """Refuse rows with one key: whichever was meant, the other would count as a repeat."""
        if ratings.replicate is None:
            return
        parts = (ratings.item, ratings.judge, ratings.arm, ratings.replicate)
        key = _keys(*parts, ratings.criterion)
        first = np.unique(key, return_index=True)[1][key]
        is_named = np.all([codes >= 0 for codes, _ in parts], axis=0)
        score = ratings.score

        def say(row: int) -> str:
            other = int(first[row])
            is_same = score[row] == score[other] or np.isnan(score[[row, other]]).all()
            what = "the same verdict" if is_same else "another verdict"
            return f"has the key of {self._place(other)} already, with {what}"

        is_later = first != np.arange(len(first))
        self.complain("replicate", is_later & is_named, "a duplicate key", say)


# --- cells and keys ------------------------------------------------------------------------------


def _is_blank(value: Any) -> bool:
    """Say whether a cell holds nothing; NaN is what libraries write for a missing number."""
    match value:
        case None:
            return True
        case str():
            return not value or value.isspace()
        case float():
            return math.isnan(value)
        case _:
            return False


def _name(value: Any) -> str | None:
    """Read a label; blank is "", and None what is no label."""
    match value:
        case _ if _is_blank(value):
            return ""
        case bool():
            return None
        case str() | int():
            return str(value)
        case float() if value.is_integer():
            return str(int(value))
        case _:
            return None


def _score(
    value: Any, *, is_text: bool, words: Mapping[str, float] = MappingProxyType({})
) -> tuple[float, Sort]:
    """Read a verdict; nothing is guessed."""
    match value:
        case _ if _is_blank(value):
            return math.nan, Sort.MISSING
        case bool():
            return float(value), Sort.BOOLEAN
        case int() | float():
            return _finite(value, Sort.NUMBER)
        case str() if (word := value.strip().lower()) in words:
            return words[word], Sort.BOOLEAN
        case str():
            return _score_of_text(value.strip().lower(), Sort.NUMBER if is_text else Sort.TEXT)
        case _:
            return math.nan, Sort.UNREADABLE


def _score_of_text(text: str, sort: Sort) -> tuple[float, Sort]:
    match text:
        case "n/a":
            return math.nan, Sort.NOT_APPLICABLE
        case "true" | "false":
            return float(text == "true"), Sort.BOOLEAN
        case _:
            return _finite(text, sort)


def _finite(value: str | float, sort: Sort) -> tuple[float, Sort]:
    try:
        # Python reads 1_0 as ten.
        number = math.nan if "_" in str(value) else float(value)
    except (ValueError, OverflowError):
        number = math.nan
    return (number, sort) if abs(number) <= FARTHEST else (math.nan, Sort.UNREADABLE)


def _usd(value: Any) -> Decimal:
    """Read an amount; blank is none, NaN what is no amount."""
    try:
        return Decimal() if _is_blank(value) else Decimal(str(value))
    except InvalidOperation:
        return Decimal("NaN")


def _keys(*parts: Labels) -> Codes:
    """Number the rows' keys from 0, equal for equal keys."""
    key: Codes = np.zeros(len(parts[0].codes), dtype=np.int64)
    for codes, names in parts:
        # Numbered anew after each part, so that no product of sizes overflows.
        key = np.unique(key * (len(names) + 2) + codes + 2, return_inverse=True)[1]
    return key


def first_rows(labels: Labels) -> Codes:
    """Give the first row of each name."""
    first = np.zeros(len(labels.names), dtype=np.int64)
    rows = np.flatnonzero(labels.codes >= 0)[::-1]
    first[labels.codes[rows]] = rows
    return first


def _disagreeing(item: Labels, values: NDArray[Any]) -> Mask:
    """Mark the rows whose value is not that of the item's first row."""
    found = np.zeros(len(values), dtype=bool)
    rows = np.flatnonzero(item.codes >= 0)
    found[rows] = values[rows] != values[first_rows(item)[item.codes[rows]]]
    return found
