"""Lightning attention: what it keeps for its backward."""

from __future__ import annotations

from predict.memory.components.core_attention import CORE
from predict.memory.components.norms import normed_input
from predict.memory.components.saved_tensors import Saved, SavedTensors
from predict.memory.components.sizes import FP32, Sizes
from predict.model.parts.lightning_attention import LightningAttention


def saved_tensors(sizes: Sizes, lightning: LightningAttention) -> Saved:
    """Queries, keys and values before and after their activation; the output, its norm's statistic, and its gate."""
    width = sizes.item * sizes.tokens * sizes.model.q_width / sizes.tp
    return (
        *normed_input(sizes, "qkv", is_module=False),
        SavedTensors(component="qkv", kept=3 * width),
        SavedTensors(component=CORE, kept=3 * width, in_backward=3 * width),
        SavedTensors(component="proj", kept=3 * width + FP32 * sizes.tokens, in_backward=width),
    )
