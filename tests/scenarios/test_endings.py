"""How runs end, and what failing judges do to them."""

from __future__ import annotations

from dataclasses import replace

import anyio
import pytest

from orchestrator.core.errors import (
    BadCredentials,
    Blocked,
    Disconnected,
    OrchestratorError,
    Overloaded,
    RateLimited,
    TimedOut,
    Unreachable,
)
from orchestrator.core.events import (
    CapChanged,
    Declined,
    Freed,
    JudgeDown,
    Late,
    LimitReached,
    Parked,
    Reasked,
    Reopened,
    Sent,
)
from orchestrator.core.judge import Timeouts
from orchestrator.core.ports import PAUSE
from orchestrator.core.query import Kind, Missing, MissingReason, Query
from orchestrator.core.records import records
from orchestrator.core.stopping import StopReason, StopRule
from orchestrator.core.wire import Finish
from orchestrator.engine.fold import State
from orchestrator.engine.scheduler import Operation, Scheduler
from orchestrator.engine.verify import verify
from orchestrator.store.memory import MemoryStore
from orchestrator.testing.fakes import FakeAdapter, InTurnPolicy, Script, fake_crew
from orchestrator.testing.virtual import run_virtually

PLENTY = 10**12


def outcomes(run):
    return {record.q: record.outcome for record in records(run.events)}


def test_a_design_that_is_complete_finishes():
    run = run_virtually(fake_crew([FakeAdapter(lambda _: Script())], n_units=10, cap=PLENTY))
    assert run.state.stopped is StopReason.FINISHED
    assert run.state.n_answered == 10


def test_a_declined_question_ends_the_run_with_budget_and_says_what_was_lacking():
    """C03: the log holds what the next call would have needed."""
    run = run_virtually(fake_crew([FakeAdapter(lambda _: Script())], n_units=17))
    declined = [e for e in run.events if isinstance(e, Declined)]
    assert {(e.hold, e.account) for e in declined} == {(22_000_000, "campaign")}
    assert run.state.stopped is StopReason.BUDGET


def test_a_judges_own_cap_ends_its_questions_alone():
    judges = [FakeAdapter(lambda _: Script()) for _ in "ab"]
    run = run_virtually(fake_crew(judges, n_units=20, cap=PLENTY, judge_caps=[30_000_000, None]))
    assert [j.answered for j in run.state.judges] == [2, 20]
    assert run.state.stopped is StopReason.BUDGET


def test_a_limit_on_requests_ends_asking():
    run = run_virtually(
        fake_crew([FakeAdapter(lambda _: Script(latency_s=1))], cap=PLENTY, max_requests=12)
    )
    assert run.state.n_answered == 12
    assert run.state.stopped is StopReason.LIMIT
    assert [e.which for e in run.events if isinstance(e, LimitReached)] == ["max_requests"]


def test_a_wall_clock_ends_asking_and_lets_calls_under_way_finish():
    run = run_virtually(
        fake_crew([FakeAdapter(lambda _: Script(latency_s=2))], cap=PLENTY, window=4),
        operation=Operation(max_in_flight=4, wall_clock_s=9.0),
    )
    assert run.state.stopped is StopReason.DEADLINE
    assert run.state.is_drained
    assert run.took_s == 10.0


def test_answers_after_the_stop_are_charged_and_not_counted():
    """A stop freezes the estimates; calls under way are received, charged and stored as late."""
    stop = StopRule(every=5, target_half_width=1.0)
    run = run_virtually(
        fake_crew([FakeAdapter(lambda _: Script(latency_s=1))], cap=PLENTY, stop=stop)
    )
    late = [e for e in run.events if isinstance(e, Late)]
    assert late
    n_told = run.state.n_told
    assert run.state.last_look.n_told == n_told
    assert run.state.ledger.campaign.settled == 5_000_000 * (n_told + len(late))


def test_a_free_failure_is_tried_again_inside_its_hold():
    """C13: three attempts and no more, one hold, no charge."""
    judge = FakeAdapter(lambda _: Script(error=Overloaded()))
    run = run_virtually(fake_crew([judge], n_units=4, cap=PLENTY))
    assert len(judge.sent) == 12
    assert {type(o) for o in outcomes(run).values()} == {Missing}
    assert {o.attempts for o in outcomes(run).values()} == {3}
    assert run.state.ledger.campaign.settled == run.state.ledger.campaign.uncertain == 0
    assert sum(isinstance(e, Freed) for e in run.events) == 8


def test_one_attempt_means_one_attempt():
    """C13: `max_attempts: 1` asks once."""
    judge = FakeAdapter(lambda _: Script(error=Overloaded()))
    run_virtually(fake_crew([judge], n_units=4, cap=PLENTY, max_attempts=1))
    assert len(judge.sent) == 4


def test_the_servers_word_on_waiting_is_kept():
    waits = []

    def script(request):
        waits.append(request)
        return Script(error=RateLimited(retry_after_s=120.0) if len(waits) == 1 else None)

    run = run_virtually(fake_crew([FakeAdapter(script)], n_units=1, cap=PLENTY))
    assert run.took_s == pytest.approx(120.0, rel=0.1)
    assert run.state.n_answered == 1


@pytest.mark.parametrize("error", [TimedOut, Disconnected])
def test_an_attempt_that_may_have_been_billed_is_charged_and_asked_again_in_turn(error):
    """A timeout is charged until proven free; each further attempt holds anew."""
    judge = FakeAdapter(lambda _: Script(error=error()))
    run = run_virtually(fake_crew([judge], n_units=2, cap=PLENTY))
    assert len(judge.sent) == 6
    assert run.state.ledger.campaign.uncertain == 6 * 22_000_000
    assert sum(isinstance(e, Reasked) for e in run.events) == 4


def test_a_judge_that_never_replies_is_given_up_at_its_deadline():
    """C17: the answer ends as a timeout while other items go on; nothing is pending."""
    judge = FakeAdapter(lambda r: Script(latency_s=1e9 if r.query.units[0] == 0 else 1.0))
    run = run_virtually(
        fake_crew(
            [judge],
            n_units=50,
            cap=PLENTY,
            max_attempts=2,
            timeouts=Timeouts(attempt_s=30, answer_s=90),
        )
    )
    assert run.took_s <= 90
    assert outcomes(run)[0].reason is MissingReason.TIMEOUT
    assert run.state.n_answered == 49
    assert run.state.is_drained


def test_a_truncated_answer_gets_one_wider_attempt():
    """C27: one retry with twice the output limit; both attempts are charged; then it is missing."""
    judge = FakeAdapter(lambda _: Script(finish=Finish.LENGTH))
    run = run_virtually(fake_crew([judge], n_units=1, cap=PLENTY))
    assert [r.attempt.widened for r in judge.sent] == [False, True]
    assert outcomes(run)[0].reason is MissingReason.TRUNCATED
    assert run.state.ledger.campaign.settled == 10_000_000


def test_an_empty_answer_gets_one_more_attempt():
    judge = FakeAdapter(lambda _: Script(finish=Finish.EMPTY))
    run = run_virtually(fake_crew([judge], n_units=1, cap=PLENTY))
    assert len(judge.sent) == 2
    assert outcomes(run)[0].reason is MissingReason.EMPTY


def test_a_refused_answer_is_missing_at_once():
    """A refusal is an answer: billed, not asked again, never a score."""
    judge = FakeAdapter(lambda _: Script(finish=Finish.REFUSED))
    run = run_virtually(fake_crew([judge], n_units=1, cap=PLENTY))
    assert len(judge.sent) == 1
    assert outcomes(run)[0].reason is MissingReason.REFUSED


def test_a_bad_key_costs_one_request_and_parks_the_judge():
    """C15b: one request, the provider's own word kept, the run goes on with the other judge."""
    bad = FakeAdapter(lambda _: Script(error=BadCredentials("key revoked")))
    good = FakeAdapter(lambda _: Script(latency_s=0.1))
    run = run_virtually(fake_crew([bad, good], n_units=20, cap=PLENTY))
    assert len(bad.sent) == 1
    assert len(good.sent) == 20
    (down,) = [e for e in run.events if isinstance(e, JudgeDown)]
    assert down.why == "key revoked"
    assert down.until is None
    assert sum(isinstance(e, Parked) for e in run.events) > 0
    assert run.state.judges[0].missing == {MissingReason.JUDGE_DOWN: 1}
    assert not list(verify(State(run.state.crew), run.store.read(), run.archive.recall))


def test_a_run_without_judges_left_stops():
    """C15: if none is left, the run stops with judges_down."""
    bad = FakeAdapter(lambda _: Script(error=BadCredentials()))
    run = run_virtually(fake_crew([bad], n_units=20, cap=PLENTY))
    assert len(bad.sent) == 1
    assert run.state.stopped is StopReason.JUDGES_DOWN


def test_a_failure_of_one_question_leaves_its_judge_in():
    judge = FakeAdapter(lambda r: Script(error=Blocked() if r.query.units[0] == 3 else None))
    run = run_virtually(fake_crew([judge], n_units=6, cap=PLENTY))
    assert run.state.n_answered == 5
    assert outcomes(run)[3].reason is MissingReason.BLOCKED


def test_uncertain_charges_above_the_tolerance_park_the_judge():
    """`budget.max_uncertain`: a judge of which no one knows what it bills is asked no more."""
    lost = FakeAdapter(lambda _: Script(error=TimedOut()))
    good = FakeAdapter(lambda _: Script())
    run = run_virtually(
        fake_crew([lost, good], n_units=50, cap=PLENTY, max_uncertain=100_000_000, window=4)
    )
    assert run.state.judges[0].is_down
    assert run.state.ledger.judges[0].uncertain < 300_000_000
    assert run.state.judges[1].answered == 50


def test_a_provider_that_passes_its_own_bound_stops_the_run_and_raises_later_holds():
    """The true bill is booked in full; later holds of that judge include the excess."""
    judge = FakeAdapter(lambda r: Script(cost=30_000_000 if r.query.units[0] == 2 else 5_000_000))
    run = run_virtually(fake_crew([judge], n_units=10, cap=PLENTY, window=1))
    asked = [e.hold for e in run.events if hasattr(e, "hold") and hasattr(e, "query")]
    assert asked[:3] == [22_000_000] * 3
    assert set(asked[3:]) == {30_000_000}
    dear = FakeAdapter(lambda _: Script(cost=120_000_000))
    run = run_virtually(fake_crew([dear], n_units=10))
    assert run.state.stopped is StopReason.OVERRUN
    assert run.state.ledger.campaign.overrun == 20_000_000


def test_three_lost_attempts_in_a_row_bring_a_judge_back_to_one_call_at_a_time():
    in_flight = [0]
    most = []

    async def count(request):
        in_flight[0] += 1

    def script(request):
        most.append(in_flight[0])
        in_flight[0] -= 1
        return Script(latency_s=1.0, error=TimedOut() if request.query.units[0] >= 20 else None)

    judge = FakeAdapter(script, before_send=count)
    run = run_virtually(fake_crew([judge], n_units=60, cap=PLENTY, max_attempts=1, concurrency=16))
    sent = [e for e in run.events if isinstance(e, Sent)]
    assert len(sent) == 60
    assert run.took_s > 20


def test_what_a_stop_cut_off_is_asked_again_when_the_run_goes_on():
    """A raised cap after an overrun: questions that the stop withdrew are not lost."""
    judge = FakeAdapter(
        lambda r: Script(latency_s=1.0, cost=120_000_000 if r.query.units[0] == 0 else 5_000_000)
    )
    crew = fake_crew([judge], n_units=12)
    first = run_virtually(crew)
    assert first.state.stopped is StopReason.OVERRUN
    account = first.state.ledger.campaign
    more = [
        Reopened(settled=account.settled, uncertain=account.uncertain),
        CapChanged(cap=10**10),
    ]
    again = run_virtually(crew, first.store, first.archive, first=more)
    assert again.state.stopped is StopReason.FINISHED
    assert again.state.n_told == 12
    assert not list(verify(State(crew), again.store.read(), again.archive.recall))


def test_a_judge_that_goes_down_takes_back_what_waits_to_be_sent_again():
    """A question in back-off comes back parked; nothing is sent to the judge any more."""
    calls = []

    def script(request):
        calls.append(request.query.units[0])
        if request.query.units[0] == 1:
            return Script(error=Unreachable(retry_after_s=20.0))
        if len(calls) > 6:
            return Script(latency_s=1.0, error=BadCredentials("revoked"))
        return Script(latency_s=1.0)

    failing = FakeAdapter(script)
    good = FakeAdapter(lambda _: Script(latency_s=0.1))
    run = run_virtually(fake_crew([failing, good], n_units=20, cap=PLENTY, concurrency=4))
    assert run.state.judges[0].is_down
    assert run.state.judges[1].answered == 20
    assert run.state.is_drained
    assert calls.count(1) == 1
    assert not list(verify(State(run.state.crew), run.store.read(), run.archive.recall))


def test_a_limit_on_tokens_ends_asking():
    """`max_tokens` counts what was billed; one output token is one nano-USD here."""
    crew = fake_crew([FakeAdapter(lambda _: Script())], cap=PLENTY, window=1)
    opened = replace(crew.opened, max_tok=12_000_000)
    run = run_virtually(replace(crew, opened=opened))
    assert run.state.n_answered == 3
    assert run.state.stopped is StopReason.LIMIT


class Stubborn(InTurnPolicy):
    """Pauses for ever, or asks judges that are down."""

    def __init__(self, answer):
        super().__init__(0)
        self._answer = answer

    def ask(self, view):
        return self._answer

    def tell(self, event):
        pass


def test_a_policy_that_breaks_its_contract_is_named():
    crew = fake_crew([FakeAdapter(lambda _: Script())])
    with pytest.raises(OrchestratorError, match="pauses although nothing is outstanding"):
        run_virtually(replace(crew, new_policy=lambda _: Stubborn(PAUSE)))
    bad = FakeAdapter(lambda _: Script(error=BadCredentials()))
    query = Query(kind=Kind.RATE, judge=0, units=(0,))
    crew = fake_crew([bad, bad], window=1)
    with pytest.raises(OrchestratorError, match="asks judge 0, which is down"):
        run_virtually(replace(crew, new_policy=lambda _: Stubborn(query)))


def test_a_cancelled_run_leaves_what_was_sent_held_in_the_log():
    """A bug in an adapter ends the run with its own error; the log stays resumable."""
    judge = FakeAdapter(lambda r: 1 / 0 if r.query.units[0] == 3 else Script(latency_s=1.0))
    crew = fake_crew([judge], n_units=6, cap=PLENTY)
    store = MemoryStore()
    with pytest.raises(ZeroDivisionError):
        run_virtually(crew, store)
    mended = fake_crew([FakeAdapter(lambda _: Script())], n_units=6, cap=PLENTY)
    again = run_virtually(mended, store)
    assert again.state.n_answered == 6
    assert again.state.ledger.campaign.uncertain >= 22_000_000


def test_a_final_look_that_is_precise_does_not_change_why_the_run_ended():
    """A design that ends between two looks is complete, and its log verifies."""
    stop = StopRule(every=25, target_half_width=0.5)
    run = run_virtually(
        fake_crew([FakeAdapter(lambda _: Script())], n_units=37, cap=PLENTY, stop=stop)
    )
    assert run.state.stopped is StopReason.FINISHED
    assert not list(verify(State(run.state.crew), run.store.read(), run.archive.recall))


@pytest.mark.parametrize("cut", range(3, 60, 4))
def test_a_crash_passes_neither_the_limit_on_requests_nor_that_on_attempts(cut):
    """What is mended counts as a request and as an attempt."""
    judge = FakeAdapter(lambda _: Script(latency_s=1.0))
    crew = fake_crew([judge], cap=PLENTY, max_requests=10, max_attempts=2)
    whole = run_virtually(crew)
    store = MemoryStore(whole.store.lines[:cut])
    run = run_virtually(crew, store, whole.archive)
    assert run.state.n_requests <= 10
    assert max(e.attempt for e in run.events if isinstance(e, Sent)) <= 2
    assert not list(verify(State(crew), run.store.read(), run.archive.recall))


def test_a_clock_that_runs_out_during_a_drain_ends_nothing():
    """The time of a run that is interrupted starts anew when it is resumed."""
    crew = fake_crew([FakeAdapter(lambda _: Script(latency_s=20.0))], n_units=8, cap=PLENTY)
    clocked = Operation(max_in_flight=2, wall_clock_s=10.0, grace_s=60.0)
    half = run_virtually(crew, interrupt_at_s=5.0, operation=clocked)
    again = run_virtually(crew, half.store, half.archive)
    assert again.state.stopped is StopReason.FINISHED
    assert again.state.n_answered == 8


def test_an_interrupt_after_the_end_ends_nothing():
    """A signal that comes while the run is being closed finds nothing to drain."""
    run = run_virtually(
        fake_crew([FakeAdapter(lambda _: Script(latency_s=1.0))], n_units=2, cap=PLENTY)
    )

    async def main():
        scheduler = Scheduler(run.state, run.store, run.archive, Operation(max_in_flight=1))
        await scheduler.run()
        scheduler.interrupt()
        scheduler.interrupt()

    anyio.run(main, backend="trio")
    assert run.state.stopped is StopReason.FINISHED
