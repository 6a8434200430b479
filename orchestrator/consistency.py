"""What of different sections of a campaign file goes together, and what is probably not meant."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from orchestrator.campaign_file import (
    Budget,
    Campaign,
    Data,
    EstimateEntry,
    Judge,
    Policy,
    Rates,
    Stop,
    System,
    Task,
)
from orchestrator.core.scale import COMPOSITE
from orchestrator.planned import Gate
from orchestrator.wording import did_you_mean, seen


def disagreements(sections: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Name the fields of different sections that don't go together, each with what is wrong.

    A check runs when the sections that it reads are there.
    """
    for check, reads in _CHECKS.items():
        if sections.keys() >= set(reads):
            yield from check(*(sections[name] for name in reads))


def _money(judges: tuple[Judge, ...], budget: Budget, policy: Policy) -> Iterator[tuple[str, str]]:
    priced = next((judge.name for judge in judges if not judge.is_free), None)
    limits = (budget.max_requests, budget.max_tokens, budget.wall_clock)
    if priced is not None and budget.usd is None:
        yield "budget.usd", f"missing; judge {seen(priced)} is not free"
    if priced is None and not any(limits) and getattr(policy.settings, "max_repeats", None) is None:
        yield "budget", _ENDLESS


def _repeats(judges: tuple[Judge, ...], policy: Policy) -> Iterator[tuple[str, str]]:
    """Refuse to pay for the same answer again, which a judge at temperature 0 mostly gives."""
    if policy.allow_identical_repeats or getattr(policy.settings, "max_repeats", 1) == 1:
        return
    for index, judge in enumerate(judges):
        if judge.params.temperature == 0:
            yield f"judges[{index}].params.temperature", _IDENTICAL


def _material(judges: tuple[Judge, ...], data: Data) -> Iterator[tuple[str, str]]:
    reader = next((judge.name for judge in judges if judge.adapter != "recorded"), None)
    if reader is not None and not data.field_names:
        yield "data.fields", f"missing; judge {seen(reader)} wants something to read"


def _pairs(data: Data, systems: tuple[System, ...], task: Task) -> Iterator[tuple[str, str]]:
    arms = [system.name for system in systems] or data.arm_names
    if task.kind == "compare" and arms is not None and len(arms) < 2:
        yield "data.arms", "compare wants two arms or more"


def _gated(stop: Stop, gate: tuple[Gate, ...]) -> Iterator[tuple[str, str]]:
    if stop.when == "gate_decided" and not gate:
        yield "stop.when", "gate_decided wants a gate, and there is none"


def _one_primary(estimate: tuple[EstimateEntry, ...]) -> Iterator[tuple[str, str]]:
    primaries = [index for index, entry in enumerate(estimate) if entry.primary]
    for index in primaries[1:]:
        yield f"estimate[{index}].primary", "another estimate is primary already"


def _targets(
    estimate: tuple[EstimateEntry, ...], data: Data, systems: tuple[System, ...], task: Task
) -> Iterator[tuple[str, str]]:
    """Check the criterion and the arms that an estimate names, whatever its kind."""
    criteria = [*(criterion.name for criterion in task.criteria_values()), COMPOSITE]
    arms = [system.name for system in systems] or data.arm_names
    for index, entry in enumerate(estimate):
        criterion = getattr(entry.settings, "criterion", None)
        if criterion is not None and criterion not in criteria:
            hint = did_you_mean(criterion, criteria)
            yield f"estimate[{index}].criterion", f"no criterion is named {seen(criterion)}{hint}"
        contrast = getattr(entry.settings, "contrast", None)
        if arms is None or getattr(contrast, "arm", None) is None:
            continue
        for side in ("arm", "baseline"):
            arm = getattr(contrast, side)
            if arm not in arms:
                hint = did_you_mean(arm, arms)
                yield f"estimate[{index}].contrast.{side}", f"no arm is named {seen(arm)}{hint}"


def _one_confidence(stop: Stop, estimate: tuple[EstimateEntry, ...]) -> Iterator[tuple[str, str]]:
    """A precision target is one of the primary estimate's interval, so its level is that one's."""
    primary = next((entry for entry in estimate if entry.primary), estimate[0])
    level = getattr(primary.settings, "confidence", stop.confidence)
    if stop.when == "target" and "confidence" in stop.model_fields_set and stop.confidence != level:
        yield "stop.confidence", f"the primary estimate has {level:g}; wants the same"


def _one_truth(judges: tuple[Judge, ...]) -> Iterator[tuple[str, str]]:
    columns = {index: judge.truth for index, judge in enumerate(judges) if judge.truth is not None}
    for index, column in columns.items():
        first = next(iter(columns.values()))
        if column != first:
            yield (
                f"judges[{index}].mock.truth",
                f"another mock takes {seen(first)}; wants one truth",
            )


_ENDLESS = (
    "every judge is free, so the run wants an end: "
    "budget.max_requests, budget.wall_clock or policy.max_repeats"
)
_IDENTICAL = (
    "repeats at temperature 0 are the same answer again; "
    "wants policy.max_repeats: 1 or policy.allow_identical_repeats: true"
)
_CHECKS: dict[Callable[..., Iterator[tuple[str, str]]], tuple[str, ...]] = {
    _money: ("judges", "budget", "policy"),
    _repeats: ("judges", "policy"),
    _material: ("judges", "data"),
    _pairs: ("data", "systems", "task"),
    _gated: ("stop", "gate"),
    _one_primary: ("estimate",),
    _targets: ("estimate", "data", "systems", "task"),
    _one_confidence: ("stop", "estimate"),
    _one_truth: ("judges",),
}
"""Each check with the sections that it reads."""


def cautions(campaign: Campaign) -> Iterator[tuple[str, str]]:
    """Name the fields that are allowed and probably not meant."""
    for index, judge in enumerate(campaign.judges):
        if isinstance(judge.price_usd_per_1m, Rates):
            for key, rate in judge.price_usd_per_1m:
                if rate and rate < _IMPLAUSIBLE_RATE:
                    yield f"judges[{index}].price_usd_per_1m.{key}", _WRONG_UNIT


_IMPLAUSIBLE_RATE = 1000
"""A tenth of a cent per million tokens, in pico-USD per token; the cheapest model sold in 2026 asks
twenty times as much."""
_WRONG_UNIT = "looks like USD per token; wants USD per million tokens"
