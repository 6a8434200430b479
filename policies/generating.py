"""Answers of all systems to all items, and nothing else: `sortition generate`."""

from __future__ import annotations

from collections.abc import Sequence

from orchestrator.core.budget import BudgetView
from orchestrator.core.ids import JudgeIx, UnitIx
from orchestrator.core.ports import PolicyEvent, Turn
from orchestrator.core.query import Kind, Purpose, Query, Role
from orchestrator.core.study import Study
from orchestrator.core.wire import Json
from policies.abreast import Abreast, Seat


class Generating:
    """Asks each system once about its items, in an order that is given, systems abreast.

    Parameters
    ----------
    orders : of each arm, item indices, all as many: those that a campaign asks about, in its order
    """

    def __init__(self, orders: Sequence[Sequence[int]], study: Study) -> None:
        self._orders = orders
        self._n_arms = study.frame.n_arms
        self._panel = Abreast(
            [
                Seat(JudgeIx(s), account=f"{Role.SYSTEM}:{p.name}", end=len(orders[s]))
                for s, p in enumerate(study.panel)
            ]
        )

    def ask(self, view: BudgetView) -> Query | Turn:  # noqa: ARG002 - money is the engine's business
        """Propose the next item of the system that is furthest behind."""
        turn = self._panel.turn()
        if not isinstance(turn, Seat):
            return turn
        if turn.returned:
            return turn.returned[0]
        unit = UnitIx(int(self._orders[turn.judge][turn.at]) * self._n_arms + turn.judge)
        return Query(
            kind=Kind.GENERATE,
            judge=turn.judge,
            units=(unit,),
            role=Role.SYSTEM,
            purpose=Purpose.GENERATE,
        )

    def tell(self, event: PolicyEvent) -> None:
        """Follow what was asked, what came back, and who can be asked."""
        self._panel.follow(event)

    def explain(self) -> dict[str, Json]:
        """Say how many items each system is asked about."""
        n_items = len(self._orders[0])
        return {"items": n_items, "says": [f"each system is asked about {n_items:,} items, once"]}
