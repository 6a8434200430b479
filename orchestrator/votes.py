"""A table of comparisons as numbers: who was shown first, who second, and which was better."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import NormalDist
from typing import Any

import numpy as np
from numpy.typing import NDArray

from estimators.bradley_terry import BradleyTerry, BradleyTerryConfig, GapContrast
from estimators.bt_tensor import BtTensor, BtTensorConfig
from estimators.bt_ties import Ties
from estimators.comparisons import Comparisons
from orchestrator.core.errors import ConfigError, Problem
from orchestrator.core.estimate import Estimate
from orchestrator.core.frame import Frame
from orchestrator.core.money import FREE, Nano
from orchestrator.core.query import Kind
from orchestrator.core.scale import Criterion, Scale, ScaleType
from orchestrator.core.seeds import Seeds
from orchestrator.core.study import Panelist, Study
from orchestrator.ratings import NAMELESS, ONE_JUDGE, Codes, Labels, Mask, Reader, Sort
from orchestrator.report.assessment import Naive
from orchestrator.tables import Columns, Problems
from orchestrator.task import DEFAULT_CRITERION
from orchestrator.wording import seen

PARTS: Mapping[str, tuple[str, ...]] = {
    "left": ("model_a",),
    "right": ("model_b",),
    "winner": (),
    "item_id": ("item",),
    "judge": (),
    "category": (),
    "replicate": (),
    "criterion": ("dimension",),
    "cluster": (),
    "propensity": (),
    "cost_usd": (),
    "missing": (),
}
"""The parts of a table of comparisons, and other names that their columns go by.

`model_a` and `model_b` are those of public arenas, `missing` is in our own exports.
"""

USUAL_ITEMS = ("question_id", "prompt_id", "prompt", "question")
"""Columns that mostly say what was compared on; they are suggested, since they need not."""

PREFERENCE = Scale(type=ScaleType.PREFERENCE, ties=True)

Contrast = tuple[str, str] | None

_WINS: Mapping[str, float] = dict.fromkeys(("left", "first", "a", "model_a"), 1.0) | dict.fromkeys(
    ("right", "second", "b", "model_b"), 0.0
)
_TIES = ("tie", "draw", "bothbad", "both_bad")
"""A verdict that begins so is a tie: arenas write `tie (bothbad)`."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Votes:
    """A table of comparisons as numbers.

    Parameters
    ----------
    table, columns : what was read, and the column of each part that it has
    models : names of the models
    comparisons : of each row that has a verdict, with its criterion in `criterion_of`
    missing : (n_criteria, n_models, n_models) int64, rows without a verdict by first and second
        model; one without a criterion is missing in each
    n_missing : rows without a verdict
    items, judges, criteria : names
    category, cluster : label of each item, None without such a column
    cost : sum of the column of costs, None without one
    """

    table: Columns
    columns: Mapping[str, str]
    models: tuple[str, ...]
    comparisons: Comparisons
    criterion_of: Codes
    missing: NDArray[np.int64]
    n_missing: int
    items: tuple[str, ...]
    judges: tuple[str, ...]
    criteria: tuple[str, ...]
    category: Sequence[str] | None
    cluster: Sequence[str] | None
    cost: Nano | None

    @property
    def has_items(self) -> bool:
        """Whether the table says what was compared on."""
        return "item_id" in self.columns

    def of_criterion(self, criterion: int) -> Comparisons:
        """Give the comparisons on one criterion."""
        return self.comparisons.take(self.criterion_of == criterion)


def read_votes(table: Columns, columns: Mapping[str, str], problems: Problems) -> Votes:
    """Read a table of comparisons; what is wrong with cells is added to the problems.

    The votes can be used if there were none. The left model was shown first.

    Parameters
    ----------
    columns : part to column, `left`, `right` and `winner` among them
    """
    reader = Reader(table, columns, problems)
    left, right, models = _models(reader)
    is_same = (left == right) & (left >= 0)
    reader.complain("right", is_same, "one model", lambda _: "is the left model too")
    outcome = _outcomes(reader, left, right, models, _of_columns(table, columns, models))
    if "item_id" in columns:
        item = reader.labels("item_id")
    else:  # each row is about something of its own
        rows = np.arange(table.n_rows, dtype=np.int64)
        item = Labels(rows, tuple(f"row {row + 1}" for row in rows.tolist()))
    judge = reader.labels("judge", otherwise=ONE_JUDGE)
    criterion = reader.labels("criterion", otherwise=DEFAULT_CRITERION, may_lack=True)
    is_nameless = criterion.codes == NAMELESS
    is_blank = np.isnan(outcome)
    reader.complain("criterion", is_nameless & ~is_blank, "missing", lambda _: "missing")
    cluster = reader.of_items("cluster", item)
    propensity = (
        reader.positive("propensity", 1.0)
        if "propensity" in columns
        else np.full(table.n_rows, np.nan)
    )
    category = reader.of_items("category", item)
    cost = reader.cost()
    n_models = len(models)
    is_known = (left >= 0) & (right >= 0)
    sort = np.where(is_blank, Sort.MISSING, Sort.NUMBER)
    reader.reasons(sort, "winner")
    is_missing = is_known & ((sort == Sort.MISSING) | (is_blank & is_nameless))
    rows = np.flatnonzero(is_known & ~is_blank)
    comparisons = Comparisons(
        left=left[rows],
        right=right[rows],
        outcome=outcome[rows],
        item=item.codes[rows],
        judge=judge.codes[rows],
        replicate=_repeats(left, right, item.codes, judge.codes, criterion.codes)[rows],
        propensity=propensity[rows],
    )
    for c, name in enumerate(criterion.names):
        if not (criterion.codes[rows] == c).any() and not problems.listed():
            of = f" for {seen(name)}" if len(criterion.names) > 1 else ""
            message = f"no row has a winner{of}"
            problems.add("no winners", Problem(file=table.file, message=message))
    return Votes(
        table=table,
        columns=columns,
        models=models,
        comparisons=comparisons,
        criterion_of=criterion.codes[rows],
        missing=np.array(
            [
                _by_pair(left, right, is_missing & (is_nameless | (criterion.codes == c)), n_models)
                for c in range(len(criterion.names))
            ]
        ),
        n_missing=int(is_missing.sum()),
        items=item.names,
        judges=judge.names,
        criteria=criterion.names,
        category=category,
        cluster=cluster,
        cost=cost,
    )


def estimates_of(
    votes: Votes,
    criterion: int,
    *,
    by_category: bool,
    confidence: float,
    contrast: Contrast,
    ties: Ties,
) -> tuple[Estimate, ...]:
    """Estimate what a run with these verdicts would: strengths, and a gap if one is asked for.

    With `by_category` strengths are a tensor of low rank, else one an arm.

    Raises
    ------
    ConfigError
        The estimator refuses the request.
    """
    name = votes.criteria[criterion]
    gap = None if contrast is None else GapContrast(arm=contrast[0], baseline=contrast[1])
    study = study_of(votes, criterion)
    try:
        estimator: BradleyTerry | BtTensor
        if by_category:
            by = BtTensorConfig(name=name, confidence=confidence, contrast=gap, context="category")
            estimator = BtTensor(by, study)
        else:
            config = BradleyTerryConfig(
                name=name, confidence=confidence, contrast=gap, ties=ties.value
            )
            estimator = BradleyTerry(config, study)
        estimator.take(votes.of_criterion(criterion), votes.missing[criterion])
        return estimator.estimate()
    except ValueError as exc:
        kind = "bt_tensor" if by_category else "bradley_terry"
        raise ConfigError(f"{kind} can't estimate this: {exc}") from exc


def study_of(votes: Votes, criterion: int) -> Study:
    """Give the study of which these could be the verdicts."""
    return Study(
        kind=Kind.COMPARE,
        frame=Frame.of(votes.items, votes.models, cluster=votes.cluster, stratum=votes.category),
        panel=tuple(Panelist(name=judge, card=FREE) for judge in votes.judges),
        criteria=(Criterion(name=votes.criteria[criterion], scale=PREFERENCE),),
        seeds=Seeds(0),
    )


def naive_of(votes: Votes, criterion: int, estimate: Estimate, contrast: Contrast) -> Naive:
    """Take every row as an independent item: win rates, a tie as half a win, along the names.

    Of a gap: the rate at which the one beat the other, in the rows that compare the two.
    """
    table = votes.of_criterion(criterion)
    if not estimate.names:  # nothing could be estimated
        return _rates([], estimate.level)
    if estimate.target in {"scores", "win probabilities"}:
        return _naive_by_category(votes, table, estimate.level)
    if estimate.target == "difference" and contrast is not None:
        a, b = (votes.models.index(name) for name in contrast)
        is_pair = (np.minimum(table.left, table.right) == min(a, b)) & (
            np.maximum(table.left, table.right) == max(a, b)
        )
        rows = table.take(is_pair)
        sides = [np.where(rows.left == a, rows.outcome, 1 - rows.outcome)]
    else:
        sides = [
            np.concatenate((table.outcome[table.left == m], 1 - table.outcome[table.right == m]))
            for m in range(len(votes.models))
        ]
    return _rates(sides, estimate.level)


def _naive_by_category(votes: Votes, table: Comparisons, level: float) -> Naive:
    labels = votes.category or []
    names = tuple(dict.fromkeys(labels))
    category = np.array([names.index(label) for label in labels])[table.item]
    return _rates(
        [
            np.concatenate((table.outcome[left & here], 1 - table.outcome[right & here]))
            for left, right in (
                (table.left == m, table.right == m) for m in range(len(votes.models))
            )
            for here in (category == k for k in range(len(names)))
        ],
        level,
    )


def _rates(sides: Sequence[NDArray[np.float64]], level: float) -> Naive:
    """Give the mean of each side's points, every row taken as independent."""
    n = np.array([len(side) for side in sides])
    mean = np.array([side.mean() if len(side) else np.nan for side in sides])
    sd = np.array([side.std(ddof=1) if len(side) > 1 else np.nan for side in sides])
    half = NormalDist().inv_cdf((1 + level) / 2) * sd / np.sqrt(np.maximum(n, 1))
    return Naive(
        n_rows=tuple(n.tolist()),
        value=tuple(mean.tolist()),
        lower=tuple((mean - half).tolist()),
        upper=tuple((mean + half).tolist()),
    )


def _models(reader: Reader) -> tuple[Codes, Codes, tuple[str, ...]]:
    """Number the models of both sides together, in alphabetical order."""
    left, right = reader.labels("left"), reader.labels("right")
    names = tuple(sorted({*left.names, *right.names}))
    place = {name: i for i, name in enumerate(names)}
    both = []
    for side in (left, right):
        of_side = np.array([place[name] for name in side.names] + [NAMELESS], dtype=np.int64)
        both.append(of_side[np.where(side.codes >= 0, side.codes, len(side.names))])
    return both[0], both[1], names


def _by_pair(left: Codes, right: Codes, rows: Mask, n_models: int) -> NDArray[np.int64]:
    """Count rows by first and second model, (n_models, n_models)."""
    pair = left[rows] * n_models + right[rows]
    return np.bincount(pair, minlength=n_models**2).reshape(n_models, n_models)


def _outcomes(
    reader: Reader,
    left: Codes,
    right: Codes,
    models: Sequence[str],
    of_columns: Codes,
) -> NDArray[np.float64]:
    """Read who won: the model's name, its column's or the side's, a tie, or nothing."""
    column = reader.column("winner")
    place = {name: i for i, name in enumerate(models)}
    code = column.codes
    said = [_verdict(value) for value in column.values]
    named = np.array([place.get(str(v).strip(), NAMELESS) for v in column.values], dtype=np.int64)
    of_side = np.array([x for x, _ in said])[code]
    is_blank = np.array([blank for _, blank in said])[code]
    winner = named[code]
    # A model may be called `left`: its name in this row comes first. So does a column of that name:
    # `model_a` is the model in `model_a`, on whichever side that was shown.
    outcome = of_side
    for meant in (of_columns, winner):
        outcome = np.where((meant == left) & (meant >= 0), 1.0, outcome)
        outcome = np.where((meant == right) & (meant >= 0), 0.0, outcome)
    is_bad: Mask = np.isnan(outcome) & ~is_blank

    def say(row: int) -> str:
        names = f"{seen(models[left[row]])} or {seen(models[right[row]])}"
        return f"wants left, right, tie, {names}, not {reader.cell('winner', row)}"

    reader.complain("winner", is_bad & (left >= 0) & (right >= 0), "no winner", say)
    return outcome


def _of_columns(table: Columns, columns: Mapping[str, str], models: Sequence[str]) -> Codes:
    """Give the model in the column that each row's winner names, `NAMELESS` where it names none."""
    column = table.columns[columns["winner"]]
    place = {name: i for i, name in enumerate(models)}
    sides = {_word(name): name for name in ("left", "right", *PARTS["left"], *PARTS["right"])}
    sides |= {_word(columns[part]): columns[part] for part in ("left", "right")}
    found = np.full(table.n_rows, NAMELESS, dtype=np.int64)
    for code, value in enumerate(column.values):
        name = sides.get(_word(value)) if isinstance(value, str) else None
        if name is not None and name in table.columns:
            side, rows = table.columns[name], column.codes == code
            named = np.array([place.get(str(v), NAMELESS) for v in side.values], dtype=np.int64)
            found[rows] = named[side.codes[rows]]
    return found


def _word(text: str) -> str:
    """Give a name or a verdict in one spelling: `Model A` is `model_a`."""
    return "_".join(text.lower().replace("-", " ").split())


def _verdict(value: Any) -> tuple[float, bool]:
    """Give what a cell says of the left model, nan if that is nothing known; and if it is blank."""
    match value:
        case None:
            return np.nan, True
        case float() if np.isnan(value):
            return np.nan, True
        case str():
            word = _word(value)
            if word.startswith(_TIES):
                return 0.5, False
            return _WINS.get(word, np.nan), not word
        case _:
            return np.nan, False


def _repeats(*parts: Codes) -> Codes:
    """Number the rows that ask the same, in the same order of the models, from 0 in file order.

    The numbers that a file gives its repeats may have gaps; the k-th of one order belongs to the
    k-th of the other.
    """
    order = np.lexsort((np.arange(len(parts[0])), *parts))
    is_new = np.any([np.diff(part[order], prepend=-9) != 0 for part in parts], axis=0)
    starts = np.flatnonzero(is_new)
    sizes = np.diff(np.append(starts, len(order)))
    found = np.empty(len(order), dtype=np.int64)
    found[order] = np.arange(len(order)) - np.repeat(starts, sizes)
    return found
