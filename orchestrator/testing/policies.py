"""The contract of a policy. A policy's test subclasses it and says how to make one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from orchestrator.core.budget import BudgetView
from orchestrator.core.events import (
    Asked,
    CapChanged,
    Declined,
    JudgeDown,
    JudgeUp,
    Parked,
    PriceChanged,
)
from orchestrator.core.frame import Frame
from orchestrator.core.ids import JudgeIx, QNo
from orchestrator.core.money import FREE, Nano, PriceCard
from orchestrator.core.ports import FINISH, PAUSE, Policy, PolicyEvent, Turn
from orchestrator.core.query import (
    Judged,
    Kind,
    Missing,
    MissingReason,
    Observation,
    Outcome,
    Preference,
    Query,
)
from orchestrator.core.records import Record
from orchestrator.core.scale import Criterion, Scale, ScaleType
from orchestrator.core.seeds import Seeds
from orchestrator.core.study import Panelist, Study

ENDLESS = 5_000
"""Questions after which a small study's design counts as endless."""

thorough = settings(
    deadline=None,
    report_multiple_bugs=False,
    # A contract's tests are run by each subclass, which is their purpose.
    suppress_health_check=[HealthCheck.differing_executors, HealthCheck.too_slow],
)


class Move(Enum):
    """What can happen next in a run."""

    ASK = "ask"
    ANSWER = "answer"
    MISS = "miss"
    DOWN = "down"
    GONE = "gone"
    UP = "up"
    DECLINE = "decline"
    DECLINE_JUDGE = "decline_judge"
    CAP = "cap"
    PRICE = "price"


Step = tuple[Move, int]
"""A move, and a number that chooses the judge or the verdict it concerns."""

_step = st.tuples(
    st.sampled_from([*Move, Move.ASK, Move.ASK, Move.ANSWER, Move.MISS]), st.integers(0, 9)
)
# Drawn lists are short unless told otherwise, and much goes wrong late.
steps = st.lists(_step, max_size=5) | st.lists(_step, min_size=20, max_size=60)


def small_study(
    *,
    kind: Kind = Kind.RATE,
    n_items: int = 3,
    n_arms: int = 2,
    repeats: Sequence[int | None] = (1, 2),
    strata: Sequence[str] | None = None,
    seed: int = 0,
) -> Study:
    """Make a study of integer scores with one judge for each of `repeats`."""
    frame = Frame.of(
        [f"item{i}" for i in range(n_items)], [f"arm{a}" for a in range(n_arms)], stratum=strata
    )
    scale = Scale(type=ScaleType.PREFERENCE if kind is Kind.COMPARE else ScaleType.INTEGER, high=9)
    return Study(
        kind=kind,
        frame=frame,
        panel=tuple(
            Panelist(name=f"judge{j}", card=PriceCard(per_call=1000 * (j + 1)), repeats=r)
            for j, r in enumerate(repeats)
        ),
        criteria=(Criterion(name="score", scale=scale),),
        seeds=Seeds(seed),
    )


@st.composite
def small_studies(draw: st.DrawFn, kind: Kind = Kind.RATE, n_arms: int | None = None) -> Study:
    """Draw studies of few items, arms and judges, all of whose judges have finite repeats."""
    n_items = draw(st.integers(1, 5))
    return small_study(
        kind=kind,
        n_items=n_items,
        n_arms=n_arms or draw(st.integers(1, 2)),
        repeats=draw(st.lists(st.integers(1, 3), min_size=1, max_size=3)),
        strata=draw(
            st.none() | st.lists(st.sampled_from("ab"), min_size=n_items, max_size=n_items)
        ),
        seed=draw(st.integers(0, 2**32)),
    )


@dataclass(slots=True, kw_only=True)
class Play:
    """Plays the engine's part: tells a policy what its proposals lead to, and watches it.

    `told` are all events in order, `proposals` what was proposed after how many of them.
    """

    policy: Policy
    study: Study
    cap: Nano | None = None
    n_asks: int = 1
    told: list[PolicyEvent] = field(default_factory=list)
    proposals: list[tuple[int, Query | Turn]] = field(default_factory=list)
    open: dict[QNo, Query] = field(default_factory=dict)
    down: dict[int, bool] = field(default_factory=dict)
    """Judges that are down, and whether for good."""
    settled: set[tuple[object, ...]] = field(default_factory=set)
    """Questions that were asked and did not come back."""

    def view(self) -> BudgetView:
        """Show an account in which each question is held at one nano-USD."""
        return BudgetView(
            cap=self.cap,
            settled=Nano(0),
            uncertain=Nano(0),
            held=Nano(len(self.open)),
            price=lambda _: Nano(1),
        )

    def tell(self, event: PolicyEvent) -> None:
        """Tell the policy an event and keep it."""
        self.told.append(event)
        self.policy.tell(event)

    def propose(self) -> Query | Turn:
        """Ask as often as wanted; check that the answers agree and are allowed."""
        answers = [self.policy.ask(self.view()) for _ in range(self.n_asks)]
        proposal = answers[0]
        assert all(a == proposal for a in answers), "two calls of ask in a row differ"
        self.proposals.append((len(self.told), proposal))
        if proposal is PAUSE:
            waits = self.open or not all(self.down.values())
            assert waits, "PAUSE, though nothing is outstanding and no judge will come back"
        elif isinstance(proposal, Query):
            self._check(proposal)
        return proposal

    def _check(self, query: Query) -> None:
        frame, panel = self.study.frame, self.study.panel
        assert 0 <= query.judge < len(panel), f"no such judge: {query}"
        assert query.judge not in self.down, f"its judge is down: {query}"
        assert query.units, f"no unit: {query}"
        assert all(0 <= unit < frame.n_units for unit in query.units), f"no such unit: {query}"
        assert 0 < query.propensity <= 1, f"a propensity is in (0, 1]: {query}"
        assert _identity(query) not in self.settled, f"asked before: {query}"

    def step(self, move: Move, number: int) -> None:
        """Let one thing happen, if it can happen now."""
        judge = JudgeIx(number % len(self.study.panel))
        match move:
            case Move.ASK:
                self._ask()
            case Move.ANSWER:
                self._end_oldest(lambda query: self._verdict(query, number))
            case Move.MISS:
                reason = list(MissingReason)[number]
                self._end_oldest(
                    lambda _: Missing(reason=reason, cost=Nano(1), uncertain=Nano(0), attempts=1)
                )
            case Move.DOWN | Move.GONE if judge not in self.down:
                self.down[judge] = move is Move.GONE
                until = None if move is Move.GONE else 1.0
                self.tell(JudgeDown(judge=judge, until=until, why="test"))
                for q in [q for q, query in self.open.items() if query.judge == judge]:
                    self.settled.discard(_identity(self.open.pop(q)))
                    self.tell(Parked(q=q))
            case Move.UP if judge in self.down:
                del self.down[judge]
                self.tell(JudgeUp(judge=judge))
            case Move.DECLINE | Move.DECLINE_JUDGE if not self.open:
                proposal = self.propose()
                if isinstance(proposal, Query):
                    name = self.study.panel[proposal.judge].name
                    account = "campaign" if move is Move.DECLINE else f"judge:{name}"
                    self.tell(Declined(query=proposal, hold=Nano(2), account=account))
            case Move.CAP:
                self.tell(CapChanged(cap=Nano(100 * number)))
            case Move.PRICE:
                self.tell(PriceChanged(judge=judge, card=FREE))
            case _:
                pass

    def finish(self) -> None:
        """Raise the cap, bring every judge back that can come back, and run to the end."""
        self.tell(CapChanged(cap=None))
        for judge in [j for j, for_good in self.down.items() if not for_good]:
            del self.down[judge]
            self.tell(JudgeUp(judge=JudgeIx(judge)))
        for _ in range(ENDLESS):
            if not self._ask():
                if not self.open:
                    break
                self._end_oldest(lambda query: self._verdict(query, 5))
        assert self.propose() is FINISH, "the design does not end"
        assert self.propose() is FINISH, "FINISH is taken back"

    def _ask(self) -> bool:
        query = self.propose()
        if not isinstance(query, Query):
            return False
        q = QNo(sum(isinstance(event, Asked) for event in self.told))
        self.open[q] = query
        self.settled.add(_identity(query))
        self.tell(Asked(q=q, query=query, hold=Nano(1)))
        return True

    def _end_oldest(self, outcome_of: Any) -> None:
        if self.open:
            q = next(iter(self.open))
            query = self.open.pop(q)
            outcome: Outcome = outcome_of(query)
            self.tell(Record(q=q, query=query, outcome=outcome))

    def _verdict(self, query: Query, number: int) -> Judged:
        if query.kind is Kind.COMPARE:
            preference = list(Preference)[number % 3]
            said = [Observation(unit=query.units[0], preference=preference)]
        else:
            # One verdict in ten is "not applicable".
            value = float(number) if number else None
            said = [
                Observation(unit=unit, slot=slot, value=value)
                for slot, unit in enumerate(query.units)
            ]
        return Judged(observations=tuple(said), cost=Nano(1), usage=None)


def _identity(query: Query) -> tuple[object, ...]:
    """Tell what is asked, whatever it is asked for."""
    return (query.kind, query.role, query.judge, query.units, query.replicate, query.parent)


class PolicyContract:
    """What every policy keeps to.

    The studies drawn have `kind`, and `n_arms` arms if it is given. Their judges answer each
    question a few times at most, so a design that respects it ends.
    """

    kind = Kind.RATE
    n_arms: int | None = None

    def make_policy(self, study: Study) -> Policy:
        """Make a fresh policy."""
        raise AssertionError(f"a policy's test says here how to make one for {study.kind}")

    def _play(self, study: Study, script: Sequence[Step], **settings: Any) -> Play:
        play = Play(policy=self.make_policy(study), study=study, **settings)
        for move, number in script:
            play.step(move, number)
        return play

    @thorough
    @given(data=st.data(), script=steps)
    def test_any_order_of_events_is_survived(self, data: st.DataObject, script: list[Step]) -> None:
        """No question is asked twice unless it came back, and the design ends."""
        study = data.draw(small_studies(self.kind, self.n_arms))
        self._play(study, script).finish()

    @thorough
    @given(data=st.data(), script=steps)
    def test_asking_changes_nothing(self, data: st.DataObject, script: list[Step]) -> None:
        """A policy asked three times a turn goes the same way as one asked once."""
        study = data.draw(small_studies(self.kind, self.n_arms))
        once = self._play(study, script)
        often = self._play(study, script, n_asks=3)
        assert once.proposals == often.proposals
        assert once.told == often.told

    @thorough
    @given(data=st.data(), script=steps)
    def test_a_fresh_policy_told_the_same_goes_on_the_same(
        self, data: st.DataObject, script: list[Step]
    ) -> None:
        """Resuming never asks: the recorded events alone restore the policy, at any point."""
        study = data.draw(small_studies(self.kind, self.n_arms))
        play = self._play(study, script)
        play.finish()
        n_told, proposal = data.draw(st.sampled_from(play.proposals))
        policy = self.make_policy(study)
        for event in play.told[:n_told]:
            policy.tell(event)
        assert policy.ask(play.view()) == proposal

    @thorough
    @given(data=st.data(), script=steps)
    def test_one_seed_gives_one_design(self, data: st.DataObject, script: list[Step]) -> None:
        """Two policies of one study propose the same."""
        study = data.draw(small_studies(self.kind, self.n_arms))
        assert self._play(study, script).proposals == self._play(study, script).proposals

    @thorough
    @given(data=st.data(), script=steps, cap=st.integers(0, 100))
    def test_money_speaks_through_declined_alone(
        self, data: st.DataObject, script: list[Step], cap: int
    ) -> None:
        """What is proposed does not depend on how much money is free."""
        study = data.draw(small_studies(self.kind, self.n_arms))
        without_cap = self._play(study, script)
        assert self._play(study, script, cap=Nano(cap)).proposals == without_cap.proposals

    @thorough
    @given(data=st.data())
    def test_no_money_ends_the_design(self, data: st.DataObject) -> None:
        """A policy whose proposals are all declined gives up, after 16 in a row at the latest."""
        study = data.draw(small_studies(self.kind, self.n_arms))
        play = self._play(study, [(Move.DECLINE, 0)] * 17)
        assert play.propose() is FINISH
        play.finish()
