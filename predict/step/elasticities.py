"""Elasticities: how many percent a step grows by with one percent more of each term of a calibration."""

from __future__ import annotations

import math
from collections.abc import Callable

from predict.run.calibration.file import scaled
from predict.run.calibration.terms import TERMS, Calibration
from predict.run.training_run import TrainingRun

NUDGE = 0.02
"""Change of a term's logarithm: larger than rounding, smaller than where a hidden collective comes out."""


def elasticities(run: TrainingRun, step_us: Callable[[TrainingRun], float]) -> tuple[float, ...]:
    """Derivatives of the step's logarithm by those of the terms, in their order, at the run as it is; `step_us` predicts one."""
    base_us = step_us(run)
    return tuple(
        math.log(step_us(scaled(run, Calibration(**{name: math.exp(NUDGE)}))) / base_us) / NUDGE for name in TERMS
    )
