"""A random part of a benchmark, in an order that is fixed before the first question."""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, ConfigDict, PositiveInt

from estimators.benchmark_order import (
    Allocation,
    SampleDesign,
    allocation_of,
    draw_chances,
    item_orders,
)
from orchestrator.core.budget import BudgetView
from orchestrator.core.ids import JudgeIx, UnitIx
from orchestrator.core.ports import Plugin, PolicyEvent, Turn
from orchestrator.core.query import Kind, Query
from orchestrator.core.study import Study
from orchestrator.core.wire import Json
from policies.abreast import Abreast, Seat


class SubsampleConfig(BaseModel):
    """The keys of `policy: {kind: subsample}`.

    Parameters
    ----------
    design : see `estimators.benchmark_order.SampleDesign`
    strata : how strata take turns in the stratified and paired designs; None: in their proportions
        in the first, not at all in the second
    max_items : how many items each arm is asked about, chosen beforehand; None: all
    repeats : how often each judge is asked about a unit, one time after another, whatever it answers
    draw_by : a column of numbers above 0 by which items are drawn, as `draw_chances` says; None: alike
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    kind: Literal["subsample"] = "subsample"
    design: SampleDesign = "simple"
    strata: Allocation | None = None
    max_items: PositiveInt | None = None
    repeats: PositiveInt = 1
    draw_by: str | None = None


class Subsample:
    """Walks each judge along one sequence of units that the seed gives, once.

    At each place of the order every arm is asked about its item there; in the paired design that is
    the same item. So the end of the money cuts the end of the order, and all arms have come as far, up
    to one item. An item keeps its place whenever its answer comes, and a question that came back is
    asked again before anything new. What is missing stays missing.

    Given the seed every choice is certain. The propensity is 1 where items are drawn alike; by a column
    it is the chance that its item had at its place, among those not drawn before, over seeds.

    Raises
    ------
    ValueError
        The study asks about more than one unit at a time, its strata don't fit the design, or a judge
        has fewer repeats; or items can't be drawn by the column.
    """

    def __init__(self, config: SubsampleConfig, study: Study) -> None:
        if study.kind not in {Kind.RATE, Kind.CHECK}:
            raise ValueError(f"policy.kind: subsample asks about one unit, not {study.kind}")
        frame = study.frame
        self._config, self._study = config, study
        self._allocation = allocation_of(config.design, config.strata, study)
        orders = item_orders(study, config.design, self._allocation, config.draw_by)
        self._n_places = min(frame.n_items, config.max_items or frame.n_items)
        places = slice(self._n_places)
        self._units = (orders[:, places].T * frame.n_arms + range(frame.n_arms)).ravel()
        self._chances = None
        if config.draw_by is not None:
            self._chances = draw_chances(study, orders, config.draw_by).own[:, places].T.ravel()
        for p in study.panel:
            if (p.repeats or config.repeats) < config.repeats:
                raise ValueError(f"repeats: {p.name} can answer {p.repeats} times at most")
        end = len(self._units) * config.repeats
        self._panel = Abreast(
            [
                # A judge that can't answer at all has no repeats.
                Seat(JudgeIx(j), account=f"judge:{p.name}", end=0 if p.repeats == 0 else end)
                for j, p in enumerate(study.panel)
            ]
        )

    def ask(self, view: BudgetView) -> Query | Turn:  # noqa: ARG002 - money is the engine's business
        """Propose the next unit of the judge that is furthest behind."""
        turn = self._panel.turn()
        return self._next(turn) if isinstance(turn, Seat) else turn

    def tell(self, event: PolicyEvent) -> None:
        """Follow what was asked, what came back, and who can be asked."""
        self._panel.follow(event)

    def explain(self) -> dict[str, Json]:
        """Say how the items are drawn, and how much is asked and to come."""
        names = [p.name for p in self._study.panel]
        seats = self._panel.seats
        return {
            "design": self._config.design,
            "strata": self._allocation,
            "items": self._n_places,
            "of_items": self._study.frame.n_items,
            "repeats": self._config.repeats,
            "draw_by": self._config.draw_by,
            "seed": self._study.seeds.seed,
            "asked": {n: s.at - len(s.returned) for n, s in zip(names, seats, strict=True)},
            "to_come": {
                n: 0 if s.is_gone else int(s.end) - s.at + len(s.returned)
                for n, s in zip(names, seats, strict=True)
            },
            "says": [self._sentence()],
        }

    def _sentence(self) -> str:
        turns = {
            None: "",
            "proportional": ", strata in their proportions",
            "equal": ", one of each stratum in turn",
        }[self._allocation]
        n_items, n_arms = self._study.frame.n_items, self._study.frame.n_arms
        whose = ""
        if n_arms > 1:
            paired = self._config.design == "paired"
            whose = ", the same for all arms" if paired else ", each arm in an order of its own"
        if self._config.draw_by is not None:
            turns = f" and drawn by {self._config.draw_by}"
        times = "" if self._config.repeats == 1 else f" {self._config.repeats} times each"
        order = f"in an order fixed by the seed{turns}{whose}"
        return f"each judge is asked about up to {self._n_places:,} of {n_items:,} items{times} {order}"

    def _next(self, seat: Seat) -> Query:
        if seat.returned:
            return seat.returned[0]
        place, replicate = divmod(seat.at, self._config.repeats)
        return Query(
            kind=self._study.kind,
            judge=seat.judge,
            units=(UnitIx(int(self._units[place])),),
            replicate=replicate,
            propensity=1.0 if self._chances is None else float(self._chances[place]),
        )


PLUGIN = Plugin(config=SubsampleConfig, build=Subsample)
