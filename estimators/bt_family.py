"""Judges that judge their own kind: which comparisons, and what it brings."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from estimators.bt_cells import Indices
from estimators.bt_model import FEW_CLUSTERS, Status, fit_bradley_terry
from estimators.bt_pair_bounds import student
from estimators.intervals import Array


def kinship(
    judge_families: Sequence[str],
    model_families: Sequence[str],
    left: Indices,
    right: Indices,
    judge: Indices,
) -> Array:
    """Say which side is of the judge's family, (n,): 1 the left, -1 the right, 0 both or neither.

    Parameters
    ----------
    judge_families, model_families : by judge and by model, such as the maker; case does not count,
        and an empty one is nobody's
    left, right, judge : (n,)
    """
    makers = np.array([name.casefold() for name in judge_families], dtype=object)
    made = np.array([name.casefold() for name in model_families], dtype=object)
    own = makers[judge]
    is_known = own != ""
    kin: Array = np.zeros(len(own))
    kin[is_known & (made[left] == own)] += 1
    kin[is_known & (made[right] == own)] -= 1
    return kin


class FamilyAdvantage(NamedTuple):
    """What models gain before judges of their own family.

    Attributes
    ----------
    n, share : comparisons in which one side alone is of the judge's family, and of all
    est, se, lower, upper : advantage, logits; nan and the whole line where it can't be told from
        strengths: no such comparisons, or none of the same models before other judges
    """

    n: int
    share: float
    est: float
    se: float
    lower: float
    upper: float

    @property
    def is_shown(self) -> bool:
        """Whether the interval excludes no advantage."""
        return self.lower > 0 or self.upper < 0


def family_advantage(
    left: Indices,
    right: Indices,
    outcome: ArrayLike,
    kin: Array,
    *,
    n_models: int,
    order_effect: bool = False,
    cluster: ArrayLike | None = None,
    level: float = 0.95,
) -> FamilyAdvantage:
    """Estimate delta in P(left wins) = sigma(theta_left - theta_right + gamma + delta kin).

    The error is the model's, or the rows' where ties count half, and not below the clusters' where
    comparisons share any; with few of these the interval is Student's.

    Raises
    ------
    ValueError
        Shapes or values are malformed.
    DidNotConverge
        The fit found no maximum.
    """
    is_kin = (kin != 0) & ~np.isnan(np.asarray(outcome, dtype=np.float64))
    n, share = int(is_kin.sum()), float(is_kin.mean()) if len(is_kin) else 0.0
    unknown = FamilyAdvantage(n, share, np.nan, np.nan, -np.inf, np.inf)
    if not n:
        return unknown
    fit = fit_bradley_terry(
        left,
        right,
        outcome,
        n_models=n_models,
        order_effect=order_effect,
        cluster=cluster,
        covariates=kin,
        covariate_names=("family",),
    )
    if fit.status is Status.UNDETERMINED or fit.slope_ridge:
        return unknown
    slope = fit.slope("family")
    se, df = slope.se_sandwich if fit.is_robust else slope.se, math.inf
    if cluster is not None and fit.n_clusters < fit.n:
        se = max(se, slope.se_cluster)
        df = math.inf if fit.n_clusters >= FEW_CLUSTERS else max(fit.n_clusters - 1, 1)
    half = student(level, df) * se
    return FamilyAdvantage(n, share, slope.est, se, slope.est - half, slope.est + half)
