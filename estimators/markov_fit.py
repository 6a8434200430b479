"""The maximum of the penalised likelihood of a judge with memory: a joint Newton iteration.

Item qualities, covariates' slopes and the batches' spread sigma are fitted at once: the information
of all of them is at hand, and profiling sigma out would only cost iterations and hide its share of
the standard errors. Iterations begin with few nodes and end with all.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import LinAlgError, cho_factor, cho_solve
from scipy.linalg.lapack import dtrtri
from scipy.optimize import linprog
from scipy.special import logit

from estimators.batches import Layout
from estimators.intervals import Array
from estimators.markov_likelihood import Modes, evaluate, log_likelihood
from estimators.quadrature import Rule, gauss_hermite
from orchestrator.core.errors import DidNotConverge

GUARDED = 15
"""From so many nodes on the integral is meant to be exact, so it is checked with more nodes. Who asks
for fewer wants that approximation."""

QUADRATURE_TOLERANCE = 1e-6
"""How far the log likelihood may move when the nodes are doubled; beyond, more nodes are taken."""

_MORE_NODES = (25, 41)
_FEW_NODES = 7
"""Nodes while the iteration is far from its end, and for the curvature of coarser rules."""

_NEAR_ZERO = 0.2
"""Spread below which the fit without any is compared explicitly."""

RUNAWAY = 10.0
"""Spread that no data support: there the likelihood rises without end, as it does where every batch
is of one opinion."""

_LEAST_SPREAD, _FIRST_SPREAD, _MOST_SPREAD = 0.3, 0.5, 3.0
"""Where the iteration may start: off 0, where the gradient is 0 for all data."""

_LEVEL = 1e-7
"""Information, per squared logit, up to which a direction counts as open: a standard error of
thousands of logits."""

_LONGEST_STEP = 3.0
_MOST_STEPS = 40
_TOLERANCE = 1e-8
_TOLERANCE_FEW = 5e-3
_TOLERANCE_COARSE = 1e-9
"""Longest entry of the step that would come next, which is about the error. Few nodes need only lead
near, and what they are off by is of the square's size. With the curvature of another rule convergence is linear,
and the error some times the step."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Penalty:
    """Scales of weak normal priors, in logits; None: none.

    Attributes
    ----------
    items : of the qualities around their own mean, so that the level is not shrunk
    mean : of that mean around 0
    slopes : of the covariates' slopes
    spread : of sigma
    """

    items: float | None = 5.0
    mean: float | None = None
    slopes: float | None = None
    spread: float | None = None

    def precision(self, v: int, q: int) -> Array:
        """Give Q of the penalty psi'Q psi/2, (p, p)."""
        precision = np.zeros((v + q + 1, v + q + 1))
        if self.items is not None:
            precision[:v, :v] += (np.eye(v) - 1 / v) / self.items**2
        if self.mean is not None:
            precision[:v, :v] += 1 / (v * self.mean) ** 2
        if self.slopes is not None:
            precision[range(v, v + q), range(v, v + q)] = 1 / self.slopes**2
        if self.spread is not None:
            precision[-1, -1] = 1 / self.spread**2
        return precision


class NoMaximum(DidNotConverge):
    """The likelihood has no single maximum: the data leave a direction open, or rise along it."""


class Maximum(NamedTuple):
    """Where the penalised likelihood is highest.

    Attributes
    ----------
    psi : (p,) theta, phi, |sigma|
    loglik, objective : log likelihood there, without and with the penalty
    score : (n, p) of the batches, without the penalty
    gradient : (p,) of the objective; 0 for sigma at the boundary
    information : (p, p) of the objective
    modes : of the batches' effects
    is_boundary : sigma is 0, and standard errors are those without it
    iterations : Newton steps
    nodes : quadrature nodes in the end
    quadrature_error : how far the log likelihood moves with twice the nodes; nan: not checked
    """

    psi: Array
    loglik: float
    objective: float
    score: Array
    gradient: Array
    information: Array
    modes: Modes
    is_boundary: bool
    iterations: int
    nodes: int
    quadrature_error: float

    @property
    def covariance(self) -> Array:
        """Inverse of the information, (p, p); nan for sigma at the boundary."""
        p = len(self.psi)
        free = slice(p - self.is_boundary)
        found = np.full((p, p), np.nan)
        found[free, free] = inverse(self.information[free, free])
        return found


def inverse(information: Array) -> Array:
    """Invert a positive definite matrix, symmetric to the last bit."""
    if not len(information):
        return information
    factor, _ = cho_factor(information)
    # A triangle times its own transpose: BLAS makes that symmetric, and trtri takes no threads.
    root, _ = dtrtri(np.triu(factor))
    found: Array = root @ root.T
    return found


def maximise(
    data: Layout,
    *,
    quadrature: int = GUARDED,
    penalty: Penalty,
    start: Array | None = None,
    modes: Array | None = None,
    tolerance: float = _TOLERANCE,
) -> Maximum:
    """Maximise log likelihood - psi'Q psi/2 over psi = (theta, phi, sigma).

    Parameters
    ----------
    data : at least one row
    quadrature : nodes; from `GUARDED` on more are taken where the integral needs them
    start, modes : where to start; None: from the items' shares
    tolerance : longest entry of the step that would come next

    Raises
    ------
    NoMaximum
        The likelihood rises with the batches' spread without end, or is level in some direction.
    DidNotConverge
        The iteration found no maximum for another reason.

    Source: joint Newton with Louis's information [L82]; the likelihood's form in [LD26].
    """
    v, q = data.n_items, len(data.names)
    precision = penalty.precision(v, q)
    steps = 0
    if start is None:
        start = _first_guess(data)
    if quadrature > _FEW_NODES:
        few = Climb(data=data, precision=precision, rule=gauss_hermite(_FEW_NODES))
        near = few.from_(start, modes, tolerance=_TOLERANCE_FEW, limit=20)
        # The step that is left is taken unseen: all nodes will look at where it leads.
        start, modes, steps = (
            near.psi + near.left,
            near.modes.at,
            near.iterations + near.is_converged,
        )
    more = [n for n in _MORE_NODES if n > quadrature] if quadrature >= GUARDED else []
    for nodes in (quadrature, *more):
        climb = Climb(data=data, precision=precision, rule=gauss_hermite(nodes))
        top = climb.to_maximum(start, modes, tolerance)
        steps += top.iterations
        if abs(top.psi[-1]) > RUNAWAY:
            break
        error = np.nan
        if quadrature >= GUARDED:
            finer = gauss_hermite(2 * nodes + 1)
            error = abs(
                float(log_likelihood(data, top.psi, finer, top.modes.at).sum()) - top.loglik
            )
        if top.is_converged and not error > QUADRATURE_TOLERANCE:
            break
        start, modes = top.psi, top.modes.at
    residual = float(np.abs(top.gradient).max())
    if abs(top.psi[-1]) > RUNAWAY:
        message = f"the batches' spread is beyond {RUNAWAY:g} and still grows"
        raise NoMaximum(message, iterations=steps, residual=residual)
    free = slice(v + q + 1 - top.is_boundary)
    information = top.information
    is_level = not _is_above(information[free, free], _LEVEL)
    if (nodes < _FEW_NODES or is_level) and not top.is_boundary:
        information = climb.differenced_information(top.psi, top.modes.at)
        is_level = not _is_above(information, _LEVEL)
    if is_level:
        message = "the ratings leave some direction of the parameters open"
        raise NoMaximum(message, iterations=steps, residual=residual)
    if not top.is_converged:
        message = f"no maximum of the likelihood after {steps} steps; gradient {residual:.2g}"
        raise DidNotConverge(message, iterations=steps, residual=residual)
    psi = np.append(top.psi[:-1], abs(top.psi[-1]))
    sign = np.append(np.ones(v + q), np.copysign(1.0, top.psi[-1]))
    return Maximum(
        psi=psi,
        loglik=top.loglik,
        objective=top.objective,
        score=top.score * sign,
        gradient=top.gradient * sign,
        information=information * np.outer(sign, sign),
        modes=Modes(top.modes.at * sign[-1], top.modes.scale),
        is_boundary=top.is_boundary,
        iterations=steps,
        nodes=nodes,
        quadrature_error=error,
    )


def _first_guess(data: Layout) -> Array:
    """Give each item the logit of its share, drawn in a little, no slopes, and a spread by moments.

    With p_i the items' shares, a batch's excess Σ (y - p) has variance W + sigma² W² to first order,
    W = Σ p (1 - p). Shares are those of the mean batch: sigma stretches qualities by about
    √(1 + c² sigma²), with c = 16 √3 / (15 π) of the logistic law.
    """
    n, accepted = data.shown.sum(axis=0), data.y.sum(axis=0)
    share = (accepted + 0.5) / (n + 1)
    expected = np.where(data.shown, share, 0.0)
    of_chance = (expected * (1 - share)).sum(axis=1)
    excess = (data.y - expected).sum(axis=1)
    variance = float((excess**2 - of_chance).sum() / np.maximum((of_chance**2).sum(), 1e-300))
    sigma = np.clip(np.sqrt(max(variance, 0.0)), _LEAST_SPREAD, _MOST_SPREAD)
    theta = logit(share) * np.sqrt(1 + (16 * np.sqrt(3) / (15 * np.pi) * sigma) ** 2)
    return np.concatenate((theta, np.zeros(len(data.names)), [sigma]))


class Top(NamedTuple):
    """Where an iteration ended; see `Maximum`."""

    psi: Array
    loglik: float
    objective: float
    score: Array
    gradient: Array
    information: Array
    modes: Modes
    is_boundary: bool
    is_converged: bool
    iterations: int
    left: Array
    """The step that would come next, once converged; else 0."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Climb:
    """Newton iterations of one penalised likelihood, with one quadrature rule.

    Parameters
    ----------
    precision : (p, p) the penalty's Q
    weights : (n,) how often each batch counts; None: once
    is_exact : take the curvature by differences, not by Louis's identity, which is that of the
        integral and not of its approximation: dearer, for where they are far apart
    """

    data: Layout
    precision: Array
    rule: Rule
    weights: Array | None = None
    is_exact: bool = False

    @property
    def _is_coarse(self) -> bool:
        """Whether the nodes are too few for their curvature to be that of the likelihood."""
        return len(self.rule.nodes) < _FEW_NODES

    def to_maximum(self, psi: Array, modes: Array | None, tolerance: float) -> Top:
        """Climb to the maximum, be it inside or at sigma = 0.

        At sigma = 0 the likelihood is stationary in sigma for all data; it is a maximum where the
        score for sigma², half of Σ_t ((Σ(y - mu))² - Σ mu (1 - mu)), is not positive.
        """
        if self._is_coarse:
            tolerance = min(tolerance, _TOLERANCE_COARSE)
        inside = self.from_(psi, modes, tolerance=tolerance, limit=_MOST_STEPS)
        if not inside.is_converged and abs(inside.psi[-1]) <= RUNAWAY:
            exact = replace(self, is_exact=True)
            more = exact.from_(inside.psi, inside.modes.at, tolerance=tolerance, limit=_MOST_STEPS)
            inside = more._replace(iterations=inside.iterations + more.iterations)
        if abs(inside.psi[-1]) > _NEAR_ZERO:
            return inside
        flat = self.flat(inside.psi, limit=_MOST_STEPS)
        score_of_variance = -flat.information[-1, -1] / 2
        is_level = flat.objective >= inside.objective - 1e-9 * (1 + abs(inside.objective))
        steps = inside.iterations + flat.iterations
        if score_of_variance <= 0 and (is_level or not inside.is_converged):
            return flat._replace(iterations=steps)
        if abs(inside.psi[-1]) < 1e-3 or not inside.is_converged:
            again = np.append(flat.psi[:-1], _FIRST_SPREAD)
            inside = self.from_(again, None, tolerance=tolerance, limit=_MOST_STEPS)
            steps += inside.iterations
        return inside._replace(iterations=steps)

    def flat(self, psi: Array, *, limit: int) -> Top:
        """Climb with sigma = 0: a logistic regression, exact with the rule of three nodes."""
        exact = replace(self, rule=gauss_hermite(3))
        psi = np.append(psi[:-1], 0.0)
        return exact.from_(psi, None, tolerance=_TOLERANCE, limit=limit, is_flat=True)

    def from_(
        self,
        psi: Array,
        modes: Array | None,
        *,
        tolerance: float,
        limit: int,
        is_flat: bool = False,
    ) -> Top:
        """Climb by damped Newton steps until the next would be shorter than the tolerance."""
        free = slice(len(psi) - is_flat)
        now = self._at(psi, modes, is_flat=is_flat)
        is_converged, n, step = False, 0, np.zeros_like(psi)
        while abs(now.psi[-1]) <= RUNAWAY:
            step = np.zeros_like(psi)
            step[free] = ascent(now.information[free, free], now.gradient[free])
            longest = float(np.abs(step).max(initial=0.0))
            is_converged = longest <= tolerance
            if is_converged or n == limit:
                break
            step *= min(1.0, _LONGEST_STEP / max(longest, 1e-300))
            slack = 1e-10 * (1 + abs(now.objective))
            for _ in range(30):
                new = self._at(now.psi + step, now.modes.at, is_flat=is_flat)
                if new.objective >= now.objective - slack:
                    break
                step /= 2
            else:
                break
            now, n = new, n + 1
        left = step if is_converged else np.zeros_like(psi)
        return now._replace(is_converged=is_converged, iterations=n, left=left)

    def differenced_information(self, psi: Array, modes: Array) -> Array:
        """Give the information by central differences of the exact gradient, (p, p)."""
        h = 1e-5

        def gradient(at: Array) -> Array:
            found = evaluate(self.data, at, self.rule, start=modes)
            return self._weighted(found.score)

        rows = [gradient(psi - h * unit) - gradient(psi + h * unit) for unit in np.eye(len(psi))]
        found = np.stack(rows) / (2 * h)
        symmetric: Array = (found + found.T) / 2 + self.precision
        return symmetric

    def _weighted(self, values: Array) -> Array:
        """Sum over the batches, each as often as it counts."""
        if self.weights is not None:
            values = (values.T * self.weights).T
        total: Array = values.sum(axis=0)
        return total

    def _at(self, psi: Array, modes: Array | None, *, is_flat: bool = False) -> Top:
        found = evaluate(self.data, psi, self.rule, start=modes, weights=self.weights)
        information = found.information + self.precision
        if self.is_exact and not is_flat:
            information = self.differenced_information(psi, found.modes.at)
        elif self._is_coarse and not is_flat:
            rule = gauss_hermite(_FEW_NODES)
            curved = evaluate(self.data, psi, rule, start=found.modes.at, weights=self.weights)
            information = curved.information + self.precision
        pull = self.precision @ psi
        loglik = float(self._weighted(found.loglik))
        gradient = self._weighted(found.score) - pull
        if is_flat:
            gradient[-1] = 0.0
        return Top(
            psi=psi,
            loglik=loglik,
            objective=loglik - float(psi @ pull) / 2,
            score=found.score,
            gradient=gradient,
            information=information,
            modes=found.modes,
            is_boundary=is_flat,
            is_converged=False,
            iterations=0,
            left=np.zeros_like(psi),
        )


def ascent(information: Array, gradient: Array) -> Array:
    """Give Newton's step; where the information has negative curvature, along its absolute values."""
    if not len(gradient):
        return gradient
    try:
        step: Array = cho_solve(cho_factor(information), gradient)
    except LinAlgError:
        values, vectors = np.linalg.eigh(information)
        floor = 1e-8 * max(1.0, float(np.abs(values).max()))
        step = vectors @ ((vectors.T @ gradient) / np.maximum(np.abs(values), floor))
    return step


def _is_above(information: Array, level: float) -> bool:
    """Say whether a symmetric matrix has all its eigenvalues above a level."""
    try:
        cho_factor(information - level * np.eye(len(information)))
    except (LinAlgError, ValueError):  # not positive definite, or not finite
        return False
    return True


def undetermined(data: Layout) -> NDArray[np.bool_]:
    """Find covariates whose slopes no data of this kind can tell: separated, or never apart, (q,).

    Over the distinct covariate patterns x, some pattern's verdicts all alike, a direction (a, d) in
    level and slopes with (2y - 1)(a + x'd) ≥ 0 for every rating, not all 0, raises the likelihood
    without end. Such a direction is found by a linear program; one with all 0 is a column that is a
    combination of others.
    """
    q = len(data.names)
    found = np.zeros(q, dtype=bool)
    if not q or not len(data):
        return found
    # Covariates are 0 or 1, so that a pattern is a number in binary.
    word = (data.x @ 2.0 ** np.arange(q))[data.shown].astype(np.int64)
    count, accepted = np.bincount(word), np.bincount(word, data.y[data.shown])
    patterns = np.flatnonzero(count)
    n, accepted = count[patterns], accepted[patterns]
    x = np.column_stack((np.ones(len(patterns)), (patterns[:, None] >> np.arange(q)) & 1))
    _, values, directions = np.linalg.svd(x)
    rank = int((values > 1e-9 * values[0]).sum())
    found |= (np.abs(directions[rank:, 1:]) > 1e-9).any(axis=0)
    is_alike = (accepted == 0) | (accepted == n)
    if is_alike.any():
        signed = x[is_alike] * np.where(accepted[is_alike] > 0, 1.0, -1.0)[:, None]
        mixed = x[~is_alike]
        best = linprog(
            -signed.sum(axis=0),
            A_ub=np.concatenate((-signed, signed)),
            b_ub=np.concatenate((np.zeros(len(signed)), np.ones(len(signed)))),
            A_eq=mixed if len(mixed) else None,
            b_eq=np.zeros(len(mixed)) if len(mixed) else None,
            bounds=(-100, 100),
        )
        found |= np.abs(best.x[1:]) > 1e-6
    return found
