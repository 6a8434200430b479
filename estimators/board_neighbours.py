"""Whether the votes of a board tell neighbours apart, and how many more it takes."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray
from scipy.special import chdtri, ndtri

from estimators.board_evidence import Evidence, Finding, Kind, effective, finding, silent
from estimators.bt_inference import AtEnd, Bound, Gaps, proved, rank_intervals, tiers, watched
from estimators.bt_model import BradleyTerryFit
from estimators.bt_needed import needed_of_design, needed_of_pair
from estimators.bt_pair_bounds import proved_by_counts
from estimators.intervals import Array
from orchestrator.core.wire import Json

MATERIAL_GAP = 0.4
"""Log-odds: the better of two models wins 60 %. Chosen; the half-width at which runs are planned to
end unless they say otherwise."""


def neighbours_open(of: Evidence, price: int | None) -> Finding:
    """Say whether votes are too few to tell neighbours apart, or as good as equal.

    A neighbour that is not proved is no defect by itself: two models may be as good as equal. It is
    one where the gap's half-width, all gaps together, is above `MATERIAL_GAP`: then even a gap of
    that size would more likely stay open than not. The effect is the largest half-width of an open
    gap; its interval is chi-square's for an estimated variance.
    """
    m, fit, unit = of.n_models, of.fit, "log-odds, half-width"
    order = _neighbours(fit)
    if not len(order):
        return silent(Kind.NEIGHBOURS_OPEN, MATERIAL_GAP, unit, "no two models are comparable")
    together, alone = of.joint_bound(), _alone(of)
    wins = _decisive(of)
    by_counts = proved_by_counts(wins, level=of.level, is_watched=of.is_watched)
    above = proved(of.found, together, by_counts)
    one_by_one = proved(of.found, alone, by_counts)
    first, second = order.T
    is_open = ~above[first, second]
    half = together.of(of.found.se) * of.found.se
    half = np.where(np.isnan(half), np.inf, half)[first, second]
    ranks = rank_intervals(above)
    detail: dict[str, Json] = {
        "neighbours": len(order),
        "open_alone": int((~one_by_one[first, second]).sum()),
        "open_together": int(is_open.sum()),
        "open_pairs": order[is_open].tolist(),
        "too_wide": int((is_open & (half > MATERIAL_GAP)).sum()),
        "tiers": (1 + tiers(np.nan_to_num(fit.theta), above)).tolist(),
        "rank_lower": ranks.best.tolist(),
        "rank_upper": ranks.worst.tolist(),
        **_needed(of, together, order[is_open], price),
    }
    widest = np.where(is_open, half, 0.0)
    worst = int(widest.argmax())
    effect = float(widest[worst])
    df = effective(of.groups[of.by]) - 1 if of.by else max(len(of.table) - m, 1)
    tail = of.alpha / len(order) / 2
    ends = (
        effect,
        effect * np.sqrt(df / chdtri(df, tail)),
        effect * np.sqrt(df / chdtri(df, 1 - tail)),
    )
    subject = tuple(order[worst].tolist()) if effect else ()
    return finding(Kind.NEIGHBOURS_OPEN, ends, MATERIAL_GAP, unit, subject, **detail)


def _alone(of: Evidence) -> Bound:
    return watched(1, level=of.level) if of.is_watched else AtEnd(float(ndtri((1 + of.level) / 2)))


def _neighbours(fit: BradleyTerryFit) -> NDArray[np.int64]:
    """List models next to each other in strength, in the same component, (k, 2)."""
    theta = fit.psi[: fit.n_models]
    order = np.lexsort((-theta, fit.component))
    is_next = fit.component[order[:-1]] == fit.component[order[1:]]
    return np.stack((order[:-1][is_next], order[1:][is_next]), axis=1)


def _decisive(of: Evidence) -> Array:
    """Count how often the row's model beat the column's, ties left out, (m, m)."""
    right, _, left = of.cells.sums
    return np.asarray(left + right.T)


def _needed(
    of: Evidence, bound: Bound, pairs: NDArray[np.int64], price: int | None
) -> dict[str, Json]:
    """Say how many more comparisons settle and prove open gaps, and at what price.

    A gap is settled when it is proved, or its half-width is down to `MATERIAL_GAP`. Comparisons go to
    the open pairs alone, or to all pairs alike; what needs less counts. Where votes hang together, so
    are further ones taken to: each is worth as much as one so far. Gaps without an error are left
    out and counted. None: no number is enough, or no open gap has an error.
    """
    first, second = pairs.T
    is_known = ~np.isnan(of.found.se[first, second])
    first, second = first[is_known], second[is_known]
    # At half a chance, the wanted error of a gap of this size is the one whose half-width it is.
    size = np.full_like(of.found.est, MATERIAL_GAP)
    as_wide = Gaps(est=np.where(np.isnan(of.found.est), np.nan, size), se=of.found.se)
    to_settle, to_prove = {}, {}
    for name, needed, combined in (("pairs", _by_pair, np.sum), ("all", _by_design, np.max)):
        prove = needed(of, of.found, bound, 0.8)[first, second]
        narrow = needed(of, as_wide, bound, 0.5)[first, second]
        to_settle[name] = float(combined(np.minimum(prove, narrow), initial=0.0))
        to_prove[name] = float(combined(prove, initial=0.0))
    detail: dict[str, Json] = {"not_estimable": int((~is_known).sum())}
    is_told = is_known.any() or not len(pairs)
    for name, ways in (("settle", to_settle), ("prove", to_prove)):
        way = min(ways, key=lambda each: ways[each])
        more = (
            math.ceil(ways[way] * of.votes_in_one) if is_told and math.isfinite(ways[way]) else None
        )
        detail[f"more_to_{name}"] = more
        detail[f"{name}_by"] = way
        detail[f"price_to_{name}"] = None if more is None or price is None else more * price
    return detail


def _by_pair(of: Evidence, found: Gaps, bound: Bound, chance: float) -> Array:
    return needed_of_pair(of.fit.psi[: of.n_models], found, bound, chance=chance)


def _by_design(of: Evidence, found: Gaps, bound: Bound, chance: float) -> Array:
    """Spread comparisons over all pairs of a component, each model compared; nan: its gaps have no error."""
    more = np.full_like(found.est, np.nan)
    for part in range(of.fit.n_components):
        own = np.flatnonzero(of.fit.component == part)
        if len(own) < 2 or len(np.unique(of.fit.strong[own])) > 1:
            continue
        at = np.ix_(own, own)
        within = Gaps(est=found.est[at], se=found.se[at])
        theta = of.fit.theta[own]
        more[at] = needed_of_design(theta, of.cov[at], within, bound, chance=chance)
    return more
