"""The command `estimate`: output, chatter, exit codes."""

from __future__ import annotations

import io
import json
import re
import sys
from pathlib import Path

import pytest

from orchestrator import cli

PAGE = Path(__file__).parents[1] / "docs/how-to/estimate-from-a-table.md"


@pytest.fixture
def table(tmp_path):
    rows = "".join(
        f"i{i},{arm},{i % 5 + 1 - (arm == 'old' and i % 5 > 1)}\n"
        for i in range(30)
        for arm in ("old", "new")
    )
    path = tmp_path / "t.csv"
    path.write_text("item_id,arm,score\n" + rows, encoding="utf-8")
    return path.name


def test_the_page_shows_what_is_printed(sortition):
    """The example of the how-to page, to the letter; its table is the one on the page."""
    text = PAGE.read_text("utf-8")
    data = re.search(r"^```csv verdicts.csv\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)
    command, shown = re.search(
        r"^```sh\n(sortition estimate verdicts.*?)\n```\n\n```text\n(.*?)^```$",
        text,
        re.MULTILINE | re.DOTALL,
    ).groups()
    Path("verdicts.csv").write_text(data.group(1), encoding="utf-8")
    code, out, err = sortition(*command.split()[1:])
    assert code == 0
    assert out + err == shown


def test_the_page_shows_what_a_part_of_a_benchmark_is_worth(sortition):
    text = PAGE.read_text("utf-8")
    data = re.search(r"^```csv answers.csv\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)
    command, shown = re.search(
        r"^```sh\n(sortition estimate answers.*?)\n```\n\n```text\n(.*?)^```$",
        text,
        re.MULTILINE | re.DOTALL,
    ).groups()
    Path("answers.csv").write_text(data.group(1), encoding="utf-8")
    code, out, _ = sortition(*command.split()[1:])
    assert code == 0
    assert shown in out


def test_results_go_to_output_and_the_next_command_is_the_last_line(sortition, table):
    """The command it names works as it stands."""
    code, out, err = sortition("estimate", table)
    assert code == 0
    assert "naive" in out
    assert "next:" not in out
    assert err == "next: sortition estimate t.csv --contrast=new:old\n"
    code, out, err = sortition(*err.split()[2:])
    assert code == 0
    assert "new - old" in out
    assert err == "next: sortition init\n"


def test_json_is_one_document_for_programs(sortition, table):
    """An unknown number is null, never NaN; every name has both intervals."""
    code, out, err = sortition("estimate", table, "--json", "--contrast", "new:old", "--scale=1:5")
    assert (code, err) == (0, "")
    document = json.loads(out, parse_constant=pytest.fail)
    assert document["schema"] == 1
    assert document["next"] == "sortition init"
    (result,) = document["results"]
    assert result["scale"] == {"type": "integer", "min": 1.0, "max": 5.0}
    difference, means = result["estimates"]
    assert means["names"] == ["old", "new"]
    for estimate in (difference, means):
        n = len(estimate["names"])
        assert len(estimate["naive"]["lower"]) == len(estimate["width_ratio"]) == n
        assert estimate["why"]


def test_single_rows_have_no_naive_interval(sortition, table):
    """One row has no standard deviation: null, and ours has width."""
    _, out, _ = sortition("estimate", table, "--json", "--per", "unit", "--scale", "1:5")
    estimate = json.loads(out)["results"][0]["estimates"][0]
    assert len(estimate["names"]) == 60
    assert set(estimate["naive"]["lower"]) == {None}
    assert set(estimate["width_ratio"]) == {None}
    assert all(a < b for a, b in zip(estimate["lower"], estimate["upper"], strict=True))


def test_problems_are_one_message_and_exit_2(sortition, table):
    """C24: all of them with file, line and column; nothing on standard output; no traceback."""
    path = Path(table)
    path.write_text(path.read_text("utf-8") + "i1,old,nine\n,new,3\n", encoding="utf-8")
    code, out, err = sortition("estimate", table)
    assert (code, out) == (2, "")
    assert err.splitlines() == [
        't.csv:62  score — row 61: wants a number, not "nine"; a missing verdict is an empty cell',
        "t.csv:63  item_id — row 62: missing",
        "2 problems; nothing was estimated",
    ]


def test_right_and_wrong_answers_are_a_part_of_a_benchmark(sortition):
    """Options reach the estimate, and the next command keeps them."""
    rows = "".join(f"i{i},{'ab'[i % 2]},{int(i % 3 > 0)},{int(i % 5 > 0)}\n" for i in range(60))
    Path("m.csv").write_text("item,subject,one,two\n" + rows, encoding="utf-8")
    code, out, err = sortition(
        "estimate", "m.csv", "--of", "a=50", "--of", "b=70", "--target", "macro,benchmark",
        "--target", "strata", "--design", "stratified", "--error-split", "none",
    )  # fmt: skip
    assert code == 0
    assert "random part of the benchmark's 120 within each stratum" in re.sub(r"\s+", " ", out)
    assert "mean by stratum" in out
    assert "error split" not in out
    code, out, _ = sortition(*err.split()[2:], "--json")
    assert code == 0
    targets = [e["target"] for e in json.loads(out)["results"][0]["estimates"]]
    assert targets == ["difference", "arms", "macro", "strata"]


@pytest.mark.parametrize("of", ["0", "-5", "1e3", "a=", "x=1_0", "a=b", "²"])
def test_sizes_are_whole_numbers(sortition, table, of):
    code, _, err = sortition("estimate", table, "--of", of)
    assert code == 2
    assert "wants N or STRATUM=N" in err
    assert "it is 5 already" in sortition("estimate", table, "--of", "5", "--of", "6")[2]


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["--map", "item_id"], "--map item_id: wants PART=COLUMN"),
        (["--map", "judge=a", "--map", "judge=b"], "judge is a already"),
        (["--scale", "5:1"], "--scale 5:1: wants MIN:MAX"),
        (["--scale", "score=1-5"], "wants MIN:MAX, as in 1:5"),
        (["--scale", "1:inf"], "wants MIN:MAX"),
        (["--confidence", "95"], "--confidence: wants a number between 0 and 1, not 95"),
        (["--contrast", "new"], "--contrast — wants ARM:BASELINE, two of old, new"),
        (["--kind", "score_mean"], 'did you mean "score_means"?'),
        (["--per", "item"], "'item' is not one of"),
    ],
)
def test_misprints_in_options_are_exit_2(sortition, table, words, says):
    code, out, err = sortition("estimate", table, *words)
    assert (code, out) == (2, "")
    assert says in re.sub(r"[\s│]+", " ", err)


def test_options_reach_the_estimate(sortition, table):
    _, out, _ = sortition(
        "estimate", table, "--json", "--confidence", "0.8", "--population", "these_items",
        "--target", "panel", "--per", "judge", "--kind", "score_means", "--scale", "score=0:6",
    )  # fmt: skip
    document = json.loads(out)
    (estimate,) = document["results"][0]["estimates"]
    assert estimate["level"] == 0.8
    assert "these items" in estimate["estimand"]
    assert estimate["target"] == "judges"
    assert document["results"][0]["scale"]["max"] == 6


def test_a_console_that_knows_no_other_script_is_no_obstacle(sortition, monkeypatch):
    """C23: names in any script on a cp1252 console."""
    Path("t.csv").write_text("item_id,judge,score\n漢,Ω✓,1\nß,Ω✓,0\n", encoding="utf-8")
    raw = io.BytesIO()
    console = io.TextIOWrapper(raw, encoding="cp1252")
    monkeypatch.setattr(sys, "stdout", console)
    monkeypatch.setattr(sys, "argv", ["sortition", "estimate", "t.csv"])
    with pytest.raises(SystemExit) as exit_:
        cli.main()
    console.flush()
    assert not exit_.value.code
    assert b"score, mean" in raw.getvalue()
