"""torch's FSDP2 of eager modules with fused norms."""

from __future__ import annotations

from predict.run.memory_profile import COMPILED_LOSS, PARALLEL_LOSS, MemoryProfile
from predict.run.training_run import TrainingRun


def fp32_gradient_bytes(run: TrainingRun) -> int:
    """A sharded gradient has the dtype of its fp32 shard (torch, _fsdp_param_group.py)."""
    return 4


PROFILE = MemoryProfile(
    name="fsdp2",
    fused_norm=True,
    flash_linear=True,
    gradient_bytes=fp32_gradient_bytes,
    parallel_loss=PARALLEL_LOSS,
    fused_loss=COMPILED_LOSS,
    fp32_shards=True,
    fp8_gather=True,  # torchtitan: enable_fsdp_float8_all_gather
)
