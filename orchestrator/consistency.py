"""What of different sections of a campaign file goes together, and what is probably not meant."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any
from urllib.parse import urlsplit

from judges.rubrics.ids import MOST_UNITS
from orchestrator.campaign_file import (
    Budget,
    Campaign,
    Data,
    EstimateEntry,
    Judge,
    Labels,
    Policy,
    Rates,
    Stop,
    System,
    Task,
)
from orchestrator.core.scale import COMPOSITE, ScaleType
from orchestrator.gates import GateEntry, misfits
from orchestrator.planned import PLANNED
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
    ends = getattr(policy.settings, "max_repeats", None) or _weighs_prices(policy)
    if priced is None and not any(limits) and not ends:
        yield "budget", _ENDLESS


def _weighs_prices(policy: Policy) -> bool:
    """Whether a policy spreads a sum over judges by their prices, and ends with it."""
    return getattr(policy.settings, "weighs_prices", False)


def _repeats(judges: tuple[Judge, ...], policy: Policy) -> Iterator[tuple[str, str]]:
    """Refuse to pay for the same answer again, which a judge at temperature 0 mostly gives."""
    if policy.allow_identical_repeats or getattr(policy.settings, "max_repeats", 1) == 1:
        return
    for index, judge in enumerate(judges):
        if judge.params.temperature == 0:
            yield f"judges[{index}].params.temperature", _IDENTICAL


def _judges_of_policy(judges: tuple[Judge, ...], policy: Policy) -> Iterator[tuple[str, str]]:
    """Check the judges that a policy names, whatever its kind."""
    names = [judge.name for judge in judges]
    helpers = getattr(policy.settings, "helpers", None)
    named = {"anchor": getattr(policy.settings, "anchor", None)}
    if isinstance(helpers, tuple):
        named |= {f"helpers[{index}]": name for index, name in enumerate(helpers)}
    named |= {f"weights.{name}": name for name in getattr(policy.settings, "weights", None) or ()}
    for key, name in named.items():
        if name is not None and name not in names:
            yield f"policy.{key}", f"no judge is named {seen(name)}{did_you_mean(name, names)}"


def _prices(judges: tuple[Judge, ...], budget: Budget, policy: Policy) -> Iterator[tuple[str, str]]:
    """Give a policy that weighs judges by price a price of each, and a sum to spread."""
    if not _weighs_prices(policy):
        return
    for index, judge in enumerate(judges):
        if judge.is_free and not judge.planning_usd_per_call:
            yield (
                f"judges[{index}].planning_usd_per_call",
                f"missing; {policy.kind} weighs judges by price, and {seen(judge.name)} is free",
            )
    if budget.usd is None and all(judge.is_free for judge in judges):
        yield "budget.usd", f"missing; {policy.kind} spreads dollars, be they planning prices"


def _anchors(
    policy: Policy, estimate: tuple[EstimateEntry, ...], labels: Labels | None
) -> Iterator[tuple[str, str]]:
    """Want human labels where judges are to be put on their scale."""
    if labels is not None:
        return
    entries = {f"estimate[{index}]": entry for index, entry in enumerate(estimate)}
    for key, entry in {"policy": policy, **entries}.items():
        if getattr(entry.settings, "calibration", None) == "anchors":
            yield f"{key}.calibration", "anchors wants human labels, and `labels` is missing"


def _material(judges: tuple[Judge, ...], data: Data) -> Iterator[tuple[str, str]]:
    reader = next((judge.name for judge in judges if judge.adapter != "recorded"), None)
    if reader is not None and not data.field_names:
        yield "data.fields", f"missing; judge {seen(reader)} wants something to read"


def _pairs(data: Data, systems: tuple[System, ...], task: Task) -> Iterator[tuple[str, str]]:
    arms = [system.name for system in systems] or data.arm_names
    if task.kind == "compare" and arms is not None and len(arms) < 2:
        yield "data.arms", "compare wants two arms or more"


def _batches(
    task: Task, policy: Policy, estimate: tuple[EstimateEntry, ...]
) -> Iterator[tuple[str, str]]:
    """Keep together what lays batches out, what asks them and what reads them."""
    is_batched = task.kind == "rate_batch"
    if is_batched and policy.kind in _ONE_UNIT:
        yield (
            "policy.kind",
            f"{policy.kind} asks about one unit a call; rate_batch wants batch_design",
        )
    if policy.kind == "batch_design" and not is_batched:
        yield (
            "policy.kind",
            f"batch_design lays out calls of rate_batch, and task.kind is {task.kind}",
        )
    size = getattr(policy.settings, "batch_size", None)
    if size is not None and size > MOST_UNITS:
        yield "policy.batch_size", f"a call names at most {MOST_UNITS} units, not {size:,}"
    for index, entry in enumerate(estimate):
        if _models_order(entry) and not is_batched:
            message = f"markov_glmm reads the batches of rate_batch, and task.kind is {task.kind}"
            yield f"estimate[{index}].kind", message


def _yes(task: Task, estimate: tuple[EstimateEntry, ...]) -> Iterator[tuple[str, str]]:
    """Want a line between no and yes where one is read."""
    if task.kind != "rate_batch":
        return
    scale, line = task.criteria_values()[0].scale, task.accept_from
    ends = f"above {scale.low:g} and up to {scale.high:g}, where the scale is"
    if line is not None and not scale.low < line <= scale.high:
        yield "task.accept_from", f"{line:g} is no verdict that parts the others; wants one {ends}"
    if scale.type is ScaleType.BOOLEAN or line is not None:
        return
    for entry in estimate:
        if _models_order(entry) and getattr(entry.settings, "accept_from", None) is None:
            message = f"missing; markov_glmm wants the lowest verdict that is a yes, {ends}"
            yield "task.accept_from", message
            return


def _models_order(entry: EstimateEntry) -> bool:
    """Say whether an estimate is one of `markov_glmm`, whatever name it goes by."""
    return hasattr(entry.settings, "quadrature")


def _looks(
    stop: Stop, gate: tuple[GateEntry, ...], estimate: tuple[EstimateEntry, ...]
) -> Iterator[tuple[str, str]]:
    """Planned looks want an estimate that spends its error over them."""
    if stop.checking != "group_sequential":
        return
    key = "stop.check" if stop.rule is None else "stop.rule"
    gated = {entry.estimate for entry in gate}
    primary = next((entry for entry in estimate if entry.primary), estimate[0])
    for index, entry in enumerate(estimate):
        if entry.kind not in _WITHOUT_LOOKS:
            if entry is primary and _models_order(entry) and entry.settings.contrast is None:
                yield key, "planned looks want a contrast of the primary estimate, and it has none"
        elif entry is primary or entry.name in gated:
            which = "the primary estimate" if entry is primary else f"estimate {seen(entry.name)}"
            yield key, f"{which} is {entry.kind}; planned looks want markov_glmm with a contrast"
        elif getattr(entry.settings, "check", None) is None:
            message = (
                f"{entry.kind} has no bounds for planned looks; beside them it wants check: end"
            )
            yield f"estimate[{index}].check", message


def _gated(
    stop: Stop, gate: tuple[GateEntry, ...], estimate: tuple[EstimateEntry, ...]
) -> Iterator[tuple[str, str]]:
    """A gate that ends the run is read at every look, so its intervals must hold at every look."""
    if stop.when != "gate_decided":
        return
    if not gate:
        yield "stop.when", "gate_decided wants a gate, and there is none"
    elif stop.checking == "end":
        yield "stop.check", _PEEKING
    for index, entry in enumerate(estimate):
        own = getattr(entry.settings, "check", None)
        if own == "end" and entry.name in {one.estimate for one in gate}:
            yield f"estimate[{index}].check", _PEEKING


def _gates(
    gate: tuple[GateEntry, ...],
    estimate: tuple[EstimateEntry, ...],
    data: Data,
    systems: tuple[System, ...],
    task: Task,
) -> Iterator[tuple[str, str]]:
    """Check what each gate asks of its estimate; what is planned is refused elsewhere."""
    arms = [system.name for system in systems] or data.arm_names
    built = {e.name: e.settings for e in estimate if e.kind not in PLANNED["estimators"]}
    for index, entry in enumerate(gate):
        if entry.estimate in built:
            settings = built[entry.estimate]
            for key, message in misfits(entry, settings, task.criteria_values(), arms):
                yield f"gate[{index}].{key}", message


def _one_primary(estimate: tuple[EstimateEntry, ...]) -> Iterator[tuple[str, str]]:
    primaries = [index for index, entry in enumerate(estimate) if entry.primary]
    for index in primaries[1:]:
        yield f"estimate[{index}].primary", "another estimate is primary already"


def _targets(
    estimate: tuple[EstimateEntry, ...], data: Data, systems: tuple[System, ...], task: Task
) -> Iterator[tuple[str, str]]:
    """Check the criterion, arms and groups that an estimate names, whatever its kind."""
    criteria = [*(criterion.name for criterion in task.criteria_values()), COMPOSITE]
    arms = [system.name for system in systems] or data.arm_names
    for index, entry in enumerate(estimate):
        criterion = getattr(entry.settings, "criterion", None)
        if criterion is not None and criterion not in criteria:
            hint = did_you_mean(criterion, criteria)
            yield f"estimate[{index}].criterion", f"no criterion is named {seen(criterion)}{hint}"
        contrast = getattr(entry.settings, "contrast", None)
        group, arm = (getattr(contrast, key, None) for key in ("group", "arm"))
        if group is not None and data.group is None:
            yield f"estimate[{index}].contrast.group", "data.group is not set"
        if contrast is not None and contrast.baseline in {group, arm}:
            message = f"{seen(contrast.baseline)} can't be compared with itself"
            yield f"estimate[{index}].contrast.baseline", message
        if arms is None or arm is None:
            continue
        for side in ("arm", "baseline"):
            named = getattr(contrast, side)
            if named not in arms:
                hint = did_you_mean(named, arms)
                yield f"estimate[{index}].contrast.{side}", f"no arm is named {seen(named)}{hint}"


def _one_confidence(
    stop: Stop, estimate: tuple[EstimateEntry, ...], gate: tuple[GateEntry, ...]
) -> Iterator[tuple[str, str]]:
    """A stop rule reads the intervals of estimates, so its level is theirs."""
    primary = next((entry for entry in estimate if entry.primary), estimate[0])
    read = {
        "target": [primary],
        "gate_decided": [e for e in estimate if e.name in {g.estimate for g in gate}],
    }
    if "confidence" not in stop.model_fields_set:
        return
    for entry in read.get(stop.when, []):
        level = getattr(entry.settings, "confidence", stop.confidence)
        if level != stop.confidence:
            which = "the primary estimate" if entry is primary else f"estimate {seen(entry.name)}"
            yield "stop.confidence", f"{which} has {level:g}; wants the same"


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
_ONE_UNIT = ("uniform", "two_phase", "est_ivwe", "active_pairwise", "subsample")
_WITHOUT_LOOKS = ("score_means", "bradley_terry", "bt_tensor", "exchangeable")
_PEEKING = "a gate that ends the run is read at every look; wants anytime, not end"
_CHECKS: dict[Callable[..., Iterator[tuple[str, str]]], tuple[str, ...]] = {
    _money: ("judges", "budget", "policy"),
    _repeats: ("judges", "policy"),
    _judges_of_policy: ("judges", "policy"),
    _prices: ("judges", "budget", "policy"),
    _anchors: ("policy", "estimate", "labels"),
    _material: ("judges", "data"),
    _pairs: ("data", "systems", "task"),
    _batches: ("task", "policy", "estimate"),
    _yes: ("task", "estimate"),
    _looks: ("stop", "gate", "estimate"),
    _gated: ("stop", "gate", "estimate"),
    _gates: ("gate", "estimate", "data", "systems", "task"),
    _one_primary: ("estimate",),
    _targets: ("estimate", "data", "systems", "task"),
    _one_confidence: ("stop", "estimate", "gate"),
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
        if (added := _added_path(judge)) is not None:
            message = f"ends in {added}, which {judge.adapter} adds itself; leave it out"
            yield f"judges[{index}].base_url", message
    if campaign.task.kind == "rate_batch":
        for index, entry in enumerate(campaign.estimate):
            if entry.kind == "score_means":
                yield f"estimate[{index}].kind", _RAW


def _added_path(judge: Judge) -> str | None:
    """Give the end of a judge's address that its adapter adds to it once more."""
    path = urlsplit(judge.base_url or "").path.rstrip("/")
    return next((end for end in _ADDED.get(judge.adapter, ()) if path.endswith(end)), None)


_ADDED: Mapping[str, tuple[str, ...]] = {
    "openai": ("/chat/completions", "/responses"),
    "compatible": ("/chat/completions",),
    "anthropic": ("/v1/messages", "/v1"),
}
_IMPLAUSIBLE_RATE = 1000
"""A tenth of a cent per million tokens, in pico-USD per token; the cheapest model sold in 2026 asks
twenty times as much."""
_RAW = (
    "raw means of verdicts in batches hang on the order and on how far a group is spread; "
    "markov_glmm models both"
)
_WRONG_UNIT = "looks like USD per token; wants USD per million tokens"
