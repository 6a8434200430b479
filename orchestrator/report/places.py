"""Whether verdicts depend on the place in which a thing was shown."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]


class Effect(NamedTuple):
    """Mean verdict by place, things' own means taken out, and the test that all are equal.

    `statistic` has, without an effect, the chi-square law with `df` degrees of freedom.
    """

    n_answers: int
    means: tuple[float, ...]
    statistic: float
    df: int
    p: float


class Places:
    """Sums of one judge's complete answers, each about the same things in some order."""

    __slots__ = ("_count", "_products", "_total", "n")

    def __init__(self, n_things: int) -> None:
        self.n = 0
        self._count, self._total, self._products = np.zeros((3, n_things, n_things))

    def add(self, places: Sequence[int], values: Sequence[float]) -> None:
        """Take in one answer: the place of each thing, a permutation, and its verdict."""
        things = range(len(values))
        y = np.array(values)
        self.n += 1
        self._count[things, places] += 1
        self._total[things, places] += y
        self._products += np.outer(y, y)

    def effect(self) -> Effect | None:
        """Test that places make no difference; None where everything kept its place.

        The verdicts of an answer, less the mean of their things, stand in random order if places make
        no difference. So the sum T_s of those at place s has, given the verdicts, mean 0 and
        covariance Σ_a S_a² (I - 1/c), with S_a² the variance of the c verdicts of answer a; and
        Σ_s T_s² / Σ_a S_a² has the chi-square law with c - 1 degrees of freedom for many answers.
        The order is drawn anew for each answer, so that answers about one item may hang together as
        they like. Means come from the least-squares fit of things and places.

        Source: Friedman's test [F37] without its ranks.
        """
        from scipy.special import chdtrc  # noqa: PLC0415  # slow to load, few commands need it

        count, c = self._count, len(self._count)
        if not self.n or not ((count > 0).sum(axis=1) > 1).any():
            return None
        m = self._total.sum(axis=1) / self.n
        moved = (self._total - count * m[:, None]).sum(axis=0)
        left = self._products - self.n * np.outer(m, m)
        spread = (np.trace(left) - left.sum() / c) / (c - 1)
        # What rounding leaves of verdicts that are all equal is no spread.
        is_known = spread > 1e-12 * max(float(np.trace(self._products)), 1.0)
        statistic = float((moved * moved).sum() / spread) if is_known else 0.0
        means = m.mean() + self._fitted()
        return Effect(
            self.n, tuple(means.tolist()), statistic, c - 1, float(chdtrc(c - 1, statistic))
        )

    def _fitted(self) -> Array:
        """Fit thing + place to the mean verdicts; give the places' part, which sums to 0."""
        c = len(self._count)
        thing, place = np.nonzero(self._count)
        weight = np.sqrt(self._count[thing, place])
        design = np.zeros((len(thing), 2 * c))
        design[np.arange(len(thing)), thing] = weight
        design[np.arange(len(thing)), c + place] = weight
        mean = self._total[thing, place] / self._count[thing, place]
        fitted = np.linalg.lstsq(design, weight * mean, rcond=None)[0][c:]
        centred: Array = fitted - fitted.mean()
        return centred


def holm(p: Sequence[float]) -> list[float]:
    """Adjust p values for their number, so that one in all that is below a level is wrong so often.

    Source: [H79].
    """
    adjusted, least = [0.0] * len(p), 0.0
    for rank, i in enumerate(sorted(range(len(p)), key=p.__getitem__)):
        least = max(least, min(1.0, (len(p) - rank) * p[i]))
        adjusted[i] = least
    return adjusted
