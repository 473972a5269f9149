"""Stragglers: the cost of waiting for the slowest of many ranks."""

from __future__ import annotations

import math
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from predict.prices.published_constants import STRAGGLERS
from predict.run.training_run import TrainingRun

Waiting = TypeVar("Waiting", float, NDArray[np.float64])


def stragglers_factor(run: TrainingRun) -> float:
    """Step time relative to equally fast ranks."""
    if not run.execution.stragglers:
        return 1.0
    return float(waiting_factor(run.execution.waiting_time, run.cluster.world_size))


def waiting_factor(waiting_time: Waiting, ranks: int) -> Waiting:
    """`stragglers_factor` of runs that wait, from the factors `execution.waiting_time` on what is stated."""
    return 1.0 + waiting_time * STRAGGLERS.value * math.log2(ranks)
