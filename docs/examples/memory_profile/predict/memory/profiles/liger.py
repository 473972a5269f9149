"""FSDP2 of transformers whose norms, activation and loss are Liger kernels (Hsu et al., arXiv 2410.10989)."""

from __future__ import annotations

from dataclasses import replace

from predict.memory.profiles import fsdp2
from predict.run.memory_profile import LossBytes

# the fused loss takes its gradient chunk by chunk in the forward (section 3.2), so that whole logits never exist
NO_LOGITS = LossBytes(kept=0, forward=0, backward=0)
PROFILE = replace(
    fsdp2.PROFILE, name="liger", fused_activation=True, loss={2: NO_LOGITS, 4: NO_LOGITS}, parallel_loss=None
)
