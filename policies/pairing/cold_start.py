"""The first questions: a random cycle, so that everything is connected before gains are trusted."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

ENOUGH = 2
"""Comparisons from which a model is no newcomer."""


class Start(NamedTuple):
    """A pair to ask, and how likely it was to stand at its place."""

    a: int
    b: int
    propensity: float


def cold_start(
    n_models: int, rng: np.random.Generator, prior: ArrayLike | None = None
) -> list[Start]:
    """Draw a cycle that connects all models, each in two comparisons at least.

    Models that prior comparisons connect, each by two or more, are one stop of the cycle, which
    each of its questions makes at a random one of them; every other model is a stop of its own. So
    a newcomer is compared with two of those that are known, and known models alone need nothing.

    The propensity is that of the pair at its place in the cycle, before any of it is drawn: 1 over
    all pairs where nothing is known. It is no probability given the questions before, which would
    be one for the pair that closes the cycle. Pairs inside a stop have none.

    Parameters
    ----------
    prior : comparisons of each pair so far, (M, M), symmetric
    """
    counts = np.zeros((n_models, n_models)) if prior is None else np.asarray(prior)
    stops = _stops(counts)
    n = len(stops)
    if n == 1:
        return []
    cycle = rng.permutation(n).tolist()
    chosen = []
    for i, stop in enumerate(cycle):
        here, there = stops[stop], stops[cycle[(i + 1) % n]]
        a, b = int(rng.choice(here)), int(rng.choice(there))
        propensity = 2 / (n * (n - 1) * len(here) * len(there))
        chosen.append(Start(min(a, b), max(a, b), propensity))
    return chosen


def _stops(counts: np.ndarray) -> list[Sequence[int]]:
    """Group the models that known ones connect; newcomers stand alone."""
    is_known = counts.sum(axis=1) >= ENOUGH
    stops: list[Sequence[int]] = []
    left = set(range(len(counts)))
    while left:
        members, edge = set(), {min(left)}
        while edge:
            members |= edge
            edge = {
                other
                for one in edge
                if is_known[one]
                for other in left - members
                if is_known[other] and counts[one, other] > 0
            }
        left -= members
        stops.append(sorted(members))
    return stops
