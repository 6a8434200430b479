"""One process's part of a run: open the log, mend it, go on, derive what people read."""

from __future__ import annotations

import math
import os
import platform
import socket
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import Any

import anyio

from orchestrator import rundir
from orchestrator.build import Blueprint
from orchestrator.control import Mailbox
from orchestrator.core.errors import ConfigError, CorruptLog, IdentityChanged, StorageFailed
from orchestrator.core.estimate import Estimate
from orchestrator.core.events import (
    CapChanged,
    Continued,
    Event,
    JudgeUp,
    Looked,
    Opened,
    PriceChanged,
    Reopened,
    Started,
)
from orchestrator.core.ids import JudgeIx
from orchestrator.core.money import Nano, format_usd
from orchestrator.core.stopping import StopReason
from orchestrator.core.wire import Json
from orchestrator.engine.dispatch import Dispatcher, Lane
from orchestrator.engine.fold import JudgeState, State
from orchestrator.engine.resume import repair, take_up
from orchestrator.engine.scheduler import Scheduler
from orchestrator.report.data import ReportData, state_of
from orchestrator.report.data import State as Ending
from orchestrator.report.export import answers, holds_comparisons, votes
from orchestrator.report.screen import JudgeProgress, Progress
from orchestrator.report.summary import read_estimate
from orchestrator.report.wording import headline
from orchestrator.steering import Helm
from orchestrator.store.archive import BlobArchive, KeepPrompts, KeepReplies, recall
from orchestrator.store.sqlite import SqliteStore

_PACKAGES = ("sortition", "anyio", "numpy", "scipy", "msgspec", "pydantic", "genai-prices")

Observer = Callable[[Progress, Sequence[Event]], None]
"""Hears how the run stands and what happened, after each commit."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """What a run came to: `data` sums up its log, `document` is its `result.json`."""

    directory: Path
    data: ReportData
    document: dict[str, Json]

    @property
    def state(self) -> str:
        """`finished`, `stopped`, `interrupted` or `failed`."""
        return str(self.data.state)

    @property
    def stop_reason(self) -> str:
        """Why the run ended."""
        return str(self.data.stop_reason)

    @property
    def exit_code(self) -> int:
        """The exit code of the command for this result."""
        return int(self.document["exit_code"])

    @property
    def estimates(self) -> tuple[Estimate, ...]:
        """All estimates, those of the primary entry first."""
        return self.data.estimates

    @property
    def spend(self) -> dict[str, Json]:
        """Money in nano-USD: cap, settled, uncertain, by judge, role and purpose."""
        return dict(self.document["spend"])

    @property
    def missing(self) -> dict[str, int]:
        """Questions without a verdict, by reason."""
        return dict(self.document["counts"]["missing"])

    def to_pandas(self) -> Any:
        """Give all answers as a data frame, one row a verdict; comparisons as in their export.

        Raises
        ------
        ImportError
            pandas is not installed.
        """
        try:
            import pandas as pd  # noqa: PLC0415  # not a dependency
        except ImportError as exc:
            raise ImportError("to_pandas wants pandas: pip install pandas") from exc

        with rundir.reading(self.directory) as reader:
            rows_of = votes if holds_comparisons(reader.read()) else answers
            return pd.DataFrame(list(rows_of(reader.read(), reader.get_blob)))


def result_of(directory: Path, data: ReportData) -> Result:
    """Write `result.json` and give the result."""
    return Result(directory=directory, data=data, document=rundir.write_result(directory, data))


async def start(directory: Path, blueprint: Blueprint, about: Mapping[str, Json]) -> None:
    """Make a new run directory: the opening, and how the campaign is loaded again."""

    def opening(store: SqliteStore) -> list[Event]:
        store.put_blob(blueprint.frame)
        return [blueprint.crew.opened, _started(blueprint, about)]

    try:
        await rundir.create(directory, opening)
        rundir.write_manifest(directory, blueprint.manifest(), blueprint.resolved())
    except BaseException:
        await close_judges(blueprint)
        raise


@dataclass(slots=True)
class Session:
    """Carries on one run until it stops or is interrupted."""

    directory: Path
    blueprint: Blueprint
    about: Mapping[str, Json]
    max_in_flight: int | None = None
    observe: Observer | None = None
    is_interrupted: bool = False
    _scheduler: Scheduler | None = None
    _began: float = field(default_factory=time.monotonic)
    _clock: Callable[[], float] = time.monotonic

    async def carry_out(self) -> Result:
        """Open the log, go on to the end, write what is derived.

        Raises
        ------
        RunLocked, IdentityChanged, ConfigError, StorageFailed
            In all cases but the last, nothing was written.
        """
        try:
            store = SqliteStore.open(self.directory)
            try:
                state = await self.take_up(store)
                if state.stopped is None:
                    await self._go_on(state, store)
            except StorageFailed:
                self.note_failure()
                raise
            finally:
                store.close()
        finally:
            await close_judges(self.blueprint)
        return self.derive(store.fingerprint)

    async def take_up(self, store: SqliteStore) -> State:
        """Fold the log, bring in what has changed since, and mend what a crash left open."""
        state, is_new = self._fold(store)
        # What a stop left open is closed before a run is reopened; otherwise a new cap or price
        # comes first, so that it holds for what is asked again.
        events = repair(state) if state.stopped is not None else []
        events += self._changes(state)
        events += repair(state)
        if state.stopped is None and (events or not is_new):
            events.append(_started(self.blueprint, self.about, store.took_over))
        if events:
            await store.append(events, self.progress(state).to_json())
        return state

    def note_failure(self) -> None:
        """Write down that the log could not be written."""
        with suppress(OSError):  # the disk is full, so this may fail too
            data = rundir.summary(self.directory, unstopped=Ending.FAILED)
            rundir.write_result(self.directory, data)

    def archive(self, store: SqliteStore) -> BlobArchive:
        """Keep of prompts and replies what the campaign allows."""
        keep = self.blueprint.file.campaign.output.keep
        return BlobArchive(store, KeepPrompts(keep.prompts), KeepReplies(keep.replies))

    def interrupt(self) -> None:
        """Drain the run, or cut it if it is draining already."""
        self.is_interrupted = True
        if self._scheduler is not None:
            self._scheduler.interrupt()

    @property
    def is_draining(self) -> bool:
        """Whether an interrupt, also one by a signal, lets nothing more be asked."""
        scheduler = self._scheduler
        return self.is_interrupted or (scheduler is not None and scheduler.is_draining)

    def _fold(self, store: SqliteStore) -> tuple[State, bool]:
        """Fold the log; say whether the run is new."""
        rows = store.read()
        first = next(rows, None)
        if first is None or not isinstance(first.event, Opened):
            raise CorruptLog("the log does not begin with the opening of a run", seq=1)
        check_identity(first.event, self.blueprint.crew.opened)
        remember = self.blueprint.memory
        memory = None if remember is None else remember(first.at)
        crew = replace(
            self.blueprint.crew,
            opened=first.event,
            memory=memory,
            recall=partial(recall, store),
        )
        state = State(crew)
        state.apply(first.event)
        take_up(state, rows)
        is_new = not state.n_asked and not store.took_over
        return state, is_new

    def _changes(self, state: State) -> list[Event]:
        """Bring into the log what may change between processes; gives the events, applied.

        A changed cap or price, and judges that were down: a resume tries them again.
        """
        now = self.blueprint.crew.opened
        account = state.ledger.campaign
        if now.cap is not None and now.cap < account.committed and now.cap != account.cap:
            raise ConfigError(
                f"budget.usd: {format_usd(now.cap)} is less than the "
                f"{format_usd(account.committed)} that this run has spent or holds; nothing was "
                "changed"
            )
        events: list[Event] = []
        if state.is_paused and state.stopped is None:
            events.append(Continued())
        if state.stopped is not None:
            if not _may_reopen(state, now):
                return []
            events.append(
                Reopened(settled=Nano(account.settled), uncertain=Nano(account.uncertain))
            )
        if now.cap != account.cap:
            events.append(CapChanged(cap=now.cap))
        for ix, (judge, card) in enumerate(zip(state.judges, now.cards, strict=True)):
            if card != state.cards[ix]:
                events.append(PriceChanged(judge=JudgeIx(ix), card=card))
            if judge.is_down:
                events.append(JudgeUp(judge=JudgeIx(ix)))
        for event in events:
            state.apply(event)
        return events

    async def _go_on(self, state: State, store: SqliteStore) -> None:
        operation = self.blueprint.operation(self.max_in_flight)
        self._clock = operation.clock
        latest = self.progress(state)

        def progress(state: State, dispatcher: Dispatcher) -> bytes:
            nonlocal latest
            latest = self.progress(state, dispatcher)
            return latest.to_json()

        def observe(events: Sequence[Event]) -> None:
            nonlocal latest
            if self.observe is not None:
                if not events and self._scheduler is not None:
                    latest = self.progress(state, self._scheduler.dispatcher)
                self.observe(latest, events)

        names = [judge.name for judge in state.crew.judges]
        self._scheduler = Scheduler(
            state,
            store,
            self.archive(store),
            operation,
            progress=progress,
            observe=observe,
            steering=Helm(Mailbox(self.directory, judges=names), self._started_with),
        )
        if self.is_interrupted:
            self._scheduler.interrupt()
        try:
            await self._scheduler.run()
        finally:
            self._scheduler = None  # an interrupt that comes now has nothing to end

    # --- what is derived ------------------------------------------------------------------------

    def _started_with(self, overrides: Mapping[str, Json]) -> Started:
        """Tell how the run is loaded again, now that a setting is another."""
        given = self.about["campaign"]
        campaign = {**given, "overrides": {**given["overrides"], **overrides}}
        self.about = {**self.about, "campaign": campaign}
        return _started(self.blueprint, self.about)

    def progress(
        self, state: State, dispatcher: Dispatcher | None = None, under_way: Sequence[int] = ()
    ) -> Progress:
        """Say how the run stands, and what its judges are at.

        `under_way` counts the calls of each judge where no dispatcher sends them.
        """
        lanes = [None] * len(state.judges) if dispatcher is None else dispatcher.lanes
        if dispatcher is not None:
            under_way = [lane.in_flight for lane in dispatcher.lanes]
        under_way = under_way or [0] * len(state.judges)
        account = state.ledger.campaign
        look = state.last_look
        stop = state.crew.stop
        seen = () if look is None else look.estimates[: None if stop.of_every_arm else 1]
        shown = stop.aimed_at([*map(read_estimate, seen)]) if seen else None
        told = [state.judges[k] for k in state.asked_by_policy]
        to_judge = [] if state.is_generating else [state.judges[k] for k in state.crew.systems]
        running = "paused" if state.is_paused else str(Ending.RUNNING)
        return Progress(
            name=self.blueprint.name,
            run=self.directory.name,
            state=running if state.stopped is None else str(state_of(state.stopped)),
            n_asked=state.n_asked,
            n_told=state.n_told,
            n_cached=state.n_cached,
            n_open=len(state.open),
            in_flight=sum(under_way),
            settled=account.settled,
            held=account.held,
            uncertain=account.uncertain,
            cap=account.cap,
            missing=_missing(told),
            n_generated=sum(system.answered for system in to_judge),
            lost=_missing(to_judge),
            judges=tuple(
                replace(
                    self._judge_progress(judge.name, at, lane, in_flight),
                    is_system=k in state.crew.systems,
                )
                for k, (judge, at, lane, in_flight) in enumerate(
                    zip(state.crew.judges, state.judges, lanes, under_way, strict=True)
                )
            ),
            headline=headline(shown) if shown else "",
            half_width=_width(look, shown),
            target=state.crew.stop.target_half_width,
            waiting=self._waiting(state, is_idle=not any(under_way)),
            elapsed_s=time.monotonic() - self._began,
            mock=self.blueprint.is_mock,
        )

    def _waiting(self, state: State, *, is_idle: bool) -> str:
        """Say what holds the run up as a whole; empty where the counts or the judges say it."""
        if state.stopped is not None:
            return ""
        if self.is_draining:
            return "interrupted: calls under way are received, nothing more is asked"
        if state.is_ending:
            return "stopping: calls under way are received, nothing more is sent"
        parked = [
            f"{judge.name} ({at.why_down}) until {clock_time(at.down_until)}"
            for judge, at in zip(state.crew.judges, state.judges, strict=True)
            if at.is_down and at.down_until is not None
        ]
        is_held_up = is_idle and parked and not state.open and not state.is_paused
        return f"waiting for {', '.join(parked)}" if is_held_up else ""

    def _judge_progress(
        self, name: str, at: JudgeState, lane: Lane | None, in_flight: int
    ) -> JudgeProgress:
        status = "ok"
        if at.is_down:
            until = "" if at.down_until is None else f" until {clock_time(at.down_until)}"
            status = f"down{until}: {at.why_down}"
        return JudgeProgress(
            name=name,
            asked=at.asked,
            answered=at.answered,
            in_flight=in_flight,
            state=status,
            limit=0 if lane is None else int(lane.limit),
            waiting="" if lane is None else lane.waits_for(self._clock()),
        )

    def derive(self, fingerprint: str) -> Result:
        """Make everything that people read from the log anew."""
        data = rundir.summary(
            self.directory,
            fingerprint=fingerprint,
            estimators_without=self.blueprint.estimators_without,
        )
        campaign = self.blueprint.file.campaign
        for form in campaign.output.formats:
            if form in {"html", "md"}:
                rundir.write_report(data, self.directory / f"report.{form}")
            else:
                rundir.write_export(self.directory, self.directory / f"answers.{form}")
        if campaign.is_generating:
            rundir.write_export(self.directory, self.directory / rundir.GENERATIONS_NAME)
        return result_of(self.directory, data)


def _missing(asked: Iterable[JudgeState]) -> dict[str, int]:
    return dict(sum((one.missing for one in asked), Counter[str]()))


def _width(look: Looked | None, shown: Estimate | None) -> float | None:
    """Give the half-width that is aimed at; where estimates are too many to show, the primary one's."""
    if shown is not None:
        return None if math.isnan(shown.half_width) else shown.half_width
    return look.half_widths[0] if look is not None and look.half_widths else None


async def close_judges(blueprint: Blueprint) -> None:
    """Close the judges' connections, also while everything is being cancelled."""
    with anyio.CancelScope(shield=True), anyio.move_on_after(5):
        for judge in blueprint.crew.judges:
            await judge.adapter.aclose()


def check_identity(recorded: Opened, now: Opened) -> None:
    """Compare a campaign with the one that a run was opened with.

    Raises
    ------
    IdentityChanged
        Naming each field that differs.
    """
    if recorded.digest != now.digest:
        raise IdentityChanged(list(differences(recorded.identity, now.identity)) or ["digest"])


def differences(a: Json, b: Json, path: str = "") -> Iterator[str]:
    """Name the places in which two JSON documents differ."""
    if isinstance(a, Mapping) and isinstance(b, Mapping):
        for key in sorted(a.keys() | b.keys()):
            yield from differences(a.get(key), b.get(key), f"{path}.{key}".removeprefix("."))
    elif isinstance(a, list) and isinstance(b, list) and len(a) == len(b):
        for ix, (x, y) in enumerate(zip(a, b, strict=True)):
            yield from differences(x, y, f"{path}[{ix}]")
    elif a != b:
        yield path


def clock_time(posix_s: float) -> str:
    """Write a time of day, as the clock on the wall shows it here."""
    return time.strftime("%H:%M:%S", time.localtime(posix_s))


def _may_reopen(state: State, now: Opened) -> bool:
    """Whether a stopped run can go on: more money, another stretch of time, judges mended."""
    match state.stopped:
        case StopReason.BUDGET | StopReason.OVERRUN:
            cap = state.ledger.campaign.cap
            return cap is not None and (now.cap is None or now.cap > cap)
        case StopReason.JUDGES_DOWN | StopReason.DEADLINE | StopReason.USER:
            return True
        case _:
            return False


def _started(
    blueprint: Blueprint, about: Mapping[str, Json], took_over: str | None = None
) -> Started:
    return Started(
        about={
            **about,
            "host": socket.gethostname(),
            "pid": os.getpid(),
            "platform": platform.platform(),
            "python": platform.python_version(),
            "versions": {name: version(name) for name in _PACKAGES},
            "prices": {
                judge.name: price.source
                for judge, price in zip(blueprint.crew.judges, blueprint.prices, strict=True)
            },
            "took_over": took_over,
        }
    )
