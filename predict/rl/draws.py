"""Steps whose lengths are drawn one by one: how much a step's time differs from one to the next."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from predict.rl.run.config import load_rl
from predict.rl.step import RlStep, rl_step
from predict.rl.training import Estimate
from predict.serving.batch import Floats

SHARES = (10, 50, 90)
"""Percentiles of each time."""


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class RlDraws:
    """The same step over draws of its lengths, each with a seed of its own. Times are µs, medians of their intervals."""

    steps: tuple[RlStep, ...]

    def times_us(self, name: str) -> Floats:
        """The times of a phase, or of the `step`; 0 where the run does not have the phase."""
        if name == "step":
            return np.array([step.time.median_us for step in self.steps])
        phases = [step.phase(name) for step in self.steps]
        return np.array([phase.time.median_us if phase else 0.0 for phase in phases])

    def percentiles_us(self, name: str) -> dict[str, float]:
        """`p10`, `p50` and `p90` of those times."""
        values = np.percentile(self.times_us(name), SHARES)
        return {f"p{share}": float(value) for share, value in zip(SHARES, values, strict=True)}


def draw_steps(config: Path | str, overrides: Sequence[str], estimate: Estimate, count: int) -> RlDraws:
    """Predict the step of an RL config with each of the seeds 1 to `count`."""
    runs = [load_rl(config, [*overrides, f"rl.draw={seed}"]) for seed in range(1, count + 1)]
    return RlDraws(steps=tuple(rl_step(run, estimate) for run in runs))
