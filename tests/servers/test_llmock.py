"""One attempt of each adapter at llmock, a server by others that speaks as each provider does.

What it breaks only in streams, which no judge asks for, `test_aimock` breaks in whole replies.
"""

import json
import time

import pytest

from orchestrator.core.errors import (
    BadCredentials,
    BadRequest,
    JudgeError,
    Overloaded,
    RateLimited,
    TimedOut,
    TooLong,
    UnknownModel,
)
from orchestrator.core.wire import Billing, Finish, Reply

each = pytest.mark.parametrize(
    "peer", ["chat", "responses", "anthropic", "google", "compatible"], indirect=True
)


@pytest.fixture
def base_url(llmock, peer):
    return llmock.base_url(
        {"anthropic": "anthropic", "google": "gemini"}.get(peer.adapter, "openai")
    )


@each
def test_an_answer_follows_the_schema_and_says_its_tokens(send, llmock, peer):
    reply = send()
    assert isinstance(reply, Reply), reply
    assert 1 <= json.loads(reply.text)["score"] <= 5
    assert (reply.finish, reply.flags) == (Finish.STOP, ())
    assert reply.usage.input_tok > 0 < reply.usage.output_tok
    if peer.adapter != "google":  # as whom llmock names neither
        assert reply.served_model
        assert reply.request_id
    assert len(llmock.requests) == 1


@each
@pytest.mark.parametrize(
    ("status", "error"),
    [
        (400, BadRequest),
        (401, BadCredentials),
        (403, BadCredentials),
        (404, UnknownModel),
        (429, RateLimited),
        (503, Overloaded),
        (529, Overloaded),
    ],
)
def test_a_refusal_is_one_request_and_free(send, llmock, status, error):
    """C13: what each provider's own error body means, and no hidden retry."""
    llmock.fail(status)
    refused = send()
    assert (type(refused), refused.billing) == (error, Billing.NO)
    assert f"HTTP {status}" in str(refused)
    assert [request.status for request in llmock.requests] == [status]


@each
def test_a_500_is_one_request_and_no_answer(send, llmock):
    """C13."""
    llmock.fail(500)
    assert isinstance(send(), JudgeError)
    assert len(llmock.requests) == 1


@each
def test_the_wait_that_a_server_asks_for_is_read(send, llmock):
    """C14."""
    llmock.rate_limit(retry_after=7)
    assert send().retry_after_s == 7


@each
def test_a_prompt_beyond_the_context_is_too_long(send, llmock):
    llmock.context_overflow()
    refused = send()
    assert (type(refused), refused.billing) == (TooLong, Billing.NO), refused


@each
def test_a_slow_reply_is_given_up_and_may_be_billed(send, llmock):
    llmock.delay(0.5)
    start = time.monotonic()
    late = send(attempt_s=0.1)
    assert (type(late), late.billing) == (TimedOut, Billing.UNKNOWN)
    assert time.monotonic() - start < 0.5
    assert len(llmock.requests) == 1
