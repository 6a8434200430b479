"""The command `plan`: what a campaign will ask, cost, take and find."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

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
    Seed,
    Settings,
    app,
    campaign_of,
    print_json,
    say,
)
from orchestrator.core.errors import BudgetTooSmall

if TYPE_CHECKING:
    from orchestrator.campaign import Campaign


@app.command()
def plan(
    file: File = DEFAULT_FILE,
    budget_usd: Budget = None,
    mock: Mock = False,
    jobs: Jobs = None,
    limit: Limit = None,
    seed: Seed = None,
    set_: Settings = None,
    env_file: EnvFiles = None,
    half_width: Annotated[
        list[float] | None,
        typer.Option(
            "--half-width",
            metavar="T",
            help="What does ±T take and cost, by method? Of a benchmark; repeatable.",
        ),
    ] = None,
    usd: Annotated[
        list[str] | None,
        typer.Option(
            "--usd",
            metavar="X",
            help="What precision do $X buy, by method? Of a benchmark; repeatable.",
        ),
    ] = None,
    mean: Annotated[
        float | None,
        typer.Option(
            "--mean", metavar="M", help="The mean that a benchmark's scores are taken to have."
        ),
    ] = None,
    output: Annotated[
        Path | None,
        typer.Option("-o", "--output", help="Where the plan goes; plan.json beside the file."),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Say what a campaign will ask, cost, take and find; sends nothing. Exit 0 or 2."""
    from orchestrator.outputs import check_outputs
    from orchestrator.rundir import PLAN_NAME

    campaign = campaign_of(
        file, budget_usd=budget_usd, mock=mock, limit=limit, seed=seed, set_=set_, env_file=env_file
    )
    if output is not None:
        check_outputs([output], reads=campaign.file.reads)
    show_plan(
        campaign,
        output or file.parent / PLAN_NAME,
        jobs=jobs,
        as_json=as_json,
        half_widths=half_width or (),
        usd=usd or (),
        mean=mean,
    )
    if not as_json:
        say(f"next: sortition run {file}")


def show_plan(
    campaign: Campaign,
    path: Path,
    *,
    jobs: int | None,
    as_json: bool,
    half_widths: Sequence[float] = (),
    usd: Sequence[str] = (),
    mean: float | None = None,
) -> None:
    """Plan a campaign, write the plan and print it; what its rivals can, where it has too little money.

    Raises
    ------
    BudgetTooSmall
        The policy can't work with this money.
    """
    from orchestrator.report.planning import (
        document,
        plan_lines,
        refusal_document,
        refusal_lines,
    )

    reason: BudgetTooSmall | None = None
    try:
        made = campaign.plan(max_in_flight=jobs, half_widths=half_widths, usd=usd, mean=mean)
        written, lines = document(made), plan_lines(made)
    except BudgetTooSmall as exc:
        refusal, reason = campaign.rivals(exc), exc
        written, lines = refusal_document(refusal), refusal_lines(refusal)
    path.write_text(
        json.dumps(written, indent=2, ensure_ascii=False, allow_nan=False) + "\n", encoding="utf-8"
    )
    if as_json:
        print_json(written)
    else:
        for line in lines:
            typer.echo(line)
        typer.echo(f"plan      {path}")
    if reason is not None:
        raise reason
    for warning in () if as_json else campaign.build().warnings:
        say(f"warning: {warning}")
