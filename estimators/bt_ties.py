"""How a comparison ends, given the log-odds eta of the model shown first: rules for ties.

    half        a tie is half a win: E[y] = sigma(eta), a quasi-likelihood
    drop        ties are left out
    davidson    P(left) : P(tie) : P(right) = e^(eta/2) : nu : e^(-eta/2)
    rao_kupper  P(left) = sigma(eta - ln nu), P(right) = sigma(-eta - ln nu), nu ≥ 1

Their scales of strength differ: numbers of one rule must not be compared with those of another.
Each rule gives the likelihood's derivatives by eta and by tau = ln nu, by outcome. All are concave.

Source: [D70], [RK67].
"""

from __future__ import annotations

from enum import StrEnum
from typing import NamedTuple

import numpy as np

from estimators.bt_cells import LEFT, RIGHT, SCORES, TIE
from estimators.intervals import Array


class Ties(StrEnum):
    """What a tie counts as."""

    HALF = "half"
    DROP = "drop"
    DAVIDSON = "davidson"
    RAO_KUPPER = "rao_kupper"

    @property
    def has_nu(self) -> bool:
        """Whether the rule has a parameter for how likely ties are."""
        return self in {Ties.DAVIDSON, Ties.RAO_KUPPER}


class Slopes(NamedTuple):
    """Derivatives of the log likelihood of cells, (e,) each, summed over a cell's comparisons.

    Attributes
    ----------
    e, t : by eta, and by tau; None: there is no tau
    ee, et, tt : minus the second derivatives
    """

    e: Array
    t: Array | None
    ee: Array
    et: Array | None
    tt: Array | None


class Scores(NamedTuple):
    """Derivatives of the log likelihood of one comparison by outcome, (3, e), by eta and by tau."""

    e: Array
    t: Array | None


def logistic(eta: Array) -> Array:
    """Give 1/(1 + e^-eta), (e,); for arrays several times faster than scipy's."""
    with np.errstate(over="ignore"):  # 1/inf is 0, which is meant
        share: Array = 1 / (1 + np.exp(-eta))
    return share


def softplus(eta: Array) -> Array:
    """Give ln(1 + e^eta)."""
    found: Array = np.maximum(eta, 0.0) + np.log(1 + np.exp(-np.abs(eta)))
    return found


def scores(ties: Ties, eta: Array, tau: float | None) -> Scores:
    """Differentiate the log likelihood of each outcome.

    Parameters
    ----------
    eta : (e,)
    tau : ln nu; None: no ties are to be explained
    """
    if tau is None:
        return Scores(SCORES[:, None] - logistic(eta), None)
    if ties is Ties.DAVIDSON:
        right, tie, left = davidson(eta, tau)
        is_tie = np.array([0.0, 1.0, 0.0])[:, None]
        return Scores((SCORES - 0.5)[:, None] - (left - right) / 2, is_tie - tie)
    # ln P(tie) = ln P(left) + ln P(right) + ln(nu² - 1).
    not_left, not_right = logistic(tau - eta), logistic(tau + eta)
    by_tie = -2 / np.expm1(-2 * tau) - not_left - not_right
    return Scores(
        np.stack((-not_right, not_left - not_right, not_left)),
        np.stack((-not_right, by_tie, -not_left)),
    )


def slopes(ties: Ties, eta: Array, tau: float | None, sums: Array) -> Slopes:
    """Differentiate the log likelihood of cells twice.

    Parameters
    ----------
    sums : (3, e) weights by outcome
    """
    if tau is None:
        p, n = logistic(eta), sums.sum(axis=0)
        expected = n * p
        return Slopes(SCORES @ sums - expected, None, expected * (1 - p), None, None)
    score = scores(ties, eta, tau)
    assert score.t is not None
    e, t = (np.einsum("ke,ke->e", sums, of) for of in (score.e, score.t))
    if ties is Ties.DAVIDSON:
        right, tie, left = davidson(eta, tau)
        n, mean = sums.sum(axis=0), (left - right) / 2
        spread = (left + right) / 4 - mean**2
        return Slopes(e, t, n * spread, -n * mean * tie, n * tie * (1 - tie))
    not_left, not_right = logistic(tau - eta), logistic(tau + eta)
    of_left = (sums[LEFT] + sums[TIE]) * not_left * (1 - not_left)
    of_right = (sums[RIGHT] + sums[TIE]) * not_right * (1 - not_right)
    both = of_left + of_right
    barrier = sums[TIE] * 4 * np.exp(-2 * tau) / np.expm1(-2 * tau) ** 2
    return Slopes(e, t, both, of_right - of_left, both + barrier)


def log_likelihood(ties: Ties, eta: Array, tau: float | None, sums: Array) -> float:
    """Sum the log likelihood of cells; -inf where tau is out of its range."""
    if tau is None:
        return float((SCORES @ sums) @ eta - sums.sum(axis=0) @ softplus(eta))
    if ties is Ties.DAVIDSON:
        top = np.logaddexp(tau, np.logaddexp(eta / 2, -eta / 2))
        won = sums[LEFT] - sums[RIGHT]
        return float(won @ eta / 2 + tau * sums[TIE].sum() - sums.sum(axis=0) @ top)
    if tau <= 0:
        return -np.inf
    # ln(nu² - 1) = 2 tau + ln(1 - e^(-2 tau))
    of_tie = float(sums[TIE].sum()) * (2 * tau + np.log(-np.expm1(-2 * tau)))
    lost = (sums[LEFT] + sums[TIE]) @ softplus(tau - eta)
    lost += (sums[RIGHT] + sums[TIE]) @ softplus(tau + eta)
    return float(of_tie - lost)


def probabilities(ties: Ties, eta: Array, nu: float) -> Array:
    """Give P(right), P(tie), P(left), (3, …); under half and drop a tie has no probability.

    Parameters
    ----------
    nu : the rule's parameter; not read by half and drop
    """
    if not ties.has_nu:
        left = logistic(eta)
        return np.stack((1 - left, np.full_like(left, np.nan), left))
    if nu == (ties is Ties.RAO_KUPPER):  # no ties: 0 under Davidson, 1 under Rao and Kupper
        left = logistic(eta)
        return np.stack((1 - left, np.zeros_like(left), left))
    tau = float(np.log(nu))
    if ties is Ties.DAVIDSON:
        return davidson(eta, tau)
    left, right = logistic(eta - tau), logistic(-eta - tau)
    return np.stack((right, left * right * np.expm1(2 * tau), left))


def davidson(eta: Array, tau: float) -> Array:
    """Give P(right), P(tie), P(left) under Davidson's rule, (3, …)."""
    logs = np.stack((-eta / 2, np.full_like(eta, tau), eta / 2))
    weights = np.exp(logs - logs.max(axis=0))
    shares: Array = weights / weights.sum(axis=0)
    return shares
