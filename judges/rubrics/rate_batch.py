"""The rubric `rate_batch`: several units in one question, rated one after another."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from copy import copy
from hashlib import blake2b
from typing import Self

from judges.rubrics.fence import fence, well_formed
from judges.rubrics.form import REASON, Entry, Form, Reason, described, object_of, verdict_entries
from judges.rubrics.ids import ID, VERDICTS, unit_ids
from judges.rubrics.material import SUSPECTED, Material, gaps, misnamed
from judges.rubrics.spoken import OPENING, Said, TextReader
from judges.rubrics.template import frame, named_fields, rendered
from judges.rubrics.verdict import decode, failure, read_object, read_value, unfinished
from orchestrator.core.errors import InvalidCampaign, Problem
from orchestrator.core.ports import Reading, Unreadable
from orchestrator.core.query import Observation, Query
from orchestrator.core.scale import Criterion
from orchestrator.core.seeds import Seeds
from orchestrator.core.wire import Attempt, Chat, Finish, Json, Part, Reply, Request, Route, Text

TRUNCATED = "partial:truncated"
"""Flag: units have no verdict because the reply was cut before it."""
OMITTED = "partial:omitted"
"""Flag: units have no verdict in a reply that was not cut."""
UNREADABLE = "partial:unreadable"
"""Flag: units have an entry that holds no verdict on the scale."""
CONTRADICTED = "partial:contradicted"
"""Flag: units have two verdicts that differ, so none."""
REPEATED = "repeated_id"
"""Flag: the same verdict was given twice."""
UNKNOWN = "unknown_id"
"""Flag: there was an entry for no unit of the question."""
REORDERED = "reordered"
"""Flag: the units were rated in another order than the one in which they stand."""


class RateBatch:
    """Asks for a verdict on each of several units, one after another, and reads them by their ids.

    A unit is named by `unit_ids`, in the marks of its fence and in the answer, ``{"verdicts":
    [{"id": "KVQ", "score": 4}, …]}``. A verdict belongs to the unit whose id it has, wherever it
    stands: what else the reply holds, lacks or repeats never moves it to a neighbour.

    The prompt is a stable prefix as in `Rate`, and then all units in presentation order. Templates
    and fields are those of `Rate` too.

    Parameters
    ----------
    text : the rubric; None takes the built-in one
    criteria : exactly one
    fields : one mapping a unit, all with the same names; empty where judges need no text
    seeds : for fence and ids
    max_output_tok : output limit of one attempt, for all verdicts together, > 0; a widened attempt
        gets twice as much
    allow_na : whether null is a verdict, "not applicable"
    reason : whether the judge says why, for each unit, and on which side of the verdict
    route : by which the judge gives its verdicts

    Raises
    ------
    InvalidCampaign
        There is not one criterion; it is named like another key; the route is `logprob`, which
        reads a single verdict; template or fields are wrong as in `Rate`.
    """

    def __init__(
        self,
        text: str | None,
        criteria: Sequence[Criterion],
        fields: Sequence[Mapping[str, str | Chat]],
        *,
        seeds: Seeds,
        max_output_tok: int,
        allow_na: bool = False,
        reason: Reason = "none",
        route: Route = Route.SCHEMA,
    ) -> None:
        names = tuple(fields[0]) if fields else ()
        problems = [*_unfit(criteria, reason, route), *misnamed(names)]
        if not problems:
            shown, problems = named_fields(text or "", names)
        if not problems:
            problems = [*gaps(fields, shown)]
        if problems:
            raise InvalidCampaign(problems)
        (self._criterion,) = criteria
        self._seeds = seeds
        self._max_output_tok = max_output_tok
        self._allow_na = allow_na
        self._route = route
        self._material = Material(fields, shown, (VERDICTS, self._criterion.name))
        self._reader = TextReader(criteria) if route is Route.TEXT else None
        verdict = object_of(
            [
                Entry(ID, Form({"type": "string"}, '"<id of the item>"')),
                *verdict_entries(criteria, allow_na=allow_na, reason=reason),
            ]
        )
        verdicts = Form({"type": "array", "items": verdict.schema}, f"[{verdict.words}, ...]")
        self._schema, form = object_of([Entry(VERDICTS, verdicts)])
        context = {"criteria": [described(self._criterion)]}
        prefix = frame("rate_batch").render(
            context,
            rubric=rendered(text or "", context | {name: f"[{name}]" for name in shown}),
            fields=shown,
            allow_na=allow_na,
            route=route,
            form=form,
        )
        self._prefix = Text(text=well_formed(prefix))

    def drawing_from(self, seeds: Seeds) -> Self:
        """Give the same rubric with the fences and ids of other seeds."""
        other = copy(self)
        other._seeds = seeds  # noqa: SLF001  # its own kind
        return other

    def render(self, query: Query, attempt: Attempt) -> Request:
        """Write the request: the stable prefix, then each unit's fields inside the fence."""
        parts: tuple[Part, ...] = (self._prefix,)
        if self._material.shown:
            key = (query.judge, *query.units, query.replicate)
            parts += (Text(text=fence(self._shown(query), seeds=self._seeds, key=key)),)
        return Request(
            query=query,
            attempt=attempt,
            parts=parts,
            max_output_tok=self._max_output_tok * (2 if attempt.widened else 1),
            schema=self._schema,
        )

    def read(self, query: Query, reply: Reply) -> Reading | Unreadable:
        """Read the verdicts that the reply holds; `slot` is a unit's place in the question.

        A unit without a verdict is left out of the observations, and `partial:` flags say why; one
        with value None is "not applicable". Of a reply that was cut, what was complete by then
        counts. It is unreadable if no unit has a verdict, or nothing says where the list ends.
        """
        is_cut = reply.finish is Finish.LENGTH
        if reply.finish is not Finish.STOP and not is_cut:
            return unfinished(reply.finish, reply.flags, limit=self._max_output_tok)
        if not reply.text.strip():
            finish = Finish.LENGTH if is_cut else Finish.EMPTY
            return unfinished(finish, reply.flags, limit=self._max_output_tok)
        is_suspect = any(map(self.is_suspected, query.units))
        entries_of = self._begun if is_cut else self._whole
        said = entries_of(reply.text, is_suspect=is_suspect)
        if isinstance(said, Unreadable):
            return said
        observations, flags = self._matched(query, said, is_cut=is_cut)
        if observations:
            flags += (SUSPECTED,) if is_suspect else ()
            return Reading(observations=observations, flags=flags)
        if is_cut:
            return unfinished(Finish.LENGTH, reply.flags, limit=self._max_output_tok)
        return failure("no verdict on any unit of the question")

    def is_suspected(self, unit: int) -> bool:
        """Say whether a shown field of a unit holds what only a rubric or a judge should write."""
        return self._material.is_suspected(unit)

    def fingerprint(self, query: Query, attempt: Attempt) -> str:
        """Digest all that an answer depends on in the words, for the cache.

        As in `Rate`, with units in their order and with their ids: an answer is by id, so it serves
        only where the seed draws the same ids.
        """
        words = (
            self._route,
            self._prefix.text,
            unit_ids(self._seeds, query),
            fence(self._shown(query), seeds=_ONE_FENCE, key=()) if self._material.shown else "",
            self._schema,
            self._max_output_tok * (2 if attempt.widened else 1),
            query.replicate,
        )
        return blake2b(json.dumps(words).encode(), digest_size=16).hexdigest()

    def _shown(self, query: Query) -> dict[str, str | Chat]:
        return {
            f"{name} {field}": text
            for name, unit in zip(unit_ids(self._seeds, query), query.units, strict=True)
            for field, text in self._material.of(unit).items()
        }

    def _whole(self, text: str, *, is_suspect: bool) -> list[Json] | Unreadable:
        said: Said | dict[str, Json] | Unreadable
        if self._reader is None:
            said = read_object(text)
        else:
            said = self._reader.read(text, is_suspect=is_suspect)
        if isinstance(said, Unreadable):
            return said
        entries = (said.values if isinstance(said, Said) else said).get(VERDICTS)
        return entries if isinstance(entries, list) else failure(f"{VERDICTS}: no list")

    def _begun(self, text: str, *, is_suspect: bool) -> list[Json]:
        """Read the entries that are complete in a reply that was cut."""
        if self._reader is not None:
            # Of two lists the second may be the verdict; and by a forged one no prose may stand.
            _, *tagged = _OPENED.split(text)
            if len(tagged) > 1 or is_suspect:
                return []
            text = tagged[0] if tagged else text
        begun = _BEGUN.match(text)
        entries: list[Json] = []
        try:
            while begun is not None:
                entry, at = decode(text, begun.end())
                entries.append(entry)
                begun = _NEXT.match(text, at)
        except (ValueError, RecursionError):
            pass
        return entries

    def _matched(
        self, query: Query, entries: Sequence[Json], *, is_cut: bool
    ) -> tuple[tuple[Observation, ...], tuple[str, ...]]:
        """Give each unit the verdict that has its id."""
        slots = {name: slot for slot, name in enumerate(unit_ids(self._seeds, query))}
        said: dict[int, list[float | Unreadable | None]] = {}
        flags: list[str] = []
        for entry in entries:
            name = entry.get(ID) if isinstance(entry, dict) else None
            if not isinstance(name, str) or name not in slots:
                flags.append(UNKNOWN)
                continue
            values = entry
            if self._reader is not None:
                values, coercions = self._reader.coerced(entry)
                flags += coercions
            value = read_value(values, self._criterion, allow_na=self._allow_na)
            said.setdefault(slots[name], []).append(value)
        observations = []
        for slot, unit in enumerate(query.units):
            match said.get(slot, []):
                case []:
                    flags.append(TRUNCATED if is_cut else OMITTED)
                case [value, *others] if others and set(others) != {value}:
                    flags.append(CONTRADICTED)
                case [Unreadable(), *_]:
                    flags.append(UNREADABLE)
                case [float() | None as value, *others]:
                    observations.append(Observation(unit=unit, slot=slot, value=value))
                    flags += [REPEATED] * len(others)
        if list(said) != sorted(said):
            flags.append(REORDERED)
        return tuple(observations), tuple(dict.fromkeys(flags))


def _unfit(criteria: Sequence[Criterion], reason: Reason, route: Route) -> Iterator[Problem]:
    if len(criteria) != 1:
        yield Problem(
            path="task.criteria", message=f"rate_batch takes one criterion, not {len(criteria)}"
        )
    taken = {ID: "the key of a unit's id"}
    if reason != "none":
        taken[REASON] = "the key of the judge's reason"
    for criterion in criteria:
        if criterion.name in taken:
            message = f'"{criterion.name}" is {taken[criterion.name]}; rename the criterion'
            yield Problem(path="task.criteria", message=message)
    if route is Route.LOGPROB:
        message = "logprob reads a single verdict of one token, and rate_batch asks for several"
        yield Problem(path="task.output.route", message=message)


_ONE_FENCE = Seeds(0)
_OPENED = re.compile(OPENING, re.IGNORECASE)
_BEGUN = re.compile(rf'\s*(?:```(?i:json)?\s*)?\{{\s*"{VERDICTS}"\s*:\s*\[')
_NEXT = re.compile(",")
