"""What in a table of verdicts may be wrong without being an error."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple, Self

import numpy as np
from numpy.typing import NDArray
from scipy.special import bdtrc, chdtrc

from estimators.intervals import FEW
from estimators.missing import missing_test
from estimators.score_means import ALIKE, DIFFERS
from orchestrator.core.errors import Problem
from orchestrator.core.estimate import Estimate
from orchestrator.core.wire import Json
from orchestrator.correctness import Correctness
from orchestrator.ratings import Array, Codes, Mask, Ratings, Sort
from orchestrator.report import batches, board_words, wording
from orchestrator.report.assessment import Suspicion
from orchestrator.sequences import InSequence
from orchestrator.votes import Votes
from orchestrator.wording import seen
from policies.layouts.balance import NOTHING, components

ONE_SCORE = 0.95
"""Share of equal scores from which a judge is said to give one score. Chosen, not derived."""

_LISTED = 5
"""How many judges or arms a sentence names."""


class Part(NamedTuple):
    """The rows of one criterion, numbered over the items and judges that they hold.

    `items`, `judges` : their numbers in the ratings
    `item`, `judge` : (n,) int64, index into `items` and `judges`
    `arm`, `score`, `reasons` : as in the ratings
    """

    items: Codes
    judges: Codes
    item: Codes
    judge: Codes
    arm: Codes
    score: Array
    reasons: NDArray[np.object_]

    @classmethod
    def of(cls, ratings: Ratings, criterion: int) -> Self:
        """Take the rows of a criterion."""
        rows = ratings.rows_of(criterion)
        items, item = np.unique(ratings.item.codes[rows], return_inverse=True)
        judges, judge = np.unique(ratings.judge.codes[rows], return_inverse=True)
        arm = ratings.arm.codes[rows]
        return cls(items, judges, item, judge, arm, ratings.score[rows], ratings.reasons[rows])


def of_board(votes: Votes) -> Iterator[Suspicion]:
    """Say what the audit of a board found amiss."""
    # Loaded here since it reads tables, which this module is part of.
    from orchestrator.auditing import audit_votes  # noqa: PLC0415

    audits = audit_votes(votes)
    for one in audits:
        rows: Sequence[Mapping[str, Json]] = one.found["findings"]
        head = f"{one.criterion}: " if len(audits) > 1 else ""
        for row in rows:
            if row["fires"]:
                said = board_words.sentence(row, one.models, one.judges, by=one.found["by"])
                yield Suspicion(f"board_{row['kind']}", f"{head}{said}")


def of_votes(votes: Votes) -> Iterator[Suspicion]:
    """Look at a table of comparisons: similar names, and rows that stand twice."""
    for what, names in (("model", votes.models), ("judge", votes.judges)):
        yield from _names_alike(what, names)
    table = votes.comparisons
    asked = [table.left, table.right, table.judge, votes.criterion_of]
    if votes.has_items:
        if "replicate" not in votes.columns:
            yield from _repeated_rows(_numbered(*asked, table.item), table.outcome)
        return
    # Without items equal votes are no wonder, but that none has an odd number of equals is.
    counts = np.bincount(_numbered(*asked, (2 * table.outcome).astype(np.int64)))
    times = int(np.gcd.reduce(counts))
    if times > 1 and len(counts) >= _MANY_SORTS:
        yield Suspicion(
            "repeated_rows",
            f"of each of {len(counts):,} sorts of vote there are {times:,} or a multiple of it: rows that "
            "were merely written more than once are no votes of their own",
        )


_MANY_SORTS = 10
"""Numbers that are all even from which that is no chance: one in a thousand."""


def of_table(ratings: Ratings) -> Iterator[Suspicion]:
    """Look at the whole table: broken and similar names, types, rows that stand twice."""
    yield from of_cells(ratings)
    if ratings.replicate is None:
        is_scored = ~np.isnan(ratings.score)
        yield from _repeated_rows(ratings.questions()[is_scored], ratings.score[is_scored])


def of_cells(ratings: Ratings) -> Iterator[Suspicion]:
    """Look at names and types."""
    if ratings.n_repaired:
        names = wording.plural(ratings.n_repaired, "name")
        yield Suspicion("broken_text", f"{names} held half a character, now U+FFFD")
    if n_text := int((ratings.sort == Sort.TEXT).sum()):
        scores = wording.plural(n_text, "score")
        yield Suspicion("mixed_types", f"{scores} written as text, and read as the number it holds")
    for what, labels in (("judge", ratings.judge), ("arm", ratings.arm)):
        yield from _names_alike(what, labels.names)


def _names_alike(what: str, names: Sequence[str]) -> Iterator[Suspicion]:
    alike: dict[str, list[str]] = {}
    for name in names:
        alike.setdefault("".join(name.split()).casefold(), []).append(name)
    for group in alike.values():
        if len(group) > 1:
            quoted = ", ".join(map(seen, group))
            message = f"{quoted} differ in case or spaces alone; each is taken as a {what}"
            yield Suspicion("names_alike", message)


def _repeated_rows(question: Codes, verdict: Array) -> Iterator[Suspicion]:
    """Look at the questions that have several verdicts, and at those where all are equal."""
    value, code = np.unique(verdict, return_inverse=True)
    n_verdicts = np.bincount(question)
    distinct = np.unique(question * len(value) + code) // max(len(value), 1)
    is_repeated = n_verdicts > 1
    is_same = is_repeated & (np.bincount(distinct, minlength=len(n_verdicts)) == 1)
    n_same, n_repeated = int(is_same.sum()), int(is_repeated.sum())
    # One is added that differs, so that a handful accuses nobody.
    if n_same > ALIKE * (n_repeated + 1):
        yield Suspicion(
            "repeated_rows",
            f"{n_same:,} of {n_repeated:,} repeated questions have the same verdict each time: "
            "rows that were merely written twice are no repeats",
        )


def _numbered(*parts: Codes) -> Codes:
    """Number the combinations of codes from 0."""
    key: Codes = np.zeros(len(parts[0]), dtype=np.int64)
    for codes in parts:  # anew after each part, so that no product of sizes overflows
        key = np.unique(key * (int(codes.max(initial=0)) + 1) + codes, return_inverse=True)[1]
    return key


def of_correctness(answers: Correctness, estimates: Sequence[Estimate]) -> Iterator[Suspicion]:
    """Look at right and wrong answers: how the part was drawn, what is missing, who is alike."""
    named = (("system", answers.systems), ("judge", answers.judges), ("stratum", answers.strata))
    for what, names in named:
        yield from _names_alike(what, names)
    yield from _unread(answers)
    yield from _nearly_whole(answers)
    if not answers.is_whole:
        yield from _drawn_amiss(answers)
    yield from _missing_verdicts(answers)
    yield from _alike(answers)
    if len(answers.systems) > len(answers.items):
        yield Suspicion(
            "more_systems_than_items",
            f"{len(answers.systems):,} systems answered {wording.plural(len(answers.items), 'item')}: "
            "rows are taken for items and columns for systems",
        )
    flags = dict.fromkeys(flag for estimate in estimates for flag in estimate.flags)
    for flag in flags:
        if flag not in _SAID_OTHERWISE:
            yield Suspicion(flag, wording.flag(flag))


_SAID_OTHERWISE = {"whole_benchmark", "missing_imputed"}
"""Flags that stand under what is assumed."""


def of_columns_left_out(problems: Sequence[Problem]) -> Iterator[Suspicion]:
    """Say which columns of a matrix are left out for some cells that are no verdicts."""
    for problem in problems:
        message = f"a column that mostly holds verdicts is not used: {problem}"
        yield Suspicion("column_left_out", message)


def _unread(answers: Correctness) -> Iterator[Suspicion]:
    """Look at rows that ask what an earlier one asked, of which only the first counts."""
    n = len(answers.score) - len(answers.first)
    if not n:
        return
    key = _numbered(answers.item, answers.system, answers.judge)
    first = np.unique(key, return_index=True)[1][key]
    score = np.nan_to_num(answers.score, nan=-np.inf)
    n_other = int((score != score[first]).sum())
    yield Suspicion(
        "repeated_rows",
        f"{wording.plural(n, 'row')} about an item and a system that an earlier row is about; the first "
        f"counts, and {n_other:,} of the others say something else",
    )


def _nearly_whole(answers: Correctness) -> Iterator[Suspicion]:
    """Look whether a system has so many of the items that what lacks is hardly left out by lot."""
    population = answers.population
    found = zip(answers.asked.sum(axis=1).tolist(), answers.systems, strict=True)
    nearly = [each for each in found if NEARLY_ALL * population <= each[0] < population]
    if nearly:
        some = _some([f"{n:,}{f' in {seen(name)}' if name else ''}" for n, name in nearly])
        yield Suspicion(
            "nearly_whole",
            f"{some} of {population:,} items are here. So many are hardly drawn by lot: items that failed "
            "or were joined away are no random ones, and only the range of what they may score is sure",
        )


def _drawn_amiss(answers: Correctness) -> Iterator[Suspicion]:
    """Look whether the items can be a random part of the benchmark."""
    if not answers.strata:
        return
    drawn = np.bincount(answers.stratum, minlength=len(answers.strata))
    is_off = False
    if answers.sizes is not None:
        absent = [name for name, k in zip(answers.strata, drawn.tolist(), strict=True) if not k]
        if absent:
            names = _some([seen(name) for name in absent])
            yield Suspicion(
                "strata_absent",
                f"strata of the benchmark that have no item here: {names}; "
                "their means can be anything, which widens the macro mean, and ability leaves them out",
            )
        p = _proportions_p(drawn, answers.sizes)
        is_off = p < DIFFERS
        if is_off:
            yield Suspicion(
                "strata_off",
                f"strata are not in the benchmark's proportions ({_p(p)}), so the items are no simple "
                "random part of it; drawn by lot within each stratum, they want --design stratified",
            )
        if p >= DIFFERS:
            return
    blocks = 1 + int((np.diff(answers.stratum) != 0).sum())
    if not is_off and blocks == int((drawn > 0).sum()) > 2:
        yield Suspicion(
            "sorted_by_stratum",
            f"the rows stand stratum by stratum, {blocks:,} in all: the beginning of a sorted file is no "
            "random part of it. It does no harm if they were sorted after the draw",
        )


NEARLY_ALL = 0.9
"""Share of a benchmark from which on a part is hardly drawn by lot. Chosen, not derived."""


def _proportions_p(drawn: Codes, sizes: Codes) -> float:
    """Test that items were drawn without a look at strata, by chi-square without replacement."""
    n, population = int(drawn.sum()), int(sizes.sum())
    is_there = sizes > 0
    if n in {0, population} or int(is_there.sum()) < 2:
        return 1.0
    expected = n * sizes[is_there] / population
    statistic = float(((drawn[is_there] - expected) ** 2 / expected).sum())
    return float(chdtrc(int(is_there.sum()) - 1, statistic * (population - 1) / (population - n)))


def _p(p: float) -> str:
    return f"p = {p:.1g}" if p >= _LEAST else f"p < {_LEAST:g}"


_LEAST = 1e-9
"""A p below which digits say nothing."""


def _missing_verdicts(answers: Correctness) -> Iterator[Suspicion]:
    """Look at items without a verdict: in which systems, in which strata, of which judges."""
    asked, systems = answers.asked, answers.systems
    lacking = (asked.any(axis=0) & ~asked).sum(axis=1).tolist()
    if any(lacking):
        some = _some([f"{n:,} in {seen(a)}" for a, n in zip(systems, lacking, strict=True) if n])
        yield Suspicion(
            "no_partner",
            f"items with a row in some system lack one in another: {some}. They count as not asked, and "
            "differences are not paired; what was asked and gave nothing wants a row with an empty cell",
        )
    is_missing = asked & np.isnan(answers.cells)
    if not is_missing.any():
        return
    test = missing_test((asked & ~is_missing).astype(float), is_missing.astype(float), None)
    lost = is_missing.sum(axis=1)
    if test.p < DIFFERS:
        some = _some(
            [
                f"{b:,} of {n:,} in {seen(name)}"
                for name, b, n in zip(
                    systems, lost.tolist(), asked.sum(axis=1).tolist(), strict=True
                )
                if b
            ]
        )
        yield Suspicion(
            "missing_differs_by_arm",
            f"some systems lack more verdicts than others: {some}, {_p(test.p)}; none is left out, "
            "and a lacking one widens the interval",
        )
    if answers.strata:
        yield from _missing_by_stratum(answers, is_missing)
    n_judges = len(answers.judges)
    rows = answers.first
    n_cells = int(asked.sum())
    if n_judges > 1 and len(rows) < n_cells * n_judges:
        yield Suspicion(
            "panel_incomplete",
            f"{n_cells * n_judges - len(rows):,} of {n_cells * n_judges:,} verdicts of the panel have no "
            "row; they count as missing",
        )


def _missing_by_stratum(answers: Correctness, is_missing: Mask) -> Iterator[Suspicion]:
    """Say where one stratum holds far more of a system's missing verdicts than its share."""
    n_strata = len(answers.strata)
    for a, name in enumerate(answers.systems):
        total = int(is_missing[a].sum())
        if not total:
            continue
        lost = np.bincount(answers.stratum[is_missing[a]], minlength=n_strata)
        drawn = np.bincount(answers.stratum[answers.asked[a]], minlength=n_strata)
        s = int(np.argmax(lost))
        p = n_strata * float(bdtrc(int(lost[s]) - 1, total, float(drawn[s] / drawn.sum())))
        if p < DIFFERS:
            yield Suspicion(
                "missing_by_stratum",
                f"{int(lost[s]):,} of the {total:,} verdicts that {seen(name)} lacks are in "
                f"{seen(answers.strata[s])}, which has {int(drawn[s]):,} of {int(drawn.sum()):,} items: "
                "what lacks is no random part",
            )


def _alike(answers: Correctness) -> Iterator[Suspicion]:
    """Look for systems with one verdict throughout, and for pairs with the same ones."""
    cells, systems = answers.cells, answers.systems
    seen_as: dict[bytes, str] = {}
    for name, row in zip(systems, cells, strict=True):
        known = row[~np.isnan(row)]
        if len(known) >= FEW and np.ptp(known) == 0:
            yield Suspicion("constant", f"every score of {seen(name)} is {known[0]:g}")
        elif len(known) >= FEW:
            same = seen_as.setdefault(row.tobytes(), name)
            if same != name:
                yield Suspicion(
                    "identical_systems",
                    f"{seen(same)} and {seen(name)} have the same verdict on each of "
                    f"{len(known):,} items: one may be a copy of the other",
                )


def of_criterion(
    ratings: Ratings, part: Part, estimates: Sequence[Estimate], *, is_scale_seen: bool
) -> Iterator[Suspicion]:
    """Look at one criterion: judges, arms, what is missing, and the estimator's own flags."""
    arms = ratings.arm.names
    judges = [ratings.judge.names[j] for j in part.judges.tolist()]
    is_scored = ~np.isnan(part.score)
    score = part.score[is_scored]
    if len(score) > 1 and np.ptp(score) == 0:
        yield Suspicion("constant", f"every score is {score[0]:g}")
    else:
        yield from _one_score(score, part.judge[is_scored], judges)
    methods = " + ".join(estimate.interval for estimate in estimates)
    if is_scale_seen and ("betting" in methods or "hoeffding" in methods):
        yield Suspicion(
            "scale_seen",
            "the interval rests on the ends of the scale, and these are only the least and the "
            "greatest score seen; --scale MIN:MAX gives the real ones",
        )
    yield from _few_items(part, judges)
    yield from _without_partner(part, arms)
    flags = dict.fromkeys(flag for estimate in estimates for flag in estimate.flags)
    if "missing_differs_by_arm" not in flags:
        flags.pop("missing_test_rough", None)  # a rough test that finds nothing accuses nobody
    for flag in flags:
        yield Suspicion(flag, _flag(flag, estimates[0].diagnostics, part, arms))


def of_batches(table: InSequence, estimates: Sequence[Estimate]) -> Iterator[Suspicion]:
    """Look at verdicts in sequence: orders, what batches connect, and the model's own flags."""
    ratings = table.ratings
    judges, n_units = ratings.judge.names, len(table.units.names)
    orders: dict[int, list[tuple[int, ...]]] = {}
    for rows in table.batches():
        judge = int(ratings.judge.codes[rows[0]])
        orders.setdefault(judge, []).append(tuple(table.units.codes[rows].tolist()))
    for judge, of_judge in sorted(orders.items()):
        name, n_different = seen(judges[judge]), len(set(of_judge))
        if len(of_judge) > 1 and _keeps_places(of_judge):
            yield Suspicion(
                "fixed_order",
                f"in all {len(of_judge):,} batches of {name} each unit stands in one place and behind one "
                "unit, so place, neighbour and unit can't be told apart",
            )
        elif 2 * n_different < len(of_judge):
            yield Suspicion(
                "few_orders",
                f"{len(of_judge):,} batches of {name} have {n_different:,} orders, so what a unit stands "
                "behind is hardly told from the unit",
            )
        if len(of_judge) < FEW_BATCHES:
            yield Suspicion(
                "few_batches",
                f"{name} has {len(of_judge):,} batches: the spread of batches rests on few",
            )
        n_parts = _n_parts(of_judge, n_units)
        if n_parts > 1:
            yield Suspicion(
                "not_connected",
                f"the units of {name} fall into {n_parts:,} parts that no batch connects: between them "
                "qualities can't be compared, so give the table in parts",
            )
    spoken = (flag for estimate in estimates for flag in batches.spoken_flags(estimate))
    for flag in dict.fromkeys(spoken):
        if flag != "fixed_order":  # said above, judge by judge
            yield Suspicion(flag, wording.flag(flag))


FEW_BATCHES = 30
"""Batches of a judge below which a bootstrap or a test of their spread is not worth its name."""


def _keeps_places(orders: Sequence[tuple[int, ...]]) -> bool:
    """Say whether each unit has one place, and one unit before it, in all of a judge's batches."""
    seen_at: dict[int, set[tuple[int, int]]] = {}
    for order in orders:
        for place, unit in enumerate(order):
            seen_at.setdefault(unit, set()).add((place, order[place - 1] if place else -1))
    return all(len(places) == 1 for places in seen_at.values())


def _n_parts(orders: Sequence[tuple[int, ...]], n_units: int) -> int:
    """Count the parts of a judge's units that chains of batches connect."""
    width = max(map(len, orders))
    rows = np.array([(*order, *[NOTHING] * (width - len(order))) for order in orders])
    part = components(rows, n_units)
    return len(set(part[np.unique(rows[rows != NOTHING])].tolist()))


def _one_score(score: Array, judge: Codes, judges: Sequence[str]) -> Iterator[Suspicion]:
    values, code = np.unique(score, return_inverse=True)
    shape = (len(judges), len(values))
    counts = np.bincount(judge * len(values) + code, minlength=shape[0] * shape[1]).reshape(shape)
    n, most = counts.sum(axis=1), counts.max(axis=1, initial=0)
    for j in np.flatnonzero((n >= FEW) & (most >= ONE_SCORE * n)).tolist():
        value = values[counts[j].argmax()]
        yield Suspicion(
            "one_score",
            f"judge {seen(judges[j])} gives {value:g} in {most[j]:,} of {n[j]:,} scores, so it "
            "hardly tells items apart",
        )


def _few_items(part: Part, judges: Sequence[str]) -> Iterator[Suspicion]:
    n_items = len(part.items)
    rated = np.unique(part.judge * n_items + part.item) // max(n_items, 1)
    n = np.bincount(rated, minlength=len(judges))
    few = np.flatnonzero((n < FEW) & (n < n_items / 2)).tolist()
    if few:
        some = _some([f"{seen(judges[j])} ({n[j]})" for j in few])
        yield Suspicion(
            "judge_rates_few",
            f"{wording.plural(len(few), 'judge')} rated fewer than {FEW} of {n_items:,} items, so "
            f"a strict judge and hard items can't be told apart there: {some}",
        )


def _without_partner(part: Part, arms: Sequence[str]) -> Iterator[Suspicion]:
    has_score = np.zeros((len(arms), len(part.items)), dtype=bool)
    is_scored = ~np.isnan(part.score)
    has_score[part.arm[is_scored], part.item[is_scored]] = True
    lacking = (has_score.any(axis=0) & ~has_score).sum(axis=1).tolist()
    if any(lacking):
        some = _some([f"{n:,} in {seen(arm)}" for arm, n in zip(arms, lacking, strict=True) if n])
        yield Suspicion(
            "no_partner",
            f"items that have a score in some arm lack one in another: {some}; the arms' means are "
            "over different items, and a paired difference leaves these out",
        )


def _flag(flag: str, about: Mapping[str, Json], part: Part, arms: Sequence[str]) -> str:
    """Put a flag of the estimator into words, with the numbers behind it."""
    details: list[str] = []
    match flag:
        case "identical_repeats":
            details = [
                f"{seen(judge['judge'])} ({judge['identical_share']:.0%})"
                for judge in about["judges"]
                if (judge["identical_share"] or 0) > ALIKE
            ]
        case "missing_differs_by_arm":
            is_missing = np.array([reason is not None for reason in part.reasons.tolist()])
            asked = np.bincount(part.arm, minlength=len(arms)).tolist()
            lost = np.bincount(part.arm[is_missing], minlength=len(arms)).tolist()
            details = [
                f"{b:,} of {a:,} missing in {seen(arm)}"
                for arm, a, b in zip(arms, asked, lost, strict=True)
            ]
            details.append(f"p = {about['missing_test']['p']:.1g}")
        case "panel_incomplete" if "n_incomplete_units" in about:
            details = [f"{about['n_incomplete_units']:,} of {len(part.items) * len(arms):,} units"]
        case _:
            pass
    return f"{wording.flag(flag)}{': ' if details else ''}{_some(details)}"


def _some(texts: Sequence[str]) -> str:
    more = len(texts) - _LISTED
    return ", ".join((*texts[:_LISTED], *([f"{more:,} more"] if more > 0 else [])))
