"""Strengths of models by context, where contexts share what they ask for: a tensor of low rank.

A model has a strength in every category, or category and judge. Each alone needs many votes; but a few
traits of models, weighed differently by contexts, account for most of them. So

    logit P(left wins in context k) = T[left, k] - T[right, k] (+ gamma),

T of a low Tucker rank, each column summing to zero. Votes of one context then inform the others.
Tangent spaces stand in `tensor_tangent`, the likelihood in `tensor_cells`, its maximum in `tensor_fit`,
cross-fitted estimates in `tensor_one_step`, the choice of the rank in `tensor_rank`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import expit

from estimators.intervals import Array
from estimators.markov_model import FitStatus
from estimators.tensor_cells import Cells, Votes, votes
from estimators.tensor_fit import Maximum, inverse, maximise
from estimators.tensor_functionals import Estimates, Functional, evaluate
from estimators.tensor_one_step import (
    FEW_EFFECTIVE,
    Information,
    Kind,
    cross_fitted,
    fold_labels,
    forward,
    forward_blocks,
)
from estimators.tensor_tangent import dimension, full_rank

FEWEST_VOTES = 10
"""Votes a parameter below which no tensor is fitted."""

WORST_CONDITION = 1e8
LEAST_EIGENVALUE = 5.0
"""Condition number of the information, and its least eigenvalue over all votes, beyond which a fit
counts as weakly identified."""

OPEN = 1e-4
"""Least eigenvalue over all votes at which a direction counts as open: a standard error of a hundred
logits."""

FOLD_RIDGE = 0.2
"""1 / variance of the prior in fits of folds, without which sparse ones run away."""

Errors = Literal["model", "sandwich"]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class TensorFit:
    """Strengths of one rank.

    Attributes
    ----------
    shape, rank : of the tensor
    tensor : T in its shape, logits; nan where no tensor was fitted
    gamma : advantage of the one shown first, logits; nan: no parameter
    loglik : without the penalty; with ties a quasi-likelihood
    information : (P, P) over all votes, in coordinates of the tangent space, gamma's last
    covariance, covariance_sandwich : (P, P) of these coordinates, by the model and robust
    condition, min_eigenvalue : of the information a vote
    status, reason : whether the fit can be read, and why not
    flags : `weakly_identified`, `few_effective_votes`, as they hold
    ridge, order_effect : as asked
    source, maximum : what it was fitted to, and the maximum; None where there is none

    Source: [LSS26]; scoring, refusals and the ridge of folds are ours.
    """

    shape: tuple[int, ...]
    rank: tuple[int, ...]
    tensor: Array
    gamma: float
    loglik: float
    information: Array
    covariance: Array
    covariance_sandwich: Array
    condition: float
    min_eigenvalue: float
    status: FitStatus
    reason: str
    flags: tuple[str, ...]
    ridge: float
    order_effect: bool
    source: Votes
    maximum: Maximum | None

    @property
    def n(self) -> int:
        """Votes."""
        return len(self.source)

    @property
    def dimension(self) -> int:
        """Free parameters D of the tensor, gamma not among them."""
        return dimension(self.shape, self.rank)

    @property
    def bic(self) -> float:
        """-2 loglik + D log n, gamma counted where it is a parameter."""
        return -2 * self.loglik + (self.dimension + self.order_effect) * math.log(self.n)

    @property
    def iterations(self) -> int:
        """Steps taken."""
        return 0 if self.maximum is None else self.maximum.iterations

    @property
    def gradient_max(self) -> float:
        """Largest entry of the gradient in coordinates at the solution, per vote."""
        return math.nan if self.maximum is None else self.maximum.gradient_max

    @property
    def inverse_norm(self) -> float:
        """Norm of A⁻¹ from largest to largest entry, A = P G P a vote, over the tensor's entries.

        The largest sum over a row of |Q (Q'GQ)⁻¹ Q'|. Costs (models · contexts)² · D.
        """
        if self.maximum is None:
            return math.nan
        q = self.maximum.tangent.basis
        d = q.shape[1]
        return _largest_row(q, self.covariance[:d, :d] * self.n)

    @property
    def inverse_growth(self) -> float:
        """Give how far `inverse_norm` is above that of information spread evenly, P / (tr A / D).

        1 where comparisons inform all directions alike; how much more shows how far information
        and the projection on the tangent space are from commuting.
        """
        if self.maximum is None:
            return math.nan
        q = self.maximum.tangent.basis
        d = q.shape[1]
        mean = float(np.trace(self.information[:d, :d])) / float(d * self.n)
        return self.inverse_norm * mean / _largest_row(q, np.eye(d))

    def plug_in(self, *functionals: Functional, errors: Errors | None = None) -> Estimates:
        """Evaluate functionals at the fit: the narrowest intervals, where the rank is right.

        At the maximum the scores have no part along the tangent space, so that one step of all votes
        would not move them.

        Parameters
        ----------
        errors : None: `model`, but `sandwich` with weights, ties or clusters, which need it

        Raises
        ------
        ValueError
            A gradient is wrong.
        """
        if errors is None:
            source = self.source
            is_robust = source.is_weighted or source.has_ties or source.cluster is not None
            errors = "sandwich" if is_robust else "model"
        values = np.full(len(functionals), np.nan)
        covariance = np.full((len(functionals), len(functionals)), np.nan)
        if self.maximum is not None:
            found = evaluate(functionals, self.maximum.tensor)
            along = self.maximum.tangent.gradients(found.gradients)
            of = self.covariance if errors == "model" else self.covariance_sandwich
            values, covariance = found.values, along @ of @ along.T
        return Estimates(
            names=tuple(each.name for each in functionals),
            value=values,
            covariance=covariance,
            is_probability=np.array([each.is_probability for each in functionals], dtype=bool),
            method="plug_in",
            n=self.n,
            effective=self.source.effective,
            status=self.status,
            reason=self.reason,
            flags=self.flags,
        )

    def one_step(
        self,
        *functionals: Functional,
        folds: int | ArrayLike = 5,
        by: ArrayLike | None = None,
        kind: Kind = "efficient",
        info: Information = "all",
        ridge: float = FOLD_RIDGE,
        weights: ArrayLike | None = None,
        rng: np.random.Generator | None = None,
    ) -> Estimates:
        """Estimate functionals by one step from fits that leave each fold out.

        Parameters
        ----------
        folds : how many, or (n,) the fold of each vote
        by : (n,) votes of one value stay in one fold: prompts, where they repeat
        kind, info : see `tensor_one_step`
        ridge : of the folds' fits
        weights : (n,) target / propensity of the corrections; None: those of the fit
        rng : deals folds and draws random starts; None: from a generator seeded by 0

        Raises
        ------
        ValueError
            Folds, weights or a gradient are wrong.
        DidNotConverge
            A fold's fit found no maximum.

        Source: [LSS26].
        """
        rng = np.random.default_rng(0) if rng is None else rng
        if isinstance(folds, int):
            labels = fold_labels(self.n, folds, rng, by)
        else:
            labels = self._along(folds, "folds").astype(np.int64)
        return self._flagged(
            cross_fitted(
                self.source,
                functionals,
                fit=self._fit(ridge, rng),
                labels=labels,
                kind=kind,
                info=info,
                weights=self._weights(weights),
            )
        )

    def forward(
        self,
        *functionals: Functional,
        blocks: ArrayLike | None = None,
        kind: Kind = "efficient",
        info: Information = "fold",
        ridge: float = FOLD_RIDGE,
        weights: ArrayLike | None = None,
        rng: np.random.Generator | None = None,
    ) -> Estimates:
        """Estimate functionals by one step from fits of earlier votes, for votes chosen adaptively.

        Votes stand in the order of launch. The first block only starts it, which costs width; random
        folds kept their coverage too where it was measured, and this is the check of it.

        Parameters
        ----------
        blocks : (n,) ascending; None: the first fifth, and eight equal ones

        See `one_step`.
        """
        rng = np.random.default_rng(0) if rng is None else rng
        cut = forward_blocks(self.n) if blocks is None else self._along(blocks, "blocks")
        if (np.diff(cut) < 0).any():
            raise ValueError("blocks must ascend in the order of launch")
        return self._flagged(
            forward(
                self.source,
                functionals,
                fit=self._fit(ridge, rng),
                blocks=cut.astype(np.int64),
                kind=kind,
                info=info,
                weights=self._weights(weights),
            )
        )

    def _fit(self, ridge: float, rng: np.random.Generator) -> Callable[[Cells], Maximum]:
        """Give what fits cells as this was fitted, with another ridge."""
        if self.maximum is None:
            raise ValueError(f"there is no fit to step from: {self.reason}")
        return partial(
            maximise,
            shape=self.shape,
            rank=self.rank,
            ridge=ridge,
            order_effect=self.order_effect,
            rng=rng,
        )

    def _along(self, values: ArrayLike, name: str) -> Array:
        found = np.asarray(values, dtype=np.float64)
        if found.shape != (self.n,):
            raise ValueError(f"{found.size} {name} for {self.n} votes")
        return found

    def _weights(self, weights: ArrayLike | None) -> Array | None:
        if weights is None:
            return None
        found = self._along(weights, "weights")
        if not ((found > 0) & np.isfinite(found)).all():
            raise ValueError("weights must be positive")
        return found

    def _flagged(self, found: Estimates) -> Estimates:
        """Carry over what is known of the fit itself."""
        flags = tuple(dict.fromkeys((*self.flags, *found.flags)))
        if self.status is FitStatus.OK:
            return replace(found, flags=flags)
        return replace(found, flags=flags, status=self.status, reason=self.reason)


def fit_bt_tensor(
    left: ArrayLike,
    right: ArrayLike,
    context: ArrayLike,
    outcome: ArrayLike,
    *,
    shape: Sequence[int],
    rank: int | Sequence[int],
    ridge: float = 0.0,
    order_effect: bool = False,
    weights: ArrayLike | None = None,
    cluster: ArrayLike | None = None,
    rng: np.random.Generator | None = None,
) -> TensorFit:
    """Fit strengths of models by context as a tensor of a rank, from votes of pairs.

    Parameters
    ----------
    left, right : (n,) models, 0 to M - 1; left was shown first
    context : (n,) 0 to K - 1; of several modes their place in C order
    outcome : (n,) 1 left wins, .5 a tie, 0 right wins
    shape : (M, K), or (M, K, J) with judges as a mode of their own
    rank : of each mode, or one number for all
    ridge : 1 / variance of a normal prior of T's entries
    order_effect : fit gamma, the advantage of the one shown first
    weights : (n,) target / propensity; the fit is then of the target's projection, and only its
        sandwich errors hold
    cluster : (n,) what votes have in common, such as the prompt: scores are added up within it
    rng : draws random starts where votes are few; None: from a generator seeded by 0

    Returns
    -------
    TensorFit, with a status in place of an error where the votes leave something open: fewer than
    ten votes a parameter, a model or context without votes, a direction without information.

    Raises
    ------
    ValueError
        The votes are malformed, or no tensor of the shape has the rank.
    DidNotConverge
        The iteration found no maximum.

    Source: [LSS26].
    """
    lengths = tuple(int(d) for d in shape)
    ranks = full_rank(lengths, rank)
    if not ridge >= 0:
        raise ValueError(f"ridge is {ridge}; it must be 0 or more")
    source = votes(left, right, context, outcome, shape=lengths, weights=weights, cluster=cluster)
    return fit_votes(source, rank=ranks, ridge=ridge, order_effect=order_effect, rng=rng)


def fit_votes(
    source: Votes,
    *,
    rank: tuple[int, ...],
    ridge: float = 0.0,
    order_effect: bool = False,
    rng: np.random.Generator | None = None,
) -> TensorFit:
    """Fit votes that are taken in already; see `fit_bt_tensor`."""
    size = dimension(source.shape, rank) + order_effect
    flags = []
    if source.effective < FEW_EFFECTIVE * len(source):
        flags.append("few_effective_votes")
    cells = source.cells()
    reason = _refusal(source, size)
    open_ = np.full((size, size), np.nan)
    if reason:
        return TensorFit(
            shape=source.shape,
            rank=rank,
            tensor=np.full(source.shape, np.nan),
            gamma=math.nan,
            loglik=math.nan,
            information=open_,
            covariance=open_,
            covariance_sandwich=open_,
            condition=math.nan,
            min_eigenvalue=math.nan,
            status=FitStatus.NOT_ESTIMABLE,
            reason=reason,
            flags=tuple(flags),
            ridge=ridge,
            order_effect=order_effect,
            source=source,
            maximum=None,
        )
    top = maximise(
        cells, shape=source.shape, rank=rank, ridge=ridge, order_effect=order_effect, rng=rng
    )
    eta = cells.eta(top.tensor, top.gamma)
    p = expit(eta)
    information = top.tangent.information(cells, cells.weight * p * (1 - p))
    known = np.linalg.eigvalsh(information)
    if not known[0] * WORST_CONDITION >= known[-1] or known[0] < LEAST_EIGENVALUE:
        flags.append("weakly_identified")
    held = information + np.diag([ridge] * (size - order_effect) + [0.0] * order_effect)
    covariance = sandwich = open_
    if np.linalg.eigvalsh(held)[0] < OPEN:
        reason = "the votes leave some direction of the tensor open"
    else:
        covariance = inverse(held)
        if source.cluster is None:
            meat = top.tangent.information(cells, cells.squares(eta))
        else:
            sums = source.residuals(eta) @ top.tangent.rows(cells)
            meat = sums.T @ sums
        sandwich = covariance @ meat @ covariance
    return TensorFit(
        shape=source.shape,
        rank=rank,
        tensor=top.point.tensor,
        gamma=top.gamma if order_effect else math.nan,
        loglik=top.loglik,
        information=information,
        covariance=covariance,
        covariance_sandwich=sandwich,
        condition=float(known[-1] / known[0]) if known[0] > 0 else math.inf,
        min_eigenvalue=float(known[0]) / len(source),
        status=FitStatus.NOT_ESTIMABLE if reason else FitStatus.OK,
        reason=reason,
        flags=tuple(flags),
        ridge=ridge,
        order_effect=order_effect,
        source=source,
        maximum=top,
    )


def _refusal(source: Votes, size: int) -> str:
    """Say why no tensor is fitted to votes; empty: one is."""
    if len(source) < FEWEST_VOTES * size:
        return f"{len(source)} votes for {size} parameters; a tensor needs {FEWEST_VOTES} for each"
    models = np.bincount(np.concatenate((source.left, source.right)), minlength=source.shape[0])
    if not models.all():
        return f"there are no votes on model {int(np.argmin(models))}"
    contexts = np.bincount(source.context, minlength=source.n_contexts)
    if len(source.shape) == 2 and not contexts.all():
        return f"there are no votes in context {int(np.argmin(contexts))}"
    return ""


def _largest_row(q: Array, inner: Array) -> float:
    """Give the largest sum over a row of |Q S Q'|, some rows at a time."""
    left = q @ inner
    step = 512
    return max(
        float(np.abs(left[i : i + step] @ q.T).sum(axis=1).max()) for i in range(0, len(q), step)
    )
