"""score_means: values, variances, missing verdicts and flags, against loops written out."""

import math
import tracemalloc
from collections import defaultdict
from dataclasses import replace
from statistics import fmean

import numpy as np
import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st
from pydantic import ValidationError
from scipy import stats

from estimators.intervals import betting, hoeffding
from estimators.score_means import PLUGIN, ScoreMeans, ScoreMeansConfig, fit_score_means
from orchestrator.core.estimate import Status
from orchestrator.core.frame import Frame
from orchestrator.core.ids import JudgeIx, QNo, UnitIx
from orchestrator.core.money import FREE, Nano
from orchestrator.core.query import (
    Judged,
    Kind,
    MissingReason,
    Observation,
    Purpose,
    Query,
    Role,
)
from orchestrator.core.records import Record
from orchestrator.core.scale import COMPOSITE, Criterion, Scale, ScaleType
from orchestrator.core.seeds import Seeds
from orchestrator.core.study import Panelist, Study
from orchestrator.core.wire import Origin
from orchestrator.testing.estimators import (
    EstimatorContract,
    check_is_readable,
    check_is_same,
    missing,
    rated_studies,
    rating,
    ratings_of,
    renumbered_record,
    renumbered_study,
    thorough,
)

BOOLEAN = Scale(type=ScaleType.BOOLEAN)
TEN = Scale(type=ScaleType.INTEGER, low=1, high=10)
FLOAT = Scale(type=ScaleType.FLOAT, low=0, high=1)
NEW_OLD = {"contrast": {"arm": "new", "baseline": "old"}}


def study(n_items=3, arms=("",), n_judges=1, scale=TEN, *, criteria=None, kind=Kind.RATE, **frame):
    return Study(
        kind=kind,
        frame=Frame.of([f"i{k}" for k in range(n_items)], arms, **frame),
        panel=tuple(Panelist(name=f"j{j}", card=FREE) for j in range(n_judges)),
        criteria=criteria or (Criterion(name="score", scale=scale),),
        seeds=Seeds(0),
    )


def config(**entry):
    return ScoreMeansConfig(name="scores", kind="score_means", **entry)


def estimates(of, records, **entry):
    estimator = ScoreMeans(config(**entry), of)
    for record in records:
        estimator.update(record)
    return estimator.estimate()


def told(of, scores, **entry):
    """Estimate from scores (item, arm, judge, repeat), NaN where nothing was asked."""
    return estimates(of, records_of(scores), **entry)


def records_of(scores):
    n_arms = scores.shape[1]
    return [
        rating(q, i * n_arms + a, float(scores[i, a, j, r]), judge=j, replicate=r)
        for q, (i, a, j, r) in enumerate(zip(*np.nonzero(~np.isnan(scores)), strict=True))
    ]


def batch(config, study, records):
    """The batch function, fed from records."""
    values = [
        [None] * len(study.criteria) if r.is_missing else [o.value for o in r.outcome.observations]
        for r in records
    ]
    return fit_score_means(
        config,
        study,
        unit=np.array([r.query.units[0] for r in records], int),
        judge=np.array([r.query.judge for r in records], int),
        values=np.array(values, float).reshape(len(records), len(study.criteria)),
        missing=[r.outcome.reason if r.is_missing else None for r in records],
        is_pilot=np.array([r.query.purpose is Purpose.PILOT for r in records], bool),
    )


class ScoreMeansContract(EstimatorContract):
    entry = config()

    def make_estimator(self, study):
        return PLUGIN.build(self.entry, study)

    def fit(self, study, records):
        return batch(self.entry, study, records)


class TestArmsKeepTheContract(ScoreMeansContract):
    pass


class TestUnitsKeepTheContract(ScoreMeansContract):
    entry = config(per="unit")


class TestJudgesKeepTheContract(ScoreMeansContract):
    entry = config(per="judge", population="these_items")


class TestPairedDifferencesKeepTheContract(ScoreMeansContract):
    n_arms = 2
    entry = config(contrast={"arm": "arm1", "baseline": "arm0"}, confidence=0.9)


class TestUnpairedDifferencesKeepTheContract(ScoreMeansContract):
    n_arms = 2
    entry = config(contrast={"arm": "arm1", "baseline": "arm0", "paired": False})


class TestDifferencesOfTheseItemsKeepTheContract(ScoreMeansContract):
    n_arms = 2
    entry = config(
        contrast={"arm": "arm1", "baseline": "arm0"},
        criterion="criterion0",
        population="these_items",
    )


def piloted(records):
    """Ask every third question to explore."""
    return [
        replace(r, query=replace(r.query, purpose=Purpose.PILOT)) if r.q % 3 == 0 else r
        for r in records
    ]


class OneOfEach(ScoreMeansContract):
    """Each study is estimated in one of several ways; a third of the questions explore."""

    n_arms = 2
    entries = ()

    def records(self, study):
        return ratings_of(study).map(piloted)

    def entry_of(self, study):
        return self.entries[(study.frame.n_items + len(study.panel)) % len(self.entries)]

    def make_estimator(self, study):
        return PLUGIN.build(self.entry_of(study), study)

    def fit(self, study, records):
        return batch(self.entry_of(study), study, records)


DIFFERENCE = {"contrast": {"arm": "arm1", "baseline": "arm0"}}


class TestOtherTargetsKeepTheContract(OneOfEach):
    entries = (
        config(per="unit", target="common", reuse_exploration="none"),
        config(**DIFFERENCE, target="common", reuse_exploration="pooled"),
        config(per="unit", target="population", reuse_exploration="none"),
        config(**DIFFERENCE, target="population"),
        config(target="population", population="these_items", reuse_exploration="pooled"),
        config(**DIFFERENCE, check="anytime"),
    )


CALIBRATED = {"target": "common", "calibration": "relative"}


class TestCalibratedScoresKeepTheContract(OneOfEach):
    entries = (
        config(per="unit", reuse_exploration="none", **CALIBRATED),
        config(contrast={**DIFFERENCE["contrast"], "paired": False}, **CALIBRATED),
        config(population="these_items", **CALIBRATED),
    )

    @thorough
    @given(data=st.data())
    def test_numbering_of_items_and_judges_does_not_matter(self, data):
        """Scores are on the first judge's level, so here items alone are numbered otherwise."""
        of = data.draw(self.studies())
        records = data.draw(self.records(of))
        items, judges = data.draw(st.permutations(range(of.frame.n_items))), range(len(of.panel))
        other = renumbered_study(of, items, judges)
        others = [renumbered_record(of, record, items, judges) for record in records]
        for one, two in zip(self._told(of, records), self._told(other, others), strict=True):
            check_is_same(one, two)


class CountsMissingAsLow(ScoreMeans):
    def update(self, record):
        query = record.query
        low = rating(record.q, query.units[0], [0.0], judge=query.judge)
        super().update(low if record.is_missing else record)


class HasNoWidth(ScoreMeans):
    def estimate(self):
        return tuple(replace(e, lower=e.value, upper=e.value) for e in super().estimate())


class HidesWhatIsUnknown(ScoreMeans):
    def estimate(self):
        return tuple(replace(e, status=Status.OK) for e in super().estimate())


class PrefersTheFirstItem(ScoreMeans):
    def estimate(self):
        first = self._cells.main.count[:, :, 0].sum()
        return tuple(
            replace(e, upper=tuple(u + first for u in e.upper)) for e in super().estimate()
        )


class ForgetsAtALook(ScoreMeans):
    def estimate(self):
        found = super().estimate()
        self._cells.main.count[:] = 0
        return found


class PrefersTheFirstTold(ScoreMeans):
    first = None

    def update(self, record):
        self.first = self.first or record.query.judge + 1
        super().update(record)

    def estimate(self):
        more = self.first or 0
        return tuple(replace(e, upper=tuple(u + more for u in e.upper)) for e in super().estimate())


@pytest.mark.parametrize(
    ("broken", "contract"),
    [
        (CountsMissingAsLow, "test_online_equals_batch"),
        (CountsMissingAsLow, "test_without_verdicts_nothing_is_known"),
        (HasNoWidth, "test_any_data_give_estimates_that_can_be_read"),
        (HidesWhatIsUnknown, "test_any_data_give_estimates_that_can_be_read"),
        (PrefersTheFirstItem, "test_numbering_of_items_and_judges_does_not_matter"),
        (ForgetsAtALook, "test_looking_changes_nothing"),
        (PrefersTheFirstTold, "test_order_of_telling_does_not_matter"),
    ],
)
def test_the_contract_finds_an_estimator_that_breaks_it(broken, contract):
    """Each promise of the contract can be broken, and is seen to be."""

    class Suite(ScoreMeansContract):
        def make_estimator(self, study):
            return broken(self.entry, study)

    # The promise itself, without the search for the smallest example.
    promise = given(data=st.data())(getattr(Suite, contract).hypothesis.inner_test)
    with pytest.raises(AssertionError):
        settings(thorough, phases=[Phase.generate], derandomize=True)(promise)(Suite())


# --- values ----------------------------------------------------------------------------------------


def test_a_refusal_is_missing_and_never_a_score():
    """C28: scores 4, refusal, 4 have mean 4.0 with n = 2 and one missing, not 2.67."""
    (arms,) = estimates(study(), [rating(0, 0, 4.0), missing(1, 1), rating(2, 2, 4.0)])
    by_name = arms.diagnostics["by_name"]
    assert arms.value == (4.0,)
    assert (arms.n_items, arms.n_answers, by_name["missing"]) == (2, 2, [1])
    assert arms.diagnostics["missing"] == {"": {"refused": 1}}
    # With the missing one at 1 and at 10.
    assert by_name["worst_lower"] == pytest.approx([3.0])
    assert by_name["worst_upper"] == pytest.approx([6.0])


def test_not_applicable_leaves_numerator_and_denominator():
    """C28: a criterion marked "not applicable" counts neither as a score nor as missing."""
    criteria = (
        Criterion(name="correct", scale=BOOLEAN, weight=2),
        Criterion(name="helpful", scale=Scale(type=ScaleType.INTEGER, low=1, high=5), weight=1),
    )
    of = study(2, criteria=criteria)
    (composite,) = estimates(of, [rating(0, 0, [1.0, 3.0]), rating(1, 1, [None, 2.0])])
    assert composite.diagnostics["criterion"] == COMPOSITE
    assert composite.value[0] == pytest.approx(((2 * 1 + 1 * 0.5) / 3 + 0.25) / 2)
    (correct,) = estimates(
        of, [rating(0, 0, [1.0, 3.0]), rating(1, 1, [None, 2.0])], criterion="correct"
    )
    assert (correct.value, correct.n_items) == ((1.0,), 1)
    assert correct.diagnostics["not_applicable"] == {"": 1}
    assert correct.diagnostics["by_name"]["missing"] == [0]


def brute_item_value(answers):
    """Mean over judges of their means over repeats."""
    return fmean(fmean(repeats) for repeats in answers.values())


def brute_means(of, records):
    """Each arm's weighted mean over items and the judges' answers behind it, by loops."""
    answers = defaultdict(lambda: defaultdict(list))
    for record in records:
        if not record.is_missing and record.outcome.observations[0].value is not None:
            unit, judge = record.query.units[0], record.query.judge
            answers[unit][judge].append(record.outcome.observations[0].value)
    return {unit: dict(by_judge) for unit, by_judge in answers.items()}


@given(data=st.data())
def test_values_agree_with_loops(data):
    """Arms, units, judges and the paired difference, each written out in plain Python."""
    of = data.draw(rated_studies(2).filter(lambda s: len(s.criteria) == 1))
    records = data.draw(ratings_of(of))
    answers = brute_means(of, records)
    frame, weight = of.frame, of.frame.weight
    contrast = {"arm": "arm1", "baseline": "arm0"}

    def weighted(values):
        return np.average(list(values.values()), weights=[weight[i] for i in values])

    difference, arms = estimates(of, records, contrast=contrast)
    for a, value in enumerate(arms.value):
        items = {u // 2: brute_item_value(x) for u, x in answers.items() if u % 2 == a}
        assert value == pytest.approx(weighted(items) if items else math.nan, nan_ok=True)
    paired = {}
    for i in range(frame.n_items):
        old, new = answers.get(2 * i, {}), answers.get(2 * i + 1, {})
        if both := old.keys() & new.keys():
            paired[i] = fmean(fmean(new[j]) - fmean(old[j]) for j in sorted(both))
    expected = weighted(paired) if paired else math.nan
    assert difference.value[0] == pytest.approx(expected, nan_ok=True, abs=1e-12)
    assert difference.n_items == len(paired)

    units, _ = estimates(of, records, per="unit")
    assert units.names[1] == "item0/arm1"
    for u, value in enumerate(units.value):
        expected = brute_item_value(answers[u]) if u in answers else math.nan
        assert value == pytest.approx(expected, nan_ok=True)
    (judges,) = estimates(of, records, per="judge")
    for j, value in enumerate(judges.value):
        items = defaultdict(list)
        for u, x in sorted(answers.items()):
            if j in x:
                items[u // 2].append(fmean(x[j]))
        means = {i: fmean(x) for i, x in items.items()}
        assert value == pytest.approx(weighted(means) if means else math.nan, nan_ok=True)


# --- intervals -------------------------------------------------------------------------------------


def test_boolean_items_with_one_answer_each_get_wilson():
    """C37: 0 of 20 gives [0, 0.1611], 20 of 20 [0.8389, 1]; neither has zero width."""
    for value, ends in ((0.0, (0.0, 0.1611)), (1.0, (0.8389, 1.0))):
        (arms,) = estimates(study(20, scale=BOOLEAN), [rating(i, i, value) for i in range(20)])
        assert (round(arms.lower[0], 4), round(arms.upper[0], 4)) == ends
        assert (arms.interval, arms.status) == ("wilson", Status.OK)
        assert arms.se[0] > 0


@pytest.mark.parametrize(
    "frame",
    [{"cluster": list("ab") * 15}, {"weight": [1.0, 2.0] * 15}],
    ids=["clusters", "weights"],
)
def test_wilson_is_only_for_equal_independent_items(frame):
    """Clusters, weights or a second answer an item take the general interval."""
    answers = [rating(i, i, float(i % 3 == 0)) for i in range(30)]
    assert estimates(study(30, scale=BOOLEAN), answers)[0].interval == "wilson"
    assert estimates(study(30, scale=BOOLEAN, **frame), answers)[0].interval != "wilson"
    more = [*answers, rating(30, 0, 1.0, replicate=1)]
    assert estimates(study(30, scale=BOOLEAN), more)[0].interval == "t"


def test_equal_scores_have_width_and_runs_repeat_to_the_last_bit():
    """C37: all scores equal, at any number of items; the second run is identical."""
    for n in (1, 5, 40):
        runs = [estimates(study(n), [rating(i, i, 7.0) for i in range(n)]) for _ in range(2)]
        assert runs[0] == runs[1]
        (arms,) = runs[0]
        assert (arms.interval, arms.value) == ("betting", (7.0,))
        lower, upper = betting(np.full(n, 6 / 9), 0.95)
        assert arms.lower[0] == pytest.approx(1 + 9 * lower)
        assert arms.upper[0] == pytest.approx(1 + 9 * upper)


def test_many_items_get_student_with_items_as_the_sample():
    """Against scipy's one-sample interval on item means; repeats are no new items."""
    rng = np.random.default_rng(2)
    scores = rng.integers(1, 11, (30, 1, 2, 3)).astype(float)
    (arms,) = told(study(30, n_judges=2), scores)
    items = scores.mean(axis=(1, 2, 3))
    theirs = stats.t.interval(0.95, 29, loc=items.mean(), scale=stats.sem(items))
    assert (arms.lower[0], arms.upper[0]) == pytest.approx(theirs)
    assert arms.se[0] == pytest.approx(stats.sem(items))
    # Many repeats of the same few items leave the variance between items as it is.
    (more,) = told(study(30, n_judges=2), np.tile(scores, (1, 1, 1, 8)))
    assert more.se[0] == pytest.approx(arms.se[0])


def test_paired_difference_is_the_one_sample_test_on_item_differences():
    """Against scipy's paired t-test; clustered by item, across judges."""
    rng = np.random.default_rng(4)
    scores = rng.integers(1, 11, (25, 2, 2, 1)).astype(float)
    difference, arms = told(study(25, ("old", "new"), 2), scores, **NEW_OLD)
    items = scores.mean(axis=(2, 3))
    theirs = stats.ttest_rel(items[:, 1], items[:, 0]).confidence_interval(0.95)
    assert (difference.lower[0], difference.upper[0]) == pytest.approx((theirs.low, theirs.high))
    assert difference.names == ("new - old",)
    assert (difference.target, arms.target, arms.names) == ("difference", "arms", ("old", "new"))


def test_unpaired_difference_is_welch():
    """Against scipy's unequal-variance t-test on item means."""
    rng = np.random.default_rng(6)
    scores = rng.integers(1, 11, (40, 2, 1, 1)).astype(float)
    scores[25:, 1] = np.nan
    contrast = {"arm": "new", "baseline": "old", "paired": False}
    difference, _ = told(study(40, ("old", "new")), scores, contrast=contrast)
    test = stats.ttest_ind(scores[:25, 1, 0, 0], scores[:, 0, 0, 0], equal_var=False)
    theirs = test.confidence_interval(0.95)
    assert difference.interval == "welch"
    assert (difference.lower[0], difference.upper[0]) == pytest.approx((theirs.low, theirs.high))


def test_few_items_unpaired_are_joined_by_cluster():
    """With all items in both arms, betting on the unpaired difference is that on the paired one."""
    rng = np.random.default_rng(7)
    scores = rng.integers(1, 11, (9, 2, 1, 1)).astype(float)
    paired, _ = told(study(9, ("old", "new")), scores, **NEW_OLD)
    contrast = {"arm": "new", "baseline": "old", "paired": False}
    unpaired, _ = told(study(9, ("old", "new")), scores, contrast=contrast)
    assert paired.interval == unpaired.interval == "betting"
    assert (unpaired.lower, unpaired.upper) == (
        pytest.approx(paired.lower),
        pytest.approx(paired.upper),
    )
    assert "few_clusters" in paired.flags


def test_weights_and_clusters_enter_mean_and_variance():
    """Against the linearised variance of a weighted mean, by loops over clusters."""
    rng = np.random.default_rng(8)
    cluster, weight = rng.integers(0, 25, 120), rng.uniform(0.5, 3, 120)
    scores = rng.integers(1, 11, (120, 1, 1, 1)).astype(float)
    labels = [f"c{c}" for c in cluster]
    (arms,) = told(study(120, cluster=labels, weight=weight.tolist()), scores)
    x = scores.ravel()
    mean = np.average(x, weights=weight)
    z = [((weight * (x - mean))[cluster == g]).sum() / weight.sum() for g in np.unique(cluster)]
    assert arms.value[0] == pytest.approx(mean)
    n = len(z)
    assert arms.se[0] == pytest.approx(math.sqrt(n / (n - 1) * np.square(z).sum()))
    assert arms.diagnostics["by_name"]["n_clusters"] == [n]


# --- these items -----------------------------------------------------------------------------------


def test_these_items_vary_by_repeats_alone():
    """The variance is that of each cell's own repeats, by loops, however unlike the cells are."""
    rng = np.random.default_rng(9)
    scores = rng.integers(1, 11, (12, 1, 2, 6)).astype(float)
    scores[::2, :, :, 2:] = np.nan
    (arms,) = told(study(12, n_judges=2), scores, population="these_items")
    parts = []
    for cell in scores.reshape(24, 6):
        known = cell[~np.isnan(cell)]
        parts.append((known.var(ddof=1) / len(known) / 24**2, len(known) - 1))
    variance = sum(v for v, _ in parts)
    assert arms.se[0] == pytest.approx(math.sqrt(variance))
    df = variance**2 / sum(v**2 / (n + 2) for v, n in parts) - 2
    centre = np.nanmean(scores, axis=3).mean()
    theirs = stats.t.interval(0.95, df, loc=centre, scale=math.sqrt(variance))
    assert (arms.lower[0], arms.upper[0]) == pytest.approx(theirs)
    assert arms.interval == "t"
    assert "these items" in arms.estimand


def test_these_items_without_all_repeats_get_hoeffding():
    """One cell of one answer among many: nothing says how it would vary, so no variance is used."""
    rng = np.random.default_rng(9)
    scores = rng.integers(1, 11, (30, 1, 1, 3)).astype(float)
    scores[0, :, :, 1:] = np.nan
    (arms,) = told(study(30), scores, population="these_items")
    n = 1 / ((29 / 3 + 1) / 30**2)
    lower, upper = hoeffding(np.nanmean(scores, axis=3).mean(), n, 9.0, 0.95, 1.0, 10.0)
    assert arms.interval == "hoeffding"
    assert (arms.lower[0], arms.upper[0]) == (pytest.approx(lower), pytest.approx(upper))
    assert arms.status is Status.OK


def test_few_repeats_of_these_items_get_hoeffding():
    """Below 20 degrees of freedom: Hoeffding over all answers with their weights."""
    scores = np.array([[4.0, 6.0], [7.0, 8.0], [3.0, 3.0]]).reshape(3, 1, 1, 2)
    (arms,) = told(study(3), scores, population="these_items")
    lower, upper = hoeffding(scores.mean(), 6, 9.0, 0.95, 1.0, 10.0)
    assert arms.interval == "hoeffding"
    assert (arms.lower[0], arms.upper[0]) == pytest.approx((lower, upper))


@pytest.mark.parametrize("repeats", [1, 3], ids=["none", "identical"])
def test_without_real_repeats_the_variance_is_unknown(repeats):
    """No repeats, or copies of one answer, say nothing of the noise: nan and a status, not 0.

    Hoeffding's interval stands, since it needs none.
    """
    scores = np.repeat(np.arange(1.0, 11).reshape(10, 1, 1, 1), repeats, axis=3)
    (arms,) = told(study(10), scores, population="these_items")
    assert arms.status is Status.UNKNOWN_VARIANCE
    assert arms.value == (5.5,)
    assert math.isnan(arms.se[0])
    lower, upper = hoeffding(5.5, 10 * repeats, 9.0, 0.95, 1.0, 10.0)
    assert (arms.lower[0], arms.upper[0]) == (pytest.approx(lower), pytest.approx(upper))
    assert ("identical_repeats" in arms.flags) == (repeats == 3)
    units, arms = told(study(10), scores, per="unit")
    assert units.status is Status.UNKNOWN_VARIANCE
    assert all(math.isnan(se) for se in units.se)
    assert (arms.target, arms.status) == ("arms", Status.OK)


# --- units -----------------------------------------------------------------------------------------


def test_units_with_few_answers_get_hoeffding_over_the_panel():
    """Two judges with two and one answers: weights 1/4, 1/4, 1/2 on the answers."""
    records = [rating(0, 0, 4.0), rating(1, 0, 6.0, replicate=1), rating(2, 0, 9.0, judge=1)]
    units, _ = estimates(study(1, n_judges=2), records, per="unit")
    lower, upper = hoeffding(7.0, 1 / (1 / 16 + 1 / 16 + 1 / 4), 9.0, 0.95, 1.0, 10.0)
    assert units.value == (7.0,)
    assert (units.lower[0], units.upper[0]) == pytest.approx((lower, upper))
    # The second judge never repeated itself, so the unit's variance is unknown.
    assert units.status is Status.UNKNOWN_VARIANCE


def test_units_with_many_answers_get_student_with_a_floor():
    """From 20 answers: t on the cells' variances, none below its judge's pooled one."""
    rng = np.random.default_rng(11)
    scores = rng.integers(1, 11, (4, 1, 2, 12)).astype(float)
    scores[0, 0, 0] = np.where(np.arange(12) == 0, 6.0, 5.0)
    units, _ = told(study(4, n_judges=2), scores, per="unit")
    own = scores[:, 0].var(axis=-1, ddof=1)
    floored = np.maximum(own, own.mean(axis=0))
    se = np.sqrt((floored / 12).sum(axis=1)) / 2
    assert floored[0, 0] > own[0, 0]
    assert units.se == pytest.approx(se)
    half = stats.t.ppf(0.975, 22) * se
    assert units.upper == pytest.approx(np.minimum(scores.mean(axis=(1, 2, 3)) + half, 10))
    assert units.interval == "t"


# --- judges ----------------------------------------------------------------------------------------


def test_interaction_is_the_anova_mean_square_less_noise():
    """Against the two-way analysis of variance with repeats, written out."""
    rng = np.random.default_rng(12)
    scores = np.clip(np.round(rng.normal(5, 2, (50, 1, 3, 4))), 1, 10)
    (arms,) = told(study(50, n_judges=3), scores)
    cell = scores.mean(axis=3)[:, 0]
    fitted = cell.mean(axis=1, keepdims=True) + cell.mean(axis=0) - cell.mean()
    square = ((cell - fitted) ** 2).sum() / (49 * 2)
    within = scores.var(axis=3, ddof=1).mean()
    found = arms.diagnostics["interaction"]
    assert found["mean_square"] == pytest.approx(square)
    assert found["variance"] == pytest.approx(square - within / 4)
    assert (found["n_units"], found["n_judges"]) == (50, 3)


def test_interaction_is_found_where_there_is_one_and_not_where_there_is_none():
    """Simulated disagreement of SD 0.8 is found; without it the estimate is near 0."""
    rng = np.random.default_rng(13)
    item, judge = rng.normal(0.5, 0.1, (900, 1, 1, 1)), rng.normal(0, 0.02, (1, 1, 3, 1))
    noise = rng.normal(0, 0.03, (900, 1, 3, 2))
    for sd in (0.0, 0.05):
        own = rng.normal(0, sd, (900, 1, 3, 1))
        (arms,) = told(study(900, n_judges=3, scale=FLOAT), item + judge + own + noise)
        found = arms.diagnostics["interaction"]["variance"]
        error = 4 * (sd**2 + 0.03**2 / 2) * math.sqrt(2 / (899 * 2))
        assert abs(found - sd**2) < error


def test_judges_are_described():
    """Mean of cell means, mean of cell variances, answers, and the share of identical repeats."""
    scores = np.array([[5.0, 5.0, 5.0], [6.0, 8.0, 10.0], [4.0, np.nan, np.nan]])
    (arms,) = told(study(3), scores.reshape(3, 1, 1, 3))
    (judge,) = arms.diagnostics["judges"]
    assert judge == {
        "judge": "j0",
        "n_answers": 7,
        "mean": pytest.approx((5 + 8 + 4) / 3),
        "repeat_variance": pytest.approx((0 + 4) / 2),
        "identical_share": 0.5,
    }


def test_identical_repeats_are_flagged_only_where_they_are_the_rule():
    """Ten cells of equal repeats are flagged; nine, or a third of many, are not."""

    def flags(n_alike, n_other):
        n = n_alike + n_other
        scores = np.full((n, 1, 1, 3), 5.0)
        scores[n_alike:, ..., 0] = 6.0
        return told(study(n), scores)[0].flags

    assert "identical_repeats" in flags(10, 0)
    assert "identical_repeats" in flags(95, 5)
    assert "identical_repeats" not in flags(9, 0)
    assert "identical_repeats" not in flags(40, 60)


def test_an_incomplete_panel_is_flagged():
    """A unit answered by part of the panel is counted."""
    scores = np.full((3, 1, 2, 1), 5.0)
    assert "panel_incomplete" not in told(study(3, n_judges=2), scores)[0].flags
    scores[0, 0, 1] = np.nan
    (arms,) = told(study(3, n_judges=2), scores)
    assert "panel_incomplete" in arms.flags
    assert arms.diagnostics["n_incomplete_units"] == 1


# --- missing ---------------------------------------------------------------------------------------


def test_missing_that_differs_by_arm_is_flagged_with_its_bounds():
    """C28: missing 0 of 50 against 20 of 50: Fisher p < 1e-5, and bounds at the scale's ends."""
    of = study(50, ("a", "b"))
    records = [rating(i, 2 * i, 5.0) for i in range(50)]
    records += [missing(50 + i, 2 * i + 1) for i in range(20)]
    records += [rating(70 + i, 2 * i + 1, 7.0) for i in range(20, 50)]
    difference, arms = estimates(of, records, contrast={"arm": "b", "baseline": "a"})
    assert "missing_differs_by_arm" in difference.flags
    assert difference.diagnostics["missing_test"]["p"] < 1e-5
    assert arms.value == (5.0, 7.0)
    by_name = arms.diagnostics["by_name"]
    assert by_name["missing"] == [0, 20]
    assert by_name["worst_lower"] == pytest.approx([5.0, (30 * 7 + 20 * 1) / 50])
    assert by_name["worst_upper"] == pytest.approx([5.0, (30 * 7 + 20 * 10) / 50])
    by_name = difference.diagnostics["by_name"]
    assert by_name["worst_lower"] == pytest.approx([(30 * 2 + 20 * (1 - 5)) / 50])
    assert by_name["worst_upper"] == pytest.approx([(30 * 2 + 20 * (10 - 5)) / 50])


def test_exhausted_recordings_are_counted_and_accuse_no_arm():
    """What a recording could not repeat is no failure of the arm."""
    of = study(50, ("a", "b"))
    records = [rating(i, i, 5.0) for i in range(100)]
    records += [missing(100 + i, 2 * i, MissingReason.EXHAUSTED) for i in range(40)]
    (arms,) = estimates(of, records)
    assert "missing_differs_by_arm" not in arms.flags
    assert arms.diagnostics["missing"] == {"a": {"exhausted": 40}, "b": {}}
    assert arms.diagnostics["by_name"]["worst_upper"] == [5.0, 5.0]


@given(data=st.data())
def test_worst_case_bounds_hold_the_mean(data):
    """Whatever is missing, a mean lies between its bounds.

    A paired difference need not: an answer without its partner enters the bounds and not the value.
    """
    of = data.draw(rated_studies())
    records = data.draw(ratings_of(of))
    for per in ("arm", "unit", "judge"):
        found, *_ = estimates(of, records, per=per)
        by_name = found.diagnostics["by_name"]
        for value, lower, upper in zip(
            found.value, by_name["worst_lower"], by_name["worst_upper"], strict=True
        ):
            assert math.isnan(value) or lower - 1e-9 <= value <= upper + 1e-9


# --- status and refusals ---------------------------------------------------------------------------


def test_arms_without_a_common_judge_are_not_identified():
    """Each arm was answered, but no judge answered an item in both: no paired difference."""
    of = study(2, ("old", "new"), 2)
    records = [rating(0, 0, 3.0, judge=0), rating(1, 1, 8.0, judge=1)]
    difference, arms = estimates(of, records, **NEW_OLD)
    assert difference.status is Status.NOT_IDENTIFIED
    assert math.isnan(difference.value[0])
    assert arms.value == (3.0, 8.0)


def test_an_arm_without_answers_leaves_the_others_standing():
    """One arm answered, one not: partial, and the names say which."""
    (arms,) = estimates(study(2, ("old", "new")), [rating(0, 0, 3.0)])
    assert arms.status is Status.PARTIAL
    assert arms.diagnostics["by_name"]["status"] == [Status.OK, Status.EMPTY]


def test_what_systems_are_asked_is_passed_over():
    """A generation is no verdict, and a failed one no missing verdict."""
    said = Judged(observations=(), cost=Nano(1), usage=None)
    query = Query(kind=Kind.GENERATE, judge=JudgeIx(0), units=(UnitIx(0),), role=Role.SYSTEM)
    (arms,) = estimates(study(), [Record(q=QNo(0), query=query, outcome=said)])
    assert arms.status is Status.EMPTY
    assert "no_answers" in arms.flags
    assert arms.diagnostics["not_applicable"] == {"": 0}


def test_units_of_one_question_are_scored_each():
    """Several units in one call: each has its own observation."""
    query = Query(kind=Kind.RATE_BATCH, judge=JudgeIx(0), units=(UnitIx(2), UnitIx(0)))
    said = tuple(
        Observation(unit=u, slot=s, value=v)
        for s, (u, v) in enumerate(((UnitIx(2), 9.0), (UnitIx(0), 3.0)))
    )
    outcome = Judged(observations=said, cost=Nano(1), usage=None)
    of = study(kind=Kind.RATE_BATCH)
    units, _ = estimates(of, [Record(q=QNo(0), query=query, outcome=outcome)], per="unit")
    assert units.value == pytest.approx((3.0, math.nan, 9.0), nan_ok=True)


@pytest.mark.parametrize(
    ("entry", "of", "said"),
    [
        ({"calibration": "anchors"}, study(), "there are no labels"),
        ({"check": "group_sequential"}, study(), "no group-sequential bounds"),
        ({"check": "anytime", "per": "unit"}, study(), "scores of units have no sequence"),
        ({"check": "anytime", "population": "these_items"}, study(), "these_items use end"),
        ({"check": "anytime", "target": "population"}, study(), "a few judges have no sequence"),
        ({"weights": {"j1": 1}}, study(), "no judge 'j1' among j0"),
        ({"weights": {"j0": 0}}, study(), "no judge would count"),
        ({"anchor": "large"}, study(), "no judge 'large' among j0"),
        ({"anchor": "j0", "per": "unit"}, study(), "no scores of units"),
        ({"anchor": "j0", "population": "these_items"}, study(), "a sample of the items"),
        ({"anchor": "j0", "target": "common"}, study(), "the anchor's own mean"),
        ({"criterion": "tone"}, study(), "no 'tone' among score, composite"),
        (NEW_OLD, study(arms=("old", "mid")), "no arm 'new' among old, mid"),
        ({"contrast": {"arm": "a", "baseline": "a"}}, study(arms=("a", "b")), "with itself"),
        ({}, study(kind=Kind.COMPARE), "comparison"),
        ({}, study(scale=Scale(type=ScaleType.PREFERENCE)), "preferences"),
    ],
)
def test_what_it_can_not_estimate_is_refused_by_name(entry, of, said):
    """A wrong arm, judge or criterion, and what goes not together."""
    with pytest.raises(ValueError, match=said):
        PLUGIN.build(config(**entry), of)


@pytest.mark.parametrize(
    "entry",
    [{"confidence": 1.0}, {"per": "item"}, {"bootstrap": 99}, {"weights": {"j0": -1.0}}],
)
def test_wrong_settings_are_refused(entry):
    """Unknown keys and values outside their range."""
    with pytest.raises(ValidationError):
        config(**entry)


# --- cost ------------------------------------------------------------------------------------------


def test_memory_does_not_grow_with_answers():
    """Ten thousand answers more leave no trace but in the sums."""
    estimator = ScoreMeans(config(), study(50))
    record = rating(0, 0, 4.0)
    for _ in range(10):
        estimator.update(record)
    tracemalloc.start()
    before = tracemalloc.take_snapshot()
    for _ in range(10_000):
        estimator.update(record)
    after = tracemalloc.take_snapshot()
    tracemalloc.stop()
    grown = sum(s.size_diff for s in after.compare_to(before, "filename") if "estimators" in str(s))
    assert grown < 10_000


@pytest.mark.parametrize("n", [20, 300, 900, 5000])
def test_equal_repeats_have_an_interval_with_width_however_many(n):
    """Sums of squares round off; what is left of equal answers is no variance."""
    of = study(1, n_judges=1, criteria=(Criterion(name="score", scale=FLOAT),))
    (units, _) = told(of, np.full((1, 1, 1, n), 0.3537), per="unit", target="common")
    assert units.interval == "hoeffding"
    assert units.lower[0] < 0.3537 < units.upper[0]


def test_a_judge_without_answers_is_no_reference():
    """Under `common` offsets are taken to the first judge that has answered."""
    rng = np.random.default_rng(3)
    scores = np.full((30, 1, 3, 4), np.nan)
    scores[:, :, 1] = 0.4 + 0.05 * rng.standard_normal((30, 1, 4))
    scores[:, :, 2] = 0.6 + 0.05 * rng.standard_normal((30, 1, 4))
    of = study(30, n_judges=3, criteria=(Criterion(name="score", scale=FLOAT),))
    (arms,) = told(of, scores, target="common", calibration="relative")
    assert arms.value[0] == pytest.approx(0.4, abs=0.02)


def test_integer_scores_do_not_depend_on_order_to_the_last_bit():
    """Sums of integers are exact, so any order of telling gives the identical estimates."""
    rng = np.random.default_rng(14)
    records = records_of(rng.integers(1, 11, (40, 2, 3, 3)).astype(float))
    of = study(40, ("old", "new"), 3)
    shuffled = [records[k] for k in rng.permutation(len(records))]
    assert estimates(of, records, **NEW_OLD) == estimates(of, shuffled, **NEW_OLD)


def test_batch_and_online_are_equal_to_the_last_bit_in_one_order():
    """Float scores, two criteria, missing verdicts: `==`, not approximately."""
    rng = np.random.default_rng(15)
    criteria = tuple(Criterion(name=n, scale=FLOAT, weight=w) for n, w in (("a", 1), ("b", 3)))
    of = study(20, ("old", "new"), 2, criteria=criteria)
    records = [
        missing(q, int(rng.integers(40)), judge=int(rng.integers(2)))
        if rng.random() < 0.1
        else rating(q, int(rng.integers(40)), rng.random(2).tolist(), judge=int(rng.integers(2)))
        for q in range(600)
    ]
    online = estimates(of, records, **NEW_OLD)
    assert batch(config(**NEW_OLD), of, records) == online
    for estimate in online:
        check_is_readable(estimate)


def test_what_a_key_decided_is_no_judges_agreement_with_people():
    """Values have all verdicts; what is said of a judge has its own: 1 above each label, by hand."""
    of = study(20, kind=Kind.CHECK)
    labels = np.arange(20.0)[:, None] % 5 + 3
    of = replace(of, labels=labels)
    records = [rating(k, k, float(labels[k, 0]) + (k >= 10)) for k in range(20)]
    by_key = [
        replace(record, outcome=replace(record.outcome, origin=Origin.KEY)) for record in records
    ]
    (arms,) = estimates(of, by_key[:10] + records[10:])
    assert arms.value[0] == pytest.approx(labels.mean() + 0.5)
    (found,) = arms.diagnostics["labels"]
    assert (found["n_units"], found["bias"]) == (10, pytest.approx(1.0))
    (judge,) = arms.diagnostics["judges"]
    assert (judge["n_answers"], judge["mean"]) == (10, pytest.approx(labels.mean() + 1))
