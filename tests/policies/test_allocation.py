"""The oracle's allocation and whole calls: recorded values, brute force, a solver, properties."""

import itertools
import json
import math

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal
from scipy.optimize import minimize

from orchestrator.core.errors import BudgetTooSmall
from policies.allocation import (
    cheapest_precision,
    error_of,
    exponent,
    integer_plan,
    item_variances,
    judge_shares,
    oracle_allocation,
    shares,
)

TARGETS = ("common", "panel", "population")
NORMS = (1.0, 1.5, 2.0, 4.0, math.inf)


def defined_variances(counts, variance, target, eta2=0.0):
    """Give V_k of a plan by its definition, for equal weights."""
    counts = np.asarray(counts, dtype=float)
    if target == "panel":
        return (variance / counts).sum(axis=1) / variance.shape[1] ** 2
    # A judge that was not asked adds no precision; one without any noise leaves no variance.
    with np.errstate(divide="ignore"):
        spread = counts * eta2 + variance
        return 1 / np.divide(counts, spread, out=np.zeros_like(counts), where=counts > 0).sum(1)


# --- the oracle: recorded values -----------------------------------------------------------------


@pytest.mark.shared
def test_all_recorded_vectors_are_reproduced(shared_gold):
    """Bar A1: 55 vectors of an independent program, to 1e-9; its whole plans are not better."""
    recorded = json.loads((shared_gold / "est_ivwe/vectors.json").read_text(encoding="utf-8"))
    assert len(recorded["vectors"]) == 55
    for vector in recorded["vectors"]:
        inputs, expected = vector["inputs"], vector["expected"]
        variance, cost, budget = (np.array(inputs[key]) for key in ("var", "cost", "budget"))
        p = float(inputs["p"])
        found = oracle_allocation(variance, cost, float(budget), p)
        same = {"rtol": 1e-9, "atol": 1e-12, "err_msg": f"{vector['name']}, p = {p}"}
        assert_array_equal(found.judge, expected["j_star"])
        assert_allclose(found.a, expected["a"], **same)
        assert_allclose(found.share, expected["budget_share_per_item"], **same)
        assert_allclose(found.counts, expected["real_counts"], **same)
        assert_allclose(found.objective, expected["A_star"], **same)
        assert_allclose(found.error_scale, expected["err_scale"], **same)
        # Money of the vectors is in thousandths at the finest.
        milli, whole = np.rint(cost * 1000).astype(int), round(float(budget) * 1000)
        plan = integer_plan(variance, milli, whole, p)
        assert (plan * milli).sum() <= whole
        error = error_of(defined_variances(plan, variance, "common"), p)
        assert error <= vector["integer_reference"]["err_scale"] * (1 + 1e-9) + 1e-12


def test_the_panel_vector_is_reproduced():
    """Two items, two judges of equal weight at prices 1 and 2: values worked by hand."""
    variance = np.array([[0.2, 0.1], [0.4, 0.3]]) ** 2
    found = oracle_allocation(variance, [1, 2], 120, 2, "panel", [0.5, 0.5])
    assert_allclose(found.a, [0.0291421, 0.1698528], atol=5e-8)
    assert_allclose(found.share, [0.2928932, 0.7071068], atol=5e-8)
    assert_allclose(found.counts, [[20.5887, 7.2792], [41.1775, 21.8377]], atol=5e-5)
    assert found.objective == pytest.approx(0.3397056, abs=5e-8)
    assert found.error_scale == pytest.approx(0.0532060, abs=5e-8)
    assert_array_equal(found.judge, [-1, -1])
    assert_allclose((found.counts * [1, 2]).sum(axis=1), found.share * 120)
    one = oracle_allocation(variance, [1, 2], 120, 1, "panel")
    assert_allclose(one.share, [0.3571898, 0.6428102], atol=5e-8)
    assert one.objective == pytest.approx(0.6394761, abs=1e-7)
    top = oracle_allocation(variance, [1, 2], 120, math.inf, "panel", [7, 7])
    assert_allclose(top.share, [0.1464466, 0.8535534], atol=5e-8)
    assert top.objective == pytest.approx(0.1989949, abs=5e-8)


@pytest.mark.parametrize(
    ("p", "share", "objective"),
    [
        (1, [0.324666, 0.675334], 0.292205),
        (2, [0.25, 0.75], 0.16),
        (math.inf, [0.1, 0.9], 0.1),
    ],
)
def test_the_norm_decides_how_far_shares_follow_variances(p, share, objective):
    """Pitfalls 1 and 2: the power p/(p + 2) of money times variance; 1 for the maximum norm."""
    found = oracle_allocation([[0.01], [0.09]], [1], 100, p)
    assert_allclose(found.share, share, atol=5e-7)
    assert found.objective == pytest.approx(objective, abs=5e-7)
    assert found.error_scale == pytest.approx(math.sqrt(objective / 100), abs=5e-7)
    assert_allclose(found.counts[:, 0], np.array(share) * 100, atol=5e-5)


def test_shares_are_of_money_not_of_calls():
    """Pitfall 3: at prices 1 and 4 equal money buys 40 and 10 calls."""
    found = oracle_allocation([[0.04], [0.01]], [[1], [4]], 80, 2)
    assert_allclose(found.share, [0.5, 0.5])
    assert_allclose(found.counts, [[40], [10]])


def test_a_precise_judge_can_be_too_dear():
    """Pitfall 4: least price times variance, not least variance."""
    found = oracle_allocation([[0.04, 0.01]], [1, 10], 100, 2)
    assert_array_equal(found.judge, [0])
    assert found.error_scale == pytest.approx(0.02)


def test_an_item_without_noise_still_gets_its_call():
    """Pitfall 9: no money in the real plan, one call in the whole one; no noise at all is no nan."""
    found = oracle_allocation([[0], [0.04]], [1], 10, 2)
    assert_array_equal(found.counts, [[0], [10]])
    assert_array_equal(integer_plan([[0], [0.04]], [1], 10, 2), [[1], [9]])
    for target in TARGETS:
        silent = oracle_allocation(np.zeros((3, 2)), [1, 2], 10, 2, target)
        assert (silent.objective, silent.error_scale) == (0, 0)
        assert_allclose(silent.share, 1 / 3)
        assert np.isfinite(silent.counts).all()
        assert (integer_plan(np.zeros((3, 2)), [1, 2], 10, 2, target).sum(axis=1) >= 1).all()


def test_whole_calls_are_rounded_down_then_topped_up():
    """Pitfall 10: rounding to the nearest would pass the budget."""
    equal = integer_plan([[0.1]] * 3, [1], 5, 2)
    assert sorted(equal.ravel()) == [1, 2, 2]
    assert_array_equal(integer_plan([[0.0001], [0.0001], [0.25]], [1], 10, 2).ravel(), [1, 1, 8])


def test_products_equal_but_for_rounding_are_equal():
    """Pitfall 11: 3 x 0.1 is 0.30000000000000004; of equal judges the cheaper, then the first."""
    assert_array_equal(oracle_allocation([[0.3, 0.1]], [1, 3], 9, 2).judge, [0])
    assert_array_equal(oracle_allocation([[0.1, 0.3]], [3, 1], 9, 2).judge, [1])
    assert_array_equal(oracle_allocation([[0.1, 0.3]], [[3, 1]], 9, 2).judge, [1])
    assert_array_equal(oracle_allocation([[0.3, 0.3]], [2, 2], 9, 2).judge, [0])


def test_three_calls_of_a_tenth_fit_three_tenths():
    """Pitfall 11: money is whole numbers of its smallest unit; floats are refused."""
    plan = integer_plan([[0.1]], [100_000_000], 300_000_000, 2)
    assert_array_equal(plan, [[3]])
    with pytest.raises(ValueError, match="whole"):
        integer_plan([[0.1]], [0.1], 3, 2)
    with pytest.raises(ValueError, match="whole"):
        integer_plan([[0.1]], [1], 3.5, 2)


# --- the oracle: other witnesses -----------------------------------------------------------------


def test_the_error_is_that_of_the_closed_forms():
    """A worked example: 0.0494 for the oracle, 0.0573 and 0.0612 for uniform calls."""
    variance, cost = np.array([[0.04, 0.01], [0.16, 0.09]]), np.array([1, 2])
    found = oracle_allocation(variance, cost, 120, 2)
    assert_allclose(found.a, [0.02, 0.16])
    assert_array_equal(found.judge, [1, 0])
    assert_allclose(found.share, [0.261204, 0.738796], atol=5e-7)
    assert found.error_scale == pytest.approx(0.0494248, abs=5e-8)
    sweep = 120 / (2 * cost.sum())
    assert error_of(1 / (sweep / variance).sum(1), 2) == pytest.approx(0.0572713, abs=5e-8)
    assert error_of(variance.sum(1) / 4 / sweep, 2) == pytest.approx(0.0612372, abs=5e-8)


@pytest.mark.parametrize("p", NORMS)
@pytest.mark.parametrize("target", ["common", "panel"])
def test_the_stated_error_is_that_of_the_counts(p, target):
    """error_scale by the formula is the norm of what its own counts leave, and spends the budget."""
    rng = np.random.default_rng(3)
    variance, cost = rng.gamma(1, 0.1, (7, 3)), rng.uniform(1, 9, (7, 3))
    found = oracle_allocation(variance, cost, 500, p, target)
    assert (found.counts * cost).sum() == pytest.approx(500)
    left = defined_variances(found.counts, variance, target)
    assert error_of(left, p) == pytest.approx(found.error_scale)
    assert found.objective == pytest.approx(found.error_scale**2 * 500)


def solved(variance, cost, budget, p, target, eta2=0.0, bounds=(1e-9, math.inf)):
    """Minimise the error over real counts with a general solver from several starts."""
    shape = variance.shape
    low, high = (np.broadcast_to(bound, shape).ravel().astype(float) for bound in bounds)
    price = np.broadcast_to(cost, shape).ravel().astype(float)
    rng = np.random.default_rng(0)

    def log_error(n):
        return math.log(
            error_of(
                defined_variances(np.maximum(n, 1e-12).reshape(shape), variance, target, eta2), p
            )
        )

    return math.exp(
        min(
            minimize(
                log_error,
                np.clip(rng.dirichlet(np.ones(price.size)) * budget / price, low, high),
                method="SLSQP",
                bounds=list(zip(low, high, strict=True)),
                constraints={"type": "eq", "fun": lambda n: (n * price).sum() - budget},
                options={"maxiter": 400, "ftol": 1e-13},
            ).fun
            for _ in range(3)
        )
    )


@pytest.mark.parametrize("case", range(6))
@pytest.mark.parametrize("target", TARGETS)
def test_a_general_solver_finds_nothing_better(target, case):
    """Second witness of all three targets: sequential quadratic programming, to 1e-6."""
    rng = np.random.default_rng([case, TARGETS.index(target)])
    variance, cost = rng.gamma(1, 1, (3, 3)), rng.uniform(1, 5, 3)
    p = (1.0, 2.0, 4.0)[case % 3]
    eta2 = (0.01, 0.2, 1.0)[case // 2] if target == "population" else 0.0
    found = oracle_allocation(variance, cost, 60, p, target, interaction=eta2)
    other = solved(variance, cost, 60, p, target, eta2)
    assert found.error_scale == pytest.approx(other, rel=1e-6)


def test_the_maximum_norm_of_a_population_leaves_all_items_alike():
    """For p = inf every item ends with the same variance, and no item could do with less money."""
    rng = np.random.default_rng(5)
    variance, cost = rng.gamma(1, 1, (4, 3)), np.array([1.0, 2.0, 5.0])
    found = oracle_allocation(variance, cost, 200, math.inf, "population", interaction=0.3)
    left = defined_variances(found.counts, variance, "population", 0.3)
    assert_allclose(left, found.error_scale**2, rtol=1e-6)
    for k in range(4):
        money = float((found.counts[k] * cost).sum())
        alone = oracle_allocation(
            variance[[k]], cost, money, 2, "population", interaction=0.3
        ).error_scale
        assert alone == pytest.approx(found.error_scale, rel=1e-6)


def test_a_population_of_one_judge_is_common_only_for_the_square():
    """With J = 1 the shared η² changes nothing for p = 2, and something for other norms."""
    variance = np.array([[0.1], [0.4], [0.9]])
    for p, is_same in ((2, True), (1, False), (4, False)):
        alone = oracle_allocation(variance, [1], 30, p).counts
        one_of_many = oracle_allocation(variance, [1], 30, p, "population", interaction=0.2).counts
        assert np.allclose(alone, one_of_many, rtol=1e-6) == is_same


def test_without_interaction_a_population_is_common():
    """η² = 0: judges differ in noise alone, and each item is served by its cheapest precision."""
    rng = np.random.default_rng(6)
    variance, cost = rng.gamma(1, 1, (5, 3)), np.array([1, 2, 3])
    for p in NORMS:
        common = oracle_allocation(variance, cost, 90, p)
        found = oracle_allocation(variance, cost, 90, p, "population")
        assert found.error_scale == pytest.approx(common.error_scale, rel=1e-6)
        assert_array_equal(found.judge, common.judge)


def test_one_judge_makes_panel_and_common_equal():
    """With J = 1 a panel's mean is the judge's score."""
    variance = np.array([[0.1], [0.4], [0.9]])
    for p in NORMS:
        common, panel = (oracle_allocation(variance, [3], 30, p, t) for t in TARGETS[:2])
        assert_allclose(common.counts, panel.counts)
        assert common.error_scale == pytest.approx(panel.error_scale)
        assert_array_equal(panel.judge, 0)


def test_alike_judges_share_a_panel_evenly():
    """Equal noise and price: a_k = c σ², and each judge makes 1/J of the item's calls."""
    variance = np.repeat([[0.1], [0.4]], 4, axis=1)
    found = oracle_allocation(variance, [2] * 4, 80, 2, "panel")
    assert_allclose(found.a, [0.2, 0.8])
    assert_allclose(found.counts, found.counts.sum(axis=1, keepdims=True) / 4 * np.ones(4))


def test_a_judge_without_weight_is_not_asked():
    """Weight 0 is no money in the real plan and no forced call in the whole one."""
    variance = np.array([[0.1, 0.2, 0.01], [0.4, 0.2, 0.01]])
    found = oracle_allocation(variance, [1, 1, 1], 60, 2, "panel", [1, 1, 0])
    two = oracle_allocation(variance[:, :2], [1, 1], 60, 2, "panel")
    assert_allclose(found.counts, np.column_stack([two.counts, [0, 0]]))
    plan = integer_plan(variance, [1, 1, 1], 60, 2, "panel", [1, 1, 0])
    assert_array_equal(plan[:, 2], 0)
    assert plan.sum() == 60


# --- the oracle: properties ----------------------------------------------------------------------


@pytest.mark.parametrize("target", ["common", "panel"])
@pytest.mark.parametrize("p", NORMS)
def test_units_of_score_and_money_change_no_share(target, p):
    """Bar A3: variances by 1e-12, prices and budget by 1e6 leave shares to 1e-12."""
    rng = np.random.default_rng(7)
    variance, cost = rng.gamma(1, 1, (20, 4)), rng.uniform(1, 9, 4)
    usual = oracle_allocation(variance, cost, 1e4, p, target)
    scaled = oracle_allocation(variance * 1e-12, cost * 1e6, 1e10, p, target)
    assert_allclose(usual.share, scaled.share, rtol=1e-12)
    assert_array_equal(usual.judge, scaled.judge)
    assert_allclose(usual.counts, scaled.counts, rtol=1e-11)


@pytest.mark.parametrize("target", TARGETS)
def test_the_order_of_items_and_judges_is_no_matter(target):
    """Bar A3: a permutation of either permutes the result."""
    rng = np.random.default_rng(8)
    variance, cost = rng.gamma(1, 1, (12, 4)), rng.permutation([2, 3, 5, 7])
    items, judges = rng.permutation(12), rng.permutation(4)
    eta2 = 0.1 if target == "population" else 0.0
    for p in (1, 2, math.inf):
        plain = oracle_allocation(variance, cost, 900, p, target, interaction=eta2)
        mixed = oracle_allocation(
            variance[items][:, judges], cost[judges], 900, p, target, interaction=eta2
        )
        assert_allclose(mixed.share, plain.share[items], rtol=1e-9)
        assert_allclose(mixed.counts, plain.counts[items][:, judges], rtol=1e-6, atol=1e-6)
        whole = integer_plan(variance, cost, 900, p, target, interaction=eta2)
        mixed_whole = integer_plan(
            variance[items][:, judges], cost[judges], 900, p, target, interaction=eta2
        )
        assert_array_equal(mixed_whole, whole[items][:, judges])


def test_tiny_and_huge_variances_neither_vanish_nor_overflow():
    found = oracle_allocation([[1e-150], [1e-140], [1e150]], [1], 1e6, 1)
    assert np.isfinite(found.share).all()
    assert found.share.sum() == pytest.approx(1)
    assert 0 < found.share[0] < found.share[1] < found.share[2]


def test_exponents():
    assert [exponent(p) for p in (1, 2, 4, math.inf)] == [1 / 3, 1 / 2, 2 / 3, 1]
    assert shares(np.zeros(4), 2)[1] == 0


@pytest.mark.parametrize(
    ("wrong", "says"),
    [
        ({"variance": [0.1, 0.2]}, "variance"),
        ({"variance": np.empty((0, 2))}, "variance"),
        ({"variance": [[0.1, math.nan]]}, "variance"),
        ({"variance": [[0.1, -0.1]]}, "variance"),
        ({"cost": [1, 2, 3]}, "cost"),
        ({"cost": [1, 0]}, "cost"),
        ({"cost": [1, math.inf]}, "cost"),
        ({"budget": 0}, "budget"),
        ({"budget": math.nan}, "budget"),
        ({"p": 0.5}, "p:"),
        ({"p": math.nan}, "p:"),
        ({"target": "mean"}, "target"),
        ({"interaction": -1.0}, "interaction"),
        ({"weights": [1]}, "weights"),
        ({"weights": [0, 0]}, "weights"),
        ({"weights": [1, -1]}, "weights"),
    ],
)
def test_what_makes_no_sense_is_refused(wrong, says):
    usual = {"variance": [[0.1, 0.2]], "cost": [1, 2], "budget": 9, "p": 2}
    oracle_allocation(**usual)
    with pytest.raises(ValueError, match=says):
        oracle_allocation(**usual | wrong)


# --- whole calls ---------------------------------------------------------------------------------


@st.composite
def problems(draw):
    """Draw variances (some 0), prices, slack over the least budget, norm and target."""
    n_items, n_judges = draw(st.integers(1, 6)), draw(st.integers(1, 4))
    a_variance = st.one_of(st.just(0.0), st.floats(1e-6, 1e3))
    variance = np.array(
        draw(st.lists(a_variance, min_size=n_items * n_judges, max_size=n_items * n_judges))
    ).reshape(n_items, n_judges)
    cost = np.array(draw(st.lists(st.integers(1, 50), min_size=n_judges, max_size=n_judges)))
    eta2 = draw(st.sampled_from([0.0, 0.1, 5.0]))
    target = draw(st.sampled_from(TARGETS))
    return {
        "variance": variance,
        "cost": cost,
        "p": draw(st.sampled_from(NORMS)),
        "target": target,
        "interaction": eta2 if target == "population" else 0.0,
    }


def least_budget(**problem):
    """Ask with nothing, to hear what would do."""
    with pytest.raises(BudgetTooSmall) as refused:
        integer_plan(**problem, budget=0)
    return refused.value.sufficient


@given(problem=problems(), slack=st.integers(0, 2000))
def test_a_plan_never_passes_the_budget_and_serves_every_item(problem, slack):
    """Bar A2: money is exact, every item has a call, a panel one of each judge."""
    budget = least_budget(**problem) + slack
    plan = integer_plan(**problem, budget=budget)
    assert (plan * problem["cost"]).sum() <= budget
    assert (plan >= 0).all()
    assert (plan.sum(axis=1) >= 1).all()
    if problem["target"] == "panel":
        assert (plan >= 1).all()
    if problem["target"] == "common":
        assert ((plan > 0).sum(axis=1) == 1).all()


@given(problem=problems(), slack=st.integers(0, 2000))
def test_no_useful_call_is_left_unbought(problem, slack):
    """Whatever single call the rest could still pay for, none would lower the error."""
    budget = least_budget(**problem) + slack
    plan = integer_plan(**problem, budget=budget)
    unspent = budget - int((plan * problem["cost"]).sum())

    target, eta2 = problem["target"], problem["interaction"]

    def error(counts):
        return error_of(defined_variances(counts, problem["variance"], target, eta2), problem["p"])

    for k, j in np.argwhere((plan > 0) | (target == "population")):
        if problem["cost"][j] <= unspent:
            more = plan.copy()
            more[k, j] += 1
            assert error(more) == pytest.approx(error(plan), rel=1e-9)


@given(problem=problems())
def test_the_named_budget_is_the_least_that_does(problem):
    """`sufficient` succeeds, and one unit of money less does not."""
    enough = least_budget(**problem)
    assert (integer_plan(**problem, budget=enough) * problem["cost"]).sum() == enough
    with pytest.raises(BudgetTooSmall) as refused:
        integer_plan(**problem, budget=enough - 1)
    assert refused.value.sufficient == enough


@given(problem=problems(), slack=st.integers(0, 2000), data=st.data())
def test_bounds_of_counts_are_kept(problem, slack, data):
    """`at_least` and `at_most` hold in every cell; where they cross, `at_least` wins."""
    shape = problem["variance"].shape
    cells = st.lists(
        st.integers(0, 9), min_size=problem["variance"].size, max_size=problem["variance"].size
    )
    least = np.array(data.draw(cells)).reshape(shape)
    most = np.array(data.draw(cells)).reshape(shape)
    bounds = {"at_least": least, "at_most": most}
    assume((problem["cost"] * least).sum() > 0)
    budget = least_budget(**problem, **bounds) + slack
    plan = integer_plan(**problem, **bounds, budget=budget)
    assert (plan >= least).all()
    assert (plan <= np.maximum(least, most)).all()
    assert (plan * problem["cost"]).sum() <= budget
    is_open = (np.maximum(least, most) > 0).any(axis=1)
    assert (plan.sum(axis=1)[is_open] >= 1).all()


def test_a_thousand_random_plans_are_close_to_the_real_one():
    """Bar A2: within 2 % of the oracle once every real count is 20, and nothing useful unspent.

    An item without noise costs a call that the real plan does not make: it is left out of both.
    """
    rng = np.random.default_rng(11)
    worst, n_large = 1.0, 0
    for _ in range(1000):
        n_items, n_judges = rng.integers(1, 40), rng.integers(1, 6)
        variance = rng.gamma(rng.choice([0.5, 2.0]), 0.1, (n_items, n_judges))
        variance[rng.random(n_items) < 0.1] = 0
        cost = rng.integers(1, 100, n_judges)
        p = float(rng.choice(NORMS))
        budget = int(n_items * cost.max() * rng.integers(1, 400))
        plan = integer_plan(variance, cost, budget, p)
        spent = int((plan * cost).sum())
        assert spent <= budget
        assert (plan.sum(axis=1) >= 1).all()
        noisy = variance.any(axis=1)
        if not noisy.any():
            continue
        chosen = np.broadcast_to(cost, plan.shape)[noisy][plan[noisy] > 0]
        assert budget - spent < chosen.min()
        silent = int((plan[~noisy] * cost).sum())
        real = oracle_allocation(variance[noisy], cost, budget - silent, p)
        if real.counts.max(axis=1).min() >= 20:
            n_large += 1
            error = error_of(defined_variances(plan[noisy], variance[noisy], "common"), p)
            worst = max(worst, error / real.error_scale)
    assert n_large > 300
    assert worst <= 1.02


def frontier(options):
    """Keep the least variance for each cost, then what no cheaper option beats."""
    best, kept = math.inf, []
    for cost, variance in sorted(options):
        if variance < best:
            best = variance
            kept.append((cost, variance))
    return kept


def brute_force(choices, budget, p):
    """Try every combination of the items' options; give the least error that the budget buys."""
    return min(
        error_of(np.array([variance for _, variance in combination]), p)
        for combination in itertools.product(*map(frontier, choices))
        if sum(cost for cost, _ in combination) <= budget
    )


def test_no_plan_of_the_same_judges_is_much_better():
    """Bar A2: at most 1.15 of the best of all plans on three items; mostly it is the best."""
    rng = np.random.default_rng(12)
    ratios = []
    for _ in range(200):
        variance, cost = rng.uniform(0.01, 0.25, (3, 3)), rng.integers(1, 5, 3)
        p = float(rng.choice([1, 2, 4, math.inf]))
        judge = cheapest_precision(variance, cost)
        budget = int(cost[judge].sum() + rng.integers(0, 20))
        plan = integer_plan(variance, cost, budget, p)
        choices = [
            [(n * cost[j], variance[k, j] / n) for n in range(1, budget // cost[j] + 1)]
            for k, j in enumerate(judge)
        ]
        error = error_of(defined_variances(plan, variance, "common"), p)
        ratios.append(error / brute_force(choices, budget, p))
    assert min(ratios) >= 1 - 1e-12
    assert max(ratios) <= 1.15
    assert np.mean(ratios) <= 1.01


def combinations(variances, cost, budget, eta2):
    """List all counts of one item as (money, variance): a panel's, or with η² a population's."""
    first = 1 if eta2 is None else 0
    for counts in itertools.product(*(range(first, budget // c + 1) for c in cost)):
        money = int(np.dot(counts, cost))
        if money <= budget and any(counts):
            if eta2 is None:
                parts = [v / n for v, n in zip(variances, counts, strict=True)]
                yield money, sum(parts) / len(cost) ** 2
            else:
                yield (
                    money,
                    1 / sum(n / (n * eta2 + v) for v, n in zip(variances, counts, strict=True)),
                )


@pytest.mark.parametrize("target", ["panel", "population"])
def test_no_plan_over_several_judges_is_much_better(target):
    """Toy cases of both targets with several judges an item: at most 1.15 of the best of all."""
    rng = np.random.default_rng(13)
    ratios = []
    for _ in range(60):
        variance, cost = rng.gamma(1, 1, (2, 2)), rng.integers(1, 5, 2)
        p = float(rng.choice([1, 2, 4, math.inf]))
        eta2 = rng.gamma(0.5) if target == "population" else None
        problem = {"variance": variance, "cost": cost, "p": p, "target": target}
        if eta2 is not None:
            problem["interaction"] = eta2
        budget = least_budget(**problem) + int(rng.integers(0, 14))
        plan = integer_plan(**problem, budget=budget)
        choices = [list(combinations(row, cost, budget, eta2)) for row in variance]
        error = error_of(defined_variances(plan, variance, target, eta2), p)
        ratios.append(error / brute_force(choices, budget, p))
    assert min(ratios) >= 1 - 1e-12
    assert max(ratios) <= 1.15
    assert np.mean(ratios) <= 1.02


@pytest.mark.parametrize("target", ["common", "panel"])
def test_bounded_counts_are_near_what_a_solver_finds(target):
    """Second witness of the bounds: with thousands of calls whole and real plans differ by 0.1 %."""
    rng = np.random.default_rng(14)
    for p in (1.0, 2.0, 4.0):
        n_judges = 1 if target == "common" else 2
        variance, cost = rng.gamma(1, 1, (4, n_judges)), rng.integers(1, 5, n_judges)
        free = oracle_allocation(variance, cost, 20_000, p, target).counts
        least, most = (free * 0.2).astype(np.int64), (free * 9).astype(np.int64)
        least[0], most[1] = free[0] * 1.4, free[1] * 0.6
        plan = integer_plan(variance, cost, 20_000, p, target, at_least=least, at_most=most)
        bounds = (np.maximum(least, 1), most)
        spent = int((plan * cost).sum())  # all, unless the upper bounds stop it
        other = solved(variance, cost, spent, p, target, bounds=bounds)
        error = error_of(defined_variances(plan, variance, target), p)
        assert error == pytest.approx(other, rel=1e-3)


def test_calls_made_already_count_for_the_item():
    """What one item has in excess is not taken back; the rest is planned around it."""
    plan = integer_plan([[0.1], [0.1]], [1], 20, 2, at_least=np.array([[15], [0]]))
    assert_array_equal(plan, [[15], [5]])


def test_a_judge_that_is_closed_serves_no_item():
    """Bounded to nothing the best judge is left out, and the next one serves."""
    closed = np.array([[0, 99], [99, 99]])
    plan = integer_plan([[0.1, 0.2], [0.1, 0.2]], [1, 1], 20, 2, at_most=closed)
    assert plan[0, 0] == 0
    assert plan[0, 1] > 0
    assert plan[1, 0] > 0


def test_an_item_without_any_judge_gets_nothing():
    closed = np.array([[0, 0], [99, 99]])
    for target in ("common", "panel"):
        plan = integer_plan([[0.1, 0.2]] * 2, [1, 1], 20, 2, target, at_most=closed)
        assert_array_equal(plan[0], 0)
        assert plan[1].sum() == 20


@pytest.mark.parametrize("target", TARGETS)
def test_variances_of_scores_are_those_of_the_definition(target):
    """For all targets; an item without calls has none, one judge without noise leaves none."""
    rng = np.random.default_rng(15)
    counts, variance = rng.integers(1, 9, (6, 3)), rng.gamma(1, 1, (6, 3))
    eta2 = 0.3 if target == "population" else 0.0
    found = item_variances(counts, variance, target, interaction=eta2)
    assert_allclose(found, defined_variances(counts, variance, target, eta2))
    counts[0], variance[1] = 0, 0
    found = item_variances(counts, variance, target, interaction=eta2)
    assert_array_equal(np.isnan(found), [True] + 5 * [False])
    assert found[1] == pytest.approx(eta2 / 3)


def test_shares_of_judges_are_of_money():
    assert judge_shares(np.array([[1, 6], [2, 0]]), ("a", "b")) == {"a": 3 / 9, "b": 6 / 9}
    assert judge_shares(np.zeros((1, 2), int), ("a", "b")) == {"a": 0, "b": 0}
