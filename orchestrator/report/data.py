"""What is reported of a run, as values."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import NamedTuple

from orchestrator.core.estimate import Estimate
from orchestrator.core.gate import GateOutcome, Verdict, overall
from orchestrator.core.money import Nano, PriceCard
from orchestrator.core.query import MissingReason, Role
from orchestrator.core.stopping import StopReason, StopRule
from orchestrator.core.wire import Json


class State(StrEnum):
    """Where a run stands."""

    RUNNING = "running"
    FINISHED = "finished"
    STOPPED = "stopped"
    INTERRUPTED = "interrupted"
    FAILED = "failed"


def state_of(reason: StopReason) -> State:
    """Say in which state a run is that ended for a reason."""
    match reason:
        case (
            StopReason.FINISHED
            | StopReason.PRECISION
            | StopReason.SEPARATED
            | StopReason.GATE_DECIDED
        ):
            return State.FINISHED
        case StopReason.INTERRUPTED:
            return State.INTERRUPTED
        case StopReason.STORAGE:
            return State.FAILED
        case _:
            return State.STOPPED


class Ranged(NamedTuple):
    """A number with its 95% interval; nan where not known."""

    value: float = math.nan
    lower: float = math.nan
    upper: float = math.nan


UNKNOWN = Ranged()


@dataclass(frozen=True, slots=True, kw_only=True)
class Charge:
    """Money of one account, nano-USD: surely billed, and charged until proven free."""

    settled: Nano
    uncertain: Nano


@dataclass(frozen=True, slots=True, kw_only=True)
class Spend:
    """The campaign's money, nano-USD; `overrun` is what was billed beyond the cap.

    `by_class` says what it went for: attempts that brought an answer (`answers`), attempts that were
    followed by another one (`retries`), the last attempts of questions that have no verdict
    (`missing`), and what the stop cut off (`late`). `above_hold` is, by judge, what attempts cost
    beyond their holds: nothing, unless a provider passed its own limit. `unmetered` is the part of
    `settled` that was booked at the worst case, since usage was not told or contradicts itself.
    """

    cap: Nano | None
    settled: Nano
    held: Nano
    uncertain: Nano
    overrun: Nano
    by_judge: Mapping[str, Charge]
    by_system: Mapping[str, Charge]
    by_role: Mapping[str, Charge]
    by_purpose: Mapping[str, Charge]
    by_class: Mapping[str, Charge]
    above_hold: Mapping[str, Nano]
    unmetered: Nano

    @property
    def unspent(self) -> Nano | None:
        """What is left of the cap; None without one."""
        if self.cap is None:
            return None
        return Nano(max(0, self.cap - self.settled - self.uncertain - self.held))


class Fate(NamedTuple):
    """What became of the questions to all judges, or to all systems under test; `missing` by reason.

    `keyed` of those answered were decided by a key or a recorded column, without a call.
    """

    asked: int
    answered: int
    missing: Mapping[str, int]
    keyed: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Counts:
    """How many questions of each fate; `missing` and `flags` are by name.

    A flag is a word, or a word with a detail after a colon.

    `billed_in_vain` counts attempts that were or may have been billed without bringing an answer,
    `in_vain` is their money, which `Spend` holds too. `unmetered` counts answers whose usage is not
    known. `by_role` says apart what became of questions to judges and to systems under test, which
    all other counts have together.
    """

    asked: int
    answered: int
    cached: int
    parked: int
    withdrawn: int
    late: int
    missing: Mapping[str, int]
    flags: Mapping[str, int]
    billed_in_vain: int
    in_vain: Charge
    unmetered: int = 0
    by_role: Mapping[str, Fate] = field(default_factory=dict)

    @property
    def n_missing(self) -> int:
        """How many questions have no verdict."""
        return sum(self.missing.values())

    @property
    def told(self) -> int:
        """How many questions came to their end."""
        return self.answered + self.n_missing

    @property
    def verdicts(self) -> int:
        """How many questions to judges were answered."""
        if not self.by_role:
            return self.answered
        judges = self.by_role.get(Role.JUDGE)
        return 0 if judges is None else judges.answered


@dataclass(frozen=True, slots=True, kw_only=True)
class Scores:
    """Verdicts of one judge on one criterion as they came: how many, their mean and spread.

    What a key decided without a call is none of them.

    Parameters
    ----------
    repeat_variance : pooled variance of repeats of the same question
    signal : share of the variance of single verdicts that comes from the units (intraclass
        correlation); the rest is what repeats differ by
    with_others : agreement (alpha) of its first verdicts with the mean of the other judges', each
        judge's own level taken out
    n_shared : units behind `with_others`
    commonest, commonest_share : the verdict that it gives most often, and how often
    """

    criterion: str
    n: int
    mean: float
    sd: float
    repeat_variance: float = math.nan
    signal: Ranged = UNKNOWN
    with_others: Ranged = UNKNOWN
    n_shared: int = 0
    commonest: float = math.nan
    commonest_share: float = math.nan


class Preferences(NamedTuple):
    """Comparisons by one judge on one criterion: which answer was better, by where it stood."""

    criterion: str
    first: int
    ties: int
    second: int

    @property
    def n(self) -> int:
        """How many verdicts there are."""
        return self.first + self.ties + self.second


@dataclass(frozen=True, slots=True, kw_only=True)
class Agreement:
    """Krippendorff's alpha of the judges' first verdicts on one criterion.

    `metric` is `nominal`, `ordinal` or `interval`, by the scale; `n_units` counts the units with
    verdicts of two and more judges, of `n_judges` in all.
    """

    criterion: str
    metric: str
    n_judges: int
    n_units: int
    alpha: Ranged


@dataclass(frozen=True, slots=True, kw_only=True)
class PlaceEffect:
    """How one judge's verdicts depend on the place in which a thing was shown.

    Parameters
    ----------
    things : what changed places: `criteria`
    n_answers : complete answers behind it
    means : mean verdict by place, differences between the things taken out
    is_share : the things have different scales, so means are shares of each scale
    span : of the scale that `means` are on
    p : of no effect at all, by permutation within answers; adjusted over the judges by Holm's method
    """

    judge: str
    things: str
    n_answers: int
    means: tuple[float, ...]
    is_share: bool
    span: float
    statistic: float
    df: int
    p: float

    @property
    def spread(self) -> float:
        """The farthest that two places' means lie apart."""
        return max(self.means) - min(self.means)

    @property
    def is_significant(self) -> bool:
        """Whether there is an effect, at the level 0.05 over all judges."""
        return self.p < 0.05


class Evenness(NamedTuple):
    """The fewest and the most times that a unit stood in a slot, and right behind another unit."""

    per_slot: tuple[int, int]
    per_pair: tuple[int, int]


Table = Sequence[Sequence[int]]


@dataclass(frozen=True, slots=True, kw_only=True)
class PairTally:
    """Comparisons by first (row) and second arm (column): asked, answered, won by the first, ties.

    `why` counts questions by what their policy noted of them.
    """

    asked: Table
    answered: Table
    first: Table
    ties: Table
    why: Mapping[str, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class BoardAudit:
    """What the audit of a board found by one criterion, as plain values (`board_words` reads them)."""

    criterion: str
    models: tuple[str, ...]
    judges: tuple[str, ...]
    found: Mapping[str, Json]


@dataclass(frozen=True, slots=True, kw_only=True)
class SlotTally:
    """One judge's batches: where units stood, and what was said by slot.

    Parameters
    ----------
    n_batches, n_missing : that came to their end, and that brought no verdict at all
    n_units : of the pool
    is_share : `means` are shares of verdicts that accept, else means of verdicts
    lost : units without a verdict, by reason: of missing batches by theirs, of partial answers
        `truncated`, `omitted`, `unreadable`, `contradicted`
    rated, means : verdicts by slot, and their mean
    asked, kept : evenness of the batches as asked, and of what has a verdict; None for a large pool
    """

    judge: str
    n_batches: int
    n_missing: int
    n_units: int
    is_share: bool
    lost: Mapping[str, int]
    rated: tuple[int, ...]
    means: tuple[float, ...]
    asked: Evenness | None
    kept: Evenness | None

    @property
    def n_lost(self) -> int:
        """How many units have no verdict where they stood."""
        return sum(self.lost.values())


@dataclass(frozen=True, slots=True, kw_only=True)
class Outage:
    """A time in which a judge took no questions.

    `after` counts its answers that had come by then; `until` is the time that its provider named (POSIX
    seconds), None for good; `ended_at` is when it took questions again, None if it did not.
    """

    after: int
    at: float
    until: float | None
    ended_at: float | None
    why: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Times:
    """What the time of calls went for, seconds summed over all of them.

    `working_s` they were with a judge, `limited_s` they waited for a limit of the rate, `waited_s`
    they paused before another attempt.
    """

    working_s: float
    limited_s: float
    waited_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class WithoutJudge:
    """The estimates from the answers of all judges but one; `n_answers` of its own are left out."""

    judge: str
    n_answers: int
    estimates: tuple[Estimate, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Bound:
    """The mean verdict of an arm, and where it would lie with every missing one at a scale end."""

    criterion: str
    n: int
    mean: float
    lowest: float
    highest: float


@dataclass(frozen=True, slots=True, kw_only=True)
class ArmTally:
    """What became of one arm's questions."""

    name: str
    answered: int
    missing: Mapping[str, int]
    bounds: tuple[Bound, ...]

    @property
    def n_lost(self) -> int:
        """How many verdicts are missing, exhausted recordings apart: those depend on no answer."""
        return sum(n for reason, n in self.missing.items() if reason != MissingReason.EXHAUSTED)

    @property
    def told(self) -> int:
        """How many questions came to their end, exhausted recordings apart."""
        return self.answered + self.n_lost


@dataclass(frozen=True, slots=True, kw_only=True)
class JudgeTally:
    """What one judge, or one system under test, was asked, what it said and what it cost.

    Parameters
    ----------
    route : how it was made to give a verdict that can be read; empty where that is not known
    latency_s : mean time of a call, nan if none ended; answers of the cache left out
    served_models : answers by the version that the provider named, in order of first appearance;
        answers of the cache left out
    down : why it takes no questions now, empty if it does
    outages : when it took none, the first ones of `n_outages`
    flags : what was odd about its answers, by name
    billed_in_vain : attempts that were or may have been billed and brought no answer
    parked : questions given back because it was down; `unasked` of them were never asked again
    keyed : verdicts that a key or a recorded column decided, without a call; in `answered` too
    cut_off : questions withdrawn unsent at the stop, or answered too late or never
    preferences : by criterion, of what compares; empty otherwise
    """

    name: str
    adapter: str
    model: str
    card: PriceCard
    asked: int
    answered: int
    missing: Mapping[str, int]
    charge: Charge
    latency_s: float
    served_models: Mapping[str, int]
    down: str
    scores: tuple[Scores, ...]
    route: str
    cached: int
    flags: Mapping[str, int]
    billed_in_vain: int
    in_vain: Charge
    times: Times
    outages: tuple[Outage, ...]
    n_outages: int
    parked: int = 0
    unasked: int = 0
    cut_off: int = 0
    keyed: int = 0
    preferences: tuple[Preferences, ...] = ()

    @property
    def n_missing(self) -> int:
        """How many of its questions have no verdict."""
        return sum(self.missing.values())

    @property
    def n_idle(self) -> int:
        """How many of its questions had nothing to judge, since a system gave no answer."""
        return self.missing.get(MissingReason.NO_ANSWER, 0)

    @property
    def per_answer(self) -> Nano | None:
        """Settled money an answer that it gave itself, rounded to nano-USD; None without any."""
        n = self.answered - self.keyed
        return Nano(round(self.charge.settled / n)) if n else None


@dataclass(frozen=True, slots=True, kw_only=True)
class Refusal:
    """The last question that did not fit: what it had to hold, and what the account had free."""

    hold: Nano
    free: Nano
    account: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Steered:
    """One command that the run took while it was under way; `refused` says why it was not obeyed."""

    at: float
    name: str
    path: str
    value: str
    reason: str
    by: str
    refused: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Suspected:
    """Answers whose judged text seems to speak to the judge, and the first items among them."""

    judge: str
    n_answers: int
    items: tuple[str, ...]
    n_items: int


class Point(NamedTuple):
    """One name of an estimate at a look: the items in the order of the draw, value and interval."""

    n_items: int
    value: float
    lower: float
    upper: float


class Stratum(NamedTuple):
    """Verdicts on one arm's items of a stratum: `size` items, `n` of them with one, their raw mean."""

    arm: str
    name: str
    size: int
    n: int
    mean: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Look:
    """The money and the half-widths of all estimates after `n_told` questions.

    `points` are, by name and target, the intervals of estimates by a part of a benchmark.
    """

    n_told: int
    settled: Nano
    uncertain: Nano
    held: Nano
    half_widths: tuple[float | None, ...]
    points: Mapping[tuple[str, str], tuple[Point, ...]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class ReportData:
    """All that is reported of a run.

    Parameters
    ----------
    stop_reason : None while the run is under way
    fingerprint : hex head of the decision chain at the last stop, empty before it
    limit : the limit that ended asking, empty if none did; `limit_why` is its reason in words
    examples : by missing reason, the first word of a provider or parser about it
    curve : at most some thousands of looks, evenly thinned
    estimates : those of the last look that has them; `are_final` at the stop
    primary : index of the primary estimate, None while there is none
    gates : what each gate came to at the stop; undecided before it
    policy : what the policy last said of itself; `says` are sentences
    about : what the process that last took up the run said of itself
    active_s : seconds that processes worked on the run, pauses between them left out
    times : what the calls' time went for
    agreement : of the judges, by criterion; none where no two of them rated the same units
    places : effects of the place in which things were shown; none where it never changed
    pairs : what was compared; None where nothing was
    audits : of what was compared, by criterion; none where nothing was, or too much
    systems : the systems under test
    strata : verdicts by arm, and within it by stratum, of a part of a benchmark with strata
    slots : the judges' batches; none where units were not rated in batches
    without_judge : the final estimates with each judge left out, where that was computed
    path : the run's directory as it can be typed, empty where that is not known
    steered : the commands that it took, the first ones of `n_steered`
    suspected : by judge, answers on texts that seem to speak to it
    """

    name: str
    run: str
    mock: bool
    money: str
    state: State
    stop_reason: StopReason | None
    fingerprint: str
    seed: int
    identity: Mapping[str, Json]
    digest: str
    spend: Spend
    counts: Counts
    judges: tuple[JudgeTally, ...]
    arms: tuple[ArmTally, ...]
    criteria: tuple[str, ...]
    n_items: int
    n_units: int
    n_units_answered: int
    refusal: Refusal | None
    limit: str
    examples: Mapping[str, str]
    curve: tuple[Look, ...]
    estimates: tuple[Estimate, ...]
    are_final: bool
    primary: int | None
    gates: tuple[Verdict, ...]
    target_half_width: float | None
    is_of_every_arm: bool
    policy: Mapping[str, Json]
    about: Mapping[str, Json]
    n_starts: int
    started_at: float
    ended_at: float
    active_s: float
    times: Times
    agreement: tuple[Agreement, ...]
    places: tuple[PlaceEffect, ...]
    systems: tuple[JudgeTally, ...] = ()
    strata: tuple[Stratum, ...] = ()
    slots: tuple[SlotTally, ...] = ()
    pairs: PairTally | None = None
    audits: tuple[BoardAudit, ...] = ()
    without_judge: tuple[WithoutJudge, ...] = ()
    limit_why: str = ""
    path: str = ""
    steered: tuple[Steered, ...] = ()
    n_steered: int = 0
    suspected: tuple[Suspected, ...] = ()

    @property
    def answer(self) -> Estimate | None:
        """The primary estimate, None while there is none."""
        return None if self.primary is None else self.estimates[self.primary]

    @property
    def gate(self) -> GateOutcome | None:
        """What the gates count as together; None without gates."""
        return overall(verdict.counts_as for verdict in self.gates)

    @property
    def half_widths(self) -> tuple[tuple[Look, float], ...]:
        """The primary estimate's half-width at each look at which it was known."""
        index = self.primary if self.are_final and self.primary is not None else 0
        widths = ((look, look.half_widths[index : index + 1]) for look in self.curve)
        return tuple((look, w[0]) for look, w in widths if w and w[0] is not None)

    @property
    def target_met(self) -> bool | None:
        """Whether the primary estimate is as precise as asked for; None without a target."""
        if self.target_half_width is None:
            return None
        if self.stop_reason is StopReason.PRECISION:
            return True
        return self.aim is not None and self.aim.half_width <= self.target_half_width

    @property
    def aim(self) -> Estimate | None:
        """The estimate that the precision target is for; None while there is none."""
        if self.answer is None:
            return None
        rule = StopRule(of_every_arm=self.is_of_every_arm)
        return rule.aimed_at((self.answer, *self.estimates))

    @property
    def versions(self) -> dict[str, Json]:
        """Versions of what computed the run."""
        versions = self.about.get("versions")
        return dict(versions) if isinstance(versions, dict) else {}
