"""Array types."""

from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

Floats: TypeAlias = NDArray[np.float64]
Ints: TypeAlias = NDArray[np.int64]
Indices: TypeAlias = NDArray[np.intp]
Mask: TypeAlias = NDArray[np.bool_]


def weighed_sum(rows: Floats, weights: Floats) -> Floats:
    """rows [rows, columns] @ weights [columns], or [columns, others], to the same last bit however many rows there are.

    BLAS adds in another order for few rows than for many, so that a prediction would depend on what is predicted along with it.
    """
    total: Floats = np.einsum("rc,c->r" if weights.ndim == 1 else "rc,co->ro", rows, weights)
    return total
