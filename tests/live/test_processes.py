"""Processes that are interrupted and killed while calls are under way."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from orchestrator.core.events import Arrived, Asked, Freed, Reasked, Sent
from orchestrator.core.query import Judged

ROOT = Path(__file__).parents[2]
HERE = Path(__file__).parent
each = pytest.mark.parametrize(
    "speaks",
    [
        "compatible",
        *(
            pytest.param(name, marks=pytest.mark.slow)
            for name in ("chat", "responses", "anthropic", "google", "python")
        ),
    ],
    indirect=True,
)


@pytest.fixture
def process():
    """Start the command in a process of its own."""
    started = []

    def start(*words):
        environment = os.environ | {"PYTHONPATH": os.pathsep.join([str(ROOT), str(HERE)])}
        started.append(
            subprocess.Popen(
                [sys.executable, "-m", "orchestrator", *map(str, words)],
                env=environment,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
            )
        )
        return started[-1]

    yield start
    for each_one in started:
        if each_one.poll() is None:
            each_one.kill()
            each_one.communicate()


def wait_until(is_so, timeout_s=60):
    end = time.monotonic() + timeout_s
    while not is_so() and time.monotonic() < end:
        time.sleep(0.002)
    assert is_so()


def unanswered(events):
    """The holds of attempts that were sent and of which the log knows no end."""
    holds, waiting = {}, {}
    for event in events:
        match event:
            case Asked(q=q, hold=hold) | Reasked(q=q, hold=hold):
                holds[q] = hold
                waiting.pop(q, None)
            case Sent(q=q):
                waiting[q] = holds[q]
            case Arrived(q=q) | Freed(q=q):
                waiting.pop(q, None)
            case _:
                pass
    return waiting


def settled(events):
    """What the answers of a log cost."""
    return sum(event.outcome.cost for event in events if isinstance(event, Arrived))


def resumed(bench, directory, code=0):
    got, _, err = bench.sortition("resume", directory, "-y", "--display", "none")
    assert got == code, err


@each
def test_a_killed_process_loses_no_answer_and_no_cent(bench, kit, process):
    """C18 with live judges: exactly the attempts that were sent and not answered are uncertain."""
    n_items, server = 30, bench.server
    server.answer = lambda seen, n: kit.Answer(
        text=f'{{"score": {1 + kit.item_of(seen) % 5}}}', delay_s=0.03 + 0.01 * (n % 4)
    )
    file = bench.file(bench.judge(limits={"concurrency": 4}), n_items=n_items)
    run = bench.ran()
    running = process("run", file, "--run-dir", run.directory, "-y", "--display", "none")
    wait_until(lambda: len(server.answered) >= 15)
    running.send_signal(signal.SIGKILL)
    running.communicate()
    assert running.returncode == -signal.SIGKILL

    lost = unanswered(run.events)
    assert 1 <= len(lost) <= 4
    assert 11 <= len(run.of(Arrived)) < n_items
    resumed(bench, run.directory)
    assert n_items <= server.n_requests <= n_items + len(lost)
    assert run.result["counts"]["answered"] == n_items
    assert run.spend["uncertain_nano_usd"] == sum(lost.values())
    assert run.spend["settled_nano_usd"] == settled(run.events) == n_items * 800_000
    assert run.spend["held_nano_usd"] == 0
    assert server.bill <= run.spend["settled_nano_usd"] + run.spend["uncertain_nano_usd"]
    questions = [asked.query for asked in run.of(Asked)]
    assert len(questions) == len(set(questions)) == n_items
    bench.verify(run)


@each
def test_an_interrupt_receives_what_is_under_way(bench, kit, process):
    """C47: once: no new requests, those under way are stored, exit 130; nothing is uncertain."""
    n_items, server = 9, bench.server
    server.answer = lambda seen, n: kit.Answer(delay_s=0.1)
    file = bench.file(bench.judge(limits={"concurrency": 3}), n_items=n_items)
    run = bench.ran()
    running = process("run", file, "--run-dir", run.directory, "-y", "--display", "none")
    wait_until(lambda: server.under_way == 3)
    running.send_signal(signal.SIGINT)
    at_interrupt = server.n_requests
    _, err = running.communicate(timeout=60)
    assert running.returncode == 130, err
    assert server.n_requests <= at_interrupt + 1
    assert len(run.of(Arrived)) == server.n_requests < n_items
    assert not unanswered(run.events)
    assert run.result["exit_code"] == 130
    assert run.result["state"] == "interrupted"
    assert "Traceback" not in err
    resumed(bench, run.directory)
    assert server.n_requests == n_items
    assert run.spend["uncertain_nano_usd"] == 0
    assert run.spend["settled_nano_usd"] == server.bill == n_items * 800_000
    bench.verify(run)


@each
def test_a_second_interrupt_stops_at_once(bench, kit, process):
    """C47: twice: what is under way stays held, and is charged as uncertain by the resume."""
    n_items, server = 4, bench.server
    slow = [True]
    server.answer = lambda seen, n: kit.Answer(delay_s=60 if slow[0] and n > 1 else 0)
    file = bench.file(bench.judge(limits={"concurrency": 2}), n_items=n_items)
    run = bench.ran()
    running = process("run", file, "--run-dir", run.directory, "-y", "--display", "none")
    wait_until(lambda: server.n_requests == 3)
    running.send_signal(signal.SIGINT)
    time.sleep(0.5)
    assert running.poll() is None
    began = time.monotonic()
    running.send_signal(signal.SIGINT)
    _, err = running.communicate(timeout=60)
    assert time.monotonic() - began < 20
    assert running.returncode == 130, err
    assert "Traceback" not in err
    lost = unanswered(run.events)
    assert len(lost) == 2
    # What was asked and never sent holds money as well.
    assert run.spend["held_nano_usd"] >= sum(lost.values())
    assert run.spend["settled_nano_usd"] == 800_000
    slow[0] = False
    resumed(bench, run.directory)
    assert server.n_requests == n_items + len(lost)
    assert run.spend["uncertain_nano_usd"] == sum(lost.values())
    assert run.spend["settled_nano_usd"] == n_items * 800_000
    assert run.spend["held_nano_usd"] == 0
    assert all(isinstance(arrived.outcome, Judged) for arrived in run.of(Arrived))
    bench.verify(run)


@each
@pytest.mark.parametrize("asked_s", [28, pytest.param(600, marks=pytest.mark.slow)])
def test_an_interrupt_does_not_wait_for_a_pause(bench, kit, process, asked_s):
    """C47, C14: a run that only waits, shortly or parked, ends at once, and can be resumed."""
    server = bench.server
    refuses = [True]
    server.answer = lambda seen, n: (
        server.refuse(429, headers={"Retry-After": str(asked_s)})
        if refuses[0] and n > 2
        else kit.Answer()
    )
    run = bench.ran()
    file = bench.file(n_items=6)
    running = process("run", file, "--run-dir", run.directory, "-y", "--display", "none")
    wait_until(lambda: len(server.answered) >= 3)
    time.sleep(0.3)
    began = time.monotonic()
    running.send_signal(signal.SIGINT)
    _, err = running.communicate(timeout=60)
    assert running.returncode == 130, err
    assert time.monotonic() - began < 15
    assert not unanswered(run.events)
    refuses[0] = False
    resumed(bench, run.directory)
    assert run.result["counts"]["answered"] == 6
    assert run.spend["settled_nano_usd"] == server.bill == 6 * 800_000
    assert run.spend["uncertain_nano_usd"] == 0
    bench.verify(run)
