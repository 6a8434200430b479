"""Whether conventions decide a board: the order of showing, and how ties are counted."""

from __future__ import annotations

import numpy as np

from estimators.board_evidence import (
    MATERIAL_SHIFT,
    Evidence,
    Finding,
    Kind,
    covariance,
    finding,
    influence,
    silent,
)
from estimators.bt_ties import Ties
from estimators.intervals import Array
from orchestrator.core.wire import Json

_SMALL = 1e-3
"""Log-odds of an advantage below which its derivative says what it does."""


def position(of: Evidence) -> Finding:
    """Say whether the first place's advantage moves a model's strength where it is ignored.

    What it adds to a strength is the advantage times how one-sided the model was shown, which is
    known: the interval is the advantage's. An advantage alone moves nothing where order is balanced.
    """
    unit = "log-odds"
    if not of.has_order:
        reason = (
            "the order within pairs never varies, or its effect can't be told from the models': "
            "whether the first place has an advantage is not known"
        )
        return silent(Kind.POSITION, MATERIAL_SHIFT, unit, reason)
    m, fit = of.n_models, of.fit
    gamma, se = fit.gamma, float(np.sqrt(covariance(of.pieces(of.influence[:, m:]))[0, 0]))
    half = float(of.half(se, 1))
    # Strengths without the intercept are theta + gamma · slope, to first order.
    slope = -fit.joint[:m, m] / fit.joint[m, m]
    without = of.refitted(without_order=True)
    reversed_pairs: list[list[int]] = []
    if without is not None:
        if abs(gamma) > _SMALL:
            slope = (without.theta - fit.theta) / gamma
        before, after = _signs(fit.theta), _signs(without.theta)
        is_turned = (before * after < 0) & (fit.component[:, None] == fit.component)
        first, second = np.nonzero(np.triu(is_turned, 1))
        # The one that is above once the advantage is taken out comes first.
        reversed_pairs = [
            [a, b] if before[a, b] > 0 else [b, a]
            for a, b in zip(first.tolist(), second.tolist(), strict=True)
        ]
    slope = np.nan_to_num(slope)
    model = int(np.abs(slope).argmax())
    by = float(slope[model])
    ends = sorted((by * (gamma - half), by * (gamma + half)))
    return finding(
        Kind.POSITION,
        (by * gamma, ends[0], ends[1]),
        MATERIAL_SHIFT,
        unit,
        (model,),
        advantage=gamma,
        advantage_lower=gamma - half,
        advantage_upper=gamma + half,
        first_share=float((of.table.left == model).sum() / max(of.votes[model], 1)),
        reversed_pairs=reversed_pairs,
    )


def ties(of: Evidence) -> Finding:
    """Say whether the order of two models depends on how ties are counted.

    The conventions' scales are brought to that of half a win by the factor that fits best. Of two
    models in opposite orders, the effect is how far their gap swings; its interval has the
    covariance of both fits, which are of the same votes.
    """
    unit = "log-odds"
    tied = of.table.outcome == 0.5
    if not tied.any():
        return silent(Kind.TIES, MATERIAL_SHIFT, unit, "there are no ties")
    fit, m = of.fit, of.n_models
    rules = [rule for rule in Ties if rule is not Ties.HALF]
    n_claims = len(rules) * m * (m - 1) // 2
    base = np.nan_to_num(fit.theta)
    best: tuple[float, Ties, int, int, float, float] | None = None
    reversed_by: dict[str, Json] = {}
    for rule in rules:
        other = of.refitted(ties=rule)
        if other is None:
            reversed_by[rule.value] = None
            continue
        theta = np.nan_to_num(other.theta)
        length = float(theta @ theta)
        scale = float(theta @ base) / length if length else 1.0
        own, added = of.influence[:, :m], influence(other, of.table)[:, :m]
        of_scale = (added @ (base - 2 * scale * theta) + own @ theta) / max(length, 1e-300)
        moved = scale * added + of_scale[:, None] * theta - own
        cov = covariance(of.pieces(moved))
        var = np.diag(cov)
        half = of.half(np.sqrt(np.maximum(var[:, None] + var - 2 * cov, 0.0)), n_claims)
        before, after = base[:, None] - base, scale * (theta[:, None] - theta)
        is_reversed = (before > 0) & (after < 0) & (fit.component[:, None] == fit.component)
        swing = np.where(is_reversed, before - after, 0.0)
        reversed_by[rule.value] = int(is_reversed.sum())
        shown = np.where(is_reversed, swing - half, -np.inf)
        at = divmod(int(shown.argmax()), m)
        if is_reversed[at] and (best is None or shown[at] > best[0]):
            best = float(shown[at]), rule, *at, float(swing[at]), float(half[at])
    share = np.bincount(of.table.left, tied, m) + np.bincount(of.table.right, tied, m)
    by_model = share / np.maximum(of.votes, 1)
    detail: dict[str, Json] = {"share": float(tied.mean()), "reversed": reversed_by}
    if best is None:
        return finding(Kind.TIES, (0.0, 0.0, 0.0), MATERIAL_SHIFT, unit, (), **detail)
    _, chosen, a, b, effect, width = best
    drawer = a if by_model[a] >= by_model[b] else b
    detail |= {"rule": chosen.value, "drawer": drawer, "drawer_share": float(by_model[drawer])}
    ends = effect, effect - width, effect + width
    return finding(Kind.TIES, ends, MATERIAL_SHIFT, unit, (a, b), **detail)


def _signs(theta: Array) -> Array:
    """Compare all models, (m, m); nan is no order."""
    return np.nan_to_num(np.sign(theta[:, None] - theta))
