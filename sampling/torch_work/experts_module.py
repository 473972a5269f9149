"""The torch modules of a mixture: its experts, its router, and the two with their permutation between."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch.nn import functional

from sampling.arithmetic.expert_rows import rows_of_groups
from sampling.operators.routing import assignment, permute, route, unpermute
from sampling.torch_work.grouped_product import grouped_product
from sampling.torch_work.workload import torch_dtype

if TYPE_CHECKING:
    from sampling.cells.moe_layer import MoELayer


class Experts(torch.nn.Module):
    """MLPs over the rows of x [rows, hidden], sorted by expert; `ends` [groups] says where each expert's rows end."""

    def __init__(
        self,
        groups: int,
        hidden: int,
        width: int,
        *,
        gated: bool,
        dtype: str,
        device: torch.device,
        traced: bool = False,
    ) -> None:
        super().__init__()
        self.gated = gated
        up = width * (2 if gated else 1)
        self.up = torch.nn.Parameter(_random(device, dtype, groups, up, hidden))
        self.down = torch.nn.Parameter(_random(device, dtype, groups, hidden, width))
        self.product = grouped_product(device, dtype, width, hidden, traced=traced)

    def forward(self, x: torch.Tensor, ends: torch.Tensor) -> torch.Tensor:
        wide = self.product(x, self.up, ends)
        if self.gated:
            gate, up = wide.chunk(2, dim=-1)
            return self.product(functional.silu(gate) * up, self.down, ends)
        return self.product(functional.gelu(wide), self.down, ends)


class Mixture(torch.nn.Module):
    """Router, permutation, experts and what undoes the permutation, of x [batch, seq, hidden].

    The router runs, but where the tokens go is drawn beforehand: random weights would send them almost evenly.
    """

    def __init__(self, shape: MoELayer, device: torch.device) -> None:
        super().__init__()
        self.topk = shape.topk
        self.router = torch.nn.Parameter(_random(device, "fp32", shape.experts, shape.hidden))
        self.experts = Experts(
            shape.experts,
            shape.hidden,
            shape.inter,
            gated=shape.gated,
            dtype=shape.dtype,
            device=device,
            traced=shape.compiled,
        )
        rows = rows_of_groups(shape.tokens * shape.topk, shape.experts, shape.distribution)
        self.chosen = assignment(rows, shape.topk, device)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        tokens = x.flatten(0, 1)
        weights, _ = route(tokens, self.router, self.topk)
        counts = torch.histc(self.chosen.float(), bins=len(self.router), min=0, max=len(self.router))
        rows, order = permute(tokens, self.chosen)
        made = self.experts(rows, counts.cumsum(0).to(torch.int32))
        return unpermute(made, weights, order).view_as(x)


def _random(device: torch.device, dtype: str, *shape: int) -> torch.Tensor:
    return torch.randn(*shape, device=device, dtype=torch_dtype(dtype)).mul_(0.02)
