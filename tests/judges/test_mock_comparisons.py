"""The mock judge as one who compares: Bradley, Terry and Davidson, in log-odds."""

import json
from collections import Counter
from functools import cache

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from judges.mock import MockConfig, MockJudge, synthetic_truth
from judges.rubrics.compare import Compare
from orchestrator.core.errors import InvalidCampaign
from orchestrator.core.frame import Frame
from orchestrator.core.ports import JudgeSetting
from orchestrator.core.query import Kind, Preference, Query
from orchestrator.core.scale import Criterion, Scale, ScaleType
from orchestrator.core.seeds import Seeds
from orchestrator.core.study import Study
from orchestrator.core.wire import FIRST_ATTEMPT, Route
from orchestrator.testing.adapters import AdapterContract

TIES = Scale(type=ScaleType.PREFERENCE, ties=True)
STRICT = Scale(type=ScaleType.PREFERENCE)


def study(*, n_items=20, arms=("old", "new"), scales=(TIES,), seed=7):
    return Study(
        kind=Kind.COMPARE,
        frame=Frame.of([f"i{n}" for n in range(n_items)], arms),
        panel=(),
        criteria=tuple(Criterion(name=f"c{n}", scale=s) for n, s in enumerate(scales)),
        seeds=Seeds(seed),
    )


def judge(of=None, *, name="mock", given=None, **config):
    of = of or study()
    truth = None if given is None else np.asarray(given, dtype=float).reshape(of.frame.n_units, -1)
    setting = JudgeSetting(name=name, judge=0, study=of, max_output_tok=400, truth=truth)
    return MockJudge(MockConfig.model_validate(config), setting)


@cache
def asks(of, **options):
    return Compare(
        None,
        of.criteria,
        (),
        n_arms=of.frame.n_arms,
        seeds=of.seeds,
        max_output_tok=400,
        **options,
    )


def question(units=(0, 1), replicate=0):
    return Query(kind=Kind.COMPARE, judge=0, units=units, replicate=replicate)


def said(adapter, of, query, **options):
    """Ask, and read what the ordinary rubric makes of the answer, by criterion."""
    rubric = asks(of, **options)
    reply, _ = adapter.attempt(rubric.render(query, FIRST_ATTEMPT))
    reading = rubric.read(query, reply)
    return [o.preference for o in sorted(reading.observations, key=lambda o: o.criterion)]


def spread(of, *strengths):
    """Give each arm a strength, in all items alike."""
    return np.tile(strengths, of.frame.n_items)


class TestContract(AdapterContract):
    @pytest.fixture
    def adapter(self):
        return judge()

    @pytest.fixture
    def requests(self):
        of = study()
        return [asks(of).render(question((n, n ^ 1)), FIRST_ATTEMPT) for n in range(4)]


def test_shares_are_those_of_the_model():
    """5,000 answers by chance fall where Bradley, Terry and Davidson say, order effect included."""
    of = study(n_items=2500)
    options = {"nu": 0.6, "order_effect": 0.3, "discrimination": 0.5}
    adapter = judge(of, given=spread(of, 0.2, 1.0), **options)
    for first, second in ((0, 1), (1, 0)):
        counts = Counter(
            said(adapter, of, question((2 * i + first, 2 * i + second)))[0] for i in range(2500)
        )
        (chances,) = adapter.chances(question((first, second)))
        x = 0.5 * 0.8 * (second < first) - 0.5 * 0.8 * (first < second) + 0.3
        weights = np.array([np.exp(x / 2), 0.6, np.exp(-x / 2)])
        assert chances == pytest.approx(weights / weights.sum())
        found = np.array([counts[side] for side in ("first", "tie", "second")])
        expected = 2500 * chances
        assert (np.abs(found - expected) < 4 * np.sqrt(expected)).all()


@given(x=st.floats(-2000, 2000), nu=st.floats(0, 100))
def test_chances_are_a_law_at_any_strength(x, nu):
    """No strength overflows, and turned about the same answer has the same chance."""
    of = study(n_items=1)
    adapter = judge(of, given=[x, 0.0], nu=nu)
    (one,), (turned,) = adapter.chances(question((0, 1))), adapter.chances(question((1, 0)))
    assert one.sum() == pytest.approx(1)
    assert (one >= 0).all()
    assert one == pytest.approx(turned[::-1])


def test_a_judge_that_always_says_first():
    """C34: an order effect without bounds; whatever the truth, the answer shown first is better."""
    of = study(scales=(TIES, STRICT))
    adapter = judge(of, order_effect=10_000, nu=1.0)
    for item in range(10):
        for pair in ((2 * item, 2 * item + 1), (2 * item + 1, 2 * item)):
            assert said(adapter, of, question(pair)) == ["first", "first"]


def test_ties_appear_only_where_the_criterion_has_them():
    """C34: without ties none appears, however large `nu` is."""
    of = study(scales=(TIES, STRICT), n_items=200)
    adapter = judge(of, nu=1e6)
    found = [said(adapter, of, question((2 * i, 2 * i + 1))) for i in range(200)]
    assert {pair[0] for pair in found} == {"tie"}
    assert {pair[1] for pair in found} == {"first", "second"}


def test_answers_depend_on_names_order_and_repeat_alone():
    """The same question elsewhere is answered alike; turned or repeated it is drawn anew."""
    small, large = study(n_items=20), study(n_items=40, arms=("new", "old"))
    equal, other = judge(small, given=spread(small, 0, 0)), judge(large, given=spread(large, 0, 0))
    mine = [said(equal, small, question((2 * i, 2 * i + 1))) for i in range(20)]
    again = [said(other, large, question((2 * i + 1, 2 * i))) for i in range(20)]
    assert mine == again
    assert mine != [said(equal, small, question((2 * i, 2 * i + 1), 1)) for i in range(20)]
    turned = [said(equal, small, question((2 * i + 1, 2 * i))) for i in range(20)]
    opposite = {"first": "second", "second": "first"}
    assert mine != [[opposite[side] for side in pair] for pair in turned]


def test_arms_have_strengths_where_no_truth_is_given():
    """A synthetic truth is of arms, by their names: the same in all items, for all judges."""
    truth = synthetic_truth(study(arms=("a", "b", "c"), scales=(TIES, STRICT)))
    by_item = truth.reshape(20, 3, 2)
    assert (by_item == by_item[0]).all()
    assert len(np.unique(by_item[0])) == 6
    fewer = synthetic_truth(study(arms=("c", "a"), scales=(TIES, STRICT)))
    assert (fewer[:2] == by_item[0][[2, 0]]).all()


def test_a_taste_is_of_arms_and_of_one_judge():
    """`interaction` shifts arms for a judge alone, the same in all items; a bias cancels."""
    of = study(arms=("a", "b", "c"))
    plain = judge(of, given=spread(of, 0, 0, 0), bias=3.0)
    assert plain.chances(question((0, 1))) == pytest.approx(np.array([[0.5, 0, 0.5]]))
    one, two = (judge(of, name=n, given=spread(of, 0, 0, 0), interaction=1) for n in "xy")
    mine = one.chances(question((0, 1)))
    assert mine == pytest.approx(one.chances(question((3, 4))))
    assert mine[0][0] != pytest.approx(0.5)
    assert mine != pytest.approx(two.chances(question((0, 1))))


def test_what_a_question_shares_ties_its_criteria_together():
    """With a large shared part the criteria of one question mostly agree."""
    of = study(scales=(STRICT, STRICT), n_items=400)
    zero = np.zeros((800, 2))
    pairs = [(2 * i, 2 * i + 1) for i in range(400)]

    def agreeing(adapter):
        return np.mean([len(set(said(adapter, of, question(pair)))) == 1 for pair in pairs])

    assert agreeing(judge(of, given=zero)) < 0.6
    assert agreeing(judge(of, given=zero, batch_sd=10.0)) > 0.85


@pytest.mark.parametrize("route", [Route.TEXT, Route.LOGPROB])
def test_any_route_reads_what_the_mock_says(route):
    """An object for text, the bare label for logprob; both say the same."""
    of = study(n_items=60)
    adapter = judge(of, nu=0.5)
    queries = [question((2 * i, 2 * i + 1)) for i in range(60)]
    by_route = [said(adapter, of, query, route=route) for query in queries]
    assert by_route == [said(adapter, of, query) for query in queries]
    assert {side for (side,) in by_route} == set(Preference)


def test_reasons_stand_beside_the_verdict():
    """A mock has no reasons, and gives that one where one is asked for."""
    of = study()
    reply, _ = judge(of).attempt(asks(of, reason="before").render(question(), FIRST_ATTEMPT))
    assert list(json.loads(reply.text)) == ["reason", "c0"]


def test_log_odds_of_yes_are_no_key_of_comparisons():
    """Comparisons are in log-odds as it is."""
    with pytest.raises(InvalidCampaign, match="wants boolean criteria"):
        judge(log_odds=True)
