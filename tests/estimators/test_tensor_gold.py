"""Bars A4 to A7: the gold set of another program, whose maximum 31 starts and L-BFGS agree on."""

import numpy as np
import pytest

from estimators.tensor_fit import climb
from estimators.tensor_model import fit_bt_tensor
from estimators.tensor_tangent import hosvd
from tests.estimators.tensor_data import GOLD_FUNCTIONALS, gold

NAMES = list(GOLD_FUNCTIONALS)
WANTED = list(GOLD_FUNCTIONALS.values())


@pytest.fixture(scope="module")
def told(shared_gold):
    return gold(shared_gold)


@pytest.fixture(scope="module")
def fit(told):
    return fit_bt_tensor(*told[0], shape=(6, 4), rank=2)


@pytest.mark.shared
def test_the_maximum_is_the_gold_one(fit, told, measured):
    """Bar A4: 1e-6 in the tensor, 1e-8 in the log likelihood."""
    expected = told[2]
    off = np.abs(fit.tensor.reshape(-1) - expected["T_mle"]).max()
    measured("A4 tensor MLE, 6 x 4 rank 2, largest difference <= 1e-6", f"{off:.1e}")
    assert off < 1e-9
    assert fit.loglik == pytest.approx(expected["loglik"], abs=1e-8)
    assert fit.dimension == expected["dim"]
    assert fit.gradient_max < 1e-12


@pytest.mark.shared
@pytest.mark.parametrize("errors", ["model", "sandwich"])
def test_plug_in_errors_are_the_gold_ones(fit, told, errors):
    """Bar A5: 1e-7."""
    found = fit.plug_in(*WANTED, errors=errors)
    expected = [told[2]["functionals"][name] for name in NAMES]
    assert found.value == pytest.approx([each["mle"] for each in expected], abs=1e-9)
    assert found.se == pytest.approx([each[f"se_{errors}"] for each in expected], abs=1e-9)


@pytest.mark.shared
@pytest.mark.parametrize("kind", ["efficient", "whitened", "isotropic"])
def test_cross_fits_with_the_files_folds_are_the_gold_ones(fit, told, kind, measured):
    """Bar A7: 1e-6 in estimates and errors."""
    _, folds, expected = told
    found = fit.one_step(*WANTED, folds=folds, kind=kind, info="fold", ridge=0.0)
    value, se = np.transpose([expected["crossfit_2fold"][kind][name] for name in NAMES])
    off = max(np.abs(found.value - value).max(), np.abs(found.se - se).max())
    measured(f"A7 cross-fit {kind}, 6 x 4 rank 2, largest difference <= 1e-6", f"{off:.1e}")
    assert off < 1e-9


@pytest.mark.shared
def test_random_starts_find_the_same_maximum(fit, told):
    """A second witness of A4: the same optimum from 20 random tensors."""
    cells = fit.source.cells()
    reached = []
    for seed in range(20):
        start = hosvd(np.random.default_rng(seed).standard_normal((6, 4)), (2, 2))
        top = climb(cells, start, ridge=0.0, order_effect=False)
        assert top.loglik <= fit.loglik + 1e-9
        reached.append(np.abs(top.tensor - fit.tensor).max() < 1e-9)
    assert np.mean(reached) >= 0.9
