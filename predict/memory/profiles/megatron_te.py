"""Megatron-Core with Transformer Engine."""

from __future__ import annotations

from predict.run.memory_profile import FUSED_LOSS, IN_PLACE_LOSS, MemoryProfile

PROFILE = MemoryProfile(
    name="megatron-te",
    fused_norm=True,
    fused_activation=True,
    fused_softmax=True,
    fused_latent=True,
    flash_linear=True,
    static_rotary=True,
    transformer_engine=True,
    megatron_core=True,
    megatron=True,
    weighted_activation=True,
    frees_recomputed_outputs=True,
    fp8_inputs=True,
    loss=IN_PLACE_LOSS,
    fused_loss=FUSED_LOSS,
    gradient_buffers=True,  # Megatron-Core, param_and_grad_buffer.py
    # one fp8 copy of each weight and one transposed, cached over microbatches (Transformer Engine, module/base.py,
    # `get_weight_workspace`); mxfp8 on Blackwell keeps a row-wise and a column-wise one
    fp8_weight_copies_bytes=2,
    dummy_gradients=True,
)
