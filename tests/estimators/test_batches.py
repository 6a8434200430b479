"""Ratings in batches: their order, their lags, and what a slot without a rating does."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from estimators.batches import ABSENT, balance, laid_out, sequences

ROWS = [(0, 0, "b", 1), (0, 1, "a", 0), (0, 2, "c", 1), (1, 0, "c", 0), (1, 1, "b", 1)]


def column(data, name):
    return data.x[..., data.names.index(name)]


def test_lags_and_starts_stand_beside_each_rating():
    data = laid_out(sequences(ROWS), 1)
    assert data.names == ("lag1", "first")
    assert data.y.tolist() == [[0, 1, 1], [0, 1, 0]]
    assert data.shown.tolist() == [[True, True, True], [False, True, True]]
    assert column(data, "lag1").tolist() == [[1, 0, 0], [0, 0, 0]]
    assert column(data, "first").tolist() == [[0, 1, 0], [0, 0, 1]]


def test_a_deeper_memory_has_as_many_starts_as_lags():
    """Then the 0/1 lag and the centred one are the same model."""
    data = laid_out(sequences(ROWS), 3)
    assert data.names == ("lag1", "lag2", "lag3", "first", "second", "third")
    assert column(data, "lag2")[0].tolist() == [0, 0, 1]
    assert column(data, "second")[0].tolist() == [1, 0, 0]


def test_without_lags_there_are_no_covariates():
    assert laid_out(sequences(ROWS), 0).x.shape == (2, 3, 0)


@given(st.permutations(ROWS))
def test_the_order_of_the_rows_does_not_matter(rows):
    """Only batch and slot do: a lag never comes from the row above."""
    shuffled, straight = sequences(rows), sequences(ROWS)
    assert (shuffled.order == straight.order).all()
    assert (shuffled.state == straight.state).all()


def test_slots_count_by_their_order():
    """Numbered from 1, or with gaps, they are the same batch."""
    rows = [(batch, 10 * slot + 1, item, y) for batch, slot, item, y in ROWS]
    assert (laid_out(sequences(rows), 1).x == laid_out(sequences(ROWS), 1).x).all()


def batch_with(y, follower=1):
    return [(9, 0, "a", 1), (9, 1, "b", y), (9, 2, "c", follower)]


def test_few_followers_of_a_refused_slot_are_left_out():
    data = laid_out(sequences([*ROWS, *batch_with(None)]), 1)
    assert data.names == ("lag1", "first")
    assert data.shown[2].tolist() == [True, False, False]
    assert data.counts == (7, 1, 0, 1)


def refusals(outcomes):
    return [
        (batch, slot, item, y)
        for batch, said in enumerate(outcomes)
        for slot, item, y in ((0, "a", batch % 2), (1, "b", None), (2, "c", said))
    ]


def test_enough_followers_with_both_outcomes_have_a_state_of_their_own():
    """After a refused slot the lag is 0 and miss1 is 1."""
    data = laid_out(sequences(refusals([1, 0, 1, 0, 1])), 1)
    assert data.names == ("lag1", "first", "miss1")
    assert column(data, "miss1")[:, 2].tolist() == [1] * 5
    assert not column(data, "lag1").any()
    assert data.counts.dropped == 0


@pytest.mark.parametrize("outcomes", [[1, 0, 1, 0], [1, 1, 1, 1, 1]])
def test_too_few_or_unanimous_followers_have_none(outcomes):
    data = laid_out(sequences(refusals(outcomes)), 1)
    assert data.names == ("lag1", "first")
    assert not data.shown[:, 2].any()


def test_another_layout_can_decide_on_the_refusals_effect():
    """Held-out and later batches have the fit's covariates, however few they are."""
    few = sequences(refusals([1]))
    assert laid_out(few, 1, names=("lag1", "first", "miss1")).shown[0].tolist() == [1, 0, 1]
    many = sequences(refusals([1, 0, 1, 0, 1]))
    assert laid_out(many, 1, names=("lag1", "first")).names == ("lag1", "first")


def test_the_follower_of_an_unreadable_slot_is_left_out():
    """The judge rated and nobody can tell how, so what follows has no known lag."""
    rows = [row for k in range(9) for row in ((k, 0, "a", math.nan), (k, 1, "b", k % 2))]
    data = laid_out(sequences([*rows, (20, 0, "a", 1)]), 1)
    assert data.names == ("lag1", "first")
    assert data.counts == (10, 0, 9, 9)


def test_a_batch_without_a_rating_has_no_row():
    data = laid_out(sequences([*ROWS, (2, 0, "a", None)]), 1)
    assert data.rows.tolist() == [0, 1]


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ((0, 3, "d", 2), "y is 2"),
        ((0, 3, "d", "1"), "y is '1'"),
        ((0, 3, "d", [1]), "y is"),
        ((0, 3, "d", 0.5), r"y is 0\.5"),
        ((0, 0, "d", 1), "batch 0 has slot 0 twice"),
        ((0, 3, "b", 1), "batch 0 has item 'b' twice"),
        ((0, 1.5, "d", 1), "slots are integers"),
        ((0, 3, 7, 1), "items must be named by values of one kind"),
        (("x", 3, "d", 1), "batches must be named by values of one kind"),
        ((0, 3, "d"), r"a rating is \(batch, slot, item, y\)"),
    ],
)
def test_malformed_ratings_are_refused(row, message):
    with pytest.raises(ValueError, match=message):
        sequences([*ROWS, row])


def test_numpy_numbers_and_booleans_are_ratings_too():
    rows = [(np.int64(b), np.int64(s), i, np.float64(y)) for b, s, i, y in ROWS]
    assert (sequences(rows).state == sequences(ROWS).state).all()
    rows = [(b, s, i, bool(y)) for b, s, i, y in ROWS]
    assert (sequences(rows).state == sequences(ROWS).state).all()


def test_joined_batches_are_those_of_all_ratings():
    more = [(2, 0, "aa", 1), (2, 1, "c", 0), (2, 2, "a", 1), (2, 3, "b", 0)]
    joined, whole = sequences(ROWS).joined(sequences(more)), sequences([*ROWS, *more])
    assert joined.items == whole.items == ("a", "aa", "b", "c")
    assert (joined.order == whole.order).all()
    assert (joined.state == whole.state).all()
    assert (joined.order[1] == ABSENT).sum() == 2


def test_a_batch_that_is_there_already_is_refused():
    with pytest.raises(ValueError, match="batch 1 is given twice"):
        sequences(ROWS).joined(sequences(ROWS[3:]))


def test_items_are_connected_by_chains_of_batches():
    pairs = [("a", "b"), ("c", "d"), ("b", "e"), ("f", "d")]
    rows = [(n, s, item, 1) for n, pair in enumerate(pairs) for s, item in enumerate(pair)]
    data = laid_out(sequences([*rows, (9, 0, "lone", None)]), 1)
    assert data.components().tolist() == [0, 0, 1, 1, 0, 1, 2]


def test_slots_and_neighbours_are_counted():
    found = balance(sequences([*ROWS, (2, 0, "a", None), (2, 1, "c", 0)]))
    assert found.slots.tolist() == [[1, 1, 0], [1, 1, 0], [1, 1, 1]]
    assert found.pairs.tolist() == [[0, 0, 2], [1, 0, 0], [0, 1, 0]]
    assert found.asked.tolist() == [3, 3, 1]
    assert found.unrated.tolist() == [1, 0, 0]
    assert balance(sequences([])).pairs.shape == (0, 0)
