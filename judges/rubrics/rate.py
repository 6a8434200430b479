"""The rubric `rate`: one unit a question, rated on one or several criteria."""

from __future__ import annotations

import difflib
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, lru_cache
from hashlib import blake2b
from importlib.resources import files
from typing import Literal, NamedTuple

from jinja2 import StrictUndefined, Template, TemplateError, TemplateSyntaxError, nodes
from jinja2.meta import find_undeclared_variables
from jinja2.sandbox import ImmutableSandboxedEnvironment

from judges.rubrics.fence import fence, forgery, is_suspect, well_formed
from judges.rubrics.labels import labels, read_label
from judges.rubrics.spoken import TextReader
from judges.rubrics.verdict import read_object, read_value
from orchestrator.core.errors import InvalidCampaign, Problem
from orchestrator.core.ports import Reading, Unreadable
from orchestrator.core.query import MissingReason, Observation, Query
from orchestrator.core.scale import Criterion, Scale, ScaleType
from orchestrator.core.seeds import Seeds, Stream
from orchestrator.core.wire import (
    Attempt,
    Chat,
    Finish,
    Json,
    Part,
    Reply,
    Request,
    Route,
    Text,
)

REASON = "reason"
"""The key under which a judge gives its reason, so no criterion can have that name."""

SUSPECTED = "suspected_injection"
"""Flag of a verdict on material that holds what only a rubric or a judge should write."""

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
    """Asks for a verdict on each criterion and reads it.

    By the routes `schema` and `tool` the judge answers with one JSON object and nothing else, by
    `text` with that object in tags; each criterion is read by its name. By `logprob` it answers a
    single criterion with the bare label, and the verdict is the mean over the labels' probabilities.

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
    route : by which the judge gives its verdict

    Raises
    ------
    InvalidCampaign
        The rubric is no template, uses an unknown name, or does more with a field than name it; a
        unit lacks a field; criteria or fields are named ambiguously; the route is `logprob` and
        the answer is not surely one token.
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
        route: Route = Route.SCHEMA,
    ) -> None:
        self._text = text
        self._criteria = tuple(criteria)
        self._fields = fields
        self._seeds = seeds
        self._max_output_tok = max_output_tok
        self._shuffles = criteria_order == "random" and len(self._criteria) > 1
        self._allow_na = allow_na
        self._reason = reason
        self._route = route
        names = tuple(fields[0]) if fields else ()
        problems = [*self._ambiguities(names), *self._unlabelled()]
        if not problems:
            self._shown, problems = _named_fields(text or "", names)
        if not problems:
            problems = [*self._gaps()]
        if problems:
            raise InvalidCampaign(problems)
        self._reader = TextReader(self._criteria) if route is Route.TEXT else None
        self._labels = labels(self._criteria[0].scale) if route is Route.LOGPROB else None
        self._fixed_order = tuple(range(len(self._criteria)))
        self._layout = lru_cache(maxsize=256)(self._lay_out)
        self._layout(self._fixed_order)
        self._forgery = forgery(criterion.name for criterion in self._criteria)
        self._suspicions = bytearray(len(fields))

    def render(self, query: Query, attempt: Attempt) -> Request:
        """Write the request: the stable prefix, then the unit's fields inside the fence."""
        (unit,) = query.units
        key = (query.judge, unit, query.replicate)
        layout = self._layout(self.order(query) if self._shuffles else self._fixed_order)
        parts: tuple[Part, ...] = (layout.prefix,)
        if self._shown:
            parts += (Text(text=fence(self._material(unit), seeds=self._seeds, key=key)),)
        return Request(
            query=query,
            attempt=attempt,
            parts=parts,
            max_output_tok=self._max_output_tok * (2 if attempt.widened else 1),
            schema=layout.schema,
        )

    def read(self, query: Query, reply: Reply) -> Reading | Unreadable:
        """Read the verdict on every criterion; one that can't be read spoils the answer.

        `flags` name what had to be understood, and `SUSPECTED` a unit that may deceive its judge.
        """
        if reply.finish is not Finish.STOP:
            return self._unfinished(reply.finish, reply.flags)
        if not reply.text.strip():
            return self._unfinished(Finish.EMPTY, reply.flags)
        (unit,) = query.units
        is_suspected = self.is_suspected(unit)
        flags: tuple[str, ...] = (SUSPECTED,) if is_suspected else ()
        if self._labels is not None:
            weighed = read_label(reply, self._labels)
            if isinstance(weighed, Unreadable):
                return weighed
            seen = Observation(unit=unit, value=weighed.value, mass=weighed.mass)
            return Reading(observations=(seen,), flags=flags)
        if self._reader is None:
            said = read_object(reply.text)
        else:
            understood = self._reader.read(reply.text, is_suspect=is_suspected)
            if isinstance(understood, Unreadable):
                return understood
            said = understood.values
            flags = understood.flags + flags
        if isinstance(said, Unreadable):
            return said
        places = self.order(query) if self._shuffles else self._fixed_order
        observations = []
        for index, criterion in enumerate(self._criteria):
            value = read_value(said, criterion, allow_na=self._allow_na)
            if isinstance(value, Unreadable):
                return value
            slot = places.index(index)
            observations.append(Observation(unit=unit, slot=slot, criterion=index, value=value))
        return Reading(observations=tuple(observations), flags=flags)

    def is_suspected(self, unit: int) -> bool:
        """Say whether a shown field of a unit holds what only a rubric or a judge should write."""
        if not self._suspicions:
            return False
        suspicion = self._suspicions[unit]
        if suspicion == _UNSEEN:
            is_forged = is_suspect(self._material(unit), self._forgery)
            suspicion = self._suspicions[unit] = _SUSPECT if is_forged else _CLEAN
        return suspicion == _SUSPECT

    def fingerprint(self, query: Query, attempt: Attempt) -> str:
        """Digest all that an answer depends on in the words, for the cache.

        Covers route, prefix with the order of criteria, fields under a fence that is the same for
        all seeds, schema, output limit and the number of the repeat; not the judge, nor which unit
        has these fields.
        """
        layout = self._layout(self.order(query))
        (unit,) = query.units
        words = (
            self._route,
            layout.prefix.text,
            fence(self._material(unit), seeds=_ONE_FENCE, key=()) if self._shown else "",
            layout.schema,
            self._max_output_tok * (2 if attempt.widened else 1),
            query.replicate,
        )
        return blake2b(json.dumps(words).encode(), digest_size=16).hexdigest()

    def order(self, query: Query) -> tuple[int, ...]:
        """Give the order in which a question lists the criteria, as indices of the study's."""
        if not self._shuffles:
            return self._fixed_order
        rng = self._seeds.stream(Stream.LAYOUT, query.judge, *query.units, query.replicate)
        return tuple(rng.permutation(len(self._criteria)).tolist())

    def _material(self, unit: int) -> dict[str, str | Chat]:
        given = self._fields[unit]
        return {name: given[name] for name in self._shown}

    def _unfinished(self, finish: Finish, flags: tuple[str, ...]) -> Unreadable:
        if finish is Finish.LENGTH:
            detail = f"cut at the output limit; max_output_tokens is {self._max_output_tok}"
        else:
            # Where the provider says why, in a word of its own.
            detail = ", ".join(flag for flag in flags if flag.startswith(f"{finish}:"))
        return Unreadable(reason=_UNFINISHED[finish], detail=detail)

    def _lay_out(self, order: tuple[int, ...]) -> _Layout:
        listed = [self._criteria[index] for index in order]
        context = {"criteria": [self._shown_criterion(criterion) for criterion in listed]}
        names = {name: f"[{name}]" for name in self._shown}
        try:
            rubric = _ENVIRONMENT.from_string(self._text or "").render(context | names)
        except (TemplateError, ArithmeticError, LookupError, TypeError, ValueError) as exc:
            raise InvalidCampaign([Problem(path=_PATH, message=str(exc))]) from exc
        schema, form = self._object(listed) if self._labels is None else _bare(self._labels)
        prefix = _frame().render(
            context,
            rubric=rubric,
            fields=self._shown,
            allow_na=self._allow_na,
            route=self._route,
            form=form,
        )
        return _Layout(prefix=Text(text=well_formed(prefix)), schema=schema)

    def _object(self, listed: Sequence[Criterion]) -> tuple[dict[str, Json], str]:
        """Describe an answer that is an object: as a schema, and in the prompt."""
        entries = self._entries(listed)
        form = ", ".join(f"{json.dumps(e.name, ensure_ascii=False)}: {e.form}" for e in entries)
        schema: dict[str, Json] = {
            "type": "object",
            "properties": {entry.name: entry.schema for entry in entries},
            "required": [entry.name for entry in entries],
            "additionalProperties": False,
        }
        return schema, f"{{{form}}}"

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

    def _unlabelled(self) -> Iterator[Problem]:
        """Say what keeps a verdict from being one token, where the route needs that."""
        if self._route is not Route.LOGPROB:
            return
        why = []
        if len(self._criteria) != 1:
            why.append(f"{len(self._criteria)} criteria")
        if self._allow_na:
            why.append("allow_na")
        if self._reason != "none":
            why.append("a reason")
        why += [
            f"{criterion.name}: labels that are not surely single tokens"
            for criterion in self._criteria
            if labels(criterion.scale) is None
        ]
        if why:
            message = (
                "logprob wants a verdict of one token, a boolean or a whole number of one digit; "
                f"against it: {', '.join(why)}"
            )
            yield Problem(path="task.output.route", message=message)

    def _shown_criterion(self, criterion: Criterion) -> dict[str, str]:
        by_digit = self._route is Route.LOGPROB
        return {
            "name": criterion.name,
            "description": criterion.description,
            "range": _range(criterion.scale, ("1", "0") if by_digit else ("true", "false")),
        }

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


def _bare(values: Mapping[str, float]) -> tuple[dict[str, Json], str]:
    """Describe an answer that is a label alone: as a schema, and in the prompt."""
    return {"type": "integer", "enum": [int(value) for value in values.values()]}, ", ".join(values)


def _range(scale: Scale, yes_no: Sequence[str] = ("true", "false")) -> str:
    yes, no = yes_no
    match scale.type:
        case ScaleType.BOOLEAN if scale.labels:
            return f"{yes} for {scale.labels[1]}, {no} for {scale.labels[0]}"
        case ScaleType.BOOLEAN:
            return f"{yes} or {no}"
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


_UNSEEN, _CLEAN, _SUSPECT = range(3)
_ONE_FENCE = Seeds(0)
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
