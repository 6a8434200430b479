"""The estimator bt_tensor as it runs: strengths by category, pooled where votes are few."""

from dataclasses import replace

import numpy as np
import pytest
from scipy.special import expit

from estimators.bt_model import fit_bradley_terry
from estimators.bt_tensor import BtTensor, BtTensorConfig
from estimators.comparisons import Comparisons
from orchestrator.core.estimate import Status
from orchestrator.core.frame import Frame
from orchestrator.core.money import FREE
from orchestrator.core.query import Kind
from orchestrator.core.scale import Criterion, Scale, ScaleType
from orchestrator.core.seeds import Seeds
from orchestrator.core.study import Panelist, Study
from orchestrator.testing.estimators import check_is_readable

TASTE = np.array([[1.0, 0.4, -0.2, -1.2], [-0.6, 0.2, 0.9, -0.5]])
"""Strengths of four arms in two kinds of items."""


def study(n_items=90, n_judges=1, kinds=2):
    return Study(
        kind=Kind.COMPARE,
        frame=Frame.of(
            [f"i{i}" for i in range(n_items)],
            [f"m{a}" for a in range(4)],
            stratum=[f"k{i % kinds}" for i in range(n_items)],
        ),
        panel=tuple(Panelist(name=f"j{j}", card=FREE) for j in range(n_judges)),
        criteria=(Criterion(name="overall", scale=Scale(type=ScaleType.PREFERENCE)),),
        seeds=Seeds(0),
    )


def table(n, *, n_items=90, n_judges=1, seed=1, kinds=2):
    rng = np.random.default_rng(seed)
    left = rng.integers(4, size=n)
    right = (left + 1 + rng.integers(3, size=n)) % 4
    item, judge = rng.integers(n_items, size=n), rng.integers(n_judges, size=n)
    taste = TASTE[item % kinds]
    rows = np.arange(n)
    won = rng.random(n) < expit(taste[rows, left] - taste[rows, right] + 0.3)
    return Comparisons(
        left=left,
        right=right,
        outcome=won.astype(float),
        item=item,
        judge=judge,
        replicate=np.zeros(n, dtype=np.int64),
        propensity=np.ones(n),
    )


def estimated(n, of=None, votes=None, **config):
    of = of or study()
    estimator = BtTensor(BtTensorConfig(name="t", context="kind", **config), of)
    estimator.take(votes or table(n), np.zeros((4, 4), dtype=np.int64))
    found = estimator.estimate()
    for estimate in found:
        check_is_readable(estimate)
    return {estimate.target: estimate for estimate in found}


@pytest.mark.parametrize("method", ["efficient", "plug_in", "whitened", "forward"])
def test_strengths_by_category_are_found_by_every_method(method):
    """Each of the eight true scores within four standard errors; win rates are of their kind."""
    found = estimated(6000, rank=2, method=method)
    scores = found["scores"]
    truth = (TASTE - TASTE.mean(axis=1, keepdims=True)).T.ravel()
    z = (np.array(scores.value) - truth) / np.array(scores.se)
    assert np.abs(z).max() < 4
    assert scores.names[:2] == ("m0 in k0", "m0 in k1")
    wins = found["win probabilities"]
    expected = np.mean([expit(1.0 - other) for other in (0.4, -0.2, -1.2)])
    assert wins.value[0] == pytest.approx(expected, abs=0.06)
    assert all(0 <= x <= 1 for x in (*wins.lower, *wins.upper))


def test_means_weigh_categories_by_their_items():
    """Twice as many items, twice the weight."""
    of = study(kinds=3)  # k0 holds a third of the items
    votes = table(6000, kinds=2)
    found = estimated(0, of=of, votes=votes, rank=1)
    scores, means = np.array(found["scores"].value).reshape(4, 3), found["strengths"].value
    np.testing.assert_allclose(means, scores.mean(axis=1), atol=1e-9)


def test_a_contrast_stands_first():
    found = estimated(3000, rank=2, contrast={"arm": "m0", "baseline": "m3"})
    gap = found["difference"]
    assert next(iter(found)) == "difference"
    means = dict(zip(found["strengths"].names, found["strengths"].value, strict=True))
    assert gap.value[0] == pytest.approx(means["m0"] - means["m3"], abs=1e-9)


def test_the_rank_is_chosen_and_said():
    """Two tastes are rank two."""
    found = estimated(8000)
    about = found["strengths"].diagnostics
    assert about["rank"] == [2, 2]
    assert about["choice"]["by"] == "bic"
    held_out = estimated(4000, rank_by="held_out")["strengths"].diagnostics["choice"]
    assert held_out["held_out_by_category"] is not None


def test_judges_may_be_a_mode_of_their_own():
    of = study(n_judges=2)
    votes = table(8000, n_judges=2)
    found = estimated(0, of=of, votes=votes, by_judge=True, rank=2)
    assert found["scores"].names[:3] == ("m0 in k0, j0", "m0 in k0, j1", "m0 in k1, j0")


def test_few_votes_give_strengths_over_all_categories_and_say_so():
    """Less than ten votes a parameter: no tensor."""
    found = estimated(60, rank=2)
    assert [*found] == ["strengths"]
    assert "pooled" in found["strengths"].flags
    assert "10 for each" in found["strengths"].diagnostics["reason"]
    assert found["strengths"].status is Status.OK


def test_watched_intervals_step_from_earlier_votes_alone():
    end, watched = estimated(4000, rank=2), estimated(4000, rank=2, check="anytime")
    assert watched["scores"].watching_covered
    assert watched["scores"].half_width > end["scores"].half_width
    assert watched["scores"].interval.startswith("forward")
    with pytest.raises(ValueError, match="efficient has no interval that holds watched"):
        estimated(10, check="anytime", method="efficient")


def test_categories_of_few_items_are_taken_together():
    """A fold without a category would be corrected from a fit that never saw it."""
    of = study(n_items=90, kinds=30)
    found = estimated(0, of=of, votes=table(6000), rank=1)
    assert [*found] == ["strengths"]
    assert "k0 has votes of 3 items" in found["strengths"].diagnostics["reason"]


def test_one_category_is_refused():
    with pytest.raises(ValueError, match="two categories"):
        estimated(10, of=study(kinds=1))


def uneven(n, *, seed=1, n_items=3000):
    """Give a study whose second kind has a tenth of the items, and comparisons drawn alike."""
    kind = (np.arange(n_items) % 10 == 9).astype(int)
    of = study(n_items)
    frame = Frame.of(of.frame.items, of.frame.arms, stratum=[f"k{k}" for k in kind])
    rng = np.random.default_rng(seed)
    left = rng.integers(4, size=n)
    right = (left + 1 + rng.integers(3, size=n)) % 4
    item = rng.integers(n_items, size=n)
    taste, rows = TASTE[kind[item]], np.arange(n)
    won = rng.random(n) < expit(taste[rows, left] - taste[rows, right] + 0.3)
    votes = replace(
        table(n),
        left=left,
        right=right,
        item=item,
        outcome=won.astype(float),
        propensity=np.full(n, 1 / (6 * n_items)),
    )
    return replace(of, frame=frame), votes


@pytest.mark.parametrize("misspecification", ["unexpected", "expected"])
def test_isotropic_steps_are_right_where_categories_differ_in_size(misspecification):
    """It gives up width for robustness: no score is known better than with the least error there is.

    With pairs weighed by 1/propensity alone, a category of a tenth of the items was corrected by a
    fifth of its scores, and its errors were that much too small.
    """
    of, votes = uneven(6000)
    how = {"of": of, "votes": votes, "rank": 2, "misspecification": misspecification}
    scores = estimated(0, method="isotropic", **how)["scores"]
    least = estimated(0, of=of, votes=votes, rank=2, method="efficient")["scores"]
    by_kind, of_least = (np.reshape(each.se, (4, 2)).mean(axis=0) for each in (scores, least))
    assert (by_kind > of_least).all()
    truth = (TASTE - TASTE.mean(axis=1, keepdims=True)).T.ravel()
    assert (np.abs(np.array(scores.value) - truth) < 4 * np.array(scores.se)).all()
    assert "propensity_unknown" not in scores.flags
    assert scores.interval == "isotropic, Wald"


def test_without_propensities_whitened_stands_for_isotropic():
    of, votes = uneven(4000)
    votes.propensity[7] = np.nan
    scores = estimated(0, of=of, votes=votes, rank=2, method="isotropic")["scores"]
    other = estimated(0, of=of, votes=votes, rank=2, method="whitened")["scores"]
    assert (scores.value, scores.se) == (other.value, other.se)
    assert scores.interval == "whitened, Wald"
    assert "propensity_unknown" in scores.flags
    assert "propensity_unknown" not in other.flags


@pytest.mark.parametrize("n", [6000, 60])
def test_items_count_by_their_weight(n):
    """Weight four counts as four copies of each comparison would; also where strengths are pooled."""
    of, votes = study(n_items=400), table(n, n_items=400)
    weight = np.where(np.arange(400) % 4 < 2, 4.0, 1.0)
    heavy = replace(of, frame=replace(of.frame, weight=weight))
    weighed = estimated(0, of=heavy, votes=votes, rank=2, method="plug_in")["strengths"]
    copies = votes.take(np.repeat(np.arange(n), weight[votes.item].astype(int)))
    copied = fit_bradley_terry(
        copies.left, copies.right, copies.outcome, n_models=4, order_effect=True
    )
    assert ("pooled" in weighed.flags) == (n < 100)
    if n < 100:
        np.testing.assert_allclose(weighed.value, copied.theta, atol=1e-6)
        return
    # Copies of half of the items of each kind leave the kinds' shares as they are.
    by_copies = estimated(0, of=of, votes=copies, rank=2, method="plug_in")["strengths"]
    np.testing.assert_allclose(weighed.value, by_copies.value, atol=1e-6)


def test_the_gap_is_known_where_strengths_are_pooled():
    found = estimated(60, rank=2, contrast={"arm": "m0", "baseline": "m3"})
    gap, strengths = found["difference"], found["strengths"]
    assert [*found] == ["difference", "strengths"]
    assert gap.status is Status.OK
    assert gap.value[0] == pytest.approx(strengths.value[0] - strengths.value[3], abs=1e-9)
    assert gap.lower[0] < gap.value[0] < gap.upper[0]
    for each in (gap, strengths):
        assert "over all categories together" in each.estimand
        assert "pooled" in each.flags
    assert "10 for each" in gap.diagnostics["reason"]


def test_a_gap_that_no_votes_bound_is_not_given():
    """C38 where strengths are pooled: the first arm wins all, and the others are known."""
    votes = table(60)
    votes.outcome[votes.left == 0] = 1.0
    votes.outcome[votes.right == 0] = 0.0
    found = estimated(0, votes=votes, rank=2, contrast={"arm": "m0", "baseline": "m3"})
    assert found["difference"].status is Status.NOT_IDENTIFIED
    assert np.isnan(found["difference"].upper).all()
    assert "separated" in found["difference"].flags


@pytest.mark.parametrize("method", ["efficient", "plug_in", "forward"])
def test_few_items_make_wider_intervals_and_are_flagged(method):
    """Twelve items asked again and again are twelve, by Student's law with eleven degrees."""
    few = estimated(0, of=study(12), votes=table(3000, n_items=12), rank=2, method=method)
    many = estimated(3000, rank=2, method=method)
    scores = few["scores"]
    assert "few_clusters" in scores.flags
    assert "few_clusters" not in many["scores"].flags
    half = np.array(scores.upper) - np.array(scores.value)
    np.testing.assert_allclose(half / np.array(scores.se), 2.2010, atol=1e-3)
    pooled = estimated(0, of=study(8), votes=table(60, n_items=8), rank=2)["strengths"]
    assert {"pooled", "few_clusters"} <= set(pooled.flags)


def test_errors_of_few_items_hold_what_items_differ_in():
    """Ten items, each with a taste of its own: 95 % intervals of the mean taste hold in 85 % or more.

    Where each fold's own mean was taken off without regard to how few its items are, 80 % did.
    """
    held = []
    for seed in range(24):
        rng = np.random.default_rng(seed)
        own = TASTE[np.arange(10) % 2] + rng.normal(0, 0.7, (10, 4))
        votes = table(900, n_items=10, seed=seed)
        rows = own[votes.item], np.arange(900)
        eta = rows[0][rows[1], votes.left] - rows[0][rows[1], votes.right]
        votes = replace(votes, outcome=(rng.random(900) < expit(eta)).astype(float))
        scores = estimated(0, of=study(10), votes=votes, rank=2)["scores"]
        truth = 0.87 * (TASTE - TASTE.mean(axis=1, keepdims=True)).T.ravel()
        held.append((np.array(scores.lower) <= truth) & (truth <= np.array(scores.upper)))
    assert np.mean(held) > 0.85


def test_items_are_a_sample_of_items_like_them():
    """Errors are by items, so what is estimated is not of these items alone."""
    for estimate in estimated(3000, rank=2, contrast={"arm": "m0", "baseline": "m3"}).values():
        assert "items like these, judged by this judge" in estimate.estimand
    two = estimated(0, of=study(n_judges=2), votes=table(3000, n_judges=2), rank=2)
    assert "items like these, judged by this panel" in two["scores"].estimand
