import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.core.errors import Overdraft, UnknownHold
from orchestrator.core.query import Kind, Purpose, Query, Role
from orchestrator.engine.ledger import Ledger


def query(judge=0, **kwargs):
    return Query(kind=Kind.RATE, judge=judge, units=(0,), **kwargs)


def test_a_hold_is_taken_on_all_accounts_or_on_none():
    ledger = Ledger(100, ["a", "b"], [30, None], {})
    assert ledger.lacking((query(0), 40)) == "judge:a"
    assert ledger.lacking((query(1), 101)) == "campaign"
    with pytest.raises(Overdraft, match="judge:a"):
        ledger.hold(0, query(0), 40)
    assert ledger.campaign.held == 0
    ledger.hold(0, query(1), 60)
    assert ledger.lacking((query(0), 30)) is None
    assert (ledger.campaign.held, ledger.judges[1].held, ledger.judges[0].held) == (60, 60, 0)


def test_role_and_purpose_are_accounts_too():
    ledger = Ledger(100, ["a"], [None], {"judge": 10})
    assert ledger.lacking((query(), 11)) == "role:judge"
    ledger.hold(0, query(purpose=Purpose.PILOT), 10)
    ledger.settle(0, cost=4, uncertain=0)
    assert ledger.roles[Role.JUDGE].settled == ledger.purposes[Purpose.PILOT].settled == 4


def test_settling_replaces_the_hold_and_names_the_excess():
    ledger = Ledger(100, ["a"], [None], {})
    ledger.hold(0, query(), 50)
    assert ledger.settle(0, cost=20, uncertain=10) == 0
    assert (ledger.campaign.settled, ledger.campaign.uncertain, ledger.campaign.held) == (20, 10, 0)
    ledger.hold(1, query(), 50)
    assert ledger.settle(1, cost=90, uncertain=0) == 40
    assert ledger.campaign.overrun == 20


def test_a_question_without_a_hold_can_not_be_settled():
    ledger = Ledger(None, ["a"], [None], {})
    with pytest.raises(UnknownHold):
        ledger.settle(3, cost=0, uncertain=0)
    ledger.hold(3, query(), 10**18)
    with pytest.raises(Overdraft, match="twice"):
        ledger.hold(3, query(), 1)
    ledger.forfeit(3)
    assert ledger.campaign.uncertain == 10**18


def test_room_for_another_hold_counts_what_its_predecessor_cost():
    ledger = Ledger(100, ["a"], [None], {})
    ledger.hold(0, query(), 50)
    assert ledger.has_room_instead(0, 40, 60)
    assert not ledger.has_room_instead(0, 41, 60)


@given(st.lists(st.tuples(st.integers(0, 50), st.integers(0, 50), st.booleans()), max_size=40))
def test_no_sequence_of_holds_and_bills_passes_the_cap(steps):
    """Bills within their holds never bring an account above its cap."""
    ledger = Ledger(200, ["a", "b"], [None, 90], {})
    held = {}
    for q, (hold, bill, settles) in enumerate(steps):
        question = query(q % 2)
        if ledger.lacking((question, hold)) is None:
            ledger.hold(q, question, hold)
            held[q] = hold
        if settles and held:
            first = next(iter(held))
            amount = held.pop(first)
            ledger.settle(first, cost=min(bill, amount), uncertain=amount - min(bill, amount))
        assert ledger.campaign.committed <= 200
        assert ledger.judges[1].committed <= 90
        assert ledger.campaign.held == sum(held.values())
