"""Commands that look at a campaign file and send nothing: `validate`."""

from __future__ import annotations

from typing import Annotated

import typer

from orchestrator.cli.common import (
    DEFAULT_FILE,
    AsJson,
    File,
    Settings,
    app,
    overrides,
    print_json,
    say,
)


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

        print_json(json_schema())
        return
    from orchestrator.campaign import Campaign
    from orchestrator.planned import refused

    campaign = Campaign.from_yaml(file, overrides(set_))
    later = [str(problem) for problem in refused(campaign.file)]
    warnings = [str(warning) for warning in campaign.file.warnings]
    if not later:
        warnings = [str(warning) for warning in campaign.build().warnings]
    if as_json:
        print_json({"valid": True, "warnings": warnings, "planned": later})
        return
    for line in warnings:
        say(f"warning: {line}")
    for line in later:
        say(f"later: {line}")
    if later:
        typer.echo(f"{file}: valid, but it can't be run yet")
        return
    frame = campaign.build().study.frame
    arms = f" x {frame.n_arms} arms" if frame.n_arms > 1 else ""
    typer.echo(
        f"{file}: valid; {frame.n_items:,} items{arms}, {len(campaign.file.campaign.judges)} judges, "
        f"policy {campaign.file.campaign.policy.kind}"
    )
    say(f"next: sortition run {file}")
