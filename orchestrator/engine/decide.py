"""What to do next, from the state alone."""

from __future__ import annotations

from dataclasses import dataclass, replace

from orchestrator.core.errors import OrchestratorError
from orchestrator.core.events import Parked, Reasked, Told
from orchestrator.core.ids import JudgeIx
from orchestrator.core.money import Nano
from orchestrator.core.ports import FINISH, PAUSE
from orchestrator.core.query import Missing, MissingReason, Query, Role, outcome_digest
from orchestrator.core.records import Open
from orchestrator.core.stopping import StopReason
from orchestrator.core.wire import Attempt, Origin, Reply, Request
from orchestrator.engine.fold import State

ENDINGS = {
    "wall_clock": StopReason.DEADLINE,
    "max_wait": StopReason.JUDGES_DOWN,
    "user": StopReason.USER,
}
"""What a run that reached a limit stops with, if not with `limit`."""

MAX_DECLINED_IN_ROW = 16
"""After so many proposals in a row that no money is left for, the run ends."""


@dataclass(frozen=True, slots=True)
class Ask:
    """Ask this, holding so much; what is known already costs nothing.

    There are no words yet where an answer that it reads is not told.
    """

    query: Query
    hold: Nano
    request: Request | None
    known: Reply | MissingReason | None = None


def origin_of(known: Reply | MissingReason | None) -> Origin:
    """Say where the answer to a question comes from, by what is known when it is asked."""
    if known is None:
        return Origin.LIVE
    return known.origin if isinstance(known, Reply) else Origin.KEY


@dataclass(frozen=True, slots=True)
class Decline:
    """The proposal does not fit, and nothing outstanding could make room."""

    query: Query
    hold: Nano
    account: str


@dataclass(frozen=True, slots=True)
class Park:
    """A judge must not be asked again."""

    judge: JudgeIx
    why: str


@dataclass(frozen=True, slots=True)
class Limit:
    """A limit is reached; nothing more is asked."""

    which: str


@dataclass(frozen=True, slots=True)
class Look:
    """The estimates are due."""


@dataclass(frozen=True, slots=True)
class Wait:
    """Nothing to do before the next outcome."""


@dataclass(frozen=True, slots=True)
class Stop:
    """The run is over."""

    reason: StopReason


Action = Ask | Decline | Park | Limit | Look | Wait | Stop

LOOK = Look()
WAIT = Wait()


def decide(state: State) -> Action:
    """Choose the next action. Pure: it reads decision events' effects alone.

    Raises
    ------
    OrchestratorError
        The policy breaks its contract: it pauses with nothing outstanding, asks a judge that is
        down, or proposes what is no question.
    """
    if state.stopped is not None:
        return WAIT
    if state.owes_look:
        return LOOK
    if state.is_precise:
        return Stop(StopReason.PRECISION)
    if state.is_decided:
        return Stop(state.stop.ending)
    if state.ledger.campaign.overrun:
        return Stop(StopReason.OVERRUN)
    if state.suspect is not None:
        return Park(state.suspect, "its uncertain charges pass budget.max_uncertain")
    return _within_limits(state)


def _within_limits(state: State) -> Action:
    opened = state.crew.opened
    if state.limit_reached is None:
        if opened.max_requests is not None and state.n_requests >= opened.max_requests:
            return Limit("max_requests")
        if opened.max_tok is not None and state.n_tok >= opened.max_tok:
            return Limit("max_tokens")
        most = state.stop.max_answers
        if most is not None and state.n_answered >= most:
            return Limit("max_answers")
        if most is not None and state.n_answered + state.n_open_verdicts >= most:
            return WAIT
    elif state.is_drained:
        return Stop(ENDINGS.get(state.limit_reached, StopReason.LIMIT))
    is_full = len(state.open) >= opened.window and not state.generations.is_owed
    if state.limit_reached or state.is_paused or is_full:
        return WAIT
    if not state.n_up or state.lacks_system:
        waits = any(judge.down_until is not None for judge in state.judges)
        return WAIT if waits or not state.is_drained else Stop(StopReason.JUDGES_DOWN)
    return _by_policy(state)


def _by_policy(state: State) -> Action:
    proposal = state.policy.ask(state.view())
    if proposal is FINISH:
        if not state.is_drained:
            return WAIT
        return Stop(StopReason.BUDGET if state.declined else StopReason.FINISHED)
    if proposal is PAUSE:
        if state.is_drained and state.n_up == len(state.asked_by_policy):
            raise OrchestratorError("the policy pauses although nothing is outstanding")
        return WAIT
    if not isinstance(proposal, Query):
        raise OrchestratorError(f"the policy proposes {proposal!r}: no question, PAUSE or FINISH")
    if wrong := _misfit(state, proposal):
        raise OrchestratorError(f"the policy proposes {proposal!r}: {wrong}")
    if state.judges[proposal.judge].is_down:
        raise OrchestratorError(f"the policy asks judge {proposal.judge}, which is down")
    return _affordable(state, proposal)


def _affordable(state: State, proposal: Query) -> Action:
    """Ask a question, or first for an answer that it reads; both are held, or neither."""
    lacking = state.generations.lacking(proposal)
    # What came back has the parent that it had.
    parent = None if lacking else state.generations.parent(proposal)
    if parent != proposal.parent:
        proposal = replace(proposal, parent=parent)
    if not lacking and not state.generations.untold(proposal):
        known = state.known(proposal)
        if known is not None:
            return Ask(proposal, Nano(0), state.render(proposal), known)
    firsts = [_worst(state, generation) for generation in lacking]
    remembered = [state.known(generation) for generation in lacking]
    verdict = _worst(state, proposal)
    # All or nothing: which of several were remembered, a replay could not tell from a `Declined`.
    needed = [verdict] if None not in remembered else [*firsts, verdict]
    most = state.crew.opened.max_requests
    if most is not None and state.n_requests + len(needed) > most and state.limit_reached is None:
        return Limit("max_requests")
    account = state.ledger.lacking(*((ask.query, ask.hold) for ask in needed))
    if account is None:
        if lacking and remembered[0] is not None:
            return replace(firsts[0], hold=Nano(0), known=remembered[0])
        return firsts[0] if lacking else verdict
    if not state.is_drained:
        return WAIT
    if state.n_declined_in_row >= MAX_DECLINED_IN_ROW:
        return Stop(StopReason.BUDGET)
    return Decline(proposal, Nano(sum(ask.hold for ask in needed)), account)


def _worst(state: State, query: Query) -> Ask:
    """Ask for what a question can cost at most."""
    return Ask(query, *state.worst(query))


def _misfit(state: State, proposal: Query) -> str:
    """Say what is wrong with a proposal in itself; nothing if it is a question that can be asked."""
    judge, units, most = proposal.judge, proposal.units, state.crew.n_units
    if (proposal.role is Role.SYSTEM) != state.is_generating:
        return f"a policy has no {proposal.role}s to ask here"
    if type(judge) is not int or judge not in state.asked_by_policy:
        return f"judges are 0 to {len(state.asked_by_policy) - 1}"
    if not units:
        return "no unit"
    for unit in units:
        if type(unit) is not int or unit < 0 or (most is not None and unit >= most):
            return "units are whole numbers from 0" + ("" if most is None else f" to {most - 1}")
    return ""


# --- the question whose turn it is -------------------------------------------------------------


def hear(state: State, at: Open) -> Told | Reasked | Parked:
    """Decide what becomes of the question whose turn it is.

    It is told; or, when its attempt may have been billed and brought no verdict, it is asked again
    if attempts and money are left. That second hold is taken here, in turn: taken in the worker it
    can deadlock, every question holding money and each waiting for another's.
    """
    if at.outcome is None:
        return Parked(q=at.q)
    if isinstance(at.outcome, Missing) and _is_worth_asking_again(state, at, at.outcome):
        attempt = Attempt(
            number=at.attempt.number + 1,
            widened=at.attempt.widened or at.outcome.reason is MissingReason.TRUNCATED,
            paid=at.attempt.paid + 1,
        )
        charge = Nano(at.outcome.cost + at.outcome.uncertain)
        hold = state.hold_for(state.render(at.query, attempt), excess=charge - at.hold)
        if state.ledger.has_room_instead(at.q, charge, hold):
            ended = outcome_digest(at.outcome)
            return Reasked(q=at.q, attempt=attempt, hold=hold, ended=ended)
    return Told(q=at.q, digest=outcome_digest(at.outcome))


def may_ask_again(state: State, at: Open) -> bool:
    """Whether another attempt of an open question is allowed: judge, limits, attempts."""
    judge, most = at.query.judge, state.crew.opened.max_requests
    return not (
        state.judges[judge].is_down
        or state.limit_reached is not None
        or (most is not None and state.n_requests >= most)
        or at.attempt.number >= state.crew.judges[judge].max_attempts
    )


def _is_worth_asking_again(state: State, at: Open, missing: Missing) -> bool:
    if at.origin is not Origin.LIVE or not may_ask_again(state, at):
        return False
    match missing.reason:
        case MissingReason.TRUNCATED:
            return not at.attempt.widened
        case MissingReason.EMPTY:
            return at.attempt.paid == 0
        case _:
            return missing.uncertain > 0
