"""The order of units: seeded, arms together, strata in proportion, one for all policies."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.core.ports import FINISH
from orchestrator.testing.policies import Move, Play, small_study
from policies.order import unit_order
from policies.two_phase import TwoPhase, TwoPhaseConfig
from policies.uniform import Uniform, UniformConfig

labelled = st.lists(st.sampled_from("aaabc"), min_size=1, max_size=40)


def test_the_order_of_a_seed_is_forever():
    """What is drawn is part of every fingerprint."""
    study = small_study(n_items=4, n_arms=2, strata="abab", seed=7)
    assert unit_order(study, 0, strata="proportional") == [0, 1, 7, 6, 4, 5, 2, 3]
    assert unit_order(study, 0, strata="ignore") == [0, 1, 5, 4, 6, 7, 3, 2]


@given(labels=labelled, n_arms=st.integers(1, 3), seed=st.integers(0, 99))
def test_every_unit_stands_once_and_arms_together(labels, n_arms, seed):
    study = small_study(n_items=len(labels), n_arms=n_arms, strata=labels, seed=seed)
    for strata in ("proportional", "ignore"):
        order = unit_order(study, 0, strata=strata)
        assert sorted(order) == list(range(study.frame.n_units))
        items = np.array(order).reshape(-1, n_arms) // n_arms
        assert (items == items[:, :1]).all()


@given(labels=labelled, seed=st.integers(0, 99))
def test_a_stratum_stands_evenly(labels, seed):
    """In every prefix a stratum holds its share, give or take one item for each stratum."""
    study = small_study(n_items=len(labels), n_arms=1, strata=labels, seed=seed)
    order = unit_order(study, 0, strata="proportional")
    for label in set(labels):
        seen = np.cumsum([labels[i] == label for i in order])
        share = labels.count(label) / len(labels)
        assert np.abs(seen - share * np.arange(1, len(labels) + 1)).max() < len(set(labels))


def test_items_and_arms_are_drawn_alike():
    """Each item, and each of its arms, comes first equally often."""
    orders = [
        unit_order(small_study(n_items=4, n_arms=2, seed=s), 0, strata="proportional")
        for s in range(2000)
    ]
    counts = np.bincount([order[0] for order in orders], minlength=8)
    assert np.abs(counts - 250).max() < 4 * np.sqrt(250)


@pytest.mark.parametrize(
    "policy",
    [
        lambda study: Uniform(UniformConfig(kind="uniform"), study),
        lambda study: TwoPhase(TwoPhaseConfig(kind="two_phase", anchor="judge0"), study),
    ],
)
def test_policies_share_it(policy):
    """One judge is asked in this order, whichever the policy."""
    study = small_study(n_items=9, n_arms=2, repeats=(1,), strata="abcabcabc", seed=3)
    run = Play(policy=policy(study), study=study)
    asked = []
    while (query := run.propose()) is not FINISH:
        asked.append(query.units[0])
        run.step(Move.ASK, 0)
        run.step(Move.ANSWER, 1)
    assert asked == unit_order(study, 0, strata="proportional")
