"""What goes to a judge and what one attempt brings back."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from orchestrator.core.query import Query

Json = Any
"""Decoded JSON: None, bool, int, float, str, or lists and string-keyed dicts of them."""


class Billing(StrEnum):
    """Whether an attempt that failed can have cost anything."""

    NO = "no"
    YES = "yes"
    UNKNOWN = "unknown"


class Origin(StrEnum):
    """Where an answer comes from."""

    LIVE = "live"
    CACHE = "cache"
    RECORDED = "recorded"
    IMPORTED = "imported"
    KEY = "key"
    """It was decided without a call, by comparing with a key or reading a recorded verdict."""


class Route(StrEnum):
    """How a judge is made to give its verdict in a form that can be read.

    By the provider's JSON schema, a forced tool, text with the verdict in tags, or the probabilities
    of the labels at the place of the verdict.
    """

    SCHEMA = "schema"
    TOOL = "tool"
    TEXT = "text"
    LOGPROB = "logprob"


class Finish(StrEnum):
    """How a reply ended."""

    STOP = "stop"
    LENGTH = "length"
    REFUSED = "refused"
    BLOCKED = "blocked"
    EMPTY = "empty"


@dataclass(frozen=True, slots=True, kw_only=True)
class Text:
    """Plain text of a prompt."""

    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Turn:
    """One message of a conversation."""

    role: str
    content: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Chat:
    """A conversation, roles included."""

    turns: tuple[Turn, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Image:
    """A picture, as bytes."""

    media_type: str
    data: bytes


Part = Text | Chat | Image


@dataclass(frozen=True, slots=True, kw_only=True)
class Attempt:
    """Which attempt of a question this is, counted from 1 over the whole question.

    `widened`: an earlier attempt was cut at its output limit, so this one gets twice as much.
    `paid` counts the earlier attempts that were charged.
    """

    number: int = 1
    widened: bool = False
    paid: int = 0


FIRST_ATTEMPT = Attempt()


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """What is sent, rendered from a query by a rubric.

    Parts stand with the stable prefix first, so that providers can cache it. `schema` is the JSON
    Schema of the verdict. `query` and `attempt` are what local judges (mock, recorded) answer
    from; live judges do not read them.
    """

    query: Query
    attempt: Attempt
    parts: tuple[Part, ...]
    max_output_tok: int
    schema: dict[str, Json]


@dataclass(frozen=True, slots=True, kw_only=True)
class Usage:
    """Tokens of one attempt, in disjoint classes; their sum is what the provider bills.

    `input_tok` excludes whatever was read from or written to a cache. `output_tok` includes hidden
    reasoning, of which `reasoning_tok` says how much (information only, never added).
    """

    input_tok: int = 0
    cached_input_tok: int = 0
    cache_write_5m_tok: int = 0
    cache_write_1h_tok: int = 0
    output_tok: int = 0
    reasoning_tok: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Reply:
    """What one attempt returned. `usage` None: the provider did not say, so the hold is charged.

    `alternatives` are the tokens that could have stood at the place of the verdict, each with the
    natural logarithm of its probability; only where the route is `logprob`.
    """

    text: str
    finish: Finish
    usage: Usage | None
    served_model: str = ""
    request_id: str = ""
    origin: Origin = Origin.LIVE
    flags: tuple[str, ...] = ()
    alternatives: tuple[tuple[str, float], ...] = ()
