"""Judges that favour the first place, or tell models apart more or less sharply."""

import numpy as np
import pytest
from scipy.optimize import minimize
from scipy.special import expit

from estimators.bt_judges import BIAS_VARIANCE, SHARPNESS_VARIANCE, fit_judges
from estimators.bt_model import Kind, Status, fit_bradley_terry
from tests.estimators.bt_data import hessian, log_shares

M, J, N = 4, 3, 900
THETA = np.array([0.9, 0.2, -0.3, -0.8])
DELTA = np.array([0.5, -0.2, -0.3])
BETA = np.exp([0.5, -0.4, -0.1])


def votes(seed, n=N, *, beta=BETA, tied=0.15):
    rng = np.random.default_rng(seed)
    left = rng.integers(0, M, n)
    right = (left + rng.integers(1, M, n)) % M
    judge = rng.integers(0, J, n)
    eta = beta[judge] * (THETA[left] - THETA[right]) + 0.2 + DELTA[judge]
    y = (rng.random(n) < expit(eta)).astype(float)
    y[rng.random(n) < tied] = 0.5
    return left, right, y, judge


def unpacked(b, effect):
    """Strengths, gamma, deviations, log sharpness from free parameters."""
    theta = np.append(b[: M - 1], -b[: M - 1].sum())
    log_beta = np.zeros(J)
    if effect == "discrimination":
        free = b[M + J : M + 2 * J - 1]
        log_beta = np.append(free, -free.sum())
    return theta, b[M - 1], b[M : M + J], log_beta


@pytest.mark.parametrize("effect", ["bias", "discrimination"])
@pytest.mark.parametrize("ties", ["half", "davidson"])
@pytest.mark.parametrize("is_weighted", [False, True])
def test_the_fit_is_the_highest_of_a_plain_likelihood(effect, ties, is_weighted):
    """Beside a general optimiser; covariances beside differences."""
    left, right, y, judge = votes(1)
    w = np.random.default_rng(2).uniform(0.5, 2, N) if is_weighted else np.ones(N)
    found = fit_judges(
        left, right, y, judge, n_models=M, n_judges=J, effect=effect, ties=ties,
        weights=w if is_weighted else None,
    )  # fmt: skip
    p = M + J + (J - 1) * (effect == "discrimination")

    def each(b):
        theta, gamma, delta, log_beta = unpacked(b, effect)
        eta = np.exp(log_beta)[judge] * (theta[left] - theta[right]) + gamma + delta[judge]
        if ties == "davidson":
            return w * log_shares(ties, eta, b[p])[(2 * y).astype(int), np.arange(N)]
        return w * (y * eta - np.logaddexp(0, eta))

    def loss(b):
        _, _, delta, log_beta = unpacked(b, effect)
        prior = (delta**2).sum() / BIAS_VARIANCE + (log_beta**2).sum() / SHARPNESS_VARIANCE
        return -float(each(b).sum()) + prior / 2

    free = p + (ties == "davidson")
    top = minimize(loss, np.zeros(free), method="BFGS", options={"gtol": 1e-6})
    theta, gamma, delta, log_beta = unpacked(top.x, effect)
    near = {"abs": 5e-6}
    assert found.fit.status is Status.OK
    assert found.fit.theta == pytest.approx(theta, **near)
    assert found.fit.gamma == pytest.approx(gamma, **near)
    assert found.delta == pytest.approx(delta, **near)
    assert found.log_beta == pytest.approx(log_beta, **near)
    assert found.log_beta.sum() == pytest.approx(0, abs=1e-9)
    assert found.fit.loglik == pytest.approx(each(top.x).sum(), abs=1e-4)
    bread = np.linalg.inv(hessian(loss, top.x))
    e = np.eye(free) * 1e-5
    scores = np.stack([(each(top.x + d) - each(top.x - d)) / 2e-5 for d in e])
    same = np.ix_([*range(M - 1), *range(M, M + 1 + J)], [*range(M - 1), *range(M, M + 1 + J)])
    at = np.ix_(range(M + J), range(M + J))
    assert found.fit.joint[same] == pytest.approx(bread[at], rel=1e-3, abs=1e-5)
    sandwich = bread @ scores @ scores.T @ bread
    assert found.fit.joint_sandwich[same] == pytest.approx(sandwich[at], rel=1e-3, abs=1e-5)


def test_what_judges_add_is_found_again():
    found = fit_judges(*votes(3, 30_000), n_models=M, n_judges=J, effect="discrimination")
    assert found.log_beta == pytest.approx(np.log(BETA) - np.log(BETA).mean(), abs=0.15)
    assert found.delta == pytest.approx(DELTA - DELTA.mean(), abs=0.15)
    assert (found.beta > 0).all()
    assert (found.agreement > 5).all()
    assert found.n_votes.sum() == 30_000


def test_without_room_to_differ_judges_are_one():
    left, right, y, judge = votes(4)
    plain = fit_bradley_terry(left, right, y, n_models=M, order_effect=True)
    found = fit_judges(
        left, right, y, judge, n_models=M, n_judges=J, effect="discrimination",
        bias_variance=1e-12, sharpness_variance=1e-12,
    )  # fmt: skip
    assert found.fit.theta == pytest.approx(plain.theta, abs=1e-8)
    assert found.fit.gamma == pytest.approx(plain.gamma, abs=1e-8)
    assert found.fit.se == pytest.approx(plain.se, abs=1e-8)


def test_strengths_are_refused_where_a_judge_votes_against_all_others():
    beta = BETA * [1, 1, -1]
    rows = votes(5, beta=beta)
    found = fit_judges(*rows, n_models=M, n_judges=J, effect="discrimination")
    assert found.fit.status is Status.REVERSED
    assert found.reversed == (2,)
    assert "2" in found.fit.reason
    assert np.isnan(found.fit.theta).all()
    assert np.isnan(found.fit.gap(0, 1).est)
    assert found.fit.gap(0, 1).status is Status.REVERSED
    # An order bias alone does not turn strengths round; that judge is named all the same.
    plain = fit_judges(*rows, n_models=M, n_judges=J)
    assert plain.reversed == (2,)
    assert plain.fit.status is Status.OK


@pytest.mark.parametrize("effect", ["bias", "discrimination"])
def test_clusters_of_one_row_are_the_rows(effect):
    left, right, y, judge = votes(6, 400)
    asked = {"n_models": M, "n_judges": J, "effect": effect}
    found = fit_judges(left, right, y, judge, cluster=np.arange(400), **asked)
    assert found.fit.joint_cluster == pytest.approx(found.fit.joint_sandwich, abs=1e-10)
    assert found.fit.kind is Kind.CLUSTER


@pytest.mark.parametrize("effect", ["bias", "discrimination"])
def test_little_data_are_no_error(effect):
    """No votes; two sets that never meet; a judge without votes; votes of one side only."""
    asked = {"n_models": 4, "n_judges": 3, "effect": effect}
    nothing = fit_judges([], [], [], [], **asked)
    assert nothing.fit.status is Status.NO_DATA
    apart = fit_judges([0, 1, 2, 3], [1, 0, 3, 2], [1, 1, 0.5, 0], [0, 0, 1, 1], **asked)
    assert apart.fit.status is Status.DISCONNECTED
    assert apart.delta[2] == pytest.approx(0, abs=1e-9)
    assert np.isnan(apart.agreement[2])
    one = fit_judges([0, 1] * 5, [1, 0] * 5, [1] * 10, [0, 1] * 5, **asked)
    assert np.isfinite(one.fit.theta[:2]).all()
    assert "gamma" in one.fit.reason


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"judge": [0, 3]}, "judge must lie"),
        ({"judge": [0]}, "judge has shape"),
        ({"effect": "mood"}, "effect is 'mood'"),
        ({"bias_variance": 0}, "variances"),
        ({"cluster": [1]}, "cluster has shape"),
        ({"ties": "none"}, "ties"),
    ],
)
def test_malformed_rows_are_refused(change, message):
    given = {"left": [0, 1], "right": [1, 0], "outcome": [1, 1], "judge": [0, 1]}
    given |= {"n_models": 2, "n_judges": 2} | change
    with pytest.raises(ValueError, match=message):
        fit_judges(**given)
