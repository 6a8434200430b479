"""The command that needs no campaign: `estimate`, from a table of verdicts that is there."""

from __future__ import annotations

import math
from collections.abc import Sequence
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from orchestrator.cli.common import AsJson, app, print_json, say
from orchestrator.core.errors import ConfigError

if TYPE_CHECKING:
    from orchestrator.report.assessment import Assessment


class Per(StrEnum):
    """What gets a mean of its own."""

    ARM = "arm"
    UNIT = "unit"
    JUDGE = "judge"


class Population(StrEnum):
    """What is random: the items too, or only what a judge says at another time."""

    LIKE_THESE = "items_like_these"
    THESE = "these_items"


class Design(StrEnum):
    """How the items of a benchmark were drawn."""

    SIMPLE = "simple"
    STRATIFIED = "stratified"


class ErrorSplit(StrEnum):
    """What shares the error."""

    ARMS = "arms"
    PAIRS = "pairs"
    NONE = "none"


class TieRule(StrEnum):
    """What a tie of a comparison counts as."""

    HALF = "half"
    DAVIDSON = "davidson"
    RAO_KUPPER = "rao_kupper"
    DROP = "drop"


@app.command()
def estimate(
    data: Annotated[
        Path, typer.Argument(help="A table of verdicts: .csv, .jsonl (also .gz) or .parquet.")
    ],
    kind: Annotated[
        str | None,
        typer.Option("--kind", help="The kind of estimate; by default what the columns allow."),
    ] = None,
    map_: Annotated[
        list[str] | None,
        typer.Option("--map", metavar="PART=COLUMN", help="Name a part's column; repeatable."),
    ] = None,
    scale: Annotated[
        list[str] | None,
        typer.Option(
            "--scale", metavar="[CRITERION=]MIN:MAX", help="The ends of the scale; repeatable."
        ),
    ] = None,
    contrast: Annotated[
        str | None,
        typer.Option(
            "--contrast", metavar="ARM:BASELINE", help="The difference of two arms or groups."
        ),
    ] = None,
    per: Annotated[Per, typer.Option("--per", help="What gets a mean of its own.")] = Per.ARM,
    population: Annotated[
        Population, typer.Option("--population", help="Whether the items are a sample of more.")
    ] = Population.LIKE_THESE,
    target: Annotated[
        list[str] | None,
        typer.Option(
            "--target",
            metavar="T[,T]",
            help="What the judges measure: panel, common, population; with exchangeable: benchmark, "
            "macro, strata, ability; repeatable.",
        ),
    ] = None,
    of: Annotated[
        list[str] | None,
        typer.Option(
            "--of",
            metavar="[STRATUM=]N",
            help="With exchangeable: the items are a random part of N; repeatable by stratum.",
        ),
    ] = None,
    design: Annotated[
        Design, typer.Option("--design", help="With exchangeable: how the items were drawn.")
    ] = Design.SIMPLE,
    error_split: Annotated[
        ErrorSplit,
        typer.Option("--error-split", help="With exchangeable: what shares the error."),
    ] = ErrorSplit.ARMS,
    accept_from: Annotated[
        str | None,
        typer.Option(
            "--accept-from",
            metavar="LABEL",
            help="With markov_glmm: the lowest label, a number, that is a yes.",
        ),
    ] = None,
    ties: Annotated[
        TieRule, typer.Option("--ties", help="With bradley_terry: what a tie counts as.")
    ] = TieRule.HALF,
    confidence: Annotated[
        float, typer.Option("--confidence", help="Level of the intervals.")
    ] = 0.95,
    as_json: AsJson = False,
) -> None:
    """Estimate from a table of verdicts, the naive interval beside ours. Exit 0 or 2."""
    from estimators.bt_ties import Ties
    from orchestrator.estimating import Request, assess

    if not 0 < confidence < 1:
        raise ConfigError(f"--confidence: wants a number between 0 and 1, not {confidence:g}")
    assessment = assess(
        data,
        Request(
            kind=kind,
            names=names_of(map_ or ()),
            scales=_scales(scale or ()),
            contrast=contrast,
            per=per.value,
            population=population.value,
            targets=tuple(word for text in target or () for word in text.split(",")),
            confidence=confidence,
            accept_from=None if accept_from is None else _line(accept_from),
            ties=Ties(ties.value),
            of=_sizes(of or ()),
            design=design.value,
            error_split=error_split.value,
        ),
    )
    _show(assessment, as_json=as_json)


def names_of(texts: Sequence[str]) -> dict[str, str]:
    """Read what `--map` was given."""
    names: dict[str, str] = {}
    for text in texts:
        part, equals, column = text.partition("=")
        if not equals:
            raise ConfigError(f"--map {text}: wants PART=COLUMN, as in item_id=trace_id")
        if part in names:
            raise ConfigError(f"--map {text}: {part} is {names[part]} already")
        names[part] = column
    return names


def _line(text: str) -> float:
    """Read what `--accept-from` was given."""
    from orchestrator.core.scale import FARTHEST

    try:
        line = float(text)
    except ValueError:
        line = math.nan
    if not abs(line) <= FARTHEST:
        raise ConfigError(
            f"--accept-from {text}: wants a number, as in 4; words have no order, so the column must "
            "hold their numbers"
        )
    return line


def _sizes(texts: Sequence[str]) -> dict[str | None, int]:
    """Read what `--of` was given."""
    sizes: dict[str | None, int] = {}
    for text in texts:
        name, equals, number = text.rpartition("=")
        # Python reads 1_0 as ten, and digits of all scripts.
        if not (number.isascii() and number.isdigit() and int(number) > 0):
            raise ConfigError(f"--of {text}: wants N or STRATUM=N, as in 14042 or law=1534")
        key = name if equals else None
        if key in sizes:
            raise ConfigError(f"--of {text}: it is {sizes[key]} already")
        sizes[key] = int(number)
    return sizes


def _scales(texts: Sequence[str]) -> dict[str | None, tuple[float, float]]:
    """Read what `--scale` was given."""
    from orchestrator.core.scale import FARTHEST

    scales: dict[str | None, tuple[float, float]] = {}
    for text in texts:
        name, equals, ends = text.rpartition("=")
        try:
            low, high = map(float, ends.split(":"))
            is_range = -FARTHEST <= low < high <= FARTHEST
        except ValueError:
            is_range = False
        if not is_range:
            raise ConfigError(f"--scale {text}: wants MIN:MAX, as in 1:5")
        scales[name if equals else None] = (low, high)
    return scales


def _show(assessment: Assessment, *, as_json: bool) -> None:
    from orchestrator.report.assessment import as_json as json_of
    from orchestrator.report.assessment import lines
    from orchestrator.report.wording import printable

    if as_json:
        print_json(json_of(assessment))
    else:
        for line in lines(assessment):
            typer.echo(line)
        say(f"next: {printable(assessment.next_command)}")
