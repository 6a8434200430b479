import math
import socket
import time
from dataclasses import replace
from functools import cache

import anyio
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.integrate import trapezoid

from judges.mock import (
    PROSE,
    MockConfig,
    MockJudge,
    expected_verdict,
    expected_yes,
    spelt_verdict,
)
from judges.rubrics.rate import Rate
from judges.rubrics.rate_batch import TRUNCATED, RateBatch
from orchestrator.core import errors
from orchestrator.core.frame import Frame
from orchestrator.core.money import PriceCard, cost
from orchestrator.core.ports import JudgeSetting, Unreadable
from orchestrator.core.query import Kind, Query
from orchestrator.core.scale import Criterion, Scale, ScaleType
from orchestrator.core.seeds import Seeds
from orchestrator.core.study import Study
from orchestrator.core.wire import FIRST_ATTEMPT, Attempt, Billing, Finish, Route
from orchestrator.testing.adapters import AdapterContract

GRADE = Scale(type=ScaleType.INTEGER, low=1, high=5)
YES_NO = Scale(type=ScaleType.BOOLEAN, labels=("no", "yes"))
SHARE = Scale(type=ScaleType.FLOAT, low=0, high=1)
WIDE = Scale(type=ScaleType.FLOAT, low=-100, high=100)


def study(*, items=20, arms=("",), scales=(GRADE,), seed=7):
    labels = items if isinstance(items, tuple) else [f"i{n}" for n in range(items)]
    criteria = tuple(Criterion(name=f"c{n}", scale=s) for n, s in enumerate(scales))
    return Study(
        kind=Kind.RATE,
        frame=Frame.of(labels, arms),
        panel=(),
        criteria=criteria,
        seeds=Seeds(seed),
    )


def judge(of=None, *, name="mock", given=None, **config):
    setting = JudgeSetting(name=name, judge=0, study=of or study(), max_output_tok=400, truth=given)
    return MockJudge(MockConfig.model_validate(config), setting)


@cache
def asks(of=None, *, reason="none"):
    of = of or study()
    return Rate(None, of.criteria, (), seeds=of.seeds, max_output_tok=400, reason=reason)


def question(unit=0, replicate=0):
    return Query(kind=Kind.RATE, judge=0, units=(unit,), replicate=replicate)


def request_for(query, attempt=FIRST_ATTEMPT, *, of=None, reason="none"):
    return asks(of, reason=reason).render(query, attempt)


def sent(adapter, request):
    """Drive an attempt that never waits, without an event loop."""
    try:
        adapter.send(request).send(None)
    except StopIteration as done:
        return done.value
    raise AssertionError("the attempt waits")


def values(adapter, query, of=None):
    rubric = asks(of)
    read = rubric.read(query, sent(adapter, rubric.render(query, FIRST_ATTEMPT)))
    return [observation.value for observation in read.observations]


class TestContract(AdapterContract):
    @pytest.fixture
    def adapter(self):
        return judge()

    @pytest.fixture
    def requests(self):
        widened = Attempt(number=2, widened=True)
        return [request_for(question(unit), a) for unit in (0, 3) for a in (FIRST_ATTEMPT, widened)]

    @pytest.fixture
    def attempts(self):
        return lambda adapter: adapter.n_attempts

    @pytest.fixture
    def failing(self):
        return [judge(faults={fault: 1}) for fault in errors_by_fault]

    @pytest.fixture
    def hanging(self):
        return judge(realtime=True, faults={"timeout": 1})


errors_by_fault = {
    "400": (errors.BadRequest, Billing.NO),
    "401": (errors.BadCredentials, Billing.NO),
    "402": (errors.QuotaExhausted, Billing.NO),
    "403": (errors.BadCredentials, Billing.NO),
    "404": (errors.UnknownModel, Billing.NO),
    "408": (errors.TimedOut, Billing.UNKNOWN),
    "413": (errors.TooLong, Billing.NO),
    "422": (errors.BadRequest, Billing.NO),
    "429": (errors.RateLimited, Billing.NO),
    "500": (errors.Overloaded, Billing.NO),
    "502": (errors.Disconnected, Billing.UNKNOWN),
    "503": (errors.Overloaded, Billing.NO),
    "504": (errors.TimedOut, Billing.UNKNOWN),
    "529": (errors.Overloaded, Billing.NO),
    "disconnect": (errors.Disconnected, Billing.UNKNOWN),
    "quota": (errors.QuotaExhausted, Billing.NO),
    "timeout": (errors.TimedOut, Billing.UNKNOWN),
}


# What an answer depends on


def test_an_answer_depends_on_the_named_key_alone():
    """C40: the same seed, item, arm, judge, order and repeat give the same answer, whatever else.

    Whatever else: who was asked before, which attempt it is, and which other items, arms and
    judges the campaign has.
    """
    alone = study(items=("b",), arms=("new",))
    among = study(items=("a", "b", "c"), arms=("old", "new"))
    wanted = sent(judge(alone), request_for(question(0, 3), of=alone)).text
    busy = judge(among)
    for unit in range(among.frame.n_units):
        sent(busy, request_for(question(unit), of=among))
    unit = among.frame.unit(1, 1)
    again = request_for(question(unit, 3), Attempt(number=4, widened=True), of=among)
    assert sent(busy, again).text == wanted


@pytest.mark.parametrize(
    "change",
    [{"seed": 8}, {"name": "other"}, {"unit": 1}, {"unit": 2}, {"replicate": 1}],
    ids=lambda change: next(iter(change)),
)
def test_each_part_of_the_key_changes_the_answer(change):
    """C40: another seed, judge, arm, item or repeat is another answer."""
    key = {"seed": 7, "name": "mock", "unit": 0, "replicate": 0}

    def answer(seed, name, unit, replicate):
        of = study(items=2, arms=("old", "new"), scales=(WIDE,), seed=seed)
        return values(
            judge(of, name=name, given=np.full((4, 1), 0.5)), question(unit, replicate), of
        )

    assert answer(**key) != answer(**key | change)


def test_faults_depend_on_the_attempt_too():
    """A fault that struck one attempt need not strike the next, and strikes it in every run."""

    def struck():
        adapter = judge(faults={"429": 0.5})
        outcomes = []
        for number in range(1, 21):
            try:
                sent(adapter, request_for(question(), Attempt(number=number)))
                outcomes.append(False)
            except errors.RateLimited:
                outcomes.append(True)
        return outcomes

    assert struck() == struck()
    assert 0 < sum(struck()) < 20


def test_non_ascii_names_are_as_good_as_others():
    """C23: items, arms, judges and criteria may have any names, lone surrogates included."""
    of = Study(
        kind=Kind.RATE,
        frame=Frame.of(["Größe ✓ 漢字 🏳️‍🌈", "a\u2028b", "\ud800"], ["neu", "größer"]),
        panel=(),
        criteria=(Criterion(name="Güte", scale=GRADE),),
        seeds=Seeds(1),
    )
    adapter = judge(of, name="Prüfer 判")
    for unit in range(of.frame.n_units):
        assert values(adapter, question(unit), of)[0] in range(1, 6)


# What is emitted


def test_verdicts_are_on_their_scale_and_read_by_the_ordinary_rubric():
    """Each kind of scale gets a verdict that it admits, however far the latent value lies off."""
    of = study(items=200, scales=(GRADE, YES_NO, SHARE))
    adapter = judge(of, sd=5)
    seen = np.array([values(adapter, question(unit), of) for unit in range(200)])
    assert set(seen[:, 0]) == {1, 2, 3, 4, 5}
    assert set(seen[:, 1]) == {0, 1}
    assert {0, 1} < set(seen[:, 2])
    assert all(v == round(v, 6) for v in seen[:, 2])


def test_a_reason_is_given_only_if_asked_for():
    """The reply has the keys of the request's schema, in its order."""
    texts = {
        reason: sent(judge(sd=0), request_for(question(), reason=reason)).text
        for reason in ("none", "before", "after")
    }
    assert '"reason"' not in texts["none"]
    assert texts["before"].startswith('{"reason": ')
    assert texts["after"].startswith('{"c0": ')
    assert '"reason": ' in texts["after"]


def test_several_units_are_answered_in_presentation_order():
    """The order effect is felt once per slot before a unit."""
    of = study(items=3, scales=(SHARE,))
    adapter = judge(of, sd=0, order_effect=0.1, given=np.array([[0.1], [0.2], [0.3]]))
    request = request_for(question(), of=of)
    both = replace(request, query=replace(request.query, units=(2, 0)))
    assert sent(adapter, both).text == '[{"c0": 0.3}, {"c0": 0.2}]'


def test_several_criteria_are_shifted_by_their_place_in_the_list():
    """The order effect is felt once per criterion before one, wherever a reason stands."""
    of = study(items=30, scales=(SHARE, SHARE, SHARE))
    adapter = judge(of, sd=0, order_effect=0.1, given=np.full((30, 3), 0.5))
    orders = set()
    for reason in ("none", "before", "after"):
        rubric = Rate(
            None,
            of.criteria,
            (),
            seeds=of.seeds,
            max_output_tok=400,
            criteria_order="random",
            reason=reason,
        )
        for unit in range(30):
            query = question(unit)
            read = rubric.read(query, sent(adapter, rubric.render(query, FIRST_ATTEMPT)))
            orders.add(tuple(o.slot for o in read.observations))
            for seen in read.observations:
                exact = adapter.expected(slot=seen.slot)[unit, seen.criterion]
                assert seen.value == pytest.approx(0.5 + 0.1 * seen.slot)
                assert seen.value == pytest.approx(exact)
    assert len(orders) == 6


@pytest.mark.parametrize("scale", [GRADE, YES_NO], ids=lambda scale: scale.type)
def test_a_bare_label_has_all_of_the_probability(scale):
    """A dry run by `logprob` gives the verdicts that the other routes give."""
    of = study(scales=(scale,))
    adapter = judge(of)
    rubric = Rate(None, of.criteria, (), seeds=of.seeds, max_output_tok=400, route=Route.LOGPROB)
    for unit in range(20):
        query = question(unit)
        reply = sent(adapter, rubric.render(query, FIRST_ATTEMPT))
        assert reply.text in "012345"
        assert reply.alternatives == ((reply.text, 0.0),)
        (seen,) = rubric.read(query, reply).observations
        assert ([seen.value], seen.mass) == (values(adapter, query, of), 1.0)
        assert sent(adapter, request_for(query, of=of)).alternatives == ()
    for fault in ("unparsable", "empty", "truncated", "refused", "blocked"):
        reply = sent(judge(of, faults={fault: 1}), rubric.render(question(), FIRST_ATTEMPT))
        assert isinstance(rubric.read(question(), reply), Unreadable)


def test_bias_and_drift_shift_the_verdict():
    """Bias shifts all answers, drift each repeat by as much again."""
    of = study(items=1, scales=(SHARE,))
    adapter = judge(of, sd=0, bias=0.1, drift=0.2, given=np.array([[0.3]]))
    assert [values(adapter, question(0, r), of) for r in range(3)] == [[0.4], [0.6], [0.8]]


def test_interaction_is_an_items_own_and_a_judges_own():
    """It is the same in all arms and repeats of an item, and differs between judges."""
    of = study(items=4000, arms=("old", "new"), scales=(SHARE,))
    truth = np.full((8000, 1), 0.5)
    one = judge(of, sd=0, interaction=0.1, given=truth).expected()[:, 0]
    two = judge(of, sd=0, interaction=0.1, given=truth, name="two").expected()[:, 0]
    assert np.array_equal(one[::2], one[1::2])
    assert np.std(one[::2]) == pytest.approx(0.1, rel=0.06)
    assert abs(np.corrcoef(one, two)[0, 1]) < 0.06


def test_synthetic_truth_lies_mid_scale_and_is_shared():
    """Without a column the truth is normal, its SD a quarter of the range, for all judges alike."""
    of = study(items=4000, scales=(SHARE, Scale(type=ScaleType.FLOAT, low=-100, high=300)))
    latent = judge(of)._centres
    assert (np.mean(latent, axis=0) - [0.5, 100]) / [1, 400] == pytest.approx([0, 0], abs=0.02)
    assert np.std(latent, axis=0) == pytest.approx([0.25, 100], rel=0.05)
    assert np.array_equal(latent, judge(of, name="other", bias=0)._centres)


# The known truth


@pytest.mark.parametrize("scale", [GRADE, YES_NO, SHARE], ids=lambda scale: scale.type)
@pytest.mark.parametrize("sd", [0.0, 0.05, 0.7, 3.0])
def test_expected_verdict_agrees_with_simulation(scale, sd):
    """The closed form is the mean of what is emitted, within five standard errors."""
    means = np.linspace(scale.low - 1, scale.high + 1, 9)
    noise = np.random.default_rng(5).standard_normal(20_000)
    exact = expected_verdict(means, sd, scale)
    for mean, value in zip(means, exact, strict=True):
        emitted = [
            {"true": 1.0, "false": 0.0}.get(said) if said in {"true", "false"} else float(said)
            for said in (spelt_verdict(x, scale) for x in (mean + sd * noise).tolist())
        ]
        error = np.std(emitted) / math.sqrt(len(emitted))
        assert np.mean(emitted) == pytest.approx(value, abs=5 * error + 1e-6)


@pytest.mark.parametrize("scale", [GRADE, SHARE], ids=lambda scale: scale.type)
def test_expected_verdict_agrees_with_quadrature(scale):
    """A second witness: the emitted value integrated over the density of the noise."""
    grid = np.linspace(-9, 9, 200_001)
    density = np.exp(-(grid**2) / 2) / math.sqrt(2 * math.pi) * (grid[1] - grid[0])
    for mean in (0.3, 2.5, 4.9):
        latent = mean + 0.7 * grid
        emitted = np.clip(
            latent if scale is SHARE else np.floor(latent + 0.5), scale.low, scale.high
        )
        exact = expected_verdict(np.array([mean]), 0.7, scale)[0]
        assert exact == pytest.approx(float(emitted @ density), abs=2e-5)


def test_expected_is_the_mean_of_answers():
    """The judge's known truth is the mean of its answers to one question, repeated."""
    of = study(items=2, scales=(GRADE, YES_NO))
    adapter = judge(of, bias=0.3, interaction=0.4, sd=0.8)
    for unit in range(2):
        answers = np.array([values(adapter, question(unit, r), of) for r in range(1500)])
        error = np.std(answers, axis=0) / math.sqrt(1500) + 1e-9
        gap = np.mean(answers, axis=0) - adapter.expected()[unit]
        assert (np.abs(gap) < 4.5 * error).all()


@given(mean=st.floats(-1e6, 1e6), sd=st.just(0.0) | st.floats(1e-9, 1e3))
def test_expected_verdict_stays_on_the_scale(mean, sd):
    for scale in (GRADE, YES_NO, SHARE):
        value = expected_verdict(np.array([mean]), sd, scale)[0]
        assert scale.low - 1e-6 <= value <= scale.high + 1e-6


@pytest.mark.parametrize("truth", [np.zeros((3, 1)), np.full((20, 1), np.nan), None])
def test_a_truth_that_does_not_cover_the_units_is_refused(truth):
    """A truth column must give one number for each unit."""
    with pytest.raises(errors.InvalidCampaign, match=r"judges\.mock\.mock\.truth"):
        judge(given=truth, truth="quality")


# Several units in one question


@cache
def asks_in_batches(of):
    return RateBatch(None, of.criteria, (), seeds=of.seeds, max_output_tok=400)


def batch(*units, replicate=0):
    return Query(kind=Kind.RATE_BATCH, judge=0, units=units, replicate=replicate)


def said_of(adapter, query, of):
    """Read the verdicts on the units of a question, in their order."""
    rubric = asks_in_batches(of)
    read = rubric.read(query, sent(adapter, rubric.render(query, FIRST_ATTEMPT)))
    return [seen.value for seen in read.observations]


def test_units_in_one_question_are_answered_under_their_ids():
    """The reply is what the rubric asks for; one that is cut brings what was complete."""
    of = study(items=3, scales=(WIDE,))
    given = np.array([[1.0], [2.0], [3.0]])
    adapter = judge(of, sd=0, order_effect=0.1, given=given)
    assert said_of(adapter, batch(2, 0, 1), of) == [3.0, 1.1, 2.2]
    rubric, query = asks_in_batches(of), batch(2, 0, 1)
    cut = sent(
        judge(of, sd=0, given=given, faults={"truncated": 1}), rubric.render(query, FIRST_ATTEMPT)
    )
    read = rubric.read(query, cut)
    assert [seen.value for seen in read.observations] == [3.0]
    assert read.flags == (TRUNCATED,)


def test_a_verdict_carries_over_to_the_next_unit_alone():
    """In full behind the highest verdict, not at all behind the lowest, and not across questions."""
    of = study(items=4, scales=(GRADE,))
    adapter = judge(of, sd=0, carry_over=-2, given=np.array([[5.0], [4.0], [1.0], [3.0]]))
    # Behind 5 two less, behind 2 half of one less, behind 1 none less.
    assert said_of(adapter, batch(0, 1, 2, 3), of) == [5, 2, 1, 3]
    assert said_of(adapter, batch(1, 3), of) == [4, 2]
    assert said_of(adapter, batch(3), of) == [3]


@cache
def chain(n, **config):
    """Ask n questions on two units of log-odds 0.4 and -0.2; (n, 2) verdicts."""
    of = study(items=2, scales=(YES_NO,))
    adapter = judge(of, log_odds=True, given=np.array([[0.4], [-0.2]]), **config)
    return np.array([said_of(adapter, batch(0, 1, replicate=r), of) for r in range(n)])


def test_log_odds_are_those_of_a_judge_with_memory():
    """P(yes) = 1/(1 + exp(-(truth + carry_over * previous))), where previous is 0 for the first."""
    n = 4000
    first, second = chain(n, carry_over=-1.5).T
    expected = [(first, 0.4), (second[first == 1], -0.2 - 1.5), (second[first == 0], -0.2)]
    for verdicts, log_odds in expected:
        p = 1 / (1 + math.exp(-log_odds))
        assert verdicts.mean() == pytest.approx(p, abs=4 * math.sqrt(p * (1 - p) / len(verdicts)))


def test_what_a_question_shares_moves_all_its_verdicts():
    """Without carry-over a question's verdicts agree only by what they share, as quadrature has it."""
    n, sd = 4000, 1.5
    first, second = chain(n, batch_sd=sd).T
    z, weight = np.polynomial.hermite_e.hermegauss(60)
    p = 1 / (1 + np.exp(-(np.array([[0.4], [-0.2]]) + sd * z)))
    weight = weight / weight.sum()
    both = weight @ (p[0] * p[1])
    assert (first * second).mean() == pytest.approx(both, abs=4 * math.sqrt(both / n))
    assert both - (weight @ p[0]) * (weight @ p[1]) > 0.05
    assert abs(np.cov(*chain(n).T)[0, 1]) < 4 * 0.25 / math.sqrt(n)


def test_expected_knows_what_a_question_shares():
    """The mean of a unit that stands first, on both kinds of noise."""
    seen = chain(4000, batch_sd=1.5)[:, 0].mean()
    of = study(items=2, scales=(YES_NO,))
    logistic = judge(of, log_odds=True, batch_sd=1.5, given=np.array([[0.4], [-0.2]]))
    assert seen == pytest.approx(logistic.expected()[0, 0], abs=0.032)
    of = study(items=1, scales=(GRADE,))
    normal = judge(of, sd=0.5, batch_sd=1.2, given=np.array([[4.2]]))
    drawn = [said_of(normal, batch(0, replicate=r), of)[0] for r in range(4000)]
    assert np.mean(drawn) == pytest.approx(normal.expected()[0, 0], abs=4 * 1.2 / math.sqrt(4000))


@pytest.mark.parametrize("sd", [0.0, 0.8, 3.0])
def test_expected_yes_agrees_with_integration(sd):
    log_odds = np.array([[-800.0, -2.0], [0.3, 5.0]])
    z = np.linspace(-12, 12, 48_001)
    density = np.exp(-(z**2) / 2) / math.sqrt(2 * math.pi)
    yes = (1 + np.tanh((log_odds[..., np.newaxis] + sd * z) / 2)) / 2
    exact = trapezoid(yes * density, z)
    assert expected_yes(log_odds, sd) == pytest.approx(exact, abs=1e-6)


def test_log_odds_are_for_yes_or_no():
    with pytest.raises(errors.InvalidCampaign, match=r"judges\.mock\.mock\.log_odds.*boolean"):
        judge(study(scales=(YES_NO, GRADE)), log_odds=True)


# Faults


@pytest.mark.parametrize("fault", errors_by_fault)
def test_errors_say_what_they_cost(fault):
    """A complete error reply is free, one that may hide an answer is not."""
    kind, billing = errors_by_fault[fault]
    with pytest.raises(kind) as failure:
        sent(judge(faults={fault: 1}), request_for(question()))
    assert failure.value.billing is billing


@pytest.mark.parametrize(
    ("fault", "finish", "output", "reason"),
    [
        ("truncated", Finish.LENGTH, 400, "truncated"),
        ("refused", Finish.REFUSED, 100, "refused"),
        ("blocked", Finish.BLOCKED, 0, "blocked"),
        ("empty", Finish.EMPTY, 100, "empty"),
        ("unparsable", Finish.STOP, 100, "parse_failure"),
    ],
)
def test_faulty_replies_are_billed_and_hold_no_verdict(fault, finish, output, reason):
    """Such a reply costs tokens and is read as missing, never as a score."""
    reply = sent(judge(faults={fault: 1}), request_for(question()))
    assert (reply.finish, reply.usage.input_tok, reply.usage.output_tok) == (finish, 500, output)
    read = asks().read(question(), reply)
    assert isinstance(read, Unreadable)
    assert read.reason == reason


def test_a_widened_attempt_is_cut_at_twice_the_limit():
    """C27: the attempt after a cut one pays for twice the output, and no more than its ceiling."""
    adapter, card = judge(faults={"truncated": 1}), PriceCard(input=1000, output=1000)
    attempts = [FIRST_ATTEMPT, Attempt(number=2, widened=True)]
    for attempt, limit in zip(attempts, (400, 800), strict=True):
        request = request_for(question(), attempt)
        usage = sent(adapter, request).usage
        assert usage.output_tok == limit
        assert cost(usage, card) == adapter.ceiling(request, card) == 500 + limit


def test_usage_can_be_missing_from_a_good_reply():
    """The verdict stands; what it cost is not said."""
    reply = sent(judge(faults={"usage_missing": 1}), request_for(question()))
    assert reply.usage is None
    assert not isinstance(asks().read(question(), reply), Unreadable)


def test_fault_rates_are_the_probabilities_given():
    """Faults strike as often as the file says, and their order in the file decides nothing."""
    shares = {"429": 0.2, "refused": 0.1, "503": 0.3}
    adapters = [judge(faults=shares), judge(faults=dict(reversed(shares.items())))]
    struck = dict.fromkeys([*shares, "none"], 0)
    for replicate in range(3000):
        request = request_for(question(0, replicate))
        one, other = (outcome(adapter, request) for adapter in adapters)
        assert one == other
        struck[one] += 1
    for fault, share in (shares | {"none": 0.4}).items():
        assert struck[fault] / 3000 == pytest.approx(share, abs=4.5 * math.sqrt(share / 3000))


def outcome(adapter, request):
    try:
        reply = sent(adapter, request)
    except errors.RateLimited:
        return "429"
    except errors.Overloaded:
        return "503"
    return "refused" if reply.finish is Finish.REFUSED else "none"


def test_a_fault_can_set_in_with_the_nth_attempt():
    """`{after: 3}` lets two attempts pass, whatever they ask."""
    adapter = judge(faults={401: {"after": 3}})
    sent(adapter, request_for(question(0)))
    sent(adapter, request_for(question(1)))
    for _ in range(2):
        with pytest.raises(errors.BadCredentials):
            sent(adapter, request_for(question(0)))


# Money, time, network


def test_ceiling_of_case_c01():
    """C01: 1,000 input tokens and a limit of 2,000 at $2 and $10 hold $0.022; answers cost $0.005."""
    adapter = judge(tokens={"in": 1000, "out": 300}, max_output_tokens=2000)
    card = PriceCard(input=2_000_000, output=10_000_000)
    request = request_for(question())
    assert adapter.ceiling(request, card) == 22_000_000
    assert cost(sent(adapter, request).usage, card) == 5_000_000


def test_output_never_exceeds_the_limit():
    """A mock that would write more than it may stops at the limit."""
    adapter = judge(tokens={"out": 900})
    assert sent(adapter, request_for(question())).usage.output_tok == 400


@pytest.mark.parametrize(
    ("law", "median", "spread"),
    [
        ({"constant": 2.0}, 2.0, 0.0),
        ({"uniform": [1, 3]}, 2.0, 1.0),
        ({"lognormal": [1.2, 0.5]}, math.exp(1.2), 3.0),
    ],
)
def test_latency_follows_its_law_only_in_real_time(virtual_time, law, median, spread):
    """Attempts take as long as their law says, and no time at all unless `realtime`."""
    requests = [request_for(question(0, replicate)) for replicate in range(300)]

    async def durations(adapter):
        took = []
        for request in requests:
            start = anyio.current_time()
            await adapter.send(request)
            took.append(anyio.current_time() - start)
        return took

    real = anyio.run(durations, judge(latency=law, realtime=True), **virtual_time)
    assert np.median(real) == pytest.approx(median, rel=0.12)
    assert (np.ptp(real) > 0.5 * spread) if spread else (np.ptp(real) < 1e-9)
    assert max(anyio.run(durations, judge(latency=law), **virtual_time)) == 0


def test_a_timeout_hangs_in_real_time(virtual_time):
    """C17: an attempt that never ends is ended by its deadline, and the others go on meanwhile."""

    async def main():
        start = anyio.current_time()
        with anyio.move_on_after(30) as deadline:
            await judge(realtime=True, faults={"timeout": 1}).send(request_for(question()))
        return deadline.cancelled_caught, anyio.current_time() - start

    assert anyio.run(main, **virtual_time) == (True, pytest.approx(30))


def test_no_socket_is_opened(monkeypatch):
    """C57: a mock answers where no socket can be made."""

    def refuse(*_, **__):
        raise AssertionError("a socket was made")

    monkeypatch.setattr(socket, "socket", refuse)
    assert sent(judge(), request_for(question())).served_model == "mock"


def test_a_mock_attempt_costs_microseconds():
    """A rehearsal of 20,000 judgments is not held up by its judges."""
    adapter, request = judge(), request_for(question())
    best = math.inf
    for _ in range(5):
        start = time.process_time()
        for _ in range(1000):
            sent(adapter, request)
        best = min(best, time.process_time() - start)
    assert best / 1000 < 60e-6


# Configuration


def test_the_configuration_of_the_manual_is_accepted():
    """All keys that the manual shows, as YAML gives them."""
    config = MockConfig.model_validate(
        {
            "bias": 0.3,
            "sd": 1.1,
            "interaction": 0.5,
            "order_effect": 0.2,
            "drift": 0,
            "carry_over": -1,
            "batch_sd": 0.8,
            "log_odds": True,
            "faults": {429: 0.02, "timeout": 0.01, "truncated": 0.01, "unparsable": {"after": 9}},
            "latency": {"lognormal": [1.2, 0.5]},
            "tokens": {"in": 900, "out": 250},
            "realtime": False,
            "truth": "quality",
        }
    )
    assert config.faults["429"] == 0.02
    assert (config.tokens.input, config.tokens.output) == (900, 250)


@pytest.mark.parametrize(
    "config",
    [
        {"sdd": 1},
        {"sd": -1},
        {"batch_sd": -1},
        {"bias": float("nan")},
        {"faults": {"418": 0.1}},
        {"faults": {"429": 1.2}},
        {"faults": {"429": 0.6, "503": 0.6}},
        {"faults": {"429": {"after": 0}}},
        {"latency": {}},
        {"latency": {"constant": 1, "uniform": [1, 2]}},
        {"latency": {"uniform": [2, 1]}},
        {"tokens": {"in": -1}},
    ],
    ids=str,
)
def test_a_configuration_without_sense_is_refused(config):
    with pytest.raises(ValueError, match="validation error"):
        MockConfig.model_validate(config)


def test_prose_is_no_verdict():
    """The unparsable reply can't be read by accident."""
    assert not any(sign.isdigit() or sign in "{}" for sign in PROSE)
