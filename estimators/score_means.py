"""Plain means of scores: per arm, between two arms, per unit, per judge.

A unit's value is the mean, over the judges that answered it, of each judge's mean over its repeats:
the panel's mean with equal weights. An arm's value is the weighted mean over items. Repeats of a
question say more about its item; they are never new items.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, fields, replace
from functools import partial
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict, Field
from scipy.special import ndtri

from estimators.cells import Cells, Mask, Panel, Scoring, ratio
from estimators.intervals import (
    FEW,
    FLAT,
    Array,
    ClusterMean,
    Interval,
    betting,
    cluster_mean,
    hoeffding,
    t_interval,
    wilson,
    worst_case,
)
from estimators.missing import missing_test
from orchestrator.core.estimate import Estimate, Status
from orchestrator.core.ports import Plugin
from orchestrator.core.query import Kind, MissingReason
from orchestrator.core.records import Record
from orchestrator.core.study import Study
from orchestrator.core.wire import Json

ALIKE = 0.9
"""Share of a judge's cells with equal repeats above which its repeats count as identical.

On a ten-point scale, judges at temperature 1 gave three equal repeats in 16 to 58 % of the cells
and eight in 2 to 36 %, so a much lower bar would accuse honest judges; at temperature 0 nearly all
are equal.
"""

DIFFERS = 0.01
"""Level at which missing verdicts are said to depend on the arm."""


class Contrast(BaseModel):
    """A difference of two arms, `arm` minus `baseline`; within items if `paired`."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    arm: str
    baseline: str
    paired: bool = True


class ScoreMeansConfig(BaseModel):
    """Settings of `score_means`.

    `per` None is `arm`. With a `contrast` the difference is the entry's primary estimate and the
    means `per` follow it. `criterion` None is the only one, or the composite of several.
    `population` says what is random: the items too (`items_like_these`), or the judges' repeats
    alone (`these_items`).
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    name: str
    kind: Literal["score_means"]
    per: Literal["arm", "unit", "judge"] | None = None
    contrast: Contrast | None = None
    criterion: str | None = None
    population: Literal["these_items", "items_like_these"] = "items_like_these"
    confidence: float = Field(default=0.95, gt=0, lt=1)
    target: Literal["panel", "common", "population"] | None = None


class ScoreMeans:
    """Keeps running sums per unit and judge and turns them into means at a look.

    `update` adds to three sums of one cell, so memory does not grow with the answers. With integer
    scores the estimates are the same to the last bit in any order of telling, with others to about
    1e-12 of the scale.

    Raises
    ------
    ValueError
        The config names an arm or criterion that the study lacks, or asks for what another
        estimator does.
    """

    def __init__(self, config: ScoreMeansConfig, study: Study) -> None:
        self._design = _Design(config, study)
        self._cells = Cells(study, self._design.scoring)

    def update(self, record: Record) -> None:
        """Take in one told question."""
        self._cells.add(record)

    def estimate(self) -> tuple[Estimate, ...]:
        """Give the difference if a contrast was asked for, then the means `per`."""
        return _estimates(self._design, self._cells)


PLUGIN = Plugin(config=ScoreMeansConfig, build=ScoreMeans)


def fit_score_means(
    config: ScoreMeansConfig,
    study: Study,
    *,
    unit: NDArray[np.int64],
    judge: NDArray[np.int64],
    values: Array,
    missing: Sequence[MissingReason | None] | None = None,
) -> tuple[Estimate, ...]:
    """Fit all answers at once; equal to the last bit to `ScoreMeans` told them in this order.

    Parameters
    ----------
    unit, judge : (n,) int64, indices as in the study, one entry an asked question
    values : (n, n_criteria) float64 on each criterion's scale, NaN where it does not apply
    missing : (n,) why there is no verdict, None where there is one; None: all have one

    Raises
    ------
    ValueError
        As `ScoreMeans`.
    """
    design = _Design(config, study)
    cells = Cells(study, design.scoring)
    cells.add_table(unit, judge, values, [None] * len(unit) if missing is None else missing)
    return _estimates(design, cells)


# --- what is asked for ---------------------------------------------------------------------------

Share = Callable[[Mask], Array]
"""How each item's value is made of its cells' means, given which cells count.

Both arrays are over cells; the shares of an item without a value are all 0.
"""


class _Target(NamedTuple):
    """One number: a mean of item values, or such a mean minus another."""

    name: str
    parts: tuple[Share, ...]
    is_difference: bool = False


class _Design:
    """What the config asks for, resolved in a study."""

    def __init__(self, config: ScoreMeansConfig, study: Study) -> None:
        if study.kind is Kind.COMPARE:
            raise ValueError("score_means reads scores; a comparison gives none")
        if config.target in {"common", "population"}:
            raise ValueError(f"target: {config.target} comes with est_ivwe; here it is panel")
        self.config = config
        self.frame = frame = study.frame
        self.judges = tuple(p.name for p in study.panel)
        self.scoring = Scoring(study, config.criterion)
        self.difference = (
            None if config.contrast is None else _difference(config.contrast, frame.arms)
        )
        self.means: tuple[_Target, ...] = ()
        self.units: tuple[str, ...] = ()
        match config.per:
            case "unit":
                self.units = tuple(frame.unit_name(u) for u in range(frame.n_units))
            case "judge":
                self.means = tuple(
                    _Target(name, (partial(_judge_share, judge=j),))
                    for j, name in enumerate(self.judges)
                )
            case _:
                self.means = tuple(
                    _Target(name, (partial(_arm_share, arm=a),))
                    for a, name in enumerate(frame.arms)
                )

    def ends(self, target: _Target) -> tuple[float, float]:
        """Give the least and the greatest value that a target can have."""
        span = self.scoring.span
        return (-span, span) if target.is_difference else (self.scoring.low, self.scoring.high)


def _difference(contrast: Contrast, arms: tuple[str, ...]) -> _Target:
    for name in (contrast.arm, contrast.baseline):
        if name not in arms:
            raise ValueError(f"contrast: no arm {name!r} among {', '.join(arms)}")
    if contrast.arm == contrast.baseline:
        raise ValueError(f"contrast: {contrast.arm!r} is compared with itself")
    arm, baseline = arms.index(contrast.arm), arms.index(contrast.baseline)
    parts: tuple[Share, ...] = (
        (partial(_paired_share, arm=arm, baseline=baseline),)
        if contrast.paired
        else (partial(_arm_share, arm=arm), partial(_arm_share, arm=baseline))
    )
    return _Target(f"{contrast.arm} - {contrast.baseline}", parts, is_difference=True)


def _even(counts: Mask) -> Array:
    """Share evenly along the first axis among those that count."""
    share: Array = counts / np.maximum(counts.sum(axis=0), 1)
    return share


def _arm_share(counts: Mask, arm: int) -> Array:
    share = np.zeros(counts.shape)
    share[:, arm] = _even(counts[:, arm])
    return share


def _paired_share(counts: Mask, arm: int, baseline: int) -> Array:
    """Average, over the judges that count in both arms, the differences of their means."""
    share = np.zeros(counts.shape)
    share[:, arm] = _even(counts[:, arm] & counts[:, baseline])
    share[:, baseline] = -share[:, arm]
    return share


def _judge_share(counts: Mask, judge: int) -> Array:
    share = np.zeros(counts.shape)
    share[judge] = _even(counts[judge])
    return share


# --- one number ----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class _Line:
    """What an estimate says of one name."""

    value: float = np.nan
    se: float = np.nan
    lower: float = np.nan
    upper: float = np.nan
    interval: str = ""
    status: Status = Status.EMPTY
    n_items: int = 0
    n_clusters: int = 0
    n_effective: float = 0.0
    n_answers: int = 0
    missing: int = 0
    worst_lower: float = np.nan
    worst_upper: float = np.nan


class _Facts(NamedTuple):
    """The sums, what they say, and between which ends missing verdicts could move the cells."""

    cells: Cells
    panel: Panel
    has_missing: bool
    asked: Mask
    worst: Interval

    @classmethod
    def of(cls, cells: Cells) -> _Facts:
        """Read the sums."""
        panel, low = Panel(cells), cells.scoring.low
        worst = worst_case(cells.total, cells.count, cells.missing, cells.scoring.span)
        return cls(
            cells,
            panel,
            bool(cells.missing.any()),
            panel.answered | (cells.missing > 0),
            Interval(low + worst.lower, low + worst.upper),
        )


def _line(design: _Design, facts: _Facts, target: _Target) -> _Line:
    """Estimate one number, and bound it as if every missing verdict stood at a scale's end."""
    line = _line_of_answers(design, facts.panel, target)
    if not facts.has_missing:
        return replace(line, worst_lower=line.value, worst_upper=line.value)
    shares = [part(facts.asked) for part in target.parts]
    if not all(share.any() for share in shares):
        return line
    a = _coefficients(design, shares)
    lower, upper = facts.worst
    return replace(
        line,
        missing=int(facts.cells.missing[a != 0].sum()),
        worst_lower=float((a * np.where(a > 0, lower, upper)).sum()),
        worst_upper=float((a * np.where(a > 0, upper, lower)).sum()),
    )


def _line_of_answers(design: _Design, panel: Panel, target: _Target) -> _Line:
    shares = [part(panel.answered) for part in target.parts]
    counted = [share.any(axis=(0, 1)) for share in shares]
    if not all(items.any() for items in counted):
        is_apart = target.is_difference and panel.answered.any()
        return _Line(status=Status.NOT_IDENTIFIED if is_apart else Status.EMPTY)
    coefficients = _coefficients(design, shares)
    line = _Line(
        status=Status.OK,
        n_items=int(np.any(counted, axis=0).sum()),
        n_answers=int(panel.count[coefficients != 0].sum()),
    )
    if design.config.population == "these_items":
        return _line_of_these_items(design, panel, target, coefficients, line)
    weight, cluster = design.frame.weight, design.frame.cluster
    samples = [
        cluster_mean((share * panel.mean).sum(axis=(0, 1))[items], weight[items], cluster[items])
        for share, items in zip(shares, counted, strict=True)
    ]
    return _line_of_items_like_these(design, target, samples, line)


def _coefficients(design: _Design, shares: Sequence[Array]) -> Array:
    """Write a target as the sum of coefficient * cell mean."""
    total = np.zeros_like(shares[0])
    for sign, share in zip((1, -1), shares, strict=False):
        weight = design.frame.weight * share.any(axis=(0, 1))
        total += share * (sign * weight / weight.sum())
    return total


def _line_of_items_like_these(
    design: _Design, target: _Target, samples: Sequence[ClusterMean], line: _Line
) -> _Line:
    """Take the clusters as the sample; repeats and judges are in their spread."""
    level, scoring, first = design.config.confidence, design.scoring, samples[0]
    value = first.mean - sum(s.mean for s in samples[1:])
    variance = sum(s.variance for s in samples)
    is_one_each = line.n_answers == line.n_items == len(first.shares)
    is_even = float(np.ptp(first.shares)) < FLAT
    if scoring.is_boolean and not target.is_difference and is_one_each and is_even:
        method = "wilson"
        interval = wilson(round(value * line.n_items), line.n_items, level)
    elif any(s.is_thin(scoring.span) for s in samples):
        method, interval = "betting", _bet(design, target, samples)
    else:
        method = "t" if len(samples) == 1 else "welch"
        df = variance**2 / sum(s.variance**2 / s.df for s in samples)
        interval = t_interval(value, math.sqrt(variance), df, level, *design.ends(target))
    lower, upper = float(interval.lower), float(interval.upper)
    # Equal values and single clusters have no standard error of their own; the one that their
    # interval implies is neither 0 nor unknown.
    implied = (upper - lower) / (2 * float(ndtri((1 + level) / 2)))
    return replace(
        line,
        value=value,
        se=math.sqrt(variance) if variance > (FLAT * scoring.span) ** 2 else implied,
        lower=lower,
        upper=upper,
        interval=method,
        n_clusters=min(len(s.clusters) for s in samples),
        n_effective=min(s.effective for s in samples),
    )


def _bet(design: _Design, target: _Target, samples: Sequence[ClusterMean]) -> Interval:
    """Bet on the clusters' values, mapped to [0, 1].

    A difference of two samples is, up to scale, the mean of the one and of the other mirrored;
    what both say of one cluster is joined first, for it may hang together.
    """
    low, high = design.ends(target)
    scoring = design.scoring
    if len(samples) == 1:
        values = (samples[0].means - low) / (high - low)
    else:
        arm, baseline = samples
        values = np.concatenate((arm.means - scoring.low, scoring.high - baseline.means))
        values /= scoring.span
    joined = cluster_mean(
        values,
        np.concatenate([s.shares for s in samples]),
        np.concatenate([s.clusters for s in samples]),
    )
    bounds = betting(np.clip(joined.means, 0, 1), design.config.confidence, joined.shares)
    return Interval(low + (high - low) * bounds.lower, low + (high - low) * bounds.upper)


def _line_of_these_items(
    design: _Design, panel: Panel, target: _Target, a: Array, line: _Line
) -> _Line:
    """Take the items as given: only what a judge would say at another time is random.

    The variance is the sum over judges of noise * (sum over cells of a^2/n), with each judge's
    pooled repeat variance; pooling is exact where a judge's cells have equal a^2/n.
    """
    value = float((a * panel.mean).sum())
    by_judge = (a**2 / np.maximum(panel.count, 1)).sum(axis=(1, 2))
    takes_part = by_judge > 0
    parts = (by_judge * panel.noise)[takes_part]
    variance = float(parts.sum())
    if math.isnan(variance):
        return replace(line, value=value, interval="none", status=Status.UNKNOWN_VARIANCE)
    level, span, (low, high) = design.config.confidence, design.scoring.span, design.ends(target)
    df = variance**2 / (parts**2 / panel.noise_df[takes_part]).sum()
    if df < FEW:
        method = "hoeffding"
        interval = hoeffding(value, 1 / by_judge.sum(), span, level, low, high)
    else:
        method, interval = "t", t_interval(value, math.sqrt(variance), df, level, low, high)
    return replace(
        line,
        value=value,
        se=math.sqrt(variance),
        lower=float(interval.lower),
        upper=float(interval.upper),
        interval=method,
    )


# --- all units at once ---------------------------------------------------------------------------

Columns = dict[str, list[Any]]
"""The fields of `_Line`, each along the names."""


def _unit_columns(design: _Design, facts: _Facts) -> Columns:
    """Estimate every unit's panel mean; only the judges' repeats are random.

    The variance is the mean over its J judges of max(s^2, noise)/n, over J: a cell's own sample
    variance, but not less than its judge's pooled one.
    """
    panel, level, scoring = facts.panel, design.config.confidence, design.scoring
    n, answered, asked = panel.count, panel.answered, facts.asked
    is_seen, is_asked, n_answers = answered.any(axis=0), asked.any(axis=0), n.sum(axis=0)
    share, share_asked = _even(answered), _even(asked)
    spread = share**2 / np.maximum(n, 1)
    noise = np.where(answered, np.maximum(panel.variance, panel.noise[:, None, None]), 0)
    value = np.where(is_seen, (share * panel.mean).sum(axis=0), np.nan)
    se = np.where(is_seen, np.sqrt((spread * noise).sum(axis=0)), np.nan)
    n_equivalent = 1 / np.where(is_seen, spread.sum(axis=0), 1)
    lower, upper = hoeffding(value, n_equivalent, scoring.span, level, scoring.low, scoring.high)
    df = n_answers - answered.sum(axis=0)
    many = (n_answers >= FEW) & (df > 0) & (se > 0)
    lower[many], upper[many] = t_interval(
        value[many], se[many], df[many], level, scoring.low, scoring.high
    )
    status = np.where(np.isnan(se), Status.UNKNOWN_VARIANCE, Status.OK)
    columns = {
        "value": value,
        "se": se,
        "lower": lower,
        "upper": upper,
        "interval": np.where(many, "t", np.where(is_seen, "hoeffding", "")),
        "status": np.where(is_seen, status, Status.EMPTY),
        "n_items": is_seen.astype(int),
        "n_answers": n_answers.astype(int),
        "missing": facts.cells.missing.sum(axis=0).astype(int),
        **{
            name: np.where(is_asked, (share_asked * end).sum(axis=0), np.nan)
            for name, end in zip(("worst_lower", "worst_upper"), facts.worst, strict=True)
        },
    }
    # Units are numbered item by item.
    return {name: column.T.ravel().tolist() for name, column in columns.items()}


# --- estimates -----------------------------------------------------------------------------------


def _is_few(n_effective: Sequence[float]) -> bool:
    return any(0 < n < FEW * (1 - FLAT) for n in n_effective)


def _estimates(design: _Design, cells: Cells) -> tuple[Estimate, ...]:
    """Turn sums into the estimates that the config asks for."""
    config, facts = design.config, _Facts.of(cells)
    about, common_flags = _diagnostics(design, facts)

    def estimate(target: str, names: Sequence[str], columns: Columns, n_items: int) -> Estimate:
        numbers = {key: tuple(columns.pop(key)) for key in ("value", "se", "lower", "upper")}
        status = _overall(columns["status"])
        flags = [
            *common_flags,
            *(["few_clusters"] if _is_few(columns.get("n_effective", ())) else []),
            *(["no_answers"] if status is Status.EMPTY else []),
        ]
        worst = {key: _plain(columns.pop(key)) for key in ("worst_lower", "worst_upper")}
        return Estimate(
            name=config.name,
            kind=config.kind,
            target=target,
            estimand=_estimand(config, target),
            names=tuple(names),
            **numbers,
            level=config.confidence,
            interval=" + ".join(dict.fromkeys(filter(None, columns["interval"]))),
            watching_covered=False,
            alpha_split="none",
            family="each name by itself",
            n_items=n_items,
            n_answers=sum(columns["n_answers"]),
            status=status,
            flags=tuple(flags),
            diagnostics={**about, "by_name": {**columns, **worst}},
        )

    def of_targets(targets: Sequence[_Target]) -> Columns:
        lines = [_line(design, facts, target) for target in targets]
        return {f.name: [getattr(line, f.name) for line in lines] for f in fields(_Line)}

    n_items = int(facts.panel.answered.any(axis=(0, 1)).sum())
    found = []
    if design.difference is not None:
        columns = of_targets([design.difference])
        n_compared = columns["n_items"][0]
        found.append(estimate("difference", [design.difference.name], columns, n_compared))
    if config.per == "unit":
        found.append(estimate("units", design.units, _unit_columns(design, facts), n_items))
    else:
        target = "judges" if config.per == "judge" else "arms"
        names = [t.name for t in design.means]
        found.append(estimate(target, names, of_targets(design.means), n_items))
    return tuple(found)


def _estimand(config: ScoreMeansConfig, target: str) -> str:
    items = "these items" if config.population == "these_items" else "items like these"
    match target:
        case "units":
            return "expected score of each unit, judged by this panel"
        case "judges":
            return f"mean over {items}, as each judge rates them"
        case "difference":
            is_paired = config.contrast is not None and config.contrast.paired
            what = "mean paired difference" if is_paired else "difference of means"
            return f"{what} over {items}, judged by this panel"
        case _:
            return f"mean over {items}, judged by this panel"


def _overall(statuses: Sequence[str]) -> Status:
    """Say for all names what is said of each."""
    kinds = set(statuses)
    if len(kinds) == 1:
        return Status(kinds.pop())
    has_gaps = kinds & {Status.EMPTY, Status.NOT_IDENTIFIED}
    return Status.PARTIAL if has_gaps else Status.UNKNOWN_VARIANCE


def _plain(column: Iterable[Any]) -> list[Json]:
    """Make a column JSON: an unknown number is null."""
    return [None if isinstance(x, float) and math.isnan(x) else x for x in column]


def _diagnostics(design: _Design, facts: _Facts) -> tuple[dict[str, Json], list[str]]:
    """Describe judges, their disagreement and what is missing; flag what matters."""
    cells, panel, arms = facts.cells, facts.panel, design.frame.arms
    n_alike, n_repeated = panel.identical_repeats()
    judges = {
        "judge": design.judges,
        "n_answers": panel.count.sum(axis=(1, 2)).astype(int).tolist(),
        "mean": panel.judge_means().tolist(),
        "repeat_variance": panel.repeat_variances().tolist(),
        "identical_share": ratio(n_alike, n_repeated).tolist(),
    }
    reasons: dict[str, Json] = {
        arm: {r.value: n for (at, r), n in sorted(cells.reasons.items()) if at == a}
        for a, arm in enumerate(arms)
    }
    not_applicable = cells.not_applicable.sum(axis=(0, 2))
    got = panel.count.sum(axis=(0, 2)) + not_applicable
    test = missing_test(got, cells.missing.sum(axis=(0, 2)))
    interaction = panel.interaction()
    n_judges = panel.answered.sum(axis=0)
    n_answers = panel.count.sum(axis=(1, 2))
    n_incomplete = int(((n_judges > 0) & (n_judges < len(design.judges))).sum())
    about: dict[str, Json] = {
        "criterion": design.scoring.name,
        "judges": [
            dict(zip(judges, _plain(row), strict=True))
            for row in zip(*judges.values(), strict=True)
        ],
        "interaction": dict(zip(interaction._fields, _plain(interaction), strict=True)),
        "n_incomplete_units": n_incomplete,
        "missing": reasons,
        "missing_test": dict(zip(test._fields, _plain(test), strict=True)),
        "not_applicable": dict(zip(arms, not_applicable.astype(int).tolist(), strict=True)),
    }
    is_notable = {
        # One cell is added that differs, so that a handful of equal cells accuses nobody.
        "identical_repeats": bool((n_alike > ALIKE * (n_repeated + 1)).any()),
        "panel_incomplete": n_incomplete > 0,
        "judge_without_answers": bool((n_judges > 0).any() and (n_answers == 0).any()),
        "missing_differs_by_arm": test.p < DIFFERS,
        "missing_test_rough": test.is_rough,
    }
    return about, [flag for flag, is_so in is_notable.items() if is_so]
