"""All that the engine is handed: plug-ins, rules and the opening event, as values."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from orchestrator.core.answers import Answers
from orchestrator.core.errors import JudgeError
from orchestrator.core.events import Opened
from orchestrator.core.judge import Judge
from orchestrator.core.money import Nano
from orchestrator.core.ports import Estimator, Policy
from orchestrator.core.query import Judged, Query
from orchestrator.core.stopping import StopRule
from orchestrator.core.wire import Attempt, Reply, Request
from orchestrator.engine.sequencer import Delivery


class Archive(Protocol):
    """Keeps of prompts and replies what the user allows; gives the digest, "" for nothing."""

    def prompt(self, request: Request) -> str:
        """Stage a prompt (or only name it by its digest)."""
        ...

    def reply(self, reply: Reply) -> str:
        """Stage a raw reply."""
        ...

    def words(self, error: JudgeError) -> str:
        """Give what a judge said in place of a reply, as far as that may be kept."""
        ...


class Memory(Protocol):
    """Answers of earlier runs: the cache."""

    def find(self, query: Query) -> Reply | None:
        """Give the answer to the same words from the same model; None if it is to be asked for."""
        ...

    def keep(self, query: Query, attempt: Attempt, reply: Reply, judged: Judged) -> str:
        """Keep a complete answer. Gives why what is kept can't be used any more, "" if it can."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Crew:
    """Who works on a run. Policies and estimators come as makers, since a replay needs new ones.

    `new_policy` and `new_estimators` take the cap that the run was opened with: they may plan with it.
    `new_estimators` gives the campaign's estimators in order; the first estimate of the first is
    the primary one. `n_units` counts what can be asked about; None where that is not known. `memory`
    None: every question goes to its judge. The last `n_systems` of the judges are systems under test,
    one an arm; their answers stand in `answers`, which serves one run at a time, and `recall` gives a
    kept one by its digest.
    """

    opened: Opened
    judges: tuple[Judge, ...]
    new_policy: Callable[[Nano | None], Policy]
    new_estimators: Callable[[Nano | None], tuple[Estimator, ...]]
    stop: StopRule
    delivery: Delivery = Delivery.IN_ORDER
    n_units: int | None = None
    memory: Memory | None = None
    n_systems: int = 0
    answers: Answers | None = None
    recall: Callable[[str], Reply | None] | None = None

    @property
    def systems(self) -> range:
        """The numbers of the systems among all who can be asked."""
        return range(len(self.judges) - self.n_systems, len(self.judges))
