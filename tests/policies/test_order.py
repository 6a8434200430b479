"""The order of units: seeded, arms together, strata in proportion, one for all policies."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.core.ports import FINISH
from orchestrator.core.query import Kind
from orchestrator.testing.policies import Move, Play, small_study
from policies.order import pair_order, unit_order
from policies.two_phase import TwoPhase, TwoPhaseConfig
from policies.uniform import Uniform, UniformConfig

ORDERS = ("both", "balanced_random", "single")
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


def compared(orders, *, n_items=6, n_arms=2, seed=3, strata=None):
    study = small_study(kind=Kind.COMPARE, n_items=n_items, n_arms=n_arms, seed=seed, strata=strata)
    return replace(study, orders=orders)


@given(labels=labelled, seed=st.integers(0, 99), orders=st.sampled_from(ORDERS))
def test_pairs_follow_the_order_of_items(labels, seed, orders):
    """Items are drawn as those of units are, so a change of task moves no stratum."""
    study = compared(orders, n_items=len(labels), n_arms=3, seed=seed, strata=labels)
    pairs = pair_order(study, 0, strata="proportional")
    units = unit_order(study, 0, strata="proportional")
    items = [first // 3 for first, _ in pairs]
    assert list(dict.fromkeys(items)) == list(dict.fromkeys(unit // 3 for unit in units))


def test_both_orders_are_neighbours():
    """Each pair is asked, and then turned."""
    pairs = pair_order(compared("both", n_arms=3), 0, strata="ignore")
    assert len(pairs) == len(set(pairs)) == 6 * 3 * 2
    assert pairs[1::2] == [(second, first) for first, second in pairs[::2]]


def test_a_single_order_is_that_of_the_file():
    """The arm that stands first in the file is shown first, always."""
    pairs = pair_order(compared("single", n_arms=4), 0, strata="ignore")
    assert len(pairs) == 6 * 6
    assert all(first < second for first, second in pairs)


@given(seed=st.integers(0, 999), n_items=st.integers(1, 7))
def test_random_orders_are_balanced_within_each_two_items(seed, n_items):
    """A coin decides for an item, pair by pair, and the next one has the other order."""
    study = compared("balanced_random", n_items=n_items, n_arms=3, seed=seed)
    pairs = pair_order(study, 0, strata="ignore")
    turned = {}
    for first, second in pairs:
        turned.setdefault(first // 3, {})[frozenset((first % 3, second % 3))] = first > second
    by_item = list(turned.values())
    for one, other in zip(by_item[::2], by_item[1::2], strict=False):
        assert one == {pair: not is_turned for pair, is_turned in other.items()}


def test_coins_are_fair_and_drawn_for_each_pair():
    """Over seeds each order of each pair comes first equally often, and pairs are independent."""
    n, seen = 2000, np.zeros((2, 2))
    for seed in range(n):
        study = compared("balanced_random", n_items=1, n_arms=3, seed=seed)
        turned = {
            frozenset(pair): pair[0] > pair[1] for pair in pair_order(study, 0, strata="ignore")
        }
        seen[int(turned[frozenset((0, 1))]), int(turned[frozenset((0, 2))])] += 1
    assert np.abs(seen - n / 4).max() < 4 * np.sqrt(n / 4)


def test_rounds_toss_anew():
    """A repeat is a round with items, pairs and coins of its own."""
    study = compared("balanced_random", n_items=20)
    assert pair_order(study, 0, strata="ignore") == pair_order(study, 0, strata="ignore")
    assert pair_order(study, 0, strata="ignore") != pair_order(study, 1, strata="ignore")


@pytest.mark.parametrize(
    ("orders", "pairs"),
    [
        ("balanced_random", [(0, 1), (0, 2), (1, 2), (5, 3), (5, 4), (4, 3)]),
        ("single", [(0, 1), (0, 2), (1, 2), (4, 5), (3, 4), (3, 5)]),
    ],
)
def test_the_pairs_of_a_seed_are_forever(orders, pairs):
    """What is drawn is part of every fingerprint."""
    study = compared(orders, n_items=2, n_arms=3, seed=7)
    assert pair_order(study, 0, strata="proportional") == pairs
