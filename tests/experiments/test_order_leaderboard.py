"""Leaderboards of six and the parts of a variance: the same anywhere, beside what must be."""

from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import numpy as np
import pytest

from orchestrator.experiments import order_leaderboard, ordering
from orchestrator.experiments.fanout import InProcess
from orchestrator.experiments.order_leaderboard import Study, Task

SMALL = Study(worlds=("uneven", "deep_memory"), batches=(6, 12), lags=(1, 3), n_reps=500, n_fits=2)


@pytest.fixture(scope="module")
def small():
    return order_leaderboard.run(SMALL, InProcess())


def by(figures, title):
    return {(figure.what, figure.n): figure for figure in figures if figure.table.endswith(title)}


def test_a_study_is_the_same_on_any_executor(small):
    with ThreadPoolExecutor(2) as threads:
        assert repr(order_leaderboard.run(SMALL, threads)) == repr(small)


def test_cells_do_not_depend_on_one_another(small):
    alone = order_leaderboard.run(
        Study(worlds=("deep_memory",), batches=(12,), n_reps=500, n_fits=0), InProcess()
    )
    assert repr([f for f in small if f.what == alone[0].what and f.n == 12][1:]) == repr(alone[:1])
    one, two = (
        order_leaderboard.one_fit(Task(replace(SMALL, n_fits=n), "uneven", 12, "shuffle", 1))
        for n in (2, 9)
    )
    assert np.array_equal(one, two)
    firsts = {
        order_leaderboard.one_fit(Task(SMALL, "uneven", 6, "shuffle", rep))[0, 0]
        for rep in range(12)
    }
    assert firsts == {0, 1}


def test_the_gain_is_the_difference_of_the_designs(small):
    found = by(small, "slots differ")
    for n in (6, 12):
        shuffled, balanced, gain = (
            found[what, n]
            for what in (
                "naive first, shuffle, %",
                "naive first, williams, %",
                "naive gain, points",
            )
        )
        assert gain.value == pytest.approx(balanced.value - shuffled.value)
        assert gain.se == pytest.approx(np.hypot(shuffled.se, balanced.se))
        assert 0 < shuffled.se < 100 * 0.5 / np.sqrt(500)


def test_published_gains_stand_beside_ours(small):
    found = by(small, "slots differ")
    assert found["naive gain, points", 12].published == "2.0"
    assert found["naive first, shuffle, %", 6].reference == "29.71"
    assert not any(f.published for f in small if f.table.endswith("memory of three"))


def test_a_fit_that_finds_no_maximum_is_counted(monkeypatch):
    monkeypatch.setattr(order_leaderboard, "fitted", lambda *_: None)
    found = by(order_leaderboard.run(replace(SMALL, lags=(1,)), InProcess()), "memory of three")
    assert found["lag-1 GLMM without a maximum, shuffle, %", 6].value == 100
    assert found["lag-1 GLMM first, shuffle, %", 6].value == 0


def test_deep_memory_has_the_items_of_uneven():
    assert (order_leaderboard.deep_memory().theta == ordering.uneven().theta).all()
    assert len(order_leaderboard.deep_memory().lags) == 3


# Variance


@pytest.fixture(scope="module")
def split():
    return order_leaderboard.order_variance(20_000, 5, InProcess())


def test_the_parts_make_up_the_simulated_variance(split):
    """Within four Monte-Carlo errors, in five comparisons and both designs."""
    assert len({figure.table for figure in split}) == 5
    for title in {figure.table for figure in split}:
        found = by(split, title)
        for design in ("shuffle", "williams"):
            rating, ordering_, whole, simulated = (
                found[f"{design}: {part}", 6]
                for part in ("rating part", "ordering part", "variance", "variance, simulated")
            )
            assert whole.value == rating.value + ordering_.value
            assert abs(simulated.value - whole.value) < 4 * simulated.se


def test_williams_has_no_ordering_part_between_equal_items(split):
    for title in ("equal items, slots alike", "equal items, slots differ"):
        found = by(split, title)
        assert found["williams: ordering part", 6].value == pytest.approx(0, abs=1e-12)
        assert found["shuffle: ordering part", 6].value > 1e-6
        rating = found["shuffle: rating part", 6].value
        assert found["williams: rating part", 6].value == pytest.approx(rating, rel=1e-9)


def test_where_slots_differ_the_order_is_a_seventh_of_the_variance(split):
    found = by(split, "equal items, slots differ")
    assert found["williams / shuffle", 6].value == pytest.approx(0.8485, abs=1e-4)
    assert by(split, "equal items, slots alike")["williams / shuffle", 6].value > 0.9999
