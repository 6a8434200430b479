"""The closed union of events, in two classes, and the hash chain over the first.

**Decision events** are all that a policy or an estimator can depend on. They form a hash chain;
its head is the run's fingerprint. **Facts** record what happened on the wire and on the clock.
Two runs with one seed have the same decision events though their facts differ.

Kinds are never renamed or removed; a changed body is a new version with an upcaster.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from hashlib import blake2b
from typing import get_args

from orchestrator.core.ids import JudgeIx, QNo
from orchestrator.core.money import Nano, PriceCard
from orchestrator.core.query import Outcome, Query
from orchestrator.core.stopping import StopReason
from orchestrator.core.wire import Attempt, Json, Origin

# --- decision events ---------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Opened:
    """The run begins. `identity` is the canonical form of all that must not change later."""

    identity: Mapping[str, Json]
    digest: str
    seed: int
    cap: Nano | None
    judge_caps: tuple[Nano | None, ...]
    role_caps: Mapping[str, Nano]
    cards: tuple[PriceCard, ...]
    max_requests: int | None
    max_tok: int | None
    max_uncertain: Nano | None
    window: int
    looks: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """A question is asked, and the worst case of one attempt is held."""

    q: QNo
    query: Query
    hold: Nano
    origin: Origin = Origin.LIVE


@dataclass(frozen=True, slots=True, kw_only=True)
class Reasked:
    """An attempt ended without a verdict and was charged; another is held and takes its turn.

    `ended` digests the attempt's outcome and charge. After a crash it is `lost`, and the question
    keeps its old place instead of going to the end of the order.
    """

    q: QNo
    attempt: Attempt
    hold: Nano
    ended: str


LOST = "lost"


@dataclass(frozen=True, slots=True, kw_only=True)
class Told:
    """The outcome of a question counts from here on. `digest` is `outcome_digest` of it."""

    q: QNo
    digest: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Declined:
    """A proposed question does not fit the free money of `account`, and nothing is outstanding.

    It means "not now": the same question may be proposed again after `CapChanged`.
    """

    query: Query
    hold: Nano
    account: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Parked:
    """A question comes back unasked because its judge is down; its hold is released."""

    q: QNo


@dataclass(frozen=True, slots=True, kw_only=True)
class JudgeDown:
    """A judge takes no questions until a time (POSIX seconds), or for good (None)."""

    judge: JudgeIx
    until: float | None
    why: str


@dataclass(frozen=True, slots=True, kw_only=True)
class JudgeUp:
    """A judge takes questions again."""

    judge: JudgeIx


@dataclass(frozen=True, slots=True, kw_only=True)
class CapChanged:
    """The user changed the campaign's dollar cap."""

    cap: Nano | None


@dataclass(frozen=True, slots=True, kw_only=True)
class PriceChanged:
    """A judge's price card changed; later attempts are held and charged at it."""

    judge: JudgeIx
    card: PriceCard


@dataclass(frozen=True, slots=True, kw_only=True)
class Paused:
    """The user paused asking."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Continued:
    """The user let asking go on."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LimitReached:
    """Something other than money ends asking, and in whose words.

    `max_requests`, `max_tokens` and `max_answers` follow from the log. `wall_clock`, `max_wait` (all judges are
    down for longer), `user` and `stale_cache` are facts of the world.
    """

    which: str
    why: str = ""

    @property
    def takes_back(self) -> bool:
        """Whether what is asked and not under way comes back: only limits of the log's own wait."""
        return self.which not in {"max_requests", "max_tokens", "max_answers"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Stopped:
    """The run is over. Estimates and verdict are frozen here."""

    reason: StopReason


@dataclass(frozen=True, slots=True, kw_only=True)
class Reopened:
    """A stopped run goes on, with the money that calls under way at the stop have cost since."""

    settled: Nano
    uncertain: Nano


Decision = (
    Opened
    | Asked
    | Reasked
    | Told
    | Declined
    | Parked
    | JudgeDown
    | JudgeUp
    | CapChanged
    | PriceChanged
    | Paused
    | Continued
    | LimitReached
    | Stopped
    | Reopened
)

# --- facts -------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Started:
    """A process took up the run. Informational: host, process, versions, concurrency."""

    about: Mapping[str, Json]


@dataclass(frozen=True, slots=True, kw_only=True)
class Commanded:
    """The user steered the run from outside: the command, who gave it and why."""

    command: Mapping[str, Json]


@dataclass(frozen=True, slots=True, kw_only=True)
class Sent:
    """An attempt is about to leave. Durable before its first byte does.

    `prompt` digests the rendered request, empty when prompts are not kept.
    """

    q: QNo
    attempt: int
    prompt: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Freed:
    """An attempt ended and surely cost nothing; the question still waits for its answer."""

    q: QNo
    attempt: int
    error: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Arrived:
    """An attempt series ended with an outcome. It counts only once it is told, in turn.

    `took_s` the attempts themselves took, `waited_s` the pauses before another one, `limited_s` the
    waits for a limit of the rate.
    """

    q: QNo
    attempt: Attempt
    outcome: Outcome
    took_s: float = 0.0
    waited_s: float = 0.0
    limited_s: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Looked:
    """What the estimates were after `n_told` questions: what status and report read.

    `half_widths` are those of all estimates; `estimates` their full form (`Estimate.as_json`) at
    the stop, and before it of those with at most `GLANCE` names, so that the log stays linear.
    `is_precise` and `is_decided` say whether the target is reached, and whether all gates are decided
    or the ranking is separated, whichever ends the run;
    `policy` is what the policy says of itself (`Policy.explain`).
    """

    n_told: int
    settled: Nano
    uncertain: Nano
    held: Nano
    half_widths: tuple[float | None, ...]
    estimates: tuple[Mapping[str, Json], ...]
    is_precise: bool = False
    is_final: bool = False
    is_decided: bool = False
    policy: Mapping[str, Json] = field(default_factory=dict)


GLANCE = 12


@dataclass(frozen=True, slots=True, kw_only=True)
class Forfeited:
    """After the stop, an attempt that was sent and never answered is charged as uncertain."""

    q: QNo


@dataclass(frozen=True, slots=True, kw_only=True)
class Late:
    """After the stop, an answer still came: charged and stored, not counted."""

    q: QNo
    outcome: Outcome


@dataclass(frozen=True, slots=True, kw_only=True)
class Withdrawn:
    """After the stop, a question that was never sent is taken back and its hold released."""

    q: QNo


Fact = Started | Commanded | Sent | Freed | Arrived | Looked | Forfeited | Late | Withdrawn

Event = Decision | Fact

DECISIONS: frozenset[str] = frozenset(t.__name__ for t in get_args(Decision))
"""Kinds that form the chain."""
KINDS: dict[str, type] = {t.__name__: t for t in (*get_args(Decision), *get_args(Fact))}

# --- the chain ---------------------------------------------------------------------------------

GENESIS = bytes(16)


def link(head: bytes, kind: str, version: int, body: bytes) -> bytes:
    """Extend the hash chain by one decision event, given as it is stored."""
    return blake2b(
        b"%b\0%b\0%d\0%b" % (head, kind.encode(), version, body), digest_size=16
    ).digest()
