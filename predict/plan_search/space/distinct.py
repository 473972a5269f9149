"""Distinct rows of columns of small whole numbers, found by counting where that is faster than sorting."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

Indices = NDArray[np.int64]
MOST_CODES = 2**24
"""Combinations up to which a table has a place for each."""
ROOMY = 20
"""Places per row beyond which a table takes longer to clear than its rows to sort."""


def distinct(columns: Sequence[NDArray[Any]], count: int) -> tuple[Indices, Indices]:
    """The first row of each distinct combination, ordered as the columns are, and which combination each of `count` rows has.

    Columns are whole numbers from 0.
    """
    code, codes = np.zeros(count, np.int64), 1
    for column in columns:
        width = int(column.max(initial=0)) + 1
        if codes * width > MOST_CODES:
            _, code = _numbered(code, codes)
            codes = int(code.max(initial=0)) + 1
        code = code * width + column
        codes *= width
    return _numbered(code, codes)


def _numbered(code: Indices, codes: int) -> tuple[Indices, Indices]:
    """The first row of each code that occurs, and the code's place among those that do."""
    if codes > ROOMY * len(code) + 1:
        _, firsts, places = np.unique(code, return_index=True, return_inverse=True)
        return firsts, places
    first = np.full(codes, -1, np.int64)
    first[code[::-1]] = np.arange(len(code) - 1, -1, -1)
    present = first >= 0
    return first[present], (np.cumsum(present) - 1)[code]
