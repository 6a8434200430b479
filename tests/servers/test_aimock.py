"""The adapters against aimock, a server by others that breaks whole replies.

It drops connections, sends bodies that are no JSON, refuses and filters, in each provider's form.
"""

import json

import pytest

from orchestrator.core.errors import Disconnected, JudgeError, Overloaded, RateLimited, TimedOut
from orchestrator.core.events import Asked, Reasked, Sent
from orchestrator.core.wire import Billing, Finish, Reply, Usage

N_ITEMS = 6
VERDICT = '{"score": 4}'
NAMES = ["chat", "responses", "anthropic", "google", "compatible"]
pytestmark = pytest.mark.servers
each = pytest.mark.parametrize("peer", NAMES, indirect=True)


@pytest.fixture
def base_url(aimock, peer):
    return aimock.url + ("" if peer.adapter in ("anthropic", "google") else "/v1")


@pytest.fixture
def say(aimock, peer):
    """Answer with a verdict, by the route that the judge takes."""

    def answer(**response):
        if peer.adapter == "anthropic":
            aimock.say(toolCalls=[{"name": "verdict", "arguments": VERDICT}], **response)
        else:
            aimock.say(content=VERDICT, **response)

    return answer


# --- one attempt --------------------------------------------------------------------------------


@each
def test_an_answer_is_read(send, say, aimock):
    say()
    reply = send()
    assert isinstance(reply, Reply), reply
    assert json.loads(reply.text) == {"score": 4}
    assert reply.finish is Finish.STOP
    assert len(aimock.requests) == 1


@each
def test_a_body_that_is_no_json_was_billed(send, say, aimock):
    """An unreadable reply of status 200 is paid for, and asked for once."""
    say()
    aimock.chaos(malformedRate=1)
    broken = send()
    assert (type(broken), broken.billing) == (JudgeError, Billing.YES)
    assert "unreadable" in str(broken)
    assert len(aimock.requests) == 1


@each
def test_a_dropped_connection_may_have_been_billed(send, say, aimock):
    say()
    aimock.chaos(disconnectRate=1)
    broken = send()
    assert (type(broken), broken.billing) == (Disconnected, Billing.UNKNOWN)
    assert len(aimock.requests) == 1


@each
def test_a_reply_after_the_deadline_may_be_billed(send, say, aimock):
    say()
    aimock.chaos(latencyMs=500)
    late = send(attempt_s=0.1)
    assert (type(late), late.billing) == (TimedOut, Billing.UNKNOWN)


@each
def test_an_overload_is_one_request_and_free(send, aimock):
    """C13."""
    aimock.say(error={"message": "too many of you", "type": "overloaded_error"}, status=529)
    busy = send()
    assert (type(busy), busy.billing) == (Overloaded, Billing.NO)
    assert "too many of you" in str(busy)
    assert [request["response"]["status"] for request in aimock.requests] == [529]


@each
def test_a_limit_of_the_rate_says_how_long_to_wait(send, aimock):
    """C14."""
    aimock.say(error={"message": "slow down"}, status=429, retryAfter=7)
    asked = send()
    assert (type(asked), asked.retry_after_s) == (RateLimited, 7)
    assert len(aimock.requests) == 1


@pytest.mark.parametrize("peer", ["chat", "anthropic", "google", "compatible"], indirect=True)
def test_an_answer_at_the_limit_is_cut(send, say):
    say(finishReason="length")
    assert send().finish is Finish.LENGTH


@pytest.mark.parametrize(
    ("peer", "reason", "finish"),
    [
        ("chat", "content_filter", Finish.BLOCKED),
        ("anthropic", "refusal", Finish.REFUSED),
        ("google", "content_filter", Finish.BLOCKED),
        ("compatible", "content_filter", Finish.BLOCKED),
    ],
    indirect=["peer"],
)
def test_a_filtered_answer_is_no_verdict(send, say, reason, finish):
    """C29: whatever text comes with it."""
    say(finishReason=reason)
    assert send().finish is finish


@pytest.mark.parametrize("peer", ["responses"], indirect=True)
@pytest.mark.parametrize("reason", ["content_filter", "length"])
def test_an_answer_that_does_not_say_how_it_ended_was_billed(send, say, reason):
    """The server leaves out what Responses says of an answer that is not completed."""
    say(finishReason=reason)
    broken = send()
    assert (type(broken), broken.billing) == (JudgeError, Billing.YES)


@each
def test_tokens_are_read_as_they_are_said(send, say):
    say(usage={"input_tokens": 120, "output_tokens": 30})
    assert send().usage == Usage(input_tok=120, output_tok=30)


@each
def test_no_tokens_for_an_answer_are_not_believed(send, say):
    """The hold will be charged instead."""
    say(usage={"input_tokens": 0, "output_tokens": 0})
    reply = send()
    assert (reply.usage, reply.flags) == (None, ("usage_inconsistent",))


# --- campaigns ----------------------------------------------------------------------------------


@each
def test_a_campaign_costs_what_its_tokens_cost(campaign, say, aimock):
    """Six answers of 120 and 30 tokens at $2 and $10 per million."""
    say(usage={"input_tokens": 120, "output_tokens": 30})
    code, result, _ = campaign()
    assert code == 0
    assert result["spend"]["settled_nano_usd"] == N_ITEMS * (120 * 2_000 + 30 * 10_000)
    assert result["spend"]["uncertain_nano_usd"] == 0
    assert len(aimock.requests) == N_ITEMS


@each
def test_a_campaign_under_chaos_keeps_its_accounts(campaign, say, aimock, balances):
    """Each request is in the log before it leaves, and each is answered, free or charged."""
    say(usage={"input_tokens": 120, "output_tokens": 30})
    aimock.chaos(malformedRate=0.2, disconnectRate=0.2)
    _, result, events = campaign()
    spend, counts = result["spend"], result["counts"]
    assert len(aimock.requests) == sum(isinstance(event, Sent) for event in events)
    assert (spend["settled_nano_usd"], spend["uncertain_nano_usd"], 0) == balances(events)[-1]
    assert counts["answered"] + sum(counts["missing"].values()) == counts["asked"] == N_ITEMS
    assert spend["held_nano_usd"] == 0


@pytest.mark.parametrize("peer", ["chat"], indirect=True)
def test_replies_that_can_not_be_read_are_charged_at_their_holds(campaign, say, aimock, balances):
    say()
    aimock.chaos(malformedRate=1)
    _, result, events = campaign(max_attempts=2)
    holds = [event.hold for event in events if isinstance(event, Asked | Reasked)]
    assert len(aimock.requests) == len(holds)
    assert result["spend"]["settled_nano_usd"] == sum(holds)
    assert balances(events)[-1] == (sum(holds), 0, 0)
    assert result["counts"]["answered"] == 0
