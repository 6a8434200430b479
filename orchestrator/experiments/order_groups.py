"""Is group A better than group B, before judges with memory: error rates, power, looking along the way.

Every replicate has ratings of its own, and each look at it is a prefix of them. Averaging and the fit
see the same ratings.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Executor
from dataclasses import dataclass, replace
from typing import Literal, NamedTuple, get_args

import numpy as np
from scipy.special import ndtri

from estimators.batches import Sequences
from estimators.confidence_sequences import sequence_bound
from estimators.group_sequential import bounds
from estimators.intervals import Array
from estimators.markov_inference import (
    Inference,
    bootstrap,
    group_contrast,
    group_weights,
    sandwich,
)
from estimators.markov_model import FitStatus, MarkovFit, fit_sequences
from estimators.markov_naive import naive_contrast
from orchestrator.core.errors import DidNotConverge
from orchestrator.experiments import ordering
from orchestrator.experiments.fanout import Progress, fan_out, silent
from orchestrator.experiments.figures import By, Figure, cited, mean, share
from orchestrator.experiments.ordering import OrderWorld, Ratings
from policies.layouts.design import Layout

NODES = 7
"""Quadrature nodes of fits in simulations: within 3e-6 of many nodes in the coefficients."""

LOOKS = (30, 60, 90, 120, 150)
"""Batches after which a replicate is looked at."""

ALPHA = 0.05
CRITICAL = float(ndtri(1 - ALPHA / 2))

World = Literal["null", "gap", "deep_memory"]

WORLDS: dict[World, tuple[str, Callable[[int], OrderWorld]]] = {
    "null": ("equal groups", ordering.null),
    "gap": ("groups 0.45 apart", ordering.gap),
    "deep_memory": ("equal groups, memory of three", ordering.deep_memory),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Study:
    """What is simulated.

    Parameters
    ----------
    inference : about these items (`panel`: each replicate rates the same), or about items like these
        (`items`: each replicate has a panel of its own, drawn from normal laws)
    looks : batches of each look, ascending
    lags : memory of the fits, each of them made of all ratings
    resamples : of a bootstrap at each look; 0: none
    """

    world: World = "null"
    n_items: int = 30
    design: Layout = "shuffle"
    inference: Literal["panel", "items"] = "panel"
    looks: tuple[int, ...] = LOOKS
    lags: tuple[int, ...] = (1,)
    resamples: int = 200
    n_reps: int = 200
    seed: int = 11

    @property
    def title(self) -> str:
        """What a table of it is called."""
        items = "items" if self.inference == "panel" else "new items"
        return f"{WORLDS[self.world][0]}, {self.n_items} {items}, {self.design}"

    @property
    def is_published(self) -> bool:
        """Whether others have figures of it."""
        return (self.n_items, self.design, self.inference) == (30, "shuffle", "panel")


class Task(NamedTuple):
    """One replicate of a study."""

    study: Study
    rep: int

    @property
    def world(self) -> OrderWorld:
        """The panel that it rates, and the judge.

        Items drawn anew come from a generator seeded by (seed, replicate, 0).
        """
        study = self.study
        world = WORLDS[study.world][1](study.n_items)
        if study.inference == "panel":
            return world
        rng = np.random.default_rng([study.seed, self.rep, 0])
        drawn = [
            rng.normal(group.mean(), group.std(), len(group))
            for group in np.split(world.theta, [world.n_first])
        ]
        return replace(world, theta=np.concatenate(drawn))


class Seen(NamedTuple):
    """What was found, (n_reps, n_looks) or (n_reps, n_looks, n_lags); nan: no such figure.

    Averages in shares of acceptance, the rest in logits. The errors of `est` are the model's, the
    sandwich's, the bootstrap's, and Welch's over items with his p; `memory` is the effect of the
    verdict before.
    """

    naive: Array
    naive_se: Array
    est: Array
    se: Array
    robust_se: Array
    bootstrap_se: Array
    welch_se: Array
    welch_p: Array
    memory: Array
    spread: Array


def run(study: Study, executor: Executor, progress: Progress = silent) -> Seen:
    """Simulate all replicates."""
    tasks = [Task(study, rep) for rep in range(study.n_reps)]
    found = np.array(fan_out(replicate, tasks, executor, progress))
    naive, naive_se, *fitted = np.moveaxis(found, -1, 0)
    return Seen(naive[..., 0], naive_se[..., 0], *fitted)


def replicate(task: Task) -> Array:
    """Simulate and fit one replicate, (n_looks, n_lags, fields of `Seen`).

    Draws designs, batch effects and ratings from a generator seeded by (seed, replicate), and a
    look's bootstrap from one by (seed, replicate, batches).
    """
    study, rep = task
    world = task.world
    groups = range(world.n_first), range(world.n_first, world.n_items)
    weights = group_weights(*groups)
    rng = np.random.default_rng([study.seed, rep])
    ratings = ordering.simulate(world, study.design, n_batches=study.looks[-1], rng=rng)
    found = np.full((len(study.looks), len(study.lags), len(Seen._fields)), np.nan)
    near: dict[int, MarkovFit | None] = {}
    for n, at_look in zip(study.looks, found, strict=True):
        source = as_sequences(ratings.first(n))
        naive = naive_contrast(source, *groups)
        at_look[:, :2] = naive.est, naive.se
        for lags, row in zip(study.lags, at_look, strict=True):
            fit = near[lags] = fitted(source, lags, near.get(lags))
            if fit is None:
                continue
            contrast = fit.contrast(weights)
            row[2] = contrast.est
            row[8:] = fit.slopes["lag1"], fit.sigma_b
            if contrast.status is not FitStatus.OK:
                continue
            row[3:5] = contrast.se, contrast.se * sandwich(fit).ratio_of(weights)
            if study.inference == "items":
                welch = group_contrast(fit, *groups, Inference.ITEMS)
                row[6:8] = welch.se, welch.p
            elif study.resamples:
                row[5] = (
                    bootstrap(
                        fit,
                        np.random.default_rng([study.seed, rep, n]),
                        unit="block" if study.design == "williams" else "batch",
                        draws=study.resamples,
                    )
                    .contrast(weights)
                    .se
                )
    return found


def as_sequences(ratings: Ratings, replicate: int = 0) -> Sequences:
    """Give one replicate's ratings as a fit takes them."""
    order, accepted = ratings.order[replicate], ratings.accepted[replicate]
    n_batches, n_items = order.shape
    return Sequences(
        items=tuple(range(n_items)), batches=tuple(range(n_batches)), order=order, state=accepted
    )


def fitted(source: Sequences, lags: int, near: MarkovFit | None = None) -> MarkovFit | None:
    """Fit as simulations do; None where there is no maximum."""
    try:
        return fit_sequences(source, lags=lags, quadrature=NODES, near=near)
    except DidNotConverge:
        return None


# --- error rates and power ---------------------------------------------------------------------

PUBLISHED: dict[World, By] = {
    "null": {
        "naive rejects, %": {30: "18.1", 150: "54.9"},
        "naive picks A, %": {30: "83.1", 150: "98.1"},
        "GLMM Wald rejects, %": dict.fromkeys(LOOKS, "3.8 to 5.5"),
        "GLMM bootstrap rejects, %": dict.fromkeys(LOOKS[1:], "6.0 to 8.2"),
        "GLMM picks A, %": dict.fromkeys(LOOKS, "near 50"),
    },
    "gap": {
        "naive rejects, %": {30: "78.3", 90: "> 99.7"},
        "GLMM Wald rejects, %": {30: "77.0", 90: "> 99.7"},
        "GLMM bootstrap rejects, %": {30: "75.9", 90: "> 99.7"},
    },
    "deep_memory": {"naive rejects, %": {30: "26.0", 150: "70.5"}},
}

REFERENCE: dict[World, By] = {
    "null": {
        "naive rejects, %": dict(zip(LOOKS, ("16.6", "26.1", "35.2", "44.9", "55.9"), strict=True)),
        "naive picks A, %": dict(zip(LOOKS, ("78.6", "89.3", "94.4", "96.1", "97.2"), strict=True)),
        "naive difference, points": {150: "2.60"},
        "GLMM Wald rejects, %": dict(zip(LOOKS, ("5.6", "5.1", "4.7", "4.3", "4.0"), strict=True)),
        "GLMM bootstrap rejects, %": {30: "9.6", 90: "4.7", 150: "4.4"},
        "GLMM sandwich rejects, %": dict(
            zip(LOOKS, ("9.4", "7.6", "5.2", "4.8", "4.3"), strict=True)
        ),
        "GLMM picks A, %": dict(zip(LOOKS, ("45.4", "46.2", "45.4", "47.7", "48.4"), strict=True)),
        "GLMM contrast, logits": dict(
            zip(LOOKS, ("-0.028", "-0.014", "-0.009", "-0.007", "-0.006"), strict=True)
        ),
    },
    "gap": {
        "naive rejects, %": {30: "83.3", 60: "98.7", 90: "100"},
        "GLMM Wald rejects, %": {30: "80.3", 60: "98.7", 90: "100"},
        "GLMM bootstrap rejects, %": {30: "82.0", 90: "100"},
        "GLMM picks A, %": {30: "99.7"},
        "naive picks A, %": {30: "100"},
        "GLMM contrast, logits": {
            30: "0.478",
            60: "0.462",
            90: "0.459",
            120: "0.459",
            150: "0.458",
        },
    },
    "deep_memory": {
        "naive rejects, %": dict(zip(LOOKS, ("17.6", "33.0", "47.6", "56.4", "68.4"), strict=True)),
        "naive picks A, %": dict(zip(LOOKS, ("85.2", "92.0", "97.2", "98.8", "99.6"), strict=True)),
        "lag-1 GLMM Wald rejects, %": dict(
            zip(LOOKS, ("5.0", "5.4", "5.0", "4.4", "5.0"), strict=True)
        ),
        "lag-1 GLMM bootstrap rejects, %": {30: "10.6", 90: "7.0", 150: "6.0"},
        "lag-1 GLMM memory, logits": dict(
            zip(LOOKS, ("-0.44", "-0.43", "-0.42", "-0.42", "-0.41"), strict=True)
        ),
        "lag-1 GLMM sigma, logits": {150: "0.68"},
    },
}


def error_rates(study: Study, seen: Seen) -> list[Figure]:
    """Give how often each method finds a difference, which way, and how well its error is known."""
    figures = []
    for i, n in enumerate(study.looks):
        naive, naive_z = seen.naive[:, i], seen.naive[:, i] / seen.naive_se[:, i]
        figures += [
            share(study.title, "naive rejects, %", n, np.abs(naive_z) > CRITICAL),
            share(study.title, "naive picks A, %", n, naive > 0),
            mean(study.title, "naive difference, points", n, 100 * naive),
        ]
    for k, lags in enumerate(study.lags):
        name = "GLMM" if study.lags == (1,) else f"lag-{lags} GLMM"
        for i, n in enumerate(study.looks):
            figures += _of_fits(
                study.title,
                name,
                n,
                Seen(*(part[:, i] if part.ndim == 2 else part[:, i, k] for part in seen)),
            )
    if not study.is_published:
        return figures
    return cited(figures, PUBLISHED[study.world], REFERENCE[study.world])


def _of_fits(table: str, name: str, n: int, seen: Seen) -> list[Figure]:
    """Give the figures of one look's fits."""
    figures = []
    errors = {"Wald": seen.se, "bootstrap": seen.bootstrap_se, "sandwich": seen.robust_se}
    for which, se in errors.items():
        if not np.isnan(se).all():
            is_rejected = np.abs(seen.est / se) > CRITICAL
            figures.append(share(table, f"{name} {which} rejects, %", n, is_rejected))
    if not np.isnan(seen.welch_p).all():
        figures.append(share(table, f"{name} Welch rejects, %", n, seen.welch_p < ALPHA))
    figures += [
        share(table, f"{name} picks A, %", n, seen.est > 0),
        mean(table, f"{name} contrast, logits", n, seen.est),
        _error_ratio(table, f"{name} SE / SD", n, seen),
        mean(table, f"{name} memory, logits", n, seen.memory),
        mean(table, f"{name} sigma, logits", n, seen.spread),
    ]
    if np.isnan(seen.se).any():
        figures.append(share(table, f"{name} without a verdict, %", n, np.isnan(seen.se)))
    return figures


def _error_ratio(table: str, what: str, n: int, seen: Seen) -> Figure:
    """Give the mean standard error over the SD of estimates, whose own error is 1/√(2 n) of it."""
    known = ~np.isnan(seen.se)
    n_known = int(known.sum())
    if n_known < 2:
        return Figure(table, what, n, np.nan, np.nan, n_known)
    ratio = float(seen.se[known].mean() / seen.est[known].std(ddof=1))
    return Figure(table, what, n, ratio, ratio / float(np.sqrt(2 * n_known)), n_known)


# --- looking along the way ---------------------------------------------------------------------

Rule = Literal["1.96 at each look", "O'Brien-Fleming", "confidence sequence"]


def bounds_of(rule: Rule, se: Array, looks: tuple[int, ...]) -> Array:
    """Give the bound for |z| at each look of one replicate.

    O'Brien and Fleming's plan ends with the last look. The sequence has no end; it is tightest at
    the information that the last look will have, as the first look expects it.
    """
    match rule:
        case "1.96 at each look":
            return np.full(len(looks), CRITICAL)
        case "O'Brien-Fleming":
            return np.asarray(bounds([n / looks[-1] for n in looks], (1 / se**2).tolist()))
        case "confidence sequence":
            planned = float(1 / se[0] ** 2) * looks[-1] / looks[0]
            return np.array([sequence_bound(float(1 / each**2), 1 - ALPHA, planned) for each in se])


def crossings(estimate: Array, se: Array, looks: tuple[int, ...], rule: Rule) -> Array:
    """Say at which looks each replicate is beyond its bound, (n_reps, n_looks) bool.

    A replicate without a verdict at some look has no bounds and crosses none.
    """
    crossed = np.zeros(estimate.shape, dtype=bool)
    for row, est, own in zip(crossed, estimate, se, strict=True):
        if not np.isnan(own).any() and own.min() > 0:
            row[:] = np.abs(est) > bounds_of(rule, own, looks) * own
    return crossed


PEEKING_REFERENCE: dict[World, By] = {
    "null": {
        "GLMM, 1.96 at each look, %": {150: "14.5"},
        "GLMM, O'Brien-Fleming, %": {150: "4.0"},
        "GLMM, confidence sequence, %": {150: "0.8"},
        "naive, 1.96 at each look, %": {150: "64.8"},
        "naive, O'Brien-Fleming, %": {150: "54.7"},
        "naive, confidence sequence, %": {150: "21.0"},
        "correlation of first and last z": {150: "0.439"},
    },
    "gap": {
        "GLMM, O'Brien-Fleming, %": {150: "100"},
        "GLMM, O'Brien-Fleming: batches": {150: "67"},
    },
    "deep_memory": {},
}


def peeking(study: Study, seen: Seen) -> list[Figure]:
    """Give how many replicates have found a difference by each look, by rule.

    In `cut early` a plan is cut at a look that a lot decides, and nothing is made up for it.
    """
    title, looks, last = f"watched: {study.title}", study.looks, study.looks[-1]
    error = seen.se if study.inference == "panel" else seen.welch_se
    figures = []
    lot = np.random.default_rng([study.seed, study.n_reps]).integers(len(looks), size=study.n_reps)
    for method, est, se in (
        ("GLMM", seen.est[..., 0], error[..., 0]),
        ("naive", seen.naive, seen.naive_se),
    ):
        for rule in get_args(Rule):
            crossed = crossings(est, se, looks, rule)
            by_then = np.logical_or.accumulate(crossed, axis=1)
            figures += [
                share(title, f"{method}, {rule}, %", n, found)
                for n, found in zip(looks, by_then.T, strict=True)
            ]
            if rule == "O'Brien-Fleming":
                cut = by_then[np.arange(len(lot)), lot]
                figures.append(share(title, f"{method}, {rule}, cut early, %", last, cut))
                end = np.where(crossed.any(axis=1), crossed.argmax(axis=1), len(looks) - 1)
                ended = np.array(looks, dtype=np.float64)[end]
                figures.append(mean(title, f"{method}, {rule}: batches", last, ended))
    z = (seen.est / error)[..., 0]
    known = z[~np.isnan(z).any(axis=1)]
    if len(known) > 2:
        r = float(np.corrcoef(known[:, 0], known[:, -1])[0, 1])
        r_error = (1 - r * r) / float(np.sqrt(len(known)))
        what = "correlation of first and last z"
        figures.append(Figure(title, what, last, r, r_error, len(known)))
    return cited(figures, {}, PEEKING_REFERENCE[study.world]) if study.is_published else figures
