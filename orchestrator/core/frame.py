"""The sampling frame: which units there are, without their texts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from orchestrator.core.ids import ArmIx, ItemIx, UnitIx

CANDIDATE = "candidate"
"""The field that holds what is judged; it can't be blank."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Frame:
    """Items, arms and how items are grouped.

    Every item exists in every arm (losses of the join are shown before the run), so the unit
    (item i, arm a) has number ``i * n_arms + a``.

    Parameters
    ----------
    items, arms : labels, in file order; a campaign without arms has the one arm ``""``
    cluster, stratum, group : (n_items,) int64, index into the labels below
    weight : (n_items,) float64, > 0
    """

    items: tuple[str, ...]
    arms: tuple[str, ...]
    cluster: NDArray[np.int64]
    stratum: NDArray[np.int64]
    group: NDArray[np.int64]
    weight: NDArray[np.float64]
    clusters: tuple[str, ...] = ()
    strata: tuple[str, ...] = ()
    groups: tuple[str, ...] = ()

    @classmethod
    def of(
        cls,
        items: Sequence[str],
        arms: Sequence[str] = ("",),
        *,
        cluster: Sequence[str] | None = None,
        stratum: Sequence[str] | None = None,
        group: Sequence[str] | None = None,
        weight: Sequence[float] | None = None,
    ) -> Frame:
        """Build a frame from labels, one entry an item.

        Without clusters each item is its own; without strata there is one; without groups the
        index is -1; without weights all are 1.
        """
        n = len(items)
        own = np.arange(n, dtype=np.int64)
        clusters, cluster_ix = _coded(cluster) if cluster is not None else ((), own)
        strata, stratum_ix = _coded(stratum) if stratum is not None else ((), np.zeros_like(own))
        groups, group_ix = _coded(group) if group is not None else ((), np.full_like(own, -1))
        return cls(
            items=tuple(items),
            arms=tuple(arms),
            cluster=cluster_ix,
            stratum=stratum_ix,
            group=group_ix,
            weight=np.ones(n) if weight is None else np.asarray(weight, dtype=np.float64),
            clusters=clusters,
            strata=strata,
            groups=groups,
        )

    @property
    def n_items(self) -> int:
        """How many items."""
        return len(self.items)

    @property
    def n_arms(self) -> int:
        """How many arms."""
        return len(self.arms)

    @property
    def n_units(self) -> int:
        """How many units."""
        return len(self.items) * len(self.arms)

    def unit(self, item: int, arm: int) -> UnitIx:
        """Number the unit of an item in an arm."""
        return UnitIx(item * len(self.arms) + arm)

    def item_of(self, unit: int) -> ItemIx:
        """Give the item of a unit."""
        return ItemIx(unit // len(self.arms))

    def arm_of(self, unit: int) -> ArmIx:
        """Give the arm of a unit."""
        return ArmIx(unit % len(self.arms))

    def unit_name(self, unit: int) -> str:
        """Label a unit: its item, with the arm where there is more than one."""
        item = self.items[self.item_of(unit)]
        return item if len(self.arms) == 1 else f"{item}/{self.arms[self.arm_of(unit)]}"


def _coded(labels: Sequence[str]) -> tuple[tuple[str, ...], NDArray[np.int64]]:
    """Number labels in order of first appearance."""
    index: dict[str, int] = {}
    codes = [index.setdefault(label, len(index)) for label in labels]
    return tuple(index), np.asarray(codes, dtype=np.int64)
