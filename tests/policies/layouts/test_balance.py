import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from policies.layouts.balance import NOTHING, components, is_connected, verify
from policies.layouts.williams import williams_block

batches = st.integers(2, 7).flatmap(
    lambda n: st.lists(st.lists(st.integers(-1, n - 1), min_size=3, max_size=3), max_size=8).map(
        lambda rows: (n, np.array(rows, dtype=np.int64).reshape(-1, 3))
    )
)


@given(batches)
def test_counts_are_those_of_a_plain_loop(given_batches):
    n_items, rows = given_batches
    shown = verify(rows, n_items)
    at_slot = np.zeros((n_items, 3), dtype=int)
    followed = np.zeros((n_items, n_items), dtype=int)
    n_repeated = 0
    for row in rows.tolist():
        items = [item for item in row if item != NOTHING]
        n_repeated += len(items) - len(set(items))
        for slot, item in enumerate(row):
            if item != NOTHING:
                at_slot[item, slot] += 1
                if slot and row[slot - 1] != NOTHING:
                    followed[row[slot - 1], item] += 1
    assert (shown.at_slot == at_slot).all()
    assert (shown.followed == followed).all()
    assert shown.n_repeated == n_repeated
    assert shown.n_self == np.trace(followed)


def test_a_cyclic_square_is_not_balanced():
    """Every item stands once in every slot, and yet some pairs stand side by side three times."""
    shown = verify((np.arange(4) + np.arange(4)[:, None]) % 4)
    assert shown.per_slot == (1, 1)
    assert shown.per_pair == (0, 3)
    assert not shown.is_even


def test_columns_carry_the_balance():
    """Rows may be put in any order; two columns may not change places."""
    rows = williams_block(6, np.random.default_rng(0))
    assert verify(rows[[3, 1, 0, 5, 4, 2]]).is_even
    assert verify(rows[:, [1, 0, 2, 3, 4, 5]]).per_pair == (0, 3)


def test_losses_show():
    """C36: what was lost is missing in its slot and at its neighbours."""
    rows = williams_block(4, np.random.default_rng(2))
    lost = rows.copy()
    lost[1, 2] = NOTHING
    whole, shown = verify(rows), verify(lost)
    assert shown.per_slot == (0, 1)
    assert shown.at_slot.sum() == whole.at_slot.sum() - 1
    assert shown.followed.sum() == whole.followed.sum() - 2
    assert not shown.is_even


def test_an_item_beside_itself_is_seen():
    shown = verify(np.array([[0, 0, 1], [1, 0, 1]]), 2)
    assert (shown.n_self, shown.n_repeated) == (1, 2)
    assert not shown.is_even


def test_one_item_has_no_pairs():
    assert verify(np.array([[0], [0]])).per_pair == (0, 0)


@given(batches)
def test_components_are_what_spreading_from_each_item_reaches(given_batches):
    n_items, rows = given_batches
    found = components(rows, n_items)
    for item in range(n_items):
        reached = {item}
        while True:
            shared = [set(row) - {NOTHING} for row in rows.tolist() if reached & set(row)]
            if (wider := reached.union(*shared)) == reached:
                break
            reached = wider
        assert {*np.flatnonzero(found == found[item]).tolist()} == reached
    assert is_connected(rows, n_items) == (len(set(found.tolist())) == 1)
    firsts = [int(np.flatnonzero(found == label)[0]) for label in range(found.max() + 1)]
    assert firsts == sorted(firsts)


def test_batches_that_share_no_item_are_apart():
    rows = np.array([[0, 1], [2, 3], [1, 0]])
    assert components(rows, 5).tolist() == [0, 0, 1, 1, 2]
    assert not is_connected(rows, 4)
    assert is_connected(np.array([[0, 1], [2, 3], [1, 3]]), 4)


def test_a_long_chain_is_one_component():
    rows = np.column_stack([np.arange(20_000), np.arange(1, 20_001)])
    assert is_connected(rows[::-1], 20_001)


@pytest.mark.parametrize("n_items", [1, 3])
def test_without_batches_nothing_is_connected(n_items):
    found = components(np.empty((0, 2), dtype=np.int64), n_items)
    assert found.tolist() == list(range(n_items))
