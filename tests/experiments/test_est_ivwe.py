"""The study of EST-IVWE: fair rivals, closed forms, and no method beyond its money."""

import math
from dataclasses import replace

import numpy as np
import pytest

from orchestrator.core.errors import ConfigError
from orchestrator.experiments import est_ivwe
from orchestrator.experiments.est_ivwe import (
    CONFIGS,
    METHODS,
    Market,
    Study,
    closed_forms,
    explore,
    gaussian_norm,
    losses,
    ratio_of_means,
    run,
    simulate,
    world_of,
)
from orchestrator.experiments.fanout import InProcess
from orchestrator.experiments.worlds import prices, synthetic

TARGETS = tuple(METHODS)
SMALL = Study(prices=("inv_sd",), sweeps=(20,), norms=(2.0,), n_items=200, n_judges=5, n_reps=8)


class Counting:
    """Judges that count what they are asked."""

    def __init__(self, world):
        self.world = world
        self.asked = []

    def __getattr__(self, name):
        return getattr(self.world, name)

    def draw(self, counts, rng):
        self.asked.append(counts.copy())
        return self.world.draw(counts, rng)


@pytest.mark.parametrize("target", TARGETS)
def test_every_method_has_the_same_money(target):
    """Pitfalls 12 and 21: a pilot is charged, no rule passes the budget, uniform spends all of it."""
    study, price = replace(SMALL, target=target, n_items=60), prices("inv_cube", 5)
    budget = 20 * 60 * int(price.sum())
    world = Counting(world_of(study, "smooth"))
    simulate(Market(world, price, 20, target), (2.0,), np.random.default_rng(0))
    first = world.asked[0]
    assert (first == 20).all()
    assert (first * price).sum() == budget
    whole = [counts for counts in world.asked[1:] if (counts * price).sum() > 0.9 * budget]
    # What is asked later: by an oracle or by price all at once, else a pilot and then the rest.
    assert all((counts * price).sum() <= budget for counts in world.asked)
    assert len(whole) == {"common": 1, "panel": 2, "population": 1}[target]


@pytest.mark.parametrize("method", ["plain", "shrink"])
def test_pilot_and_plan_together_stay_within_the_budget(method):
    """Pitfall 12: of 20 sweeps the pilot takes 7 in plain mode and 4 in shrink; the plan the rest."""
    world, price = synthetic("smooth", n_items=50, n_judges=4, seed=0), prices("inv_sd", 4)
    market = Market(world, price, 20, "common")
    found = explore(market, CONFIGS[method], np.random.default_rng(0))
    assert (found.counts == {"plain": 7, "shrink": 4}[method]).all()
    plan = found.planned(market, CONFIGS[method], 2.0).counts
    spent = int(((found.counts + plan) * price).sum())
    assert market.budget == 20 * 50 * int(price.sum())
    assert market.budget - price.max() < spent <= market.budget


def test_the_norm_of_normal_errors_is_that_of_the_published_constants():
    """Pitfall 17: 0.79788, 1, 1.31607 for p = 1, 2, 4; and E max of 10 to 100,000 normals."""
    assert [gaussian_norm(p, 9) for p in (1, 2, 4)] == pytest.approx(
        [0.79788, 1, 1.31607], abs=5e-6
    )
    largest = {10: 1.881, 100: 2.747, 178: 2.932, 1000: 3.435, 100_000: 4.533}
    for n, expected in largest.items():
        assert gaussian_norm(math.inf, n) == pytest.approx(expected, abs=5e-4)


@pytest.mark.parametrize("target", TARGETS)
def test_the_oracle_errs_as_the_closed_form_says(target):
    """Bar B2 in small: within 4 Monte-Carlo errors, and rounding of calls, of sqrt(A*/B)."""
    study = replace(SMALL, target=target, sweeps=(60,), n_items=60, n_judges=4, n_reps=12)
    (row,) = [row for row in run(study, InProcess()) if row.method == "oracle"]
    assert row.error == pytest.approx(row.closed_form, abs=4 * row.se + 0.02 * row.closed_form)


def test_the_default_beats_uniform_calls_and_is_short_of_the_oracle():
    """Bar B1 in small: unit prices, 20 sweeps, l2: 1.30 of the oracle, uniform 2.5 times worse."""
    study = Study(prices=("unit",), sweeps=(20,), norms=(2.0,), n_items=400, n_reps=4)
    rows = {row.method: row for row in run(study, InProcess())}
    assert 1.15 < rows["shrink"].to_oracle < 1.45
    assert rows["shrink"].gain > 2.1
    assert rows["plain"].to_oracle > rows["shrink"].to_oracle
    assert rows["uniform"].gain == 1
    assert rows["oracle"].to_oracle == 1
    assert rows["uniform"].error > rows["uniform_plugin"].error > rows["uniform_known"].error
    assert rows["pooled"].error < 1.05 * rows["shrink"].error
    assert losses(list(rows.values())) == []


def test_a_loss_to_a_rule_without_a_pilot_is_listed():
    """Where the default does not pay it is said; rules that nobody can follow are no rivals."""
    rows = run(replace(SMALL, n_items=20, n_reps=2), InProcess())
    worse = [row._replace(error=9.0) if row.method == "shrink" else row for row in rows]
    assert [loss.rival.method for loss in losses(worse)] == ["uniform", "uniform_plugin"]
    assert all(loss.default.method == "shrink" for loss in losses(worse))
    better = [row._replace(error=0.0) if row.method == "shrink" else row for row in rows]
    assert losses(better) == []


def test_more_money_brings_the_default_nearer_to_the_oracle():
    """Bar B3 in small."""
    study = Study(prices=("unit",), sweeps=(8, 32, 128), norms=(2.0,), n_items=100, n_reps=6)
    found = [row.to_oracle for row in run(study, InProcess()) if row.method == "shrink"]
    assert found[0] > found[1] > found[2] > 1


def test_the_seed_decides_all_figures():
    rows = run(SMALL, InProcess())
    assert run(SMALL, InProcess()) == rows
    assert run(replace(SMALL, seed=1), InProcess()) != rows


def test_fewer_than_four_sweeps_are_refused():
    """Bar B7: there is no money for a pilot and scores."""
    with pytest.raises(ConfigError, match="4 sweeps"):
        run(replace(SMALL, sweeps=(3, 20)), InProcess())


def test_the_closed_form_falls_with_the_root_of_money():
    """A rho four times as large halves it, for every norm and target with one scale of noise."""
    study = replace(SMALL, norms=(1.0, 2.0, math.inf))
    few, many = (
        closed_forms(study, est_ivwe.Setting("smooth", "unit", sweeps)) for sweeps in (10, 40)
    )
    assert many == pytest.approx([x / 2 for x in few])


def test_the_error_of_a_ratio_is_that_of_paired_replicates():
    """Against the bootstrap; and 0 where both move together."""
    rng = np.random.default_rng(0)
    bottom = rng.uniform(1, 2, 40)
    top = 2 * bottom + rng.normal(0, 0.1, 40)
    value, se = ratio_of_means(top, bottom)
    picks = rng.integers(0, 40, (4000, 40))
    other = (top[picks].mean(axis=1) / bottom[picks].mean(axis=1)).std()
    assert value == pytest.approx(2, abs=0.05)
    assert se == pytest.approx(other, rel=0.1)
    assert ratio_of_means(2 * bottom, bottom)[1] == pytest.approx(0, abs=1e-12)
