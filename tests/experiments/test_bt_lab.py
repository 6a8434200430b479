"""`sortition lab experiment bt-coverage` and `bt-adaptive`: tables, JSON and files."""

import csv
import json
import math

import pytest

COMMANDS = {
    "bt-coverage": ("--reps 2 --peeks 20", "max-t: all ranks held at every look, %"),
    "bt-adaptive": ("--reps 2", "weighted: covers, %"),
}


@pytest.mark.parametrize("name", COMMANDS)
def test_each_prints_its_table_and_writes_files(name, sortition, tmp_path):
    options, says = COMMANDS[name]
    code, out, err = sortition(
        "lab", "experiment", name, *options.split(), "--csv", "f.csv", "--plot", "f.svg"
    )
    assert code == 0
    assert says in " ".join(out.split())
    assert "comparisons" in out
    assert "batches" not in out
    assert "of" in err
    with (tmp_path / "f.csv").open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    assert any(row["what"] == says for row in rows)
    assert any(row["reference"] for row in rows)
    assert (tmp_path / "f.svg").read_text(encoding="utf-8").startswith("<svg")


def test_for_programs_there_is_json_alone(sortition):
    code, out, _ = sortition(
        "lab", "experiment", "bt-coverage", "--reps", 2, "--peeks", 20, "--json"
    )
    assert code == 0
    rows = json.loads(out, parse_constant=lambda _: pytest.fail("no number of JSON"))
    width = next(
        row for row in rows if row["what"] == "width, sequence / fixed" and row["n"] == 500
    )
    assert math.isclose(width["value"], 1.549, abs_tol=1e-3)
    assert width["se"] is None


def test_one_replicate_is_refused(sortition):
    code, out, err = sortition("lab", "experiment", "bt-adaptive", "--reps", "1")
    assert code == 2
    assert "greater than or equal to 2" in err
    assert not out
