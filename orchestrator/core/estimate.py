"""Results as values: a number never travels without its uncertainty and its status."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from enum import StrEnum
from typing import Self

from orchestrator.core.wire import Json


class Status(StrEnum):
    """Whether an estimate can be read as it stands."""

    OK = "ok"
    PARTIAL = "partial"
    """Some names have no estimate (nan), the others are fine."""
    EMPTY = "empty"
    """No observation yet."""
    UNKNOWN_VARIANCE = "unknown_variance"
    """The value stands, its uncertainty can't be known from these data."""
    NOT_IDENTIFIED = "not_identified"
    FAILED = "failed"


@dataclass(frozen=True, slots=True, kw_only=True)
class Estimate:
    """Estimates of one kind along `names`, with their uncertainty.

    Parameters
    ----------
    name : the estimate's name in the campaign file
    kind : the estimator's kind
    target : what is estimated: `arms`, `difference`, `units`, ...
    estimand : in words, "these items" or "items like these", and whose judgment
    names : length n
    value, se, lower, upper : length n, on the criterion's scale; nan where not known, never 0
    level : nominal coverage of the intervals
    interval : how they were made; several methods are joined by " + "
    watching_covered : whether they hold although one looked at every result
    alpha_split, family : how the error is split over `names`, and over which family
    n_items, n_answers : items and verdicts that entered
    flags : what the reader must know, as short words
    diagnostics : JSON; `by_name` holds arrays along `names`
    """

    name: str
    kind: str
    target: str
    estimand: str
    names: tuple[str, ...]
    value: tuple[float, ...]
    se: tuple[float, ...]
    lower: tuple[float, ...]
    upper: tuple[float, ...]
    level: float
    interval: str
    watching_covered: bool
    alpha_split: str
    family: str
    n_items: int
    n_answers: int
    status: Status
    flags: tuple[str, ...] = ()
    diagnostics: Mapping[str, Json] = field(default_factory=dict)

    @classmethod
    def nothing(
        cls,
        *,
        name: str,
        kind: str,
        target: str,
        level: float,
        status: Status,
        n_answers: int,
        diagnostics: Mapping[str, Json],
    ) -> Self:
        """Give the estimate that says why there is none yet: along no names."""
        return cls(
            name=name,
            kind=kind,
            target=target,
            estimand="nothing can be estimated yet",
            names=(),
            value=(),
            se=(),
            lower=(),
            upper=(),
            level=level,
            interval="none",
            watching_covered=False,
            alpha_split="none",
            family="",
            n_items=0,
            n_answers=n_answers,
            status=status,
            diagnostics=diagnostics,
        )

    @property
    def half_width(self) -> float:
        """The widest half interval, nan where any is unknown."""
        widths = [(u - lo) / 2 for lo, u in zip(self.lower, self.upper, strict=True)]
        if not widths or any(math.isnan(w) for w in widths):
            return float("nan")
        return max(widths)

    def as_json(self) -> dict[str, Json]:
        """Give the JSON form that logs and results hold; nan and infinities become None."""
        return {f.name: plain(getattr(self, f.name)) for f in fields(self)}


def plain(value: Json) -> Json:
    """Give JSON that any reader takes: nan and infinities become None."""
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, Mapping):
        return {key: plain(v) for key, v in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(v) for v in value]
    return value
