"""C32: no key and no password in anything that a campaign leaves, prints or keeps."""

from __future__ import annotations

import json
from base64 import b64encode
from urllib.parse import quote

import pytest

from orchestrator import Campaign, rundir
from orchestrator.core.events import Started
from orchestrator.testing.server import Fault, Say

KEYS = {name: f"sk-CANARY-{name}-0123456789" for name in ("openai", "anthropic", "google", "own")}
PASSWORD = "pw'CANARY\"@/:9"
SECRET_HEADER = "t/CANARY+header=="
SECRETS = (*KEYS.values(), PASSWORD, SECRET_HEADER, "CANARY")
LOGGING = "logging.basicConfig(level=logging.DEBUG)"
DEBUG = {"OPENAI_LOG": "debug", "ANTHROPIC_LOG": "debug"}
VERDICT = '{"score": 4, "reason": "good"}'


def echoes(provider, *secrets):
    """Say everything that a server knows of its caller, in all the forms that gateways have."""
    seen = {"authorization": f"Bearer {' '.join(secrets)}"}
    if PASSWORD in secrets:
        seen["basic"] = b64encode(f"user:{PASSWORD}".encode()).decode()
    everything = json.dumps(seen)
    return [
        Say(body=provider.good(VERDICT)),
        *(
            Say(status=status, body=provider.error(f"bad header {form}"))
            for status, form in (
                (400, everything),
                (400, " ".join(secrets)),
                (400, quote(everything, safe="")),
                (500, "".join(f"%{byte:02x}" for byte in everything.encode())),
                (400, b64encode(everything.encode()).decode()),
                (400, b64encode(b"x" + everything.encode()).decode()),
                (400, b64encode(b"xx" + " ".join(secrets).encode()).decode()),
            )
        ),
        Say(status=500, body=everything.encode()),
        Say(body=everything.encode()),
        Say(body=provider.good(VERDICT, model=secrets[0], id=secrets[0], responseId=secrets[0])),
        Say(body=provider.good(f'{{"score": 4, "reason": {json.dumps(everything)}}}')),
        Say(body=provider.good(everything)),
        Say(fault=Fault.DROPPED),
        Say(status=401, body=provider.error(everything)),
    ]


def test_no_key_and_no_password_is_left_anywhere(
    serve, providers, written, in_a_process, left_over, holding, tmp_path
):
    """C32: with servers that echo all they were sent, every log at DEBUG, and every command.

    Keys stand in the environment, in `.env` and in a named file; a password in `base_url`, a secret
    header in a variable, and settings in `SORTITION_*`.
    """
    judges, servers = [], {}
    for name, provider in providers.items():
        key = KEYS.get(name, KEYS["own"])
        mine = {"compatible": (key, SECRET_HEADER), "openai": (PASSWORD,)}.get(name, (key,))
        servers[name] = serve(*echoes(provider, *mine))
        judges.append({"adapter": name, "base_url": servers[name].url})
    judges[-1] |= {
        "api_key_env": "OWN_KEY",
        "compatible": {"headers_env": {"X-Team": "TEAM_SECRET"}},
    }
    written(judges, texts=[f"text {n}" for n in range(16)], cache={"dir": "kept"})
    (tmp_path / ".env").write_text(f"ANTHROPIC_API_KEY={KEYS['anthropic']}\n", encoding="utf-8")
    (tmp_path / "more.env").write_text(f"GOOGLE_API_KEY={KEYS['google']}\n", encoding="utf-8")
    host = servers["openai"].url.removeprefix("http://")
    with_password = f"judges.openai.base_url=http://user:{quote(PASSWORD, safe='')}@{host}"
    given = ["campaign.yaml", "--set", with_password, "--env-file", "more.env"]
    outputs = [
        word for end in ("html", "md", "csv", "jsonl", "parquet") for word in ("-o", f"o.{end}")
    ]
    codes, out, err = in_a_process(
        ["validate", *given[:-2]],
        ["preview", *given[:-2]],
        ["plan", *given[:-2]],
        ["run", "--env-file", "more.env", "-y", "--run-dir", "run", "--display", "log", *outputs],
        ["doctor", *given],
        ["status", "run"],
        ["status", "run", "--json"],
        ["report", "run", "-o", "again.html"],
        ["export", "run", "-o", "answers.parquet", "-o", "scores.csv"],
        ["verify", "run", "--json"],
        ["ctl", "run", "pause"],
        ["cache", "ls", "--dir", "kept"],
        ["prices", "check", "campaign.yaml"],
        ["resume", "run", "-y", "--env-file", "more.env", "--json"],
        prelude=LOGGING,
        OPENAI_API_KEY=KEYS["openai"],
        OWN_KEY=KEYS["own"],
        TEAM_SECRET=SECRET_HEADER,
        SORTITION_RUN_SET_=with_password,
        SORTITION_DISABLE_DOTENV="0",
        **DEBUG,
    )
    # All judges are refused in the end, and no process carries a run on that could be steered.
    assert codes == [0, 0, 0, 4, 4, 0, 0, 0, 0, 0, 4, 0, 0, 0], err.decode()
    for name, server in servers.items():
        assert server.n_requests >= 15, name
    sent = servers["compatible"].seen[0].headers
    assert (sent["authorization"], sent["x-team"]) == (f"Bearer {KEYS['own']}", SECRET_HEADER)
    assert servers["openai"].seen[0].headers["authorization"].startswith("Basic ")
    found = left_over() | {"output": out, "chatter": err}
    assert holding(found, *SECRETS) == set()


CRASH = """
from judges.compatible import CompatibleJudge
def ceiling(self, request, card):
    secret, headers = self._setting.api_key, {**self._headers, "basic": self._auth}
    raise RuntimeError("a bug of ours")
CompatibleJudge.ceiling = ceiling
"""


def test_a_crash_shows_no_local_variable(written, in_a_process, left_over, holding, serve):
    """C32: the traceback of a bug names lines, and not what was in their variables."""
    url = serve().url.replace("//", f"//user:{quote(PASSWORD, safe='')}@")
    written([{"adapter": "compatible", "base_url": url, "api_key_env": "OWN_KEY"}])
    _, out, err = in_a_process(
        ["run", "campaign.yaml", "-y", "--run-dir", "run"], prelude=CRASH, OWN_KEY=KEYS["own"]
    )
    assert b"RuntimeError: a bug of ours" in err
    assert holding(left_over() | {"out": out, "err": err}, *SECRETS) == set()


ODD = "p'q\"CAN@CANARY,}x"
FREE_JUDGE = "name: j, adapter: compatible, model: m, price_usd_per_1m: free, max_attempts: 1"
URL = f"http://user:{ODD}@127.0.0.1:1/v1"


@pytest.mark.parametrize(
    "setting",
    [
        f"judges.compatible.base_url={URL}",
        f"judges.compatible.base_url={json.dumps(URL)}",
        f"judges[0].base_url={URL}",
        f"judges=[{{{FREE_JUDGE}, base_url: {json.dumps(URL)}}}]",
        f"judge_defaults={{base_url: {json.dumps(URL)}}}",
    ],
)
def test_a_password_on_the_command_line_is_not_written_down(
    written, sortition, left_over, holding, setting, monkeypatch, tmp_path
):
    """C32: however it is written there; what is written down is the same campaign without it."""
    monkeypatch.setenv("OWN_KEY", KEYS["own"])
    written([{"adapter": "compatible", "api_key_env": "OWN_KEY"}])
    policy = "policy={kind: uniform, max_repeats: 1}"
    command = ["run", "campaign.yaml", "-y", "--run-dir", "run", "--set", setting, "--set", policy]
    shown = [sortition(*words)[1:] for words in (command, ["verify", "run"], ["report", "run"])]
    found = left_over() | {"shown": str(shown).encode()}
    assert "run/run.db" in found
    assert holding(found, ODD, *SECRETS) == set()
    with rundir.reading(tmp_path / "run") as reader:
        about = reader.last(Started).about
    again = Campaign.again(about)
    assert again.file.campaign.judges[0].base_url == "http://127.0.0.1:1/v1"
    assert (
        again.build().crew.opened.digest
        == Campaign.from_yaml(
            tmp_path / "campaign.yaml", dict([setting.split("=", 1), policy.split("=", 1)])
        )
        .build()
        .crew.opened.digest
    )
    assert about["command"].startswith("sortition run campaign.yaml --set ")


@pytest.mark.parametrize(
    "judge",
    [
        {"api_key": "sk-CANARY-1"},
        {"api_key_env": "sk-CANARY-1"},
        {"base_url": "sk-CANARY-1"},
        {"base_url": "htp://user:CANARY@host"},
        {"base_url": "http://user:CANARY@host:port/v1"},
        {"base_url": "http://user:CAN ARY CANARY@host/v1"},
        {"base_url": "http://user:CANARY@host/v1?key=CANARY"},
        {"base_url": ["http://user:CANARY@host/v1"]},
        {"compatible": {"api_key": "sk-CANARY-1"}},
        {"compatible": {"headers_env": {"X-Key": "sk-CANARY-1"}}},
        {"compatible": {"headers": {"X-Key": "sk-CANARY\n1"}}},
    ],
)
def test_a_secret_in_the_wrong_place_is_refused_and_not_shown(written, sortition, judge, left_over):
    """C32: a key that someone wrote into the file by mistake is not in the message about it."""
    url = {"base_url": "http://127.0.0.1:1/v1"}
    written([{"adapter": "compatible", **url, **judge}])
    for command in ("validate", "plan", "run"):
        code, out, err = sortition(command, "campaign.yaml")
        assert code == 2
        assert "judges[0]" in err
        assert "CANARY" not in out + err
    assert not left_over()


@pytest.mark.parametrize(
    "setting",
    [
        "judges.a.base_url=[http://u:CANARY@h",
        "judges.compatible.api_key=sk-CANARY",
        "keys.a=CANARY",
    ],
)
def test_a_secret_in_a_wrong_setting_is_not_shown(written, sortition, setting):
    """C32."""
    written([{"adapter": "compatible", "base_url": "http://127.0.0.1:1/v1"}])
    code, out, err = sortition("plan", "campaign.yaml", "--set", setting)
    assert code == 2
    assert "CANARY" not in out + err


def test_a_file_that_is_no_yaml_is_refused_without_its_text(written, sortition, tmp_path):
    """C32."""
    written([])
    for text in ('base_url: "http://u:CANARY@h\n', "a: {b: sk-CANARY", "api_key: sk-CANARY: x\n"):
        (tmp_path / "campaign.yaml").write_text(text, encoding="utf-8")
        (tmp_path / "more.env").write_text("OWN KEY=sk-CANARY\n", encoding="utf-8")
        code, out, err = sortition("validate", "campaign.yaml")
        assert code == 2
        shown = out + err + "".join(sortition("run", "--env-file", "more.env")[1:])
        assert "CANARY" not in shown
