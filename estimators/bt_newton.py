"""The maximum of a Bradley-Terry likelihood over cells, by Newton's iteration, and its covariances.

Parameters stand in one vector psi = (theta, phi, tau): m strengths, slopes of the columns that every
cell has (the order intercept, covariates), and tau = ln nu of a rule for ties. Strengths are determined
up to a constant in each component; the information is completed along these directions, and they are
taken out of its inverse again.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray
from scipy.linalg.lapack import dpotrf, dpotri, dpotrs
from scipy.sparse import csr_array

from estimators.bt_ties import Scores, Ties, log_likelihood, scores, slopes
from estimators.intervals import Array
from orchestrator.core.errors import DidNotConverge

_TOLERANCE = 1e-6
"""Longest change of a strength or a predictor by the last step, in logits; Newton's error is then
about its square."""

_MOST_STEPS = 100

_SAFE_STEP = 1.0
"""Change of a linear predictor up to which a full Newton step raises the likelihood for certain.

The third derivative of the rules' likelihoods along a line is at most the second times the change of
the predictor; the step's loss is then below its gain while (e^x - 1 - x)/x² < 1. Longer steps, and
those of the rule whose parameter has a bound, are checked."""

_LONGEST_STEP = 10.0
"""Change of a linear predictor beyond which a step is cut: from where probabilities are 0 or 1 to the
last bit there is no way back."""

_NOISE = 1e-9
"""Share of a log likelihood that may be rounding: weights of many sizes cancel in it."""

_OPEN = 1e6
"""Variance, per comparison's worth of a column, from which on its slope counts as not determined: a
standard error of a thousand logits, which no finite estimate has."""


class Design(Protocol):
    """Comparisons of m models in e cells, and how m + q parameters enter their predictors."""

    @property
    def sums(self) -> Array:
        """Weights by outcome, (3, e)."""
        ...

    @property
    def squares(self) -> Array:
        """Squared weights by outcome, (3, e)."""
        ...

    @property
    def n_models(self) -> int:
        """Number of models, m."""
        ...

    @property
    def worth(self) -> Array:
        """Mean square of each column, (q,)."""
        ...

    def predictor(self, psi: Array) -> Array:
        """Give eta of each cell, (e,)."""
        ...

    def reach(self, step: Array) -> float:
        """Give how far a step of psi changes a predictor at most."""
        ...

    def gradient(self, by_eta: Array) -> Array:
        """Carry derivatives by eta, (e,), over to theta and phi, (m + q,)."""
        ...

    def quadratic(self, by_eta: Array) -> Array:
        """Sum second derivatives by eta, (e,), to those by theta and phi, (m + q, m + q)."""
        ...


class Grid(NamedTuple):
    """All ordered pairs of models, one cell each, row by row; see `Design`."""

    sums: Array
    squares: Array
    n_models: int
    has_order: bool

    @property
    def worth(self) -> Array:
        """Of the order intercept, if there is one."""
        return np.ones(int(self.has_order))

    def predictor(self, psi: Array) -> Array:
        """Give eta of each cell, (m²,)."""
        theta = psi[: self.n_models]
        first = theta + psi[self.n_models] if self.has_order else theta
        eta: Array = np.subtract.outer(first, theta).ravel()
        return eta

    def reach(self, step: Array) -> float:
        """Give how far a step of psi changes a predictor at most."""
        m = self.n_models
        return float(np.ptp(step[:m])) + (abs(float(step[m])) if self.has_order else 0.0)

    def gradient(self, by_eta: Array) -> Array:
        """Carry derivatives by eta over to theta and phi."""
        pairs = by_eta.reshape(self.n_models, self.n_models)
        by_first = pairs.sum(axis=1)
        by_theta: Array = by_first - pairs.sum(axis=0)
        return np.append(by_theta, by_first.sum()) if self.has_order else by_theta

    def quadratic(self, by_eta: Array) -> Array:
        """Sum second derivatives by eta to those by theta and phi."""
        m = self.n_models
        pairs = by_eta.reshape(m, m)
        form = np.empty((m + self.has_order, m + self.has_order))
        np.negative(pairs, out=form[:m, :m])
        form[:m, :m] -= pairs.T
        first, second = pairs.sum(axis=1), pairs.sum(axis=0)
        form.flat[: m * len(form) : len(form) + 1] += first + second
        if self.has_order:
            form[m, :m] = form[:m, m] = first - second
            form[m, m] = first.sum()
        return form


class Rows(NamedTuple):
    """Comparisons one by one, with a column for each parameter; see `Design`.

    Attributes
    ----------
    jacobian : (e, m + q) derivatives of eta, which is linear in them, by theta and phi
    """

    jacobian: csr_array
    sums: Array
    squares: Array
    n_models: int

    @property
    def worth(self) -> Array:
        """Mean square of each column."""
        found: Array = (self.jacobian**2).mean(axis=0)[self.n_models :]
        return found

    def predictor(self, psi: Array) -> Array:
        """Give eta of each row, (e,)."""
        eta: Array = self.jacobian @ psi[: self.jacobian.shape[1]]
        return eta

    def reach(self, step: Array) -> float:
        """Give how far a step of psi changes a predictor at most."""
        return float(np.abs(self.predictor(step)).max(initial=0.0))

    def gradient(self, by_eta: Array) -> Array:
        """Carry derivatives by eta over to theta and phi."""
        found: Array = self.jacobian.T @ by_eta
        return found

    def quadratic(self, by_eta: Array) -> Array:
        """Sum second derivatives by eta to those by theta and phi."""
        weighted = self.jacobian.copy()
        weighted.data = weighted.data * np.repeat(by_eta, np.diff(weighted.indptr))
        form: Array = (self.jacobian.T @ weighted).toarray()
        return form


def bordered(of: Design, ee: Array, et: Array | None, tt: Array | None) -> Array:
    """Sum cells' 2 x 2 forms in (eta, tau), given by entry, (e,) each, to a form in psi."""
    form = of.quadratic(ee)
    if et is None or tt is None:
        return form
    side = of.gradient(et)[:, None]
    whole: Array = np.block([[form, side], [side.T, tt.sum()]])
    return whole


class Maximum(NamedTuple):
    """Where the penalised log likelihood is highest.

    Attributes
    ----------
    psi : (p,)
    bread : (p, p) inverse of the penalised information, without the undetermined directions
    meat : (p, p) sum of the squared scores
    loglik : without the penalty
    gradient : (p,) of the penalised log likelihood
    iterations : Newton steps
    """

    psi: Array
    bread: Array
    meat: Array
    loglik: float
    gradient: Array
    iterations: int

    @property
    def sandwich(self) -> Array:
        """Covariance that holds without the model's variance, (p, p)."""
        return sandwich(self.bread, self.meat)


class Undetermined(DidNotConverge):
    """The data don't determine a slope, or it rises without end."""


def sandwich(bread: Array, meat: Array) -> Array:
    """Give bread meat bread, symmetric to the last bit."""
    found = bread @ meat @ bread
    symmetric: Array = (found + found.T) / 2
    return symmetric


def maximise(
    of: Design,
    *,
    ties: Ties,
    has_tau: bool,
    precision: Array,
    component: NDArray[np.int64] | None,
    start: Array | None = None,
) -> Maximum:
    """Maximise the log likelihood - psi'Q psi/2.

    Parameters
    ----------
    has_tau : whether ties are explained by a parameter of their own
    precision : (p,) diagonal of Q
    component : (m,) of the comparison graph; None: all models are connected
    start : (p,) where to start; None: at 0

    Raises
    ------
    Undetermined
        A slope or the ties' parameter is not determined by the data, or has no finite estimate.
    DidNotConverge
        The iteration did not reach its tolerance.
    """
    m, p = of.n_models, len(precision)
    if start is None:
        start = np.zeros(p)
        start[m + len(of.worth) :] = 0.5 if ties is Ties.RAO_KUPPER else -0.5
    psi = start.copy()
    level = 1 / m if component is None else _level(np.eye(m), component)
    longest, n_steps = math.inf, 0

    def tau_of(at: Array) -> float | None:
        return float(at[-1]) if has_tau else None

    def objective(at: Array) -> float:
        loglik = log_likelihood(ties, of.predictor(at), tau_of(at), of.sums)
        return loglik - float(precision @ at**2) / 2

    while True:
        found = slopes(ties, of.predictor(psi), tau_of(psi), of.sums)
        gradient = of.gradient(found.e)
        if found.t is not None:
            gradient = np.append(gradient, found.t.sum())
        gradient -= precision * psi
        information = bordered(of, found.ee, found.et, found.tt)
        information.flat[:: p + 1] += precision
        information[:m, :m] += level * (np.trace(information[:m, :m]) / m)
        # Transposed, for it is symmetric, and is then worked on in place.
        factor, is_indefinite = dpotrf(information.T, overwrite_a=True)
        if is_indefinite:
            raise _undetermined(n_steps, gradient)
        if longest <= _TOLERANCE:
            break
        if n_steps == _MOST_STEPS:
            if p > m:  # strengths alone are finite: who asks has seen to that
                raise _undetermined(n_steps, gradient)
            message = f"the strengths did not settle in {n_steps} steps"
            raise DidNotConverge(message, iterations=n_steps, residual=longest)
        step, _ = dpotrs(factor, gradient)
        moved = of.reach(step) + abs(tau_of(step) or 0.0)
        if moved > _SAFE_STEP or (has_tau and ties is Ties.RAO_KUPPER):
            share = _LONGEST_STEP / max(moved, _LONGEST_STEP)
            share *= rising(objective, psi, share * step)
            step, moved = share * step, share * moved
        psi += step
        n_steps += 1
        longest = max(moved, float(np.abs(step[:m]).max()))
    upper, _ = dpotri(factor)
    bread = upper + upper.T
    bread.flat[:: p + 1] /= 2
    bread[:m] -= _level(bread[:m], component)
    bread.T[:m] -= _level(bread.T[:m], component)
    psi[:m] -= _level(psi[:m], component)
    # The information that one comparison of mean weight has of a slope is at most about its worth.
    worth = np.concatenate((of.worth, np.ones(int(has_tau))))
    if (np.diag(bread)[m:] * worth * (of.squares.sum() / of.sums.sum()) > _OPEN).any():
        raise _undetermined(n_steps, gradient)
    eta, tau = of.predictor(psi), tau_of(psi)
    return Maximum(
        psi=psi,
        bread=(bread + bread.T) / 2,
        meat=meat_of(of, scores(ties, eta, tau)),
        loglik=log_likelihood(ties, eta, tau, of.sums),
        gradient=gradient,
        iterations=n_steps,
    )


def meat_of(of: Design, score: Scores) -> Array:
    """Sum the outer products of single comparisons' scores, times their squared weights."""

    def summed(one: Array, other: Array) -> Array:
        total: Array = of.squares[0] * one[0] * other[0]
        for k in (1, 2):
            total += of.squares[k] * one[k] * other[k]
        return total

    if score.t is None:
        return of.quadratic(summed(score.e, score.e))
    forms = (score.e, score.e), (score.e, score.t), (score.t, score.t)
    return bordered(of, *(summed(one, other) for one, other in forms))


def _level(of: Array, component: NDArray[np.int64] | None) -> Array:
    """Average the rows of each component and put the average in their place, (m, …)."""
    if component is None:
        mean: Array = of.mean(axis=0)
        return mean
    size = np.bincount(component)
    alike = component == np.arange(len(size))[:, None]
    averages: Array = (alike @ of) / size.reshape(-1, *(1,) * (of.ndim - 1))
    return averages[component]


def rising(objective: Callable[[Array], float], at: Array, step: Array) -> float:
    """Shorten a step by halves until the objective does not fall."""
    here, share = objective(at), 1.0
    least = here - _NOISE * (1 + abs(here))
    while not objective(at + share * step) >= least and share > 1e-12:
        share /= 2
    return share


def _undetermined(iteration: int, gradient: Array) -> Undetermined:
    return Undetermined(
        "a slope is not determined, or has no finite estimate",
        iterations=iteration,
        residual=float(np.abs(gradient).max(initial=0.0)),
    )
