"""What is known of strengths by category: a low-rank table, fitted again as verdicts come in."""

from __future__ import annotations

from array import array

import numpy as np
from numpy.typing import NDArray

from estimators.bt_tensor import fit_bt_tensor
from estimators.tensor_dense import Array
from estimators.tensor_tangent import dimension
from orchestrator.core.errors import DidNotConverge
from policies.pairing.acquisition import tensor_gains
from policies.pairing.posterior import PRIOR_VAR, TangentPosterior

PER_PARAMETER = 10
"""Verdicts a parameter from which a table of low rank is fitted."""


class Categories:
    """Follows comparisons by category, and values each pair in each category by c-optimality.

    The table is fitted again, from its own start and with the prior as a ridge, whenever a fifth more
    verdicts have landed than the last fit had; questions in flight, and those that landed since,
    inform its tangent space meanwhile. Equal events give equal bits, whatever the threads of the BLAS.

    Parameters
    ----------
    shape : (M, K), models and categories
    rank : of the table, at most what the shape has
    """

    def __init__(self, shape: tuple[int, int], rank: int) -> None:
        self._shape = shape
        self._rank = min(rank, shape[0] - 1, shape[1])
        self._landed = array("q")
        self._points = array("d")
        self._pending = np.zeros((shape[1], shape[0], shape[0]), dtype=np.int64)
        self._n_fit = 0
        self._known: TangentPosterior | None = None
        m, k = shape
        scores = np.eye(m * k).reshape(m * k, m, k)
        self._gradients: Array = scores - scores.mean(axis=1, keepdims=True)
        """Of the scores of all models in all categories."""

    def launch(self, first: int, second: int, category: int) -> None:
        """Count a question that was sent."""
        self._pending[category, first, second] += 1
        if self._known is not None:
            self._known.launch(first, second, category)

    def land(self, first: int, second: int, category: int, points: float | None) -> None:
        """Take an outcome, the first model's points; None: there is no verdict."""
        self._pending[category, first, second] -= 1
        if points is None:
            if self._known is not None:
                self._known.withdraw(first, second, category)
            return
        self.learn(first, second, category, points)

    def learn(self, first: int, second: int, category: int, points: float) -> None:
        """Take an outcome of a question that was not in flight, or no longer is."""
        self._landed.extend((first, second, category))
        self._points.append(points)
        n = len(self._points)
        enough = PER_PARAMETER * (dimension(self._shape, self._rank) + 1)  # the order's advantage
        if n >= enough and n >= 1.2 * self._n_fit:
            self._fit()

    def gains(self) -> Array | None:
        """Value each pair in each category, (K, P); None before the first fit."""
        return None if self._known is None else tensor_gains(self._known, self._gradients)

    def _fit(self) -> None:
        self._n_fit = len(self._points)
        first, second, category = self._table().T
        try:
            fit = fit_bt_tensor(
                first,
                second,
                category,
                np.array(self._points),
                shape=self._shape,
                rank=self._rank,
                ridge=1 / PRIOR_VAR,
                order_effect=True,
            )
        except DidNotConverge:
            return  # the fit so far goes on
        if fit.maximum is None:
            return
        basis = fit.maximum.tangent.basis
        d = basis.shape[1]
        self._known = TangentPosterior(fit.tensor, basis, fit.information[:d, :d])
        for k, a, b in np.argwhere(self._pending).tolist():
            for _ in range(int(self._pending[k, a, b])):
                self._known.launch(a, b, k)

    def _table(self) -> NDArray[np.int64]:
        return np.array(self._landed, dtype=np.int64).reshape(-1, 3)
