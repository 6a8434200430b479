"""What the judges of a run are worth, in words and tables: agreement, repeats, places, outages."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime

from orchestrator.core.estimate import Estimate
from orchestrator.report import board
from orchestrator.report.data import (
    Agreement,
    JudgeTally,
    Outage,
    PlaceEffect,
    Preferences,
    Ranged,
    ReportData,
    Scores,
)
from orchestrator.report.wording import (
    STALE_CACHE,
    Grid,
    because,
    interval,
    label,
    number,
    plural,
    reason_words,
    target,
    unanswered,
    usd,
    with_interval,
)

AT_CHANCE = 0.2
"""An agreement or correlation whose interval holds 0 and ends below this is called chance: less than
a fifth of what perfect agreement would be is ruled in, and 0 is not ruled out."""
CONSTANT = 0.95
"""From this share of equal verdicts on, a judge is called nearly constant."""
_ENOUGH = 20
"""Of fewer verdicts or units nothing is said of what a judge is worth."""


def doubts(data: ReportData) -> list[str]:
    """Name plainly which verdicts can't be relied on, and what shows it."""
    lines = [*_stale_cache(data), *_suspected(data)]
    for c, criterion in enumerate(data.criteria):
        said = [(judge.name, judge.scores[c]) for judge in data.judges]
        on = f" on {criterion}" if len(data.criteria) > 1 else ""
        compared = [
            (judge.name, judge.preferences[c]) for judge in data.judges if judge.preferences
        ]
        lines += _one_sided(compared, on)
        of = next((a for a in data.agreement if a.criterion == criterion), None)
        # Where the panel as a whole is at chance, that comes first, and no judge is singled out.
        together = _together(said, of, on)
        singled = [] if together else _singled(said, on)
        # What a key has left to a judge may well be all alike.
        unkeyed = [(judge.name, judge.scores[c]) for judge in data.judges if not judge.keyed]
        lines += [*together, *_constants(unkeyed, on), *singled, *_wavering(said, on)]
    lines += _label_doubts(data)
    lines += board.turned_judges(data.estimates)
    lines += [_place_doubt(effect) for effect in data.places if effect.is_significant]
    lines += [
        f"{judge.name} was served by {len(judge.served_models)} models during the run: "
        f"{models(judge)}; its answers may not be of one kind."
        for judge in (*data.judges, *data.systems)
        if len(judge.served_models) > 1
    ]
    return lines


def _stale_cache(data: ReportData) -> list[str]:
    if data.limit != STALE_CACHE:
        return []
    n = plural(data.counts.cached, "answer")
    line = f"{n} of the estimates came from the cache, which may be of another model"
    return [because(line, data.limit_why)]


def _suspected(data: ReportData) -> list[str]:
    """Name the items whose texts perhaps speak to the judge; their verdicts may be bought by it."""
    lines = []
    for one in data.suspected:
        left = one.n_items - len(one.items)
        items = f"{', '.join(one.items)}{f' and {left:,} more' if left else ''}"
        lines.append(
            f"{plural(one.n_answers, 'answer')} of {one.judge} may have been swayed by the judged "
            f"text, which seems to speak to the judge: {items}."
        )
    return lines


def models(judge: JudgeTally) -> str:
    """List the models that a provider served, as it named them."""
    return ", ".join(f"{model} ({plural(n, 'answer')})" for model, n in judge.served_models.items())


def _constants(said: Sequence[tuple[str, Scores]], on: str) -> list[str]:
    is_constant = [s.n >= _ENOUGH and s.commonest_share >= CONSTANT for _, s in said]
    return [
        f"{name} gave {s.commonest:g} in {s.commonest_share:.0%} of its {plural(s.n, 'verdict')}"
        f"{on}: nearly a constant, which tells few items apart."
        for (name, s), is_so in zip(said, is_constant, strict=True)
        if is_so
    ]


def _one_sided(said: Sequence[tuple[str, Preferences]], on: str) -> list[str]:
    """Name judges that nearly always give the same verdict on comparisons."""
    words = (
        "that the answer shown first is better",
        "a tie",
        "that the answer shown second is better",
    )
    lines = []
    for name, p in said:
        n, word = max(zip(p[1:], words, strict=True))
        if p.n >= _ENOUGH and n >= CONSTANT * p.n:
            lines.append(
                f"{name} said {word} in {n / p.n:.0%} of its {plural(p.n, 'verdict')}{on}: its "
                "verdicts hang on no answer."
            )
    return lines


def _together(said: Sequence[tuple[str, Scores]], of: Agreement | None, on: str) -> list[str]:
    """Say that the judges together agree no better than chance.

    Of two judges, or where none agrees with the rest, nobody can tell who is at fault. Where two are
    seen to agree with the rest, the others can be told from them, however wide the panel's alpha is.
    """
    held = {name: s.with_others for name, s in said if s.n_shared >= _ENOUGH}
    how = "agree no better"
    what = "at least one of them does not tell the items apart, and these verdicts alone can't say which"
    agreeing = sum(found.lower > 0 for found in held.values())
    if len(held) > 1 and all(map(_is_chance, held.values())):
        if len(held) == 2:
            who, found = " and ".join(held), f"alpha {ranged(next(iter(held.values())))}"
        else:
            each = ", ".join(f"{name} {ranged(found)}" for name, found in held.items())
            who, found = "The judges", f"alpha against the others: {each}"
    elif of and of.n_units >= _ENOUGH and of.alpha.lower <= 0 <= of.alpha.upper and agreeing < 2:
        who, found = "The judges together", f"Krippendorff's alpha {ranged(of.alpha)}"
        if not _is_chance(of.alpha):
            how = "can't be shown to agree better"
            what = "these verdicts alone can't say which of them tells the items apart"
    else:
        return []
    return [f"{who} {how} than chance{on} ({found}): {what}."]


def _singled(said: Sequence[tuple[str, Scores]], on: str) -> list[str]:
    """Say whose agreement with the others is no better than chance."""
    held = {name: s.with_others for name, s in said if s.n_shared >= _ENOUGH}
    at_chance = [name for name, found in held.items() if _is_chance(found)]
    chances = [
        f"{name} tells the items apart no better than chance{on}, held against the other judges "
        f"(alpha {ranged(held[name])}): its verdicts are noise, or speak of something else."
        for name in at_chance
    ]
    turned = [
        f"{name} rates against the other judges{on} (alpha {ranged(found)}): its scale may be turned "
        "round."
        for name, found in held.items()
        if found.upper < 0
    ]
    return chances + turned


def _wavering(said: Sequence[tuple[str, Scores]], on: str) -> list[str]:
    return [
        f"{name} differs as much between repeats of one question as between items{on}: "
        f"{ranged(s.signal)} of its variance comes from the items."
        for name, s in said
        if s.n >= _ENOUGH and not _is_unknown(s.signal) and _is_chance(s.signal)
    ]


def _label_doubts(data: ReportData) -> list[str]:
    lines: dict[str, None] = {}
    for estimate in data.estimates:
        for of in estimate.diagnostics.get("labels") or ():
            found = Ranged(*(math.nan if of[k] is None else of[k] for k in _CORRELATION))
            if of["n_units"] >= _ENOUGH and not _is_unknown(found) and _is_chance(found):
                lines[
                    f"{of['judge']} follows the human labels no better than chance (correlation "
                    f"{ranged(found)})."
                ] = None
    return list(lines)


_CORRELATION = ("correlation", "lower", "upper")


def _is_unknown(x: Ranged) -> bool:
    return math.isnan(x.lower) or math.isnan(x.upper)


def _is_chance(x: Ranged) -> bool:
    return x.lower <= 0 <= x.upper < AT_CHANCE


def _place_doubt(effect: PlaceEffect) -> str:
    scale = "of the scale" if effect.is_share else f"on a scale {effect.span:g} wide"
    return (
        f"{effect.judge}'s verdicts depend on the place in which the {effect.things} are listed: "
        f"{_by_place(effect)} by place, {number(effect.spread, 2)} apart {scale} "
        f"(p {_p(effect.p)})."
    )


def _by_place(effect: PlaceEffect) -> str:
    return ", ".join(number(mean, 2) for mean in effect.means)


def _p(p: float) -> str:
    return "below 0.001" if p < 0.001 else f"{p:.3f}"


def ranged(x: Ranged) -> str:
    """Write a number of at most 1 with its interval."""
    if math.isnan(x.value):
        return number(math.nan)
    if _is_unknown(x):
        return number(x.value, 2)
    return f"{number(x.value, 2)} {interval(x.lower, x.upper, 2)}"


def judges(data: ReportData) -> Grid:
    """Tabulate what became of each judge's questions, and what it cost; columns as they are needed."""
    return _asked("judge", data.judges)


def systems(data: ReportData) -> Grid:
    """Tabulate the same of each system under test."""
    return _asked("system", data.systems, with_reasons=True)


SYSTEMS_NOTE = (
    "Questions to systems are generations; each answer is then judged, or compared with a key. An item to "
    "which a system gave no answer has no verdict, and that is no fault of a judge."
)


def _asked(what: str, tallies: Sequence[JudgeTally], *, with_reasons: bool = False) -> Grid:
    columns = {
        what: [one.name for one in tallies],
        "by": [one.route for one in tallies],
        "asked": [f"{one.asked:,}" for one in tallies],
        "answered": [f"{one.answered:,}" for one in tallies],
        "from the cache": [f"{one.cached:,}" if one.cached else "" for one in tallies],
        "by the key": _needed(one.keyed for one in tallies),
        "missing": [f"{one.n_missing - one.n_idle:,}" for one in tallies],
        "nothing to judge": _needed(one.n_idle for one in tallies),
        "given back": _needed(one.parked for one in tallies),
        "cut off by the stop": _needed(one.cut_off for one in tallies),
        "billed without an answer": [_in_vain(one) for one in tallies],
        "settled": [usd(one.charge.settled) for one in tallies],
        "uncertain": [
            usd(one.charge.uncertain) if with_reasons and one.charge.uncertain else ""
            for one in tallies
        ],
        "per answer": ["" if one.per_answer is None else usd(one.per_answer) for one in tallies],
        "mean time": [
            "" if math.isnan(one.latency_s) else f"{one.latency_s:.2f} s" for one in tallies
        ],
        "why missing": [_why(one) if with_reasons else "" for one in tallies],
    }
    kept = {head: column for head, column in columns.items() if any(column)}
    return Grid("", tuple(kept), tuple(zip(*kept.values(), strict=True)))


def _why(one: JudgeTally) -> str:
    return ", ".join(f"{reason_words(reason)} {n:,}" for reason, n in one.missing.items())


def _needed(counts: Iterable[int]) -> list[str]:
    return [f"{n:,}" if n else "" for n in counts]


def _in_vain(judge: JudgeTally) -> str:
    if not judge.billed_in_vain:
        return ""
    amount = judge.in_vain.settled + judge.in_vain.uncertain
    return f"{plural(judge.billed_in_vain, 'attempt')}, {usd(amount)}"


def said(data: ReportData) -> Grid:
    """Tabulate what each judge said on each criterion."""
    if any(judge.preferences for judge in data.judges):
        return _preferred(data)
    # Who left all to the key has said nothing.
    heard = [one for one in data.judges if not one.keyed or one.answered > one.keyed]
    every = [s for judge in heard for s in judge.scores]
    has_repeats = any(not math.isnan(s.repeat_variance) for s in every)
    has_others = any(s.n_shared for s in every)
    head = ["judge", "criterion", "verdicts", "mean", "sd", "commonest"]
    head += ["sd of repeats", "share of variance from items"] if has_repeats else []
    head += ["agreement with the others"] if has_others else []
    rows = []
    for judge in heard:
        for s in judge.scores:
            row = [judge.name, s.criterion, f"{s.n:,}", number(s.mean), number(s.sd)]
            row.append(f"{s.commonest:g} in {s.commonest_share:.0%}" if s.n else number(math.nan))
            if has_repeats:
                row += [number(_root(s.repeat_variance)), ranged(s.signal)]
            if has_others:
                row.append(ranged(s.with_others))
            rows.append(tuple(row))
    return Grid("", tuple(head), tuple(rows))


def _root(variance: float) -> float:
    return variance if math.isnan(variance) else math.sqrt(variance)


def _preferred(data: ReportData) -> Grid:
    head = ("judge", "criterion", "verdicts", "first", "tie", "second")
    rows = (
        (judge.name, p.criterion, f"{p.n:,}", *(_share(n, p.n) for n in p[1:]))
        for judge in data.judges
        for p in judge.preferences
    )
    return Grid("", head, tuple(rows))


def _share(n: int, of: int) -> str:
    return f"{n / of:.1%}" if of else number(math.nan)


def said_note(data: ReportData) -> str:
    """Say what the table of what judges said counts."""
    if any(judge.preferences for judge in data.judges):
        return PREFERENCES_NOTE
    return f"{SAID_NOTE} {KEYED_NOTE}" if any(judge.keyed for judge in data.judges) else SAID_NOTE


PREFERENCES_NOTE = (
    "Raw verdicts, every answer once: how often the answer shown first was better, neither, or the "
    "one shown second. A judge that keeps to the answers has nearly equal shares of first and second "
    "where each pair is asked in both orders, or by a coin."
)

SAID_NOTE = (
    "Raw verdicts, every answer once. Judges that saw different items can differ for that reason "
    "alone. Agreement with the others is alpha of first verdicts against the mean of the other "
    "judges', each judge's own level taken out: 1 is perfect, 0 is chance."
)


KEYED_NOTE = "What the key decided is no judge's own, and is left out of this and of all agreement."


def agreement(data: ReportData) -> list[str]:
    """Say how far the judges agree, by criterion."""
    return [
        f"Agreement on {a.criterion}: Krippendorff's alpha ({a.metric}) {ranged(a.alpha)}, "
        f"of {plural(a.n_judges, 'judge')} over {plural(a.n_units, 'unit')}."
        for a in data.agreement
    ]


def by_place(data: ReportData) -> Grid | None:
    """Tabulate mean verdicts by place; None where nothing changed its place."""
    if not data.places:
        return None
    n = max(len(effect.means) for effect in data.places)
    head = ("judge", "answers", *(f"place {i + 1}" for i in range(n)), "spread", "p")
    rows = [
        (
            effect.judge,
            f"{effect.n_answers:,}",
            *(number(mean, 2) for mean in effect.means),
            number(effect.spread, 2),
            _p(effect.p),
        )
        for effect in data.places
    ]
    return Grid("", head, tuple(rows))


PLACES_NOTE = (
    "Mean verdict by the place in which a criterion was listed, differences between criteria taken "
    "out; p of no effect at all, by permutation within answers, adjusted over the judges (Holm)."
)


def without_judge(data: ReportData) -> list[Grid]:
    """Tabulate each estimate of few names with all judges, and with each of them left out."""
    grids = []
    for i, whole in enumerate(data.estimates):
        of = (whole.name, whole.target, whole.names)
        nth = sum((e.name, e.target, e.names) == of for e in data.estimates[:i])
        rows = [("all judges", "", *_values(whole))]
        for left in data.without_judge:
            same = [e for e in left.estimates if (e.name, e.target, e.names) == of]
            if same[nth:]:
                who = f"without {left.judge}"
                rows.append((who, f"{left.n_answers:,}", *_values(same[nth])))
        if len(rows) > 1:
            head = ("", "answers left out", *map(label, whole.names))
            grids.append(Grid(f"{whole.name}: {target(whole)}", head, tuple(rows)))
    return grids


WITHOUT_NOTE = (
    "The same estimators on the answers of the other judges. Where a judge went down, its row says "
    "what its answers did to the result. A panel's mean moves with the level of the judge left out, "
    "also where that judge is right."
)


def _values(estimate: Estimate) -> list[str]:
    return [with_interval(estimate, i) for i in range(len(estimate.names))]


def outages(data: ReportData) -> list[str]:
    """Say of each judge when it took no questions, and why, in the provider's own words."""
    lines = []
    for judge in (*data.judges, *data.systems):
        said = [f"{judge.name} {_outage(outage)}" for outage in judge.outages]
        left_open = unanswered(judge) if judge.down and said else ""
        lines += [*said[:-1], because(said[-1], "") + f" {left_open}."] if left_open else said
        left = judge.n_outages - len(judge.outages)
        if left:
            lines.append(f"{judge.name} went down another {plural(left, 'time')}.")
    return lines


def _outage(outage: Outage) -> str:
    began = f"{_clock(outage.at)} (after {plural(outage.after, 'answer')})"
    if outage.ended_at is not None:
        when = f"took no questions from {began} to {_clock(outage.ended_at)}"
    elif outage.until is not None:
        when = (
            f"took no questions from {began}, and was to be asked again at {_clock(outage.until)}"
        )
    else:
        when = f"took no more questions from {began}"
    return f"{when}: {outage.why}"


def _clock(at: float) -> str:
    return f"{datetime.fromtimestamp(at, UTC):%H:%M:%S} UTC"
