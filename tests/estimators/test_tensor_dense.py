"""Algebra in tiles: right, and right on both sides of a tile's size."""

import numpy as np
import pytest

from estimators.tensor_dense import inverse_root, reflections, solved, turned, whitener
from estimators.tensor_tangent import TuckerPoint, hosvd

SIZES = [1, 3, 64, 65, 130]


def definite(n):
    rng = np.random.default_rng(n)
    half = rng.normal(size=(n, n + 3))
    return half @ half.T + n * np.eye(n)


@pytest.mark.parametrize("n", SIZES)
def test_whitened_roots_and_solutions_are_right(n):
    matrix, one = definite(n), np.eye(n)
    white, root = whitener(matrix), inverse_root(matrix)
    assert np.array_equal(white, np.tril(white))
    np.testing.assert_allclose(white @ matrix @ white.T, one, atol=1e-10)
    np.testing.assert_allclose(root @ matrix @ root, one, atol=1e-6)
    np.testing.assert_allclose(matrix @ solved(matrix, matrix[0]), matrix[0], atol=1e-8)


@pytest.mark.parametrize("n", SIZES)
def test_what_is_not_positive_definite_has_no_whitener(n):
    matrix = definite(n)
    matrix[-1, -1] = -1.0
    with pytest.raises(np.linalg.LinAlgError):
        whitener(matrix)


@pytest.mark.parametrize(("n", "m"), [(3, 1), (5, 5), (130, 7)])
def test_reflections_complete_columns_to_a_basis(n, m):
    columns = np.random.default_rng(n).normal(size=(n, m))
    columns[:, -1] *= m in {1, n}  # a column may be nothing
    basis = turned(reflections(columns), np.eye(n))
    np.testing.assert_allclose(basis.T @ basis, np.eye(n), atol=1e-12)
    np.testing.assert_allclose(basis[:, m:].T @ columns, 0, atol=1e-12)


@pytest.mark.parametrize("shape", [(90, 5), (6, 80), (75, 70)])
def test_large_tensors_come_back_to_the_surface_as_small_ones_do(shape):
    """A tensor with a tangent direction added is cut to the nearest one of its rank."""
    rng = np.random.default_rng(0)
    core = rng.normal(size=(2, 2))
    models = np.linalg.qr(rng.normal(size=(shape[0], 2)) - 0)[0]
    models = np.linalg.qr(models - models.mean(axis=0))[0]
    contexts = np.linalg.qr(rng.normal(size=(shape[1], 2)))[0]
    point = TuckerPoint(core=core, factors=(models, contexts))
    along = point.project(rng.normal(size=shape))
    moved = point.tensor + 0.05 * along
    left, size, right = np.linalg.svd(moved, full_matrices=False)
    nearest = (left[:, :2] * size[:2]) @ right[:2]
    np.testing.assert_allclose(hosvd(moved, (2, 2)).tensor, nearest, atol=1e-12)
