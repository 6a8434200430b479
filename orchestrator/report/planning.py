"""What a plan says: the value, its JSON (`plan.json`) and its lines on the screen. Pure.

See docs/reference/plan.md.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from decimal import Decimal
from itertools import groupby
from typing import NamedTuple

from orchestrator.core.money import NANO_PER_USD, PriceCard, format_usd
from orchestrator.core.query import Role
from orchestrator.core.stopping import StopReason
from orchestrator.core.wire import Json
from orchestrator.report.wording import columns, number, places, plural, price, printable, usd

SCHEMA = 1
"""Raised when a key is renamed, removed or changes its meaning; new keys do not raise it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Range:
    """A prediction: what is expected, and between what it should lie."""

    low: float
    expected: float
    high: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Assumption:
    """Something taken for granted about a judge, and where it comes from.

    `source` is `assume` or `mock` (keys of the campaign file), `recording`, `data` or `default`.
    """

    judge: str
    what: str
    value: float | str
    source: str


@dataclass(frozen=True, slots=True, kw_only=True)
class JudgePlan:
    """One judge's or system's part, money in nano-USD.

    `calls` and `expected` are those of the whole run, `by_key` its verdicts that need no call; `ceiling`
    bounds one call, at its longest prompt; `concurrency` bounds its calls at a time.
    """

    name: str
    role: Role = Role.JUDGE
    adapter: str
    card: PriceCard
    price_source: str
    calls: int
    by_key: int = 0
    expected: int
    ceiling: int
    concurrency: int


@dataclass(frozen=True, slots=True, kw_only=True)
class WholeList:
    """All that the policy would ask if money were no object, in nano-USD."""

    calls: int
    expected: int
    worst: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Batches:
    """What is laid out for each judge of a campaign of batches.

    Parameters
    ----------
    n_batches, size, block_length : batches, units of one, batches of a block
    per_look, n_looks : batches between two looks; looks, the one at the last batch included
    is_by_cap : whether there are as many as the money pays for
    is_open : whether they go on until it ends, so that their number is only expected
    """

    n_batches: int
    size: int
    block_length: int
    per_look: int
    n_looks: int
    is_by_cap: bool
    is_open: bool = False


class Point(NamedTuple):
    """A point of the curve of precision against money (nano-USD)."""

    spent: int
    calls: int
    seconds: float
    half_width: float


@dataclass(frozen=True, slots=True, kw_only=True)
class ForHalfWidth:
    """How many items of each arm a half-width takes, and what all arms' then cost, nano-USD.

    None where no number is enough: what is missing, or the judge's noise, alone makes an interval wider.
    """

    half_width: float
    items: Range | None
    spend: Range | None


@dataclass(frozen=True, slots=True, kw_only=True)
class ForMoney:
    """How many items of each arm money (nano-USD) pays for, and the half-width that they give."""

    money: int
    items: int
    half_width: Range


@dataclass(frozen=True, slots=True, kw_only=True)
class MethodPlan:
    """One way to bound what the campaign is after, and what it takes.

    Parameters
    ----------
    is_own : whether the campaign itself bounds by it
    watching_covered : whether one may look at every result and stop at any
    """

    name: str
    is_own: bool
    watching_covered: bool
    for_half_width: tuple[ForHalfWidth, ...]
    for_money: tuple[ForMoney, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class ByMethod:
    """What a benchmark takes by method.

    Parameters
    ----------
    estimate, target : its name in the file; `arms`, `macro` or `difference`
    population, n_arms : items, and arms that each have so many
    level, alpha : of the estimate; the error that each arm, or the difference, gets of it
    item, by_role : what an item of all arms is expected to cost, nano-USD; by role
    missing : share of the verdicts that are missing, as of `benchmark_plan.Assumed`
    mean, sd, source : what scores are taken to be like, in their units: of the arm that needs most items,
        or of the differences; and where that is from: `option`, `recording`, `data` (the truth of
        mocks, verdicts in a column), `mock` or `default`
    arm : that one, None where there is but one, or of differences
    draw_by : the column by whose numbers items are drawn; scores are taken to have nothing to do with it
    best_repeats : calls of each judge an item with which the first half-width costs least; None where
        calls are not taken to be noise, or their noise isn't known
    """

    estimate: str
    target: str
    population: int
    n_arms: int
    level: float
    alpha: float
    item: int
    by_role: Mapping[str, int]
    mean: float
    sd: Range
    missing: float
    source: str
    arm: str | None = None
    draw_by: str | None = None
    best_repeats: int | None = None
    methods: tuple[MethodPlan, ...]


PANEL = ""
"""Whose judgment an estimate gives, where it is that of all judges."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Rival:
    """What a policy makes of the campaign's money, and what it needs for the target, nano-USD.

    Parameters
    ----------
    name, policy, judges : in words; its kind; whom it asks
    whose : the judge whose judgment it gives, `PANEL` for that of all
    calls, spent, half_width : how it ends, half-width None where no estimate has one
    curve : precision against money
    is_cut : whether that is not its end: the rehearsal was ended for its length
    needs : the smallest budget that reaches the target; None without one or where none does
    is_extrapolated : whether `needs` lies beyond what was rehearsed
    refused, sufficient : why it can't work with this campaign, and with how much money it could
    """

    name: str
    policy: str
    judges: tuple[str, ...]
    whose: str = PANEL
    calls: int | None = None
    spent: int | None = None
    half_width: float | None = None
    curve: tuple[Point, ...] = ()
    is_cut: bool = False
    needs: int | None = None
    is_extrapolated: bool = False
    refused: str = ""
    sufficient: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Prompts:
    """The length of the prompts in tokens, measured on so many units."""

    mean: float
    sd: float
    n: int


@dataclass(frozen=True, slots=True, kw_only=True)
class PriceSheet:
    """The price sheet in force; `newest` is the day of the newest price that it holds."""

    name: str
    newest: date | None
    age_days: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """What a campaign will likely ask, cost, take and find, before a cent is spent.

    Money is in nano-USD, time in seconds.

    Parameters
    ----------
    cap, target : None where none is set
    judges : in the file's order; systems under test behind them
    whole_list : None where the policy has no end of its own
    spend, seconds, half_width : of the run, under its cap and target; half-width None where no
        estimate has one
    ends_by : why the run is expected to end
    at_cap : half-width when all of the money is spent, None where that is not known
    needs, needs_is_extrapolated : as in `Rival`, for the campaign's own policy
    window, max_in_flight : questions open, and calls under way, at most
    usable_concurrency, in_flight : how many calls can be under way under the cap, and how many are
        on average
    bound_by : share of the time that each limit binds, the greatest first
    curve : precision against money
    rivals : the campaign's own policy first; empty where they were not asked for
    cheapest : the name of the cheapest adequate one
    part : the part of the items that was rehearsed
    policy_says : what the policy says of itself at the end
    predicts_width : False where the estimate's half-width hangs on what only a run shows
    batches : what is laid out; None where units are asked about one by one
    by_method : of a benchmark; None where no answers by method are known or none are asked for
    """

    campaign: str
    policy: str
    n_items: int
    n_arms: int
    is_mock: bool
    cap: int | None
    target: float | None
    judges: tuple[JudgePlan, ...]
    whole_list: WholeList | None
    spend: Range
    seconds: Range
    half_width: Range | None
    ends_by: StopReason
    at_cap: float | None
    needs: int | None
    needs_is_extrapolated: bool
    window: int
    max_in_flight: int
    usable_concurrency: int
    in_flight: float
    bound_by: Mapping[str, float]
    curve: tuple[Point, ...]
    rivals: tuple[Rival, ...]
    cheapest: str
    assumptions: tuple[Assumption, ...]
    prompts: Prompts | None
    sheet: PriceSheet | None
    part: float
    notes: tuple[str, ...]
    policy_says: Mapping[str, Json]
    predicts_width: bool = True
    batches: Batches | None = None
    by_method: ByMethod | None = None

    @property
    def calls(self) -> int:
        """How many calls the run is expected to make."""
        return sum(judge.calls for judge in self.judges)

    @property
    def expected_usd(self) -> Decimal:
        """What the whole list is expected to cost; what the run is, where the list has no end."""
        whole = self.whole_list
        return _dollars(round(self.spend.expected) if whole is None else whole.expected)

    @property
    def worst_case_usd(self) -> Decimal | None:
        """What the whole list can cost at most; the cap, where the list has no end."""
        whole = self.whole_list
        worst = self.cap if whole is None else whole.worst
        return None if worst is None else _dollars(worst)


@dataclass(frozen=True, slots=True, kw_only=True)
class Refusal:
    """What there is instead of a plan where the campaign's policy can't work with its money.

    `rivals` and `cheapest` as in `Plan`: the campaign's own policy, refused, comes first.
    """

    campaign: str
    n_items: int
    n_arms: int
    is_mock: bool
    cap: int | None
    target: float | None
    rivals: tuple[Rival, ...]
    cheapest: str


def _dollars(nano: int) -> Decimal:
    return Decimal(nano) / NANO_PER_USD


# --- JSON --------------------------------------------------------------------------------------


def document(plan: Plan) -> dict[str, Json]:
    """Write the whole plan as JSON values: money in nano-USD, null where nothing is known."""
    whole = plan.whole_list
    return {
        "schema": SCHEMA,
        "campaign": plan.campaign,
        "policy": plan.policy,
        "items": plan.n_items,
        "arms": plan.n_arms,
        "mock": plan.is_mock,
        "cap_nano_usd": plan.cap,
        "target_half_width": plan.target,
        "whole_list": None
        if whole is None
        else {
            "calls": whole.calls,
            "expected_nano_usd": whole.expected,
            "worst_case_nano_usd": whole.worst,
        },
        "run": {
            "calls": plan.calls,
            "spend_nano_usd": _range(plan.spend, whole=True),
            "seconds": _range(plan.seconds),
            "half_width": None if plan.half_width is None else _range(plan.half_width),
            "ends_by": str(plan.ends_by),
            "bound_by": {name: round(share, 4) for name, share in plan.bound_by.items()},
            "window": plan.window,
            "max_in_flight": plan.max_in_flight,
            "usable_concurrency": plan.usable_concurrency,
            "in_flight": round(plan.in_flight, 2),
        },
        "batches": None
        if plan.batches is None
        else {
            "each_judge": plan.batches.n_batches,
            "size": plan.batches.size,
            "block_length": plan.batches.block_length,
            "per_look": plan.batches.per_look,
            "looks": plan.batches.n_looks,
            "is_by_cap": plan.batches.is_by_cap,
            "is_open": plan.batches.is_open,
        },
        "by_method": None if plan.by_method is None else _by_method_as_json(plan.by_method),
        "half_width_at_cap": _number(plan.at_cap),
        "needs_nano_usd": plan.needs,
        "needs_is_extrapolated": plan.needs_is_extrapolated,
        "judges": [
            {
                "name": judge.name,
                "role": str(judge.role),
                "adapter": judge.adapter,
                "price": price(judge.card),
                "price_source": judge.price_source,
                "calls": judge.calls,
                "by_key": judge.by_key,
                "expected_nano_usd": judge.expected,
                "worst_case_each_nano_usd": judge.ceiling,
                "concurrency": judge.concurrency,
            }
            for judge in plan.judges
        ],
        "curve": _points(plan.curve),
        "rivals": _rivals_as_json(plan.rivals),
        "cheapest_adequate": plan.cheapest or None,
        "assumptions": [
            {"judge": a.judge, "what": a.what, "value": a.value, "source": a.source}
            for a in plan.assumptions
        ],
        "prompt_tokens": None
        if plan.prompts is None
        else {
            "mean": round(plan.prompts.mean, 1),
            "sd": round(plan.prompts.sd, 1),
            "units": plan.prompts.n,
        },
        "price_sheet": None
        if plan.sheet is None
        else {
            "name": plan.sheet.name,
            "newest": None if plan.sheet.newest is None else plan.sheet.newest.isoformat(),
        },
        "rehearsed_part": round(plan.part, 6),
        "notes": list(plan.notes),
        "policy_says": dict(plan.policy_says),
    }


def refusal_document(refusal: Refusal) -> dict[str, Json]:
    """Write a refusal as JSON values: the keys of a plan that need no run, and `refused`."""
    own = refusal.rivals[0]
    return {
        "schema": SCHEMA,
        "campaign": refusal.campaign,
        "policy": own.policy,
        "items": refusal.n_items,
        "arms": refusal.n_arms,
        "mock": refusal.is_mock,
        "cap_nano_usd": refusal.cap,
        "target_half_width": refusal.target,
        "refused": own.refused,
        "sufficient_nano_usd": own.sufficient,
        "rivals": _rivals_as_json(refusal.rivals),
        "cheapest_adequate": refusal.cheapest or None,
    }


def _by_method_as_json(found: ByMethod) -> dict[str, Json]:
    return {
        "estimate": found.estimate,
        "target": found.target,
        "population": found.population,
        "level": found.level,
        "alpha_each": round(found.alpha, 9),
        "item_nano_usd": found.item,
        "item_by_role_nano_usd": dict(found.by_role),
        "scores": {
            "mean": _number(found.mean),
            "sd": _range(found.sd),
            "missing": _number(found.missing),
            "source": found.source,
            "arm": found.arm,
        },
        "draw_by": found.draw_by,
        "best_repeats": found.best_repeats,
        "methods": [
            {
                "method": method.name,
                "is_own": method.is_own,
                "watching_covered": method.watching_covered,
                "for_half_width": [
                    {
                        "half_width": asked.half_width,
                        "items": asked.items and _range(asked.items, whole=True),
                        "spend_nano_usd": asked.spend and _range(asked.spend, whole=True),
                    }
                    for asked in method.for_half_width
                ],
                "for_money": [
                    {
                        "nano_usd": asked.money,
                        "items": asked.items,
                        "half_width": _range(asked.half_width),
                    }
                    for asked in method.for_money
                ],
            }
            for method in found.methods
        ],
    }


def _points(curve: Sequence[Point]) -> list[Json]:
    return [
        {
            "spent_nano_usd": point.spent,
            "calls": point.calls,
            "seconds": round(point.seconds, 3),
            "half_width": _number(point.half_width),
        }
        for point in curve
    ]


def _rivals_as_json(rivals: Sequence[Rival]) -> list[Json]:
    return [
        {
            "name": rival.name,
            "policy": rival.policy,
            "judges": list(rival.judges),
            "judgment_of": rival.whose or "panel",
            "calls": rival.calls,
            "spent_nano_usd": rival.spent,
            "half_width": _number(rival.half_width),
            "curve": _points(rival.curve),
            "is_cut": rival.is_cut,
            "needs_nano_usd": rival.needs,
            "needs_is_extrapolated": rival.is_extrapolated,
            "refused": rival.refused or None,
            "sufficient_nano_usd": rival.sufficient,
        }
        for rival in rivals
    ]


def _range(found: Range, *, whole: bool = False) -> dict[str, Json]:
    values = {"low": found.low, "expected": found.expected, "high": found.high}
    return {key: round(x) if whole else round(x, 6) for key, x in values.items()}


def _number(x: float | None) -> float | None:
    return None if x is None or not math.isfinite(x) else round(x, 6)


# --- lines -------------------------------------------------------------------------------------


def plan_lines(plan: Plan) -> list[str]:
    """Write the plan as `plan` prints it."""
    lines = [
        *_sums(plan),
        *_assumed(plan.assumptions),
        *_by_method(plan.by_method),
        *_rivals(plan.rivals, plan),
        *_verdict(plan.rivals, plan),
        *_notes(plan),
        *_promise(plan),
    ]
    return [printable(line) for line in lines]


def run_lines(plan: Plan) -> list[str]:
    """Write what `run` shows before anything is spent.

    What a mock or a recorded judge is like is no assumption there: it is what will answer.
    """
    known = {judge.name for judge in plan.judges if judge.adapter in {"mock", "recorded"}}
    is_known = plan.is_mock or len(known) == len(plan.judges)
    matters = [a for a in plan.assumptions if not (is_known or a.judge in known)]
    lines = (*_sums(plan), *_assumed(matters), *_notes(plan), *_promise(plan))
    return [printable(line) for line in lines]


def refusal_lines(refusal: Refusal) -> list[str]:
    """Write what there is instead of a plan: what would do, and what the rivals can."""
    own = refusal.rivals[0]
    lines = (
        _head(refusal.campaign, refusal, own.policy),
        *_rivals(refusal.rivals, refusal),
        *_verdict(refusal.rivals, refusal),
    )
    return [printable(line) for line in lines]


def _head(campaign: str, of: Plan | Refusal, policy: str) -> str:
    arms = f" x {of.n_arms} arms" if of.n_arms > 1 else ""
    cap = "no dollar cap" if of.cap is None else f"cap {format_usd(of.cap, decimals=2)} (hard)"
    return f"campaign  {campaign}   {of.n_items:,} items{arms}   policy {policy}   {cap}"


def _sums(plan: Plan) -> Iterator[str]:
    yield _head(plan.campaign, plan, plan.policy)
    yield from _table([judge for judge in plan.judges if judge.adapter != "key"])
    if by_key := sum(judge.by_key for judge in plan.judges):
        yield f"key       {plural(by_key, 'verdict')} by the key, free"
    yield from _batches(plan)
    yield from _whole_list(plan)
    yield _outlook(plan)
    yield from _sheet(plan)


def _notes(plan: Plan) -> Iterator[str]:
    yield from (f"note      {note}" for note in plan.notes)


def _promise(plan: Plan) -> Iterator[str]:
    if plan.cap is not None:
        yield (
            "The cap can't be passed at these prices: each call is held at its worst case before "
            "it is sent."
        )


def _table(judges: Sequence[JudgePlan]) -> list[str]:
    """Write a row for each who can be asked; roles where not all are judges."""
    if not judges:
        return []
    has_systems = any(judge.role is Role.SYSTEM for judge in judges)
    head = (
        "judge",
        *(("role",) if has_systems else ()),
        "adapter",
        "$/1M in / out",
        "calls",
        "$ expected",
        "$ worst case each",
        "prices from",
    )
    rows = [
        (
            judge.name,
            *((judge.role,) if has_systems else ()),
            judge.adapter,
            _rates(judge.card),
            f"{judge.calls:,}",
            usd(judge.expected, 2).removeprefix("$"),
            usd(judge.ceiling, 4).removeprefix("$"),
            judge.price_source,
        )
        for judge in judges
    ]
    if has_systems:
        head = ("model", *head[1:])
    return _lines(head, rows, left={0, 1, len(head) - 1, len(head) - 6})


def _lines(
    head: Sequence[str], rows: Sequence[Sequence[str]], *, left: Collection[int]
) -> list[str]:
    """Write rows in columns: those of words to the left, figures to the right."""
    widths = [max(columns(row[k]) for row in (head, *rows)) for k in range(len(head))]

    def line(row: Sequence[str]) -> str:
        pads = [" " * (wide - columns(text)) for text, wide in zip(row, widths, strict=True)]
        cells = [
            text + pad if k in left else pad + text
            for k, (text, pad) in enumerate(zip(row, pads, strict=True))
        ]
        return "   ".join(cells).rstrip()

    return [line(row) for row in (head, *rows)]


def _rates(card: PriceCard) -> str:
    """Write a card's two main prices as short as the table wants them."""
    if card.is_free:
        return "free"
    if card.per_call and not card.input and not card.output:
        return f"{usd(-(-card.per_call // 1000), 2).removeprefix('$')} a call"
    return f"{usd(card.input * 1000, 2)} / {usd(card.output * 1000, 2)}".replace("$", "")


def _batches(plan: Plan) -> Iterator[str]:
    found = plan.batches
    if found is None:
        return
    form = f"{plural(found.size, 'unit')} each, in blocks of {found.block_length:,}"
    every = f"after every {found.per_look:,} batches of each judge"
    if found.is_open:
        yield f"batches   until the money ends, some {found.n_batches:,} of each judge; {form}"
        yield f"looks     {every}, and at the end"
        return
    by = ", which is what the money pays for" if found.is_by_cap else ""
    n_rest = found.n_batches % found.block_length
    rest = f", and {n_rest:,} in random order that make no whole block" if n_rest else ""
    yield f"batches   {found.n_batches:,} of each judge{by}; {form}{rest}"
    if found.n_looks == 1:
        yield "looks     1, after the last batch"
    else:
        yield f"looks     {found.n_looks:,} at most: {every}, and after the last"


def _whole_list(plan: Plan) -> Iterator[str]:
    whole = plan.whole_list
    if (whole is None and plan.batches is not None) or (whole is not None and not whole.calls):
        return
    if whole is None:
        yield "the list  has no end of its own: money, target or a limit ends the run"
        return
    yield (
        f"the list  {plural(whole.calls, 'call')}: expected {usd(whole.expected, 2)}, "
        f"worst case {usd(whole.worst, 2)}"
    )
    if plan.cap is not None and whole.worst > plan.cap:
        if plan.ends_by is StopReason.BUDGET:
            yield "The worst case is above the cap: the cap, not the list, will end the run."
        else:
            yield "The worst case is above the cap: if calls cost more than expected, the cap ends it."


def _outlook(plan: Plan) -> str:
    parts = [f"expected  {_money(plan.spend)}", f"time {_time(plan)}"]
    found = plan.half_width
    if not plan.predicts_width:
        parts.append("half-width not predicted")
        return "   ".join(parts)
    if found is None:
        parts.append("half-width unknown: these data would not determine it")
    else:
        d = places(found.expected)
        parts.append(
            f"half-width \N{PLUS-MINUS SIGN}{number(found.expected, d)} "
            f"({number(found.low, d)} to {number(found.high, d)})"
        )
    if plan.target is not None:
        if plan.at_cap is not None and plan.ends_by is StopReason.PRECISION:
            width = number(plan.at_cap, places(plan.at_cap))
            parts.append(f"at the end \N{PLUS-MINUS SIGN}{width}")
        parts.append(_target(plan, plan.target))
    return "   ".join(parts)


def _target(plan: Plan, target: float) -> str:
    name = f"target \N{PLUS-MINUS SIGN}{target:g}"
    if plan.needs is None:
        return f"{name}: not reached"
    about = f"{name} at about {usd(plan.needs, 2)}"
    if plan.needs_is_extrapolated:
        about += " (extrapolated)"
    if plan.cap is not None and plan.needs > plan.cap:
        about += ", above the cap"
    return about


def _money(spend: Range) -> str:
    low, high = usd(round(spend.low), 2), usd(round(spend.high), 2)
    return low if low == high else f"{low}-{high.removeprefix('$')}"


def _time(plan: Plan) -> str:
    if not plan.seconds.high:
        return "none but the program's own: no judge is waited for"
    low, high = (_spoken(s) for s in (plan.seconds.low, plan.seconds.high))
    span = high if low == high else f"{low} to {high}"
    limits = [f"{_limit(name)} {share:.0%}" for name, share in plan.bound_by.items()]
    return f"{span} (limited by: {', '.join(limits[:2])}; {_at_a_time(plan)})"


def _at_a_time(plan: Plan) -> str:
    usable = f"{plural(plan.usable_concurrency, 'call')} at a time"
    most = min(plan.max_in_flight, plan.window)
    return (
        usable if plan.usable_concurrency >= most else f"{usable} of {most}: the cap holds no more"
    )


def _spoken(seconds: float) -> str:
    """Write a time to two digits or so, in the unit that suits it."""
    for unit, size in (("h", 3600.0), ("min", 60.0)):
        if seconds >= 2 * size:
            return (
                f"{seconds / size:.1f} {unit}"
                if seconds < 10 * size
                else f"{seconds / size:.0f} {unit}"
            )
    return f"{seconds:.1f} s" if seconds < 10 else f"{seconds:.0f} s"


_LIMITS = {
    "jobs": "-j",
    "window": "the window",
    "cap": "the cap",
    "policy": "the policy's waiting",
    "last": "the last answers",
}


def _limit(name: str) -> str:
    kind, _, judge = name.partition(":")
    match kind:
        case "judge":
            return f"{judge}'s concurrency"
        case "start":
            return f"{judge}'s slow start"
        case "rate":
            return f"{judge}'s limit of the rate"
        case _:
            return _LIMITS[kind]


def _sheet(plan: Plan) -> Iterator[str]:
    if plan.sheet is not None:
        sheet = plan.sheet
        dated = "" if sheet.newest is None else f", newest price of {sheet.newest}"
        age = "" if sheet.age_days is None else f" ({plural(sheet.age_days, 'day')} old)"
        yield f"prices    {sheet.name}{dated}{age}"
    if plan.prompts is not None:
        p = plan.prompts
        yield (
            f"prompts   {p.mean:,.0f} \N{PLUS-MINUS SIGN} {p.sd:,.0f} tokens (measured on "
            f"{plural(p.n, 'unit')})"
        )


def _assumed(assumptions: Sequence[Assumption]) -> Iterator[str]:
    """Write one line a judge, what has one source together."""
    for judge, found in groupby(assumptions, key=lambda a: a.judge):
        by_source: dict[str, list[str]] = {}
        for a in found:
            value = a.value if isinstance(a.value, str) else f"{a.value:g}"
            by_source.setdefault(a.source, []).append(f"{a.what} {value}")
        stated = (f"{', '.join(facts)} ({source})" for source, facts in by_source.items())
        yield f"assumed   {judge or 'items'}: {'; '.join(stated)}"


def _by_method(found: ByMethod | None) -> Iterator[str]:
    """Write what each method takes: the scores it is reckoned with, then a row a method."""
    if found is None:
        return
    whose = {
        "arms": f"of each of {found.n_arms} arms" if found.n_arms > 1 else "of the mean",
        "macro": f"of each of {found.n_arms} macro means"
        if found.n_arms > 1
        else "of the macro mean",
        "difference": "of the difference",
    }[found.target]
    roles = [f"{role} {usd(x, 4)}" for role, x in found.by_role.items() if x]
    parts = f" ({', '.join(roles)})" if len(roles) > 1 else ""
    yield (
        f"methods   {found.estimate}: \N{PLUS-MINUS SIGN} {whose}, {found.level:.0%}, error "
        f"{found.alpha:.3g} each; an item costs {usd(found.item, 4)}{parts}"
    )
    sd, of_arm = found.sd, f" of {printable(found.arm)}" if found.arm else ""
    yield (
        f"assumed   scores{of_arm}: mean {found.mean:.3g}, sd {sd.expected:.3g} ({sd.low:.3g} to {sd.high:.3g}) "
        f"({found.source})"
        + (f"; missing {found.missing:.2g}" if found.missing else "")
        + (f"; nothing to do with {printable(found.draw_by)}" if found.draw_by else "")
    )
    if found.best_repeats is not None:
        calls = plural(found.best_repeats, "call")
        yield f"repeats   with judgment: expected, {calls} of each judge an item are worth most"
    first = found.methods[0]
    head = ["method", "watched"]
    for asked in first.for_half_width:
        head += [f"items for \N{PLUS-MINUS SIGN}{asked.half_width:g}", "$"]
    head += [f"{usd(asked.money, 2)} buys" for asked in first.for_money]
    rows = [
        [
            method.name + (" (this campaign's)" if method.is_own else ""),
            "yes" if method.watching_covered else "no",
            *(cell for asked in method.for_half_width for cell in _items_and_money(asked)),
            *map(_bought, method.for_money),
        ]
        for method in found.methods
    ]
    yield from _lines(head, rows, left={0, 1})


def _items_and_money(asked: ForHalfWidth) -> tuple[str, str]:
    if asked.items is None or asked.spend is None:
        return "never reached", "\N{EN DASH}"
    low, expected, high = (f"{x:,.0f}" for x in _ends(asked.items))
    cost = usd(round(asked.spend.expected), 2).removeprefix("$")
    return expected if low == high else f"{expected} ({low} to {high})", cost


def _bought(asked: ForMoney) -> str:
    if not asked.items:
        return "nothing"
    found = asked.half_width
    if not found.high:
        return "all items"
    d = places(found.expected)
    low, expected, high = (number(x, d) for x in _ends(found))
    return f"\N{PLUS-MINUS SIGN}{expected}" + ("" if low == high else f" ({low} to {high})")


def _ends(found: Range) -> tuple[float, float, float]:
    return found.low, found.expected, found.high


def _rivals(rivals: Sequence[Rival], of: Plan | Refusal) -> Iterator[str]:
    if len(rivals) < 2:
        return
    for rival in rivals:
        role = "policy" if rival is rivals[0] else "rival"
        whose = f" (the judgment of {rival.whose})" if rival.whose else ""
        yield f"{role:<10}{rival.name}{whose}: {_showing(rival, of)}"


def _verdict(rivals: Sequence[Rival], of: Plan | Refusal) -> Iterator[str]:
    """Name the cheapest adequate policy; beside it, what the campaign's own would need."""
    own = rivals[0] if rivals else None
    refused = "" if own is None or not own.refused else f"{own.name} {_short_of(own, of)}; "
    if of.cheapest:
        what = "the most precise at the cap"
        if of.target is not None:
            what = "the cheapest adequate policy"
        yield f"{refused}{of.cheapest} is {what} here."
    elif refused:
        yield f"{refused}none of its rivals is adequate here."


def _short_of(rival: Rival, of: Plan | Refusal) -> str:
    if rival.sufficient is None:
        return f"can't work here: {rival.refused}"
    n_units = of.n_items * of.n_arms
    return f"would need {usd(rival.sufficient, 2)} for {plural(n_units, 'unit')}"


def _showing(rival: Rival, plan: Plan | Refusal) -> str:
    if rival.refused:
        return _short_of(rival, plan)
    width = "no interval"
    if rival.half_width is not None:
        width = f"\N{PLUS-MINUS SIGN}{number(rival.half_width, places(rival.half_width))}"
    ends = f"{width} with {plural(rival.calls or 0, 'call')} for {usd(rival.spent or 0, 2)}"
    if rival.is_cut:
        ends += ", and more is left"
    if plan.target is None:
        return ends
    if rival.needs is None:
        return f"{ends}; does not reach the target"
    guess = " (extrapolated)" if rival.is_extrapolated else ""
    return f"{ends}; reaches the target at about {usd(rival.needs, 2)}{guess}"
