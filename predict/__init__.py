"""Predict the step time of a training run: `one_batch("config.yml")` returns the estimate."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from predict.step.estimate import StepEstimate

__all__ = ["one_batch", "one_batch_predict"]


def one_batch(path: Path | str, overrides: Sequence[str] = (), *, require_measured: bool = False) -> StepEstimate:
    """Predict one training step of the config at `path`, with `plan.tp=2`-like `overrides`.

    Raises ConfigError listing every fault of the config; SamplesError for damaged regressors or, with
    `require_measured`, for work that no sample covers.
    """
    from predict.config.load import load
    from predict.prices import open as prices
    from predict.step.estimate import estimate

    run = load(path, overrides)
    result = estimate(run, *prices.open_prices(run.cluster, run.execution))
    if require_measured:
        prices.require_measured(result.sources, run.cluster)
    return result


def one_batch_predict(path: Path | str) -> float:
    """The median step time of the config at `path`, in µs."""
    return one_batch(path).step_time.median_us
