"""Exposed communication: the time that communication adds to the compute beside which it runs.

While a collective runs beside kernels it takes multiprocessors and memory bandwidth from them, so that hidden communication
still costs a share of its time: the contention slowdown (`predict.prices.contention`).
"""

from __future__ import annotations

import numpy as np

from predict.prices.contention import CONTENTION_SLOWDOWN
from predict.prices.kernels.norm import Time


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
    if isinstance(one, np.ndarray) or isinstance(other, np.ndarray):
        least: Time = np.maximum(np.minimum(one, other), 0.0)
        return least
    return max(min(one, other), 0.0)
