"""A loaded run with other values of its plan, batch or cluster, held to the same rules as a config."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields, replace
from typing import Any

from predict.config.rules import broken_rules
from predict.run.training_run import TrainingRun
from sampling.files.faults import config_error

Settings = Mapping[str, Any]
"""Values by config key, for example `plan.tp`."""
SECTIONS = ("plan", "batch", "cluster")


def changed(run: TrainingRun, settings: Settings) -> TrainingRun:
    """The run with other values of `plan`, `batch` and `cluster`. ConfigError where they break a rule of the config."""
    sections = {
        section: replace(
            getattr(run, section),
            **{key.partition(".")[2]: value for key, value in settings.items() if key.startswith(f"{section}.")},
        )
        for section in SECTIONS
    }
    made = replace(run, **sections)
    faults = list(broken_rules(_values(made)))
    if faults:
        raise config_error(faults, {"": run.name})
    return made


def _values(run: TrainingRun) -> dict[str, Any]:
    """The values of a run by the names that the rules of a config use."""
    found: dict[str, Any] = {"model": run.model, "precision": run.precision}
    for section in (run.model, run.plan, run.execution):
        found |= {field.name: getattr(section, field.name) for field in fields(section)}
    batch, cluster = run.batch, run.cluster
    found |= {"global": batch.global_, "micro": batch.micro, "seq_len": batch.seq_len}
    return found | {"nodes": cluster.nodes, "gpus_per_node": cluster.gpus_per_node, "profile": cluster.profile}
