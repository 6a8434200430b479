"""Policy subsample: an order fixed by the seed, in which answers have no say."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from estimators.benchmark_order import allocation_of, draw_chances, item_orders
from orchestrator.core.frame import Frame
from orchestrator.core.query import Kind
from orchestrator.core.seeds import Seeds
from orchestrator.testing.policies import Move, Play, PolicyContract, small_study
from policies.subsample import PLUGIN, Subsample, SubsampleConfig


class SubsampleContract(PolicyContract):
    entry = SubsampleConfig()

    def make_policy(self, study):
        return PLUGIN.build(self.entry, with_strata(study))


class TestSimpleKeepsThePolicyContract(SubsampleContract):
    kind = Kind.CHECK


class TestPairedPartKeepsIt(SubsampleContract):
    n_arms = 2
    entry = SubsampleConfig(design="paired", strata="equal", max_items=2)


class TestRepeatsKeepIt(SubsampleContract):
    entry = SubsampleConfig(repeats=2)

    def make_policy(self, study):
        unlimited = tuple(replace(p, repeats=None) for p in study.panel)
        return super().make_policy(replace(study, panel=unlimited))


class TestDrawsByAColumnKeepIt(SubsampleContract):
    entry = SubsampleConfig(draw_by="promise")

    def make_policy(self, study):
        promise = 1.0 + np.arange(study.frame.n_units) % 3
        return super().make_policy(replace(study, covariates={"promise": promise}))


def with_strata(study):
    """Give a study without strata one that holds all items."""
    frame = study.frame
    return study if frame.strata else replace(study, frame=replace(frame, strata=("all",)))


def asked(study, **config):
    """Units in the order in which they are asked, all answered."""
    run = Play(policy=Subsample(SubsampleConfig(**config), study), study=study)
    run.finish()
    return np.array([event.query.units[0] for event in run.told if hasattr(event, "hold")])


def test_each_unit_is_asked_once_by_each_judge():
    """Repeats that a judge could give are not used."""
    units = asked(small_study(n_items=5, n_arms=2, repeats=(3, None)))
    assert sorted(units) == sorted([*range(10)] * 2)


def test_paired_arms_of_an_item_stand_together():
    """Each item is asked of all arms before the next one."""
    units = asked(small_study(n_items=20, n_arms=3, repeats=(1,)), design="paired")
    items = units.reshape(20, 3) // 3
    assert (items == items[:, :1]).all()
    assert sorted(items[:, 0]) == [*range(20)]
    assert (units.reshape(20, 3) % 3 == [0, 1, 2]).all()


def test_simple_arms_have_orders_of_their_own_and_keep_in_step():
    """After each place all arms have as many items, and not the same ones."""
    units = asked(small_study(n_items=20, n_arms=2, repeats=(1,)), design="simple")
    assert (units.reshape(20, 2) % 2 == [0, 1]).all()
    first, second = (units // 2).reshape(20, 2).T
    assert (first != second).any()
    assert sorted(first) == sorted(second) == [*range(20)]


def test_a_part_is_the_beginning_of_the_whole():
    """`max_items` cuts the end of the order, for each arm."""
    study = small_study(n_items=9, n_arms=2, repeats=(1,))
    assert list(asked(study, max_items=4)) == list(asked(study))[:8]


def queries(study, **config):
    """All that is asked, in order."""
    run = Play(policy=Subsample(SubsampleConfig(**config), study), study=study)
    run.finish()
    return [event.query for event in run.told if hasattr(event, "hold")]


def test_repeats_of_a_unit_follow_each_other():
    """The units of single questions, each so many times, counted; answers decide on none of them."""
    study = small_study(n_items=6, n_arms=2, repeats=(3,))
    once = list(asked(study, max_items=4))
    said = queries(study, max_items=4, repeats=3)
    assert [q.units[0] for q in said] == list(np.repeat(once, 3))
    assert [q.replicate for q in said] == [0, 1, 2] * 8
    assert {q.propensity for q in said} == {1.0}


def test_a_judge_with_fewer_repeats_is_refused():
    """Its items would weigh judges differently; one that can't answer at all is left out as before."""
    with pytest.raises(ValueError, match="repeats: judge1 can answer 2 times at most"):
        Subsample(SubsampleConfig(repeats=3), small_study(repeats=(3, 2)))
    assert len(queries(small_study(n_items=2, n_arms=1, repeats=(3, 0)), repeats=3)) == 6


@pytest.mark.parametrize("design", ["simple", "paired"])
def test_propensities_are_the_chances_of_the_draw(design):
    """Each question carries that of its item at its place, and the order is that of the column."""
    study = small_study(n_items=8, n_arms=2, repeats=(2,))
    study = replace(study, covariates={"promise": np.repeat(np.arange(1.0, 9.0), 2)})
    orders = item_orders(study, design, None, "promise")
    chances = draw_chances(study, orders, "promise")
    said = queries(study, design=design, draw_by="promise", max_items=5, repeats=2)
    places = [(place, arm) for place in range(5) for arm in range(2) for _ in range(2)]
    assert [q.units[0] for q in said] == [orders[arm, place] * 2 + arm for place, arm in places]
    assert [q.propensity for q in said] == [chances.own[arm, place] for place, arm in places]


def test_answers_have_no_say():
    """Whatever comes back, or doesn't, the questions are the same."""
    study = small_study(n_items=6, n_arms=2, repeats=(1,))

    def proposals(moves):
        run = Play(policy=Subsample(SubsampleConfig(), study), study=study)
        for move, number in moves:
            run.step(Move.ASK, 0)
            run.step(move, number)
        return [query.units for _, query in run.proposals]

    right = proposals([(Move.ANSWER, 9)] * 8)
    assert right == proposals([(Move.ANSWER, 1)] * 8) == proposals([(Move.MISS, 3)] * 8)


def test_what_came_back_keeps_its_place():
    """A parked question is asked again before anything new."""
    study = small_study(n_items=6, n_arms=1, repeats=(1,))
    run = Play(policy=Subsample(SubsampleConfig(), study), study=study)
    for move in (Move.ASK, Move.ASK, Move.DOWN, Move.UP, Move.ASK, Move.ASK, Move.ASK):
        run.step(move, 0)
    told = [event.query.units[0] for event in run.told if hasattr(event, "hold")]
    assert told == [*asked(study)[:2], *asked(study)[:3]]


@given(
    labels=st.lists(st.sampled_from("aaaabbc"), min_size=1, max_size=40),
    seed=st.integers(0, 1000),
)
def test_strata_take_turns(labels, seed):
    """Proportional: a stratum's share is off by an item at most. Equal: one of each in turn."""
    study = small_study(n_items=len(labels), n_arms=1, repeats=(1,), strata=labels, seed=seed)
    sizes = np.bincount(study.frame.stratum)
    counts = np.cumsum(
        np.eye(len(sizes))[study.frame.stratum[asked(study, design="stratified")]], axis=0
    )
    places = np.arange(1, len(labels) + 1)
    # Each count is within an item of its own mark, and the marks add up within the strata's number.
    assert (np.abs(counts - np.outer(places, sizes / len(labels))) < len(sizes)).all()
    counts = np.cumsum(
        np.eye(len(sizes))[study.frame.stratum[asked(study, design="macro")]], axis=0
    )
    lead = counts.max(axis=1, keepdims=True)
    assert ((counts >= lead - 1) | (counts == sizes)).all()


def test_within_strata_every_item_is_as_likely_at_a_place():
    """Over many seeds each item of a stratum comes first about as often."""
    labels = [*"aaabbbbb"]
    first = np.zeros(8)
    for seed in range(1200):
        study = small_study(n_items=8, n_arms=1, strata=labels, seed=seed)
        order = item_orders(study, "stratified", "proportional")[0]
        first[order[np.argmax(study.frame.stratum[order] == 1)]] += 1
    assert first[:3].sum() == 0
    assert np.abs(first[3:] - 240).max() < 4 * np.sqrt(240)


def test_seeds_have_their_own_order():
    """The seed alone fixes the order."""
    study = small_study(n_items=12, n_arms=1, repeats=(1,))
    other = replace(study, seeds=Seeds(1))
    assert list(asked(study)) != list(asked(other))
    assert list(asked(study)) == list(asked(study))


def test_it_says_what_it_does_and_what_is_to_come():
    """`to_come` falls with each question, and rises again with one that came back."""
    study = small_study(n_items=6, n_arms=2, repeats=(1,))
    run = Play(policy=Subsample(SubsampleConfig(design="paired", max_items=4), study), study=study)
    assert run.policy.explain()["to_come"] == {"judge0": 8}
    run.step(Move.ASK, 0)
    said = run.policy.explain()
    assert (said["asked"], said["to_come"]) == ({"judge0": 1}, {"judge0": 7})
    assert said["says"] == [
        "each judge is asked about up to 4 of 6 items in an order fixed by the seed, the same for all arms"
    ]
    run.step(Move.DOWN, 0)
    assert run.policy.explain()["to_come"] == {"judge0": 8}
    drawn = small_study(n_items=6, n_arms=2, repeats=(2,))
    drawn = replace(drawn, covariates={"promise": np.ones(12)})
    policy = Subsample(SubsampleConfig(draw_by="promise", repeats=2), drawn)
    (said,) = policy.explain()["says"]
    assert "6 of 6 items 2 times each in an order fixed" in said
    assert "by the seed and drawn by promise, each arm" in said
    assert policy.explain()["to_come"] == {"judge0": 24}


@pytest.mark.parametrize(
    ("config", "message"),
    [
        ({"design": "simple", "strata": "equal"}, "strata: the simple design"),
        ({"design": "macro", "strata": "proportional"}, "strata: macro"),
        ({"design": "stratified"}, "design: stratified by strata wants strata"),
        ({"design": "paired", "strata": "equal"}, "design: paired by strata wants strata"),
    ],
)
def test_designs_that_contradict_their_strata_are_refused(config, message):
    """Nothing is drawn by strata that are not there."""
    with pytest.raises(ValueError, match=message):
        Subsample(SubsampleConfig(**config), small_study())


def test_comparisons_are_refused():
    """It asks about one unit."""
    with pytest.raises(ValueError, match="subsample asks about one unit"):
        Subsample(SubsampleConfig(), small_study(kind=Kind.COMPARE))


def test_the_allocation_is_the_designs():
    """Stratified goes by proportions unless said, macro in turn, paired as said."""
    study = with_strata(replace(small_study(), frame=Frame.of(["a"], stratum=["s"])))
    assert allocation_of("simple", None, study) is None
    assert allocation_of("stratified", None, study) == "proportional"
    assert allocation_of("stratified", "equal", study) == "equal"
    assert allocation_of("macro", None, study) == "equal"
    assert allocation_of("paired", None, study) is None
    assert allocation_of("paired", "proportional", study) == "proportional"
