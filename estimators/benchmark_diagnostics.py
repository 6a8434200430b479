"""Whether subjects of a benchmark differ, and whether their differences can be seen twice.

Three looks at one question, how much of a score belongs to its subjects: a score splits into halves
that agree (`split_half`), a law of chances that spreads or not (`heterogeneity`), and subjects that
are hard for the same systems (`subject_correlations`). They show that items of a subject have
something in common. That items could be drawn for ever from the same subjects is an assumption, and
nothing here tests it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import gammaincc

from estimators.beta_binomial import BetaBinomialFit, BetaBinomialStatus, fit_beta_binomial
from estimators.intervals import Array

Labels = NDArray[np.int64]


# --- halves ------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class SplitHalf:
    """Agreement of two random halves of every subject, over subjects.

    Attributes
    ----------
    r : mean over splits of Pearson's correlation between the halves' means; nan where no split had
        one
    spearman_brown : 2 r/(1 + r), what r would be between whole subjects of this length
    splits : (n_splits,) each correlation, nan where a half had no variance
    n_splits : that had a correlation
    n_subjects : with two scores or more
    """

    r: float
    spearman_brown: float
    splits: Array
    n_splits: int
    n_subjects: int


def split_half(
    scores: ArrayLike,
    subject: ArrayLike,
    rng: np.random.Generator,
    *,
    n_splits: int = 100,
    centre: ArrayLike | None = None,
) -> SplitHalf:
    """Split every subject's items into random halves and correlate the halves' means.

    Where subjects are alike the correlation is about 0, and a single one has an error of about
    1/√subjects. It needs three subjects of two items or more.

    Parameters
    ----------
    scores : (n_items,) any scale; nan where there is no score: left out
    subject : (n_items,) numbers from 0
    centre : (n_subjects,) the domain of each subject, whose mean is taken off each half, so that
        differences between domains do not count; None: nothing is taken off
    n_splits : to average over

    Raises
    ------
    ValueError
        Shapes differ, or n_splits is below 1.

    Source: [S10], [B10] for the halves; Pearson's r averaged as it is.
    Determinism: n_splits · n_items whole numbers from `rng`.
    """
    x, label = _items(scores, subject)
    if n_splits < 1:
        raise ValueError(f"n_splits is {n_splits}; it must be 1 or more")
    size = np.bincount(label)
    kept = np.flatnonzero(size >= 2)
    domain = None if centre is None else _domains(centre, kept)
    start = np.concatenate(([0], np.cumsum(size)))
    order = np.argsort(label, kind="stable")
    x, label = x[order], label[order]
    is_first = np.arange(len(label)) - start[label] < size[label] // 2
    first, second = size // 2, size - size // 2
    found = np.full(n_splits, np.nan)
    if len(kept) >= 3:
        for split in range(n_splits):
            # One sort of whole numbers: subjects in order, items within them in a random one.
            shuffled = x[np.argsort((label << 40) + rng.integers(0, 1 << 40, len(x)))]
            left = np.bincount(label[is_first], shuffled[is_first], len(size))
            right = np.bincount(label[~is_first], shuffled[~is_first], len(size))
            halves = np.stack((left[kept] / first[kept], right[kept] / second[kept]))
            found[split] = _pearson(*(halves if domain is None else _centred(halves, domain)))
    has_r = ~np.isnan(found)
    r = float(found[has_r].mean().clip(-1, 1)) if has_r.any() else np.nan
    return SplitHalf(
        r=r,
        spearman_brown=-np.inf if r == -1 else 2 * r / (1 + r),
        splits=found,
        n_splits=int(has_r.sum()),
        n_subjects=len(kept),
    )


# --- heterogeneity -----------------------------------------------------------------------------


class SubjectSpread(NamedTuple):
    """How the subjects of one domain, or of all, differ.

    Attributes
    ----------
    domain : its number; -1 for all
    n_subjects : with an answer
    mean, sd : of the subjects' shares, unweighted; sd with n - 1 and with sampling noise in it, nan
        for one subject
    fit : the law of chances: its `icc`, `sd` without noise, `p_value` of no spread, and status
    """

    domain: int
    n_subjects: int
    mean: float
    sd: float
    fit: BetaBinomialFit


@dataclass(frozen=True, slots=True, kw_only=True)
class Heterogeneity:
    """Spread of subjects in all and in each domain, and whether the domains have one law.

    Attributes
    ----------
    pooled : all subjects
    domains : each domain, by number
    ratio, df, p_value : twice the log-likelihood of separate laws over that of one, two parameters a
        further domain, by chi-square; nan where the law of a domain is not identified. Domains may be
        pooled only where this does not speak against it.
    """

    pooled: SubjectSpread
    domains: tuple[SubjectSpread, ...]
    ratio: float
    df: int
    p_value: float


def heterogeneity(k: ArrayLike, n: ArrayLike, domain: ArrayLike | None = None) -> Heterogeneity:
    """Describe how the chances of subjects spread, by domain, and compare the domains.

    Parameters
    ----------
    k, n : (S,) right answers and answers; subjects with n = 0 are left out
    domain : (S,) numbers; None: one domain

    Raises
    ------
    ValueError
        As in `fit_beta_binomial`.

    Source: [S48]; likelihood ratios, with chi-square limits in the interior of phi > 0.
    """
    right, answers = np.asarray(k, dtype=np.float64), np.asarray(n, dtype=np.float64)
    member = np.zeros(answers.shape, dtype=np.int64) if domain is None else np.asarray(domain)
    if member.shape != answers.shape or right.shape != answers.shape:
        raise ValueError(f"k, n, domain have shapes {right.shape}, {answers.shape}, {member.shape}")
    present = [int(d) for d in np.unique(member[answers > 0])]
    pooled = _spread(-1, right, answers)
    parts = tuple(_spread(d, right[member == d], answers[member == d]) for d in present)
    df = 2 * (len(parts) - 1)
    ratio = 2 * (sum(part.fit.loglik for part in parts) - pooled.fit.loglik)
    is_known = all(part.fit.status is not BetaBinomialStatus.NOT_IDENTIFIED for part in parts)
    ratio = max(ratio, 0.0) if is_known else np.nan
    p_value = float(gammaincc(df / 2, ratio / 2)) if df else 1.0
    return Heterogeneity(pooled=pooled, domains=parts, ratio=ratio, df=df, p_value=p_value)


def _spread(domain: int, k: Array, n: Array) -> SubjectSpread:
    is_there = n > 0
    shares = k[is_there] / n[is_there]
    sd = float(shares.std(ddof=1)) if len(shares) > 1 else np.nan
    # Subjects without answers are left out; no subject at all is refused by the fit.
    fit = fit_beta_binomial(k, n)
    return SubjectSpread(domain, len(shares), float(shares.mean()), sd, fit)


# --- correlations ------------------------------------------------------------------------------


def subject_shares(scores: ArrayLike, subject: ArrayLike) -> Array:
    """Average each system's scores in each subject.

    Parameters
    ----------
    scores : (n_systems, n_items), nan where there is none
    subject : (n_items,) numbers from 0

    Returns
    -------
    (n_systems, n_subjects), nan where a system has no score

    Raises
    ------
    ValueError
        Shapes differ.
    """
    table = np.atleast_2d(np.asarray(scores, dtype=np.float64))
    label = _labels(subject, table.shape[-1])
    n = int(label.max(initial=-1)) + 1
    is_there = ~np.isnan(table)
    cell = label + n * np.arange(len(table))[:, None]
    total = np.bincount(cell[is_there], table[is_there], n * len(table))
    count = np.bincount(cell[is_there], minlength=n * len(table))
    shares: Array = np.full(n * len(table), np.nan)
    np.divide(total, count, out=shares, where=count > 0)
    return shares.reshape(len(table), n)


def subject_correlations(shares: ArrayLike, *, is_centred: bool = False) -> Array:
    """Correlate subjects over systems: whether two subjects are hard for the same systems.

    With few systems a correlation is rough: of 9, one of .67 is where chance ends at 5 %.

    Parameters
    ----------
    shares : (n_systems, n_subjects) of `subject_shares`; a pair uses the systems that have both
    is_centred : whether each system's mean is taken off first, so that what makes one system better
        everywhere does not count, and what is left is how subjects differ

    Returns
    -------
    (n_subjects, n_subjects), in [-1, 1]; nan where fewer than three systems have both, or one does
    not vary

    Raises
    ------
    ValueError
        The table has not two axes.
    """
    table = np.asarray(shares, dtype=np.float64)
    if table.ndim != 2:
        raise ValueError(f"shares have shape {table.shape}; they must have two axes")
    is_there = (~np.isnan(table)).astype(np.float64)
    if is_centred:
        size = np.maximum(is_there.sum(axis=1, keepdims=True), 1)
        table = table - np.where(is_there > 0, table, 0.0).sum(axis=1, keepdims=True) / size
    # Centred by subject first, so that squares do not cancel; each pair's own means come off below.
    column = np.maximum(is_there.sum(axis=0), 1)
    filled = np.where(is_there > 0, table, 0.0)
    filled = np.where(is_there > 0, table - filled.sum(axis=0) / column, 0.0)
    both = is_there.T @ is_there
    n = np.maximum(both, 1)
    sums, squares = filled.T @ is_there, (filled**2).T @ is_there
    cross = filled.T @ filled - sums * sums.T / n
    variance = squares - sums**2 / n
    scale = np.sqrt(np.maximum(variance * variance.T, 0.0))
    is_known = (both >= 3) & (np.minimum(variance, variance.T) > 1e-24)
    r: Array = np.full_like(scale, np.nan)
    np.divide(cross, scale, out=r, where=is_known)
    # Rounding may carry a perfect one past its end.
    inside: Array = r.clip(-1, 1)
    return inside


# --- parts -------------------------------------------------------------------------------------


def _items(scores: ArrayLike, subject: ArrayLike) -> tuple[Array, Labels]:
    x = np.asarray(scores, dtype=np.float64)
    if x.ndim != 1:
        raise ValueError(f"scores have shape {x.shape}; they must have one axis")
    label = _labels(subject, len(x))
    is_there = ~np.isnan(x)
    return x[is_there], label[is_there]


def _labels(subject: ArrayLike, n_items: int) -> Labels:
    label = np.asarray(subject)
    if label.shape != (n_items,):
        raise ValueError(f"subject has shape {label.shape}; there are {n_items} items")
    if not np.issubdtype(label.dtype, np.integer) or label.min(initial=0) < 0:
        raise ValueError("subject must hold numbers from 0")
    return label.astype(np.int64)


def _domains(centre: ArrayLike, kept: Labels) -> Labels:
    domain = np.asarray(centre)
    if domain.ndim != 1 or len(domain) <= kept.max(initial=-1):
        raise ValueError(f"centre has shape {domain.shape}; it must name every subject's domain")
    return np.unique(domain[kept], return_inverse=True)[1].astype(np.int64)


def _centred(halves: Array, domain: Labels) -> Array:
    size = np.bincount(domain)
    means = np.stack([np.bincount(domain, half) / size for half in halves])
    return np.asarray(halves - means[:, domain])


def _pearson(x: Array, y: Array) -> float:
    x, y = x - x.mean(), y - y.mean()
    scale = np.sqrt(np.sum(x * x) * np.sum(y * y))
    # Means of equal scores differ by rounding alone.
    return float(np.sum(x * y) / scale) if scale > 1e-20 else np.nan
