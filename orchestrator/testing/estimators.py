"""The contract of an estimator. An estimator's test subclasses it and says how to make one."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import fields, replace
from typing import TypeVar

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from orchestrator.core.estimate import Estimate, Status
from orchestrator.core.frame import Frame
from orchestrator.core.ids import JudgeIx, QNo, UnitIx
from orchestrator.core.money import FREE, Nano
from orchestrator.core.ports import Estimator
from orchestrator.core.query import (
    Judged,
    Kind,
    Missing,
    MissingReason,
    Observation,
    Outcome,
    Query,
)
from orchestrator.core.records import Record
from orchestrator.core.scale import Criterion, Scale, ScaleType
from orchestrator.core.seeds import Seeds
from orchestrator.core.study import Panelist, Study

T = TypeVar("T")

thorough = settings(
    deadline=None,
    max_examples=50,
    report_multiple_bugs=False,
    # A contract's tests are run by each subclass, which is their purpose.
    suppress_health_check=[HealthCheck.differing_executors, HealthCheck.too_slow],
)

SCALES = (
    Scale(type=ScaleType.BOOLEAN, labels=("no", "yes")),
    Scale(type=ScaleType.INTEGER, low=1, high=5),
    Scale(type=ScaleType.FLOAT, low=-1.0, high=0.5),
)


def rating(
    q: int,
    unit: int,
    value: float | Sequence[float | None] | None,
    *,
    judge: int = 0,
    replicate: int = 0,
) -> Record:
    """Make the record of one rating; several values are those of several criteria."""
    values = value if isinstance(value, Sequence) else [value]
    observations = tuple(
        Observation(unit=UnitIx(unit), criterion=c, value=v) for c, v in enumerate(values)
    )
    outcome = Judged(observations=observations, cost=Nano(0), usage=None)
    return _record(q, unit, judge, replicate, outcome)


def missing(
    q: int,
    unit: int,
    reason: MissingReason = MissingReason.REFUSED,
    *,
    judge: int = 0,
    replicate: int = 0,
) -> Record:
    """Make the record of one question without a verdict."""
    outcome = Missing(reason=reason, cost=Nano(0), uncertain=Nano(0), attempts=1)
    return _record(q, unit, judge, replicate, outcome)


def _record(q: int, unit: int, judge: int, replicate: int, outcome: Outcome) -> Record:
    query = Query(kind=Kind.RATE, judge=JudgeIx(judge), units=(UnitIx(unit),), replicate=replicate)
    return Record(q=QNo(q), query=query, outcome=outcome)


@st.composite
def rated_studies(draw: st.DrawFn, n_arms: int | None = None) -> Study:
    """Draw small studies: several scales, with and without clusters and weights."""
    n_items = draw(st.integers(1, 6))
    frame = Frame.of(
        [f"item{i}" for i in range(n_items)],
        [f"arm{a}" for a in range(n_arms or draw(st.integers(1, 2)))],
        cluster=draw(st.none() | _some("abc", n_items)),
        weight=draw(st.none() | _some([0.5, 1.0, 3.0], n_items)),
    )
    scales = draw(st.lists(st.sampled_from(SCALES), min_size=1, max_size=2))
    return Study(
        kind=Kind.RATE,
        frame=frame,
        panel=tuple(Panelist(name=f"judge{j}", card=FREE) for j in range(draw(st.integers(1, 3)))),
        criteria=tuple(
            Criterion(name=f"criterion{c}", scale=scale, weight=c + 1.0)
            for c, scale in enumerate(scales)
        ),
        seeds=Seeds(0),
    )


def _some(of: Sequence[T], n: int) -> st.SearchStrategy[list[T]]:
    return st.lists(st.sampled_from(of), min_size=n, max_size=n)


@st.composite
def ratings_of(draw: st.DrawFn, study: Study) -> list[Record]:
    """Draw what may be told of a study: answers, repeats, "not applicable", missing verdicts."""
    found: list[Record] = []
    n_asked: dict[tuple[int, int], int] = {}
    places = st.tuples(
        st.integers(0, study.frame.n_units - 1), st.integers(0, len(study.panel) - 1)
    )
    # Drawn lists are short unless told otherwise, and many records are another matter than few.
    asked = draw(st.lists(places, max_size=5) | st.lists(places, min_size=10, max_size=40))
    for q, (unit, judge) in enumerate(asked):
        replicate = n_asked.get((unit, judge), 0)
        n_asked[unit, judge] = replicate + 1
        if draw(st.integers(0, 5)) == 0:
            reason = draw(st.sampled_from(MissingReason))
            found.append(missing(q, unit, reason, judge=judge, replicate=replicate))
        else:
            values = [draw(st.none() | _values(c.scale)) for c in study.criteria]
            found.append(rating(q, unit, values, judge=judge, replicate=replicate))
    return found


def _values(scale: Scale) -> st.SearchStrategy[float]:
    """Draw verdicts on a scale, its ends included."""
    if scale.type is ScaleType.FLOAT:
        return st.floats(scale.low, scale.high) | st.sampled_from([scale.low, scale.high])
    return st.integers(int(scale.low), int(scale.high)).map(float)


class EstimatorContract:
    """What every estimator keeps to.

    `n_arms` fixes the arms of the studies drawn. An estimator of other things than ratings
    overrides `studies` and `records`.
    """

    n_arms: int | None = None

    def make_estimator(self, study: Study) -> Estimator:
        """Make a fresh estimator."""
        raise AssertionError(f"an estimator's test says here how to make one for {study.kind}")

    def fit(self, study: Study, records: Sequence[Record]) -> tuple[Estimate, ...]:
        """Fit the same in one go, by the batch function."""
        raise AssertionError(f"an estimator's test says here how to fit {records} of {study}")

    def studies(self) -> st.SearchStrategy[Study]:
        """Give the studies to try."""
        return rated_studies(self.n_arms)

    def records(self, study: Study) -> st.SearchStrategy[list[Record]]:
        """Give what may be told of a study."""
        return ratings_of(study)

    def _told(self, study: Study, records: Sequence[Record]) -> tuple[Estimate, ...]:
        estimator = self.make_estimator(study)
        for record in records:
            estimator.update(record)
        return estimator.estimate()

    @thorough
    @given(data=st.data())
    def test_any_data_give_estimates_that_can_be_read(self, data: st.DataObject) -> None:
        """Nothing raises; what is not known is nan with a status; no interval has zero width."""
        study = data.draw(self.studies())
        estimator = self.make_estimator(study)
        for record in data.draw(self.records(study)):
            estimator.update(record)
            for estimate in estimator.estimate():
                check_is_readable(estimate)

    @thorough
    @given(data=st.data())
    def test_online_equals_batch(self, data: st.DataObject) -> None:
        """Told one by one or fitted at once, the estimates are the same."""
        study = data.draw(self.studies())
        records = data.draw(self.records(study))
        online, batch = self._told(study, records), self.fit(study, records)
        assert len(online) == len(batch)
        for one, other in zip(online, batch, strict=True):
            check_is_same(one, other)
            assert (one.status, one.flags) == (other.status, other.flags)

    @thorough
    @given(data=st.data())
    def test_looking_changes_nothing(self, data: st.DataObject) -> None:
        """Looks in between leave the later estimates as they are."""
        study = data.draw(self.studies())
        records = data.draw(self.records(study))
        estimator = self.make_estimator(study)
        for record in records:
            estimator.update(record)
            estimator.estimate()
        for one, other in zip(estimator.estimate(), self._told(study, records), strict=True):
            check_is_same(one, other)

    @thorough
    @given(data=st.data())
    def test_order_of_telling_does_not_matter(self, data: st.DataObject) -> None:
        """The same records in another order give the same estimates."""
        study = data.draw(self.studies())
        records = data.draw(self.records(study))
        shuffled = data.draw(st.permutations(records))
        for one, other in zip(self._told(study, records), self._told(study, shuffled), strict=True):
            check_is_same(one, other)

    @thorough
    @given(data=st.data())
    def test_numbering_of_items_and_judges_does_not_matter(self, data: st.DataObject) -> None:
        """Each name keeps its estimate when items and judges stand in another order."""
        study = data.draw(self.studies())
        records = data.draw(self.records(study))
        items = data.draw(st.permutations(range(study.frame.n_items)))
        judges = data.draw(st.permutations(range(len(study.panel))))
        other_study = renumbered_study(study, items, judges)
        others = [renumbered_record(study, record, items, judges) for record in records]
        for one, other in zip(
            self._told(study, records), self._told(other_study, others), strict=True
        ):
            check_is_same(one, other)

    @thorough
    @given(data=st.data())
    def test_without_verdicts_nothing_is_known(self, data: st.DataObject) -> None:
        """Before the first verdict, and where all are missing, every number is nan: `empty`."""
        study = data.draw(self.studies())
        units = data.draw(st.lists(st.integers(0, study.frame.n_units - 1), max_size=3))
        for estimate in self._told(study, [missing(q, unit) for q, unit in enumerate(units)]):
            assert estimate.status is Status.EMPTY
            numbers = (estimate.value, estimate.se, estimate.lower, estimate.upper)
            assert all(math.isnan(x) for column in numbers for x in column)
            assert (estimate.n_items, estimate.n_answers) == (0, 0)


def check_is_readable(estimate: Estimate) -> None:
    """Check what must hold of any estimate from any data."""
    n = len(estimate.names)
    columns = (estimate.value, estimate.se, estimate.lower, estimate.upper)
    assert all(len(column) == n for column in columns)
    for value, se, lower, upper in zip(*columns, strict=True):
        assert math.isnan(se) or se > 0, "a standard error is positive or unknown"
        assert math.isnan(lower) == math.isnan(upper), "an interval has two ends or none"
        assert math.isnan(lower) or lower <= value <= upper, "an interval holds its value"
        assert math.isnan(lower) or lower < upper, "an interval has zero width"
    if estimate.status is Status.OK:
        assert not any(math.isnan(x) for column in columns for x in column), "nan under `ok`"
    assert estimate.status is not Status.EMPTY or all(math.isnan(v) for v in estimate.value)
    assert 0 < estimate.level < 1
    assert estimate.estimand, "no estimand"
    json.dumps(estimate.diagnostics, allow_nan=False)
    for key, column in estimate.diagnostics.get("by_name", {}).items():
        assert len(column) == n, f"by_name.{key} does not stand along the names"


def check_is_same(one: Estimate, other: Estimate) -> None:
    """Check that two estimates agree name by name, up to rounding."""
    assert sorted(one.names) == sorted(other.names)
    assert (one.target, one.status) == (other.target, other.status)
    assert (one.n_items, one.n_answers) == (other.n_items, other.n_answers)
    place = {name: i for i, name in enumerate(other.names)}
    order = [place[name] for name in one.names]
    for key in ("value", "se", "lower", "upper"):
        expected = [getattr(other, key)[i] for i in order]
        assert getattr(one, key) == pytest.approx(expected, rel=1e-9, abs=1e-9, nan_ok=True), key


def renumbered_study(study: Study, items: Sequence[int], judges: Sequence[int]) -> Study:
    """Put the items and judges of a study in another order."""
    frame, order = study.frame, np.asarray(items)
    per_item = ("cluster", "stratum", "group", "weight")
    arrays = {f.name: getattr(frame, f.name)[order] for f in fields(frame) if f.name in per_item}
    return replace(
        study,
        frame=replace(frame, items=tuple(frame.items[i] for i in items), **arrays),
        panel=tuple(study.panel[j] for j in judges),
    )


def renumbered_record(
    study: Study, record: Record, items: Sequence[int], judges: Sequence[int]
) -> Record:
    """Say a record of a study in the numbers of the reordered one."""

    def moved(unit: UnitIx) -> UnitIx:
        frame = study.frame
        return frame.unit(items.index(frame.item_of(unit)), frame.arm_of(unit))

    query, outcome = record.query, record.outcome
    if isinstance(outcome, Judged):
        observations = tuple(replace(o, unit=moved(o.unit)) for o in outcome.observations)
        outcome = replace(outcome, observations=observations)
    query = replace(
        query,
        judge=JudgeIx(judges.index(query.judge)),
        units=tuple(moved(unit) for unit in query.units),
    )
    return replace(record, query=query, outcome=outcome)
