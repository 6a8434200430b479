"""The mock as a system under test: what it answers, how often that is right, and how it fails."""

from dataclasses import replace
from functools import cache

import pytest
from hypothesis import given
from hypothesis import strategies as st

from judges.mock import PROSE, MockConfig, MockJudge
from judges.rubrics.check import Check, Match, normalised
from judges.rubrics.generate import Generate
from orchestrator.core.errors import Overloaded
from orchestrator.core.frame import Frame
from orchestrator.core.money import PriceCard, cost
from orchestrator.core.ports import JudgeSetting, Unreadable
from orchestrator.core.query import Kind, MissingReason, Query, Role
from orchestrator.core.scale import Criterion, Scale, ScaleType
from orchestrator.core.seeds import Seeds
from orchestrator.core.study import Study
from orchestrator.core.wire import FIRST_ATTEMPT, Attempt, Finish
from orchestrator.testing.adapters import AdapterContract

RIGHT = Criterion(name="score", scale=Scale(type=ScaleType.BOOLEAN, labels=("wrong", "right")))
RUBRIC = Generate(None, (), hidden=(), max_output_tok=400)
POINTS = Criterion(name="points", scale=Scale(type=ScaleType.INTEGER, low=1, high=5))


@cache
def study(*, items=20, arms=("m1", "m2"), criteria=(RIGHT,), seed=7):
    labels = items if isinstance(items, tuple) else [f"i{n}" for n in range(items)]
    frame = Frame.of(labels, arms)
    return Study(kind=Kind.CHECK, frame=frame, panel=(), criteria=criteria, seeds=Seeds(seed))


def keys_of(of):
    return [f"key {unit // of.frame.n_arms}" for unit in range(of.frame.n_units)]


def system(of=None, *, name="m1", keys=True, **config):
    of = of or study()
    setting = JudgeSetting(
        name=name,
        judge=3,
        study=of,
        max_output_tok=400,
        keys=keys_of(of) if keys is True else keys or None,
        role=Role.SYSTEM,
    )
    return MockJudge(MockConfig.model_validate(config), setting)


def asked(item=0, arm=0, *, of=None, replicate=0, attempt=FIRST_ATTEMPT):
    of = of or study()
    unit = of.frame.unit(item, arm)
    query = Query(kind=Kind.GENERATE, role=Role.SYSTEM, judge=3, units=(unit,), replicate=replicate)
    return RUBRIC.render(query, attempt)


def sent(adapter, request):
    """Drive an attempt that never waits, without an event loop."""
    try:
        adapter.send(request).send(None)
    except StopIteration as done:
        return done.value
    raise AssertionError("the attempt waits")


def answers(adapter, of=None, arm=0, **options):
    of = of or study()
    n = range(of.frame.n_items)
    return [sent(adapter, asked(item, arm, of=of, **options)).text for item in n]


class TestContract(AdapterContract):
    @pytest.fixture
    def adapter(self):
        return system()

    @pytest.fixture
    def requests(self):
        return [asked(0), asked(3), asked(3, attempt=Attempt(number=2, widened=True))]

    @pytest.fixture
    def attempts(self):
        return lambda adapter: adapter.n_attempts

    @pytest.fixture
    def failing(self):
        return [system(faults={fault: 1}) for fault in ("429", "401", "disconnect")]

    @pytest.fixture
    def hanging(self):
        return system(realtime=True, faults={"timeout": 1})


# What is answered


@pytest.mark.parametrize("right", [0.0, 0.3, 1.0])
def test_an_answer_is_the_key_as_often_as_the_campaign_says(right):
    """Within four standard errors at 4,000 items; at 0 and 1 never and always."""
    of = study(items=4_000, arms=("m1",))
    keys = keys_of(of)
    share = sum(map(str.__eq__, answers(system(of, right=right), of), keys)) / len(keys)
    assert abs(share - right) <= 4 * (right * (1 - right) / len(keys)) ** 0.5


@given(st.text(min_size=1).filter(str.strip))
def test_a_wrong_answer_is_wrong_whatever_does_not_count(key):
    """No normalisation makes the key of it."""
    of = study(items=1, arms=("m1",))
    ((wrong,), (right,)) = (answers(system(of, keys=[key], right=p), of) for p in (0.0, 1.0))
    assert right == key
    for normalise in ((), ("case",), ("space",), ("case", "space")):
        assert normalised(wrong, normalise) != normalised(key, normalise)


def test_without_a_key_an_answer_is_the_systems_own():
    """It names the system and the item, so answers to different items can be told apart."""
    of = study()
    for keys in (None, [" "] * of.frame.n_units):
        said = answers(system(of, keys=keys), of) + answers(system(of, keys=keys, name="m2"), of, 1)
        assert len(set(said)) == 2 * of.frame.n_items
        assert said[3] == "answer 1 of m1 to i3"


def test_answers_depend_on_seed_item_arm_system_and_repeat_alone():
    """C40: another process, order or campaign changes none; each of these changes some."""
    of = study(items=60)
    first = answers(system(of), of)
    assert answers(system(of), of, attempt=Attempt(number=2)) == first
    assert [sent(system(of), asked(item, of=of)).text for item in range(60)] == first
    turned = study(items=tuple(reversed(of.frame.items)), arms=("m2", "m1"))
    keys = list(reversed(keys_of(of)))
    assert answers(system(turned, keys=keys), turned, 1) == first[::-1]

    assert answers(system(of), of, replicate=1) != first
    assert answers(system(of), of, arm=1) != first
    assert answers(system(of, name="m3"), of) != first
    assert answers(system(study(items=60, seed=8)), study(items=60, seed=8)) != first


def test_answers_are_checked_as_any_text():
    """A match finds as many right as there are keys among them."""
    of = study(items=300, arms=("m1",))
    said = answers(system(of), of)
    fields = [
        {"reference": key.upper(), "candidate": text}
        for key, text in zip(keys_of(of), said, strict=True)
    ]
    rubric = Check(
        None,
        of.criteria,
        fields,
        seeds=of.seeds,
        max_output_tok=400,
        steps=(Match("reference", ("case",)),),
        has_judge=False,
    )
    queries = [Query(kind=Kind.CHECK, judge=0, units=(unit,)) for unit in range(300)]
    verdicts = [rubric.read(q, rubric.known(q)).observations[0].value for q in queries]
    assert sum(verdicts) == sum(map(str.__eq__, said, keys_of(of)))


def test_a_system_needs_nothing_that_a_judge_needs():
    """Neither a truth nor a scale for its log-odds: it gives no verdict."""
    of = study(criteria=(RIGHT, POINTS))
    assert answers(system(of, log_odds=True, truth="column", interaction=1), of)[0]


# How it fails


@pytest.mark.parametrize(
    ("fault", "reason"),
    [
        ("truncated", MissingReason.TRUNCATED),
        ("refused", MissingReason.REFUSED),
        ("blocked", MissingReason.BLOCKED),
        ("empty", MissingReason.EMPTY),
    ],
)
def test_a_fault_is_no_answer(fault, reason):
    request = asked()
    read = RUBRIC.read(request.query, sent(system(faults={fault: 1}), request))
    assert isinstance(read, Unreadable)
    assert read.reason is reason


def test_prose_is_an_answer_and_a_wrong_one():
    """What no verdict could be read from is still a text."""
    reply = sent(system(faults={"unparsable": 1}, right=1), asked())
    assert (reply.text, reply.finish) == (PROSE, Finish.STOP)


def test_faults_strike_and_cost_as_those_of_a_judge():
    """At the configured rate; a reply costs its tokens, and none exceeds its ceiling."""
    card = PriceCard(input=1_000, output=5_000)
    adapter = system(faults={"503": 0.2}, tokens={"in": 90, "out": 25})
    n_failed = 0
    for item in range(20):
        for replicate in range(50):
            request = asked(item, replicate=replicate)
            try:
                reply = sent(adapter, request)
            except Overloaded:
                n_failed += 1
            else:
                assert cost(reply.usage, card) == 90 + 25 * 5 <= adapter.ceiling(request, card)
                assert reply.alternatives == ()
    assert abs(n_failed / 1_000 - 0.2) < 0.05


# The judge beside it


@pytest.mark.parametrize("criterion", [RIGHT, POINTS])
def test_a_mock_judge_checks_as_it_rates(criterion):
    """Its verdict on an answer is the same in both tasks."""
    of = study(criteria=(criterion,))
    setting = JudgeSetting(name="jury", judge=0, study=of, max_output_tok=400)
    rubric = Check(
        None, of.criteria, (), seeds=of.seeds, max_output_tok=400, steps=(), has_judge=True
    )
    for unit in range(10):
        query = Query(kind=Kind.CHECK, judge=0, units=(unit,))
        verdicts = []
        for kind in (Kind.CHECK, Kind.RATE):
            judge = MockJudge(MockConfig(), replace(setting, study=replace(of, kind=kind)))
            request = rubric.render(replace(query, kind=kind), FIRST_ATTEMPT)
            verdicts.append(rubric.read(query, sent(judge, request)).observations)
        assert verdicts[0] == verdicts[1]
        assert criterion.scale.admits(verdicts[0][0].value)
