"""The order in which a policy goes through the units: drawn by the seed, strata in proportion."""

from __future__ import annotations

from typing import Literal

import numpy as np

from orchestrator.core.seeds import Stream
from orchestrator.core.study import Study

Strata = Literal["proportional", "ignore"]
"""Whether every prefix of an order holds the strata in their proportions, or items alone are drawn."""


def unit_order(study: Study, replicate: int, *, strata: Strata) -> list[int]:
    """Draw the order of all units in a round of repeats; the arms of an item stand together.

    An item's place is (k + u)/n: k counts the items of its stratum that come before it, n all of
    them, u is uniform and the same for the stratum. So each stratum's share of a prefix differs
    from its share of the whole by at most one item.

    Draws from `stream(POLICY, replicate)`.
    """
    frame = study.frame
    rng = study.seeds.stream(Stream.POLICY, replicate)
    shuffled = rng.permutation(frame.n_items)
    place = np.empty(frame.n_items)
    labels = frame.stratum if strata == "proportional" else np.zeros_like(shuffled)
    for stratum in np.unique(labels):
        members = shuffled[labels[shuffled] == stratum]
        place[members] = (np.arange(len(members)) + rng.random()) / len(members)
    items = np.argsort(place, kind="stable")
    arms = rng.permuted(np.tile(np.arange(frame.n_arms), (frame.n_items, 1)), axis=1)
    units: list[int] = (items[:, None] * frame.n_arms + arms).ravel().tolist()
    return units
