"""What is wrong with a board of strengths, told by its votes alone: live ones, or imported.

Eight checks: whether neighbours are told apart, whether the order of showing or the counting of ties
decides, whether one strength a model fits, whether all is connected and evenly covered, whether votes
hang together, and whether one judge decides. Each has an effect with an interval, and fires when the
whole interval lies beyond a band, the size from which on it matters. The error is split evenly over
the checks, and within each over all that it looks at, so that nothing fires on a sound board with at
least the stated level.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from estimators.board_conventions import position, ties
from estimators.board_evidence import Evidence, Finding, Kind, silent
from estimators.board_findings import clustered, coverage, disconnected, judge_influence
from estimators.board_neighbours import neighbours_open
from estimators.board_pairs import intransitive
from estimators.comparisons import Comparisons
from orchestrator.core.wire import Json

__all__ = ["Audit", "Finding", "Kind", "audit"]


class Audit(NamedTuple):
    """All checks of a board.

    Attributes
    ----------
    findings : one a kind, in the order of `Kind`, fired or not
    n_votes, n_models : of the board
    by : what counts as one piece of evidence: `judge`, `item`, `cluster`; empty: each vote
    """

    findings: tuple[Finding, ...]
    n_votes: int
    n_models: int
    by: str

    @property
    def fired(self) -> tuple[Finding, ...]:
        """Those that fire."""
        return tuple(each for each in self.findings if each.fires)

    def of(self, kind: Kind | str) -> Finding:
        """Give one check."""
        return next(each for each in self.findings if each.kind == kind)

    def as_json(self) -> dict[str, Json]:
        """Give it as plain values, as reports keep and read it; what is not finite is None."""
        return {
            "findings": [each.as_json() for each in self.findings],
            "n_votes": self.n_votes,
            "n_models": self.n_models,
            "by": self.by,
        }


def audit(
    table: Comparisons,
    *,
    n_models: int,
    rng: np.random.Generator,
    cluster: ArrayLike | None = None,
    level: float = 0.95,
    price: int | None = None,
    is_watched: bool = False,
) -> Audit:
    """Audit a board.

    Parameters
    ----------
    cluster : (n,) labels of what votes have in common beside judge and item
    level : probability that nothing fires on a sound board
    price : nano-USD a comparison; None: not known
    is_watched : the votes were looked at along the way, or may have ended by what was seen:
        intervals of strengths, of the first place's advantage and of what moves are then by
        sequences in information; that of pairs' spread stays one for a fixed end

    Raises
    ------
    ValueError
        Shapes or values are malformed.
    DidNotConverge
        A fit found no maximum.

    Determinism: draws from `rng`.
    """
    if not len(table) or n_models < 2:
        nothing = tuple(silent(kind, np.nan, "", "there are no votes") for kind in Kind)
        return Audit(nothing, len(table), n_models, "")
    evidence = Evidence.of(
        table, n_models=n_models, cluster=cluster, rng=rng, level=level, is_watched=is_watched
    )

    settled = evidence.settled(cluster)

    def checks() -> Iterator[Finding]:
        yield neighbours_open(evidence, price)
        yield position(evidence)
        yield ties(evidence)
        yield intransitive(evidence)
        yield disconnected(evidence)
        yield coverage(settled)
        yield clustered(evidence)
        yield judge_influence(settled)

    return Audit(tuple(checks()), len(table), n_models, evidence.by)
