"""Intervals of low-rank strengths: whether they hold, how narrow they are beside each category's.

Fifteen models in six categories, the truth of rank two; three gaps, three scores and three chances to
win against all others. Pairs are drawn uniformly, or by popularity with known probabilities, or
adaptively where they inform most.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Executor
from contextlib import suppress
from dataclasses import dataclass
from itertools import combinations
from typing import Literal, NamedTuple

import numpy as np
from scipy.special import expit

from estimators.intervals import Array
from estimators.tensor_cells import Cells, Integers, Votes, votes
from estimators.tensor_fit import Maximum, by_context, maximise
from estimators.tensor_functionals import (
    Estimates,
    Functional,
    evaluate,
    gap,
    score,
    win_probability,
)
from estimators.tensor_model import FOLD_RIDGE, fit_votes
from estimators.tensor_one_step import (
    Information,
    Kind,
    cross_fitted,
    fold_labels,
    forward,
    forward_blocks,
)
from estimators.tensor_tangent import centred_basis
from orchestrator.core.errors import DidNotConverge
from orchestrator.experiments.fanout import Progress, fan_out, silent
from orchestrator.experiments.figures import By, Figure, cited, mean, share

M, K, RANK = 15, 6, (2, 2)
SINGULAR = (7.29, 4.69)
STRONGEST = 2.1
POPULARITY = 0.7
"""Exponent of Zipf's law, of models and of categories."""

Design = Literal["uniform", "nonuniform", "adaptive"]

FIRST, BATCH = 600, 200
FLOOR, POWER = 0.2, 2.0
"""Adaptive design: uniform pairs at first, then batches that are drawn together, with the share of
uniform ones among them and the power of the gains."""

SEPARATED = 8.0
APART_RIDGE = 1e-4

PAIRS = np.array([(a, b, k) for a, b in combinations(range(M), 2) for k in range(K)])


class Step(NamedTuple):
    """A way to correct the folds' fits."""

    kind: Kind
    folds: int
    info: Information


STEPS: Mapping[str, Step] = {
    "eff2": Step("efficient", 2, "fold"),
    "eff2_all": Step("efficient", 2, "all"),
    "whit2": Step("whitened", 2, "fold"),
    "iso2_ipw": Step("isotropic", 2, "fold"),
    "eff5": Step("efficient", 5, "fold"),
    "eff5_all": Step("efficient", 5, "all"),
    "whit5_all": Step("whitened", 5, "all"),
    "iso5_ipw": Step("isotropic", 5, "all"),
}

METHODS = ("btl_cat", "mle", "mle_sand", *STEPS)
WATCHED = ("mle", "eff5_all", "iso5_ipw", "forward")


@dataclass(frozen=True, slots=True, kw_only=True)
class Study:
    """What is simulated.

    Parameters
    ----------
    design : how pairs and categories are drawn
    n : comparisons of each replicate
    methods : see `METHODS`, and `forward`
    rank : that is fitted
    fold_ridge : of the folds' fits
    """

    design: Design = "uniform"
    n: int = 3000
    methods: tuple[str, ...] = METHODS
    rank: tuple[int, int] = RANK
    fold_ridge: float = FOLD_RIDGE
    n_reps: int = 200
    seed: int = 11

    @property
    def title(self) -> str:
        """What a table of it is called."""
        of = "" if self.rank == RANK else f", fits of rank {self.rank[0]}"
        ridge = "" if self.fold_ridge == FOLD_RIDGE else f", folds' ridge {self.fold_ridge:g}"
        return f"{self.design} comparisons, {M} models, {K} categories{of}{ridge}"


class Task(NamedTuple):
    """One replicate of a study."""

    study: Study
    rep: int


class Drawn(NamedTuple):
    """Comparisons in order, and uniform / propensity of each, (n,)."""

    votes: Votes
    weights: Array


class Seen(NamedTuple):
    """What was found, (n_reps, n_methods, n_targets); nan: no such figure.

    `alone`, (n_reps,), is the largest strength that the fits of each category gave.
    """

    est: Array
    lower: Array
    upper: Array
    se: Array
    alone: Array


def truth() -> Array:
    """Give the strengths, (M, K): fixed singular values and random directions.

    The first directions with which no strength is beyond `STRONGEST`.
    """
    rng = np.random.default_rng(7)
    while True:
        models, _ = np.linalg.qr(rng.standard_normal((M - 1, 2)))
        categories, _ = np.linalg.qr(rng.standard_normal((K, 2)))
        found: Array = centred_basis(M) @ models @ np.diag(SINGULAR) @ categories.T
        if np.abs(found).max() <= STRONGEST:
            return found


def targets() -> list[Functional]:
    """List what is estimated: three gaps, three scores, three chances to win."""
    return [
        *(gap(a, b, k) for a, b, k in ((0, 1, 0), (2, 7, 3), (4, 11, 5))),
        *(score(a, k) for a, k in ((0, 2), (6, 1), (9, 4))),
        *(
            win_probability(a, k, [b for b in range(M) if b != a])
            for a, k in ((0, 0), (3, 2), (8, 5))
        ),
    ]


def drawn(design: Design, n: int, rng: np.random.Generator, strengths: Array) -> Drawn:
    """Draw comparisons and their outcomes."""
    if design == "adaptive":
        return _adaptive(n, rng, strengths)
    law = np.full(len(PAIRS), 1 / len(PAIRS))
    if design == "nonuniform":
        by_model, by_category = (np.arange(1, d + 1) ** -POPULARITY for d in (M, K))
        law = by_model[PAIRS[:, 0]] * by_model[PAIRS[:, 1]] * by_category[PAIRS[:, 2]]
        law /= law.sum()
    asked = rng.choice(len(PAIRS), size=n, p=law)
    return _answered(asked, 1 / (len(PAIRS) * law[asked]), rng, strengths)


def _adaptive(n: int, rng: np.random.Generator, strengths: Array) -> Drawn:
    """Draw batches where the trace of the covariance falls most, from fits of all before them."""
    asked = rng.integers(len(PAIRS), size=min(FIRST, n))
    said = _answered(asked, np.ones(len(asked)), rng, strengths)
    while len(said.votes) < n:
        top = maximise(said.votes.cells(), shape=(M, K), rank=RANK, ridge=FOLD_RIDGE)
        cells = said.votes.cells()
        p = expit(cells.eta(top.tensor))
        held = top.tangent.information(cells, cells.weight * p * (1 - p))
        covariance = np.linalg.inv(held + FOLD_RIDGE * np.eye(len(held)))
        q = top.tangent.basis.reshape(M, K, -1)
        x = q[PAIRS[:, 0], PAIRS[:, 2]] - q[PAIRS[:, 1], PAIRS[:, 2]]
        there = expit(top.tensor[PAIRS[:, 0], PAIRS[:, 2]] - top.tensor[PAIRS[:, 1], PAIRS[:, 2]])
        known = there * (1 - there)
        along = x @ covariance
        gain = known * (along**2).sum(axis=1) / (1 + known * (along * x).sum(axis=1))
        law = (1 - FLOOR) * gain**POWER / (gain**POWER).sum() + FLOOR / len(PAIRS)
        asked = rng.choice(len(PAIRS), size=min(BATCH, n - len(said.votes)), p=law)
        more = _answered(asked, 1 / (len(PAIRS) * law[asked]), rng, strengths)
        said = _joined(said, more)
    return said


def _answered(asked: Integers, weights: Array, rng: np.random.Generator, strengths: Array) -> Drawn:
    """Put each pair in an order by a fair coin, and draw its outcome."""
    a, b, k = PAIRS[asked].T
    is_turned = rng.random(len(a)) < 0.5
    left, right = np.where(is_turned, b, a), np.where(is_turned, a, b)
    y = rng.random(len(a)) < expit(strengths[left, k] - strengths[right, k])
    return Drawn(votes(left, right, k, y, shape=(M, K)), weights)


def _joined(first: Drawn, more: Drawn) -> Drawn:
    """Put comparisons behind others."""
    left, right, context = (
        np.concatenate([getattr(each.votes, name)[each.votes.cell] for each in (first, more)])
        for name in ("left", "right", "context")
    )
    y = np.concatenate((first.votes.outcome, more.votes.outcome))
    return Drawn(
        votes(left, right, context, y, shape=(M, K)), np.concatenate((first.weights, more.weights))
    )


def run(study: Study, executor: Executor, progress: Progress = silent) -> Seen:
    """Simulate all replicates."""
    tasks = [Task(study, rep) for rep in range(study.n_reps)]
    found = np.array(fan_out(replicate, tasks, executor, progress))
    est, lower, upper, se = np.moveaxis(found[:, :-1].reshape(len(tasks), -1, 4, 9), 2, 0)
    return Seen(est, lower, upper, se, found[:, -1, 0, 0])


def replicate(task: Task) -> Array:
    """Simulate one replicate and estimate by each method, (n_methods + 1, 4, n_targets).

    The last row holds the largest strength of the fits by category. Draws from a generator seeded by
    (seed, replicate).
    """
    study, rep = task
    rng = np.random.default_rng([study.seed, rep])
    said = drawn(study.design, study.n, rng, truth())
    labels = {folds: fold_labels(study.n, folds, rng) for folds in (2, 5)}
    remembered = _remembering(study, rng)
    rows = []
    for name in study.methods:
        row = np.full((4, len(targets())), np.nan)
        with suppress(DidNotConverge):
            found = _estimated(name, study, said, remembered, labels)
            row[:] = found.value, *found.interval(), found.se
        rows.append(row)
    alone = by_context(said.votes.cells(), ridge=APART_RIDGE)
    return np.array([*rows, np.full_like(rows[0], np.abs(alone).max())])


def _remembering(study: Study, rng: np.random.Generator) -> Callable[[Cells], Maximum]:
    """Give what fits a fold once, whoever asks."""
    known: dict[bytes, Maximum] = {}

    def fit(cells: Cells) -> Maximum:
        key = cells.count.tobytes() + cells.won.tobytes()
        if key not in known:
            known[key] = maximise(
                cells, shape=(M, K), rank=study.rank, ridge=study.fold_ridge, rng=rng
            )
        return known[key]

    return fit


def _estimated(
    name: str,
    study: Study,
    said: Drawn,
    of_folds: Callable[[Cells], Maximum],
    labels: Mapping[int, Integers],
) -> Estimates:
    """Estimate the targets by one method."""
    wanted = targets()
    match name:
        case "btl_cat":
            return _apart(said.votes, wanted)
        case "mle" | "mle_sand":
            fit = fit_votes(said.votes, rank=study.rank)
            return fit.plug_in(*wanted, errors="model" if name == "mle" else "sandwich")
        case "forward":
            blocks = forward_blocks(study.n)
            return forward(said.votes, wanted, fit=of_folds, blocks=blocks)
    step = STEPS[name]
    return cross_fitted(
        said.votes,
        wanted,
        fit=of_folds,
        labels=labels[step.folds],
        kind=step.kind,
        info=step.info,
        weights=said.weights if step.kind == "isotropic" else None,
    )


def _apart(source: Votes, wanted: Sequence[Functional]) -> Estimates:
    """Estimate by strengths of each category for itself, with the model's errors."""
    cells = source.cells()
    tensor = by_context(cells, ridge=APART_RIDGE)
    p = expit(cells.eta(tensor))
    known = cells.laplacians(cells.weight * p * (1 - p)) + APART_RIDGE * np.eye(M)
    found = evaluate(wanted, tensor)
    by_category = found.gradients.reshape(-1, M, K).transpose(2, 1, 0)
    by_category = by_category - by_category.mean(axis=1, keepdims=True)
    spread = (by_category.transpose(0, 2, 1) @ np.linalg.solve(known, by_category)).sum(axis=0)
    return Estimates(
        names=tuple(each.name for each in wanted),
        value=found.values,
        covariance=spread,
        is_probability=np.array([each.is_probability for each in wanted]),
        method="plug_in",
        n=len(source),
        effective=source.effective,
    )


# --- figures -----------------------------------------------------------------------------------

KINDS = {"gap": slice(0, 3), "score": slice(3, 6), "win": slice(6, 9)}


def figures(study: Study, seen: Seen) -> list[Figure]:
    """Give coverage, widths and errors of each method, beside another program's."""
    strengths = truth()
    true = np.array([each.value(strengths) for each in targets()])
    title, n = study.title, study.n
    inside = (seen.lower <= true) & (true <= seen.upper)
    width, error = seen.upper - seen.lower, seen.est - true
    found = []
    for i, name in enumerate(study.methods):
        known = np.asarray(~np.isnan(width[:, i]).any(axis=1))
        covered = 100.0 * inside[known, i]
        by_kind = (100.0 * inside[known][:, i, of] for of in KINDS.values())
        found += [
            mean(title, f"{name}: coverage, %", n, covered.mean(axis=1)),
            *(
                mean(title, f"{name}: coverage of {kind}, %", n, each.mean(axis=1))
                for kind, each in zip(KINDS, by_kind, strict=True)
            ),
            Figure(
                title,
                f"{name}: worst coverage, %",
                n,
                float(covered.mean(axis=0).min()),
                np.nan,
                int(known.sum()),
            ),
            *(
                mean(title, f"{name}: {kind} width", n, width[known][:, i, of].mean(axis=1))
                for kind, of in KINDS.items()
            ),
            _rmse(title, name, n, error[known, i]),
            _error_ratio(title, name, n, error[known, i], seen.se[known, i]),
            Figure(
                title,
                f"{name}: largest error",
                n,
                float(np.abs(error[known, i]).max()),
                np.nan,
                int(known.sum()),
            ),
        ]
        if not known.all():
            found.append(share(title, f"{name}: without a verdict, %", n, ~known))
        if name != "btl_cat" and "btl_cat" in study.methods:
            base = study.methods.index("btl_cat")
            own, alone = (width[known][:, j, KINDS["gap"]].mean(axis=1) for j in (i, base))
            found.append(_width_ratio(title, name, n, own, alone))
    if "btl_cat" in study.methods:
        found.append(share(title, "btl_cat: separated, %", n, np.asarray(seen.alone > SEPARATED)))
    is_cited = study.rank == RANK and study.fold_ridge == FOLD_RIDGE
    first = 3000 if n == 10_000 else n
    return cited(found, {}, REFERENCE.get((study.design, first), {})) if is_cited else found


def _rmse(title: str, name: str, n: int, error: Array) -> Figure:
    """Give the mean over targets of root mean squared errors; its error by the delta method."""
    square = (error**2).mean(axis=0)
    root = np.sqrt(square)
    slopes = (error**2 / (2 * root)).mean(axis=1)
    se = float(slopes.std(ddof=1) / np.sqrt(len(error)))
    return Figure(title, f"{name}: RMSE", n, float(root.mean()), se, len(error))


def _error_ratio(title: str, name: str, n: int, error: Array, se: Array) -> Figure:
    """Give the mean over targets of mean standard errors over the estimates' SD."""
    ratio = float((se.mean(axis=0) / error.std(axis=0, ddof=1)).mean())
    return Figure(
        title, f"{name}: SE / SD", n, ratio, ratio / float(np.sqrt(2 * len(error))), len(error)
    )


def _width_ratio(title: str, name: str, n: int, own: Array, alone: Array) -> Figure:
    """Give the mean gap width over that of categories alone, and its error by the delta method."""
    ratio = float(own.mean() / alone.mean())
    rest = (own - ratio * alone) / alone.mean()
    se = float(rest.std(ddof=1) / np.sqrt(len(own)))
    return Figure(title, f"{name}: gap width / btl_cat", n, ratio, se, len(own))


def sweep(
    design: Design, reps: int, seed: int, executor: Executor, progress: Progress = silent
) -> list[Figure]:
    """Study a design at its numbers of comparisons; the uniform one stands beside the adaptive."""
    if design == "adaptive":
        studies = [
            Study(design=each, n=4000, methods=WATCHED, n_reps=reps, seed=seed)
            for each in ("uniform", "adaptive")
        ]
    else:
        studies = [Study(design=design, n=n, n_reps=reps, seed=seed) for n in (3000, 10_000)]
    return [
        figure for study in studies for figure in figures(study, run(study, executor, progress))
    ]


def _columns(n: Sequence[int], **rows: Sequence[str]) -> By:
    """Name figures by method, from rows of coverage, gap width and RMSE at each number."""
    names = ("coverage, %", "gap width", "RMSE")
    return {
        f"{method}: {what}": dict(zip(n, row[i :: len(names)], strict=True))
        for method, row in rows.items()
        for i, what in enumerate(names)
    }


REFERENCE: Mapping[tuple[Design, int], By] = {
    ("uniform", 3000): _columns(
        (3000, 10_000),
        btl_cat=("93.9", "1.732", "0.261", "95.4", "0.917", "0.132"),
        mle=("94.4", "1.127", "0.168", "94.9", "0.607", "0.089"),
        mle_sand=("94.3", "1.126", "0.168", "94.8", "0.607", "0.089"),
        eff2=("94.5", "1.255", "0.176", "94.9", "0.623", "0.090"),
        eff2_all=("94.1", "1.249", "0.178", "95.2", "0.623", "0.090"),
        whit2=("94.3", "1.621", "0.232", "94.3", "0.712", "0.103"),
        iso2_ipw=("93.6", "1.605", "0.233", "94.3", "0.711", "0.103"),
        eff5=("94.8", "1.217", "0.165", "95.2", "0.620", "0.089"),
        eff5_all=("94.9", "1.186", "0.161", "94.9", "0.615", "0.088"),
        whit5_all=("93.9", "1.441", "0.204", "94.1", "0.691", "0.099"),
        iso5_ipw=("94.0", "1.436", "0.204", "94.1", "0.691", "0.099"),
    ),
    ("nonuniform", 3000): _columns(
        (3000, 10_000),
        btl_cat=("94.3", "2.108", "0.312", "95.4", "1.101", "0.152"),
        mle=("94.6", "1.328", "0.197", "95.8", "0.710", "0.098"),
        mle_sand=("94.4", "1.325", "0.197", "95.6", "0.710", "0.098"),
        eff2=("93.9", "1.692", "0.632", "95.4", "0.738", "0.100"),
        eff2_all=("94.0", "1.679", "0.613", "95.6", "0.737", "0.100"),
        whit2=("94.6", "2.406", "0.863", "95.3", "0.834", "0.112"),
        iso2_ipw=("94.0", "3.005", "0.982", "95.3", "1.015", "0.141"),
        eff5=("95.1", "1.483", "0.193", "95.5", "0.731", "0.099"),
        eff5_all=("95.0", "1.438", "0.187", "95.6", "0.724", "0.097"),
        whit5_all=("94.8", "1.736", "0.234", "95.5", "0.805", "0.108"),
        iso5_ipw=("94.0", "2.109", "0.314", "95.4", "0.974", "0.134"),
    ),
    ("uniform", 4000): _columns(
        (4000,),
        mle=("93.6", "0.965", "0.1418"),
        eff5_all=("94.5", "0.999", "0.1406"),
        iso5_ipw=("93.6", "1.152", "0.168"),
        forward=("94.4", "1.226", "0.2411"),
    ),
    ("adaptive", 4000): _columns(
        (4000,),
        mle=("94.3", "0.937", "0.1408"),
        eff5_all=("94.2", "0.968", "0.1366"),
        iso5_ipw=("93.7", "1.279", "0.1748"),
        forward=("93.5", "1.157", "0.1818"),
    ),
}
"""Coverage, mean gap width and RMSE at each number, by another program. Its folds had no ridge, so that
its fits of half a sparse sample ran away: `eff2`, `whit2` and `iso2_ipw` of nonuniform comparisons."""
