"""What a campaign studies: the frame, the judges, the criteria and the seed."""

from __future__ import annotations

from dataclasses import dataclass

from orchestrator.core.frame import Frame
from orchestrator.core.money import Nano, PriceCard
from orchestrator.core.query import Kind
from orchestrator.core.scale import Criterion
from orchestrator.core.seeds import Seeds


@dataclass(frozen=True, slots=True, kw_only=True)
class Panelist:
    """A judge as policies and estimators see it: a name and its price.

    `planning` is the shadow price of one call, nano-USD, that a free judge has for policies; it is
    never booked. `repeats` is how often a judge can answer the same question (None: no limit).
    """

    name: str
    card: PriceCard
    planning: Nano | None = None
    repeats: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Study:
    """The values that every policy and estimator is built from."""

    kind: Kind
    frame: Frame
    panel: tuple[Panelist, ...]
    criteria: tuple[Criterion, ...]
    seeds: Seeds
