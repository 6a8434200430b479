"""The marginal likelihood of a judge with memory, its gradient and its information.

A judge rates the items of a batch one after another; with item i in slot s of batch t,

    logit P(y = 1 | the batch so far, b) = theta_i + x'phi + b,    b = sigma v,  v ~ N(0, 1),

where x holds what the judge said before in this batch. Given b the probability of a batch is the
product of its steps, so the lags enter as covariates and the likelihood of a batch is

    L_t = ∫ exp h_t(v) dv,    h_t(v) = Σ_s (y eta - ln(1 + e^eta)) - v²/2 - ln(2π)/2.

It is integrated by adaptive Gauss-Hermite quadrature around the mode of h_t. The gradient is that of
the approximation, moving nodes included; the information is Louis's, over the nodes' weights.
Parameters stand in one vector psi = (theta, phi, sigma) with p = v + q + 1 entries. The likelihood is
even in sigma, which is therefore free to be negative on the way.

Source: the model of [LD26]; quadrature [LP94]; information [L82].
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from estimators.batches import Layout
from estimators.intervals import Array
from estimators.quadrature import Rule

_NOWHERE = -1e4
"""Linear predictor of items that were not rated: their probability, its slope and their part of the
likelihood are then exactly 0, and no mask is needed behind."""

_LARGEST = 700.0
"""Exponents up to which e^x is no overflow."""

_CHUNK = 1 << 15
"""Values (batches · nodes · items) that are worked on at once; these arrays then stay in cache."""

_GRAM = 1 << 18
"""Multiplications in one product of matrices up to which BLAS stays on one thread. Its threads wait
for one another in a loop, which costs several times the work itself at these sizes."""

_TOLERANCE = 1e-9
"""Largest step of the last Newton iteration for the modes; its error is about the square."""


class Logistic(NamedTuple):
    """Of linear predictors: probability mu and its slope mu (1 - mu)."""

    mu: Array
    slope: Array


def logistic(eta: Array) -> Logistic:
    """Give probability and slope, without overflow."""
    odds = np.minimum(eta, _LARGEST)
    np.exp(odds, out=odds)
    return _of_odds(odds, 1 + odds)


def _of_odds(odds: Array, one_more: Array) -> Logistic:
    """Give probability and slope in place of the odds and 1 + odds, whose memory is warm."""
    inverse = np.reciprocal(one_more, out=one_more)
    mu = np.multiply(odds, inverse, out=odds)
    return Logistic(mu, np.multiply(mu, inverse, out=inverse))


class Softplus(NamedTuple):
    """Of linear predictors: Σ ln(1 + e^eta) over the last axis; odds e^eta, and 1 + odds."""

    total: Array
    odds: Array
    one_more: Array


def softplus(eta: Array) -> Softplus:
    """Sum ln(1 + e^eta) over the last axis without overflow; overwrites `eta`."""
    highest = float(eta.max(initial=0.0))
    total = np.zeros(eta.shape[:-1])
    if highest > _LARGEST:
        total += np.maximum(eta - _LARGEST, 0.0).sum(axis=-1)
        np.minimum(eta, _LARGEST, out=eta)
    odds = np.exp(eta, out=eta)
    one_more = 1 + odds
    # A logarithm costs as much as all else, so factors are multiplied as long as they can't overflow.
    step = max(1, int(_LARGEST / (min(highest, _LARGEST) + 1)))
    for at in range(0, eta.shape[-1], step):
        total += np.log(np.multiply.reduce(one_more[..., at : at + step], axis=-1))
    return Softplus(total, odds, one_more)


class Modes(NamedTuple):
    """Where each batch's integrand is highest, and its scale τ = 1/√(curvature), (n,)."""

    at: Array
    scale: Array


def predictor(data: Layout, psi: Array) -> Array:
    """Give theta_i + x'phi of each rating, (n, v)."""
    v = data.n_items
    eta = psi[:v] + data.x @ psi[v:-1]
    return np.where(data.shown, eta, _NOWHERE)


def modes(data: Layout, eta: Array, sigma: float, start: Array | None = None) -> Modes:
    """Find the modes: sigma Σ(y - mu) = v.

    Newton's method inside a bracket that shrinks: the equation's left side falls in v and lies
    between sigma times -n and n. Where a step would leave the bracket, the bracket is halved.
    """
    total = data.y.sum(axis=1)
    reach = abs(sigma) * data.shown.sum(axis=1) + 1
    low, high = -reach, reach.copy()
    v = np.zeros(len(data)) if start is None else np.clip(start, low, high)
    for _ in range(100):
        mu, slope = logistic(eta + (sigma * v)[:, None])
        curvature = 1 + sigma * sigma * slope.sum(axis=1)
        gradient = sigma * (total - mu.sum(axis=1)) - v
        low, high = np.where(gradient >= 0, v, low), np.where(gradient <= 0, v, high)
        new = v + gradient / curvature
        new = np.where((new >= low) & (new <= high), new, (low + high) / 2)
        moved = np.abs(new - v).max(initial=0.0)
        v = new
        if moved <= _TOLERANCE:
            break
    slope = logistic(eta + (sigma * v)[:, None]).slope
    return Modes(v, 1 / np.sqrt(1 + sigma * sigma * slope.sum(axis=1)))


class Evaluation(NamedTuple):
    """The log likelihood at psi, batch by batch.

    Attributes
    ----------
    loglik : (n,) of each batch
    score : (n, p) gradient of each batch's log likelihood
    information : (p, p) summed over the batches, by Louis's identity
    modes : of the batches, to start from next time
    """

    loglik: Array
    score: Array
    information: Array
    modes: Modes

    @property
    def total(self) -> float:
        """Log likelihood of all batches."""
        return float(self.loglik.sum())

    @property
    def gradient(self) -> Array:
        """Gradient of the log likelihood, (p,)."""
        total: Array = self.score.sum(axis=0)
        return total


def log_likelihood(data: Layout, psi: Array, rule: Rule, start: Array | None = None) -> Array:
    """Give each batch's log likelihood, (n,)."""
    eta, sigma = predictor(data, psi), float(psi[-1])
    at = modes(data, eta, sigma, start)
    parts = _parts(data, len(rule.nodes))
    return np.concatenate([_at_nodes(data, eta, sigma, at, rule, part).loglik for part in parts])


def evaluate(
    data: Layout,
    psi: Array,
    rule: Rule,
    *,
    start: Array | None = None,
    weights: Array | None = None,
) -> Evaluation:
    """Evaluate log likelihood, score and information at psi.

    Parameters
    ----------
    start : (n,) modes to start from; None: 0
    weights : (n,) how often each batch counts in the information; None: once. `loglik` and `score`
        are of single batches, unweighted.

    Cost: O(n k (v + p²)) for k nodes.
    """
    eta, sigma = predictor(data, psi), float(psi[-1])
    at = modes(data, eta, sigma, start)
    p = len(psi)
    loglik, score = np.empty(len(data)), np.empty((len(data), p))
    information = np.zeros((p, p))
    for part in _parts(data, len(rule.nodes)):
        nodes = _Nodes.of(data, eta, sigma, at, rule, part)
        loglik[part] = nodes.loglik
        score[part] = nodes.mean_score(data.y[part], data.x[part])
        score[part] += _moving(data, eta, sigma, at, nodes, part)
        w = None if weights is None else weights[part]
        information += _information(nodes, data.x[part], w)
    return Evaluation(loglik, score, information, at)


def batch_information(data: Layout, psi: Array, rule: Rule, start: Array | None = None) -> Array:
    """Give each batch's own information, (n, p, p)."""
    eta, sigma = predictor(data, psi), float(psi[-1])
    at = modes(data, eta, sigma, start)
    v, p = data.n_items, len(psi)
    found = np.empty((len(data), p, p))
    for part in _parts(data, len(rule.nodes)):
        nodes = _Nodes.of(data, eta, sigma, at, rule, part)
        mean, root = nodes.mean[:, :, None], nodes.weighted_root()
        info = mean @ mean.transpose(0, 2, 1) - root.transpose(0, 2, 1) @ root
        one, by_v, by_vv = nodes.curvature_moments()
        border = np.concatenate((data.x[part] * one[..., None], by_v[..., None]), axis=2)
        info[:, range(v), range(v)] += one
        info[:, :v, v:] += border
        info[:, v:, :v] += border.transpose(0, 2, 1)
        info[:, v:-1, v:-1] += data.x[part].transpose(0, 2, 1) @ border[..., :-1]
        with_sigma = np.einsum("nvq,nv->nq", data.x[part], by_v)
        info[:, v:-1, -1] += with_sigma
        info[:, -1, v:-1] += with_sigma
        info[:, -1, -1] += by_vv
        found[part] = info
    return found


def _parts(data: Layout, n_nodes: int) -> list[slice]:
    """Cut the batches into parts that fit the cache."""
    step = max(1, _CHUNK // max(1, n_nodes * data.n_items))
    return [slice(at, at + step) for at in range(0, len(data), step)]


class _Placed(NamedTuple):
    """Log likelihood (n,), nodes and their shares of it (n, k), and what is known of eta there."""

    loglik: Array
    v: Array
    share: Array
    at: Softplus


def _at_nodes(
    data: Layout, eta: Array, sigma: float, at: Modes, rule: Rule, part: slice
) -> _Placed:
    y, eta, scale = data.y[part], eta[part], at.scale[part]
    v = rule.at(at.at[part], scale)
    one = np.ones((len(y), 1, y.shape[1]))
    # eta + sigma v at all nodes, as a product of matrices: a sum over short rows is slower.
    there = np.stack((np.ones_like(v), sigma * v), axis=2) @ np.concatenate(
        (eta[:, None, :], one), axis=1
    )
    plus = softplus(there)
    height = (y * eta).sum(axis=1)[:, None] + sigma * v * y.sum(axis=1)[:, None] - plus.total
    bracket = height - v * v / 2 + (rule.log_weights - math.log(2 * math.pi) / 2)
    top = bracket.max(axis=1)
    share = np.exp(bracket - top[:, None])
    mass = share.sum(axis=1)
    share /= mass[:, None]
    return _Placed(top + np.log(mass) + np.log(math.sqrt(2) * scale), v, share, plus)


class _Nodes(NamedTuple):
    """Some batches at their quadrature nodes.

    `v`, `share` (posterior weight) and `rise` (derivative of h) are (n, k), `slope` is mu (1 - mu),
    (n, k, v). `expected`, (n, k, p), is what the scores of the joint likelihood take off the
    observed: mu, mu'x and v Σ(mu - y), so that its variance is theirs; `mean`, (n, p), over nodes.
    """

    loglik: Array
    v: Array
    share: Array
    rise: Array
    slope: Array
    expected: Array
    mean: Array
    rule: Rule

    @classmethod
    def of(
        cls, data: Layout, eta: Array, sigma: float, at: Modes, rule: Rule, part: slice
    ) -> _Nodes:
        y, x = data.y[part], data.x[part]
        loglik, v, share, plus = _at_nodes(data, eta, sigma, at, rule, part)
        mu, slope = _of_odds(plus.odds, plus.one_more)
        n_items = y.shape[1]
        expected = np.empty((*v.shape, n_items + x.shape[2] + 1))
        expected[:, :, :n_items] = mu
        np.matmul(mu, _with_one(x), out=expected[:, :, n_items:])
        by_batch = y.sum(axis=1)[:, None] - expected[:, :, -1]
        expected[:, :, -1] = -v * by_batch
        mean = (share[:, None, :] @ expected)[:, 0]
        return cls(loglik, v, share, sigma * by_batch - v, slope, expected, mean, rule)

    def mean_score(self, y: Array, x: Array) -> Array:
        """Give the scores' mean over nodes, (n, p)."""
        observed = np.concatenate((y, (y[:, None, :] @ x)[:, 0], np.zeros((len(y), 1))), axis=1)
        return np.asarray(observed - self.mean)

    def weighted_root(self) -> Array:
        """Give `expected` times √share, whose products sum to its second moments, (n, k, p)."""
        root: Array = self.expected * np.sqrt(self.share)[:, :, None]
        return root

    def curvature_moments(self) -> tuple[Array, Array, Array]:
        """Means of mu (1 - mu), of v times it, both (n, v), and of v² times its sum, (n,)."""
        by_v = self.share * self.v
        moments = np.stack((self.share, by_v, by_v * self.v), axis=1) @ self.slope
        return moments[:, 0], moments[:, 1], moments[:, 2].sum(axis=1)


def _with_one(x: Array) -> Array:
    """Put a column of ones behind the covariates: that of the batch's effect."""
    return np.concatenate((x, np.ones((*x.shape[:-1], 1))), axis=-1)


def _information(nodes: _Nodes, x: Array, weights: Array | None) -> Array:
    """Sum Louis's information: mean curvature of the joint likelihood less the scores' variance."""
    one, by_v, by_vv = nodes.curvature_moments()
    root, mean = nodes.weighted_root(), nodes.mean
    if weights is not None:
        one, by_v, by_vv = one * weights[:, None], by_v * weights[:, None], by_vv * weights
        mean = mean * np.sqrt(weights)[:, None]
        root *= np.sqrt(weights)[:, None, None]
    v = one.shape[1]
    info = _gram(mean) - _gram(root.reshape(-1, root.shape[2]))
    info[range(v), range(v)] += one.sum(axis=0)
    weighted = x * one[..., None]
    border = np.column_stack((weighted.sum(axis=0), by_v.sum(axis=0)))
    info[:v, v:] += border
    info[v:, :v] += border.T
    info[v:-1, v:-1] += (x.transpose(0, 2, 1) @ weighted).sum(axis=0)
    with_sigma = (by_v[:, None, :] @ x).sum(axis=(0, 1))
    info[v:-1, -1] += with_sigma
    info[-1, v:-1] += with_sigma
    info[-1, -1] += by_vv.sum()
    return info


def _gram(rows: Array) -> Array:
    """Sum the products of rows with themselves, (r, p) to (p, p), in pieces of `_GRAM`."""
    n, p = rows.shape
    size = max(1, _GRAM // (p * p))
    whole = n - n % size
    pieces = rows[:whole].reshape(-1, size, p)
    rest = rows[whole:]
    found: Array = (pieces.transpose(0, 2, 1) @ pieces).sum(axis=0) + rest.T @ rest
    return found


def _moving(data: Layout, eta: Array, sigma: float, at: Modes, nodes: _Nodes, part: slice) -> Array:
    """Add what the score owes to the nodes' moving with psi, (n, p).

    The rule is placed at the mode v with scale τ = H^(-1/2). Implicitly, with w = mu (1 - mu) and
    w' = w (1 - 2 mu) at the mode, dv = -sigma Σ w d(eta)/H, and for sigma (Σ(y - mu) - sigma v Σw)/H;
    dH = sigma² Σ w' (d(eta) + sigma dv), and for sigma 2 sigma Σw more. It vanishes as nodes are
    added; for one node it is Laplace's -d ln(H)/2.
    """
    y, mode, scale = data.y[part], at.at[part], at.scale[part]
    mu, w = logistic(eta[part] + (sigma * mode)[:, None])
    bend = w * (1 - 2 * mu)
    both = np.stack((w, bend), axis=1)
    by_slope = both @ _with_one(data.x[part])
    spread, bends = by_slope[:, 0, -1], by_slope[:, 1, -1].copy()
    to_mode = np.concatenate((-sigma * w, -sigma * by_slope[:, 0]), axis=1)
    to_mode[:, -1] = (y - mu).sum(axis=1) - sigma * mode * spread
    to_mode *= (scale * scale)[:, None]
    bent = np.concatenate((bend, by_slope[:, 1]), axis=1)
    bent[:, -1] *= mode
    to_curvature = sigma**2 * (bent + (sigma * bends)[:, None] * to_mode)
    to_curvature[:, -1] += 2 * sigma * spread
    first = (nodes.share * nodes.rise).sum(axis=1)
    second = math.sqrt(2) * (nodes.share * nodes.rise) @ nodes.rule.nodes
    of_scale = -(1 / scale + second) * scale**3 / 2
    moved: Array = first[:, None] * to_mode + of_scale[:, None] * to_curvature
    return moved
