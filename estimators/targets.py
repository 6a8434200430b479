"""What `score_means` is asked for: its settings, and how each number is made of cells."""

from __future__ import annotations

from collections.abc import Callable
from itertools import combinations
from typing import Literal, NamedTuple

import numpy as np
from pydantic import BaseModel, ConfigDict, Field, NonNegativeFloat, PositiveFloat

from estimators.calibration import label_scores
from estimators.cells import Clusters, Mask, Scoring
from estimators.intervals import Array
from orchestrator.core.query import Kind
from orchestrator.core.study import Study

# --- settings ------------------------------------------------------------------------------------


class Contrast(BaseModel):
    """A difference of two arms, `arm` minus `baseline`; within items if `paired`."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    arm: str
    baseline: str
    paired: bool = True


class ScoreMeansConfig(BaseModel):
    """Settings of `score_means`.

    `per` None is `arm`. With a `contrast` the difference is the entry's primary estimate and the
    means `per` follow it; units are followed by the means of arms. `criterion` None is the only
    one, or the composite of several. `population` says what is random: the items too
    (`items_like_these`), or the judges' repeats alone (`these_items`).

    What is None follows the policy, and `check` and `target_half_width` the stop rule. `target`
    says whose judgment: that of this `panel`, with `weights` (equal without, 0 for those that are
    not named), the one score that all judges have in `common`, or that of the `population` of
    judges like these. `calibration: relative` takes judges' offsets to the first one out of a
    common score; `anchors` puts each judge of a panel or a common score on the scale of human
    labels. `reuse_exploration` says whether answers of exploration count in values: `none`,
    or `pooled` with the others; without a policy that splits them all answers count. With an
    `anchor` arms are what that judge says of them, by regression on the others. `check: anytime`
    asks for intervals that hold while one watches, tightest at `target_half_width`.
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
    weights: dict[str, NonNegativeFloat] | None = None
    calibration: Literal["none", "relative", "anchors"] | None = None
    reuse_exploration: Literal["none", "pooled"] | None = None
    anchor: str | None = None
    check: Literal["end", "anytime", "group_sequential"] | None = None
    target_half_width: PositiveFloat | None = None


# --- targets -------------------------------------------------------------------------------------

Weigh = Callable[[Array], Array]
"""From how many answers judges gave about items to the judges' weights in them.

Both are (n_judges, n_items); where there is no answer, the weight is 0.
"""


class Target(NamedTuple):
    """One number: the mean of an arm, of a judge, or the difference of two arms."""

    name: str
    arm: int = 0
    baseline: int | None = None
    is_paired: bool = True
    judge: int | None = None

    @property
    def is_difference(self) -> bool:
        """Whether it is one arm less another."""
        return self.baseline is not None

    def shares(self, counts: Array, weigh: Weigh) -> tuple[Array, ...]:
        """Say how each item's value is made of its cells' means: one array over cells a sample.

        The value is the sum of share times mean; where an item has no value its shares are 0. An
        unpaired difference is made of two samples, the second counted negative.
        """
        if self.judge is not None:
            return (_judge_share(counts, self.judge),)
        if self.baseline is None:
            return (_arm_share(counts, weigh, self.arm),)
        if self.is_paired:
            return (_paired_share(counts, weigh, self.arm, self.baseline),)
        return _arm_share(counts, weigh, self.arm), _arm_share(counts, weigh, self.baseline)

    def by_judge(self, means: Array, answered: Mask) -> list[tuple[Array, Mask]]:
        """Give each judge's own values of items, and on which items all these judges have one.

        One pair of (n_judges, n_items) and (n_items,) a sample, as `shares`.
        """
        shared: Mask = np.all(answered, axis=0)
        one = means[:, self.arm], shared[self.arm]
        if self.baseline is None:
            return [one]
        other = means[:, self.baseline], shared[self.baseline]
        return [(one[0] - other[0], one[1] & other[1])] if self.is_paired else [one, other]


def _even(counts: Mask) -> Array:
    """Share evenly along the first axis among those that count."""
    share: Array = counts / np.maximum(counts.sum(axis=0), 1)
    return share


def proportional(weights: Array) -> Array:
    """Share along the first axis in proportion; 0 where all weights are."""
    total = weights.sum(axis=0)
    share: Array = weights / np.where(total > 0, total, 1.0)
    return share


def _arm_share(counts: Array, weigh: Weigh, arm: int) -> Array:
    share = np.zeros(counts.shape)
    share[:, arm] = proportional(weigh(counts[:, arm]))
    return share


def _paired_share(counts: Array, weigh: Weigh, arm: int, baseline: int) -> Array:
    """Average, over the judges that count in both arms, the differences of their means.

    A difference of n and m answers is as sure as one answer's score by n m/(n + m) answers.
    """
    n, m = counts[:, arm], counts[:, baseline]
    share = np.zeros(counts.shape)
    share[:, arm] = proportional(weigh(n * m / np.maximum(n + m, 1)))
    share[:, baseline] = -share[:, arm]
    return share


def _judge_share(counts: Array, judge: int) -> Array:
    share = np.zeros(counts.shape)
    share[judge] = _even(counts[judge] > 0)
    return share


# --- design --------------------------------------------------------------------------------------


class Design:
    """What the config asks for, resolved in a study.

    Attributes
    ----------
    weights : (n_judges,) of the panel
    labels : (n_arms, n_items) what humans say of the units, NaN where there is none; None without
    is_anchored : whether judges are put on the labels' scale; not where a sample of the items has none
    clusters : of the items; None: each is its own
    arm_pairs : pairs of arms of which judges' offsets are compared

    Raises
    ------
    ValueError
        The config names an arm, judge or criterion that the study lacks, or asks for what goes not
        together or belongs to another estimator.
    """

    def __init__(self, config: ScoreMeansConfig, study: Study) -> None:
        if study.kind is Kind.COMPARE:
            raise ValueError(
                "score_means reads verdicts on units; bradley_terry and bt_tensor read comparisons"
            )
        self.config = config
        self.frame = frame = study.frame
        self.judges = tuple(p.name for p in study.panel)
        self.scoring = Scoring(study, config.criterion)
        self.target = config.target or "panel"
        self.is_watched = config.check == "anytime"
        labels = label_scores(study, self.scoring)
        self.labels = None if labels is None else labels.reshape(-1, frame.n_arms).T.copy()
        _check(config, has_labels=labels is not None)
        has_any = labels is not None and not bool(np.isnan(labels).all())
        self.is_anchored = has_any and config.calibration == "anchors"
        self.weights = self._panel_weights()
        self.anchor = None if config.anchor is None else self._judge("anchor", config.anchor)
        self.clusters: Clusters = frame.cluster
        if len(np.unique(frame.cluster)) == frame.n_items:
            self.clusters = None
        self.difference = (
            None if config.contrast is None else _difference(config.contrast, frame.arms)
        )
        self.arm_pairs = tuple(combinations(range(frame.n_arms), 2))
        if self.difference is not None and self.difference.baseline is not None:
            self.arm_pairs = ((self.difference.arm, self.difference.baseline),)
        self.means = (
            tuple(Target(name, judge=j) for j, name in enumerate(self.judges))
            if config.per == "judge"
            else tuple(Target(name, arm=a) for a, name in enumerate(frame.arms))
        )

    @property
    def unit_names(self) -> tuple[str, ...]:
        """Label all units."""
        return tuple(self.frame.unit_name(u) for u in range(self.frame.n_units))

    @property
    def planned_half_width(self) -> float:
        """Where a watched interval is tightest: at the target, else at 5 % of the span."""
        return self.config.target_half_width or 0.05 * self.scoring.span

    def ends(self, target: Target) -> tuple[float, float]:
        """Give the least and the greatest value that a target can have."""
        span = self.scoring.span
        return (-span, span) if target.is_difference else (self.scoring.low, self.scoring.high)

    def _judge(self, key: str, name: str) -> int:
        if name not in self.judges:
            raise ValueError(f"{key}: no judge {name!r} among {', '.join(self.judges)}")
        return self.judges.index(name)

    def _panel_weights(self) -> Array:
        given = self.config.weights
        if given is None:
            return np.ones(len(self.judges))
        weights = np.zeros(len(self.judges))
        for name, weight in given.items():
            weights[self._judge("weights", name)] = weight
        if not weights.any():
            raise ValueError("weights: all are 0, so no judge would count")
        return weights


def _check(config: ScoreMeansConfig, *, has_labels: bool) -> None:
    """Refuse what goes not together."""
    if config.calibration == "anchors":
        _check_anchors(config, has_labels=has_labels)
    if config.check == "group_sequential":
        raise ValueError("check: score_means has no group-sequential bounds; use end or anytime")
    if config.anchor is not None and config.per == "unit":
        raise ValueError("anchor: it gives means of arms, no scores of units; use per: arm")
    if config.anchor is not None and config.population == "these_items":
        raise ValueError("anchor: it rates a sample of the items; these_items needs all of them")
    if config.anchor is not None and config.target in {"common", "population"}:
        raise ValueError(f"target: with an anchor it is the anchor's own mean, not {config.target}")
    if config.check != "anytime":
        return
    if config.per == "unit":
        raise ValueError("check: scores of units have no sequence that holds anytime; use end")
    if config.population == "these_items":
        raise ValueError("check: anytime needs items that stand for more; with these_items use end")
    if config.target == "population":
        raise ValueError(
            "check: a few judges have no sequence that holds anytime; with target: population use "
            "end"
        )


def _check_anchors(config: ScoreMeansConfig, *, has_labels: bool) -> None:
    if not has_labels:
        raise ValueError("calibration: anchors wants human labels, and there are no labels")
    if config.target == "population":
        raise ValueError(
            "calibration: judges on the labels' scale no longer differ as judges like these do; "
            "with target: population use none"
        )
    if config.anchor is not None:
        raise ValueError("calibration: means of an anchor judge stay on its own scale; use none")


def _difference(contrast: Contrast, arms: tuple[str, ...]) -> Target:
    for name in (contrast.arm, contrast.baseline):
        if name not in arms:
            raise ValueError(f"contrast: no arm {name!r} among {', '.join(arms)}")
    if contrast.arm == contrast.baseline:
        raise ValueError(f"contrast: {contrast.arm!r} is compared with itself")
    return Target(
        f"{contrast.arm} - {contrast.baseline}",
        arm=arms.index(contrast.arm),
        baseline=arms.index(contrast.baseline),
        is_paired=contrast.paired,
    )
