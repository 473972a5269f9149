"""A dense transformer layer in torch."""

from collections.abc import Callable

import torch
from torch.nn import functional

from sampling.arithmetic.operator import COPIES
from sampling.cells.layer import DecodeLayer, DenseLayer, LayerShape
from sampling.errors import SkippedError
from sampling.operators.attention import Attention
from sampling.torch_work.build import builds, compiled, products_in, torch_dtype
from sampling.torch_work.collectives.tensor_parallel import parallelize_layer
from sampling.torch_work.kernels.attention import torchs_choice
from sampling.torch_work.module_workload import ModuleWorkload
from sampling.torch_work.operators.memory_bound import rotary_table, rotate
from sampling.torch_work.workload import PhaseWorkload, leaf


@builds(DenseLayer)
def dense_layer(call: DenseLayer, device: torch.device) -> ModuleWorkload:
    return ModuleWorkload(
        [make_layer(call, device) for _ in range(COPIES)],
        lambda: random_hidden(call, device),
        compiled=call.compiled,
        context=products_in(call.dtype),
        ran_kernel=kernel_of_attention(call, device),
    )


def kernel_of_attention(shape: LayerShape, device: torch.device) -> str:
    """The kernel that torch chooses for a layer's attention; empty if it does not say."""
    call = next(call for call, _ in shape.attention_calls() if isinstance(call, Attention))
    query, key, value = (
        torch.empty(
            *(call.batch, call.seq_len, heads, call.head_dim),
            device=device,
            dtype=torch_dtype(call.dtype),
            requires_grad=True,
        )
        for heads in (call.heads, call.kv_heads, call.kv_heads)
    )
    return torchs_choice(call, query, key, value)


class Attend(torch.nn.Module):
    """Projections, rotary embedding and grouped-query attention of x [batch, seq, hidden]."""

    def __init__(self, shape: LayerShape, device: torch.device) -> None:
        super().__init__()
        self.head_dim = shape.head_dim
        options = {"device": device, "dtype": torch_dtype(shape.dtype)}
        query, key = shape.heads * shape.head_dim, shape.kv_heads * shape.head_dim
        self.query = torch.nn.Linear(shape.hidden, query, bias=shape.qkv_bias, **options)
        self.key = torch.nn.Linear(shape.hidden, key, bias=shape.qkv_bias, **options)
        self.value = torch.nn.Linear(shape.hidden, key, bias=shape.qkv_bias, **options)
        self.output = torch.nn.Linear(query, shape.hidden, bias=shape.has_output_bias, **options)
        self.table = rotary_table(device, shape.dtype, shape.seq_len, shape.head_dim) if shape.rope else None

    def projected(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """Query, key and value [batch, seq, heads, head_dim] of x [batch, seq, hidden], the first two rotated."""
        query, key, value = (
            linear(x).view(*x.shape[:2], -1, self.head_dim) for linear in (self.query, self.key, self.value)
        )
        if self.table is not None:
            query, key = rotate(query, *self.table), rotate(key, *self.table)
        return query, key, value

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        query, key, value = self.projected(x)
        seen = functional.scaled_dot_product_attention(
            query.transpose(1, 2),
            key.transpose(1, 2),
            value.transpose(1, 2),
            is_causal=True,
            enable_gqa=query.shape[2] != key.shape[2],
        )
        mixed: torch.Tensor = self.output(seen.transpose(1, 2).reshape(*x.shape[:2], -1))
        return mixed


class Mlp(torch.nn.Module):
    """SwiGLU of three matrices, or GELU of two."""

    def __init__(self, shape: LayerShape, device: torch.device) -> None:
        super().__init__()
        options = {"device": device, "dtype": torch_dtype(shape.dtype)}
        self.gate = torch.nn.Linear(shape.hidden, shape.ffn, bias=shape.bias, **options) if shape.gated else None
        self.up = torch.nn.Linear(shape.hidden, shape.ffn, bias=shape.bias, **options)
        self.down = torch.nn.Linear(shape.ffn, shape.hidden, bias=shape.bias, **options)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        wide = functional.gelu(self.up(x)) if self.gate is None else functional.silu(self.gate(x)) * self.up(x)
        narrow: torch.Tensor = self.down(wide)
        return narrow


class Layer(torch.nn.Module):
    """Pre-norm decoder layer."""

    def __init__(self, shape: LayerShape, device: torch.device) -> None:
        super().__init__()
        self.attention_norm = make_norm(shape.norm, shape.hidden, shape.dtype, device)
        self.attend = Attend(shape, device)
        self.mlp_norm = make_norm(shape.norm, shape.hidden, shape.dtype, device)
        self.mlp = Mlp(shape, device)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = x + self.attend(self.attention_norm(x))
        y: torch.Tensor = x + self.mlp(self.mlp_norm(x))
        return y


def make_norm(kind: str, hidden: int, dtype: str, device: torch.device) -> torch.nn.Module:
    norm = torch.nn.RMSNorm if kind == "rms" else torch.nn.LayerNorm
    return norm(hidden, eps=1e-5, device=device, dtype=torch_dtype(dtype))


def make_layer(shape: LayerShape, device: torch.device) -> torch.nn.Module:
    """A layer with random weights, spread over the default group if the shape is tensor-parallel."""
    layer = parallelize_layer(Layer(shape, device), device, shape.tp, shape.sp)
    return compiled(layer) if shape.compiled else layer


def random_hidden(shape: LayerShape, device: torch.device) -> tuple[torch.Tensor, ...]:
    """An input that collects a gradient: [batch, seq, hidden], one rank's share of the sequence with sp."""
    return (leaf(device, shape.dtype, shape.batch, shape.seq_len // (shape.tp if shape.sp else 1), shape.hidden),)


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
        keys, values = self.cache
        query, key, value = self.projected(x)
        keys[:, :, -1], values[:, :, -1] = key[:, 0], value[:, 0]
        seen = functional.scaled_dot_product_attention(
            query.transpose(1, 2), keys, values, enable_gqa=query.shape[2] != key.shape[2]
        )
        mixed: torch.Tensor = self.output(seen.transpose(1, 2).reshape(*x.shape[:2], -1))
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
