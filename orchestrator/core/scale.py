"""Scales and criteria: what a verdict may be."""

from __future__ import annotations

import math
from dataclasses import dataclass
from enum import StrEnum


class ScaleType(StrEnum):
    """The kinds of scale a criterion can have."""

    BOOLEAN = "boolean"
    INTEGER = "integer"
    FLOAT = "float"
    PREFERENCE = "preference"


FARTHEST = 1e12
"""The farthest end of a scale; sums of squares of larger numbers lose the digits that matter."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Scale:
    """Admissible verdicts of one criterion.

    `low` and `high` are the ends, both admitted; a boolean has 0 and 1. `labels` are the words of a
    boolean (no, yes). `ties` is for preferences.
    """

    type: ScaleType
    low: float = 0.0
    high: float = 1.0
    labels: tuple[str, ...] = ()
    ties: bool = False

    @property
    def span(self) -> float:
        """The distance between the ends."""
        return self.high - self.low

    def admits(self, value: float) -> bool:
        """Say whether a number is a verdict on this scale; nothing is clamped or rounded."""
        if not math.isfinite(value) or not self.low <= value <= self.high:
            return False
        return self.type is ScaleType.FLOAT or value == int(value)

    def to_unit(self, value: float) -> float:
        """Map a verdict to [0, 1]."""
        return (value - self.low) / self.span


COMPOSITE = "composite"
"""Reserved name of the weighted mean of all criteria, each mapped to [0, 1] by its scale."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Criterion:
    """One thing a judge is asked to rate, with its weight in the composite."""

    name: str
    scale: Scale
    weight: float = 1.0
    description: str = ""
