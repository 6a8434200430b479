"""What is asked of a tensor of strengths: gaps, scores, chances to win, or a function of one's own.

A functional has a value and a gradient by the tensor's entries, (n_models, n_contexts), contexts flat
in C order. Columns of the tensor sum to zero, so that a gradient counts only up to a constant a column.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import expit, logit

from estimators.bt_pair_bounds import student
from estimators.intervals import Array, Interval
from estimators.markov_model import FitStatus

_DIRECTIONS = 8
_STEP = 1e-5
_TOLERANCE = 1e-6


class Functional(NamedTuple):
    """A smooth function of the tensor.

    Attributes
    ----------
    name : what it is called in results
    value, gradient : of a tensor (n_models, n_contexts): a number, and an array of that shape
    is_probability : its values are in [0, 1], and intervals are computed on the logit scale
    is_given : by a user, so that the gradient is checked by differences wherever it is used
    """

    name: str
    value: Callable[[Array], float]
    gradient: Callable[[Array], Array]
    is_probability: bool = False
    is_given: bool = False


def linear(name: str, places: Sequence[tuple[int, int, float]]) -> Functional:
    """Give a weighted sum of entries, of (model, context, weight)."""
    models, contexts, weights = (list(each) for each in zip(*places, strict=True))
    by = np.array(weights, dtype=np.float64)

    def gradient(tensor: Array) -> Array:
        found = np.zeros_like(tensor)
        np.add.at(found, (models, contexts), by)
        return found

    return Functional(name, lambda tensor: float(by @ tensor[models, contexts]), gradient)


def gap(a: int, b: int, context: int) -> Functional:
    """Give T[a, k] - T[b, k], logits."""
    return linear(f"gap({a}, {b}; {context})", [(a, context, 1.0), (b, context, -1.0)])


def score(model: int, context: int) -> Functional:
    """Give T[a, k], the strength against the mean of all models there, logits."""
    return linear(f"score({model}; {context})", [(model, context, 1.0)])


def mean_score(model: int, weights: ArrayLike) -> Functional:
    """Give the mean of T[a, k] over contexts with these weights, (n_contexts,), which sum to more than 0."""
    by = np.asarray(weights, dtype=np.float64)
    if not by.sum() > 0:
        raise ValueError("weights of contexts must sum to more than 0")
    shares = (by / by.sum()).tolist()
    return linear(f"mean_score({model})", [(model, k, w) for k, w in enumerate(shares)])


def win_probability(model: int, context: int, pool: Sequence[int]) -> Functional:
    """Give the mean chance to win against the models of a pool, without the first-shown's advantage.

    mean over b of sigma(T[a, k] - T[b, k]).
    """
    others = list(pool)
    if not others or model in others:
        raise ValueError("a pool has models, and not the one that meets it")

    def chances(tensor: Array) -> Array:
        found: Array = expit(tensor[model, context] - tensor[others, context])
        return found

    def gradient(tensor: Array) -> Array:
        p = chances(tensor)
        slopes = p * (1 - p) / len(others)
        found = np.zeros_like(tensor)
        found[model, context] = slopes.sum()
        np.add.at(found, (others, context), -slopes)
        return found

    return Functional(
        f"win_probability({model}; {context})",
        lambda tensor: float(chances(tensor).mean()),
        gradient,
        is_probability=True,
    )


def given(
    name: str,
    value: Callable[[Array], float],
    gradient: Callable[[Array], Array],
    *,
    is_probability: bool = False,
) -> Functional:
    """Take in a function of one's own with its gradient, which is checked wherever it is used."""
    return Functional(name, value, gradient, is_probability, is_given=True)


class Evaluated(NamedTuple):
    """Values, (q,), and gradients by the tensor's entries, (q, n_models · n_contexts)."""

    values: Array
    gradients: Array


def evaluate(functionals: Sequence[Functional], tensor: Array) -> Evaluated:
    """Evaluate functionals at a tensor, (n_models, n_contexts).

    Raises
    ------
    ValueError
        A gradient is of another shape, or differs from the value's differences.
    """
    values = np.array([each.value(tensor) for each in functionals], dtype=np.float64)
    gradients = np.empty((len(functionals), tensor.size))
    for row, each in zip(gradients, functionals, strict=True):
        found = np.asarray(each.gradient(tensor), dtype=np.float64)
        if found.shape != tensor.shape:
            raise ValueError(
                f"{each.name}: the gradient is of shape {found.shape}, the tensor of {tensor.shape}"
            )
        if each.is_given:
            _check(each, tensor, found)
        row[:] = found.reshape(-1)
    return Evaluated(values, gradients)


def _check(functional: Functional, tensor: Array, gradient: Array) -> None:
    """Compare a gradient with central differences along directions that keep columns' sums."""
    directions = np.random.default_rng(0).standard_normal((_DIRECTIONS, *tensor.shape))
    for direction in directions - directions.mean(axis=1, keepdims=True):
        ahead, behind = (functional.value(tensor + side * _STEP * direction) for side in (1, -1))
        slope = (ahead - behind) / (2 * _STEP)
        told = float(np.vdot(gradient, direction))
        if not abs(told - slope) <= _TOLERANCE * (1 + abs(slope)):
            raise ValueError(
                f"{functional.name}: the gradient says a slope of {told:.8g} where differences of "
                f"the value say {slope:.8g}"
            )


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Estimates:
    """Functionals with their joint covariance.

    Attributes
    ----------
    names : (q,)
    value, covariance : (q,), (q, q)
    is_probability : (q,)
    method : `plug_in`, `efficient`, `whitened` or `isotropic`
    n : votes that they rest on
    effective : effective sample size of the weights
    clipped_share : of votes whose local information was raised to its least
    status, reason : whether intervals can be read, and why not
    flags : `weakly_identified`, `few_effective_votes`, `unstable`, as they hold
    """

    names: tuple[str, ...]
    value: Array
    covariance: Array
    is_probability: NDArray[np.bool_]
    method: str
    n: int
    effective: float
    clipped_share: float = 0.0
    status: FitStatus = FitStatus.OK
    reason: str = ""
    flags: tuple[str, ...] = ()

    @property
    def se(self) -> Array:
        """Standard errors, (q,)."""
        found: Array = np.sqrt(np.diag(self.covariance))
        return found

    def interval(self, level: float = 0.95, df: float = math.inf) -> Interval:
        """Bound each functional for itself, (q,) lower and upper; nan where the status is not ok.

        By Student's law with `df` degrees of freedom; infinite: the normal one.

        Probabilities on the logit scale, se / (p (1 - p)) there; one that a correction brought out
        of (0, 1) on its own scale, cut at 0 and 1.
        """
        half = (
            student(level, df) * self.se
            if self.status is FitStatus.OK
            else np.full(len(self.names), np.nan)
        )
        lower, upper = self.value - half, self.value + half
        inside = self.is_probability & (self.value > 0) & (self.value < 1)
        p = self.value[inside]
        wide = half[inside] / (p * (1 - p))
        lower[inside], upper[inside] = expit(logit(p) - wide), expit(logit(p) + wide)
        beyond = self.is_probability & ~inside
        lower[beyond], upper[beyond] = lower[beyond].clip(0, 1), upper[beyond].clip(0, 1)
        return Interval(lower, upper)
