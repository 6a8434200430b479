"""What people would say of all items, by labels of some."""

import math
from dataclasses import replace

import numpy as np
import pytest

from estimators.calibration import label_scores
from estimators.cells import Scoring
from estimators.exchangeable import fit_exchangeable
from estimators.human_means import human_mean
from estimators.prediction_powered import prediction_powered
from estimators.score_means import ScoreMeansConfig, fit_score_means
from orchestrator.core.scale import Criterion, Scale, ScaleType
from tests.estimators.test_exchangeable import config, in_order, study, told

TEN = Scale(type=ScaleType.INTEGER, low=1, high=10)
SCORING = Scoring(study(1, scale=TEN))


def labelled(rng, labels, n):
    """Keep the labels of n random items."""
    found = np.full(len(labels), math.nan)
    kept = rng.permutation(len(labels))[:n]
    found[kept] = labels[kept]
    return found


def test_labelled_items_stand_against_all_others():
    rng = np.random.default_rng(1)
    labels = rng.integers(1, 11, 300).astype(float)
    scores = np.clip(labels + rng.normal(0, 1, 300), 1, 10)
    few = labelled(rng, labels, 60)
    is_there = ~np.isnan(few)
    found = human_mean(few, scores, 900, alpha=0.1, scoring=SCORING)
    own = prediction_powered(
        few[is_there], scores[is_there], scores[~is_there], 900, level=0.9, low=1, high=10
    )
    assert found.bounded == own.powered
    assert found.method == "power-tuned prediction-powered, t"
    assert found.flag == ""
    assert found.about == {
        "n_labels": 60,
        "power": own.power,
        "correlation": own.correlation,
        "labels_only": dict(
            zip(
                ("value", "lower", "upper"), own.labels_only[:1] + own.labels_only[2:4], strict=True
            )
        ),
    }


def test_few_labels_and_a_perfect_judge_leave_the_labels_alone():
    rng = np.random.default_rng(2)
    labels = rng.integers(1, 11, 100).astype(float)
    few = human_mean(labelled(rng, labels, 19), labels, 200, alpha=0.05, scoring=SCORING)
    assert (few.flag, few.method) == ("few_labels", "labels alone, betting")
    perfect = human_mean(labelled(rng, labels, 40), labels, 200, alpha=0.05, scoring=SCORING)
    assert (perfect.flag, perfect.method) == ("labels_stand_alone", "labels alone, t")
    none = human_mean(np.full(9, math.nan), np.ones(9), 20, alpha=0.05, scoring=SCORING)
    assert math.isnan(none.bounded.value)
    assert none.about["n_labels"] == 0


@pytest.mark.parametrize("n_runs", [300, pytest.param(5000, marks=pytest.mark.slow)])
def test_made_up_scores_of_what_is_missing_bias_nothing(n_runs, measured):
    """The judge is silent on what people dislike: the middle stands there, in labelled items and others.

    Leaving these items out would miss: the negative control.
    """
    rng = np.random.default_rng(3)
    labels = rng.integers(1, 11, 600).astype(float)
    scores = np.clip(labels + rng.normal(0, 1, 600), 1, 10)
    is_silent = (labels < 4) & (rng.random(600) < 0.7)
    missed, missed_without = 0, 0
    for _ in range(n_runs):
        told = rng.permutation(600)[:300]
        few = labelled(rng, labels[told], 60)
        for is_kept in (np.ones(300, dtype=bool), ~is_silent[told]):
            f = np.where(is_silent, 5.5, scores)[told][is_kept]
            lower, upper = human_mean(few[is_kept], f, 600, alpha=0.05, scoring=SCORING).bounded[
                2:4
            ]
            is_missed = not lower <= labels.mean() <= upper
            missed += is_missed and is_kept.all()
            missed_without += is_missed and not is_kept.all()
    measured(
        f"labels with a judge that is silent on what is disliked, {n_runs} runs: missed, about .05",
        f"{missed / n_runs:.4f}; {missed_without / n_runs:.4f} without these items",
    )
    assert missed / n_runs <= 0.05 + 3 * math.sqrt(0.05 * 0.95 / n_runs) + 0.008
    assert missed_without / n_runs > 0.5


def test_a_label_scores_as_a_verdict_does_and_a_part_of_one_is_none():
    two = (Criterion(name="a", scale=TEN, weight=1.0), Criterion(name="b", scale=TEN, weight=3.0))
    labels = np.array([[1.0, 10.0], [4.0, math.nan], [math.nan, math.nan]])
    of = replace(study(3), criteria=two, labels=labels)
    found = label_scores(of, Scoring(of))
    assert found[0] == pytest.approx(0.75)
    assert np.isnan(found[1:]).all()
    alone = label_scores(of, Scoring(of, "a"))
    assert alone[:2].tolist() == [1.0, 4.0]
    with pytest.raises(ValueError, match="targets: human wants labels"):
        told(study(3), np.ones(3), targets=("human",))


def with_labels(of, every):
    """Label every so many items 1, and the others not at all."""
    labels = np.full((of.frame.n_units, 1), math.nan)
    labels[::every] = 1.0
    return replace(of, labels=labels)


def test_a_number_of_labels_says_how_many_there_are():
    """Eight labels and 300 verdicts: it is a number of eight, and says what was not drawn."""
    of = with_labels(study(400), 40)
    scores = np.arange(400) % 5 > 0
    _, people = told(of, scores, 300, targets=("benchmark", "human"))
    by_name = people.diagnostics["by_name"]
    (n_labels,) = by_name["n_labels"]
    drawn = in_order(of, np.arange(400))[:300]
    assert n_labels == sum(item % 40 == 0 for item in drawn)
    assert (people.n_items, people.n_answers) == (n_labels, 0)
    assert by_name["labels_not_drawn"] == [10 - n_labels]
    assert people.flags == ("few_labels", "labels_not_drawn")
    _, all_in = told(of, scores, targets=("benchmark", "human"))
    assert all_in.flags == ("few_labels",)


def test_many_labels_and_the_verdicts_beside_them_are_both_counted():
    rng = np.random.default_rng(5)
    of = study(400, scale=TEN)
    labels = rng.integers(1, 11, (400, 1)).astype(float)
    scores = np.clip(labels + rng.integers(-2, 3, (400, 1)), 1, 10)
    labels[100:] = math.nan
    (people,) = told(replace(of, labels=labels), scores, targets=("human",))
    assert (people.n_items, people.n_answers, people.flags) == (100, 400, ())


def test_labels_show_how_judges_agree_with_them_whatever_is_estimated():
    """As a mean of scores shows it, by one that is fitted at once too."""
    rng = np.random.default_rng(6)
    scores = rng.integers(1, 11, (60, 1)).astype(float)
    labels = np.where(rng.random((60, 1)) < 0.5, np.clip(scores - 1, 1, 10), math.nan)
    of = replace(study(60, scale=TEN), labels=labels)
    (ours,) = told(of, scores)
    (theirs, *_) = fit_score_means(
        ScoreMeansConfig(name="m", kind="score_means"),
        of,
        unit=np.arange(60),
        judge=np.zeros(60, dtype=int),
        values=scores,
    )
    assert ours.diagnostics["labels"] == theirs.diagnostics["labels"]
    (at_once,) = fit_exchangeable(
        config(), of, unit=np.arange(60), judge=np.zeros(60, dtype=int), values=scores
    )
    assert at_once.diagnostics["labels"] == ours.diagnostics["labels"]
    assert "labels" not in told(study(60, scale=TEN), scores)[0].diagnostics
