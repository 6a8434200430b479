"""What a campaign file may say already and Sortition can't do yet.

The models are complete, so that files written for it validate; `refused` names each such thing when
one tries to run it. What gets built moves from here to its own module.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import BeforeValidator, Discriminator, Field, Tag

from orchestrator.core.errors import Problem
from orchestrator.core.scale import Criterion, Scale, ScaleType
from orchestrator.quantities import (
    JudgeName,
    Lax,
    Level,
    Loc,
    Model,
    Name,
    Some,
)
from orchestrator.registry import Group
from orchestrator.task import DEFAULT_CRITERION, Asking
from orchestrator.wording import seen

if TYPE_CHECKING:
    from orchestrator.campaign_file import Campaign
    from orchestrator.config import CampaignFile

Natural = Annotated[int, Field(ge=0)]
Positive = Annotated[int, Field(gt=0)]


def _word_or(read: Callable[[object], float], *words: str) -> BeforeValidator:
    """Let a word stand where a number is wanted."""

    def check(value: object) -> object:
        return value if value in words else read(value)

    return BeforeValidator(check)


def _number_from(low: float) -> Callable[[object], float]:
    def read(value: object) -> float:
        if isinstance(value, bool) or not isinstance(value, int | float) or not value >= low:
            raise ValueError(f"wants a number from {low:g} up, not {seen(value)}")
        return float(value)

    return read


def _norm(value: object) -> float | str:
    """Read the order of a norm; infinity becomes a word, because JSON has no such number."""
    return "inf" if value in ("inf", math.inf) else _number_from(1)(value)


# --- tasks -------------------------------------------------------------------------------------


class MatchStep(Model):
    """Decides what equals a field, at no cost."""

    match: Name
    normalise: Annotated[tuple[Literal["case", "space"], ...], Lax] = ()


class JudgeStep(Model):
    """Asks a judge about what is left."""

    judge: JudgeName
    rubric: str | None = None


class ColumnStep(Model):
    """Reads a recorded verdict."""

    column: Name


def _step_of(value: Any) -> str | None:
    keys = value if isinstance(value, dict) else vars(value) if isinstance(value, Model) else {}
    return next((key for key in ("match", "judge", "column") if key in keys), None)


Step = Annotated[
    Annotated[MatchStep, Tag("match")]
    | Annotated[JudgeStep, Tag("judge")]
    | Annotated[ColumnStep, Tag("column")],
    Discriminator(
        _step_of,
        custom_error_type="wants",
        custom_error_message="wants {match: FIELD}, {judge: NAME} or {column: COLUMN}",
    ),
]


class CheckTask(Asking):
    """Right or wrong against a key, by the first step that decides."""

    kind: Literal["check"]
    verdict: Annotated[tuple[Step, ...], Lax, Some]

    def contradictions(self) -> Iterable[tuple[Loc, str]]:
        """Take right or wrong as the scale unless one is given."""
        if self.scale is not None or self.criteria:
            yield from super().contradictions()

    def criteria_values(self) -> tuple[Criterion, ...]:
        """Give the criteria; without a scale, right or wrong."""
        if self.scale is not None or self.criteria:
            return super().criteria_values()
        right = Scale(type=ScaleType.BOOLEAN, labels=("wrong", "right"))
        return (Criterion(name=DEFAULT_CRITERION, scale=right),)


# --- policies ----------------------------------------------------------------------------------


class SubsampleConfig(Model):
    """A random part of a benchmark, in an order that is fixed up front."""

    kind: Literal["subsample"]
    design: Literal["simple", "stratified", "macro", "paired"] = "simple"
    strata: Literal["proportional", "equal"] | None = None


# --- estimates ---------------------------------------------------------------------------------


class ExchangeableConfig(Model):
    """What a part of a benchmark says about the whole."""

    name: Name
    kind: Literal["exchangeable"]
    model: Literal["fixed", "exchangeable"] = "fixed"
    sequence: Literal["betting", "prior_posterior", "hoeffding", "empirical_bernstein"] = "betting"
    error_split: Literal["arms", "pairs", "none"] = "arms"
    confidence: Level = 0.95


PLANNED: Mapping[Group, Mapping[str, type[Model]]] = {
    "judges": {},
    "policies": {
        "subsample": SubsampleConfig,
    },
    "estimators": {
        "exchangeable": ExchangeableConfig,
    },
}
"""Kinds that are not built, with the model of their keys."""


# --- refusal -----------------------------------------------------------------------------------


def refused(file: CampaignFile) -> list[Problem]:
    """List what the campaign asks for and can't be run yet."""
    return [
        file.locate(path, f"{what} is planned and not built yet")
        for path, what in _unbuilt(file.campaign)
    ]


def _unbuilt(campaign: Campaign) -> Iterator[tuple[str, str]]:
    for index, judge in enumerate(campaign.judges):
        if judge.lane == "batch":
            yield f"judges[{index}].lane", "batch"
    task, stop = campaign.task, campaign.stop
    if task.kind == "check":
        yield "task.kind", task.kind
    if campaign.policy.kind in PLANNED["policies"]:
        yield "policy.kind", campaign.policy.kind
    for index, entry in enumerate(campaign.estimate):
        if entry.kind in PLANNED["estimators"]:
            yield f"estimate[{index}].kind", entry.kind
    if stop.checking == "group_sequential" and campaign.policy.kind != "batch_design":
        yield "stop.check", stop.checking
    if stop.of != "primary":
        yield "stop.of", stop.of
    if "junit" in campaign.output.formats:
        yield "output.formats", "junit"
    for key, what in _SECTIONS.items():
        if getattr(campaign, key):
            yield key, what


_SECTIONS = {
    "systems": "asking systems for answers",
}
