"""Comparisons counted by who was shown first, who second, and how it went.

A fit needs nothing else of them, unless rows differ in clusters, covariates or judges; so a million
comparisons of a hundred models cost one pass over the rows. The table is kept up to date one landing
at a time.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import chdtrc

from estimators.intervals import Array

RIGHT, TIE, LEFT = 0, 1, 2
"""Outcomes in the order of their scores 0, ½, 1 for the model that was shown first."""

SCORES = np.array([0.0, 0.5, 1.0])

Indices = NDArray[np.int64]


class Verdicts(NamedTuple):
    """Comparisons one by one, checked.

    Attributes
    ----------
    left, right : (n,) models, first and second shown
    code : (n,) RIGHT, TIE or LEFT; -1: no verdict
    weights : (n,); None: all 1
    n_models : m
    """

    left: Indices
    right: Indices
    code: NDArray[np.int8]
    weights: Array | None
    n_models: int

    @property
    def is_told(self) -> NDArray[np.bool_]:
        """Which rows have a verdict, (n,)."""
        told: NDArray[np.bool_] = self.code >= 0
        return told


class Cells:
    """A running table of comparisons: sums of weights and of their squares by pair and outcome.

    Attributes
    ----------
    sums, squares : (3, m, m) by outcome, first and second shown; one array while no row is weighted
    missing : (m, m) questions without a verdict
    n : comparisons with a verdict
    """

    def __init__(self, n_models: int) -> None:
        self.sums: Array = np.zeros((3, n_models, n_models))
        self.squares: Array = self.sums
        self.missing: Array = np.zeros((n_models, n_models))
        self.n = 0

    @property
    def n_models(self) -> int:
        """Number of models."""
        return len(self.missing)

    @property
    def is_weighted(self) -> bool:
        """Whether any comparison has a weight other than 1."""
        return self.squares is not self.sums

    @property
    def ess(self) -> float:
        """Effective number of comparisons, (Σ w)²/Σ w²."""
        squares = float(self.squares.sum())
        return float(self.sums.sum()) ** 2 / squares if squares else 0.0

    @property
    def beats(self) -> Array:
        """Weight with which the row's model beat or tied the column's, (m, m)."""
        right, tie, left = self.sums
        beats: Array = left + right.T + tie + tie.T
        return beats

    def without_ties(self) -> Cells:
        """Leave ties out; the number of verdicts stays."""
        table = Cells(self.n_models)
        table.sums = self.sums.copy()
        table.sums[TIE] = 0
        table.squares = table.sums
        if self.is_weighted:
            table.squares = self.squares.copy()
            table.squares[TIE] = 0
        table.missing, table.n = self.missing, self.n
        return table

    def add(self, left: int, right: int, outcome: float, weight: float = 1.0) -> None:
        """Take one verdict into account; nan: the question got none.

        Raises
        ------
        ValueError
            A model, the outcome or the weight is out of range.
        """
        m = self.n_models
        if not (0 <= left < m and 0 <= right < m and left != right):
            raise ValueError(f"models {left} and {right}; they must be two of 0 to {m - 1}")
        if not 0 <= weight < math.inf:
            raise ValueError(f"weight is {weight}; it must be finite and not negative")
        if math.isnan(outcome):
            self.missing[left, right] += 1
            return
        if outcome not in {0.0, 0.5, 1.0}:
            raise ValueError(f"outcome is {outcome}; it must be 0, 0.5, 1, or nan")
        if weight != 1 and not self.is_weighted:
            self.squares = self.sums.copy()
        at = round(2 * outcome), left, right
        self.sums[at] += weight
        if self.is_weighted:
            self.squares[at] += weight**2
        self.n += weight > 0

    @classmethod
    def of(cls, rows: Verdicts) -> Cells:
        """Count rows."""
        m = rows.n_models
        table = cls(m)
        key = rows.left * m
        key += rows.right
        told = rows.is_told
        weights = rows.weights
        if not told.all():
            table.missing = np.bincount(key[~told], minlength=m * m).reshape(m, m).astype(float)
            key, code = key[told], rows.code[told]
            weights = None if weights is None else weights[told]
        else:
            code = rows.code
        key += np.multiply(code, m * m, dtype=np.int64)

        def summed(of: Array | None) -> Array:
            counted = np.bincount(key, of, 3 * m * m).reshape(3, m, m)
            return counted.astype(np.float64, copy=False)

        table.sums = summed(weights)
        table.squares = table.sums if weights is None else summed(weights**2)
        table.n = len(key) if weights is None else int(np.count_nonzero(weights))
        return table


def checked(
    left: ArrayLike,
    right: ArrayLike,
    outcome: ArrayLike,
    *,
    n_models: int,
    weights: ArrayLike | None = None,
) -> Verdicts:
    """Check the shapes and values of comparisons.

    Parameters
    ----------
    left, right : (n,) integers in 0 to n_models - 1, never equal in a row
    outcome : (n,) 1 left wins, ½ tie, 0 right wins, nan no verdict
    weights : (n,) finite, ≥ 0

    Raises
    ------
    ValueError
        They are malformed.
    """
    if n_models < 0:
        raise ValueError(f"n_models is {n_models}; it must not be negative")
    y = np.asarray(outcome, dtype=np.float64)
    if y.ndim != 1:
        raise ValueError(f"outcome has shape {y.shape}; it must have one axis")
    n = len(y)
    a = whole(left, n, n_models, "left")
    b = whole(right, n, n_models, "right")
    if (a == b).any():
        row = int(np.argmax(a == b))
        raise ValueError(f"row {row} compares model {a[row]} with itself")
    is_tie, is_won = y == 0.5, y == 1
    is_told = (y == 0) | is_tie | is_won
    if not is_told.all() and not (is_known := is_told | np.isnan(y)).all():
        row = int(np.argmin(is_known))
        raise ValueError(f"outcome of row {row} is {y[row]}; it must be 0, 0.5, 1, or nan")
    code = is_won.view(np.int8) * np.int8(LEFT) + is_tie.view(np.int8)
    code[~is_told] = -1
    return Verdicts(a, b, code, None if weights is None else real(weights, n, "weights"), n_models)


def whole(of: ArrayLike, n: int, top: int, name: str) -> Indices:
    """Check n integers in 0 to top - 1.

    Raises
    ------
    ValueError
        They are others.
    """
    given = np.asarray(of)
    if given.shape != (n,):
        raise ValueError(f"{name} has shape {given.shape}; outcome has {n} rows")
    if n and given.dtype.kind not in "iu":
        raise ValueError(f"{name} holds {given.dtype}; it must hold integers")
    found = given.astype(np.int64, copy=False)
    if n and not (found.min() >= 0 and found.max() < top):
        raise ValueError(f"{name} must lie in 0 to {top - 1}")
    return found


def real(of: ArrayLike, n: int, name: str) -> Array:
    """Check n finite weights that are not negative.

    Raises
    ------
    ValueError
        They are others.
    """
    given = np.asarray(of, dtype=np.float64)
    if given.shape != (n,):
        raise ValueError(f"{name} has shape {given.shape}; outcome has {n} rows")
    if n and not (given.min() >= 0 and given.max() < math.inf):
        raise ValueError(f"{name} must be finite and not negative")
    return given


class Indexed(NamedTuple):
    """Names as integers: `ids` per column given, places in `names`, which ascend."""

    ids: tuple[Indices, ...]
    names: tuple[Hashable, ...]


def index_names(*columns: Sequence[Hashable]) -> Indexed:
    """Number the names of several columns in common, in ascending order.

    Parameters
    ----------
    columns : names of one type that can be ordered, such as the first and second shown
    """
    seen: dict[Hashable, int] = {}
    for column in columns:
        seen.update(dict.fromkeys(column, 0))
    names = tuple(sorted(seen))  # type: ignore[type-var]  # of one type, says the docstring
    seen = {name: i for i, name in enumerate(names)}
    ids = tuple(
        np.fromiter(map(seen.__getitem__, column), np.int64, len(column)) for column in columns
    )
    return Indexed(ids, names)


class Missingness(NamedTuple):
    """Questions without a verdict, by pair.

    Attributes
    ----------
    asked, missing : (m, m) symmetric, both orders together
    rate : missing/asked; nan where nothing was asked
    p : of the test that all pairs have one rate (Pearson's chi-square); nan where there is nothing
        to test
    """

    asked: Array
    missing: Array
    rate: Array
    p: float

    def answered(self, left: Indices, right: Indices) -> Array:
        """Give the share of verdicts of each row's pair, to multiply its propensity with."""
        share: Array = 1 - self.rate[left, right]
        return share


def missingness(cells: Cells) -> Missingness:
    """Count missing verdicts by pair, and test whether pairs differ.

    Where they do, rows without a verdict are no random sample: who leaves them out estimates the
    strengths under another law of pairs, so that weights must divide by the share of verdicts too.
    The table has to be of rows without weights.
    """
    return missing_by_pair(cells.sums.sum(axis=0) + cells.missing, cells.missing)


def missing_by_pair(asked: Array, missing: Array) -> Missingness:
    """As `missingness`, from counts by first and second model, (m, m) each."""
    asked, missing = asked + asked.T, missing + missing.T
    rate = np.divide(missing, asked, out=np.full_like(asked, np.nan), where=asked > 0)
    upper = np.triu(asked, 1) > 0
    k, n = missing[upper], asked[upper]
    mean = k.sum() / n.sum() if len(n) else 0.0
    p = math.nan
    if len(n) > 1 and 0 < mean < 1:
        p = float(chdtrc(len(n) - 1, ((k - n * mean) ** 2 / (n * mean * (1 - mean))).sum()))
    return Missingness(asked, missing, rate, p)
