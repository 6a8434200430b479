"""How the estimates of a run depend on each judge: the same estimators without its answers."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

from orchestrator import rundir
from orchestrator.build import Blueprint, build, identity_digest
from orchestrator.core.errors import OrchestratorError
from orchestrator.core.estimate import Estimate
from orchestrator.core.events import GLANCE, Opened, Started
from orchestrator.core.money import Nano
from orchestrator.core.ports import Estimator
from orchestrator.core.query import Judged, Outcome, Role
from orchestrator.core.records import records
from orchestrator.core.wire import Json, Origin
from orchestrator.report.data import ReportData, WithoutJudge

EstimatorsWithout = Callable[[Nano | None, int], tuple[Estimator, ...]]

MOST_QUESTIONS = 20_000
"""Beyond, the estimators would take more than some two seconds, and nothing is left out."""
MOST_JUDGES = 6


def without_judges(
    directory: Path, data: ReportData, estimators_without: EstimatorsWithout | None = None
) -> tuple[WithoutJudge, ...]:
    """Estimate anew with each judge left out; empty where it can't be done, or would be slow.

    Only final estimates are held against that, of panels of at most `MOST_JUDGES`. Estimates of each
    judge by itself, and of many names, are left out. Without `estimators_without` the run's campaign
    is loaded again; if it is gone or has changed, nothing is estimated.
    """
    is_small = data.counts.told <= MOST_QUESTIONS and 1 < len(data.judges) <= MOST_JUDGES
    has_answers = sum(judge.answered > judge.keyed for judge in data.judges) > 1
    if not (data.are_final and is_small and has_answers):
        return ()
    if estimators_without is None:
        again = loaded_again(directory)
        if again is None:
            return ()
        estimators_without = again.estimators_without
    n_answers = [0] * len(data.judges)
    with rundir.reading(directory) as reader:
        opened = reader.last(Opened)
        cap = None if opened is None else opened.cap
        left_out = [estimators_without(cap, k) for k in range(len(data.judges))]
        for record in records(row.event for row in reader.read_unchecked()):
            query = record.query
            if query.role is not Role.JUDGE:
                continue
            n_answers[query.judge] += _is_own(record.outcome)
            for k, estimators in enumerate(left_out):
                if query.judge != k:
                    for estimator in estimators:
                        estimator.update(record)
    return tuple(
        WithoutJudge(judge=judge.name, n_answers=n, estimates=_estimates(estimators))
        for judge, n, estimators in zip(data.judges, n_answers, left_out, strict=True)
    )


def _estimates(estimators: tuple[Estimator, ...]) -> tuple[Estimate, ...]:
    found = (estimate for estimator in estimators for estimate in estimator.estimate())
    return tuple(e for e in found if len(e.names) <= GLANCE and e.target != "judges")


def _is_own(outcome: Outcome) -> bool:
    """Say whether the judge itself gave the answer: what a key decided, another judge tells too."""
    return isinstance(outcome, Judged) and outcome.origin is not Origin.KEY


def loaded_again(directory: Path) -> Blueprint | None:
    """Load a run's campaign again; None if it is gone or has changed.

    It is loaded as if a loop of one's own called the judges: so it needs no keys.
    """
    from orchestrator.campaign import Campaign  # noqa: PLC0415  # it imports rundir

    with rundir.reading(directory) as reader:
        opened, started = reader.last(Opened), reader.last(Started)
    if opened is None or started is None:
        return None
    try:
        given = started.about["campaign"]
        again = build(
            Campaign.again(started.about).file,
            mock=given["mock"],
            limit=given["limit"],
            own_loop=True,
            is_to_start=False,
        )
    except (OrchestratorError, LookupError, TypeError, AttributeError):
        return None
    is_same = _lasting(opened.identity) == _lasting(again.crew.opened.identity)
    return again if is_same else None


def _lasting(identity: Mapping[str, Json]) -> str:
    """Digest an identity but for how the judges are called."""
    return identity_digest({k: v for k, v in identity.items() if k not in {"own_loop", "routes"}})
