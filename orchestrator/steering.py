"""What `sortition ctl` says to a run under way: carried out, recorded, answered."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import assert_never

from orchestrator.control import BUDGET, CONCURRENCY, Command, Mailbox
from orchestrator.core.errors import ConfigError
from orchestrator.core.events import CapChanged, Commanded, Continued, LimitReached, Paused, Started
from orchestrator.core.judge import Limits
from orchestrator.core.money import Nano, format_usd
from orchestrator.core.wire import Json
from orchestrator.engine.decider import Decider
from orchestrator.engine.dispatch import Dispatcher


class Helm:
    """Carries out the commands in a run's mailbox.

    `started` gives how the run is loaded again once a setting has been changed: what is set here
    holds for a resume too.
    """

    def __init__(self, mailbox: Mailbox, started: Callable[[Mapping[str, Json]], Started]) -> None:
        self._mailbox = mailbox
        self._started = started
        self._said: list[tuple[Path, bool, str]] = []

    def is_due(self) -> bool:
        """Whether a command waits."""
        return self._mailbox.has_mail()

    def obey(self, decider: Decider, dispatcher: Dispatcher, now: float) -> None:
        """Carry out the commands that wait. Each is in the log, a refused one too."""
        for path, command in self._mailbox.take():
            if isinstance(command, str):
                continue
            try:
                message = self._carry_out(command, decider, dispatcher, now)
            except ConfigError as refusal:
                self._record(decider, command, str(refusal))
                self._said.append((path, False, str(refusal)))
            else:
                self._said.append((path, True, message))

    def confirm(self) -> None:
        """Answer what was obeyed: it is durable now."""
        for path, ok, message in self._said:
            self._mailbox.answer(path, ok=ok, message=message)
        self._said.clear()

    def _record(self, decider: Decider, command: Command, refused: str = "") -> None:
        setting = {"path": command.path, "value": command.said} if command.path else {}
        told = {"name": command.name, **setting, "reason": command.reason, "by": command.by}
        decider.do(Commanded(command=told | ({"refused": refused} if refused else {})))

    def _carry_out(
        self, command: Command, decider: Decider, dispatcher: Dispatcher, now: float
    ) -> str:
        state = decider.state
        if state.stopped is not None or state.limit_reached is not None:
            raise ConfigError("the run is ending; nothing can be changed any more")
        match command.name:
            case "pause":
                if state.is_paused:
                    raise ConfigError("the run is paused already")
                self._record(decider, command)
                decider.do(Paused())
                return "paused: calls under way are received, nothing more is asked"
            case "resume":
                if not state.is_paused:
                    raise ConfigError("the run is not paused")
                self._record(decider, command)
                decider.do(Continued())
                return "the run goes on"
            case "stop":
                self._record(decider, command)
                if state.is_paused:
                    decider.do(Continued())
                decider.do(LimitReached(which="user", why=command.reason))
                return "stopping: calls under way are received, then the run ends"
            case "set" if command.path == BUDGET:
                return self._set_cap(command, decider)
            case "set":
                return self._set_limit(command, decider, dispatcher, now)
            case _:
                assert_never(command.name)

    def _set_cap(self, command: Command, decider: Decider) -> str:
        account = decider.state.ledger.campaign
        cap = Nano(command.value or 0)
        if cap == account.cap:
            raise ConfigError(f"{BUDGET} is {format_usd(cap)} already")
        if cap < account.committed:
            raise ConfigError(
                f"{BUDGET}: {format_usd(cap)} is less than the {format_usd(account.committed)} that "
                "this run has spent or holds; nothing was changed"
            )
        self._record(decider, command)
        decider.do(CapChanged(cap=cap))
        decider.do(self._started({BUDGET: command.said}))
        return f"the cap is {format_usd(cap)}"

    def _set_limit(
        self, command: Command, decider: Decider, dispatcher: Dispatcher, now: float
    ) -> str:
        named = command.judge_limit
        lanes = {lane.judge.name: lane for lane in dispatcher.lanes}
        if named is None or named[0] not in lanes:
            raise ConfigError(f"{command.path} can't be set while a run goes on")
        (name, limit), lane = named, lanes[named[0]]
        self._record(decider, command)
        if limit == CONCURRENCY:
            lane.concurrency = command.value or 1
            lane.limit = min(lane.limit, float(lane.concurrency))
        else:
            lane.rates.limit(_with(lane.rates.limits, limit, command.value), now)
        return f"{name}: {limit} is {command.said}"


def _with(limits: Limits, name: str, value: int | None) -> Limits:
    match name:
        case "rpm":
            return replace(limits, rpm=value)
        case "input_tpm":
            return replace(limits, input_tpm=value)
        case _:
            return replace(limits, output_tpm=value)
