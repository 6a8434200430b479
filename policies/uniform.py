"""Every item, every arm, every judge alike, until the money, the target or the repeats end."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from pydantic import BaseModel, ConfigDict, PositiveInt

from orchestrator.core.budget import BudgetView
from orchestrator.core.ids import JudgeIx, UnitIx
from orchestrator.core.ports import Plugin, PolicyEvent, Turn
from orchestrator.core.query import Kind, Query
from orchestrator.core.study import Study
from orchestrator.core.wire import Json
from policies.abreast import Abreast, Seat
from policies.order import Strata, pair_order, unit_order


class UniformConfig(BaseModel):
    """Settings of `uniform`.

    `max_repeats` bounds how often a judge is asked about the same unit; None: no bound but the
    judge's own. `strata: proportional` interleaves the strata so that every prefix of the order
    holds them in their proportions; `ignore` draws items alone.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    kind: Literal["uniform"]
    max_repeats: PositiveInt | None = None
    strata: Strata = "proportional"


class Uniform:
    """Walks all judges along one common sequence of units, or of pairs of units.

    The sequence runs in rounds, one repeat each: items in a fresh seeded order, the arms of an
    item together in a seeded order. Of comparisons it holds all pairs of arms, in the orders that
    the study asks for (`pair_order`). The judge furthest behind is asked next, so a judge that was
    down catches up. A question that came back is asked again before anything new. What is missing
    stays missing. Given the seed every choice is certain, so the propensity is 1.

    A question that the campaign's money can't hold ends the design until cap or prices change,
    though a cheaper judge might still be paid: going on with it alone would no longer be uniform.
    One that its judge's own account can't hold leaves out that judge.

    Draws from `stream(POLICY, round)`.

    Raises
    ------
    ValueError
        The study asks for batches, or for comparisons of one arm.
    """

    def __init__(self, config: UniformConfig, study: Study) -> None:
        if study.kind not in {Kind.RATE, Kind.CHECK, Kind.COMPARE}:
            raise ValueError(f"uniform asks about one unit or two; the task is {study.kind}")
        if study.kind is Kind.COMPARE and study.frame.n_arms < 2:
            raise ValueError("a comparison wants two arms or more, and there is one")
        self._config = config
        self._study = study
        self._rounds: dict[int, Sequence[tuple[UnitIx, ...]]] = {0: self._order(0)}
        self._n_places = len(self._rounds[0])
        bounds = [
            min((b for b in (p.repeats, config.max_repeats) if b is not None), default=float("inf"))
            for p in study.panel
        ]
        self._panel = Abreast(
            [
                Seat(JudgeIx(j), account=f"judge:{p.name}", end=bound * self._n_places)
                for j, (p, bound) in enumerate(zip(study.panel, bounds, strict=True))
            ]
        )

    def ask(self, view: BudgetView) -> Query | Turn:  # noqa: ARG002 - money is the engine's business
        """Propose the next question of the judge that is furthest behind."""
        turn = self._panel.turn()
        return self._next(turn) if isinstance(turn, Seat) else turn

    def tell(self, event: PolicyEvent) -> None:
        """Follow what was asked, what came back, and who can be asked."""
        if (moved := self._panel.follow(event)) is not None:
            self._keep_rounds(moved)

    def explain(self) -> dict[str, Json]:
        """Say how many questions each judge has been asked in turn."""
        names = (p.name for p in self._study.panel)
        return {"asked": {n: s.at for n, s in zip(names, self._panel.seats, strict=True)}}

    def _next(self, seat: Seat) -> Query:
        if seat.returned:
            return seat.returned[0]
        replicate, place = divmod(seat.at, self._n_places)
        units = self._rounds[replicate][place]
        return Query(kind=self._study.kind, judge=seat.judge, units=units, replicate=replicate)

    def _keep_rounds(self, moved: Seat) -> None:
        """Keep the orders of the rounds that judges stand in."""
        n_places = self._n_places
        if moved.at % n_places == 0 and moved.at < moved.end:
            places = {s.at // n_places for s in self._panel.seats if s.at < s.end}
            self._rounds = {r: self._rounds.get(r) or self._order(r) for r in places}

    def _order(self, replicate: int) -> Sequence[tuple[UnitIx, ...]]:
        strata = self._config.strata
        if self._study.kind is Kind.COMPARE:
            return pair_order(self._study, replicate, strata=strata)
        return [(UnitIx(u),) for u in unit_order(self._study, replicate, strata=strata)]


PLUGIN = Plugin(config=UniformConfig, build=Uniform)
