"""Exports: one row a verdict, valid UTF-8, sums that agree with the ledger."""

from __future__ import annotations

import csv
import json
import math
from dataclasses import replace

import pytest
from pyarrow import parquet

from orchestrator.core.errors import ConfigError, CorruptLog
from orchestrator.core.query import Observation, outcome_digest
from orchestrator.core.stopping import StopReason
from orchestrator.report.export import Answer, Score, answers, export, scores
from orchestrator.report.summary import summarise

EVIL = '=HYPERLINK("http://x")'


@pytest.fixture
def full(log, make):
    """Two arms, two criteria, a retry, a lost attempt, a missing verdict, a late answer."""
    criteria = ({"name": "right", "low": 0, "high": 1}, {"name": "style", "low": 1, "high": 5})
    log.opened(
        arms=("new", "old"), items=("a", EVIL, "Größe ✓ 漢字\u2028x\ud800"), criteria=criteria
    )
    both = replace(
        make.scored(1.0, served_model="large-1"),
        observations=(
            Observation(unit=0, criterion=0, value=1.0),
            Observation(unit=0, criterion=1, value=None),
        ),
    )
    log.ask(0).send(0).arrive(0, both).tell(0, both)
    cut = make.lost("truncated", cost=7_000_000)
    log.ask(1, unit=3).send(1).arrive(1, cut).reask(1, outcome_digest(cut))
    log.send(1, attempt=2).reask(1, "lost", attempt=3)
    log.send(1, attempt=3).arrive(1, make.scored(0.0, unit=3), attempt=3)
    log.tell(1, make.scored(0.0, unit=3))
    log.missed(2, "timeout", unit=5, judge=1, uncertain=9_000_000)
    return log.judged(3, 1.0, unit=4, judge=1).stop(StopReason.FINISHED)


def test_a_row_for_each_verdict(full):
    rows = list(answers(full.rows, full.get_blob))
    assert [(r.q, r.item, r.arm, r.judge, r.criterion, r.value) for r in rows[:3]] == [
        (0, "a", "new", "large", "right", 1.0),
        (0, "a", "new", "large", "style", None),
        (1, EVIL, "old", "large", "right", 0.0),
    ]
    assert (rows[3].missing, rows[3].criterion, rows[3].value) == ("timeout", None, None)
    assert (rows[0].origin, rows[0].served_model) == ("live", "large-1")
    assert rows[1].missing is None


def test_flags_stand_in_one_cell(log):
    log.opened().judged(0, 4, flags=("coerced", "dropped:seed")).judged(1, 4, unit=1)
    assert [row.flags for row in answers(log.rows, log.get_blob)] == ["coerced;dropped:seed", None]


def test_the_money_of_a_question_stands_in_its_first_row_and_sums_up(full):
    rows = list(answers(full.rows, full.get_blob))
    spend = summarise(full.rows).spend
    assert sum(r.cost_nano_usd or 0 for r in rows) == spend.settled == 22_000_000
    assert sum(r.uncertain_nano_usd or 0 for r in rows) == spend.uncertain == 31_000_000
    assert [r.cost_usd for r in rows] == [
        "0.005000000",
        None,
        "0.012000000",
        "0.000000000",
        "0.005000000",
    ]


def test_the_group_of_an_item_stands_in_each_of_its_rows(log):
    """Missing verdicts too; without groups there is none."""
    log.opened(groups=("A", "B", "A", "B")).judged(0, 4, unit=1).missed(1, "timeout", unit=2)
    assert [row.group for row in answers(log.rows, log.get_blob)] == ["B", "A"]
    assert {row.group for row in answers(log.rows, lambda _: None)} == {None}


@pytest.mark.parametrize("ending", ["jsonl", "csv", "parquet"])
def test_every_form_holds_the_same_rows(full, tmp_path, ending):
    path = tmp_path / f"answers.{ending}"
    assert export(path, full.rows, full.get_blob) == 5
    match ending:
        case "jsonl":
            found = [json.loads(line) for line in path.read_bytes().splitlines()]
        case "csv":
            with path.open(encoding="utf-8", newline="") as file:
                found = list(csv.DictReader(file))
        case _:
            found = parquet.read_table(path).to_pylist()
    assert list(found[0]) == list(Answer._fields)
    assert [str(row["q"]) for row in found] == ["0", "0", "1", "2", "3"]
    assert [row["judge"] for row in found] == ["large"] * 3 + ["small"] * 2
    assert [row["value"] in {None, ""} for row in found] == [False, True, False, True, False]
    assert float(found[2]["value"]) == 0.0
    assert not list(tmp_path.glob("*.part"))


def test_one_json_record_a_line_whatever_the_names_hold(full, tmp_path):
    """C23: U+2028 does not break a line, a lone surrogate becomes U+FFFD, the rest is readable."""
    path = tmp_path / "answers.jsonl"
    export(path, full.rows, full.get_blob)
    text = path.read_text(encoding="utf-8")
    lines = text.splitlines()
    assert len(lines) == 5
    assert json.loads(lines[3])["item"] == "Größe ✓ 漢字\u2028x\N{REPLACEMENT CHARACTER}"
    assert "Größe ✓ 漢字" in lines[3]


@pytest.mark.parametrize("first", ["=", "+", "-", "@", "\t", "\r"])
def test_a_cell_that_looks_like_a_formula_is_only_text(log, make, tmp_path, first):
    """C48: texts get an apostrophe, negative numbers none."""
    log.opened(items=(f"{first}1+1",), criteria=({"name": "score", "low": -5, "high": 5},))
    log.judged(0, -2.5)
    path = tmp_path / "answers.csv"
    export(path, log.rows, log.get_blob)
    with path.open(encoding="utf-8", newline="") as file:
        (row,) = csv.DictReader(file)
    assert row["item"] == f"'{first}1+1"
    assert row["value"] == "-2.5"


def test_scores_are_the_final_estimates_by_name(log, make, tmp_path):
    unknown = make.estimate(se=(math.nan,), lower=(math.nan,), upper=(math.nan,))
    log.opened().look(make.estimate(value=(1.0,))).stop(StopReason.FINISHED)
    log.look(unknown, make.difference(), is_final=True)
    first, second = scores(log.rows)
    assert (first.estimate, first.value, first.se, first.is_final) == ("scores", 4.0, None, True)
    assert (second.name, second.lower) == ("new - old", 0.24)
    path = tmp_path / "scores.csv"
    assert export(path, log.rows, log.get_blob) == 2
    with path.open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    assert list(rows[0]) == list(Score._fields)
    assert (rows[0]["se"], rows[1]["value"]) == ("", "0.42")


def test_without_estimates_the_scores_have_a_head_and_no_rows(log, tmp_path):
    path = tmp_path / "scores.csv"
    assert export(path, log.opened().rows, log.get_blob) == 0
    assert path.read_text(encoding="utf-8").splitlines() == [",".join(Score._fields)]


def test_an_empty_parquet_keeps_its_columns(log, tmp_path):
    path = tmp_path / "answers.parquet"
    assert export(path, log.opened().rows, log.get_blob) == 0
    assert parquet.read_table(path).column_names == list(Answer._fields)


def test_without_the_frame_items_have_numbers(log):
    log.opened(arms=("new", "old")).judged(0, 3, unit=3)
    (row,) = answers(log.rows, lambda _: None)
    assert (row.item, row.arm) == ("item 1", "old")


def test_an_unknown_ending_is_refused_and_nothing_is_written(log, tmp_path):
    with pytest.raises(ConfigError, match=r"\.xlsx"):
        export(tmp_path / "answers.xlsx", log.opened().rows, log.get_blob)
    assert not list(tmp_path.iterdir())


def test_a_failure_on_the_way_leaves_the_old_file(full, tmp_path):
    path = tmp_path / "answers.csv"
    path.write_text("old")
    del full.rows[0]
    with pytest.raises(CorruptLog):
        export(path, full.rows, full.get_blob)
    assert path.read_text() == "old"
    assert [p.name for p in tmp_path.iterdir()] == ["answers.csv"]


def test_a_verdict_has_the_answer_that_it_judged(log, make):
    """Rows are verdicts alone; the system's text stands beside, where it was kept, and its money not."""
    systems = [{"name": "m", "adapter": "mock", "model": ""}]
    log.opened(arms=("m",), judges=("j",), systems=systems, items=("a", "b", "c"))
    log.blobs["x"] = json.dumps({"text": "forty-two", "finish": "stop"}).encode()
    log.generated(0, unit=0, system=1, blob="x").judged(1, 4.0, unit=0)
    log.generated(2, unit=1, system=1, blob="gone").judged(3, 1.0, unit=1, cost=0, origin="key")
    log.asked_for(4, make.lost("refused", cost=2), unit=2, system=1).missed(5, "no_answer", unit=2)
    rows = [*answers(log.rows, log.get_blob)]
    assert [(row.q, row.judge, row.answer, row.missing) for row in rows] == [
        (1, "j", "forty-two", None),
        (3, "j", None, None),
        (5, "j", None, "no_answer"),
    ]
    assert [row.cost_nano_usd for row in rows] == [5_000_000, 0, 0]
    assert rows[1].origin == "key"
