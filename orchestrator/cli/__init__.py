"""The command `sortition`. Results go to standard output, chatter to standard error.

Everything heavy is imported inside the commands, so that `--help` answers at once.
"""

from __future__ import annotations

import os
import sys
from typing import Annotated, NoReturn

import typer

# Imported for their commands, in the order of `--help`.
from orchestrator.cli import (  # noqa: F401
    audit,
    cache,
    check,
    ctl,
    doctor,
    estimate,
    generate,
    init,
    lab,
    plugins,
    prices,
    read,
    run,
)
from orchestrator.cli.common import app, say
from orchestrator.core.errors import (
    ConfigError,
    CorruptLog,
    LedgerError,
    OrchestratorError,
    ReplayError,
    RunLocked,
    StorageFailed,
    StoreError,
)

__all__ = ["app", "main"]


def _show_version(wanted: bool) -> None:
    if wanted:
        from importlib.metadata import version

        typer.echo(f"sortition {version('sortition')}")
        raise typer.Exit


@app.callback()
def _options(
    _version: Annotated[
        bool,
        typer.Option(
            "--version",
            help="Say which version this is.",
            callback=_show_version,
            is_eager=True,
            # SORTITION_VERSION in the environment is nobody's wish to see it.
            allow_from_autoenv=False,
        ),
    ] = False,
) -> None:
    """Take the options that stand before a command."""


def main() -> None:
    """Run the command; errors of ours are one message and an exit code, never a traceback."""
    # Matrices here are small, and threads cost several times what they save. It counts before NumPy is
    # imported, and for the processes that a study starts.
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="replace")
    try:
        app()
    except LedgerError:
        raise  # a bug of ours: the traceback is what helps
    except OrchestratorError as exc:
        _fail(exc)
    except OSError as exc:
        if exc.filename is None:
            raise
        _fail(StorageFailed(f"{exc.filename}: {exc.strerror}"))


def _fail(error: OrchestratorError) -> NoReturn:
    match error:
        case ConfigError() | ReplayError():
            code = 2
        case RunLocked():
            code = 4
        case StorageFailed() | CorruptLog():
            code = 5
        case StoreError():
            code = 2
        case _:
            code = 4
    say(str(error))
    sys.exit(code)
