"""Policy two_phase: a pilot, helpers if they pay, and the anchor on a random part."""

from collections import deque
from time import perf_counter

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.build import build
from orchestrator.config import load_campaign
from orchestrator.core.budget import BudgetView
from orchestrator.core.errors import InvalidCampaign
from orchestrator.core.events import (
    Asked,
    CapChanged,
    Declined,
    JudgeDown,
    JudgeUp,
    PriceChanged,
)
from orchestrator.core.frame import Frame
from orchestrator.core.ids import JudgeIx, QNo
from orchestrator.core.money import FREE, Nano
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
from orchestrator.testing.policies import PolicyContract, small_study
from policies.order import unit_order
from policies.two_phase import (
    PLUGIN,
    Split,
    TwoPhase,
    TwoPhaseConfig,
    _Plan,
    best_split,
    needed_correlation,
)

ANCHOR, MID, SMALL = range(3)
PRICES = (4000, 800, 200)
VIEW = BudgetView(
    cap=None, settled=Nano(0), uncertain=Nano(0), held=Nano(0), price=lambda _: Nano(0)
)


def config(**keys):
    return TwoPhaseConfig(**{"kind": "two_phase", "anchor": "judge0"} | keys)


class TestTwoPhaseKeepsThePolicyContract(PolicyContract):
    def make_policy(self, study):
        return PLUGIN.build(config(pilot_items=2), study)


class Insists(TwoPhase):
    """Takes all helpers that are there and anchors every other item, whatever the pilot says."""

    def _planned(self, live):
        helpers = tuple(seat.judge for seat in live)
        n = self._frame.n_items
        return _Plan(helpers=helpers, why="it insists", split=Split((n + 1) / 2, n, 1.0))


class TestTwoPhaseWithHelpersKeepsThePolicyContract(PolicyContract):
    def make_policy(self, study):
        return Insists(config(pilot_items=1), study)


# --- a market ----------------------------------------------------------------------------------


class Market:
    """Judges with known scores (n_judges, n_units) and prices; plays the engine's part in order.

    `window` questions are asked and not told at most; `reserve` times the price is held for each.
    """

    def __init__(self, scores, *, n_arms=1, cap=None, strata=None, prices=PRICES, seed=0, **keys):
        self.scores, self.prices, self.cap = np.asarray(scores), list(prices), cap
        n_judges, n_units = self.scores.shape
        self.study = Study(
            kind=Kind.RATE,
            frame=Frame.of(
                [str(i) for i in range(n_units // n_arms)],
                [f"arm{a}" for a in range(n_arms)],
                stratum=strata,
            ),
            panel=tuple(
                Panelist(name=f"judge{j}", card=FREE, planning=prices[j]) for j in range(n_judges)
            ),
            criteria=(Criterion(name="score", scale=Scale(type=ScaleType.FLOAT, high=1)),),
            seeds=Seeds(seed),
            cap=None if cap is None else Nano(cap),
        )
        self.policy = TwoPhase(config(**keys), self.study)
        self.asked, self.open, self.spent, self.missing = [], deque(), 0, set()

    def outcome(self, query):
        price = self.prices[query.judge]
        if (query.judge, query.units[0]) in self.missing:
            return Missing(
                reason=MissingReason.REFUSED, cost=Nano(price), uncertain=Nano(0), attempts=1
            )
        value = float(self.scores[query.judge, query.units[0]])
        said = (Observation(unit=query.units[0], value=value),)
        return Judged(observations=said, cost=Nano(price), usage=None)

    def tell_oldest(self):
        q, query = self.open.popleft()
        outcome = self.outcome(query)
        self.spent += outcome.cost
        self.policy.tell(Record(q=q, query=query, outcome=outcome))

    def run(self, n=None, window=8):
        """Go on until the design or the money ends, or n questions are asked in all."""
        while n is None or len(self.asked) < n:
            proposal = self.policy.ask(VIEW)
            if isinstance(proposal, Query) and len(self.open) < window:
                held = sum(self.prices[query.judge] for _, query in self.open)
                if self.cap is None or self.spent + held + self.prices[proposal.judge] <= self.cap:
                    q = QNo(len(self.asked))
                    self.policy.tell(Asked(q=q, query=proposal, hold=Nano(1)))
                    self.asked.append(proposal)
                    self.open.append((q, proposal))
                elif self.open:
                    self.tell_oldest()
                else:
                    self.policy.tell(Declined(query=proposal, hold=Nano(1), account="campaign"))
            elif self.open:
                self.tell_oldest()
            else:
                assert proposal is FINISH
                break
        return self

    def items(self, judge, purpose=None):
        n_arms = self.study.frame.n_arms
        asked = [
            q for q in self.asked if q.judge == judge and (purpose is None or q.purpose is purpose)
        ]
        return list(dict.fromkeys(q.units[0] // n_arms for q in asked))

    @property
    def order(self):
        """Items in the order of the seed."""
        units = unit_order(self.study, 0, strata="proportional")
        return [u // self.study.frame.n_arms for u in units[:: self.study.frame.n_arms]]


def judges(*correlations, n=1000, seed=0, arms=1):
    """Draw the scores of an anchor and of helpers that correlate with it as given."""
    rng = np.random.default_rng(seed)
    y = rng.normal(size=n * arms)
    helpers = [r * y + np.sqrt(1 - r * r) * rng.normal(size=n * arms) for r in correlations]
    return np.array([y, *helpers])


def money(n_anchor, n_small, n_mid=0):
    return n_anchor * PRICES[ANCHOR] + n_mid * PRICES[MID] + n_small * PRICES[SMALL]


# --- the rule and the split --------------------------------------------------------------------


def test_the_bars_at_the_recorded_prices():
    """2√r/(1 + r) at 0.000858 and 0.000281 against 0.003332 is .81 and .54."""
    assert needed_correlation(0.858 / 3.332) == pytest.approx(0.807, abs=5e-4)
    assert needed_correlation(0.281 / 3.332) == pytest.approx(0.536, abs=5e-4)
    assert needed_correlation(0) == 0
    assert needed_correlation(1) == needed_correlation(2) == 1


@given(
    r2=st.floats(0.01, 0.99),
    price=st.floats(0.01, 0.9),
)
def test_a_helper_pays_above_the_bar_and_only_there(r2, price):
    """With items without end the best split beats the anchor alone exactly above it."""
    anchor = best_split(0.0, 1.0, 0.0, 1000.0, n_items=10**9)
    split = best_split(r2, 1.0, price, 1000.0, n_items=10**9)
    bar = needed_correlation(price)
    if abs(np.sqrt(r2) - bar) > 1e-3:
        assert (split.variance < anchor.variance * (1 - 1e-12)) == (np.sqrt(r2) > bar)


@given(
    r2=st.floats(0.01, 0.99),
    price=st.floats(0.01, 2),
    purse=st.floats(0, 300),
    n_items=st.integers(20, 400),
    pilot=st.integers(1, 20),
)
def test_the_split_is_the_best_there_is(r2, price, purse, n_items, pilot):
    """No pair of numbers within money, pilot and items has a smaller variance."""
    split = best_split(
        r2,
        1.0,
        price,
        purse,
        n_items=n_items,
        n_anchored=pilot,
        helped=price * pilot,
        n_reached=pilot,
    )
    assert pilot <= split.n_anchor <= split.n_items * (1 + 1e-9) <= n_items * (1 + 1e-9)
    cost = split.n_anchor - pilot + price * (split.n_items - pilot)
    assert cost <= purse * (1 + 1e-9) + 1e-6
    wide = np.linspace(pilot, n_items, 500)
    n = np.minimum(wide, purse + pilot - price * (wide - pilot))
    possible = n >= pilot
    variances = (1 - r2) / n[possible] + r2 / wide[possible]
    assert split.variance <= variances.min() * (1 + 1e-9)


def test_what_helpers_can_not_catch_up_with_is_no_option():
    """A helper that would have to rate what was passed, and has no money for it, is not chosen."""
    split = best_split(0.9, 1.0, 0.5, 10.0, n_items=100, n_anchored=20, helped=5.0, n_reached=60)
    assert split.variance == np.inf


# --- the pilot and its decision ----------------------------------------------------------------


def test_the_pilot_asks_everybody_about_the_first_items():
    """All judges, all arms, one repeat, marked as pilot with its share of the items."""
    market = Market(judges(0.9, 0.5, n=100, arms=2), n_arms=2, cap=10**6, pilot_items=20)
    market.run(20 * 2 * 3)
    assert {(q.purpose, q.propensity, q.replicate) for q in market.asked} == {
        (Purpose.PILOT, 0.2, 0)
    }
    for judge in range(3):
        assert market.items(judge) == market.order[:20]


def test_the_pilots_answers_are_waited_for():
    """Nothing else is asked before all of them are told."""
    market = Market(judges(0.9, 0.5), cap=10**6, pilot_items=5).run(15, window=99)
    assert market.policy.ask(VIEW) is PAUSE
    while market.open:
        assert market.policy.ask(VIEW) is PAUSE
        market.tell_oldest()
    assert isinstance(market.policy.ask(VIEW), Query)


def test_a_helper_below_the_bar_is_not_asked_again():
    """Neither correlates as its price demands, so the anchor goes on alone, and that is said."""
    market = Market(judges(0.5, 0.2), cap=money(300, 60, 60)).run()
    said = market.policy.explain()
    assert said["phase"] == "anchor_alone"
    assert said["why"] == "no helper correlates with the anchor as its price demands"
    assert [t["pays"] for t in said["tried"]] == [False, False]
    assert [t["needed"] for t in said["tried"]] == pytest.approx([0.745, 0.426], abs=1e-3)
    assert [len(market.items(j)) for j in range(3)] == [300, 60, 60]
    assert market.items(ANCHOR) == market.order[:300]
    assert {q.propensity for q in market.asked} == {0.06, 1.0}


def test_a_helper_above_the_bar_rates_what_the_anchor_can_not():
    """The figures of the pilot are those of its scores, and the plan is kept to."""
    scores = judges(0.5, 0.9)
    market = Market(scores, cap=money(200, 1000, 60)).run()
    said, pilot = market.policy.explain(), market.order[:60]
    seen = np.corrcoef(scores[:, pilot])[0, 1:]
    assert [t["correlation"] for t in said["tried"]] == pytest.approx(seen)
    assert [t["n"] for t in said["tried"]] == [60, 60]
    assert said["phase"] == "two_phase"
    assert said["helpers"] == ["judge2"]
    r2 = 1 - (1 - seen[1] ** 2) * 59 / 58
    assert said["r2"] == pytest.approx(r2)
    assert said["planned"] == {"anchor_items": 200, "helper_items": 1000}
    alone = 1 / (200 + 940 * PRICES[SMALL] / PRICES[ANCHOR])
    gain = 1 - np.sqrt(((1 - r2) / 200 + r2 / 1000) / alone)
    assert said["predicted_gain"] == pytest.approx(gain)
    assert len(market.items(SMALL)) == 1000
    assert len(market.items(ANCHOR)) == 200
    assert len(market.items(MID)) == 60
    assert market.spent <= market.cap


def test_two_helpers_are_taken_where_both_add():
    """Helpers that see different things are added one at a time while the variance falls."""
    rng = np.random.default_rng(3)
    one, two = rng.normal(size=(2, 2000))
    scores = [one + two + 0.3 * rng.normal(size=2000), one, two]
    market = Market(
        scores, cap=money(250, 2000, 2000), prices=(4000, 200, 200), pilot_items=120
    ).run()
    assert market.policy.explain()["helpers"] == ["judge1", "judge2"]
    copies = Market(
        [scores[0], one + 0.7 * two, one + 0.7 * two], cap=10**6, prices=(4000, 200, 200)
    ).run()
    assert len(copies.policy.explain()["helpers"]) == 1


def test_a_paired_contrast_is_tried_in_its_differences():
    """Items differ much and arms little: scores agree, differences don't."""
    rng = np.random.default_rng(4)
    item = np.repeat(rng.normal(size=600), 2)
    scores = [item + 0.3 * rng.normal(size=1200) for _ in range(3)]
    contrast = {"arm": "arm1", "baseline": "arm0"}
    paired = Market(scores, n_arms=2, cap=10**6, contrast=contrast).run(400).policy.explain()
    means = Market(scores, n_arms=2, cap=10**6).run(400).policy.explain()
    apart = Market(scores, n_arms=2, cap=10**6, contrast=contrast | {"paired": False}).run(400)
    assert paired["helpers"] == []
    assert [t["n"] for t in paired["tried"]] == [60, 60]
    assert all(abs(t["correlation"]) < 0.3 for t in paired["tried"])
    assert means["helpers"]
    assert [t["n"] for t in means["tried"]] == [120, 120]
    assert apart.policy.explain()["tried"] == means["tried"]


def test_arms_that_differ_are_no_correlation():
    """What all judges agree on is which arm is better; within arms they agree on nothing."""
    rng = np.random.default_rng(5)
    scores = np.tile([0.0, 10.0], 600) + rng.normal(size=(3, 1200))
    said = Market(scores, n_arms=2, cap=10**6).run(400).policy.explain()
    assert all(abs(t["correlation"]) < 0.4 for t in said["tried"])
    assert said["helpers"] == []


def test_a_helper_may_see_it_the_other_way_round():
    """What counts is how much a helper says, whatever the sign."""
    scores = judges(0.1, -0.9)
    assert Market(scores, cap=money(200, 1000, 60)).run(300).policy.explain()["helpers"] == [
        "judge2"
    ]


def test_the_anchor_rates_everything_if_the_money_lets_it():
    """Then no helper can add anything, however good and cheap it is."""
    market = Market(judges(0.95, 0.95, n=300), cap=money(300, 60, 60)).run()
    said = market.policy.explain()
    assert said["why"] == "the anchor rates every item: the money lets it"
    assert [len(market.items(j)) for j in range(3)] == [300, 60, 60]
    no_cap = Market(judges(0.95, 0.95, n=300)).run()
    assert no_cap.policy.explain()["why"] == "the anchor rates every item: there is no cap"
    assert len(no_cap.items(ANCHOR)) == 300


def test_only_listed_helpers_are_tried():
    market = Market(judges(0.9, 0.9), cap=10**6, helpers=("judge2",)).run(300)
    assert market.items(MID) == []
    assert [t["judge"] for t in market.policy.explain()["tried"]] == ["judge2"]


def test_without_candidates_there_is_no_pilot():
    """With nobody to try the anchor starts at once, for good."""
    market = Market(judges(0.9, 0.9), cap=10**6, helpers=()).run()
    assert {q.purpose for q in market.asked} == {Purpose.POLICY}
    assert market.policy.explain()["why"] == "there is no helper"
    assert market.items(ANCHOR) == market.order[:250]


def test_prices_are_what_calls_cost_and_free_judges_have_their_shadow_price():
    """The pilot's mean cost decides, not what was expected; a free judge costs what the user says."""
    scores = judges(0.6, 0.6)
    market = Market(scores, cap=10**6)
    market.prices = [4000, 3000, 0]
    said = market.run(300).policy.explain()
    assert [t["price_ratio"] for t in said["tried"]] == [0.75, PRICES[SMALL] / 4000]


def test_missing_answers_leave_the_pilot_smaller():
    """A failure is no score: the correlation is that of items which both judges rated."""
    scores = judges(0.9, 0.9)
    market = Market(scores, cap=10**6)
    market.missing = {(SMALL, i) for i in market.order[:10]} | {(ANCHOR, market.order[11])}
    said = market.run(300).policy.explain()
    both = market.order[12:60] + market.order[10:11]
    assert [t["n"] for t in said["tried"]] == [59, 49]
    expected = np.corrcoef(scores[0, both], scores[2, both])[0, 1]
    assert said["tried"][1]["correlation"] == pytest.approx(expected)


@pytest.mark.parametrize("constant", [ANCHOR, SMALL])
def test_scores_that_do_not_vary_correlate_with_nothing(constant):
    scores = judges(0.9, 0.9)
    scores[constant] = 3.0
    market = Market(scores, cap=10**6, helpers=("judge2",)).run()
    assert market.policy.explain()["tried"][0]["correlation"] is None
    assert market.policy.explain()["helpers"] == []


# --- the second phase --------------------------------------------------------------------------


def test_every_item_gets_the_helpers_and_a_random_part_the_anchor():
    """n of n' items, arms together, with n/n' as the anchor's propensity and 1 as the helpers'."""
    market = Market(judges(0.2, 0.95, n=800, arms=2), n_arms=2, cap=2 * money(200, 800, 60)).run()
    assert market.items(SMALL) == market.order
    assert len(market.items(ANCHOR)) == 200
    later = [q for q in market.asked if q.purpose is Purpose.POLICY]
    share = market.policy._plan.split.n_anchor / 800
    assert {(q.judge, q.propensity) for q in later} == {(ANCHOR, share), (SMALL, 1.0)}
    assert share == pytest.approx(0.25, abs=0.002)
    units = {j: {q.units[0] for q in market.asked if q.judge == j} for j in (ANCHOR, SMALL)}
    assert all(unit ^ 1 in units[j] for j in units for unit in units[j])


def test_every_prefix_is_a_two_phase_sample():
    """Anchored items lie evenly along the order, so a run cut short has the same proportions."""
    market = Market(judges(0.2, 0.95), cap=money(200, 1000, 60)).run()
    place = {item: k for k, item in enumerate(market.order)}
    later = sorted(place[item] for item in market.items(ANCHOR, Purpose.POLICY))
    seen = np.searchsorted(later, np.arange(60, 1001))
    assert np.abs(seen - 140 / 940 * np.arange(941)).max() <= 1
    # Judges keep together: the anchor is never asked far from where the helper is.
    at = {ANCHOR: 0, SMALL: 0}
    for query in market.asked[180:]:
        at[query.judge] = place[query.units[0]]
        assert at[ANCHOR] - at[SMALL] <= 1


@pytest.mark.parametrize("n_strata", [2, 4])
def test_strata_are_anchored_in_proportion_though_they_alternate(n_strata):
    """With two strata in turn, every other item along the order would be one stratum alone."""
    strata = [str(i % n_strata) for i in range(1000)]
    market = Market(judges(0.2, 0.9), cap=money(500, 1000, 60), strata=strata).run()
    anchored = [int(strata[item]) for item in market.items(ANCHOR, Purpose.POLICY)]
    assert market.policy.explain()["phase"] == "two_phase"
    counts = np.bincount(anchored)
    assert np.ptp(counts) <= 2
    assert len(anchored) == market.policy.explain()["planned"]["anchor_items"] - 60


def test_each_item_is_anchored_with_the_same_probability():
    """Over seeds, whatever the size of its stratum."""
    strata = ["big"] * 60 + [f"small{i // 2}" for i in range(20)]
    scores, counts, n_seeds = judges(0.2, 0.95, n=80), np.zeros(80), 150
    for seed in range(n_seeds):
        market = Market(scores, cap=money(35, 80, 20), strata=strata, pilot_items=20, seed=seed)
        market.policy = Insists(config(pilot_items=20), market.study)
        market.run()
        counts[market.items(ANCHOR)] += 1
    share = counts.sum() / 80 / n_seeds
    error = np.sqrt(share * (1 - share) / n_seeds)
    assert np.abs(counts / n_seeds - share).max() < 4 * error


def test_after_the_helpers_the_anchor_rates_what_it_left_out():
    """Money that is left when all items have helpers buys more anchored items, then the end."""
    market = Market(judges(0.2, 0.95), cap=money(200, 1000, 60)).run()
    anchored = market.items(ANCHOR)
    market.cap += money(100, 0)  # more than its plan knows of
    market.policy.tell(PriceChanged(judge=JudgeIx(SMALL), card=FREE))
    market.run()
    assert market.items(ANCHOR)[:200] == anchored
    assert len(market.items(ANCHOR)) == 300
    assert {q.propensity for q in market.asked[-100:]} == {1.0}
    market.cap = None
    market.policy.tell(CapChanged(cap=None))
    market.run()
    assert sorted(market.items(ANCHOR)) == list(range(1000))
    assert len(market.asked) == 1000 + 1000 + 60


def test_a_higher_cap_anchors_more_and_a_lower_one_nothing_twice():
    """The plan is made anew from the pilot; what is anchored stays, and no item is asked twice."""
    market = Market(judges(0.2, 0.95), cap=money(150, 1000, 60)).run(700)
    before = market.policy.explain()["planned"]["anchor_items"]
    anchored = set(market.items(ANCHOR))
    market.cap = money(400, 1000, 60)
    market.policy.tell(CapChanged(cap=Nano(market.cap)))
    assert before == 150
    assert market.policy.explain()["planned"]["anchor_items"] == 400
    market.run()
    assert anchored <= set(market.items(ANCHOR))
    assert len(market.items(ANCHOR)) == 400
    assert len(set(market.asked)) == len(market.asked)
    lower = Market(judges(0.2, 0.95), cap=money(400, 1000, 60)).run(700)
    lower.cap = money(330, 1000, 60)
    lower.policy.tell(CapChanged(cap=Nano(lower.cap)))
    lower.run()
    assert len(lower.items(ANCHOR)) == 330
    assert lower.items(SMALL) == lower.order


def test_the_plan_counts_what_is_outstanding():
    """Questions under way are money that is gone, so a plan made meanwhile is kept to."""
    market = Market(judges(0.2, 0.95), cap=money(150, 1000, 60)).run(500, window=60)
    assert len(market.open) > 30
    market.cap = money(300, 1000, 60)
    market.policy.tell(CapChanged(cap=Nano(market.cap)))
    assert market.policy.explain()["planned"]["anchor_items"] == pytest.approx(300, abs=1)


# --- losses ------------------------------------------------------------------------------------


def gone(market, judge):
    market.policy.tell(JudgeDown(judge=JudgeIx(judge), until=None, why="test"))


@pytest.mark.parametrize("n", [30, 400])
def test_without_the_anchor_it_is_over(n):
    """In the pilot or later: helpers alone say nothing about the anchor's mean."""
    market = Market(judges(0.2, 0.95), cap=money(200, 1000, 60)).run(n)
    gone(market, ANCHOR)
    assert market.policy.ask(VIEW) is FINISH
    assert market.policy.explain()["phase"] == "over"
    market.policy.tell(JudgeUp(judge=JudgeIx(ANCHOR)))
    assert isinstance(market.policy.ask(VIEW), Query)


def test_an_anchor_without_a_valid_answer_in_the_pilot_ends_the_run():
    """All its money would go the same way."""
    market = Market(judges(0.2, 0.95), cap=money(200, 1000, 60))
    market.missing = {(ANCHOR, unit) for unit in range(1000)}
    market.run()
    assert len(market.items(ANCHOR)) == 60
    assert "no valid answer in the pilot" in market.policy.explain()["says"][0]


def test_a_helper_that_is_lost_is_replaced_from_the_pilot():
    """The other one that pays takes over and catches up; without any the anchor is alone."""
    market = Market(judges(0.9, 0.95), cap=money(200, 1000, 600)).run(500)
    assert market.policy.explain()["helpers"] == ["judge2"]
    gone(market, SMALL)
    market.open = deque((q, x) for q, x in market.open if x.judge != SMALL)
    said = market.policy.explain()
    assert said["helpers"] == ["judge1"]
    assert said["lost"] == ["judge2"]
    market.run(700)
    assert market.items(MID)[60:] == market.order[60 : len(market.items(MID))]
    gone(market, MID)
    assert market.policy.explain()["phase"] == "anchor_alone"
    n = len(market.asked)
    market.open.clear()
    market.run()
    assert {q.judge for q in market.asked[n:]} == {ANCHOR}
    market.policy.tell(JudgeUp(judge=JudgeIx(SMALL)))
    assert market.policy.explain()["lost"] == ["judge1"]


def test_a_helper_lost_in_the_pilot_is_not_waited_for():
    """The others decide, and it is no candidate when it comes back."""
    market = Market(judges(0.9, 0.95), cap=money(200, 1000, 1000)).run(60)
    gone(market, SMALL)
    market.open = deque((q, x) for q, x in market.open if x.judge != SMALL)
    market.run(300)
    assert [t["judge"] for t in market.policy.explain()["tried"]] == ["judge1"]
    market.policy.tell(JudgeUp(judge=JudgeIx(SMALL)))
    assert [t["judge"] for t in market.policy.explain()["tried"]] == ["judge1"]


def test_a_helper_without_money_of_its_own_is_left_out():
    """Its own account can't hold it, so the pilot's figures decide without it."""
    market = Market(judges(0.1, 0.95), cap=money(200, 1000, 60)).run(500)
    refused = next(q for q in reversed(market.asked) if q.judge == SMALL)
    market.policy.tell(Declined(query=refused, hold=Nano(2), account="judge:judge2"))
    assert market.policy.explain()["phase"] == "anchor_alone"
    market.policy.tell(CapChanged(cap=Nano(market.cap)))
    assert market.policy.explain()["helpers"] == ["judge2"]


def test_a_judge_that_is_down_for_a_time_catches_up():
    """The others go on meanwhile."""
    market = Market(judges(0.1, 0.95), cap=money(200, 1000, 60)).run(400, window=1)
    while market.open:
        market.tell_oldest()
    market.policy.tell(JudgeDown(judge=JudgeIx(ANCHOR), until=9.0, why="429"))
    market.run(500, window=1)
    assert {q.judge for q in market.asked[400:]} == {SMALL}
    market.policy.tell(JudgeUp(judge=JudgeIx(ANCHOR)))
    market.run(505, window=1)
    assert {q.judge for q in market.asked[500:]} == {ANCHOR}
    market.run()
    assert len(market.items(ANCHOR)) == 200


# --- what it is built from ---------------------------------------------------------------------


@pytest.mark.parametrize("kind", [Kind.COMPARE, Kind.RATE_BATCH])
def test_other_kinds_of_questions_are_refused(kind):
    with pytest.raises(ValueError, match="one unit at a time"):
        TwoPhase(config(), small_study(kind=kind))


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        ({"anchor": "judge7"}, "no judge 'judge7'"),
        ({"helpers": ("judge7",)}, "no judge 'judge7'"),
        ({"helpers": ("judge0",)}, "can't help itself"),
        ({"contrast": {"arm": "arm0", "baseline": "old"}}, "no arm 'old'"),
        ({"criterion": "taste"}, "no 'taste'"),
    ],
)
def test_what_the_study_lacks_is_refused(keys, message):
    with pytest.raises(ValueError, match=message):
        TwoPhase(config(**keys), small_study())


CAMPAIGN = """\
version: 1
name: two
data: {{arms: {{old: items.csv, new: items.csv}}, id: id, fields: {{candidate: text}}}}
judges:
  - {{name: large, adapter: mock, price_usd_per_1m: {{input: 2, output: 10}}}}
  - {{name: small, adapter: mock, price_usd_per_1m: {{input: 0.1, output: 0.4}}}}
task:
  kind: rate
  criteria:
    - {{name: right, scale: {{type: boolean}}}}
    - {{name: good, scale: {{type: integer, min: 1, max: 5}}}}
policy: {{kind: two_phase, anchor: {anchor}, helpers: {helpers}, pilot_items: 5}}
budget: {{usd: 1}}
estimate:
  - {{name: d, kind: score_means, contrast: {{arm: new, baseline: old}}, criterion: good}}
"""


@pytest.fixture
def campaign(tmp_path):
    (tmp_path / "items.csv").write_text("id,text\n" + "".join(f"{i},x\n" for i in range(30)))

    def load(anchor="large", helpers="auto"):
        path = tmp_path / "c.yaml"
        path.write_text(CAMPAIGN.format(anchor=anchor, helpers=helpers))
        return load_campaign(path, environ={})

    return load


def test_contrast_and_criterion_follow_the_primary_estimate(campaign):
    """What the helpers are tried in is what is estimated."""
    policy = build(campaign()).crew.new_policy(Nano(10**9))
    assert policy._arms == (1, 0)
    assert policy._scoring.name == "good"
    assert policy._cap == 10**9


def test_judges_that_the_file_lacks_are_named_with_their_place(campaign):
    for keys, place in (({"anchor": "larg"}, "anchor"), ({"helpers": "[smal]"}, "helpers[0]")):
        with pytest.raises(InvalidCampaign) as caught:
            campaign(**keys)
        (problem,) = caught.value.problems
        assert problem.path == f"policy.{place}"
        assert "did you mean" in problem.message


@pytest.mark.slow
def test_a_question_takes_ten_microseconds(measured):
    """Asking and telling, both amortised over the whole run of 20,000 items."""
    market = Market(judges(0.2, 0.9, n=20_000), cap=money(5000, 20_000, 60))
    policy, took, n = market.policy, 0.0, 0
    while isinstance(query := policy.ask(VIEW), Query) and market.spent < market.cap:
        asked = Asked(q=QNo(n), query=query, hold=Nano(1))
        record = Record(q=QNo(n), query=query, outcome=market.outcome(query))
        market.spent += record.outcome.cost
        start = perf_counter()
        policy.ask(VIEW)
        policy.tell(asked)
        policy.tell(record)
        took += perf_counter() - start
        n += 1
    assert policy.explain()["phase"] == "two_phase"
    measured("two_phase: ask and tell <= 10 µs a question", f"{took / n * 1e6:.1f} µs")
    assert took / n < 15e-6
