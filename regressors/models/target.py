"""The quantity that trees or a smooth correction are fitted to."""

from __future__ import annotations

from enum import StrEnum

import numpy as np

from regressors.features.arrays import Floats
from regressors.models.roofline_fit import CLOCK_RESOLUTION_US


class Target(StrEnum):
    """The logarithm of the ratio of the time to the roofline fit, the time in µs, or the logarithm of the time."""

    LOG_RATIO = "log-ratio"
    TIME = "time"
    LOG_TIME = "log-time"


def encoded(target: Target, time_us: Floats) -> Floats:
    """Times [rows] in µs as what is fitted [rows], a time or its logarithm."""
    return np.log(time_us) if target == Target.LOG_TIME else time_us


def decoded(target: Target, fitted: Floats) -> Floats:
    """The inverse of `encoded`, in µs and at least the resolution of the clock."""
    time_us: Floats = np.exp(fitted) if target == Target.LOG_TIME else fitted
    return np.maximum(time_us, CLOCK_RESOLUTION_US)
