"""The form of an answer: how the prompt describes it, and how a JSON Schema does."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from typing import Literal, NamedTuple

from judges.rubrics.labels import labels
from judges.rubrics.verdict import sides
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


def bare(values: Iterable[str]) -> Form:
    """Describe a label alone."""
    words = [*values]
    schema: dict[str, Json] = {"type": "integer", "enum": [*map(int, words)]}
    return Form(schema, ", ".join(words))


def described(criterion: Criterion, *, is_label: bool = False) -> dict[str, str]:
    """Describe a criterion to a template: `name`, `description` and `range`.

    `is_label`: the verdict is a label of one token.
    """
    return {
        "name": criterion.name,
        "description": criterion.description,
        "range": _range(criterion.scale, is_label=is_label),
    }


def _range(scale: Scale, *, is_label: bool = False) -> str:
    yes, no = ("1", "0") if is_label else ("true", "false")
    match scale.type:
        case ScaleType.PREFERENCE:
            *several, last = labels(scale) or () if is_label else sides(scale)
            return f"{', '.join(several)} or {last}"
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
    if scale.type is ScaleType.PREFERENCE:
        return _preference(criterion, allow_na=allow_na)
    kind = _JSON_TYPES[scale.type]
    schema: dict[str, Json] = {"type": [kind, "null"] if allow_na else kind}
    if scale.type is ScaleType.INTEGER:
        schema |= {"minimum": int(scale.low), "maximum": int(scale.high)}
    elif scale.type is ScaleType.FLOAT:
        schema |= {"minimum": scale.low, "maximum": scale.high}
    if criterion.description:
        schema["description"] = criterion.description
    return Form(schema, f"<{_range(scale)}>")


def _preference(criterion: Criterion, *, allow_na: bool) -> Form:
    schema: dict[str, Json] = {"type": "string", "enum": [*map(str, sides(criterion.scale))]}
    if allow_na:
        schema = {"anyOf": [schema, {"type": "null"}]}
    if criterion.description:
        schema["description"] = criterion.description
    words = f'"<{_range(criterion.scale)}>"'
    return Form(schema, words)


_JSON_TYPES = {
    ScaleType.BOOLEAN: "boolean",
    ScaleType.INTEGER: "integer",
    ScaleType.FLOAT: "number",
}
