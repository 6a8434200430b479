"""The format of Chat Completions, which OpenAI and most other servers speak: request, reply, refusal.

Source: openai 3.57, types/chat; what other servers do otherwise is said where it is read.
"""

from __future__ import annotations

import json
from base64 import b64encode
from collections.abc import Mapping
from typing import Any

import httpx2

from judges.live import Message, count, messages, normalised, probable, unreadable
from orchestrator.core.wire import Finish, Image, Json, Reply, Request, Route, Text, Usage

TOOL = "give_verdict"
"""The function that a judge is made to call on the route `tool`."""

TOOL_SAYS = "Give the verdict."

_FINISH = {
    "stop": Finish.STOP,
    "tool_calls": Finish.STOP,
    "function_call": Finish.STOP,
    "eos_token": Finish.STOP,
    "stop_sequence": Finish.STOP,
    "length": Finish.LENGTH,
    "content_filter": Finish.BLOCKED,
}
"""What a finish reason means. `eos_token` and `stop_sequence` are text-generation-inference's; any
other, as vLLM's `abort`, is no answer."""


def body(request: Request, route: Route, *, max_logprobs: int) -> dict[str, Json]:
    """Write what a request adds to the body: the messages, and the form of the verdict."""
    said: dict[str, Json] = {"messages": [_message(message) for message in messages(request)]}
    match route:
        case Route.SCHEMA:
            form = {"name": TOOL, "strict": True, "schema": request.schema}
            said["response_format"] = {"type": "json_schema", "json_schema": form}
        case Route.TOOL:
            function = {
                "name": TOOL,
                "description": TOOL_SAYS,
                "strict": True,
                "parameters": request.schema,
            }
            said["tools"] = [{"type": "function", "function": function}]
            said["tool_choice"] = {"type": "function", "function": {"name": TOOL}}
            said["parallel_tool_calls"] = False
        case Route.LOGPROB:
            said["logprobs"] = True
            said["top_logprobs"] = max_logprobs
        case _:
            pass
    return said


def read(response: httpx2.Response, *, flags: tuple[str, ...]) -> Reply:
    """Read a reply of status 200.

    Raises
    ------
    JudgeError
        It holds no answer, or breaks off without saying why.
    LookupError, TypeError, ValueError
        It is not of this format.
    """
    said = json.loads(response.content)
    choice = said["choices"][0]
    message = choice["message"]
    text = _text(message)
    usage, doubts = normalised(read_usage, said.get("usage"), text=text)
    finish = _FINISH.get(choice.get("finish_reason"))
    if finish is None:
        raise unreadable("it does not say how it ended", usage)
    return Reply(
        text=text,
        finish=Finish.REFUSED if message.get("refusal") else finish,
        usage=usage,
        served_model=said.get("model") or "",
        request_id=response.headers.get("x-request-id") or said.get("id") or "",
        flags=(*flags, *doubts),
        alternatives=alternatives((choice.get("logprobs") or {}).get("content") or ()),
    )


def read_usage(usage: Json) -> Usage:
    """Read a usage block: prompt tokens include what was read from or written to the cache.

    Completion tokens include reasoning, except with servers whose total says that it comes on top
    (xAI).

    Raises
    ------
    ValueError
        The total is another, or a number of tokens is none.
    """
    prompt, completion = count(usage, "prompt_tokens"), count(usage, "completion_tokens")
    cached = count(usage, "prompt_tokens_details", "cached_tokens")
    written = count(usage, "prompt_tokens_details", "cache_write_tokens")
    reasoning = count(usage, "completion_tokens_details", "reasoning_tokens")
    total = count(usage, "total_tokens")
    output = total - prompt if total else completion
    if output not in (completion, completion + reasoning):
        raise ValueError("prompt and completion don't add up to the total")
    return Usage(
        input_tok=prompt - cached - written,
        cached_input_tok=cached,
        cache_write_5m_tok=written,
        output_tok=output,
        reasoning_tok=reasoning,
    )


def alternatives(tokens: Any) -> tuple[tuple[str, float], ...]:
    """Give the alternatives at the place of the verdict: the first token that is not blank."""
    for token in tokens:
        if token["token"].strip():
            return probable((t["token"], float(t["logprob"])) for t in token["top_logprobs"])
    return ()


def refusal(content: bytes) -> tuple[str, str]:
    """Read the code and the message of an error reply, in whichever form it comes.

    Servers write an object `error`, or its fields alone (vLLM, FastAPI), or a text (Ollama).
    """
    try:
        said = json.loads(content)
    except (ValueError, RecursionError):
        return "", content.decode(errors="replace")
    error = said.get("error", said) if isinstance(said, Mapping) else said
    if not isinstance(error, Mapping):
        return "", error if isinstance(error, str) else ""
    code = " ".join(str(error[key]) for key in ("code", "type") if error.get(key) is not None)
    message = next((error[key] for key in ("message", "detail") if error.get(key)), "")
    return code, message if isinstance(message, str) else json.dumps(message)


def picture(image: Image) -> str:
    """Write a picture as a URL that holds it."""
    return f"data:{image.media_type};base64,{b64encode(image.data).decode()}"


def _message(message: Message) -> dict[str, Json]:
    text = message.text
    content = [_part(part) for part in message.content] if text is None else text
    return {"role": message.role, "content": content}


def _part(part: Text | Image) -> dict[str, Json]:
    match part:
        case Text(text=text):
            return {"type": "text", "text": text}
        case Image():
            return {"type": "image_url", "image_url": {"url": picture(part)}}


def _text(message: Json) -> str:
    """Give what the judge said: the arguments of its call, or else its text."""
    if calls := message.get("tool_calls"):
        return "\n".join(call["function"]["arguments"] for call in calls)
    content = message.get("content")
    match content:
        case str():
            return content
        case list():
            # Mistral's reasoning models say their thoughts in parts of another type.
            return "".join(part["text"] for part in content if part["type"] == "text")
        case _:
            return ""
