"""A judge as the engine sees it: who renders, who sends, and within which limits."""

from __future__ import annotations

from dataclasses import dataclass, field

from orchestrator.core.ports import Adapter, Rubric
from orchestrator.core.wire import Route


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """How many calls of one judge may run at a time, and what it may use in a minute.

    None: no limit is known, and only the provider's refusals tell.
    """

    concurrency: int = 16
    rpm: int | None = None
    input_tpm: int | None = None
    output_tpm: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Timeouts:
    """Deadlines of one judge, seconds on the monotonic clock.

    `attempt_s` bounds one call; `answer_s` all calls of a question between two turns and the pauses
    between them, waits for a place or a limit of the rate apart. A judge that must wait longer than
    `patience_s` is parked; where all are parked for longer than `max_wait_s`, the run stops.
    """

    attempt_s: float = 300.0
    answer_s: float = 900.0
    patience_s: float = 30.0
    max_wait_s: float = 900.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Judge:
    """One judge of the panel.

    `max_attempts` counts all attempts of one question. Judges of one `account` share what their
    provider allows to a key: a refusal of one makes all of them wait; empty, the judge has its own.
    `signature` digests all of a judge that its answers depend on, for the cache.
    """

    name: str
    rubric: Rubric
    adapter: Adapter
    limits: Limits = Limits()
    timeouts: Timeouts = Timeouts()
    max_attempts: int = 3
    account: str = field(default="", repr=False)  # it may hold a password
    model: str = ""
    route: Route = Route.SCHEMA
    signature: str = ""
