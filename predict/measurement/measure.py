"""A config of any kind run for real on this machine."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TypeAlias

from predict import load
from predict.config.document import Config
from predict.kinds import KINDS, RL, SERVING, kind_of
from predict.measurement.measurement import Measurement
from predict.measurement.real_rl import RlMeasurement, measure_rl
from predict.measurement.real_step import measure as measure_step
from predict.measurement.requirements import Implementation
from predict.measurement.serving.real_server import ServedLoad, serve_for_real
from predict.serving.config import load_serving
from sampling.errors import UserError

Measured: TypeAlias = Measurement | RlMeasurement | ServedLoad


def measure(
    config: Config,
    overrides: Sequence[str] = (),
    *,
    steps: int | None = None,
    implementation: Implementation = "torch",
    trace: Path | str | None = None,
) -> Measured:
    """Run the step of a training or RL config for real on this machine, or serve the load of a serving config, and time it.

    `steps` are timed after a warm-up: by default 10 on a CPU, on a GPU as many as fill ten seconds. Into the folder `trace` goes a trace
    of a few more steps of each rank of a training run. UserError for what cannot be run here, before anything starts.
    """
    kind = kind_of(config)
    if kind not in (SERVING, RL):
        return measure_step(
            load(config, overrides), steps=steps, implementation=implementation, trace=Path(trace) if trace else None
        )
    if not isinstance(config, Path | str):
        raise UserError(f"measure: {KINDS[kind].title} is run from its file; give the path of one")
    if kind == RL:
        return measure_rl(config, overrides, steps=steps)
    return serve_for_real(load_serving(config, overrides), config, overrides)
