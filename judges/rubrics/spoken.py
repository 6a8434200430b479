"""Reading verdicts from text, where a judge can be held to no form.

The prompt asks for a JSON object in tags. A judge that leaves the tags out is read if its whole
reply is a JSON object, or one of the few spoken forms that leave no doubt. Prose is not searched
for numbers: a number in it may be anything, or be quoted from what is judged.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import NamedTuple

from judges.rubrics.verdict import (
    DIFFERENT,
    Refused,
    decode,
    failure,
    read_object,
    sides,
    spelt,
)
from orchestrator.core.ports import Unreadable
from orchestrator.core.query import Preference
from orchestrator.core.scale import Criterion, ScaleType
from orchestrator.core.wire import Json

OPENING, CLOSING = "<verdict>", "</verdict>"


class Said(NamedTuple):
    """What a reply gives for each key, and flags for what had to be understood.

    `coerced:NAME` is a number in quotes or a side in other letters, `spoken:NAME` a verdict in a
    spoken form.
    """

    values: dict[str, Json]
    flags: tuple[str, ...] = ()


class TextReader:
    """Reads replies in text for given criteria.

    Of tagged objects the last is the verdict; another that differs makes it none, and so does a tag
    without its partner. Without tags the reply as a whole is a JSON object or, for a single
    criterion with numbers, one of ``8``, ``8/10``, ``Score: 8``, ``Score: 8/10`` and ``I would give
    it 8 out of 10``, in ASCII or fullwidth digits; for a single preference, ``first`` or ``Overall:
    first``, where that is its name.
    """

    def __init__(self, criteria: Sequence[Criterion]) -> None:
        self._numeric = [c for c in criteria if c.scale.type in _NUMERIC]
        self._sided = {c.name: sides(c.scale) for c in criteria if c.scale.type in _SIDED}
        spoken = [c for c in criteria if c.scale.type is not ScaleType.BOOLEAN]
        self._spoken = spoken[0] if len(criteria) == len(spoken) == 1 else None
        names = "|".join(re.escape(name) for name in ("score", *(c.name for c in criteria)))
        label = rf"(?:{names})\s*:\s*"
        self._side = re.compile(rf"\s*(?:{label})?({_SIDE})\.?\s*", re.IGNORECASE)
        self._form = re.compile(
            rf"\s*(?:(?:{label})?({_NUMBER})(?:{_OUT_OF})?"
            rf"|I(?: would|['\u2019]d) give it ({_NUMBER}){_OUT_OF})\.?\s*",
            re.IGNORECASE,
        )
        self._labelled = re.compile(rf"(?<!\w){label}({_NUMBER})", re.IGNORECASE)
        said = rf"|\b(?:{_SIDE})\b" if self._sided else ""
        self._verdict_like = re.compile(
            rf"(?<!\w)(?:{names})\\?[\"']?\s*[:=]|\d|{OPENING}|{CLOSING}{said}", re.IGNORECASE
        )

    def read(self, text: str, *, is_suspect: bool = False) -> Said | Unreadable:
        """Read a reply; where the material is suspect, the tagged verdict must be its only one.

        Nothing may stand behind it, and before it no number, no side and no tag. A judge that quotes a tagged
        verdict and gives its own without tags would otherwise be read as saying what it quotes.
        """
        said = read_object(text)
        if isinstance(said, Unreadable):
            if _TAG.search(text):
                said = self._read_tagged(text, is_suspect=is_suspect)
            elif self._spoken and not _JSON.search(text):
                return self._read_spoken(text, self._spoken)
        return said if isinstance(said, Unreadable) else self.coerced(said)

    def _read_tagged(self, text: str, *, is_suspect: bool) -> dict[str, Json] | Unreadable:
        found: list[dict[str, Json]] = []
        beside: list[str] = []
        last: dict[str, Json] | Unreadable = failure(_UNPAIRED)
        at = 0
        while opened := _OPENED.search(text, at):
            beside.append(text[at : opened.start()])
            last, at = _tagged(text, opened.end())
            if not isinstance(last, Unreadable):
                found.append(last)
        beside.append(text[at:])
        if not isinstance(last, Unreadable) and _TAG.search(text, at):
            return failure(_UNPAIRED)
        if len({spelt(said) for said in found}) > 1:
            return failure(DIFFERENT)
        if is_suspect and (beside[-1].strip() or any(map(self._verdict_like.search, beside))):
            return failure("a verdict beside the tagged one, which the material may have forged")
        return last

    def _read_spoken(self, text: str, criterion: Criterion) -> Said | Unreadable:
        name, scale = criterion.name, criterion.scale
        plain = text.translate(_PLAIN)
        if name in self._sided:
            side = self._side.fullmatch(plain)
            if side is None:
                return failure(f"text that is none of {', '.join(self._sided[name])}")
            return Said({name: side[1].lower()}, (f"spoken:{name}",))
        form = self._form.fullmatch(plain)
        if form is None:
            return failure(self._doubt(plain))
        value, out_of, given, given_out_of = form.groups()
        top = out_of or given_out_of
        # "2 out of 3" says nothing clear on a scale that begins below zero.
        if top and (float(top) != scale.high or scale.low < 0):
            return failure(f"{name}: out of another number than {scale.high:g}")
        return Said({name: float(value or given)}, (f"spoken:{name}",))

    def _doubt(self, plain: str) -> str:
        if len({float(value) for value in self._labelled.findall(plain)}) > 1:
            return DIFFERENT
        match len(_DIGITS.findall(plain)):
            case 0:
                return "no number"
            case 1:
                return "text beside the number"
            case _:
                return "several numbers, and none is clearly the verdict"

    def coerced(self, said: dict[str, Json]) -> Said:
        """Take a number in quotes for a number, and a side in other letters for that side."""
        found: dict[str, Json] = {}
        for criterion in self._numeric:
            value = said.get(criterion.name)
            if isinstance(value, str) and _QUOTED.fullmatch(value):
                found[criterion.name] = float(value)
        for name, known in self._sided.items():
            value = said.get(name)
            if isinstance(value, str) and value not in known and value.lower() in known:
                found[name] = value.lower()
        return Said(said | found, tuple(f"coerced:{name}" for name in found))


def _tagged(text: str, at: int) -> tuple[dict[str, Json] | Unreadable, int]:
    """Read the object behind an opening tag, up to the place behind its closing tag.

    Decoded rather than cut out, since a reason may quote tags.
    """
    try:
        value, end = decode(text, at)
    except Refused as refused:
        return failure(str(refused)), at
    except (ValueError, RecursionError):
        return failure("not JSON"), at
    closed = _CLOSED.match(text, end)
    if closed is None:
        return failure(_UNPAIRED), at
    if not isinstance(value, dict):
        return failure("not a JSON object"), closed.end()
    return value, closed.end()


_UNPAIRED = "a verdict tag without its partner"
_NUMERIC = frozenset({ScaleType.INTEGER, ScaleType.FLOAT})
_SIDED = frozenset({ScaleType.PREFERENCE})
_SIDE = "|".join(Preference)
_NUMBER = r"-?[0-9]+(?:\.[0-9]+)?"
_OUT_OF = rf"\s*(?:/|\bout of\b)\s*({_NUMBER})"
_JSON = re.compile(r"[{\[]")
_DIGITS = re.compile(r"\d+(?:[.,]\d+)*")
_QUOTED = re.compile(_NUMBER)
_OPENED = re.compile(OPENING, re.IGNORECASE)
_CLOSED = re.compile(CLOSING, re.IGNORECASE)
_TAG = re.compile(f"{OPENING}|{CLOSING}", re.IGNORECASE)
# The minus sign, and the fullwidth forms of ASCII.
_PLAIN = {0x2212: "-"} | {0xFF01 + code: chr(0x21 + code) for code in range(94)}
