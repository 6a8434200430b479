"""A plan as JSON and as lines."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from datetime import date
from decimal import Decimal

import pytest

from orchestrator.core.money import FREE, PriceCard
from orchestrator.core.query import Role
from orchestrator.core.stopping import StopReason
from orchestrator.report.planning import (
    Assumption,
    ByMethod,
    ForHalfWidth,
    ForMoney,
    JudgePlan,
    MethodPlan,
    Plan,
    Point,
    PriceSheet,
    Prompts,
    Range,
    Refusal,
    Rival,
    WholeList,
    document,
    plan_lines,
    refusal_document,
    refusal_lines,
    run_lines,
)

PLAN = Plan(
    campaign="prompt-v2",
    policy="two_phase",
    n_items=1200,
    n_arms=2,
    is_mock=False,
    cap=20_000_000_000,
    target=0.1,
    judges=(
        JudgePlan(
            name="large",
            adapter="openai",
            card=PriceCard(input=2_000_000, output=10_000_000),
            price_source="genai-prices 1: openai/x",
            calls=310,
            expected=1_550_000_000,
            ceiling=6_000_000,
            concurrency=8,
        ),
        JudgePlan(
            name="小さい",
            adapter="recorded",
            card=PriceCard(per_call=3_300_000_000),
            price_source="campaign file",
            calls=62_000,
            expected=4_000_000_000,
            ceiling=3_300_000,
            concurrency=8,
        ),
        JudgePlan(
            name="local",
            adapter="compatible",
            card=FREE,
            price_source="free",
            calls=0,
            expected=0,
            ceiling=0,
            concurrency=4,
        ),
    ),
    whole_list=None,
    spend=Range(low=5_200_000_000, expected=6_000_000_000, high=7_900_000_000),
    seconds=Range(low=1080, expected=1500, high=2100),
    half_width=Range(low=0.095, expected=0.0998, high=0.1),
    ends_by=StopReason.PRECISION,
    at_cap=0.07,
    needs=6_006_000_000,
    needs_is_extrapolated=False,
    window=80,
    max_in_flight=96,
    usable_concurrency=80,
    in_flight=17.2,
    bound_by={"judge:large": 0.7, "start:large": 0.2, "last": 0.1},
    curve=(Point(1_000_000, 25, 3.0, 0.4),),
    rivals=(),
    cheapest="",
    assumptions=(
        Assumption(judge="large", what="sd", value=0.61, source="assume"),
        Assumption(judge="large", what="missing", value=0.01, source="default"),
        Assumption(judge="large", what="output tokens", value=250, source="assume"),
    ),
    prompts=Prompts(mean=1310.0, sd=420.0, n=50),
    sheet=PriceSheet(name="genai-prices 1", newest=date(2026, 11, 20), age_days=10),
    part=1.0,
    notes=("large: limits.rpm not counted in the time",),
    policy_says={"says": "helpers pay"},
)


def test_the_lines_stand_in_columns():
    """The block of a plan: figures to the right, wide letters counted as the two columns they take."""
    lines = plan_lines(PLAN)
    assert lines[0] == (
        "campaign  prompt-v2   1,200 items x 2 arms   policy two_phase   cap $20.00 (hard)"
    )
    assert lines[1:5] == [
        "judge    adapter      $/1M in / out    calls   $ expected   $ worst case each   prices from",
        (
            "large    openai        2.00 / 10.00      310         1.55              0.0060   "
            "genai-prices 1: openai/x"
        ),
        (
            "小さい   recorded     0.0033 a call   62,000         4.00              0.0033   "
            "campaign file"
        ),
        "local    compatible            free        0         0.00              0.0000   free",
    ]
    assert lines[5] == "the list  has no end of its own: money, target or a limit ends the run"
    assert lines[6] == (
        "expected  $5.20-7.90   time 18 min to 35 min (limited by: large's concurrency 70%, "
        "large's slow start 20%; 80 calls at a time)   half-width ±0.100 (0.095 to 0.100)   "
        "at the end ±0.070   target ±0.1 at about $6.01"
    )
    assert lines[7:] == [
        "prices    genai-prices 1, newest price of 2026-11-20 (10 days old)",
        "prompts   1,310 ± 420 tokens (measured on 50 units)",
        "assumed   large: sd 0.61, output tokens 250 (assume); missing 0.01 (default)",
        "note      large: limits.rpm not counted in the time",
        (
            "The cap can't be passed at these prices: each call is held at its worst case before it is "
            "sent."
        ),
    ]


def test_what_ends_a_run_is_said_where_the_worst_case_passes_the_cap():
    whole = WholeList(calls=100, expected=1, worst=30_000_000_000)
    by_cap = replace(PLAN, whole_list=whole, ends_by=StopReason.BUDGET)
    by_list = replace(PLAN, whole_list=whole, ends_by=StopReason.FINISHED)
    fits = replace(PLAN, whole_list=replace(whole, worst=20_000_000_000))
    said = "The worst case is above the cap"
    assert f"{said}: the cap, not the list, will end the run." in plan_lines(by_cap)
    assert f"{said}: if calls cost more than expected, the cap ends it." in plan_lines(by_list)
    assert not any(line.startswith(said) for line in plan_lines(fits))


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"needs": None}, "target ±0.1: not reached"),
        ({"needs_is_extrapolated": True}, "at about $6.01 (extrapolated)"),
        ({"needs": 30_000_000_000}, "at about $30.00, above the cap"),
        ({"seconds": Range(low=0, expected=0, high=0)}, "no judge is waited for"),
        ({"seconds": Range(low=3.21, expected=5, high=8000)}, "time 3.2 s to 2.2 h"),
        ({"cap": None}, "no dollar cap"),
        ({"usable_concurrency": 4}, "4 calls at a time of 80: the cap holds no more)"),
        ({"half_width": None}, "half-width unknown: these data would not determine it"),
        ({"bound_by": {"window": 1.0}}, "limited by: the window 100%"),
    ],
)
def test_the_outlook_says_what_is_known(change, said):
    assert said in "\n".join(plan_lines(replace(PLAN, **change)))


def test_rivals_are_shown_with_what_they_come_to():
    own = Rival(
        name="two_phase",
        policy="two_phase",
        judges=("large", "local"),
        whose="large",
        calls=900,
        spent=6_000_000_000,
        half_width=0.0998,
        needs=6_006_000_000,
    )
    rivals = (
        own,
        replace(
            own,
            name="uniform",
            whose="",
            half_width=0.14,
            needs=11_000_000_000,
            is_extrapolated=True,
        ),
        replace(own, name="alone", is_cut=True, needs=None),
        Rival(
            name="est_ivwe",
            policy="est_ivwe",
            judges=(),
            refused="2,400 units want more",
            sufficient=75_660_000_000,
        ),
    )
    assert plan_lines(replace(PLAN, rivals=rivals, cheapest="two_phase"))[-7:-2] == [
        (
            "policy    two_phase (the judgment of large): ±0.100 with 900 calls for $6.00; reaches the "
            "target at about $6.01"
        ),
        (
            "rival     uniform: ±0.14 with 900 calls for $6.00; reaches the target at about $11.00 "
            "(extrapolated)"
        ),
        (
            "rival     alone (the judgment of large): ±0.100 with 900 calls for $6.00, and more is left; "
            "does not reach the target"
        ),
        "rival     est_ivwe: would need $75.66 for 2,400 units",
        "two_phase is the cheapest adequate policy here.",
    ]


def test_above_a_run_stands_what_is_assumed_of_judges_that_are_not_known():
    """A mock or a recording is what will answer; of a live judge it matters what was assumed."""
    lines = run_lines(PLAN)
    assert [line for line in lines if line.startswith("assumed")] == [
        "assumed   large: sd 0.61, output tokens 250 (assume); missing 0.01 (default)"
    ]
    assert lines[-2] == "note      large: limits.rpm not counted in the time"
    assert lines[-1].startswith("The cap can't be passed")
    assert not any(line.startswith("assumed") for line in run_lines(replace(PLAN, is_mock=True)))


def test_a_refusal_shows_what_would_do():
    """The policy's own need, then the cheapest adequate of its rivals."""
    own = Rival(
        name="est_ivwe",
        policy="est_ivwe",
        judges=("large",),
        refused="too little",
        sufficient=75_660_000_000,
    )
    other = Rival(
        name="uniform", policy="uniform", judges=("large",), calls=9, spent=10**9, half_width=0.1
    )
    refusal = Refusal(
        campaign="prompt-v2",
        n_items=1200,
        n_arms=2,
        is_mock=False,
        cap=20_000_000_000,
        target=0.1,
        rivals=(own, other),
        cheapest="uniform",
    )
    assert refusal_lines(refusal)[1::2] == [
        "policy    est_ivwe: would need $75.66 for 2,400 units",
        "est_ivwe would need $75.66 for 2,400 units; uniform is the cheapest adequate policy here.",
    ]
    nobody = replace(refusal, cheapest="", rivals=(replace(own, sufficient=None), other))
    assert refusal_lines(nobody)[-1] == (
        "est_ivwe can't work here: too little; none of its rivals is adequate here."
    )
    found = json.loads(json.dumps(refusal_document(refusal), allow_nan=False))
    assert found["sufficient_nano_usd"] == 75_660_000_000
    assert [rival["name"] for rival in found["rivals"]] == ["est_ivwe", "uniform"]


def span(low, expected, high):
    return Range(low=low, expected=expected, high=high)


BY_METHOD = ByMethod(
    estimate="accuracy",
    target="arms",
    population=14_042,
    n_arms=2,
    level=0.95,
    alpha=0.025,
    item=5_500_000,
    by_role={"system": 4_000_000, "judge": 1_500_000},
    mean=0.85,
    sd=span(0.25, 0.357, 0.5),
    missing=0.01,
    source="mock",
    methods=(
        MethodPlan(
            name="betting sequence",
            is_own=True,
            watching_covered=True,
            for_half_width=(
                ForHalfWidth(
                    half_width=0.015,
                    items=span(1_480, 2_712, 4_575),
                    spend=span(8_140_000_000, 14_916_000_000, 25_162_500_000),
                ),
            ),
            for_money=(
                ForMoney(
                    money=20_000_000_000, items=3_636, half_width=span(0.0081, 0.0119, 0.0171)
                ),
                ForMoney(money=1_000_000, items=0, half_width=span(0.5, 0.5, 0.5)),
            ),
        ),
        MethodPlan(
            name="exchangeable",
            is_own=False,
            watching_covered=False,
            for_half_width=(
                ForHalfWidth(
                    half_width=0.015,
                    items=span(4_964, 4_964, 4_964),
                    spend=span(27_302_000_000, 27_302_000_000, 27_302_000_000),
                ),
            ),
            for_money=(
                ForMoney(money=20_000_000_000, items=3_636, half_width=span(0.02, 0.02, 0.02)),
                ForMoney(money=1_000_000, items=0, half_width=span(1.0, 1.0, 1.0)),
            ),
        ),
    ),
)


def test_methods_stand_in_rows_with_what_they_take_and_what_money_buys():
    lines = plan_lines(replace(PLAN, by_method=BY_METHOD))
    at = next(k for k, line in enumerate(lines) if line.startswith("methods"))
    assert lines[at : at + 2] == [
        (
            "methods   accuracy: ± of each of 2 arms, 95%, error 0.025 each; an item costs $0.0055 "
            "(system $0.0040, judge $0.0015)"
        ),
        "assumed   scores: mean 0.85, sd 0.357 (0.25 to 0.5) (mock); missing 0.01",
    ]
    rows = [line.split("   ") for line in lines[at + 2 : at + 5]]
    cells = [[cell.strip() for cell in row if cell.strip()] for row in rows]
    assert cells == [
        ["method", "watched", "items for ±0.015", "$", "$20.00 buys", "$0.001 buys"],
        [
            "betting sequence (this campaign's)",
            "yes",
            "2,712 (1,480 to 4,575)",
            "14.92",
            "±0.012 (0.008 to 0.017)",
            "nothing",
        ],
        ["exchangeable", "no", "4,964", "27.30", "±0.020", "nothing"],
    ]
    assert not any(line.startswith("method") for line in plan_lines(PLAN))
    assert not any(
        line.startswith("method") for line in run_lines(replace(PLAN, by_method=BY_METHOD))
    )


@pytest.mark.parametrize(
    ("target", "n_arms", "said"),
    [
        ("arms", 1, "± of the mean, "),
        ("macro", 1, "± of the macro mean, "),
        ("macro", 3, "± of each of 3 macro means, "),
        ("difference", 2, "± of the difference, "),
    ],
)
def test_what_the_methods_bound_is_named(target, n_arms, said):
    found = replace(BY_METHOD, target=target, n_arms=n_arms, by_role={"system": 0, "judge": 9})
    (line,) = [x for x in plan_lines(replace(PLAN, by_method=found)) if x.startswith("methods")]
    assert said in line
    assert "(judge" not in line  # a single role is all there is


def test_what_no_number_of_items_reaches_is_said():
    asked = ForHalfWidth(half_width=0.001, items=None, spend=None)
    method = replace(BY_METHOD.methods[0], for_half_width=(asked,), for_money=())
    found = replace(PLAN, by_method=replace(BY_METHOD, methods=(method,)))
    assert "never reached" in "\n".join(plan_lines(found))
    (row,) = document(found)["by_method"]["methods"][0]["for_half_width"]
    assert row == {"half_width": 0.001, "items": None, "spend_nano_usd": None}


def test_scores_are_said_to_be_those_of_an_arm():
    found = replace(PLAN, by_method=replace(BY_METHOD, arm="larch"))
    assert any(x.startswith("assumed   scores of larch: mean 0.85") for x in plan_lines(found))
    assert document(found)["by_method"]["scores"]["arm"] == "larch"


def test_a_key_is_no_judge():
    """What decides without a call has no row: its verdicts are counted, and cost nothing."""
    key = replace(PLAN.judges[2], name="key", adapter="key", by_key=6_000)
    lines = plan_lines(
        replace(PLAN, judges=(key,), whole_list=WholeList(calls=0, expected=0, worst=0))
    )
    assert lines[1] == "key       6,000 verdicts by the key, free"
    assert lines[2].startswith("expected")
    beside = plan_lines(replace(PLAN, judges=(replace(PLAN.judges[0], by_key=70), key)))
    assert beside[2].startswith("large ")
    assert beside[3] == "key       6,070 verdicts by the key, free"
    assert document(replace(PLAN, judges=(key,)))["judges"][0]["by_key"] == 6_000


def test_systems_are_told_from_judges():
    systems = (replace(PLAN.judges[0], name="m1", role=Role.SYSTEM),)
    lines = plan_lines(replace(PLAN, judges=PLAN.judges + systems))
    assert lines[1].split()[:3] == ["model", "role", "adapter"]
    assert lines[2].split()[:3] == ["large", "judge", "openai"]
    assert lines[5].split()[:3] == ["m1", "system", "openai"]
    found = document(replace(PLAN, judges=PLAN.judges + systems))
    assert [judge["role"] for judge in found["judges"]] == ["judge"] * 3 + ["system"]


def test_the_document_holds_nothing_that_json_has_not():
    """What is not known is null; money stays whole."""
    unknown = replace(PLAN, half_width=None, at_cap=math.nan, curve=(Point(1, 2, 3.0, math.inf),))
    found = json.loads(json.dumps(document(unknown), allow_nan=False))
    assert found["half_width_at_cap"] is None
    assert found["curve"][0]["half_width"] is None
    assert found["run"]["spend_nano_usd"] == {
        "low": 5_200_000_000,
        "expected": 6_000_000_000,
        "high": 7_900_000_000,
    }
    assert found["price_sheet"] == {"name": "genai-prices 1", "newest": "2026-11-20"}


def test_dollars_are_exact():
    whole = WholeList(calls=1, expected=1, worst=2_200_000_001)
    assert replace(PLAN, whole_list=whole).worst_case_usd == Decimal("2.200000001")
    assert replace(PLAN, whole_list=whole).expected_usd == Decimal("1E-9")
    assert PLAN.worst_case_usd == 20
    assert PLAN.expected_usd == 6
    assert replace(PLAN, cap=None).worst_case_usd is None


def test_text_from_a_file_cannot_drive_a_terminal():
    (line, *_) = plan_lines(replace(PLAN, campaign="a\x1b[2Jb"))
    assert "\x1b" not in line
