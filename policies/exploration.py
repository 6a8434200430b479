"""How EST-IVWE explores: its settings, the pilot that a budget allows, and what the pilot shows."""

from __future__ import annotations

import math
from typing import Annotated, ClassVar, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray
from pydantic import BaseModel, BeforeValidator, ConfigDict, Field

from orchestrator.core.errors import BudgetTooSmall
from orchestrator.core.money import format_usd
from orchestrator.core.wire import Json
from policies import noise
from policies.allocation import Array, Counts, Target


def _norm(value: object) -> float | str:
    """Read the order of a norm; infinity becomes a word, because JSON has no such number."""
    if value in ("inf", math.inf):
        return "inf"
    if isinstance(value, bool) or not isinstance(value, int | float) or not value >= 1:
        raise ValueError(f"wants a number from 1 up, not {value!r}")
    return float(value)


class EstIvweConfig(BaseModel):
    """Settings of `est_ivwe`.

    `p` is the order of the norm that is made small: 2 for the mean squared error, inf for the worst
    item. `target` None is `panel` for several judges. `weights` are those of the panel. `shrinkage`
    is the weight of the pooled variances in degrees of freedom, `eb` estimates it. `pilot_repeats`
    and `tau` belong to the pilot: `auto` are the measured defaults, `theory` what the concentration
    bound at 1 - `delta` asks for.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    weighs_prices: ClassVar[bool] = True

    kind: Literal["est_ivwe"]
    p: Annotated[float | Literal["inf"], BeforeValidator(_norm)] = 2.0
    mode: Literal["shrink", "plain"] = "shrink"
    target: Target | None = None
    weights: dict[str, Annotated[float, Field(ge=0, le=1e6)]] | None = None
    calibration: Literal["none", "relative", "anchors"] = "relative"
    on_small_budget: Literal["error", "degrade"] = "error"
    shrinkage: Annotated[float, Field(ge=0, le=1e6)] | Literal["eb"] = 3.0
    reuse_exploration: Literal["none", "pooled"] = "none"
    pilot_repeats: Annotated[int, Field(ge=2)] | Literal["auto", "theory"] = "auto"
    tau: Annotated[float, Field(ge=0, le=1e12)] | Literal["auto", "theory"] = "auto"
    delta: Annotated[float, Field(gt=0, lt=1)] = 0.05
    criterion: str | None = None

    @property
    def per(self) -> str:
        """What an estimate that names nothing else is of: this policy serves single units."""
        return "unit"


SWEEPS_WANTED = 4
"""Complete sweeps that the least budget buys: two for the pilot, two for the scores."""

SWEEPS_FOR_CELLS = 20
"""Below so many sweeps a panel plans by its judges' noise alone: cells would show mostly chance."""

PILOT_SHARE = 0.05
"""Part of the items that a pilot of judges, not of cells, is made on."""

FEWEST_BLOCKS = 5
"""Units below which such a pilot says too little."""

MORE_TRIES = 3
"""Questions beyond the wanted valid answers that a cell may take."""

COMPLETE_ENOUGH = 0.9
"""Part of the pilot after which scores may be asked for while its last answers are awaited."""


class Pilot(NamedTuple):
    """How the pilot is made: `repeats` about each of the first `n_blocks`, by the judges `used`.

    `degraded` says which step a small budget led to, empty if none.
    """

    repeats: int
    n_blocks: int
    used: NDArray[np.bool_]
    by_judge: bool
    degraded: str = ""


# --- what the pilot showed ---------------------------------------------------------------------


def planning_variance(
    config: EstIvweConfig, pilot: Pilot, variance: Array, df: Array, span: float
) -> tuple[Array, dict[str, Json]]:
    """Give each cell's variance to plan with, (n_blocks, n_judges), and how it was made.

    Parameters
    ----------
    variance, df : (n_blocks, n_judges), of the pilot's repeats, and degrees of freedom
    """
    if pilot.by_judge:
        total, squares = df.sum(axis=0), np.where(df > 0, variance * df, 0.0).sum(axis=0)
        pooled = np.where(total > 0, squares / np.maximum(total, 1), span**2 / 4)
        pooled = np.maximum(pooled, noise.FLOOR * span**2)
        return np.broadcast_to(pooled, variance.shape), {"noise": "judges"}
    if config.mode == "plain":
        tau = _tau(config, pilot, df.size, span)
        return noise.plain(variance, df, span, tau).variance, {"noise": "plain", "tau": tau}
    weight = None if config.shrinkage == "eb" else float(config.shrinkage)
    shrunk = noise.shrunk(variance, df, span, weight)
    # What showed no two scores is unknown, and unknown is the worst a scale allows.
    known = np.where(df > 0, shrunk.variance, span**2 / 4)
    return known, {"noise": "shrunk", "shrinkage": shrunk.weight}


def _tau(config: EstIvweConfig, pilot: Pilot, n_cells: int, span: float) -> float:
    match config.tau:
        case "auto":
            return 0.2 * span / math.sqrt(pilot.repeats)
        case "theory":
            log = math.log(2 * n_cells / config.delta)
            return span * math.sqrt(2 * log / (pilot.repeats - 1))
        case given:
            return float(given)


def interaction_variance(n: Array, total: Array, df: Array, squares: Array) -> float:
    """Estimate η², the variance between judges on one block beyond their offsets and noise.

    The mean square of what blocks' and judges' means leave of the cells' means, less what repeats
    put into it; over the blocks that every judge has answered, 0 if they are fewer than two.

    Parameters
    ----------
    n, total : (n_blocks, n_judges), scores of a cell and their sum
    df, squares : degrees of freedom, and the sum of squared deviations
    """
    shared = (n > 0).all(axis=1)
    n_judges, n_shared = n.shape[1], int(shared.sum())
    if min(n_judges, n_shared) < 2:
        return 0.0
    y = total[shared] / n[shared]
    left = y - y.mean(axis=0) - y.mean(axis=1, keepdims=True) + y.mean()
    square = float((left**2).sum()) / ((n_shared - 1) * (n_judges - 1))
    pooled = squares[shared].sum(axis=0) / np.maximum(df[shared].sum(axis=0), 1)
    return float(max(0.0, square - float((pooled / n[shared]).mean())))


# --- the pilot ---------------------------------------------------------------------------------


def pilot_for(
    config: EstIvweConfig,
    target: Target,
    omega: Array,
    price: Counts,
    cap: int,
    n_blocks: int,
    n_labelled: int = 0,
) -> Pilot:
    """Choose the pilot for the money: how many repeats, or which of a small budget's steps.

    It takes in the first `n_labelled` blocks, unless a degraded run's money does not reach.
    """
    used = omega > 0 if target == "panel" else np.ones(len(price), dtype=bool)
    sweep = n_blocks * int(price[used].sum())
    rho = cap / sweep
    if rho < SWEEPS_WANTED:
        if config.on_small_budget == "error":
            raise _too_small(SWEEPS_WANTED * sweep, cap, n_blocks, int(used.sum()))
        return _degraded(target, used, price, cap, n_blocks, n_labelled)
    if target == "panel" and rho < SWEEPS_FOR_CELLS and used.sum() > 1:
        # Half of the money buys two repeats about all blocks, so it covers the labelled ones.
        pilot = _judges_alone(used, price, cap // 4, n_blocks, n_labelled, most=cap // 2)
        if pilot.n_blocks >= min(FEWEST_BLOCKS, n_blocks):
            return pilot
    return Pilot(_repeats(config, rho, n_blocks * len(price)), n_blocks, used, by_judge=False)


def _repeats(config: EstIvweConfig, rho: float, n_cells: int) -> int:
    match config.pilot_repeats:
        case "auto":
            wanted = rho ** (2 / 3) if config.mode == "plain" else math.sqrt(rho)
        case "theory":
            wanted = rho ** (2 / 3) * math.log(2 * n_cells / config.delta) ** (1 / 3)
        case given:
            wanted = float(given)
    return max(2, min(round(wanted), math.floor(rho / 2)))


def _judges_alone(
    used: NDArray[np.bool_],
    price: Counts,
    money: int,
    n_blocks: int,
    n_labelled: int,
    *,
    most: int,
    degraded: str = "",
) -> Pilot:
    """Explore a part of the items, to learn the judges' levels of noise alone.

    Labelled blocks that don't fit into the money at four repeats get fewer, at least two, and may
    take up to `most`.
    """
    sweep, repeats = int(price[used].sum()), 4
    if n_labelled * repeats * sweep > money:
        repeats, money = (
            max(2, money // (n_labelled * sweep)),
            max(money, min(most, 2 * n_labelled * sweep)),
        )
    wanted = max(math.ceil(PILOT_SHARE * n_blocks), 10, n_labelled)
    n = min(wanted, money // (repeats * sweep), n_blocks)
    return Pilot(repeats, n, used, by_judge=True, degraded=degraded)


def _degraded(
    target: Target,
    used: NDArray[np.bool_],
    price: Counts,
    cap: int,
    n_blocks: int,
    n_labelled: int,
) -> Pilot:
    """Take the first step that a small budget allows."""
    by_price = [int(j) for j in np.argsort(price, kind="stable") if used[j]]
    if target == "panel":
        for size in range(len(by_price), 0, -1):
            kept = np.zeros_like(used)
            kept[by_price[:size]] = True
            rest = cap - n_blocks * int(price[kept].sum())
            if rest >= 0:
                what = "it plans by the judges' noise as a whole"
                pilot = _judges_alone(
                    kept, price, rest, n_blocks, n_labelled, most=rest, degraded=what
                )
                if size > 1 and pilot.n_blocks >= 1:
                    return pilot
                return pilot._replace(
                    repeats=1, n_blocks=0, degraded="it plans by price alone, without a pilot"
                )
    else:
        for size in range(len(by_price), 1, -1):
            kept = np.zeros_like(used)
            kept[by_price[:size]] = True
            if SWEEPS_WANTED * n_blocks * int(price[kept].sum()) <= cap:
                what = "it plans with fewer judges"
                return Pilot(2, n_blocks, kept, by_judge=False, degraded=what)
        what = "it plans by the judges' noise as a whole, one judge for all"
        pilot = _judges_alone(
            used, price, cap // 4, n_blocks, n_labelled, most=cap // 4, degraded=what
        )
        dearest = n_blocks * int(price[used].max())
        cost = pilot.n_blocks * pilot.repeats * int(price[used].sum())
        if len(by_price) > 1 and pilot.n_blocks >= 1 and cap - cost >= dearest:
            return pilot
        cheapest = np.zeros_like(used)
        cheapest[by_price[0]] = True
        if n_blocks * int(price[by_price[0]]) <= cap:
            return Pilot(1, 0, cheapest, by_judge=True, degraded="the cheapest judge answers alone")
    least = n_blocks * int(price[by_price[0]])
    raise _too_small(least, cap, n_blocks, 1)


def _too_small(sufficient: int, cap: int, n_blocks: int, n_judges: int) -> BudgetTooSmall:
    return BudgetTooSmall(
        f"est_ivwe wants {format_usd(sufficient, decimals=2)} for {n_blocks:,} scores by "
        f"{n_judges} judge{'' if n_judges == 1 else 's'}; the cap is {format_usd(cap, decimals=2)}"
        f"{'; on_small_budget: degrade makes do with less' if n_judges > 1 else ''}",
        sufficient=sufficient,
    )
