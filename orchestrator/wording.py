"""How problems speak: the value that was seen, and the name that was probably meant."""

from __future__ import annotations

import re
from collections.abc import Iterable
from difflib import get_close_matches

_LONGEST = 60


def seen(value: object) -> str:
    """Show a value of a campaign file as its author would recognise it."""
    match value:
        case None:
            return "null"
        case bool():
            return str(value).lower()
        case str():
            cut = value if len(value) <= _LONGEST else f"{value[:_LONGEST]}…"
            return f'"{on_one_line(cut)}"'
        case int() | float():
            return f"{value:g}" if isinstance(value, float) else str(value)
        case dict():
            return "a mapping"
        case list() | tuple():
            return "a list"
        case _:
            return f"a {type(value).__name__}"


def on_one_line(text: str) -> str:
    """Write out what is not printable, so that a problem is one line on any screen."""
    if text.isprintable():
        return text
    shown = (c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)
    return "".join(shown)


_OBEYED = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069]")


def visible(text: str) -> str:
    """Write out what a terminal would obey and not show: escapes, overrides; lines and tabs stay."""
    return _OBEYED.sub(lambda found: found[0].encode("unicode_escape").decode(), text)


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """Finish a sentence about an unknown name with the closest known one, or with all of them."""
    names = [on_one_line(name) for name in dict.fromkeys(known) if name]
    close = get_close_matches(word, names, n=1)
    if close:
        return f'; did you mean "{close[0]}"?'
    return f"; known: {', '.join(sorted(names))}" if names else ""
