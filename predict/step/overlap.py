"""Exposed communication: the time that communication adds to the compute beside which it runs.

While a collective runs beside kernels it takes multiprocessors and memory bandwidth from them, so that hidden communication
still costs a share of its time: the contention slowdown (`predict.prices.device_samples`).
"""

from __future__ import annotations

import numpy as np

from predict.prices.device_samples import CONTENTION_SLOWDOWN
from predict.prices.kernels.norm import Time
from sampling.arithmetic.arrays import smaller


def exposed_us(
    communication_us: Time,
    work_us: Time,
    *,
    share: float,
    most: float = 1.0,
    contention_slowdown: float = CONTENTION_SLOWDOWN,
) -> Time:
    """Time in µs that communication adds to work, where up to `most` of it may run during `share` of the work's time.

    Never less than the communication that does not fit beside the work.
    """
    hidden_us = least(communication_us * most, work_us * share)
    return communication_us - hidden_us * (1.0 - contention_slowdown)


def least(one: Time, other: Time) -> Time:
    """The smaller of the two; 0 where that is negative."""
    shorter: Time = smaller(one, other)
    return np.maximum(shorter, 0.0) if isinstance(shorter, np.ndarray) else max(shorter, 0.0)
