"""The command that writes a first campaign: `init`."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from orchestrator.cli.common import AsJson, app, print_json, say
from orchestrator.core.errors import ConfigError

if TYPE_CHECKING:
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
        wishes = _asked(wishes)
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
    """Ask the three questions."""
    from dataclasses import replace

    from orchestrator.core.money import parse_usd
    from orchestrator.initial import Range

    def ask(question: str, default: str) -> str:
        return str(typer.prompt(question, default=default, err=True)).strip()

    judged = ask(
        "What is judged: one set of answers, or two versions? one/two", _COUNT[wishes.is_pair]
    )
    if judged not in _COUNT.values():
        raise ConfigError(f"wants one or two, not {judged!r}; nothing was written")
    scale = Range.read(ask("On which scale: 1-5, 1-10, ... or yes-no?", "1-5"))
    budget = ask("What may it cost at most, in USD?", "1.00")
    try:
        amount = parse_usd(budget)
    except ValueError as exc:
        raise ConfigError(f"the budget: {exc}; nothing was written") from exc
    return replace(wishes, is_pair=judged == _COUNT[True], scale=scale, budget=amount)


_COUNT = {True: "two", False: "one"}
