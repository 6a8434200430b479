"""Small stand-ins for the plug-ins, so that the engine can be tested by itself.

The fake judge answers from the question alone, so two runs agree whatever the timing; what it
costs, how long it takes and how it fails is handed in.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

import anyio
from pydantic import BaseModel, ConfigDict

from orchestrator.core.answers import Answers
from orchestrator.core.budget import BudgetView
from orchestrator.core.errors import JudgeError
from orchestrator.core.estimate import Estimate, Status
from orchestrator.core.events import (
    Asked,
    CapChanged,
    Declined,
    JudgeDown,
    JudgeUp,
    Opened,
    Parked,
    PriceChanged,
)
from orchestrator.core.ids import JudgeIx, UnitIx
from orchestrator.core.judge import Judge, Limits, Timeouts
from orchestrator.core.money import Nano, PriceCard
from orchestrator.core.ports import FINISH, PAUSE, Plugin, PolicyEvent, Reading, Turn, Unreadable
from orchestrator.core.query import Judged, Kind, MissingReason, Observation, Preference, Query
from orchestrator.core.records import Record
from orchestrator.core.stopping import StopRule
from orchestrator.core.wire import Attempt, Finish, Json, Origin, Reply, Request, Text, Usage
from orchestrator.engine.crew import Crew
from orchestrator.engine.sequencer import Delivery
from orchestrator.store.codec import decode_reply, digest, encode_reply

KEY_WORD = "key"
"""An answer that needs no judge."""

NANO_TOKEN = PriceCard(output=1000)
"""A card at which one output token costs one nano-USD, so usage is money."""


@dataclass(frozen=True, slots=True)
class Script:
    """What the fake judge does with one attempt: how long, how dear, and how it fails."""

    latency_s: float = 0.0
    cost: int = 5_000_000
    error: JudgeError | None = None
    finish: Finish = Finish.STOP
    text: str | None = None


@dataclass(slots=True)
class FakeAdapter:
    """A judge or system that follows a script.

    An attempt holds `hold` nano-USD, and `per_byte` for each byte of its prompt; twice when widened.
    """

    script: Callable[[Request], Script]
    hold: int = 22_000_000
    per_byte: int = 0
    before_send: Callable[[Request], Awaitable[None]] | None = None
    sent: list[Request] = field(default_factory=list)

    def ceiling(self, request: Request, card: PriceCard) -> Nano:
        """Price the hold at the card in force."""
        factor = 2 if request.attempt.widened else 1
        hold = self.hold + self.per_byte * len(said(request))
        return Nano(factor * hold * card.output // NANO_TOKEN.output)

    async def send(self, request: Request) -> Reply:
        """Do as the script says."""
        self.sent.append(request)
        if self.before_send is not None:
            await self.before_send(request)
        script = self.script(request)
        await anyio.sleep(script.latency_s)
        if script.error is not None:
            raise script.error
        unit = request.query.units[0]
        return Reply(
            text=str(float(unit % 7)) if script.text is None else script.text,
            finish=script.finish,
            usage=Usage(output_tok=script.cost),
        )

    async def aclose(self) -> None:
        """Hold nothing open."""


def said(request: Request) -> str:
    """Give the words of a request."""
    return "".join(part.text for part in request.parts if isinstance(part, Text))


class FakeRubric:
    """Sends the unit's number, with what systems have answered, and reads a number.

    An answer that is a key word decides by itself.
    """

    def __init__(self, answers: Answers | None = None) -> None:
        self._answers = answers

    def render(self, query: Query, attempt: Attempt) -> Request:
        """Write the unit's number; of each unit the answer, if there are any."""
        words = [f"unit {query.units[0]}", *self._of(query)]
        text = Text(text="\n".join(words))
        return Request(query=query, attempt=attempt, parts=(text,), max_output_tok=1, schema={})

    def known(self, query: Query) -> Reply | None:
        """Give the verdict on answers that are all the key word."""
        words = self._of(query)
        if not words or set(words) != {KEY_WORD}:
            return None
        return Reply(text="1.0", finish=Finish.STOP, usage=None, origin=Origin.KEY)

    def _of(self, query: Query) -> list[str]:
        if self._answers is None:
            return []
        return [str(self._answers[unit][self._answers.name]) for unit in query.units]

    def read(self, query: Query, reply: Reply) -> Reading | Unreadable:
        """Read a number, or name the way the reply ended."""
        match reply.finish:
            case Finish.LENGTH:
                return Unreadable(reason=MissingReason.TRUNCATED)
            case Finish.EMPTY:
                return Unreadable(reason=MissingReason.EMPTY)
            case Finish.REFUSED:
                return Unreadable(reason=MissingReason.REFUSED)
            case _:
                said = Observation(unit=query.units[0], value=float(reply.text))
                return Reading(observations=(said,))


class FakePrompt(FakeRubric):
    """Sends the unit's number to a system, and takes whatever comes for an answer."""

    def read(self, query: Query, reply: Reply) -> Reading | Unreadable:
        """Read nothing, or name the way the reply ended."""
        found = FakeRubric.read(self, query, replace(reply, text="0"))
        return found if isinstance(found, Unreadable) else Reading(observations=())


class InTurnPolicy:
    """Asks each unit of each judge once, judges in turn; asks again what was parked or declined.

    A question shows `n_shown` units that follow each other, in a ring.
    """

    def __init__(self, n_units: int, n_judges: int = 1, n_shown: int = 1) -> None:
        self._todo = [
            Query(
                kind=Kind.RATE if n_shown == 1 else Kind.COMPARE,
                judge=JudgeIx(j),
                units=tuple(UnitIx((u + k) % n_units) for k in range(n_shown)),
            )
            for u in range(n_units)
            for j in range(n_judges)
        ]
        self._open: dict[int, Query] = {}
        self._declined: list[Query] = []
        self._down: set[int] = set()
        self._gone: set[int] = set()

    def ask(self, view: BudgetView) -> Query | Turn:
        """Propose the first question left whose judge is up."""
        del view
        for query in self._todo:
            if query.judge not in self._down:
                return query
        waits = any(query.judge not in self._gone for query in self._todo)
        return PAUSE if self._open or waits else FINISH

    def tell(self, event: PolicyEvent) -> None:
        """Keep the list of what is left."""
        match event:
            case Asked(q=q, query=query):
                self._todo.remove(query)
                self._open[q] = query
            case Record(q=q):
                del self._open[q]
            case Parked(q=q):
                self._todo.insert(0, self._open.pop(q))
            case Declined(query=query):
                self._todo.remove(query)
                self._declined.append(query)
            case CapChanged() | PriceChanged():
                self._todo = self._declined + self._todo
                self._declined = []
            case JudgeDown(judge=judge, until=until):
                self._down.add(judge)
                (self._gone.add if until is None else self._gone.discard)(judge)
            case JudgeUp(judge=judge):
                self._down.discard(judge)
                self._gone.discard(judge)

    def explain(self) -> dict[str, Json]:
        """Say how much is left."""
        return {"left": len(self._todo)}


class MeanEstimator:
    """The plain mean of all values, with an interval that narrows like 1/sqrt(n)."""

    def __init__(self) -> None:
        self.values: list[float] = []

    def update(self, record: Record) -> None:
        """Keep the values of an answer."""
        if isinstance(record.outcome, Judged):
            self.values += [o.value for o in record.outcome.observations if o.value is not None]

    def estimate(self) -> tuple[Estimate, ...]:
        """Give the mean."""
        n = len(self.values)
        mean = sum(self.values) / n if n else float("nan")
        half = 3.0 / n**0.5 if n else float("nan")
        return (
            Estimate(
                name="mean",
                kind="fake",
                target="mean",
                estimand="these items",
                names=("all",),
                value=(mean,),
                se=(half / 2,),
                lower=(mean - half,),
                upper=(mean + half,),
                level=0.95,
                interval="fake",
                watching_covered=False,
                alpha_split="none",
                family="",
                n_items=n,
                n_answers=n,
                status=Status.OK if n else Status.EMPTY,
            ),
        )


class ShareConfig(BaseModel):
    """Settings of `SHARE_OF_FIRST`."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    name: str
    kind: str


class ShareOfFirst(MeanEstimator):
    """The share of comparisons that the answer shown first wins, ties counted half."""

    def update(self, record: Record) -> None:
        """Keep what an answer says, by each criterion that applies."""
        if isinstance(record.outcome, Judged):
            said = [o.preference for o in record.outcome.observations if o.preference is not None]
            self.values += [_WORTH[preference] for preference in said]


_WORTH = {Preference.FIRST: 1.0, Preference.TIE: 0.5, Preference.SECOND: 0.0}

SHARE_OF_FIRST = Plugin(config=ShareConfig, build=lambda config, study: ShareOfFirst())  # noqa: ARG005


class MemoryArchive:
    """Keeps all replies in memory."""

    def __init__(self) -> None:
        self.blobs: dict[str, bytes] = {}

    def prompt(self, request: Request) -> str:
        """Keep no prompts."""
        del request
        return ""

    def reply(self, reply: Reply) -> str:
        """Keep a reply."""
        data = encode_reply(reply)
        name = digest(data)
        self.blobs[name] = data
        return name

    def words(self, error: JudgeError) -> str:
        """Keep what a judge said."""
        return str(error)

    def recall(self, digest: str) -> Reply | None:
        """Read a reply again."""
        data = self.blobs.get(digest)
        return None if data is None else decode_reply(data)


def fake_crew(
    adapters: Sequence[FakeAdapter],
    *,
    systems: Sequence[FakeAdapter] = (),
    n_units: int = 100,
    n_shown: int = 1,
    longest: int = 8,
    cap: int | None = 100_000_000,
    judge_caps: Sequence[int | None] | None = None,
    role_caps: Mapping[str, int] | None = None,
    window: int = 64,
    max_uncertain: int | None = None,
    max_requests: int | None = None,
    max_attempts: int = 3,
    stop: StopRule | None = None,
    timeouts: Timeouts | None = None,
    delivery: Delivery = Delivery.IN_ORDER,
    concurrency: int = 1000,
) -> Crew:
    """Put a crew together around fake judges and fake systems, which answer the units in turn.

    `longest`: bytes of the longest answer that is reckoned with. `judge_caps` are those of the judges,
    then of the systems.
    """
    asked = [*adapters, *systems]
    names = [f"judge{j}" for j in range(len(adapters))]
    names += [f"system{s}" for s in range(len(systems))]
    answers = Answers([{}] * n_units, "candidate", [longest] * n_units) if systems else None
    rubrics = [FakeRubric(answers)] * len(adapters) + [FakePrompt()] * len(systems)
    identity: dict[str, Json] = {"name": "fake", "judges": [{"name": n} for n in names]}
    opened = Opened(
        identity=identity,
        digest="fake",
        seed=0,
        cap=None if cap is None else Nano(cap),
        judge_caps=tuple(None if c is None else Nano(c) for c in judge_caps)
        if judge_caps
        else (None,) * len(asked),
        role_caps={role: Nano(most) for role, most in (role_caps or {}).items()},
        cards=(NANO_TOKEN,) * len(asked),
        max_requests=max_requests,
        max_tok=None,
        max_uncertain=None if max_uncertain is None else Nano(max_uncertain),
        window=window,
        looks=25 if stop is None else stop.every,
    )
    return Crew(
        opened=opened,
        judges=tuple(
            Judge(
                name=name,
                rubric=rubric,
                adapter=adapter,
                limits=Limits(concurrency=concurrency),
                timeouts=timeouts or Timeouts(),
                max_attempts=max_attempts,
            )
            for name, rubric, adapter in zip(names, rubrics, asked, strict=True)
        ),
        new_policy=lambda _: InTurnPolicy(n_units, len(adapters), n_shown),
        new_estimators=lambda _: (MeanEstimator(),),
        stop=stop or StopRule(),
        delivery=delivery,
        n_systems=len(systems),
        answers=answers,
    )
