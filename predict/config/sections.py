"""The sections of a run config, and the keys of each: those of the dataclass that the section becomes."""

from __future__ import annotations

from collections.abc import Mapping

from predict.run.execution import Execution
from predict.run.frameworks import framework_names
from predict.run.plan import BEST, Batch, Plan
from predict.run.training_run import TrainingRun
from predict.schedules.registry import names as schedule_names
from sampling.files.keys import Key, keys_of, with_texts
from sampling.hardware.cluster_file import ClusterFile

DECLARED_BY: Mapping[str, type] = {"cluster": ClusterFile, "plan": Plan, "batch": Batch, "execution": Execution}
"""Section → the dataclass whose fields are its keys, and whose docstrings say what they mean."""
ORDER_FILE = r".+\.([cC][sS][vV]|[jJ][sS][oO][nN])"
SECTIONS: Mapping[str, tuple[Key, ...]] = {
    "cluster": keys_of(ClusterFile),
    "plan": with_texts(keys_of(Plan), schedule=Key(choices=lambda: (*schedule_names(), BEST), pattern=ORDER_FILE)),
    "batch": keys_of(Batch),
    "execution": with_texts(keys_of(Execution), framework=Key(choices=framework_names)),
}
PRECISION = next(key for key in keys_of(TrainingRun) if key.name == "precision")
