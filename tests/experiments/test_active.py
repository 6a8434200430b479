"""Studies of choosing pairs: the same anywhere, and each of them able to tell good from bad."""

import csv
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from itertools import islice

import numpy as np
import pytest

from orchestrator.experiments import active_leader, active_newcomer, active_ranking
from orchestrator.experiments.active import AOPT, DOPT, TOP1, UNIFORM, Sampler, campaign, strengths
from orchestrator.experiments.active_leader import Ended, Seen
from orchestrator.experiments.active_ranking import passage
from orchestrator.experiments.fanout import InProcess
from policies.pairing.posterior import Posterior

LEADER = active_leader.Study(
    n_models=5, gap=1.0, samplers=(UNIFORM, TOP1), batch=10, cap=3000, n_reps=8
)
NEWCOMER = active_newcomer.Study(
    n_models=8, n_known=100, width=1.2, samplers=(UNIFORM, AOPT), n=300, n_reps=4
)
RANKING = active_ranking.Study(
    n_models=8, spread=2.0, samplers=(UNIFORM, AOPT), n=300, batch=20, n_reps=6
)


def by(figures):
    return {(figure.what, figure.n): figure for figure in figures}


def test_a_sampler_is_named_by_rule_power_and_an_unusual_floor():
    assert [s.name for s in (UNIFORM, DOPT, TOP1, Sampler("top1", 1, 0.1))] == [
        *("uniform", "dopt:4", "top1:1", "top1:1:0.1"),
    ]


def test_strengths_have_the_spread_that_is_asked():
    drawn = strengths(7, 2.0, np.random.default_rng(0))
    assert (drawn.mean(), drawn.std()) == (pytest.approx(0), pytest.approx(2))


def test_a_campaign_starts_with_a_cycle_and_ends_batches_at_multiples():
    state = Posterior(7)
    sizes = campaign(np.zeros(7), AOPT, 10, state, np.random.default_rng(0))
    assert next(sizes) == 7
    assert (state.counts.sum(axis=1) == 2).all()
    assert list(islice(sizes, 3)) == [10, 20, 30]
    assert state.counts.sum() == 2 * 30


@pytest.mark.parametrize(
    ("study", "of"),
    [(LEADER, active_leader), (NEWCOMER, active_newcomer), (RANKING, active_ranking)],
    ids=["leader", "newcomer", "ranking"],
)
def test_a_study_is_the_same_on_any_executor(study, of):
    here = of.figures_of(study, of.run(study, InProcess()))
    with ThreadPoolExecutor(2) as threads:
        assert repr(of.figures_of(study, of.run(study, threads))) == repr(here)


def test_a_leader_is_proved_by_fewer_comparisons_chosen_for_it():
    """Bar C1 in small: five models, the leader far ahead."""
    found = by(active_leader.figures_of(LEADER, active_leader.run(LEADER, InProcess())))
    assert found["top1:1: of uniform's comparisons", 3000].value < 0.8
    for name in ("uniform", "top1:1"):
        assert found[f"{name}: false leader, %", 3000].value == 0
        assert found[f"{name}, separated, %", 2000].value == 100
        assert (
            found[f"{name}, fixed bound: comparisons", 3000].value
            < found[f"{name}: comparisons", 3000].value
        )


def test_tied_leaders_are_not_told_apart():
    """By the bound for every look, 30 short campaigns; at one look at a time some are."""
    study = active_leader.Study(
        n_models=3, gap=0.0, samplers=(TOP1,), batch=10, cap=600, n_reps=30, seed=2
    )
    found = by(active_leader.figures_of(study, active_leader.run(study, InProcess())))
    assert found["top1:1: false leader, %", 600].value <= 5 + 3 * 4.0
    assert (
        found["top1:1, fixed bound: false leader, %", 600].value
        > found["top1:1: false leader, %", 600].value
    )
    assert "top1:1: of uniform's comparisons" not in {what for what, _ in found}


def test_who_was_cut_off_has_no_leader_and_counts_with_the_cap():
    seen = Seen(
        sequence=Ended(np.array([100.0, np.inf, 300.0]), np.array([0.0, np.nan, 1.0])),
        fixed=Ended(np.array([50.0, 60.0, 70.0]), np.zeros(3)),
    )
    study = active_leader.Study(samplers=(TOP1,), cap=1000, n_reps=3)
    found = by(active_leader.figures_of(study, {TOP1: seen}))
    assert found["top1:1: comparisons", 1000].value == pytest.approx(1400 / 3)
    assert found["top1:1: false leader, %", 1000].value == pytest.approx(100 / 3)
    assert found["top1:1, separated, %", 500].value == pytest.approx(200 / 3)
    assert found["top1:1: comparisons", 1000].reference == "1499 ± 101"


def test_a_newcomer_is_placed_by_fewer_comparisons_chosen_for_it():
    """Bar C3 in small: eight models, seven known."""
    seen = active_newcomer.run(NEWCOMER, InProcess())
    for widths in seen.values():
        assert np.isinf(widths[:, 0]).all()
        assert (np.diff(widths[:, 1:], axis=1) < 0.3).all()
    found = by(active_newcomer.figures_of(NEWCOMER, seen))
    assert found["aopt:4: of uniform's comparisons", 300].value < 0.6
    assert not any(figure.reference for figure in found.values())


def test_choosing_narrows_the_widest_interval_and_leaves_the_order():
    seen = active_ranking.run(RANKING, InProcess())
    found = by(active_ranking.figures_of(RANKING, seen))
    assert found["aopt:4: widest", 300].value < 0.95 * found["uniform: widest", 300].value
    assert abs(found["aopt:4: tau less uniform's", 300].value) < 0.2
    assert {n for what, n in found if what == "uniform: tau"} == {60, 120, 180, 240, 300}
    assert (np.diff(seen[UNIFORM].width.mean(axis=0)) < 0).all()


def test_a_level_is_reached_where_the_mean_stays_past_it():
    sizes = np.array([10, 20, 30, 40])
    assert passage(np.array([[0.0, 1, 0, 1], [0, 1, 1, 1]]), 0.9, sizes) == 40
    assert passage(np.array([[0.0, 1, 1, 1]]), 0.9, sizes) == 20
    assert passage(np.array([[1.0, 1, 1, 1]]), 0.9, sizes) == 10
    assert np.isnan(passage(np.array([[1.0, 1, 1, 0]]), 0.9, sizes))


def test_grids_are_those_of_the_published_tables():
    """Reference figures stand beside all of their settings, and beside no other."""
    for study in active_ranking.grid(2):
        assert active_ranking.REFERENCE[study.n_models, study.spread].keys() == set(study.samplers)
    for study in active_leader.grid(2):
        if study.gap:
            assert active_leader.FIXED[study.n_models].keys() == set(study.samplers)
    assert active_newcomer.REFERENCE.keys() == set(active_newcomer.Study().samplers)


# The commands


@pytest.mark.parametrize(
    ("name", "of", "studies", "says"),
    [
        ("active-leader", active_leader, [LEADER], "top1:1, separated, %"),
        ("active-newcomer", active_newcomer, None, "aopt:4: comparisons"),
        ("active-ranking", active_ranking, [RANKING], "uniform: tau"),
    ],
)
def test_each_prints_its_table_and_writes_files(
    name, of, studies, says, sortition, tmp_path, monkeypatch
):
    if studies:
        monkeypatch.setattr(of, "grid", lambda reps, seed: [replace(s, n_reps=2) for s in studies])
    else:
        monkeypatch.setattr(of, "Study", lambda n_reps, seed: replace(NEWCOMER, n_reps=2))
    code, out, _ = sortition(
        "lab", "experiment", name, "--reps", 2, "--csv", "f.csv", "--plot", "f.svg"
    )
    assert code == 0
    assert "comparisons" in out
    assert says in " ".join(out.split())
    with (tmp_path / "f.csv").open(encoding="utf-8", newline="") as file:
        assert says in {row["what"] for row in csv.DictReader(file)}
    assert (tmp_path / "f.svg").read_text(encoding="utf-8").startswith("<svg")
