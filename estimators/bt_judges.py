"""Strengths where judges differ: in how much they favour the first place, and in how sharply they tell.

    bias             eta = theta_a - theta_b + gamma + delta_j
    discrimination   eta = beta_j (theta_a - theta_b) + gamma + delta_j,   mean ln beta_j = 0

delta_j and ln beta_j are shrunk towards 0 by normal priors. Under discrimination the strengths are
those of a judge of mean sharpness. A judge that prefers what all others reject has no ln beta; where
the votes show one, strengths are refused: someone has to look at that judge.

Source: discrimination as in [CBCH13], without its mixture: one slope a judge.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike
from scipy.linalg import LinAlgError, block_diag, cho_factor, cho_solve, helmert
from scipy.sparse import csr_array, hstack

from estimators.bt_cells import Cells, Indices, checked, whole
from estimators.bt_graph import Labels
from estimators.bt_model import (
    Asked,
    BradleyTerryFit,
    Status,
    by_row,
    clustered,
    differences_of,
    fit_design,
    kept_rows,
    rule_of,
    with_maximum,
)
from estimators.bt_newton import Maximum, Rows, bordered, meat_of, rising
from estimators.bt_ties import Ties, log_likelihood, scores, slopes
from estimators.intervals import Array
from orchestrator.core.errors import DidNotConverge

BIAS_VARIANCE = 0.25
"""Prior variance of judges' deviations delta_j, squared logits: most favour the first place by within
a factor 2.7 in the odds of each other. Chosen, not derived."""

SHARPNESS_VARIANCE = 0.25
"""Prior variance of ln beta_j: most judges are within a factor 2.7 of the mean."""

AGAINST = -1.645
"""z of a judge's slope on the strengths, below which it votes against them (one-sided 5 %)."""

_TOLERANCE = 1e-8
"""Longest entry of the last step, in logits, or its length in standard errors."""

_MOST_STEPS = 100


class Effect(StrEnum):
    """How judges may differ."""

    BIAS = "bias"
    DISCRIMINATION = "discrimination"


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class JudgesFit:
    """Strengths together with what each of j judges adds.

    Attributes
    ----------
    fit : strengths; its other parameters are `gamma`, `delta0` …, `log_beta0` …, `nu`, as fitted. Its
        model covariance is that of the posterior, priors of the judges included, which is the one to
        read for what is shrunk: the others miss how far the prior moves it. The status is
        REVERSED, and strengths are nan, where a judge votes against them under discrimination
    delta, log_beta : (j,) logits of the first place over gamma, and log sharpness; 0 where not fitted
    agreement : (j,) z of the slope of a judge's votes on the strengths; nan without votes
    reversed : judges whose slope is negative beyond chance
    n_votes : (j,)
    """

    fit: BradleyTerryFit
    delta: Array
    log_beta: Array
    agreement: Array
    reversed: tuple[int, ...]
    n_votes: Labels

    @property
    def beta(self) -> Array:
        """Sharpness by judge, (j,); its geometric mean is 1."""
        return np.exp(self.log_beta)


def fit_judges(
    left: ArrayLike,
    right: ArrayLike,
    outcome: ArrayLike,
    judge: ArrayLike,
    *,
    n_models: int,
    n_judges: int,
    effect: str = "bias",
    bias_variance: float = BIAS_VARIANCE,
    sharpness_variance: float = SHARPNESS_VARIANCE,
    weights: ArrayLike | None = None,
    cluster: ArrayLike | None = None,
    ties: str = "half",
    ridge: float | None = None,
    covariates: ArrayLike | None = None,
    covariate_names: Sequence[str] = (),
) -> JudgesFit:
    """Fit strengths with an order intercept and an effect of each judge.

    Parameters
    ----------
    left, right, outcome, n_models, weights, cluster, ties, ridge, covariates, covariate_names : see
        `bt_model.fit_bradley_terry`; covariates with `bias` alone
    judge : (n,) integers in 0 to n_judges - 1
    effect : `bias` or `discrimination`, which includes the bias
    bias_variance, sharpness_variance : of the priors of delta_j and ln beta_j, > 0

    Raises
    ------
    ValueError
        Shapes, values or settings are malformed.
    DidNotConverge
        The iteration found no maximum.
    """
    rule = rule_of(ties)
    if effect not in set(Effect):
        raise ValueError(f"effect is {effect!r}; it must be one of {', '.join(Effect)}")
    if not (bias_variance > 0 and sharpness_variance > 0):
        raise ValueError("variances of judges' effects must be positive")
    if covariates is not None and effect == Effect.DISCRIMINATION:
        raise ValueError("a judge's sharpness can't be told apart from covariates' slopes")
    rows = checked(left, right, outcome, n_models=n_models, weights=weights)
    n = len(rows.code)
    by = whole(judge, n, n_judges, "judge")
    labels = None if cluster is None else np.asarray(cluster)
    if labels is not None and labels.shape != (n,):
        raise ValueError(f"cluster has shape {labels.shape}; outcome has {n} rows")
    kept = kept_rows(rows, rule)
    cells = Cells.of(rows)
    cells = cells.without_ties() if rule is Ties.DROP else cells
    marks = csr_array((np.ones(n), by, np.arange(n + 1)), shape=(n, n_judges))
    columns = [csr_array(np.ones((n, 1))), marks]
    names, precision = [f"delta{j}" for j in range(n_judges)], [1 / bias_variance] * n_judges
    if covariates is not None:
        measured, given = differences_of(covariates, covariate_names, n)
        columns.append(csr_array(measured))
        names += given
        precision += [0.0] * len(given)
    sample = by_row(rows, kept, hstack(columns, format="csr"))
    by = by[kept]
    asked = Asked(rule, True, ridge, tuple(names), tuple(precision))
    fit = fit_design(sample, cells, asked)
    delta = fit.slopes[1 : 1 + n_judges]
    log_beta = np.zeros(n_judges)
    votes = np.bincount(by, minlength=n_judges)
    agreement = np.full(n_judges, np.nan)
    if fit.iterations:
        eta = sample.predictor(fit.psi)
        if effect == Effect.DISCRIMINATION:
            sharp = _Sharp(sample, by, n_judges)
            top = _scored(sharp, fit, bias_variance, sharpness_variance)
            more = (*asked.covariates, *(f"log_beta{j}" for j in range(n_judges)))
            at = n_models + 1 + n_judges
            delta, log_beta = top.psi[n_models + 1 : at], top.psi[at : at + n_judges]
            eta, sample = sharp.predictor(top.psi), sharp.at(top.psi)
            fit = with_maximum(fit, top, ("gamma", *more, *fit.names[1 + n_judges :]))
        agreement = _agreement(sample, by, fit, delta)
        if labels is not None:
            fit = clustered(fit, sample, eta, labels[kept])
    against = tuple(int(j) for j in np.flatnonzero(agreement < AGAINST))
    if against and effect == Effect.DISCRIMINATION:
        who = ", ".join(str(j) for j in against)
        fit = replace(
            fit,
            theta=np.full(n_models, np.nan),
            status=Status.REVERSED,
            reason=f"judges vote against the strengths that all votes together give: {who}",
        )
    return JudgesFit(
        fit=fit,
        delta=delta,
        log_beta=log_beta,
        agreement=agreement,
        reversed=against,
        n_votes=votes,
    )


class _Sharp(NamedTuple):
    """Rows with a sharpness for each judge: psi = (theta, gamma, delta, ln beta, tau).

    Attributes
    ----------
    plain : the rows without it
    judge : of each row
    """

    plain: Rows
    judge: Indices
    n_judges: int

    def _split(self, psi: Array) -> tuple[Array, Array, Array]:
        """Give each row's sharpness, gap and what is added to it, (e,) each."""
        m, j = self.plain.n_models, self.n_judges
        theta, added = np.zeros(m + 1 + j), psi[: m + 1 + j].copy()
        theta[:m], added[:m] = psi[:m], 0.0
        beta = np.exp(psi[m + 1 + j : m + 1 + 2 * j])[self.judge]
        return beta, self.plain.jacobian @ theta, self.plain.jacobian @ added

    def predictor(self, psi: Array) -> Array:
        """Give eta of each row, (e,)."""
        beta, gap, added = self._split(psi)
        eta: Array = beta * gap + added
        return eta

    def at(self, psi: Array) -> Rows:
        """Give the rows with the derivatives of eta at psi."""
        beta, gap, _ = self._split(psi)
        plain, m, e = self.plain, self.plain.n_models, len(gap)
        theta = plain.jacobian[:, :m]
        theta.data = theta.data * np.repeat(beta, np.diff(theta.indptr))
        shape = e, self.n_judges
        sharp = csr_array((beta * gap, self.judge, np.arange(e + 1)), shape=shape)
        jacobian = hstack((theta, plain.jacobian[:, m:], sharp), format="csr")
        return plain._replace(jacobian=jacobian)

    def curvature(self, rows: Rows, by_eta: Array) -> Array:
        """Sum derivatives by eta times the second derivatives of eta, (p, p) without tau.

        Parameters
        ----------
        rows : at the point
        by_eta : (e,)
        """
        m, p = self.plain.n_models, rows.jacobian.shape[1]
        at = p - self.n_judges
        shape = len(by_eta), self.n_judges
        marks = csr_array((by_eta, self.judge, np.arange(len(by_eta) + 1)), shape=shape)
        found = np.zeros((p, p))
        found[:m, at:] = (rows.jacobian[:, :m].T @ marks).toarray()
        found[at:, :m] = found[:m, at:].T
        found[range(at, p), range(at, p)] = rows.jacobian[:, at:].T @ by_eta
        return found


def _scored(
    of: _Sharp, start: BradleyTerryFit, bias_variance: float, sharpness_variance: float
) -> Maximum:
    """Maximise the penalised likelihood by Newton's iteration, from equal sharpness.

    The likelihood is not concave in beta. Where the observed information is not positive definite
    the expected one is taken, which always is; a step, shortened where need be, then rises. Strengths
    and ln beta are moved inside their constraints by bases of them.

    Raises
    ------
    DidNotConverge
        The iteration did not reach its tolerance.
    """
    m, j, plain = start.n_models, of.n_judges, of.plain
    has_tau = "nu" in start.names
    psi = start.psi
    psi = np.concatenate((psi[: m + 1 + j], np.zeros(j), psi[m + 1 + j :]))
    precision = np.concatenate(
        (
            np.full(m, start.ridge),
            [start.slope_ridge],
            np.full(j, 1 / bias_variance),
            np.full(j, 1 / sharpness_variance),
            np.full(int(has_tau), start.slope_ridge),
        )
    )
    basis = block_diag(
        _contrasts(start.component),
        np.eye(1 + j),
        _contrasts(np.zeros(j, int)),
        np.eye(int(has_tau)),
    )

    def tau_of(at: Array) -> float | None:
        return float(at[-1]) if has_tau else None

    def objective(at: Array) -> float:
        loglik = log_likelihood(start.ties, of.predictor(at), tau_of(at), plain.sums)
        return loglik - float(precision @ at**2) / 2

    n_steps = 0
    while True:
        rows, eta = of.at(psi), of.predictor(psi)
        found = slopes(start.ties, eta, tau_of(psi), plain.sums)
        gradient = rows.gradient(found.e)
        if found.t is not None:
            gradient = np.append(gradient, found.t.sum())
        gradient -= precision * psi
        expected = bordered(rows, found.ee, found.et, found.tt) + np.diag(precision)
        observed = expected.copy()
        k = rows.jacobian.shape[1]
        observed[:k, :k] -= of.curvature(rows, found.e)
        try:
            factor = cho_factor(basis.T @ observed @ basis)
        except LinAlgError:
            factor = cho_factor(basis.T @ expected @ basis)
        step = basis @ cho_solve(factor, basis.T @ gradient)
        longest = float(np.abs(step).max())
        if longest <= _TOLERANCE or gradient @ step <= _TOLERANCE**2:
            break
        if n_steps == _MOST_STEPS:
            message = f"the judges' sharpness did not settle in {n_steps} steps"
            raise DidNotConverge(message, iterations=n_steps, residual=longest)
        psi = psi + rising(objective, psi, step) * step
        n_steps += 1
    return Maximum(
        psi=psi,
        bread=basis @ cho_solve(factor, basis.T),
        meat=meat_of(rows, scores(start.ties, eta, tau_of(psi))),
        loglik=log_likelihood(start.ties, eta, tau_of(psi), plain.sums),
        gradient=basis.T @ gradient,
        iterations=start.iterations + n_steps,
    )


def _contrasts(component: Labels) -> Array:
    """Give an orthonormal basis of what sums to 0 in each component, (m, m - components)."""
    parts = []
    for label in range(int(component.max(initial=-1)) + 1):
        members = np.flatnonzero(component == label)
        part = np.zeros((len(component), len(members) - 1))
        part[members] = helmert(len(members)).T
        parts.append(part)
    return np.concatenate(parts, axis=1)


def _agreement(rows: Rows, judge: Indices, fit: BradleyTerryFit, delta: Array) -> Array:
    """Give the score test of each judge's slope on the gaps at slope 0, z, (j,).

    The likelihood is concave in the slope, so that its estimate is negative where the score is.
    """
    m = fit.n_models
    theta = np.where(np.isfinite(fit.theta), fit.theta, 0.0)
    signs = csr_array(rows.jacobian[:, :m].sign())
    gap = signs @ theta
    tau = float(np.log(fit.nu)) if "nu" in fit.names else None
    found = slopes(fit.ties, fit.gamma + delta[judge], tau, rows.sums)
    score = np.bincount(judge, found.e * gap, len(delta))
    information = np.bincount(judge, found.ee * gap**2, len(delta))
    z = np.full(len(delta), np.nan)
    np.divide(score, np.sqrt(information), out=z, where=information > 0)
    return z
