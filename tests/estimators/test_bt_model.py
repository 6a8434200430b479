"""Strengths and their standard errors: published values, closed forms, and what must not matter."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import minimize
from scipy.special import expit

from estimators.bt_cells import Cells
from estimators.bt_model import (
    Kind,
    Status,
    fit_bradley_terry,
    fit_cells,
    refit,
)
from tests.estimators.bt_data import drawn, gold, hessian, in_order


@pytest.fixture(scope="module")
def llmfao(shared_gold):
    return gold(shared_gold, "llmfao")


@pytest.mark.shared
@pytest.mark.parametrize("name", ["food", "llmfao"])
def test_strengths_and_errors_are_those_of_independent_programs(name, shared_gold):
    data, expected = gold(shared_gold, name)
    m = len(expected["names"])
    fit = fit_bradley_terry(data["left"], data["right"], data["y"], n_models=m)
    assert fit.status is Status.OK
    assert fit.theta == pytest.approx(in_order(expected["theta"], expected), abs=1e-8)
    assert fit.se == pytest.approx(in_order(expected["se_model"], expected), abs=1e-8)
    assert fit.se_sandwich == pytest.approx(in_order(expected["se_sandwich"], expected), abs=1e-8)
    assert fit.loglik == pytest.approx(expected["loglik"], abs=1e-8)
    assert fit.theta.sum() == pytest.approx(0, abs=1e-12)

    fit = fit_bradley_terry(data["left"], data["right"], data["y"], n_models=m, order_effect=True)
    wanted, gamma = expected["with_order"], fit.slope("gamma")
    assert fit.theta == pytest.approx(in_order(wanted["theta"], expected), abs=1e-8)
    assert gamma.est == fit.gamma == pytest.approx(wanted["gamma"], abs=1e-8)
    assert gamma.se == pytest.approx(wanted["gamma_se_model"], abs=1e-8)
    assert gamma.se_sandwich == pytest.approx(wanted["gamma_se_sandwich"], abs=1e-8)
    assert fit.loglik == pytest.approx(wanted["loglik"], abs=1e-8)


@pytest.mark.shared
@pytest.mark.parametrize(
    ("by", "n", "ratio", "gpt_4"), [("prompt", 13, 1.120, 0.2089), ("worker", 124, 0.831, 0.2023)]
)
def test_errors_by_cluster_are_those_of_an_independent_program(by, n, ratio, gpt_4, llmfao):
    """13 prompts are too few to rely on, which is flagged, and they are not the default."""
    data, expected = llmfao
    m = len(expected["names"])
    fit = fit_bradley_terry(data["left"], data["right"], data["y"], n_models=m, cluster=data[by])
    wanted = in_order(expected[f"se_cluster_{by}"], expected)
    assert fit.se_cluster == pytest.approx(wanted, abs=1e-8)
    assert fit.n_clusters == n
    assert ("few_clusters" in fit.flags) is (n < 30)
    assert fit.kind is (Kind.SANDWICH if n < 30 else Kind.CLUSTER)
    assert np.median(fit.se_cluster / fit.se) == pytest.approx(ratio, abs=5e-4)
    assert np.median(fit.se_sandwich / fit.se) == pytest.approx(0.756, abs=5e-4)
    best = expected["names"].index("GPT 4")
    errors = fit.se[best], fit.se_sandwich[best], fit.se_cluster[best]
    assert errors == pytest.approx((0.1931, 0.1604, gpt_4), abs=5e-5)


@pytest.mark.shared
def test_the_error_of_a_gap_is_not_the_sum_of_two(shared_gold):
    data, expected = gold(shared_gold, "food")
    fit = fit_bradley_terry(data["left"], data["right"], data["y"], n_models=5)
    a, b = (expected["names"].index(name) for name in ("Tacos", "Sushi"))
    gap = fit.gap(a, b, kind=Kind.MODEL)
    assert gap.est == pytest.approx(0.82353, abs=1e-4)
    assert gap.se == pytest.approx(0.84880, abs=1e-4)
    assert np.hypot(fit.se[a], fit.se[b]) == pytest.approx(0.73061, abs=1e-4)


def test_a_tie_that_counts_half_needs_the_sandwich():
    """Ten wins, five ties, five losses: half wins give ln(12.5/7.5), with a smaller error."""
    fit = fit_bradley_terry([0] * 20, [1] * 20, [1] * 10 + [0.5] * 5 + [0] * 5, n_models=2)
    assert fit.gap(0, 1).est == pytest.approx(np.log(12.5 / 7.5), abs=1e-12)
    assert fit.gap(0, 1, kind=Kind.MODEL).se == pytest.approx(0.46188, abs=5e-6)
    assert fit.gap(0, 1).se == pytest.approx(0.39553, abs=5e-6)
    assert fit.kind is Kind.SANDWICH


def test_an_order_effect_takes_the_advantage_of_the_first_place_out():
    """Equal models, the first shown wins 70 %, and one of them is shown first more often."""
    left, right = [0] * 80 + [1] * 20, [1] * 80 + [0] * 20
    y = [1] * 56 + [0] * 24 + [1] * 14 + [0] * 6
    naive = fit_bradley_terry(left, right, y, n_models=2)
    assert naive.gap(0, 1).est == pytest.approx(0.48955, abs=5e-6)
    assert naive.gap(0, 1).lower > 0
    fit = fit_bradley_terry(left, right, y, n_models=2, order_effect=True)
    assert fit.gap(0, 1).est == pytest.approx(0, abs=1e-12)
    assert fit.gamma == pytest.approx(np.log(0.7 / 0.3), abs=1e-12)
    assert (fit.gap(0, 1).se, fit.slope("gamma").se) == pytest.approx((0.27277,) * 2, abs=5e-6)


def test_a_judge_that_always_says_first_tells_no_models_apart():
    """C34: ten pairs in both orders; strengths are equal, the order effect is open and so are gaps."""
    left, right = [0, 1] * 10, [1, 0] * 10
    fit = fit_bradley_terry(left, right, [1] * 20, n_models=2, order_effect=True)
    assert fit.theta == pytest.approx([0, 0], abs=1e-12)
    assert 0 < fit.gamma < 10
    assert fit.status is Status.UNDETERMINED
    assert "gamma" in fit.reason
    fit = fit_bradley_terry(left, right, [1] * 20, n_models=2)
    assert fit.gap(0, 1).est == pytest.approx(0, abs=1e-12)


def test_seven_to_three():
    """C38: log-odds .8473 with error .6901."""
    fit = fit_bradley_terry([0] * 10, [1] * 10, [1] * 7 + [0] * 3, n_models=2)
    assert fit.gap(0, 1)[:2] == pytest.approx((np.log(7 / 3), np.sqrt(1 / 7 + 1 / 3)), abs=1e-12)
    assert fit.kind is Kind.MODEL


def test_ten_to_nothing_has_no_gap():
    """C38: neither infinite nor huge, and flagged."""
    fit = fit_bradley_terry([0] * 10, [1] * 10, [1] * 10, n_models=2)
    assert fit.status is Status.SEPARATED
    assert np.abs(fit.theta).max() < 5
    assert "ridge" in fit.flags
    assert fit.gap(0, 1)[1:] == pytest.approx(
        (np.nan, -np.inf, np.inf, Status.SEPARATED), nan_ok=True
    )


def test_sets_that_never_meet_are_not_compared():
    """C38: both are named, and a prior alone ties them together."""
    fit = fit_bradley_terry(
        [0, 0, 0, 0, 2, 2, 2], [1] * 4 + [3] * 3, [1, 1, 1, 0, 1, 0, 0], n_models=4
    )
    assert fit.status is Status.DISCONNECTED
    assert fit.n_components == 2
    assert fit.component.tolist() == [0, 0, 1, 1]
    assert fit.ridge == 0.25
    assert "ridge" in fit.flags
    assert fit.theta[[0, 2]] == pytest.approx(-fit.theta[[1, 3]], abs=1e-12)
    across = fit.gap(0, 2)
    assert np.isnan([across.est, across.se]).all()
    assert (across.lower, across.upper) == (-np.inf, np.inf)
    assert across.status is Status.DISCONNECTED
    assert fit.gap(0, 1).status is Status.OK
    # What a single prior over all would answer.
    assert fit.theta[0] - fit.theta[2] == pytest.approx(0.766, abs=5e-4)
    free = fit_bradley_terry(
        [0, 0, 0, 0, 2, 2, 2], [1] * 4 + [3] * 3, [1, 1, 1, 0, 1, 0, 0], n_models=4, ridge=0
    )
    assert free.gap(0, 1)[:2] == pytest.approx((np.log(3), np.sqrt(4 / 3)), abs=1e-12)
    assert free.gap(3, 2).est == pytest.approx(np.log(2), abs=1e-12)


def test_a_model_that_never_lost_has_a_bound_and_no_gap():
    fit = fit_bradley_terry(
        [0] * 5 + [1] * 5, [1] * 5 + [2] * 5, [1] * 5 + [1, 1, 1, 0, 0], n_models=3
    )
    assert (fit.n_components, fit.n_strong, fit.status) == (1, 2, Status.SEPARATED)
    for other in (1, 2):
        assert np.isnan(fit.gap(0, other).est)
        assert fit.gap(0, other).lower == -np.inf
    assert fit.gap(1, 2).status is Status.OK
    refused = fit_bradley_terry([0] * 5, [1] * 5, [1] * 5, n_models=2, ridge=0)
    assert np.isnan(refused.theta).all()
    assert refused.status is Status.SEPARATED


@pytest.mark.parametrize("ties", ["half", "drop", "davidson", "rao_kupper"])
@pytest.mark.parametrize("n", [0, 3])
def test_nothing_is_known_of_models_that_were_not_compared(n, ties):
    fit = fit_bradley_terry([0] * n, [1] * n, [1, 0.5, 0][:n], n_models=3, ties=ties)
    assert np.isnan(fit.theta).tolist() == [n == 0, n == 0, True]
    assert np.isnan(fit.se_sandwich).tolist() == [n == 0, n == 0, True]
    assert fit.status is (Status.DISCONNECTED if n else Status.NO_DATA)
    assert np.isnan(fit.gap(0, 2).est)
    clustered = fit_bradley_terry([0] * 3, [1] * 3, [1, 0.5, 0], n_models=3, cluster=[0, 1, 1])
    assert np.isfinite(clustered.se_cluster).tolist() == [True, True, False]


def test_no_models_at_all():
    assert fit_bradley_terry([], [], [], n_models=0).status is Status.NO_DATA


def test_an_order_that_is_tied_to_a_pair_is_not_determined():
    """One model always first: its gap and the first place's advantage are one number."""
    fit = fit_bradley_terry([0] * 9, [1] * 9, [1] * 5 + [0] * 4, n_models=2, order_effect=True)
    assert fit.status is Status.UNDETERMINED
    assert fit.gap(0, 1).status is Status.UNDETERMINED
    assert fit.gap(0, 1).lower == -np.inf


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"left": [0, 1]}, "left has shape"),
        ({"left": [0, 1, 3]}, "left must lie in 0 to 2"),
        ({"left": [0, 1, -1]}, "left must lie"),
        ({"left": [0.0, 1.0, 2.0]}, "integers"),
        ({"right": [1, 1, 0]}, "row 1 compares model 1 with itself"),
        ({"outcome": [1, 0.25, 0]}, "outcome of row 1 is 0.25"),
        ({"outcome": [1, 0, 2]}, "outcome of row 2 is 2"),
        ({"outcome": [[1, 0, 0]]}, "one axis"),
        ({"n_models": -1}, "n_models"),
        ({"weights": [1, 2]}, "weights has shape"),
        ({"weights": [1, -1, 1]}, "weights must be finite"),
        ({"weights": [1, np.nan, 1]}, "weights must be finite"),
        ({"cluster": [1, 2]}, "cluster has shape"),
        ({"ties": "thirds"}, "ties is 'thirds'"),
        ({"ridge": -1}, "ridge"),
        ({"covariates": [1, 2]}, "covariates have shape"),
        ({"covariates": [1, 2, np.nan]}, "covariates must be finite"),
        ({"covariates": [1, 2, 3], "covariate_names": ["gamma"]}, "names"),
        ({"covariates": [1, 2, 3], "covariate_names": ["a", "b"]}, "names"),
    ],
)
def test_malformed_rows_are_refused(change, message):
    given = {"left": [0, 1, 2], "right": [1, 2, 0], "outcome": [1, 0.5, 0], "n_models": 3} | change
    with pytest.raises(ValueError, match=message):
        fit_bradley_terry(**given)


def test_a_row_without_verdict_is_counted_and_not_fitted():
    left, right, y = drawn(np.random.default_rng(0), 200)
    missing = np.where(np.arange(200) % 7 == 0, np.nan, y)
    fit = fit_bradley_terry(left, right, missing, n_models=5, cluster=np.arange(200) // 4)
    told = ~np.isnan(missing)
    other = fit_bradley_terry(
        left[told], right[told], y[told], n_models=5, cluster=np.arange(200)[told] // 4
    )
    assert (fit.n, fit.n_missing) == (told.sum(), (~told).sum())
    assert fit.theta == pytest.approx(other.theta, abs=1e-12)
    assert fit.se_cluster == pytest.approx(other.se_cluster, abs=1e-12)


@pytest.mark.parametrize("ties", ["half", "drop", "davidson", "rao_kupper"])
@pytest.mark.parametrize("order", [False, True])
@settings(max_examples=15, deadline=None)
@given(seed=st.integers(0, 10_000))
def test_names_and_sides_do_not_matter(ties, order, seed):
    """Renamed models and turned comparisons give the same strengths, and gamma of other sign."""
    rng = np.random.default_rng(seed)
    left, right, y = drawn(rng, int(rng.integers(5, 120)))
    w = rng.uniform(0.5, 2, len(y)) if seed % 2 else None
    cluster = rng.integers(0, 9, len(y))
    asked = {"n_models": 5, "order_effect": order, "ties": ties, "weights": w, "cluster": cluster}
    fit = fit_bradley_terry(left, right, y, **asked)
    name = rng.permutation(5)
    renamed = fit_bradley_terry(name[left], name[right], y, **asked)
    turned = fit_bradley_terry(right, left, 1 - y, **asked)
    for other, models, sign in ((renamed, name, 1), (turned, np.arange(5), -1)):
        assert (other.status, other.flags) == (fit.status, fit.flags)
        same = {"abs": 1e-10, "nan_ok": True}
        assert other.theta[models] == pytest.approx(fit.theta, **same)
        assert other.gamma == pytest.approx(sign * fit.gamma, **same)
        assert other.nu == pytest.approx(fit.nu, rel=1e-9, **same)
        assert other.loglik == pytest.approx(fit.loglik, rel=1e-11, abs=1e-10)
        block = np.ix_(models, models)
        for kind in Kind:
            wide = {"rel": 1e-7, "abs": 1e-9, "nan_ok": True}
            assert other.covariance(kind)[block] == pytest.approx(fit.covariance(kind), **wide)


@pytest.mark.parametrize("ties", ["half", "davidson", "rao_kupper"])
@settings(max_examples=15, deadline=None)
@given(seed=st.integers(0, 10_000))
def test_rows_split_into_weights_are_the_same_rows(ties, seed):
    rng = np.random.default_rng(seed)
    left, right, y = drawn(rng, 60)
    times = rng.integers(1, 4, 60)
    asked = {"n_models": 5, "order_effect": True, "ties": ties}
    repeated = fit_bradley_terry(*(np.repeat(of, times) for of in (left, right, y)), **asked)
    weighted = fit_bradley_terry(left, right, y, weights=times, **asked)
    shares = np.concatenate((times / 3, 2 * times / 3))
    split = fit_bradley_terry(*(np.tile(of, 2) for of in (left, right, y)), weights=shares, **asked)
    for other in (weighted, split):
        assert other.theta == pytest.approx(repeated.theta, abs=1e-10)
        assert other.gamma == pytest.approx(repeated.gamma, abs=1e-10)
        assert other.cov == pytest.approx(repeated.cov, abs=1e-9)
        assert other.kind is Kind.SANDWICH
    # One cluster a row undoes the splitting of scores.
    row = np.tile(np.arange(60), 2)
    whole = fit_bradley_terry(
        *(np.tile(of, 2) for of in (left, right, y)), weights=shares, cluster=row, **asked
    )
    assert whole.se_cluster == pytest.approx(weighted.se_sandwich, abs=1e-9)


@settings(max_examples=80, deadline=None)
@given(
    n=st.integers(0, 40),
    m=st.integers(2, 6),
    seed=st.integers(0, 2**20),
    order=st.booleans(),
    ties=st.sampled_from(["half", "drop", "davidson", "rao_kupper"]),
    tied=st.sampled_from([0.0, 0.3, 1.0]),
    p=st.sampled_from([0.0, 0.5, 1.0]),
)
def test_whatever_the_rows_there_is_an_answer_with_a_status(n, m, seed, order, ties, tied, p):
    """Sets that never meet, models that never lose, ties only, nothing at all."""
    rng = np.random.default_rng(seed)
    left = rng.integers(0, m, n)
    right = (left + rng.integers(1, m, n)) % m
    y = np.where(rng.random(n) < tied, 0.5, (rng.random(n) < p).astype(float))
    fit = fit_bradley_terry(left, right, y, n_models=m, order_effect=order, ties=ties)
    assert (fit.status is Status.OK) is (not fit.reason)
    if fit.status is Status.OK:
        assert np.isfinite(fit.theta).all()
        assert fit.ridge == fit.slope_ridge == 0
        assert fit.gradient_max < 1e-6
    for a in range(m):
        for b in {*range(m)} - {a}:
            gap = fit.gap(a, b)
            is_number = np.isfinite([gap.est, gap.se, gap.lower, gap.upper]).all()
            assert is_number == (gap.status is Status.OK)
            assert fit.component[a] == fit.component[b] or gap.lower == -np.inf


def test_the_strengths_are_the_highest_of_a_plain_likelihood():
    """Weights, order effect and a covariate at once, beside a general optimiser and differences."""
    rng = np.random.default_rng(5)
    left, right, y = drawn(rng, 400)
    x, w = rng.normal(0, 2, 400), rng.uniform(0.2, 2, 400)
    fit = fit_bradley_terry(
        left, right, y, n_models=5, order_effect=True, weights=w, covariates=x,
        covariate_names=["length"],
    )  # fmt: skip
    design = np.zeros((400, 6))  # the last model stands at minus the sum of the others
    for at, sign in ((left, 1), (right, -1)):
        design[np.arange(400)[at < 4], at[at < 4]] += sign
        design[at == 4, :4] -= sign
    design[:, 4], design[:, 5] = 1, x

    def loss(b):
        eta = design @ b
        return -float(w @ (y * eta - np.logaddexp(0, eta)))

    top = minimize(loss, np.zeros(6), method="BFGS", options={"gtol": 1e-9})
    assert fit.theta[:4] == pytest.approx(top.x[:4], abs=1e-6)
    assert fit.slopes == pytest.approx(top.x[4:], abs=1e-6)
    assert fit.loglik == pytest.approx(-top.fun, abs=1e-9)
    bread = np.linalg.inv(hessian(loss, top.x))
    scores = design * (w * (y - expit(design @ top.x)))[:, None]
    sandwich = bread @ scores.T @ scores @ bread
    keep = np.ix_([0, 1, 2, 3, 5, 6], [0, 1, 2, 3, 5, 6])
    assert fit.joint[keep] == pytest.approx(bread, abs=1e-6)
    assert fit.joint_sandwich[keep] == pytest.approx(sandwich, abs=1e-6)
    assert fit.slope("length").se_sandwich == pytest.approx(np.sqrt(sandwich[5, 5]), abs=1e-6)


def test_a_covariate_takes_its_share_out_of_the_strengths():
    """A model whose only merit is length is no better when length is held equal."""
    rng = np.random.default_rng(3)
    left, right, _ = drawn(rng, 6000)
    longer = np.array([1.0, 0, 0, 0, 0])
    x = longer[left] - longer[right] + rng.normal(0, 0.5, 6000)
    y = (rng.random(6000) < expit(0.8 * x)).astype(float)
    raw = fit_bradley_terry(left, right, y, n_models=5)
    controlled = fit_bradley_terry(
        left, right, y, n_models=5, covariates=x, covariate_names=["length"]
    )
    assert raw.names == ()
    assert raw.gap(0, 1).lower > 0.4
    assert abs(controlled.gap(0, 1).est) < 3 * controlled.gap(0, 1).se
    length = controlled.slope("length")
    assert length.est == pytest.approx(0.8, abs=4 * length.se)
    with pytest.raises(KeyError):
        raw.slope("length")


def test_a_covariate_that_tells_all_or_nothing_is_held_and_said():
    left, right, y = drawn(np.random.default_rng(3), 300, tied=0)
    for x in (2 * y - 1, np.zeros(300)):
        fit = fit_bradley_terry(left, right, y, n_models=5, covariates=x)
        assert fit.status is Status.UNDETERMINED
        assert np.isfinite(fit.theta).all()
        assert "x0" in fit.reason


@pytest.mark.parametrize("scale", [1e-9, 1e9])
def test_the_unit_of_a_covariate_does_not_matter(scale):
    rng = np.random.default_rng(3)
    left, right, y = drawn(rng, 300)
    x = rng.normal(0, 1, 300)
    fit, other = (
        fit_bradley_terry(left, right, y, n_models=5, covariates=of) for of in (x, scale * x)
    )
    assert other.status is Status.OK
    assert other.theta == pytest.approx(fit.theta, abs=1e-9)
    assert other.slopes * scale == pytest.approx(fit.slopes, rel=1e-8)


@pytest.mark.parametrize("ties", ["half", "drop", "davidson", "rao_kupper"])
def test_a_table_that_grows_is_refitted_to_the_same_numbers(ties):
    rng = np.random.default_rng(8)
    left, right, y = drawn(rng, 300, m=8)
    cells, fit, steps = Cells(8), None, 0
    for i in range(300):
        cells.add(left[i], right[i], y[i])
        if i % 20 == 19:
            asked = {"order_effect": True, "ties": ties}
            fit = fit_cells(cells, **asked) if fit is None else refit(fit, cells)
            k = i + 1
            cold = fit_bradley_terry(left[:k], right[:k], y[:k], n_models=8, **asked)
            assert fit.status is cold.status
            assert fit.theta == pytest.approx(cold.theta, abs=1e-9, nan_ok=True)
            assert fit.se_sandwich == pytest.approx(cold.se_sandwich, abs=1e-8, nan_ok=True)
            steps += cold.iterations - fit.iterations
    assert steps > 0


def test_weights_too_unequal_are_flagged():
    left, right, y = drawn(np.random.default_rng(8), 200)
    w = np.where(np.arange(200) < 10, 100, 0.1)
    fit = fit_bradley_terry(left, right, y, n_models=5, weights=w)
    assert fit.ess == pytest.approx(w.sum() ** 2 / (w**2).sum())
    assert "few_effective" in fit.flags
    assert "few_effective" not in fit_bradley_terry(left, right, y, n_models=5).flags
    assert fit_bradley_terry(left, right, y, n_models=5).ess == 200


@pytest.mark.shared
def test_strengths_of_another_scale_are_the_same(llmfao):
    """400/ln 10 = 173.7178 Elo a logit; evalica's strengths are e^theta."""
    data, expected = llmfao
    theta = in_order(expected["theta"], expected)
    fit = fit_bradley_terry(data["left"], data["right"], data["y"], n_models=len(theta))
    strengths = np.exp(theta) * 7.0
    assert np.log(strengths) - np.log(strengths).mean() == pytest.approx(fit.theta, abs=1e-8)
    assert 400 / np.log(10) == pytest.approx(173.7178, abs=5e-5)


def test_intervals_cover():
    """Model and sandwich intervals of a gap, 400 draws."""
    rng = np.random.default_rng(11)
    hits = np.zeros(2)
    theta = np.array([0.6, 0.1, -0.2, -0.5])
    for _ in range(400):
        left = rng.integers(0, 4, 200)
        right = (left + rng.integers(1, 4, 200)) % 4
        y = (rng.random(200) < expit(theta[left] - theta[right])).astype(float)
        fit = fit_bradley_terry(left, right, y, n_models=4)
        for k, kind in enumerate((Kind.MODEL, Kind.SANDWICH)):
            gap = fit.gap(0, 3, kind=kind)
            hits[k] += gap.lower <= 1.1 <= gap.upper
    assert (hits / 400 > 0.95 - 3 * np.sqrt(0.95 * 0.05 / 400)).all()
