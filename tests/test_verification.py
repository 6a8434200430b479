"""`verify` of whole runs: what a careful forger changes, and what breaks off a run directory."""

from __future__ import annotations

import json
import sqlite3
from contextlib import closing
from dataclasses import replace
from functools import partial

import pytest

from orchestrator import Campaign, Usage, resume, rundir
from orchestrator.engine.fold import State
from orchestrator.engine.verify import Kept, verify
from orchestrator.store.archive import name_prompt, recall
from orchestrator.store.memory import MemoryStore
from orchestrator.testing.forging import forgeries, signed
from orchestrator.verification import check

TEXT = """\
version: 1
name: forged
seed: 5
data: {path: items.csv, id: id, fields: {candidate: reply}}
judges:
  - name: large
    adapter: mock
    params: {max_output_tokens: 100}
    price_usd_per_1m: {input: 2.0, output: 10.0}
    mock: {sd: 0.5, tokens: {in: 200, out: 40}, faults: FAULTS}
  - name: small
    adapter: mock
    params: {max_output_tokens: 100}
    price_usd_per_1m: {input: 0.2, output: 1.0}
    mock: {sd: 0.9, bias: 0.3, tokens: {in: 200, out: 40}}
task: {kind: rate, scale: {type: integer, min: 1, max: 5}}
policy: POLICY
budget: {usd: 0.05, max_uncertain: 0.5}
stop: {every: 10}
output: {formats: []}
"""
FAULTS = "{truncated: 0.1, timeout: 0.1, refused: 0.1, '429': 0.1}"
UNIFORM = "{kind: uniform, max_repeats: 1, window: 4}"
POLICIES = {
    "uniform": UNIFORM,
    "est_ivwe": "{kind: est_ivwe, window: 4}",
    "two_phase": "{kind: two_phase, anchor: large, helpers: [small], pilot_items: 4, window: 4}",
}


def campaign(folder, policy=UNIFORM, faults="{}", n_items=12, usd=0.05):
    rows = "".join(f"i{n},reply {n}\n" for n in range(n_items))
    (folder / "items.csv").write_text("id,reply\n" + rows, encoding="utf-8")
    text = TEXT.replace("POLICY", policy).replace("FAULTS", faults).replace("0.05", str(usd))
    (folder / "campaign.yaml").write_text(text, encoding="utf-8")
    return Campaign.from_yaml(folder / "campaign.yaml")


@pytest.fixture
def run(tmp_path):
    campaign(tmp_path).run(tmp_path / "run")
    assert list(check(tmp_path / "run")) == []
    return tmp_path / "run"


def stored(run):
    with closing(sqlite3.connect(run / "run.db")) as db:
        rows = db.execute("SELECT kind, body FROM events ORDER BY seq").fetchall()
    return [(kind, json.loads(body)) for kind, body in rows]


def rewrite(run, rows):
    """Write a log anew with hashes that fit, as a careful forger would."""
    lines = signed(rows)
    with closing(sqlite3.connect(run / "run.db")) as db:
        db.execute("DELETE FROM events")
        db.executemany("INSERT INTO events VALUES (?, ?, ?, ?, ?, ?)", lines)
        db.execute("UPDATE progress SET seq = ?, link = ?", (lines[-1].seq, lines[-1].link))
        db.commit()
    (run / "result.json").unlink()


def change(run, statement):
    with closing(sqlite3.connect(run / "run.db")) as db:
        db.execute(statement)
        db.commit()


# --- forged fields -----------------------------------------------------------------------------

UNVERIFIABLE = {
    "Opened": None,  # compared with the campaign file, below
    "Started": None,  # who took the run up, and where
    "CapChanged": None,  # the user's word; the last one is compared with the campaign file
    "Freed": {"error"},
    "Arrived": {"took_s", "waited_s", "limited_s", "outcome.detail"},
}


def told(campaign, run):
    """Carry a campaign out in a loop of one's own, with all that such a loop can tell."""
    usage = Usage(input_tok=20, output_tok=10)
    with campaign.own_loop(run) as loop:
        while questions := loop.ask(3):
            for q in questions:
                match q.id % 5:
                    case 4:
                        loop.tell(q.id, "no verdict at all", usage)
                    case 1:
                        loop.tell_missing(q.id, "refused", usage)
                    case 2 if q.attempt == 1:
                        loop.tell_missing(q.id, "timeout")
                    case _:
                        loop.tell(q.id, 1 + q.id % 5, usage)
        assert loop.is_over


@pytest.mark.parametrize("way", [*POLICIES, "own_loop"])
def test_every_field_of_a_run_that_could_be_contradicted_is(tmp_path, way):
    """One field of one row changed, all hashes written anew: found, whoever asks and calls."""
    run = tmp_path / "run"
    here = campaign(tmp_path, POLICIES.get(way, UNIFORM), FAULTS, n_items=5, usd=0.02)
    if way == "own_loop":
        told(here, run)
        here = here.for_own_loop()
    else:
        here.run(run)
    assert list(check(run)) == []
    crew = here.build().crew
    kept = Kept(prompts=True, replies=True, by_own_loop=way == "own_loop")
    tried, missed = set(), []
    with rundir.reading(run) as reader:
        for kind, field, value, lines in forgeries(stored(run)):
            free = UNVERIFIABLE.get(kind, set())
            if free is None or field in free:
                continue
            tried.add(kind)
            state = State(replace(crew, opened=next(reader.read()).event))
            rows = MemoryStore(lines).read()
            if next(verify(state, rows, partial(recall, reader), name_prompt, kept), None) is None:
                missed.append((kind, field, value))
    assert missed == []
    assert tried >= {"Asked", "Sent", "Arrived", "Told", "Looked", "Stopped"}


@pytest.mark.parametrize(
    ("field", "value", "word"),
    [
        ("cap", 60_000_000, "the cap is 60000000 nano-USD in the log"),
        ("max_uncertain", 1, "max_uncertain is not what"),
        ("window", 5, "window is not what"),
        ("max_requests", 500, "max_requests is not what"),
        ("looks", 11, "looks is not what"),
        ("seed", 6, "seed is not what"),
    ],
)
def test_a_forged_opening_is_named(run, field, value, word):
    rows = stored(run)
    rows[0][1][field] = value
    rewrite(run, rows)
    found = list(check(run))
    assert any(word in line for line in found), found


def test_forged_prices_are_named(run):
    """A lower price with costs and holds that fit it."""
    rows = stored(run)
    rows[0][1]["cards"][1]["output"] -= 1
    rewrite(run, rows)
    found = list(check(run))
    assert any("the prices of small in the log are not those of: campaign file" in w for w in found)


def test_a_cap_that_was_raised_is_the_one_that_the_last_start_names(tmp_path):
    campaign(tmp_path, n_items=80).run(tmp_path / "run")
    resume(tmp_path / "run", {"budget.usd": 0.06})
    assert list(check(tmp_path / "run")) == []
    kinds = [kind for kind, _ in stored(tmp_path / "run")]
    assert "CapChanged" in kinds
    rows = stored(tmp_path / "run")
    rows[kinds.index("CapChanged")][1]["cap"] += 1
    rewrite(tmp_path / "run", rows)
    assert any("the cap is 60000001 nano-USD" in line for line in check(tmp_path / "run"))


def test_whether_prompts_and_replies_are_kept_can_not_change(run, tmp_path):
    """Else a log without replies would say that none were kept."""
    rows = stored(run)
    index = next(i for i, (kind, _) in enumerate(rows) if kind == "Sent")
    rows[index][1]["prompt"] = ""
    rewrite(run, rows)
    assert any("its prompt is not named" in line for line in check(run))


def test_a_run_that_keeps_nothing_verifies(tmp_path):
    here = campaign(tmp_path, faults=FAULTS)
    nothing = {"output.keep.replies": "none", "output.keep.prompts": "none"}
    Campaign.from_yaml(here.file.path, nothing).run(tmp_path / "run")
    assert list(check(tmp_path / "run")) == []


# --- what is gone or damaged -------------------------------------------------------------------


@pytest.mark.parametrize(
    ("statement", "word"),
    [
        ("DELETE FROM progress", "written up to row 0"),
        (
            "DELETE FROM blobs WHERE CAST(data AS TEXT) LIKE '{\"items\":%'",
            "the names of items and arms",
        ),
        ("DELETE FROM blobs WHERE CAST(data AS TEXT) NOT LIKE '{\"items\":%'", "its reply is gone"),
        ("UPDATE blobs SET data = X'FF00'", "can't be checked"),
        ("DELETE FROM events WHERE kind = 'Started'", "no row says which campaign file"),
        (
            "UPDATE events SET body = '{\"about\":{\"campaign\":5}}' WHERE kind = 'Started'",
            "no row says which campaign file",
        ),
        ("DELETE FROM events", "does not begin with the opening"),
    ],
)
def test_what_is_gone_or_unreadable_is_a_line(run, statement, word):
    change(run, statement)
    found = list(check(run))
    assert any(word in line for line in found), found


@pytest.mark.parametrize(
    ("text", "word"),
    [
        (None, "result.json is gone"),
        ("[]", "holds no result"),
        ("7", "holds no result"),
        ('{"counts": 5, "spend": []}', "counts is not what the log says"),
        ("{", "can't be read"),
        (b"\xff\xfe", "can't be read"),
    ],
)
def test_a_result_that_is_gone_or_odd_is_a_line(run, text, word):
    path = run / "result.json"
    if text is None:
        path.unlink()
    else:
        path.write_bytes(text if isinstance(text, bytes) else text.encode())
    found = list(check(run))
    assert any(word in line for line in found), found


def test_a_log_that_does_not_add_up_is_named_and_no_traceback(run):
    rows = stored(run)
    del rows[next(i for i, (kind, _) in enumerate(rows) if kind == "Asked")]
    rewrite(run, rows)
    (run / "result.json").write_text("{}")
    assert any("can't follow" in line for line in check(run))
