"""The state of a run: a fold over its events.

`State.apply` is the only place where anything changes. The live run applies an event before it is
stored, a resume applies the stored ones; both end in the same state.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Protocol, assert_never, runtime_checkable

from orchestrator.core.budget import BudgetView
from orchestrator.core.errors import CorruptLog, ReplayDivergence
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
from orchestrator.core.ids import JudgeIx, QNo, UnitIx
from orchestrator.core.money import Nano, PriceCard
from orchestrator.core.query import Judged, Missing, MissingReason, Outcome, Query, Role
from orchestrator.core.records import Join, Open
from orchestrator.core.stopping import StopReason
from orchestrator.core.wire import FIRST_ATTEMPT, Attempt, Origin, Reply, Request
from orchestrator.engine.crew import Crew
from orchestrator.engine.generations import Generations
from orchestrator.engine.ledger import Ledger
from orchestrator.engine.sequencer import Sequencer

KEPT_BOUNDS = 1 << 16
"""Questions whose bound is kept until their answers are there."""


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


@runtime_checkable
class Keyed(Protocol):
    """A rubric that decides some questions by itself."""

    def known(self, query: Query) -> Reply | None:
        """Give the verdict that no call is needed for; None where a judge must be asked."""
        ...


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
        self.ledger = Ledger(opened.cap, names, opened.judge_caps, opened.role_caps, crew.n_systems)
        self.sequencer = Sequencer(crew.delivery)
        self.generations = Generations(crew.systems, crew.answers)
        rubrics = [judge.rubric for judge in crew.judges]
        self._keyed = [rubric if isinstance(rubric, Keyed) else None for rubric in rubrics]
        self.judges = [JudgeState() for _ in names]
        """All who can be asked: judges, then systems."""
        self.n_up = len(self.asked_by_policy)
        """How many of those whom the policy asks take questions."""
        self.suspect: JudgeIx | None = None
        """A judge whose uncertain charges pass the campaign's tolerance."""
        self._blind = lru_cache(maxsize=KEPT_BOUNDS)(self._ceiling_blind)
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
    def asked_by_policy(self) -> range:
        """Those whom the policy asks: the judges, or systems where answers are all that is wanted."""
        systems = self.crew.systems
        return range(systems.start) if systems.start else systems

    @property
    def is_generating(self) -> bool:
        """Whether answers are all that is wanted: there are systems and no judges."""
        return self.crew.systems.start == 0

    @property
    def lacks_system(self) -> bool:
        """Whether a system whose answers are to be judged takes no questions."""
        return not self.is_generating and any(
            self.judges[system].is_down for system in self.crew.systems
        )

    @property
    def n_open_verdicts(self) -> int:
        """How many questions are outstanding that bring a verdict."""
        if not self.crew.n_systems or self.is_generating:
            return len(self.open)
        return sum(at.query.role is Role.JUDGE for at in self.open.values())

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

    def worst(self, query: Query) -> tuple[Nano, Request | None]:
        """Bound a first attempt, with the longest answers where no one is told of them; give its words.

        There are no words while answers are lacking, and a bound is found once: these are long.
        """
        untold, judge = self.generations.untold(query), query.judge
        if not untold:
            request = self.render(query)
            return self.hold_for(request), request
        bound = self._blind(_as_proposed(query), (*untold,), self.cards[judge])
        return Nano(bound + self.judges[judge].excess), None

    def _ceiling_blind(self, query: Query, untold: tuple[UnitIx, ...], card: PriceCard) -> Nano:
        assert self.crew.answers is not None
        with self.crew.answers.hidden(untold):
            request = self.render(query)
        return self.crew.judges[query.judge].adapter.ceiling(request, card)

    def hold_for(self, request: Request, excess: int = 0) -> Nano:
        """Bound one attempt at the card in force, plus what this judge once billed on top.

        `excess` is what it has just billed on top, and is not settled yet.
        """
        judge = request.query.judge
        bound = self.crew.judges[judge].adapter.ceiling(request, self.cards[judge])
        return Nano(bound + max(excess, self.judges[judge].excess))

    def known(self, query: Query) -> Reply | MissingReason | None:
        """Give what is known of a question without a call; None if it must be asked.

        That there is no answer to judge, a verdict by the key, or the answer that an earlier run had
        to the same words, if it is to be used.
        """
        if self.generations.failed(query):
            return MissingReason.NO_ANSWER
        rubric, memory = self._keyed[query.judge], self.crew.memory
        if rubric is not None and (reply := rubric.known(query)) is not None:
            return reply
        return None if memory is None else memory.find(query)

    def unsendable(self, at: Open) -> MissingReason | None:
        """Say why a question can't be sent now that its answers are there: none fits what is held."""
        judge = at.query.judge
        request = self.render(at.query, at.attempt)
        bound = self.crew.judges[judge].adapter.ceiling(request, self.cards[judge])
        return MissingReason.TOO_LONG if bound > at.hold else None

    def _price(self, query: Query) -> Nano:
        """Bound what a question costs, with the answers that must be generated for it."""
        first = sum(self.hold_for(self.render(g)) for g in self.generations.lacking(query))
        return Nano(first + self.worst(query)[0])

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
            is_precise=self.stop.is_met(estimates),
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
            case Arrived(q=q, outcome=outcome):
                self._join.feed(event)
                self.sequencer.arrived(q)
                self._take_answer(self.open[q].query, outcome)
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
                proposed = _as_proposed(query)
                self.declined.add(proposed)
                self.n_declined_in_row += 1
                self.policy.tell(event if proposed is query else replace(event, query=proposed))
            case Parked(q=q):
                query = self.open[q].query
                self._join.feed(event)
                self.sequencer.gone(q)
                self.ledger.release(q)
                if query.role is Role.JUDGE or self.is_generating:
                    self.policy.tell(event)
                if query.role is Role.SYSTEM:
                    self._send_back(self.generations.waiting(q))
                    self.generations.take_back(q, query.units)
            case JudgeDown(judge=judge, until=until, why=why):
                down = self.judges[judge]
                self.n_up -= judge in self.asked_by_policy and not down.is_down
                down.is_down, down.down_until, down.why_down = True, until, why
                self.suspect = None if self.suspect == judge else self.suspect
                self._take_back(event)
                self._tell_of(judge, event)
            case JudgeUp(judge=judge):
                self.n_up += judge in self.asked_by_policy and self.judges[judge].is_down
                self.judges[judge].is_down = False
                self.judges[judge].down_until = None
                self.judges[judge].uncertain = 0
                self._tell_of(judge, event)
            case CapChanged(cap=cap):
                self.ledger.campaign.cap = cap
                self._forget_declined()
                self.policy.tell(event)
            case PriceChanged(judge=judge, card=card):
                self.cards[judge] = card
                if judge in self.asked_by_policy:  # else it does not know that it can ask again
                    self._forget_declined()
                self._take_back(event)
                self._tell_of(judge, event)
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
                # What the stop cut off never counts; the policy may ask it again.
                for q in self._cut_off:
                    self.policy.tell(Parked(q=q))
                self._cut_off.clear()
            case Late(q=q, outcome=outcome):
                query = self.open[q].query
                self._close(event)
                self._settle(q, outcome)
                # It is paid for, so it serves if the run goes on.
                if query.role is Role.SYSTEM and isinstance(outcome, Judged) and outcome.blob:
                    self._take_answer(query, outcome)
                    self.generations.asked[query.units[0]] = q
                    self.generations.note_told(q, query.units[0], is_answered=True)
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
        self.n_requests += event.origin is Origin.LIVE
        self.judges[event.query.judge].asked += 1
        self.n_declined_in_row = 0
        self.generations.note_asked(event.q, event.query)
        if self.declined:
            self.declined.discard(_as_proposed(event.query))
        if event.query.role is Role.JUDGE or self.is_generating:
            proposed = _as_proposed(event.query)
            is_same = proposed is event.query
            self.policy.tell(event if is_same else replace(event, query=proposed))

    def _told(self, event: Told) -> None:
        record = self._join.feed(event)
        if record is None:
            raise ReplayDivergence(f"question {event.q} was told without an outcome", seq=0)
        self.sequencer.gone(event.q)
        self._settle(event.q, record.outcome, JudgeIx(record.query.judge))
        judge, query = self.judges[record.query.judge], record.query
        match record.outcome:
            case Judged():
                judge.answered += 1
            case Missing(reason=reason):
                judge.missing[reason] += 1
        if query.role is Role.SYSTEM:
            is_answered = not record.is_missing
            self.generations.note_told(event.q, query.units[0], is_answered=is_answered)
            if not self.is_generating:
                return
        self.n_told += 1
        self.n_answered += not record.is_missing
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
            for q in self.generations.waiting(event.q):
                # What reads an answer is told after it; what is due by now does not read it.
                if (reader := self.open.get(q)) is not None and not reader.is_due:
                    self.sequencer.back_to_end(q)
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

    def _tell_of(self, judge: int, event: JudgeDown | JudgeUp | PriceChanged) -> None:
        """Tell the policy of those whom it asks."""
        if judge in self.asked_by_policy:
            self.policy.tell(event)

    def _take_back(self, event: JudgeDown | PriceChanged | LimitReached) -> None:
        self._join.feed(event)
        for at in self.open.values():
            if at.returned:
                self.sequencer.arrived(at.q)

    def _send_back(self, questions: Iterable[QNo]) -> None:
        """Let questions come back whose answer won't come now; those that are due have their end."""
        for q in questions:
            at = self.open.get(q)
            if at is not None and not at.is_due:
                at.returned = True
                self.sequencer.arrived(q)

    def _take_answer(self, query: Query, outcome: Outcome) -> None:
        """Have the text of an answer that has come: of a stored one, by its digest."""
        if query.role is not Role.SYSTEM or not isinstance(outcome, Judged):
            return
        unit, recall = query.units[0], self.crew.recall
        if not self.generations.has_text(unit) and self.crew.answers is not None:
            reply = None if recall is None else recall(outcome.blob)
            if reply is None:
                raise CorruptLog(f"the answer to unit {unit} is gone from the log", seq=0)
            self.generations.note_text(unit, reply.text)

    def _close(self, event: Late | Forfeited | Withdrawn) -> None:
        query = self.open[event.q].query
        self._join.feed(event)
        self.sequencer.gone(event.q)
        if query.role is Role.SYSTEM:
            self.generations.take_back(event.q, query.units)
        if query.role is Role.JUDGE or self.is_generating:
            self._cut_off.append(event.q)

    def _forget_declined(self) -> None:
        self.declined.clear()
        self.n_declined_in_row = 0


def _as_proposed(query: Query) -> Query:
    """Give a question as its policy knows it: the parent is the run's own."""
    return query if query.parent is None else replace(query, parent=None)
