"""`sortition lab experiment` of benchmarks: tables, JSON, files, refusals."""

import csv
import json

import numpy as np
import pytest

COMMANDS = {
    "peeking": ("--reps 3 --share 0.7 --items 400", "betting for 100: wrong by then, %"),
    "subsample-mmlu": ("t.csv --reps 2 --strata topic --half-width 0.1 --pair good,poor", "paper"),
    "beta-proxy": ("--reps 2", "best proxy / variance"),
    "async-order": ("--reps 2", "told prefix, betting: wrong, %"),
}


@pytest.fixture
def table(tmp_path):
    """Two systems on 400 items of four topics; one lacks an answer."""
    rng = np.random.default_rng(1)
    rows = ["item,topic,field,good,poor,said"]
    for i in range(400):
        good, poor = (int(rng.random() < p) for p in (0.9, 0.4))
        rows.append(f"{i},t{i % 4},f{i % 2},{good},{'' if i == 7 else poor},{'ABCD'[i % 4]}")
    (tmp_path / "t.csv").write_text("\n".join(rows) + "\n")


@pytest.mark.parametrize("name", COMMANDS)
@pytest.mark.usefixtures("table")
def test_each_prints_its_table_and_writes_files(name, sortition, tmp_path):
    options, says = COMMANDS[name]
    code, out, err = sortition(
        "lab", "experiment", name, *options.split(), "--csv", "f.csv", "--plot", "f.svg"
    )
    assert code == 0, err
    assert says in " ".join(out.split())
    assert "Monte-Carlo" in out
    with (tmp_path / "f.csv").open(encoding="utf-8", newline="") as file:
        assert len(list(csv.DictReader(file))) > 10
    assert (tmp_path / "f.svg").read_text(encoding="utf-8").startswith("<svg")


@pytest.mark.parametrize("name", COMMANDS)
@pytest.mark.usefixtures("table")
def test_for_programs_there_is_json_and_processes_change_nothing(name, sortition):
    options, _ = COMMANDS[name]
    found = [
        sortition("lab", "experiment", name, *options.split(), "--json", *more)
        for more in ((), ("--workers", "2"))
    ]
    assert [code for code, *_ in found] == [0, 0]
    rows = [
        json.loads(out, parse_constant=lambda _: pytest.fail("no number of JSON"))
        for _, out, _ in found
    ]
    assert rows[0] == rows[1]
    assert len({(row["table"], row["what"], row["n"]) for row in rows[0]}) == len(rows[0])


@pytest.mark.usefixtures("table")
def test_columns_of_answers_are_found(sortition):
    """Letters are no verdicts, and an item's number neither."""
    line = "subsample-mmlu t.csv --reps 2 --strata topic --domain field --half-width 0.1 --json"
    code, out, _ = sortition("lab", "experiment", *line.split())
    assert code == 0
    rows = json.loads(out)
    found = {row["what"]: row["value"] for row in rows}
    assert {what.rpartition(": ")[0] for what in found} == {"good", "poor", "all systems"}
    assert found["poor: lacking"] == 1
    assert found["good: betting"] < found["poor: betting"]
    assert any("4 strata in 2 domains" in row["table"] for row in rows)


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ("peeking --planned 10", "--from"),
        ("peeking --planned 2000", "up to 2000"),
        ("peeking --share 1", "between 0 and 1"),
        ("peeking --alpha 0", "between 0 and 1"),
        ("peeking --plot curves.pdf", ".svg or .png"),
        ("subsample-mmlu nowhere.csv", "no such file"),
        ("subsample-mmlu t.csv --strata nothing", "no column nothing"),
        ("subsample-mmlu t.csv --strata topic --domain item", "stratum"),
        ("subsample-mmlu t.csv --pair good", "A,B"),
        ("subsample-mmlu t.csv --pair good,bad", "no system bad"),
        ("subsample-mmlu t.csv --half-width 2", "between 0 and 1"),
        ("subsample-mmlu none.csv", "no system's answers"),
        ("beta-proxy --law 7", "7,3"),
        ("beta-proxy --law 7,0", "above 0"),
        ("async-order --look 2000", "1000 items"),
        ("async-order --share 0", "between 0 and 1"),
    ],
)
@pytest.mark.usefixtures("table")
def test_what_makes_no_sense_is_refused_before_anything_is_computed(
    line, says, sortition, tmp_path
):
    (tmp_path / "none.csv").write_text("item,name\n1,a\n2,b\n")
    code, out, err = sortition("lab", "experiment", *line.split())
    assert code == 2
    assert says in err
    assert not out
