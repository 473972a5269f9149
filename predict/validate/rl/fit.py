"""The two factors of an RL step fitted to published steps: least error in log time, each held near 1 by a prior."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import log

import numpy as np

from predict.rl.phase import TRAINING
from predict.rl.run.section import COLOCATED
from predict.rl.step import RlStep
from predict.rl.terms import FACTORS, Factors
from predict.serving.batch import Floats
from predict.validate.published.row import PublishedRow

GRID = np.exp(np.linspace(log(0.8), log(3.5), 61))
"""Values that a factor may take."""
ROLLOUT_WIDTH, TRAINING_WIDTH, ERROR_WIDTH = 0.5, 0.15, 0.25
"""Standard deviations in log time: of the priors of both factors (training steps are known to about 15 % by published runs, engines inside
an RL framework hardly), and of a step's usual error."""
SAME_RUN = (
    "source_id",
    "gpu",
    "mode",
    "n_gpus",
    "train_gpus",
    "tp",
    "pp",
    "cp",
    "ep",
    "gen_tp",
    "staleness",
    "precision_gen",
)
"""Columns by which rows are one run of several releases, which counts once."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Observed:
    """A published step and its prediction without factors."""

    row: PublishedRow
    step: RlStep

    @property
    def source(self) -> str:
        return self.row.text("source_id")

    @property
    def measured_us(self) -> float:
        return 1e6 * (self.row.number("step_s") or 0.0)

    @property
    def run(self) -> tuple[str, ...]:
        return tuple(self.row.text(name) for name in SAME_RUN)


def fitted_factors(observed: Sequence[Observed]) -> Factors:
    """The pair of factors, of those on a grid, with the least sum of errors and priors; the shipped half-width. Without rows, 1."""
    rollout, training = (axis.ravel() for axis in np.meshgrid(GRID, GRID, indexing="ij"))
    loss = ((np.log(rollout) / ROLLOUT_WIDTH) ** 2 + (np.log(training) / TRAINING_WIDTH) ** 2) / 2
    weights = Counter(one.run for one in observed)
    for one in observed:
        error = np.abs(np.log(_steps_us(one.step, rollout, training) / one.measured_us))
        loss += error / ERROR_WIDTH / weights[one.run]
    best = int(loss.argmin())
    return replace(FACTORS, rollout=float(rollout[best]), training=float(training[best]))


def _steps_us(step: RlStep, rollout: Floats, training: Floats) -> Floats:
    """The step under each pair of factors."""
    times = {phase.name: phase.time.median_us for phase in step.phases}
    engines = times["gen"] * rollout + times.get("reward", 0.0)
    trainer = sum(times.get(name, 0.0) for name in TRAINING if name != "adv") * training + times["adv"]
    side_by_side = engines + trainer if step.rl.section.placement == COLOCATED else np.maximum(engines, trainer)
    whole: Floats = side_by_side + times["update_weights"]
    return whole
