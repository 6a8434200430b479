"""Ask and tell: a campaign whose judges the user's own loop calls.

The loop takes the place of dispatcher and workers alone. What is asked, what is held, which outcome
counts when, the looks and the stop are those of a run, and so is the log.
"""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping
from contextlib import ExitStack
from dataclasses import astuple, dataclass, field
from itertools import islice
from pathlib import Path
from types import TracebackType
from typing import Self, TypeVar, TypeVarTuple, Unpack

import anyio
from anyio.from_thread import BlockingPortal, start_blocking_portal

from orchestrator.core.errors import ConfigError, StorageFailed
from orchestrator.core.estimate import Estimate
from orchestrator.core.events import LimitReached, Sent
from orchestrator.core.ids import JudgeIx, QNo
from orchestrator.core.money import Nano, PriceCard
from orchestrator.core.query import MissingReason, Outcome, Preference
from orchestrator.core.scale import Criterion, ScaleType
from orchestrator.core.wire import Billing, Finish, Json, Reply, Request, Usage
from orchestrator.engine.attempts import Arrival, Job, answered, unanswered
from orchestrator.engine.decider import Decider
from orchestrator.engine.fold import State
from orchestrator.previewing import as_text
from orchestrator.report.screen import Progress
from orchestrator.session import Result, Session
from orchestrator.store.archive import BlobArchive
from orchestrator.store.sqlite import SqliteStore

T = TypeVar("T")
Args = TypeVarTuple("Args")

Verdict = float | str | Mapping[str, float | str | None]
"""A number or a `Preference`, where there is one criterion; a value for each criterion, None for "not
applicable"; or the judge's reply as text."""

BILLING: Mapping[MissingReason, Billing] = {
    MissingReason.REFUSED: Billing.YES,
    MissingReason.BLOCKED: Billing.YES,
    MissingReason.TRUNCATED: Billing.YES,
    MissingReason.PARSE_FAILURE: Billing.YES,
    MissingReason.EMPTY: Billing.YES,
    MissingReason.TIMEOUT: Billing.UNKNOWN,
    MissingReason.CONNECTION_LOST: Billing.UNKNOWN,
    MissingReason.SERVER_ERROR: Billing.UNKNOWN,
    MissingReason.RATE_LIMITED: Billing.NO,
    MissingReason.BAD_REQUEST: Billing.NO,
    MissingReason.TOO_LONG: Billing.NO,
    MissingReason.JUDGE_DOWN: Billing.NO,
}
"""The reasons that a loop can give for a missing verdict, and whether such a call is billed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """One question that the loop was handed, with its money held.

    `item` and `arm` name what is judged, `hold` bounds the bill of one call in nano-USD. `attempt`
    counts from 1: a question whose call brought no verdict may come again. `request` holds the
    parts, the schema and the output limit; a call must not have a higher one.
    """

    id: int
    item: str
    arm: str
    judge: str
    model: str
    attempt: int
    hold: Nano
    request: Request

    @property
    def prompt(self) -> str:
        """The request as one text."""
        return as_text(self.request)

    @property
    def schema(self) -> dict[str, Json]:
        """The JSON Schema of the reply."""
        return self.request.schema

    @property
    def max_output_tok(self) -> int:
        """The output limit of the call, in tokens."""
        return self.request.max_output_tok


@dataclass(slots=True)
class _Waiting:
    """The outbox of a loop: questions wait until the loop takes them."""

    jobs: dict[QNo, Job] = field(default_factory=dict)

    def put(self, job: Job) -> None:
        self.jobs[job.q] = job

    def drop(self, judge: JudgeIx) -> None:
        self.jobs = {q: job for q, job in self.jobs.items() if job.query.judge != judge}

    def drop_all(self) -> None:
        self.jobs.clear()

    def take(self, n: int) -> list[Job]:
        """Take the questions that have waited longest."""
        return [self.jobs.pop(q) for q in list(islice(self.jobs, n))]


@dataclass(frozen=True, slots=True)
class _Taken:
    job: Job
    at_s: float


class OwnLoop:
    """A campaign that the user's own loop carries out: ``for q in run.ask(8): run.tell(q.id, ...)``.

    `Campaign.own_loop` gives it. A context manager; leaving the block closes it. Methods may be
    called from several threads. Each returns once what it did is durable.

    Raises
    ------
    RunLocked, IdentityChanged, ConfigError, StorageFailed
        When it is made; as for `Campaign.run`.
    """

    def __init__(self, begin: Callable[[], Awaitable[Session]]) -> None:
        self._result: Result | None = None
        self._taken: dict[QNo, _Taken] = {}
        self._has_failed = False
        self._is_released = False
        self._began_s = time.monotonic()
        # The store wants an event loop; one in a thread of its own works in notebooks too.
        self._stack = ExitStack()
        self._portal: BlockingPortal = self._stack.enter_context(start_blocking_portal())
        try:
            self._portal.call(self._take_up, begin)
        except BaseException:
            self._stack.close()
            raise

    async def _take_up(self, begin: Callable[[], Awaitable[Session]]) -> None:
        self._turns = anyio.Lock()
        self._session = await begin()
        self._store = SqliteStore.open(self._session.directory)
        try:
            self._state: State = await self._session.take_up(self._store)
        except BaseException:
            self._store.close()
            raise
        self._archive: BlobArchive = self._session.archive(self._store)
        self._waiting = _Waiting()
        self._decider = Decider(self._state, self._waiting, self._archive, may_thread=True)
        self._decider.take_up_unsent()

    # --- ask and tell ---------------------------------------------------------------------------

    def ask(self, n: int = 1) -> list[Question]:
        """Take up to n questions; the hold of each is durable.

        An empty list: the run is over (`is_over`), or the policy waits for what is `untold`.
        """
        if n < 1:
            raise ConfigError(f"ask: wants a whole number above 0, not {n!r}")
        return self._call(self._ask, n)

    def tell(
        self, q: int, verdict: Verdict, usage: Usage | None = None, *, served_model: str = ""
    ) -> Outcome:
        """Tell what a judge answered, and what the provider counted.

        The verdict is read as in a run: nothing is rescaled or clamped, and what is no verdict is
        missing (`parse_failure`); the outcome says so. The cost is usage times the price in force;
        without usage it is the whole hold, except where the judge is free or charges by the call.
        It counts once all questions asked before it are told.

        Raises
        ------
        ConfigError
            The question is not under way, a number was told where there are several criteria, or
            the usage holds anything but whole numbers from 0 up.
        """
        _check_usage(q, usage)
        return self._call(self._tell, QNo(q), verdict, usage, served_model)

    def tell_missing(
        self,
        q: int,
        reason: MissingReason | str,
        usage: Usage | None = None,
        *,
        billing: Billing | str | None = None,
        detail: str = "",
    ) -> Outcome:
        """Tell that a call brought no verdict, and why.

        `billing` says whether it was charged, by default as `BILLING` has it for the reason, and
        `yes` with usage: `yes` charges usage or else the hold, `unknown` the hold as uncertain. A
        question may come again, as in a run: after `unknown`, once after `empty`, once with twice
        the output after `truncated`, within `max_attempts`. `judge_down` asks its judge no more.
        `detail` is kept where `output.keep` allows for a provider's words.

        Raises
        ------
        ConfigError
            The question is not under way, there is no such reason, or the usage is no usage.
        """
        _check_usage(q, usage)
        try:
            why = MissingReason(reason)
            expected = BILLING[why] if usage is None else Billing.YES
            billed = expected if billing is None else Billing(billing)
        except (KeyError, ValueError) as exc:
            known = ", ".join(BILLING)
            raise ConfigError(
                f"question {q}: reason {str(reason)!r}, billing {billing!r}; reasons are {known}; "
                f"billing is {', '.join(Billing)}"
            ) from exc
        if usage is not None and billed is not Billing.YES:
            raise ConfigError(f"question {q}: usage is charged, so billing can't be {billed}")
        return self._call(self._tell_missing, QNo(q), why, billed, usage, detail)

    async def _ask(self, n: int) -> list[Question]:
        async with self._turns:
            await self._decide()
            jobs = self._waiting.take(n)
            for job in jobs:
                prompt = self._archive.prompt(job.request)
                self._decider.do(Sent(q=job.q, attempt=job.number, prompt=prompt))
            await self._commit()
            now = time.monotonic()
            self._taken |= {job.q: _Taken(job, now) for job in jobs}
            return list(map(self._question, jobs))

    async def _tell(
        self, q: QNo, verdict: Verdict, usage: Usage | None, served_model: str
    ) -> Outcome:
        async with self._turns:
            job = self._under_way(q)
            text = _as_reply(q, verdict, self._session.blueprint.study.criteria)
            if usage is None and _counts_no_tokens(job.card):
                usage = Usage()
            reply = Reply(text=text, finish=Finish.STOP, usage=usage, served_model=served_model)
            outcome = answered(job, reply, self._archive)
            await self._take_in(job, outcome, reply)
            return outcome

    async def _tell_missing(
        self, q: QNo, reason: MissingReason, billing: Billing, usage: Usage | None, detail: str
    ) -> Outcome:
        async with self._turns:
            job = self._under_way(q)
            if not self._archive.keeps_words:
                detail = ""
            outcome = unanswered(job, reason, billing, usage=usage, detail=detail)
            is_down = reason is MissingReason.JUDGE_DOWN
            await self._take_in(job, outcome, parks=detail or "told so" if is_down else None)
            return outcome

    async def _take_in(
        self, job: Job, outcome: Outcome, reply: Reply | None = None, *, parks: str | None = None
    ) -> None:
        taken = self._taken.pop(job.q)
        job.took_s = time.monotonic() - taken.at_s
        self._decider.take_in(Arrival(job=job, outcome=outcome, reply=reply, parks=parks))
        await self._decide()
        await self._commit()

    async def _decide(self) -> None:
        state = self._state
        if state.stopped is None:
            most_s = self._session.blueprint.file.campaign.budget.wall_clock
            is_late = most_s is not None and time.monotonic() - self._began_s >= most_s
            if is_late and state.limit_reached is None:
                self._decider.do(LimitReached(which="wall_clock"))
            await self._decider.decide()
            while self._decider.has_more:
                await self._decider.decide()
        if state.stopped is not None:
            self._decider.close_unsent()

    async def _commit(self) -> None:
        events = self._decider.end_turn()
        if events:
            await self._store.append(events, self._progress().to_json())

    def _under_way(self, q: QNo) -> Job:
        if q not in self._taken:
            raise ConfigError(f"question {q} is not under way: never handed out, or told already")
        return self._taken[q].job

    def _question(self, job: Job) -> Question:
        blueprint = self._session.blueprint
        frame, judge = blueprint.study.frame, job.query.judge
        unit = job.query.units[0]
        return Question(
            id=job.q,
            item=frame.items[frame.item_of(unit)],
            arm=frame.arms[frame.arm_of(unit)],
            judge=job.judge.name,
            model=blueprint.entries[judge].model,
            attempt=job.request.attempt.number,
            hold=job.hold,
            request=job.request,
        )

    # --- how it stands --------------------------------------------------------------------------

    @property
    def directory(self) -> Path:
        """Where the run's files are."""
        return self._session.directory

    @property
    def is_over(self) -> bool:
        """Whether the run has stopped; what is untold may still be told, and is charged."""
        return self._state.stopped is not None

    @property
    def untold(self) -> tuple[int, ...]:
        """The questions that were handed out and not told."""
        return tuple(self._taken)

    @property
    def progress(self) -> Progress:
        """How the run stands."""
        return self._call(self._between_turns, self._progress)

    @property
    def estimates(self) -> tuple[Estimate, ...]:
        """What is known by now, those of the primary entry first."""
        return self._call(self._between_turns, self._state.estimate)

    async def _between_turns(self, read: Callable[[], T]) -> T:
        async with self._turns:
            return read()

    def _progress(self) -> Progress:
        state = self._state
        under_way = Counter[int](at.query.judge for at in state.open.values() if at.sent)
        counts = [under_way[judge] for judge in range(len(state.judges))]
        return self._session.progress(state, under_way=counts)

    def close(self) -> Result:
        """Write what is derived from the log, and give the run free; again is fine.

        What was handed out and not told stays held; when the campaign is opened again it is charged
        as uncertain and, if that fits, asked again.
        """
        if self._has_failed:
            raise StorageFailed
        if self._result is None:
            self._release()
            self._result = self._session.derive(self._store.fingerprint)
        return self._result

    def _call(self, work: Callable[[Unpack[Args]], Awaitable[T]], *arguments: *Args) -> T:
        if self._is_released:
            raise ConfigError("this loop is closed; open the run again with Campaign.own_loop")
        try:
            return self._portal.call(work, *arguments)
        except StorageFailed:
            self._has_failed = True
            self._release()
            self._session.note_failure()
            raise

    def _release(self) -> None:
        self._is_released = True
        self._stack.close()  # first: what an interrupted call has begun still ends
        self._store.close()

    def __enter__(self) -> Self:
        """Begin the block."""
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Close the run; a failed one is closed already."""
        if not self._has_failed:
            self.close()


def _check_usage(q: int, usage: object) -> None:
    """Refuse what would make money go backwards, or in fractions."""
    if usage is None:
        return
    counts = astuple(usage) if isinstance(usage, Usage) else ("",)
    if not all(type(n) is int and 0 <= n <= _MOST_TOKENS for n in counts):
        raise ConfigError(f"question {q}: wants a Usage of whole numbers from 0 up, not {usage!r}")


_MOST_TOKENS = 10**12


def _as_reply(q: int, verdict: Verdict, criteria: tuple[Criterion, ...]) -> str:
    """Write a verdict as the reply that a judge would have sent; a text is one already."""
    if isinstance(verdict, str) and not isinstance(verdict, Preference):
        return verdict
    if not isinstance(verdict, Mapping):
        if len(criteria) > 1:
            names = ", ".join(criterion.name for criterion in criteria)
            raise ConfigError(f"question {q}: a value for each of {names} is wanted")
        verdict = {criteria[0].name: verdict}
    booleans = {c.name for c in criteria if c.scale.type is ScaleType.BOOLEAN}
    said = {
        name: bool(value) if name in booleans and value in (0, 1) else value
        for name, value in verdict.items()
    }
    return json.dumps(said, ensure_ascii=False, default=float)


def _counts_no_tokens(card: PriceCard) -> bool:
    return not (card.dearest_input or card.output)
