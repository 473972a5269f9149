"""Steps of serving engines, and servers under traffic.

    batch = StepBatch(chunks=(Chunk(tokens=512),), decodes=(700, 1200))
    (time,) = step_times([batch], "configs/serving/llama3-8b-h100.yml")
    time.median_us, time.low_us, time.high_us

`step_times` keeps the latest servers, so that a simulator may call it for each of its steps, or for many at once.

From a load to a capacity, read eight files: `questions` (what is answered), `loaded_server` (a load, and the rate that is carried),
`simulate` and `engine_loop` (the server under the load; many of them: `fleet` and `fleet_loop`), `stepper` (tables of step times),
`step_model` and `kernels` (what these are made of), and `kv_cache` (the blocks that fit).
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING

from predict.config.document import Config
from predict.serving.batch import Chunk, StepBatch

if TYPE_CHECKING:
    from predict.interval import Interval
    from predict.serving.stepper import Stepper

__all__ = ["Chunk", "StepBatch", "step_time", "step_times"]

KEPT_SERVERS = 32


def step_time(
    batch: StepBatch,
    config: Config,
    overrides: Sequence[str] = (),
    *,
    model: str = "",
    coefficients: Path | str | None = None,
) -> Interval:
    """The time of one step of the server that a config describes."""
    (time,) = step_times([batch], config, overrides, model=model, coefficients=coefficients)
    return time


def step_times(
    batches: Sequence[StepBatch],
    config: Config,
    overrides: Sequence[str] = (),
    *,
    model: str = "",
    coefficients: Path | str | None = None,
) -> tuple[Interval, ...]:
    """The times of many steps, by `model` (kernels where it is empty) or a file of `coefficients` that `predict
    serving-fit` wrote. ConfigError lists the faults of the config, or names a request beyond the model's positions;
    UserError is for a batch that the engine does not take, and InfeasibleError for one that its cache cannot hold."""
    return _stepper(str(config), tuple(overrides), model, str(coefficients or "")).step_times(batches)


@lru_cache(maxsize=KEPT_SERVERS)
def _stepper(config: str, overrides: tuple[str, ...], model: str, coefficients: str) -> Stepper:
    from predict.serving.coefficients import chosen_coefficients
    from predict.serving.config import load_serving
    from predict.serving.stepper import Stepper

    chosen = chosen_coefficients(model, Path(coefficients) if coefficients else None)
    return Stepper(load_serving(config, overrides).server, chosen)
