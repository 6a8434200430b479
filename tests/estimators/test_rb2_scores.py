"""score_means on recorded verdicts of five judges: its figures are those of the data's statistics."""

import csv
import gzip
import math
import re
from collections import defaultdict

import numpy as np
import pytest

from estimators.score_means import ScoreMeans, ScoreMeansConfig, fit_score_means
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


# --- coverage over replays -------------------------------------------------------------------------

LEVEL = 0.95


@pytest.fixture(scope="module")
def cells(answers, judges):
    """Scores (item, judge, repeat) of the items with all repeats of all judges, and their names."""
    full = {
        item: [by_judge[name] for name in judges]
        for item, by_judge in answers.items()
        if [len(by_judge.get(name, ())) for name in judges] == [8] * len(judges)
    }
    return np.array(list(full.values())), list(full)


@pytest.fixture(scope="module")
def pairs(cells):
    """The right answer and a wrong one to each question: scores (question, arm, judge, repeat)."""
    scores, names = cells
    place = {name: k for k, name in enumerate(names)}
    both = [
        [k, place[other]]
        for name, k in place.items()
        if name.endswith("-0") and (other := f"{name[:-2]}-1") in place
    ]
    return scores[np.array(both)]


def drawn(rng, recorded, n_repeats):
    """Draw repeats with replacement from the eight of each cell; NaN beyond `n_repeats`."""
    n = np.broadcast_to(n_repeats, recorded.shape[:-1])
    picks = rng.integers(0, 8, (*n.shape, n.max()))
    scores = np.take_along_axis(recorded, picks, axis=-1)
    return np.where(np.arange(n.max()) < n[..., None], scores, np.nan)


def fitted(scores, scale=ScaleType.INTEGER, **entry):
    """Fit scores (item, arm, judge, repeat); give the first estimate."""
    n_items, n_arms, n_judges, _ = scores.shape
    low, high = (0, 1) if scale is ScaleType.BOOLEAN else (1, 10)
    study = Study(
        kind=Kind.RATE,
        frame=Frame.of([str(i) for i in range(n_items)], ("old", "new")[:n_arms]),
        panel=tuple(Panelist(name=str(j), card=FREE) for j in range(n_judges)),
        criteria=(Criterion(name="score", scale=Scale(type=scale, low=low, high=high)),),
        seeds=Seeds(0),
    )
    item, arm, judge, _ = places = np.nonzero(~np.isnan(scores))
    config = ScoreMeansConfig(name="x", kind="score_means", confidence=LEVEL, **entry)
    return fit_score_means(
        config, study, unit=item * n_arms + arm, judge=judge, values=scores[places][:, None]
    )[0]


CONTRAST = {"arm": "new", "baseline": "old"}


def mean_of_items(rng, scores, _):
    some = scores[rng.integers(0, len(scores), 60)]
    return fitted(drawn(rng, some, 1)[:, None]), scores.mean()


def paired_difference(rng, _, pairs):
    some = pairs[rng.integers(0, len(pairs), 60)]
    apart = (pairs[:, 1] - pairs[:, 0]).mean()
    return fitted(drawn(rng, some, 1), contrast=CONTRAST), apart


def unpaired_difference(rng, _, pairs):
    some = drawn(rng, pairs[rng.integers(0, len(pairs), 120)], 1)
    some[:60, 1] = some[60:, 0] = np.nan
    apart = (pairs[:, 1] - pairs[:, 0]).mean()
    return fitted(some, contrast={**CONTRAST, "paired": False}), apart


def share_above_five(rng, scores, _):
    recorded = (scores[:, 2:3] > 5) * 1.0
    some = drawn(rng, recorded[rng.integers(0, len(scores), 100)], 1)
    return fitted(some[:, None], ScaleType.BOOLEAN), recorded.mean()


def items_as_given(rng, scores, _):
    """Sixty items, each judge asked 3 to 12 times about each: cells are unlike in all ways."""
    some = scores[rng.integers(0, len(scores), 60)]
    n = rng.integers(3, 13, some.shape[:2])
    return fitted(drawn(rng, some, n)[:, None], population="these_items"), some.mean()


def watched_difference(rng, _, pairs):
    some = pairs[rng.integers(0, len(pairs), 60)]
    apart = (pairs[:, 1] - pairs[:, 0]).mean()
    return fitted(drawn(rng, some, 1), contrast=CONTRAST, check="anytime"), apart


def few_items(rng, scores, _):
    some = scores[rng.integers(0, len(scores), 12)]
    return fitted(drawn(rng, some, 2)[:, None]), scores.mean()


def items_once_as_given(rng, scores, _):
    some = scores[rng.integers(0, len(scores), 40)]
    return fitted(drawn(rng, some, 1)[:, None], population="these_items"), some.mean()


def unit_of_few_answers(rng, scores, _):
    some = scores[rng.integers(0, len(scores), 10)][:, 1:3]
    return fitted(drawn(rng, some, 3)[:, None], per="unit"), some[0].mean()


def unit_of_many_answers(rng, scores, _):
    some = scores[rng.integers(0, len(scores), 10)][:, :1]
    return fitted(drawn(rng, some, 24)[:, None], per="unit"), some[0].mean()


EXACT = {
    mean_of_items: "t",
    paired_difference: "t",
    unpaired_difference: "welch",
    share_above_five: "wilson",
    items_as_given: "t",
}
SAFE = {
    watched_difference: "asymptotic sequence",
    few_items: "betting",
    items_once_as_given: "hoeffding",
    unit_of_few_answers: "hoeffding",
    unit_of_many_answers: "t",
}


@pytest.mark.parametrize("n_runs", [40, pytest.param(1_000, marks=pytest.mark.slow)])
@pytest.mark.parametrize("case", [*EXACT, *SAFE])
def test_replays_are_covered(case, n_runs, cells, pairs, measured):
    """Every kind holds as often as it says; Student's, Welch's and Wilson's not more often either.

    Student's interval of a unit has a floor under its variance, so it may hold more often.
    """
    rng, hits = np.random.default_rng([20, n_runs, [*EXACT, *SAFE].index(case)]), 0
    for _ in range(n_runs):
        found, truth = case(rng, cells[0], pairs)
        assert found.interval.split(" + ")[0] == (EXACT | SAFE)[case]
        hits += found.lower[0] <= truth <= found.upper[0]
    error = 3 * math.sqrt(LEVEL * (1 - LEVEL) / n_runs)
    kind = (EXACT | SAFE)[case]
    measured(
        f"rb2_scores: coverage {LEVEL} of {kind}, {case.__name__}, {n_runs} replays",
        f"{hits / n_runs:.3f}",
    )
    assert hits / n_runs >= LEVEL - error
    if case in EXACT:
        assert hits / n_runs <= LEVEL + error


def test_one_common_score_loses_against_the_panel_on_real_judges(cells, measured):
    """One judge an item, offsets taken out, against the mean of all: judges' own views remain.

    The warning stands beside it.
    """
    scores, _ = cells
    rng = np.random.default_rng(21)
    items = scores[rng.choice(len(scores), 600, replace=False)]
    truth = items.mean(axis=(1, 2))
    pilot = drawn(rng, items, 3)
    one = np.full((600, 5, 5), np.nan)
    judge = rng.integers(1, 4, 600)
    one[np.arange(600), judge] = drawn(rng, items[np.arange(600), judge], 5)
    scale = Scale(type=ScaleType.INTEGER, low=1, high=10)
    study = Study(
        kind=Kind.RATE,
        frame=Frame.of([str(i) for i in range(600)]),
        panel=tuple(Panelist(name=str(j), card=FREE) for j in range(5)),
        criteria=(Criterion(name="score", scale=scale),),
        seeds=Seeds(0),
    )

    def rmse(fresh, **entry):
        parts = [(np.nonzero(~np.isnan(p)), p) for p in (pilot, fresh)]
        units, _ = fit_score_means(
            ScoreMeansConfig(
                name="x", kind="score_means", per="unit", reuse_exploration="none", **entry
            ),
            study,
            unit=np.concatenate([at[0] for at, _ in parts]),
            judge=np.concatenate([at[1] for at, _ in parts]),
            values=np.concatenate([p[at] for at, p in parts])[:, None],
            is_pilot=np.repeat([True, False], [len(at[0]) for at, _ in parts]),
        )
        left = np.array(units.value) - truth
        return math.sqrt(np.square(left - left.mean()).mean()), units

    common, units = rmse(one, target="common", calibration="relative")
    panel, whole = rmse(drawn(rng, items, 1))
    measured(
        "rb2_scores: RMSE against the panel mean at five calls an item, common / panel",
        f"{common:.2f} / {panel:.2f}",
    )
    assert common > 1.5 * panel
    assert "interaction_exceeds_noise" in units.flags
    assert "judges_disagree" in units.flags
    assert "interaction_exceeds_noise" not in whole.flags
