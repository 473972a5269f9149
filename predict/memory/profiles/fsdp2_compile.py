"""torch's FSDP2 of compiled blocks, as torchtitan builds them; the loss is eager unless `execution.fuse_loss`."""

from __future__ import annotations

from dataclasses import replace

from predict.memory.profiles import fsdp2

PROFILE = replace(
    fsdp2.PROFILE,
    name="fsdp2-compile",
    uncompiled=fsdp2.PROFILE.name,
    fused_activation=True,
    fused_softmax=True,
    compiled=True,
)
