"""The sheet of a question: what it asks by each criterion, in which order, and how the answer is read."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from hashlib import blake2b
from typing import Literal

from judges.rubrics.fence import fence, well_formed
from judges.rubrics.form import REASON, Form, Reason, bare, described, object_of, verdict_entries
from judges.rubrics.labels import SIDES, labels, read_label
from judges.rubrics.material import SUSPECTED
from judges.rubrics.spoken import TextReader
from judges.rubrics.template import frame, rendered
from judges.rubrics.verdict import read_object, read_verdict, unanswered
from orchestrator.core.errors import Problem
from orchestrator.core.ports import Reading, Unreadable
from orchestrator.core.query import Observation, Preference, Query
from orchestrator.core.scale import Criterion, ScaleType
from orchestrator.core.seeds import Seeds, Stream
from orchestrator.core.wire import Attempt, Chat, Json, Part, Reply, Request, Route, Text

CriteriaOrder = Literal["fixed", "random"]
"""Whether each question lists the criteria in an order of its own."""


@dataclass(frozen=True, slots=True)
class _Layout:
    """The part of a request that is the same for all units, for one order of the criteria."""

    prefix: Text
    schema: dict[str, Json]


class Sheet:
    """Asks for a verdict by each criterion in one answer, and reads it.

    By the routes `schema` and `tool` the judge answers with one JSON object and nothing else, by
    `text` with that object in tags; each criterion is read by its name. By `logprob` it answers a
    single criterion with the bare label.

    Parameters
    ----------
    kind : of the question, whose built-in text frames the rubric
    text : the rubric; None takes the built-in one
    criteria : in the order of the study
    words : what a template can name besides `criteria`, and what is written in its place
    context : what the frame of the kind takes besides
    seeds, max_output_tok, criteria_order, allow_na, reason, route : as in `Rate`

    Raises
    ------
    InvalidCampaign
        The template fails.
    """

    def __init__(
        self,
        kind: str,
        text: str | None,
        criteria: Sequence[Criterion],
        *,
        words: Mapping[str, str],
        context: Mapping[str, Json],
        seeds: Seeds,
        max_output_tok: int,
        criteria_order: CriteriaOrder,
        allow_na: bool,
        reason: Reason,
        route: Route,
    ) -> None:
        self._kind = kind
        self._text = text
        self._criteria = tuple(criteria)
        self._words = words
        self._context = context
        self._seeds = seeds
        self._max_output_tok = max_output_tok
        self._shuffles = criteria_order == "random" and len(self._criteria) > 1
        self._allow_na = allow_na
        self._reason = reason
        self._route = route
        self._reader = TextReader(self._criteria) if route is Route.TEXT else None
        self._labels = labels(self._criteria[0].scale) if route is Route.LOGPROB else None
        self._fixed_order = tuple(range(len(self._criteria)))
        self._layout = lru_cache(maxsize=256)(self._lay_out)
        self._layout(self._fixed_order)

    def request(
        self, query: Query, attempt: Attempt, material: Mapping[str, str | Chat]
    ) -> Request:
        """Write the request: the stable prefix, then the material inside the fence."""
        layout = self._layout(self.order(query) if self._shuffles else self._fixed_order)
        parts: tuple[Part, ...] = (layout.prefix,)
        if material:
            key = (query.judge, *query.units, query.replicate)
            parts += (Text(text=fence(material, seeds=self._seeds, key=key)),)
        return Request(
            query=query,
            attempt=attempt,
            parts=parts,
            max_output_tok=self._max_output_tok * (2 if attempt.widened else 1),
            schema=layout.schema,
        )

    def read(self, query: Query, reply: Reply, *, is_suspected: bool) -> Reading | Unreadable:
        """Read the verdict by every criterion; one that can't be read spoils the answer.

        `flags` name what had to be understood, and `SUSPECTED` material that may deceive its judge.
        """
        nothing = unanswered(reply, limit=self._max_output_tok)
        if nothing is not None:
            return nothing
        flags: tuple[str, ...] = (SUSPECTED,) if is_suspected else ()
        unit = query.units[0]
        if self._labels is not None:
            weighed = read_label(reply, self._labels)
            if isinstance(weighed, Unreadable):
                return weighed
            seen = Observation(unit=unit, value=weighed.value, mass=weighed.mass)
            if self._criteria[0].scale.type is ScaleType.PREFERENCE:
                side = SIDES[reply.text.strip()]
                seen = Observation(unit=unit, preference=side, mass=weighed.mass)
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
            verdict = read_verdict(said, criterion, allow_na=self._allow_na)
            slot = places.index(index)
            match verdict:
                case Unreadable():
                    return verdict
                case Preference():
                    seen = Observation(unit=unit, slot=slot, criterion=index, preference=verdict)
                case _:
                    seen = Observation(unit=unit, slot=slot, criterion=index, value=verdict)
            observations.append(seen)
        return Reading(observations=tuple(observations), flags=flags)

    def fingerprint(
        self, query: Query, attempt: Attempt, material: Mapping[str, str | Chat]
    ) -> str:
        """Digest all that an answer depends on in the words, for the cache.

        Covers route, prefix with the order of criteria, material under a fence that is the same for
        all seeds, schema, output limit and the number of the repeat; not the judge, nor which units
        have this material.
        """
        layout = self._layout(self.order(query))
        words = (
            self._route,
            layout.prefix.text,
            fence(material, seeds=_ONE_FENCE, key=()) if material else "",
            layout.schema,
            self._max_output_tok * (2 if attempt.widened else 1),
            query.replicate,
        )
        return blake2b(json.dumps(words).encode(), digest_size=16).hexdigest()

    def order(self, query: Query) -> tuple[int, ...]:
        """Give the order in which a question lists the criteria, as indices of the study's.

        Draws from `stream(LAYOUT, judge, units, replicate)`, so that the order can be derived from
        the question alone.
        """
        if not self._shuffles:
            return self._fixed_order
        rng = self._seeds.stream(Stream.LAYOUT, query.judge, *query.units, query.replicate)
        return tuple(rng.permutation(len(self._criteria)).tolist())

    def _lay_out(self, order: tuple[int, ...]) -> _Layout:
        listed = [self._criteria[index] for index in order]
        is_label = self._labels is not None
        context = {"criteria": [described(criterion, is_label=is_label) for criterion in listed]}
        form = self._form(listed)
        prefix = frame(self._kind).render(
            context,
            **self._context,
            rubric=rendered(self._text or "", {**context, **self._words}),
            allow_na=self._allow_na,
            route=self._route,
            form=form.words,
        )
        return _Layout(prefix=Text(text=well_formed(prefix)), schema=form.schema)

    def _form(self, listed: Sequence[Criterion]) -> Form:
        if self._labels is not None:
            return bare(self._labels)
        return object_of(verdict_entries(listed, allow_na=self._allow_na, reason=self._reason))


def unfit(
    criteria: Sequence[Criterion], *, allow_na: bool, reason: Reason, route: Route
) -> Iterator[Problem]:
    """Find what is ambiguous in the names of criteria, and what `logprob` can't read."""
    names = [criterion.name for criterion in criteria]
    if len(set(names)) < len(names):
        yield Problem(path="task.criteria", message="two criteria have one name")
    if reason != "none" and REASON in names:
        yield Problem(
            path="task.criteria",
            message=f'"{REASON}" is the key of the judge\'s reason; rename the criterion',
        )
    if route is Route.LOGPROB:
        why = []
        if len(criteria) != 1:
            why.append(f"{len(criteria)} criteria")
        if allow_na:
            why.append("allow_na")
        if reason != "none":
            why.append("a reason")
        why += [
            f"{criterion.name}: labels that are not surely single tokens"
            for criterion in criteria
            if labels(criterion.scale) is None
        ]
        if why:
            message = (
                "logprob wants a verdict of one token: a boolean, a whole number of one digit or a "
                f"preference; against it: {', '.join(why)}"
            )
            yield Problem(path="task.output.route", message=message)


_ONE_FENCE = Seeds(0)
