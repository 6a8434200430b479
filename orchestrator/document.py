"""A YAML text as plain values, with the place where each was written, and overrides of them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from io import StringIO
from pathlib import Path
from typing import Any, NamedTuple

from ruamel.yaml import YAML
from ruamel.yaml.error import MarkedYAMLError, YAMLError
from ruamel.yaml.nodes import MappingNode, Node, ScalarNode, SequenceNode

from orchestrator.core.errors import Problem
from orchestrator.quantities import Loc, dotted
from orchestrator.wording import did_you_mean, on_one_line, seen


class Place(NamedTuple):
    """Where a value was written, by its key if it has one, and as what its author knows it."""

    file: str
    loc: Loc
    line: int | None = None
    column: int | None = None


@dataclass(slots=True, kw_only=True)
class Document:
    """Plain values of a YAML text, where each was written, and what was wrong with the text."""

    file: str
    data: Any = None
    places: dict[Loc, Place] = field(default_factory=dict)
    problems: list[Problem] = field(default_factory=list)

    def place(self, loc: Loc) -> Place:
        """Give the place of a value, or of the nearest one around it."""
        while loc and loc not in self.places:
            loc = loc[:-1]
        return self.places.get(loc, Place(self.file, ()))

    def problem(self, loc: Loc, message: str) -> Problem:
        """Make a problem at a place; in an entry of a list that has a name, with that name."""
        place = self.place(loc)
        shown = place.loc if loc in self.places else loc
        names = [entry["name"] for entry in self._along(shown) if _is_named(entry)]
        return Problem(
            file=place.file,
            line=place.line,
            column=place.column,
            path=dotted(shown),
            message=f"{message} (in {seen(names[-1])})" if names else message,
        )

    def _along(self, loc: Loc) -> Iterator[Any]:
        """Give the values that a path passes, without the top and its end."""
        data = self.data
        for part in loc[:-1]:
            if not holds(data, part):
                return
            data = data[part]
            yield data


def holds(data: Any, part: object) -> bool:
    """Say whether a mapping or list has something under a key or index."""
    match data:
        case dict():
            return part in data
        case list():
            return isinstance(part, int) and part < len(data)
        case _:
            return False


def _is_named(entry: object) -> bool:
    return isinstance(entry, dict) and isinstance(entry.get("name"), str)


def parse(text: str, file: str) -> Document:
    """Read one YAML 1.2 document, with all its duplicate keys and other oddities as problems."""
    document = Document(file=file)
    try:
        node = YAML(typ="safe", pure=True).compose(text)
    except MarkedYAMLError as exc:
        mark = exc.problem_mark or exc.context_mark
        document.problems.append(
            Problem(
                file=file,
                line=mark.line + 1 if mark else None,
                column=mark.column + 1 if mark else None,
                message=" ".join(filter(None, ("not readable as YAML:", exc.context, exc.problem))),
            )
        )
    except YAMLError as exc:
        reason = str(exc).splitlines()[0]
        document.problems.append(Problem(file=file, message=f"not readable as YAML: {reason}"))
    else:
        if node is not None:
            _Builder(document).build(node)
    return document


class _Builder:
    """Turns YAML nodes into plain values. Keys are always text, as they are written."""

    def __init__(self, document: Document) -> None:
        self._document = document
        self._built: set[int] = set()

    def build(self, node: Node) -> None:
        """Fill the document from its root node."""
        self._note((), node)
        self._document.data = self._value(node, ())

    def _value(self, node: Node, loc: Loc) -> Any:
        if id(node) in self._built:
            # An alias is the node of its anchor, so the place is that of the key.
            message = "an alias is not read; judge_defaults is what judges share"
            self._document.problems.append(self._document.problem(loc, message))
            return None
        self._built.add(id(node))
        match node:
            case ScalarNode():
                return self._scalar(node, loc)
            case SequenceNode():
                for index, child in enumerate(node.value):
                    self._note((*loc, index), child)
                return [self._value(child, (*loc, i)) for i, child in enumerate(node.value)]
            case MappingNode():
                return self._mapping(node, loc)
            case _:
                raise TypeError(f"no YAML node: {node!r}")

    def _mapping(self, node: MappingNode, loc: Loc) -> dict[str, Any]:
        values: dict[str, Any] = {}
        for key_node, child in node.value:
            if not isinstance(key_node, ScalarNode):
                self._complain(key_node, loc, "a key must be plain text")
                continue
            key = _well_formed(key_node.value)
            here = (*loc, key)
            if key in values:
                first = self._document.places[here].line
                self._complain(key_node, here, f"given twice; first on line {first}")
                continue
            self._note(here, key_node)
            values[key] = self._value(child, here)
        return values

    def _scalar(self, node: ScalarNode, loc: Loc) -> Any:
        text = _well_formed(node.value)
        match str(node.tag).removeprefix("tag:yaml.org,2002:"):
            case "null":
                return None
            case "bool":
                return text.lower() == "true"
            case "int":
                return _whole(text)
            case "float":
                return float(text.lower().replace(".inf", "inf").replace(".nan", "nan"))
            case "str" | "timestamp" | "value":
                return text
            case tag:
                self._complain(node, loc, f"the tag {on_one_line(tag)} is not read")
                return text

    def _note(self, loc: Loc, node: Node) -> None:
        mark = node.start_mark
        self._document.places[loc] = Place(self._document.file, loc, mark.line + 1, mark.column + 1)

    def _complain(self, node: Node, loc: Loc, message: str) -> None:
        self._document.problems.append(
            Problem(
                file=self._document.file,
                line=node.start_mark.line + 1,
                column=node.start_mark.column + 1,
                path=dotted(loc),
                message=message,
            )
        )


def _well_formed(text: str) -> str:
    """Join the halves of JSON's escaped pairs; a lone one becomes U+FFFD."""
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


def _whole(text: str) -> int:
    """Read a whole number of YAML 1.2: decimal, 0x or 0o; 010 is ten."""
    for prefix, base in (("0x", 16), ("0o", 8)):
        if text.startswith(prefix):
            return int(text[2:], base)
    return int(text)


# --- overrides ---------------------------------------------------------------------------------

FLAG = "--set"
"""The file that a problem with an override names."""


def override(document: Document, path: str, value: object, *, source: str = FLAG) -> None:
    """Set one value by its dotted path; list entries go by their name or index.

    A text is read as a YAML value. What can't be set is a problem of the document, in `source`.
    """
    try:
        loc = _set(document, path, _read(value, source))
    except ValueError as exc:
        document.problems.append(Problem(file=source, path=path, message=str(exc)))
        return
    for at in [at for at in document.places if at[: len(loc)] == loc]:
        del document.places[at]
    for depth in range(1, len(loc) + 1):
        document.places.setdefault(loc[:depth], Place(source, loc[:depth]))


def _read(value: object, source: str) -> object:
    match value:
        case None | bool() | int() | float() | list() | dict():
            return value
        case Path():
            return str(value)
        case _:
            parsed = parse(str(value), source)
            if parsed.problems:
                # The value is not shown: it may hold a password.
                raise ValueError("not readable as a value")
            return parsed.data


def _set(document: Document, path: str, value: object) -> Loc:
    """Walk to the value's place, making mappings that are not there yet."""
    place: Any = document.data
    loc: Loc = ()
    rest = path.replace("[", ".").replace("]", "").removeprefix(".")
    while True:
        choices = _choices(place)
        if choices is None:
            raise ValueError(f"can't be set, since {dotted(loc)} is {seen(place)}")
        head, rest = _head(choices, rest)
        if isinstance(place, list) and head not in choices:
            names = [choice for choice in choices if not choice.isdecimal()]
            raise ValueError(f"no entry is named {seen(head)}{did_you_mean(head, names)}")
        key = choices.get(head, head)
        loc = (*loc, key)
        if not rest:
            place[key] = value
            return loc
        if isinstance(place, dict) and place.get(head) is None:
            place[head] = {}
        place = place[key]


def _choices(place: object) -> dict[str, str | int] | None:
    """Name what can follow in a path, None where nothing can."""
    choices: dict[str, str | int] = {}
    match place:
        case dict():
            choices |= {key: key for key in place}
        case list():
            for index, entry in enumerate(place):
                choices[str(index)] = index
                if _is_named(entry):
                    choices[entry["name"]] = index
        case _:
            return None
    return choices


def _head(choices: Iterable[str], rest: str) -> tuple[str, str]:
    """Split the first step off a path; a name that has dots itself is recognised."""
    for choice in sorted(map(str, choices), key=len, reverse=True):
        if rest == choice or rest.startswith(f"{choice}."):
            return choice, rest[len(choice) + 1 :]
    head, _, rest = rest.partition(".")
    return head, rest


def dump(data: dict[str, Any]) -> str:
    """Write plain values as YAML that `parse` reads back."""
    yaml = YAML(typ="safe", pure=True)
    yaml.default_flow_style = False
    yaml.allow_unicode = True
    stream = StringIO()
    yaml.dump(data, stream)
    return stream.getvalue()
