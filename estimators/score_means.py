"""Means of scores: per arm, between two arms, per unit, per judge.

A unit's value is what a panel of judges says of it, each judge by its mean over its repeats; or the
score that the judges have in common, or that of judges like these (`target`). An arm's value is the
weighted mean over items. Repeats of a question say more about its item; they are never new items.

What is asked for stands in `targets`, what the answers say in `evidence`, and how numbers and their
intervals are made in `means` and `units`.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from estimators.cells import Cells, Mask, by_judge, ratio
from estimators.evidence import Evidence
from estimators.intervals import FEW, FLAT, Array
from estimators.means import Line, line_of
from estimators.missing import missing_test
from estimators.targets import Contrast, Design, ScoreMeansConfig, Target
from estimators.units import Columns, unit_columns
from orchestrator.core.estimate import Estimate, Status
from orchestrator.core.ports import Plugin
from orchestrator.core.query import MissingReason
from orchestrator.core.records import Record
from orchestrator.core.study import Study
from orchestrator.core.wire import Json

__all__ = [
    "ALIKE",
    "DIFFERS",
    "PLUGIN",
    "Contrast",
    "ScoreMeans",
    "ScoreMeansConfig",
    "fit_score_means",
]

ALIKE = 0.9
"""Share of a judge's cells with equal repeats above which its repeats count as identical.

On a ten-point scale, judges at temperature 1 gave three equal repeats in 16 to 58 % of the cells
and eight in 2 to 36 %, so a much lower bar would accuse honest judges; at temperature 0 nearly all
are equal.
"""

DIFFERS = 0.01
"""Level at which missing verdicts are said to depend on the arm."""


UNKNOWABLE = frozenset({"worst_lower", "worst_upper", "offset_se", "r2"})
"""Columns that hold nan where nothing is known."""


class ScoreMeans:
    """Keeps running sums per unit and judge and turns them into means at a look.

    `update` adds to three sums of one cell, so memory does not grow with the answers. With integer
    scores the estimates are the same to the last bit in any order of telling, with others to about
    1e-12 of the scale.

    Raises
    ------
    ValueError
        The config names an arm, judge or criterion that the study lacks, or asks for what goes not
        together or belongs to another estimator.
    """

    def __init__(self, config: ScoreMeansConfig, study: Study) -> None:
        self._design = Design(config, study)
        self._cells = Cells(study, self._design.scoring)

    def update(self, record: Record) -> None:
        """Take in one told question."""
        self._cells.add(record)

    def estimate(self) -> tuple[Estimate, ...]:
        """Give the difference if a contrast was asked for, then the means `per`.

        Scores of units are followed by the means of arms.
        """
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
    is_pilot: Mask | None = None,
) -> tuple[Estimate, ...]:
    """Fit all answers at once; equal to the last bit to `ScoreMeans` told them in this order.

    Parameters
    ----------
    unit, judge : (n,) int64, indices as in the study, one entry an asked question
    values : (n, n_criteria) float64 on each criterion's scale, NaN where it does not apply
    missing : (n,) why there is no verdict, None where there is one; None: all have one
    is_pilot : (n,) bool, what was asked to explore; None: nothing

    Raises
    ------
    ValueError
        As `ScoreMeans`.
    """
    design = Design(config, study)
    cells = Cells(study, design.scoring)
    cells.add_table(
        unit,
        judge,
        values,
        [None] * len(unit) if missing is None else missing,
        np.zeros(len(unit), dtype=bool) if is_pilot is None else is_pilot,
    )
    return _estimates(design, cells)


# --- estimates -----------------------------------------------------------------------------------


def _estimates(design: Design, cells: Cells) -> tuple[Estimate, ...]:
    """Turn sums into the estimates that the config asks for."""
    config, evidence = design.config, Evidence(design, cells)
    about, common_flags = _diagnostics(design, evidence)
    unused = {
        *(() if evidence.is_calibrated else ("offset_se",)),
        *(() if design.anchor is not None else ("n_anchored", "r2")),
    }

    def estimate(target: str, names: Sequence[str], columns: Columns, n_items: int) -> Estimate:
        numbers = {key: tuple(columns.pop(key)) for key in ("value", "se", "lower", "upper")}
        status = _overall(columns["status"])
        is_notable = {
            "few_clusters": _is_few(columns.get("n_effective", ())),
            "no_answers": status is Status.EMPTY,
            "skewed": any(columns.pop("is_skewed", ())),
        }
        flags = [*common_flags, *(flag for flag, is_so in is_notable.items() if is_so)]
        by_name: dict[str, Json] = {
            key: _plain(column) if key in UNKNOWABLE else column
            for key, column in columns.items()
            if key not in unused
        }
        return Estimate(
            name=config.name,
            kind=config.kind,
            target=target,
            estimand=_estimand(design, target),
            names=tuple(names),
            **numbers,
            level=config.confidence,
            interval=" + ".join(dict.fromkeys(filter(None, columns["interval"]))),
            watching_covered=design.is_watched,
            alpha_split="none",
            family="each name by itself",
            n_items=n_items,
            n_answers=sum(columns["n_answers"]),
            status=status,
            flags=tuple(flags),
            diagnostics={**about, "by_name": by_name},
        )

    def of_targets(targets: Sequence[Target]) -> Columns:
        lines = [line_of(evidence, target) for target in targets]
        return dict(zip(Line._fields, map(list, zip(*lines, strict=True)), strict=True))

    n_items = int(evidence.answered.any(axis=(0, 1)).sum())
    found = []
    if design.difference is not None:
        columns = of_targets([design.difference])
        n_compared = columns["n_items"][0]
        found.append(estimate("difference", [design.difference.name], columns, n_compared))
    if config.per == "unit":
        found.append(estimate("units", design.unit_names, unit_columns(evidence), n_items))
    target = "judges" if config.per == "judge" else "arms"
    names = [t.name for t in design.means]
    found.append(estimate(target, names, of_targets(design.means), n_items))
    return tuple(found)


def _is_few(n_effective: Sequence[float]) -> bool:
    return any(0 < n < FEW * (1 - FLAT) for n in n_effective)


def _estimand(design: Design, target: str) -> str:
    config = design.config
    items = "these items" if config.population == "these_items" else "items like these"
    match design.target:
        case "common":
            whose = "the score that all judges have in common"
            if config.calibration == "relative":
                whose += f", on the level of {design.judges[0]}"
        case "population":
            whose = "judged by judges like these"
        case _:
            whose = "judged by this panel" + (", weighted" if config.weights else "")
    if design.anchor is not None:
        whose = f"judged by {design.judges[design.anchor]}"
    scale = ", on the labels' scale" if design.is_anchored else ""
    whose += scale
    match target:
        case "units":
            return f"expected score of each unit, {whose}"
        case "judges":
            return f"mean over {items}, as each judge rates them{scale}"
        case "difference":
            is_paired = config.contrast is not None and config.contrast.paired
            what = "mean paired difference" if is_paired else "difference of means"
            return f"{what} over {items}, {whose}"
        case _:
            return f"mean over {items}, {whose}"


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


def _record(values: Any) -> dict[str, Json]:
    """Make a named tuple of numbers JSON."""
    return dict(zip(values._fields, _plain(values), strict=True))


def _table(columns: dict[str, Any]) -> list[Json]:
    """Make columns a list of records."""
    return [
        dict(zip(columns, _plain(row), strict=True)) for row in zip(*columns.values(), strict=True)
    ]


# --- what must be known beside the numbers -------------------------------------------------------


def _diagnostics(design: Design, evidence: Evidence) -> tuple[dict[str, Json], list[str]]:
    """Describe judges, their disagreement and what is missing; flag what matters."""
    cells, panel, arms = evidence.cells, evidence.own, design.frame.arms
    n_alike, n_repeated = panel.identical_repeats()
    judges = {
        "judge": design.judges,
        "n_answers": by_judge(panel.count).astype(int).tolist(),
        "mean": panel.judge_means().tolist(),
        "repeat_variance": panel.repeat_variances().tolist(),
        "identical_share": ratio(n_alike, n_repeated).tolist(),
    }
    reasons: dict[str, Json] = {
        arm: {r.value: n for (at, r), n in sorted(cells.reasons.items()) if at == a}
        for a, arm in enumerate(arms)
    }
    whole = evidence.whole
    not_applicable = whole.not_applicable.sum(axis=(0, 2))
    got = whole.count.sum(axis=0) + whole.not_applicable.sum(axis=0)
    missing = whole.missing.sum(axis=0)
    test = missing_test(got, missing, design.clusters)
    is_counted = design.weights > 0
    n_judges = (evidence.counted.answered & is_counted[:, None, None]).sum(axis=0)
    n_incomplete = int(((n_judges > 0) & (n_judges < is_counted.sum())).sum())
    asked = (got + missing).sum(axis=1)
    about: dict[str, Json] = {
        "criterion": design.scoring.name,
        "judges": _table(judges),
        "interaction": _record(evidence.interaction),
        "n_incomplete_units": n_incomplete,
        "missing": reasons,
        "missing_share": dict(
            zip(arms, _plain(ratio(missing.sum(axis=1), asked).tolist()), strict=True)
        ),
        "missing_test": _record(test),
        "not_applicable": dict(zip(arms, not_applicable.astype(int).tolist(), strict=True)),
    }
    is_notable = {
        # One cell is added that differs, so that a handful of equal cells accuses nobody.
        "identical_repeats": bool((n_alike > ALIKE * (n_repeated + 1)).any()),
        "panel_incomplete": design.target == "panel" and design.anchor is None and n_incomplete > 0,
        "judge_without_answers": bool(
            (n_judges > 0).any() and (by_judge(evidence.every.count) == 0)[is_counted].any()
        ),
        "missing_differs_by_arm": test.p < DIFFERS,
        "missing_test_rough": test.is_rough,
    }
    if len(design.judges) > 1:
        more, flags = _disagreement(design, evidence)
        about |= more
        is_notable |= flags
    if evidence.agreement is not None:
        about["labels"] = _labels(design, evidence)
    is_notable |= _anchor_flags(design, evidence)
    is_notable["bias_depends_on_arm"] = evidence.bias_depends_on_arm
    if evidence.is_reused:
        about["unbiased"] = False
    is_notable["exploration_reused"] = evidence.is_reused
    return about, [flag for flag, is_so in is_notable.items() if is_so]


def _labels(design: Design, evidence: Evidence) -> list[Json]:
    """Show how judges agree with the labels, and what was made of that."""
    found, correction = evidence.agreement, evidence.correction
    assert found is not None
    if not evidence.is_anchored:
        return found.records(design.judges)
    slope = correction.slope.tolist()
    return found.records(design.judges, correction=correction.kinds, slope=slope)


def _anchor_flags(design: Design, evidence: Evidence) -> dict[str, bool]:
    if not evidence.is_anchored:
        return {"judge_without_labels": design.config.calibration == "anchors"}
    correction = evidence.correction
    return {
        "judge_without_labels": not correction.is_fitted.all(),
        "slope_attenuated": bool((correction.has_line & np.isnan(evidence.every.noise)).any()),
    }


def _disagreement(design: Design, evidence: Evidence) -> tuple[dict[str, Json], dict[str, bool]]:
    """Show how judges differ, and flag what a target takes for granted and these judges are not."""
    offsets, span = evidence.offsets, design.scoring.span
    by_arm = {f"in {arm}": offsets.by_arm[:, a].tolist() for a, arm in enumerate(design.frame.arms)}
    about: dict[str, Json] = {
        "disagreement": _record(evidence.disagreement),
        "offsets": _table(
            {
                "judge": design.judges,
                "offset": offsets.value.tolist(),
                "se": offsets.se.tolist(),
                "n_units": offsets.n_units.astype(int).tolist(),
                **(by_arm if design.frame.n_arms > 1 else {}),
            }
        ),
        "offset_arm_test": _record(offsets.arms),
    }
    is_common, is_population = design.target == "common", design.target == "population"
    return about, {
        "judges_disagree": is_common and offsets.are_notable(span),
        "offset_depends_on_arm": is_common and evidence.offset_depends_on_arm,
        "interaction_exceeds_noise": (is_common or is_population) and evidence.exceeds_noise,
        "judge_without_offset": not evidence.has_offset.all(),
        "judges_no_random_sample": is_population,
    }
