"""fit_bt_tensor: its maximum, its errors, what is refused and what is flagged."""

import math

import numpy as np
import pytest
from scipy.optimize import minimize
from scipy.special import expit

from estimators import tensor_fit
from estimators.bt_model import fit_bradley_terry
from estimators.markov_model import FitStatus
from estimators.tensor_cells import Tangent, votes
from estimators.tensor_fit import NoMaximum, by_context, climb, maximise
from estimators.tensor_functionals import gap, score, win_probability
from estimators.tensor_model import fit_bt_tensor
from estimators.tensor_tangent import TuckerPoint
from orchestrator.core.errors import DidNotConverge
from tests.estimators.tensor_data import Rows, drawn, truth

WANTED = [gap(0, 1, 0), score(3, 2), win_probability(2, 1, [0, 4])]


@pytest.fixture(scope="module")
def rows():
    rng = np.random.default_rng(6)
    return drawn(truth((7, 4), (2, 2), rng), 2500, rng, gamma=0.4, ties=0.1)


@pytest.fixture(scope="module")
def fit(rows):
    return fit_bt_tensor(*rows, shape=(7, 4), rank=2, order_effect=True)


def by_factors(rows, shape, rank, ridge=0.0, seed=0):
    """Maximise over the factors by L-BFGS: another algorithm in other coordinates."""
    m, k = shape

    def minus(x):
        u, v = x[: m * rank].reshape(m, rank), x[m * rank : -1].reshape(k, rank)
        u = u - u.mean(axis=0)
        t = u @ v.T
        eta = t[rows.left, rows.context] - t[rows.right, rows.context] + x[-1]
        s = rows.outcome - expit(eta)
        g = np.zeros_like(t)
        np.add.at(g, (rows.left, rows.context), s)
        np.add.at(g, (rows.right, rows.context), -s)
        g -= ridge * t
        value = rows.outcome @ eta - np.logaddexp(0, eta).sum() - ridge / 2 * (t * t).sum()
        gu = g @ v
        parts = ((gu - gu.mean(axis=0)).reshape(-1), (g.T @ u).reshape(-1), [s.sum()])
        return -value, -np.concatenate(parts)

    start = np.random.default_rng(seed).standard_normal((m + k) * rank + 1)
    found = minimize(
        minus,
        start,
        jac=True,
        method="L-BFGS-B",
        options={"maxiter": 20000, "ftol": 1e-15, "gtol": 1e-9},
    )
    u, v = found.x[: m * rank].reshape(m, rank), found.x[m * rank : -1].reshape(k, rank)
    return (u - u.mean(axis=0)) @ v.T, float(found.x[-1]), -float(found.fun)


@pytest.mark.parametrize("ridge", [0.0, 0.5])
def test_the_maximum_over_factors_is_the_same(rows, ridge):
    """A second witness: L-BFGS over factors, with the order's advantage."""
    fit = fit_bt_tensor(*rows, shape=(7, 4), rank=2, order_effect=True, ridge=ridge)
    tensor, gamma, objective = by_factors(rows, (7, 4), 2, ridge)
    assert fit.maximum.objective == pytest.approx(objective, abs=1e-7)
    assert fit.maximum.objective >= objective - 1e-9
    assert fit.tensor == pytest.approx(tensor, abs=1e-4)
    assert fit.gamma == pytest.approx(gamma, abs=1e-4)


def test_columns_sum_to_zero_and_the_rank_is_kept(fit):
    assert np.abs(fit.tensor.sum(axis=0)).max() < 1e-12
    assert np.linalg.matrix_rank(fit.tensor, tol=1e-9) == 2
    assert fit.status is FitStatus.OK
    assert fit.gradient_max < 1e-11


def test_one_context_of_rank_one_is_bradley_terry(rows):
    """A second witness of tensor, gamma and both errors: the room of plain strengths."""
    fit = fit_bt_tensor(
        rows.left,
        rows.right,
        0 * rows.context,
        rows.outcome,
        shape=(7, 1),
        rank=1,
        order_effect=True,
    )
    plain = fit_bradley_terry(rows.left, rows.right, rows.outcome, n_models=7, order_effect=True)
    assert fit.tensor[:, 0] == pytest.approx(plain.theta, abs=1e-8)
    assert fit.gamma == pytest.approx(plain.gamma, abs=1e-8)
    every = [score(a, 0) for a in range(7)]
    assert fit.plug_in(*every, errors="model").se == pytest.approx(plain.se, abs=1e-8)
    assert fit.plug_in(*every, errors="sandwich").se == pytest.approx(plain.se_sandwich, abs=1e-8)


def test_full_rank_is_each_context_for_itself(rows):
    fit = fit_bt_tensor(*rows, shape=(7, 4), rank=4)
    assert fit.dimension == 6 * 4
    apart = by_context(fit.source.cells(), ridge=1e-12)
    assert fit.tensor == pytest.approx(apart, abs=1e-7)
    one = rows.context == 2
    plain = fit_bradley_terry(rows.left[one], rows.right[one], rows.outcome[one], n_models=7)
    assert fit.tensor[:, 2] == pytest.approx(plain.theta, abs=1e-8)


def test_judges_can_be_a_mode_of_their_own():
    rng = np.random.default_rng(3)
    true = truth((6, 3, 2), (2, 2, 2), rng)
    rows = drawn(true, 20_000, rng)
    fit = fit_bt_tensor(*rows, shape=(6, 3, 2), rank=2)
    assert fit.dimension == 16
    assert fit.tensor.shape == (6, 3, 2)
    # Contexts are flat in C order: context 3 is category 1, judge 1.
    found = fit.plug_in(score(4, 3))
    assert found.value[0] == fit.tensor[4, 1, 1]
    z = (fit.tensor - true).reshape(-1) / fit.plug_in(
        *(score(a, k) for a in range(6) for k in range(6))
    ).se
    assert np.mean(z**2) < 3


def test_information_by_laplacians_is_that_of_rows_of_the_basis(fit):
    cells = fit.source.cells()
    eta = cells.eta(fit.tensor, fit.gamma)
    p = expit(eta)
    q = fit.maximum.tangent.basis.reshape(7, 4, -1)
    j = q[cells.left, cells.context] - q[cells.right, cells.context]
    j = np.column_stack((j, np.ones(len(j))))
    by_rows = (j * (cells.weight * p * (1 - p))[:, None]).T @ j
    assert fit.information == pytest.approx(by_rows, abs=1e-9)
    y, eta_i = fit.source.outcome, eta[fit.source.cell]
    by_votes = (j[fit.source.cell] * ((y - expit(eta_i)) ** 2)[:, None]).T @ j[fit.source.cell]
    inverse = np.linalg.inv(by_rows)
    assert fit.covariance == pytest.approx(inverse, abs=1e-12)
    assert fit.covariance_sandwich == pytest.approx(inverse @ by_votes @ inverse, abs=1e-12)
    assert fit.loglik == pytest.approx(float(y @ eta_i - np.logaddexp(0, eta_i).sum()), abs=1e-8)


def test_conditioning_is_reported_in_entries_of_the_tensor(fit):
    tangent = Tangent(fit.maximum.point.basis(), has_order=False)
    cells = fit.source.cells()
    p = expit(cells.eta(fit.tensor, fit.gamma))
    a = tangent.information(cells, cells.weight * p * (1 - p)) / fit.n
    values = np.linalg.eigvalsh(fit.information)
    assert fit.condition == pytest.approx(values[-1] / values[0])
    assert fit.min_eigenvalue == pytest.approx(values[0] / fit.n)
    # Without gamma its coordinate can't borrow: balanced orders make the two inverses close.
    norm = np.abs(tangent.basis @ np.linalg.inv(a) @ tangent.basis.T).sum(axis=1).max()
    assert fit.inverse_norm == pytest.approx(norm, rel=0.02)


def test_even_information_does_not_grow_when_inverted():
    rows = [(a, b, k) for a in range(5) for b in range(5) for k in range(3) if a != b] * 40
    left, right, context = np.transpose(rows)
    y = np.random.default_rng(0).random(len(left)) < 0.5
    even = fit_bt_tensor(left, right, context, y, shape=(5, 3), rank=1)
    rng = np.random.default_rng(1)
    uneven = drawn(truth((5, 3), (1, 1), rng, 2.5), len(left), rng)
    assert even.inverse_growth == pytest.approx(1, abs=0.05)
    assert fit_bt_tensor(*uneven, shape=(5, 3), rank=1).inverse_growth > 1.5


def test_the_score_has_no_part_along_the_tangent_space(fit):
    """Bar A6, pitfall 7: one step of all votes from the maximum moves nothing."""
    cells = fit.source.cells()
    score_there = fit.maximum.tangent.pulled(cells, cells.score(cells.eta(fit.tensor, fit.gamma)))
    assert np.abs(fit.covariance @ score_there).max() < 1e-9


def test_the_inverse_of_a_projection_is_not_the_projection_of_an_inverse(fit):
    """Pitfall 7: P (P G P)⁻¹ P and P G⁻¹ P differ, and the second one is not the variance."""
    cells = fit.source.cells()
    p = expit(cells.eta(fit.tensor, fit.gamma))
    whole = np.zeros((28, 28))
    for k, block in enumerate(cells.laplacians(cells.weight * p * (1 - p))):
        whole[k::4, k::4] = block
    q = fit.maximum.tangent.basis
    projected = q.T @ np.linalg.pinv(whole) @ q
    right = np.linalg.inv(q.T @ whole @ q)
    assert np.abs(projected - right).max() > 0.03 * np.abs(right).max()
    assert np.linalg.eigvalsh(projected - right)[0] > -1e-10


# --- invariances -------------------------------------------------------------------------------


def test_models_may_be_named_otherwise(rows, fit):
    order = np.random.default_rng(1).permutation(7)
    other = fit_bt_tensor(
        order[rows.left],
        order[rows.right],
        rows.context,
        rows.outcome,
        shape=(7, 4),
        rank=2,
        order_effect=True,
    )
    assert other.tensor[order] == pytest.approx(fit.tensor, abs=1e-10)


def test_swapped_sides_turn_the_advantage_alone(rows, fit):
    other = fit_bt_tensor(
        rows.right,
        rows.left,
        rows.context,
        1 - rows.outcome,
        shape=(7, 4),
        rank=2,
        order_effect=True,
    )
    assert other.tensor == pytest.approx(fit.tensor, abs=1e-10)
    assert other.gamma == pytest.approx(-fit.gamma, abs=1e-10)


def test_a_vote_of_weight_two_is_two_votes(rows):
    twice = Rows(*(np.concatenate((each, each[:900])) for each in rows))
    weights = np.where(np.arange(2500) < 900, 2.0, 1.0)
    one = fit_bt_tensor(*rows, shape=(7, 4), rank=2, weights=weights)
    other = fit_bt_tensor(*twice, shape=(7, 4), rank=2)
    assert one.tensor == pytest.approx(other.tensor, abs=1e-10)
    assert one.information == pytest.approx(other.information, abs=1e-7) or np.linalg.eigvalsh(
        one.information
    ) == pytest.approx(np.linalg.eigvalsh(other.information))


# --- refusals and flags ------------------------------------------------------------------------


def test_too_few_votes_are_refused_in_words(rows):
    enough, few = (Rows(*(each[:n] for each in rows)) for n in (160, 159))
    assert fit_bt_tensor(*enough, shape=(7, 4), rank=2).status is FitStatus.OK
    fit = fit_bt_tensor(*few, shape=(7, 4), rank=2)
    assert fit.status is FitStatus.NOT_ESTIMABLE
    assert "159 votes for 16 parameters" in fit.reason
    assert np.isnan(fit.tensor).all()
    assert np.isnan(fit.plug_in(*WANTED).value).all()
    with pytest.raises(ValueError, match="no fit to step from"):
        fit.one_step(*WANTED)


@pytest.mark.parametrize(("m", "k", "says"), [(8, 4, "model 7"), (7, 5, "context 4")])
def test_models_and_contexts_without_votes_are_refused(rows, m, k, says):
    fit = fit_bt_tensor(*rows, shape=(m, k), rank=2)
    assert fit.status is FitStatus.NOT_ESTIMABLE
    assert says in fit.reason


def test_a_row_without_votes_is_filled_in_by_the_others(rows):
    """A model without votes in a context takes its strength from what it shows elsewhere."""
    keep = ((rows.left != 3) & (rows.right != 3)) | (rows.context != 2)
    fit = fit_bt_tensor(*(each[keep] for each in rows), shape=(7, 4), rank=2)
    assert fit.status is FitStatus.OK
    assert np.isfinite(fit.plug_in(score(3, 2)).se).all()


def test_a_direction_without_information_is_told(rows):
    """Context 3 compares two models alone, where rank two needs two directions of it."""
    keep = (rows.context != 3) | (np.minimum(rows.left, rows.right) == 0) & (
        np.maximum(rows.left, rows.right) == 1
    )
    fit = fit_bt_tensor(*(each[keep] for each in rows), shape=(7, 4), rank=2)
    assert fit.status is FitStatus.NOT_ESTIMABLE
    assert "weakly_identified" in fit.flags
    assert np.isnan(fit.plug_in(*WANTED).interval().lower).all()


def test_little_information_is_flagged(rows):
    few = Rows(*(each[:300] for each in rows))
    assert "weakly_identified" in fit_bt_tensor(*few, shape=(7, 4), rank=2).flags
    many = Rows(*(np.tile(each, 20) for each in rows))
    assert fit_bt_tensor(*many, shape=(7, 4), rank=2).flags == ()


def test_weights_that_leave_few_votes_are_flagged(rows):
    weights = np.where(np.arange(2500) % 10 == 0, 100.0, 0.1)
    fit = fit_bt_tensor(*rows, shape=(7, 4), rank=1, weights=weights)
    assert "few_effective_votes" in fit.flags
    assert fit.source.effective == pytest.approx(weights.sum() ** 2 / (weights**2).sum())


def test_errors_are_robust_where_they_have_to_be(rows, fit):
    """Half wins vary less than the model says, so that its errors are too wide."""
    assert (fit.plug_in(*WANTED).se == fit.plug_in(*WANTED, errors="sandwich").se).all()
    sharp = Rows(*(each[rows.outcome != 0.5] for each in rows))
    plain = fit_bt_tensor(*sharp, shape=(7, 4), rank=2)
    assert (plain.plug_in(*WANTED).se == plain.plug_in(*WANTED, errors="model").se).all()


def test_a_likelihood_that_rises_without_end_raises_and_does_not_hang():
    rng = np.random.default_rng(0)
    rows = drawn(truth((15, 6), (2, 2), rng, 2.0), 300, rng)
    cells = votes(*rows, shape=(15, 6)).cells()
    with pytest.raises(NoMaximum, match="still grow") as raised:
        maximise(cells, shape=(15, 6), rank=(2, 2))
    assert raised.value.iterations <= 100
    assert raised.value.residual > 1e-11
    held = maximise(cells, shape=(15, 6), rank=(2, 2), ridge=0.2)
    assert held.gradient_max < 1e-11
    assert held.iterations < 40


def test_steps_that_end_too_early_raise(monkeypatch, rows):
    cells = votes(*rows, shape=(7, 4)).cells()
    monkeypatch.setattr(tensor_fit, "_MOST_STEPS", 2)
    with pytest.raises(DidNotConverge, match="after 2 steps") as raised:
        maximise(cells, shape=(7, 4), rank=(2, 2))
    assert raised.value.iterations == 2
    assert raised.value.residual > 1e-11


def test_a_start_from_the_second_trait_ends_at_a_stationary_point_too(rows):
    """Far from the maximum the likelihood bends upward; steps still lead up."""
    cells = votes(*rows, shape=(7, 4)).cells()
    best = maximise(cells, shape=(7, 4), rank=(1, 1))
    second = maximise(cells, shape=(7, 4), rank=(2, 2)).point
    start = TuckerPoint(
        core=second.core[-1:, -1:], factors=tuple(factor[:, -1:] for factor in second.factors)
    )
    top = climb(cells, start, ridge=0.0, order_effect=False)
    assert top.gradient_max < 1e-11
    assert top.objective <= best.objective + 1e-9


def test_few_votes_have_random_starts_too(monkeypatch, rows):
    starts = []
    climb = tensor_fit.climb
    monkeypatch.setattr(
        tensor_fit, "climb", lambda *args, **named: starts.append(args) or climb(*args, **named)
    )
    cells = votes(*(each[:300] for each in rows), shape=(7, 4)).cells()
    best = maximise(cells, shape=(7, 4), rank=(2, 2), ridge=0.2)
    assert len(starts) == 1 + tensor_fit.RESTARTS
    starts.clear()
    alone = maximise(cells, shape=(7, 4), rank=(2, 2), ridge=0.2, restarts=0)
    assert len(starts) == 1
    assert best.objective >= alone.objective - 1e-10


@pytest.mark.parametrize(
    ("named", "says"),
    [
        ({"rank": 5}, "rank"),
        ({"ridge": -1.0}, "ridge"),
        ({"ridge": math.nan}, "ridge"),
        ({"left": 7}, "left must be 0 to 6"),
        ({"context": -1}, "context must be"),
        ({"outcome": 2.0}, "outcomes"),
        ({"outcome": math.nan}, "outcomes"),
        ({"weights": 0.0}, "weights"),
        ({"left": 2, "right": 2}, "itself"),
    ],
)
def test_what_makes_no_sense_is_refused(rows, named, says):
    columns = dict(zip(Rows._fields, rows, strict=True)) | {"shape": (7, 4), "rank": 2}
    for name, value in named.items():
        is_column = name in {*Rows._fields, "weights"}
        columns[name] = np.full(2500, value) if is_column else value
    with pytest.raises(ValueError, match=says):
        fit_bt_tensor(**columns)


def test_columns_of_different_lengths_are_refused(rows):
    with pytest.raises(ValueError, match="one length"):
        fit_bt_tensor(rows.left[:-1], *rows[1:], shape=(7, 4), rank=2)


def test_votes_that_are_all_ties_fit_a_tensor_of_zeros():
    """No direction is better than another, and nothing is divided by nothing."""
    left, right = np.repeat([0, 1, 2], 20), np.repeat([1, 2, 0], 20)
    context = np.tile([0, 1], 30)
    fit = fit_bt_tensor(
        left, right, context, np.full(60, 0.5), shape=(3, 2), rank=1, ridge=0.25, order_effect=True
    )
    np.testing.assert_allclose(fit.tensor, 0, atol=1e-12)
