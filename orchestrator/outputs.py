"""Where results may be written: into a folder that is there, and over no file of a campaign."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from importlib.util import find_spec
from pathlib import Path

from orchestrator import rundir
from orchestrator.core.errors import ConfigError, OrchestratorError
from orchestrator.core.events import Started

REPORTS = (".html", ".md")
EXPORTS = (".jsonl", ".csv", ".parquet")


def check_outputs(
    paths: Sequence[Path],
    *,
    forms: Collection[str] | None = None,
    reads: Collection[Path],
    overwrites: bool = True,
) -> None:
    """Refuse outputs that can't or must not be written, before any of them is.

    Parameters
    ----------
    forms : the endings that are known; None: any will do
    reads : the files that the campaign is made from
    overwrites : whether another file that is there may be replaced

    Raises
    ------
    ConfigError
        An output has another ending, no folder, or is a folder; it is a file of the campaign; it
        is there already; Parquet wants pyarrow.
    """
    for path in paths:
        if forms is not None and path.suffix not in forms:
            raise ConfigError(f"{path.name}: known are {', '.join(forms)}; nothing was written")
        if not path.absolute().parent.is_dir():
            raise ConfigError(f"{path}: there is no folder {path.parent}; nothing was written")
        if path.is_dir():
            raise ConfigError(f"{path} is a folder; nothing was written")
        if path.suffix == ".parquet" and find_spec("pyarrow") is None:
            raise ConfigError(
                f"{path.name}: parquet needs pyarrow: pip install 'sortition[parquet]'"
            )
        if any(_is_same(path, file) for file in reads):
            raise ConfigError(
                f"{path} is a file of the campaign, which it would replace; nothing was written"
            )
        if path.exists() and not overwrites:
            raise ConfigError(f"{path} is there already; --force replaces it; nothing was written")


def files_of(directory: Path) -> tuple[Path, ...]:
    """List the files that a run's campaign is made from, as far as they can still be told."""
    from orchestrator.campaign import Campaign  # noqa: PLC0415  # it is slow to load

    with rundir.reading(directory) as reader:
        started = reader.last(Started)
    try:
        about = {} if started is None else started.about
        path = Path(about["campaign"]["path"])
    except (LookupError, TypeError):
        return ()
    try:
        return Campaign.again(about).file.reads
    except (OrchestratorError, LookupError, TypeError):
        return (path,)  # gone or no longer valid


def _is_same(path: Path, other: Path) -> bool:
    """Say whether two paths name one file, also by a link."""
    try:
        return path.samefile(other)
    except OSError:
        return False
