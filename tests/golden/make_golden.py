"""Write tests/golden/<version>/log.jsonl anew. Only for a new version of the event schema.

    python tests/golden/make_golden.py tests/golden/v1

A golden log is what an old release wrote, so an existing one is never regenerated to make a test
pass: old runs must keep opening.
"""

from __future__ import annotations

import json
import sqlite3
import sys
import tempfile
from pathlib import Path

from orchestrator import Campaign, resume
from orchestrator.core.events import GENESIS, link


def main(folder: Path) -> None:
    with tempfile.TemporaryDirectory() as temporary:
        run = Path(temporary) / "run"
        Campaign.from_yaml(folder / "campaign.yaml").run(run, max_in_flight=3)
        resume(run, {"budget.usd": 0.04})
        db = sqlite3.connect(run / "run.db")
        rows = db.execute("SELECT kind, version, body FROM events ORDER BY seq").fetchall()
        blobs = db.execute("SELECT digest, data FROM blobs").fetchall()
        db.close()
    last = GENESIS
    with (folder / "log.jsonl").open("w", encoding="utf-8", newline="\n") as file:
        for kind, version, stored in rows:
            body = stored
            if kind == "Started":
                given = json.loads(stored)["about"]["campaign"]
                body = json.dumps({"about": {"campaign": {**given, "path": "campaign.yaml"}}})
            last = link(last, kind, version, body.encode())
            line = {"kind": kind, "version": version, "body": body, "link": last.hex()}
            file.write(json.dumps(line, ensure_ascii=False) + "\n")
        for digest, data in blobs:
            line = {"digest": digest, "data": data.decode()}
            file.write(json.dumps(line, ensure_ascii=False) + "\n")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
