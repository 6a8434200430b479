"""Estimates of any comparisons: they never fail, and what they say can be read."""

from dataclasses import replace

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from estimators.bradley_terry import BradleyTerry, BradleyTerryConfig
from estimators.bt_tensor import BtTensor, BtTensorConfig
from estimators.comparisons import Comparisons
from orchestrator.core.frame import Frame
from orchestrator.core.money import FREE
from orchestrator.core.query import Kind
from orchestrator.core.scale import Criterion, Scale, ScaleType
from orchestrator.core.seeds import Seeds
from orchestrator.core.study import Panelist, Study
from orchestrator.testing.estimators import check_is_readable

N_ARMS, N_ITEMS = 3, 8
STUDY = Study(
    kind=Kind.COMPARE,
    frame=Frame.of(
        [f"i{i}" for i in range(N_ITEMS)],
        [f"m{a}" for a in range(N_ARMS)],
        stratum=[f"k{i % 2}" for i in range(N_ITEMS)],
    ),
    panel=tuple(Panelist(name=f"j{j}", card=FREE) for j in range(2)),
    criteria=(Criterion(name="c", scale=Scale(type=ScaleType.PREFERENCE, ties=True)),),
    seeds=Seeds(0),
)


@st.composite
def boards(draw):
    """Draw few comparisons or many, of all kinds of outcomes or one alone."""
    n = draw(st.sampled_from([1, 2, 5, 20, 120]))
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    outcomes = draw(st.sampled_from([[0, 0.5, 1], [0.5], [1], [0.5, 1], [0, 1]]))
    left = rng.integers(N_ARMS, size=n)
    right = (left + 1 + rng.integers(N_ARMS - 1, size=n)) % N_ARMS
    outcome = rng.choice(outcomes, size=n).astype(float)
    if draw(st.booleans()):  # the first arm wins whatever it is in
        outcome = np.where(left == 0, 1.0, np.where(right == 0, 0.0, outcome))
    return Comparisons(
        left=left,
        right=right,
        outcome=outcome,
        item=rng.integers(draw(st.sampled_from([1, 2, N_ITEMS])), size=n),
        judge=rng.integers(2, size=n),
        replicate=np.zeros(n, dtype=np.int64),
        propensity=rng.choice(draw(st.sampled_from([[1.0], [0.1, 0.7], [np.nan]])), size=n),
    )


def read(estimator, board):
    estimator.take(board, np.zeros((N_ARMS, N_ARMS), dtype=np.int64))
    for estimate in estimator.estimate():
        if estimate.names:
            check_is_readable(estimate)


@settings(deadline=None, max_examples=80)
@given(
    boards(),
    st.fixed_dictionaries(
        {
            "ties": st.sampled_from(["half", "davidson", "rao_kupper", "drop"]),
            "check": st.sampled_from([None, "anytime"]),
            "misspecification": st.sampled_from(["unexpected", "expected"]),
            "judge_effects": st.sampled_from(["none", "bias", "discrimination"]),
            "contrast": st.sampled_from([None, {"arm": "m0", "baseline": "m1"}]),
        }
    ),
)
def test_any_comparisons_have_strengths_that_can_be_read(board, settings):
    """No interval of zero width, no number where nothing is known, no exception."""
    read(BradleyTerry(BradleyTerryConfig(name="r", **settings), STUDY), board)


@settings(deadline=None, max_examples=40)
@given(boards(), st.sampled_from(["efficient", "plug_in", "isotropic", "forward"]))
def test_any_comparisons_have_a_tensor_or_a_reason(board, method):
    of = replace(STUDY)
    read(BtTensor(BtTensorConfig(name="t", context="k", method=method, rank=1), of), board)
