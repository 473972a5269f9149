"""A mixture of experts in plain torch, arranged as the transformers library (5.x) runs Qwen3-MoE and Mixtral.

The router is a softmax in fp32. Rows are sorted by expert; one grouped product computes gate and up of all experts, one computes down;
the rows go back in order, weighted and summed (transformers, integrations/moe.py, `grouped_mm_experts_forward`).
"""

from collections.abc import Callable
from itertools import pairwise

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from predict.model.spec import Experts

GroupedProduct = Callable[[Tensor, Tensor, Tensor], Tensor]
"""x [rows, k], weight [groups, k, n] and the end of each group's rows, int32 [groups] → [rows, n]."""
TRIAL_SIZE = 16
"""Rows and columns of the product that tests whether a kernel runs here."""


class Mixture(nn.Module):
    """Router and experts over [batch, seq, hidden]; each token goes to `topk` experts, whose weights add up to 1."""

    def __init__(self, hidden: int, experts: Experts) -> None:
        super().__init__()
        self.topk = experts.topk
        self.router = nn.Linear(hidden, experts.count, bias=False)
        self.experts = GroupedExperts(hidden, experts)

    def forward(self, x: Tensor) -> Tensor:
        rows = x.flatten(0, 1)
        logits = self.router(rows)
        chance, chosen = torch.topk(F.softmax(logits, dim=-1, dtype=torch.float), self.topk, dim=-1)
        weights = (chance / chance.sum(dim=-1, keepdim=True)).to(logits.dtype)
        output: Tensor = self.experts(rows, chosen, weights)
        return output.view_as(x)


class GroupedExperts(nn.Module):
    """SwiGLU experts as two stacks of weights: gate and up [experts, 2 · ffn, hidden], down [experts, hidden, ffn]."""

    def __init__(self, hidden: int, experts: Experts) -> None:
        super().__init__()
        self.count = experts.count
        self.gate_up = nn.Parameter(torch.empty(experts.count, 2 * experts.ffn, hidden))
        self.down = nn.Parameter(torch.empty(experts.count, hidden, experts.ffn))
        self.product: GroupedProduct = by_loop
        """Runs everywhere; `choose_products` puts a faster one in its place."""

    def forward(self, rows: Tensor, chosen: Tensor, weights: Tensor) -> Tensor:
        """The weighted sum of the outputs, [tokens, hidden], of the experts `chosen` [tokens, topk]."""
        tokens, topk = chosen.shape
        expert, order = torch.sort(chosen.flatten())
        # histc takes floats alone on a CPU and, where it is to be deterministic, integers alone on a GPU
        counted = expert.float() if rows.device.type == "cpu" else expert.int()
        ends = torch.histc(counted, bins=self.count, min=0, max=self.count - 1).cumsum(0, dtype=torch.int32)
        gate, up = self.product(rows[order // topk], self.gate_up.transpose(-2, -1), ends).chunk(2, dim=-1)
        outputs = self.product(F.silu(gate) * up, self.down.transpose(-2, -1), ends)
        outputs = outputs * weights.flatten()[order].unsqueeze(-1)
        back = torch.empty_like(order)
        back[order] = torch.arange(len(order), device=order.device)
        return outputs[back].view(tokens, topk, -1).sum(dim=1)


def by_loop(x: Tensor, weight: Tensor, ends: Tensor) -> Tensor:
    """The groups' products one after the other; reading `ends` waits for the device."""
    bounds = pairwise([0, *ends.tolist()])
    return torch.cat([x[start:end] @ own for (start, end), own in zip(bounds, weight, strict=True)])


def _by_torch(x: Tensor, weight: Tensor, ends: Tensor) -> Tensor:
    product = getattr(F, "grouped_mm", None) or torch._grouped_mm  # the public name came with torch 2.10
    output: Tensor = product(x, weight, offs=ends)
    return output


def grouped_product(device: torch.device, dtype: torch.dtype) -> GroupedProduct:
    """torch's grouped product where it runs here, forward and backward; else the loop."""
    x = torch.randn(2 * TRIAL_SIZE, TRIAL_SIZE, device=device, dtype=dtype, requires_grad=True)
    weight = torch.randn(2, TRIAL_SIZE, TRIAL_SIZE, device=device, dtype=dtype, requires_grad=True)
    ends = torch.tensor([TRIAL_SIZE, 2 * TRIAL_SIZE], device=device, dtype=torch.int32)
    try:
        output = _by_torch(x, weight.transpose(-2, -1), ends)
        torch.autograd.backward(output, torch.randn_like(output))
    except (AttributeError, NotImplementedError, RuntimeError):
        return by_loop
    return _by_torch


def choose_products(module: nn.Module) -> str:
    """Give all experts of a module the product that runs here; its name, "" for a module without experts."""
    found = [each for each in module.modules() if isinstance(each, GroupedExperts)]
    if not found:
        return ""
    product = grouped_product(found[0].down.device, found[0].down.dtype)
    for each in found:
        each.product = product
    return "loop" if product is by_loop else "grouped"


def busiest_expert(module: nn.Module, run: Callable[[], object]) -> float | None:
    """Rows of the busiest expert over the mean expert's, averaged over the mixtures of `module`, while `run` runs it once.

    None for a module without experts; 1 is a balanced router.
    """
    shares: list[Tensor] = []

    def count(mixture: Mixture, logits: Tensor) -> None:
        chosen = logits.topk(mixture.topk, dim=-1).indices.flatten()
        rows = torch.bincount(chosen, minlength=logits.shape[-1])
        shares.append(rows.max() / rows.float().mean())

    mixtures = [each for each in module.modules() if isinstance(each, Mixture)]
    hooks = [
        mixture.router.register_forward_hook(lambda _, __, logits, mixture=mixture: count(mixture, logits))
        for mixture in mixtures
    ]
    try:
        run()
    finally:
        for hook in hooks:
            hook.remove()
    return float(torch.stack(shares).mean()) if shares else None
