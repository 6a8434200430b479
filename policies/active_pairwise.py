"""The pair of answers that teaches most for its price, drawn with a known probability."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import replace
from itertools import combinations
from typing import Annotated, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict, Field, PositiveInt

from estimators.tensor_dense import Array
from orchestrator.core.budget import BudgetView
from orchestrator.core.events import Asked, Declined, Parked
from orchestrator.core.ids import JudgeIx
from orchestrator.core.ports import FINISH, PAUSE, Plugin, PolicyEvent, Turn
from orchestrator.core.query import Judged, Kind, Observation, Preference, Query
from orchestrator.core.records import Record
from orchestrator.core.seeds import Stream
from orchestrator.core.study import Study
from orchestrator.core.wire import Json
from policies.abreast import Abreast, Seat
from policies.order import item_order
from policies.pairing.acquisition import Rule, gains, pairs
from policies.pairing.categories import Categories
from policies.pairing.cold_start import Start, cold_start
from policies.pairing.orders import Orders
from policies.pairing.posterior import Posterior
from policies.pairing.propensity import FLOOR, MIN_FLOOR, POWER, draw, mixture, propensities

_CYCLE, _DRAW, _ITEMS, _PLACE = range(4)
"""What the numbers of `stream(POLICY, ...)` are for."""

_IN_CYCLE = "cycle"
"""Note of a question of the first cycle."""

_POINTS = {Preference.FIRST: 1.0, Preference.TIE: 0.5, Preference.SECOND: 0.0}


class ActivePairwiseConfig(BaseModel):
    """The keys of `policy: {kind: active_pairwise}`.

    Parameters
    ----------
    rule : what a comparison is valued by: `aopt` (all strengths), `top1` (who is best), `dopt`,
        `eig`, `arena`; `copt` (the scores of all arms in all categories, that is strata)
    floor : share of questions that are drawn from all pairs and judges alike
    power : how much the best pairs stand out
    rank : of the table of strengths by category that `copt` follows
    max_repeats : how often a judge is asked the same question, earlier runs' included; None: no bound
        but the judge's own
    criterion : whose verdicts it follows, where there are several; None: the estimate's, or the first
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    kind: Literal["active_pairwise"] = "active_pairwise"
    rule: Literal["aopt", "top1", "dopt", "eig", "arena", "copt"] = "aopt"
    floor: Annotated[float, Field(ge=MIN_FLOOR, le=1)] = FLOOR
    power: Annotated[float, Field(gt=0)] = POWER
    rank: PositiveInt = 2
    max_repeats: PositiveInt | None = None
    criterion: str | None = None


class ActivePairwise:
    """Draws the next pair and judge from what is known of the strengths, questions in flight included.

    The first questions go round a random cycle that connects all arms. After that a pair and judge
    have the probability (1 - floor) g^power/Σ g^power + floor/(pairs · judges), with g what one more
    comparison would teach, per expected dollar. A pair goes through the items in an order that the
    seed gives, from a place of its own. What earlier runs asked a judge of a pair and an item counts as
    asked: the first repeats go round the items without it. With `copt` what is drawn is a pair in a
    category, and the items are that category's.

    The propensity of a question is the probability of its pair and judge, given all that was known,
    times that of its item before anything was: every item of a round is as likely to be at a place of
    it, but once its first one is known, so are the others. `both` orders of a question share it.

    A judge that is down, or whose own money is at its end, or that has answered all it can of a pair,
    is left out of the law, and the others' probabilities grow: from then on 1/propensity does not
    weigh pairs and judges alike (`estimators.comparisons.balanced_weights` does). What is drawn after
    a question was declined has random numbers of its own.

    Draws from `stream(POLICY, ...)`; equal events give equal states to the bit.

    Raises
    ------
    ValueError
        The study compares nothing, or there are fewer than two arms, or no judge to plan with.
    """

    def __init__(self, config: ActivePairwiseConfig, study: Study) -> None:
        if study.kind is not Kind.COMPARE:
            raise ValueError(f"policy.kind: active_pairwise asks compare, not {study.kind}")
        frame, panel = study.frame, study.panel
        n_arms, n_judges = frame.n_arms, len(panel)
        if n_arms < 2:
            raise ValueError("policy.kind: active_pairwise compares arms, and there is one")
        self._config, self._study = config, study
        self._criterion = _criterion(config, study)
        self._price = _prices(study)
        self._posterior = Posterior(
            n_arms, n_judges=n_judges + 1, bias="judge" if n_judges > 1 else "order"
        )
        self._orders = Orders(n_arms, study.orders)
        self._place = {pair: p for p, pair in enumerate(combinations(range(n_arms), 2))}
        items = item_order(study, study.seeds.stream(Stream.POLICY, _ITEMS), strata="proportional")
        self._categories: Categories | None = None
        self._items = [items]
        """Items of each category, or all as one."""
        if config.rule == "copt":
            n_strata = len(frame.strata)
            if n_strata < 2:
                raise ValueError("rule: copt wants two categories or more; data.strata names them")
            self._categories = Categories((n_arms, n_strata), config.rank)
            self._items = [items[frame.stratum[items] == k] for k in range(n_strata)]
        self._n_pairs = len(self._place)
        self._used = np.zeros((n_judges, len(self._items) * self._n_pairs), dtype=np.int64)
        """Items that each judge was asked about for each pair in each category, repeats included."""
        bounds = [
            min((b for b in (p.repeats, config.max_repeats) if b is not None), default=np.inf)
            for p in panel
        ]
        n_items = np.repeat([float(len(of)) for of in self._items], self._n_pairs)
        self._most = np.array(bounds)[:, None] * n_items
        self._earlier = self._asked_earlier()
        for (judge, cell), times in self._earlier.items():
            self._most[judge, cell] -= np.minimum(times, bounds[judge]).sum()
        self._panel = Abreast(
            [
                Seat(JudgeIx(j), account=f"judge:{panelist.name}", end=np.inf)
                for j, panelist in enumerate(panel)
            ]
        )
        self._n_drawn = 0
        self._n_declined = 0
        self._next: Query | None = None
        self._learn()
        rng = study.seeds.spawn(Stream.POLICY, _CYCLE)
        self._starts = deque[Start](cold_start(n_arms, rng, self._posterior.counts))

    def ask(self, view: BudgetView) -> Query | Turn:  # noqa: ARG002 - money is the engine's business
        """Propose what came back, the other order of what was asked, or a new pair."""
        panel = self._panel
        if panel.is_broke:
            return FINISH
        ready = [seat for seat in panel.seats if not (seat.is_down or seat.is_declined)]
        if owed := [seat for seat in ready if seat.returned]:
            return min(owed, key=lambda seat: seat.rank).returned[0]
        if self._next is None:
            self._next = self._draw([seat.judge for seat in ready])
        if self._next is not None:
            return self._next
        waits = any(seat.is_down and not seat.is_gone for seat in panel.seats)
        return PAUSE if panel.open or waits else FINISH

    def tell(self, event: PolicyEvent) -> None:
        """Follow what is in flight, and learn from verdicts."""
        match event:
            case Asked(query=query):
                if self._panel.follow(event) is not None:
                    self._count(query)
                self._launch(query)
            case Parked(q=q):
                query = self._panel.open[q]
                self._panel.follow(event)
                self._land(query, None)
            case Record(query=query, outcome=outcome):
                self._panel.follow(event)
                said = self._points(outcome.observations) if isinstance(outcome, Judged) else None
                self._land(query, said)
            case _:
                self._panel.follow(event)
                self._n_declined += isinstance(event, Declined)
        self._next = None

    def explain(self) -> dict[str, Json]:
        """Say what it knows and what it draws from."""
        posterior, arms = self._posterior, self._study.frame.arms
        names = [panelist.name for panelist in self._study.panel]
        left = (self._most - self._used).sum(axis=1) * (2 if self._study.orders == "both" else 1)
        to_come = {} if np.isinf(left).any() else dict(zip(names, map(int, left), strict=True))
        return {
            "rule": self._config.rule,
            "strengths": dict(zip(arms, posterior.theta.tolist(), strict=True)),
            "asked": dict(zip(names, self._used.sum(axis=1).tolist(), strict=True)),
            "drawn": self._n_drawn,
            "to_come": to_come,
            "cycle_left": len(self._starts),
        }

    # --- drawing ----------------------------------------------------------------------------------

    def _draw(self, ready: list[JudgeIx]) -> Query | None:
        """Draw a new question; None where no judge that can be asked has any left."""
        frame = self._study.frame
        law = np.zeros(self._used.shape)
        law[ready] = self._used[ready] < self._most[ready]
        if not law.any():
            return None
        # A question that was declined tells where its numbers lie, so it has used them up.
        rng = self._study.seeds.stream(Stream.POLICY, _DRAW, self._n_drawn)
        which, coin = rng.random((1 + self._n_declined, 2))[-1]
        q, note = self._probabilities(law)
        judge, cell = divmod(draw(q, float(which)), law.shape[1])
        a, b = (int(side[cell % self._n_pairs]) for side in pairs(frame.n_arms))
        replicate, item, n_items = self._item(judge, cell)
        first, second = self._orders.ahead(a, b, float(coin))
        return Query(
            kind=Kind.COMPARE,
            judge=JudgeIx(judge),
            units=(frame.unit(item, first), frame.unit(item, second)),
            replicate=replicate,
            propensity=float(q[judge, cell]) / n_items,
            note=note,
        )

    def _probabilities(self, law: Array) -> tuple[Array, str]:
        """Give the probability of each judge and pair in a category, (J, K P), and what it is by.

        In the cycle it is that of the pair at its place, so its sum is below one.
        """
        config, n_categories = self._config, len(self._items)
        if self._starts:
            start = self._starts[0]
            at = self._place[start.a, start.b]
            cells = np.arange(n_categories) * self._n_pairs + at
            if (of_pair := law[:, cells]).any():
                q = np.zeros_like(law)
                q[:, cells] = start.propensity * of_pair / of_pair.sum()
                return q, _IN_CYCLE
        rule: Rule = "aopt" if config.rule == "copt" else config.rule
        by_category = None if self._categories is None else self._categories.gains()
        if by_category is None:
            value, note = np.tile(gains(self._posterior, rule), n_categories), str(rule)
        else:
            value, note = by_category.ravel(), "copt"
        per_price = value / self._price[:, None]
        return mixture(per_price, floor=config.floor, power=config.power, law=law), note

    def _item(self, judge: int, cell: int) -> tuple[int, int, int]:
        """Give the repeat and the item that a judge is asked about next for a pair in a category.

        Also gives how many items go round in this repeat: those that no earlier run asked as often.
        """
        items, at = self._items[cell // self._n_pairs], int(self._used[judge, cell])
        if (times := self._earlier.get((judge, cell))) is None:
            replicate, at = divmod(at, len(items))
        else:
            every, replicate = items, 0
            while at >= len(items := every[times <= replicate]):
                at, replicate = at - len(items), replicate + 1
        rng = self._study.seeds.stream(Stream.POLICY, _PLACE, judge, cell, replicate)
        return replicate, int(items[(int(rng.integers(len(items))) + at) % len(items)]), len(items)

    def _count(self, query: Query) -> None:
        """Count a new question, and line up its other order."""
        first, second = self._arms(query)
        self._n_drawn += 1
        self._used[query.judge, self._cell(query)] += 1
        self._orders.launched(first, second)
        if query.note == _IN_CYCLE:
            self._starts.popleft()
        if self._orders.owes(first, second):
            self._orders.launched(second, first)
            other = replace(query, units=query.units[::-1])
            self._panel.seats[query.judge].returned.append(other)

    # --- what is known ----------------------------------------------------------------------------

    def _launch(self, query: Query) -> None:
        first, second = self._arms(query)
        self._posterior.launch(first, second, query.judge)
        if self._categories is not None:
            self._categories.launch(first, second, self._category(query))

    def _land(self, query: Query, points: float | None) -> None:
        first, second = self._arms(query)
        self._posterior.land(first, second, points, query.judge)
        if self._categories is not None:
            self._categories.land(first, second, self._category(query), points)

    def _category(self, query: Query) -> int:
        """Give the category of a question, 0 where they don't matter."""
        if self._categories is None:
            return 0
        frame = self._study.frame
        return int(frame.stratum[frame.item_of(query.units[0])])

    def _cell(self, query: Query) -> int:
        """Give the place of a question's pair in its category."""
        low, high = sorted(self._arms(query))
        return self._category(query) * self._n_pairs + self._place[low, high]

    def _arms(self, query: Query) -> tuple[int, int]:
        first, second = map(self._study.frame.arm_of, query.units)
        return first, second

    def _asked_earlier(self) -> dict[tuple[int, int], NDArray[np.int64]]:
        """Count how often earlier runs asked a judge of a pair about each of its category's items.

        Two orders of one repeat count once, and so does a verdict "does not apply"; what did not ask
        for the criterion that is followed does not count.
        """
        frame, panel = self._study.frame, self._study.panel
        at = np.empty(frame.n_items, dtype=np.int64)
        for items in self._items:
            at[items] = np.arange(len(items))
        asked = {
            (
                query.judge,
                self._cell(query),
                int(at[frame.item_of(query.units[0])]),
                query.replicate,
            )
            for query, outcome in ((record.query, record.outcome) for record in self._study.prior)
            if query.judge < len(panel)
            and isinstance(outcome, Judged)
            and any(said.criterion == self._criterion for said in outcome.observations)
        }
        found: dict[tuple[int, int], NDArray[np.int64]] = {}
        for judge, cell, item, _ in asked:
            n_items = len(self._items[cell // self._n_pairs])
            found.setdefault((judge, cell), np.zeros(n_items, dtype=np.int64))[item] += 1
        return found

    def _points(self, observations: Sequence[Observation]) -> float | None:
        """Give what a verdict is worth to the first model; None where it is not applicable."""
        said = (o.preference for o in observations if o.criterion == self._criterion)
        preference = next(said, None)
        return None if preference is None else _POINTS[preference]

    def _learn(self) -> None:
        """Take in what earlier runs have told."""
        known = [
            (record.query, points)
            for record in self._study.prior
            if isinstance(record.outcome, Judged)
            and (points := self._points(record.outcome.observations)) is not None
        ]
        if not known:
            return
        rows = [(*self._arms(query), points, query.judge) for query, points in known]
        self._posterior.learn(*zip(*rows, strict=True))
        if self._categories is not None:
            for query, points in known:
                self._categories.learn(*self._arms(query), self._category(query), points)


def _criterion(config: ActivePairwiseConfig, study: Study) -> int:
    names = [criterion.name for criterion in study.criteria]
    if config.criterion is not None and config.criterion not in names:
        raise ValueError(f"policy.criterion: {config.criterion!r} is none of {', '.join(names)}")
    return 0 if config.criterion is None else names.index(config.criterion)


def _prices(study: Study) -> Array:
    """Give what a question to each judge is expected to cost; all alike where none costs anything."""
    price = np.array([float(panelist.planning) for panelist in study.panel])
    if not price.any():
        return np.ones_like(price)
    for index, panelist in enumerate(study.panel):
        if not panelist.planning:
            raise ValueError(
                f"judges[{index}].planning_usd_per_call: missing; {panelist.name} is free, and "
                "gains are weighed by price"
            )
    return price


PLUGIN = Plugin(config=ActivePairwiseConfig, build=ActivePairwise)

__all__ = ["PLUGIN", "ActivePairwise", "ActivePairwiseConfig", "propensities"]
