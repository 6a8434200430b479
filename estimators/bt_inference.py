"""What strengths prove: gaps and their intervals, ranks, tiers, whether a leader or all are apart.

Everything rests on which gaps are proved, an (M, M) table `above`: a better than b. It is made with a
bound for |z| that holds for all gaps together, of one of two kinds:

- `AtEnd`: the largest |z| that chance gives, for an end that was fixed beforehand and one look there;
- `Watched`: confidence sequences in information time, for a run that may stop or is watched.

Gaps that can't be estimated prove nothing, and so widen ranks: between models that no chain of
comparisons connects, and between separated ones, of which one has won every comparison along every
path. What the counts of a separated pair prove (`estimators.bt_pair_bounds`) is put in beside.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtr, stdtrit

from estimators.confidence_sequences import sequence_bounds, tightest
from estimators.intervals import Array, Interval
from estimators.markov_ranking import largest_z, root

LEAST_SPREAD = 0.1
"""Part of the model's variance below which no error is believed. Chosen: nine ties in ten verdicts."""

Claims = NDArray[np.bool_]
"""(M, M): `above[a, b]` says that a is proved better than b."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Gaps:
    """All gaps of M models, natural log-odds.

    Attributes
    ----------
    est : (M, M) theta_a - theta_b; nan between components
    se : (M, M) with the covariance of both; nan where there is none: on the diagonal, between
        components, and between separated models
    """

    est: Array
    se: Array

    @property
    def n_models(self) -> int:
        """M."""
        return len(self.est)


def gaps(
    theta: Array,
    cov: Array,
    component: NDArray[np.int64] | None = None,
    strong: NDArray[np.int64] | None = None,
) -> Gaps:
    """Give all gaps, with V_aa + V_bb - 2 V_ab.

    Parameters
    ----------
    theta, cov : (M,) and (M, M), of strengths that sum to zero
    component : (M,) which models a chain of comparisons connects; None: all
    strong : (M,) which models have beaten each other around a circle, so that their gaps have a
        finite estimate; None: all
    """
    n = len(theta)
    one = np.zeros(n, dtype=np.int64)
    component, strong = (one if each is None else each for each in (component, strong))
    is_apart = component[:, None] != component
    variance = np.diag(cov)
    se = np.sqrt(np.maximum(variance[:, None] + variance - 2 * cov, 0.0))
    se[is_apart | (strong[:, None] != strong) | np.eye(n, dtype=bool)] = np.nan
    return Gaps(est=np.where(is_apart, np.nan, theta[:, None] - theta), se=se)


def floored(cov: Array, model: Array, least: float = LEAST_SPREAD) -> Array:
    """Raise a covariance to a share of the model's in every direction, (M, M) each.

    Ties as half wins vary less than the model says, and verdicts that are all ties not at all: their
    scores then have no spread to estimate an error from, though nobody knows the strengths exactly.

    Parameters
    ----------
    cov, model : of strengths, symmetric; rows that are nan stay so
    """
    is_known = ~np.isnan(np.diag(cov)) & ~np.isnan(np.diag(model))
    known = np.ix_(is_known, is_known)
    size, vectors = np.linalg.eigh(model[known])
    kept = size > 1e-12 * size.max(initial=0.0)
    half = vectors[:, kept] * np.sqrt(size[kept])
    back = vectors[:, kept] / np.sqrt(size[kept])
    share, turned = np.linalg.eigh(back.T @ cov[known] @ back)
    if (share >= least).all():
        return cov
    outer = half @ turned
    raised = cov.copy()
    raised[known] = (outer * np.maximum(share, least)) @ outer.T
    return raised


# --- bounds ------------------------------------------------------------------------------------


class AtEnd(NamedTuple):
    """One bound for every gap, at an end fixed beforehand: 1.96 for one gap, `max_t` for all."""

    critical: float

    def of(self, se: Array) -> Array:
        """Bound |z| of each gap."""
        return np.full_like(se, self.critical)


class Watched(NamedTuple):
    """A bound that holds at every look.

    Attributes
    ----------
    level : of one gap: 1 - alpha/(number of gaps that are claimed), see `watched`
    planned_information : 1/se² of a gap where the run is meant to end
    df : degrees of freedom of the errors; finite where few clusters make them
    """

    level: float
    planned_information: float
    df: float = math.inf

    def of(self, se: Array) -> Array:
        """Bound |z| of each gap, by the information it has."""
        z = sequence_bounds(1 / se**2, self.level, self.planned_information)
        return z if math.isinf(self.df) else students(z, self.df)


def students(z: Array, df: float) -> Array:
    """Give what Student's law exceeds as rarely as the normal law exceeds z, both on two sides."""
    if math.isinf(df):
        return z
    tail = ndtr(-z)
    # Of tails that rounding leaves nothing of, few degrees of freedom know no bound.
    found: Array = np.where(tail > _LEAST_TAIL, -stdtrit(df, np.maximum(tail, _LEAST_TAIL)), np.inf)
    return found


_LEAST_TAIL = 1e-15


Bound = AtEnd | Watched


def max_t(
    cov: Array,
    rng: np.random.Generator,
    *,
    se: Array | None = None,
    level: float = 0.95,
    draws: int = 20_000,
) -> float:
    """Give the quantile of the largest |z| over all gaps, for one look at an end fixed beforehand.

    The quantile of max over a < b of |N(0, R)|, R the correlations of all gaps, by simulation; its
    own error is about 1.4/√draws at 95 %. Gaps of one and the same variance have the studentised
    range's quantile over √2. It is nan where no gap has an error.

    Parameters
    ----------
    se : (M, M) of `gaps`, nan where a gap is left out; None: all

    Determinism: `draws` normal vectors from `rng`.
    """
    if se is None:
        se = gaps(np.zeros(len(cov)), cov).se
    if np.isnan(se).all():
        return np.nan
    # A model that was never compared has no covariance, and is in no gap that counts.
    known = np.where(np.isnan(cov), 0.0, cov)
    error = rng.standard_normal((draws, len(cov))) @ root(known).T
    return float(np.quantile(largest_z(error, se), level))


def watched(
    n_gaps: int, *, planned_gap: float = 0.4, level: float = 0.95, df: float = math.inf
) -> Watched:
    """Give the bound that holds for so many gaps at every look.

    Each gap has a confidence sequence at alpha/n_gaps. For a leader these are M - 1: a wrong leader
    has beaten the best model, and there are M - 1 pairs with it. For ranks they are M (M - 1)/2:
    |z| at the planned information is 4.18 for 10 models and 4.72 for 30.

    Parameters
    ----------
    planned_gap : half-width of a gap at which the run is meant to end, where the bound is tightest;
        chosen before the run
    df : degrees of freedom of the errors; finite where few clusters make them
    """
    alpha = (1 - level) / n_gaps
    return Watched(1 - alpha, (1 + tightest(alpha)) / planned_gap**2, df)


def gap_intervals(found: Gaps, bound: Bound) -> Interval:
    """Give est ± bound · se, (M, M) each; from -inf to inf where a gap has no error."""
    half = bound.of(found.se) * found.se
    is_known = ~np.isnan(half)
    return Interval(
        np.where(is_known, found.est - half, -np.inf), np.where(is_known, found.est + half, np.inf)
    )


def proved(found: Gaps, bound: Bound, by_counts: Claims | None = None) -> Claims:
    """Say which models are proved better than which.

    A gap proves its sign when its interval excludes 0; where it has no error, the pair's counts may
    (`by_counts`). Claims are closed: a over b and b over c is a over c. Strengths are numbers, so
    that this claims nothing that the others could be right without.

    The errors of both kinds of claims add up: with `by_counts`, give each its part of alpha.
    """
    above = gap_intervals(found, bound).lower > 0
    if by_counts is not None:
        above |= by_counts & np.isnan(found.se)
    while True:
        # Counts in float64 go through BLAS and stay exact.
        chained = above | ((above.astype(np.float64) @ above.astype(np.float64)) > 0)
        if (chained == above).all():
            return above
        above = chained


# --- what follows from claims ------------------------------------------------------------------


class Ranks(NamedTuple):
    """The best and the worst rank that each model may have, (M,) int64, 1 is first."""

    best: NDArray[np.int64]
    worst: NDArray[np.int64]


def rank_intervals(above: Claims) -> Ranks:
    """Bound all ranks: [1 + models proved above, M - models proved below].

    They hold together with the claims' common level.
    """
    return Ranks(1 + above.sum(axis=0), len(above) - above.sum(axis=1))


class Leader(NamedTuple):
    """The model of the largest strength, whether it is proved above all, and those it is not above."""

    model: int
    is_separated: bool
    rivals: NDArray[np.int64]


def leader(theta: Array, above: Claims) -> Leader:
    """Say who leads, and whether that is proved."""
    first = int(np.where(np.isnan(theta), -np.inf, theta).argmax())
    rivals = np.flatnonzero(~above[first])
    rivals = rivals[rivals != first]
    return Leader(first, not len(rivals), rivals)


def is_ranking_separated(above: Claims) -> bool:
    """Say whether each pair of models is proved one way or the other."""
    return bool((above | above.T | np.eye(len(above), dtype=bool)).all())


def tiers(theta: Array, above: Claims) -> NDArray[np.int64]:
    """Put models into tiers, 0 the best, (M,).

    In the order of strength, a tier ends behind a model if all models up to it are proved above all
    models behind it. So every model of a tier is proved above every model of all later ones, and no
    tier can be cut in two so that this holds of its parts. Two models of a tier may well be apart:
    it is held together by others between them. Where no chain of comparisons connects all models,
    there is one tier.
    """
    order = np.argsort(-theta, kind="stable")
    claims = above[np.ix_(order, order)]
    found = np.zeros(len(theta), dtype=np.int64)
    found[order[1:]] = np.cumsum([claims[:k, k:].all() for k in range(1, len(order))])
    return found
