"""Who is best: items ranked by a judge's fit or a panel's, and by raw verdicts with their worth."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtr

from estimators.intervals import Array
from estimators.markov_model import MarkovFit


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Ranking:
    """Items by quality, best first in `order`.

    Attributes
    ----------
    items, theta : (v,) as in the fit
    order : (v,) places in `items`, best first; ties by place
    z, p : (v, v) pairwise Wald tests of theta_i - theta_j, nan on the diagonal
    simultaneous_p : (v, v) adjusted over all pairs by the largest |z|; for a fixed end only, not
        while one watches
    critical : largest |z| over all pairs that chance exceeds with probability 1 - level
    p_first : (v,) chance of being best, of draws from the normal law of the estimates
    """

    items: tuple[Hashable, ...]
    theta: Array
    order: NDArray[np.int64]
    z: Array
    p: Array
    simultaneous_p: Array
    critical: float
    p_first: Array


def ranking(
    fit: MarkovFit, rng: np.random.Generator, *, draws: int = 2000, level: float = 0.95
) -> Ranking:
    """Rank items and test all pairs, each with the whole covariance.

    A fit that is not estimable has nan for tests and chances.

    Determinism: `draws` normal vectors from `rng`.
    """
    v = len(fit.items)
    theta = fit.theta
    order = np.lexsort((np.arange(v), -theta))
    unknown = np.full((v, v), np.nan)
    if fit.reason or v < 2:
        return Ranking(
            items=fit.items,
            theta=theta,
            order=order,
            z=unknown,
            p=unknown.copy(),
            simultaneous_p=unknown.copy(),
            critical=np.nan,
            p_first=np.full(v, np.nan),
        )
    cov = fit.cov[:v, :v]
    variance = np.diag(cov)
    se = np.sqrt(np.maximum(variance[:, None] + variance - 2 * cov, 0.0))
    is_open = fit.component[:, None] != fit.component
    se[is_open | np.eye(v, dtype=bool)] = np.nan
    z = (theta[:, None] - theta) / se
    error = rng.standard_normal((draws, v)) @ root(cov).T
    largest = largest_z(error, se)
    exceeded = np.searchsorted(np.sort(largest), np.abs(z), side="left")
    simultaneous = np.where(np.isnan(z), np.nan, (draws - exceeded) / draws)
    best = np.bincount((theta + error).argmax(axis=1), minlength=v) / draws
    if fit.component.any():
        best = np.full(v, np.nan)
    return Ranking(
        items=fit.items,
        theta=theta,
        order=order,
        z=z,
        p=2 * ndtr(-np.abs(z)),
        simultaneous_p=simultaneous,
        critical=float(np.quantile(largest, level)),
        p_first=best,
    )


def first_chances(
    value: Array, cov: Array, rng: np.random.Generator, *, draws: int = 2000
) -> Array:
    """Give each item's chance of being best, of draws from the normal law of the estimates, (v,).

    Determinism: `draws` normal vectors from `rng`.
    """
    drawn = value + rng.standard_normal((draws, len(value))) @ root(cov).T
    chances: Array = np.bincount(drawn.argmax(axis=1), minlength=len(value)) / draws
    return chances


class Lead(NamedTuple):
    """The item with the highest estimate, and its lead over each other one.

    `leader` is a place, `others` (v - 1,) are the other places, `est` and `se` (v - 1,) the leads.
    """

    leader: int
    others: NDArray[np.int64]
    est: Array
    se: Array


def lead(value: Array, cov: Array) -> Lead:
    """Give the leads of the first item over the others; ties by place.

    Claimed to be first at error alpha where each lead exceeds a bound at alpha/(v - 1): a wrong leader
    has beaten the best item, and there are v - 1 that may. So it does not matter that the estimates
    say who leads.
    """
    first = int(value.argmax())
    others = np.delete(np.arange(len(value)), first)
    variance = np.diag(cov)
    of_lead = variance[first] + variance[others] - 2 * cov[first, others]
    return Lead(first, others, value[first] - value[others], np.sqrt(np.maximum(of_lead, 0.0)))


def root(cov: Array) -> Array:
    """Give a square root of a covariance matrix, also of one without full rank."""
    values, vectors = np.linalg.eigh(cov)
    found: Array = vectors * np.sqrt(np.maximum(values, 0.0))
    return found


def largest_z(error: Array, se: Array) -> Array:
    """Give the largest |z| over all pairs in each draw, (draws,); nan for `se` leaves a pair out.

    It takes one item against all later ones at a time, along draws that lie side by side.
    """
    rows = np.ascontiguousarray(error.T)
    per_se = np.where(np.isnan(se), 0.0, 1 / np.where(np.isnan(se), 1.0, se))
    largest = np.zeros(len(error))
    for i in range(len(se) - 1):
        z = rows[i + 1 :] - rows[i]
        z *= per_se[i, i + 1 :, None]
        np.maximum(largest, np.abs(z, out=z).max(axis=0), out=largest)
    return largest


class NaiveSafety(NamedTuple):
    """Whether a ranking by raw acceptance can be trusted, as far as the memory goes.

    An item never follows itself, so each item meets another mix of predecessors. That moves its
    acceptance as a shift of its quality by at most `missing_self` = 2 |beta|/v would, for |beta| up
    to 2 (`is_bounded`). Where the best item leads by less than `needed` = 4 |beta|/v, the order of
    the two best may be the mix's doing.

    Attributes
    ----------
    gap : fitted quality of the best item less that of the second, logits
    """

    gap: float
    missing_self: float
    needed: float
    is_safe: bool
    is_bounded: bool


def naive_safety(fit: MarkovFit) -> NaiveSafety:
    """Hold the fitted lead of the best item against what a missing self can do to raw shares.

    Source: [LD26].
    """
    v = len(fit.items)
    beta = abs(fit.slopes.get("lag1", 0.0))
    top = np.sort(fit.theta)[::-1]
    gap = float(top[0] - top[1]) if v > 1 else np.nan
    needed = 4 * beta / v if v else np.nan
    return NaiveSafety(gap, needed / 2, needed, bool(gap >= needed), beta <= 2)
