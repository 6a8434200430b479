"""What of different sections of a campaign file goes together, and what is probably not meant.

The units that the data hold are a section too, once they are read.
"""

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
    Output,
    Policy,
    Rates,
    Stop,
    System,
    Task,
)
from orchestrator.core.frame import CANDIDATE, Frame
from orchestrator.core.money import format_usd
from orchestrator.core.scale import COMPOSITE, ScaleType
from orchestrator.covariates import measured_fields
from orchestrator.gates import GateEntry, misfits
from orchestrator.task import KEY, CheckTask, ColumnStep
from orchestrator.wording import did_you_mean, seen
from policies.batch_design import BatchDesignConfig, length_of_block


def disagreements(sections: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Name the fields of different sections that don't go together, each with what is wrong.

    A check runs when the sections that it reads are there; `frame` is the sampling frame, and `named`
    are estimates whose names are looked up: unless given, those of the section.
    """
    if "estimate" in sections:
        sections = {"named": sections["estimate"], **sections}
    for check, reads in _CHECKS.items():
        if sections.keys() >= set(reads):
            yield from check(*(sections[name] for name in reads))


def _money(
    judges: tuple[Judge, ...],
    systems: tuple[System, ...],
    budget: Budget,
    policy: Policy,
    stop: Stop,
) -> Iterator[tuple[str, str]]:
    roles = {judge.name: "judge" for judge in judges} | {
        system.name: "system" for system in systems
    }
    priced = next((one.name for one in (*judges, *systems) if not one.is_free), None)
    limits = (budget.max_requests, budget.max_tokens, budget.wall_clock, stop.max_answers)
    keys = type(policy.settings).model_fields
    if priced is not None and budget.usd is None:
        yield "budget.usd", f"missing; {roles[priced]} {seen(priced)} is not free"
    if budget.by_role.system is not None and not systems:
        yield "budget.by_role.system", "there are no systems, so this is never read"
    ends = getattr(policy.settings, "max_repeats", None) or keys.keys() & {"blocks", "max_items"}
    if priced is None and not any(limits) and not ends and not _weighs_prices(policy):
        own = ", or policy.max_repeats" if "max_repeats" in keys else ""
        yield "budget", f"{_ENDLESS}{own}"


def _weighs_prices(policy: Policy) -> bool:
    """Whether a policy spreads a sum over judges by their prices, and ends with it."""
    return getattr(policy.settings, "weighs_prices", False)


def _repeats(judges: tuple[Judge, ...], policy: Policy) -> Iterator[tuple[str, str]]:
    """Refuse to pay for the same answer again, which a judge at temperature 0 mostly gives."""
    settings = policy.settings
    key = next((key for key in ("max_repeats", "repeats") if getattr(settings, key, 1) != 1), None)
    if policy.allow_identical_repeats or key is None:
        return
    for index, judge in enumerate(judges):
        if judge.params.temperature == 0:
            yield f"judges[{index}].params.temperature", _IDENTICAL.format(key=key)


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


def _material(
    judges: tuple[Judge, ...], systems: tuple[System, ...], data: Data
) -> Iterator[tuple[str, str]]:
    readers = [one.name for one in (*judges, *systems) if one.adapter not in {"recorded", KEY}]
    if readers and not data.field_names:
        yield "data.fields", f"missing; {seen(readers[0])} wants something to read"


def _systems(
    judges: tuple[Judge, ...],
    systems: tuple[System, ...],
    data: Data,
    output: Output,
) -> Iterator[tuple[str, str]]:
    """Let systems be the arms, whose answers are not there yet and stand in the log."""
    if not systems:
        return
    for key in ("arm", "arms"):
        if getattr(data, key) is not None:
            yield f"data.{key}", "the systems are the arms, so there are no others"
    if CANDIDATE in data.field_names:
        message = "it holds what systems answer, which is not there before they are asked"
        yield f"data.fields.{CANDIDATE}", message
    names = [judge.name for judge in judges]
    for index, system in enumerate(systems):
        if system.name in names:
            taken = names.index(system.name)
            message = f"{seen(system.name)} is the name of judges[{taken}] already"
            yield f"systems[{index}].name", message
    if output.keep.replies != "full":
        message = "systems' answers stand in the log, which a resume reads them from; wants full"
        yield "output.keep.replies", message


def _steps(
    judges: tuple[Judge, ...], systems: tuple[System, ...], task: Task
) -> Iterator[tuple[str, str]]:
    """Let each judge be asked by one step, and verdicts be recorded on answers that there are."""
    if not isinstance(task, CheckTask):
        return
    for index, step in enumerate(task.verdict):
        if systems and isinstance(step, ColumnStep):
            message = "a recorded verdict can't be on an answer that is still to come"
            yield f"task.verdict[{index}].column", message
    for index, judge in enumerate(judges):
        if judge.name not in task.asks and judge.adapter != KEY:
            yield f"judges[{index}].name", f"no step of task.verdict asks {seen(judge.name)}"
        elif judge.adapter == KEY and task.asks:
            yield f"judges[{index}].adapter", f"{KEY} judges nothing, and steps ask judges"


def _pairs(data: Data, systems: tuple[System, ...], task: Task) -> Iterator[tuple[str, str]]:
    arms = [system.name for system in systems] or data.arm_names
    if task.kind == "compare" and arms is not None and len(arms) < 2:
        yield "data.arms", _ALONE
    if task.kind != "compare" and data.prior_judgments:
        message = f"judgments of earlier runs are taken in by compare, and task.kind is {task.kind}"
        yield "data.prior_judgments", message


def _pairs_there(data: Data, frame: Frame, task: Task) -> Iterator[tuple[str, str]]:
    if task.kind == "compare" and data.arm is not None and frame.n_arms < 2:
        yield "data.arm", f"{_ALONE}, and all rows have {seen(frame.arms[0])}"


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
        if _models_order(entry) and task.kind not in {"rate_batch", "compare"}:
            message = f"markov_glmm reads the batches of rate_batch, and task.kind is {task.kind}"
            yield f"estimate[{index}].kind", message


def _drawn(policy: Policy, estimate: tuple[EstimateEntry, ...]) -> Iterator[tuple[str, str]]:
    """Refuse to read a random part of a benchmark in an order that the policy does not follow."""
    if policy.kind not in _ONE_UNIT or policy.kind == "subsample":
        return
    for index, entry in enumerate(estimate):
        if entry.kind == "exchangeable":
            message = (
                "exchangeable reads items in the order in which policy.kind: subsample draws them, and "
                f"{policy.kind} has another"
            )
            yield f"estimate[{index}].kind", message


def _comparisons(
    task: Task, policy: Policy, estimate: tuple[EstimateEntry, ...], labels: Labels | None
) -> Iterator[tuple[str, str]]:
    """Keep together what asks comparisons and what reads them."""
    if task.kind != "compare":
        return
    if policy.kind in _ONE_UNIT and policy.kind not in _IN_PAIRS:
        wanted = " or ".join(_IN_PAIRS)
        yield "policy.kind", f"{policy.kind} asks about one unit a call; compare wants {wanted}"
    for index, entry in enumerate(estimate):
        if entry.kind in _OF_UNITS:
            message = (
                f"{entry.kind} reads verdicts on units; compare wants bradley_terry or bt_tensor"
            )
            yield f"estimate[{index}].kind", message
    if labels is not None:
        yield "labels.path", "labels are verdicts on units, and compare asks about pairs of them"


def _contexts(data: Data, estimate: tuple[EstimateEntry, ...]) -> Iterator[tuple[str, str]]:
    """Want the categories that strengths differ by to be those of the data."""
    for index, entry in enumerate(estimate):
        context = getattr(entry.settings, "context", None)
        if context is None or context == data.strata:
            continue
        message = "data.strata is not set"
        if data.strata is not None:
            hint = did_you_mean(context, [data.strata])
            message = f"{seen(context)} is not the column that data.strata names{hint}"
        yield f"estimate[{index}].context", message


def _families(
    judges: tuple[Judge, ...],
    data: Data,
    systems: tuple[System, ...],
    estimate: tuple[EstimateEntry, ...],
) -> Iterator[tuple[str, str]]:
    """Look up the judges and arms whose makers an estimate names."""
    known = {
        "judges": [judge.name for judge in judges],
        "arms": [system.name for system in systems] or data.arm_names,
    }
    for index, entry in enumerate(estimate):
        families = getattr(entry.settings, "families", None)
        for part, names in known.items():
            for name in getattr(families, part, None) or ():
                if names is not None and name not in names:
                    message = f"no {part[:-1]} is named {seen(name)}{did_you_mean(name, names)}"
                    yield f"estimate[{index}].families.{part}", message


def _covariates(data: Data, estimate: tuple[EstimateEntry, ...]) -> Iterator[tuple[str, str]]:
    """Look up the fields that are measured; columns are looked up in the files."""
    for key, name in measured_fields(estimate).items():
        if name not in data.field_names:
            hint = did_you_mean(name, sorted(data.field_names))
            yield key, f"no field is named {seen(name)}{hint}"


def _recorded(judges: tuple[Judge, ...], task: Task) -> Iterator[tuple[str, str]]:
    """Refuse recordings that hold nothing of what is asked."""
    if task.kind == "rate_batch":
        for index, judge in enumerate(judges):
            if judge.adapter == "recorded":
                yield f"judges[{index}].adapter", _SINGLE


def _counted(
    judges: tuple[Judge, ...],
    budget: Budget,
    policy: Policy,
    stop: Stop,
    estimate: tuple[EstimateEntry, ...],
) -> Iterator[tuple[str, str]]:
    """Want a number of blocks that is known, given or by the cap, and one course for all parts."""
    if policy.kind != "batch_design":
        return
    blocks = policy.settings.blocks
    if blocks == "auto" and all(judge.is_free for judge in judges):
        is_planned = any(judge.planning_usd_per_call for judge in judges)
        if budget.usd is None or not is_planned:
            lacks = "judges are free" if not is_planned else "it is missing"
            message = f"auto is what budget.usd pays for, and {lacks}; wants a number"
            yield "policy.blocks", message
    check = policy.settings.check
    if check not in {None, stop.checking}:
        message = f"{check}, and that of the stop rule, which it follows, is {stop.checking}"
        yield "policy.check", f"{message}: leave it out"
    for index, entry in enumerate(estimate):
        own = getattr(entry.settings, "blocks", None)
        if own not in {None, blocks}:
            message = f"{own}, and policy.blocks, which it follows, is {blocks}: leave it out"
            yield f"estimate[{index}].blocks", message


def _yes(task: Task, estimate: tuple[EstimateEntry, ...]) -> Iterator[tuple[str, str]]:
    """Want a line between no and yes where one is read."""
    if task.kind != "rate_batch":
        return
    scale = task.criteria_values()[0].scale
    ends = f"above {scale.low:g} and up to {scale.high:g}, where the scale is"
    own = {f"estimate[{index}]": entry.settings for index, entry in enumerate(estimate)}
    for key, settings in {"task": task, **own}.items():
        line = getattr(settings, "accept_from", None)
        if line is None:
            continue
        if scale.type is ScaleType.BOOLEAN:
            yield f"{key}.accept_from", "a boolean scale has its yes, so this is never read"
        elif not scale.low < line <= scale.high:
            message = f"{line:g} is no verdict that parts the others; wants one {ends}"
            yield f"{key}.accept_from", message
    if scale.type is ScaleType.BOOLEAN or task.accept_from is not None:
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
            is_read = entry is primary and stop.when != "ranking_separated"
            if is_read and _models_order(entry) and entry.settings.contrast is None:
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


def _ranked(stop: Stop, estimate: tuple[EstimateEntry, ...]) -> Iterator[tuple[str, str]]:
    """A ranking that ends the run wants an estimate that ranks, and claims that hold at every look."""
    if stop.when != "ranking_separated":
        return
    index = next((i for i, entry in enumerate(estimate) if entry.primary), 0)
    primary = estimate[index]
    if primary.kind in _WITHOUT_RANKING:
        yield "stop.when", f"ranking_separated wants a ranking, and {primary.kind} makes none"
    elif _models_order(primary) and primary.settings.contrast is not None:
        yield "stop.when", "ranking_separated wants a ranking; with a contrast there is none"
    elif _models_order(primary) and stop.separates == "ranking":
        yield "stop.separate", "markov_glmm separates the leader alone"
    own = getattr(primary.settings, "check", None)
    if stop.checking == "end" and own is None:
        yield "stop.check", _PEEKING_RANKS
    elif own == "end":
        yield f"estimate[{index}].check", _PEEKING_RANKS


def _gates(
    gate: tuple[GateEntry, ...],
    estimate: tuple[EstimateEntry, ...],
    data: Data,
    systems: tuple[System, ...],
    task: Task,
) -> Iterator[tuple[str, str]]:
    """Check what each gate asks of its estimate."""
    arms = [system.name for system in systems] or data.arm_names
    built = {e.name: e.settings for e in estimate}
    for index, entry in enumerate(gate):
        if entry.estimate in built:
            settings = built[entry.estimate]
            for key, message in misfits(entry, settings, task.criteria_values(), arms):
                yield f"gate[{index}].{key}", message


def _one_primary(estimate: tuple[EstimateEntry, ...]) -> Iterator[tuple[str, str]]:
    primaries = [index for index, entry in enumerate(estimate) if entry.primary]
    for index in primaries[1:]:
        yield f"estimate[{index}].primary", "another estimate is primary already"


def _criteria(estimate: tuple[EstimateEntry, ...], task: Task) -> Iterator[tuple[str, str]]:
    """Check the criterion that an estimate names, whatever its kind."""
    criteria = [*(criterion.name for criterion in task.criteria_values()), COMPOSITE]
    for index, entry in enumerate(estimate):
        criterion = getattr(entry.settings, "criterion", None)
        if criterion is not None and criterion not in criteria:
            hint = did_you_mean(criterion, criteria)
            yield f"estimate[{index}].criterion", f"no criterion is named {seen(criterion)}{hint}"


def _targets(
    estimate: tuple[EstimateEntry, ...], data: Data, systems: tuple[System, ...]
) -> Iterator[tuple[str, str]]:
    """Check the arms and groups that an estimate names, whatever its kind."""
    arms = [system.name for system in systems] or data.arm_names
    for index, entry in enumerate(estimate):
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
                hint = did_you_mean(named, arms) if any(arms) else "; there are no arms"
                yield f"estimate[{index}].contrast.{side}", f"no arm is named {seen(named)}{hint}"


def _pool(
    frame: Frame, task: Task, policy: Policy, estimate: tuple[EstimateEntry, ...]
) -> Iterator[tuple[str, str]]:
    """Hold a design of batches, and what models them, against the units that there are."""
    if task.kind != "rate_batch":
        return
    n_units, design = frame.n_units, policy.settings
    if n_units < 2:
        yield "data", "rate_batch wants two units or more in a call, and there is one"
    given = getattr(design, "batch_size", None)
    size = given or n_units
    if n_units < size <= MOST_UNITS:
        yield "policy.batch_size", f"{size:,} is more than the {n_units:,} units that there are"
    elif given is None and size > MOST_UNITS:
        message = f"missing; a call names at most {MOST_UNITS} units, and there are {n_units:,}"
        yield "policy.batch_size", message
    length = None
    if isinstance(design, BatchDesignConfig):
        yield from _balance(frame, design)
        length = length_of_block(design, frame)
    for index, entry in enumerate(estimate):
        if not _models_order(entry):
            continue
        lags, own = entry.settings.lags, entry.settings.block_length
        if lags >= max(size, 2):
            message = f"{lags} is farther back than batches of {size} go; wants at most {size - 1}"
            yield f"estimate[{index}].lags", message
        if own is not None and length is not None and own != length:
            message = (
                f"{own}, and blocks of the policy, which it follows, have {length}: leave it out"
            )
            yield f"estimate[{index}].block_length", message


def _balance(frame: Frame, design: BatchDesignConfig) -> Iterator[tuple[str, str]]:
    """Refuse to balance what does not differ, or an order that is not designed."""
    if design.balance == "none":
        return
    if design.design == "fixed":
        yield "policy.balance", "fixed takes the file's order as it is; wants none, or shuffle"
    elif frame.groups:
        if len(frame.groups) == 1:
            message = f"all items are of one group, {seen(frame.groups[0])}; wants none"
            yield "policy.balance", message
    elif frame.n_arms == 1:
        yield "policy.balance", "there are neither groups nor arms: set data.group, or leave it out"


def _contrasts(frame: Frame, estimate: tuple[EstimateEntry, ...]) -> Iterator[tuple[str, str]]:
    """Look up what estimates compare among the groups and arms of the data."""
    for index, entry in enumerate(estimate):
        yield from _looked_up(frame, entry.settings, f"estimate[{index}]")


def _contrast_of_policy(frame: Frame, policy: Policy) -> Iterator[tuple[str, str]]:
    """Look up what a policy plans for among the arms of the data."""
    yield from _looked_up(frame, policy.settings, "policy")


def _looked_up(frame: Frame, settings: object, key: str) -> Iterator[tuple[str, str]]:
    contrast = getattr(settings, "contrast", None)
    if contrast is None:
        return
    group, arm = (getattr(contrast, side, None) for side in ("group", "arm"))
    what, known = ("arm", frame.arms) if group is None else ("group", frame.groups)
    for side, name in {what: group or arm, "baseline": contrast.baseline}.items():
        if known and name not in known:
            hint = did_you_mean(name, known) if any(known) else "; there are no arms"
            yield f"{key}.contrast.{side}", f"no {what} is named {seen(name)}{hint}"
        elif (
            known
            and getattr(settings, "inference", None) == "items"
            and _n_units(frame, what, name) < 2
        ):
            message = f"items wants two units or more on each side, and {seen(name)} has one"
            yield f"{key}.inference", message


def _n_units(frame: Frame, what: str, name: str) -> int:
    """Count the units of a group or an arm."""
    if what == "arm":
        return frame.n_items
    return int((frame.group == frame.groups.index(name)).sum()) * frame.n_arms


def _one_confidence(
    stop: Stop, estimate: tuple[EstimateEntry, ...], gate: tuple[GateEntry, ...]
) -> Iterator[tuple[str, str]]:
    """A stop rule reads the intervals of estimates, so its level is theirs."""
    primary = next((entry for entry in estimate if entry.primary), estimate[0])
    read = {
        "target": [primary],
        "ranking_separated": [primary],
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
    "every judge is free, so the run wants an end: one of budget.max_requests, budget.max_tokens, "
    "budget.wall_clock, stop.max_answers"
)
_IDENTICAL = (
    "repeats at temperature 0 are the same answer again; "
    "wants policy.{key}: 1 or policy.allow_identical_repeats: true"
)
_SINGLE = (
    "recordings hold verdicts on units one by one, and rate_batch asks about several at once; "
    "verdicts given in batches are read by `sortition estimate`"
)
_ONE_UNIT = ("uniform", "two_phase", "est_ivwe", "active_pairwise", "subsample")
_ALONE = "compare wants two arms or more"
_IN_PAIRS = ("uniform", "active_pairwise")
_OF_UNITS = ("score_means", "markov_glmm", "exchangeable")
_OF_MEANS = ("score_means", "exchangeable")
_WITHOUT_LOOKS = ("score_means", "bradley_terry", "bt_tensor", "exchangeable")
_WITHOUT_RANKING = ("score_means", "bt_tensor", "exchangeable")
_PEEKING_RANKS = "a ranking that ends the run is read at every look; wants anytime, not end"
_PEEKING = "a gate that ends the run is read at every look; wants anytime, not end"
_CHECKS: dict[Callable[..., Iterator[tuple[str, str]]], tuple[str, ...]] = {
    _money: ("judges", "systems", "budget", "policy", "stop"),
    _repeats: ("judges", "policy"),
    _judges_of_policy: ("judges", "policy"),
    _prices: ("judges", "budget", "policy"),
    _anchors: ("policy", "estimate", "labels"),
    _material: ("judges", "systems", "data"),
    _systems: ("judges", "systems", "data", "output"),
    _steps: ("judges", "systems", "task"),
    _pairs: ("data", "systems", "task"),
    _pairs_there: ("data", "frame", "task"),
    _batches: ("task", "policy", "estimate"),
    _drawn: ("policy", "estimate"),
    _comparisons: ("task", "policy", "estimate", "labels"),
    _recorded: ("judges", "task"),
    _counted: ("judges", "budget", "policy", "stop", "estimate"),
    _yes: ("task", "estimate"),
    _pool: ("frame", "task", "policy", "estimate"),
    _looks: ("stop", "gate", "estimate"),
    _gated: ("stop", "gate", "estimate"),
    _ranked: ("stop", "estimate"),
    _gates: ("gate", "estimate", "data", "systems", "task"),
    _one_primary: ("estimate",),
    _criteria: ("named", "task"),
    _targets: ("named", "data", "systems"),
    _contexts: ("data", "named"),
    _families: ("judges", "data", "systems", "named"),
    _covariates: ("data", "named"),
    _contrasts: ("frame", "named"),
    _contrast_of_policy: ("frame", "policy"),
    _one_confidence: ("stop", "estimate", "gate"),
    _one_truth: ("judges",),
}
"""Each check with the sections that it reads."""


def cautions(campaign: Campaign) -> Iterator[tuple[str, str]]:
    """Name the fields that are allowed and probably not meant."""
    for index, judge in enumerate(campaign.asked):
        place = campaign.place(index)
        if isinstance(judge.price_usd_per_1m, Rates):
            for key, rate in judge.price_usd_per_1m:
                if rate and rate < _IMPLAUSIBLE_RATE:
                    yield f"{place}.price_usd_per_1m.{key}", _WRONG_UNIT
        if (added := _added_path(judge)) is not None:
            message = f"ends in {added}, which {judge.adapter} adds itself; leave it out"
            yield f"{place}.base_url", message
    yield from _wide_targets(campaign)
    cap = campaign.budget.usd
    for role, amount in campaign.budget.by_role:
        if cap is not None and amount is not None and amount > cap:
            message = f"more than budget.usd, {format_usd(cap)}, so this is never reached"
            yield f"budget.by_role.{role}", message
    if campaign.task.kind == "rate_batch":
        for index, entry in enumerate(campaign.estimate):
            if entry.kind == "score_means":
                yield f"estimate[{index}].kind", _RAW
    if campaign.task.kind == "compare":
        yield from _idle_keys(campaign)


def _wide_targets(campaign: Campaign) -> Iterator[tuple[str, str]]:
    """Name the targets that any interval meets: percentage points, probably, of a scale up to 1."""
    targets = {"stop.target_half_width": (campaign.stop.target_half_width, campaign.primary)}
    for index, entry in enumerate(campaign.estimate):
        own = getattr(entry.settings, "target_half_width", None)
        targets[f"estimate[{index}].target_half_width"] = own, entry
    for key, (target, entry) in targets.items():
        if target is not None and (message := too_wide(target, entry, campaign.task)):
            yield key, message


def too_wide(target: float, entry: EstimateEntry, task: Task) -> str:
    """Say that a half-width is no less than half the range of a mean or difference; "" if it is less."""
    if entry.kind not in _OF_MEANS:
        return ""
    scales = {criterion.name: criterion.scale for criterion in task.criteria_values()}
    own = getattr(entry.settings, "criterion", None) or (min(scales) if len(scales) == 1 else "")
    span = scales[own].span if own in scales else 1.0  # the composite lies between 0 and 1
    half = span * (0.5 if getattr(entry.settings, "contrast", None) is None else 1.0)
    if target < half:
        return ""
    return (
        f"{target:g} is met at once: {seen(entry.name)} lies within ± {half:g} anyway; it is in units of the "
        "scale, 0.03 for 3 points of 0 to 1"
    )


def _idle_keys(campaign: Campaign) -> Iterator[tuple[str, str]]:
    """Name what estimates of comparisons ask for and nothing can show."""
    criteria = campaign.task.criteria_values()
    for index, entry in enumerate(campaign.estimate):
        own = getattr(entry.settings, "criterion", None) or criteria[0].name
        tie_rule = getattr(entry.settings, "ties", None)
        if tie_rule in _MODELS_OF_TIES and not any(
            criterion.scale.ties for criterion in criteria if criterion.name == own
        ):
            message = f"{tie_rule} models ties, and the scale of {seen(own)} has none (scale.ties)"
            yield f"estimate[{index}].ties", message
        families = getattr(entry.settings, "families", None)
        if families is not None and not {*families.judges.values()} & {*families.arms.values()}:
            yield f"estimate[{index}].families", _STRANGERS


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
_MODELS_OF_TIES = ("davidson", "rao_kupper")
_STRANGERS = "no judge has the family of an arm, so what kin gains can't be estimated"
_RAW = (
    "raw means of verdicts in batches hang on the order and on how far a group is spread; "
    "markov_glmm models both"
)
_WRONG_UNIT = "looks like USD per token; wants USD per million tokens"
