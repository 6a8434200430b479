"""What a judge is shown: a cell as text, as JSON, or as a conversation."""

from __future__ import annotations

import json
import math
from typing import Any, Literal

from orchestrator.core.wire import Chat, Turn
from orchestrator.wording import seen


def shown(value: object, kind: Literal["text", "json", "chat"], *, is_text: bool) -> str | Chat:
    """Read a cell as a field of some kind.

    `is_text`: the file holds text only, so JSON stands in it as text.

    Raises
    ------
    ValueError
        The cell holds something else; the message says what is wanted.
    """
    match kind:
        case "text":
            return _text(value)
        case "json":
            return _compact(_parsed(value) if is_text and isinstance(value, str) else value)
        case "chat":
            return _chat(_parsed(value) if isinstance(value, str) else value)


def _text(value: object) -> str:
    match value:
        case str():
            return value
        case float() if not math.isfinite(value):
            raise ValueError(f"wants text, not {value}, which is what a table writes for nothing")
        case bool() | int() | float():
            return _compact(value)
        case _:
            raise ValueError(f"wants text, not {seen(value)}; use as: json or as: chat")


def _chat(turns: object) -> Chat:
    match turns:
        case list():
            return Chat(turns=tuple(_turn(turn) for turn in turns))
        case _:
            raise ValueError(f"wants a list of {{role, content}}, not {seen(turns)}")


def _turn(turn: Any) -> Turn:
    match turn:
        case {"role": str(role)}:
            content = turn.get("content")
            parts = content if isinstance(content, list) else [] if content is None else [content]
            lines = [_part(part) for part in parts]
            lines += [_compact(call) for call in turn.get("tool_calls") or ()]
            return Turn(role=role, content="\n".join(lines))
        case _:
            raise ValueError("wants {role, content} for every turn")


def _part(part: object) -> str:
    """Write one part of a turn: text as it is, tool calls and results as JSON."""
    match part:
        case str():
            return part
        case {"type": "text", "text": str(text)}:
            return text
        case {"type": str(kind)} if "image" in kind:
            raise ValueError("holds an image, which a judge can't be shown yet")
        case dict():
            return _compact(part)
        case _:
            raise ValueError(f"wants text in a turn, not {seen(part)}")


def _compact(value: object) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"), default=str)


def _parsed(text: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as exc:
        raise ValueError(f"not readable as JSON: {exc}") from exc
