"""The estimator bt_tensor as it runs: strengths by category, pooled where votes are few."""

import numpy as np
import pytest
from scipy.special import expit

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


def test_one_category_is_refused():
    with pytest.raises(ValueError, match="two categories"):
        estimated(10, of=study(kinds=1))
