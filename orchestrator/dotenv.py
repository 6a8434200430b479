"""Environment variables from `.env` files; what the shell sets wins."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path

from orchestrator.core.errors import InvalidCampaign, Problem

DISABLE = "SORTITION_DISABLE_DOTENV"

_LINE = re.compile(
    r"""\s*(?:export\s+)?(?P<name>[A-Za-z_]\w*)\s*=\s*
    (?:'(?P<single>[^']*)'|"(?P<double>(?:[^"\\]|\\.)*)"|(?P<bare>(?:[^\s'"#](?:[^#]|(?<=\S)\#)*?)?))
    \s*(?:(?<=\s)\#.*)?""",
    re.VERBOSE | re.ASCII,
)


def load_dotenv(
    environ: Mapping[str, str], *, folder: Path, files: Sequence[Path] = ()
) -> dict[str, str]:
    """Add to an environment what `folder/.env` and further files say; a later file wins.

    ``SORTITION_DISABLE_DOTENV=1`` leaves `folder/.env` alone, named files are still read.

    Raises
    ------
    InvalidCampaign
        A named file is absent, or a line is no assignment. Values are never shown.
    """
    paths = list(files)
    if environ.get(DISABLE, "") in {"", "0"} and (folder / ".env").is_file():
        paths.insert(0, folder / ".env")
    values: dict[str, str] = {}
    problems: list[Problem] = []
    for path in paths:
        try:
            lines = path.read_text(encoding="utf-8-sig").split("\n")
        except (OSError, UnicodeDecodeError) as exc:
            problems.append(Problem(file=str(path), message=f"can't be read: {type(exc).__name__}"))
            continue
        for number, line in enumerate(lines, 1):
            if not line.strip() or line.lstrip().startswith("#"):
                continue
            if found := _LINE.fullmatch(line):
                values[found["name"]] = _value(found)
            else:
                message = "wants NAME=value, or a comment after #"
                problems.append(Problem(file=str(path), line=number, message=message))
    if problems:
        raise InvalidCampaign(problems)
    return values | dict(environ)


def _value(found: re.Match[str]) -> str:
    if found["double"] is not None:
        return re.sub(r"\\(.)", lambda m: {"n": "\n", "t": "\t"}.get(m[1], m[1]), found["double"])
    return found["single"] if found["single"] is not None else found["bare"]
