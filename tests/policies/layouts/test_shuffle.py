import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from policies.layouts.balance import is_connected
from policies.layouts.shuffle import fixed, round_length, shuffled, subsets


@st.composite
def pools(draw):
    """Draw a pool in groups, and a size of batches."""
    groups = draw(st.lists(st.integers(0, 3), min_size=2, max_size=24))
    return np.array(groups), draw(st.integers(2, len(groups)))


def test_permutations_are_uniform():
    rows = shuffled(24_000, 4, np.random.default_rng(1))
    _, counts = np.unique(rows @ 4 ** np.arange(4), return_counts=True)
    assert len(counts) == 24
    assert np.abs(counts - 1000).max() < 4 * np.sqrt(1000)


@given(pools(), st.integers(0, 10**6))
def test_a_round_shows_all_items_equally_often_and_hangs_together(pool, seed):
    groups, size = pool
    n_items = len(groups)
    rows = subsets(n_items, size, np.random.default_rng(seed), groups=groups)
    assert len(set(np.bincount(rows.ravel(), minlength=n_items).tolist())) == 1
    assert all(len(set(row)) == size for row in rows.tolist())
    assert is_connected(rows, n_items)
    assert len(rows) == round_length(n_items, size)


@given(pools(), st.integers(0, 10**6))
def test_groups_have_their_share_of_every_batch(pool, seed):
    """Rounded up or down; and exactly so in the round."""
    groups, size = pool
    rows = subsets(len(groups), size, np.random.default_rng(seed), groups=groups)
    for label in set(groups.tolist()):
        share = size * (groups == label).mean()
        seats = (groups[rows] == label).sum(axis=1)
        assert (seats >= np.floor(share - 1e-9)).all()
        assert (seats <= np.ceil(share + 1e-9)).all()
        assert seats.mean() == pytest.approx(share)


@given(st.integers(2, 20), st.integers(2, 20), st.integers(0, 10**6))
def test_after_any_batch_items_differ_by_one_showing(n_items, size, seed):
    size = min(size, n_items)
    rows = subsets(n_items, size, np.random.default_rng(seed))
    shown = np.zeros(n_items, dtype=int)
    for row in rows:
        shown[row] += 1
        assert np.ptp(shown) <= 1


def test_two_equal_groups_have_half_of_every_batch():
    groups = np.repeat([7, 3], 6)
    rows = subsets(12, 4, np.random.default_rng(0), groups=groups)
    assert ((groups[rows] == 7).sum(axis=1) == 2).all()


def test_items_come_to_every_slot_and_company_alike():
    """No item is likelier in a slot, or beside another, than chance has it."""
    rounds = [subsets(6, 3, np.random.default_rng([4, k])) for k in range(3000)]
    rows = np.concatenate(rounds)
    first = np.bincount(rows[:, 0], minlength=6)
    assert np.abs(first - first.mean()).max() < 4 * np.sqrt(first.mean())
    together = np.zeros((6, 6))
    for row in rows:
        together[np.ix_(row, row)] += 1
    pairs = together[np.triu_indices(6, 1)]
    assert np.abs(pairs - pairs.mean()).max() < 4 * np.sqrt(pairs.mean())


def test_batches_that_divide_the_pool_are_dealt_twice():
    """One deal of ten items to batches of five would never compare one half with the other."""
    for seed in range(200):
        rows = subsets(10, 5, np.random.default_rng(seed))
        assert len(rows) == 4
        assert is_connected(rows, 10)


def test_a_whole_pool_is_a_round_by_itself():
    (row,) = subsets(9, 9, np.random.default_rng(0), groups=np.arange(9) % 2)
    assert sorted(row.tolist()) == list(range(9))


@pytest.mark.parametrize(("n_items", "size"), [(5, 6), (5, 1), (5, 0), (0, 1)])
def test_impossible_sizes_are_refused(n_items, size):
    """Batches of one item can't be compared with each other."""
    with pytest.raises(ValueError, match="a batch holds"):
        subsets(n_items, size, np.random.default_rng(0))
    with pytest.raises(ValueError, match="a batch holds"):
        fixed(3, n_items, size)


def test_fixed_batches_go_through_the_pool_in_its_order():
    assert fixed(3, 4, 4).tolist() == [[0, 1, 2, 3]] * 3
    assert fixed(4, 5, 3).tolist() == [[0, 1, 2], [3, 4, 0], [1, 2, 3], [4, 0, 1]]
