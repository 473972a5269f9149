"""Sweep: a run under every combination of some keys' values. A combination that cannot run keeps its reason."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from predict.config.document import Document
from predict.config.load import load
from predict.config.overrides import as_settings
from predict.run.training_run import TrainingRun
from predict.step.prediction import Prediction
from predict.what_if.rows import SweptRow, SweptRows, swept_rows
from predict.what_if.vary import parse_vary

SweptRun = SweptRow[Prediction]
Sweep = SweptRows[Prediction]


def sweep(
    config: Path | str | Document,
    vary: Sequence[str],
    overrides: Sequence[str],
    predict: Callable[[TrainingRun], Prediction],
    progress: Callable[[int, int], None] | None = None,
) -> Sweep:
    """Predict a config under every combination of `vary`. Where the plan's other degrees or the nodes vary, and dp does not, dp
    takes the ranks that are left.

    UserError for a key or range that is wrong; ConfigError, with the reason of the first, where no combination can run.
    """

    def predicted(values: Mapping[str, Any]) -> Prediction:
        return predict(load(config, [*overrides, *as_settings(values)]))

    name = config.name if isinstance(config, Document) else Path(config).stem
    return swept_rows(name, parse_vary(vary), predicted, progress)
