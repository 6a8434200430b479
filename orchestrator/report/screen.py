"""The status of a run as plain lines. Pure: from a small value to text."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import msgspec

from orchestrator.report.data import ReportData
from orchestrator.report.panel import doubts
from orchestrator.report.wording import (
    answer,
    beside,
    columns,
    duration,
    ending,
    fit,
    gates,
    mock_notice,
    plural,
    policy,
    precision,
    printable,
    usd,
)

WIDTH = 100
"""No status line is wider."""

_BAR = 16
_NAME_COLUMNS = 20


@dataclass(frozen=True, slots=True, kw_only=True)
class JudgeProgress:
    """The part of one judge, or of one system under test.

    `limit` is how many calls at a time it is allowed now, 0 where that is not known; `state` says
    whether it takes questions ("ok", "down: ..."), `waiting` what its next call waits for, empty if
    nothing ("429: waiting 6.2 s (server asked 6)", "rate: 16 rpm, next in 3.2 s").
    """

    name: str
    asked: int = 0
    answered: int = 0
    in_flight: int = 0
    state: str = "ok"
    limit: int = 0
    waiting: str = ""
    is_system: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    """How a run stands now; kept in the log's progress row, so that `status` folds nothing.

    Parameters
    ----------
    state : `running`, `paused` or a final state
    n_told : questions that came to their end, the missing ones included: those to judges, or to systems
        where nothing is judged
    n_generated : answers of systems that are judged; `lost`, by reason, those that did not come
    n_cached : answers that came from the cache
    n_open : asked and not told, of which `in_flight` are with a judge at this moment
    settled, held, uncertain, cap : nano-USD
    missing : of what is told, by reason
    headline : the primary estimate in words
    half_width, target : of the primary estimate; None where unknown or not set
    waiting : why nothing moves, empty if that follows from the counts
    """

    name: str = ""
    run: str = ""
    state: str = "running"
    n_asked: int = 0
    n_told: int = 0
    n_cached: int = 0
    n_open: int = 0
    in_flight: int = 0
    settled: int = 0
    held: int = 0
    uncertain: int = 0
    cap: int | None = None
    missing: Mapping[str, int] = field(default_factory=dict)
    n_generated: int = 0
    lost: Mapping[str, int] = field(default_factory=dict)
    judges: tuple[JudgeProgress, ...] = ()
    headline: str = ""
    half_width: float | None = None
    target: float | None = None
    waiting: str = ""
    elapsed_s: float = 0.0
    mock: bool = False

    @property
    def n_missing(self) -> int:
        """How many questions have no verdict."""
        return sum(self.missing.values())

    @property
    def n_answered(self) -> int:
        """How many questions have one."""
        return self.n_told - self.n_missing

    @property
    def n_lost(self) -> int:
        """How many answers that were to be judged did not come."""
        return sum(self.lost.values())

    @property
    def judges_systems(self) -> bool:
        """Whether verdicts are on answers that systems give meanwhile."""
        return len({one.is_system for one in self.judges}) > 1

    def to_json(self) -> bytes:
        """Encode for the progress row."""
        return msgspec.json.encode(self)

    @staticmethod
    def from_json(data: bytes) -> Progress:
        """Decode a progress row; keys of later versions are passed over.

        Raises
        ------
        ValueError
            Not a progress row.
        """
        return _decode(data)


_decode = msgspec.json.Decoder(Progress).decode


def why_waiting(progress: Progress) -> str:
    """Say what the run waits for, judge by judge where one waits; empty when it is over."""
    judges = [f"{judge.name} {judge.waiting}" for judge in progress.judges if judge.waiting]
    match progress.state:
        case "running" if judges and not progress.in_flight and not progress.waiting:
            counts = ""
        case "running" | "paused":
            counts = progress.waiting or _outstanding(progress)
        case _:
            counts, judges = progress.waiting, []
    return printable("; ".join(filter(None, (counts, *judges))))


def _outstanding(progress: Progress) -> str:
    """Say what is under way, by the counts alone."""
    under_way = f"{plural(progress.in_flight, 'answer')} under way"
    if progress.state == "paused":
        return f"paused by the user; {under_way}"
    if progress.in_flight:
        return under_way
    if progress.n_open:
        return f"{plural(progress.n_open, 'question')} held, none with a judge yet"
    return "nothing is outstanding; the next question is being chosen"


def status_lines(progress: Progress) -> list[str]:
    """Write the status, at most `WIDTH` columns a line."""
    mock, waits = "mock  " if progress.mock else "", why_waiting(progress)
    name = fit(printable(progress.name), 40)
    lines = [
        f"{name}  {mock}{progress.state}  {printable(progress.run)}  "
        f"{duration(progress.elapsed_s)}".strip(),
        _money_line(progress),
        _precision_line(progress),
        _counts_line(progress),
        _missing_line(progress),
        f"waiting  {waits}" if waits else "",
        # Last, since what does not fit on a low screen is cut off from the end.
        *_judge_lines(progress),
    ]
    return [fit(line, WIDTH) for line in lines if line]


def _counts_line(progress: Progress) -> str:
    counts = f"cached {progress.n_cached:,}   asked {progress.n_asked:,}   open {progress.n_open:,}"
    if not progress.judges_systems:
        return f"answers {progress.n_answered:,}   {counts}   missing {progress.n_missing:,}"
    return (
        f"verdicts {progress.n_answered:,}, missing {progress.n_missing:,}"
        f"   answers of systems {progress.n_generated:,}, missing {progress.n_lost:,}   {counts}"
    )


def one_line(progress: Progress) -> str:
    """Write the status on one line, as the plain display prints it now and then."""
    mock = "mock  " if progress.mock else ""
    cap = "" if progress.cap is None else f" of {usd(progress.cap, 2)}"
    width = "" if progress.half_width is None else f"  half-width {progress.half_width:.3g}"
    target = "" if progress.target is None else f" (target {progress.target:g})"
    cached = f" ({progress.n_cached:,} cached)" if progress.n_cached else ""
    waits = why_waiting(progress)
    what, of_systems = "answers", ""
    if progress.judges_systems:
        what = "verdicts"
        of_systems = f"; {progress.n_generated:,} answers of systems, {progress.n_lost:,} missing"
    return printable(
        f"{duration(progress.elapsed_s)}  {mock}{progress.state}  "
        f"{progress.n_answered:,} {what}{cached}, {progress.n_missing:,} missing{of_systems}  "
        f"{usd(progress.settled)} + {usd(progress.held)} held + "
        f"{usd(progress.uncertain)} uncertain{cap}{width}{target if width else ''}"
        f"{f'  waiting: {waits}' if waits else ''}"
    )


def _money_line(progress: Progress) -> str:
    line = (
        f"spend  {usd(progress.settled)} settled + {usd(progress.held)} held + "
        f"{usd(progress.uncertain)} uncertain"
    )
    if progress.cap is None:
        return f"{line}, no cap"
    used = progress.settled + progress.held + progress.uncertain
    share = used / progress.cap if progress.cap else 1.0
    full = min(_BAR, int(share * _BAR))
    bar = "#" * full + "-" * (_BAR - full)
    return f"{line} of {usd(progress.cap, 2)}  [{bar}] {share:6.1%}"


def _precision_line(progress: Progress) -> str:
    parts = [
        "" if progress.target is None else f"target half-width {progress.target:g}",
        "" if progress.half_width is None else f"now {progress.half_width:.3g}",
        printable(progress.headline),
    ]
    return "   ".join(part for part in parts if part)


def _missing_line(progress: Progress) -> str:
    if not progress.n_missing:
        return ""
    reasons = "  ".join(f"{reason} {n:,}" for reason, n in progress.missing.items() if n)
    return f"missing {progress.n_missing / progress.n_told:.1%}: {reasons}"


def _judge_lines(progress: Progress) -> list[str]:
    if not progress.judges:
        return []
    names = [fit(printable(judge.name), _NAME_COLUMNS) for judge in progress.judges]
    kinds = dict.fromkeys("system" if one.is_system else "judge" for one in progress.judges)
    first = " or ".join(kinds)
    wide = max(map(columns, (first, *names)))
    head = f"{'asked':>9}  {'answered':>9}  {'in flight':>9}  {'limit':>5}  state"
    lines = [f"{first:<{wide}}  {head}"]
    for name, judge in zip(names, progress.judges, strict=True):
        pad = " " * (wide - columns(name))
        limit = f"{judge.limit:,}" if judge.limit else ""
        state = judge.waiting or judge.state
        lines.append(
            f"{name}{pad}  {judge.asked:>9,}  {judge.answered:>9,}  {judge.in_flight:>9,}  "
            f"{limit:>5}  {printable(state)}"
        )
    return lines


def _answers(data: ReportData) -> str:
    """Count what came and what is missing, of systems and judges apart, and what a key decided."""
    if not data.systems and not any(judge.keyed for judge in data.judges):
        return f"{plural(data.counts.answered, 'answer')}, {data.counts.n_missing:,} missing"
    return "; ".join(
        f"{role}s: {plural(fate.answered - fate.keyed, 'answer')}, "
        f"{f'{fate.keyed:,} by the key, ' if fate.keyed else ''}"
        f"{sum(fate.missing.values()):,} missing"
        for role, fate in data.counts.by_role.items()
    )


def closing_lines(data: ReportData) -> list[str]:
    """Say what a run came to: the answer, the money, why it ended."""
    spend = data.spend
    cap = "" if spend.cap is None else f" of {usd(spend.cap, 2)}"
    held = f" + {usd(spend.held, 6)} still held" if spend.held else ""
    lines = [
        mock_notice(data),
        answer(data),
        beside(data),
        *gates(data),
        *policy(data),
        *doubts(data),
        precision(data),
        ending(data),
        (
            f"spend   {usd(spend.settled, 6)} settled + {usd(spend.uncertain, 6)} uncertain{held}{cap}"
            f"; {_answers(data)}"
        ),
        f"run     {data.run}   fingerprint {data.fingerprint or 'none yet'}",
    ]
    return [printable(line) for line in lines if line]
