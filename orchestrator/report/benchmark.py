"""What a random part of a benchmark says of the whole, in words and tables."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from orchestrator.core.estimate import Estimate
from orchestrator.core.stopping import StopReason
from orchestrator.core.wire import Json
from orchestrator.report.charts import Track
from orchestrator.report.data import ReportData, Stratum
from orchestrator.report.wording import (
    BEFORE_PLAN,
    Grid,
    flag,
    interval,
    label,
    listed,
    number,
    places,
    plural,
    spread_of,
    target,
    twin,
    usd,
    with_interval,
)

Row = Mapping[str, Json]

SMALL = 10
"""A stratum of which fewer items are drawn is marked: its raw mean says next to nothing."""
_FEW_ARMS = 4
"""So many arms have columns of their own."""
MOST_STRATA = 100
"""So many strata are listed; and so many stand in the picture of correlations."""
_MOST_PAIRS = 30
_LEAST_ARMS, _LEAST_STRATA = 3, 5
"""For correlations of strata over systems."""
_LOOKS = 8
"""So many looks are listed where no picture can be drawn."""


def parts(data: ReportData) -> list[Estimate]:
    """List what was estimated by a part of a benchmark, what several entries share once."""
    found = (e for e in data.estimates if e.kind == "exchangeable" and e.names)
    return [e for e in found if twin(e, data) is None]


def means(data: ReportData) -> list[Estimate]:
    """List the means over a benchmark, and their differences: what is watched."""
    return [e for e in parts(data) if e.target not in {"strata", "ability", "human"}]


def _by_name(e: Estimate, key: str) -> Sequence[Json]:
    column: Sequence[Json] = e.diagnostics["by_name"][key]
    return column


# --- in words --------------------------------------------------------------------------------------


def statements(data: ReportData) -> list[str]:
    """Say of each arm what was measured, of what, by how many items, and what the intervals hold for."""
    return [line for e in means(data) for line in _statements(e, data)]


def _statements(e: Estimate, data: ReportData) -> Iterator[str]:
    match e.target:
        case "difference":
            yield _verdict(e, 0, data)
        case "differences":
            yield _all_pairs(e)
        case _:
            for i in range(len(e.names)):
                yield _mean(e, i, data)
    yield _guarantee(e)
    if BEFORE_PLAN in e.flags:
        yield f"{flag(BEFORE_PLAN).capitalize()}."
    if e.target != "differences":
        yield from _stop(e, data)


def _mean(e: Estimate, i: int, data: ReportData) -> str:
    n, population = _by_name(e, "n_drawn")[i], _by_name(e, "population")[i]
    if e.target == "macro":
        strata = _strata(e.diagnostics["strata"])
        whole, by = f"means of {strata} of this benchmark", f"{n:,} of its {population:,} items"
    else:
        whole, by = f"{population:,} items of this benchmark", f"{n:,} of them"
    name = f"{e.names[i]}: the" if e.names[i] else "The"
    return (
        f"{name} mean over the {whole}, {_whose(e)}, is {with_interval(e, i)} by {by}."
        f"{_open(e, i, data)}"
    )


def _strata(n: int) -> str:
    return f"{n:,} {'stratum' if n == 1 else 'strata'}"


def _whose(e: Estimate) -> str:
    """Say by whose judgment, as the estimand has it."""
    return e.estimand.rpartition(", ")[2]


def _open(e: Estimate, i: int, data: ReportData) -> str:
    """Say what is not back of a name's items while the run goes on, and what counts in its place."""
    lines = ""
    if missing := _by_name(e, "missing")[i]:
        lines += f" {missing:,} of these {'has' if missing == 1 else 'have'} no verdict."
    if not data.are_final and (in_flight := _by_name(e, "in_flight")[i]):
        lines += f" {plural(in_flight, 'item')} before the last one that is back {'is' if in_flight == 1 else 'are'} under way"
        low, high = _by_name(e, "interim_lower")[i], _by_name(e, "interim_upper")[i]
        both = (
            "" if low is None else f"; with all that is back it is within {interval(low, high, 3)}"
        )
        lines += f"{both}."
    return lines


def _guarantee(e: Estimate) -> str:
    """Say for what the intervals of an estimate hold."""
    error, n = e.diagnostics["error"]["alpha"], len(e.names)
    chance = f"With a chance of at least {e.level:.4g}".rstrip()
    if n == 1:
        what = "this interval holds"
    elif e.alpha_split in {"arms", "pairs"}:
        alpha = _by_name(e, "alpha")[0]
        of = "both" if n == 2 else f"all {n}"
        what = (
            f"{of} of these intervals hold together (error {error:g} in {n} parts of {alpha:.3g})"
        )
    else:
        what = "each of these intervals holds by itself"
    missing = ""
    if any(_by_name(e, "missing")):
        missing = f" An item without a verdict counts as {e.diagnostics['missing_policy']}."
    if e.watching_covered:
        return f"{chance} {what}, although every result was watched.{missing}"
    return f"{chance} {what}, for one look at a number of items that no score has decided.{missing}"


def _stop(e: Estimate, data: ReportData) -> Iterator[str]:
    """Say where the run stopped because the target was reached."""
    if data.stop_reason is not StopReason.PRECISION or data.target_half_width is None:
        return
    if e is not data.aim:
        return
    at = f"item {spread_of(_by_name(e, 'n_drawn'))}"
    if e.watching_covered:
        why = "the interval holds although the stop hung on the scores"
        if len(e.names) > 1:
            why = "the intervals hold although the stop hung on the scores"
    else:
        alone = "alone" if not any(_by_name(e, "missing")) else "and from what is missing"
        why = f"that number follows from the target {alone}, not from the scores"
    yield f"The run stopped at {at} because ±{data.target_half_width:g} was reached; {why}."


# --- paired verdicts -------------------------------------------------------------------------------


def _verdict(e: Estimate, i: int, data: ReportData) -> str:
    """Say who is ahead, or how many more items it would take to tell."""
    first, _, second = e.names[i].partition(" - ")
    n, population = _by_name(e, "n_drawn")[i], _by_name(e, "population")[i]
    by = f"over {population:,} items of this benchmark, by {n:,} of them"
    value, lower, upper = e.value[i], e.lower[i], e.upper[i]
    if math.isnan(value):
        return f"{first} and {second}: nothing is known yet."
    if lower > 0 or upper < 0:
        ahead, behind = (first, second) if lower > 0 else (second, first)
        return f"{ahead} is ahead of {behind}: {e.names[i]} is {with_interval(e, i)} {by}.{_open(e, i, data)}"
    return (
        f"{first} and {second} can't be told apart yet: {e.names[i]} is {with_interval(e, i)} {by}."
        f"{_open(e, i, data)} {_further(e, i, data)}"
    )


def _further(e: Estimate, i: int, data: ReportData) -> str:
    """Say how many items it would take until the difference found would be told from 0."""
    n: int = _by_name(e, "n_drawn")[i]
    needed = items_for(e, i, abs(e.value[i]))
    if needed is None:
        return "No number of items would tell a difference of this size: what is missing hides it."
    if needed >= _by_name(e, "population")[i]:
        return "At this spread it takes all items to tell a difference of this size."
    more = needed - n
    cost = _cost_of(data, more)
    about = f", at about {usd(cost)}" if cost else ""
    return f"At this spread it takes about {more:,} more items to tell a difference of this size{about}."


def _all_pairs(e: Estimate) -> str:
    told = sum(low > 0 or high < 0 for low, high in zip(e.lower, e.upper, strict=True))
    return f"Of {plural(len(e.names), 'pair')} of arms {told:,} can be told apart."


def pairs(data: ReportData) -> list[Grid]:
    """Tabulate all pairs of arms: difference, who is ahead, and how many items more it would take."""
    return [_pairs(e) for e in parts(data) if e.target == "differences"]


def _pairs(e: Estimate) -> Grid:
    rows = []
    for i, name in enumerate(e.names[:_MOST_PAIRS]):
        first, _, second = name.partition(" - ")
        ahead = first if e.lower[i] > 0 else second if e.upper[i] < 0 else ""
        needed = None if ahead else items_for(e, i, abs(e.value[i]))
        more = "" if needed is None else f"{needed - _by_name(e, 'n_drawn')[i]:,}"
        rows.append((name, with_interval(e, i), ahead or "can't be told yet", more))
    left = len(e.names) - len(rows)
    title = f"{plural(left, 'further pair')} in the export" if left else ""
    return Grid(title, ("pair", "difference", "ahead", "items more, about"), tuple(rows))


# --- what more items would bring -------------------------------------------------------------------


def half_width_at(e: Estimate, i: int, n: float) -> float | None:
    """Predict a half-width with n items, as the estimate's own outlook has it; None without one."""
    steps = _steps(e, i)
    if len(steps) < 2:
        return None
    items, halves = map(np.array, zip(*steps, strict=True))
    if halves.min() > 0:
        return float(np.exp(np.interp(math.log(n), np.log(items), np.log(halves))))
    return float(np.interp(n, items, halves))


def items_for(e: Estimate, i: int, half: float) -> int | None:
    """Predict with how many items a half-width is reached; None where none are enough."""
    steps, population = _steps(e, i), int(_by_name(e, "population")[i])
    for (n, wide), (further, narrow) in pairwise(steps):
        if narrow <= half:
            if wide <= half:
                return n
            # Between two predictions a width falls nearly as a power of the number of items.
            low = max(narrow, wide / 100)
            share = min(math.log(wide / max(half, low)) / math.log(wide / low), 1.0)
            return math.ceil(n * math.pow(further / n, share))
    n, wide = steps[-1]
    if n >= population or half <= 0:
        return None
    return min(math.ceil(n * (wide / half) ** 2), population)


def _steps(e: Estimate, i: int) -> list[tuple[int, float]]:
    """Give numbers of items, ascending, with the half-widths there: now, then as predicted."""
    outlook: Row = _by_name(e, "outlook")[i]
    steps = [(int(_by_name(e, "n_drawn")[i]), (e.upper[i] - e.lower[i]) / 2)]
    for n, half in zip(outlook["n_items"], outlook["half_width"], strict=True):
        if n > steps[-1][0]:
            steps.append((n, half))
    return steps


def per_item(data: ReportData) -> float | None:
    """Give what an item of all arms has cost so far, nano-USD, all roles; None where nothing did."""
    drawn = [max(_by_name(e, "n_drawn")) for e in means(data)]
    spent = data.spend.settled + data.spend.uncertain
    return spent / max(drawn) if drawn and max(drawn) and spent else None


def _cost_of(data: ReportData, items: float) -> int | None:
    each = per_item(data)
    return None if each is None else round(each * items)


def outlooks(data: ReportData) -> list[Grid]:
    """Tabulate what as much money again would buy, and twice as much."""
    return [grid for e in parts(data) if (grid := _outlook(e, data)) is not None]


def _outlook(e: Estimate, data: ReportData) -> Grid | None:
    if e.target in {"strata", "differences"}:
        return None
    n, population = max(_by_name(e, "n_drawn")), max(_by_name(e, "population"))
    if not n or n >= population or len(_steps(e, 0)) < 2:
        return None
    few = len(e.names) <= _FEW_ARMS
    heads = [label(name) for name in e.names] if few else ["the widest"]
    rows = []
    for times in (1, 2, 3):
        items = min(times * n, population)
        halves = [half_width_at(e, i, items) for i in range(len(e.names))]
        shown = halves if few else [max((h for h in halves if h is not None), default=None)]
        rows.append((_more_money(data, items - n), f"{items:,}", *map(_half, shown)))
        if items == population:
            break
    head = ("more money", "items", *(f"{name}: about ±" for name in heads))
    return Grid(f"{e.name}: {target(e)}", head, tuple(rows))


def _more_money(data: ReportData, items: int) -> str:
    cost = _cost_of(data, items)
    if not items:
        return "as it is"
    return f"{plural(items, 'item')} more" if cost is None else f"another {usd(cost)}"


def _half(half: float | None) -> str:
    return number(half, places(math.nan if half is None else half))


def outlook_note(data: ReportData) -> str:
    """Say what predictions rest on."""
    each = per_item(data)
    of = " of all arms" if len(data.arms) > 1 else ""
    cost = "" if each is None else f" An item{of} has cost {usd(round(each))} so far."
    return f"{OUTLOOK_NOTE}{cost}"


OUTLOOK_NOTE = (
    "What the method in use would give if further items are like those before: a prediction of one run, "
    "and no bound. Money goes for systems and judges as it did so far."
)


# --- strata ----------------------------------------------------------------------------------------


def strata(data: ReportData) -> Grid | None:
    """Tabulate strata: how much of each is drawn, and what it says; None without strata."""
    if not data.strata:
        return None
    found = _stratum_intervals(data)
    arms = list(dict.fromkeys(s.arm for s in data.strata))
    names = list(dict.fromkeys(s.name for s in data.strata))
    at = {(s.arm, s.name): s for s in data.strata}
    few = len(arms) <= _FEW_ARMS
    head = ["stratum", "items", "with a verdict"]
    head += [label(arm) for arm in arms] if few else ["lowest", "highest"]
    rows = []
    for name in names[:MOST_STRATA]:
        of = [at[arm, name] for arm in arms]
        counts = [s.n for s in of]
        mark = " *" if min(counts) < SMALL else ""
        cells = [found.get((s.arm, s.name)) or _raw(s) for s in of]
        if not few:
            known = sorted((s.mean, s.arm) for s in of if not math.isnan(s.mean))
            cells = [f"{arm} {number(mean, 2)}" for mean, arm in (known[:1] + known[-1:])]
            cells = cells or [number(None)] * 2
        rows.append((f"{name}{mark}", f"{of[0].size:,}", spread_of(counts), *cells))
    left = len(names) - len(rows)
    title = f"{left:,} further strata" if left else ""
    return Grid(title, tuple(head), tuple(rows))


def _raw(s: Stratum) -> str:
    return number(s.mean, 2)


def _stratum_intervals(data: ReportData) -> dict[tuple[str, str], str]:
    """Give the intervals of strata by arm and stratum, where they were estimated."""
    e = next((e for e in parts(data) if e.target == "strata"), None)
    if e is None:
        return {}
    at = {name: i for i, name in enumerate(e.names)}
    n_arms = len(data.arms)
    found = {}
    for s in data.strata:
        i = at.get(s.name if n_arms == 1 else f"{s.arm}/{s.name}")
        if i is not None and not math.isnan(e.value[i]):
            found[s.arm, s.name] = with_interval(e, i)
    return found


def strata_note(data: ReportData) -> str:
    """Say what the table of strata holds."""
    e = next((e for e in parts(data) if e.target == "strata"), None)
    if e is None:
        held = (
            "Raw means of verdicts, each judge's first; no intervals: the target strata gives them."
        )
    else:
        held = (
            f"Each interval holds with {e.level:.4g} by itself, for one look at a number of items that no "
            "score has decided: of many strata some miss, and a stop that hung on scores spoils them."
        )
    if all(s.n >= SMALL for s in data.strata):
        return held
    return f"{held} * fewer than {SMALL} items with a verdict: hardly anything is known of it."


# --- ability ---------------------------------------------------------------------------------------

_STATUSES = {
    "ok": "chances differ between subjects by more than chance",
    "no_overdispersion": "subjects differ no more than chance would have it, so what spread they have counts "
    "as none",
    "degenerate_all_equal": "all answers are alike, which says nothing of how subjects differ",
    "not_identified": "one subject, or one answer from each: how they differ can't be known, and the most "
    "that is possible counts",
    "at_phi_max": "each subject is all right or all wrong: the most that they can differ",
}


def ability(data: ReportData) -> list[str]:
    """Say what holds of subjects like these, and how that differs from this benchmark."""
    return [line for e in parts(data) if e.target == "ability" for line in _ability(e)]


def _ability(e: Estimate) -> Iterator[str]:
    yield (
        "Of this benchmark the intervals above speak: its items are all there are, and once all are drawn "
        "nothing of them is open. Ability on subjects like these takes its strata for draws of subjects, and what "
        "would come with other subjects is open too."
    )
    laws: Mapping[str, Row] = e.diagnostics["laws"]
    for i, name in enumerate(e.names):
        law = laws.get(name)
        if law is None:
            yield f"{label(name)}: nothing is known yet."
            continue
        words = dict.fromkeys(_STATUSES[status] for status in law["statuses"])
        rho = [number(icc, 2) for icc in law["icc"] if icc is not None]
        like = f" (two answers in one subject correlate by {listed(rho)})" if rho else ""
        outlook: Row = _by_name(e, "outlook")[i]
        end = f"; more items of the same subjects narrow it to ±{_half(outlook['end'])} at best"
        yield (
            f"{label(name)}: {with_interval(e, i)}, by {law['strata']} subjects; {'; '.join(words)}"
            f"{like}{end}."
        )
    yield (
        "That law of subjects is estimated, and its interval holds as far as the law does, for one look "
        "at the end."
    )


# --- correlations ----------------------------------------------------------------------------------


class Correlations(NamedTuple):
    """Correlations of strata over systems.

    `r` (S, S) is of raw means, nan where too little is known; `mean` and `centred` are the means over
    pairs of strata, of raw means and of those with each system's own mean taken off.
    """

    names: tuple[str, ...]
    r: NDArray[np.float64]
    mean: float
    centred: float
    n_arms: int


def correlations(data: ReportData) -> Correlations | None:
    """Correlate strata over systems; None for fewer than 3 systems or 5 strata."""
    arms = list(dict.fromkeys(s.arm for s in data.strata))
    if len(arms) < _LEAST_ARMS:
        return None
    table = np.array([s.mean for s in data.strata]).reshape(len(arms), -1)
    names = [s.name for s in data.strata[: table.shape[1]]]
    if len(names) < _LEAST_STRATA or not np.isfinite(table).any():
        return None
    r = _correlated(table)
    has_own = np.isfinite(table).any(axis=1, keepdims=True)
    own = np.nanmean(np.where(has_own, table, 0.0), axis=1, keepdims=True)
    apart = ~np.eye(len(names), dtype=bool)
    if not np.isfinite(r[apart]).any():
        return None
    centred = _correlated(table - own)[apart]
    return Correlations(
        tuple(names),
        r,
        float(np.nanmean(r[apart])),
        float(np.nanmean(centred)) if np.isfinite(centred).any() else math.nan,
        len(arms),
    )


def _correlated(table: NDArray[np.float64]) -> NDArray[np.float64]:
    """Correlate columns over the rows that have both; nan for fewer than 3, or without variance."""
    is_there = np.isfinite(table)
    x = np.where(is_there, table - np.nanmean(table), 0.0)
    there = is_there.astype(np.float64)
    n = np.maximum(there.T @ there, 1)
    sums = x.T @ there
    cross = x.T @ x - sums * sums.T / n
    variance = np.maximum((x**2).T @ there - sums**2 / n, 0.0)
    scale = np.sqrt(variance * variance.T)
    is_known = (n >= _LEAST_ARMS) & (np.minimum(variance, variance.T) > 1e-12)
    r = np.full_like(scale, np.nan)
    np.divide(cross, scale, out=r, where=is_known)
    return np.asarray(np.clip(r, -1, 1))


def correlations_told(data: ReportData) -> list[str]:
    """Say whether strata are hard for the same systems."""
    found = correlations(data)
    if found is None:
        return []
    m = found.n_arms
    limit = _chance_ends(m)
    rough = f"With {m} systems a single correlation below {number(limit)} is no more than chance"
    told = (
        f"Whether strata are hard for the same systems: their raw means correlate by "
        f"{number(found.mean, 2)} in the mean over pairs of strata, and by {number(found.centred, 2)} once "
        f"each system's own mean is taken off. {rough} (5%)."
    )
    return [told]


def _chance_ends(m: int) -> float:
    """Give the correlation of m pairs that chance passes, on either side, in 5%."""
    from scipy.special import stdtrit  # noqa: PLC0415  # slow to load, and few reports need it

    t = float(stdtrit(m - 2, 0.975))
    return t / math.sqrt(t * t + m - 2)


# --- over the run ----------------------------------------------------------------------------------


class Tracked(NamedTuple):
    """The interval of one name over the run; `target` is the half-width at which that would stop."""

    title: str
    track: tuple[Track, ...]
    target: float | None


def tracks(data: ReportData) -> list[Tracked]:
    """Follow the interval of each mean and difference from look to look."""
    return [
        Tracked(_titled(e, i), track, data.target_half_width if e is data.aim else None)
        for e in means(data)
        if e.target != "differences"
        for i in range(len(e.names))
        if len(track := _track(e, i, data)) > 1
    ]


def _titled(e: Estimate, i: int) -> str:
    return f"{e.names[i]}: {target(e)}" if e.names[i] else target(e).capitalize()


def _track(e: Estimate, i: int, data: ReportData) -> tuple[Track, ...]:
    """Give items, dollars and interval at each look at which something was known."""
    found: dict[int, Track] = {}
    for look in data.curve:
        points = look.points.get((e.name, e.target), ())
        if i < len(points) and math.isfinite(points[i].value):
            n, value, lower, upper = points[i]
            found[n] = Track(n, (look.settled + look.uncertain) / 1e9, value, lower, upper)
    return tuple(found[n] for n in sorted(found))


def looks(data: ReportData) -> list[Grid]:
    """Tabulate how each interval came about, a few looks of many."""
    grids = []
    for one in tracks(data):
        last = len(one.track) - 1
        kept = sorted({round(k * last / (_LOOKS - 1)) for k in range(_LOOKS)})
        rows = []
        for t in (one.track[k] for k in kept):
            d = places((t.upper - t.lower) / 2)
            rows.append(
                (
                    f"{t.items:,}",
                    usd(round(t.dollars * 1e9)),
                    number(t.value, d),
                    interval(t.lower, t.upper, d),
                )
            )
        grids.append(Grid(one.title, ("items", "spent", "value", "interval"), tuple(rows)))
    return grids
