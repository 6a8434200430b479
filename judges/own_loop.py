"""A judge that the user's own loop calls: here a call is bounded, and none is sent."""

from __future__ import annotations

import json
from typing import assert_never

from orchestrator.core.errors import BadRequest
from orchestrator.core.money import Nano, PriceCard, ceiling_cost
from orchestrator.core.wire import Chat, Image, Part, Reply, Request, Text

MESSAGE_TOK = 16
"""Input tokens beyond its text that a message is given: chat formats spend three to five on the
role and the marks around it."""


def input_bound(request: Request) -> int:
    """Bound the input tokens of a request: one a byte of its UTF-8, and `MESSAGE_TOK` a message.

    No tokenizer in use makes more tokens of a text than it has bytes. The schema counts as text,
    since providers show it to the model.
    """
    schema = json.dumps(request.schema, ensure_ascii=False).encode(errors="replace")
    return MESSAGE_TOK + len(schema) + sum(map(_part_bound, request.parts))


def _part_bound(part: Part) -> int:
    match part:
        case Text(text=text):
            return MESSAGE_TOK + _n_bytes(text)
        case Chat(turns=turns):
            return sum(MESSAGE_TOK + _n_bytes(turn.role + turn.content) for turn in turns)
        case Image(data=data):
            return MESSAGE_TOK + len(data)
        case _:
            assert_never(part)


def _n_bytes(text: str) -> int:
    return len(text.encode(errors="replace"))


class OwnLoopJudge:
    """Bounds what a call costs whoever makes it, from the request and its output limit alone.

    What the loop adds to the request (a system prompt, tools) is not in the bound. A bill that
    passes it is booked in full, and later holds of the judge are larger by as much.
    """

    def ceiling(self, request: Request, card: PriceCard) -> Nano:
        """Bound one call: all bytes as input tokens, and output up to the limit."""
        return ceiling_cost(input_bound(request), request.max_output_tok, card)

    async def send(self, request: Request) -> Reply:
        """Refuse: only the user's own loop calls this judge.

        Raises
        ------
        BadRequest
            Always.
        """
        raise BadRequest(f"question to judge {request.query.judge}: the own loop calls it")

    async def aclose(self) -> None:
        """Close nothing: there is no connection."""
