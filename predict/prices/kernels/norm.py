"""The sum of two times that partly overlap."""

from __future__ import annotations

from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

Time = TypeVar("Time", float, NDArray[np.float64])


def joined_us(one: Time, other: Time, exponent: float) -> Time:
    """The p-norm of two times, for a large exponent the longer one. Neither may be negative, nor both 0."""
    both = one + other
    shares: Time = (one / both) ** exponent + (other / both) ** exponent
    total: Time = both * shares ** (1 / exponent)
    return total
