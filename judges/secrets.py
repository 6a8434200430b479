"""Keeps secrets out of what servers say, in whichever form they echo what they were sent."""

from __future__ import annotations

import html
import json
import re
from base64 import b64encode
from collections.abc import Iterable, Iterator

MASK = "***"
LEAST = 8
"""A shorter secret can stand in a reply by chance, even as its verdict, so there it is left alone."""

# Atomic and bounded throughout: a server must not be able to make a search take long.
_PERCENT = "%(?:25){0,3}"
_BACKSLASH = rf"(?>\\|{_PERCENT}5[cC])"

_EXPECTED = (r"(?<=//)[^/@\s]+(?=@)", r"(?i:(?<=bearer )[^\s\"',]+)")
"""Where anybody's secret stands: before the host of a URL, and behind the name of a scheme."""


class Secrets:
    """Masks given secrets: as they are, percent-encoded, as HTML, in JSON, in base64.

    In base64 a secret is found wherever it stands in what was encoded. Empty ones are passed over.
    """

    def __init__(self, secrets: Iterable[str]) -> None:
        # The longest first: a secret may begin with another.
        known = sorted({secret for secret in secrets if secret}, key=len, reverse=True)
        long = [secret for secret in known if len(secret) >= LEAST]
        self._anywhere = re.compile("|".join([*map(_pattern, known), *_EXPECTED]))
        self._long = re.compile("|".join(map(_pattern, long)))
        self._signs = tuple({sign for secret in long for sign in _signs(secret)})

    def masked(self, message: str) -> str:
        """Mask a message of whatever kind, and in it what stands where a secret is expected."""
        return self._anywhere.sub(MASK, message)

    def masked_reply(self, text: str) -> str:
        """Mask what a judge said; all but the secrets stays to the letter."""
        # The pattern would cost each reply 25 us, and this costs one.
        if not any(sign in text for sign in self._signs):
            return text
        return self._long.sub(MASK, text)


def _pattern(secret: str) -> str:
    """Match a secret in all its forms."""
    forms = [re.escape(secret), "".join(map(_encoded, re.findall(r"\\+|[^\\]", secret)))]
    if len(secret) >= LEAST:
        forms += map(re.escape, _in_base64(secret))
    return "|".join(forms)


def _encoded(c: str) -> str:
    """Match a character escaped, percent-encoded or as HTML, several times over, or as it is.

    Backslashes come as a run: how many of them escape others can't be told.
    """
    if c[0] == "\\":
        return rf"{_BACKSLASH}{{{len(c)},{8 * len(c)}}}+"
    percent = "".join(f"{_PERCENT}{byte:02x}" for byte in c.encode(errors="surrogatepass"))
    units = c.encode("utf-16-be", errors="surrogatepass").hex("_", 2).split("_")
    unicode = rf"{_BACKSLASH}{{1,7}}+".join(f"u{unit}" for unit in units)
    entity = re.escape(html.escape(c)).replace(r"\&", "&(?:amp;){0,3}")
    return rf"{_BACKSLASH}{{0,7}}+(?>(?i:{percent}|{unicode})|{entity}|{re.escape(c)})"


def _signs(secret: str) -> Iterator[str]:
    """Give texts of which one stands wherever the secret does: in base64, or a run of its letters."""
    yield max(re.findall("[0-9A-Za-z]*", secret), key=len)
    yield from _in_base64(secret)


def _in_base64(secret: str) -> Iterator[str]:
    """Give the characters of base64 that a secret alone decides.

    Three bytes are four characters, so they depend on how many bytes stand before it, modulo three.
    """
    for text in {secret, json.dumps(secret, ensure_ascii=False)[1:-1]}:
        data = text.encode(errors="surrogatepass")
        for n_before in range(3):
            coded = b64encode(bytes(n_before) + data + bytes(3)).decode()
            inner = coded[-(-8 * n_before // 6) : 8 * (n_before + len(data)) // 6]
            yield inner
            if not inner.isalnum():
                yield inner.replace("+", "-").replace("/", "_")
