"""A dense layer that computes one new token per sequence over cached keys and values, in torch."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch.nn import functional

from sampling.arithmetic.operator import COPIES
from sampling.cells.decode_layer import DecodeLayer
from sampling.errors import SkippedError
from sampling.torch_work.build import builds, products_in, torch_dtype
from sampling.torch_work.cells.layer import Attend, Layer
from sampling.torch_work.operators.memory_bound import rotate
from sampling.torch_work.workload import PhaseWorkload


@builds(DecodeLayer)
def decode_layer(call: DecodeLayer, device: torch.device) -> PhaseWorkload:
    if call.tp > 1 or call.seq_len != 1:
        raise SkippedError(f"{call.NAME}: tp {call.tp} and seq_len {call.seq_len}; this sampler times 1 of both")
    return PhaseWorkload([{"forward": _decode_of(call, device)} for _ in range(COPIES)])


class CachedAttend(Attend):
    """Attention of one new token per sequence, whose key and value take the last place of the cache."""

    def __init__(self, shape: DecodeLayer, device: torch.device) -> None:
        super().__init__(shape, device)
        cached = (2, shape.batch, shape.kv_heads, shape.keys, shape.head_dim)
        self.cache = torch.randn(cached, device=device, dtype=torch_dtype(shape.dtype))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        batch, keys, values = len(x), *self.cache
        query, key, value = (
            linear(x).view(batch, 1, -1, self.head_dim) for linear in (self.query, self.key, self.value)
        )
        if self.table is not None:
            query, key = rotate(query, *self.table), rotate(key, *self.table)
        keys[:, :, -1], values[:, :, -1] = key[:, 0], value[:, 0]
        seen = functional.scaled_dot_product_attention(
            query.transpose(1, 2), keys, values, enable_gqa=query.shape[2] != key.shape[2]
        )
        mixed: torch.Tensor = self.output(seen.transpose(1, 2).reshape(batch, 1, -1))
        return mixed


def _decode_of(call: DecodeLayer, device: torch.device) -> Callable[[], object]:
    """The step of one layer with weights and a cache of its own."""
    layer = Layer(call, device)
    layer.attend = CachedAttend(call, device)
    x = torch.randn(call.batch, 1, call.hidden, device=device, dtype=torch_dtype(call.dtype))
    context = products_in(call.dtype)

    def decode() -> object:
        with torch.no_grad(), context():
            return layer(x)

    return decode
