"""The state of a run: a fold over its events.

`State.apply` is the only place where anything changes. The live run applies an event before it is
stored, a resume applies the stored ones; both end in the same state.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field, replace
from typing import assert_never

from orchestrator.core.budget import BudgetView
from orchestrator.core.errors import ReplayDivergence
from orchestrator.core.estimate import Estimate
from orchestrator.core.events import (
    GLANCE,
    LOST,
    Arrived,
    Asked,
    CapChanged,
    Commanded,
    Continued,
    Declined,
    Event,
    Forfeited,
    Freed,
    JudgeDown,
    JudgeUp,
    Late,
    LimitReached,
    Looked,
    Opened,
    Parked,
    Paused,
    PriceChanged,
    Reasked,
    Reopened,
    Sent,
    Started,
    Stopped,
    Told,
    Withdrawn,
)
from orchestrator.core.ids import JudgeIx, QNo
from orchestrator.core.money import Nano
from orchestrator.core.query import Judged, Missing, MissingReason, Outcome, Query
from orchestrator.core.records import Join, Open
from orchestrator.core.stopping import StopReason
from orchestrator.core.wire import FIRST_ATTEMPT, Attempt, Origin, Reply, Request
from orchestrator.engine.crew import Crew
from orchestrator.engine.ledger import Ledger
from orchestrator.engine.sequencer import Sequencer


@dataclass(slots=True)
class JudgeState:
    """What became of one judge so far."""

    asked: int = 0
    answered: int = 0
    missing: Counter[str] = field(default_factory=Counter)
    is_down: bool = False
    down_until: float | None = None
    why_down: str = ""
    excess: int = 0
    """The most by which a bill passed its bound; later holds include it."""
    uncertain: int = 0
    """What its replies left uncertain; attempts that a crash of ours lost are not its fault."""


class State:
    """Everything that decisions depend on, and what follows from them."""

    def __init__(self, crew: Crew) -> None:
        opened = crew.opened
        self.crew = crew
        self.cards = list(opened.cards)
        self.policy = crew.new_policy(opened.cap)
        self.estimators = crew.new_estimators(opened.cap)
        # The looks are those that the run was opened with, whatever its cap is now.
        self.stop = replace(crew.stop, every=opened.looks)
        names = [judge.name for judge in crew.judges]
        self.ledger = Ledger(opened.cap, names, opened.judge_caps, opened.role_caps)
        self.sequencer = Sequencer(crew.delivery)
        self.judges = [JudgeState() for _ in names]
        self.n_up = len(names)
        self.suspect: JudgeIx | None = None
        """A judge whose uncertain charges pass the campaign's tolerance."""
        self._join = Join()
        self.n_asked = 0
        self.n_requests = 0
        self.n_told = 0
        self.n_answered = 0
        self.n_cached = 0
        self.n_tok = 0
        self.is_opened = False
        self.is_paused = False
        self.limit_reached: str | None = None
        self.is_ending = False
        """Whether nothing more is sent: a limit that is no part of the design is reached."""
        self.declined: set[Query] = set()
        """Questions that no money was left for, until they are asked or money or prices change."""
        self.n_declined_in_row = 0
        self.owes_look = False
        self.is_precise = False
        self.is_decided = False
        self.last_look: Looked | None = None
        self.stopped: StopReason | None = None
        self._cut_off: list[QNo] = []

    # --- what decisions read --------------------------------------------------------------------

    @property
    def open(self) -> dict[QNo, Open]:
        """Questions that are asked and not yet told, by number."""
        return self._join.open

    @property
    def is_drained(self) -> bool:
        """Whether nothing is outstanding."""
        return not self._join.open

    def view(self) -> BudgetView:
        """Show the policy what it may know about money."""
        account = self.ledger.campaign
        return BudgetView(
            cap=None if account.cap is None else Nano(account.cap),
            settled=Nano(account.settled),
            uncertain=Nano(account.uncertain),
            held=Nano(account.held),
            price=self._price,
        )

    def render(self, query: Query, attempt: Attempt = FIRST_ATTEMPT) -> Request:
        """Put a question into words."""
        return self.crew.judges[query.judge].rubric.render(query, attempt)

    def hold_for(self, request: Request, excess: int = 0) -> Nano:
        """Bound one attempt at the card in force, plus what this judge once billed on top.

        `excess` is what it has just billed on top, and is not settled yet.
        """
        judge = request.query.judge
        bound = self.crew.judges[judge].adapter.ceiling(request, self.cards[judge])
        return Nano(bound + max(excess, self.judges[judge].excess))

    def remembered(self, query: Query) -> Reply | None:
        """Give the answer that an earlier run had to the same words, if it is to be used."""
        return None if self.crew.memory is None else self.crew.memory.find(query)

    def _price(self, query: Query) -> Nano:
        return self.hold_for(self.render(query))

    def next_due(self) -> Open | None:
        """Give the question whose turn it is to be told, if its outcome is there."""
        return self.sequencer.due(self._join.open)

    # --- looks ----------------------------------------------------------------------------------

    def estimate(self) -> tuple[Estimate, ...]:
        """Ask all estimators what is known by now."""
        return tuple(e for estimator in self.estimators for e in estimator.estimate())

    def look(self, estimates: tuple[Estimate, ...], *, is_final: bool) -> Looked:
        """Make the record of a look."""
        account = self.ledger.campaign
        widths = (e.half_width for e in estimates)
        return Looked(
            n_told=self.n_told,
            settled=Nano(account.settled),
            uncertain=Nano(account.uncertain),
            held=Nano(account.held),
            half_widths=tuple(w if w == w else None for w in widths),  # noqa: PLR0124  # nan
            estimates=tuple(e.as_json() for e in estimates if is_final or len(e.names) <= GLANCE),
            is_precise=bool(estimates) and self.stop.is_met(estimates[0]),
            is_final=is_final,
            is_decided=self.stop.is_decided(estimates),
            policy=self.policy.explain(),
        )

    # --- the fold -------------------------------------------------------------------------------

    def apply(self, event: Event) -> None:
        """Take in one event, new or stored."""
        match event:
            case Asked():
                self._asked(event)
            case Told():
                self._told(event)
            case Arrived(q=q):
                self._join.feed(event)
                self.sequencer.arrived(q)
            case Sent():
                self._join.feed(event)
            case Freed(q=q):
                self._join.feed(event)
                at = self.open[q]
                if self.judges[at.query.judge].is_down or self.is_ending:
                    at.returned = True
                    self.sequencer.arrived(q)
            case Reasked():
                self._reasked(event)
            case Looked():
                self.owes_look = False
                if not event.is_final:  # a final look belongs to a stop that is decided already
                    self.is_precise = event.is_precise
                    self.is_decided = event.is_decided
                self.last_look = event
            case Declined(query=query):
                self.declined.add(query)
                self.n_declined_in_row += 1
                self.policy.tell(event)
            case Parked(q=q):
                self._join.feed(event)
                self.sequencer.gone(q)
                self.ledger.release(q)
                self.policy.tell(event)
            case JudgeDown(judge=judge, until=until, why=why):
                down = self.judges[judge]
                self.n_up -= not down.is_down
                down.is_down, down.down_until, down.why_down = True, until, why
                self.suspect = None if self.suspect == judge else self.suspect
                self._take_back(event)
                self.policy.tell(event)
            case JudgeUp(judge=judge):
                self.n_up += self.judges[judge].is_down
                self.judges[judge].is_down = False
                self.judges[judge].down_until = None
                self.judges[judge].uncertain = 0
                self.policy.tell(event)
            case CapChanged(cap=cap):
                self.ledger.campaign.cap = cap
                self._forget_declined()
                self.policy.tell(event)
            case PriceChanged(judge=judge, card=card):
                self.cards[judge] = card
                self._forget_declined()
                self._take_back(event)
                self.policy.tell(event)
            case Paused():
                self.is_paused = True
            case Continued():
                self.is_paused = False
            case LimitReached(which=which):
                self.limit_reached = which
                self.is_paused = False  # it ends, and ending asks nothing
                self.is_ending = event.takes_back
                self._take_back(event)
            case Stopped(reason=reason):
                self.stopped = reason
            case Reopened():
                self.stopped = None
                self.limit_reached = None
                self.is_ending = False
                self._forget_declined()
                # What the stop cut off never counts; the policy may ask it again.
                for q in self._cut_off:
                    self.policy.tell(Parked(q=q))
                self._cut_off.clear()
            case Late(q=q, outcome=outcome):
                self._close(event)
                self._settle(q, outcome)
            case Forfeited(q=q):
                self._close(event)
                self.ledger.forfeit(q)
            case Withdrawn(q=q):
                self._close(event)
                self.ledger.release(q)
            case Opened():
                self.is_opened = True
            case Started() | Commanded():
                pass
            case _:
                assert_never(event)

    def _asked(self, event: Asked) -> None:
        self.ledger.hold(event.q, event.query, event.hold)
        self._join.feed(event)
        self.sequencer.asked(event.q)
        self.n_asked += 1
        self.n_cached += event.origin is Origin.CACHE
        self.n_requests += event.origin is not Origin.CACHE
        self.judges[event.query.judge].asked += 1
        self.n_declined_in_row = 0
        if self.declined:
            self.declined.discard(event.query)
        self.policy.tell(event)

    def _told(self, event: Told) -> None:
        record = self._join.feed(event)
        if record is None:
            raise ReplayDivergence(f"question {event.q} was told without an outcome", seq=0)
        self.sequencer.gone(event.q)
        self._settle(event.q, record.outcome, JudgeIx(record.query.judge))
        self.n_told += 1
        judge = self.judges[record.query.judge]
        match record.outcome:
            case Judged():
                judge.answered += 1
                self.n_answered += 1
            case Missing(reason=reason):
                judge.missing[reason] += 1
        self.policy.tell(record)
        for estimator in self.estimators:
            estimator.update(record)
        self.owes_look = self.stop.is_look(self.n_told)

    def _reasked(self, event: Reasked) -> None:
        at = self.open[event.q]
        query, outcome = at.query, at.outcome
        if event.ended == LOST or outcome is None:
            self.ledger.forfeit(event.q)
        else:
            self._settle(event.q, outcome, JudgeIx(query.judge))
            self.sequencer.back_to_end(event.q)
        self.ledger.hold(event.q, query, event.hold)
        self._join.feed(event)
        self.n_requests += 1

    def _settle(self, q: QNo, outcome: Outcome, judge: JudgeIx | None = None) -> None:
        uncertain = outcome.uncertain if isinstance(outcome, Missing) else Nano(0)
        excess = self.ledger.settle(q, cost=outcome.cost, uncertain=uncertain)
        if judge is not None:
            if excess:
                self.judges[judge].excess = max(self.judges[judge].excess, excess)
            if isinstance(outcome, Missing):
                self._suspect(judge, outcome)
        is_cached = isinstance(outcome, Judged) and outcome.origin is Origin.CACHE
        if outcome.usage is not None and not is_cached:
            usage = outcome.usage
            self.n_tok += (
                usage.input_tok
                + usage.cached_input_tok
                + usage.cache_write_5m_tok
                + usage.cache_write_1h_tok
                + usage.output_tok
            )

    def _suspect(self, judge: JudgeIx, missing: Missing) -> None:
        if not missing.uncertain or missing.reason is MissingReason.NO_MONEY_FOR_RETRY:
            return
        at = self.judges[judge]
        at.uncertain += missing.uncertain
        tolerance = self.crew.opened.max_uncertain
        if tolerance is not None and at.uncertain > tolerance and not at.is_down:
            self.suspect = judge

    def _take_back(self, event: JudgeDown | PriceChanged | LimitReached) -> None:
        self._join.feed(event)
        for at in self.open.values():
            if at.returned:
                self.sequencer.arrived(at.q)

    def _close(self, event: Late | Forfeited | Withdrawn) -> None:
        self._join.feed(event)
        self.sequencer.gone(event.q)
        self._cut_off.append(event.q)

    def _forget_declined(self) -> None:
        self.declined.clear()
        self.n_declined_in_row = 0
