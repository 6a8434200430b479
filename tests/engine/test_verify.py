"""Tampering with a log is found and named, also when it was signed again."""

from __future__ import annotations

import json
from itertools import pairwise

import pytest

from orchestrator.core.errors import BadCredentials, CorruptLog, RateLimited, TimedOut
from orchestrator.core.events import CapChanged, PriceChanged, Reopened
from orchestrator.core.money import PriceCard
from orchestrator.core.stopping import StopRule
from orchestrator.core.wire import Finish
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


def test_outcomes_that_were_told_out_of_turn_are_named(run):
    """Telling is a decision: in order of asking, and no retry that was due is left out."""
    rows = [(line.kind, json.loads(line.body)) for line in run.store.lines]
    told = [index for index, (kind, _) in enumerate(rows) if kind == "Told"]
    # Two that were told in one turn: what was told second had arrived before the first.
    i, j = next(
        (i, j) for i, j in pairwise(told) if not any(kind == "Arrived" for kind, _ in rows[i:j])
    )
    rows[i], rows[j] = rows[j], rows[i]
    found = differences(run, resigned(rows))
    assert any("out of turn" in what for what in found), found


@pytest.mark.parametrize("change", [set_score, set_cost])
def test_an_answer_after_the_stop_is_read_and_priced_again(change):
    """Late answers count in no estimate, but their money does."""
    stop = StopRule(every=5, target_half_width=1.0)
    late = run_virtually(
        fake_crew([FakeAdapter(lambda _: Script(latency_s=1))], cap=10**12, stop=stop)
    )
    assert differences(late, late.store) == []
    assert differences(late, changed(late, first(late, "Late"), change))


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


def test_a_reply_that_is_gone_is_named_and_the_rest_is_still_checked(run):
    store = changed(run, first(run, "Arrived"), set_cost)
    found = [d.what for d in verify(State(run.state.crew), store.read(), MemoryArchive().recall)]
    assert any("usage times price" in what for what in found)
    assert any("its reply is gone" in what for what in found)


def eventful():
    """A run with retries, a parked judge, a crash, a new price, a stop and a reopening."""

    def moody(request):
        unit, is_first = request.query.units[0], request.attempt.number == 1
        if unit == 2 and is_first:
            return Script(latency_s=1, error=TimedOut())
        if unit == 3:
            return Script(latency_s=1, finish=Finish.LENGTH)
        if unit == 4 and is_first:
            return Script(error=RateLimited(retry_after_s=1))
        return Script(latency_s=1 + unit % 3)

    def revoked(request):
        error = BadCredentials() if request.query.units[0] == 5 else None
        return Script(latency_s=2, error=error)

    stop = StopRule(every=5, target_half_width=0.01)
    crew = fake_crew(
        [FakeAdapter(moody), FakeAdapter(revoked)],
        n_units=30,
        cap=300_000_000,
        window=12,
        stop=stop,
        max_uncertain=10**9,
    )
    run = run_virtually(crew, interrupt_at_s=3.0)
    dearer = PriceChanged(judge=0, card=PriceCard(output=1100))
    crashed = MemoryStore(run.store.lines[:-3])
    run = run_virtually(crew, crashed, run.archive, first=[dearer])
    spent = run.state.ledger.campaign
    more = [
        Reopened(settled=spent.settled, uncertain=spent.uncertain),
        CapChanged(cap=700_000_000),
    ]
    return run_virtually(crew, run.store, run.archive, first=more)


UNVERIFIABLE = {
    "Opened": None,  # compared with the campaign file by the command
    "CapChanged": None,  # the user's word
    "PriceChanged": None,  # the price sheet's word, of classes that nothing was billed in
    "Sent": None,  # no prompts are kept here
    "Freed": {"attempt", "error"},
    "Arrived": {"took_s", "outcome.served_model", "outcome.detail", "outcome.attempts"},
    "JudgeDown": {"until", "why"},
}
"""Facts of time and words of others, which nothing in the log could contradict."""


def leaves(value, path=()):
    match value:
        case dict():
            for key, child in value.items():
                yield from leaves(child, (*path, key))
        case list():
            for index, child in enumerate(value):
                yield from leaves(child, (*path, index))
        case _:
            yield path, value


def forged(value):
    match value:
        case bool():
            return not value
        case int() | float():
            return value + 1
        case None:
            return 1
        case "finished":
            return "budget"
        case _:
            return f"{value}x"


def test_every_field_that_could_be_contradicted_is():
    """One field of one row changed, all hashes written anew: still found."""
    run = eventful()
    assert differences(run, run.store) == []
    rows = [(line.kind, json.loads(line.body)) for line in run.store.lines]
    done, missed = set(), []
    for index, (kind, body) in enumerate(rows):
        for path, value in leaves(body):
            name = ".".join(part for part in path if isinstance(part, str))
            free = UNVERIFIABLE.get(kind, set())
            if free is None or name in free or (kind, name) in done:
                continue
            done.add((kind, name))
            other = json.loads(json.dumps(body))
            at = other
            for part in path[:-1]:
                at = at[part]
            at[path[-1]] = forged(value)
            try:
                store = resigned([*rows[:index], (kind, other), *rows[index + 1 :]])
            except ValueError:
                continue  # no such event: it can't even be read
            if not differences(run, store):
                missed.append((kind, name))
    assert missed == []
    assert {"Asked", "Told", "Reasked", "Parked", "JudgeDown", "Looked"} <= {k for k, _ in done}
