"""Scores of single units: what the judges would say of each, from their repeats."""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy.special import stdtrit

from estimators.evidence import Evidence
from estimators.intervals import FEW, FLAT, Array, hoeffding, t_interval
from orchestrator.core.estimate import Status

Columns = dict[str, list[Any]]
"""Fields of estimates, each along the names."""


def unit_columns(evidence: Evidence) -> Columns:
    """Estimate every unit; the judges' repeats are random, and for a population the judges too.

    The variance is Σ_j share_j² max(s², noise)/n: a cell's own sample variance, but not less than
    its judge's pooled one. The error of offsets is added for a common score. For a population η²
    and the variance of the judges' levels are added to each judge's part, with Student's quantile
    for the judges alone.
    """
    design, panel = evidence.design, evidence.counted
    level, scoring = design.config.confidence, design.scoring
    share, share_asked = evidence.shares_of(evidence.counts), evidence.shares_of(evidence.asked)
    answered, n = share > 0, np.where(share > 0, evidence.counts, 0)
    is_seen, is_asked, n_answers = answered.any(axis=0), share_asked.any(axis=0), n.sum(axis=0)
    spread = (share * evidence.slope) ** 2 / np.maximum(n, 1)
    noise = np.where(answered, np.maximum(panel.variance, evidence.noise[:, None, None]), 0)
    raw = (share * evidence.mean).sum(axis=0)
    value = np.where(is_seen, np.clip(raw, scoring.low, scoring.high), np.nan)
    variance = (spread * noise).sum(axis=0)
    df = n_answers - answered.sum(axis=0)
    is_known = df > 0
    n_equivalent = 1 / np.where(is_seen, spread.sum(axis=0), 1)
    left, beside = np.full(value.shape, level), np.zeros(value.shape)
    offset_se = np.full(value.shape, np.nan)
    if evidence.is_calibrated:
        correction = evidence.correction
        parts = correction.parts(share, panel.mean)
        offset = correction.variance_of(parts)
        variance, offset_se = variance + offset, np.where(is_seen, np.sqrt(offset), np.nan)
        df_offset = correction.df_of(parts)
        df = np.minimum(df, df_offset)
        # Half of the error is the offset's, where a judge has one.
        is_off = offset > 0
        left[is_off] = (1 + level) / 2
        beside[is_off] = stdtrit(df_offset[is_off], (3 + level) / 4) * offset_se[is_off]
        beside[np.isnan(offset)] = np.inf
    if design.target == "population":
        found = evidence.interaction
        own = max(found.variance, 0.0) + max(found.judge_variance, 0.0)
        by_judge = (share**2).sum(axis=0)
        variance = variance + own * by_judge
        df = answered.sum(axis=0) - 1
        n_equivalent = 1 / np.where(is_seen, by_judge, 1)
    se = np.where(is_seen, np.sqrt(variance), np.nan)
    lower, upper = hoeffding(value, n_equivalent, scoring.span, left, scoring.low, scoring.high)
    lower = np.maximum(lower - beside, scoring.low)
    upper = np.minimum(upper + beside, scoring.high)
    # Answers that are all equal say nothing of their spread.
    many = (n_answers >= FEW) & is_known & (df > 0) & (se > FLAT * scoring.span)
    lower[many], upper[many] = t_interval(
        value[many], se[many], df[many], level, scoring.low, scoring.high
    )
    status = np.where(np.isnan(se), Status.UNKNOWN_VARIANCE, Status.OK)
    columns: dict[str, Array] = {
        "value": value,
        "se": se,
        "lower": lower,
        "upper": upper,
        "interval": np.where(many, "t", np.where(is_seen, "hoeffding", "")),
        "status": np.where(is_seen, status, Status.EMPTY),
        "n_items": is_seen.astype(int),
        "n_answers": n_answers.astype(int),
        "missing": evidence.sums.missing.sum(axis=0).astype(int),
        "offset_se": offset_se,
        **{
            name: np.where(is_asked, (share_asked * end).sum(axis=0), np.nan)
            for name, end in zip(("worst_lower", "worst_upper"), evidence.worst, strict=True)
        },
    }
    # Units are numbered item by item.
    return {name: column.T.ravel().tolist() for name, column in columns.items()}
