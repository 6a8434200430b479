"""Gauss-Hermite quadrature, placed on the integrand: integrals over one normal variable."""

from __future__ import annotations

import math
from functools import cache
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]


class Rule(NamedTuple):
    """Nodes z and log weights of an adaptive Gauss-Hermite rule.

    With mode m and curvature 1/τ² of a log integrand h,

        ∫ exp h(v) dv ≈ √2 τ Σ_k exp(log_weights_k + h(m + √2 τ z_k)),

    where log_weights_k = log w_k + z_k² with the physicists' weights w_k. One node is Laplace's
    approximation, exactly.

    Source: [LP94].
    """

    nodes: Array
    log_weights: Array

    def at(self, mode: Array, scale: Array) -> Array:
        """Place the nodes on integrands of these modes and scales τ: (n,) to (n, k)."""
        placed: Array = mode[:, None] + math.sqrt(2) * scale[:, None] * self.nodes
        return placed


@cache
def gauss_hermite(n: int) -> Rule:
    """Give the rule of n nodes.

    Parameters
    ----------
    n : number of nodes, 1 to 100; beyond, single weights lose their precision

    Raises
    ------
    ValueError
        n is out of range.
    """
    if not 1 <= n <= 100:
        raise ValueError(f"{n} quadrature nodes; take 1 to 100")
    nodes, weights = np.polynomial.hermite.hermgauss(n)
    log_weights = np.log(weights) + nodes * nodes
    nodes.flags.writeable = log_weights.flags.writeable = False
    return Rule(nodes, log_weights)
