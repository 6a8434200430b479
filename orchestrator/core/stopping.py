"""When a campaign looks at its estimates, and when a look ends it."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Literal

from orchestrator.core.estimate import Estimate, Status
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


OF_ARMS = frozenset({"arms", "macro"})
"""Targets of estimates along the arms."""

COMPLETE = frozenset(
    {
        StopReason.FINISHED,
        StopReason.PRECISION,
        StopReason.SEPARATED,
        StopReason.GATE_DECIDED,
        StopReason.LIMIT,
    }
)
"""Stops that no run goes on from."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StopRule:
    """Looks at fixed counts of told questions; stops once what is wanted of a look is there.

    For precision a look reads only the half-width, never the value, so it is not a test that peeks;
    the estimate's `watching_covered` says whether its interval also holds under such stopping.
    Gates read the interval itself, so they end a run only by intervals that hold under watching; and
    so do rankings, by what the estimate says is proved at this look.
    Without any, looks only show how the run stands; they then thin out to `LOOKS_PER_DOUBLING`,
    so that their cost does not grow with the square of the run.

    Parameters
    ----------
    every : a look after each so many told questions, > 0
    target_half_width : on the primary estimate's scale; None never stops
    of_every_arm : whether the target is that of each arm's own estimate, not of the primary one
    min_items : items that the estimates it reads need before a look may stop the run
    gates : those that end the run once all are decided; empty: none do
    max_answers : answers with which the run ends, exactly so many if there are so many; None: no end
    separates : what of the primary estimate's ranking ends the run once it is proved: its leader, or
        every pair; None: none does
    """

    every: int = 25
    target_half_width: float | None = None
    of_every_arm: bool = False
    min_items: int = 20
    gates: tuple[Gate, ...] = ()
    separates: Literal["leader", "ranking"] | None = None
    max_answers: int | None = None

    @property
    def ending(self) -> StopReason:
        """Why a run ends of which `is_decided` holds."""
        return StopReason.GATE_DECIDED if self.separates is None else StopReason.SEPARATED

    def is_look(self, n_told: int) -> bool:
        """Say whether to look after this many told questions."""
        looks, odd = divmod(n_told, self.every)
        if odd or self.target_half_width is not None or self.gates or self.separates:
            return not odd
        spacing: int = 1 << max(0, (looks // LOOKS_PER_DOUBLING).bit_length() - 1)
        return looks % spacing == 0

    def aimed_at(self, estimates: Sequence[Estimate]) -> Estimate:
        """Give the estimate whose half-width the target is for: the primary one, or that of the arms.

        Where no estimate of the primary entry is along the arms, it is the primary one.
        """
        primary = estimates[0]
        if not self.of_every_arm:
            return primary
        own = (e for e in estimates if e.name == primary.name and e.target in OF_ARMS)
        return next(own, primary)

    def is_met(self, estimates: Sequence[Estimate]) -> bool:
        """Say whether what the target is for is as precise as asked for."""
        if self.target_half_width is None or not estimates:
            return False
        aim = self.aimed_at(estimates)
        width = aim.half_width
        return (
            aim.n_items >= self.min_items
            and not math.isnan(width)
            and width <= self.target_half_width
        )

    def is_decided(self, estimates: Sequence[Estimate]) -> bool:
        """Say whether all gates are decided, or the ranking is separated, so that the run may end."""
        if self.separates is not None:
            own = (e for e in estimates if e.name == estimates[0].name)
            return any(map(self._is_separated, own))
        verdicts = [judge(gate, estimates) for gate in self.gates]
        return bool(verdicts) and all(
            verdict.outcome is not GateOutcome.UNDECIDED
            and verdict.watching_covered
            and verdict.n_items >= self.min_items
            for verdict in verdicts
        )

    def _is_separated(self, estimate: Estimate) -> bool:
        """Say whether an estimate proves what is wanted, by its diagnostics' `is_separated`.

        Names without a finite estimate don't matter: an arm that loses all has none, and is proved to
        be below the leader all the same.
        """
        proved = estimate.diagnostics.get("is_separated") or {}
        return (
            estimate.status not in {Status.EMPTY, Status.FAILED}
            and estimate.n_items >= self.min_items
            and bool(proved.get(self.separates))
        )
