"""What a table of verdicts says: its columns, naive and honest intervals, and what is suspicious."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import NamedTuple

from orchestrator.core.estimate import Estimate
from orchestrator.core.money import Nano, format_usd
from orchestrator.core.scale import Scale
from orchestrator.core.wire import Json
from orchestrator.report import batches, board, correctness
from orchestrator.report.screen import WIDTH
from orchestrator.report.wording import (
    columns,
    fit,
    label,
    method,
    number,
    places,
    plural,
    printable,
    shown,
    target,
)


class Use(NamedTuple):
    """What a table can be read as, and the kind of estimate for that."""

    kind: str
    table: str


class Assumption(NamedTuple):
    """What was taken to be so, and why."""

    what: str
    source: str


class Suspicion(NamedTuple):
    """What may be wrong with the table: a short word for programs, a sentence for people."""

    flag: str
    message: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Naive:
    """Means with every row taken as an independent item: mean ± z sd/√rows, along names.

    Of a difference: that of the two arms' row means, not paired. `n_rows` counts rows with a score.
    """

    n_rows: tuple[int, ...]
    value: tuple[float, ...]
    lower: tuple[float, ...]
    upper: tuple[float, ...]


class Compared(NamedTuple):
    """An estimate and what the naive reading of the same rows gives."""

    estimate: Estimate
    naive: Naive

    @property
    def is_in_logits(self) -> bool:
        """Whether our values are logits of yes, and the naive ones shares of it."""
        return self.estimate.diagnostics.get("scale") == "logit"

    @property
    def width_ratios(self) -> tuple[float, ...]:
        """How many times as wide our intervals are; nan where that can't be said.

        The naive one has no width, or ours is in logits where the naive one is in shares.
        """
        e, n = self.estimate, self.naive
        if self.is_in_logits:
            return (math.nan,) * len(e.names)
        ends = zip(e.lower, e.upper, n.lower, n.upper, strict=True)
        return tuple((b - a) / (d - c) if d > c else math.nan for a, b, c, d in ends)


@dataclass(frozen=True, slots=True, kw_only=True)
class CriterionResult:
    """What one criterion's scores come to; of a benchmark also what its strata are like."""

    criterion: str
    scale: Scale
    compared: tuple[Compared, ...]
    strata: Mapping[str, Json] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Assessment:
    """What a table of verdicts says.

    Parameters
    ----------
    file : as the user named it
    n_rows : data rows
    columns : the column of each part that was read
    unused : columns that were not
    uses : what the columns allow
    counts : how many items, arms, judges, ... there are
    results : one a criterion
    cost : what the verdicts cost; None without such a column
    next_command : what to type next
    """

    file: str
    n_rows: int
    columns: Mapping[str, str]
    unused: tuple[str, ...]
    uses: tuple[Use, ...]
    counts: Mapping[str, int]
    assumptions: tuple[Assumption, ...]
    results: tuple[CriterionResult, ...]
    suspicions: tuple[Suspicion, ...]
    cost: Nano | None
    next_command: str


# --- for programs ------------------------------------------------------------------------------


def as_json(a: Assessment) -> dict[str, Json]:
    """Give the JSON form; an unknown number is null, money is nano-USD."""
    return {
        "schema": 1,
        "file": a.file,
        "rows": a.n_rows,
        "columns": dict(a.columns),
        "unused": list(a.unused),
        "counts": dict(a.counts),
        "allows": [use._asdict() for use in a.uses],
        "assumptions": [one._asdict() for one in a.assumptions],
        "results": [
            {
                "criterion": result.criterion,
                "scale": {
                    "type": result.scale.type.value,
                    "min": result.scale.low,
                    "max": result.scale.high,
                },
                "estimates": [_compared_json(one) for one in result.compared],
                **({} if result.strata is None else {"strata": dict(result.strata)}),
            }
            for result in a.results
        ],
        "suspicious": [one._asdict() for one in a.suspicions],
        "cost_nano_usd": a.cost,
        "next": a.next_command,
    }


def _compared_json(one: Compared) -> dict[str, Json]:
    naive = one.naive
    return {
        **one.estimate.as_json(),
        "naive": {
            "n_rows": list(naive.n_rows),
            **{key: _known(getattr(naive, key)) for key in ("value", "lower", "upper")},
        },
        "width_ratio": _known(one.width_ratios),
        "why": why(one),
    }


def _known(numbers: Iterable[float]) -> list[float | None]:
    return [x if math.isfinite(x) else None for x in numbers]


# --- for people --------------------------------------------------------------------------------


def lines(a: Assessment) -> list[str]:
    """Write the assessment, at most `WIDTH` columns a line."""
    return [fit(printable(line), WIDTH).rstrip() for line in _lines(a)]


def _lines(a: Assessment) -> Iterator[str]:
    counts = ", ".join(f"{n:,} {what}" for what, n in a.counts.items() if n > (what not in _ALWAYS))
    yield from _told(a.file, [f"{plural(a.n_rows, 'row')}{': ' if counts else ''}{counts}"])
    read = (part if part == name else f"{part} (from {name})" for part, name in a.columns.items())
    yield from _told("columns", [", ".join(read) or "none that is known"])
    if a.unused:
        yield from _told("not used", [", ".join(a.unused)])
    yield from _told("allows", [f"{use.kind}: {use.table}" for use in a.uses])
    yield from _told("assumed", [f"{one.what} ({one.source})" for one in a.assumptions])
    for result in a.results:
        for one in result.compared:
            yield ""
            yield from _table_of(result, one)
        estimates = [one.estimate for one in result.compared]
        if _is_of_benchmark(estimates[0]):
            yield from _strata(result.strata)
            continue
        yield ""
        told = [*batches.memory(estimates), *batches.adequacy(estimates)]
        if ranked := board.boards(estimates):
            yield from _ranked(ranked[0])
        elif told:
            yield from _told("judges", told)
        elif chosen := board.rank_choice(estimates):
            yield from _told("rank", chosen)
        else:
            yield from _judges(estimates[0])
    if a.cost is not None:
        yield from _told("cost", [f"{format_usd(a.cost, decimals=2)} in all"])
    yield ""
    if a.suspicions:
        yield "suspicious"
        for suspicion in a.suspicions:
            yield from _wrapped(suspicion.message, first="- ")
    else:
        yield "suspicious: nothing"


_ALWAYS = {"items", "missing"}
"""Counts that are shown also where there is one."""


def _table_of(result: CriterionResult, one: Compared) -> Iterator[str]:
    """Set naive and honest intervals side by side, and say why they differ."""
    e, naive = one.estimate, one.naive
    is_pairs = _is_of_pairs(e)
    rows, lost = [], []
    for i in shown(e):
        ends = (naive.lower[i], naive.upper[i], e.lower[i], e.upper[i])
        halves = ((ends[1] - ends[0]) / 2, (ends[3] - ends[2]) / 2)
        is_known = "whole_benchmark" in e.flags and math.isnan(ends[2])
        digits = max((places(half) for half in halves if half > 0), default=3)
        ratio = one.width_ratios[i]
        rows.append(
            (
                label(e.names[i]),
                f"{naive.n_rows[i]:,}",
                _interval(naive.value[i], *ends[:2], digits)
                if naive.n_rows[i]
                else f"no {'votes' if is_pairs else 'rows'} here",
                f"{_by_name(e, 'n_items', i) or 0:,}",
                f"{number(e.value[i], digits)} known"
                if is_known
                else _interval(e.value[i], *ends[2:], digits),
                "" if math.isnan(ratio) else f"{ratio:.2f}x",
            )
        )
        if n := 0 if _is_of_benchmark(e) else _by_name(e, "missing", i):
            worst = (_by_name(e, "worst_lower", i), _by_name(e, "worst_upper", i))
            lost.append(f"{n:,} in {label(e.names[i])}: {_range(*worst, digits)}")
    units = ("naive", "ours")
    if one.is_in_logits:
        units = ("naive win rate", "log-odds") if is_pairs else ("naive share", "logits")
    elif is_pairs:
        units = ("naive win rate", "ours")
    what = f"{result.criterion}, {target(e)}"
    if _is_of_benchmark(e):  # whose targets take more words than a column has room for
        yield what
        what = ""
    head = (what, "rows", units[0], "items", units[1], "width")
    # Width says nothing of logits, and items are not counted by name of what is no mean of scores.
    kept = [0, 1, 2, 4] if one.is_in_logits else [0, 1, 2, 4, 5] if is_pairs else [*range(6)]
    if _is_of_benchmark(e) and all(row[1] == row[3] for row in rows):
        kept.remove(1)
    yield from _grid([head[k] for k in kept], ([row[k] for k in kept] for row in rows))
    if len(rows) < len(e.names):
        yield f"({len(e.names) - len(rows):,} more are in --json)"
    yield from _told("why", [f"{why(one)}."])
    yield from _told("ours", [method(e)])
    yield from _told("compare", correctness.reference(e))
    if lost:
        more = [f"{len(lost) - _LISTED:,} more"] if len(lost) > _LISTED else []
        missing = "; ".join((*lost[:_LISTED], *more))
        yield from _told("missing", [f"{missing} with each at an end of the scale."])


_LISTED = 4
"""Of how many names the missing verdicts are listed."""


def why(one: Compared) -> str:
    """Say in one sentence why our intervals differ from the naive ones."""
    e, naive = one.estimate, one.naive
    if _is_of_pairs(e):
        return _WHY_IN_PAIRS if one.is_in_logits else _WHY_CHANCES
    if one.is_in_logits:
        return _why_in_sequence(e)
    if _is_of_benchmark(e):
        return correctness.why(e)
    # Where repeats alone are random, items are as given and nothing rests on their number.
    is_sample = "items like these" in e.estimand
    n_rows = sum(naive.n_rows)
    n_items = sum(_by_names(e, "n_items"))
    n_clusters, most_items = max(_by_names(e, "n_clusters")), max(_by_names(e, "n_items"))
    match e.target:
        case "judges":
            items = plural(n_items, "pair") + " of judge and item"
        case "arms" if len(e.names) > 1:
            items = plural(n_items, "unit") + " (an item in an arm)"
        case _:
            items = plural(n_items, "item")
    reasons = {
        "each item is compared with itself, so what makes it easy or hard drops out": (
            e.estimand.startswith("mean paired")
        ),
        f"{plural(n_rows, 'row')} speak of {items}, and asking again makes no new item": (
            is_sample and n_rows > n_items
        ),
        f"the items come in {n_clusters:,} clusters": is_sample and n_clusters < most_items,
        "the items are taken as given, so only what judges say at another time is random": (
            not is_sample
        ),
        "the scores say too little of their spread, so the interval rests on the scale's ends": (
            any(name in e.interval for name in ("betting", "hoeffding"))
        ),
        "Wilson's interval keeps its level for a share near an end of the scale": (
            "wilson" in e.interval
        ),
        "the judges are a sample too": "judges like these" in e.estimand,
        "the naive mean counts rows, ours items and judges, so the values differ too": any(
            abs(ours - other) > (upper - lower) / _VISIBLE
            for ours, other, lower, upper in zip(
                e.value, naive.value, naive.lower, naive.upper, strict=True
            )
        ),
    }
    found = [reason for reason, is_so in reasons.items() if is_so]
    return (
        "; ".join(found) or "each row is an item of its own, and both take the rows as the sample"
    )


_WHY_IN_PAIRS = (
    "a win rate depends on whom an arm met and on which answer stood first; log-odds are the arm's own, "
    "above the mean of all, and comparisons of one item hang together"
)


_WHY_CHANCES = (
    "a win rate depends on whom an arm met and on which answer stood first; ours is against all other arms "
    "alike, and votes of other categories inform it"
)


def _is_of_pairs(e: Estimate) -> bool:
    return e.kind in {"bradley_terry", "bt_tensor"}


def _is_of_benchmark(e: Estimate) -> bool:
    return e.kind == "exchangeable"


def _strata(about: Mapping[str, Json] | None) -> Iterator[str]:
    """Show the strata of a benchmark, and what they have in common."""
    if about is None:
        return
    for grid in correctness.grids(about):
        yield ""
        yield from _grid(grid.head, grid.rows)
        if grid.title:
            yield grid.title
    if said := correctness.strata(about):
        yield ""
        yield from _told("strata", said)


def _ranked(e: Estimate) -> Iterator[str]:
    """Say what comparisons prove: ranks, gaps of neighbours, and what judges make of the order."""
    yield from _told("ranks", board.standing(e))
    for grid in (board.leaderboard(e), board.neighbours(e)):
        if grid is not None and len(grid.rows) <= _MANY_JUDGES:
            yield ""
            yield from _grid(grid.head, grid.rows)
    yield ""
    yield from _told("order", board.order(e))
    judges = board.judges(e)
    if judges is not None and len(judges.rows) <= _MANY_JUDGES:
        yield from _grid(judges.head, judges.rows)
    elif judges is not None:
        yield f"{plural(len(judges.rows), 'judge')}, each with its flips: in --json"


def _why_in_sequence(e: Estimate) -> str:
    told = batches.why_naive([e])
    if told:
        return " ".join(told).removesuffix(".")
    return (
        "shares hang on what stood before, and on the batch's mood; logits are the units' own, above "
        "the mean of all"
    )


_VISIBLE = 10
"""A difference of values is spoken of from this part of the naive width on."""


def _by_names(e: Estimate, key: str) -> Sequence[int]:
    found: Mapping[str, Sequence[int]] = e.diagnostics.get("by_name") or {}
    return found.get(key) or [e.n_items]


def _by_name(e: Estimate, key: str, i: int) -> Json:
    """Read what the diagnostics say of one name, None where they don't."""
    found: Mapping[str, Sequence[Json]] = e.diagnostics.get("by_name") or {}
    return found[key][i] if key in found else None


def _judges(e: Estimate) -> Iterator[str]:
    judges: Sequence[Mapping[str, Json]] = e.diagnostics.get("judges") or ()
    if len(judges) > _MANY_JUDGES:
        yield f"{plural(len(judges), 'judge')}: --per judge compares them"
        return
    rows = (
        (
            judge["judge"],
            f"{judge['n_answers']:,}",
            number(judge["mean"]),
            number(_root(judge["repeat_variance"])),
            "" if judge["identical_share"] is None else f"{judge['identical_share']:.0%}",
        )
        for judge in judges
    )
    yield from _grid(["judge", "answers", "mean", "sd of repeats", "all repeats equal"], rows)


_MANY_JUDGES = 20


def _root(variance: float | None) -> float | None:
    return None if variance is None else math.sqrt(variance)


def _interval(value: float, lower: float, upper: float, digits: int) -> str:
    return f"{number(value, digits)} {_range(lower, upper, digits)}"


def _range(lower: float | None, upper: float | None, digits: int) -> str:
    if lower is None or upper is None or math.isnan(lower) or math.isnan(upper):
        return "[not known]"
    return f"[{number(lower, digits)}, {number(upper, digits)}]"


# --- lines of text -----------------------------------------------------------------------------

_INDENT = 10
_NAME_COLUMNS = 30


def _told(head: str, texts: Iterable[str]) -> Iterator[str]:
    """Write texts beside a head, each on lines of its own."""
    # A head that is longer than its place, as a file's name may be, takes a line.
    for text in texts:
        if columns(head) >= _INDENT:
            yield head
            head = ""
        yield from _wrapped(text, first=head + " " * (_INDENT - columns(head)))
        head = ""


def _wrapped(text: str, *, first: str) -> Iterator[str]:
    """Break a text at spaces."""
    line, indent, is_empty = first, " " * len(first), True
    for word in printable(text).split(" "):
        if not is_empty and columns(line) + 1 + columns(word) > WIDTH:
            yield line
            line, is_empty = indent, True
        line, is_empty = f"{line}{'' if is_empty else ' '}{word}", False
    yield line


def _grid(head: Sequence[str], rows: Iterable[Sequence[str]]) -> Iterator[str]:
    """Set a table: the first column to the left, the others to the right."""
    table = [[fit(printable(row[0]), _NAME_COLUMNS), *row[1:]] for row in chain([head], rows)]
    widths = [max(map(columns, column)) for column in zip(*table, strict=True)]
    for first, *others in table:
        cells = (
            " " * (w - columns(cell)) + cell for w, cell in zip(widths[1:], others, strict=True)
        )
        yield "  ".join((first + " " * (widths[0] - columns(first)), *cells))
