"""The rubric `rate`: one unit a question, rated on one or several criteria."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from hashlib import blake2b
from typing import Literal

from judges.rubrics.fence import fence, well_formed
from judges.rubrics.form import REASON, Form, Reason, bare, described, object_of, verdict_entries
from judges.rubrics.labels import labels, read_label
from judges.rubrics.material import SUSPECTED, Material, gaps, misnamed
from judges.rubrics.spoken import TextReader
from judges.rubrics.template import frame, named_fields, rendered
from judges.rubrics.verdict import read_object, read_value, unfinished
from orchestrator.core.errors import InvalidCampaign, Problem
from orchestrator.core.ports import Reading, Unreadable
from orchestrator.core.query import Observation, Query
from orchestrator.core.scale import Criterion
from orchestrator.core.seeds import Seeds, Stream
from orchestrator.core.wire import Attempt, Chat, Finish, Json, Part, Reply, Request, Route, Text


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
        reason: Reason = "none",
        route: Route = Route.SCHEMA,
    ) -> None:
        self._text = text
        self._criteria = tuple(criteria)
        self._seeds = seeds
        self._max_output_tok = max_output_tok
        self._shuffles = criteria_order == "random" and len(self._criteria) > 1
        self._allow_na = allow_na
        self._reason = reason
        self._route = route
        names = tuple(fields[0]) if fields else ()
        problems = [*self._ambiguities(), *misnamed(names), *self._unlabelled()]
        if not problems:
            shown, problems = named_fields(text or "", names)
        if not problems:
            problems = [*gaps(fields, shown)]
        if problems:
            raise InvalidCampaign(problems)
        self._material = Material(fields, shown, (criterion.name for criterion in criteria))
        self._reader = TextReader(self._criteria) if route is Route.TEXT else None
        self._labels = labels(self._criteria[0].scale) if route is Route.LOGPROB else None
        self._fixed_order = tuple(range(len(self._criteria)))
        self._layout = lru_cache(maxsize=256)(self._lay_out)
        self._layout(self._fixed_order)

    def render(self, query: Query, attempt: Attempt) -> Request:
        """Write the request: the stable prefix, then the unit's fields inside the fence."""
        (unit,) = query.units
        key = (query.judge, unit, query.replicate)
        layout = self._layout(self.order(query) if self._shuffles else self._fixed_order)
        parts: tuple[Part, ...] = (layout.prefix,)
        if self._material.shown:
            parts += (Text(text=fence(self._material.of(unit), seeds=self._seeds, key=key)),)
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
            return unfinished(reply.finish, reply.flags, limit=self._max_output_tok)
        if not reply.text.strip():
            return unfinished(Finish.EMPTY, reply.flags, limit=self._max_output_tok)
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
        return self._material.is_suspected(unit)

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
            fence(self._material.of(unit), seeds=_ONE_FENCE, key=())
            if self._material.shown
            else "",
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

    def _lay_out(self, order: tuple[int, ...]) -> _Layout:
        listed = [self._criteria[index] for index in order]
        yes_no = ("true", "false") if self._labels is None else ("1", "0")
        context = {"criteria": [described(criterion, yes_no) for criterion in listed]}
        names = {name: f"[{name}]" for name in self._material.shown}
        rubric = rendered(self._text or "", context | names)
        form = self._form(listed)
        prefix = frame("rate").render(
            context,
            rubric=rubric,
            fields=self._material.shown,
            allow_na=self._allow_na,
            route=self._route,
            form=form.words,
        )
        return _Layout(prefix=Text(text=well_formed(prefix)), schema=form.schema)

    def _form(self, listed: Sequence[Criterion]) -> Form:
        if self._labels is not None:
            return bare(self._labels)
        return object_of(verdict_entries(listed, allow_na=self._allow_na, reason=self._reason))

    def _ambiguities(self) -> Iterator[Problem]:
        criteria = [criterion.name for criterion in self._criteria]
        if len(set(criteria)) < len(criteria):
            yield Problem(path="task.criteria", message="two criteria have one name")
        if self._reason != "none" and REASON in criteria:
            yield Problem(
                path="task.criteria",
                message=f'"{REASON}" is the key of the judge\'s reason; rename the criterion',
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


_ONE_FENCE = Seeds(0)
