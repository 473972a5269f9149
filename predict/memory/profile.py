"""Which framework's way of keeping tensors a run has: its memory profile."""

from __future__ import annotations

from predict.run.frameworks import memory_profile
from predict.run.training_run import TrainingRun

EAGER, TRANSFORMER_ENGINE, FSDP, COMPILED_FSDP, DEEPSPEED = (
    "eager",
    "megatron-te",
    "fsdp2",
    "fsdp2-compile",
    "deepspeed",
)


def profile_of(run: TrainingRun) -> str:
    """What `configs/frameworks` says of the run's framework; compiled FSDP without fused elementwise work is eager."""
    profile = memory_profile(run.execution.framework)
    return FSDP if profile == COMPILED_FSDP and run.execution.elementwise == "eager" else profile


def shards_parameters(profile: str) -> bool:
    """FSDP2, whose sharded fp32 parameters are the ones that the optimizer updates."""
    return profile in (FSDP, COMPILED_FSDP)


def makes_gradients_anew(profile: str) -> bool:
    """torch drops gradients after the step (`zero_grad(set_to_none=True)`, its default) and makes them in the first backward;
    Megatron-Core and DeepSpeed hold buffers of them from the start (param_and_grad_buffer.py; stage_1_and_2.py)."""
    return profile in (EAGER, FSDP, COMPILED_FSDP)
