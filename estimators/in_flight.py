"""What may be said while answers are under way or missing: quick answers are no random sample.

Items are sent in a random order, but come back in an order of their own: hard ones late, or never. A
mean of what is back is a mean of quick items. Two ways are right:

- the told prefix: items up to the first that is not back. What a run decides rests on it;
- imputation: with all open items at the worst score the lower end holds, with all at the best the
  upper end. It says more at an interim look, while many answers behind one slow one are back.

Imputation needs ends that move with each score in the score's own direction. Those of the
prior-posterior and of Hoeffding's sequence do; betting's and empirical Bernstein's don't, since a
changed score changes the variance and so later bets.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from estimators.intervals import Interval
from estimators.sequences_wor import NO_PLAN, Plan, hoeffding_wor, prior_posterior_wor


def told_prefix(scores: ArrayLike) -> int:
    """Count the items before the first without a score.

    Parameters
    ----------
    scores : (n,) of all items sent, in the order of sending, NaN where none is back
    """
    is_open = np.isnan(np.asarray(scores, dtype=np.float64))
    return int(is_open.argmax()) if is_open.any() else len(is_open)


def imputed_interval(
    scores: ArrayLike,
    population: int,
    *,
    is_binary: bool,
    level: float = 0.95,
    low: float = 0.0,
    high: float = 1.0,
    plan: Plan = NO_PLAN,
) -> Interval:
    """Bound the mean of all N items by those back, wherever in the order they are.

    The lower end is the largest over all prefixes of what was sent, with open items at `low`; the
    upper end the smallest, with open items at `high`. What will never come, such as an answer that
    can't be read, is treated as what is still under way.

    Parameters
    ----------
    scores : (n,) of all items sent, in the random order that was fixed beforehand, NaN where none is
        back
    population : N
    is_binary : scores are `low` or `high`: prior-posterior; else Hoeffding's sequence. Chosen
        beforehand
    level, low, high : as `estimators.sequences_wor.betting`
    plan : for Hoeffding's sequence

    Returns
    -------
    two numbers. They hold for every look, with a chance of at least `level`

    Raises
    ------
    ValueError
        As the sequence.

    Source: the sequences' own; the imputation is ours.
    """
    scores = np.asarray(scores, dtype=np.float64)
    if not len(scores):
        return Interval(np.array(low), np.array(high))
    is_open = np.isnan(scores)
    worst, best = (np.where(is_open, end, scores) for end in (low, high))
    if is_binary:
        lower, _ = prior_posterior_wor(worst, population, level=level, low=low, high=high)
        _, upper = prior_posterior_wor(best, population, level=level, low=low, high=high)
    else:
        lower, _ = hoeffding_wor(worst, population, level=level, low=low, high=high, plan=plan)
        _, upper = hoeffding_wor(best, population, level=level, low=low, high=high, plan=plan)
    # Once a sequence refutes every mean, it gives the sure range, which is wider than ends before.
    return Interval(lower[-1], upper[-1])
