"""The fence: shows a judge where untrusted text begins and ends.

What an answer under judgment says must never pass for an instruction. Each text therefore stands
between marks that hold a token derived from seed, question and text. A text that guesses the token
gets another one, so no text can close its own fence. A text that tries, or that holds what only a
rubric or a judge should write, is told by `forgery`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from itertools import count

from orchestrator.core.seeds import Seeds
from orchestrator.core.wire import Chat


def fence(material: Mapping[str, str | Chat], *, seeds: Seeds, key: tuple[int, ...]) -> str:
    """Set named texts and conversations between marks that they can't forge.

    A text stands between ``<<<NAME TOKEN>>>`` and ``<<<end TOKEN>>>``; each turn of a conversation
    begins with ``<<<NAME: ROLE TOKEN>>>``, so a text can't invent a turn either. Tokens have one length, so equally long
    texts make equally long prompts. Control characters stay as they are; a lone surrogate, which no
    provider can be sent, becomes U+FFFD.
    """
    token = unused_token(texts_of(material), seeds=seeds, key=key)
    lines = []
    for name, value in material.items():
        lines.append(f"<<<{name} {token}>>>")
        if isinstance(value, Chat):
            for turn in value.turns:
                # A role comes from the data too: on one line and after the name, it forges nothing.
                role = " ".join(turn.role.split())
                lines += [f"<<<{name}: {role} {token}>>>", turn.content]
        else:
            lines.append(value)
        lines.append(f"<<<end {token}>>>")
    # One by one: a long text in ASCII is soon looked through, if no other letter stands beside it.
    return "\n".join(map(well_formed, lines))


def unused_token(texts: Sequence[str], *, seeds: Seeds, key: tuple[int, ...]) -> str:
    """Derive a token of 16 hex digits that does not occur in any of the texts."""
    data = b"\n".join(text.encode(errors="surrogatepass") for text in texts)
    for salt in count():
        token = seeds.token(salt, *key, text=data)
        if not any(token in text for text in texts):
            break
    return token


def well_formed(text: str) -> str:
    """Replace lone surrogates by U+FFFD; all other text stays as it is."""
    if text.isascii():  # known without a look at it
        return text
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-16", errors="surrogatepass").decode("utf-16", errors="replace")
    return text


def texts_of(material: Mapping[str, str | Chat]) -> list[str]:
    """List all texts of named texts and conversations, roles included."""
    texts = []
    for value in material.values():
        if isinstance(value, Chat):
            texts += [part for turn in value.turns for part in (turn.role, turn.content)]
        else:
            texts.append(value)
    return texts


def forgery(criteria: Iterable[str]) -> re.Pattern[str]:
    """Compile what a text can hold only by chance, or to deceive its judge or whoever reads it.

    That is a mark like the fence's, a verdict tag, a JSON object with a criterion among its keys,
    and an expression or statement of a template. A search takes time linear in the text.
    """
    names = "|".join(map(re.escape, criteria))
    return re.compile(
        r"<<<(?:end\b|[^<>\n]+>>>)"
        r"|<\s?/?\s?(?i:verdict)\b"
        rf"|\{{[^{{}}]*?[\"'](?i:{names})\\?[\"']\s*:"
        r"|\{\{[^{}\n]+\}\}|\{%[^%\n]+%\}"
    )


def is_suspect(material: Mapping[str, str | Chat], forgery: re.Pattern[str]) -> bool:
    """Say whether a text holds what `forgery` describes."""
    # All of it begins with one of two characters, and most texts hold neither.
    return any(("<" in text or "{" in text) and forgery.search(text) for text in texts_of(material))
