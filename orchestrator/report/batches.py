"""What order did to a campaign of batches, in words and tables: design, memory, looks, raw verdicts."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from statistics import NormalDist

from orchestrator.core.estimate import Estimate
from orchestrator.core.wire import Json
from orchestrator.report.data import Evenness, ReportData, SlotTally
from orchestrator.report.wording import EDGE, Grid, flag, interval, number, places, plural

_ODD_GRADIENT = 1e-4
_ODD_ITERATIONS = 50
"""What a fit's gradient and steps stay far below; beyond, it is spoken of."""
_NAMED = 8
"""So many units are named in a sentence."""

Row = Mapping[str, Json]


def models(estimates: Sequence[Estimate]) -> list[Estimate]:
    """List what `markov_glmm` estimated: the qualities of units, one estimate an entry."""
    return [e for e in estimates if e.kind == "markov_glmm" and e.target == "units"]


def contrasts(estimates: Sequence[Estimate]) -> list[Estimate]:
    """List the comparisons of groups that `markov_glmm` made."""
    return [e for e in estimates if e.kind == "markov_glmm" and e.target == "groups"]


# --- the design ------------------------------------------------------------------------------------


def design(data: ReportData) -> list[str]:
    """Say of each judge how evenly its batches were laid out, and what losses left of that."""
    return [_design(tally) for tally in data.slots]


def _design(tally: SlotTally) -> str:
    n_units = plural(tally.n_lost, "unit")
    why = ", ".join(f"{reason.replace('_', ' ')} {n:,}" for reason, n in tally.lost.items())
    lost = f" {n_units} without a verdict where they stood: {why}." if why else ""
    batches = f"{tally.judge}: {_batches(tally.n_batches)}"
    if tally.asked is None or tally.kept is None:
        return f"{batches}; the pool is too large to count places and neighbours.{lost}"
    even = f"{batches}. {_evenness(tally.asked)}."
    if tally.asked == tally.kept:
        return f"{even}{lost}"
    return f"{even}{lost} Of what has a verdict: {_evenness(tally.kept).lower()}."


def _batches(n: int) -> str:
    return f"{n:,} {'batch' if n == 1 else 'batches'}"


def _evenness(found: Evenness) -> str:
    return (
        f"Each unit stood {_times(found.per_slot)} in each slot, and {_times(found.per_pair)} right "
        "behind each other unit"
    )


def _times(ends: tuple[int, int]) -> str:
    fewest, most = ends
    if fewest == most:
        return "once" if most == 1 else f"{most:,} times"
    return f"{fewest:,} to {most:,} times"


def by_slot(data: ReportData) -> Grid | None:
    """Tabulate what was said by slot, and what the first model expects of equal units there."""
    if not data.slots:
        return None
    fitted = {
        row["judge"]: row["profile"]
        for estimate in models(data.estimates)[:1]
        for row in estimate.diagnostics.get("judges") or ()
    }
    n_slots = max(len(tally.rated) for tally in data.slots)
    head, columns = ["slot"], []
    for tally in data.slots:
        what = "accepted" if tally.is_share else "mean"
        head += [f"{tally.judge}: verdicts", what]
        columns += [[f"{n:,}" for n in tally.rated], [number(m) for m in tally.means]]
        profile: Sequence[float] = fitted.get(tally.judge) or ()
        if profile:
            head.append("by the model")
            columns.append([number(p) for p in profile])
    slots = list(range(n_slots))
    if n_slots > 2 * EDGE:
        slots = [*range(EDGE), *range(n_slots - EDGE, n_slots)]
    rows = [(f"{s + 1}", *(c[s] if s < len(c) else "" for c in columns)) for s in slots]
    return Grid("", tuple(head), tuple(rows))


SLOTS_NOTE = (
    "By the slot in which a unit stood: verdicts, and the share of them that accept. By the model: what "
    "it expects there of units that all have the mean quality, so it lies elsewhere than the raw share "
    "where qualities differ; what counts is its shape."
)


# --- the judges' memory ----------------------------------------------------------------------------


def memory(estimates: Sequence[Estimate]) -> list[str]:
    """Say of each judge what it carries over from one unit to the next, and how its batches differ."""
    return [line for head, row in _judges(estimates) for line in _memory(head, row)]


def _judges(estimates: Sequence[Estimate]) -> Iterator[tuple[str, Row]]:
    """Go through the judges of each model; where there are several, with the model's name."""
    every = models(estimates)
    for estimate in every:
        prefix = f"{estimate.name}, " if len(every) > 1 else ""
        level = {"level": estimate.level}
        for row in estimate.diagnostics.get("judges") or ():
            yield f"{prefix}{row['judge']}", {**row, **level}


def _memory(head: str, row: Row) -> Iterator[str]:
    if row["reason"]:
        yield f"{head}: its batches can't be modelled: {row['reason']}."
        return
    z = NormalDist().inv_cdf((1 + row["level"]) / 2)
    effects: Mapping[str, Mapping[str, float | None]] = row["carry_over"]
    lags = [(name, effect) for name, effect in effects.items() if name.startswith("lag")]
    for name, effect in lags:
        yield f"{head}: {_effect(name, effect, z)}."
    if not lags:
        yield f"{head}: no memory is modelled (lags: 0)."
    yield f"{head}: {_spread(row)}."


def _effect(name: str, effect: Mapping[str, float | None], z: float) -> str:
    est, se, back = effect["est"], effect["se"], int(name.removeprefix("lag"))
    when = "after a yes" if back == 1 else f"where the unit {back} before got a yes"
    if est is None or se is None:
        return f"what happens {when} is not known"
    low, high = _odds(est - z * se), _odds(est + z * se)
    claim = f"{when} the odds of a yes are \N{MULTIPLICATION SIGN} {_odds(est)} [{low}, {high}]"
    if est - z * se > 0 or est + z * se < 0:
        return f"{claim}, those after a no being 1"
    return f"{claim}: no carry-over can be told from chance"


def _odds(logits: float) -> str:
    if abs(logits) > _FAR:
        return "above 1,000,000" if logits > 0 else "below 0.000001"
    ratio = math.exp(logits)
    return number(ratio, places(ratio))


_FAR = 6 * math.log(10)


def _spread(row: Row) -> str:
    if row["boundary"]:
        return (
            "how readily it says yes does not differ between batches by more than chance (the estimate "
            "of the spread is 0, the edge of what is possible)"
        )
    return (
        f"batches differ in how readily it says yes, by {number(row['sigma_b'], 2)} logits (standard "
        "deviation)"
    )


# --- can the model be trusted ------------------------------------------------------------------------


def adequacy(estimates: Sequence[Estimate]) -> list[str]:
    """Say of each judge whether its model fits, and which units it can't tell apart."""
    lines = [line for head, row in _judges(estimates) for line in _adequacy(head, row)]
    lines += [line for e in contrasts(estimates) for line in _sensitivity(e)]
    return [*lines, *_rankings(estimates)]


def _adequacy(head: str, row: Row) -> Iterator[str]:
    if row["reason"]:
        return
    ratio = row["robust_ratio"]
    if ratio is not None:
        verdict = (
            "so its intervals are about wide enough"
            if ratio <= 1.25
            else "so the model leaves something out, and its intervals are to be read with care"
        )
        yield (
            f"{head}: errors that hold although the model is not quite right are at most "
            f"{number(ratio, 2)} times the model's, {verdict}."
        )
    prediction: Row | None = row.get("prediction")
    if prediction is not None:
        yield f"{head}: {_prediction(prediction)}."
    if row["gradient_max"] > _ODD_GRADIENT or row["iterations"] > _ODD_ITERATIONS:
        yield (
            f"{head}: the fit ended oddly (largest gradient {row['gradient_max']:.1g} after "
            f"{plural(row['iterations'], 'step')})."
        )
    for which in ("accept", "reject"):
        named = [name for name, how in row["unanimous"].items() if how == which]
        if named:
            yield (
                f"{head} {which}ed {_named(named)} every time: how far beyond the others "
                "they stand is the penalty's guess, and no verdict's."
            )
    if row["saturated"]:
        yield (
            f"{head} is saturated: {len(row['unanimous']):,} of {plural(row['n_items'], 'unit')} get the "
            "same verdict every time, so "
            "it hardly tells these units apart, and what it says of groups is inconclusive."
        )


def _prediction(found: Row) -> str:
    n, missed = found["n_terms"], found["missed"]
    what = (
        f"fitted to the batches before, the model puts {n - len(missed)} of {n} statistics of the last "
        f"{_batches(found['n_held_out'])} where they lie"
    )
    if found["passes"]:
        return what
    return (
        f"{what}; missed: {', '.join(missed)}. One right model in eight misses as much by chance; a "
        "deeper memory (lags: 3) may fit"
    )


def _sensitivity(estimate: Estimate) -> Iterator[str]:
    for row in estimate.diagnostics.get("judges") or ():
        scales: Sequence[Row] = row.get("prior_sensitivity") or ()
        if scales:
            found = ", ".join(
                f"{_signed(one['est'])} (p {_p(one['p'])}) at scale {one['scale']:g}"
                for one in scales
            )
            yield (
                f"{row['judge']}: {estimate.names[0]} rests on units with one verdict only, so the "
                f"penalty's scale matters: {found}."
            )


def _rankings(estimates: Sequence[Estimate]) -> Iterator[str]:
    for estimate in models(estimates):
        rows: Sequence[Row] = estimate.diagnostics.get("ranking") or ()
        if len(rows) > 1 and (shares := _chances(estimate.diagnostics.get("first") or {})):
            yield f"All judges together: chance of being first: {shares}."
        yield from _lead(estimate)
        for row in rows:
            if shares := _chances(row["first"]):  # units that no batch connects have no first
                yield f"{row['judge']}: chance of being first: {shares}."
            if not row["naive_is_safe"]:
                yield (
                    f"{row['judge']}: a ranking by raw shares is not safe: the first two are "
                    f"{number(row['gap'], 2)} logits apart, and since no unit follows itself, raw shares "
                    f"can turn the order of units less than {number(row['needed'], 2)} apart."
                )


def _chances(first: Mapping[str, float]) -> str:
    best = sorted(first, key=lambda name: -first[name])[:3]
    return ", ".join(f"{name} {first[name]:.0%}" for name in best if first[name] >= 0.005)


def _lead(estimate: Estimate) -> Iterator[str]:
    """Say whether the first unit is proved to be first, where one may look meanwhile."""
    found = estimate.diagnostics
    if not found.get("ranks_hold_watched") or found["leader"] is None:
        return
    leader = found["leader"]
    if found["is_separated"]["leader"]:
        yield (
            f"{leader} is proved to be first, with an error of at most {1 - estimate.level:.0%} however "
            "often one looked."
        )
    elif found["rivals"]:
        yield f"{leader} leads and is not proved to be first: {_named(found['rivals'])} may be."


def _named(names: Sequence[str]) -> str:
    more = len(names) - _NAMED
    return ", ".join((*names[:_NAMED], *([f"{more:,} more"] if more > 0 else [])))


# --- raw verdicts beside ours ------------------------------------------------------------------------


def beside_naive(estimates: Sequence[Estimate]) -> list[Grid]:
    """Set the comparison of raw verdicts beside the model's, by judge."""
    grids = []
    for estimate in contrasts(estimates):
        rows = []
        for row in estimate.diagnostics.get("judges") or ():
            if "naive" not in row:
                continue
            naive, own = row["naive"], row["contrast"]
            rows.append(
                (
                    row["judge"],
                    _with_interval(naive["est"], naive["se"]),
                    _p(naive["p"]),
                    _with_interval(own["est"], own["se"]),
                    _p(own["p"]),
                )
            )
        if rows:
            head = ("judge", "raw shares", "p", "logits by the model", "p")
            title = f"{estimate.name}: {estimate.names[0]}"
            grids.append(Grid(title, head, tuple(rows)))
    return grids


NAIVE_NOTE = (
    "Raw: the mean over batches of the groups' difference in accepted shares, its standard error from "
    "the batches. By the model: the difference of mean quality. One look at the end each; the interval "
    "that decides is with the estimates."
)


def notes(estimate: Estimate) -> list[str]:
    """Put an estimate's flags into words, those that are spoken of."""
    return [flag(word) for word in spoken_flags(estimate)]


def spoken_flags(estimate: Estimate) -> list[str]:
    """List an estimate's flags, but for that of raw shares where they mislead nobody."""
    alpha = 1 - estimate.level
    rows: Sequence[Row] = estimate.diagnostics.get("judges") or ()
    is_quiet = not any(_misleads(row, alpha) for row in rows)
    return [word for word in estimate.flags if not (is_quiet and word == "naive_biased")]


def _misleads(row: Row, alpha: float) -> bool:
    """Say whether a judge's raw verdicts tell something else, or much of them is unequal spread."""
    limit = row.get("naive_limit")
    if limit is None or not limit["warns"]:
        return False
    naive, bent = row["naive"], _SEEN_BY * abs(limit["curvature"])
    if _verdict(naive, alpha) != _verdict(row["contrast"], alpha):
        return True
    return naive["se"] is not None and bent > max(naive["se"], abs(limit["exact"]))


_SEEN_BY = 3
"""What spread does to the raw difference matters from a third of its standard error and its limit."""


def why_naive(estimates: Sequence[Estimate]) -> list[str]:
    """Say of each judge why raw verdicts say something else than the model."""
    return [
        line
        for estimate in contrasts(estimates)
        for row in estimate.diagnostics.get("judges") or ()
        if "naive" in row
        for line in _why_naive(estimate.names[0], row, 1 - estimate.level)
    ]


def _why_naive(what: str, row: Row, alpha: float) -> Iterator[str]:
    naive, own, limit = row["naive"], row["contrast"], row["naive_limit"]
    if limit is None:
        return
    raw, ours = _verdict(naive, alpha), _verdict(own, alpha)
    differ = (
        f"by raw verdicts {what} is {_in_words(raw)}, by the model it is {_in_words(ours)}"
        if raw != ours
        else f"by raw verdicts and by the model {what} is {_in_words(ours)}"
    )
    spread = limit["spreads"]
    unequal = (
        ""
        if spread is None
        else f" (the first group's qualities are spread {number(spread, 2)} times as wide)"
    )
    yield (
        f"{row['judge']}: {differ}. With ever more batches the raw difference would tend to "
        f"{_signed(limit['exact'])}: {_signed(limit['slope'])} from the difference in quality, "
        f"{_signed(limit['curvature'])} from unequal spread{unequal}, since shares are a curved function "
        f"of quality{_remainder(limit)}; {number(limit['acceptance'], 2)} of all are accepted."
    )
    if raw != ours and abs(limit["curvature"]) > abs(limit["slope"]):
        yield (
            f"{row['judge']}: the raw difference is more of the groups' spread than of their quality, and "
            "more batches do not change that."
        )


def _remainder(limit: Row) -> str:
    """Name what the two parts leave of the whole, as these are printed."""
    whole, slope, curvature = (round(limit[key], 3) for key in ("exact", "slope", "curvature"))
    rest = round(whole - slope - curvature, 3)
    return f", and {_signed(rest)} from what a second-order split leaves out" if rest else ""


def _verdict(found: Row, alpha: float) -> int | None:
    """Give the sign of what is significant, 0 where nothing is, None where nothing is known."""
    if found["p"] is None or found["est"] is None:
        return None
    return 0 if found["p"] >= alpha else int(math.copysign(1, found["est"]))


def _in_words(verdict: int | None) -> str:
    match verdict:
        case None:
            return "not known"
        case 0:
            return "not told from 0"
        case _:
            return "above 0" if verdict > 0 else "below 0"


def _with_interval(est: float | None, se: float | None) -> str:
    if est is None or se is None:
        return number(est)
    half = 1.96 * se
    d = places(half)
    return f"{number(est, d)} {interval(est - half, est + half, d)}"


def _signed(x: float | None) -> str:
    return number(None) if x is None else f"{'+' if x >= 0 else ''}{number(x)}"


def _p(p: float | None) -> str:
    if p is None:
        return number(None)
    return "below 0.001" if p < 0.001 else f"{p:.3f}"


# --- the stopping rule over time -----------------------------------------------------------------------


def looks(estimates: Sequence[Estimate]) -> list[Grid]:
    """Tabulate the planned looks so far: what was seen, and the bound that it is held against."""
    grids = []
    for estimate in contrasts(estimates):
        rows = [
            (
                f"{look['batches']:,} of {look['of']:,}",
                number(None if look["z"] is None else abs(look["z"]), 2),
                "out of reach" if look["bound"] is None else number(look["bound"], 2),
                "yes" if _crosses(look) else "",
            )
            for look in estimate.diagnostics.get("looks") or ()
        ]
        if rows:
            head = ("batches of each judge", "|z|", "bound", "crossed")
            grids.append(Grid(f"{estimate.name}: {estimate.names[0]}", head, tuple(rows)))
    return grids


def _crosses(look: Row) -> bool:
    return None not in (look["z"], look["bound"]) and abs(look["z"]) > look["bound"]


LOOKS_NOTE = (
    "Looks come after planned numbers of batches, and the last one at the number that the cap paid for "
    "when the run was opened. The bound spends the error little by little, so that all looks together "
    "err as seldom as one; |z| is that of a difference of 0."
)


def after_looks(estimates: Sequence[Estimate]) -> list[str]:
    """Say what came after the last look, and does not change the verdict."""
    lines = []
    for estimate in contrasts(estimates):
        after: Row | None = estimate.diagnostics.get("after_last_look")
        if after is not None:
            found = _with_interval(after["est"], after["se"])
            lines.append(
                f"{estimate.name}: with what came after the last planned look, {_batches(after['n_batches'])} "
                f"in all, it is {found}; the verdict stays that of the look."
            )
    return lines
