"""From a log to what a report says: one pass, counters only, however long the log is."""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from orchestrator.core.errors import CorruptLog
from orchestrator.core.estimate import Estimate, Status
from orchestrator.core.events import (
    LOST,
    Arrived,
    Asked,
    CapChanged,
    Commanded,
    Declined,
    Event,
    Forfeited,
    JudgeDown,
    JudgeUp,
    Late,
    LimitReached,
    Looked,
    Opened,
    Parked,
    PriceChanged,
    Reasked,
    Reopened,
    Started,
    Stopped,
    Told,
    Withdrawn,
)
from orchestrator.core.gate import Gate, judge
from orchestrator.core.money import Nano
from orchestrator.core.ports import Row
from orchestrator.core.query import (
    Judged,
    Kind,
    Missing,
    MissingReason,
    Outcome,
    Preference,
    Purpose,
    Query,
    Role,
)
from orchestrator.core.records import Join, Open
from orchestrator.core.scale import ScaleType
from orchestrator.core.stopping import StopReason
from orchestrator.core.wire import Json, Origin
from orchestrator.report.agreement import METRICS, Array, Verdicts, alpha, with_others
from orchestrator.report.data import (
    Agreement,
    ArmTally,
    Bound,
    Charge,
    Counts,
    Fate,
    JudgeTally,
    Look,
    Outage,
    PlaceEffect,
    Point,
    Preferences,
    Ranged,
    Refusal,
    ReportData,
    Scores,
    Spend,
    State,
    Steered,
    Suspected,
    Times,
    state_of,
)
from orchestrator.report.pairs import Pairs
from orchestrator.report.places import Places, holm
from orchestrator.report.slots import Slots
from orchestrator.report.strata import Strata
from orchestrator.report.wording import printable


def summarise(
    rows: Iterable[Row],
    *,
    fingerprint: str = "",
    run: str = "",
    unstopped: State = State.INTERRUPTED,
    get_blob: Callable[[str], bytes | None] | None = None,
) -> ReportData:
    """Fold a log into what is reported of it.

    Parameters
    ----------
    rows : the log from its first row, as a store reads it; read once
    fingerprint : hex head of the decision chain at the last `Stopped`, which only the store knows
    run : the run's id
    unstopped : what a log without a stop means: the process runs, was interrupted, or failed
    get_blob : gives what a store keeps, so that items can be named; without it they have numbers

    Raises
    ------
    CorruptLog
        The log does not begin with `Opened`.
    """
    rows = iter(rows)
    first = next(rows, None)
    if first is None or not isinstance(first.event, Opened):
        raise CorruptLog("the log does not begin with the opening of a run", seq=1)
    fold = _Fold(first.event, first.at, Strata.of(first.event.identity, get_blob))
    for row in rows:
        fold.take(row.at, row.event)
    data = fold.result(fingerprint, run, unstopped)
    suspected = fold.suspected(fold.item_names(get_blob))
    return replace(data, suspected=tuple(suspected)) if suspected else data


_KEPT_LOOKS = 2000
_KEPT_MODELS = 8
_DETAIL_CHARS = 200
_KEPT_FLAGS = 50
_KEPT_OUTAGES = 20
_KEPT_KINDS = 64
_KEPT_COMMANDS = 100
_REASON_CHARS = 600
"""A limit's reason is the program's own sentence with a few names in it."""
_SUSPECTED = "suspected_injection"
_NAMED_ITEMS = 5
UNMETERED = frozenset({"usage_missing", "usage_inconsistent"})
"""Flags of answers that were booked at the worst case because their usage is not known."""
_KEPT_CELLS = 1_000_000
"""Of how many judges times criteria times units single verdicts are kept, 32 bytes each; units
beyond are left out of what is said of agreement."""


@dataclass(slots=True)
class _Purse:
    settled: int = 0
    uncertain: int = 0

    def frozen(self) -> Charge:
        return Charge(settled=Nano(self.settled), uncertain=Nano(self.uncertain))


@dataclass(slots=True)
class _Moments:
    """Welford's running mean and sum of squares: one pass, no cancellation."""

    n: int = 0
    mean: float = 0.0
    squares: float = 0.0

    def add(self, x: float) -> None:
        self.n += 1
        step = x - self.mean
        self.mean += step / self.n
        self.squares += step * (x - self.mean)

    def frozen(self, criterion: str) -> Scores:
        return Scores(
            criterion=criterion,
            n=self.n,
            mean=self.mean if self.n else math.nan,
            sd=math.sqrt(self.squares / (self.n - 1)) if self.n > 1 else math.nan,
        )


class _Said:
    """All that one judge said on one criterion."""

    __slots__ = ("kinds", "moments", "verdicts")

    def __init__(self, n_units: int) -> None:
        self.moments = _Moments()
        self.verdicts = Verdicts(n_units)
        self.kinds: Counter[float] = Counter()

    def add(self, unit: int, value: float) -> None:
        self.moments.add(value)
        if unit < len(self.verdicts.n):
            self.verdicts.add(unit, value)
        # What makes up nearly all verdicts is among the first kinds of them.
        if value in self.kinds or len(self.kinds) < _KEPT_KINDS:
            self.kinds[value] += 1

    def frozen(self, criterion: str, others: tuple[Ranged, int]) -> Scores:
        variance, signal = self.verdicts.repeats()
        commonest, n = max(self.kinds.items(), key=lambda kind: kind[1], default=(math.nan, 0))
        return replace(
            self.moments.frozen(criterion),
            repeat_variance=variance,
            signal=signal,
            with_others=others[0],
            n_shared=others[1],
            commonest=commonest,
            commonest_share=n / self.moments.n if self.moments.n else math.nan,
        )


@dataclass(slots=True, kw_only=True)
class _Tally:
    """Counters of one judge or one arm."""

    asked: int = 0
    answered: int = 0
    missing: Counter[MissingReason] = field(default_factory=Counter)


@dataclass(slots=True, kw_only=True)
class _ArmTally(_Tally):
    scores: list[_Moments]


@dataclass(slots=True, kw_only=True)
class _JudgeTally(_Tally):
    said: list[_Said]
    preferred: list[Counter[Preference]]
    places: Places
    slots: Slots
    cached: int = 0
    keyed: int = 0
    purse: _Purse = field(default_factory=_Purse)
    above_hold: int = 0
    billed_in_vain: int = 0
    in_vain: _Purse = field(default_factory=_Purse)
    n_calls: int = 0
    took_s: float = 0.0
    limited_s: float = 0.0
    waited_s: float = 0.0
    models: Counter[str] = field(default_factory=Counter)
    flags: Counter[str] = field(default_factory=Counter)
    down: str = ""
    outages: list[Outage] = field(default_factory=list)
    n_outages: int = 0
    arrived: int = 0
    parked: int = 0
    cut_off: int = 0
    given_back: set[_Question] = field(default_factory=set)
    suspected: Counter[int] = field(default_factory=Counter)
    """Answers by item; no more items than the campaign has."""


_Question = tuple[Kind, tuple[int, ...], int]
"""What makes a question the same when it is asked again: kind, units, replicate."""


def _question(query: Query) -> _Question:
    return query.kind, query.units, query.replicate


class _Fold:
    """The counters of one log. Money moves as in the engine's ledger, event by event."""

    def __init__(self, opened: Opened, at: float, strata: Strata | None) -> None:
        identity: Mapping[str, Any] = opened.identity
        self.opened = opened
        self.identity = identity
        self.cap = opened.cap
        self.cards = list(opened.cards)
        self.criteria: list[Mapping[str, Any]] = identity.get("criteria") or []
        self.judge_docs: list[Mapping[str, Any]] = identity.get("judges") or []
        self.docs = [*self.judge_docs, *(identity.get("systems") or [])]
        """Of all who can be asked: judges, then systems under test."""
        self.arm_names: list[str] = identity.get("arms") or [""]
        self.n_items = int((identity.get("data") or {}).get("n_items") or 0)
        self.join = Join()
        self.total = _Purse()
        self.held = 0
        n_kept = _KEPT_CELLS // max(1, len(self.judge_docs) * len(self.criteria))
        n_kept = min(n_kept, self.n_items * len(self.arm_names))
        n_units, yes_from = self.n_items * len(self.arm_names), self._yes_from()
        n_judges = len(self.judge_docs)
        self.everyone = [
            _JudgeTally(
                said=[_Said(n_kept) for _ in self.criteria] if k < n_judges else [],
                preferred=[Counter() for _ in self.criteria],
                places=Places(len(self.criteria)),
                slots=Slots(n_units=n_units, yes_from=yes_from),
            )
            for k in range(len(self.docs))
        ]
        self.judges, self.systems = self.everyone[:n_judges], self.everyone[n_judges:]
        self.strata = strata
        self.pairs = Pairs(len(self.arm_names))
        self.arms = [_ArmTally(scores=[_Moments() for _ in self.criteria]) for _ in self.arm_names]
        self.by_role = {role: _Purse() for role in Role}
        self.by_purpose = {purpose: _Purse() for purpose in Purpose}
        self.by_class = {name: _Purse() for name in _CLASSES}
        self.asked = self.answered = self.cached = self.parked = self.withdrawn = self.late = 0
        self.missing: Counter[MissingReason] = Counter()
        self.flags: Counter[str] = Counter()
        self.billed_in_vain = 0
        self.in_vain = _Purse()
        self.examples: dict[MissingReason, str] = {}
        self.units: set[int] = set()
        self.refusal: Refusal | None = None
        self.refused: Query | None = None
        self.stop_reason: StopReason | None = None
        self.limit = self.limit_why = ""
        self.steered: list[Steered] = []
        self.n_steered = self.n_unmetered = self.unmetered = 0
        self.looks: list[Look] = []
        self.last_look: Look | None = None
        self.n_looks, self.stride = 0, 1
        self.seen: Looked | None = None
        self.policy: Mapping[str, Json] = {}
        self.about: dict[str, Json] = {}
        self.n_starts = 0
        self.started_at = self.ended_at = at
        self.active_s = 0.0

    def _yes_from(self) -> float | None:
        """Say from which verdict on a batch's unit is accepted; None where nothing says so."""
        if [criterion.get("type") for criterion in self.criteria] == [ScaleType.BOOLEAN]:
            return 1.0
        line = (self.identity.get("task") or {}).get("accept_from")
        return None if line is None else float(line)

    # --- one event

    def take(self, at: float, event: Event) -> None:
        # A clock set back must not make time negative; a new process starts a new stretch of work.
        if not isinstance(event, Started):
            self.active_s += max(0.0, at - self.ended_at)
        self.ended_at = at
        match event:
            case Asked(query=query, hold=hold, origin=origin):
                self.asked += 1
                self.cached += origin is Origin.CACHE
                self.held += hold
                if query == self.refused:
                    self.refusal = None
                one = self.everyone[query.judge]
                one.asked += 1
                one.cached += origin is Origin.CACHE
                one.given_back.discard(_question(query))
            case Arrived(q=q):
                self._arrived(self.join.open[q], event)
            case Told(q=q):
                self._told(self.join.open[q])
            case Reasked(q=q, hold=hold, ended=ended):
                at_q = self.join.open[q]
                self._charge(at_q, None if ended == LOST else at_q.outcome, "retries")
                self.held += hold
            case Parked(q=q) | Withdrawn(q=q) | Late(q=q) | Forfeited(q=q):
                self._closed(self.join.open[q], event)
            case Looked():
                self._looked(event)
            case _:
                self._turned(at, event)
        self.join.feed(event)

    def _arrived(self, at: Open, event: Arrived) -> None:
        judge = self.everyone[at.query.judge]
        judge.arrived += isinstance(event.outcome, Judged)
        if at.origin is not Origin.CACHE and not _is_keyed(event.outcome):
            judge.n_calls += 1
            judge.took_s += event.took_s
            judge.limited_s += event.limited_s
            judge.waited_s += event.waited_s

    def _told(self, at: Open) -> None:
        self._charge(at, at.outcome, "answers" if isinstance(at.outcome, Judged) else "missing")
        judge = self.everyone[at.query.judge]
        tallies: list[_Tally] = [judge]
        if at.query.role is Role.JUDGE:
            tallies += (self.arms[unit % len(self.arms)] for unit in at.query.units)
            if at.query.kind is Kind.RATE_BATCH and at.outcome is not None:
                judge.slots.add(at.query, at.outcome)
            if at.query.kind is Kind.COMPARE and at.outcome is not None:
                self.pairs.add(at.query, at.outcome)
        match at.outcome:
            case Missing(reason=reason, detail=detail):
                self.missing[reason] += 1
                if detail:
                    self.examples.setdefault(reason, _foreign(detail))
                for tally in tallies:
                    tally.missing[reason] += 1
            case Judged() as judged:
                self.answered += 1
                for tally in tallies:
                    tally.answered += 1
                self._judged(at.query, judged)
            case None:
                pass

    def _judged(self, query: Query, judged: Judged) -> None:
        judge = self.everyone[query.judge]
        flags = [self._flag(word) for word in judged.flags]
        self.flags.update(flags)
        if judged.origin is not Origin.CACHE and not UNMETERED.isdisjoint(judged.flags):
            self.n_unmetered += 1
            self.unmetered += judged.cost
        judge.flags.update(flags)
        judge.keyed += judged.origin is Origin.KEY
        model = "" if judged.origin is Origin.CACHE else _foreign(judged.served_model)
        if model and (model in judge.models or len(judge.models) < _KEPT_MODELS):
            judge.models[model] += 1
        if query.role is Role.JUDGE:
            self._verdicts(judge, query, judged)

    def _verdicts(self, judge: _JudgeTally, query: Query, judged: Judged) -> None:
        if _SUSPECTED in judged.flags:
            judge.suspected.update({unit // len(self.arms) for unit in query.units})
        is_own = judged.origin is not Origin.KEY
        if is_own:
            self._placed(judge, judged)
        if query.kind is Kind.COMPARE:
            self.units.update(query.units)
        for observation in judged.observations:
            self.units.add(observation.unit)
            if observation.preference is not None:
                judge.preferred[observation.criterion][observation.preference] += 1
            if observation.value is None:
                continue
            arm = self.arms[observation.unit % len(self.arms)]
            arm.scores[observation.criterion].add(observation.value)
            if is_own:
                judge.said[observation.criterion].add(observation.unit, observation.value)
            if self.strata is not None and query.replicate == 0:
                self.strata.add(observation)

    def _flag(self, word: str) -> str:
        """Name a flag; where its details have no end, without them."""
        word = _foreign(word)
        is_known = word in self.flags or len(self.flags) < _KEPT_FLAGS
        return word if is_known else word.partition(":")[0]

    def _placed(self, judge: _JudgeTally, judged: Judged) -> None:
        """Take in where each criterion stood, if all of them have a verdict."""
        said = judged.observations
        values = [o.value for o in said if o.value is not None]
        slots = [o.slot for o in said]
        n = len(self.criteria)
        is_whole = n > 1 and len(values) == len(said) == n
        if is_whole and set(slots) == set(range(n)) and len({o.unit for o in said}) == 1:
            scaled = [self._scaled(o.criterion, v) for o, v in zip(said, values, strict=True)]
            by_criterion = sorted(range(n), key=lambda i: said[i].criterion)
            judge.places.add([slots[i] for i in by_criterion], [scaled[i] for i in by_criterion])

    @property
    def _is_one_scale(self) -> bool:
        return len({(c["low"], c["high"]) for c in self.criteria}) == 1

    def _scaled(self, criterion: int, value: float) -> float:
        """Give a verdict as it is, or as a share of its scale where criteria have several."""
        if self._is_one_scale:
            return value
        low, high = (float(self.criteria[criterion][end]) for end in ("low", "high"))
        return (value - low) / (high - low)

    def _closed(self, at: Open, event: Parked | Withdrawn | Late | Forfeited) -> None:
        judge = self.everyone[at.query.judge]
        if isinstance(event, Parked):
            judge.parked += 1
            judge.given_back.add(_question(at.query))
        else:
            judge.cut_off += 1
        match event:
            case Parked():
                self.parked += 1
                self.held -= at.hold
            case Withdrawn():
                self.withdrawn += 1
                self.held -= at.hold
            case Late(outcome=outcome):
                self.late += 1
                self._charge(at, outcome, "late")
            case Forfeited():
                self._charge(at, None, "late")

    def _looked(self, event: Looked) -> None:
        look = Look(
            n_told=event.n_told,
            settled=event.settled,
            uncertain=event.uncertain,
            held=event.held,
            half_widths=event.half_widths,
            points={
                (str(e["name"]), str(e["target"])): _points(e)
                for e in event.estimates
                if e.get("kind") == "exchangeable"
            },
        )
        self.last_look = look
        self.policy = event.policy
        if self.n_looks % self.stride == 0:
            self.looks.append(look)
        self.n_looks += 1
        if len(self.looks) > _KEPT_LOOKS:
            self.looks = self.looks[::2]
            self.stride *= 2
        if event.estimates:
            self.seen = event

    def _turned(self, at: float, event: Event) -> None:
        """Take the rare events: those that change how the run stands."""
        match event:
            case Declined(query=query, hold=hold, account=account):
                self.refused = query
                self.refusal = Refusal(hold=hold, free=self._free(account), account=account)
            case JudgeDown():
                self._down(at, event)
            case JudgeUp(judge=judge):
                self._up(at, self.everyone[judge])
            case CapChanged(cap=cap):
                self.cap, self.refusal = cap, None
            case PriceChanged(judge=judge, card=card):
                self.cards[judge] = card
            case LimitReached(which=which, why=why):
                self.limit, self.limit_why = which, printable(why[:_REASON_CHARS])
            case Commanded(command=command):
                self._commanded(at, command)
            case Stopped(reason=reason):
                self.stop_reason = reason
            case Reopened():
                # Its money is that of the late and forfeited calls since the stop, counted there.
                self.stop_reason, self.limit, self.limit_why, self.refusal = None, "", "", None
            case Started(about=about):
                self.n_starts += 1
                self.about.update(about)
            case _:
                pass

    def _commanded(self, at: float, command: Mapping[str, Json]) -> None:
        self.n_steered += 1
        if len(self.steered) < _KEPT_COMMANDS:
            keys = ("name", "path", "value", "reason", "by", "refused")
            said = {key: _foreign(str(command.get(key) or "")) for key in keys}
            self.steered.append(Steered(at=at, **said))

    def item_names(self, get_blob: Callable[[str], bytes | None] | None) -> Sequence[str]:
        """Give the items' names where one is needed and the frame is there; else none."""
        digest = str((self.identity.get("data") or {}).get("frame") or "")
        if get_blob is None or not any(judge.suspected for judge in self.judges):
            return ()
        blob = get_blob(digest)
        names: Sequence[str] = json.loads(blob)["items"] if blob else ()
        return names

    def suspected(self, names: Sequence[str]) -> list[Suspected]:
        """Say on which items each judge was perhaps spoken to."""
        return [
            Suspected(
                judge=str(doc["name"]),
                n_answers=judge.flags[_SUSPECTED],
                items=tuple(
                    _foreign(str(names[i])) if i < len(names) else f"item {i}"
                    for i in sorted(judge.suspected)[:_NAMED_ITEMS]
                ),
                n_items=len(judge.suspected),
            )
            for doc, judge in zip(self.judge_docs, self.judges, strict=True)
            if judge.suspected
        ]

    def _down(self, at: float, event: JudgeDown) -> None:
        tally = self.everyone[event.judge]
        why = _foreign(event.why) or "down"
        if not tally.down:
            tally.n_outages += 1
            if len(tally.outages) < _KEPT_OUTAGES:
                tally.outages.append(
                    Outage(after=tally.arrived, at=at, until=event.until, ended_at=None, why=why)
                )
        elif tally.n_outages == len(tally.outages):
            tally.outages[-1] = replace(tally.outages[-1], until=event.until, why=why)
        tally.down = why

    def _up(self, at: float, tally: _JudgeTally) -> None:
        if tally.down and tally.n_outages == len(tally.outages):
            tally.outages[-1] = replace(tally.outages[-1], ended_at=at)
        tally.down = ""

    # --- money

    def _charge(self, at: Open, outcome: Outcome | None, kind: str) -> None:
        """Charge an attempt and release its hold; without an outcome the hold is uncertain."""
        self.held -= at.hold
        match outcome:
            case Judged(cost=cost):
                settled, uncertain = cost, Nano(0)
            case Missing(cost=cost, uncertain=unknown):
                settled, uncertain = cost, unknown
            case None:
                settled, uncertain = Nano(0), at.hold
        is_in_vain = not isinstance(outcome, Judged) and settled + uncertain > 0
        purses = [
            self.total,
            self.by_role[at.query.role],
            self.by_purpose[at.query.purpose],
            self.by_class[kind],
        ]
        judge = self.everyone[at.query.judge]
        judge.above_hold += max(0, settled + uncertain - at.hold)
        judge.billed_in_vain += is_in_vain
        purses.append(judge.purse)
        if is_in_vain:
            purses.append(judge.in_vain)
            self.billed_in_vain += 1
            purses.append(self.in_vain)
        for purse in purses:
            purse.settled += settled
            purse.uncertain += uncertain

    def _free(self, account: str) -> Nano:
        """Give what an account has free while nothing is outstanding."""
        names = [doc["name"] for doc in self.docs]
        kind, _, name = account.partition(":")
        cap, purse = self.cap, self.total
        if kind in {"judge", "system"} and name in names:
            cap = self.opened.judge_caps[names.index(name)]
            purse = self.everyone[names.index(name)].purse
        elif kind == "role" and name in self.opened.role_caps:
            cap, purse = self.opened.role_caps[name], self.by_role[Role(name)]
        return Nano(max(0, (cap or 0) - purse.settled - purse.uncertain))

    # --- the result

    def result(self, fingerprint: str, run: str, unstopped: State) -> ReportData:
        state, reason = self._ending(unstopped)
        identity = self.identity
        firsts = [
            np.array([judge.said[c].verdicts.firsts() for judge in self.judges])
            for c in range(len(self.criteria))
        ]
        estimates = tuple(read_estimate(e) for e in self.seen.estimates) if self.seen else ()
        target = (identity.get("stop") or {}).get("target_half_width")
        if self.last_look is not None and self.looks[-1] is not self.last_look:
            self.looks.append(self.last_look)
        are_final = self.seen is not None and self.seen.is_final and self.stop_reason is not None
        return ReportData(
            name=str(identity.get("name") or ""),
            run=run,
            mock=bool(identity.get("mock")),
            money=str(identity.get("money") or "real"),
            state=state,
            stop_reason=reason,
            fingerprint=fingerprint,
            seed=self.opened.seed,
            identity=identity,
            digest=self.opened.digest,
            spend=self._spend(),
            counts=self._counts(),
            judges=tuple(self._judge(k, firsts) for k in range(len(self.judges))),
            systems=tuple(map(self._asked, range(len(self.judges), len(self.everyone)))),
            arms=tuple(map(self._arm, range(len(self.arms)))),
            criteria=tuple(str(c["name"]) for c in self.criteria),
            n_items=self.n_items,
            n_units=self.n_items * len(self.arms),
            n_units_answered=len(self.units),
            refusal=self.refusal,
            limit=self.limit,
            limit_why=self.limit_why,
            steered=tuple(self.steered),
            n_steered=self.n_steered,
            examples={str(reason): detail for reason, detail in self.examples.items()},
            curve=tuple(self.looks),
            estimates=estimates,
            are_final=are_final,
            primary=_primary(estimates, identity.get("estimate") or []),
            # A verdict is that of the stop: whoever looks before it sees none.
            gates=tuple(
                judge(Gate.from_json(gate), estimates if are_final else ())
                for gate in identity.get("gate") or []
            ),
            target_half_width=None if target is None else float(target),
            is_of_every_arm=(identity.get("stop") or {}).get("of") == "every_arm",
            policy=self.policy,
            about=self.about,
            n_starts=self.n_starts,
            started_at=self.started_at,
            ended_at=self.ended_at,
            active_s=self.active_s,
            times=_times(self.everyone),
            agreement=tuple(self._agreement(firsts)),
            places=tuple(self._place_effects()),
            pairs=self.pairs.frozen(),
            strata=() if self.strata is None else self.strata.frozen(),
            slots=tuple(
                judge.slots.frozen(str(doc["name"]))
                for doc, judge in zip(self.judge_docs, self.judges, strict=True)
                if judge.slots.n_batches
            ),
        )

    def _ending(self, unstopped: State) -> tuple[State, StopReason | None]:
        if self.stop_reason is not None:
            return state_of(self.stop_reason), self.stop_reason
        match unstopped:
            case State.RUNNING:
                return State.RUNNING, None
            case State.FAILED:
                return State.FAILED, StopReason.STORAGE
            case _:
                return State.INTERRUPTED, StopReason.INTERRUPTED

    def _spend(self) -> Spend:
        names = [str(doc["name"]) for doc in self.docs]
        n_judges, purses = len(self.judges), [one.purse.frozen() for one in self.everyone]
        spent = self.total.settled + self.total.uncertain
        return Spend(
            cap=self.cap,
            settled=Nano(self.total.settled),
            held=Nano(self.held),
            uncertain=Nano(self.total.uncertain),
            overrun=Nano(0 if self.cap is None else max(0, spent - self.cap)),
            by_judge=dict(zip(names[:n_judges], purses[:n_judges], strict=True)),
            by_system=dict(zip(names[n_judges:], purses[n_judges:], strict=True)),
            by_role=_used(self.by_role),
            by_purpose=_used(self.by_purpose),
            by_class=_used(self.by_class),
            above_hold={
                n: Nano(j.above_hold)
                for n, j in zip(names, self.everyone, strict=True)
                if j.above_hold
            },
            unmetered=Nano(self.unmetered),
        )

    def _counts(self) -> Counts:
        return Counts(
            asked=self.asked,
            answered=self.answered,
            cached=self.cached,
            parked=self.parked,
            withdrawn=self.withdrawn,
            late=self.late,
            missing=_in_order(self.missing),
            flags=dict(sorted(self.flags.items())),
            billed_in_vain=self.billed_in_vain,
            in_vain=self.in_vain.frozen(),
            unmetered=self.n_unmetered,
            by_role={
                str(role): _fate(tallies)
                for role, tallies in ((Role.JUDGE, self.judges), (Role.SYSTEM, self.systems))
                if tallies
            },
        )

    def _judge(self, k: int, firsts: Sequence[Array]) -> JudgeTally:
        tally = self.judges[k]
        return replace(
            self._asked(k),
            scores=tuple(
                said.frozen(str(criterion["name"]), with_others(values, k, self._clusters))
                for said, criterion, values in zip(tally.said, self.criteria, firsts, strict=True)
            ),
            preferences=tuple(self._preferences(tally)),
        )

    def _asked(self, k: int) -> JudgeTally:
        doc, tally = self.docs[k], self.everyone[k]
        name = str(doc["name"])
        routes: Mapping[str, Any] = self.identity.get("routes") or {}
        return JudgeTally(
            name=name,
            adapter=str(doc.get("adapter") or ""),
            model=str(doc.get("model") or ""),
            card=self.cards[k],
            asked=tally.asked,
            answered=tally.answered,
            missing=_in_order(tally.missing),
            charge=tally.purse.frozen(),
            latency_s=tally.took_s / tally.n_calls if tally.n_calls else math.nan,
            served_models=dict(tally.models),
            down=tally.down,
            scores=(),
            route=str(routes.get(name) or ""),
            cached=tally.cached,
            flags=dict(sorted(tally.flags.items())),
            billed_in_vain=tally.billed_in_vain,
            in_vain=tally.in_vain.frozen(),
            times=_times([tally]),
            outages=tuple(tally.outages),
            n_outages=tally.n_outages,
            parked=tally.parked,
            unasked=len(tally.given_back),
            cut_off=tally.cut_off,
            keyed=tally.keyed,
        )

    def _preferences(self, tally: _JudgeTally) -> Iterator[Preferences]:
        if self.identity.get("kind") != Kind.COMPARE:
            return
        for criterion, of in zip(self.criteria, tally.preferred, strict=True):
            yield Preferences(
                criterion=str(criterion["name"]),
                first=of[Preference.FIRST],
                ties=of[Preference.TIE],
                second=of[Preference.SECOND],
            )

    @property
    def _clusters(self) -> NDArray[np.int64]:
        """Number the items of the units whose verdicts are kept."""
        n_kept = len(self.judges[0].said[0].verdicts.n)
        return np.arange(n_kept, dtype=np.int64) // len(self.arms)

    def _agreement(self, firsts: Sequence[Array]) -> Iterator[Agreement]:
        for criterion, values in zip(self.criteria, firsts, strict=True):
            is_shared = np.isfinite(values).sum(axis=0) > 1
            if not is_shared.any():
                continue
            kind = criterion.get("type")
            metric = METRICS[ScaleType(kind)] if kind else "interval"
            yield Agreement(
                criterion=str(criterion["name"]),
                metric=metric,
                n_judges=int(np.isfinite(values[:, is_shared]).any(axis=1).sum()),
                n_units=int(is_shared.sum()),
                alpha=alpha(values, metric, self._clusters),
            )

    def _place_effects(self) -> Iterator[PlaceEffect]:
        tested = [
            (str(doc["name"]), effect)
            for doc, judge in zip(self.judge_docs, self.judges, strict=True)
            if (effect := judge.places.effect()) is not None
        ]
        is_share = not self._is_one_scale
        adjusted = holm([effect.p for _, effect in tested])
        for (name, effect), p in zip(tested, adjusted, strict=True):
            yield PlaceEffect(
                judge=name,
                things="criteria",
                n_answers=effect.n_answers,
                means=effect.means,
                is_share=is_share,
                span=1.0 if is_share else float(self.criteria[0]["high"] - self.criteria[0]["low"]),
                statistic=effect.statistic,
                df=effect.df,
                p=p,
            )

    def _arm(self, a: int) -> ArmTally:
        tally = self.arms[a]
        n_lost = tally.missing.total() - tally.missing[MissingReason.EXHAUSTED]
        return ArmTally(
            name=self.arm_names[a],
            answered=tally.answered,
            missing=_in_order(tally.missing),
            bounds=tuple(
                _bound(m, c, n_lost) for m, c in zip(tally.scores, self.criteria, strict=True)
            ),
        )


def _bound(moments: _Moments, criterion: Mapping[str, Any], n_lost: int) -> Bound:
    """Put the missing verdicts at either end of the scale."""
    total, n = moments.n * moments.mean, moments.n + n_lost
    low, high = (math.nan if criterion.get(k) is None else criterion[k] for k in ("low", "high"))
    return Bound(
        criterion=str(criterion["name"]),
        n=moments.n,
        mean=moments.mean if moments.n else math.nan,
        lowest=(total + n_lost * low) / n if n else math.nan,
        highest=(total + n_lost * high) / n if n else math.nan,
    )


_CLASSES = ("answers", "retries", "missing", "late")
"""What money can go for, as `Spend.by_class` names it."""


def _foreign(text: str) -> str:
    """Keep of a provider's or parser's words what can be shown anywhere."""
    return printable(text[:_DETAIL_CHARS])


def _times(tallies: Sequence[_JudgeTally]) -> Times:
    return Times(
        working_s=math.fsum(t.took_s for t in tallies),
        limited_s=math.fsum(t.limited_s for t in tallies),
        waited_s=math.fsum(t.waited_s for t in tallies),
    )


def _is_keyed(outcome: Outcome) -> bool:
    """Say whether a key decided, so that there was no call."""
    return isinstance(outcome, Judged) and outcome.origin is Origin.KEY


def _fate(tallies: Sequence[_JudgeTally]) -> Fate:
    missing: Counter[MissingReason] = Counter()
    for tally in tallies:
        missing.update(tally.missing)
    return Fate(
        asked=sum(tally.asked for tally in tallies),
        answered=sum(tally.answered for tally in tallies),
        missing=_in_order(missing),
        keyed=sum(tally.keyed for tally in tallies),
    )


def _points(document: Mapping[str, Any]) -> tuple[Point, ...]:
    """Read what a look says of each name of an estimate by a part of a benchmark."""
    drawn = document["diagnostics"]["by_name"]["n_drawn"]
    e = read_estimate(document)
    return tuple(map(Point, drawn, e.value, e.lower, e.upper))


def _used(purses: Mapping[Any, _Purse]) -> dict[str, Charge]:
    return {str(k): p.frozen() for k, p in purses.items() if p.settled or p.uncertain}


def _in_order(missing: Counter[MissingReason]) -> dict[str, int]:
    return {str(reason): missing[reason] for reason in MissingReason if missing[reason]}


def _primary(estimates: tuple[Estimate, ...], entries: list[Mapping[str, Any]]) -> int | None:
    """Find the primary estimate: the first one of the entry that says so, else of the first entry.

    None while it is not there: before the stop a look holds only estimates of few names.
    """
    entry = next((e for e in entries if e.get("primary")), entries[0] if entries else {})
    matches = (i for i, e in enumerate(estimates) if e.name == entry.get("name", e.name))
    return next(matches, None)


def read_estimate(document: Mapping[str, Any]) -> Estimate:
    """Read what `Estimate.as_json` wrote; None stands for nan, unknown keys are left out.

    An interval with one end has no end on the other side.
    """
    values = {f.name: document[f.name] for f in fields(Estimate) if f.name in document}
    ends = list(zip(values["lower"], values["upper"], strict=True))
    values["lower"] = [-math.inf if low is None and high is not None else low for low, high in ends]
    values["upper"] = [math.inf if high is None and low is not None else high for low, high in ends]
    for column in ("value", "se", "lower", "upper"):
        values[column] = tuple(math.nan if x is None else float(x) for x in values[column])
    values["names"], values["flags"] = tuple(values["names"]), tuple(values.get("flags", ()))
    return Estimate(**values | {"status": Status(values["status"])})
