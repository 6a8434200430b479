"""What the audit of a board found, in sentences and a table: what, how much, what it means, what to do.

It reads the audit as plain values, as results keep it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from orchestrator.core.wire import Json
from orchestrator.report.data import BoardAudit
from orchestrator.report.wording import Grid, interval, label, number, places, plural, usd

_NAMED = 4
"""So many models are named in a sentence."""

_OUT_OF_REACH = 1000
"""So many times as many comparisons are not worth a number."""

Row = Mapping[str, Json]

_CHECKS = {
    "neighbours_open": "neighbours told apart",
    "position": "order of showing",
    "ties": "counting of ties",
    "intransitive": "one strength a model",
    "disconnected": "all models connected",
    "coverage": "even coverage",
    "clustered": "independent votes",
    "judge_influence": "no judge decides",
}


def lines(audit: BoardAudit, *, with_criterion: bool = False) -> list[str]:
    """Say what an audit found; where there are several criteria, by which."""
    if "reason" in audit.found:
        said = [f"There is no audit: {audit.found['reason']}."]
    else:
        said = findings(audit.found, audit.models, audit.judges)
    if "left_out" in audit.found:
        said.append(f"This audit leaves out {audit.found['left_out']}.")
    head = f"{label(audit.criterion)}: " if with_criterion else ""
    return [f"{head}{line}" for line in said]


def findings(audit: Row, models: Sequence[str], judges: Sequence[str]) -> list[str]:
    """Say what fired, a sentence or three each; and in one line that nothing did.

    Parameters
    ----------
    models, judges : names, by the indices in the votes
    """
    rows: Sequence[Row] = audit["findings"]
    said = [sentence(each, models, judges, by=audit["by"]) for each in rows if each["fires"]]
    if said:
        return said
    unknown = [_CHECKS[each["kind"]] for each in rows if each["reason"]]
    rest = f" Nothing can be said of: {', '.join(unknown)}." if unknown else ""
    n = len(rows) - len(unknown)
    return [
        f"{plural(n, 'check')} of {plural(audit['n_votes'], 'vote')} found nothing amiss.{rest}"
    ]


def sentence(finding: Row, models: Sequence[str], judges: Sequence[str], *, by: str = "") -> str:
    """Put one check into words: what it found, and, if it fired, what to do.

    Parameters
    ----------
    by : what votes the board's own intervals are by: `judge`, `item`, `cluster`, or each vote
    """
    check = _CHECKS[finding["kind"]]
    if finding["reason"]:
        return f"{check.capitalize()}: not known; {finding['reason']}."
    names = [label(name) for name in models]
    match finding["kind"]:
        case "neighbours_open":
            fact, advice = _neighbours(finding, names)
        case "position":
            fact, advice = _position(finding, names)
        case "ties":
            fact, advice = _ties(finding, names)
        case "intransitive":
            fact, advice = _intransitive(finding, names)
        case "disconnected":
            fact, advice = _disconnected(finding, names)
        case "coverage":
            fact, advice = _coverage(finding, names)
        case "clustered":
            fact, advice = _clustered(finding, by)
        case _:
            fact, advice = _judge(finding, names, judges)
    return f"{fact} {advice}" if finding["fires"] else fact


def table(audit: Row) -> Grid:
    """Tabulate all checks, fired or not."""
    rows = []
    for each in audit["findings"]:
        verdict = "not known" if each["reason"] else "found" if each["fires"] else ""
        effect = "" if each["reason"] else _number(each)
        band = "" if each["band"] is None else f"{each['band']:.3g}"
        rows.append((_CHECKS[each["kind"]], effect, _ends(each), band, each["unit"], verdict))
    head = ("check", "effect", "interval", "matters beyond", "unit", "finding")
    return Grid("", head, tuple(rows))


TABLE_NOTE = (
    "A check finds something when its whole interval lies beyond the size from which on it matters. "
    "Intervals share the error over all checks, so that a sound board shows no finding with at least the "
    "stated level."
)


# --- one finding: what it says, and what to do ----------------------------------------------------

_Said = tuple[str, str]


def _neighbours(of: Row, names: Sequence[str]) -> _Said:
    d: Row = of["detail"]
    if not of["subject"]:
        return "All neighbours are told apart.", ""
    a, b = (names[each] for each in of["subject"])
    fact = (
        f"{d['open_together']:,} of {plural(d['neighbours'], 'pair')} of neighbours {_be(d['open_together'])} "
        f"not told apart with all gaps together, {d['open_alone']:,} one by one"
    )
    if of["effect"] is None:
        n = d["not_estimable"] - 1
        others = f", nor have {plural(n, 'other')}" if n > 0 else ""
        fact += (
            f"; between {a} and {b} one has won everything, so their gap has no finite estimate"
            f"{others}."
        )
    else:
        fact += f"; least is known of {a} and {b}, to ±{_number(of)} {_ends(of)} log-odds."
        if of["fires"]:
            fact += (
                f" In {plural(d['too_wide'], 'pair')} even a gap of {of['band']:g}, 60% wins, would rather "
                "stay open."
            )
    return fact, _more(of)


def _more(of: Row) -> str:
    d: Row = of["detail"]
    if d["not_estimable"] and d["not_estimable"] == d["open_together"]:
        return "How many more comparisons settle that can't be told."
    if d["more_to_settle"] is None:
        return "No number of further comparisons settles them."
    whom = "each of them" if not d["not_estimable"] else "each with a finite estimate"
    where = "of these pairs" if d["settle_by"] == "pairs" else "spread over all pairs"
    said = (
        f"To know {whom} to ±{of['band']:g} takes {plural(d['more_to_settle'], 'more comparison')} {where}"
        f"{_price(d['price_to_settle'])}"
    )
    if d["more_to_prove"] is None or d["more_to_prove"] == d["more_to_settle"]:
        return f"{said}."
    if d["more_to_prove"] > _OUT_OF_REACH * max(d["more_to_settle"], 1):
        return f"{said}; some are so near each other that to prove each is out of reach."
    proof = f"{d['more_to_prove']:,}{_price(d['price_to_prove'])}"
    return f"{said}; to prove each, if it is as estimated, {proof}."


def _price(amount: Json) -> str:
    return "" if amount is None else f", about {usd(amount, 2)}"


def _position(of: Row, names: Sequence[str]) -> _Said:
    d: Row = of["detail"]
    who = names[of["subject"][0]]
    gain = _with_ends(d["advantage"], d["advantage_lower"], d["advantage_upper"])
    passed = _some([f"{names[b]} above {names[a]}" for a, b in d["reversed_pairs"]])
    fact = (
        f"The model shown first gains {gain} log-odds, and {who} was shown first in "
        f"{d['first_share']:.0%} of its comparisons: to ignore the order {_moves(of)} {who} by "
        f"{_size(of)}{f', and puts {passed}' if passed else ''}."
    )
    return fact, "Use strengths that allow for the order, and show pairs in both orders."


_RULES = {
    "drop": "with ties left out",
    "davidson": "by Davidson's rule for ties",
    "rao_kupper": "by Rao and Kupper's rule for ties",
}


def _ties(of: Row, names: Sequence[str]) -> _Said:
    d: Row = of["detail"]
    if not of["subject"]:
        fact = f"{d['share']:.0%} of the votes are ties; how they are counted turns no two models around."
        return fact, ""
    a, b = (names[each] for each in of["subject"])
    fact = (
        f"{names[d['drawer']]} ties in {d['drawer_share']:.0%} of its votes, all models together in "
        f"{d['share']:.0%}: {a} stands above {b} with ties as half wins, and below {_RULES[d['rule']]}; their "
        f"gap moves by {_size(of)} log-odds."
    )
    return fact, "Say how the ranking counts ties, and give both orders."


def _intransitive(of: Row, names: Sequence[str]) -> _Said:
    d: Row = of["detail"]
    fact = (
        "Pairs lie around what one strength a model predicts with a standard deviation of "
        f"{_size(of)} log-odds"
    )
    if of["subject"]:
        i, j, k = (names[each] for each in of["subject"])
        strength = _with_ends(d["circle"], d["circle_lower"], d["circle_upper"])
        fact += f"; {i} beats {j}, {j} beats {k}, and {k} beats {i}, by {strength} on average"
    return f"{fact}.", "The ranking does not say who beats whom: read the pairs."


def _disconnected(of: Row, names: Sequence[str]) -> _Said:
    if not of["fires"]:
        return "A chain of comparisons connects all models.", ""
    out = _some([names[each] for each in of["subject"]])
    fact = (
        f"No chain of comparisons connects all models: of {of['detail']['n_components']:,} groups, the largest "
        f"lacks {out}."
    )
    return fact, "Nothing ranks models of one group against another's: compare some across groups."


def _coverage(of: Row, names: Sequence[str]) -> _Said:
    d: Row = of["detail"]
    fact = (
        f"{names[of['subject'][0]]} has {plural(d['votes'], 'vote')}, where an even share is {d['even']:,.0f} and "
        f"{names[d['most']]} has {d['most_votes']:,}: its standard error is {_size(of)} times that of an even "
        f"share.{_left_out(of)}"
    )
    return fact, f"Ask more about {_some([names[each] for each in d['thin']])}."


def _clustered(of: Row, by: str) -> _Said:
    d: Row = of["detail"]
    unit = d["by"]
    fact = (
        f"By {unit}, standard errors are {_size(of)} times those of independent votes: "
        f"{plural(d['votes'], 'vote')} are worth {d['effective_votes']:,.0f}. The {d['few']} largest of "
        f"{plural(d['groups'], unit)} hold {d['few_share']:.0%} of the votes; those that weigh most, as many, "
        f"make up {d['few_variance']:.0%} of the variance."
    )
    allowed = ", as here" if by == unit else ""
    return fact, f"Use intervals by {unit}{allowed}, and votes of more {unit}s."


def _judge(of: Row, names: Sequence[str], judges: Sequence[str]) -> _Said:
    d: Row = of["detail"]
    judge, model = of["subject"]
    who = judges[judge] if judge < len(judges) and judges[judge] else f"Judge {judge}"
    n = d["ranks_changed"]
    order = (
        f"{plural(n, 'model')} {'has' if n == 1 else 'have'} another rank"
        if n
        else "no rank changes"
    )
    fact = (
        f"{who}, with {d['share']:.0%} of the votes, {_moves(of)} {names[model]} by {_size(of)} log-odds; "
        f"without it {order}.{_left_out(of)}"
    )
    return fact, "Look at its verdicts, and give the strengths without it as well."


def _left_out(of: Row) -> str:
    n = of["detail"]["left_out"]
    if not n:
        return ""
    return f" {plural(n, 'vote')} on gaps without a finite estimate {_be(n)} not counted."


# --- small things ----------------------------------------------------------------------------------


def _digits(of: Row) -> int:
    low, high = of["lower"], of["upper"]
    return places((high - low) / 2) if None not in (low, high) and high > low else 2


def _number(of: Row) -> str:
    if of["effect"] is None:
        return "no bound"
    return number(of["effect"], 0 if of["kind"] == "disconnected" else _digits(of))


def _ends(of: Row) -> str:
    low, high = of["lower"], of["upper"]
    return "" if None in (low, high) or low == high else interval(low, high, _digits(of))


def _size(of: Row) -> str:
    """Write how much, without its sign."""
    low, high = sorted((of["lower"], of["upper"]), reverse=of["effect"] < 0)
    sign = -1.0 if of["effect"] < 0 else 1.0
    return _with_ends(abs(of["effect"]), sign * low, sign * high)


def _with_ends(effect: float, low: float, high: float) -> str:
    digits = places((high - low) / 2) if high > low else 2
    return f"{number(effect, digits)} {interval(low, high, digits)}"


def _moves(of: Row) -> str:
    return "lowers" if of["effect"] < 0 else "lifts"


def _be(n: int) -> str:
    return "is" if n == 1 else "are"


def _some(names: Sequence[str]) -> str:
    more = len(names) - _NAMED
    if more > 0:
        return f"{', '.join(names[:_NAMED])} and {more:,} more"
    return " and ".join(filter(None, (", ".join(names[:-1]), *names[-1:])))
