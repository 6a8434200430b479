"""Who answers in a rehearsal, and what is taken for granted about them.

A mock judge plays itself, a recording is served in another order, and any other judge is played by
a mock that is as noisy, as wordy and as unreliable as the file's `assume` says. What `assume` states
wins over a mock's own block. A system under test that is none of these gives short answers, right as
often as not. All draw from another seed than the run, so a plan is a prediction and no replay.
"""

from __future__ import annotations

import math
from collections.abc import Coroutine, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, overload

import numpy as np
from numpy.typing import NDArray

from orchestrator.build import TOKENS_PER_VERDICT, keys_of, kind_of, questions
from orchestrator.campaign_file import Judge as JudgeEntry
from orchestrator.campaign_file import System
from orchestrator.core.answers import Answers, Fields
from orchestrator.core.errors import JudgeError
from orchestrator.core.ids import JudgeIx, UnitIx
from orchestrator.core.judge import Judge
from orchestrator.core.money import Nano, cost
from orchestrator.core.ports import Adapter, JudgeSetting, Reading, Rubric, Unreadable
from orchestrator.core.query import Kind, Purpose, Query, Role
from orchestrator.core.seeds import Seeds, Stream
from orchestrator.core.study import Study
from orchestrator.core.wire import FIRST_ATTEMPT, Attempt, Chat, Reply, Request, Text, Usage
from orchestrator.engine.fold import Keyed
from orchestrator.engine.rehearse import Player
from orchestrator.report.planning import Assumption, Prompts
from orchestrator.task import KEY
from policies.subsample import SubsampleConfig

if TYPE_CHECKING:
    from judges.mock import MockConfig, MockJudge
    from judges.recorded import RecordedJudge
    from orchestrator.build import Blueprint

MEASURED_UNITS = 50
"""Prompts are measured on so many units."""

CHARACTERS_PER_TOKEN = 4.0
"""A rule of thumb for English text."""

DEFAULT_MISSING = 0.01
DEFAULT_OUTPUT_TOK = 100
DEFAULT_SD_SHARE = 1 / 8
"""Of the scale's range: half a point on a scale from 1 to 5."""

DEFAULT_RIGHT = 0.5
"""How often a system says what the key says: where right and wrong vary most."""

FIRST_TOKEN_S = 1.0
TOKENS_PER_S = 50.0
"""An answer is taken to come after the first, and then at the second of these paces."""

OTHER_SEED = 1 << 32
"""Added to the campaign's seed for a rehearsal."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StandIn:
    """A judge of a rehearsal and who plays it."""

    judge: Judge
    player: Player


def measured_prompts(blueprint: Blueprint) -> dict[int, Prompts]:
    """Measure the prompts of those who are neither mock nor recorded, by their place among the entries.

    Judges are shown the same, with an answer of the expected length where a system gives it; each system
    has a prompt of its own.
    """
    found: dict[int, Prompts] = {}
    of_judges: Prompts | None = None
    for ix, entry in enumerate(blueprint.entries):
        if _plays(blueprint, ix) != "assumed":
            continue
        if isinstance(entry, System):
            found[ix] = _prompts_of(blueprint, ix)
        else:
            of_judges = of_judges or _prompts_of(blueprint, ix)
            found[ix] = of_judges
    return found


def _prompts_of(blueprint: Blueprint, ix: int) -> Prompts:
    n_units, size = blueprint.study.frame.n_units, batch_size(blueprint, ix)
    rng = Seeds(blueprint.study.seeds.seed).stream(Stream.LAYOUT, ix + 1)
    n_measured = max(1, min(MEASURED_UNITS, n_units) // size) * size
    units = np.sort(rng.permutation(n_units)[:n_measured])
    rubric, answers = blueprint.crew.judges[ix].rubric, blueprint.crew.answers
    if answers is not None:
        for unit in units.tolist():
            answers.take(unit, "x" * _answer_length(blueprint, unit))
    questions = (_question(blueprint, ix, of_one) for of_one in units.reshape(-1, size))
    sizes = [_n_tok(rubric.render(question, FIRST_ATTEMPT)) for question in questions]
    if answers is not None:
        answers.clear()
    return Prompts(mean=float(np.mean(sizes)), sd=float(np.std(sizes)), n=n_measured)


def _answer_length(blueprint: Blueprint, unit: int) -> int:
    """Expect the characters of a system's answer."""
    systems = blueprint.file.campaign.systems
    system = systems[blueprint.study.frame.arm_of(UnitIx(unit))]
    return round(CHARACTERS_PER_TOKEN * _output_tok(system, 1))


def batch_size(blueprint: Blueprint, ix: int) -> int:
    """Say about how many units a call of a judge or system asks."""
    study = blueprint.study
    if kind_of(blueprint.file.campaign, ix) is not Kind.RATE_BATCH:
        return 1
    size: int | None = getattr(blueprint.file.campaign.policy.settings, "batch_size", None)
    return size or study.frame.n_units


def dearest_call(blueprint: Blueprint, judge: int) -> Nano:
    """Bound one call of a judge or system at its longest prompt."""
    crew, size = blueprint.crew, batch_size(blueprint, judge)
    at, card = crew.judges[judge], crew.opened.cards[judge]

    def ceiling(units: Sequence[int]) -> Nano:
        question = _question(blueprint, judge, units)
        return at.adapter.ceiling(at.rubric.render(question, FIRST_ATTEMPT), card)

    if _plays(blueprint, judge) != "assumed":
        return ceiling(range(size))
    if _is_system(blueprint, judge):
        return max(ceiling([unit]) for unit in _units_of_system(blueprint, judge))
    if blueprint.study.kind is Kind.COMPARE:
        pairs = questions(Kind.COMPARE, blueprint.study.frame)
        return max(ceiling(query.units) for query in pairs)
    by_unit = [ceiling([unit]) for unit in range(blueprint.study.frame.n_units)]
    if size == 1:
        return max(by_unit)
    return ceiling(np.argsort(by_unit, kind="stable")[-size:].tolist())


def stand_in(
    blueprint: Blueprint,
    judge: int,
    study: Study,
    units: Sequence[int],
    prompts: Mapping[int, Prompts],
) -> StandIn:
    """Find who plays a judge or a system.

    Parameters
    ----------
    judge : its index among the campaign's entries
    study : that of the rehearsal, with its own seed
    units : the campaign's unit for each unit of `study`
    prompts : as measured
    """
    real, entry = blueprint.crew.judges[judge], blueprint.entries[judge]
    answers = blueprint.crew.answers
    setting = JudgeSetting(
        name=entry.name,
        judge=_place(blueprint, judge, study),
        study=study,
        max_output_tok=entry.params.max_output_tokens,
        truth=_truth(blueprint, study, units),
        keys=None
        if answers is None or not isinstance(entry, System)
        else keys_of(blueprint.file.campaign.task, (answers[unit] for unit in units)),
        role=Role.SYSTEM if isinstance(entry, System) else Role.JUDGE,
        model=entry.model,
    )
    match _plays(blueprint, judge):
        case "key":
            rubric = _Unworded(real.rubric, _question(blueprint, judge, [0]), units)
            return StandIn(judge=replace(real, rubric=rubric), player=_Itself(real.adapter))
        case "mock":
            config = _itself(entry)
            played = _mock(config, setting)
            task = blueprint.file.campaign.task
            # What the order of criteria does to a verdict stands in the words alone.
            is_shuffled = getattr(task, "criteria_order", "fixed") == "random"
            minds_order = is_shuffled and config.order_effect
            own = _drawing_from(study.seeds, real.rubric)
            if not minds_order:
                own = _Unworded(own, _question(blueprint, judge, [0]), units)
            return StandIn(judge=replace(real, rubric=own, adapter=played), player=played)
        case "recorded":
            recording = _recording(entry, setting)
            unworded = _Unworded(real.rubric, _question(blueprint, judge, [0]), units)
            return StandIn(
                judge=replace(real, rubric=unworded, adapter=recording),
                player=_Shuffled(recording, study.seeds),
            )
        case _:
            config = _assumed(entry, study, prompts[judge], batch_size(blueprint, judge))
            if _passes_ceiling(config, blueprint, judge):
                # So is a bill booked that says nothing of its tokens: at the whole hold.
                faults = {"refused": _missing(entry), "usage_missing": 1.0 - _missing(entry)}
                config = config.model_copy(update={"faults": faults})
            own = _drawing_from(study.seeds, real.rubric)
            return StandIn(
                judge=replace(real, rubric=_Excerpt(own, judge, units)),
                player=_mock(config, setting),
            )


def assumptions(blueprint: Blueprint, prompts: Mapping[int, Prompts]) -> Iterator[Assumption]:
    """List what is taken for granted, one by one of those who can be asked, with its source."""
    for ix, entry in enumerate(blueprint.entries):
        match _plays(blueprint, ix):
            case "key":
                pass
            case "recorded":
                how = "recorded in" if keeps_order(blueprint) else "resampled from"
                where = f"{how} {entry.recorded.path.name}"
                what = "answers" if isinstance(entry, System) else "verdicts"
                yield Assumption(judge=entry.name, what=what, value=where, source="recording")
            case "mock":
                yield from _of_mock(entry, blueprint)
            case _:
                yield from _of_assumed(blueprint, ix, prompts[ix])
    judges = range(len(blueprint.file.campaign.judges))
    if any(_plays(blueprint, ix) not in {"recorded", "key"} for ix in judges):
        yield _of_items(blueprint)


def _plays(blueprint: Blueprint, judge: int) -> str:
    """Say how a judge or system is played: `key` (it is never asked), `mock`, `recorded`, or `assumed`."""
    adapter = blueprint.entries[judge].adapter
    if adapter == KEY:
        return "key"
    if adapter == "mock" or blueprint.crew.opened.identity["is_swapped"]:
        return "mock"
    return "recorded" if adapter == "recorded" else "assumed"


def keeps_order(blueprint: Blueprint) -> bool:
    """Say whether something is recorded of items whose order in the run is known beforehand.

    That of a benchmark hangs on the seed alone. A recording may hold the very items that it comes to.
    """
    is_subsample = isinstance(blueprint.file.campaign.policy.settings, SubsampleConfig)
    plays = {_plays(blueprint, ix) for ix in range(len(blueprint.entries))}
    return is_subsample and ("recorded" in plays or plays == {"key"})


def _is_system(blueprint: Blueprint, ix: int) -> bool:
    return isinstance(blueprint.entries[ix], System)


def _place(blueprint: Blueprint, ix: int, study: Study) -> JudgeIx:
    """Give an entry's number in a rehearsal, whose panel may lack some judges."""
    n_judges = len(blueprint.file.campaign.judges)
    if ix >= n_judges:
        return JudgeIx(len(study.panel) + ix - n_judges)
    name = blueprint.entries[ix].name
    return JudgeIx(next(at for at, p in enumerate(study.panel) if p.name == name))


def _units_of_system(blueprint: Blueprint, ix: int) -> range:
    """Give the units that a system answers: those of its own arm."""
    frame, arm = blueprint.study.frame, ix - len(blueprint.file.campaign.judges)
    return range(arm, frame.n_units, frame.n_arms)


class AnswersOf(Answers):
    """The answers to a part of the units, kept where the campaign's rubrics read them.

    Parameters
    ----------
    units : the campaign's unit for each of the part
    """

    def __init__(self, answers: Answers, units: Sequence[int]) -> None:
        self.name = answers.name
        self._whole, self._units = answers, units

    def __len__(self) -> int:
        return len(self._units)

    @overload
    def __getitem__(self, unit: int) -> Fields: ...
    @overload
    def __getitem__(self, unit: slice) -> Sequence[Fields]: ...
    def __getitem__(self, unit: int | slice) -> Fields | Sequence[Fields]:
        """Give the fields of a unit."""
        if isinstance(unit, slice):
            return [self[u] for u in range(*unit.indices(len(self)))]
        return self._whole[int(self._units[unit])]

    def text(self, unit: int) -> str | None:
        """Give the answer to a unit; None while there is none."""
        return self._whole.text(int(self._units[unit]))

    def take(self, unit: int, text: str) -> None:
        """Take in the answer to a unit."""
        self._whole.take(int(self._units[unit]), text)

    def clear(self) -> None:
        """Forget all answers."""
        self._whole.clear()

    @contextmanager
    def hidden(self, units: Sequence[int]) -> Iterator[None]:
        """Let units seem unanswered."""
        with self._whole.hidden([int(self._units[unit]) for unit in units]):
            yield


# --- rubrics -----------------------------------------------------------------------------------


def _drawing_from(seeds: Seeds, rubric: Rubric) -> Rubric:
    """Name the units of a batch as the mock does that is asked: by the seeds of the rehearsal."""
    from judges.rubrics.rate_batch import RateBatch  # noqa: PLC0415  # with jinja2

    return rubric.drawing_from(seeds) if isinstance(rubric, RateBatch) else rubric


class _Unworded:
    """A rubric that leaves the words out, for judges that read none and are not priced by them.

    What it decides without a judge is read from the campaign's own units.
    """

    def __init__(self, rubric: Rubric, first: Query, units: Sequence[int]) -> None:
        self._rubric, self._units = rubric, units
        self._patterns = [
            rubric.render(first, Attempt(widened=widened)) for widened in (False, True)
        ]

    def render(self, query: Query, attempt: Attempt) -> Request:
        """Make a request without parts."""
        like = self._patterns[attempt.widened]
        return Request(
            query=query,
            attempt=attempt,
            parts=(),
            max_output_tok=like.max_output_tok,
            schema=like.schema,
        )

    def known(self, query: Query) -> Reply | None:
        """Give the verdict that no call is needed for."""
        return _known(self._rubric, query, self._units)

    def read(self, query: Query, reply: Reply) -> Reading | Unreadable:
        """Read as ever."""
        return self._rubric.read(query, reply)


def _known(rubric: Rubric, query: Query, units: Sequence[int]) -> Reply | None:
    """Let a rubric decide about the campaign's own units, if it decides anything by itself."""
    return rubric.known(_of_campaign(query, units)) if isinstance(rubric, Keyed) else None


def _of_campaign(query: Query, units: Sequence[int]) -> Query:
    return replace(query, units=tuple(UnitIx(int(units[unit])) for unit in query.units))


class _Excerpt:
    """A rubric for a part of the items: renders the campaign's own units."""

    def __init__(self, rubric: Rubric, judge: int, units: Sequence[int]) -> None:
        self._rubric = rubric
        self._judge = JudgeIx(judge)
        self._units = units

    def render(self, query: Query, attempt: Attempt) -> Request:
        """Write the request of the unit as the campaign numbers it."""
        own = replace(_of_campaign(query, self._units), judge=self._judge)
        return replace(self._rubric.render(own, attempt), query=query)

    def known(self, query: Query) -> Reply | None:
        """Give the verdict that no call is needed for."""
        return _known(self._rubric, query, self._units)

    def read(self, query: Query, reply: Reply) -> Reading | Unreadable:
        """Read as ever."""
        return self._rubric.read(query, reply)


def _question(blueprint: Blueprint, judge: int, units: Iterable[int]) -> Query:
    """Ask about units; one that is alone is compared with that of the next arm."""
    asked = tuple(UnitIx(int(unit)) for unit in units)
    kind = kind_of(blueprint.file.campaign, judge)
    if kind is Kind.GENERATE:
        return Query(
            kind=kind,
            judge=JudgeIx(judge),
            units=asked,
            role=Role.SYSTEM,
            purpose=Purpose.GENERATE,
        )
    if kind is Kind.COMPARE and len(asked) == 1:
        frame = blueprint.study.frame
        other = (frame.arm_of(asked[0]) + 1) % frame.n_arms
        asked += (frame.unit(frame.item_of(asked[0]), other),)
    return Query(kind=kind, judge=JudgeIx(judge), units=asked)


def _n_tok(request: Request) -> float:
    texts = []
    for part in request.parts:
        match part:
            case Text(text=text):
                texts.append(text)
            case Chat(turns=turns):
                texts += [turn.content for turn in turns]
            case _:
                pass
    return sum(map(len, texts)) / CHARACTERS_PER_TOKEN


# --- players -----------------------------------------------------------------------------------


class _Itself:
    """Plays an adapter that waits for nothing by itself."""

    def __init__(self, adapter: Adapter) -> None:
        self._adapter = adapter

    def attempt(self, request: Request) -> tuple[Reply | JudgeError, float]:
        """Send to it."""
        return _at_once(self._adapter.send(request)), 0.0


class _Shuffled:
    """Serves a recording's repeats of each question in an order of its own.

    Draws from `stream(MOCK, 3, unit)` of the rehearsal's seeds.
    """

    def __init__(self, recording: RecordedJudge, seeds: Seeds) -> None:
        self._recording = recording
        self._seeds = seeds

    def attempt(self, request: Request) -> tuple[Reply | JudgeError, float]:
        """Serve another repeat than the one that is asked for, if there are several."""
        query = request.query
        n = self._recording.n_repeats(*query.units)
        if query.replicate < n:
            turned = int(self._seeds.stream(Stream.MOCK, 3, *query.units).integers(n))
            other = replace(query, replicate=(query.replicate + turned) % n)
            request = replace(request, query=other)
        return _at_once(self._recording.send(request)), 0.0


def _at_once(reply: Coroutine[Any, Any, Reply]) -> Reply | JudgeError:
    """Take the reply of a judge that waits for nothing."""
    try:
        reply.send(None)
    except StopIteration as end:
        answer: Reply = end.value
        return answer
    except JudgeError as error:
        return error
    raise AssertionError("a recording waits for nothing")


def _mock(config: MockConfig, setting: JudgeSetting) -> MockJudge:
    from judges.mock import MockJudge as Mock  # noqa: PLC0415  # only where one plays

    return Mock(config, setting)


def _recording(entry: JudgeEntry, setting: JudgeSetting) -> RecordedJudge:
    from judges.recorded import RecordedJudge as Recorded  # noqa: PLC0415  # only where one plays
    from orchestrator.recordings import source  # noqa: PLC0415  # the same

    if setting.role is Role.SYSTEM:
        return Recorded(entry.recorded, setting)
    recording = source(entry.recorded.path).recording
    return Recorded(entry.recorded, replace(setting, recording=recording))


def _truth(blueprint: Blueprint, study: Study, units: Sequence[int]) -> NDArray[np.float64] | None:
    if blueprint.truth is None:
        return None
    return np.repeat(blueprint.truth[list(units), np.newaxis], len(study.criteria), axis=1)


def _itself(entry: JudgeEntry) -> MockConfig:
    """Give a mock's own settings, but for what `assume` states."""
    from judges.mock import MockConfig as Config  # noqa: PLC0415  # only where one plays

    config, stated = entry.mock or Config(), entry.assume
    changes: dict[str, object] = {}
    if stated.sd is not None:
        changes["sd"] = stated.sd
    if stated.output_tokens is not None:
        changes["tokens"] = config.tokens.model_copy(update={"output": stated.output_tokens})
    if stated.missing is not None:
        changes["faults"] = {"refused": stated.missing}
    return config.model_copy(update=changes)


def _assumed(entry: JudgeEntry, study: Study, prompts: Prompts, size: int) -> MockConfig:
    """Give the settings of a mock that is like the judge as it is assumed to be.

    `size` is how many units a call asks about.
    """
    from judges.mock import Latency, Tokens  # noqa: PLC0415  # only where one plays
    from judges.mock import MockConfig as Config  # noqa: PLC0415

    stated, n_tok = entry.assume, _output_tok(entry, size)
    return Config(
        sd=_default_sd(study) if stated.sd is None else stated.sd,
        right=_right(entry)[0],
        faults={"refused": _missing(entry)},
        tokens=Tokens.model_validate({"in": round(prompts.mean), "out": n_tok}),
        latency=Latency(constant=FIRST_TOKEN_S + n_tok / TOKENS_PER_S),
        realtime=True,
    )


def _passes_ceiling(config: MockConfig, blueprint: Blueprint, judge: int) -> bool:
    """Whether the tokens assumed would cost more than the judge itself says is possible."""
    usage = Usage(input_tok=config.tokens.input, output_tok=config.tokens.output)
    card = blueprint.crew.opened.cards[judge]
    return cost(usage, card) > dearest_call(blueprint, judge)


def _right(entry: JudgeEntry) -> tuple[float, str]:
    """Say how often a system that is no mock is right, and where that is from."""
    if entry.mock is not None and "right" in entry.mock.model_fields_set:
        return entry.mock.right, "mock"
    return DEFAULT_RIGHT, "default"


def _output_tok(entry: JudgeEntry, size: int) -> int:
    stated = entry.assume.output_tokens
    likely = max(DEFAULT_OUTPUT_TOK, TOKENS_PER_VERDICT * size if size > 1 else 0)
    return min(stated or likely, entry.params.max_output_tokens)


def _missing(entry: JudgeEntry) -> float:
    stated = entry.assume.missing
    return DEFAULT_MISSING if stated is None else stated


def _default_sd(study: Study) -> float:
    return DEFAULT_SD_SHARE * min(criterion.scale.span for criterion in study.criteria)


# --- what is taken for granted -----------------------------------------------------------------


def _noise(config: MockConfig, blueprint: Blueprint) -> tuple[str, float]:
    """Name what blurs verdicts: an SD or, of comparisons, how little of the truth a judge sees."""
    if blueprint.study.kind is Kind.COMPARE:
        return "discrimination", config.discrimination
    return "sd", config.sd


def _of_mock(entry: JudgeEntry, blueprint: Blueprint) -> Iterator[Assumption]:
    config, stated = _itself(entry), entry.assume
    given = entry.mock.model_fields_set if entry.mock is not None else frozenset()

    def one(what: str, value: float | str, key: str, assumed: object = None) -> Assumption:
        source = "assume" if assumed is not None else "mock" if key in given else "default"
        return Assumption(judge=entry.name, what=what, value=value, source=source)

    if isinstance(entry, System):
        yield one("right", config.right, "right")
    else:
        what, value = _noise(config, blueprint)
        yield one(what, value, what, stated.sd if what == "sd" else None)
    yield one("output tokens", config.tokens.output, "tokens", stated.output_tokens)
    faults = ", ".join(f"{name} {_when(p)}" for name, p in sorted(config.faults.items()))
    yield one("faults", faults or "none", "faults", stated.missing)
    latency = _law(config) if config.realtime else "not waited for"
    yield one("latency", latency, "latency" if config.realtime else "realtime")


def _of_assumed(blueprint: Blueprint, ix: int, prompts: Prompts) -> Iterator[Assumption]:
    entry = blueprint.entries[ix]
    config, stated = (
        _assumed(entry, blueprint.study, prompts, batch_size(blueprint, ix)),
        entry.assume,
    )

    def one(what: str, value: float | str, assumed: object) -> Assumption:
        source = "default" if assumed is None else "assume"
        return Assumption(judge=entry.name, what=what, value=value, source=source)

    if isinstance(entry, System):
        value, source = _right(entry)
        yield Assumption(judge=entry.name, what="right", value=value, source=source)
    else:
        what, value = _noise(config, blueprint)
        yield one(what, value, stated.sd if what == "sd" else None)
    yield Assumption(
        judge=entry.name, what="input tokens", value=config.tokens.input, source="data"
    )
    yield one("output tokens", config.tokens.output, stated.output_tokens)
    yield one("missing", _missing(entry), stated.missing)
    yield one("latency", _law(config), None)


def _of_items(blueprint: Blueprint) -> Assumption:
    column = blueprint.file.campaign.truth_column
    if column is not None:
        return Assumption(judge="", what="truth in", value=f"column {column}", source="data")
    spread = "normal around mid-scale with an SD of a quarter of the range"
    if blueprint.study.kind is Kind.COMPARE:
        spread = "of arms, standard normal in log-odds, in all items alike"
    return Assumption(judge="", what="truth", value=spread, source="default")


def _when(chance: Any) -> str:
    return f"{chance:g}" if isinstance(chance, float) else f"from attempt {chance.after}"


def _law(config: MockConfig) -> str:
    law = config.latency
    median = law.quantile(0.5)
    spread = law.quantile(0.95)
    if math.isclose(median, spread):
        return f"{median:g} s"
    return f"{median:.3g} s, 1 in 20 above {spread:.3g} s"
