"""Forged logs: one field of one row is another, and all hashes are written anew."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from orchestrator.core.query import Kind, MissingReason, Purpose, Role
from orchestrator.core.stopping import StopReason
from orchestrator.core.wire import Json, Origin
from orchestrator.store.codec import VERSIONS, decode
from orchestrator.store.log import Chain, Line

Rows = Sequence[tuple[str, Json]]
"""Kind and body of each row."""

_WORDS = (Kind, MissingReason, Purpose, Role, StopReason, Origin)


class Forgery(NamedTuple):
    """A log with one field changed: of which kind of row, which field (`outcome.cost`), to what."""

    kind: str
    field: str
    value: Json
    lines: list[Line]


def rows_of(lines: Iterable[Line]) -> list[tuple[str, Json]]:
    """Take a log apart, to change it."""
    return [(line.kind, json.loads(line.body)) for line in lines]


def signed(rows: Rows) -> list[Line]:
    """Write rows as a log whose hashes fit.

    Raises
    ------
    ValueError
        A row is no event.
    """
    events = [decode(kind, VERSIONS.get(kind, 1), json.dumps(body)) for kind, body in rows]
    return Chain(lambda: 0.0).extend(events)


def forgeries(rows: Rows) -> Iterator[Forgery]:
    """Forge each field of each kind once in every way that still reads as an event."""
    done = set()
    for index, (kind, body) in enumerate(rows):
        for path, value in _leaves(body):
            field = ".".join(part for part in path if isinstance(part, str))
            key = (kind, field, type(value))
            if key in done:
                continue
            done.add(key)
            for other in _others(value):
                changed = (kind, _with(body, path, other))
                try:
                    lines = signed([*rows[:index], changed, *rows[index + 1 :]])
                except ValueError:
                    continue
                yield Forgery(kind, field, other, lines)


Path = tuple[str | int, ...]


def _leaves(value: Json, path: Path = ()) -> Iterator[tuple[Path, Json]]:
    match value:
        case dict():
            for key, child in value.items():
                yield from _leaves(child, (*path, key))
        case list():
            for index, child in enumerate(value):
                yield from _leaves(child, (*path, index))
        case _:
            yield path, value


def _with(body: Json, path: Path, value: Json) -> Json:
    changed = json.loads(json.dumps(body))
    at = changed
    for part in path[:-1]:
        at = at[part]
    at[path[-1]] = value
    return changed


def _others(value: Json) -> list[Json]:
    match value:
        case bool():
            return [not value]
        case int() | float():
            return [value + 1]
        case None:
            return [1]
        case _:
            words = [str(w) for kind in _WORDS if value in list(kind) for w in kind if w != value]
            return words or ([f"{value}x", ""] if value else ["x"])
