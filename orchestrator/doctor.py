"""Try each judge with one tiny question, in a campaign of its own under its own cap.

It goes through the very engine of a real run, so the money is in a log, and what works here works
there. A judge whose model the capability table does not hold, and that gives no verdict by the
first route, is asked again by the next one.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from decimal import Decimal
from pathlib import Path
from typing import Any, NamedTuple, assert_never

import anyio

from judges.capabilities import AUTO, capability, decoding_for, resolve_route
from orchestrator import keys, rundir
from orchestrator.build import decoding_of
from orchestrator.campaign import Campaign
from orchestrator.campaign_file import Judge
from orchestrator.config import CampaignFile, load_campaign
from orchestrator.core.errors import BudgetTooSmall, ConfigError, InvalidCampaign
from orchestrator.core.events import Arrived, Asked, Declined, JudgeDown
from orchestrator.core.money import NANO_PER_USD, Nano, format_usd
from orchestrator.core.query import Judged, Missing, MissingReason
from orchestrator.core.wire import Json, Route, Usage
from orchestrator.report.data import Charge
from orchestrator.session import Result

QUESTION = Path(__file__).with_name("probe.jsonl")

NOT_ASKED = "not_asked"
"""In the place of a reason: the cap did not suffice for this judge too."""

_BY_FORM = {MissingReason.BAD_REQUEST, MissingReason.PARSE_FAILURE, MissingReason.EMPTY}
"""Reasons that another route may do away with."""

_REMEDIES: Mapping[str, str] = {
    MissingReason.TRUNCATED: "raise params.max_output_tokens: hidden reasoning counts too",
    MissingReason.RATE_LIMITED: "try again later, or set limits.rpm and the like",
    MissingReason.TIMEOUT: "raise timeouts.attempt",
    MissingReason.CONNECTION_LOST: "check base_url, proxy and network",
    NOT_ASKED: "raise --budget-usd",
}

_PATIENCE_S = 5
"""How long a judge may keep us waiting; a real run has the patience of its file."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Diagnosis:
    """What came of asking one judge.

    `verdict` is None without one; then `reason` and `detail` say why. `route` is the last one tried
    and `tried` those before it; `is_known` says whether the capability table holds the model.
    `dropped` are parameters that the model does not take. `cost` is certainly billed, `uncertain`
    charged until proven free. `mass` is the probability of all labels, where logprobs are asked
    for. `limited_s` was waited for a limit of the rate.
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

    @property
    def remedy(self) -> str:
        """What to do about a missing verdict, as far as the reason tells."""
        return _REMEDIES.get(self.reason, "")


@dataclass(frozen=True, slots=True, kw_only=True)
class Examination:
    """What came of asking all judges, in which runs, and under which cap."""

    diagnoses: tuple[Diagnosis, ...]
    directories: tuple[Path, ...]
    cap: Nano

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
            "cap_nano_usd": self.cap,
            "charged_nano_usd": self.charged,
            "directories": [str(directory) for directory in self.directories],
            "settings": self.settings,
            "judges": [
                asdict(found) | {"well": found.is_well, "remedy": found.remedy}
                for found in self.diagnoses
            ],
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
) -> Examination:
    """Ask every judge of a campaign file that is not recorded.

    `mock` puts a mock in the place of each; then no key is needed.

    Raises
    ------
    ConfigError
        A key is missing, a parameter is refused although `strict_params`, the cap is too small for
        the first call, or the file has problems. Nothing was sent.
    """
    file = load_campaign(path, overrides=overrides, environ=environ)
    if not mock and (problems := list(keys.missing(file, environ))):
        raise InvalidCampaign(problems)
    patients = list(_patients(file))
    if not patients:
        raise ConfigError("every judge is recorded, so there is none to ask; nothing was sent")
    wanted = file.campaign.task.output.route
    found: dict[str, Diagnosis] = {}
    directories: list[Path] = []
    left = cap
    for route in _IN_TURN if wanted == AUTO else (wanted,):
        asked = [one for one in patients if _is_to_ask(one, found.get(one.judge.name), route)]
        if not asked:
            continue
        probe = _probe(file, asked, route, left)
        try:
            campaign = Campaign.from_yaml(path, probe, mock=mock, environ=environ)
            result = anyio.run(_carried_out, campaign, len(asked))
        except BudgetTooSmall as exc:
            if not found:
                raise ConfigError(f"{exc}; raise --budget-usd") from exc
            break
        directories.append(result.directory)
        left = Nano(left - result.data.spend.settled - result.data.spend.uncertain)
        for patient in asked:
            name = patient.judge.name
            found[name] = _diagnosis(patient, route, result, found.get(name))
        if left <= 0:
            break
    return Examination(diagnoses=tuple(found.values()), directories=tuple(directories), cap=cap)


class _Patient(NamedTuple):
    """A judge as loaded and as written, and the parameters that its model does not take."""

    judge: Judge
    written: dict[str, Any]
    dropped: tuple[str, ...]


def _patients(file: CampaignFile) -> Iterator[_Patient]:
    for judge, written in zip(file.campaign.judges, file.section("judges"), strict=True):
        if judge.adapter != "recorded":
            _, dropped = decoding_for(judge.adapter, judge.model, decoding_of(judge))
            yield _Patient(judge, written, dropped)


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
        "name": "doctor",
        "data": {
            "path": str(QUESTION),
            "fields": {"question": "question", "candidate": "candidate"},
        },
        "judge_defaults": {},
        "judges": [_asked_once(patient.written) for patient in patients],
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


async def _carried_out(campaign: Campaign, n_judges: int) -> Result:
    """Carry a campaign out; end it where nothing is left but to wait for a judge to come back."""
    async with campaign.open() as run:
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
                is_waiting = False
                run.interrupt()
    assert run.result is not None  # all its events have been read
    return run.result


def _asked_once(written: dict[str, Any]) -> dict[str, Any]:
    waits = {"patience": _PATIENCE_S, "max_wait": _PATIENCE_S}
    once = written | {
        "max_attempts": 1,
        "timeouts": (written.get("timeouts") or {}) | waits,
    }
    if isinstance(mock := written.get("mock"), dict):
        # The truth is a column of the campaign's own data.
        once["mock"] = {key: value for key, value in mock.items() if key != "truth"}
    return once


def _diagnosis(
    patient: _Patient, route: str, result: Result, earlier: Diagnosis | None
) -> Diagnosis:
    judge = patient.judge
    nothing = Charge(settled=Nano(0), uncertain=Nano(0))
    charge = result.data.spend.by_judge.get(judge.name, nothing)
    return Diagnosis(
        judge=judge.name,
        adapter=judge.adapter,
        model=judge.model,
        is_known=capability(judge.adapter, judge.model).is_known,
        route=resolve_route(judge.adapter, judge.model, route, decoding_of(judge)),
        tried=() if earlier is None else (*earlier.tried, earlier.route),
        dropped=patient.dropped,
        cost=Nano(charge.settled + (earlier.cost if earlier else 0)),
        uncertain=Nano(charge.uncertain + (earlier.uncertain if earlier else 0)),
        **_outcome(judge.name, result),
    )


def _outcome(name: str, result: Result) -> dict[str, Any]:
    """Read what the log says of a judge's one question."""
    judges = [judge.name for judge in result.data.judges]
    with rundir.reading(result.directory) as reader:
        events = [row.event for row in reader.read()]
    asked = {event.q: judges[event.query.judge] for event in events if isinstance(event, Asked)}
    said: dict[str, Any] = {"reason": NOT_ASKED}
    for event in events:
        match event:
            case Declined(query=query, hold=hold) if judges[query.judge] == name:
                said = {
                    "reason": NOT_ASKED,
                    "detail": f"one call can cost {format_usd(hold)}, more than is left",
                }
            case JudgeDown(judge=ix, why=why) if judges[ix] == name:
                said = said | {"reason": str(MissingReason.JUDGE_DOWN), "detail": why}
            case Arrived(q=q, outcome=outcome) if asked[q] == name:
                said = _arrived(outcome) | {"took_s": event.took_s, "limited_s": event.limited_s}
            case _:
                pass
    return said


def _arrived(outcome: Judged | Missing) -> dict[str, Any]:
    said = {"request_id": outcome.request_id, "usage": outcome.usage}
    match outcome:
        case Judged():
            (seen,) = outcome.observations
            return said | {
                "verdict": seen.value,
                "mass": seen.mass,
                "served_model": outcome.served_model,
                "flags": outcome.flags,
            }
        case Missing():
            return said | {"reason": str(outcome.reason), "detail": outcome.detail}
        case _:
            assert_never(outcome)
