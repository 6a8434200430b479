"""Which of six items is best: by averaging and by a fit, shuffled and in Williams blocks.

Averaging is vectorised over replicates; fits are made one by one, of replicates of their own.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass, replace
from itertools import product
from typing import Literal, NamedTuple, get_args

import numpy as np

from estimators.intervals import Array
from estimators.markov_naive import order_variance_split
from orchestrator.experiments import ordering
from orchestrator.experiments.fanout import Progress, fan_out, silent
from orchestrator.experiments.figures import By, Figure, cited, mean, share
from orchestrator.experiments.order_groups import CRITICAL, as_sequences, fitted
from orchestrator.experiments.ordering import OrderWorld, in_chunks, naive_means, top_share
from policies.layouts.williams import williams_block

World = Literal["flat", "uneven", "deep_memory"]
Design = Literal["shuffle", "williams"]


def deep_memory() -> OrderWorld:
    """The items of `uneven`, before a judge that remembers three verdicts."""
    return replace(ordering.uneven(), lags=ordering.deep_memory().lags)


WORLDS: dict[World, tuple[str, Callable[[], OrderWorld]]] = {
    "flat": ("slots alike", ordering.flat),
    "uneven": ("slots differ", ordering.uneven),
    "deep_memory": ("memory of three", deep_memory),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Study:
    """What is simulated.

    Parameters
    ----------
    batches : of each campaign
    lags : memory of the fits, each of them made of all their ratings
    n_reps : replicates of averaging
    n_fits : replicates of fits
    """

    worlds: tuple[World, ...] = ("flat", "uneven")
    batches: tuple[int, ...] = (6, 12, 18)
    lags: tuple[int, ...] = (1,)
    n_reps: int = 100_000
    n_fits: int = 100
    seed: int = 5


class Task(NamedTuple):
    """One cell of a study; of averaging, or of one fitted replicate."""

    study: Study
    world: World
    n_batches: int
    design: Design
    rep: int | None = None


def run(study: Study, executor: Executor, progress: Progress = silent) -> list[Figure]:
    """Give how often each method puts the best item first, and how a fit's interval holds.

    The interval is that of the best item's lead over the second.
    """
    designs = get_args(Design)
    cells = list(product(study.worlds, study.batches, designs))
    tasks = [Task(study, *cell) for cell in cells]
    tasks += [Task(study, *cell, rep) for cell in cells for rep in range(study.n_fits)]
    found = fan_out(simulated, tasks, executor, progress)
    averaged = dict(zip(cells, found[: len(cells)], strict=True))
    fits = np.reshape(np.array(found[len(cells) :]), (len(cells), study.n_fits, len(study.lags), 2))
    of_fits = dict(zip(cells, fits, strict=True))
    figures = []
    for world in study.worlds:
        table = f"best of six first: {WORLDS[world][0]}"
        own = []
        for n in study.batches:
            by_design = [averaged[world, n, design] for design in designs]
            own += _averaged(table, n, by_design, study.n_reps)
        for (k, lags), design, n in product(enumerate(study.lags), designs, study.batches):
            if study.n_fits:
                own += _fitted(table, lags, design, n, of_fits[world, n, design][:, k])
        figures += cited(own, PUBLISHED.get(world, {}), REFERENCE.get(world, {}))
    return figures


def simulated(task: Task) -> Array:
    """Simulate a task."""
    return averaged(task) if task.rep is None else one_fit(task)


def averaged(task: Task) -> Array:
    """Give mean and variance, over replicates, of the chance that averaging puts the best item first.

    Draws from a generator seeded by (seed, batches, whether the design is Williams's).
    """
    study, world, n_batches, design, _ = task
    rng = np.random.default_rng([study.seed, n_batches, design == "williams"])
    parts = in_chunks(
        WORLDS[world][1](), design, n_batches=n_batches, n_replicates=study.n_reps, rng=rng
    )
    shares = np.concatenate([top_share(naive_means(part), 0) for part in parts])
    return np.array([shares.mean(), shares.var()])


def one_fit(task: Task) -> Array:
    """Fit one replicate, (n_lags, 2): whether the best item is first, and its lead's interval holds.

    nan where there is no fit. Draws from a generator seeded by (seed, batches, whether the design is
    Williams's, replicate).
    """
    study, name, n_batches, design, rep = task
    assert rep is not None
    world = WORLDS[name][1]()
    rng = np.random.default_rng([study.seed, n_batches, design == "williams", rep])
    source = as_sequences(ordering.simulate(world, design, n_batches=n_batches, rng=rng))
    found = np.full((len(study.lags), 2), np.nan)
    for row, lags in zip(found, study.lags, strict=True):
        fit = fitted(source, lags)
        if fit is None:
            continue
        row[0] = fit.theta.argmax() == 0
        lead = fit.contrast({0: 1.0, 1: -1.0})
        row[1] = abs(lead.est - (world.theta[0] - world.theta[1])) <= CRITICAL * lead.se
    return found


def _averaged(table: str, n: int, by_design: Sequence[Array], n_reps: int) -> list[Figure]:
    """Give the shares of both designs, in percent, and their difference, in points."""
    (shuffled, a), (balanced, b) = by_design
    rows = (
        ("naive first, shuffle, %", shuffled, a),
        ("naive first, williams, %", balanced, b),
        ("naive gain, points", balanced - shuffled, a + b),
    )
    return [
        Figure(table, what, n, 100 * float(value), 100 * float(np.sqrt(var / n_reps)), n_reps)
        for what, value, var in rows
    ]


def _fitted(table: str, lags: int, design: Design, n: int, found: Array) -> list[Figure]:
    name = f"lag-{lags} GLMM"
    figures = [share(table, f"{name} first, {design}, %", n, found[:, 0] == 1)]
    figures.append(mean(table, f"{name} 95 % interval holds, {design}, %", n, 100 * found[:, 1]))
    if np.isnan(found[:, 0]).any():
        what = f"{name} without a maximum, {design}, %"
        figures.append(share(table, what, n, np.isnan(found[:, 0])))
    return figures


def _row(*figures: str) -> dict[int, str]:
    return dict(zip((6, 12, 18), figures, strict=True))


PUBLISHED: dict[str, By] = {
    "flat": {"naive gain, points": _row("-0.5", "-0.1", "-0.5")},
    "uneven": {"naive gain, points": _row("1.2", "2.0", "3.1")},
}

REFERENCE: dict[str, By] = {
    "flat": {
        "naive first, shuffle, %": _row("31.64", "39.16", "45.09"),
        "naive first, williams, %": _row("31.87", "39.12", "45.08"),
        "naive gain, points": _row("0.23", "-0.04", "-0.01"),
        "lag-1 GLMM first, shuffle, %": _row("35.0", "42.0", "46.7"),
        "lag-1 GLMM first, williams, %": _row("33.7", "42.0", "44.0"),
    },
    "uneven": {
        "naive first, shuffle, %": _row("29.71", "35.97", "40.70"),
        "naive first, williams, %": _row("30.91", "37.74", "42.97"),
        "naive gain, points": _row("1.20", "1.77", "2.27"),
        "lag-1 GLMM first, shuffle, %": _row("28.3", "35.7", "43.7"),
        "lag-1 GLMM first, williams, %": _row("32.0", "38.7", "45.7"),
    },
}


# --- where the variance comes from -------------------------------------------------------------


class Compared(NamedTuple):
    """Whose difference averaging estimates: a panel of six, and weights of its items."""

    title: str
    world: OrderWorld
    weights: Array


def comparisons() -> list[Compared]:
    """Give what is split: two items among equal and unequal ones, and two groups."""
    two = np.array([1.0, -1.0, 0, 0, 0, 0])
    groups = np.repeat([1 / 3, -1 / 3], 3)
    found = []
    for name in ("flat", "uneven"):
        title, make = WORLDS[name]
        world = make()
        equal = replace(world, theta=np.full(6, world.theta.mean()))
        found += [
            Compared(f"two of six equal items, {title}", equal, two),
            Compared(f"the two best of six, {title}", world, two),
        ]
    return [
        *found,
        Compared("two groups of three, unequal spread", ordering.null(6), groups),
    ]


class Sample(NamedTuple):
    """Simulated variance of one comparison: which, the design, replicates and the seed."""

    compared: int
    design: Design
    n_reps: int
    seed: int


def order_variance(
    n_reps: int, seed: int, executor: Executor, progress: Progress = silent
) -> list[Figure]:
    """Split the variance of naive differences exactly, beside what simulation gives.

    All figures are of one batch: batches times the variance of the mean after one block of six.
    """
    designs = get_args(Design)
    cells = list(product(range(len(comparisons())), designs))
    tasks = [Sample(k, design, n_reps, seed) for k, design in cells]
    found = dict(zip(cells, fan_out(variance_of, tasks, executor, progress), strict=True))
    figures = []
    for k, each in enumerate(comparisons()):
        own, totals, exact = [], [], []
        for design in designs:
            rating, ordering_, total, fourth = found[k, design]
            exact.append(rating + ordering_)
            totals.append((total, float(np.sqrt((fourth - total**2) / n_reps))))
            own += [
                Figure(each.title, f"{design}: rating part", 6, rating, np.nan, 0),
                Figure(each.title, f"{design}: ordering part", 6, ordering_, np.nan, 0),
                Figure(each.title, f"{design}: variance", 6, exact[-1], np.nan, 0),
                Figure(each.title, f"{design}: variance, simulated", 6, *totals[-1], n_reps),
            ]
        (a, a_se), (b, b_se) = totals
        error = b / a * float(np.hypot(a_se / a, b_se / b))
        own += [
            Figure(each.title, "williams / shuffle", 6, exact[1] / exact[0], np.nan, 0),
            Figure(each.title, "williams / shuffle, simulated", 6, b / a, error, n_reps),
        ]
        figures += cited(own, {}, VARIANCES.get(each.title, {}))
    return figures


def variance_of(task: Sample) -> list[float]:
    """Give rating and ordering part, and mean square and fourth power of simulated errors, a batch.

    Draws from a generator seeded by (seed, comparison, whether the design is Williams's).
    """
    _, world, weights = comparisons()[task.compared]
    is_square = task.design == "williams"
    square = williams_block(6, np.random.default_rng(0)) if is_square else None
    split = order_variance_split(world.judge, weights, square)
    rng = np.random.default_rng([task.seed, task.compared, is_square])
    parts = in_chunks(world, task.design, n_batches=6, n_replicates=task.n_reps, rng=rng)
    values = np.concatenate([naive_means(part) @ weights for part in parts])
    errors = (values - values.mean()) * np.sqrt(6)
    return [split.rating, split.ordering, float((errors**2).mean()), float((errors**4).mean())]


def _six(figure: str) -> dict[int, str]:
    return {6: figure}


VARIANCES: dict[str, By] = {
    "two of six equal items, slots alike": {
        "shuffle: variance, simulated": _six("0.4608"),
        "williams: variance, simulated": _six("0.4597"),
    },
    "two of six equal items, slots differ": {
        "shuffle: variance, simulated": _six("0.4989"),
        "williams: variance, simulated": _six("0.4256"),
        "williams / shuffle, simulated": _six("0.853"),
    },
}
