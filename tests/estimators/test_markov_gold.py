"""Fits against lme4's own deviance function, polished, and against an independent program."""

import json

import numpy as np
import pytest

from estimators.batches import laid_out, sequences
from estimators.markov_fit import Climb, Penalty, maximise
from estimators.markov_inference import prior_sensitivity
from estimators.markov_likelihood import log_likelihood
from estimators.markov_model import fit_markov_glmm
from estimators.quadrature import gauss_hermite
from tests.estimators.markov_data import D3, D6, GOLD, drawn, halves, ratings_of, read

pytestmark = pytest.mark.shared

NODES = (1, 15, 25)
BOUNDARY = {"d5_sigma0", "d7_williams_odd"}


@pytest.fixture(scope="module")
def gold(shared_gold):
    """Read a set's JSON of one source."""

    def read_json(name, source):
        path = shared_gold / "markov_glmm" / f"{name}.{source}.json"
        return json.loads(path.read_text(encoding="utf-8"))

    return read_json


@pytest.fixture(scope="module")
def fits(shared_gold):
    """Every set by every number of nodes, unpenalised."""
    return {
        (name, nodes): fit_markov_glmm(
            read(shared_gold, name), lags=lags, quadrature=nodes, penalty=None
        )
        for name, lags in GOLD.items()
        for nodes in NODES
    }


@pytest.mark.parametrize("name", GOLD)
def test_deviance_at_a_fixed_point_is_lme4s(name, shared_gold, gold):
    """lme4's Laplace deviance carries its own inner tolerance."""
    data = laid_out(sequences(read(shared_gold, name)), GOLD[name])
    v, q = data.n_items, len(data.names)
    psi = np.concatenate((np.tile([0.25, -0.5], v)[:v], np.full(q, -0.3), [0.7]))
    for nodes, error in ((1, 3e-4), (15, 1e-8), (25, 1e-8)):
        theirs = gold(name, "lme4")[f"nAGQ{nodes}"]["deviance_at_fixed_point"]["deviance"]
        ours = -2 * log_likelihood(data, psi, gauss_hermite(nodes)).sum()
        assert ours == pytest.approx(theirs, abs=error)


@pytest.mark.parametrize("nodes", NODES)
@pytest.mark.parametrize("name", GOLD)
def test_the_maximum_is_lme4s_or_higher(name, nodes, fits, gold):
    fit, theirs = fits[name, nodes], gold(name, "lme4")[f"nAGQ{nodes}"]
    assert list(fit.coef_names) == theirs["coef_names"]
    assert fit.loglik >= theirs["logLik"] - 1e-7
    assert fit.loglik == pytest.approx(theirs["logLik"], abs=1e-6)
    assert fit.coef == pytest.approx(theirs["coef"], abs=2e-5)
    assert fit.sigma_b == pytest.approx(theirs["sigma_b"], abs=2e-5)
    assert fit.boundary is theirs["boundary"]
    assert fit.se == pytest.approx(theirs["se"], rel=1e-2 if nodes == 1 else 1e-4)
    if nodes > 1:
        contrast = fit.contrast(halves(len(fit.items)))
        assert contrast.z == pytest.approx(theirs["contrast"]["z"], abs=1e-4)


@pytest.mark.parametrize("nodes", [1, 15])
@pytest.mark.parametrize("name", GOLD)
def test_it_is_no_lower_than_lme4_as_it_comes(name, nodes, fits, gold):
    """Its default optimiser stops early at times, never above."""
    fit, default = fits[name, nodes], gold(name, "lme4")[f"nAGQ{nodes}"]["default_fit"]
    assert fit.loglik >= default["logLik"] - 1e-7
    assert fit.coef == pytest.approx(default["beta"], abs=2e-2)
    assert fit.se == pytest.approx(default["se_hessian"], rel=1e-2)


@pytest.mark.parametrize("nodes", NODES)
@pytest.mark.parametrize("name", GOLD)
def test_it_is_that_of_an_independent_program(name, nodes, fits, gold):
    fit, theirs = fits[name, nodes], gold(name, "reference")[f"K{nodes}"]
    assert fit.coef == pytest.approx(theirs["coef"], abs=1e-7)
    assert fit.se == pytest.approx(theirs["se"], rel=1e-6)
    assert fit.sigma_b == pytest.approx(theirs["sigma_b"], abs=1e-7)
    assert fit.loglik == pytest.approx(theirs["logLik"], abs=1e-9)
    assert fit.gradient_max <= 1e-5
    contrast = fit.contrast(halves(len(fit.items)))
    assert contrast[:4] == pytest.approx(
        [theirs["contrast"][key] for key in ("est", "se", "z", "p")], rel=1e-6
    )


@pytest.mark.parametrize("nodes", NODES)
@pytest.mark.parametrize("name", sorted(BOUNDARY))
def test_without_batch_effects_it_is_a_logistic_regression(name, nodes, fits):
    """Its errors are those of an independent iteration, and the spread has none."""
    fit = fits[name, nodes]
    assert fit.boundary
    assert fit.sigma_b == 0
    assert np.isnan(fit.se_sigma)
    data = fit.data
    design = np.concatenate(
        (np.broadcast_to(np.eye(data.n_items), (*data.y.shape, data.n_items)), data.x), axis=2
    )[data.shown]
    y, coef = data.y[data.shown], np.zeros(len(fit.coef))
    for _ in range(30):
        mu = 1 / (1 + np.exp(-design @ coef))
        information = design.T @ (design * (mu * (1 - mu))[:, None])
        coef += np.linalg.solve(information, design.T @ (y - mu))
    loglik = np.log(np.where(y == 1, mu, 1 - mu)).sum()
    assert fit.loglik == pytest.approx(loglik, abs=1e-9)
    assert fit.se == pytest.approx(np.sqrt(np.diag(np.linalg.inv(information))), rel=1e-6)


def test_the_score_for_the_variance_decides_on_the_boundary(fits):
    """-10.550 on the set without spread; the information for sigma is -2 of it."""
    assert fits["d5_sigma0", 15].maximum.information[-1, -1] == pytest.approx(21.10, abs=5e-3)


@pytest.mark.parametrize("scale", [3, 5, 10])
def test_a_unanimous_item_is_held_by_the_penalty(scale, shared_gold, gold):
    theirs = gold("d4_separated", "penalised")[f"tau{scale}"]
    fit = fit_markov_glmm(read(shared_gold, "d4_separated"), quadrature=25, penalty=scale)
    assert fit.coef == pytest.approx(theirs["coef"], abs=1e-5)
    assert fit.se == pytest.approx(theirs["se"], rel=1e-4)
    assert fit.loglik == pytest.approx(theirs["logLik"], abs=1e-8)
    assert fit.penalised_loglik == pytest.approx(theirs["penalised_logLik"], abs=1e-8)
    found = fit.contrast(halves(8))
    assert found[:3] == pytest.approx(
        [theirs["contrast"][key] for key in ("est", "se", "z")], abs=1e-6
    )
    assert found.prior_sensitive
    assert fit.unanimous == {3: "accept"}


def test_a_contrast_that_the_penalty_decides_is_no_result(shared_gold):
    """p is .044, .067 and .168 by the scale, so it is inconclusive."""
    fit = fit_markov_glmm(read(shared_gold, "d4_separated"))
    found = prior_sensitivity(fit, halves(8))
    assert [one.p for one in found.contrasts] == pytest.approx([0.0439, 0.0666, 0.1677], abs=1e-4)
    assert not found.is_conclusive()
    assert found.is_conclusive(alpha=0.2)
    assert found.acceptance == pytest.approx([0.0767, 0.0784, 0.0794], abs=5e-5)


@pytest.mark.parametrize(
    ("settings", "nodes", "loglik", "sigma", "contrast"),
    [
        (D3, 1, -2759.674822, None, None),
        (D3, 15, -2758.662761, 1.109143, (-0.068828, 0.068261)),
        (D6, 1, -432.455958, None, None),
        (D6, 15, -431.895352, 1.186048, (-1.234028, 0.181145)),
    ],
)
def test_large_and_strong_sets_have_their_published_values(
    settings, nodes, loglik, sigma, contrast
):
    fit = fit_markov_glmm(ratings_of(drawn(settings)), quadrature=nodes, penalty=None)
    assert fit.loglik == pytest.approx(loglik, abs=6e-7)
    if sigma is not None:
        assert fit.sigma_b == pytest.approx(sigma, abs=1e-6)
        assert fit.contrast(halves(len(fit.items)))[:2] == pytest.approx(contrast, abs=1e-6)


def test_without_batch_effects_a_negative_carry_over_is_masked():
    """The logistic fit halves it, and shrinks the contrast; the raw difference is smaller still."""
    fit = fit_markov_glmm(ratings_of(drawn(D6)), quadrature=25, penalty=None)
    at = fit.coef_names.index("lag1")
    assert (fit.coef[at], fit.se[at]) == pytest.approx((-1.2538, 0.2162), abs=6e-5)
    nothing = np.zeros((len(fit.maximum.psi),) * 2)
    climb = Climb(data=fit.data, precision=nothing, rule=gauss_hermite(7))
    flat = climb.flat(np.zeros(len(nothing)), limit=50)
    assert flat.psi[at] == pytest.approx(-0.366, abs=5e-4)
    assert flat.psi[:12] @ halves(12) == pytest.approx(-1.0031, abs=1e-4)


def test_the_spreads_row_of_the_information_counts():
    """Left out, the error of the carry-over would come out .1978 in place of .2162."""
    fit = fit_markov_glmm(ratings_of(drawn(D6)), quadrature=25, penalty=None)
    at = fit.coef_names.index("lag1")
    without = np.linalg.inv(fit.maximum.information[:-1, :-1])[at, at] ** 0.5
    assert without == pytest.approx(0.1978, abs=1e-4)
    assert fit.se[at] == pytest.approx(0.2162, abs=1e-4)


def test_the_first_slot_has_a_start_of_its_own(shared_gold, fits):
    """Taken for a slot after a reject, d1's contrast would be -1.493 in place of -1.394."""
    of = sequences(read(shared_gold, "d1_v6_n18"))
    data = laid_out(of, 1)
    without = type(data)(
        y=data.y,
        shown=data.shown,
        x=data.x[..., :1],
        names=("lag1",),
        rows=data.rows,
        counts=data.counts,
    )
    wrong = maximise(without, penalty=Penalty(items=None))
    assert wrong.psi[:6] @ halves(6) == pytest.approx(-1.493388, abs=1e-6)
    assert fits["d1_v6_n18", 15].contrast(halves(6)).est == pytest.approx(-1.393625, abs=1e-6)


@pytest.mark.parametrize(("name", "lags"), [("d1_v6_n18", 1), ("d9_lag3", 3)])
def test_a_centred_lag_is_the_same_model(name, lags, fits):
    """theta and the starts move by half the lags; likelihood and contrasts don't."""
    fit = fits[name, 15]
    data, v = fit.data, len(fit.items)
    x = data.x.copy()
    for k in range(lags):
        started = x[..., lags : lags + k + 1].sum(axis=2) == 0
        x[..., k] = np.where(data.shown & started, x[..., k] - 0.5, 0.0)
    centred = type(data)(
        y=data.y, shown=data.shown, x=x, names=data.names, rows=data.rows, counts=data.counts
    )
    found = maximise(centred, penalty=Penalty(items=None))
    assert found.loglik == pytest.approx(fit.loglik, abs=1e-8)
    assert found.psi[:v] @ halves(v) == pytest.approx(fit.contrast(halves(v)).est, abs=1e-8)
    half = fit.coef[v : v + lags].sum() / 2
    assert found.psi[:v] - fit.theta == pytest.approx(np.full(v, half), abs=1e-8)


def test_a_refused_slot_is_a_state_of_its_own(fits, shared_gold):
    """Of d8; what other treatments would give shows that they differ."""
    fit = fits["d8_missing_partial", 15]
    assert fit.slopes == pytest.approx(
        {"lag1": -1.0153, "first": 0.5579, "miss1": 0.8591}, abs=5e-5
    )
    rows = read(shared_gold, "d8_missing_partial")
    dropped = fit_markov_glmm(
        [(b, s, i, float("nan") if y is None else y) for b, s, i, y in rows], penalty=None
    )
    assert dropped.slopes["lag1"] == pytest.approx(-1.0016, abs=5e-5)
    assert dropped.contrast(halves(10)).est == pytest.approx(-1.11246, abs=5e-6)
    assert dropped.counts.dropped == 13
