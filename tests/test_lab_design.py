"""`sortition lab design`: prints batches as a campaign asks them, and holds them to their promise."""

import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.core.seeds import Seeds
from orchestrator.experiments import order_design
from orchestrator.experiments.order_design import Wanted, laid_out, verified
from policies.layouts.balance import verify
from policies.layouts.design import Design, design


@pytest.fixture
def lab(sortition):
    """Run the command; give code, output and, with --json, the document."""

    def run(line=""):
        code, out, err = sortition("lab", "design", *line.split())
        return code, json.loads(out) if "--json" in line else out, err

    return run


@pytest.mark.parametrize(("n_items", "times", "length"), [(6, 1, 6), (5, 2, 10), (2, 1, 2)])
def test_a_williams_block_is_even(n_items, times, length, lab):
    code, found, _ = lab(f"--items {n_items} --json")
    assert code == 0
    assert (found["balanced"], found["block_length"]) == (True, length)
    (judge,) = found["judges"]
    assert np.unique(judge["at_slot"]).tolist() == [times]
    followed = np.array(judge["followed"])
    assert np.unique(followed[~np.eye(n_items, dtype=bool)]).tolist() == [times]
    assert np.trace(followed) == 0


def test_it_is_what_a_campaign_of_that_seed_asks(lab):
    _, found, _ = lab("--items 6 --batches 20 --seed 3 --judges 2 --groups 3,3 --json")
    for j, judge in enumerate(found["judges"]):
        plan = design(
            "williams",
            20,
            n_items=6,
            size=6,
            seeds=Seeds(3),
            judge=j,
            groups=np.repeat([0, 1], 3),
        )
        assert [batch["items"] for batch in judge["batches"]] == plan.rows.tolist()
        blocks = [batch["block"] for batch in judge["batches"]]
        assert blocks == [*np.repeat([0, 1, 2], 6).tolist(), None, None]
        assert judge["remainder"] == 2
    first, second = found["judges"]
    assert first["batches"] != second["batches"]


def test_people_see_slots_blocks_and_counts(lab):
    code, out, _ = lab("--items 5 --batches 12")
    assert code == 0
    lines = out.splitlines()
    assert lines[0].split()[:3] == ["judge", "1", "block"]
    items = [line.split()[3:] for line in lines[1:13]]
    assert all(sorted(row) == list("12345") for row in items)
    assert [line.split()[2] for line in lines[1:13]] == ["1"] * 10 + ["remainder"] * 2
    assert "12 batches in blocks of 10; remainder 2" in out
    assert "an item in a slot 2 times" in out
    assert lines[-1] == "balanced"


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ("--design fixed --items 4 --blocks 4", "slots and neighbours are uneven"),
        ("--items 6 --batches 5", "there is no whole block of 6 batches"),
        ("--items 8 --batch-size 4", "no chain of shared batches connects all items"),
    ],
)
def test_what_is_uneven_ends_with_1_and_says_why(line, says, lab):
    code, out, _ = lab(line)
    assert code == 1
    assert f"not balanced: {says}" in out
    code, found, _ = lab(f"{line} --json")
    assert (code, found["balanced"]) == (1, False)
    assert says in found["judges"][0]["problems"]


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ("--items 6 --groups 3,4", "7 items in groups"),
        ("--items 6 --groups three", "--groups three"),
        ("--items 6 --groups 6,0", "--groups 6,0"),
        ("--items 6 --batch-size 7", "--batch-size"),
        ("--items 6 --batch-size 1", "--batch-size"),
    ],
)
def test_sizes_that_do_not_fit_are_refused(line, says, lab):
    code, out, err = lab(line)
    assert code == 2
    assert says in err
    assert not out


@given(
    layout=st.sampled_from(["shuffle", "williams"]),
    n_items=st.integers(2, 9),
    size=st.integers(2, 9),
    n_first=st.integers(1, 8),
    seed=st.integers(0, 5),
)
def test_what_the_layouts_make_keeps_its_promise(layout, n_items, size, n_first, seed):
    """All whole rounds of subsets, with groups: only a chain can be missing in a short one."""
    size = min(size, n_items)
    groups = (n_first, n_items - n_first) if n_first < n_items else ()
    wanted = Wanted(layout=layout, n_items=n_items, batch_size=size, groups=groups, seed=seed)
    found = verified(wanted, laid_out(wanted, 0))
    missing = "no chain of shared batches connects all items"
    assert [problem for problem in found.problems if problem != missing] == []
    assert (missing in found.problems) == (not found.is_connected)


def broken(wanted, rows):
    return verified(wanted, Design(rows=np.array(rows), block=np.zeros(len(rows), dtype=np.int64)))


def test_a_broken_design_would_be_found():
    """The control: each promise, broken by hand, is named."""
    block = laid_out(Wanted(n_items=4), 0).rows
    assert not broken(Wanted(n_items=4), block).problems
    cyclic = [[0, 1, 2, 3], [1, 2, 3, 0], [2, 3, 0, 1], [3, 0, 1, 2]]
    assert verify(np.array(cyclic)).per_slot == (1, 1)
    assert "uneven in blocks 1" in broken(Wanted(n_items=4), cyclic).problems[0]
    shuffle = Wanted(layout="shuffle", n_items=4, batch_size=2)
    pairs = [[0, 1], [1, 2], [2, 3]]
    assert broken(shuffle, pairs).problems == ("items are not shown equally often",)
    twice = Wanted(layout="shuffle", n_items=2)
    assert "an item comes twice in a batch" in broken(twice, [[0, 0], [1, 1]]).problems
    grouped = Wanted(layout="shuffle", n_items=4, batch_size=2, groups=(2, 2))
    lopsided = broken(grouped, [[0, 1], [2, 3], [1, 2], [3, 0]])
    assert lopsided.problems == (
        "group 1 has 0 to 2 seats of a batch, not 1",
        "group 2 has 0 to 2 seats of a batch, not 1",
    )
    crowded = Wanted(layout="shuffle", n_items=20, batch_size=8, groups=(4,) * 5)
    crowd = broken(crowded, [[0, 1, 2, 3, 4, 8, 12, 16]]).problems
    assert "group 1 has 4 to 4 seats of a batch, not 1.6" in crowd
    assert not any(problem.startswith("group 2") for problem in crowd)
    apart = broken(Wanted(n_items=4, batch_size=2), [[0, 1], [2, 3]])
    assert "slots or neighbours are uneven in blocks 1" in apart.problems
    assert order_design.as_json(grouped, [lopsided])["balanced"] is False
