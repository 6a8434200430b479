"""A judge with memory, to draw ratings from: what a fit says a judge is like, run forward."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit

from estimators.batches import ABSENT, REFUSED
from estimators.intervals import Array

Orders = NDArray[np.int64]
"""Items by batch and slot, (..., n, s); `ABSENT` behind the end of a short batch."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class MarkovJudge:
    """Rates by logit P(accept) = theta + memory + start + effect of the batch; one or r judges.

    Attributes
    ----------
    theta : (v,) or (r, v) item qualities, logits
    lags : (k,) or (r, k), what an accepted slot 1 … k before adds
    starts : (k,) or (r, k), what the first k slots add
    misses : (k,) or (r, k), what a refused slot 1 … k before adds; empty: nothing
    sigma : standard deviation of batch effects, one or (r,)
    """

    theta: Array
    lags: Array
    starts: Array
    sigma: float | Array
    misses: Array | None = None


def simulate(
    judge: MarkovJudge,
    order: Orders,
    rng: np.random.Generator,
    *,
    like: NDArray[np.int8] | None = None,
) -> NDArray[np.int8]:
    """Draw what a judge says to batches in these orders, slot by slot.

    Drawn first: a standard normal for each batch; then a uniform number for each slot, (..., n, s),
    below its probability where the judge accepts. So draws with equal generators are comparable.

    Parameters
    ----------
    order : (n, s), or (r, n, s) for r copies; a judge of r copies also takes (n, s) and gives r
    like : states of which refused and unreadable slots are kept as they are; None: all are rated

    Returns
    -------
    states, as in `batches.Sequences`
    """
    copies = judge.theta.shape[:-1]
    shape = np.broadcast_shapes((*copies, 1, 1), order.shape)
    order = np.broadcast_to(order, shape)
    sigma = np.asarray(judge.sigma)[..., None]
    effect = sigma * rng.standard_normal(shape[:-1])
    # Slots stand first, so that each slot's values are contiguous in the loop below.
    uniform = np.moveaxis(rng.random(shape), -1, 0).copy()
    items = np.moveaxis(order, -1, 0)
    if copies:
        flat = order.reshape(*copies, -1)
        quality = np.take_along_axis(judge.theta, np.maximum(flat, 0), axis=-1)
        eta = np.moveaxis(quality.reshape(shape), -1, 0) + effect
    else:
        eta = judge.theta[items] + effect
    kept = np.full(items.shape, ABSENT, dtype=np.int8)
    if like is not None:
        kept = np.moveaxis(np.broadcast_to(like, shape), -1, 0)
    is_marked = like is not None and bool((kept >= REFUSED).any())
    said = np.empty(items.shape, dtype=np.int8)
    for s in range(len(items)):
        now = eta[s]
        if s < judge.starts.shape[-1]:
            now = now + judge.starts[..., s, None]
        for k in range(min(s, judge.lags.shape[-1])):
            before = said[s - k - 1]
            now = now + judge.lags[..., k, None] * (before == 1)
            if is_marked and judge.misses is not None and k < judge.misses.shape[-1]:
                now = now + judge.misses[..., k, None] * (before == REFUSED)
        said[s] = uniform[s] < expit(now)
        if is_marked:
            said[s] = np.where(kept[s] >= REFUSED, kept[s], said[s])
    states = np.moveaxis(said, 0, -1)
    return np.where(order == ABSENT, np.int8(ABSENT), states)
