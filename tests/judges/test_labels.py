import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from judges.rubrics.labels import labels, read_label
from orchestrator.core.ports import Unreadable
from orchestrator.core.query import MissingReason
from orchestrator.core.scale import Scale, ScaleType
from orchestrator.core.wire import Finish, Reply

FIVE = {str(label): float(label) for label in range(1, 6)}


def weigh(text, alternatives):
    reply = Reply(text=text, finish=Finish.STOP, usage=None, alternatives=tuple(alternatives))
    found = read_label(reply, FIVE)
    if isinstance(found, Unreadable):
        assert found.reason is MissingReason.PARSE_FAILURE
        return found.detail
    return found


def integers(low, high):
    return labels(Scale(type=ScaleType.INTEGER, low=low, high=high))


def test_labels_are_single_digits():
    """C31: a scale whose labels may be several tokens has none."""
    assert integers(0, 9) == {str(digit): digit for digit in range(10)}
    assert labels(Scale(type=ScaleType.BOOLEAN, labels=("no", "yes"))) == {"0": 0, "1": 1}
    assert integers(1, 10) is integers(-1, 3) is None
    assert labels(Scale(type=ScaleType.FLOAT, low=0, high=1)) is None


def test_the_verdict_is_the_mean_of_the_labels_by_their_probability():
    """C31: by hand, (3·0.2 + 4·0.6) / 0.8 = 3.75, with a mass of 0.8."""
    value, mass = weigh("4", [("4", math.log(0.6)), ("Four", math.log(0.1)), ("3", math.log(0.2))])
    assert value == pytest.approx(3.75)
    assert mass == pytest.approx(0.8)


def test_a_label_with_white_space_around_it_is_the_same_label():
    """Tokens of one label add up, whichever spelling the vocabulary has."""
    found = weigh(" 4\n", [("4", math.log(0.3)), (" 4", math.log(0.2)), ("5\n", math.log(0.5))])
    assert found == pytest.approx((4.5, 1.0))


@pytest.mark.parametrize(
    ("text", "alternatives", "detail"),
    [
        ("4", [], "no probabilities at the place of the verdict"),
        ("I say 4", [("4", 0.0)], "not a label alone"),
        ('{"score": 4}', [("4", 0.0)], "not a label alone"),
        ("6", [("4", 0.0)], "not a label alone"),
        ("4.0", [("4", 0.0)], "not a label alone"),
        ("\uff14", [("4", 0.0)], "not a label alone"),
        ("4", [("4", math.log(0.49)), ("I", math.log(0.5))], "the labels have less than 0.5"),
        ("4", [("The", 0.0)], "the labels have less than 0.5"),
        ("4", [("45", 0.0), ("4.", 0.0), ("\uff14", 0.0)], "the labels have less than 0.5"),
        ("4", [("4", math.nan)], "a number that is no probability"),
        ("4", [("4", 0.0), ("x", 3.0)], "a number that is no probability"),
        ("4", [("4", 1e9)], "a number that is no probability"),
        ("4", [("4", 0.0), ("5", 0.0)], "the labels have more than all"),
    ],
)
def test_what_is_no_distribution_over_labels_is_a_failure_with_its_own_reason(
    text, alternatives, detail
):
    """C31: a probability from another place, or of another token, is never taken."""
    found = weigh(text, alternatives)
    assert isinstance(found, str)
    assert found.startswith(detail)


def test_a_token_without_any_probability_counts_for_nothing():
    """Providers write a logarithm of -9999 or minus infinity for it."""
    assert weigh("4", [("4", 0.0), ("1", -9999.0), ("2", -math.inf)]) == (4.0, 1.0)


tokens = st.sampled_from(["1", "2", " 3", "4", "5", "5 ", "6", "The", "", "10", "\n"])


@given(
    st.dictionaries(tokens, st.floats(0, 1, exclude_min=True), min_size=1),
    st.floats(0.5, 1),
)
def test_a_weighed_verdict_lies_between_the_labels_and_says_its_mass(weights, scale):
    """C31: the mean never leaves the scale, and the mass is that of the labels alone."""
    total = math.fsum(weights.values()) / scale
    shares = {token: weight / total for token, weight in weights.items()}
    found = weigh("4", [(t, math.log(p)) for t, p in shares.items() if p])
    mass = math.fsum(p for token, p in shares.items() if token.strip() in FIVE)
    if isinstance(found, str):
        assert mass < 0.5 + 1e-9
    else:
        assert 1 <= found.value <= 5
        assert found.mass == pytest.approx(mass)
        listed = [FIVE[token.strip()] for token, p in shares.items() if token.strip() in FIVE and p]
        assert min(listed) <= found.value <= max(listed)
