"""When a campaign looks at its estimates, and when a look ends it."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

from orchestrator.core.estimate import Estimate
from orchestrator.core.gate import Gate, GateOutcome, judge

LOOKS_PER_DOUBLING = 16
"""How many looks a run without a target takes while its length doubles."""


class StopReason(StrEnum):
    """Why a run ended."""

    FINISHED = "finished"
    BUDGET = "budget"
    LIMIT = "limit"
    PRECISION = "precision"
    SEPARATED = "separated"
    GATE_DECIDED = "gate_decided"
    DEADLINE = "deadline"
    JUDGES_DOWN = "judges_down"
    OVERRUN = "overrun"
    USER = "user"
    INTERRUPTED = "interrupted"
    STORAGE = "storage"


COMPLETE = frozenset(
    {StopReason.FINISHED, StopReason.PRECISION, StopReason.GATE_DECIDED, StopReason.LIMIT}
)
"""Stops that no run goes on from."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StopRule:
    """Looks at fixed counts of told questions; stops once what is wanted of a look is there.

    For precision a look reads only the half-width, never the value, so it is not a test that peeks;
    the estimate's `watching_covered` says whether its interval also holds under such stopping.
    Gates read the interval itself, so they end a run only by intervals that hold under watching.
    Without either, looks only show how the run stands; they then thin out to `LOOKS_PER_DOUBLING`,
    so that their cost does not grow with the square of the run.

    Parameters
    ----------
    every : a look after each so many told questions, > 0
    target_half_width : on the primary estimate's scale; None never stops
    min_items : items that the estimates it reads need before a look may stop the run
    gates : those that end the run once all are decided; empty: none do
    """

    every: int = 25
    target_half_width: float | None = None
    min_items: int = 20
    gates: tuple[Gate, ...] = ()

    def is_look(self, n_told: int) -> bool:
        """Say whether to look after this many told questions."""
        looks, odd = divmod(n_told, self.every)
        if odd or self.target_half_width is not None or self.gates:
            return not odd
        spacing: int = 1 << max(0, (looks // LOOKS_PER_DOUBLING).bit_length() - 1)
        return looks % spacing == 0

    def is_met(self, primary: Estimate) -> bool:
        """Say whether the primary estimate is as precise as asked for."""
        width = primary.half_width
        return (
            self.target_half_width is not None
            and primary.n_items >= self.min_items
            and not math.isnan(width)
            and width <= self.target_half_width
        )

    def is_decided(self, estimates: Sequence[Estimate]) -> bool:
        """Say whether all gates are decided, so that the run may end."""
        verdicts = [judge(gate, estimates) for gate in self.gates]
        return bool(verdicts) and all(
            verdict.outcome is not GateOutcome.UNDECIDED
            and verdict.watching_covered
            and verdict.n_items >= self.min_items
            for verdict in verdicts
        )
