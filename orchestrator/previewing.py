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
from orchestrator.core.query import Kind, Query
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
    is_single = first.kind is Kind.RATE
    query = _instead(frame, first, wanted) if is_single else _next(state, frame, first, wanted)
    request = state.render(query)
    entry = blueprint.file.campaign.judges[query.judge]
    asked = blueprint.crew.judges[query.judge]
    adapter = asked.adapter
    params, dropped = _params(entry, flags=getattr(adapter, "flags", ()))
    panelist = blueprint.study.panel[query.judge]
    return Preview(
        items=tuple(frame.items[frame.item_of(unit)] for unit in query.units),
        arms=tuple(frame.arms[frame.arm_of(unit)] for unit in query.units),
        judge=entry.name,
        adapter=entry.adapter,
        model=entry.model,
        is_first=query == first,
        request=request,
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


def _instead(frame: Frame, query: Query, wanted: _Wanted) -> Query:
    """Put another unit or judge into a question."""
    unit = query.units[0]
    item = frame.item_of(unit) if wanted.item is None else ItemIx(wanted.item)
    arm = frame.arm_of(unit) if wanted.arm is None else ArmIx(wanted.arm)
    judge = query.judge if wanted.judge is None else JudgeIx(wanted.judge)
    return replace(query, units=(frame.unit(item, arm),), judge=judge)


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
