"""Try each judge with one tiny question, in a campaign of its own under its own cap.

It goes through the very engine of a real run, so the money is in a log, and what works here works
there. A judge whose model the capability table does not hold, and that gives no verdict by the
first route, is asked again by the next one.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from decimal import Decimal
from pathlib import Path
from typing import Any, NamedTuple, assert_never

import anyio

from judges.capabilities import AUTO, capability, decoding_for, resolve_route
from orchestrator import access, keys, rundir
from orchestrator.build import decoding_of
from orchestrator.campaign import Campaign, Run
from orchestrator.campaign_file import LIVE, Judge
from orchestrator.config import CampaignFile, load_campaign
from orchestrator.core.errors import (
    BadCredentials,
    BudgetTooSmall,
    ConfigError,
    InvalidCampaign,
    JudgeError,
    Problem,
    UnknownModel,
)
from orchestrator.core.events import (
    Arrived,
    Asked,
    Declined,
    Event,
    Forfeited,
    Freed,
    JudgeDown,
    Late,
    Parked,
    Reasked,
    Sent,
    Told,
    Withdrawn,
)
from orchestrator.core.ids import JudgeIx, QNo
from orchestrator.core.money import NANO_PER_USD, Nano, format_usd
from orchestrator.core.query import Judged, Missing, MissingReason, Outcome
from orchestrator.core.wire import Json, Route, Usage
from orchestrator.report.data import Charge, State
from orchestrator.session import Result
from orchestrator.store.archive import recall
from orchestrator.store.sqlite import SqliteReader
from orchestrator.task import KEY
from orchestrator.wording import visible

QUESTION = Path(__file__).with_name("probe.jsonl")

NOT_ASKED = "not_asked"
"""In the place of a reason: the cap did not suffice for this judge too."""

INTERRUPTED = "interrupted"
"""In the place of a reason: the user ended the examination before the answer came."""

_BY_FORM = {MissingReason.BAD_REQUEST, MissingReason.PARSE_FAILURE, MissingReason.EMPTY}
"""Reasons that another route may do away with."""

_REMEDIES: Mapping[str, str] = {
    MissingReason.TRUNCATED: "raise params.max_output_tokens: hidden reasoning counts too",
    MissingReason.RATE_LIMITED: "try again later, or set limits.rpm and the like",
    MissingReason.TIMEOUT: "check base_url; if the server is only slow, raise timeouts.attempt",
    MissingReason.CONNECTION_LOST: "check base_url, proxy and network",
    NOT_ASKED: "raise --budget-usd",
}

_PATIENCE_S = 5
"""How long a judge may keep us waiting; a real run has the patience of its file."""

_ATTEMPT_S = 60.0
"""How long an attempt may take here; a real run waits as long as its file says."""

_POLL_S = 0.25
_SLOW_S = 10.0
"""After so long the user is told what we wait for."""

_QUOTED = 200
"""How many characters of a reply without a verdict are shown."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Diagnosis:
    """What came of asking one judge.

    `verdict` is None without one; then `reason` and `detail` say why. `route` is the last one tried
    and `tried` those before it; `is_known` says whether the capability table holds the model.
    `dropped` are parameters that the model does not take. `cost` is certainly billed, `uncertain`
    charged until proven free. `mass` is the probability of all labels, where logprobs are asked
    for. `limited_s` was waited for a limit of the rate. `said` is how a reply without a verdict
    begins, if replies are kept. `remedy` says what to do, as far as the reason tells; `wait_s` is
    for how long the server asked not to be asked again.
    """

    judge: str
    adapter: str
    model: str
    is_known: bool
    route: Route
    tried: tuple[Route, ...]
    dropped: tuple[str, ...]
    cost: Nano
    uncertain: Nano
    verdict: float | None = None
    reason: str = ""
    detail: str = ""
    said: str = ""
    remedy: str = ""
    wait_s: float | None = None
    served_model: str = ""
    request_id: str = ""
    usage: Usage | None = None
    mass: float | None = None
    flags: tuple[str, ...] = ()
    took_s: float = 0.0
    limited_s: float = 0.0

    @property
    def is_well(self) -> bool:
        """Whether the judge gave a verdict."""
        return self.verdict is not None


@dataclass(frozen=True, slots=True, kw_only=True)
class Examination:
    """What came of asking all judges, in which runs, and under which cap.

    `is_interrupted` says whether the user ended it early.
    """

    diagnoses: tuple[Diagnosis, ...]
    directories: tuple[Path, ...]
    cap: Nano
    is_interrupted: bool = False

    @property
    def is_well(self) -> bool:
        """Whether every judge gave a verdict."""
        return all(diagnosis.is_well for diagnosis in self.diagnoses)

    @property
    def charged(self) -> Nano:
        """What was charged, uncertain charges included."""
        return Nano(sum(diagnosis.cost + diagnosis.uncertain for diagnosis in self.diagnoses))

    @property
    def settings(self) -> dict[str, str]:
        """Keys that the campaign file needs for its judges to work as they did here.

        All judges have one route, so it is the one that asks least of a model.
        """
        needed = {found.route for found in self.diagnoses if found.is_well and found.tried}
        route = next((route for route in reversed(_IN_TURN) if route in needed), None)
        return {} if route is None else {"task.output.route": str(route)}

    def as_json(self) -> dict[str, Json]:
        """Write it as JSON values, money in nano-USD."""
        return {
            "well": self.is_well,
            "interrupted": self.is_interrupted,
            "cap_nano_usd": self.cap,
            "charged_nano_usd": self.charged,
            "directories": [str(directory) for directory in self.directories],
            "settings": self.settings,
            "judges": [asdict(found) | {"well": found.is_well} for found in self.diagnoses],
        }


_IN_TURN = (AUTO, Route.TOOL, Route.TEXT)
"""What is tried where the file leaves the route open; the first of auto is the schema if any."""


def examine(
    path: Path,
    overrides: Mapping[str, object],
    *,
    cap: Nano,
    environ: Mapping[str, str],
    mock: bool = False,
    notice: Callable[[str], None],
) -> Examination:
    """Ask every judge of a campaign file that is not recorded.

    `mock` puts a mock in the place of each; then no key is needed. `notice` hears what is waited
    for, where that takes long or the user interrupts.

    Raises
    ------
    ConfigError
        A key is missing, a parameter is refused although `strict_params`, the cap is too small for
        the first call, or the file has problems. Nothing was sent.
    """
    file = load_campaign(path, overrides=overrides, environ=environ)
    if not mock and (problems := list(keys.missing(file, environ))):
        raise InvalidCampaign(problems)
    patients = _patients(file)
    if not patients:
        raise ConfigError(
            "no judge and no system is live, so there is none to ask; nothing was sent"
        )
    wanted = file.campaign.task.output.route
    found: dict[str, Diagnosis] = {}
    directories: list[Path] = []
    left, is_interrupted = cap, False
    for route in _IN_TURN if wanted == AUTO else (wanted,):
        asked = [one for one in patients if _is_to_ask(one, found.get(one.judge.name), route)]
        if not asked:
            continue
        probe = _probe(file, asked, route, left)
        try:
            campaign = Campaign.from_yaml(path, probe, mock=mock, environ=environ)
            result, is_interrupted = anyio.run(_carried_out, campaign, len(asked), notice)
        except BudgetTooSmall as exc:
            if not found:
                raise ConfigError(f"{exc}; raise --budget-usd") from exc
            break
        directories.append(result.directory)
        for patient in asked:
            name = patient.judge.name
            found[name] = _diagnosis(patient, route, result, found.get(name), environ)
        left = Nano(cap - sum(one.cost + one.uncertain for one in found.values()))
        if left <= 0 or is_interrupted:
            break
    return Examination(
        diagnoses=tuple(found.values()),
        directories=tuple(directories),
        cap=cap,
        is_interrupted=is_interrupted,
    )


class _Patient(NamedTuple):
    """A judge as loaded and as written, and the parameters that its model does not take."""

    judge: Judge
    written: dict[str, Any]
    dropped: tuple[str, ...]


def _patients(file: CampaignFile) -> list[_Patient]:
    patients: list[_Patient] = []
    problems: list[Problem] = []
    # A system is examined like a judge: what is asked about is its key, its model, its parameters.
    written_down = [*file.section("judges"), *(file.section("systems") or ())]
    for ix, (judge, written) in enumerate(zip(file.campaign.asked, written_down, strict=True)):
        written.pop("prompt", None)
        if judge.adapter in {"recorded", KEY}:
            continue
        try:
            _, dropped = decoding_for(judge.adapter, judge.model, decoding_of(judge))
        except ConfigError as exc:
            place = f"{file.campaign.place(ix)}.params"
            problems.append(file.locate(place, f'{exc} (in "{judge.name}")'))
        else:
            patients.append(_Patient(judge, written, dropped))
    if problems:
        raise InvalidCampaign(problems)
    return patients


def _is_to_ask(patient: _Patient, earlier: Diagnosis | None, route: str) -> bool:
    """Say whether a judge takes part: at first, and while its model is unknown and another may do."""
    if earlier is None:
        return True
    judge = patient.judge
    return (
        not earlier.is_known
        and earlier.reason in _BY_FORM
        and route != earlier.route
        and route in capability(judge.adapter, judge.model).routes
    )


def _probe(
    file: CampaignFile, patients: Sequence[_Patient], route: str, cap: Nano
) -> dict[str, object]:
    """Put a question of ours in the place of all that the campaign file asks.

    Each judge is asked once, however many attempts it has in the file.
    """
    output = file.section("output") or {}
    return {
        "name": rundir.EXAMINATION,
        "data": {
            "path": str(QUESTION),
            "fields": {"question": "question", "candidate": "candidate"},
        },
        "judge_defaults": {},
        "judges": [_asked_once(patient) for patient in patients],
        "systems": [],
        "task": {
            "kind": "rate",
            "rubric": "Is the candidate a right answer to the question? 1 is wrong, 5 is right.",
            "scale": {"type": "integer", "min": 1, "max": 5},
            "output": {"route": str(route)},
        },
        "policy": {"kind": "uniform", "max_repeats": 1},
        "budget": {"usd": f"{Decimal(cap) / NANO_PER_USD:f}"},
        "stop": {},
        "estimate": [],
        "gate": [],
        "cache": None,
        "labels": None,
        "output": {key: output[key] for key in ("dir", "keep") if key in output} | {"formats": []},
    }


async def _carried_out(
    campaign: Campaign, n_judges: int, notice: Callable[[str], None]
) -> tuple[Result, bool]:
    """Carry a campaign out; end it where nothing is left but to wait for a judge to come back.

    Says whether the user interrupted it.
    """
    has_given_up = False
    async with campaign.open() as run, anyio.create_task_group() as watch:
        grace_s = campaign.file.campaign.shutdown.grace
        watch.start_soon(_tell_of_waiting, run, grace_s, notice)
        unheard, asked, is_waiting = set(range(n_judges)), {}, False
        async for event in run:
            match event:
                case Asked(q=q, query=query):
                    asked[q] = query.judge
                case Arrived(q=q):
                    unheard.discard(asked[q])
                case Declined(query=query):
                    unheard.discard(query.judge)
                case JudgeDown(judge=judge, until=until):
                    unheard.discard(judge)
                    is_waiting = is_waiting or until is not None
                case _:
                    pass
            if is_waiting and not unheard:
                is_waiting, has_given_up = False, True
                run.interrupt()
        watch.cancel_scope.cancel()
    assert run.result is not None  # all its events have been read
    return run.result, run.result.data.state is State.INTERRUPTED and not has_given_up


async def _tell_of_waiting(run: Run, grace_s: float, notice: Callable[[str], None]) -> None:
    """Say once that answers are slow, and once that the user's interrupt waits for them."""
    began = anyio.current_time()
    is_said_slow = False
    while True:
        await anyio.sleep(_POLL_S)
        n = run.progress.in_flight
        if not n:
            continue
        answers = f"waiting for {n} answer{'s' if n > 1 else ''}"
        if run.is_draining:
            notice(
                f"{answers}, {grace_s:g} s at most; a second interrupt ends it at once, and what "
                "is under way is charged until proven free"
            )
            return
        if not is_said_slow and anyio.current_time() - began >= _SLOW_S:
            is_said_slow = True
            notice(answers)


def _asked_once(patient: _Patient) -> dict[str, Any]:
    written = patient.written
    waits = {
        "patience": _PATIENCE_S,
        "max_wait": _PATIENCE_S,
        "attempt": min(patient.judge.timeouts.attempt, _ATTEMPT_S),
    }
    once = written | {
        "max_attempts": 1,
        "timeouts": (written.get("timeouts") or {}) | waits,
    }
    if isinstance(mock := written.get("mock"), dict):
        # The truth is a column of the campaign's own data, and the scale is not its own.
        once["mock"] = {k: v for k, v in mock.items() if k not in {"truth", "log_odds"}}
    return once


def _diagnosis(
    patient: _Patient,
    route: str,
    result: Result,
    earlier: Diagnosis | None,
    environ: Mapping[str, str],
) -> Diagnosis:
    judge = patient.judge
    ix = JudgeIx([one.name for one in result.data.judges].index(judge.name))
    with rundir.reading(result.directory) as reader:
        outcome = _outcome(ix, reader)
        left_open = _left_open(ix, (row.event for row in reader.read()))
    nothing = Charge(settled=Nano(0), uncertain=Nano(0))
    charges = [result.data.spend.by_judge.get(judge.name, nothing), left_open]
    return Diagnosis(
        judge=judge.name,
        adapter=judge.adapter,
        model=judge.model,
        is_known=capability(judge.adapter, judge.model).is_known,
        route=resolve_route(judge.adapter, judge.model, route, decoding_of(judge)),
        tried=() if earlier is None else (*earlier.tried, earlier.route),
        dropped=patient.dropped,
        cost=Nano(sum(one.settled for one in charges) + (earlier.cost if earlier else 0)),
        uncertain=Nano(
            sum(one.uncertain for one in charges) + (earlier.uncertain if earlier else 0)
        ),
        remedy=_remedy(judge, outcome, environ),
        **outcome,
    )


def _left_open(judge: JudgeIx, events: Iterator[Event]) -> Charge:
    """Charge what an interrupt left open: what came and was not told, what was sent and never came.

    A run's own account still holds it, for a resume that an examination never has.
    """
    holds: dict[QNo, Nano] = {}
    sent: set[QNo] = set()
    came: dict[QNo, Outcome] = {}
    for event in events:
        match event:
            case Asked(q=q, query=query, hold=hold) if query.judge == judge:
                holds[q] = hold
            case Sent(q=q):
                sent.add(q)
            case Freed(q=q):
                sent.discard(q)
            case Arrived(q=q, outcome=outcome):
                came[q] = outcome
            case Reasked(q=q, hold=hold) if q in holds:
                holds[q] = hold
                sent.discard(q)
                came.pop(q, None)
            case Told(q=q) | Parked(q=q) | Withdrawn(q=q) | Late(q=q) | Forfeited(q=q):
                holds.pop(q, None)
            case _:
                pass
    lost = sum(hold for q, hold in holds.items() if q in sent and q not in came)
    outcomes = [came[q] for q in holds if q in came]
    unknown = sum(outcome.uncertain for outcome in outcomes if isinstance(outcome, Missing))
    return Charge(
        settled=Nano(sum(outcome.cost for outcome in outcomes)), uncertain=Nano(lost + unknown)
    )


def _outcome(judge: JudgeIx, reader: SqliteReader) -> dict[str, Any]:
    """Read what the log says of a judge's one question."""
    asked: set[QNo] = set()
    told: dict[str, Any] = {"reason": NOT_ASKED}
    for row in reader.read():
        match row.event:
            case Asked(q=q, query=query) if query.judge == judge:
                asked.add(q)
                told = {"reason": INTERRUPTED, "detail": "it was not sent"}
            case Sent(q=q) if q in asked:
                told = {"reason": INTERRUPTED, "detail": "it was sent, and no answer came"}
            case Declined(query=query, hold=hold) if query.judge == judge:
                told = {
                    "reason": NOT_ASKED,
                    "detail": f"one call can cost {format_usd(hold)}, more than is left",
                }
            case JudgeDown(judge=down, until=until, why=why) if down == judge:
                wait_s = None if until is None else until - row.at
                told |= {"reason": str(MissingReason.JUDGE_DOWN), "detail": why, "wait_s": wait_s}
            case Arrived(q=q, outcome=outcome, took_s=took_s, limited_s=limited_s) if q in asked:
                told = _arrived(outcome, reader) | {"took_s": took_s, "limited_s": limited_s}
            case _:
                pass
    return told


def _arrived(outcome: Outcome, reader: SqliteReader) -> dict[str, Any]:
    told = {"request_id": outcome.request_id, "usage": outcome.usage}
    match outcome:
        case Judged():
            (seen,) = outcome.observations
            return told | {
                "verdict": seen.value,
                "mass": seen.mass,
                "served_model": outcome.served_model,
                "flags": outcome.flags,
            }
        case Missing():
            reply = recall(reader, outcome.blob) if outcome.blob else None
            # The question is ours, so what the reply quotes of it is no secret.
            said = "" if reply is None else " ".join(reply.text[: 4 * _QUOTED].split())
            return told | {
                "reason": str(outcome.reason),
                "detail": outcome.detail,
                "said": visible(said if len(said) <= _QUOTED else f"{said[:_QUOTED]}…"),
            }
        case _:
            assert_never(outcome)


# --- what to do about it -----------------------------------------------------------------------


def _remedy(judge: Judge, told: Mapping[str, Any], environ: Mapping[str, str]) -> str:
    if (wait_s := told.get("wait_s")) is not None:
        return f"the server asked to wait {wait_s:.0f} s; try again then"
    reason, detail = told.get("reason", ""), told.get("detail", "")
    match reason:
        case MissingReason.JUDGE_DOWN if judge.adapter in LIVE:
            return _about_access(judge, _error(detail), environ)
        case MissingReason.BAD_REQUEST:
            return _about_params(judge, detail)
        case MissingReason.TIMEOUT if judge.timeouts.attempt > _ATTEMPT_S:
            return f"check base_url; a run would wait {judge.timeouts.attempt:g} s"
        case _:
            return _REMEDIES.get(reason, "")


def _error(detail: str) -> type[JudgeError]:
    """Tell from the words of a log what kind of error they are about."""
    from judges.live import classify  # noqa: PLC0415  # no other judge needs it

    if status := re.match(r"HTTP (\d{3}): ", detail):
        return type(classify((), int(status[1]), "", detail[status.end() :], {}))
    kinds = (BadCredentials, UnknownModel)
    return next((kind for kind in kinds if kind().plain == detail), JudgeError)


def _about_access(judge: Judge, error: type[JudgeError], environ: Mapping[str, str]) -> str:
    names = keys.variables_of(judge)
    url = access.base_url(judge, environ)
    if error is UnknownModel:
        where = f" and base_url: {access.plain(url)}" if url else ""
        return f"check model {judge.model}{where}"
    if error is not BadCredentials:
        return ""
    if names:
        used = next((name for name in names if environ.get(name)), " or ".join(names))
        return f"the key came from {used}: check it"
    if url != access.plain(url or ""):
        return "check the user and password in base_url"
    return "no key was sent: name the variable that holds it in api_key_env"


def _about_params(judge: Judge, detail: str) -> str:
    params = judge.params
    decoding = {"temperature": params.temperature, "top_p": params.top_p, "seed": params.seed}
    given = [name for name, value in decoding.items() if value is not None] + list(params.extra)
    named = [name for name in given if name in detail]
    if named:
        return f"take {', '.join(named)} out of params"
    if given and not capability(judge.adapter, judge.model).is_known:
        return f"if the model does not take {', '.join(given)}: take that out of params"
    return ""
