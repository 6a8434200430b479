"""Cheap helpers on all items, the anchor on a random part of them: means and differences of arms."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Annotated, ClassVar, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict, Discriminator, PositiveInt, Tag

from estimators.cells import Scoring
from estimators.score_means import Contrast
from orchestrator.core.budget import BudgetView
from orchestrator.core.events import (
    Asked,
    CapChanged,
    Declined,
    JudgeDown,
    JudgeUp,
    Parked,
    PriceChanged,
)
from orchestrator.core.ids import JudgeIx, QNo, UnitIx
from orchestrator.core.ports import FINISH, PAUSE, Plugin, PolicyEvent, Turn
from orchestrator.core.query import Judged, Kind, Missing, Purpose, Query
from orchestrator.core.records import Record
from orchestrator.core.seeds import Stream
from orchestrator.core.study import Study
from orchestrator.core.wire import Json
from policies.order import Strata, unit_order

Array = NDArray[np.float64]


class TwoPhaseConfig(BaseModel):
    """Settings of `two_phase`.

    `anchor` is the judge whose mean is wanted. `helpers` are those that a pilot on `pilot_items`
    items may choose from; `auto`: all other judges. `contrast` and `criterion` say in which
    quantity helpers are tried; None: those of the primary estimate. `strata` as in `uniform`. No
    question is repeated.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    max_repeats: ClassVar[int] = 1

    kind: Literal["two_phase"]
    anchor: str
    helpers: Annotated[
        Annotated[Literal["auto"], Tag("word")] | Annotated[tuple[str, ...], Tag("list")],
        Discriminator(lambda value: "list" if isinstance(value, list | tuple) else "word"),
    ] = "auto"
    pilot_items: PositiveInt = 60
    strata: Strata = "proportional"
    contrast: Contrast | None = None
    criterion: str | None = None


# --- whether a helper pays, and how the money is split -------------------------------------------


def needed_correlation(price_ratio: float) -> float:
    """Give the correlation with the anchor above which a helper pays: 2√r/(1 + r).

    With items without end, the best split of a budget over anchor and helper has the variance
    (√(1 - R²) + |R| √r)² times that of the anchor alone, which is below 1 exactly above this bar.

    Parameters
    ----------
    price_ratio : r, the helper's price over the anchor's

    Source: [C77] chapter 12, the optimum of double sampling for regression, solved for R.
    """
    return 2 * math.sqrt(price_ratio) / (1 + price_ratio) if price_ratio < 1 else 1.0


class Split(NamedTuple):
    """Items to anchor, items to show to the helpers, and the variance, in units of S², that gives."""

    n_anchor: float
    n_items: float
    variance: float


def best_split(
    r2: float,
    anchor: float,
    helpers: float,
    money: float,
    *,
    n_items: int,
    n_anchored: int = 0,
    helped: float = 0.0,
    n_reached: int = 0,
) -> Split:
    """Split money over n anchored of n' helped items: least (1 - R²)/n + R²/n'.

    Without bounds n/n' = √((1 - R²)/R² · helpers/anchor). n' is at most all items, and what is
    spent already can't be taken back; the variance is convex along the budget, so the nearest
    split within the bounds is the best one.

    Parameters
    ----------
    r2 : share of the anchor's variance that the helpers explain; 0: the anchor alone
    anchor, helpers : price of an item, nano-USD; helpers: of all of them together
    money : left to spend, nano-USD
    n_items : items there are
    n_anchored, helped : anchored already, and worth of what these helpers have rated, nano-USD
    n_reached : n' is at least this many

    Source: [C77] chapter 12, the optimum of double sampling for regression; the bounds are ours.
    """
    money = max(0.0, money)
    if r2 <= 0:
        n = min(n_items, n_anchored + money / anchor) if anchor > 0 else float(n_items)
        return Split(n, n, 1 / n if n else math.inf)
    for_helpers = money + helped
    most = for_helpers / helpers if helpers > 0 else math.inf
    if anchor <= 0 or most < n_reached * (1 - _ROUNDING):
        return Split(n_anchored, n_reached, math.inf)
    ratio = min(1.0, math.sqrt((1 - r2) / r2 * helpers / anchor))
    purse, per_item = for_helpers + anchor * n_anchored, anchor * ratio + helpers
    best = purse / per_item if per_item > 0 else math.inf
    wide = min(n_items, max(n_reached, min(best, most)))
    n = min(wide, max(n_anchored, (purse - helpers * wide) / anchor))
    return Split(n, wide, (1 - r2) / n + r2 / wide if n else math.inf)


_ROUNDING = 1e-9
"""Relative error that sums and quotients of money may have."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Tried:
    """What the pilot says of one helper, `n` values seen by both judges."""

    judge: JudgeIx
    n: int
    correlation: float
    price_ratio: float

    @property
    def needed(self) -> float:
        return needed_correlation(self.price_ratio)

    @property
    def pays(self) -> bool:
        return abs(self.correlation) > self.needed  # nan does not

    def as_json(self, names: Sequence[str]) -> dict[str, Json]:
        return {
            "judge": names[self.judge],
            "n": self.n,
            "correlation": _number(self.correlation),
            "needed": _number(self.needed),
            "price_ratio": _number(self.price_ratio),
            "pays": self.pays,
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class _Plan:
    """What follows from the pilot: helpers, why, and items planned.

    `gain` is by how much narrower the interval is predicted to be than the anchor's alone for the
    same money, as a share.
    """

    helpers: tuple[JudgeIx, ...] = ()
    why: str
    split: Split
    r2: float = 0.0
    gain: float = 0.0
    tried: tuple[_Tried, ...] = ()

    def sentences(self, names: Sequence[str]) -> Iterator[str]:
        """Say what was found and chosen."""
        for t in self.tried:
            verdict = "it pays" if t.pays else "it does not pay"
            known = "not measurably" if math.isnan(t.correlation) else f"{t.correlation:.2f}"
            yield (
                f"Helper {names[t.judge]} correlates {known} with the anchor and its "
                f"price asks for {t.needed:.2f}: {verdict}."
            )
        if self.helpers:
            chosen = " and ".join(names[j] for j in self.helpers)
            yield (
                f"With {chosen} the interval is predicted to be {self.gain:.0%} narrower than with "
                "the anchor alone for the same money."
            )
        else:
            yield f"The anchor is asked alone: {self.why}."


# --- the policy ----------------------------------------------------------------------------------


@dataclass(slots=True)
class _Seat:
    """Where one judge stands in the order of units, what it costs, and whether it can be asked.

    `calls` and `paid` (nano-USD) give its price; `end` is where its part of the order ends.
    """

    judge: JudgeIx
    account: str
    planning: int
    end: int
    at: int = 0
    returned: deque[Query] = field(default_factory=deque)
    n_open: int = 0
    n_told: int = 0
    n_piloted: int = 0
    calls: int = 0
    paid: float = 0.0
    is_wanted: bool = True
    is_down: bool = False
    is_gone: bool = False
    is_declined: bool = False
    is_silent: bool = False
    """Whether it gave no valid answer in the whole pilot."""

    @property
    def is_lost(self) -> bool:
        """Whether it can't be asked any more, unless something changes."""
        return self.is_gone or self.is_declined or self.is_silent

    @property
    def has_work(self) -> bool:
        """Whether it is wanted for more, now or later."""
        return self.is_wanted and not self.is_lost and bool(self.returned or self.at < self.end)

    @property
    def price(self) -> float:
        """What a call is expected to cost; of a free judge, its shadow price."""
        return self.paid / self.calls if self.paid else float(self.planning)


class TwoPhase:
    """Asks helpers about all items and the anchor about a random part, if helpers pay.

    A pilot asks the anchor and every candidate about the first items of the seeded order. Then
    each helper is tried: it pays only if its correlation with the anchor, in the quantity that is
    estimated (differences of the two arms within items for a paired contrast, else scores within
    arms), is above `needed_correlation`. Among those that pay, helpers are added one at a time as
    long as the predicted variance at the budget falls. If none pays, or if the money left lets the
    anchor rate everything, the anchor goes on alone; `explain` gives the figures.

    After the pilot every item gets the chosen helpers, and the anchor takes n of n' items, drawn
    systematically within each stratum, so that also a run cut short is a two-phase sample: the
    helpers' items in a random order, of which the anchor's are a random part. The anchor's
    questions carry n/n' as propensity, those of the pilot the pilot's share of all items, helpers'
    1. If money is left when the helpers are through, the anchor rates what it left out, and the
    design is complete: repeats say little about means of arms.

    All arms of an item stand together, one repeat each; what is missing stays missing. Helpers
    alone can't estimate the anchor's mean, so losing the anchor, or money for it, ends the design;
    when a helper is lost or the cap changes, the pilot's figures decide again, and anchored items
    only become more.

    Draws from `stream(POLICY, 0)` and `stream(POLICY, 0, 1)`.

    Raises
    ------
    ValueError
        The study asks for something else than one unit a question, or lacks a judge, arm or
        criterion that the config names.
    """

    def __init__(self, config: TwoPhaseConfig, study: Study) -> None:
        if study.kind not in {Kind.RATE, Kind.CHECK}:
            raise ValueError(f"two_phase asks about one unit at a time; the task is {study.kind}")
        self._study = study
        self._frame = frame = study.frame
        self._names = tuple(p.name for p in study.panel)
        self._scoring = Scoring(study, config.criterion)
        self._arms = _paired_arms(config.contrast, frame.arms)
        anchor, candidates = _judges(config, self._names)
        n_pilot = min(config.pilot_items, frame.n_items) if candidates else 0
        self._n_pilot = n_pilot
        self._units = unit_order(study, 0, strata=config.strata)
        labels = frame.stratum if config.strata == "proportional" else np.zeros_like(frame.stratum)
        self._strata = labels[np.array(self._units[:: frame.n_arms]) // frame.n_arms]
        self._phase = study.seeds.stream(Stream.POLICY, 0, 1).random()
        self._seats = {
            j: _Seat(
                j,
                account=f"judge:{self._names[j]}",
                planning=study.panel[j].planning,
                end=n_pilot * frame.n_arms,
            )
            for j in (anchor, *candidates)
        }
        self._anchor = self._seats[anchor]
        self._candidates = [self._seats[j] for j in candidates]
        self._pilot_place = {unit: t for t, unit in enumerate(self._units[: self._anchor.end])}
        self._scores = np.full((len(self._names), self._anchor.end), np.nan)
        self._cap = study.cap
        self._spent = 0
        self._open: dict[QNo, Query] = {}
        self._is_broke = False
        self._plan: _Plan | None = None
        self._is_chosen = [True] * frame.n_items
        """Whether the anchor takes the item at this place of the order on its first way through."""
        self._passed: list[int] = []
        """Places of items that it left out."""
        if not candidates:
            self._decide()

    # --- asking ---------------------------------------------------------------------------------

    def ask(self, view: BudgetView) -> Query | Turn:  # noqa: ARG002 - money is the engine's business
        """Propose the next question of the judge that is furthest behind."""
        if self._is_broke or self._anchor.is_lost:
            return FINISH
        wanted = [seat for seat in self._seats.values() if seat.has_work]
        up = [seat for seat in wanted if not seat.is_down]
        if up:
            return self._next(min(up, key=lambda seat: (not seat.returned, seat.at)))
        # What is outstanding may still come back unasked, and the pilot's answers decide.
        return PAUSE if wanted or self._open else FINISH

    def _next(self, seat: _Seat) -> Query:
        if seat.returned:
            return seat.returned[0]
        is_pilot = seat.at < self._n_pilot * self._frame.n_arms
        return Query(
            kind=self._study.kind,
            judge=seat.judge,
            units=(UnitIx(self._units[self._place(seat.at)]),),
            propensity=self._propensity(seat, is_pilot=is_pilot),
            purpose=Purpose.PILOT if is_pilot else Purpose.POLICY,
        )

    def _place(self, at: int) -> int:
        """Give the place in the order; after the order's end come the items that were left out."""
        n_units, n_arms = len(self._units), self._frame.n_arms
        if at < n_units:
            return at
        item, arm = divmod(at - n_units, n_arms)
        return self._passed[item] * n_arms + arm

    def _propensity(self, seat: _Seat, *, is_pilot: bool) -> float:
        if is_pilot:
            return self._n_pilot / self._frame.n_items
        is_drawn = seat is self._anchor and seat.at < len(self._units)
        if is_drawn and self._plan is not None and self._plan.helpers:
            return self._plan.split.n_anchor / self._plan.split.n_items
        return 1.0

    # --- being told -----------------------------------------------------------------------------

    def tell(self, event: PolicyEvent) -> None:
        """Follow what was asked, what came back and what it cost; decide when the pilot is over."""
        match event:
            case Asked(q=q, query=query):
                self._open[q] = query
                seat = self._seats[query.judge]
                seat.n_open += 1
                self._advance(seat, query)
            case Record():
                self._told(event)
            case Parked(q=q):
                query = self._open.pop(q)
                seat = self._seats[query.judge]
                seat.n_open -= 1
                seat.returned.append(query)
            case Declined(query=query, account=account):
                seat = self._seats[query.judge]
                if account == seat.account:
                    seat.is_declined = True
                    self._decide()
                else:
                    self._is_broke = True
            case CapChanged(cap=cap):
                self._cap = cap
                self._forget_declined()
            case PriceChanged(judge=judge):
                if (changed := self._seats.get(judge)) and changed.paid:
                    # From now on calls at the new price decide; all earlier ones weigh as one.
                    changed.calls, changed.paid = 1, changed.price
                self._forget_declined()
            case JudgeDown(judge=judge, until=until) if judge in self._seats:
                self._move(self._seats[judge], is_down=True, is_gone=until is None)
            case JudgeUp(judge=judge) if judge in self._seats:
                self._move(self._seats[judge], is_down=False, is_gone=False)
            case _:
                pass

    def _told(self, record: Record) -> None:
        query, outcome = self._open.pop(record.q), record.outcome
        seat = self._seats[query.judge]
        uncertain = outcome.uncertain if isinstance(outcome, Missing) else 0
        charge = outcome.cost + uncertain
        seat.n_open -= 1
        seat.n_told += 1
        seat.calls += 1
        seat.paid += charge
        self._spent += charge
        if query.purpose is Purpose.PILOT:
            seat.n_piloted += 1
            if isinstance(outcome, Judged):
                for unit, score in self._scoring.of_answer(query.units, outcome.observations):
                    if score is not None:
                        self._scores[query.judge, self._pilot_place[unit]] = score
            if self._plan is None:
                self._decide()

    def _advance(self, seat: _Seat, query: Query) -> None:
        """Move a judge past its question, and the anchor past the items it leaves out."""
        if seat.returned and query == seat.returned[0]:
            seat.returned.popleft()
            return
        seat.at += 1
        if seat is self._anchor:
            self._skip()

    def _skip(self) -> None:
        n_arms, n_items = self._frame.n_arms, self._frame.n_items
        item, arm = divmod(self._anchor.at, n_arms)
        if arm or item >= n_items or self._is_chosen[item]:
            return
        start = item
        while item < n_items and not self._is_chosen[item]:
            item += 1
        self._passed.extend(range(start, item))
        self._anchor.at = item * n_arms
        self._anchor.end = (n_items + len(self._passed)) * n_arms

    def _forget_declined(self) -> None:
        self._is_broke = False
        for seat in self._seats.values():
            seat.is_declined = False
        self._decide()

    def _move(self, seat: _Seat, *, is_down: bool, is_gone: bool) -> None:
        was_gone, seat.is_down, seat.is_gone = seat.is_gone, is_down, is_gone
        if is_gone != was_gone:
            self._decide()

    # --- deciding -------------------------------------------------------------------------------

    def _decide(self) -> None:
        """Once all pilot answers are told, plan what comes; plan again when something changed.

        A judge that was lost in its pilot is not waited for, and is no candidate afterwards.
        """
        n_pilot_units = self._n_pilot * self._frame.n_arms
        if self._anchor.n_piloted < n_pilot_units:
            return
        # More money would buy more of the same.
        seen = self._scores[self._anchor.judge]
        self._anchor.is_silent = self._n_pilot > 0 and bool(np.isnan(seen).all())
        if self._anchor.is_silent:
            return
        live = [seat for seat in self._candidates if not seat.is_lost]
        if self._plan is None and any(seat.n_piloted < n_pilot_units for seat in live):
            return
        self._plan = self._planned([s for s in live if s.n_piloted == n_pilot_units])
        for seat in self._candidates:
            seat.is_wanted = seat.judge in self._plan.helpers
            seat.end = len(self._units)
        self._anchor.end = len(self._units) + len(self._passed) * self._frame.n_arms
        self._choose_anchored(self._plan.split, self._plan.helpers)
        self._skip()

    def _planned(self, live: Sequence[_Seat]) -> _Plan:
        """Choose the helpers, and how many items to anchor."""
        tried = tuple(self._try(seat) for seat in live)
        money = self._money()
        n_items, alone = self._frame.n_items, self._split((), 0.0, money)
        if alone.n_anchor >= n_items:
            cause = "there is no cap" if money is None else "the money lets it"
            return _Plan(why=f"the anchor rates every item: {cause}", split=alone, tried=tried)
        paying = [t.judge for t in tried if t.pays]
        if not paying:
            why = "no helper correlates with the anchor as its price demands"
            return _Plan(why=why if tried else "there is no helper", split=alone, tried=tried)
        chosen: tuple[JudgeIx, ...] = ()
        best, r2 = alone, 0.0
        while rest := [j for j in paying if j not in chosen]:
            more = []
            for j in rest:
                explained = _explained(self._quantity((self._anchor.judge, *chosen, j)))
                more.append((self._split((*chosen, j), explained, money), explained, j))
            split, explained, j = min(more, key=lambda option: option[0].variance)
            if not split.variance < best.variance:
                break
            chosen, best, r2 = (*chosen, j), split, explained
        if not chosen:
            why = "helpers pay by their price, but not on so few items with this money"
            return _Plan(why=why, split=alone, tried=tried)
        return _Plan(
            helpers=chosen,
            why="helpers say more for the money than the anchor's own verdicts would",
            split=best,
            r2=r2,
            gain=1 - math.sqrt(best.variance / alone.variance),
            tried=tried,
        )

    def _try(self, seat: _Seat) -> _Tried:
        values = self._quantity((self._anchor.judge, seat.judge))
        ratio = seat.price / self._anchor.price if self._anchor.price > 0 else math.inf
        n = values.table.shape[1]
        return _Tried(
            judge=seat.judge, n=n, correlation=_correlation(values.table), price_ratio=ratio
        )

    def _money(self) -> float | None:
        """Give what is left once all that is outstanding has cost what it is expected to."""
        if self._cap is None:
            return None
        return self._cap - self._spent - sum(s.n_open * s.price for s in self._seats.values())

    def _split(self, helpers: Sequence[JudgeIx], r2: float, money: float | None) -> Split:
        n_arms, n_items = self._frame.n_arms, self._frame.n_items
        if money is None:
            return Split(n_items, n_items, 1 / n_items)
        seats = [self._seats[j] for j in helpers]
        place, arm = divmod(min(self._anchor.at, len(self._units)), n_arms)
        return best_split(
            r2,
            self._anchor.price * n_arms,
            sum(seat.price for seat in seats) * n_arms,
            money,
            n_items=n_items,
            n_anchored=self._n_anchored(),
            helped=sum(seat.price * seat.at for seat in seats),
            n_reached=place + (arm > 0),
        )

    def _n_anchored(self) -> int:
        """Count the items that the anchor has been asked about, one under way included."""
        return -(-self._anchor.at // self._frame.n_arms) - len(self._passed)

    def _choose_anchored(self, split: Split, helpers: Sequence[JudgeIx]) -> None:
        """Draw which of the items ahead the anchor takes: systematically, stratum by stratum.

        The items ahead are put in a row by stratum, in their order within it. One in so many is
        taken, from a random start: each with the same probability, each stratum in proportion,
        and along the order evenly. Taken along the order itself, in which strata alternate, one in
        two could be a single stratum.
        """
        start = -(-self._anchor.at // self._frame.n_arms)
        if start >= self._frame.n_items:
            return
        ahead = round(split.n_items) - start
        more = int(split.n_anchor + _ROUNDING) - self._n_anchored()
        if not helpers or ahead <= 0 or more >= ahead:
            more = ahead = 1
        rest = np.arange(start, self._frame.n_items)
        row = np.argsort(self._strata[rest], kind="stable")
        steps = np.arange(len(rest) + 1) * more + int(self._phase * ahead)
        taken = np.empty(len(rest), dtype=bool)
        taken[row] = np.diff(steps // ahead) > 0
        self._is_chosen[start:] = taken.tolist()

    # --- the quantity that is estimated ---------------------------------------------------------

    def _quantity(self, judges: Sequence[JudgeIx]) -> _Quantity:
        """Give what the pilot says of the quantity, where all these judges have it.

        Items in the order of the pilot; scores are brought to items x arms first.
        """
        n_arms = self._frame.n_arms
        units = np.array(self._units[: self._scores.shape[1]])
        by_arm = np.argsort(units % n_arms, kind="stable")
        arms = self._scores[list(judges)][:, by_arm].reshape(len(judges), n_arms, -1)
        if self._arms is not None:
            arms = (arms[:, self._arms[0]] - arms[:, self._arms[1]])[:, None]
        known = ~np.isnan(arms).any(axis=0)
        parts = [arms[:, a, known[a]] for a in range(len(known)) if known[a].any()]
        if not parts:
            return _Quantity(np.empty((len(judges), 0)), 0)
        centred = [part - part.mean(axis=1, keepdims=True) for part in parts]
        return _Quantity(np.concatenate(centred, axis=1), len(parts))

    # --- explaining -----------------------------------------------------------------------------

    def explain(self) -> Mapping[str, Json]:
        """Say which helpers were tried and chosen, with the figures that decided."""
        asked = {
            self._names[seat.judge]: seat.n_open + seat.n_told for seat in self._seats.values()
        }
        about: dict[str, Json] = {"anchor": self._names[self._anchor.judge], "asked": asked}
        plan = self._plan
        if self._anchor.is_lost:
            cause = "gave no valid answer in the pilot" if self._anchor.is_silent else "is lost"
            why = f"the anchor {cause}, and helpers can't replace it"
            return about | {"phase": "over", "why": why, "says": [f"The run is over: {why}."]}
        if plan is None:
            return about | {"phase": "pilot", "pilot_items": self._n_pilot}
        return about | {
            "phase": "two_phase" if plan.helpers else "anchor_alone",
            "pilot_items": self._n_pilot,
            "helpers": [self._names[j] for j in plan.helpers],
            "why": plan.why,
            "says": list(plan.sentences(self._names)),
            "tried": [t.as_json(self._names) for t in plan.tried],
            "r2": plan.r2,
            "planned": {
                "anchor_items": round(plan.split.n_anchor),
                "helper_items": round(plan.split.n_items) if plan.helpers else 0,
            },
            "predicted_gain": plan.gain,
            "lost": [self._names[s.judge] for s in self._candidates if s.is_lost],
        }


class _Quantity(NamedTuple):
    """Values (n_judges, n), centred within each of `n_groups` arms."""

    table: Array
    n_groups: int


def _correlation(table: Array) -> float:
    """Correlate two rows of centred values; nan where one of them does not vary."""
    xx, yy = (table * table).sum(axis=1)
    return (
        float((table[0] * table[1]).sum() / math.sqrt(xx * yy)) if xx > 0 and yy > 0 else math.nan
    )


def _explained(quantity: _Quantity) -> float:
    """Give the share of the first row's variance that the others explain, corrected for chance.

    1 - (1 - R²)(n - g)/(n - g - m), with g means and m slopes estimated; never below 0.
    """
    (y, *others), g = quantity
    whole, df = float((y * y).sum()), len(y) - g
    if whole <= 0 or df <= len(others):
        return 0.0
    x = np.stack(others, axis=1)
    slopes = np.linalg.lstsq(x, y, rcond=None)[0]
    left = y - x @ slopes
    return max(0.0, 1 - float((left * left).sum()) / whole * df / (df - len(others)))


def _paired_arms(contrast: Contrast | None, arms: Sequence[str]) -> tuple[int, int] | None:
    if contrast is None or not contrast.paired:
        return None
    for name in (contrast.arm, contrast.baseline):
        if name not in arms:
            raise ValueError(f"contrast: no arm {name!r} among {', '.join(arms)}")
    if contrast.arm == contrast.baseline:
        raise ValueError(f"contrast: {contrast.arm!r} is compared with itself")
    return arms.index(contrast.arm), arms.index(contrast.baseline)


def _judges(config: TwoPhaseConfig, names: Sequence[str]) -> tuple[JudgeIx, tuple[JudgeIx, ...]]:
    """Number the anchor and the candidates."""
    listed = (
        [n for n in names if n != config.anchor] if config.helpers == "auto" else config.helpers
    )
    for name in (config.anchor, *listed):
        if name not in names:
            raise ValueError(f"two_phase: no judge {name!r} among {', '.join(names)}")
    if config.anchor in listed:
        raise ValueError(f"two_phase: {config.anchor!r} is the anchor and can't help itself")
    candidates = dict.fromkeys(JudgeIx(names.index(name)) for name in listed)
    return JudgeIx(names.index(config.anchor)), tuple(candidates)


def _number(x: float) -> float | None:
    return x if math.isfinite(x) else None


PLUGIN = Plugin(config=TwoPhaseConfig, build=TwoPhase)
