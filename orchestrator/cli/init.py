"""The command that writes a first campaign: `init`."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from orchestrator.cli.common import AsJson, app, print_json, say
from orchestrator.core.errors import ConfigError

if TYPE_CHECKING:
    from orchestrator.core.money import Nano
    from orchestrator.initial import Wishes


@app.command()
def init(
    directory: Annotated[
        Path, typer.Argument(help="The folder to write into.", metavar="[DIR]")
    ] = Path(),
    policy: Annotated[
        str, typer.Option("--policy", help="uniform, two_phase or est_ivwe.")
    ] = "uniform",
    yes: Annotated[
        bool, typer.Option("-y", "--yes", help="Ask nothing: take the defaults.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Write a campaign that runs at once, with a rubric and data; overwrites nothing."""
    from orchestrator.initial import CAMPAIGN, Wishes, campaign, suits_pair, write

    wishes = Wishes(policy=policy, is_pair=suits_pair(policy))
    if sys.stdin.isatty() and not yes:
        try:
            wishes = _asked(wishes)
        except typer.Abort as exc:
            raise ConfigError("broken off; nothing was written") from exc
    texts = campaign(wishes, name=directory.resolve().name or "first")
    write(directory, texts)
    if as_json:
        print_json({"directory": str(directory), "files": list(texts)})
        return
    for path in texts:
        typer.echo(directory / path)
    file = directory / CAMPAIGN
    say("next: sortition preview" + ("" if file == Path(CAMPAIGN) else f" {file}"))


def _asked(wishes: Wishes) -> Wishes:
    """Ask the three questions, each again until its answer can be read."""
    from dataclasses import replace

    from orchestrator.core.money import parse_usd
    from orchestrator.initial import Range

    def ask(question: str, default: str, read: Callable[[str], Any]) -> Any:
        def value_of(answer: str) -> Any:
            try:
                return read(answer.strip().lower())
            except (ValueError, ConfigError) as exc:
                raise typer.BadParameter(str(exc)) from exc

        return typer.prompt(question, default=default, err=True, value_proc=value_of)

    def count(answer: str) -> bool:
        if answer not in _COUNTS:
            raise ValueError(f"wants one or two, not {answer!r}")
        return _COUNTS[answer]

    def amount(answer: str) -> Nano:
        usd = parse_usd(answer.removeprefix("$"))
        if not 0 < usd <= _MOST:
            raise ValueError("wants more than 0 and at most 9 billion USD")
        return usd

    return replace(
        wishes,
        is_pair=ask(
            "What is judged: one set of answers, or two versions? one/two",
            "two" if wishes.is_pair else "one",
            count,
        ),
        scale=ask("On which scale: 1-5, 1-10, ... or yes-no?", "1-5", Range.read),
        budget=ask("What may it cost at most, in USD?", "1.00", amount),
    )


_COUNTS = {"one": False, "1": False, "two": True, "2": True}
_MOST = 9 * 10**18
