"""Sweep: a run under every combination of some keys' values. A combination that cannot run keeps its reason."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from predict.config.document import Document
from predict.config.draft import read_draft
from predict.config.load import load, read_sections
from predict.config.overrides import OPTION as SET
from predict.run.training_run import TrainingRun
from predict.step.prediction import Prediction
from predict.what_if.vary import OPTION as VARY
from predict.what_if.vary import Varied, as_settings, combinations, parse_vary
from sampling.errors import ConfigError, InfeasibleError

INSIDE_A_REPLICA = ("tp", "pp", "cp")
DECIDE_DP = (*(f"plan.{key}" for key in INSIDE_A_REPLICA), "cluster", "cluster.nodes", "cluster.gpus_per_node")


@dataclass(frozen=True, kw_only=True, slots=True)
class SweptRun:
    """One combination: its prediction, or the reason why there is none."""

    values: Mapping[str, Any]
    """Key path → the value that it has here."""
    prediction: Prediction | None
    reason: str = ""


@dataclass(frozen=True, kw_only=True, slots=True)
class Sweep:
    """The combinations in their order, the last key changing fastest."""

    name: str
    varied: tuple[Varied, ...]
    rows: tuple[SweptRun, ...]


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
    varied = parse_vary(vary)
    given = list(combinations(varied))
    rows: list[SweptRun] = []
    for values in given:
        rows.append(_row(config, values, overrides, predict))
        if progress is not None:
            progress(len(rows), len(given))
    if all(row.prediction is None for row in rows):
        first = ", ".join(f"{path}={value}" for path, value in rows[0].values.items())
        which = "the only combination" if len(rows) == 1 else f"none of {len(rows):,} combinations can run; the first"
        raise ConfigError(f"{VARY}: {which}, {first}, cannot run:\n{rows[0].reason}")
    name = config.name if isinstance(config, Document) else Path(config).stem
    return Sweep(name=name, varied=varied, rows=tuple(rows))


def _row(
    config: Path | str | Document,
    values: Mapping[str, Any],
    overrides: Sequence[str],
    predict: Callable[[TrainingRun], Prediction],
) -> SweptRun:
    settings = [*overrides, *as_settings(values)]
    try:
        if "plan.dp" not in values and any(path in DECIDE_DP for path in values):
            settings += replicas_left(config, settings)
        return SweptRun(values=values, prediction=predict(load(config, settings)))
    except (ConfigError, InfeasibleError) as error:
        return SweptRun(values=values, prediction=None, reason=_as_varied(str(error), values))


def _as_varied(reason: str, values: Mapping[str, Any]) -> str:
    """A reason whose lines name --vary, and not --set, for the keys that the sweep varies."""
    for path in values:
        reason = reason.replace(f"{SET}: {path}", f"{VARY}: {path}")
    return reason


def replicas_left(config: Path | str | Document, settings: Sequence[str]) -> list[str]:
    """The setting of dp that the other degrees leave, where they divide the ranks; none otherwise, so that loading says why."""
    draft = read_draft(config if isinstance(config, Document) else Path(config), settings)
    values = read_sections(draft).values
    plan, cluster = values["plan"], values["cluster"]
    inside = math.prod(plan.get(key, 1) for key in INSIDE_A_REPLICA)
    world = cluster.get("nodes", 0) * cluster.get("gpus_per_node", 0)
    return [f"plan.dp={world // inside}"] if world and world % inside == 0 else []
