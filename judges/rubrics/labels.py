"""Reading verdicts from the probabilities of labels, where each label is one token.

The verdict is the mean of the labels under the judge's own probabilities, which says more than the
one label that was drawn. It is read at the place of the verdict alone.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import NamedTuple

from judges.rubrics.verdict import failure, sides
from orchestrator.core.ports import Unreadable
from orchestrator.core.query import Preference
from orchestrator.core.scale import Scale, ScaleType
from orchestrator.core.wire import Reply

SIDES = {"1": Preference.FIRST, "2": Preference.SECOND, "0": Preference.TIE}
"""The labels of a preference. It is the label that was said: there is no mean of two sides."""

LEAST_MASS = 0.5
"""The labels' least probability together: below it the judge wanted to say something else."""


class Weighed(NamedTuple):
    """A verdict between labels, and the probability of all labels together."""

    value: float
    mass: float


def labels(scale: Scale) -> dict[str, float] | None:
    """Give the labels of a scale and their values; None where one may be more than one token.

    A digit is one token in every vocabulary in use, a longer number or a word not in each. So a
    boolean is asked for as 1 or 0, and a preference as in `SIDES`.
    """
    match scale.type:
        case ScaleType.PREFERENCE:
            return {
                label: _FOR_FIRST[side] for label, side in SIDES.items() if side in sides(scale)
            }
        case ScaleType.BOOLEAN:
            values = range(2)
        case ScaleType.INTEGER if scale.low >= 0 and scale.high <= 9:
            values = range(int(scale.low), int(scale.high) + 1)
        case _:
            return None
    return {str(value): float(value) for value in values}


def read_label(reply: Reply, values: Mapping[str, float]) -> Weighed | Unreadable:
    """Read ``Σ label·p / Σ p`` over the tokens that are a label, white space around it apart.

    ``Σ p`` is the mass. A reply that is not a label, that comes without probabilities, or whose
    labels are less likely than not, is no verdict.
    """
    if reply.text.strip() not in values:
        return failure("not a label alone")
    if not reply.alternatives:
        return failure("no probabilities at the place of the verdict")
    if not all(log_p <= _ROUNDING for _, log_p in reply.alternatives):
        return failure("a number that is no probability")
    weights = [
        (values[label], math.exp(log_p))
        for token, log_p in reply.alternatives
        if (label := token.strip()) in values
    ]
    mass = math.fsum(p for _, p in weights)
    if mass < LEAST_MASS:
        return failure(f"the labels have less than {LEAST_MASS:g} of the probability")
    if mass > 1 + _ROUNDING:
        return failure("the labels have more than all of the probability")
    value = math.fsum(label * p for label, p in weights) / mass
    # A mean lies between the labels that it is of; the quotient can miss them by one rounding.
    return Weighed(min(max(value, min(weights)[0]), max(weights)[0]), mass)


_FOR_FIRST = {Preference.FIRST: 1.0, Preference.SECOND: 0.0, Preference.TIE: 0.5}

_ROUNDING = 1e-3
"""Providers round logarithms: their probabilities add up to 1 no better than this."""
