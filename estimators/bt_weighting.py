"""Whether weights move strengths.

If one strength a model is right, the unweighted fit and the one that weights by target/propensity
estimate the same, and the unweighted one better. If not, each estimates what its own pairs show. Which
of them is primary is declared beforehand; how far they lie apart says whether it matters.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from scipy.special import ndtri

from estimators.bt_cells import Indices
from estimators.bt_scores import cluster_scores, gram, no_columns, solve
from estimators.intervals import Array


class WeightedShift(NamedTuple):
    """Weighted strengths less unweighted ones.

    Attributes
    ----------
    difference, se : (M,); `se` is of the difference
    largest : max |difference|/se
    model : where
    critical : what `largest` exceeds in at most 1 - level of runs if both fits estimate the same
    """

    difference: Array
    se: Array
    largest: float
    model: int
    critical: float

    @property
    def is_apart(self) -> bool:
        """Whether the fits estimate different strengths."""
        return self.largest > self.critical


class Fitted(NamedTuple):
    """Strengths, (M,), and the chance that the left wins of each comparison, (n,), a tie as half."""

    theta: Array
    chance: Array


def weighted_shift(
    left: Indices,
    right: Indices,
    outcome: Array,
    weights: Array,
    plain: Fitted,
    weighted: Fitted,
    *,
    extra: Array | None = None,
    cluster: Indices | None = None,
    level: float = 0.95,
) -> WeightedShift:
    """Compare a weighted fit with an unweighted one of the same comparisons.

    Each strength's error is a sum over comparisons, H⁺ x (y - p) and H_w⁺ w x (y - p_w); the variance
    of the difference is the sum of squares of the differences of these terms, added up within
    clusters first. The limit is Bonferroni's over M models.

    Parameters
    ----------
    left, right, outcome, weights : (n,), verdicts only
    extra : (n, q) columns that both fits have beside strengths, such as ones for the order's effect
    cluster : (n,) numbered from 0, such as prompts
    """
    n_models = len(plain.theta)
    extra = no_columns(len(left)) if extra is None else extra
    scores, inverses = [], []
    for weight, fit in ((np.ones_like(weights), plain), (weights, weighted)):
        scores.append(weight * (outcome - fit.chance))
        curve = weight * fit.chance * (1 - fit.chance)
        inverses.append(solve(gram(left, right, curve, extra, n_models)))

    def middle(i: int, j: int) -> Array:
        if cluster is None:
            return gram(left, right, scores[i] * scores[j], extra, n_models)
        return sums[i].T @ sums[j]

    sums = (
        []
        if cluster is None
        else [cluster_scores(left, right, each, extra, n_models, cluster) for each in scores]
    )
    a, b = inverses
    cross = b @ middle(1, 0) @ a
    cov = a @ middle(0, 0) @ a + b @ middle(1, 1) @ b - cross - cross.T
    se = np.sqrt(np.maximum(np.diag(cov)[:n_models], 0.0))
    difference = weighted.theta - plain.theta
    z = np.divide(np.abs(difference), se, out=np.zeros(n_models), where=se > 0)
    critical = float(ndtri(1 - (1 - level) / (2 * n_models)))
    return WeightedShift(difference, se, float(z.max()), int(z.argmax()), critical)
