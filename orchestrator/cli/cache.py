"""Commands about verdicts and answers kept between runs: `cache ls`, `cache clear`."""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from orchestrator.cli.common import AsJson, app, print_json, say
from orchestrator.core.errors import ConfigError
from orchestrator.core.wire import Json

if TYPE_CHECKING:
    from orchestrator.caching import Entry

cache = typer.Typer(help="Verdicts and answers kept between runs.", no_args_is_help=True)
app.add_typer(cache, name="cache")

Dir = Annotated[
    Path | None,
    typer.Option("--dir", help="The cache's folder; .sortition/cache by default."),
]
OlderThan = Annotated[
    str | None,
    typer.Option("--older-than", metavar="AGE", help="Only what is older, such as 30d."),
]
OfModel = Annotated[str | None, typer.Option("--model", metavar="M", help="Only of this model.")]


@cache.command("ls")
def list_(
    dir_: Dir = None,
    older_than: OlderThan = None,
    model: OfModel = None,
    as_json: AsJson = False,
) -> None:
    """Show what a cache holds, by adapter and model."""
    folder, found = _chosen(dir_, older_than, model)
    if as_json:
        print_json({"directory": str(folder), **_sums(found), "groups": _groups(found)})
        return
    for group in _groups(found):
        whose = " ".join(filter(None, (group["adapter"], group["model"], group["base_url"])))
        typer.echo(f"{whose or 'damaged'}: {_said(group)}")
    typer.echo(f"{folder}: {_said(_sums(found))}")


@cache.command()
def clear(
    dir_: Dir = None,
    older_than: OlderThan = None,
    model: OfModel = None,
    yes: Annotated[bool, typer.Option("-y", "--yes", help="Don't ask.")] = False,
    as_json: AsJson = False,
) -> None:
    """Remove verdicts and answers from a cache."""
    folder, found = _chosen(dir_, older_than, model)
    if found and not yes:
        if not sys.stdin.isatty():
            raise ConfigError("this removes what is kept; without a terminal it needs --yes")
        try:
            agrees = typer.confirm(f"Remove from {folder}: {_said(_sums(found))}?", err=True)
        except typer.Abort:
            agrees = False
        if not agrees:
            raise typer.Exit(2)
    for entry in found:
        entry.path.unlink(missing_ok=True)
    if as_json:
        print_json({"directory": str(folder), "removed": len(found), **_sums(found)})
    else:
        say(f"removed: {_said(_sums(found))}")


def _chosen(
    directory: Path | None, older_than: str | None, model: str | None
) -> tuple[Path, list[Entry]]:
    from orchestrator.caching import DEFAULT_DIR, entries
    from orchestrator.quantities import read_duration

    if directory is not None and not directory.is_dir():
        raise ConfigError(f"--dir: there is no folder {directory}")
    try:
        age_s = 0.0 if older_than is None else read_duration(older_than)
    except ValueError as exc:
        raise ConfigError(f"--older-than {exc}") from exc
    folder = directory or DEFAULT_DIR
    latest = time.time() - age_s
    return folder, [
        entry
        for entry in entries(folder)
        if (older_than is None or entry.stored_at < latest)
        and (model is None or (entry.about is not None and entry.about.model == model))
    ]


def _groups(found: Sequence[Entry]) -> list[dict[str, Json]]:
    """Sum entries up by whose they are; those that can't be read come first, without a name."""
    groups: dict[tuple[str, str, str], list[Entry]] = {}
    for entry in found:
        about = entry.about
        whose = ("", "", "") if about is None else (about.adapter, about.model, about.base_url)
        groups.setdefault(whose, []).append(entry)
    return [
        {"adapter": adapter, "model": model, "base_url": base_url, **_sums(group)}
        for (adapter, model, base_url), group in sorted(groups.items())
    ]


def _sums(found: Sequence[Entry]) -> dict[str, Json]:
    times = [entry.stored_at for entry in found]
    return {
        "verdicts": len(found),
        "bytes": sum(entry.n_bytes for entry in found),
        "oldest": min(times, default=None),
        "newest": max(times, default=None),
    }


def _said(sums: dict[str, Json]) -> str:
    n = sums["verdicts"]
    text = f"{n:,} {'entry' if n == 1 else 'entries'}, {sums['bytes'] / 1000:,.1f} kB"
    if not n:
        return text
    oldest, newest = (
        time.strftime("%Y-%m-%d", time.localtime(sums[end])) for end in ("oldest", "newest")
    )
    return f"{text}, {oldest} to {newest}" if newest != oldest else f"{text}, {oldest}"
