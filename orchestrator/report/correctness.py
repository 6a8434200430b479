"""What tables of right and wrong answers are said to show: of the benchmark, and of its strata."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence

from orchestrator.core.estimate import Estimate
from orchestrator.core.wire import Json
from orchestrator.report.wording import Grid, listed, number, places, plural

FIRST = 6
"""Of more than twice as many strata, so many of the hardest and of the easiest are shown."""

_WIDE = 2
"""Systems up to which each has a column with its intervals."""

_UNLIKELY = 0.01


def why(e: Estimate) -> str:
    """Say in one sentence why intervals differ from those that take rows for independent items."""
    about = e.diagnostics["by_name"]
    is_difference = e.target in {"difference", "differences"}
    is_whole = e.target != "ability" and about["n_drawn"] == about["population"]
    if is_whole and not any(about["missing"]):
        return (
            "every item of the benchmark is here, so its own mean is known; the naive interval speaks of "
            "a population from which nobody drew these items"
        )
    reasons = {
        "subjects are taken for a sample, and more items of the same ones don't make them more": (
            e.target == "ability"
        ),
        "strata count alike here, and rows by their items": e.target in {"macro", "ability"},
        "every item is here, so ours is what missing verdicts leave open": is_whole,
        "right answers drawn without replacement are counted, and no normal law is taken": (
            "hypergeometric" in e.interval and not is_whole
        ),
        "it holds for any scores, since it rests on the ends of the scale alone": (
            "Hoeffding" in e.interval and not is_whole
        ),
        "what was drawn is no longer uncertain": e.target != "ability" and not is_whole,
        "each item is compared with itself": (is_difference and "two intervals" not in e.interval),
        "a missing verdict counts as the lowest for the lower end and as the highest for the upper": (
            any(about["missing"])
        ),
        f"the error is shared by {plural(len(e.names), 'name')}": e.alpha_split
        in {"arms", "pairs"},
    }
    return "; ".join(reason for reason, is_so in reasons.items() if is_so)


def reference(e: Estimate) -> list[str]:
    """Give the half-width of the bound for exchangeable scores at as many items."""
    about = e.diagnostics.get("by_name", {})
    halves = about.get("exchangeable_half_width")
    if halves is None:
        return []
    both = zip(about["n_drawn"], about["population"], halves, strict=True)
    found = {one for one in both if one[0] < one[1]}
    if not found:
        return []
    drawn, population, half = max(found, key=lambda one: one[2])
    most = "at most " if len(found) > 1 else ""
    said = (
        f"{most}±{half:.4f} at {drawn:,} of {population:,} items by the bound for exchangeable scores, "
        "which holds on average over benchmarks; ours holds for this one."
    )
    return [said]


# --- strata --------------------------------------------------------------------------------------


def grids(about: Mapping[str, Json]) -> Iterator[Grid]:
    """Set the strata in a table, and how they spread."""
    yield _by_stratum(about)
    if about["spread"]:
        yield _spread(about)


def _by_stratum(about: Mapping[str, Json]) -> Grid:
    """Show the strata, or the hardest and the easiest, by system or over all systems."""
    names: Sequence[str] = about["names"]
    systems: Sequence[Mapping[str, Json]] = about["by_system"]
    sizes = about["sizes"] or [None] * len(names)
    means = [_mean([of["value"][s] for of in systems]) for s in range(len(names))]
    order = list(range(len(names)))
    title = ""
    if len(order) > 2 * FIRST:
        known = sorted((s for s in order if means[s] is not None), key=lambda s: means[s] or 0.0)
        order = known if len(known) <= 2 * FIRST else known[:FIRST] + known[-FIRST:]
        title = f"({len(names) - len(order):,} more strata are in --json)"
    rows = []
    for s in order:
        drawn = min(of["n_items"][s] for of in systems)
        items = f"{drawn:,}" if sizes[s] in {None, drawn} else f"{drawn:,} of {sizes[s]:,}"
        values = [of["value"][s] for of in systems]
        if len(systems) <= _WIDE:
            cells = [_with_ends(of, s) for of in systems]
        else:
            there = [x for x in values if x is not None]
            ends = (min(there), max(there)) if there else (None, None)
            cells = [number(x) for x in (means[s], *ends)]
        rows.append((names[s], items, *cells))
    heads = (
        [of["system"] or "value" for of in systems]
        if len(systems) <= _WIDE
        else [f"mean of {len(systems)}", "lowest", "highest"]
    )
    return Grid(title, ("stratum", "items", *heads), tuple(rows))


def _with_ends(of: Mapping[str, Json], s: int) -> str:
    value, lower, upper = (of[key][s] for key in ("value", "lower", "upper"))
    if lower is None or upper is None:
        return number(value)
    digits = places((upper - lower) / 2)
    return f"{number(value, digits)} [{number(lower, digits)}, {number(upper, digits)}]"


def _spread(about: Mapping[str, Json]) -> Grid:
    halves = {of["system"]: of for of in about["split_half"]}
    has_groups = about["groups"] is not None
    rows = []
    for of in about["spread"]:
        all_, half = of["all"], halves[of["system"]]
        row = [
            of["system"] or "all",
            number(all_["sd"]),
            number(all_["sd_without_noise"]),
            number(all_["icc"]),
            _p(all_["p"]),
            all_["status"].replace("_", " "),
            number(half["r"], 2),
        ]
        rows.append((*row, *([number(half["r_within_groups"], 2)] if has_groups else [])))
    head = (
        "spread of strata",
        "sd",
        "without noise",
        "ICC",
        "p if alike",
        "law",
        "halves r",
    )
    return Grid("", (*head, *(["in groups"] if has_groups else [])), tuple(rows))


def strata(about: Mapping[str, Json]) -> list[str]:
    """Say what the strata have in common."""
    return [*_halves(about), *_groups(about), *_correlated(about)]


def _halves(about: Mapping[str, Json]) -> Iterator[str]:
    found = [of["r"] for of in about["split_half"] if of["r"] is not None]
    if found:
        yield (
            f"random halves of the strata agree by {_between(found)}: 0 would say that strata don't "
            "differ. That more like them could be drawn is an assumption all the same."
        )


def _groups(about: Mapping[str, Json]) -> Iterator[str]:
    tested = [of for of in about["spread"] if "groups_differ" in of]
    ps = [of["groups_differ"]["p"] for of in tested if of["groups_differ"]["p"] is not None]
    if ps:
        apart = sum(p < _UNLIKELY for p in ps)
        kinds = listed(sorted({each["group"] for of in tested for each in of["groups"]}))
        yield (
            f"groups ({kinds}) have laws of their own in {apart} of {plural(len(ps), 'system')} (p < "
            f"{_UNLIKELY:g}); ability takes one law for each group."
        )


def _correlated(about: Mapping[str, Json]) -> Iterator[str]:
    found = about["correlations"]
    if found is None:
        return
    names = about["names"]
    medians = []
    for key in ("matrix", "centred"):
        pairs = [
            (r, names[i], names[j])
            for i, row in enumerate(found[key])
            for j, r in enumerate(row[:i])
            if r is not None
        ]
        medians.append(sorted(pairs))
    plain, centred = medians
    if plain:
        r, one, other = plain[0]
        rest = ""
        if centred:
            rest = f", and by {_middle(centred):.2f} with each system's own mean taken off"
        yield (
            f"over {found['systems']} systems two strata correlate by {_middle(plain):.2f} in the median"
            f"{rest}; least alike are {one} and {other} ({r:.2f})."
        )


def _middle(pairs: Sequence[tuple[float, str, str]]) -> float:
    return pairs[len(pairs) // 2][0]


def _between(values: Sequence[float]) -> str:
    low, high = min(values), max(values)
    return f"r = {low:.2f}" if f"{low:.2f}" == f"{high:.2f}" else f"r = {low:.2f} to {high:.2f}"


def _p(p: float | None) -> str:
    if p is None:
        return number(None)
    return "< 0.001" if p < 0.001 else f"{p:.3f}"


def _mean(values: Sequence[float | None]) -> float | None:
    there = [x for x in values if x is not None and not math.isnan(x)]
    return sum(there) / len(there) if there else None
