"""Synthetic judges: what is drawn has the means and variances that are stated."""

import importlib.util

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy.integrate import quad
from scipy.stats import beta

from orchestrator.experiments.worlds import (
    KINDS,
    PRICES,
    prices,
    rounded_to_labels,
    shapes,
    synthetic,
)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("n", [6, 500])
def test_draws_have_the_stated_moments(kind, n):
    """Means over many calls, their spread, and sample variances; also where means are normals."""
    world = synthetic(kind, n_items=400, n_judges=5, seed=1)
    mean, variance = world.draw(np.full((400, 5), n), np.random.default_rng(2))
    z = (mean - world.means) / np.sqrt(world.variance / n)
    assert abs(z.mean()) < 0.1
    assert z.std() == pytest.approx(1, abs=0.05)
    assert ((mean >= 0) & (mean <= world.span)).all()
    if n < 400 or kind == "likert":
        assert variance.mean() == pytest.approx(world.variance.mean(), rel=0.05)
    else:
        assert np.isnan(variance).all()


@pytest.mark.parametrize("kind", KINDS)
def test_judges_have_one_mean_unless_they_disagree(kind):
    """Without disagreement all have the item's; with it, each panel has views of its own."""
    agreeing = synthetic(kind, n_items=300, n_judges=4, seed=0)
    assert_allclose(agreeing.means, agreeing.truth[:, None] * np.ones(4), atol=1e-12)
    panels = [
        synthetic(kind, n_items=300, n_judges=4, seed=0, disagreement=0.05, panel=k) for k in (0, 1)
    ]
    for world in panels:
        views = (world.means - world.truth[:, None]) / world.span
        assert views.std() == pytest.approx(0.05, rel=0.1)
        assert_array_equal(world.truth, agreeing.truth)
    assert not np.allclose(panels[0].means, panels[1].means)


def test_what_was_not_asked_is_unknown():
    for kind in KINDS:
        world = synthetic(kind, n_items=2, n_judges=3, seed=0)
        mean, variance = world.draw(np.array([[0, 1, 2], [3, 0, 0]]), np.random.default_rng(0))
        assert_array_equal(np.isnan(mean), [[True, False, False], [False, True, True]])
        assert_array_equal(np.isnan(variance), [[True, True, False], [False, True, True]])


def test_no_judge_spreads_more_than_its_mean_allows():
    for kind, part in (("smooth", 0.5), ("hard", 0.95)):
        world = synthetic(kind, n_items=1000, n_judges=10, seed=0)
        largest = part * np.sqrt(world.means * (1 - world.means))
        assert (np.sqrt(world.variance) <= largest + 1e-12).all()
        assert np.isclose(np.sqrt(world.variance), largest).any()


def test_labels_have_the_chances_of_numerical_integration():
    """Second witness: the integral of the tent around a label over the Beta density."""
    mean, variance = np.array([[0.3, 0.85]]), np.array([[0.04, 0.02]])
    chance = rounded_to_labels(mean, variance, 5)
    a, b = shapes(mean, variance)
    for j in range(2):
        for label in range(5):
            tent, _ = quad(
                lambda x, label=label, j=j: (
                    max(0, 1 - abs(4 * x - label)) * beta.pdf(x, a[0, j], b[0, j])
                ),
                max(0, (label - 1) / 4),
                min(1, (label + 1) / 4),
                points=[label / 4],
            )
            assert chance[0, j, label] == pytest.approx(tent, abs=1e-6)
    assert_allclose(chance @ np.arange(5), 4 * mean)


def test_prices_follow_precision():
    assert_array_equal(prices("unit", 3), [100, 100, 100])
    assert_array_equal(prices("inv_sd", 2), [700, 100])
    assert_array_equal(prices("inv_var", 2), [4900, 100])
    assert_array_equal(prices("inv_cube", 2), [34300, 100])
    assert_array_equal(prices("perverse", 2), [100, 700])


@pytest.mark.shared
def test_the_judges_are_those_of_the_reference(shared_tools):
    """The reference program's instance, number by number: so its figures can be compared."""
    spec = importlib.util.spec_from_file_location("instance", shared_tools / "est_ivwe_instance.py")
    reference = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(reference)
    for kind, options in (("smooth", {}), ("hard", {"clip": 0.95}), ("likert", {"kind": "likert"})):
        other, sd = reference.make_instance(**options)
        world = synthetic(kind, n_items=1000, n_judges=10, seed=0)
        assert_allclose(world.variance, other.var, rtol=1e-9)
        assert_allclose(world.truth, other.mean, rtol=1e-9)
        for name in PRICES:
            assert_array_equal(prices(name, 10), reference.cost_structures(sd)[name])
