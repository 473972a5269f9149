"""Megatron-LM's layers before Transformer Engine, under DeepSpeed's ZeRO."""

from __future__ import annotations

from predict.run.memory_profile import IN_PLACE_LOSS, Buffer, MemoryProfile, in_gradient_dtype
from predict.run.training_run import TrainingRun
from sampling.hardware.cluster import DTYPE_BYTES


def zero_gradient_bytes(run: TrainingRun) -> int:
    """ZeRO's fp16 optimizer accumulates in fp16, whatever is reduced (stage_1_and_2.py); its bf16 optimizer keeps a 16-bit
    gradient beside an fp32 one (bf16_optimizer.py)."""
    if run.precision == "fp16":
        return DTYPE_BYTES["fp16"]
    fp32_too = run.execution.gradient_dtype == "fp32"
    return in_gradient_dtype(run) + (DTYPE_BYTES["bf16"] if fp32_too else 0)


PROFILE = MemoryProfile(
    name="deepspeed",
    fused_norm=True,
    fused_softmax=True,
    flash_linear=True,
    static_rotary=True,
    megatron=True,
    loss=IN_PLACE_LOSS,
    sequence_parallelism=False,
    gradient_buffers=True,  # DeepSpeed, stage_1_and_2.py
    gradient_bytes=zero_gradient_bytes,
    fp32_update_copies=True,  # stage_1_and_2.py, `single_partition_of_fp32_groups`
    # fitted to the difference between nvidia-smi and counted tensors on BLOOM's sweep (A100, 384 GPUs)
    device_overhead=Buffer(
        name="context, communication, buckets",
        size_bytes=10e9,
        width_bytes=1e9,
        source="nvidia-smi less tensors on BLOOM's sweep",
    ),
)
