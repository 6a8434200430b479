import json
import subprocess
import sys
from typing import ClassVar

import anyio
import pytest

from judges.anthropic import ADDED_TOK, AnthropicConfig, AnthropicJudge, taken
from judges.chat_completions import TOOL
from orchestrator.core import errors
from orchestrator.core.errors import ConfigError, InvalidCampaign
from orchestrator.core.money import PriceCard, cost
from orchestrator.core.ports import Decoding
from orchestrator.core.wire import Billing, Chat, Finish, Image, Request, Route, Turn, Usage
from orchestrator.testing.live import LiveContract, asked, posed
from orchestrator.testing.server import Fault, Say

GOOD = {
    "id": "msg_1",
    "type": "message",
    "role": "assistant",
    "model": "claude-acme-20261001",
    "content": [
        {"type": "thinking", "thinking": "Let me see.", "signature": "c2ln"},
        {"type": "text", "text": '{"score": 4}'},
    ],
    "stop_reason": "end_turn",
    "stop_sequence": None,
    "usage": {"input_tokens": 120, "output_tokens": 9},
}

ACME = PriceCard(
    input=2_000_000,
    cached_input=200_000,
    cache_write_5m=2_500_000,
    cache_write_1h=4_000_000,
    output=10_000_000,
)


def split(for_5m, for_1h):
    return {"ephemeral_5m_input_tokens": for_5m, "ephemeral_1h_input_tokens": for_1h}


def replied(**changes):
    return {**GOOD, **changes}


class TestAnthropic(LiveContract):
    path = "/v1/messages"
    model = "claude-sonnet-4-5"
    good = GOOD
    good_headers: ClassVar = {"request-id": "req_1"}
    request_id = "req_1"
    served_model = "claude-acme-20261001"
    quota = (
        429,
        {
            "type": "error",
            "error": {
                "type": "rate_limit_error",
                "message": "monthly limit",
                "details": {"error_code": "enforced_spend_limit_reached"},
            },
        },
    )
    usages: ClassVar = {
        "plain": ({"input_tokens": 120, "output_tokens": 9}, Usage(input_tok=120, output_tok=9)),
        "absent classes are null": (
            {
                "input_tokens": 120,
                "output_tokens": 9,
                "cache_creation": None,
                "cache_creation_input_tokens": None,
                "cache_read_input_tokens": None,
                "output_tokens_details": None,
            },
            Usage(input_tok=120, output_tok=9),
        ),
        "all read from the cache": (
            {"input_tokens": 0, "cache_read_input_tokens": 9_000, "output_tokens": 400},
            Usage(cached_input_tok=9_000, output_tok=400),
        ),
        "written for five minutes": (
            {
                "input_tokens": 120,
                "cache_creation_input_tokens": 6_000,
                "cache_creation": split(6_000, 0),
                "cache_read_input_tokens": 9_000,
                "output_tokens": 400,
            },
            Usage(input_tok=120, cached_input_tok=9_000, cache_write_5m_tok=6_000, output_tok=400),
        ),
        "written without saying for how long": (
            {"input_tokens": 120, "cache_creation_input_tokens": 6_000, "output_tokens": 400},
            Usage(input_tok=120, cache_write_5m_tok=6_000, output_tok=400),
        ),
        "thinking is output already": (
            {
                "input_tokens": 120,
                "output_tokens": 700,
                "output_tokens_details": {"thinking_tokens": 600},
            },
            Usage(input_tok=120, output_tok=700, reasoning_tok=600),
        ),
    }
    contradictions: ClassVar = {
        "negative": {"input_tokens": -1, "output_tokens": 9},
        "no input at all": {"output_tokens": 9},
        "no output for a text": {"input_tokens": 120, "output_tokens": 0},
        "more thinking than output": {
            "input_tokens": 120,
            "output_tokens": 9,
            "output_tokens_details": {"thinking_tokens": 10},
        },
        "cache writes that don't add up": {
            "input_tokens": 120,
            "cache_creation_input_tokens": 6_000,
            "cache_creation": split(5_000, 500),
            "output_tokens": 9,
        },
        "cache writes in no sum": {
            "input_tokens": 120,
            "cache_creation": split(5_000, 500),
            "output_tokens": 9,
        },
        "text for a number": {"input_tokens": "120", "output_tokens": 9},
        "no block": 7,
    }
    unfinished: ClassVar = {
        "no stop reason": replied(stop_reason=None),
        "a stop reason for other tools": replied(stop_reason="pause_turn"),
        "no content": {k: v for k, v in GOOD.items() if k != "content"},
        "content of no form": replied(content="item text"),
        "a stream": b'event: message_start\ndata: {"item text"}\n\n',
    }

    def make(self, setting, cache="5m"):
        return AnthropicJudge(AnthropicConfig(cache=cache), setting)

    def with_usage(self, usage):
        said = {k: v for k, v in GOOD.items() if k != "usage"}
        return said if usage is None else said | {"usage": usage}

    def refusal(self, status, message):
        return {"type": "error", "error": {"type": f"kind_{status}", "message": message}}

    def reply_to(self, server, body, request=None, *, cache="5m", **changes):
        server.say(Say(body=body))
        judge = self.make(self.setting(server.url, **changes), cache)
        return anyio.run(judge.send, request or asked("rate", "x"))

    def sent(self, server, request=None, *, cache="5m", **changes):
        self.reply_to(server, GOOD, request, cache=cache, **changes)
        (seen,) = server.seen
        return seen.json

    # --- what a call costs

    def test_cache_reads_and_writes_are_priced_by_themselves(self, server):
        """C08: a read costs a tenth of input; a write its own price, and is no input besides."""
        usage = {
            "input_tokens": 120,
            "cache_creation_input_tokens": 6_000,
            "cache_read_input_tokens": 9_000,
            "output_tokens": 400,
        }
        for ttl, written, nano in (
            ("5m", split(6_000, 0), 21_040_000),
            ("1h", split(0, 6_000), 30_040_000),
            ("5m", None, 21_040_000),
            ("1h", None, 30_040_000),
        ):
            block = usage | {"cache_creation": written}
            reply = self.reply_to(server, self.with_usage(block), cache=ttl)
            assert cost(reply.usage, ACME) == nano

    def test_each_write_is_priced_by_what_the_provider_says(self, server):
        """Whatever was asked for, the split counts; without one and unasked, the dearer price does."""
        usage = {"input_tokens": 1, "cache_creation_input_tokens": 5, "output_tokens": 9}
        both = usage | {"cache_creation": split(2, 3)}
        reply = self.reply_to(server, self.with_usage(both), cache="none")
        assert reply.usage == Usage(
            input_tok=1, cache_write_5m_tok=2, cache_write_1h_tok=3, output_tok=9
        )
        reply = self.reply_to(server, self.with_usage(usage), cache="none")
        assert reply.usage == Usage(input_tok=1, cache_write_1h_tok=5, output_tok=9)

    def test_a_ceiling_counts_only_writes_that_are_asked_for(self):
        """Without caching no token can cost more than plain input."""
        request = asked("rate", "x")
        ceilings = [
            self.make(self.setting("http://h"), cache).ceiling(request, ACME)
            for cache in ("none", "5m", "1h")
        ]
        output = 400 * 10_000_000
        tokens = (ceilings[0] * 1000 - output) / 2_000_000
        assert [round((c * 1000 - output) / tokens) for c in ceilings] == [
            2_000_000,
            2_500_000,
            4_000_000,
        ]

    @pytest.mark.parametrize("route", [Route.SCHEMA, Route.TOOL, Route.TEXT])
    def test_a_ceiling_covers_all_bytes_of_text_that_are_sent(self, server, route):
        """Every text and the schema as it is sent, and what the provider adds, fit the ceiling."""
        nullable = {"type": ["integer", "null"], "minimum": 1, "maximum": 5, "description": "漢字"}
        request = asked("rate ✓", "漢字 " * 50)
        schema = request.schema | {"properties": {f"c{n}": nullable for n in range(60)}}
        request = Request(
            query=request.query,
            attempt=request.attempt,
            parts=request.parts,
            max_output_tok=1,
            schema=schema,
        )
        sent = self.sent(server, request, route=route)
        match route:
            case Route.SCHEMA:
                form = json.dumps(sent["output_config"]["format"]["schema"], ensure_ascii=False)
            case Route.TOOL:
                form = json.dumps(sent["tools"][0]["input_schema"], ensure_ascii=False)
            case _:
                form = ""
        n_bytes = sum(len(text.encode()) for text in (form, *(p.text for p in request.parts)))
        judge = self.make(self.setting("http://h", route=route))
        assert judge.ceiling(request, PriceCard(input=1_000)) >= n_bytes + ADDED_TOK

    # --- what goes out

    def test_a_request_is_written_for_the_provider(self, server):
        """The stable prefix is the system's message and marked for the cache; the key is a bearer."""
        sent = self.sent(server, asked("rate", "x"))
        assert sent == {
            "model": "claude-sonnet-4-5",
            "max_tokens": 400,
            "system": [
                {
                    "type": "text",
                    "text": "rate",
                    "cache_control": {"type": "ephemeral", "ttl": "5m"},
                }
            ],
            "messages": [{"role": "user", "content": [{"type": "text", "text": "x"}]}],
            "output_config": {
                "format": {
                    "type": "json_schema",
                    "schema": {
                        "type": "object",
                        "properties": {
                            "score": {"type": "integer", "description": "{minimum: 1, maximum: 5}"}
                        },
                        "required": ["score"],
                        "additionalProperties": False,
                    },
                }
            },
        }
        assert server.seen[0].headers["authorization"].startswith("Bearer ")
        assert server.seen[0].headers["x-stainless-retry-count"] == "0"

    def test_the_prefix_is_kept_as_long_as_the_campaign_says(self, server):
        """An hour where it says so, and not at all where it says none."""
        sent = self.sent(server, cache="1h")
        assert sent["system"][0]["cache_control"] == {"type": "ephemeral", "ttl": "1h"}
        assert "cache_control" not in self.sent(server, cache="none")["system"][0]

    def test_pictures_and_conversations_are_sent(self, server):
        """A picture is sent as base64, and a conversation keeps its roles."""
        request = asked("rate", "x")
        turns = (Turn(role="user", content="hi"), Turn(role="assistant", content="ho"))
        parts = (*request.parts, Image(media_type="image/png", data=b"\x89"), Chat(turns=turns))
        request = Request(
            query=request.query,
            attempt=request.attempt,
            parts=parts,
            max_output_tok=400,
            schema=request.schema,
        )
        picture = {"type": "base64", "media_type": "image/png", "data": "iQ=="}
        assert self.sent(server, request)["messages"] == [
            {
                "role": "user",
                "content": [{"type": "text", "text": "x"}, {"type": "image", "source": picture}],
            },
            {"role": "user", "content": [{"type": "text", "text": "hi"}]},
            {"role": "assistant", "content": [{"type": "text", "text": "ho"}]},
        ]

    def test_a_system_is_asked_as_anyone_would_ask_it(self, server):
        """Nothing but its prompt goes out, a conversation by its roles; nothing is kept of it."""
        body = self.sent(server, posed(" 2+2?\n"), route=Route.TEXT)
        user = {"role": "user", "content": [{"type": "text", "text": " 2+2?\n"}]}
        assert body == {"model": "claude-sonnet-4-5", "max_tokens": 400, "messages": [user]}

    def test_a_conversation_that_a_system_continues_keeps_its_roles(self, server):
        """Its system's message stands where the provider wants it, unmarked: no other item has it."""
        roles = ("system", "user", "assistant", "user")
        chat = Chat(turns=tuple(Turn(role=role, content=f"{n}") for n, role in enumerate(roles)))
        body = self.sent(server, posed(chat), route=Route.TEXT, cache="1h")
        assert body["system"] == [{"type": "text", "text": "0"}]
        assert [m["role"] for m in body["messages"]] == [*roles[1:]]
        judges = [self.make(self.setting("http://h"), cache) for cache in ("none", "1h")]
        assert len({judge.ceiling(posed(chat), ACME) for judge in judges}) == 1

    def test_an_answer_comes_back_whole(self, server):
        """White space and what looks like a verdict are part of it."""
        text = ' \n{"score": 4}\n</verdict> 42\n\n'
        said = {**GOOD, "content": [{"type": "text", "text": text}]}
        assert self.reply_to(server, said, posed("2+2?"), route=Route.TEXT).text == text

    def test_parameters_that_the_model_takes_are_sent(self, server):
        """C43: temperature goes to a model that takes it; a seed to none, and the answer says so."""
        decoding = Decoding(temperature=0.5, seed=7)
        sent = self.sent(server, decoding=decoding)
        assert (sent["temperature"], "seed" in sent) == (0.5, False)
        reply = self.reply_to(server, GOOD, decoding=decoding, model="claude-opus-4-8")
        assert reply.flags == ("dropped:temperature", "dropped:seed")
        assert "temperature" not in server.seen[0].json

    def test_a_refused_parameter_is_an_error_where_it_must_be_kept(self):
        """C43: with strict_params nothing is sent that is not what was written."""
        decoding = Decoding(temperature=0.0, is_strict=True)
        with pytest.raises(ConfigError, match="temperature"):
            self.make(self.setting("http://h", decoding=decoding, model="claude-opus-4-8"))

    def test_parameters_of_ones_own_stand_beside_ours(self, server):
        """What the campaign adds is sent as it stands, also within an object that we write into."""
        extra = {"thinking": {"type": "adaptive"}, "output_config": {"effort": "low"}}
        sent = self.sent(server, decoding=Decoding(extra=extra))
        assert sent["thinking"] == {"type": "adaptive"}
        assert sent["output_config"].keys() == {"effort", "format"}

    @pytest.mark.parametrize("name", ["max_tokens", "system", "speed", "cache_control", "stream"])
    def test_what_changes_the_price_is_not_the_campaigns_to_set(self, name):
        """The hold would be no bound, or the reply none that is read."""
        with pytest.raises(InvalidCampaign, match=f"params.extra.{name}"):
            self.make(self.setting("http://h", decoding=Decoding(extra={name: 1})))

    def test_the_environment_changes_nothing(self, server, monkeypatch):
        """Neither another key nor another address is taken from the environment."""
        monkeypatch.setenv("ANTHROPIC_API_KEY", "other")
        monkeypatch.setenv("ANTHROPIC_AUTH_TOKEN", "other")
        monkeypatch.setenv("ANTHROPIC_BASE_URL", "http://127.0.0.1:1")
        self.sent(server)
        assert "other" not in str(server.seen[0].headers)

    # --- what comes back

    @pytest.mark.parametrize(
        ("reason", "finish"),
        [
            ("end_turn", Finish.STOP),
            ("stop_sequence", Finish.STOP),
            ("tool_use", Finish.STOP),
            ("max_tokens", Finish.LENGTH),
            ("model_context_window_exceeded", Finish.LENGTH),
            ("refusal", Finish.REFUSED),
        ],
    )
    def test_a_stop_reason_says_how_a_reply_ended(self, server, reason, finish):
        """C27: a cut answer is no verdict; and however it ended, it costs what it costs."""
        reply = self.reply_to(server, replied(stop_reason=reason))
        assert (reply.finish, reply.usage) == (finish, Usage(input_tok=120, output_tok=9))

    def test_a_refusal_is_billed_and_says_why(self, server):
        """The policy's category stands in the reply, and its usage is its price."""
        body = replied(
            content=[],
            stop_reason="refusal",
            stop_details={"type": "refusal", "category": "bio", "explanation": "item text"},
            usage={"input_tokens": 120, "output_tokens": 0},
        )
        reply = self.reply_to(server, body)
        assert (reply.finish, reply.flags) == (Finish.REFUSED, ("refused:bio",))
        assert reply.usage == Usage(input_tok=120)
        body["stop_details"] = {"type": "refusal", "category": None}
        assert self.reply_to(server, body).flags == ()

    def test_hidden_thinking_that_uses_up_the_limit_is_a_cut(self, server):
        """C27: empty content after 400 hidden tokens is truncated, and paid."""
        body = replied(
            content=[],
            stop_reason="max_tokens",
            usage={
                "input_tokens": 120,
                "output_tokens": 400,
                "output_tokens_details": {"thinking_tokens": 400},
            },
        )
        reply = self.reply_to(server, body)
        assert (reply.text, reply.finish, reply.usage.output_tok) == ("", Finish.LENGTH, 400)

    def test_nothing_said_is_empty(self, server):
        """A complete reply without text is no verdict."""
        assert self.reply_to(server, replied(content=[])).finish is Finish.EMPTY

    def test_a_stop_reason_of_the_future_costs_what_was_used(self, server):
        """What it means is not known; what it costs is."""
        failure = self.failure(server, Say(body=replied(stop_reason="pause_turn")))
        assert failure.usage == Usage(input_tok=120, output_tok=9)
        assert self.failure(server, Say(body=replied(stop_reason=None))).usage is None

    def test_a_forced_tool_gives_its_input(self, server):
        """The tool's input is the verdict, and what is said besides is not."""
        body = replied(
            stop_reason="tool_use",
            content=[
                {"type": "text", "text": "Here it is: {"},
                {"type": "tool_use", "id": "t", "name": TOOL, "input": {"score": 4, "reason": "✓"}},
            ],
        )
        reply = self.reply_to(server, body, route=Route.TOOL)
        assert (reply.text, reply.finish) == ('{"score": 4, "reason": "✓"}', Finish.STOP)
        sent = server.seen[0].json
        assert sent["tools"] == [
            {"name": TOOL, "description": "Give the verdict.", "input_schema": asked("").schema}
        ]
        assert sent["tool_choice"]["name"] == TOOL
        assert "output_config" not in sent

    def test_a_tool_that_was_not_called_leaves_what_was_said(self, server):
        """Text in place of the call is read as text."""
        assert self.reply_to(server, GOOD, route=Route.TOOL).text == self.verdict

    def test_the_text_route_asks_for_no_form(self, server):
        """Without schema or tool the request is the text alone."""
        sent = self.sent(server, route=Route.TEXT)
        assert sent.keys() == {"model", "max_tokens", "system", "messages"}

    # --- refusals

    @pytest.mark.parametrize(
        ("status", "kind", "code", "message", "error"),
        [
            (429, "rate_limit_error", None, "limit", errors.RateLimited),
            (429, "rate_limit_error", "ramp_limit_exceeded", "too fast", errors.RateLimited),
            (429, "rate_limit_error", "contract_spend_limit_reached", "", errors.QuotaExhausted),
            (
                400,
                "invalid_request_error",
                None,
                "Your credit balance is too low to access the Anthropic API.",
                errors.QuotaExhausted,
            ),
            (
                400,
                "invalid_request_error",
                None,
                "You have reached your specified workspace API usage limits.",
                errors.QuotaExhausted,
            ),
            (
                400,
                "invalid_request_error",
                None,
                "prompt is too long: 210000 tokens > 200000 maximum",
                errors.TooLong,
            ),
            (400, "invalid_request_error", "organization_on_hold", "", errors.BadCredentials),
            (400, "invalid_request_error", None, "max_tokens: too large", errors.BadRequest),
            (402, "billing_error", None, "card", errors.QuotaExhausted),
            (529, "overloaded_error", None, "Overloaded", errors.Overloaded),
        ],
    )
    def test_a_refusal_is_told_by_its_code(self, server, status, kind, code, message, error):
        """C15: a limit of the rate passes; a limit of money or a closed account does not."""
        body = {"type": "error", "error": {"type": kind, "message": message}}
        if code:
            body["error"]["details"] = {"error_code": code}
        failure = self.failure(server, Say(status=status, body=body))
        assert (type(failure), failure.billing) == (error, Billing.NO)

    def test_a_deprecated_model_is_asked_as_any_other(self, server):
        """The SDK's warnings are not ours; warnings are errors here."""
        assert self.sent(server, model="claude-3-opus-20240229")["model"].startswith("claude-3")

    def test_the_sdk_is_imported_only_when_asked(self):
        """Importing the adapter, building it and bounding a call leave the SDK alone."""
        program = "import judges.anthropic, sys; assert 'anthropic' not in sys.modules"
        subprocess.run([sys.executable, "-c", program], check=True)

    def test_a_missing_sdk_is_a_problem_of_the_campaign(self, monkeypatch):
        """The message says which package to install."""
        monkeypatch.setattr("judges.live.find_spec", lambda _: None)
        with pytest.raises(InvalidCampaign, match=r"sortition\[anthropic\]"):
            self.make(self.setting("http://h"))

    def test_cancellation_closes_the_connection(self, server):
        """A timeout leaves no connection behind, and the next call is served."""
        server.say(Say(fault=Fault.SILENT), self.say_good())
        judge = self.at(server)

        async def main():
            with anyio.move_on_after(0.3):
                await judge.send(asked("rate", "x"))
            reply = await judge.send(asked("rate", "x"))
            await judge.aclose()
            return reply

        assert anyio.run(main).text == self.verdict
        assert server.n_requests == 2


# The schema


@pytest.mark.parametrize(
    "schema",
    [
        asked("").schema,
        {"type": "number", "minimum": 0.5, "maximum": 1, "description": "how good"},
        {"type": "boolean"},
        {"enum": ["a", "b"], "description": "which"},
        {"type": "array", "items": {"type": "integer", "minimum": 1}, "minItems": 1},
        {"type": "array", "items": {"type": "string"}, "maxItems": 4},
        {"anyOf": [{"type": "integer", "maximum": 5}, {"type": "null"}]},
    ],
)
def test_a_schema_is_cut_down_as_the_sdk_does_it(schema):
    """The provider's own transformation is the second witness."""
    from anthropic import transform_schema  # noqa: PLC0415  # 1 s

    assert taken(schema) == transform_schema(schema)


def test_a_verdict_or_null_becomes_one_of_two_forms():
    """A list of types is no form that the provider takes."""
    schema = {"type": ["integer", "null"], "minimum": 1, "maximum": 5, "description": "how good"}
    assert taken(schema) == {
        "anyOf": [
            {"type": "integer", "description": "{minimum: 1, maximum: 5}"},
            {"type": "null"},
        ],
        "description": "how good",
    }
