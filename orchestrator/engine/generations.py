"""Answers of systems under test: which are asked for, which are there, and who waits for them.

A question about a unit without an answer is asked together with the generation of the answer, so that
both are held; it leaves once the answer is there. What decisions read (`asked`, `is_told`) changes
with decision events alone; the texts themselves may come earlier.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from orchestrator.core.answers import Answers
from orchestrator.core.ids import JudgeIx, QNo, UnitIx
from orchestrator.core.query import Kind, Purpose, Query, Role


class Generations:
    """One run's generations; `systems` number who answers the units of each arm, in turn.

    Parameters
    ----------
    answers : where rubrics read the texts; forgotten first, since another run may have told them
    """

    def __init__(self, systems: range, answers: Answers | None) -> None:
        self._systems = systems
        self.answers = answers
        if answers is not None:
            answers.clear()
        self.asked: dict[UnitIx, QNo] = {}
        """The last generation of each unit that was not taken back."""
        self._told: dict[UnitIx, bool] = {}
        self._waiting: dict[QNo, list[QNo]] = {}
        self.is_owed = False
        """Whether a generation is asked whose verdict's question is not."""

    def lacking(self, query: Query) -> list[Query]:
        """Give the generations that must be asked before a question can be."""
        if not self._systems or query.role is not Role.JUDGE:
            return []
        return [self._of(unit) for unit in query.units if unit not in self.asked]

    def parent(self, query: Query) -> QNo | None:
        """Give the last generation that a question reads."""
        if not self._systems or query.role is not Role.JUDGE:
            return None
        return max(self.asked[unit] for unit in query.units)

    def untold(self, query: Query) -> list[UnitIx]:
        """List the units of a question of which it is not told whether there is an answer."""
        if not self._systems or query.role is not Role.JUDGE:
            return []
        return [unit for unit in query.units if unit not in self._told]

    def failed(self, query: Query) -> bool:
        """Say whether there is no answer to a unit of a question, and none will come."""
        if query.role is not Role.JUDGE:
            return False
        return any(self._told.get(unit) is False for unit in query.units)

    def waits(self, query: Query) -> bool:
        """Say whether a question can't leave yet: an answer that it reads is still to come."""
        if self.failed(query):
            return False
        return any(self._text(unit) is None for unit in self.untold(query))

    def waiting(self, q: QNo) -> Iterator[QNo]:
        """Give the questions that were asked while a generation was untold, in order."""
        yield from self._waiting.get(q, ())

    # --- what happens ----------------------------------------------------------------------------

    def note_asked(self, q: QNo, query: Query) -> None:
        """Take in a new question."""
        if query.role is Role.SYSTEM:
            self.asked[query.units[0]] = q
            self.is_owed = self._systems.start > 0
            return
        self.is_owed = False
        for unit in self.untold(query):
            self._waiting.setdefault(self.asked[unit], []).append(q)

    def note_text(self, unit: UnitIx, text: str) -> None:
        """Take in an answer that has come."""
        assert self.answers is not None
        self.answers.take(unit, text)

    def has_text(self, unit: UnitIx) -> bool:
        """Say whether the answer to a unit is there."""
        return self._text(unit) is not None

    def note_told(self, q: QNo, unit: UnitIx, *, is_answered: bool) -> None:
        """Take in that a generation is over."""
        self._told[unit] = is_answered
        self._waiting.pop(q, None)

    def take_back(self, q: QNo, units: Iterable[UnitIx]) -> None:
        """Forget a generation that is not made: it may be asked for again."""
        self._waiting.pop(q, None)
        for unit in units:
            if self.asked.get(unit) == q:
                del self.asked[unit]

    def _text(self, unit: UnitIx) -> str | None:
        return None if self.answers is None else self.answers.text(unit)

    def _of(self, unit: UnitIx) -> Query:
        system = self._systems[unit % len(self._systems)]
        return Query(
            kind=Kind.GENERATE,
            judge=JudgeIx(system),
            units=(unit,),
            role=Role.SYSTEM,
            purpose=Purpose.GENERATE,
        )
