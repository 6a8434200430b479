"""Who is shown first: both orders, orders in balance, or one alone."""

from __future__ import annotations

from typing import Literal

import numpy as np

Order = Literal["both", "balanced_random", "single"]
"""How a pair is shown.

`both`: every drawing of a pair asks two questions, one in each order, which of them first by coin.
`balanced_random`: one question, by coin the first time and the other way round the second, and so
on in blocks of two: a pair's orders never differ by more than one. `single`: always the same order,
the lower index first; the first place's advantage can't be told from strength then.
"""


class Orders:
    """Keeps each pair's orders in balance.

    `ahead` asks for an order, `launched` says which was sent: asking changes nothing.
    """

    def __init__(self, n_models: int, order: Order) -> None:
        self._order: Order = order
        # Of the block of two that is open: +1 the lower index was first, -1 second; 0: none is.
        self._open = np.zeros((n_models, n_models), dtype=np.int8)

    def ahead(self, a: int, b: int, uniform: float) -> tuple[int, int]:
        """Give a pair in the order in which to show it next; `uniform` of [0, 1) is the coin."""
        low, high = min(a, b), max(a, b)
        if self._order == "single":
            return low, high
        before = self._open[low, high]
        is_low_first = before < 0 if before else uniform < 0.5
        return (low, high) if is_low_first else (high, low)

    def launched(self, first: int, second: int) -> None:
        """Count a question that was sent."""
        if self._order != "single":
            low, high = min(first, second), max(first, second)
            self._open[low, high] = 0 if self._open[low, high] else (1 if first < second else -1)

    def owes(self, a: int, b: int) -> bool:
        """Say whether a pair's second order is still to be asked, which `both` does at once."""
        return self._order == "both" and bool(self._open[min(a, b), max(a, b)])
