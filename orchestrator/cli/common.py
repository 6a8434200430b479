"""What commands share: the application, their options, and how they speak."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from orchestrator.core.errors import ConfigError
from orchestrator.wording import visible

if TYPE_CHECKING:
    from orchestrator.campaign import Campaign

app = typer.Typer(
    name="sortition",
    help="LLM-judge evaluations that are right and stay within their budget.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"auto_envvar_prefix": "SORTITION", "help_option_names": ["-h", "--help"]},
)

DEFAULT_FILE = Path("campaign.yaml")


File = Annotated[Path, typer.Argument(help="The campaign file.", metavar="[FILE]")]
RunArgument = Annotated[
    Path | None, typer.Argument(help="The run's directory; the newest one by default.")
]
Budget = Annotated[
    str | None,
    typer.Option("--budget-usd", "--max-budget-usd", help="Hard dollar cap; over the file's."),
]
Jobs = Annotated[
    int | None,
    typer.Option("-j", "--max-concurrency", min=1, help="Calls at a time over all judges."),
]
Yes = Annotated[bool, typer.Option("-y", "--yes", help="Don't ask before money is spent.")]
AsJson = Annotated[bool, typer.Option("--json", help="For programs: JSON on standard output.")]
EnvFiles = Annotated[
    list[Path] | None, typer.Option("--env-file", help="Read environment variables; repeatable.")
]
Settings = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="PATH=VALUE", help="Set a field over the file; repeatable."),
]

Mock = Annotated[
    bool, typer.Option("--mock", help="Put a mock in the place of every judge and system.")
]
RunDirectory = Annotated[
    Path | None, typer.Option("--run-dir", help="Where the run lives; resumes what is there.")
]
NoCache = Annotated[bool, typer.Option("--no-cache", help="Ask everything anew, and keep nothing.")]
Quiet = Annotated[bool, typer.Option("-q", "--quiet", help="Show nothing while it runs.")]
Limit = Annotated[
    int | None,
    typer.Option("-n", "--limit", min=1, help="Take a random sample of so many items."),
]
Seed = Annotated[int | None, typer.Option("--seed", min=0, help="Over the file's seed.")]


def runs() -> Path:
    """Give the folder that runs live in."""
    return Path(os.environ.get("SORTITION_OUTPUT_DIR", "runs"))


def print_json(document: object) -> None:
    """Write a result for programs, in ASCII: no console can lose or obey a part of it."""
    typer.echo(json.dumps(document))


def print_table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> None:
    """Write a result for people: as wide as the terminal, elsewhere a row a line."""
    from rich.console import Console
    from rich.table import Table

    table = Table(*head, box=None, pad_edge=False)
    for row in rows:
        table.add_row(*map(visible, row))
    width = None if sys.stdout.isatty() else 500
    Console(markup=False, highlight=False, width=width).print(table)


def say(line: str) -> None:
    """Write chatter: to standard error."""
    typer.echo(visible(line), err=True)


def overrides(settings: Sequence[str] | None) -> dict[str, object]:
    """Read what `--set` was given.

    Raises
    ------
    ConfigError
        One is not PATH=VALUE.
    """
    found: dict[str, object] = {}
    for setting in settings or ():
        path, equals, value = setting.partition("=")
        if not equals:
            raise ConfigError(f"--set {setting}: wants PATH=VALUE, as in budget.usd=5")
        found[path] = value
    return found


def campaign_of(
    file: Path,
    *,
    budget_usd: str | None,
    mock: bool,
    limit: int | None,
    seed: int | None,
    set_: Sequence[str] | None,
    env_file: Sequence[Path] | None,
) -> Campaign:
    """Load a campaign file with what the command line says over it."""
    from orchestrator.campaign import Campaign as Loaded

    read_env_files(env_file)
    wanted = overrides(set_)
    if budget_usd is not None:
        wanted["budget.usd"] = budget_usd
    if seed is not None:
        wanted["seed"] = seed
    return Loaded.from_yaml(file, wanted, mock=mock, limit=limit)


def read_env_files(files: Sequence[Path] | None) -> None:
    """Take `.env` and further files into the environment; what is set already wins."""
    from orchestrator.dotenv import load_dotenv

    os.environ |= load_dotenv(os.environ, folder=Path.cwd(), files=files or ())
