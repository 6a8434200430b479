"""`sortition lab experiment est-ivwe`: tables on standard output, chatter beside, files."""

import csv
import sys

import pytest

from orchestrator import cli

SMALL = "--items 20 --judges 3 --reps 2 --rho 8 --cost unit --norm 2 --norm inf"


@pytest.fixture
def lab(monkeypatch, capsys):
    """Run the command in this process; give its exit code, standard output and error."""

    def run(line):
        monkeypatch.setattr(
            sys, "argv", ["sortition", "lab", "experiment", "est-ivwe", *line.split()]
        )
        with pytest.raises(SystemExit) as ended:
            cli.main()
        return ended.value.code or 0, *capsys.readouterr()

    return run


@pytest.fixture
def ratings(tmp_path):
    path = tmp_path / "ratings.csv"
    lines = [
        f"i{k},{judge},{r},{(7 * k + 3 * r + len(judge)) % 10}"
        for k in range(8)
        for judge in ("big", "small", "free")
        for r in range(4)
    ]
    path.write_text("item_id,judge,replicate,score\n" + "\n".join(lines) + "\n", encoding="utf-8")
    return path


def test_tables_go_to_standard_output_and_files_where_they_are_wanted(lab, tmp_path):
    code, out, err = lab(f"{SMALL} --csv {tmp_path}/f.csv --plot {tmp_path}/f.svg")
    assert code == 0
    assert "smooth judges, prices unit" in out
    assert "EST-IVWE shrink (default)" in out
    assert "linf" in out
    assert "2 of 2 replicates" in err
    assert (tmp_path / "f.svg").read_text(encoding="utf-8").startswith("<svg")
    with (tmp_path / "f.csv").open(encoding="utf-8", newline="") as file:
        assert {row["norm"] for row in csv.DictReader(file)} == {"2.0", "inf"}


@pytest.mark.parametrize("target", ["panel", "population"])
def test_other_targets_have_their_own_rivals(lab, target):
    _, out, _ = lab(f"{SMALL} --target {target}")
    assert ("by price alone" in out) == (target == "panel")


def test_recorded_judges_are_replayed_at_given_prices(lab, ratings, tmp_path):
    """Judges without a price are named and left out; the disagreement of the rest is told."""
    code, out, err = lab(
        f"--study replay {ratings} --rho 8 --reps 2 --price big=0.003 --price small=0.0004 "
        f"--csv {tmp_path}/f.csv --plot {tmp_path}/f.svg"
    )
    assert code == 0
    assert "/ price alone" in out
    assert "left out, no price: free" in err
    assert "8 items with 4 repeats by big, small" in err
    assert (tmp_path / "f.csv").exists()
    assert (tmp_path / "f.svg").exists()


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ("--study replay", "go together"),
        ("ratings.csv", "go together"),
        ("--rho 3", "greater than or equal to 4"),
        ("--norm 0.5", "--norm"),
        ("--norm nan", "--norm"),
        ("--plot curves.pdf", ".svg or .png"),
        ("--csv nowhere/figures.csv", "no folder"),
        ("--cost cheap", "cheap"),
    ],
)
def test_what_makes_no_sense_is_refused_before_anything_is_computed(lab, line, says):
    code, out, err = lab(f"{SMALL} {line}")
    assert code == 2
    assert says in err
    assert not out


def test_without_dask_the_option_says_what_to_install(lab, monkeypatch):
    monkeypatch.setitem(sys.modules, "distributed", None)
    code, _, err = lab(f"{SMALL} --dask tcp://127.0.0.1:8786")
    assert code == 2
    assert "sortition[dask]" in err
