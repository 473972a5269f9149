"""Small runs of one GPU, which a CPU can train in its place."""

from dataclasses import replace
from typing import Any

from predict.layers.mixture import Mixture
from predict.model.spec import LayerKind, ModelSpec
from predict.run.execution import Execution
from predict.run.frameworks import framework_settings
from predict.run.training_run import TrainingRun
from tests import tiny_runs

DENSE = replace(tiny_runs.LLAMA, layers=2)
MIXTURE = replace(
    DENSE, name="mixture", layer_kinds=(LayerKind(sparse=True),) * 2, experts=Mixture(count=4, topk=2, ffn=32)
)


def gpu_run(
    model: ModelSpec = DENSE,
    *,
    framework: str = "torch-eager",
    precision: str = "bf16",
    batch: tuple[int, int, int] = (4, 2, 16),
    **plan: Any,
) -> TrainingRun:
    execution = Execution(**framework_settings(framework), framework=framework)
    return tiny_runs.tiny_run(
        model, hardware="h100-sxm", batch=batch, precision=precision, execution=execution, per_node=1, **plan
    )
