"""The form of an answer: how the prompt describes it, and how a JSON Schema does."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Literal, NamedTuple

from orchestrator.core.scale import Criterion, Scale, ScaleType
from orchestrator.core.wire import Json

REASON = "reason"
"""The key under which a judge gives its reason, so no criterion can have that name."""

Reason = Literal["none", "after", "before"]
"""Whether a judge says why, and on which side of the verdict."""


class Form(NamedTuple):
    """A value as the schema and as the prompt describe it."""

    schema: dict[str, Json]
    words: str


class Entry(NamedTuple):
    """One key of an object, and the form of its value."""

    name: str
    form: Form


def verdict_entries(
    criteria: Iterable[Criterion], *, allow_na: bool, reason: Reason
) -> list[Entry]:
    """List what an object says of a unit: a verdict on each criterion, perhaps with the reason."""
    entries = [Entry(c.name, _verdict(c, allow_na=allow_na)) for c in criteria]
    why = Entry(REASON, Form({"type": "string"}, '"<one or two sentences>"'))
    match reason:
        case "none":
            return entries
        case "before":
            return [why, *entries]
        case "after":
            return [*entries, why]


def object_of(entries: Sequence[Entry]) -> Form:
    """Describe an object that has these keys, all of them, and no others."""
    words = ", ".join(
        f"{json.dumps(name, ensure_ascii=False)}: {form.words}" for name, form in entries
    )
    schema: dict[str, Json] = {
        "type": "object",
        "properties": {entry.name: entry.form.schema for entry in entries},
        "required": [entry.name for entry in entries],
        "additionalProperties": False,
    }
    return Form(schema, f"{{{words}}}")


def bare(values: Mapping[str, float]) -> Form:
    """Describe a label alone."""
    schema: dict[str, Json] = {"type": "integer", "enum": [int(value) for value in values.values()]}
    return Form(schema, ", ".join(values))


def described(criterion: Criterion, yes_no: tuple[str, str] = ("true", "false")) -> dict[str, str]:
    """Describe a criterion to a template: `name`, `description` and `range`."""
    return {
        "name": criterion.name,
        "description": criterion.description,
        "range": _range(criterion.scale, *yes_no),
    }


def _range(scale: Scale, yes: str = "true", no: str = "false") -> str:
    match scale.type:
        case ScaleType.BOOLEAN if scale.labels:
            return f"{yes} for {scale.labels[1]}, {no} for {scale.labels[0]}"
        case ScaleType.BOOLEAN:
            return f"{yes} or {no}"
        case ScaleType.INTEGER:
            return f"a whole number from {scale.low:g} to {scale.high:g}"
        case _:
            return f"a number from {scale.low:g} to {scale.high:g}"


def _verdict(criterion: Criterion, *, allow_na: bool) -> Form:
    scale = criterion.scale
    kind = _JSON_TYPES[scale.type]
    schema: dict[str, Json] = {"type": [kind, "null"] if allow_na else kind}
    if scale.type is ScaleType.INTEGER:
        schema |= {"minimum": int(scale.low), "maximum": int(scale.high)}
    elif scale.type is ScaleType.FLOAT:
        schema |= {"minimum": scale.low, "maximum": scale.high}
    if criterion.description:
        schema["description"] = criterion.description
    return Form(schema, f"<{_range(scale)}>")


_JSON_TYPES = {
    ScaleType.BOOLEAN: "boolean",
    ScaleType.INTEGER: "integer",
    ScaleType.FLOAT: "number",
}
