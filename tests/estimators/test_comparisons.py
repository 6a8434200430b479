"""Weights that make every pair before every judge count alike."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from estimators.comparisons import Comparisons, Told, balanced_weights
from orchestrator.core.ports import FINISH
from orchestrator.core.query import Kind
from orchestrator.testing.policies import Move, Play, small_study
from policies.active_pairwise import ActivePairwise, ActivePairwiseConfig

_row = st.tuples(
    st.sampled_from([(0, 1), (1, 0), (0, 2), (2, 0), (1, 2), (2, 1)]),
    st.integers(0, 2),
    st.floats(0.001, 1) | st.just(float("nan")),
)


def table(rows):
    pairs, judges, propensities = zip(*rows, strict=True) if rows else ((), (), ())
    left, right = np.array(pairs, dtype=np.int64).reshape(-1, 2).T
    zero = np.zeros(len(rows), dtype=np.int64)
    return Comparisons(
        left=left,
        right=right,
        outcome=np.zeros(len(rows)),
        item=zero,
        judge=np.array(judges, dtype=np.int64),
        replicate=zero,
        propensity=np.array(propensities, dtype=np.float64),
    )


def totals(of, weights):
    """Sum weights by judge and pair."""
    found = {}
    for j, a, b, w in zip(of.judge, of.left, of.right, weights, strict=True):
        key = int(j), int(min(a, b)), int(max(a, b))
        found[key] = found.get(key, 0.0) + w
    return found


@given(st.lists(_row, max_size=40))
def test_each_judge_and_pair_that_was_asked_has_the_same_total(rows):
    of = table(rows)
    weights = balanced_weights(of, 3)
    assert weights.shape == (len(rows),)
    if rows:
        assert (weights > 0).all()
        assert weights.mean() == pytest.approx(1)
        by_cell = totals(of, weights)
        assert [*by_cell.values()] == pytest.approx([len(rows) / len(by_cell)] * len(by_cell))


def test_within_a_judge_and_pair_they_are_as_one_over_propensity_and_unknown_ones_as_their_mean():
    nan = float("nan")
    of = table(
        [((0, 1), 0, 0.5), ((1, 0), 0, 0.25), ((0, 1), 0, nan), ((1, 2), 1, nan), ((2, 1), 1, nan)]
    )
    assert balanced_weights(of, 3) == pytest.approx(
        np.array([2, 4, 3, 4.5, 4.5]) / 9 * 2.5, rel=1e-14
    )


def test_where_nothing_is_out_of_reach_they_are_one_over_propensity():
    """Four questions of a law with 3/4 for one of two pairs, as often asked as it says."""
    of = table([*[((0, 1), 0, 0.75)] * 3, ((0, 2), 0, 0.25)])
    odds = 1 / of.propensity
    assert balanced_weights(of, 3) == pytest.approx(odds / odds.mean())


def test_pairs_that_have_gone_through_all_items_count_alike():
    """A whole list is asked, each pair about each item once; 1/propensity weighs pairs apart."""
    study = small_study(kind=Kind.COMPARE, n_items=30, n_arms=4, repeats=(1,))
    policy = ActivePairwise(ActivePairwiseConfig(rule="top1"), study)
    run, told = Play(policy=policy, study=study), Told(study, 0)
    while (query := run.propose()) is not FINISH:
        run.step(Move.ASK, 0)
        # The arm of the lower number is better, so that some pairs are soon known.
        is_first = query.units[0] < query.units[1]
        run.step(Move.ANSWER, 0 if is_first else 1)
        told.update(run.told[-1])
    of = told.table
    assert len(of) == 6 * 30 * 2
    by_propensity = [*totals(of, 1 / of.propensity).values()]
    assert max(by_propensity) > 1.5 * min(by_propensity)
    assert [*totals(of, balanced_weights(of, 4)).values()] == pytest.approx([60] * 6)
