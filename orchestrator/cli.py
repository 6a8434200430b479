"""The command `sortition`. Results go to standard output, chatter to standard error.

Everything heavy is imported inside the commands, so that `--help` answers at once.
"""

from __future__ import annotations

import gc
import json
import os
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NoReturn

import typer

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

if TYPE_CHECKING:
    from orchestrator.campaign import Campaign
    from orchestrator.core.events import Event
    from orchestrator.report.screen import Progress
    from orchestrator.session import Observer, Result

app = typer.Typer(
    name="sortition",
    help="LLM-judge evaluations that are right and stay within their budget.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"auto_envvar_prefix": "SORTITION", "help_option_names": ["-h", "--help"]},
)

DEFAULT_FILE = Path("campaign.yaml")
PLAIN_EVERY_S = 30.0
MOCK_NOTE = "mock campaign: no judge is real, and no money is spent"


class Display(StrEnum):
    """How a run is shown while it goes on."""

    RICH = "rich"
    PLAIN = "plain"
    LOG = "log"
    NONE = "none"
    JSON = "json"


File = Annotated[Path, typer.Argument(help="The campaign file.", metavar="[FILE]")]
RunArgument = Annotated[
    Path | None, typer.Argument(help="The run's directory; the newest one by default.")
]
Budget = Annotated[
    str | None,
    typer.Option("--budget-usd", "--max-budget-usd", help="Hard dollar cap; over the file's."),
]
Jobs = Annotated[
    int | None,
    typer.Option("-j", "--max-concurrency", min=1, help="Calls at a time over all judges."),
]
Yes = Annotated[bool, typer.Option("-y", "--yes", help="Don't ask before money is spent.")]
DisplayOption = Annotated[
    Display | None, typer.Option("--display", help="How the run is shown while it goes on.")
]
AsJson = Annotated[bool, typer.Option("--json", help="For programs: JSON on standard output.")]
EnvFiles = Annotated[
    list[Path] | None, typer.Option("--env-file", help="Read environment variables; repeatable.")
]
Settings = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="PATH=VALUE", help="Set a field over the file; repeatable."),
]


def main() -> None:
    """Run the command; errors of ours are one message and an exit code, never a traceback."""
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
    _say(str(error))
    sys.exit(code)


# --- commands ----------------------------------------------------------------------------------


@app.command()
def validate(
    file: File = DEFAULT_FILE,
    set_: Settings = None,
    schema: Annotated[
        bool, typer.Option("--schema", help="Print the JSON Schema of campaign files instead.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Check a campaign file and its data; sends nothing. Exit 0 or 2."""
    if schema:
        from orchestrator.config import json_schema

        _print_json(json_schema())
        return
    from orchestrator.campaign import Campaign
    from orchestrator.planned import refused

    campaign = Campaign.from_yaml(file, _overrides(set_))
    later = [str(problem) for problem in refused(campaign.file)]
    warnings = [str(warning) for warning in campaign.file.warnings]
    if not later:
        warnings = [str(warning) for warning in campaign.build().warnings]
    if as_json:
        _print_json({"valid": True, "warnings": warnings, "planned": later})
        return
    for line in warnings:
        _say(f"warning: {line}")
    for line in later:
        _say(f"later: {line}")
    if later:
        typer.echo(f"{file}: valid, but it can't be run yet")
        return
    frame = campaign.build().study.frame
    arms = f" x {frame.n_arms} arms" if frame.n_arms > 1 else ""
    typer.echo(
        f"{file}: valid; {frame.n_items:,} items{arms}, {len(campaign.file.campaign.judges)} judges, "
        f"policy {campaign.file.campaign.policy.kind}"
    )
    _say(f"next: sortition run {file}")


@app.command()
def run(
    file: File = DEFAULT_FILE,
    run_dir: Annotated[
        Path | None, typer.Option("--run-dir", help="Where the run lives; resumes what is there.")
    ] = None,
    budget_usd: Budget = None,
    mock: Annotated[
        bool, typer.Option("--mock", help="Put a mock in the place of every judge.")
    ] = False,
    jobs: Jobs = None,
    limit: Annotated[
        int | None,
        typer.Option("-n", "--limit", min=1, help="Take a random sample of so many items."),
    ] = None,
    seed: Annotated[int | None, typer.Option("--seed", min=0, help="Over the file's seed.")] = None,
    set_: Settings = None,
    env_file: EnvFiles = None,
    yes: Yes = False,
    output: Annotated[
        list[Path] | None,
        typer.Option(
            "-o", "--output", help="Also write this file (.html .md .jsonl .csv .parquet)."
        ),
    ] = None,
    display: DisplayOption = None,
    as_json: AsJson = False,
    quiet: Annotated[
        bool, typer.Option("-q", "--quiet", help="Show nothing while it runs.")
    ] = False,
) -> None:
    """Run a campaign within its budget."""
    from orchestrator.campaign import Campaign

    _read_env_files(env_file)
    overrides = _overrides(set_)
    if budget_usd is not None:
        overrides["budget.usd"] = budget_usd
    if seed is not None:
        overrides["seed"] = seed
    campaign = Campaign.from_yaml(file, overrides, mock=mock, limit=limit)
    _check_outputs(output or [])
    _introduce(campaign, yes=yes)
    if as_json:
        opened = campaign.build().crew.opened
        launch = {"name": opened.identity["name"], "mock": opened.identity["mock"]}
        _print_json({"record": "launch", **launch, "cap_nano_usd": opened.cap})
    with _frozen_heap(), _watching(_display(display, as_json=as_json, quiet=quiet)) as observe:
        result = campaign.run(run_dir, max_in_flight=jobs, observe=observe)
    _finish(result, output or [], as_json=as_json)


@app.command()
def resume(
    run: RunArgument = None,
    budget_usd: Budget = None,
    jobs: Jobs = None,
    env_file: EnvFiles = None,
    yes: Yes = False,
    display: DisplayOption = None,
    as_json: AsJson = False,
) -> None:
    """Go on with a run; by default the newest unfinished one."""
    from orchestrator import rundir
    from orchestrator.campaign import resume as go_on
    from orchestrator.core.money import parse_usd

    _read_env_files(env_file)
    directory = run or rundir.newest(_runs(), unfinished=True)
    try:
        wanted = None if budget_usd is None else parse_usd(budget_usd)
    except ValueError as exc:
        raise ConfigError(f"--budget-usd: {exc}; nothing was sent") from exc
    overrides = {} if budget_usd is None else {"budget.usd": budget_usd}
    _confirm(is_real=rundir.is_real(directory), yes=yes, amount=budget_usd)
    with _watching(_display(display, as_json=as_json, quiet=False)) as observe:
        result = go_on(directory, overrides, max_in_flight=jobs, observe=observe)
    if wanted is not None and wanted != result.data.spend.cap:
        _say("this run has nothing to go on with: it was only read again, its cap is as before")
    _finish(result, [], as_json=as_json)


@app.command()
def status(
    run: RunArgument = None,
    watch: Annotated[bool, typer.Option("--watch", help="Go on showing it.")] = False,
    as_json: AsJson = False,
) -> None:
    """Show how a run stands, also while it goes on."""
    from orchestrator import rundir
    from orchestrator.report.screen import status_lines

    directory = run or rundir.newest(_runs(), unfinished=False)
    while True:
        progress = rundir.progress(directory)
        if as_json:
            _print_json(json.loads(progress.to_json()))
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

    directory = run or rundir.newest(_runs(), unfinished=False)
    path = output or directory / "report.html"
    if path.suffix not in {".html", ".md"}:
        raise ConfigError(f"{path.name}: a report is .html or .md")
    rundir.write_report(rundir.summary(directory, unstopped=rundir.unstopped(directory)), path)
    typer.echo(path)


@app.command()
def export(
    run: Annotated[Path, typer.Argument(help="The run's directory.")],
    output: Annotated[
        list[Path],
        typer.Option("-o", "--output", help="answers.{jsonl,csv,parquet} or scores.{...}."),
    ],
) -> None:
    """Export answers, or scores if the file's name begins so."""
    from orchestrator import rundir

    for path in output:
        typer.echo(f"{path}: {rundir.write_export(run, path):,} rows")


@app.command()
def verify(
    run: Annotated[Path, typer.Argument(help="The run's directory.")],
    as_json: AsJson = False,
) -> None:
    """Re-check the log: every decision, cost and number. Exit 1 on any difference."""
    from orchestrator.verification import check

    found = list(check(run))
    if as_json:
        _print_json({"differences": found})
    else:
        for line in found:
            typer.echo(line)
        typer.echo(
            f"{len(found)} differences" if found else "every row, decision and number agrees"
        )
    if found:
        raise typer.Exit(1)


# --- before and after a run --------------------------------------------------------------------


def _overrides(settings: Sequence[str] | None) -> dict[str, object]:
    overrides: dict[str, object] = {}
    for setting in settings or ():
        path, equals, value = setting.partition("=")
        if not equals:
            raise ConfigError(f"--set {setting}: wants PATH=VALUE, as in budget.usd=5")
        overrides[path] = value
    return overrides


def _read_env_files(files: Sequence[Path] | None) -> None:
    from orchestrator.dotenv import load_dotenv

    os.environ |= load_dotenv(os.environ, folder=Path.cwd(), files=files or ())


def _introduce(campaign: Campaign, *, yes: bool) -> None:
    """Say what will run and what it can cost at most; ask where money is real."""
    from orchestrator.core.money import format_usd

    blueprint = campaign.build()
    opened = blueprint.crew.opened
    frame = blueprint.study.frame
    arms = f" x {frame.n_arms} arms" if frame.n_arms > 1 else ""
    cap = (
        "no dollar cap"
        if opened.cap is None
        else f"cap {format_usd(opened.cap, decimals=2)} (hard)"
    )
    policy = blueprint.file.campaign.policy.kind
    _say(f"campaign  {blueprint.name}   {frame.n_items:,} items{arms}   policy {policy}   {cap}")
    for judge, price in zip(blueprint.crew.judges, blueprint.prices, strict=True):
        _say(f"judge     {judge.name}   {_price(price.card)}   ({price.source})")
    for warning in blueprint.warnings:
        _say(f"warning   {warning}")
    if blueprint.is_mock:
        _say(MOCK_NOTE)
    is_real = opened.identity["money"] == "real"
    _confirm(
        is_real=is_real, yes=yes, amount=None if opened.cap is None else format_usd(opened.cap)
    )


def _check_outputs(outputs: Sequence[Path]) -> None:
    """Refuse outputs that can't be written, before anything is spent on what they would hold."""
    from importlib.util import find_spec

    for path in outputs:
        if path.suffix not in {".html", ".md", ".jsonl", ".csv", ".parquet"}:
            raise ConfigError(f"{path.name}: known are .html, .md, .jsonl, .csv, .parquet")
        if not path.absolute().parent.is_dir():
            raise ConfigError(f"{path}: there is no folder {path.parent}")
        if path.suffix == ".parquet" and find_spec("pyarrow") is None:
            raise ConfigError(
                f"{path.name}: parquet needs pyarrow: pip install 'sortition[parquet]'"
            )


def _price(card: Any) -> str:
    if card.is_free:
        return "free"
    if card.per_call:
        return f"${card.per_call / 1e12:g} a call"
    return f"${card.input / 1e6:g} / ${card.output / 1e6:g} per 1M tokens in / out"


def _confirm(*, is_real: bool, yes: bool, amount: str | None) -> None:
    if not is_real or yes:
        return
    if not sys.stdin.isatty():
        raise ConfigError("this run can spend money; without a terminal it needs --yes")
    if not typer.confirm(
        f"Proceed, spending at most {amount or 'what its limits allow'}?", err=True
    ):
        raise typer.Exit(2)


def _finish(result: Result, outputs: Sequence[Path], *, as_json: bool) -> NoReturn:
    from orchestrator import rundir
    from orchestrator.report.screen import closing_lines

    for path in outputs:
        if path.suffix in {".html", ".md"}:
            rundir.write_report(result.data, path)
        else:
            rundir.write_export(result.directory, path)
    if as_json:
        _print_json({"record": "done", "directory": str(result.directory), **result.document})
    else:
        for line in closing_lines(result.data):
            typer.echo(line)
        if (result.directory / "report.html").exists():
            typer.echo(f"report  {result.directory / 'report.html'}")
        if result.exit_code == 130:
            _say(f"next: sortition resume {result.directory}")
        else:
            _say(f"next: sortition verify {result.directory}")
    sys.exit(result.exit_code)


# --- display -----------------------------------------------------------------------------------


def _display(chosen: Display | None, *, as_json: bool, quiet: bool) -> Display:
    if quiet or as_json:
        return Display.NONE
    if chosen is not None:
        return chosen
    is_plain = not sys.stderr.isatty() or os.environ.get("CI") or os.environ.get("NO_COLOR")
    return Display.PLAIN if is_plain else Display.RICH


@contextmanager
def _frozen_heap() -> Iterator[None]:
    """Keep the collector from looking through data and modules that live as long as the run."""
    gc.freeze()
    try:
        yield
    finally:
        gc.unfreeze()


class _watching:  # noqa: N801  # reads as a statement: with _watching(display) as observe
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

            _say(one_line(progress))

    def _log(self, progress: Progress, events: Sequence[Event]) -> None:
        del progress
        for event in events:
            _say(str(event))

    def _json(self, progress: Progress, events: Sequence[Event]) -> None:
        del events
        if self._is_time(PLAIN_EVERY_S):
            _say(progress.to_json().decode())


def _runs() -> Path:
    return Path(os.environ.get("SORTITION_OUTPUT_DIR", "runs"))


def _print_json(document: object) -> None:
    typer.echo(json.dumps(document, ensure_ascii=False))


def _say(line: str) -> None:
    typer.echo(line, err=True)
