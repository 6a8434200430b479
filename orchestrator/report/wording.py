"""The sentences that page, Markdown and screen share."""

from __future__ import annotations

import math
import re
import shlex
import unicodedata
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from itertools import takewhile
from typing import NamedTuple

from orchestrator.core.estimate import Estimate, Status
from orchestrator.core.gate import GateOutcome, Rule, Verdict, overall
from orchestrator.core.money import PriceCard, format_usd
from orchestrator.core.query import MissingReason, Role
from orchestrator.core.stopping import OF_ARMS, StopReason
from orchestrator.core.wire import Json
from orchestrator.report.data import JudgeTally, Refusal, ReportData, Times

# --- text, money, numbers ----------------------------------------------------------------------

_UNPRINTABLE = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069\ud800-\udfff]"
)


def printable(text: str) -> str:
    """Replace what a terminal or a browser would obey or choke on.

    Control characters (escape sequences begin with one), line separators, direction overrides and
    lone surrogates become U+FFFD; tabs and line feeds become spaces.
    """
    return _UNPRINTABLE.sub("\N{REPLACEMENT CHARACTER}", text).translate({9: " ", 10: " "})


def columns(text: str) -> int:
    """Count the columns that a text takes on a terminal."""
    wide = sum(unicodedata.east_asian_width(c) in "WF" for c in text)
    return len(text) + wide - sum(unicodedata.combining(c) > 0 for c in text)


def fit(text: str, width: int) -> str:
    """Cut a text to a number of columns."""
    if columns(text) <= width:
        return text
    while columns(text) > width - 3:
        text = text[:-1]
    return text + "..."


def usd(amount: int, decimals: int = 3) -> str:
    """Write an amount rounded to `decimals`, or to two digits where those would show less."""
    kept = min(9, max(decimals, 11 - len(str(abs(amount)))))
    quantum = 10 ** (9 - kept)
    rounded = (abs(amount) + quantum // 2) // quantum * quantum
    return format_usd(rounded if amount > 0 else -rounded, decimals=decimals)


def places(half_width: float) -> int:
    """Say how many decimals show two digits of a half-width."""
    if not math.isfinite(half_width) or half_width <= 0:
        return 3
    return min(6, max(0, 1 - math.floor(math.log10(half_width))))


def number(x: float | None, decimals: int = 3) -> str:
    """Write a number; what is not known is a dash."""
    if x is None or math.isnan(x):
        return "\N{EN DASH}"
    if math.isinf(x):
        return f"{'-' if x < 0 else ''}\N{INFINITY}"
    # Adding 0.0 turns a negative zero into zero.
    return f"{round(x, decimals) + 0.0:,.{decimals}f}"


def duration(seconds: float) -> str:
    """Write a time as hours, minutes and seconds."""
    minutes, s = divmod(round(seconds), 60)
    h, m = divmod(minutes, 60)
    return f"{h:02d}:{m:02d}:{s:02d}"


def plural(n: int, noun: str) -> str:
    """Write a count with its noun."""
    return f"{n:,} {noun}{'' if n == 1 else 's'}"


def spread_of(counts: Sequence[int]) -> str:
    """Write the one number that all counts are, or the least and the most."""
    least, most = min(counts), max(counts)
    return f"{most:,}" if least == most else f"{least:,} to {most:,}"


def label(name: str) -> str:
    """Name an arm; the one arm of a campaign without arms has no name."""
    return name or "all items"


_LISTED = 8
"""So many names are told in a sentence."""


def listed(names: Sequence[str]) -> str:
    """Name arms in a sentence, the first ones of many."""
    *some, last = map(label, names)
    if len(names) > _LISTED:
        return f"{', '.join(some[:_LISTED])} and {len(names) - _LISTED:,} more"
    return f"{', '.join(some)} and {last}" if some else last


# --- what came out -----------------------------------------------------------------------------


def with_interval(estimate: Estimate, i: int) -> str:
    """Write the value of one name with its interval, to two digits of the half-width."""
    lower, upper = estimate.lower[i], estimate.upper[i]
    return _with_ends(estimate.value[i], lower, upper, places((upper - lower) / 2))


def _with_ends(value: float, lower: float, upper: float, decimals: int) -> str:
    if math.isnan(value):
        return "not known"
    if math.isnan(lower) or math.isnan(upper):
        return f"{number(value, decimals)} (uncertainty unknown)"
    return f"{number(value, decimals)} [{number(lower, decimals)}, {number(upper, decimals)}]"


_NO_ANSWER = {
    Status.EMPTY: "There is no answer yet: no verdict has come.",
    Status.NOT_IDENTIFIED: "There is no answer: these data do not determine it.",
    Status.FAILED: "There is no answer: the computation failed.",
}


def answer(data: ReportData) -> str:
    """Say in one sentence what came out, with its interval, and what the gate says of it."""
    sentence = _answer(data)
    if not data.gates or not data.are_final:
        return sentence
    return f"{sentence.removesuffix('.')}; {_gate_verdict(data.gates)}."


def _gate_verdict(verdicts: Sequence[Verdict]) -> str:
    outcome = overall(verdict.outcome for verdict in verdicts)
    counted = overall(verdict.counts_as for verdict in verdicts)
    n, of = sum(verdict.outcome is outcome for verdict in verdicts), len(verdicts)
    noun = "the gate" if of == 1 else f"{n} of {of} gates"
    be = "is " if n == 1 else "are "
    what = f"{be if outcome is GateOutcome.UNDECIDED else ''}{outcome}"
    return f"{noun} {what}{'' if counted is outcome else f', which counts as {counted}'}"


def gates(data: ReportData) -> list[str]:
    """Say of each gate what it asks for, what it came to, and why."""
    return [f"Gate {v.outcome}: {_gate_line(v)}." for v in data.gates]


_RULES = {
    Rule.SUPERIOR: "superior by more than",
    Rule.NON_INFERIOR: "non-inferior within",
    Rule.AT_LEAST: "at least",
    Rule.RANK_AT_MOST: "rank at most",
}


def _gate_line(verdict: Verdict) -> str:
    gate = verdict.gate
    what = ", ".join(filter(None, (gate.estimate, gate.criterion, gate.arm)))
    is_rank = gate.rule is Rule.RANK_AT_MOST
    decimals = 0 if is_rank else places((verdict.upper - verdict.lower) / 2)
    found = _with_ends(verdict.value, verdict.lower, verdict.upper, decimals)
    return f"{what} {_RULES[gate.rule]} {gate.bar:g}; it is {found}: {verdict.why}"


def _answer(data: ReportData) -> str:
    estimate = data.answer
    if estimate is None:
        if not data.counts.verdicts:
            return _nothing(data)
        return "There is no answer yet: the first look at the estimates is still to come."
    if estimate.status is Status.EMPTY:
        return _nothing(data)
    # A ranking without finite strengths still says who won, and what hangs together.
    if estimate.status in _NO_ANSWER and not _ranks_pairs(estimate):
        return _NO_ANSWER[estimate.status]
    sentence = _compared(estimate, data) or f"{headline(estimate)}."
    if BEFORE_PLAN in estimate.flags:
        sentence = f"{sentence.removesuffix('.')}; {_FLAGS[BEFORE_PLAN]}."
    return sentence if data.are_final else f"So far: {sentence}"


BEFORE_PLAN = "before_planned_number"
"""The flag of an interval that is watched from a number of items on, and is not there yet."""


def beside(data: ReportData) -> str | None:
    """Say what is known of the arms where the target is theirs, and the answer is another estimate."""
    aim = data.aim
    if aim is None or aim is data.answer or aim.status in _NO_ANSWER:
        return None
    return f"{headline(aim)}."


def _nothing(data: ReportData) -> str:
    """Say why there is no answer where no verdict enters the estimate."""
    counts, n_told = data.counts, data.counts.answered + data.counts.n_missing
    if data.systems and not data.judges:
        of = "the system" if len(data.systems) == 1 else f"{len(data.systems)} systems"
        return f"{plural(counts.answered, 'answer')} of {of}; none was judged."
    if counts.verdicts:
        return (
            f"There is no answer yet: of {plural(counts.verdicts, 'verdict')} none enters the "
            "estimate, since they belong to a pilot."
        )
    if data.are_final and n_told:
        return f"There is no answer: none of {plural(n_told, 'question')} got a verdict."
    return _NO_ANSWER[Status.EMPTY]


def _compared(estimate: Estimate, data: ReportData) -> str | None:
    """Put a single difference of two arms, or of two groups of items, into words."""
    if len(estimate.names) != 1:
        return None
    match estimate.target:
        case "difference":
            pair = _pair(estimate.names[0], [arm.name for arm in data.arms])
        case "groups":
            pair = _groups(estimate, data)
        case _:
            pair = None
    if pair is None:
        return None
    unit = _unit(estimate)
    new, old = pair
    value, lower, upper = estimate.value[0], estimate.lower[0], estimate.upper[0]
    d = places((upper - lower) / 2)
    if math.isnan(lower) or math.isnan(upper):
        return (
            f"{new} differs from {old} by {number(value, d)}{unit}; how uncertain that is can't be "
            "known from these data."
        )
    if lower <= 0 <= upper:
        return (
            f"{new} and {old} cannot be told apart: the difference is "
            f"{with_interval(estimate, 0)}{unit}."
        )
    low, high = sorted((abs(lower), abs(upper)))
    word = "better" if value > 0 else "worse"
    if math.isinf(upper - lower):
        least = min(abs(lower), abs(upper))
        return (
            f"{new} is {word} than {old} by {number(least, 2)} or more{unit}; no "
            "comparison bounds it on the other side."
        )
    size = f"{number(abs(value), d)} [{number(low, d)}, {number(high, d)}]"
    return f"{new} is {word} than {old} by {size}{unit}."


def _unit(estimate: Estimate) -> str:
    if estimate.kind == "exchangeable":
        return " on this benchmark"
    if estimate.kind in {"bradley_terry", "bt_tensor"}:
        return " in log-odds"
    return " logits" if estimate.diagnostics.get("scale") == "logit" else ""


def _pair(name: str, arms: Sequence[str]) -> tuple[str, str] | None:
    """Find the two arms that a difference names."""
    pairs = ((new, old) for new in arms for old in arms if new != old)
    return next((pair for pair in pairs if name == " - ".join(pair)), None)


def _groups(estimate: Estimate, data: ReportData) -> tuple[str, str] | None:
    """Find the two sides of a comparison in the campaign's entry of its name."""
    entries: list[Mapping[str, Json]] = data.identity.get("estimate") or []
    for entry in entries:
        contrast = entry.get("contrast")
        if entry.get("name") == estimate.name and contrast:
            return str(contrast.get("group") or contrast.get("arm")), str(contrast["baseline"])
    return None


_TARGETS = {
    "arms": "mean",
    "units": "score",
    "difference": "difference",
    "groups": "difference",
    "judges": "mean by judge",
}


_OF_BENCHMARK = {
    "arms": "mean over this benchmark",
    "macro": "mean of the strata's means",
    "strata": "mean by stratum",
    "ability": "ability on subjects like these",
    "human": "what people would say",
    "difference": "difference on this benchmark",
    "differences": "differences on this benchmark",
}
"""What a random part of a benchmark is taken to speak of."""


def target(estimate: Estimate) -> str:
    """Say in a word or two what is estimated."""
    if estimate.kind == "exchangeable":
        return _OF_BENCHMARK[estimate.target]
    return _TARGETS.get(estimate.target, _spaced(estimate.target))


def headline(estimate: Estimate) -> str:
    """Write an estimate on one line: who leads, or all names if they are few, else the ends."""
    if _ranks_pairs(estimate):
        return _leads(estimate)
    if estimate.kind == "bt_tensor" and estimate.target == "strengths" and by_value(estimate):
        return _over_categories(estimate)
    if estimate.kind == "exchangeable" and estimate.target in {"arms", "macro"}:
        return _over_benchmark(estimate)
    what, n = target(estimate).capitalize(), len(estimate.names)
    if n <= 4:
        values = (
            f"{label(name)} {with_interval(estimate, i)}" for i, name in enumerate(estimate.names)
        )
        return f"{what}: {', '.join(values)}"
    if not by_value(estimate):
        return f"{what}: none of {n:,} is known yet"
    return f"Of {n:,} {estimate.target}, {_ends(estimate)}"


def _ends(estimate: Estimate) -> str:
    """Say who is highest and who is lowest."""
    order = by_value(estimate)
    low, high = order[0], order[-1]
    overlaps = not estimate.upper[low] < estimate.lower[high]  # also where an end is not known
    return (
        f"{label(estimate.names[high])} is highest, "
        f"{with_interval(estimate, high)}, and {label(estimate.names[low])} lowest, "
        f"{with_interval(estimate, low)}"
        f"{'; their intervals overlap' if overlaps else ''}"
    )


def _over_benchmark(estimate: Estimate) -> str:
    """Write means over a benchmark, the numbers first, and by how many of its items."""
    found: Mapping[str, Sequence[int]] = estimate.diagnostics["by_name"]
    n, names = spread_of(found["n_drawn"]), estimate.names
    by = f"{n} items each" if len(names) > 1 else f"{n} of them"
    over = f"over the {found['population'][0]:,} items of this benchmark"
    if estimate.target == "macro":
        strata = estimate.diagnostics["strata"]
        over = f"in the mean of {strata:,} strata of the {found['population'][0]:,} items"
    if len(names) > 4 and by_value(estimate):
        said = f"Of {len(names):,} arms, {_ends(estimate)}; "
    elif names == ("",):
        said = f"The score is {with_interval(estimate, 0)} "
    else:
        values = (f"{name} {with_interval(estimate, i)}" for i, name in enumerate(names))
        said = f"Scores: {', '.join(values)}; "
    return f"{said}{over}, by {by}"


def _ranks_pairs(estimate: Estimate) -> bool:
    return estimate.kind == "bradley_terry" and "leader" in estimate.diagnostics


def _leads(estimate: Estimate) -> str:
    """Say who leads a ranking by comparisons, and above whom that is proved."""
    about = estimate.diagnostics
    parts: Sequence[Sequence[str]] = about["components"]
    if len(parts) > 1:
        return f"No arm leads: no chain of comparisons connects {', '.join(map(_group, parts))}"
    first = estimate.names.index(about["leader"])
    who, rivals = label(about["leader"]), about["rivals"]
    others = [name for name in estimate.names if name != about["leader"]]
    above = label(others[0]) if len(others) == 1 else "all others"
    proof = (
        f"but is not proved above {listed(rivals)}" if rivals else f"and is proved above {above}"
    )
    lead = f"{who} {'is ahead' if rivals else 'leads'}"
    if math.isnan(estimate.se[first]):
        return f"{lead}, {proof}; its strength has no finite estimate"
    return (
        f"{lead}, {with_interval(estimate, first)} in log-odds above the mean of the arms, {proof}"
    )


def _group(names: Sequence[str]) -> str:
    return listed(names) if len(names) == 1 else f"({listed(names)})"


def _over_categories(estimate: Estimate) -> str:
    """Say which arms are highest over all categories."""
    order = by_value(estimate)[::-1][:2]
    high, *runner_up = (f"{label(estimate.names[i])} {with_interval(estimate, i)}" for i in order)
    overlaps = len(order) > 1 and estimate.lower[order[0]] <= estimate.upper[order[1]]
    then = "".join(f", then {name}" for name in runner_up)
    few = "; too few votes for strengths by category" if "pooled" in estimate.flags else ""
    return (
        f"Over all categories the highest strength in log-odds has {high}{then}"
        f"{'; their intervals overlap' if overlaps else ''}{few}"
    )


def twin(estimate: Estimate, data: ReportData) -> Estimate | None:
    """Find an earlier entry's estimate by a part of a benchmark that says the same; None without one."""
    if estimate.kind != "exchangeable":
        return None
    earlier = takewhile(lambda e: e is not estimate, data.estimates)
    said = _said(estimate)
    return next((e for e in earlier if e.kind == estimate.kind and _said(e) == said), None)


def _said(e: Estimate) -> str:
    """Write what is said of whom by what; unlike nan, its text is equal to itself."""
    return repr((e.target, e.estimand, e.interval, e.names, e.value, e.lower, e.upper))


# --- the table of an estimate ------------------------------------------------------------------

EDGE = 20
"""Of more than twice as many names, so many of the lowest and of the highest are listed."""


def by_value(estimate: Estimate) -> list[int]:
    """List the names that have a value, lowest first, ties by their order."""
    known = (i for i, value in enumerate(estimate.value) if not math.isnan(value))
    return sorted(known, key=estimate.value.__getitem__)


def shown(estimate: Estimate) -> list[int]:
    """Choose the names that are listed: all, or the lowest and the highest."""
    n = len(estimate.names)
    if n <= 2 * EDGE:
        return list(range(n))
    order = by_value(estimate)
    return order if len(order) <= 2 * EDGE else order[:EDGE] + order[-EDGE:]


def columns_of(estimate: Estimate, rows: Sequence[int]) -> dict[str, list[str]]:
    """Write an estimate's columns for some names; worst cases only where something is missing."""
    n = len(estimate.names)
    found: Mapping[str, Sequence[Json]] = estimate.diagnostics.get("by_name") or {}
    by_name = {key: column for key, column in found.items() if len(column) == n}
    ends = [(estimate.lower[i], estimate.upper[i]) for i in rows]
    digits = [places((upper - lower) / 2) for lower, upper in ends]
    at = list(zip(rows, digits, strict=True))
    columns = {
        "value": [number(estimate.value[i], d) for i, d in at],
        "interval": [interval(*end, d) for end, d in zip(ends, digits, strict=True)],
        "standard error": [number(estimate.se[i], d + 1) for i, d in at],
    }
    for key, head in _COUNTS.items():
        is_twice = key == "n_items" and "n_labels" in by_name
        if any(by_name.get(key, ())) and not is_twice:
            columns[head] = [f"{by_name[key][i]:,}" for i in rows]
    if "missing" in columns and {"worst_lower", "worst_upper"} <= by_name.keys():
        low, high = by_name["worst_lower"], by_name["worst_upper"]
        columns["worst case"] = [interval(low[i], high[i], d) for i, d in at]
    return columns


_COUNTS = {
    "n_labels": "labels",
    "n_items": "items",
    "n_clusters": "clusters",
    "n_answers": "answers",
    "n_drawn": "drawn",
    "population": "of",
    "missing": "missing",
    "in_flight": "in flight",
}


def interval(low: float | None, high: float | None, decimals: int) -> str:
    """Write the two ends of an interval."""
    if low is None or high is None or math.isnan(low) or math.isnan(high):
        return "not known"
    return f"[{number(low, decimals)}, {number(high, decimals)}]"


# --- why it ended, and what holds ----------------------------------------------------------------

_STOPS = {
    StopReason.FINISHED: "The design is complete: all that it asks for was asked.",
    StopReason.PRECISION: "The precision target is reached.",
    StopReason.SEPARATED: "The ranking is separated.",
    StopReason.GATE_DECIDED: "The gate is decided.",
    StopReason.BUDGET: "The budget is used up",
    StopReason.LIMIT: "A limit is reached",
    StopReason.DEADLINE: "The time is used up.",
    StopReason.JUDGES_DOWN: "No judge is left that takes questions.",
    StopReason.OVERRUN: "A provider billed more than its own limit allows, past the cap.",
    StopReason.USER: "The user stopped the run.",
    StopReason.INTERRUPTED: "The run was interrupted and can be resumed.",
    StopReason.STORAGE: "The disk refused a write; the run can be resumed once there is room.",
}


def next_call(refusal: Refusal) -> str:
    """Say what the next call needs and what is left; both exact."""
    needs = format_usd(refusal.hold, decimals=3)
    left = format_usd(refusal.free, decimals=3)
    where = "" if refusal.account == "campaign" else f" in {refusal.account}"
    return f"next call needs {needs}, {left} left{where}"


def ending(data: ReportData) -> str:
    """Say why the run ended, and which judges it lost."""
    if data.stop_reason is None:
        return "The run is under way; these numbers are not final."
    lost = [one for one in (*data.judges, *data.systems) if one.down]
    sentence, failures = _STOPS[data.stop_reason], _failures(data)
    match data.stop_reason:
        case StopReason.BUDGET:
            sentence = f"{sentence}: {next_call(data.refusal)}." if data.refusal else f"{sentence}."
        case StopReason.LIMIT if data.limit == STALE_CACHE:
            sentence = because("The cache no longer holds what the judges say", data.limit_why)
        case StopReason.LIMIT:
            sentence = because(sentence, data.limit_why or data.limit)
        case StopReason.USER | StopReason.JUDGES_DOWN:
            sentence = because(sentence, data.limit_why)
        case StopReason.FINISHED if failures:
            sentence = "All that could be asked was asked."
        case StopReason.FINISHED if lost:
            sentence = "All that could be asked was asked; the design is not complete."
        case _:
            pass
    return " ".join((sentence, *failures, *(f"{_loss(judge)}." for judge in lost)))


STALE_CACHE = "stale_cache"
"""The limit that the cache watch sets."""


def because(sentence: str, why: str) -> str:
    """Put a reason behind a sentence, where there is one."""
    return f"{sentence.removesuffix('.')}{f': {why}' if why else ''}".removesuffix(".") + "."


def _failures(data: ReportData) -> list[str]:
    """Say why nothing was answered, in the words of whoever refused; empty where something was."""
    counts = data.counts
    if counts.verdicts or not counts.missing or not data.judges:
        return []
    reasons = []
    for reason, n in counts.missing.items():
        word = data.examples.get(reason, "").removesuffix(".")
        reasons.append(f"{n:,} x {reason_words(reason)}{f', e.g. {word}' if word else ''}")
    return [f"No question was answered: {'; '.join(reasons)}."]


def _loss(judge: JudgeTally) -> str:
    after = judge.outages[-1].after if judge.outages else judge.answered
    lost = unanswered(judge)
    return (
        f"{judge.name} went down after {plural(after, 'answer')} ({judge.down})"
        f"{f'; {lost}' if lost else ''}"
    )


def unanswered(judge: JudgeTally) -> str:
    """Say what became of the questions that a judge which is down left open; empty without any."""
    refused = judge.missing.get(MissingReason.JUDGE_DOWN, 0)
    parts = [
        f"{refused:,} refused when it went down" if refused else "",
        f"{judge.unasked:,} came back unasked" if judge.unasked else "",
    ]
    total = refused + judge.unasked
    if not total:
        return ""
    return (
        f"{total:,} of its questions {'was' if total == 1 else 'were'} not answered: "
        f"{', '.join(filter(None, parts))}"
    )


def precision(data: ReportData) -> str | None:
    """Say whether the precision target is met; None without a target."""
    if data.target_half_width is None:
        return None
    width = data.aim.half_width if data.aim else math.nan
    now = f"±{number(width, places(width))}" if math.isfinite(width) else "unknown"
    verdict = "met" if data.target_met else "not met"
    is_of_arms = data.is_of_every_arm and data.aim is not None and data.aim.target in OF_ARMS
    wanted = f"±{data.target_half_width:g}{' of every arm' if is_of_arms else ''}"
    decides = "; the gate decides all the same" if data.gates and not data.target_met else ""
    which = "the widest half-width" if is_of_arms and len(data.arms) > 1 else "the half-width"
    return f"Precision target {wanted}: {verdict}, {which} is {now}{decides}."


def mock_notice(data: ReportData) -> str | None:
    """Say that no judge was real; None where some were."""
    if data.mock:
        return "mock: every verdict was made up by mock judges, and no money was spent."
    return None


def money_kind(data: ReportData) -> str:
    """Say whether the dollars are real."""
    if data.money == "real":
        return "real dollars, at the price sheet in force"
    return "simulated dollars: nothing was billed"


_FLAGS = {
    "missing_differs_by_arm": "missing differs by arm: read the worst-case bounds",
    "missing_test_rough": "few are missing, so the test of whether they differ by arm is approximate",
    "identical_repeats": "a judge's repeats are nearly all identical: copies, not new evidence",
    "panel_incomplete": "some units lack the answer of a judge: means shift towards the judges that "
    "answered",
    "judge_without_answers": "a judge has given no verdict at all: the panel is not the one that was "
    "asked for",
    "few_clusters": "few items or clusters, or few that carry the weight",
    "no_answers": "no verdict has come",
    "usage_missing": "the provider did not say what it counted, so the hold was charged",
    "usage_inconsistent": "the provider's counts contradict each other, so the hold was charged",
    "missing_imputed": "items lack a verdict: the lowest score counts for the lower end of an interval, and "
    "the highest for the upper",
    "missing_count_as_lowest": "items lack a verdict, and count as the lowest score",
    "before_planned_number": "the planned number of items is not reached, so this interval is no more than "
    "what is sure whatever the other items score",
    "in_flight": "items before the last one that is back have no verdict yet, so what came behind the "
    "first of them does not count yet",
    "target_out_of_reach": "what missing verdicts leave open is wider than the target, and no further "
    "items narrow it",
    "target_below_noise": "the judge's noise alone is wider than the target: no further items reach it, "
    "more repeats may",
    "labels_not_drawn": "people have labelled items that are not among those drawn so far: these labels "
    "don't count",
    "few_labels": "fewer than 20 labels among the items so far, so they stand alone",
    "labels_stand_alone": "what the judge leaves open of the labels hangs on none or few of them, so they stand alone",
    "few_subjects": "so few subjects say little of how subjects like these differ: no ground for a "
    "guarantee",
    "degenerate_all_equal": "all answers are alike, which says nothing of how subjects differ",
    "not_identified": "one subject, or one answer from each: how subjects differ can't be known",
    "at_phi_max": "each subject is all right or all wrong: how much subjects differ can't be known",
    "coerced": "a number stood in quotes or a side in capitals, and was read as meant",
    "spoken": "the verdict stood alone or in words, without its form",
    "dropped": "the model does not take a parameter, so it was left out",
    "suspected_injection": "the judged text seems to speak to the judge",
    "skewed": "the values are so lopsided for their number that these intervals cover less than they "
    "say",
    "exploration_reused": "the answers that the plan was made from count too: more precise, and not "
    "quite unbiased",
    "judges_disagree": "judges differ by more than chance and 2% of the scale: they don't share one "
    "mean, which the target common takes for granted",
    "offset_depends_on_arm": "a judge is more lenient with one arm than with another, so under the "
    "target common the arms can't be compared; take the target panel",
    "judge_without_offset": "a judge's offset can't be told, so its answers stand uncorrected",
    "judge_without_labels": "a judge has answered too few labelled items to be corrected, so its answers "
    "stand uncorrected",
    "slope_attenuated": "a judge was asked too seldom about the same unit for its noise to be known, so "
    "the line that corrects it is too flat and pulls scores to the middle",
    "bias_depends_on_arm": "held against the human labels, a judge is more lenient with one arm than with "
    "another: no correction that is the same in all arms takes that out of their difference",
    "interaction_exceeds_noise": "judges differ on single items by more than their answers wobble: "
    "more answers of the same judges would not bring them together",
    "judges_no_random_sample": "these judges are no random sample of judges like them",
    "partial": "units of a batch have no verdict",
    "unknown_id": "an entry was for no unit of the question, and was passed over",
    "repeated_id": "the same verdict was given twice",
    "reordered": "units were rated in another order than the one in which they stand",
    "saturated": "a judge gives most units the same verdict every time, and can't tell them apart",
    "unstable_spread": "a judge's batches differ so much that its model is not stable",
    "quadrature": "the integral over batch effects did not settle with more nodes",
    "undetermined": "part of the model is left open by the verdicts, and a weak prior holds it",
    "boundary": "a judge's batches do not differ by more than chance: the spread is 0",
    "robust_disagrees": "for some parameter robust errors are below 0.8 or above 1.25 times the model's, "
    "which leaves something out",
    "prediction_misses": "the model does not predict held-out batches well: try lags: 3",
    "naive_biased": "raw verdicts mislead here: groups differ in spread, or shares lie near an end",
    "naive_ranking_unsafe": "a ranking by raw shares could be wrong: the first ones are too close",
    "prior_sensitive": "part of the difference rests on units with one verdict only, which the penalty "
    "places",
    "prior_inconclusive": "the verdict depends on the penalty's scale, so it is none",
    "items_unrated": "no judge has rated some of the units: where they lie is not known",
    "items_unconnected": "no batches of any judge connect some units with the others, so these are not "
    "placed among them",
    "fixed_order": "every unit stands in one place, so what the place does can't be told from what the "
    "unit is; no gate is decided",
    "contrast_differs_by_judge": "judges differ on this by more than chance (p < 0.1): read their rows, "
    "not the pooled value",
    "resampled": "recorded answers were drawn again with replacement",
    "disconnected": "no chain of comparisons connects all arms, so they are not ranked across the parts",
    "separated": "some arms have won, or lost, all their comparisons with the others: these gaps have no "
    "finite estimate, and only what counts prove is ranked",
    "prior_holds": "a weak prior holds what the comparisons leave open",
    "missing_differs_by_pair": "missing differs by pair: weighted strengths take all pairs alike",
    "few_effective": "weights by 1/propensity leave few comparisons that count",
    "few_effective_votes": "weights by 1/propensity leave few comparisons that count",
    "judge_votes_against": "a judge prefers what the others find worse",
    "pooled": "too few votes for strengths by category, so these are of all categories together",
    "weakly_identified": "the votes hardly determine some direction of the strengths by category",
    "unstable": "many votes tell too little for the method that was chosen",
}


def flag(word: str) -> str:
    """Put a flag into words; what stands after a colon is its detail."""
    name, _, detail = word.partition(":")
    words = _FLAGS.get(name, _spaced(name))
    return f"{words} ({detail})" if detail else words


def time_spent(times: Times) -> str:
    """Say what the time of calls went for."""
    parts = {
        "in calls": times.working_s,
        "waiting for a limit of the rate": times.limited_s,
        "waiting to try again": times.waited_s,
    }
    return ", ".join(f"{duration(seconds)} {what}" for what, seconds in parts.items())


def money_by_class(data: ReportData) -> list[tuple[str, str]]:
    """Say what the money went for, settled and uncertain; empty where all of it bought answers."""
    found = data.spend.by_class
    if found.keys() <= {"answers"}:
        return []
    return [
        (
            _CLASSES[name],
            usd(charge.settled, 6)
            + (f" + {usd(charge.uncertain, 6)} uncertain" if charge.uncertain else ""),
        )
        for name, charge in found.items()
    ]


_CLASSES = {
    "answers": "of it for answers",
    "retries": "of it for attempts before another one",
    "missing": "of it for questions that have no verdict",
    "late": "of it for what the stop cut off",
}


def unmetered(data: ReportData) -> tuple[str, str] | None:
    """Say what was booked without known usage; None where all of it is known."""
    n, amount = data.counts.unmetered, data.spend.unmetered
    if not n:
        return None
    return f"booked at the worst case, usage not told: for {plural(n, 'answer')}", usd(amount, 6)


def oddities(data: ReportData) -> list[tuple[str, str, str]]:
    """List what was odd and harmless about answers, by judge: judge, how many, what.

    What cost money stands with the money, what casts doubt on verdicts with the doubts.
    """
    return [
        (judge.name, plural(n, "answer"), flag(word))
        for judge in (*data.judges, *data.systems)
        for word, n in judge.flags.items()
        if word not in _NOT_HARMLESS
    ]


_NOT_HARMLESS = {"usage_missing", "usage_inconsistent", "suspected_injection"}


def steered(data: ReportData) -> Grid | None:
    """Tabulate the commands that the run took; None without any."""
    if not data.steered:
        return None
    rows = tuple(
        (
            f"{datetime.fromtimestamp(one.at, UTC):%H:%M:%S} UTC",
            " ".join(filter(None, (one.name, f"{one.path}={one.value}" if one.path else ""))),
            one.reason,
            one.by,
            f"refused: {one.refused}" if one.refused else "done",
        )
        for one in data.steered
    )
    left = data.n_steered - len(data.steered)
    title = f"The first {len(rows):,} of {data.n_steered:,} commands" if left else ""
    return Grid(title, ("at", "command", "reason", "by", "outcome"), rows)


def policy(data: ReportData) -> list[str]:
    """Say what the policy did and why, in its own words."""
    return [str(sentence) for sentence in data.policy.get("says") or ()]


def labels(data: ReportData) -> list[Grid]:
    """Tabulate, for each entry, how judges agree with the human labels; empty without labels."""
    found = {e.name: _agreement(e) for e in reversed(data.estimates) if e.diagnostics.get("labels")}
    return [found[name] for name in reversed(found)]


def _agreement(estimate: Estimate) -> Grid:
    records: list[Mapping[str, Json]] = estimate.diagnostics["labels"]
    head = ("judge", "labelled units", "bias", "standard error", "rms difference", "correlation")
    is_corrected = "correction" in records[0]
    rows = []
    for of in records:
        d = places(math.nan if of["se"] is None else 2 * of["se"])
        rows.append(
            (
                of["judge"],
                f"{of['n_units']:,}",
                number(of["bias"], d),
                number(of["se"], d + 1),
                number(of["rms"], d),
                f"{number(of['correlation'], 2)} {interval(of['lower'], of['upper'], 2)}",
                *((of["correction"],) if is_corrected else ()),
            )
        )
    criterion = estimate.diagnostics.get("criterion")
    title = f"{estimate.name}: {criterion}" if criterion else estimate.name
    return Grid(title, (*head, "corrected by") if is_corrected else head, tuple(rows))


LABELS_NOTE = (
    "Judges' means of each labelled unit, held against its label. Bias: judge less label. The rms "
    "difference and the correlation contain what a judge wavers by. Labels speak for all items only if "
    "the labelled ones are a random part of them."
)


def method(estimate: Estimate) -> str:
    """Say how the intervals were made, of what, and from how much."""
    watching = (
        "hold although one looked at every result"
        if estimate.watching_covered
        else "hold for one look at the end"
    )
    kind = f" ({estimate.interval})" if estimate.interval else ""
    parts = [
        f"{estimate.level * 100:g}% intervals{kind}; they {watching}",
        f"estimand: {estimate.estimand}" if estimate.estimand else "",
        f"error split: {estimate.alpha_split}" if estimate.alpha_split not in {"", "none"} else "",
        f"family: {estimate.family}" if estimate.family else "",
        _counted(estimate),
        _draw(estimate) if estimate.kind == "exchangeable" else "",
    ]
    return "; ".join(part for part in parts if part) + "."


def _counted(estimate: Estimate) -> str:
    """Say of how much a number is made."""
    things = "item"
    if estimate.kind == "exchangeable" and estimate.target == "human":
        things = "labelled item"
        if not estimate.n_answers:
            return plural(estimate.n_items, things)
    return f"{plural(estimate.n_items, things)}, {plural(estimate.n_answers, 'answer')}"


def _draw(estimate: Estimate) -> str:
    """Say of a part of a benchmark how it was drawn, and what of it is not back."""
    about = estimate.diagnostics
    found: Mapping[str, Sequence[Json]] = about["by_name"]
    alpha = f"{about['error']['alpha']:g}"
    shares = sorted({f"{share:.3g}" for share in found["alpha"]})
    error = f"{alpha} a name" if shares == [alpha] else f"{alpha}, {' or '.join(shares)} a name"
    seed = about["seed"]
    who = "not by this program" if seed is None else f"by seed {seed}"
    return (
        f"error {error}; "
        f"{spread_of(found['n_drawn'])} of {spread_of(found['population'])} items drawn {who}, "
        f"{sum(found['in_flight']):,} in flight, {sum(found['missing']):,} missing"
    )


def outlook(data: ReportData) -> str | None:
    """Say what doubling the spend could buy; None where nothing can be said.

    Only widths of a panel's means over items like these, from Student's or Wilson's intervals, shrink
    with the square root of the number of items. Those of single units, of these items, of an anchor
    or a population of judges, and sequences do not, or for other reasons.
    """
    known, answer = data.half_widths, data.answer
    if not known or not data.spend.settled or answer is None:
        return None
    is_mean = answer.target in {"arms", "difference"} and "items like these" in answer.estimand
    is_plain = answer.interval in {"t", "wilson"} and not answer.watching_covered
    is_panel = "anchor" not in data.policy and "judges like these" not in answer.estimand
    if not (is_mean and is_plain and is_panel):
        return None
    if data.n_units_answered >= data.n_units:
        return (
            "Every item has an answer: more repeats take out the judges' noise alone, so more money "
            "narrows this little; more items would."
        )
    width = known[-1][1] / math.sqrt(2)
    return (
        f"Another {usd(data.spend.settled)} (as much again), spent on new items, would bring it to "
        f"about ±{number(width, places(width))}: widths shrink with the square root of the number "
        "of items."
    )


NO_LABELS = "No human labels: a bias that judges share can't be seen, whatever the interval."


def limits(data: ReportData) -> list[str]:
    """List what these numbers cannot tell."""
    lines = [] if data.identity.get("labels") else [NO_LABELS]
    lines += [
        "An interval is about what these judges would say of its estimand, not about the truth.",
    ]
    if data.answer is not None and not data.answer.watching_covered:
        lines.append(
            "The intervals hold for one look at the end; whoever stops when they look good "
            "makes them too narrow."
        )
    is_sure = data.answer is not None and data.answer.kind == "exchangeable"
    if data.stop_reason is StopReason.PRECISION and not is_sure:
        lines.append(
            "The run ended because its interval had become narrow; where the width goes with the "
            "value (rare or skewed scores), value and coverage suffer from that."
        )
    if not data.are_final:
        lines.append(
            "The run has not come to its stop: these estimates are those of the last look."
        )
    if data.counts.n_missing and data.pairs is not None:
        lines.append(
            f"{plural(data.counts.n_missing, 'comparison')} without a verdict: left out of every "
            "strength, neither a tie nor a loss."
        )
    elif data.counts.n_missing and data.answer is not None and is_sure:
        policy = data.answer.diagnostics["missing_policy"]
        lines.append(f"An item without a verdict stays in every mean, and counts as {policy}.")
    elif data.counts.n_missing:
        lines.append(
            f"{plural(data.counts.n_missing, 'answer')} missing: left out of every mean, never "
            "scored 0; the bounds show how far they could move it."
        )
    if data.spend.uncertain:
        lines.append(
            "Uncertain money was charged against the cap because no one knows whether those "
            "attempts were billed; the bill may be lower."
        )
    if data.mock:
        lines.append("The judges are mock judges: nothing here is about a real model.")
    elif data.money != "real":
        lines.append("The verdicts are recorded ones and the dollars simulated.")
    else:
        lines.append(
            "The cap can't be passed at the price sheet in force; a provider that changes its "
            "prices during a run can."
        )
    return lines


def price(card: PriceCard) -> str:
    """Write what a judge charges."""
    if card.is_free:
        return "free"
    parts = []
    if card.input or card.output:
        # One pico-USD a token is 1,000 nano-USD a million tokens.
        rates = f"{usd(card.input * 1000, 2)} in, {usd(card.output * 1000, 2)} out"
        parts.append(f"{rates} per 1M tokens")
    if card.per_call:
        parts.append(f"{usd(-(-card.per_call // 1000), 2)} a call")
    return " + ".join(parts)


def command(data: ReportData) -> str:
    """Write the command that starts such a run again."""
    given = data.about.get("command")
    return str(given) if given else f"sortition run campaign.yaml --seed {data.seed}"


def place(data: ReportData) -> str:
    """Name the run as a command takes it."""
    return shlex.quote(data.path or data.run or "RUN")


def facts(data: ReportData) -> dict[str, str]:
    """Gather what is needed to repeat the run."""
    identity: Mapping[str, Json] = data.identity
    source = identity.get("data") or {}
    known = {
        "started": f"{datetime.fromtimestamp(data.started_at, UTC):%Y-%m-%d %H:%M} UTC",
        "seed": str(data.seed),
        "fingerprint": data.fingerprint,
        "campaign digest": data.digest,
        "data digest": str(source.get("digest") or ""),
        "rubric": str(identity.get("rubric") or (identity.get("task") or {}).get("rubric") or ""),
        "models served": "; ".join(
            f"{j.name}: {', '.join(j.served_models)}"
            for j in (*data.judges, *data.systems)
            if j.served_models
        ),
        "prices": "; ".join(
            f"{j.name}: {price(j.card)}{_source(data, j.name)}"
            for j in (*data.judges, *data.systems)
        ),
        "versions": ", ".join(f"{k} {v}" for k, v in data.versions.items()),
    }
    told = {
        _spaced(key): str(value)
        for key, value in data.about.items()
        if key not in {"command", "pid"} and isinstance(value, str | int | float)
    }
    return {key: value for key, value in (known | told).items() if value}


def _source(data: ReportData, judge: str) -> str:
    """Say where a judge's price was read."""
    sources = data.about.get("prices")
    source = sources.get(judge) if isinstance(sources, Mapping) else None
    return f" ({source})" if source else ""


def fate(data: ReportData) -> str:
    """Say what became of the questions."""
    counts = data.counts
    parts = [
        f"{plural(counts.asked, 'question')} asked",
        f"{counts.answered:,} answered",
        f"{counts.n_missing:,} missing",
        f"{counts.cached:,} from the cache" if counts.cached else "",
        f"{counts.parked:,} given back unasked" if counts.parked else "",
        f"{counts.withdrawn:,} withdrawn unsent at the stop" if counts.withdrawn else "",
        f"{counts.late:,} answered too late to count" if counts.late else "",
        *_by_role(data),
        f"{data.n_units_answered:,} of {data.n_units:,} units have an answer",
    ]
    return ", ".join(part for part in parts if part) + "."


def _by_role(data: ReportData) -> list[str]:
    """Say apart what became of questions to systems under test and to judges."""
    if not data.systems:
        return []
    whom = {Role.SYSTEM: "systems under test", Role.JUDGE: "judges"}
    told = []
    for role, who in whom.items():
        fate = data.counts.by_role.get(role)
        if fate is not None:
            why = ", ".join(f"{reason_words(reason)} {n:,}" for reason, n in fate.missing.items())
            answered = f"{fate.answered:,} of {fate.asked:,} answered"
            told.append(f"of these to {who} {answered}{f' ({why})' if why else ''}")
    return told


def reason_words(reason: str) -> str:
    """Say why a question has no answer."""
    return _REASONS.get(reason, _spaced(reason))


_REASONS: Mapping[str, str] = {MissingReason.NO_ANSWER: "no answer of the system to judge"}


def diagnostics(estimate: Estimate) -> str:
    """Write the plain values among the diagnostics on one line."""
    parts = []
    for key, value in estimate.diagnostics.items():
        if _is_plain(value):
            parts.append(f"{_spaced(key)} {_cell(value)}")
        elif isinstance(value, Mapping) and value and all(map(_is_plain, value.values())):
            inner = ", ".join(f"{_spaced(k)} {_cell(v)}" for k, v in value.items())
            parts.append(f"{_spaced(key)}: {inner}")
    return "; ".join(parts)


class Grid(NamedTuple):
    """A table among the diagnostics."""

    title: str
    head: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]


def grids(estimate: Estimate) -> list[Grid]:
    """Find the tables among the diagnostics: lists of flat records with the same keys."""
    return [
        Grid(
            _spaced(key),
            tuple(map(_spaced, value[0])),
            tuple(tuple(map(_cell, record.values())) for record in value),
        )
        for key, value in estimate.diagnostics.items()
        if key not in {"labels", "looks"}  # these have a section of their own
        and isinstance(value, list)
        and value
        and all(_is_record(r, value[0]) for r in value)
    ]


def _is_record(value: Json, first: Json) -> bool:
    return (
        isinstance(value, Mapping)
        and value.keys() == first.keys()
        and all(map(_is_plain, value.values()))
    )


def _is_plain(value: Json) -> bool:
    return value is None or isinstance(value, str | int | float)


def _cell(value: Json) -> str:
    match value:
        case None:
            return number(None)
        case bool():
            return "yes" if value else "no"
        case str():
            return value
        case int():
            return f"{value:,}"
        case _:
            return f"{value:.4g}"


def _spaced(word: str) -> str:
    return word.replace("_", " ")
