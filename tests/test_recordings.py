"""Another run as a recording: its verdicts serve again, at no cost."""

from __future__ import annotations

import json
import shutil
import sqlite3

import pytest

from orchestrator import Campaign, Usage, rundir
from orchestrator.core.errors import IdentityChanged, InvalidCampaign
from orchestrator.core.events import Asked
from orchestrator.recordings import source
from orchestrator.report.export import answers
from orchestrator.verification import check

LIVE = """\
version: 1
name: live
seed: 5
data: {path: items.csv, fields: {candidate: reply}}
judges:
  - {name: big, adapter: mock, price_usd_per_1m: {input: 2, output: 8}}
  - {name: small, adapter: mock, price_usd_per_1m: {input: 1, output: 4}, mock: {sd: 1, faults: {refused: 0.2}}}
task: {kind: rate, scale: {type: integer, min: 1, max: 5}}
policy: {kind: uniform, max_repeats: 2}
budget: {usd: 1}
output: {dir: runs, formats: []}
"""
AGAIN = """\
version: 1
name: again
seed: 11
data: {path: items.csv}
judges:
  - {name: large, adapter: recorded, recorded: {path: live, judge: big}}
  - {name: little, adapter: recorded, recorded: {path: live, judge: small}}
task: {kind: rate, scale: {type: integer, min: 1, max: 5}}
policy: {kind: uniform, max_repeats: 2}
output: {dir: runs, formats: []}
"""


@pytest.fixture
def folder(tmp_path):
    rows = "".join(f"i{n},reply {n}\n" for n in range(12))
    (tmp_path / "items.csv").write_text("id,reply\n" + rows, encoding="utf-8")
    (tmp_path / "live.yaml").write_text(LIVE, encoding="utf-8")
    (tmp_path / "again.yaml").write_text(AGAIN, encoding="utf-8")
    return tmp_path


def live(folder, **overrides):
    return Campaign.from_yaml(folder / "live.yaml", overrides).run(folder / "live")


def again(folder, name="again", **overrides):
    return Campaign.from_yaml(folder / "again.yaml", overrides).run(folder / name)


def verdicts(run):
    """Values by judge, item and arm, in the order of repeats."""
    names = {"large": "big", "little": "small"}
    found = {}
    with rundir.reading(run) as reader:
        for row in sorted(answers(reader.read(), reader.get_blob), key=lambda row: row.replicate):
            if row.missing is None:
                cell = (names.get(row.judge, row.judge), row.item, row.arm)
                found.setdefault(cell, []).append(row.value)
    return found


def test_another_run_serves_its_verdicts_at_no_cost(folder):
    """Each answered question is served once; what the run did not answer is exhausted."""
    first = live(folder)
    second = again(folder)
    assert first.spend["settled_nano_usd"] > 0
    assert second.spend["settled_nano_usd"] == 0
    assert verdicts(folder / "again") == verdicts(folder / "live")
    n_missing = sum(first.missing.values())
    assert n_missing
    assert second.missing == {"exhausted": n_missing}
    assert second.document["money"] == "simulated"
    assert list(check(folder / "again")) == []


def test_a_price_may_be_put_on_them(folder):
    """To rehearse what the campaign would cost live."""
    live(folder)
    wanted = {
        "judges.large.recorded.usd_per_call": "0.001",
        "judges.little.recorded.usd_per_call": 0,
    }
    result = again(folder, **wanted, **{"budget.usd": 1})
    assert result.spend["settled_nano_usd"] == 24_000_000


def test_the_decisions_of_the_run_are_part_of_the_identity(folder):
    """C19: a recording that has changed is another campaign; one that has moved is not."""
    live(folder)
    again(folder)
    shutil.move(folder / "live", folder / "moved")
    moved = {f"judges.{name}.recorded.path": "moved" for name in ("large", "little")}
    assert again(folder, **moved).state == "finished"
    live(folder, seed=6)
    with pytest.raises(IdentityChanged) as changed:
        again(folder)
    assert set(changed.value.fields) == {"recordings.large", "recordings.little"}


def test_the_digest_is_the_head_of_the_log(folder):
    result = live(folder)
    assert source(folder / "live").digest == result.document["fingerprint"]


def test_a_run_of_ones_own_loop_serves_too(folder):
    with Campaign.from_yaml(folder / "live.yaml").own_loop(folder / "live") as run:
        while questions := run.ask(16):
            for q in questions:
                run.tell(q.id, 2 if q.judge == "big" else 5, Usage())
    again(folder)
    assert {value for cell in verdicts(folder / "again").values() for value in cell} == {2.0, 5.0}


def test_arms_criteria_and_not_applicable_are_served_as_they_were(folder):
    """C28: "not applicable" stays that; each criterion and arm keeps its own verdicts."""
    rows = [{"id": f"i{n}", "old": f"a {n}", "new": f"b {n}"} for n in range(4)]
    (folder / "items.jsonl").write_text("\n".join(map(json.dumps, rows)), encoding="utf-8")
    arms = {"old": {"candidate": "old"}, "new": {"candidate": "new"}}
    scale = {"type": "float", "min": 0, "max": 1}
    task = {
        "kind": "rate",
        "allow_na": True,
        "criteria": [
            {"name": "tone", "scale": scale},
            {"name": "true", "scale": {"type": "boolean"}},
        ],
    }
    shared = {"task": task, "data": {"path": "items.jsonl", "arms": arms}}
    said = {}
    with Campaign.from_yaml(folder / "live.yaml", shared).own_loop(folder / "live") as run:
        while questions := run.ask(16):
            for q in questions:
                na = q.id % 3 == 0
                told = run.tell(
                    q.id, {"tone": q.id / 64, "true": None if na else q.id % 2}, Usage()
                )
                assert told.observations[0].value == q.id / 64
                said[q.id] = told
    again(folder, **shared)
    assert verdicts(folder / "again") == verdicts(folder / "live")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"judges.large.recorded.judge": "huge"}, 'no judge "huge"'),
        ({"judges.large.recorded.path": "."}, "holds no run"),
        ({"judges.large.recorded.path": "gone"}, "no such file"),
    ],
)
def test_what_is_no_such_run_is_refused(folder, change, message):
    live(folder)
    with pytest.raises(InvalidCampaign, match=message):
        again(folder, **change)


def test_a_damaged_run_is_refused(folder):
    """Verdicts that someone changed are not served."""
    live(folder)
    with sqlite3.connect(folder / "live" / "run.db") as db:
        db.execute("UPDATE events SET body = replace(body, '4.0', '5.0') WHERE kind = 'Arrived'")
    with pytest.raises(InvalidCampaign, match="not as it was written"):
        again(folder)


def test_a_run_is_read_once_for_all_of_its_judges(folder):
    live(folder)
    assert source(folder / "live") is source(folder / "live")
    with rundir.reading(folder / "live") as reader:
        assert sum(isinstance(row.event, Asked) for row in reader.read()) == 48
