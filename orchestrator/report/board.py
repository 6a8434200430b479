"""What comparisons say, in words and tables: ranks, gaps, the order's part, pairs, categories."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from orchestrator.core.estimate import Estimate
from orchestrator.core.wire import Json
from orchestrator.report.data import PairTally, ReportData
from orchestrator.report.wording import Grid, interval, label, listed, number, places, plural

Row = Mapping[str, Json]

MOST_PAIRS = 30
"""So many pairs are listed, those asked most."""


def boards(estimates: Sequence[Estimate]) -> list[Estimate]:
    """List the rankings by `bradley_terry`: the strengths of all arms, one or two an entry."""
    return [
        e for e in estimates if e.kind == "bradley_terry" and "ranks_hold_watched" in e.diagnostics
    ]


def tensors(estimates: Sequence[Estimate]) -> list[Estimate]:
    """List the scores by category that `bt_tensor` estimated."""
    return [e for e in estimates if e.kind == "bt_tensor" and e.target == "scores"]


# --- the ranking -----------------------------------------------------------------------------------


def standing(estimate: Estimate) -> list[str]:
    """Say who leads, what that is worth, and what can't be ranked."""
    return [*_standing(estimate)]


def _standing(e: Estimate) -> Iterator[str]:
    about = e.diagnostics
    rivals, leader = about["rivals"], label(str(about["leader"]))
    if len(about["components"]) > 1:
        parts = "; ".join(listed(part) for part in about["components"])
        yield (
            f"No chain of comparisons connects all arms, so none is ranked across these groups: {parts}."
        )
    elif not rivals:
        yield f"{leader} is proved above every other arm."
    else:
        yield f"{leader} has the highest strength, and is not proved above {listed(rivals)}."
    if about["is_separated"]["ranking"]:
        yield "Each pair of arms is proved one way or the other."
    if about["separated"]:
        yield (
            "Some arm has won, or lost, all its comparisons along every path: its strength has no finite "
            "estimate, and only what counts prove is ranked."
        )
    if about["fit"]["ridge"]:
        yield "A weak prior holds the strengths where the comparisons leave them open."
    if about["n_prior"]:
        yield f"{plural(about['n_prior'], 'comparison')} of earlier runs came in at no cost."
    held = "hold at every look" if about["ranks_hold_watched"] else "hold for one look at the end"
    yield f"Ranks hold together at {e.level:.0%}, and {held}."


def leaderboard(e: Estimate) -> Grid:
    """Tabulate the arms, the best first: strength, the ranks it may have, and its tier.

    Where no chain of comparisons connects all arms, each group stands by itself, the largest first,
    and of each arm is said among which its strength is.
    """
    by_name = e.diagnostics["by_name"]
    groups = sorted(e.diagnostics["components"], key=len, reverse=True)
    group_of = {name: k for k, group in enumerate(groups) for name in group}
    part = [group_of[name] for name in e.names]
    order = sorted(range(len(part)), key=lambda i: (part[i], _nan_last(-e.value[i]), i))
    is_parted = len(groups) > 1
    rows = []
    for i in order:
        half = (e.upper[i] - e.lower[i]) / 2
        digits = places(half) if half > 0 else 2
        low, high = by_name["rank_lower"][i], by_name["rank_upper"][i]
        ranks = f"{low}" if low == high else f"{low} to {high}"
        strength = f"{number(_known(e.value[i]), digits)} {interval(_known(e.lower[i]), _known(e.upper[i]), digits)}"
        row = label(e.names[i]), ranks, strength, str(by_name["tier"][i])
        rows.append((*row, _among(groups[part[i]])) if is_parted else row)
    head = ("arm", "rank", "strength", "tier", *(["among"] if is_parted else []))
    return Grid(f"{e.name}: {e.target}", head, tuple(rows))


def _among(group: Sequence[str]) -> str:
    return listed(group) if len(group) > 1 else "no other"


def neighbours(e: Estimate) -> Grid | None:
    """Tabulate the gap between each arm and the next, by itself and as one of all gaps."""
    rows = []
    for row in e.diagnostics["neighbours"]:
        gap, alone, together = row["gap"], row["alone"], row["together"]
        half = _half(alone)
        digits = places(half) if half > 0 else 2
        rows.append(
            (
                f"{label(row['above'])} - {label(row['below'])}",
                number(gap, digits),
                interval(alone[0], alone[1], digits),
                interval(together[0], together[1], digits),
            )
        )
    if not rows:
        return None
    return Grid("", ("next to each other", "gap", "by itself", "with all gaps"), tuple(rows))


RANKS_NOTE = (
    "Strengths are log-odds above the mean of all arms. An arm's rank is counted in arms that are proved "
    "above it and below it, all gaps together; arms of a tier are proved above all arms of later tiers."
)


# --- the order's part ------------------------------------------------------------------------------


def order(e: Estimate) -> list[str]:
    """Say what standing first brings, and what each covariate that is controlled for."""
    lines = []
    found = _slope(e.diagnostics["order_effect"])
    if found is not None:
        est, gain = found
        share = 1 / (1 + math.exp(-est))
        preferred = f"of two equal answers it is preferred in {share:.0%}"
        lines.append(f"The answer shown first gains {gain} in log-odds: {preferred}.")
    for name, slope in e.diagnostics["covariates"].items():
        found = _slope(slope)
        if found is not None:
            lines.append(f"An answer that has one more of {name} gains {found[1]} in log-odds.")
    return lines


def _slope(found: Row | None) -> tuple[float, str] | None:
    """Give an estimate beside the strengths, and write it with its interval."""
    if found is None or found["est"] is None or math.isnan(found["est"]):
        return None
    low, high = found["lower"], found["upper"]
    digits = places((high - low) / 2) if None not in (low, high) and high > low else 2
    return found["est"], f"{number(found['est'], digits)} {interval(low, high, digits)}"


def family(e: Estimate) -> list[str]:
    """Say what arms gain before judges of their own family."""
    found: Row | None = e.diagnostics.get("family")
    if found is None:
        return []
    share = f"{plural(found['n'], 'comparison')} ({found['share']:.0%})"
    if found["est"] is None:
        return [f"Judges and answers of one family meet in {share}; what that does can't be told."]
    low, high = found["lower"], found["upper"]
    digits = places((high - low) / 2)
    gain = f"{number(found['est'], digits)} {interval(low, high, digits)}"
    verdict = (
        "judges favour their own kind"
        if found["is_shown"] and low > 0
        else ("judges are harder on their own kind" if found["is_shown"] else "no favour is shown")
    )
    return [
        f"Judges and answers of one family meet in {share}; the answer gains {gain}: {verdict}."
    ]


def judges(e: Estimate) -> Grid | None:
    """Tabulate how each judge compares, and whether it keeps its word when the order is turned."""
    rows: Sequence[Row] = e.diagnostics["judges"]
    if not rows:
        return None
    columns = {
        "judge": [str(row["judge"]) for row in rows],
        "verdicts": [f"{row['n']:,}" for row in rows],
        "ties": [f"{row['ties']:,}" for row in rows],
        "first better": [_share(row["first_share"]) for row in rows],
        "both orders": [f"{row['turned']['n']:,}" for row in rows],
        "kept": [f"{row['turned']['kept']:,}" for row in rows],
        "flips": [f"{row['turned']['flipped']:,}" for row in rows],
        "wavered": [f"{row['turned']['wavered']:,}" for row in rows],
    }
    if "bias" in rows[0]:
        columns["own bias"] = [number(row["bias"], 2) for row in rows]
        if any(row["discrimination"] != 1 for row in rows):
            columns["discrimination"] = [number(row["discrimination"], 2) for row in rows]
    return Grid("", tuple(columns), tuple(zip(*columns.values(), strict=True)))


def _share(x: float | None) -> str:
    return "" if x is None or math.isnan(x) else f"{x:.1%}"


JUDGES_NOTE = (
    "First better: how often the answer shown first was preferred, ties left out. Of questions asked in "
    "both orders: kept, where the same answer was better twice, or neither; flips, where the better answer "
    "changed with the order; wavered, where one order brought a tie. A flip is no tie."
)

EFFECTS_NOTE = (
    "Own bias: how much more than the panel the judge favours the answer shown first, log-odds. "
    "Discrimination: how sharply it tells the arms apart, 1 as the panel does in the mean, 0 not at all."
)


def judges_note(e: Estimate) -> str:
    """Say what the table of judges counts."""
    has_effects = any("bias" in row for row in e.diagnostics["judges"])
    return f"{JUDGES_NOTE} {EFFECTS_NOTE}" if has_effects else JUDGES_NOTE


def turned_judges(estimates: Sequence[Estimate]) -> list[str]:
    """Name judges that vote against the others."""
    names = {
        str(row["judge"])
        for e in boards(estimates)
        for row in e.diagnostics["judges"]
        if row.get("votes_against")
    }
    return [f"{name} prefers the answers that the others find worse." for name in sorted(names)]


def weights(e: Estimate) -> list[str]:
    """Say what weights by 1/propensity are worth, and whether they would change the strengths."""
    found: Row | None = e.diagnostics["weighted"]
    if found is None:
        return []
    used = "are" if found["is_declared"] else "would be"
    thin = "; so few carry little" if found["is_thin"] else ""
    worth = f"worth {found['effective']:,.0f} of equal weight{thin}"
    lines = [f"Weighted by 1/propensity, {found['n']:,} comparisons {used} {worth}."]
    shift: Row | None = found["shift"]
    if shift is not None:
        verdict = "more than" if shift["is_apart"] else "no more than"
        lines.append(
            f"Weighted and unweighted strengths differ by at most {shift['largest']:.1f} standard errors, "
            f"in {label(shift['arm'])}: {verdict} chance would have it (up to {shift['critical']:.1f})."
        )
    return lines


# --- pairs -----------------------------------------------------------------------------------------

_WHY = {
    "cycle": "closed the first circle of all arms",
    "": "followed the design's list",
}


def why_asked(data: ReportData) -> list[str]:
    """Say what the questions were drawn by."""
    if data.pairs is None:
        return []
    told = (
        f"{n:,} {_WHY.get(note, f'were drawn by {note}')}"
        for note, n in sorted(data.pairs.why.items(), key=lambda each: -each[1])
    )
    return [f"Of {plural(sum(data.pairs.why.values()), 'question')}, {'; '.join(told)}."]


def asked(data: ReportData) -> Grid | None:
    """Tabulate the pairs, those asked most first: in which order, and what came of it."""
    if data.pairs is None:
        return None
    arms = [label(arm.name) for arm in data.arms]
    rows = sorted(_pairs(data.pairs), key=lambda row: (-row[2], row[0], row[1]))
    cells = tuple(
        (
            f"{arms[a]} and {arms[b]}",
            f"{n:,}",
            f"{ab:,} and {ba:,}",
            f"{won:,}",
            f"{ties:,}",
            f"{lost:,}",
        )
        for a, b, n, ab, ba, won, ties, lost in rows[:MOST_PAIRS]
    )
    left_out = len(rows) - len(cells)
    title = f"{plural(left_out, 'further pair')} asked less often" if left_out else ""
    return Grid(title, ("pair", "asked", "first, by order", "won", "ties", "lost"), cells)


def _pairs(of: PairTally) -> Iterator[tuple[int, ...]]:
    """Give each pair that was asked: arms, asked, asked in each order, won, tied and lost by the first."""
    n = len(of.asked)
    for a in range(n):
        for b in range(a + 1, n):
            ab, ba = of.asked[a][b], of.asked[b][a]
            if not ab + ba:
                continue
            ties = of.ties[a][b] + of.ties[b][a]
            won = of.first[a][b] + of.answered[b][a] - of.ties[b][a] - of.first[b][a]
            lost = of.answered[a][b] + of.answered[b][a] - ties - won
            yield a, b, ab + ba, ab, ba, won, ties, lost


# --- categories ------------------------------------------------------------------------------------


class Categories(NamedTuple):
    """Strengths by category: arms best over all first, and where each stands among the scores.

    `places` has a row for each arm and a column for each category.
    """

    scores: Estimate
    arms: tuple[str, ...]
    categories: tuple[str, ...]
    places: tuple[tuple[int, ...], ...]

    @property
    def title(self) -> str:
        """What is shown."""
        return f"{self.scores.name}: strength by category"


def categories(data: ReportData) -> list[Categories]:
    """Lay out the scores of each tensor by arm and category."""
    return [_categories(e, data.estimates) for e in tensors(data.estimates)]


def _categories(scores: Estimate, estimates: Sequence[Estimate]) -> Categories:
    own = [e for e in estimates if e.name == scores.name]
    whole = next(e for e in own if e.target == "strengths")
    names = next(e.diagnostics["categories"] for e in own if "categories" in e.diagnostics)
    order = sorted(range(len(whole.names)), key=lambda i: (_nan_last(-whole.value[i]), i))
    n = len(names)
    return Categories(
        scores,
        tuple(label(whole.names[i]) for i in order),
        tuple(map(label, names)),
        tuple(tuple(range(i * n, (i + 1) * n)) for i in order),
    )


def by_category(of: Categories) -> Grid:
    """Tabulate strengths by category with their half-widths."""
    e = of.scores
    rows = tuple(
        (arm, *(_within(e.value[i], (e.upper[i] - e.lower[i]) / 2) for i in places))
        for arm, places in zip(of.arms, of.places, strict=True)
    )
    return Grid(of.title, ("arm", *of.categories), rows)


def _within(value: float, half: float) -> str:
    return f"{number(_known(value), 2)} ±{number(_known(half), 2)}"


def rank_choice(estimates: Sequence[Estimate]) -> list[str]:
    """Say of what rank the strengths by category are, and by what."""
    lines = []
    for e in estimates:
        if e.kind != "bt_tensor" or "reason" not in e.diagnostics:
            continue
        if "pooled" in e.flags:
            lines.append(
                f"{e.name}: no strengths by category: {e.diagnostics['reason']}. What stands are the "
                "strengths over all categories together."
            )
            continue
        rank = " x ".join(map(str, e.diagnostics["rank"]))
        choice: Row | None = e.diagnostics["choice"]
        how = "as given"
        if choice is not None:
            how = "by the least BIC" if choice["by"] == "bic" else "by votes held out"
        lines.append(
            f"{e.name}: rank {rank}, {how}; {plural(e.diagnostics['parameters'], 'parameter')}."
        )
    return lines


# --- small things ----------------------------------------------------------------------------------


def _known(x: float) -> float | None:
    return x if math.isfinite(x) else None


def _half(ends: Sequence[float | None]) -> float:
    low, high = ends
    return math.nan if low is None or high is None else (high - low) / 2


def _nan_last(x: float) -> float:
    return math.inf if math.isnan(x) else x
