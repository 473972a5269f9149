"""Arithmetic that takes a number or an array, so that one formula prices one call, or many calls of a kind at once.

A single number costs what `math` costs: numpy is used only for arrays. Both give the same to the last bit, so that a price does
not depend on what was priced along with it.
"""

import math
from typing import Any

import numpy as np


def log2(value: Any) -> Any:
    if isinstance(value, np.ndarray):
        return np.array([math.log2(each) for each in value.tolist()])  # numpy's own differs in the last bit
    return math.log2(value)


def ceil(value: Any) -> Any:
    return np.ceil(value) if isinstance(value, np.ndarray) else math.ceil(value)


def smaller(value: Any, limit: Any) -> Any:
    """The smaller of the two."""
    if isinstance(value, np.ndarray) or isinstance(limit, np.ndarray):
        return np.minimum(value, limit)
    return min(value, limit)


def common_divisor(value: Any, other: int) -> Any:
    return np.gcd(value, other) if isinstance(value, np.ndarray) else math.gcd(value, other)


def all_zero(value: Any) -> bool:
    """Whether the number, or each number of the array, is 0."""
    return not (value.any() if isinstance(value, np.ndarray) else value)
