"""What is known of the strengths of models: a normal law that counts the questions in flight, too.

A judge prefers model a, shown first, to model b with log-odds η = θ_a - θ_b + g + δ_j: g is the
advantage of the first place, δ_j what judge j has of it beyond the others. Strengths are natural
log-odds with a N(0, prior_var) prior, which makes every gap known to some extent from the start.
The covariance is the inverse of

    prior + Σ (n + n in flight) I x x',   I = p (1 - p),   p = 1/(1 + exp(-η)),

with I at the strengths of the last fit. A launch adds its information by a rank-one update: what a
comparison teaches does not depend on its outcome, so it counts before it is known.

Everything is a function of the sequence of events alone: told again, they make the same state to the
last bit.
"""

from __future__ import annotations

from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import expit

from estimators.tensor_dense import Array, apply, inverse, product

Ints = NDArray[np.int64]

Bias = Literal["none", "order", "judge"]
"""What else than strengths moves a verdict: nothing, the order, or the order by judge."""

PRIOR_VAR = 4.0
JUDGE_VAR = 1.0
STEPS = 2
CONVERGED = 1e-12
"""Squared length of a Newton step, in standard errors, that is the last: the next is its square."""


class _Cells(NamedTuple):
    """Comparisons by judge, first and second model, where there are any; points of the first."""

    judge: Ints
    first: Ints
    second: Ints
    n: Array
    points: Array


class Posterior:
    """The Laplace posterior of the strengths of models that are compared.

    Parameters
    ----------
    n_models : M >= 2
    n_judges : counts only with a bias by judge
    bias : nuisance parameters beside the strengths
    prior_var, judge_var : variance of a strength and of g, and of a judge's δ; squared log-odds
    """

    def __init__(
        self,
        n_models: int,
        *,
        n_judges: int = 1,
        bias: Bias = "none",
        prior_var: float = PRIOR_VAR,
        judge_var: float = JUDGE_VAR,
    ) -> None:
        self.n_models = n_models
        self._bias: Bias = bias
        n_cells = n_judges if bias == "judge" else 1
        n_order = {"none": 0, "order": 1, "judge": 1 + n_judges}[bias]
        self._precision = np.full(n_models + n_order, 1 / prior_var)
        self._precision[n_models + 1 :] = 1 / judge_var
        self._at = np.zeros(n_models + n_order)
        # By judge, first and second model: comparisons that landed, points of the first, in flight.
        cells = (n_cells, n_models, n_models)
        self._landed, self._points, self._pending = (np.zeros(cells) for _ in range(3))
        self._n_told = self._n_since_fit = 0
        self._all = np.diag(1 / self._precision)
        self._known = self._all.copy()

    @property
    def theta(self) -> Array:
        """Strengths, (M,), as of the last fit; they sum to zero."""
        return self._at[: self.n_models]

    @property
    def order_effect(self) -> float:
        """Advantage of the first place, as of the last fit; 0 where none is fitted."""
        return 0.0 if self._bias == "none" else float(self._at[self.n_models])

    @property
    def judge_effects(self) -> Array:
        """δ, (n_judges,), as of the last fit; empty without a bias by judge."""
        return self._at[self.n_models + 1 :]

    @property
    def cov(self) -> Array:
        """Covariance of strengths once everything in flight has landed, (M, M); launches change it."""
        return self._all[: self.n_models, : self.n_models]

    @property
    def known_cov(self) -> Array:
        """Covariance of strengths from what had landed at the last fit alone, (M, M)."""
        return self._known[: self.n_models, : self.n_models]

    @property
    def information(self) -> Array:
        """Expected information of one more comparison on its gap, (M, M): p (1 - p), orders alike."""
        theta = self.theta
        p = expit(theta[:, None] - theta + self._shifts(self._at)[:, None, None])
        one_order: Array = (p * (1 - p)).mean(axis=0)
        return (one_order + one_order.T) / 2

    @property
    def counts(self) -> Array:
        """Comparisons of each pair, in flight or landed, (M, M), symmetric."""
        ordered: Array = (self._landed + self._pending).sum(axis=0)
        return ordered + ordered.T

    def launch(self, first: int, second: int, judge: int = 0) -> None:
        """Count a question that was sent."""
        self._pending[self._cell(first, second, judge)] += 1
        self._update(first, second, judge, +1)

    def land(self, first: int, second: int, outcome: float | None, judge: int = 0) -> None:
        """Take an outcome, the first model's points: 1, ½, 0; None: there is no verdict.

        Without one its information is taken back. Otherwise the strengths are fitted again where
        enough landed since they last were: `refit_after`.

        Raises
        ------
        ValueError
            No such question is in flight.
        """
        cell = self._cell(first, second, judge)
        if self._pending[cell] < 1:
            raise ValueError(f"no question on {first} and {second} is in flight")
        self._pending[cell] -= 1
        if outcome is None:
            self._update(first, second, judge, -1)
            return
        self._landed[cell] += 1
        self._points[cell] += outcome
        self._n_told += 1
        self._n_since_fit += 1
        if self._n_since_fit >= refit_after(self._n_told):
            self.refit()

    def learn(
        self, first: ArrayLike, second: ArrayLike, outcome: ArrayLike, judge: ArrayLike = 0
    ) -> None:
        """Take outcomes of questions that were never in flight, and fit to convergence."""
        at = (
            np.asarray(judge if self._bias == "judge" else 0),
            np.asarray(first),
            np.asarray(second),
        )
        n, points = np.zeros_like(self._landed), np.zeros_like(self._points)
        np.add.at(n, at, 1)
        np.add.at(points, at, np.asarray(outcome))
        self.learn_table(n, points)

    def learn_table(self, n: Array, points: Array) -> None:
        """As `learn`, from how often and with how many points each model was shown first.

        Parameters
        ----------
        n, points : (M, M), first model by second; with a bias by judge (n_judges, M, M)
        """
        self._landed += n
        self._points += points
        self.refit(steps=50)

    def refit(self, steps: int = STEPS) -> None:
        """Move the strengths by Newton steps from where they are, at most so many.

        A step that goes beyond the maximum on its line, by more than half of its slope, is halved.
        """
        cells = self._cells(self._landed)
        score, information = self._system(self._at, cells)
        for _ in range(steps):
            step = apply(inverse(information), score)
            slope = float((score * step).sum())
            is_last = slope < CONVERGED
            start = self._at
            while True:
                self._at = start + step
                score, information = self._system(self._at, cells)
                if is_last or float((score * step).sum()) >= -slope / 2:
                    break
                step, slope = step / 2, slope / 2
            if is_last:
                break
        self._n_since_fit = 0
        self._known = inverse(information)
        self._all = self.recomputed() if self._pending.any() else self._known.copy()

    def recomputed(self) -> Array:
        """Compute `all_cov` from the counts, in place of following them."""
        return inverse(self._system(self._at, self._cells(self._landed + self._pending))[1])

    @property
    def all_cov(self) -> Array:
        """As `cov`, with the nuisance parameters behind the strengths."""
        return self._all

    def _cell(self, first: int, second: int, judge: int) -> tuple[int, int, int]:
        return judge if self._bias == "judge" else 0, first, second

    def _shifts(self, at: Array) -> Array:
        """What the first place brings with each judge, (n_judges or 1,)."""
        m = self.n_models
        match self._bias:
            case "none":
                return np.zeros(1)
            case "order":
                return at[m:]
            case "judge":
                shifts: Array = at[m] + at[m + 1 :]
                return shifts

    def _cells(self, counts: Array) -> _Cells:
        at = np.flatnonzero(counts)
        row, second = np.divmod(at, self.n_models)
        judge, first = np.divmod(row, self.n_models)
        return _Cells(judge, first, second, counts.ravel()[at], self._points.ravel()[at])

    def _system(self, at: Array, cells: _Cells) -> tuple[Array, Array]:
        """Gradient and negative Hessian of the log posterior."""
        m = self.n_models
        judge, first, second, n, points = cells
        p = expit(at[first] - at[second] + self._shifts(at)[judge])
        expected = n * p
        residual, weight = points - expected, expected * (1 - p)
        score = -self._precision * at
        score[:m] += np.bincount(first, residual, m) - np.bincount(second, residual, m)
        made = np.diag(self._precision)
        diagonal = np.einsum("ii->i", made)
        by_pair = np.bincount(first * m + second, weight, m * m).reshape(m, m)
        by_pair += by_pair.T.copy()
        made[:m, :m] -= by_pair
        diagonal[:m] += by_pair.sum(axis=1)
        if self._bias == "none":
            return score, made
        k = len(self._landed)
        of_judge, weight_of_judge = (np.bincount(judge, part, k) for part in (residual, weight))
        more_first = (
            np.bincount(judge * m + first, weight, k * m)
            - np.bincount(judge * m + second, weight, k * m)
        ).reshape(k, m)
        score[m] += of_judge.sum()
        made[m, :m] = made[:m, m] = more_first.sum(axis=0)
        diagonal[m] += weight_of_judge.sum()
        if self._bias == "judge":
            score[m + 1 :] += of_judge
            made[m + 1 :, :m] = more_first
            made[:m, m + 1 :] = more_first.T
            made[m, m + 1 :] = made[m + 1 :, m] = weight_of_judge
            diagonal[m + 1 :] += weight_of_judge
        return score, made

    def _update(self, first: int, second: int, judge: int, sign: int) -> None:
        """Add the expected information of one comparison to the covariance, or take it back."""
        m, cov = self.n_models, self._all
        u = cov[first] - cov[second]
        shift = 0.0
        if self._bias != "none":
            u += cov[m]
            shift = self._at[m]
        if self._bias == "judge":
            u += cov[m + 1 + judge]
            shift += self._at[m + 1 + judge]
        v = u[first] - u[second]
        if self._bias != "none":
            v += u[m]
        if self._bias == "judge":
            v += u[m + 1 + judge]
        p = expit(self._at[first] - self._at[second] + shift)
        information = sign * p * (1 - p)
        change = u[:, None] * u
        change *= information / (1 + information * v)
        cov -= change


def refit_after(n_landed: int) -> int:
    """Say how many outcomes land between fits: ten, and later a fiftieth of all."""
    return max(10, n_landed // 50)


def posterior_of(wins: ArrayLike, prior_var: float = PRIOR_VAR) -> Posterior:
    """Give the posterior of a table of wins, (M, M): how often row beat column; ties count half."""
    table = np.asarray(wins, dtype=np.float64)
    made = Posterior(len(table), prior_var=prior_var)
    made.learn_table(np.triu(table + table.T, 1), np.triu(table, 1))
    return made


class TangentPosterior:
    """The posterior of a low-rank table of strengths by context, in the tangent space of its fit.

    With Q the orthonormal basis of that space, a comparison of a and b in context k has the row
    x = Q[a, k] - Q[b, k] and the information matrix is A = Q'GQ n + prior. A fit with later
    outcomes has another tangent space, and makes another object.

    Parameters
    ----------
    tensor : fitted log-odds, (M, K); contexts of several modes are laid flat
    basis : Q, (M, K, D), or (M K, D) with contexts running faster
    information : Σ I x x' over everything landed or in flight, (D, D)
    prior_var : of a coordinate of the tangent space; infinite: no prior
    """

    def __init__(
        self, tensor: Array, basis: Array, information: Array, prior_var: float = PRIOR_VAR
    ) -> None:
        self.tensor = tensor
        self.basis = basis.reshape(*tensor.shape, basis.shape[-1])
        self.inverse = inverse(information + np.eye(len(information)) / prior_var)

    @property
    def information(self) -> Array:
        """Expected information of one more comparison on its gap, (K, M, M)."""
        by_context = self.tensor.T
        p: Array = expit(by_context[:, :, None] - by_context[:, None])
        return p * (1 - p)

    @property
    def cov(self) -> Array:
        """Covariance of strengths in each context, (K, M, M)."""
        return np.array(
            [product(product(rows, self.inverse), rows.T) for rows in np.moveaxis(self.basis, 1, 0)]
        )

    def pulls(self, gradients: Array) -> Array:
        """Give Q A⁻¹ Q' ∇ψ for functionals, (n_functionals, M, K), from gradients of that shape."""
        flat = self.basis.reshape(-1, self.basis.shape[-1])
        coordinates = product(gradients.reshape(len(gradients), -1), flat)
        return product(product(coordinates, self.inverse), flat.T).reshape(gradients.shape)

    def launch(self, first: int, second: int, context: int) -> None:
        """Count a question that was sent."""
        self._update(first, second, context, +1)

    def withdraw(self, first: int, second: int, context: int) -> None:
        """Take back a question that has no verdict."""
        self._update(first, second, context, -1)

    def _update(self, first: int, second: int, context: int, sign: int) -> None:
        x = self.basis[first, context] - self.basis[second, context]
        u = apply(self.inverse, x)
        p = expit(self.tensor[first, context] - self.tensor[second, context])
        information = sign * p * (1 - p)
        change = u[:, None] * u
        change *= information / (1 + information * (x * u).sum())
        self.inverse -= change
