"""Synthetic judges with memory rating panels in batches: designs and ratings, over replicates at once.

A judge accepts by logit P = quality + carry-over of what it said before + a start in the first slot +
an effect of the batch, `estimators.markov_judge`. Panels and judges are of the kinds that [LD26]
simulates.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from statistics import NormalDist

import numpy as np
from numpy.typing import NDArray

from estimators import markov_judge
from orchestrator.experiments.worlds import Array
from policies.layouts.design import Layout
from policies.layouts.shuffle import fixed
from policies.layouts.williams import block_length, williams_blocks


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class OrderWorld:
    """A panel of items, and the judge that rates it.

    Parameters
    ----------
    theta : (n_items,) qualities, log-odds
    lags : what an accepted item one, two, … slots before adds, log-odds
    gamma : what the first slot adds, log-odds
    sigma : SD of the effects of batches, log-odds
    n_first : items of group A, which stand first; 0: there are no groups
    """

    theta: Array
    lags: tuple[float, ...]
    gamma: float
    sigma: float
    n_first: int = 0

    @property
    def n_items(self) -> int:
        """How many items."""
        return len(self.theta)

    @property
    def judge(self) -> markov_judge.MarkovJudge:
        """The judge as a fit would describe it."""
        starts = np.zeros(max(len(self.lags), 1))
        starts[0] = self.gamma
        return markov_judge.MarkovJudge(
            theta=self.theta, lags=np.asarray(self.lags), starts=starts, sigma=self.sigma
        )


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Ratings:
    """What replicates of a campaign saw: (n_replicates, n_batches, n_items) both.

    Parameters
    ----------
    order : items in presentation order
    accepted : 1 or 0 by slot
    """

    order: NDArray[np.int64]
    accepted: NDArray[np.int8]

    def first(self, n_batches: int) -> Ratings:
        """Give what was known after so many batches."""
        return Ratings(order=self.order[:, :n_batches], accepted=self.accepted[:, :n_batches])


# --- worlds ------------------------------------------------------------------------------------


def null(n_items: int = 30) -> OrderWorld:
    """Two groups of equal mean and unequal spread: what averaging takes for a difference."""
    return _two_groups(n_items, spread=(1.2, 0.4), gap=0.0, lags=(-0.6,))


def gap(n_items: int = 30) -> OrderWorld:
    """Two groups alike but for their means, which lie 0.45 apart."""
    return _two_groups(n_items, spread=(0.8, 0.8), gap=0.45, lags=(-0.6,))


def deep_memory(n_items: int = 30) -> OrderWorld:
    """The groups of `null`, before a judge that remembers three verdicts."""
    return _two_groups(n_items, spread=(1.2, 0.4), gap=0.0, lags=(-0.5, -0.3, -0.4))


def uneven() -> OrderWorld:
    """Six items, the first of them best, before a judge whose acceptance depends on the slot."""
    return OrderWorld(theta=_LEADERBOARD - 0.3, lags=(-1.2,), gamma=1.8, sigma=0.7)


def flat() -> OrderWorld:
    """Such items before a judge for whom memory and start cancel out: all slots are alike."""
    return OrderWorld(theta=_LEADERBOARD + 0.3, lags=(-0.3,), gamma=-0.18, sigma=0.7)


def _two_groups(
    n_items: int, *, spread: tuple[float, float], gap: float, lags: tuple[float, ...]
) -> OrderWorld:
    n_first = n_items // 2
    first, second = normal_grid(n_first), normal_grid(n_items - n_first)
    theta = -0.65 + np.concatenate([gap + spread[0] * first, spread[1] * second])
    return OrderWorld(theta=theta, lags=lags, gamma=0.5, sigma=0.8, n_first=n_first)


def normal_grid(n: int) -> Array:
    """Give n > 1 quantiles of a normal law, evenly spaced in probability, of mean 0 and SD 1."""
    grid = np.array([NormalDist().inv_cdf((i + 0.5) / n) for i in range(n)])
    standard: Array = (grid - grid.mean()) / grid.std()
    return standard


_LEADERBOARD = np.array([0.55, 0.25, 0.1, 0.0, -0.1, -0.3])


# --- designs and ratings -----------------------------------------------------------------------


def orders(
    layout: Layout, n_items: int, n_batches: int, n_replicates: int, rng: np.random.Generator
) -> NDArray[np.int64]:
    """Draw the designs of replicates, (n_replicates, n_batches, n_items) int64.

    Williams blocks stand first, and what makes no whole block is shuffled.
    """
    shape = (n_replicates, n_batches, n_items)
    match layout:
        case "shuffle":
            return rng.random(shape).argsort(axis=-1)
        case "fixed":
            return np.broadcast_to(fixed(n_batches, n_items, n_items), shape)
        case "williams":
            n_blocks, n_left = divmod(n_batches, block_length(n_items))
            blocks = williams_blocks(n_replicates * n_blocks, n_items, rng)
            whole = blocks.reshape(n_replicates, n_batches - n_left, n_items)
            rest = orders("shuffle", n_items, n_left, n_replicates, rng)
            return np.concatenate([whole, rest], axis=1)


def simulate(
    world: OrderWorld,
    layout: Layout,
    *,
    n_batches: int,
    n_replicates: int = 1,
    rng: np.random.Generator,
) -> Ratings:
    """Draw designs, then batches' effects, then ratings, of all replicates at once.

    Memory is about 40 bytes a rating; `in_chunks` bounds it.
    """
    order = orders(layout, world.n_items, n_batches, n_replicates, rng)
    return Ratings(order=order, accepted=markov_judge.simulate(world.judge, order, rng))


def in_chunks(
    world: OrderWorld,
    layout: Layout,
    *,
    n_batches: int,
    n_replicates: int,
    rng: np.random.Generator,
    chunk: int = 5000,
) -> Iterator[Ratings]:
    """Draw replicates as `simulate`, some at a time."""
    for start in range(0, n_replicates, chunk):
        n = min(chunk, n_replicates - start)
        yield simulate(world, layout, n_batches=n_batches, n_replicates=n, rng=rng)


# --- what averaging makes of them --------------------------------------------------------------


def naive_means(ratings: Ratings) -> Array:
    """Give each item's share of acceptances, (n_replicates, n_items)."""
    n_replicates, n_batches, n_items = ratings.order.shape
    cells = ratings.order + n_items * np.arange(n_replicates)[:, None, None]
    size = n_replicates * n_items
    accepted = np.bincount(cells.ravel(), weights=ratings.accepted.ravel(), minlength=size)
    means: Array = accepted.reshape(n_replicates, n_items) / n_batches
    return means


def top_share(means: Array, item: int) -> Array:
    """Give the probability that an item comes out best, ties drawn by lot, (n_replicates,)."""
    best = means == means.max(axis=1, keepdims=True)
    share: Array = best[:, item] / best.sum(axis=1)
    return share


def slot_profile(ratings: Ratings) -> Array:
    """Give the share of acceptances by slot, (n_replicates, n_items)."""
    profile: Array = ratings.accepted.mean(axis=1)
    return profile


def group_differences(ratings: Ratings, n_first: int) -> Array:
    """Give each batch's mean of group A, the first items, less that of B, (n_replicates, n_batches)."""
    is_first = ratings.order < n_first
    n_items = ratings.order.shape[-1]
    all_ = ratings.accepted.sum(axis=-1, dtype=np.int64)
    first = (ratings.accepted * is_first).sum(axis=-1, dtype=np.int64)
    differences: Array = first / n_first - (all_ - first) / (n_items - n_first)
    return differences


def naive_z(differences: Array) -> Array:
    """Give the mean of batches' differences over its standard error, (n_replicates,).

    With the SD between batches (n - 1); nan where there is none.

    Parameters
    ----------
    differences : (n_replicates, n_batches), at least 2 batches
    """
    n_batches = differences.shape[1]
    se = differences.std(axis=1, ddof=1) / np.sqrt(n_batches)
    z = np.full(len(se), np.nan)
    np.divide(differences.mean(axis=1), se, out=z, where=se > 0)
    return z
