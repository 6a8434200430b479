"""What a campaign file states: money, prices, durations, counts, shares, names.

Each is an annotated type for pydantic models, read from a number or from text with a suffix, and
kept in the unit that its name says. `Model` is the base of all models of the file.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable
from decimal import Decimal
from typing import Annotated, Any

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    Strict,
    ValidationInfo,
    WithJsonSchema,
    model_validator,
)
from pydantic_core import InitErrorDetails, PydanticCustomError, ValidationError

from orchestrator.core.money import Nano, parse_usd, rate_from_usd_per_million
from orchestrator.wording import did_you_mean, on_one_line, seen

Loc = tuple[str | int, ...]
"""Where a value stands: keys and list indices from the top."""


def dotted(loc: Loc) -> str:
    """Write a place as `judges[1].limits.rpm`."""
    text = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in loc)
    return on_one_line(text.removeprefix("."))


def undotted(path: str) -> Loc:
    """Read a place that `dotted` wrote; keys with dots of their own are not recognised."""
    steps = path.replace("]", "").replace("[", ".").split(".")
    return tuple(int(step) if step.isdecimal() else step for step in steps)


LARGEST = 2**63 - 1
"""Sums are kept in 64 bits, here and in the log."""


class Model(BaseModel):
    """Base of all models of the campaign file: frozen, strict, no unknown keys."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True, allow_inf_nan=False)

    def contradictions(self) -> Iterable[tuple[Loc, str]]:
        """Name the fields that don't go together, each with what is wrong."""
        return ()

    @model_validator(mode="after")
    def _refuse_contradictions(self) -> Model:
        found = list(self.contradictions())
        if found:
            raise ValidationError.from_exception_data(
                type(self).__name__,
                [
                    InitErrorDetails(type=stated(message), loc=loc, input=None)
                    for loc, message in found
                ],
            )
        return self


def stated(message: str) -> PydanticCustomError:
    """Make a pydantic error that says exactly this."""
    return PydanticCustomError("stated", "{text}", {"text": message})


# --- numbers -----------------------------------------------------------------------------------

_NUMBER = re.compile(r"([+-]?\d+(?:\.\d+)?)([km]?)", re.IGNORECASE | re.ASCII)
_TIMES = {"": 1, "k": 10**3, "m": 10**6}
_DURATION = re.compile(r"(\d+(?:\.\d+)?)\s*([smhd])", re.IGNORECASE | re.ASCII)
_SECONDS = {"s": 1, "m": 60, "h": 3600, "d": 86400}


def _decimal(value: object) -> Decimal | None:
    """Read a number, or text such as 200k or 1.5m, exactly."""
    match value:
        case bool():
            return None
        case int():
            return Decimal(value)
        case float() if math.isfinite(value):
            return Decimal(str(value))
        case Decimal() if value.is_finite():
            return value
        case str() if found := _NUMBER.fullmatch(value.strip()):
            return Decimal(found[1]) * _TIMES[found[2].lower()]
        case _:
            return None


def read_usd(value: object) -> Nano:
    """Read an amount in USD as nano-USD, exactly.

    Raises
    ------
    ValueError
        Not an amount, finer than one nano-USD, or beyond what 64 bits hold.
    """
    amount = _decimal(value)
    if amount is None:
        raise ValueError(f"wants an amount in USD such as 20 or 2.50, not {seen(value)}")
    nano = parse_usd(amount)
    if abs(nano) > LARGEST:
        raise ValueError(f"wants at most 9 billion USD, not {seen(value)}")
    return nano


def read_count(value: object) -> int:
    """Read a whole number, which may be written as 200k or 1.5m.

    Raises
    ------
    ValueError
        Not a whole number, or beyond 64 bits.
    """
    count = _decimal(value)
    if count is None or count != count.to_integral_value() or abs(count) > LARGEST:
        raise ValueError(f"wants a whole number such as 500 or 200k, not {seen(value)}")
    return int(count)


def read_duration(value: object) -> float:
    """Read seconds: a number, or text such as 30s, 15m, 6h, 30d.

    Raises
    ------
    ValueError
        Not a duration, or negative.
    """
    match value:
        case bool():
            pass
        case int() | float() if 0 <= value < math.inf:
            return float(value)
        case str() if found := _DURATION.fullmatch(value.strip()):
            return float(Decimal(found[1]) * _SECONDS[found[2].lower()])
        case _:
            pass
    raise ValueError(f"wants a duration such as 30s, 15m, 6h or 30d, not {seen(value)}")


def _read_rate(value: object) -> int:
    rate = _decimal(value)
    if rate is None or rate < 0:
        raise ValueError(f"wants a price in USD per million tokens, not {seen(value)}")
    return rate_from_usd_per_million(rate)


def _above_zero(read: Callable[[object], Any], unit: str = "") -> Callable[[object], Any]:
    def check(value: object) -> Any:
        number = read(value)
        if number <= 0:
            raise ValueError(f"wants more than 0{unit}, not {seen(value)}")
        return number

    return check


def _at_least_zero(value: object) -> Nano:
    amount = read_usd(value)
    if amount < 0:
        raise ValueError(f"wants 0 USD or more, not {seen(value)}")
    return amount


def _schema(pattern: str, kind: str = "number", **bounds: int) -> WithJsonSchema:
    return WithJsonSchema(
        {"anyOf": [{"type": kind, **bounds}, {"type": "string", "pattern": pattern}]}
    )


_SUFFIXED = r"^\d+(\.\d+)?[kKmM]?$"
_TIMED = r"^\d+(\.\d+)?\s*[sSmMhHdD]$"

read_positive = _above_zero(read_count)
"""Read a whole number above 0, which may be written as 200k or 1.5m."""

Usd = Annotated[Nano, BeforeValidator(_at_least_zero), _schema(_SUFFIXED, minimum=0)]
"""An amount in USD, kept in nano-USD, 0 or more."""
PositiveUsd = Annotated[
    Nano,
    BeforeValidator(_above_zero(read_usd, " USD")),
    _schema(_SUFFIXED, exclusiveMinimum=0),
]
"""An amount in USD, kept in nano-USD, above 0."""
Rate = Annotated[int, BeforeValidator(_read_rate), _schema(_SUFFIXED, minimum=0)]
"""A price in USD per million tokens, kept in pico-USD per token."""
Count = Annotated[
    int, BeforeValidator(read_positive), _schema(_SUFFIXED, "integer", exclusiveMinimum=0)
]
"""A whole number above 0."""
Duration = Annotated[float, BeforeValidator(read_duration), _schema(_TIMED, minimum=0)]
"""A time in seconds, 0 or more."""
PositiveDuration = Annotated[
    float, BeforeValidator(_above_zero(read_duration)), _schema(_TIMED, exclusiveMinimum=0)
]
"""A time in seconds, above 0."""
Share = Annotated[float, Field(ge=0, le=1)]
Level = Annotated[float, Field(gt=0, lt=1)]
"""A confidence level, such as 0.95."""

Lax = Strict(strict=False)
"""For tuples and paths: YAML has lists and text, which strict validation would refuse."""


def _some(value: tuple[Any, ...]) -> tuple[Any, ...]:
    # Not `min_length`, which counts only the entries that are valid.
    if not value:
        raise ValueError("wants at least one")
    return value


Some = AfterValidator(_some)
"""For tuples that can't be empty."""

# --- names -------------------------------------------------------------------------------------


def _plain(value: str) -> str:
    if not value.strip():
        raise ValueError("wants a name, not blank text")
    if value != value.strip() or not value.isprintable():
        raise ValueError(f"wants a name on one line without blanks around it, not {seen(value)}")
    return value


Name = Annotated[str, AfterValidator(_plain)]
"""A name on one line, in any script."""


def named(noun: str, among: str) -> AfterValidator:
    """Check a name against those that the file defines.

    The validation context maps `among` (`judges`, `arms`, `criteria`, `estimates`) to the names;
    where it is absent, as for arms that a data column holds, any name passes.
    """

    def check(value: str, info: ValidationInfo) -> str:
        known = (info.context or {}).get(among)
        if known is not None and value not in known:
            raise ValueError(f"no {noun} is named {seen(value)}{did_you_mean(value, known)}")
        return value

    return AfterValidator(check)


JudgeName = Annotated[str, named("judge", "judges")]
ArmName = Annotated[str, named("arm", "arms")]
CriterionName = Annotated[str, named("criterion", "criteria")]
EstimateName = Annotated[str, named("estimate", "estimates")]
