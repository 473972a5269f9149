"""Mamba-2 in plain torch, by chunks (Dao and Gu, arXiv 2405.21060, section 6), the way people write it where no kernel is at hand."""

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from predict.layers.mamba import Mamba
from predict.model.spec import ModelSpec

NORM_EPS = 1e-5


class MambaMixer(nn.Module):
    """Gate, input, B, C and steps from one product; a causal convolution; the recurrence; a norm of the gated output."""

    def __init__(self, spec: ModelSpec, mamba: Mamba) -> None:
        super().__init__()
        self.sizes = mamba
        self.into = nn.Linear(spec.hidden, mamba.width + mamba.conv_width + mamba.heads, bias=False)
        channels = mamba.conv_width
        self.conv = nn.Conv1d(
            channels, channels, mamba.conv, groups=channels, padding=mamba.conv - 1, bias=mamba.conv_bias
        )
        self.step_bias = nn.Parameter(torch.zeros(mamba.heads))
        self.log_decay = nn.Parameter(torch.zeros(mamba.heads))
        self.skip = nn.Parameter(torch.ones(mamba.heads))
        self.scale = nn.Parameter(torch.ones(mamba.width))
        self.out = nn.Linear(mamba.width, spec.hidden, bias=False)

    def forward(self, x: Tensor, rope: object = None) -> Tensor:
        own, batch, seq = self.sizes, x.shape[0], x.shape[1]
        gate, mixed, step = torch.split(self.into(x), [own.width, own.conv_width, own.heads], dim=-1)
        mixed = F.silu(self.conv(mixed.transpose(1, 2))[..., :seq]).transpose(1, 2)
        value, key, query = torch.split(mixed, [own.width, *[own.groups * own.state] * 2], dim=-1)
        mixed_by_state = self._scan(
            value.view(batch, seq, own.heads, own.head_dim),
            F.softplus(step + self.step_bias).float(),
            key.view(batch, seq, own.groups, own.state),
            query.view(batch, seq, own.groups, own.state),
        )
        gated = mixed_by_state.flatten(2) * F.silu(gate.float())
        grouped = gated.view(batch, seq, own.groups, own.width // own.groups)
        normed = F.rms_norm(grouped, grouped.shape[-1:], eps=NORM_EPS).flatten(2).to(x.dtype)
        output: Tensor = self.out(normed * self.scale)
        return output

    def _scan(self, value: Tensor, step: Tensor, key: Tensor, query: Tensor) -> Tensor:
        """Values [b, s, heads, p] through states [heads, p, n]; keys and queries are [b, s, groups, n], the steps [b, s, heads]."""
        own, (batch, seq) = self.sizes, value.shape[:2]
        padding = -seq % own.chunk
        chunks, shared = (seq + padding) // own.chunk, own.heads // own.groups

        def cut(x: Tensor, width: int) -> Tensor:
            """[batch, chunks, groups, heads of a group, tokens of a chunk, width]."""
            padded = F.pad(x.float(), (0, 0, 0, 0, 0, padding))
            return padded.view(batch, chunks, own.chunk, own.groups, -1, width).permute(0, 1, 3, 4, 2, 5)

        decay = cut((step * -self.log_decay.float().exp()).unsqueeze(-1), 1).squeeze(-1).cumsum(-1)
        weighted = cut(value * step.unsqueeze(-1), own.head_dim)
        keys, queries = cut(key, own.state), cut(query, own.state)
        later = torch.ones(own.chunk, own.chunk, dtype=torch.bool, device=value.device).triu(1)
        faded = (decay.unsqueeze(-1) - decay.unsqueeze(-2)).masked_fill(later, float("-inf")).exp()
        output = ((queries @ keys.transpose(-1, -2)) * faded) @ weighted
        added = (weighted * (decay[..., -1:] - decay).exp().unsqueeze(-1)).transpose(-1, -2) @ keys
        carried = torch.zeros(batch, own.groups, shared, own.head_dim, own.state, device=value.device)
        starts = []
        for at in range(chunks):
            starts.append(carried)
            carried = carried * decay[:, at, ..., -1].exp()[..., None, None] + added[:, at]
        across = (queries @ torch.stack(starts, 1).transpose(-1, -2)) * decay.exp().unsqueeze(-1)
        joined = (output + across).permute(0, 1, 4, 2, 3, 5).reshape(batch, seq + padding, own.heads, own.head_dim)
        return joined[:, :seq] + self.skip[:, None].float() * value
