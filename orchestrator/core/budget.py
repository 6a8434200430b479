"""What a policy may know about money."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from orchestrator.core.money import Nano
from orchestrator.core.query import Query


@dataclass(frozen=True, slots=True, kw_only=True)
class BudgetView:
    """The campaign's account as of the last decision event.

    `cap` None: no dollar cap (every judge is free). `price` bounds what one attempt of a question
    can cost.
    """

    cap: Nano | None
    settled: Nano
    uncertain: Nano
    held: Nano
    price: Callable[[Query], Nano]

    @property
    def free(self) -> Nano | None:
        """What can still be held; None without a cap."""
        if self.cap is None:
            return None
        return Nano(self.cap - self.settled - self.uncertain - self.held)

    def ceiling(self, query: Query) -> Nano:
        """Bound what one attempt of a question can cost, at the price sheet in force."""
        return self.price(query)
