"""Which rank: BIC and held-out loss, beside strengths of each context for itself."""

import csv
import gzip
import math

import numpy as np
import pytest
from scipy.special import expit

from estimators.tensor_cells import votes
from estimators.tensor_fit import by_context, maximise
from estimators.tensor_rank import choose_rank
from tests.estimators.tensor_data import Rows, drawn, truth


@pytest.fixture(scope="module")
def rows():
    rng = np.random.default_rng(12)
    return drawn(truth((10, 6), (2, 2), rng), 3000, rng)


@pytest.fixture(scope="module")
def choice(rows):
    return choose_rank(*rows, shape=(10, 6))


def test_both_criteria_find_the_rank_that_is_there(rows, choice):
    assert choice.rank == (2, 2)
    assert choose_rank(*rows, shape=(10, 6), criterion="held_out").rank == (2, 2)
    assert [row.dimension for row in choice.candidates] == [14, 26, 36, 44]


def test_bic_is_of_the_fit_of_all_votes(rows, choice):
    row = choice.candidates[1]
    assert row.bic == pytest.approx(-2 * row.loglik + 26 * math.log(3000))
    assert min(choice.candidates, key=lambda each: each.bic) is row


def test_held_out_loss_is_of_votes_that_fits_had_not_seen(rows):
    """The same by plain sums, for the tensor and for contexts apart."""
    folds = np.arange(3000) % 4
    found = choose_rank(*rows, shape=(10, 6), ranks=[2], folds=folds)
    source = votes(*rows, shape=(10, 6))
    losses = np.empty((2, 3000))
    for f in range(4):
        own = folds == f
        cells = source.cells(~own)
        tensor = maximise(cells, shape=(10, 6), rank=(2, 2), ridge=0.2).tensor
        for i, each in enumerate((tensor, by_context(cells, ridge=0.2))):
            p = expit(each[rows.left, rows.context] - each[rows.right, rows.context])
            losses[i, own] = -np.where(rows.outcome == 1, np.log(p), np.log(1 - p))[own]
    assert found.candidates[0].held_out.mean == pytest.approx(losses[0].mean())
    assert found.apart.mean == pytest.approx(losses[1].mean())
    gain = losses[1] - losses[0]
    assert found.gain.mean == pytest.approx(gain.mean())
    assert found.gain.se == pytest.approx(gain.std() / math.sqrt(3000))
    assert found.gain.mean > 3 * found.gain.se


def test_the_lowest_rank_within_one_error_of_the_best_is_taken(rows):
    found = choose_rank(*rows, shape=(10, 6), criterion="held_out")
    best = min(found.candidates, key=lambda each: each.held_out.mean)
    assert best.excess == (0, 0)
    for row in found.candidates:
        if row.dimension < 26:
            assert row.excess.mean > row.excess.se


def test_ranks_without_enough_votes_are_passed_over(rows):
    few = Rows(*(each[:200] for each in rows))
    found = choose_rank(*few, shape=(10, 6), folds=0)
    assert found.rank == (1, 1)
    assert "a tensor needs 10 for each" in found.candidates[2].reason
    assert math.isnan(found.apart.mean)
    none = choose_rank(*(each[:100] for each in rows), shape=(10, 6), folds=0)
    assert none.rank is None


def test_ranks_without_a_maximum_are_passed_over_in_words():
    """Strong models in few votes: some win always, and a higher rank can follow them without end."""
    rng = np.random.default_rng(2)
    rows = drawn(truth((10, 6), (2, 2), rng, 2.5), 450, rng)
    found = choose_rank(*rows, shape=(10, 6), ranks=[1, 4], folds=0)
    assert "still grow" in found.candidates[1].reason
    assert math.isnan(found.candidates[1].bic)
    held = choose_rank(*rows, shape=(10, 6), ranks=[1, 4], folds=0, ridge=0.2)
    assert all(not row.reason for row in held.candidates)


def test_ranks_that_the_shape_has_not_are_passed_over(rows):
    one = rows.context < 2
    found = choose_rank(*(each[one] for each in rows), shape=(10, 2), folds=0)
    assert [row.rank for row in found.candidates] == [(1, 1), (2, 2)]
    with pytest.raises(ValueError, match="no rank can be tried"):
        choose_rank(*rows, shape=(10, 6), ranks=[9])
    with pytest.raises(ValueError, match="needs folds"):
        choose_rank(*rows, shape=(10, 6), criterion="held_out", folds=0)


def votes_of(folder, judge):
    """Read the votes of one machine, or of the crowd: rows, and the item of each."""
    with gzip.open(folder / "llmfao" / "pairwise.csv.gz", "rt", encoding="utf-8") as file:
        told = [row for row in csv.DictReader(file) if row["judge"].startswith(judge)]
    models = sorted({row[side] for row in told for side in ("left", "right")})
    prompts = sorted({row["category"] for row in told})
    won = {"left": 1.0, "tie": 0.5, "right": 0.0}
    rows = Rows(
        np.array([models.index(row["left"]) for row in told]),
        np.array([models.index(row["right"]) for row in told]),
        np.array([prompts.index(row["category"]) for row in told]),
        np.array([won[row["winner"]] for row in told]),
    )
    return rows, (len(models), len(prompts)), [row["item_id"] for row in told]


@pytest.mark.shared
def test_one_trait_predicts_a_noisy_machine_better_than_each_prompt_for_itself(shared_data):
    """Real votes, in short: strengths of 70 models in 19 prompts from 3,236 votes."""
    rows, shape, items = votes_of(shared_data, "gpt-3.5")
    found = choose_rank(
        *rows, shape=shape, ranks=[1], criterion="held_out", by=items, ridge=0.2, folds=2
    )
    assert found.gain.mean > 3 * found.gain.se
    assert found.candidates[0].held_out.mean < math.log(2) - 3 * found.candidates[0].held_out.se


@pytest.mark.slow
@pytest.mark.shared
@pytest.mark.parametrize("judge", ["crowd", "gpt-3.5", "gpt-4"])
def test_llmfao_reports_its_rank_beside_each_prompt_for_itself(shared_data, judge, measured):
    """What a low rank brings on real votes is said, be it a loss."""
    rows, shape, items = votes_of(shared_data, judge)
    found = choose_rank(*rows, shape=shape, criterion="held_out", by=items, ridge=0.2)
    readable = [each for each in found.candidates if not each.reason]
    by_bic = min(readable, key=lambda each: each.bic)
    losses = ", ".join(f"{each.rank[0]}: {each.held_out.mean:.4f}" for each in readable)
    measured(
        f"llmfao, {judge}: held-out log-loss by rank",
        f"{losses}; each prompt for itself {found.apart.mean:.4f}; chosen by it {found.rank[0]}, by "
        f"BIC {by_bic.rank[0]}; gain over each prompt {found.gain.mean:.4f} ± {found.gain.se:.4f}",
    )
    # Each tells more than a coin. Whether prompts share what they ask for depends on the judge.
    assert all(each.held_out.mean < math.log(2) - 3 * each.held_out.se for each in readable)
    assert (found.gain.mean > 3 * found.gain.se) == (judge == "gpt-3.5")
