"""Stragglers: the cost of waiting for the slowest of many ranks."""

from __future__ import annotations

import math

from predict.prices.published_constants import STRAGGLERS
from predict.run.training_run import TrainingRun


def stragglers_factor(run: TrainingRun) -> float:
    """Step time relative to equally fast ranks."""
    if not run.execution.stragglers:
        return 1.0
    return 1.0 + run.execution.waiting_time * STRAGGLERS.value * math.log2(run.cluster.world_size)
