"""The study of low-rank strengths: its worlds, its figures, and bars B1 to B6 with fixed seeds."""

import csv
import json

import numpy as np
import pytest
from scipy.special import expit

from estimators.tensor_functionals import evaluate
from estimators.tensor_model import fit_votes
from estimators.tensor_rank import choose_rank
from orchestrator.experiments import tensor_coverage as study
from orchestrator.experiments.fanout import InProcess, open_executor
from orchestrator.experiments.figures import written
from orchestrator.experiments.tensor_coverage import Study


@pytest.fixture(scope="module")
def executor():
    """Two processes; the matrices are small, so that threads over one of them only cost."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("OPENBLAS_NUM_THREADS", "1")
        with open_executor(2) as processes:
            yield processes


NOTED = ("coverage, %", "gap width", "RMSE")


def found(of, executor, measured=None, bar="", also=()):
    """Index a study's figures by what, and write down those of the bar, a row for all methods."""
    figures = study.figures(of, study.run(of, executor))
    for what in (*NOTED, *also) if measured else ():
        row = [each for each in figures if each.what.split(": ")[1] == what]
        written_down = (
            f"{each.what.split(': ')[0]} {written(each)}"
            + (f" ({each.reference})" if each.reference else "")
            for each in row
        )
        is_cited = any(each.reference for each in row)
        beside = " (reference)" if is_cited else ""
        measured(f"{bar} {of.title}, n = {of.n:,}: {what}{beside}", "; ".join(written_down))
    return {each.what: each for each in figures}


def within(figure, low, high=100.0):
    """Say whether a share lies in a band widened by three Monte-Carlo errors."""
    assert low - 3 * figure.se <= figure.value <= high + 3 * figure.se, figure


def test_the_truth_is_of_rank_two_and_as_strong_as_it_says():
    true = study.truth()
    assert np.linalg.svd(true, compute_uv=False)[:3] == pytest.approx([7.29, 4.69, 0], abs=1e-9)
    assert np.abs(true.sum(axis=0)).max() < 1e-12
    assert 1.5 < np.abs(true).max() <= 2.1


@pytest.mark.parametrize(
    ("design", "low", "high"), [("uniform", 1, 1), ("nonuniform", 0.0824, 7.51)]
)
def test_weights_are_uniform_over_propensity(design, low, high):
    """Bar B4's law: weights between .08 and 7.5, of mean 1."""
    drawn = study.drawn(design, 20_000, np.random.default_rng(0), study.truth())
    assert drawn.weights.min() == pytest.approx(low, rel=1e-3)
    assert drawn.weights.max() == pytest.approx(high, rel=1e-3)
    assert drawn.weights.mean() == pytest.approx(1, abs=0.02)


def test_chosen_comparisons_keep_their_floor_and_their_order():
    drawn = study.drawn("adaptive", 1000, np.random.default_rng(0), study.truth())
    assert len(drawn.votes) == 1000
    assert (drawn.weights[:600] == 1).all()
    assert drawn.weights.max() <= 1 / study.FLOOR + 1e-9
    assert np.ptp(drawn.weights[600:]) > 0.5
    again = study.drawn("adaptive", 1000, np.random.default_rng(0), study.truth())
    assert (again.weights == drawn.weights).all()
    # What came first is a prefix: the same votes as if no more had been asked.
    fewer = study.drawn("adaptive", 800, np.random.default_rng(0), study.truth())
    cells = [each.votes.left[each.votes.cell][:800] for each in (drawn, fewer)]
    assert (cells[0] == cells[1]).all()


def test_categories_for_themselves_have_the_models_errors():
    """A second witness: the covariance of one category's strengths by the pseudo-inverse."""
    drawn = study.drawn("uniform", 6000, np.random.default_rng(1), study.truth()).votes
    wanted = study.targets()
    apart = study._apart(drawn, wanted)
    cells = drawn.cells()
    tensor = study.by_context(cells, ridge=study.APART_RIDGE)
    p = expit(cells.eta(tensor))
    blocks = cells.laplacians(cells.weight * p * (1 - p))
    gradients = evaluate(wanted, tensor).gradients.reshape(-1, study.M, study.K)
    variance = [
        sum(g[:, k] @ np.linalg.pinv(blocks[k], rcond=1e-9) @ g[:, k] for k in range(study.K))
        for g in gradients
    ]
    assert apart.se == pytest.approx(np.sqrt(variance), rel=1e-4)


def test_intervals_hold_and_are_narrower_than_each_categorys(executor):
    """Bars B1 and B5 in short: 30 replicates."""
    of = Study(methods=("btl_cat", "mle", "eff5_all"), n_reps=30)
    figures = found(of, executor)
    for name in ("mle", "eff5_all"):
        within(figures[f"{name}: coverage, %"], 93.5)
        assert figures[f"{name}: SE / SD"].value == pytest.approx(1, abs=0.12)
    assert figures["eff5_all: gap width / btl_cat"].value <= 0.72
    assert figures["eff5_all: largest error"].value < 2


def test_a_rank_too_low_ruins_coverage(executor):
    """Pitfall 16 in short: 40 replicates of rank one where two is true."""
    of = Study(methods=("mle",), rank=(1, 1), n_reps=40)
    assert found(of, executor)["mle: coverage, %"].value < 85


def test_a_ridge_holds_fits_of_half_a_sparse_sample(executor):
    """Pitfall 18 in short: 30 replicates."""
    free, held = (
        found(
            Study(design="nonuniform", n=1500, methods=("iso2_ipw",), fold_ridge=ridge, n_reps=30),
            executor,
        )
        for ridge in (0.0, 0.2)
    )
    assert free["iso2_ipw: largest error"].value > 20
    assert held["iso2_ipw: largest error"].value < 8


def test_figures_do_not_depend_on_who_computes_them(executor):
    of = Study(methods=("mle", "eff2", "iso2_ipw"), n=1000, n_reps=3)
    here, there = (study.run(of, each) for each in (InProcess(), executor))
    assert all((a == b).all() for a, b in zip(here, there, strict=True))


def test_the_command_prints_tables_and_writes_files(sortition, tmp_path):
    line = "tensor-coverage --design adaptive --reps 2 --csv f.csv --plot f.svg"
    code, out, err = sortition("lab", "experiment", *line.split())
    assert code == 0
    assert "forward: coverage, %" in out
    assert "comparisons" in out
    assert "of" in err
    with (tmp_path / "f.csv").open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    assert {row["table"].split()[0] for row in rows} == {"uniform", "adaptive"}
    assert any(row["reference"] for row in rows)
    assert (tmp_path / "f.svg").read_text(encoding="utf-8").startswith("<svg")


def test_for_programs_there_is_json_alone(sortition):
    line = "tensor-coverage --reps 2 --json"
    code, out, _ = sortition("lab", "experiment", *line.split())
    assert code == 0
    rows = json.loads(out, parse_constant=lambda _: pytest.fail("no number of JSON"))
    assert {row["n"] for row in rows} == {3000, 10_000}


@pytest.mark.parametrize(
    ("line", "says"), [("--design other", "other"), ("--reps 1", "greater than or equal to 2")]
)
def test_what_makes_no_sense_is_refused(line, says, sortition):
    code, out, err = sortition("lab", "experiment", "tensor-coverage", *line.split())
    assert code == 2
    assert says in err
    assert not out


# --- in full -----------------------------------------------------------------------------------

ALSO = ("gap width / btl_cat", "worst coverage, %", "largest error", "separated, %", "SE / SD")


@pytest.mark.slow
def test_uniform_comparisons_in_full(executor, measured):
    """Bars B1 to B3 and B5: 400 replicates at 3,000 and at 10,000 comparisons."""
    few, many = (
        found(Study(n=n, n_reps=400), executor, measured, "B1-B3, B5", ALSO) for n in (3000, 10_000)
    )
    for name in ("eff5", "eff5_all", "mle"):
        within(few[f"{name}: coverage, %"], 93.5)
        within(many[f"{name}: coverage, %"], 93.5, 96.5)
    for name in ("whit5_all", "iso5_ipw", "whit2", "iso2_ipw"):
        within(few[f"{name}: coverage, %"], 92.5)
        within(many[f"{name}: coverage, %"], 92.5)
    for figures in (few, many):
        assert figures["eff5_all: gap width / btl_cat"].value <= 0.72


@pytest.mark.slow
def test_popular_comparisons_in_full(executor, measured):
    """Bar B4: known propensities, 400 replicates; weights in the isotropic form."""
    few, many = (
        found(Study(design="nonuniform", n=n, n_reps=400), executor, measured, "B4", ALSO)
        for n in (3000, 10_000)
    )
    for name in ("eff5", "eff5_all", "iso5_ipw"):
        within(few[f"{name}: coverage, %"], 93.0)
        within(many[f"{name}: coverage, %"], 93.5)
        assert few[f"{name}: largest error"].value < 5
    assert few["btl_cat: separated, %"].value > 1


@pytest.mark.slow
def test_fits_of_half_a_sparse_sample_run_away_without_a_ridge(executor, measured):
    """Pitfall 18: coverage does not show it, the largest error does. 400 replicates."""
    methods = ("eff2_all", "iso2_ipw")
    free, held, stiff = (
        found(
            Study(design="nonuniform", n=2000, methods=methods, fold_ridge=ridge, n_reps=400),
            executor,
            measured,
            "pitfall 18",
            ("largest error",),
        )
        for ridge in (0.0, 0.2, 1.0)
    )
    within(free["iso2_ipw: coverage, %"], 93.0)
    assert free["iso2_ipw: largest error"].value > 20
    assert free["iso2_ipw: RMSE"].value > 2 * held["iso2_ipw: RMSE"].value
    for name in methods:
        within(held[f"{name}: coverage, %"], 93.0)
        assert held[f"{name}: largest error"].value < 8
        assert held[f"{name}: RMSE"].value < free[f"{name}: RMSE"].value
        assert stiff[f"{name}: RMSE"].value < held[f"{name}: RMSE"].value


@pytest.mark.slow
def test_chosen_comparisons_in_full(executor, measured):
    """Adaptive sampling beside uniform: fits, random folds, and going forward; 120 replicates."""
    for design in ("uniform", "adaptive"):
        of = Study(design=design, n=4000, methods=study.WATCHED, n_reps=120, seed=21)
        figures = found(of, executor, measured, "adaptive", ("worst coverage, %",))
        for name in study.WATCHED:
            within(figures[f"{name}: coverage, %"], 93.0)


@pytest.mark.slow
def test_bic_finds_the_rank_and_a_wrong_one_costs(executor, measured):
    """Bar B6 and pitfall 16: ranks 1 to 4 where 2 is true, n = 3,000."""
    picked = []
    for rep in range(400):
        rng = np.random.default_rng([55, rep])
        source = study.drawn("uniform", 3000, rng, study.truth()).votes
        rows = (each[source.cell] for each in (source.left, source.right, source.context))
        choice = choose_rank(*rows, source.outcome, shape=(study.M, study.K), folds=0)
        picked.append(choice.rank[0])
    right = float(np.mean(np.array(picked) == 2))
    measured("B6 BIC picks the true rank 2 of 1 to 4, n = 3,000 >= 95 %", f"{100 * right:.1f} %")
    assert right >= 0.95
    figures = {
        r: found(
            Study(methods=("mle",), rank=(r, r), n_reps=400, seed=56),
            executor,
            measured,
            "pitfall 16",
        )
        for r in (1, 2, 3)
    }
    assert figures[1]["mle: coverage, %"].value < 85
    within(figures[2]["mle: coverage, %"], 93.5)
    within(figures[3]["mle: coverage, %"], 91.5)
    assert figures[3]["mle: gap width"].value > 1.1 * figures[2]["mle: gap width"].value


@pytest.mark.slow
def test_errors_of_chosen_ranks_are_flagged_where_votes_are_few(measured):
    """How often the rule for weak identification speaks where intervals do hold."""
    flagged = {
        (design, n): np.mean(
            [
                "weakly_identified"
                in fit_votes(
                    study.drawn(design, n, np.random.default_rng([11, r]), study.truth()).votes,
                    rank=study.RANK,
                ).flags
                for r in range(100)
            ]
        )
        for design in ("uniform", "nonuniform")
        for n in (3000, 10_000)
    }
    for (design, n), often in flagged.items():
        measured(f"weakly_identified, {design}, n = {n:,}", f"{100 * often:.0f} %")
    assert flagged["uniform", 10_000] <= flagged["nonuniform", 3000]
