"""What a model takes: ways to give a verdict, parameters, probabilities of tokens, prompt caching.

Providers refuse what a model does not take, some with an error for every call, so it is known
before the first one. The table holds facts with their date and source. A model that it does not
hold gets what its adapter's models have in common, and `sortition doctor` asks it.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import date
from types import MappingProxyType

from orchestrator.core.errors import ConfigError
from orchestrator.core.ports import Decoding
from orchestrator.core.wire import Json, Route

AUTO = "auto"
"""The route that lets us choose: the first that the model takes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Capability:
    """What one model takes.

    `routes` stand in order of preference. Never sent are parameters in `refused`, and of those in
    `at_most_one` all but the first that is given. Parameters and routes in `unreasoned` work only
    where the request turns reasoning off. `renamed` maps a parameter's usual name to this model's
    own. `max_logprobs` bounds the alternatives at a token, 0 where there are none.
    `cached_from_tok` is the shortest prefix of a prompt that is cached, in tokens; None if unknown.
    `cache` says who asks for caching and how it is billed. With `is_known` false the model is not
    in the table, and these are its adapter's defaults.
    """

    routes: tuple[Route, ...]
    refused: frozenset[str] = frozenset()
    at_most_one: tuple[str, ...] = ()
    unreasoned: frozenset[str] = frozenset()
    renamed: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    max_logprobs: int = 0
    cached_from_tok: int | None = None
    cache: str = ""
    is_known: bool = True
    as_of: date
    source: str

    def takes(self, name: str, decoding: Decoding) -> bool:
        """Say whether a parameter or a route works together with the rest of a request."""
        return name not in self.refused and (
            name not in self.unreasoned or _is_unreasoned(decoding)
        )


def capability(adapter: str, model: str) -> Capability:
    """Look up what a model takes; the first row that fits its name holds.

    Adapters without models of their own (mock, recorded, python, plug-ins) take every parameter,
    and any route but logprob.
    """
    default = _DEFAULTS.get(adapter)
    if default is None:
        return _ANY
    name = model.removeprefix("models/").removeprefix("ft:").partition(":")[0]
    for pattern, known in _TABLE.get(adapter, ()):
        if re.fullmatch(f"({pattern}){_DATED}", name):
            return known
    return replace(default, is_known=False)


def decoding_for(
    adapter: str, model: str, decoding: Decoding, *, also_refused: Collection[str] = ()
) -> tuple[dict[str, Json], tuple[str, ...]]:
    """Choose which of temperature, top_p and seed are sent; name those that are left out.

    `also_refused` is what the adapter's own interface has no field for. `decoding.extra` is not
    part of the result: it goes into the body as it stands.

    Raises
    ------
    ConfigError
        Something is left out, and `decoding.is_strict`.
    """
    known = capability(adapter, model)
    given = {
        name: value
        for name in ("temperature", "top_p", "seed")
        if (value := getattr(decoding, name)) is not None
    }
    second = [name for name in known.at_most_one if name in given][1:]
    dropped = tuple(
        name
        for name in given
        if name in also_refused or name in second or not known.takes(name, decoding)
    )
    if dropped and decoding.is_strict:
        raise ConfigError(_refusal(model, dropped, known))
    return {name: value for name, value in given.items() if name not in dropped}, dropped


def resolve_route(adapter: str, model: str, wanted: str, decoding: Decoding | None = None) -> Route:
    """Choose how a model gives its verdict: the wanted route or, for `auto`, the first it takes.

    `auto` never chooses logprob, which asks another question: for a label without reasons.

    Raises
    ------
    ValueError
        The model can't give its verdict in the wanted way.
    """
    known = capability(adapter, model)
    decoding = decoding or Decoding()
    routes = [route for route in known.routes if known.takes(route, decoding)]
    if wanted == AUTO:
        return next(route for route in routes if route is not Route.LOGPROB)
    if wanted in routes:
        return Route(wanted)
    who = f"{adapter} {model}".rstrip()
    hint = ""
    if wanted in known.routes and wanted in known.unreasoned:
        hint = ", and this one where params.extra turns reasoning off (reasoning_effort: none)"
    raise ValueError(f"{who} can't give a verdict by {wanted}; it takes {', '.join(routes)}{hint}")


def _is_unreasoned(decoding: Decoding) -> bool:
    """Say whether a request turns reasoning off, in words of Chat Completions or of Responses."""
    reasoning = decoding.extra.get("reasoning")
    effort = reasoning.get("effort") if isinstance(reasoning, Mapping) else None
    return "none" in (effort, decoding.extra.get("reasoning_effort"))


def _refusal(model: str, names: Sequence[str], known: Capability) -> str:
    what = ", ".join(names)
    hint = ""
    if known.unreasoned.intersection(names):
        hint = " unless params.extra turns reasoning off (reasoning_effort: none)"
    return (
        f"{model} does not take {what}{hint} (as of {known.as_of}, {known.source}); take {what} "
        "out of params, or leave strict_params out, and it is dropped with a warning"
    )


# --- the table ---------------------------------------------------------------------------------

_DATED = r"(-\d{4}-\d{2}-\d{2}|-\d{8}|-latest|@\d{8})?"
"""What may follow a model's name and does not change what it takes: the date of a snapshot."""

_SAMPLING = frozenset({"temperature", "top_p"})
_FORCED = (Route.SCHEMA, Route.TOOL, Route.TEXT)
_TEXTUAL = (Route.SCHEMA, Route.TEXT)

_ANY = Capability(routes=_FORCED, as_of=date(2026, 11, 30), source="the adapter's own business")

_OPENAI = Capability(
    routes=_FORCED,
    refused=_SAMPLING,
    renamed=MappingProxyType({"max_tokens": "max_completion_tokens"}),
    cached_from_tok=1024,
    cache="without being asked; reads are cheaper, writes cost as plain input",
    as_of=date(2026, 11, 30),
    source="openai 3.57, chat/completion_create_params; developers.openai.com prompt-caching",
)
_OPENAI_CHAT = replace(
    _OPENAI, routes=(*_FORCED, Route.LOGPROB), refused=frozenset(), max_logprobs=20
)
_OPENAI_CACHE_WRITES = (
    "without being asked; reads are cheaper, writes cost 1.25 times as much as plain input"
)

_ANTHROPIC = Capability(
    routes=_FORCED,
    refused=_SAMPLING | {"seed"},
    cache="where cache_control asks for it; writes dearer than plain input, reads cheaper",
    as_of=date(2026, 11, 30),
    source="anthropic 2.14, message_create_params has no temperature, top_p, seed or logprobs",
)
_CLAUDE_4_5 = replace(
    _ANTHROPIC,
    refused=frozenset({"seed"}),
    at_most_one=("temperature", "top_p"),
    source="platform.claude.com structured-outputs, prompt-caching; 400 for both samplers at once",
)
_CLAUDE_UNFORCED = replace(
    _ANTHROPIC,
    routes=_TEXTUAL,
    source="platform.claude.com models/opus-5-5, sonnet-5-5 and fable-5-1 migration guides: "
    "a forced tool_choice returns 400",
)

_GOOGLE = Capability(
    routes=_FORCED,
    refused=_SAMPLING,
    cached_from_tok=4096,
    cache="without being asked; reads are cheaper, writes cost as plain input",
    as_of=date(2026, 11, 30),
    source="ai.google.dev whats-new-gemini-3.6: sampling is ignored, an error in later models; "
    "ai.google.dev caching",
)
_GEMINI_SAMPLED = replace(
    _GOOGLE, refused=frozenset(), source="google-genai 3.6.1, types; ai.google.dev caching"
)

_COMPATIBLE = Capability(
    routes=(*_FORCED, Route.LOGPROB),
    max_logprobs=20,
    cache="the server's own business",
    as_of=date(2026, 11, 30),
    source="the dialect of Chat Completions; servers differ",
)

_DEFAULTS: Mapping[str, Capability] = {
    "openai": _OPENAI,
    "anthropic": _ANTHROPIC,
    "google": _GOOGLE,
    "compatible": _COMPATIBLE,
}

_TABLE: Mapping[str, Sequence[tuple[str, Capability]]] = {
    "openai": (
        (
            r"gpt-3\.5-turbo(-16k|-\d{4})*|gpt-4(-32k|-\d{4})*|gpt-4-turbo|gpt-4o-2024-05-13",
            replace(
                _OPENAI_CHAT,
                routes=(Route.TOOL, Route.TEXT, Route.LOGPROB),
                source="developers.openai.com structured-outputs: from gpt-4o-2024-08-06 on",
            ),
        ),
        (r"gpt-4o(-mini)?|gpt-4\.1(-mini|-nano)?", _OPENAI_CHAT),
        (
            r"o[134](-mini|-pro)?|gpt-5(-mini|-nano|-pro)?",
            replace(_OPENAI, source="developers.openai.com reasoning: sampling is not supported"),
        ),
        (
            r"gpt-5\.[124](-mini|-nano)?",
            replace(
                _OPENAI_CHAT,
                unreasoned=_SAMPLING | {Route.LOGPROB},
                source="developers.openai.com latest-model: sampling and logprobs at effort none",
            ),
        ),
        (
            r"gpt-5\.5(-pro)?",
            replace(_OPENAI, source="developers.openai.com reasoning: sampling is not supported"),
        ),
        (
            r"gpt-5\.6-(sol|terra|luna)|gpt-6-(sol|luna)|gpt-6\.1-terra",
            replace(
                _OPENAI,
                unreasoned=frozenset({Route.TOOL}),
                cache=_OPENAI_CACHE_WRITES,
                source="developers.openai.com latest-model: tools in Chat Completions at effort none",
            ),
        ),
        (
            r"gpt-6-astra|gpt-6\.1-sol|gpt-6\.2-(astra|sol)",
            replace(
                _OPENAI,
                routes=_TEXTUAL,
                cache=_OPENAI_CACHE_WRITES,
                source="developers.openai.com models/gpt-6-astra: no effort none, so neither "
                "sampling, logprobs nor tools in Chat Completions",
            ),
        ),
    ),
    "anthropic": (
        (r"claude-(opus|sonnet|haiku)-5-5|claude-(fable|mythos)-5-[12]", _CLAUDE_UNFORCED),
        (r"claude-(opus|fable|mythos)-5", replace(_ANTHROPIC, cached_from_tok=512)),
        (r"claude-sonnet-5|claude-opus-4-8", replace(_ANTHROPIC, cached_from_tok=1024)),
        (r"claude-opus-4-7", replace(_ANTHROPIC, cached_from_tok=2048)),
        (r"claude-(opus-4-[56]|haiku-4-5)", replace(_CLAUDE_4_5, cached_from_tok=4096)),
        (r"claude-sonnet-4-6", replace(_CLAUDE_4_5, cached_from_tok=2048)),
        (r"claude-sonnet-4-5", replace(_CLAUDE_4_5, cached_from_tok=1024)),
    ),
    "google": (
        (
            r"gemini-2\.5-(flash|pro)",
            replace(
                _GEMINI_SAMPLED,
                routes=(*_FORCED, Route.LOGPROB),
                max_logprobs=20,
                cached_from_tok=2048,
            ),
        ),
        (r"gemini-2\.5-flash-lite", replace(_GEMINI_SAMPLED, cached_from_tok=2048)),
        (r"gemini-3(-flash|-pro|\.1-pro)-preview|gemini-3\.1-flash-lite", _GEMINI_SAMPLED),
        (r"gemini-3\.5-flash", _GEMINI_SAMPLED),
        (r"gemini-3\.5-flash-lite|gemini-3\.[678]-flash", _GOOGLE),
    ),
}
