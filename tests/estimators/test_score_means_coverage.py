"""score_means: intervals hold as often as they say, on simulated truth with fixed seeds.

Scores are drawn around 0.5 on [0, 1]: items, judges' own views of items, and repeats all vary.
"""

import math

import numpy as np
import pytest

from estimators.intervals import betting, cluster_mean
from estimators.score_means import ScoreMeansConfig, fit_score_means
from orchestrator.core.frame import Frame
from orchestrator.core.money import FREE
from orchestrator.core.query import Kind
from orchestrator.core.scale import Criterion, Scale, ScaleType
from orchestrator.core.seeds import Seeds
from orchestrator.core.study import Panelist, Study

LEVEL = 0.9
CONTRAST = {"arm": "new", "baseline": "old"}


def fit(scores, scale=ScaleType.FLOAT, cluster=None, **entry):
    """Fit scores (item, arm, judge, repeat), NaN where nothing was asked; give the first."""
    n_items, n_arms, n_judges, _ = scores.shape
    study = Study(
        kind=Kind.RATE,
        frame=Frame.of([str(i) for i in range(n_items)], ("old", "new")[:n_arms], cluster=cluster),
        panel=tuple(Panelist(name=str(j), card=FREE) for j in range(n_judges)),
        criteria=(Criterion(name="score", scale=Scale(type=scale)),),
        seeds=Seeds(0),
    )
    item, arm, judge, _ = places = np.nonzero(~np.isnan(scores))
    config = ScoreMeansConfig(name="x", kind="score_means", confidence=LEVEL, **entry)
    return fit_score_means(
        config, study, unit=item * n_arms + arm, judge=judge, values=scores[places][:, None]
    )[0]


def ratings(rng, shape, *, item=0.05, own=0.04, noise=0.06, between_arms=0.03, effect=0.0):
    """Draw scores (item, arm, judge, repeat) of mean 0.5; the second arm has `effect` more."""
    n_items, n_arms, n_judges, _ = shape
    scores = 0.5 + rng.normal(0, item, (n_items, 1, 1, 1)) + rng.normal(0, noise, shape)
    scores += rng.normal(0, between_arms, (n_items, n_arms, 1, 1))
    scores += rng.normal(0, own, (n_items, 1, n_judges, 1))
    scores[:, 1:] += effect
    return scores


def items_with_repeats(rng):
    found = fit(ratings(rng, (30, 1, 2, 3)))
    return found, 0.5, "t"


def items_in_clusters(rng):
    shift = np.repeat(rng.normal(0, 0.05, 24), 4).reshape(-1, 1, 1, 1)
    cluster = [str(k // 4) for k in range(96)]
    return fit(ratings(rng, (96, 1, 2, 1)) + shift, cluster=cluster), 0.5, "t"


def clusters_of_unequal_size(rng):
    sizes = np.tile([1, 2, 6], 20)
    cluster = np.repeat(np.arange(60), sizes)
    shift = rng.normal(0, 0.05, 60)[cluster].reshape(-1, 1, 1, 1)
    scores = ratings(rng, (len(cluster), 1, 1, 2)) + shift
    return fit(scores, cluster=[str(c) for c in cluster]), 0.5, "t"


def paired_arms(rng):
    scores = ratings(rng, (25, 2, 2, 2), effect=0.02)
    scores[rng.random(scores.shape) < 0.1] = np.nan
    return fit(scores, contrast=CONTRAST), 0.02, "t"


def unpaired_arms(rng):
    scores = ratings(rng, (80, 2, 1, 2), item=0, own=0, between_arms=0.08, effect=0.02)
    scores[30:, 1] = np.nan
    scores[:30, 0] = np.nan
    return fit(scores, contrast={**CONTRAST, "paired": False}), 0.02, "welch"


def yes_or_no(rng):
    share = rng.uniform(0.1, 0.9)
    verdicts = (rng.random((60, 1, 1, 1)) < share).astype(float)
    return fit(verdicts, ScaleType.BOOLEAN), share, "wilson"


def these_items(rng):
    fixed = ratings(np.random.default_rng(0), (15, 1, 2, 1), noise=0)
    scores = fixed + rng.normal(0, 0.06, (15, 1, 2, 3))
    return fit(scores, population="these_items"), fixed.mean(), "t"


def unlike_cells(rng):
    """Items that vary much are asked twice, quiet ones thirty times."""
    fixed = np.linspace(0.3, 0.7, 100).reshape(-1, 1, 1, 1)
    scores = np.full((100, 1, 1, 30), np.nan)
    scores[:70, ..., :2] = fixed[:70] + rng.normal(0, 0.1, (70, 1, 1, 2))
    scores[70:] = fixed[70:] + rng.normal(0, 0.01, (30, 1, 1, 30))
    return fit(scores, population="these_items"), fixed.mean(), "t"


def few_items(rng):
    return fit(rng.beta(0.4, 0.6, (12, 1, 1, 2)), per="judge"), 0.4, "betting"


def few_clusters_of_many_items(rng):
    shift = np.repeat(rng.choice([-0.2, 0.2], 8), 10).reshape(-1, 1, 1, 1)
    cluster = [str(k // 10) for k in range(80)]
    return fit(ratings(rng, (80, 1, 1, 1)) + shift, cluster=cluster), 0.5, "betting"


def few_rare_yes(rng):
    verdicts = (rng.random((10, 2, 1, 1)) < np.array([0.05, 0.3]).reshape(1, 2, 1, 1)) * 1.0
    return fit(verdicts, ScaleType.BOOLEAN, contrast=CONTRAST), 0.25, "betting"


def few_answers_a_unit(rng):
    return fit(rng.beta(0.4, 0.6, (1, 1, 2, 5)), per="unit"), 0.4, "hoeffding"


def few_repeats_of_these_items(rng):
    verdicts = (rng.random((4, 1, 1, 4)) < 0.5).astype(float)
    return fit(verdicts, ScaleType.BOOLEAN, population="these_items"), 0.5, "hoeffding"


def many_answers_a_unit(rng):
    spread = np.array([0.02, 0.1]).reshape(2, 1, 1, 1)
    scores = 0.5 + spread * rng.normal(size=(2, 1, 1, 24))
    return fit(scores[::-1], per="unit"), 0.5, "t"


EXACT = [
    items_with_repeats,
    items_in_clusters,
    clusters_of_unequal_size,
    paired_arms,
    unpaired_arms,
    yes_or_no,
    these_items,
    unlike_cells,
]
SAFE = [
    few_items,
    few_clusters_of_many_items,
    few_rare_yes,
    few_answers_a_unit,
    few_repeats_of_these_items,
    many_answers_a_unit,
]


def coverage(case, n_runs):
    """Share of runs whose first interval holds the truth; the method must be the one meant."""
    rng = np.random.default_rng([2026, (EXACT + SAFE).index(case)])
    hits = 0
    for _ in range(n_runs):
        found, truth, method = case(rng)
        assert found.interval == method
        hits += found.lower[0] <= truth <= found.upper[0]
    return hits / n_runs


def error(n_runs):
    return 3 * math.sqrt(LEVEL * (1 - LEVEL) / n_runs)


SIZES = [300, pytest.param(6_000, marks=pytest.mark.slow)]


@pytest.mark.parametrize("n_runs", SIZES)
@pytest.mark.parametrize("case", EXACT)
def test_coverage_is_nominal(case, n_runs, measured):
    """Student, Welch and Wilson: neither below nor above what they promise."""
    found = coverage(case, n_runs)
    measured(f"score_means: coverage {LEVEL}, {case.__name__}, {n_runs} runs", f"{found:.4f}")
    assert abs(found - LEVEL) <= error(n_runs)


@pytest.mark.parametrize("n_runs", SIZES)
@pytest.mark.parametrize("case", SAFE)
def test_coverage_is_at_least_nominal(case, n_runs, measured):
    """Betting and Hoeffding on few, skewed and clustered values, and variances with a floor."""
    found = coverage(case, n_runs)
    measured(f"score_means: coverage >= {LEVEL}, {case.__name__}, {n_runs} runs", f"{found:.4f}")
    assert found >= LEVEL - error(n_runs)


@pytest.mark.parametrize("n_runs", SIZES)
def test_repeats_taken_for_items_would_be_found(n_runs):
    """The control: entered as items, repeats make intervals far too narrow."""
    rng = np.random.default_rng(1)
    hits = 0
    for _ in range(n_runs):
        repeats = ratings(rng, (30, 1, 1, 4)).transpose(0, 3, 2, 1).reshape(120, 1, 1, 1)
        found = fit(repeats)
        hits += found.lower[0] <= 0.5 <= found.upper[0]
    assert hits / n_runs < LEVEL - error(n_runs)


@pytest.mark.parametrize("n_runs", SIZES)
def test_clusters_left_out_would_be_found(n_runs):
    """The control: items of one cluster taken for independent are covered too seldom."""
    rng = np.random.default_rng(2)
    hits = 0
    for _ in range(n_runs):
        shift = np.repeat(rng.normal(0, 0.05, 24), 4).reshape(-1, 1, 1, 1)
        found = fit(ratings(rng, (96, 1, 1, 1)) + shift)
        hits += found.lower[0] <= 0.5 <= found.upper[0]
    assert hits / n_runs < LEVEL - error(n_runs)


@pytest.mark.parametrize("n_runs", SIZES)
def test_one_pooled_variance_for_unlike_cells_would_be_found(n_runs, measured):
    """The control: pooled over cells that differ in noise and number, these items are missed."""
    rng, hits = np.random.default_rng(3), 0
    n = np.repeat([2, 30], [70, 30])
    for _ in range(n_runs):
        cells = [rng.normal(0, 0.1, 2) for _ in range(70)]
        cells += [rng.normal(0, 0.01, 30) for _ in range(30)]
        pooled = sum(((c - c.mean()) ** 2).sum() for c in cells) / (n - 1).sum()
        se = math.sqrt(pooled * (1 / n).sum()) / 100
        hits += abs(np.mean([c.mean() for c in cells])) <= 1.645 * se
    measured(
        f"the control, one pooled variance for unlike cells, {n_runs} runs", f"{hits / n_runs:.4f}"
    )
    assert hits / n_runs < 0.5


@pytest.mark.parametrize("n_small", [19, 24, 49])
def test_one_cluster_that_carries_the_weight_does_not_pass_for_many(n_small):
    """200 items in one cluster and some in clusters of one: the variance between clusters all but
    vanishes at the heavy one, so t would promise certainty and always miss."""
    rng = np.random.default_rng(n_small)
    clusters = np.concatenate((np.zeros(200, dtype=np.int64), np.arange(1, n_small + 1)))
    hits = 0
    for _ in range(300):
        effects = rng.random(n_small + 1)
        found = cluster_mean(effects[clusters], np.ones(len(clusters)), clusters)
        assert found.is_thin(1.0)
        assert found.effective < 2
        interval = betting(found.means, LEVEL, found.shares)
        hits += interval.lower <= 0.5 <= interval.upper
    assert hits / 300 >= LEVEL
