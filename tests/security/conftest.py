"""Whole campaigns against servers on the loopback, and what may be left of them anywhere."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from base64 import b64encode
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote

import pytest

from orchestrator.testing.server import ScriptedServer

ROOT = Path(__file__).parents[2]
PROXIES = ("http_proxy", "https_proxy", "all_proxy", "no_proxy")

COMMANDS = """\
import json, logging, sys
{prelude}
from orchestrator import cli
for words in json.loads(sys.argv[1]):
    sys.argv = ["sortition", *words]
    try:
        cli.main()
        code = 0
    except SystemExit as end:
        code = end.code or 0
    print("ended", code, *words[:1], file=sys.stderr, flush=True)
"""
"""Several commands one after the other: a process for each would cost a second each."""


@pytest.fixture(autouse=True)
def _no_network(monkeypatch):
    """Let connections go to the loopback alone, and past the proxies of this machine."""
    connect = socket.socket.connect

    def on_loopback(self, address):
        assert address[0] in ("127.0.0.1", "::1"), f"a test opened a connection to {address}"
        connect(self, address)

    monkeypatch.setattr(socket.socket, "connect", on_loopback)
    for name in PROXIES:
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.upper(), raising=False)
    for name in ("SSL_CERT_FILE", "SSL_CERT_DIR", "OPENAI_BASE_URL"):
        monkeypatch.delenv(name, raising=False)


@dataclass(frozen=True)
class Provider:
    """What an adapter asks for and gets."""

    adapter: str
    path: str
    """What it appends to the address."""

    def good(self, text, **changes):
        """Give a reply that says a text."""
        match self.adapter:
            case "anthropic":
                said = {
                    "id": "msg_1",
                    "type": "message",
                    "role": "assistant",
                    "model": "acme-std",
                    "content": [{"type": "text", "text": text}],
                    "stop_reason": "end_turn",
                    "usage": {"input_tokens": 90, "output_tokens": 10},
                }
            case "google":
                content = {"role": "model", "parts": [{"text": text}]}
                said = {
                    "candidates": [{"content": content, "finishReason": "STOP"}],
                    "usageMetadata": {"promptTokenCount": 90, "candidatesTokenCount": 10},
                    "modelVersion": "acme-std",
                    "responseId": "r1",
                }
            case _:
                message = {"role": "assistant", "content": text}
                said = {
                    "id": "c1",
                    "object": "chat.completion",
                    "created": 1,
                    "model": "acme-std",
                    "choices": [{"index": 0, "message": message, "finish_reason": "stop"}],
                    "usage": {"prompt_tokens": 90, "completion_tokens": 10},
                }
        return said | changes

    def refused(self, text):
        """Give a complete reply in which the model refuses in its own words."""
        match self.adapter:
            case "anthropic":
                return self.good(text, stop_reason="refusal")
            case "google":
                content = {"role": "model", "parts": [{"text": text}]}
                candidate = {"content": content, "finishReason": "SAFETY", "finishMessage": text}
                return self.good(text, candidates=[candidate])
            case _:
                message = {"role": "assistant", "content": None, "refusal": text}
                choice = {"index": 0, "message": message, "finish_reason": "stop"}
                return self.good(text, choices=[choice])

    def error(self, message):
        """Give the body of an error reply."""
        match self.adapter:
            case "anthropic":
                return {"type": "error", "error": {"type": "api_error", "message": message}}
            case "google":
                return {"error": {"code": 400, "status": "INTERNAL", "message": message}}
            case _:
                return {"error": {"message": message, "type": "error", "code": None}}


PROVIDERS = {
    "openai": Provider("openai", "/chat/completions"),
    "anthropic": Provider("anthropic", "/v1/messages"),
    "google": Provider("google", "/v1beta/models/acme-std:generateContent"),
    "compatible": Provider("compatible", "/chat/completions"),
}


@pytest.fixture(params=sorted(PROVIDERS))
def provider(request):
    return PROVIDERS[request.param]


@pytest.fixture
def providers():
    return PROVIDERS


@pytest.fixture
def serve() -> Iterator[object]:
    """Open a server that answers by a script."""
    with ExitStack() as stack:

        def start(*script, **how):
            return stack.enter_context(ScriptedServer(script, **how))

        yield start


@pytest.fixture
def keys(monkeypatch):
    """Put a key into the environment for every adapter that wants one."""

    def put(key):
        for name in ("OPENAI_API_KEY", "ANTHROPIC_API_KEY", "GOOGLE_API_KEY"):
            monkeypatch.setenv(name, key)

    put("sk-none")
    return put


@pytest.fixture
def written(tmp_path):
    """Write a campaign: `texts` are the items, and each judge a mapping over the usual one."""

    def write(judges, texts=("Bern", "Rome", "Oslo"), **sections):
        items = "".join(
            json.dumps({"id": f"i{n}", "reply": text}) + "\n" for n, text in enumerate(texts)
        )
        (tmp_path / "items.jsonl").write_text(items, encoding="utf-8")
        usual = {
            "model": "acme-std",
            "price_usd_per_1m": {"input": 2.0, "output": 10.0},
            "params": {"max_output_tokens": 100},
            "max_attempts": 1,
            "timeouts": {"attempt": "5s", "connect": "5s", "max_wait": "1s"},
        }
        campaign = {
            "version": 1,
            "name": "guarded",
            "seed": 5,
            "data": {"path": "items.jsonl", "id": "id", "fields": {"candidate": "reply"}},
            "judges": [{"name": judge["adapter"], **usual, **judge} for judge in judges],
            "task": {
                "kind": "rate",
                "scale": {"type": "integer", "min": 1, "max": 5},
                "output": {"reason": "after"},
            },
            "policy": {"kind": "uniform", "max_repeats": 1},
            "budget": {"usd": 5},
            "output": {"formats": ["html", "md", "csv", "jsonl", "parquet"]},
            **sections,
        }
        path = tmp_path / "campaign.yaml"
        path.write_text(json.dumps(campaign, ensure_ascii=False), encoding="utf-8")
        return path

    return write


@pytest.fixture
def in_a_process(tmp_path):
    """Run several commands in one process; gives their exit codes, output and chatter, as bytes."""

    def run(*commands, prelude="", **environment):
        keep = {k: v for k, v in os.environ.items() if k.lower() not in PROXIES}
        done = subprocess.run(
            [
                sys.executable,
                *(["-X", "utf8=0"] if "PYTHONIOENCODING" in environment else []),
                "-c",
                COMMANDS.format(prelude=prelude),
                json.dumps([[str(word) for word in words] for words in commands]),
            ],
            cwd=tmp_path,
            env=keep | {"PYTHONPATH": str(ROOT)} | environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=60,
            check=False,
        )
        ended = [line.split() for line in done.stderr.splitlines() if line.startswith(b"ended ")]
        return [int(code) for _, code, *_ in ended], done.stdout, done.stderr

    return run


@pytest.fixture
def left_over(tmp_path):
    """Give everything that is in the folder but what the user wrote, by path, as it can be read."""
    own = {"campaign.yaml", "items.jsonl", ".env", "more.env"}

    def read():
        found = {}
        for path in sorted(tmp_path.rglob("*")):
            name = str(path.relative_to(tmp_path))
            if not path.is_file() or name in own:
                continue
            found[name] = path.read_bytes()
            if path.suffix == ".parquet":
                from pyarrow import parquet  # noqa: PLC0415  # compressed, so bytes alone say little

                found[f"{name} read"] = str(parquet.read_table(path).to_pydict()).encode()
        return found

    return read


@pytest.fixture
def holding():
    """Say where any of several secrets stands: as it is, percent-encoded or in base64."""

    def find(found, *secrets):
        spelt = {form for secret in secrets for form in _spellings(secret)}
        return {(name, form) for name, data in found.items() for form in spelt if form in data}

    return find


def _spellings(secret):
    plain = secret.encode()
    yield from (plain, quote(secret, safe="").encode(), secret.encode("utf-16-le"))
    for n_before in range(3):
        # Three bytes are four characters: what stands before decides where a secret begins.
        coded = b64encode(b"\0" * n_before + plain + b"\0" * 3)
        inner = coded[-(-n_before * 8 // 6) : (n_before + len(plain)) * 8 // 6]
        yield from (inner, inner.translate(bytes.maketrans(b"+/", b"-_")))
