"""What a campaign studies: the frame, the judges, the criteria and the seed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from orchestrator.core.frame import Frame
from orchestrator.core.money import Nano, PriceCard
from orchestrator.core.query import Kind
from orchestrator.core.records import Record
from orchestrator.core.scale import Criterion
from orchestrator.core.seeds import Seeds

Orders = Literal["both", "balanced_random", "single"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Panelist:
    """A judge as policies and estimators see it: a name and its price.

    `planning` is what one call is expected to cost, nano-USD: policies plan with it, and it is never
    booked. A free judge has the shadow price that the user gave it. `worst` is
    about what a call can cost at most, nano-USD. `repeats` is how often a judge can answer the same question (None: no limit).
    `cap` is what may be spent on it (None: no cap of its own).
    """

    name: str
    card: PriceCard
    planning: int = 0
    worst: int = 0
    repeats: int | None = None
    cap: Nano | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Study:
    """The values that every policy and estimator is built from.

    `cap` is the dollar cap that the run was opened with, None without one. `labels` are what humans
    say of units, on the criteria's scales: (n_units, n_criteria) float64, NaN where there is none;
    None without any. `prior` are questions that earlier runs have told, at no cost to this one; a judge
    that is not of the panel has the number behind it. `orders` says which of two answers a comparison
    shows first: each in turn, one by a coin, or the one whose arm comes first. `covariates` are
    measured properties of units, (n_units,) float64 each.
    """

    kind: Kind
    frame: Frame
    panel: tuple[Panelist, ...]
    criteria: tuple[Criterion, ...]
    seeds: Seeds
    cap: Nano | None = None
    labels: NDArray[np.float64] | None = field(default=None, compare=False)
    orders: Orders = "both"
    prior: tuple[Record, ...] = field(default=(), compare=False, repr=False)
    covariates: Mapping[str, NDArray[np.float64]] = field(default_factory=dict, compare=False)
