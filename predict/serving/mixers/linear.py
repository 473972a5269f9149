"""Gated DeltaNet as servers run it: a state per head in fp32 and the convolution's last tokens, whatever the sequence's length."""

from __future__ import annotations

from collections.abc import Iterator

from predict.layers.linear import LinearAttention
from predict.serving.mixers.served import GroupedCall, LayerCache, ServedMixer, products
from sampling.call import Call
from sampling.hardware.cluster import DTYPE_BYTES
from sampling.operators.linear_attention import GatedDelta
from sampling.operators.norm import RMSNorm
from sampling.operators.streaming import Stream

CONVOLUTION = "conv"
STATE = "fp32"
"""Dtype of the states, as `mamba_ssm_dtype` of Qwen3.5's config.json has it."""


class Served(ServedMixer):
    """A decode reads and writes the whole state of its sequence."""

    shape: LinearAttention

    @property
    def heads(self) -> int:
        return max(1, self.shape.value_heads // self.server.tp)

    @property
    def cache(self) -> LayerCache:
        shape = self.shape
        states = self.heads * shape.key_dim * shape.value_dim * DTYPE_BYTES[STATE]
        last_tokens = shape.conv_width // self.server.tp * (shape.conv - 1) * DTYPE_BYTES[self.server.activations]
        return LayerCache(sequence_bytes=states + last_tokens)

    def token_calls(self, tokens: int) -> Iterator[GroupedCall]:
        matrices = tuple(matrix for matrix in self.shape.matrices(self.server.model) if matrix.product != CONVOLUTION)
        yield from products(self.server, matrices, tokens)
        convolved = 2 * DTYPE_BYTES[self.server.activations] * tokens * (self.shape.conv_width // self.server.tp)
        yield "elementwise", Stream(dtype=self.server.activations, size_bytes=convolved), 1
        normed = RMSNorm(dtype=self.server.activations, tokens=tokens * self.heads, hidden=self.shape.value_dim)
        yield "elementwise", normed, 1

    def decode_calls(self, decodes: int, keys: int) -> Iterator[Call]:
        yield Stream(dtype=STATE, size_bytes=round(2 * decodes * self.cache.sequence_bytes))

    def prefill_calls(self, tokens: int) -> Iterator[Call]:
        yield GatedDelta(
            dtype=self.server.activations,
            batch=1,
            seq_len=tokens,
            heads=max(1, self.shape.key_heads // self.server.tp),
            value_heads=self.heads,
            head_dim=self.shape.key_dim,
            value_dim=self.shape.value_dim,
        )
