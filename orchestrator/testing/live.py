"""The contract of an adapter that speaks to a provider, against a server that says what we tell it.

A provider's test subclasses `LiveContract` and gives what the provider's replies look like; requests
are counted at the server. The whole test of a provider beyond its own shapes::

    class TestOpenAI(LiveContract):
        path = "/chat/completions"
        good = {"choices": [...], "usage": {...}}
        usages = {"cached": ({"prompt_tokens": ..., ...}, Usage(...)), ...}

        def make(self, setting):
            return OpenAIJudge(OpenAIConfig(), setting)

        def with_usage(self, usage):
            return {**self.good, "usage": usage}

        def refusal(self, status, message):
            return {"error": {"message": message, "code": ...}}
"""

from __future__ import annotations

import logging
import socket
import traceback
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace
from typing import Any, ClassVar
from urllib.parse import quote

import anyio
import pytest

from orchestrator.core.errors import (
    Ambiguous,
    BadCredentials,
    BadRequest,
    Disconnected,
    InvalidCampaign,
    JudgeError,
    Overloaded,
    QuotaExhausted,
    RateLimited,
    TimedOut,
    TooLong,
    UnknownModel,
    Unreachable,
)
from orchestrator.core.frame import Frame
from orchestrator.core.ids import JudgeIx, UnitIx
from orchestrator.core.money import cost
from orchestrator.core.ports import JudgeSetting
from orchestrator.core.query import Kind, MissingReason, Query, Role
from orchestrator.core.scale import Criterion, Scale, ScaleType
from orchestrator.core.seeds import Seeds
from orchestrator.core.study import Study
from orchestrator.core.wire import (
    FIRST_ATTEMPT,
    Billing,
    Chat,
    Finish,
    Json,
    Reply,
    Request,
    Text,
    Usage,
)
from orchestrator.testing.adapters import AdapterContract
from orchestrator.testing.server import Fault, Say, ScriptedServer

KEY = "sk-CANARY-0123456789"
PASSWORD = "pw/CANARY:9876543210"  # noqa: S105  # a bait
LAST_WEDNESDAY = "Wed, 25 Nov 2026 10:00:00 GMT"
HALF_A_MINUTE_LATER = "Wed, 25 Nov 2026 10:00:30 GMT"

STUDY = Study(
    kind=Kind.RATE,
    frame=Frame.of(("a", "b", "c"), ("",)),
    panel=(),
    criteria=(Criterion(name="score", scale=Scale(type=ScaleType.INTEGER, low=1, high=5)),),
    seeds=Seeds(7),
)
SCHEMA: dict[str, Json] = {
    "type": "object",
    "properties": {"score": {"type": "integer", "minimum": 1, "maximum": 5}},
    "required": ["score"],
    "additionalProperties": False,
}


def asked(*texts: str, max_output_tok: int = 400) -> Request:
    """A request of texts, the stable prefix first."""
    return Request(
        query=Query(kind=Kind.RATE, judge=JudgeIx(0), units=(UnitIx(0),)),
        attempt=FIRST_ATTEMPT,
        parts=tuple(Text(text=text) for text in texts),
        max_output_tok=max_output_tok,
        schema=SCHEMA,
    )


def posed(prompt: str | Chat) -> Request:
    """A question to a system under test: a prompt, and no verdict whose form is asked for."""
    query = Query(kind=Kind.GENERATE, role=Role.SYSTEM, judge=JudgeIx(0), units=(UnitIx(0),))
    part = prompt if isinstance(prompt, Chat) else Text(text=prompt)
    return replace(asked(), query=query, parts=(part,), schema={})


class LiveContract(AdapterContract, ABC):
    """What every adapter of a provider keeps to; a test overrides what follows.

    path : what the adapter appends to `base_url`; `{model}` stands for the model's name
    model : a model that takes the routes and parameters that are tested
    good : the body of a complete reply whose verdict is `verdict`, with usage
    verdict : the text of the verdict in `good`
    request_id : the id in `good` or `good_headers`
    served_model : the model in `good`
    good_headers : headers of `good`
    usages : for each shape of usage its block as the provider writes it, and its classes
    contradictions : usage blocks that can't be true
    unfinished : complete replies (200) that hold no answer and are no refusal either
    unreadable : bodies that are no reply of the provider's at all
    frees_500 : whether the provider says that a 500 costs nothing
    quota : (status, body) of the refusal when quota or credit is used up
    """

    path: ClassVar[str]
    model: ClassVar[str] = "acme-std"
    good: ClassVar[Json]
    verdict: ClassVar[str] = '{"score": 4}'
    request_id: ClassVar[str]
    served_model: ClassVar[str]
    good_headers: ClassVar[Mapping[str, str]] = {}
    usages: ClassVar[Mapping[str, tuple[Json, Usage]]]
    contradictions: ClassVar[Mapping[str, Json]]
    unfinished: ClassVar[Mapping[str, Json]]
    unreadable: ClassVar[Sequence[bytes]] = (
        b"",
        b"item text {",
        b"\xff\xfe\x00",
        b'"item text"',
        b"[]",
        b"null",
        b"{}",
        b"7",
    )
    frees_500: ClassVar[bool] = False
    quota: ClassVar[tuple[int, Json]]

    @abstractmethod
    def make(self, setting: JudgeSetting) -> Any:
        """Make the adapter."""

    @abstractmethod
    def with_usage(self, usage: Json) -> Json:
        """`good` with another usage block; None leaves it out."""

    @abstractmethod
    def refusal(self, status: int, message: str) -> Json:
        """The provider's error body for a status; `message` is its own word."""

    # --- what is set up --------------------------------------------------------------------------

    @pytest.fixture(autouse=True)
    def _no_network(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """Let connections go to the loopback alone, and past the proxies of this machine."""
        connect = socket.socket.connect

        def on_loopback(self: socket.socket, address: Any) -> None:
            assert address[0] in ("127.0.0.1", "::1"), f"a test opened a connection to {address}"
            connect(self, address)

        monkeypatch.setattr(socket.socket, "connect", on_loopback)
        for name in ("http_proxy", "https_proxy", "all_proxy", "no_proxy"):
            monkeypatch.delenv(name, raising=False)
            monkeypatch.delenv(name.upper(), raising=False)

    @pytest.fixture
    def server(self) -> Iterator[ScriptedServer]:
        """A server that gives good replies until it is told to say something else."""
        with ScriptedServer([self.say_good()]) as server:
            yield server

    @pytest.fixture
    def adapter(self, server: ScriptedServer) -> Any:
        """An adapter that asks the server."""
        return self.at(server)

    @pytest.fixture
    def requests(self) -> Sequence[Request]:
        """Requests of several lengths, all longer than what `good` was asked."""
        prefix = "rate " * 8_000
        return [
            asked(*texts, max_output_tok=8_000)
            for texts in ((prefix,), (prefix, "x"), (prefix, "漢字 " * 50))
        ]

    @pytest.fixture
    def attempts(self, server: ScriptedServer) -> Callable[[Any], int]:
        """Attempts as the server counts them."""
        return lambda _adapter: server.n_requests

    @pytest.fixture
    def failing(self) -> Iterator[Sequence[Any]]:
        """Adapters that are refused, left alone, and told what can't be read."""
        script = (
            Say(status=401, body=self.refusal(401, "no")),
            Say(status=503, body=self.refusal(503, "no")),
            Say(fault=Fault.DROPPED),
            Say(body=b"no"),
        )
        with ExitStack() as stack:
            servers = [stack.enter_context(ScriptedServer([say])) for say in script]
            yield [self.at(server) for server in servers]

    @pytest.fixture
    def hanging(self, server: ScriptedServer) -> Any:
        """An adapter whose server never answers."""
        server.say(Say(fault=Fault.SILENT))
        return self.at(server)

    def say_good(self) -> Say:
        """The good reply."""
        return Say(body=self.good, headers=self.good_headers)

    def setting(self, base_url: str, **changes: Any) -> JudgeSetting:
        """A setting of a judge at an address."""
        setting = JudgeSetting(
            name="jury",
            judge=JudgeIx(0),
            study=STUDY,
            max_output_tok=400,
            model=self.model,
            base_url=base_url,
            api_key=KEY,
        )
        return replace(setting, **changes)

    def at(self, server: ScriptedServer, **changes: Any) -> Any:
        """Make an adapter that asks a server."""
        return self.make(self.setting(server.url, **changes))

    def failure(self, server: ScriptedServer, *script: Say, **changes: Any) -> JudgeError:
        """Ask once, and give the error; exactly one request must have arrived."""
        server.say(*script)
        with pytest.raises(JudgeError) as failed:
            _send(self.at(server, **changes), asked("rate", "x"))
        assert server.n_requests == 1
        return failed.value

    # --- good replies ----------------------------------------------------------------------------

    def test_a_reply_says_what_was_answered_and_by_whom(self, server: ScriptedServer) -> None:
        """The verdict, the model that gave it, and the provider's name of the call."""
        reply = _send(self.at(server), asked("rate", "x"))
        assert reply.text == self.verdict
        assert reply.finish is Finish.STOP
        assert reply.served_model == self.served_model
        assert reply.request_id == self.request_id
        assert reply.flags == ()
        assert self.model in f"{server.seen[0].target} {server.seen[0].body.decode()}"

    def test_usage_is_read_in_disjoint_classes(self, server: ScriptedServer) -> None:
        """Every shape of usage gives its classes, costs something, and fits the ceiling."""
        request = asked("rate", "x" * 40_000, max_output_tok=8_000)
        for shape, (usage, classes) in self.usages.items():
            server.say(Say(body=self.with_usage(usage)))
            adapter = self.at(server)
            reply = _send(adapter, request)
            assert reply.usage == classes, shape
            assert 0 < cost(classes, self.card) <= adapter.ceiling(request, self.card), shape

    def test_an_answer_without_usage_counts(self, server: ScriptedServer) -> None:
        """C11: unknown usage is not zero; the hold will be charged."""
        server.say(Say(body=self.with_usage(None)))
        reply = _send(self.at(server), asked("rate", "x"))
        assert (reply.text, reply.usage) == (self.verdict, None)

    def test_usage_that_contradicts_itself_counts_as_missing(self, server: ScriptedServer) -> None:
        """No bill is made of numbers that can't be true, and the answer says so."""
        for name, usage in self.contradictions.items():
            server.say(Say(body=self.with_usage(usage)))
            reply = _send(self.at(server), asked("rate", "x"))
            assert (reply.text, reply.usage) == (self.verdict, None), name
            assert reply.flags == ("usage_inconsistent",), name

    # --- refusals and faults ---------------------------------------------------------------------

    @pytest.mark.parametrize(
        ("status", "error", "billing"),
        [
            (400, BadRequest, Billing.NO),
            (401, BadCredentials, Billing.NO),
            (402, QuotaExhausted, Billing.NO),
            (403, BadCredentials, Billing.NO),
            (404, UnknownModel, Billing.NO),
            (408, TimedOut, Billing.UNKNOWN),
            (409, BadRequest, Billing.NO),
            (413, TooLong, Billing.NO),
            (422, BadRequest, Billing.NO),
            (429, RateLimited, Billing.NO),
            (502, Disconnected, Billing.UNKNOWN),
            (503, Overloaded, Billing.NO),
            (504, TimedOut, Billing.UNKNOWN),
            (529, Overloaded, Billing.NO),
            (307, BadRequest, Billing.NO),
        ],
    )
    def test_a_refusal_says_what_it_means(
        self, server: ScriptedServer, status: int, error: type[JudgeError], billing: Billing
    ) -> None:
        """C13: each refusal is one request, of its own kind, with its bill and the server's word."""
        body = self.refusal(status, "word of the provider")
        failure = self.failure(server, Say(status=status, body=body))
        assert (type(failure), failure.billing) == (error, billing)
        assert "word of the provider" in str(failure)
        assert str(status) in str(failure)

    def test_a_500_is_free_only_by_the_providers_word(self, server: ScriptedServer) -> None:
        """C13: one request, and charged until proven free."""
        failure = self.failure(server, Say(status=500, body=self.refusal(500, "oops")))
        expected = (Overloaded, Billing.NO) if self.frees_500 else (Ambiguous, Billing.UNKNOWN)
        assert (type(failure), failure.billing) == expected
        assert failure.reason is MissingReason.SERVER_ERROR

    def test_a_refusal_that_is_no_json_is_understood(self, server: ScriptedServer) -> None:
        """A gateway's page of HTML, or nothing at all, means what its status says."""
        for body in (b"<html><h1>Bad Gateway</h1>", b"", b"\xff\xfe", b"null", b'{"error": 7}'):
            failure = self.failure(server, Say(status=503, body=body))
            assert (type(failure), failure.billing) == (Overloaded, Billing.NO)
            assert "\n" not in str(failure)

    def test_a_long_message_is_kept_in_part(self, server: ScriptedServer) -> None:
        """A provider can't flood the log, or write lines of its own into it."""
        said = "first\nsecond \x1b[31m" + "long " * 1000
        failure = self.failure(server, Say(status=400, body=self.refusal(400, said)))
        assert "first second [31mlong" in str(failure)
        assert len(str(failure)) <= 500

    @pytest.mark.parametrize(
        ("headers", "wait_s"),
        [
            ({"Retry-After": "7"}, 7.0),
            ({"retry-after-ms": "1500"}, 1.5),
            ({"retry-after-ms": "1500", "Retry-After": "2"}, 1.5),
            ({"retry-after-ms": "soon", "Retry-After": "2"}, 2.0),
            ({"Retry-After": HALF_A_MINUTE_LATER, "Date": LAST_WEDNESDAY}, 30.0),
            ({"Retry-After": HALF_A_MINUTE_LATER}, None),
            ({"Retry-After": "120"}, 120.0),
            ({"Retry-After": "7200"}, 7200.0),
            ({"Retry-After": "-5"}, None),
            ({"Retry-After": "soon"}, None),
            ({}, None),
        ],
    )
    def test_how_long_a_server_asks_to_wait_is_heard(
        self, server: ScriptedServer, headers: Mapping[str, str], wait_s: float | None
    ) -> None:
        """C14: in all forms, by the server's clock, and never cut short."""
        for status in (429, 503):
            say = Say(status=status, body=self.refusal(status, "slower"), headers=headers)
            assert self.failure(server, say).retry_after_s == wait_s

    def test_what_can_never_succeed_parks_the_judge(self, server: ScriptedServer) -> None:
        """C15: used-up credit, a bad key and an unknown model are one request each."""
        quota_status, quota_body = self.quota
        for status, body, error in (
            (quota_status, quota_body, QuotaExhausted),
            (401, self.refusal(401, "word of the provider"), BadCredentials),
            (404, self.refusal(404, "word of the provider"), UnknownModel),
        ):
            failure = self.failure(server, Say(status=status, body=body))
            assert type(failure) is error
            assert failure.parks_judge

    @pytest.mark.parametrize(
        ("fault", "error"),
        [(Fault.SILENT, TimedOut), (Fault.DROPPED, Disconnected), (Fault.CUT, Disconnected)],
    )
    def test_no_complete_reply_may_have_been_billed(
        self, server: ScriptedServer, fault: Fault, error: type[JudgeError]
    ) -> None:
        """C13, C17: silence and broken connections are one request, charged until proven free."""
        failure = self.failure(server, Say(body=self.good, fault=fault), attempt_s=0.3)
        assert (type(failure), failure.billing) == (error, Billing.UNKNOWN)

    def test_a_slow_reply_is_waited_for(self, server: ScriptedServer) -> None:
        """C05: within the deadline of the attempt, one request and one answer."""
        server.say(Say(body=self.good, headers=self.good_headers, delay_s=0.3))
        assert _send(self.at(server), asked("rate", "x")).text == self.verdict
        assert server.n_requests == 1

    def test_without_a_connection_nothing_is_billed(self) -> None:
        """Where nobody listens, no byte of the request left."""
        with socket.create_server(("127.0.0.1", 0)) as listener:
            port = listener.getsockname()[1]
        with pytest.raises(Unreachable) as failed:
            _send(self.make(self.setting(f"http://127.0.0.1:{port}")), asked("rate", "x"))
        assert failed.value.billing is Billing.NO

    def test_an_unreadable_reply_was_billed(self, server: ScriptedServer) -> None:
        """C13: a 200 that holds no answer is charged, and its text is in no message."""
        for body in [*self.unreadable, *self.unfinished.values()]:
            failure = self.failure(server, Say(body=body))
            assert failure.billing is Billing.YES, body
            assert failure.reason is MissingReason.SERVER_ERROR
            assert "item text" not in str(failure)

    # --- what goes out ---------------------------------------------------------------------------

    def test_texts_of_all_scripts_arrive(self, server: ScriptedServer) -> None:
        """C23: the body is UTF-8, a lone surrogate is U+FFFD, and headers are ASCII."""
        text = "Größe ✓ 漢字 🏳️\u200d🌈 \u2028 \x00 lone \ud800!"
        _send(self.at(server, name="Richter ✓"), asked("rate", text))
        (seen,) = server.seen
        assert any(text.replace("\ud800", "\ufffd") in said for said in _strings(seen.json))
        for name, value in seen.headers.items():
            assert (name + value).isascii()

    def test_a_key_that_fits_no_header_is_refused_when_built(self, server: ScriptedServer) -> None:
        """C23: and the message does not say the key."""
        for key in ("sk-✓", "sk-a\nb", "sk-\x00"):
            with pytest.raises(InvalidCampaign) as refused:
                self.at(server, api_key=key)
            assert key not in str(refused.value)
            assert "jury" in str(refused.value)

    @pytest.mark.parametrize("prefix", ["", "/", "/gate/way", "/gate/way/"])
    def test_the_address_is_joined_right(self, server: ScriptedServer, prefix: str) -> None:
        """C42: with and without a slash at the end, and with a path in front."""
        _send(self.make(self.setting(server.url + prefix)), asked("rate", "x"))
        path = self.path.format(model=self.model)
        assert [seen.path for seen in server.seen] == [prefix.rstrip("/") + path]
        assert server.seen[0].method == "POST"

    def test_an_address_that_is_none_is_refused_when_built(self) -> None:
        """C42: and not quoted, since it may hold a password."""
        for url in ("ftp://u:CANARY@h/v1", "u:CANARY@h/v1", "http://", "CANARY", "http://h/?a=b"):
            with pytest.raises(InvalidCampaign) as refused:
                self.make(self.setting(url))
            assert "CANARY" not in str(refused.value)

    def test_proxies_of_the_environment_are_used(
        self, server: ScriptedServer, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """C42: HTTPS_PROXY is asked for a tunnel, and NO_PROXY names whom it does not serve."""
        server.say(Say(status=502, body=b""))
        monkeypatch.setenv("HTTPS_PROXY", server.url)
        with pytest.raises(Unreachable) as failed:
            _send(self.make(self.setting("https://judge.test/v1")), asked("rate", "x"))
        assert failed.value.billing is Billing.NO
        assert [(seen.method, seen.target) for seen in server.seen] == [
            ("CONNECT", "judge.test:443")
        ]
        server.say(self.say_good())
        monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:1")
        monkeypatch.setenv("NO_PROXY", "127.0.0.1")
        assert _send(self.at(server), asked("rate", "x")).text == self.verdict

    # --- secrets ---------------------------------------------------------------------------------

    def test_secrets_show_nowhere(
        self, server: ScriptedServer, caplog: pytest.LogCaptureFixture
    ) -> None:
        """C32: a server that echoes what it was sent gets neither key nor password into a message."""
        caplog.set_level(logging.DEBUG)
        host = server.url.removeprefix("http://")
        with_password = f"http://user:{quote(PASSWORD, safe='')}@{host}/v1"
        for base_url in (server.url, with_password):
            setting = self.setting(base_url)
            adapter = self.make(setting)
            server.say(self.say_good())
            _send(adapter, asked("rate", "x"))
            sent = dict(server.seen[0].headers)
            secrets = {KEY, *sent.get("authorization", "").split()[1:]}
            secrets |= {PASSWORD, quote(PASSWORD, safe="")} if base_url == with_password else set()
            shown = [repr(adapter), repr(setting).replace(base_url, "")]
            for echo in (*sorted(secrets), base_url, *(f"{k}: {v}" for k, v in sent.items())):
                said = f"bad {echo}"
                replies = (
                    Say(status=401, body=self.refusal(401, said)),
                    Say(status=500, body=said.encode()),
                    Say(body=said.encode()),
                )
                shown += [self._shown(adapter, server, reply) for reply in replies]
            shown.append(self._shown(adapter, server, Say(fault=Fault.DROPPED)))
            nobody = self.make(self.setting(base_url.replace(host, "127.0.0.1:1")))
            shown += [self._shown(nobody, server), caplog.text]
            for text in shown:
                assert "CANARY" not in text
                assert not any(secret in text for secret in secrets)

    def _shown(self, adapter: Any, server: ScriptedServer, *script: Say) -> str:
        """Ask in vain, and give all that a crash would show."""
        server.say(*script)
        with pytest.raises(JudgeError) as failed:
            _send(adapter, asked("rate", "x"))
        return repr(failed.value) + "".join(traceback.format_exception(failed.value))


def _send(adapter: Any, request: Request) -> Reply:
    async def main() -> Reply:
        with anyio.fail_after(20):
            try:
                reply = await adapter.send(request)
            finally:
                await adapter.aclose()
        assert isinstance(reply, Reply)
        return reply

    return anyio.run(main)


def _strings(value: Json) -> Iterator[str]:
    match value:
        case str():
            yield value
        case dict():
            for inner in value.values():
                yield from _strings(inner)
        case list():
            for inner in value:
                yield from _strings(inner)
        case _:
            pass
