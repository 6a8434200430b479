"""Commands that read a run: `status`, `report`, `export`, `verify`."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Annotated

import typer

from orchestrator.cli.common import AsJson, RunArgument, app, print_json, runs, say


@app.command()
def status(
    run: RunArgument = None,
    watch: Annotated[bool, typer.Option("--watch", help="Go on showing it.")] = False,
    as_json: AsJson = False,
) -> None:
    """Show how a run stands, also while it goes on."""
    from orchestrator import rundir
    from orchestrator.report.screen import status_lines

    directory = run or rundir.newest(runs(), unfinished=False, notice=say)
    while True:
        progress = rundir.progress(directory)
        if as_json:
            print_json(json.loads(progress.to_json()))
        else:
            typer.echo("\n".join(status_lines(progress)))
        if not watch or progress.state != "running":
            return
        time.sleep(2.0)
        typer.echo("")


@app.command()
def report(
    run: RunArgument = None,
    output: Annotated[
        Path | None, typer.Option("-o", "--output", help="report.html or report.md.")
    ] = None,
) -> None:
    """Write the report of a run as one self-contained file."""
    from orchestrator import rundir
    from orchestrator.outputs import REPORTS, check_outputs, files_of

    directory = run or rundir.newest(runs(), unfinished=False, notice=say)
    path = output or directory / "report.html"
    check_outputs([path], forms=REPORTS, reads=files_of(directory))
    rundir.write_report(rundir.summary(directory, unstopped=rundir.unstopped(directory)), path)
    typer.echo(path)


@app.command()
def export(
    run: Annotated[Path, typer.Argument(help="The run's directory.")],
    output: Annotated[
        list[Path],
        typer.Option("-o", "--output", help="answers.{jsonl,csv,parquet} or scores.{...}."),
    ],
    force: Annotated[
        bool,
        typer.Option("--force", help="Replace a file that is there, but none of the campaign."),
    ] = False,
) -> None:
    """Export answers, or scores if the file's name begins so."""
    from orchestrator import rundir
    from orchestrator.outputs import EXPORTS, check_outputs, files_of

    check_outputs(output, forms=EXPORTS, reads=files_of(run), overwrites=force)
    for path in output:
        typer.echo(f"{path}: {rundir.write_export(run, path):,} rows")


@app.command()
def verify(
    run: RunArgument = None,
    as_json: AsJson = False,
) -> None:
    """Re-check the log: every decision, cost and number. Exit 1 on any difference."""
    from orchestrator import rundir
    from orchestrator.verification import check

    found = list(check(run or rundir.newest(runs(), unfinished=False, notice=say)))
    if as_json:
        print_json({"differences": found})
    else:
        for line in found:
            typer.echo(line)
        typer.echo(
            f"{len(found)} differences" if found else "every row, decision and number agrees"
        )
    if found:
        raise typer.Exit(1)
