import subprocess
import sys
from typing import ClassVar

import anyio
import httpx2
import pytest

from judges.chat_completions import TOOL
from judges.google import GoogleConfig, GoogleJudge
from judges.rubrics.rate import Rate
from orchestrator.core import errors
from orchestrator.core.errors import ConfigError, InvalidCampaign, Unreachable
from orchestrator.core.money import PriceCard, cost
from orchestrator.core.ports import Decoding, Unreadable
from orchestrator.core.query import MissingReason
from orchestrator.core.wire import Billing, Chat, Finish, Image, Request, Route, Turn, Usage
from orchestrator.testing.live import SCHEMA, STUDY, LiveContract, asked, posed
from orchestrator.testing.server import Fault, Say


def candidate(*parts, reason="STOP", **changes):
    said = {"content": {"role": "model", "parts": list(parts)}, "index": 0, **changes}
    return said | ({"finishReason": reason} if reason else {})


def answer(*candidates, usage=None, **changes):
    said = {"candidates": list(candidates), "modelVersion": "gemini-acme-001", "responseId": "r1"}
    return said | ({"usageMetadata": usage} if usage is not None else {}) | changes


PLAIN = {"promptTokenCount": 120, "candidatesTokenCount": 9, "totalTokenCount": 129}
VERDICT = {"text": '{"score": 4}'}
GOOD = answer(
    candidate({"text": "Let me see.", "thought": True}, VERDICT, avgLogprobs=-0.1), usage=PLAIN
)

ACME = PriceCard(
    input=2_000_000,
    cached_input=200_000,
    cache_write_5m=2_500_000,
    cache_write_1h=4_000_000,
    output=10_000_000,
)


class TestGoogle(LiveContract):
    path = "/v1beta/models/{model}:generateContent"
    model = "gemini-2.5-flash"
    good = GOOD
    request_id = "r1"
    served_model = "gemini-acme-001"
    frees_500 = True
    # An object without keys is a reply of this provider: neither candidates nor feedback.
    unreadable: ClassVar = tuple(body for body in LiveContract.unreadable if body != b"{}")
    quota: ClassVar = (
        429,
        {
            "error": {
                "code": 429,
                "message": "You exceeded your current quota, please check your plan and billing",
                "status": "RESOURCE_EXHAUSTED",
                "details": [
                    {
                        "@type": "type.googleapis.com/google.rpc.QuotaFailure",
                        "violations": [
                            {"quotaId": "GenerateRequestsPerDayPerProjectPerModel-FreeTier"}
                        ],
                    }
                ],
            }
        },
    )
    usages: ClassVar = {
        "plain": (PLAIN, Usage(input_tok=120, output_tok=9)),
        "the cache is part of the prompt": (
            {
                "promptTokenCount": 10_000,
                "cachedContentTokenCount": 8_000,
                "candidatesTokenCount": 500,
                "totalTokenCount": 10_500,
            },
            Usage(input_tok=2_000, cached_input_tok=8_000, output_tok=500),
        ),
        "thoughts come on top of candidates": (
            {
                "promptTokenCount": 120,
                "candidatesTokenCount": 200,
                "thoughtsTokenCount": 300,
                "totalTokenCount": 620,
            },
            Usage(input_tok=120, output_tok=500, reasoning_tok=300),
        ),
        "tool use is input": (
            {
                "promptTokenCount": 500,
                "candidatesTokenCount": 120,
                "toolUsePromptTokenCount": 300,
                "thoughtsTokenCount": 10,
                "totalTokenCount": 930,
            },
            Usage(input_tok=800, output_tok=130, reasoning_tok=10),
        ),
        "all of it": (
            {
                "promptTokenCount": 10_000,
                "cachedContentTokenCount": 8_000,
                "candidatesTokenCount": 200,
                "toolUsePromptTokenCount": 100,
                "thoughtsTokenCount": 300,
                "totalTokenCount": 10_600,
                "promptTokensDetails": [{"modality": "TEXT", "tokenCount": 10_000}],
            },
            Usage(input_tok=2_100, cached_input_tok=8_000, output_tok=500, reasoning_tok=300),
        ),
        "without a total": (
            {"promptTokenCount": 120, "candidatesTokenCount": 9},
            Usage(input_tok=120, output_tok=9),
        ),
    }
    contradictions: ClassVar = {
        "thoughts that are in no sum": PLAIN | {"thoughtsTokenCount": 300},
        "a total beyond its parts": PLAIN | {"totalTokenCount": 429},
        "more cached than prompted": PLAIN | {"cachedContentTokenCount": 121},
        "negative": {"promptTokenCount": 120, "candidatesTokenCount": -9},
        "no input at all": {"candidatesTokenCount": 9, "totalTokenCount": 9},
        "no output for a text": {"promptTokenCount": 120, "totalTokenCount": 120},
        "text for a number": {"promptTokenCount": "120", "candidatesTokenCount": 9},
        "no block": 7,
    }
    unfinished: ClassVar = {
        "no finish reason": answer(candidate(VERDICT, reason=None), usage=PLAIN),
        "none specified": answer(
            candidate(VERDICT, reason="FINISH_REASON_UNSPECIFIED"), usage=PLAIN
        ),
        "a reason of no form": answer(candidate(VERDICT, reason=7), usage=PLAIN),
        "candidates of no form": answer("item text"),
        "parts of no form": answer(candidate("item text")),
        "a stream": b'[{"item text": 1}\n,\n{"item text": 2}]',
    }

    def make(self, setting, **config):
        return GoogleJudge(GoogleConfig(**config), setting)

    def with_usage(self, usage):
        return answer(candidate(VERDICT), usage=usage)

    def refusal(self, status, message):
        return {"error": {"code": status, "message": message, "status": f"KIND_{status}"}}

    def reply_to(self, server, body, request=None, **changes):
        server.say(Say(body=body))
        judge = self.at(server, **changes)
        reply = anyio.run(judge.send, request or asked("rate", "x"))
        assert server.n_requests == 1
        return reply

    def sent(self, server, request=None, **changes):
        self.reply_to(server, GOOD, request, **changes)
        return server.seen[0].json

    # --- what a call costs

    @pytest.mark.parametrize(
        ("usage", "nano"),
        [
            # 2,000 x 2.00 + 8,000 x 0.20 + 500 x 10.00 USD per million
            (usages["the cache is part of the prompt"][0], 10_600_000),
            # 120 x 2.00 + 500 x 10.00
            (usages["thoughts come on top of candidates"][0], 5_240_000),
            # 800 x 2.00 + 130 x 10.00
            (usages["tool use is input"][0], 2_900_000),
            # 2,100 x 2.00 + 8,000 x 0.20 + 500 x 10.00
            (usages["all of it"][0], 10_800_000),
            # 120 x 2.00 + 9 x 10.00
            (PLAIN, 330_000),
        ],
    )
    def test_a_call_costs_what_its_classes_cost(self, server, usage, nano):
        """C07: thoughts are output once, and what was cached is not paid as input again."""
        assert cost(self.reply_to(server, self.with_usage(usage)).usage, ACME) == nano

    # --- what comes back

    @pytest.mark.parametrize(
        ("body", "finish", "flags", "usage"),
        [
            pytest.param(
                {
                    "promptFeedback": {"blockReason": "PROHIBITED_CONTENT"},
                    "usageMetadata": {"promptTokenCount": 120, "totalTokenCount": 120},
                },
                Finish.BLOCKED,
                ("blocked:PROHIBITED_CONTENT",),
                Usage(input_tok=120),
                id="no candidates and a block reason",
            ),
            pytest.param(
                {"candidates": [], "promptFeedback": {"blockReason": "SAFETY"}},
                Finish.BLOCKED,
                ("blocked:SAFETY",),
                None,
                id="an empty list and a block reason",
            ),
            pytest.param(
                answer({"finishReason": "SAFETY"}, usage=PLAIN),
                Finish.BLOCKED,
                ("blocked:SAFETY",),
                Usage(input_tok=120, output_tok=9),
                id="safety and no parts",
            ),
            pytest.param(
                answer(
                    {"finishReason": "MAX_TOKENS", "content": {"role": "model"}},
                    usage={
                        "promptTokenCount": 120,
                        "thoughtsTokenCount": 400,
                        "totalTokenCount": 520,
                    },
                ),
                Finish.LENGTH,
                (),
                Usage(input_tok=120, output_tok=400, reasoning_tok=400),
                id="cut in its thoughts",
            ),
            pytest.param(
                {"usageMetadata": {"promptTokenCount": 120, "totalTokenCount": 120}},
                Finish.EMPTY,
                (),
                Usage(input_tok=120),
                id="neither candidates nor feedback",
            ),
            pytest.param({}, Finish.EMPTY, (), None, id="nothing at all"),
            pytest.param(
                {"promptFeedback": {"safetyRatings": []}},
                Finish.EMPTY,
                (),
                None,
                id="feedback without a reason",
            ),
            pytest.param(
                answer(candidate(VERDICT, reason="RECITATION"), usage=PLAIN),
                Finish.BLOCKED,
                ("blocked:RECITATION",),
                Usage(input_tok=120, output_tok=9),
                id="recitation",
            ),
        ],
    )
    def test_a_reply_without_a_verdict_says_why(self, server, body, finish, flags, usage):
        """C29: blocked, cut or empty, each by its name; no exception, and what is given is charged."""
        reply = self.reply_to(server, body)
        assert (reply.finish, reply.flags, reply.usage) == (finish, flags, usage)

    def test_the_reason_of_a_filter_reaches_the_outcome(self, server):
        """C29: the report can say why a question is missing, in the provider's word."""
        rubric = Rate(None, STUDY.criteria, (), seeds=STUDY.seeds, max_output_tok=400)
        query = asked("x").query
        for body, reason, detail in (
            (answer({"finishReason": "SPII"}), MissingReason.BLOCKED, "blocked:SPII"),
            (answer({"finishReason": "OTHER"}), MissingReason.EMPTY, "empty:OTHER"),
            ({"promptFeedback": {"blockReason": "item text"}}, MissingReason.BLOCKED, ""),
        ):
            read = rubric.read(query, self.reply_to(server, body))
            assert read == Unreadable(reason=reason, detail=detail)

    @pytest.mark.parametrize(
        ("reason", "finish", "flags"),
        [
            ("STOP", Finish.STOP, ()),
            ("MAX_TOKENS", Finish.LENGTH, ()),
            ("CONTINUATION", Finish.LENGTH, ()),
            *[
                (reason, Finish.BLOCKED, (f"blocked:{reason}",))
                for reason in ("SAFETY", "LANGUAGE", "BLOCKLIST", "SPII", "MODEL_ARMOR")
            ],
            ("OTHER", Finish.EMPTY, ("empty:OTHER",)),
            ("MALFORMED_FUNCTION_CALL", Finish.EMPTY, ("empty:MALFORMED_FUNCTION_CALL",)),
            ("A_WORD_OF_THE_FUTURE", Finish.EMPTY, ("empty:A_WORD_OF_THE_FUTURE",)),
        ],
    )
    def test_a_finish_reason_says_how_a_reply_ended(self, server, reason, finish, flags):
        """C27: only what the model ended by itself is a verdict; the text of the rest is none."""
        reply = self.reply_to(server, answer(candidate(VERDICT, reason=reason), usage=PLAIN))
        assert (reply.finish, reply.flags) == (finish, flags)
        assert reply.usage == Usage(input_tok=120, output_tok=9)

    def test_every_reason_of_the_sdk_is_placed(self):
        """A reason that means a filter is not taken for an accident."""
        from google.genai.types import BlockedReason, FinishReason  # noqa: PLC0415

        from judges.google import _BLOCKED, _CUT  # noqa: PLC0415

        known = {reason.value for reason in FinishReason}
        accidents = {
            "FINISH_REASON_UNSPECIFIED",
            "STOP",
            "OTHER",
            "IMAGE_OTHER",
            "NO_IMAGE",
            "MALFORMED_FUNCTION_CALL",
            "MALFORMED_RESPONSE",
            "UNEXPECTED_TOOL_CALL",
            "TOO_MANY_TOOL_CALLS",
            "MISSING_THOUGHT_SIGNATURE",
        }
        assert known - _BLOCKED - _CUT == accidents
        assert "PROHIBITED_CONTENT" in {reason.value for reason in BlockedReason}

    def test_nothing_said_is_empty(self, server):
        """A complete reply without text is no verdict."""
        thought = {"text": "Let me see.", "thought": True}
        for parts in ((), ({"text": " \n"},), (thought,)):
            reply = self.reply_to(server, answer(candidate(*parts), usage=PLAIN))
            assert reply.finish is Finish.EMPTY

    def test_a_forced_tool_gives_its_arguments(self, server):
        """The call's arguments are the verdict, and what is said besides is not."""
        call = {"functionCall": {"name": TOOL, "args": {"score": 4, "reason": "✓"}}}
        body = answer(candidate({"text": "Here: {"}, call), usage=PLAIN)
        reply = self.reply_to(server, body, route=Route.TOOL)
        assert (reply.text, reply.finish) == ('{"score": 4, "reason": "✓"}', Finish.STOP)
        sent = server.seen[0].json
        (tool,) = sent["tools"]
        assert tool["functionDeclarations"] == [
            {"name": TOOL, "description": "Give the verdict.", "parametersJsonSchema": SCHEMA}
        ]
        assert sent["toolConfig"] == {
            "functionCallingConfig": {"mode": "ANY", "allowedFunctionNames": [TOOL]}
        }
        assert sent["generationConfig"] == {"maxOutputTokens": 400}

    def test_probabilities_are_those_of_the_first_token_that_is_not_blank(self, server):
        """A blank before the label is not the place of the verdict."""
        tops = [
            [{"token": " ", "logProbability": -0.01}],
            [{"token": "4", "logProbability": -0.2}, {"token": "5", "logProbability": -1.75}],
        ]
        result = {
            "topCandidates": [{"candidates": top} for top in tops],
            "chosenCandidates": [top[0] for top in tops],
        }
        body = answer(candidate({"text": " 4"}, logprobsResult=result), usage=PLAIN)
        reply = self.reply_to(server, body, route=Route.LOGPROB)
        assert reply.alternatives == (("4", -0.2), ("5", -1.75))
        assert server.seen[0].json["generationConfig"] == {
            "maxOutputTokens": 400,
            "responseLogprobs": True,
            "logprobs": 20,
        }
        assert self.reply_to(server, GOOD, route=Route.LOGPROB).alternatives == ()

    # --- what goes out

    def test_a_request_is_written_for_the_provider(self, server):
        """The stable prefix is the system's instruction, nothing is logged, and the key is a header."""
        assert self.sent(server, asked("rate", "x")) == {
            "systemInstruction": {"parts": [{"text": "rate"}]},
            "contents": [{"role": "user", "parts": [{"text": "x"}]}],
            "generationConfig": {
                "maxOutputTokens": 400,
                "responseMimeType": "application/json",
                "responseJsonSchema": SCHEMA,
            },
            "store": False,
        }
        (seen,) = server.seen
        assert "CANARY" in seen.headers["x-goog-api-key"]
        assert seen.query == {}

    def test_the_version_of_the_api_can_be_chosen(self, server):
        """It stands in the path."""
        judge = self.make(self.setting(server.url), api_version="v1")
        anyio.run(judge.send, asked("rate", "x"))
        assert server.seen[0].path == f"/v1/models/{self.model}:generateContent"

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
        # The SDK's spelling; the API reads both.
        picture = {"inlineData": {"mime_type": "image/png", "data": "iQ=="}}
        assert self.sent(server, request)["contents"] == [
            {"role": "user", "parts": [{"text": "x"}, picture]},
            {"role": "user", "parts": [{"text": "hi"}]},
            {"role": "model", "parts": [{"text": "ho"}]},
        ]

    def test_a_system_is_asked_as_anyone_would_ask_it(self, server):
        """Nothing but its prompt goes out, and its answer comes back whole."""
        text = ' \n{"score": 4}\n</verdict> 42\n\n'
        reply = self.reply_to(
            server, answer(candidate({"text": text})), posed(" 2+2?\n"), route=Route.TEXT
        )
        assert reply.text == text
        assert server.seen[0].json == {
            "contents": [{"role": "user", "parts": [{"text": " 2+2?\n"}]}],
            "generationConfig": {"maxOutputTokens": 400},
            "store": False,
        }

    def test_a_conversation_that_a_system_continues_keeps_its_roles(self, server):
        """By the provider's names."""
        roles = ("system", "user", "assistant", "user")
        chat = Chat(turns=tuple(Turn(role=role, content=f"{n}") for n, role in enumerate(roles)))
        body = self.sent(server, posed(chat), route=Route.TEXT)
        assert body["systemInstruction"] == {"parts": [{"text": "0"}]}
        assert [content["role"] for content in body["contents"]] == ["user", "model", "user"]

    def test_parameters_that_the_model_takes_are_sent(self, server):
        """C43: by the provider's names; one that the model refuses is left out, and said."""
        decoding = Decoding(temperature=0.5, top_p=0.9, seed=7)
        sent = self.sent(server, decoding=decoding, route=Route.TEXT)
        assert sent["generationConfig"] == {
            "maxOutputTokens": 400,
            "temperature": 0.5,
            "topP": 0.9,
            "seed": 7,
        }
        reply = self.reply_to(server, GOOD, decoding=decoding, model="gemini-3.7-flash")
        assert reply.flags == ("dropped:temperature", "dropped:top_p")
        assert server.seen[0].json["generationConfig"]["seed"] == 7

    def test_a_refused_parameter_is_an_error_where_it_must_be_kept(self):
        """C43: with strict_params nothing is sent that is not what was written."""
        decoding = Decoding(temperature=0.0, is_strict=True)
        with pytest.raises(ConfigError, match="temperature"):
            self.make(self.setting("http://h", decoding=decoding, model="gemini-3.7-flash"))

    def test_parameters_of_ones_own_stand_beside_ours(self, server):
        """What the campaign adds is sent as it stands, also within an object that we write into."""
        thinking = {"thinkingConfig": {"thinkingBudget": 0}}
        safety = [{"category": "HARM_CATEGORY_HATE_SPEECH", "threshold": "OFF"}]
        extra = {"generationConfig": thinking, "safetySettings": safety}
        sent = self.sent(server, decoding=Decoding(extra=extra), route=Route.TEXT)
        assert sent["generationConfig"] == {"maxOutputTokens": 400, **thinking}
        assert sent["safetySettings"] == safety

    @pytest.mark.parametrize(
        ("extra", "path"),
        [
            ({"contents": []}, "params.extra.contents"),
            ({"serviceTier": "flex"}, "params.extra.serviceTier"),
            ({"generationConfig": {"candidateCount": 8}}, "params.extra.generationConfig.cand"),
            ({"generationConfig": {"maxOutputTokens": 8}}, "params.extra.generationConfig.max"),
            ({"generationConfig": 8}, "params.extra.generationConfig"),
            ({"generation_config": {}}, "params.extra.generation_config"),
        ],
    )
    def test_what_changes_the_price_is_not_the_campaigns_to_set(self, extra, path):
        """The hold would be no bound."""
        with pytest.raises(InvalidCampaign, match=path):
            self.make(self.setting("http://h", decoding=Decoding(extra=extra)))

    def test_the_environment_changes_nothing(self, server, monkeypatch):
        """Neither another key, another address nor another service is taken from the environment."""
        for name in ("GOOGLE_API_KEY", "GEMINI_API_KEY", "GOOGLE_CLOUD_PROJECT"):
            monkeypatch.setenv(name, "other")
        monkeypatch.setenv("GOOGLE_GENAI_USE_VERTEXAI", "true")
        monkeypatch.setenv("GOOGLE_GENAI_API_VERSION", "v9")
        monkeypatch.setenv("GOOGLE_GEMINI_BASE_URL", "http://127.0.0.1:1")
        self.sent(server)
        assert "other" not in str(server.seen[0].headers)

    # --- one attempt

    @pytest.mark.parametrize("status", [408, 429, 500, 502, 503, 504])
    def test_the_sdk_repeats_nothing(self, server, status):
        """C13: what the SDK holds for worth a retry is one request too, and so is a broken line."""
        self.failure(server, Say(status=status, body=self.refusal(status, "no")), self.say_good())
        self.failure(server, Say(fault=Fault.DROPPED), self.say_good())

    def test_an_answer_that_could_be_continued_is_not(self, server):
        """The SDK would send further requests by itself, each of them billed."""
        cut = candidate(VERDICT, reason="CONTINUATION", continuationToken="dG9rZW4=")
        assert self.reply_to(server, answer(cut, usage=PLAIN)).finish is Finish.LENGTH

    def test_a_connection_has_a_deadline_of_its_own(self, monkeypatch):
        """Whoever does not even accept a connection is given up before the attempt is."""
        limits = []

        async def never(_self, request):
            limits.append(request.extensions["timeout"])
            raise httpx2.ConnectTimeout("too late")

        monkeypatch.setattr(httpx2.AsyncHTTPTransport, "handle_async_request", never)
        judge = self.make(self.setting("http://127.0.0.1:1", connect_s=2.5, attempt_s=60.0))
        with pytest.raises(Unreachable) as failed:
            anyio.run(judge.send, asked("rate", "x"))
        assert failed.value.billing is Billing.NO
        assert limits == [{"connect": 2.5, "read": 60.0, "write": 60.0, "pool": 60.0}]

    # --- refusals

    @pytest.mark.parametrize(
        ("status", "kind", "reason", "message", "error"),
        [
            (400, "INVALID_ARGUMENT", "API_KEY_INVALID", "API key not valid.", "BadCredentials"),
            (400, "INVALID_ARGUMENT", "", "API key expired.", "BadCredentials"),
            (400, "FAILED_PRECONDITION", "", "not available in your country", "QuotaExhausted"),
            (
                400,
                "INVALID_ARGUMENT",
                "",
                "The input token count (1200000) exceeds the maximum number of tokens allowed",
                "TooLong",
            ),
            (400, "INVALID_ARGUMENT", "", "Unknown name", "BadRequest"),
            (402, "RESOURCE_EXHAUSTED", "", "prepaid credit", "QuotaExhausted"),
            (403, "PERMISSION_DENIED", "", "denied", "BadCredentials"),
            (404, "NOT_FOUND", "", "models/x is not found", "UnknownModel"),
            (429, "RESOURCE_EXHAUSTED", "", "You exceeded your current quota", "RateLimited"),
            (429, "RESOURCE_EXHAUSTED", "", "monthly spending cap", "QuotaExhausted"),
            (503, "UNAVAILABLE", "", "The model is overloaded.", "Overloaded"),
            (500, "INTERNAL", "", "An internal error has occurred.", "Overloaded"),
        ],
    )
    def test_a_refusal_is_told_by_its_status_and_reason(
        self, server, status, kind, reason, message, error
    ):
        """C15: a limit of the minute passes; that of a day or of money does not in this run."""
        details = [{"@type": "type.googleapis.com/google.rpc.ErrorInfo", "reason": reason}]
        body = {"error": {"code": status, "message": message, "status": kind, "details": details}}
        failure = self.failure(server, Say(status=status, body=body))
        assert (type(failure), failure.billing) == (getattr(errors, error), Billing.NO)

    @pytest.mark.parametrize(
        ("delay", "header", "wait_s"),
        [
            ("34.074824224s", None, 34.074824224),
            ("7s", "2", 7.0),
            ("2s", "7", 7.0),
            ("soon", "7", 7.0),
            ("-3s", None, None),
            (None, None, None),
        ],
    )
    def test_how_long_to_wait_also_stands_in_the_body(self, server, delay, header, wait_s):
        """C14: the longer of the two counts."""
        retry = {"@type": "type.googleapis.com/google.rpc.RetryInfo", "retryDelay": delay}
        quota = {
            "@type": "type.googleapis.com/google.rpc.QuotaFailure",
            "violations": [{"quotaId": "GenerateRequestsPerMinutePerProjectPerModel"}],
        }
        body = self.refusal(429, "slower")
        body["error"]["details"] = [quota, retry if delay else {}, "of no form"]
        headers = {"Retry-After": header} if header else {}
        failure = self.failure(server, Say(status=429, body=body, headers=headers))
        assert (type(failure), failure.retry_after_s) == (errors.RateLimited, wait_s)

    def test_an_error_in_a_list_is_understood(self, server):
        """Some replies wrap the error in a list of one."""
        say = Say(status=503, body=[self.refusal(503, "word of the provider")])
        assert "word of the provider" in str(self.failure(server, say))

    # --- the SDK

    def test_the_sdk_is_imported_only_when_asked(self):
        """Importing the adapter leaves the SDK alone."""
        program = "import judges.google, sys; assert 'google.genai' not in sys.modules"
        subprocess.run([sys.executable, "-c", program], check=True)

    def test_a_missing_sdk_is_a_problem_of_the_campaign(self, monkeypatch):
        """The message says which package to install."""
        monkeypatch.setattr("judges.live.find_spec", lambda _: None)
        with pytest.raises(InvalidCampaign, match=r"sortition\[google\]"):
            self.make(self.setting("http://h"))
