"""The order in which a policy goes through units or pairs: drawn by the seed, strata in proportion."""

from __future__ import annotations

from itertools import combinations
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from orchestrator.core.ids import UnitIx
from orchestrator.core.seeds import Stream
from orchestrator.core.study import Study

Strata = Literal["proportional", "ignore"]
"""Whether every prefix of an order holds the strata in their proportions, or items alone are drawn."""


def unit_order(study: Study, replicate: int, *, strata: Strata) -> list[int]:
    """Draw the order of all units in a round of repeats; the arms of an item stand together.

    Draws from `stream(POLICY, replicate)`; items as `item_order` has them.
    """
    frame = study.frame
    rng = study.seeds.stream(Stream.POLICY, replicate)
    items = item_order(study, rng, strata=strata)
    arms = rng.permuted(np.tile(np.arange(frame.n_arms), (frame.n_items, 1)), axis=1)
    units: list[int] = (items[:, None] * frame.n_arms + arms).ravel().tolist()
    return units


def pair_order(study: Study, replicate: int, *, strata: Strata) -> list[tuple[UnitIx, UnitIx]]:
    """Draw the order of all comparisons in a round of repeats; the pairs of an item stand together.

    All pairs of arms are compared in each item, in an order of its own. Which answer comes first is
    a matter of `Study.orders`: with `both` each of two questions shows another one first; with
    `balanced_random` a fair coin decides for an item, pair by pair, and the next item has the other
    order; with `single` it is the arm that stands first in the file.

    Draws from `stream(POLICY, replicate)`; items as `item_order` has them.
    """
    frame = study.frame
    rng = study.seeds.stream(Stream.POLICY, replicate)
    items = item_order(study, rng, strata=strata)
    pairs = np.array([*combinations(range(frame.n_arms), 2)], dtype=np.int64).reshape(-1, 2)
    n_items, n_pairs = len(items), len(pairs)
    is_turned = np.zeros((n_items, n_pairs), dtype=bool)
    if study.orders == "balanced_random":
        coins = rng.random(((n_items + 1) // 2, n_pairs)) < 0.5
        is_turned = np.repeat(coins, 2, axis=0)[:n_items]
        is_turned[1::2] ^= True
    listed = rng.permuted(np.tile(np.arange(n_pairs), (n_items, 1)), axis=1)
    arms = pairs[listed]
    is_turned = np.take_along_axis(is_turned, listed, axis=1)
    arms[is_turned] = arms[is_turned][:, ::-1]
    if study.orders == "both":
        arms = np.stack((arms, arms[..., ::-1]), axis=2)
    units = (items * frame.n_arms).reshape(-1, *[1] * (arms.ndim - 1)) + arms
    return [(UnitIx(first), UnitIx(second)) for first, second in units.reshape(-1, 2).tolist()]


def item_order(study: Study, rng: np.random.Generator, *, strata: Strata) -> NDArray[np.int64]:
    """Draw the order of all items.

    An item's place is (k + u)/n: k counts the items of its stratum that come before it, n all of
    them, u is uniform and the same for the stratum. So each stratum's share of a prefix differs
    from its share of the whole by at most one item.
    """
    frame = study.frame
    shuffled = rng.permutation(frame.n_items)
    place = np.empty(frame.n_items)
    labels = frame.stratum if strata == "proportional" else np.zeros_like(shuffled)
    for stratum in np.unique(labels):
        members = shuffled[labels[shuffled] == stratum]
        place[members] = (np.arange(len(members)) + rng.random()) / len(members)
    return np.argsort(place, kind="stable")
