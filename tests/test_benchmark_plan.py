"""A benchmark by method: items, dollars and half-widths before anything is asked."""

from __future__ import annotations

import json
import math
import re
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from estimators.benchmark_order import item_orders
from estimators.exchangeable import (
    ExchangeableConfig,
    items_for_half_width,
    subsample_half_width,
)
from estimators.judge_repeats import judge_half_width, noise_half_width
from estimators.sequence_ends import Scores, items_for_sequence
from estimators.subsample_bounds import items_for_hypergeometric
from estimators.targets import Contrast
from orchestrator import Campaign
from orchestrator.benchmark_plan import (
    FEWEST_SCORES,
    Assumed,
    Costs,
    ScoreBook,
    by_method,
    hardest,
    is_answered,
)
from orchestrator.core.frame import Frame
from orchestrator.core.money import FREE
from orchestrator.core.query import Kind, Role
from orchestrator.core.scale import Criterion, Scale, ScaleType
from orchestrator.core.seeds import Seeds
from orchestrator.core.stopping import StopRule
from orchestrator.core.study import Panelist, Study
from orchestrator.planning import Effort, make_plan
from orchestrator.report.planning import document, plan_lines
from orchestrator.testing.estimators import missing, rating

MMLU = 14_042
RIGHT = Scale(type=ScaleType.BOOLEAN)
GRADED = Scale(type=ScaleType.FLOAT, low=0.0, high=4.0)
STOP = StopRule()
CENT = 10**7


def study(n_items, arms=("a",), *, scale=RIGHT, strata=None, n_judges=1, hope=None):
    return Study(
        kind=Kind.CHECK,
        frame=Frame.of([f"i{k}" for k in range(n_items)], arms, stratum=strata),
        panel=tuple(Panelist(name=f"j{j}", card=FREE) for j in range(n_judges)),
        criteria=(Criterion(name="right", scale=scale),),
        seeds=Seeds(3),
        covariates={} if hope is None else {"hope": np.repeat(hope, len(arms))},
    )


def config(**entry):
    return ExchangeableConfig(name="accuracy", **{"check": "anytime", **entry})


def yes_or_no(share):
    return Scores(0.0, 1.0, share, math.sqrt(share * (1 - share)))


def costs(*each, n_systems=0, caps=None, **role_caps):
    """Of an item, nano-USD, judges first; a question can cost twice the dearest of these at most."""
    return Costs(
        expected=each,
        last=round(2 * max(each)),
        systems=range(len(each) - n_systems, len(each)),
        caps=caps or [None] * len(each),
        role_caps={Role(role): cap for role, cap in role_caps.items()},
    )


def answers(of, entry, scores=None, *, stop=STOP, price=None, **asked):
    asked = {"half_widths": (), "money": (), **asked}
    like = Assumed(scores=scores or yes_or_no(0.85), source="data")
    return by_method(entry, of, stop, like, price or costs(CENT), **asked)


def items(found):
    return {m.name: m.for_half_width[0].items for m in found.methods}


def own(found):
    (method,) = [m for m in found.methods if m.is_own]
    return method


# --- the benchmark of the paper -------------------------------------------------------------------


def test_five_thousand_of_mmlu_give_the_width_of_the_paper():
    width = float(subsample_half_width(5_000, MMLU, 0.05, model="exchangeable"))
    found = answers(study(MMLU), config(), half_widths=[width], money=[5_001 * CENT])
    by_name = {m.name: m for m in found.methods}
    assert items(found)["exchangeable"].expected == 5_000
    assert items(found)["finite-population Hoeffding"].expected == 5_001
    assert by_name["exchangeable"].for_money[0].items == 5_000
    assert by_name["exchangeable"].for_money[0].half_width.expected == pytest.approx(0.01541, 1e-3)
    assert items(found)["hypergeometric"].expected == pytest.approx(1_843, abs=15)
    assert items(found)["betting sequence without replacement"].expected == pytest.approx(
        2_710, rel=0.05
    )
    assert items(found)["prior-posterior sequence without replacement"].expected == pytest.approx(
        4_700, rel=0.05
    )


def test_the_campaigns_own_method_is_marked_and_those_that_hold_under_watching():
    found = answers(study(500), config(), half_widths=[0.05])
    assert own(found).name == "betting sequence without replacement"
    assert {m.name for m in found.methods if m.watching_covered} == {
        "betting sequence without replacement",
        "prior-posterior sequence without replacement",
    }
    assert own(answers(study(500), config(sequence="hoeffding"))).name == (
        "hoeffding sequence without replacement"
    )
    assert own(answers(study(500), config(check="end"))).name == "hypergeometric"
    # A width that ends a run must not look at the scores.
    assert own(answers(study(500), config(check="end", target_half_width=0.05))).name == (
        "finite-population Hoeffding"
    )
    model = config(check="end", model="exchangeable", target_half_width=0.05)
    assert own(answers(study(500), model)).name == "exchangeable"


def test_graded_scores_have_empirical_bernstein_and_no_counts():
    found = answers(
        study(MMLU, scale=GRADED),
        config(),
        Scores(0.0, 4.0, 3.0, 0.4),
        half_widths=[0.06],
        money=[5_001 * CENT],
    )
    names = [m.name for m in found.methods]
    assert names == [
        "betting sequence without replacement",
        "finite-population Hoeffding",
        "exchangeable",
        "empirical Bernstein-Serfling",
    ]
    # Little spread: both that see it need fewer than what doesn't.
    assert (
        items(found)[names[0]].high < items(found)[names[3]].expected < items(found)[names[1]].low
    )
    n, widths = items(found)[names[1]].expected, [m.for_money[0].half_width for m in found.methods]
    assert n == items_for_half_width(0.06, MMLU, 0.05, 4.0)
    assert widths[0].expected < widths[3].expected < widths[1].expected


# --- what is assumed ------------------------------------------------------------------------------


def test_the_range_is_that_of_standard_deviations_up_to_the_worst_case():
    found = answers(study(MMLU), config(), half_widths=[0.02])
    assert found.mean == 0.85
    assert (found.sd.low, found.sd.high) == pytest.approx((0.7 * found.sd.expected, 0.49994), 1e-3)
    for name in ("betting sequence without replacement", "hypergeometric"):
        low, high = items(found)[name].low, items(found)[name].high
        assert low < items(found)[name].expected < high
    worst = answers(study(MMLU), config(), yes_or_no(0.5), half_widths=[0.02])
    name = "betting sequence without replacement"
    assert items(worst)[name].high == items(worst)[name].expected  # no share needs more
    assert items(found)[name].high <= items(worst)[name].expected


def test_what_reads_no_scores_has_no_range():
    found = answers(study(900), config(), half_widths=[0.05], money=[200 * CENT])
    for method in found.methods:
        if method.name in {"finite-population Hoeffding", "exchangeable"}:
            assert method.for_half_width[0].items.low == method.for_half_width[0].items.high
            assert method.for_money[0].half_width.low == method.for_money[0].half_width.high


def test_the_exact_law_needs_what_its_own_function_says():
    found = answers(study(3_000), config(), yes_or_no(0.8), half_widths=[0.03])
    wanted = items_for_hypergeometric(0.03, 3_000, 0.05, 0.8)
    assert items(found)["hypergeometric"].expected == pytest.approx(wanted, abs=10)


def test_what_is_missing_widens_every_interval():
    """1 % of yes or no is half a point at either end, whatever the number of items."""
    of, like = study(MMLU), Assumed(scores=yes_or_no(0.8), source="data", missing=0.01)
    asked = {"half_widths": [0.02, 0.004], "money": [400 * CENT]}
    whole = answers(of, config(), like.scores, half_widths=[0.015], money=asked["money"])
    found = by_method(config(), of, STOP, like, costs(CENT), **asked)
    for method, without in zip(found.methods, whole.methods, strict=True):
        assert method.for_half_width[0].items == without.for_half_width[0].items
        assert method.for_half_width[1].items is None
        wider = without.for_money[0].half_width.expected + 0.005
        assert method.for_money[0].half_width.expected == pytest.approx(wider)
    lowest = by_method(config(missing="lowest"), of, STOP, like, costs(CENT), **asked)
    assert own(lowest).for_half_width[1].items is not None


# --- designs --------------------------------------------------------------------------------------


def test_arms_share_the_error():
    alone = answers(study(2_000), config(), half_widths=[0.03])
    split = answers(study(2_000, ("a", "b")), config(), half_widths=[0.03])
    kept = answers(study(2_000, ("a", "b")), config(error_split="none"), half_widths=[0.03])
    assert (alone.alpha, split.alpha, kept.alpha) == (0.05, 0.025, 0.05)
    assert items(kept) == items(alone)
    for name, range_ in items(alone).items():
        assert items(split)[name].expected > range_.expected


def test_strata_have_bounds_of_their_own():
    strata = [f"s{k % 3}" for k in range(3_000)]
    of = study(3_000, strata=strata)
    macro = answers(of, config(design="macro"), half_widths=[0.04])
    assert [m.name for m in macro.methods] == [
        "Hoeffding sequence over rounds of strata",
        "stratified finite-population Hoeffding",
        "stratified exchangeable",
    ]
    assert macro.target == "macro"
    assert own(macro).watching_covered
    stratified = config(design="stratified", target_half_width=0.04)
    kept = answers(of, stratified, half_widths=[0.04])
    assert own(kept).name == (
        "stratified finite-population Hoeffding, kept from its planned number on"
    )
    # Strata of one size, in their proportions: as one draw from all, up to what a fixed population costs.
    plain = items_for_half_width(0.04, 3_000, 0.05, model="exchangeable")
    assert items(kept)["stratified exchangeable"].expected == pytest.approx(plain, abs=3)
    assert items(kept)[own(kept).name] == items(kept)["stratified finite-population Hoeffding"]


def test_small_strata_are_exhausted_when_all_have_their_turn():
    sizes = [10, 10, 980]
    strata = [f"s{k}" for k, n in enumerate(sizes) for _ in range(n)]
    found = answers(
        study(1_000, strata=strata), config(design="macro"), half_widths=[0.03], money=[25 * CENT]
    )
    # Two strata are known whole, and the third has a weight of a third.
    wide = items_for_half_width(0.09, 980, 0.05, model="exchangeable") + 20
    assert items(found)["stratified exchangeable"].expected == pytest.approx(wide, abs=2)
    for method in found.methods:
        assert 0 < method.for_money[0].half_width.expected <= 0.5


def test_a_paired_difference_has_its_own_range_and_spread():
    of = study(4_000, ("a", "b"))
    paired = config(design="paired", contrast=Contrast(arm="a", baseline="b", paired=True))
    like = Scores(-1.0, 1.0, 0.03, 0.3)
    found = answers(of, paired, like, half_widths=[0.04])
    assert (found.target, found.alpha) == ("difference", 0.05)
    assert "hypergeometric" not in items(found)
    bound = items(found)["finite-population Hoeffding"].expected
    assert bound == items_for_half_width(0.04, 4_000, 0.05, 2.0)
    assert own(found).for_half_width[0].items.expected < bound / 3
    single = answers(
        of,
        config(contrast=Contrast(arm="a", baseline="b", paired=False)),
        half_widths=[0.04],
    )
    assert all(m.name.startswith("two intervals by ") for m in single.methods)
    each = items_for_half_width(0.02, 4_000, 0.025)
    assert items(single)["two intervals by finite-population Hoeffding"].expected == each


def test_a_target_of_every_arm_is_not_that_of_the_difference():
    of = study(4_000, ("a", "b"))
    paired = config(design="paired", contrast=Contrast(arm="a", baseline="b", paired=True))
    found = answers(of, paired, half_widths=[0.04], stop=replace(STOP, of_every_arm=True))
    assert (found.target, found.alpha) == ("arms", 0.025)


# --- expected scores, repeats, draws by a column --------------------------------------------------


def test_repeats_are_no_yes_or_no():
    names = items(answers(study(900), config(repeats=3), half_widths=[0.05])).keys()
    assert "hypergeometric" not in names
    assert "prior-posterior sequence without replacement" not in names
    assert "empirical Bernstein-Serfling" in names


@pytest.mark.parametrize(("repeats", "n_judges"), [(1, 1), (3, 1), (2, 2)])
def test_the_noise_of_expected_scores_widens_each_method_in_its_way(repeats, n_judges):
    of, m = study(4_000, n_judges=n_judges), repeats * n_judges
    like = Scores(0.0, 1.0, 0.8, 0.3)
    asked = {"half_widths": [0.05], "money": [1_001 * CENT]}
    entry = config(judgment="expected", repeats=repeats)
    by_name = {method.name: method for method in answers(of, entry, like, **asked).methods}
    bound = by_name["finite-population Hoeffding with the judge's noise"]
    assert bound.for_money[0].half_width.expected == pytest.approx(
        judge_half_width(1_000, 4_000, m, 0.05)
    )
    n = bound.for_half_width[0].items.expected
    assert judge_half_width(n, 4_000, m, 0.05) <= 0.05 < judge_half_width(n - 1, 4_000, m, 0.05)
    betting = by_name["betting sequence without replacement and Hoeffding for the judge's noise"]
    assert betting.is_own
    noise, is_binary = noise_half_width(4_000, m, 0.01), m == 1
    assert betting.for_half_width[0].items.expected == items_for_sequence(
        "betting", 0.05 - noise, 4_000, alpha=0.04, scores=yes_or_no(0.8) if is_binary else like
    )


def test_no_number_of_items_is_enough_where_the_noise_alone_is_wider():
    of, asked = study(500), {"half_widths": [0.06], "money": [10**12]}
    found = answers(of, config(judgment="expected"), **asked)
    alone = noise_half_width(500, 1, 0.01)
    assert alone > 0.06
    assert all(method.for_half_width[0].items is None for method in found.methods)
    assert own(found).for_money[0].half_width.expected == pytest.approx(alone)
    more = answers(of, config(judgment="expected", repeats=4), Scores(0.0, 1.0, 0.8, 0.3), **asked)
    assert own(more).for_half_width[0].items.expected < 500


def test_two_noises_of_a_paired_difference_are_not_those_of_one_on_its_scale():
    of = study(4_000, ("a", "b"))
    gap = Contrast(arm="a", baseline="b", paired=True)
    entry = config(design="paired", contrast=gap, judgment="expected", repeats=2)
    found = answers(of, entry, Scores(-1.0, 1.0, 0.0, 0.3), money=[10**12])
    assert own(found).for_money[0].half_width.expected == pytest.approx(
        noise_half_width(4_000, 4, 0.01, 2.0)
    )


def test_strata_have_noise_too():
    of = study(3_000, strata=[f"s{k % 3}" for k in range(3_000)])
    for design in ("macro", "stratified"):
        entry = config(design=design, judgment="expected", target_half_width=0.06)
        found = answers(of, entry, half_widths=[0.06], money=[10**12])
        widths = [method.for_money[0].half_width.expected for method in found.methods]
        error = [0.01 if method.watching_covered else 0.05 for method in found.methods]
        assert widths == pytest.approx([noise_half_width(3_000, 1, each) for each in error])
        plain = answers(of, config(design=design, target_half_width=0.06), half_widths=[0.06])
        for method, without in zip(found.methods, plain.methods, strict=True):
            more = method.for_half_width[0].items.expected
            assert more > without.for_half_width[0].items.expected


def test_draws_by_a_column_have_one_method_and_need_more_of_scores_that_it_says_nothing_of():
    rng = np.random.default_rng(4)
    alike = answers(study(3_000), config(), half_widths=[0.03])
    (even,) = answers(
        study(3_000, hope=np.ones(3_000)), config(draw_by="hope"), half_widths=[0.03]
    ).methods
    assert even.for_half_width == own(alike).for_half_width
    assert even.name == "weighted betting sequence without replacement"
    of = study(3_000, hope=np.exp(rng.standard_normal(3_000)))
    # It holds at every look, whatever the file says.
    (drawn,) = answers(of, config(draw_by="hope", check="end"), half_widths=[0.03]).methods
    assert (drawn.is_own, drawn.watching_covered) == (True, True)
    assert drawn.for_half_width[0].items.low > own(alike).for_half_width[0].items.low
    assert drawn.for_half_width[0].items.expected > 1.2 * items(alike)[own(alike).name].expected


def test_calls_are_repeated_where_items_are_dear_and_the_judge_is_noisy():
    of, entry = study(5_000), config(judgment="expected", repeats=2)
    scores = Scores(0.0, 1.0, 0.7, 0.4)

    def best(noise, *price, **more):
        like = Assumed(scores=scores, source="data", noise=noise)
        n_systems = len(price) - 1
        asked = {"half_widths": [0.05], "money": [], **more}
        each = costs(*price, n_systems=n_systems)
        return by_method(more.pop("entry", entry), of, STOP, like, each, **asked).best_repeats

    assert best(0.2, CENT, 20 * CENT) > best(0.2, CENT, CENT) >= best(0.2, CENT)
    assert best(0.0, CENT) == 1
    assert best(None, CENT) is None
    assert best(0.2, CENT, half_widths=[0.001]) is None  # no number of calls is enough
    like = Assumed(scores=scores, source="data", noise=0.2)
    these = by_method(config(repeats=2), of, STOP, like, costs(CENT), half_widths=[0.05], money=[])
    assert these.best_repeats is None


def test_what_is_missing_of_one_arm_is_not_added_to_the_spread_of_another():
    of = study(8_000, ("a", "b", "c"))
    noisy = Assumed(scores=yes_or_no(0.7), source="data", missing=0.001)
    holey = Assumed(scores=yes_or_no(0.9), source="data", missing=0.012)
    neither = Assumed(scores=yes_or_no(0.95), source="data", missing=0.0005)
    arms = [neither, noisy, holey, noisy]

    def chosen(half_width, n=2_000):
        return hardest(config(), of, STOP, arms, half_width=half_width, n=n)

    assert chosen(0.03) is noisy
    assert chosen(0.008) is holey
    assert chosen(0.001) is holey
    assert chosen(None, 500) is noisy
    assert chosen(None, 7_900) is holey


def test_a_last_look_takes_its_share_of_the_error_from_the_sequence():
    plain = answers(study(2_000), config(), half_widths=[0.03])
    look = answers(
        study(2_000),
        config(last_look={"items": 400, "error": 0.4}),
        half_widths=[0.03],
    )
    assert own(look).for_half_width[0].items.expected > own(plain).for_half_width[0].items.expected
    assert items(look)["hypergeometric"] == items(plain)["hypergeometric"]


def test_ability_and_single_strata_have_no_answers_by_method():
    assert is_answered(config())
    assert is_answered(config(targets=("macro", "ability")))
    assert not is_answered(config(targets=("ability",)))
    assert not is_answered(config(targets=("strata", "benchmark")))


# --- money ----------------------------------------------------------------------------------------


def test_items_cost_what_all_arms_and_roles_cost():
    price = costs(2 * CENT, 5 * CENT, 3 * CENT, n_systems=2)
    found = answers(study(500, ("a", "b")), config(), price=price, half_widths=[0.1], money=[])
    assert found.item == 10 * CENT
    assert found.by_role == {"system": 8 * CENT, "judge": 2 * CENT}
    for method in found.methods:
        asked = method.for_half_width[0]
        assert asked.spend.expected == asked.items.expected * 10 * CENT


@pytest.mark.parametrize(
    ("price", "money", "n"),
    [
        (costs(CENT), 101 * CENT, 100),  # the last item's worst case must fit
        (costs(CENT), CENT, 0),
        (costs(CENT), 10**12, 900),  # there are no more
        (costs(0.0), CENT, 900),
        (costs(CENT, 4 * CENT, n_systems=1, system=200 * CENT), 10**12, 50),
        (costs(CENT, 4 * CENT, n_systems=1, judge=30 * CENT), 10**12, 30),
        (costs(CENT, CENT, caps=[None, 7 * CENT]), 10**12, 7),
    ],
)
def test_money_buys_what_every_cap_allows(price, money, n):
    assert price.items(money, 900) == n


def test_no_more_items_are_bought_than_are_asked_about():
    found = answers(study(900), config(), money=[10**12], most_items=300)
    assert own(found).for_money[0].items == 300
    everything = answers(study(900), config(), money=[10**12])
    assert own(everything).for_money[0].half_width.high == 0.0
    nothing = answers(study(900), config(), money=[1])
    assert all(m.for_money[0].half_width.expected >= 0.5 for m in nothing.methods)


# --- scores that were seen ------------------------------------------------------------------------


def test_the_book_knows_means_and_spreads_of_arms_and_of_their_differences():
    rng = np.random.default_rng(1)
    of = study(200, ("a", "b"), n_judges=2)
    values = rng.integers(0, 2, (200, 2, 2)).astype(float)
    book = ScoreBook(of, None)
    for item in range(200):
        for arm in range(2):
            for judge in range(2):
                book.update(rating(0, 2 * item + arm, values[item, arm, judge], judge=judge))
    book.update(rating(0, 0, 1.0, replicate=1))  # more than are wanted, and
    book.update(rating(0, 0, 1.0, replicate=-1))  # questions beside the design are not read
    book.update(missing(0, 1))
    means = values.mean(axis=2)
    for arm in range(2):
        found = book.scores(arm)
        assert (found.low, found.high) == (0.0, 1.0)
        assert (found.mean, found.sd) == pytest.approx((means[:, arm].mean(), means[:, arm].std()))
    gap = means[:, 0] - means[:, 1]
    found = book.scores(0, 1)
    assert found == pytest.approx((-1.0, 1.0, gap.mean(), gap.std()))
    assert book.estimate() == ()
    assert [book.missing(arm) for arm in range(2)] == [0.0, 1 / 401]


def test_an_items_score_is_the_mean_of_its_repeats():
    rng = np.random.default_rng(2)
    of = study(2_000, n_judges=2)
    chance = rng.uniform(0.2, 0.8, 2_000)
    values = (rng.random((2_000, 2, 3)) < chance[:, None, None]).astype(float)
    book = ScoreBook(of, None, repeats=3)
    for unit in range(2_000):
        for judge in range(2):
            for replicate in range(3):
                one = float(values[unit, judge, replicate])
                book.update(rating(0, unit, one, judge=judge, replicate=replicate))
    means = values.mean(axis=(1, 2))
    assert book.scores(0)[2:] == pytest.approx((means.mean(), means.std()))
    # Of the mean of two judges' calls: half of one's.
    assert book.noise(0) == pytest.approx((chance * (1 - chance)).mean() / 2, rel=0.05)
    assert ScoreBook(of, None).noise(0) is None


def test_too_few_scores_are_none():
    of = study(100, ("a", "b"))
    book = ScoreBook(of, None)
    for item in range(FEWEST_SCORES - 1):
        book.update(rating(0, 2 * item, 1.0))
    assert book.scores(0) is None
    book.update(rating(0, 2 * 50, 0.0))
    assert book.scores(0) is not None
    assert book.scores(0, 1) is None


# --- the command ----------------------------------------------------------------------------------

BENCH = {
    "version": 1,
    "name": "bench",
    "seed": 5,
    "data": {
        "path": "items.jsonl",
        "id": "item",
        "strata": "subject",
        "fields": {"question": "question", "reference": "key", "candidate": "reply"},
    },
    "judges": [
        {
            "name": "checker",
            "adapter": "mock",
            "price_usd_per_1m": {"input": 1, "output": 5},
            "mock": {"truth": "truth", "sd": 0.0},
        }
    ],
    "task": {"kind": "rate", "scale": {"type": "boolean"}},
    "policy": {"kind": "subsample"},
    "budget": {"usd": 0.5},
    "stop": {"when": "target", "target_half_width": 0.05, "check": "anytime"},
    "estimate": [{"name": "accuracy", "kind": "exchangeable"}],
}


@pytest.fixture
def bench(tmp_path):
    """Write a campaign on so many items, 80 % of them right; keys can be replaced."""

    def bench(n_items=900, **sections):
        rows = [
            {
                "item": f"i{k}",
                "subject": f"s{k % 3}",
                "question": f"question {k}",
                "key": f"answer {k}",
                "reply": f"answer {k}",
                "truth": float(k % 5 > 0),
            }
            for k in range(n_items)
        ]
        text = "".join(json.dumps(row) + "\n" for row in rows)
        (tmp_path / "items.jsonl").write_text(text, encoding="utf-8")
        path = tmp_path / "campaign.yaml"
        path.write_text(json.dumps(BENCH | sections), encoding="utf-8")
        return path

    return bench


def of_systems(*names, **mock):
    """Systems that must first answer, a key that decides what it can, a judge for the rest."""
    price = {"input": 1, "output": 5}
    return {
        "data": BENCH["data"] | {"fields": {"question": "question", "reference": "key"}},
        "systems": [
            {
                "name": name,
                "adapter": "mock",
                "prompt": "{{ question }}",
                "price_usd_per_1m": price,
                "mock": {"right": 0.8, "tokens": {"in": 400, "out": 120}, **mock},
            }
            for name in names
        ],
        "judges": [
            {"name": "checker", "adapter": "mock", "price_usd_per_1m": price, "mock": {"sd": 0.1}}
        ],
        "task": {
            "kind": "check",
            "verdict": [
                {"match": "reference", "normalise": ["case", "space"]},
                {"judge": "checker"},
            ],
        },
    }


def test_a_benchmark_is_planned_by_method(bench, sortition):
    """The rows of the screen are those of the file, and what is rehearsed is what is predicted."""
    code, out, _ = sortition("plan", bench(), "--half-width", "0.03", "--usd", "0.2")
    assert code == 0
    found = json.loads((bench().parent / "plan.json").read_text("utf-8"))["by_method"]
    assert found["population"] == 900
    assert found["scores"]["mean"] == pytest.approx(0.8, abs=0.03)
    assert found["scores"]["source"] == "data"
    betting = found["methods"][0]
    assert betting["method"] == "betting sequence without replacement"
    assert (betting["is_own"], betting["watching_covered"]) == (True, True)
    assert [asked["half_width"] for asked in betting["for_half_width"]] == [0.05, 0.03]
    assert [asked["nano_usd"] for asked in betting["for_money"]] == [500_000_000, 200_000_000]
    assert found["item_nano_usd"] == 1_000_000
    # 200 dollars a thousand items, less the room for the last one's worst case.
    assert betting["for_money"][1]["items"] == pytest.approx(199, abs=1)
    lines = out.splitlines()
    head = next(line for line in lines if line.startswith("method "))
    for column in ("items for ±0.05", "items for ±0.03", "$0.50 buys", "$0.20 buys"):
        assert column in head
    row = next(line for line in lines if line.startswith("betting sequence"))
    assert "(this campaign's)" in row
    assert f"{betting['for_half_width'][0]['items']['expected']:,}" in row


def test_what_is_predicted_is_what_is_rehearsed(bench):
    """The campaign's own row and the rehearsal of the whole campaign agree."""
    plan = Campaign.from_yaml(bench(1_200, budget={"usd": 9})).plan()
    asked = own(plan.by_method).for_half_width[0]
    assert asked.spend.expected == pytest.approx(plan.spend.expected, rel=0.15)
    assert asked.items.expected == pytest.approx(plan.calls, rel=0.15)


def test_a_part_of_a_benchmark_says_the_same_as_all(bench):
    """A run that is rehearsed on a part aims there at what has the same share of its items."""
    path = bench(2_000, budget={"usd": 20}, stop=BENCH["stop"] | {"target_half_width": 0.04})
    whole = make_plan(Campaign.from_yaml(path).build(), effort=Effort(own=2_000, rivals=0))
    part = make_plan(Campaign.from_yaml(path).build(), effort=Effort(own=900, rivals=0))
    assert part.part < 0.5 < whole.part
    assert part.calls == pytest.approx(whole.calls, rel=0.15)


def test_a_part_of_a_benchmark_leaves_as_much_open_as_all(bench):
    """What is missing widens an interval by its share, of few items as of many."""
    judge = BENCH["judges"][0]
    judge = judge | {"mock": judge["mock"] | {"faults": {"refused": 0.02}}}
    stop = BENCH["stop"] | {"target_half_width": 0.03}
    path = bench(4_000, judges=[judge], budget={"usd": 20}, stop=stop)
    plan = make_plan(Campaign.from_yaml(path).build(), effort=Effort(own=1_200, rivals=1))
    assert plan.part < 0.5
    asked = own(plan.by_method).for_half_width[0]
    assert asked.items.expected == pytest.approx(plan.calls, rel=0.15)
    sure = own(answers(study(4_000), config(), yes_or_no(0.8), half_widths=[0.03]))
    assert plan.calls > 1.2 * sure.for_half_width[0].items.expected


def test_an_item_costs_as_many_calls_as_it_has_repeats(bench, sortition):
    path = bench(900, policy={"kind": "subsample", "repeats": 3}, budget={"usd": 9})
    plan = Campaign.from_yaml(path).plan()
    assert plan.by_method.item == 3_000_000
    assert plan.whole_list.calls == 2_700
    asked = own(plan.by_method).for_half_width[0]
    assert asked.spend.expected == pytest.approx(plan.spend.expected, rel=0.15)
    assert 3 * asked.items.expected == pytest.approx(plan.calls, rel=0.15)
    systems = bench(300, **of_systems("m1"), policy={"kind": "subsample", "repeats": 2})
    found = Campaign.from_yaml(systems).plan().by_method
    assert found.by_role["system"] == 1_000_000
    # A fifth of the answers are judged, twice.
    assert found.by_role["judge"] == pytest.approx(400_000, rel=0.25)


def test_a_part_of_a_repeated_benchmark_says_the_same_as_all(bench):
    repeated = {"policy": {"kind": "subsample", "repeats": 2}, "budget": {"usd": 20}}
    path = bench(2_000, **repeated, stop=BENCH["stop"] | {"target_half_width": 0.04})
    whole = make_plan(Campaign.from_yaml(path).build(), effort=Effort(own=4_000, rivals=0))
    part = make_plan(Campaign.from_yaml(path).build(), effort=Effort(own=1_800, rivals=0))
    assert part.part < 0.5 < whole.part
    assert part.calls == pytest.approx(whole.calls, rel=0.15)


def test_expected_scores_are_planned_with_their_noise(bench, sortition):
    judge = BENCH["judges"][0]
    judge = judge | {"mock": judge["mock"] | {"sd": 0.6}}
    sections = {
        "judges": [judge],
        "policy": {"kind": "subsample", "repeats": 2},
        "budget": {"usd": 9},
        "stop": BENCH["stop"] | {"target_half_width": 0.1},
        "estimate": [BENCH["estimate"][0] | {"judgment": "expected"}],
    }
    path = bench(700, **sections)
    code, out, _ = sortition("plan", path)
    assert code == 0
    assert re.search(
        r"^repeats +with judgment: expected, \d+ calls? of each judge", out, re.MULTILINE
    )
    plan = json.loads((path.parent / "plan.json").read_text("utf-8"))
    asked = plan["by_method"]["methods"][0]["for_half_width"][0]
    assert asked["spend_nano_usd"]["expected"] == pytest.approx(
        plan["run"]["spend_nano_usd"]["expected"], rel=0.15
    )
    below = bench(700, **sections | {"stop": BENCH["stop"] | {"target_half_width": 0.04}})
    _, out, _ = sortition("plan", below)
    assert "never reached" in out
    assert json.loads((path.parent / "plan.json").read_text("utf-8"))["needs_nano_usd"] is None


def test_draws_by_a_column_are_planned_as_they_are_rehearsed(bench, sortition):
    path = bench(1_000, policy={"kind": "subsample", "draw_by": "hope"}, budget={"usd": 9})
    rng = np.random.default_rng(7)
    rows = [json.loads(line) for line in (path.parent / "items.jsonl").read_text().splitlines()]
    hope = np.exp(rng.standard_normal(len(rows)))
    text = "".join(json.dumps(row | {"hope": x}) + "\n" for row, x in zip(rows, hope, strict=True))
    (path.parent / "items.jsonl").write_text(text, encoding="utf-8")
    _, out, _ = sortition("plan", path)
    assert "; nothing to do with hope" in out
    plan = json.loads((path.parent / "plan.json").read_text("utf-8"))
    (method,) = plan["by_method"]["methods"]
    asked = method["for_half_width"][0]
    assert asked["items"]["expected"] == pytest.approx(plan["run"]["calls"], rel=0.2)


def test_a_width_that_reads_no_scores_has_no_range(bench):
    stop = BENCH["stop"] | {"check": "end"}
    plan = Campaign.from_yaml(bench(1_200, stop=stop, budget={"usd": 9})).plan()
    asked = own(plan.by_method).for_half_width[0].items
    assert asked.low == asked.high == pytest.approx(plan.calls, rel=0.05)
    assert plan.spend.high - plan.spend.low < 0.1 * plan.spend.expected


def test_systems_are_planned_with_what_their_answers_cost(bench, sortition):
    """Generation and judge add up to an item's price; what the key decides costs nothing."""
    path = bench(600, **of_systems("m1", "m2"), budget={"usd": 5, "by_role": {"system": 0.5}})
    code, out, _ = sortition("plan", path)
    assert code == 0
    assert re.search(r"^m1 +system +mock ", out, re.MULTILINE)
    assert re.search(r"^checker +judge +mock ", out, re.MULTILINE)
    document = json.loads((path.parent / "plan.json").read_text("utf-8"))
    assert [judge["role"] for judge in document["judges"]] == ["judge", "system", "system"]
    found = document["by_method"]
    assert found["item_by_role_nano_usd"]["system"] == 2_000_000
    # A fifth of the answers of two systems is left to the judge, at a tenth of a cent.
    assert found["item_by_role_nano_usd"]["judge"] == pytest.approx(400_000, rel=0.2)
    assert found["alpha_each"] == 0.025
    assert found["scores"]["source"] == "mock"
    # The cap of systems ends it, whatever else there is.
    assert found["methods"][0]["for_money"][0]["items"] == 250


def test_systems_are_rehearsed_on_a_part_where_their_benchmark_is_large(bench):
    """Answers of a part are matched with the keys of its own items, and what is cut is seen to be."""
    stop = BENCH["stop"] | {"target_half_width": 0.03}
    path = bench(1_500, **of_systems("m1", "m2"), stop=stop, budget={"usd": 20})
    whole = make_plan(Campaign.from_yaml(path).build(), effort=Effort(own=6_000, rivals=0))
    part = make_plan(Campaign.from_yaml(path).build(), effort=Effort(own=1_500, rivals=0))
    assert part.part < 0.5 < whole.part
    assert part.calls == pytest.approx(whole.calls, rel=0.2)
    assert part.spend.expected == pytest.approx(whole.spend.expected, rel=0.2)
    assert part.judges[0].calls / part.judges[1].calls == pytest.approx(0.4, rel=0.25)


def test_systems_that_are_no_mocks_are_taken_to_be_right_as_often_as_not(bench):
    sections = of_systems("m1")
    live = {
        "name": "m1",
        "adapter": "openai",
        "model": "some-model",
        "prompt": "{{ question }}",
        "price_usd_per_1m": {"input": 1, "output": 5},
        "assume": {"output_tokens": 50, "missing": 0.0},
    }
    plan = Campaign.from_yaml(bench(200, **sections | {"systems": [live]})).plan()
    stated = {(a.judge, a.what): (a.value, a.source) for a in plan.assumptions}
    assert stated["m1", "right"] == (0.5, "default")
    assert plan.judges[1].expected > 0
    # Three tokens of a question, fifty of an answer.
    assert plan.judges[1].expected / plan.judges[1].calls == pytest.approx(253_000, rel=0.05)


def test_a_key_alone_decides_for_nothing(bench):
    sections = of_systems("m1")
    del sections["judges"]
    sections["task"] = {"kind": "check", "verdict": [{"match": "reference"}]}
    path = bench(300, **sections)
    text = json.loads(path.read_text("utf-8"))
    del text["judges"]
    path.write_text(json.dumps(text), encoding="utf-8")
    plan = Campaign.from_yaml(path).plan()
    assert plan.by_method.by_role["judge"] == 0
    assert plan.by_method.by_role["system"] == 1_000_000
    assert plan.by_method.mean == pytest.approx(0.8, abs=0.05)


def test_recorded_systems_serve_what_they_said(bench, tmp_path):
    rows = [f"i{k},m1,{'answer' if k % 4 else 'wrong'} {k}" for k in range(200)]
    (tmp_path / "said.csv").write_text("\n".join(["item_id,system,answer", *rows]), "utf-8")
    system = {
        "name": "m1",
        "adapter": "recorded",
        "recorded": {"path": "said.csv", "judge": "m1", "usd_per_call": 0.004},
    }
    sections = of_systems("m1") | {"systems": [system]}
    sections["task"] = {"kind": "check", "verdict": [{"match": "reference"}]}
    del sections["judges"]
    path = bench(200, **sections)
    text = {k: v for k, v in json.loads(path.read_text("utf-8")).items() if k != "judges"}
    path.write_text(json.dumps(text), encoding="utf-8")
    found = Campaign.from_yaml(path).plan().by_method
    assert found.mean == pytest.approx(0.75, abs=0.05)
    assert found.by_role == {"system": 4_000_000, "judge": 0}


@pytest.fixture
def recorded(bench, tmp_path):
    """Write a campaign of a system whose answers to 150 of 600 items are those that a run came to."""
    sections = of_systems("m1") | {"task": {"kind": "check", "verdict": [{"match": "reference"}]}}
    path = bench(600, **sections, policy={"kind": "subsample", "max_items": 150}, stop={})
    text = json.loads(path.read_text("utf-8"))
    del text["judges"]
    path.write_text(json.dumps(text), encoding="utf-8")
    study = Campaign.from_yaml(path).build().study
    asked = item_orders(study, "simple", None, None)[0][:150]
    rows = [f"i{k},m1,{'answer' if k % 4 else 'wrong'} {k}" for k in asked]
    (tmp_path / "said.csv").write_text("\n".join(["item_id,system,answer", *rows]), "utf-8")
    about = {"path": "said.csv", "judge": "m1", "usd_per_call": 0.001}
    text["systems"] = [{"name": "m1", "adapter": "recorded", "recorded": about}]
    path.write_text(json.dumps(text), encoding="utf-8")
    return path, np.mean([k % 4 > 0 for k in asked])


def test_of_what_is_recorded_those_items_are_planned_that_will_be_asked(recorded):
    """A file that holds these alone lacks nothing, and says how many of them are right."""
    path, share = recorded
    plan = make_plan(Campaign.from_yaml(path).build(), effort=Effort(own=400, rivals=1))
    assert plan.by_method.missing == 0.0
    assert plan.by_method.mean == pytest.approx(share)
    assert plan.by_method.source == "recording"
    assert plan.assumptions[0].value == "recorded in said.csv"
    assert [at.calls for at in plan.judges] == [0, 150]


def test_verdicts_that_are_all_known_are_planned_without_a_judge(bench):
    path = bench(
        300,
        data={
            "path": "items.jsonl",
            "id": "item",
            "arms": {"a": {"mark": {"from": "truth"}}, "b": {"mark": {"from": "truth"}}},
        },
        task={"kind": "check", "verdict": [{"column": "mark"}]},
        stop={"check": "end"},
        policy={"kind": "subsample", "max_items": 100},
        budget={},
    )
    text = json.loads(path.read_text("utf-8"))
    del text["judges"]
    path.write_text(json.dumps(text), encoding="utf-8")
    plan = Campaign.from_yaml(path).plan(half_widths=[0.05])
    assert plan_lines(plan)[1] == "key       200 verdicts by the key, free"
    assert not any("is never asked" in note for note in plan.notes)
    assert plan.by_method.source == "data"
    assert plan.by_method.arm in {"a", "b"}


def test_calls_that_hold_much_are_planned_on_a_part_too(bench):
    """Most of a small cap is never spent, since the next question would not fit; so it is of a part."""
    sections = of_systems("m1", "m2")
    for system in sections["systems"]:
        system["params"] = {"max_output_tokens": 50_000}
    path = bench(1_000, **sections, budget={"usd": 0.5})
    whole = make_plan(Campaign.from_yaml(path).build())
    part = make_plan(Campaign.from_yaml(path).build(), effort=Effort(own=300, rivals=0))
    assert part.part < 0.5 < whole.part
    assert whole.calls > 200
    assert part.calls == pytest.approx(whole.calls, rel=0.1)
    assert part.half_width.expected == pytest.approx(whole.half_width.expected, rel=0.3)
    bought = own(whole.by_method).for_money[0].items
    assert bought == pytest.approx(whole.judges[1].calls, rel=0.1)


@pytest.mark.parametrize("design", ["stratified", "macro"])
def test_the_range_of_the_money_is_that_of_the_own_method(design, bench):
    """Bounds that hang little on scores, or not at all, have no range of 0.7 to 1.4; of calls that take no
    time fewer may be under way at the stop than in the rehearsal."""
    sections = of_systems("m1", "m2") | {"policy": {"kind": "subsample", "design": design}}
    stop = BENCH["stop"] | {"target_half_width": 0.06}
    plan = Campaign.from_yaml(bench(1_200, **sections, budget={"usd": 9}, stop=stop)).plan()
    asked = own(plan.by_method).for_half_width[0].spend
    assert plan.spend.low == pytest.approx(asked.low, rel=0.12)
    assert plan.spend.high == pytest.approx(asked.high, rel=0.16)
    assert plan.spend.low < 0.95 * plan.spend.expected


def test_a_contrast_of_systems_is_planned_as_a_difference(bench):
    """Two systems on the same items: the spread of differences, not of scores."""
    entry = {
        "name": "gap",
        "kind": "exchangeable",
        "contrast": {"arm": "m1", "baseline": "m2", "paired": True},
    }
    path = bench(
        400,
        **of_systems("m1", "m2"),
        policy={"kind": "subsample", "design": "paired"},
        estimate=[entry],
    )
    found = Campaign.from_yaml(path).plan().by_method
    assert (found.target, found.alpha) == ("difference", 0.05)
    assert found.sd.expected == pytest.approx(math.sqrt(2 * 0.9 * 0.1), rel=0.25)
    assert own(found).name == "betting sequence without replacement"


def test_a_stated_mean_takes_the_place_of_what_was_seen(bench, sortition):
    code, _, _ = sortition("plan", bench(), "--mean", "0.95")
    found = json.loads((bench().parent / "plan.json").read_text("utf-8"))["by_method"]
    assert code == 0
    assert found["scores"]["mean"] == 0.95
    assert found["scores"]["source"] == "option"
    assert found["scores"]["sd"]["expected"] == pytest.approx(0.217945, abs=1e-6)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--usd", "0"), "--usd: wants dollars above 0"),
        (("--usd", "much"), "--usd: "),
        (("--half-width", "0"), "--half-width: wants a number above 0"),
        (("--mean", "1.5"), "--mean: wants a number from 0 to 1"),
    ],
)
def test_what_can_not_be_answered_is_refused(words, said, bench, sortition):
    code, _, err = sortition("plan", bench(), *words)
    assert code == 2
    assert said in err


def test_other_estimates_have_no_methods_to_ask_about(bench, sortition):
    path = bench(policy={"kind": "uniform"}, estimate=[{"name": "mean", "kind": "score_means"}])
    code, _, err = sortition("plan", path, "--usd", "3")
    assert code == 2
    assert "--budget-usd" in err


def test_without_target_and_cap_nothing_is_asked(bench):
    free = [BENCH["judges"][0] | {"price_usd_per_1m": "free"}]
    path = bench(200, judges=free, budget={}, stop={"check": "end"})
    assert Campaign.from_yaml(path).plan().by_method is None
    asked = Campaign.from_yaml(path).plan(half_widths=[0.05], usd=["0.1"]).by_method
    assert own(asked).name == "hypergeometric"
    assert own(asked).for_money[0].items == 200  # all of them cost nothing


def test_every_key_of_the_answers_is_documented(bench):
    page = Path(__file__).parents[1] / "docs" / "reference" / "plan.md"
    stated = set(re.findall(r"`([^`\n]+)`", page.read_text("utf-8")))
    found = document(Campaign.from_yaml(bench()).plan())["by_method"]
    assert {key for key in keys(found, "by_method") if key not in stated} == set()


def keys(value, path):
    match value:
        case dict():
            for key, inner in value.items():
                yield f"{path}.{key}"
                yield from keys(inner, f"{path}.{key}")
        case list():
            for inner in value:
                yield from keys(inner, f"{path}[]")
        case _:
            pass


# --- a million ------------------------------------------------------------------------------------


@pytest.mark.parametrize("design", ["simple", "macro", "stratified"])
def test_a_million_items_are_answered_in_a_second(design):
    n = 1_000_000
    frame = Frame(
        items=("",) * n,
        arms=("a",),
        cluster=np.arange(n),
        stratum=np.arange(n) % 57,
        group=np.zeros(n, dtype=np.int64),
        weight=np.ones(n),
        strata=tuple(f"s{k}" for k in range(57)),
    )
    of = replace(study(30), frame=frame)
    entry = config(design=design, target_half_width=0.005)
    began = time.process_time()
    found = answers(of, entry, half_widths=[0.005], money=[300 * CENT])
    assert time.process_time() - began < 1.0
    assert own(found).for_half_width[0].items.expected < n / 10
