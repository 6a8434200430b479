import json
import ssl
import subprocess
from typing import ClassVar

import anyio
import pytest

from judges.compatible import PLUGIN, CompatibleConfig, CompatibleJudge
from orchestrator.core.errors import InvalidCampaign, JudgeError, TooLong, Unreachable
from orchestrator.core.ports import Decoding
from orchestrator.core.wire import Billing, Chat, Finish, Route, Turn, Usage
from orchestrator.testing.live import SCHEMA, LiveContract, asked, posed
from orchestrator.testing.server import Say, ScriptedServer

USAGE = {"prompt_tokens": 224, "completion_tokens": 9, "total_tokens": 233}
GOOD = {
    "id": "chatcmpl-7",
    "model": "served-7b",
    "choices": [
        {"index": 0, "message": {"content": '{"score": 4}'}, "finish_reason": "stop"},
    ],
    "usage": USAGE,
}


def choice(**changes):
    return {**GOOD, "choices": [{**GOOD["choices"][0], **changes}]}


class TestCompatible(LiveContract):
    path = "/chat/completions"
    good: ClassVar = GOOD
    request_id = "chatcmpl-7"
    served_model = "served-7b"
    usages: ClassVar = {
        "plain": (USAGE, Usage(input_tok=224, output_tok=9)),
        "cached": (
            {**USAGE, "prompt_tokens_details": {"cached_tokens": 200}},
            Usage(input_tok=24, cached_input_tok=200, output_tok=9),
        ),
        "no total": (
            {"prompt_tokens": 224, "completion_tokens": 9},
            Usage(input_tok=224, output_tok=9),
        ),
        "reasoning on top of the completion": (
            {
                **USAGE,
                "total_tokens": 333,
                "completion_tokens_details": {"reasoning_tokens": 100},
            },
            Usage(input_tok=224, output_tok=109, reasoning_tok=100),
        ),
    }
    contradictions: ClassVar = {
        "another total": {**USAGE, "total_tokens": 232},
        "zeros": {"prompt_tokens": 0, "completion_tokens": 0, "total_tokens": 0},
    }
    unfinished: ClassVar = {
        "aborted": choice(finish_reason="abort"),
        "no reason": choice(finish_reason=None),
        "an error with status 200": {"error": {"message": "item text", "code": 502}},
    }
    quota = (402, {"error": {"code": 402, "message": "Insufficient credits"}})

    def make(self, setting):
        return CompatibleJudge(CompatibleConfig(), setting)

    def with_usage(self, usage):
        return {**GOOD, "usage": usage}

    def refusal(self, status, message):
        return {"error": {"message": message, "type": "some_error", "code": status}}

    def test_a_request_is_plain_chat_completions(self, server):
        """Parameters of one's own stand beside ours."""
        decoding = Decoding(temperature=0.5, seed=7, extra={"min_p": 0.1})
        reply = send(self.at(server, decoding=decoding, api_key=""), asked("rate", "x"))
        assert reply.flags == ()
        (seen,) = server.seen
        assert "authorization" not in seen.headers
        assert seen.headers["content-type"] == "application/json"
        assert seen.json == {
            "model": "acme-std",
            "messages": [
                {"role": "system", "content": "rate"},
                {"role": "user", "content": "x"},
            ],
            "max_tokens": 400,
            "temperature": 0.5,
            "seed": 7,
            "min_p": 0.1,
            "response_format": {
                "type": "json_schema",
                "json_schema": {"name": "give_verdict", "strict": True, "schema": SCHEMA},
            },
        }

    def test_headers_and_query_of_a_gateway_go_out(self, server, monkeypatch):
        """Values that a variable holds are secrets, and so are long ones in the file."""
        monkeypatch.setenv("GATE_TOKEN", "gate-CANARY")
        config = CompatibleConfig(
            headers={"X-Project": "jury", "api-key": "long-CANARY"},
            headers_env={"X-Gate": "GATE_TOKEN"},
            query={"api-version": "2026-10-21", "deployment": "ü"},
        )
        adapter = CompatibleJudge(config, self.setting(server.url + "/v1"))
        assert send(adapter, asked("rate")).text == '{"score": 4}'
        (seen,) = server.seen
        assert seen.headers["x-project"] == "jury"
        assert seen.headers["x-gate"] == "gate-CANARY"
        assert seen.headers["authorization"].startswith("Bearer sk-CANARY")
        assert seen.query == {"api-version": "2026-10-21", "deployment": "ü"}
        assert seen.path == "/v1/chat/completions"
        server.say(Say(status=400, body=self.refusal(400, f"jury {seen.headers}")))
        with pytest.raises(JudgeError) as failed:
            send(adapter, asked("rate"))
        assert "CANARY" not in str(failed.value)
        assert "jury" in str(failed.value)

    @pytest.mark.parametrize(
        ("body", "error"),
        [
            ({"error": {"code": 400, "type": "exceed_context_size_error"}}, TooLong),
            ({"object": "error", "message": "This model's maximum context length is 9"}, TooLong),
            ({"error": "the prompt exceeds the context window"}, TooLong),
        ],
    )
    def test_servers_say_in_their_own_ways_that_it_is_too_long(self, server, body, error):
        """llama.cpp by a code, vLLM by a message, Ollama by a mere text."""
        assert type(self.failure(server, Say(status=400, body=body))) is error

    def test_a_message_in_any_form_is_kept(self, server):
        """FastAPI's list of what is wrong is kept as it stands."""
        body = {"detail": [{"loc": ["body", "seed"], "msg": "must be >= 0"}]}
        failure = self.failure(server, Say(status=422, body=body))
        assert "must be >= 0" in str(failure)

    def test_a_private_authority_is_trusted_only_where_it_is_named(self, monkeypatch, tmp_path):
        """C42: SSL_CERT_FILE names it; without it the server is not spoken to."""
        certificate, key = tmp_path / "cert.pem", tmp_path / "key.pem"
        try:
            subprocess.run(
                ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256",
                 "-nodes", "-days", "1", "-subj", "/CN=judge", "-addext",
                 "subjectAltName=IP:127.0.0.1", "-keyout", key, "-out", certificate],
                check=True, capture_output=True,
            )  # fmt: skip
        except FileNotFoundError:
            pytest.skip("needs the command openssl")
        tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        tls.load_cert_chain(certificate, key)
        with ScriptedServer([self.say_good()], tls=tls) as server:
            with pytest.raises(Unreachable, match="certificate") as failed:
                send(self.at(server), asked("rate"))
            assert failed.value.billing is Billing.NO
            assert server.n_requests == 0
            monkeypatch.setenv("SSL_CERT_FILE", str(certificate))
            assert send(self.at(server), asked("rate")).text == '{"score": 4}'

    def test_a_system_is_asked_as_anyone_would_ask_it(self, server):
        """Nothing but its prompt goes out, a conversation by its roles; its answer comes back whole."""
        text = ' \n{"score": 4}\n</verdict> 42\n\n'
        turns = (Turn(role="system", content="be brief"), Turn(role="user", content=" 2+2?\n"))
        server.say(Say(body=choice(message={"content": text})))
        for prompt, sent in ((turns[1].content, turns[1:]), (Chat(turns=turns), turns)):
            assert send(self.at(server, route=Route.TEXT), posed(prompt)).text == text
            messages = [{"role": turn.role, "content": turn.content} for turn in sent]
            body = {"model": "acme-std", "max_tokens": 400, "messages": messages}
            assert server.seen[-1].json == body

    def test_forms_of_the_verdict(self, server):
        """A forced call, a label with its alternatives, and content in parts are read alike."""
        call = {"function": {"name": "give_verdict", "arguments": '{"score": 2}'}}
        parts = [{"type": "thinking", "thinking": []}, {"type": "text", "text": "5"}]
        top = [{"token": "3", "logprob": -0.25}]
        tokens = [{"token": "3", "logprob": -0.25, "top_logprobs": top}]
        for route, said, text, others in (
            (Route.TOOL, choice(message={"tool_calls": [call]}), '{"score": 2}', ()),
            (Route.TEXT, choice(message={"content": parts}), "5", ()),
            (Route.LOGPROB, choice(logprobs={"content": tokens}), '{"score": 4}', (("3", -0.25),)),
        ):
            server.say(Say(body=said))
            reply = send(self.at(server, route=route), asked("rate"))
            assert (reply.text, reply.alternatives) == (text, others)
            assert reply.finish is Finish.STOP

    def test_connections_are_kept_and_never_more_than_calls(self):
        """Many calls at a time share few connections, split over clients of at most 25."""
        with ScriptedServer([self.say_good()], keeps_alive=True) as server:
            adapter = self.at(server, concurrency=60)

            async def main():
                for _ in range(2):
                    async with anyio.create_task_group() as tasks:
                        for _ in range(60):
                            tasks.start_soon(adapter.send, asked("rate"))
                lanes = adapter._lanes
                await adapter.aclose()
                return lanes

            lanes = anyio.run(main)
            assert len(lanes) == 3
            assert all(lane.n_busy == 0 for lane in lanes)
            assert server.n_requests == 120
            assert server.n_connections <= 60


def send(adapter, request):
    return anyio.run(adapter.send, request)


def made(config, base_url="http://127.0.0.1:1", **changes):
    return CompatibleJudge(config, TestCompatible().setting(base_url, **changes))


def test_a_server_has_an_address():
    with pytest.raises(InvalidCampaign, match="base_url"):
        made(CompatibleConfig(), base_url=None)


def test_an_unset_variable_is_named_when_built():
    """C15 d: before anything is sent."""
    with pytest.raises(InvalidCampaign, match="GATE_TOKEN is not set"):
        made(CompatibleConfig(headers_env={"X-Gate": "GATE_TOKEN"}))


@pytest.mark.parametrize(
    "headers", [{"X Y": "a"}, {"X\n": "a"}, {"": "a"}, {"Ü": "a"}, {"X": "ü-CANARY"}, {"X": "a\nb"}]
)
def test_a_header_that_can_not_be_sent_is_refused_when_built(headers):
    """C23: by its name, never by its value."""
    with pytest.raises(InvalidCampaign, match=r"compatible\.headers") as refused:
        made(CompatibleConfig(headers=headers))
    assert "CANARY" not in str(refused.value)


def test_what_is_ours_is_not_set_by_parameters():
    with pytest.raises(InvalidCampaign, match=r"params\.extra\.n"):
        made(CompatibleConfig(), decoding=Decoding(extra={"n": 2}))


def test_the_block_of_the_campaign_file():
    block = {"headers": {"A": "b"}, "headers_env": {"C": "D"}, "query": {"e": "f"}}
    assert PLUGIN.config.model_validate_json(json.dumps(block)).query == {"e": "f"}
    assert PLUGIN.build is CompatibleJudge
