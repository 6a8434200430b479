"""EST-IVWE: per-item scores from judges of unknown variance and different price.

Two phases. In the pilot every judge is asked N0 times about every item; from what its repeats show,
a plan of whole calls spreads the rest of the money so that the l_p error of the items' scores is
least. The pilot's answers decide whom to ask, the later ones are the scores: so the scores stay
unbiased although the plan looks at answers. Source: arXiv 2605.23362 for `mode: plain` with
`target: common`; the shrunken variances, the panel and the population target are ours.
"""

from __future__ import annotations

import math
from array import array
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from estimators.calibration import label_scores, labelled_blocks
from estimators.cells import Scoring
from orchestrator.core.budget import BudgetView
from orchestrator.core.errors import BudgetTooSmall
from orchestrator.core.events import (
    Asked,
    CapChanged,
    Declined,
    JudgeDown,
    JudgeUp,
    Parked,
    PriceChanged,
)
from orchestrator.core.ids import JudgeIx, QNo, UnitIx
from orchestrator.core.ports import FINISH, PAUSE, Plugin, PolicyEvent, Turn
from orchestrator.core.query import Kind, Missing, Purpose, Query
from orchestrator.core.records import Record
from orchestrator.core.seeds import Stream
from orchestrator.core.study import Study
from orchestrator.core.wire import Json
from policies.allocation import (
    Allocation,
    Array,
    Counts,
    Target,
    error_of,
    integer_plan,
    item_variances,
    judge_shares,
    oracle_allocation,
)
from policies.exploration import (
    COMPLETE_ENOUGH,
    MORE_TRIES,
    SWEEPS_FOR_CELLS,
    SWEEPS_WANTED,
    EstIvweConfig,
    interaction_variance,
    pilot_for,
    planning_variance,
)

__all__ = ["PLUGIN", "Allocation", "EstIvwe", "EstIvweConfig", "integer_plan", "oracle_allocation"]


@dataclass(slots=True)
class _Seat:
    """What one judge is still to be asked, and whether it can be."""

    judge: JudgeIx
    account: str
    pilot_at: int = 0
    pilot_end: int = 0
    returned: deque[Query] = field(default_factory=deque)
    again: deque[tuple[int, Purpose]] = field(default_factory=deque)
    queue: deque[tuple[int, int]] = field(default_factory=deque)
    """Ranks in the common random order, and cells."""
    is_down: bool = False
    is_gone: bool = False
    is_declined: bool = False

    @property
    def is_usable(self) -> bool:
        """Whether it can be planned with."""
        return not (self.is_gone or self.is_declined)

    @property
    def has_pilot(self) -> bool:
        """Whether pilot questions are left."""
        return self.is_usable and self.pilot_at < self.pilot_end

    @property
    def next(self) -> tuple[int, int] | None:
        """Where its next question stands among all: what came back, the pilot, then the scores."""
        if not self.is_usable:
            return None
        if self.returned or self.again:
            return 0, 0
        if self.pilot_at < self.pilot_end:
            return 1, self.pilot_at
        return (2, self.queue[0][0]) if self.queue else None


class EstIvwe:
    """Explores, plans once the pilot is told, then asks for the scores in a random order.

    Cells are (unit, judge), numbered unit by unit. With `panel` each unit is planned by itself; with
    the other targets a block is an item with all its arms, which get the same judges and counts, so
    that a judge's offset is in all of them.

    No barrier stops the workers: once most of the pilot is told and all of it is asked, half of what
    a provisional plan gives the complete blocks is asked already. The plan proper uses the whole
    pilot and takes what was asked as given, so counts only grow. It depends on the pilot's answers
    and costs alone: a count that followed the later costs would follow the scores, since long
    answers cost more. If money ends early, the tail of the random order is cut.

    With `calibration: anchors` the blocks that humans have labelled come first, in a random order of
    their own, and the pilot takes them in, so that every judge is held against the labels.

    Draws from `stream(POLICY, 0)` the order of blocks, from `stream(POLICY, n)` that of the n-th
    plan's questions.

    Raises
    ------
    ValueError
        Not one unit a question, no dollar cap, a free judge without a planning price, weights that
        name no judge, or anchors without labels.
    BudgetTooSmall
        The cap does not buy a pilot and the scores; with `on_small_budget: degrade` only if some
        unit would get no score.
    """

    def __init__(self, config: EstIvweConfig, study: Study) -> None:
        if study.kind not in {Kind.RATE, Kind.CHECK}:
            raise ValueError(f"est_ivwe asks about one unit at a time; the task is {study.kind}")
        if study.cap is None:
            raise ValueError("est_ivwe spreads dollars over judges; wants budget.usd")
        for panelist in study.panel:
            if panelist.planning <= 0:
                raise ValueError(
                    f"est_ivwe weighs judges by price and {panelist.name} is free; "
                    "wants its planning_usd_per_call"
                )
        names = [p.name for p in study.panel]
        if unknown := sorted((config.weights or {}).keys() - set(names)):
            raise ValueError(f"weights: no judge is named {unknown[0]!r}")
        self._config = config
        self._study = study
        self._scoring = Scoring(study, config.criterion)
        self._p = float(config.p)
        n_judges = len(study.panel)
        self.target: Target = config.target or ("panel" if n_judges > 1 else "common")
        self._omega = np.array(
            [1.0 if config.weights is None else config.weights.get(n, 0.0) for n in names]
        )
        if not self._omega.any():
            raise ValueError("weights: wants at least one judge with a weight above 0")
        self._block = 1 if self.target == "panel" else study.frame.n_arms
        self._n_blocks = study.frame.n_units // self._block
        rng = study.seeds.stream(Stream.POLICY, 0)
        self._order: list[int] = rng.permutation(self._n_blocks).tolist()
        n_labelled = self._put_labelled_first() if config.calibration == "anchors" else 0
        self._cap: int = study.cap
        self._price = np.array([p.planning * self._block for p in study.panel], dtype=np.int64)
        self._pilot = pilot_for(
            config,
            self.target,
            self._omega,
            self._price,
            self._cap,
            self._n_blocks,
            n_labelled,
        )
        # A recording holds so many repeats of a question; one of them is left for the score.
        self._most = [math.inf if p.repeats is None else p.repeats for p in study.panel]
        self._repeats = [
            int(min(self._pilot.repeats, most - 1)) if used else 0
            for most, used in zip(self._most, self._pilot.used, strict=True)
        ]
        self._seats = [
            _Seat(
                JudgeIx(j),
                account=f"judge:{name}",
                pilot_end=self._pilot.n_blocks * self._block * self._repeats[j],
            )
            for j, name in enumerate(names)
        ]
        n_cells = study.frame.n_units * n_judges
        zeros = bytes(8 * n_cells)
        # Reading and writing one element of these takes a third of numpy's time.
        self._n_asked, self._n_explored, self._n_scored, self._n_used = (
            array("q", zeros) for _ in range(4)
        )
        """Questions of each cell; of them the pilot's; valid pilot answers; valid later ones."""
        self._n_told, self._n_told_later = array("q", zeros), array("q", zeros)
        self._replaced = {of: array("q", zeros) for of in (Purpose.PILOT, Purpose.POLICY)}
        """Further questions in the place of answers without a score."""
        self._mean, self._squares, self._cost = (array("d", zeros) for _ in range(3))
        """Of the valid pilot answers (Welford), and what the pilot's questions cost."""
        self._open: dict[QNo, Query] = {}
        self._spent_exploring = self._spent_later = 0
        self._cost_squares = array("d", bytes(8 * n_judges))
        self._most_held = array("q", bytes(8 * n_judges))
        self._wanted: Counts | None = None
        """Calls of each block by each judge, (n_blocks, n_judges), once there is a plan."""
        self._is_final = self._is_topped_up = self._is_short = self._is_broke = False
        self._n_plans = 0
        self._about: dict[str, Json] = {}
        self._unfinished = self._count_unfinished()
        self._advance_phase()

    def _put_labelled_first(self) -> int:
        """Let the pilot begin with the blocks that have labels; give their number."""
        labels = label_scores(self._study, self._scoring)
        if labels is None:
            raise ValueError("calibration: anchors wants human labels, and there are no labels")
        is_labelled = labelled_blocks(labels, self._n_blocks)
        self._order.sort(key=lambda block: not is_labelled[block])
        return int(is_labelled.sum())

    # --- the port -------------------------------------------------------------------------------

    def ask(self, view: BudgetView) -> Query | Turn:  # noqa: ARG002 - money is the engine's business
        """Propose what came back, else the pilot's next question, else the next of the scores."""
        if self._is_broke:
            return FINISH
        best: tuple[tuple[int, int], int] | None = None
        waits = False
        for seat in self._seats:
            place = seat.next
            if place is None:
                continue
            if seat.is_down:
                waits = True
            elif best is None or (place, seat.judge) < best:
                best = place, seat.judge
        if best is not None:
            return self._next(self._seats[best[1]])
        return PAUSE if waits or self._open else FINISH

    def tell(self, event: PolicyEvent) -> None:
        """Follow questions and answers; plan when the pilot is told."""
        match event:
            case Asked(q=q, query=query, hold=hold):
                self._open[q] = query
                self._most_held[query.judge] = max(self._most_held[query.judge], hold)
                self._asked(self._seats[query.judge], query)
            case Record(q=q):
                del self._open[q]
                self._told(event)
                self._advance_phase()
            case Parked(q=q):
                query = self._open.pop(q)
                self._seats[query.judge].returned.append(query)
            case Declined(query=query, account=account):
                seat = self._seats[query.judge]
                if account == seat.account:
                    seat.is_declined = True
                    self._replan()
                else:
                    self._is_broke = True
            case CapChanged(cap=cap):
                self._cap = self._cap if cap is None else cap
                self._allow_again()
            case PriceChanged():
                self._allow_again()
            case JudgeDown(judge=judge, until=until):
                seat = self._seats[judge]
                seat.is_down = True
                if until is None and not seat.is_gone:
                    seat.is_gone = True
                    self._replan()
            case JudgeUp(judge=judge):
                seat = self._seats[judge]
                was_gone = seat.is_gone
                seat.is_down = seat.is_gone = False
                if was_gone:
                    self._replan()

    def explain(self) -> dict[str, Json]:
        """Say how the pilot was made, what is planned, and how far that is from the oracle."""
        return {
            "phase": "scores" if self._is_final else "pilot",
            "target": self.target,
            "mode": self._config.mode,
            "sweeps": self._sweeps(),
            "pilot_repeats": self._pilot.repeats,
            "pilot_blocks": self._pilot.n_blocks,
            "degraded": self._pilot.degraded or None,
            "short": self._is_short,
            "to_come": self._to_come(),
            **self._about,
            "says": list(self._sentences()),
        }

    def _to_come(self) -> dict[str, Json]:
        """Count the questions that the plan still holds, by judge; none before there is a plan."""
        return {
            panelist.name: len(seat.queue) + len(seat.again)
            for panelist, seat in zip(self._study.panel, self._seats, strict=True)
            if self._is_final
        }

    def _sentences(self) -> Iterator[str]:
        pilot, sweeps = self._pilot, self._sweeps()
        what = "unit" if self._block == 1 else "item"
        if pilot.degraded:
            is_out = ~pilot.used & (self._omega > 0)
            names = [p.name for p, out in zip(self._study.panel, is_out, strict=True) if out]
            without = f", without {', '.join(names)}" if names else ""
            yield (
                f"The money buys {sweeps:.1f} complete sweeps and EST-IVWE wants {SWEEPS_WANTED}, so "
                f"this is a degraded run: {pilot.degraded}{without}."
            )
        elif sweeps < SWEEPS_FOR_CELLS:
            yield (
                f"The money buys {sweeps:.1f} complete sweeps; below {SWEEPS_FOR_CELLS} the plan may "
                "be no better than asking all judges alike."
            )
        if pilot.n_blocks:
            n_judges = int(pilot.used.sum())
            yield (
                f"Pilot: {n_judges} judge{'' if n_judges == 1 else 's'} asked {pilot.repeats} times "
                f"about {pilot.n_blocks:,} of {self._n_blocks:,} {what}s."
            )
        if self._is_final and self._never_scored().any():
            silent = zip(self._study.panel, self._never_scored(), strict=True)
            these = ", ".join(p.name for p, is_silent in silent if is_silent)
            yield f"No valid answer came from {these} in the pilot; more money would be lost there."
        if self._is_short:
            yield f"The money does not buy an answer for every {what} and judge that the plan wants."
        distance = self._about.get("distance_to_oracle")
        if distance is not None and not pilot.degraded:
            yield (
                f"The planned error is {distance:.2f} times that of an oracle that knows the "
                "variances and spends all money on scores."
            )

    # --- questions ------------------------------------------------------------------------------

    def _next(self, seat: _Seat) -> Query:
        if seat.returned:
            return seat.returned[0]
        if seat.again:
            cell, purpose = seat.again[0]
        elif seat.has_pilot:
            cell, purpose = self._pilot_cell(seat), Purpose.PILOT
        else:
            cell, purpose = seat.queue[0][1], Purpose.POLICY
        return Query(
            kind=self._study.kind,
            judge=seat.judge,
            units=(UnitIx(cell // len(self._seats)),),
            replicate=self._n_asked[cell],
            purpose=purpose,
        )

    def _pilot_cell(self, seat: _Seat) -> int:
        """Find the cell of a judge's next pilot question: block by block, so that they complete."""
        place, rest = divmod(seat.pilot_at, self._repeats[seat.judge] * self._block)
        unit = self._order[place] * self._block + rest % self._block
        return unit * len(self._seats) + seat.judge

    def _asked(self, seat: _Seat, query: Query) -> None:
        if seat.returned and query == seat.returned[0]:
            seat.returned.popleft()
            return
        cell = self._cell(query)
        self._n_asked[cell] += 1
        is_pilot = query.purpose is Purpose.PILOT
        if is_pilot:
            self._n_explored[cell] += 1
        if seat.again and seat.again[0] == (cell, query.purpose):
            seat.again.popleft()
        elif is_pilot:
            seat.pilot_at += 1
        else:
            seat.queue.popleft()

    def _cell(self, query: Query) -> int:
        return query.units[0] * len(self._seats) + query.judge

    # --- answers --------------------------------------------------------------------------------

    def _told(self, record: Record) -> None:
        query, outcome = record.query, record.outcome
        cell, judge = self._cell(query), query.judge
        score = None
        cost: int = outcome.cost
        if isinstance(outcome, Missing):
            cost += outcome.uncertain
        else:
            ((_, score),) = self._scoring.of_answer(query.units, outcome.observations)
        if self._study.panel[judge].card.is_free:
            cost = self._study.panel[judge].planning
        if query.purpose is not Purpose.PILOT:
            self._told_later(cell, score, cost)
            return
        was_explored = self._is_explored(cell)
        self._spent_exploring += cost
        self._cost[cell] += cost
        self._cost_squares[judge] += float(cost) * cost
        self._n_told[cell] += 1
        if score is not None:
            n = self._n_scored[cell] + 1
            step = score - self._mean[cell]
            self._n_scored[cell] = n
            self._mean[cell] += step / n
            self._squares[cell] += step * (score - self._mean[cell])
        else:
            self._ask_again(cell, Purpose.PILOT, self._repeats[judge])
        if self._seats[judge].is_usable:
            self._unfinished -= self._is_explored(cell) and not was_explored

    def _told_later(self, cell: int, score: float | None, cost: int) -> None:
        self._spent_later += cost
        self._n_told_later[cell] += 1
        if score is not None:
            self._n_used[cell] += 1
        elif self._wanted is not None:
            unit, judge = divmod(cell, len(self._seats))
            wanted = int(self._wanted[unit // self._block, judge])
            self._ask_again(cell, Purpose.POLICY, self._n_explored[cell] + wanted)

    def _ask_again(self, cell: int, purpose: Purpose, planned: int) -> None:
        """Replace an answer without a score, unless the cell has failed too often."""
        replaced = self._replaced[purpose]
        judge = cell % len(self._seats)
        if replaced[cell] < MORE_TRIES and planned + replaced[cell] < self._most[judge]:
            replaced[cell] += 1
            self._seats[judge].again.append((cell, purpose))

    def _is_explored(self, cell: int) -> bool:
        """Whether a cell of the pilot waits for nothing more."""
        wanted = self._repeats[cell % len(self._seats)]
        given_up = wanted + self._replaced[Purpose.PILOT][cell]
        is_over = self._n_told[cell] == self._n_explored[cell] == given_up
        return self._n_scored[cell] >= wanted or is_over

    def _count_unfinished(self) -> int:
        """Count the pilot cells that still wait for answers."""
        return sum(
            not self._is_explored(cell)
            for seat in self._seats
            if seat.is_usable and seat.pilot_end
            for cell in self._pilot_cells(seat.judge)
        )

    def _pilot_cells(self, judge: int) -> Iterator[int]:
        n_judges = len(self._seats)
        for block in self._order[: self._pilot.n_blocks]:
            for unit in range(block * self._block, (block + 1) * self._block):
                yield unit * n_judges + judge

    # --- phases ---------------------------------------------------------------------------------

    def _advance_phase(self) -> None:
        if not self._is_final:
            if not self._unfinished:
                self._is_final = True
                self._plan(self._cap - self._spent_exploring - self._planned_cost())
            elif self._wanted is None and self._may_stream():
                self._plan(self._cap - self._spent_exploring - self._pilot_to_come())
        elif not (self._is_topped_up or self._open or any(s.next for s in self._seats)):
            # Once, with what cheaper answers than planned have left.
            self._is_topped_up = True
            self._plan(self._cap - self._spent_exploring - self._spent_later)

    def _planned_cost(self) -> int:
        """Price the questions for scores that are asked already, as planned and not as billed."""
        return int((self._issued() * self._prices()).sum())

    def _may_stream(self) -> bool:
        if any((seat.has_pilot or seat.again) and not seat.is_down for seat in self._seats):
            return False
        n_cells = sum(seat.pilot_end > 0 for seat in self._seats)
        n_cells *= self._pilot.n_blocks * self._block
        return self._unfinished <= (1 - COMPLETE_ENOUGH) * n_cells

    def _pilot_to_come(self) -> int:
        """Bound what the pilot can still cost: every unfinished cell takes all its tries."""
        per_cell = self._pilot.repeats + MORE_TRIES
        return self._unfinished * per_cell * max(self._most_held)

    def _allow_again(self) -> None:
        self._is_broke = False
        for seat in self._seats:
            seat.is_declined = False
        self._is_topped_up = False
        self._replan()

    def _replan(self) -> None:
        """Plan again from the pilot alone, when money or judges have changed."""
        self._unfinished = self._count_unfinished()
        if self._is_final:
            self._plan(self._cap - self._spent_exploring - self._planned_cost())
        else:
            self._advance_phase()

    # --- the plan -------------------------------------------------------------------------------

    def _plan(self, money: int) -> None:
        """Draw up whole calls for the scores, with so much for new ones, and queue these.

        If that does not buy what every block must have, that is planned all the same, and the money
        ends in the random order.
        """
        is_usable = np.array([seat.is_usable for seat in self._seats]) & ~self._never_scored()
        weights = np.where(is_usable & self._pilot.used, self._omega, 0.0)
        if not is_usable.any() or (self.target == "panel" and not weights.any()):
            return
        prices, issued = self._prices(), self._issued()
        variance, about = self._variances()
        eta2 = self._interaction() if self.target == "population" else 0.0
        limits = self._limits(issued, is_usable)
        # Items of equal gain are taken in the random order, not in that of the file.
        rows = np.array(self._order)

        def whole_calls(budget: int) -> Counts:
            counts = np.empty_like(issued)
            counts[rows] = integer_plan(
                variance[rows],
                prices[rows],
                budget,
                self._p,
                self.target,
                weights if self.target == "panel" else None,
                interaction=eta2,
                at_least=issued[rows],
                at_most=limits[rows],
            )
            return counts

        money = max(money, 0)
        budget = int((issued * prices).sum()) + money - self._margin(money, prices)
        try:
            counts = whole_calls(budget)
            self._is_short = False
        except BudgetTooSmall as exc:
            if not self._is_final:
                return
            counts = whole_calls(exc.sufficient)
            self._is_short = True
        if not self._is_final:
            counts = np.where(self._complete()[:, None], np.maximum(counts // 2, counts > 0), 0)
        self._wanted = np.maximum(counts, issued)
        self._queue(self._wanted)
        self._about = about | self._summary(variance, prices, weights, eta2, budget)

    def _queue(self, wanted: Counts) -> None:
        """Queue what is not asked yet in a random order, the first answers before all others.

        The order is drawn before any of their answers is known, so cutting its tail is no choice.
        The arms of an item stand together.
        """
        self._n_plans += 1
        rng = self._study.seeds.stream(Stream.POLICY, self._n_plans)
        chance = rng.random(int(wanted.sum()))
        starts = (np.cumsum(wanted) - wanted.ravel()).reshape(wanted.shape)
        done = self._issued_to_units()
        left = (wanted[:, None, :] - done).ravel()
        cells = np.repeat(np.arange(len(left)), left)
        turns = np.arange(len(cells)) - np.repeat(np.cumsum(left) - left, left)
        turns += done.ravel()[cells]
        n_judges = len(self._seats)
        of_block = cells // (n_judges * self._block), cells % n_judges
        order = np.lexsort((cells, chance[starts[of_block] + turns], turns > 0))
        queues: list[deque[tuple[int, int]]] = [deque() for _ in self._seats]
        for rank, cell in enumerate(cells[order].tolist()):
            queues[cell % n_judges].append((rank, cell))
        for seat, queue in zip(self._seats, queues, strict=True):
            seat.queue = queue
            # What failed and waits to be asked again is planned anew.
            seat.again = deque(entry for entry in seat.again if entry[1] is Purpose.PILOT)

    def _table(self, values: array[int] | array[float]) -> NDArray[np.float64]:
        """View a column of cells as (n_blocks, units of a block, n_judges)."""
        shape = (self._n_blocks, self._block, len(self._seats))
        return np.asarray(values).reshape(shape).astype(np.float64)

    def _issued_to_units(self) -> Counts:
        """Count the questions for scores, (n_blocks, units of a block, n_judges).

        Those that brought no score don't count: they are asked again.
        """
        asked = self._table(self._n_asked) - self._table(self._n_explored)
        failed = self._table(self._n_told_later) - self._table(self._n_used)
        return (asked - failed).astype(np.int64)

    def _issued(self) -> Counts:
        """Count each block's questions for scores, made or surely to be made, (n_blocks, n_judges)."""
        return np.asarray(self._issued_to_units().max(axis=1))

    def _limits(self, issued: Counts, is_usable: NDArray[np.bool_]) -> Counts:
        """Bound counts: by what a recording holds, by judges that are gone or mostly fail."""
        most = np.full(issued.shape, np.iinfo(np.int64).max // 2)
        explored = self._table(self._n_explored).max(axis=1)
        for j, repeats in enumerate(self._most):
            if repeats < math.inf:
                most[:, j] = repeats - explored[:, j]
        told, scored = (
            self._table(self._n_told).sum(axis=1),
            self._table(self._n_scored).sum(axis=1),
        )
        if self.target != "panel":
            most[(told - scored + 0.5) / (told + 1) > 0.5 + 1e-9] = 0  # half of nothing is 0.5
            most[:, ~self._pilot.used] = 0
        most[:, ~is_usable] = 0
        return np.asarray(np.maximum(most, issued))

    def _never_scored(self) -> NDArray[np.bool_]:
        """Say which judges gave no valid answer in the whole pilot: more money would be lost on them."""
        told = self._table(self._n_told).sum(axis=(0, 1))
        return np.asarray((told > 0) & (self._table(self._n_scored).sum(axis=(0, 1)) == 0))

    def _prices(self) -> Counts:
        """Price one valid answer of each judge about each block, (n_blocks, n_judges) nano-USD.

        Before the pilot is told, what the configuration expects. Then a judge's price is its mean
        cost of a pilot question over its share of valid answers, times a factor of the block's
        length, which is pulled to 1 with the weight of five calls.
        """
        if not self._is_final or not any(self._n_told):
            return np.broadcast_to(self._price, (self._n_blocks, len(self._seats)))
        told, cost = self._table(self._n_told).sum(axis=1), self._table(self._cost).sum(axis=1)
        scored = self._table(self._n_scored).sum(axis=(0, 1))
        n_told = told.sum(axis=0)
        per_call = np.where(n_told > 0, cost.sum(axis=0) / np.maximum(n_told, 1), 0.0)
        per_call = np.where(per_call > 0, per_call, self._price / self._block)
        failing = np.where(n_told > scored, (n_told - scored + 0.5) / (n_told + 1), 0.0)
        usual = 5 * per_call.mean()
        factor = (cost.sum(axis=1) + usual) / ((told * per_call).sum(axis=1) + usual)
        prices = per_call / (1 - failing) * factor[:, None] * self._block
        return np.asarray(np.maximum(np.rint(prices), 1), dtype=np.int64)

    def _margin(self, money: int, prices: Counts) -> int:
        """Keep back what chance may add to the planned cost, and room for the last hold."""
        n_told = self._table(self._n_told).sum(axis=(0, 1))
        cost = self._table(self._cost).sum(axis=(0, 1))
        spread = np.asarray(self._cost_squares) - cost**2 / np.maximum(n_told, 1)
        n_later = max(1.0, money / float(prices.mean()))
        n = max(1.0, float(n_told.sum()))
        relative = math.sqrt(max(0.0, float(spread.sum())) / n) / max(1.0, float(cost.sum()) / n)
        # Rounding leaves a relative spread of 1e-8 where all calls cost the same.
        chance = 0.0 if relative < 1e-6 else 2 * relative / math.sqrt(n_later)
        per_call = prices.max(axis=0) // self._block
        last = max(0, int((np.asarray(self._most_held) - per_call).max()))
        return min(money, last + int(money * min(chance, 0.5)))

    def _complete(self) -> NDArray[np.bool_]:
        """Say which blocks the pilot has all answers of, (n_blocks,)."""
        scored, told = self._table(self._n_scored), self._table(self._n_told)
        explored, wanted = self._table(self._n_explored), np.array(self._repeats)
        given_up = wanted + self._table(self._replaced[Purpose.PILOT])
        is_done = (scored >= wanted) | ((told == explored) & (explored == given_up))
        return np.asarray(is_done.all(axis=(1, 2)))

    def _variances(self) -> tuple[Array, dict[str, Json]]:
        """Give each cell's variance to plan with, (n_blocks, n_judges), and how it was made."""
        df = np.maximum(self._table(self._n_scored) - 1, 0).sum(axis=1)
        own = self._table(self._squares).sum(axis=1) / np.maximum(df, 1)
        return planning_variance(self._config, self._pilot, own, df, self._scoring.span)

    def _interaction(self) -> float:
        n = self._table(self._n_scored)
        total = (n * self._table(self._mean)).sum(axis=1)
        df = np.maximum(n - 1, 0).sum(axis=1)
        squares = self._table(self._squares).sum(axis=1)
        used = self._pilot.used
        return interaction_variance(*(t[:, used] for t in (n.sum(axis=1), total, df, squares)))

    def _summary(
        self, variance: Array, prices: Counts, weights: Array, eta2: float, budget: int
    ) -> dict[str, Json]:
        """Say what is planned and how far its error is from that of an oracle with all the money."""
        names = tuple(p.name for p in self._study.panel)
        counts = self._wanted
        assert counts is not None
        cost = int((counts * prices).sum())
        about: dict[str, Json] = {
            "planned": dict(zip(names, (counts.sum(axis=0) * self._block).tolist(), strict=True)),
            "share_of_money": judge_shares(counts * prices, names),
            "unspent_of_plan": budget - cost,
        }
        if self.target == "population":
            about["interaction_variance"] = eta2
        if not self._is_final:
            return about
        shape: dict[str, Any] = {
            "target": self.target,
            "weights": weights if self.target == "panel" else None,
            "interaction": eta2,
        }
        errors = item_variances(counts, variance, **shape)
        if np.isnan(errors).all() or self._is_short or self._cap < max(cost, 1):
            return about
        planned = error_of(errors[~np.isnan(errors)], self._p)
        if self.target == "population":
            # The exact solution takes minutes for many items.
            whole = integer_plan(variance, prices, self._cap, self._p, **shape)
            oracle = error_of(item_variances(whole, variance, **shape), self._p)
        else:
            oracle = oracle_allocation(variance, prices, self._cap, self._p, **shape).error_scale
        about |= {"planned_error": planned, "oracle_error": oracle}
        if oracle > 0:
            about["distance_to_oracle"] = planned / oracle
        return about

    def _sweeps(self) -> float:
        return self._cap / float(self._n_blocks * self._price.sum())


PLUGIN = Plugin(config=EstIvweConfig, build=EstIvwe)
