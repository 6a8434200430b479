"""Rules for ties, each beside its definition, a published fit and a general optimiser."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.optimize import minimize

from estimators.bt_model import Kind, Status, fit_bradley_terry
from estimators.bt_ties import Ties, log_likelihood, probabilities, scores, slopes
from tests.estimators.bt_data import drawn, gold, hessian, in_order, log_shares

WITH_NU = ["davidson", "rao_kupper"]


@pytest.mark.parametrize("rule", WITH_NU)
@given(eta=st.floats(-9, 9), tau=st.floats(0.01, 3), seed=st.integers(0, 99))
def test_derivatives_are_those_of_the_definition(rule, eta, tau, seed):
    ties, sums = Ties(rule), np.random.default_rng(seed).integers(0, 4, (3, 1)).astype(float)
    at = np.array([eta])

    def loglik(psi):
        return float((sums * log_shares(rule, np.array([psi[0]]), psi[1])).sum())

    psi = np.array([eta, tau])
    assert log_likelihood(ties, at, tau, sums) == pytest.approx(loglik(psi), rel=1e-9, abs=1e-9)
    shares = probabilities(ties, at, np.exp(tau))
    assert shares == pytest.approx(np.exp(log_shares(rule, at, tau)), rel=1e-9)
    assert shares.sum() == pytest.approx(1, abs=1e-12)
    found, score = slopes(ties, at, tau, sums), scores(ties, at, tau)
    assert (sums * score.e).sum() == pytest.approx(found.e[0])
    step = 1e-6
    for k, value in ((0, found.e[0]), (1, found.t[0])):
        e = np.eye(2)[k] * step
        numeric = (loglik(psi + e) - loglik(psi - e)) / (2 * step)
        assert value == pytest.approx(numeric, rel=1e-4, abs=1e-5)
    ups, downs = slopes(ties, at + step, tau, sums), slopes(ties, at - step, tau, sums)
    assert -found.ee[0] == pytest.approx((ups.e - downs.e)[0] / (2 * step), rel=1e-4, abs=1e-5)
    assert -found.et[0] == pytest.approx((ups.t - downs.t)[0] / (2 * step), rel=1e-4, abs=1e-5)
    step *= tau
    ups, downs = slopes(ties, at, tau + step, sums), slopes(ties, at, tau - step, sums)
    assert -found.tt[0] == pytest.approx((ups.t - downs.t)[0] / (2 * step), rel=1e-4, abs=1e-5)


@pytest.mark.shared
def test_davidson_is_that_of_an_independent_program(shared_gold):
    """Scales differ: the best model stands at .97 with half wins, and at 1.71 here."""
    data, expected = gold(shared_gold, "llmfao")
    m, wanted = len(expected["names"]), expected["davidson"]
    rows = data["left"], data["right"], data["y"]
    fit = fit_bradley_terry(*rows, n_models=m, order_effect=True, ties="davidson")
    assert fit.theta == pytest.approx(in_order(wanted["theta"], expected), abs=1e-6)
    assert (fit.nu, fit.gamma) == pytest.approx((wanted["nu"], wanted["gamma"]), abs=1e-6)
    assert fit.se == pytest.approx(in_order(wanted["se_model"], expected), abs=1e-6)
    assert fit.loglik == pytest.approx(wanted["loglik"], abs=1e-8)
    half = fit_bradley_terry(*rows, n_models=m, order_effect=True)
    best = expected["names"].index("GPT 4")
    assert (half.theta[best], fit.theta[best]) == pytest.approx((0.966, 1.709), abs=5e-4)


def test_davidson_in_closed_form():
    """Ten wins, five ties, five losses: gap ln 2, nu 5/√50, error .54772."""
    rows = [0] * 20, [1] * 20, [1] * 10 + [0.5] * 5 + [0] * 5
    fit = fit_bradley_terry(*rows, n_models=2, ties="davidson")
    assert fit.gap(0, 1)[:2] == pytest.approx((np.log(2), np.sqrt(0.3)), abs=1e-12)
    assert fit.gap(0, 1).se == pytest.approx(0.54772, abs=5e-6)
    assert fit.nu == pytest.approx(5 / np.sqrt(50), abs=1e-12)
    # nu = n_tie/√(n_won n_lost), of which the delta method gives the error.
    assert fit.slope("nu").se == pytest.approx(fit.nu * np.sqrt(1 / 5 + 1 / 40 + 1 / 20), abs=1e-12)
    dropped = fit_bradley_terry(*rows, n_models=2, ties="drop")
    assert dropped.gap(0, 1)[:2] == pytest.approx((np.log(2), np.sqrt(0.3)), abs=1e-12)
    assert np.isnan(dropped.nu)


def test_rao_kupper_in_closed_form():
    """One pair is saturated: shares of wins give eta ± ln nu as logits."""
    rows = [0] * 20, [1] * 20, [1] * 10 + [0.5] * 5 + [0] * 5
    fit = fit_bradley_terry(*rows, n_models=2, ties="rao_kupper")
    above, below = 0.0, np.log(0.25 / 0.75)  # logits of P(left) = 1/2 and P(right) = 1/4
    assert fit.gap(0, 1).est == pytest.approx((above - below) / 2, abs=1e-10)
    assert np.log(fit.nu) == pytest.approx(-(above + below) / 2, abs=1e-10)


@pytest.mark.parametrize("rule", WITH_NU)
@pytest.mark.parametrize("is_weighted", [False, True])
def test_the_joint_maximum_and_covariance_are_those_of_a_general_optimiser(rule, is_weighted):
    """Of strengths, order effect and nu together, model and sandwich."""
    rng = np.random.default_rng(4)
    left, right, y = drawn(rng, 500, m=4, gamma=0.4, tied=0.3)
    w = rng.uniform(0.3, 2, 500) if is_weighted else np.ones(500)
    fit = fit_bradley_terry(
        left, right, y, n_models=4, order_effect=True, ties=rule,
        weights=w if is_weighted else None,
    )  # fmt: skip
    code = (2 * y).astype(int)

    def each(b):
        theta = np.append(b[:3], -b[:3].sum())
        eta = theta[left] - theta[right] + b[3]
        return w * log_shares(rule, eta, np.log(b[4]))[code, np.arange(500)]

    def loss(b):
        return -float(each(b).sum())

    start = np.array([0, 0, 0, 0, 1.5])
    top = minimize(
        loss,
        start,
        method="Nelder-Mead",
        options={"maxiter": 20_000, "xatol": 1e-9, "fatol": 1e-12},
    )
    top = minimize(loss, top.x, method="BFGS", options={"gtol": 1e-7})
    assert fit.theta[:3] == pytest.approx(top.x[:3], abs=2e-6)
    assert (fit.gamma, fit.nu) == pytest.approx(top.x[3:], abs=2e-6)
    assert fit.loglik == pytest.approx(-top.fun, abs=1e-8)
    keep = np.ix_([0, 1, 2, 4, 5], [0, 1, 2, 4, 5])
    bread = np.linalg.inv(hessian(loss, top.x))
    assert fit.joint[keep] == pytest.approx(bread, rel=1e-3, abs=1e-6)
    e = np.eye(5) * 1e-5
    by_row = np.stack([(each(top.x + d) - each(top.x - d)) / 2e-5 for d in e])
    assert fit.joint_sandwich[keep] == pytest.approx(
        bread @ by_row @ by_row.T @ bread, rel=1e-3, abs=1e-6
    )
    assert fit.kind is (Kind.SANDWICH if is_weighted else Kind.MODEL)
    single = fit_bradley_terry(
        left, right, y, n_models=4, order_effect=True, ties=rule,
        weights=w if is_weighted else None, cluster=np.arange(500),
    )  # fmt: skip
    assert single.joint_cluster == pytest.approx(fit.joint_sandwich, abs=1e-10)


@pytest.mark.parametrize("rule", WITH_NU)
def test_the_order_in_which_ties_are_counted_recovers_the_truth(rule):
    """Drawn from the rule itself, nu and strengths are found again."""
    rng, theta, tau = np.random.default_rng(6), np.array([0.8, 0.1, -0.9]), 0.5
    left = rng.integers(0, 3, 20_000)
    right = (left + rng.integers(1, 3, 20_000)) % 3
    shares = np.exp(log_shares(rule, theta[left] - theta[right] + 0.3, tau))
    y = (rng.random(20_000) > shares.cumsum(axis=0)).sum(axis=0) / 2
    fit = fit_bradley_terry(left, right, y, n_models=3, order_effect=True, ties=rule)
    assert (np.abs(fit.theta - theta) < 4 * fit.se).all()
    for name, truth in (("gamma", 0.3), ("nu", np.exp(tau))):
        assert fit.slope(name).est == pytest.approx(truth, abs=4 * fit.slope(name).se)


@pytest.mark.parametrize(("rule", "nu"), [("davidson", 0), ("rao_kupper", 1)])
def test_without_ties_every_rule_is_the_plain_model(rule, nu):
    left, right, y = drawn(np.random.default_rng(2), 300, tied=0)
    fit = fit_bradley_terry(left, right, y, n_models=5, ties=rule)
    plain = fit_bradley_terry(left, right, y, n_models=5)
    assert fit.nu == nu
    assert fit.theta == pytest.approx(plain.theta, abs=1e-12)
    assert fit.se == pytest.approx(plain.se, abs=1e-12)
    shares = probabilities(Ties(rule), np.array([0.3]), fit.nu)
    assert shares[1] == 0
    assert shares == pytest.approx(np.nan_to_num(probabilities(Ties.HALF, np.array([0.3]), 0)))


@pytest.mark.parametrize("rule", WITH_NU)
@pytest.mark.parametrize("rest", [[0.5] * 5, [1.0] * 5])
def test_ties_alone_or_with_wins_of_one_side_leave_nu_open(rule, rest):
    """Half wins would be finite for the second; here nu and the gap rise together."""
    y = [0.5] * 5 + rest
    fit = fit_bradley_terry([0] * 10, [1] * 10, y, n_models=2, ties=rule)
    assert np.isfinite(fit.theta).all()
    assert fit.status is Status.UNDETERMINED
    assert "nu" in fit.reason


def test_rules_are_not_on_one_scale():
    left, right, y = drawn(np.random.default_rng(2), 2000, tied=0.4)
    found = {
        ties: fit_bradley_terry(left, right, y, n_models=5, ties=ties).theta.std() for ties in Ties
    }
    assert found[Ties.HALF] < 0.75 * found[Ties.DROP]
    assert found[Ties.HALF] < 0.75 * found[Ties.DAVIDSON]
