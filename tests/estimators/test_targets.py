"""Whose judgment: panels with weights, one common score, judges like these, an anchor."""

import math
from dataclasses import replace

import numpy as np
import pytest
from scipy import stats

from estimators.cells import PRIOR_DF
from estimators.intervals import hoeffding
from estimators.regression import two_phase_mean
from estimators.score_means import ScoreMeans, ScoreMeansConfig, fit_score_means
from orchestrator.core.estimate import Status
from orchestrator.core.frame import Frame
from orchestrator.core.money import FREE
from orchestrator.core.query import Kind, Purpose
from orchestrator.core.scale import Criterion, Scale, ScaleType
from orchestrator.core.seeds import Seeds
from orchestrator.core.study import Panelist, Study
from orchestrator.testing.estimators import check_is_readable, missing, rating

FLOAT = Scale(type=ScaleType.FLOAT, low=0, high=1)
TEN = Scale(type=ScaleType.INTEGER, low=1, high=10)
NEW_OLD = {"contrast": {"arm": "new", "baseline": "old"}}


def study(scores, scale=FLOAT, **frame):
    n_items, n_arms, n_judges, _ = scores.shape
    return Study(
        kind=Kind.RATE,
        frame=Frame.of([f"i{k}" for k in range(n_items)], ("old", "new")[:n_arms], **frame),
        panel=tuple(Panelist(name=f"j{j}", card=FREE) for j in range(n_judges)),
        criteria=(Criterion(name="score", scale=scale),),
        seeds=Seeds(0),
    )


def records_of(scores, purpose=Purpose.POLICY):
    n_arms = scores.shape[1]
    found = []
    for i, a, j, r in zip(*np.nonzero(~np.isnan(scores)), strict=True):
        one = rating(len(found), i * n_arms + a, float(scores[i, a, j, r]), judge=j, replicate=r)
        found.append(replace(one, query=replace(one.query, purpose=purpose)))
    return found


def told(scores, pilot=None, scale=FLOAT, frame=None, **entry):
    """Estimate from scores (item, arm, judge, repeat), NaN where nothing was asked."""
    estimator = ScoreMeans(
        ScoreMeansConfig(name="x", kind="score_means", **entry),
        study(scores, scale, **(frame or {})),
    )
    if pilot is not None:
        for record in records_of(pilot, Purpose.PILOT):
            estimator.update(record)
    for record in records_of(scores):
        estimator.update(record)
    found = estimator.estimate()
    for estimate in found:
        check_is_readable(estimate)
    return found


def fitted(scores, pilot=None, scale=FLOAT, **entry):
    """Estimate the same by the batch function, for many answers."""
    parts = [scores[..., :0] if pilot is None else pilot, scores]
    places = [np.nonzero(~np.isnan(part)) for part in parts]
    item, arm, judge = (np.concatenate([p[axis] for p in places]) for axis in range(3))
    values = np.concatenate([part[p] for part, p in zip(parts, places, strict=True)])
    return fit_score_means(
        ScoreMeansConfig(name="x", kind="score_means", **entry),
        study(scores, scale),
        unit=item * scores.shape[1] + arm,
        judge=judge,
        values=values[:, None],
        is_pilot=np.repeat([True, False], [len(p[0]) for p in places]),
    )


# --- panels ----------------------------------------------------------------------------------------


def test_a_panel_has_the_weights_that_are_asked_for():
    """Against an average with these weights; a judge without weight counts nowhere."""
    rng = np.random.default_rng(1)
    scores = rng.random((30, 1, 3, 2))
    weights = {"j0": 1.0, "j1": 3.0}
    units, arms = told(scores, per="unit", weights=weights)
    expected = np.average(scores.mean(axis=3)[:, 0, :2], axis=1, weights=[1, 3])
    assert units.value == pytest.approx(expected)
    assert arms.value[0] == pytest.approx(expected.mean())
    assert arms.n_answers == 30 * 2 * 2
    assert "weighted" in arms.estimand
    assert "panel_incomplete" not in arms.flags


def test_weights_are_shared_among_those_that_answered():
    """Where a judge is missing the others keep their proportions, and it is flagged."""
    scores = np.array([[0.2, 0.4, 0.9], [0.1, np.nan, 0.5]]).reshape(2, 1, 3, 1)
    units, _ = told(scores, per="unit", weights={"j0": 1, "j1": 1, "j2": 2})
    assert units.value == pytest.approx(((0.2 + 0.4 + 1.8) / 4, (0.1 + 1.0) / 3))
    assert "panel_incomplete" in units.flags


# --- exploration -----------------------------------------------------------------------------------


def test_exploration_enters_values_only_where_it_is_said_to():
    """`none` leaves it out, `pooled` counts it with a flag; without a policy all answers count."""
    rng = np.random.default_rng(2)
    scores, pilot = rng.random((25, 1, 2, 2)), rng.random((25, 1, 2, 3))
    both = np.concatenate((pilot, scores), axis=3)
    (split,) = told(scores, pilot, reuse_exploration="none")
    (pooled,) = told(scores, pilot, reuse_exploration="pooled")
    (whole,) = told(scores, pilot)
    assert split.value[0] == pytest.approx(scores.mean())
    assert pooled.value == whole.value == (pytest.approx(both.mean()),)
    assert split.n_answers == 100
    assert pooled.n_answers == 250
    assert "exploration_reused" in pooled.flags
    assert pooled.diagnostics["unbiased"] is False
    for other in (split, whole):
        assert "exploration_reused" not in other.flags
        assert "unbiased" not in other.diagnostics
    # Judges are described by all that they said.
    assert [j["n_answers"] for j in split.diagnostics["judges"]] == [125, 125]


def test_exploration_tells_the_noise_of_what_is_counted():
    """One fresh answer a cell has no variance of its own; the judge's pooled noise is the floor."""
    rng = np.random.default_rng(3)
    pilot, scores = rng.random((20, 1, 1, 4)), rng.random((20, 1, 1, 1))
    units, _ = told(scores, pilot, per="unit", reuse_exploration="none")
    noise = np.concatenate((pilot, scores), axis=3).var(axis=3, ddof=1).mean()
    assert units.se == pytest.approx(np.full(20, math.sqrt(noise)))
    assert units.status is Status.OK


def test_missing_exploration_does_not_move_the_worst_case():
    """Bounds are of the value, and exploration is not in it; the share counts all."""
    scores, pilot = np.full((4, 1, 1, 1), 0.5), np.full((4, 1, 1, 1), 0.25)
    estimator = ScoreMeans(
        ScoreMeansConfig(name="x", kind="score_means", reuse_exploration="none"), study(scores)
    )
    lost = missing(99, 0)
    estimator.update(replace(lost, query=replace(lost.query, purpose=Purpose.PILOT)))
    for record in [*records_of(pilot, Purpose.PILOT), *records_of(scores)]:
        estimator.update(record)
    (arms,) = estimator.estimate()
    by_name = arms.diagnostics["by_name"]
    assert by_name["worst_lower"] == by_name["worst_upper"] == [0.5]
    assert arms.diagnostics["missing_share"] == {"old": pytest.approx(1 / 9)}


# --- one common score ------------------------------------------------------------------------------


def test_a_common_score_weighs_judges_by_the_precision_of_their_noise():
    """By loops: n/variance, the variance the judge's own over all cells, pulled to the panel's."""
    rng = np.random.default_rng(4)
    sd = np.array([0.02, 0.06, 0.12]).reshape(1, 1, 3, 1)
    scores = 0.5 + sd * rng.normal(size=(30, 1, 3, 5))
    scores[::3, :, 0, 2:] = scores[1, :, 2] = np.nan
    units, arms = told(scores, per="unit", target="common")
    own, df = np.zeros(3), np.zeros(3)
    for j in range(3):
        cells = [c[~np.isnan(c)] for c in scores[:, 0, j]]
        df[j] = sum(len(c) - 1 for c in cells if len(c))
        own[j] = sum(((c - c.mean()) ** 2).sum() for c in cells if len(c)) / df[j]
    pulled = (df * own + PRIOR_DF * (df * own).sum() / df.sum()) / (df + PRIOR_DF)
    expected = []
    for item in scores[:, 0]:
        n = (~np.isnan(item)).sum(axis=1)
        weight = n / np.maximum(pulled, 1e-4)
        means = [np.nanmean(x) if k else 0.0 for x, k in zip(item, n, strict=True)]
        expected.append(np.average(means, weights=weight))
    assert units.value == pytest.approx(expected)
    assert arms.value[0] == pytest.approx(np.mean(expected))
    assert "common" in units.estimand


def test_two_judges_of_known_noise_are_pooled_as_by_hand():
    """C49: means 3.0 (variance 0.04) and 3.6 (0.16): 3.12, SE 0.1789, whoever joins by luck.

    Standardised answers make the means and variances exact; the pull to the panel's variance is
    felt in the fourth digit.
    """
    rng = np.random.default_rng(5)
    answers = rng.normal(size=(2, 4_000))
    answers -= answers.mean(axis=1, keepdims=True)
    answers /= answers.std(axis=1, ddof=1, keepdims=True)
    sd = np.sqrt(np.array([[0.04], [0.16]]) * 4_000)
    scores = np.full((1, 1, 4, 4_000), np.nan)
    scores[0, 0, :2] = np.array([[3.0], [3.6]]) + sd * answers
    wide = Scale(type=ScaleType.FLOAT, low=-200, high=200)
    units, _ = told(scores[:, :, :2], per="unit", target="common", scale=wide)
    assert units.value[0] == pytest.approx(3.12, abs=5e-4)
    assert units.se[0] == pytest.approx(0.1789, abs=1e-4)
    found = units.diagnostics["disagreement"]
    assert found["q"] == pytest.approx(0.6**2 / 0.2, rel=2e-3)
    assert found["p"] == pytest.approx(stats.chi2.sf(1.8, 1), abs=0.002)
    # One answer, and two that are equal: finite, and no weight to speak of among 4,000.
    scores[0, 0, 2, 0] = scores[0, 0, 3, 0] = scores[0, 0, 3, 1] = 150.0
    more, _ = told(scores, per="unit", target="common", scale=wide)
    assert more.value[0] == pytest.approx(3.12 + 3 / 4_000 * 147, abs=0.1)
    assert 0 < more.se[0] < 0.2


def test_one_judge_an_item_makes_the_plain_mean():
    """Under the sparse plan the weights cancel: the item's score is the mean of fresh answers."""
    rng = np.random.default_rng(6)
    pilot = rng.random((20, 1, 3, 3))
    scores = np.full((20, 1, 3, 6), np.nan)
    judge = rng.integers(0, 3, 20)
    scores[np.arange(20), 0, judge] = rng.random((20, 6))
    units, _ = told(scores, pilot, per="unit", target="common", reuse_exploration="none")
    assert units.value == pytest.approx(np.nanmean(scores, axis=(1, 2, 3)))


def test_relative_calibration_takes_out_offsets_and_counts_their_error():
    """Means are on the first judge's level; the offset's error is in the standard error."""
    rng = np.random.default_rng(7)
    item = rng.normal(0.5, 0.05, (40, 1, 1, 1))
    pilot = item + np.array([0.0, 0.2]).reshape(1, 1, 2, 1) + rng.normal(0, 0.05, (40, 1, 2, 3))
    scores = np.full((40, 1, 2, 8), np.nan)
    scores[:20, :, 0] = item[:20, :, 0] + rng.normal(0, 0.05, (20, 1, 8))
    scores[20:, :, 1] = item[20:, :, 0] + 0.2 + rng.normal(0, 0.05, (20, 1, 8))
    entry = {"target": "common", "calibration": "relative", "reuse_exploration": "none"}
    units, arms = told(scores, pilot, per="unit", **entry)
    apart = (pilot[:, 0, 1] - pilot[:, 0, 0]).mean(axis=1)
    offset, se = apart.mean(), stats.sem(apart)
    values = np.nanmean(scores, axis=(1, 2, 3)) - np.repeat([0, offset], 20)
    assert units.value == pytest.approx(values)
    assert arms.value[0] == pytest.approx(values.mean())
    # Half of the items carry it, so half of its error is in the mean.
    assert arms.se[0] == pytest.approx(math.hypot(stats.sem(values), se / 2))
    assert arms.diagnostics["by_name"]["offset_se"] == [pytest.approx(se / 2)]
    assert units.diagnostics["by_name"]["offset_se"] == pytest.approx([0.0] * 20 + [se] * 20)
    assert arms.diagnostics["offsets"][1] == {
        "judge": "j1",
        "offset": pytest.approx(offset),
        "se": pytest.approx(se),
        "n_units": 40,
    }
    assert "judges_disagree" in arms.flags
    assert "level of j0" in arms.estimand


def test_without_calibration_an_offset_is_shown_and_not_taken_out():
    """The warning is there, the value as it was; a panel takes it for what it is."""
    rng = np.random.default_rng(8)
    scores = 0.4 + np.array([0.0, 0.2]).reshape(1, 1, 2, 1) + rng.normal(0, 0.02, (40, 1, 2, 3))
    for calibration in (None, "none"):
        (arms,) = told(scores, target="common", calibration=calibration)
        assert 0.45 < arms.value[0] < 0.55
        assert "judges_disagree" in arms.flags
    (panel,) = told(scores)
    assert "judges_disagree" not in panel.flags
    assert panel.diagnostics["offsets"][1]["offset"] == pytest.approx(0.2, abs=0.01)


def test_relative_calibration_meets_the_unbiased_world():
    """B6: offsets of SD .05, one judge an item: within 25 % of the error without offsets.

    Uncalibrated, more budget does not help.
    """
    rng = np.random.default_rng(9)
    n_items, n_judges = 300, 5
    sd = np.geomspace(0.05, 0.3, n_judges).reshape(1, 1, -1, 1)

    def rmse(n, n_pilot, *, shift, calibration):
        errors = []
        for _ in range(4):
            item = 0.2 + 0.6 * rng.random((n_items, 1, 1, 1))
            offset = shift * rng.normal(0, 0.05, (1, 1, n_judges, 1))
            offset[0, 0, 0] = 0
            pilot = item + offset + sd * rng.normal(size=(n_items, 1, n_judges, n_pilot))
            scores = np.full((n_items, 1, n_judges, n), np.nan)
            judge = rng.integers(0, 3, n_items)
            place = np.arange(n_items), 0, judge
            scores[place] = (item[:, 0, 0] + offset[0, 0, judge]) + sd[0, 0, judge] * rng.normal(
                size=(n_items, n)
            )
            units, _ = fitted(
                scores,
                pilot,
                scale=Scale(type=ScaleType.FLOAT, low=-1, high=2),
                per="unit",
                target="common",
                calibration=calibration,
                reuse_exploration="none",
            )
            errors.append(np.square(np.array(units.value) - item.ravel()).mean())
        return math.sqrt(np.mean(errors))

    for n in (8, 40):
        plain = rmse(n, 4, shift=0, calibration="none")
        assert rmse(n, 4, shift=1, calibration="relative") <= 1.25 * plain
    assert rmse(40, 4, shift=1, calibration="none") > 2 * plain


@pytest.mark.parametrize("paired", [True, False])
def test_a_difference_is_refused_where_offsets_depend_on_the_arm(paired):
    """A judge that likes one arm more: no common difference; panel and arms stand."""
    rng = np.random.default_rng(10)
    scores = rng.normal(0.5, 0.03, (60, 2, 2, 2))
    scores[:, 1, 1] += 0.1
    contrast = {**NEW_OLD["contrast"], "paired": paired}
    for calibration in ("none", "relative"):
        difference, arms = told(scores, contrast=contrast, target="common", calibration=calibration)
        assert difference.status is Status.NOT_IDENTIFIED
        assert math.isnan(difference.value[0])
        assert math.isnan(difference.lower[0])
        assert "offset_depends_on_arm" in difference.flags
        assert arms.status is Status.OK
        assert difference.diagnostics["offset_arm_test"]["p"] < 0.01
    difference, _ = told(scores, contrast=contrast)
    assert difference.status is Status.OK
    assert "offset_depends_on_arm" not in difference.flags


def test_a_small_or_constant_offset_refuses_nothing():
    """The same offset in both arms is no obstacle to a common difference."""
    rng = np.random.default_rng(11)
    scores = rng.normal(0.5, 0.03, (60, 2, 2, 2)) + np.array([0, 0.2]).reshape(1, 1, 2, 1)
    difference, _ = told(scores, **NEW_OLD, target="common", calibration="relative")
    assert difference.status is Status.OK
    assert "judges_disagree" in difference.flags


def test_a_corrected_score_beyond_the_scale_is_moved_to_its_end():
    """A lenient judge's correction must not leave the scale, and no interval has zero width."""
    pilot = np.tile([[0.9], [0.5]], (30, 1, 1, 3)).reshape(30, 1, 2, 3)
    pilot = np.clip(pilot + np.random.default_rng(1).normal(0, 0.01, pilot.shape), 0, 1)
    scores = np.full((30, 1, 2, 25), np.nan)
    scores[:, :, 1] = np.clip(np.random.default_rng(2).normal(0.95, 0.02, (30, 1, 25)), 0, 1)
    entry = {"target": "common", "calibration": "relative", "reuse_exploration": "none"}
    units, arms = told(scores, pilot, per="unit", **entry)
    assert set(units.value) == {1.0}
    assert arms.value == (1.0,)
    assert all(lower < 1.0 for lower in (*units.lower, *arms.lower))
    assert all(upper == 1.0 for upper in (*units.upper, *arms.upper))


def test_a_judge_that_shares_no_unit_with_the_first_is_left_out_of_a_calibrated_score():
    """Its level is unknown, so its answers can't be put on the common one: said by a flag."""
    rng = np.random.default_rng(12)
    scores = rng.random((30, 1, 2, 2))
    scores[:15, :, 1] = scores[15:, :, 0] = np.nan
    (arms,) = told(scores, target="common", calibration="relative")
    assert arms.value[0] == pytest.approx(scores[:15, :, 0].mean())
    assert arms.n_items == 15
    assert "judge_without_offset" in arms.flags


def test_disagreement_on_single_units_is_a_warning_where_one_score_is_taken_for_granted():
    """Interaction beyond the noise that is left: common and population say so, a panel does not."""
    rng = np.random.default_rng(13)
    own = rng.normal(0, 0.1, (80, 1, 3, 1))
    scores = 0.5 + own + rng.normal(0, 0.03, (80, 1, 3, 4))
    for target in ("common", "population"):
        assert "interaction_exceeds_noise" in told(scores, target=target)[0].flags
        assert "interaction_exceeds_noise" not in told(scores - own, target=target)[0].flags
    (panel,) = told(scores)
    assert "interaction_exceeds_noise" not in panel.flags
    assert panel.diagnostics["disagreement"]["p"] < 1e-6
    found = panel.diagnostics["interaction"]
    assert found["lower"] < found["variance"] < found["upper"]
    assert found["lower"] > 0


# --- judges like these -----------------------------------------------------------------------------


def test_a_population_of_judges_adds_the_variance_of_their_levels():
    """Equal cells: the items' error and that of the judges' levels, with J - 1 degrees of freedom."""
    rng = np.random.default_rng(14)
    level = rng.normal(0, 0.05, (1, 1, 5, 1))
    scores = 0.5 + level + rng.normal(0, 0.1, (60, 1, 5, 1)) + rng.normal(0, 0.05, (60, 1, 5, 2))
    (arms,) = told(scores, target="population")
    cell = scores.mean(axis=3)[:, 0]
    own = cell.mean(axis=0)
    left = cell - cell.mean(axis=1, keepdims=True) - own + cell.mean()
    square = (left**2).sum() / (59 * 4)
    noise = scores.var(axis=3, ddof=1).mean(axis=(0, 1))
    pulled = (60 * noise + PRIOR_DF * noise.mean()) / (60 + PRIOR_DF)
    weight = 2 / (2 * (square - noise.mean() / 2) + pulled)
    share = weight / weight.sum()
    of_levels = own.var(ddof=1) - square / 60
    variance = (cell @ share).var(ddof=1) / 60 + of_levels * (share**2).sum()
    centre = (cell @ share).mean()
    assert arms.value[0] == pytest.approx(centre)
    assert arms.se[0] == pytest.approx(math.sqrt(variance))
    theirs = stats.t.interval(0.95, 4, loc=centre, scale=math.sqrt(variance))
    assert (arms.lower[0], arms.upper[0]) == pytest.approx(theirs)
    assert "judges_no_random_sample" in arms.flags
    assert "judges like these" in arms.estimand


def test_a_population_weighs_judges_by_their_precision_as_judges():
    """Weights n/(n eta^2 + sigma^2), by hand: more repeats of a judge count less than more judges."""
    rng = np.random.default_rng(15)
    scores = 0.5 + rng.normal(0, 0.1, (50, 1, 3, 1)) + rng.normal(0, 0.1, (50, 1, 3, 6))
    scores[0, :, 1, 1:] = np.nan
    units, _ = told(scores, per="unit", target="population")
    found = units.diagnostics["interaction"]
    squares, df = np.zeros(3), np.zeros(3)
    for j in range(3):
        for cell in scores[:, 0, j]:
            known = cell[~np.isnan(cell)]
            squares[j] += ((known - known.mean()) ** 2).sum()
            df[j] += len(known) - 1
    noise = (squares + PRIOR_DF * squares.sum() / df.sum()) / (df + PRIOR_DF)
    n = np.array([6, 1, 6])
    weight = n / (n * found["variance"] + noise)
    expected = np.average(np.nanmean(scores[0, 0], axis=1), weights=weight)
    assert units.value[0] == pytest.approx(expected)
    share = weight / weight.sum()
    levels = max(found["judge_variance"], 0)
    # Each judge's part: its noise, its view of the unit, its level.
    own = np.array([scores[0, 0, 0].var(ddof=1), 0, scores[0, 0, 2].var(ddof=1)])
    noise = np.maximum(own, squares / df)
    variance = (share**2 * (noise / n + found["variance"] + levels)).sum()
    assert units.se[0] == pytest.approx(math.sqrt(variance))


def test_one_judge_says_nothing_of_judges_like_it():
    """No second judge: the value stands, its uncertainty is unknown."""
    scores = np.random.default_rng(16).random((40, 1, 1, 3))
    units, arms = told(scores, per="unit", target="population")
    assert arms.status is units.status is Status.UNKNOWN_VARIANCE
    assert math.isnan(arms.lower[0])
    assert (units.lower[0], units.upper[0]) == (0.0, 1.0)


def population_runs(n_runs, case):
    """Share of runs that hold the truth, all judges drawn afresh each time."""
    rng, hits = np.random.default_rng(17), 0
    for _ in range(n_runs):
        shape = (60, 2, 4, 2)
        level, arm_level = rng.normal(0, 0.04, (1, 1, 4, 1)), rng.normal(0, 0.03, (1, 2, 4, 1))
        scores = 0.5 + level + arm_level + rng.normal(0, 0.05, (60, 2, 4, 1))
        scores = scores + rng.normal(0, 0.05, (60, 1, 1, 1)) + rng.normal(0, 0.05, shape)
        match case:
            case "arm":
                (found,) = fitted(scores[:, :1], target="population", confidence=0.9)
                truth = 0.5
            case "difference":
                found, _ = fitted(scores, **NEW_OLD, target="population", confidence=0.9)
                truth = 0.0
            case "these_items":
                fixed = np.linspace(-0.1, 0.1, 60).reshape(-1, 1, 1, 1)
                drawn = 0.5 + level + fixed + rng.normal(0, 0.05, (60, 1, 4, 2))
                (found,) = fitted(
                    drawn, target="population", population="these_items", confidence=0.9
                )
                truth = 0.5
        hits += found.lower[0] <= truth <= found.upper[0]
    return hits / n_runs


@pytest.mark.parametrize("n_runs", [60, pytest.param(1_000, marks=pytest.mark.slow)])
@pytest.mark.parametrize("case", ["arm", "difference", "these_items"])
def test_judges_drawn_afresh_are_covered(case, n_runs, measured):
    """Levels, views of arms and of units are drawn anew: at least nominal."""
    found = population_runs(n_runs, case)
    measured(
        f"score_means: coverage >= 0.9, judges like these, {case}, {n_runs} runs", f"{found:.4f}"
    )
    assert found >= 0.9 - 3 * math.sqrt(0.9 * 0.1 / n_runs)


# --- an anchor -------------------------------------------------------------------------------------


def anchored_scores(rng, n_items=120, n_anchored=40):
    item = rng.normal(5.5, 1.5, (n_items, 1, 1, 1))
    scores = item + rng.normal(0, 0.7, (n_items, 2, 3, 1))
    scores = np.clip(np.round(scores), 1, 10)
    scores[n_anchored:, :, 0] = np.nan
    return scores


def test_with_an_anchor_means_are_by_regression_on_the_others():
    """Arms and the paired difference against the regression itself."""
    scores = anchored_scores(np.random.default_rng(18))
    difference, arms = told(scores, scale=TEN, anchor="j0", **NEW_OLD)
    cell = scores[..., 0]
    weight, cluster = np.ones(120), np.arange(120)
    for a in (0, 1):
        found = two_phase_mean(cell[:, a, 0], cell[:, a, 1:], weight, cluster)
        assert arms.value[a] == pytest.approx(found.value)
        assert arms.se[a] == pytest.approx(math.sqrt(found.variance))
        theirs = stats.t.interval(0.95, found.df, found.value, math.sqrt(found.variance))
        assert (arms.lower[a], arms.upper[a]) == pytest.approx(theirs)
        assert found.variance < found.alone.variance
    apart = cell[:, 1] - cell[:, 0]
    found = two_phase_mean(apart[:, 0], apart[:, 1:], weight, cluster)
    assert difference.value[0] == pytest.approx(found.value)
    assert arms.diagnostics["by_name"]["n_anchored"] == [40, 40]
    assert (arms.n_items, arms.interval) == (120, "t")
    assert "judged by j0" in difference.estimand
    assert "panel_incomplete" not in difference.flags


def test_few_anchored_items_leave_the_anchor_alone():
    """Below 20 anchored items: betting on the anchor's own values."""
    scores = anchored_scores(np.random.default_rng(19), n_anchored=12)
    (arms,) = told(scores[:, :1], scale=TEN, anchor="j0")
    (alone,) = told(scores[:, :1, :1], scale=TEN)
    assert arms.interval == alone.interval == "betting"
    assert arms.value == pytest.approx(alone.value)
    assert (arms.lower[0], arms.upper[0]) == pytest.approx((alone.lower[0], alone.upper[0]))
    assert "few_clusters" in arms.flags


def test_an_anchor_that_has_not_answered_leaves_nothing_known():
    """Helpers alone say nothing of what the anchor would."""
    scores = anchored_scores(np.random.default_rng(20), n_anchored=0)
    (arms,) = told(scores[:, :1], scale=TEN, anchor="j0")
    assert arms.status is Status.EMPTY


def test_a_watched_anchor_has_a_sequence():
    """The regression's standard error in the sequence; unpaired arms are two regressions."""
    scores = anchored_scores(np.random.default_rng(21))
    contrast = {**NEW_OLD["contrast"], "paired": False}
    watched, _ = told(scores, scale=TEN, anchor="j0", contrast=contrast, check="anytime")
    once, _ = told(scores, scale=TEN, anchor="j0", contrast=contrast)
    assert once.interval == "welch"
    assert watched.interval == "asymptotic sequence"
    assert watched.se == once.se
    assert watched.half_width > once.half_width


def test_missing_anchors_move_the_worst_case_of_the_regression():
    """The anchor's missing verdicts at an end of the scale, as far as they move its own mean."""
    scores = anchored_scores(np.random.default_rng(22))[:, :1]
    estimator = ScoreMeans(
        ScoreMeansConfig(name="x", kind="score_means", anchor="j0"), study(scores, TEN)
    )
    for record in records_of(scores):
        estimator.update(record)
    estimator.update(missing(9_999, 100))
    (arms,) = estimator.estimate()
    own = scores[:40, 0, 0, 0]
    by_name = arms.diagnostics["by_name"]
    assert by_name["missing"] == [1]
    assert by_name["worst_lower"] == pytest.approx(
        [arms.value[0] + (own.sum() + 1) / 41 - own.mean()]
    )
    assert by_name["worst_upper"] == pytest.approx(
        [arms.value[0] + (own.sum() + 10) / 41 - own.mean()]
    )


# --- flags -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("values", "is_skewed"),
    [
        (np.r_[np.zeros(95), np.ones(5)], True),
        (np.r_[np.full(46, 0.5), 0.1, 0.2, 0.9, 0.8], True),
        (np.r_[np.zeros(20), np.ones(20)], False),
        (np.linspace(0, 1, 25), False),
        (np.linspace(0, 1, 25) ** 12, True),
    ],
    ids=["rare", "mostly_equal", "even", "flat", "skewed"],
)
def test_values_too_skewed_for_student_are_flagged(values, is_skewed):
    """Few that differ, or a mean whose own skewness is above .25: the interval is said to be off."""
    (arms,) = told(values.reshape(-1, 1, 1, 1))
    assert arms.interval == "t"
    assert ("skewed" in arms.flags) == is_skewed
    assert arms.diagnostics["by_name"].get("is_skewed") is None


def test_units_of_a_calibrated_score_split_the_error_with_the_offset():
    """Few answers: half of the error to Hoeffding, half to the offset's Student interval."""
    rng = np.random.default_rng(23)
    pilot = np.clip(rng.normal(0.5, 0.1, (30, 1, 2, 3)), 0, 1)
    scores = np.full((30, 1, 2, 4), np.nan)
    scores[:, :, 1] = np.clip(rng.normal(0.5, 0.1, (30, 1, 4)), 0, 1)
    entry = {"target": "common", "calibration": "relative", "reuse_exploration": "none"}
    units, _ = told(scores, pilot, per="unit", **entry)
    apart = (pilot[:, 0, 1] - pilot[:, 0, 0]).mean(axis=1)
    half = stats.t.ppf(1 - 0.05 / 4, 29) * stats.sem(apart)
    lower, _ = hoeffding(units.value[0], 4, 1.0, 0.975, -9, 9)
    assert units.lower[0] == pytest.approx(max(lower - half, 0))
