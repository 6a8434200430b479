"""OpenAI's models, by Chat Completions or by Responses.

The SDK carries the request; the answer is read as the JSON that came. The SDK's own models take any
shape for the right one, so what was never sent and what is wrong would look alike.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, ClassVar, Literal

import httpx2
from pydantic import BaseModel, ConfigDict

from judges import chat_completions
from judges.capabilities import capability, decoding_for
from judges.chat_completions import TOOL, TOOL_SAYS, picture
from judges.live import (
    LiveJudge,
    Message,
    Rule,
    count,
    dropped,
    lost,
    messages,
    normalised,
    require,
    reserved,
    unreadable,
)
from orchestrator.core.errors import Blocked
from orchestrator.core.ports import JudgeSetting, Plugin
from orchestrator.core.wire import (
    Billing,
    Finish,
    Image,
    Json,
    Reply,
    Request,
    Route,
    Text,
    Usage,
)

if TYPE_CHECKING:
    from openai import AsyncOpenAI

ADDED_TOK = 256
"""Input tokens allowed for what the provider adds by itself: models that reason get a system message
of some 70 tokens, and a function or a schema is framed in some 20. An allowance, some twice as
large as what is known: no bound is published.

Source: cookbook.openai.com/articles/openai-harmony, the system message of gpt-oss.
"""

_LOGPROBS = "message.output_text.logprobs"


class OpenAIConfig(BaseModel):
    """The key `openai` of a judge: `api` is which of the two interfaces is asked."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    api: Literal["chat", "responses"] = "chat"


class OpenAIJudge(LiveJudge["AsyncOpenAI"]):
    """Asks a model of OpenAI, one attempt a call; nothing is stored at the provider.

    Calls are made in the service tier `default`, whose prices the sheet holds, unless
    `params.extra` names another.

    Raises
    ------
    InvalidCampaign
        As `LiveJudge`; the SDK is not installed; `params.extra` sets what is ours to set.
    ConfigError
        A parameter that the model refuses is set, under `strict_params`.
    """

    home: ClassVar[str] = "https://api.openai.com/v1"
    rules: ClassVar = (
        Rule(
            statuses=(400,),
            words=("content management policy", "content_filter", "responsibleaipolicyviolation"),
            error=Blocked,
            billing=Billing.YES,
            source="learn.microsoft.com azure openai content-filter: a prompt that is filtered with "
            "a 400 is charged, since it was evaluated",
        ),
        Rule(
            statuses=(400,),
            words=("invalid_prompt", "cyber_policy"),
            error=Blocked,
            source="openai 3.57, types/responses/response_error; usage policy of reasoning models",
        ),
    )

    def __init__(self, config: OpenAIConfig, setting: JudgeSetting) -> None:
        require("openai", "openai", setting.name)
        super().__init__(setting, added_tok=ADDED_TOK)
        reserved(setting)
        self._is_chat = config.api == "chat"
        known = capability("openai", setting.model)
        sampling, left_out = decoding_for(
            "openai",
            setting.model,
            setting.decoding,
            also_refused=() if self._is_chat else ("seed",),
        )
        self.flags = dropped(left_out)
        self._max_logprobs = known.max_logprobs
        self._limit = (
            known.renamed.get("max_tokens", "max_tokens") if self._is_chat else "max_output_tokens"
        )
        self._fixed = {
            "service_tier": "default",
            **setting.decoding.extra,
            **sampling,
            "model": setting.model,
            "store": False,
        }

    def body(self, request: Request) -> dict[str, Json]:
        """Write the body of a request."""
        write = chat_completions.body if self._is_chat else responses_body
        if self._setting.model.startswith("ft:"):
            request = replace(request, schema=without_ranges(request.schema))
        form = write(request, self._setting.route, max_logprobs=self._max_logprobs)
        # Parameters of one's own may stand in the same object as the form (text.verbosity).
        for name, value in form.items():
            own = self._fixed.get(name)
            if isinstance(own, Mapping) and isinstance(value, Mapping):
                form[name] = {**own, **value}
        return {**self._fixed, self._limit: request.max_output_tok, **form}

    def _connect(self, connections: httpx2.AsyncClient) -> AsyncOpenAI:
        from openai import AsyncOpenAI  # noqa: PLC0415  # 0.5 s, and only where it is named

        return AsyncOpenAI(
            # Without a key the SDK would refuse to be built; so the provider does it.
            api_key=self._setting.api_key or "none",
            base_url=self.base_url,
            # The SDK would take a timeout like the one of httpx2 for none given, and put its own.
            timeout=connections.timeout,
            max_retries=0,
            http_client=connections,
        )

    async def _ask(self, client: AsyncOpenAI, request: Request) -> httpx2.Response:
        from openai import APIConnectionError, APIStatusError  # noqa: PLC0415  # see _connect

        try:
            return await client.post(
                "/chat/completions" if self._is_chat else "/responses",
                cast_to=httpx2.Response,
                body=self.body(request),
            )
        except APIStatusError as refused:
            response = refused.response
            code, message = chat_completions.refusal(response.content)
            raise self._refusal(response.status_code, code, message, response.headers) from refused
        except APIConnectionError as broken:
            raise lost(broken.__cause__) from broken

    def _read(self, answer: httpx2.Response) -> Reply:
        read = chat_completions.read if self._is_chat else read_response
        return read(answer, flags=self.flags)


def without_ranges(schema: dict[str, Json]) -> dict[str, Json]:
    """Leave the ranges of numbers out of an object's schema: the prompt states them too.

    Strict schemas take all else that a rubric writes, ranges and null included; only fine-tuned
    models refuse ranges.

    Source: developers.openai.com structured-outputs, supported properties.
    """
    match schema:
        case {"properties": dict(properties)}:
            kept = {name: without_ranges(entry) for name, entry in properties.items()}
            return {**schema, "properties": kept}
        case {"items": dict(items)}:
            return {**schema, "items": without_ranges(items)}
        case _:
            return {key: value for key, value in schema.items() if key not in _RANGES}


_RANGES = ("minimum", "maximum")


# --- Responses ---------------------------------------------------------------------------------


def responses_body(request: Request, route: Route, *, max_logprobs: int) -> dict[str, Json]:
    """Write what a request adds to the body of Responses."""
    said: dict[str, Json] = {"input": [_item(message) for message in messages(request)]}
    form = {"name": TOOL, "strict": True}
    match route:
        case Route.SCHEMA:
            said["text"] = {"format": {"type": "json_schema", "schema": request.schema, **form}}
        case Route.TOOL:
            function = {"type": "function", "description": TOOL_SAYS, "parameters": request.schema}
            said["tools"] = [{**function, **form}]
            said["tool_choice"] = {"type": "function", "name": TOOL}
            said["parallel_tool_calls"] = False
        case Route.LOGPROB:
            said["include"] = [_LOGPROBS]
            said["top_logprobs"] = max_logprobs
        case _:
            pass
    return said


def read_response(response: httpx2.Response, *, flags: tuple[str, ...]) -> Reply:
    """Read a reply of Responses of status 200.

    Raises
    ------
    JudgeError
        It holds no answer, or breaks off without saying why.
    LookupError, TypeError, ValueError
        It is not of this format.
    """
    said = json.loads(response.content)
    parts = [
        part
        for item in said["output"]
        if item["type"] == "message" and item.get("phase") != "commentary"
        for part in item["content"]
    ]
    texts = [part for part in parts if part["type"] == "output_text"]
    calls = [item["arguments"] for item in said["output"] if item["type"] == "function_call"]
    text = "\n".join(calls) or "".join(part["text"] for part in texts)
    usage, doubts = normalised(read_responses_usage, said.get("usage"), text=text)
    match said.get("status"), (said.get("incomplete_details") or {}).get("reason"):
        case "completed", _ if any(part["type"] == "refusal" for part in parts):
            finish = Finish.REFUSED
        case "completed", _:
            finish = Finish.STOP
        case "incomplete", "max_output_tokens":
            finish = Finish.LENGTH
        case "incomplete", "content_filter":
            finish = Finish.BLOCKED
        case _:
            raise unreadable("it does not say how it ended", usage)
    return Reply(
        text=text,
        finish=finish,
        usage=usage,
        served_model=said.get("model") or "",
        request_id=response.headers.get("x-request-id") or said.get("id") or "",
        flags=(*flags, *doubts),
        alternatives=chat_completions.alternatives(
            [token for part in texts for token in part.get("logprobs") or ()]
        ),
    )


def read_responses_usage(usage: Json) -> Usage:
    """Read a usage block of Responses: input includes what was read from or written to the cache.

    Raises
    ------
    ValueError
        The total is another, or a number of tokens is none.
    """
    prompt, output = count(usage, "input_tokens"), count(usage, "output_tokens")
    cached = count(usage, "input_tokens_details", "cached_tokens")
    written = count(usage, "input_tokens_details", "cache_write_tokens")
    if count(usage, "total_tokens") not in (0, prompt + output):
        raise ValueError("input and output don't add up to the total")
    return Usage(
        input_tok=prompt - cached - written,
        cached_input_tok=cached,
        cache_write_5m_tok=written,
        output_tok=output,
        reasoning_tok=count(usage, "output_tokens_details", "reasoning_tokens"),
    )


def _item(message: Message) -> dict[str, Json]:
    text = message.text
    content = [_part(part) for part in message.content] if text is None else text
    return {"role": message.role, "content": content}


def _part(part: Text | Image) -> dict[str, Json]:
    match part:
        case Text(text=text):
            return {"type": "input_text", "text": text}
        case Image():
            return {"type": "input_image", "image_url": picture(part), "detail": "auto"}


PLUGIN = Plugin(config=OpenAIConfig, build=OpenAIJudge)
