"""The command `plan`: what a campaign will ask, cost, take and find."""

from __future__ import annotations

import json
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

if TYPE_CHECKING:
    from orchestrator.campaign import Campaign

PLAN_NAME = "plan.json"


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
    output: Annotated[
        Path | None,
        typer.Option("-o", "--output", help="Where the plan goes; plan.json beside the file."),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Say what a campaign will ask, cost, take and find; sends nothing. Exit 0 or 2."""
    campaign = campaign_of(
        file, budget_usd=budget_usd, mock=mock, limit=limit, seed=seed, set_=set_, env_file=env_file
    )
    show_plan(campaign, output or file.parent / PLAN_NAME, jobs=jobs, as_json=as_json)
    if not as_json:
        say(f"next: sortition run {file}")


def show_plan(campaign: Campaign, path: Path, *, jobs: int | None, as_json: bool) -> None:
    """Plan a campaign, write the plan and print it."""
    from orchestrator.report.planning import document, plan_lines

    made = campaign.plan(max_in_flight=jobs)
    written = document(made)
    path.write_text(
        json.dumps(written, indent=2, ensure_ascii=False, allow_nan=False) + "\n", encoding="utf-8"
    )
    if as_json:
        print_json(written)
        return
    for line in plan_lines(made):
        typer.echo(line)
    for warning in campaign.build().warnings:
        say(f"warning: {warning}")
    typer.echo(f"plan      {path}")
