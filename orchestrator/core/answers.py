"""What systems under test have answered, where judges read it like any other field."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import overload

from orchestrator.core.wire import Chat

Fields = Mapping[str, str | Chat]


class Answers(Sequence[Fields]):
    """The fields of units, one of which is the answer of a system, and comes while the run goes on.

    A unit without its answer shows the longest one that is reckoned with, so that what a question
    about it can cost at most is known before there is an answer.

    Parameters
    ----------
    fields : of each unit, without the answer
    name : of the field that holds the answer
    longest : (n_units,) bytes of the longest answer to a unit that is reckoned with
    """

    def __init__(self, fields: Sequence[Fields], name: str, longest: Sequence[int]) -> None:
        self.name = name
        self._fields = fields
        self._longest = longest
        self._texts: dict[int, str] = {}
        self._fillers: dict[int, str] = {}

    def __len__(self) -> int:
        return len(self._fields)

    @overload
    def __getitem__(self, unit: int) -> Fields: ...
    @overload
    def __getitem__(self, unit: slice) -> Sequence[Fields]: ...
    def __getitem__(self, unit: int | slice) -> Fields | Sequence[Fields]:
        """Give the fields of a unit, with its answer or the longest one in its place."""
        if isinstance(unit, slice):
            return [self[u] for u in range(*unit.indices(len(self)))]
        text = self._texts.get(unit)
        return {**self._fields[unit], self.name: self._filler(unit) if text is None else text}

    def text(self, unit: int) -> str | None:
        """Give the answer to a unit; None while there is none."""
        return self._texts.get(unit)

    def take(self, unit: int, text: str) -> None:
        """Take in the answer to a unit."""
        self._texts[unit] = text

    def clear(self) -> None:
        """Forget all answers: another run begins."""
        self._texts.clear()

    @contextmanager
    def hidden(self, units: Sequence[int]) -> Iterator[None]:
        """Let units seem unanswered: a decision must not see what no one has been told of."""
        kept = {unit: self._texts.pop(unit) for unit in units if unit in self._texts}
        try:
            yield
        finally:
            self._texts |= kept

    def _filler(self, unit: int) -> str:
        n = self._longest[unit]
        if n not in self._fillers:
            self._fillers[n] = "x" * n
        return self._fillers[n]
