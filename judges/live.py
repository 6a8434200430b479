"""What all judges behind a connection share: one attempt, what its failure means, and its bill.

A provider's adapter subclasses `LiveJudge` and says four things: how a client of the provider is
made (`_connect`), how one attempt goes (`_ask`), how its answer is read (`_read`), and which of the
provider's refusals mean something else than usual (`rules`).

A complete error reply costs nothing, except where a server gave up waiting (408, 502, 504), since
the model may have worked, and for a 500 whose provider does not say. What broke after bytes were
sent may have been billed; what broke before was not. A complete reply that can't be read was
billed.
"""

from __future__ import annotations

import json
import math
import os
import re
import ssl
from abc import ABC, abstractmethod
from base64 import b64encode
from collections.abc import Callable, Collection, Container, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from email.utils import parsedate_to_datetime
from functools import lru_cache
from importlib.util import find_spec
from typing import Any, ClassVar, Generic, TypeVar, assert_never

import httpx2

from judges.bounds import input_bound
from judges.rubrics.fence import well_formed
from judges.secrets import Secrets
from orchestrator.core.errors import (
    LONGEST_WAIT_S,
    Ambiguous,
    BadCredentials,
    BadRequest,
    Blocked,
    ConfigError,
    Disconnected,
    ExceedsRate,
    InvalidCampaign,
    JudgeError,
    Overloaded,
    Problem,
    QuotaExhausted,
    RateLimited,
    TimedOut,
    TooLong,
    UnknownModel,
    Unreachable,
)
from orchestrator.core.money import Nano, PriceCard, ceiling_cost
from orchestrator.core.ports import JudgeSetting
from orchestrator.core.wire import Billing, Chat, Finish, Image, Json, Reply, Request, Text, Usage

MAX_CONNECTIONS = 25
"""Connections that one client keeps. Its pool is searched for each call: at 400 calls under way a
call cost 0.79 ms with 25 in each of 16 pools, and 1.87 ms with all in one."""

MOST_TOK = 10**12
"""No call has more tokens; what says so is no count."""

MESSAGE_CHARS = 500
"""How much of a provider's message is kept."""

NAME_CHARS = 200
"""How much of the name that a provider gives to a model or a call is kept."""

Client = TypeVar("Client")


# --- what a refusal means ----------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """What an error reply means: of these statuses, and holding one of these words if there are any.

    Words are looked for in the provider's code, type and message, in lower case. `billing` None is
    the error's own; `source` says where the rule comes from.
    """

    statuses: Container[int]
    error: type[JudgeError]
    source: str
    words: tuple[str, ...] = ()
    billing: Billing | None = None

    def fits(self, status: int, said: str) -> bool:
        """Whether the rule is about a status and what was said with it."""
        if status not in self.statuses:
            return False
        return not self.words or any(word in said for word in self.words)


_HTTP = "RFC 9110 §15: the request was not fulfilled, and the reply to it is complete"

RULES = (
    Rule(
        statuses=(400, 403, 429),
        words=("insufficient_quota", "billing_hard_limit", "credit balance", "insufficient credit"),
        error=QuotaExhausted,
        source="OpenAI error codes; Anthropic's 'credit balance is too low'; OpenRouter's 402 and 403",
    ),
    Rule(
        statuses=(413, 429),
        words=("request too large for",),
        error=ExceedsRate,
        source="OpenAI and Groq: one request has more tokens than the account's minute",
    ),
    Rule(
        statuses=(400, 413, 422),
        words=(
            "context_length_exceeded",
            "exceed_context_size",
            "maximum context length",
            "context window",
            "prompt is too long",
        ),
        error=TooLong,
        source="codes of OpenAI and llama.cpp, messages of vLLM, Ollama and Anthropic",
    ),
    Rule(
        statuses=(400, 403),
        words=("content_policy", "content_filter", "content management policy", "moderation"),
        error=Blocked,
        source="OpenAI and Azure OpenAI error codes; OpenRouter's 403 for flagged input",
    ),
    Rule(statuses=(401, 403), error=BadCredentials, source="RFC 9110 §15.5.2, §15.5.4"),
    Rule(statuses=(402,), error=QuotaExhausted, source="DeepSeek and OpenRouter: no credit left"),
    Rule(statuses=(404,), error=UnknownModel, source="OpenAI, Anthropic, Gemini, vLLM, Ollama"),
    Rule(statuses=(408, 504), error=TimedOut, source="RFC 9110 §15.5.9, §15.6.5: gave up waiting"),
    Rule(statuses=(413,), error=TooLong, source="RFC 9110 §15.5.14"),
    Rule(statuses=(429,), error=RateLimited, source="RFC 6585 §4"),
    Rule(statuses=range(400, 500), error=BadRequest, source=_HTTP),
    Rule(statuses=(502,), error=Disconnected, source="RFC 9110 §15.6.3: lost behind a gateway"),
    Rule(statuses=(503, 529), error=Overloaded, source="RFC 9110 §15.6.4; Anthropic's 529"),
    Rule(statuses=range(500, 600), error=Ambiguous, source="no provider's word that it is free"),
    Rule(statuses=range(1000), error=BadRequest, source="RFC 9110 §15.4: sent elsewhere"),
)
"""What a refusal means where the provider has no rule of its own; the first that fits counts."""


def classify(
    rules: Iterable[Rule], status: int, code: str, message: str, headers: Mapping[str, str]
) -> JudgeError:
    """Make the error that a complete reply of another status than 2xx is.

    `rules` are the provider's, asked before `RULES`; `code` holds its error code and type.
    """
    said = f"{code} {message}".lower()
    rule = next(rule for rule in (*rules, *RULES) if rule.fits(status, said))
    return rule.error(
        f"HTTP {status}: {message or code or 'no reason given'}",
        billing=rule.billing,
        retry_after_s=retry_after_s(headers),
    )


def retry_after_s(headers: Mapping[str, str]) -> float | None:
    """Read how long a server asks to wait, in seconds; None where it does not say so legibly.

    By `retry-after-ms`, else `retry-after` in seconds or as a date, which counts from the server's
    own `date`: the clock here may be wrong. Two hours are not cut: a server that asks for them means
    them; `LONGEST_WAIT_S` is. The names of headers are in lower case, or the mapping does not mind.
    """
    in_ms = _seconds(headers.get("retry-after-ms", ""))
    if in_ms is not None:
        return in_ms / 1000
    asked = headers.get("retry-after", "")
    if (seconds := _seconds(asked)) is not None:
        return seconds
    try:
        wait_s = (_date(asked) - _date(headers.get("date", ""))).total_seconds()
    except (TypeError, ValueError, OverflowError):
        return None
    return min(wait_s, LONGEST_WAIT_S) if wait_s >= 0 else None


def unreadable(detail: str, usage: Usage | None = None) -> JudgeError:
    """Make the error that a complete reply without an answer is: billed, at the hold if need be.

    `detail` quotes nothing of the reply.
    """
    return JudgeError(f"unreadable reply: {detail}", billing=Billing.YES, usage=usage)


# --- tokens ------------------------------------------------------------------------------------


def count(usage: Json, *path: str) -> int:
    """Read a number of tokens at a path into a usage block; what is absent or null is 0.

    Raises
    ------
    ValueError
        It is no whole number from 0 up, or beyond `MOST_TOK`.
    """
    value = usage
    for key in path:
        if value is None:
            return 0
        if not isinstance(value, Mapping):
            raise ValueError(f"{key} stands in no object")  # noqa: TRY004  # of the provider's value
        value = value.get(key)
    if value is None:
        return 0
    if type(value) is not int or not 0 <= value <= MOST_TOK:
        raise ValueError(f"{'.'.join(path)} is no number of tokens")
    return value


def probable(alternatives: Iterable[tuple[str, float]]) -> tuple[tuple[str, float], ...]:
    """Leave out tokens of probability 0; give none at all where a number is no logarithm of one."""
    possible = tuple(pair for pair in alternatives if pair[1] != -math.inf)
    return possible if all(math.isfinite(log_p) for _, log_p in possible) else ()


def normalised(
    read: Callable[[Json], Usage], usage: Json, *, text: str
) -> tuple[Usage | None, tuple[str, ...]]:
    """Read a usage block and check it; gives the flags of the reply too.

    A usage that contradicts itself counts as missing, so that the hold is charged: a negative
    class, more reasoning than output, no input at all, no output for a text. `read` raises
    ValueError where the provider's own sums don't agree.
    """
    if usage is None:
        return None, ()
    try:
        tokens = read(usage)
    except ValueError:
        return None, ("usage_inconsistent",)
    classes = (
        tokens.input_tok,
        tokens.cached_input_tok,
        tokens.cache_write_5m_tok,
        tokens.cache_write_1h_tok,
    )
    agrees = (
        min(classes) >= 0
        and sum(classes) > 0
        and tokens.output_tok >= (1 if text else 0)
        and 0 <= tokens.reasoning_tok <= tokens.output_tok
    )
    return (tokens, ()) if agrees else (None, ("usage_inconsistent",))


# --- the request -------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Message:
    """One message to a model, texts and pictures in order."""

    role: str
    content: tuple[Text | Image, ...]

    @property
    def text(self) -> str | None:
        """All of it as one text; None where it holds a picture."""
        texts = [part.text for part in self.content if isinstance(part, Text)]
        return "\n\n".join(texts) if len(texts) == len(self.content) else None


def messages(request: Request) -> tuple[Message, ...]:
    """Give a request as a conversation, the stable prefix first so that providers can cache it.

    The first of several parts, if a text, is the system's message and what follows is the user's; a
    conversation keeps its roles. A lone surrogate, which no provider can be sent, becomes U+FFFD.
    """
    said: list[Message] = []
    shown: list[Text | Image] = []
    parts = request.parts
    if len(parts) > 1 and isinstance(parts[0], Text):
        said.append(Message(role="system", content=(_sendable(parts[0].text),)))
        parts = parts[1:]
    for part in parts:
        match part:
            case Text(text=text):
                shown.append(_sendable(text))
            case Image():
                shown.append(part)
            case Chat(turns=turns):
                if shown:
                    said.append(Message(role="user", content=tuple(shown)))
                    shown = []
                said += [
                    Message(role=well_formed(turn.role), content=(_sendable(turn.content),))
                    for turn in turns
                ]
            case _:
                assert_never(part)
    if shown:
        said.append(Message(role="user", content=tuple(shown)))
    return tuple(said)


def _sendable(text: str) -> Text:
    return Text(text=well_formed(text))


# --- connections -------------------------------------------------------------------------------


def clients(
    setting: JudgeSetting, *, auth: httpx2.Auth | None = None
) -> tuple[httpx2.AsyncClient, ...]:
    """Open clients for as many connections as calls may be under way, `MAX_CONNECTIONS` each.

    A client opens more once the user allows more calls (`sortition ctl`): a call that has left must
    not wait for a connection, since its time runs.

    Proxies and certificate authorities are those of the environment (`HTTPS_PROXY`, `NO_PROXY`,
    `SSL_CERT_FILE`, `SSL_CERT_DIR`); certificates are always verified. Redirects are not followed: a
    question goes nowhere but where the campaign says.
    """
    n_clients = -(-setting.concurrency // MAX_CONNECTIONS)
    n_each = -(-setting.concurrency // n_clients)
    verified = _verified(os.environ.get("SSL_CERT_FILE"), os.environ.get("SSL_CERT_DIR"))
    return tuple(
        httpx2.AsyncClient(
            auth=auth,
            limits=httpx2.Limits(max_connections=None, max_keepalive_connections=n_each),
            timeout=httpx2.Timeout(setting.attempt_s, connect=setting.connect_s),
            verify=verified,
        )
        for _ in range(n_clients)
    )


def check_connections() -> None:
    """Check that connections can be made as the environment says; makes none.

    Raises
    ------
    ConfigError
        A certificate authority can't be read, or a proxy's address is none.
    """
    # What went wrong is not quoted: a proxy's address may hold a password.
    try:
        verified = _verified(os.environ.get("SSL_CERT_FILE"), os.environ.get("SSL_CERT_DIR"))
    except OSError as exc:
        raise ConfigError(
            f"SSL_CERT_FILE, SSL_CERT_DIR: no certificates can be read there ({exc.strerror}); "
            "nothing was sent"
        ) from exc
    try:
        httpx2.AsyncClient(verify=verified)
    except (ValueError, ImportError, httpx2.InvalidURL):
        message = "HTTPS_PROXY, HTTP_PROXY, ALL_PROXY: wants http://HOST:PORT; nothing was sent"
        raise ConfigError(message) from None


@lru_cache(maxsize=4)
def _verified(_file: str | None, _folder: str | None) -> ssl.SSLContext:
    """Load the authorities that the environment names: 20 ms and a megabyte, once for all judges."""
    return httpx2.create_ssl_context()


@dataclass(slots=True)
class _Lane(Generic[Client]):
    """One client of the provider, its connections, and how many calls are under way on them."""

    client: Client
    connections: httpx2.AsyncClient
    n_busy: int = 0


class LiveJudge(ABC, Generic[Client]):
    """Speaks to one judge behind a connection.

    Connections are made at the first attempt, and what is imported for them is imported then.
    `base_url` ends without a slash and holds no password: a user and password in the setting's go
    out as Basic authentication, in place of the key.

    Parameters
    ----------
    setting : whom to ask, and how
    secrets : what must not show in any message, besides the key and the password
    added_tok : input tokens that the provider adds to a request by itself, at most

    Raises
    ------
    InvalidCampaign
        The address is no URL of http or https; the key can't stand in a header; `input_bound` is
        not `bytes`.
    """

    home: ClassVar[str]
    """The provider's own address."""
    rules: ClassVar[Sequence[Rule]] = ()
    """What the provider's refusals mean, where that is not what `RULES` say."""
    flags: tuple[str, ...] = ()
    """What every reply is flagged with: the parameters that are left out (`dropped`)."""

    def __init__(
        self, setting: JudgeSetting, *, secrets: Iterable[str] = (), added_tok: int = 0
    ) -> None:
        self._setting = setting
        self._added_tok = added_tok
        self.base_url, self._auth, hidden = _address(setting.base_url or self.home, setting.name)
        if not is_header(setting.api_key):
            raise invalid(setting.name, "api_key", "the key holds what no header can carry")
        self._secrets = Secrets((setting.api_key, *secrets, *hidden))
        self._check_bound()
        self._lanes: list[_Lane[Client]] = []

    def ceiling(self, request: Request, card: PriceCard) -> Nano:
        """Bound one attempt: input by its bytes, output by the limit, hidden reasoning included."""
        return ceiling_cost(self._bound(request), request.max_output_tok, card)

    async def send(self, request: Request) -> Reply:
        """Make exactly one attempt, on the least busy client.

        Raises
        ------
        JudgeError
            No reply; its message is the provider's own, without secrets. Cancellation closes the
            connection and leaves the attempt undecided.
        """
        lane = self._least_busy()
        lane.n_busy += 1
        try:
            answer = await self._ask(lane.client, request)
            try:
                return self._cleared(self._read(answer))
            except (AttributeError, LookupError, RecursionError, TypeError, ValueError):
                failure = unreadable("not of the form that the provider documents")
        except JudgeError as error:
            failure = error
        except httpx2.HTTPError as error:
            failure = lost(error)
        except (json.JSONDecodeError, UnicodeDecodeError):
            failure = unreadable("not JSON")
        except Exception as error:  # noqa: BLE001  # of the provider's package: it ends one attempt, not the run
            failure = JudgeError(f"the client failed: {type(error).__name__}")
        finally:
            lane.n_busy -= 1
        # Raised from outside the handlers: what caused it may quote the key, and a traceback shows
        # causes.
        raise self._scrubbed(failure)

    async def aclose(self) -> None:
        """Close connections; closing again does nothing."""
        lanes, self._lanes = self._lanes, []
        for lane in lanes:
            await lane.connections.aclose()

    @abstractmethod
    def _connect(self, connections: httpx2.AsyncClient) -> Client:
        """Make a client of the provider that uses these connections and never retries."""

    @abstractmethod
    async def _ask(self, client: Client, request: Request) -> Any:
        """Make one attempt and give what `_read` reads.

        Raises
        ------
        JudgeError
            The provider refuses; `_refusal` makes it.
        httpx2.HTTPError
            No complete reply came.
        json.JSONDecodeError
            A complete reply came and is no JSON.
        """

    @abstractmethod
    def _read(self, answer: Any) -> Reply:
        """Read an answer. Pure; any error of a look-up or type means that it is unreadable."""

    def _bound(self, request: Request) -> int:
        return input_bound(request) + self._added_tok

    def _check_bound(self) -> None:
        if self._setting.input_bound != "bytes":
            raise invalid(
                self._setting.name,
                "input_bound",
                "no tokenizer of this provider is published that is proven to count as it bills; "
                "leave input_bound at bytes",
            )

    def _refusal(
        self, status: int, code: str, message: str, headers: Mapping[str, str]
    ) -> JudgeError:
        return classify(self.rules, status, code, message, headers)

    def _least_busy(self) -> _Lane[Client]:
        if not self._lanes:
            self._lanes = [
                _Lane(self._connect(connections), connections)
                for connections in clients(self._setting, auth=self._auth)
            ]
        return min(self._lanes, key=_n_busy)

    def _cleared(self, reply: Reply) -> Reply:
        """Leave out of a reply what no log can hold, and secrets that the server echoes."""
        return replace(
            reply,
            text=self._secrets.masked_reply(well_formed(reply.text)),
            served_model=self._name(reply.served_model),
            request_id=self._name(reply.request_id),
            alternatives=tuple((well_formed(token), lp) for token, lp in reply.alternatives),
        )

    def _name(self, said: Json) -> str:
        return word(self._secrets.masked_reply(said)) if isinstance(said, str) else ""

    def _scrubbed(self, error: JudgeError) -> JudgeError:
        return type(error)(
            # Cut before too: how much a provider says is up to it.
            one_line(self._secrets.masked(str(error)[: 8 * MESSAGE_CHARS]))[:MESSAGE_CHARS],
            billing=error.billing,
            retry_after_s=error.retry_after_s,
            usage=error.usage,
        )


def _n_busy(lane: _Lane[Any]) -> int:
    return lane.n_busy


def lost(error: BaseException | None) -> JudgeError:
    """Say what a failure of the connection means for the attempt and its bill."""
    match error:
        case (
            httpx2.ConnectError()
            | httpx2.ConnectTimeout()
            | httpx2.PoolTimeout()
            | httpx2.ProxyError()
            | httpx2.UnsupportedProtocol()
        ):
            # A proxy that refuses the tunnel has seen nothing of what would have gone through.
            return Unreachable(f"no connection: {_word(error)}")
        case httpx2.TimeoutException():
            return TimedOut(f"no reply in time: {_word(error)}")
        case _:
            return Disconnected(f"the connection broke: {_word(error)}")


def require(module: str, extra: str, judge: str) -> None:
    """Check that a provider's package is there, without importing it.

    Raises
    ------
    InvalidCampaign
        It is not installed.
    """
    if find_spec(module) is None:
        raise invalid(
            judge, "adapter", f"needs a package: python -m pip install 'sortition[{extra}]'"
        )


def invalid(judge: str, key: str, message: str) -> InvalidCampaign:
    """Make the problem of a judge's key in the campaign file."""
    return InvalidCampaign([Problem(path=f"judges.{judge}.{key}", message=message)])


def dropped(names: Iterable[str]) -> tuple[str, ...]:
    """Flag parameters that are left out because the model does not take them."""
    return tuple(f"dropped:{name}" for name in names)


def named(finish: Finish, word: Json) -> tuple[str, ...]:
    """Flag the provider's own word for why a reply ended, if it is one: `blocked:SAFETY`."""
    return (f"{finish}:{word}",) if isinstance(word, str) and word.isidentifier() else ()


def reserved(setting: JudgeSetting, *, also: Collection[str] = ()) -> None:
    """Check that no parameter of one's own sets what is ours to set; `also` are the provider's own.

    Several choices, another limit or another prompt would cost more than was held for the call; a
    stream is not what is read.

    Raises
    ------
    InvalidCampaign
        One does.
    """
    for name in sorted(_RESERVED.union(also).intersection(setting.decoding.extra)):
        raise invalid(setting.name, f"params.extra.{name}", "this is not yours to set")


def is_header_name(text: str) -> bool:
    """Whether a text can stand as the name of an HTTP header (RFC 9110 §5.6.2)."""
    return re.fullmatch(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+", text) is not None


def is_header(text: str) -> bool:
    """Whether a text can stand as the value of an HTTP header: printable ASCII."""
    return text.isascii() and (text == "" or text.isprintable())


def word(said: str) -> str:
    """Give the name that a server has for a model or a call, as one short line."""
    return one_line(said)[:NAME_CHARS]


def one_line(text: str) -> str:
    """Give a text on one line, without control characters."""
    if text.isprintable() and "  " not in text:
        return text.strip()
    return " ".join("".join(c if c.isprintable() else " " for c in text).split())


def _address(url: str, judge: str) -> tuple[str, httpx2.Auth | None, tuple[str, ...]]:
    """Split an address into a URL without user, the authentication, and what is secret of both."""
    try:
        parsed = httpx2.URL(url)
    except httpx2.InvalidURL:
        parsed = httpx2.URL()
    if parsed.scheme not in ("http", "https") or not parsed.host:
        # The address is not quoted: it may hold a password.
        raise invalid(judge, "base_url", "no address that begins with http:// or https://")
    if parsed.query or parsed.fragment:
        raise invalid(judge, "base_url", "an address ends with its path, before any ? or #")
    user, password = parsed.username, parsed.password
    plain = str(parsed.copy_with(username=None, password=None)).rstrip("/")
    if not user and not password:
        return plain, None, ()
    basic = b64encode(f"{user}:{password}".encode()).decode()
    return plain, httpx2.BasicAuth(user, password), (password or user, basic)


def _seconds(text: str) -> float | None:
    if not re.fullmatch(r"[0-9]+(\.[0-9]+)?", text.strip()):
        return None
    seconds = float(text)
    return min(seconds, LONGEST_WAIT_S) if math.isfinite(seconds) else None


_date = parsedate_to_datetime

_RESERVED = frozenset(
    {
        "best_of",
        "input",
        "instructions",
        "max_completion_tokens",
        "max_output_tokens",
        "max_tokens",
        "messages",
        "model",
        "n",
        "response_format",
        "store",
        "stream",
        "tools",
        "tool_choice",
    }
)
"""What of a request's body is not the campaign's to set, in the words of all OpenAI-like formats."""


def _word(error: BaseException | None) -> str:
    return str(error) or type(error).__name__
