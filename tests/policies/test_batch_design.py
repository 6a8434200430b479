"""Policy batch_design: which batches a judge is asked for, and when there are no more."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from orchestrator.core.events import CapChanged, Declined
from orchestrator.core.money import Nano
from orchestrator.core.ports import FINISH
from orchestrator.core.query import Kind, MissingReason
from orchestrator.testing.policies import Move, Play, PolicyContract, small_study
from policies.batch_design import PLUGIN, BatchDesign, BatchDesignConfig, length_of_block
from policies.layouts.balance import verify

LOST = list(MissingReason).index(MissingReason.EMPTY)


class TestBatchDesignKeepsThePolicyContract(PolicyContract):
    kind = Kind.RATE_BATCH

    def make_policy(self, study):
        return PLUGIN.build(BatchDesignConfig(design="shuffle", blocks=3), study)


def study(*, n_items=4, n_arms=1, n_judges=1, cap=None, seed=0):
    """A study of batches whose judges cost 10 nano-USD a batch."""
    made = small_study(
        kind=Kind.RATE_BATCH, n_items=n_items, n_arms=n_arms, repeats=[None] * n_judges, seed=seed
    )
    panel = tuple(replace(judge, planning=10, worst=10) for judge in made.panel)
    return replace(made, panel=panel, cap=cap)


def play(study, **config):
    return Play(
        policy=BatchDesign(BatchDesignConfig(**({"design": "williams"} | config)), study),
        study=study,
    )


def asked(run, n):
    """Ask and answer so many questions."""
    found = []
    for _ in range(n):
        found.append(run.propose())
        run.step(Move.ASK, 0)
        run.step(Move.ANSWER, 5)
    return found


def rows(queries):
    return np.array([query.units for query in queries])


def test_a_planned_number_ends_whatever_the_cap_becomes():
    """45 nano-USD pay for four batches of 10, a block of four units."""
    run = play(study(cap=Nano(45)), blocks="auto")
    asked(run, 4)
    run.tell(CapChanged(cap=Nano(10**6)))
    assert run.propose() is FINISH


@settings(deadline=None, max_examples=25)
@given(
    n_items=st.integers(2, 7),
    n_judges=st.integers(1, 2),
    design=st.sampled_from(["williams", "shuffle", "fixed"]),
    seed=st.integers(0, 99),
)
def test_intervals_that_hold_anytime_go_on_in_the_blocks_of_a_longer_plan(
    n_items, n_judges, design, seed
):
    """The batches are those of a plan of as many blocks; only money ends them."""
    about = study(n_items=n_items, n_judges=n_judges, cap=Nano(10_000), seed=seed)
    open_end = play(about, design=design, blocks="auto", check="anytime")
    length = length_of_block(BatchDesignConfig(design=design), about.frame)
    n = 5 * length * n_judges
    planned = play(about, design=design, blocks=5)
    assert asked(open_end, n) == asked(planned, n)
    assert planned.propose() is FINISH
    (more,) = asked(open_end, 1)
    open_end.tell(Declined(query=more, hold=Nano(10), account="campaign"))
    assert open_end.propose() is FINISH
    open_end.tell(CapChanged(cap=Nano(10**6)))
    assert len(asked(open_end, n)) == n


def test_any_number_of_whole_blocks_is_balanced():
    run = play(study(n_items=6, cap=Nano(1000)), blocks="auto", check="anytime")
    for n_blocks in range(1, 12):
        asked(run, 6)
        told = [event.query for event in run.told if hasattr(event, "hold")]
        balance = verify(rows(told), 6)
        assert balance.is_even
        assert balance.per_slot == (n_blocks, n_blocks)


@pytest.mark.parametrize("check", ["end", "anytime"])
def test_a_lost_batch_comes_once_more_under_a_number_of_its_own(check):
    """It comes in its order; a second loss is final."""
    run = play(study(cap=Nano(10**4)), blocks="auto", check=check)
    lost = []
    for _ in range(5):
        first = run.propose()
        run.step(Move.ASK, 0)
        run.step(Move.MISS, LOST)
        again = run.propose()
        run.step(Move.ASK, 0)
        run.step(Move.MISS, LOST)
        assert again.units == first.units
        lost += [first.replicate, again.replicate]
    assert len(set(lost)) == 10
    assert run.policy.explain()["asked_again"] == {"judge0": 5}
    later = {query.replicate for query in asked(run, 100)}
    assert not later & set(lost)


def test_a_plan_of_many_blocks_is_laid_out_as_it_is_asked():
    """A number that no money pays for takes no memory and no time at the start."""
    run = play(study(n_items=6), design="shuffle", batch_size=2, blocks=10**9)
    assert len({query.replicate for query in asked(run, 40)}) == 40


def test_a_plan_ends_in_its_remainder():
    """115 nano-USD pay for eleven batches: two blocks of four, and three in random order."""
    run = play(study(cap=Nano(115)), blocks="auto")
    notes = [query.note for query in asked(run, 11)]
    assert notes == ["block 0"] * 4 + ["block 1"] * 4 + ["remainder"] * 3
    assert run.propose() is FINISH
    assert run.policy.explain()["remainder"] == 3


def test_what_it_says_of_itself_names_its_end():
    says = {
        check: play(study(cap=Nano(85)), blocks="auto", check=check).policy.explain()
        for check in ("end", "anytime")
    }
    assert says["end"]["says"] == ["each judge is asked for 8 batches, in blocks of 4"]
    assert says["end"]["to_come"] == {"judge0": 8}
    assert says["anytime"]["says"] == ["each judge is asked until the money ends, in blocks of 4"]
    assert says["anytime"]["batches"] is None
    assert says["anytime"]["to_come"] == {}


def test_a_study_of_single_units_is_refused():
    with pytest.raises(ValueError, match=r"^policy\.kind: batch_design asks rate_batch"):
        play(small_study())
