"""The rubric `generate`: puts an item to a system under test, whose answer others judge."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator, Mapping, Sequence
from hashlib import blake2b

from jinja2 import TemplateSyntaxError, nodes

from judges.rubrics.material import gaps, misnamed
from judges.rubrics.template import FAILURES, compiled, no_field, parsed
from judges.rubrics.verdict import unanswered
from orchestrator.core.errors import InvalidCampaign, Problem
from orchestrator.core.ports import Reading, Unreadable
from orchestrator.core.query import Query
from orchestrator.core.wire import Attempt, Chat, Reply, Request, Route, Text


class Generate:
    """Shows a system an item as it is, and takes the text that comes back for its answer.

    The prompt is a Jinja template in a sandbox. ``{{ question }}`` *is* the field's text, word for
    word and never evaluated again: nothing fences it, since a system does what an item says. A
    prompt that names one field and says nothing else is that field, which then can be a
    conversation; its turns keep their roles.

    Parameters
    ----------
    prompt : the template; None takes the only field that is not hidden
    fields : one mapping a unit, all with the same names; empty where systems need no text (recorded)
    hidden : the fields that say what is right
    max_output_tok : output limit of one attempt, > 0; a widened attempt gets twice as much
    candidate : the field that will hold the answer

    Raises
    ------
    InvalidCampaign
        The prompt is no template, fails on a unit, or names no field, one that is not there, one
        that gives the answer away, or a conversation beside other text; it is missing, and there is
        not just one field that it could name.
    """

    def __init__(
        self,
        prompt: str | None,
        fields: Sequence[Mapping[str, str | Chat]],
        *,
        hidden: Collection[str],
        max_output_tok: int,
        candidate: str = "candidate",
    ) -> None:
        given = tuple(fields[0]) if fields else ()
        names = tuple(name for name in given if name not in {*hidden, candidate})
        problems = [*misnamed(given)]
        if prompt is None and fields and len(names) != 1:
            problems.append(Problem(path=_PATH, message=_undecided(names)))
        if problems:
            raise InvalidCampaign(problems)
        self._fields = fields
        self._max_output_tok = max_output_tok
        text = "".join(f"{{{{ {name} }}}}" for name in names) if prompt is None else prompt
        try:
            tree, outside = parsed(text)
        except TemplateSyntaxError as exc:
            message = str(exc.message)
            raise InvalidCampaign([Problem(path=_PATH, line=exc.lineno, message=message)]) from exc
        self._template = compiled(text)
        pieces = [piece for node in tree.body for piece in getattr(node, "nodes", (node,))]
        self._whole = _whole(pieces)
        lines: dict[str, int] = {}
        for node in tree.find_all(nodes.Name):
            if node.name in outside or node.name in given:
                lines.setdefault(node.name, node.lineno)
        self._named = tuple(name for name in names if name in lines)
        problems = [
            Problem(path=_PATH, line=line, message=why)
            for name, line in lines.items()
            if (why := _refusal(name, names, hidden, candidate))
        ]
        if not problems and fields and not self._named:
            message = f"names none of the fields {_listed(names)}: all items would be asked alike"
            problems = [Problem(path=_PATH, message=message)]
        if not problems:
            problems = [*gaps(fields, self._named)]
        if not problems and self._whole is None:
            problems = [*self._chats(lines)]
        if not problems and not all(isinstance(p, nodes.Name | nodes.TemplateData) for p in pieces):
            problems = [*self._failures()]
        if problems:
            raise InvalidCampaign(problems)

    def render(self, query: Query, attempt: Attempt) -> Request:
        """Write the request: the prompt, and nothing besides."""
        (unit,) = query.units
        prompt = self._prompt(unit)
        return Request(
            query=query,
            attempt=attempt,
            parts=(prompt if isinstance(prompt, Chat) else Text(text=prompt),),
            max_output_tok=self._limit(attempt),
            schema={},
        )

    def read(self, query: Query, reply: Reply) -> Reading | Unreadable:
        """Say whether a reply is an answer: it ended by itself, and is not blank."""
        del query
        return unanswered(reply, limit=self._max_output_tok) or Reading(observations=())

    def fingerprint(self, query: Query, attempt: Attempt) -> str:
        """Digest all that an answer depends on in the words, for the cache.

        Covers the prompt, the output limit and the number of the repeat; not the system, nor which
        units have this prompt.
        """
        (unit,) = query.units
        prompt = self._prompt(unit)
        said = (
            [[turn.role, turn.content] for turn in prompt.turns]
            if isinstance(prompt, Chat)
            else prompt
        )
        words = (Route.TEXT, said, self._limit(attempt), query.replicate)
        return blake2b(json.dumps(words).encode(), digest_size=16).hexdigest()

    def _limit(self, attempt: Attempt) -> int:
        return self._max_output_tok * (2 if attempt.widened else 1)

    def _prompt(self, unit: int) -> str | Chat:
        given = self._fields[unit] if self._named else {}
        if self._whole is not None:
            return given[self._whole]
        return self._template.render({name: given[name] for name in self._named})

    def _chats(self, lines: Mapping[str, int]) -> Iterator[Problem]:
        """Find the conversations that are named beside other text."""
        for name in self._named:
            if any(isinstance(given[name], Chat) for given in self._fields):
                message = f'"{name}" is a conversation, which can only be the whole prompt'
                yield Problem(path=_PATH, line=lines[name], message=message)

    def _failures(self) -> Iterator[Problem]:
        """Find the first unit whose texts the template fails on."""
        for unit in range(len(self._fields)):
            try:
                self._prompt(unit)
            except FAILURES as exc:
                yield Problem(path=_PATH, message=f"fails on unit {unit}: {exc}")
                return


def _whole(pieces: Sequence[nodes.Node]) -> str | None:
    """Give the name that is all that a template says, white space apart."""
    match [p for p in pieces if not (isinstance(p, nodes.TemplateData) and p.data.isspace())]:
        case [nodes.Name(name=str() as name)]:
            return name
        case _:
            return None


def _refusal(
    name: str, names: Sequence[str], hidden: Collection[str], candidate: str
) -> str | None:
    """Say why a prompt can't name something; None if it can."""
    if name in names:
        return None
    if name == candidate:
        return f'"{name}" is what the system answers'
    if name in hidden:
        return f'"{name}" says what is right, and would give the answer away'
    return no_field(name, names)


def _undecided(names: Sequence[str]) -> str:
    if not names:
        return "there is no field that the system can be shown: all of them say what is right"
    return f"missing; names which of the fields {_listed(names)} the system is shown"


def _listed(names: Sequence[str]) -> str:
    return ", ".join(f'"{name}"' for name in names)


_PATH = "prompt"
