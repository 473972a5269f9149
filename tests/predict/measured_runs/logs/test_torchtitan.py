"""The lines that torchtitan writes before its first step."""

from pathlib import Path

import pytest

from tests.predict.measured_runs.log_lines import torchtitan
from tests.predict.measured_runs.logs.log_text import log

DEVICE = "[titan] 2026-01-16 02:41:33,634 - root - INFO - CUDA capacity: NVIDIA H100 80GB HBM3 with 79.18GiB memory"
STARTS = (
    "[titan] - root - INFO - Training starts at step 1, with local batch size 2, global batch size 32, gradient accumulation steps 1, "
    "sequence length 8192"
)
MODEL = "[titan] - root - INFO - Model llama3 8B size: 8,030,261,248 total parameters"
RECOMPUTE = "[titan] - root - INFO - Applied selective activation checkpointing to the model"
COMPILED = "[titan] - root - INFO - Compiling each TransformerBlock with torch.compile"
MESHES = {
    "a mesh": "[titan] - root - INFO - Building 2-D device mesh with ['dp_shard', 'tp'], [8, 2]",
    "all degrees": "[titan] Building device mesh with parallelism: pp=1, dp_replicate=1, dp_shard=8, cp=1, tp=2, ep=1",
}


@pytest.mark.parametrize("mesh", MESHES.values(), ids=MESHES)
def test_model_device_and_degrees(mesh: str, tmp_path: Path) -> None:
    steps = [torchtitan(step, 15.0) for step in range(1, 5)]
    stated = log(tmp_path, "\n".join([DEVICE, mesh, MODEL, RECOMPUTE, COMPILED, STARTS, *steps])).stated
    assert stated.settings == {
        "cluster.hardware": "NVIDIA H100 80GB HBM3",
        "precision": "bf16",
        "model": "llama3-8B",
        "batch.micro": 2,
        "plan.tp": 2,
        "plan.pp": 1,
        "plan.cp": 1,
        "plan.dp": 8,
        "plan.zero": 3,
        "plan.sp": True,
        "cluster.nodes": 2,
        "cluster.gpus_per_node": 8,
        "execution.framework": "torchtitan",
        "plan.recompute": "ops",
    }
    assert [each.partition(":")[0] for each in stated.uncertain] == ["cluster.gpus_per_node", "plan.recompute"]


def test_copies_of_shards(tmp_path: Path) -> None:
    mesh = "Building 2-D device mesh with ['dp_replicate', 'dp_shard'], [2, 4]"
    settings = log(tmp_path, "\n".join([mesh, torchtitan(1, 15.0)])).stated.settings
    assert (settings["plan.dp"], settings["plan.shard"], settings["execution.framework"]) == (8, 4, "fsdp")
