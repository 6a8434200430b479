"""Strengths of models from comparisons in pairs: the Bradley-Terry model and what an estimate may say.

With model a shown first and b second,

    P(a wins) = sigma(theta_a - theta_b + gamma + covariates' slopes),

theta in natural log-odds, gamma the advantage of the first place. Ties follow a rule of `bt_ties`.
Strengths have a common scale inside a component of the comparison graph alone, where they sum to 0;
gaps have a finite estimate inside a component of "beats" alone (`bt_graph`). Where the data leave
something open a weak prior holds the numbers, and the status says so.

Source: [BT52]; [F57] for what exists; [W80] for the sandwich.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.sparse import csr_array, hstack
from scipy.special import ndtri

from estimators.bt_cells import TIE, Cells, Verdicts, checked
from estimators.bt_graph import Components, Labels, components
from estimators.bt_newton import Design, Grid, Maximum, Rows, Undetermined, maximise, sandwich
from estimators.bt_ties import Ties, scores
from estimators.intervals import Array

PRIOR_VARIANCE = 4.0
"""Of strengths, squared logits, where the data leave them open: gaps of 5 logits are then rare."""

FEW_CLUSTERS = 30
"""Clusters below which a covariance by clusters is itself unreliable."""

LOW_ESS = 0.25
"""Effective share of the comparisons below which weights are too unequal to rely on."""


class Status(StrEnum):
    """Whether the data determine what was asked."""

    OK = "ok"
    NO_DATA = "no_data"
    DISCONNECTED = "disconnected"
    SEPARATED = "separated"
    UNDETERMINED = "undetermined"
    REVERSED = "reversed"


class Kind(StrEnum):
    """Where a covariance is from: the model's variance, single rows' scores, or clusters' scores."""

    MODEL = "model"
    SANDWICH = "sandwich"
    CLUSTER = "cluster"


class Gap(NamedTuple):
    """A difference of two strengths, logits, with Wald's interval.

    Between components it is undefined, and where one model never lost to the other it has no finite
    estimate: numbers are then nan, the interval is the whole line, and `status` says which.
    """

    est: float
    se: float
    lower: float
    upper: float
    status: Status


class Slope(NamedTuple):
    """A parameter that is no strength, with its standard errors; nan where there is none."""

    est: float
    se: float
    se_sandwich: float
    se_cluster: float


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class BradleyTerryFit:
    """Strengths of m models.

    Attributes
    ----------
    theta : (m,) natural log-odds, summing to 0 in each component; nan for a model that was never
        compared
    names : (q,) of the other parameters: `gamma`, covariates, `nu`, as they were fitted
    slopes : (q,) their values
    gamma : advantage of the first place, logits; 0 where it was not asked for
    nu : the parameter of the rule for ties; nan where the rule has none
    joint, joint_sandwich, joint_cluster : (m + q, m + q) covariances of theta and slopes: inverse of
        the information, the sandwich of rows' scores [W80], and that of clusters' summed scores
        without a small-sample factor; None: no clusters were given
    loglik : at theta, without the prior; a quasi-likelihood where ties count half
    gradient_max, iterations : how well it converged
    component, n_components : which models have a common scale, (m,), and how many such sets there are
    strong, n_strong : the same for finite gaps
    status, reason : what the data leave open; DISCONNECTED stands before SEPARATED where both hold
    ridge, slope_ridge : precision of the prior on strengths and on slopes; 0: none
    asked_ridge : as it was asked for
    flags : `ridge`, `few_clusters`, `few_effective`, as they hold
    is_robust : rows are weighted, or ties count half: the model's covariance is then none
    kind : which covariance to use: clusters' from 30 clusters on, rows' where rows are weighted or
        ties count half, else the model's
    ties, order_effect : as asked
    n, n_missing : rows with and without a verdict
    n_clusters : 0 where none were given
    ess : effective number of rows, (Σ w)²/Σ w²
    """

    theta: Array
    names: tuple[str, ...]
    slopes: Array
    gamma: float
    nu: float
    joint: Array
    joint_sandwich: Array
    joint_cluster: Array | None
    loglik: float
    gradient_max: float
    iterations: int
    component: Labels
    n_components: int
    strong: Labels
    n_strong: int
    status: Status
    reason: str
    ridge: float
    slope_ridge: float
    asked_ridge: float | None
    flags: tuple[str, ...]
    is_robust: bool
    kind: Kind
    ties: Ties
    order_effect: bool
    n: int
    n_missing: int
    n_clusters: int
    ess: float

    @property
    def n_models(self) -> int:
        """Number of models, m."""
        return len(self.theta)

    @property
    def psi(self) -> Array:
        """Strengths and slopes as they are iterated, (m + q,): ln nu for nu, 0 for what is unknown."""
        psi = np.concatenate((self.theta, self.slopes))
        if "nu" in self.names:
            psi[-1] = np.log(psi[-1])
        return np.where(np.isfinite(psi), psi, 0.0)

    def covariance(self, kind: Kind | None = None) -> Array:
        """Give the covariance of strengths, (m, m); nan where there is none of that kind.

        Parameters
        ----------
        kind : None: the one to use, `self.kind`
        """
        m = self.n_models
        return self._joint(kind)[:m, :m]

    @property
    def cov(self) -> Array:
        """Covariance of strengths by the model, (m, m). With weights it is no covariance."""
        return self.covariance(Kind.MODEL)

    @property
    def cov_sandwich(self) -> Array:
        """Covariance of strengths by rows' scores, (m, m)."""
        return self.covariance(Kind.SANDWICH)

    @property
    def cov_cluster(self) -> Array | None:
        """Covariance of strengths by clusters' scores, (m, m); None: no clusters were given."""
        return None if self.joint_cluster is None else self.covariance(Kind.CLUSTER)

    @property
    def se(self) -> Array:
        """Standard errors of strengths by the model, (m,)."""
        return _roots(self.cov)

    @property
    def se_sandwich(self) -> Array:
        """Standard errors of strengths by rows' scores, (m,)."""
        return _roots(self.cov_sandwich)

    @property
    def se_cluster(self) -> Array | None:
        """Standard errors of strengths by clusters' scores, (m,); None: no clusters were given."""
        return None if self.cov_cluster is None else _roots(self.cov_cluster)

    def slope(self, name: str) -> Slope:
        """Give a parameter behind the strengths: `gamma`, `nu`, or a covariate.

        Raises
        ------
        KeyError
            The fit has none of that name.
        """
        if name not in self.names:
            raise KeyError(name)
        j = self.names.index(name)
        at = self.n_models + j
        errors = (float(_roots(self._joint(kind))[at]) for kind in Kind)
        return Slope(float(self.slopes[j]), *errors)

    def relation(self, a: int, b: int) -> Status:
        """Say whether the gap between two models is finite, separated, or undefined."""
        if self.status in {Status.NO_DATA, Status.REVERSED}:
            return self.status
        if self.component[a] != self.component[b]:
            return Status.DISCONNECTED
        if self.strong[a] != self.strong[b]:
            return Status.SEPARATED
        return Status.UNDETERMINED if self.slope_ridge else Status.OK

    def gap(self, a: int, b: int, *, level: float = 0.95, kind: Kind | None = None) -> Gap:
        """Estimate theta_a - theta_b: its variance is V_aa + V_bb - 2 V_ab.

        Parameters
        ----------
        kind : of covariance; None: `self.kind`
        """
        status = self.relation(a, b)
        if status is not Status.OK:
            return Gap(math.nan, math.nan, -math.inf, math.inf, status)
        est = float(self.theta[a] - self.theta[b])
        cov = self.covariance(kind)
        se = math.sqrt(max(float(cov[a, a] + cov[b, b] - 2 * cov[a, b]), 0.0))
        half = float(ndtri((1 + level) / 2)) * se
        return Gap(est, se, est - half, est + half, status)

    def _joint(self, kind: Kind | None) -> Array:
        match self.kind if kind is None else kind:
            case Kind.MODEL:
                return self.joint
            case Kind.SANDWICH:
                return self.joint_sandwich
            case Kind.CLUSTER:
                return (
                    np.full_like(self.joint, np.nan)
                    if self.joint_cluster is None
                    else self.joint_cluster
                )


def fit_bradley_terry(
    left: ArrayLike,
    right: ArrayLike,
    outcome: ArrayLike,
    *,
    n_models: int,
    order_effect: bool = False,
    weights: ArrayLike | None = None,
    cluster: ArrayLike | None = None,
    ties: str = "half",
    ridge: float | None = None,
    covariates: ArrayLike | None = None,
    covariate_names: Sequence[str] = (),
) -> BradleyTerryFit:
    """Fit strengths to comparisons in pairs.

    Parameters
    ----------
    left, right : (n,) integers in 0 to n_models - 1, shown first and second
    outcome : (n,) 1 left wins, ½ tie, 0 right wins, nan no verdict: counted, and not fitted
    order_effect : whether the first place has an advantage of its own, gamma
    weights : (n,) target over propensity, say; None: all 1
    cluster : (n,) what rows have in common, such as the prompt
    ties : `half`, `drop`, `davidson` or `rao_kupper`; see `bt_ties`
    ridge : precision of a normal prior on strengths; None: none where all gaps are finite and on a
        common scale, else 1/`PRIOR_VARIANCE`, flagged. With 0 strengths are nan where some gap is
        not finite
    covariates : (n,) or (n, q) differences, left's value minus right's, with a slope each
    covariate_names : (q,)

    Returns
    -------
    BradleyTerryFit, with a status in place of an error where the data leave something open.

    Raises
    ------
    ValueError
        Shapes or values are malformed.
    DidNotConverge
        The iteration found no maximum.

    Source: [BT52], [D70], [RK67]; covariances [W80]. O(n + iterations · m³).
    """
    rule = rule_of(ties)
    rows = checked(left, right, outcome, n_models=n_models, weights=weights)
    n = len(rows.code)
    labels = None if cluster is None else np.asarray(cluster)
    if labels is not None and labels.shape != (n,):
        raise ValueError(f"cluster has shape {labels.shape}; outcome has {n} rows")
    cells = Cells.of(rows)
    if covariates is None:
        fit = fit_cells(cells, order_effect=order_effect, ties=rule, ridge=ridge)
        columns = np.ones((n, int(order_effect)))
    else:
        differences, given = differences_of(covariates, covariate_names, n)
        columns = np.column_stack((np.ones((n, int(order_effect))), differences))
        if rule is Ties.DROP:
            cells = cells.without_ties()
        sample = by_row(rows, kept_rows(rows, rule), columns)
        fit = fit_design(sample, cells, Asked(rule, order_effect, ridge, given))
    if labels is None:
        return fit
    kept = kept_rows(rows, rule)
    sample = by_row(rows, kept, columns)
    return clustered(fit, sample, sample.predictor(fit.psi), labels[kept])


def fit_cells(
    cells: Cells,
    *,
    order_effect: bool = False,
    ties: str = "half",
    ridge: float | None = None,
    near: BradleyTerryFit | None = None,
) -> BradleyTerryFit:
    """Fit strengths to a table of comparisons; see `fit_bradley_terry`.

    Parameters
    ----------
    near : a fit to start from; it changes the way, not the result
    """
    rule = rule_of(ties)
    if rule is Ties.DROP:
        cells = cells.without_ties()
    asked = Asked(rule, order_effect, ridge)
    return fit_design(_grid(cells, order_effect=order_effect), cells, asked, near)


def refit(fit: BradleyTerryFit, cells: Cells) -> BradleyTerryFit:
    """Fit a table again after landings, from where the fit so far stands, with the same settings."""
    return fit_cells(
        cells,
        order_effect=fit.order_effect,
        ties=fit.ties,
        ridge=fit.asked_ridge,
        near=fit,
    )


class Asked(NamedTuple):
    """What is to be fitted; see `fit_bradley_terry`.

    Attributes
    ----------
    covariates : (q,) names
    precision : (q,) of a prior on their slopes; empty: none
    """

    ties: Ties
    order_effect: bool
    ridge: float | None
    covariates: tuple[str, ...] = ()
    precision: tuple[float, ...] = ()


def rule_of(ties: str) -> Ties:
    """Read the name of a rule for ties.

    Raises
    ------
    ValueError
        There is none of that name.
    """
    try:
        return Ties(ties)
    except ValueError:
        raise ValueError(f"ties is {ties!r}; it must be one of {', '.join(Ties)}") from None


def _grid(cells: Cells, *, order_effect: bool) -> Grid:
    flat = 3, cells.n_models**2
    return Grid(cells.sums.reshape(flat), cells.squares.reshape(flat), cells.n_models, order_effect)


def kept_rows(rows: Verdicts, ties: Ties) -> NDArray[np.bool_]:
    """Say which rows are fitted, (n,)."""
    kept = rows.is_told & (rows.code != TIE) if ties is Ties.DROP else rows.is_told
    return kept if rows.weights is None else kept & (rows.weights > 0)


def by_row(rows: Verdicts, kept: NDArray[np.bool_], columns: Array | csr_array) -> Rows:
    """Lay out rows for a fit, each with its models and columns behind them, (n, q)."""
    left, right, m = rows.left[kept], rows.right[kept], rows.n_models
    w = 1.0 if rows.weights is None else rows.weights[kept]
    told = np.eye(3)[:, rows.code[kept]]
    n = len(left)
    signs = np.tile([1.0, -1.0], n)
    models = np.column_stack((left, right)).ravel()
    theta = csr_array((signs, models, np.arange(0, 2 * n + 1, 2)), shape=(n, m))
    jacobian = hstack((theta, csr_array(columns)[kept]), format="csr")
    return Rows(jacobian, told * w, told * w**2, m)


def differences_of(
    covariates: ArrayLike, names: Sequence[str], n: int
) -> tuple[Array, tuple[str, ...]]:
    """Check difference covariates, (n, q), and name them."""
    given = np.asarray(covariates, dtype=np.float64)
    given = given[:, None] if given.ndim == 1 else given
    if given.ndim != 2 or len(given) != n:
        raise ValueError(f"covariates have shape {given.shape}; outcome has {n} rows")
    if not np.isfinite(given).all():
        raise ValueError("covariates must be finite")
    named = tuple(names) or tuple(f"x{j}" for j in range(given.shape[1]))
    if len(named) != given.shape[1] or len({*named, "gamma", "nu"}) != len(named) + 2:
        raise ValueError(
            f"{given.shape[1]} covariates need as many names, each once, none gamma or nu: {named}"
        )
    return given, named


def fit_design(
    sample: Design, cells: Cells, asked: Asked, near: BradleyTerryFit | None = None
) -> BradleyTerryFit:
    """Fit comparisons that are laid out already.

    Parameters
    ----------
    cells : the same comparisons, for the graph and the counts
    near : a fit to start from
    """
    m = sample.n_models
    parts = components(cells.beats)
    has_tau = asked.ties.has_nu and bool(sample.sums[TIE].any())
    names = (*(("gamma",) if asked.order_effect else ()), *asked.covariates)
    names += ("nu",) if has_tau else ()
    is_whole = parts.is_connected and not parts.is_separated
    ridge = asked.ridge
    if ridge is None:
        ridge = 0.0 if is_whole else 1 / PRIOR_VARIANCE
    elif not 0 <= ridge < math.inf:
        raise ValueError(f"ridge is {ridge}; it must be finite and not negative, or None")
    status, reason = _left_open(parts, sample)
    slope_ridge, top = 0.0, None
    if status is not Status.NO_DATA and (ridge or not parts.is_separated):
        is_near = near is not None and near.names == names and near.n_models == m
        worth = np.concatenate((sample.worth, np.ones(int(has_tau))))
        worth[worth == 0] = 1.0
        prior = np.zeros(len(names))
        at = int(asked.order_effect)
        prior[at : at + len(asked.precision)] = asked.precision

        def top_with(slope_ridge: float, start: Array | None) -> Maximum:
            return maximise(
                sample,
                ties=asked.ties,
                has_tau=has_tau,
                precision=np.concatenate(
                    (np.full(m, ridge), np.maximum(prior, slope_ridge * worth))
                ),
                component=None if parts.is_connected else parts.weak,
                start=start,
            )

        try:
            top = top_with(0.0, near.psi if near is not None and is_near else None)
        except Undetermined:
            slope_ridge = 1 / PRIOR_VARIANCE
            top = top_with(slope_ridge, None)
            more = f"{', '.join(names)}: not determined by the data, or not finite"
            reason = f"{reason}; {more}" if reason else more
            status = Status.UNDETERMINED if status is Status.OK else status
    p = m + len(names)
    unknown = np.full((p, p), np.nan)
    has_half_ties = asked.ties is Ties.HALF and bool(sample.sums[TIE].any())
    held = {
        "ridge": top is not None and (ridge > 0 or slope_ridge > 0),
        "few_effective": cells.is_weighted and cells.ess < LOW_ESS * cells.n,
    }
    fit = BradleyTerryFit(
        theta=np.full(m, np.nan),
        names=names,
        slopes=np.full(len(names), np.nan),
        gamma=math.nan if asked.order_effect else 0.0,
        nu=float(asked.ties is Ties.RAO_KUPPER) if asked.ties.has_nu and not has_tau else math.nan,
        joint=unknown,
        joint_sandwich=unknown,
        joint_cluster=None,
        loglik=math.nan,
        gradient_max=math.nan,
        iterations=0,
        component=parts.weak,
        n_components=parts.n,
        strong=parts.strong,
        n_strong=parts.n_strong,
        status=status,
        reason=reason,
        ridge=ridge,
        slope_ridge=slope_ridge,
        asked_ridge=asked.ridge,
        flags=tuple(flag for flag, holds in held.items() if holds),
        is_robust=cells.is_weighted or has_half_ties,
        kind=Kind.SANDWICH if cells.is_weighted or has_half_ties else Kind.MODEL,
        ties=asked.ties,
        order_effect=asked.order_effect,
        n=cells.n,
        n_missing=int(cells.missing.sum()),
        n_clusters=0,
        ess=cells.ess,
    )
    return fit if top is None else with_maximum(fit, top, names)


def _left_open(parts: Components, sample: Design) -> tuple[Status, str]:
    """Say what the graph of comparisons leaves open."""
    if not sample.sums.any():
        return Status.NO_DATA, "there are no comparisons"
    if not parts.is_connected:
        return Status.DISCONNECTED, f"no chain of comparisons connects {parts.n} sets of models"
    if parts.is_separated:
        return Status.SEPARATED, "some models never lost to others, so that gaps are not finite"
    return Status.OK, ""


def with_maximum(fit: BradleyTerryFit, top: Maximum, names: tuple[str, ...]) -> BradleyTerryFit:
    """Put a maximum's numbers into a fit.

    Parameters
    ----------
    names : (q,) of what stands behind the strengths in its psi, nu for tau
    """
    m = fit.n_models
    psi, joint, rows = top.psi.copy(), top.bread.copy(), top.sandwich
    if fit.n_components > 1:
        alone = np.flatnonzero(np.bincount(fit.component)[fit.component] == 1)
        psi[alone] = np.nan
        for of in (joint, rows):
            of[alone] = np.nan
            of[:, alone] = np.nan
    nu = fit.nu
    if "nu" in names:
        # By the delta method: d nu = nu d tau.
        nu = psi[-1] = math.exp(psi[-1])
        for of in (joint, rows):
            of[-1] *= nu
            of[:, -1] *= nu
    return replace(
        fit,
        theta=psi[:m],
        names=names,
        slopes=psi[m:],
        gamma=float(psi[m]) if fit.order_effect else 0.0,
        nu=nu,
        joint=joint,
        joint_sandwich=rows,
        loglik=top.loglik,
        gradient_max=float(np.abs(top.gradient).max(initial=0.0)),
        iterations=top.iterations,
    )


def clustered(
    fit: BradleyTerryFit, rows: Rows, eta: Array, cluster: NDArray[np.generic]
) -> BradleyTerryFit:
    """Add the covariance of clusters' summed scores.

    Parameters
    ----------
    rows : those that were fitted
    eta, cluster : of each
    """
    labels, at = np.unique(cluster, return_inverse=True)
    n, p = len(labels), len(fit.joint)
    found = np.full((p, p), np.nan)
    if n > 1 and fit.iterations:
        has_nu = "nu" in fit.names
        of_outcome = scores(fit.ties, eta, math.log(fit.nu) if has_nu else None)

        def summed(score: Array) -> csr_array:
            told = np.einsum("ke,ke->e", rows.sums, score)
            return csr_array((told, (at, np.arange(len(at)))), shape=(n, len(at)))

        by_cluster = [summed(of_outcome.e) @ rows.jacobian]
        if of_outcome.t is not None:
            by_cluster.append(summed(of_outcome.t / fit.nu).sum(axis=1)[:, None])
        total = hstack(by_cluster, format="csr")
        meat = (total.T @ total).toarray()
        known = np.ix_(*2 * [np.flatnonzero(np.isfinite(np.diag(fit.joint)))])
        found[known] = sandwich(fit.joint[known], meat[known])
    is_few = n < FEW_CLUSTERS
    return replace(
        fit,
        joint_cluster=found,
        n_clusters=n,
        kind=fit.kind if is_few else Kind.CLUSTER,
        flags=(*fit.flags, "few_clusters") if is_few else fit.flags,
    )


def _roots(of: Array) -> Array:
    """Take the square roots of a covariance's diagonal; nan stays nan."""
    return np.sqrt(np.maximum(np.diag(of), 0.0))
