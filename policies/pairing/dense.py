"""Products and inverses whose last bit does not depend on how many threads the BLAS has."""

from estimators.tensor_dense import TILE, Array, apply, inverse, product

__all__ = ["TILE", "Array", "apply", "inverse", "product"]
