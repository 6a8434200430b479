"""Gates: bars that estimates must clear, and whether they do."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from enum import StrEnum
from typing import Literal

from orchestrator.core.estimate import Estimate, Status
from orchestrator.core.wire import Json


class Rule(StrEnum):
    """When the interval [lower, upper] passes a bar, and when it fails it; else it is undecided."""

    SUPERIOR = "superior"
    """Passes if lower > bar, fails if upper <= bar."""
    NON_INFERIOR = "non_inferior"
    """Passes if lower > -bar, fails if upper < -bar."""
    AT_LEAST = "at_least"
    """Passes if lower >= bar, fails if upper < bar."""
    RANK_AT_MOST = "rank_at_most"
    """Passes if upper <= bar, fails if lower > bar."""


class GateOutcome(StrEnum):
    """What a gate comes to, the weightiest first: of several gates it is the one that counts."""

    FAILED = "failed"
    UNDECIDED = "undecided"
    PASSED = "passed"


@dataclass(frozen=True, slots=True, kw_only=True)
class Gate:
    """A bar, and the estimates that are held against it.

    Parameters
    ----------
    estimate, criterion : the entry in the campaign file, and what of it is judged; None: its kind
        has no criteria
    bar : the margin or value, on the criterion's scale, or the rank
    sources : names of the estimates that are read, each the first of its name. For a rank they are
        the differences of `arm` minus each other arm
    arm : whose mean or rank is judged; None: all names, each of which must pass
    arms : those that take part
    max_missing : share of missing verdicts, in any of `arms`, above which nothing is decided
    on_undecided : what an undecided gate counts as; 6 is the exit code of its own
    """

    estimate: str
    rule: Rule
    bar: float
    sources: tuple[str, ...]
    arms: tuple[str, ...]
    criterion: str | None = None
    arm: str | None = None
    max_missing: float | None = None
    on_undecided: Literal["fail", "pass", 6] = 6

    def as_json(self) -> dict[str, Json]:
        """Give the JSON form that a run's identity holds."""
        return asdict(self) | {"sources": list(self.sources), "arms": list(self.arms)}

    @classmethod
    def from_json(cls, document: Mapping[str, Json]) -> Gate:
        """Read what `as_json` wrote; unknown keys are left out."""
        values = {f.name: document[f.name] for f in fields(cls) if f.name in document}
        for key, read in (("rule", Rule), ("sources", tuple), ("arms", tuple)):
            values[key] = read(values[key])
        return cls(**values)


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """What a gate came to, and why; nan where a number is not known.

    `value`, `lower`, `upper` are those of the difference, the mean (the lowest end of several) or
    the rank. `missing` is the largest share of missing verdicts in an arm that takes part.
    `n_items` and `watching_covered` are the least that the estimates which were read can say.
    """

    gate: Gate
    outcome: GateOutcome
    why: str
    value: float = math.nan
    lower: float = math.nan
    upper: float = math.nan
    missing: float = math.nan
    n_items: int = 0
    watching_covered: bool = False

    @property
    def counts_as(self) -> GateOutcome:
        """What it comes to once `on_undecided` has spoken."""
        if self.outcome is not GateOutcome.UNDECIDED:
            return self.outcome
        words = {"fail": GateOutcome.FAILED, "pass": GateOutcome.PASSED}
        return words.get(str(self.gate.on_undecided), GateOutcome.UNDECIDED)


def overall(outcomes: Iterable[GateOutcome]) -> GateOutcome | None:
    """Say what several gates come to: all must pass. None without gates."""
    return min(outcomes, key=list(GateOutcome).index, default=None)


def judge(gate: Gate, estimates: Sequence[Estimate]) -> Verdict:
    """Hold estimates against a bar, by their intervals alone.

    Nothing is decided while a number is unknown, where too much is missing, or where missing
    verdicts depend on the arm: what is not there could then turn the verdict.

    A rank is counted in significant differences: 1 + (arms above) is its lower end, and the number
    of arms - (arms below) its upper end.
    """
    found = [_first(gate, name, estimates) for name in gate.sources]
    read = [estimate for estimate in found if estimate is not None]
    if len(read) < len(found):
        return Verdict(gate=gate, outcome=GateOutcome.UNDECIDED, why="there is no estimate yet")
    value, lower, upper = _standing(gate, read)
    missing = _missing_share(gate, read)
    outcome, why = _held(gate, lower, upper)
    is_known = not math.isnan(lower + upper)
    obstacle = next(_obstacles(gate, read, missing, is_known=is_known), None)
    if obstacle is not None:
        outcome, why = GateOutcome.UNDECIDED, obstacle
    return Verdict(
        gate=gate,
        outcome=outcome,
        why=why,
        value=value,
        lower=lower,
        upper=upper,
        missing=missing,
        n_items=min(estimate.n_items for estimate in read),
        watching_covered=all(estimate.watching_covered for estimate in read),
    )


def _row(gate: Gate) -> str | None:
    """Name the one row that is judged; None: all rows."""
    return gate.arm if gate.rule is Rule.AT_LEAST else None


def _first(gate: Gate, name: str, estimates: Sequence[Estimate]) -> Estimate | None:
    row = _row(gate)
    return next(
        (e for e in estimates if e.name == name and (e.names if row is None else row in e.names)),
        None,
    )


def _standing(gate: Gate, read: Sequence[Estimate]) -> tuple[float, float, float]:
    """Give value, lower and upper end of what is judged."""
    row = _row(gate)
    value, lower, upper = (
        [
            x
            for e in read
            for name, x in zip(e.names, getattr(e, key), strict=True)
            if row in {None, name}
        ]
        for key in ("value", "lower", "upper")
    )
    if gate.rule is not Rule.RANK_AT_MOST:
        return _least(value), _least(lower), _least(upper)
    if any(map(math.isnan, (*value, *lower, *upper))):
        return math.nan, math.nan, math.nan
    n_above, n_below = sum(u < 0 for u in upper), sum(lo > 0 for lo in lower)
    return 1.0 + sum(v < 0 for v in value), 1.0 + n_above, 1.0 + len(value) - n_below


def _least(numbers: Sequence[float]) -> float:
    return math.nan if any(map(math.isnan, numbers)) else min(numbers)


def _held(gate: Gate, lower: float, upper: float) -> tuple[GateOutcome, str]:
    line = gate.bar
    match gate.rule:
        case Rule.SUPERIOR:
            passes, fails = lower > line, upper <= line
        case Rule.NON_INFERIOR:
            line = -line
            passes, fails = lower > line, upper < line
        case Rule.AT_LEAST:
            passes, fails = lower >= line, upper < line
        case Rule.RANK_AT_MOST:
            passes, fails = upper <= line, lower > line
    if passes:
        return GateOutcome.PASSED, f"the interval clears {line:g}"
    if fails:
        return GateOutcome.FAILED, f"the interval misses {line:g}"
    return GateOutcome.UNDECIDED, f"the interval straddles {line:g}"


def _missing_share(gate: Gate, read: Sequence[Estimate]) -> float:
    shares = [e.diagnostics.get("missing_share", {}).get(arm) for e in read for arm in gate.arms]
    return math.nan if None in shares else max(shares, default=math.nan)


_UNDECIDING = {
    "prior_inconclusive": "the verdict depends on how units are taken whose verdicts are all alike",
    "fixed_order": "every unit stands in one place, so what that does can't be told from the unit",
}
"""Flags of an estimate that decides no gate, and why."""


def _obstacles(
    gate: Gate, read: Sequence[Estimate], missing: float, *, is_known: bool
) -> Iterator[str]:
    for estimate in read:
        yield from (why for flag, why in _UNDECIDING.items() if flag in estimate.flags)
        if estimate.status is not Status.OK:
            yield f"the status of {estimate.name} is {estimate.status.replace('_', ' ')}"
        for what in ("arm", "pair"):
            if f"missing_differs_by_{what}" in estimate.flags:
                yield f"missing differs by {what}"
    if not is_known:
        yield "the interval is not known"
    if gate.max_missing is not None and math.isnan(missing):
        yield "the share of missing verdicts is not known"
    elif gate.max_missing is not None and missing > gate.max_missing:
        yield f"{missing:.1%} of an arm's verdicts are missing, at most {gate.max_missing:.1%} may be"
