"""How a run is shown while it goes on."""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable, Sequence
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Any

import typer

from orchestrator.cli.common import say

if TYPE_CHECKING:
    from orchestrator.core.events import Event
    from orchestrator.report.screen import Progress
    from orchestrator.session import Observer

PLAIN_EVERY_S = 30.0


class Display(StrEnum):
    """How a run is shown while it goes on."""

    RICH = "rich"
    PLAIN = "plain"
    LOG = "log"
    NONE = "none"
    JSON = "json"


DisplayOption = Annotated[
    Display | None, typer.Option("--display", help="How the run is shown while it goes on.")
]


def chosen_display(chosen: Display | None, *, as_json: bool, quiet: bool) -> Display:
    """Choose how a run is shown: as asked for, else by what standard error is."""
    if quiet or as_json:
        return Display.NONE
    if chosen is not None:
        return chosen
    is_plain = not sys.stderr.isatty() or os.environ.get("CI") or os.environ.get("NO_COLOR")
    return Display.PLAIN if is_plain else Display.RICH


class watching:  # noqa: N801  # reads as a statement: with watching(display) as observe
    """Shows a run on standard error while it goes on."""

    def __init__(self, display: Display) -> None:
        self._display = display
        self._next_at = time.monotonic()
        self._live: Any = None

    def __enter__(self) -> Observer | None:
        """Give the observer that shows what it hears, if anything is shown."""
        if self._display is Display.RICH:
            from rich.console import Console
            from rich.live import Live

            self._live = Live(console=Console(stderr=True), auto_refresh=False, transient=True)
            self._live.start()
        shows: dict[Display, Callable[[Progress, Sequence[Event]], None]] = {
            Display.RICH: self._rich,
            Display.PLAIN: self._plain,
            Display.LOG: self._log,
            Display.JSON: self._json,
        }
        return shows.get(self._display)

    def __exit__(self, *error: object) -> None:
        """Take the live panel down."""
        if self._live is not None:
            self._live.stop()

    def _is_time(self, every_s: float) -> bool:
        now = time.monotonic()
        if now < self._next_at:
            return False
        self._next_at = now + every_s
        return True

    def _rich(self, progress: Progress, events: Sequence[Event]) -> None:
        del events
        if self._is_time(0.25):
            from rich.text import Text

            from orchestrator.report.screen import status_lines

            self._live.update(Text("\n".join(status_lines(progress))), refresh=True)

    def _plain(self, progress: Progress, events: Sequence[Event]) -> None:
        del events
        if self._is_time(PLAIN_EVERY_S):
            from orchestrator.report.screen import one_line

            say(one_line(progress))

    def _log(self, progress: Progress, events: Sequence[Event]) -> None:
        for event in events:
            say(str(event))
        if self._is_time(PLAIN_EVERY_S):
            from orchestrator.report.screen import why_waiting

            if waits := why_waiting(progress):
                say(f"waiting: {waits}")

    def _json(self, progress: Progress, events: Sequence[Event]) -> None:
        del events
        if self._is_time(PLAIN_EVERY_S):
            say(json.dumps(json.loads(progress.to_json())))
