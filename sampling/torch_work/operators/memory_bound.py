"""Operators bound by memory in torch."""

from collections.abc import Callable

import torch
from torch.nn import functional

from sampling.operators.memory_bound import (
    CausalSoftmax,
    Dropout,
    Gelu,
    LayerNorm,
    MaskFill,
    ResidualAdd,
    RMSNorm,
    RoPE,
    Softmax,
    Stream,
    SwiGLU,
)
from sampling.torch_work.build import builds, compiled, torch_dtype
from sampling.torch_work.workload import AutogradWorkload, autograd_workload


@builds(SwiGLU)
def swiglu(call: SwiGLU, device: torch.device) -> AutogradWorkload:
    shape = (call.tokens, call.width)
    return autograd_workload(device, call.dtype, lambda gate, up: functional.silu(gate) * up, inputs=[shape, shape])


@builds(Gelu)
def gelu(call: Gelu, device: torch.device) -> AutogradWorkload:
    return autograd_workload(device, call.dtype, functional.gelu, inputs=[(call.tokens, call.width)])


@builds(ResidualAdd)
def residual_add(call: ResidualAdd, device: torch.device) -> AutogradWorkload:
    shape = (call.tokens, call.hidden)
    return autograd_workload(device, call.dtype, lambda x, y: x + y, inputs=[shape, shape])


@builds(RoPE)
def rope(call: RoPE, device: torch.device) -> AutogradWorkload:
    cosine, sine = rotary_table(device, call.dtype, call.seq_len, call.head_dim)
    shape = (call.batch, call.seq_len, call.heads, call.head_dim)
    return autograd_workload(device, call.dtype, lambda x: rotate(x, cosine, sine), inputs=[shape])


def rotary_table(device: torch.device, dtype: str, seq_len: int, head_dim: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Cosine and sine [seq, 1, head_dim] of the rotary angles, base 10,000."""
    inverse = 10_000.0 ** (-torch.arange(0, head_dim, 2, device=device, dtype=torch.float32) / head_dim)
    angles = torch.outer(torch.arange(seq_len, device=device, dtype=torch.float32), inverse)
    both = torch.cat([angles, angles], dim=-1).unsqueeze(1)
    return both.cos().to(torch_dtype(dtype)), both.sin().to(torch_dtype(dtype))


def rotate(x: torch.Tensor, cosine: torch.Tensor, sine: torch.Tensor) -> torch.Tensor:
    """Rotate the two halves of the last dimension of x [batch, seq, heads, head_dim]."""
    first, second = x.chunk(2, dim=-1)
    return x * cosine + torch.cat([-second, first], dim=-1) * sine


@builds(RMSNorm)
def rms_norm(call: RMSNorm, device: torch.device) -> AutogradWorkload:
    width = (call.hidden,)
    apply = lambda x, weight: functional.rms_norm(x, width, weight, 1e-5)  # noqa: E731
    return autograd_workload(device, call.dtype, apply, inputs=[(call.tokens, call.hidden)], weights=[width])


@builds(LayerNorm)
def layer_norm(call: LayerNorm, device: torch.device) -> AutogradWorkload:
    width = (call.hidden,)
    apply = lambda x, weight, bias: functional.layer_norm(x, width, weight, bias)  # noqa: E731
    return autograd_workload(device, call.dtype, apply, inputs=[(call.tokens, call.hidden)], weights=[width, width])


@builds(Softmax)
def softmax(call: Softmax, device: torch.device) -> AutogradWorkload:
    return autograd_workload(device, call.dtype, lambda scores: scores.softmax(dim=-1), inputs=[call.shape])


@builds(CausalSoftmax)
def causal_softmax(call: CausalSoftmax, device: torch.device) -> AutogradWorkload:
    return autograd_workload(device, call.dtype, softmax_of(device, call.seq_len, fused=True), inputs=[call.shape])


@builds(MaskFill)
def mask_fill(call: MaskFill, device: torch.device) -> AutogradWorkload:
    mask = causal_mask(device, call.seq_len)
    return autograd_workload(device, call.dtype, lambda scores: scores.masked_fill(mask, -1e4), inputs=[call.shape])


def softmax_of(device: torch.device, seq_len: int, *, fused: bool) -> Callable[[torch.Tensor], torch.Tensor]:
    """Causal softmax of scores [matrices, seq, seq]: scale, mask and softmax compiled into one, or two kernels."""
    mask = causal_mask(device, seq_len)

    def in_one(scores: torch.Tensor) -> torch.Tensor:
        return (scores * 0.125).masked_fill(mask, -torch.inf).softmax(dim=-1)

    def one_by_one(scores: torch.Tensor) -> torch.Tensor:
        return scores.masked_fill(mask, -1e4).softmax(dim=-1)

    return compiled(in_one) if fused else one_by_one


def causal_mask(device: torch.device, seq_len: int) -> torch.Tensor:
    """True [seq, seq] where the key comes after the query."""
    return torch.ones(seq_len, seq_len, dtype=torch.bool, device=device).triu(1)


@builds(Dropout)
def dropout(call: Dropout, device: torch.device) -> AutogradWorkload:
    return autograd_workload(device, call.dtype, lambda x: functional.dropout(x, 0.1), inputs=[(call.count,)])


@builds(Stream)
def stream(call: Stream, device: torch.device) -> AutogradWorkload:
    elements = max(1, call.size_bytes // (2 * call.item_bytes))
    return autograd_workload(device, call.dtype, lambda x: x * 1.5, inputs=[(elements,)])
