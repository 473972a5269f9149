"""A transformer layer, for `predict speed-of-light`."""

import torch
from torch import nn
from torch.nn import functional


class Model(nn.Module):
    """Pre-norm attention and a gated feed-forward."""

    def __init__(self, hidden: int, heads: int, width: int) -> None:
        super().__init__()
        self.heads = heads
        self.norms = nn.ModuleList(nn.RMSNorm(hidden) for _ in range(2))
        self.query_key_value = nn.Linear(hidden, 3 * hidden, bias=False)
        self.out = nn.Linear(hidden, hidden, bias=False)
        self.gate_up = nn.Linear(hidden, 2 * width, bias=False)
        self.down = nn.Linear(width, hidden, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        batch, tokens, hidden = x.shape
        heads = self.query_key_value(self.norms[0](x)).view(batch, tokens, 3, self.heads, -1).unbind(2)
        query, key, value = (each.transpose(1, 2) for each in heads)
        seen = functional.scaled_dot_product_attention(query, key, value, is_causal=True)
        x = x + self.out(seen.transpose(1, 2).reshape(batch, tokens, hidden))
        gate, up = self.gate_up(self.norms[1](x)).chunk(2, dim=-1)
        return x + self.down(functional.silu(gate) * up)


def get_init_inputs() -> list[int]:
    return [4096, 32, 14336]


def get_inputs() -> list[torch.Tensor]:
    return [torch.randn(1, 4096, 4096)]
