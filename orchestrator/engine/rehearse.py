"""A rehearsal: a whole run without judges, network and clock, on a heap of times.

The core is the live one: the same `State`, `Decider`, lanes and ledger take the same decisions in
the same turns. Only what waits in a live run (calls, pauses, the wall clock) becomes an entry of a
heap, so hours pass in about a second for 20,000 calls. Nothing is stored. What a live run adds to
this is its own work, commits above all.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Coroutine, Mapping, Sequence
from dataclasses import dataclass, replace
from heapq import heappop, heappush
from operator import add
from typing import Any, Protocol

from orchestrator.core.errors import JudgeError, OrchestratorError, TimedOut
from orchestrator.core.estimate import Estimate
from orchestrator.core.events import Arrived, Asked, Event, Late, LimitReached, Reasked, Told
from orchestrator.core.ids import JudgeIx, QNo
from orchestrator.core.query import Judged, Missing, Outcome, Query
from orchestrator.core.stopping import StopReason, StopRule
from orchestrator.core.wire import Json, Origin, Reply, Request
from orchestrator.engine.attempts import Job, answered, mean_pause, unanswered
from orchestrator.engine.crew import Crew
from orchestrator.engine.decider import Decider
from orchestrator.engine.dispatch import Dispatcher
from orchestrator.engine.fold import State
from orchestrator.engine.traffic import Traffic


class Player(Protocol):
    """Stands in for a judge."""

    def attempt(self, request: Request) -> tuple[Reply | JudgeError, float]:
        """Make one attempt: what comes of it, and after how many seconds."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Sight:
    """How a rehearsal stood at a look, and what a stop at that moment would have come to.

    Parameters
    ----------
    n_told : questions told
    at_s, drain_s : the time, and how long the calls under way still take
    calls : (n_judges,) calls sent
    spent : (n_judges,) nano-USD settled or uncertain, with what is to come for the calls sent
    untold_calls, untold_spent : (n_judges,) those of them whose outcome isn't told, and what they cost
    half_width, n_items : of the primary estimate
    """

    n_told: int
    at_s: float
    drain_s: float
    calls: tuple[int, ...]
    spent: tuple[int, ...]
    untold_calls: tuple[int, ...]
    untold_spent: tuple[int, ...]
    half_width: float
    n_items: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Rehearsal:
    """What a rehearsal came to, by judge where it says so.

    Parameters
    ----------
    sights : at each look, the one at the stop last
    calls, answered, missing : by judge; a free retry inside a hold is no further call
    by_key : by judge: verdicts for which no call was needed
    spent, worst : by judge, nano-USD: what was charged, and what would have been if each call had
        cost its ceiling
    chance_nano : SD of the whole sum by chance, questions taken as independent
    duration_s : until the last call under way has come back
    in_flight : calls under way at a time, averaged over the duration
    bound_by : share of the duration in which this kept the run from being faster: `judge:NAME` (its
        concurrency), `start:NAME` (its lane still grows), `rate:NAME` (its rpm or tokens a minute, or
        a pause that it asked for), `jobs` (calls of all judges together), `window`, `cap` (held money), `policy` (it waits for answers), `last` (everything is sent,
        the last answers are under way)
    estimates, policy : at the stop; what the policy says of itself
    """

    sights: tuple[Sight, ...]
    n_told: int
    calls: tuple[int, ...]
    answered: tuple[int, ...]
    missing: tuple[int, ...]
    by_key: tuple[int, ...]
    spent: tuple[int, ...]
    worst: tuple[int, ...]
    chance_nano: float
    duration_s: float
    in_flight: float
    bound_by: Mapping[str, float]
    stop_reason: StopReason
    estimates: tuple[Estimate, ...]
    policy: Mapping[str, Json]


def rehearse(
    crew: Crew,
    players: Sequence[Player],
    *,
    max_in_flight: int,
    wall_clock_s: float | None = None,
) -> Rehearsal:
    """Carry a campaign out with players in the place of its judges; one player a judge.

    The crew's precision target does not end a rehearsal, so that the precision beyond it is seen
    too; looks are as sparse as those of a run without one. Everything else of the crew counts.
    Limits of the rate hold as in a live run. Pauses before a free retry last as long as the judge
    says, else as long as they do on average.

    Raises
    ------
    OrchestratorError
        The policy breaks its contract.
    """
    stage = _Stage(crew, players, max_in_flight)
    if wall_clock_s is not None:
        stage.ring_at(wall_clock_s)
    return stage.perform()


@dataclass(slots=True)
class _Call:
    """One attempt with a player, and what will come of it."""

    job: Job
    result: Reply | JudgeError
    outcome: Outcome


@dataclass(frozen=True, slots=True, kw_only=True)
class _Watched(StopRule):
    """A stop rule that shows each look to the stage and never ends a run."""

    stage: _Stage

    def is_met(self, estimates: Sequence[Estimate]) -> bool:
        """Take note of how the run stands."""
        if estimates:
            self.stage.look(self.aimed_at(estimates))
        return False


class _Nowhere:
    """Keeps nothing."""

    def prompt(self, request: Request) -> str:
        """Name no prompt."""
        del request
        return ""

    def reply(self, reply: Reply) -> str:
        """Name no reply."""
        del reply
        return ""

    def words(self, error: JudgeError) -> str:
        """Give what a judge said."""
        return str(error)


NOWHERE = _Nowhere()


class _Stage:
    """The clock, the calls under way, and the accounts of a rehearsal."""

    def __init__(self, crew: Crew, players: Sequence[Player], max_in_flight: int) -> None:
        stop = _Watched(every=crew.stop.every, of_every_arm=crew.stop.of_every_arm, stage=self)
        self.state = State(replace(crew, stop=stop))
        self.state.apply(crew.opened)
        self._dispatcher = Dispatcher(crew.judges, max_in_flight, backoff=mean_pause)
        self._decider = Decider(self.state, self._dispatcher, NOWHERE, may_thread=False)
        self._traffic = Traffic(self._decider, self._dispatcher, NOWHERE, lambda: self._now)
        self._players = players
        self._now = 0.0
        self._heap: list[tuple[float, int, _Call | None]] = []
        self._n_pushed = 0
        self._is_out_of_time = False
        n_judges = len(crew.judges)
        self._sights: list[Sight] = []
        self._calls = [0] * n_judges
        self._worst = [0] * n_judges
        self._by_key = [0] * n_judges
        self._judge_of: dict[QNo, JudgeIx] = {}
        self._charged: dict[QNo, int] = {}
        self._charges = [_Tally() for _ in range(n_judges)]
        self._bound_by: defaultdict[str, float] = defaultdict(float)
        self._since_sent: defaultdict[str, float] = defaultdict(float)
        self._busy_s = 0.0

    def ring_at(self, wall_clock_s: float) -> None:
        """Let asking end at a time."""
        self._push(wall_clock_s, None)

    def perform(self) -> Rehearsal:
        """Take turns until the run is over."""
        ends: list[_Call] = []
        while True:
            self._take_turn(ends)
            if self.state.stopped is not None and self.state.is_drained:
                return self._sum_up(self.state.stopped)
            ends = [] if self._decider.has_more else self._advance()

    # --- a turn, as the live scheduler takes it -------------------------------------------------

    def _take_turn(self, ends: list[_Call]) -> None:
        decider, traffic = self._decider, self._traffic
        for call in ends:
            charge = _charge(call.outcome)
            self._charged[call.job.q] = self._charged.get(call.job.q, 0) + charge
            traffic.ended(call.job, call.result, self._now)
        if self.state.stopped is None:
            traffic.pass_time(self._now)
            if self._is_out_of_time and self.state.limit_reached is None:
                decider.do(LimitReached(which="wall_clock"))
            _at_once(decider.decide())
            if traffic.gives_up(self._now):
                _at_once(decider.decide())
        if self.state.stopped is not None:
            decider.close_unsent()
        jobs = traffic.start(self._now)
        if jobs:
            for name, seconds in self._since_sent.items():
                self._bound_by[name] += seconds
            self._since_sent.clear()
        for job in jobs:
            self._calls[job.query.judge] += job.is_first
            self._attempt(job)
        self._count(decider.end_turn())

    def _advance(self) -> list[_Call]:
        """Go on to the next moment at which a turn is due."""
        wakes_at = self._traffic.wakes_at(self._now)
        next_at = self._heap[0][0] if self._heap else math.inf
        if math.isinf(min(next_at, wakes_at)):
            raise OrchestratorError("nothing is under way and nothing can be decided")
        self._pass_until(min(next_at, wakes_at))
        ends: list[_Call] = []
        while self._heap and self._heap[0][0] <= self._now:
            call = heappop(self._heap)[2]
            if call is None:
                self._is_out_of_time = True
            else:
                ends.append(call)
        return ends

    # --- one call -------------------------------------------------------------------------------

    def _attempt(self, job: Job) -> None:
        """Let a player make the attempt, within its own deadline and the answer's."""
        result, seconds = self._players[job.query.judge].attempt(job.request)
        room = min(job.judge.timeouts.attempt_s, job.deadline - self._now)
        if seconds > room:
            result, seconds = TimedOut(f"no reply within {room:g} s"), room
        job.took_s += seconds
        self._push(self._now + seconds, _Call(job, result, _outcome(job, result)))

    def _push(self, at_s: float, call: _Call | None) -> None:
        # The number keeps calls that end at one moment in the order in which they were sent.
        self._n_pushed += 1
        heappush(self._heap, (at_s, self._n_pushed, call))

    # --- accounts -------------------------------------------------------------------------------

    def look(self, primary: Estimate) -> None:
        """Take note of how the run stands."""
        untold_calls, untold_spent = ([0] * len(self._calls) for _ in range(2))
        until = self._now

        def is_untold(query: Query, outcome: Outcome) -> None:
            untold_calls[query.judge] += 1
            untold_spent[query.judge] += _charge(outcome)

        for at_s, _, call in self._heap:
            if call is not None:
                is_untold(call.job.query, call.outcome)
                until = max(until, at_s)
        for q, at in self.state.open.items():
            if at.outcome is not None and q in self._charged:
                is_untold(at.query, at.outcome)
        told = [account.settled + account.uncertain for account in self.state.ledger.judges]
        self._sights.append(
            Sight(
                n_told=self.state.n_told,
                at_s=self._now,
                drain_s=until - self._now,
                calls=tuple(self._calls),
                spent=tuple(map(add, told, untold_spent)),
                untold_calls=tuple(untold_calls),
                untold_spent=tuple(untold_spent),
                half_width=primary.half_width,
                n_items=primary.n_items,
            )
        )

    def _count(self, events: Sequence[Event]) -> None:
        for event in events:
            match event:
                case Asked(q=q, query=query, hold=hold):
                    self._worst[query.judge] += hold
                    self._judge_of[q] = query.judge
                case Arrived(q=q, outcome=Judged(origin=Origin.KEY)):
                    self._by_key[self._judge_of[q]] += 1
                case Reasked(q=q, hold=hold):
                    self._worst[self._judge_of[q]] += hold
                case Told(q=q) | Late(q=q):
                    self._charges[self._judge_of.pop(q)].add(self._charged.pop(q, 0))
                case _:
                    pass

    def _pass_until(self, at_s: float) -> None:
        if at_s > self._now:
            self._since_sent[self._limit()] += at_s - self._now
            self._busy_s += (at_s - self._now) * self._dispatcher.in_flight
            self._now = at_s

    def _limit(self) -> str:
        """Name what keeps the run from being faster at this moment."""
        state, dispatcher = self.state, self._dispatcher
        if waiting := [lane for lane in dispatcher.lanes if lane.ready]:
            lane = max(waiting, key=lambda lane: len(lane.ready))
            if lane.has_place:
                return f"rate:{lane.judge.name}" if lane.ready_at(self._now) > self._now else "jobs"
            is_full = lane.limit >= lane.concurrency
            return f"{'judge' if is_full else 'start'}:{lane.judge.name}"
        if state.stopped is not None or not state.n_up:
            return "policy"
        if len(state.open) >= state.crew.opened.window:
            return "window"
        return "cap" if isinstance(state.policy.ask(state.view()), Query) else "policy"

    def _sum_up(self, reason: StopReason) -> Rehearsal:
        judges, took_s = self.state.judges, self._now
        if last_s := sum(self._since_sent.values()):
            self._bound_by["last"] += last_s
        bound_by = sorted(self._bound_by.items(), key=lambda share: -share[1])
        return Rehearsal(
            sights=tuple(self._sights),
            n_told=self.state.n_told,
            calls=tuple(self._calls),
            answered=tuple(judge.answered for judge in judges),
            missing=tuple(judge.missing.total() for judge in judges),
            by_key=tuple(self._by_key),
            spent=tuple(a.settled + a.uncertain for a in self.state.ledger.judges),
            worst=tuple(self._worst),
            chance_nano=math.sqrt(sum(tally.variance for tally in self._charges)),
            duration_s=took_s,
            in_flight=self._busy_s / took_s if took_s else 0.0,
            bound_by={name: seconds / took_s for name, seconds in bound_by},
            stop_reason=reason,
            estimates=self.state.estimate(),
            policy=self.state.policy.explain(),
        )


@dataclass(slots=True)
class _Tally:
    """What a judge's questions were charged, all attempts of one together."""

    n: int = 0
    total: int = 0
    squares: int = 0

    def add(self, charge: int) -> None:
        """Count one."""
        self.n += 1
        self.total += charge
        self.squares += charge * charge

    @property
    def variance(self) -> float:
        """The variance of their sum."""
        return self.squares - self.total * self.total / self.n if self.n else 0.0


def _outcome(job: Job, result: Reply | JudgeError) -> Outcome:
    match result:
        case Reply():
            return answered(job, result, NOWHERE)
        case JudgeError():
            return unanswered(job, result.reason, result.billing, usage=result.usage)


def _charge(outcome: Outcome) -> int:
    return outcome.cost + (outcome.uncertain if isinstance(outcome, Missing) else 0)


def _at_once(steps: Coroutine[Any, Any, None]) -> None:
    """Carry out a coroutine that has nothing to wait for."""
    try:
        steps.send(None)
    except StopIteration:
        return
    steps.close()
    raise OrchestratorError("a rehearsal has nothing to wait for")
