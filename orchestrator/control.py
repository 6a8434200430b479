"""Commands to a run that another process carries on, as small files beside its log.

`sortition ctl` writes one into the run's `control/`, the process finds it there, does what it says,
and answers with a file of the same name. Files need no port, no key and no permission that the run's
directory does not have already, and they work wherever the directory is mounted.

A command is `<time in ns>-<random>.json`. The process claims it by the ending `.taken.json`, so that
either it or whoever posted it can have it, never both: a command that was withdrawn is never carried
out. It answers with `.done.json`.
"""

from __future__ import annotations

import getpass
import json
import os
import secrets
import socket
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import Literal, get_args

from orchestrator import atomic
from orchestrator.core.errors import ConfigError
from orchestrator.core.money import NANO_PER_USD
from orchestrator.quantities import read_positive, read_usd
from orchestrator.wording import did_you_mean, on_one_line, seen

CONTROL_NAME = "control"
BUDGET = "budget.usd"
CONCURRENCY = "concurrency"
RATES = ("rpm", "input_tpm", "output_tpm")
NO_LIMIT = "none"
"""The word that takes a limit of the rate away."""

LARGEST_FILE = 1 << 16
POLL_S = 0.05

Name = Literal["pause", "resume", "stop", "set"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Command:
    """What a running campaign is told.

    `path` and `value` belong to `set`: `budget.usd` with nano-USD, or `judges.NAME.LIMIT` with a
    count, where None takes a limit of the rate away. `by` is user@host.
    """

    name: Name
    path: str = ""
    value: int | None = None
    reason: str = ""
    by: str = ""

    @property
    def words(self) -> tuple[str, ...]:
        """The words that `parse` reads as this command."""
        return (self.name, f"{self.path}={self.said}") if self.path else (self.name,)

    @property
    def said(self) -> str:
        """The value as one writes it: USD, a count, or none."""
        if self.value is None:
            return NO_LIMIT
        if self.path == BUDGET:
            return f"{Decimal(self.value) / NANO_PER_USD:f}"
        return str(self.value)

    @property
    def judge_limit(self) -> tuple[str, str] | None:
        """The judge and the limit that are set, None where it is something else."""
        owner, _, limit = self.path.rpartition(".")
        judge = owner.removeprefix("judges.")
        return (judge, limit) if judge != owner else None


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """Whether a run did what it was told, and what it says about it."""

    ok: bool
    message: str


# --- words ---


def parse(
    words: Sequence[str],
    *,
    reason: str = "",
    by: str = "",
    judges: Sequence[str] | None = None,
) -> Command:
    """Read a command as a user writes it: `pause`, or `set` and `budget.usd=30`.

    With the names of the run's `judges` a judge that it does not have is refused.

    Raises
    ------
    ConfigError
        No such command, path or value.
    """
    match [word for word in words if word.strip()]:
        case ["pause" | "resume" | "stop" as name]:
            return Command(name=name, reason=reason, by=by)
        case ["set", setting] if "=" in setting:
            path, _, said = setting.rpartition("=")  # a judge's name may hold the sign
            path = path.strip()
            value = _value(path, said.strip(), judges)
            return Command(name="set", path=path, value=value, reason=reason, by=by)
        case ["set", *_]:
            raise ConfigError("set wants one PATH=VALUE, as in budget.usd=30")
        case [("pause" | "resume" | "stop") as name, *_]:
            raise ConfigError(f"{name} takes no further words")
        case [word, *_]:
            raise ConfigError(f"no command is named {seen(word)}{did_you_mean(word, _NAMES)}")
        case _:
            raise ConfigError(f"wants a command: {', '.join(_NAMES)}")


_NAMES = get_args(Name)


def _value(path: str, said: str, judges: Sequence[str] | None) -> int | None:
    owner, _, limit = path.rpartition(".")
    judge = owner.removeprefix("judges.")
    try:
        if path == BUDGET:
            return _usd(said)
        if judge and judge != owner and (judges is None or judge in judges):
            if limit in RATES and said == NO_LIMIT:
                return None
            if limit in {CONCURRENCY, *RATES}:
                return int(read_positive(said))
    except ValueError as exc:
        raise ConfigError(f"{path} {exc}") from exc
    limits = (CONCURRENCY, *RATES)
    named = ["NAME"] if judges is None else judges
    known = [BUDGET, *(f"judges.{name}.{limit}" for name in named for limit in limits)]
    raise ConfigError(f"{seen(path)} can't be set while a run goes on{did_you_mean(path, known)}")


def _usd(said: str) -> int:
    amount = read_usd(said)
    if amount <= 0:
        raise ValueError(f"wants more than 0 USD, not {seen(said)}")
    return amount


# --- the side that commands ---


def author() -> str:
    """Say who commands, as user@host."""
    try:
        user = getpass.getuser()
    except (OSError, KeyError):  # a container's user without a name
        user = "unknown"
    return f"{user}@{socket.gethostname()}"


def post(directory: Path, command: Command) -> Path:
    """Put a command where the process that carries on the run of a directory finds it."""
    path = directory / CONTROL_NAME / f"{time.time_ns():019d}-{secrets.token_hex(4)}.json"
    body = {
        "command": command.name,
        **({"path": command.path, "value": command.said} if command.path else {}),
        "reason": command.reason,
        "by": command.by,
        "at": datetime.now(UTC).isoformat(timespec="milliseconds"),
    }
    path.parent.mkdir(exist_ok=True)
    atomic.write(path, json.dumps(body, ensure_ascii=False).encode(errors="replace"))
    return path


def answer(path: Path, *, timeout_s: float, is_running: Callable[[], bool]) -> Answer | None:
    """Wait for the answer to a posted command; without one in time, withdraw the command.

    None says that no process took it, and now none will. Leaves no file behind.

    Raises
    ------
    TimeoutError
        A process took it and has not said what came of it.
    """
    done, taken = path.with_suffix(_DONE), path.with_suffix(_TAKEN)
    deadline = time.monotonic() + timeout_s
    try:
        while not done.exists() and time.monotonic() < deadline and is_running():
            time.sleep(POLL_S)
        try:
            path.unlink()
        except FileNotFoundError:
            # Claimed: the process is at it, or has just ended.
            while not done.exists() and taken.exists() and is_running():
                if time.monotonic() > deadline + timeout_s:
                    break
                time.sleep(POLL_S)
        else:
            return None
        if not done.exists():
            raise TimeoutError
        said = json.loads(done.read_bytes())
        return Answer(ok=said["ok"], message=said["message"])
    finally:
        for left in (path, taken, done):
            with suppress(OSError):
                left.unlink()


# --- the side that is commanded ---


class Mailbox:
    """The commands to the run of a directory, for the one process that carries it on.

    What lies there already was meant for an earlier process, and is refused: nobody wants a run to
    stop because of what was said to it last week. With the names of the run's `judges`, settings of
    others are refused too.
    """

    def __init__(self, directory: Path, *, judges: Sequence[str] | None = None) -> None:
        self._folder = directory / CONTROL_NAME
        self._judges = judges
        for left in (*self._folder.glob(f"*{_TAKEN}"), *self._folder.glob(f"*{_DONE}")):
            with suppress(OSError):
                left.unlink()
        for path in self._waiting():
            self.answer(path, ok=False, message="this was said to an earlier process; say it again")

    def has_mail(self) -> bool:
        """Whether a command waits. Lists one directory, so that it may be asked twice a second."""
        return any(self._waiting())

    def take(self) -> list[tuple[Path, Command | str]]:
        """Take what was posted, in the order of names; each wants one `answer`.

        Text stands for a file that holds no command and says why; it is answered already.
        """
        found: list[tuple[Path, Command | str]] = []
        for path in self._waiting():
            claimed = path.with_suffix(_TAKEN)
            try:
                path.replace(claimed)
            except OSError:
                continue  # withdrawn
            try:
                found.append((path, _read(claimed, self._judges)))
            except (OSError, ValueError, RecursionError, ConfigError) as exc:
                message = on_one_line(f"no command: {exc}")
                self.answer(path, ok=False, message=message)
                found.append((path, message))
        return found

    def answer(self, path: Path, *, ok: bool, message: str) -> None:
        """Say what came of a command, and let go of it.

        Where that can't be written the command counts all the same: the log has it.
        """
        with suppress(OSError):
            body = json.dumps({"ok": ok, "message": message}, ensure_ascii=False)
            atomic.write(path.with_suffix(_DONE), body.encode(errors="replace"))
        for left in (path.with_suffix(_TAKEN), path):
            with suppress(OSError):
                left.unlink()

    def _waiting(self) -> Iterator[Path]:
        try:
            with os.scandir(self._folder) as entries:
                names = sorted(entry.name for entry in entries)
        except OSError:
            return
        for name in names:
            if name.endswith(".json") and not name.startswith(".") and name.count(".") == 1:
                yield self._folder / name


_DONE = ".done.json"
_TAKEN = ".taken.json"


def _read(path: Path, judges: Sequence[str] | None) -> Command:
    with path.open("rb") as file:
        body = json.loads(file.read(LARGEST_FILE))
    match body:
        case {"command": str(name)}:
            value = NO_LIMIT if body.get("value") is None else body["value"]
            setting = [f"{body['path']}={value}"] if body.get("path") else []
            reason, by = (on_one_line(str(body.get(key) or "")) for key in ("reason", "by"))
            return parse([name, *setting], reason=reason, by=by, judges=judges)
        case _:
            raise ValueError("wants an object with a command")
