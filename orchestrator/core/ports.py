"""The ports: what the engine asks of a policy, an estimator, a judge and a store.

They are as small as a transport. If a method could only answer "not supported", the port is wrong.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, NamedTuple, Protocol

from orchestrator.core.budget import BudgetView
from orchestrator.core.estimate import Estimate
from orchestrator.core.events import (
    Asked,
    CapChanged,
    Declined,
    Event,
    JudgeDown,
    JudgeUp,
    Parked,
    PriceChanged,
)
from orchestrator.core.ids import JudgeIx, Seq
from orchestrator.core.money import Nano, PriceCard
from orchestrator.core.query import MissingReason, Observation, Query, Role
from orchestrator.core.records import Record
from orchestrator.core.study import Study
from orchestrator.core.wire import Attempt, Json, Reply, Request, Route


class Turn(Enum):
    """What a policy says when it has no question."""

    PAUSE = "pause"
    """Nothing to ask until something outstanding is told."""
    FINISH = "finish"
    """The design is complete."""


PAUSE = Turn.PAUSE
FINISH = Turn.FINISH

PolicyEvent = Asked | Record | Declined | Parked | JudgeDown | JudgeUp | CapChanged | PriceChanged
"""What a policy hears. `Record` stands for `Told`, joined with its question and outcome."""


class Policy(Protocol):
    """Decides what to ask next.

    A policy is a state machine over decision events. It is built from config, study and seed
    alone, and reads no clock, no file, no global random numbers: the same events give the same
    state, so a run is resumed by telling a fresh policy the recorded events.
    """

    def ask(self, view: BudgetView) -> Query | Turn:
        """Propose the next question. Pure: two calls in a row agree.

        Whether it fits the budget is the engine's business. A proposal that does not fit, while
        nothing is outstanding, comes back as `Declined`: propose something cheaper, or `FINISH`.
        `PAUSE` is allowed only while something is outstanding or a judge is down for a time.
        """
        ...

    def tell(self, event: PolicyEvent) -> None:
        """Take in one event; the only method that changes state."""
        ...

    def explain(self) -> Mapping[str, Json]:
        """Say in a few facts what it does and why, as JSON; it stands in every look."""
        ...


class Estimator(Protocol):
    """Turns outcomes into estimates, as they come."""

    def update(self, record: Record) -> None:
        """Take in one told question, missing ones included. O(1) amortised."""
        ...

    def estimate(self) -> tuple[Estimate, ...]:
        """Say what is known by now. Called at looks; never raises: its status says why."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """The verdicts of a reply. `flags` name what was odd about them and harmless, as in `Judged`."""

    observations: tuple[Observation, ...]
    flags: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Unreadable:
    """A reply that holds no verdict, and why."""

    reason: MissingReason
    detail: str = ""


class Rubric(Protocol):
    """Puts a question into words and reads the reply. Both are pure."""

    def render(self, query: Query, attempt: Attempt) -> Request:
        """Write the request; a `widened` attempt gets twice the output limit."""
        ...

    def read(self, query: Query, reply: Reply) -> Reading | Unreadable:
        """Read the verdict. Nothing is guessed, rescaled, clamped or defaulted."""
        ...


class Adapter(Protocol):
    """Speaks to one judge."""

    def ceiling(self, request: Request, card: PriceCard) -> Nano:
        """Bound what one attempt of a request can cost at a price card. Pure."""
        ...

    async def send(self, request: Request) -> Reply:
        """Make exactly one attempt.

        Raises
        ------
        JudgeError
            No reply; says whether it can have been billed. Cancellation leaves the attempt
            undecided: the engine charges it as uncertain.
        """
        ...

    async def aclose(self) -> None:
        """Close connections."""
        ...


class Row(NamedTuple):
    """One row of the log. `at` (POSIX seconds) is informational, `version` that of its body."""

    seq: Seq
    at: float
    event: Event
    version: int


class Store(Protocol):
    """Keeps the log. All-or-nothing appends, durable on return; one writer process."""

    @property
    def head(self) -> bytes:
        """The hash chain's head over all appended decision events."""
        ...

    async def append(self, events: Sequence[Event], progress: bytes | None = None) -> Seq:
        """Append events and replace the progress row, in one durable commit.

        The order of calls is the order of the log, also among calls that wait together.

        Raises
        ------
        StorageFailed
            Nothing of this call was kept, and the store takes no further appends.
        """
        ...

    def read(self, after: int = 0) -> Iterator[Row]:
        """Read committed events in order."""
        ...

    def put_blob(self, data: bytes) -> str:
        """Stage a blob for the next append; give its digest."""
        ...

    def get_blob(self, digest: str) -> bytes | None:
        """Fetch a committed blob."""
        ...

    def close(self) -> None:
        """Release the run."""
        ...


# --- plug-ins ----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Plugin:
    """What a plug-in module offers as `PLUGIN`.

    `config` is a frozen pydantic model with ``extra="forbid"``; `build` makes the thing: policies
    and estimators by ``build(config, study)``, judges by ``build(config, setting)`` with a
    `JudgeSetting`. Policies and estimators refuse a study by a `ValueError` whose text begins with
    the key at fault, ``depth: 3 is too deep``: their own or a field's path, as `stop.every`.
    An estimator `wants_panel` if a unit counts only once every judge has answered, whichever it is.
    """

    config: type[Any]
    build: Callable[..., Any]
    wants_panel: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Decoding:
    """How a model chooses its words; None leaves it to the provider.

    `extra` goes into the request's body as it stands. With `is_strict` a parameter that the model
    is known to refuse is an error, else it is left out and said.
    """

    temperature: float | None = None
    top_p: float | None = None
    seed: int | None = None
    extra: Mapping[str, Json] = field(default_factory=dict)
    is_strict: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class JudgeSetting:
    """What an adapter is built from besides its own config.

    `truth` (n_units, n_criteria) float64 is the known truth of mock campaigns, None where the data
    hold none. `recording` is what a recorded judge answers from where that is no file. `keys` are what
    a right answer says, by unit, for systems that are mocks; None where no step compares with a key.
    The rest is for judges behind a connection: `base_url` None is the provider's own, `concurrency` says how
    many calls may be under way, and times are in seconds.
    """

    name: str
    judge: JudgeIx
    study: Study
    max_output_tok: int
    truth: Any = None
    recording: Any = None
    keys: Sequence[str] | None = None
    role: Role = Role.JUDGE
    model: str = ""
    base_url: str | None = field(default=None, repr=False)  # it may hold a password
    api_key: str = field(default="", repr=False)
    route: Route = Route.SCHEMA
    decoding: Decoding = Decoding()
    input_bound: str = "bytes"
    concurrency: int = 16
    connect_s: float = 10.0
    attempt_s: float = 300.0
