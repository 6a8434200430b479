"""What one more comparison of each pair would teach, by the goal of the campaign.

With C the covariance of strengths, I the information of a comparison of a and b on their gap and
v = C_aa + C_bb - 2 C_ab, one more comparison takes I u u'/(1 + I v) off C, with u = C (e_a - e_b).
A quadratic goal Σ_q h_q' C h_q falls by

    I (S_aa + S_bb - 2 S_ab) / (1 + I v),   S = C (Σ_q h_q h_q') C,

so goals differ by S alone: S = C² for the sum of variances.
"""

from __future__ import annotations

from functools import cache
from typing import Literal

import numpy as np
from numpy.polynomial.hermite_e import hermegauss
from numpy.typing import NDArray
from scipy.special import entr, expit

from estimators.tensor_dense import Array, product
from policies.pairing.posterior import Posterior, TangentPosterior

Rule = Literal["aopt", "dopt", "eig", "top1", "arena", "uniform"]
"""How a pair is valued.

`aopt`: fall of the sum of variances of strengths. `dopt`: gain of log-determinant. `eig`: mutual
information of verdict and gap. `top1`: fall of the variances of the leader's gaps, challengers
weighted by how near they are. `arena`: fall of the error of the pair's own win rate, by counts
alone. `uniform`: all pairs alike.
"""

NODES = 15


@cache
def pairs(n_models: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Give all pairs a < b in the order of `numpy.triu_indices`, not to be written to."""
    a, b = np.triu_indices(n_models, 1)
    a.flags.writeable = b.flags.writeable = False
    return a, b


def gains(posterior: Posterior, rule: Rule) -> Array:
    """Value every pair by a rule, >= 0, (M(M-1)/2,) in the order of `pairs`."""
    pair = pairs(posterior.n_models)
    cov, information = posterior.cov, posterior.information
    match rule:
        case "uniform":
            return np.ones(len(pair[0]))
        case "aopt":
            return reduction(cov, product(cov, cov), information)[pair]
        case "dopt":
            return np.log1p(information[pair] * gap_variance(cov)[pair])
        case "top1":
            return reduction(cov, _leaders_gaps(posterior.theta, cov), information)[pair]
        case "eig":
            theta = posterior.theta
            return mutual_information((theta[:, None] - theta)[pair], gap_variance(cov)[pair])
        case "arena":
            n = posterior.counts[pair]
            # A pair that was never compared is valued as after half a comparison.
            return np.sqrt(information[pair] / np.maximum(n, 0.5)) - np.sqrt(
                information[pair] / (n + 1)
            )


def tensor_gains(posterior: TangentPosterior, gradients: Array) -> Array:
    """Value every pair in every context by the fall of Σ Var(ψ_q), (K, M(M-1)/2): c-optimality.

    Parameters
    ----------
    gradients : ∇ψ of the functionals that count, (n_functionals, M, K)
    """
    pulls = posterior.pulls(gradients)
    goal = np.array([product(pull, pull.T) for pull in np.moveaxis(pulls, (2, 1), (0, 1))])
    pair = pairs(len(posterior.tensor))
    return reduction(posterior.cov, goal, posterior.information)[:, *pair]


def reduction(cov: Array, goal: Array, information: Array) -> Array:
    """Give the fall of a quadratic goal with S = `goal` by one more comparison, (..., M, M)."""
    fall = information * gap_variance(goal)
    return np.maximum(fall, 0) / (1 + information * gap_variance(cov))


def gap_variance(cov: Array) -> Array:
    """Give V_aa + V_bb - 2 V_ab, (..., M, M)."""
    own = np.diagonal(cov, axis1=-2, axis2=-1)
    return own[..., :, None] + own[..., None, :] - 2 * cov


def mutual_information(mean: Array, variance: Array) -> Array:
    """Give H(E p) - E H(p) for log-odds ~ N(mean, variance), in nats; Gauss-Hermite, 15 nodes."""
    nodes, weights = hermegauss(NODES)
    weights /= weights.sum()
    p = expit(mean[:, None] + np.sqrt(variance)[:, None] * nodes)
    expected = (_entropy(p) * weights).sum(axis=1)
    found: Array = np.maximum(_entropy((p * weights).sum(axis=1)) - expected, 0)
    return found


def _entropy(p: Array) -> Array:
    nats: Array = entr(p) + entr(1 - p)
    return nats


def _leaders_gaps(theta: Array, cov: Array) -> Array:
    """S of the variances of the leader's gaps, challengers weighted by exp(-z²/2)."""
    leader = int(theta.argmax())
    rivals = np.flatnonzero(np.arange(len(theta)) != leader)
    variance = gap_variance(cov)[leader, rivals]
    far = (theta[leader] - theta[rivals]) ** 2 / variance / 2
    weight = np.exp(far.min() - far)
    rows = cov[leader] - cov[rivals]
    return product(rows.T * (weight / weight.sum()), rows)
