"""The command that tries the judges of a campaign: `doctor`."""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated

import typer

from orchestrator.cli.common import (
    DEFAULT_FILE,
    AsJson,
    EnvFiles,
    File,
    Mock,
    Settings,
    app,
    overrides,
    print_json,
    print_table,
    read_env_files,
    say,
)
from orchestrator.core.errors import ConfigError

if TYPE_CHECKING:
    from orchestrator.doctor import Diagnosis


@app.command()
def doctor(
    file: File = DEFAULT_FILE,
    budget_usd: Annotated[
        str, typer.Option("--budget-usd", help="Hard dollar cap of the examination.")
    ] = "0.05",
    mock: Mock = False,
    set_: Settings = None,
    env_file: EnvFiles = None,
    as_json: AsJson = False,
) -> None:
    """Ask each judge one tiny question: key, model, parameters, route, usage, price, limits.

    Exit 0 when every judge gave a verdict, else 4; 2 if nothing was sent; 130 if interrupted.
    """
    from orchestrator.core.money import format_usd, parse_usd
    from orchestrator.doctor import examine

    read_env_files(env_file)
    try:
        cap = parse_usd(budget_usd)
    except ValueError as exc:
        raise ConfigError(f"--budget-usd: {exc}; nothing was sent") from exc
    if cap <= 0:
        raise ConfigError("--budget-usd: wants more than 0 USD; nothing was sent")
    seen = examine(file, overrides(set_), cap=cap, environ=os.environ, mock=mock, notice=say)
    if as_json:
        print_json(seen.as_json())
    else:
        head = ("judge", "verdict", "by", "model served", "tokens in/out", "cost", "latency", "")
        print_table(head, [_row(found) for found in seen.diagnoses])
        for found in seen.diagnoses:
            if found.reason:
                say(f"{found.judge}: {_complaint(found)}")
        if seen.is_interrupted:
            say("interrupted: nothing more was asked")
        say(f"charged {format_usd(seen.charged)} of {format_usd(cap)}")
        is_done = seen.is_well and not seen.is_interrupted
        words = ["sortition", "plan" if is_done else "doctor", str(file)]
        for setting in set_ or ():
            # An address may hold a password, and what is printed is kept.
            words += ["--set", re.sub(r"://[^/\s]*@", "://", setting)]
        for key, value in seen.settings.items():
            say(f"in the campaign file, set {key}: {value}")
            words += ["--set", f"{key}={value}"]
        say(f"next: {shlex.join(words)}")
    if seen.is_interrupted:
        raise typer.Exit(130)
    if not seen.is_well:
        raise typer.Exit(4)


def _row(found: Diagnosis) -> tuple[str, ...]:
    from orchestrator.core.money import format_usd

    tokens = "not said"
    if (usage := found.usage) is not None:
        read = usage.input_tok + usage.cached_input_tok
        read += usage.cache_write_5m_tok + usage.cache_write_1h_tok
        tokens = f"{read:,}/{usage.output_tok:,}"
    return (
        found.judge,
        "none" if found.verdict is None else f"{found.verdict:g}",
        " then ".join((*found.tried, found.route)),
        found.served_model,
        tokens,
        format_usd(found.cost + found.uncertain),
        f"{found.took_s:.2f} s",
        ", ".join(_notes(found)),
    )


def _notes(found: Diagnosis) -> Iterator[str]:
    from orchestrator.core.money import format_usd

    if not found.is_known:
        yield "model not in the capability table"
    yield from (f"{name} dropped" for name in found.dropped)
    yield from (flag for flag in found.flags if not flag.startswith("dropped:"))
    if found.mass is not None:
        yield f"labels hold {found.mass:.0%}"
    if found.uncertain:
        yield f"{format_usd(found.uncertain)} uncertain"
    if found.limited_s:
        yield f"waited {found.limited_s:.1f} s for a limit"


def _complaint(found: Diagnosis) -> str:
    """Say why there is no verdict, in the provider's words if it had some, and what to do."""
    why = found.reason.replace("_", " ")
    detail = f": {found.detail}" if found.detail else ""
    said = f'; it said "{found.said}"' if found.said else ""
    return f"{why}{detail}{said}" + (f"; {found.remedy}" if found.remedy else "")
