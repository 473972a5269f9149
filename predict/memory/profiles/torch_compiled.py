"""torch's own modules with each layer compiled; the loss stays eager."""

from __future__ import annotations

from dataclasses import replace

from predict.memory.profiles import torch_eager

PROFILE = replace(
    torch_eager.PROFILE,
    name="torch-compiled",
    uncompiled=torch_eager.PROFILE.name,
    fused_activation=True,
    fused_softmax=True,
    compiled=True,
)
