"""Linear attention: Gated DeltaNet (Yang et al., arXiv 2412.06464)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from predict.model.parts.part import Mixer
from sampling.cells.matrices import Matrix

if TYPE_CHECKING:
    from predict.model.spec import ModelSpec


@dataclass(frozen=True, kw_only=True, slots=True)
class LinearAttention(Mixer):
    """A short causal convolution of queries, keys and values, then a recurrence with one state per head."""

    NAME: ClassVar[str] = "linear_attention"

    key_heads: int
    """Heads of the queries, and of the keys."""
    value_heads: int
    """Heads of the values, each with a state [key_dim, value_dim]; a multiple of `key_heads`."""
    key_dim: int
    """Width of a head of queries, and of keys."""
    value_dim: int
    """Width of a head of values."""
    conv: int
    """Tokens that the convolution spans."""

    @property
    def key_width(self) -> int:
        return self.key_heads * self.key_dim

    @property
    def value_width(self) -> int:
        return self.value_heads * self.value_dim

    @property
    def conv_width(self) -> int:
        """Channels of the convolution: queries, keys and values."""
        return 2 * self.key_width + self.value_width

    def matrices(self, model: ModelSpec) -> tuple[Matrix, ...]:
        """Queries, keys, values, the output's gate, and decay and step of each head are one product. Each weight of the
        convolution multiplies once per token too."""
        into = (self.key_width, self.key_width, self.value_width, self.value_width, 2 * self.value_heads)
        return (
            *(Matrix(product="qkv", outputs=width, inputs=model.hidden, split="outputs") for width in into),
            Matrix(product="conv", outputs=self.conv_width, inputs=self.conv, split="outputs", is_linear=False),
            Matrix(product="proj", outputs=model.hidden, inputs=self.value_width, split="inputs"),
        )

    def other_parameters(self, model: ModelSpec) -> int:
        """A decay rate and a step bias per head, and the scale of the norm of the outputs."""
        return 2 * self.value_heads + self.value_dim

    def recurrence_flops(self, model: ModelSpec) -> float:
        """Decay, read, update and output of every head's state: 15 FLOPs per element, forward and backward."""
        return 15.0 * self.value_heads * self.key_dim * self.value_dim
