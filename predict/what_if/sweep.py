"""Sweep: a run under every combination of some keys' values. A combination that cannot run keeps its reason."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from predict.config.document import Document
from predict.config.draft import read_draft
from predict.config.load import load, read_sections
from predict.run.training_run import TrainingRun
from predict.step.prediction import Prediction
from predict.what_if.rows import SweptRow, SweptRows, swept_rows
from predict.what_if.vary import as_settings, parse_vary

INSIDE_A_REPLICA = ("tp", "pp", "cp")
DECIDE_DP = (*(f"plan.{key}" for key in INSIDE_A_REPLICA), "cluster", "cluster.nodes", "cluster.gpus_per_node")


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
        settings = [*overrides, *as_settings(values)]
        if "plan.dp" not in values and any(path in DECIDE_DP for path in values):
            settings += replicas_left(config, settings)
        return predict(load(config, settings))

    name = config.name if isinstance(config, Document) else Path(config).stem
    return swept_rows(name, parse_vary(vary), predicted, progress)


def replicas_left(config: Path | str | Document, settings: Sequence[str]) -> list[str]:
    """The setting of dp that the other degrees leave, where they divide the ranks; none otherwise, so that loading says why."""
    draft = read_draft(config if isinstance(config, Document) else Path(config), settings)
    values = read_sections(draft).values
    plan, cluster = values["plan"], values["cluster"]
    inside = math.prod(plan.get(key, 1) for key in INSIDE_A_REPLICA)
    world = cluster.get("nodes", 0) * cluster.get("gpus_per_node", 0)
    return [f"plan.dp={world // inside}"] if world and world % inside == 0 else []
