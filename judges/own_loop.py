"""A judge that the user's own loop calls: here a call is bounded, and none is sent."""

from __future__ import annotations

from judges.bounds import input_bound
from orchestrator.core.errors import BadRequest
from orchestrator.core.money import Nano, PriceCard, ceiling_cost
from orchestrator.core.wire import Reply, Request


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
