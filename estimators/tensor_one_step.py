"""Functionals of a tensor by one step from fits of other votes.

A fit of some votes is corrected by the scores of votes it has not seen,

    psi = psi(T_f) + mean of s <H, x>,

x being the two models' contrast and H a tangent direction. `efficient`: s = y - p, and H solves
(P G P) H = P grad psi with G the information of the votes; its variance is the least that is possible.
`whitened`: s / (p (1 - p)), whose operator is known from the design. `isotropic`: the same with weights
target / propensity, for which that operator is a multiple of 1, so that nothing is inverted. Both cost
width, and are checks of the first.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.linalg import LinAlgError, cho_factor, cho_solve
from scipy.special import expit

from estimators.bt_model import FEW_CLUSTERS
from estimators.intervals import Array
from estimators.markov_model import FitStatus
from estimators.tensor_cells import Cells, Integers, Votes
from estimators.tensor_fit import Maximum
from estimators.tensor_functionals import Estimates, Functional, evaluate

Kind = Literal["efficient", "whitened", "isotropic"]
Information = Literal["fold", "all"]

LEAST_INFORMATION = 1e-3
"""Where p (1 - p) is raised to: |eta| = 6.9. Beyond, one vote would weigh a thousand."""

MOST_CLIPPED = 0.01
"""Share of votes raised so, from which on a whitened estimate is no more read."""

FEW_EFFECTIVE = 0.25
"""Effective sample size over the votes, below which weights are flagged."""

FORWARD_FIRST = 0.2
FORWARD_BLOCKS = 8


class _Part(NamedTuple):
    """One fold's share: values and mean correction, (q,), and the increments' squares about it, (q, q)."""

    values: Array
    mean: Array
    squares: Array
    n: int
    n_clipped: float


def cross_fitted(
    source: Votes,
    functionals: Sequence[Functional],
    *,
    fit: Callable[[Cells], Maximum],
    labels: Integers,
    kind: Kind = "efficient",
    info: Information = "all",
    weights: Array | None = None,
) -> Estimates:
    """Correct the fits without each fold by the fold's scores, and put them together by size.

    se² = sum over folds of sum (phi - mean of the fold)² / n² with phi = w s <H, x>; where votes have
    clusters, these differences are added up within them first. A fold of g clusters that are few
    takes g/(g - 1) times that, and a fold of one cluster the square of its sum.

    Parameters
    ----------
    fit : gives a tensor from cells, whatever way
    labels : (n,) each vote's fold
    info : take the operator from the fold's comparisons, or from all
    weights : (n,) of the corrections; None: the votes' own. `isotropic` needs target / propensity
        with a target of all pairs and contexts alike, unless the votes were drawn so

    Raises
    ------
    ValueError
        There is one fold only, or a gradient is wrong.
    DidNotConverge
        A fold's fit found no maximum.

    Source: [LSS26]; the folds' information ours.
    """
    folds = np.unique(labels).tolist()
    if len(folds) < 2:
        raise ValueError("one step needs two folds or more")
    steps = ((labels != f, labels == f, np.ones(len(labels), dtype=bool)) for f in folds)
    return _together(source, functionals, fit, steps, kind, info, weights)


def forward(
    source: Votes,
    functionals: Sequence[Functional],
    *,
    fit: Callable[[Cells], Maximum],
    blocks: Integers,
    kind: Kind = "efficient",
    info: Information = "fold",
    weights: Array | None = None,
) -> Estimates:
    """Correct the fit of earlier blocks by each block's scores: for votes that were chosen adaptively.

    What was asked in a block may depend on all answers before it. The fit it is corrected from depends
    on these only, so that the scores are martingale differences. The first block only starts it.

    Parameters
    ----------
    blocks : (n,) ascending in the order of launch; a block's questions were chosen before its answers
    info : `all` takes in the comparisons of earlier blocks; right only as far as these were chosen by
        the same law
    """
    steps = ((blocks < b, blocks == b, (blocks <= b)) for b in np.unique(blocks).tolist()[1:])
    if blocks.min(initial=0) == blocks.max(initial=0):
        raise ValueError("going forward needs two blocks or more")
    return _together(source, functionals, fit, steps, kind, info, weights)


def fold_labels(
    n: int, folds: int, rng: np.random.Generator, by: ArrayLike | None = None
) -> Integers:
    """Deal votes into folds of one size at random, (n,).

    Parameters
    ----------
    by : (n,) what must stay together, such as the prompt where prompts repeat
    """
    units = np.arange(n) if by is None else np.unique(np.asarray(by), return_inverse=True)[1]
    n_units = int(units.max(initial=-1)) + 1
    if not 2 <= folds <= n_units:
        raise ValueError(f"{folds} folds of {n_units} units")
    dealt = rng.permutation(np.arange(n_units) % folds)
    found: Integers = dealt[units.reshape(-1)].astype(np.int64)
    return found


def forward_blocks(n: int) -> Integers:
    """Cut votes in order of launch into a first fifth and eight equal blocks, (n,)."""
    first = int(n * FORWARD_FIRST)
    later = np.arange(n - first) * FORWARD_BLOCKS // max(n - first, 1)
    return np.concatenate((np.zeros(first, dtype=np.int64), 1 + later))


def _together(
    source: Votes,
    functionals: Sequence[Functional],
    fit: Callable[[Cells], Maximum],
    steps: Iterable[tuple[NDArray[np.bool_], NDArray[np.bool_], NDArray[np.bool_]]],
    kind: Kind,
    info: Information,
    weights: Array | None,
) -> Estimates:
    corrected = source if weights is None else replace(source, weights=weights, is_weighted=True)
    parts = []
    for trained, told, known in steps:
        start = fit(source.cells(trained))
        cells = corrected.cells(told)
        around = cells if info == "fold" else corrected.cells(known)
        own = None if source.cluster is None else told
        parts.append(_part(start, cells, around, functionals, kind, corrected, own))
    n = sum(part.n for part in parts)
    value = sum((part.n / n * (part.values + part.mean) for part in parts), np.zeros(1))
    squares = sum((part.squares for part in parts), np.zeros((1, 1)))
    clipped = sum(part.n_clipped for part in parts) / n
    flags, reason = [], ""
    if corrected.effective < FEW_EFFECTIVE * len(corrected):
        flags.append("few_effective_votes")
    if kind != "efficient" and clipped > MOST_CLIPPED:
        flags.append("unstable")
        reason = f"{clipped:.1%} of the votes tell too little to be whitened"
    if not np.isfinite(value).all():
        reason = "a fold's comparisons leave some direction of the tensor open"
    return Estimates(
        names=tuple(each.name for each in functionals),
        value=value,
        covariance=squares / n**2,
        is_probability=np.array([each.is_probability for each in functionals], dtype=bool),
        method=kind,
        n=n,
        effective=corrected.effective,
        clipped_share=clipped if kind != "efficient" else 0.0,
        status=FitStatus.NOT_ESTIMABLE if reason else FitStatus.OK,
        reason=reason,
        flags=tuple(flags),
    )


def _part(
    start: Maximum,
    cells: Cells,
    around: Cells,
    functionals: Sequence[Functional],
    kind: Kind,
    source: Votes,
    told: NDArray[np.bool_] | None,
) -> _Part:
    """Correct one fit by one fold; `around` are the comparisons that the operator is taken from.

    Parameters
    ----------
    told : the fold's votes among the source's, where these have clusters; else None
    """
    values, by_entry = evaluate(functionals, start.tensor)
    tangent = start.tangent
    gradients = tangent.gradients(by_entry)
    eta = cells.eta(start.tensor, start.gamma)
    local = _information(eta)
    whitening = 1.0 if kind == "efficient" else 1 / np.maximum(local, LEAST_INFORMATION)
    score, squares = cells.score(eta) * whitening, cells.squares(eta) * whitening**2
    match kind:
        case "efficient":
            there = around.eta(start.tensor, start.gamma)
            operator = tangent.information(around, around.weight * _information(there))
            directions = _solved(operator / around.n, gradients)
        case "whitened":
            operator = tangent.information(around, around.weight)
            directions = _solved(operator / around.n, gradients)
        case "isotropic":
            # Of a uniform pair in a uniform context; gamma has no gradient, and is not correlated.
            directions = gradients * ((cells.n_models - 1) * cells.n_contexts / 2)
    mean = directions @ tangent.pulled(cells, score) / cells.n
    if told is None:
        meat = directions @ tangent.information(cells, squares) @ directions.T
        about = meat - cells.n * np.outer(mean, mean)
    else:
        along = tangent.rows(cells, directions) * np.broadcast_to(whitening, len(eta))[:, None]
        sums = source.residuals(eta, told) @ along
        assert source.cluster is not None
        size = np.unique(source.cluster[told], return_counts=True)[1]
        if len(size) > 1:
            sums -= size[:, None] * mean
        about = sums.T @ sums
        if 1 < len(size) < FEW_CLUSTERS:  # what taking off their own mean has cost
            about *= len(size) / (len(size) - 1)
    n_clipped = float(cells.count[local < LEAST_INFORMATION].sum())
    return _Part(values, mean, about, cells.n, n_clipped)


def _information(eta: Array) -> Array:
    p = expit(eta)
    found: Array = p * (1 - p)
    return found


def _solved(operator: Array, gradients: Array) -> Array:
    """Solve the operator for each gradient, (q, size); nan where it is singular."""
    try:
        factor = cho_factor(operator)
    except LinAlgError:
        return np.full_like(gradients, np.nan)
    found: Array = cho_solve(factor, gradients.T).T
    return found
