"""Tangent spaces of low-rank tensors: dimension, basis, projection, curvature, retraction."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from estimators.tensor_tangent import centred_basis, dimension, folded, full_rank, hosvd, unfolded

SHAPES = [((6, 4), (2, 2)), ((6, 3, 2), (2, 2, 2)), ((5, 4, 3), (2, 3, 2)), ((4, 3), (3, 3))]


def point_of(shape, rank, seed=1):
    return hosvd(np.random.default_rng(seed).standard_normal(shape), rank)


def test_the_sum_zero_constraint_counts_in_the_dimension():
    """Pitfall 6: 14 and not 16 for 6 x 4 of rank 2; 16 for 6 x 3 x 2."""
    assert dimension((6, 4), 2) == 14
    assert dimension((6, 3, 2), 2) == 16
    assert dimension((30, 10), 3) == 108


@pytest.mark.parametrize(("shape", "rank"), SHAPES)
def test_the_dimension_is_the_rank_of_the_factors_derivative(shape, rank):
    """A second count: the Jacobian of core and factors, by differences, over centred tensors."""
    rng = np.random.default_rng(0)
    point = point_of(shape, rank)
    parts = [point.core, *point.factors]

    def tensor(at):
        found = at[0]
        for m, factor in enumerate(at[1:]):
            found = np.moveaxis(np.tensordot(factor, found, axes=(1, m)), 0, m)
        return found - found.mean(axis=0)

    rows = []
    for _ in range(2 * dimension(shape, rank) + 5):
        turned = [1e-5 * rng.standard_normal(each.shape) for each in parts]
        ahead = tensor([each + turn for each, turn in zip(parts, turned, strict=True)])
        behind = tensor([each - turn for each, turn in zip(parts, turned, strict=True)])
        rows.append((ahead - behind).reshape(-1) / 2e-5)
    sizes = np.linalg.svd(np.array(rows), compute_uv=False)
    assert int((sizes > 1e-6 * sizes[0]).sum()) == dimension(shape, rank)


@pytest.mark.parametrize(("shape", "rank"), SHAPES)
def test_the_basis_is_orthonormal_and_sums_to_zero_over_models(shape, rank):
    basis = point_of(shape, rank).basis()
    assert basis.shape == (np.prod(shape), dimension(shape, rank))
    assert basis.T @ basis == pytest.approx(np.eye(basis.shape[1]), abs=1e-12)
    assert np.abs(basis.reshape(shape[0], -1).reshape(*shape, -1).sum(axis=0)).max() < 1e-12


@pytest.mark.parametrize(("shape", "rank"), SHAPES)
def test_the_basis_spans_what_the_projection_projects_on(shape, rank):
    point = point_of(shape, rank)
    z = np.random.default_rng(2).standard_normal(shape)
    q = point.basis()
    by_basis = (q @ (q.T @ z.reshape(-1))).reshape(shape)
    assert point.project(z) == pytest.approx(by_basis, abs=1e-12)
    assert point.project(by_basis) == pytest.approx(by_basis, abs=1e-12)


@pytest.mark.parametrize(("shape", "rank"), SHAPES)
def test_coming_back_to_the_surface_moves_a_step_by_its_square(shape, rank):
    point = point_of(shape, rank)
    step = point.project(np.random.default_rng(3).standard_normal(shape))
    off = [
        np.abs(hosvd(point.tensor + h * step, rank).tensor - point.tensor - h * step).max()
        for h in (1e-2, 1e-3)
    ]
    assert off[1] < 0.02 * off[0] or off[0] < 1e-12


@pytest.mark.parametrize(("shape", "rank"), SHAPES)
def test_bending_is_the_second_derivative_along_the_surface(shape, rank):
    """Differences of <g, R(u)> at a point where g is normal to the surface."""
    point = point_of(shape, rank)
    g = np.random.default_rng(4).standard_normal(shape)
    g = g - g.mean(axis=0)
    g = g - point.project(g)
    q = point.basis()

    def along(u):
        return float(np.vdot(g, hosvd(point.tensor + (q @ u).reshape(shape), rank).tensor))

    rng = np.random.default_rng(5)
    bending = point.bending(g)
    assert bending == pytest.approx(bending.T)
    for _ in range(10):
        u = rng.standard_normal(q.shape[1])
        u *= 1e-3 / np.linalg.norm(u)
        second = along(u) - 2 * along(0 * u) + along(-u)
        assert second == pytest.approx(u @ bending @ u, abs=2e-10)


@given(st.integers(2, 6), st.integers(1, 4), st.integers(1, 3), st.integers(0, 2**20))
@settings(max_examples=40, deadline=None)
def test_a_tensor_of_the_rank_is_left_as_it_is(m, k, j, seed):
    rank = tuple(
        min(2, d, each) for d, each in zip((m - 1, k, j), (k * j, m * j, m * k), strict=True)
    )
    try:
        rank = full_rank((m, k, j), rank)
    except ValueError:
        return
    tensor = point_of((m, k, j), rank, seed).tensor
    assert hosvd(tensor, rank).tensor == pytest.approx(tensor, abs=1e-10)


def test_the_first_factor_sums_to_zero_even_where_nothing_is_left_to_span():
    point = hosvd(np.zeros((5, 4)), (2, 2))
    assert np.abs(point.factors[0].sum(axis=0)).max() < 1e-12
    assert point.factors[0].T @ point.factors[0] == pytest.approx(np.eye(2))


def test_unfolding_folds_back():
    tensor = np.arange(24.0).reshape(2, 3, 4)
    for m in range(3):
        assert (folded(unfolded(tensor, m), m, tensor.shape) == tensor).all()


def test_the_centred_basis_is_orthonormal():
    basis = centred_basis(7)
    assert basis.T @ basis == pytest.approx(np.eye(6))
    assert np.abs(basis.sum(axis=0)).max() < 1e-12


@pytest.mark.parametrize(
    ("shape", "rank"),
    [
        ((6, 4), 5),
        ((6, 4), 0),
        ((3, 4), 3),
        ((6, 4), (2, 3)),
        ((6, 4), (2, 2, 2)),
        ((1, 4), 1),
        ((6,), 1),
    ],
)
def test_ranks_that_no_tensor_has_are_refused(shape, rank):
    with pytest.raises(ValueError, match=r"rank|shape"):
        full_rank(shape, rank)
