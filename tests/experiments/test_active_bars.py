"""The bars of choosing pairs, with fixed seeds: measured beside another program's figures."""

import pytest

from orchestrator.experiments import active_leader, active_newcomer, active_ranking
from orchestrator.experiments.active import AOPT, TOP1, UNIFORM
from orchestrator.experiments.fanout import open_executor
from orchestrator.experiments.figures import written

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def executor():
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("OPENBLAS_NUM_THREADS", "1")
        with open_executor(2) as processes:
            yield processes


@pytest.fixture
def noted(measured):
    """Index figures by what they are at the end, and write down those that are named."""

    def index(figures, bar, *names):
        last = max(figure.n for figure in figures)
        found = {figure.what: figure for figure in figures if figure.n == last}
        for name in names:
            figure = found[name]
            beside = f" (reference {figure.reference})" if figure.reference else ""
            measured(f"{bar} {figure.table}: {name}{beside}", written(figure))
        return found

    return index


@pytest.mark.parametrize(
    ("bar", "study", "most"),
    [
        ("C1", active_leader.Study(samplers=(UNIFORM, TOP1), n_reps=200), 0.50),
        (
            "C2",
            active_leader.Study(
                n_models=30, samplers=(UNIFORM, TOP1), batch=60, cap=32000, n_reps=60
            ),
            0.35,
        ),
    ],
)
def test_a_leader_is_proved_by_fewer_comparisons(bar, study, most, executor, noted):
    """Bars C1 and C2, by the bound that holds at every look; cut-off uniform runs flatter uniform."""
    figures = active_leader.figures_of(study, active_leader.run(study, executor))
    ratio = "top1:1: of uniform's comparisons"
    found = noted(figures, bar, "uniform: comparisons", "top1:1: comparisons", ratio)
    assert found[ratio].value <= most
    for name in ("uniform", "top1:1"):
        assert (
            found[f"{name}: false leader, %"].value <= 5 + 3 * found[f"{name}: false leader, %"].se
        )


def test_tied_leaders_are_rarely_told_apart(executor, noted):
    """A false leader in 5 % + 3 SE at most; the bound for one look is beside, as a warning."""
    study = active_leader.Study(gap=0.0, samplers=(UNIFORM, TOP1), cap=5000, n_reps=400)
    figures = active_leader.figures_of(study, active_leader.run(study, executor))
    false = [f"{name}: false leader, %" for name in ("uniform", "top1:1")]
    fixed = "top1:1, fixed bound: false leader, %"
    found = noted(figures, "tied leaders, <= 5 % + 3 SE,", *false, fixed)
    for name in false:
        assert found[name].value <= 5 + 3 * 100 * (0.05 * 0.95 / 400) ** 0.5
    assert found[fixed].value > found["top1:1: false leader, %"].value


def test_a_newcomer_is_placed_by_fewer_comparisons(executor, noted):
    """Bar C3."""
    study = active_newcomer.Study()
    figures = active_newcomer.table(study, executor)
    names = [f"{way.name}: comparisons" for way in study.samplers]
    ratio = "aopt:4: of uniform's comparisons"
    found = noted(figures, "C3", *names, ratio)
    assert found[ratio].value <= 0.25


def test_the_widest_interval_narrows_sooner(executor, noted):
    """Bar C4: 30 models of SD .8, `aopt` against uniform."""
    study = active_ranking.Study(
        n_models=30, samplers=(UNIFORM, AOPT), n=6000, batch=60, n_reps=24, seed=102
    )
    figures = active_ranking.figures_of(study, active_ranking.run(study, executor))
    names = [f"{way.name}: widest <= 0.7" for way in study.samplers]
    found = noted(figures, "C4", *names)
    uniform, chosen = (found[name].value for name in names)
    assert chosen / uniform <= 0.87


@pytest.mark.parametrize(
    ("n_models", "n", "batch", "n_reps"), [(10, 1500, 15, 240), (30, 6000, 60, 60)]
)
@pytest.mark.parametrize("spread", [0.8, 2.0])
def test_choosing_does_the_order_no_harm(n_models, n, batch, n_reps, spread, executor, noted):
    """Bar C5; and C6, the limit of what may be said: no general saving for the order of all."""
    study = active_ranking.Study(
        n_models=n_models,
        spread=spread,
        samplers=(UNIFORM, AOPT),
        n=n,
        batch=batch,
        n_reps=n_reps,
    )
    figures = active_ranking.figures_of(study, active_ranking.run(study, executor))
    harm = "aopt:4: tau less uniform's"
    reached = [f"{way.name}: tau >= 0.90" for way in study.samplers]
    found = noted(figures, "C5, C6", harm, *reached)
    assert found[harm].value >= -0.015
