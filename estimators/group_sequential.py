"""Tests that may be looked at a planned number of times: Lan and DeMets's error spending.

The error is spent over the course of a run that has a planned end; each look has a bound for |z| that
spends what has come due. How much is due depends on the planned course alone; how much looks have in
common depends on the information they had. The bound, not 1.96, also makes the interval.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import cache
from typing import NamedTuple

import numpy as np
from scipy.optimize import brentq
from scipy.special import ndtr, ndtri

from estimators.intervals import Array

_LEAST_GROWTH = 0.01
"""Relative growth of information that a look counts as having at least. Estimated information can
fall by chance; the look then says nothing new, and to take it for a little new makes its bound a
little larger. It keeps the integral's kernel wide enough to be resolved."""

_NODES_PER_SD = 3
_MOST_SD = 9.0
"""Bounds are searched up to so many standard deviations; beyond, nothing measurable is spent."""


def obrien_fleming_spending(t: float, alpha: float = 0.05) -> float:
    """Give the error spent up to a part t of the planned course, two-sided.

    alpha(t) = 4 (1 - Φ(z_{1 - alpha/4}/√t)): each side spends 2 (1 - Φ(z/√t)) of its alpha/2, so
    that little is spent early.

    Parameters
    ----------
    t : part of the planned course, > 0; beyond 1 all is spent

    Source: [LD83], the O'Brien-Fleming type [OF79], for each of two sides.
    """
    return float(4 * ndtr(ndtri(alpha / 4) / np.sqrt(min(1.0, t))))


def bounds(
    times: Sequence[float], information: Sequence[float] | None = None, *, alpha: float = 0.05
) -> tuple[float, ...]:
    """Give the bound for |z| at each look so far.

    With z_j the test at look j, whose information is I_j, corr(z_j, z_k) = √(I_j/I_k) for j < k: the
    score √I z moves like a Brownian motion in I. Look k's bound is what makes the chance of having
    crossed any bound up to it alpha(t_k). It is found by recursive integration: the density of the
    score at look k, not having crossed, is the last one's, spread by the information gained.

    Parameters
    ----------
    times : parts of the planned course, ascending, > 0: planned beforehand, never chosen by results
    information : 1/se² at each look; None: it grows as the times do

    Returns
    -------
    one bound a look; infinite where nothing measurable has come due

    Raises
    ------
    ValueError
        Times do not ascend from above 0, or information is missing or not positive.

    Source: [LD83]; recursive integration [AMR69].
    """
    info = np.asarray(times if information is None else information, dtype=np.float64)
    course = np.asarray(times, dtype=np.float64)
    if len(info) != len(course) or (len(course) and not (course[0] > 0 and info.min() > 0)):
        raise ValueError("each look needs a time and an information above 0")
    if (np.diff(course) <= 0).any():
        raise ValueError("the looks' times must ascend")
    found: list[float] = []
    spent, before, density = 0.0, 0.0, None
    for t, each in zip(course, info, strict=True):
        due = obrien_fleming_spending(float(t), alpha)
        now = float(max(each, before * (1 + _LEAST_GROWTH)))
        bound = _bound(due - spent, density, before, now)
        found.append(bound)
        density = _inside(bound, density, before, now)
        spent, before = due, now
    return tuple(found)


class _Density(NamedTuple):
    """Density of the score where no bound has been crossed: nodes, and density times weight."""

    at: Array
    mass: Array


def _bound(due: float, density: _Density | None, before: float, now: float) -> float:
    """Find c so that |score| crosses c √now at this look with probability `due`."""

    def excess(c: float) -> float:
        return _crossing(c, density, before, now) - due

    if excess(_MOST_SD) >= 0:
        return float("inf")
    if excess(0.0) <= 0:
        return 0.0
    return float(brentq(excess, 0.0, _MOST_SD, xtol=1e-10))


def _crossing(c: float, density: _Density | None, before: float, now: float) -> float:
    edge = c * np.sqrt(now)
    if density is None:
        return float(2 * ndtr(-c))
    gained = np.sqrt(now - before)
    outside = ndtr(-(edge - density.at) / gained) + ndtr(-(edge + density.at) / gained)
    return float(density.mass @ outside)


def _inside(bound: float, density: _Density | None, before: float, now: float) -> _Density:
    """Give the density behind a look, at Gauss-Legendre nodes between the bounds."""
    edge = min(bound, _MOST_SD) * np.sqrt(now)
    gained = np.sqrt(now - before)
    x, weight = _legendre(64 * math.ceil(max(1.0, _NODES_PER_SD * 2 * edge / gained / 64)))
    at = edge * x
    if density is None:
        height = np.exp(-at * at / (2 * now))
    else:
        off = (at[:, None] - density.at) / gained
        height = np.exp(-off * off / 2) @ density.mass
    return _Density(at, weight * edge * height / (gained * np.sqrt(2 * np.pi)))


@cache
def _legendre(n: int) -> tuple[Array, Array]:
    return np.polynomial.legendre.leggauss(n)


class Look(NamedTuple):
    """A look's verdict and the interval that goes with it: est ± bound · se."""

    bound: float
    crosses: bool
    lower: float
    upper: float


def repeated_interval(est: float, se: float, bound: float) -> Look:
    """Give the repeated confidence interval, which holds at all looks at once.

    Source: [JT89].
    """
    half = bound * se
    return Look(bound, abs(est) > half, est - half, est + half)
