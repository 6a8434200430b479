"""The command `audit`: what is wrong with a board of comparisons, live or imported."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from orchestrator.cli.common import AsJson, app, print_json
from orchestrator.cli.estimate import names_of


@app.command()
def audit(
    votes: Annotated[
        Path,
        typer.Argument(help="A run's directory, or a table of votes: .csv, .jsonl, .parquet."),
    ],
    map_: Annotated[
        list[str] | None,
        typer.Option("--map", metavar="PART=COLUMN", help="Name a part's column; repeatable."),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Audit a board: is it sound, and how many more comparisons do its open gaps need? Exit 0 or 2."""
    from orchestrator.auditing import audit_path
    from orchestrator.report.board_words import lines

    found = audit_path(votes, names_of(map_ or ()))
    if as_json:
        print_json(
            [
                {
                    "criterion": one.criterion,
                    "models": one.models,
                    "judges": one.judges,
                    **one.found,
                }
                for one in found
            ]
        )
        return
    for one in found:
        for line in lines(one, with_criterion=len(found) > 1):
            typer.echo(line)
