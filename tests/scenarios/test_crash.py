"""A crash at any place of the log resumes to the same questions and the same numbers."""

from __future__ import annotations

import numpy as np
import pytest

from orchestrator.core.events import (
    Arrived,
    Asked,
    Forfeited,
    Late,
    PriceChanged,
    Reasked,
    Sent,
    Stopped,
    Told,
    Withdrawn,
)
from orchestrator.core.money import PriceCard
from orchestrator.core.query import Missing, MissingReason
from orchestrator.core.stopping import StopReason, StopRule
from orchestrator.engine.scheduler import Operation
from orchestrator.store.memory import MemoryStore
from orchestrator.testing.fakes import FakeAdapter, Script, fake_crew
from orchestrator.testing.virtual import run_virtually

PLENTY = 10**12


def crew_of(seed, **kwargs):
    rng = np.random.default_rng(seed)
    judges = [FakeAdapter(lambda _: Script(latency_s=float(rng.exponential(1.0)))) for _ in "ab"]
    return fake_crew(judges, n_units=30, **{"cap": PLENTY, "window": 12, **kwargs})


def questions(events):
    return [e.query for e in events if isinstance(e, Asked)]


def lost(events):
    """Attempts that the log holds as sent, and of which it holds nothing more."""
    waiting = {}
    for event in events:
        match event:
            case Sent(q=q):
                waiting[q] = event
            case Arrived(q=q) | Reasked(q=q):
                waiting.pop(q, None)
            case _:
                pass
    return waiting


def test_a_crash_at_every_log_position_resumes_to_the_same_run():
    """C18: same questions in the same order, estimates equal to the bit; only sent attempts that
    brought nothing are charged as uncertain."""
    whole = run_virtually(crew_of(0))
    assert len(questions(whole.events)) == 60
    final = whole.state.last_look
    for cut in range(len(whole.store.lines)):
        kept = MemoryStore(whole.store.lines[:cut], whole.store.blobs)
        gone = lost([row.event for row in kept.read()])
        again = run_virtually(crew_of(cut + 1), kept)
        assert questions(again.events) == questions(whole.events), cut
        told = [e.q for e in again.events if isinstance(e, Told)]
        assert sorted(told) == list(range(60))
        assert again.state.last_look.estimates == final.estimates, cut
        assert again.state.stopped is StopReason.FINISHED
        stopped_before = any(isinstance(row.event, Stopped) for row in kept.read())
        if not stopped_before:
            assert again.state.ledger.campaign.uncertain == 22_000_000 * len(gone), cut
            assert again.state.ledger.campaign.settled == whole.state.ledger.campaign.settled


def test_a_second_crash_during_the_mending_is_mended_too():
    """Mended questions that crash again are charged again, and asked again."""
    whole = run_virtually(crew_of(0))
    first_cut = next(i for i, e in enumerate(whole.events) if isinstance(e, Sent)) + 5
    again = run_virtually(crew_of(1), MemoryStore(whole.store.lines[:first_cut]))
    for cut in range(first_cut, len(again.store.lines), 7):
        third = run_virtually(crew_of(2), MemoryStore(again.store.lines[:cut]))
        assert questions(third.events) == questions(whole.events)
        assert third.state.last_look.estimates == whole.state.last_look.estimates


def test_a_lost_question_without_money_for_a_retry_is_missing():
    """The lost attempt stays charged; when no second hold fits, the question is missing."""
    crew = fake_crew([FakeAdapter(lambda _: Script(latency_s=1.0))], cap=40_000_000)
    whole = run_virtually(crew)
    cut = next(i for i, e in enumerate(whole.events) if isinstance(e, Sent)) + 1
    again = run_virtually(crew, MemoryStore(whole.store.lines[:cut]))
    (first,) = [e for e in again.events if isinstance(e, Arrived) and e.q == 0]
    assert isinstance(first.outcome, Missing)
    assert first.outcome.reason is MissingReason.NO_MONEY_FOR_RETRY
    assert first.outcome.uncertain == 22_000_000
    assert again.state.ledger.campaign.uncertain == 22_000_000


def test_a_crash_after_the_stop_forfeits_what_was_sent_and_withdraws_the_rest():
    """After a stop nothing is asked again, whenever the process dies."""
    stop = StopRule(every=5, target_half_width=1.0)
    whole = run_virtually(crew_of(3, stop=stop, concurrency=4))
    assert whole.state.stopped is StopReason.PRECISION
    at = next(i for i, e in enumerate(whole.events) if isinstance(e, Stopped))
    spent = whole.state.ledger.campaign.settled
    for cut in range(at + 1, len(whole.store.lines) + 1):
        again = run_virtually(
            crew_of(4, stop=stop, concurrency=4), MemoryStore(whole.store.lines[:cut])
        )
        assert again.state.is_drained
        assert questions(again.events) == questions(whole.events)
        assert len([e for e in again.events if isinstance(e, Stopped)]) == 1
        assert again.state.ledger.campaign.held == 0
        forfeited = [e for e in again.events if isinstance(e, Forfeited)]
        assert again.state.ledger.campaign.uncertain == 22_000_000 * len(forfeited)
        assert again.state.ledger.campaign.settled == spent - 5_000_000 * len(forfeited)
        # Which way a question is closed depends on timing; that each is, does not.
        closed = [e.q for e in again.events if isinstance(e, Withdrawn | Late | Forfeited)]
        told = [e.q for e in again.events if isinstance(e, Told)]
        assert closed
        assert sorted(closed + told) == list(range(again.state.n_asked))


def test_an_interrupt_and_a_resume_equal_an_unbroken_run():
    """C47: the first signal drains; nothing is charged twice, and the fingerprint is the same."""
    whole = run_virtually(crew_of(0))
    for at_s in (0.0, 0.5, 1.7, 3.0):
        half = run_virtually(crew_of(1), interrupt_at_s=at_s)
        assert half.state.stopped is None
        assert not any(at.sent for at in half.state.open.values())
        again = run_virtually(crew_of(2), half.store)
        assert again.state.ledger.campaign.uncertain == 0
        assert again.fingerprint == whole.fingerprint


def test_a_grace_that_ends_leaves_calls_held_and_charges_them_on_resume():
    """C47: calls that outlast the grace stay held in the log and are uncertain after a resume."""
    crew = fake_crew([FakeAdapter(lambda _: Script(latency_s=100.0))], n_units=3, cap=PLENTY)
    half = run_virtually(
        crew, interrupt_at_s=1.0, operation=Operation(max_in_flight=8, grace_s=5.0)
    )
    assert half.took_s == pytest.approx(6.0)
    assert half.state.ledger.campaign.held == 3 * 22_000_000
    again = run_virtually(crew, half.store)
    assert again.state.ledger.campaign.uncertain == 22_000_000
    assert again.state.n_answered == 3


def test_a_changed_price_takes_unsent_questions_back_and_asks_them_at_the_new_one():
    """C19g: what was paid stays; what was only asked is asked again at its new worst case."""
    half = run_virtually(crew_of(0, concurrency=2), interrupt_at_s=2.0)
    before = half.state.ledger.campaign.settled
    unsent = [at.query for at in half.state.open.values() if not at.is_due and at.query.judge == 0]
    assert unsent
    dearer = PriceCard(output=2000)
    again = run_virtually(
        crew_of(1, concurrency=2), half.store, first=[PriceChanged(judge=0, card=dearer)]
    )
    asked = [e for e in again.events if isinstance(e, Asked) and e.query.judge == 0]
    assert {e.hold for e in asked} == {22_000_000, 44_000_000}
    told_after = sum(e.hold == 44_000_000 for e in asked)
    told_by_other = 30
    assert again.state.n_answered == 60
    n_before = before // 5_000_000
    assert again.state.ledger.campaign.settled == 5_000_000 * (
        n_before + (60 - n_before - told_after) + 2 * told_after
    )
    assert again.state.judges[1].answered == told_by_other
