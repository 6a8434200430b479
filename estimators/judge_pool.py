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
from numpy.typing import NDArray
from scipy.sparse.csgraph import connected_components
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
    """Qualities of items over judges, each above the mean of its part.

    Attributes
    ----------
    items : (v,) ascending
    value : (v,) mean over judges, logits; nan for an item that nothing connects with another
    cov : (v, v) of their errors
    component : (v,) which items batches connect, of whichever judge; 0 is the largest part.
        Between parts a difference would rest on what is assumed of batch effects and judges
    """

    items: tuple[Hashable, ...]
    value: Array
    cov: Array
    component: NDArray[np.int64]

    @property
    def is_connected(self) -> bool:
        """Whether all items can be compared."""
        return not self.component.any()

    def contrast(self, weights: Mapping[Hashable, float]) -> Contrast:
        """Estimate Σ w quality, and test that it is 0; across parts it is not estimable."""
        w = np.array([float(weights.get(item, 0.0)) for item in self.items])
        levels = np.bincount(self.component, w)
        if np.abs(levels).max(initial=0.0) > 1e-9 * np.abs(w).sum():
            reason = "it compares items that no batches of any judge connect"
            return Contrast(np.nan, np.nan, np.nan, np.nan, FitStatus.NOT_ESTIMABLE, reason)
        at = np.flatnonzero(w)
        est, variance = (
            float(w[at] @ self.value[at]),
            float(w[at] @ self.cov[np.ix_(at, at)] @ w[at]),
        )
        if not variance > 0:
            reason = "it has no weight on any item"
            return Contrast(est, np.nan, np.nan, np.nan, FitStatus.NOT_ESTIMABLE, reason)
        return wald(est, float(np.sqrt(variance)))


def pool_qualities(fits: Sequence[MarkovFit]) -> PooledQualities:
    """Take the mean of judges' qualities, weighted by how much each judge's ratings say on the whole.

    A judge's qualities stand above a level of its own, and who rated other items has another mean
    of them. So qualities q and one offset a judge are fitted together, by least squares of
    w_j (theta_ji - a_j - q_i)²: judges meet in the items that both have rated. Where all have rated
    all, that is the weighted mean of qualities above each judge's mean. Items of a judge that none
    of its batches connects have offsets of their own.

    A judge's weight is its mean precision over items, the same for all items that it rated, so that
    the mean of a difference is the difference of the means, also where judges see items
    differently. Weights of its own for each item, and those of its whole covariance, would follow
    the estimates: the more extreme one comes out, the larger is its error, and the pool would be
    drawn inwards.

    Parameters
    ----------
    fits : of one judge each; those that are not estimable are left out
    """
    used = [fit for fit in fits if not fit.reason]
    items = tuple(sorted({item for fit in used for item in fit.items}))  # type: ignore[type-var]
    place, n = {item: i for i, item in enumerate(items)}, len(items)
    at = [np.array([place[item] for item in fit.items], dtype=np.int64) for fit in used]
    normal, own = np.zeros((n, n)), [_weighed(fit) for fit in used]
    for where, weighed in zip(at, own, strict=True):
        normal[np.ix_(where, where)] += weighed
    component = _parts(normal)
    size = np.bincount(component)[component] if n else np.zeros(0)
    # The normal equations leave each part's level open: their inverse is that above its mean.
    level = (component[:, None] == component) / np.maximum(size, 1)
    scale = float(np.trace(normal)) / max(n, 1) or 1.0
    solved = (np.linalg.inv(normal / scale + level) - level) / scale
    value, cov, shared = np.zeros(n), np.zeros((n, n)), np.zeros((n, n))
    for fit, where, weighed in zip(used, at, own, strict=True):
        v = len(fit.items)
        taken = solved[:, where] @ weighed
        towards = taken @ fit.cov[:v, :v]
        value += taken @ fit.theta
        cov += towards @ taken.T
        if fit.prior.items is not None:
            lean = (towards - towards.mean(axis=1, keepdims=True)) / fit.prior.items
            cov -= lean @ lean.T
            shared[:, where] += lean
    cov += shared @ shared.T
    is_alone = size == 1
    value[is_alone] = cov[is_alone] = cov[:, is_alone] = np.nan
    return PooledQualities(items=items, value=value, cov=cov, component=component)


def _weighed(fit: MarkovFit) -> Array:
    """Give what a judge adds to the normal equations of the items: w (1 - mean) in each part."""
    v = len(fit.items)
    found = np.zeros((v, v))
    for part in np.flatnonzero(np.bincount(fit.component) > 1):
        block = np.ix_(*[np.flatnonzero(fit.component == part)] * 2)
        centre = np.eye(len(block[0])) - 1 / len(block[0])
        variance = np.diag(centre @ fit.cov[:v, :v][block] @ centre)
        found[block] = np.mean(1 / variance) * centre
    return found


def _parts(normal: Array) -> NDArray[np.int64]:
    """Number the parts of items that are connected, the largest first, then by their first item."""
    if not len(normal):
        return np.zeros(0, dtype=np.int64)
    _, part = connected_components(normal != 0, directed=False)
    size, first = np.bincount(part), np.unique(part, return_index=True)[1]
    rank = np.empty(len(size), dtype=np.int64)
    rank[np.lexsort((first, -size))] = np.arange(len(size))
    found: NDArray[np.int64] = rank[part]
    return found


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
