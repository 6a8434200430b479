"""Maps that put judges' scores on one level: the first judge's, or the scale of human labels.

Labels are fitted judge by judge, over the units that have both: by a shift, or by a line where there
are enough of them. The fit's error is the same for all units of a judge, so it is carried along.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from scipy.special import ndtri

from estimators.cells import Clusters, Mask, Panel, Scoring, by_cluster, by_judge, ratio
from estimators.intervals import Array
from estimators.offsets import Offsets
from orchestrator.core.estimate import plain
from orchestrator.core.study import Study
from orchestrator.core.wire import Json

ENOUGH_FOR_A_LINE = 30
"""Labelled items (clusters of them) from which on a judge's scores are stretched too, not only
shifted."""

RELIABLE = 0.5
"""Least part of the spread of a judge's means that must not be repeat noise for a line to be fitted.
Where noise prevails, the correction for it divides by little."""


def label_scores(study: Study, scoring: Scoring) -> Array | None:
    """Score what humans say of each unit, (n_units,), NaN where a part of it lacks a label."""
    if study.labels is None:
        return None
    counts = [weight != 0 for *_, weight in scoring.terms]
    is_whole = ~np.isnan(study.labels[:, counts]).any(axis=1)
    return np.where(is_whole, scoring.low + scoring.of_table(study.labels), np.nan)


class Correction(NamedTuple):
    """Maps each judge's score x to level + slope (x - centre).

    Attributes
    ----------
    level, slope, centre : (n_judges,); the slopes are positive
    is_fitted, has_line : (n_judges,) whether there was enough to fit anything, else the map changes
        nothing; and to fit a slope
    covariance : (p, p) of the levels' errors, then of the slopes' if any was fitted; nan: unknown
    df : (p,) its degrees of freedom; infinite where there is no error
    influence : (p, n_clusters) what each cluster of items adds to these errors, so scaled that its
        product with itself is the covariance; None: they don't go with the items' values
    """

    level: Array
    slope: Array
    centre: Array
    is_fitted: Mask
    has_line: Mask
    covariance: Array
    df: Array
    influence: Array | None = None

    @property
    def kinds(self) -> list[str]:
        """Name what was fitted to each judge."""
        kinds: list[str] = np.where(
            self.has_line, "line", np.where(self.is_fitted, "shift", "none")
        ).tolist()
        return kinds

    def of(self, scores: Array) -> Array:
        """Map scores (n_judges, ...)."""
        level, slope, centre = (
            one.reshape(-1, *[1] * (scores.ndim - 1))
            for one in (self.level, self.slope, self.centre)
        )
        mapped: Array = level + slope * (scores - centre)
        return mapped

    def parts(self, shares: Array, scores: Array) -> Array:
        """Say how much of each error is in Σ_j shares_j y_j: (n_judges, ...) to (p, ...)."""
        if len(self.covariance) == len(shares):
            return shares
        centre = self.centre.reshape(-1, *[1] * (scores.ndim - 1))
        return np.concatenate((shares, shares * (scores - centre)))

    def variance_of(self, parts: Array) -> Array:
        """Give the variance that the errors bring: (p, ...) to (...); nan where it is unknown."""
        known = np.where(np.isnan(self.covariance), 0.0, self.covariance)
        is_unknown = np.isnan(self.covariance.diagonal())
        found = np.einsum("j...,jl,l...->...", parts, known, parts)
        return np.where((parts[is_unknown] != 0).any(axis=0), np.nan, found)

    def df_of(self, parts: Array) -> Array:
        """Give the least degrees of freedom among the errors that take part, as `variance_of`."""
        df = np.broadcast_to(self.df.reshape(-1, *[1] * (parts.ndim - 1)), parts.shape)
        least: Array = np.min(df, axis=0, initial=np.inf, where=parts != 0)
        return least


def to_first_judge(offsets: Offsets) -> Correction:
    """Take offsets to the first judge out."""
    n_judges = len(offsets.value)
    is_fitted = ~np.isnan(offsets.value)
    return Correction(
        level=np.where(is_fitted, -offsets.value, 0.0),
        slope=np.ones(n_judges),
        centre=np.zeros(n_judges),
        is_fitted=is_fitted,
        has_line=np.zeros(n_judges, dtype=bool),
        covariance=offsets.covariance,
        df=offsets.df,
    )


def to_labels(panel: Panel, labels: Array, noise: Array, clusters: Clusters) -> Correction:
    """Fit labels y to each judge's cell means x, over the units that have both.

    The shift takes mean(x - y) out. From 30 labelled clusters on it is a line: the regression of y
    on x. Repeat noise in x would flatten it; so what repeats put into the spread of x, Σ σ²/n, is
    taken off before the slope is formed (method of moments, [F87] chapter 1). What the judge likes
    for reasons of its own flattens it still, as it should: that can't be told from a score. Where
    the noise is unknown the line stays too flat. A shift it is, too, where the spread of x is mostly
    noise, or falls with y.

    Errors are linearised and summed by cluster, with the factor G/(G - 1), for a line G/(G - 2).
    With labels in fewer than two clusters a judge's scores stay as they are.

    Parameters
    ----------
    labels : (n_arms, n_items), NaN where there is none
    noise : (n_judges,) repeat variance, nan where unknown
    clusters : of the items
    """
    shared = panel.answered & ~np.isnan(labels)
    n = by_judge(shared)
    size = by_cluster(shared.sum(axis=1) * 1.0, clusters)
    n_clusters = np.count_nonzero(size, axis=1)
    is_fitted = n_clusters >= 2
    centre, dx = _centred(panel.mean, shared, n)
    level, dy = _centred(np.broadcast_to(labels, shared.shape), shared, n)
    known = np.where(np.isnan(noise), 0.0, noise)[:, None, None]
    wobble = np.where(shared, known / np.maximum(panel.count, 1), 0.0)
    wobble *= (1 - 1 / np.maximum(n, 1))[:, None, None]
    spread, together = by_judge(dx * dx), by_judge(dx * dy)
    left = spread - by_judge(wobble)
    has_line = (n_clusters >= ENOUGH_FOR_A_LINE) & (left > RELIABLE * spread) & (together > 0)
    left = np.where(has_line, left, 1.0)
    slope = np.where(has_line, together / left, 1.0)
    steep = slope[:, None, None]
    rest = dy - steep * dx
    of_level = rest / np.maximum(n, 1)[:, None, None]
    of_slope = (dx * rest + steep * wobble) / left[:, None, None] * has_line[:, None, None]
    df = np.where(is_fitted, n_clusters - 1.0 - has_line, np.inf)
    scale = np.where(is_fitted, np.sqrt(n_clusters / np.where(is_fitted, df, 1.0)), 0.0)
    errors = (of_level, of_slope) if has_line.any() else (of_level,)
    influence = np.concatenate(
        [by_cluster(error.sum(axis=1), clusters) * scale[:, None] for error in errors]
    )
    return Correction(
        level=np.where(is_fitted, level, 0.0),
        slope=slope,
        centre=np.where(is_fitted, centre, 0.0),
        is_fitted=is_fitted,
        has_line=has_line,
        covariance=influence @ influence.T,
        df=np.tile(df, len(errors)),
        influence=influence,
    )


def _centred(values: Array, shared: Mask, n: Array) -> tuple[Array, Array]:
    """Average over each judge's shared units, and give the deviations, 0 elsewhere."""
    mean = by_judge(np.where(shared, values, 0.0)) / np.maximum(n, 1)
    return mean, np.where(shared, values - mean[:, None, None], 0.0)


class Agreement(NamedTuple):
    """How judges' cell means go with the labels, over the units that have both; each (n_judges,).

    `rms` is the root of the mean squared difference. `lower` and `upper` bound the correlation.
    """

    n_units: Array
    bias: Array
    se: Array
    rms: Array
    correlation: Array
    lower: Array
    upper: Array

    def records(self, judges: Sequence[str], **more: Sequence[Json]) -> list[Json]:
        """Give one record a judge, with what else is said of each."""
        columns: dict[str, Sequence[Json]] = {
            "judge": judges,
            "n_units": self.n_units.astype(int).tolist(),
            **{key: getattr(self, key).tolist() for key in self._fields[1:]},
            **more,
        }
        return [
            plain(dict(zip(columns, row, strict=True)))
            for row in zip(*columns.values(), strict=True)
        ]


def agreement(panel: Panel, labels: Array, offsets: Offsets, level: float) -> Agreement:
    """Compare each judge's cell means with the labels.

    The correlation's interval is Fisher's, with the number of clusters for that of units; nan below
    four. It is about means of so many repeats as were asked, whose noise it contains.

    Parameters
    ----------
    labels : (n_arms, n_items), NaN where there is none
    offsets : of the judges to the labels

    Source: [F21].
    """
    shared = panel.answered & ~np.isnan(labels)
    n = by_judge(shared)
    apart = np.where(shared, panel.mean - labels, 0.0)
    _, dx = _centred(panel.mean, shared, n)
    _, dy = _centred(np.broadcast_to(labels, shared.shape), shared, n)
    r = ratio(by_judge(dx * dy), np.sqrt(by_judge(dx * dx) * by_judge(dy * dy)))
    n_clusters = offsets.df + 1
    half = ndtri((1 + level) / 2) * np.sqrt(ratio(np.ones_like(r), n_clusters - 3))
    # A correlation of 1 would have an interval of zero width.
    z = np.arctanh(np.clip(r, -1 + 1e-9, 1 - 1e-9))
    return Agreement(
        n_units=n,
        bias=offsets.value,
        se=offsets.se,
        rms=np.sqrt(ratio(by_judge(apart * apart), n)),
        correlation=np.clip(r, -1.0, 1.0),
        lower=np.tanh(z - half),
        upper=np.tanh(z + half),
    )


def labelled_blocks(labels: Array, n_blocks: int) -> Mask:
    """Say which blocks have a label, (n_blocks,); a block is so many units in a row."""
    found: Mask = np.any(~np.isnan(labels).reshape(n_blocks, -1), axis=1)
    return found
