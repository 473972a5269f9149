"""How times of things that partly overlap add up."""

from __future__ import annotations

from predict.step.overlap import Time


def joined_us(one: Time, other: Time, exponent: float) -> Time:
    """The norm of two times: the longer of them for a large exponent, more than that where they are alike. Neither is below
    0, and one is above it."""
    both = one + other
    shares: Time = (one / both) ** exponent + (other / both) ** exponent
    total: Time = both * shares ** (1 / exponent)
    return total
