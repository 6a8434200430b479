"""fit_markov_glmm: what it reports, what the data leave open, and fits that go on."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from estimators.batches import sequences
from estimators.markov_judge import MarkovJudge
from estimators.markov_model import (
    FitStatus,
    Running,
    fit_markov_glmm,
    fit_sequences,
    one_step,
    warm_start,
)
from tests.estimators.markov_data import (
    D6,
    drawn,
    halves,
    judge,
    ratings_of,
    read,
    shuffled,
    two_groups,
)


def some(v=8, n=40, seed=4, sigma=0.8):
    rng = np.random.default_rng(seed)
    return shuffled(judge(0.8 * rng.normal(size=v), sigma=sigma), n, rng)


@pytest.fixture(scope="module")
def fit():
    return fit_sequences(some())


def test_names_errors_and_status_stand_side_by_side(fit):
    assert fit.coef_names == (*(f"item{i}" for i in range(8)), "lag1", "first")
    assert fit.se == pytest.approx(np.sqrt(np.diag(fit.cov)))
    assert fit.cov.shape == (10, 10)
    assert fit.status == "ok"
    assert fit.reason == ""
    assert fit.flags == ()
    assert fit.gradient_max <= 1e-5
    assert set(fit.slopes) == {"lag1", "first"}


def test_items_keep_their_names():
    rows = [(b, s, f"model-{i}", y) for b, s, i, y in ratings_of(some(v=3))]
    assert fit_markov_glmm(rows).coef_names[:3] == ("model-0", "model-1", "model-2")


def test_a_contrast_takes_weights_by_item_or_along_them(fit):
    by_name = fit.contrast({0: 1.0, 5: -1.0})
    along = fit.contrast([1.0, 0, 0, 0, 0, -1.0, 0, 0])
    assert by_name == along
    assert by_name.est == pytest.approx(fit.theta[0] - fit.theta[5])
    pair = fit.cov[[0, 0, 5, 5], [0, 5, 0, 5]]
    assert by_name.se == pytest.approx(math.sqrt(pair @ [1, -1, -1, 1]))
    assert pair[1] > 0
    assert by_name.z == by_name.est / by_name.se
    assert by_name.p == pytest.approx(math.erfc(abs(by_name.z) / math.sqrt(2)))


@pytest.mark.parametrize("weights", [{99: 1.0}, [1.0, -1.0]])
def test_weights_of_other_items_are_refused(fit, weights):
    with pytest.raises(ValueError, match="item"):
        fit.contrast(weights)


def test_a_contrast_without_weight_is_none(fit):
    assert fit.contrast({}).status is FitStatus.NOT_ESTIMABLE


def test_rows_in_any_order_give_the_same_fit():
    """The lag is that of the slot before, not of the row above."""
    rows = ratings_of(drawn(D6))
    mixed = [rows[i] for i in np.random.default_rng(0).permutation(len(rows))]
    straight, shuffled_rows = fit_markov_glmm(rows), fit_markov_glmm(mixed)
    assert shuffled_rows.coef == pytest.approx(straight.coef, abs=1e-10)
    assert shuffled_rows.loglik == pytest.approx(straight.loglik, abs=1e-10)


def test_a_lag_never_reaches_into_another_batch():
    """d6 as one long batch, without starts, would have a carry-over of -1.117."""
    assert fit_sequences(drawn(D6), quadrature=25, penalty=None).slopes["lag1"] == pytest.approx(
        -1.254, abs=5e-4
    )


@pytest.mark.parametrize(
    "wrong",
    [{"lags": 6}, {"lags": -1}, {"quadrature": 0}, {"quadrature": 42}, {"penalty": 0.0}],
)
def test_settings_out_of_range_are_refused(wrong):
    with pytest.raises(ValueError, match=next(iter(wrong))):
        fit_markov_glmm([], **wrong)


# --- what the data leave open -----------------------------------------------------------------


def batches_of(*batches):
    return [(n, s, i, y) for n, batch in enumerate(batches) for s, (i, y) in enumerate(batch)]


OPEN = {
    "nothing": ([], "no ratings"),
    "only refusals": ([(0, 0, 0, None), (0, 1, 1, None)], "no ratings"),
    "one batch": (batches_of([(i, i % 2) for i in range(6)]), "unanimous"),
    "all accepted": ([(n, i, i, 1) for n in range(8) for i in range(4)], "unanimous"),
    "single ratings": ([(n, 0, 0, n % 2) for n in range(9)], "no batch has two"),
    "one opinion a batch": (
        [(n, i, i, n % 2) for n in range(12) for i in range(5)],
        "spread",
    ),
}


@pytest.mark.parametrize("name", OPEN)
def test_what_the_data_leave_open_is_a_status(name):
    rows, reason = OPEN[name]
    fit = fit_markov_glmm(rows, lags=0 if name == "one opinion a batch" else 1)
    assert fit.status is FitStatus.NOT_ESTIMABLE
    assert reason in fit.reason
    assert np.isfinite(fit.coef).all() == ("no ratings" not in reason)
    contrast = fit.contrast(
        halves(len(fit.items)) if len(fit.items) > 1 else [1.0] * len(fit.items)
    )
    assert contrast.status is FitStatus.NOT_ESTIMABLE
    assert math.isnan(contrast.p)


def test_one_batch_is_not_enough_though_items_differ():
    """Nine parameters, six ratings."""
    rows = [*batches_of([(i, i % 2) for i in range(6)]), (1, 0, 0, None)]
    fit = fit_markov_glmm(rows)
    assert fit.status is FitStatus.NOT_ESTIMABLE
    assert np.isfinite(fit.coef).all()


def test_items_that_no_batches_connect_are_not_compared():
    rows = ratings_of(some(v=4, seed=1))
    apart = [(f"x{b}", s, i, y) for b, s, i, y in rows]
    apart += [(f"y{b}", s, 10 + i, y) for b, s, i, y in ratings_of(some(v=4, seed=2))]
    fit = fit_markov_glmm(apart)
    assert fit.component.tolist() == [0] * 4 + [1] * 4
    across, within = fit.contrast({0: 1, 10: -1}), fit.contrast({0: 1, 1: -1, 10: 1, 11: -1})
    assert across.status is FitStatus.NOT_ESTIMABLE
    assert "no chain of batches" in across.reason
    assert math.isnan(across.est)
    assert within.status is FitStatus.OK


def test_a_unanimous_item_makes_its_contrasts_prior_sensitive():
    rows = [(b, s, i, 1 if i == 3 else y) for b, s, i, y in ratings_of(some())]
    fit = fit_markov_glmm(rows)
    assert fit.unanimous == {3: "accept"}
    assert fit.contrast({3: 1, 0: -1}).prior_sensitive
    assert not fit.contrast({1: 1, 0: -1}).prior_sensitive
    bare = fit_markov_glmm(rows, penalty=None)
    assert bare.status is FitStatus.NOT_ESTIMABLE
    assert "without a penalty" in bare.reason


def test_a_judge_that_accepts_nearly_all_is_saturated():
    """Accepting .86, with most items unanimous: nothing can be told of them."""
    rng = np.random.default_rng(0)
    of = judge(np.r_[np.full(12, 6.0), [-1.0, -0.5, 0.0, 0.5, -1.5, 1.0, -2.0, 0.2]])
    fit = fit_sequences(shuffled(of, 30, rng))
    assert len(fit.unanimous) >= 10
    assert "saturated" in fit.flags


def test_a_start_that_always_accepts_is_held_by_a_weak_prior():
    rows = [(b, s, i, 1 if s == 0 else y) for b, s, i, y in ratings_of(some())]
    fit = fit_markov_glmm(rows)
    assert fit.undetermined == ("first",)
    assert "undetermined" in fit.flags
    assert fit.status is FitStatus.OK
    assert fit.slopes["first"] < 15
    assert fit_markov_glmm(rows, penalty=None).status is FitStatus.NOT_ESTIMABLE


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 100_000), st.integers(0, 3), st.sampled_from([None, 5.0]))
def test_it_never_raises_on_well_formed_ratings(seed, lags, penalty):
    """Any small set, with unanimous items, partial batches, refusals, unreadable slots."""
    rng = np.random.default_rng(seed)
    v, n = int(rng.integers(1, 9)), int(rng.integers(1, 13))
    theta, effect = 2 * rng.normal(size=v), rng.choice([0.0, 1.0, 4.0]) * rng.normal(size=n)
    rows = []
    for b in range(n):
        for s, i in enumerate(rng.permutation(v)[: rng.integers(1, v + 1)].tolist()):
            y = int(rng.random() < 1 / (1 + math.exp(-theta[i] - effect[b])))
            rows.append((b, s, i, rng.choice([y, None, math.nan], p=[0.9, 0.06, 0.04])))
    fit = fit_markov_glmm(rows, lags=lags, penalty=penalty)
    assert fit.status is not FitStatus.OK or np.isfinite([*fit.coef, *fit.se]).all()
    assert fit.gradient_max <= 1e-4
    assert bool(fit.reason) == (fit.status is not FitStatus.OK)


# --- fits that go on --------------------------------------------------------------------------


def parted(source, last):
    rows = ratings_of(source)
    return [row for row in rows if row[0] < last], [row for row in rows if row[0] >= last]


@pytest.mark.parametrize("seed", range(6))
def test_a_warm_start_ends_where_a_cold_fit_does(seed):
    """A batch more takes three steps at most."""
    source = some(v=12, seed=seed)
    before, more = parted(source, 39)
    warm, cold = warm_start(fit_markov_glmm(before), more), fit_sequences(source)
    assert warm.maximum.psi == pytest.approx(cold.maximum.psi, abs=1e-6)
    assert warm.se == pytest.approx(cold.se, abs=1e-6)
    assert warm.iterations <= 3


def test_a_warm_start_on_the_gold_sets(shared_gold):
    for name, lags in (("d2_v30_n60", 1), ("d8_missing_partial", 1), ("d9_lag3", 3)):
        rows = read(shared_gold, name)
        last = max(row[0] for row in rows)
        before = fit_markov_glmm([row for row in rows if row[0] < last], lags=lags)
        warm = warm_start(before, [row for row in rows if row[0] == last])
        cold = fit_markov_glmm(rows, lags=lags)
        assert warm.maximum.psi == pytest.approx(cold.maximum.psi, abs=1e-6)
        assert warm.iterations <= 3


def test_a_warm_start_takes_new_items_and_states():
    source = some()
    before, more = parted(source, 20)
    more = [*more, *((99, s, f, y) for s, (f, y) in enumerate([(100, 1), (0, None), (1, 0)]))]
    warm = warm_start(fit_markov_glmm(before), more)
    cold = fit_markov_glmm([*before, *more])
    assert warm.items == cold.items == (*range(8), 100)
    assert warm.maximum.psi == pytest.approx(cold.maximum.psi, abs=1e-6)


def test_a_warm_start_leaves_the_boundary_when_the_data_do():
    calm = ratings_of(
        shuffled(judge(np.linspace(-1, 1, 8), sigma=0.0), 30, np.random.default_rng(0))
    )
    wild = shuffled(judge(np.linspace(-1, 1, 8), sigma=2.0), 30, np.random.default_rng(1))
    more = [(100 + b, s, i, y) for b, s, i, y in ratings_of(wild)]
    before = fit_markov_glmm(calm)
    assert before.boundary
    warm, cold = warm_start(before, more), fit_markov_glmm([*calm, *more])
    assert not cold.boundary
    assert warm.maximum.psi == pytest.approx(cold.maximum.psi, abs=1e-6)


def test_a_batch_told_twice_is_refused(fit):
    with pytest.raises(ValueError, match="given twice"):
        warm_start(fit, [(0, 0, 0, 1)])


def test_single_steps_are_near_the_fit():
    """Ten batches on top of sixty, one by one: within .02 standard errors of the contrast."""
    theta = two_groups(-0.65, 1.2, 0.4)
    source = shuffled(judge(theta), 70, np.random.default_rng([61, 0]))
    before, _ = parted(source, 60)
    base, run = fit_markov_glmm(before), None
    rows = ratings_of(source)
    for batch in range(60, 70):
        run = one_step(base, run, [row for row in rows if row[0] == batch])
    cold = fit_sequences(source).contrast(halves(30))
    assert run.n_batches == 10
    assert run.needs_refit
    assert abs(run.psi[:30] @ halves(30) - cold.est) < 0.05 * cold.se


def test_single_steps_ask_for_a_refit_when_they_are_long():
    nothing = np.zeros(1)
    assert Running(nothing, nothing, longest=0.31, n_batches=1).needs_refit
    assert not Running(nothing, nothing, longest=0.29, n_batches=9).needs_refit


def test_single_steps_take_only_items_of_the_fit(fit):
    with pytest.raises(ValueError, match="lacks item 77"):
        one_step(fit, None, [(99, 0, 77, 1)])


def test_the_truth_is_covered():
    """Qualities, carry-over and spread lie within 4 standard errors of a long run's fit."""
    of = MarkovJudge(
        theta=two_groups(0.0, 1.0, 0.5, v=10),
        lags=np.array([-1.0]),
        starts=np.array([0.5]),
        sigma=0.9,
    )
    fit = fit_sequences(shuffled(of, 600, np.random.default_rng(8)))
    truth = np.r_[of.theta, -1.0, 0.5]
    assert np.abs((fit.coef - truth) / fit.se).max() < 4
    assert abs(fit.sigma_b - 0.9) < 4 * fit.se_sigma


def test_ratings_may_come_as_they_are_made():
    assert fit_markov_glmm(iter(ratings_of(some()))).source.order.shape == (40, 8)
    assert len(sequences([])) == 0
