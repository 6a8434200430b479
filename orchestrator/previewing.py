"""What would be sent: the exact request, its bounds and its price. Sends nothing."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple, assert_never

from judges.capabilities import decoding_for
from orchestrator.build import Blueprint, decoding_of
from orchestrator.campaign_file import BUILT_IN, LIVE
from orchestrator.campaign_file import Judge as JudgeEntry
from orchestrator.core.errors import ConfigError
from orchestrator.core.events import Asked
from orchestrator.core.frame import Frame
from orchestrator.core.ids import ArmIx, ItemIx, JudgeIx, QNo
from orchestrator.core.money import Nano, PriceCard
from orchestrator.core.ports import Turn as PolicyTurn
from orchestrator.core.query import Kind, Purpose, Query, Role
from orchestrator.core.wire import Chat, Image, Json, Part, Request, Route, Text, Turn
from orchestrator.engine.decide import Ask, decide
from orchestrator.engine.fold import State
from orchestrator.wording import did_you_mean, seen


@dataclass(frozen=True, slots=True, kw_only=True)
class Preview:
    """One question as it would be sent, and what it can cost.

    `items` and `arms` are those of its units, in the order in which they stand. Of the file's
    `params`, `params` are sent and `dropped` are not, since the model or the adapter
    does not take them. Token bounds are those of one attempt; `hold` and `expected` are nano-USD.
    `is_first`: it is the question that the policy would ask first.
    """

    items: tuple[str, ...]
    arms: tuple[str, ...]
    role: Role
    judge: str
    adapter: str
    model: str
    is_first: bool
    request: Request
    route: Route
    params: Mapping[str, Json]
    dropped: tuple[str, ...]
    input_tok: int
    output_tok: int
    hold: Nano
    expected: Nano
    price: str
    mock: bool

    def as_json(self) -> dict[str, Json]:
        """Give it as a JSON document."""
        return {
            "item": self.items[0],
            "arm": self.arms[0],
            "units": [
                {"item": item, "arm": arm} for item, arm in zip(self.items, self.arms, strict=True)
            ],
            "role": str(self.role),
            "judge": self.judge,
            "adapter": self.adapter,
            "model": self.model,
            "is_first": self.is_first,
            "messages": [
                {"role": turn.role, "content": turn.content} for turn in turns(self.request)
            ],
            "schema": self.request.schema,
            "route": str(self.route),
            "params": dict(self.params),
            "dropped": list(self.dropped),
            "max_output_tok": self.request.max_output_tok,
            "bound": {"input_tok": self.input_tok, "output_tok": self.output_tok},
            "hold_nano_usd": self.hold,
            "expected_nano_usd": self.expected,
            "price": self.price,
            "mock": self.mock,
        }


def preview(
    blueprint: Blueprint,
    *,
    item: str | None = None,
    arm: str | None = None,
    judge: str | None = None,
) -> Preview:
    """Render the question that the policy would ask first; item, arm and judge may be other ones.

    Of questions about several units that is the first one which this judge is asked and which holds
    the item, with its units in the order in which they stand.

    Raises
    ------
    ConfigError
        No item, arm or judge has that name, or no question is about them.
    """
    state = State(blueprint.crew)
    state.apply(blueprint.crew.opened)
    first = _first(state)
    wanted = _wanted(blueprint, item=item, arm=arm, judge=judge)
    frame = blueprint.study.frame
    kind = Kind.GENERATE if _is_system(state, wanted.judge) else blueprint.study.kind
    is_single = Kind.GENERATE in {kind, first.kind} or kind in {Kind.RATE, Kind.CHECK}
    query = (
        _instead(state, frame, first, wanted, blueprint.study.kind)
        if is_single
        else _next(state, frame, first, wanted)
    )
    request = state.render(query)
    entry = blueprint.entries[query.judge]
    asked = blueprint.crew.judges[query.judge]
    adapter = asked.adapter
    params, dropped = _params(entry, flags=getattr(adapter, "flags", ()))
    panelist = blueprint.asked[query.judge]
    return Preview(
        items=tuple(frame.items[frame.item_of(unit)] for unit in query.units),
        arms=tuple(frame.arms[frame.arm_of(unit)] for unit in query.units),
        role=query.role,
        judge=entry.name,
        adapter=entry.adapter,
        model=entry.model,
        is_first=query == first,
        request=_shown(state, query, frame),
        route=asked.route,
        params=params,
        dropped=dropped,
        # At one nano-USD a token the ceiling counts tokens.
        input_tok=adapter.ceiling(request, PriceCard(input=1000)),
        output_tok=adapter.ceiling(request, PriceCard(output=1000)),
        hold=state.hold_for(request),
        expected=Nano(0 if panelist.card.is_free else panelist.planning),
        price=blueprint.prices[query.judge].source,
        mock=bool(blueprint.crew.opened.identity["mock"]),
    )


def _shown(state: State, query: Query, frame: Frame) -> Request:
    """Put a question into words; in the place of an answer that is still to come stands whose it is."""
    answers = state.crew.answers
    if answers is None or query.role is Role.SYSTEM:
        return state.render(query)
    for unit in query.units:
        n_bytes = len(str(answers[unit][answers.name]))
        whose = frame.arms[frame.arm_of(unit)]
        answers.take(unit, f"[what {whose} answers; {n_bytes:,} bytes are reckoned with]")
    try:
        return state.render(query)
    finally:
        answers.clear()


def _params(entry: JudgeEntry, *, flags: Sequence[str]) -> tuple[dict[str, Json], tuple[str, ...]]:
    """Part a judge's parameters into those that are sent and those that are left out.

    `flags` name what its adapter leaves out; a mock in its place knows of none, so the table of
    models is asked too.
    """
    decoding = replace(decoding_of(entry), is_strict=False)  # refused when it was built
    if entry.adapter in BUILT_IN - LIVE:
        given, _ = decoding_for(entry.adapter, entry.model, decoding)
        return {}, (*given, *decoding.extra)
    sent, dropped = decoding_for(
        entry.adapter,
        entry.model,
        decoding,
        also_refused=[flag.removeprefix("dropped:") for flag in flags],
    )
    return {**decoding.extra, **sent}, dropped


def turns(request: Request) -> tuple[Turn, ...]:
    """Give a request as messages; what is no conversation is the user's."""
    return tuple(turn for part in request.parts for turn in _turns(part))


def as_text(request: Request) -> str:
    """Give a request as one text."""
    return "\n".join(turn.content for turn in turns(request))


def _turns(part: Part) -> tuple[Turn, ...]:
    match part:
        case Text(text=text):
            return (Turn(role="user", content=text),)
        case Chat(turns=several):
            return several
        case Image(media_type=kind, data=data):
            return (Turn(role="user", content=f"[{kind}, {len(data):,} bytes]"),)
        case _:
            assert_never(part)


def _first(state: State) -> Query:
    match decide(state):
        case Ask(query=query):
            return query
        case other:
            raise ConfigError(f"the campaign asks nothing: {other}")


class _Wanted(NamedTuple):
    """What another question is to be about, as indices; None where any will do."""

    item: int | None
    arm: int | None
    judge: int | None


def _wanted(
    blueprint: Blueprint, *, item: str | None, arm: str | None, judge: str | None
) -> _Wanted:
    frame, names = blueprint.study.frame, tuple(judge.name for judge in blueprint.crew.judges)
    return _Wanted(
        item=None if item is None else _index("item", item, frame.items),
        arm=None if arm is None else _index("arm", arm, frame.arms),
        judge=None if judge is None else _index("judge", judge, names),
    )


def _is_system(state: State, judge: int | None) -> bool:
    return judge in state.crew.systems


def _instead(state: State, frame: Frame, query: Query, wanted: _Wanted, kind: Kind) -> Query:
    """Put another unit, judge or system into a question; a system is asked about its own arm."""
    unit, systems = query.units[0], state.crew.systems
    item = frame.item_of(unit) if wanted.item is None else ItemIx(wanted.item)
    arm = frame.arm_of(unit) if wanted.arm is None else ArmIx(wanted.arm)
    judge = query.judge if wanted.judge is None else JudgeIx(wanted.judge)
    if _is_system(state, wanted.judge):
        own = judge - systems.start
        if wanted.arm not in {None, own}:
            raise ConfigError(f"{frame.arms[own]} answers as the arm of its name, and no other")
        arm = ArmIx(own)
    elif wanted.judge is None and query.role is Role.SYSTEM:
        judge = JudgeIx(systems[arm])
    if _is_system(state, judge):
        return replace(
            query,
            kind=Kind.GENERATE,
            role=Role.SYSTEM,
            purpose=Purpose.GENERATE,
            judge=judge,
            units=(frame.unit(item, arm),),
        )
    return Query(
        kind=kind,
        judge=judge,
        units=(frame.unit(item, arm),),
        replicate=query.replicate,
        propensity=query.propensity,
        purpose=Purpose.POLICY if query.role is Role.SYSTEM else query.purpose,
    )


def _next(state: State, frame: Frame, first: Query, wanted: _Wanted) -> Query:
    """Go through the questions as the policy asks them, as far as one that is wanted."""
    proposal: Query | PolicyTurn = first
    for number in range(MOST_ASKED):
        if not isinstance(proposal, Query):
            break
        if _is_wanted(frame, proposal, wanted):
            return proposal
        state.policy.tell(Asked(q=QNo(number), query=proposal, hold=Nano(0)))
        proposal = state.policy.ask(state.view())
    raise ConfigError("the policy asks no such question before it has answers")


def _is_wanted(frame: Frame, query: Query, wanted: _Wanted) -> bool:
    units = [(frame.item_of(unit), frame.arm_of(unit)) for unit in query.units]
    return wanted.judge in (None, query.judge) and any(
        wanted.item in (None, item) and wanted.arm in (None, arm) for item, arm in units
    )


def _index(what: str, name: str, names: tuple[str, ...]) -> int:
    if name in names:
        return names.index(name)
    hint = did_you_mean(name, names)
    if len(hint) > _LONGEST_HINT:
        hint = f"; there are {len(names):,}"
    raise ConfigError(f"no {what} is named {seen(name)}{hint}")


_LONGEST_HINT = 200
MOST_ASKED = 20_000
"""So many questions are gone through for one that is wanted."""
