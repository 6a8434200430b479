"""A table of right and wrong answers as numbers: which part of a benchmark, answered by whom, how."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import combinations
from statistics import NormalDist
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from estimators.benchmark_diagnostics import (
    Heterogeneity,
    SubjectSpread,
    heterogeneity,
    split_half,
    subject_correlations,
    subject_shares,
)
from estimators.exchangeable import (
    ExchangeableConfig,
    Target,
    fit_exchangeable,
    subsample_half_width,
)
from estimators.targets import Contrast
from orchestrator.core.errors import ConfigError, Problem
from orchestrator.core.estimate import Estimate, plain
from orchestrator.core.frame import Frame
from orchestrator.core.money import FREE, Nano
from orchestrator.core.query import Kind, MissingReason
from orchestrator.core.scale import Criterion, Scale, ScaleType
from orchestrator.core.seeds import Seeds, Stream
from orchestrator.core.study import Panelist, Study
from orchestrator.core.wire import Json
from orchestrator.ratings import ONE_JUDGE, Array, Codes, Labels, Mask, Reader, first_rows
from orchestrator.report.assessment import Naive
from orchestrator.sequences import YES_NO
from orchestrator.tables import Columns, Problems
from orchestrator.wording import did_you_mean, seen

PARTS: Mapping[str, tuple[str, ...]] = {
    "item_id": ("item", "id", "question_id"),
    "correct": ("is_correct",),
    "arm": ("model", "system"),
    "stratum": ("subject", "category"),
    "group": ("domain",),
    "stratum_size": (),
    "judge": (),
    "replicate": (),
    "cost_usd": (),
    "missing": (),
}
"""The parts of a table of right and wrong answers, and other names that their columns go by.

A table without `correct` is a matrix: each column of verdicts is that of a system, or of an item where
the rows are systems and `arm` names them.
"""

WORDS: Mapping[str, float] = {
    "right": 1.0, "wrong": 0.0, "yes": 1.0, "no": 0.0, "correct": 1.0, "incorrect": 0.0,
}  # fmt: skip
"""Words that are verdicts, beside 1 and 0, true and false."""

CRITERION = "correct"

TARGETS: tuple[Target, ...] = ("benchmark", "macro", "strata", "ability")

Design = Literal["simple", "stratified"]
ErrorSplit = Literal["arms", "pairs", "none"]

MOST_UNITS = 10_000_000
"""Items of the benchmark times systems that are held in memory at once."""

N_SPLITS = 60
"""Random halves that a correlation is averaged over: its error from the splits is below .01."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Correctness:
    """A table of right and wrong answers as numbers.

    Parameters
    ----------
    columns : the column of each part that it has
    items : in the order of the table
    systems, judges : names
    item, system, judge : of each row
    score : (n,) float64, NaN where there is none
    reasons : (n,) why there is no verdict, None where there is one
    scale, scale_source : and where it comes from
    strata : names, those of the table first; empty without strata
    stratum : (n_items,) int64
    groups : label of each stratum, None without such a column
    sizes : (n_strata,) items of each in the benchmark; None where that is not known
    population : items of the benchmark
    is_whole : whether nothing says that the benchmark has more items than the table
    n_shared_ids : ids that items of several strata have
    cost : sum of the column of costs, None without one
    """

    columns: Mapping[str, str]
    items: tuple[str, ...]
    systems: tuple[str, ...]
    judges: tuple[str, ...]
    item: Codes
    system: Codes
    judge: Codes
    score: Array
    reasons: NDArray[np.object_]
    scale: Scale
    scale_source: str
    strata: tuple[str, ...]
    stratum: Codes
    groups: tuple[str, ...] | None
    sizes: Codes | None
    population: int
    is_whole: bool
    n_shared_ids: int
    cost: Nano | None

    @property
    def is_yes_no(self) -> bool:
        """Whether an item's score is one judge's yes or no."""
        return self.scale.type is ScaleType.BOOLEAN and len(self.judges) == 1

    @cached_property
    def first(self) -> Codes:
        """The first row of each item, system and judge, which counts."""
        key = (self.item * len(self.systems) + self.system) * len(self.judges) + self.judge
        return np.sort(np.unique(key, return_index=True)[1])

    @cached_property
    def asked(self) -> Mask:
        """Which items have a row, (n_systems, n_items)."""
        found = np.zeros((len(self.systems), len(self.items)), dtype=bool)
        found[self.system, self.item] = True
        return found

    @cached_property
    def cells(self) -> Array:
        """Mean score of each item over its judges, (n_systems, n_items); NaN where one lacks."""
        shape = (len(self.systems), len(self.items))
        total, n = np.zeros(shape), np.zeros(shape)
        rows = self.first[~np.isnan(self.score[self.first])]
        np.add.at(total, (self.system[rows], self.item[rows]), self.score[rows])
        np.add.at(n, (self.system[rows], self.item[rows]), 1)
        return np.where(n == len(self.judges), total / np.maximum(n, 1), np.nan)

    @property
    def is_paired(self) -> bool:
        """Whether all systems have the same items."""
        return bool((self.asked == self.asked[0]).all())

    @property
    def n_missing(self) -> int:
        """Items of systems that were asked and lack a verdict."""
        return int((self.asked & np.isnan(self.cells)).sum())

    @property
    def domain(self) -> Codes | None:
        """Number the group of each stratum."""
        if self.groups is None:
            return None
        return np.unique(self.groups, return_inverse=True)[1].astype(np.int64)


# --- reading -------------------------------------------------------------------------------------


def is_verdict(value: Any) -> bool:
    """Say whether a cell holds 1 or 0, true or false, right or wrong, or nothing."""
    text = "" if value is None else str(value).strip().lower()
    return text in _CELLS


_CELLS = {"", "nan", "0", "1", "0.0", "1.0", "true", "false", *WORDS}


def verdicts_of(whole: Columns, taken: Sequence[str]) -> list[str]:
    """List the columns of a matrix that hold verdicts and are not taken by another part."""
    return [
        name
        for name, column in whole.columns.items()
        if name not in taken
        and all(map(is_verdict, column.values))
        and {str(value).strip() for value in column.values} - {"", "None", "nan"}
    ]


def not_verdicts(whole: Columns, taken: Sequence[str]) -> list[Problem]:
    """Name the first cell that is no verdict of each column of a matrix that mostly holds verdicts."""
    found = []
    for name in (name for name in whole.columns if name not in taken):
        codes, values = whole.columns[name]
        is_blank = np.array([str(value).strip() in {"", "None", "nan"} for value in values])[codes]
        is_bad = ~np.array([*map(is_verdict, values)])[codes]
        if 0 < 2 * is_bad.sum() < (~is_blank).sum():
            row = int(np.argmax(is_bad))
            n = f" ({int(is_bad.sum()):,} such cells)" if is_bad.sum() > 1 else ""
            message = (
                "wants 1 or 0, true or false, right or wrong, as others of the column, not "
                f"{seen(values[codes[row]])}{n}"
            )
            found.append(whole.row(row).problem(name, message))
    return found


def read_correctness(
    table: Columns,
    columns: Mapping[str, str],
    problems: Problems,
    *,
    verdicts: Sequence[str] = (),
    scales: Mapping[str | None, tuple[float, float]],
    of: Mapping[str | None, int],
) -> Correctness | None:
    """Read a table; what is wrong is added to the problems, and then there may be nothing to give.

    Parameters
    ----------
    columns : part to column; of a long table `item_id` and `correct` among them
    verdicts : of a matrix, its columns of verdicts
    scales : criterion to its ends
    of : stratum to the number of its items in the benchmark; the key None is for the whole
    """
    reader = Reader(table, columns, problems)
    if "item_id" in columns:
        ids = reader.labels("item_id")
    else:  # each row is an item of its own
        rows = np.arange(table.n_rows, dtype=np.int64)
        ids = Labels(rows, tuple(f"row {row + 1}" for row in rows.tolist()))
    stratum = reader.labels("stratum", otherwise="")
    group = reader.labels("group", otherwise="")
    has_strata = stratum.names != ("",)
    if has_strata and group.names != ("",) and not problems.listed():
        reader.refuse_disagreeing("group", stratum, group.codes, what="stratum")
    sizes = _sizes(columns, reader, stratum, problems) if has_strata else None
    arms = reader.labels("arm", otherwise="")
    judge = reader.labels("judge", otherwise=ONE_JUDGE)
    cost = reader.cost()
    names_of = verdicts or [columns["correct"]]
    found = [_verdicts(table, columns, problems, name) for name in names_of]
    if verdicts:
        across = Labels(np.repeat(np.arange(len(verdicts)), table.n_rows), tuple(verdicts))
        ids, stratum, arms, judge = (
            Labels(np.tile(codes, len(verdicts)), names)
            for codes, names in (ids, stratum, arms, judge)
        )
        if "arm" in columns:
            ids = across
        else:
            arms = across
    score = np.concatenate([each for each, _ in found])
    reasons = np.concatenate([each for _, each in found])
    scale, source = _scale(table, names_of, score, scales, problems)
    if problems.listed():
        return None
    item, names, of_item, n_shared = _items(ids, stratum)
    strata, sizes, population = _population(
        stratum.names if has_strata else (), of_item, sizes, of, len(names), problems
    )
    if problems.listed():
        return None
    groups = None
    if has_strata and group.names != ("",):
        labels = [group.names[c] for c in group.codes[first_rows(stratum)].tolist()]
        groups = (*labels, *("" for _ in strata[len(labels) :]))
    return Correctness(
        columns=columns,
        items=names,
        systems=arms.names,
        judges=judge.names,
        item=item,
        system=arms.codes,
        judge=judge.codes,
        score=score,
        reasons=reasons,
        scale=scale,
        scale_source=source,
        strata=strata,
        stratum=of_item,
        groups=groups,
        sizes=sizes,
        population=population,
        is_whole=not of and "stratum_size" not in columns,
        n_shared_ids=n_shared,
        cost=cost,
    )


def _verdicts(
    table: Columns, columns: Mapping[str, str], problems: Problems, name: str
) -> tuple[Array, NDArray[np.object_]]:
    """Read a column of verdicts, and why there is none."""
    reader = Reader(table, {**columns, "correct": name}, problems)
    score, sort = reader.scores("correct", WORDS)
    return score, reader.reasons(sort, "correct")


def _items(ids: Labels, stratum: Labels) -> tuple[Codes, tuple[str, ...], Codes, int]:
    """Number the items as the table has them; an id that several strata have is one in each.

    Gives the item of each row, names, the stratum of each item, and how many ids are shared.
    """
    key = ids.codes * len(stratum.names) + stratum.codes
    pairs, first, code = np.unique(key, return_index=True, return_inverse=True)
    order = np.argsort(first)
    rank = np.empty(len(order), dtype=np.int64)
    rank[order] = np.arange(len(order))
    number, of_item = np.divmod(pairs[order], len(stratum.names))
    n_shared = int((np.bincount(number) > 1).sum())
    both = zip(number.tolist(), of_item.tolist(), strict=True)
    names = tuple(
        f"{stratum.names[s]}/{ids.names[i]}" if n_shared else ids.names[i] for i, s in both
    )
    return rank[code], names, of_item, n_shared


def _scale(
    table: Columns,
    columns: Sequence[str],
    score: Array,
    scales: Mapping[str | None, tuple[float, float]],
    problems: Problems,
) -> tuple[Scale, str]:
    """Find the scale; scores that are not on it are problems, each by itself."""
    for name in scales:
        if name not in {None, CRITERION}:
            message = f"no criterion is named {seen(name)}; wants --scale MIN:MAX"
            problems.add("no criterion", Problem(path="--scale", message=message))
    known = score[~np.isnan(score)]
    if not len(known) and not problems.listed():
        problems.add("no verdicts", Problem(file=table.file, message="no row has a verdict"))
    given = scales.get(CRITERION, scales.get(None))
    low, high = given or (0.0, 1.0)
    hint = "" if given else "; --scale MIN:MAX gives another scale"
    for row in np.flatnonzero((score < low) | (score > high)).tolist():
        block, at = divmod(row, table.n_rows)
        message = f"wants a score from {low:g} to {high:g}, not {score[row]:g}{hint}"
        problems.add("off the scale", table.row(at).problem(columns[block], message))
    source = "--scale" if given else "--scale MIN:MAX changes it"
    if (low, high) == (0, 1) and np.isin(known, (0, 1)).all():
        return YES_NO, source
    is_whole = bool((np.append(known, (low, high)) % 1 == 0).all())
    return Scale(
        type=ScaleType.INTEGER if is_whole else ScaleType.FLOAT, low=low, high=high
    ), source


def _sizes(
    columns: Mapping[str, str],
    reader: Reader,
    stratum: Labels,
    problems: Problems,
) -> Codes | None:
    """Read the size of each stratum in the benchmark."""
    if "stratum_size" not in columns:
        return None
    numbers = reader.positive("stratum_size", math.inf)
    reader.complain(
        "stratum_size",
        (numbers > 0) & (numbers % 1 != 0),
        "no whole number",
        lambda row: f"wants a whole number, not {reader.cell('stratum_size', row)}",
    )
    if problems.listed():
        return None
    reader.refuse_disagreeing("stratum_size", stratum, numbers, what="stratum")
    return numbers[first_rows(stratum)].astype(np.int64)


def _population(
    strata: tuple[str, ...],
    of_item: Codes,
    sizes: Codes | None,
    of: Mapping[str | None, int],
    n_items: int,
    problems: Problems,
) -> tuple[tuple[str, ...], Codes | None, int]:
    """Find how large the benchmark and its strata are; give all strata, sizes, and the sum."""

    def complain(message: str, kind: str = "of") -> None:
        problems.add(kind, Problem(path="--of", message=message))

    named = {name: n for name, n in of.items() if name is not None}
    whole = of.get(None)
    drawn = np.bincount(of_item, minlength=len(strata))
    if not of and sizes is None:
        return strata, drawn if strata else None, n_items
    if named and not strata:
        complain("the table names no strata: --map stratum=COLUMN, or one number alone, --of N")
    if named and sizes is not None:
        complain("the column stratum_size says how large strata are; --map stratum_size= drops it")
    elif named:
        others = named.keys() - set(strata)
        for name in strata:
            if name not in named:
                hint = did_you_mean(name, others)
                complain(f"says nothing of stratum {seen(name)}{hint}", "a stratum without a size")
        strata = (*strata, *(name for name in named if name not in strata))
        sizes = np.array([named.get(name, 0) for name in strata], dtype=np.int64)
        drawn = np.pad(drawn, (0, len(strata) - len(drawn)))
    if problems.listed():
        return strata, sizes, n_items
    if sizes is not None:
        for s in np.flatnonzero(drawn > sizes).tolist():
            complain(
                f"stratum {seen(strata[s])} has {int(sizes[s]):,} items by this, and the table has "
                f"{int(drawn[s]):,} of it"
            )
        if whole is not None and whole != sizes.sum():
            complain(f"{whole:,} items are not the {int(sizes.sum()):,} that strata come to")
        whole = int(sizes.sum())
    assert whole is not None
    if n_items > whole and not problems.listed():
        complain(f"the table has {n_items:,} items, which is more than {whole:,}")
    return strata, sizes, whole


# --- estimates -----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """What is to be estimated.

    Parameters
    ----------
    targets : None: the benchmark, and of strata their macro mean and ability, where these can be
    contrast : two systems
    design : how the items were drawn
    """

    confidence: float
    targets: tuple[Target, ...] | None
    contrast: tuple[str, str] | None
    error_split: ErrorSplit
    design: Design


def targets_of(answers: Correctness, wanted: Wanted) -> tuple[Target, ...]:
    """Say which targets are estimated: those wanted, else those that can be."""
    if wanted.targets is not None:
        return wanted.targets
    macro: tuple[Target, ...] = ("macro",) if answers.strata and answers.sizes is not None else ()
    ability: tuple[Target, ...] = ("ability",) if answers.strata and answers.is_yes_no else ()
    return ("benchmark", *macro, *ability)


def estimates_of(
    answers: Correctness, wanted: Wanted
) -> tuple[tuple[Estimate, ...], Estimate | None]:
    """Estimate what a run with these answers would, and each stratum by itself if sizes are known.

    Where every item of the benchmark is here and none lacks a verdict, its mean is the value itself,
    and has neither error nor interval.

    Raises
    ------
    ConfigError
        The estimator refuses the request, or the benchmark is too large.
    """
    n_units = answers.population * len(answers.systems)
    if n_units > MOST_UNITS:
        raise ConfigError(f"{n_units:,} items times systems are more than {MOST_UNITS:,}")
    targets = targets_of(answers, wanted)
    has_strata = bool(answers.strata) and answers.sizes is not None
    also: tuple[Target, ...] = ("strata",) if has_strata and "strata" not in targets else ()
    is_paired = answers.is_paired
    by_strata = wanted.design == "stratified"
    contrast = None
    if wanted.contrast is not None:
        arm, baseline = wanted.contrast
        contrast = Contrast(arm=arm, baseline=baseline, paired=is_paired)
    config = ExchangeableConfig(
        name=CRITERION,
        targets=(*targets, *also),
        design="paired" if is_paired else wanted.design,
        strata="proportional" if by_strata else None,
        contrast=contrast,
        error_split=wanted.error_split,
        confidence=wanted.confidence,
        check="end",
    )
    unit, judge, score, reasons = _questions(answers)
    try:
        found = fit_exchangeable(
            config,
            _study(answers),
            unit=unit,
            judge=judge,
            values=score[:, None],
            missing=reasons,
            orders=_orders(answers),
        )
    except ValueError as exc:
        raise ConfigError(f"exchangeable can't estimate this: {exc}") from exc
    known = [_with_reference(_exact(estimate), answers) for estimate in found]
    strata = next((each for each in known if each.target == "strata"), None)
    return tuple(each for each in known if not (also and each is strata)), strata


def _study(answers: Correctness) -> Study:
    """Give the study of the whole benchmark: the items of the table, then those not seen."""
    n_unseen = answers.population - len(answers.items)
    strata = groups = None
    if answers.strata:
        if answers.sizes is None:  # where the unseen ones belong is not known, and not asked
            unseen = np.zeros(n_unseen, dtype=np.int64)
        else:
            left = answers.sizes - np.bincount(answers.stratum, minlength=len(answers.sizes))
            unseen = np.repeat(np.arange(len(left)), left)
        codes = np.concatenate((answers.stratum, unseen)).tolist()
        strata = [answers.strata[code] for code in codes]
        groups = None if answers.groups is None else [answers.groups[code] for code in codes]
    return Study(
        kind=Kind.CHECK,
        frame=Frame.of(
            answers.items + ("",) * n_unseen,
            answers.systems,
            stratum=strata,
            group=groups,
        ),
        panel=tuple(Panelist(name=name, card=FREE) for name in answers.judges),
        criteria=(Criterion(name=CRITERION, scale=answers.scale),),
        seeds=Seeds(0),
    )


def _orders(answers: Correctness) -> Codes:
    """Put each system's items first, as the table has them, (n_systems, population)."""
    n_unseen = answers.population - len(answers.items)
    unseen = np.zeros((len(answers.systems), n_unseen), dtype=bool)
    return np.argsort(~np.concatenate((answers.asked, unseen), axis=1), axis=1, kind="stable")


def _questions(
    answers: Correctness,
) -> tuple[Codes, Codes, Array, list[MissingReason | None]]:
    """Give unit, judge, score and what is missing of all that was asked.

    A judge that has no row on an item that others judged has not answered.
    """
    rows = answers.first
    unit = answers.item[rows] * len(answers.systems) + answers.system[rows]
    judge = answers.judge[rows]
    has_row = np.zeros((len(answers.items) * len(answers.systems), len(answers.judges)), dtype=bool)
    has_row[unit, judge] = True
    lacking = np.argwhere(has_row.any(axis=1, keepdims=True) & ~has_row)
    return (
        np.concatenate((unit, lacking[:, 0])),
        np.concatenate((judge, lacking[:, 1])),
        np.concatenate((answers.score[rows], np.full(len(lacking), np.nan))),
        [*answers.reasons[rows].tolist(), *[MissingReason.EMPTY] * len(lacking)],
    )


def _exact(e: Estimate) -> Estimate:
    """Leave out the interval of a mean of which nothing is left open."""
    if e.target == "ability":
        return e
    about = e.diagnostics["by_name"]
    counts = zip(about["n_drawn"], about["population"], about["missing"], strict=True)
    is_known = [drawn == population and not missing for drawn, population, missing in counts]
    if not any(is_known):
        return e
    method = "none: every item is here"

    def but(values: Sequence[float]) -> tuple[float, ...]:
        return tuple(math.nan if k else x for k, x in zip(is_known, values, strict=True))

    return replace(
        e,
        se=but(e.se),
        lower=but(e.lower),
        upper=but(e.upper),
        interval=method if all(is_known) else f"{e.interval}; where every item is here, none",
        flags=(*e.flags, "whole_benchmark"),
    )


def _with_reference(e: Estimate, answers: Correctness) -> Estimate:
    """Add what the bound for exchangeable scores gives for as many items."""
    if e.target not in {"arms", "difference", "differences"}:
        return e
    about = e.diagnostics["by_name"]
    span = answers.scale.span * (1 if e.target == "arms" else 2)
    half = [
        float(subsample_half_width(n, population, alpha, span, "exchangeable"))
        for n, population, alpha in zip(
            about["n_drawn"], about["population"], about["alpha"], strict=True
        )
    ]
    by_name = {**about, "exchangeable_half_width": half}
    return replace(e, diagnostics={**e.diagnostics, "by_name": by_name})


def naive_of(answers: Correctness, estimate: Estimate, contrast: tuple[str, str] | None) -> Naive:
    """Take every row as an independent item: the mean ± z sd/√rows, along the estimate's names.

    Rows know no strata, so that macro and ability have the plain mean's.
    """
    systems, n_strata = answers.systems, max(len(answers.strata), 1)
    is_scored = ~np.isnan(answers.score)
    group, score = answers.system[is_scored], answers.score[is_scored]
    n_groups = len(systems)
    if estimate.target == "strata":
        group = group * n_strata + answers.stratum[answers.item[is_scored]]
        n_groups *= n_strata
    n = np.bincount(group, minlength=n_groups)
    mean, variance = np.full(n_groups, np.nan), np.full(n_groups, np.nan)
    np.divide(np.bincount(group, score, n_groups), n, out=mean, where=n > 0)
    square = np.bincount(group, (score - mean[group]) ** 2, n_groups)
    np.divide(square, n * (n - 1), out=variance, where=n > 1)
    if estimate.target in {"difference", "differences"}:
        pairs = [*combinations(range(len(systems)), 2)]
        if estimate.target == "difference" and contrast is not None:
            pairs = [(systems.index(contrast[0]), systems.index(contrast[1]))]
        a, b = np.array(pairs).T
        n, mean, variance = n[a] + n[b], mean[a] - mean[b], variance[a] + variance[b]
    half = NormalDist().inv_cdf((1 + estimate.level) / 2) * np.sqrt(variance)
    return Naive(
        n_rows=tuple(n.tolist()),
        value=tuple(mean.tolist()),
        lower=tuple((mean - half).tolist()),
        upper=tuple((mean + half).tolist()),
    )


# --- strata --------------------------------------------------------------------------------------


def strata_of(answers: Correctness, by_stratum: Estimate | None) -> Mapping[str, Json] | None:
    """Describe the strata: each by itself, how they spread, and whether that can be seen twice.

    Items that lack a verdict are left out here. None without strata.

    Parameters
    ----------
    by_stratum : the estimate of each, along systems and then strata
    """
    if not answers.strata:
        return None
    cells = answers.cells
    shares = subject_shares(cells, answers.stratum)
    shares = np.pad(
        shares, ((0, 0), (0, len(answers.strata) - shares.shape[1])), constant_values=np.nan
    )
    return {
        "names": list(answers.strata),
        "groups": None if answers.groups is None else list(answers.groups),
        "sizes": None if answers.sizes is None else answers.sizes.tolist(),
        "by_system": [
            {
                "system": name,
                "n_items": _counts(answers, ~np.isnan(cells[a])).tolist(),
                "value": plain(shares[a].tolist()),
                "lower": _ends(by_stratum, "lower", a, len(answers.strata)),
                "upper": _ends(by_stratum, "upper", a, len(answers.strata)),
            }
            for a, name in enumerate(answers.systems)
        ],
        "spread": list(_spreads(answers)),
        "split_half": [_halves(answers, a) for a in range(len(answers.systems))],
        "correlations": _correlations(shares),
    }


def _counts(answers: Correctness, of_items: Mask) -> Codes:
    return np.bincount(answers.stratum[of_items], minlength=len(answers.strata))


def _ends(by_stratum: Estimate | None, key: str, system: int, n: int) -> Json:
    if by_stratum is None:
        return [None] * n
    return plain(list(getattr(by_stratum, key)[system * n : (system + 1) * n]))


def _spreads(answers: Correctness) -> Iterator[Mapping[str, Json]]:
    """Say of each system how its chances spread over strata; only counts have such a law."""
    if not answers.is_yes_no:
        return
    for a, name in enumerate(answers.systems):
        cells = answers.cells[a]
        is_there = ~np.isnan(cells)
        answered = _counts(answers, is_there)
        right = np.bincount(
            answers.stratum[is_there], cells[is_there], minlength=len(answers.strata)
        )
        if answered.any():
            found = heterogeneity(right, answered, answers.domain)
            yield {
                "system": name,
                "all": _spread(found.pooled),
                **_groups(found, answers),
            }


def _groups(found: Heterogeneity, answers: Correctness) -> Mapping[str, Json]:
    if answers.groups is None:
        return {}
    labels = sorted(set(answers.groups))
    return {
        "groups": [{"group": labels[each.domain], **_spread(each)} for each in found.domains],
        "groups_differ": plain({"ratio": found.ratio, "df": found.df, "p": found.p_value}),
    }


def _spread(of: SubjectSpread) -> Mapping[str, Json]:
    fit = of.fit
    found: Mapping[str, Json] = plain(
        {
            "strata": of.n_subjects,
            "mean": of.mean,
            "sd": of.sd,
            "status": fit.status.value,
            "icc": fit.icc,
            "sd_without_noise": fit.sd,
            "likelihood_ratio": fit.likelihood_ratio,
            "p": fit.p_value,
        }
    )
    return found


def _halves(answers: Correctness, system: int) -> Mapping[str, Json]:
    """Correlate random halves of strata, also with each group's mean taken off."""
    rng = Seeds(0).spawn(Stream.BOOTSTRAP, system)
    cells = answers.cells[system]
    plain_halves = split_half(cells, answers.stratum, rng, n_splits=N_SPLITS)
    centred = None
    if answers.groups is not None:
        halves = split_half(cells, answers.stratum, rng, n_splits=N_SPLITS, centre=answers.domain)
        centred = halves.r
    found: Mapping[str, Json] = plain(
        {
            "system": answers.systems[system],
            "strata": plain_halves.n_subjects,
            "r": plain_halves.r,
            "spearman_brown": plain_halves.spearman_brown,
            "r_within_groups": centred,
        }
    )
    return found


def _correlations(shares: Array) -> Json:
    """Correlate strata over systems, as they are and with each system's mean taken off."""
    if len(shares) < _FEWEST:
        return None
    return {
        "systems": len(shares),
        "matrix": plain(subject_correlations(shares).tolist()),
        "centred": plain(subject_correlations(shares, is_centred=True).tolist()),
    }


_FEWEST = 3
"""Systems over which strata can be correlated."""
