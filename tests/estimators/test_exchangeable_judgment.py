"""exchangeable: repeats and the judge's noise, draws by a column, and what people would say."""

import math
from dataclasses import replace

import numpy as np
import pytest

from estimators.benchmark_order import draw_chances, item_orders
from estimators.exchangeable import Exchangeable
from estimators.human_means import human_mean
from estimators.judge_repeats import expected_interval, judge_half_width, noise_half_width
from estimators.sequences_weighted import weighted_betting_wor
from estimators.sequences_wor import Plan, betting_wor
from estimators.subsample_bounds import hypergeometric_interval, stratified_half_width
from orchestrator.core.estimate import Status
from orchestrator.testing.estimators import missing, rating
from tests.estimators.test_exchangeable import (
    A_B,
    TEN,
    ExchangeableContract,
    config,
    in_order,
    orders_of,
    study,
    told,
)

ITEMS = 14_042


class TestRepeatsKeepTheContract(ExchangeableContract):
    entry = config(repeats=2, judgment="expected")


class TestWatchedNoiseKeepsIt(ExchangeableContract):
    n_arms = 2
    entry = config(
        design="paired",
        contrast={"arm": "arm1", "baseline": "arm0"},
        judgment="expected",
        check="anytime",
        last_look={"items": 2},
    )


class TestDrawsByAColumnKeepIt(ExchangeableContract):
    entry = config(draw_by="promise")

    def _prepared(self, study):
        promise = 1.0 + np.arange(study.frame.n_units)
        return replace(super()._prepared(study), covariates={"promise": promise})


class TestWhatPeopleSayKeepsIt(ExchangeableContract):
    entry = config(targets=("human", "benchmark"))

    def _prepared(self, study):
        made = super()._prepared(study)
        labels = np.full((made.frame.n_units, len(made.criteria)), math.nan)
        labels[::2] = [c.scale.high for c in made.criteria]
        return replace(made, labels=labels)


def told_calls(of, scores, n=None, **entry):
    """Estimate from the first n places; scores are (items, calls) of one arm, NaN: no verdict."""
    made, q = Exchangeable(config(repeats=scores.shape[1], **entry), of), 0
    for item in orders_of(of, config(**entry))[0, :n].tolist():
        for replicate, value in enumerate(scores[item].tolist()):
            if math.isnan(value):
                made.update(missing(q, item, replicate=replicate))
            else:
                made.update(rating(q, item, value, replicate=replicate))
            q += 1
    return made.estimate()


# --- repeats -------------------------------------------------------------------------------------


def test_an_item_scores_by_all_its_calls():
    """Told once all are in; what comes beyond them, as by calling until two agree, is not read."""
    of = study(4, n_judges=2)
    order = orders_of(of, config())[0].tolist()
    made = Exchangeable(config(repeats=2), of)
    for q, (judge, replicate) in enumerate([(0, 0), (0, 1), (0, 2), (1, 0)]):
        made.update(rating(q, order[0], 1.0, judge=judge, replicate=replicate))
        assert made.estimate()[0].status is Status.EMPTY
    made.update(rating(9, order[0], 0.0, judge=1, replicate=1))
    (e,) = made.estimate()
    assert (e.value, e.n_items, e.n_answers) == ((0.75,), 1, 4)
    assert e.diagnostics["repeats"] == 2


def test_a_missing_call_leaves_its_part_open():
    """Of three calls on each of ten items, one of thirty is missing: a thirtieth of the scale."""
    scores = np.ones((10, 3))
    scores[4, 1] = math.nan
    (e,) = told_calls(study(10), scores)
    assert (e.lower[0], e.upper[0]) == pytest.approx((29 / 30, 1.0))
    assert (e.n_items, e.n_answers, e.diagnostics["by_name"]["missing"]) == (10, 29, [1])
    (lowest,) = told_calls(study(10), scores, missing="lowest")
    assert lowest.value == pytest.approx((29 / 30,))


# --- expected scores -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("repeats", "half_width"), [(1, 0.0114609), (3, 0.0066169), (10, 0.0036242)]
)
def test_noise_stays_when_all_items_are_in(repeats, half_width):
    """A17, pitfall 20; by the estimator, of a benchmark of this size."""
    of = study(ITEMS)
    made = Exchangeable(config(repeats=repeats, judgment="expected"), of)
    for unit in range(ITEMS):
        for call in range(repeats):
            made.tell(unit, float((unit + call) % 2))
    (e,) = made.estimate()
    assert e.half_width == pytest.approx(half_width, abs=5e-8)
    assert e.se[0] > 0
    (these,) = told_calls(study(50), np.tile([1.0, 0.0], (50, 1)))
    assert these.half_width == 0


@pytest.mark.parametrize("model", ["fixed", "exchangeable"])
def test_a_fixed_look_adds_proxies(model):
    """As `judge_half_width`; J judges count as J calls, and differences as twice as many."""
    scores = np.random.default_rng(1).integers(1, 11, (300, 2)).astype(float)
    (e,) = told_calls(study(300, scale=TEN), scores, 120, judgment="expected", model=model)
    assert e.half_width == pytest.approx(judge_half_width(120, 300, 2, 0.05, 9.0, model))
    assert e.interval.endswith("with the judge's noise")
    of = study(300, ("a", "b"), scale=TEN)
    entry = {"design": "paired", "contrast": A_B, "judgment": "expected", "model": model}
    d = told(of, scores, 120, **entry)[0]
    plain = told(of, scores, 120, **entry | {"judgment": "these"})[0]
    noises = 81 / (2 * 300) * math.log(40)  # of two independent means of 300 calls, range 9
    assert d.half_width == pytest.approx(math.sqrt(plain.half_width**2 + 2 * noises))


def test_strata_bring_their_own_noise():
    """Σ w² (v + 1/(N m)) under the root, for means and for each stratum."""
    of = study(300, strata=[*("s" * 200), *("t" * 100)])
    scores = np.random.default_rng(2).integers(0, 2, (300, 2)).astype(float)
    entry = {"design": "macro", "targets": ("macro", "strata"), "judgment": "expected"}
    macro, strata = told_calls(of, scores, 120, **entry)
    h = stratified_half_width([60, 60], [200, 100], [0.5, 0.5], 0.05)
    noise = math.log(40) / 2 * (0.25 / 400 + 0.25 / 200)
    assert macro.half_width == pytest.approx(math.sqrt(h**2 + noise))
    halves = [(u - low) / 2 for low, u in zip(strata.lower, strata.upper, strict=True)]
    expected = [judge_half_width(60, size, 2, 0.05) for size in (200, 100)]
    assert halves == pytest.approx(expected)


def test_a_watched_run_leaves_a_fifth_of_its_error_to_the_noise():
    """The sequence at .04 with what the noise leaves of the target; its ends moved out at .01."""
    scores = np.random.default_rng(3).integers(0, 2, (400, 4)).astype(float)
    (e,) = told_calls(
        study(400), scores, 150, judgment="expected", check="anytime", target_half_width=0.12
    )
    noise = noise_half_width(400, 4, 0.01)
    means = in_order(study(400), scores.mean(axis=1))[:150]
    lower, upper = betting_wor(means, 400, level=0.96, plan=Plan(half_width=0.12 - noise))
    ends = expected_interval(
        type(hypergeometric_interval(0, 1, 2, 0.1))(lower[-1], upper[-1]), 400, 4, 0.01
    )
    assert (e.lower[0], e.upper[0]) == pytest.approx((float(ends.lower), float(ends.upper)))
    assert e.diagnostics["error"]["noise"] == 0.2
    assert e.interval.endswith("and Hoeffding for the judge's noise")


def test_every_estimate_says_whose_judgment_it_is():
    """A20: estimand and error split of both."""
    scores = np.ones((20, 1))
    (these,) = told_calls(study(20), scores, 5)
    (expected,) = told_calls(study(20), scores, 5, judgment="expected")
    assert these.estimand.endswith("judged by this judge")
    assert expected.estimand.endswith("by the score that this judge is expected to give")
    assert these.diagnostics["judgment"] == "these"
    assert expected.diagnostics["judgment"] == "expected"
    assert expected.diagnostics["error"]["noise"] == 0.0


def test_a_target_below_the_noise_is_flagged():
    """No number of items reaches it; with more calls it can be reached."""
    entry = {"judgment": "expected", "target_half_width": 0.1}
    for check in ("end", "anytime"):
        for calls, flags in ((1, ("target_below_noise",)), (9, ())):
            (e,) = told_calls(study(100), np.ones((100, calls)), 50, check=check, **entry)
            assert e.flags == flags
    stratified = study(100, strata=["s", "t"] * 50)
    half = np.arange(200).reshape(100, 2) // 2 % 2 * 1.0
    (e,) = told_calls(stratified, half, design="stratified", check="anytime", **entry)
    assert e.half_width > 0.1


def test_a_kept_width_has_the_target_together_with_the_noise():
    """From its number on; never narrower, since noise is no matter of items."""
    of = study(300, strata=[*("s" * 200), *("t" * 100)])
    scores = np.tile([0.0, 1.0], (300, 2))
    entry = {"design": "stratified", "check": "anytime", "judgment": "expected"}
    (e,) = told_calls(of, scores, 200, target_half_width=0.15, **entry)
    assert 0.14 < e.half_width <= 0.15
    (all_in,) = told_calls(of, scores, target_half_width=0.15, **entry)
    assert all_in.half_width > noise_half_width(300, 4, 0.01) * (1 - 1e-9)


def test_an_interim_look_has_the_noise_too():
    scores = np.random.default_rng(4).integers(0, 2, (200, 2)).astype(float)
    widths = []
    for judgment in ("these", "expected"):
        made = Exchangeable(config(repeats=2, judgment=judgment, check="anytime"), study(200))
        for place, item in enumerate(orders_of(study(200), config())[0, :120].tolist()):
            for value in scores[item] if place != 20 else scores[item][:1]:
                made.tell(item, float(value))
        by_name = made.estimate()[0].diagnostics["by_name"]
        assert by_name["in_flight"] == [1]
        widths.append(by_name["interim_upper"][0] - by_name["interim_lower"][0])
    assert widths[1] > widths[0] + 2 * noise_half_width(200, 2, 0.01) * 0.99


@pytest.mark.parametrize("check", ["end", "anytime"])
def test_more_items_are_not_expected_to_take_the_noise_away(check):
    """The prediction for all items is the half-width that all items leave, and no less."""
    scores = np.random.default_rng(10).integers(0, 2, (600, 2)).astype(float)
    entry = {"judgment": "expected", "check": check, "target_half_width": 0.1}
    (e,) = told_calls(study(600), scores, 100, **entry)
    outlook = e.diagnostics["by_name"]["outlook"][0]
    assert outlook["n_items"][-1] == 600
    (all_in,) = told_calls(study(600), scores, **entry)
    assert outlook["half_width"][-1] == pytest.approx(all_in.half_width, rel=0.02)
    assert e.half_width > outlook["half_width"][0] > outlook["half_width"][-1]


@pytest.mark.parametrize("n_runs", [60, pytest.param(2000, marks=pytest.mark.slow)])
@pytest.mark.parametrize("check", ["end", "anytime"])
def test_expected_scores_are_covered(check, n_runs, measured):
    """A17 through the estimator: 100 of 400 items, two calls; watched at every tenth."""
    rng = np.random.default_rng(5)
    chance, missed = rng.choice([0.05, 0.5, 0.95], 400), 0
    looks = [100] if check == "end" else range(20, 401, 20)
    for seed in range(n_runs):
        of = study(400, seed=seed)
        made, ends = Exchangeable(config(repeats=2, judgment="expected", check=check), of), []
        calls = (rng.random((400, 2)) < chance[:, None]) * 1.0
        for n, item in enumerate(orders_of(of, config())[0, : max(looks)].tolist(), 1):
            for value in calls[item].tolist():
                made.tell(item, value)
            if n in looks:
                (e,) = made.estimate()
                ends.append((e.lower[0], e.upper[0]))
        missed += any(not low <= chance.mean() <= high for low, high in ends)
    measured(
        f"A17 by the estimator, check {check}, {n_runs} runs: missed, <= .05",
        f"{missed / n_runs:.4f}",
    )
    assert missed / n_runs <= 0.05 + 3 * math.sqrt(0.05 * 0.95 / n_runs)


def test_bounds_for_these_verdicts_miss_expected_scores():
    """The test above can fail: of all items, one call each, these verdicts' mean is known exactly."""
    rng, missed = np.random.default_rng(6), 0
    for seed in range(30):
        calls = (rng.random((100, 1)) < 0.5) * 1.0
        (e,) = told_calls(study(100, seed=seed), calls)
        missed += not e.lower[0] <= 0.5 <= e.upper[0]
    assert missed > 15


# --- draws by a column ---------------------------------------------------------------------------


def promising(n, arms=("a",), *, seed=0, data_seed=7, **changes):
    """Items of which a column promises who is right, and the scores."""
    rng = np.random.default_rng(data_seed)
    scores = (rng.random(n) < 0.3).astype(float)
    promise = np.repeat(np.where(scores == 1, 3.0, 0.6) * rng.uniform(0.8, 1.2, n), len(arms))
    return replace(study(n, arms, seed=seed, **changes), covariates={"promise": promise}), scores


def asked_by(of, design="simple"):
    orders = item_orders(of, design, None, "promise")
    return orders, draw_chances(of, orders, "promise")


def told_by(of, scores, n, **entry):
    made = Exchangeable(config(draw_by="promise", **entry), of)
    orders, _ = asked_by(of, entry.get("design", "simple"))
    for place in range(n):
        for arm in range(of.frame.n_arms):
            unit = int(orders[arm, place]) * of.frame.n_arms + arm
            value = float(scores.reshape(-1, of.frame.n_arms)[orders[arm, place], arm])
            if math.isnan(value):
                made.update(missing(unit, unit))
            else:
                made.update(rating(unit, unit, value))
    return made.estimate()


@pytest.mark.parametrize("check", ["end", "anytime"])
def test_items_by_a_column_are_bounded_by_weighted_bets(check):
    """To the bit those of the scores with the chances of their places; both ends of what is missing."""
    of, scores = promising(300)
    orders, (own, least) = asked_by(of)
    x = scores[orders[0, :200]]
    lower, upper = weighted_betting_wor(
        x, own[0, :200], least[0, :200], 300, plan=Plan(half_width=0.1)
    )
    (e,) = told_by(of, scores, 200, check=check, target_half_width=0.1)
    assert (e.lower[0], e.upper[0]) == (lower[-1], upper[-1])
    assert e.value[0] == pytest.approx(scores.mean(), abs=4 * e.se[0])
    assert abs(x.mean() - scores.mean()) > 0.05
    assert e.watching_covered
    assert e.interval == "weighted betting sequence without replacement"
    assert e.diagnostics["draw_by"] == "promise"
    lost = scores.copy()
    lost[orders[0, [5, 40]]] = math.nan
    (e,) = told_by(of, lost, 200, check=check)
    zeros, ones = (
        told_by(of, np.where(np.isnan(lost), end, scores), 200, check=check)[0]
        for end in (0.0, 1.0)
    )
    assert (e.lower, e.upper) == (zeros.lower, ones.upper)
    assert e.n_items == 198


def test_all_items_by_a_column_leave_no_error_but_noise():
    of, scores = promising(60)
    (e,) = told_by(of, scores, 60)
    assert (e.lower[0], e.upper[0]) == pytest.approx((scores.mean(), scores.mean()))
    (noisy,) = told_by(of, scores, 60, judgment="expected")
    assert noisy.half_width == pytest.approx(noise_half_width(60, 1, 0.01), rel=0.2)
    assert noisy.se[0] > 0


def test_differences_of_paired_arms_are_drawn_by_a_column():
    """The same items of both, and the sequence of the differences."""
    of, scores = promising(200, ("a", "b"))
    both = np.stack((scores, np.random.default_rng(8).integers(0, 2, 200) * 1.0), axis=1)
    d = told_by(of, both, 120, design="paired", contrast=A_B)[0]
    orders, (own, least) = asked_by(of, "paired")
    x = (both[:, 0] - both[:, 1])[orders[0, :120]]
    lower, upper = weighted_betting_wor(x, own[0, :120], least[0, :120], 200, low=-1.0)
    assert (d.lower[0], d.upper[0]) == (lower[-1], upper[-1])


@pytest.mark.parametrize("n_runs", [40, pytest.param(1500, marks=pytest.mark.slow)])
def test_draws_by_a_column_are_covered_and_must_be_read_as_such(n_runs, measured):
    """Watched; a sequence for items drawn alike misses nearly always: the negative control."""
    missed, missed_plain, looks = 0, 0, [*range(40, 300, 20)]
    for seed in range(n_runs):
        of, scores = promising(400, seed=seed)
        orders, _ = asked_by(of)
        made, ends = Exchangeable(config(draw_by="promise", check="anytime"), of), []
        for n, item in enumerate(orders[0, :300].tolist(), 1):
            made.tell(item, float(scores[item]))
            if n in looks:
                (e,) = made.estimate()
                ends.append((e.lower[0], e.upper[0]))
        missed += any(not low <= scores.mean() <= high for low, high in ends)
        lower, upper = betting_wor(scores[orders[0, :300]], 400)
        missed_plain += bool(((lower > scores.mean()) | (upper < scores.mean())).any())
    measured(
        f"draws by a column, watched, {n_runs} runs: missed, <= .05",
        f"{missed / n_runs:.4f}; {missed_plain / n_runs:.4f} if read as drawn alike",
    )
    assert missed / n_runs <= 0.05 + 3 * math.sqrt(0.05 * 0.95 / n_runs)
    assert missed_plain / n_runs > 0.8


# --- what people would say -----------------------------------------------------------------------


def with_labels(of, labels):
    return replace(of, labels=np.asarray(labels, dtype=float).reshape(-1, 1))


def test_people_are_estimated_by_labels_and_scores_of_told_items():
    """As `human_mean` of the told prefix, by arm at its part of the error."""
    rng = np.random.default_rng(9)
    scores = rng.integers(1, 11, (400, 2)).astype(float)
    labels = np.clip(scores + rng.integers(-2, 3, (400, 2)), 1, 10)
    labels[rng.random((400, 2)) < 0.6] = math.nan
    of = with_labels(study(400, ("a", "b"), scale=TEN), labels)
    entry = {"targets": ("benchmark", "human"), "check": "anytime"}
    arms, people = told(of, scores, 150, **entry)
    for arm in (0, 1):
        order = orders_of(of, config())[arm, :150]
        own = human_mean(
            labels[order, arm],
            scores[order, arm],
            400,
            alpha=0.025,
            scoring=Exchangeable(config(), of)._scoring,
        )
        ends = (people.value[arm], people.se[arm], people.lower[arm], people.upper[arm])
        assert ends == own.bounded[:4]
        by_name = people.diagnostics["by_name"]
        assert {key: by_name[key][arm] for key in own.about} == own.about
        assert by_name["labels_only"][arm]["upper"] > people.upper[arm]
    assert (arms.watching_covered, people.watching_covered) == (True, False)
    assert people.interval == "power-tuned prediction-powered, t"
    assert people.estimand.endswith("as people would label them")
    assert "random items" in people.diagnostics["labels_are"]
    assert (people.alpha_split, people.family) == ("arms", "all arms")


def test_few_labels_stand_alone_and_none_say_nothing():
    labels = np.where(np.arange(100) < 30, 1.0, math.nan)
    of = with_labels(study(100), labels)
    order = orders_of(of, config())[0]
    n = int(np.flatnonzero(order < 30)[18]) + 1
    (people,) = told(of, np.ones(100), n, targets=("human",))
    assert people.flags == ("few_labels", "labels_not_drawn")
    assert people.diagnostics["by_name"]["n_labels"] == [19]
    (people,) = told(of, np.ones(100), int(np.flatnonzero(order < 30)[0]), targets=("human",))
    assert people.status is Status.EMPTY


# --- refusals ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("entry", "message"),
    [
        ({"targets": ("human",)}, "targets: human wants labels"),
        ({"targets": ("human",), "design": "macro"}, "targets: human wants items drawn without"),
        ({"draw_by": "promise", "targets": ("strata",)}, "targets: strata wants items drawn alike"),
        ({"draw_by": "promise", "targets": ("human",)}, "targets: human wants items drawn alike"),
        ({"draw_by": "promise", "sequence": "hoeffding"}, "sequence: items drawn by a column"),
        (
            {"draw_by": "promise", "last_look": {"items": 5}, "check": "anytime"},
            "last_look: a fixed look",
        ),
        ({"draw_by": "promise", "model": "exchangeable"}, "model: sequences hold"),
        ({"draw_by": "promise", "design": "stratified"}, "draw_by: wants the design simple"),
        ({"draw_by": "price"}, "draw_by: the study has no numbers named 'price'"),
        ({"targets": ("ability",), "repeats": 2}, "targets: ability is a chance of yes"),
        (
            {"sequence": "prior_posterior", "repeats": 2, "check": "anytime"},
            "sequence: prior_posterior wants one judge's yes or no",
        ),
    ],
)
def test_what_does_not_go_together_is_refused(entry, message):
    of, _ = promising(20, strata=["s", "t"] * 10)
    with pytest.raises(ValueError, match=message):
        Exchangeable(config(**entry), of)
