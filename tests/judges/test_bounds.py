from hypothesis import given
from hypothesis import strategies as st

from judges.bounds import IMAGE_TOK, MESSAGE_TOK, input_bound
from orchestrator.core.query import Kind, Query
from orchestrator.core.wire import FIRST_ATTEMPT, Chat, Image, Request, Text, Turn


def bound(*parts, schema=None):
    return input_bound(
        Request(
            query=Query(kind=Kind.RATE, judge=0, units=(0,)),
            attempt=FIRST_ATTEMPT,
            parts=parts,
            max_output_tok=1,
            schema=schema or {},
        )
    )


def test_every_part_of_a_request_is_bounded():
    """Letters of several bytes count by bytes; roles, pictures and the schema count too."""
    empty = bound()
    assert bound(Text(text="é")) - empty == MESSAGE_TOK + 2
    chat = Chat(turns=(Turn(role="user", content="hi"), Turn(role="x", content="")))
    assert bound(chat) - empty == 2 * MESSAGE_TOK + 7
    picture = Image(media_type="image/png", data=b"1234")
    assert bound(picture) - empty == MESSAGE_TOK + IMAGE_TOK + 4
    assert bound(schema={"ä": 1}) - empty == len('{"ä": 1}'.encode()) - 2


def test_a_lone_surrogate_counts_as_what_is_sent_for_it():
    """It goes out as U+FFFD, of three bytes."""
    assert bound(Text(text="\ud800")) == bound(Text(text="\ufffd"))


def test_a_letter_that_stands_for_many_counts_as_many():
    """U+FDFA is a phrase of 18 letters to a tokenizer that writes such letters out."""
    phrase = "\u0635\u0644\u0649 \u0627\u0644\u0644\u0647 "
    phrase += "\u0639\u0644\u064a\u0647 \u0648\u0633\u0644\u0645"
    assert bound(Text(text="\ufdfa" * 9)) == bound(Text(text=phrase * 9))


@given(st.lists(st.text(), max_size=4))
def test_a_bound_is_never_below_the_bytes_sent(texts):
    sent = sum(len(text.encode(errors="surrogatepass")) for text in texts)
    assert bound(*[Text(text=text) for text in texts]) >= sent + MESSAGE_TOK * len(texts)
