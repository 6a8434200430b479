"""Where results may be written: over no file that a campaign reads, and over no other unasked."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from orchestrator.outputs import check_outputs, files_of

CAMPAIGN = """\
version: 1
name: small
data: {path: items.jsonl, id: id, group: kind, fields: {candidate: text}}
judges: [{name: a, adapter: mock, price_usd_per_1m: {input: 1, output: 4}}]
task: {kind: rate, rubric: "file://rubric.md", scale: {type: boolean}}
policy: {kind: uniform, max_repeats: 1}
budget: {usd: 1}
output: {dir: runs}
"""


@pytest.fixture
def folder(sortition, tmp_path):
    """Run a small campaign as `run`, beside its files; gives the folder."""
    rows = [{"id": f"i{n}", "kind": "AB"[n % 2], "text": f"text {n}"} for n in range(6)]
    text = "".join(json.dumps(row) + "\n" for row in rows)
    (tmp_path / "items.jsonl").write_text(text, "utf-8")
    (tmp_path / "rubric.md").write_text("Is {{ candidate }} good?", "utf-8")
    (tmp_path / "campaign.yaml").write_text(CAMPAIGN, "utf-8")
    assert sortition("run", "--run-dir", "run")[0] == 0
    return tmp_path


def contents(folder):
    names = ("items.jsonl", "rubric.md", "campaign.yaml")
    return [(folder / name).read_text("utf-8") for name in names]


@pytest.mark.parametrize(
    "words",
    [
        "export run -o items.jsonl",
        "export run --force -o answers.csv -o items.jsonl",
        "export run --force -o ./run/../items.jsonl",
        "export run --force -o link.jsonl",
        "report run -o rubric.md",
        "run -o items.jsonl",
        "run -o rubric.md",
        "plan -o campaign.yaml",
        "plan -o items.jsonl",
    ],
)
def test_no_output_replaces_a_file_of_the_campaign(folder, sortition, words):
    """Not even with --force or by a link; one line says why, and no other output is written."""
    (folder / "link.jsonl").symlink_to("items.jsonl")
    before, there = contents(folder), sorted(folder.rglob("*"))
    code, _, err = sortition(*words.split())
    assert code == 2
    assert "is a file of the campaign, which it would replace; nothing was written" in err
    assert len(err.splitlines()) == 1
    assert contents(folder) == before
    assert sorted(folder.rglob("*")) == there


def test_an_export_replaces_another_file_by_force_alone(folder, sortition):
    path = folder / "answers.csv"
    path.write_text("mine", "utf-8")
    code, _, err = sortition("export", "run", "-o", "scores.csv", "-o", "answers.csv")
    assert code == 2
    assert err == "answers.csv is there already; --force replaces it; nothing was written\n"
    assert (path.read_text("utf-8"), (folder / "scores.csv").exists()) == ("mine", False)
    assert sortition("export", "run", "--force", "-o", "answers.csv")[0] == 0
    assert path.read_text("utf-8").startswith("q,item,arm,group,stratum,judge,")


def test_what_cannot_be_written_is_one_clear_line(folder, sortition):
    (folder / "folder.csv").mkdir()
    for name, why in {
        "nowhere/a.csv": "nowhere/a.csv: there is no folder nowhere",
        "folder.csv": "folder.csv is a folder",
        "a.xlsx": "a.xlsx: known are .jsonl, .csv, .parquet",
    }.items():
        code, _, err = sortition("export", "run", "-o", name)
        assert (code, err) == (2, f"{why}; nothing was written\n")


def test_a_run_whose_campaign_is_gone_is_still_exported(folder, sortition):
    """The rest of its files can't be told any more; those that are there are safe without force."""
    assert [path.name for path in files_of(folder / "run")] == [
        "campaign.yaml",
        "items.jsonl",
        "rubric.md",
    ]
    (folder / "campaign.yaml").write_text("version: 1", "utf-8")
    assert [path.name for path in files_of(folder / "run")] == ["campaign.yaml"]
    (folder / "campaign.yaml").unlink()
    assert sortition("export", "run", "-o", "items.jsonl")[0] == 2
    assert sortition("export", "run", "-o", "answers.jsonl")[0] == 0


def test_groups_stand_beside_their_items(folder, sortition):
    assert sortition("export", "run", "-o", "answers.jsonl")[0] == 0
    rows = [json.loads(line) for line in (folder / "answers.jsonl").read_text("utf-8").splitlines()]
    assert {(row["item"], row["group"]) for row in rows} == {
        (f"i{n}", "AB"[n % 2]) for n in range(6)
    }


def test_any_ending_will_do_where_none_is_asked_for(tmp_path):
    check_outputs([tmp_path / "plan.txt"], reads=[Path("gone")])
