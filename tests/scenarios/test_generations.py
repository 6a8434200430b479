"""Campaigns in which systems answer first: their answers and the verdicts on them, under attack.

Systems and judges keep books of their own: what they really charged, and what they were asked.
"""

from __future__ import annotations

import json
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
    Reasked,
    Sent,
    Told,
    Withdrawn,
)
from orchestrator.core.judge import Timeouts
from orchestrator.core.money import PriceCard
from orchestrator.core.query import (
    Judged,
    Kind,
    Missing,
    MissingReason,
    Purpose,
    Role,
    outcome_digest,
)
from orchestrator.core.records import Record
from orchestrator.core.stopping import StopReason, StopRule
from orchestrator.core.wire import Billing, Finish, Origin, Reply, Usage
from orchestrator.engine import scheduler
from orchestrator.engine.fold import State
from orchestrator.engine.scheduler import Operation
from orchestrator.engine.sequencer import Delivery
from orchestrator.engine.verify import Kept, verify
from orchestrator.store.archive import name_prompt
from orchestrator.store.codec import decode
from orchestrator.store.memory import MemoryStore
from orchestrator.testing.fakes import (
    KEY_WORD,
    NANO_TOKEN,
    FakeAdapter,
    InTurnPolicy,
    MemoryArchive,
    Script,
    fake_crew,
    said,
)
from orchestrator.testing.forging import forgeries, rows_of, signed
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
    """Draw prices, caps, answers and faults of some judges and systems, the same at any speed.

    Without a judge, answers are all that is wanted.
    """
    n_judges, n_systems = draw(chances(1, 1, 2, 3, 0)), draw(st.integers(1, 3))
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
                if query.role is Role.SYSTEM and self.world["n_judges"]:
                    child = next(
                        e.query for e in rest if isinstance(e, Asked) and e.query.role is Role.JUDGE
                    )
                    assert query.units[0] in child.units, "a generation without its verdict"
                    assert child.parent >= q
            case Sent(q=q):
                query = self.queries[q]
                if query.role is Role.SYSTEM:
                    is_paid = query.units[0] in self.answered and self.world["n_judges"]
                    assert not is_paid, "an answer is asked for twice"
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


class Generating(InTurnPolicy):
    """Asks for the answer to each unit once."""

    def __init__(self, n_units, n_systems):
        super().__init__(n_units)
        self._todo = [
            replace(
                query,
                kind=Kind.GENERATE,
                judge=query.units[0] % n_systems,
                role=Role.SYSTEM,
                purpose=Purpose.GENERATE,
            )
            for query in self._todo
        ]


class Listening:
    """A policy that must not hear of others than those it asks."""

    def __init__(self, policy, n_asked, role):
        self._policy, self._n_asked, self._role = policy, n_asked, role
        self.asked = {}
        self.told = Counter()
        self.ask, self.explain = policy.ask, policy.explain

    def tell(self, event):
        match event:
            case Asked(q=q, query=query):
                assert query.role is self._role
                assert query.parent is None
                self.asked[q] = query
            case Record(q=q, query=query):
                assert query.role is self._role
                self.told[query.judge, query.units] += 1
            case Parked(q=q):
                assert q in self.asked
            case Declined(query=query):
                assert query.role is self._role
                assert query.parent is None
            case JudgeDown(judge=judge) | JudgeUp(judge=judge) | PriceChanged(judge=judge):
                assert judge < self._n_asked
            case _:
                pass
        self._policy.tell(event)


class Reading:
    """An estimator that must not hear of others than those the policy asks."""

    def __init__(self, estimator, role):
        self._estimator, self.estimate, self._role = estimator, estimator.estimate, role

    def update(self, record):
        assert record.query.role is self._role
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
    role = Role.JUDGE if n_judges else Role.SYSTEM
    policy = crew.new_policy if n_judges else lambda _: Generating(N_UNITS, len(adapters))
    n_asked = n_judges or len(adapters)
    return replace(
        crew,
        judges=tuple(
            replace(judge, account=account)
            for judge, account in zip(crew.judges, world["accounts"], strict=True)
        ),
        memory=Remembered(world),
        new_policy=lambda cap: Listening(policy(cap), n_asked, role),
        new_estimators=lambda cap: tuple(Reading(e, role) for e in crew.new_estimators(cap)),
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
        assert len(told) == N_UNITS * (world["n_judges"] or 1)


@settings(max_examples=40, deadline=None)
@given(rough_worlds())
def test_no_attack_breaks_the_chain_of_answer_and_verdict(world):
    """Caps of every account, order, billing, ends: at every commit and after every crash."""
    check_a_rough_world(world)


@pytest.mark.slow
def test_no_attack_breaks_the_chain_in_two_thousand_worlds(measured):
    settings(max_examples=2000, deadline=None)(given(rough_worlds())(check_a_rough_world))()
    measured("answers and verdicts on them: caps, order and billing hold in rough worlds", "2,000")


def carried_out(world, *, legs=({},), **changes):
    """Carry a world out at another speed, and by several processes."""
    world = world | changes
    books = Books(world)
    run = run_of(world, books)
    for leg in legs:
        books.forget()
        run.go(**leg)
        if run.state.stopped is not None:
            break
    assert run.state.stopped is not None
    run.check(prompts=True)
    account = run.state.ledger.campaign
    assert books.bill <= account.settled + account.uncertain
    return run


def check_fingerprints(world):
    whole = carried_out(world)
    assert not whole.of(JudgeDown)
    paces = [{"pace_s": 0.1, "max_in_flight": 1}, {"pace_s": 20.0, "concurrency": 9}]
    half = [{"interrupt_at_s": at} for at in (0.0, 1.3, 2.2)]
    for changes, legs in [*((pace, [{}]) for pace in paces), (paces[0], [*half, {}])]:
        again = carried_out(world, legs=legs, **changes)
        assert again.store.head == whole.store.head
        assert again.state.last_look.estimates == whole.state.last_look.estimates
        assert again.state.stopped is whole.state.stopped


@settings(max_examples=25, deadline=None)
@given(worlds())
def test_the_fingerprint_is_that_of_the_seed(world):
    """C40, C47: at any speed, however many calls run, and however often it is interrupted."""
    check_fingerprints(world)


@pytest.mark.slow
def test_the_fingerprint_is_that_of_the_seed_in_a_thousand_worlds(measured):
    settings(max_examples=1000, deadline=None)(given(worlds())(check_fingerprints))()
    measured("C40: one fingerprint with systems: worlds, each at 4 speeds", "1,000")


def check_crashes(world):
    """Money enough and no fault: what a crash loses is charged, and nothing else is another."""
    plenty = {"cap": 10**9, "caps": [None] * len(world["holds"]), "role_caps": {}}
    plenty |= {"max_requests": None, "p_fail": [0.0, 0.0], "max_attempts": 9}
    world = world | plenty
    world["p_odd"] = [0.0, 0.0]
    whole = carried_out(world)
    legs = [{"crash_after": 1 + n} for n in (1, 4, 0, 9)]
    again = carried_out(world, legs=[*legs, {}])
    assert course(again) == course(whole)
    assert again.state.last_look.estimates == whole.state.last_look.estimates


def course(run):
    """What was asked, and what verdicts and answers came of it, in the order in which they counted."""
    queries = {event.q: event.query for event in run.of(Asked)}
    outcomes = {event.q: event.outcome for event in run.of(Arrived)}
    told = [event.q for event in run.of(Told)]
    return [*queries.items()], [
        (q, getattr(outcomes[q], "observations", None) or getattr(outcomes[q], "reason", None))
        for q in told
    ]


@settings(max_examples=15, deadline=None)
@given(worlds())
def test_a_crash_anywhere_resumes_to_the_same_questions_and_verdicts(world):
    """C18."""
    check_crashes(world)


# --- one at a time -----------------------------------------------------------------------------

PLENTY = 10**9
HOLD, FIRST_COST = 20, 5
"""What a generation holds and costs."""
SHOWN, FEE = len("unit 0\n") + LONGEST, 3
"""What a verdict holds on an answer that is not there yet, and costs."""


def says(texts, **scripts):
    """A system that says of each unit what is given, or does as a script says."""

    def script(request):
        unit = request.query.units[0]
        given = texts.get(unit, "fine") if isinstance(texts, dict) else texts
        made = given(request) if callable(given) else given
        if isinstance(made, Script):
            return made
        return Script(latency_s=1.0, cost=FIRST_COST, text=made)

    return FakeAdapter(script, hold=HOLD, **scripts)


def judging(latency_s=1.0, error=None):
    """A judge whose verdict holds a nano-USD for each byte that it is shown."""
    return FakeAdapter(
        lambda _: Script(latency_s=latency_s, cost=FEE, error=error), hold=0, per_byte=1
    )


def put(*judges, systems, operation=None, **crew):
    """Make a run of them, with money enough."""
    made = fake_crew(list(judges), systems=systems, **({"cap": PLENTY, "n_units": 1} | crew))
    return Attacked(made, operation or Operation(max_in_flight=9), archive=Archive())


def verdicts(run):
    """What came of each verdict's question, by its number."""
    queries = {event.q: event.query for event in run.of(Asked)}
    return {e.q: e.outcome for e in run.of(Arrived) if queries[e.q].role is Role.JUDGE}


def prompts(adapter):
    return [said(request).removeprefix("unit ").split("\n") for request in adapter.sent]


CHAIN = {
    # the last row that is left: settled and uncertain in the end; generations, verdicts sent anew
    "Opened": (8, 0, 1, 1),
    "Asked 0": (8, 0, 1, 1),
    "Asked 1": (8, 0, 1, 1),
    "Sent 0": (8, HOLD, 1, 1),
    "Arrived 0": (8, 0, 0, 1),
    "Told 0": (8, 0, 0, 1),
    "Sent 1": (8, SHOWN, 0, 1),
    "Arrived 1": (8, 0, 0, 0),
    "Told 1": (8, 0, 0, 0),
}


def rows_named(run):
    for event in run.events:
        q = getattr(event, "q", None)
        yield type(event).__name__ + ("" if q is None else f" {q}")


@pytest.mark.parametrize("last", CHAIN)
def test_a_chain_that_is_cut_goes_on_where_it_was(last):
    """C18: what was lost on its way is charged and asked again; what had come is used."""
    whole = put(judging(), systems=[says("fine")])
    whole.go()
    assert [name for name in rows_named(whole) if name in CHAIN] == [*CHAIN]
    n_kept = 1 + [*rows_named(whole)].index(last)
    judge, system = judging(), says("never heard of" if CHAIN[last][2] == 0 else "fine")
    run = put(judge, systems=[system])
    run.archive, run.store = whole.archive, MemoryStore(whole.store.lines[:n_kept])
    run.go()
    account = run.state.ledger.campaign
    assert (account.settled, account.uncertain, len(system.sent), len(judge.sent)) == CHAIN[last]
    assert all(words == ["0", "fine"] for words in prompts(judge))
    assert [*verdicts(run).values()] == [*verdicts(whole).values()]
    assert run.state.n_answered == 1
    run.check(prompts=True)


def test_a_truncated_answer_is_asked_for_again_and_takes_its_verdict_along():
    """Twice as long, at the end of the order; the verdict leaves when the whole answer is there."""

    def cut(request):
        finish = Finish.STOP if request.attempt.widened else Finish.LENGTH
        return Script(latency_s=1.0, cost=FIRST_COST, finish=finish, text="fine")

    judge, system = judging(), says({0: cut})
    run = put(judge, systems=[system], n_units=3)
    run.go()
    assert [e.q for e in run.of(Told)] == [2, 3, 4, 5, 0, 1]
    assert [e.hold for e in run.of(Reasked)] == [2 * HOLD]
    assert len(system.sent) == 4
    assert sorted(prompts(judge)) == [[str(unit), "fine"] for unit in range(3)]
    assert run.state.ledger.campaign.settled == 4 * FIRST_COST + 3 * FEE
    run.check(prompts=True)


@pytest.mark.parametrize("window", [1, 40])
def test_without_an_answer_no_judge_is_asked(window):
    """Whoever waits for it, and whoever would be asked later: missing, at no cost."""
    refusal = Script(latency_s=1.0, cost=FIRST_COST, finish=Finish.REFUSED)
    judges, system = [judging() for _ in "abc"], says({0: refusal})
    run = put(*judges, systems=[system], n_units=2, window=window)
    run.go()
    assert len(system.sent) == 2
    assert [prompts(judge) for judge in judges] == [[["1", "fine"]]] * 3
    missing = {q: out for q, out in verdicts(run).items() if isinstance(out, Missing)}
    assert {out.reason for out in missing.values()} == {MissingReason.NO_ANSWER}
    assert sum(out.cost + out.uncertain for out in missing.values()) == 0
    assert len(missing) == 3
    later = [e for e in run.of(Asked) if e.origin is Origin.KEY]
    assert [e.hold for e in later] == ([0, 0] if window == 1 else [])
    assert run.state.n_requests == 8 - len(later)
    assert run.state.ledger.campaign.settled == 2 * FIRST_COST + 3 * FEE
    assert run.state.ledger.campaign.uncertain == 0
    assert [judge.missing["no_answer"] for judge in run.state.judges] == [1, 1, 1, 0]
    run.check(prompts=True)


def test_an_answer_longer_than_was_reckoned_is_not_judged():
    """What its verdict could cost is not held."""
    judge = judging()
    run = put(judge, systems=[says({0: "x" * (LONGEST + 1), 1: "x" * LONGEST})], n_units=2)
    run.go()
    first, second = verdicts(run).values()
    assert (first.reason, first.cost, first.uncertain) == (MissingReason.TOO_LONG, 0, 0)
    assert isinstance(second, Judged)
    assert [words[0] for words in prompts(judge)] == ["1"]
    run.check(prompts=True)


class Heart:
    """Knows by heart what systems say of some units."""

    def __init__(self, *units, texts="fine"):
        self._units, self._texts = units, texts

    def find(self, query):
        if query.role is Role.JUDGE or query.units[0] not in self._units:
            return None
        usage = Usage(output_tok=10**9)
        return Reply(text=self._texts, finish=Finish.STOP, usage=usage, origin=Origin.CACHE)

    def keep(self, query, attempt, reply, judged):
        return ""


def remembering(run, *units):
    run.crew = replace(run.crew, memory=Heart(*units))
    return run


def test_an_answer_that_is_remembered_costs_nothing():
    """Money for the verdicts alone is enough, and so are requests for them alone."""
    judge, system = judging(), says("never heard of")
    run = put(judge, systems=[system], n_units=4, cap=SHOWN + 3 * FEE, max_requests=4, window=1)
    remembering(run, 0, 1, 2, 3)
    run.go()
    assert not system.sent
    assert {e.hold for e in run.of(Asked) if e.query.role is Role.SYSTEM} == {0}
    assert prompts(judge) == [[str(unit), "fine"] for unit in range(4)]
    assert run.state.ledger.campaign.settled == 4 * FEE
    run.check(prompts=True)


@pytest.mark.parametrize("remembered", [(0,), (1,), (0, 1)])
def test_a_replay_agrees_on_what_there_was_no_money_for(remembered):
    """It has no cache: that an answer was remembered need not stand in the log."""
    for cap in range(2 * HOLD + 3 * SHOWN):
        run = put(judging(), systems=[says("fine")], n_units=3, n_shown=2, cap=cap, max_requests=5)
        remembering(run, *remembered)
        run.go()
        run.check(prompts=True)


@pytest.mark.parametrize("max_in_flight", [1, 3, 40])
@pytest.mark.parametrize("cap", [100, 250, 400])
def test_the_end_of_the_money_cuts_the_tail_alone(cap, max_in_flight):
    """The units that are answered and judged are the first ones, by all judges but for the last."""
    judges = [judging() for _ in "ab"]
    run = put(
        *judges,
        systems=[says("fine"), says("fine")],
        n_units=40,
        cap=cap,
        window=12,
        operation=Operation(max_in_flight=max_in_flight),
    )
    run.go()
    assert run.state.stopped is StopReason.BUDGET
    asked = [e.query for e in run.of(Asked) if e.query.role is Role.JUDGE]
    assert 0 < len(asked) < 80
    assert [(q.units[0], q.judge) for q in asked] == [divmod(n, 2) for n in range(len(asked))]
    answered = {e.query.units[0] for e in run.of(Asked) if e.query.role is Role.SYSTEM}
    assert answered == {*range(1 + asked[-1].units[0])}
    assert len(run.of(Told)) == len(asked) + len(answered)
    run.check(prompts=True)


def test_verdicts_go_before_new_answers():
    """C40: one call at a time, so an answer is judged before the next is asked for."""
    run = put(
        *(judging() for _ in "ab"),
        systems=[says("fine")],
        n_units=3,
        operation=Operation(max_in_flight=1),
    )
    run.go()
    assert [e.q for e in run.of(Sent)] == [*range(9)]


def stopped_by_a_bill():
    """One bill passes the cap, so the run stops at once; another answer is under way."""
    judge = judging()
    dear = says(Script(latency_s=1.0, cost=500, text="dear"))
    slow = says(Script(latency_s=9.0, cost=FIRST_COST, text="late"))
    return put(judge, systems=[dear, slow], n_units=2, cap=200), judge, slow


def test_an_answer_that_comes_after_the_stop_serves_a_run_that_goes_on():
    """It is paid for."""
    run, judge, slow = stopped_by_a_bill()
    run.go()
    assert run.state.stopped is StopReason.OVERRUN
    assert [e.q for e in run.of(Late)] == [2]
    run.go(reopens=True, cap=2000)
    assert run.state.stopped is StopReason.FINISHED
    assert len(slow.sent) == 1
    assert sorted(prompts(judge)) == [["0", "dear"], ["1", "late"]]
    assert run.state.ledger.campaign.committed == 500 + FIRST_COST + 2 * FEE
    run.check(prompts=True)


def test_an_answer_that_was_lost_after_the_stop_is_charged_and_asked_for_again():
    run, judge, slow = stopped_by_a_bill()
    assert not run.go(crash_at_s=5.0)
    assert run.state.stopped is StopReason.OVERRUN
    run.go(reopens=True, cap=2000)
    assert [e.q for e in run.of(Forfeited)] == [2]
    assert len(slow.sent) == 2
    assert sorted(prompts(judge)) == [["0", "dear"], ["1", "late"]]
    account = run.state.ledger.campaign
    assert (account.settled, account.uncertain) == (500 + FIRST_COST + 2 * FEE, HOLD)
    run.check(prompts=True)


def test_a_price_that_changes_while_another_judge_waits_for_the_answer_hangs_nothing():
    """The answer comes back unasked; who has asked for its verdict since comes back with it."""
    judges, system = [judging() for _ in "ab"], says("fine")
    run = put(*judges, systems=[system], n_units=2, window=5)
    run.go(interrupt_at_s=0.5)
    assert [e.query.units for e in run.of(Asked) if e.query.judge == 1] == [(0,)]
    run.go(cards={2: PriceCard(output=2000)})
    assert run.state.stopped is StopReason.FINISHED
    assert run.state.n_answered == 4
    assert run.of(Parked)
    run.check(prompts=True)


def test_a_verdict_that_will_not_be_waits_for_no_other_answer():
    """By arrival: one answer is refused, and another, heard of at the same time, asked for again."""

    def cut(request):
        finish = Finish.STOP if request.attempt.widened else Finish.LENGTH
        return Script(latency_s=2.0, cost=FIRST_COST, finish=finish, text="fine")

    refusal = Script(latency_s=1.0, cost=FIRST_COST, finish=Finish.REFUSED)
    run = put(
        judging(),
        systems=[says({0: refusal}), says({1: cut})],
        n_units=2,
        n_shown=2,
        delivery=Delivery.ARRIVAL,
    )
    run.go(commands=[(0.5, Command(name="pause")), (3.0, Command(name="resume"))])
    assert run.state.stopped is StopReason.FINISHED
    assert run.of(Reasked)
    assert {out.reason for out in verdicts(run).values()} == {MissingReason.NO_ANSWER}
    run.check(prompts=True)


def test_what_a_verdict_holds_does_not_depend_on_answers_that_are_not_told():
    """One judge asks while the answer is there and another is waited for, or has not come yet."""
    holds = set()
    for slow_s, fast_s in [(9.0, 1.0), (1.0, 9.0)]:
        systems = [says(Script(latency_s=s, cost=1, text="a")) for s in (slow_s, fast_s)]
        run = put(*(judging() for _ in "ab"), systems=systems, n_units=2, window=4)
        run.go()
        holds.add(tuple(e.hold for e in run.of(Asked) if e.query.units == (1,)))
        run.check(prompts=True)
    assert holds == {(HOLD, SHOWN, SHOWN)}


def test_long_answers_are_put_into_words_once_a_question_while_money_is_waited_for(monkeypatch):
    """In the end there is money for one chain at a time: each question is decided on again and again."""
    n_units, rendered = 6, Counter()
    systems = [says(lambda _: "a" * LONGEST)]
    cap = (n_units - 1) * (FIRST_COST + FEE) + HOLD + SHOWN
    run = put(judging(), systems=systems, n_units=n_units, cap=cap)
    render = run.crew.judges[0].rubric.render

    def counted(query, attempt):
        request = render(query, attempt)
        rendered[query.units] += "x" * LONGEST in said(request)
        return request

    monkeypatch.setattr(run.crew.judges[0].rubric, "render", counted)
    run.go()
    assert len(verdicts(run)) == n_units
    assert set(rendered.values()) == {1}
    assert {e.hold for e in run.of(Asked) if e.query.role is Role.JUDGE} == {SHOWN}
    run.check(prompts=True)


def test_a_system_that_is_down_for_a_time_is_waited_for():
    """C14: its answers are asked for again; the policy hears nothing of it."""
    limited = RateLimited(retry_after_s=300.0)
    seen = []

    def once(request):
        seen.append(request)
        if len(seen) == 3:
            return Script(latency_s=1.0, error=limited)
        return Script(latency_s=1.0, cost=FIRST_COST, text="fine")

    judge, system = judging(), says(once)
    run = put(judge, systems=[system], n_units=8)
    run.go()
    assert [e.judge for e in run.of(JudgeDown)] == [e.judge for e in run.of(JudgeUp)] == [1]
    assert run.took_s > 300
    assert run.state.n_answered == 8
    assert len(system.sent) == 9
    run.check(prompts=True)


def test_a_system_that_is_down_for_good_ends_the_run_until_it_is_mended():
    """What it was asked when it refused is missing; all else is asked for later."""
    broken = [True]

    def moody(request):
        if broken[0] and request.query.units[0] == 2:
            return Script(latency_s=1.0, error=BadCredentials())
        return Script(latency_s=1.0, cost=FIRST_COST, text="fine")

    run = put(judging(), systems=[says(moody)], n_units=6)
    run.go()
    assert run.state.stopped is StopReason.JUDGES_DOWN
    n_before = run.state.n_answered
    broken[0] = False
    run.go(reopens=True)
    assert run.state.stopped is StopReason.FINISHED
    assert n_before < run.state.n_answered == 5
    run.check(prompts=True)


def test_where_answers_are_all_that_is_wanted_each_repeat_is_asked():
    """One that was refused says nothing of the next."""
    answers = iter([Finish.REFUSED, Finish.STOP])
    system = says(lambda _: Script(latency_s=1.0, cost=FIRST_COST, finish=next(answers)))
    run = put(systems=[system], window=1)

    class Twice(Generating):
        def __init__(self):
            super().__init__(1, 1)
            self._todo.append(replace(self._todo[0], replicate=1))

    run.crew = replace(run.crew, new_policy=lambda _: Twice())
    run.go()
    assert len(system.sent) == 2
    assert run.state.judges[0].missing == {"refused": 1}
    assert run.state.n_answered == 1
    run.check(prompts=True)


def test_what_was_declined_is_not_forgotten_when_a_run_goes_on():
    """Its policy hears of nothing that would let it ask again: it still lacked money."""
    run = put(
        judging(),
        systems=[says("fine") for _ in "abc"],
        n_units=3,
        window=1,
        judge_caps=[None, 0, None, None],
    )
    run.go(commands=[(0.5, Command(name="stop"))])
    assert run.state.stopped is StopReason.USER
    run.go(reopens=True)
    assert len(run.of(Declined)) == 1
    assert run.state.n_answered == 2
    assert run.state.stopped is StopReason.BUDGET
    run.check(prompts=True)


def test_a_cheaper_system_does_not_make_a_run_complete_that_lacked_money():
    """A policy is not told, so it leaves out what was declined: the run ends for want of money."""
    run = put(
        judging(),
        systems=[says("fine"), says("fine")],
        n_units=8,
        window=1,
        judge_caps=[None, 2 * FIRST_COST + HOLD - 1, None],
    )
    run.go(interrupt_at_s=8.5)
    assert run.state.stopped is None
    assert run.of(Declined)
    run.go(cards={1: PriceCard(output=500)})
    assert run.state.n_answered == 7
    assert run.state.stopped is StopReason.BUDGET
    run.check(prompts=True)


# --- forged ------------------------------------------------------------------------------------


def differences(run, lines, *, prompts=True):
    found = verify(
        State(run.crew),
        MemoryStore(lines).read(),
        run.archive.recall,
        name_prompt if prompts else lambda _: "",
        kept=Kept(replies=True, prompts=prompts, cache=True),
    )
    return [difference.what for difference in found]


def chained():
    """A run with a plain answer, one by the key, one that is refused and one that is too long."""
    refusal = Script(latency_s=1.0, cost=FIRST_COST, finish=Finish.REFUSED)
    texts = {0: "fine", 1: KEY_WORD, 2: refusal, 3: "x" * 2 * LONGEST, 4: "good"}
    run = put(*(judging() for _ in "ab"), systems=[says(texts)], n_units=5, window=5)
    run.go()
    reasons = {
        getattr(out, "reason", out.origin if isinstance(out, Judged) else "")
        for out in verdicts(run).values()
    }
    assert reasons == {Origin.LIVE, Origin.KEY, MissingReason.NO_ANSWER, MissingReason.TOO_LONG}
    return run


def arrivals(run, role, unit):
    """The rows in which a unit's answers or verdicts arrive."""
    queries = {event.q: event.query for event in run.of(Asked)}
    return [
        index
        for index, event in enumerate(run.events)
        if isinstance(event, Arrived)
        and queries[event.q].role is role
        and queries[event.q].units == (unit,)
    ]


def forged(run, index, change):
    """Change an outcome, and tell it anew with all hashes written again."""
    rows = rows_of(run.store.lines)
    kind, body = rows[index]
    body["outcome"] = change(body["outcome"])
    event = decode(kind, 1, json.dumps(body))
    for other, told in rows:
        if other == "Told" and told["q"] == event.q:
            told["digest"] = outcome_digest(event.outcome)
    return signed(rows)


def with_text(run, text):
    """Name another reply: all is as it was but for what it says."""

    def change(outcome):
        reply = run.archive.recall(outcome["blob"])
        return outcome | {"blob": run.archive.reply(replace(reply, text=text))}

    return change


def no_answer(outcome):
    return {"reason": "no_answer", "cost": 0, "uncertain": 0, "attempts": 1}


def test_an_honest_chain_has_no_difference():
    run = chained()
    assert differences(run, run.store.lines) == []


def test_another_answer_than_the_judge_was_shown_is_named():
    """By what the judge was sent; without prompts by what the key decides, and by its length."""
    run = chained()
    (plain,), (keyed,) = arrivals(run, Role.SYSTEM, 0), arrivals(run, Role.SYSTEM, 1)
    for index, text, prompts, word in [
        (plain, "good", True, "not the one that its query renders to"),
        (plain, KEY_WORD, False, "it needed no call"),
        (plain, "x" * 3 * LONGEST, False, "it needed no call"),
        (keyed, "good", False, "was not under way"),
    ]:
        found = differences(run, forged(run, index, with_text(run, text)), prompts=prompts)
        assert any(word in what for what in found), (text, found)


def test_a_verdict_by_the_key_that_says_otherwise_is_named():
    run = chained()
    index = arrivals(run, Role.JUDGE, 1)[0]

    def raised(outcome):
        reply = run.archive.recall(outcome["blob"])
        said = [{**seen, "value": 0.0} for seen in outcome["observations"]]
        return outcome | {"observations": said, "blob": run.archive.reply(replace(reply, text="0"))}

    found = differences(run, forged(run, index, raised))
    assert any("what was not under way arrived" in what for what in found), found


@pytest.mark.parametrize(
    ("unit", "word"),
    [
        (0, "it was sent, so there was an answer"),
        (1, "what was not under way arrived"),
        (3, "what was not under way arrived"),
    ],
)
def test_a_verdict_that_was_made_missing_for_want_of_an_answer_is_named(unit, word):
    """There was one: judged, decided by the key, or too long."""
    run = chained()
    index = arrivals(run, Role.JUDGE, unit)[0]
    found = differences(run, forged(run, index, no_answer))
    assert any(word in what for what in found), found


def test_a_verdict_that_leaves_before_its_answer_is_named():
    run = chained()
    rows = rows_of(run.store.lines)
    sent = next(i for i, (kind, body) in enumerate(rows) if kind == "Sent" and body["q"] == 1)
    at = next(i for i, (kind, body) in enumerate(rows) if kind == "Arrived" and body["q"] == 0)
    rows.insert(at, rows.pop(sent))
    found = differences(run, signed(rows))
    assert "question 1 was sent before the answer that it reads was there" in found


UNVERIFIABLE = {
    "Opened": None,  # compared with the campaign file by the command
    "Started": None,
    "Arrived": {"took_s", "waited_s", "limited_s", "outcome.detail"},
}


def test_every_field_of_a_chain_that_could_be_contradicted_is():
    """One field of one row changed, all hashes written anew: still found."""
    run = chained()
    missed = []
    for kind, field, value, lines in forgeries(rows_of(run.store.lines)):
        free = UNVERIFIABLE.get(kind, set())
        if free is None or field in free:
            continue
        if not differences(run, lines):
            missed.append((kind, field, value))
    assert missed == []
