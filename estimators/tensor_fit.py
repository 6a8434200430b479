"""The maximum of the likelihood over tensors of one rank: Newton's method along the tangent space.

Scoring, which leaves out how the surface of these tensors bends, needs tens of steps where votes are
sparse; with the bending a handful do.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from scipy.linalg import LinAlgError, cho_factor, cho_solve
from scipy.special import expit

from estimators.intervals import Array
from estimators.tensor_cells import Cells, Tangent
from estimators.tensor_dense import apply, inverse_root, product, solved, whitener
from estimators.tensor_tangent import TuckerPoint, dimension, hosvd
from orchestrator.core.errors import DidNotConverge

TOLERANCE = 1e-11
"""Largest entry of the gradient in coordinates, per vote, at a maximum."""

_AIM = 1e-13
"""What is aimed at: the last step squares the error, so that it mostly costs nothing, and estimates
are then right to all digits that are shown."""

FEW_VOTES = 20
"""Votes per parameter below which the likelihood may have several maxima, so that random starts are
tried beside the one from the data."""

RESTARTS = 5

RUNAWAY = 50.0
"""Strength, in logits, that no votes support: where steps end beyond it, they would go on for ever."""

_MOST_STEPS = 100
_LONGEST_STEP = 3.0
_FIRST_RIDGE = 1.0
_JITTER = 1e-10
"""Part of the mean curvature that is added to all of it, so that a direction without any can be
stepped along; far too little to be seen elsewhere."""

_LEAST_BEND = 0.05
"""Least size of a relative curvature, so that steps where it changes its sign stay bounded."""


class NoMaximum(DidNotConverge):
    """The likelihood has no maximum: it rises with some strengths without end."""


class Maximum(NamedTuple):
    """Where the penalised likelihood is highest.

    Attributes
    ----------
    point, gamma : the tensor in factors, and the advantage of the one shown first
    tangent : coordinates there
    tensor : (n_models, n_contexts)
    loglik, objective : log likelihood, without and with the penalty
    gradient_max : largest entry of the objective's gradient in coordinates, per vote
    iterations : steps taken
    """

    point: TuckerPoint
    gamma: float
    tangent: Tangent
    tensor: Array
    loglik: float
    objective: float
    gradient_max: float
    iterations: int


def maximise(
    cells: Cells,
    *,
    shape: Sequence[int],
    rank: Sequence[int],
    ridge: float = 0.0,
    order_effect: bool = False,
    rng: np.random.Generator | None = None,
    restarts: int | None = None,
) -> Maximum:
    """Maximise log likelihood - ridge/2 · |T|² over tensors of a rank, and gamma.

    Starts from the linearised logits of each context, cut to the rank; with fewer than `FEW_VOTES`
    votes a parameter also from random tensors, and the highest maximum counts.

    Parameters
    ----------
    ridge : 1 / variance of a normal prior of T's entries; gamma has none
    rng : draws random starts; None: from a generator seeded by 0
    restarts : random starts; None: by the number of votes

    Raises
    ------
    NoMaximum
        The likelihood rises without end; a ridge holds it.
    DidNotConverge
        No start led to a maximum for another reason.

    Source: Riemannian Newton; the tangent space as in [LSS26].
    """
    rng = np.random.default_rng(0) if rng is None else rng
    if restarts is None:
        is_few = cells.n < FEW_VOTES * dimension(shape, rank)
        restarts = RESTARTS if is_few else 0
    starts = [hosvd(_linearised(cells).reshape(shape), rank)]
    starts += [hosvd(rng.standard_normal(shape), rank) for _ in range(restarts)]
    best: Maximum | None = None
    failed: DidNotConverge | None = None
    for start in starts:
        try:
            found = climb(cells, start, ridge=ridge, order_effect=order_effect)
        except DidNotConverge as exc:
            # Where the votes' own start runs away the others do, too.
            if failed is None and best is None and isinstance(exc, NoMaximum):
                raise
            failed = exc
            continue
        if best is None or found.objective > best.objective:
            best = found
    if best is None:
        assert failed is not None
        raise failed
    return best


def climb(cells: Cells, point: TuckerPoint, *, ridge: float, order_effect: bool) -> Maximum:
    """Climb from a tensor by Newton steps, halved until they lead up, with the HOSVD as retraction.

    Raises
    ------
    NoMaximum
        Strengths are beyond any that votes support, and still grow.
    DidNotConverge
        The gradient is not yet small after many steps, or no step leads up, or nothing is left to
        step by.
    """
    flat = (cells.n_models, cells.n_contexts)
    gamma, top = 0.0, None
    tensor = point.tensor.reshape(flat)
    eta = cells.eta(tensor, gamma)
    objective = cells.log_likelihood(eta) - ridge / 2 * float((tensor * tensor).sum())
    for n in range(_MOST_STEPS + 1):
        tangent = Tangent(point.basis(), order_effect)
        p = expit(eta)
        score = cells.score(eta)
        upward = cells.contrast(score) - ridge * tensor
        gradient = tangent.gradients(upward.reshape(1, -1))[0]
        if order_effect:
            gradient[-1] = score.sum()
        residual = float(np.abs(gradient).max()) / max(cells.n, 1)
        if residual < TOLERANCE and (top is None or residual < top.gradient_max):
            loglik = cells.log_likelihood(eta)
            top = Maximum(point, gamma, tangent, tensor, loglik, objective, residual, n)
        if residual < _AIM or n == _MOST_STEPS or (top is not None and top.iterations < n - 2):
            break
        curvature = tangent.information(cells, cells.weight * p * (1 - p))
        diagonal = np.full(tangent.size, ridge)
        diagonal += _JITTER * (np.trace(curvature) / tangent.size + ridge)
        if order_effect:
            diagonal[-1] -= ridge
        curvature[np.diag_indices_from(curvature)] += diagonal
        try:
            step = _ascent(curvature, point.bending(upward.reshape(point.shape)), gradient)
        except LinAlgError:
            break
        along = apply(tangent.basis, step[: tangent.basis.shape[1]])
        longest = max(float(np.abs(along).max()), abs(float(step[-1])) * order_effect)
        size = min(1.0, _LONGEST_STEP / longest)
        slope, slack = float(gradient @ step), 1e-13 * (1 + abs(objective))
        for _ in range(40):
            new = hosvd((tensor + size * along.reshape(flat)).reshape(point.shape), point.rank)
            new_gamma = gamma + size * float(step[-1]) * order_effect
            new_tensor = new.tensor.reshape(flat)
            new_eta = cells.eta(new_tensor, new_gamma)
            reached = cells.log_likelihood(new_eta)
            reached -= ridge / 2 * float((new_tensor * new_tensor).sum())
            if reached >= objective + 1e-4 * size * slope - slack:
                break
            size /= 2
        else:
            break
        point, gamma, tensor, eta, objective = new, new_gamma, new_tensor, new_eta, reached
    if top is not None:
        return top
    if np.abs(tensor).max() > RUNAWAY:
        message = f"strengths are beyond {RUNAWAY:g} logits and still grow"
        raise NoMaximum(message, iterations=n, residual=residual)
    message = (
        f"no maximum over tensors of rank {point.rank} after {n} steps; gradient {residual:.2g}"
    )
    raise DidNotConverge(message, iterations=n, residual=residual)


def _ascent(curvature: Array, bending: Array, gradient: Array) -> Array:
    """Give Newton's step; where the function bends upward, the step away from there.

    Relative to the information the second derivative has eigenvalues 1 without bending. Where some are
    negative their sizes are taken, so that the step leads up along them, too, and not to a saddle.
    """
    exact = curvature.copy()
    d = len(bending)
    exact[:d, :d] -= bending
    try:
        white = whitener(exact)
    except LinAlgError:
        white = whitener(curvature)
        relative = product(product(white, exact), white.T)
        # The root of a square is the size of each eigenvalue.
        square = product(relative, relative.T) + _LEAST_BEND**2 * np.eye(len(exact))
        along = apply(inverse_root(square), apply(white, gradient))
        return apply(white.T, along)
    return apply(white.T, apply(white, gradient))


def by_context(cells: Cells, *, ridge: float, steps: int = 50) -> Array:
    """Fit strengths in every context for itself, (n_models, n_contexts), columns summing to zero.

    Newton's method on log likelihood - ridge/2 · |T|², all contexts at once; a context ends where its
    step is short. With little ridge, strengths of models that won or lost all run away.

    Parameters
    ----------
    ridge : positive
    steps : at most so many
    """
    m = cells.n_models
    found = np.zeros((m, cells.n_contexts))
    for _ in range(steps):
        eta = cells.eta(found)
        p = expit(eta)
        curvature = cells.laplacians(cells.weight * p * (1 - p)) + ridge * np.eye(m)
        gradient = cells.contrast(cells.score(eta)) - ridge * found
        step = np.stack([solved(*each) for each in zip(curvature, gradient.T, strict=True)], axis=1)
        longest = np.abs(step).max(axis=0)
        found = found + step * np.minimum(1.0, _LONGEST_STEP / np.maximum(longest, 1e-300))
        if longest.max() < 1e-9:
            break
    centred: Array = found - found.mean(axis=0)
    return centred


def _linearised(cells: Cells) -> Array:
    """Give each context's ridge regression of 4 (y - 1/2): the first Newton step from equal models."""
    return by_context(cells, ridge=_FIRST_RIDGE, steps=1)


def inverse(information: Array) -> Array:
    """Invert a positive definite matrix, symmetric to the last bit."""
    found = cho_solve(cho_factor(information), np.eye(len(information)))
    symmetric: Array = (found + found.T) / 2
    return symmetric
