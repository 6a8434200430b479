"""Commands for authors of methods: `lab experiment`, `lab design`."""

from __future__ import annotations

import math
import sys
from collections.abc import Callable
from concurrent.futures import Executor
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, NamedTuple

import typer

from orchestrator.cli.common import AsJson, app, print_json, print_table, say
from orchestrator.core.errors import ConfigError

if TYPE_CHECKING:
    from orchestrator.experiments.figures import Figure
    from orchestrator.experiments.order_design import Verified, Wanted
    from orchestrator.experiments.plot import Panel
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


class Layout(StrEnum):
    """How batches are ordered."""

    SHUFFLE = "shuffle"
    WILLIAMS = "williams"
    FIXED = "fixed"


class About(StrEnum):
    """Whose qualities are compared."""

    PANEL = "panel"
    ITEMS = "items"


class Drawn(StrEnum):
    """Orders that a study draws."""

    SHUFFLE = "shuffle"
    WILLIAMS = "williams"


class Asked(StrEnum):
    """How pairs and categories are drawn."""

    UNIFORM = "uniform"
    NONUNIFORM = "nonuniform"
    ADAPTIVE = "adaptive"


Replicates = Annotated[int, typer.Option("--reps", min=2, help="Replicates.")]
SeedOfAll = Annotated[int, typer.Option("--seed", min=0, help="Of all that is drawn.")]
Workers = Annotated[int, typer.Option("--workers", min=1, help="Processes.")]
Dask = Annotated[
    str | None, typer.Option("--dask", metavar="ADDRESS", help="A Dask scheduler instead.")
]
Alpha = Annotated[float, typer.Option("--alpha", help="Two-sided error.")]
Csv = Annotated[Path | None, typer.Option("--csv", help="Write every figure here.")]
Plot = Annotated[Path | None, typer.Option("--plot", help="Write curves here, .svg or .png.")]
Fits = Annotated[int, typer.Option("--fits", min=0, help="Replicates that are fitted, too.")]
Inference = Annotated[
    About, typer.Option("--inference", help="About one panel, or a panel drawn anew each time.")
]
PoolSize = Annotated[int, typer.Option("--items", min=4, help="Items, half of them of each group.")]


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
    reps: Replicates = 20,
    seed: SeedOfAll = 0,
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
    workers: Workers = 1,
    dask: Dask = None,
    csv: Csv = None,
    plot: Plot = None,
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


# --- order effects -----------------------------------------------------------------------------


class _Way(NamedTuple):
    """Where a study is computed, and where its figures go."""

    workers: int
    dask: str | None
    csv: Path | None
    plot: Path | None
    as_json: bool


def _present(
    title: str,
    study: Callable[[Executor], list[Figure]],
    way: _Way,
    unit: str = "%",
    x: str = "batches",
    *,
    curves: Callable[[list[Figure]], list[Panel]] | None = None,
    is_crossed: bool = False,
) -> None:
    """Compute a study and show its figures; curves are of what is measured in a unit, against x.

    `is_crossed`: tables have a column for each measure instead of each size.
    """
    from rich.console import Console

    from orchestrator.experiments import figures, output
    from orchestrator.experiments import plot as picture
    from orchestrator.experiments.fanout import open_executor

    if way.plot is not None:
        picture.check_path(way.plot)
    _check_folders(way.csv, way.plot)
    with open_executor(way.workers, way.dask) as executor:
        found = study(executor)
    if way.as_json:
        print_json(figures.as_json(found))
    else:
        console = Console(width=None if sys.stdout.isatty() else 150 if is_crossed else 120)
        for part in figures.crossed(found) if is_crossed else figures.tables(found, x):
            console.print(part)
        typer.echo("figures ± Monte-Carlo standard errors; published: by the method's authors;")
        typer.echo("reference: by another program")
    if way.csv is not None:
        output.write_csv(way.csv, found)
        say(f"figures  {way.csv}")
    if way.plot is not None:
        panels = curves(found) if curves else figures.panels(found, unit)
        picture.write(way.plot, panels, title=title, x=x, y=unit.removeprefix(": "), is_level=True)
        say(f"plot     {way.plot}")


@experiment.command("order-null")
def order_null(
    items: PoolSize = 30,
    design: Annotated[Drawn, typer.Option("--design", help="Orders of batches.")] = Drawn.SHUFFLE,
    inference: Inference = About.PANEL,
    reps: Replicates = 200,
    seed: SeedOfAll = 11,
    workers: Workers = 1,
    dask: Dask = None,
    csv: Csv = None,
    plot: Plot = None,
    as_json: AsJson = False,
) -> None:
    """Find differences where there are none: two groups of equal mean and unequal spread."""
    from orchestrator.experiments import order_groups

    study = order_groups.Study(
        n_items=items, design=design.value, inference=inference.value, n_reps=reps, seed=seed
    )
    _present(
        "Error rates, equal groups",
        lambda executor: order_groups.error_rates(
            study, order_groups.run(study, executor, _progress)
        ),
        _Way(workers, dask, csv, plot, as_json),
    )


@experiment.command("order-power")
def order_power(
    reps: Replicates = 200,
    seed: SeedOfAll = 21,
    workers: Workers = 1,
    dask: Dask = None,
    csv: Csv = None,
    plot: Plot = None,
    as_json: AsJson = False,
) -> None:
    """Find a difference that is there: two groups of equal spread, 0.45 apart."""
    from orchestrator.experiments import order_groups

    study = order_groups.Study(world="gap", n_reps=reps, seed=seed)
    _present(
        "Power, groups 0.45 apart",
        lambda executor: order_groups.error_rates(
            study, order_groups.run(study, executor, _progress)
        ),
        _Way(workers, dask, csv, plot, as_json),
    )


@experiment.command("order-peeking")
def order_peeking(
    inference: Inference = About.PANEL,
    reps: Replicates = 200,
    seed: SeedOfAll = 11,
    workers: Workers = 1,
    dask: Dask = None,
    csv: Csv = None,
    plot: Plot = None,
    as_json: AsJson = False,
) -> None:
    """Look five times along the way, by three rules, where there is a difference and where not."""
    from orchestrator.experiments import order_groups

    def study(executor: Executor) -> list[Figure]:
        worlds: tuple[order_groups.World, ...] = ("null", "gap")
        studies = [
            order_groups.Study(
                world=world, inference=inference.value, n_reps=reps, seed=seed, resamples=0
            )
            for world in worlds
        ]
        return [
            figure
            for each in studies
            for figure in order_groups.peeking(each, order_groups.run(each, executor, _progress))
        ]

    _present("Differences found by then", study, _Way(workers, dask, csv, plot, as_json))


@experiment.command("leaderboard-williams")
def leaderboard_williams(
    reps: Replicates = 100_000,
    fits: Fits = 100,
    seed: SeedOfAll = 5,
    workers: Workers = 1,
    dask: Dask = None,
    csv: Csv = None,
    plot: Plot = None,
    as_json: AsJson = False,
) -> None:
    """Find the best of six items, shuffled and in Williams blocks."""
    from orchestrator.experiments import order_leaderboard

    study = order_leaderboard.Study(n_reps=reps, n_fits=fits, seed=seed)
    _present(
        "Best of six items first",
        lambda executor: order_leaderboard.run(study, executor, _progress),
        _Way(workers, dask, csv, plot, as_json),
    )


@experiment.command("deep-memory")
def deep_memory(
    reps: Replicates = 100,
    seed: SeedOfAll = 31,
    workers: Workers = 1,
    dask: Dask = None,
    csv: Csv = None,
    plot: Plot = None,
    as_json: AsJson = False,
) -> None:
    """Judges that remember three verdicts: groups and a leaderboard, fits of one lag and of three."""
    from orchestrator.experiments import order_groups, order_leaderboard

    groups = order_groups.Study(world="deep_memory", lags=(1, 3), n_reps=reps, seed=seed)
    best = order_leaderboard.Study(
        worlds=("deep_memory",),
        batches=(12, 36, 120),
        lags=(1, 3),
        n_reps=100 * reps,
        n_fits=reps,
        seed=seed,
    )
    _present(
        "Memory of three verdicts",
        lambda executor: [
            *order_groups.error_rates(groups, order_groups.run(groups, executor, _progress)),
            *order_leaderboard.run(best, executor, _progress),
        ],
        _Way(workers, dask, csv, plot, as_json),
    )


@experiment.command("order-variance")
def order_variance(
    reps: Replicates = 20_000,
    seed: SeedOfAll = 5,
    workers: Workers = 1,
    dask: Dask = None,
    csv: Csv = None,
    plot: Plot = None,
    as_json: AsJson = False,
) -> None:
    """Split the variance of naive differences of six items: what ratings bring, what their order."""
    from orchestrator.experiments import order_leaderboard

    _present(
        "Variance of a batch",
        lambda executor: order_leaderboard.order_variance(reps, seed, executor, _progress),
        _Way(workers, dask, csv, plot, as_json),
        "part",
    )


@experiment.command("predictive-check")
def predictive_check(
    reps: Replicates = 40,
    copies: Annotated[
        int, typer.Option("--copies", min=20, help="Simulated of the held-out batches.")
    ] = 200,
    seed: SeedOfAll = 7,
    workers: Workers = 1,
    dask: Dask = None,
    csv: Csv = None,
    plot: Plot = None,
    as_json: AsJson = False,
) -> None:
    """Check a right model on held-out batches, with its estimates' error and without."""
    from orchestrator.experiments import predictive_check as check

    _present(
        "Terms inside their bounds",
        lambda executor: check.run(reps, copies, seed, executor, _progress),
        _Way(workers, dask, csv, plot, as_json),
    )


@experiment.command("saturated-judge")
def saturated_judge(
    reps: Replicates = 20,
    seed: SeedOfAll = 41,
    workers: Workers = 1,
    dask: Dask = None,
    csv: Csv = None,
    plot: Plot = None,
    as_json: AsJson = False,
) -> None:
    """Follow p over batches for three judges, one of whom accepts most items always."""
    from orchestrator.experiments import saturated_judge as saturated

    _present(
        "p against batches",
        lambda executor: saturated.run(reps, seed, executor, _progress),
        _Way(workers, dask, csv, plot, as_json),
        "p, median",
    )


# --- comparisons in pairs ----------------------------------------------------------------------


@experiment.command("bt-coverage")
def bt_coverage(
    reps: Replicates = 400,
    peeks: Annotated[
        int, typer.Option("--peeks", min=2, help="Replicates of the watched pair.")
    ] = 2000,
    seed: SeedOfAll = 9,
    workers: Workers = 1,
    dask: Dask = None,
    csv: Csv = None,
    plot: Plot = None,
    as_json: AsJson = False,
) -> None:
    """Bound ranks of models and declare leaders, at a fixed end and while one watches."""
    from orchestrator.experiments import bt_coverage as covered

    _present(
        "Claims about strengths",
        lambda executor: [
            *covered.peeking(peeks, seed),
            *covered.ranks(reps, seed, executor, _progress),
        ],
        _Way(workers, dask, csv, plot, as_json),
        "by then, %",
        "comparisons",
    )


@experiment.command("bt-adaptive")
def bt_adaptive(
    reps: Replicates = 250,
    seed: SeedOfAll = 77,
    workers: Workers = 1,
    dask: Dask = None,
    csv: Csv = None,
    plot: Plot = None,
    as_json: AsJson = False,
) -> None:
    """Fit strengths to comparisons that were chosen along the way, unweighted and weighted."""
    from orchestrator.experiments import bt_adaptive as adaptive

    _present(
        "Coverage under adaptive sampling",
        lambda executor: adaptive.table(adaptive.grid(reps, seed), executor, _progress),
        _Way(workers, dask, csv, plot, as_json),
        "covers, %",
        "comparisons",
    )


@experiment.command("active-leader")
def active_leader(
    reps: Replicates = 60,
    seed: SeedOfAll = 103,
    workers: Workers = 1,
    dask: Dask = None,
    csv: Csv = None,
    plot: Plot = None,
    as_json: AsJson = False,
) -> None:
    """Prove who is best of 10 and of 30 models, by chosen pairs and by random ones."""
    from orchestrator.experiments import active_leader as leader

    _present(
        "Leader proved by then",
        lambda executor: leader.table(leader.grid(reps, seed), executor, _progress),
        _Way(workers, dask, csv, plot, as_json),
        "separated, %",
        "comparisons",
    )


@experiment.command("active-newcomer")
def active_newcomer(
    reps: Replicates = 30,
    seed: SeedOfAll = 104,
    workers: Workers = 1,
    dask: Dask = None,
    csv: Csv = None,
    plot: Plot = None,
    as_json: AsJson = False,
) -> None:
    """Place a new model among 19 known ones, by chosen pairs and by random ones."""
    from orchestrator.experiments import active_newcomer as newcomer

    _present(
        "Width of the newcomer's interval",
        lambda executor: newcomer.table(
            newcomer.Study(n_reps=reps, seed=seed), executor, _progress
        ),
        _Way(workers, dask, csv, plot, as_json),
        "width",
        "comparisons",
    )


@experiment.command("active-ranking")
def active_ranking(
    reps: Replicates = 60,
    seed: SeedOfAll = 101,
    workers: Workers = 1,
    dask: Dask = None,
    csv: Csv = None,
    plot: Plot = None,
    as_json: AsJson = False,
) -> None:
    """Rank 10 and 30 models at equal budgets, by chosen pairs and by random ones."""
    from orchestrator.experiments import active_ranking as ranking

    _present(
        "Order of all models",
        lambda executor: ranking.table(ranking.grid(reps, seed), executor, _progress),
        _Way(workers, dask, csv, plot, as_json),
        ": tau",
        "comparisons",
    )


@experiment.command("tensor-coverage")
def tensor_coverage(
    design: Annotated[
        Asked, typer.Option("--design", help="How comparisons are drawn.")
    ] = Asked.UNIFORM,
    reps: Replicates = 200,
    seed: SeedOfAll = 11,
    workers: Workers = 1,
    dask: Dask = None,
    csv: Csv = None,
    plot: Plot = None,
    as_json: AsJson = False,
) -> None:
    """Estimate low-rank strengths by category in eleven ways, beside each category for itself."""
    from orchestrator.experiments import tensor_coverage as tensor

    _present(
        "Low-rank strengths",
        lambda executor: tensor.sweep(design.value, reps, seed, executor, _progress),
        _Way(workers, dask, csv, plot, as_json),
        ": gap width",
        "comparisons",
    )


# --- benchmarks --------------------------------------------------------------------------------


@experiment.command("peeking")
def peeking(
    share: Annotated[
        list[float] | None,
        typer.Option("--share", metavar="P", help="Share of right answers; repeatable."),
    ] = None,
    items: Annotated[int, typer.Option("--items", min=100, help="Items of the benchmark.")] = 2000,
    alpha: Alpha = 0.05,
    first: Annotated[int, typer.Option("--from", min=1, help="The first look.")] = 30,
    planned: Annotated[
        int | None,
        typer.Option("--planned", min=1, help="Items that sequences plan for; a quarter."),
    ] = None,
    half_width: Annotated[
        float, typer.Option("--half-width", help="That betting plans its number for.")
    ] = 0.044,
    reps: Replicates = 200,
    seed: SeedOfAll = 12,
    workers: Workers = 1,
    dask: Dask = None,
    csv: Csv = None,
    plot: Plot = None,
    as_json: AsJson = False,
) -> None:
    """Look at every item of a benchmark: how often each interval for its mean is wrong by then."""
    from orchestrator.experiments import peeking as watching

    shares = share or [0.5, 0.7, 0.95]
    _check_shares("--share", *shares)
    _check_shares("--alpha", alpha)
    _check_shares("--half-width", half_width)
    if (planned := planned or items // 4) >= items or first > planned:
        raise ConfigError(
            f"--planned {planned}: wants a number from --from, {first}, up to {items}"
        )
    studies = [
        watching.Study(
            p=p,
            n_items=items,
            alpha=alpha,
            first=first,
            planned=planned,
            half_width=half_width,
            n_reps=reps,
            seed=seed,
        )
        for p in shares
    ]
    _present(
        "A benchmark looked at after each item",
        lambda executor: [
            figure for each in studies for figure in watching.run(each, executor, _progress)
        ],
        _Way(workers, dask, csv, plot, as_json),
        "wrong by then, %",
        "items",
    )


def _check_shares(option: str, *values: float) -> None:
    for value in values:
        if not 0 < value < 1:
            raise ConfigError(f"{option} {value:g}: wants a number between 0 and 1")


@experiment.command("subsample-mmlu")
def subsample_mmlu(
    table: Annotated[
        Path, typer.Argument(help="A table of items by systems: 0, 1 or nothing.", metavar="TABLE")
    ],
    strata: Annotated[
        str | None, typer.Option("--strata", metavar="COLUMN", help="An item's stratum.")
    ] = None,
    domain: Annotated[
        str | None, typer.Option("--domain", metavar="COLUMN", help="A stratum's domain.")
    ] = None,
    half_width: Annotated[
        float, typer.Option("--half-width", help="At which a run stops.")
    ] = 0.0154,
    pair: Annotated[
        list[str] | None,
        typer.Option("--pair", metavar="A,B", help="Systems to tell apart; repeatable."),
    ] = None,
    alpha: Alpha = 0.05,
    reps: Replicates = 20,
    seed: SeedOfAll = 15,
    workers: Workers = 1,
    dask: Dask = None,
    csv: Csv = None,
    plot: Plot = None,
    as_json: AsJson = False,
) -> None:
    """Draw items of your table of answers in many orders, until they say what all of them say."""
    from orchestrator.experiments import subsample

    _check_shares("--alpha", alpha)
    _check_shares("--half-width", half_width)
    answers = subsample.read_answers(table, strata, domain)
    pairs = tuple(_pair(each) for each in pair or ())
    for system in (name for each in pairs for name in each):
        answers.of(system)
    study = subsample.Study(
        answers=answers,
        half_width=half_width,
        alpha=alpha,
        pairs=pairs,
        n_reps=reps,
        seed=seed,
    )
    _present(
        f"{table.name} to ±{100 * half_width:.4g} points",
        lambda executor: subsample.run(study, executor, _progress),
        _Way(workers, dask, csv, plot, as_json),
        "items",
        "right, %",
        curves=subsample.panels,
        is_crossed=True,
    )


@experiment.command("beta-proxy")
def beta_proxy(
    law: Annotated[
        str, typer.Option("--law", metavar="A,B", help="Beta law of subjects' chances.")
    ] = "7,3",
    items: Annotated[int, typer.Option("--items", min=1, help="Items of a subject.")] = 100,
    alpha: Alpha = 0.05,
    reps: Replicates = 100,
    seed: SeedOfAll = 8,
    workers: Workers = 1,
    dask: Dask = None,
    csv: Csv = None,
    plot: Plot = None,
    as_json: AsJson = False,
) -> None:
    """Bound chances and macro scores by the best proxy of a Beta law, and by what is not it."""
    from orchestrator.experiments import beta_proxy_study as proxy

    _check_shares("--alpha", alpha)
    chances = proxy.Law(*_two_numbers("--law", law))
    study = proxy.Study(law=chances, n_items=items, alpha=alpha, n_reps=reps, seed=seed)
    _present(
        "Ability on subjects like these",
        lambda executor: [
            *proxy.proxies(),
            *(
                figure
                for each in dict.fromkeys((study.law, proxy.SKEWED))
                for figure in proxy.tails(each)
            ),
            *proxy.run(study, executor, _progress),
        ],
        _Way(workers, dask, csv, plot, as_json),
        "± points",
        "size",
    )


def _two_numbers(option: str, words: str) -> tuple[float, float]:
    try:
        a, b = map(float, words.split(","))
    except ValueError as exc:
        raise ConfigError(f"{option} {words}: wants two numbers, as in 7,3") from exc
    if not (0 < a < math.inf and 0 < b < math.inf):
        raise ConfigError(f"{option} {words}: both are above 0")
    return a, b


@experiment.command("async-order")
def async_order(
    share: Annotated[
        float, typer.Option("--share", metavar="P", help="Share of right answers.")
    ] = 0.7,
    items: Annotated[int, typer.Option("--items", min=10, help="Items of the benchmark.")] = 1000,
    at_once: Annotated[int, typer.Option("--at-once", min=1, help="Items under way.")] = 64,
    slow: Annotated[
        float, typer.Option("--slow", min=0.0, help="Time of a wrong answer over a right one's.")
    ] = 3.0,
    look: Annotated[
        list[int] | None,
        typer.Option("--look", min=1, help="Items back at a look; repeatable."),
    ] = None,
    alpha: Alpha = 0.05,
    reps: Replicates = 300,
    seed: SeedOfAll = 16,
    workers: Workers = 1,
    dask: Dask = None,
    csv: Csv = None,
    plot: Plot = None,
    as_json: AsJson = False,
) -> None:
    """Look at a benchmark while wrong answers come back late, by three ways of counting."""
    from orchestrator.experiments import async_order as in_order

    _check_shares("--share", share)
    _check_shares("--alpha", alpha)
    study = in_order.Study(
        p=share,
        n_items=items,
        n_workers=at_once,
        slow=slow,
        looks=tuple(sorted(set(look or (items // 5, items // 2, 4 * items // 5)))),
        alpha=alpha,
        n_reps=reps,
        seed=seed,
    )
    if study.looks[-1] > items:
        raise ConfigError(f"--look {study.looks[-1]}: there are {items} items")
    _present(
        "Answers in an order of their own",
        lambda executor: in_order.run(study, executor, _progress),
        _Way(workers, dask, csv, plot, as_json),
        "± points",
        "items back",
    )


def _pair(words: str) -> tuple[str, str]:
    first, comma, second = words.partition(",")
    if not comma or not first or not second:
        raise ConfigError(f"--pair {words}: wants two systems, as in A,B")
    return first.strip(), second.strip()


# --- designs -----------------------------------------------------------------------------------


@lab.command("design")
def design(
    layout: Annotated[
        Layout, typer.Option("--design", help="How batches are ordered.")
    ] = Layout.WILLIAMS,
    items: Annotated[int, typer.Option("--items", min=1, help="Items in the pool.")] = 6,
    batch_size: Annotated[
        int | None, typer.Option("--batch-size", min=1, help="Items of a batch; all by default.")
    ] = None,
    blocks: Annotated[int, typer.Option("--blocks", min=1, help="Blocks of each judge.")] = 1,
    batches: Annotated[
        int | None, typer.Option("--batches", min=1, help="Batches of each judge, over --blocks.")
    ] = None,
    groups: Annotated[
        str | None, typer.Option("--groups", metavar="N,N", help="Sizes of groups, as in 3,3.")
    ] = None,
    seed: Annotated[int, typer.Option("--seed", min=0, help="As a campaign's.")] = 0,
    judges: Annotated[int, typer.Option("--judges", min=1, help="Each has its own orders.")] = 1,
    as_json: AsJson = False,
) -> None:
    """Print a design of batches as a campaign would lay it out, and verify it; 1 if it is uneven."""
    from orchestrator.experiments import order_design

    wanted = order_design.Wanted(
        layout=layout.value,
        n_items=items,
        batch_size=batch_size or 0,
        blocks=blocks,
        batches=batches or 0,
        groups=_sizes(groups),
        seed=seed,
    )
    found = [
        order_design.verified(wanted, order_design.laid_out(wanted, judge))
        for judge in range(judges)
    ]
    if as_json:
        print_json(order_design.as_json(wanted, found))
    else:
        for judge, each in enumerate(found, 1):
            _show_design(judge, each, wanted)
    if any(each.problems for each in found):
        raise typer.Exit(1)


def _sizes(groups: str | None) -> tuple[int, ...]:
    try:
        sizes = tuple(int(part) for part in (groups or "").split(",") if groups)
    except ValueError as exc:
        raise ConfigError(f"--groups {groups}: wants sizes, as in 3,3") from exc
    if any(size < 1 for size in sizes):
        raise ConfigError(f"--groups {groups}: a group has an item at least")
    return sizes


def _show_design(judge: int, found: Verified, wanted: Wanted) -> None:
    """Print a judge's batches, and below them what was counted; items count from 1."""
    n_slots = found.design.rows.shape[1]
    rows = zip(found.design.block.tolist(), found.design.rows.tolist(), strict=True)
    print_table(
        (f"judge {judge}", "block", *(f"slot {s + 1}" for s in range(n_slots))),
        (
            (
                f"batch {t}",
                "remainder" if block < 0 else str(block + 1),
                *(str(item + 1) for item in items),
            )
            for t, (block, items) in enumerate(rows, 1)
        ),
    )
    n_batches, n_rest = len(found.design.rows), found.n_remainder
    typer.echo(f"{n_batches} batches in blocks of {wanted.block_length}; remainder {n_rest}")
    if n_batches > n_rest:
        (fewest, most), (rarest, commonest) = found.balance.per_slot, found.balance.per_pair
        typer.echo(f"in whole blocks: an item in a slot {_span(fewest, most)} times,")
        typer.echo(f"one item right behind another {_span(rarest, commonest)} times")
    for k, (fewest, most) in enumerate(found.seats, 1):
        typer.echo(f"group {k}: {_span(fewest, most)} seats of a batch")
    typer.echo(f"all items connected: {'yes' if found.is_connected else 'no'}")
    for problem in found.problems:
        typer.echo(f"not balanced: {problem}")
    if not found.problems:
        typer.echo("balanced")


def _span(fewest: int, most: int) -> str:
    return str(fewest) if fewest == most else f"{fewest} to {most}"
