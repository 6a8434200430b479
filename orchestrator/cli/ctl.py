"""The command that steers a run which another process carries on: `ctl`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from orchestrator.cli.common import AsJson, app, print_json, say


@app.command()
def ctl(
    run: Annotated[Path, typer.Argument(help="The run's directory.")],
    words: Annotated[
        list[str], typer.Argument(help="pause, resume, stop, or set PATH=VALUE.", metavar="COMMAND")
    ],
    reason: Annotated[str, typer.Option("--reason", help="Why; it is kept in the log.")] = "",
    timeout: Annotated[
        float, typer.Option("--timeout", min=0, help="Seconds to wait for the answer.")
    ] = 5.0,
    as_json: AsJson = False,
) -> None:
    """Pause, resume or stop a run under way, or change its cap and limits."""
    from orchestrator import control, rundir
    from orchestrator.core.events import Opened

    with rundir.reading(run) as reader:
        opened = reader.last(Opened)
    judges = [] if opened is None else [judge["name"] for judge in opened.identity["judges"]]
    command = control.parse(words, reason=reason, by=control.author(), judges=judges)

    def is_running() -> bool:
        return rundir.running(run) is not None

    if not is_running():
        say(f"no process carries {run} on; to go on with it: sortition resume {run}")
        raise typer.Exit(4)
    try:
        answer = control.answer(
            control.post(run, command), timeout_s=timeout, is_running=is_running
        )
    except TimeoutError:
        say(f"{run} took the command and did not say what came of it; see: sortition status {run}")
        raise typer.Exit(4) from None
    if answer is None:
        gone = f"did not take it in {timeout:g} s" if is_running() else "has just ended"
        say(f"the process that carries {run} on {gone}; the command is withdrawn")
        raise typer.Exit(4)
    if as_json:
        print_json({"ok": answer.ok, "message": answer.message})
    elif answer.ok:
        typer.echo(answer.message)
    else:
        say(answer.message)
    if not answer.ok:
        raise typer.Exit(2)
