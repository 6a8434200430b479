"""The rubric `rate`: one unit a question, rated on one or several criteria."""

from __future__ import annotations

import difflib
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, lru_cache
from importlib.resources import files
from typing import Literal, NamedTuple

from jinja2 import StrictUndefined, Template, TemplateError, TemplateSyntaxError, nodes
from jinja2.meta import find_undeclared_variables
from jinja2.sandbox import ImmutableSandboxedEnvironment

from judges.rubrics.fence import fence, well_formed
from judges.rubrics.verdict import read_object, read_value
from orchestrator.core.errors import InvalidCampaign, Problem
from orchestrator.core.ports import Reading, Unreadable
from orchestrator.core.query import MissingReason, Observation, Query
from orchestrator.core.scale import Criterion, Scale, ScaleType
from orchestrator.core.seeds import Seeds, Stream
from orchestrator.core.wire import Attempt, Chat, Finish, Json, Part, Reply, Request, Text

REASON = "reason"
"""The key under which a judge gives its reason, so no criterion can have that name."""

_PATH = "task.rubric"


class _Entry(NamedTuple):
    """One key of the answer: its name, how the prompt and how the schema describe its value."""

    name: str
    form: str
    schema: dict[str, Json]


_REASON_ENTRY = _Entry(REASON, '"<one or two sentences>"', {"type": "string"})


@dataclass(frozen=True, slots=True)
class _Layout:
    """The part of a request that is the same for all units, for one order of the criteria."""

    prefix: Text
    schema: dict[str, Json]


class Rate:
    """Asks for a verdict on each criterion, as one JSON object, and reads it by name.

    The prompt is a stable prefix (rubric, criteria, scales, form of the answer), which providers
    can cache, and then the unit's fields, each inside the fence. A rubric text is a Jinja template
    in a sandbox. ``{{ candidate }}`` in it *names* a field, and is written ``[candidate]``: a
    field's text is never part of the template's output, so it is always fenced and never
    evaluated. Fields that the rubric names are shown, or all if it names none. Besides fields there
    is `criteria`, each with `name`, `description` and `range`.

    Parameters
    ----------
    text : the rubric; None takes the built-in one
    criteria : in the order of the study
    fields : one mapping a unit, all with the same names; empty where judges need no text (recorded)
    seeds : for the fence and the order of criteria
    max_output_tok : output limit of one attempt, > 0; a widened attempt gets twice as much
    criteria_order : `random` shuffles anew for each question, by `stream(LAYOUT, judge, unit,
        replicate)`, so that the order can be derived from the question alone
    allow_na : whether null is a verdict, "not applicable"
    reason : whether the judge says why, and on which side of the verdict

    Raises
    ------
    InvalidCampaign
        The rubric is no template, uses an unknown name, or does more with a field than name it; a
        unit lacks a field; criteria or fields are named ambiguously.
    """

    def __init__(
        self,
        text: str | None,
        criteria: Sequence[Criterion],
        fields: Sequence[Mapping[str, str | Chat]],
        *,
        seeds: Seeds,
        max_output_tok: int,
        criteria_order: Literal["fixed", "random"] = "fixed",
        allow_na: bool = False,
        reason: Literal["none", "after", "before"] = "none",
    ) -> None:
        self._text = text
        self._criteria = tuple(criteria)
        self._fields = fields
        self._seeds = seeds
        self._max_output_tok = max_output_tok
        self._shuffles = criteria_order == "random" and len(self._criteria) > 1
        self._allow_na = allow_na
        self._reason = reason
        names = tuple(fields[0]) if fields else ()
        problems = [*self._ambiguities(names)]
        if not problems:
            self._shown, problems = _named_fields(text or "", names)
        if not problems:
            problems = [*self._gaps()]
        if problems:
            raise InvalidCampaign(problems)
        self._fixed_order = tuple(range(len(self._criteria)))
        self._layout = lru_cache(maxsize=256)(self._lay_out)
        self._layout(self._fixed_order)

    def render(self, query: Query, attempt: Attempt) -> Request:
        """Write the request: the stable prefix, then the unit's fields inside the fence."""
        (unit,) = query.units
        key = (query.judge, unit, query.replicate)
        layout = self._layout(self.order(query) if self._shuffles else self._fixed_order)
        parts: tuple[Part, ...] = (layout.prefix,)
        if self._shown:
            given = self._fields[unit]
            material = {name: given[name] for name in self._shown}
            parts += (Text(text=fence(material, seeds=self._seeds, key=key)),)
        return Request(
            query=query,
            attempt=attempt,
            parts=parts,
            max_output_tok=self._max_output_tok * (2 if attempt.widened else 1),
            schema=layout.schema,
        )

    def read(self, query: Query, reply: Reply) -> Reading | Unreadable:
        """Read the verdict on every criterion; one that can't be read spoils the answer."""
        if reply.finish is not Finish.STOP:
            return self._unfinished(reply.finish)
        if not reply.text.strip():
            return self._unfinished(Finish.EMPTY)
        said = read_object(reply.text)
        if isinstance(said, Unreadable):
            return said
        (unit,) = query.units
        places = self.order(query)
        observations = []
        for index, criterion in enumerate(self._criteria):
            value = read_value(said, criterion, allow_na=self._allow_na)
            if isinstance(value, Unreadable):
                return value
            slot = places.index(index)
            observations.append(Observation(unit=unit, slot=slot, criterion=index, value=value))
        return Reading(observations=tuple(observations))

    def order(self, query: Query) -> tuple[int, ...]:
        """Give the order in which a question lists the criteria, as indices of the study's."""
        if not self._shuffles:
            return self._fixed_order
        rng = self._seeds.stream(Stream.LAYOUT, query.judge, *query.units, query.replicate)
        return tuple(rng.permutation(len(self._criteria)).tolist())

    def _unfinished(self, finish: Finish) -> Unreadable:
        limit = f"cut at the output limit; max_output_tokens is {self._max_output_tok}"
        detail = limit if finish is Finish.LENGTH else ""
        return Unreadable(reason=_UNFINISHED[finish], detail=detail)

    def _lay_out(self, order: tuple[int, ...]) -> _Layout:
        listed = [self._criteria[index] for index in order]
        context = {"criteria": [_shown_criterion(criterion) for criterion in listed]}
        names = {name: f"[{name}]" for name in self._shown}
        try:
            rubric = _ENVIRONMENT.from_string(self._text or "").render(context | names)
        except (TemplateError, ArithmeticError, LookupError, TypeError, ValueError) as exc:
            raise InvalidCampaign([Problem(path=_PATH, message=str(exc))]) from exc
        entries = self._entries(listed)
        form = ", ".join(f"{json.dumps(e.name, ensure_ascii=False)}: {e.form}" for e in entries)
        prefix = _frame().render(
            context,
            rubric=rubric,
            fields=self._shown,
            allow_na=self._allow_na,
            form=f"{{{form}}}",
        )
        schema: dict[str, Json] = {
            "type": "object",
            "properties": {entry.name: entry.schema for entry in entries},
            "required": [entry.name for entry in entries],
            "additionalProperties": False,
        }
        return _Layout(prefix=Text(text=well_formed(prefix)), schema=schema)

    def _entries(self, listed: Sequence[Criterion]) -> list[_Entry]:
        entries = [
            _Entry(c.name, f"<{_range(c.scale)}>", _value_schema(c, allow_na=self._allow_na))
            for c in listed
        ]
        match self._reason:
            case "none":
                return entries
            case "before":
                return [_REASON_ENTRY, *entries]
            case "after":
                return [*entries, _REASON_ENTRY]

    def _ambiguities(self, names: tuple[str, ...]) -> Iterator[Problem]:
        criteria = [criterion.name for criterion in self._criteria]
        if len(set(criteria)) < len(criteria):
            yield Problem(path="task.criteria", message="two criteria have one name")
        if self._reason != "none" and REASON in criteria:
            yield Problem(
                path="task.criteria",
                message=f'"{REASON}" is the key of the judge\'s reason; rename the criterion',
            )
        for name in names:
            if not name.isidentifier() or name in _RESERVED:
                yield Problem(
                    path=f"data.fields.{name}",
                    message="a field is named by one word of letters, digits and _, "
                    f"other than {' and '.join(_RESERVED)}",
                )

    def _gaps(self) -> Iterator[Problem]:
        for name in self._shown:
            lacking = [unit for unit, given in enumerate(self._fields) if name not in given]
            if lacking:
                message = f"missing in {len(lacking)} units, the first of them unit {lacking[0]}"
                yield Problem(path=f"data.fields.{name}", message=message)


def _named_fields(text: str, names: tuple[str, ...]) -> tuple[tuple[str, ...], list[Problem]]:
    """Find which fields a rubric shows, and what is wrong with its template."""
    try:
        tree = _ENVIRONMENT.parse(text)
    except TemplateSyntaxError as exc:
        return (), [Problem(path=_PATH, line=exc.lineno, message=str(exc.message))]
    bare = {id(node) for output in tree.find_all(nodes.Output) for node in output.nodes}
    known = {*names, "criteria", *_ENVIRONMENT.globals}
    unknown = find_undeclared_variables(tree) - known
    used: set[str] = set()
    problems = []
    for node in tree.find_all(nodes.Name):
        if node.name in unknown:
            close = difflib.get_close_matches(node.name, [*names, "criteria"], n=1)
            hint = f'; did you mean "{close[0]}"?' if close else ""
            message = f'"{node.name}" is no field of data.fields{hint}'
            problems.append(Problem(path=_PATH, line=node.lineno, message=message))
        elif node.name in names and id(node) not in bare:
            message = (
                f"a field can only be named, as in {{{{ {node.name} }}}}: its text is not here"
            )
            problems.append(Problem(path=_PATH, line=node.lineno, message=message))
        elif node.name in names:
            used.add(node.name)
    return tuple(name for name in names if name in used) or names, problems


def _shown_criterion(criterion: Criterion) -> dict[str, str]:
    return {
        "name": criterion.name,
        "description": criterion.description,
        "range": _range(criterion.scale),
    }


def _range(scale: Scale) -> str:
    match scale.type:
        case ScaleType.BOOLEAN if scale.labels:
            return f"true for {scale.labels[1]}, false for {scale.labels[0]}"
        case ScaleType.BOOLEAN:
            return "true or false"
        case ScaleType.INTEGER:
            return f"a whole number from {scale.low:g} to {scale.high:g}"
        case _:
            return f"a number from {scale.low:g} to {scale.high:g}"


def _value_schema(criterion: Criterion, *, allow_na: bool) -> dict[str, Json]:
    scale = criterion.scale
    kind = _JSON_TYPES[scale.type]
    schema: dict[str, Json] = {"type": [kind, "null"] if allow_na else kind}
    if scale.type is ScaleType.INTEGER:
        schema |= {"minimum": int(scale.low), "maximum": int(scale.high)}
    elif scale.type is ScaleType.FLOAT:
        schema |= {"minimum": scale.low, "maximum": scale.high}
    if criterion.description:
        schema["description"] = criterion.description
    return schema


@cache
def _frame() -> Template:
    """Load the built-in text, which also frames a rubric of one's own."""
    source = files("judges.rubrics") / "templates" / "rate.md.j2"
    return _ENVIRONMENT.from_string(source.read_text(encoding="utf-8"))


_RESERVED = ("criteria", "end")
_JSON_TYPES = {
    ScaleType.BOOLEAN: "boolean",
    ScaleType.INTEGER: "integer",
    ScaleType.FLOAT: "number",
}
_UNFINISHED = {
    Finish.LENGTH: MissingReason.TRUNCATED,
    Finish.REFUSED: MissingReason.REFUSED,
    Finish.BLOCKED: MissingReason.BLOCKED,
    Finish.EMPTY: MissingReason.EMPTY,
}
_ENVIRONMENT = ImmutableSandboxedEnvironment(
    undefined=StrictUndefined, autoescape=False, trim_blocks=True, lstrip_blocks=True
)
