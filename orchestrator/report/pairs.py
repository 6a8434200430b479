"""Which pairs of arms were compared, in which order, and what came of it."""

from __future__ import annotations

from collections import Counter

import numpy as np

from orchestrator.core.query import Judged, Outcome, Preference, Query
from orchestrator.report.data import PairTally


class Pairs:
    """Counts comparisons by first and second arm; what is won is by the first criterion."""

    def __init__(self, n_arms: int) -> None:
        # Asked, answered, the first was better, ties.
        self._counts = np.zeros((4, n_arms, n_arms), dtype=np.int64)
        self._why: Counter[str] = Counter()

    def add(self, query: Query, outcome: Outcome) -> None:
        """Take in a told question."""
        n_arms = self._counts.shape[1]
        first, second = (unit % n_arms for unit in query.units)
        cell = self._counts[:, first, second]
        self._why[query.note] += 1
        cell[0] += 1
        if isinstance(outcome, Judged):
            said = next((o.preference for o in outcome.observations if o.criterion == 0), None)
            cell[1:] += (True, said is Preference.FIRST, said is Preference.TIE)

    def frozen(self) -> PairTally | None:
        """Give the counts; None where nothing was compared."""
        asked, answered, first, ties = self._counts.tolist()
        if not self._why:
            return None
        return PairTally(
            asked=asked, answered=answered, first=first, ties=ties, why=dict(self._why)
        )
