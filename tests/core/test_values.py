import itertools
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.core.budget import BudgetView
from orchestrator.core.errors import InvalidCampaign, Problem, RunLocked
from orchestrator.core.estimate import Estimate, Status
from orchestrator.core.frame import Frame
from orchestrator.core.query import Judged, Missing, MissingReason, Observation, outcome_digest
from orchestrator.core.scale import Scale, ScaleType
from orchestrator.core.stopping import StopRule
from orchestrator.core.wire import Usage


def judged(**kwargs):
    values = {"observations": (Observation(unit=1, value=3.0),), "cost": 5, "usage": Usage()}
    return Judged(**{**values, **kwargs})


def test_the_digest_covers_what_decisions_can_read():
    other = [
        judged(observations=(Observation(unit=1, value=4.0),)),
        judged(observations=(Observation(unit=2, value=3.0),)),
        judged(observations=(Observation(unit=1, value=None),)),
        judged(cost=6),
        judged(usage=Usage(output_tok=1)),
        judged(usage=None),
        Missing(reason=MissingReason.REFUSED, cost=5, uncertain=0, attempts=1),
        Missing(reason=MissingReason.REFUSED, cost=0, uncertain=5, attempts=1),
    ]
    digests = {outcome_digest(outcome) for outcome in [judged(), *other]}
    assert len(digests) == 1 + len(other)


def test_the_digest_leaves_out_what_depends_on_time():
    """C40: attempts, request ids, provider messages and blobs may differ between equal runs."""
    assert outcome_digest(judged()) == outcome_digest(judged(blob="b", served_model="m"))
    missing = [
        Missing(reason=MissingReason.TIMEOUT, cost=0, uncertain=1, attempts=n, detail=str(n))
        for n in (1, 2)
    ]
    assert outcome_digest(missing[0]) == outcome_digest(missing[1])


@given(st.integers(1, 50), st.integers(1, 5))
def test_units_are_numbered_item_by_item(n_items, n_arms):
    frame = Frame.of([str(i) for i in range(n_items)], [str(a) for a in range(n_arms)])
    units = [frame.unit(i, a) for i in range(n_items) for a in range(n_arms)]
    assert units == list(range(frame.n_units))
    assert [(frame.item_of(u), frame.arm_of(u)) for u in units] == [
        (i, a) for i in range(n_items) for a in range(n_arms)
    ]


def test_a_frame_codes_labels_in_order_of_appearance():
    frame = Frame.of(["a", "b", "c"], ["old", "new"], cluster=["y", "x", "y"], weight=[1, 2, 3])
    assert frame.clusters == ("y", "x")
    assert frame.cluster.tolist() == [0, 1, 0]
    assert frame.weight.tolist() == [1.0, 2.0, 3.0]
    assert frame.unit_name(3) == "b/new"
    assert Frame.of(["a"]).unit_name(0) == "a"
    assert np.array_equal(Frame.of(["a", "b"]).cluster, [0, 1])


@pytest.mark.parametrize(
    ("scale", "yes", "no"),
    [
        (Scale(type=ScaleType.BOOLEAN), [0, 1], [0.5, 2, -1, math.nan]),
        (Scale(type=ScaleType.INTEGER, low=1, high=10), [1, 10, 8.0], [0, 11, 8.5, math.inf]),
        (Scale(type=ScaleType.FLOAT, low=1, high=10), [1, 8.5], [0.99, 10.01, math.nan]),
    ],
)
def test_a_scale_admits_its_verdicts_and_nothing_else(scale, yes, no):
    """C26: nothing is rescaled or clamped."""
    assert all(scale.admits(value) for value in yes)
    assert not any(scale.admits(value) for value in no)
    assert [scale.to_unit(scale.low), scale.to_unit(scale.high)] == [0, 1]


def estimate(**kwargs):
    values = {
        "name": "e", "kind": "k", "target": "t", "estimand": "", "names": ("a", "b"),
        "value": (1.0, 2.0), "se": (0.1, math.nan), "lower": (0.5, 1.0), "upper": (1.5, 3.0),
        "level": 0.95, "interval": "t", "watching_covered": False, "alpha_split": "", "family": "",
        "n_items": 30, "n_answers": 60, "status": Status.OK,
    }  # fmt: skip
    return Estimate(**{**values, **kwargs})


def test_the_half_width_is_the_widest_and_unknown_if_any_is():
    assert estimate().half_width == 1.0
    assert math.isnan(estimate(lower=(0.5, math.nan)).half_width)
    assert math.isnan(estimate(names=(), lower=(), upper=()).half_width)


def test_unknown_numbers_are_null_in_json_and_never_zero():
    document = estimate(diagnostics={"x": [math.nan, 1.0], "y": {"z": math.inf}}).as_json()
    assert document["se"] == [0.1, None]
    assert document["diagnostics"] == {"x": [None, 1.0], "y": {"z": None}}
    assert document["status"] == "ok"


def test_a_stop_rule_needs_precision_and_items():
    rule = StopRule(every=5, target_half_width=1.0, min_items=30)
    assert rule.is_met([estimate()])
    assert not rule.is_met([estimate(n_items=29)])
    assert not rule.is_met([estimate(lower=(0.5, 0.9))])
    assert not rule.is_met([estimate(lower=(0.5, math.nan))])
    assert not StopRule().is_met([estimate()])
    assert [n for n in range(1, 16) if rule.is_look(n)] == [5, 10, 15]


@pytest.mark.parametrize("status", Status)
def test_a_proved_leader_ends_a_run_though_other_names_have_no_finite_estimate(status):
    """An arm that loses all keeps every strength from one; nothing is proved where nothing is fitted."""
    proved = estimate(status=status, diagnostics={"is_separated": {"leader": True}})
    is_fitted = status not in {Status.EMPTY, Status.FAILED}
    assert StopRule(separates="leader").is_decided([proved]) is is_fitted
    assert not StopRule(separates="ranking").is_decided([proved])
    assert not StopRule(separates="leader").is_decided([estimate(status=status)])


def test_looks_thin_out_where_they_can_not_stop_the_run():
    """A run of any length without a target looks some hundred times, early on at every count."""
    looks = [n for n in range(1, 100_001) if StopRule(every=25).is_look(n)]
    assert looks[:32] == list(range(25, 825, 25))
    assert len(looks) < 180
    assert max(b / a for a, b in itertools.pairwise(looks[16:])) < 1.07


def test_free_money_is_what_no_one_has_a_claim_on():
    view = BudgetView(cap=100, settled=20, uncertain=5, held=30, price=lambda query: 7)
    assert view.free == 45
    assert view.ceiling(None) == 7
    assert BudgetView(cap=None, settled=1, uncertain=1, held=1, price=len).free is None


def test_problems_are_listed_all_at_once_with_their_place():
    error = InvalidCampaign(
        [
            Problem(message="unknown key", file="c.yaml", line=31, column=3, path="budgt"),
            Problem(message="no such file", file="c.yaml"),
        ]
    )
    assert str(error).splitlines() == [
        "c.yaml:31:3  budgt — unknown key",
        "c.yaml  no such file",
        "2 problems; nothing was sent",
    ]
    assert str(InvalidCampaign([Problem(message="m")])).endswith("1 problem; nothing was sent")


def test_an_error_without_a_message_says_what_its_class_is():
    assert str(RunLocked()) == "Another process owns this run."
