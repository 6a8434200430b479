"""The command that lets systems answer and judges nothing: `generate`."""

from __future__ import annotations

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
    NoCache,
    Quiet,
    RunDirectory,
    Seed,
    Settings,
    Yes,
    app,
    campaign_of,
    say,
)
from orchestrator.cli.display import DisplayOption, chosen_display, watching
from orchestrator.cli.run import GATE_FAILED, finish, frozen_heap, let_agree

if TYPE_CHECKING:
    from orchestrator.campaign import Campaign


@app.command()
def generate(
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
        typer.Option("-o", "--output", help="Also write this file (.jsonl .csv .parquet)."),
    ] = None,
    display: DisplayOption = None,
    as_json: AsJson = False,
    quiet: Quiet = False,
) -> None:
    """Let the systems of a campaign answer its items, and judge nothing."""
    from orchestrator.outputs import EXPORTS, check_outputs

    set_ = [*(set_ or ()), "cache=null"] if no_cache else set_
    campaign = campaign_of(
        file, budget_usd=budget_usd, mock=mock, limit=limit, seed=seed, set_=set_, env_file=env_file
    ).for_generation()
    check_outputs(output or [], forms=EXPORTS, reads=campaign.file.reads)
    _introduce(campaign)
    let_agree(campaign, yes=yes)
    with frozen_heap(), watching(chosen_display(display, as_json=as_json, quiet=quiet)) as observe:
        result = campaign.run(run_dir, max_in_flight=jobs, observe=observe)
    finish(result, output or [], as_json=as_json, on_fail=GATE_FAILED)


def _introduce(campaign: Campaign) -> None:
    """Say how much will be asked, and what it costs at the systems' expected prices."""
    from orchestrator.core.money import Nano, format_usd
    from orchestrator.report.wording import plural

    campaign.check_keys()
    study = campaign.build().study
    settings = campaign.file.campaign.policy.settings
    n_items = min(study.frame.n_items, getattr(settings, "max_items", None) or study.frame.n_items)
    price = Nano(n_items * sum(system.planning for system in study.panel))
    who = plural(len(study.panel), "system")
    say(f"generate  {n_items:,} items by {who}: expected {format_usd(price)}")
