"""Logs written by hand: every number in these tests follows from what stands in them."""

from __future__ import annotations

import json
import math

import pytest

from orchestrator.core.estimate import Estimate, Status
from orchestrator.core.events import (
    Arrived,
    Asked,
    Looked,
    Opened,
    Reasked,
    Sent,
    Started,
    Stopped,
    Told,
)
from orchestrator.core.gate import Gate, Rule
from orchestrator.core.ids import JudgeIx, QNo, Seq, UnitIx
from orchestrator.core.money import Nano, PriceCard
from orchestrator.core.ports import Row
from orchestrator.core.query import (
    Judged,
    Kind,
    Missing,
    MissingReason,
    Observation,
    Purpose,
    Query,
    Role,
    outcome_digest,
)
from orchestrator.core.wire import Attempt

FRAME = "f" * 32


class Log:
    """Rows of one run, and the blob of its frame."""

    def __init__(self):
        self.rows = []
        self.blobs = {}
        self.now = 1_000_000.0
        self.n_told = 0

    def get_blob(self, digest):
        return self.blobs.get(digest)

    def add(self, *events, after=1.0):
        for event in events:
            self.now += after if self.rows else 0
            self.rows.append(Row(Seq(len(self.rows) + 1), self.now, event, 1))
        return self

    def opened(
        self,
        *,
        cap=100_000_000,
        judges=("large", "small"),
        arms=("",),
        items=("a", "b", "c", "d"),
        criteria=({"name": "score", "type": "integer", "low": 1, "high": 5},),
        judge_caps=None,
        role_caps=None,
        groups=None,
        **identity,
    ):
        document = {
            "name": "summaries",
            "mock": False,
            "money": "simulated",
            "kind": "rate",
            "seed": 7,
            "criteria": list(criteria),
            "judges": [{"name": n, "adapter": "recorded", "model": f"{n}-1"} for n in judges],
            "arms": list(arms),
            "rubric": "r" * 32,
            "data": {"digest": "d" * 32, "n_items": len(items), "frame": FRAME},
            "policy": {"kind": "uniform"},
            "estimate": [{"name": "scores", "kind": "score_means"}],
            "stop": {},
        } | identity
        frame = {"items": list(items), "arms": list(arms), "cluster": None, "stratum": None}
        frame |= {} if groups is None else {"group": list(groups)}
        self.blobs[FRAME] = json.dumps(frame).encode()
        n_asked = len(judges) + len(identity.get("systems", ()))
        return self.add(
            Opened(
                identity=document,
                digest="c" * 32,
                seed=7,
                cap=None if cap is None else Nano(cap),
                judge_caps=judge_caps or (None,) * n_asked,
                role_caps=role_caps or {},
                cards=(PriceCard(input=2_000_000, output=10_000_000),) * n_asked,
                max_requests=None,
                max_tok=None,
                max_uncertain=None,
                window=16,
                looks=25,
            ),
            Started(about={"versions": {"sortition": "0.1.0"}, "host": "box"}),
        )

    def ask(self, q, unit=0, judge=0, hold=22_000_000, **query):
        query = Query(kind=Kind.RATE, judge=JudgeIx(judge), units=(UnitIx(unit),), **query)
        return self.add(Asked(q=QNo(q), query=query, hold=Nano(hold)))

    def send(self, q, attempt=1):
        return self.add(Sent(q=QNo(q), attempt=attempt))

    def arrive(self, q, outcome, *, attempt=1, took_s=2.0, **waits):
        at = Attempt(number=attempt)
        return self.add(Arrived(q=QNo(q), attempt=at, outcome=outcome, took_s=took_s, **waits))

    def tell(self, q, outcome):
        self.n_told += 1
        return self.add(Told(q=QNo(q), digest=outcome_digest(outcome)))

    def reask(self, q, ended, *, attempt=2, hold=22_000_000):
        return self.add(
            Reasked(q=QNo(q), attempt=Attempt(number=attempt), hold=Nano(hold), ended=ended)
        )

    def judged(self, q, score, unit=0, judge=0, cost=5_000_000, hold=22_000_000, **answer):
        """Ask, send, receive and tell one answer."""
        outcome = scored(score, unit=unit, cost=cost, **answer)
        self.ask(q, unit, judge, hold).send(q).arrive(q, outcome)
        return self.tell(q, outcome)

    def generated(self, q, *, unit=0, system=2, cost=3_000_000, hold=22_000_000, **answer):
        """Ask a system for an answer to a unit; send, receive and tell it."""
        outcome = Judged(observations=(), cost=Nano(cost), usage=None, **answer)
        return self.asked_for(q, outcome, unit=unit, system=system, hold=hold)

    def asked_for(self, q, outcome, *, unit=0, system=2, hold=22_000_000):
        """Ask a system for an answer to a unit, with any outcome."""
        query = Query(
            kind=Kind.GENERATE,
            role=Role.SYSTEM,
            purpose=Purpose.GENERATE,
            judge=JudgeIx(system),
            units=(UnitIx(unit),),
        )
        self.add(Asked(q=QNo(q), query=query, hold=Nano(hold))).send(q).arrive(q, outcome)
        return self.tell(q, outcome)

    def both(self, q, scores, *, swapped=False, unit=0, judge=0):
        """Ask, send, receive and tell an answer on two criteria, listed in either order."""
        return self.many(q, scores, (1, 0) if swapped else (0, 1), unit=unit, judge=judge)

    def many(self, q, scores, slots, *, unit=0, judge=0):
        """Ask, send, receive and tell an answer on several criteria, each at its place."""
        said = tuple(
            Observation(unit=UnitIx(unit), criterion=c, slot=int(slot), value=score)
            for c, (slot, score) in enumerate(zip(slots, scores, strict=True))
        )
        outcome = Judged(observations=said, cost=Nano(0), usage=None)
        self.ask(q, unit, judge).send(q).arrive(q, outcome)
        return self.tell(q, outcome)

    def missed(self, q, reason, unit=0, judge=0, cost=0, uncertain=0, detail=""):
        """Ask, send and tell one missing verdict."""
        outcome = lost(reason, cost=cost, uncertain=uncertain, detail=detail)
        self.ask(q, unit, judge).send(q).arrive(q, outcome)
        return self.tell(q, outcome)

    def look(self, *estimates, settled=0, uncertain=0, is_final=False):
        return self.add(
            Looked(
                n_told=self.n_told,
                settled=Nano(settled),
                uncertain=Nano(uncertain),
                held=Nano(0),
                half_widths=tuple(
                    None if math.isnan(e.half_width) else e.half_width for e in estimates
                ),
                estimates=tuple(e.as_json() for e in estimates),
                is_final=is_final,
            )
        )

    def stop(self, reason):
        return self.add(Stopped(reason=reason))


def scored(score, *, unit=0, cost=5_000_000, criterion=0, **answer):
    observation = Observation(unit=UnitIx(unit), criterion=criterion, value=score)
    return Judged(observations=(observation,), cost=Nano(cost), usage=None, **answer)


def lost(reason, *, cost=0, uncertain=0, detail=""):
    return Missing(
        reason=MissingReason(reason),
        cost=Nano(cost),
        uncertain=Nano(uncertain),
        attempts=1,
        detail=detail,
    )


def estimate(**changes):
    values = {
        "name": "scores",
        "kind": "score_means",
        "target": "arms",
        "estimand": "items like these, as this panel judges them",
        "names": ("",),
        "value": (4.0,),
        "se": (0.3,),
        "lower": (3.4,),
        "upper": (4.6,),
        "level": 0.95,
        "interval": "t",
        "watching_covered": False,
        "alpha_split": "none",
        "family": "",
        "n_items": 4,
        "n_answers": 16,
        "status": Status.OK,
    } | changes
    return Estimate(**values)


def difference(value=0.42, lower=0.24, upper=0.60, **changes):
    return estimate(
        name="effect",
        target="difference",
        names=("new - old",),
        value=(value,),
        se=(0.09,),
        lower=(lower,),
        upper=(upper,),
        **changes,
    )


def gate(rule="superior", bar=0.0, **changes):
    """A gate as a run's identity holds it, on the estimate that `difference` makes."""
    values = {"estimate": "effect", "sources": ("effect",), "arms": ("new", "old")} | changes
    return Gate(rule=Rule(rule), bar=bar, **values).as_json()


@pytest.fixture
def log():
    """An empty log."""
    return Log()


@pytest.fixture
def make():
    """Outcomes and estimates, by name."""

    class Make:
        scored = staticmethod(scored)
        lost = staticmethod(lost)
        estimate = staticmethod(estimate)
        difference = staticmethod(difference)
        gate = staticmethod(gate)

    return Make
