"""Commands for authors of methods: `lab experiment`."""

from __future__ import annotations

import math
import sys
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from orchestrator.cli.common import app, say
from orchestrator.core.errors import ConfigError

if TYPE_CHECKING:
    from orchestrator.experiments.replay import RecordedJudges

lab = typer.Typer(help="Studies of the methods themselves.", no_args_is_help=True)
experiment = typer.Typer(help="Simulate a method beside its rivals.", no_args_is_help=True)
lab.add_typer(experiment, name="experiment")
app.add_typer(lab, name="lab")


class Of(StrEnum):
    """What is studied."""

    SYNTHETIC = "synthetic"
    REPLAY = "replay"


class World(StrEnum):
    """Kinds of synthetic judges."""

    SMOOTH = "smooth"
    HARD = "hard"
    LIKERT = "likert"


class Cost(StrEnum):
    """How judges' prices follow their precision."""

    UNIT = "unit"
    INV_SD = "inv_sd"
    INV_VAR = "inv_var"
    INV_CUBE = "inv_cube"
    PERVERSE = "perverse"


class Target(StrEnum):
    """Whose score is meant."""

    COMMON = "common"
    PANEL = "panel"
    POPULATION = "population"


@experiment.command("est-ivwe")
def est_ivwe(
    data: Annotated[
        Path | None,
        typer.Argument(help="Recorded repeats, for --study replay.", metavar="DATA"),
    ] = None,
    study: Annotated[
        Of, typer.Option("--study", help="Synthetic judges, or a replay of recorded ones.")
    ] = Of.SYNTHETIC,
    rho: Annotated[
        list[int] | None,
        typer.Option("--rho", min=4, help="Calls of each judge on each item; repeatable."),
    ] = None,
    cost: Annotated[
        list[Cost] | None, typer.Option("--cost", help="Price structure; repeatable.")
    ] = None,
    env: Annotated[
        list[World] | None, typer.Option("--env", help="Kind of judges; repeatable.")
    ] = None,
    norm: Annotated[
        list[float] | None, typer.Option("--norm", help="1, 2, inf, ...; repeatable.")
    ] = None,
    target: Annotated[Target, typer.Option("--target", help="Whose score.")] = Target.COMMON,
    items: Annotated[int, typer.Option("--items", min=2, help="Synthetic items.")] = 1000,
    judges: Annotated[int, typer.Option("--judges", min=2, help="Synthetic judges.")] = 10,
    reps: Annotated[int, typer.Option("--reps", min=2, help="Replicates.")] = 20,
    seed: Annotated[int, typer.Option("--seed", min=0, help="Of all that is drawn.")] = 0,
    prices: Annotated[
        Path | None,
        typer.Option("--prices", help="Table of judge and usd_per_call, for the replay."),
    ] = None,
    price: Annotated[
        list[str] | None,
        typer.Option("--price", metavar="JUDGE=USD", help="Price of a call; repeatable."),
    ] = None,
    criterion: Annotated[
        str | None, typer.Option("--criterion", help="Which dimension of the recorded scores.")
    ] = None,
    workers: Annotated[int, typer.Option("--workers", min=1, help="Processes.")] = 1,
    dask: Annotated[
        str | None, typer.Option("--dask", metavar="ADDRESS", help="A Dask scheduler instead.")
    ] = None,
    csv: Annotated[Path | None, typer.Option("--csv", help="Write every figure here.")] = None,
    plot: Annotated[
        Path | None, typer.Option("--plot", help="Write curves here, .svg or .png.")
    ] = None,
) -> None:
    """Compare EST-IVWE with uniform rules, the oracle and the closed form at equal spend."""
    from rich.console import Console

    from orchestrator.experiments import est_ivwe as synthetic
    from orchestrator.experiments import output, replay
    from orchestrator.experiments import plot as picture
    from orchestrator.experiments.fanout import open_executor

    if (data is not None) != (study is Of.REPLAY):
        raise ConfigError("--study replay and recorded DATA go together")
    if plot is not None:
        picture.check_path(plot)
    _check_folders(csv, plot)
    norms = tuple(norm or (1.0, 2.0, math.inf))
    if min(norms) < 1 or any(map(math.isnan, norms)):
        raise ConfigError("--norm: wants numbers from 1 up, or inf")
    console = Console(width=None if sys.stdout.isatty() else 100)
    rows: list[synthetic.Row] | list[replay.Row]
    if data is not None:
        recorded = replay.read_recorded(data, replay.read_prices(prices, price or ()), criterion)
        sweeps = tuple(rho or (10, 20, 50))
        _introduce(recorded)
        with open_executor(workers, dask) as executor:
            rows = replay.run(
                recorded, sweeps, executor, n_reps=reps, seed=seed, progress=_progress
            )
        console.print(output.replay_table(rows))
        if warning := replay.disagreement(recorded, max(sweeps)):
            typer.echo(f"warning: {warning}")
        panels, title = output.replay_panels(rows), "EST-IVWE on recorded judges"
        what = "mean squared error / uniform's"
    else:
        setting = synthetic.Study(
            worlds=tuple(kind.value for kind in env or (World.SMOOTH,)),
            prices=tuple(kind.value for kind in cost or Cost),
            sweeps=tuple(rho or (10, 20, 100)),
            norms=norms,
            target=target.value,
            n_items=items,
            n_judges=judges,
            n_reps=reps,
            seed=seed,
        )
        with open_executor(workers, dask) as executor:
            rows = synthetic.run(setting, executor, _progress)
        for table in output.synthetic_tables(rows):
            console.print(table)
        for line in output.closing_lines(rows):
            typer.echo(line)
        panels, title = output.synthetic_panels(rows), f"EST-IVWE, target {target.value}"
        what = "error / oracle's"
    if csv is not None:
        output.write_csv(csv, rows)
        say(f"figures  {csv}")
    if plot is not None:
        picture.write(plot, panels, title=title, x="sweeps the money buys (rho)", y=what)
        say(f"plot     {plot}")


def _check_folders(*paths: Path | None) -> None:
    """Refuse outputs that have no folder, before anything is computed."""
    for path in paths:
        if path is not None and not path.absolute().parent.is_dir():
            raise ConfigError(f"{path}: there is no folder {path.parent}")


def _introduce(recorded: RecordedJudges) -> None:
    n_items, _, n_repeats = recorded.repeats.shape
    say(f"{n_items:,} items with {n_repeats} repeats by {', '.join(recorded.names)}")
    if recorded.n_left_out:
        say(f"left out: {recorded.n_left_out:,} items without all repeats")
    if recorded.unpriced:
        say(f"left out, no price: {', '.join(recorded.unpriced)}")


def _progress(done: int, n: int) -> None:
    """Count on standard error, on a terminal in place, elsewhere at each tenth."""
    if sys.stderr.isatty():
        typer.echo(f"\r{done:,} of {n:,} replicates", err=True, nl=done == n)
    elif done * 10 // n > (done - 1) * 10 // n:
        say(f"{done:,} of {n:,} replicates")
