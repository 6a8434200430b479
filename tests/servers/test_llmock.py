"""The adapters against llmock, a server by others that grades the clients that ask it.

It speaks as each provider does, error bodies included. What it breaks only in streams, which no
judge asks for, is tested elsewhere.
"""

import json
import time

import httpx2
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
from orchestrator.core.events import Arrived, Asked, Freed, JudgeDown
from orchestrator.core.query import Judged
from orchestrator.core.wire import Billing, Finish, Reply

N_ITEMS = 6
each = pytest.mark.parametrize(
    "peer", ["chat", "responses", "anthropic", "google", "compatible"], indirect=True
)
one = pytest.mark.parametrize("peer", ["chat"], indirect=True)


@pytest.fixture
def base_url(llmock, peer):
    return llmock.base_url({"anthropic": "anthropic", "google": "gemini"}.get(peer.adapter, "openai"))


# --- one attempt --------------------------------------------------------------------------------


@each
def test_an_answer_follows_the_schema_and_says_its_tokens(send, llmock):
    reply = send()
    assert isinstance(reply, Reply), reply
    assert 1 <= json.loads(reply.text)["score"] <= 5
    assert (reply.finish, reply.flags) == (Finish.STOP, ())
    assert reply.usage.input_tok > 0 < reply.usage.output_tok
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
    llmock.delay(1.0)
    start = time.monotonic()
    late = send(attempt_s=0.3)
    assert (type(late), late.billing) == (TimedOut, Billing.UNKNOWN)
    assert time.monotonic() - start < 1.0
    assert len(llmock.requests) == 1


# --- campaigns ----------------------------------------------------------------------------------


@each
def test_a_campaign_waits_as_long_as_it_is_asked_to(campaign, llmock):
    """C14: the verdict finds nothing to object, and every question is answered once."""
    llmock.rate_limit(times=2, retry_after=0.3)
    code, result, _ = campaign()
    assert code == 0
    assert result["counts"]["answered"] == N_ITEMS
    assert [request.status for request in llmock.requests].count(200) == N_ITEMS
    assert len(llmock.requests) == N_ITEMS + 2
    assert result["spend"]["uncertain_nano_usd"] == 0
    llmock.assert_resilient(strict=True)


def test_the_verdict_catches_a_client_that_does_not_wait(llmock):
    """So that it finds nothing to object in ours means something."""
    llmock.rate_limit(retry_after=5)
    for _ in range(2):
        httpx2.post(f"{llmock.base_url()}/chat/completions", json={"model": "m", "messages": []})
    assert "retry_after_ignored" in {finding.code for finding in llmock.verdict().errors}


@each
def test_a_campaign_gets_through_an_overload(campaign, llmock):
    """Several kinds of it one after another, each free; nothing is asked again once answered."""
    for status in (503, 529, 503):
        llmock.fail(status)
    code, result, events = campaign(max_attempts=4)
    assert code == 0
    assert len(llmock.requests) == N_ITEMS + 3
    assert sum(isinstance(event, Freed) for event in events) == 3
    assert result["spend"]["uncertain_nano_usd"] == 0
    llmock.assert_resilient()


@each
def test_an_outage_ends_with_a_bounded_number_of_requests(campaign, llmock):
    """C13: as many requests a question as it may have attempts, at no cost."""
    llmock.outage()
    _, result, _ = campaign(max_attempts=2)
    assert len(llmock.requests) == 2 * N_ITEMS
    assert result["counts"]["missing"] == {"server_error": N_ITEMS}
    assert result["spend"]["settled_nano_usd"] == result["spend"]["uncertain_nano_usd"] == 0
    llmock.assert_resilient()


@each
def test_a_refused_key_is_not_tried_again(campaign, llmock):
    """C15: exactly one request, and the judge is down for good with the provider's own word."""
    llmock.fail(401, times=None, message="that key is revoked")
    code, result, events = campaign()
    assert len(llmock.requests) == 1
    assert code == 4
    (down,) = (event for event in events if isinstance(event, JudgeDown))
    assert down.until is None
    assert "that key is revoked" in down.why
    assert "that key is revoked" in result["judges"][0]["down"]
    llmock.assert_resilient()


@each
def test_a_request_that_is_wrong_is_not_repeated(campaign, llmock):
    llmock.context_overflow(times=2)
    _, result, _ = campaign()
    assert result["counts"]["missing"] == {"too_long": 2}
    assert len(llmock.requests) == N_ITEMS
    llmock.assert_resilient(strict=True)


@each
def test_what_an_answer_costs_is_what_its_tokens_cost(campaign):
    """At $2 and $10 per million: 2,000 and 10,000 nano-USD a token."""
    _, result, events = campaign()
    answers = [event.outcome for event in events if isinstance(event, Arrived)]
    assert all(isinstance(answer, Judged) for answer in answers)
    used = [answer.usage for answer in answers]
    assert [answer.cost for answer in answers] == [
        2_000 * usage.input_tok + 10_000 * usage.output_tok for usage in used
    ]
    assert result["spend"]["settled_nano_usd"] == sum(answer.cost for answer in answers)


@each
def test_a_late_reply_is_charged_until_proven_free(campaign, llmock):
    """The first attempt of one question is given up: its whole hold stays uncertain."""
    llmock.delay(1.0)
    code, result, events = campaign(timeouts={"attempt": 0.3})
    (first, *_) = (event for event in events if isinstance(event, Asked))
    assert code == 0
    assert result["spend"]["uncertain_nano_usd"] == first.hold
    assert len(llmock.requests) == result["counts"]["answered"] + 1


@one
def test_a_real_quota_is_kept_without_a_single_refusal(campaign, llmock):
    """Our own limit of the rate is never laxer than the server's of the same number."""
    llmock.limits(rpm=600)
    code, _, _ = campaign(limits={"rpm": 600, "concurrency": 6})
    assert code == 0
    assert {request.status for request in llmock.requests} == {200}
