"""Places and neighbours of units in batches: as asked, and as far as there is a verdict."""

from __future__ import annotations

import math

import numpy as np
import pytest

from orchestrator.core.money import Nano
from orchestrator.core.query import Judged, Kind, Observation, Query
from orchestrator.core.seeds import Seeds
from orchestrator.report.slots import MOST_UNITS, Slots
from policies.layouts.balance import NOTHING
from policies.layouts.balance import verify as counted
from policies.layouts.design import design


def batch(units, replicate=0):
    return Query(kind=Kind.RATE_BATCH, judge=0, units=tuple(units), replicate=replicate)


def answer(units, values, flags=()):
    """An answer; nan stands for a unit that it leaves out."""
    said = tuple(
        Observation(unit=unit, slot=slot, value=value)
        for slot, (unit, value) in enumerate(zip(units, values, strict=True))
        if value is None or not math.isnan(value)
    )
    return Judged(observations=said, cost=Nano(1), usage=None, flags=flags)


def tally(*batches, n_units, yes_from=1.0):
    slots = Slots(n_units=n_units, yes_from=yes_from)
    for units, outcome in batches:
        slots.add(batch(units), outcome)
    return slots.frozen("a")


@pytest.mark.parametrize("n", [4, 5, 6, 7])
def test_evenness_is_that_of_the_designs_own_count(n):
    """C36: a second count of the same batches, whole and with losses, comes to the same."""
    length = n if n % 2 == 0 else 2 * n
    laid = design("williams", length, n_items=n, size=n, seeds=Seeds(3), judge=0).rows
    is_lost = np.random.default_rng(n).random(laid.shape) < 0.1
    found = tally(
        *(
            (row, answer(row, np.where(gone, math.nan, 1.0).tolist(), ("partial:omitted",)))
            for row, gone in zip(laid.tolist(), is_lost, strict=True)
        ),
        n_units=n,
    )
    whole, kept = counted(laid), counted(np.where(is_lost, NOTHING, laid))
    assert found.asked == (whole.per_slot, whole.per_pair)
    assert found.asked.per_slot == (length // n,) * 2
    assert found.kept == (kept.per_slot, kept.per_pair)
    assert found.n_lost == is_lost.sum()


def test_shares_are_by_slot_and_losses_by_reason(make):
    found = tally(
        ((0, 1, 2), answer((0, 1, 2), [1.0, 0.0, 1.0])),
        ((1, 2, 0), answer((1, 2, 0), [1.0, math.nan, math.nan], ("partial:truncated",))),
        ((2, 0, 1), answer((2, 0, 1), [0.0, None, 1.0], ("reordered",))),
        ((0, 2, 1), make.lost("refused")),
        ((0, 2, 1), answer((0, 2, 1), [1.0, math.nan, 1.0], ("partial:omitted", "unknown_id"))),
        n_units=3,
    )
    assert found.rated == (4, 1, 3)
    assert found.means == pytest.approx((3 / 4, 0.0, 1.0))
    assert found.lost == {"omitted": 1, "refused": 3, "truncated": 2}
    assert (found.n_batches, found.n_missing, found.n_lost) == (5, 1, 6)


def test_a_number_scale_is_cut_where_a_yes_begins_or_averaged():
    said = ((0, 1), answer((0, 1), [4.0, 3.0]))
    assert tally(said, n_units=2, yes_from=4.0).means == (1.0, 0.0)
    averaged = tally(said, n_units=2, yes_from=None)
    assert (averaged.means, averaged.is_share) == ((4.0, 3.0), False)


def test_a_large_pool_is_not_counted_by_pairs():
    found = tally(((0, 1), answer((0, 1), [1.0, 1.0])), n_units=MOST_UNITS + 1)
    assert (found.asked, found.kept) == (None, None)
    assert found.rated == (1, 1)
