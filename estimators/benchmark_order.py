"""The random order in which a benchmark's items are drawn, fixed by the seed before the first answer.

The policy that asks and the estimator that reads share it. So the estimator knows each item's place
whatever order answers come back in, and what is still under way before an item that is back.
"""

from __future__ import annotations

from typing import Literal

import numpy as np
from numpy.typing import NDArray

from orchestrator.core.seeds import Stream
from orchestrator.core.study import Study

SampleDesign = Literal["simple", "stratified", "macro", "paired"]
"""How items are drawn.

- `simple`: each arm's items alone, in an order of its own;
- `stratified`: the same, strata in turn by `Allocation`;
- `macro`: one item of each stratum after another, for a mean of strata's means;
- `paired`: one order for all arms, so that each item is asked of all; by `Allocation` if there is one.
"""

Allocation = Literal["proportional", "equal"]
"""Which strata a beginning of the order holds: in their proportions, or one item of each in turn."""

Order = NDArray[np.int64]


def allocation_of(
    design: SampleDesign, strata: Allocation | None, study: Study
) -> Allocation | None:
    """Say how strata take turns; None: items are drawn without a look at strata.

    Raises
    ------
    ValueError
        The design has no use for strata, or needs them and the study has none, or the two contradict
        each other.
    """
    if design == "simple":
        if strata is not None:
            raise ValueError("strata: the simple design draws without strata; use stratified")
        return None
    if design == "macro" and strata == "proportional":
        raise ValueError("strata: macro takes strata in turn; for their proportions use stratified")
    if design != "paired":
        strata = strata or ("equal" if design == "macro" else "proportional")
    if strata is not None and not study.frame.strata:
        raise ValueError(f"design: {design} by strata wants strata; data.strata names them")
    return strata


def item_orders(study: Study, design: SampleDesign, allocation: Allocation | None) -> Order:
    """Draw each arm's order of all items, (n_arms, n_items).

    Within a stratum, and over all without one, every order is as likely as any other. `proportional`
    puts the k-th of a stratum's n items at (k + u)/n, with one uniform u for the stratum, so that its
    share of a beginning is never off by more than an item.

    Draws from `stream(POLICY, arm)`; `paired` from that of the first arm alone.
    """
    n_arms = study.frame.n_arms
    if design == "paired":
        return np.tile(_order(study, 0, allocation), (n_arms, 1))
    return np.stack([_order(study, arm, allocation) for arm in range(n_arms)])


def _order(study: Study, arm: int, allocation: Allocation | None) -> Order:
    rng = study.seeds.stream(Stream.POLICY, arm)
    shuffled: Order = rng.permutation(study.frame.n_items)
    if allocation is None:
        return shuffled
    stratum = study.frame.stratum[shuffled]
    sizes = np.bincount(stratum)
    offset = rng.random(len(sizes))[stratum]
    # Rank of each item within its stratum, in the shuffled order.
    grouped = np.argsort(stratum, kind="stable")
    rank = np.empty(len(shuffled), dtype=np.int64)
    rank[grouped] = np.arange(len(shuffled)) - (np.cumsum(sizes) - sizes)[stratum[grouped]]
    if allocation == "equal":
        return shuffled[np.lexsort((offset, rank))]
    return shuffled[np.argsort((rank + offset) / sizes[stratum], kind="stable")]
