"""Tampering with a log is found and named, also when it was signed again."""

from __future__ import annotations

import json

import pytest

from orchestrator.core.errors import CorruptLog
from orchestrator.engine.fold import State
from orchestrator.engine.verify import verify
from orchestrator.store.codec import decode
from orchestrator.store.log import Chain
from orchestrator.store.memory import MemoryStore
from orchestrator.testing.fakes import FakeAdapter, MemoryArchive, Script, fake_crew
from orchestrator.testing.virtual import run_virtually


@pytest.fixture(scope="module")
def run():
    return run_virtually(fake_crew([FakeAdapter(lambda _: Script())]))


def first(run, kind, n=0):
    return [i for i, line in enumerate(run.store.lines) if line.kind == kind][n]


def changed(run, index, change):
    """Change one row's body and write the log's hashes anew, as a careful forger would."""
    bodies = [json.loads(line.body) for line in run.store.lines]
    change(bodies[index])
    return resigned((line.kind, body) for line, body in zip(run.store.lines, bodies, strict=True))


def resigned(rows):
    events = [decode(kind, 1, json.dumps(body)) for kind, body in rows]
    return MemoryStore(Chain(lambda: 0.0).extend(events))


def differences(run, store):
    return [d.what for d in verify(State(run.state.crew), store.read(), run.archive.recall)]


def test_an_honest_log_has_no_difference(run):
    assert differences(run, run.store) == []


def set_score(body):
    body["outcome"]["observations"][0]["value"] += 1


def set_cost(body):
    body["outcome"]["cost"] -= 1


def set_usage(body):
    body["outcome"]["usage"]["output_tok"] -= 1
    body["outcome"]["cost"] -= 1


def set_unit(body):
    body["query"]["units"] = [99]


def set_hold(body):
    body["hold"] -= 1


def set_width(body):
    body["half_widths"] = [0.001]


def set_reason(body):
    body["reason"] = "finished"


@pytest.mark.parametrize(
    ("kind", "change", "word"),
    [
        ("Arrived", set_score, "the reply reads"),
        ("Arrived", set_cost, "usage times price"),
        ("Arrived", set_usage, "usage is not the one"),
        ("Asked", set_unit, "the policy proposes"),
        ("Asked", set_hold, "the ceiling is"),
        ("Declined", set_hold, "was declined"),
        ("Looked", set_width, "the estimates are not"),
        ("Stopped", set_reason, "the run stopped with"),
    ],
)
def test_a_forged_row_is_named_even_when_all_hashes_fit(run, kind, change, word):
    found = differences(run, changed(run, first(run, kind), change))
    assert any(word in what for what in found), found


def test_two_exchanged_rows_are_named(run):
    rows = [(line.kind, json.loads(line.body)) for line in run.store.lines]
    i, j = first(run, "Asked", 3), first(run, "Asked", 4)
    rows[i], rows[j] = rows[j], rows[i]
    assert differences(run, resigned(rows))


def test_rows_that_can_not_follow_end_the_check_with_a_word(run):
    rows = [(line.kind, json.loads(line.body)) for line in run.store.lines]
    del rows[first(run, "Asked", 2)]
    assert "can't follow" in differences(run, resigned(rows))[-1]


def test_without_new_hashes_any_change_is_found_by_the_store(run):
    lines = list(run.store.lines)
    index = first(run, "Arrived")
    lines[index] = lines[index]._replace(body=lines[index].body.replace('"cost":5', '"cost":4'))
    with pytest.raises(CorruptLog, match=f"row {index + 1}"):
        MemoryStore(lines)


def test_without_kept_replies_the_rest_is_still_checked(run):
    store = changed(run, first(run, "Arrived"), set_cost)
    found = [d.what for d in verify(State(run.state.crew), store.read(), MemoryArchive().recall)]
    assert any("usage times price" in what for what in found)
