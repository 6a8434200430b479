"""With what probability each pair, and each judge of it, is asked next; and the draw.

q = (1 - floor) g^power / Σ g^power + floor · law. The law is what the campaign's target asks for, so
no weight law/q is above 1/floor, and an average that is weighted by it holds even where the model of
strengths does not. The gain g per dollar decides the rest; a power makes the best pairs stand out.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from estimators.tensor_dense import Array
from policies.pairing.acquisition import Rule, gains
from policies.pairing.posterior import Posterior

FLOOR = 0.2
MIN_FLOOR = 0.1
"""Below this share, intervals of weighted estimates are too narrow."""

POWER = 4.0


def propensities(
    state: Posterior,
    *,
    rule: Rule = "aopt",
    floor: float = FLOOR,
    power: float = POWER,
    price: ArrayLike | None = None,
    law: ArrayLike | None = None,
) -> Array:
    """Give the probability of each pair to be asked next, (P,) as `numpy.triu_indices(M, 1)`.

    With prices it is that of each judge and pair, (J, P).

    Parameters
    ----------
    floor, power : see `mixture`
    price : expected price of a question to each judge, (J,) or (J, P), > 0; in any unit
    law : target law of pairs, or of judges and pairs, of the result's shape or broadcast to it;
        need not sum to one; 0: never asked. None: uniform
    """
    value = gains(state, rule)
    if price is not None:
        cost = np.asarray(price, dtype=np.float64)
        value = value / (cost[:, None] if cost.ndim == 1 else cost)
    return mixture(value, floor=floor, power=power, law=law)


def mixture(
    value: Array, *, floor: float = FLOOR, power: float = POWER, law: ArrayLike | None = None
) -> Array:
    """Mix a power of values with the target law; the result sums to one.

    Parameters
    ----------
    value : >= 0, any shape; where all are 0 the law decides alone
    floor : share of the law, in (0, 1]
    power : 1 follows the values, more stands the best out
    law : as of `propensities`
    """
    wanted = np.broadcast_to(1.0 if law is None else np.asarray(law, dtype=np.float64), value.shape)
    wanted = wanted / wanted.sum()
    allowed = np.where(wanted > 0, value, 0.0)
    best = allowed.max()
    if best <= 0:
        return np.asarray(wanted)
    # Powers of shares of the best neither overflow nor all vanish.
    raised = (allowed / best) ** power
    mixed: Array = (1 - floor) * (raised / raised.sum()) + floor * wanted
    return mixed


def draw(q: Array, uniform: float) -> int:
    """Choose a place of the flattened probabilities by a uniform number of [0, 1)."""
    ends = np.cumsum(q)
    at = min(uniform * ends[-1], np.nextafter(ends[-1], 0))
    return int(np.searchsorted(ends, at, side="right"))
