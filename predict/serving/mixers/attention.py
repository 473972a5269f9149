"""Attention with grouped queries over a paged cache."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from predict.layers.attention import heads_on_rank
from predict.prices.kernels.attention import PACKING
from predict.serving.mixers.served import GroupedCall, LayerCache, ServedMixer
from sampling.call import Call
from sampling.hardware.cluster import DTYPE_BYTES
from sampling.operators.attention import Attention
from sampling.operators.decode_attention import UNPACKED, DecodeAttention
from sampling.operators.elementwise import RoPE


class Served(ServedMixer):
    """Attention in a server: with fewer heads of keys and values than GPUs, each GPU has a copy of one."""

    @property
    def cache(self) -> LayerCache:
        _, kv_heads = heads_on_rank(self.server.model, self.server.tp)
        width = 2 * kv_heads * self.server.model.head_dim
        return LayerCache(token_bytes=width * DTYPE_BYTES[self.server.placement.kv_precision], window=self.window)

    def token_calls(self, tokens: int) -> Iterator[GroupedCall]:
        yield from ServedMixer.token_calls(self, tokens)
        heads = sum(heads_on_rank(self.server.model, self.server.tp))
        yield (
            "elementwise",
            RoPE(
                dtype=self.server.activations, batch=1, seq_len=tokens, heads=heads, head_dim=self.server.model.head_dim
            ),
            1,
        )

    def decode_calls(self, decodes: int, keys: int) -> Iterator[Call]:
        model = self.server.model
        heads, kv_heads = heads_on_rank(model, self.server.tp)
        yield DecodeAttention(
            dtype=self.server.placement.kv_precision,
            batch=decodes,
            keys=keys,
            heads=heads,
            kv_heads=kv_heads,
            head_dim=model.head_dim,
            window=self.window,
            **self._kernel,
        )

    @property
    def _kernel(self) -> dict[str, Any]:
        """The engine's own kernel; on a CPU that of torch, which gathers the blocks of a cache."""
        gpu = self.server.cluster.gpu
        if gpu.kind == "cpu":
            return {"block": self.server.engine.block_size}
        return {"kernel": "" if gpu.architecture in PACKING else UNPACKED}

    def prefill_calls(self, tokens: int) -> Iterator[Call]:
        model = self.server.model
        heads, kv_heads = heads_on_rank(model, self.server.tp)
        yield Attention(
            dtype=self.server.activations,
            batch=1,
            seq_len=tokens,
            heads=heads,
            kv_heads=kv_heads,
            head_dim=model.head_dim,
            causal=True,
            window=self.window,
        )
