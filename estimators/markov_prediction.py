"""Whether a fit predicts batches it has not seen: their transitions, and how predictable they are."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from estimators.batches import Sequences
from estimators.intervals import Array
from estimators.markov_judge import MarkovJudge, simulate
from estimators.markov_model import MarkovFit
from estimators.markov_ranking import root

DEPTH = 3
"""Lags that are compared."""

ENOUGH_TERMS = 10
"""Transition terms of 12 that must lie inside for the fit to pass, beside all entropies."""

_CELLS = ("00", "01", "10", "11")


class Transitions(NamedTuple):
    """How verdicts follow one another, for one or more copies of the same batches.

    Attributes
    ----------
    joint : (..., 3, 4) shares of P(y k before = a, y = b) for k = 1, 2, 3 and ab = 00, 01, 10, 11
    conditional : (..., 3, 4) P(y = b | y k before = a); 0 where a never came before
    entropy : (..., 3) of a verdict given the last 1, 2, 3, in bits
    """

    joint: Array
    conditional: Array
    entropy: Array


def transitions(state: NDArray[np.int8]) -> Transitions:
    """Count what follows what in batches (..., n, s); only pairs of ratings count.

    Entropies are of the counts as they are ("plug-in"): low where words are rare, in what is
    simulated as in what is seen.
    """
    shape = state.shape[:-2]
    state = state.reshape(-1, *state.shape[-2:])
    copies, s = len(state), state.shape[-1]
    is_rated = (state == 0) | (state == 1)
    joint, entropy = np.zeros((copies, DEPTH, 4)), np.zeros((copies, DEPTH))
    conditional = np.zeros_like(joint)
    for k in range(1, min(DEPTH, s - 1) + 1):
        is_pair = is_rated[..., k:] & is_rated[..., :-k]
        words = 2 * state[..., :-k].astype(np.int64) + state[..., k:]
        counts = _counted(words, is_pair, 4)
        joint[:, k - 1] = _share(counts, counts.sum(axis=1, keepdims=True))
        rows = counts.reshape(copies, 2, 2)
        conditional[:, k - 1] = _share(rows, rows.sum(axis=2, keepdims=True)).reshape(copies, 4)
        word, is_whole = np.zeros_like(state[..., k:], dtype=np.int64), is_rated[..., k:].copy()
        for back in range(k, -1, -1):
            part = slice(k - back, s - back)
            word = 2 * word + state[..., part]
            is_whole &= is_rated[..., part]
        of_words = _counted(word, is_whole, 2 ** (k + 1)).reshape(copies, -1, 2)
        before = of_words.sum(axis=2, keepdims=True)
        p = _share(of_words, before)
        bits = -np.log2(np.where(p > 0, p, 1.0))
        n = np.maximum(of_words.sum(axis=(1, 2)), 1)
        entropy[:, k - 1] = (of_words * bits).sum(axis=(1, 2)) / n
    return Transitions(
        joint.reshape(*shape, DEPTH, 4),
        conditional.reshape(*shape, DEPTH, 4),
        entropy.reshape(*shape, DEPTH),
    )


def _counted(words: NDArray[np.int64], is_in: NDArray[np.bool_], size: int) -> Array:
    """Count words of each copy, (copies, size)."""
    copies = len(words)
    copy = np.broadcast_to(np.arange(copies)[:, None, None], words.shape)
    flat = (copy * size + words)[is_in]
    return np.bincount(flat, minlength=copies * size).reshape(copies, size).astype(np.float64)


def _share(part: Array, whole: Array) -> Array:
    """Divide; 0 where nothing was counted."""
    return np.divide(part, whole, out=np.zeros_like(part), where=whole > 0)


class Prediction(NamedTuple):
    """One statistic of the held-out batches, beside what the fit expects of it."""

    name: str
    observed: float
    lower: float
    upper: float

    @property
    def is_inside(self) -> bool:
        """Whether it lies within the bounds."""
        return self.lower <= self.observed <= self.upper


@dataclass(frozen=True, slots=True, kw_only=True)
class PredictiveCheck:
    """Held-out statistics and bounds that 95 % of the fit's own copies keep.

    The twelve terms are strongly dependent: they are no twelve tests. A right model passes in about
    88 % of data sets, so a miss is a prompt to fit a deeper memory and no rejection.

    Attributes
    ----------
    joint, conditional : 12 transition terms each, "lag k: ab"; the conditional ones of one row
        always miss together
    entropy : 3
    propagated : the bounds hold the estimates' error too; frozen ones are too narrow (they cover
        about .8 for .95)
    """

    joint: tuple[Prediction, ...]
    conditional: tuple[Prediction, ...]
    entropy: tuple[Prediction, ...]
    propagated: bool
    copies: int

    @property
    def passes(self) -> bool:
        """Whether at least 10 of 12 transition terms and all entropies lie inside."""
        inside = sum(one.is_inside for one in self.joint)
        return inside >= ENOUGH_TERMS and all(one.is_inside for one in self.entropy)


def predictive_check(
    train: MarkovFit,
    test: Sequences,
    rng: np.random.Generator,
    *,
    propagate: bool = True,
    copies: int = 1000,
) -> PredictiveCheck:
    """Simulate held-out batches from a fit and compare how their verdicts follow one another.

    Each copy has the held-out orders, new batch effects, and verdicts that are drawn one after
    another; refused and unreadable slots stay. With `propagate` each copy has parameters of its own,
    from the normal law of the estimates.

    Parameters
    ----------
    train : a fit to other batches of the same items
    test : the held-out batches

    Raises
    ------
    ValueError
        The held-out batches have an item that the fit lacks, or the fit is not estimable.
    """
    if train.reason:
        raise ValueError(f"the fit predicts nothing: {train.reason}")
    place = {item: i for i, item in enumerate(train.items)}
    if unknown := set(test.items) - set(place):
        raise ValueError(f"the fit lacks item {min(unknown, key=str)!r}")
    moved = np.array([*(place[item] for item in test.items), -1])
    psi = train.maximum.psi[None]
    if propagate:
        free = slice(len(train.maximum.psi) - train.boundary)
        error = np.zeros((copies, len(train.maximum.psi)))
        cov = train.maximum.covariance[free, free]
        error[:, free] = rng.standard_normal((copies, len(cov))) @ root(cov).T
        psi = psi + error
    drawn = simulate(
        as_judge(train, np.broadcast_to(psi, (copies, psi.shape[1]))),
        moved[test.order],
        rng,
        like=test.state,
    )
    seen, expected = transitions(test.state), transitions(drawn)
    terms = [f"lag {k}: {cell}" for k in range(1, DEPTH + 1) for cell in _CELLS]
    orders = [f"order {k}" for k in range(1, DEPTH + 1)]
    joint, conditional, entropy = (
        _compared(names, one.reshape(-1), of.reshape(copies, -1))
        for names, one, of in zip((terms, terms, orders), seen, expected, strict=True)
    )
    return PredictiveCheck(
        joint=joint,
        conditional=conditional,
        entropy=entropy,
        propagated=propagate,
        copies=copies,
    )


def as_judge(fit: MarkovFit, psi: Array) -> MarkovJudge:
    """Make a judge of parameters (p,) or (r, p) of a fit."""
    v, k = len(fit.items), fit.lags
    names = list(fit.data.names)
    misses = np.zeros((*psi.shape[:-1], k))
    for j in range(k):
        if f"miss{j + 1}" in names:
            misses[..., j] = psi[..., v + names.index(f"miss{j + 1}")]
    return MarkovJudge(
        theta=psi[..., :v],
        lags=psi[..., v : v + k],
        starts=psi[..., v + k : v + 2 * k],
        sigma=np.abs(psi[..., -1]),
        misses=misses,
    )


def _compared(names: list[str], seen: Array, expected: Array) -> tuple[Prediction, ...]:
    low, high = np.quantile(expected, (0.025, 0.975), axis=0)
    return tuple(
        Prediction(name, float(o), float(lo), float(hi))
        for name, o, lo, hi in zip(names, seen, low, high, strict=True)
    )
