"""The estimator bradley_terry as it runs: told questions in, gaps, strengths and what they prove out."""

import math
from dataclasses import replace

import numpy as np
import pytest
from scipy.special import expit

from estimators.bradley_terry import BradleyTerry, BradleyTerryConfig, fit_bradley_terry
from estimators.comparisons import Comparisons
from orchestrator.core.estimate import Status
from orchestrator.core.frame import Frame
from orchestrator.core.ids import JudgeIx, QNo, UnitIx
from orchestrator.core.money import FREE, Nano
from orchestrator.core.query import (
    Judged,
    Kind,
    Missing,
    MissingReason,
    Observation,
    Preference,
    Query,
)
from orchestrator.core.records import Record
from orchestrator.core.scale import Criterion, Scale, ScaleType
from orchestrator.core.seeds import Seeds
from orchestrator.core.study import Panelist, Study
from orchestrator.testing.estimators import check_is_readable, check_is_same

PREFERENCE = Scale(type=ScaleType.PREFERENCE, ties=True)
SAID = {1.0: Preference.FIRST, 0.5: Preference.TIE, 0.0: Preference.SECOND}


def study(n_items=20, n_arms=3, n_judges=1, names=("overall",), **changes):
    made = Study(
        kind=Kind.COMPARE,
        frame=Frame.of([f"i{i}" for i in range(n_items)], [f"m{a}" for a in range(n_arms)]),
        panel=tuple(Panelist(name=f"j{j}", card=FREE) for j in range(n_judges)),
        criteria=tuple(Criterion(name=name, scale=PREFERENCE) for name in names),
        seeds=Seeds(0),
    )
    return replace(made, **changes)


def told(q, item, left, right, outcome, *, of, judge=0, replicate=0, propensity=1.0, criterion=0):
    first = UnitIx(item * of.frame.n_arms + left)
    units = (first, UnitIx(item * of.frame.n_arms + right))
    query = Query(
        kind=Kind.COMPARE,
        judge=JudgeIx(judge),
        units=units,
        replicate=replicate,
        propensity=propensity,
    )
    if outcome is None:
        lost = Missing(reason=MissingReason.REFUSED, cost=Nano(0), uncertain=Nano(0), attempts=1)
        return Record(q=QNo(q), query=query, outcome=lost)
    said = (Observation(unit=first, criterion=criterion, preference=SAID[outcome]),)
    return Record(
        q=QNo(q), query=query, outcome=Judged(observations=said, cost=Nano(0), usage=None)
    )


def estimated(of, rows, **config):
    estimator = BradleyTerry(BradleyTerryConfig(name="r", **config), of)
    for q, row in enumerate(rows):
        estimator.update(told(q, *row[:4], of=of, **(row[4] if len(row) > 4 else {})))
    found = estimator.estimate()
    for estimate in found:
        check_is_readable(estimate)
    return found


def simulated(n, theta, seed=0, gamma=0.0, n_items=200):
    rng = np.random.default_rng(seed)
    rows = []
    for _ in range(n):
        a, b = rng.choice(len(theta), 2, replace=False).tolist()
        win = rng.random() < expit(theta[a] - theta[b] + gamma)
        rows.append((int(rng.integers(n_items)), a, b, float(win)))
    return rows


def test_ten_pairs_in_both_orders_and_a_judge_that_says_first():
    """C34: no strength, no ties, ten flips of ten, and an order effect that is above 0."""
    of = study(n_items=10, n_arms=2)
    rows = [(i, a, b, 1.0) for i in range(10) for a, b in ((0, 1), (1, 0))]
    (found,) = estimated(of, rows)
    np.testing.assert_allclose(found.value, 0, atol=1e-12)
    about = found.diagnostics
    assert about["judges"][0]["turned"] == {
        "n": 10,
        "kept": 0,
        "flipped": 10,
        "wavered": 0,
        "to_first": 10,
    }
    assert about["judges"][0]["ties"] == 0
    assert about["order_effect"]["est"] > 1
    assert "prior_holds" in found.flags


def test_a_contrast_is_the_gap_with_its_own_error():
    """V_aa + V_bb - 2 V_ab: as the fit of the same rows has it."""
    of = study(n_items=200)
    rows = simulated(600, [0.8, 0.0, -0.8])
    gap, strengths = estimated(of, rows, contrast={"arm": "m0", "baseline": "m2"})
    item, left, right, outcome = (np.array(column) for column in zip(*rows, strict=True))
    fit = fit_bradley_terry(left, right, outcome, n_models=3, order_effect=True, cluster=item)
    cov = fit.cov_cluster
    assert gap.value[0] == pytest.approx(fit.theta[0] - fit.theta[2], abs=1e-9)
    assert gap.se[0] == pytest.approx(math.sqrt(cov[0, 0] + cov[2, 2] - 2 * cov[0, 2]), abs=1e-9)
    assert strengths.diagnostics["fit"]["covariance"] == "clusters"
    assert (gap.target, strengths.target) == ("difference", "strengths")


def test_few_clusters_are_flagged_and_widen_by_students_law():
    of = study(n_items=8)
    rows = simulated(300, [0.8, 0.0, -0.8], n_items=8)
    (found,) = estimated(of, rows)
    assert "few_clusters" in found.flags
    half = (found.upper[0] - found.lower[0]) / 2
    assert half / found.se[0] == pytest.approx(2.3646, abs=1e-3)  # t of 7 degrees


def test_watched_intervals_are_wider_and_said_to_hold():
    of = study(n_items=200)
    rows = simulated(600, [0.8, 0.0, -0.8])
    (end,) = estimated(of, rows)
    (watched,) = estimated(of, rows, check="anytime")
    assert not end.watching_covered
    assert watched.watching_covered
    assert watched.half_width > 1.3 * end.half_width
    assert watched.diagnostics["ranks_hold_watched"]


def test_what_never_met_has_no_gap_and_its_group_is_named():
    of = study(n_items=5, n_arms=4)
    rows = [(i, *pair, float(i % 2)) for i in range(5) for pair in ((0, 1), (2, 3))]
    gap, found = estimated(of, rows, contrast={"arm": "m0", "baseline": "m2"})
    assert gap.status is Status.NOT_IDENTIFIED
    assert math.isnan(gap.value[0] + gap.lower[0] + gap.upper[0])
    assert "disconnected" in found.flags
    assert found.diagnostics["components"] == [["m0", "m1"], ["m2", "m3"]]


def test_groups_that_never_met_share_one_tier_and_have_neighbours_of_their_own():
    """Each group is sure of its own order, and one lies between the other's two."""
    of = study(n_items=200, n_arms=4)
    won = {(0, 1): 130, (2, 3): 180}
    both_orders = [
        ((i, a, b, float(i < n)), (i, b, a, float(i >= n)))
        for i in range(200)
        for (a, b), n in won.items()
    ]
    rows = [row for two in both_orders for row in two]
    (found,) = estimated(of, rows)
    assert found.diagnostics["by_name"]["tier"] == [1, 1, 1, 1]
    shown = found.diagnostics["neighbours"]
    assert [(row["above"], row["below"]) for row in shown] == [("m0", "m1"), ("m2", "m3")]
    assert all(row["together"][0] > 0 for row in shown)


def test_verdicts_that_are_all_ties_leave_an_interval_of_some_width():
    """Their scores have no spread; a tenth of the model's variance is believed at least."""
    of = study(n_items=40)
    pairs = [(0, 1), (1, 2), (0, 2), (1, 0), (2, 1), (2, 0)]
    rows = [(i % 40, a, b, 0.5) for i in range(60) for a, b in pairs]
    gap, found = estimated(of, rows, contrast={"arm": "m0", "baseline": "m1"})
    assert gap.value[0] == 0
    model = math.sqrt(4 / 120 * 2 / 3)  # three models, each pair compared 120 times
    assert gap.se[0] == pytest.approx(math.sqrt(0.1) * model, rel=1e-6)
    assert found.diagnostics["by_name"]["rank_upper"] == [3, 3, 3]


def test_a_missing_verdict_is_counted_by_arm_and_never_a_loss():
    of = study(n_items=4, n_arms=3)
    rows = [(i, a, b, y) for i in range(4) for a, b, y in ((0, 1, 1.0), (1, 0, 1.0), (1, 2, 0.5))]
    (whole,) = estimated(of, rows)
    (lost,) = estimated(of, [*rows, (0, 2, 0, None), (1, 2, 1, None)])
    assert lost.value == whole.value
    assert lost.diagnostics["missing_share"] == {"m0": 1 / 9, "m1": 1 / 13, "m2": 2 / 6}


def test_verdicts_that_are_missing_in_one_pair_are_flagged_and_weighed():
    """A pair that loses half its verdicts counts as often as it was asked, where weights are used."""
    of = study(n_items=100)
    rows = []
    for i in range(100):
        for a, b in ((0, 1), (1, 2), (0, 2)):
            lost = (a, b) == (0, 2) and i % 2
            rows.append((i, a, b, None if lost else float((i + a) % 3 > 0), {"propensity": 1 / 3}))
    (plain,) = estimated(of, rows)
    assert "missing_differs_by_pair" in plain.flags
    assert plain.diagnostics["weighted"]["effective"] < plain.n_answers
    even = [row for row in rows if row[3] is not None]
    assert "missing_differs_by_pair" not in estimated(of, even)[0].flags


def test_a_judges_bias_is_taken_out_of_nothing_but_the_order():
    """With judge_effects: bias, each judge's taste for the first place is its own."""
    of = study(n_items=100, n_judges=2)
    rng = np.random.default_rng(3)
    rows = []
    for _ in range(2000):
        a, b = rng.choice(3, 2, replace=False).tolist()
        j = int(rng.integers(2))
        eta = (0.6, 0.0, -0.6)[a] - (0.6, 0.0, -0.6)[b] + (1.0, -0.6)[j]
        rows.append((int(rng.integers(100)), a, b, float(rng.random() < expit(eta)), {"judge": j}))
    (found,) = estimated(of, rows, judge_effects="bias")
    bias = [row["bias"] for row in found.diagnostics["judges"]]
    assert bias[0] - bias[1] == pytest.approx(1.6, abs=0.25)
    np.testing.assert_allclose(found.value, (0.6, 0.0, -0.6), atol=0.2)


def test_weights_are_a_check_unless_they_are_declared():
    """Propensities that differ give a second set of strengths, and say what they are worth."""
    of = study(n_items=200)
    rng = np.random.default_rng(4)
    rows = [
        (*row, {"propensity": float(rng.choice([0.1, 0.5]))})
        for row in simulated(500, [0.5, 0, -0.5])
    ]
    (plain,) = estimated(of, rows)
    (declared,) = estimated(of, rows, misspecification="expected")
    assert plain.diagnostics["weighted"]["value"] == pytest.approx(declared.value, abs=1e-12)
    assert declared.diagnostics["weighted"]["value"] == pytest.approx(plain.value, abs=1e-12)
    assert declared.diagnostics["weighted"]["is_declared"]
    assert 200 < declared.diagnostics["weighted"]["effective"] < 500
    assert declared.diagnostics["fit"]["covariance"] in {"rows", "clusters"}


def test_judges_that_favour_their_own_kind_are_seen():
    """Two makers, each with a judge and two arms; the judges give their own half a logit."""
    of = study(n_items=500, n_arms=4, n_judges=2)
    rng = np.random.default_rng(8)
    rows = []
    for item in range(3000):
        a, b = rng.choice(4, 2, replace=False).tolist()
        j = int(rng.integers(2))
        own = (a % 2 == j) - (b % 2 == j)
        won = float(rng.random() < expit((a - b) / 4 + 0.5 * own))
        rows.append((item % 500, a, b, won, {"judge": j}))
    families = {
        "judges": {"j0": "x", "j1": "Y"},
        "arms": {"m0": "X", "m1": "y", "m2": "x", "m3": "y"},
    }
    (found,) = estimated(of, rows, families=families)
    about = found.diagnostics["family"]
    assert about["lower"] < 0.5 < about["upper"]
    assert about["is_shown"]
    with pytest.raises(ValueError, match=r"families.arms: 'm9' is none of m0"):
        estimated(of, rows, families=families | {"arms": {"m9": "x"}})


def test_the_criterion_that_is_named_is_read():
    of = study(n_items=9, names=("a", "b"))
    with pytest.raises(ValueError, match="name one of a, b"):
        BradleyTerry(BradleyTerryConfig(name="r"), of)
    rows = [(i, 0, 1, 1.0, {"criterion": 1}) for i in range(9)]
    (none,) = estimated(of, rows, criterion="a")
    assert none.status is Status.EMPTY
    (some,) = estimated(of, rows, criterion="b")
    assert some.n_answers == 9


def test_a_table_taken_at_once_gives_what_its_rows_give_one_by_one():
    of = study(n_items=30)
    rows = simulated(200, [0.5, 0.0, -0.5], n_items=30)
    (one,) = estimated(of, rows)
    item, left, right, outcome = (np.array(column) for column in zip(*rows, strict=True))
    zero = np.zeros(len(rows), dtype=np.int64)
    table = Comparisons(
        left=left,
        right=right,
        outcome=outcome,
        item=item,
        judge=zero,
        replicate=zero,
        propensity=np.ones(len(rows)),
    )
    estimator = BradleyTerry(BradleyTerryConfig(name="r"), of)
    estimator.take(table, np.zeros((3, 3), dtype=np.int64))
    (at_once,) = estimator.estimate()
    check_is_same(one, at_once)


@pytest.mark.parametrize(
    ("config", "says"),
    [
        ({"contrast": {"arm": "m9", "baseline": "m0"}}, "no arm is named 'm9'"),
        ({"report": ["controlled"]}, "covariates: missing"),
        ({"covariates": [{"name": "x"}]}, "nothing is known of 'x'"),
        ({"check": "group_sequential"}, "takes end or anytime"),
        ({"judge_effects": "bias", "order_effect": False}, "order_effect"),
    ],
)
def test_what_it_cannot_do_is_refused_at_once(config, says):
    with pytest.raises(ValueError, match=says):
        BradleyTerry(BradleyTerryConfig(name="r", **config), study())


# --- what the data leave open ----------------------------------------------------------------------


def test_an_advantage_that_cannot_be_told_from_strength_proves_nothing():
    """Two arms always in one order: no error, no leader, watched or not, though one wins most."""
    of = study(n_items=200, n_arms=2)
    rng = np.random.default_rng(1)
    rows = [(i, 0, 1, float(rng.random() < expit(1.0))) for i in range(200)]
    for check in ("end", "anytime"):
        (found,) = estimated(of, rows, check=check)
        assert found.status is Status.NOT_IDENTIFIED
        assert "undetermined" in found.flags
        assert not found.diagnostics["is_separated"]["leader"]


def test_an_arm_that_wins_everything_does_not_draw_others_in():
    """Gaps of the others are those of their own comparisons, without a prior."""
    of = study(n_items=300, n_arms=3)
    rows = [row for row in simulated(500, [3.0, 0.0, 0.0], n_items=300) if 2 not in row[1:3]]
    alone, _ = estimated(of, rows, contrast={"arm": "m0", "baseline": "m1"})
    wins = [
        (i, a, b, float(a == 2)) for i in range(40) for a, b in ((2, 0), (1, 2), (0, 2), (2, 1))
    ]
    beside, strengths = estimated(of, rows + wins, contrast={"arm": "m0", "baseline": "m1"})
    assert beside.value[0] == pytest.approx(alone.value[0], abs=1e-6)
    assert beside.se[0] == pytest.approx(alone.se[0], rel=1e-6)
    assert strengths.status is Status.NOT_IDENTIFIED
    assert strengths.diagnostics["leader"] == "m2"
    assert strengths.diagnostics["is_separated"]["leader"]


def test_counts_prove_nothing_where_one_arm_always_stood_first():
    """A newcomer that is always first, and always preferred: it may be the place."""
    of = study(n_items=300, n_arms=3)
    rows = simulated(400, [0.2, -0.2], n_items=300)
    rows += [(i, 2, i % 2, 1.0) for i in range(60)]
    (found,) = estimated(of, rows)
    assert not found.diagnostics["is_separated"]["leader"]
    (trusting,) = estimated(of, rows, order_effect=False)
    assert trusting.diagnostics["is_separated"]["leader"]


def test_repeats_of_one_item_are_one_trial():
    """Ten comparisons of one item bound no chance as ten items would."""
    of = study(n_items=10, n_arms=2)
    one = [
        (0, a, b, float(a == 0), {"replicate": r}) for r in range(5) for a, b in ((0, 1), (1, 0))
    ]
    ten = [(i, *(0, 1)[:: 1 - 2 * (i % 2)], float(i % 2 == 0)) for i in range(10)]
    of_one, of_ten = (
        estimated(of, rows, contrast={"arm": "m0", "baseline": "m1"})[0] for rows in (one, ten)
    )
    p = 0.025 ** (1 / 10)
    assert of_ten.lower[0] == pytest.approx(math.log(p / (1 - p)))
    assert of_one.lower[0] == pytest.approx(math.log(0.025 / 0.975))


@pytest.mark.parametrize("check", ["end", "anytime"])
def test_few_items_seldom_prove_a_rank_of_equal_arms(check):
    """Eight items, six arms, tastes of items: any false claim in at most 10 % + 3 SE of 60 boards."""
    of = study(n_items=8, n_arms=6)
    n_wrong = 0
    for seed in range(60):
        rng = np.random.default_rng(seed)
        taste = rng.standard_normal((8, 6))
        rows = []
        for _ in range(400):
            a, b = rng.choice(6, 2, replace=False).tolist()
            item = int(rng.integers(8))
            won = rng.random() < expit(taste[item, a] - taste[item, b])
            rows.append((item, a, b, float(won)))
        (found,) = estimated(of, rows, check=check)
        ranks = found.diagnostics["by_name"]
        n_wrong += ranks["rank_lower"] != [1] * 6 or ranks["rank_upper"] != [6] * 6
    assert n_wrong / 60 <= 0.1 + 3 * math.sqrt(0.1 * 0.9 / 60)
