"""Whole campaigns at a server on the loopback that speaks as each provider does.

Requests are counted, and bills are written, where they arrive.
"""

from __future__ import annotations

import importlib
import json
import os
import re
import socket
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import ClassVar

import pytest
from tenacity import wait_exponential_jitter

from orchestrator import Campaign
from orchestrator.core.money import PriceCard, cost
from orchestrator.core.wire import Finish, Usage
from orchestrator.engine import attempts
from orchestrator.store.sqlite import SqliteReader
from orchestrator.testing.server import Say, ScriptedServer

HERE = Path(__file__).parent

ACME = {
    "input": 2.0,
    "cached_input": 0.2,
    "cache_write_5m": 2.5,
    "cache_write_1h": 4.0,
    "output": 10.0,
}
"""USD per million tokens."""
CARD = PriceCard(
    input=2_000_000,
    cached_input=200_000,
    cache_write_5m=2_500_000,
    cache_write_1h=4_000_000,
    output=10_000_000,
)
SHORT = Usage(input_tok=300, output_tok=20)


@dataclass(frozen=True, kw_only=True)
class Answer:
    """What a provider's model says; `usage` None leaves it out of the reply."""

    text: str = '{"score": 4}'
    finish: Finish = Finish.STOP
    usage: Usage | None = SHORT
    alternatives: tuple[tuple[str, float], ...] = ()
    served: str = "acme-2026-01-01"
    headers: dict[str, str] = field(default_factory=dict)
    delay_s: float = 0.0


# --- how each provider writes -------------------------------------------------------------------


class ChatCompletions:
    adapter = "openai"
    model = "gpt-4o-mini"
    own: ClassVar = {"api": "chat"}
    at = ""
    quota = (429, {"error": {"message": "no credit", "type": "insufficient_quota", "code": None}})
    limit = "max_completion_tokens"

    def reply(self, answer):
        message = {"role": "assistant", "content": answer.text, "refusal": None}
        if answer.finish is Finish.REFUSED:
            message |= {"content": None, "refusal": "I can't help with that."}
        finish = {Finish.LENGTH: "length", Finish.BLOCKED: "content_filter"}
        choice = {
            "index": 0,
            "message": message,
            "finish_reason": finish.get(answer.finish, "stop"),
            "logprobs": None,
        }
        if answer.alternatives:
            choice["logprobs"] = {"content": [self.token(answer)]}
        body = {
            "id": "chatcmpl-1",
            "object": "chat.completion",
            "model": answer.served,
            "choices": [choice],
        }
        return body if answer.usage is None else body | {"usage": self.usage(answer.usage)}

    def token(self, answer):
        top = [{"token": token, "logprob": p, "bytes": None} for token, p in answer.alternatives]
        return {**top[0], "top_logprobs": top}

    def usage(self, usage):
        prompt = usage.input_tok + usage.cached_input_tok + usage.cache_write_5m_tok
        return {
            "prompt_tokens": prompt,
            "completion_tokens": usage.output_tok,
            "total_tokens": prompt + usage.output_tok,
            "prompt_tokens_details": {"cached_tokens": usage.cached_input_tok},
            "completion_tokens_details": {"reasoning_tokens": usage.reasoning_tok},
        }

    def refusal(self, status, message):
        return {"error": {"message": message, "type": "some_error", "param": None, "code": None}}

    def limit_of(self, body):
        return body[self.limit]


class Compatible(ChatCompletions):
    adapter = "compatible"
    model = "acme-std"
    own: ClassVar = {}
    limit = "max_tokens"


class Responses(ChatCompletions):
    own: ClassVar = {"api": "responses"}
    limit = "max_output_tokens"

    def reply(self, answer):
        part = {"type": "output_text", "text": answer.text, "annotations": []}
        if answer.alternatives:
            part["logprobs"] = [self.token(answer)]
        if answer.finish is Finish.REFUSED:
            part = {"type": "refusal", "refusal": "I can't help with that."}
        why = {Finish.LENGTH: "max_output_tokens", Finish.BLOCKED: "content_filter"}.get(
            answer.finish
        )
        said = {"type": "message", "role": "assistant", "content": [part]}
        body = {
            "id": "resp-1",
            "object": "response",
            "model": answer.served,
            "status": "incomplete" if why else "completed",
            "incomplete_details": {"reason": why} if why else None,
            "output": [{"type": "reasoning", "id": "rs-1", "summary": []}, said],
        }
        return body if answer.usage is None else body | {"usage": self.usage(answer.usage)}

    def usage(self, usage):
        prompt = usage.input_tok + usage.cached_input_tok + usage.cache_write_5m_tok
        return {
            "input_tokens": prompt,
            "input_tokens_details": {"cached_tokens": usage.cached_input_tok},
            "output_tokens": usage.output_tok,
            "output_tokens_details": {"reasoning_tokens": usage.reasoning_tok},
            "total_tokens": prompt + usage.output_tok,
        }


class Anthropic:
    adapter = "anthropic"
    model = "claude-haiku-4-5"
    own: ClassVar = {}
    at = ""
    quota = (
        429,
        {
            "type": "error",
            "error": {
                "type": "rate_limit_error",
                "message": "no credit",
                "details": {"error_code": "enforced_spend_limit_reached"},
            },
        },
    )

    def reply(self, answer):
        reasons = {Finish.LENGTH: "max_tokens", Finish.REFUSED: "refusal"}
        return {
            "id": "msg_1",
            "type": "message",
            "role": "assistant",
            "model": answer.served,
            "content": [{"type": "text", "text": answer.text}] if answer.text else [],
            "stop_reason": reasons.get(answer.finish, "end_turn"),
            "stop_sequence": None,
        } | ({} if answer.usage is None else {"usage": self.usage(answer.usage)})

    def usage(self, usage):
        return {
            "input_tokens": usage.input_tok,
            "cache_read_input_tokens": usage.cached_input_tok,
            "cache_creation_input_tokens": usage.cache_write_5m_tok + usage.cache_write_1h_tok,
            "cache_creation": {
                "ephemeral_5m_input_tokens": usage.cache_write_5m_tok,
                "ephemeral_1h_input_tokens": usage.cache_write_1h_tok,
            },
            "output_tokens": usage.output_tok,
        }

    def refusal(self, status, message):
        return {"type": "error", "error": {"type": "some_error", "message": message}}

    def limit_of(self, body):
        return body["max_tokens"]


class Google:
    adapter = "google"
    model = "gemini-2.5-flash"
    own: ClassVar = {}
    at = ""
    quota = (
        429,
        {
            "error": {
                "code": 429,
                "message": "no credit",
                "status": "RESOURCE_EXHAUSTED",
                "details": [
                    {
                        "@type": "type.googleapis.com/google.rpc.QuotaFailure",
                        "violations": [{"quotaId": "GenerateRequestsPerDayPerProjectPerModel"}],
                    }
                ],
            }
        },
    )

    def reply(self, answer):
        reasons = {
            Finish.LENGTH: "MAX_TOKENS",
            Finish.REFUSED: "SAFETY",
            Finish.BLOCKED: "SAFETY",
        }
        candidate = {"finishReason": reasons.get(answer.finish, "STOP"), "index": 0}
        if answer.text:
            candidate["content"] = {"role": "model", "parts": [{"text": answer.text}]}
        if answer.alternatives:
            top = [{"token": token, "logProbability": p} for token, p in answer.alternatives]
            candidate["logprobsResult"] = {
                "chosenCandidates": top[:1],
                "topCandidates": [{"candidates": top}],
            }
        body = {"candidates": [candidate], "modelVersion": answer.served, "responseId": "r-1"}
        return body if answer.usage is None else body | {"usageMetadata": self.usage(answer.usage)}

    def usage(self, usage):
        prompt = usage.input_tok + usage.cached_input_tok
        return {
            "promptTokenCount": prompt,
            "cachedContentTokenCount": usage.cached_input_tok,
            "candidatesTokenCount": usage.output_tok - usage.reasoning_tok,
            "thoughtsTokenCount": usage.reasoning_tok,
            "totalTokenCount": prompt + usage.output_tok,
        }

    def refusal(self, status, message):
        return {"error": {"code": status, "message": message, "status": "SOME_ERROR"}}

    def limit_of(self, body):
        return body["generationConfig"]["maxOutputTokens"]


class Python:
    adapter = "python"
    model = "acme-std"
    own: ClassVar = {"call": "loopback_function:ask"}
    at = ""

    def reply(self, answer):
        body = {"text": answer.text, "model": answer.served}
        if answer.finish is not Finish.STOP:
            body["finish"] = str(answer.finish)
        if answer.usage is not None:
            body["usage"] = {
                "input": answer.usage.input_tok,
                "cached_input": answer.usage.cached_input_tok,
                "output": answer.usage.output_tok,
            }
        return body

    def refusal(self, status, message):
        return message

    def limit_of(self, body):
        return body["max_tokens"]


SDKS = {"openai": ["openai"], "anthropic": ["anthropic"], "google": ["google.genai.client"]}
PROVIDERS = {
    "chat": ChatCompletions(),
    "responses": Responses(),
    "anthropic": Anthropic(),
    "google": Google(),
    "compatible": Compatible(),
    "python": Python(),
}


# --- the server ---------------------------------------------------------------------------------


@dataclass
class Drip:
    """A reply of which a byte comes each 50 ms."""

    say: Say

    def over(self, connection, closing):
        def sendall(data):
            for byte in data:
                connection.sendall(bytes([byte]))
                closing.wait(0.05)

        return SimpleNamespace(sendall=sendall)


class Provider(ScriptedServer):
    """A server that answers each request by `answer`, and knows when it came and what it billed.

    `answer` is called with the request and its number, from 1, and gives an `Answer` or a `Say`.
    It is called for one request at a time.
    """

    def __init__(self, speaks):
        self.speaks = speaks
        self.arrived: list[float] = []
        self.answered: list[float] = []
        self.bill = 0
        self.under_way = self.most_under_way = 0
        self.answer = lambda seen, n: Answer()
        self.drips = lambda seen: False
        self.hangs_up = False
        super().__init__(keeps_alive=True)

    def _next(self, seen):
        with self._lock:
            self.seen.append(seen)
            self.arrived.append(time.monotonic())
            self.under_way += 1
            self.most_under_way = max(self.most_under_way, self.under_way)
            said = self.answer(seen, len(self.seen))
            if isinstance(said, Answer):
                self.bill += 0 if said.usage is None else cost(said.usage, CARD)
                said = self.say_of(said)
            return Drip(said) if self.drips(seen) else said

    def _answer(self, connection, say):
        try:
            if isinstance(say, Drip):
                connection = say.over(connection, self._closing)
                say = say.say
            super()._answer(connection, say)
            if self.hangs_up:
                raise ConnectionAbortedError  # and read nothing that came meanwhile
        finally:
            with self._lock:
                self.under_way -= 1
                self.answered.append(time.monotonic())

    def say_of(self, answer):
        return Say(body=self.speaks.reply(answer), headers=answer.headers, delay_s=answer.delay_s)

    def refuse(self, status, message="word of the provider", **how):
        return Say(status=status, body=self.speaks.refusal(status, message), **how)

    def requests_by_item(self):
        return Counter(map(item_of, self.seen))


def item_of(seen):
    """The number of the item that a request asks about."""
    return int(re.search(rb"item-(\d+);", seen.body)[1])


def strings_of(value):
    """All texts in a JSON value."""
    match value:
        case str():
            yield value
        case dict():
            for inner in value.values():
                yield from strings_of(inner)
        case list():
            for inner in value:
                yield from strings_of(inner)


# --- campaigns ----------------------------------------------------------------------------------


@dataclass
class Ran:
    """How a run ended."""

    directory: Path
    code: int = 0
    err: str = ""

    @property
    def result(self):
        return json.loads((self.directory / "result.json").read_text(encoding="utf-8"))

    @property
    def events(self):
        reader = SqliteReader(self.directory)
        found = [row.event for row in reader.read()]
        reader.close()
        return found

    def of(self, kind):
        return [event for event in self.events if isinstance(event, kind)]

    @property
    def spend(self):
        return self.result["spend"]


@dataclass
class Bench:
    """A provider, its server, and campaigns at both."""

    speaks: object
    server: Provider
    home: Path
    sortition: object
    monkeypatch: object
    n_runs: int = 0

    def judge(self, name="jury", **keys):
        """A judge of this provider, as a campaign file writes it."""
        speaks = self.speaks
        where = {"base_url": self.server.url + speaks.at, "api_key_env": "LIVE_KEY"}
        return {
            "name": name,
            "adapter": speaks.adapter,
            "model": speaks.model,
            **({} if speaks.adapter == "python" else where),
            **({speaks.adapter: speaks.own} if speaks.own else {}),
            "params": {"max_output_tokens": 500},
            "price_usd_per_1m": ACME,
            "limits": {"concurrency": 4},
            **keys,
        }

    def file(self, *judges, n_items=6, texts=None, task=None, **sections):
        """Write a campaign file; without judges there is one, `jury`."""
        texts = texts or [f"item-{n}; some words" for n in range(n_items)]
        rows = [{"id": f"i{n}", "reply": text} for n, text in enumerate(texts)]
        data = "".join(json.dumps(row) + "\n" for row in rows)
        (self.home / "items.jsonl").write_text(data, encoding="utf-8")
        written = {
            "version": 1,
            "name": "live",
            "seed": 3,
            "data": {"path": "items.jsonl", "id": "id", "fields": {"candidate": "reply"}},
            "judges": list(judges or [self.judge()]),
            "task": {
                "kind": "rate",
                "scale": {"type": "integer", "min": 1, "max": 5},
                **(task or {}),
            },
            "policy": {"kind": "uniform", "max_repeats": 1},
            "budget": {"usd": 50.0},
            "output": {"formats": []},
            **sections,
        }
        file = self.home / "campaign.yaml"
        file.write_text(json.dumps(written), encoding="utf-8")  # JSON is YAML
        return file

    def run(self, *judges, observe=None, **sections):
        """Run a campaign from Python, in a new directory."""
        campaign = Campaign.from_yaml(self.file(*judges, **sections))
        directory = self.new_directory()
        result = campaign.run(directory, observe=observe)
        return Ran(directory, result.exit_code)

    def command(self, *judges, words=(), **sections):
        """Run a campaign by the command, in a new directory."""
        file, directory = self.file(*judges, **sections), self.new_directory()
        code, _, err = self.sortition(
            "run", file, "--run-dir", directory, "-y", "--display", "none", *words
        )
        return Ran(directory, code, err)

    def ran(self):
        """A run that someone else carries out."""
        return Ran(self.new_directory())

    def new_directory(self):
        self.n_runs += 1
        return self.home / f"run{self.n_runs}"

    def verify(self, ran):
        """The log agrees with its replay."""
        code, out, err = self.sortition("verify", ran.directory)
        assert code == 0, out + err
        assert "agrees" in out


@pytest.fixture(autouse=True)
def _no_network(monkeypatch):
    """Let connections go to the loopback alone, and past the proxies of this machine."""
    connect = socket.socket.connect

    def on_loopback(self, address):
        assert address[0] == "127.0.0.1", f"a test opened a connection to {address}"
        return connect(self, address)

    monkeypatch.setattr(socket.socket, "connect", on_loopback)
    for name in [name for name in os.environ if name.lower().endswith("_proxy")]:
        monkeypatch.delenv(name)


@pytest.fixture(autouse=True)
def _short_pauses(monkeypatch):
    """Pauses that double as always, and a fiftieth as long at most 0.1 s."""
    monkeypatch.setattr(
        attempts, "BACKOFF", wait_exponential_jitter(initial=0.02, max=0.1, jitter=0.02)
    )


@pytest.fixture
def speaks(request):
    """How the provider writes that a test is about."""
    return PROVIDERS[getattr(request, "param", "compatible")]


@pytest.fixture
def bench(speaks, sortition, tmp_path, monkeypatch):
    monkeypatch.setenv("LIVE_KEY", "sk-live-0123456789")
    monkeypatch.setenv("OTHER_KEY", "sk-other-0123456789")
    monkeypatch.syspath_prepend(HERE)
    # An SDK is imported within the first attempt, whose time is short here.
    for name in SDKS.get(speaks.adapter, ()):
        importlib.import_module(name)
    with Provider(speaks) as server:
        monkeypatch.setenv("LOOPBACK_URL", server.url)
        yield Bench(speaks, server, tmp_path, sortition, monkeypatch)


@pytest.fixture
def kit():
    """Values and functions that the tests share."""
    return SimpleNamespace(
        Answer=Answer, CARD=CARD, ACME=ACME, SHORT=SHORT, item_of=item_of, strings_of=strings_of
    )
