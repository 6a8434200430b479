"""Files that other processes see whole or not at all."""

from __future__ import annotations

import secrets
from pathlib import Path


def write(path: Path, data: bytes) -> None:
    """Write a file under another name and give it its own: a reader never sees half of it.

    Several processes may write one file; the last one's stays. A crash leaves at most the file
    with the other name, which begins with a dot and ends in `.new`.
    """
    unborn = path.with_name(f".{path.name}.{secrets.token_hex(4)}.new")
    try:
        unborn.write_bytes(data)
        unborn.replace(path)
    except BaseException:
        unborn.unlink(missing_ok=True)
        raise
