"""Mamba-2 in torch: the causal convolution, and the recurrence by chunks in plain products (Dao and Gu, arXiv 2405.21060, section 6)."""

from __future__ import annotations

import torch
from torch.nn import functional

from sampling.operators.state_space import CausalConv, StateSpaceScan
from sampling.torch_work.build import builds
from sampling.torch_work.workload import AutogradWorkload, Copy, autograd_workload, leaf


@builds(CausalConv)
def causal_conv(call: CausalConv, device: torch.device) -> AutogradWorkload:
    def apply(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor) -> torch.Tensor:
        convolved = functional.conv1d(x, weight, bias, padding=call.width - 1, groups=call.channels)
        return functional.silu(convolved[..., : call.seq_len])

    return autograd_workload(
        device,
        call.dtype,
        apply,
        inputs=[(call.batch, call.channels, call.seq_len)],
        weights=[(call.channels, 1, call.width), (call.channels,)],
    )


@builds(StateSpaceScan)
def state_space_scan(call: StateSpaceScan, device: torch.device) -> AutogradWorkload:
    def copy() -> Copy:
        tokens = (device, call.dtype, call.batch, call.seq_len)
        x, step = leaf(*tokens, call.heads, call.head_dim), leaf(*tokens, call.heads)
        into, out = leaf(*tokens, call.groups, call.state_dim), leaf(*tokens, call.groups, call.state_dim)
        decay = -torch.rand(call.heads, device=device).add(0.5)
        skip = torch.ones(call.heads, device=device)

        def forward() -> torch.Tensor:
            return chunked_scan(x, functional.softplus(step.float()), decay, into, out, skip, chunk=call.chunk)

        return Copy(forward=forward, inputs=[x, step, into, out])

    return AutogradWorkload(copy)


def chunked_scan(
    x: torch.Tensor,
    step: torch.Tensor,
    decay: torch.Tensor,
    into: torch.Tensor,
    out: torch.Tensor,
    skip: torch.Tensor,
    *,
    chunk: int,
) -> torch.Tensor:
    """The recurrence over x [b, s, heads, p] with steps [b, s, heads], decay and skip [heads], and B and C [b, s, groups, n], in fp32;
    the result is [b, s, heads, p] in x's dtype."""
    batch, seq, heads, width = x.shape
    groups, state = into.shape[2:]
    padding = -seq % chunk
    x32, b, c = (functional.pad(one.float(), (0, 0, 0, 0, 0, padding)) for one in (x, into, out))
    step = functional.pad(step.float(), (0, 0, 0, padding))
    chunks = (seq + padding) // chunk
    # [batch, chunks, groups, heads of a group, tokens of a chunk, …]
    xs = (x32 * step[..., None]).view(batch, chunks, chunk, groups, heads // groups, width).permute(0, 1, 3, 4, 2, 5)
    b, c = (one.view(batch, chunks, chunk, groups, state).permute(0, 1, 3, 2, 4) for one in (b, c))
    log = (step * decay).view(batch, chunks, chunk, groups, heads // groups).permute(0, 1, 3, 4, 2).cumsum(-1)
    later = torch.ones(chunk, chunk, dtype=torch.bool, device=x.device).triu(1)
    between = (log[..., :, None] - log[..., None, :]).masked_fill(later, -torch.inf).exp()
    scores = (c @ b.transpose(-1, -2)).unsqueeze(3) * between
    inside = scores @ xs
    to_end = (log[..., -1:] - log).exp()
    states = (xs * to_end[..., None]).transpose(-1, -2) @ b.unsqueeze(3)
    starts = _passed_on(states, log[..., -1].exp())
    across = (c.unsqueeze(3) @ starts.transpose(-1, -2)) * log.exp()[..., None]
    mixed = (inside + across).permute(0, 1, 4, 2, 3, 5).reshape(batch, seq + padding, heads, width)
    return (mixed + skip[:, None] * x32)[:, :seq].to(x.dtype)


def _passed_on(states: torch.Tensor, decays: torch.Tensor) -> torch.Tensor:
    """The state at the start of each chunk, from what each adds [b, chunks, g, h, p, n] and by how much each decays [b, chunks, g, h]."""
    carried = torch.zeros_like(states[:, 0])
    starts = []
    for added, kept in zip(states.unbind(1), decays.unbind(1), strict=True):
        starts.append(carried)
        carried = carried * kept[..., None, None] + added
    return torch.stack(starts, dim=1)
