"""Predictive checks of a right model, and a judge that accepts most items always."""

from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from orchestrator.experiments import predictive_check, saturated_judge
from orchestrator.experiments.fanout import InProcess
from orchestrator.experiments.ordering import simulate


def by(figures, title=""):
    return {(figure.what, figure.n): figure for figure in figures if figure.table.startswith(title)}


def test_predictive_checks_are_the_same_on_any_executor():
    here = predictive_check.run(2, 20, 7, InProcess())
    with ThreadPoolExecutor(2) as threads:
        assert predictive_check.run(2, 20, 7, threads) == here
    found = by(here)
    assert found["joint, propagated, %", 80].reference == "95"
    assert found["passes, frozen, %", 80].n_replicates == 2


def test_propagated_bounds_hold_more_terms_than_frozen_ones():
    """8 data sets; the frozen bounds lie within the others but for simulation."""
    found = by(predictive_check.run(8, 100, 7, InProcess()))
    for part in ("joint", "entropy"):
        propagated, frozen = (
            found[f"{part}, {how}, %", 80].value for how in ("propagated", "frozen")
        )
        assert frozen < propagated
        assert 85 <= propagated <= 100


def test_a_data_set_without_a_fit_has_no_figure(monkeypatch):
    monkeypatch.setattr(predictive_check, "fitted", lambda *_: None)
    found = by(predictive_check.run(2, 20, 7, InProcess()))
    assert found["joint, frozen, %", 80].n_replicates == 0


@pytest.fixture(scope="module")
def judges():
    return saturated_judge.run(2, 41, InProcess())


def test_judges_are_the_same_on_any_executor(judges):
    with ThreadPoolExecutor(2) as threads:
        assert saturated_judge.run(2, 41, threads) == judges


def test_the_saturated_judge_is_flagged_and_never_conclusive(judges):
    """Also where its p is below 5 %: it accepts .86 and is of one mind about 60 % of the items."""
    found = by(judges, "saturated")
    for n in saturated_judge.LOOKS:
        assert found["flagged saturated, %", n].value == 100
        assert found["conclusive, %", n].value == 0
        assert found["accepts, %", n].value == pytest.approx(86, abs=2)
    assert found["unanimous items, %", 150].value == pytest.approx(60, abs=6)


def test_the_others_find_the_difference(judges):
    for name in ("discerning", "lenient"):
        found = by(judges, name)
        assert found["conclusive, %", 150].value == 100
        assert found["flagged saturated, %", 30].value == 0
        p = [found["p, median", n].value for n in saturated_judge.LOOKS]
        assert p == sorted(p, reverse=True)


def test_a_judge_without_a_fit_is_never_conclusive(monkeypatch):
    monkeypatch.setattr(saturated_judge, "fitted", lambda *_: None)
    found = by(saturated_judge.run(2, 41, InProcess()), "lenient")
    assert found["conclusive, %", 150].value == 0
    assert found["p, median", 150].n_replicates == 0


def test_judges_see_the_same_order_of_items():
    orders = [saturated_judge.world_of(judge).theta.argsort() for judge in saturated_judge.JUDGES]
    assert all((order == orders[0]).all() for order in orders)
    world = saturated_judge.world_of("saturated")
    rated = simulate(world, "shuffle", n_batches=150, n_replicates=20, rng=np.random.default_rng(0))
    assert rated.accepted.mean() == pytest.approx(0.86, abs=0.01)
