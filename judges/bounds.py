"""How many input tokens a request can be counted as, without a tokenizer and without asking.

No tokenizer in use makes more tokens of a text than it has bytes of UTF-8: each of its tokens
stands for one byte or more. What providers add to the text (roles, marks, tool instructions, the
frame of a picture) is bounded by constants.
"""

from __future__ import annotations

import json
from typing import assert_never
from unicodedata import normalize

from orchestrator.core.wire import Chat, Image, Part, Request, Text

MESSAGE_TOK = 16
"""Input tokens beyond its text that a message is given: chat formats spend three to five on the
role and the marks around it."""

IMAGE_TOK = 50_000
"""Input tokens that a picture is given besides its bytes. Providers count its size in pixels, not in
bytes. The dearest rule found is that of gpt-4o-mini: 2,833 tokens and 5,667 for each of at most
eight tiles, 48,169 in all.

Source: platform.openai.com/docs/guides/images-vision, costs of tiled images.
"""


def input_bound(request: Request) -> int:
    """Bound the input tokens of a request: one a byte of its UTF-8, and `MESSAGE_TOK` a message.

    The schema counts as text, since providers show it to the model. What an adapter adds by itself
    comes on top.
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
            return MESSAGE_TOK + IMAGE_TOK + len(data)
        case _:
            assert_never(part)


def _n_bytes(text: str) -> int:
    # Some tokenizers (Anthropic's published one) read a text in form NFKC, where it may be longer:
    # U+FDFA has 3 bytes as it stands and 33 there.
    forms = (text,) if text.isascii() else (text, normalize("NFKC", text))
    # A lone surrogate is sent as U+FFFD, which has three bytes.
    return max(len(form.encode(errors="surrogatepass")) for form in forms)
