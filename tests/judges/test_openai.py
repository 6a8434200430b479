import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import ClassVar

import anyio
import httpx2
import pytest

from judges import chat_completions
from judges.openai import PLUGIN, OpenAIConfig, OpenAIJudge, read_response, read_responses_usage
from orchestrator.core.errors import Blocked, ConfigError, InvalidCampaign, JudgeError
from orchestrator.core.money import NANO_PER_USD, PriceCard, cost
from orchestrator.core.ports import Decoding
from orchestrator.core.wire import Billing, Chat, Finish, Image, Route, Text, Turn, Usage
from orchestrator.testing.live import SCHEMA, LiveContract, asked, posed
from orchestrator.testing.server import Say

ROOT = Path(__file__).parents[2]
ACME = PriceCard(
    input=2_000_000,
    cached_input=200_000,
    cache_write_5m=2_500_000,
    cache_write_1h=4_000_000,
    output=10_000_000,
)
CHAT_USAGE = {
    "prompt_tokens": 10_000,
    "completion_tokens": 500,
    "total_tokens": 10_500,
    "prompt_tokens_details": {"cached_tokens": 8_000, "audio_tokens": 0},
    "completion_tokens_details": {"reasoning_tokens": 300},
}
CHAT = {
    "id": "chatcmpl-1",
    "object": "chat.completion",
    "model": "acme-std-2026-01-01",
    "choices": [
        {
            "index": 0,
            "message": {"role": "assistant", "content": '{"score": 4}', "refusal": None},
            "finish_reason": "stop",
            "logprobs": None,
        }
    ],
    "usage": CHAT_USAGE,
}
RESPONSE = {
    "id": "resp-1",
    "object": "response",
    "model": "acme-std-2026-01-01",
    "status": "completed",
    "error": None,
    "incomplete_details": None,
    "output": [
        {"type": "reasoning", "id": "rs-1", "summary": []},
        {
            "type": "message",
            "role": "assistant",
            "status": "completed",
            "content": [{"type": "output_text", "text": '{"score": 4}', "annotations": []}],
        },
    ],
    "usage": {
        "input_tokens": 10_000,
        "input_tokens_details": {"cached_tokens": 8_000, "cache_write_tokens": 0},
        "output_tokens": 500,
        "output_tokens_details": {"reasoning_tokens": 300},
        "total_tokens": 10_500,
    },
}
REASONED = Usage(input_tok=2_000, cached_input_tok=8_000, output_tok=500, reasoning_tok=300)


def choice(**changes):
    return {**CHAT, "choices": [{**CHAT["choices"][0], **changes}]}


def message(**changes):
    return choice(message={**CHAT["choices"][0]["message"], **changes})


class OpenAIContract(LiveContract):
    request_id = "req-7"
    good_headers: ClassVar = {"x-request-id": "req-7"}
    served_model = "acme-std-2026-01-01"
    quota = (
        429,
        {
            "error": {
                "message": "You exceeded your current quota, please check your plan and billing.",
                "type": "insufficient_quota",
                "param": None,
                "code": "insufficient_quota",
            }
        },
    )

    def refusal(self, status, message):
        error = {"message": message, "type": "some_error", "param": None, "code": None}
        return {"error": error}


class TestChat(OpenAIContract):
    path = "/chat/completions"
    good: ClassVar = CHAT
    usages: ClassVar = {
        "cached and reasoning": (CHAT_USAGE, REASONED),
        "plain": (
            {"prompt_tokens": 120, "completion_tokens": 9, "total_tokens": 129},
            Usage(input_tok=120, output_tok=9),
        ),
        "written to the cache": (
            {
                "prompt_tokens": 9_000,
                "completion_tokens": 9,
                "total_tokens": 9_009,
                "prompt_tokens_details": {"cached_tokens": 2_000, "cache_write_tokens": 6_000},
            },
            Usage(input_tok=1_000, cached_input_tok=2_000, cache_write_5m_tok=6_000, output_tok=9),
        ),
        "null details": (
            {
                "prompt_tokens": 120,
                "completion_tokens": 9,
                "total_tokens": None,
                "prompt_tokens_details": None,
                "completion_tokens_details": {"reasoning_tokens": None},
            },
            Usage(input_tok=120, output_tok=9),
        ),
    }
    contradictions: ClassVar = {
        "more cached than sent": {**CHAT_USAGE, "prompt_tokens_details": {"cached_tokens": 10_001}},
        "more reasoning than output": {
            **CHAT_USAGE,
            "completion_tokens_details": {"reasoning_tokens": 501},
        },
        "another total": {**CHAT_USAGE, "total_tokens": 10_501},
        "negative": {"prompt_tokens": 10, "completion_tokens": -1, "total_tokens": 9},
        "a text for nothing": {"prompt_tokens": 10, "completion_tokens": 0, "total_tokens": 10},
        "an answer to nothing": {"prompt_tokens": 0, "completion_tokens": 5, "total_tokens": 5},
        "no whole number": {"prompt_tokens": 10.0, "completion_tokens": 5, "total_tokens": 15},
        "true": {"prompt_tokens": 10, "completion_tokens": True},
        "empty": {},
        "a number": 7,
        "a list": [1],
        "details that are none": {**CHAT_USAGE, "prompt_tokens_details": 5},
    }
    unfinished: ClassVar = {
        "no finish reason": choice(finish_reason=None),
        "an unknown one": choice(finish_reason="abort"),
        "no choice": {**CHAT, "choices": []},
        "no message": choice(message=None),
        "an error": {"error": {"message": "item text", "code": 502}},
    }

    def make(self, setting):
        return OpenAIJudge(OpenAIConfig(), setting)

    def with_usage(self, usage):
        return {**CHAT, "usage": usage}

    @pytest.mark.parametrize(
        ("status", "error", "kind", "billing"),
        [
            (400, {"code": "context_length_exceeded"}, "TooLong", Billing.NO),
            (400, {"code": "content_policy_violation"}, "Blocked", Billing.NO),
            (400, {"code": "invalid_prompt"}, "Blocked", Billing.NO),
            (400, {"code": "content_filter"}, "Blocked", Billing.YES),
            (403, {"message": "Your credit balance is too low"}, "QuotaExhausted", Billing.NO),
            (400, {"code": "unsupported_value"}, "BadRequest", Billing.NO),
        ],
    )
    def test_a_code_says_more_than_its_status(self, server, status, error, kind, billing):
        """An error says by its code what its status leaves open."""
        body = {"error": {"message": "no", "type": "invalid_request_error", **error}}
        failure = self.failure(server, Say(status=status, body=body))
        assert (type(failure).__name__, failure.billing) == (kind, billing)

    def test_parameters_go_out_under_the_names_that_the_model_takes(self, server):
        """C43 a: the right field the first time; what the model refuses is left out and flagged."""
        decoding = Decoding(temperature=0.0, top_p=0.9, seed=7, extra={"reasoning_effort": "low"})
        reply = send(self.at(server, model="o3", decoding=decoding), asked("rate", "x"))
        assert reply.flags == ("dropped:temperature", "dropped:top_p")
        assert server.seen[0].json == {
            "model": "o3",
            "messages": [
                {"role": "system", "content": "rate"},
                {"role": "user", "content": "x"},
            ],
            "max_completion_tokens": 400,
            "seed": 7,
            "reasoning_effort": "low",
            "service_tier": "default",
            "store": False,
            "response_format": {
                "type": "json_schema",
                "json_schema": {"name": "give_verdict", "strict": True, "schema": SCHEMA},
            },
        }

    def test_strict_parameters_are_refused_when_built(self, server):
        """C43 b: with strict_params nothing is left out in silence, and nothing is sent."""
        decoding = Decoding(temperature=0.0, is_strict=True)
        with pytest.raises(ConfigError):
            self.at(server, model="o3", decoding=decoding)
        assert server.n_requests == 0


class TestResponses(OpenAIContract):
    path = "/responses"
    good: ClassVar = RESPONSE
    usages: ClassVar = {
        "cached and reasoning": (RESPONSE["usage"], REASONED),
        "written to the cache": (
            {
                **RESPONSE["usage"],
                "input_tokens_details": {"cached_tokens": 1_000, "cache_write_tokens": 6_000},
            },
            Usage(
                input_tok=3_000,
                cached_input_tok=1_000,
                cache_write_5m_tok=6_000,
                output_tok=500,
                reasoning_tok=300,
            ),
        ),
        "plain": ({"input_tokens": 120, "output_tokens": 9}, Usage(input_tok=120, output_tok=9)),
    }
    contradictions: ClassVar = {
        "more cached than sent": {
            **RESPONSE["usage"],
            "input_tokens_details": {"cached_tokens": 9_000, "cache_write_tokens": 2_000},
        },
        "another total": {**RESPONSE["usage"], "total_tokens": 1},
        "in the words of the other interface": CHAT_USAGE,
    }
    unfinished: ClassVar = {
        "in progress": {**RESPONSE, "status": "in_progress"},
        "failed": {**RESPONSE, "status": "failed", "error": {"message": "item text"}},
        "cut for another reason": {
            **RESPONSE,
            "status": "incomplete",
            "incomplete_details": {"reason": "steered"},
        },
        "no output": {**RESPONSE, "output": None},
    }

    def make(self, setting):
        return OpenAIJudge(OpenAIConfig(api="responses"), setting)

    def with_usage(self, usage):
        return {**RESPONSE, "usage": usage}

    def test_a_request_asks_for_the_form_and_stores_nothing(self, server):
        """What Responses has no field for, a seed, is left out and flagged."""
        decoding = Decoding(seed=7, extra={"text": {"verbosity": "low"}})
        reply = send(self.at(server, decoding=decoding), asked("rate", "x"))
        assert reply.flags == ("dropped:seed",)
        form = {"type": "json_schema", "name": "give_verdict", "strict": True, "schema": SCHEMA}
        assert server.seen[0].json == {
            "model": "acme-std",
            "input": [{"role": "system", "content": "rate"}, {"role": "user", "content": "x"}],
            "max_output_tokens": 400,
            "service_tier": "default",
            "store": False,
            "text": {"format": form, "verbosity": "low"},
        }


def send(adapter, request):
    return anyio.run(adapter.send, request)


def judge(api="chat", **changes):
    setting = replace(TestChat().setting("http://127.0.0.1:1/v1"), **changes)
    return OpenAIJudge(OpenAIConfig(api=api), setting)


def read(said, read=chat_completions.read):
    return read(httpx2.Response(200, json=said), flags=())


# --- money -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "usage",
    [chat_completions.read_usage(CHAT_USAGE), read_responses_usage(RESPONSE["usage"])],
)
def test_reasoning_is_billed_once_and_cached_input_at_its_own_price(usage):
    """C07: $0.0106 exactly; 2,000 at $2, 8,000 at $0.20 and 500 at $10 a million."""
    assert cost(usage, ACME) == 10_600_000 == 106 * NANO_PER_USD // 10_000


def test_what_is_written_to_the_cache_is_billed_at_its_own_price():
    """1,000 at $2, 2,000 at $0.20, 6,000 at $2.50 and 9 at $10 a million: $0.01749."""
    usage, _ = TestChat.usages["written to the cache"]
    assert cost(chat_completions.read_usage(usage), ACME) == 17_490_000


# --- forms of the verdict ----------------------------------------------------------------------


def test_a_forced_call_gives_its_arguments():
    """The call's arguments are the verdict, in both interfaces; identical ones count once."""
    call = {"id": "c", "type": "function", "function": {"name": "give_verdict", "arguments": "{}"}}
    called = message(content=None, tool_calls=[call])
    assert read(called).text == "{}"
    item = {"type": "function_call", "call_id": "c", "name": "give_verdict", "arguments": "{}"}
    assert read({**RESPONSE, "output": [item]}, read_response).text == "{}"

    said = judge(route=Route.TOOL).body(asked("rate", "x"))
    assert said["tool_choice"] == {"type": "function", "function": {"name": "give_verdict"}}
    assert said["tools"][0]["function"]["parameters"] == SCHEMA
    assert said["parallel_tool_calls"] is False
    said = judge("responses", route=Route.TOOL).body(asked("rate", "x"))
    assert said["tool_choice"] == {"type": "function", "name": "give_verdict"}
    assert said["tools"][0]["parameters"] == SCHEMA


@pytest.mark.parametrize("api", ["chat", "responses"])
def test_text_asks_for_no_form(api):
    said = judge(api, route=Route.TEXT).body(asked("rate", "x"))
    assert not {"response_format", "text", "tools", "logprobs", "include"} & said.keys()


@pytest.mark.parametrize(("api", "said"), [("chat", "messages"), ("responses", "input")])
def test_a_system_is_asked_as_anyone_would_ask_it(api, said):
    """Its prompt is one message of the user's, or a conversation; nothing asks for a form."""
    system = judge(api, route=Route.TEXT)
    body = system.body(posed(" 2+2?\n"))
    assert body.pop(said) == [{"role": "user", "content": " 2+2?\n"}]
    limit = "max_completion_tokens" if api == "chat" else "max_output_tokens"
    assert body == {"model": "acme-std", "service_tier": "default", "store": False, limit: 400}

    roles = ("system", "user", "assistant", "user")
    turns = tuple(Turn(role=role, content=f"{n}") for n, role in enumerate(roles))
    body = system.body(posed(Chat(turns=turns)))
    assert body[said] == [{"role": turn.role, "content": turn.content} for turn in turns]


def test_an_answer_comes_back_whole():
    """White space and what looks like a verdict are part of it."""
    text = ' \n{"score": 4}\n</verdict> 42\n\n'
    assert read(message(content=text)).text == text
    part = {"type": "output_text", "text": text, "annotations": []}
    said = {**RESPONSE, "output": [{"type": "message", "content": [part]}]}
    assert read(said, read_response).text == text


def test_alternatives_are_those_at_the_verdict():
    """Blank tokens before the verdict are none of it."""
    tokens = [
        {"token": "\n", "logprob": -0.1, "top_logprobs": [{"token": "\n", "logprob": -0.1}]},
        {
            "token": "4",
            "logprob": -0.5,
            "top_logprobs": [{"token": "4", "logprob": -0.5}, {"token": "5", "logprob": -1.25}],
        },
        {"token": "!", "logprob": 0.0, "top_logprobs": []},
    ]
    both = (("4", -0.5), ("5", -1.25))
    assert read(choice(logprobs={"content": tokens})).alternatives == both
    part = {"type": "output_text", "text": "\n4!", "logprobs": tokens}
    said = {**RESPONSE, "output": [{"type": "message", "content": [part]}]}
    assert read(said, read_response).alternatives == both

    said = judge(model="gpt-4o", route=Route.LOGPROB).body(asked("rate", "x"))
    assert (said["logprobs"], said["top_logprobs"]) == (True, 20)
    said = judge("responses", model="gpt-4o", route=Route.LOGPROB).body(asked("rate", "x"))
    assert (said["include"], said["top_logprobs"]) == (["message.output_text.logprobs"], 20)


def test_fine_tuned_models_get_no_ranges():
    """They refuse what all others take; the type and the rest of the schema stay."""
    said = judge(model="ft:gpt-4o-mini:me::1").body(asked("rate", "x"))
    sent = said["response_format"]["json_schema"]["schema"]
    assert sent == {**SCHEMA, "properties": {"score": {"type": "integer"}}}


def test_pictures_and_turns_keep_their_order():
    parts = (
        Text(text="rate"),
        Text(text="this"),
        Image(media_type="image/png", data=b"\x89PNG"),
        Chat(turns=(Turn(role="assistant", content="hello"),)),
    )
    request = replace(asked(), parts=parts)
    url = "data:image/png;base64,iVBORw=="
    said = judge().body(request)["messages"]
    assert [m["role"] for m in said] == ["system", "user", "assistant"]
    assert said[1]["content"] == [
        {"type": "text", "text": "this"},
        {"type": "image_url", "image_url": {"url": url}},
    ]
    said = judge("responses").body(request)["input"]
    assert said[1]["content"][1] == {"type": "input_image", "image_url": url, "detail": "auto"}


# --- how replies end ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("said", "text", "finish"),
    [
        (choice(finish_reason="length"), '{"score": 4}', Finish.LENGTH),
        (message(content=""), "", Finish.STOP),
        (message(content=None, refusal="I can't."), "", Finish.REFUSED),
        (choice(finish_reason="content_filter"), '{"score": 4}', Finish.BLOCKED),
        (choice(finish_reason="tool_calls"), '{"score": 4}', Finish.STOP),
    ],
)
def test_how_a_chat_ends(said, text, finish):
    """A refusal, a filter and a cut are replies, and billed: their usage is read too."""
    reply = read(said)
    assert (reply.text, reply.finish) == (text, finish)
    if text:
        assert reply.usage == REASONED


def test_how_a_response_ends():
    refused = {"type": "message", "content": [{"type": "refusal", "refusal": "I can't."}]}
    cut = {"status": "incomplete", "incomplete_details": {"reason": "max_output_tokens"}}
    blocked = {"status": "incomplete", "incomplete_details": {"reason": "content_filter"}}
    for changes, finish in (
        ({"output": [refused]}, Finish.REFUSED),
        (cut, Finish.LENGTH),
        (blocked, Finish.BLOCKED),
    ):
        reply = read({**RESPONSE, **changes}, read_response)
        assert (reply.finish, reply.usage) == (finish, REASONED)


def test_a_remark_before_the_answer_is_not_the_answer():
    remark = {**RESPONSE["output"][1], "phase": "commentary"}
    said = {**RESPONSE, "output": [remark, *RESPONSE["output"]]}
    assert read(said, read_response).text == '{"score": 4}'


def test_a_reply_that_breaks_off_is_charged_by_its_usage():
    """Where the provider says what it counted, that is the bill, answer or not."""
    for said, reader in (
        (choice(finish_reason=None), chat_completions.read),
        ({**RESPONSE, "status": "failed"}, read_response),
    ):
        with pytest.raises(JudgeError) as broken:
            read(said, reader)
        assert (broken.value.billing, broken.value.usage) == (Billing.YES, REASONED)


# --- how it is built ---------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["n", "stream", "max_tokens", "model", "messages"])
def test_what_is_ours_is_not_set_by_parameters(name):
    """Several choices or another limit would cost more than was held."""
    with pytest.raises(InvalidCampaign, match=rf"params.extra.{name}"):
        judge(decoding=Decoding(extra={name: 2}))


def test_the_sdk_is_imported_at_the_first_attempt_alone():
    """To plan a campaign, or to read its report, costs no second for an SDK."""
    program = (
        "import sys; from tests.judges.test_openai import judge; judge();"
        "assert 'openai' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", program], check=True, cwd=ROOT)


def test_a_missing_sdk_is_told_when_built(monkeypatch):
    monkeypatch.setattr("judges.live.find_spec", lambda _name: None)
    with pytest.raises(InvalidCampaign, match=r"pip install 'sortition\[openai\]'"):
        judge()


def test_no_tokenizer_is_a_proven_bound():
    with pytest.raises(InvalidCampaign, match="input_bound"):
        judge(input_bound="tokenizer")


def test_the_block_of_the_campaign_file():
    assert PLUGIN.config.model_validate_json(json.dumps({"api": "responses"})).api == "responses"
    assert PLUGIN.build is OpenAIJudge
    assert issubclass(Blocked, JudgeError)
