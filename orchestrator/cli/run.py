"""Commands that carry a campaign out: `run` and `resume`."""

from __future__ import annotations

import gc
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, NoReturn

import typer

from orchestrator.cli.common import (
    DEFAULT_FILE,
    AsJson,
    Budget,
    EnvFiles,
    File,
    Jobs,
    Limit,
    Mock,
    NoCache,
    Quiet,
    RunArgument,
    RunDirectory,
    Seed,
    Settings,
    Yes,
    app,
    campaign_of,
    print_json,
    read_env_files,
    runs,
    say,
)
from orchestrator.cli.display import DisplayOption, chosen_display, watching
from orchestrator.cli.plan import show_plan
from orchestrator.core.errors import ConfigError

if TYPE_CHECKING:
    from orchestrator.campaign import Campaign
    from orchestrator.session import Result

GATE_FAILED = 1
ExitCodeOnFail = Annotated[
    int,
    typer.Option(
        "--exit-code-on-fail",
        metavar="N",
        min=0,
        max=255,
        help="End with N instead of 1 where a gate failed.",
    ),
]
MOCK_NOTE = "mock campaign: no judge is real, and no money is spent"


@app.command()
def run(
    file: File = DEFAULT_FILE,
    run_dir: RunDirectory = None,
    budget_usd: Budget = None,
    mock: Mock = False,
    jobs: Jobs = None,
    limit: Limit = None,
    seed: Seed = None,
    set_: Settings = None,
    no_cache: NoCache = False,
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
    quiet: Quiet = False,
    exit_code_on_fail: ExitCodeOnFail = GATE_FAILED,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Plan it, as `sortition plan` does; send nothing.")
    ] = False,
) -> None:
    """Run a campaign within its budget."""
    from orchestrator.outputs import EXPORTS, REPORTS, check_outputs

    set_ = [*(set_ or ()), "cache=null"] if no_cache else set_
    campaign = campaign_of(
        file, budget_usd=budget_usd, mock=mock, limit=limit, seed=seed, set_=set_, env_file=env_file
    )
    check_outputs(output or [], forms=(*REPORTS, *EXPORTS), reads=campaign.file.reads)
    if dry_run:
        from orchestrator.rundir import PLAN_NAME

        show_plan(campaign, file.parent / PLAN_NAME, jobs=jobs, as_json=as_json)
        return
    _introduce(campaign, jobs=jobs, yes=yes)
    if as_json:
        opened = campaign.build().crew.opened
        launch = {"name": opened.identity["name"], "mock": opened.identity["mock"]}
        print_json({"record": "launch", **launch, "cap_nano_usd": opened.cap})
    with frozen_heap(), watching(chosen_display(display, as_json=as_json, quiet=quiet)) as observe:
        result = campaign.run(run_dir, max_in_flight=jobs, observe=observe)
    finish(result, output or [], as_json=as_json, on_fail=exit_code_on_fail)


@app.command()
def resume(
    run: RunArgument = None,
    budget_usd: Budget = None,
    jobs: Jobs = None,
    env_file: EnvFiles = None,
    yes: Yes = False,
    display: DisplayOption = None,
    as_json: AsJson = False,
    exit_code_on_fail: ExitCodeOnFail = GATE_FAILED,
) -> None:
    """Go on with a run; by default the newest unfinished one."""
    from orchestrator import rundir
    from orchestrator.campaign import resume as go_on
    from orchestrator.core.money import format_usd, parse_usd

    read_env_files(env_file)
    directory = run or rundir.newest(runs(), unfinished=True, notice=say)
    try:
        wanted = None if budget_usd is None else parse_usd(budget_usd)
    except ValueError as exc:
        raise ConfigError(f"--budget-usd: {exc}; nothing was sent") from exc
    changes = {} if budget_usd is None else {"budget.usd": budget_usd}
    _confirm(
        is_real=rundir.is_real(directory),
        yes=yes,
        amount=None if wanted is None else format_usd(wanted),
    )
    with watching(chosen_display(display, as_json=as_json, quiet=False)) as observe:
        result = go_on(directory, changes, max_in_flight=jobs, observe=observe)
    if wanted is not None and wanted != result.data.spend.cap:
        say("this run has nothing to go on with: it was only read again, its cap is as before")
    finish(result, [], as_json=as_json, on_fail=exit_code_on_fail)


# --- before and after ---


def _introduce(campaign: Campaign, *, jobs: int | None, yes: bool) -> None:
    """Say what will run, what it will likely cost and can cost at most; ask where money is real."""
    from orchestrator.report.planning import run_lines

    campaign.check_keys()
    for line in run_lines(campaign.plan(max_in_flight=jobs, rivals=False)):
        say(line)
    let_agree(campaign, yes=yes)


def let_agree(campaign: Campaign, *, yes: bool) -> None:
    """Say what is odd, and ask where money is real."""
    from orchestrator.core.money import format_usd

    blueprint = campaign.build()
    opened = blueprint.crew.opened
    for warning in blueprint.warnings:
        say(f"warning   {warning}")
    if blueprint.is_mock:
        say(MOCK_NOTE)
    is_real = opened.identity["money"] == "real"
    _confirm(
        is_real=is_real, yes=yes, amount=None if opened.cap is None else format_usd(opened.cap)
    )


def _confirm(*, is_real: bool, yes: bool, amount: str | None) -> None:
    if not is_real or yes:
        return
    if not sys.stdin.isatty():
        raise ConfigError("this run can spend money; without a terminal it needs --yes")
    question = f"Proceed, spending at most {amount or 'what its limits allow'}?"
    try:
        agrees = typer.confirm(question, err=True)
    except typer.Abort:
        agrees = False
    if not agrees:
        raise typer.Exit(2)


def finish(result: Result, outputs: Sequence[Path], *, as_json: bool, on_fail: int) -> NoReturn:
    """Write what else was asked for, say what the run came to, and end with its exit code."""
    from orchestrator import rundir
    from orchestrator.report.screen import closing_lines

    for path in outputs:
        if path.suffix in {".html", ".md"}:
            rundir.write_report(result.data, path)
        else:
            rundir.write_export(result.directory, path)
    if as_json:
        print_json({"record": "done", "directory": str(result.directory), **result.document})
    else:
        for line in closing_lines(result.data):
            typer.echo(line)
        reports = map(result.directory.joinpath, ("report.html", "report.md"))
        if report := next((path for path in reports if path.exists()), None):
            typer.echo(f"report  {report}")
        if result.exit_code == 130:
            say(f"next: sortition resume {result.directory}")
        else:
            say(f"next: sortition verify {result.directory}")
    sys.exit(on_fail if result.exit_code == GATE_FAILED else result.exit_code)


@contextmanager
def frozen_heap() -> Iterator[None]:
    """Keep the collector from looking through data and modules that live as long as the run."""
    gc.freeze()
    try:
        yield
    finally:
        gc.unfreeze()
