"""Policy est_ivwe: a pilot, a plan of whole calls, scores that no plan has looked at."""

from collections import Counter, deque
from dataclasses import replace

import numpy as np
import pytest

from orchestrator.core.errors import BudgetTooSmall
from orchestrator.core.events import Asked, CapChanged, Declined, JudgeDown, JudgeUp, Parked
from orchestrator.core.frame import Frame
from orchestrator.core.ids import JudgeIx, QNo
from orchestrator.core.money import FREE, Nano, PriceCard
from orchestrator.core.ports import FINISH, PAUSE
from orchestrator.core.query import (
    Judged,
    Kind,
    Missing,
    MissingReason,
    Observation,
    Purpose,
    Query,
)
from orchestrator.core.records import Record
from orchestrator.core.scale import Criterion, Scale, ScaleType
from orchestrator.core.seeds import Seeds
from orchestrator.core.study import Panelist, Study
from orchestrator.testing.policies import PolicyContract
from policies.allocation import integer_plan
from policies.est_ivwe import PLUGIN, EstIvwe, EstIvweConfig


def with_money(study, cap=10_000_000):
    panel = tuple(replace(p, planning=1000 * (j + 1)) for j, p in enumerate(study.panel))
    return replace(study, cap=Nano(cap), panel=panel)


class TestEstIvweKeepsThePolicyContract(PolicyContract):
    def make_policy(self, study):
        return PLUGIN.build(EstIvweConfig(kind="est_ivwe"), with_money(study))


class TestACommonTargetKeepsThePolicyContract(PolicyContract):
    def make_policy(self, study):
        config = EstIvweConfig(
            kind="est_ivwe", target="common", mode="plain", on_small_budget="degrade"
        )
        return PLUGIN.build(config, with_money(study, 60_000))


class TestAPopulationTargetKeepsThePolicyContract(PolicyContract):
    def make_policy(self, study):
        config = EstIvweConfig(kind="est_ivwe", target="population", on_small_budget="degrade")
        return PLUGIN.build(config, with_money(study, 30_000))


# --- a market of judges ------------------------------------------------------------------------


def a_study(cap, prices, *, n_items=10, n_arms=1, span=1.0, seed=0, repeats=None, free=()):
    return Study(
        kind=Kind.RATE,
        frame=Frame.of([f"i{i}" for i in range(n_items)], [f"a{a}" for a in range(n_arms)]),
        panel=tuple(
            Panelist(
                name=f"j{j}",
                card=FREE if j in free else PriceCard(per_call=1000 * price),
                planning=price,
                repeats=repeats,
            )
            for j, price in enumerate(prices)
        ),
        criteria=(Criterion(name="s", scale=Scale(type=ScaleType.FLOAT, low=0, high=span)),),
        seeds=Seeds(seed),
        cap=Nano(cap),
    )


class Market:
    """Plays engine and judges: a ledger with holds, answers by (unit, judge, repeat), any order."""

    def __init__(self, study, sd=0.1, *, hold=1.0, cost_sd=0.0, missing=0.0, seed=0, **config):
        self.study = study
        self.policy = EstIvwe(EstIvweConfig(kind="est_ivwe", **config), study)
        shape = (study.frame.n_units, len(study.panel))
        self.sd = np.broadcast_to(sd, shape)
        self.hold, self.cost_sd, self.missing, self.seed = hold, cost_sd, missing, seed
        self.cap, self.settled, self.held = study.cap, 0, 0
        self.open = {}
        self.asked, self.outcomes, self.most_committed = [], [], 0
        self.down = set()

    def ceiling(self, query):
        return int(np.ceil(self.study.panel[query.judge].planning * self.hold))

    def ask(self):
        """Ask once; give the proposal, or FINISH where the last one was declined."""
        proposal = self.policy.ask(None)
        if not isinstance(proposal, Query):
            return proposal
        assert proposal.judge not in self.down
        hold = self.ceiling(proposal)
        if self.settled + self.held + hold > self.cap:
            if self.open:
                return PAUSE
            self.policy.tell(Declined(query=proposal, hold=Nano(hold), account="campaign"))
            return self.ask()
        q = QNo(len(self.asked))
        self.asked.append(proposal)
        self.open[q] = proposal
        self.held += hold
        self.most_committed = max(self.most_committed, self.settled + self.held)
        self.policy.tell(Asked(q=q, query=proposal, hold=Nano(hold)))
        return proposal

    def tell(self, q):
        query = self.open.pop(q)
        outcome = self.answer(query)
        self.held -= self.ceiling(query)
        self.settled += outcome.cost
        self.outcomes.append((query, outcome))
        self.policy.tell(Record(q=q, query=query, outcome=outcome))

    def answer(self, query):
        (unit,) = query.units
        rng = np.random.default_rng([self.seed, unit, query.judge, query.replicate])
        price = self.study.panel[query.judge].planning
        cost = price
        if self.cost_sd:
            cost = int(price * min(self.hold, rng.lognormal(0, self.cost_sd)))
        if rng.random() < self.missing:
            return Missing(
                reason=MissingReason.REFUSED, cost=Nano(cost), uncertain=Nano(0), attempts=1
            )
        value = 0.5 + 0.01 * unit + self.sd[unit, query.judge] * rng.standard_normal()
        return Judged(
            observations=(Observation(unit=unit, value=value),), cost=Nano(cost), usage=None
        )

    def run(self, *, window=8, order=None, watch=None):
        """Ask until the window is full, tell one; `order` is a generator for telling out of turn."""
        while True:
            while len(self.open) < window:
                proposal = self.ask()
                if not isinstance(proposal, Query):
                    break
            if not self.open:
                assert proposal is FINISH
                return self
            waiting = list(self.open)
            self.tell(waiting[0] if order is None else waiting[order.integers(len(waiting))])
            if watch is not None:
                watch(self)

    def counts(self, purpose):
        """Count valid answers by unit and judge."""
        table = np.zeros((self.study.frame.n_units, len(self.study.panel)), int)
        for query, outcome in self.outcomes:
            if query.purpose is purpose and isinstance(outcome, Judged):
                table[query.units[0], query.judge] += 1
        return table

    def spent(self, purpose):
        return sum(o.cost for q, o in self.outcomes if q.purpose is purpose)


# --- the pilot ---------------------------------------------------------------------------------


def test_the_pilot_is_charged():
    """Pitfall 12: two items at prices 1 and 2, five repeats: 30 of 100 are gone, 70 may be spent."""
    market = Market(a_study(100, [1, 2], n_items=2), target="common", pilot_repeats=5).run()
    assert market.spent(Purpose.PILOT) == 30
    assert (market.counts(Purpose.PILOT) == 5).all()
    assert 70 - 2 < market.spent(Purpose.POLICY) <= 70


@pytest.mark.parametrize(
    ("mode", "sweeps", "repeats"),
    [("shrink", 20, 4), ("shrink", 100, 10), ("plain", 20, 7), ("plain", 100, 22), ("plain", 5, 2)],
)
def test_the_pilot_takes_the_measured_default_of_repeats(mode, sweeps, repeats):
    """sqrt(sweeps) where variances are shrunk, sweeps^(2/3) where not, at most half of them."""
    study = a_study(sweeps * 10 * 3, [1, 2])
    market = Market(study, target="common", mode=mode)
    assert market.policy.explain()["pilot_repeats"] == repeats


def test_theory_asks_for_more_repeats_and_a_wider_margin():
    """N0 = sweeps^(2/3) ln(2KJ/delta)^(1/3), tau = R sqrt(2 ln(2KJ/delta)/(N0 - 1))."""
    study = a_study(1000 * 10 * 3, [1, 2])
    market = Market(study, target="common", mode="plain", pilot_repeats="theory", tau="theory")
    n0 = round(1000 ** (2 / 3) * np.log(2 * 20 / 0.05) ** (1 / 3))
    assert market.policy.explain()["pilot_repeats"] == n0
    market.run(window=64)
    assert market.policy.explain()["tau"] == pytest.approx(
        np.sqrt(2 * np.log(2 * 20 / 0.05) / (n0 - 1))
    )


def test_a_small_budget_is_refused_with_one_that_suffices():
    """B7: below four sweeps; the budget that is named is enough."""
    with pytest.raises(BudgetTooSmall) as caught:
        Market(a_study(119, [1, 2]), target="common")
    assert caught.value.sufficient == 120
    assert "$0.00000012" in str(caught.value)
    market = Market(a_study(120, [1, 2]), target="common").run()
    assert (market.counts(Purpose.POLICY).sum(axis=1) >= 1).all()
    assert market.most_committed <= 120
    assert not market.policy.explain()["degraded"]


@pytest.mark.parametrize("target", ["panel", "common", "population"])
@pytest.mark.parametrize("sweeps", [0.4, 0.9, 1.1, 1.7, 3.0, 3.9])
def test_a_degraded_run_says_so_and_never_passes_the_cap(target, sweeps):
    """B7: every unit gets a score, the step is named, the cap holds."""
    study = a_study(int(sweeps * 40 * 7), [1, 2, 4], n_items=40)
    market = Market(study, target=target, on_small_budget="degrade").run()
    assert market.most_committed <= study.cap
    assert (market.counts(Purpose.POLICY).sum(axis=1) >= 1).all()
    said = market.policy.explain()
    assert said["degraded"]
    assert any("degraded" in sentence for sentence in said["says"])


def test_no_budget_is_enough_for_units_without_a_score():
    with pytest.raises(BudgetTooSmall) as caught:
        Market(a_study(39, [1, 2], n_items=40), target="common", on_small_budget="degrade")
    assert caught.value.sufficient == 40


def test_a_panel_below_twenty_sweeps_explores_judges_on_a_part_of_the_items():
    """Judge-level noise, counts as weight times noise over root of price."""
    study = a_study(10 * 200 * 6, [1, 5], n_items=200)
    market = Market(study, sd=[0.1, 0.3]).run()
    explored = (market.counts(Purpose.PILOT) > 0).any(axis=1).sum()
    assert explored == 10
    counts = market.counts(Purpose.POLICY)
    assert (counts >= 1).all()
    ratio = counts[:, 1].sum() / counts[:, 0].sum()
    assert ratio == pytest.approx(0.3 / 0.1 / np.sqrt(5), rel=0.35)


def test_a_panel_weight_of_zero_leaves_a_judge_out():
    market = Market(a_study(3000, [1, 2, 1]), weights={"j0": 1, "j1": 1}).run()
    assert (
        market.counts(Purpose.PILOT)[:, 2].sum() == market.counts(Purpose.POLICY)[:, 2].sum() == 0
    )


# --- the plan ----------------------------------------------------------------------------------


def plan_by_hand(market, money, **kwargs):
    """Plan from the pilot's answers alone, as one batch."""
    policy = market.policy
    variance, _ = policy._variances()
    rows = np.array(policy._order)
    counts = np.empty((len(rows), len(market.study.panel)), int)
    counts[rows] = integer_plan(
        variance[rows],
        np.array([p.planning for p in market.study.panel]),
        money,
        2.0,
        **kwargs,
    )
    return counts


@pytest.mark.parametrize("target", ["panel", "common"])
@pytest.mark.parametrize("mode", ["shrink", "plain"])
def test_any_order_of_answers_gives_the_batch_plan(target, mode):
    """A4: streaming asks early and regrets nothing; the counts are those of the whole pilot."""
    study = a_study(40 * 20 * 4, [1, 3], n_items=20)
    sd = np.random.default_rng(1).uniform(0.02, 0.3, (20, 2))
    seen = []
    for seed in range(6):
        order = np.random.default_rng(seed) if seed else None
        window = [8, 16, 40, 100, 8, 64][seed]
        market = Market(study, sd=sd, target=target, mode=mode).run(window=window, order=order)
        spent = market.spent(Purpose.PILOT)
        expected = plan_by_hand(market, study.cap - spent, target=target)
        counts = market.counts(Purpose.POLICY)
        seen.append(counts)
        assert (counts == expected).all()
    assert all((counts == seen[0]).all() for counts in seen)


def test_targets_only_grow_and_the_ledger_holds_in_200_schedules():
    """A4: failures, repeats of them, and costs that vary; settled + held never passes the cap."""
    streamed = 0
    for seed in range(200):
        rng = np.random.default_rng(seed)
        n_items, prices = int(rng.integers(2, 8)), rng.integers(50, 200, 3).tolist()
        target = ["panel", "common", "population"][seed % 3]
        study = a_study(
            int(sum(prices) * n_items * rng.uniform(4, 30)), prices, n_items=n_items, seed=seed
        )
        last = {}

        def watch(market, last=last):
            wanted = market.policy._issued()
            assert (wanted >= last.get("issued", 0) - last.get("failed", 0)).all()
            if market.policy._wanted is not None:
                assert (market.policy._wanted >= wanted).all() or market.policy._is_broke

        market = Market(
            study,
            sd=0.2,
            hold=1.8,
            cost_sd=0.3,
            missing=float(rng.choice([0, 0.1, 0.4])),
            seed=seed,
            target=target,
            p=["inf", 1, 2][seed % 3],
        )
        market.run(window=int(rng.integers(1, 60)), order=rng, watch=watch)
        assert market.most_committed <= study.cap
        assert Counter(market.asked).most_common(1)[0][1] == 1
        first_score = next(
            (i for i, q in enumerate(market.asked) if q.purpose is Purpose.POLICY), None
        )
        streamed += any(q.purpose is Purpose.PILOT for q in market.asked[first_score:])
    assert streamed > 0


def test_scores_are_asked_while_the_last_of_the_pilot_is_awaited():
    """No barrier stops the workers."""
    market = Market(a_study(40 * 50 * 3, [1, 2], n_items=50), target="common")
    early = []

    def watch(market):
        if market.policy._unfinished:
            early.append(sum(q.purpose is Purpose.POLICY for q in market.open.values()))

    market.run(window=30, watch=watch)
    assert max(early) >= 20


def test_a_judge_that_is_better_for_its_price_gets_the_money():
    """C50: sd 1.0 at 1 cent against .6 at 5 cents; then the first one three times as dear."""
    for prices, winner in (([10, 50], 0), ([30, 50], 1)):
        study = a_study(100 * 60 * sum(prices), prices, n_items=60, span=10.0)
        shares = {}
        for shrinkage, mode in (("eb", "shrink"), (3.0, "shrink"), (3.0, "plain")):
            market = Market(
                study, sd=[1.0, 0.6], target="common", mode=mode, shrinkage=shrinkage
            ).run(window=64)
            money = market.counts(Purpose.POLICY).sum(axis=0) * prices
            shares[shrinkage, mode] = money[winner] / money.sum()
            said = market.policy.explain()
            assert (market.counts(Purpose.PILOT) == said["pilot_repeats"]).all()
        assert shares["eb", "shrink"] >= 0.9
        assert shares[3.0, "shrink"] > 0.5
        assert shares[3.0, "plain"] > 0.5


def test_both_arms_of_an_item_get_the_same_judge_and_counts():
    """A judge's offset is then in both, and leaves their difference."""
    study = a_study(30 * 12 * 2 * 6, [1, 2, 3], n_items=12, n_arms=2)
    sd = np.random.default_rng(0).uniform(0.05, 0.3, (24, 3))
    counts = Market(study, sd=sd, target="common").run().counts(Purpose.POLICY)
    assert (counts[0::2] == counts[1::2]).all()
    assert ((counts > 0).sum(axis=1) == 1).all()


def test_what_cheaper_answers_left_is_spent_once_more():
    """One further round, with the money that the pilot's prices kept back; then it is over."""
    study = a_study(4000, [10, 20])
    market = Market(study, target="common")

    def answer(query, usual=market.answer):
        said = usual(query)
        is_later = query.purpose is Purpose.POLICY
        return replace(said, cost=Nano(said.cost // 2)) if is_later else said

    market.answer = answer
    market.run()
    assert market.policy._is_topped_up
    planned_first = (study.cap - market.spent(Purpose.PILOT)) / 2
    assert market.spent(Purpose.POLICY) == pytest.approx(1.5 * planned_first, rel=0.05)


def test_a_recording_is_not_asked_beyond_its_repeats():
    market = Market(a_study(100_000, [1, 2], repeats=8)).run()
    asked = Counter((q.judge, q.units) for q in market.asked)
    assert max(asked.values()) == 8
    assert max(q.replicate for q in market.asked) == 7


def test_a_free_judge_counts_at_its_shadow_price():
    """Nothing is booked, but planning would otherwise give it everything without end."""
    market = Market(a_study(2000, [10, 1], free={1}), target="common").run()
    assert market.counts(Purpose.POLICY).sum() * 1 <= 2000
    with pytest.raises(ValueError, match="j1 is free; wants its planning_usd_per_call"):
        Market(
            replace(
                a_study(2000, [10, 1]),
                panel=(Panelist(name="j0", card=FREE, planning=10), Panelist(name="j1", card=FREE)),
            )
        )


# --- labels ------------------------------------------------------------------------------------


def labelled(study, *units):
    labels = np.full((study.frame.n_units, 1), np.nan)
    labels[list(units)] = 0.5
    return replace(study, labels=labels)


def pilot_units(market):
    """List the units of the pilot in the order in which they were first asked about."""
    return list(dict.fromkeys(q.units[0] for q in market.asked if q.purpose is Purpose.PILOT))


@pytest.mark.parametrize("target", ["panel", "common"])
def test_labelled_units_are_explored_first_and_by_every_judge(target):
    """In a random order of their own; the others follow in the order that they had without labels."""
    study = a_study(30 * 40 * 6, [1, 2, 3], n_items=40)
    people = (3, 17, 22, 31, 38)
    given = Market(labelled(study, *people), target=target, calibration="anchors").run()
    plain = Market(study, target=target).run()
    order = pilot_units(given)
    assert set(order[:5]) == set(people)
    assert order[:5] != list(people)
    assert order[5:] == [u for u in pilot_units(plain) if u not in people]
    assert (given.counts(Purpose.PILOT)[list(people)] >= 2).all()


@pytest.mark.parametrize("n_labelled", [8, 50, 100])
def test_a_pilot_of_judges_takes_in_all_labelled_units(n_labelled):
    """With fewer repeats where the money asks for it, at least two, and half the money at most."""
    study = a_study(8 * 100 * 3, [1, 2], n_items=100)
    market = Market(labelled(study, *range(n_labelled)), calibration="anchors").run()
    pilot = market.counts(Purpose.PILOT)
    assert (pilot[:n_labelled] >= 2).all()
    assert market.spent(Purpose.PILOT) <= study.cap / 2
    assert market.spent(Purpose.POLICY) > 0
    assert (market.counts(Purpose.POLICY) >= 1).all()


def test_an_item_with_a_labelled_arm_is_explored_in_all_arms():
    study = a_study(30 * 40 * 3, [1, 2], n_items=20, n_arms=2)
    market = Market(labelled(study, 7, 30), target="common", calibration="anchors").run()
    assert set(pilot_units(market)[:4]) == {6, 7, 30, 31}


def test_labels_change_nothing_without_anchors_and_anchors_want_them():
    study = a_study(30 * 20 * 3, [1, 2], n_items=20)
    assert Market(labelled(study, 4)).run().asked == Market(study).run().asked
    with pytest.raises(ValueError, match="there are no labels"):
        Market(study, calibration="anchors")


# --- failures ----------------------------------------------------------------------------------


def test_a_failure_is_asked_again_and_never_imputed():
    """Pitfall 13: a cell goes on until its answers are there, or three questions more."""
    market = Market(a_study(6000, [1, 2], n_items=20), missing=0.3, target="common").run()
    repeats = market.policy.explain()["pilot_repeats"]
    valid = market.counts(Purpose.PILOT)
    asked = Counter((q.units[0], q.judge) for q in market.asked if q.purpose is Purpose.PILOT)
    for (unit, judge), n in asked.items():
        assert valid[unit, judge] == repeats or n == repeats + 3
        assert n <= repeats + 3


def test_a_judge_without_a_valid_answer_in_the_pilot_is_asked_no_more():
    """The others' scores don't wait for it, and the policy says so."""
    market = Market(a_study(4000, [1, 1], n_items=20))

    def answer(query, usual=market.answer):
        if query.judge == 1:
            return Missing(
                reason=MissingReason.REFUSED, cost=Nano(1), uncertain=Nano(0), attempts=1
            )
        return usual(query)

    market.answer = answer
    market.run()
    assert sum(q.judge == 1 and q.purpose is Purpose.POLICY for q in market.asked) == 0
    assert (market.counts(Purpose.POLICY)[:, 0] >= 1).all()
    assert any("No valid answer came from j1" in said for said in market.policy.explain()["says"])


def test_an_unknown_variance_is_the_worst_that_the_scale_allows():
    """Pitfall 13: with no two valid answers a cell is taken for the noisiest."""
    market = Market(a_study(600, [1, 1], n_items=4), target="common")

    def answer(query, usual=market.answer):
        if query.units == (0,) and query.judge == 0:
            return Missing(
                reason=MissingReason.REFUSED, cost=Nano(1), uncertain=Nano(0), attempts=1
            )
        return usual(query)

    market.answer = answer
    market.run()
    variance, _ = market.policy._variances()
    assert variance[0, 0] == 0.25
    assert (variance[1:] < 0.1).all()
    assert market.counts(Purpose.POLICY)[0].tolist()[0] == 0


def test_sums_of_far_values_keep_their_digits():
    """Pitfall 18: 1e8 + [.1, .2, .3] has variance .01."""
    market = Market(a_study(10**9, [10], n_items=1, span=2e8))
    policy = market.policy
    for value in (1e8 + 0.1, 1e8 + 0.2, 1e8 + 0.3):
        market.ask()
        q, query = market.open.popitem()
        said = Judged(observations=(Observation(unit=0, value=value),), cost=Nano(1), usage=None)
        policy.tell(Record(q=q, query=query, outcome=said))
    assert policy._squares[0] / 2 == pytest.approx(0.01, rel=1e-6)


@pytest.mark.parametrize("target", ["panel", "common"])
def test_a_judge_lost_after_the_pilot_is_planned_around(target):
    """Its answers stay; what it still owed goes to the others, from the pilot's data alone."""
    study = a_study(40 * 12 * 4, [1, 1, 2], n_items=12)
    market = Market(study, sd=[0.05, 0.1, 0.1], target=target)
    lost = []

    def watch(market):
        if not lost and market.counts(Purpose.POLICY).sum() > 60:
            lost.append(market.counts(Purpose.POLICY)[:, 0].copy())
            market.down.add(0)
            market.policy.tell(JudgeDown(judge=JudgeIx(0), until=None, why="test"))
            for q in [q for q, query in market.open.items() if query.judge == 0]:
                market.held -= market.ceiling(market.open.pop(q))
                market.policy.tell(Parked(q=q))

    market.run(watch=watch)
    counts = market.counts(Purpose.POLICY)
    assert (counts[:, 0] == lost[0]).all()
    assert (counts[:, 1:].sum(axis=1) >= 1).all()
    assert study.cap - market.settled <= 4


def test_a_judge_that_comes_back_is_planned_with_again():
    market = Market(a_study(40 * 12 * 2, [1, 1], n_items=12))
    for _ in range(10):
        market.ask()
    market.down.add(0)
    market.policy.tell(JudgeDown(judge=JudgeIx(0), until=None, why="test"))
    for q in [q for q, query in market.open.items() if query.judge == 0]:
        market.held -= market.ceiling(market.open.pop(q))
        market.policy.tell(Parked(q=q))
    for q in list(market.open):
        market.tell(q)
    market.down.clear()
    market.policy.tell(JudgeUp(judge=JudgeIx(0)))
    market.run()
    assert (market.counts(Purpose.POLICY) >= 1).all()
    assert (market.counts(Purpose.PILOT) == market.policy.explain()["pilot_repeats"]).all()


def test_more_money_is_planned_from_the_same_pilot():
    market = Market(a_study(1200, [1, 2]), target="common").run()
    before = market.counts(Purpose.POLICY)
    market.cap = 2400
    market.policy.tell(CapChanged(cap=Nano(2400)))
    market.run()
    after = market.counts(Purpose.POLICY)
    assert (after >= before).all()
    assert 2400 - 4 <= market.settled <= 2400
    assert market.spent(Purpose.PILOT) == sum(
        o.cost for q, o in deque(market.outcomes) if q.purpose is Purpose.PILOT
    )


def test_money_that_ends_early_cuts_the_tail_of_a_random_order():
    """Answers dearer than the pilot's leave some cells short: those that the order put last."""
    study = a_study(3000, [10, 20], n_items=20)
    market = Market(study, hold=2.0, target="common")

    def answer(query, usual=market.answer):
        said = usual(query)
        return replace(said, cost=Nano(2 * said.cost)) if query.purpose is Purpose.POLICY else said

    market.answer = answer
    market.run()
    assert market.most_committed <= study.cap
    counts = market.counts(Purpose.POLICY)
    assert (counts.sum(axis=1) >= 1).all(), "first answers come before all others"
    assert counts.sum() < market.policy._wanted.sum()
