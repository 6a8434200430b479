"""Who rates how, when a judge rates items one after another and remembers what it said.

A judge that reads several items in one call carries its last verdicts into the next: a mean of raw
verdicts then depends on the order, and on how far the items of a group are spread. Here each item's
quality is fitted together with the judge's memory and the mood of each call:

    logit P(accept) = quality of the item + memory and start of the batch + effect of the batch.

Qualities and their contrasts are for this judge and these items. The likelihood stands in
`markov_likelihood`, its maximum in `markov_fit`, what follows from a fit in `markov_inference`.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from types import MappingProxyType
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtr

from estimators.batches import MAX_LAGS, Counts, Layout, Rating, Sequences, laid_out, sequences
from estimators.intervals import Array
from estimators.markov_fit import (
    QUADRATURE_TOLERANCE,
    Maximum,
    NoMaximum,
    Penalty,
    ascent,
    maximise,
    undetermined,
)
from estimators.markov_likelihood import Modes, evaluate
from estimators.quadrature import gauss_hermite

WEAK = Penalty(mean=10.0, slopes=5.0, spread=5.0)
"""Scales that keep numbers finite where the data leave level, slopes or spread open."""

UNSTABLE_SPREAD = 4.0
"""Spread of batches, in logits, beyond which a fit counts as unstable."""

SATURATED = 0.5
"""Share of unanimous items from which on a judge can't tell the items of this panel apart."""


ONE_MAXIMUM = 200
"""Ratings from which on a fit may start from an earlier one. In fewer the likelihood can have two
maxima, one without spread and one with much of it, and which is found would depend on the start; such
fits take milliseconds anyway."""

LONGEST_SINGLE = 0.3
"""Longest single step, in logits, that is near enough to a full fit."""


class FitStatus(StrEnum):
    """Whether the data determine what was asked."""

    OK = "ok"
    NOT_ESTIMABLE = "not_estimable"


class Contrast(NamedTuple):
    """A weighted sum of item qualities, in logits, with Wald's test that it is 0.

    `est` and `se` stand where they are finite; `z` and `p` are nan where the contrast is not
    estimable, `reason` says why. `prior_sensitive`: it has weight on unanimous items, whose
    quality the penalty's scale decides; see `markov_inference.prior_sensitivity`.

    `lean` is what the penalty does to `est`, by item: with qualities that lie as far from their mean
    as its scale says, est is off by Σ lean_i u_i, u_i ~ N(0, 1). Its squares are a part of se², the
    part that judges who rate the same items share; see `judge_pool`.

    `df` are the degrees of freedom of Student's law that `p` is from; infinite for the normal law.
    """

    est: float
    se: float
    z: float
    p: float
    status: FitStatus = FitStatus.OK
    reason: str = ""
    prior_sensitive: bool = False
    lean: Mapping[Hashable, float] = MappingProxyType({})
    df: float = math.inf


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class MarkovFit:
    """One judge's fit.

    Attributes
    ----------
    items : (v,) as they were named, ascending
    coef_names : (v + q,) item names, then `lag1` … , `first` … , `miss1` …
    coef, se, cov : (v + q,), (v + q,), (v + q, v + q); logits. `cov` is from the inverse of the
        whole observed information, the spread's row included
    sigma_b, se_sigma : standard deviation of batch effects; its standard error is nan at 0
    loglik, penalised_loglik : at the maximum
    boundary : sigma_b is 0, and the standard errors are those of a logistic regression
    status, reason : whether the fit can be read, and why not
    unanimous : "accept" or "reject" by item, where all its ratings are alike
    undetermined : covariates that the data leave open, held by weak priors
    component : (v,) which items common batches connect
    flags : `saturated`, `unstable_spread`, `quadrature`, `undetermined`, as they hold
    prior : what was put on the parameters, the weak scales of open ones included
    counts : slots by what became of them
    lags, quadrature, penalty : as asked; `maximum.nodes` says how many nodes there were in the end
    source, data, maximum : what it was fitted to, and the maximum with its diagnostics

    Source: [LD26]; the penalty and what is done at the edges are ours.
    """

    items: tuple[Hashable, ...]
    coef_names: tuple[str, ...]
    coef: Array
    se: Array
    cov: Array
    sigma_b: float
    se_sigma: float
    loglik: float
    penalised_loglik: float
    boundary: bool
    status: FitStatus
    reason: str
    unanimous: Mapping[Hashable, str]
    undetermined: tuple[str, ...]
    component: NDArray[np.int64]
    flags: tuple[str, ...]
    counts: Counts
    lags: int
    quadrature: int
    penalty: float | None
    prior: Penalty
    source: Sequences
    data: Layout
    maximum: Maximum

    @property
    def theta(self) -> Array:
        """Item qualities, (v,), logits."""
        return self.coef[: len(self.items)]

    @property
    def slopes(self) -> dict[str, float]:
        """Covariates' slopes by name."""
        v = len(self.items)
        return dict(zip(self.coef_names[v:], self.coef[v:].tolist(), strict=True))

    @property
    def gradient_max(self) -> float:
        """Largest entry of the objective's gradient at the solution."""
        return float(np.abs(self.maximum.gradient).max(initial=0.0))

    @property
    def iterations(self) -> int:
        """Newton steps taken."""
        return self.maximum.iterations

    def weights(self, of: Mapping[Hashable, float] | Sequence[float] | Array) -> Array:
        """Lay out weights of items along `items`, (v,).

        Raises
        ------
        ValueError
            A name is unknown, or the number of weights is not that of the items.
        """
        if not isinstance(of, Mapping):
            laid = np.asarray(of, dtype=np.float64)
            if laid.shape != (len(self.items),):
                raise ValueError(f"{laid.size} weights for {len(self.items)} items")
            return laid
        if unknown := set(of) - set(self.items):
            raise ValueError(f"no ratings name item {min(unknown, key=str)!r}")
        return np.array([float(of.get(item, 0.0)) for item in self.items])

    def contrast(self, weights: Mapping[Hashable, float] | Sequence[float] | Array) -> Contrast:
        """Estimate Σ w theta and test that it is 0.

        se² = w' cov w with the whole covariance: qualities share the memory's and the spread's
        error. Between items that no batches connect only the assumption about batch effects would
        carry a comparison, so it is not made.

        Parameters
        ----------
        weights : by item, or (v,) along `items`

        Raises
        ------
        ValueError
            See `weights`.
        """
        w = self.weights(weights)
        v = len(w)
        est = float(w @ self.theta)
        towards = self.cov[:v, :v] @ w
        variance = float(w @ towards)
        se = math.sqrt(variance) if variance > 0 else math.nan
        names = [item for item, each in zip(self.items, w, strict=True) if each]
        is_sensitive = any(name in self.unanimous for name in names)
        reason = self.reason
        if not reason and self.component.any():
            levels = np.bincount(self.component, w)
            if np.abs(levels).max() > 1e-9 * np.abs(w).sum():
                reason = "it compares items that no chain of batches connects"
                est = se = np.nan
        if not reason and math.isnan(se):
            reason = "it has no weight on any item"
        if reason:
            return Contrast(est, se, np.nan, np.nan, FitStatus.NOT_ESTIMABLE, reason, is_sensitive)
        z = est / se
        lean = {}
        if self.prior.items is not None:
            lean = dict(
                zip(
                    self.items,
                    ((towards - towards.mean()) / self.prior.items).tolist(),
                    strict=True,
                )
            )
        p = float(2 * ndtr(-abs(z)))
        return Contrast(est, se, z, p, prior_sensitive=is_sensitive, lean=lean)


def fit_markov_glmm(
    ratings: Iterable[Rating], *, lags: int = 1, quadrature: int = 15, penalty: float | None = 5.0
) -> MarkovFit:
    """Fit one judge's ratings in batches, with its memory of the last slots and batch effects.

    Parameters
    ----------
    ratings : (batch, slot, item, y) in any order; y is 1 accept, 0 reject, None refused (the judge
        remembers no rating), nan rated but unreadable. Slots count by their order in a batch
    lags : depth of the memory, 0 to 5
    quadrature : nodes; 1 is Laplace's approximation. From 15 on they are checked with twice as
        many, and more are taken where it matters
    penalty : scale in logits of a normal prior of item qualities around their mean, which keeps
        unanimous items finite; it is O(1) against information that grows with the batches. None:
        no prior

    Returns
    -------
    MarkovFit, with a status in place of an error where the data leave something open: all items
    unanimous, one batch, batches all of one opinion, no ratings. Numbers are then those under weak
    priors.

    Raises
    ------
    ValueError
        The ratings are malformed, or a setting is out of range.
    DidNotConverge
        The iteration found no maximum.

    Source: [LD26]; [LP94] for the quadrature, [L82] for the information.
    """
    return fit_sequences(sequences(ratings), lags=lags, quadrature=quadrature, penalty=penalty)


def fit_sequences(
    of: Sequences,
    *,
    lags: int = 1,
    quadrature: int = 15,
    penalty: float | None = 5.0,
    near: MarkovFit | None = None,
) -> MarkovFit:
    """Fit batches that are sorted already; see `fit_markov_glmm`.

    Parameters
    ----------
    near : a fit to start from, of the same batches in part; it changes the way, not the result
    """
    if not 0 <= lags <= MAX_LAGS:
        raise ValueError(f"lags is {lags}; it must be 0 to {MAX_LAGS}")
    if not 1 <= quadrature <= 41:
        raise ValueError(f"quadrature is {quadrature}; it must be 1 to 41 nodes")
    if penalty is not None and not penalty > 0:
        raise ValueError(f"penalty is {penalty}; it must be positive, or None")
    data = laid_out(of, lags)
    alike = data.unanimous
    is_open = undetermined(data)
    reason = _left_open(data, alike, is_open, penalty)
    prior = Penalty(items=penalty)
    weak = replace(WEAK, items=WEAK.items if penalty is None else penalty)
    if reason or is_open.any():
        prior = weak if reason else replace(weak, spread=None)
    start = modes = None
    if near is not None and near.status is FitStatus.OK and data.shown.sum() >= ONE_MAXIMUM:
        start, modes = _carried(near, of, data)
    if not len(data):
        return _as_fit(
            of, data, _nothing(data), (lags, quadrature, penalty), prior, is_open, reason
        )
    try:
        top = maximise(
            data,
            quadrature=quadrature,
            penalty=prior,
            start=start,
            modes=modes,
        )
    except NoMaximum as exc:
        reason = str(exc)
        prior = weak
        top = maximise(data, quadrature=quadrature, penalty=prior)
    return _as_fit(of, data, top, (lags, quadrature, penalty), prior, is_open, reason)


def warm_start(fit: MarkovFit, ratings: Iterable[Rating]) -> MarkovFit:
    """Fit the ratings so far and these batches more, from where the fit so far stands.

    It equals the cold fit of all ratings to the tolerance of both, in fewer steps.

    Raises
    ------
    ValueError
        Ratings are malformed, or a batch is there already: a batch is told whole.
    DidNotConverge
        The iteration found no maximum.
    """
    of = fit.source.joined(sequences(ratings))
    return fit_sequences(
        of, lags=fit.lags, quadrature=fit.quadrature, penalty=fit.penalty, near=fit
    )


class Running(NamedTuple):
    """Estimates that are carried along between full fits.

    Attributes
    ----------
    psi, information : (p,), (p, p), as in `markov_fit.Maximum`
    longest : longest entry of the steps since the full fit
    n_batches : batches taken since then
    """

    psi: Array
    information: Array
    longest: float = 0.0
    n_batches: int = 0

    @property
    def needs_refit(self) -> bool:
        """Whether single steps have gone too far: ten batches, or one that was too long."""
        return self.n_batches >= 10 or self.longest > LONGEST_SINGLE


def one_step(fit: MarkovFit, run: Running | None, ratings: Iterable[Rating]) -> Running:
    """Take batches more into account by one Newton step: psi + (I + I_new)⁻¹ g_new.

    At the maximum the gradient of the old batches is 0, so that their information is all that is
    needed of them. The cost does not depend on their number.

    Parameters
    ----------
    fit : the last full fit
    run : where earlier steps ended; None: none yet
    ratings : whole batches of the fit's items

    Raises
    ------
    ValueError
        Ratings are malformed or name an item that the fit lacks.
    """
    run = Running(fit.maximum.psi, fit.maximum.information) if run is None else run
    more = sequences(ratings)
    if unknown := set(more.items) - set(fit.items):
        raise ValueError(f"the fit lacks item {min(unknown, key=str)!r}")
    nobody = np.zeros(0, dtype=np.int64)
    data = laid_out(fit.source.take(nobody).joined(more), fit.lags, names=fit.data.names)
    step, information = _step(run.psi, run.information, data, fit.maximum.nodes)
    return Running(
        run.psi + step,
        information,
        max(run.longest, float(np.abs(step).max(initial=0.0))),
        run.n_batches + len(more),
    )


def _step(psi: Array, information: Array, more: Layout, nodes: int) -> tuple[Array, Array]:
    """Give Newton's step for batches more, and the information with theirs."""
    found = evaluate(more, psi, gauss_hermite(nodes))
    together = information + found.information
    return ascent(together, found.gradient), together


def _left_open(
    data: Layout, alike: NDArray[np.int8], is_open: NDArray[np.bool_], penalty: float | None
) -> str:
    """Say what the data leave open altogether; empty: nothing."""
    is_rated = data.shown.any(axis=0)
    if not is_rated.any():
        return "there are no ratings"
    if alike[is_rated].all():
        return "every item is unanimous"
    if len(data) == 1:
        return "there is one batch, whose effect can't be told from the items' level"
    if data.shown.sum(axis=1).max() == 1:
        return "no batch has two ratings, so that batch effects can't be told from chance"
    if penalty is None and (alike.any() or not is_rated.all()):
        return "unanimous and unrated items have no finite estimate without a penalty"
    if penalty is None and is_open.any():
        names = ", ".join(data.names[j] for j in np.flatnonzero(is_open))
        return f"without a penalty these have no finite estimate: {names}"
    return ""


def _carried(near: MarkovFit, of: Sequences, data: Layout) -> tuple[Array, Array]:
    """Carry a fit's parameters and modes over to the parameters and batches of another."""
    quality = dict(zip(near.items, near.theta.tolist(), strict=True))
    level = float(near.theta.mean())
    slopes = near.slopes
    start = np.array(
        [
            *(quality.get(item, level) for item in of.items),
            *(slopes.get(name, 0.0) for name in data.names),
            near.sigma_b,
        ]
    )
    known = dict(
        zip(
            (near.source.batches[i] for i in near.data.rows),
            near.maximum.modes.at.tolist(),
            strict=True,
        )
    )
    modes = [known.get(of.batches[i]) for i in data.rows]
    is_new = np.array([mode is None for mode in modes])
    if of.items == near.items and data.names == near.data.names:
        more = data.take(np.flatnonzero(is_new))
        step, _ = _step(start, near.maximum.information, more, near.maximum.nodes)
        # Beyond that it is no good guess, and a full step from the fit is safer.
        if np.abs(step).max(initial=0.0) <= LONGEST_SINGLE:
            start += step
    return start, np.array([mode or 0.0 for mode in modes])


def _nothing(data: Layout) -> Maximum:
    """Nothing known, for nothing rated."""
    p = data.n_items + len(data.names) + 1
    unknown = np.full(p, np.nan)
    return Maximum(
        psi=unknown,
        loglik=0.0,
        objective=0.0,
        score=np.zeros((0, p)),
        gradient=np.zeros(p),
        information=np.zeros((p, p)),
        modes=Modes(np.zeros(0), np.zeros(0)),
        is_boundary=False,
        iterations=0,
        nodes=1,
        quadrature_error=np.nan,
    )


def _as_fit(
    of: Sequences,
    data: Layout,
    top: Maximum,
    asked: tuple[int, int, float | None],
    prior: Penalty,
    is_open: NDArray[np.bool_],
    reason: str,
) -> MarkovFit:
    lags, quadrature, penalty = asked
    p = len(top.psi)
    covariance = top.covariance if len(data) else np.full((p, p), np.nan)
    with np.errstate(invalid="ignore"):  # nan in, nan out
        se = np.sqrt(np.diag(covariance))
    left_open = tuple(data.names[j] for j in np.flatnonzero(is_open))
    alike = data.unanimous
    n_rated = int(data.shown.any(axis=0).sum())
    held = {
        "saturated": np.count_nonzero(alike) >= SATURATED * n_rated > 0,
        "unstable_spread": top.psi[-1] > UNSTABLE_SPREAD,
        "quadrature": top.quadrature_error > QUADRATURE_TOLERANCE,
        "undetermined": bool(left_open),
    }
    words = {1: "accept", -1: "reject"}
    names = (str(item) if isinstance(item, str) else f"item{item}" for item in of.items)
    return MarkovFit(
        items=of.items,
        coef_names=(*names, *data.names),
        coef=top.psi[:-1],
        se=se[:-1],
        cov=covariance[:-1, :-1],
        sigma_b=float(top.psi[-1]),
        se_sigma=float(se[-1]),
        loglik=top.loglik,
        penalised_loglik=top.objective,
        boundary=top.is_boundary,
        status=FitStatus.NOT_ESTIMABLE if reason else FitStatus.OK,
        reason=reason,
        unanimous={item: words[int(k)] for item, k in zip(of.items, alike, strict=True) if k},
        undetermined=left_open,
        component=data.components(),
        flags=tuple(flag for flag, holds in held.items() if holds),
        counts=data.counts,
        lags=lags,
        quadrature=quadrature,
        penalty=penalty,
        prior=prior,
        source=of,
        data=data,
        maximum=top,
    )
