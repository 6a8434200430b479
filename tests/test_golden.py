"""Logs that earlier releases wrote keep opening, and every event kind keeps its bytes."""

from __future__ import annotations

import json
import sqlite3
from importlib.resources import files
from pathlib import Path

import pytest

from orchestrator.core.events import KINDS
from orchestrator.rundir import summary, write_result
from orchestrator.store.codec import VERSIONS, decode, encode
from orchestrator.verification import check

GOLDEN = Path(__file__).parent / "golden"
FOLDERS = sorted(path.parent for path in GOLDEN.glob("*/log.jsonl"))


def opened(folder, tmp_path):
    """Put a golden log into a run directory."""
    run = tmp_path / "run"
    run.mkdir()
    db = sqlite3.connect(run / "run.db")
    db.executescript(files("orchestrator.store").joinpath("schema.sql").read_text(encoding="utf-8"))
    db.execute("INSERT INTO meta VALUES ('schema', '1')")
    seq = 0
    for text in (folder / "log.jsonl").read_text(encoding="utf-8").splitlines():
        line = json.loads(text)
        if "digest" in line:
            db.execute("INSERT INTO blobs VALUES (?, ?)", (line["digest"], line["data"].encode()))
            continue
        seq += 1
        row = (seq, line["kind"], line["version"], line["body"], bytes.fromhex(line["link"]), 0.0)
        db.execute("INSERT INTO events VALUES (?, ?, ?, ?, ?, ?)", row)
    db.execute("INSERT INTO progress VALUES (1, ?, ?, '')", (seq, row[4]))
    db.commit()
    db.close()
    return run


@pytest.mark.parametrize("folder", FOLDERS, ids=lambda path: path.name)
def test_a_golden_log_opens_and_verifies(folder, tmp_path, monkeypatch):
    """Every decision, cost and reading of an old log is the same today."""
    monkeypatch.chdir(folder)
    run = opened(folder, tmp_path)
    data = summary(run)
    write_result(run, data)
    assert list(check(run)) == []
    assert data.spend.cap == 40_000_000
    assert data.spend.settled + data.spend.uncertain <= data.spend.cap
    assert data.counts.answered > 30
    assert len(data.fingerprint) == 32


def test_every_event_kind_keeps_its_bytes():
    """Kinds are never renamed, bodies never change within a version."""
    kinds = set()
    for text in (GOLDEN / "events.jsonl").read_text(encoding="utf-8").splitlines():
        line = json.loads(text)
        kind, version = line["kind"], line.get("version", 1)
        kinds.add(kind)
        event = decode(kind, version, line["body"])
        if version == VERSIONS.get(kind, 1):
            assert encode(event) == (kind, version, line["body"].encode())
        else:
            assert decode(*encode(event)) == event
    assert kinds == set(KINDS)
