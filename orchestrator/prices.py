"""What judges charge: the price sheet, prices of one's own, and judges that are free.

A card is resolved once, at the start of a run, and kept in its log, so a later sheet changes
nothing. The sheet is that of `genai-prices`, which is imported only when a judge needs it.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import date, datetime
from decimal import Decimal
from importlib.metadata import version
from typing import TYPE_CHECKING, Literal, assert_never

from orchestrator.core.errors import UnpricedModel
from orchestrator.core.money import (
    FREE,
    PICO_PER_NANO,
    Nano,
    PriceCard,
    rate_from_usd_per_million,
)
from orchestrator.wording import did_you_mean

if TYPE_CHECKING:
    from genai_prices.types import ModelInfo, ModelPrice, Provider, TieredPrices

_ASSUMED_INPUT = rate_from_usd_per_million("1.0")
ASSUMED = PriceCard(
    input=_ASSUMED_INPUT,
    cached_input=_ASSUMED_INPUT,
    cache_write_5m=_ASSUMED_INPUT,
    cache_write_1h=_ASSUMED_INPUT,
    output=rate_from_usd_per_million("4.0"),
)
"""What an unpriced judge is taken to charge in a rehearsal with mock judges."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Price:
    """A judge's price card, where it comes from, and what the user should know of it."""

    card: PriceCard
    source: str
    notes: tuple[str, ...] = ()
    by_length: bool = False
    """Whether a price of the sheet was taken at a longer input than it need be."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Sheet:
    """Which price sheet is in force.

    The package does not date itself. `newest` is the day of the newest price that it holds and that
    is in force, so the sheet is at least as new as that; None if no dated price is in force yet.
    """

    version: str
    newest: date | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Listed:
    """A model on the price sheet.

    `card` is what calls are booked at: the dearest hour and length of input. `steps` are the cards
    of inputs longer than so many tokens, from 0 up; `is_hourly`: the price depends on the hour.
    """

    provider: str
    model: str
    card: PriceCard
    steps: tuple[tuple[int, PriceCard], ...]
    is_hourly: bool
    source: str


def resolve(
    price: PriceCard | Literal["sheet", "free"],
    *,
    judge: str,
    adapter: str,
    model: str,
    at: datetime,
    base_url: str | None = None,
    max_input_tok: int | None = None,
    mock: bool = False,
) -> Price:
    """Find what a judge charges per token.

    On the sheet, a price that depends on the length of the input is taken at its dearest tier: of
    all tiers or, given `max_input_tok`, of those that an input of so many tokens reaches. One that
    depends on the hour is taken at its dearest hour. So a bill can be lower than what is booked,
    never higher.

    Parameters
    ----------
    price : prices of one's own, the sheet's, or none
    judge : its name, for messages
    adapter, model, base_url : who serves it; other adapters than the providers' own are looked up
        by their address
    at : the moment whose prices hold
    max_input_tok : no call of this run has a longer input
    mock : whether a judge without a price is taken to have one (`ASSUMED`)

    Raises
    ------
    UnpricedModel
        The judge has no price.
    """
    try:
        match price:
            case PriceCard():
                return Price(card=price, source="campaign file")
            case "free":
                return Price(card=FREE, source="free")
            case "sheet":
                return _from_sheet(judge, adapter, model, base_url, at, max_input_tok)
            case _:
                assert_never(price)
    except _NoPriceError as exc:
        if mock:
            return Price(card=ASSUMED, source="assumed for mock")
        raise UnpricedModel(
            f'judge "{judge}": {exc}; give price_usd_per_1m: {{input: ..., output: ...}} in USD per '
            "million tokens, or free"
        ) from exc


def per_call(amount: Nano) -> Price:
    """Make the price of a judge that charges by the call and counts no tokens."""
    return Price(card=PriceCard(per_call=amount * PICO_PER_NANO), source="campaign file")


def sheet(at: datetime) -> Sheet:
    """Say which price sheet is in force at a moment."""
    from genai_prices.data_snapshot import get_snapshot  # noqa: PLC0415 (0.2 s)
    from genai_prices.types import StartDateConstraint  # noqa: PLC0415

    starts = [
        entry.constraint.start_date
        for provider in get_snapshot().providers
        for model in provider.models
        if isinstance(model.prices, list)
        for entry in model.prices
        if isinstance(entry.constraint, StartDateConstraint) and entry.constraint.active(at)
    ]
    return Sheet(version=_version(), newest=max(starts, default=None))


def listed(at: datetime, provider: str | None = None) -> tuple[Listed, ...]:
    """List the models that are priced by tokens of text, by default those of our own adapters.

    Raises
    ------
    UnpricedModel
        The sheet has no such provider.
    """
    found = []
    for seller in _sellers(provider):
        for model in sorted(seller.models, key=lambda model: model.id):
            with suppress(_NoPriceError):
                found.append(_listed(seller.id, model, at))
    return tuple(found)


def look_up(model: str, at: datetime, provider: str | None = None) -> Listed:
    """Find one model on the sheet, by any name that its provider takes.

    Raises
    ------
    UnpricedModel
        The sheet has no such model or provider, or no price by tokens of text.
    """
    sellers = _sellers(provider)
    for seller in sellers:
        if (found := seller.find_model(model.lower(), all_providers=sellers)) is not None:
            try:
                return _listed(seller.id, found, at)
            except _NoPriceError as exc:
                raise UnpricedModel(f"{seller.id}/{found.id}: {exc}") from exc
    names = [known.id for seller in sellers for known in seller.models]
    close = difflib.get_close_matches(model, names, n=3)
    hint = f"; did you mean {' or '.join(close)}?" if close else ""
    sold_by = ", ".join(seller.id for seller in sellers)
    raise UnpricedModel(f'the price sheet has no model "{model}" of {sold_by}{hint}')


def _sellers(provider: str | None) -> list[Provider]:
    from genai_prices.data_snapshot import get_snapshot  # noqa: PLC0415 (0.2 s)

    everyone = {seller.id: seller for seller in get_snapshot().providers}
    wanted = _PROVIDERS if provider is None else (provider,)
    if unknown := [name for name in wanted if name not in everyone]:
        raise UnpricedModel(
            f'the price sheet has no provider "{unknown[0]}"{did_you_mean(unknown[0], everyone)}'
        )
    return [everyone[name] for name in wanted]


def _listed(provider: str, model: ModelInfo, at: datetime) -> Listed:
    tables = _in_force(model, at)
    starts = sorted({0, *(start for table in tables for start in _starts(table))})
    return Listed(
        provider=provider,
        model=model.id,
        card=_dearest(tables, None),
        steps=tuple((start, _dearest(tables, start + 1)) for start in starts),
        is_hourly=len(tables) > 1,
        source=f"{_version()}: {provider}/{model.id}",
    )


def _starts(table: ModelPrice) -> Iterator[int]:
    """Give the lengths of input above which another tier holds."""
    for price in vars(table).values():
        yield from (tier.start for tier in getattr(price, "tiers", ()))


class _NoPriceError(Exception):
    """There is no price, and why."""


def _from_sheet(
    judge: str,
    adapter: str,
    model: str,
    base_url: str | None,
    at: datetime,
    max_input_tok: int | None,
) -> Price:
    from genai_prices.data_snapshot import get_snapshot  # noqa: PLC0415 (0.2 s)

    snapshot = get_snapshot()
    provider_id = adapter if adapter in _PROVIDERS else None
    if provider_id is None and base_url is None:
        raise _NoPriceError(f'the price sheet has no adapter "{adapter}"')
    try:
        provider = snapshot.find_provider(None, provider_id, base_url)
    except LookupError as exc:
        raise _NoPriceError(f"the price sheet has no provider at {base_url}") from exc
    try:
        provider, found = snapshot.find_provider_model(model, provider, None, None)
    except LookupError as exc:
        close = difflib.get_close_matches(model, [known.id for known in provider.models], n=1)
        hint = f' (did you mean "{close[0]}"?)' if close else ""
        message = f'the price sheet has no model "{model}" of {provider.name}{hint}'
        raise _NoPriceError(message) from exc
    tables = _in_force(found, at)
    card = _dearest(tables, max_input_tok)
    notes = []
    if len(tables) > 1:
        notes.append(f'judge "{judge}": priced at the dearest hour')
    by_length = card != _dearest(tables, 0)
    if by_length:
        notes.append(f'judge "{judge}": priced at the dearest length of input')
    source = f"{_version()}: {provider.id}/{found.id}"
    return Price(card=card, source=source, notes=tuple(notes), by_length=by_length)


def _in_force(model: ModelInfo, at: datetime) -> list[ModelPrice]:
    """Give the price tables that hold on a day, at one hour or another.

    Of the entries in force the last one counts, so those by the hour shade all before them.
    """
    from genai_prices.types import ModelPrice, TimeOfDateConstraint  # noqa: PLC0415

    if isinstance(model.prices, ModelPrice):
        return [model.prices]
    hourly = []
    for entry in reversed(model.prices):
        if isinstance(entry.constraint, TimeOfDateConstraint):
            hourly.append(entry.prices)
        elif entry.constraint is None or entry.constraint.active(at):
            return [entry.prices, *hourly]
    return [model.prices[0].prices, *hourly]


def _dearest(tables: Sequence[ModelPrice], max_input_tok: int | None) -> PriceCard:
    """Take the highest rate of each class over several price tables."""
    rates = zip(*(_card(table, max_input_tok).rates for table in tables), strict=True)
    return PriceCard(**dict(zip(PriceCard.__slots__, map(max, rates), strict=True)))


def _card(table: ModelPrice, max_input_tok: int | None) -> PriceCard:
    """Read a price table.

    Reading or writing a cache costs plain input where it has no price of its own, and hidden
    reasoning is output, at the dearer of the two prices where it has one.
    """

    def usd(price: Decimal | TieredPrices | None, otherwise: Decimal) -> Decimal:
        if price is None:
            return otherwise
        if isinstance(price, Decimal):
            return price
        reached = [t.price for t in price.tiers if max_input_tok is None or max_input_tok > t.start]
        return max([price.base, *reached])

    if table.input_mtok is None or table.output_mtok is None:
        raise _NoPriceError("the price sheet prices this model by other units than tokens of text")
    plain, said = usd(table.input_mtok, _NOTHING), usd(table.output_mtok, _NOTHING)
    written = usd(table.cache_write_mtok, plain)
    return PriceCard(
        input=rate_from_usd_per_million(plain),
        cached_input=rate_from_usd_per_million(usd(table.cache_read_mtok, plain)),
        cache_write_5m=rate_from_usd_per_million(written),
        cache_write_1h=rate_from_usd_per_million(usd(table.cache_write_1h_mtok, written)),
        output=rate_from_usd_per_million(max(said, usd(table.output_reasoning_mtok, said))),
        # USD per thousand requests is 10**9 pico-USD per request, and a rate counts 10**6.
        per_call=rate_from_usd_per_million(1000 * usd(table.requests_kcount, _NOTHING)),
    )


def _version() -> str:
    return f"genai-prices {version('genai-prices')}"


_NOTHING = Decimal(0)
_PROVIDERS = ("openai", "anthropic", "google")
