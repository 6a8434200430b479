"""exchangeable: the told prefix of a random order, what it proves, and what it is said to prove."""

import itertools
import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from estimators.benchmark_order import allocation_of, item_orders
from estimators.exchangeable import (
    PLUGIN,
    Exchangeable,
    ExchangeableConfig,
    beta_proxy,
    fit_beta_binomial,
    fit_exchangeable,
    items_for_half_width,
    subsample_half_width,
)
from estimators.in_flight import imputed_interval
from estimators.macro_ability import macro_ability
from estimators.sequences_wor import Plan, betting_paired_wor, betting_wor
from estimators.subsample_bounds import hypergeometric_interval, stratified_half_width
from orchestrator.core.estimate import Status
from orchestrator.core.frame import Frame
from orchestrator.core.money import FREE
from orchestrator.core.query import Kind, MissingReason, Role
from orchestrator.core.scale import Criterion, Scale, ScaleType
from orchestrator.core.seeds import Seeds
from orchestrator.core.study import Panelist, Study
from orchestrator.testing.estimators import (
    SCALES,
    EstimatorContract,
    check_is_readable,
    missing,
    rated_studies,
    rating,
    ratings_of,
    thorough,
)
from orchestrator.testing.policies import Move, Play
from policies.subsample import Subsample, SubsampleConfig
from tests.estimators.mmlu_data import mmlu

BOOLEAN = Scale(type=ScaleType.BOOLEAN)
TEN = Scale(type=ScaleType.INTEGER, low=1, high=10)
A_B = {"arm": "a", "baseline": "b"}


def study(n_items, arms=("a",), *, scale=BOOLEAN, strata=None, seed=0, n_judges=1, **frame):
    return Study(
        kind=Kind.CHECK,
        frame=Frame.of([f"i{k}" for k in range(n_items)], arms, stratum=strata, **frame),
        panel=tuple(Panelist(name=f"j{j}", card=FREE) for j in range(n_judges)),
        criteria=(Criterion(name="right", scale=scale),),
        seeds=Seeds(seed),
    )


def config(**entry):
    return ExchangeableConfig(name="accuracy", **entry)


def orders_of(of, entry):
    design = entry.design or "simple"
    return item_orders(of, design, allocation_of(design, entry.strata, of))


def told(of, scores, n=None, **entry):
    """Estimate from the first n places of the order; scores are (items, arms), NaN: no verdict."""
    made = Exchangeable(config(**entry), of)
    for record in records_of(of, scores, config(**entry), n):
        made.update(record)
    return made.estimate()


def records_of(of, scores, entry, n=None):
    scores = np.asarray(scores, dtype=float).reshape(of.frame.n_items, of.frame.n_arms)
    places = orders_of(of, entry)[:, :n].T
    units = [int(item) * of.frame.n_arms + arm for row in places for arm, item in enumerate(row)]
    values = scores.ravel()[units]
    return [
        missing(q, unit) if math.isnan(value) else rating(q, unit, float(value))
        for q, (unit, value) in enumerate(zip(units, values, strict=True))
    ]


def in_order(of, scores, entry=None, arm=0):
    scores = np.asarray(scores, dtype=float).reshape(of.frame.n_items, of.frame.n_arms)
    return scores[orders_of(of, entry or config())[arm], arm]


def test_an_order_may_be_given():
    """Whoever drew the items elsewhere says how: the same answers in the same order, the same bounds."""
    of, scores = study(60, seed=4), np.arange(60) % 3 > 0
    drawn = orders_of(of, config())
    rows = {
        "unit": drawn[0, :25],
        "judge": np.zeros(25, dtype=int),
        "values": scores[drawn[0, :25]].astype(float)[:, None],
    }
    (ours,) = fit_exchangeable(config(), of, **rows)
    other = study(60, seed=5)
    (given_,) = fit_exchangeable(config(), other, **rows, orders=drawn)
    assert (given_.value, given_.lower, given_.upper) == (ours.value, ours.lower, ours.upper)
    assert (ours.diagnostics["seed"], given_.diagnostics["seed"]) == (4, None)
    assert fit_exchangeable(config(), other, **rows)[0].n_items < 25


# --- contract ------------------------------------------------------------------------------------


class ExchangeableContract(EstimatorContract):
    entry = config()
    is_boolean = False

    def make_estimator(self, study):
        return PLUGIN.build(self.entry, study)

    def fit(self, study, records):
        values = [
            [math.nan] * len(study.criteria)
            if r.is_missing
            else [math.nan if o.value is None else o.value for o in r.outcome.observations]
            for r in records
        ]
        return fit_exchangeable(
            self.entry,
            study,
            unit=np.array([r.query.units[0] for r in records], int),
            judge=np.array([r.query.judge for r in records], int),
            values=np.array(values, float).reshape(len(records), len(study.criteria)),
            missing=[r.outcome.reason if r.is_missing else None for r in records],
        )

    def studies(self):
        return rated_studies(self.n_arms).map(self._prepared)

    def _prepared(self, study):
        """Items count alike, and there are strata; one judge's yes or no where wanted."""
        frame = study.frame
        of_items = [f"s{k % 2}" for k in range(frame.n_items)]
        study = replace(study, frame=Frame.of(frame.items, frame.arms, stratum=of_items))
        if not self.is_boolean:
            return study
        yes_no = Criterion(name="criterion0", scale=SCALES[0])
        return replace(study, criteria=(yes_no,), panel=study.panel[:1])

    def records(self, study):
        """Mostly questions along the order, without which there is no told prefix."""
        return ratings_of(study) | self._along(study)

    def _along(self, study):
        frame = study.frame
        units = (orders_of(study, self.entry).T * frame.n_arms + range(frame.n_arms)).ravel()
        asked = [(int(unit), j) for unit in units for j in range(len(study.panel))]

        def record(q, unit, judge, values, is_missing):
            if is_missing:
                return missing(q, unit, judge=judge)
            return rating(q, unit, values, judge=judge)

        def records(n):
            ends = [st.sampled_from([c.scale.low, c.scale.high]) for c in study.criteria]
            values = st.tuples(*ends)
            draws = st.tuples(values, st.integers(0, 4))
            return st.lists(draws, min_size=n, max_size=n).map(
                lambda drawn: [
                    record(q, *asked[q], values, not m) for q, (values, m) in enumerate(drawn)
                ]
            )

        return st.integers(0, len(asked)).flatmap(records)

    @thorough
    @given(data=st.data())
    def test_any_data_give_estimates_that_can_be_read(self, data):
        """As for all, but that a mean of all items is known without error."""
        study = data.draw(self.studies())
        estimator = self.make_estimator(study)
        for record in data.draw(self.records(study)):
            estimator.update(record)
            for estimate in estimator.estimate():
                check_census(estimate)

    test_numbering_of_items_and_judges_does_not_matter = None
    """It does: the seed orders items by number."""


def check_census(estimate):
    by_name = estimate.diagnostics["by_name"]
    is_whole = np.equal(by_name["n_drawn"], by_name["population"])
    if not is_whole.any():
        check_is_readable(estimate)
        return
    numbers = (estimate.value, estimate.se, estimate.lower, estimate.upper)
    for value, se, lower, upper in zip(*numbers, strict=True):
        assert math.isnan(se) or se > 0
        assert math.isnan(value) or lower <= value <= upper


class TestWatchedKeepsTheContract(ExchangeableContract):
    entry = config(check="anytime")


class TestFixedWithLowestKeepsIt(ExchangeableContract):
    entry = config(missing="lowest", model="exchangeable", error_split="pairs")


class TestPairedKeepsIt(ExchangeableContract):
    n_arms = 2
    entry = config(
        design="paired",
        contrast={"arm": "arm1", "baseline": "arm0"},
        check="anytime",
        sequence="hoeffding",
        last_look={"items": 2},
    )


class TestYesNoOfStrataKeepsIt(ExchangeableContract):
    is_boolean = True
    entry = config(
        design="macro",
        targets=("macro", "benchmark", "strata", "ability"),
        check="anytime",
        sequence="prior_posterior",
        target_half_width=0.2,
    )


# --- what is said with each number ---------------------------------------------------------------


def test_every_estimate_says_what_it_is():
    """A20: Estimand, method, error split, N, n, in flight, missing, seed, and whether watching counts."""
    of = study(60, ("a", "b"), strata=["s", "t"] * 30, seed=7)
    scores = np.random.default_rng(0).integers(0, 2, (60, 2)).astype(float)
    scores[orders_of(of, config(design="paired"))[0, 3], 0] = math.nan
    found = told(
        of,
        scores,
        40,
        design="paired",
        contrast=A_B,
        targets=("benchmark", "strata", "ability"),
        check="anytime",
    )
    assert [e.target for e in found] == ["difference", "arms", "strata", "ability"]
    assert [e.watching_covered for e in found] == [True, True, False, False]
    assert [e.alpha_split for e in found] == ["none", "arms", "none", "arms"]
    for e in found:
        about = e.diagnostics
        assert e.estimand
        assert e.interval
        assert e.family
        assert (about["population"], about["seed"], about["design"]) == (60, 7, "paired")
        assert about["missing_policy"]
        assert {"n_drawn", "in_flight", "missing", "alpha"} <= set(about["by_name"])
    arms = found[1].diagnostics["by_name"]
    assert (arms["n_drawn"], arms["missing"], arms["alpha"]) == (
        [40, 40],
        [1, 0],
        pytest.approx([0.025, 0.025]),
    )
    assert found[1].diagnostics["missing_reasons"] == {"a": {"refused": 1}, "b": {}}
    assert "this benchmark" in found[1].estimand
    assert "ability on subjects like these" in found[3].estimand


def test_public_names_are_here():
    """The functions of planning can be had from the estimator's module."""
    assert subsample_half_width(5000, 14042, 0.05) == pytest.approx(0.0154134, abs=1e-6)
    assert items_for_half_width(0.02, 14042, 0.05, model="exchangeable") == 3472
    assert beta_proxy(1, 1) == pytest.approx(1 / 12)
    assert fit_beta_binomial([50] * 4, [100] * 4).mu == 0.5


# --- the told prefix -----------------------------------------------------------------------------


def test_order_of_answers_changes_nothing_to_the_bit():
    """Whatever comes back first, the same items give the same numbers (A21)."""
    of = study(300, scale=TEN)
    scores = np.random.default_rng(1).integers(1, 11, 300)
    records = records_of(of, scores, config(), 200)
    ends = []
    for order in (range(200), reversed(range(200)), np.random.default_rng(2).permutation(200)):
        made = Exchangeable(config(check="anytime"), of)
        for k in order:
            made.update(records[k])
        (e,) = made.estimate()
        ends.append((e.value, e.lower, e.upper, e.n_items))
    assert ends[0] == ends[1] == ends[2]


def test_what_is_under_way_holds_back_what_comes_after():
    """One item that is not back ends the prefix; an interim look reads what is behind it."""
    of = study(200)
    scores = np.random.default_rng(3).random(200) < 0.8
    records = records_of(of, scores, config(), 120)
    made = Exchangeable(config(check="anytime"), of)
    for record in [*records[:20], *records[21:]]:
        made.update(record)
    (e,) = made.estimate()
    by_name = e.diagnostics["by_name"]
    assert (e.n_items, by_name["in_flight"], e.flags) == (20, [1], ("in_flight",))
    lower, upper = by_name["interim_lower"][0], by_name["interim_upper"][0]
    assert upper - lower < 0.6 * (e.upper[0] - e.lower[0])
    x = in_order(of, scores)[:120]
    x[20] = math.nan
    assert (lower, upper) == imputed_interval(x, 200, is_binary=True)
    made.update(records[20])
    (after,) = made.estimate()
    assert (after.n_items, after.diagnostics["by_name"]["in_flight"]) == (120, [0])


def test_an_interim_look_puts_graded_scores_under_way_at_both_ends():
    """Sums take the place of counts; the lower end has the low score there, the upper the high."""
    of = study(150, scale=TEN)
    scores = np.random.default_rng(14).integers(1, 11, 150)
    made = Exchangeable(config(check="anytime"), of)
    for place, record in enumerate(records_of(of, scores, config(), 90)):
        if place not in {30, 33}:
            made.update(record)
    (e,) = made.estimate()
    x = in_order(of, scores)[:90]
    x[[30, 33]] = math.nan
    by_name = e.diagnostics["by_name"]
    assert by_name["in_flight"] == [2]
    ends = (by_name["interim_lower"][0], by_name["interim_upper"][0])
    assert ends == pytest.approx(imputed_interval(x, 150, is_binary=False, low=1, high=10))


@pytest.mark.parametrize(
    "entry",
    [
        {},
        {"design": "stratified"},
        {"design": "macro"},
        {"design": "paired", "strata": "proportional"},
    ],
)
def test_the_policy_asks_in_the_order_that_is_read(entry):
    """After each place that the policy has asked of all arms, the told prefix is that long."""
    of = study(12, ("a", "b"), strata=[*"sssssssttttt"])
    policy, estimator = Subsample(SubsampleConfig(**entry), of), Exchangeable(config(**entry), of)
    run = Play(policy=policy, study=of)
    for n_asked in range(1, 25):
        run.step(Move.ASK, 0)
        run.step(Move.ANSWER, 1)
        estimator.update(run.told[-1])
        (e,) = estimator.estimate()
        assert sum(e.diagnostics["by_name"]["n_drawn"]) == n_asked
        assert not any(e.diagnostics["by_name"]["in_flight"])


@pytest.mark.parametrize("is_naive", [False, True])
def test_slow_wrong_answers_bias_the_naive_mean_and_not_the_prefix(is_naive):
    """Wrong answers take three times as long; with 64 under way, 200 are back (A16)."""
    rng = np.random.default_rng(4)
    population = (np.arange(1000) < 700).astype(float)
    n_missed, n_runs = 0, 60
    for seed in range(n_runs):
        of = study(1000, seed=seed)
        x = in_order(of, population)
        lasts = rng.exponential(np.where(x == 1, 1.0, 3.0))
        free, done = np.zeros(64), np.zeros(1000)
        for place in range(1000):
            worker = free.argmin()
            done[place] = free[worker] = free[worker] + lasts[place]
        back = np.sort(np.argsort(done)[:200])
        if is_naive:
            ends = hypergeometric_interval(int(x[back].sum()), 200, 1000, 0.05)
        else:
            made = Exchangeable(config(), of)
            order = orders_of(of, config())[0]
            for place in back:
                made.tell(int(order[place]), float(x[place]))
            (e,) = made.estimate()
            at = e.diagnostics["by_name"]
            ends = (at["interim_lower"][0], at["interim_upper"][0])
            assert e.n_items < 200
        n_missed += not ends[0] <= 0.7 <= ends[1]
    assert n_missed > 0.5 * n_runs if is_naive else n_missed <= 0.05 * n_runs + 3


# --- intervals -----------------------------------------------------------------------------------


def test_a_fixed_look_is_exact_for_yes_and_no():
    """Without a target the hypergeometric law counts; with one the width knows no scores."""
    of = study(500)
    scores = (np.arange(500) < 300).astype(float)
    k = in_order(of, scores)[:100].sum()
    (exact,) = told(of, scores, 100)
    assert (exact.lower[0], exact.upper[0]) == hypergeometric_interval(k, 100, 500, 0.05)
    (aimed,) = told(of, scores, 100, target_half_width=0.1)
    assert aimed.half_width == pytest.approx(subsample_half_width(100, 500, 0.05))
    assert (exact.watching_covered, aimed.watching_covered) == (False, False)


def test_the_number_at_which_a_target_is_met_does_not_follow_from_scores():
    """At one look the width is what it is until it is the target; only then ends of the scale cut it."""
    of = study(200)
    for more in (
        {},
        {"model": "exchangeable"},
        {"judgment": "expected", "target_half_width": 0.15},
    ):
        entry = {"check": "end", "target_half_width": 0.05, **more}
        stops = []
        for right in (0.5, 0.9, 1.0):
            scores = np.random.default_rng(0).random(200) < right
            made, ends = Exchangeable(config(**entry), of), []
            for record in records_of(of, scores, config(**entry)):
                made.update(record)
                (e,) = made.estimate()
                assert 0 <= e.lower[0] <= e.value[0] <= e.upper[0] <= 1
                ends.append(e.half_width <= entry["target_half_width"])
            stops.append(ends.index(True))
        assert stops[0] == stops[1] == stops[2]


def test_the_order_of_a_panels_answers_changes_nothing_to_the_bit():
    """Three verdicts on one item are one number, whoever was first (A21)."""
    of = study(40, scale=Scale(type=ScaleType.FLOAT, low=0, high=1), n_judges=3)
    verdicts, ends = np.random.default_rng(1).random((40, 3)), []
    for order in itertools.permutations(range(3)):
        made = Exchangeable(config(check="anytime", sequence="hoeffding"), of)
        for unit in orders_of(of, config())[0, :25].tolist():
            for judge in order:
                made.tell(unit, float(verdicts[unit, judge]))
        (e,) = made.estimate()
        ends.append((e.value, e.se, e.lower, e.upper))
    assert len(set(ends)) == 1


def test_an_unseen_item_leaves_a_width():
    """The exact law may exclude what one item could still do; that is not said as if all were known."""
    of = study(200)
    (e,) = told(of, np.ones(200), 199, check="end")
    assert (e.lower, e.upper) == ((199 / 200,), (1.0,))
    (e,) = told(of, np.ones(200), 200, check="end")
    assert e.lower == e.upper == (1.0,)


@pytest.mark.parametrize("scale", [BOOLEAN, TEN])
def test_a_watched_run_is_the_betting_sequence_in_dispatch_order(scale):
    """Its ends are those of the scores in the order of the draw, to the bit."""
    of = study(400, scale=scale)
    scores = np.random.default_rng(5).integers(int(scale.low), int(scale.high) + 1, 400)
    width = 0.1 * scale.span
    (e,) = told(of, scores, 150, check="anytime", target_half_width=width)
    lower, upper = betting_wor(
        in_order(of, scores)[:150],
        400,
        level=0.95,
        low=scale.low,
        high=scale.high,
        plan=Plan(half_width=width),
    )
    assert (e.lower[0], e.upper[0]) == (lower[-1], upper[-1])


@pytest.mark.parametrize("sequence", ["prior_posterior", "hoeffding", "empirical_bernstein"])
def test_other_sequences_have_their_own_names(sequence):
    """The method says which one it is."""
    (e,) = told(study(100), np.ones(100), 30, check="anytime", sequence=sequence)
    assert e.interval == f"{sequence.replace('_', '-')} sequence without replacement"
    assert 0 < e.lower[0] < 1
    assert e.watching_covered


def half_widths(of, scores, n, **entry):
    (e,) = told(of, scores, n, check="anytime", **entry)
    return e.half_width


@pytest.mark.parametrize("sequence", ["betting", "hoeffding", "empirical_bernstein"])
def test_a_run_that_is_known_to_end_early_is_planned_for_its_end(sequence):
    """Of 50 items and a target that wants several hundred; more than it wants changes nothing."""
    of, scores = study(3000), np.arange(3000) % 5 > 0
    entry = {"target_half_width": 0.03, "sequence": sequence}
    at_end = half_widths(of, scores, 50, max_items=50, **entry)
    assert at_end < 0.75 * half_widths(of, scores, 50, **entry)
    assert half_widths(of, scores, 50, max_items=2900, **entry) == half_widths(
        of, scores, 50, **entry
    )
    without = half_widths(of, scores, 50, sequence=sequence)
    assert half_widths(of, scores, 50, max_items=50, sequence=sequence) < without


def test_bets_for_an_early_end_are_those_of_the_plan():
    of, scores = study(3000), np.arange(3000) % 5 > 0
    plan = Plan(half_width=0.03, most=50)
    lower, upper = betting_wor(in_order(of, scores)[:50], 3000, plan=plan)
    (e,) = told(of, scores, 50, check="anytime", target_half_width=0.03, max_items=50)
    assert (e.lower[0], e.upper[0]) == (lower[-1], upper[-1])


def test_strata_in_turn_are_planned_for_an_early_end_too():
    of = study(3000, strata=[f"s{k % 10}" for k in range(3000)])
    scores = np.arange(3000) % 7 > 0
    entry = {"design": "macro", "target_half_width": 0.03}
    at_end = half_widths(of, scores, 100, max_items=100, **entry)
    assert at_end < 0.75 * half_widths(of, scores, 100, **entry)


def test_a_width_is_kept_from_the_last_number_if_it_is_not_the_target_before():
    """What comes later, which was not planned, changes it no more."""
    of = study(300, strata=[*("s" * 200), *("t" * 100)])
    scores = (np.arange(300) % 3 > 0).astype(float)
    entry = {"design": "stratified", "check": "anytime", "target_half_width": 0.05}
    (before,) = told(of, scores, 59, max_items=60, **entry)
    assert before.flags == ("before_planned_number",)
    drawn = np.bincount(
        of.frame.stratum[in_order(of, np.arange(300), config(design="stratified"))[:60].astype(int)]
    )
    width = stratified_half_width(drawn, [200, 100], [2 / 3, 1 / 3], 0.05)
    for n in (60, 90):
        (e,) = told(of, scores, n, max_items=60, **entry)
        assert e.half_width == pytest.approx(width)
        assert e.flags == ()
    (on,) = told(of, scores, 90, **entry)
    assert on.flags == ("before_planned_number",)


@pytest.mark.parametrize("entry", [{}, {"design": "stratified"}], ids=["betting", "kept"])
def test_an_early_end_is_covered_while_it_is_watched(entry):
    population = np.r_[np.arange(300) < 250, np.arange(300) < 120].astype(float)
    entry = {
        "check": "anytime",
        "target_half_width": 0.02,
        "max_items": 90,
        "confidence": 0.8,
        **entry,
    }
    strata = [*("s" * 300), *("t" * 300)]
    assert ever_missed(entry, population, n_runs=40, looks=LOOKS, strata=strata) <= 0.2


def test_all_items_leave_no_error():
    """At n = N both ends are the mean."""
    scores = (np.arange(50) < 20).astype(float)
    for entry in ({}, {"check": "anytime"}, {"target_half_width": 0.1}):
        (e,) = told(study(50), scores, **entry)
        assert (e.lower[0], e.upper[0]) == pytest.approx((0.4, 0.4))
        assert e.status is Status.OK


def ever_missed(entry, population, *, n_runs, looks, strata=None):
    """Share of runs in which the mean leaves the interval at any look."""
    n, missed = len(population), 0
    for seed in range(n_runs):
        of = study(n, strata=strata, seed=seed)
        made = Exchangeable(config(**entry), of)
        order = orders_of(of, config(**entry))[0]
        ends = []
        for place, item in enumerate(order[: max(looks)].tolist(), 1):
            made.tell(item, float(population[item]))
            if place in looks:
                (e,) = made.estimate()
                ends.append((e.lower[0], e.upper[0]))
        mean = population.mean()
        missed += any(not lower <= mean <= upper for lower, upper in ends)
    return missed / n_runs


LOOKS = {*range(30, 300, 18)}


@pytest.mark.parametrize("sequence", ["betting", "prior_posterior"])
def test_watching_is_covered(sequence):
    """Over the runs the mean leaves a sequence at any look no more often than agreed (A12, in small)."""
    population = (np.arange(600) < 420).astype(float)
    entry = {"check": "anytime", "sequence": sequence, "confidence": 0.8}
    assert ever_missed(entry, population, n_runs=40, looks=LOOKS) <= 0.2


def test_a_fixed_look_does_not_cover_watching():
    """The exact interval at every look misses often: the test above can fail (A12)."""
    population = (np.arange(600) < 420).astype(float)
    assert ever_missed({"confidence": 0.8}, population, n_runs=30, looks=LOOKS) > 0.4


# --- strata --------------------------------------------------------------------------------------


def test_a_stratified_width_is_kept_from_its_number_on():
    """Before the target nothing but the sure range; after it the width of the first such number."""
    strata = [*("s" * 200), *("t" * 100)]
    of = study(300, strata=strata)
    scores = (np.arange(300) % 3 > 0).astype(float)
    entry = {"design": "stratified", "check": "anytime", "target_half_width": 0.12}
    drawn = np.eye(2)[of.frame.stratum[orders_of(of, config(**entry))[0]]].cumsum(axis=0)
    share = np.array([200, 100]) / 300
    widths = [stratified_half_width(n, [200, 100], share, 0.05) for n in drawn]
    first = 1 + next(k for k, width in enumerate(widths) if width <= 0.12)
    (before,) = told(of, scores, first - 1, **entry)
    assert before.half_width == pytest.approx((301 - first) / 600)
    assert before.flags == ("before_planned_number",)
    for n in (first, first + 60):
        (e,) = told(of, scores, n, **entry)
        assert e.half_width == pytest.approx(widths[first - 1])
        assert e.watching_covered
        assert e.flags == ()


def test_a_target_that_missing_verdicts_keep_out_of_reach_is_flagged():
    """A kept width does not fall, so what is open beside it stays open."""
    strata = [*("s" * 200), *("t" * 100)]
    scores = np.where(np.arange(300) % 10 == 0, math.nan, np.arange(300) % 2)
    entry = {"design": "stratified", "check": "anytime", "target_half_width": 0.12}
    (e,) = told(study(300, strata=strata), scores, 140, **entry)
    assert e.half_width > 0.14
    assert "target_out_of_reach" in e.flags
    (e,) = told(study(300, strata=strata), scores, 140, missing="lowest", **entry)
    assert e.half_width <= 0.12
    assert "target_out_of_reach" not in e.flags


def test_a_kept_width_covers_watching():
    """From its number on the mean rarely ever leaves the interval."""
    strata = [*("s" * 300), *("t" * 300)]
    population = np.r_[np.arange(300) < 250, np.arange(300) < 120].astype(float)
    entry = {"design": "stratified", "check": "anytime", "target_half_width": 0.1}
    assert ever_missed(entry, population, n_runs=50, looks=LOOKS, strata=strata) <= 0.1


def test_macro_is_the_mean_of_strata_and_not_of_items():
    """Each stratum counts alike; at the end exactly."""
    strata = [*("s" * 90), *("t" * 10)]
    scores = np.r_[np.ones(90), np.zeros(10)]
    macro, micro = told(
        study(100, strata=strata),
        scores,
        design="macro",
        targets=("macro", "benchmark"),
        check="anytime",
    )
    assert (macro.lower[0], macro.upper[0]) == pytest.approx((0.5, 0.5))
    assert (micro.lower[0], micro.upper[0]) == pytest.approx((0.9, 0.9))
    assert macro.interval == "Hoeffding sequence over rounds of strata"


def test_strata_by_themselves_and_what_is_not_drawn():
    """Each stratum has its own interval; one without items has none."""
    of = study(40, strata=[*("s" * 39), "t"])
    at = list(orders_of(of, config())[0]).index(39)
    _, strata = told(of, np.ones(40), at, targets=("benchmark", "strata"))
    assert strata.names == ("s", "t")
    assert (strata.value[0], math.isnan(strata.value[1])) == (1.0, True)
    assert strata.status is Status.PARTIAL
    assert strata.lower[0] == hypergeometric_interval(at, at, 39, 0.05).lower


def test_strata_that_are_searched_together_are_those_that_are_searched_alone():
    """With missing verdicts, whose ends rest on other counts."""
    rng = np.random.default_rng(7)
    of = study(300, strata=[f"s{k % 7}" for k in range(300)])
    scores = np.where(rng.random(300) < 0.1, math.nan, rng.random(300) < 0.8)
    _, strata = told(of, scores, 90, targets=("benchmark", "strata"))
    drawn = in_order(of, np.arange(300))[:90].astype(int)
    for s, name in enumerate(strata.names):
        own = drawn[of.frame.stratum[drawn] == s]
        size, ones, open_ = (of.frame.stratum == s).sum(), scores[own] == 1, np.isnan(scores[own])
        least = hypergeometric_interval(ones.sum(), len(own), size, 0.05)
        most = hypergeometric_interval((ones | open_).sum(), len(own), size, 0.05)
        found = (strata.lower[s], strata.upper[s])
        assert found == (least.lower, most.upper), name


def test_ability_is_macro_ability_by_subjects():
    """It does not end at n = N: subjects are draws."""
    rng = np.random.default_rng(6)
    strata = [f"s{k % 12}" for k in range(600)]
    of = study(600, strata=strata)
    scores = (rng.random(600) < np.tile(rng.beta(7, 3, 12), 50)).astype(float)
    benchmark, ability = told(of, scores, targets=("benchmark", "ability"))
    k = np.bincount(of.frame.stratum, scores)
    expected = macro_ability(k, np.full(12, 50))
    assert benchmark.half_width == 0
    assert (ability.lower[0], ability.upper[0]) == pytest.approx(
        [float(end) for end in expected.interval]
    )
    assert ability.half_width > 0.05
    assert not ability.watching_covered


# --- missing verdicts ----------------------------------------------------------------------------


@pytest.mark.parametrize("check", ["end", "anytime"])
def test_missing_verdicts_count_as_lowest_below_and_highest_above(check):
    """The ends are those of the scores with zeros, and with ones."""
    of = study(300)
    scores = (np.random.default_rng(7).random(300) < 0.6).astype(float)
    lost = np.random.default_rng(8).random(300) < 0.05
    (e,) = told(of, np.where(lost, math.nan, scores), 200, check=check)
    (zeros,) = told(of, np.where(lost, 0.0, scores), 200, check=check)
    (ones,) = told(of, np.where(lost, 1.0, scores), 200, check=check)
    assert (e.lower, e.upper) == (zeros.lower, ones.upper)
    assert e.flags == ("missing_imputed",)
    n_lost = int(in_order(of, lost)[:200].sum())
    assert (e.n_items, e.diagnostics["by_name"]["missing"]) == (200 - n_lost, [n_lost])
    (lowest,) = told(of, np.where(lost, math.nan, scores), 200, check=check, missing="lowest")
    assert (lowest.value, lowest.lower, lowest.upper) == (zeros.value, zeros.lower, zeros.upper)
    assert lowest.flags == ("missing_count_as_lowest",)


def test_a_difference_is_open_by_what_either_arm_lacks():
    """One item of a hundred lacks a verdict of each arm; another of the first alone."""
    of = study(100, ("a", "b"))
    scores = np.tile([1.0, 0.0], (100, 1))
    scores[3], scores[4, 0] = math.nan, math.nan
    e = told(of, scores, design="paired", contrast=A_B, check="anytime")[0]
    assert (e.lower[0], e.upper[0]) == pytest.approx((0.98 - 0.01, 0.98 + 0.01 + 0.01))
    assert (e.value, e.n_items, e.diagnostics["by_name"]["missing"]) == ((1.0,), 98, [2])


def test_a_census_with_missing_verdicts_stays_open():
    """Nobody knows what was not answered, even where all was asked."""
    scores = np.where(np.arange(100) < 10, math.nan, 1.0)
    (e,) = told(study(100), scores)
    assert (e.lower[0], e.upper[0]) == pytest.approx((0.9, 1.0))
    assert e.value == (1.0,)


def test_a_failed_generation_is_a_missing_verdict_of_its_own_kind():
    """Failures of system and judge are told apart; a generation that came is no verdict."""
    of = study(10)
    order = orders_of(of, config())[0].tolist()
    made = Exchangeable(config(), of)
    for q, unit in enumerate(order):
        record = missing(q, unit, MissingReason.TIMEOUT) if q == 2 else rating(q, unit, 1.0)
        made.update(replace(record, query=replace(record.query, role=Role.SYSTEM)))
    (e,) = made.estimate()
    assert (e.status, e.diagnostics["by_name"]["n_drawn"]) == (Status.EMPTY, [0])
    for q, unit in enumerate(order[:6]):
        if q != 2:
            made.update(rating(q, unit, 1.0))
    (e,) = made.estimate()
    assert e.diagnostics["missing_reasons"] == {"a": {"system: timeout": 1}}
    assert (e.n_items, e.diagnostics["by_name"]["missing"]) == (5, [1])


def test_a_panel_scores_by_its_mean_and_repeats_are_not_read():
    """An item is told when every judge is; a missing judge leaves its part open."""
    of = study(4, n_judges=2)
    order = orders_of(of, config())[0].tolist()
    made = Exchangeable(config(), of)
    made.update(rating(0, order[0], 1.0, judge=0))
    assert made.estimate()[0].status is Status.EMPTY
    made.update(rating(1, order[0], 1.0, judge=0, replicate=1))
    assert made.estimate()[0].status is Status.EMPTY
    made.update(rating(2, order[0], 0.0, judge=1))
    assert made.estimate()[0].value == (0.5,)
    made.update(rating(3, order[1], 1.0, judge=0))
    made.update(missing(4, order[1], judge=1))
    (e,) = made.estimate()
    assert (e.value, e.n_items, e.n_answers) == ((0.75,), 2, 3)
    assert (e.diagnostics["by_name"]["missing"], e.flags) == ([1], ("missing_imputed",))
    assert e.diagnostics["missing_reasons"] == {"a": {"refused": 1}}


# --- several systems -----------------------------------------------------------------------------


def test_arms_share_the_error_and_pairs_share_it_among_themselves():
    """Three arms: each at alpha/3; or each pair at alpha/3, and arms by themselves."""
    of = study(200, ("a", "b", "c"))
    scores = np.random.default_rng(9).integers(0, 2, (200, 3))
    lower, upper = hypergeometric_interval(in_order(of, scores)[:80].sum(), 80, 200, 0.05 / 3)
    (arms,) = told(of, scores, 80)
    assert (arms.lower[0], arms.upper[0]) == (lower, upper)
    assert (arms.alpha_split, arms.family) == ("arms", "all arms")
    alone, pairs = told(of, scores, 80, error_split="pairs", design="paired")
    assert alone.half_width < arms.half_width
    assert pairs.names == ("a - b", "a - c", "b - c")
    assert (pairs.alpha_split, pairs.family) == ("pairs", "all pairs of arms")
    half = subsample_half_width(80, 200, 0.05 / 3, 2.0)
    assert pairs.half_width == pytest.approx(half)


def test_a_paired_difference_is_bounded_as_one_and_turns_its_sign():
    """The same items; exchanged arms give the same ends with their signs changed (A18)."""
    of = study(300, ("a", "b"))
    entry = {"design": "paired", "check": "anytime", "target_half_width": 0.1}
    scores = np.random.default_rng(10).random((300, 2)) < [0.8, 0.6]
    difference, _ = told(of, scores, 200, contrast=A_B, **entry)
    paired = config(design="paired")
    lower, upper = betting_paired_wor(
        in_order(of, scores, paired)[:200],
        in_order(of, scores, paired, arm=1)[:200],
        300,
        plan=Plan(half_width=0.1),
    )
    assert (difference.lower[0], difference.upper[0]) == (lower[-1], upper[-1])
    assert difference.names == ("a - b",)
    turned, _ = told(of, scores, 200, contrast={"arm": "b", "baseline": "a"}, **entry)
    assert (turned.lower[0], turned.upper[0]) == (-upper[-1], -lower[-1])


def test_equal_arms_are_never_told_apart():
    """All differences are 0, and so is what is said of them."""
    of = study(200, ("a", "b"))
    scores = np.repeat(np.random.default_rng(11).integers(0, 2, (200, 1)), 2, axis=1)
    for n in (10, 100, 200):
        e = told(of, scores, n, design="paired", contrast=A_B, check="anytime")[0]
        assert e.lower[0] <= 0 <= e.upper[0]
        assert e.value == (0.0,)


def test_an_unpaired_difference_is_made_of_two_intervals():
    """Each arm has its own items, and half the error."""
    of = study(200, ("a", "b"))
    scores = np.random.default_rng(12).integers(0, 2, (200, 2))
    e = told(of, scores, 80, contrast={**A_B, "paired": False})[0]
    a, b = (
        hypergeometric_interval(in_order(of, scores, arm=arm)[:80].sum(), 80, 200, 0.025)
        for arm in (0, 1)
    )
    assert (e.lower[0], e.upper[0]) == pytest.approx((a.lower - b.upper, a.upper - b.lower))
    assert e.interval == "two intervals by hypergeometric"


def test_a_last_look_takes_its_part_of_the_error_at_its_number():
    """Before it the sequence stands alone at its part; from there on both do."""
    of = study(400)
    scores = (np.random.default_rng(13).random(400) < 0.5).astype(float)
    entry = {"check": "anytime", "last_look": {"items": 200, "error": 0.4}}
    x = in_order(of, scores)
    lower, upper = betting_wor(x, 400, level=1 - 0.03)
    (before,) = told(of, scores, 199, **entry)
    assert (before.lower[0], before.upper[0]) == (lower[198], upper[198])
    look = hypergeometric_interval(x[:200].sum(), 200, 400, 0.02)
    for n in (200, 230):
        (e,) = told(of, scores, n, **entry)
        assert e.lower[0] == max(lower[n - 1], look.lower)
        assert e.upper[0] == min(upper[n - 1], look.upper)
        assert e.interval.endswith("and hypergeometric at 200")
    assert look.upper - look.lower < upper[199] - lower[199]


# --- refusals ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("entry", "message"),
    [
        ({"check": "group_sequential"}, "stop.check: exchangeable takes"),
        ({"targets": ("macro",)}, "targets: macro wants strata"),
        ({"contrast": {"arm": "x", "baseline": "a"}}, "contrast: no arm 'x'"),
        ({"contrast": {"arm": "a", "baseline": "a"}}, "contrast: 'a' is compared with itself"),
        ({"contrast": A_B}, "contrast.paired: arms of the simple design"),
        ({"last_look": {"items": 5}}, "last_look: it is for runs that are watched"),
        ({"check": "anytime", "model": "exchangeable"}, "model: sequences hold for a fixed"),
        ({"strata": "equal"}, "strata: the simple design"),
        ({"criterion": "wrong"}, "criterion: no 'wrong'"),
    ],
)
def test_what_goes_not_together_is_refused(entry, message):
    """The message begins with the key at fault."""
    with pytest.raises(ValueError, match=f"^{message}"):
        Exchangeable(config(**entry), study(4, ("a", "b")))


def test_what_the_study_lacks_is_refused():
    """Graded scores have no counts, proportional strata no sequence, weights no benchmark."""
    ten, strata = study(4, scale=TEN, strata=[*"sstt"]), study(4, strata=[*"sstt"])
    with pytest.raises(ValueError, match=r"^targets: ability"):
        Exchangeable(config(targets=("ability",)), ten)
    with pytest.raises(ValueError, match=r"^sequence: prior_posterior"):
        Exchangeable(config(check="anytime", sequence="prior_posterior"), ten)
    stratified = {"design": "stratified", "check": "anytime"}
    with pytest.raises(ValueError, match=r"^target_half_width: where strata"):
        Exchangeable(config(**stratified), strata)
    with pytest.raises(ValueError, match=r"^last_look: a look"):
        Exchangeable(config(**stratified, target_half_width=0.1, last_look={"items": 2}), strata)
    with pytest.raises(ValueError, match=r"^data\.weight"):
        Exchangeable(config(), study(2, weight=[1.0, 2.0]))
    with pytest.raises(ValueError, match=r"^task\.kind"):
        Exchangeable(config(), replace(study(2), kind=Kind.COMPARE))


# --- real answers --------------------------------------------------------------------------------


@pytest.mark.parametrize(("model", "most"), [("claude-3-opus", 3200), ("mixtral-8x22b", 3900)])
def test_real_answers_stop_before_the_bound_without_data(shared_data, model, most):
    """±1.54 points, watched at every item, where the bound without data needs 5,000 (A15)."""
    answers = mmlu(shared_data)
    row = next(k for k, name in enumerate(answers.models) if model in name)
    x = np.nan_to_num(answers.right[row])
    of = study(len(x), seed=1)
    order = orders_of(of, config())[0].tolist()
    made = Exchangeable(config(check="anytime", target_half_width=0.015413), of)
    for n, item in enumerate(order, 1):
        made.tell(item, float(x[item]))
        (e,) = made.estimate() if n > 2000 else (None,)
        if e is not None and e.half_width <= 0.015413:
            break
    assert n <= most
    assert e.lower[0] <= x.mean() <= e.upper[0]
