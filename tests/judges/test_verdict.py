import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from judges.rubrics.verdict import read_object, read_value
from orchestrator.core.ports import Unreadable
from orchestrator.core.query import MissingReason
from orchestrator.core.scale import Criterion, Scale, ScaleType

TEN = Criterion(name="score", scale=Scale(type=ScaleType.INTEGER, low=1, high=10))
SHARE = Criterion(name="score", scale=Scale(type=ScaleType.FLOAT, low=0, high=1))
YES_NO = Criterion(name="score", scale=Scale(type=ScaleType.BOOLEAN, labels=("no", "yes")))


def read(text, criterion=TEN, *, allow_na=False):
    said = read_object(text)
    if isinstance(said, Unreadable):
        return said
    return read_value(said, criterion, allow_na=allow_na)


def why(text, criterion=TEN):
    found = read(text, criterion)
    assert isinstance(found, Unreadable)
    assert found.reason is MissingReason.PARSE_FAILURE
    return found.detail


@pytest.mark.parametrize(
    "text",
    [
        '{"score": 8}',
        '\n  {"score": 8}\n',
        '{"score": 8.0}',
        '```json\n{"score": 8}\n```',
        '```\n{"score": 8}```\n',
        '```JSON {"score": 8}```',
        '{"score": 8}\n{"score": 8}',
        '{"score": 8}\n```json\n{"score": 8}\n```',
        '{"reason": "it says ``` and {\\"score\\": 3}", "score": 8}',
        '```json\n{"reason": "```", "score": 8}\n```',
    ],
)
def test_a_json_verdict_is_read(text):
    """C26: a JSON object is read bare or fenced, and once if it is said twice."""
    assert read(text) == 8.0


@pytest.mark.parametrize(
    ("text", "detail"),
    [
        ("I would give it 8 out of 10.", "not JSON"),
        ('{"score": 1', "not JSON"),
        ('Here you are: {"score": 8}', "not JSON"),
        ('{"score": 8} I hope this helps.', "text beside the verdict"),
        ('```json\n{"score": 8}', "a Markdown fence is not closed"),
        ('{"score": 8}\n{"score": 9}', "several verdicts that differ"),
        ('{"score": 1}\n{"score": true}', "several verdicts that differ"),
        ("8", "not a JSON object"),
        ("[8]", "not a JSON object"),
        ("null", "not a JSON object"),
        ('8 {"score": 8}', "not a JSON object"),
        ('{"score": 8, "score": 9}', "a key stands twice"),
        ('{"score": 8, "score": 8}', "a key stands twice"),
        ('{"score": 8, "more": {"a": 1, "a": 1}}', "a key stands twice"),
        ('{"score": NaN}', "NaN is not JSON"),
        ('{"score": -Infinity}', "-Infinity is not JSON"),
        ('{"score": 1e999}', "score: outside 1 to 10"),
        ('{"score": ' + "9" * 400 + "}", "score: outside 1 to 10"),
        ('{"score": ' + "9" * 5000 + "}", "not JSON"),
        ("[" * 100_000, "not JSON"),
        ('{"score": true}', "score: true or false where a number is due"),
        ('{"score": null}', "score: null"),
        ('{"score": 11}', "score: outside 1 to 10"),
        ('{"score": 0}', "score: outside 1 to 10"),
        ('{"score": -0.5}', "score: outside 1 to 10"),
        ('{"score": 7.5}', "score: not a whole number"),
        ('{"score": "8"}', "score: not a number"),
        ('{"score": [8]}', "score: not a number"),
        ('{"Score": 8}', "score: missing"),
        ("{}", "score: missing"),
    ],
)
def test_what_is_no_verdict_is_a_failure_with_its_own_reason(text, detail):
    """C26, C27: nothing is guessed, rescaled, clamped, rounded or defaulted."""
    assert why(text) == detail


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ('{"score": true}', 1),
        ('{"score": false}', 0),
        ('{"score": "yes"}', 1),
        ('{"score": "no"}', 0),
    ],
)
def test_booleans_are_true_false_or_the_scales_words(text, value):
    """C26: a boolean criterion takes JSON's words and its own."""
    assert read(text, YES_NO) == value


@pytest.mark.parametrize("said", ["1", "0", '"Yes"', '"true"', "[]"])
def test_other_words_are_no_boolean(said):
    """C26: neither numbers nor other spellings are taken for yes or no."""
    assert why(f'{{"score": {said}}}', YES_NO) == "score: neither true nor false"


def test_null_is_not_applicable_only_where_allowed():
    """C28: a criterion that does not apply has no value; elsewhere null is no verdict."""
    assert read('{"score": null}', allow_na=True) is None
    assert read('{"score": null}', YES_NO, allow_na=True) is None
    assert why('{"score": null}') == "score: null"


@given(st.floats(0, 1))
def test_a_float_verdict_is_read_to_the_bit(value):
    assert read(json.dumps({"score": value}), SHARE) == value


@given(st.text() | st.text('{}[]`"json: 019,\n'))
def test_any_text_is_read_or_refused(text):
    """No reply raises, and no refusal quotes it: details reach logs, replies may not."""
    found = read_object(text)
    assert isinstance(found, dict) or found.detail in {
        "not JSON",
        "not a JSON object",
        "text beside the verdict",
        "several verdicts that differ",
        "a Markdown fence is not closed",
        "a key stands twice",
        "NaN is not JSON",
        "Infinity is not JSON",
        "-Infinity is not JSON",
    }


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=5,
)


@given(json_values, st.sampled_from([TEN, SHARE, YES_NO]), st.booleans())
def test_a_value_is_read_only_if_the_scale_admits_it(value, criterion, allow_na):
    """Whatever a judge says, what is read lies on the scale or is "not applicable"."""
    found = read_value({"score": value}, criterion, allow_na=allow_na)
    if found is None:
        assert allow_na
    elif not isinstance(found, Unreadable):
        assert criterion.scale.admits(found)
        assert isinstance(value, (bool, int, float)) or value in criterion.scale.labels
