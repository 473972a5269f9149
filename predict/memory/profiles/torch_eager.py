"""torch's own modules on one GPU: its fused RMSNorm, rotary tables that belong to the model, fp32 gradients beside bf16 weights.

A layer's activations are byte-equal to those that `predict measure` keeps (torch 2.13), norms aside, which a CPU does not fuse.
"""

from __future__ import annotations

from predict.run.memory_profile import MemoryProfile

PROFILE = MemoryProfile(
    name="torch-eager",
    fused_norm=True,  # torch.nn.RMSNorm on CUDA since torch 2.9 (aten::_fused_rms_norm)
    static_rotary=True,
)
