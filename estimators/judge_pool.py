"""One contrast from several judges: pooled, and how far the judges disagree on it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from scipy.special import chdtrc

from estimators.disagreement import precision_mean
from estimators.markov_inference import wald
from estimators.markov_model import Contrast, FitStatus

DISAGREEMENT = 0.1
"""p of Cochran's test below which judges are reported as disagreeing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PooledContrast:
    """A contrast over judges.

    Attributes
    ----------
    pooled : weighted by precision: the mean of these judges' contrasts, as if each had the same
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

    Judges enter as independent: each was asked in its own orders.

    Source: [C54] for the pool and the test, [H79] for the adjustment.
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
    pooled = wald(float(found.mean), float(np.sqrt(found.variance)))
    return PooledContrast(
        pooled=pooled._replace(prior_sensitive=any(one.prior_sensitive for one in used.values())),
        q=q,
        df=df,
        q_p=q_p,
        disagree=q_p < DISAGREEMENT,
        holm=holm({name: one.p for name, one in used.items()}),
        left_out=left_out,
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
