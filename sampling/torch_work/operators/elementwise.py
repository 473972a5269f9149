"""Activations, rotary embedding and residual addition in torch."""

from __future__ import annotations

import torch
from torch.nn import functional

from sampling.operators.elementwise import Gelu, ResidualAdd, RoPE, SwiGLU
from sampling.torch_work.build import builds, torch_dtype
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
