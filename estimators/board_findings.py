"""Whether a board is connected, evenly covered, and no group of votes or judge decides it."""

from __future__ import annotations

import numpy as np
from scipy.special import ndtri

from estimators.board_evidence import (
    MATERIAL_SHIFT,
    Evidence,
    Finding,
    Kind,
    cells_of,
    covariance,
    effective,
    finding,
    silent,
    summed,
)
from orchestrator.core.wire import Json

MATERIAL_INFLATION = float(ndtri(0.975) / ndtri(0.95))
"""1.19: intervals at 95 % that take votes as independent then cover 90 %."""

_NOTHING = 1e-12
"""Part of a variance that rounding leaves of none."""

MATERIAL_IMBALANCE = 2.0
"""The least known model's standard error over that of an even share: a quarter of the information."""

_FEW_GROUPS = 10
"""Groups below which the covariance by them is not read at all."""

_NO_GAP = "no gap has a finite estimate, since no two models have beaten each other"

_REFITTED = 10
"""Judges left out exactly: those that move most to first order."""


def disconnected(of: Evidence) -> Finding:
    """Say whether a chain of comparisons connects all models: a fact, with no error."""
    fit = of.fit
    sizes = np.bincount(fit.component)
    outside = int(of.n_models - sizes.max(initial=0))
    smallest = np.flatnonzero(fit.component != int(sizes.argmax()))
    return finding(
        Kind.DISCONNECTED,
        (outside, outside, outside),
        0.0,
        "models outside the largest group",
        tuple(smallest.tolist()),
        components=fit.component.tolist(),
        n_components=fit.n_components,
        n_strong=fit.n_strong,
    )


def coverage(of: Evidence | None) -> Finding:
    """Say whether some model is far less known than an even share of the votes would make it.

    The effect is the root of models' mean information over the least, information Σ p (1 - p) by
    model, each against those that it is comparable with. The interval takes the number of the model's votes as Poisson's: a few votes are unequal by
    chance. One model with plenty, as the one that all others are held against, is no defect.
    """
    unit = "times the standard error of an even share"
    if of is None:
        return silent(Kind.COVERAGE, MATERIAL_IMBALANCE, unit, _NO_GAP)
    p, m = of.chance, of.n_models
    information = np.bincount(of.table.left, p * (1 - p), m)
    information += np.bincount(of.table.right, p * (1 - p), m)
    # A model without any vote is a group of its own: that is another finding.
    known = np.flatnonzero(of.votes)
    part = of.fit.component[known]
    own, votes = information[known], of.votes[known]
    size = np.bincount(part)[part]
    mean = np.bincount(part, own)[part] / size
    at = int((own / mean).argmin())
    least, peers = int(known[at]), part == part[at]
    ratio = float(np.sqrt(mean[at] / own[at]))
    half = float(of.half(0.5 / np.sqrt(of.votes[least]), len(known)))
    thin = known[own * MATERIAL_IMBALANCE**2 < mean]
    return finding(
        Kind.COVERAGE,
        (ratio, ratio * np.exp(-half), ratio * np.exp(half)),
        MATERIAL_IMBALANCE,
        unit,
        (least,),
        votes=int(votes[at]),
        even=float(votes[peers].mean()),
        most=int(known[peers][votes[peers].argmax()]),
        most_votes=int(votes[peers].max()),
        thin=thin[np.argsort(information[thin])].tolist(),
        left_out=of.n_left_out,
    )


def clustered(of: Evidence) -> Finding:
    """Say by how much errors grow where votes of one judge, item or cluster hang together.

    The root of the strengths' summed variances by groups over that by votes. Its interval takes a
    group's part of the strengths as normal: var(Σ q) = 2/(d + 2) Σ q², with q the groups' squared
    parts and d the dimensions in which strengths vary.
    """
    unit = "times the standard error of independent votes"
    groups = {k: g for k, g in of.groups.items() if g.max() + 1 >= _FEW_GROUPS}
    if not groups:
        reason = f"nothing groups votes, or there are fewer than {_FEW_GROUPS} groups"
        return silent(Kind.CLUSTERED, MATERIAL_INFLATION, unit, reason)
    own = of.influence[:, : of.n_models]
    cov = covariance(own)
    alone = float(np.trace(cov))
    if not alone:
        return silent(Kind.CLUSTERED, MATERIAL_INFLATION, unit, "all votes are ties")
    dimensions = alone**2 / float((cov**2).sum())
    shown = []
    for name, codes in groups.items():
        part = (summed(own, codes) ** 2).sum(axis=1)
        total = float(part.sum())
        if total <= _NOTHING * alone:
            continue  # a group's votes take each other back
        error = np.sqrt(2 / (dimensions + 2) * (part**2).sum()) / total
        ratio, spread = np.sqrt(total / alone), np.exp(float(of.half(error, len(groups))) / 2)
        sizes = np.sort(np.bincount(codes))[::-1]
        heaviest = int(part.argmax())
        figures: dict[str, Json] = {
            "by": name,
            "groups": len(sizes),
            "votes": len(codes),
            "effective_groups": effective(codes),
            "effective_votes": float(len(codes) / max(ratio**2, 1.0)),
            "heaviest": heaviest,
            "few": min(5, len(sizes)),
            "few_share": float(sizes[:5].sum() / len(codes)),
            "few_variance": float(np.sort(part)[::-1][:5].sum() / total),
        }
        ends = ratio, ratio / spread, ratio * spread
        shown.append(finding(Kind.CLUSTERED, ends, MATERIAL_INFLATION, unit, (), **figures))
    if not shown:
        reason = "what votes of a group say of strengths, they take back"
        return silent(Kind.CLUSTERED, MATERIAL_INFLATION, unit, reason)
    return max(shown, key=lambda each: each.lower)


# --- judges ----------------------------------------------------------------------------------------


def judge_influence(of: Evidence | None) -> Finding:
    """Say whether one judge moves a strength, by leaving each out.

    To the error of what moves belongs var(without) - var(with), if the judge votes as the others;
    where that is not positive, nothing is said. Judges that move most to first order are left out
    exactly.
    """
    unit = "log-odds"
    if of is None:
        return silent(Kind.JUDGE_INFLUENCE, MATERIAL_SHIFT, unit, _NO_GAP)
    codes = np.unique(of.table.judge, return_inverse=True)[1].ravel()
    n_judges, m = int(codes.max()) + 1, of.n_models
    if n_judges < 2:
        return silent(Kind.JUDGE_INFLUENCE, MATERIAL_SHIFT, unit, "there is one judge")
    votes = np.bincount(codes)
    # What a judge adds weighs more once it is gone.
    share = votes / len(codes)
    reach = np.abs(summed(of.influence[:, :m], codes)).max(axis=1) / np.maximum(1 - share, 1e-3)
    fit, best, alone = of.fit, None, []
    variance = np.diag(fit.cov)
    for judge in np.argsort(-reach)[:_REFITTED].tolist():
        left_out = of.refitted(cells=cells_of(of.table.take(codes != judge), m))
        if left_out is None:
            alone.append(judge)
            continue
        moved = np.nan_to_num(fit.theta - left_out.theta)
        error = np.sqrt(np.maximum(np.nan_to_num(np.diag(left_out.cov) - variance), 0.0))
        half = of.half(error, n_judges * m)
        shown = np.where(error > 0, np.abs(moved) - half, -np.inf)
        model = int(shown.argmax())
        if error[model] > 0 and (best is None or shown[model] > best[0]):
            orders = [np.lexsort((-each.theta, fit.component)) for each in (fit, left_out)]
            changed = int((orders[0] != orders[1]).sum())
            best = shown[model], judge, model, float(moved[model]), float(half[model]), changed
    if best is None:
        reason = "without any one judge the votes leave more open"
        return silent(Kind.JUDGE_INFLUENCE, MATERIAL_SHIFT, unit, reason)
    _, judge, model, effect, width, changed = best
    return finding(
        Kind.JUDGE_INFLUENCE,
        (effect, effect - width, effect + width),
        MATERIAL_SHIFT,
        unit,
        (int(np.unique(of.table.judge)[judge]), model),
        share=float(share[judge]),
        judges=n_judges,
        ranks_changed=changed,
        left_out=of.n_left_out,
        hold_together=[int(np.unique(of.table.judge)[each]) for each in alone],
    )
