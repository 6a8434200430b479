"""Gates of a campaign file: their keys, what they want of an estimate, and what they are judged by.

A gate reads an estimate of the file as it is where it can. For another criterion, and for a rank, it
reads estimates that are derived from it: the same settings with that criterion, or with one contrast
against each other arm.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Annotated, Any, Literal, NamedTuple

from pydantic import BaseModel, Discriminator, Field

from orchestrator.core.estimate import Estimate
from orchestrator.core.gate import Gate, Rule
from orchestrator.core.ports import Estimator
from orchestrator.core.records import Record
from orchestrator.core.scale import COMPOSITE, Criterion, ScaleType
from orchestrator.quantities import ArmName, CriterionName, EstimateName, Model, Share
from orchestrator.wording import seen

# --- the keys ----------------------------------------------------------------------------------


class _Gate(Model):
    """A bar that an estimate must clear."""

    estimate: EstimateName
    criterion: CriterionName | None = None
    arm: ArmName | None = None
    max_missing: Share | None = None
    on_undecided: Literal["fail", "pass", 6] = 6


class SuperiorGate(_Gate):
    """The contrast is above `margin`."""

    rule: Literal["superior"]
    margin: Annotated[float, Field(ge=0)] = 0.0


class NonInferiorGate(_Gate):
    """The contrast is not below `-margin`."""

    rule: Literal["non_inferior"]
    margin: Annotated[float, Field(gt=0)]


class AtLeastGate(_Gate):
    """The estimate is at least `value`; of comparisons a strength in log-odds, that of `arm`."""

    rule: Literal["at_least"]
    value: float


class RankGate(_Gate):
    """The arm's rank is at most `rank`."""

    rule: Literal["rank_at_most"]
    arm: ArmName
    rank: Annotated[int, Field(gt=0)]


GateEntry = Annotated[
    SuperiorGate | NonInferiorGate | AtLeastGate | RankGate, Discriminator("rule")
]


# --- what goes together ------------------------------------------------------------------------


def misfits(
    entry: GateEntry,
    settings: BaseModel,
    criteria: Sequence[Criterion],
    arms: Sequence[str] | None,
) -> Iterator[tuple[str, str]]:
    """Name the keys of a gate that its estimate can't serve, each with what is wrong.

    `settings` are those of the estimate that it names; `arms` None: only the data can say.
    """
    name, keys = seen(entry.estimate), type(settings).model_fields
    contrast = getattr(settings, "contrast", None)
    if entry.criterion is not None and "criterion" not in keys:
        yield "criterion", f"{name} has no criterion to choose"
    if arms is not None and entry.arm is not None and entry.arm not in arms:
        yield "arm", f"no arm is named {seen(entry.arm)}"
    match entry:
        case SuperiorGate() | NonInferiorGate():
            if contrast is None:
                yield "estimate", f"{entry.rule} wants a contrast, and {name} has none"
            elif entry.arm not in {None, contrast.arm}:
                yield "arm", f"the contrast of {name} is that of {seen(contrast.arm)}"
        case AtLeastGate():
            if entry.arm is not None and getattr(settings, "per", None) not in {None, "arm"}:
                yield "arm", f"{name} is no estimate per arm"
            elif entry.arm is None and contrast is None and _are_preferences(criteria):
                yield "arm", f"missing; {_SUM_ZERO}"
        case RankGate():
            if not {"criterion", "contrast", "confidence"} <= keys.keys():
                yield "estimate", f"rank_at_most wants contrasts, and {name} can have none"
            if arms is not None and not entry.rank < len(arms):
                yield "rank", f"wants less than {len(arms)}, the number of arms: it can't be missed"
    if "criterion" in keys:
        yield from _out_of_scale(entry, _criterion(entry, settings, criteria), criteria, contrast)


def _are_preferences(criteria: Sequence[Criterion]) -> bool:
    return all(criterion.scale.type is ScaleType.PREFERENCE for criterion in criteria)


_SUM_ZERO = (
    "strengths sum to 0, so all of them are never above it; at_least wants one arm's, in log-odds"
)


def _out_of_scale(
    entry: GateEntry, criterion: str, criteria: Sequence[Criterion], contrast: object
) -> Iterator[tuple[str, str]]:
    """Refuse a bar that can only be cleared, or never.

    What is estimated of preferences is no mean of them: gaps in log-odds have no ends.
    """
    rated = [c for c in criteria if c.scale.type is not ScaleType.PREFERENCE]
    scales = {c.name: (c.scale.low, c.scale.high) for c in rated} | {COMPOSITE: (0.0, 1.0)}
    if criterion not in scales:
        return
    low, high = scales[criterion]
    match entry:
        case SuperiorGate() | NonInferiorGate() if entry.margin >= high - low:
            yield "margin", f"wants less than {high - low:g}, the length of the scale"
        case AtLeastGate():
            if entry.arm is None and contrast is not None:
                low, high = low - high, high - low
            if not low < entry.value <= high:
                yield "value", f"wants more than {low:g} and at most {high:g}, by the scale"
        case _:
            pass


def _criterion(entry: GateEntry, settings: BaseModel, criteria: Sequence[Criterion]) -> str:
    """Give the criterion that is judged: the gate's, else the estimate's own."""
    return entry.criterion or _own_criterion(settings, criteria)


def _own_criterion(settings: BaseModel, criteria: Sequence[Criterion]) -> str:
    """Give the criterion of an estimate; one that names none has the only one, or the composite."""
    stated: str | None = getattr(settings, "criterion", None)
    return stated or (criteria[0].name if len(criteria) == 1 else COMPOSITE)


# --- what they are judged by -------------------------------------------------------------------


class Derived(NamedTuple):
    """Settings of an estimate that only a gate reads; `family` names the comparisons it is one of."""

    settings: BaseModel
    family: str = ""


def resolved(
    entry: GateEntry, settings: BaseModel, criteria: Sequence[Criterion], arms: Sequence[str]
) -> tuple[Gate, dict[str, Derived]]:
    """Give a gate as it is judged, and the estimates to derive for it, by name.

    A rank takes the paired differences to the K - 1 other arms, each at error (1 - confidence) over
    K - 1, so that all of them hold together.
    """
    criterion = _criterion(entry, settings, criteria) if _has(settings, "criterion") else None
    changes: dict[str, Any] = {}
    if criterion is not None and criterion != _own_criterion(settings, criteria):
        changes = {"criterion": criterion}
    contrast = getattr(settings, "contrast", None)
    taking_part = tuple(arms)
    derived: dict[str, Derived] = {}
    match entry:
        case RankGate():
            derived = dict(_comparisons(entry, settings, changes, arms))
        case AtLeastGate(arm=str(arm)):
            taking_part = (arm,)
        case _ if contrast is not None and contrast.arm is not None:
            taking_part = (contrast.arm, contrast.baseline)
    if changes and not derived:
        name = f"{entry.estimate} ({criterion})"
        derived = {name: Derived(_changed(settings, changes | {"name": name}))}
    gate = Gate(
        estimate=entry.estimate,
        rule=Rule(entry.rule),
        bar=_bar(entry),
        sources=tuple(derived) or (entry.estimate,),
        arms=taking_part,
        criterion=criterion,
        arm=entry.arm,
        max_missing=entry.max_missing,
        on_undecided=entry.on_undecided,
    )
    return gate, derived


def _bar(entry: GateEntry) -> float:
    match entry:
        case SuperiorGate(margin=bar) | NonInferiorGate(margin=bar) | AtLeastGate(value=bar):
            return bar
        case RankGate(rank=rank):
            return rank


def _comparisons(
    entry: RankGate, settings: BaseModel, changes: dict[str, Any], arms: Sequence[str]
) -> Iterator[tuple[str, Derived]]:
    others = [arm for arm in arms if arm != entry.arm]
    level = 1 - (1 - settings.confidence) / len(others)  # type: ignore[attr-defined]  # see misfits
    family = f"differences of {entry.arm} to the {len(others)} other arms"
    for other in others:
        label = ", ".join((*changes.values(), f"{entry.arm} - {other}"))
        name = f"{entry.estimate} ({label})"
        contrast = {"arm": entry.arm, "baseline": other, "paired": True}
        update = {"name": name, "contrast": contrast, "confidence": level}
        yield name, Derived(_changed(settings, changes | update), family)


def _has(settings: BaseModel, key: str) -> bool:
    return key in type(settings).model_fields


def _changed(settings: BaseModel, update: dict[str, Any]) -> BaseModel:
    return type(settings).model_validate(settings.model_dump(by_alias=True) | update)


class Comparison:
    """An estimator's difference alone, as one of a family whose members share the error."""

    def __init__(self, estimator: Estimator, family: str) -> None:
        self._estimator = estimator
        self._family = family

    def update(self, record: Record) -> None:
        """Take in one told question."""
        self._estimator.update(record)

    def estimate(self) -> tuple[Estimate, ...]:
        """Give the first estimate, which is the contrast."""
        first = self._estimator.estimate()[0]
        return (replace(first, alpha_split="Bonferroni", family=self._family),)
