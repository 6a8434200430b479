"""In which order outcomes are told: the order of asking, or that of arrival."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum

from orchestrator.core.ids import QNo
from orchestrator.core.records import Open


class Delivery(StrEnum):
    """`in_order`: decision n knows exactly the outcomes 1 to n - window, whatever the network did.

    `arrival`: outcomes are told as they come; biased for interim use where slow calls correlate
    with verdicts, and a second live run differs.
    """

    IN_ORDER = "in_order"
    ARRIVAL = "arrival"


class Sequencer:
    """Keeps the turns of open questions."""

    __slots__ = ("_delivery", "_turns")

    def __init__(self, delivery: Delivery) -> None:
        self._delivery = delivery
        self._turns: dict[QNo, None] = {}  # an ordered set

    def __len__(self) -> int:
        return len(self._turns)

    def asked(self, q: QNo) -> None:
        """Give a new question its turn."""
        if self._delivery is Delivery.IN_ORDER:
            self._turns[q] = None

    def arrived(self, q: QNo) -> None:
        """Note that a question is due."""
        if self._delivery is Delivery.ARRIVAL:
            self._turns[q] = None

    def back_to_end(self, q: QNo) -> None:
        """Move a question that is asked again to the end of the order."""
        self._turns.pop(q, None)
        self.asked(q)

    def gone(self, q: QNo) -> None:
        """Take a question out."""
        self._turns.pop(q, None)

    def due(self, open_questions: Mapping[QNo, Open]) -> Open | None:
        """Give the question whose turn it is, if its outcome is there."""
        for q in self._turns:
            at = open_questions[q]
            return at if at.is_due else None
        return None
