"""Mamba-2 in torch: the causal convolution, and the recurrence by chunks in plain products (Dao and Gu, arXiv 2405.21060, section 6)."""

import torch
from torch.nn import functional

from sampling.operators.state_space import CausalConv, StateSpaceScan
from sampling.torch_work.build import builds
from sampling.torch_work.workload import AutogradWorkload, Copy, autograd_workload, leaf


@builds(CausalConv)
def causal_conv(call: CausalConv, device: torch.device) -> AutogradWorkload:
    def apply(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor) -> torch.Tensor:
        # the product before it leaves [batch, seq, channels], and so does the recurrence its gradient, whose parts are joined along channels:
        # a layout that the backward of silu does not expect
        convolved = functional.conv1d(x.transpose(1, 2), weight, bias, padding=call.width - 1, groups=call.channels)
        return functional.silu(convolved[..., : call.seq_len]).transpose(1, 2).contiguous()

    return autograd_workload(
        device,
        call.dtype,
        apply,
        inputs=[(call.batch, call.seq_len, call.channels)],
        weights=[(call.channels, 1, call.width), (call.channels,)],
    )


@builds(StateSpaceScan)
def state_space_scan(call: StateSpaceScan, device: torch.device) -> AutogradWorkload:
    widths = [call.heads * call.head_dim, *[call.groups * call.state_dim] * 2]

    def copy() -> Copy:
        # x, B and C as the convolution leaves them: parts of one tensor, tokens innermost
        convolved = leaf(device, call.dtype, call.batch, sum(widths), call.seq_len)
        step = leaf(device, call.dtype, call.batch, call.seq_len, call.heads)
        decay = (-torch.rand(call.heads, device=device) - 0.5).requires_grad_()
        skip = torch.ones(call.heads, device=device, requires_grad=True)

        def forward() -> torch.Tensor:
            parts = torch.split(convolved.transpose(1, 2), widths, dim=2)
            x, into, out = (
                part.view(call.batch, call.seq_len, heads, -1)
                for part, heads in zip(parts, (call.heads, call.groups, call.groups), strict=True)
            )
            return chunked_scan(x, functional.softplus(step.float()), decay, into, out, skip, chunk=call.chunk)

        return Copy(forward=forward, inputs=[convolved, step], weights=[decay, skip])

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
