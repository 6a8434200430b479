"""Policy active_pairwise: connected, drawn by logged propensities, replayed to the bit."""

from collections import Counter
from dataclasses import replace
from itertools import combinations

import numpy as np
import pytest
from scipy.special import expit

from orchestrator.core.events import Declined, JudgeDown
from orchestrator.core.ids import JudgeIx, QNo
from orchestrator.core.money import Nano
from orchestrator.core.ports import FINISH
from orchestrator.core.query import Judged, Kind, Observation, Preference, Query
from orchestrator.core.records import Record
from orchestrator.core.seeds import Seeds
from orchestrator.testing.policies import Move, Play, PolicyContract, small_study
from policies.active_pairwise import PLUGIN, ActivePairwise, ActivePairwiseConfig, propensities
from policies.pairing.posterior import Posterior


class TestActivePairwiseKeepsThePolicyContract(PolicyContract):
    kind = Kind.COMPARE
    n_arms = 3

    def make_policy(self, study):
        return PLUGIN.build(ActivePairwiseConfig(), study)


class TestItKeepsItWithOneQuestionAPair(PolicyContract):
    kind = Kind.COMPARE
    n_arms = 4

    def make_policy(self, study):
        study = replace(study, orders="balanced_random")
        return PLUGIN.build(ActivePairwiseConfig(rule="top1"), study)


def compared(n_items=50, n_arms=4, repeats=(None,), **changes):
    study = small_study(kind=Kind.COMPARE, n_items=n_items, n_arms=n_arms, repeats=repeats)
    return replace(study, **changes)


def play(study, **config):
    return Play(policy=ActivePairwise(ActivePairwiseConfig(**config), study), study=study)


def questions(run, n=None, answer=5):
    """Ask and answer, all ties, to the end or n questions."""
    asked = []
    while n is None or len(asked) < n:
        proposal = run.propose()
        if proposal is FINISH:
            break
        run.step(Move.ASK, 0)
        run.step(Move.ANSWER, answer)
        asked.append(proposal)
    return asked


def arms(query, n_arms):
    return tuple(unit % n_arms for unit in query.units)


def test_the_first_questions_connect_all_arms_each_in_two_comparisons():
    """A cycle of M pairs, whatever the seed."""
    for seed in range(20):
        study = compared(n_arms=6, orders="balanced_random", seeds=Seeds(seed))
        first = questions(play(study), 6)
        assert [q.note for q in first] == ["cycle"] * 6
        assert set(Counter(a for q in first for a in arms(q, 6)).values()) == {2}


def test_both_orders_of_a_question_follow_each_other_with_one_propensity():
    """The second question shows the same two answers the other way round."""
    asked = questions(play(compared()), 60)
    for one, other in zip(asked[::2], asked[1::2], strict=True):
        assert other == replace(one, units=one.units[::-1])


@pytest.mark.parametrize("orders", ["balanced_random", "both"])
def test_a_pairs_orders_stay_in_balance(orders):
    """They never differ by more than one."""
    asked = questions(play(compared(orders=orders)), 400)
    shown = Counter(arms(q, 4) for q in asked)
    for a, b in combinations(range(4), 2):
        assert abs(shown[a, b] - shown[b, a]) <= 1


def test_single_shows_the_arm_that_stands_first_in_the_file():
    asked = questions(play(compared(orders="single")), 100)
    assert all(a < b for a, b in (arms(q, 4) for q in asked))


def test_a_propensity_is_that_of_pair_and_judge_times_that_of_the_item():
    """It is the mixture at the state in which the question is drawn, over the number of items."""
    study = compared(n_items=7, orders="balanced_random")
    run = play(study)
    state = Posterior(4, n_judges=2, bias="order")
    for query in questions(run, 4):  # the cycle: 1 over all pairs, of which 6 there are
        assert query.propensity == pytest.approx(1 / 6 / 7, rel=1e-15)
        state.launch(*arms(query, 4))
        state.land(*arms(query, 4), 0.5)
    place = {pair: p for p, pair in enumerate(combinations(range(4), 2))}
    for _ in range(20):
        query = run.propose()
        q = propensities(state)
        assert q.sum() == pytest.approx(1, abs=1e-12)
        pair = tuple(sorted(arms(query, 4)))
        assert query.propensity == q[place[pair]] / 7
        run.step(Move.ASK, 0)
        state.launch(*arms(query, 4))


def test_frequencies_are_the_logged_propensities():
    """From one state, over seeds: chi-square of pairs."""
    counts, expected = np.zeros(6), np.zeros(6)
    place = {pair: p for p, pair in enumerate(combinations(range(4), 2))}
    for seed in range(1500):
        study = compared(n_items=3, orders="balanced_random", seeds=Seeds(seed))
        run = play(study)
        policy = run.policy
        policy._starts.clear()
        query = run.propose()
        counts[place[tuple(sorted(arms(query, 4)))]] += 1
        expected += propensities(policy._posterior)
    statistic = ((counts - expected) ** 2 / expected).sum()
    assert statistic < 20.5  # chi-square of 5 degrees, p = .001


def test_what_is_drawn_after_a_question_was_declined_has_the_logged_propensities_too():
    """Declined is a question to judge 0: all six pairs can be the next one's, not half of them."""
    counts, expected = np.zeros(6), np.zeros(6)
    place = {pair: p for p, pair in enumerate(combinations(range(4), 2))}
    for seed in range(1500):
        run = play(
            compared(n_items=3, repeats=(None, None), orders="balanced_random", seeds=Seeds(seed))
        )
        run.policy._starts.clear()
        if (first := run.propose()).judge == 1:
            continue
        run.tell(Declined(query=first, hold=Nano(1), account="judge:judge0"))
        query = run.propose()
        assert query.judge == 1
        counts[place[tuple(sorted(arms(query, 4)))]] += 1
        law = np.array([[0.0], [1.0]]) * np.ones(6)
        q = propensities(run.policy._posterior, price=[1, 1], law=law)[1]
        assert query.propensity == pytest.approx(
            q[place[tuple(sorted(arms(query, 4)))]] / 3, rel=1e-14
        )
        expected += q
    assert counts.sum() > 500
    statistic = ((counts - expected) ** 2 / expected).sum()
    assert statistic < 20.5  # chi-square of 5 degrees, p = .001


def test_no_item_comes_again_for_a_pair_before_all_have_been_asked():
    """Repeats of a question begin when its pair has gone through the items."""
    study = compared(n_items=5, n_arms=2, orders="balanced_random")
    asked = questions(play(study, max_repeats=3))
    assert len(asked) == 15
    for replicate in range(3):
        part = asked[5 * replicate : 5 * replicate + 5]
        assert {q.replicate for q in part} == {replicate}
        assert {q.units[0] // 2 for q in part} == set(range(5))


def test_a_cheaper_judge_is_asked_more_and_a_dear_one_not_never():
    """Gains count per dollar; the floor is for all."""
    study = compared(n_items=500, repeats=(None, None), orders="balanced_random")
    panel = tuple(replace(p, planning=c) for p, c in zip(study.panel, (1000, 3000), strict=True))
    asked = questions(play(replace(study, panel=panel)), 400)
    dear = np.mean([q.judge == 1 for q in asked[4:]])
    assert 0.06 < dear < 0.16  # .1 by the floor, and 1/3^4 of the rest


def test_a_judge_that_is_down_is_left_out_of_the_law():
    """All the probability is the other's."""
    study = compared(repeats=(None, None), orders="balanced_random", n_items=10)
    run = play(study)
    questions(run, 4)
    run.step(Move.DOWN, 0)
    query = run.propose()
    assert query.judge == 1
    law = np.array([[0.0], [1.0]]) * np.ones(6)
    q = propensities(run.policy._posterior, price=[1, 1], law=law)
    pair = [*combinations(range(4), 2)].index(tuple(sorted(arms(query, 4))))
    assert query.propensity == pytest.approx(q[1, pair] / 10, rel=1e-14)


def told(q, first, second, preference, judge=0):
    units = (first, second)
    query = Query(kind=Kind.COMPARE, judge=JudgeIx(judge), units=units)
    said = (Observation(unit=first, preference=preference),)
    return Record(
        q=QNo(q), query=query, outcome=Judged(observations=said, cost=Nano(0), usage=None)
    )


def test_a_newcomer_beside_known_arms_gets_the_questions():
    """Earlier judgments count from the start and cost nothing; arms that they know need no cycle."""
    rng = np.random.default_rng(5)
    theta = np.array([0.9, 0.4, 0.0, -0.4, -0.9])
    prior = []
    for q in range(600):
        a, b = rng.choice(5, 2, replace=False).tolist()
        first = rng.random() < expit(theta[a] - theta[b])
        prior.append(told(q, a, b, Preference.FIRST if first else Preference.SECOND))
    study = compared(n_items=100, n_arms=6, orders="balanced_random", prior=tuple(prior))
    asked = questions(play(study), 100)
    assert sum(q.note == "cycle" for q in asked) == 2
    assert all(5 in arms(q, 6) for q in asked[:2])
    assert np.mean([5 in arms(q, 6) for q in asked]) > 0.7


def test_what_earlier_runs_asked_counts_as_asked():
    """Of judge 0 three items of five are left the first time, and four the second."""
    prior = [told(0, 0, 1, Preference.FIRST), told(1, 3, 2, Preference.TIE)]
    turned = told(2, 1, 0, Preference.TIE)
    again = replace(turned, query=replace(turned.query, replicate=-1))
    study = compared(n_items=5, n_arms=2, repeats=(None, None), orders="balanced_random")
    study = replace(study, prior=(*prior, turned, again))
    run = play(study, max_repeats=2)
    assert run.policy.explain()["to_come"] == {"judge0": 7, "judge1": 10}
    asked = questions(run)
    own = [(q.replicate, q.units[0] // 2) for q in asked if q.judge == 0]
    assert {item for _, item in own[:3]} == {2, 3, 4}
    assert {item for _, item in own[3:]} == {1, 2, 3, 4}
    assert [replicate for replicate, _ in own] == [0] * 3 + [1] * 4
    assert len(asked) - len(own) == 10
    assert asked[0].propensity == pytest.approx(1 / 2 / (3 if asked[0].judge == 0 else 5))


@pytest.mark.parametrize("orders", ["both", "balanced_random"])
def test_a_run_on_all_that_can_be_asked_has_nothing_left(orders):
    """Its own questions, taken in as an earlier run's, leave a judge of the same name none."""
    study = compared(n_items=6, n_arms=3, orders=orders)
    first = play(study, max_repeats=1)
    assert questions(first)
    prior = tuple(event for event in first.told if isinstance(event, Record))
    assert play(replace(study, prior=prior), max_repeats=1).propose() is FINISH
    assert len(questions(play(replace(study, prior=prior), max_repeats=2))) == len(prior)


def test_earlier_verdicts_on_another_criterion_do_not_count_as_asked():
    record = told(0, 0, 1, Preference.FIRST)
    said = tuple(replace(o, criterion=1) for o in record.outcome.observations)
    prior = replace(record, outcome=replace(record.outcome, observations=said))
    study = compared(n_items=1, n_arms=2, orders="balanced_random", prior=(prior,))
    assert questions(play(study, max_repeats=1))


def test_a_judge_of_another_name_in_earlier_runs_is_none_of_the_panel():
    """Its number is behind the panel's."""
    study = compared(repeats=(None, None), prior=(told(0, 0, 1, Preference.FIRST, judge=2),))
    assert questions(play(study), 10)


def test_what_compares_nothing_is_refused():
    with pytest.raises(ValueError, match="asks compare"):
        ActivePairwise(ActivePairwiseConfig(), small_study())
    with pytest.raises(ValueError, match="there is one"):
        ActivePairwise(ActivePairwiseConfig(), compared(n_arms=1))
    study = compared(repeats=(None, None))
    panel = (replace(study.panel[0], planning=5), study.panel[1])
    with pytest.raises(ValueError, match=r"judges\[1\]\.planning_usd_per_call"):
        ActivePairwise(ActivePairwiseConfig(), replace(study, panel=panel))


def test_a_judge_that_comes_back_is_asked_its_open_questions_first():
    """What was parked counts as not in flight meanwhile."""
    study = compared(orders="balanced_random", repeats=(None, None))
    run = play(study)
    first = run.propose()
    run.step(Move.ASK, 0)
    before = run.policy._posterior.counts.sum()
    run.step(Move.DOWN, first.judge)
    assert isinstance(run.told[-2], JudgeDown)
    assert run.policy._posterior.counts.sum() == before - 2
    run.step(Move.UP, first.judge)
    assert run.propose() == first


class TestItKeepsItByCategory(PolicyContract):
    kind = Kind.COMPARE
    n_arms = 3

    def make_policy(self, study):
        frame = study.frame
        strata = [f"s{i % 2}" for i in range(frame.n_items)] if frame.n_items > 1 else None
        if strata is None:
            return PLUGIN.build(ActivePairwiseConfig(), study)
        frame = type(frame).of(frame.items, frame.arms, stratum=strata)
        return PLUGIN.build(ActivePairwiseConfig(rule="copt", rank=1), replace(study, frame=frame))


def test_by_category_a_pair_is_asked_about_items_of_the_category_that_was_drawn():
    """After the first fit the law is over pairs in categories; every item has its share."""
    strata = ["x", "y", "y"] * 40
    study = compared(n_items=120, orders="balanced_random")
    frame = type(study.frame).of(study.frame.items, study.frame.arms, stratum=strata)
    run = play(replace(study, frame=frame), rule="copt", rank=1)
    asked = questions(run, 260)
    notes = Counter(q.note for q in asked)
    assert notes["cycle"] == 4
    assert notes["copt"] > 150
    for query in asked:
        n = 40 if frame.stratum[query.units[0] // 4] == 0 else 80
        assert 0 < query.propensity * n <= 1
    by_category = Counter(int(frame.stratum[q.units[0] // 4]) for q in asked)
    assert min(by_category.values()) > 60


def test_without_categories_copt_is_refused():
    with pytest.raises(ValueError, match="copt wants two categories"):
        play(compared(), rule="copt")
