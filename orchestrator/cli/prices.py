"""Commands about what judges charge: `prices list`, `prices show`, `prices check`."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated

import typer

from orchestrator.cli.common import (
    DEFAULT_FILE,
    AsJson,
    File,
    Settings,
    app,
    overrides,
    print_json,
    print_table,
    say,
)

if TYPE_CHECKING:
    from orchestrator.core.money import PriceCard
    from orchestrator.core.wire import Json
    from orchestrator.prices import Listed

prices = typer.Typer(help="What judges charge.", no_args_is_help=True)
app.add_typer(prices, name="prices")

Seller = Annotated[
    str | None,
    typer.Option("--provider", help="Of whom; by default openai, anthropic and google."),
]

CLASSES = ("input", "cached input", "cache write 5m", "cache write 1h", "output")


@prices.command("list")
def list_(provider: Seller = None, as_json: AsJson = False) -> None:
    """List the models of the price sheet with what is booked for them."""
    from orchestrator.prices import listed

    models = listed(datetime.now(UTC), provider)
    if as_json:
        print_json([_document(model) for model in models])
        return
    rows = [
        (model.provider, model.model, *_usd(model.card), "tiers" if _varies(model) else "")
        for model in models
    ]
    print_table(("provider", "model", *CLASSES, ""), rows)
    say("USD per million tokens, at the dearest tier; more of one: sortition prices show MODEL")


@prices.command()
def show(
    model: Annotated[str, typer.Argument(help="A model, by any name that its provider takes.")],
    provider: Seller = None,
    as_json: AsJson = False,
) -> None:
    """Show what one model charges, by class of tokens and by tier. Exit 2 if it has no price."""
    from orchestrator.prices import look_up

    found = look_up(model, datetime.now(UTC), provider)
    if as_json:
        print_json(_document(found))
        return
    typer.echo(f"{found.provider}/{found.model}   USD per million tokens   {found.source}")
    steps = found.steps if len(found.steps) > 1 else ((0, found.card),)
    heads = [f"above {start:,} in" if start else "price" for start, _ in steps]
    columns = [_usd(card) for _, card in steps]
    print_table(
        ("", *heads),
        [(name, *cells) for name, *cells in zip(CLASSES, *columns, strict=True)],
    )
    if found.card.per_call:
        typer.echo(f"and per call   ${_plain(found.card.per_call)} per million calls")
    if _varies(found):
        typer.echo("booked at the dearest length of input and hour, so a bill is never higher")


@prices.command()
def check(file: File = DEFAULT_FILE, set_: Settings = None, as_json: AsJson = False) -> None:
    """Say what each judge of a campaign charges and by which source; sends nothing. Exit 0 or 2."""
    from orchestrator.build import build
    from orchestrator.campaign import Campaign
    from orchestrator.prices import sheet

    campaign = Campaign.from_yaml(file, overrides(set_))
    # Who calls the judges makes no difference to their prices, and a loop of one's own needs no key.
    blueprint = build(campaign.file, own_loop=True, is_to_start=False)
    today = datetime.now(UTC)
    used = sheet(today)
    age = None if used.newest is None else (today.date() - used.newest).days
    warnings = [str(w) for w in campaign.file.warnings if ".price_usd_per_1m" in w.path]
    warnings += [note for price in blueprint.prices for note in price.notes]
    judges = list(zip(campaign.file.campaign.judges, blueprint.prices, strict=True))
    if as_json:
        print_json(
            {
                "sheet": {"version": used.version, "age_days": age},
                "judges": {
                    judge.name: {"pico_usd_per_token": _rates(price.card), "source": price.source}
                    for judge, price in judges
                },
                "warnings": warnings,
            }
        )
        return
    print_table(
        ("judge", "adapter", "model", *CLASSES, "per call", "source"),
        [
            (
                *(judge.name, judge.adapter, judge.model),
                *_usd(price.card),
                _plain(price.card.per_call),
                price.source,
            )
            for judge, price in judges
        ],
    )
    since = "" if age is None else f", its newest price {age} days old"
    say(f"USD per million tokens or calls; price sheet {used.version}{since}")
    for warning in warnings:
        say(f"warning: {warning}")
    say(f"next: sortition plan {file}")


def _varies(model: Listed) -> bool:
    return model.is_hourly or len(model.steps) > 1


def _document(model: Listed) -> dict[str, Json]:
    return {
        "provider": model.provider,
        "model": model.model,
        "pico_usd_per_token": _rates(model.card),
        "steps": [
            {"above_input_tok": start, "pico_usd_per_token": _rates(card)}
            for start, card in model.steps
        ],
        "is_hourly": model.is_hourly,
        "source": model.source,
    }


def _rates(card: PriceCard) -> dict[str, int]:
    return dict(zip(type(card).__slots__, card.rates, strict=True))


def _usd(card: PriceCard) -> tuple[str, ...]:
    return tuple(map(_plain, card.rates[: len(CLASSES)]))


def _plain(rate: int) -> str:
    """Write pico-USD per token as USD per million tokens, exactly."""
    whole, rest = divmod(rate, 10**6)
    return f"{whole:,}.{f'{rest:06d}'.rstrip('0'):0<2}"
