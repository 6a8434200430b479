import math
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime

import httpx2
import pytest
from hypothesis import given
from hypothesis import strategies as st

from judges.live import (
    MAX_CONNECTIONS,
    RULES,
    Message,
    Rule,
    classify,
    clients,
    count,
    dropped,
    is_header,
    is_header_name,
    lost,
    messages,
    normalised,
    one_line,
    retry_after_s,
    unreadable,
)
from orchestrator.core.errors import (
    Ambiguous,
    Blocked,
    Disconnected,
    ExceedsRate,
    Overloaded,
    Permanent,
    QuotaExhausted,
    RateLimited,
    TimedOut,
    Transient,
    Unreachable,
)
from orchestrator.core.ports import JudgeSetting
from orchestrator.core.query import MissingReason
from orchestrator.core.wire import Billing, Chat, Image, Text, Turn, Usage
from orchestrator.testing.live import STUDY, asked

NOON = datetime(2026, 11, 25, 12, tzinfo=UTC)
WORDS = st.sampled_from(["", "insufficient_quota", "context_length_exceeded", "content_filter"])
USAGE = {"in": 10, "out": 5, "deep": {"er": 3}}


def read(usage):
    return Usage(
        input_tok=count(usage, "in"),
        output_tok=count(usage, "out"),
        reasoning_tok=count(usage, "deep", "er"),
    )


# --- refusals ----------------------------------------------------------------------------------


@given(st.integers(100, 999), WORDS, st.text(max_size=20))
def test_every_refusal_means_something_and_has_its_bill(status, code, message):
    """No status is left out, and what was asked of an error's class is kept."""
    error = classify((), status, code, message, {})
    match error:
        case Transient() | Permanent():
            assert error.billing is Billing.NO
        case _:
            assert isinstance(error, Ambiguous)
            assert error.billing is Billing.UNKNOWN
    if status in {408, 502, 504} or (status >= 500 and status not in {503, 529}):
        assert error.billing is not Billing.NO or status >= 600


def test_every_rule_says_where_it_comes_from():
    for rule in RULES:
        assert rule.source
        assert rule.words == tuple(word.lower() for word in rule.words)


def test_used_up_credit_is_no_mere_haste():
    """C15 a: one is waited out, the other never ends."""
    assert type(classify((), 429, "rate_limit_exceeded", "slow down", {})) is RateLimited
    assert type(classify((), 429, "insufficient_quota", "", {})) is QuotaExhausted
    too_large = "Request too large for m on tokens per min (TPM): Limit 30000, Requested 40000"
    assert type(classify((), 429, "rate_limit_exceeded", too_large, {})) is ExceedsRate


def test_a_providers_rule_goes_before_the_common_ones():
    free = Rule(statuses=(500,), error=Overloaded, source="its pricing page")
    paid = Rule(statuses=(400,), words=("flagged",), error=Blocked, billing=Billing.YES, source="x")
    assert type(classify((free,), 500, "", "", {})) is Overloaded
    assert classify((paid,), 400, "", "Flagged!", {}).billing is Billing.YES
    assert classify((paid,), 400, "", "other", {}).billing is Billing.NO


@pytest.mark.parametrize(
    ("error", "kind", "billing"),
    [
        (httpx2.ConnectError("refused"), Unreachable, Billing.NO),
        (httpx2.ConnectTimeout("late"), Unreachable, Billing.NO),
        (httpx2.PoolTimeout(""), Unreachable, Billing.NO),
        (httpx2.ProxyError("407"), Unreachable, Billing.NO),
        (httpx2.ReadTimeout(""), TimedOut, Billing.UNKNOWN),
        (httpx2.WriteTimeout(""), TimedOut, Billing.UNKNOWN),
        (httpx2.ReadError(""), Disconnected, Billing.UNKNOWN),
        (httpx2.RemoteProtocolError("cut"), Disconnected, Billing.UNKNOWN),
        (httpx2.DecodingError("not gzip"), Disconnected, Billing.UNKNOWN),
        (None, Disconnected, Billing.UNKNOWN),
    ],
)
def test_a_lost_connection_is_free_only_before_bytes_were_sent(error, kind, billing):
    failure = lost(error)
    assert (type(failure), failure.billing) == (kind, billing)


def test_an_unreadable_reply_is_billed():
    usage = Usage(input_tok=1)
    error = unreadable("why", usage)
    assert (error.billing, error.usage) == (Billing.YES, usage)
    assert error.reason is MissingReason.SERVER_ERROR


# --- waiting -----------------------------------------------------------------------------------


@given(st.text(), st.text(), st.text())
def test_no_header_breaks_the_reading_of_a_wait(ms, seconds, date):
    """C14 f: whatever stands there, the answer is a time to wait or none."""
    wait_s = retry_after_s({"retry-after-ms": ms, "retry-after": seconds, "date": date})
    assert wait_s is None or (wait_s >= 0 and math.isfinite(wait_s))


@given(st.integers(0, 10**6), st.timedeltas(timedelta(days=-999), timedelta(days=999)))
def test_a_date_counts_from_the_servers_own_clock(wait_s, off):
    """C14 c: how wrong any other clock is does not matter."""
    now = (NOON + off).replace(microsecond=0)
    headers = {
        "date": format_datetime(now, usegmt=True),
        "retry-after": format_datetime(now + timedelta(seconds=wait_s), usegmt=True),
    }
    assert retry_after_s(headers) == wait_s


@pytest.mark.parametrize("text", ["-5", "soon", "", "nan", "inf", "1e9", "٣", "9" * 400, "+5"])
def test_a_wait_that_is_none_is_not_made_up(text):
    """C14 f."""
    assert retry_after_s({"retry-after": text}) is None


def test_a_date_in_the_past_is_no_wait():
    past = format_datetime(NOON - timedelta(seconds=5), usegmt=True)
    assert retry_after_s({"retry-after": past, "date": format_datetime(NOON, usegmt=True)}) is None


# --- tokens ------------------------------------------------------------------------------------


def test_usage_is_read_and_checked():
    tokens = Usage(input_tok=10, output_tok=5, reasoning_tok=3)
    assert normalised(read, USAGE, text="4") == (tokens, ())
    assert normalised(read, None, text="4") == (None, ())


@pytest.mark.parametrize(
    "usage",
    [
        {**USAGE, "in": 0},
        {**USAGE, "out": 0, "deep": None},
        {**USAGE, "deep": {"er": 6}},
        {**USAGE, "in": -1},
        {**USAGE, "in": "10"},
        {**USAGE, "in": True},
        {**USAGE, "in": 10.5},
        {**USAGE, "deep": 3},
        7,
    ],
)
def test_usage_that_can_not_be_true_is_missing(usage):
    """Charged at the hold, and said."""
    assert normalised(read, usage, text="4") == (None, ("usage_inconsistent",))


def test_no_text_may_have_no_output():
    """A filter that lets nothing through bills the input alone."""
    usage, flags = normalised(read, {"in": 10}, text="")
    assert (usage, flags) == (Usage(input_tok=10), ())


# --- what is sent ------------------------------------------------------------------------------


def user(*content):
    return Message(role="user", content=content)


def test_the_stable_prefix_stands_first():
    """It is the system's, and all that differs between questions comes after."""
    (first, second) = messages(asked("rate", "this"))
    assert (first.role, first.text) == ("system", "rate")
    assert second == user(Text(text="this"))
    assert messages(asked("rate")) == (user(Text(text="rate")),)
    assert messages(asked("rate", "a", "b"))[1].text == "a\n\nb"


def test_conversations_keep_their_roles_and_places():
    picture = Image(media_type="image/png", data=b"1")
    chat = Chat(turns=(Turn(role="assistant", content="hi \ud800"),))
    parts = (Text(text="p"), Text(text="a"), chat, picture)
    said = messages(replace(asked(), parts=parts))
    assert [message.role for message in said] == ["system", "user", "assistant", "user"]
    assert said[2].text == "hi \ufffd"
    assert said[3].text is None
    assert [m.role for m in messages(replace(asked(), parts=(chat,)))] == ["assistant"]


@given(st.text())
def test_what_is_sent_can_be_encoded(text):
    """C23: no prompt is too odd for UTF-8."""
    (message,) = messages(asked(text))
    assert message.text.encode().decode() == message.text


@given(st.text())
def test_a_message_is_one_line(text):
    line = one_line(text)
    assert line.isprintable()
    assert line.split() == line.split(" ") or line == ""


@given(st.text(max_size=5))
def test_headers_hold_printable_ascii(text):
    """C23: what passes can be sent, as a value and as a name."""
    assert is_header(text) == all(" " <= c <= "~" for c in text)
    if is_header_name(text):
        httpx2.Headers({text: "x"}).raw[0][0].decode("ascii")
        assert text


def test_left_out_parameters_are_named():
    assert dropped(["top_p", "seed"]) == ("dropped:top_p", "dropped:seed")


# --- connections -------------------------------------------------------------------------------


@pytest.mark.parametrize(("concurrency", "sizes"), [(1, [1]), (25, [25]), (26, [13] * 2)])
def test_connections_are_split(concurrency, sizes):
    """No client keeps more than 25, and together they keep as many as calls may be under way."""
    opened = clients(setting(concurrency=concurrency))
    assert [c._transport._pool._max_keepalive_connections for c in opened] == sizes
    assert max(sizes) <= MAX_CONNECTIONS


def test_every_call_has_its_deadlines():
    (client,) = clients(setting(connect_s=3.0, attempt_s=70.0))
    timeout = client.timeout
    assert (timeout.connect, timeout.read, timeout.write, timeout.pool) == (3.0, 70.0, 70.0, 70.0)
    assert not client.follow_redirects


def setting(**changes):
    return JudgeSetting(name="j", judge=0, study=STUDY, max_output_tok=1, **changes)
