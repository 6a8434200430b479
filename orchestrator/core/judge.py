"""A judge as the engine sees it: who renders, who sends, and within which limits."""

from __future__ import annotations

from dataclasses import dataclass

from orchestrator.core.ports import Adapter, Rubric


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """How many calls of one judge may run at a time."""

    concurrency: int = 16


@dataclass(frozen=True, slots=True, kw_only=True)
class Timeouts:
    """Deadlines of one judge, seconds on the monotonic clock.

    `attempt_s` bounds one call; `answer_s` all calls and waits of a question between two turns.
    """

    attempt_s: float = 300.0
    answer_s: float = 900.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Judge:
    """One judge of the panel. `max_attempts` counts all attempts of one question."""

    name: str
    rubric: Rubric
    adapter: Adapter
    limits: Limits = Limits()
    timeouts: Timeouts = Timeouts()
    max_attempts: int = 3
