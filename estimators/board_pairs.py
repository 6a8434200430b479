"""Whether one strength a model explains a board, pair by pair and around circles of three."""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

import numpy as np
from scipy.special import expit, logit

from estimators.board_evidence import Evidence, Finding, Kind, finding, silent
from estimators.bt_cells import Indices
from estimators.bt_goodness import Goodness, goodness
from estimators.bt_ties import Ties
from estimators.intervals import Array
from orchestrator.core.wire import Json

MATERIAL_SPREAD = 0.1
"""Log-odds, standard deviation of pairs around the strengths: as `MATERIAL_SHIFT`."""

MATERIAL_CIRCLE = 0.2
"""Log-odds by which each of three models beats the next beyond the strengths: 5 points. Chosen."""

_DRAWS = 199
"""Simulated boards for how far pairs are from the strengths by chance, where pairs have few votes."""


def intransitive(of: Evidence) -> Finding:
    """Say whether one strength a model explains who beats whom.

    Two questions share the error: whether pairs spread around the strengths (the effect), and whether
    three models beat each other in a circle. Either makes it fire.

    Ties are left out, for half wins bend the curve of chances. A further column, the cube of the gap,
    takes up what bends it otherwise, such as careless votes: that strong models win less often than the
    logistic curve says is no intransitivity.
    """
    unit = "log-odds, standard deviation of pairs"
    fit = of.refitted(ties=Ties.DROP)
    if fit is None:
        reason = "votes that are no ties do not determine strengths"
        return silent(Kind.INTRANSITIVE, MATERIAL_SPREAD, unit, reason)
    rows = np.flatnonzero(of.table.outcome != 0.5)
    theta = fit.psi[: of.n_models]
    gap = (theta[of.table.left] - theta[of.table.right])[rows]
    chance = expit(gap + fit.gamma)
    group, kept = _independent(of, rows, chance)
    table = of.table.take(rows[kept])
    columns = [gap[kept] ** 3, *([np.ones(len(kept))] if of.has_order else [])]
    found = goodness(
        table.left,
        table.right,
        table.outcome,
        chance[kept],
        of.rng,
        n_models=of.n_models,
        extra=np.stack(columns, axis=1),
        level=1 - of.alpha / 2,
        draws=_DRAWS,
    )
    if not found.df:
        reason = "every pair alone decides about a strength: there is no circle of comparisons"
        return silent(Kind.INTRANSITIVE, MATERIAL_SPREAD, unit, reason)
    ends = found.spread, found.spread_lower, found.spread_upper
    detail: dict[str, Json] = {
        "p": found.p,
        "pairs": len(found.n),
        "n": len(kept),
        "one_each_of": group,
    }
    circle = _circle(of, found)
    if circle is None:
        return finding(Kind.INTRANSITIVE, ends, MATERIAL_SPREAD, unit, (), **detail)
    detail |= {"circle": circle.est, "circle_lower": circle.lower, "circle_upper": circle.upper}
    is_proved = circle.lower > MATERIAL_CIRCLE
    subject = circle.models if is_proved else ()
    shown = finding(Kind.INTRANSITIVE, ends, MATERIAL_SPREAD, unit, subject, **detail)
    return replace(shown, fires=shown.fires or is_proved)


def _independent(of: Evidence, rows: Indices, chance: Array) -> tuple[str, Indices]:
    """Choose rows that can be taken as independent within pairs, and say by which group.

    Where votes of one pair hang together by judge, item or cluster, one of each group and pair is
    kept, drawn by chance: else pairs would spread because few groups voted on each. They do hang
    together where a pair's scores, summed by group, vary more than single votes, by two errors.

    Parameters
    ----------
    rows, chance : (k,) rows to choose from, and the fitted chance that the left one wins

    Returns
    -------
    group, (j,) places in `rows`
    """
    table, m, n = of.table.take(rows), of.n_models, len(rows)
    score = np.where(table.left < table.right, 1.0, -1.0) * (table.outcome - chance)
    pair = np.minimum(table.left, table.right) * m + np.maximum(table.left, table.right)
    most, group, kept = 1.0, "", np.arange(n)
    order = of.rng.permutation(n)
    for name, codes in of.groups.items():
        key = codes[rows][order] * m * m + pair[order]
        _, first, at, size = np.unique(
            key, return_index=True, return_inverse=True, return_counts=True
        )
        several = size > 1
        total = np.bincount(at.ravel(), score[order])[several]
        square = np.bincount(at.ravel(), score[order] ** 2)[several]
        if not square.any():
            continue
        excess = float((total**2).sum() / square.sum())
        if excess > max(most, 1 + 2 * np.sqrt(2 / several.sum())):
            most, group, kept = excess, name, np.sort(order[first])
    return group, kept


class _Circle(NamedTuple):
    models: tuple[int, ...]
    est: float
    lower: float
    upper: float


def _circle(of: Evidence, found: Goodness) -> _Circle | None:
    """Find the three models that most clearly beat each other in a circle.

    Of each pair, the log-odds of its own votes less those that strengths give it; around a circle the
    strengths cancel, and a third of the sum is by how much each beats the next. Half a win is added to
    both sides.
    """
    m = of.n_models
    off, var = np.full((m, m), np.nan), np.full((m, m), np.nan)
    a, b = found.pairs.T
    n = found.n
    own = (n * found.observed + 0.5) / (n + 1)
    rest = logit(own) - logit((n * found.expected + 0.5) / (n + 1))
    off[a, b], off[b, a] = rest, -rest
    var[a, b] = var[b, a] = 1 / ((n + 1) * own * (1 - own))
    wins = np.zeros((m, m), dtype=bool)
    wins[a, b], wins[b, a] = own > 0.5, own < 0.5
    total = off[:, :, None] + off[None] + off.T[:, None, :]
    error = np.sqrt(var[:, :, None] + var[None] + var.T[:, None, :])
    is_circle = wins[:, :, None] & wins[None] & wins.T[:, None, :]
    n_triads = int(np.isfinite(total).sum()) // 6
    if not is_circle.any():
        return None
    # Two directions of each three models, and half the error.
    half = of.half(error, 2 * max(n_triads, 1)) / 3
    shown = np.where(is_circle, total / 3 - half, -np.inf)
    models = np.unravel_index(int(np.nanargmax(shown)), shown.shape)
    strength, width = float(total[models] / 3), float(half[models])
    named = tuple(int(each) for each in models)
    return _Circle(named, strength, strength - width, strength + width)
