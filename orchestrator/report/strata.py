"""Verdicts by stratum and arm, counted as a log goes by."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from orchestrator.core.query import Observation
from orchestrator.report.data import Stratum


class Strata:
    """Sums of first verdicts by arm and stratum.

    Parameters
    ----------
    names : of the strata
    stratum : (n_items,) the stratum of each item
    arms : their names
    criterion : whose verdicts have a mean; None: there are several, and none is named
    """

    def __init__(
        self,
        names: Sequence[str],
        stratum: Sequence[int],
        arms: Sequence[str],
        criterion: int | None,
    ) -> None:
        self._names, self._stratum, self._arms = names, stratum, arms
        self._criterion = criterion
        self._total = [[0.0] * len(names) for _ in arms]
        self._n = [[0] * len(names) for _ in arms]
        self._seen = np.zeros(len(stratum) * len(arms), dtype=bool)
        self._units = [[0] * len(names) for _ in arms]

    @classmethod
    def of(
        cls, identity: Mapping[str, Any], get_blob: Callable[[str], bytes | None] | None
    ) -> Strata | None:
        """Begin to count, where a part of a benchmark is estimated and its strata are known."""
        entries = identity.get("estimate") or []
        entry = next((e for e in entries if e.get("kind") == "exchangeable"), None)
        if entry is None or get_blob is None:
            return None
        blob = get_blob(str((identity.get("data") or {}).get("frame") or ""))
        found: Sequence[str] | None = (json.loads(blob) if blob else {}).get("stratum")
        if not found:
            return None
        names = list(dict.fromkeys(map(str, found)))
        numbers = {name: s for s, name in enumerate(names)}
        criteria = [str(c["name"]) for c in identity.get("criteria") or []]
        wanted = entry.get("criterion") or (criteria[0] if len(criteria) == 1 else None)
        return cls(
            names,
            [numbers[str(name)] for name in found],
            identity.get("arms") or [""],
            criteria.index(wanted) if wanted in criteria else None,
        )

    def add(self, observation: Observation) -> None:
        """Take in a verdict."""
        item, arm = divmod(observation.unit, len(self._arms))
        stratum = self._stratum[item]
        if not self._seen[observation.unit]:
            self._seen[observation.unit] = True
            self._units[arm][stratum] += 1
        if observation.criterion == self._criterion and observation.value is not None:
            self._total[arm][stratum] += observation.value
            self._n[arm][stratum] += 1

    def frozen(self) -> tuple[Stratum, ...]:
        """Give the counts, arm by arm."""
        sizes = np.bincount(self._stratum, minlength=len(self._names)).tolist()
        return tuple(
            Stratum(arm, name, size, n_units, total / n if n else math.nan)
            for arm, units, ns, totals in zip(
                self._arms, self._units, self._n, self._total, strict=True
            )
            for name, size, n_units, n, total in zip(
                self._names, sizes, units, ns, totals, strict=True
            )
        )
