"""Where units stood in batches, and what they stood behind, as asked and as far as rated."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from orchestrator.core.query import Missing, Outcome, Query
from orchestrator.report.data import Evenness, SlotTally

MOST_UNITS = 1000
"""Of how many units places and neighbours are counted; a pair takes 32 bytes a judge."""

PARTIAL = "partial"
"""How flags begin that say why units of an answer have no verdict."""


@dataclass(slots=True)
class _Times:
    """How often each unit stood in each slot, and right behind each other one."""

    at_slot: NDArray[np.int64]
    behind: NDArray[np.int64]

    @classmethod
    def none(cls, n_units: int) -> _Times:
        # A batch has no unit twice, so there are no more slots than units.
        return cls(*np.zeros((2, n_units, n_units), dtype=np.int64))

    def add(self, units: NDArray[np.int64], is_in: NDArray[np.bool_]) -> None:
        """Take in a batch; a unit that is not in leaves its slot empty and parts its neighbours."""
        slots = np.arange(len(units))
        self.at_slot[units[is_in], slots[is_in]] += 1
        both = is_in[:-1] & is_in[1:]
        self.behind[units[:-1][both], units[1:][both]] += 1

    def frozen(self, n_slots: int) -> Evenness:
        at_slot = self.at_slot[:, :n_slots]
        others = self.behind[~np.eye(len(self.behind), dtype=bool)]
        return Evenness(
            per_slot=(int(at_slot.min()), int(at_slot.max())),
            per_pair=(int(others.min()), int(others.max())) if others.size else (0, 0),
        )


@dataclass(slots=True, kw_only=True)
class Slots:
    """Counts of one judge's batches.

    Parameters
    ----------
    n_units : of the pool
    yes_from : the lowest verdict that counts as a yes; None: verdicts are averaged as they are
    """

    n_units: int
    yes_from: float | None
    n_batches: int = 0
    n_missing: int = 0
    lost: Counter[str] = field(default_factory=Counter)
    rated: list[int] = field(default_factory=list)
    total: list[float] = field(default_factory=list)
    asked: _Times | None = None
    kept: _Times | None = None

    def add(self, query: Query, outcome: Outcome) -> None:
        """Take in a told batch."""
        self.n_batches += 1
        width = len(query.units)
        while len(self.rated) < width:
            self.rated.append(0)
            self.total.append(0.0)
        is_rated = np.zeros(width, dtype=bool)
        match outcome:
            case Missing(reason=reason):
                self.n_missing += 1
                self.lost[str(reason)] += width
            case judged:
                for observation in judged.observations:
                    is_rated[observation.slot] = True
                    if observation.value is not None:
                        self.rated[observation.slot] += 1
                        self.total[observation.slot] += self._counted(observation.value)
                n_lost = int((~is_rated).sum())
                if n_lost:
                    self.lost[_reason(judged.flags)] += n_lost
        if self.n_units <= MOST_UNITS:
            self._place(np.array(query.units, dtype=np.int64), is_rated)

    def _counted(self, value: float) -> float:
        return value if self.yes_from is None else float(value >= self.yes_from)

    def _place(self, units: NDArray[np.int64], is_rated: NDArray[np.bool_]) -> None:
        if self.asked is None or self.kept is None:
            self.asked, self.kept = _Times.none(self.n_units), _Times.none(self.n_units)
        self.asked.add(units, np.ones(len(units), dtype=bool))
        self.kept.add(units, is_rated)

    def frozen(self, judge: str) -> SlotTally:
        """Give what is reported of them."""
        return SlotTally(
            judge=judge,
            n_batches=self.n_batches,
            n_missing=self.n_missing,
            n_units=self.n_units,
            is_share=self.yes_from is not None,
            lost=dict(sorted(self.lost.items())),
            rated=tuple(self.rated),
            means=tuple(
                total / n if n else float("nan")
                for total, n in zip(self.total, self.rated, strict=True)
            ),
            asked=None if self.asked is None else self.asked.frozen(len(self.rated)),
            kept=None if self.kept is None else self.kept.frozen(len(self.rated)),
        )


def _reason(flags: Sequence[str]) -> str:
    """Say why units of an answer have no verdict; one answer can lose them for several reasons."""
    found = [flag.partition(":")[2] for flag in flags if flag.partition(":")[0] == PARTIAL]
    return " or ".join(sorted(found)) or "omitted"
