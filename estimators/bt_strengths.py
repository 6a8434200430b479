"""Strengths and gaps as intervals are made of them: which fit, and which of its errors, to believe.

A gap is finite only inside a strong component (`bt_graph`). There it is estimated from the component's
own comparisons, without a prior: what holds an arm that has won everything would draw all others in.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from estimators.bt_inference import LEAST_SPREAD, Gaps, floored, gaps
from estimators.bt_model import FEW_CLUSTERS, BradleyTerryFit, Kind
from estimators.intervals import Array

FEW_ROWS = 30
"""Comparisons below which rows' scores can't show their spread: the model's variance is the least then."""

Fit = Callable[[NDArray[np.bool_]], BradleyTerryFit]


class Strengths(NamedTuple):
    """What is believed of m models.

    Attributes
    ----------
    fit : to all comparisons; where the data leave something open, a prior holds it
    theta : (m,) of the component's own fit where all gaps of the component are finite, else `fit`'s
    se : (m,) nan where a gap to another model of the component is not finite
    gaps : (m, m) each
    cov : (m, m) that gaps are drawn from together; nan between strong components
    df : degrees of freedom of these errors; infinite unless few clusters make them
    used : what they are by: `model`, `rows`, `clusters`
    """

    fit: BradleyTerryFit
    theta: Array
    se: Array
    gaps: Gaps
    cov: Array
    df: float
    used: str


class _Believed(NamedTuple):
    """A covariance, its degrees of freedom, what it is by, and another that bounds it from below."""

    cov: Array
    df: float
    used: str
    least: Array


def strengths(
    whole: BradleyTerryFit, of: Fit, left: NDArray[np.int64], right: NDArray[np.int64]
) -> Strengths:
    """Put together what a fit says of strengths, component by component.

    Parameters
    ----------
    whole : the fit of all comparisons
    of : fits some of the comparisons, (n,) bool, with the same settings
    left, right : (n,)
    """
    if whole.n_strong == 1 or whole.slope_ridge:
        return _of_one(whole, len(left))
    m = whole.n_models
    theta, se = whole.theta.copy(), np.full(m, np.nan)
    cov, est, of_gap = (np.full((m, m), np.nan) for _ in range(3))
    df, used = math.inf, "model"
    for part in np.unique(whole.strong):
        members = np.flatnonzero(whole.strong == part)
        if len(members) < 2:
            continue
        rows = (whole.strong[left] == part) & (whole.strong[right] == part)
        own = _of_one(of(rows), int(rows.sum()))
        block = np.ix_(members, members)
        cov[block] = own.cov[block]
        est[block], of_gap[block] = own.gaps.est[block], own.gaps.se[block]
        df, used = min(df, own.df), own.used
        if (whole.component == whole.component[members[0]]).sum() == len(members):
            theta[members], se[members] = own.theta[members], own.se[members]
    # Between strong components of one component a gap has a sign, from the prior, and no error.
    is_same = whole.component[:, None] == whole.component
    apart = np.where(is_same, whole.theta[:, None] - whole.theta, np.nan)
    found = Gaps(est=np.where(np.isnan(est), apart, est), se=of_gap)
    return Strengths(whole, theta, se, found, cov, df, used)


def _of_one(fit: BradleyTerryFit, n: int) -> Strengths:
    """Read a fit whose models all have finite gaps; where a slope is open, no gap has an error."""
    cov, df, used, least = _believed(fit, n)
    one, other = (gaps(fit.theta, each, fit.component, fit.strong) for each in (cov, least))
    se = np.sqrt(np.maximum(np.diag(cov), np.diag(least)))
    of_gap = np.fmax(one.se, other.se)
    if fit.slope_ridge:
        se, of_gap = np.full_like(se, np.nan), np.full_like(of_gap, np.nan)
    found = Gaps(est=one.est, se=of_gap)
    return Strengths(
        fit, fit.theta, np.where(np.isnan(fit.theta), np.nan, se), found, cov, df, used
    )


def _believed(fit: BradleyTerryFit, n: int) -> _Believed:
    """Choose the covariance of strengths.

    The model's where it is right, the rows' where they are weighted or ties count half, and the
    clusters' where comparisons share any. With few clusters that is itself unreliable, and has
    directions without spread: no gap's error is then below the rows', and bounds are Student's.
    """
    kind = Kind.SANDWICH if fit.is_robust else Kind.MODEL
    name = "rows" if fit.is_robust else "model"
    model, clusters = fit.cov, fit.cov_cluster
    share = 1.0 if n < FEW_ROWS else LEAST_SPREAD
    rows = floored(fit.covariance(kind), model, share)
    if clusters is None or fit.n_clusters >= n:
        return _Believed(rows, math.inf, name, rows)
    clusters = floored(clusters, model, share)
    if fit.n_clusters >= FEW_CLUSTERS:
        return _Believed(clusters, math.inf, "clusters", clusters)
    return _Believed(clusters, max(fit.n_clusters - 1, 1), "clusters", rows)
