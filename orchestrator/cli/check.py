"""Commands that look at a campaign file and send nothing: `validate`, `preview`."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated

import typer

from orchestrator.cli.common import (
    DEFAULT_FILE,
    AsJson,
    File,
    Mock,
    Settings,
    app,
    overrides,
    print_json,
    say,
)
from orchestrator.wording import visible

if TYPE_CHECKING:
    from orchestrator.previewing import Preview


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
    from orchestrator.report.wording import plural

    frame = campaign.build().study.frame
    arms = f" x {frame.n_arms} arms" if frame.n_arms > 1 else ""
    typer.echo(
        f"{file}: valid; {frame.n_items:,} items{arms}, "
        f"{plural(len(campaign.file.campaign.judges), 'judge')}, "
        f"policy {campaign.file.campaign.policy.kind}"
    )
    say(f"next: sortition run {file}")


@app.command()
def preview(
    file: File = DEFAULT_FILE,
    item: Annotated[str | None, typer.Option("--item", help="The item, by its id.")] = None,
    arm: Annotated[str | None, typer.Option("--arm", help="The arm.")] = None,
    judge: Annotated[str | None, typer.Option("--judge", help="The judge, by its name.")] = None,
    mock: Mock = False,
    set_: Settings = None,
    as_json: AsJson = False,
) -> None:
    """Show the exact request of a question, what it holds and what it costs; sends nothing."""
    from orchestrator.campaign import Campaign
    from orchestrator.previewing import preview as previewed

    blueprint = Campaign.from_yaml(file, overrides(set_), mock=mock).build()
    shown = previewed(blueprint, item=item, arm=arm, judge=judge)
    if as_json:
        print_json(shown.as_json())
        return
    for line in _question(shown):
        typer.echo(visible(line))
    say("nothing was sent")
    say(f"next: sortition plan {file}")


def _question(shown: Preview) -> Iterator[str]:
    """Write out a question: whom it asks about what, its messages, its schema, its price."""
    from orchestrator.core.money import format_usd
    from orchestrator.previewing import turns

    mock = "mock: no judge is real, and no money is spent\n" if shown.mock else ""
    first = (
        "the policy asks it first" if shown.is_first else "not the one that the policy asks first"
    )
    model = f" {shown.model}" if shown.model else ""
    yield f"{mock}question  {_units(shown)}   {shown.role} {shown.judge} ({shown.adapter}{model})   {first}"
    for number, turn in enumerate(turns(shown.request), start=1):
        yield f"--- message {number}, role {turn.role}"
        yield turn.content.rstrip("\n")
    yield "--- JSON Schema of the answer"
    yield json.dumps(shown.request.schema, indent=1, ensure_ascii=False)
    yield "---"
    yield f"answer    by {shown.route}"
    yield f"params    {_params(shown)}"
    yield f"bound     {shown.input_tok:,} input + {shown.output_tok:,} output tokens at most"
    yield f"hold      {format_usd(shown.hold)}, before the call is sent"
    yield f"expected  {format_usd(shown.expected)}   ({shown.price})"


def _units(shown: Preview) -> str:
    """Name what a question is about; several units in the order in which they stand."""
    from orchestrator.core.query import Kind

    if len(shown.items) == 1:
        arm = f"   arm {shown.arms[0]}" if shown.arms[0] else ""
        return f"item {shown.items[0]}{arm}"
    units = zip(shown.items, shown.arms, strict=True)
    named = ", ".join(f"{item} ({arm})" if arm else item for item, arm in units)
    is_pair = shown.request.query.kind is Kind.COMPARE
    return f"{'a pair' if is_pair else f'a batch of {len(shown.items)}'}: {named}"


def _params(shown: Preview) -> str:
    """Say which of the file's parameters are sent, and which are left out."""
    sent = ", ".join(f"{name} {json.dumps(value)}" for name, value in shown.params.items())
    left_out = f"; left out: {', '.join(shown.dropped)}" if shown.dropped else ""
    return f"{sent or 'none'}{left_out}"
