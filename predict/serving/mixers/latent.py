"""Multi-head latent attention as servers run it (DeepSeek-AI, arXiv 2405.04434, section 2.1.2).

The cache holds the compressed keys and values alone, which every GPU of tp needs whole. Decoding takes the ways up into queries
and outputs ("absorbed"), so that all heads read the same compressed keys, whose leading part is the values.
"""

from __future__ import annotations

from collections.abc import Iterator

from predict.layers.latent import LatentAttention
from predict.serving.mixers.served import GroupedCall, LayerCache, ServedMixer, products
from sampling.call import Call
from sampling.hardware.cluster import DTYPE_BYTES
from sampling.operators.attention import Attention
from sampling.operators.decode_attention import DecodeAttention
from sampling.operators.elementwise import RoPE
from sampling.operators.gemm import BatchedGemm
from sampling.operators.norm import RMSNorm

WAYS_UP = "kv_up"


class Served(ServedMixer):
    """Its heads are divided among GPUs, its compressed keys are not."""

    shape: LatentAttention

    @property
    def heads(self) -> int:
        return self.server.model.heads // self.server.tp

    @property
    def key_width(self) -> int:
        """Elements of a compressed key."""
        return self.shape.kv_rank + self.shape.rope_dim

    @property
    def cache(self) -> LayerCache:
        size = DTYPE_BYTES[self.server.placement.kv_precision]
        return LayerCache(token_bytes=self.key_width * size, window=self.window)

    @property
    def score_width(self) -> float:
        return float(self.heads * (self.key_width + self.shape.kv_rank))

    def token_calls(self, tokens: int) -> Iterator[GroupedCall]:
        shape, model = self.shape, self.server.model
        matrices = tuple(matrix for matrix in shape.matrices(model) if matrix.product != WAYS_UP)
        yield from products(self.server, matrices, tokens)
        for inputs, outputs in ((shape.nope_dim, shape.kv_rank), (shape.kv_rank, shape.value_dim)):
            yield (
                "gemm",
                BatchedGemm(dtype=self.server.activations, batch=self.heads, m=tokens, n=outputs, k=inputs, adds=False),
                1,
            )
        for width in filter(None, (shape.q_rank, shape.kv_rank)):
            yield "elementwise", RMSNorm(dtype=self.server.activations, tokens=tokens, hidden=width), 1
        rope = RoPE(
            dtype=self.server.activations, batch=1, seq_len=tokens, heads=self.heads + 1, head_dim=shape.rope_dim
        )
        yield "elementwise", rope, 1

    def decode_calls(self, decodes: int, keys: int) -> Iterator[Call]:
        yield DecodeAttention(
            dtype=self.server.placement.kv_precision,
            batch=decodes,
            keys=keys,
            heads=self.heads,
            kv_heads=1,
            head_dim=self.key_width,
            values_in_keys=self.shape.kv_rank,
            window=self.window,
        )

    def prefill_calls(self, tokens: int) -> Iterator[Call]:
        yield Attention(
            dtype=self.server.activations,
            batch=1,
            seq_len=tokens,
            heads=self.heads,
            kv_heads=self.heads,
            head_dim=self.shape.query_dim,
            value_dim=self.shape.value_dim,
            causal=True,
            window=self.window,
        )
