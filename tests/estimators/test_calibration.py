"""Human labels: what they say of judges, and scores put on their scale."""

import math

import numpy as np
import pytest
from scipy import stats

from estimators.score_means import ScoreMeansConfig, fit_score_means
from orchestrator.core.estimate import Status
from orchestrator.core.frame import Frame
from orchestrator.core.money import FREE
from orchestrator.core.query import Kind
from orchestrator.core.scale import Criterion, Scale, ScaleType
from orchestrator.core.seeds import Seeds
from orchestrator.core.study import Panelist, Study
from orchestrator.testing.estimators import check_is_readable

LEVEL = 0.9
WIDE = Scale(type=ScaleType.FLOAT, low=-1, high=2)
NEW_OLD = {"arm": "new", "baseline": "old"}


def fitted(scores, labels, pilot=None, scale=WIDE, cluster=None, **entry):
    """Fit scores (item, arm, judge, repeat) with labels (item, arm), NaN where there is none."""
    parts = [scores[..., :0] if pilot is None else pilot, scores]
    places = [np.nonzero(~np.isnan(part)) for part in parts]
    item, arm, judge = (np.concatenate([p[axis] for p in places]) for axis in range(3))
    values = np.concatenate([part[p] for part, p in zip(parts, places, strict=True)])
    n_items, n_arms, n_judges, _ = scores.shape
    study = Study(
        kind=Kind.RATE,
        frame=Frame.of([f"i{k}" for k in range(n_items)], ("old", "new")[:n_arms], cluster=cluster),
        panel=tuple(Panelist(name=f"j{j}", card=FREE) for j in range(n_judges)),
        criteria=(Criterion(name="score", scale=scale),),
        seeds=Seeds(0),
        labels=None if labels is None else labels.reshape(-1, 1),
    )
    found = fit_score_means(
        ScoreMeansConfig(
            name="x",
            kind="score_means",
            **{"calibration": "anchors", "confidence": LEVEL} | entry,
        ),
        study,
        unit=item * n_arms + arm,
        judge=judge,
        values=values[:, None],
        is_pilot=np.repeat([True, False], [len(p[0]) for p in places]),
    )
    for estimate in found:
        check_is_readable(estimate)
    return found


def world(
    rng, n_items, n_judges=2, *, n_arms=1, shift=(0.1, -0.05), repeats=2, noise=0.1, own=0.05
):
    """Draw what humans say (item, arm) and scores of judges that are off by a shift each."""
    truth = 0.5 + rng.normal(0, 0.15, (n_items, n_arms))
    scores = truth[:, :, None, None] + np.array(shift[:n_judges])[:, None]
    scores = scores + rng.normal(0, own, (n_items, n_arms, n_judges, 1))
    return truth, scores + rng.normal(0, noise, (n_items, n_arms, n_judges, repeats))


def only(labels, n):
    """Keep the labels of the first items."""
    kept = np.full(labels.shape, np.nan)
    kept[:n] = labels[:n]
    return kept


def test_few_labels_shift_each_judge_by_its_mean_difference():
    """By hand: the bias of each judge on its labelled units; a panel's units and mean follow."""
    rng = np.random.default_rng(1)
    truth, scores = world(rng, 40)
    units, arms = fitted(scores, only(truth, 12), per="unit")
    cell = scores.mean(axis=3)[:, 0]
    apart = cell[:12] - truth[:12]
    bias, se = apart.mean(axis=0), stats.sem(apart)
    assert units.value == pytest.approx((cell - bias).mean(axis=1))
    assert arms.value[0] == pytest.approx((cell - bias).mean())
    of_shift = apart.mean(axis=1).var(ddof=1) / 12
    assert units.diagnostics["by_name"]["offset_se"] == pytest.approx([math.sqrt(of_shift)] * 40)
    for j, row in enumerate(arms.diagnostics["labels"]):
        r = np.corrcoef(cell[:12, j], truth[:12, 0])[0, 1]
        half = stats.norm.ppf(0.95) / 3
        assert row == {
            "judge": f"j{j}",
            "n_units": 12,
            "bias": pytest.approx(bias[j]),
            "se": pytest.approx(se[j]),
            "rms": pytest.approx(math.sqrt((apart[:, j] ** 2).mean())),
            "correlation": pytest.approx(r),
            "lower": pytest.approx(math.tanh(math.atanh(r) - half)),
            "upper": pytest.approx(math.tanh(math.atanh(r) + half)),
            "correction": "shift",
            "slope": 1.0,
        }
    assert arms.estimand.endswith("on the labels' scale")
    assert units.estimand.endswith("on the labels' scale")


def test_the_error_of_a_mean_joins_that_of_items_and_of_the_shift():
    """A second witness: the mean is a function of cluster means, so its jackknife variance."""
    rng = np.random.default_rng(2)
    truth, scores = world(rng, 40, 1)
    labels, cell = only(truth, 25)[:, 0], scores.mean(axis=3)[:, 0, 0]

    def mean(kept):
        known = kept & ~np.isnan(labels)
        return cell[kept].mean() - (cell[known] - labels[known]).mean()

    (arms,) = fitted(scores, only(truth, 25))
    every = np.ones(40, dtype=bool)
    without = []
    for k in range(40):
        kept = every.copy()
        kept[k] = False
        without.append(mean(kept))
    variance = 39 / 40 * np.sum((np.array(without) - np.mean(without)) ** 2)
    assert arms.value[0] == pytest.approx(mean(every))
    assert arms.se[0] == pytest.approx(math.sqrt(variance), rel=0.05)


def test_many_labels_fit_a_line_freed_of_repeat_noise():
    """A judge that halves differences: the slope is 2 and not 2 times its reliability."""
    rng = np.random.default_rng(3)
    truth = 0.5 + rng.normal(0, 0.2, (4000, 1))
    scores = 0.3 + 0.5 * truth[:, :, None, None] + rng.normal(0, 0.08, (4000, 1, 1, 2))
    (arms,) = fitted(scores, only(truth, 2000))
    row = arms.diagnostics["labels"][0]
    assert (row["correction"], row["slope"]) == ("line", pytest.approx(2, rel=0.05))
    x, y = scores.mean(axis=3)[:2000, 0, 0], truth[:2000, 0]
    noise = scores.var(axis=3, ddof=1).mean() / 2
    assert row["slope"] == pytest.approx(np.cov(x, y)[0, 1] / (x.var(ddof=1) - noise), rel=1e-3)
    flat = stats.linregress(x, y).slope
    assert flat < 1.6
    units, _ = fitted(scores, only(truth, 2000), per="unit")
    left = np.array(units.value) - truth[:, 0]
    assert abs(np.polyfit(truth[:, 0], left, 1)[0]) < 0.05, "high and low units are unbiased"


def test_without_repeats_the_line_is_plain_regression_and_is_flagged():
    """Against scipy; nobody knows how much of the spread is noise."""
    rng = np.random.default_rng(4)
    truth, scores = world(rng, 80, 1, repeats=1)
    (arms,) = fitted(scores, only(truth, 50))
    found = stats.linregress(scores[:50, 0, 0, 0], truth[:50, 0])
    assert arms.diagnostics["labels"][0]["slope"] == pytest.approx(found.slope)
    mean = found.intercept + found.slope * scores[:, 0, 0, 0].mean()
    assert arms.value[0] == pytest.approx(mean)
    assert "slope_attenuated" in arms.flags


def test_a_judge_that_does_not_follow_the_labels_is_only_shifted():
    """No line where it would fall, or where noise outweighs what is left."""
    rng = np.random.default_rng(5)
    truth, scores = world(rng, 60)
    scores[:, :, 0] = 1 - scores[:, :, 0]
    scores[:, :, 1] = 0.5 + rng.normal(0, 0.2, scores[:, :, 1].shape)
    (arms,) = fitted(scores, truth)
    assert [row["correction"] for row in arms.diagnostics["labels"]] == ["shift", "shift"]


def test_a_judge_with_one_labelled_unit_stands_uncorrected():
    """It is flagged, and its answers count as they are."""
    rng = np.random.default_rng(6)
    truth, scores = world(rng, 40)
    scores[1:12, :, 1] = np.nan
    (arms,) = fitted(scores, only(truth, 12), per="judge")
    cell = scores.mean(axis=3)[:, 0]
    assert arms.value[1] == pytest.approx(np.nanmean(cell[:, 1]))
    assert arms.value[0] == pytest.approx(cell[:, 0].mean() - (cell[:12, 0] - truth[:12, 0]).mean())
    assert [r["correction"] for r in arms.diagnostics["labels"]] == ["shift", "none"]
    assert "judge_without_labels" in arms.flags


def test_exploration_alone_tells_the_bias_where_there_is_any():
    """Later answers enter values, not what they are corrected by."""
    rng = np.random.default_rng(7)
    truth, pilot = world(rng, 30, 1)
    scores = pilot + 0.3
    (arms,) = fitted(scores, only(truth, 10), pilot, reuse_exploration="none", target="common")
    bias = (pilot.mean(axis=3)[:10, 0, 0] - truth[:10, 0]).mean()
    assert arms.value[0] == pytest.approx(scores.mean() - bias)


def test_labels_without_calibration_are_shown_and_change_nothing():
    rng = np.random.default_rng(8)
    truth, scores = world(rng, 40)
    (shown,) = fitted(scores, only(truth, 12), calibration=None)
    (bare,) = fitted(scores, None, calibration=None)
    assert (shown.value, shown.se, shown.lower) == (bare.value, bare.se, bare.lower)
    assert "correction" not in shown.diagnostics["labels"][0]
    assert "labels" not in bare.diagnostics


@pytest.mark.parametrize("n_labelled", [12, 120])
def test_a_constant_bias_that_all_judges_share_is_removed(n_labelled):
    """B6 with labels: RMSE against the truth within 25 % of that of judges without bias.

    Offsets to the first judge leave what all share, whatever is spent.
    """
    rng = np.random.default_rng(9)
    sd = np.geomspace(0.05, 0.3, 5).reshape(1, 1, -1, 1)

    def rmse(shift, calibration):
        errors = []
        for _ in range(4):
            truth = 0.2 + 0.6 * rng.random((300, 1))
            bias = shift * (0.2 + rng.normal(0, 0.05, (1, 1, 5, 1)))
            at = truth[:, :, None, None] + bias
            pilot = at + sd * rng.normal(size=(300, 1, 5, 8))
            scores = np.full((300, 1, 5, 8), np.nan)
            judge = rng.integers(0, 3, 300)
            place = np.arange(300), 0, judge
            scores[place] = (at[:, 0] + sd[0] * rng.normal(size=(300, 5, 8)))[np.arange(300), judge]
            units, _ = fitted(
                scores,
                only(truth, n_labelled),
                pilot,
                per="unit",
                target="common",
                calibration=calibration,
                reuse_exploration="none",
            )
            errors.append(np.square(np.array(units.value) - truth.ravel()).mean())
        return math.sqrt(np.mean(errors))

    assert rmse(1, "anchors") <= 1.25 * rmse(0, "none")
    assert rmse(1, "relative") > 2 * rmse(1, "anchors")


def test_a_bias_that_depends_on_the_arm_is_flagged_and_refuses_a_common_difference():
    """Both judges favour one arm, so no comparison of judges can see it; labels can."""
    rng = np.random.default_rng(10)
    truth, scores = world(rng, 60, n_arms=2, own=0.01)
    scores[:, 1] += 0.2
    difference, _ = fitted(scores, truth, contrast=NEW_OLD, target="common")
    assert difference.status is Status.NOT_IDENTIFIED
    panel, _ = fitted(scores, truth, contrast=NEW_OLD)
    assert panel.status is Status.OK
    assert "bias_depends_on_arm" in panel.flags
    assert "offset_depends_on_arm" not in difference.flags
    honest, _ = fitted(scores - [[[0.0]], [[0.2]]], truth, contrast=NEW_OLD, target="common")
    assert honest.status is Status.OK
    assert "bias_depends_on_arm" not in honest.flags


@pytest.mark.parametrize(
    ("entry", "said"),
    [
        ({"target": "population"}, "with target: population"),
        ({"anchor": "j0"}, "stay on its own scale"),
    ],
)
def test_what_anchors_do_not_go_with_is_refused(entry, said):
    truth, scores = world(np.random.default_rng(11), 10)
    with pytest.raises(ValueError, match=said):
        fitted(scores, truth, **entry)


def test_an_interval_never_has_zero_width():
    """All units labelled, all labels equal: the corrected mean is theirs and is not certain."""
    rng = np.random.default_rng(12)
    _, scores = world(rng, 40)
    for n in (12, 40):
        for found in fitted(scores, only(np.full((40, 1), 0.5), n), per="unit"):
            assert all(low < high for low, high in zip(found.lower, found.upper, strict=True))


# --- coverage ------------------------------------------------------------------------------------


def few_labels(rng):
    truth, scores = world(rng, 60)
    return fitted(scores, only(truth, 15))[0], 0.5


def a_line(rng):
    truth = 0.5 + rng.normal(0, 0.15, (90, 1))
    scores = 0.3 + 0.6 * truth[:, :, None, None] + rng.normal(0, 0.05, (90, 1, 2, 2))
    return fitted(scores, only(truth, 45))[0], 0.5


def all_labelled_by_judges_that_halve(rng):
    """A shift of judges that shrink differences: the items' error and the shift's add up."""
    truth = 0.5 + rng.normal(0, 0.15, (25, 1))
    scores = 0.3 + 0.5 * truth[:, :, None, None] + rng.normal(0, 0.05, (25, 1, 2, 2))
    return fitted(scores, truth)[0], 0.5


def labels_in_clusters(rng):
    cluster = np.repeat(np.arange(40), 3)
    level = rng.normal(0, 0.1, 40)[cluster][:, None]
    truth, scores = world(rng, 120)
    own = rng.normal(0, 0.1, 40)[cluster].reshape(-1, 1, 1, 1)
    found = fitted(
        scores + level[:, :, None, None] + own,
        only(truth + level, 60),
        cluster=[str(c) for c in cluster],
    )
    return found[0], 0.5


def one_judge_an_item(rng):
    truth, pilot = world(rng, 60, repeats=4, own=0.0)
    scores = world(rng, 60, repeats=4)[1] * np.nan
    judge = rng.integers(0, 2, 60)
    at = truth[:, 0] + np.array([0.1, -0.05])[judge]
    scores[np.arange(60), 0, judge] = at[:, None] + rng.normal(0, 0.1, (60, 4))
    found = fitted(scores, only(truth, 20), pilot, target="common", reuse_exploration="none")
    return found[0], 0.5


CASES = [
    few_labels,
    a_line,
    all_labelled_by_judges_that_halve,
    labels_in_clusters,
    one_judge_an_item,
]


@pytest.mark.parametrize("n_runs", [300, pytest.param(6_000, marks=pytest.mark.slow)])
@pytest.mark.parametrize("case", CASES)
def test_calibrated_means_are_covered_as_often_as_they_say(case, n_runs, measured):
    """Within three Monte-Carlo errors of the level, for shifts and lines, few labels and all."""
    rng = np.random.default_rng([2027, CASES.index(case)])
    hits = 0
    for _ in range(n_runs):
        found, truth = case(rng)
        assert found.interval == "t"
        hits += found.lower[0] <= truth <= found.upper[0]
    measured(f"anchors: coverage {LEVEL}, {case.__name__}, {n_runs} runs", f"{hits / n_runs:.4f}")
    assert abs(hits / n_runs - LEVEL) <= 3 * math.sqrt(LEVEL * (1 - LEVEL) / n_runs)


def test_few_items_are_covered_without_any_law():
    """Below 20 clusters a bet on the corrected values, between the ends that a correction allows."""
    rng = np.random.default_rng(13)
    hits = 0
    for _ in range(200):
        truth = rng.choice([0.1, 0.9], (12, 1))
        scores = 0.5 * truth[:, :, None, None] + rng.normal(0, 0.01, (12, 1, 1, 2))
        (found,) = fitted(scores, only(truth, 6))
        assert found.interval == "betting"
        hits += found.lower[0] <= 0.5 <= found.upper[0]
    assert hits / 200 >= LEVEL


@pytest.mark.parametrize("n_runs", [300])
def test_errors_of_shift_and_items_taken_for_independent_would_be_found(n_runs):
    """The control: for judges that halve differences their sum falls short."""
    rng, hits = np.random.default_rng(14), 0
    for _ in range(n_runs):
        truth = 0.5 + rng.normal(0, 0.15, 25)
        x = 0.3 + 0.5 * truth + rng.normal(0, 0.025, 25)
        mean = truth.mean()
        se = math.hypot(stats.sem(x), stats.sem(x - truth))
        hits += abs(mean - 0.5) <= stats.t.ppf(0.95, 24) * se
    assert hits / n_runs < LEVEL - 3 * math.sqrt(LEVEL * (1 - LEVEL) / n_runs)
