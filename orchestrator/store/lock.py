"""One writer a run: an operating-system lock that dies with its owner."""

from __future__ import annotations

import json
import os
import socket
import sys
import time
from pathlib import Path
from typing import IO

from orchestrator.core.errors import RunLocked

if sys.platform == "win32":
    import msvcrt

    def _try_lock(file: IO[str]) -> None:
        file.seek(1 << 30)  # a byte far behind the text, so that others can read who owns it
        msvcrt.locking(file.fileno(), msvcrt.LK_NBLCK, 1)
else:
    import fcntl

    def _try_lock(file: IO[str]) -> None:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)


TRIES = 20
TRY_EVERY_S = 0.02


class RunLock:
    """Holds `run.lock` while the process lives.

    `took_over` names the owner that left the file behind without releasing it, if any.

    Raises
    ------
    RunLocked
        Another living process holds it; nothing was written.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._file = path.open("a+", encoding="utf-8")
        self._file.seek(0)
        owner = self._file.read()
        for _ in range(TRIES):
            try:
                _try_lock(self._file)
                break
            except OSError:
                # Whoever asks who owns a run holds it for a moment.
                time.sleep(TRY_EVERY_S)
        else:
            self._file.close()
            raise RunLocked(f"this run is in use by {_describe(owner)}")
        self.took_over = _describe(owner) if owner else None
        self._file.seek(0)
        self._file.truncate()
        json.dump(
            {"pid": os.getpid(), "host": socket.gethostname(), "since": time.time()}, self._file
        )
        self._file.flush()

    def release(self) -> None:
        """Give the run free; again is fine."""
        if self._file.closed:
            return
        self._file.seek(0)
        self._file.truncate()
        self._file.close()


def owner(path: Path) -> str | None:
    """Say which living process holds a lock, None if none does."""
    if not path.exists():
        return None
    with path.open("r+", encoding="utf-8") as file:
        text = file.read()
        try:
            _try_lock(file)
        except OSError:
            return _describe(text)
    return None


def _describe(owner: str) -> str:
    try:
        at = json.loads(owner)
        since = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(at["since"]))
    except (ValueError, KeyError, TypeError):
        return "another process"
    return f"process {at['pid']} on {at['host']}, started {since}"
