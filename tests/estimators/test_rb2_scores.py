"""score_means on recorded verdicts of five judges: its figures are those of the data's statistics."""

import csv
import gzip
import math
import re
from collections import defaultdict

import pytest

from estimators.score_means import ScoreMeans, ScoreMeansConfig
from orchestrator.core.frame import Frame
from orchestrator.core.money import FREE
from orchestrator.core.query import Kind
from orchestrator.core.scale import Criterion, Scale, ScaleType
from orchestrator.core.seeds import Seeds
from orchestrator.core.study import Panelist, Study
from orchestrator.testing.estimators import rating

pytestmark = pytest.mark.shared


@pytest.fixture(scope="module")
def answers(shared_data):
    """Scores by item and judge, in the order of the file."""
    found = defaultdict(lambda: defaultdict(list))
    with gzip.open(shared_data / "rb2_scores/ratings.csv.gz", "rt", encoding="utf-8") as file:
        for row in csv.DictReader(file):
            found[row["item_id"]][row["judge"]].append(float(row["score"]))
    return found


@pytest.fixture(scope="module")
def statistics(shared_data):
    """The section on these data in the statistics beside them."""
    text = (shared_data / "STATS.md").read_text(encoding="utf-8")
    return re.search(r"### rb2_scores.*?(?=\n### )", text, re.DOTALL).group()


@pytest.fixture(scope="module")
def judges(answers):
    return sorted({judge for by_judge in answers.values() for judge in by_judge})


def estimate(answers, judges, **entry):
    items = list(answers)
    study = Study(
        kind=Kind.RATE,
        frame=Frame.of(items),
        panel=tuple(Panelist(name=name, card=FREE) for name in judges),
        criteria=(Criterion(name="score", scale=Scale(type=ScaleType.INTEGER, low=1, high=10)),),
        seeds=Seeds(0),
    )
    estimator = ScoreMeans(ScoreMeansConfig(name="x", kind="score_means", **entry), study)
    q = 0
    for unit, item in enumerate(items):
        for judge, name in enumerate(judges):
            for replicate, score in enumerate(answers[item].get(name, ())):
                estimator.update(rating(q, unit, score, judge=judge, replicate=replicate))
                q += 1
    return estimator.estimate()[0]


def test_judges_have_the_means_and_variances_of_the_statistics(answers, judges, statistics):
    """Per judge: items, answers, mean score and mean repeat variance, to the digits printed."""
    found = estimate(answers, judges, per="judge")
    assert sum(row["n_answers"] for row in found.diagnostics["judges"]) == found.n_answers
    for k, row in enumerate(found.diagnostics["judges"]):
        name = re.escape(row["judge"])
        printed = re.search(rf"\| {name} \| (\d+) \| (\d+) \| ([\d.]+) \| ([\d.]+) \|", statistics)
        items, ratings, mean, variance = map(float, printed.groups())
        assert found.diagnostics["by_name"]["n_items"][k] == items
        assert row["n_answers"] == ratings
        assert row["mean"] == pytest.approx(mean, abs=0.0005)
        assert found.value[k] == pytest.approx(mean, abs=0.0005)
        assert row["repeat_variance"] == pytest.approx(variance, abs=0.0005)
    assert "identical_repeats" not in found.flags


def test_the_interaction_is_that_of_the_statistics(answers, judges, statistics, measured):
    """Over the items with all repeats of all judges, and nearly so over all shared items."""
    n, with_noise, without = (
        float(re.search(pattern, statistics).group(1))
        for pattern in (
            r"(\d+) items with all 8 replicates",
            r"interaction ([\d.]+) \(includes noise",
            r"Noise-free interaction SD ([\d.]+)",
        )
    )
    full = {
        item: by_judge
        for item, by_judge in answers.items()
        if [len(by_judge.get(name, ())) for name in judges] == [8] * len(judges)
    }
    found = estimate(full, judges).diagnostics["interaction"]
    assert found["n_units"] == n
    assert math.sqrt(found["mean_square"]) == pytest.approx(with_noise, abs=0.005)
    assert math.sqrt(found["variance"]) == pytest.approx(without, abs=0.005)
    of_all = estimate(answers, judges).diagnostics["interaction"]
    assert math.sqrt(of_all["variance"]) == pytest.approx(without, abs=0.01)
    measured("rb2_scores: interaction SD 0.89", f"{math.sqrt(found['variance']):.3f}")
