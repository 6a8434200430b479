"""Money as integers: nano-USD for sums, pico-USD per token for prices.

One USD is 10**9 nano-USD, so a 64-bit sum reaches 9 * 10**9 USD. Prices are quoted per million
tokens; one USD per million tokens is 10**6 pico-USD per token, so every quoted price with at
most six decimals is exact. Floats never enter.
"""

from __future__ import annotations

from dataclasses import dataclass
from decimal import Decimal, InvalidOperation
from typing import TYPE_CHECKING, NewType

if TYPE_CHECKING:
    from orchestrator.core.wire import Usage

Nano = NewType("Nano", int)
"""An amount of money in nano-USD."""

NANO_PER_USD = 10**9
PICO_PER_NANO = 1000
_PICO_PER_TOKEN_AT_ONE_USD_PER_MILLION = 10**6


@dataclass(frozen=True, slots=True, kw_only=True)
class PriceCard:
    """What one judge charges, in integer pico-USD per token by class, and per call.

    The classes are disjoint, as in `Usage`. `per_call` (pico-USD) is for judges that charge by the
    call and count no tokens.
    """

    input: int = 0
    cached_input: int = 0
    cache_write_5m: int = 0
    cache_write_1h: int = 0
    output: int = 0
    per_call: int = 0

    def __post_init__(self) -> None:
        """Refuse a negative price."""
        if min(self.rates) < 0:
            raise ValueError(f"a price can't be negative: {self}")

    @property
    def rates(self) -> tuple[int, ...]:
        """All six rates, in field order."""
        return (
            self.input,
            self.cached_input,
            self.cache_write_5m,
            self.cache_write_1h,
            self.output,
            self.per_call,
        )

    @property
    def is_free(self) -> bool:
        """Whether no call at this card can cost anything."""
        return not any(self.rates)

    @property
    def dearest_input(self) -> int:
        """The highest rate an input token can be billed at, in pico-USD."""
        return max(self.input, self.cached_input, self.cache_write_5m, self.cache_write_1h)


FREE = PriceCard()


def cost(usage: Usage, card: PriceCard) -> Nano:
    """Price one call: sum in pico-USD over the disjoint classes, round up to nano-USD once."""
    pico = (
        usage.input_tok * card.input
        + usage.cached_input_tok * card.cached_input
        + usage.cache_write_5m_tok * card.cache_write_5m
        + usage.cache_write_1h_tok * card.cache_write_1h
        + usage.output_tok * card.output
        + card.per_call
    )
    return Nano(-(-pico // PICO_PER_NANO))


def ceiling_cost(input_tok: int, output_tok: int, card: PriceCard) -> Nano:
    """Bound what one call can cost, given bounds of its input and output tokens.

    Every input token is taken at the dearest input rate, since which of them the provider reads
    from or writes to its cache is not ours to know beforehand.
    """
    pico = input_tok * card.dearest_input + output_tok * card.output + card.per_call
    return Nano(-(-pico // PICO_PER_NANO))


def parse_usd(text: str | float | Decimal) -> Nano:
    """Read an amount in USD exactly; a float is read as it is written.

    Raises
    ------
    ValueError
        Not a finite number, or finer than one nano-USD.
    """
    nano = _decimal(text) * NANO_PER_USD
    if nano != nano.to_integral_value():
        raise ValueError(f"{text} USD is finer than one nano-USD")
    return Nano(int(nano))


def rate_from_usd_per_million(text: str | float | Decimal) -> int:
    """Read a price in USD per million tokens as pico-USD per token, rounded up.

    Raises
    ------
    ValueError
        Not a finite number, or negative.
    """
    usd = _decimal(text)
    if usd < 0:
        raise ValueError(f"a price can't be negative: {text}")
    pico = usd * _PICO_PER_TOKEN_AT_ONE_USD_PER_MILLION
    return int(pico.to_integral_value(rounding="ROUND_CEILING"))


def format_usd(amount: int, *, decimals: int = 6) -> str:
    """Write an amount with a dollar sign, exact to the nano and cut to at least `decimals` digits.

    Trailing zeros beyond `decimals` are dropped, other digits never are: 80_000_000 gives
    `$0.080000`, 1 gives `$0.000000001`.
    """
    sign = "-" if amount < 0 else ""
    whole, fraction = divmod(abs(amount), NANO_PER_USD)
    digits = f"{fraction:09d}"
    kept = max(decimals, len(digits.rstrip("0")))
    return f"{sign}${whole:,}.{digits[:kept]}" if kept else f"{sign}${whole:,}"


def _decimal(text: str | float | Decimal) -> Decimal:
    try:
        value = Decimal(str(text))
    except InvalidOperation as exc:
        raise ValueError(f"not a number: {text!r}") from exc
    if not value.is_finite():
        raise ValueError(f"not a finite number: {text!r}")
    return value
