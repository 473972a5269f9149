"""The sections of a run config, and the keys of each: those of the dataclass that the section becomes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from predict.run.execution import Execution
from predict.run.frameworks import framework_names
from predict.run.plan import BEST, Batch, Plan
from predict.run.training_run import TrainingRun
from predict.schedules.registry import names as schedule_names
from sampling.files.keys import Key, keys_of, with_choices
from sampling.hardware.cluster_file import ClusterFile

DECLARED_BY: Mapping[str, type] = {"cluster": ClusterFile, "plan": Plan, "batch": Batch, "execution": Execution}
"""Section → the dataclass whose fields are its keys, and whose docstrings say what they mean."""
ORDER_FILE = r"(?i).+\.(csv|json)"


def _plan_keys() -> tuple[Key, ...]:
    """A schedule is known by its name at run time alone, or is the file of an order."""
    keys = with_choices(keys_of(Plan), schedule=lambda: (*schedule_names(), BEST))
    return tuple(replace(key, pattern=ORDER_FILE) if key.name == "schedule" else key for key in keys)


SECTIONS: Mapping[str, tuple[Key, ...]] = {
    "cluster": keys_of(ClusterFile),
    "plan": _plan_keys(),
    "batch": keys_of(Batch),
    "execution": with_choices(keys_of(Execution), framework=framework_names),
}
PRECISION = next(key for key in keys_of(TrainingRun) if key.name == "precision")
