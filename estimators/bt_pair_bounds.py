"""What the counts of one pair say of who beats whom, where strengths have no finite estimate.

A model that has won every comparison along every path has no finite strength, and no error of a gap
means anything. The pair's own comparisons bound the chance that one beats the other. Where ties
happen they count for neither: of decisive comparisons, too, the stronger wins more than half. The
order of showing must be a coin's, or balanced within the pair: else its effect is in the chance.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from scipy.special import betaincinv, ndtri, stdtrit

from estimators.bt_inference import AtEnd, Bound, Claims, Gaps, max_t, proved, students, watched
from estimators.confidence_sequences import beta_binomial_sequence
from estimators.intervals import Array, Interval

COUNTS_SHARE = 0.1
"""Part of alpha that counts take where some gap has no finite estimate. Chosen: little, for they are
needed early on alone. Where there is no such gap they take nothing, so that together claims err with
probability 1.1 alpha at most."""


def clopper_pearson(k: Array, n: Array, level: float) -> Interval:
    """Bound a chance by k successes in n trials, for an n that does not depend on them.

    Each end is a bound of its own at (1 + level)/2: all of five won gives .025^(1/5) = .478 at 95 %.

    Parameters
    ----------
    k, n : arrays of one shape, 0 <= k <= n

    Source: [CP34].
    """
    k, n = np.asarray(k, dtype=np.float64), np.asarray(n, dtype=np.float64)
    return Interval(_least(k, n, level), 1 - _least(n - k, n, level))


def _least(k: Array, n: Array, level: float) -> Array:
    # betaincinv is undefined at a = 0, where the bound is 0.
    found = betaincinv(np.maximum(k, 1.0), n - k + 1, (1 - level) / 2)
    return np.where(k > 0, found, 0.0)


def win_chances(wins: Array, level: float, *, is_watched: bool) -> Interval:
    """Bound the chance that the row's model beats the column's, each pair at `level`, (M, M).

    Parameters
    ----------
    wins : (M, M) decisive comparisons that the row's model has won
    is_watched : how often a pair was compared, or when the run ended, depended on outcomes: then by
        the beta-binomial confidence sequence; by Clopper and Pearson's interval otherwise
    """
    bound = beta_binomial_sequence if is_watched else clopper_pearson
    return bound(wins, wins + wins.T, level)


def proved_by_counts(
    wins: Array, *, level: float, is_watched: bool, even: Array | float = 0.5
) -> Claims:
    """Say which models their own comparisons prove better than which, all pairs together at `level`.

    Each pair takes alpha over the number of all pairs, so that it does not matter which of them
    turn out to be separated.

    Parameters
    ----------
    even : (M, M) the largest chance that equal models can have, whatever the first place brings: the
        larger share of the pair's two orders
    """
    n_pairs = len(wins) * (len(wins) - 1) // 2
    alpha = (1 - level) / max(n_pairs, 1)
    found: Claims = win_chances(wins, 1 - alpha, is_watched=is_watched).lower > even
    return found


class Proved(NamedTuple):
    """Which models are proved better than which, and the bound of gaps that it was proved with."""

    above: Claims
    bound: Bound


def claims(
    found: Gaps,
    cov: Array,
    wins: Array,
    rng: np.random.Generator,
    *,
    level: float = 0.95,
    is_watched: bool,
    planned_gap: float = 0.4,
    df: float = math.inf,
    even: Array | float = 0.5,
    draws: int = 20_000,
) -> Proved:
    """Say which models are proved better than which, all pairs together, by gaps and by counts.

    Parameters
    ----------
    cov : (M, M) that the gaps' errors are from
    wins : (M, M) decisive comparisons that the row's model has won
    is_watched : the run may stop, or is looked at, along the way: confidence sequences; otherwise
        the largest |z|, for one look at an end fixed beforehand
    planned_gap : see `watched`
    even : see `proved_by_counts`
    df : degrees of freedom of `cov` where few clusters make it: bounds of the normal law are then
        turned into those of Student's with the same tail

    Determinism: `draws` normal vectors from `rng` where it is not watched.
    """
    m = len(wins)
    is_separated = np.isnan(found.se) & ~np.isnan(found.est) & ~np.eye(m, dtype=bool)
    alpha, by_counts = 1 - level, None
    if is_separated.any():
        level_of_counts = 1 - COUNTS_SHARE * alpha
        by_counts = proved_by_counts(wins, level=level_of_counts, is_watched=is_watched, even=even)
        alpha *= 1 - COUNTS_SHARE
    bound: Bound
    if is_watched:
        n_gaps = max(m * (m - 1) // 2, 1)
        bound = watched(n_gaps, planned_gap=planned_gap, level=1 - alpha, df=df)
    else:
        largest = max_t(cov, rng, se=found.se, level=1 - alpha, draws=draws)
        bound = AtEnd(float(students(np.array(largest), df)))
    return Proved(proved(found, bound, by_counts), bound)


def student(level: float, df: float) -> float:
    """Give the two-sided quantile of Student's law; the normal one for infinite `df`."""
    tail = (1 - level) / 2
    return float(-ndtri(tail)) if math.isinf(df) else float(-stdtrit(df, tail))
