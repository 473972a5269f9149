"""How times of things that partly overlap add up."""

from __future__ import annotations

from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

Time = TypeVar("Time", float, NDArray[np.float64])


def joined_us(one: Time, other: Time, exponent: float) -> Time:
    """The norm of two times: the longer of them for a large exponent, more than that where they are alike. Neither is below
    0, and one is above it."""
    both = one + other
    shares: Time = (one / both) ** exponent + (other / both) ** exponent
    total: Time = both * shares ** (1 / exponent)
    return total
