import numpy as np
import pytest

from policies.layouts.balance import verify
from policies.layouts.williams import block_length, williams_block, williams_blocks


@pytest.mark.parametrize(
    ("n_items", "n_orders", "times"), [(4, 4, 1), (5, 10, 2), (6, 6, 1), (7, 14, 2)]
)
def test_a_block_shows_each_item_in_each_slot_and_behind_each_other(n_items, n_orders, times):
    """C36: 4, 10, 6 and 14 orders for 4 to 7 items; slots and ordered neighbours once or twice."""
    rows = williams_block(n_items, np.random.default_rng(1))
    assert rows.shape == (n_orders, n_items)
    assert len({tuple(row) for row in rows.tolist()}) == n_orders
    assert (np.sort(rows, axis=1) == np.arange(n_items)).all()
    shown = verify(rows)
    assert (shown.at_slot == times).all()
    assert (shown.followed == times * (1 - np.eye(n_items))).all()


@pytest.mark.parametrize("n_items", range(2, 41))
def test_every_size_is_balanced(n_items):
    shown = verify(williams_block(n_items, np.random.default_rng(n_items)))
    times = 1 if n_items % 2 == 0 else 2
    assert shown.is_even
    assert shown.per_slot == shown.per_pair == (times, times)


def test_a_thousand_blocks_are_balanced_and_no_two_alike():
    """Each block has a labelling of its own, so no item keeps company with the same neighbours."""
    blocks = williams_blocks(1000, 6, np.random.default_rng(0))
    for rows in blocks:
        assert verify(rows).is_even
    assert len({rows.tobytes() for rows in blocks}) > 990


def test_a_block_is_as_random_as_its_balance_allows():
    """Over blocks any order of a row is equally likely: the first row is a uniform permutation."""
    firsts = williams_blocks(24_000, 4, np.random.default_rng(5))[:, 0]
    _, counts = np.unique(firsts @ 4 ** np.arange(4), return_counts=True)
    assert len(counts) == 24
    assert np.abs(counts - 1000).max() < 4 * np.sqrt(1000)


def test_a_block_is_one_of_many_drawn_alike():
    one = williams_block(7, np.random.default_rng(3))
    (same,) = williams_blocks(1, 7, np.random.default_rng(3))
    assert (one == same).all()


def test_two_items_and_one():
    """The smallest pools: two items in both orders; one item has no neighbour."""
    rows = williams_block(2, np.random.default_rng(0)).tolist()
    assert sorted(rows) == [[0, 1], [1, 0]]
    assert williams_block(1, np.random.default_rng(0)).tolist() == [[0], [0]]
    with pytest.raises(ValueError, match="needs an item"):
        williams_block(0, np.random.default_rng(0))


def test_the_length_of_a_block_is_known_beforehand():
    for n_items in range(1, 12):
        assert len(williams_block(n_items, np.random.default_rng(0))) == block_length(n_items)
