"""What would be sent: the exact request, its bounds and its price. Sends nothing."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import assert_never

from judges.capabilities import decoding_for
from orchestrator.build import Blueprint, decoding_of
from orchestrator.campaign_file import BUILT_IN, LIVE
from orchestrator.campaign_file import Judge as JudgeEntry
from orchestrator.core.errors import ConfigError
from orchestrator.core.ids import ItemIx, JudgeIx
from orchestrator.core.money import Nano, PriceCard
from orchestrator.core.query import Query
from orchestrator.core.wire import Chat, Image, Json, Part, Request, Route, Text, Turn
from orchestrator.engine.decide import Ask, decide
from orchestrator.engine.fold import State
from orchestrator.wording import did_you_mean, seen


@dataclass(frozen=True, slots=True, kw_only=True)
class Preview:
    """One question as it would be sent, and what it can cost.

    Of the file's `params`, `params` are sent and `dropped` are not, since the model or the adapter
    does not take them. Token bounds are those of one attempt; `hold` and `expected` are nano-USD.
    `is_first`: it is the question that the policy would ask first.
    """

    item: str
    arm: str
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
            "item": self.item,
            "arm": self.arm,
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

    Raises
    ------
    ConfigError
        No item, arm or judge has that name.
    """
    state = State(blueprint.crew)
    state.apply(blueprint.crew.opened)
    first = _first(state)
    query = _instead(blueprint, first, item=item, arm=arm, judge=judge)
    request = state.render(query)
    entry = blueprint.file.campaign.judges[query.judge]
    asked = blueprint.crew.judges[query.judge]
    adapter = asked.adapter
    params, dropped = _params(entry, flags=getattr(adapter, "flags", ()))
    panelist = blueprint.study.panel[query.judge]
    frame, unit = blueprint.study.frame, query.units[0]
    return Preview(
        item=frame.items[frame.item_of(unit)],
        arm=frame.arms[frame.arm_of(unit)],
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


def _instead(
    blueprint: Blueprint, query: Query, *, item: str | None, arm: str | None, judge: str | None
) -> Query:
    """Put another unit or judge into a question."""
    frame = blueprint.study.frame
    unit = query.units[0]
    item_ix, arm_ix, judge_ix = frame.item_of(unit), frame.arm_of(unit), query.judge
    if item is not None:
        item_ix = ItemIx(_index("item", item, frame.items))
    if arm is not None:
        arm_ix = frame.arm_of(_index("arm", arm, frame.arms))
    if judge is not None:
        names = tuple(judge.name for judge in blueprint.crew.judges)
        judge_ix = JudgeIx(_index("judge", judge, names))
    return replace(query, units=(frame.unit(item_ix, arm_ix),), judge=judge_ix)


def _index(what: str, name: str, names: tuple[str, ...]) -> int:
    if name in names:
        return names.index(name)
    hint = did_you_mean(name, names)
    if len(hint) > _LONGEST_HINT:
        hint = f"; there are {len(names):,}"
    raise ConfigError(f"no {what} is named {seen(name)}{hint}")


_LONGEST_HINT = 200
