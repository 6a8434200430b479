"""What a judge is shown of units: their fields, and which of them may deceive it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

from judges.rubrics.fence import forgery, is_suspect
from judges.rubrics.template import RESERVED
from orchestrator.core.answers import Answers
from orchestrator.core.errors import Problem
from orchestrator.core.wire import Chat

SUSPECTED = "suspected_injection"
"""Flag of a verdict on material that holds what only a rubric or a judge should write."""


class Material:
    """The fields of units that are shown.

    Parameters
    ----------
    fields : one mapping a unit; empty where judges need no text (recorded). Of `Answers`, which come
        while the run goes on, the current ones are read
    shown : the fields that are shown, in their order; each unit has them
    keys : of the verdict, which no text should write
    """

    def __init__(
        self,
        fields: Sequence[Mapping[str, str | Chat]],
        shown: tuple[str, ...],
        keys: Iterable[str],
    ) -> None:
        self._fields = fields
        self.shown = shown
        self._forgery = forgery(keys)
        self._are_final = not isinstance(fields, Answers)
        self._suspicions = bytearray(len(fields))

    def of(self, unit: int) -> dict[str, str | Chat]:
        """Give the shown fields of a unit by name, none where none are shown."""
        given = self._fields[unit] if self.shown else {}
        return {name: given[name] for name in self.shown}

    def is_suspected(self, unit: int) -> bool:
        """Say whether a shown field of a unit holds what only a rubric or a judge should write."""
        if not self._suspicions:
            return False
        if not self._are_final:
            return is_suspect(self.of(unit), self._forgery)
        suspicion = self._suspicions[unit]
        if suspicion == _UNSEEN:
            is_forged = is_suspect(self.of(unit), self._forgery)
            suspicion = self._suspicions[unit] = _SUSPECT if is_forged else _CLEAN
        return suspicion == _SUSPECT


def misnamed(names: Iterable[str], also_reserved: tuple[str, ...] = ()) -> Iterator[Problem]:
    """Find the fields whose names no template could use."""
    reserved = (*RESERVED, *also_reserved)
    for name in names:
        if not name.isidentifier() or name in reserved:
            *several, last = reserved
            yield Problem(
                path=f"data.fields.{name}",
                message="a field is named by one word of letters, digits and _, "
                f"other than {', '.join(several)} and {last}",
            )


def count(units: Sequence[int]) -> str:
    """Say how many units there are."""
    return f"{len(units):,} unit{'s' if len(units) > 1 else ''}"


def gaps(fields: Sequence[Mapping[str, str | Chat]], shown: Iterable[str]) -> Iterator[Problem]:
    """Find the shown fields that units lack."""
    lacking: dict[str, list[int]] = {name: [] for name in shown}
    for unit, given in enumerate(fields):
        if not given.keys() >= lacking.keys():
            for name in lacking.keys() - given.keys():
                lacking[name].append(unit)
    for name, units in lacking.items():
        if units:
            message = f"missing in {count(units)}, the first of them unit {units[0]}"
            yield Problem(path=f"data.fields.{name}", message=message)


_UNSEEN, _CLEAN, _SUSPECT = range(3)
