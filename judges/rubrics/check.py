"""The rubric `check`: one answer a question, right or wrong against a key.

What a key or a recorded verdict decides needs no call; a judge is asked about what is left.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar, Literal, assert_never
from unicodedata import normalize

from judges.rubrics.form import Reason
from judges.rubrics.material import count, gaps
from judges.rubrics.rate import Rate
from judges.rubrics.spoken import CLOSING, OPENING
from judges.rubrics.template import no_field
from orchestrator.core.errors import InvalidCampaign, Problem
from orchestrator.core.ports import Reading, Unreadable
from orchestrator.core.query import Query
from orchestrator.core.scale import Criterion, Scale, ScaleType
from orchestrator.core.seeds import Seeds
from orchestrator.core.wire import Chat, Finish, Json, Origin, Reply, Route

Normalisation = Literal["case", "space"]
"""What does not count in a comparison: upper and lower case, or how much white space there is."""


@dataclass(frozen=True, slots=True)
class Match:
    """Compares the answer with a field: equal is right and, if nothing follows, unequal is wrong."""

    field: str
    normalise: tuple[Normalisation, ...] = ()


@dataclass(frozen=True, slots=True)
class Column:
    """Reads a recorded verdict, where the field holds one."""

    field: str


Step = Match | Column


class Check(Rate):
    """Decides by a key or a recorded verdict where it can, else asks for a verdict and reads it.

    The steps are taken in order, and the first that decides counts. A match decides that the answer
    is right where it equals the key and, if nothing follows, that it is wrong where it does not; a
    unit without a key is left to what follows. A column decides where it holds a verdict. Right and
    wrong are the ends of the criterion's scale.

    Prompt, template and routes are those of `Rate`. A judge is shown keys, and never a field that
    holds recorded verdicts.

    Parameters
    ----------
    fields : as in `Rate`, and none of those that steps read is a conversation
    steps : what decides without a call
    has_judge : whether a judge is asked about what the steps leave open
    candidate : the field that holds the answer
    called : how a unit is named in problems
    text, criteria, seeds, max_output_tok, allow_na, reason, route : as in `Rate`; with a step there
        is one criterion

    Raises
    ------
    InvalidCampaign
        As in `Rate`; a step names no field that it could read, or a column holds what is no verdict.
    """

    kind: ClassVar[str] = "check"

    def __init__(
        self,
        text: str | None,
        criteria: Sequence[Criterion],
        fields: Sequence[Mapping[str, str | Chat]],
        *,
        seeds: Seeds,
        max_output_tok: int,
        steps: Sequence[Step],
        has_judge: bool,
        candidate: str = "candidate",
        called: Callable[[int], str] = "unit {}".format,
        allow_na: bool = False,
        reason: Reason = "none",
        route: Route = Route.SCHEMA,
    ) -> None:
        keys = tuple(step.field for step in steps if isinstance(step, Match))
        columns = tuple(step.field for step in steps if isinstance(step, Column))
        problems = [*_unfit(criteria, fields, keys, columns, candidate)]
        self._recorded: dict[str, list[float | None]] = {}
        if not problems:
            for name in columns:
                scale = criteria[0].scale
                self._recorded[name], unreadable = _recorded(fields, name, scale, called)
                problems += unreadable
        if problems:
            raise InvalidCampaign(problems)
        super().__init__(
            text,
            criteria,
            fields,
            seeds=seeds,
            max_output_tok=max_output_tok,
            allow_na=allow_na,
            reason=reason,
            route=route,
            hidden=columns,
            context={
                "candidate": candidate,
                "keys": keys,
                "is_graded": any(c.scale.type is not ScaleType.BOOLEAN for c in criteria),
            },
        )
        self._criterion = criteria[0]
        self._fields = fields
        self._steps = tuple(steps)
        self._has_judge = has_judge
        self._candidate = candidate
        self._route = route

    def known(self, query: Query) -> Reply | None:
        """Give the verdict that no call is needed for, as `read` reads it; None where a judge is asked.

        Where nothing decides and there is no judge, it is an empty reply.
        """
        (unit,) = query.units
        for at, step in enumerate(self._steps, start=1):
            is_last = at == len(self._steps) and not self._has_judge
            value = self._verdict(unit, step, is_last=is_last)
            if value is not None:
                return self._reply(value)
        if self._has_judge:
            return None
        return Reply(text="", finish=Finish.EMPTY, usage=None, origin=Origin.KEY)

    def read(self, query: Query, reply: Reply) -> Reading | Unreadable:
        """Read the verdict, as `Rate` does; what no judge gave, no text can have deceived."""
        (unit,) = query.units
        is_suspected = reply.origin is not Origin.KEY and self.is_suspected(unit)
        return self._sheet.read(query, reply, is_suspected=is_suspected)

    def _verdict(self, unit: int, step: Step, *, is_last: bool) -> float | None:
        match step:
            case Column(field=name):
                return self._recorded[name][unit]
            case Match(field=name, normalise=normalise):
                given = self._fields[unit]
                key, answer = given[name], given[self._candidate]
                assert isinstance(key, str)  # as checked at the start
                assert isinstance(answer, str)
                if not key.strip():
                    return None
                if normalised(answer, normalise) == normalised(key, normalise):
                    return self._criterion.scale.high
                return self._criterion.scale.low if is_last else None
            case _:
                assert_never(step)

    def _reply(self, value: float) -> Reply:
        if self._route is Route.LOGPROB:
            text = f"{value:g}"
        else:
            text = json.dumps({self._criterion.name: _spoken(value, self._criterion.scale)})
        return Reply(
            text=f"{OPENING}{text}{CLOSING}" if self._route is Route.TEXT else text,
            finish=Finish.STOP,
            usage=None,
            origin=Origin.KEY,
            alternatives=((text, 0.0),) if self._route is Route.LOGPROB else (),
        )


def normalised(text: str, normalise: Sequence[Normalisation]) -> str:
    """Leave out of a text what does not count in a comparison.

    `case` folds upper and lower case after form NFC; `space` makes one space of any white space,
    and none of it at the ends.
    """
    if "case" in normalise:
        text = normalize("NFC", text).casefold()
    return " ".join(text.split()) if "space" in normalise else text


def _unfit(
    criteria: Sequence[Criterion],
    fields: Sequence[Mapping[str, str | Chat]],
    keys: Sequence[str],
    columns: Sequence[str],
    candidate: str,
) -> Iterator[Problem]:
    """Find what keeps the steps from being taken."""
    read = (*keys, *columns)
    if not read:
        return
    if len(criteria) != 1:
        message = f"a match or a column decides by one criterion, and there are {len(criteria)}"
        yield Problem(path=_PATH, message=message)
    if candidate in read:
        yield Problem(
            path=_PATH, message=f'"{candidate}" is the answer that is checked, and no key'
        )
    names = tuple(fields[0]) if fields else ()
    needed = dict.fromkeys((candidate, *read) if keys else read)
    missing = [name for name in needed if name not in names]
    for name in missing:
        yield Problem(path=_PATH, message=no_field(name, names))
    if missing:
        return
    broken = [*gaps(fields, needed)]
    yield from broken
    if not broken:
        chats = {name for given in fields for name in needed if isinstance(given[name], Chat)}
        for name in sorted(chats):
            message = f'"{name}" is a conversation, and only texts can be compared or read'
            yield Problem(path=_PATH, message=message)


def _recorded(
    fields: Sequence[Mapping[str, str | Chat]],
    name: str,
    scale: Scale,
    called: Callable[[int], str],
) -> tuple[list[float | None], list[Problem]]:
    """Read the verdicts that a field holds, None where it is blank; find what is no verdict."""
    words: dict[str, float] = {}
    if scale.type is ScaleType.BOOLEAN:
        words = {"false": 0.0, "true": 1.0}
        words |= {label.casefold(): float(value) for value, label in enumerate(scale.labels)}
    verdicts: list[float | None] = []
    unreadable = []
    for unit, given in enumerate(fields):
        text = str(given[name]).strip().casefold()
        value = words.get(text)
        if value is None and _NUMBER.fullmatch(text) and scale.admits(float(text)):
            value = float(text)
        if text and value is None:
            unreadable.append(unit)
        verdicts.append(value)
    if not unreadable:
        return verdicts, []
    first = unreadable[0]
    message = (
        f'"{name}" holds no verdict on the scale in {count(unreadable)}, the first of them '
        f"{called(first)}: {str(fields[first][name])[:40]!r}"
    )
    return verdicts, [Problem(path=_PATH, message=message)]


def _spoken(value: float, scale: Scale) -> Json:
    match scale.type:
        case ScaleType.BOOLEAN:
            return bool(value)
        case ScaleType.INTEGER:
            return int(value)
        case _:
            return value


_PATH = "task.verdict"
_NUMBER = re.compile(r"[-+]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:e[-+]?[0-9]+)?")
