"""Lightning attention (Qin et al., arXiv 2405.17381), as MiniMax-01 has it (arXiv 2501.08313)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from predict.model.parts.part import Mixer
from sampling.cells.matrices import Matrix

if TYPE_CHECKING:
    from predict.model.spec import ModelSpec


@dataclass(frozen=True, kw_only=True, slots=True)
class LightningAttention(Mixer):
    """Linear attention with as many heads as attention has, each with its own keys and values; a norm and a gate before the output."""

    NAME: ClassVar[str] = "lightning_attention"

    block: int
    """Tokens of a block, within which scores are computed as attention's are."""

    def matrices(self, model: ModelSpec) -> tuple[Matrix, ...]:
        """Query, key, value and gate, then the output."""
        width = model.q_width
        into = Matrix(product="qkv", outputs=width, inputs=model.hidden, split="outputs", head=model.head_dim)
        return (into,) * 4 + (Matrix(product="proj", outputs=model.hidden, inputs=width, split="inputs"),)

    def other_parameters(self, model: ModelSpec) -> int:
        """The scale of the norm of the outputs."""
        return model.q_width

    def recurrence_flops(self, model: ModelSpec) -> float:
        """Decay, update and output of every head's state, forward and backward."""
        return 15.0 * model.heads * model.head_dim**2
