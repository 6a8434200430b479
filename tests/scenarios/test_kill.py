"""C18 with a real `kill -9`: nothing is lost, nothing is asked twice unknowingly."""

from __future__ import annotations

import json
import os
import signal
import sqlite3
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from orchestrator.core.events import Arrived, Asked, Reasked, Sent
from orchestrator.store.sqlite import SqliteReader

ROOT = Path(__file__).parents[2]
N_ITEMS = 100
CONCURRENCY = 3
HOLD = 100 * 2_000 + 50 * 10_000  # 100 tokens in at $2, 50 out at $10 per million, in nano-USD


@pytest.fixture
def campaign(tmp_path):
    items = "\n".join(f"i{n},text {n}" for n in range(N_ITEMS))
    (tmp_path / "items.csv").write_text(f"id,reply\n{items}\n", encoding="utf-8")
    file = tmp_path / "campaign.yaml"
    file.write_text(
        f"""
version: 1
name: kill
seed: 3
data: {{path: items.csv, id: id, fields: {{candidate: reply}}}}
judges:
  - name: counted
    adapter: "counting_judge:PLUGIN"
    params: {{max_output_tokens: 50}}
    price_usd_per_1m: {{input: 2.0, output: 10.0}}
    limits: {{concurrency: {CONCURRENCY}}}
    settings: {{log: {tmp_path}/sent.log}}
task: {{kind: rate, scale: {{type: integer, min: 1, max: 5}}}}
policy: {{kind: uniform, max_repeats: 1}}
budget: {{usd: 5.0}}
""",
        encoding="utf-8",
    )
    return file


def command(*words):
    environment = os.environ | {
        "PYTHONPATH": os.pathsep.join([str(ROOT), str(ROOT / "tests" / "plugins")]),
        "SORTITION_DISABLE_DOTENV": "1",
    }
    return subprocess.Popen(
        [sys.executable, "-m", "orchestrator", *map(str, words)],
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def finished(*words, code=0, limit_s=120):
    process = command(*words)
    out, err = process.communicate(timeout=limit_s)
    assert process.returncode == code, err
    return out


def n_arrived(run):
    try:
        db = sqlite3.connect(f"{(run / 'run.db').as_uri()}?mode=ro", uri=True)
    except sqlite3.OperationalError:
        return 0
    try:
        return db.execute("SELECT count(*) FROM events WHERE kind = 'Arrived'").fetchone()[0]
    except sqlite3.OperationalError:
        return 0
    finally:
        db.close()


def events(run):
    reader = SqliteReader(run)
    found = [row.event for row in reader.read()]
    reader.close()
    return found


def unanswered(run):
    waiting = set()
    for event in events(run):
        match event:
            case Sent(q=q):
                waiting.add(q)
            case Arrived(q=q) | Reasked(q=q):
                waiting.discard(q)
            case _:
                pass
    return waiting


def sent_lines(campaign):
    return (campaign.parent / "sent.log").read_text(encoding="ascii").splitlines()


def kill_at(campaign, run, n_answers):
    process = command("run", campaign, "--run-dir", run, "-y", "--display", "none")
    end = time.monotonic() + 60
    while n_arrived(run) < n_answers and process.poll() is None and time.monotonic() < end:
        time.sleep(0.005)
    process.send_signal(signal.SIGKILL)
    process.communicate()
    assert process.returncode == -signal.SIGKILL
    assert n_arrived(run) >= n_answers


def result(run):
    return json.loads((run / "result.json").read_text(encoding="utf-8"))


def check_a_kill(campaign, n_answers):
    whole, broken = campaign.parent / "whole", campaign.parent / "broken"
    finished("run", campaign, "--run-dir", whole, "-y", "--display", "none")
    assert len(sent_lines(campaign)) == N_ITEMS
    (campaign.parent / "sent.log").unlink()

    kill_at(campaign, broken, n_answers)
    lost = unanswered(broken)
    assert len(lost) <= CONCURRENCY
    finished("resume", broken, "-y", "--display", "none")

    assert N_ITEMS <= len(sent_lines(campaign)) <= N_ITEMS + len(lost)
    first, second = result(whole), result(broken)
    assert second["counts"]["answered"] == N_ITEMS
    assert second["spend"]["uncertain_nano_usd"] == HOLD * len(lost)
    assert second["spend"]["settled_nano_usd"] == first["spend"]["settled_nano_usd"]
    assert second["estimates"] == first["estimates"]
    questions = [[e.query for e in events(run) if isinstance(e, Asked)] for run in (whole, broken)]
    assert questions[0] == questions[1]
    assert "agrees" in finished("verify", broken)
    assert "agrees" in finished("verify", whole)


POINTS = [37, *np.random.default_rng(18).integers(1, N_ITEMS - 2, 19).tolist()]


@pytest.mark.parametrize("n_answers", POINTS[:3])
def test_a_killed_run_resumes_to_the_same_result(campaign, n_answers):
    """C18: 100 unique answers, at most the lost attempts sent again, estimates equal to the bit."""
    check_a_kill(campaign, n_answers)


@pytest.mark.slow
@pytest.mark.parametrize("n_answers", POINTS[3:])
def test_a_killed_run_resumes_to_the_same_result_at_many_points(campaign, n_answers, measured):
    check_a_kill(campaign, n_answers)
    measured(f"C18: kill -9 after {n_answers} answers, then resume", "equal to the bit")


def test_a_second_process_on_a_run_is_refused(campaign):
    """C22: exit 4, naming process, host and start; no byte is written."""
    run = campaign.parent / "run"
    slow = ("--set", "judges.counted.settings.latency_s=5")
    process = command("run", campaign, "--run-dir", run, "-y", "--display", "none", *slow)
    wait_for(campaign.parent / "sent.log")
    second = command("resume", run, "-y")
    _, err = second.communicate(timeout=60)
    assert second.returncode == 4, err
    assert f"process {process.pid} on " in err
    process.send_signal(signal.SIGINT)
    process.communicate(timeout=60)
    assert process.returncode == 130


def wait_for(path):
    end = time.monotonic() + 60
    while not path.exists() and time.monotonic() < end:
        time.sleep(0.005)
    assert path.exists()


@pytest.mark.parametrize("sign", [signal.SIGINT, signal.SIGTERM])
def test_a_first_signal_drains_and_a_resume_ends_the_run(campaign, sign):
    """C47: no new requests, those under way finish and are stored; exit 130; nothing uncertain."""
    run = campaign.parent / "run"
    process = command("run", campaign, "--run-dir", run, "-y", "--display", "none")
    end = time.monotonic() + 60
    while n_arrived(run) < 20 and time.monotonic() < end:
        time.sleep(0.005)
    process.send_signal(sign)
    _, err = process.communicate(timeout=60)
    assert process.returncode == 130, err
    assert result(run)["state"] == "interrupted"
    assert result(run)["exit_code"] == 130
    assert not unanswered(run)
    finished("resume", run, "-y", "--display", "none")
    assert result(run)["spend"]["uncertain_nano_usd"] == 0
    assert len(sent_lines(campaign)) == N_ITEMS


def test_a_second_signal_stops_at_once_and_what_was_under_way_is_uncertain(campaign):
    """C47: twice: the calls stay held and are charged as uncertain by the resume."""
    run = campaign.parent / "run"
    slow = ("--set", "judges.counted.settings.latency_s=20")
    process = command("run", campaign, "--run-dir", run, "-y", "--display", "none", *slow)
    wait_for(campaign.parent / "sent.log")
    process.send_signal(signal.SIGINT)
    time.sleep(0.3)
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=15)
    assert process.returncode == 130, err
    assert result(run)["spend"]["held_nano_usd"] >= HOLD
    assert len(unanswered(run)) == 1


BENCHMARK = """
version: 1
name: bench
seed: 5
data: {path: bench.jsonl, id: item, strata: subject, fields: {question: question, reference: key}}
systems:
  - {name: m1, adapter: mock, PRICED, mock: {right: 0.85}}
  - {name: m2, adapter: mock, PRICED, mock: {right: 0.77}}
  - {name: m3, adapter: mock, PRICED, mock: {right: 0.9}}
  - {name: m4, adapter: mock, PRICED, mock: {right: 0.5}}
judges:
  - {name: checker, adapter: mock, PRICED, mock: {sd: 0.3}}
task: {kind: check, verdict: [{match: reference, normalise: [case, space]}, {judge: checker}]}
policy: {kind: subsample, design: paired}
budget: {usd: 60, by_role: {system: 50, judge: 20}}
stop: {target_half_width: 0.015, of: every_arm, check: anytime}
estimate: [{name: accuracy, kind: exchangeable, error_split: arms}]
output: {formats: []}
""".replace("PRICED", "price_usd_per_1m: {input: 1, output: 5}")


@pytest.mark.slow
def test_a_benchmark_killed_in_mid_chain_comes_to_the_same(tmp_path, measured):
    """Four systems, 8,000 items: five kills, wherever they fall, change no question and no estimate."""
    rows = [
        {
            "item": f"i{n}",
            "subject": f"s{n % 40}",
            "question": f"{n} + {n % 40}?",
            "key": str(n + n % 40),
        }
        for n in range(8000)
    ]
    text = "".join(json.dumps(row) + "\n" for row in rows)
    (tmp_path / "bench.jsonl").write_text(text, encoding="utf-8")
    file = tmp_path / "bench.yaml"
    file.write_text(BENCHMARK, encoding="utf-8")
    whole, broken = tmp_path / "whole", tmp_path / "broken"
    words = (file, "-y", "--display", "none", "--run-dir")
    finished("run", *words, whole, limit_s=600)
    n_whole = n_arrived(whole)
    for part in range(1, 6):
        process = command("run", *words, broken)
        while n_arrived(broken) < part * n_whole // 6 and process.poll() is None:
            time.sleep(0.01)
        process.kill()
        process.communicate()
    finished("resume", broken, "-y", "--display", "none", limit_s=600)
    first, second = result(whole), result(broken)
    assert second["stop_reason"] == "precision"
    assert second["estimates"] == first["estimates"]
    # What is under way at the stop, and charged late, is a matter of timing.
    assert second["spend"]["by_class"]["answers"] == first["spend"]["by_class"]["answers"]
    asked = [[e.query for e in events(run) if isinstance(e, Asked)] for run in (whole, broken)]
    assert asked[0] == asked[1]
    lost = [e for e in events(broken) if isinstance(e, Reasked) and e.ended == "lost"]
    assert second["spend"]["uncertain_nano_usd"] == len(lost) * 2_500_000
    assert "agrees" in finished("verify", broken, limit_s=600)
    figure = f"{len(asked[0]):,} questions, {len(lost)} attempts lost and charged, equal to the bit"
    measured("four systems x 8,000 items to ±1.5 points, killed five times in mid-chain", figure)
