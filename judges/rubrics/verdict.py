"""Reading JSON verdicts: strictly, so that nothing is guessed, rescaled, clamped or defaulted.

A reply that is not exactly a verdict is a parse failure, and `Unreadable.detail` says why in words
that quote nothing of the reply: details reach logs, replies may not.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable

from orchestrator.core.ports import Unreadable
from orchestrator.core.query import MissingReason, Preference
from orchestrator.core.scale import Criterion, Scale, ScaleType
from orchestrator.core.wire import Finish, Json, Reply


def read_object(text: str) -> dict[str, Json] | Unreadable:
    """Read a reply that is one JSON object, bare or in a Markdown fence.

    An object that is repeated word for word counts once; two that differ are no verdict, and
    neither is an object with prose around it.
    """
    found: list[Json] = []
    at = 0
    try:
        while at < len(text):
            value, at = decode(text, at)
            found.append(value)
    except Refused as refused:
        return failure(str(refused))
    except (ValueError, RecursionError):
        return failure("text beside the verdict" if found else "not JSON")
    if set(map(type, found)) != {dict}:
        return failure("not a JSON object")
    if len(found) > 1 and len({spelt(value) for value in found}) > 1:
        return failure(DIFFERENT)
    said: dict[str, Json] = found[0]
    return said


def read_value(
    said: dict[str, Json], criterion: Criterion, *, allow_na: bool
) -> float | Unreadable | None:
    """Read the verdict on one criterion: a number on its scale, or None for "not applicable"."""
    name, scale = criterion.name, criterion.scale
    if name not in said:
        return failure(f"{name}: missing")
    value = said[name]
    if value is None:
        return None if allow_na else failure(f"{name}: null")
    if scale.type is ScaleType.BOOLEAN:
        return _read_boolean(value, criterion)
    match value:
        case bool():
            return failure(f"{name}: true or false where a number is due")
        case int() | float():
            # An integer of any length compares exactly; only then is it safe to make it a float.
            if not scale.low <= value <= scale.high:
                return failure(f"{name}: outside {scale.low:g} to {scale.high:g}")
            if not scale.admits(value):
                return failure(f"{name}: not a whole number")
            return float(value)
        case _:
            return failure(f"{name}: not a number")


def read_verdict(
    said: dict[str, Json], criterion: Criterion, *, allow_na: bool
) -> float | Preference | Unreadable | None:
    """Read the verdict by one criterion: a number on its scale, a preference, or None."""
    if criterion.scale.type is not ScaleType.PREFERENCE:
        return read_value(said, criterion, allow_na=allow_na)
    name = criterion.name
    if name not in said:
        return failure(f"{name}: missing")
    match said[name]:
        case None:
            return None if allow_na else failure(f"{name}: null")
        case str(word) if word in sides(criterion.scale):
            return Preference(word)
        case _:
            return failure(f"{name}: none of {', '.join(sides(criterion.scale))}")


def sides(scale: Scale) -> tuple[Preference, ...]:
    """Give the verdicts of a preference, as they are said."""
    both = (Preference.FIRST, Preference.SECOND)
    return (*both, Preference.TIE) if scale.ties else both


def decode(text: str, at: int) -> tuple[Json, int]:
    """Decode the JSON value that begins at a place, fenced or not; give it and the place behind it.

    Raises
    ------
    Refused
        It is in a fence that is not closed, or no plain JSON although Python reads it.
    ValueError
        It is not JSON.
    """
    opened = _OPENING.match(text, at)
    assert opened is not None  # it also matches nothing
    value, at = _DECODER.raw_decode(text, opened.end())
    closed = (_CLOSING if opened[1] else _GAP).match(text, at)
    if closed is None:
        raise Refused("a Markdown fence is not closed")
    return value, closed.end()


def spelt(value: Json) -> str:
    """Write a decoded value so that two are alike only if they say the same."""
    # As text, since Python holds 1 and true for equal.
    return json.dumps(value, sort_keys=True)


def failure(detail: str) -> Unreadable:
    """Say why a reply holds no verdict."""
    return Unreadable(reason=MissingReason.PARSE_FAILURE, detail=detail)


def unanswered(reply: Reply, *, limit: int) -> Unreadable | None:
    """Say why a reply is no answer; None where it ended by itself and says something."""
    says_something = reply.finish is not Finish.STOP or reply.text.strip()
    finish = reply.finish if says_something else Finish.EMPTY
    return None if finish is Finish.STOP else unfinished(finish, reply.flags, limit=limit)


def unfinished(finish: Finish, flags: Iterable[str], *, limit: int) -> Unreadable:
    """Say why a reply was not finished; `limit` is the output limit before any widening."""
    if finish is Finish.LENGTH:
        detail = f"cut at the output limit; max_output_tokens is {limit}"
    else:
        # Where the provider says why, in a word of its own.
        detail = ", ".join(flag for flag in flags if flag.startswith(f"{finish}:"))
    return Unreadable(reason=_UNFINISHED[finish], detail=detail)


class Refused(ValueError):
    """Text that looks like JSON and is no plain, complete JSON value."""


DIFFERENT = "several verdicts that differ"

_UNFINISHED = {
    Finish.LENGTH: MissingReason.TRUNCATED,
    Finish.REFUSED: MissingReason.REFUSED,
    Finish.BLOCKED: MissingReason.BLOCKED,
    Finish.EMPTY: MissingReason.EMPTY,
}


def _read_boolean(value: Json, criterion: Criterion) -> float | Unreadable:
    match value:
        case bool():
            return float(value)
        case str() if value in criterion.scale.labels:
            return float(criterion.scale.labels.index(value))
        case _:
            return failure(f"{criterion.name}: neither true nor false")


def _unique(pairs: list[tuple[str, Json]]) -> dict[str, Json]:
    said = dict(pairs)
    if len(said) < len(pairs):
        raise Refused("a key stands twice")
    return said


def _no_constant(name: str) -> Json:
    raise Refused(f"{name} is not JSON")


_DECODER = json.JSONDecoder(object_pairs_hook=_unique, parse_constant=_no_constant)
_OPENING = re.compile(r"\s*(```(?:json)?\s*)?", re.IGNORECASE)
_CLOSING = re.compile(r"\s*```\s*")
_GAP = re.compile(r"\s*")
