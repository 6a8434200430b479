"""Gemini, by Google's Gemini API.

The SDK carries the request; the answer is read as the JSON that came. The SDK's own models warn of
words that they do not know yet, and take what is missing for what was never sent.
"""

from __future__ import annotations

import json
import re
import ssl
from base64 import b64encode
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, ClassVar

import httpx2
from pydantic import BaseModel, ConfigDict, Field

from judges.capabilities import capability, decoding_for
from judges.chat_completions import TOOL, TOOL_SAYS
from judges.live import (
    LiveJudge,
    Message,
    Rule,
    count,
    dropped,
    invalid,
    messages,
    named,
    normalised,
    probable,
    require,
    reserved,
    unreadable,
)
from orchestrator.core.errors import (
    LONGEST_WAIT_S,
    BadCredentials,
    JudgeError,
    Overloaded,
    QuotaExhausted,
    TooLong,
)
from orchestrator.core.ports import JudgeSetting, Plugin
from orchestrator.core.wire import Finish, Image, Json, Reply, Request, Route, Text, Usage

if TYPE_CHECKING:
    from google.genai.client import AsyncClient

ADDED_TOK = 512
"""Input tokens that the provider adds by itself, at most: marks of turns, the frame of a function or
of a schema. It publishes no number; this is as much as the longest prompt for tools that another
provider does publish (Anthropic, 530 where the tool is not forced, 340 where it is).
"""

_BLOCKED = frozenset(
    {
        "SAFETY",
        "RECITATION",
        "LANGUAGE",
        "BLOCKLIST",
        "PROHIBITED_CONTENT",
        "SPII",
        "IMAGE_SAFETY",
        "IMAGE_PROHIBITED_CONTENT",
        "IMAGE_RECITATION",
        "ESCALATION",
        "PUP_LIMITED_DISABLED",
        "MODEL_ARMOR",
    }
)
"""Finish reasons that are a filter's. Source: google-genai 3.6.1, types.FinishReason."""

_CUT = frozenset({"MAX_TOKENS", "CONTINUATION"})

_OURS = (
    "cachedContent",
    "cached_content",
    "contents",
    "continuationToken",
    "generation_config",
    "serviceTier",
    "service_tier",
    "systemInstruction",
    "system_instruction",
    "toolConfig",
    "tool_config",
)
_OURS_OF_GENERATION = frozenset(
    {"candidateCount", "candidate_count", "maxOutputTokens", "max_output_tokens"}
)
"""Parameters that change the prompt or the price besides those that are ours everywhere. The API
reads two spellings of each; of what it nests, only that of its own documentation is merged."""

_NAMES = {"top_p": "topP"}


class GoogleConfig(BaseModel):
    """The key `google` of a judge: `api_version` is the part of the path before the model."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    api_version: str = Field(default="v1beta", pattern=r"^v[0-9a-z]+$")


class GoogleJudge(LiveJudge["AsyncClient"]):
    """Asks a Gemini model, one attempt a call.

    The output limit includes thoughts: `params.extra` can bound those by
    ``{generationConfig: {thinkingConfig: {thinkingBudget: 0}}}``, where the model lets one.

    Raises
    ------
    InvalidCampaign
        As `LiveJudge`; the SDK is not installed; `params.extra` sets what is ours to set.
    ConfigError
        A parameter that the model refuses is set, under `strict_params`.
    """

    home: ClassVar[str] = "https://generativelanguage.googleapis.com"
    rules: ClassVar = (
        Rule(
            statuses=(400,),
            words=("api_key_invalid", "api key not valid", "api key expired"),
            error=BadCredentials,
            source="ai.google.dev troubleshooting: a bad key is a 400 with reason API_KEY_INVALID",
        ),
        Rule(
            statuses=(400,),
            words=("failed_precondition",),
            error=QuotaExhausted,
            source="ai.google.dev troubleshooting: no free tier in this country, and no billing",
        ),
        Rule(
            statuses=(400,),
            words=("input token count", "exceeds the maximum number of tokens"),
            error=TooLong,
            source="the API's message for a prompt beyond the model's context",
        ),
        Rule(
            statuses=(429,),
            words=("perday", "spending cap", "spend cap", "prepay", "credits are depleted"),
            error=QuotaExhausted,
            source="ai.google.dev rate-limits and billing: the quota of a day, the cap of a month "
            "and prepaid credit do not come back within a run; quotaId names the first",
        ),
        Rule(
            statuses=(500,),
            error=Overloaded,
            source="ai.google.dev billing: 'If your request fails with a 400 or 500 error, you "
            "won't be charged for the tokens used'",
        ),
    )

    def __init__(self, config: GoogleConfig, setting: JudgeSetting) -> None:
        require("google.genai", "google", setting.name)
        super().__init__(setting, added_tok=ADDED_TOK)
        self._extra = _checked(setting)
        self._api_version = config.api_version
        sampling, left_out = decoding_for("google", setting.model, setting.decoding)
        self.flags = dropped(left_out)
        self._sampling = {_NAMES.get(name, name): value for name, value in sampling.items()}
        self._max_logprobs = capability("google", setting.model).max_logprobs

    def body(self, request: Request) -> dict[str, Json]:
        """Write the body of a request."""
        said = messages(request)
        generation: dict[str, Json] = {
            **self._extra.get("generationConfig", {}),
            **self._sampling,
            "maxOutputTokens": request.max_output_tok,
        }
        body: dict[str, Json] = {
            **self._extra,
            "contents": [_content(message) for message in said if message.role != "system"],
            "generationConfig": generation,
            # No log of the prompts is kept in the project.
            "store": False,
        }
        system = [part for m in said if m.role == "system" for part in _parts(m)]
        if system:
            body["systemInstruction"] = {"parts": system}
        match self._setting.route:
            case Route.SCHEMA:
                generation["responseMimeType"] = "application/json"
                generation["responseJsonSchema"] = request.schema
            case Route.TOOL:
                function = {"name": TOOL, "description": TOOL_SAYS}
                body["tools"] = [
                    {"functionDeclarations": [{**function, "parametersJsonSchema": request.schema}]}
                ]
                body["toolConfig"] = {
                    "functionCallingConfig": {"mode": "ANY", "allowedFunctionNames": [TOOL]}
                }
            case Route.LOGPROB:
                generation["responseLogprobs"] = True
                generation["logprobs"] = self._max_logprobs
            case _:
                pass
        return body

    def _connect(self, connections: httpx2.AsyncClient) -> AsyncClient:
        from google.genai import Client  # noqa: PLC0415  # 0.5 s, and only where it is named
        from google.genai.types import HttpOptions, HttpRetryOptions  # noqa: PLC0415

        async def hurry(request: httpx2.Request) -> None:
            # The SDK has one time for all: that of the attempt.
            request.extensions["timeout"]["connect"] = self._setting.connect_s

        async def refuse(response: httpx2.Response) -> None:
            # Before the SDK reads an error reply, which it can't if that is no JSON of its own form.
            if response.status_code != httpx2.codes.OK:
                await response.aread()
                raise self._refused(response)

        # For clients that the SDK makes besides and never uses: its own would load all authorities.
        idle = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        connections.event_hooks = {"request": [hurry], "response": [refuse]}
        return Client(
            # Always given: without them the SDK looks for others in the environment.
            vertexai=False,
            api_key=self._setting.api_key or "none",
            http_options=HttpOptions(
                base_url=self.base_url,
                api_version=self._api_version,
                timeout=round(1000 * self._setting.attempt_s),
                httpx_async_client=connections,
                client_args={"verify": idle},
                async_client_args={"ssl": idle},
                # Without it the SDK repeats some failures of its own accord.
                retry_options=HttpRetryOptions(attempts=1),
            ),
        ).aio

    async def _ask(self, client: AsyncClient, request: Request) -> str:
        from google.genai.types import (  # noqa: PLC0415  # see _connect
            AutomaticFunctionCallingConfig,
            GenerateContentConfig,
            HttpOptions,
        )

        body = self.body(request)
        response = await client.models.generate_content(
            model=self._setting.model,
            contents=body.pop("contents"),
            config=GenerateContentConfig(
                http_options=HttpOptions(extra_body=body),
                should_return_http_response=True,
                # Both would send further requests, each of them billed.
                automatic_continuation=False,
                automatic_function_calling=AutomaticFunctionCallingConfig(disable=True),
            ),
        )
        reply = response.sdk_http_response
        return (reply.body if reply is not None else None) or ""

    def _refused(self, response: httpx2.Response) -> JudgeError:
        error = _error(response.content)
        details = _objects(error.get("details"))
        code = " ".join([str(error.get("status", "")), *_reasons(details)])
        message = error.get("message")
        refusal = self._refusal(
            response.status_code,
            code.strip(),
            message if isinstance(message, str) else "",
            response.headers,
        )
        waits = [refusal.retry_after_s, *map(_delay_s, details)]
        refusal.retry_after_s = max((wait for wait in waits if wait is not None), default=None)
        return refusal

    def _read(self, body: str) -> Reply:
        answer = json.loads(body)
        candidates = answer.get("candidates")
        candidate = candidates[0] if candidates else {}
        text = _text(candidate)
        usage, doubts = normalised(read_usage, answer.get("usageMetadata"), text=text)
        finish, why = _finish(answer, candidate, text, usage)
        return Reply(
            text=text,
            finish=finish,
            usage=usage,
            served_model=answer.get("modelVersion") or "",
            request_id=answer.get("responseId") or "",
            flags=(*self.flags, *doubts, *why),
            alternatives=_alternatives(candidate.get("logprobsResult") or {}),
        )


def read_usage(usage: Json) -> Usage:
    """Read a usage block.

    The prompt includes what was read from the cache, and not what tools put in; thoughts are output
    besides the candidates.

    Raises
    ------
    ValueError
        The total is another, or a number of tokens is none.

    Source: google-genai 3.6.1, types.GenerateContentResponseUsageMetadata.
    """
    prompt, cached = count(usage, "promptTokenCount"), count(usage, "cachedContentTokenCount")
    by_tools = count(usage, "toolUsePromptTokenCount")
    said, thought = count(usage, "candidatesTokenCount"), count(usage, "thoughtsTokenCount")
    total = count(usage, "totalTokenCount")
    if total not in (0, prompt + by_tools + said + thought):
        raise ValueError("the classes don't add up to the total")
    return Usage(
        input_tok=prompt - cached + by_tools,
        cached_input_tok=cached,
        output_tok=said + thought,
        reasoning_tok=thought,
    )


def _checked(setting: JudgeSetting) -> Mapping[str, Json]:
    """Give the parameters of one's own, none of which is ours to set."""
    reserved(setting, also=_OURS)
    extra = setting.decoding.extra
    generation = extra.get("generationConfig", {})
    if not isinstance(generation, Mapping):
        raise invalid(setting.name, "params.extra.generationConfig", "wants a mapping")
    for name in sorted(_OURS_OF_GENERATION.intersection(generation)):
        key = f"params.extra.generationConfig.{name}"
        raise invalid(setting.name, key, "this is not yours to set")
    return extra


def _finish(
    answer: Json, candidate: Json, text: str, usage: Usage | None
) -> tuple[Finish, tuple[str, ...]]:
    """Say how a reply ended and, where a filter or an accident ended it, by which of its names."""
    if not candidate:
        why = (answer.get("promptFeedback") or {}).get("blockReason")
        return (Finish.BLOCKED, named(Finish.BLOCKED, why)) if why else (Finish.EMPTY, ())
    match candidate.get("finishReason"):
        case None | "FINISH_REASON_UNSPECIFIED":
            # Without a reason the answer is cut, and so may be its usage.
            raise unreadable("it does not say how it ended")
        case "STOP":
            return (Finish.STOP if text.strip() else Finish.EMPTY), ()
        case reason if reason in _CUT:
            return Finish.LENGTH, ()
        case reason if reason in _BLOCKED:
            return Finish.BLOCKED, named(Finish.BLOCKED, reason)
        case str() as reason:
            # OTHER, a call of no form, a word of the future: what there is of text is no verdict.
            return Finish.EMPTY, named(Finish.EMPTY, reason)
        case _:
            raise unreadable("it does not say how it ended", usage)


def _text(candidate: Json) -> str:
    """Give what the judge said: the arguments of its call, or else its text without thoughts."""
    parts = (candidate.get("content") or {}).get("parts") or ()
    calls = [part["functionCall"].get("args") for part in parts if part.get("functionCall")]
    if calls:
        return "\n".join(json.dumps(given or {}, ensure_ascii=False) for given in calls)
    return "".join(part.get("text") or "" for part in parts if not part.get("thought"))


def _alternatives(result: Json) -> tuple[tuple[str, float], ...]:
    """Give the alternatives at the place of the verdict: the first token that is not blank."""
    places = zip(
        result.get("chosenCandidates") or (), result.get("topCandidates") or (), strict=False
    )
    for chosen, top in places:
        if chosen["token"].strip():
            return probable((t["token"], float(t["logProbability"])) for t in top["candidates"])
    return ()


def _content(message: Message) -> dict[str, Json]:
    role = "model" if message.role == "assistant" else message.role
    return {"role": role, "parts": _parts(message)}


def _parts(message: Message) -> list[dict[str, Json]]:
    return [_part(part) for part in message.content]


def _part(part: Text | Image) -> dict[str, Json]:
    match part:
        case Text(text=text):
            return {"text": text}
        case Image(media_type=kind, data=data):
            return {"inlineData": {"mimeType": kind, "data": b64encode(data).decode()}}


def _error(content: bytes) -> Mapping[str, Json]:
    """Read the error object of a reply; an empty one where there is none."""
    try:
        said = json.loads(content)
    except (ValueError, RecursionError):
        return {}
    if isinstance(said, list) and len(said) == 1:
        # So it comes where a stream was asked for, and from some gateways.
        said = said[0]
    error = said.get("error") if isinstance(said, Mapping) else None
    return error if isinstance(error, Mapping) else {}


def _reasons(details: list[Mapping[str, Json]]) -> Iterator[str]:
    """Name what the details of an error say: its reason, and the quotas that were used up."""
    for detail in details:
        if detail.get("reason"):
            yield str(detail["reason"])
        for violation in _objects(detail.get("violations")):
            if violation.get("quotaId"):
                yield str(violation["quotaId"])


def _objects(value: Json) -> list[Mapping[str, Json]]:
    """Give the objects of a list; none where it is no list."""
    return [x for x in value if isinstance(x, Mapping)] if isinstance(value, list) else []


def _delay_s(detail: Mapping[str, Json]) -> float | None:
    """Read how long RetryInfo asks to wait, "34.07s"; None in any other detail."""
    match = re.fullmatch(r"([0-9]+(?:\.[0-9]+)?)s", str(detail.get("retryDelay", "")))
    return min(float(match[1]), LONGEST_WAIT_S) if match else None


PLUGIN = Plugin(config=GoogleConfig, build=GoogleJudge)
