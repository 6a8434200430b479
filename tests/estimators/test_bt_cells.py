"""The table of comparisons: what landings one by one and all at once put in."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import chi2_contingency

from estimators.bt_cells import Cells, checked, index_names, missingness
from tests.estimators.bt_data import drawn


@given(seed=st.integers(0, 9999), is_weighted=st.booleans(), lost=st.sampled_from([0, 0.3]))
def test_landings_one_by_one_are_the_table_of_all(seed, is_weighted, lost):
    rng = np.random.default_rng(seed)
    left, right, y = drawn(rng, int(rng.integers(0, 60)))
    y[rng.random(len(y)) < lost] = np.nan
    w = rng.choice([0, 0.5, 2], len(y)) if is_weighted else np.ones(len(y))
    whole = Cells.of(checked(left, right, y, n_models=5, weights=w if is_weighted else None))
    single = Cells(5)
    for row in zip(left, right, y, w, strict=True):
        single.add(*row)
    assert single.sums == pytest.approx(whole.sums)
    assert single.squares == pytest.approx(whole.squares)
    assert (single.missing == whole.missing).all()
    assert single.n == whole.n
    assert single.ess == pytest.approx(whole.ess)
    told = ~np.isnan(y)
    assert whole.sums.sum() == pytest.approx(w[told].sum())
    assert whole.missing.sum() == (~told).sum()


def test_a_tie_is_a_beat_both_ways_and_can_be_left_out():
    cells = Cells(3)
    cells.add(0, 1, 0.5)
    cells.add(2, 1, 0, 4.0)
    assert cells.beats.tolist() == [[0, 1, 0], [1, 0, 4], [0, 0, 0]]
    assert cells.is_weighted
    assert cells.ess == 25 / 17
    without = cells.without_ties()
    assert without.beats.tolist() == [[0, 0, 0], [0, 0, 4], [0, 0, 0]]
    assert without.squares.sum() == 16
    assert cells.sums.sum() == 5


@pytest.mark.parametrize(
    "row", [(0, 0, 1), (0, 3, 1), (-1, 0, 1), (0, 1, 0.7), (0, 1, 1, -1), (0, 1, 1, np.inf)]
)
def test_a_malformed_landing_is_refused(row):
    cells = Cells(3)
    with pytest.raises(ValueError, match="must be"):
        cells.add(*row)
    assert cells.n == cells.sums.sum() == 0


def test_names_are_numbered_in_their_order():
    found = index_names(["b", "a"], ["c", "b"])
    assert found.names == ("a", "b", "c")
    assert [ids.tolist() for ids in found.ids] == [[1, 0], [2, 1]]
    assert index_names([], []).names == ()


def test_whether_pairs_lose_verdicts_alike_is_tested():
    """Timeouts that depend on the pair change which pairs are seen; weights can put that right."""
    rng = np.random.default_rng(1)
    left, right, y = drawn(rng, 3000, m=3)
    with_long = (left == 2) | (right == 2)
    lost = rng.random(3000) < np.where(with_long, 0.3, 0.02)
    y[lost] = np.nan
    found = missingness(Cells.of(checked(left, right, y, n_models=3)))
    pair = np.where(with_long, np.where((left == 0) | (right == 0), 1, 2), 0)
    table = [np.bincount(pair[at], minlength=3) for at in (lost, ~lost)]
    assert found.p == pytest.approx(chi2_contingency(table).pvalue, rel=1e-9)
    assert found.asked[0, 1] == np.count_nonzero(pair == 0)
    assert found.rate[2, 0] == found.rate[0, 2] == lost[pair == 1].mean()
    assert np.isnan(found.rate[0, 0])
    # Pairs weighted by 1/P(verdict) stand as they were asked.
    weight = 1 / found.answered(left, right)[~lost]
    assert np.bincount(pair[~lost], weight) == pytest.approx(np.bincount(pair))


def test_nothing_asked_has_no_rate():
    found = missingness(Cells(3))
    assert np.isnan(found.rate).all()
    assert np.isnan(found.p)
