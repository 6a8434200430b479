"""Tampering with a log is found and named, also when it was signed again."""

from __future__ import annotations

import json
from itertools import pairwise

import pytest

from orchestrator.core.errors import BadCredentials, CorruptLog, RateLimited, TimedOut
from orchestrator.core.events import Arrived, CapChanged, PriceChanged, Reopened
from orchestrator.core.money import PriceCard
from orchestrator.core.query import outcome_digest
from orchestrator.core.stopping import StopRule
from orchestrator.core.wire import Finish
from orchestrator.engine.fold import State
from orchestrator.engine.verify import Kept, verify
from orchestrator.store.codec import decode
from orchestrator.store.memory import MemoryStore
from orchestrator.testing.fakes import FakeAdapter, MemoryArchive, Script, fake_crew
from orchestrator.testing.forging import forgeries, rows_of, signed
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
    return MemoryStore(signed(list(rows)))


def differences(run, store):
    again = State(run.state.crew)
    found = verify(again, store.read(), run.archive.recall, kept=Kept(replies=True))
    return [d.what for d in found]


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


def told_anew(rows, index, change):
    """Change an outcome and the digest with which it was told."""
    kind, body = rows[index]
    change(body["outcome"])
    event = decode(kind, 1, json.dumps(body))
    for other, told in rows:
        if other == "Told" and told["q"] == event.q:
            told["digest"] = outcome_digest(event.outcome)


def test_an_answer_that_hides_its_reply_is_named(run):
    """A score raised, its digest told anew, the reply's name taken out."""

    def hide(outcome):
        outcome["observations"][0]["value"] += 1
        outcome["blob"] = ""

    rows = rows_of(run.store.lines)
    told_anew(rows, first(run, "Arrived"), hide)
    found = differences(run, resigned(rows))
    assert any("no reply is named" in what for what in found), found


@pytest.mark.parametrize(
    ("reason", "word"),
    [
        ("refused", "no reply is named"),
        ("truncated", "no reply is named"),
        ("parse_failure", "no reply is named"),
        ("empty", "no reply is named"),
        ("judge_down", "the log does not say so"),
        ("no_money_for_retry", "which comes to"),
    ],
)
def test_an_answer_that_was_made_missing_is_named(run, reason, word):
    """What lowers a mean can't be called a failure that cost nothing."""
    rows = rows_of(run.store.lines)
    index = first(run, "Arrived")
    rows[index][1]["outcome"] = {}

    def drop(outcome):
        outcome |= {"reason": reason, "cost": 0, "uncertain": 0, "attempts": 1}

    told_anew(rows, index, drop)
    found = differences(run, resigned(rows))
    assert any(word in what for what in found), found


def test_an_outcome_that_was_told_before_a_question_was_asked_is_named():
    """Else the policy would have known more when it asked than it did."""
    run = run_virtually(fake_crew([FakeAdapter(lambda _: Script())], cap=10**12, window=4))
    rows = rows_of(run.store.lines)
    kinds = [kind for kind, _ in rows]
    index = next(i for i in range(len(kinds)) if kinds[i : i + 3] == ["Told", "Asked", "Told"])
    rows[index + 1], rows[index + 2] = rows[index + 2], rows[index + 1]
    found = differences(run, resigned(rows))
    assert any("is heard of, where Ask" in what for what in found), found


@pytest.mark.parametrize(
    ("kind", "body"),
    [
        ("JudgeUp", {"judge": 0}),
        ("JudgeDown", {"judge": 0, "until": None, "why": "no reason"}),
        ("Reopened", {"settled": 0, "uncertain": 0}),
        ("CapChanged", {"cap": 10**12}),
        ("PriceChanged", {"judge": 0, "card": {"output": 1}}),
        ("Continued", {}),
        ("Late", {"q": 2, "outcome": None}),
        ("Forfeited", {"q": 0}),
        ("Reasked", {"q": 0, "attempt": {"number": 2}, "hold": 22_000_000, "ended": "lost"}),
    ],
)
def test_a_row_of_a_place_where_it_can_not_stand_is_named(run, kind, body):
    """What only a resume or a stop writes is found in the midst of a run."""
    rows = rows_of(run.store.lines)
    if kind == "Late":
        body = {"q": 0, "outcome": rows[first(run, "Arrived")][1]["outcome"]}
    at = first(run, "Sent") + 1
    assert differences(run, resigned([*rows[:at], (kind, body), *rows[at:]]))


def test_a_judge_that_was_up_does_not_come_up():
    """Not even where a process takes the run up."""
    run = eventful()
    rows = rows_of(run.store.lines)
    at = first(run, "Started")
    found = differences(run, resigned([*rows[:at], ("JudgeUp", {"judge": 0}), *rows[at:]]))
    assert "judge 0 was not down" in found


@pytest.mark.parametrize(
    ("kind", "body", "word"),
    [
        ("Sent", {"q": 0, "attempt": 1}, "attempt 1 was not to be sent"),
        ("Freed", {"q": 0, "attempt": 2, "error": ""}, "attempt 2 was not under way"),
    ],
)
def test_attempts_that_never_were_are_named(run, kind, body, word):
    rows = rows_of(run.store.lines)
    at = first(run, "Sent") + 1
    found = differences(run, resigned([*rows[:at], (kind, body), *rows[at:]]))
    assert f"question 0: {word}" in found


def test_two_stray_rows_that_cancel_out_are_named(run):
    """A cap raised and lowered again changes nothing, and nobody did it."""
    rows = rows_of(run.store.lines)
    at = first(run, "Told") + 1
    cap = run.state.ledger.campaign.cap
    stray = [("CapChanged", {"cap": cap + 1}), ("CapChanged", {"cap": cap})]
    found = differences(run, resigned([*rows[:at], *stray, *rows[at:]]))
    assert any("no process took up the run" in what for what in found), found


def test_a_run_that_was_complete_is_not_reopened():
    run = run_virtually(fake_crew([FakeAdapter(lambda _: Script())], cap=10**12, n_units=5))
    spent = run.state.ledger.campaign.settled
    rows = rows_of(run.store.lines)
    rows += [("Reopened", {"settled": spent, "uncertain": 0}), ("Started", {"about": {}})]
    found = differences(run, resigned(rows))
    assert any("can't be reopened" in what for what in found), found


def test_nothing_follows_a_stop(run):
    rows = rows_of(run.store.lines)
    rows.append(("LimitReached", {"which": "wall_clock"}))
    assert any("follows the stop" in what for what in differences(run, resigned(rows)))


def test_a_reply_that_is_none_is_named(run):
    def unreadable(name):
        raise ValueError(f"{name} is no reply")

    again = State(run.state.crew)
    found = [d.what for d in verify(again, run.store.read(), unreadable)]
    assert any("is no reply" in what for what in found)


def test_rows_of_no_judge_and_no_question_are_named(run):
    """An index out of range is a difference, not a crash."""
    rows = rows_of(run.store.lines)
    rows[first(run, "Asked")][1]["query"]["judge"] = 99
    assert differences(run, resigned(rows))


def test_a_look_can_not_claim_that_gates_are_decided(run):
    def decided(body):
        body["is_decided"] = True

    def explained(body):
        body["policy"]["left"] = 10**6

    for change in (decided, explained):
        found = differences(run, changed(run, first(run, "Looked"), change))
        assert any("the estimates are not" in what for what in found), found


def test_a_retry_that_brought_an_unreadable_reply_counts_its_attempts():
    def moody(request):
        if request.attempt.number == 1:
            return Script(error=RateLimited(retry_after_s=1))
        return Script(finish=Finish.REFUSED)

    run = run_virtually(fake_crew([FakeAdapter(moody)], n_units=3))
    assert {e.outcome.attempts for e in run.events if isinstance(e, Arrived)} == {2}
    assert differences(run, run.store) == []


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
        cap=260_000_000,
        window=8,
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
    "Started": None,  # who took the run up, and where
    "Freed": {"error"},
    "Arrived": {"took_s", "waited_s", "limited_s", "outcome.detail"},
}
"""Facts of time and words of others, which nothing in the log could contradict."""


def test_every_field_that_could_be_contradicted_is():
    """One field of one row changed, all hashes written anew: still found."""
    run = eventful()
    assert differences(run, run.store) == []
    tried, missed = set(), []
    for kind, field, value, lines in forgeries(rows_of(run.store.lines)):
        free = UNVERIFIABLE.get(kind, set())
        if free is None or field in free:
            continue
        tried.add(kind)
        if not differences(run, MemoryStore(lines)):
            missed.append((kind, field, value))
    assert missed == []
    assert tried >= {"Asked", "Told", "Reasked", "Parked", "JudgeDown", "Looked", "Freed"}


def test_every_field_of_a_run_with_a_parked_judge_that_could_be_contradicted_is():
    """C14 e: a judge that goes down for a time, and comes back; when that was is the clock's word."""
    n_sent = [0]

    def script(_):
        n_sent[0] += 1
        if n_sent[0] == 3:
            return Script(error=RateLimited("wait", retry_after_s=60.0))
        return Script(latency_s=1.0)

    crew = fake_crew([FakeAdapter(script), FakeAdapter(lambda _: Script())], n_units=6, window=4)
    run = run_virtually(crew)
    assert differences(run, run.store) == []
    free = UNVERIFIABLE | {"JudgeDown": {"until"}}
    tried, missed = set(), []
    for kind, field, value, lines in forgeries(rows_of(run.store.lines)):
        if free.get(kind, set()) is None or field in free.get(kind, set()):
            continue
        tried.add(kind)
        if not differences(run, MemoryStore(lines)):
            missed.append((kind, field, value))
    assert missed == []
    assert tried >= {"JudgeDown", "JudgeUp", "Parked", "Freed"}
