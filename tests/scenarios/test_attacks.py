"""Whole campaigns under attack: faults, waits, commands, crashes and the cache, all at once.

The judges here keep books of their own: what they really charged, when they were asked, and before
which time they said not to be.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import anyio
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from orchestrator.control import BUDGET, Command
from orchestrator.core.errors import (
    LONGEST_WAIT_S,
    BadCredentials,
    BadRequest,
    Disconnected,
    JudgeError,
    Overloaded,
    RateLimited,
    TimedOut,
    Unreachable,
)
from orchestrator.core.events import (
    Arrived,
    Asked,
    CapChanged,
    Forfeited,
    JudgeDown,
    JudgeUp,
    Late,
    LimitReached,
    Parked,
    Reasked,
    Sent,
    Told,
    Withdrawn,
)
from orchestrator.core.judge import Limits, Timeouts
from orchestrator.core.query import Missing
from orchestrator.core.stopping import StopReason, StopRule
from orchestrator.core.wire import Billing, Finish, Origin, Reply, Usage
from orchestrator.engine import scheduler
from orchestrator.engine.scheduler import Operation
from orchestrator.engine.sequencer import Delivery
from orchestrator.testing.fakes import FakeAdapter, Script, fake_crew
from tests.scenarios.attacked import Attacked


@pytest.fixture(autouse=True)
def _look_seldom_for_commands(monkeypatch):
    # Hours of virtual time in half seconds would be all that a test does.
    monkeypatch.setattr(scheduler, "POLL_S", 20.0)


# --- running under attack ----------------------------------------------------------------------


def attacked(*adapters, accounts=None, timeouts=None, operation=None, **crew):
    made = fake_crew(list(adapters), **({"cap": 10**12, "concurrency": 4} | crew))
    judges = [
        replace(judge, account=account, timeouts=timeout)
        for judge, account, timeout in zip(
            made.judges,
            accounts or [""] * len(adapters),
            timeouts or [Timeouts()] * len(adapters),
            strict=True,
        )
    ]
    return Attacked(replace(made, judges=tuple(judges)), operation or Operation(max_in_flight=9))


# --- all at once -------------------------------------------------------------------------------

FAULTS = {
    "limited": lambda s: RateLimited(retry_after_s=s),
    "limited, unsaid": lambda _: RateLimited(),
    "overloaded": lambda s: Overloaded(retry_after_s=s),
    "unreachable": lambda _: Unreachable(),
    "timeout": lambda _: TimedOut(),
    "dropped": lambda _: Disconnected(),
    "refused": lambda _: BadRequest(),
    "key": lambda _: BadCredentials(),
    "billed": lambda _: BadRequest(billing=Billing.YES),
    "overloaded and billed": lambda _: Overloaded(billing=Billing.YES),
    "limited and who knows": lambda s: RateLimited(billing=Billing.UNKNOWN, retry_after_s=s),
}
FREE = {"limited", "limited, unsaid", "overloaded", "unreachable", "refused", "key"}
ENDS = Told | Parked | Withdrawn | Late | Forfeited


@st.composite
def worlds(draw):
    n = draw(st.integers(1, 3))
    amount, at = st.integers(1, 600), st.none() | st.floats(0, 60)
    orders = st.sampled_from(["pause", "resume", "stop", "cap", "cap", "concurrency", "rpm"])
    return {
        "seed": draw(st.integers(0, 2**32 - 1)),
        "holds": [draw(st.integers(0, 30)) for _ in range(n)],
        "cap": draw(st.integers(0, 600)),
        "judge_caps": [draw(st.none() | st.integers(0, 300)) for _ in range(n)],
        "max_uncertain": draw(st.none() | st.integers(0, 60)),
        "max_requests": draw(st.none() | st.integers(1, 60)),
        "max_attempts": draw(st.integers(1, 4)),
        "window": draw(st.integers(1, 40)),
        "concurrency": draw(st.integers(3, 8)),
        "accounts": [draw(st.sampled_from(["", "a", "b"])) for _ in range(n)],
        "rpm": [draw(st.sampled_from([None, 6, 60])) for _ in range(n)],
        "output_tpm": [draw(st.sampled_from([None, 100, 5000])) for _ in range(n)],
        "patience_s": [draw(st.sampled_from([1.0, 30.0, 1e4])) for _ in range(n)],
        "max_wait_s": draw(st.sampled_from([0.0, 900.0, 2e4])),
        "answer_s": draw(st.sampled_from([10.0, 900.0])),
        "attempt_s": draw(st.sampled_from([3.0, 300.0])),
        "wall_clock_s": draw(st.none() | st.floats(1, 200)),
        "p_fail": draw(st.sampled_from([0.0, 0.1, 0.5])),
        "faults": draw(st.lists(st.sampled_from([*FAULTS]), min_size=1, max_size=5)),
        "longest_s": draw(st.sampled_from([5.0, 100.0, 1e4])),
        "p_cached": draw(st.sampled_from([0.0, 0.3])),
        "legs": draw(
            st.lists(
                st.fixed_dictionaries(
                    {
                        "crash_at_s": at,
                        "crash_after": st.none() | st.integers(1, 30),
                        "interrupt_at_s": at,
                        "orders": st.lists(st.tuples(st.floats(0, 80), orders, amount), max_size=4),
                    }
                ),
                max_size=3,
            )
        ),
    }


class Books:
    """What the judges of a world know: their true bills, and when they may be asked."""

    def __init__(self, world):
        self.world = world
        self.bill = 0
        self.cap = world["cap"]
        self.forget()

    def forget(self):
        """What a server asked for is not known to another process."""
        self.not_before = []
        self.down_since = {}

    def hear(self, state, events):
        for event in events:
            match event:
                case CapChanged(cap=cap):
                    self.cap = cap
                case JudgeDown(judge=judge):
                    self.down_since[judge] = anyio.current_time()
                case JudgeUp(judge=judge):
                    self.down_since.pop(judge, None)
        for account in (state.ledger.campaign, *state.ledger.judges):
            assert account.cap is None or account.committed <= account.cap
            assert min(account.settled, account.uncertain, account.held) >= 0

    def asked(self, judge, account, number, bill):
        now = anyio.current_time()
        self.bill += bill
        assert self.bill <= self.cap, "the true bill passes the cap"
        assert number <= self.world["max_attempts"]
        assert self.down_since.get(judge, now) >= now, "a judge is asked that is down"
        for whose, said_at, until in self.not_before:
            if whose in {account or f"#{judge}", judge} and now > said_at:
                assert now >= until - 1e-6, "a judge is asked before the time that it named"


class Heard(FakeAdapter):
    """A judge that knows which of its errors were waited for."""

    async def send(self, request):
        try:
            return await FakeAdapter.send(self, request)
        except JudgeError as error:
            self.hear(error)
            raise


def judge_of(books, judge):
    """A judge that answers, fails and charges by chance, and keeps its books."""
    world, hold, n_sent = books.world, books.world["holds"][judge], Counter()
    account = world["accounts"][judge]

    def script(request):
        unit, attempt = request.query.units[0], request.attempt
        rng = np.random.default_rng([world["seed"], judge, unit, n_sent[unit]])
        n_sent[unit] += 1
        most = (2 if attempt.widened else 1) * hold
        latency_s, wait_s = float(rng.exponential(2.0)), float(rng.random() * world["longest_s"])
        cost, finish = int(rng.integers(0, most + 1)), Finish.STOP
        if rng.random() < 0.1:
            cost, finish = most, Finish.LENGTH
        name = str(rng.choice(world["faults"])) if rng.random() < world["p_fail"] else ""
        bill = 0 if name in FREE else most if name else cost
        books.asked(judge, account, attempt.number, bill)
        if not name:
            return Script(latency_s=latency_s, cost=cost, finish=finish)
        return Script(latency_s=latency_s, error=FAULTS[name](wait_s))

    def hear(error):
        if error.retry_after_s is not None:
            whose = (account or f"#{judge}") if isinstance(error, RateLimited) else judge
            said_at = anyio.current_time()
            books.not_before.append((whose, said_at, said_at + error.retry_after_s))

    adapter = Heard(script, hold=hold)
    adapter.hear = hear
    return adapter


class Remembered:
    """Knows some answers by heart; what they cost once is more than there is."""

    def __init__(self, world):
        self._world = world

    def find(self, query):
        rng = np.random.default_rng([self._world["seed"], 7, query.judge, *query.units])
        if rng.random() >= self._world["p_cached"]:
            return None
        usage = Usage(output_tok=10**9)
        return Reply(text="3.0", finish=Finish.STOP, usage=usage, origin=Origin.CACHE)

    def keep(self, query, attempt, reply, judged):
        return ""


def command(name, amount):
    match name:
        case "cap":
            return Command(name="set", path=BUDGET, value=amount)
        case "concurrency":
            return Command(name="set", path="judges.judge0.concurrency", value=1 + amount % 3)
        case "rpm":
            return Command(name="set", path="judges.judge0.rpm", value=amount)
        case _:
            return Command(name=name)


def run_of(world, books):
    crew = fake_crew(
        [judge_of(books, judge) for judge in range(len(world["holds"]))],
        n_units=20,
        **{
            key: world[key]
            for key in (
                "cap",
                "judge_caps",
                "window",
                "max_uncertain",
                "max_requests",
                "max_attempts",
                "concurrency",
            )
        },
    )
    judges = tuple(
        replace(
            judge,
            account=world["accounts"][ix],
            limits=Limits(
                concurrency=world["concurrency"],
                rpm=world["rpm"][ix],
                output_tpm=world["output_tpm"][ix],
            ),
            timeouts=Timeouts(
                attempt_s=world["attempt_s"],
                answer_s=world["answer_s"],
                patience_s=world["patience_s"][ix],
                max_wait_s=world["max_wait_s"],
            ),
        )
        for ix, judge in enumerate(crew.judges)
    )
    return Attacked(
        replace(crew, judges=judges, memory=Remembered(world)),
        Operation(
            max_in_flight=9, wall_clock_s=world["wall_clock_s"], backoff=lambda n: min(2.0**n, 60.0)
        ),
        hear=books.hear,
    )


def check_a_world(world):
    books = Books(world)
    run = run_of(world, books)
    for leg in [*world["legs"], {}]:
        orders = [(at, command(name, amount)) for at, name, amount in leg.get("orders", [])]
        books.forget()
        run.go(
            commands=[*orders, (3000.0, Command(name="resume"))],
            **{key: leg.get(key) for key in ("crash_at_s", "crash_after", "interrupt_at_s")},
        )
        run.check()
        if run.state.stopped is not None and run.state.is_drained:
            break
    assert run.state.stopped is not None
    account = run.state.ledger.campaign
    assert account.held == 0
    assert books.bill <= account.settled + account.uncertain
    asked = {event.q for event in run.of(Asked)}
    assert Counter(event.q for event in run.of(ENDS)) == Counter(asked)
    sent = Counter(event.q for event in run.of(Sent))
    assert all(n <= world["max_attempts"] for n in sent.values())


@settings(max_examples=40, deadline=None)
@given(worlds())
def test_no_attack_passes_the_cap_hangs_a_run_or_makes_a_log_that_lies(world):
    """C01, C14, C17, C18, C46: faults, waits, parking, commands, interrupts, crashes, the cache."""
    check_a_world(world)


@pytest.mark.slow
def test_no_attack_succeeds_in_a_thousand_worlds():
    settings(max_examples=1000, deadline=None)(given(worlds())(check_a_world))()


# --- one at a time -----------------------------------------------------------------------------

GOOD = Script(latency_s=1.0)


def failing(errors, *, latency_s=1.0):
    """A judge whose n-th call fails by `errors[n]`."""
    n = 0

    def script(_):
        nonlocal n
        n += 1
        return Script(latency_s=latency_s, error=errors[n]) if n in errors else GOOD

    return FakeAdapter(script)


@pytest.mark.parametrize("billing", [Billing.YES, Billing.UNKNOWN])
@pytest.mark.parametrize("error", [Overloaded, RateLimited, Unreachable])
def test_what_may_have_been_billed_is_never_tried_again_inside_its_hold(error, billing):
    """A plug-in may say so of any error; three attempts for one hold would pass the cap."""
    judge = FakeAdapter(lambda _: Script(latency_s=1.0, error=error(billing=billing)), hold=10)
    run = attacked(judge, n_units=3, cap=35)
    assert run.go()
    account = run.state.ledger.campaign
    assert 10 * len(judge.sent) == account.settled + account.uncertain == 30
    run.check()


def test_a_limit_ends_a_pause():
    """Nobody could go on with it: a run that ends takes no command."""
    run = attacked(
        FakeAdapter(lambda _: GOOD),
        n_units=100,
        operation=Operation(max_in_flight=9, wall_clock_s=20.0),
    )
    assert run.go(commands=[(3.0, Command(name="pause"))])
    assert run.state.stopped is StopReason.DEADLINE
    assert not run.state.is_paused
    run.check()


def test_nothing_is_sent_while_a_run_is_paused():
    """Not what was asked before it either; what waits in a lane has all its time left afterwards."""
    judge = FakeAdapter(lambda _: GOOD)
    run = attacked(judge, n_units=60, timeouts=[Timeouts(answer_s=30.0)])
    sent_at = []
    judge.before_send = noting(sent_at)
    pause, go_on = (4.5, Command(name="pause")), (900.0, Command(name="resume"))
    assert run.go(commands=[pause, go_on])
    assert not [at for at in sent_at if 5.0 < at < 900.0]
    assert run.state.n_answered == 60


def noting(times):
    async def note(_):
        times.append(anyio.current_time())

    return note


def test_a_command_to_a_run_that_has_stopped_leaves_a_log_that_agrees():
    """The answers under way at a stop take a minute; what is said meanwhile is refused, and stands."""
    slow = FakeAdapter(lambda r: Script(latency_s=60.0 if r.query.units[0] > 4 else 1.0))
    stop = StopRule(every=5, target_half_width=1.5, min_items=1)
    run = attacked(slow, n_units=60, stop=stop)
    assert run.go(commands=[(9.0, Command(name="pause"))])
    assert run.of(Late)
    assert run.box.said == [(False, "the run is ending; nothing can be changed any more")]
    run.check()


def test_a_longer_pause_that_is_heard_of_later_counts():
    """C14 e: two calls under way, told to wait 100 s and then, half a second later, 10,000 s."""
    judge = failing({4: RateLimited(retry_after_s=100.0), 5: RateLimited(retry_after_s=1e4)})
    script, judge.script = judge.script, lambda r: replace(script(r), latency_s=next(paces))
    paces = iter([1.0] * 3 + [1.0, 1.5] + [1.0] * 100)
    run = attacked(judge, n_units=30)
    assert run.go()
    assert run.state.stopped is StopReason.JUDGES_DOWN
    assert run.of(LimitReached)[0].which == "max_wait"
    assert run.took_s < 30
    run.check()


def test_a_pause_parks_each_judge_of_the_account_by_its_own_patience():
    """One waits for five minutes; the other judge of the same key does not."""
    patient = failing({4: RateLimited(retry_after_s=300.0)})
    others = [FakeAdapter(lambda _: GOOD), FakeAdapter(lambda _: GOOD)]
    run = attacked(
        patient,
        *others,
        n_units=20,
        accounts=["a", "a", ""],
        timeouts=[Timeouts(patience_s=1000.0), Timeouts(), Timeouts()],
    )
    assert run.go()
    assert [event.judge for event in run.of(JudgeDown)] == [1]
    assert run.state.n_answered == 60
    run.check()


def test_a_wait_for_a_place_does_not_use_up_the_answers_time():
    """C17: its second attempt leaves after its deadline, and has all the time that it had left."""
    judge = FakeAdapter(
        lambda r: (
            Script(latency_s=1.0, error=Overloaded())
            if (r.query.units[0], r.attempt.number) == (0, 1)
            else Script(latency_s=90.0)
        )
    )
    run = attacked(judge, n_units=3, concurrency=1, timeouts=[Timeouts(answer_s=95.0)])
    run.operation = replace(run.operation, backoff=lambda _: 2.0)
    assert run.go()
    assert run.state.n_answered == 3
    assert not [e for e in run.of(Arrived) if isinstance(e.outcome, Missing)]
    assert not run.of(Reasked)


def test_what_is_asked_again_holds_what_its_judge_has_just_billed_on_top():
    """A truncated answer cost five times its bound: the next one does not fit what is left."""
    judge = FakeAdapter(lambda _: Script(cost=50, finish=Finish.LENGTH), hold=10)
    run = attacked(judge, n_units=1, cap=75)
    assert run.go()
    assert (len(judge.sent), run.state.ledger.campaign.settled) == (1, 50)
    run.check()


@pytest.mark.parametrize(
    ("said", "heard"),
    [(float("nan"), None), (-1.0, None), (float("inf"), LONGEST_WAIT_S), (0.0, 0.0)],
)
def test_a_wait_that_is_none_is_not_said(said, heard):
    assert JudgeError(retry_after_s=said).retry_after_s == heard


def test_tokens_from_the_cache_are_not_billed_and_fill_no_limit():
    """`max_tokens` counts what is billed."""
    world = {"seed": 1, "p_cached": 1.0}
    run = attacked(FakeAdapter(lambda _: GOOD), n_units=12)
    opened = replace(run.crew.opened, max_tok=1000)
    run.crew = replace(run.crew, memory=Remembered(world), opened=opened)
    assert run.go()
    assert run.state.stopped is StopReason.FINISHED
    assert (run.state.n_answered, run.state.n_tok) == (12, 0)
    run.check()


class Impatient:
    """A clock that is not asked for ever."""

    def __init__(self, most):
        self._left = most

    def __call__(self):
        self._left -= 1
        if not self._left:
            pytest.fail("the loop spins")
        return anyio.current_time()


def test_a_run_that_has_stopped_waits_for_its_last_answers_in_peace():
    """One judge is due to come back while they are under way, and is not asked any more."""
    limited = failing({2: RateLimited(retry_after_s=60.0)})
    slow = FakeAdapter(lambda r: Script(latency_s=1.0 if r.query.units[0] < 2 else 200.0))
    run = attacked(
        limited,
        slow,
        n_units=12,
        delivery=Delivery.ARRIVAL,
        stop=StopRule(every=3, target_half_width=2.0, min_items=1),
        operation=Operation(max_in_flight=9, clock=Impatient(2000)),
    )
    assert run.go()
    assert run.state.stopped is StopReason.PRECISION
    assert run.of(JudgeDown)
    assert run.of(Late)
    assert run.took_s > 60
    run.check()
