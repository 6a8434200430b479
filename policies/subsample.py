"""A random part of a benchmark, in an order that is fixed before the first question."""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, ConfigDict, PositiveInt

from estimators.benchmark_order import Allocation, SampleDesign, allocation_of, item_orders
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
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    kind: Literal["subsample"] = "subsample"
    design: SampleDesign = "simple"
    strata: Allocation | None = None
    max_items: PositiveInt | None = None


class Subsample:
    """Walks each judge along one sequence of units that the seed gives, once.

    At each place of the order every arm is asked about its item there; in the paired design that is
    the same item. So the end of the money cuts the end of the order, and all arms have come as far, up
    to one item. An item keeps its place whenever its answer comes, and a question that came back is
    asked again before anything new. What is missing stays missing. Given the seed every choice is
    certain, so the propensity is 1.

    Raises
    ------
    ValueError
        The study asks about more than one unit at a time, or its strata don't fit the design.
    """

    def __init__(self, config: SubsampleConfig, study: Study) -> None:
        if study.kind not in {Kind.RATE, Kind.CHECK}:
            raise ValueError(f"policy.kind: subsample asks about one unit, not {study.kind}")
        frame = study.frame
        self._config, self._study = config, study
        self._allocation = allocation_of(config.design, config.strata, study)
        orders = item_orders(study, config.design, self._allocation)[:, : config.max_items]
        self._n_places = orders.shape[1]
        self._units = (orders.T * frame.n_arms + range(frame.n_arms)).ravel()
        end = len(self._units)
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
        order = f"in an order fixed by the seed{turns}{whose}"
        return f"each judge is asked about {self._n_places:,} of {n_items:,} items {order}"

    def _next(self, seat: Seat) -> Query:
        if seat.returned:
            return seat.returned[0]
        unit = UnitIx(int(self._units[seat.at]))
        return Query(kind=self._study.kind, judge=seat.judge, units=(unit,))


PLUGIN = Plugin(config=SubsampleConfig, build=Subsample)
