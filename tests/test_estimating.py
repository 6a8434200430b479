"""Tables of verdicts: what is read, what is refused, and naive beside honest intervals."""

from __future__ import annotations

import csv
import gzip
import io
import json
import math
import re
import statistics
import subprocess
import sys
from collections import Counter, defaultdict
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from scipy.special import stdtrit

from estimators.score_means import ScoreMeans, ScoreMeansConfig
from orchestrator import Campaign, estimating, rundir
from orchestrator.core.errors import ConfigError
from orchestrator.core.frame import Frame
from orchestrator.core.money import FREE
from orchestrator.core.query import Kind, MissingReason
from orchestrator.core.scale import Criterion, Scale, ScaleType
from orchestrator.core.seeds import Seeds
from orchestrator.core.study import Panelist, Study
from orchestrator.estimating import Request, assess
from orchestrator.report.assessment import as_json, lines, why
from orchestrator.report.screen import WIDTH
from orchestrator.report.wording import columns as width_of
from orchestrator.testing.estimators import missing, rating

Z = statistics.NormalDist().inv_cdf(0.975)


@pytest.fixture
def write(tmp_path, monkeypatch):
    """Write a table from columns; gives its path, relative to the current directory."""
    monkeypatch.chdir(tmp_path)

    def write(name="t.csv", **columns):
        path = Path(name)
        rows = list(zip(*columns.values(), strict=True))
        if ".parquet" in name:
            pq.write_table(pa.table({k: list(v) for k, v in columns.items()}), path)
            return path
        if "json" in name.lower():
            text = "".join(json.dumps(dict(zip(columns, row, strict=True))) + "\n" for row in rows)
        else:
            out = io.StringIO()
            csv.writer(out).writerows([list(columns), *rows])
            text = out.getvalue()
        raw = text.encode("utf-8", "surrogatepass")
        path.write_bytes(gzip.compress(raw) if name.endswith(".gz") else raw)
        return path

    return write


@pytest.fixture
def problems():
    """Assess what can't be; gives the lines of the refusal but the last, which counts them."""

    def problems(path, **request):
        with pytest.raises(ConfigError) as refusal:
            assess(path, Request(**request))
        *listed, last = str(refusal.value).splitlines()
        assert last == f"{len(listed)} problem{'s' * (len(listed) != 1)}; nothing was estimated"
        return listed

    return problems


def only(assessment):
    """Give the first comparison of a table with one criterion."""
    (result,) = assessment.results
    return result.compared[0]


def flags(assessment):
    return [suspicion.flag for suspicion in assessment.suspicions]


# --- numbers -----------------------------------------------------------------------------------


def test_naive_is_what_a_spreadsheet_gives(write):
    """The mean ± 1.96 sd/√rows of all rows, whoever rated what."""
    scores = [1, 5, 3, 4, 4, 2, 5, 5]
    path = write(item_id="aabbccdd", judge=["x", "y"] * 4, score=scores)
    naive = only(assess(path, Request())).naive
    half = Z * statistics.stdev(scores) / math.sqrt(8)
    assert naive.n_rows == (8,)
    assert naive.value == (pytest.approx(statistics.mean(scores)),)
    assert naive.lower == (pytest.approx(statistics.mean(scores) - half),)
    assert naive.upper == (pytest.approx(statistics.mean(scores) + half),)


def test_repeats_make_the_naive_interval_too_narrow(write):
    """Sixteen copies of 30 items are 30 items: ours does not move, the naive one shrinks."""
    rng = np.random.default_rng(3)
    once = rng.integers(1, 6, 30).tolist()
    items = [f"i{i}" for i in range(30)]

    def compared(n):
        repeats = [r for r in range(n) for _ in items]
        path = write(item_id=items * n, replicate=repeats, score=once * n)
        return only(assess(path, Request(scales={None: (1, 5)})))

    one, many = compared(1), compared(16)
    assert many.estimate.lower == pytest.approx(one.estimate.lower)
    assert one.width_ratios[0] == pytest.approx(stdtrit(29, 0.975) / Z)
    assert many.width_ratios[0] == pytest.approx(4 * one.width_ratios[0], rel=0.02)
    assert "480 rows speak of 30 items" in why(many)
    assert "each row is an item of its own" in why(one)


def test_a_contrast_is_paired_and_the_naive_one_is_not(write):
    """Ours is Student's interval of the differences within items, the naive one of two samples."""
    rng = np.random.default_rng(5)
    base = rng.normal(0.5, 0.15, 25)
    old = np.clip(base + rng.normal(0, 0.02, 25), 0, 1)
    new = np.clip(base + 0.05 + rng.normal(0, 0.02, 25), 0, 1)
    items = [f"i{i}" for i in range(25)]
    path = write(item_id=items * 2, arm=["a:1"] * 25 + ["b:2"] * 25, score=[*old, *new])
    (result,) = assess(path, Request(contrast="b:2:a:1", scales={None: (0, 1)})).results
    difference, means = result.compared
    paired = new - old
    half = stdtrit(24, 0.975) * paired.std(ddof=1) / 5
    assert difference.estimate.names == ("b:2 - a:1",)
    assert difference.estimate.value[0] == pytest.approx(paired.mean())
    assert difference.estimate.upper[0] == pytest.approx(paired.mean() + half)
    naive_half = Z * math.sqrt((old.var(ddof=1) + new.var(ddof=1)) / 25)
    assert difference.naive.n_rows == (50,)
    assert difference.naive.value[0] == pytest.approx(new.mean() - old.mean())
    assert difference.naive.upper[0] == pytest.approx(new.mean() - old.mean() + naive_half)
    assert difference.width_ratios[0] < 0.5
    assert "compared with itself" in why(difference)
    assert means.estimate.names == ("a:1", "b:2")


def test_arms_that_share_no_item_are_not_paired(write):
    """Ours is then Welch's interval; nothing could be compared with itself."""
    rng = np.random.default_rng(6)
    old, new = rng.uniform(0, 1, 40), rng.uniform(0, 1, 50)
    path = write(
        item_id=range(90), arm=["old"] * 40 + ["new"] * 50, score=[*old.tolist(), *new.tolist()]
    )
    (result,) = assess(path, Request(contrast="new:old", scales={None: (0, 1)})).results
    difference = result.compared[0].estimate
    assert difference.interval == "welch"
    assert difference.value[0] == pytest.approx(new.mean() - old.mean())


ROW = st.tuples(
    st.sampled_from(["i1", "i2", "i3"]),
    st.sampled_from(["j1", "j2"]),
    st.sampled_from(["old", "new"]),
    st.sampled_from([1, 2, 5, None]),
)


@settings(
    deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=50
)
@given(rows=st.lists(ROW, min_size=1, max_size=30), per=st.sampled_from(["arm", "unit", "judge"]))
def test_a_table_gives_what_a_run_with_these_verdicts_gives(write, rows, per):
    """To the last bit, whatever is missing: the second witness is told row by row."""
    if all(score is None for *_, score in rows):
        rows.append(("i1", "j1", "old", 3))
    names = dict(zip(("item_id", "judge", "arm", "score"), zip(*rows, strict=True), strict=True))
    path = write("t.jsonl", **names)
    (result,) = assess(path, Request(per=per, scales={None: (1, 5)})).results

    items, judges, arms = (list(dict.fromkeys(column)) for column in list(names.values())[:3])
    # As in the table, judges are numbered in the order in which they appear.
    study = Study(
        kind=Kind.RATE,
        frame=Frame.of(items, arms),
        panel=tuple(Panelist(name=name, card=FREE) for name in judges),
        criteria=(Criterion(name="score", scale=Scale(type=ScaleType.INTEGER, low=1, high=5)),),
        seeds=Seeds(0),
    )
    estimator = ScoreMeans(ScoreMeansConfig(name="score", kind="score_means", per=per), study)
    for q, (item, judge, arm, score) in enumerate(rows):
        unit = items.index(item) * len(arms) + arms.index(arm)
        told = (
            missing(q, unit, MissingReason.EMPTY, judge=judges.index(judge))
            if score is None
            else rating(q, unit, score, judge=judges.index(judge))
        )
        estimator.update(told)
    expected = [estimate.as_json() for estimate in estimator.estimate()]
    assert [compared.estimate.as_json() for compared in result.compared] == expected


def test_a_missing_verdict_is_no_zero(write):
    """C28: 4, nothing, 4 has the mean 4.0 of two, and one is missing, not 2.67."""
    path = write(item_id="abc", score=[4, "", 4])
    assessment = assess(path, Request(scales={None: (1, 5)}))
    compared = only(assessment)
    assert compared.estimate.value == (4.0,)
    assert compared.estimate.n_answers == compared.estimate.n_items == 2
    assert compared.naive.n_rows == (2,)
    assert compared.estimate.diagnostics["by_name"]["missing"] == [1]
    assert assessment.counts["missing"] == 1
    text = "\n".join(lines(assessment))
    assert "1 in all items: [3.0, 4.3]" in text


def test_missing_by_arm_is_suspicious(write):
    """C28: 0 of 50 against 20 of 50 missing is said, with the numbers and the bounds."""
    items = [f"i{i}" for i in range(50)]
    scores = [i % 2 for i in range(50)]
    path = write(
        item_id=items * 2, arm=["A"] * 50 + ["B"] * 50, score=scores + [""] * 20 + scores[20:]
    )
    assessment = assess(path, Request())
    (found,) = [s for s in assessment.suspicions if s.flag == "missing_differs_by_arm"]
    assert '0 of 50 missing in "A", 20 of 50 missing in "B"' in found.message
    p = float(found.message.rpartition("p = ")[2])
    assert p < 1e-5
    by_name = only(assessment).estimate.diagnostics["by_name"]
    ends = (by_name["worst_lower"][1], by_name["worst_upper"][1])
    assert ends == pytest.approx((0.3, 0.7))
    assert {"no_partner"} <= set(flags(assessment))


def test_what_does_not_apply_is_neither_score_nor_missing(write):
    """C28: "n/a" leaves numerator and denominator, and is not counted as missing."""
    assessment = assess(write(item_id="abcd", score=[4, "N/A", 2, ""]), Request())
    estimate = only(assessment).estimate
    assert estimate.value == (3.0,)
    assert estimate.diagnostics["by_name"]["missing"] == [1]
    assert estimate.diagnostics["not_applicable"] == {"": 1}


@pytest.mark.parametrize(("score", "ends"), [(0, (0, 0.1611)), (1, (0.8389, 1))])
def test_a_share_at_the_end_has_wilsons_interval(write, score, ends):
    """C37: 0 of 20 is [0, 0.1611], 20 of 20 [0.8389, 1]; the naive interval has no width."""
    path = write(item_id=[f"i{i}" for i in range(20)], score=[score] * 20)
    assessment = assess(path, Request())
    compared = only(assessment)
    assert compared.estimate.interval == "wilson"
    got = (compared.estimate.lower[0], compared.estimate.upper[0])
    assert got == pytest.approx(ends, abs=5e-5)
    assert compared.naive.lower == compared.naive.upper == (score,)
    assert math.isnan(compared.width_ratios[0])
    assert "constant" in flags(assessment)


def test_equal_scores_have_an_interval_with_width(write):
    """C37: all scores equal."""
    path = write(item_id=[f"i{i}" for i in range(30)], score=[4] * 30)
    estimate = only(assess(path, Request(scales={None: (1, 5)}))).estimate
    assert estimate.lower[0] < 4 < estimate.upper[0]


def test_the_same_table_gives_the_same_bits(write):
    """C37: twice the same, in text and JSON."""
    rng = np.random.default_rng(1)
    path = write(
        item_id=rng.integers(0, 30, 200).tolist(),
        judge=rng.choice(["x", "y"], 200).tolist(),
        score=rng.random(200).tolist(),
    )
    once, again = assess(path, Request()), assess(path, Request())
    assert json.dumps(as_json(once)) == json.dumps(as_json(again))
    assert lines(once) == lines(again)


def test_items_weigh_the_inverse_of_their_propensity(write):
    """Hájek: Σ x/p / Σ 1/p; said as an assumption. A weight multiplies."""
    scores, p, w = [1, 2, 5, 4], [0.5, 0.25, 1, 0.5], [1, 2, 1, 3]
    path = write(item_id="abcd", score=scores, propensity=p, weight=w)
    assessment = assess(path, Request())
    weights = [a / b for a, b in zip(w, p, strict=True)]
    expected = sum(x * a for x, a in zip(scores, weights, strict=True)) / sum(weights)
    assert only(assessment).estimate.value[0] == pytest.approx(expected)
    assert any("1/propensity" in one.what for one in assessment.assumptions)


def test_a_propensity_that_differs_within_an_item_is_not_used(write):
    path = write(item_id="aab", judge="xyx", score=[1, 2, 5], propensity=[0.5, 0.25, 1])
    assessment = assess(path, Request())
    assert only(assessment).estimate.value[0] == pytest.approx((1.5 + 5) / 2)
    assert any("not used" in one.what for one in assessment.assumptions)


def test_clusters_widen_the_interval(write):
    """Items of one cluster hang together; the reason is said."""
    rng = np.random.default_rng(2)
    cluster = np.repeat(np.arange(25), 8)
    score = np.clip(np.rint(3 + rng.normal(0, 1, 25)[cluster] + rng.normal(0, 0.3, 200)), 1, 5)
    columns = {"item_id": range(200), "score": score.astype(int).tolist()}
    alone = only(assess(write(**columns), Request()))
    joined = only(assess(write(**columns, cluster=cluster.tolist()), Request()))
    assert joined.width_ratios[0] > 2 * alone.width_ratios[0]
    assert "the items come in 25 clusters" in why(joined)


def test_each_criterion_is_estimated_by_itself(write):
    """On its own scale, over its own judges and items; what is wrong with one names it."""
    path = write(
        item_id=["a", "b", "c"] * 2,
        judge=["x"] * 3 + ["y"] * 3,
        dimension=["tone"] * 3 + ["fact"] * 3,
        score=[1, 5, 3, 0, 1, 1],
    )
    tone, fact = assess(path, Request()).results
    assert (tone.scale.low, tone.scale.high, tone.scale.type) == (1, 5, "integer")
    assert fact.scale.type == "boolean"
    assert tone.compared[0].estimate.value == (3.0,)
    assert "judge_without_answers" not in tone.compared[0].estimate.flags
    named = assess(path, Request(scales={"tone": (0, 10)})).results
    assert [(r.scale.low, r.scale.high) for r in named] == [(0, 10), (0, 1)]


def test_the_target_is_handed_on(write, monkeypatch):
    """Which target the estimator takes is its own affair; a refusal is one clean line."""
    path = write(item_id="ab", score=[1, 2])
    seen = []

    def refuse(config, study, **_):
        seen.append(config.target)
        raise ValueError("target: no")

    monkeypatch.setattr(estimating, "fit_score_means", refuse)
    for target in ("panel", "common", "population"):
        with pytest.raises(ConfigError, match=r"score_means can't estimate this: target: no"):
            assess(path, Request(targets=(target,)))
    assert seen == ["panel", "common", "population"]


def test_a_level_and_a_population_are_taken(write):
    """At a higher level both intervals are wider; items as given leave only the repeats."""
    rng = np.random.default_rng(4)
    item = np.repeat(np.arange(30), 3)
    score = np.clip(item % 5 + 1 + rng.integers(-1, 2, 90), 1, 5).tolist()
    path = write(item_id=item.tolist(), replicate=[0, 1, 2] * 30, score=score)
    usual, high = (only(assess(path, Request(confidence=level))) for level in (0.95, 0.99))
    given_items = only(assess(path, Request(population="these_items")))
    for one in (usual, high):
        assert one.estimate.level in {0.95, 0.99}
    assert high.naive.lower[0] < usual.naive.lower[0]
    assert high.estimate.lower[0] < usual.estimate.lower[0]
    assert given_items.estimate.half_width < usual.estimate.half_width
    assert "taken as given" in why(given_items)


# --- recorded data -----------------------------------------------------------------------------


@pytest.mark.shared
def test_recorded_ratings_have_the_means_of_their_statistics(shared_data):
    """183,425 ratings of five judges: per judge items, ratings and mean score, as printed."""
    path = shared_data / "rb2_scores/ratings.csv.gz"
    assessment = assess(path, Request(per="judge", scales={None: (1, 10)}))
    printed = re.search(
        r"### rb2_scores.*?(?=\n### )", (shared_data / "STATS.md").read_text("utf-8"), re.DOTALL
    ).group()
    assert assessment.n_rows == 183_425
    assert assessment.counts["items"] == 4_656
    compared = only(assessment)
    assert len(compared.estimate.names) == 5
    for k, name in enumerate(compared.estimate.names):
        row = re.search(rf"\| {re.escape(name)} \| (\d+) \| (\d+) \| ([\d.]+) \|", printed)
        items, ratings, mean = map(float, row.groups())
        assert compared.estimate.diagnostics["by_name"]["n_items"][k] == items
        assert compared.naive.n_rows[k] == ratings
        assert compared.estimate.value[k] == pytest.approx(mean, abs=0.0005)
    assert flags(assessment) == ["panel_incomplete"]


@pytest.mark.shared
def test_recorded_ratings_are_far_less_certain_than_their_rows_say(shared_data, measured):
    """All judges and repeats together: the honest interval is over five times as wide."""
    path = shared_data / "rb2_scores/ratings.csv.gz"
    compared = only(assess(path, Request(scales={None: (1, 10)})))
    assert 5 < compared.width_ratios[0] < 6
    measured("rb2_scores: honest over naive width", f"{compared.width_ratios[0]:.2f}")


@pytest.mark.shared
def test_other_recorded_ratings_agree_with_plain_sums(shared_data):
    """LLMBar: judges' means from the csv module, one rating an item and judge."""
    path = shared_data / "llmbar/ratings.csv.gz"
    sums = defaultdict(list)
    with gzip.open(path, "rt", encoding="utf-8") as file:
        for row in csv.DictReader(file):
            sums[row["judge"]].append(float(row["score"]))
    compared = only(assess(path, Request(per="judge")))
    for name, value, naive in zip(
        compared.estimate.names, compared.estimate.value, compared.naive.value, strict=True
    ):
        assert value == pytest.approx(statistics.mean(sums[name]))
        assert naive == pytest.approx(value)


CAMPAIGN = """\
version: 1
name: small
seed: 7
data:
  path: items.csv
  id: id
  arms: {old: {candidate: a}, new: {candidate: b}}
judges:
  - {name: x, adapter: mock, price_usd_per_1m: {input: 1, output: 4},
     mock: {sd: 0.8, faults: {refused: 0.1}}}
  - {name: y, adapter: mock, price_usd_per_1m: {input: 1, output: 4}, mock: {bias: 0.5}}
task: {kind: rate, scale: {type: integer, min: 1, max: 5}}
policy: {kind: uniform, max_repeats: 2}
budget: {usd: 1}
estimate: [{name: score, kind: score_means, contrast: {arm: new, baseline: old}}]
output: {dir: runs}
"""


@pytest.mark.parametrize("name", ["answers.csv", "answers.jsonl", "answers.parquet"])
def test_an_exported_run_gives_its_own_estimates(tmp_path, monkeypatch, name):
    """Exports are understood as they are: names, reasons of what is missing, costs."""
    monkeypatch.chdir(tmp_path)
    rows = "".join(f"i{n},a {n},b {n}\n" for n in range(24))
    Path("items.csv").write_text("id,a,b\n" + rows, encoding="utf-8")
    Path("campaign.yaml").write_text(CAMPAIGN, encoding="utf-8")
    run = Campaign.from_yaml("campaign.yaml").run("runs/one")
    rundir.write_export(Path("runs/one"), Path(name))
    assessment = assess(Path(name), Request(contrast="new:old", scales={None: (1, 5)}))
    (result,) = assessment.results
    assert len(run.estimates) == len(result.compared) == 2
    for own, compared in zip(run.estimates, result.compared, strict=True):
        again = compared.estimate
        order = [again.names.index(name) for name in own.names]
        for key in ("value", "se", "lower", "upper"):
            assert [getattr(again, key)[i] for i in order] == pytest.approx(getattr(own, key))
        assert (again.n_answers, again.n_items) == (own.n_answers, own.n_items)
    missing = Counter(reason for by_arm in own.diagnostics["missing"].values() for reason in by_arm)
    assert missing
    assert result.compared[0].estimate.diagnostics["missing"]["old"].keys() <= {"refused"}
    assert assessment.cost == run.spend["settled_nano_usd"] + run.spend["uncertain_nano_usd"]


# --- reading -----------------------------------------------------------------------------------


@pytest.mark.parametrize("part", ["cluster", "stratum", "group"])
def test_a_blank_column_of_items_is_as_good_as_none(write, part):
    """So a run without groups exports one; a column that is blank in some rows is refused."""
    columns = {"item_id": ["a", "b", "c"], "score": [1, 0, 1]}
    without = as_json(assess(write(**columns), Request()))
    blank = as_json(assess(write(**columns, **{part: ["", "", ""]}), Request()))
    assert blank["results"] == without["results"]
    with pytest.raises(ConfigError, match=f"{part} — row 2: missing"):
        assess(write(**columns, **{part: ["x", "", "x"]}), Request())


@pytest.mark.parametrize("name", ["t.csv.gz", "t.jsonl", "T.JSONL.gz", "t.ndjson", "t.parquet"])
def test_all_forms_of_a_table_say_the_same(write, name):
    columns = {
        "item_id": ["a", "b", "c", "d"],
        "judge": ["x", "y", "x", "y"],
        "replicate": [0, 1, 0, 1],
        "score": [1.0, 4.0, None, 2.0],
        "weight": [1.0, 2.5, 1.0, 1.0],
        "cost_usd": [0.001, 0.002, None, 0.0005],
    }
    blank = {key: ["" if v is None else v for v in values] for key, values in columns.items()}
    expected = as_json(assess(write(**blank), Request()))
    got = as_json(assess(write(name, **columns), Request()))
    assert {**got, "file": ""} == {**expected, "file": ""}
    assert got["cost_nano_usd"] == 3_500_000


def test_json_rows_may_lack_cells(write):
    """A part that only later rows have is blank in the earlier ones, and the other way round."""
    Path("t.jsonl").write_text(
        '{"item_id": "a"}\n{"item_id": "b", "score": 2, "note": 1}\n{"score": 3, "item_id": "c"}\n',
        encoding="utf-8",
    )
    assessment = assess(Path("t.jsonl"), Request())
    assert only(assessment).estimate.value == (2.5,)
    assert only(assessment).estimate.diagnostics["by_name"]["missing"] == [1]
    assert assessment.unused == ("note",)


def test_a_categorical_column_of_parquet_is_read(write, tmp_path):
    table = pa.table(
        {
            "item_id": pa.array(["a", "b", "a"]).dictionary_encode(),
            "score": pa.array([1, None, 3], pa.int8()),
            "nested": pa.array([[1], [2], [3]]),
        }
    )
    pq.write_table(table, tmp_path / "t.parquet")
    assessment = assess(tmp_path / "t.parquet", Request())
    assert only(assessment).estimate.value == (2.0,)
    assert assessment.unused == ("nested",)


def test_a_column_of_lists_is_one_problem(write, problems, tmp_path):
    table = pa.table({"item_id": ["a"], "score": pa.array([[1]])})
    pq.write_table(table, tmp_path / "t.parquet")
    (line,) = problems(tmp_path / "t.parquet")
    assert 'column "score" holds no plain cells' in line


def test_columns_go_by_other_names(write):
    """--map names a column; `dimension` is a criterion; what is not known is listed."""
    path = write(trace_id="aab", rater="xyx", mark=[1, 2, 5], dimension=["tone"] * 3, note="pqr")
    names = {"item_id": "trace_id", "judge": "rater", "score": "mark"}
    assessment = assess(path, Request(names=names))
    assert assessment.columns == {
        "item_id": "trace_id",
        "judge": "rater",
        "score": "mark",
        "criterion": "dimension",
    }
    assert assessment.unused == ("note",)
    assert only(assessment).estimate.value == (3.25,)


def test_an_empty_name_leaves_a_column_out(write):
    """Then all rows are one judge's, and the second verdict on an item is a repeat."""
    path = write(item_id="aab", judge="xyx", score=[1, 2, 5])
    assessment = assess(path, Request(names={"judge": ""}))
    assert assessment.unused == ("judge",)
    assert {
        "all rows are one judge's",
        "1 row with the key of an earlier one, taken as repeats in file order",
    } <= {one.what for one in assessment.assumptions}


def test_a_column_that_stands_for_another_part_is_not_used_twice(write):
    path = write(item_id="abc", score=[1, 0, 1], correct=[0, 0, 1])
    assessment = assess(path, Request(names={"score": "correct"}))
    assert only(assessment).estimate.value[0] == pytest.approx(1 / 3)
    assert assessment.unused == ("score",)
    assert [use.kind for use in assessment.uses] == ["score_means"]


def test_names_in_any_script_are_read_and_shown(write):
    """C23: emoji, U+2028, a lone surrogate, an escape sequence: sound names, and said."""
    path = write(
        "t.jsonl",
        item_id=["Größe ✓", "漢字", "🏳️‍🌈"] * 2,
        judge=["a\u2028b", "\ud800x"] * 3,
        arm=["\x1b[31mred"] * 3 + ["=1+1"] * 3,
        score=[1, 2, 3, 3, 2, 2],
    )
    assessment = assess(path, Request(per="unit"))
    assert "\ufffdx" in only(assessment).estimate.diagnostics["judges"][1]["judge"]
    assert "broken_text" in flags(assessment)
    text = "\n".join(lines(assessment))
    assert not re.search("[\x1b\u2028\ud800-\udfff]", text)
    json.dumps(as_json(assessment), ensure_ascii=False).encode("utf-8")


def test_lines_are_short_whatever_the_names(write):
    path = write(
        item_id=[f"{'long ' * 30}{i}" for i in range(60)],
        arm=["名" * 80] * 60,
        score=[1, 2, 3] * 20,
    )
    shown = lines(assess(path, Request(per="unit")))
    assert max(map(width_of, shown)) <= WIDTH
    assert "(20 more are in --json)" in shown


# --- scales ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("scores", "given", "kind", "ends", "source"),
    [
        ([0, 1, 1], None, "boolean", (0, 1), "all scores are 0 or 1"),
        (["true", "False", ""], None, "boolean", (0, 1), "all scores are 0 or 1"),
        ([2, 5, 3], None, "integer", (2, 5), "the range seen"),
        ([2.5, 5, 3], None, "float", (2.5, 5), "the range seen"),
        ([0.2, 0.9, 1], None, "float", (0, 1), "all scores lie there"),
        ([2, 5, 3], (1, 5), "integer", (1, 5), "--scale"),
        ([2, 5, 3], (0.5, 5), "float", (0.5, 5), "--scale"),
        ([0, 1, 1], (0, 1), "boolean", (0, 1), "--scale"),
        ([0, 1, 1], (0, 5), "integer", (0, 5), "--scale"),
        ([4, 4, 4], (1, 5), "integer", (1, 5), "--scale"),
    ],
)
def test_a_scale_is_given_or_inferred_and_says_so(write, scores, given, kind, ends, source):
    request = Request() if given is None else Request(scales={None: given})
    assessment = assess(write(item_id="abc", score=scores), request)
    scale = assessment.results[0].scale
    assert (scale.type, (scale.low, scale.high)) == (kind, ends)
    assert assessment.assumptions[0].source.startswith(source)


def test_a_constant_column_wants_a_scale(write, problems):
    """No range can be seen in equal scores, and it is not guessed."""
    (line,) = problems(write(item_id="abc", score=[4, 4, 4]))
    assert "every score is 4, so no scale is seen; wants --scale MIN:MAX" in line


def test_an_interval_on_a_seen_scale_is_suspicious(write):
    """Few items: the interval rests on the ends, which are only those of the scores."""
    path = write(item_id="abc", score=[3, 4, 4])
    assert "scale_seen" in flags(assess(path, Request()))
    assert "scale_seen" not in flags(assess(path, Request(scales={None: (1, 5)})))


# --- what is refused ---------------------------------------------------------------------------


def test_all_problems_are_listed_at_once_with_their_lines(write, problems):
    """C24: a BOM is accepted; two duplicate keys, no item, a word, a score off the scale."""
    path = write(
        item_id=["a", "a", "b", "", "c", "d", "b"],
        judge=["x"] * 7,
        replicate=[0, 0, 0, 0, 0, 0, 0],
        score=[3, 3, 4, 2, "good", 9, 5],
        weight=[1, 1, 1, 1, 0, 1, 2],
    )
    path.write_bytes(b"\xef\xbb\xbf" + path.read_bytes())
    assert problems(path, scales={None: (1, 5)}) == [
        "t.csv:3  replicate — row 2: has the key of row 1 (line 2) already, with the same verdict",
        "t.csv:5  item_id — row 4: missing",
        't.csv:6  score — row 5: wants a number, not "good"; a missing verdict is an empty cell',
        't.csv:6  weight — row 5: wants a number above 0, not "0"',
        "t.csv:7  score — row 6: wants a number from 1 to 5, not 9",
        't.csv:8  weight — row 7: "2", where row 3 (line 4) of the item has "1"',
        "t.csv:8  replicate — row 7: has the key of row 3 (line 4) already, with another verdict",
    ]


def test_keys_that_differ_in_one_part_are_no_duplicates(write):
    path = write(
        item_id="aaaaab",
        judge="xyxxxx",
        arm="ppqppp",
        criterion="ssstss",
        replicate=[0, 0, 0, 0, 1, 0],
        score=[1, 2, 1, 2, 1, 1],
    )
    assert assess(path, Request(scales={None: (1, 5)})).n_rows == 6


def test_without_replicates_repeated_rows_are_repeats(write):
    path = write(item_id="aabb", score=[1, 2, 4, 5])
    assessment = assess(path, Request())
    assert only(assessment).estimate.n_answers == 4
    assert any("2 rows with the key of an earlier" in one.what for one in assessment.assumptions)


@pytest.mark.parametrize(
    "word", ["8/10", "1,5", "1_0", "nan", "inf", "1e999", "1e13", "eight", "None", "{}"]
)
def test_no_number_is_guessed(write, problems, word):
    (line,) = problems(write(item_id="abc", score=[1, 2, word]))
    assert f't.csv:4  score — row 3: wants a number, not "{word}"' in line


@pytest.mark.parametrize("value", [[1], {"a": 1}, 10**400])
def test_a_json_value_that_is_no_number_is_named(write, problems, value):
    (line,) = problems(write("t.jsonl", item_id="ab", score=[1, value]))
    assert line.startswith("t.jsonl:2  score — row 2: wants a number")


def test_yes_among_numbers_is_a_problem_with_its_line(write, problems):
    assert problems(write("t.jsonl", item_id="abc", score=[3, True, 4])) == [
        't.jsonl:2  score — row 2: true or false, where other scores of "score" are numbers'
    ]


def test_other_columns_are_checked(write, problems):
    path = write(
        "t.jsonl",
        item_id=[True, "b", "c"],
        judge=["x", None, "x"],
        score=[1, 2, 3],
        propensity=[1, 0.5, 1.5],
        cluster=["g", "g", " "],
        cost_usd=["0.1", "cheap", ""],
    )
    assert problems(path) == [
        "t.jsonl:1  item_id — row 1: wants text or a whole number, not true",
        "t.jsonl:2  judge — row 2: missing",
        't.jsonl:2  cost_usd — row 2: wants an amount in USD, not "cheap"',
        "t.jsonl:3  propensity — row 3: wants a number above 0 and up to 1, not 1.5",
        "t.jsonl:3  cluster — row 3: missing",
    ]


def test_reasons_of_missing_verdicts_are_checked(write, problems):
    path = write(item_id="abc", score=[1, "", 2], missing=["", "tired", "refused"])
    unknown, beside = problems(path)
    assert 'no reason is named "tired"; known: refused,' in unknown
    assert beside.endswith('says why there is no score, and the score is "2"')


def test_a_row_without_a_name_has_no_key(write, problems):
    """Two rows that name no item are two problems, not a duplicate besides."""
    path = write(item_id=["", "", "a"], replicate=[0, 0, 0], score=[1, 1, 2])
    assert problems(path) == [f"t.csv:{line}  item_id — row {line - 1}: missing" for line in (2, 3)]


def test_no_score_and_no_reason_does_not_apply(write):
    """With a column of reasons a blank one says that nothing is missing (C28)."""
    path = write(item_id="abcd", score=[1, "", "", 2], missing=["", "", "refused", ""])
    assessment = assess(path, Request())
    assert assessment.counts["missing"] == 1
    diagnostics = only(assessment).estimate.diagnostics
    assert diagnostics["missing"] == {"": {"refused": 1}}
    assert diagnostics["not_applicable"] == {"": 1}


def test_a_verdict_missing_altogether_is_missing_in_each_criterion(write, problems):
    """A row without a criterion has no score; one that has a score is a problem."""
    columns = {"item_id": "ababc", "criterion": ["p", "p", "q", "q", ""]}
    results = assess(write(**columns, score=[1, 2, 4, 5, ""]), Request()).results
    assert [r.criterion for r in results] == ["p", "q"]
    for result in results:
        assert result.compared[0].estimate.diagnostics["by_name"]["missing"] == [1]
    (line,) = problems(write(**columns, score=[1, 2, 4, 5, 3]))
    assert line == "t.csv:6  criterion — row 5: missing"


def test_requests_are_checked_with_hints(write, problems):
    path = write(item_id="ab", judgee="xy", arm=["old", "new"], score=[1, 2])
    found = problems(path, names={"jugde": "judgee", "cluster": "topic"})
    assert 'no part is named "jugde"; did you mean "judge"?' in found[0]
    assert 'has no column "topic"' in found[1]
    found = problems(path, contrast="nwe:old", scales={"tone": (1, 2)})
    assert '--contrast — no arm is named "nwe"; did you mean "new"?' in found[0]
    assert '--scale — no criterion is named "tone"; known: score' in found[1]


@pytest.mark.parametrize("contrast", ["old", "old:old", ":"])
def test_a_contrast_names_two_arms(write, problems, contrast):
    (line,) = problems(write(item_id="ab", arm=["old", "new"], score=[1, 2]), contrast=contrast)
    assert line.startswith("--contrast")
    (line,) = problems(write(item_id="ab", score=[1, 2]), contrast="a:b")
    assert "wants two arms" in line


def test_files_that_hold_nothing_are_one_problem(write, problems):
    assert problems(write(item_id=[], score=[])) == ["t.csv  no rows"]
    (line,) = problems(write(item_id="ab", score=["", ""]))
    assert line == 't.csv  score — no row has a score of "score"'
    assert problems(Path("none.csv")) == ["none.csv  no such file"]
    Path("folder.csv").mkdir()
    assert problems(Path("folder.csv")) == ["folder.csv  can't be read: Is a directory"]
    assert problems(Path("none.parquet")) == ["none.parquet  no such file"]
    assert problems(write("t.jsonl")) == ["t.jsonl  no rows"]
    Path("broken.jsonl").write_text("{}\n{,}\n[1]\n", encoding="utf-8")
    assert [line[:14] for line in problems(Path("broken.jsonl"))] == [
        "broken.jsonl:2",
        "broken.jsonl:3",
        "broken.jsonl  ",
        "broken.jsonl  ",
    ]
    (line,) = problems(write("t.tsv", item_id="a", score=[1]))
    assert "wants .csv, .jsonl (also .gz) or .parquet" in line


def test_more_cells_than_memory_are_refused(write, monkeypatch):
    monkeypatch.setattr(estimating, "MOST_CELLS", 3)
    path = write(item_id="ab", judge="xy", score=[1, 2])
    with pytest.raises(ConfigError, match="2 judges times 2 units is more than 3"):
        assess(path, Request())
    assert assess(path, Request(names={"judge": ""})).results


# --- what the columns allow ----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("columns", "kinds"),
    [
        ("item_id score", ["score_means"]),
        ("item value", ["score_means"]),
        ("item_id left right winner judge", ["bradley_terry"]),
        ("model_a model_b winner tie", ["bradley_terry"]),
        ("item_id left right winner category", ["bradley_terry", "bt_tensor"]),
        ("batch_id position item_id judge y", ["markov_glmm"]),
        ("item_id stratum correct", ["exchangeable"]),
        ("item_id score correct", ["score_means", "exchangeable"]),
    ],
)
def test_columns_say_what_can_be_estimated(write, columns, kinds):
    """All that fits is named, and the first is estimated."""
    cells = {"right": ["1", "0"], "model_b": ["1", "0"]}
    path = write(**{name: cells.get(name, ["0", "1"]) for name in columns.split()})
    assessment = assess(path, Request())
    assert [use.kind for use in assessment.uses] == kinds
    assert only(assessment).estimate.kind == kinds[0]


def test_a_column_of_arms_that_names_none_is_none(write):
    """As in the answers of a run without arms; one blank among names stays a problem."""
    scores = {"item_id": "abc", "score": [1, 2, 3]}
    plain, blank = (
        assess(write(**scores, **more), Request()).results[0].compared[0].estimate
        for more in ({}, {"arm": ["", "", ""]})
    )
    assert (plain.names, plain.value) == (blank.names, blank.value)
    with pytest.raises(ConfigError, match="arm — row 2: missing"):
        assess(write(**scores, arm=["x", "", "x"]), Request())


def test_right_and_wrong_can_be_read_as_ratings(write):
    path = write(item_id="abc", stratum="ppq", correct=[1, 0, 1])
    compared = only(assess(path, Request(names={"score": "correct"})))
    assert compared.estimate.value[0] == pytest.approx(2 / 3)


def test_a_matrix_of_systems_is_recognised(write):
    path = write(question="abc", one=[1, 0, 1], two=[0, 0, 1], three=["", 1, 0], size=[1, 2, 3])
    assessment = assess(path, Request())
    (use,) = assessment.uses
    assert use == ("exchangeable", "right and wrong answers of 3 systems")
    assert assessment.unused == ("question", "size")


def test_what_allows_nothing_says_what_ratings_want(write, problems):
    path = write(item="ab", scores=[1, 2])
    (line,) = problems(path)
    assert line.startswith("t.csv  score — no column has this name; --map score=COLUMN names one")
    assert 'did you mean "scores"?' in line
    assert len(problems(write(model_a="a", model_b="b", winner="a"), kind="score_means")) == 2


def test_a_kind_that_does_not_exist_has_a_hint(write):
    with pytest.raises(ConfigError, match='did you mean "score_means"'):
        assess(write(item_id="a", score=[1]), Request(kind="score_mean"))


# --- what is suspicious --------------------------------------------------------------------------


def test_nothing_is_suspicious_in_a_sound_table(write):
    rng = np.random.default_rng(9)
    item = np.tile(np.arange(40), 6)
    path = write(
        item_id=item.tolist(),
        judge=np.repeat(["x", "y"], 120).tolist(),
        replicate=np.tile(np.repeat([0, 1, 2], 40), 2).tolist(),
        score=np.clip(item % 5 + 1 + rng.integers(-1, 2, 240), 1, 5).tolist(),
    )
    assessment = assess(path, Request())
    assert assessment.suspicions == ()
    assert lines(assessment)[-1] == "suspicious: nothing"
    few = assess(write(item_id="abcabc", judge="xxxyyy", score=[1, 2, 3, 2, 2, 3]), Request())
    assert "judge_rates_few" not in flags(few)


@pytest.mark.parametrize(
    ("flag", "columns", "says"),
    [
        (
            "identical_repeats",
            {
                "item_id": [i for i in range(30) for _ in range(3)],
                "replicate": [0, 1, 2] * 30,
                "score": [i % 5 for i in range(30) for _ in range(3)],
            },
            '"judge" (100%)',
        ),
        (
            "repeated_rows",
            {"item_id": [*range(20)] * 2, "score": [i % 5 for i in range(20)] * 2},
            "20 of 20 repeated questions",
        ),
        (
            "judge_rates_few",
            {
                "item_id": [*range(40), 1, 2],
                "judge": ["x"] * 40 + ["y"] * 2,
                "score": [i % 3 for i in range(42)],
            },
            '"y" (2)',
        ),
        (
            "one_score",
            {
                "item_id": [*range(40)] * 2,
                "judge": ["x"] * 40 + ["y"] * 40,
                "score": [i % 3 for i in range(40)] + [2] * 39 + [1],
            },
            'judge "y" gives 2 in 39 of 40 scores',
        ),
        (
            "no_partner",
            {"item_id": "abcabd", "arm": "ooonnn", "score": [1, 2, 3, 1, 2, 3]},
            '1 in "o", 1 in "n"',
        ),
        (
            "few_clusters",
            {
                "item_id": [*range(30)],
                "score": [i % 3 for i in range(30)],
                "cluster": [1, 2, 3] * 10,
            },
            "few items or clusters",
        ),
        (
            "panel_incomplete",
            {"item_id": "abca", "judge": "xxxy", "score": [1, 2, 3, 1]},
            "2 of 3 units",
        ),
        (
            "names_alike",
            {"item_id": "abcd", "judge": ["gpt-4", "GPT-4 ", "gpt-4", "o"], "score": [1, 2, 3, 1]},
            '"gpt-4", "GPT-4 " differ',
        ),
    ],
    ids=lambda value: value if isinstance(value, str) and " " not in value else "",
)
def test_what_may_be_wrong_is_said(write, flag, columns, says):
    (found,) = [s for s in assess(write(**columns), Request()).suspicions if s.flag == flag]
    assert says in found.message


def test_scores_as_text_in_json_are_read_and_said(write):
    assessment = assess(write("t.jsonl", item_id="abc", score=[3, "4", 5]), Request())
    assert only(assessment).estimate.value == (4.0,)
    assert "mixed_types" in flags(assessment)


# --- the next command, size ----------------------------------------------------------------------


def test_the_next_command_is_one_that_works(write):
    """With two arms it is their difference, with the same names and scales; then a campaign."""
    path = write("my table.csv", id="aabb", arm=["v 1", "v 2"] * 2, score=[1, 2, 3, 5])
    request = Request(names={"item_id": "id"}, scales={None: (1, 5)})
    command = assess(path, request).next_command
    assert command == (
        "sortition estimate 'my table.csv' --map=item_id=id --scale=1:5 '--contrast=v 2:v 1'"
    )
    request = Request(names={"item_id": "id"}, contrast="v 2:v 1")
    assert assess(path, request).next_command == "sortition init"


SIZE = """
import sys, time
from pathlib import Path
from orchestrator.estimating import Request, assess
start = time.process_time()
assessment = assess(Path(sys.argv[1]), Request())
assert assessment.n_rows == 200_000
# Not ru_maxrss, which begins with what the parent process held when it forked.
status = Path("/proc/self/status").read_text().split()
print(time.process_time() - start, int(status[status.index("VmHWM:") + 1]) / 1024)
"""


@pytest.mark.slow
@pytest.mark.parametrize("name", ["t.csv", "t.jsonl", "t.parquet"])
def test_200_000_rows_take_seconds_and_little_memory(write, measured, name):
    """Every row an item of its own, with float scores: nothing is shared between rows."""
    rng = np.random.default_rng(0)
    path = write(
        name,
        item_id=[f"trace-{i:08d}" for i in range(200_000)],
        judge=rng.choice(["x", "y", "z"], 200_000).tolist(),
        score=rng.random(200_000).tolist(),
    )
    done = subprocess.run(
        [sys.executable, "-c", SIZE, str(path)],
        capture_output=True,
        text=True,
        check=True,
        cwd=path.absolute().parent,
        env={"PYTHONPATH": str(Path(estimating.__file__).parents[1])},
    )
    seconds, megabytes = map(float, done.stdout.split())
    measured(
        f"estimate, 200,000 rows, {name}: <= 5 s CPU, 400 MB",
        f"{seconds:.1f} s, {megabytes:.0f} MB",
    )
    assert seconds < 5
    assert megabytes < 400
