"""A policy that breaks its contract is named; nothing of it reaches the ledger."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from orchestrator.core.errors import OrchestratorError
from orchestrator.core.query import Kind, Query, Role
from orchestrator.engine.decide import Ask, decide
from orchestrator.engine.fold import State
from orchestrator.testing.fakes import FakeAdapter, InTurnPolicy, Script, fake_crew

GOOD = Query(kind=Kind.RATE, judge=0, units=(3,))


def deciding(proposal, n_units=5):
    """Decide with a policy that proposes always the same."""

    class Stubborn(InTurnPolicy):
        def ask(self, view):
            return proposal

    crew = fake_crew([FakeAdapter(lambda _: Script())])
    return decide(State(replace(crew, new_policy=lambda _: Stubborn(5), n_units=n_units)))


@pytest.mark.parametrize(
    ("proposal", "word"),
    [
        (None, "no question, PAUSE or FINISH"),
        ("finish", "no question, PAUSE or FINISH"),
        (replace(GOOD, judge=-1), "judges are 0 to 0"),
        (replace(GOOD, judge=1), "judges are 0 to 0"),
        (replace(GOOD, judge=np.int64(0)), "judges are 0 to 0"),
        (replace(GOOD, role=Role.SYSTEM), "no systems to ask"),
        (replace(GOOD, units=()), "no unit"),
        (replace(GOOD, units=(0, 5)), "units are whole numbers from 0 to 4"),
        (replace(GOOD, units=(-1,)), "units are whole numbers from 0 to 4"),
        (replace(GOOD, units=(1.5,)), "units are whole numbers from 0 to 4"),
    ],
)
def test_a_proposal_that_is_no_question_is_one_error_that_says_why(proposal, word):
    with pytest.raises(OrchestratorError, match="the policy proposes") as error:
        deciding(proposal)
    assert word in str(error.value)


def test_a_question_that_can_be_asked_is():
    assert isinstance(deciding(GOOD), Ask)
    assert isinstance(deciding(replace(GOOD, units=(7,)), n_units=None), Ask)
