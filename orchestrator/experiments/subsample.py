"""How many items of a real table of answers say what all of them say, by method, over many orders.

A row of the table is an item, a column of 0, 1 and nothing is a system. All items are the whole, whose
mean is known; a run draws from it in a random order until a half-width is reached. An answer that the
table lacks counts as wrong: a rule made beforehand, where dropping it would change the benchmark.
"""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import Executor
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple, SupportsFloat

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtri

from estimators.benchmark_diagnostics import heterogeneity, split_half
from estimators.confidence_sequences import MeanSequence, Plan, betting, prior_posterior
from estimators.intervals import Array
from estimators.macro_ability import Mixture, independent_items_half_width, macro_ability
from estimators.subsample_bounds import items_for_half_width, items_for_hypergeometric
from orchestrator.core.errors import ConfigError, InvalidCampaign
from orchestrator.correctness import PARTS, read_correctness, verdicts_of
from orchestrator.experiments.fanout import Progress, fan_out, silent
from orchestrator.experiments.figures import Figure, mean, median, share
from orchestrator.experiments.plot import Panel
from orchestrator.report.wording import plural
from orchestrator.tables import Problems, read_columns

METHODS = ("paper", "exact", "betting", "prior-posterior")
"""The first two are for a number of items fixed beforehand, the others are watched."""

_BLOCK = 250
"""Scores that a sequence is given at once; the rest is not needed once the width is reached."""

_MIXTURES: tuple[Mixture, Mixture] = ("plug_in", "upper")

_SHUFFLES = 20
"""Of strata's labels, after which halves must not agree."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Answers:
    """Right and wrong answers of systems to the items of a benchmark.

    Parameters
    ----------
    systems : names
    right : (n_systems, n_items) 1, or 0 where an answer is wrong or lacking
    lacking : (n_systems,) answers that the table has not
    strata : (n_items,) number of each item's stratum; empty: the table has none
    domain : (n_strata,) number of each stratum's domain
    """

    systems: tuple[str, ...]
    right: Array
    lacking: NDArray[np.int64]
    strata: NDArray[np.int64]
    domain: NDArray[np.int64]

    @property
    def n_items(self) -> int:
        """N, items of the table."""
        return len(self.right[0])

    def of(self, system: str) -> int:
        """Give a system's place.

        Raises
        ------
        ConfigError
            The table has no such system.
        """
        if system not in self.systems:
            raise ConfigError(f"--pair: no system {system}; there are {', '.join(self.systems)}")
        return self.systems.index(system)


def read_answers(path: Path, strata: str | None = None, domain: str | None = None) -> Answers:
    """Read a table of items by systems, as .csv, .jsonl (both also .gz) or .parquet.

    Parameters
    ----------
    strata, domain : columns of each item's stratum and of each stratum's domain; None: those that go
        by a known name, such as subject and domain, if there are any

    Raises
    ------
    InvalidCampaign
        The file can't be read, or a stratum is in two domains.
    ConfigError
        No column is of 0, 1 and nothing, or a column is not there.
    """
    problems = Problems()
    names = read_columns(path, path.name, (), problems)
    table = names and read_columns(path, path.name, list(names.names), problems)
    if table is None:
        raise InvalidCampaign(problems.listed())
    given = {"stratum": strata, "group": domain}
    for name in filter(None, given.values()):
        if name not in table.names:
            raise ConfigError(f"{path.name} has no column {name}")
    columns = {
        part: found
        for part, others in PARTS.items()
        if (
            found := given.get(part) or next((n for n in (part, *others) if n in table.names), None)
        )
    }
    verdicts = verdicts_of(table, list(columns.values()))
    if not verdicts:
        raise ConfigError(
            f"{path.name}: no column holds 0, 1 and nothing else: no system's answers"
        )
    read = read_correctness(table, columns, problems, verdicts=verdicts, scales={}, of={})
    if read is None:
        raise InvalidCampaign(problems.listed())
    n_strata = len(read.strata)
    return Answers(
        systems=read.systems,
        right=np.nan_to_num(read.cells),
        lacking=np.isnan(read.cells).sum(axis=1),
        strata=read.stratum if n_strata else read.stratum[:0],
        domain=np.zeros(n_strata, dtype=np.int64) if read.domain is None else read.domain,
    )


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Study:
    """What is simulated.

    Parameters
    ----------
    half_width : at which a run stops
    pairs : of systems that are told apart, sharing the error; each stops at a verdict
    pair_half_width : that betting on a difference is planned for
    """

    answers: Answers
    half_width: float = 0.0154
    alpha: float = 0.05
    pairs: tuple[tuple[str, str], ...] = ()
    pair_half_width: float = 0.03
    n_reps: int = 20
    n_splits: int = 60
    seed: int = 15


class Task(NamedTuple):
    """One order of the items."""

    study: Study
    rep: int


def run(study: Study, executor: Executor, progress: Progress = silent) -> list[Figure]:
    """Give items needed by each method, how often the end was wrong, verdicts, and abilities."""
    tasks = [Task(study, rep) for rep in range(study.n_reps)]
    found = [
        np.stack(each) for each in zip(*fan_out(replicate, tasks, executor, progress), strict=True)
    ]
    figures = _items(study, *found[:2])
    if study.pairs:
        figures += _verdicts(study, found[2])
    if len(study.answers.strata):
        figures += _abilities(study)
    return figures


# --- items to a half-width -----------------------------------------------------------------------


def replicate(task: Task) -> tuple[Array, Array, Array]:
    """Stop each system's run: (n_systems, 2) items by betting and by prior-posterior, whether wrong.

    And each pair's, (n_pairs, 2): items to a verdict, nan for none; whether wrong. All share one order.
    Draws from a generator seeded by (seed, replicate).
    """
    study, rep = task
    answers = study.answers
    n_items = answers.n_items
    order = np.random.default_rng([study.seed, rep]).permutation(n_items)
    level = 1 - study.alpha
    items, is_wrong = np.empty((2, len(answers.systems), 2))
    for system, scores in enumerate(answers.right[:, order]):
        sequences = (
            betting(n_items, level=level, plan=Plan(half_width=study.half_width)),
            prior_posterior(n_items, level=level),
        )
        for method, sequence in enumerate(sequences):
            n, lower, upper = _stop(sequence, scores, study.half_width)
            items[system, method] = n
            is_wrong[system, method] = not lower <= scores.mean() <= upper
    verdicts = [
        _verdict(study, *(answers.right[answers.of(name), order] for name in pair))
        for pair in study.pairs
    ]
    return items, is_wrong, np.array(verdicts).reshape(-1, 2)


def _stop(sequence: MeanSequence, scores: Array, half_width: float) -> tuple[int, float, float]:
    """Give the number of scores at which the half-width is reached, and the interval there."""
    for at in range(0, len(scores), _BLOCK):
        lower, upper = sequence.extend(scores[at : at + _BLOCK])
        is_reached = (upper - lower) / 2 <= half_width
        if is_reached.any():
            i = int(is_reached.argmax())
            return at + i + 1, float(lower[i]), float(upper[i])
    raise AssertionError("at the last score the interval is a point")


def _verdict(study: Study, first: Array, second: Array) -> tuple[float, float]:
    """Give the number of items that tell a pair apart, and whether they do so wrongly."""
    both = first - second
    level = 1 - study.alpha / len(study.pairs)
    plan = Plan(half_width=study.pair_half_width)
    sequence = betting(len(both), level=level, low=-1.0, high=1.0, plan=plan)
    for at in range(0, len(both), _BLOCK):
        lower, upper = sequence.extend(both[at : at + _BLOCK])
        is_apart = (lower > 0) | (upper < 0)
        if is_apart.any():
            i = int(is_apart.argmax())
            verdict = 1.0 if lower[i] > 0 else -1.0
            return at + i + 1, float(verdict != np.sign(both.mean()))
    return np.nan, 0.0


def _items(study: Study, items: Array, is_wrong: Array) -> list[Figure]:
    """Say what each system's mean needs; `paper` and `exact` are for a number fixed beforehand."""
    figures, width, alpha, n = [], study.half_width, study.alpha, study.answers.n_items
    title = f"items of {n:,} to ±{100 * width:.4g} points, alpha {alpha:g}"
    for s, (system, right) in enumerate(
        zip(study.answers.systems, study.answers.right, strict=True)
    ):
        if study.answers.lacking.any():
            figures.append(_known(title, f"{system}: lacking", n, study.answers.lacking[s]))
        by_betting, by_counts = items[:, s].T
        known = {
            "right, %": 100 * right.mean(),
            "paper": items_for_half_width(width, n, alpha, model="exchangeable"),
            "exact": items_for_hypergeometric(width, n, alpha, float(right.mean())),
        }
        figures += [_known(title, f"{system}: {what}", n, each) for what, each in known.items()]
        figures += [
            median(title, f"{system}: betting", n, by_betting),
            _known(title, f"{system}: least", n, by_betting.min()),
            _known(title, f"{system}: most", n, by_betting.max()),
            share(title, f"{system}: betting misses, %", n, is_wrong[:, s, 0] > 0),
            median(title, f"{system}: prior-posterior", n, by_counts),
        ]
    # Systems share an order, so that only orders are independent.
    for method, each in zip(METHODS[2:], is_wrong.mean(axis=1).T, strict=True):
        figures.append(mean(title, f"all systems: {method} misses, %", n, 100 * each))
    return figures


def _known(table: str, what: str, n: int, value: SupportsFloat) -> Figure:
    """Give a figure without an error of its own."""
    return Figure(table, what, n, float(value), np.nan, 0)


def _verdicts(study: Study, found: Array) -> list[Figure]:
    """Say how many items tell each pair apart."""
    title = f"items to a verdict, watched, alpha {study.alpha:g}/{len(study.pairs)}"
    figures = []
    for pair, (items, is_wrong) in zip(study.pairs, found.transpose(1, 2, 0), strict=True):
        first, second = (study.answers.right[study.answers.of(name)] for name in pair)
        name, gap, n = " - ".join(pair), 100 * float((first - second).mean()), len(first)
        figures += [
            _known(title, f"{name}: difference, points", n, gap),
            median(title, f"{name}: to a verdict", n, items),
            _known(title, f"{name}: least", n, np.nanmin(items, initial=n)),
            _known(title, f"{name}: most", n, np.nanmax(items, initial=0)),
            share(title, f"{name}: wrong, %", n, is_wrong > 0),
        ]
    return figures


# --- ability -------------------------------------------------------------------------------------


def _abilities(study: Study) -> list[Figure]:
    """Say what macro scores tell of ability on strata like these, and whether halves agree.

    Draws from generators seeded by (seed, 1, system).
    """
    answers, strata, domain = study.answers, study.answers.strata, study.answers.domain
    domains = plural(int(domain.max()) + 1, "domain")
    title = f"ability by {len(domain)} strata in {domains}, alpha {study.alpha:g}"
    sizes, figures, z = np.bincount(strata), [], -float(ndtri(study.alpha / 2))
    for s, (system, right) in enumerate(zip(answers.systems, answers.right, strict=True)):
        k = np.bincount(strata, right)
        plain, upper = (
            macro_ability(k, sizes, domain=domain, delta=study.alpha, mixture=mixture)
            for mixture in _MIXTURES
        )
        wald = independent_items_half_width(k, sizes, z=z)
        rng = np.random.default_rng([study.seed, 1, s])
        halves = split_half(right, strata, rng, n_splits=study.n_splits)
        shuffled = [
            split_half(right, rng.permutation(strata), rng, n_splits=1).r for _ in range(_SHUFFLES)
        ]
        known = {
            "macro, %": 100 * plain.score,
            "SD of strata": 100 * heterogeneity(k, sizes).pooled.sd,
            "± points": 100 * plain.half_width,
            "at most": 100 * upper.half_width,
            "Wald": 100 * wald,
            "± / Wald": plain.half_width / wald,
            "halves, r": halves.r,
        }
        n = answers.n_items
        figures += [_known(title, f"{system}: {what}", n, each) for what, each in known.items()]
        figures.append(mean(title, f"{system}: shuffled, r", n, np.array(shuffled)))
    return figures


# --- picture -------------------------------------------------------------------------------------


def panels(figures: Sequence[Figure]) -> list[Panel]:
    """Draw items by method against the share of right answers."""
    found = {figure.what: figure.value for figure in figures}
    systems = [what.removesuffix(": right, %") for what in found if what.endswith(": right, %")]
    systems.sort(key=lambda system: found[f"{system}: right, %"])
    curves = {
        method: [(found[f"{s}: right, %"], found[f"{s}: {method}"]) for s in systems]
        for method in METHODS
    }
    return [Panel("items", curves)]
