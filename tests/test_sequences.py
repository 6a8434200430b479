"""Tables of verdicts in sequence: the model's estimates beside raw shares, and what is refused."""

from __future__ import annotations

import csv
import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from estimators.markov_glmm import fit_markov_glmm
from estimators.markov_inference import Inference, group_contrast
from estimators.markov_judge import MarkovJudge, simulate
from orchestrator.core.errors import ConfigError
from orchestrator.estimating import Request, assess
from orchestrator.report import batches
from orchestrator.report.assessment import as_json, lines, why
from orchestrator.report.screen import WIDTH
from orchestrator.report.wording import columns as width_of
from orchestrator.sequences import PARTS, read_sequence
from orchestrator.suspicious import of_batches
from orchestrator.tables import Problems, read_columns

WIDE = np.array([4.6, 4.2, -1.2, -1.4, 1.0, 1.1, 0.9, 1.0])
"""Qualities of four units of A and four of B: A is better, and wider."""
NAMES = [f"{group}{i}" for group in "AB" for i in range(4)]


def rows_of(judge, *, n=200, seed=1, carry_over=-1.0, orders=None):
    """A table of one judge's batches, in random orders."""
    rng = np.random.default_rng(seed)
    if orders is None:
        orders = rng.permuted(np.tile(np.arange(8), (n, 1)), axis=1)
    model = MarkovJudge(
        theta=WIDE, lags=np.array([carry_over]), starts=np.zeros(1), sigma=np.array(0.5)
    )
    said = simulate(model, orders, rng)
    return [
        {
            "batch_id": f"{judge}-{b}",
            "position": slot,
            "item_id": NAMES[unit],
            "judge": judge,
            "group": NAMES[unit][0],
            "y": int(y),
        }
        for b, (order, values) in enumerate(zip(orders.tolist(), said.tolist(), strict=True))
        for slot, (unit, y) in enumerate(zip(order, values, strict=True))
    ]


@pytest.fixture
def write(tmp_path, monkeypatch):
    """Write rows as a table; gives its path, relative to the current directory."""
    monkeypatch.chdir(tmp_path)

    def write(rows, name="t.csv"):
        with Path(name).open("w", newline="", encoding="utf-8") as file:
            table = csv.DictWriter(file, list(rows[0]))
            table.writeheader()
            table.writerows(rows)
        return Path(name)

    return write


@pytest.fixture(scope="module")
def rows():
    return rows_of("x")


THESE = Request(contrast="A:B", population="these_items")


def test_the_estimate_is_that_of_the_fit_and_raw_shares_stand_beside_it(write, rows):
    """A second way to the same numbers: the numerical fit of the same ratings."""
    assessment = assess(write(rows), THESE)
    (result,) = assessment.results
    groups, units = result.compared
    fit = fit_markov_glmm((r["batch_id"], r["position"], r["item_id"], float(r["y"])) for r in rows)
    expected = group_contrast(fit, NAMES[:4], NAMES[4:], Inference.PANEL)
    assert groups.estimate.value[0] == pytest.approx(expected.est, rel=1e-6)
    assert groups.estimate.se[0] == pytest.approx(expected.se, rel=1e-5)
    share = {g: np.mean([r["y"] for r in rows if r["group"] == g]) for g in "AB"}
    assert groups.naive.value[0] == pytest.approx(share["A"] - share["B"])
    assert groups.naive.value[0] < 0 < groups.estimate.lower[0]
    assert "by raw verdicts A - B is below 0, by the model it is above 0" in why(groups)
    by_name = dict(zip(units.estimate.names, units.naive.value, strict=True))
    assert by_name["A0"] == pytest.approx(np.mean([r["y"] for r in rows if r["item_id"] == "A0"]))
    assert np.isnan(groups.width_ratios[0])


def test_rows_may_stand_in_any_order(write, rows):
    shuffled = [rows[i] for i in np.random.default_rng(2).permutation(len(rows))]
    first, second = (
        assess(write(table, name), THESE).results[0].compared[0].estimate.value[0]
        for table, name in ((rows, "a.csv"), (shuffled, "b.csv"))
    )
    assert first == pytest.approx(second, rel=1e-8)


def test_items_like_these_is_wider_and_the_usual_question(write, rows):
    """The groups' own spread counts where the items are a sample of more."""
    of_these, like_these = (
        assess(write(rows), request).results[0].compared[0].estimate
        for request in (THESE, Request(contrast="A:B"))
    )
    assert like_these.se[0] > 3 * of_these.se[0]
    assert "items like these" in like_these.estimand
    assert like_these.interval == "Welch over items"


def test_what_is_printed_fits_the_screen_and_says_the_memory(write, rows):
    said = lines(assess(write(rows), THESE))
    assert max(map(width_of, said)) <= WIDTH
    text = " ".join(" ".join(said).split())
    assert "x: after a yes the odds of a yes are" in text
    assert "y, difference rows naive share logits" in text
    assert "1,600 rows: 8 items, 200 batches" in text
    json.dumps(as_json(assess(write(rows), THESE)), allow_nan=False)


def test_arms_are_compared_where_the_table_names_them(write, rows):
    """An item in two arms is two units; its name says which."""
    armed = [
        {k: v for k, v in r.items() if k != "group"}
        | {"arm": r["group"], "item_id": r["item_id"][1]}
        for r in rows
    ]
    groups, units = assess(write(armed), THESE).results[0].compared
    assert groups.estimate.names == ("A - B",)
    assert "0 (A)" in units.estimate.names


def test_a_missing_verdict_leaves_its_follower_out_too(write, rows):
    """Nobody knows what the judge thought; "does not apply" is remembered as no verdict."""
    whole = assess(write(rows), THESE).results[0].compared[0].estimate
    for cell, n_lost in (("", 1), ("n/a", 0)):
        broken = [dict(r) for r in rows]
        broken[3]["y"] = cell
        assessment = assess(write(broken), THESE)
        assert assessment.counts["missing"] == n_lost
        assert assessment.results[0].compared[0].estimate.n_answers == whole.n_answers - 1


def test_what_cannot_be_read_is_refused_with_its_line(write, rows):
    """Cells first, all at once; then rows that can't stand where they stand."""
    broken = [dict(r) for r in rows]
    broken[0]["y"] = 2
    broken[1]["position"] = "second"
    with pytest.raises(ConfigError) as caught:
        assess(write(broken), THESE)
    assert str(caught.value).splitlines() == [
        (
            "t.csv:2  y — row 1: wants 1 or 0, true or false, not 2; or --accept-from, the lowest "
            "number that is a yes"
        ),
        't.csv:3  position — row 2: wants a whole number, not "second"',
        "2 problems; nothing was estimated",
    ]
    broken[0]["y"], broken[1]["position"] = 1, 2
    broken[9] |= {key: broken[8][key] for key in ("item_id", "group")}
    with pytest.raises(ConfigError) as caught:
        assess(write(broken), THESE)
    assert str(caught.value).splitlines() == [
        't.csv:4  position — row 3: batch "x-0" has this position already',
        't.csv:11  item_id — row 10: batch "x-1" has this item already',
        "2 problems; nothing was estimated",
    ]


def test_ordered_labels_are_a_yes_from_a_line_up(write, rows):
    """The estimates are those of the yes and no that they stand for, and the line is stated."""
    labels = {0: (1, 2.5), 1: (3, 5)}
    graded = [row | {"y": labels[row["y"]][n % 2]} for n, row in enumerate(rows)]
    line = replace(THESE, accept_from=3.0)
    ours = assess(write(graded, "graded.csv"), line)
    plain = assess(write(rows), THESE)
    assert [c.estimate for c in ours.results[0].compared] == [
        c.estimate for c in plain.results[0].compared
    ]
    assert ours.results[0].compared[0].naive == plain.results[0].compared[0].naive
    assert "from 3 up is a yes (--accept-from)" in "\n".join(lines(ours))
    other = assess(write(graded, "graded.csv"), Request(kind="markov_glmm", accept_from=3.0))
    again = "sortition estimate graded.csv --kind=markov_glmm --accept-from=3 --contrast="
    assert other.next_command.startswith(again)


@pytest.mark.parametrize(
    ("line", "labels", "why"),
    [
        (6.0, (1, 5), "--accept-from — 6 parts no verdicts from others: column y has 1 to 5"),
        (1.0, (1, 5), "--accept-from — 1 parts no verdicts from others: column y has 1 to 5"),
        (3.0, (2, 2), "--accept-from — 3 parts no verdicts from others: column y has 2"),
        (3.0, ("true", 5), "true or false, where --accept-from wants numbers"),
        (3.0, ("good", 5), 'wants a number, not "good"'),
        (None, (1, 5), "wants 1 or 0, true or false, not 5; or --accept-from, the lowest number"),
    ],
)
def test_a_line_that_parts_nothing_is_refused(write, rows, line, labels, why):
    table = [row | {"y": labels[row["y"]]} for row in rows]
    with pytest.raises(ConfigError) as caught:
        assess(write(table), replace(THESE, accept_from=line))
    assert why in str(caught.value)
    assert len(str(caught.value).splitlines()) <= 7


def test_a_line_is_of_verdicts_in_sequence_alone(write):
    table = [{"item_id": n, "score": 1 + n % 3} for n in range(6)]
    with pytest.raises(ConfigError, match="--accept-from — score_means reads scores as they are"):
        assess(write(table), Request(accept_from=2.0))


def test_long_lists_of_bad_rows_are_cut(write, rows):
    """Five of each kind, and how many more there are."""
    table = [row | {"y": 2} if n < 42 else row for n, row in enumerate(rows)]
    with pytest.raises(ConfigError) as caught:
        assess(write(table), THESE)
    said = str(caught.value).splitlines()
    assert [line.partition("  ")[0] for line in said[:5]] == [f"t.csv:{n}" for n in range(2, 7)]
    assert said[5:] == [
        "t.csv  y — and 37 more of this kind: no yes or no",
        "6 problems; nothing was estimated",
    ]


def test_raw_verdicts_are_suspicious_where_the_report_warns_of_them(write, rows):
    """One rule for both: they are where they say something else than the model, or are about to."""
    path = write(rows)
    assessment = assess(path, THESE)
    found = [c.estimate for c in assessment.results[0].compared]
    assert "naive_biased" in found[0].flags
    for estimate in (found[0], _agreeing(found[0])):
        flags = {s.flag for s in of_batches(_table(path), [estimate])}
        assert ("naive_biased" in flags) == any(
            note.startswith("raw verdicts mislead") for note in batches.notes(estimate)
        )
    assert not [note for note in batches.notes(_agreeing(found[0])) if "mislead" in note]


def _agreeing(estimate):
    """Let raw verdicts say what the model says, clearly."""
    rows = [
        row
        | {
            "contrast": {"est": 0.5, "se": 0.1, "z": 5.0, "p": 1e-6},
            "naive": {"est": 0.2, "se": 0.03, "z": 6.7, "p": 1e-9},
            "naive_limit": row["naive_limit"] | {"exact": 0.2, "curvature": -0.01},
        }
        for row in estimate.diagnostics["judges"]
    ]
    return replace(estimate, diagnostics={**estimate.diagnostics, "judges": rows})


def _table(path):
    problems = Problems()
    table = read_columns(path, str(path), sorted(PARTS), problems)
    return read_sequence(table, {part: part for part in PARTS if part in table.names}, problems)


def test_choices_that_the_model_lacks_are_refused(write, rows):
    """As are sides that the table does not have."""
    path = write(rows)
    request = Request(contrast="A:C", per="unit", targets=("common",), scales={None: (0, 1)})
    with pytest.raises(ConfigError) as caught:
        assess(path, request)
    for option in ("--per", "--target", "--scale"):
        assert f"{option} — markov_glmm has no such choice" in str(caught.value)
    assert "--contrast — wants ARM:BASELINE, two of" in str(caught.value)
    with pytest.raises(ConfigError, match="y — no column has this name; --map y=COLUMN names one"):
        assess(
            write([{"batch_id": 1, "position": 1, "item_id": 1, "score": 1}]),
            Request(kind="markov_glmm"),
        )


def test_suspicious_orders_are_named(write):
    """One order for all batches, few orders, few batches, units that never meet."""
    fixed = np.tile(np.arange(8), (40, 1))
    two = np.concatenate([np.tile(np.arange(8), (20, 1)), np.tile(np.arange(8)[::-1], (20, 1))])
    apart = np.stack([np.array([0, 1, 2, 3]), np.array([4, 5, 6, 7])] * 20)
    table = [
        *rows_of("fixed", orders=fixed),
        *rows_of("two", orders=two),
        *rows_of("apart", orders=apart),
        *rows_of("few", n=10),
    ]
    found = {
        (suspicion.flag, suspicion.message.split('"')[1])
        for suspicion in assess(write(table), Request()).suspicions
        if '"' in suspicion.message
    }
    assert found == {
        ("fixed_order", "fixed"),
        ("few_orders", "two"),
        ("fixed_order", "apart"),
        ("not_connected", "apart"),
        ("few_batches", "few"),
    }


def test_a_table_that_says_nothing_is_estimated_as_nothing(write):
    """One unit in each batch, or one opinion: no number, and no failure."""
    lone = [{"batch_id": b, "position": 0, "item_id": "a", "y": b % 2} for b in range(6)]
    alike = [
        {"batch_id": b, "position": s, "item_id": s, "y": 1} for b in range(6) for s in range(3)
    ]
    for table in (lone, alike):
        assessment = assess(write(table), Request())
        said = "\n".join(lines(assessment))
        assert "can't be modelled" in said
