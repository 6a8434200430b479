"""One-step estimates: each formula against plain sums over votes, folds, refusals, going forward."""

import numpy as np
import pytest
from scipy.special import expit

from estimators import tensor_one_step
from estimators.markov_model import FitStatus
from estimators.tensor_fit import maximise
from estimators.tensor_functionals import evaluate, gap, score, win_probability
from estimators.tensor_model import fit_bt_tensor
from estimators.tensor_one_step import fold_labels, forward_blocks
from tests.estimators.tensor_data import Rows, drawn, truth

SHAPE, RANK = (7, 4), (2, 2)
WANTED = [gap(0, 1, 0), score(3, 2), win_probability(2, 1, [0, 4])]


@pytest.fixture(scope="module")
def rows():
    rng = np.random.default_rng(8)
    return drawn(truth(SHAPE, RANK, rng, 0.7), 2000, rng, gamma=0.3)


@pytest.fixture(scope="module")
def weights():
    return np.random.default_rng(9).uniform(0.5, 2.0, 2000)


@pytest.fixture(scope="module")
def fit(rows):
    return fit_bt_tensor(*rows, shape=SHAPE, rank=2, order_effect=True)


def by_votes(fit, rows, folds, kind, info, ridge, weights):
    """Compute the same vote by vote, with dense matrices over the tensor's entries."""
    w = np.ones(len(folds)) if weights is None else weights
    n, at = len(folds), np.arange(len(folds))
    x = np.zeros((n, 28))
    x[at, rows.left * 4 + rows.context] += 1
    x[at, rows.right * 4 + rows.context] -= 1
    x = np.column_stack((x, np.ones(n)))
    value, variance = 0.0, 0.0
    for f in np.unique(folds):
        own = folds == f
        top = maximise(
            fit.source.cells(~own), shape=SHAPE, rank=RANK, ridge=ridge, order_effect=True
        )
        found = evaluate(WANTED, top.tensor)
        q = np.zeros((29, 17))
        q[:28, :16], q[28, 16] = top.tangent.basis, 1
        gradient = np.column_stack((found.gradients, np.zeros(3)))
        p = expit(x @ np.append(top.tensor.reshape(-1), top.gamma))
        local = p * (1 - p)
        over = own if info == "fold" else np.ones(n, dtype=bool)
        xo, wo, lo = x[over], w[over], local[over]
        if kind == "efficient":
            operator = (xo * (wo * lo)[:, None]).T @ xo / over.sum()
        elif kind == "whitened":
            operator = (xo * wo[:, None]).T @ xo / over.sum()
        else:
            operator = np.diag([2 / (6 * 4)] * 28 + [1.0])
        h = q @ np.linalg.solve(q.T @ operator @ q, q.T @ gradient.T)
        s = w * (rows.outcome - p) / (1.0 if kind == "efficient" else np.maximum(local, 1e-3))
        phi = (s[:, None] * (x @ h))[own]
        value = value + own.sum() / n * (found.values + phi.mean(axis=0))
        off = phi - phi.mean(axis=0)
        variance = variance + off.T @ off / n**2
    return value, variance


@pytest.mark.parametrize("kind", ["efficient", "whitened", "isotropic"])
@pytest.mark.parametrize("info", ["fold", "all"])
@pytest.mark.parametrize("is_weighted", [False, True])
def test_sums_over_cells_are_those_over_votes(fit, rows, weights, kind, info, is_weighted):
    """Pitfalls 7 and 8: whitened increments are w s / I, and 2 / ((M - 1) K) is the constant."""
    folds = fold_labels(2000, 3, np.random.default_rng(1))
    w = weights if is_weighted else None
    found = fit.one_step(*WANTED, folds=folds, kind=kind, info=info, ridge=0.3, weights=w)
    value, covariance = by_votes(fit, rows, folds, kind, info, 0.3, w)
    assert found.value == pytest.approx(value, abs=1e-9)
    assert found.covariance == pytest.approx(covariance, abs=1e-10)


def test_the_isotropic_constant_is_that_of_uniform_pairs():
    """Pitfall 8: c = 2 / ((M - 1) K), .0238095 for 15 x 6, from all pairs in all contexts."""
    m, k = 15, 6
    cells = fit_bt_tensor(
        *Rows(
            *np.transpose(
                [(a, b, c, 1) for a in range(m) for b in range(m) for c in range(k) if a != b]
            )
        ),
        shape=(m, k),
        rank=1,
        ridge=1.0,
    ).source.cells()
    law = cells.laplacians(cells.weight / cells.n)
    centred = np.eye(m) - 1 / m
    for block in law:
        assert block == pytest.approx(2 / ((m - 1) * k) * centred, abs=1e-12)
    assert round(2 / ((m - 1) * k), 7) == 0.0238095


def test_whitening_costs_by_the_inverse_of_the_information():
    """Pitfall 8: 1 / I is 4, 9.524, 56.62 and 405.4 at 0, 2, 4 and 6."""
    local = tensor_one_step._information(np.array([0.0, 2.0, 4.0, 6.0]))
    assert 1 / local == pytest.approx([4, 9.524, 56.62, 405.4], rel=2e-4)


def test_whitened_errors_are_no_smaller_than_efficient_ones(fit):
    """Over all scores, and exactly so in the limit: h'Ah is least at the solution of A h = gradient."""
    every = [score(a, k) for a in range(7) for k in range(4)]
    efficient, whitened, isotropic = (
        fit.one_step(*every, kind=kind).se.mean() for kind in ("efficient", "whitened", "isotropic")
    )
    assert whitened > 1.02 * efficient
    assert isotropic > 1.02 * efficient
    cells = fit.source.cells()
    local = tensor_one_step._information(cells.eta(fit.tensor, fit.gamma))
    tangent = fit.maximum.tangent
    gradients = tangent.gradients(evaluate(every, fit.tensor).gradients)
    design = np.linalg.solve(tangent.information(cells, cells.weight), gradients.T)
    spread = design.T @ tangent.information(cells, cells.weight / local) @ design
    assert (np.diag(spread) >= np.diag(gradients @ fit.covariance @ gradients.T) - 1e-12).all()


def test_one_step_is_near_the_plug_in_where_the_model_is_right(fit):
    plain, stepped = fit.plug_in(*WANTED), fit.one_step(*WANTED)
    assert (np.abs(plain.value - stepped.value) < plain.se).all()
    assert stepped.se == pytest.approx(plain.se, rel=0.25)
    assert stepped.n == 2000
    assert stepped.clipped_share == 0


def test_votes_that_tell_next_to_nothing_make_whitening_unstable():
    rng = np.random.default_rng(2)
    rows = drawn(truth(SHAPE, RANK, rng, 4.0), 6000, rng)
    fit = fit_bt_tensor(*rows, shape=SHAPE, rank=2)
    found = fit.one_step(*WANTED, kind="whitened")
    assert found.clipped_share > 0.01
    assert "unstable" in found.flags
    assert found.status is FitStatus.NOT_ESTIMABLE
    assert np.isnan(found.interval().lower).all()
    assert fit.one_step(*WANTED).status is FitStatus.OK


def test_weights_that_leave_few_votes_are_flagged(fit):
    weights = np.where(np.arange(2000) % 10 == 0, 100.0, 0.1)
    found = fit.one_step(*WANTED, kind="isotropic", weights=weights)
    assert "few_effective_votes" in found.flags
    assert found.effective < 500


def test_a_fold_without_enough_comparisons_is_told(fit):
    """Its own comparisons leave directions open; all comparisons do not."""
    folds = np.arange(2000) % 2
    folds[:10] = 2
    found = fit.one_step(*WANTED, folds=folds, info="fold")
    assert found.status is FitStatus.NOT_ESTIMABLE
    assert "open" in found.reason
    assert fit.one_step(*WANTED, folds=folds, info="all").status is FitStatus.OK


def test_the_same_generator_gives_the_same_folds(fit):
    one, two = (fit.one_step(*WANTED, rng=np.random.default_rng(5)).value for _ in range(2))
    assert (one == two).all()
    assert (fit.one_step(*WANTED, rng=np.random.default_rng(6)).value != one).any()


def test_folds_are_even_and_keep_prompts_together():
    labels = fold_labels(103, 5, np.random.default_rng(0))
    assert sorted(np.bincount(labels)) == [20, 20, 21, 21, 21]
    prompts = np.arange(100) % 17
    labels = fold_labels(100, 4, np.random.default_rng(0), by=prompts)
    assert all(len(set(labels[prompts == prompt])) == 1 for prompt in range(17))
    assert len(set(labels)) == 4


@pytest.mark.parametrize("folds", [1, 3])
def test_folds_that_can_not_be_dealt_are_refused(folds):
    with pytest.raises(ValueError, match="folds"):
        fold_labels(50, folds, np.random.default_rng(0), by=np.arange(50) % 2)


def test_wrong_folds_blocks_and_weights_are_refused(fit):
    with pytest.raises(ValueError, match="two folds"):
        fit.one_step(*WANTED, folds=np.zeros(2000))
    with pytest.raises(ValueError, match="3 folds for 2000 votes"):
        fit.one_step(*WANTED, folds=np.zeros(3))
    with pytest.raises(ValueError, match="weights must be positive"):
        fit.one_step(*WANTED, weights=np.zeros(2000))
    with pytest.raises(ValueError, match="ascend"):
        fit.forward(*WANTED, blocks=np.arange(2000)[::-1])
    with pytest.raises(ValueError, match="two blocks"):
        fit.forward(*WANTED, blocks=np.zeros(2000))


# --- going forward -----------------------------------------------------------------------------


def test_going_forward_no_fit_has_seen_its_block_or_a_later_one(fit, rows):
    """What later votes say changes no earlier increment: the first blocks stand for themselves."""
    blocks = np.repeat([0, 1, 2], [800, 600, 600])
    whole = fit.forward(*WANTED, blocks=blocks)
    parts = []
    for first, last in ((800, 1400), (1400, 2000)):
        one = fit_bt_tensor(*(each[:last] for each in rows), shape=SHAPE, rank=2, order_effect=True)
        parts.append(one.forward(*WANTED, blocks=(np.arange(last) >= first).astype(int)))
    assert whole.value == pytest.approx((parts[0].value + parts[1].value) / 2, abs=1e-10)
    assert whole.covariance == pytest.approx(
        (parts[0].covariance + parts[1].covariance) / 4, abs=1e-12
    )
    assert whole.n == 1200


def test_the_first_fifth_only_starts_it():
    blocks = forward_blocks(1000)
    assert np.bincount(blocks).tolist() == [200, *[100] * 8]
    assert (np.diff(blocks) >= 0).all()


def test_going_forward_costs_width(fit):
    assert (fit.forward(*WANTED).se > fit.one_step(*WANTED).se * 0.95).all()
