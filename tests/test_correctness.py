"""Tables of right and wrong answers: what is read, and what it says of the whole benchmark."""

from __future__ import annotations

import csv
import gzip
import io
import json
import math
import re
from itertools import combinations
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from estimators.macro_ability import independent_items_half_width
from estimators.subsample_bounds import (
    hypergeometric_interval,
    stratified_half_width,
    subsample_half_width,
)
from orchestrator.core.errors import ConfigError
from orchestrator.correctness import WORDS
from orchestrator.estimating import Request, assess
from orchestrator.report.assessment import as_json, lines
from orchestrator.report.screen import WIDTH
from orchestrator.report.wording import columns as width_of


@pytest.fixture
def write(tmp_path, monkeypatch):
    """Write a table from columns; gives its path, relative to the current directory."""
    monkeypatch.chdir(tmp_path)

    def write(name="t.csv", **columns):
        rows = [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]
        if ".jsonl" in name:
            text = "".join(json.dumps(row) + "\n" for row in rows)
        else:
            out = io.StringIO()
            writer = csv.DictWriter(out, list(columns))
            writer.writeheader()
            writer.writerows(rows)
            text = out.getvalue()
        raw = text.encode()
        Path(name).write_bytes(gzip.compress(raw) if name.endswith(".gz") else raw)
        return Path(name)

    return write


@pytest.fixture
def problems():
    def problems(path, **request):
        with pytest.raises(ConfigError) as refusal:
            assess(path, Request(**request))
        *listed, last = str(refusal.value).splitlines()
        assert last == f"{len(listed)} problem{'s' * (len(listed) != 1)}; nothing was estimated"
        return listed

    return problems


def estimates(assessment):
    """Give the estimates by their target."""
    (result,) = assessment.results
    return {one.estimate.target: one.estimate for one in result.compared}


def flags(assessment):
    return [suspicion.flag for suspicion in assessment.suspicions]


def alternating(n, every=3):
    return [int(k % every > 0) for k in range(n)]


def text(assessment):
    return re.sub(r"\s+", " ", " ".join(lines(assessment)))


# --- a part of a benchmark -----------------------------------------------------------------------


def test_a_part_is_bounded_by_counting_what_may_be_in_the_rest(write):
    """One system: the exact interval of k right of n out of N, whatever the order of the rows."""
    right = alternating(90)
    for order in (right, sorted(right)):
        path = write(item_id=range(90), correct=order)
        found = estimates(assess(path, Request(of={None: 400})))["arms"]
        ends = hypergeometric_interval(60, 90, 400, 0.05)
        assert found.value == (pytest.approx(2 / 3),)
        assert (found.lower[0], found.upper[0]) == pytest.approx((ends.lower, ends.upper))
        assert not found.watching_covered
        assert found.diagnostics["seed"] is None
        assert found.diagnostics["by_name"]["n_drawn"] == [90]


def test_the_bound_for_exchangeable_scores_stands_beside_ours(write):
    path = write(item_id=range(90), correct=alternating(90))
    assessment = assess(path, Request(of={None: 400}))
    (half,) = estimates(assessment)["arms"].diagnostics["by_name"]["exchangeable_half_width"]
    assert half == pytest.approx(float(subsample_half_width(90, 400, 0.05, 1, "exchangeable")))
    assert f"±{half:.4f} at 90 of 400 items" in text(assessment)


def test_five_thousand_of_mmlu_are_worth_a_point_and_a_half(write):
    """The bound for exchangeable scores at 5,000 of 14,042 is ±1.54 points; the exact one is narrower."""
    path = write(item_id=range(5000), correct=[int(k % 20 > 2) for k in range(5000)])
    found = estimates(assess(path, Request(of={None: 14_042})))["arms"]
    (half,) = found.diagnostics["by_name"]["exchangeable_half_width"]
    assert half == pytest.approx(0.0154122, abs=1e-7)
    assert found.half_width < 0.0085


def test_the_whole_benchmark_is_known_and_only_ability_has_an_interval(write):
    """No interval of width zero: none at all, and words for it."""
    path = write(item=range(60), subject=["abc"[k % 3] for k in range(60)], one=alternating(60, 4))
    assessment = assess(path, Request())
    found = estimates(assessment)
    assert list(found) == ["arms", "macro", "ability"]
    for target in ("arms", "macro"):
        assert "whole_benchmark" in found[target].flags
        assert math.isnan(found[target].se[0])
        assert math.isnan(found[target].lower[0])
    assert found["arms"].value == (0.75,)
    assert found["ability"].lower[0] < found["ability"].value[0] < found["ability"].upper[0]
    assert "0.75 known" in text(assessment)
    assert "are the whole benchmark" in text(assessment)


def test_a_missing_verdict_of_the_whole_is_all_that_is_open(write):
    """60 items, 3 of them unknown: the mean is between their being wrong and right."""
    correct = ["", "", "", *alternating(57)]
    path = write(item_id=range(60), correct=correct)
    found = estimates(assess(path, Request()))["arms"]
    right = sum(x for x in correct if x)
    assert (found.lower[0], found.upper[0]) == pytest.approx((right / 60, (right + 3) / 60))
    assert found.value[0] == pytest.approx(right / 57)


def test_missing_verdicts_widen_at_both_ends_and_are_never_dropped(write):
    """A missing answer is no wrong one, and no item that was not asked."""
    full = alternating(200)
    lost = [*[""] * 20, *full[20:]]
    whole, part = (
        estimates(assess(write(item_id=range(200), correct=x), Request(of={None: 1000})))["arms"]
        for x in (full, lost)
    )
    ones = sum(x for x in lost if x)
    lower = hypergeometric_interval(ones, 200, 1000, 0.05).lower
    upper = hypergeometric_interval(ones + 20, 200, 1000, 0.05).upper
    assert (part.lower[0], part.upper[0]) == pytest.approx((lower, upper))
    assert part.half_width > whole.half_width
    assert "missing_imputed" in part.flags


# --- strata --------------------------------------------------------------------------------------


def stratified(write, **more):
    subject = ["a"] * 40 + ["b"] * 20
    return write(item_id=range(60), subject=subject, correct=alternating(60), **more)


@pytest.mark.parametrize("column", [False, True])
def test_sizes_of_strata_come_by_option_or_by_column(write, column):
    path = stratified(write, **({"stratum_size": [100] * 40 + [300] * 20} if column else {}))
    request = Request(
        of={} if column else {"a": 100, "b": 300}, targets=("benchmark", "macro", "strata")
    )
    found = estimates(assess(path, request))
    drawn, sizes, half = np.array([40, 20]), np.array([100, 300]), np.full(2, 0.5)
    assert found["macro"].half_width == pytest.approx(
        stratified_half_width(drawn, sizes, half, 0.05)
    )
    assert found["strata"].names == ("a", "b")
    assert found["strata"].diagnostics["by_name"]["population"] == [100, 300]
    ends = hypergeometric_interval(sum(alternating(60)[:40]), 40, 100, 0.05)
    assert found["strata"].lower[0] == pytest.approx(ends.lower)


def test_items_drawn_within_strata_are_weighed_by_their_sizes(write):
    """Equal parts of strata of unequal size: the plain mean is off, the stratified one is not."""
    subject = ["a"] * 50 + ["b"] * 50
    path = write(item_id=range(100), subject=subject, correct=[1] * 50 + [0] * 50)
    sizes = {"a": 900, "b": 100}
    plain = assess(path, Request(of=sizes))
    drawn = assess(path, Request(of=sizes, design="stratified"))
    assert estimates(plain)["arms"].value == (0.5,)
    assert estimates(drawn)["arms"].value == (pytest.approx(0.9),)
    assert "strata_off" in flags(plain)
    assert "stratified" in estimates(drawn)["arms"].interval


def test_a_stratum_without_items_is_named_and_widens_the_macro_mean(write):
    """Nothing cancels for a stratum of which nothing was drawn."""
    path = stratified(write)
    assessment = assess(path, Request(of={"a": 100, "b": 50, "gone": 60}))
    macro = estimates(assessment)["macro"]
    assert macro.half_width > 1 / 6
    assert "strata_absent" in flags(assessment)
    assert '"gone"' in text(assessment)
    strata = assessment.results[0].strata
    assert strata["by_system"][0]["value"][2] is None


def test_without_sizes_strata_serve_ability_alone(write, problems):
    path = stratified(write)
    assert list(estimates(assess(path, Request(of={None: 600})))) == ["arms", "ability"]
    (line,) = problems(path, of={None: 600}, targets=("macro",))
    assert line == ("--target macro — wants to know how large strata are: --of STRATUM=N for each")


def test_strata_are_described(write):
    """Whether they differ, by their law and by halves, and whether alike over systems."""
    rng = np.random.default_rng(5)
    chance = np.repeat([0.1, 0.3, 0.5, 0.6, 0.8, 0.95], 40)
    systems = {f"s{k}": (rng.random(240) < chance).astype(int) for k in range(4)}
    subject = [f"subject{k // 40}" for k in range(240)]
    domain = ["x" if k < 120 else "y" for k in range(240)]
    assessment = assess(write(subject=subject, domain=domain, **systems), Request())
    strata = assessment.results[0].strata
    for of in strata["spread"]:
        assert of["all"]["status"] == "ok"
        assert of["all"]["p"] < 0.001
        assert [each["group"] for each in of["groups"]] == ["x", "y"]
    assert all(half["r"] > 0.8 for half in strata["split_half"])
    matrix = np.array(strata["correlations"]["matrix"], dtype=float)
    assert matrix.shape == (6, 6)
    assert np.allclose(matrix, matrix.T)
    assert "without noise" in text(assessment)
    assert "random halves" in text(assessment)


def test_ability_wants_yes_or_no(write, problems):
    path = write(item_id=range(40), subject=["a", "b"] * 20, correct=[0.5, 0.25] * 20)
    assert list(estimates(assess(path, Request()))) == ["arms", "macro"]
    (line,) = problems(path, targets=("ability",))
    assert "--target ability — is a chance of yes" in line


# --- several systems -----------------------------------------------------------------------------


def test_a_matrix_and_a_long_table_say_the_same(write):
    """Also packed, as JSON lines, and with words for verdicts."""
    one, two = alternating(60), alternating(60, 5)
    two[7] = ""
    matrix = write("m.csv.gz", item=range(60), one=one, two=two)
    long = write(
        "l.jsonl",
        item_id=[k for k in range(60) for _ in range(2)],
        model=["one", "two"] * 60,
        correct=[{1: "Right", 0: "wrong", "": None}[of[k]] for k in range(60) for of in (one, two)],
    )
    request = Request(of={None: 100}, contrast="two:one")
    (a, b) = (estimates(assess(path, request)) for path in (matrix, long))
    for target in ("difference", "arms"):
        assert a[target] == b[target]
    assert a["difference"].names == ("two - one",)
    assert a["difference"].lower[0] < a["difference"].upper[0]


def test_a_matrix_may_have_systems_as_rows(write):
    one, two = alternating(40), alternating(40, 5)
    upright = write("u.csv", one=one, two=two)
    items = {f"q{k}": pair for k, pair in enumerate(zip(one, two, strict=True))}
    flat = write("f.csv", model=["one", "two"], **items)
    a, b = (
        estimates(assess(path, Request(of={None: 90}, contrast="two:one")))
        for path in (upright, flat)
    )
    assert a == b
    assessment = assess(flat, Request())
    assert assessment.uses[0].table == "right and wrong answers to 40 items"
    assert "each column is an item" in text(assessment)


@pytest.mark.parametrize("word", [*WORDS, "TRUE", "false", "1", "0"])
def test_verdicts_have_words(write, word):
    path = write(item_id=range(40), correct=[word, "0"] * 20)
    value = WORDS.get(word, float(word.lower() in {"true", "1"}))
    assert estimates(assess(path, Request()))["arms"].value == (value / 2,)


@pytest.mark.parametrize(("split", "share"), [("arms", 3), ("none", 1), ("pairs", 1)])
def test_the_error_is_shared_as_told(write, split, share):
    systems = {f"s{k}": alternating(60, k + 3) for k in range(3)}
    found = estimates(assess(write(**systems), Request(of={None: 300}, error_split=split)))
    assert found["arms"].diagnostics["by_name"]["alpha"] == pytest.approx([0.05 / share] * 3)
    assert ("differences" in found) == (split == "pairs")
    if split == "pairs":
        assert found["differences"].names == tuple(
            f"{a} - {b}" for a, b in combinations(systems, 2)
        )


def test_systems_with_items_of_their_own_are_not_paired(write):
    """What has no row was not asked; the difference is of two parts, and that is said."""
    systems = ["x"] * 60 + ["y"] * 60
    items = [*range(60), *range(30, 90)]
    path = write(item_id=items, model=systems, correct=alternating(120))
    assessment = assess(path, Request(of={None: 1000}, contrast="x:y"))
    difference = estimates(assessment)["difference"]
    assert difference.interval == "two intervals by hypergeometric"
    assert estimates(assessment)["arms"].diagnostics["by_name"]["n_drawn"] == [60, 60]
    assert "no_partner" in flags(assessment)


def test_what_one_system_lacks_of_the_whole_is_taken_for_left_out_by_lot(write):
    """The interval rests on that, so it is said; and with nearly all rows there it is doubted."""
    path = write(
        item_id=[*range(100), *range(95)], model=["x"] * 100 + ["y"] * 95, correct=alternating(195)
    )
    assessment = assess(path, Request(kind="exchangeable"))
    arms = estimates(assessment)["arms"]
    assert math.isnan(arms.lower[0])
    assert arms.lower[1] < arms.value[1] < arms.upper[1]
    assert any(
        "those that it has are a random part" in each.what for each in assessment.assumptions
    )
    assert "nearly_whole" in flags(assessment)


def test_naive_takes_rows_for_independent_items(write):
    path = write(item_id=range(90), correct=alternating(90))
    naive = assess(path, Request(of={None: 400})).results[0].compared[0].naive
    half = 1.959964 * math.sqrt(2 / 9 / 89)
    assert naive.upper[0] - naive.value[0] == pytest.approx(half, rel=1e-5)


def test_a_panel_scores_its_mean(write):
    """Two judges: means of 0, 1/2, 1; a judge without a row on an item counts as missing."""
    items = [k for k in range(40) for _ in range(2)]
    columns = {
        "item_id": items,
        "judge": ["p", "q"] * 40,
        "correct": [int(k % 4 > (j == 1)) for k in range(40) for j in range(2)],
    }
    path = write(**columns)
    found = estimates(assess(path, Request(of={None: 100})))["arms"]
    assert found.value == (pytest.approx(np.mean(columns["correct"])),)
    assert "Hoeffding" in found.interval
    short = write("s.csv", **{key: column[:-1] for key, column in columns.items()})
    assessment = assess(short, Request(of={None: 100}))
    assert "panel_incomplete" in flags(assessment)
    assert estimates(assessment)["arms"].diagnostics["by_name"]["missing"] == [1]


def test_scores_on_a_scale(write):
    path = write(item_id=range(40), correct=[1, 3, 4, 5] * 10)
    found = estimates(assess(path, Request(of={None: 100}, scales={None: (1, 5)})))["arms"]
    assert found.value == (pytest.approx(3.25),)
    half = subsample_half_width(40, 100, 0.05, 4)
    assert found.half_width == pytest.approx(float(half))


# --- items ---------------------------------------------------------------------------------------


def test_ids_that_start_anew_in_each_stratum_are_as_many_items(write):
    subject = ["a"] * 30 + ["b"] * 30
    assessment = assess(
        write(item=[*range(30)] * 2, subject=subject, one=alternating(60)), Request()
    )
    assert assessment.counts["items"] == 60
    assert "numbered within strata" in text(assessment)


def test_of_rows_about_one_thing_the_first_counts(write):
    items, right = [*range(40), 0, 1], [*alternating(40), 1, 1]
    assessment = assess(write(item_id=items, correct=right), Request())
    assert estimates(assessment)["arms"].value[0] == pytest.approx(np.mean(right[:40]))
    (said,) = [one.message for one in assessment.suspicions if one.flag == "repeated_rows"]
    assert said.startswith("2 rows about")
    assert "1 of the others say something else" in said


# --- suspicions ----------------------------------------------------------------------------------


def test_a_sound_part_is_not_suspected(write):
    rng = np.random.default_rng(3)
    subject = rng.permutation(["a"] * 60 + ["b"] * 140)
    one, two = ((rng.random(200) < chance).astype(int) for chance in (0.6, 0.7))
    assessment = assess(write(subject=subject, one=one, two=two), Request(of={"a": 300, "b": 700}))
    assert set(flags(assessment)) <= {"few_subjects"}


@pytest.mark.parametrize(
    ("columns", "of", "flag"),
    [
        (
            {"a": [*[""] * 30, *alternating(70)], "b": alternating(100)},
            400,
            "missing_differs_by_arm",
        ),
        ({"a": alternating(100), "b": alternating(100)}, 400, "identical_systems"),
        ({"a": [1] * 100, "b": alternating(100)}, 400, "constant"),
        ({"a": alternating(100)}, 101, "nearly_whole"),
        (
            {"subject": ["p"] * 40 + ["q"] * 30 + ["r"] * 30, "a": alternating(100)},
            400,
            "sorted_by_stratum",
        ),
        (
            {"subject": ["p", "q"] * 50, "a": ["", 1] * 10 + alternating(80)},
            400,
            "missing_by_stratum",
        ),
        ({f"s{k}": [1, 0] for k in range(3)}, 10, "more_systems_than_items"),
    ],
)
def test_what_is_suspicious(write, columns, of, flag):
    path = write(**columns)
    assert flag in flags(assess(path, Request(kind="exchangeable", of={None: of})))


def test_order_and_proportions_are_of_no_account_for_the_whole(write):
    path = write(subject=["p"] * 40 + ["q"] * 30 + ["r"] * 30, a=alternating(100))
    assert not {"sorted_by_stratum", "strata_off"} & {
        *flags(assess(path, Request(kind="exchangeable")))
    }


# --- refusals ------------------------------------------------------------------------------------


def test_all_problems_are_told_at_once(write, problems):
    path = write(
        item_id=["a", "b", "", "d"], model=["x", "y"] * 2, correct=["1", "maybe", "0", "2"]
    )
    found = problems(path, targets=("macros",), per="unit")
    assert len(found) == 5
    assert found[0] == "--per — exchangeable has no such choice"
    assert found[1].startswith("--target — no target is named")
    assert 'did you mean "macro"?' in found[1]
    assert "t.csv:3  correct — row 2: wants a number, right, wrong, yes, no" in found[2]
    assert found[3] == "t.csv:4  item_id — row 3: missing"
    assert "t.csv:5  correct — row 4: wants a score from 0 to 1, not 2; --scale" in found[4]


@pytest.mark.parametrize(
    ("of", "says"),
    [
        ({None: 10}, "the table has 60 items, which is more than 10"),
        ({"a": 100}, 'says nothing of stratum "b"'),
        ({"a": 100, "bb": 70}, 'did you mean "bb"?'),
        ({"a": 30, "b": 70}, 'stratum "a" has 30 items by this, and the table has 40 of it'),
        ({None: 50, "a": 100, "b": 70}, "50 items are not the 170 that strata come to"),
    ],
)
def test_sizes_that_cannot_be_are_refused(write, problems, of, says):
    found = problems(stratified(write), of=of)
    assert any(says in line for line in found) or "known: a" in found[0]


def test_what_wants_strata_says_so(write, problems):
    path = write(item_id=range(40), correct=alternating(40))
    assert "wants strata: --map stratum=COLUMN" in problems(path, targets=("macro",))[0]
    assert "names no strata" in problems(path, of={"a": 50})[0]
    assert "two arms or groups" in problems(path, contrast="x:y")[0]


def test_options_of_benchmarks_mean_nothing_to_others(write, problems):
    path = write(item_id=range(40), score=alternating(40))
    found = problems(path, of={None: 50}, design="stratified", error_split="none")
    assert [line.split(" — ")[0] for line in found] == ["--of", "--design", "--error-split"]
    assert "wants one of panel, common" in problems(path, targets=("macro",))[0]


def test_sizes_of_a_stratum_agree(write, problems):
    path = stratified(write, stratum_size=[100] * 39 + [99] + [300.5] * 20)
    assert any("wants a whole number" in line for line in problems(path))
    path = stratified(write, stratum_size=[100] * 39 + [99] + [300] * 20)
    (line,) = problems(path)
    assert "99, where row 1 (line 2) of the stratum has 100" in line.replace('"', "")


def test_ratings_are_no_matrix(write, problems):
    """Forced, a table of ratings says which column it wants."""
    path = write(item_id=[0, 0, 1, 1], judge=["p", "q"] * 2, score=[1, 0, 1, 1])
    (line,) = problems(path, kind="exchangeable")
    assert "correct — no column has this name; --map correct=COLUMN names one" in line
    assert assess(path, Request(kind="exchangeable", names={"correct": "score"})).results


def test_a_bad_cell_of_a_matrix_is_named_and_so_is_what_it_costs(write, problems):
    """One keeps its column out and says so; if no column is left, the cells are what is wrong."""
    good, bad = ["1", "0"] * 5, ["1", "0", "yep", "", "1"] * 2
    left_out = assess(write(item_id=range(10), ann=bad, bob=good), Request())
    said = next(s.message for s in left_out.suspicions if s.flag == "column_left_out")
    assert "t.csv:4  ann — row 3: wants 1 or 0" in said
    assert said.endswith('not "yep" (2 such cells)')
    (line,) = problems(write(item_id=range(10), ann=bad, length=range(10)))
    assert "t.csv:4  ann — row 3" in line
    plain = assess(write(item_id=range(10), bob=good, length=range(10)), Request())
    assert not [s for s in plain.suspicions if s.flag == "column_left_out"]


def test_strata_without_a_size_are_counted_right(write, problems):
    path = write(item_id=range(30), stratum=[f"s{n // 2}" for n in range(30)], correct=[1, 0] * 15)
    *first, last = problems(path, of={"s0": 1, None: 3000})
    assert len(first) == 5
    assert "and 9 more of this kind" in last


# --- output --------------------------------------------------------------------------------------


@settings(
    max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(data=st.data())
def test_any_table_is_estimated_and_shown(write, data):
    """Whatever is right, wrong or missing: finite or null in JSON, within the width on the screen."""
    n = data.draw(st.integers(1, 25))
    verdicts = st.lists(st.sampled_from(["1", "0", ""]), min_size=n, max_size=n)
    systems = {f"s{k}": data.draw(verdicts) for k in range(data.draw(st.integers(1, 4)))}
    if not any(x for column in systems.values() for x in column):
        systems["s0"][0] = "1"
    strata = data.draw(st.none() | st.lists(st.sampled_from("abc"), min_size=n, max_size=n))
    of = data.draw(st.sampled_from([{}, {None: n}, {None: n + 7}]))
    if strata and data.draw(st.booleans()):
        of = {s: strata.count(s) + data.draw(st.integers(0, 5)) for s in "abc" if s in strata}
        of["d"] = 4
    path = write(item_id=range(n), **({"stratum": strata} if strata else {}), **systems)
    assessment = assess(path, Request(kind="exchangeable", of=of))
    assert all(width_of(line) <= WIDTH for line in lines(assessment))
    document = json.loads(json.dumps(as_json(assessment), allow_nan=False))
    for estimate in document["results"][0]["estimates"]:
        for low, value, high in zip(
            *(estimate[k] for k in ("lower", "value", "upper")), strict=True
        ):
            if low is not None:
                assert low - 1e-9 <= value <= high + 1e-9
                assert low < high


# --- MMLU and MMLU-Pro ---------------------------------------------------------------------------


@pytest.fixture(scope="module")
def helm(shared_data):
    path = shared_data / "mmlu/mmlu_helm9.csv.gz"
    return assess(path, Request(kind="exchangeable", error_split="none"))


def test_nine_models_have_the_macro_scores_and_half_widths(helm):
    """llama-3-70b .7933 ± .0525, claude-3-opus ± .0454, by a law for each domain."""
    (result,) = helm.results
    ability = next(one for one in result.compared if one.estimate.target == "ability")
    e = ability.estimate
    half = {
        name: (high - low) / 2 for name, low, high in zip(e.names, e.lower, e.upper, strict=True)
    }
    assert half["llama-3-70b"] == pytest.approx(0.0525, abs=5e-4)
    assert half["claude-3-opus-20240229"] == pytest.approx(0.0454, abs=5e-4)
    macro = estimates(helm)["macro"]
    at = macro.names.index("llama-3-70b")
    assert macro.value[at] == pytest.approx(0.7933, abs=5e-5)
    assert math.isnan(macro.lower[at])
    assert min(ability.width_ratios) >= 7
    naive = ability.naive
    assert naive.upper[at] - naive.value[at] == pytest.approx(
        independent_items_half_width(naive.value[at] * 14_010, 14_010), rel=1e-3
    )


def test_without_domains_one_law_is_wider(write, shared_data):
    """The pooled fit gives llama-3-70b .0578."""
    rows = rows_of(shared_data / "mmlu/mmlu_helm9.csv.gz")
    columns = {key: [row[key] for row in rows] for key in ("subject", "item", "llama-3-70b")}
    e = estimates(assess(write(**columns), Request()))["ability"]
    assert (e.upper[0] - e.lower[0]) / 2 == pytest.approx(0.0578, abs=5e-4)


def test_halves_of_subjects_agree_for_nine_models(helm):
    """Random halves of the 57 subjects correlate by .86 to .96."""
    halves = helm.results[0].strata["split_half"]
    assert len(halves) == 9
    assert all(0.855 <= of["r"] <= 0.965 for of in halves)
    spread = {of["system"]: of["all"] for of in helm.results[0].strata["spread"]}
    assert spread["llama-3-70b"]["sd"] == pytest.approx(0.1428, abs=5e-5)


def test_what_gemini_lacks_is_found(helm):
    """90 answers, most of them in one subject."""
    assert flags(helm).count("missing_by_stratum") == 2
    assert "missing_differs_by_arm" in flags(helm)
    assert helm.counts == {"items": 14_010, "systems": 9, "strata": 57, "judges": 1, "missing": 180}


def test_mmlu_pro_is_read_as_it_is(write, shared_data):
    """28 models, numbered questions, categories; other columns are no systems."""
    rows = rows_of(shared_data / "mmlu/mmlu_pro.csv.gz")[::40]
    path = write(**{key: [row[key] for row in rows] for key in rows[0]})
    assessment = assess(path, Request(of={None: 12_032}, targets=("benchmark",)))
    assert assessment.counts["systems"] == 28
    assert assessment.counts["strata"] == 14
    assert assessment.unused == ("src",)
    assert dict(assessment.columns) == {"item_id": "question_id", "stratum": "category"}


def rows_of(path):
    with gzip.open(path, "rt", encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))
