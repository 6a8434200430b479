import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.core.seeds import Seeds
from policies.layouts.balance import is_connected, verify
from policies.layouts.design import REMAINDER, design


def lay_out(layout="williams", n_batches=20, *, n_items=6, size=None, seed=7, judge=0, groups=None):
    return design(
        layout,
        n_batches,
        n_items=n_items,
        size=n_items if size is None else size,
        seeds=Seeds(seed),
        judge=judge,
        groups=groups,
    )


def test_the_layout_of_a_seed_is_forever():
    """What is drawn is part of every fingerprint."""
    assert lay_out("shuffle", 2, n_items=4).rows.tolist() == [[2, 0, 3, 1], [2, 1, 0, 3]]
    assert lay_out("williams", 5, n_items=4).rows.tolist() == [
        [1, 2, 0, 3],
        [3, 0, 2, 1],
        [2, 3, 1, 0],
        [0, 1, 3, 2],
        [0, 1, 2, 3],
    ]
    cut = lay_out("shuffle", 3, n_items=5, size=3)
    assert cut.rows.tolist() == [[1, 3, 2], [4, 2, 0], [4, 3, 0]]


def test_blocks_are_whole_and_the_remainder_is_tagged():
    """20 batches of six items: three blocks of six, and two shuffled batches that are said to be."""
    laid = lay_out()
    assert laid.block.tolist() == [0] * 6 + [1] * 6 + [2] * 6 + [REMAINDER] * 2
    for number in range(3):
        assert verify(laid.rows[laid.block == number]).is_even
    assert (np.sort(laid.rows, axis=1) == np.arange(6)).all()


def test_a_budget_below_one_block_is_all_remainder():
    laid = lay_out("williams", 9, n_items=5)
    assert (laid.block == REMAINDER).all()
    assert (np.sort(laid.rows, axis=1) == np.arange(5)).all()


def test_each_judge_has_a_layout_of_its_own():
    """C36: each judge gets its own seeded relabelling."""
    for n_batches in (5, 18):  # all remainder, and all blocks
        rows = [lay_out(n_batches=n_batches, judge=judge).rows for judge in range(3)]
        assert len({laid.tobytes() for laid in rows}) == 3
        assert (lay_out(n_batches=n_batches, judge=1).rows == rows[1]).all()
        assert not (lay_out(n_batches=n_batches, seed=8).rows == rows[0]).all()


@given(
    st.sampled_from(["shuffle", "williams", "fixed"]),
    st.integers(2, 9),
    st.integers(2, 9),
    st.integers(0, 40),
    st.integers(0, 40),
)
def test_more_batches_only_add_blocks(layout, n_items, size, n_fewer, n_more):
    """What a larger budget adds does not change what a smaller one asks, remainders apart."""
    size = min(size, n_items)
    few, many = (lay_out(layout, n, n_items=n_items, size=size) for n in sorted((n_fewer, n_more)))
    assert len(few.rows) == min(n_fewer, n_more)
    whole = few.block != REMAINDER
    n_whole = int(whole.sum())
    assert whole[:n_whole].all()
    assert (few.rows[:n_whole] == many.rows[:n_whole]).all()
    assert (few.block[:n_whole] == many.block[:n_whole]).all()


def test_williams_on_subsets_balances_each_subset_and_connects_all():
    """Each subset has a block of its own; after the round every item was shown equally often."""
    groups = np.arange(12) % 2
    laid = lay_out("williams", 24, n_items=12, size=4, groups=groups)
    for number in range(6):
        rows = laid.rows[laid.block == number]
        (items,) = {tuple(sorted(row)) for row in rows.tolist()}
        assert verify(np.searchsorted(items, rows)).is_even
        assert (groups[list(items)] == 0).sum() == 2
    assert set(np.bincount(laid.rows.ravel())) == {8}
    assert is_connected(laid.rows, 12)


def test_a_round_of_subsets_is_a_block():
    laid = lay_out("shuffle", 11, n_items=6, size=4)
    assert laid.block.tolist() == [0] * 3 + [1] * 3 + [2] * 3 + [REMAINDER] * 2
    assert set(np.bincount(laid.rows[:9].ravel())) == {6}


def test_fixed_shows_one_order():
    laid = lay_out("fixed", 3, n_items=4)
    assert laid.rows.tolist() == [[0, 1, 2, 3]] * 3
    assert laid.block.tolist() == [0, 1, 2]


@pytest.mark.parametrize("layout", ["shuffle", "williams", "fixed"])
def test_no_batches_are_no_batches(layout):
    laid = lay_out(layout, 0, n_items=5, size=3)
    assert laid.rows.shape == (0, 3)
    assert laid.block.shape == (0,)
