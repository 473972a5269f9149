"""Stragglers: the cost of waiting for the slowest of many ranks."""

from __future__ import annotations

import math

from predict.run.training_run import TrainingRun

PER_DOUBLING = 0.006
"""Share of the step for each doubling of the ranks: published runs of one configuration at several sizes."""


def stragglers_factor(run: TrainingRun) -> float:
    """Step time relative to equally fast ranks."""
    if not run.execution.stragglers:
        return 1.0
    return 1.0 + PER_DOUBLING * math.log2(run.cluster.world_size)
