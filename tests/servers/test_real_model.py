"""A real language model behind a real server, killed and resumed: small, free, and no good judge.

The model is Gemma 3 270M, run by node-llama-cpp on the processor; `nlc_server.mjs` makes it speak
Chat Completions and counts what it is asked.
"""

import json
import os
import platform
import signal
import sqlite3
import subprocess
import sys
import time
from collections import Counter
from contextlib import closing
from pathlib import Path
from typing import Any, NamedTuple
from urllib.request import urlopen

import pytest

from orchestrator.core.events import Arrived, Asked, Event, Reasked, Sent
from orchestrator.core.query import Judged, Missing

pytestmark = [
    pytest.mark.servers,
    pytest.mark.skipif(
        (sys.platform, platform.machine()) != ("linux", "x86_64"),
        reason="the model's runtime is installed for Linux on x86-64 alone",
    ),
]

ASKED = (
    ("Do you repair punctures?", "Yes, while you wait, for 12 euros.", "Our colours are fresh."),
    ("Is the folding bike under 12 kg?", "It is: 11.4 kg with pedals.", "Weight is a feeling."),
    ("May I pay by invoice?", "Yes, within 14 days, for orders up to 500 euros.", "Perhaps."),
    ("Where is my order 7731?", "It left on Monday and arrives tomorrow.", "We have many orders."),
    ("Which lock suits a cargo bike?", "A chain of 110 cm, from 69 euros.", "Locks have keys."),
    (
        "Can I swap the saddle?",
        "Within 30 days, if it shows no wear.",
        "Saddles are made in Italy.",
    ),
)
"""Questions of customers, each with a good and a bad reply."""
N_ITEMS = 2 * len(ASKED)
N_REPEATS = 2
N_QUESTIONS = N_ITEMS * N_REPEATS
CONCURRENCY = 3
RATES = {"input": 200, "cached_input": 20, "output": 800}
"""In nano-USD a token: $0.20, $0.02 and $0.80 per million."""
CAP = 20_000_000
"""In nano-USD: $0.02."""

RUBRIC = """\
You mark the replies of a bicycle shop to its customers, each criterion from 1, bad, to 5, excellent.

The shop got {{ question }} and replied {{ candidate }}.

An example of the form, with marks made up:
{"{{ criteria[0].name }}": 1, "{{ criteria[1].name }}": 5}
"""
"""The example is what the model copies, whichever criterion stands where."""


@pytest.fixture(scope="module")
def campaign(gemma, tmp_path_factory):
    folder = tmp_path_factory.mktemp("gemma")
    items = [
        {"id": f"{kind}{n}", "question": question, "reply": reply}
        for n, (question, good, bad) in enumerate(ASKED)
        for kind, reply in (("good", good), ("bad", bad))
    ]
    lines = "".join(f"{json.dumps(item)}\n" for item in items)
    (folder / "items.jsonl").write_text(lines, encoding="utf-8")
    (folder / "rubric.md").write_text(RUBRIC, encoding="utf-8")
    scale = {"type": "integer", "min": 1, "max": 5}
    written = {
        "version": 1,
        "name": "gemma",
        "seed": 11,
        "data": {
            "path": "items.jsonl",
            "id": "id",
            "fields": {"question": "question", "candidate": "reply"},
        },
        "judges": [
            {
                "name": "gemma-270m",
                "adapter": "compatible",
                "model": "gemma-3-270m",
                "base_url": f"{gemma}/v1",
                "params": {"max_output_tokens": 60, "temperature": 0.4},
                "price_usd_per_1m": {name: rate / 1000 for name, rate in RATES.items()},
                "limits": {"concurrency": CONCURRENCY},
            }
        ],
        "task": {
            "kind": "rate",
            "rubric": "file://rubric.md",
            "criteria": [{"name": name, "scale": scale} for name in ("correct", "clear")],
            "criteria_order": "random",
        },
        "policy": {"kind": "uniform", "max_repeats": N_REPEATS},
        "budget": {"usd": CAP / 1e9},
        "estimate": [{"name": "marks", "kind": "score_means"}],
        "output": {"formats": ["md"]},
    }
    file = folder / "campaign.yaml"
    file.write_text(json.dumps(written), encoding="utf-8")  # JSON is YAML
    return file


def started(*words):
    command = [sys.executable, "-m", "orchestrator", *map(str, words)]
    return subprocess.Popen(
        command,
        env=os.environ | {"SORTITION_DISABLE_DOTENV": "1"},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def finished(*words):
    process = started(*words)
    out, err = process.communicate(timeout=300)
    assert process.returncode == 0, err
    return out


def n_arrived(run):
    """Count the answers on disk, while the run goes on."""
    try:
        db = sqlite3.connect(f"{(run / 'run.db').as_uri()}?mode=ro", uri=True)
        with closing(db):
            return db.execute("SELECT count(*) FROM events WHERE kind = 'Arrived'").fetchone()[0]
    except sqlite3.OperationalError:
        return 0


def killed(campaign, run, n_answers):
    process = started("run", campaign, "--run-dir", run, "-y", "--display", "none")
    end = time.monotonic() + 120
    while n_arrived(run) < n_answers and process.poll() is None and time.monotonic() < end:
        time.sleep(0.01)
    process.kill()
    _, err = process.communicate()
    assert process.returncode == -signal.SIGKILL, err


def n_requests(gemma):
    with urlopen(f"{gemma}/count") as reply:
        return json.load(reply)["received"]


def unanswered(events):
    waiting = set()
    for event in events:
        match event:
            case Sent(q=q):
                waiting.add(q)
            case Arrived(q=q) | Reasked(q=q):
                waiting.discard(q)
            case _:
                pass
    return waiting


class Resumed(NamedTuple):
    """A run that was killed and resumed."""

    directory: Path
    events: list[Event]
    result: dict[str, Any]
    lost: set[int]
    n_requests: int


@pytest.fixture(scope="module")
def run(campaign, gemma, log):
    directory = campaign.parent / "run"
    before = n_requests(gemma)
    killed(campaign, directory, 9)
    lost = unanswered(log(directory))
    finished("resume", directory, "-y", "--display", "none")
    result = json.loads((directory / "result.json").read_text(encoding="utf-8"))
    return Resumed(directory, log(directory), result, lost, n_requests(gemma) - before)


def test_a_killed_campaign_of_real_calls_asks_every_question(run):
    """C18: the same questions as an unbroken run; only what was under way is sent again."""
    counts = run.result["counts"]
    assert (run.result["state"], run.result["money"]) == ("finished", "real")
    assert counts["answered"] + sum(counts["missing"].values()) == N_QUESTIONS
    assert counts["answered"] >= 0.9 * N_QUESTIONS
    asked = [event.query for event in run.events if isinstance(event, Asked)]
    assert Counter((query.units, query.replicate) for query in asked) == {
        ((unit,), replicate): 1 for unit in range(N_ITEMS) for replicate in range(N_REPEATS)
    }
    n_sent = sum(isinstance(event, Sent) for event in run.events)
    assert 0 < len(run.lost) <= CONCURRENCY
    assert n_sent - len(run.lost) <= run.n_requests <= n_sent


def test_its_money_is_exact_to_the_token(run, balances):
    """C18: what is settled follows from the tokens, and only lost attempts are uncertain."""
    arrived = [event.outcome for event in run.events if isinstance(event, Arrived)]
    answers = [outcome for outcome in arrived if isinstance(outcome, Judged)]
    failures = [outcome for outcome in arrived if isinstance(outcome, Missing)]
    for answer in answers:
        used = answer.usage
        assert answer.cost == (
            RATES["input"] * used.input_tok
            + RATES["cached_input"] * used.cached_input_tok
            + RATES["output"] * used.output_tok
        )
        assert answer.served_model == "gemma-3-270m"
    holds = {event.q: event.hold for event in run.events if isinstance(event, Asked)}
    settled = sum(outcome.cost for outcome in [*answers, *failures])
    uncertain = sum(holds[q] for q in run.lost)
    spend = run.result["spend"]
    assert balances(run.events)[-1] == (settled, uncertain, 0)
    assert (spend["settled_nano_usd"], spend["uncertain_nano_usd"]) == (settled, uncertain)
    assert spend["held_nano_usd"] == spend["overrun_nano_usd"] == 0


def test_its_cap_holds_at_every_event(run, balances):
    assert 0 < max(map(sum, balances(run.events))) <= CAP


def test_its_log_replays_to_the_same_decisions(run):
    assert "agrees" in finished("verify", run.directory)


def test_the_report_says_that_such_a_judge_is_useless(run):
    """It copies the example by place, and tells the items apart no better than chance."""
    report = (run.directory / "report.md").read_text(encoding="utf-8")
    assert "gemma-270m's verdicts depend on the place in which the criteria are listed" in report
    (places,) = run.result["diagnostics"]["places"]
    assert places["means"][0] + 1 < places["means"][1]
    assert places["p"] < 0.001
    for scores in run.result["judges"][0]["scores"].values():
        assert scores["signal"]["lower"] < 0
