"""Claude, by Anthropic's Messages API.

The SDK carries the request; the answer is read as the JSON that came. The SDK's own models take any
shape for the right one, so what was never sent and what is wrong would look alike.
"""

from __future__ import annotations

import json
from base64 import b64encode
from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, ClassVar, Literal

import httpx2
from pydantic import BaseModel, ConfigDict

from judges.capabilities import decoding_for
from judges.chat_completions import TOOL, TOOL_SAYS
from judges.live import (
    LiveJudge,
    Message,
    Rule,
    count,
    dropped,
    lost,
    messages,
    named,
    normalised,
    require,
    reserved,
    unreadable,
)
from orchestrator.core.errors import BadCredentials, QuotaExhausted
from orchestrator.core.money import Nano, PriceCard, ceiling_cost
from orchestrator.core.ports import JudgeSetting, Plugin
from orchestrator.core.wire import Finish, Image, Json, Reply, Request, Route, Text, Usage

if TYPE_CHECKING:
    from anthropic import AsyncAnthropic

ADDED_TOK = 1_060
"""Input tokens that the provider adds for a tool or a schema, at most: twice the largest published.

The system prompt that comes with tools has 530 tokens at most; that of a schema is said to be
short, and not counted out.

Source: docs.anthropic.com/docs/tool-use-pricing-and-tokens; platform.claude.com structured-outputs.
"""

_OURS = ("system", "cache_control", "container", "mcp_servers", "speed", "inference_geo")
"""Parameters that change the prompt or the price besides those that are ours everywhere.

Source: platform.claude.com pricing: fast mode and data residency multiply prices, servers' own
tools and containers are billed by other units.
"""

_FINISH = {
    "end_turn": Finish.STOP,
    "stop_sequence": Finish.STOP,
    "tool_use": Finish.STOP,
    "max_tokens": Finish.LENGTH,
    "model_context_window_exceeded": Finish.LENGTH,
    "refusal": Finish.REFUSED,
}
"""What a stop reason means. `pause_turn`, which only the provider's own tools bring, is no answer.

Source: anthropic 2.14, types/message.
"""

_TAKEN = frozenset({"type", "enum", "const", "required", "title", "description"})
"""Keywords of JSON Schema that a structured output takes as they stand.

Source: anthropic 2.14, lib/_parse/_transform; platform.claude.com structured-outputs.
"""


class AnthropicConfig(BaseModel):
    """The key `anthropic` of a judge.

    `cache` is how long the provider keeps the stable prefix of the prompts: `5m` writes it at 1.25
    times the price of input and reads it at a tenth, `1h` writes it at twice the price, `none`
    does not ask for it. A prefix shorter than the model's minimum (512 to 4096 tokens) is not
    cached and costs plain input, so that `5m` only ever loses where one prefix is used once.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    cache: Literal["none", "5m", "1h"] = "5m"


class AnthropicJudge(LiveJudge["AsyncAnthropic"]):
    """Asks a Claude model, one attempt a call.

    Raises
    ------
    InvalidCampaign
        As `LiveJudge`; the SDK is not installed; `params.extra` sets what is ours to set.
    ConfigError
        A parameter that the model refuses is set, under `strict_params`.
    """

    home: ClassVar[str] = "https://api.anthropic.com"
    rules: ClassVar = (
        Rule(
            statuses=(429,),
            words=("enforced_spend_limit_reached", "contract_spend_limit_reached"),
            error=QuotaExhausted,
            source="anthropic 2.14, types/shared/*_spend_limit_reached_error: until next month",
        ),
        Rule(
            statuses=(400,),
            words=("api usage limits",),
            error=QuotaExhausted,
            source="platform.claude.com api/errors: a spend limit of one's own, as a 400",
        ),
        Rule(
            statuses=(400,),
            words=("organization_on_hold",),
            error=BadCredentials,
            source="anthropic 2.14, types/shared/organization_on_hold_error",
        ),
    )

    def __init__(self, config: AnthropicConfig, setting: JudgeSetting) -> None:
        require("anthropic", "anthropic", setting.name)
        super().__init__(setting, added_tok=ADDED_TOK)
        reserved(setting, also=_OURS)
        self._cache = config.cache
        sampling, left_out = decoding_for("anthropic", setting.model, setting.decoding)
        self.flags = dropped(left_out)
        self._fixed = {**setting.decoding.extra, **sampling, "model": setting.model}

    def ceiling(self, request: Request, card: PriceCard) -> Nano:
        """Bound one attempt, at the price of a cache write only where one is asked for."""
        is_marked = self._is_marked(request)
        own = replace(
            card,
            cache_write_5m=card.cache_write_5m if is_marked else 0,
            cache_write_1h=card.cache_write_1h if is_marked and self._cache == "1h" else 0,
        )
        return ceiling_cost(self._bound(request), request.max_output_tok, own)

    def body(self, request: Request) -> dict[str, Json]:
        """Write the body of a request."""
        said = messages(request)
        body: dict[str, Json] = {
            **self._fixed,
            "max_tokens": request.max_output_tok,
            "messages": [_message(m) for m in said if m.role != "system"],
        }
        system = [block for m in said if m.role == "system" for block in _blocks(m)]
        if system:
            body["system"] = system
            if self._is_marked(request):
                # What stands before the mark is cached with it: a tool comes before the system.
                system[0]["cache_control"] = {"type": "ephemeral", "ttl": self._cache}
        match self._setting.route:
            case Route.SCHEMA:
                form = {"type": "json_schema", "schema": self._schema(request)}
                # `effort` stands in the same object.
                body["output_config"] = {**body.get("output_config", {}), "format": form}
            case Route.TOOL:
                tool = {"name": TOOL, "description": TOOL_SAYS}
                body["tools"] = [{**tool, "input_schema": self._schema(request)}]
                body["tool_choice"] = {
                    "type": "tool",
                    "name": TOOL,
                    "disable_parallel_tool_use": True,
                }
            case _:
                pass
        return body

    def _connect(self, connections: httpx2.AsyncClient) -> AsyncAnthropic:
        from anthropic import AsyncAnthropic  # noqa: PLC0415  # 1 s, and only where it is named

        return AsyncAnthropic(
            # Always given: without a key the SDK looks for others in the environment and in files.
            api_key=self._setting.api_key,
            base_url=self.base_url,
            # The SDK would take a timeout like the one of httpx2 for none given, and put its own.
            timeout=connections.timeout,
            max_retries=0,
            http_client=connections,
            # Spans are for whoever traces; nobody here asked for them.
            open_telemetry=False,
        )

    async def _ask(self, client: AsyncAnthropic, request: Request) -> httpx2.Response:
        from anthropic import APIConnectionError, APIStatusError  # noqa: PLC0415  # see _connect

        try:
            return await client.post(
                "/v1/messages", cast_to=httpx2.Response, body=self.body(request)
            )
        except APIStatusError as refused:
            code = f"{refused.type} {refused.error_code}"
            said = refused.api_message if isinstance(refused.api_message, str) else ""
            raise self._refusal(
                refused.status_code, code, said, refused.response.headers
            ) from refused
        except APIConnectionError as broken:
            raise lost(broken.__cause__) from broken

    def _read(self, answer: httpx2.Response) -> Reply:
        body = json.loads(answer.content)
        reason, blocks = body["stop_reason"], body["content"]
        text = "".join(block["text"] for block in blocks if block["type"] == "text")
        called = [block["input"] for block in blocks if block["type"] == "tool_use"]
        if self._setting.route is Route.TOOL and called:
            text = "\n".join(json.dumps(given, ensure_ascii=False) for given in called)
        usage, flags = normalised(self._usage, body.get("usage"), text=text)
        finish = _FINISH.get(reason)
        if finish is None:
            # Without a reason the answer is cut, and so may be its usage.
            raise unreadable("no known stop reason", usage if reason else None)
        if finish is Finish.REFUSED:
            details = body.get("stop_details") or {}
            flags = (*flags, *named(finish, details.get("category")))
        elif finish is Finish.STOP and not text.strip():
            finish = Finish.EMPTY
        return Reply(
            text=text,
            finish=finish,
            usage=usage,
            served_model=body.get("model") or "",
            request_id=answer.headers.get("request-id") or body.get("id") or "",
            flags=(*self.flags, *flags),
        )

    def _usage(self, usage: Json) -> Usage:
        """Read a usage block: input excludes what was read from or written to the cache.

        Where it does not say how long a written prefix is kept, it is as long as was asked for.
        """
        written = count(usage, "cache_creation_input_tokens")
        for_5m = count(usage, "cache_creation", "ephemeral_5m_input_tokens")
        for_1h = count(usage, "cache_creation", "ephemeral_1h_input_tokens")
        if usage.get("cache_creation") is None:
            for_5m, for_1h = (written, 0) if self._cache == "5m" else (0, written)
        if for_5m + for_1h != written:
            raise ValueError("cache writes don't add up")
        return Usage(
            input_tok=count(usage, "input_tokens"),
            cached_input_tok=count(usage, "cache_read_input_tokens"),
            cache_write_5m_tok=for_5m,
            cache_write_1h_tok=for_1h,
            output_tok=count(usage, "output_tokens"),
            reasoning_tok=count(usage, "output_tokens_details", "thinking_tokens"),
        )

    def _is_marked(self, request: Request) -> bool:
        """Whether the provider is asked to keep a prefix; what is one part alone has none."""
        return self._cache != "none" and len(request.parts) > 1

    def _bound(self, request: Request) -> int:
        return super()._bound(replace(request, schema=self._schema(request)))

    def _schema(self, request: Request) -> dict[str, Json]:
        return taken(request.schema) if self._setting.route is Route.SCHEMA else request.schema


def taken(schema: Mapping[str, Json]) -> dict[str, Json]:
    """Give a schema in the keywords that a structured output takes.

    What it does not take (the bounds of a number) goes into the description, where the model sees
    it; a list of types becomes an `anyOf`.
    """
    kinds = schema.get("type")
    if isinstance(kinds, list):
        rest = {key: value for key, value in schema.items() if key not in ("type", "description")}
        forms = [taken({"type": kind} | ({} if kind == "null" else rest)) for kind in kinds]
        return {"anyOf": forms} | {k: v for k, v in schema.items() if k == "description"}
    kept: dict[str, Json] = {}
    left = []
    for key, value in schema.items():
        match key:
            case "properties":
                kept[key] = {name: taken(inner) for name, inner in value.items()}
            case "items":
                kept[key] = taken(value)
            case "anyOf":
                kept[key] = [taken(inner) for inner in value]
            case "additionalProperties":
                kept[key] = False
            case "minItems" if value in (0, 1):
                kept[key] = value
            case _ if key in _TAKEN:
                kept[key] = value
            case _:
                left.append(f"{key}: {value}")
    if left:
        also = [kept["description"]] if "description" in kept else []
        kept["description"] = "\n\n".join([*also, f"{{{', '.join(left)}}}"])
    return kept


def _message(message: Message) -> dict[str, Json]:
    return {"role": message.role, "content": _blocks(message)}


def _blocks(message: Message) -> list[dict[str, Json]]:
    return [_block(part) for part in message.content]


def _block(part: Text | Image) -> dict[str, Json]:
    match part:
        case Text(text=text):
            return {"type": "text", "text": text}
        case Image(media_type=kind, data=data):
            source = {"type": "base64", "media_type": kind, "data": b64encode(data).decode()}
            return {"type": "image", "source": source}


PLUGIN = Plugin(config=AnthropicConfig, build=AnthropicJudge)
