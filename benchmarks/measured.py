"""Write docs/measured.md from what `make slow` measured: bar, figure, commit.

python benchmarks/measured.py MEASURED.jsonl docs/measured.md
"""

from __future__ import annotations

import json
import os
import platform
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path


def main(source: Path, target: Path) -> None:
    rows = [json.loads(line) for line in source.read_text(encoding="utf-8").splitlines()]
    commit = subprocess.run(
        ["git", "rev-parse", "--short", "HEAD"], capture_output=True, text=True, check=True
    ).stdout.strip()
    machine = f"{os.cpu_count()} cores, {platform.system()}, Python {platform.python_version()}"
    lines = [
        "# Measured",
        "",
        "What `make slow` measured: statistical and crash suites in full, and the speed benchmarks.",
        "A bar without a row is not met. Written by `benchmarks/measured.py`; don't edit.",
        "",
        f"Commit {commit}, {datetime.now(UTC):%Y-%m-%d}, {machine}.",
        "",
        "| bar | figure |",
        "|---|---|",
        *(f"| {row['bar']} | {row['figure']} |" for row in rows),
        "",
    ]
    target.write_text("\n".join(lines), encoding="utf-8")


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
