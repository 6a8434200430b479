"""What is asked and what comes of it."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from hashlib import blake2b
from typing import assert_never

from orchestrator.core.ids import JudgeIx, QNo, UnitIx
from orchestrator.core.money import Nano
from orchestrator.core.wire import Origin, Usage


class Kind(StrEnum):
    """What a question asks for."""

    RATE = "rate"
    RATE_BATCH = "rate_batch"
    COMPARE = "compare"
    CHECK = "check"
    GENERATE = "generate"


class Role(StrEnum):
    """Who is asked: a judge, or a system under test."""

    JUDGE = "judge"
    SYSTEM = "system"


class Purpose(StrEnum):
    """Why a question is asked; spend is reported by it."""

    PROBE = "probe"
    PILOT = "pilot"
    POLICY = "policy"
    REPAIR = "repair"
    GENERATE = "generate"
    RECHECK = "recheck"


class MissingReason(StrEnum):
    """Why a question has no verdict. A missing verdict is never a score."""

    REFUSED = "refused"
    BLOCKED = "blocked"
    TRUNCATED = "truncated"
    PARSE_FAILURE = "parse_failure"
    EMPTY = "empty"
    TIMEOUT = "timeout"
    CONNECTION_LOST = "connection_lost"
    BAD_REQUEST = "bad_request"
    TOO_LONG = "too_long"
    EXCEEDS_RATE_BUCKET = "exceeds_rate_bucket"
    JUDGE_DOWN = "judge_down"
    SERVER_ERROR = "server_error"
    RATE_LIMITED = "rate_limited"
    EXHAUSTED = "exhausted"
    NO_MONEY_FOR_RETRY = "no_money_for_retry"
    NO_ANSWER = "no_answer"
    """The system under test gave none to a unit; its own question says why."""


class Preference(StrEnum):
    """The verdict of a comparison, by presentation slot."""

    FIRST = "first"
    SECOND = "second"
    TIE = "tie"


@dataclass(frozen=True, slots=True, kw_only=True)
class Query:
    """One question, as a policy proposes it.

    `units` stand in presentation order. `judge` indexes all who can be asked: the campaign's judges,
    then its systems. `replicate` counts repeats of the same question from 0. `parent` is the
    generation that a verdict reads, the last one where it reads several. `propensity` is the probability with which the policy
    chose this question given the past; it can't be reconstructed afterwards. Of an order that the seed
    drew up front by unequal chances it is the chance of the item at its place, among those not drawn.
    """

    kind: Kind
    judge: JudgeIx
    units: tuple[UnitIx, ...]
    replicate: int = 0
    role: Role = Role.JUDGE
    parent: QNo | None = None
    propensity: float = 1.0
    purpose: Purpose = Purpose.POLICY
    note: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Observation:
    """One verdict on one criterion of one unit.

    `slot` is its place in the presentation: the unit's where a question shows several, else the
    criterion's. `value` is on the criterion's scale (a boolean is 0 or 1) and, read from the
    probabilities of labels, between them; `mass` is then the probability of all labels together.
    `preference` is for comparisons. Both None: the judge said "not applicable". The question and
    its judge stand in the `Record` that holds the outcome.
    """

    unit: UnitIx
    slot: int = 0
    criterion: int = 0
    value: float | None = None
    preference: Preference | None = None
    mass: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Judged:
    """A question that was answered, and what the answer cost.

    `blob` is the digest of the raw reply in the store, empty when replies are not kept. `flags`
    name what was odd (`usage_missing`, a coercion, `suspected_injection`, `resampled`). `request_id` is the
    provider's own name of the call.
    """

    observations: tuple[Observation, ...]
    cost: Nano
    usage: Usage | None
    served_model: str = ""
    origin: Origin = Origin.LIVE
    blob: str = ""
    flags: tuple[str, ...] = ()
    request_id: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Missing:
    """A question without a verdict: why, what it cost, and what it may have cost.

    `cost` is certainly billed, `uncertain` is charged until proven free. `attempts` counts the
    attempts of the whole question. `detail` is the provider's or the parser's own word.
    """

    reason: MissingReason
    cost: Nano
    uncertain: Nano
    attempts: int
    usage: Usage | None = None
    detail: str = ""
    blob: str = ""
    request_id: str = ""


Outcome = Judged | Missing


def outcome_digest(outcome: Outcome) -> str:
    """Digest what a decision may depend on: observations, reason, usage and cost.

    Times, attempts, request ids, provider messages and the blob stay out, so two runs with the
    same answers have the same digests. Written by hand because it must not depend on an encoder's
    version: floats by `repr`, the shortest text that reads back.
    """
    match outcome:
        case Judged(observations=observations, cost=cost, usage=usage):
            said = ";".join(
                f"{o.unit},{o.slot},{o.criterion},{o.value!r},{o.preference}" for o in observations
            )
            text = f"judged|{said}|{cost}|{_usage_text(usage)}"
        case Missing(reason=reason, cost=cost, uncertain=uncertain, usage=usage):
            text = f"missing|{reason}|{cost}|{uncertain}|{_usage_text(usage)}"
        case _:
            assert_never(outcome)
    return blake2b(text.encode(), digest_size=16).hexdigest()


def _usage_text(usage: Usage | None) -> str:
    if usage is None:
        return "-"
    return (
        f"{usage.input_tok},{usage.cached_input_tok},{usage.cache_write_5m_tok},"
        f"{usage.cache_write_1h_tok},{usage.output_tok}"
    )
