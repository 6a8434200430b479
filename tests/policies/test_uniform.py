"""Policy uniform: one common sequence, every judge, nothing twice."""

from collections import Counter
from dataclasses import replace
from inspect import signature

import numpy as np
import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from orchestrator.core.events import Asked, CapChanged, Declined, JudgeDown, JudgeUp, Parked
from orchestrator.core.ids import JudgeIx, QNo
from orchestrator.core.money import Nano
from orchestrator.core.ports import FINISH, PAUSE
from orchestrator.core.query import Kind, Missing, MissingReason, Query
from orchestrator.core.records import Record
from orchestrator.core.seeds import Seeds
from orchestrator.testing.policies import Move, Play, PolicyContract, small_study, steps, thorough
from policies.uniform import PLUGIN, Uniform, UniformConfig


class TestUniformKeepsThePolicyContract(PolicyContract):
    def make_policy(self, study):
        return PLUGIN.build(UniformConfig(kind="uniform"), study)


class TestUniformKeepsItInComparisons(PolicyContract):
    kind = Kind.COMPARE
    n_arms = 2

    def make_policy(self, study):
        return PLUGIN.build(UniformConfig(kind="uniform"), study)


def play(study, **config):
    return Play(policy=Uniform(UniformConfig(kind="uniform", **config), study), study=study)


def questions(run, n=None):
    """Ask and answer to the end, or n questions."""
    asked = []
    while n is None or len(asked) < n:
        proposal = run.propose()
        if proposal is FINISH:
            break
        run.step(Move.ASK, 0)
        run.step(Move.ANSWER, 5)
        asked.append(proposal)
    return asked


def items(asked, n_arms=1):
    return [q.units[0] // n_arms for q in asked]


def test_every_judge_is_asked_about_every_unit_as_often_as_allowed():
    """Units, judges and repeats are crossed in full."""
    study = small_study(n_items=4, n_arms=2, repeats=(None, None))
    asked = questions(play(study, max_repeats=3))
    assert len(asked) == 8 * 2 * 3
    assert {(q.judge, q.units, q.replicate) for q in asked} == {
        (j, (u,), r) for j in range(2) for u in range(8) for r in range(3)
    }


def test_a_recorded_judge_is_not_asked_beyond_its_repeats():
    """A judge with one recorded repeat stops there, the other goes on to `max_repeats`."""
    study = small_study(n_items=2, n_arms=1, repeats=(1, None))
    asked = questions(play(study, max_repeats=3))
    assert [sum(q.judge == j for q in asked) for j in range(2)] == [2, 6]


def test_without_bounds_it_goes_on():
    """Without repeats or money to end it, there is always a next question."""
    study = small_study(n_items=2, n_arms=1, repeats=(None,))
    assert [q.replicate for q in questions(play(study), 200)][-1] == 99


def test_arms_and_judges_of_an_item_stand_together():
    """An item is finished, in all arms by all judges, before the next begins."""
    study = small_study(n_items=5, n_arms=2, repeats=(1, 1, 1))
    asked = questions(play(study))
    blocks = [set(items(asked[k : k + 6], 2)) for k in range(0, 30, 6)]
    assert all(len(block) == 1 for block in blocks)
    assert set.union(*blocks) == set(range(5))


def test_rounds_and_seeds_have_their_own_order():
    """Each repeat goes through the items in a fresh order, and so does each seed (C40)."""
    study = small_study(n_items=12, n_arms=1, repeats=(2,))
    order = items(questions(play(study)))
    other = items(questions(play(small_study(n_items=12, n_arms=1, repeats=(2,), seed=1))))
    assert order[:12] != order[12:]
    assert order != other
    assert sorted(order[:12]) == sorted(order[12:]) == list(range(12))


def test_either_arm_comes_first_about_as_often():
    """Which arm of an item is asked first is drawn for each item."""
    study = small_study(n_items=400, n_arms=2, repeats=(1,))
    asked = questions(play(study))
    first = [q.units[0] % 2 for q in asked[::2]]
    assert abs(np.mean(first) - 0.5) < 4 * 0.5 / np.sqrt(400)


@given(
    labels=st.lists(st.sampled_from("aaabc"), min_size=1, max_size=40),
    seed=st.integers(0, 1000),
)
def test_every_prefix_holds_the_strata_in_their_proportions(labels, seed):
    """After any number of items no stratum is more than a few items from its share."""
    study = small_study(n_items=len(labels), n_arms=1, repeats=(1,), strata=labels, seed=seed)
    order = items(questions(play(study)))
    n_strata = len(set(labels))
    for label in set(labels):
        seen = np.cumsum([labels[i] == label for i in order])
        share = labels.count(label) / len(labels)
        excess = seen - share * np.arange(1, len(labels) + 1)
        assert np.abs(excess).max() < n_strata


def test_strata_can_be_ignored():
    """Without interleaving a prefix can hold one stratum alone."""
    labels = ["a"] * 20 + ["b"] * 20
    runs = [
        small_study(n_items=40, n_arms=1, repeats=(1,), strata=labels, seed=s) for s in range(9)
    ]
    first = [[labels[i] for i in items(questions(play(s, strata="ignore"), 20))] for s in runs]
    assert len({f.count("a") for f in first}) > 3
    balanced = [[labels[i] for i in items(questions(play(s), 20))] for s in runs]
    assert {f.count("a") for f in balanced} <= {9, 10, 11}


def test_a_judge_that_was_down_catches_up():
    """The others go on; when it is back, it is asked until it stands where they are."""
    study = small_study(n_items=6, n_arms=1, repeats=(1, 1))
    run = play(study)
    questions(run, 2)
    run.step(Move.DOWN, 0)
    assert {q.judge for q in questions(run, 3)} == {1}
    run.step(Move.UP, 0)
    assert [q.judge for q in questions(run, 4)] == [0, 0, 0, 0]
    assert len(questions(run)) == 12 - 9


def test_a_parked_question_comes_first_and_as_it_was():
    """What came back unasked is asked again before anything new, and only then."""
    study = small_study(n_items=6, n_arms=1, repeats=(1, 1))
    run = play(study)
    for _ in range(4):
        run.step(Move.ASK, 0)
    parked = [q for q in run.open.values() if q.judge == 0]
    run.step(Move.DOWN, 0)
    run.step(Move.UP, 0)
    assert [q for q in questions(run, 3) if q.judge == 0][:2] == parked
    run.finish()


def test_it_pauses_while_its_only_judge_is_down_and_ends_when_it_is_gone():
    """Down for a time is worth waiting for, down for good is not."""
    study = small_study(n_items=2, n_arms=1, repeats=(1,))
    policy = play(study).policy
    view = play(study).view()
    policy.tell(JudgeDown(judge=JudgeIx(0), until=5.0, why="429"))
    assert policy.ask(view) is PAUSE
    policy.tell(JudgeDown(judge=JudgeIx(0), until=None, why="bad key"))
    assert policy.ask(view) is FINISH
    policy.tell(JudgeUp(judge=JudgeIx(0)))
    assert isinstance(policy.ask(view), Query)


def test_the_end_waits_for_what_may_come_back():
    """While the last question is outstanding it may still be parked, so the design isn't over."""
    study = small_study(n_items=1, n_arms=1, repeats=(1,))
    run = play(study)
    run.step(Move.ASK, 0)
    assert run.propose() is PAUSE
    query = run.open[QNo(0)]
    run.tell(Parked(q=QNo(0)))
    assert run.policy.ask(run.view()) == query


@pytest.mark.parametrize("account", ["campaign", "role:judge"])
def test_no_money_ends_it_until_the_cap_changes(account):
    """What the campaign can't hold ends the design; a new cap goes on with that question."""
    study = small_study(n_items=3, n_arms=1, repeats=(1, 1))
    run = play(study)
    questions(run, 1)
    refused = run.propose()
    run.tell(Declined(query=refused, hold=Nano(2), account=account))
    assert run.propose() is FINISH
    run.tell(CapChanged(cap=Nano(100)))
    assert run.propose() == refused


def test_a_judge_without_money_of_its_own_is_left_out():
    """The other judges go on when one judge's own budget is used up."""
    study = small_study(n_items=3, n_arms=1, repeats=(1, 1))
    run = play(study)
    refused = run.propose()
    run.tell(Declined(query=refused, hold=Nano(2), account="judge:judge0"))
    assert {q.judge for q in questions(run)} == {1}
    run.tell(CapChanged(cap=Nano(100)))
    assert run.propose() == refused


def test_a_missing_verdict_is_not_asked_for_again():
    """A refusal is data: the design goes on to the next question."""
    study = small_study(n_items=3, n_arms=1, repeats=(1,))
    run = play(study)
    run.step(Move.ASK, 0)
    run.step(Move.MISS, list(MissingReason).index(MissingReason.REFUSED))
    assert isinstance(run.told[-1].outcome, Missing)
    assert len(questions(run)) == 2


def test_the_budget_of_c01_would_ask_sixteen():
    """C01: one question at a time at $0.005 under a cap of $0.10 with holds of $0.022: 16 answers."""
    study = small_study(n_items=100, n_arms=1, repeats=(1,))
    policy = Uniform(UniformConfig(kind="uniform"), study)
    view, left, n = play(study).view(), 100_000_000, 0
    while isinstance(query := policy.ask(view), Query):
        if left < 22_000_000:
            policy.tell(Declined(query=query, hold=Nano(22_000_000), account="campaign"))
            continue
        left, n = left - 5_000_000, n + 1
        policy.tell(Asked(q=QNo(n), query=query, hold=Nano(22_000_000)))
    assert (n, left) == (16, 20_000_000)


def test_other_kinds_of_questions_are_refused():
    """Batches need a design of their own, and one arm can't be compared."""
    with pytest.raises(ValueError, match="one unit or two; the task is rate_batch"):
        Uniform(UniformConfig(kind="uniform"), small_study(kind=Kind.RATE_BATCH))
    with pytest.raises(ValueError, match="wants two arms or more"):
        Uniform(UniformConfig(kind="uniform"), small_study(kind=Kind.COMPARE, n_arms=1))


def comparisons(*, orders, **options):
    return replace(small_study(kind=Kind.COMPARE, **options), orders=orders)


@pytest.mark.parametrize(
    ("orders", "n_orders"), [("both", 2), ("balanced_random", 1), ("single", 1)]
)
def test_every_judge_compares_all_pairs_of_arms_in_every_item(orders, n_orders):
    """Three pairs of three arms, each as often as allowed, in the orders that are asked for."""
    study = comparisons(orders=orders, n_items=4, n_arms=3, repeats=(None, None))
    asked = questions(play(study, max_repeats=2))
    assert len(asked) == 4 * 3 * n_orders * 2 * 2
    pairs = Counter((q.judge, q.replicate, tuple(sorted(q.units))) for q in asked)
    assert len(pairs) == 2 * 2 * 4 * 3
    assert set(pairs.values()) == {n_orders}
    assert all(a // 3 == b // 3 and a != b for a, b in (q.units for q in asked))
    assert {q.propensity for q in asked} == {1.0}


def test_the_pairs_of_an_item_stand_together():
    """A run that ends early has whole items, but for the last one."""
    study = comparisons(orders="both", n_items=5, n_arms=3, repeats=(1,))
    asked = [q.units[0] // 3 for q in questions(play(study))]
    assert asked == [item for item in dict.fromkeys(asked) for _ in range(6)]


def test_memory_holds_one_order_a_round_in_use():
    """A long run keeps the orders of the rounds that its judges stand in, not those behind."""
    study = small_study(n_items=3, n_arms=1, repeats=(None, None))
    run = play(study)
    run.step(Move.DOWN, 0)
    questions(run, 30)
    assert set(run.policy._rounds) == {0, 10}
    run.step(Move.UP, 0)
    questions(run, 60)
    assert len(run.policy._rounds) <= 2


class CountsItsAsks(Uniform):
    n_asks = 0

    def ask(self, view):
        self.n_asks += 1
        return super().ask(view) if self.n_asks % 5 else FINISH


class AsksAgainWhatIsMissing(Uniform):
    def tell(self, event):
        super().tell(event)
        if isinstance(event, Record) and isinstance(event.outcome, Missing):
            self._panel.seats[event.query.judge].returned.append(event.query)


class BeginsAnewWhenAJudgeIsBack(Uniform):
    def tell(self, event):
        super().tell(event)
        if isinstance(event, JudgeUp):
            self._panel.seats[event.judge].at = 0


class LooksAtTheMoney(Uniform):
    def ask(self, view):
        return FINISH if view.free is not None and view.free < 3 else super().ask(view)


class AsksJudgesThatAreDown(Uniform):
    def tell(self, event):
        if not isinstance(event, JudgeDown):
            super().tell(event)


class NeverGivesUp(Uniform):
    def tell(self, event):
        if not isinstance(event, Declined):
            super().tell(event)


class DrawsFromWhatIsNotInTheLog(Uniform):
    n_made = 0

    def __init__(self, config, study):
        DrawsFromWhatIsNotInTheLog.n_made += 1
        super().__init__(config, replace(study, seeds=Seeds(self.n_made % 2)))


@pytest.mark.parametrize(
    ("broken", "contract"),
    [
        (CountsItsAsks, "test_asking_changes_nothing"),
        (AsksAgainWhatIsMissing, "test_any_order_of_events_is_survived"),
        (BeginsAnewWhenAJudgeIsBack, "test_any_order_of_events_is_survived"),
        (LooksAtTheMoney, "test_money_speaks_through_declined_alone"),
        (AsksJudgesThatAreDown, "test_any_order_of_events_is_survived"),
        (NeverGivesUp, "test_no_money_ends_the_design"),
        (DrawsFromWhatIsNotInTheLog, "test_one_seed_gives_one_design"),
        (DrawsFromWhatIsNotInTheLog, "test_a_fresh_policy_told_the_same_goes_on_the_same"),
    ],
)
def test_the_contract_finds_a_policy_that_breaks_it(broken, contract):
    """Each promise of the contract can be broken, and is seen to be."""

    class Suite(PolicyContract):
        def make_policy(self, study):
            return broken(UniformConfig(kind="uniform"), study)

    # The promise itself, without the search for the smallest example.
    promise = getattr(Suite, contract).hypothesis.inner_test
    drawn = {"data": st.data(), "script": steps, "cap": st.integers(0, 100)}
    given_drawn = given(**{k: v for k, v in drawn.items() if k in signature(promise).parameters})
    with pytest.raises(AssertionError):
        settings(thorough, phases=[Phase.generate], derandomize=True)(given_drawn(promise))(Suite())
