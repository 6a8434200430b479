"""The sequence that holds at every look: its constants, and how often it errs under watching."""

import math

import numpy as np
import pytest
from scipy import integrate, optimize, stats

from estimators.confidence_sequences import (
    increments_half_width,
    sequence_bound,
    sequence_bounds,
    sequence_half_width,
    tightest,
)
from estimators.score_means import ScoreMeansConfig, fit_score_means
from orchestrator.core.estimate import Status
from orchestrator.core.frame import Frame
from orchestrator.core.money import FREE
from orchestrator.core.query import Kind
from orchestrator.core.scale import Criterion, Scale, ScaleType
from orchestrator.core.seeds import Seeds
from orchestrator.core.study import Panelist, Study

WATCHED = {"check": "anytime", "contrast": {"arm": "new", "baseline": "old"}}


@pytest.mark.parametrize("alpha", [0.2, 0.05, 0.001])
def test_the_tightest_place_is_the_minimum(alpha):
    """Against a search for the least bound, and the equation that it solves."""
    x = tightest(alpha)
    found = optimize.minimize_scalar(
        lambda v: (1 + 1 / v) * math.log((1 + v) / alpha**2), bounds=(0.1, 100), method="bounded"
    )
    assert x == pytest.approx(found.x, rel=1e-4)
    assert x == pytest.approx(math.log((1 + x) / alpha**2))


def test_the_bound_is_where_a_mixture_of_likelihood_ratios_reaches_its_limit():
    """The normal mixture of likelihood ratios over effects, integrated, is 1/alpha at the end.

    With information I, effects N(0, r) and an estimate z/sqrt(I): by Ville's inequality it exceeds
    1/alpha at some look with probability at most alpha.
    """
    se, planned, alpha = 0.07, 0.05, 0.05
    half = sequence_half_width(se, 1 - alpha, planned)
    information = 1 / se**2
    x = tightest(alpha)
    r = x / (1 + x) * planned**2

    def ratio(effect):
        return math.exp(information * (effect * half - effect**2 / 2))

    mixture, _ = integrate.quad(
        lambda e: ratio(e) * stats.norm.pdf(e, scale=math.sqrt(r)), -1, 1, epsabs=1e-12
    )
    assert mixture == pytest.approx(1 / alpha, rel=1e-6)


@pytest.mark.parametrize("planned", [0.01, 0.1, 2.0])
def test_the_planned_half_width_is_met_where_the_bound_is_tightest(planned):
    """Found by root search, the standard error at which it is met has the least multiple of it."""
    se = optimize.brentq(
        lambda s: sequence_half_width(s, 0.95, planned) - planned, 1e-4 * planned, planned
    )
    multiple = sequence_half_width(se, 0.95, planned) / se
    others = [sequence_half_width(se * f, 0.95, planned) / (se * f) for f in (0.2, 0.7, 1.4, 5)]
    assert multiple < min(others)
    assert multiple == pytest.approx(math.sqrt(1 + tightest(0.05)))
    assert stats.norm.isf(0.025) < multiple < 3.1


def test_increments_are_bounded_as_published():
    """Pairwise pitfall 12: .07601 against .04900 at n = 400; 1.549 times as wide at the plan.

    The published half-width tunes to first order; the exact minimum is 3e-5 below it there.
    """
    assert increments_half_width(0.5, 400, 0.95, 500) == pytest.approx(0.07601, abs=1e-4)
    widths = {n: increments_half_width(0.5, n, 0.95, 500) for n in (400, 500, 2000)}
    fixed = {n: 0.5 / math.sqrt(n) * stats.norm.isf(0.025) for n in widths}
    assert fixed[400] == pytest.approx(0.04900, abs=1e-5)
    assert widths[500] / fixed[500] == pytest.approx(1.549, abs=1e-3)
    assert widths[2000] / fixed[2000] == pytest.approx(1.595, abs=3e-3)


def test_bounds_of_an_array_are_those_of_its_numbers():
    information = np.array([[0.1, 3.0], [40.0, 1e6]])
    found = sequence_bounds(information, 0.99, 40.0)
    assert found.tolist() == [[sequence_bound(i, 0.99, 40.0) for i in row] for row in information]


# --- in the estimator ------------------------------------------------------------------------------


def arms_of(n_items, scale=None):
    return Study(
        kind=Kind.RATE,
        frame=Frame.of([str(i) for i in range(n_items)], ("old", "new")),
        panel=(Panelist(name="j", card=FREE),),
        criteria=(
            Criterion(name="score", scale=scale or Scale(type=ScaleType.INTEGER, low=1, high=10)),
        ),
        seeds=Seeds(0),
    )


def fit(of, scores, **entry):
    """Fit scores (n_items, 2) of the first items in asking order."""
    config = ScoreMeansConfig(name="x", kind="score_means", **WATCHED, **entry)
    unit = np.arange(scores.size)
    judge = np.zeros(scores.size, dtype=np.int64)
    return fit_score_means(config, of, unit=unit, judge=judge, values=scores.reshape(-1, 1))


def test_a_watched_difference_has_the_sequence_of_its_item_differences():
    """Against the formula on paired differences; the means of arms are watched too."""
    scores = np.random.default_rng(1).integers(1, 11, (50, 2)).astype(float)
    difference, arms = fit(arms_of(50), scores, target_half_width=0.3)
    apart = scores[:, 1] - scores[:, 0]
    se = stats.sem(apart)
    half = sequence_half_width(se, 0.95, 0.3)
    assert difference.value[0] == pytest.approx(apart.mean())
    assert (difference.lower[0], difference.upper[0]) == (
        pytest.approx(apart.mean() - half),
        pytest.approx(apart.mean() + half),
    )
    assert difference.interval == arms.interval == "asymptotic sequence"
    assert difference.watching_covered
    assert arms.watching_covered
    # Without a target it is tightest at 5 % of the span.
    (free, _), (at, _) = fit(arms_of(50), scores), fit(arms_of(50), scores, target_half_width=0.45)
    assert free.upper == at.upper


@pytest.mark.parametrize("kind", ["few", "equal"])
def test_a_sequence_claims_nothing_before_it_can(kind):
    """Below 20 items, and where all differences are equal, the ends are unknown, not wrong."""
    scores = np.random.default_rng(1).integers(1, 11, (19 if kind == "few" else 60, 2)) * 1.0
    if kind == "equal":
        scores[:, 1] = scores[:, 0] = np.clip(scores[:, 0], 2, 9)
        scores[:, 1] += 1
    difference, _ = fit(arms_of(60), scores)
    assert difference.status is Status.UNKNOWN_VARIANCE
    assert math.isnan(difference.lower[0])
    assert math.isnan(difference.se[0])
    assert not math.isnan(difference.value[0])
    assert difference.watching_covered
    assert fit(arms_of(60), np.random.default_rng(1).integers(1, 11, (20, 2)) * 1.0)[0].status == (
        Status.OK
    )


def a_a_campaigns(draw, n_runs, n_items, planned, confidence=0.95):
    """Share of A/A campaigns that declare a difference at some look: every 25 items, from 20."""
    of, rng = arms_of(n_items, Scale(type=ScaleType.FLOAT, low=-10, high=10)), draw[0]
    declared = 0
    for _ in range(n_runs):
        scores = draw[1](rng, n_items)
        for n in (20, *range(25, n_items + 1, 25)):
            difference, _ = fit(of, scores[:n], target_half_width=planned, confidence=confidence)
            if difference.lower[0] > 0 or difference.upper[0] < 0:
                declared += 1
                break
    return declared / n_runs


def ratings_redrawn(rng, n_items):
    """Integer ratings of the same items, drawn twice: equal panel means."""
    item = rng.normal(0, 2, (n_items, 1))
    return np.clip(np.round(item + rng.normal(0, 0.8, (n_items, 2))), -9, 9)


def rare_failures(rng, n_items):
    """Both arms fail on one item in twenty, independently."""
    return 1.0 - (rng.random((n_items, 2)) < 0.05)


AA = [
    pytest.param(60, 200, id="ci"),
    pytest.param(2_000, 1_000, id="full", marks=pytest.mark.slow),
]


@pytest.mark.parametrize(("n_runs", "n_items"), AA)
@pytest.mark.parametrize("law", [ratings_redrawn, rare_failures])
def test_equal_arms_are_seldom_declared_different_under_watching(n_runs, n_items, law, measured):
    """C39: stop as soon as the interval excludes 0; at most 5 % of A/A campaigns may."""
    share = a_a_campaigns((np.random.default_rng(39), law), n_runs, n_items, 0.1)
    measured(
        f"C39: A/A under watching, {law.__name__}, {n_runs} campaigns: <= .0646", f"{share:.4f}"
    )
    assert share <= 0.05 + 3 * math.sqrt(0.05 * 0.95 / n_runs)


def test_an_interval_for_one_look_would_be_found():
    """The control: watched with Student's interval, A/A campaigns declare far too often."""
    rng, declared, n_runs = np.random.default_rng(3), 0, 200
    for _ in range(n_runs):
        apart = np.diff(ratings_redrawn(rng, 400))[:, 0]
        looks = [stats.ttest_1samp(apart[:n], 0).pvalue for n in range(25, 401, 25)]
        declared += min(looks) < 0.05
    assert declared / n_runs > 0.12
