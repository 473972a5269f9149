"""Neighbours of a plan: the same run with one setting of the plan or the batch a step further, either way."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from predict.config.document import Document
from predict.run.training_run import TrainingRun
from predict.step.prediction import Prediction
from predict.what_if.rows import SweptRow
from predict.what_if.sweep import SweptRun, sweep
from sampling.errors import ConfigError

DOUBLED = ("plan.tp", "plan.pp", "plan.cp", "plan.ep", "batch.micro")
RECOMPUTATION = ("none", "selective", "full")
STAGES_OF_ZERO = (0, 1, 2, 3)


def neighbours(
    config: Path | str | Document,
    overrides: Sequence[str],
    run: TrainingRun,
    predict: Callable[[TrainingRun], Prediction],
) -> tuple[SweptRun, ...]:
    """Degrees and microbatch twice and half as large, other recomputation and ZeRO; dp takes the ranks that are left.

    A neighbour that cannot run keeps its reason. `run` is that of the config.
    """
    found: list[SweptRun] = []
    for path, values in _steps(run):
        for value in values:
            try:
                found += sweep(config, [f"{path}={value}"], overrides, predict).rows
            except ConfigError as error:
                found.append(SweptRow(values={path: value}, prediction=None, reason=str(error)))
    return tuple(found)


def _steps(run: TrainingRun) -> Iterator[tuple[str, list[Any]]]:
    for path in DOUBLED:
        section, name = path.split(".")
        now = getattr(getattr(run, section), name)
        if path == "plan.ep" and not any(kind.sparse for kind in run.model.kinds()):
            continue
        yield path, [value for value in (now // 2, now * 2) if value]
    yield "plan.recompute", [value for value in RECOMPUTATION if value != run.plan.recompute]
    yield "plan.zero", [stage for stage in STAGES_OF_ZERO if stage != run.plan.zero and abs(stage - run.plan.zero) == 1]
