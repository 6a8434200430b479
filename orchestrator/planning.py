"""`plan`: what a campaign will ask, cost, take and find, by rehearsing it (`engine.rehearse`).

The campaign is carried out with stand-ins for its judges (`stand_ins`), under its cap and without
its target, so that one rehearsal shows the precision that each dollar buys. A campaign of many calls
is rehearsed on a random part of its items with the same part of the money, and scaled up: calls,
money and time as the items, half-widths as the root of their number. The range that a prediction
gets is that of every standard deviation times 0.7 to 1.4: half-widths are proportional to them, so
it is read off the same curve. It is exact for policies and intervals that keep to units, and close
where scores are rounded or intervals end with the scale. What a policy that follows answers does
hangs on chance, so while the effort lasts a campaign is rehearsed several times, and the mean of its
ends is expected.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from decimal import Decimal
from functools import cache
from statistics import fmean
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from estimators.bt_tensor import BtTensorConfig
from estimators.exchangeable import ExchangeableConfig
from estimators.markov_glmm import MarkovGlmmConfig
from estimators.sequence_ends import Scores
from orchestrator.benchmark_plan import (
    FACTORS,
    Assumed,
    Costs,
    ScoreBook,
    arms_of,
    by_method,
    hardest,
    is_answered,
    is_paired,
    likely_half_widths,
    likely_items,
    open_half_width,
    reads_difference,
)
from orchestrator.build import Blueprint, crew_like
from orchestrator.campaign_file import EstimateEntry, Policy
from orchestrator.core.answers import Answers
from orchestrator.core.batches import most_batches
from orchestrator.core.errors import BudgetTooSmall, ConfigError
from orchestrator.core.estimate import Estimate, Status
from orchestrator.core.events import Opened
from orchestrator.core.judge import Judge
from orchestrator.core.money import Nano, parse_usd
from orchestrator.core.ports import Estimator
from orchestrator.core.query import Kind, Role
from orchestrator.core.records import Record
from orchestrator.core.seeds import Seeds, Stream
from orchestrator.core.stopping import StopReason
from orchestrator.core.study import Study
from orchestrator.core.wire import Json
from orchestrator.data import frame_part, units_of
from orchestrator.engine.crew import Crew
from orchestrator.engine.rehearse import Rehearsal, Sight, rehearse
from orchestrator.prices import sheet
from orchestrator.prior import prior_part
from orchestrator.report.planning import (
    PANEL,
    Batches,
    ByMethod,
    JudgePlan,
    Plan,
    Point,
    PriceSheet,
    Range,
    Refusal,
    Rival,
    WholeList,
)
from orchestrator.stand_ins import (
    OTHER_SEED,
    AnswersOf,
    assumptions,
    batch_size,
    dearest_call,
    keeps_order,
    measured_prompts,
    stand_in,
)
from orchestrator.task import KEY
from policies.batch_design import BatchDesignConfig, length_of_block
from policies.subsample import SubsampleConfig

CHANCE = 3.0 * math.sqrt(2.0)
"""A run lies within so many standard deviations of a rehearsal.

Both vary by chance, hence the root; and three, since what is rare and dear (truncations, timeouts)
is seen only a few times, so that its variance is known badly.
"""

ROOMY, FEWEST, FEWEST_FOR_UNITS = 400, 40, 10
"""A part has at least so many items at first, so that a pilot finds room in it; and at the last.

Estimates of single units need fewer.
"""

TAKES = 4
"""A campaign is rehearsed so many times, if the effort allows."""

LAST_UNIT = 0.1
"""The money may be off by this share where the last of many units decides when a target is met."""

SIZED = 0.8
"""A part is chosen so that it likely takes this share of the calls allowed."""

NEARLY = 0.9
"""With systems a rehearsal that was cut shows at least so much of the calls allowed."""

SMALLER = 4
"""A rehearsal that was still too long is done again on a part so many times smaller."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """What is asked of a benchmark's methods besides the campaign's own target and cap.

    Parameters
    ----------
    half_widths : "how many items for ±t, and what do they cost", in units of the scores
    money : "what precision do so many nano-USD buy"
    mean : that scores are taken to have; None: as the rehearsal's
    """

    half_widths: tuple[float, ...] = ()
    money: tuple[int, ...] = ()
    mean: float | None = None


NOTHING_ELSE = Wanted()


def wanted(
    half_widths: Sequence[float], usd: Sequence[str | float | Decimal], mean: float | None
) -> Wanted:
    """Read what is asked of a benchmark's methods.

    Raises
    ------
    ConfigError
        A half-width or an amount of money is no number above 0.
    """
    for width in half_widths:
        if not 0 < width < math.inf:
            raise ConfigError(f"--half-width: wants a number above 0, not {width:g}")
    return Wanted(half_widths=tuple(half_widths), money=tuple(map(_money, usd)), mean=mean)


def _money(usd: str | float | Decimal) -> Nano:
    try:
        amount = parse_usd(usd)
    except ValueError as exc:
        raise ConfigError(f"--usd: {exc}") from exc
    if amount <= 0:
        raise ConfigError(f"--usd: wants dollars above 0, not {usd}")
    return amount


@dataclass(frozen=True, slots=True, kw_only=True)
class Effort:
    """How many calls a plan may rehearse: of the campaign itself, of its list, of all rivals."""

    own: int = 15_000
    whole_list: int = 6_000
    rivals: int = 8_000


THOROUGH = Effort()
QUICK = Effort(own=2_000, whole_list=1_000, rivals=0)
"""What a run can afford before it starts: well below a second."""


def make_plan(
    blueprint: Blueprint,
    *,
    max_in_flight: int | None = None,
    effort: Effort = THOROUGH,
    wanted: Wanted = NOTHING_ELSE,
) -> Plan:
    """Rehearse a campaign and, if the effort allows, its rivals.

    Raises
    ------
    BudgetTooSmall
        The policy can't work with this money.
    ConfigError
        Something is asked of methods, and the campaign's primary estimate has none; or a mean is not
        on the scale.
    """
    theatre = _Theatre(blueprint, max_in_flight)
    campaign = blueprint.file.campaign
    judges = tuple(range(len(campaign.judges)))
    if wanted != NOTHING_ELSE and not theatre.has_methods:
        raise ConfigError(
            "--half-width, --usd and --mean are answered by method, and only an exchangeable primary "
            "estimate of the benchmark, of macro means or of a difference has several; use --set "
            "stop.target_half_width=T, or --budget-usd"
        )
    takes = theatre.takes(_Case(campaign.policy, judges), n_most=effort.own)
    own = takes[0]
    batches = _batches(blueprint, own)
    whole = None if batches else _whole_list(theatre, own, n_most=effort.whole_list)
    target = theatre.target
    ends = [_ends(take, theatre) for take in takes]
    expected = _mean([of_take[1] for of_take in ends])
    beyond = whole if whole is not None and not whole.is_cut else None
    last = theatre.hold(judges)
    needs = _needs(own, judges, theatre, beyond)
    if all(of_take[1].reason is StopReason.PRECISION for of_take in ends):
        needs = needs._replace(money=round(expected.money) + last)
    mine = _shown(own, needs, _own(blueprint))
    rivals = (mine, *_others(theatre, mine, effort.rivals)) if effort.rivals else ()
    cards = blueprint.crew.opened.cards
    return Plan(
        campaign=blueprint.name,
        policy=campaign.policy.kind,
        n_items=blueprint.study.frame.n_items,
        n_arms=blueprint.study.frame.n_arms,
        is_mock=blueprint.is_mock,
        cap=blueprint.crew.opened.cap,
        target=target,
        judges=tuple(
            JudgePlan(
                name=entry.name,
                role=Role.JUDGE if ix in judges else Role.SYSTEM,
                adapter=entry.adapter,
                card=cards[ix],
                price_source=blueprint.prices[ix].source,
                calls=round(expected.calls[ix]),
                by_key=round(
                    own.rehearsal.by_key[ix] * expected.n_told / max(1, own.rehearsal.n_told)
                ),
                expected=round(expected.spent[ix]),
                ceiling=theatre.ceiling(ix),
                concurrency=entry.limits.concurrency,
            )
            for ix, entry in enumerate(blueprint.entries)
        ),
        whole_list=_laid_out(own.rehearsal, batches, judges)
        if batches is not None
        else None
        if beyond is None
        else _listed(beyond.rehearsal),
        spend=_spend(takes, ends, last, blueprint.crew.opened.cap),
        seconds=_between(expected.seconds, [end.seconds for e in ends for end in e]),
        half_width=_widths(takes, ends, theatre),
        predicts_width=theatre.predicts_width,
        batches=batches,
        by_method=_by_method(theatre, own, wanted)
        if theatre.has_methods and effort.rivals
        else None,
        ends_by=expected.reason,
        at_cap=_at_the_end(own),
        needs=needs.money,
        needs_is_extrapolated=needs.is_extrapolated,
        window=blueprint.crew.opened.window,
        max_in_flight=theatre.max_in_flight,
        usable_concurrency=theatre.usable_concurrency(own.rehearsal),
        in_flight=own.rehearsal.in_flight,
        bound_by=own.rehearsal.bound_by,
        curve=tuple(_curve(own.rehearsal)),
        rivals=rivals,
        cheapest=_cheapest(rivals, target),
        assumptions=tuple(assumptions(blueprint, theatre.prompts)),
        prompts=next(iter(theatre.prompts.values()), None),
        sheet=_sheet(blueprint),
        part=own.part,
        notes=tuple(_notes(blueprint, own)),
        policy_says=own.rehearsal.policy,
    )


def make_refusal(blueprint: Blueprint, reason: BudgetTooSmall) -> Refusal:
    """Rehearse the rivals of a policy that can't work with the campaign's money."""
    theatre, campaign = _Theatre(blueprint, None), blueprint.file.campaign
    own = replace(_own(blueprint), refused=str(reason))
    try:
        theatre.check(_Case(campaign.policy, tuple(range(len(campaign.judges)))))
    except BudgetTooSmall as exc:
        own = replace(own, sufficient=exc.sufficient)  # else a single call is too dear
    rivals = [own, *_others(theatre, own, THOROUGH.rivals)]
    return Refusal(
        campaign=blueprint.name,
        n_items=blueprint.study.frame.n_items,
        n_arms=blueprint.study.frame.n_arms,
        is_mock=blueprint.is_mock,
        cap=blueprint.crew.opened.cap,
        target=campaign.stop.target_half_width,
        rivals=tuple(rivals),
        cheapest=_cheapest(rivals, theatre.target),
    )


# --- rehearsing --------------------------------------------------------------------------------


class _Case(NamedTuple):
    """A policy and whom it may ask, as indices of the campaign's judges; money may be no object."""

    policy: Policy
    judges: tuple[int, ...]
    is_capped: bool = True
    take: int = 0
    """Each has a seed of its own."""


class _Sizing(NamedTuple):
    """How half-widths change.

    Attributes
    ----------
    open_ : what missing verdicts leave open, which stays as it is
    shrink : how many times as wide all else is with all items as with a part; None: as the root of their
        number
    factors : and with standard deviations of `FACTORS` times the size
    """

    open_: float = 0.0
    shrink: float | None = None
    factors: tuple[float, ...] = FACTORS

    def times(self, half_width: float, factor: float) -> float:
        """Let a half-width be so many times as long, but for what is open."""
        rest = half_width - self.open_
        return self.open_ + factor * rest if rest > 0 else half_width


_PLAIN = _Sizing()


@dataclass(frozen=True, slots=True, kw_only=True)
class _Seen:
    """A rehearsal in the size of the campaign; `part` of the items took part in it.

    `is_cut`: it was ended for its length, after `n_cut` calls and `spent_cut` nano-USD of the
    campaign's; what follows these goes on as before. `book` holds the scores of a benchmark's items.
    """

    rehearsal: Rehearsal
    part: float
    is_cut: bool
    n_cut: int = 0
    spent_cut: int = 0
    book: ScoreBook | None = None
    sizing: _Sizing


class _More(NamedTuple):
    """What follows after a rehearsal was cut: calls by judge, how long they take, why they end."""

    calls: Sequence[float]
    seconds: float
    reason: StopReason


class _Theatre:
    """Where the cases of one campaign are rehearsed."""

    def __init__(self, blueprint: Blueprint, max_in_flight: int | None) -> None:
        campaign = blueprint.file.campaign
        self.blueprint = blueprint
        n_judges = len(campaign.judges)
        self.systems = tuple(range(n_judges, len(blueprint.entries)))
        self.prompts = measured_prompts(blueprint)
        self.target = campaign.stop.target_half_width
        self.every, self.min_items = campaign.stop.every, campaign.stop.min_items
        self.seeds = Seeds(campaign.seed + OTHER_SEED)
        self.ceiling = cache(lambda judge: dearest_call(blueprint, judge))
        self.max_in_flight = max_in_flight or sum(
            entry.limits.concurrency for entry in blueprint.entries
        )
        self.primary = _aimed_at(_quantity(campaign.primary, campaign.policy))
        # Fits of these at every look would hold a plan up for minutes.
        self.predicts_width = not isinstance(
            self.primary.settings, MarkovGlmmConfig | BtTensorConfig
        )
        settings = self.primary.settings
        self.has_methods = isinstance(settings, ExchangeableConfig) and is_answered(settings)
        self.repeats = _repeats(campaign.policy)
        # A design of batches is laid out on all items: on a part of them it is another one.
        self.is_laid_out = blueprint.study.kind is Kind.RATE_BATCH
        # What a recording lacks is missing of those items alone that are asked about.
        self.keeps_order = keeps_order(blueprint)
        self.takes_parts = not (self.is_laid_out or self.keeps_order)
        self.has_offsets = getattr(self.primary.settings, "target", None) == "common"
        self._order = self.seeds.spawn(Stream.LAYOUT).permutation(_n_clusters(blueprint))

    def takes(self, case: _Case, *, n_most: int) -> list[_Seen]:
        """Rehearse a case, and once more, each time by other chances, while `n_most` calls last."""
        first = self.seen(case, n_most=n_most)
        items = self._items(first.part, 0)
        n_calls = math.ceil(sum(first.rehearsal.calls) * first.part)
        # A design of batches follows no answers, so another take would be the same.
        is_once = first.is_cut or self.is_laid_out
        n_takes = 1 if is_once else min(TAKES, n_most // max(1, n_calls))
        return [
            first,
            *(
                self._on_items(case._replace(take=take), n_most, items)
                for take in range(1, n_takes)
            ),
        ]

    def seen(self, case: _Case, *, n_most: int, to_its_end: bool = True) -> _Seen:
        """Rehearse a case; on a part of the items, if it likely takes more than `n_most` calls.

        With a target the whole is tried first, since a run may meet it long before its money ends.
        What was cut is tried again on smaller parts, if its end is wanted; what is cut on the least
        part is taken to go on as it did.
        """
        likely = self._likely_calls(case)
        part = 1.0 if self._seeks_target(case, n_most) else min(1.0, SIZED * n_most / likely)
        part = 1.0 if likely <= n_most or not self.takes_parts else part
        seen = self._on_items(case, n_most, self._items(part, ROOMY))
        if not to_its_end:
            return seen
        if not self.takes_parts:
            return self._gone_on(case, seen) if seen.is_cut else seen
        while seen.is_cut and not self._shows_enough(case, seen):
            gone_on = self._gone_on(case, seen)
            n_calls = sum(gone_on.rehearsal.calls) * seen.part
            smaller = 1 / SMALLER if gone_on is seen else SIZED * n_most / n_calls
            fewest = FEWEST_FOR_UNITS if _is_per_unit(seen.rehearsal) else FEWEST
            items = self._items(seen.part * min(smaller, SIZED), fewest)
            if len(items) >= seen.part * self.blueprint.study.frame.n_items:
                return gone_on
            before, seen = seen, self._on_items(case, n_most, items)
            if seen.part >= before.part:
                return gone_on
        return seen

    def asked(self, case: _Case) -> tuple[int, ...]:
        """Give all who can be asked, as indices of the campaign's entries: judges, then all systems."""
        return (*case.judges, *self.systems)

    def hold(self, judges: Sequence[int]) -> Nano:
        """Bound what a question holds: a judge's call, and the answers of systems that it reads."""
        blueprint = self.blueprint
        is_pair = blueprint.study.kind is Kind.COMPARE
        n_answers = 2 if is_pair else batch_size(blueprint, judges[0])
        answer = max(map(self.ceiling, self.systems), default=0)
        return Nano(max(map(self.ceiling, judges)) + n_answers * answer)

    @staticmethod
    def _is_common(case: _Case) -> bool:
        return getattr(case.policy.settings, "target", None) == "common"

    def _seeks_target(self, case: _Case, n_most: int) -> bool:
        return case.is_capped and self.target is not None and n_most >= THOROUGH.own

    def _likely_calls(self, case: _Case) -> float:
        """Guess how many calls a case takes: what the money buys, or all repeats of all units."""
        study, cap = self.blueprint.study, self.blueprint.crew.opened.cap
        settings = case.policy.settings
        panel = [study.panel[judge] for judge in case.judges]
        most = getattr(settings, "max_repeats", None)
        fixed = _repeats(case.policy) if isinstance(settings, SubsampleConfig) else None
        repeats = [fixed or min(p.repeats or math.inf, most or math.inf) for p in panel]
        n_items = min(study.frame.n_items, getattr(settings, "max_items", None) or math.inf)
        by_list = n_items * study.frame.n_arms * (sum(repeats) + bool(self.systems))
        price = np.array([p.planning for p in panel], dtype=np.float64)
        if cap is None or not case.is_capped or not price.all():
            by_money = math.inf
        elif not getattr(settings, "weighs_prices", False):
            by_money = cap / price.mean()
        elif self._is_common(case):
            by_money = cap / price.min()  # any judge will do
        else:
            by_money = cap * (price**-0.5).sum() / (price**0.5).sum()
        likely = float(min(by_list, by_money))
        return max(1.0, likely) if math.isfinite(likely) else SMALLER * SIZED * THOROUGH.own

    def usable_concurrency(self, rehearsal: Rehearsal) -> int:
        """Say how many calls can be under way, given what the cap can hold at once."""
        opened = self.blueprint.crew.opened
        most = min(self.max_in_flight, opened.window)
        holds, calls = sum(rehearsal.worst), sum(rehearsal.calls)
        if opened.cap is None or not holds:
            return most
        return min(most, max(1, opened.cap * calls // holds))

    def _shows_enough(self, case: _Case, seen: _Seen) -> bool:
        """Whether the target is reached, for each factor, before the rehearsal was cut."""
        if self.target is None or not case.is_capped:
            return False
        return _end(seen, seen.sizing.factors[-1], self).reason is StopReason.PRECISION

    def _gone_on(self, case: _Case, seen: _Seen) -> _Seen:
        """Let what was cut go on: by what its policy still plans, else until a limit is reached.

        Widths of single units go on to fall as 1/√money; those of means stay, since repeats of the
        same items say less and less.
        """
        made = seen.rehearsal
        if not case.is_capped or len(made.sights) < 2:
            return seen
        money, last = sum(made.spent), made.sights[-1]
        half = min(made.sights, key=lambda sight: abs(2 * sum(sight.spent) - money))
        more, longer_s, reason = self._planned(case, seen, half) or self._at_this_pace(made, half)
        if not any(more):
            return seen
        prices = [
            (now - before) / (n - n_before) if n > n_before else now / max(1, n)
            for now, before, n, n_before in zip(
                made.spent, half.spent, made.calls, half.calls, strict=True
            )
        ]
        calls = tuple(round(n + x) for n, x in zip(made.calls, more, strict=True))
        spent = tuple(
            round(now + x * each) for now, x, each in zip(made.spent, more, prices, strict=True)
        )
        share = sum(calls) / max(1, sum(made.calls))
        narrower = math.sqrt(money / sum(spent)) if _is_per_unit(made) and money else 1.0
        end = replace(
            last,
            n_told=round(made.n_told * share),
            at_s=made.duration_s + longer_s,
            drain_s=0.0,
            calls=calls,
            spent=spent,
            half_width=last.half_width * narrower,
        )
        gone_on = replace(
            made,
            sights=(*made.sights, end),
            n_told=end.n_told,
            calls=calls,
            spent=spent,
            worst=tuple(round(x * share) for x in made.worst),
            by_key=tuple(round(x * share) for x in made.by_key),
            chance_nano=made.chance_nano * math.sqrt(share),
            duration_s=end.at_s,
            stop_reason=reason,
        )
        return replace(seen, rehearsal=gone_on)

    def _planned(self, case: _Case, seen: _Seen, half: Sight) -> _More | None:
        """Read how many calls a policy has planned beyond what it has asked, if it says so."""
        made, names = seen.rehearsal, [p.name for p in self.blueprint.study.panel]
        planned = made.policy.get("to_come")
        if not isinstance(planned, Mapping) or not any(planned.values()):
            return None
        # What a key decides is no call.
        told = _told(made)
        more = [
            planned.get(names[judge], 0) / seen.part * min(1.0, made.calls[k] / max(1, told[k]))
            for k, judge in enumerate(case.judges)
        ]
        # Each system answers its own arm's units, once.
        most = max(planned.values()) / seen.part / _repeats(case.policy)
        more += [most / self.blueprint.study.frame.n_arms] * len(self.systems)
        cap, each = self.blueprint.crew.opened.cap, sum(made.spent) / max(1, sum(made.calls))
        if cap is not None and sum(made.spent) + each * sum(more) > cap:
            return None
        # The judge with most to do ends last, and asks as fast as it did in its busier half.
        paces = [
            max(n / max(half.at_s, 1e-9), (end - n) / max(made.duration_s - half.at_s, 1e-9))
            for n, end in zip(half.calls, made.calls, strict=True)
        ]
        longer_s = max(x / pace if pace else 0.0 for x, pace in zip(more, paces, strict=True))
        return _More(more, longer_s if made.duration_s else 0.0, StopReason.FINISHED)

    def _at_this_pace(self, made: Rehearsal, half: Sight) -> _More:
        """Go on as in the second half until a limit of the campaign is reached."""
        opened, clock = self.blueprint.crew.opened, self.blueprint.file.campaign.budget.wall_clock
        limits = [
            (opened.cap, sum(made.spent), sum(half.spent), StopReason.BUDGET),
            (opened.max_requests, sum(made.calls), sum(half.calls), StopReason.LIMIT),
            (
                self.blueprint.crew.stop.max_answers,
                sum(made.calls),
                sum(half.calls),
                StopReason.LIMIT,
            ),
            (clock, made.duration_s, half.at_s, StopReason.DEADLINE),
        ]
        times, reason = min(
            (
                ((limit - now) / (now - before), reason)
                for limit, now, before, reason in limits
                if limit is not None and now > before
            ),
            default=(0.0, made.stop_reason),
        )
        times = max(0.0, times)
        more = [times * (x - y) for x, y in zip(made.calls, half.calls, strict=True)]
        return _More(more, times * (made.duration_s - half.at_s), reason)

    def _on_items(self, case: _Case, n_most: int, items: NDArray[np.int64]) -> _Seen:
        part = len(items) / self.blueprint.study.frame.n_items
        try:
            rehearsal, is_cut, book = self._rehearse(case, items, n_most, part)
        except (ConfigError, ValueError):
            if part == 1.0:
                raise
            # What the whole allows may not fit a part: a pilot, or money that just suffices.
            return self._on_items(case, n_most, self._items(1.0, 0))
        sizing = _PLAIN if book is None else self._sizing(case, items, rehearsal, book)
        made = _scaled(rehearsal, part, sizing)
        return _Seen(
            rehearsal=made,
            book=book,
            sizing=sizing,
            part=part,
            is_cut=is_cut,
            n_cut=sum(rehearsal.calls),
            spent_cut=sum(made.spent),
        )

    def _sizing(
        self, case: _Case, items: NDArray[np.int64], made: Rehearsal, book: ScoreBook
    ) -> _Sizing:
        """Say how a benchmark's half-widths change with items and spread, by its own method.

        That is reckoned where the target is reached, or at the end without one.
        """
        study, stop = self.blueprint.study, self.blueprint.crew.stop
        found, part = _likely(self, book), len(items) / study.frame.n_items
        if not found:
            return _PLAIN
        config, n = _benchmark_config(self), round(_items_told(self, made) / part)
        like = hardest(config, study, stop, found, half_width=self.target, n=n)
        if self.target is not None:
            n = likely_items(config, study, stop, like, self.target)
        widths = likely_half_widths(config, study, stop, like, n)
        of_part, there = self._study(case, items), max(1, round(n * part))
        as_is = likely_half_widths(config, of_part, stop, like, there)[1]
        open_ = open_half_width(config, study, like)
        if not widths[1] or not as_is:
            return _PLAIN._replace(open_=open_)
        factors = tuple(width / widths[1] for width in widths)
        if part < 1.0 and max(factors) > min(factors):
            factors = FACTORS  # a part is another sample
        return _Sizing(open_=open_, shrink=widths[1] / as_is, factors=factors)

    def _items(self, part: float, fewest: int) -> NDArray[np.int64]:
        """Choose a part of the items at random, whole clusters of them and not too few."""
        cluster = self.blueprint.study.frame.cluster
        wanted = max(part * len(cluster), fewest)
        if wanted >= len(cluster):
            return np.arange(len(cluster))
        sizes = np.bincount(cluster, minlength=len(self._order))[self._order]
        n_clusters = int(np.searchsorted(np.cumsum(sizes), wanted)) + 1
        return np.flatnonzero(np.isin(cluster, self._order[:n_clusters]))

    def check(self, case: _Case) -> None:
        """Build a case's policy for the whole campaign.

        Raises
        ------
        BudgetTooSmall, ConfigError, ValueError
            It can't work with this money, or with this campaign at all.
        """
        study, crew = self.blueprint.study, self.blueprint.crew
        asked = tuple(crew.judges[ix] for ix in self.asked(case))
        items = np.arange(study.frame.n_items)
        made = self._crew(case, asked, self._study(case, items), 1.0, n_most=1)
        made.new_policy(made.opened.cap)

    def _study(self, case: _Case, items: NDArray[np.int64]) -> Study:
        """Give the study of some items and judges, with seeds of its own."""
        study = self.blueprint.study
        frame, is_whole = study.frame, len(items) == study.frame.n_items
        units = units_of(frame, items)
        return replace(
            study,
            frame=frame if is_whole else frame_part(frame, items),
            panel=tuple(study.panel[judge] for judge in case.judges),
            seeds=Seeds(self.seeds.seed + case.take * OTHER_SEED),
            labels=None if study.labels is None else study.labels[units],
            covariates={name: column[units] for name, column in study.covariates.items()},
            prior=prior_part(study, items, case.judges),
        )

    def _of_part(self, primary: EstimateEntry, part: float) -> EstimateEntry:
        """Let a benchmark's estimate aim at what has the same share of a part's items."""
        settings = primary.settings
        if not isinstance(settings, ExchangeableConfig):
            return primary
        target = settings.target_half_width or self.target
        changes: dict[str, object] = {}
        if target is not None:
            changes["target_half_width"] = target / math.sqrt(part)
        if settings.last_look is not None:
            items = max(1, round(settings.last_look.items * part))
            changes["last_look"] = settings.last_look.model_copy(update={"items": items})
        if settings.max_items is not None:
            changes["max_items"] = max(1, round(settings.max_items * part))
        return primary.model_copy(update={"settings": settings.model_copy(update=changes)})

    def _crew(
        self,
        case: _Case,
        judges: tuple[Judge, ...],
        study: Study,
        part: float,
        *,
        n_most: int,
        answers: Answers | None = None,
    ) -> Crew:
        file, primary = self.blueprint.file, self.primary
        if len(judges) < len(self.blueprint.entries) and hasattr(primary.settings, "weights"):
            # A panel's weights are nothing to some of its judges.
            alone = primary.settings.model_copy(update={"weights": None})
            primary = primary.model_copy(update={"settings": alone})
        policy = case.policy
        if part < 1.0:
            primary, policy = self._of_part(primary, part), _of_part(policy, part)
        own = file.campaign.model_copy(
            update={"policy": policy, "estimate": (primary,), "gate": ()}
        )
        opened = self._opened(case, part, n_most)
        if self.keeps_order:
            study = replace(study, seeds=self.blueprint.study.seeds)
        crew = crew_like(replace(file, campaign=own), opened, judges, study, answers)
        if crew.stop.max_answers is not None:
            most = max(1, round(crew.stop.max_answers * part))
            crew = replace(crew, stop=replace(crew.stop, max_answers=most))
        if self.predicts_width:
            return crew
        return replace(crew, new_estimators=lambda _: (_Nothing(),))

    def _opened(self, case: _Case, part: float, n_most: int) -> Opened:
        """Give a part of the campaign the same part of its limits, and of the money that it can spend.

        What a question holds that does not fit is left of the money, whatever the size.
        """
        opened, asked = self.blueprint.crew.opened, self.asked(case)

        def share(amount: int | None, hold: int = 0) -> int | None:
            if amount is None or not case.is_capped:
                return None
            return min(amount, hold + math.ceil((amount - hold) * part))

        def money(amount: int | None, hold: int = 0) -> Nano | None:
            found = share(amount, hold)
            return None if found is None else Nano(found)

        of_judge, of_all = max(map(self.ceiling, case.judges)), self.hold(case.judges)
        holds = {Role.JUDGE: of_judge, Role.SYSTEM: of_all - of_judge}
        role_caps = {role: money(cap, holds[Role(role)]) for role, cap in opened.role_caps.items()}
        most = share(opened.max_requests)
        return replace(
            opened,
            cap=money(opened.cap, of_all),
            judge_caps=tuple(money(opened.judge_caps[ix], self.ceiling(ix)) for ix in asked),
            role_caps={role: cap for role, cap in role_caps.items() if cap is not None},
            cards=tuple(opened.cards[ix] for ix in asked),
            max_requests=n_most if most is None else min(most, n_most),
            max_tok=share(opened.max_tok),
            max_uncertain=money(opened.max_uncertain),
        )

    def _rehearse(
        self, case: _Case, items: NDArray[np.int64], n_most: int, part: float
    ) -> tuple[Rehearsal, bool, ScoreBook | None]:
        blueprint = self.blueprint
        frame = blueprint.study.frame
        units = units_of(frame, items)
        study = self._study(case, items)
        asked, answers = self.asked(case), blueprint.crew.answers
        cast = [stand_in(blueprint, ix, study, units, self.prompts) for ix in asked]
        crew = self._crew(
            case,
            tuple(at.judge for at in cast),
            study,
            part,
            n_most=n_most,
            answers=None if answers is None else AnswersOf(answers, units),
        )
        book: ScoreBook | None = None
        if self.has_methods:
            book = ScoreBook(study, self.primary.settings.criterion, self.repeats)
            crew = replace(crew, new_estimators=_beside(crew.new_estimators, book))
        clock = blueprint.file.campaign.budget.wall_clock
        rehearsal = rehearse(
            crew,
            [at.player for at in cast],
            max_in_flight=self.max_in_flight,
            wall_clock_s=None if clock is None else clock * part,
        )
        # Calls leave out what a key decides, and what is told leaves out what was asked again.
        n_asked = max(sum(rehearsal.calls), sum(_told(rehearsal)))
        least = NEARLY * n_most if self.systems else n_most
        is_cut = rehearsal.stop_reason is StopReason.LIMIT and n_asked >= least
        return rehearsal, is_cut, book


def _told(made: Rehearsal) -> list[int]:
    """Count the questions of each that are told, those that a key decides included."""
    return [a + m for a, m in zip(made.answered, made.missing, strict=True)]


def _beside(
    make: Callable[[Nano | None], tuple[Estimator, ...]], book: ScoreBook
) -> Callable[[Nano | None], tuple[Estimator, ...]]:
    return lambda cap: (*make(cap), book)


def _repeats(policy: Policy) -> int:
    """Say how often each judge is asked about a unit, where that is fixed; else 1."""
    return policy.settings.repeats if isinstance(policy.settings, SubsampleConfig) else 1


def _of_part(policy: Policy, part: float) -> Policy:
    """Let a policy that asks about a number of items ask about the same share of a part's."""
    settings = policy.settings
    if not isinstance(settings, SubsampleConfig) or settings.max_items is None:
        return policy
    most = max(1, round(settings.max_items * part))
    return policy.model_copy(update={"settings": settings.model_copy(update={"max_items": most})})


class _Nothing:
    """An estimator that knows nothing, in the place of one whose widths are not predicted."""

    def update(self, record: Record) -> None:
        """Take in one told question."""

    def estimate(self) -> tuple[Estimate, ...]:
        """Say that nothing is known."""
        return (_UNKNOWN,)


_UNKNOWN = Estimate(
    name="",
    kind="",
    target="",
    estimand="",
    names=(),
    value=(),
    se=(),
    lower=(),
    upper=(),
    level=0.95,
    interval="none",
    watching_covered=False,
    alpha_split="none",
    family="",
    n_items=0,
    n_answers=0,
    status=Status.EMPTY,
)


_QUANTITY = {"per": "arm", "target": None, "weights": None, "calibration": None}
"""Keys of an estimate that say what is estimated, with what holds if the policy leaves them open."""


def _quantity(entry: EstimateEntry, policy: Policy) -> EstimateEntry:
    """Let an estimate be of the same quantity whichever policy serves it."""
    settings = entry.settings
    found = {
        key: getattr(policy.settings, key, None) or default
        for key, default in _QUANTITY.items()
        if key in type(settings).model_fields and getattr(settings, key) is None
    }
    return entry.model_copy(update={"settings": settings.model_copy(update=found)})


def _aimed_at(entry: EstimateEntry) -> EstimateEntry:
    """Leave out what no rehearsal reads of a benchmark's estimate: all but the first and arms' means."""
    settings = entry.settings
    if not isinstance(settings, ExchangeableConfig) or not settings.targets:
        return entry
    first, *others = settings.targets
    read = (first, *(target for target in others if target in {"benchmark", "macro"}))
    return entry.model_copy(update={"settings": settings.model_copy(update={"targets": read})})


def _n_clusters(blueprint: Blueprint) -> int:
    return int(blueprint.study.frame.cluster.max(initial=-1)) + 1


def _scaled(seen: Rehearsal, part: float, sizing: _Sizing) -> Rehearsal:
    """Bring what a part of the items showed to the size of the campaign.

    Widths of single units depend on the money for each unit alone.
    """
    if part == 1.0:
        return seen
    shrink = 1.0 if _is_per_unit(seen) else sizing.shrink or math.sqrt(part)
    # A start and the wait for the last answers take as long whatever the size.
    seconds = {name: share * seen.duration_s for name, share in seen.bound_by.items()}
    fixed = {name: s for name, s in seconds.items() if name == "last" or name.startswith("start:")}
    seconds = {name: fixed.get(name, s / part) for name, s in seconds.items()}
    start_s = sum(fixed.values()) - fixed.get("last", 0.0)
    whole_s = sum(seconds.values())

    def up(numbers: Sequence[int], under_way: Sequence[int] | None = None) -> tuple[int, ...]:
        # As many calls are under way whatever the size.
        still = under_way or [0] * len(numbers)
        return tuple(round((x - y) / part) + y for x, y in zip(numbers, still, strict=True))

    return replace(
        seen,
        sights=tuple(
            replace(
                sight,
                n_told=round(sight.n_told / part),
                at_s=min(sight.at_s, start_s) + max(0.0, sight.at_s - start_s) / part,
                calls=up(sight.calls, sight.untold_calls),
                spent=up(sight.spent, sight.untold_spent),
                half_width=sizing.times(sight.half_width, shrink),
                n_items=round(sight.n_items / part),
            )
            for sight in seen.sights
        ),
        n_told=round(seen.n_told / part),
        calls=up(seen.calls),
        answered=up(seen.answered),
        missing=up(seen.missing),
        by_key=up(seen.by_key),
        spent=up(seen.spent),
        worst=up(seen.worst),
        chance_nano=seen.chance_nano / math.sqrt(part),
        duration_s=whole_s,
        bound_by={name: s / whole_s for name, s in seconds.items()},
    )


def _is_per_unit(seen: Rehearsal) -> bool:
    return bool(seen.estimates) and seen.estimates[0].target == "units"


# --- where a run ends --------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class _End:
    """Where a run would end if half-widths were `factor` times those rehearsed.

    `untold` is the part of the money that is spent on what isn't told.
    """

    reason: StopReason
    n_told: float
    seconds: float
    calls: tuple[float, ...]
    spent: tuple[float, ...]
    half_width: float
    untold: float = 0.0

    @property
    def money(self) -> float:
        """What it has cost, nano-USD."""
        return sum(self.spent)


def _ends(take: _Seen, theatre: _Theatre) -> list[_End]:
    return [_end(take, factor, theatre) for factor in take.sizing.factors]


def _end(seen: _Seen, factor: float, theatre: _Theatre) -> _End:
    """Find the first look at which the target is met; without one, the end of the rehearsal."""
    made, target, before, times = seen.rehearsal, theatre.target, None, seen.sizing.times

    for sight in made.sights:
        is_wide_enough = sight.n_items >= theatre.min_items and math.isfinite(sight.half_width)
        if target is not None and is_wide_enough and times(sight.half_width, factor) <= target:
            # The widest of single units' widths falls in steps, all others steadily.
            start = None if _is_per_unit(made) else before
            end = _crossing(start, sight, times(target, 1 / factor), theatre.every)
            return replace(end, half_width=times(end.half_width, factor))
        before = sight if is_wide_enough else None
    last = made.sights[-1].half_width if made.sights else math.nan
    return _End(
        reason=made.stop_reason,
        n_told=made.n_told,
        seconds=made.duration_s,
        calls=made.calls,
        spent=made.spent,
        half_width=times(last, factor),
    )


def _mean(ends: Sequence[_End]) -> _End:
    """Average the ends of several takes; the reason is that of most."""
    reasons = [end.reason for end in ends]
    return _End(
        reason=max(reasons, key=reasons.count),
        n_told=fmean(end.n_told for end in ends),
        seconds=fmean(end.seconds for end in ends),
        calls=tuple(map(fmean, zip(*(end.calls for end in ends), strict=True))),
        spent=tuple(map(fmean, zip(*(end.spent for end in ends), strict=True))),
        half_width=fmean(end.half_width for end in ends),
    )


def _crossing(before: Sight | None, after: Sight, width: float, every: int) -> _End:
    """Find the look between two at which the width is reached: log width is linear in log n.

    A width that ends at 0, since nothing is left unseen, falls to it evenly.
    """
    share = 1.0
    if before is not None and before.n_told < after.n_told and before.half_width > width:
        if after.half_width > 0:
            fall = math.log(before.half_width / after.half_width)
            far = math.log(before.half_width / width) / fall if fall > 0 else 1.0
            n = before.n_told * (after.n_told / before.n_told) ** far
        else:
            far = 1 - width / before.half_width
            n = before.n_told + far * (after.n_told - before.n_told)
        n = min(after.n_told, math.ceil(n / every) * every)
        share = (n - before.n_told) / (after.n_told - before.n_told)
    start = after if before is None else before

    def at(a: float, b: float) -> float:
        return a + share * (b - a)

    def each(a: Sequence[int], b: Sequence[int]) -> tuple[float, ...]:
        return tuple(at(x, y) for x, y in zip(a, b, strict=True))

    return _End(
        reason=StopReason.PRECISION,
        n_told=at(start.n_told, after.n_told),
        seconds=at(start.at_s + start.drain_s, after.at_s + after.drain_s),
        calls=each(start.calls, after.calls),
        spent=each(start.spent, after.spent),
        half_width=min(width, at(start.half_width, after.half_width)),
        untold=at(sum(start.untold_spent), sum(after.untold_spent)),
    )


def _between(expected: float, values: Sequence[float]) -> Range:
    return Range(low=min(values), expected=expected, high=max(values))


def _spend(
    takes: Sequence[_Seen], ends: Sequence[Sequence[_End]], hold: int, cap: int | None
) -> Range:
    """Give the range of money: by factor and by chance; at a target fewer calls may be under way."""
    low, high = math.inf, 0.0
    for take, of_take in zip(takes, ends, strict=True):
        for end in of_take:
            slack = _slack(end, take, hold, cap)
            low, high = min(low, end.money - slack), max(high, end.money + slack)
        low = min(low, of_take[1].money - of_take[1].untold)
    most = math.inf if cap is None else cap
    expected = fmean(of_take[1].money for of_take in ends)
    return Range(low=max(0.0, low), expected=min(expected, most), high=min(high, most))


def _slack(end: _End, seen: _Seen, hold: int, cap: int | None) -> float:
    """Say how far the money of an end may be off by chance."""
    made = seen.rehearsal
    by_end = 0.0
    if end.reason is StopReason.BUDGET or (cap is not None and cap - end.money <= 2 * hold):
        by_end = hold  # so much can be left when the next question does not fit
    elif end.reason is StopReason.DEADLINE:
        # How many calls fit into a time is a count: its SD is at most about its root.
        by_end = CHANCE * end.money / math.sqrt(max(1.0, sum(end.calls)))
    elif end.reason is StopReason.PRECISION and _is_per_unit(made):
        by_end = LAST_UNIT * end.money
    share = end.money / max(1, sum(made.spent))
    return max(by_end, CHANCE * made.chance_nano * math.sqrt(share))


def _widths(
    takes: Sequence[_Seen], ends: Sequence[Sequence[_End]], theatre: _Theatre
) -> Range | None:
    """Give the range of the half-width; a run that meets its target ends up to a look below it.

    Where a rehearsal was cut, the width may have stayed as it was there, or fallen as 1/√money.
    """
    if not all(math.isfinite(end.half_width) for of_take in ends for end in of_take):
        return None
    expected = fmean(of_take[1].half_width for of_take in ends)
    low, high, target = expected, expected, theatre.target
    for take, of_take in zip(takes, ends, strict=True):
        # More items than were rehearsed may tell more of the judges' offsets.
        fewer = math.sqrt(take.part) if theatre.has_offsets else 1.0
        for factor, end in zip(take.sizing.factors, of_take, strict=True):
            if end.reason is StopReason.PRECISION and target is not None:
                look = math.sqrt(max(0.0, 1.0 - theatre.every / end.n_told))
                low, high = min(low, end.half_width * look), max(high, target)
                continue
            low, high = min(low, end.half_width * fewer), max(high, end.half_width)
            if take.spent_cut < end.money:
                cut = take.sizing.times(_width_at(take.rehearsal, take.spent_cut), factor)
                low = min(low, cut * math.sqrt(take.spent_cut / end.money))
                high = max(high, cut)
    return Range(low=low, expected=expected, high=high)


def _width_at(seen: Rehearsal, money: int) -> float:
    """Give the half-width at the last look up to so much money."""
    widths = [sight.half_width for sight in seen.sights if sum(sight.spent) <= money]
    return widths[-1] if widths else math.inf


def _at_the_end(own: _Seen) -> float | None:
    if own.is_cut or not own.rehearsal.sights:
        return None
    last = own.rehearsal.sights[-1].half_width
    return last if math.isfinite(last) else None


def _curve(seen: Rehearsal) -> Iterator[Point]:
    for sight in seen.sights:
        if math.isfinite(sight.half_width):
            yield Point(sum(sight.spent), sum(sight.calls), sight.at_s, sight.half_width)


# --- the list, and what the target needs -------------------------------------------------------


def _whole_list(theatre: _Theatre, own: _Seen, *, n_most: int) -> _Seen | None:
    """Rehearse the campaign as if money were no object; None if the policy wants money to plan."""
    campaign = theatre.blueprint.file.campaign
    case = _Case(campaign.policy, tuple(range(len(campaign.judges))), is_capped=False)
    try:
        theatre.check(case)
        is_whole = own.rehearsal.stop_reason is StopReason.FINISHED
        return own if is_whole else theatre.seen(case, n_most=n_most)
    except (ConfigError, ValueError):
        return None


def _listed(seen: Rehearsal) -> WholeList:
    return WholeList(calls=sum(seen.calls), expected=sum(seen.spent), worst=sum(seen.worst))


def _laid_out(own: Rehearsal, batches: Batches, judges: Sequence[int]) -> WholeList | None:
    """Give all batches the prices of those that were rehearsed; None where money sets their number.

    Systems answer about each unit once, however many batches read it.
    """
    if batches.is_by_cap:
        return None
    shares = [batches.n_batches / max(1, n) if k in judges else 1 for k, n in enumerate(own.calls)]

    def whole(amounts: Sequence[int]) -> int:
        return round(sum(x * share for x, share in zip(amounts, shares, strict=True)))

    return WholeList(calls=whole(own.calls), expected=whole(own.spent), worst=whole(own.worst))


class _Needs(NamedTuple):
    """The smallest budget that reaches the target; None where none does, or there is no target."""

    money: int | None
    is_extrapolated: bool = False


def _needs(
    seen: _Seen, judges: Sequence[int], theatre: _Theatre, beyond: _Seen | None = None
) -> _Needs:
    """Read off the curve what the target costs; beyond its end, widths fall as 1/√money.

    That holds while new items are asked about, and for estimates of single units; for a mean,
    repeats of the same items buy less, so a run that has seen all items is not extrapolated.
    """
    target = theatre.target
    if target is None:
        return _Needs(None)
    for at in (seen, beyond):
        if at is None:
            continue
        end = _end(at, 1.0, theatre)
        if end.reason is StopReason.PRECISION:
            return _Needs(
                round(end.money) + theatre.hold(judges), at.is_cut and end.money > at.spent_cut
            )
    sights = seen.rehearsal.sights
    all_items = theatre.blueprint.study.frame.n_items
    if not sights or seen.rehearsal.stop_reason is StopReason.FINISHED or beyond is not None:
        return _Needs(None)
    last = sights[-1]
    is_used_up = last.n_items >= all_items and not _is_per_unit(seen.rehearsal)
    if is_used_up or not math.isfinite(last.half_width):
        return _Needs(None)
    return _Needs(round(sum(last.spent) * (last.half_width / target) ** 2), is_extrapolated=True)


# --- rivals ------------------------------------------------------------------------------------


class _Candidate(NamedTuple):
    """A rival by name: its policy as in a campaign file, whom it asks, whose judgment it gives."""

    name: str
    policy: Mapping[str, Json]
    judges: tuple[int, ...]
    whose: str = PANEL


def _candidates(theatre: _Theatre) -> Iterator[_Candidate]:
    """Name the rivals of a campaign's policy: one entry here is all that another one takes.

    All of them ask about one unit a call.
    """
    study = theatre.blueprint.study
    panel = study.panel
    everyone = tuple(range(len(panel)))
    # What is said of a benchmark rests on the order in which its own policy draws.
    is_of_benchmark = isinstance(theatre.primary.settings, ExchangeableConfig)
    if len(panel) > 1 and study.kind is Kind.RATE and not is_of_benchmark:
        yield _Candidate("uniform", {"kind": "uniform"}, everyone)
        anchor = panel[max(everyone, key=lambda j: panel[j].planning)].name
        yield _Candidate("two_phase", {"kind": "two_phase", "anchor": anchor}, everyone, anchor)
        yield _Candidate("est_ivwe", {"kind": "est_ivwe"}, everyone)
        for judge in everyone:
            name = panel[judge].name
            yield _Candidate(f"{name} alone", {"kind": "uniform"}, (judge,), name)


def _own(blueprint: Blueprint) -> Rival:
    """Name the campaign's own policy as one among its rivals."""
    campaign = blueprint.file.campaign
    return Rival(
        name=campaign.policy.kind,
        policy=campaign.policy.kind,
        judges=tuple(judge.name for judge in campaign.judges),
        whose=getattr(campaign.policy.settings, "anchor", PANEL),
    )


def _others(theatre: _Theatre, own: Rival, n_calls: int) -> list[Rival]:
    """Show the rivals of the campaign's own policy.

    Of the single judges the best is shown, and the one whose judgment the campaign is after.
    """
    candidates = [
        candidate
        for candidate in _candidates(theatre)
        if candidate.policy["kind"] != own.policy or len(candidate.judges) == 1
    ]
    rivals = [_rival(theatre, c, n_calls // len(candidates)) for c in candidates]
    alone = [rival for rival in rivals if len(rival.judges) == 1]
    best = min(alone, key=lambda rival: _merit(rival, theatre.target), default=None)
    return [r for r in rivals if r not in alone or r is best or r.whose == own.whose]


def _rival(theatre: _Theatre, candidate: _Candidate, n_calls: int) -> Rival:
    campaign = theatre.blueprint.file.campaign
    rival = Rival(
        name=candidate.name,
        policy=str(candidate.policy["kind"]),
        judges=tuple(campaign.judges[judge].name for judge in candidate.judges),
        whose=candidate.whose,
    )
    settings = dict(candidate.policy)
    if campaign.policy.kind == rival.policy:
        settings = campaign.policy.model_dump(mode="json", exclude_none=True) | settings
    try:
        case = _Case(Policy.model_validate(settings), candidate.judges)
        theatre.check(case)
        # A plan for money shows nothing before its end.
        is_planned = getattr(case.policy.settings, "weighs_prices", False)
        seen = theatre.seen(case, n_most=n_calls, to_its_end=is_planned)
    except BudgetTooSmall as exc:
        return replace(rival, refused=str(exc), sufficient=exc.sufficient)
    except (ConfigError, ValueError) as exc:
        return replace(rival, refused=str(exc))
    return _shown(seen, _needs(seen, candidate.judges, theatre), rival)


def _shown(seen: _Seen, needs: _Needs, rival: Rival) -> Rival:
    """Add what a rehearsal showed."""
    made = seen.rehearsal
    last = made.sights[-1].half_width if made.sights else math.nan
    return replace(
        rival,
        calls=sum(made.calls),
        spent=sum(made.spent),
        half_width=last if math.isfinite(last) else None,
        curve=tuple(_curve(made)),
        is_cut=seen.is_cut and sum(made.spent) <= seen.spent_cut,
        needs=needs.money,
        is_extrapolated=needs.is_extrapolated,
    )


def _merit(rival: Rival, target: float | None) -> tuple[bool, float, float]:
    """Rank: who reaches the target for the least money; without a target, who is most precise."""
    width = math.inf if rival.half_width is None else rival.half_width
    if target is None:
        return bool(rival.refused), width, 0.0
    return rival.needs is None, math.inf if rival.needs is None else rival.needs, width


def _cheapest(rivals: Sequence[Rival], target: float | None) -> str:
    """Name the cheapest policy that reaches the target; without a target, the most precise.

    Only those count that give the judgment which the campaign is after, that of its own policy.
    """
    if not rivals:
        return ""
    able = [
        rival
        for rival in rivals
        if rival.whose == rivals[0].whose
        and (rival.half_width if target is None else rival.needs) is not None
    ]
    best = min(able, key=lambda rival: _merit(rival, target), default=None)
    return "" if best is None else best.name


# --- a benchmark by method -----------------------------------------------------------------------


def _by_method(theatre: _Theatre, own: _Seen, wanted: Wanted) -> ByMethod | None:
    """Answer by method; None where nothing is asked for, or no score was seen."""
    blueprint = theatre.blueprint
    opened, study, stop = blueprint.crew.opened, blueprint.study, blueprint.crew.stop
    campaign = blueprint.file.campaign
    config = _benchmark_config(theatre)
    half_widths = [*([] if theatre.target is None else [theatre.target]), *wanted.half_widths]
    money = [*([] if opened.cap is None else [opened.cap]), *wanted.money]
    assert own.book is not None  # as there are methods
    likely = _likely(theatre, own.book, wanted.mean)
    n_items = _items_told(theatre, own.rehearsal)
    if not likely or not n_items or not (half_widths or money):
        return None
    aim = half_widths[0] if half_widths else None
    assumed = hardest(config, study, stop, likely, half_width=aim, n=round(n_items))
    made = own.rehearsal
    costs = Costs(
        expected=[x / n_items for x in made.spent],
        last=theatre.hold(range(len(campaign.judges))),
        systems=range(len(campaign.judges), len(blueprint.entries)),
        caps=opened.judge_caps,
        role_caps={Role(role): cap for role, cap in opened.role_caps.items()},
    )
    return by_method(
        config,
        study,
        stop,
        assumed,
        costs,
        half_widths=list(dict.fromkeys(half_widths)),
        money=list(dict.fromkeys(money)),
        most_items=getattr(campaign.policy.settings, "max_items", None),
    )


def _benchmark_config(theatre: _Theatre) -> ExchangeableConfig:
    """Complete a benchmark's estimate by what the policy and the stop rule say."""
    campaign, config = theatre.blueprint.file.campaign, theatre.primary.settings
    assert isinstance(config, ExchangeableConfig)
    design = campaign.policy.settings
    left_open = {
        "check": campaign.stop.checking,
        "target_half_width": theatre.target,
        **{key: getattr(design, key, None) for key in ("design", "strata", "repeats", "draw_by")},
    }
    return config.model_copy(
        update={key: value for key, value in left_open.items() if getattr(config, key) is None}
    )


def _items_told(theatre: _Theatre, made: Rehearsal) -> float:
    """Count the items of each arm that a rehearsal came to, with those that it is taken to go on to."""
    study = theatre.blueprint.study
    told = _told(made)[: len(study.panel)]
    gone_on = made.n_told / max(1, sum(told))
    return max(told) * gone_on / study.frame.n_arms / theatre.repeats


def _likely(theatre: _Theatre, book: ScoreBook, mean: float | None = None) -> list[Assumed]:
    """Say what scores are taken to be like, arm by arm, as in a rehearsal; one entry for a difference.

    Empty where some arm has too few.
    """
    blueprint, config = theatre.blueprint, _benchmark_config(theatre)
    study, stop = blueprint.study, blueprint.crew.stop
    arms = arms_of(config, study, stop)
    is_difference = reads_difference(config, stop)
    groups = [arms] if is_paired(config, stop) else [[arm] for arm in arms]
    found = [book.scores(*group) for group in groups]
    known = [scores for scores in found if scores is not None]
    if len(known) < len(found):
        return []
    noises = [[book.noise(arm) for arm in group] for group in groups]
    likely = [
        Assumed(
            scores=scores if mean is None else _with_mean(scores, mean),
            source=_source(blueprint) if mean is None else "option",
            arm=study.frame.arms[group[0]] if len(group) == 1 < study.frame.n_arms else None,
            missing=sum(book.missing(arm) for arm in (arms if is_difference else group)),
            noise=None if None in noise else sum(x or 0.0 for x in noise),
        )
        for scores, group, noise in zip(known, groups, noises, strict=True)
    ]
    # The widths of two intervals add; the wider one speaks for both.
    return [max(likely, key=lambda each: each.scores.sd)] if is_difference else likely


def _with_mean(scores: Scores, mean: float) -> Scores:
    low, high = scores.low, scores.high
    if not low <= mean <= high:
        raise ConfigError(f"--mean: wants a number from {low:g} to {high:g}, not {mean:g}")
    return scores._replace(mean=mean, sd=min(scores.sd, math.sqrt((mean - low) * (high - mean))))


def _source(blueprint: Blueprint) -> str:
    """Say where the scores of a rehearsal come from."""
    adapters = {entry.adapter for entry in blueprint.entries}
    if adapters <= {"recorded", KEY}:
        return "recording" if "recorded" in adapters else "data"
    if blueprint.truth is not None:
        return "data"
    return "mock" if blueprint.is_mock and blueprint.file.campaign.systems else "default"


# --- the rest ----------------------------------------------------------------------------------


def _batches(blueprint: Blueprint, own: _Seen) -> Batches | None:
    """Say how many batches there are, and when they are looked at; None of other policies."""
    design, study = blueprint.file.campaign.policy.settings, blueprint.study
    if not isinstance(design, BatchDesignConfig):
        return None
    opened, length = blueprint.crew.opened, length_of_block(design, study.frame)
    n_batches = most_batches(replace(study, cap=opened.cap), design.blocks, length)
    per_look = opened.looks // len(study.panel)
    return Batches(
        n_batches=n_batches,
        size=design.batch_size or study.frame.n_units,
        block_length=length,
        per_look=per_look,
        n_looks=math.ceil(n_batches / per_look),
        is_by_cap=design.blocks == "auto",
        is_open=own.rehearsal.policy["batches"] is None,
    )


def _sheet(blueprint: Blueprint) -> PriceSheet | None:
    """Say which price sheet is in force, where some judge is priced by it."""
    if not any(price.source.startswith("genai-prices") for price in blueprint.prices):
        return None
    now = datetime.now(UTC)
    found = sheet(now)
    age = None if found.newest is None else (now.date() - found.newest).days
    return PriceSheet(name=found.version, newest=found.newest, age_days=age)


def _notes(blueprint: Blueprint, own: _Seen) -> Iterator[str]:
    campaign = blueprint.file.campaign
    if own.part < 1.0:
        yield f"rehearsed on {own.part:.1%} of the items and scaled up"
    if own.is_cut:
        more = sum(own.rehearsal.spent) > own.spent_cut
        how = "; the rest is taken to go on like that" if more else ""
        yield f"the rehearsal was ended after {own.n_cut:,} calls{how}"
    if campaign.stop.when != "target":
        yield f"stop.when: {campaign.stop.when} may end the run earlier; that is not predicted"
    if campaign.cache is not None:
        yield "the cache is not counted: what is kept from earlier runs costs nothing"
    if isinstance(campaign.primary.settings, MarkovGlmmConfig):
        yield (
            "half-widths of markov_glmm are not predicted: they hang on the judge's memory and on how "
            "far qualities are spread, which only a run shows"
        )
    if isinstance(campaign.primary.settings, BtTensorConfig):
        yield (
            "half-widths of bt_tensor are not predicted; make bradley_terry the primary estimate to have "
            "those of strengths over all categories"
        )
    for price in blueprint.prices:
        yield from price.notes
    for entry, n_calls in zip(blueprint.entries, own.rehearsal.calls, strict=True):
        if not n_calls and entry.adapter != KEY:
            yield f"{entry.name} is never asked"
