"""EST-IVWE on synthetic judges: its error beside uniform rules, the oracle and the closed form.

Every rule has the same money, so many complete sweeps of all judges over all items; what it spends
on a pilot is part of it. All rules of one replicate are drawn from that replicate's own seed, and the
policy's own functions choose the pilot, its variances and the plan.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass
from functools import lru_cache
from itertools import product
from typing import Literal, NamedTuple

import numpy as np
from scipy.integrate import quad
from scipy.special import gamma, ndtr

from orchestrator.core.errors import ConfigError
from orchestrator.experiments.fanout import Progress, fan_out, silent
from orchestrator.experiments.worlds import Array, Counts, Kind, Prices, World, prices, synthetic
from policies.allocation import Target, integer_plan, oracle_allocation
from policies.exploration import (
    EstIvweConfig,
    Pilot,
    interaction_variance,
    pilot_for,
    planning_variance,
)

Method = Literal[
    "uniform",
    "uniform_plugin",
    "uniform_known",
    "price",
    "plain",
    "shrink",
    "eb",
    "pooled",
    "oracle",
]

METHODS: Mapping[Target, tuple[Method, ...]] = {
    "common": (
        "uniform",
        "uniform_plugin",
        "uniform_known",
        "plain",
        "shrink",
        "eb",
        "pooled",
        "oracle",
    ),
    "panel": ("uniform", "price", "plain", "shrink", "eb", "pooled", "oracle"),
    "population": ("uniform", "uniform_known", "plain", "shrink", "eb", "oracle"),
}
"""What is compared. A panel's weights are part of its target, so no rule chooses others.

`uniform` asks all judges alike and weighs them alike; `uniform_plugin` weighs by the variances that
the same answers show, `uniform_known` by the true ones. `price` splits a panel by price alone. `plain`,
`shrink` and `eb` are the policy's modes, the last with an estimated pull, and `pooled` is `shrink`
that counts the pilot's answers too. `oracle` plans with the true variances and all the money.
"""

RIVALS: tuple[Method, ...] = ("uniform", "uniform_plugin", "price")
"""What needs neither a pilot nor variances that nobody knows."""

CONFIGS: Mapping[Method, EstIvweConfig] = {
    "plain": EstIvweConfig(kind="est_ivwe", mode="plain"),
    "shrink": EstIvweConfig(kind="est_ivwe"),
    "eb": EstIvweConfig(kind="est_ivwe", shrinkage="eb"),
    "pooled": EstIvweConfig(kind="est_ivwe", reuse_exploration="pooled"),
}

DISAGREEMENT: Mapping[Target, float] = {"common": 0.0, "panel": 0.05, "population": 0.05}
"""Standard deviation of judges' own views of an item, in parts of the scale."""


class Setting(NamedTuple):
    """One cell of the study: which judges at which prices, and how many sweeps money buys."""

    world: Kind
    prices: Prices
    sweeps: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Study:
    """What is simulated.

    Parameters
    ----------
    sweeps : budgets, as calls of each judge about each item that they buy
    norms : orders p of the error (Σ_k |error_k|^p)^{1/p}
    """

    worlds: tuple[Kind, ...] = ("smooth",)
    prices: tuple[Prices, ...] = ("unit", "inv_sd", "inv_var", "inv_cube", "perverse")
    sweeps: tuple[int, ...] = (10, 20, 100)
    norms: tuple[float, ...] = (1.0, 2.0, math.inf)
    target: Target = "common"
    n_items: int = 1000
    n_judges: int = 10
    n_reps: int = 20
    seed: int = 0

    @property
    def settings(self) -> list[Setting]:
        """All cells, in order."""
        return [Setting(*cell) for cell in product(self.worlds, self.prices, self.sweeps)]


class Task(NamedTuple):
    """One replicate of one cell."""

    study: Study
    setting: Setting
    rep: int


class Row(NamedTuple):
    """The mean error of one method in one cell, over replicates; `se` are Monte-Carlo errors.

    `closed_form` is what theory expects of the oracle, `to_oracle` the error over that of the
    oracle's plan, `gain` that of `uniform` over this one: below 1 the method loses.
    """

    world: str
    prices: str
    sweeps: int
    norm: float
    target: str
    method: str
    error: float
    se: float
    closed_form: float
    to_oracle: float
    to_oracle_se: float
    gain: float
    gain_se: float
    n_reps: int


def run(study: Study, executor: Executor, progress: Progress = silent) -> list[Row]:
    """Simulate every cell; rows are in the order of settings, norms and methods.

    Raises
    ------
    ConfigError
        A budget of fewer than four sweeps: it buys no pilot and scores.
    """
    if min(study.sweeps) < 4:
        raise ConfigError("--rho: est_ivwe needs money for 4 sweeps, two of them for its pilot")
    tasks = [Task(study, cell, rep) for cell in study.settings for rep in range(study.n_reps)]
    found = fan_out(replicate, tasks, executor, progress)
    errors = np.array(found).reshape(len(study.settings), study.n_reps, len(study.norms), -1)
    methods = METHODS[study.target]
    rows = []
    for cell, by_rep in zip(study.settings, errors, strict=True):
        closed = closed_forms(study, cell)
        for n, (norm, form) in enumerate(zip(study.norms, closed, strict=True)):
            table = by_rep[:, n]
            baseline, oracle = (table[:, methods.index(name)] for name in ("uniform", "oracle"))
            for method, error in zip(methods, table.T, strict=True):
                to_oracle, gain = ratio_of_means(error, oracle), ratio_of_means(baseline, error)
                rows.append(
                    Row(
                        *cell,
                        norm,
                        study.target,
                        method,
                        *mean_of(error),
                        form,
                        *to_oracle,
                        *gain,
                        study.n_reps,
                    )
                )
    return rows


# --- one replicate -----------------------------------------------------------------------------


def replicate(task: Task) -> Array:
    """Simulate all methods once, (n_norms, n_methods) errors.

    Draws from a generator seeded by the study's seed, the replicate and the sweeps alone.
    """
    study, cell, rep = task
    market = market_of(study, cell, rep)
    return simulate(
        market, study.norms, np.random.default_rng([1000 + study.seed, rep, cell.sweeps])
    )


@lru_cache(maxsize=4)
def world_of(study: Study, kind: Kind, panel: int = 0) -> World:
    """Make the judges of a study; items and their noise are those of every study of this size."""
    return synthetic(
        kind,
        n_items=study.n_items,
        n_judges=study.n_judges,
        seed=0,
        disagreement=DISAGREEMENT[study.target],
        panel=panel,
    )


class Market(NamedTuple):
    """Judges, what a call of each costs, how many sweeps of all of them money buys, and for what."""

    world: World
    price: Counts
    sweeps: int
    target: Target

    @property
    def budget(self) -> int:
        """The money, in the unit of the prices."""
        return self.sweeps * len(self.world.means) * int(self.price.sum())

    @property
    def truth(self) -> Array:
        """The scores that are wanted, (K,)."""
        return self.world.means.mean(axis=1) if self.target == "panel" else self.world.truth

    @property
    def interaction(self) -> float:
        """η², the variance of judges' views around an item's true score, where it counts."""
        is_part = self.target == "population"
        return (DISAGREEMENT["population"] * self.world.span) ** 2 if is_part else 0.0

    def buy(self, variance: Array, p: float, spent: int = 0, interaction: float = 0.0) -> Counts:
        """Plan whole calls with these variances and the rest of the money, (K, J)."""
        return integer_plan(
            variance, self.price, self.budget - spent, p, self.target, interaction=interaction
        )


def market_of(study: Study, cell: Setting, rep: int = 0) -> Market:
    """Set up one cell; where judges have views of their own, each replicate has another panel."""
    panel = rep if DISAGREEMENT[study.target] else 0
    world, price = world_of(study, cell.world, panel), prices(cell.prices, study.n_judges)
    return Market(world, price, cell.sweeps, study.target)


def simulate(market: Market, norms: Sequence[float], rng: np.random.Generator) -> Array:
    """Give the error of every method of the market's target, (n_norms, n_methods)."""
    world, target, eta2 = market.world, market.target, market.interaction
    everyone = np.full(world.means.shape, market.sweeps)
    mean, variance = world.draw(everyone, rng)
    pilots: dict[str, Explored] = {}

    def scores(method: Method, p: float) -> Array:
        match method:
            case "uniform":
                return np.asarray(mean.mean(axis=1))
            case "uniform_plugin":
                return weighted(mean, 1 / np.maximum(variance, (0.05 * world.span) ** 2))
            case "uniform_known":
                return weighted(mean, 1 / (eta2 + world.variance / market.sweeps))
            case "price" | "oracle":
                known = world.variance if method == "oracle" else np.ones(mean.shape)
                counts = market.buy(known, p, interaction=eta2)
                return combined(world.draw(counts, rng)[0], counts, known, target, eta2)
            case "plain" | "shrink" | "eb" | "pooled":
                config = CONFIGS[method]
                if config.mode not in pilots:
                    pilots[config.mode] = explore(market, config, rng)
                return pilots[config.mode].scores(market, config, p, rng)

    return np.array(
        [[norm_of(scores(m, p) - market.truth, p) for m in METHODS[target]] for p in norms]
    )


class Planned(NamedTuple):
    """Calls after a pilot, the variances that they were planned with, and the η²."""

    counts: Counts
    variance: Array
    interaction: float


class Explored(NamedTuple):
    """What a pilot found: repeats of each cell, their means and variances."""

    pilot: Pilot
    counts: Counts
    mean: Array
    variance: Array

    def planned(self, market: Market, config: EstIvweConfig, p: float) -> Planned:
        """Plan the rest of the money as the policy does."""
        df = np.maximum(self.counts - 1, 0).astype(float)
        own = np.where(df > 0, self.variance, 0.0)
        variance, _ = planning_variance(config, self.pilot, own, df, market.world.span)
        eta2 = 0.0
        if market.target == "population":
            total = sum_of(self.counts, self.mean)
            eta2 = interaction_variance(self.counts.astype(float), total, df, own * df)
        spent = int((self.counts * market.price).sum())
        return Planned(market.buy(variance, p, spent, eta2), variance, eta2)

    def scores(
        self, market: Market, config: EstIvweConfig, p: float, rng: np.random.Generator
    ) -> Array:
        """Draw what the plan buys and give items' scores, (K,)."""
        counts, variance, eta2 = self.planned(market, config, p)
        mean, _ = market.world.draw(counts, rng)
        if config.reuse_exploration == "pooled":
            total = sum_of(counts, mean) + sum_of(self.counts, self.mean)
            counts = counts + self.counts
            mean = total / np.maximum(counts, 1)
            # Weights that follow a cell's own variance would pull skewed scores outward.
            variance = np.broadcast_to(variance.mean(axis=0), variance.shape)
        return combined(mean, counts, variance, market.target, eta2)


def explore(market: Market, config: EstIvweConfig, rng: np.random.Generator) -> Explored:
    """Make the pilot that the policy would make with this money."""
    n_items, n_judges = market.world.means.shape
    pilot = pilot_for(
        config, market.target, np.ones(n_judges), market.price, market.budget, n_items
    )
    counts = np.zeros((n_items, n_judges), np.int64)
    blocks = rng.permutation(n_items)[: pilot.n_blocks]
    counts[np.ix_(blocks, np.flatnonzero(pilot.used))] = pilot.repeats
    return Explored(pilot, counts, *market.world.draw(counts, rng))


def combined(mean: Array, counts: Counts, variance: Array, target: Target, eta2: float) -> Array:
    """Combine judges' means into items' scores: a panel's alike, else by precision."""
    if target == "panel":
        return np.asarray(mean.mean(axis=1))
    spread = counts * eta2 + np.maximum(variance, 1e-300)
    return weighted(mean, counts / spread)


def weighted(mean: Array, weight: Array) -> Array:
    """Average over judges with these weights, those of weight 0 left out; (K,)."""
    return np.asarray(sum_of(weight, mean).sum(axis=1) / weight.sum(axis=1))


def sum_of(weight: Array | Counts, mean: Array) -> Array:
    """Multiply, a weight of 0 with an unknown mean giving 0."""
    return np.where(weight > 0, weight * mean, 0.0)


# --- errors ------------------------------------------------------------------------------------


def norm_of(error: Array, p: float) -> float:
    """Give (Σ |e|^p)^{1/p}."""
    return float(np.linalg.norm(error, p))


def closed_forms(study: Study, cell: Setting) -> list[float]:
    """Give what theory expects of the oracle, for each norm."""
    market = market_of(study, cell)
    return [
        gaussian_norm(p, study.n_items)
        * oracle_allocation(
            market.world.variance,
            market.price,
            market.budget,
            p,
            market.target,
            interaction=market.interaction,
        ).error_scale
        for p in study.norms
    ]


def gaussian_norm(p: float, n: int) -> float:
    """Give how large the l_p norm of n normal errors is, in units of the error scale.

    (E |N|^p)^{1/p}; for the maximum E max_k |N_k| = ∫ 1 - (2 Φ(x) - 1)^n dx, which holds where all
    variances are equal, as those of an allocation for that norm are.
    """
    if math.isinf(p):
        return float(quad(lambda x: 1 - (2 * ndtr(x) - 1) ** n, 0, 40, limit=200)[0])
    return float((2 ** (p / 2) * gamma((p + 1) / 2) / math.sqrt(math.pi)) ** (1 / p))


def mean_of(errors: Array) -> tuple[float, float]:
    """Give the mean over replicates and its Monte-Carlo standard error."""
    n = len(errors)
    se = float(errors.std(ddof=1)) / math.sqrt(n) if n > 1 else math.nan
    return float(errors.mean()), se


def ratio_of_means(top: Array, bottom: Array) -> tuple[float, float]:
    """Give the ratio of means over paired replicates and its standard error, by linearisation."""
    ratio = float(top.mean() / bottom.mean())
    _, se = mean_of((top - ratio * bottom) / float(bottom.mean()))
    return ratio, se


class Loss(NamedTuple):
    """A cell where a rule that knows no variances errs less than the policy's default."""

    default: Row
    rival: Row


def losses(rows: Sequence[Row]) -> list[Loss]:
    """List where `shrink`, the default, is beaten by a rule that anybody can follow without it."""
    default = {row[:4]: row for row in rows if row.method == "shrink"}
    return [
        Loss(default[row[:4]], row)
        for row in rows
        if row.method in RIVALS and row.error <= default[row[:4]].error
    ]
