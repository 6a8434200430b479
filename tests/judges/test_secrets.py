"""Masking secrets, in whichever form they are echoed."""

from __future__ import annotations

import html
import json
import time
from base64 import b64encode, urlsafe_b64encode
from urllib.parse import quote

import pytest
from hypothesis import given
from hypothesis import strategies as st

from judges.secrets import LEAST, MASK, Secrets

KEY = "sk-0123/456+789=abc"
PASSWORD = "pw'\"\\ö@&<x>"
secrets = st.text(st.characters(codec="utf-8", min_codepoint=33), min_size=LEAST, max_size=40)
FORMS = {
    "plain": str,
    "in JSON": lambda text: json.dumps(text, ensure_ascii=False),
    "in ASCII JSON": json.dumps,
    "in JSON in JSON": lambda text: json.dumps(json.dumps(text)),
    "percent-encoded": lambda text: quote(text, safe=""),
    "percent-encoded twice": lambda text: quote(quote(text, safe=""), safe=""),
    "percent-encoded JSON": lambda text: quote(json.dumps(text, ensure_ascii=False), safe=""),
    "as HTML": html.escape,
}


@pytest.mark.parametrize("form", FORMS)
@given(secrets, st.text(max_size=9), st.text(max_size=9))
def test_a_secret_is_masked_in_every_form(form, secret, before, after):
    spell = FORMS[form]
    said = f"{before}{spell(secret)}{after}"
    for masked in (Secrets([secret]).masked(said), Secrets([secret]).masked_reply(said)):
        assert MASK in masked
        assert spell(secret) not in masked


@given(secrets, st.binary(max_size=4), st.binary(max_size=4))
def test_a_secret_is_masked_wherever_it_stands_in_base64(secret, before, after):
    """At most two characters of it are left, which tell six bits each of its ends."""
    data = secret.encode()
    for encode in (b64encode, urlsafe_b64encode):
        said = encode(before + data + after).decode()
        masked = Secrets([secret]).masked_reply(said)
        assert MASK in masked
        ends = len(said) - (8 * len(data) // 6 - 1)
        assert len(masked) <= len(MASK) + ends


@given(st.text(), st.lists(secrets, max_size=2))
def test_a_reply_without_secrets_stays_to_the_letter(text, known):
    if not any(secret in text for secret in known):
        assert Secrets(known).masked_reply(text) in {text, Secrets(known).masked(text)}
    assert Secrets([]).masked_reply(text) == text


def test_a_short_secret_leaves_verdicts_alone():
    """A password of one digit would make every verdict unreadable; a message has none."""
    short = Secrets(["4", "score", ""])
    assert short.masked_reply('{"score": 4}') == '{"score": 4}'
    assert short.masked("score 4") == f"{MASK} {MASK}"


def test_what_stands_where_a_secret_is_expected_is_masked():
    """Though nobody said that it is one: it may be a gateway's own."""
    masked = Secrets([]).masked("Bearer abc.def, https://me:pw@host/v1 and bearer\n")
    assert masked == f"Bearer {MASK}, https://{MASK}@host/v1 and bearer\n"


def test_the_longest_secret_is_masked_first():
    assert Secrets(["abcdefgh", "abcdefghij"]).masked("abcdefghij") == MASK


@pytest.mark.parametrize("said", ["\\", "%5c", "%25", "//", "bearer ", "&amp;", KEY[:-1], "sk-"])
def test_no_message_takes_long(said):
    """However a server fills the 4,000 characters that are looked at."""
    masking = Secrets([KEY, PASSWORD, "\\" * 20])
    began = time.process_time()
    masking.masked(said * (4000 // len(said)))
    assert time.process_time() - began < 0.5
