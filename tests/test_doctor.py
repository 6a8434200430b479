"""The command `doctor`: one tiny question a judge, under a cap of its own."""

import json
import os
import signal
import socket
import threading
import time

import pytest

from orchestrator import rundir
from orchestrator.core.events import Asked, Opened, Started
from orchestrator.core.money import format_usd
from orchestrator.testing.server import Fault, Say, ScriptedServer

HEAD = """\
version: 1
name: mine
data: {path: items.jsonl, fields: {candidate: reply}}
task: {kind: rate, scale: {type: float, min: 0, max: 1}%s}
policy: {kind: uniform, max_repeats: 3}
budget: {usd: 100}
labels: {path: labels.csv}
judges:
"""
PRICE = "price_usd_per_1m: {input: 2, output: 8}"


@pytest.fixture(autouse=True)
def _no_network(monkeypatch):
    """Let connections go to the loopback alone, and past the proxies of this machine."""
    connect = socket.socket.connect

    def on_loopback(self, address):
        assert address[0] == "127.0.0.1", f"a test opened a connection to {address}"
        connect(self, address)

    monkeypatch.setattr(socket.socket, "connect", on_loopback)
    for name in ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.lower(), raising=False)


@pytest.fixture
def campaign(tmp_path):
    def write(*judges, task=""):
        (tmp_path / "items.jsonl").write_text('{"id": "a", "reply": "secret text", "q": 0.5}\n')
        (tmp_path / "labels.csv").write_text("item_id,score\na,0.5\n")
        path = tmp_path / "campaign.yaml"
        path.write_text(HEAD % task + "".join(f"  - {{{judge}}}\n" for judge in judges))
        return path

    return write


@pytest.fixture
def examined(sortition, campaign):
    """Examine judges; gives the exit code and the document."""

    def examine(*judges, options=(), task=""):
        code, out, err = sortition("doctor", campaign(*judges, task=task), "--json", *options)
        assert out, err
        return code, json.loads(out)

    return examine


def mock(name, mock="{}", more=""):
    return f"name: {name}, adapter: mock, {PRICE}, mock: {mock}{more}"


def test_a_judge_that_works_costs_one_call_and_its_price_is_exact(examined):
    """500 tokens in at $2 and 100 out at $8 per million: 1,800,000 nano-USD."""
    code, document = examined(mock("good"))
    (judge,) = document["judges"]
    assert code == 0
    assert document["well"]
    assert 1 <= judge["verdict"] <= 5
    assert (judge["cost"], judge["uncertain"]) == (1_800_000, 0)
    assert document["charged_nano_usd"] == 1_800_000
    assert document["cap_nano_usd"] == 50_000_000
    assert judge["usage"]["input_tok"] == 500
    assert judge["served_model"] == "mock"
    assert judge["route"] == "schema"


def test_the_money_is_in_the_log_of_a_run_of_its_own(examined, tmp_path):
    """Nothing of the user's data is sent, and a judge is asked once however many attempts it has."""
    _, document = examined(mock("good"), mock("bad", "{faults: {unparsable: 1.0}}"))
    (directory,) = document["directories"]
    assert "-doctor-" in directory
    directory = tmp_path / directory
    with rundir.reading(directory) as reader:
        events = [row.event for row in reader.read()]
    (opened,) = [event for event in events if isinstance(event, Opened)]
    assert opened.cap == 50_000_000
    assert sum(isinstance(event, Asked) for event in events) == 2
    settled = rundir.summary(directory).spend.settled
    assert settled == sum(judge["cost"] for judge in document["judges"])
    assert not any(b"secret text" in path.read_bytes() for path in directory.rglob("*.*"))


@pytest.mark.parametrize(
    ("fault", "reason"),
    [
        ("401", "judge_down"),
        ("404", "judge_down"),
        ("400", "bad_request"),
        ("refused", "refused"),
        ("truncated", "truncated"),
        ("unparsable", "parse_failure"),
    ],
)
def test_a_judge_that_fails_is_named_with_the_reason_and_the_others_are_heard(
    examined, fault, reason
):
    code, document = examined(mock("bad", f"{{faults: {{{fault}: 1.0}}}}"), mock("good"))
    bad, good = document["judges"]
    assert code == 4
    assert not document["well"]
    assert (bad["reason"], bad["verdict"]) == (reason, None)
    assert bad["detail"] or fault == "refused"
    assert good["well"]
    assert bad["cost"] == (0 if fault.isdecimal() else bad["cost"])
    assert document["charged_nano_usd"] == sum(j["cost"] + j["uncertain"] for j in (bad, good))


def test_usage_that_is_not_said_is_shown_and_charged_at_the_hold(examined, sortition, campaign):
    code, document = examined(mock("mute", "{faults: {usage_missing: 1.0}}"))
    (judge,) = document["judges"]
    assert code == 0
    assert judge["usage"] is None
    assert "usage_missing" in judge["flags"]
    assert judge["cost"] + judge["uncertain"] > 1_800_000
    _, out, _ = sortition("doctor", campaign(mock("mute", "{faults: {usage_missing: 1.0}}")))
    assert "not said" in out


def test_all_missing_keys_are_named_at_once_and_nothing_is_sent(sortition, campaign, tmp_path):
    judges = [
        f"name: one, adapter: openai, model: gpt-5, {PRICE}",
        f"name: two, adapter: google, model: gemini-3.8-flash, {PRICE}",
        f"name: three, adapter: anthropic, model: claude-opus-5, api_key_env: MY_KEY, {PRICE}",
        mock("four"),
    ]
    code, out, err = sortition("doctor", campaign(*judges))
    assert (code, out) == (2, "")
    assert "OPENAI_API_KEY is not set" in err
    assert "GOOGLE_API_KEY or GEMINI_API_KEY is not set" in err
    assert "MY_KEY is not set" in err
    assert "export it or put it into .env" in err
    assert "3 problems; nothing was sent" in err
    assert not (tmp_path / "runs").exists()


def test_mocks_stand_in_without_a_key_and_dropped_parameters_are_said(
    examined, sortition, campaign
):
    """C43 a: what the model does not take is named before a real call finds it out."""
    judge = f"name: one, adapter: openai, model: o3, {PRICE}, params: {{temperature: 0.2, seed: 4}}"
    code, document = examined(judge, options=["--mock"])
    assert code == 0
    assert document["judges"][0]["dropped"] == ["temperature"]
    assert document["judges"][0]["is_known"]
    _, out, err = sortition("doctor", campaign(judge), "--mock")
    assert "temperature dropped" in out
    assert "next: sortition plan" in err


def test_a_refused_parameter_that_is_strict_sends_nothing(sortition, campaign, tmp_path):
    """C43 b: exit 2, and no run is opened."""
    judge = f"name: one, adapter: openai, model: o3, {PRICE}, params: {{temperature: 0.2}}"
    code, out, err = sortition("doctor", campaign(f"{judge}, strict_params: true"), "--mock")
    assert (code, out) == (2, "")
    assert "campaign.yaml:9:" in err
    assert "judges[0].params — o3 does not take temperature" in err
    assert "1 problem; nothing was sent" in err
    assert not (tmp_path / "runs").exists()


def test_a_model_that_the_table_does_not_hold_is_asked_by_each_route_in_turn(examined):
    """Each is a run, and all share the cap."""
    judge = (
        f'name: home, adapter: compatible, model: x, base_url: "http://localhost:1/v1", {PRICE}, '
        "mock: {faults: {unparsable: 1.0}}"
    )
    code, document = examined(judge, mock("bad", "{faults: {unparsable: 1.0}}"), options=["--mock"])
    home, bad = document["judges"]
    assert code == 4
    assert not home["is_known"]
    assert (home["tried"], home["route"]) == (["schema", "tool"], "text")
    assert (bad["tried"], bad["route"]) == ([], "schema")
    assert len(document["directories"]) == 3
    assert home["cost"] == 3 * bad["cost"] > 0
    assert document["settings"] == {}


def test_a_route_that_the_file_names_is_the_only_one_that_is_tried(examined):
    judge = (
        f'name: home, adapter: compatible, model: x, base_url: "http://localhost:1/v1", {PRICE}, '
        "mock: {faults: {unparsable: 1.0}}"
    )
    _, document = examined(judge, options=["--mock"], task=", output: {route: text}")
    assert document["judges"][0]["route"] == "text"
    assert document["judges"][0]["tried"] == []


def test_the_cap_is_never_passed_and_who_was_not_asked_is_named(examined):
    """One hold fits 0.006 USD, not two: a call can cost 500 · 2 + 400 · 8 = 4,200,000 nano-USD."""
    judges = [mock("one"), mock("two", more=", params: {max_output_tokens: 4000}")]
    code, document = examined(*judges, options=["--budget-usd", "0.006"])
    one, two = document["judges"]
    assert code == 4
    assert one["well"]
    assert two["reason"] == "not_asked"
    assert two["remedy"] == "raise --budget-usd"
    assert document["charged_nano_usd"] <= 6_000_000


@pytest.mark.parametrize("amount", ["0", "-1", "much", "0.0000001"])
def test_a_cap_that_pays_for_nothing_sends_nothing(sortition, campaign, tmp_path, amount):
    code, out, err = sortition("doctor", campaign(mock("one")), f"--budget-usd={amount}")
    assert (code, out) == (2, "")
    assert "--budget-usd" in err
    assert not (tmp_path / "runs").exists()


def test_recorded_judges_are_left_out(examined, sortition, campaign, tmp_path):
    (tmp_path / "old.csv").write_text("item_id,judge,score\na,large,0.5\n")
    recorded = (
        "name: old, adapter: recorded, recorded: {path: old.csv, judge: large, usd_per_call: 0}"
    )
    _, document = examined(recorded, mock("good"))
    assert [judge["judge"] for judge in document["judges"]] == ["good"]
    code, _, err = sortition("doctor", campaign(recorded))
    assert code == 2
    assert "no judge and no system is live" in err


def test_a_truth_of_the_campaigns_own_data_is_not_looked_for(examined):
    assert examined(mock("good", "{truth: q}"))[0] == 0


def test_the_table_has_a_line_a_judge_and_says_what_to_do(sortition, campaign):
    file = campaign(mock("good"), mock("bad", "{faults: {truncated: 1.0}}"))
    code, out, err = sortition("doctor", file)
    assert code == 4
    assert [line.split()[0] for line in out.splitlines()] == ["judge", "good", "bad"]
    assert "bad: truncated" in err
    assert "raise params.max_output_tokens" in err
    assert f"next: sortition doctor {file}" in err


# A server on the loopback


@pytest.fixture
def server():
    with ScriptedServer() as server:
        yield server


def said(text, usage=None):
    """A reply of Chat Completions: 300 tokens in and 20 out cost 760,000 nano-USD here."""
    return {
        "id": "chatcmpl-1",
        "model": "local-model-7",
        "choices": [
            {"index": 0, "finish_reason": "stop", "message": {"role": "assistant", "content": text}}
        ],
        "usage": usage or {"prompt_tokens": 300, "completion_tokens": 20, "total_tokens": 320},
    }


def local(server, more=""):
    url = f'base_url: "{server.url}/v1"'
    return f"name: home, adapter: compatible, model: local-model, {url}, {PRICE}{more}"


def test_a_real_server_is_asked_once_and_what_it_says_is_shown(examined, server):
    server.say(Say(body=said('{"score": 5}'), headers={"x-request-id": "req-9"}))
    code, document = examined(local(server))
    (judge,) = document["judges"]
    assert code == 0
    assert server.n_requests == 1
    assert judge["verdict"] == 5
    assert judge["served_model"] == "local-model-7"
    assert judge["cost"] == 760_000
    assert judge["usage"]["input_tok"] == 300
    assert not judge["is_known"]
    assert judge["took_s"] > 0
    assert document["settings"] == {}


def test_a_server_without_schemas_is_asked_until_a_verdict_can_be_read(sortition, campaign, server):
    """It refuses the schema and the tool; the key to set and the next command are printed."""
    no = Say(status=400, body={"error": {"message": "response_format is not supported"}})
    server.say(no, no, Say(body=said('Right. <verdict>{"score": 4}</verdict>')))
    file = campaign(local(server))
    code, out, err = sortition("doctor", file)
    assert code == 0, err
    assert server.n_requests == 3
    assert "schema then tool then text" in out
    assert "set task.output.route: text" in err
    assert f"next: sortition plan {file} --set task.output.route=text" in err


def test_a_key_that_is_refused_is_not_tried_again_by_another_route(examined, server, monkeypatch):
    """C32: the provider's words are shown, and the key is not."""
    monkeypatch.setenv("HOME_KEY", "sk-CANARY-12345678")
    body = {"error": {"message": "Incorrect API key provided: sk-CANARY-12345678"}}
    server.say(Say(status=401, body=body))
    code, document = examined(local(server, ", api_key_env: HOME_KEY"))
    (judge,) = document["judges"]
    assert code == 4
    assert server.n_requests == 1
    assert judge["reason"] == "judge_down"
    assert "Incorrect API key" in judge["detail"]
    assert "CANARY" not in json.dumps(document)
    assert document["charged_nano_usd"] == 0


def test_a_missing_key_sends_nothing_to_the_server(sortition, campaign, server):
    code, out, err = sortition("doctor", campaign(local(server, ", api_key_env: HOME_KEY")))
    assert (code, out) == (2, "")
    assert "HOME_KEY is not set" in err
    assert server.n_requests == 0


def test_an_overloaded_server_is_asked_once_and_costs_nothing(examined, server):
    server.say(Say(status=503, headers={"retry-after": "7200"}))
    code, document = examined(local(server))
    assert code == 4
    assert server.n_requests == 1
    assert document["charged_nano_usd"] == 0
    assert document["judges"][0]["reason"]


def test_a_judge_that_is_down_for_hours_does_not_keep_the_others_waiting(examined, server):
    """It asks to wait two hours, and the other judge is done at once."""
    server.say(Say(status=503, headers={"retry-after": "7200"}))
    code, document = examined(local(server), mock("good"))
    busy, good = document["judges"]
    assert code == 4
    assert good["well"]
    assert busy["reason"] == "judge_down"
    assert "503" in busy["detail"]


def test_usage_that_contradicts_itself_is_charged_at_the_hold(examined, server):
    usage = {"prompt_tokens": 0, "completion_tokens": 20, "total_tokens": 20}
    server.say(Say(body=said('{"score": 5}', usage)))
    code, document = examined(local(server))
    (judge,) = document["judges"]
    assert code == 0
    assert judge["usage"] is None
    assert "usage_inconsistent" in judge["flags"]
    assert judge["cost"] + judge["uncertain"] > 760_000


# What to do about it


def test_a_refused_key_is_named_by_the_variable_that_it_came_from(examined, server, monkeypatch):
    """C32: of several variables the one that is set; without a key, where one is named."""
    monkeypatch.setenv("GEMINI_API_KEY", "sk-1")
    monkeypatch.setenv("HOME_KEY", "sk-2")
    server.say(Say(status=401, body={"error": {"message": "who are you?"}}))
    google = f'name: g, adapter: google, model: gemini-x, base_url: "{server.url}", {PRICE}'
    named = local(server, ", api_key_env: HOME_KEY")
    nameless = local(server).replace("home", "nameless")
    user = local(server).replace("home", "user").replace("//", "//me:pass@")
    _, document = examined(google, named, nameless, user)
    assert [judge["remedy"] for judge in document["judges"]] == [
        "the key came from GEMINI_API_KEY: check it",
        "the key came from HOME_KEY: check it",
        "no key was sent: name the variable that holds it in api_key_env",
        "check the user and password in base_url",
    ]


def test_a_model_that_is_not_found_is_named_with_the_address_and_no_password(examined, server):
    server.say(Say(status=404, body={"error": {"message": "no such thing"}}))
    _, document = examined(local(server).replace("//", "//me:CANARY@"))
    remedy = document["judges"][0]["remedy"]
    assert remedy == f"check model local-model and base_url: {server.url}/v1"
    assert "CANARY" not in json.dumps(document)


def test_a_wait_that_the_server_asks_for_is_said_and_not_waited(sortition, campaign, server):
    server.say(Say(status=429, headers={"retry-after": "40"}))
    began = time.monotonic()
    code, _, err = sortition("doctor", campaign(local(server)))
    assert code == 4
    assert "the server asked to wait 40 s; try again then" in err
    assert "interrupted" not in err
    assert time.monotonic() - began < 10


def test_a_reply_without_a_verdict_is_quoted_on_one_line_and_disarmed(sortition, campaign, server):
    server.say(Say(body=said("I would say\n\x1b[2J" + "five " * 100)))
    code, _, err = sortition("doctor", campaign(local(server)))
    (line,) = [line for line in err.splitlines() if line.startswith("home: ")]
    assert code == 4
    assert 'it said "I would say \\x1b[2Jfive five' in line
    assert line.rpartition('"')[0].endswith("…")
    assert len(line) < 400


def test_a_reply_that_is_not_kept_is_not_quoted(examined, server):
    server.say(Say(body=said("I would say five")))
    code, document = examined(
        local(server), options=["--set", "output.keep.replies=parsed", "--set", "output.dir=runs"]
    )
    assert code == 4
    assert document["judges"][0]["said"] == ""
    assert "would say" not in json.dumps(document)


def test_parameters_that_a_model_refuses_are_to_be_taken_out(examined, server):
    server.say(Say(status=400, body={"error": {"message": "temperature is not supported"}}))
    _, document = examined(local(server, ", params: {temperature: 0.2, seed: 4}"))
    assert document["judges"][0]["remedy"] == "take temperature out of params"
    server.say(Say(status=400, body={"error": {"message": "no"}}))
    _, document = examined(local(server, ", params: {temperature: 0.2, seed: 4}"))
    assert (
        document["judges"][0]["remedy"]
        == "if the model does not take temperature, seed: take that out of params"
    )


def test_an_attempt_is_bounded_whatever_the_file_allows(examined, tmp_path):
    _, document = examined(
        mock("patient"), mock("hasty", more=", timeouts: {attempt: 7}"), options=["--json"]
    )
    directory = tmp_path / document["directories"][0]
    with rundir.reading(directory) as reader:
        about = reader.last(Started).about
    judges = about["campaign"]["overrides"]["judges"]
    assert [judge["timeouts"]["attempt"] for judge in judges] == [60, 7]


def test_what_was_set_stays_set_in_the_next_command_and_a_password_is_not_printed(
    sortition, campaign
):
    settings = ["--set", "seed=4", "--set", "judges[0].base_url=http://me:CANARY@localhost:1/v1"]
    judge = f'name: home, adapter: compatible, model: x, base_url: "http://localhost:1/v1", {PRICE}'
    _, _, err = sortition("doctor", campaign(judge), "--mock", *settings)
    assert "next: sortition plan" in err
    assert "--set seed=4 --set " in err
    assert "base_url=http://localhost:1/v1" in err
    assert "CANARY" not in err


# An interrupt


def _interrupt(server, times):
    """Interrupt this process once the server is asked, and again a second later."""

    def work():
        deadline = time.monotonic() + 20
        while server.n_requests < 1 and time.monotonic() < deadline:
            time.sleep(0.02)
        for _ in range(times if server.n_requests else 0):
            os.kill(os.getpid(), signal.SIGINT)
            time.sleep(1)

    thread = threading.Thread(target=work)
    thread.start()
    return thread


def test_an_answer_after_an_interrupt_is_waited_for_aloud_and_charged(sortition, campaign, server):
    server.say(Say(body=said('{"score": 5}'), delay_s=1.2))
    file = campaign(local(server))
    thread = _interrupt(server, 1)
    code, out, err = sortition("doctor", file, "--json")
    thread.join()
    document = json.loads(out)
    (judge,) = document["judges"]
    assert code == 130
    assert "waiting for 1 answer, 30 s at most" in err
    assert document["interrupted"]
    assert judge["verdict"] == 5
    assert (judge["cost"], judge["uncertain"]) == (760_000, 0)
    assert document["charged_nano_usd"] == 760_000


def test_a_slow_answer_is_announced(sortition, campaign, server, monkeypatch):
    monkeypatch.setattr("orchestrator.doctor._SLOW_S", 0.2)
    server.say(Say(body=said('{"score": 5}'), delay_s=1.2))
    code, _, err = sortition("doctor", campaign(local(server)))
    assert code == 0
    assert err.count("waiting for 1 answer\n") == 1


def test_a_call_that_a_second_interrupt_cuts_off_is_charged_until_proven_free(
    sortition, campaign, server
):
    server.say(Say(fault=Fault.SILENT))
    file = campaign(local(server))
    thread = _interrupt(server, 2)
    code, out, err = sortition("doctor", file)
    thread.join()
    assert code == 130
    assert "home: interrupted: it was sent, and no answer came" in err
    assert "raise --budget-usd" not in err
    assert f"next: sortition doctor {file}" in err
    assert "uncertain" in out
    (directory,) = (file.parent / "runs").iterdir()
    held = rundir.summary(directory).spend.held
    assert held > 0
    assert f"charged {format_usd(held)} of" in err


# Runs of one's own


def test_an_examination_is_never_the_newest_run(sortition, campaign, tmp_path):
    """Also where the user's campaign has its name."""
    file = campaign(mock("good", "{truth: q}"))
    text = file.read_text()
    file.write_text(text.replace("name: mine", "name: doctor"))
    assert sortition("run", file, "-y", "-q", "--run-dir", "runs/0-doctor")[0] in range(7)
    sortition("doctor", file)
    assert len(list((tmp_path / "runs").iterdir())) == 2
    code, out, _ = sortition("status", "--json")
    assert code == 0
    assert json.loads(out)["run"] == "0-doctor"
