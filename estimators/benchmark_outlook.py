"""How narrow a bound for a benchmark's mean is likely to be once more of its items are in."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from estimators.benchmark_bounds import USUAL_SHARE, Line, Terms, rounds_in
from estimators.intervals import Array, Interval
from estimators.macro_ability import MacroAbility
from orchestrator.core.wire import Json

FURTHER = np.array([1.5, 2.0, 3.0, 5.0, 10.0, 30.0])
"""How many times the items so far a prediction is made for."""

_POWERS = np.linspace(0.0, 1.0, 24)[:, None]
_WEIGHTS = np.concatenate(([0.5], np.ones(22), [0.5])) / 23
"""Items, evenly spaced in logarithms, at which bets are summed up, by the trapezoidal rule."""

_LEARNS_NOTHING = 0.999
"""From this share of the sure range on, a width says nothing of the scores."""


NO_OUTLOOK: Json = {"n_items": [], "half_width": []}
"""Where nothing can be predicted, since nothing has come."""


def outlook_of(lines: Sequence[Line], intervals: Sequence[Interval]) -> Json:
    """Predict the half-width of one line, or of the difference of two that have their own items."""
    n = np.minimum.reduce([items_ahead(line) for line in lines])
    halves = map(half_widths_ahead, lines, intervals)
    return {"n_items": n.tolist(), "half_width": np.sum([*halves], axis=0).tolist()}


def ability_outlook(line: Line, found: MacroAbility, delta: float) -> Json:
    """Predict the half-width of ability with more items of these subjects; `end` is where that ends."""
    n = items_ahead(line)
    proxies = np.append(found.sampling * line.n / n, 0.0) + found.mixture
    *halves, end = np.sqrt(2 * proxies * math.log(2 / delta)).tolist()
    return {"n_items": n.tolist(), "half_width": halves, "end": end}


def items_ahead(line: Line) -> NDArray[np.int64]:
    """Give the numbers of items, (6,), for which `half_widths_ahead` predicts: at most all."""
    n: NDArray[np.int64] = np.ceil(FURTHER * line.n).astype(np.int64)
    return np.minimum(n, line.terms.n_items)


def half_widths_ahead(line: Line, interval: Interval) -> Array:
    """Predict the half-widths of a line with more items, (6,), if these are like those before.

    The width now, times what the method's own formula says of the two numbers of items. What missing
    verdicts leave open stays, no width grows, and none is beyond what unseen items can do. A
    prediction of one run, and no bound.

    Parameters
    ----------
    interval : of the line now

    Complexity: a few operations on short arrays; no score is read again.
    """
    terms, tally = line.terms, line.tally
    drawn = _drawn(line)
    lowest, highest = tally.sums
    is_weighed = terms.shares / np.maximum(tally.drawn, 1)
    open_half = float(is_weighed @ (highest - lowest)) / 2
    unseen = (1 - drawn / terms.sizes) @ terms.shares
    if terms.sequence is not None:
        open_half += terms.noise
    elif terms.n_calls is not None:
        unseen = np.ones_like(unseen)  # no item's expected score is ever seen
    sure = open_half + terms.span / 2 * unseen
    now = float(interval.upper - interval.lower) / 2
    formula = _by_formula(line, drawn)
    by_chance = now - open_half
    if now > _LEARNS_NOTHING * sure[0]:
        by_chance = formula[0]
    # No item is left to change anything where the formula is 0.
    ratio = np.divide(formula[1:], formula[0], out=np.zeros(len(FURTHER)), where=formula[0] > 0)
    ahead = open_half + max(by_chance, 0.0) * ratio
    least: Array = np.minimum(np.minimum(ahead, sure[1:]), now)
    return least


def _drawn(line: Line) -> Array:
    """Give the items of each stratum now and further on, (7, S)."""
    terms = line.terms
    n = np.concatenate(([line.n], items_ahead(line)))[:, None]
    if terms.allocation == "equal":
        return np.minimum(rounds_in(n, terms.sizes), terms.sizes)
    return np.asarray(n * terms.sizes / terms.n_items)


def _by_formula(line: Line, drawn: Array) -> Array:
    """Give the half-widths by the method's formula, (7,), in units of the scores.

    That of a sequence leaves out the judge's noise, which stays as it is.
    """
    terms, n = line.terms, drawn.sum(axis=1)
    if terms.sequence is not None:
        terms = terms.of_these
    log_error = math.log(2 / terms.alpha)
    if terms.sequence is None or not (terms.is_plain or terms.allocation == "equal"):
        return _fixed(terms, drawn, log_error, is_kept=terms.sequence is not None)
    if not terms.is_plain:
        return _in_rounds(terms, drawn, log_error)
    unseen = 1 - line.n / terms.n_items
    error = line.tally.standard_error(terms)
    variance = error**2 * line.n / unseen / terms.span**2 if unseen > 0 else 0.25
    if terms.sequence == "prior_posterior":
        left = np.maximum(1 / n - 1 / terms.n_items, 0.0)
        # The Beta prior's mass within a standard error: what not knowing the mean costs.
        prior = np.log(1 / (2 * math.pi * variance * np.maximum(left, 1e-12))) / 2
        cost = np.maximum(math.log(1 / terms.alpha) + prior, 0.1)
        return np.asarray(terms.span * np.sqrt(2 * variance * left * cost))
    return _by_bets(terms, n, log_error, 1.0 if terms.sequence == "hoeffding" else 4 * variance)


def _fixed(terms: Terms, drawn: Array, log_error: float, *, is_kept: bool) -> Array:
    factor = np.maximum(1 / np.maximum(drawn, 0.5) - 1 / terms.sizes, 0.0)
    if terms.n_calls is not None:
        factor += 1 / (terms.sizes * terms.n_calls)
    half: Array = terms.span * np.sqrt(factor @ terms.shares**2 * log_error / 2)
    if not is_kept or terms.target is None:
        return half
    # Once it has its target the width stays; before, it is that of the sure range.
    sure = terms.span / 2 * ((1 - drawn / terms.sizes) @ terms.shares)
    return np.where(half <= terms.target, terms.target, np.maximum(half, sure))


def _in_rounds(terms: Terms, drawn: Array, log_error: float) -> Array:
    """Follow `MacroSequence`: (L + the bets' costs)/(bet · rounds)."""
    shares, sizes = terms.shares, terms.sizes
    squares = terms.span**2 * float(shares @ shares)
    needed = log_error * squares / (2 * (terms.target or USUAL_SHARE * terms.span) ** 2)
    rounds = np.maximum(drawn.max(axis=1), 1.0)
    planned = needed / (1 + needed / float(sizes.mean()))
    if terms.most is not None:  # more items would be planned for
        planned = np.minimum(planned, np.maximum(rounds_in(np.array(terms.most), sizes), rounds))
    bet = np.sqrt(8 * log_error / (planned * squares))
    share = drawn / sizes
    # Σ ((N - j)/N)² over j < n is nearly N (1 - (1 - n/N)³)/3.
    cost = (sizes / 3 * (1 - (1 - share) ** 3)) @ shares**2 / float(shares @ shares)
    return np.asarray(log_error * (1 + cost / planned) / (bet * rounds))


def _by_bets(terms: Terms, n: Array, log_error: float, variance: float) -> Array:
    """Follow sums of bets: (L + Σ bet² v/2)/Σ bet N/(N - t), scores between -1 and 1."""
    n_items, scale = terms.n_items, np.log(2 * n)
    at = 0.5 * (2 * n) ** _POWERS  # from 1/2: where the first item begins
    horizon: Array | float
    if terms.target is None:
        horizon = at * np.log1p(at)
    else:
        needed = 2 * log_error * variance / (2 * terms.target / terms.span) ** 2
        horizon = needed / (1 + needed / n_items)
    if terms.most is not None:  # more items would be planned for
        horizon = np.minimum(horizon, np.maximum(terms.most, n))
    bet = np.minimum(np.sqrt(2 * log_error / (variance * horizon)), 0.5)
    cost = variance / 2 * scale * (_WEIGHTS @ (bet**2 * at))
    gain = n_items * scale * (_WEIGHTS @ (bet * at / (n_items + 1 - at)))
    half: Array = terms.span / 2 * (log_error + cost) / gain
    # With all items in nothing is open; sums reach that only by their sure range.
    return np.where(n < n_items, half, 0.0)
