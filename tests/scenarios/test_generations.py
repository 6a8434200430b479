"""Campaigns in which systems answer first: their answers and the verdicts on them, under attack.

Systems and judges keep books of their own: what they really charged, and what they were asked.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, replace

import anyio
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from orchestrator.control import BUDGET, Command
from orchestrator.core.errors import (
    BadCredentials,
    BadRequest,
    Disconnected,
    Overloaded,
    RateLimited,
    TimedOut,
    Unreachable,
)
from orchestrator.core.events import (
    Arrived,
    Asked,
    CapChanged,
    Declined,
    Forfeited,
    JudgeDown,
    JudgeUp,
    Late,
    Parked,
    PriceChanged,
    Sent,
    Told,
    Withdrawn,
)
from orchestrator.core.judge import Timeouts
from orchestrator.core.money import PriceCard
from orchestrator.core.query import Judged, Missing, MissingReason, Role
from orchestrator.core.records import Record
from orchestrator.core.stopping import StopReason, StopRule
from orchestrator.core.wire import Billing, Finish, Origin, Reply, Usage
from orchestrator.engine import scheduler
from orchestrator.engine.scheduler import Operation
from orchestrator.engine.sequencer import Delivery
from orchestrator.store.archive import name_prompt
from orchestrator.testing.fakes import (
    KEY_WORD,
    NANO_TOKEN,
    FakeAdapter,
    MemoryArchive,
    Script,
    fake_crew,
)
from tests.scenarios.attacked import Attacked

N_UNITS = 12
LONGEST = 8
"""Bytes of the longest answer that is reckoned with."""


@pytest.fixture(autouse=True)
def _look_seldom_for_commands(monkeypatch):
    # Hours of virtual time in half seconds would be all that a test does.
    monkeypatch.setattr(scheduler, "POLL_S", 20.0)


class Archive(MemoryArchive):
    """Keeps the digests of prompts, so that a replay tells what judges were shown."""

    def prompt(self, request):
        return name_prompt(request)


# --- worlds ------------------------------------------------------------------------------------

FAULTS = {
    "limited": lambda s: RateLimited(retry_after_s=s),
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
FREE = {"limited", "overloaded", "unreachable", "refused", "key"}
STEADY = ["timeout", "dropped", "refused", "billed"]
"""Faults after which it does not matter when they came."""
ENDINGS = [Finish.LENGTH, Finish.EMPTY, Finish.REFUSED]
ENDS = Told | Parked | Withdrawn | Late | Forfeited


def chances(*p):
    return st.sampled_from(p)


@st.composite
def worlds(draw):
    """Draw prices, caps, answers and faults of some judges and systems, the same at any speed."""
    n_judges, n_systems = draw(st.integers(1, 3)), draw(st.integers(1, 3))
    asked = range(n_judges + n_systems)
    most = st.none() | st.integers(0, 400)
    return {
        "seed": draw(st.integers(0, 2**32 - 1)),
        "n_judges": n_judges,
        "n_systems": n_systems,
        "n_shown": draw(st.integers(1, 3)),
        "holds": [draw(st.integers(0, 30)) for _ in asked],
        "per_byte": draw(st.integers(0, 2)),
        "cap": draw(st.integers(0, 3000)),
        "caps": [draw(most) for _ in asked],
        "role_caps": {role: draw(st.integers(0, 900)) for role in draw(st.sets(chances(*Role)))},
        "max_requests": draw(st.none() | st.integers(0, 90)),
        "max_attempts": draw(st.integers(1, 4)),
        "max_answers": draw(st.none() | st.integers(1, 40)),
        "width": draw(chances(None, None, 1.0)),
        "window": draw(st.integers(1, 40)),
        "delivery": Delivery.IN_ORDER,
        "p_fail": [draw(chances(0.0, 0.1, 0.5)) for _ in "ab"],
        "faults": draw(st.lists(chances(*STEADY), min_size=1, max_size=4)),
        "p_odd": [draw(chances(0.0, 0.1, 0.5)) for _ in "ab"],
        "p_key": draw(chances(0.0, 0.3)),
        "p_long": draw(chances(0.0, 0.2)),
        "p_cached": [draw(chances(0.0, 0.0, 0.3, 1.0)) for _ in "ab"],
        "longest_s": 5.0,
        "pace_s": 1.0,
        "max_in_flight": draw(st.integers(1, 40)),
        "concurrency": draw(st.integers(1, 8)),
        "patience_s": 1e9,
        "max_wait_s": 1e9,
        "max_uncertain": None,
        "wall_clock_s": None,
        "accounts": [""] * len(asked),
    }


@st.composite
def rough_worlds(draw):
    """Draw a world where time matters too, and what befalls its processes one after another."""
    world = draw(worlds())
    n = world["n_judges"] + world["n_systems"]
    at = st.none() | st.floats(0, 60)
    orders = chances("pause", "resume", "stop", "cap", "cap", "slower")
    leg = {
        "crash_at_s": at,
        "crash_after": st.none() | st.integers(1, 60),
        "interrupt_at_s": at,
        "orders": st.lists(st.tuples(st.floats(0, 80), orders, st.integers(1, 3000)), max_size=3),
        "reopens": st.booleans(),
        "cap": st.none() | st.integers(0, 4000),
        "cards": st.dictionaries(st.integers(0, n - 1), st.integers(1, 3), max_size=2),
    }
    return world | {
        "delivery": draw(chances(*Delivery)),
        "faults": draw(st.lists(chances(*FAULTS), min_size=1, max_size=5)),
        "longest_s": draw(chances(5.0, 100.0, 1e4)),
        "patience_s": draw(chances(1.0, 30.0, 1e4)),
        "max_wait_s": draw(chances(0.0, 900.0, 2e4)),
        "max_uncertain": draw(st.none() | st.integers(0, 60)),
        "wall_clock_s": draw(st.none() | st.none() | st.floats(1, 100)),
        "accounts": [draw(chances("", "", "a")) for _ in range(n)],
        "legs": draw(st.lists(st.fixed_dictionaries(leg), max_size=4)),
    }


def answer_of(world, unit):
    """What the system says of a unit, whenever it is asked."""
    rng = np.random.default_rng([world["seed"], 11, unit])
    if rng.random() < world["p_key"]:
        return KEY_WORD
    is_long = rng.random() < world["p_long"]
    return "a" * int(rng.integers(LONGEST + 1, 3 * LONGEST) if is_long else rng.integers(LONGEST))


def is_system(world, judge):
    return judge >= world["n_judges"]


class Books:
    """What the judges and systems of a world know, and what the log must hold at every commit."""

    def __init__(self, world):
        self.world = world
        self.bill = 0
        self.cap = world["cap"]
        self.factors = dict.fromkeys(range(len(world["holds"])), 1)
        self.queries = {}
        self.outcomes = {}
        self.answered = set()
        self.told = set()
        self.forget()

    def forget(self):
        """Another process begins."""
        self.down_since = {}

    def hear(self, state, events):
        for n, event in enumerate(events):
            self._note(event, events[n + 1 :])
        ledger = state.ledger
        for account in (ledger.campaign, *ledger.judges, *ledger.roles.values()):
            assert account.cap is None or account.committed <= account.cap
            assert min(account.settled, account.uncertain, account.held) >= 0

    def _note(self, event, rest):
        match event:
            case CapChanged(cap=cap):
                self.cap = cap
            case PriceChanged(judge=judge, card=card):
                self.factors[judge] = card.output // NANO_TOKEN.output
            case JudgeDown(judge=judge):
                self.down_since[judge] = anyio.current_time()
            case JudgeUp(judge=judge):
                self.down_since.pop(judge, None)
            case Asked(q=q, query=query):
                self.queries[q] = query
                if query.role is Role.SYSTEM:
                    child = next(
                        e.query
                        for e in rest
                        if isinstance(e, Asked) and e.query.role is Role.JUDGE
                    )
                    assert query.units[0] in child.units, "a generation without its verdict"
                    assert child.parent >= q
            case Sent(q=q):
                query = self.queries[q]
                if query.role is Role.SYSTEM:
                    assert query.units[0] not in self.answered, "an answer is asked for twice"
                else:
                    assert self.answered >= {*query.units}, "a verdict leaves before the answer"
            case Arrived(q=q, outcome=outcome) | Late(q=q, outcome=outcome):
                self.outcomes[q] = outcome
                query = self.queries[q]
                if query.role is Role.SYSTEM and isinstance(outcome, Judged):
                    self.answered |= {*query.units}
                    if isinstance(event, Late):
                        self.told |= {*query.units}
            case Told(q=q):
                query = self.queries[q]
                if query.role is Role.SYSTEM:
                    self.told |= {*query.units}
                elif isinstance(self.outcomes[q], Judged):
                    assert self.told >= {*query.units}, "a verdict is told before the answer"
            case _:
                pass

    def asked(self, judge, request, tokens):
        self.bill += tokens * self.factors[judge]
        assert self.bill <= self.cap, "the true bill passes the cap"
        assert request.attempt.number <= self.world["max_attempts"]
        now = anyio.current_time()
        assert self.down_since.get(judge, now) >= now, "it is asked and is down"


def adapter_of(books, judge):
    """A judge or system that answers, fails and charges by the question alone, at its own pace.

    In a rough world by how often it was asked, or what it says once would come back for ever.
    """
    world, role, n_sent = books.world, int(is_system(books.world, judge)), Counter()
    pace = np.random.default_rng([world["seed"], 5, judge, int(1000 * world["pace_s"])])

    def script(request):
        units, attempt = request.query.units, request.attempt
        n_sent[units] += 1
        turn = n_sent[units] if "legs" in world else attempt.number
        rng = np.random.default_rng([world["seed"], judge, *units, turn])
        most = adapter.ceiling(request, NANO_TOKEN)
        latency_s = float(pace.exponential(world["pace_s"]))
        wait_s = float(rng.random() * world["longest_s"])
        cost, finish = int(rng.integers(0, most + 1)), Finish.STOP
        if rng.random() < world["p_odd"][role]:
            cost, finish = most, ENDINGS[rng.integers(len(ENDINGS))]
        name = str(rng.choice(world["faults"])) if rng.random() < world["p_fail"][role] else ""
        books.asked(judge, request, 0 if name in FREE else most if name else cost)
        if name:
            return Script(latency_s=latency_s, error=FAULTS[name](wait_s))
        text = answer_of(world, units[0]) if role else None
        return Script(latency_s=latency_s, cost=cost, finish=finish, text=text)

    adapter = FakeAdapter(script, hold=world["holds"][judge], per_byte=world["per_byte"])
    return adapter


@dataclass
class Remembered:
    """Knows some answers and verdicts by heart; what they cost once is more than there is."""

    world: dict

    def find(self, query):
        role = int(query.role is Role.SYSTEM)
        rng = np.random.default_rng([self.world["seed"], 7, query.judge, *query.units])
        if rng.random() >= self.world["p_cached"][role]:
            return None
        text = answer_of(self.world, query.units[0]) if role else "3.0"
        usage = Usage(output_tok=10**9)
        return Reply(text=text, finish=Finish.STOP, usage=usage, origin=Origin.CACHE)

    def keep(self, query, attempt, reply, judged):
        return ""


class Listening:
    """A policy that must not hear of systems."""

    def __init__(self, policy, n_judges):
        self._policy, self._n_judges = policy, n_judges
        self.asked = {}
        self.told = Counter()
        self.ask, self.explain = policy.ask, policy.explain

    def tell(self, event):
        match event:
            case Asked(q=q, query=query):
                assert query.role is Role.JUDGE
                assert query.parent is None
                self.asked[q] = query
            case Record(q=q, query=query):
                assert query.role is Role.JUDGE
                self.told[query.judge, query.units] += 1
            case Parked(q=q):
                assert q in self.asked
            case Declined(query=query):
                assert query.role is Role.JUDGE
                assert query.parent is None
            case JudgeDown(judge=judge) | JudgeUp(judge=judge) | PriceChanged(judge=judge):
                assert judge < self._n_judges
            case _:
                pass
        self._policy.tell(event)


class Reading:
    """An estimator that must not hear of systems."""

    def __init__(self, estimator):
        self._estimator, self.estimate = estimator, estimator.estimate

    def update(self, record):
        assert record.query.role is Role.JUDGE
        self._estimator.update(record)


def crew_of(world, books):
    n_judges = world["n_judges"]
    adapters = [adapter_of(books, judge) for judge in range(len(world["holds"]))]
    crew = fake_crew(
        adapters[:n_judges],
        systems=adapters[n_judges:],
        n_units=N_UNITS,
        n_shown=world["n_shown"],
        longest=LONGEST,
        judge_caps=world["caps"],
        stop=StopRule(
            every=5, target_half_width=world["width"], max_answers=world["max_answers"], min_items=3
        ),
        timeouts=Timeouts(patience_s=world["patience_s"], max_wait_s=world["max_wait_s"]),
        **{
            key: world[key]
            for key in (
                "cap",
                "role_caps",
                "window",
                "max_uncertain",
                "max_requests",
                "max_attempts",
                "delivery",
                "concurrency",
            )
        },
    )
    return replace(
        crew,
        judges=tuple(
            replace(judge, account=account)
            for judge, account in zip(crew.judges, world["accounts"], strict=True)
        ),
        memory=Remembered(world),
        new_policy=lambda cap: Listening(crew.new_policy(cap), n_judges),
        new_estimators=lambda cap: tuple(map(Reading, crew.new_estimators(cap))),
    )


def run_of(world, books):
    operation = Operation(
        max_in_flight=world["max_in_flight"],
        wall_clock_s=world["wall_clock_s"],
        backoff=lambda n: min(2.0**n, 60.0),
    )
    return Attacked(crew_of(world, books), operation, archive=Archive(), hear=books.hear)


def command(name, amount):
    match name:
        case "cap":
            return Command(name="set", path=BUDGET, value=amount)
        case "slower":
            return Command(name="set", path="judges.system0.concurrency", value=1)
        case _:
            return Command(name=name)


def go_through(run, world, books):
    """Carry a run through all that befalls its processes, and to its end."""
    for leg in [*world["legs"], {}]:
        orders = [(at, command(name, amount)) for at, name, amount in leg.get("orders", [])]
        cards = {ix: PriceCard(output=1000 * factor) for ix, factor in leg.get("cards", {}).items()}
        books.forget()
        run.go(
            commands=[*orders, (3000.0, Command(name="resume"))],
            cards=cards,
            **{
                key: leg.get(key)
                for key in ("crash_at_s", "crash_after", "interrupt_at_s", "cap", "reopens")
            },
        )
        run.check(prompts=True)


def check_a_rough_world(world):
    books = Books(world)
    run = run_of(world, books)
    go_through(run, world, books)
    assert run.state.stopped is not None
    account = run.state.ledger.campaign
    assert account.held == 0
    assert books.bill <= account.settled + account.uncertain
    assert Counter(event.q for event in run.of(ENDS)) == Counter(e.q for e in run.of(Asked))
    sent = Counter(event.q for event in run.of(Sent))
    assert all(n <= world["max_attempts"] for n in sent.values())
    is_down = any(judge.is_down for judge in run.state.judges)
    if run.state.stopped is StopReason.FINISHED and not is_down:
        told = run.state.policy.told
        assert {*told.values()} == {1}
        assert len(told) == N_UNITS * world["n_judges"]


@settings(max_examples=40, deadline=None)
@given(rough_worlds())
def test_no_attack_breaks_the_chain_of_answer_and_verdict(world):
    """Caps of every account, order, billing, ends: at every commit and after every crash."""
    check_a_rough_world(world)
