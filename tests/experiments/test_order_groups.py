"""Comparisons of groups over replicates: the same anywhere, prefixes, rules of looking."""

from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from estimators.group_sequential import bounds
from orchestrator.core.errors import DidNotConverge
from orchestrator.experiments import order_groups
from orchestrator.experiments.fanout import InProcess
from orchestrator.experiments.order_groups import CRITICAL, Seen, Study, Task, bounds_of, crossings

SMALL = Study(n_items=6, looks=(20, 40), lags=(1, 3), n_reps=3, resamples=20)


@pytest.fixture(scope="module")
def small():
    return order_groups.run(SMALL, InProcess())


def same(one, other):
    return all(np.array_equal(a, b, equal_nan=True) for a, b in zip(one, other, strict=True))


def by(figures):
    return {(figure.what, figure.n): figure for figure in figures}


def test_a_study_is_the_same_on_any_executor(small):
    with ThreadPoolExecutor(2) as threads:
        assert same(order_groups.run(SMALL, threads), small)
    assert (np.abs(small.robust_se / small.se - 1) > 1e-6).all()
    alone = order_groups.replicate(Task(SMALL, 2))
    assert np.array_equal(alone[:, :, 2], small.est[2])


def test_a_look_is_what_a_campaign_that_ends_there_sees(small):
    """The ratings of a look don't depend on later ones; a fit does to its tolerance, by its start."""
    short = order_groups.run(
        Study(n_items=6, looks=(40,), lags=(1, 3), n_reps=3, resamples=20), InProcess()
    )
    assert np.array_equal(short.naive[:, 0], small.naive[:, 1])
    for name in ("est", "se", "robust_se", "memory", "spread"):
        assert getattr(short, name)[:, 0] == pytest.approx(getattr(small, name)[:, 1], abs=1e-4)


def test_more_replicates_only_add(small):
    more = order_groups.run(
        Study(n_items=6, looks=(20, 40), lags=(1, 3), n_reps=4, resamples=20), InProcess()
    )
    assert same(small, Seen(*(part[:3] for part in more)))


def test_williams_has_no_bootstrap_of_few_blocks():
    """Two blocks can't be drawn from: the figure is left out in place of a wrong one."""
    study = Study(n_items=10, design="williams", looks=(20,), n_reps=2)
    seen = order_groups.run(study, InProcess())
    assert np.isnan(seen.bootstrap_se).all()
    names = {figure.what for figure in order_groups.error_rates(study, seen)}
    assert "GLMM Wald rejects, %" in names
    assert "GLMM bootstrap rejects, %" not in names


def test_a_fit_without_a_maximum_counts_as_no_verdict(monkeypatch, small):
    def fail(*_, **__):
        raise DidNotConverge("no maximum", iterations=1, residual=1.0)

    monkeypatch.setattr(order_groups, "fit_sequences", fail)
    study = Study(n_items=6, looks=(20, 40), n_reps=3)
    seen = order_groups.run(study, InProcess())
    assert np.array_equal(seen.naive, small.naive)
    found = by(order_groups.error_rates(study, seen))
    assert found["GLMM without a verdict, %", 20].value == 100
    assert not crossings(seen.est[..., 0], seen.se[..., 0], study.looks, "O'Brien-Fleming").any()


def test_a_panel_drawn_anew_differs_by_replicate_and_keeps_its_laws():
    study = Study(inference="items")
    panels = np.array([Task(study, rep).world.theta for rep in range(400)])
    first, second = panels[:, :15], panels[:, 15:]
    assert (first.std(), second.std()) == pytest.approx((1.2, 0.4), rel=0.05)
    assert first.mean() == pytest.approx(-0.65, abs=4 * 1.2 / np.sqrt(6000))
    assert len(np.unique(panels[:, 0])) == 400
    assert np.array_equal(Task(study, 3).world.theta, panels[3])
    assert np.array_equal(Task(Study(), 3).world.theta, Task(Study(), 4).world.theta)


def test_over_items_the_error_is_welchs():
    study = Study(n_items=6, inference="items", looks=(20, 40), n_reps=3)
    seen = order_groups.run(study, InProcess())
    assert (seen.welch_se > seen.se).all()
    assert "GLMM Welch rejects, %" in {f.what for f in order_groups.error_rates(study, seen)}
    order_groups.peeking(study, seen)


# Rates


def test_rates_are_counted_from_what_was_seen():
    """A made-up study of four replicates and one look."""
    ones = np.ones((4, 1))
    none = np.full((4, 1, 1), np.nan)
    seen = Seen(
        naive=np.array([[0.3], [0.1], [-0.2], [0.1]]),
        naive_se=0.1 * ones,
        est=np.array([[[3.0]], [[1.0]], [[1.0]], [[-1.0]]]),
        se=ones[..., None],
        robust_se=0.4 * ones[..., None],
        bootstrap_se=none,
        welch_se=none,
        welch_p=none,
        memory=ones[..., None],
        spread=ones[..., None],
    )
    study = Study(n_items=8, looks=(30,), n_reps=4)
    found = {key: figure.value for key, figure in by(order_groups.error_rates(study, seen)).items()}
    assert found["naive rejects, %", 30] == 50
    assert found["naive picks A, %", 30] == 75
    assert found["naive difference, points", 30] == pytest.approx(7.5)
    assert found["GLMM Wald rejects, %", 30] == 25
    assert found["GLMM sandwich rejects, %", 30] == 100
    assert found["GLMM picks A, %", 30] == 75
    assert found["GLMM SE / SD", 30] == pytest.approx(1 / np.std([3, 1, 1, -1], ddof=1))


@pytest.mark.parametrize(("n_items", "has"), [(30, True), (6, False)])
def test_published_figures_stand_beside_the_published_setting_alone(n_items, has):
    study = Study(n_items=n_items, looks=(30, 60), n_reps=2, resamples=0)
    figures = order_groups.error_rates(study, order_groups.run(study, InProcess()))
    assert any(figure.published for figure in figures) == has


# Looking along the way


def test_bounds_are_those_of_the_rules():
    looks = (30, 60, 90, 120, 150)
    se = 1 / np.sqrt(np.array(looks))
    assert bounds_of("1.96 at each look", se, looks) == pytest.approx([CRITICAL] * 5)
    plan = bounds_of("O'Brien-Fleming", se, looks)
    assert plan == pytest.approx([4.877, 3.357, 2.680, 2.290, 2.031], abs=1e-3)
    uneven = se * [1, 1, 0.9, 1, 1]
    information = (1 / uneven**2).tolist()
    plan = bounds_of("O'Brien-Fleming", uneven, looks)
    assert plan.tolist() == list(bounds([0.2, 0.4, 0.6, 0.8, 1.0], information))
    sequence = bounds_of("confidence sequence", se, looks)
    assert sequence.argmin() == 4
    assert sequence[-1] == pytest.approx(3.03, abs=0.02)


def test_a_replicate_crosses_where_it_is_beyond_its_bound():
    looks = (30, 60)
    se = np.tile(1 / np.sqrt(np.array(looks)), (3, 1))
    z = np.array([[5.0, 0.0], [4.0, 2.5], [2.5, np.nan]])
    crossed = crossings(z * se, se, looks, "O'Brien-Fleming")
    assert crossed.tolist() == [[True, False], [True, True], [False, False]]
    se[2, 1] = np.nan
    assert not crossings(z * se, se, looks, "1.96 at each look")[2].any()


def test_a_difference_once_found_stays_found():
    """Rates rise over looks, and a run that is cut short finds no more than a whole one."""
    study = Study(world="gap", n_items=6, looks=(20, 40, 60), n_reps=20, resamples=0)
    found = by(order_groups.peeking(study, order_groups.run(study, InProcess())))
    for rule in ("1.96 at each look", "O'Brien-Fleming", "confidence sequence"):
        rates = [found[f"GLMM, {rule}, %", n].value for n in study.looks]
        assert rates == sorted(rates)
    whole, cut = (found[f"GLMM, O'Brien-Fleming{end}, %", 60].value for end in ("", ", cut early"))
    assert cut <= whole
    assert found["GLMM, 1.96 at each look, %", 60].value >= whole
    assert 20 <= found["GLMM, O'Brien-Fleming: batches", 60].value <= 60
