"""What pydantic refuses, in the words of the campaign file: one problem a field."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Literal, NamedTuple, get_args, get_origin

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from orchestrator.campaign_file import Campaign, Judge, Plugged, settings_model
from orchestrator.core.errors import ConfigError
from orchestrator.document import holds
from orchestrator.quantities import Loc
from orchestrator.registry import Group
from orchestrator.wording import did_you_mean, on_one_line, seen


class Refusal(NamedTuple):
    """What is wrong at a place."""

    loc: Loc
    message: str


def translated(error: ValidationError, data: Any) -> Iterator[Refusal]:
    """Say what is wrong with `data`, the plain values that were validated as a `Campaign`."""
    said: dict[Loc, list[str]] = {}
    for details in error.errors(include_url=False):
        loc = _authored(data, details)
        said.setdefault(loc, []).append(_message(details, data, loc))
    for loc, messages in said.items():
        # The branches of a union each say what they want.
        yield Refusal(loc, "; or ".join(dict.fromkeys(messages)))


def _authored(data: Any, details: ErrorDetails) -> Loc:
    """Give the place as its author knows it: without the branches of unions and our own fields."""
    loc: Loc = ()
    whole, parts = data, details["loc"]
    for part in parts:
        if holds(data, part):
            loc, data = (*loc, part), data[part]
    if details["type"] in {"missing", "stated"} and loc[-1:] != parts[-1:]:
        loc = (*loc, parts[-1])
    if details["type"] in {"union_tag_invalid", "union_tag_not_found"}:
        loc = (*loc, details["ctx"]["discriminator"].strip("'"))
    if details["type"] == "wants" and isinstance(data, dict):
        loc = (*loc, *[key for key in data if key not in _known_keys(whole, loc)][:1])
    return loc


def _message(details: ErrorDetails, data: Any, loc: Loc) -> str:
    ctx = details.get("ctx", {})
    was = f", not {seen(details['input'])}"
    match details["type"]:
        case "missing" | "union_tag_not_found":
            return "missing"
        case "extra_forbidden":
            return _unknown_key(data, loc)
        case "literal_error" | "enum":
            return f"wants {ctx['expected']}{was}".replace("'", "")
        case "union_tag_invalid":
            first, _, last = ctx["expected_tags"].replace("'", "").rpartition(", ")
            return f"wants {first} or {last}, not {seen(ctx['tag'])}"
        case "int_type" | "int_parsing" | "int_from_float":
            return f"wants a whole number{was}"
        case "float_type" | "float_parsing" | "finite_number" | "decimal_type" | "decimal_parsing":
            return f"wants a number{was}"
        case "bool_type" | "bool_parsing":
            return f"wants true or false{was}"
        case "string_type":
            return f"wants text{was}"
        case "path_type":
            return f"wants a path{was}"
        case "tuple_type" | "list_type":
            return f"wants a list{was}"
        case "model_type" | "model_attributes_type" | "dict_type" | "mapping_type":
            return f"wants a mapping{was}"
        case "greater_than":
            return f"wants more than {ctx['gt']:g}{was}"
        case "greater_than_equal":
            return f"wants {ctx['ge']:g} or more{was}"
        case "less_than":
            return f"wants less than {ctx['lt']:g}{was}"
        case "less_than_equal":
            return f"wants at most {ctx['le']:g}{was}"
        case "value_error":
            return str(ctx["error"])
        case "wants" if isinstance(details["input"], dict):
            # Its place is that of a key which no branch has, if there is one.
            if loc[-1] in details["input"]:
                return _unknown_key(data, loc)
            return f"{details['msg']}, not {{{on_one_line(', '.join(details['input']))}}}"
        case "wants":
            return f"{details['msg']}{was}"
        case "stated":
            return details["msg"]
        case _:
            return details["msg"][:1].lower() + details["msg"][1:]


def _unknown_key(data: Any, loc: Loc) -> str:
    *around, key = loc
    if key == "api_key":
        return "a key never stands in the file; wants api_key_env, the name of a variable"
    where = "" if around else " at top level"
    return f"unknown key{where}{did_you_mean(str(key), _known_keys(data, around))}"


def _known_keys(data: Any, loc: Sequence[str | int]) -> list[str]:
    """List the keys that can stand at a place, by walking the models along it."""
    models: list[type[BaseModel]] = [Campaign]
    for part in loc:
        if isinstance(part, str):
            below = [m for model in models for m in _models_of(model, data).get(part, ())]
            models = below or models
        data = data[part]
    models = [model for model in models if _fits(model, data)] or models
    return [key for model in models for key in _models_of(model, data)]


def _models_of(model: type[BaseModel], data: Any) -> dict[str, tuple[type[BaseModel], ...]]:
    """Map the keys of a model to the models of what stands there, plug-ins included."""
    keys = {f.alias or name: _models_in(f.annotation) for name, f in model.model_fields.items()}
    if issubclass(model, Plugged):
        del keys["settings"]
        for own in _own(model.group, data.get("kind")):
            keys |= _models_of(own, data)
    if issubclass(model, Judge):
        keys["mock"], keys["recorded"] = _own("judges", "mock"), _own("judges", "recorded")
        keys["settings"] = _own("judges", data.get("adapter"))
    return keys


def _own(group: Group, kind: object) -> tuple[type[BaseModel], ...]:
    try:
        return (settings_model(group, str(kind)),)
    except ConfigError:
        return ()


def _models_in(annotation: Any) -> tuple[type[BaseModel], ...]:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return (annotation,)
    return tuple(m for argument in get_args(annotation) for m in _models_in(argument))


def _fits(model: type[BaseModel], data: Any) -> bool:
    """Say whether the words that tell the branches of a union apart are those of this one."""
    return all(
        data.get(f.alias or name) in get_args(f.annotation)
        for name, f in model.model_fields.items()
        if get_origin(f.annotation) is Literal and f.is_required()
    )
