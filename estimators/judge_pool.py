"""Several judges' fits: one contrast pooled, all qualities pooled, and how far judges disagree.

The judges' ratings are independent, their errors are not quite: each fit has the same penalty, which
draws a unit towards the others in all of them. More judges leave that as it is. A fit's covariance
(I + Q)⁻¹ =: C, with the penalty's Q, is the sum of C I C, what ratings do, and C Q C, what the penalty
does to qualities of its own scale. Of a weighted mean over judges the first parts add up as
independent ones, the second as one and the same; of one judge it is its own error again.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from scipy.special import chdtrc

from estimators.disagreement import precision_mean
from estimators.intervals import Array
from estimators.markov_inference import wald
from estimators.markov_model import Contrast, FitStatus, MarkovFit

DISAGREEMENT = 0.1
"""p of Cochran's test below which judges are reported as disagreeing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PooledContrast:
    """A contrast over judges.

    Attributes
    ----------
    pooled : weighted by precision: the mean of these judges' contrasts, as if each had the same;
        its error holds the penalty's part once for all
    q, df, q_p : Cochran's test that they have; nan for fewer than two judges
    disagree : it is rejected at 10 %; then the rows are to be read, not the pool
    holm : each judge's p, adjusted for the claim that some judge sees a difference
    left_out : judges whose contrast is not estimable
    """

    pooled: Contrast
    q: float
    df: int
    q_p: float
    disagree: bool
    holm: Mapping[str, float]
    left_out: tuple[str, ...]


def pool_judges(contrasts: Mapping[str, Contrast]) -> PooledContrast:
    """Pool one contrast of judges that were fitted one by one; raw verdicts are never pooled.

    Judges enter as independent, each was asked in its own orders, but for what they lean to alike.

    Source: [C54] for the pool and the test, [H79] for the adjustment; the shared part is ours.
    """
    used = {name: one for name, one in contrasts.items() if one.status is FitStatus.OK}
    left_out = tuple(name for name in contrasts if name not in used)
    if not used:
        reason = "no judge's contrast is estimable"
        nothing = Contrast(np.nan, np.nan, np.nan, np.nan, FitStatus.NOT_ESTIMABLE, reason)
        return PooledContrast(
            pooled=nothing, q=np.nan, df=0, q_p=np.nan, disagree=False, holm={}, left_out=left_out
        )
    est = np.array([one.est for one in used.values()])
    se = np.array([one.se for one in used.values()])
    found = precision_mean(est, 1 / se**2)
    df = len(used) - 1
    q = float(found.q) if df else np.nan
    q_p = float(chdtrc(df, q)) if df else np.nan
    weight = found.variance / se**2
    lean = _mean_lean(list(used.values()), weight)
    of_ratings = np.maximum(se**2 - [_square(one.lean) for one in used.values()], 0.0)
    variance = float(weight**2 @ of_ratings) + _square(lean)
    return PooledContrast(
        pooled=wald(float(found.mean), float(np.sqrt(variance)))._replace(
            prior_sensitive=any(one.prior_sensitive for one in used.values()), lean=lean
        ),
        q=q,
        df=df,
        q_p=q_p,
        disagree=q_p < DISAGREEMENT,
        holm=holm({name: one.p for name, one in used.items()}),
        left_out=left_out,
    )


def _mean_lean(of: Sequence[Contrast], weight: Array) -> dict[Hashable, float]:
    total = Counter[Hashable]()
    for one, w in zip(of, weight.tolist(), strict=True):
        total.update({item: w * lean for item, lean in one.lean.items()})
    return dict(total)


def _square(lean: Mapping[Hashable, float]) -> float:
    return sum(each * each for each in lean.values())


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class PooledQualities:
    """Qualities of items over judges, each above the mean of those that its judge rated.

    Attributes
    ----------
    items : (v,) ascending
    value : (v,) mean over judges, logits
    cov : (v, v) of their errors
    is_connected : chains of common batches connect all items of each judge; else differences rest
        on what is assumed of batch effects
    """

    items: tuple[Hashable, ...]
    value: Array
    cov: Array
    is_connected: bool


def pool_qualities(fits: Sequence[MarkovFit]) -> PooledQualities:
    """Take the mean of judges' qualities, weighted by how much each judge's ratings say on the whole.

    A judge's weight is its mean precision over items, the same for all items that it rated, so that
    the mean of a difference is the difference of the means, also where judges see items
    differently. Weights of its own for each item would follow the estimates: the more extreme one
    comes out, the larger is its error, and the pool would be drawn inwards.

    Parameters
    ----------
    fits : of one judge each; those that are not estimable are left out
    """
    used = [fit for fit in fits if not fit.reason]
    items = tuple(sorted({item for fit in used for item in fit.items}))  # type: ignore[type-var]
    place = {item: i for i, item in enumerate(items)}
    of_ratings = np.zeros((len(used), len(items), len(items)))
    lean, value = of_ratings.copy(), np.zeros((len(used), len(items)))
    weight = value.copy()
    for j, fit in enumerate(used):
        v = len(fit.items)
        at = np.array([place[item] for item in fit.items], dtype=np.int64)
        centre = np.eye(v) - 1 / v
        towards = centre @ fit.cov[:v, :v]
        whole = towards @ centre
        if fit.prior.items is not None:
            lean[j][np.ix_(at, at)] = towards @ centre / fit.prior.items
        of_ratings[j][np.ix_(at, at)] = whole
        of_ratings[j] -= lean[j] @ lean[j].T
        value[j, at] = centre @ fit.theta
        weight[j, at] = np.mean(1 / np.diag(whole)) if v > 1 else 0.0
    with np.errstate(invalid="ignore"):  # one item alone has no quality above the mean
        weight = weight / weight.sum(axis=0)
    scaled = weight[:, :, None] * lean
    shared = scaled.sum(axis=0)
    own = np.einsum("ji,jik,jk->ik", weight, of_ratings, weight)
    return PooledQualities(
        items=items,
        value=(weight * value).sum(axis=0),
        cov=own + shared @ shared.T,
        is_connected=not any(fit.component.any() for fit in used),
    )


def holm(p: Mapping[str, float]) -> dict[str, float]:
    """Adjust p values by Holm's step-down rule; names keep their order.

    Source: [H79].
    """
    ascending = sorted(p, key=lambda name: p[name])
    adjusted, highest = {}, 0.0
    for rank, name in enumerate(ascending):
        highest = max(highest, min(1.0, (len(p) - rank) * p[name]))
        adjusted[name] = highest
    return {name: adjusted[name] for name in p}
