"""Campaigns from Python: load, run, resume, watch."""

from __future__ import annotations

import json
import os
import shlex
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager, suppress
from decimal import Decimal
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import anyio

from orchestrator import rundir
from orchestrator.access import plain
from orchestrator.build import Blueprint, build
from orchestrator.campaign_file import LIVE
from orchestrator.config import CampaignFile, load_campaign
from orchestrator.consistency import too_wide
from orchestrator.core.errors import BudgetTooSmall, ConfigError, CorruptLog, InvalidCampaign
from orchestrator.core.events import Event, Started
from orchestrator.core.stopping import COMPLETE
from orchestrator.core.wire import Json
from orchestrator.document import parse
from orchestrator.engine.scheduler import first_error
from orchestrator.keys import missing
from orchestrator.report.planning import Plan, Refusal, document
from orchestrator.report.screen import Progress
from orchestrator.session import Observer, Result, Session, result_of, start
from orchestrator.store.sqlite import DB_NAME

if TYPE_CHECKING:
    from orchestrator.asking import OwnLoop


class Campaign:
    """A campaign file, loaded and checked.

    Parameters
    ----------
    file : the loaded file
    overrides : dotted paths that were set over the file; kept for a resume
    mock : put a mock judge in the place of every judge
    limit : take a random sample of so many items
    is_own_loop : the user's own loop calls the judges (`own_loop`)
    """

    def __init__(
        self,
        file: CampaignFile,
        *,
        overrides: Mapping[str, object] | None = None,
        mock: bool = False,
        limit: int | None = None,
        is_own_loop: bool = False,
    ) -> None:
        if limit is not None and not (isinstance(limit, int) and limit > 0):
            raise ConfigError(f"limit: wants a whole number of items above 0, not {limit!r}")
        self.file = file
        self._overrides = dict(overrides or {})
        self._mock = mock
        self._limit = limit
        self.is_own_loop = is_own_loop
        self._blueprint: Blueprint | None = None
        self._plan: Plan | None = None

    @classmethod
    def from_yaml(
        cls,
        path: str | Path,
        overrides: Mapping[str, object] | None = None,
        *,
        mock: bool = False,
        limit: int | None = None,
        environ: Mapping[str, str] | None = None,
    ) -> Campaign:
        """Load a campaign file; `overrides` maps dotted paths to values (`{"budget.usd": 5}`).

        Raises
        ------
        InvalidCampaign
            The file has problems; all of them are named.
        """
        file = load_campaign(
            Path(path), overrides=overrides, environ=os.environ if environ is None else environ
        )
        return cls(file, overrides=overrides, mock=mock, limit=limit)

    @classmethod
    def again(
        cls, about: Mapping[str, Json], overrides: Mapping[str, object] | None = None
    ) -> Campaign:
        """Load the campaign that a run's `Started` event tells of, with further overrides."""
        given = about["campaign"]
        campaign = cls.from_yaml(
            given["path"],
            {**given["overrides"], **(overrides or {})},
            mock=given["mock"],
            limit=given["limit"],
        )
        if given.get("generate"):
            campaign = campaign.for_generation()
        return campaign.for_own_loop() if given.get("own_loop") else campaign

    def for_own_loop(self) -> Campaign:
        """Give the same campaign with judges that the user's own loop calls, of any adapter."""
        return Campaign(
            self.file,
            overrides=self._overrides,
            mock=self._mock,
            limit=self._limit,
            is_own_loop=True,
        )

    def for_generation(self) -> Campaign:
        """Give the same campaign without its judges: systems answer, and that is all.

        Raises
        ------
        InvalidCampaign
            There are no systems.
        """
        return Campaign(
            self.file.for_generation(),
            overrides=self._overrides,
            mock=self._mock,
            limit=self._limit,
        )

    def build(self) -> Blueprint:
        """Check everything that can be checked without sending anything."""
        if self._blueprint is None:
            self._blueprint = build(
                self.file, mock=self._mock, limit=self._limit, own_loop=self.is_own_loop
            )
        return self._blueprint

    def check_keys(self) -> None:
        """Check that the environment holds what the judges that are to be asked need.

        Raises
        ------
        InvalidCampaign
            Keys are missing; all are named.
        ConfigError
            No connection can be made as it says.
        """
        if self._mock or self.is_own_loop:
            return
        if problems := list(missing(self.file, os.environ)):
            raise InvalidCampaign(problems)
        if any(judge.adapter in LIVE for judge in self.file.campaign.asked):
            from judges.live import check_connections  # noqa: PLC0415  # as the adapters

            check_connections()

    def plan(
        self,
        *,
        max_in_flight: int | None = None,
        rivals: bool = True,
        half_widths: Sequence[float] = (),
        usd: Sequence[str | float | Decimal] = (),
        mean: float | None = None,
    ) -> Plan:
        """Rehearse the campaign: calls, dollars, time and precision, before anything is sent.

        Without `rivals`, and methods, it takes well below a second, and a campaign of more than some
        2,000 calls is rehearsed on a part of its items. What was planned last stands in the directory
        of the run that follows.

        Parameters
        ----------
        half_widths, usd : what each method of an `exchangeable` estimate takes for these, and buys for
            so much, besides the campaign's own target and cap
        mean : that scores are taken to have; None: as in the rehearsal

        Raises
        ------
        OrchestratorError
            As for `build`; after a `BudgetTooSmall`, `rivals` says what the money is enough for. Or
            the primary estimate has no methods to choose from, or what is asked of them is no number
            above 0.
        """
        from orchestrator.planning import (  # noqa: PLC0415  # as wanted
            QUICK,
            THOROUGH,
            make_plan,
            wanted,
        )

        campaign = self.file.campaign
        for width in half_widths:
            if message := too_wide(width, campaign.primary, campaign.task):
                raise ConfigError(f"--half-width: {message}")
        self._plan = make_plan(
            self.build(),
            max_in_flight=max_in_flight,
            effort=THOROUGH if rivals else QUICK,
            wanted=wanted(half_widths, usd, mean),
        )
        return self._plan

    def rivals(self, reason: BudgetTooSmall) -> Refusal:
        """Rehearse the rivals of the campaign's policy where that was refused for its money."""
        from orchestrator.planning import make_refusal  # noqa: PLC0415  # as wanted

        blueprint = build(self.file, mock=self._mock, limit=self._limit, is_to_start=False)
        return make_refusal(blueprint, reason)

    def run(
        self,
        directory: str | Path | None = None,
        *,
        max_in_flight: int | None = None,
        observe: Observer | None = None,
    ) -> Result:
        """Run the campaign to its end; with a directory that holds it already, resume it.

        Works inside a running event loop (a notebook) too: it then runs in a thread of its own.
        An interrupt is no error: the result says so, and the run can be resumed.

        Raises
        ------
        OrchestratorError
            See `orchestrator.core.errors`.
        """

        async def work() -> Result:
            session = await self._to_carry_out(directory, max_in_flight)
            session.observe = observe
            return await session.carry_out()

        return _in_own_loop(work)

    @asynccontextmanager
    async def open(
        self, directory: str | Path | None = None, *, max_in_flight: int | None = None
    ) -> AsyncIterator[Run]:
        """Run the campaign while reading its events: ``async for event in run``.

        Leaving the block early interrupts the run; it can be resumed.
        """
        run = Run(await self._to_carry_out(directory, max_in_flight))
        try:
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(run.carry_out)
                try:
                    yield run
                finally:
                    run.leave()
        except BaseExceptionGroup as group:
            raise first_error(group) from None

    def own_loop(self, directory: str | Path | None = None) -> OwnLoop:
        """Carry the campaign out in a loop of one's own: ``for q in run.ask(8): run.tell(q.id, ...)``.

        With a directory that holds such a run already, it goes on.

        Raises
        ------
        OrchestratorError
            See `Campaign.run`.
        """
        from orchestrator.asking import OwnLoop  # noqa: PLC0415  # most campaigns need none

        if not self.is_own_loop:
            return self.for_own_loop().own_loop(directory)
        return OwnLoop(partial(self._session, directory, None))

    async def _to_carry_out(
        self, directory: str | Path | None, max_in_flight: int | None
    ) -> Session:
        if self.is_own_loop:
            raise ConfigError(
                "a loop of your own calls these judges: open it with Campaign.own_loop"
            )
        return await self._session(directory, max_in_flight)

    async def _session(self, directory: str | Path | None, max_in_flight: int | None) -> Session:
        # A run closes its judges' connections, so another one builds them anew.
        blueprint, self._blueprint = self.build(), None
        self.check_keys()
        parent = self.file.campaign.output.dir
        if parent is None:
            parent = Path(os.environ.get("SORTITION_OUTPUT_DIR", "runs"))
        target = Path(directory) if directory else parent / rundir.new_name(blueprint.name)
        about = self._about()
        if not (target / DB_NAME).exists():
            await start(target, blueprint, about)
            if self._plan is not None:
                rundir.write_plan(target, document(self._plan))
        return Session(target, blueprint, about, max_in_flight=max_in_flight)

    def _about(self) -> dict[str, Json]:
        """Tell how the same campaign is loaded again, and by which command."""
        overrides = {path: _public(path, value) for path, value in self._overrides.items()}
        is_generating = self.file.campaign.is_generating
        words = ["sortition", "generate" if is_generating else "run", str(self.file.path)]
        for path, value in overrides.items():
            words += ["--set", f"{path}={value if isinstance(value, str) else _as_json(value)}"]
        words += ["--mock"] if self._mock else []
        words += [] if self._limit is None else ["--limit", str(self._limit)]
        command = shlex.join(words)
        if self.is_own_loop:
            command = f"Campaign.from_yaml({str(self.file.path)!r}, ...).own_loop()"
        return {
            "command": command,
            "campaign": {
                "path": str(self.file.path.resolve()),
                "overrides": json.loads(_as_json(overrides)),
                "mock": self._mock,
                "limit": self._limit,
                **({"own_loop": True} if self.is_own_loop else {}),
                **({"generate": True} if is_generating else {}),
            },
        }


class Run:
    """A run under way, as `Campaign.open` gives it.

    `progress` says how it stands; `result` is there once all events have been read.
    """

    def __init__(self, session: Session) -> None:
        self.progress = Progress()
        self.result: Result | None = None
        self._session = session
        self._sender, self._events = anyio.create_memory_object_stream[Event](float("inf"))
        session.observe = self._hear

    @property
    def directory(self) -> Path:
        """Where the run's files are."""
        return self._session.directory

    @property
    def is_draining(self) -> bool:
        """Whether an interrupt, also one by a signal, lets nothing more be asked."""
        return self._session.is_draining

    def interrupt(self) -> None:
        """Ask nothing more, receive what is under way, end."""
        self._session.interrupt()

    def leave(self) -> None:
        """Read no further events, and interrupt the run if it still goes on."""
        self._events.close()
        if self.result is None:
            self.interrupt()

    async def __aiter__(self) -> AsyncIterator[Event]:
        """Give each event once it is durable."""
        async for event in self._events:
            yield event

    async def carry_out(self) -> None:
        """Carry the run to its end."""
        with self._sender:
            self.result = await self._session.carry_out()

    def _hear(self, progress: Progress, events: Sequence[Event]) -> None:
        self.progress = progress
        with suppress(anyio.BrokenResourceError):  # nobody reads any more
            for event in events:
                self._sender.send_nowait(event)


def resume(
    directory: str | Path,
    overrides: Mapping[str, object] | None = None,
    *,
    max_in_flight: int | None = None,
    observe: Observer | None = None,
) -> Result:
    """Go on with a run: its campaign file and data are read again, and must be the same.

    A run that is complete is only read again: nothing is asked, and its files are made anew.

    Raises
    ------
    OrchestratorError
        See `Campaign.run`.
    """
    directory = Path(directory)
    with rundir.reading(directory) as reader:
        stop, started = reader.stop(), reader.last(Started)
    if started is None:
        raise CorruptLog(f"{directory} does not say which campaign it runs", seq=2)
    if stop is not None and stop.reason in COMPLETE:
        return result_of(directory, rundir.summary(directory))
    campaign = Campaign.again(started.about, overrides)
    return campaign.run(directory, max_in_flight=max_in_flight, observe=observe)


def _public(path: str, value: object) -> object:
    """Leave user and password out of addresses: the log is kept and shown, and must hold no secret.

    A text is read as a YAML value, as where it is set.
    """
    key = path.rpartition(".")[2]
    if isinstance(value, str) and "base_url" in f"{key} {value}":
        value = parse(value, path).data
    match value:
        case str() if key == "base_url":
            return plain(value)
        case dict():
            return {name: _public(str(name), inner) for name, inner in value.items()}
        case list():
            return [_public(key, inner) for inner in value]
        case _:
            return value


def _as_json(value: object) -> str:
    return json.dumps(value, ensure_ascii=False, default=str)


def _in_own_loop(work: Callable[[], Awaitable[Result]]) -> Result:
    try:
        anyio.get_current_task()
    except RuntimeError:
        return anyio.run(work)
    with ThreadPoolExecutor(max_workers=1) as thread:
        return thread.submit(anyio.run, work).result()
