"""`sortition lab experiment` of order effects: tables on standard output, JSON, files, refusals."""

import csv
import json
import math

import pytest

COMMANDS = {
    "order-null": ("--items 6 --design williams --reps 2", "GLMM Wald rejects, %"),
    "order-power": ("--reps 2", "published"),
    "order-peeking": ("--reps 2", "GLMM, O'Brien-Fleming, %"),
    "leaderboard-williams": ("--reps 200 --fits 1", "naive gain, points"),
    "deep-memory": ("--reps 2", "lag-3 GLMM Wald rejects, %"),
    "order-variance": ("--reps 100", "williams: ordering part"),
    "predictive-check": ("--reps 2 --copies 20", "joint, propagated, %"),
    "saturated-judge": ("--reps 2", "flagged saturated, %"),
}


@pytest.mark.parametrize("name", COMMANDS)
def test_each_prints_its_table_and_writes_files(name, sortition, tmp_path):
    options, says = COMMANDS[name]
    code, out, err = sortition(
        "lab", "experiment", name, *options.split(), "--csv", "f.csv", "--plot", "f.svg"
    )
    assert code == 0
    assert says in " ".join(out.split())
    assert "Monte-Carlo" in out
    assert "of" in err
    with (tmp_path / "f.csv").open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    assert any(row["what"] == says or says == "published" for row in rows)
    assert (tmp_path / "f.svg").read_text(encoding="utf-8").startswith("<svg")


def test_for_programs_there_is_json_alone(sortition):
    code, out, _ = sortition(
        "lab",
        "experiment",
        "order-null",
        "--items",
        6,
        "--inference",
        "items",
        "--reps",
        2,
        "--json",
    )
    assert code == 0
    rows = json.loads(out, parse_constant=lambda _: pytest.fail("no number of JSON"))
    assert {row["n"] for row in rows} == {30, 60, 90, 120, 150}
    welch = next(row for row in rows if row["what"] == "GLMM Welch rejects, %")
    assert math.isfinite(welch["value"])


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ("order-null --items 3", "greater than or equal to 4"),
        ("order-null --design fixed", "fixed"),
        ("order-power --plot curves.pdf", ".svg or .png"),
        ("order-variance --csv nowhere/figures.csv", "no folder"),
        ("predictive-check --copies 3", "greater than or equal to 20"),
        ("saturated-judge --reps 1", "greater than or equal to 2"),
    ],
)
def test_what_makes_no_sense_is_refused_before_anything_is_computed(line, says, sortition):
    code, out, err = sortition("lab", "experiment", *line.split())
    assert code == 2
    assert says in err
    assert not out
