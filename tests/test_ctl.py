"""Steering a run under way: the words, the files, the command."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path

import anyio
import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrator import control, rundir
from orchestrator.control import Answer, Command, Mailbox, parse
from orchestrator.core.errors import ConfigError
from orchestrator.core.events import (
    CapChanged,
    Commanded,
    Continued,
    Opened,
    Paused,
    Stopped,
)
from orchestrator.core.money import FREE
from orchestrator.core.stopping import StopReason
from orchestrator.store.sqlite import SqliteReader

ROOT = Path(__file__).parents[1]

# --- words -------------------------------------------------------------------------------------


@pytest.mark.parametrize("word", ["pause", "resume", "stop"])
def test_a_word_is_a_command(word):
    assert parse([word]) == Command(name=word)


@pytest.mark.parametrize(
    ("setting", "value"),
    [
        ("budget.usd=30", 30_000_000_000),
        ("budget.usd=0.1", 100_000_000),
        ("budget.usd=0.000000001", 1),
        ("judges.big.concurrency=4", 4),
        ("judges.big.rpm=10k", 10_000),
        ("judges.big.input_tpm=1.5m", 1_500_000),
        ("judges.big.output_tpm=none", None),
        ("judges.a.b=c.rpm=7", 7),
    ],
)
def test_a_setting_is_read_exactly(setting, value):
    command = parse(["set", setting], judges=["big", "a.b=c"])
    assert (command.path, command.value) == (setting.rpartition("=")[0], value)


@pytest.mark.parametrize(
    ("words", "says"),
    [
        ([], "wants a command: pause, resume, stop, set"),
        (["puase"], 'no command is named "puase"; did you mean "pause"'),
        (["pause", "now"], "pause takes no further words"),
        (["set"], "set wants one PATH=VALUE"),
        (["set", "budget.usd"], "set wants one PATH=VALUE"),
        (["set", "budget.usd=1", "budget.usd=2"], "set wants one PATH=VALUE"),
        (["set", "budgt.usd=3"], 'did you mean "budget.usd"'),
        (["set", "judges.bg.rpm=3"], 'did you mean "judges.big.rpm"'),
        (["set", "judges.big.limits.concurrency=3"], 'did you mean "judges.big.concurrency"'),
        (["set", "judges.big.budget_usd=3"], "can't be set while a run goes on"),
        (["set", "budget.usd=0"], "budget.usd wants more than 0 USD"),
        (["set", "budget.usd=-1"], "budget.usd wants more than 0 USD"),
        (["set", "budget.usd=none"], "budget.usd wants an amount"),
        (["set", "budget.usd=0.0000000001"], "finer than one nano-USD"),
        (["set", "budget.usd=nan"], "budget.usd wants an amount"),
        (["set", "judges.big.concurrency=0"], "judges.big.concurrency wants more than 0"),
        (["set", "judges.big.concurrency=2.5"], "wants a whole number"),
        (["set", "judges.big.concurrency=none"], "wants a whole number"),
        (["set", "judges.big.rpm="], "wants a whole number"),
    ],
)
def test_nonsense_is_refused_with_what_was_meant(words, says):
    with pytest.raises(ConfigError, match=says.replace(".", r"\.")):
        parse(words, judges=["big"])


def test_judges_that_are_not_known_here_are_left_to_the_run():
    assert parse(["set", "judges.any.rpm=3"]).judge_limit == ("any", "rpm")
    with pytest.raises(ConfigError, match=r'did you mean "judges\.NAME\.concurrency"'):
        parse(["set", "judges.any.concurency=3"])


def commands():
    name = st.text(st.characters(codec="utf-8", exclude_categories=("Cc", "Z")), min_size=1)
    limits = st.tuples(name, st.sampled_from([control.CONCURRENCY, *control.RATES]))
    counts = st.integers(1, 2**63 - 1)
    settings = st.one_of(
        st.tuples(st.just(control.BUDGET), counts),
        st.tuples(limits.map(lambda pair: f"judges.{pair[0]}.{pair[1]}"), counts),
    )
    return st.one_of(
        st.sampled_from(["pause", "resume", "stop"]).map(lambda word: Command(name=word)),
        settings.map(lambda pair: Command(name="set", path=pair[0], value=pair[1])),
    )


@given(command=commands())
def test_a_command_survives_its_words(command):
    """What is written into a file is what the run reads, money to the nano-USD."""
    assert parse(command.words) == command


# --- files -------------------------------------------------------------------------------------


def left(run):
    return sorted(path.name for path in (run / control.CONTROL_NAME).iterdir())


def taken(mailbox):
    return [command for _, command in mailbox.take()]


def test_commands_are_taken_in_order_and_once(tmp_path):
    mailbox = Mailbox(tmp_path)
    assert mailbox.take() == []
    assert not mailbox.has_mail()
    said = [
        parse(["pause"], reason="für später", by="me@here"),
        parse(["set", "judges.big.rpm=none"]),
        parse(["set", "budget.usd=1.000000001"]),
    ]
    for command in said:
        control.post(tmp_path, command)
    assert mailbox.has_mail()
    assert taken(mailbox) == said
    assert not mailbox.has_mail()
    assert mailbox.take() == []


def test_a_command_is_a_file_that_others_can_write_and_read(tmp_path):
    """The form is part of the interface: word, path, value as written, reason, who and when."""
    mailbox = Mailbox(tmp_path)
    path = control.post(tmp_path, parse(["set", "budget.usd=30"], reason="more", by="me@here"))
    body = json.loads(path.read_text(encoding="utf-8"))
    assert body.pop("at").endswith("+00:00")
    assert body == {
        "command": "set",
        "path": "budget.usd",
        "value": "30",
        "reason": "more",
        "by": "me@here",
    }
    (path.parent / "by-hand.json").write_text(
        '{"command": "set", "path": "budget.usd", "value": 30}', encoding="utf-8"
    )
    ours, theirs = taken(mailbox)
    assert (ours.path, ours.value) == (theirs.path, theirs.value)


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"{",
        b"[]",
        b"null",
        b"\xff\xfe",
        b"[" * 60_000,
        b'{"command": "pause", "reason": "%b"}' % (b"x" * control.LARGEST_FILE),
        b'{"command": 3}',
        b'{"command": "explode"}',
        b'{"command": "set"}',
        b'{"command": "set", "path": "budget.usd"}',
        b'{"command": "set", "path": "budget.usd", "value": true}',
        b'{"command": "set", "path": ["budget.usd"], "value": 3}',
        b'{"command": "set", "path": "judges.bg.rpm", "value": 3}',
        b'{"command": "pause", "path": "x", "value": "\\ud800\\n"}',
    ],
    ids=lambda body: repr(body[:40]),
)
def test_a_file_that_is_no_command_is_answered_and_never_fatal(tmp_path, body):
    mailbox = Mailbox(tmp_path, judges=["big"])
    good = control.post(tmp_path, parse(["pause"]))
    bad = good.with_name("0.json")
    bad.write_bytes(body)
    found = mailbox.take()
    assert [path for path, _ in found] == [bad, good]
    assert isinstance(found[0][1], str)
    assert found[0][1].isprintable()
    assert found[1][1] == Command(name="pause")
    answer = json.loads(bad.with_suffix(".done.json").read_bytes())
    assert answer == {"ok": False, "message": found[0][1]}
    assert not bad.exists()


def test_what_stands_in_a_reason_is_made_one_line(tmp_path):
    """A reason goes into the log and onto screens, whoever wrote the file."""
    mailbox = Mailbox(tmp_path)
    path = control.post(tmp_path, parse(["pause"]))
    path.write_text('{"command": "pause", "reason": "a\\n\\u001b[2J\\ud800", "by": 7}')
    ((_, command),) = mailbox.take()
    assert (command.reason, command.by) == (r"a\n\x1b[2J\ud800", "7")


def test_what_lies_there_already_is_refused(tmp_path):
    """A process that takes a run up does nothing that was said to an earlier one."""
    old = control.post(tmp_path, parse(["stop"]))
    for ending in (".taken.json", ".done.json"):
        old.with_name(f"1{ending}").write_text("{}")
    mailbox = Mailbox(tmp_path)
    assert mailbox.take() == []
    assert left(tmp_path) == [f"{old.stem}.done.json"]
    control.post(tmp_path, parse(["pause"]))
    assert taken(mailbox) == [Command(name="pause")]


def test_polling_lists_one_directory_and_opens_nothing(tmp_path, monkeypatch):
    mailbox = Mailbox(tmp_path)
    control.post(tmp_path, parse(["pause"]))
    taken(mailbox)
    scans, scandir = [], os.scandir
    monkeypatch.setattr(os, "scandir", lambda path: scans.append(path) or scandir(path))
    monkeypatch.setattr(Path, "open", lambda *_: pytest.fail("opened"))
    assert not mailbox.has_mail()
    assert len(scans) == 1


# --- waiting for the answer --------------------------------------------------------------------


class Process:
    """A process that carries a run on, as far as who commands it can tell.

    It does its part each time that it is looked whether it lives.
    """

    def __init__(self, run, *, does=lambda mailbox: None, lives=10**9):
        self.mailbox = Mailbox(run)
        self.does, self.lives = does, lives

    def is_running(self):
        if self.lives > 0:
            self.does(self.mailbox)
        self.lives -= 1
        return self.lives >= 0


def obey(mailbox):
    for path, command in mailbox.take():
        mailbox.answer(path, ok=command.name != "stop", message=f"heard {command.name}")


def told(run, word, process, timeout_s=0.2):
    path = control.post(run, parse([word]))
    return control.answer(path, timeout_s=timeout_s, is_running=process.is_running)


def test_the_answer_comes_back_and_no_file_stays(tmp_path):
    process = Process(tmp_path, does=obey)
    assert told(tmp_path, "pause", process) == Answer(ok=True, message="heard pause")
    assert told(tmp_path, "stop", process) == Answer(ok=False, message="heard stop")
    assert left(tmp_path) == []


def test_a_command_that_nobody_takes_is_withdrawn(tmp_path):
    """After that it is never carried out."""
    process = Process(tmp_path)
    assert told(tmp_path, "stop", process, timeout_s=0.06) is None
    assert left(tmp_path) == []
    assert process.mailbox.take() == []


def test_a_process_that_ends_is_not_waited_for(tmp_path):
    began = time.monotonic()
    assert told(tmp_path, "stop", Process(tmp_path, lives=1), timeout_s=60) is None
    assert time.monotonic() - began < 5
    assert left(tmp_path) == []


@pytest.mark.parametrize("lives", [1, 10**9])
def test_a_command_that_was_taken_and_not_answered_is_not_called_withdrawn(tmp_path, lives):
    process = Process(tmp_path, does=Mailbox.take, lives=lives)
    with pytest.raises(TimeoutError):
        told(tmp_path, "stop", process, timeout_s=0.06)
    assert left(tmp_path) == []


def test_a_command_that_is_taken_late_is_waited_for(tmp_path):
    """Taken at the very end of the wait, it is answered, not withdrawn."""
    held = []

    def slowly(mailbox):
        if held:
            mailbox.answer(held[0], ok=True, message="done")
        elif time.monotonic() - began > 0.05:
            held.extend(path for path, _ in mailbox.take())

    began = time.monotonic()
    process = Process(tmp_path, does=slowly)
    assert told(tmp_path, "pause", process, timeout_s=0.06) == Answer(ok=True, message="done")
    assert left(tmp_path) == []


def test_an_answer_that_can_not_be_written_is_no_error_of_the_run(tmp_path):
    mailbox = Mailbox(tmp_path)
    path = control.post(tmp_path, parse(["pause"]))
    mailbox.take()
    for file in path.parent.iterdir():
        file.unlink()
    path.parent.rmdir()
    mailbox.answer(path, ok=True, message="done")
    assert mailbox.take() == []


# --- the command -------------------------------------------------------------------------------


@pytest.fixture
def run(tmp_path):
    """A run that no process carries on."""
    opened = Opened(
        identity={"judges": [{"name": "acme"}]},
        digest="",
        seed=0,
        cap=None,
        judge_caps=(None,),
        role_caps={},
        cards=(FREE,),
        max_requests=1,
        max_tok=None,
        max_uncertain=None,
        window=1,
        looks=1,
    )
    anyio.run(rundir.create, tmp_path / "run", lambda _: [opened])
    return tmp_path / "run"


def test_without_a_process_it_says_how_to_go_on_and_leaves_nothing(sortition, run):
    code, out, err = sortition("ctl", run, "stop")
    assert (code, out) == (4, "")
    assert f"sortition resume {run}" in err
    assert not (run / "control").exists()


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["halt"], "no command is named"),
        (["set", "judges.acne.concurrency=4"], 'did you mean "judges.acme.concurrency"'),
        (["set", "budget.usd=lots"], "wants an amount in USD"),
    ],
)
def test_nonsense_is_2(sortition, run, words, says):
    code, _, err = sortition("ctl", run, *words)
    assert code == 2
    assert says in err


def test_a_directory_without_a_run_is_2(sortition, tmp_path):
    code, _, err = sortition("ctl", tmp_path, "stop")
    assert code == 2
    assert "holds no run" in err


def carried_on(run, monkeypatch, does):
    process = Process(run, does=does)
    monkeypatch.setattr(rundir, "running", lambda _: "a process" if process.is_running() else None)
    return process


def test_it_prints_the_answer_and_exits_by_it(sortition, run, monkeypatch):
    carried_on(run, monkeypatch, obey)
    assert sortition("ctl", run, "pause") == (0, "heard pause\n", "")
    assert sortition("ctl", run, "stop") == (2, "", "heard stop\n")
    code, out, _ = sortition("ctl", run, "stop", "--json")
    assert (code, json.loads(out)) == (2, {"ok": False, "message": "heard stop"})


def test_the_run_hears_who_said_it_and_why(sortition, run, monkeypatch):
    heard = []

    def listen(mailbox):
        for path, command in mailbox.take():
            heard.append(command)
            mailbox.answer(path, ok=True, message="")

    carried_on(run, monkeypatch, listen)
    sortition("ctl", run, "set", "budget.usd=30", "--reason", "more items")
    (command,) = heard
    assert (command.path, command.value) == ("budget.usd", 30_000_000_000)
    assert command.reason == "more items"
    assert "@" in command.by


def test_a_user_without_a_name_is_unknown(monkeypatch):
    def nameless():
        raise OSError

    monkeypatch.setattr(control.getpass, "getuser", nameless)
    assert control.author().startswith("unknown@")


@pytest.mark.parametrize("does", [Mailbox.take, lambda _: None])
def test_no_answer_is_4(sortition, run, monkeypatch, does):
    carried_on(run, monkeypatch, does)
    code, out, err = sortition("ctl", run, "stop", "--timeout", "0.06")
    assert (code, out) == (4, "")
    assert ("withdrawn" in err) == (does is not Mailbox.take)
    assert left(run) == []


# --- a run under way ---------------------------------------------------------------------------


TEXT = """\
version: 1
name: steered
seed: 5
data: {path: items.csv, id: id, fields: {candidate: reply}}
judges:
  - name: acme
    adapter: mock
    price_usd_per_1m: {input: 2.0, output: 10.0}
    limits: {concurrency: 2}
    mock: {sd: 0.5, tokens: {in: 1000, out: 300}}
task: {kind: rate, scale: {type: integer, min: 1, max: 5}}
policy: {kind: uniform, max_repeats: 1}
budget: {usd: 0.10}
output: {dir: runs, formats: []}
"""


@pytest.fixture
def campaign(tmp_path):
    rows = "".join(f"i{n},reply {n}\n" for n in range(400))
    (tmp_path / "items.csv").write_text("id,reply\n" + rows, encoding="utf-8")
    path = tmp_path / "campaign.yaml"
    path.write_text(TEXT, encoding="utf-8")
    return path


def start(*words):
    environment = os.environ | {"PYTHONPATH": str(ROOT), "SORTITION_DISABLE_DOTENV": "1"}
    return subprocess.Popen(
        [sys.executable, "-m", "orchestrator", *map(str, words)],
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def eventually(holds, timeout_s=20):
    until = time.monotonic() + timeout_s
    while not holds():
        assert time.monotonic() < until, "waited in vain"
        time.sleep(0.05)


def n_told(run):
    progress = rundir.progress(run)
    return progress.n_told


def test_a_run_under_way_is_paused_resumed_set_and_stopped(campaign, sortition, tmp_path):
    """Each command is answered, does what it says, and stands in the log."""
    text = TEXT.replace("mock: {", "mock: {realtime: true, latency: {constant: 0.05}, ")
    campaign.write_text(text.replace("usd: 0.10", "usd: 50"), encoding="utf-8")
    run = tmp_path / "run"
    process = start("run", campaign, "--run-dir", run, "-q")
    try:
        eventually(lambda: (run / "run.db").exists() and n_told(run) > 4)

        assert sortition("ctl", run, "pause", "--reason", "lunch")[0] == 0
        eventually(lambda: rundir.progress(run).in_flight == 0)
        stood = n_told(run)
        time.sleep(0.5)
        assert n_told(run) == stood
        assert sortition("ctl", run, "resume")[0] == 0
        eventually(lambda: n_told(run) > stood)

        code, _, err = sortition("ctl", run, "set", "budget.usd=0.000001")
        assert code == 2
        assert "$" in err
        assert sortition("ctl", run, "set", "budget.usd=30")[0] == 0
        assert sortition("ctl", run, "set", "judges.acme.concurrency=1")[0] == 0
        assert sortition("ctl", run, "set", "judges.acme.rpm=6000")[0] == 0
        assert sortition("ctl", run, "set", "judges.acme.rpm=none")[0] == 0

        assert sortition("ctl", run, "pause")[0] == 0
        assert sortition("ctl", run, "stop")[0] == 0
        _, err = process.communicate(timeout=30)
        assert process.returncode == 0, err
    finally:
        process.kill()
        process.wait()
    reader = SqliteReader(run)
    events = [row.event for row in reader.read()]
    reader.close()
    steered = [e for e in events if isinstance(e, Paused | Continued | CapChanged | Stopped)]
    kinds = [type(event) for event in steered]
    assert kinds[:4] == [Paused, Continued, CapChanged, Paused]
    assert steered[2].cap == 30_000_000_000
    assert isinstance(steered[-1], Stopped)
    assert steered[-1].reason is StopReason.USER
    reasons = [event.command["reason"] for event in events if isinstance(event, Commanded)]
    assert "lunch" in reasons
    assert left(run) == []
    assert sortition("verify", run)[0] == 0
    assert sortition("ctl", run, "stop")[0] == 4
