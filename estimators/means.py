"""Means of arms and of judges, and differences of arms: the value and its interval."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from scipy.special import ndtri, stdtrit

from estimators.cells import Mask
from estimators.confidence_sequences import sequence_half_width
from estimators.disagreement import Spread, judge_spread
from estimators.evidence import Evidence
from estimators.intervals import (
    FEW,
    FLAT,
    Array,
    ClusterMean,
    Interval,
    betting,
    cluster_mean,
    hoeffding,
    pooled_df,
    t_interval,
    wilson,
    within,
)
from estimators.regression import two_phase_mean
from estimators.targets import Design, Target
from orchestrator.core.estimate import Status

MOSTLY = 0.9
"""Share of equal values above which a sample says little of the others."""

SKEWED = 0.25
"""Skewness of a mean, in standard deviations, above which Student's interval is said to be off.

Skewness over √n; at .25 its two-sided error of 5 % is 6 to 8 %, most of it at one side.
"""


class Line(NamedTuple):
    """What an estimate says of one name.

    `offset_se` is the part of `se` that comes from judges' offsets; `n_anchored` and `r2` belong to
    a regression on helpers.
    """

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
    is_skewed: bool = False
    offset_se: float = np.nan
    n_anchored: int = 0
    r2: float = np.nan


class Beside(NamedTuple):
    """A part of the error that is the same for all items: its variance, degrees of freedom.

    `by_cluster` is what each cluster of items adds to it; None where that has nothing to do with the
    items' values.
    """

    variance: float = 0.0
    df: float = np.inf
    by_cluster: Array | None = None

    def share(self, level: float) -> tuple[float, float]:
        """Split the error of an interval: the level left for the rest, the half-width of this."""
        if not self.variance:
            return level, 0.0
        left = (1 + level) / 2
        return left, float(stdtrit(self.df, (1 + left) / 2)) * math.sqrt(self.variance)

    def parts(self, samples: Sequence[ClusterMean], span: float) -> list[tuple[float, float]]:
        """Give the parts of the variance of these samples' means with this error, and their df.

        What goes with the items' values is added to them cluster by cluster; the clusters that it
        rests on and the others are the parts. If that leaves nothing (every label equal, every unit
        labelled), it is taken for independent, which is too much and no lie.
        """
        apart = [(s.variance, float(s.df)) for s in samples]
        if self.by_cluster is not None:
            error, has_value = self.by_cluster.copy(), np.zeros(len(self.by_cluster), dtype=bool)
            for sign, s in zip((1, -1), samples, strict=False):
                n = len(s.clusters)
                error[s.clusters] += (
                    sign * s.shares * (s.means - s.mean) * math.sqrt(n / max(n - 1, 1))
                )
                has_value[s.clusters] = True
            rests_on = self.by_cluster != 0
            others = has_value & ~rests_on
            square = error * error
            joint = [
                (float(square[rests_on].sum()), self.df),
                (float(square[others].sum()), max(float(others.sum()) - 1, 1.0)),
            ]
            if sum(v for v, _ in joint) > (FLAT * span) ** 2:
                return joint
        return [*apart, (self.variance, self.df)] if self.variance else apart


def line_of(evidence: Evidence, target: Target) -> Line:
    """Estimate one number, and bound it as if every missing verdict stood at a scale's end."""
    design = evidence.design
    anchor = design.anchor if target.judge is None else None
    line = (
        _line_of_answers(evidence, target)
        if anchor is None
        else _anchored(evidence, target, anchor)
    )
    if not evidence.has_missing:
        return line._replace(worst_lower=line.value, worst_upper=line.value)

    def weigh(counts: Array) -> Array:
        """Let the anchor alone count, if there is one."""
        if anchor is None:
            return evidence.weigh(counts)
        return np.where(np.arange(len(counts))[:, None] == anchor, counts > 0, 0.0)

    shares = target.shares(evidence.asked, weigh)
    counted = _counted(shares)
    if not all(items.any() for items in counted):
        return line
    a = coefficients(design, shares, counted)
    lower, upper = evidence.worst
    shift = 0.0
    if anchor is not None:
        # The bounds move the anchor's own mean; the regression's is moved as far.
        own = target.shares(evidence.counts, weigh)
        counted = _counted(own)
        if not all(items.any() for items in counted):
            return line
        shift = line.value - float((coefficients(design, own, counted) * evidence.mean).sum())
    return line._replace(
        missing=int(evidence.sums.missing[a != 0].sum()),
        worst_lower=float((a * np.where(a > 0, lower, upper)).sum()) + shift,
        worst_upper=float((a * np.where(a > 0, upper, lower)).sum()) + shift,
    )


def coefficients(design: Design, shares: Sequence[Array], counted: Sequence[Mask]) -> Array:
    """Write a target as the sum of coefficient * cell mean.

    Parameters
    ----------
    shares : over cells, one array a sample; the second is counted negative
    counted : (n_items,) the items that have a value in a sample
    """
    parts = []
    for sign, share, items in zip((1, -1), shares, counted, strict=False):
        weight = design.frame.weight * items
        parts.append(share * (sign * weight / weight.sum()))
    total: Array = parts[0] if len(parts) == 1 else parts[0] + parts[1]
    return total


def _counted(shares: Sequence[Array]) -> list[Mask]:
    """Say which items have a value in each sample, (n_items,)."""
    return [np.asarray(share.any(axis=(0, 1))) for share in shares]


def _line_of_answers(evidence: Evidence, target: Target) -> Line:
    design = evidence.design
    shares = target.shares(evidence.counts, evidence.weigh)
    counted = _counted(shares)
    if not all(items.any() for items in counted):
        is_apart = target.is_difference and evidence.answered.any()
        return Line(status=Status.NOT_IDENTIFIED if is_apart else Status.EMPTY)
    a = coefficients(design, shares, counted)
    line = Line(
        status=Status.OK,
        n_items=int(np.any(counted, axis=0).sum()),
        n_answers=int(evidence.counts[a != 0].sum()),
    )
    if target.is_difference and design.target == "common" and evidence.differs_by_arm:
        return line._replace(status=Status.NOT_IDENTIFIED)
    beside = _offset_error(evidence, a)
    if math.isnan(beside.variance):
        return _unbounded(design, target, line._replace(value=float((a * evidence.mean).sum())))
    if evidence.is_calibrated:
        line = line._replace(offset_se=math.sqrt(beside.variance))
    if design.config.population == "these_items":
        return _of_these_items(evidence, target, a, beside, line)
    weight, cluster = design.frame.weight, design.frame.cluster
    samples = [
        cluster_mean((share * evidence.mean).sum(axis=(0, 1))[items], weight[items], cluster[items])
        for share, items in zip(shares, counted, strict=True)
    ]
    return _of_items_like_these(evidence, target, samples, a, beside, line)


def _offset_error(evidence: Evidence, a: Array) -> Beside:
    """Give what the error of the judges' corrections, which all their items share, adds."""
    if not evidence.is_calibrated:
        return Beside()
    correction = evidence.correction
    parts = correction.parts(a, evidence.counted.mean).sum(axis=(1, 2))
    parts[np.abs(parts) < FLAT] = 0.0
    by_cluster = None if correction.influence is None else parts @ correction.influence
    return Beside(float(correction.variance_of(parts)), float(correction.df_of(parts)), by_cluster)


# --- items like these ----------------------------------------------------------------------------


def _of_items_like_these(
    evidence: Evidence,
    target: Target,
    samples: Sequence[ClusterMean],
    a: Array,
    beside: Beside,
    line: Line,
) -> Line:
    """Take the clusters as the sample; repeats and judges are in their spread."""
    design = evidence.design
    level, scoring, first = design.config.confidence, design.scoring, samples[0]
    line = line._replace(
        value=first.mean - sum(s.mean for s in samples[1:]),
        n_clusters=min(len(s.clusters) for s in samples),
        n_effective=min(s.effective for s in samples),
    )
    is_thin = any(s.is_thin(scoring.span) for s in samples)
    if not is_thin:
        line = line._replace(is_skewed=any(_is_skewed(s.means) for s in samples))
    if design.target == "population" and target.judge is None:
        return _of_judges_like_these(evidence, target, samples, a, line)
    parts = beside.parts(samples, scoring.span)
    variance = sum(v for v, _ in parts)
    if design.is_watched and is_thin:
        return _unbounded(design, target, line)
    if design.is_watched:
        return _watched(design, target, line, variance)
    is_one_each = line.n_answers == line.n_items == len(first.shares)
    is_even = float(np.ptp(first.shares)) < FLAT
    is_plain = scoring.is_boolean and not target.is_difference and not evidence.is_calibrated
    if is_plain and is_one_each and is_even:
        interval = wilson(round(line.value * line.n_items), line.n_items, level)
        return _finished(
            design, target, line._replace(is_skewed=False), variance, interval, "wilson"
        )
    if is_thin:
        left, half = beside.share(level)
        shift = 0.0
        if evidence.is_calibrated and not evidence.is_anchored:
            # Shifts cancel in differences, and what judges said stays within the scale.
            shift = float((a * (evidence.counted.mean - evidence.mean)).sum())
            lower, upper = _bet(
                target, _uncorrected(evidence, target), left, (scoring.low, scoring.high)
            )
        else:
            lower, upper = _bet(target, samples, left, evidence.ends)
        interval = Interval(lower - shift - half, upper - shift + half)
        return _finished(design, target, line, variance, interval, "betting")
    return _student(design, target, line, parts, "t" if len(samples) == 1 else "welch")


def _student(
    design: Design, target: Target, line: Line, parts: Sequence[tuple[float, float]], method: str
) -> Line:
    """Add the variances of independent parts, with Welch's degrees of freedom."""
    variance = sum(v for v, _ in parts)
    df = variance**2 / sum(v**2 / n for v, n in parts)
    interval = t_interval(
        line.value, math.sqrt(variance), df, design.config.confidence, -np.inf, np.inf
    )
    return _finished(design, target, line, variance, interval, method)


def _finished(
    design: Design, target: Target, line: Line, variance: float, interval: Interval, method: str
) -> Line:
    """Cut at the ends of the scale, and give a standard error that is neither 0 nor unknown.

    Equal values and single clusters have none of their own; theirs is the one that their interval
    implies.
    """
    value, (lower, upper) = within(line.value, interval, *design.ends(target))
    implied = float(upper - lower) / (2 * float(ndtri((1 + design.config.confidence) / 2)))
    return line._replace(
        value=value,
        se=math.sqrt(variance) if variance > (FLAT * design.scoring.span) ** 2 else implied,
        lower=float(lower),
        upper=float(upper),
        interval=method,
    )


def _uncorrected(evidence: Evidence, target: Target) -> list[ClusterMean]:
    """Average what judges said, their offsets still in it."""
    frame, found = evidence.design.frame, []
    for share in target.shares(evidence.counts, evidence.weigh):
        items = share.any(axis=(0, 1))
        values = (share * evidence.counted.mean).sum(axis=(0, 1))[items]
        found.append(cluster_mean(values, frame.weight[items], frame.cluster[items]))
    return found


def _bet(
    target: Target, samples: Sequence[ClusterMean], level: float, ends: tuple[float, float]
) -> Interval:
    """Bet on the clusters' values, mapped to [0, 1]; `ends` are those of a score.

    A difference of two samples is, up to scale, the mean of the one and of the other mirrored;
    what both say of one cluster is joined first, for it may hang together.
    """
    least, most = ends
    low, high = (least - most, most - least) if target.is_difference else ends
    if len(samples) == 1:
        values = (samples[0].means - low) / (high - low)
    else:
        arm, baseline = samples
        values = np.concatenate((arm.means - least, most - baseline.means))
        values /= most - least
    joined = cluster_mean(
        values,
        np.concatenate([s.shares for s in samples]),
        np.concatenate([s.clusters for s in samples]),
    )
    bounds = betting(np.clip(joined.means, 0, 1), level, joined.shares)
    return Interval(low + (high - low) * bounds.lower, low + (high - low) * bounds.upper)


def _watched(design: Design, target: Target, line: Line, variance: float) -> Line:
    """Bound the mean at all looks at once."""
    half = sequence_half_width(
        math.sqrt(variance), design.config.confidence, design.planned_half_width
    )
    interval = Interval(np.array(line.value - half), np.array(line.value + half))
    return _finished(design, target, line, variance, interval, "asymptotic sequence")


def _unbounded(design: Design, target: Target, line: Line) -> Line:
    """Let the value stand without an interval."""
    low, high = design.ends(target)
    return line._replace(
        value=min(max(line.value, low), high),
        interval="none",
        status=Status.UNKNOWN_VARIANCE,
    )


def _is_skewed(values: Array) -> bool:
    """Say whether a sample is too skewed, or too nearly constant, for Student's interval."""
    n = len(values)
    left = values - values.sum() / n
    square = left * left
    variance = float(square.sum()) / n
    if variance == 0:
        return True
    third = float((square * left).sum()) / n
    # If most values are equal, the middle one is among them.
    middle = np.partition(values, n // 2)[n // 2]
    n_equal = np.count_nonzero(np.abs(values - middle) <= FLAT * math.sqrt(variance))
    return abs(third) > SKEWED * math.sqrt(n) * variance**1.5 or bool(n_equal > MOSTLY * n)


def _of_judges_like_these(
    evidence: Evidence, target: Target, samples: Sequence[ClusterMean], a: Array, line: Line
) -> Line:
    """Take the judges as a sample too: the variance of their levels comes on top.

    Var = variance between clusters + σ² Σ A_j², with σ² that of levels, where A_j is the judge's part of the value, with
    Student's quantile for the judges alone.
    """
    design = evidence.design
    level, (low, high) = design.config.confidence, design.ends(target)
    spread, parts = _levels(evidence, target, a)
    if spread is None:
        return _unbounded(design, target, line)
    variance = sum(s.variance for s in samples) + spread.of_levels * parts
    if any(s.is_thin(design.scoring.span) for s in samples):
        left = (1 + level) / 2
        half = (high - low) * math.sqrt(math.log(2 / (1 - left)) * parts / 2)
        lower, upper = _bet(target, samples, left, evidence.ends)
        return _finished(
            design, target, line, variance, Interval(lower - half, upper + half), "betting"
        )
    df = spread.n_judges - 1
    interval = t_interval(line.value, math.sqrt(variance), df, level, -np.inf, np.inf)
    return _finished(design, target, line, variance, interval, "t")


def _levels(evidence: Evidence, target: Target, a: Array) -> tuple[Spread | None, float]:
    """Compare the judges' own values of a number; with Σ A_j² over their parts of it."""
    explored = evidence.explored
    takes_part = explored.answered.any(axis=(1, 2))
    spread = None
    if takes_part.any():
        spread = judge_spread(
            target.by_judge(explored.mean[takes_part], explored.answered[takes_part])
        )
    by_judge = a[:, target.arm].sum(axis=1)
    return spread, float((by_judge * by_judge).sum())


# --- these items ---------------------------------------------------------------------------------


def _of_these_items(
    evidence: Evidence, target: Target, a: Array, beside: Beside, line: Line
) -> Line:
    """Take the items as given: only what a judge would say at another time is random.

    The variance is the sum over cells of a² s²/n, each cell with its own s²: pooled over cells
    that differ in noise and in number it would be wrong by any factor. Where cells lack repeats,
    or few degrees of freedom stand behind it, Hoeffding's bound needs none.
    """
    design, panel = evidence.design, evidence.counted
    level, span = design.config.confidence, design.scoring.span
    value = float((a * evidence.mean).sum())
    if design.target == "population" and target.judge is None:
        return _of_these_items_and_judges(evidence, target, a, line._replace(value=value))
    takes_part = a != 0
    raw = a * evidence.slope
    spread, df = (raw * raw / np.maximum(panel.count, 1))[takes_part], panel.df[takes_part]
    parts = spread * panel.variance[takes_part]
    is_repeated, noise = bool(df.all()), float(parts.sum())
    if not is_repeated:
        judges, pooled = np.nonzero(takes_part)[0], evidence.noise
        noise = float((spread * pooled[judges]).sum())
    noise = noise if noise > 0 else np.nan
    variance = noise + beside.variance
    line = line._replace(value=value)
    if is_repeated and noise > 0 and (df_noise := pooled_df(parts, df)) >= FEW:
        df_all = variance**2 / (noise**2 / df_noise + beside.variance**2 / beside.df)
        interval = t_interval(value, math.sqrt(variance), df_all, level, -np.inf, np.inf)
        return _finished(design, target, line, variance, interval, "t")
    left, half = beside.share(level)
    lower, upper = hoeffding(value, 1 / spread.sum(), span, left, -np.inf, np.inf)
    interval = Interval(lower - half, upper + half)
    line = _finished(design, target, line, variance, interval, "hoeffding")
    return line._replace(
        se=math.sqrt(variance),
        status=Status.UNKNOWN_VARIANCE if math.isnan(noise) else Status.OK,
    )


def _of_these_items_and_judges(evidence: Evidence, target: Target, a: Array, line: Line) -> Line:
    """Take the items as given and the judges as a sample: the spread of their own values."""
    design = evidence.design
    spread, parts = _levels(evidence, target, a)
    variance = np.nan if spread is None else spread.variance * parts
    if spread is None or variance <= (FLAT * design.scoring.span) ** 2:
        return _unbounded(design, target, line)
    interval = t_interval(
        line.value,
        math.sqrt(variance),
        spread.n_judges - 1,
        design.config.confidence,
        -np.inf,
        np.inf,
    )
    return _finished(design, target, line, variance, interval, "t")


# --- by the anchor -------------------------------------------------------------------------------


def _anchored(evidence: Evidence, target: Target, anchor: int) -> Line:
    """Estimate what the anchor says, by regression on what the others say of more items."""
    design, frame = evidence.design, evidence.design.frame
    values = np.where(evidence.answered, evidence.mean, np.nan)
    arms = [target.arm] if target.baseline is None else [target.arm, target.baseline]
    sides = [values[:, arm] for arm in arms]
    if target.baseline is not None and target.is_paired:
        sides = [sides[0] - sides[1]]
    if any(np.isnan(side[anchor]).all() for side in sides):
        is_apart = target.is_difference and evidence.answered[anchor].any()
        return Line(status=Status.NOT_IDENTIFIED if is_apart else Status.EMPTY)
    found = [
        two_phase_mean(side[anchor], np.delete(side, anchor, axis=0).T, frame.weight, frame.cluster)
        for side in sides
    ]
    is_thin = any(f.is_thin(design.scoring.span) for f in found)
    # Where little is anchored the interval rests on the anchor alone, and so does the value.
    means = [f.alone.mean if is_thin else f.value for f in found]
    line = Line(
        status=Status.OK,
        value=means[0] - sum(means[1:]),
        n_items=int(np.any([~np.isnan(side).all(axis=0) for side in sides], axis=0).sum()),
        n_clusters=min(f.n_clusters for f in found),
        n_effective=min(f.effective for f in found),
        n_answers=int(evidence.counts[:, arms].sum()),
        n_anchored=min(f.n_anchored for f in found),
        r2=found[0].r2,
        is_skewed=not is_thin and any(_is_skewed(f.alone.means) for f in found),
    )
    if design.is_watched and is_thin:
        return _unbounded(design, target, line)
    if design.is_watched:
        return _watched(design, target, line, sum(f.variance for f in found))
    if is_thin:
        alone = [f.alone for f in found]
        interval = _bet(target, alone, design.config.confidence, evidence.ends)
        return _finished(design, target, line, sum(s.variance for s in alone), interval, "betting")
    parts = [(f.variance, f.df) for f in found]
    return _student(design, target, line, parts, "t" if len(found) == 1 else "welch")
