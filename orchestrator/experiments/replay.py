"""EST-IVWE on recorded repeats of real judges, drawn with replacement; their means are the truth."""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

import numpy as np

from orchestrator.core.errors import ConfigError, InvalidCampaign
from orchestrator.core.money import parse_usd
from orchestrator.experiments.est_ivwe import (
    CONFIGS,
    METHODS,
    Market,
    explore,
    mean_of,
    ratio_of_means,
    simulate,
)
from orchestrator.experiments.fanout import Progress, fan_out, silent
from orchestrator.experiments.worlds import Array, Counts
from orchestrator.tables import Problems, read_table
from policies.exploration import interaction_variance

METHOD_NAMES = (*METHODS["panel"], "common")
"""`common` asks one judge about an item, as if judges had one mean; their offsets are removed."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class RecordedJudges:
    """Judges that say again, at random, one of their recorded scores.

    Parameters
    ----------
    repeats : (K, J, R) scores
    names : of the judges
    price : (J,) nano-USD a call
    n_left_out : items without all repeats of all these judges
    unpriced : judges of the file that have no price and take no part
    """

    repeats: Array
    names: tuple[str, ...]
    price: Counts
    n_left_out: int = 0
    unpriced: tuple[str, ...] = ()
    means: Array = field(init=False)
    variance: Array = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "means", self.repeats.mean(axis=2))
        object.__setattr__(self, "variance", self.repeats.var(axis=2))

    @property
    def truth(self) -> Array:
        """The panel's mean of each item, (K,)."""
        return np.asarray(self.means.mean(axis=1))

    @property
    def span(self) -> float:
        """From the lowest recorded score to the highest."""
        return float(np.ptp(self.repeats))

    def draw(self, counts: Counts, rng: np.random.Generator) -> tuple[Array, Array]:
        """Draw recorded scores with replacement; as `World`."""
        n_repeats = self.repeats.shape[2]
        times = rng.multinomial(counts, np.full(n_repeats, 1 / n_repeats))
        n = np.maximum(counts, 1)
        mean = (times * self.repeats).sum(axis=2) / n
        squares = (times * (self.repeats - mean[..., None]) ** 2).sum(axis=2)
        variance = squares / np.maximum(counts - 1, 1)
        return np.where(counts > 0, mean, np.nan), np.where(counts > 1, variance, np.nan)

    @property
    def interaction(self) -> float:
        """Variance of judges' own views of an item, beyond their offsets and noise."""
        n = np.full(self.means.shape, float(self.repeats.shape[2]))
        return interaction_variance(n, n * self.means, n - 1, n * self.variance)


def read_recorded(
    path: Path, prices: Mapping[str, int], criterion: str | None = None
) -> RecordedJudges:
    """Read repeats of priced judges: item_id, judge, score, and arm, dimension where there are.

    Items are kept of which every judge has as many scores as the fullest cell.

    Raises
    ------
    InvalidCampaign
        The file can't be read, or a score is no number.
    ConfigError
        Fewer than two judges have a price, no two items have all repeats, or the file holds several
        criteria and none is named.
    """
    problems = Problems()
    table = read_table(
        path, path.name, ("item_id", "arm", "judge", "score", "dimension", "criterion"), problems
    )
    scores: dict[tuple[str, str], list[float]] = defaultdict(list)
    seen: Counter[str] = Counter()
    judges: dict[str, None] = {}
    for row in table.rows if table else ():
        name = row.cells.get("dimension") or row.cells.get("criterion") or ""
        if criterion is not None and name != criterion:
            continue
        seen[str(name)] += 1
        item, judge, score = (row.cells.get(key) for key in ("item_id", "judge", "score"))
        if arm := row.cells.get("arm"):
            item = f"{item}/{arm}"  # an item in an arm is a unit of its own
        judges[str(judge)] = None
        if score in {None, ""}:
            continue  # a recorded failure is no score
        try:
            scores[str(item), str(judge)].append(float(score))
        except (TypeError, ValueError):
            problems.add("score", row.problem("score", f"wants a number, not {score!r}"))
    if listed := problems.listed():
        raise InvalidCampaign(listed)
    if len(seen) > 1:
        raise ConfigError(f"{path.name} holds {', '.join(sorted(seen))}; name one: --criterion")
    priced = [judge for judge in judges if judge in prices]
    if len(priced) < 2:
        known = ", ".join(judges) or "none"
        raise ConfigError(f"wants prices of two judges or more; {path.name} holds: {known}")
    items = dict.fromkeys(item for item, judge in scores if judge in prices)
    n_repeats = max(len(scores[item, judge]) for item in items for judge in priced)
    kept = [i for i in items if all(len(scores[i, judge]) == n_repeats for judge in priced)]
    if n_repeats < 2 or len(kept) < 2:
        raise ConfigError(f"{path.name}: no two items have two repeats or more of every judge")
    return RecordedJudges(
        repeats=np.array([[scores[i, judge] for judge in priced] for i in kept]),
        names=tuple(priced),
        price=np.array([prices[judge] for judge in priced], dtype=np.int64),
        n_left_out=len(items) - len(kept),
        unpriced=tuple(judge for judge in judges if judge not in prices),
    )


def read_prices(path: Path | None, given: Sequence[str]) -> dict[str, int]:
    """Read prices, nano-USD a call: a file with judge and usd_per_call, then JUDGE=USD over it.

    Raises
    ------
    InvalidCampaign
        The file can't be read.
    ConfigError
        A price is no dollar amount above 0.
    """
    texts: dict[str, str] = {}
    if path is not None:
        problems = Problems()
        table = read_table(path, path.name, ("judge", "usd_per_call"), problems)
        if listed := problems.listed():
            raise InvalidCampaign(listed)
        for row in table.rows if table else ():
            if amount := row.cells.get("usd_per_call"):
                texts[str(row.cells.get("judge"))] = str(amount)
    for entry in given:
        judge, equals, amount = entry.rpartition("=")
        if not equals:
            raise ConfigError(f"--price {entry}: wants JUDGE=USD, as in small=0.0004")
        texts[judge] = amount
    found = {}
    for judge, amount in texts.items():
        try:
            found[judge] = int(parse_usd(amount))
        except ValueError as exc:
            raise ConfigError(f"price of {judge}: {exc}") from exc
        if found[judge] <= 0:
            raise ConfigError(f"price of {judge}: wants more than 0")
    return found


class Row(NamedTuple):
    """The error against the panel's mean of one method at one budget, mean over replicates.

    `to_*` are ratios of mean squared errors, below 1 where this method is the better one.
    """

    sweeps: int
    method: str
    rmse: float
    to_uniform: float
    to_uniform_se: float
    to_price: float
    to_price_se: float
    n_reps: int


class Replay(NamedTuple):
    """One replicate of one budget."""

    world: RecordedJudges
    sweeps: int
    seed: int
    rep: int


def run(
    world: RecordedJudges,
    sweeps: Sequence[int],
    executor: Executor,
    *,
    n_reps: int,
    seed: int = 0,
    progress: Progress = silent,
) -> list[Row]:
    """Replay every method at every budget."""
    if min(sweeps) < 4:
        raise ConfigError("--rho: est_ivwe needs money for 4 sweeps, two of them for its pilot")
    tasks = [Replay(world, n, seed, rep) for n in sweeps for rep in range(n_reps)]
    found = fan_out(replicate, tasks, executor, progress)
    rows = []
    for n, table in zip(sweeps, np.reshape(found, (len(sweeps), n_reps, -1)), strict=True):
        by_method = dict(zip(METHOD_NAMES, table.T, strict=True))
        for method, squared in by_method.items():
            rows.append(
                Row(
                    n,
                    method,
                    math.sqrt(mean_of(squared)[0]),
                    *ratio_of_means(squared, by_method["uniform"]),
                    *ratio_of_means(squared, by_method["price"]),
                    n_reps,
                )
            )
    return rows


def replicate(task: Replay) -> Array:
    """Replay all methods once; give mean squared errors against the panel's mean."""
    world, sweeps, seed, rep = task
    rng = np.random.default_rng([2000 + seed, rep, sweeps])
    market = Market(world, world.price, sweeps, "panel")
    squared = simulate(market, (2.0,), rng)[0] ** 2 / len(world.means)
    common = common_scores(market._replace(target="common"), rng) - world.truth
    return np.append(squared, (common**2).mean())


def common_scores(market: Market, rng: np.random.Generator) -> Array:
    """Score each item by one judge, less its offset from the panel in the pilot; (K,)."""
    pilot = explore(market, CONFIGS["shrink"], rng)
    counts = pilot.planned(market, CONFIGS["shrink"], 2.0).counts
    judge = counts.argmax(axis=1)
    mean = market.world.draw(counts, rng)[0][np.arange(len(judge)), judge]
    offset = pilot.mean.mean(axis=0) - pilot.mean.mean()
    return np.asarray(mean - offset[judge])


def disagreement(world: RecordedJudges, sweeps: int) -> str | None:
    """Warn where judges differ on an item by more than the noise that is left in its score.

    The noise is that of uniform calls of one judge for all the money: what `common` assumes to be
    all that separates judges.
    """
    calls = sweeps * world.price.sum() / world.price
    noise = float((world.variance / calls).min(axis=1).mean())
    if world.interaction <= noise:
        return None
    return (
        f"judges disagree on single items by a standard deviation of {math.sqrt(world.interaction):.2f}; "
        f"the noise of a score under target common is {math.sqrt(noise):.2f}: it would be precise "
        "about one judge's view, not about the panel's mean"
    )
