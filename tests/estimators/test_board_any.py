"""The audit of any board: it never fails, and its ends are in order."""

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from estimators.board_audit import audit
from estimators.comparisons import Comparisons
from orchestrator.report.board_words import sentence, table

votes = st.lists(
    st.tuples(
        st.integers(0, 3),  # left
        st.integers(1, 3),  # steps from there to right
        st.sampled_from([0.0, 0.5, 1.0]),
        st.integers(0, 12),  # item
        st.integers(0, 2),  # judge
    ),
    max_size=40,
)


@settings(deadline=None, max_examples=60)
@given(votes, st.booleans(), st.booleans())
def test_any_votes_have_an_audit(rows, is_watched, is_turned):
    """Ties alone, one winner, a judge that only sees the place, models that never meet."""
    if is_turned:  # every question once more, with the other answer first and the same place ahead
        rows = rows + [((a + d) % 4, 4 - d, y, item, judge) for a, d, y, item, judge in rows]
    left, step, outcome, item, judge = (
        np.array([row[k] for row in rows], dtype=float if k == 2 else np.int64) for k in range(5)
    )
    board = Comparisons(
        left=left,
        right=(left + step) % 4,
        outcome=outcome,
        item=item,
        judge=judge,
        replicate=np.zeros_like(left),
        propensity=np.full(len(rows), np.nan),
    )
    found = audit(
        board,
        n_models=4,
        rng=np.random.default_rng(0),
        cluster=item,
        price=10,
        is_watched=is_watched,
    ).as_json()
    for row in found["findings"]:
        assert row["lower"] is None or row["upper"] is None or row["lower"] <= row["upper"]
        assert sentence(row, list("abcd"), list("xyz"), by=found["by"])
    if rows:
        table(found)
