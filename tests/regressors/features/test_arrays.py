"""Sums that do not depend on the rows around them."""

from __future__ import annotations

import numpy as np
import pytest

from regressors.features.arrays import weighed_sum


@pytest.mark.parametrize("shape", [(5,), (200,), (20, 1), (20, 200)])
def test_a_row_sums_to_the_same_alone_and_among_others(shape: tuple[int, ...]) -> None:
    random = np.random.default_rng(0)
    rows, weights = random.normal(size=(300, shape[0])), random.normal(size=shape)
    together = weighed_sum(rows, weights)
    assert together == pytest.approx(rows @ weights, rel=1e-9, abs=1e-9)
    for few in (1, 2, 3, 7):
        parts = [weighed_sum(rows[start : start + few], weights) for start in range(0, len(rows), few)]
        assert np.concatenate(parts).tobytes() == together.tobytes()
