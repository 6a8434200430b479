"""Whole campaigns at llmock, a server by others that grades the clients that ask it."""

import httpx2
import pytest

from orchestrator.core.events import Arrived, Asked, Freed, JudgeDown
from orchestrator.core.query import Judged

N_ITEMS = 6
pytestmark = pytest.mark.servers
each = pytest.mark.parametrize(
    "peer", ["chat", "responses", "anthropic", "google", "compatible"], indirect=True
)
one = pytest.mark.parametrize("peer", ["chat"], indirect=True)


@pytest.fixture
def base_url(llmock, peer):
    return llmock.base_url(
        {"anthropic": "anthropic", "google": "gemini"}.get(peer.adapter, "openai")
    )


@each
def test_a_campaign_waits_as_long_as_it_is_asked_to(campaign, llmock):
    """C14: longer than it would by itself; the verdict finds nothing to object."""
    llmock.rate_limit(retry_after=3)
    code, result, _ = campaign()
    assert code == 0
    assert result["counts"]["answered"] == N_ITEMS
    assert [request.status for request in llmock.requests].count(200) == N_ITEMS
    assert len(llmock.requests) == N_ITEMS + 1
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
    """Two kinds of it one after another, both free; nothing is asked again once answered."""
    llmock.fail(503).fail(529)
    code, result, events = campaign()
    assert code == 0
    assert len(llmock.requests) == N_ITEMS + 2
    assert sum(isinstance(event, Freed) for event in events) == 2
    assert result["spend"]["uncertain_nano_usd"] == 0
    llmock.assert_resilient()


@one
def test_an_outage_ends_with_a_bounded_number_of_requests(campaign, llmock):
    """C13: as many requests a question as it may have attempts, at no cost."""
    llmock.outage()
    _, result, _ = campaign(n_items=2, max_attempts=3)
    assert len(llmock.requests) == 3 * 2
    assert result["counts"]["missing"] == {"server_error": 2}
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
    llmock.delay(0.6)
    code, result, events = campaign(timeouts={"attempt": 0.2})
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
