"""Synthetic judges whose noise is known: items of unequal difficulty, judges of unequal precision.

An item's mean is 0.1 + 0.8 Beta(2, 2). The standard deviation of judge j on item k is v_j d_k e_kj:
v_j from 0.05 to 0.35 in equal ratios, d_k and e_kj lognormal with log standard deviations 0.5 and
0.3, at most a part of the largest that a score on [0, 1] of that mean can have: half in `smooth` and
`likert`, 0.95 in `hard`, where noisy judges say little but 0 and 1. Scores are Beta distributed; in
`likert` they are rounded to five labels, up or down by chance, which keeps means as they are.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, Protocol, get_args

import numpy as np
from numpy.typing import NDArray
from scipy.special import betainc

Array = NDArray[np.float64]
Counts = NDArray[np.int64]
Kind = Literal["smooth", "hard", "likert"]
Prices = Literal["unit", "inv_sd", "inv_var", "inv_cube", "perverse"]
KINDS: tuple[Kind, ...] = get_args(Kind)
PRICES: tuple[Prices, ...] = get_args(Prices)

LOWEST_SD, HIGHEST_SD = 0.05, 0.35
"""Of the most and the least precise judge, before items' factors."""

_EXACT = 400
"""Calls of a cell up to which every score is drawn; beyond it their mean is, as a normal."""


class World(Protocol):
    """Judges whose scores can be drawn, and the truth about them.

    Parameters
    ----------
    truth : (K,) items' true scores
    means, variance : (K, J) of one score of judge j on item k
    span : length of the scale
    """

    @property
    def truth(self) -> Array: ...  # noqa: D102
    @property
    def means(self) -> Array: ...  # noqa: D102
    @property
    def variance(self) -> Array: ...  # noqa: D102
    @property
    def span(self) -> float: ...  # noqa: D102

    def draw(self, counts: Counts, rng: np.random.Generator) -> tuple[Array, Array]:
        """Ask each judge so often about each item; give means and unbiased variances.

        Both are (K, J), nan where too little was asked.
        """
        ...


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class BetaJudges:
    """Judges with Beta distributed scores on [0, 1]."""

    truth: Array
    means: Array
    variance: Array
    span: float = 1.0

    def draw(self, counts: Counts, rng: np.random.Generator) -> tuple[Array, Array]:
        """Draw as `World`; beyond 400 calls of a cell no variance is given."""
        n = counts.ravel()
        means, sigma2 = self.means.ravel(), self.variance.ravel()
        alpha, beta = shapes(means, sigma2)
        cell = np.repeat(np.arange(n.size), np.where(n <= _EXACT, n, 0))
        score = rng.beta(alpha[cell], beta[cell])
        many = np.flatnonzero(n > _EXACT)
        mean = ratio(np.bincount(cell, score, n.size), n)
        mean[many] = means[many] + rng.standard_normal(many.size) * np.sqrt(sigma2[many] / n[many])
        squares = np.bincount(cell, (score - mean[cell]) ** 2, n.size)
        variance = ratio(squares, np.where(n <= _EXACT, n - 1, 0))
        return mean.reshape(counts.shape), variance.reshape(counts.shape)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class LabelJudges:
    """Judges that say one of the labels 0, 1, ..., with `chance` (K, J, n_labels)."""

    truth: Array
    chance: Array

    @property
    def span(self) -> float:
        """The highest label."""
        return float(self.chance.shape[2] - 1)

    @property
    def means(self) -> Array:
        """Mean label, (K, J)."""
        return np.asarray(self.chance @ np.arange(self.chance.shape[2]))

    @property
    def variance(self) -> Array:
        """Variance of one label, (K, J)."""
        squares = self.chance @ np.arange(self.chance.shape[2]) ** 2
        return np.asarray(np.maximum(squares - self.means**2, 0.0))

    def draw(self, counts: Counts, rng: np.random.Generator) -> tuple[Array, Array]:
        """Draw as `World`."""
        labels = np.arange(self.chance.shape[2])
        drawn = rng.multinomial(counts, self.chance)
        mean = ratio(drawn @ labels, counts)
        squares = (drawn * (labels - mean[..., None]) ** 2).sum(axis=2)
        return mean, ratio(squares, counts - 1)


def synthetic(
    kind: Kind,
    *,
    n_items: int,
    n_judges: int,
    seed: int,
    disagreement: float = 0.0,
    panel: int = 0,
) -> World:
    """Make judges of one kind.

    Parameters
    ----------
    disagreement : standard deviation of judges' own views of an item, in parts of the scale; 0 is
        what the method's paper assumes
    panel : number of the sample of judges, whose views are drawn anew; items and noise are the same
    """
    rng = np.random.default_rng(seed)
    mean = 0.1 + 0.8 * rng.beta(2, 2, n_items)
    judge = np.geomspace(LOWEST_SD, HIGHEST_SD, n_judges)
    item = np.exp(0.5 * rng.standard_normal(n_items) - 0.5**2 / 2)
    cell = np.exp(0.3 * rng.standard_normal((n_items, n_judges)))
    views = np.random.default_rng([seed, panel]).standard_normal((n_items, n_judges))
    means = np.clip(mean[:, None] + disagreement * views, 0.03, 0.97)
    largest = (0.95 if kind == "hard" else 0.5) * np.sqrt(means * (1 - means))
    sd = np.clip(judge * item[:, None] * cell, 0.01, largest)
    if kind == "likert":
        return LabelJudges(truth=4 * mean, chance=rounded_to_labels(means, sd**2, 5))
    return BetaJudges(truth=mean, means=means, variance=sd**2)


def shapes(mean: Array, variance: Array) -> tuple[Array, Array]:
    """Give the two parameters of Beta distributions of these means and variances on [0, 1]."""
    size = mean * (1 - mean) / variance - 1
    return mean * size, (1 - mean) * size


def rounded_to_labels(mean: Array, variance: Array, n_labels: int) -> Array:
    """Give the chances of labels 0, 1, ... when Beta scores are rounded up or down by chance.

    With X = (n_labels - 1) · Beta and G(t) = E max(t - X, 0), label i has the chance
    G(i + 1) - 2 G(i) + G(i - 1): a score between two labels takes the nearer one more often.
    """
    alpha, beta = (shape[..., None] for shape in shapes(mean, variance))
    top = n_labels - 1
    t = np.arange(-1, n_labels + 1)
    x = np.clip(t / top, 0, 1)
    below = t * betainc(alpha, beta, x)
    below = below - top * mean[..., None] * betainc(alpha + 1, beta, x)
    chance = np.clip(np.diff(below, n=2), 0, None)
    return np.asarray(chance / chance.sum(axis=-1, keepdims=True))


def prices(kind: Prices, n_judges: int) -> Counts:
    """Price the judges of a synthetic world, the cheapest at 100, in whole units.

    `inv_sd`, `inv_var` and `inv_cube` grow as a judge's usual standard deviation falls, to the power
    1, 2 and 3: from 3 on a noisy judge is the better buy. `perverse` makes noisy judges dear.
    """
    sd = np.geomspace(LOWEST_SD, HIGHEST_SD, n_judges)
    power = {"unit": 0, "inv_sd": -1, "inv_var": -2, "inv_cube": -3, "perverse": 1}[kind]
    price: Array = sd**power
    return np.asarray(np.rint(100 * price / price.min()), dtype=np.int64)


def ratio(top: Array | Counts, bottom: Array | Counts) -> Array:
    """Divide where the bottom is above 0; nan elsewhere."""
    out = np.full(top.shape, np.nan)
    return np.asarray(np.divide(top, bottom, out=out, where=bottom > 0))
