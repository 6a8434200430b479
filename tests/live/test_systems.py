"""Systems that answer and judges that read their answers, at servers of all providers."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from orchestrator.core.events import Arrived, Asked, Reasked, Sent
from orchestrator.core.query import Judged, Role

ROOT = Path(__file__).parents[2]
HERE = Path(__file__).parent
PROVIDERS = ["chat", "responses", "anthropic", "google", "compatible", "python"]
each = pytest.mark.parametrize("speaks", PROVIDERS, indirect=True)
one = pytest.mark.parametrize("speaks", ["compatible"], indirect=True)

CHECK = {
    "kind": "check",
    "scale": {"type": "boolean"},
    "verdict": [{"match": "key", "normalise": ["case", "space"]}, {"judge": "jury"}],
}
EXAM = {
    "data": {"path": "items.jsonl", "id": "id", "fields": {"task": "reply", "key": "key"}},
    "task": CHECK,
    "policy": {"kind": "subsample"},
    "estimate": [{"name": "accuracy", "kind": "exchangeable"}],
}
PROMPT = "Answer in a word.\n{{ task }}"


def exam(bench, n_items, **sections):
    """A campaign in which a system of the provider answers and a judge of it judges."""
    system = bench.judge("solver", prompt=PROMPT)
    file = bench.file(n_items=n_items, **{**EXAM, "systems": [system], **sections})
    rows = [
        f'{{"id": "i{n}", "reply": "item-{n}; what?", "key": "word {n}"}}' for n in range(n_items)
    ]
    (bench.home / "items.jsonl").write_text("\n".join(rows), encoding="utf-8")
    return file


def carried_out(bench, file):
    """Run a campaign by the command."""
    ran = bench.ran()
    ran.code, _, ran.err = bench.sortition(
        "run", file, "--run-dir", ran.directory, "-y", "--display", "none"
    )
    return ran


def is_exam(seen):
    return b"Answer in a word." in seen.body


def answering(kit, **how):
    """Solve every second item by its key; of the others judges say that every fourth is right."""

    def answer(seen, n):
        item = kit.item_of(seen)
        if is_exam(seen):
            text = f"Word  {item}" if item % 2 == 0 else f"  perhaps {item}?\n"
            return kit.Answer(text=text, **how)
        return kit.Answer(text=f'{{"score": {"true" if item % 4 == 1 else "false"}}}', **how)

    return answer


@each
def test_a_system_is_shown_its_prompt_alone_and_its_answer_is_judged_as_it_is(bench, kit):
    server, n_items = bench.server, 8
    server.answer = answering(kit)
    ran = carried_out(bench, exam(bench, n_items))
    assert ran.code == 0, ran.err
    exams = [seen for seen in server.seen if is_exam(seen)]
    judged = [seen for seen in server.seen if not is_exam(seen)]
    assert (len(exams), len(judged)) == (8, 4)
    for seen in exams:
        said = [text for text in kit.strings_of(seen.json) if "Answer in a word." in text]
        assert said == [f"Answer in a word.\nitem-{kit.item_of(seen)}; what?"]
        assert not re.search(rb"json_schema|tools|responseJsonSchema|word \d", seen.body)
    for seen in judged:
        item = kit.item_of(seen)
        assert f"  perhaps {item}?\n" in "\n".join(kit.strings_of(seen.json))
    by_role = ran.result["counts"]["by_role"]
    assert by_role["system"]["answered"] == by_role["judge"]["answered"] == 8
    (value,) = ran.result["estimates"][0]["value"]
    assert value == pytest.approx(6 / 8)
    assert ran.spend["settled_nano_usd"] == server.bill == 12 * 800_000
    assert ran.spend["by_role"]["system"]["settled_nano_usd"] == 8 * 800_000
    bench.verify(ran)


@one
def test_a_kill_in_mid_chain_bills_nothing_twice_unseen(bench, kit):
    """What was generated is read from the log; what was under way is charged, and asked again."""
    server, n_items = bench.server, 40
    server.answer = answering(kit, delay_s=0.03)
    file, ran = exam(bench, n_items), bench.ran()
    environment = os.environ | {"PYTHONPATH": os.pathsep.join([str(ROOT), str(HERE)])}
    words = ["run", file, "--run-dir", ran.directory, "-y", "--display", "none"]
    running = subprocess.Popen(
        [sys.executable, "-m", "orchestrator", *map(str, words)], env=environment
    )
    end = time.monotonic() + 60
    while len(server.answered) < 25 and time.monotonic() < end:
        time.sleep(0.002)
    running.send_signal(signal.SIGKILL)
    running.wait()
    told_before = {e.q for e in ran.of(Arrived) if isinstance(e.outcome, Judged)}
    assert told_before
    code, _, err = bench.sortition("resume", ran.directory, "-y", "--display", "none")
    assert code == 0, err
    lost = [event for event in ran.of(Reasked) if event.ended == "lost"]
    generated = [e.query.units for e in ran.of(Asked) if e.query.role is Role.SYSTEM]
    assert len(generated) == len(set(generated)) == n_items
    assert server.n_requests <= n_items + n_items // 2 + len(lost)
    after = ran.events[ran.events.index(lost[0]) :] if lost else []
    assert not told_before & {event.q for event in after if isinstance(event, Sent)}
    spend = ran.spend
    assert spend["uncertain_nano_usd"] > 0 if lost else True
    assert server.bill <= spend["settled_nano_usd"] + spend["uncertain_nano_usd"]
    assert ran.result["estimates"][0]["value"] == pytest.approx([3 / 4])
    bench.verify(ran)


@one
def test_an_answer_longer_than_reckoned_is_not_judged_and_costs_no_verdict(bench, kit):
    """The verdict's hold is for answers of so many bytes a token; nothing beyond it is spent."""
    server = bench.server

    def answer(seen, n):
        if is_exam(seen):
            return kit.Answer(text="x" * (40_000 if kit.item_of(seen) == 1 else 10))
        return kit.Answer(text='{"score": true}')

    server.answer = answer
    ran = carried_out(bench, exam(bench, 3))
    assert ran.code == 0, ran.err
    assert ran.result["counts"]["by_role"]["judge"]["missing"] == {"too_long": 1}
    assert server.n_requests == 5
    assert ran.spend["settled_nano_usd"] == server.bill
    bench.verify(ran)


@one
def test_a_system_whose_key_is_refused_stops_the_run_until_it_is_mended(bench, kit):
    server, is_open = bench.server, []
    server.answer = lambda seen, n: (
        server.refuse(401) if is_exam(seen) and not is_open else answering(kit)(seen, n)
    )
    file = exam(bench, 6)
    ran = carried_out(bench, file)
    assert ran.code == 4, ran.err
    assert ran.result["stop_reason"] == "judges_down"
    assert server.n_requests <= 2
    is_open.append(True)
    code, _, err = bench.sortition("resume", ran.directory, "-y", "--display", "none")
    assert code in {0, 3}, err
    # The question that was refused stays missing, as a judge's does.
    by_role = ran.result["counts"]["by_role"]
    assert by_role["system"]["answered"] >= 5
    bench.verify(ran)
