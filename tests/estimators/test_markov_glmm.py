"""The estimator's claims: what the interval is of, at which looks it holds, and what it rests on."""

import math
from dataclasses import replace

import numpy as np
import pytest
from scipy import stats

from estimators.confidence_sequences import sequence_bound
from estimators.judge_pool import pool_qualities
from estimators.markov_glmm import MarkovGlmm, MarkovGlmmConfig
from estimators.markov_inference import group_weights
from estimators.markov_model import fit_markov_glmm
from orchestrator.core.estimate import Status
from orchestrator.core.frame import Frame
from orchestrator.core.gate import Gate, GateOutcome, Rule
from orchestrator.core.gate import judge as held
from orchestrator.core.ids import QNo
from orchestrator.core.money import Nano
from orchestrator.core.query import Judged, Kind, Observation, Query
from orchestrator.core.records import Record
from orchestrator.testing.policies import small_study
from tests.estimators.markov_data import judge, shuffled

HALVES = {"group": "A", "baseline": "B"}


def estimator(n_items, *, n_judges=1, **config):
    """Items in two halves, A and B."""
    half = n_items // 2
    made = small_study(kind=Kind.RATE_BATCH, n_items=n_items, n_arms=1, repeats=[None] * n_judges)
    names = [f"i{k}" for k in range(n_items)]
    frame = Frame.of(names, ["m"], group=["A"] * half + ["B"] * (n_items - half))
    settings = {"name": "x", "quadrature": 7, "accept_from": 1, "contrast": HALVES} | config
    return MarkovGlmm(MarkovGlmmConfig(**settings), replace(made, frame=frame))


def told(theta, n_batches, rng, *, rated=None, j=0, n_judges=1, unread=()):
    """Batches of a judge that sees the items `rated`; what it says of those `unread` is lost."""
    items = np.arange(len(theta)) if rated is None else np.asarray(rated)
    source = shuffled(judge(np.asarray(theta, dtype=float)[items]), n_batches, rng)
    for n, (order, state) in enumerate(zip(source.order, source.state, strict=True)):
        shown = tuple(items[order].tolist())
        said = tuple(
            Observation(unit=unit, slot=slot, value=float(y))
            for slot, (unit, y) in enumerate(zip(shown, state.tolist(), strict=True))
            if unit not in unread
        )
        yield Record(
            q=QNo(n * n_judges + j),
            query=Query(kind=Kind.RATE_BATCH, judge=j, units=shown, replicate=n),
            outcome=Judged(observations=said, cost=Nano(0), usage=None),
        )


def estimated(records, n_items, **config):
    of = estimator(n_items, **config)
    for record in records:
        of.update(record)
    return of.estimate()[0]


def is_found(one):
    """Whether the interval is on one side of 0, and on which."""
    return (one.lower[0] > 0) - (one.upper[0] < 0)


# --- the penalty's scale ---------------------------------------------------------------------------

ONE_FAR, GROUP_FAR = [3.2, 0.6, 0.4, 0.0, 0.0, -0.2], [3.4, 2.9, 2.6, 0.0, 0.1, -0.2]
"""Items that are accepted nearly always: one of six, or one half of them."""

COURSE = {"blocks": 8, "block_length": 6}


@pytest.mark.parametrize(
    ("theta", "n_batches", "config"),
    [
        (ONE_FAR, 24, {"check": "group_sequential", **COURSE}),
        (ONE_FAR, 24, {"check": "anytime", **COURSE}),
        (GROUP_FAR, 16, {"inference": "items"}),
    ],
    ids=["planned looks", "a sequence", "items"],
)
def test_the_verdict_that_must_hold_at_all_scales_is_the_intervals(theta, n_batches, config):
    """Not that of one look at 5 %: a bound of a look is higher, and so is Welch's of few items."""
    were_alike = set()
    for seed in range(25):
        records = list(told(theta, n_batches, np.random.default_rng(seed)))
        low, one, high = (estimated(records, 6, penalty=k, **config) for k in (3.0, 5.0, 10.0))
        if "prior_sensitive" not in one.flags or "saturated" in one.flags:
            continue
        is_alike = is_found(low) == is_found(one) == is_found(high)
        were_alike.add(is_alike)
        assert ("prior_inconclusive" in one.flags) != is_alike
        assert (one.status is Status.OK) == is_alike
    assert were_alike == {True, False}


# --- what nobody rated ------------------------------------------------------------------------------

SIX = [1.5, 0.2, -0.3, 0.4, 0.0, -0.5]
SUPERIOR = Gate(estimate="x", rule=Rule.SUPERIOR, bar=0.0, sources=("x",), arms=("m",))


@pytest.mark.parametrize("how", [{"rated": [1, 2, 3, 4, 5]}, {"unread": {0}}])
def test_a_difference_of_these_items_needs_all_of_them(how):
    """The one that was left out may lie anywhere."""
    records = list(told(SIX, 150, np.random.default_rng(1), **how))
    one = estimated(records, 6)
    assert one.status is Status.NOT_IDENTIFIED
    assert "items_unrated" in one.flags
    assert (one.n_items, one.diagnostics["unrated"]) == (5, ["i0"])
    assert held(SUPERIOR, (one,)).outcome is GateOutcome.UNDECIDED
    like_these = estimated(records, 6, inference="items")
    assert like_these.status is Status.OK
    assert "items_unrated" in like_these.flags
    assert like_these.n_items == 5
    whole = estimated(told(SIX, 150, np.random.default_rng(1)), 6)
    assert (whole.status, whole.n_items, whole.diagnostics["unrated"]) == (Status.OK, 6, [])


def two_judges(n_batches, rng, first=(1, 2, 3, 4, 5), second=range(6), theta=SIX):
    rounds = zip(
        told(theta, n_batches, rng, rated=first, j=0, n_judges=2),
        told(theta, n_batches, rng, rated=list(second), j=1, n_judges=2),
        strict=True,
    )
    return [record for pair in rounds for record in pair]


def fits_of(records, n_judges):
    """Fit each judge by itself."""
    rows = [[] for _ in range(n_judges)]
    for record in records:
        for o in record.outcome.observations:
            rows[record.query.judge].append((record.q, o.slot, o.unit, o.value))
    return [fit_markov_glmm(each, quadrature=7) for each in rows]


@pytest.mark.parametrize("second", [range(6), (0, 1, 2, 3)])
def test_judges_that_rated_other_items_speak_of_the_same_difference(second):
    """A judge's own contrast, of the items that it has rated, is another difference."""
    records = two_judges(400, np.random.default_rng(2), second=second)
    one = estimated(records, 6, n_judges=2)
    assert one.lower[0] < np.mean(SIX[:3]) - np.mean(SIX[3:]) < one.upper[0]
    assert one.se[0] < 0.15
    assert "contrast_differs_by_judge" not in one.flags
    assert (one.status, one.n_items) == (Status.OK, 6)
    pooled = pool_qualities(fits_of(records, 2)).contrast(group_weights([0, 1, 2], [3, 4, 5]))
    assert (one.value[0], one.se[0]) == pytest.approx((pooled.est, pooled.se))


def test_groups_that_no_judge_connects_are_not_compared():
    records = two_judges(60, np.random.default_rng(3), first=(0, 1, 2), second=(3, 4, 5))
    one = estimated(records, 6, n_judges=2)
    assert one.status is Status.NOT_IDENTIFIED
    assert math.isnan(one.lower[0])


def test_units_that_nothing_connects_have_no_place_among_the_others():
    records = two_judges(60, np.random.default_rng(4), first=(0, 1, 2, 3), second=(4, 5))
    of = estimator(6, n_judges=2, contrast=None, check="anytime")
    for record in records:
        of.update(record)
    (units,) = of.estimate()
    assert units.status is Status.PARTIAL
    assert units.flags.count("items_unconnected") == 1
    assert "items_unrated" not in units.flags
    assert np.isnan(units.value).tolist() == [False] * 4 + [True] * 2
    assert np.isnan(units.se).tolist() == [False] * 4 + [True] * 2
    assert units.diagnostics["leader"] is None
    assert units.diagnostics["first"] == {}


# --- looks without a plan ---------------------------------------------------------------------------


def test_a_sequence_without_a_plan_is_tuned_once():
    """By the first ten batches of each judge; nothing is claimed before."""
    records = two_judges(60, np.random.default_rng(5), first=range(6))
    of, found = estimator(6, n_judges=2, check="anytime"), {}
    for n, record in enumerate(records, 1):
        of.update(record)
        if n % 10 == 0:
            found[n] = of.estimate()[0]
    assert math.isinf(found[10].upper[0])
    assert math.isinf(found[10].lower[0])
    planned = 10 / found[20].se[0] ** 2
    for n in (20, 50, 120):
        half, se = found[n].half_width, found[n].se[0]
        assert half / se == pytest.approx(sequence_bound(1 / se**2, 0.95, planned))
    assert found[20].half_width / found[20].se[0] > 1.1 * found[120].half_width / found[120].se[0]


def test_a_leads_bound_without_a_plan_is_tuned_once_too():
    records = list(told([1.0, 0.0, -0.4], 60, np.random.default_rng(6)))
    of, seen = estimator(3, contrast=None, check="anytime"), {}
    for n, record in enumerate(records, 1):
        of.update(record)
        if n in (5, 10, 60):
            seen[n] = of.leader()["by_name"]
    other = 2
    assert math.isinf(seen[5]["lead_bound"][other])
    planned = 10 / seen[10]["lead_se"][other] ** 2
    expected = sequence_bound(1 / seen[60]["lead_se"][other] ** 2, 1 - 0.05 / 2, planned)
    assert seen[60]["lead_bound"][other] == pytest.approx(expected)


def test_a_sequence_waits_for_its_first_planned_look():
    """Tuned at each look before it, it would be a constant bound there too."""
    records = list(told(SIX, 24, np.random.default_rng(7)))
    for n, is_open in ((11, True), (12, False), (24, False)):
        one = estimated(records[:n], 6, check="anytime", blocks=10, block_length=12)
        assert math.isinf(one.half_width) == is_open


# --- items like these --------------------------------------------------------------------------------


def test_the_interval_over_items_is_that_of_its_p():
    """Welch's test of the qualities, at the level of its own p, just touches 0."""
    theta = [1.4, 0.9, 0.1, 0.2, 0.0, 0.1, -0.2, -0.1]
    records = list(told(theta, 80, np.random.default_rng(8)))
    one = estimated(records, 8, inference="items")
    (fit,) = fits_of(records, 1)
    welch = stats.ttest_ind(fit.theta[:4], fit.theta[4:], equal_var=False)
    assert one.diagnostics["p"] == pytest.approx(welch.pvalue)
    assert (one.lower[0], one.upper[0]) == pytest.approx(tuple(welch.confidence_interval(0.95)))
    again = estimated(records, 8, inference="items", confidence=1 - one.diagnostics["p"])
    assert min(abs(again.lower[0]), abs(again.upper[0])) == pytest.approx(0, abs=1e-8)
