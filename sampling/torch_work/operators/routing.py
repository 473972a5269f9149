"""A mixture's router and the permutation of its tokens in torch."""

from collections.abc import Sequence

import torch

from sampling.arithmetic.expert_rows import BALANCED, rows_of_groups
from sampling.operators.routing import Permute, Router, Unpermute
from sampling.torch_work.build import builds
from sampling.torch_work.workload import AutogradWorkload, Copy, leaf


@builds(Router)
def router(call: Router, device: torch.device) -> AutogradWorkload:
    def copy() -> Copy:
        x = leaf(device, call.dtype, call.tokens, call.hidden)
        weight = leaf(device, "fp32", call.experts, call.hidden)
        return Copy(forward=lambda: route(x, weight, call.topk)[0], inputs=[x], weights=[weight])

    return AutogradWorkload(copy)


@builds(Permute)
def permutation(call: Permute, device: torch.device) -> AutogradWorkload:
    rows = rows_of_groups(call.tokens * call.topk, call.experts, BALANCED)

    def copy() -> Copy:
        x, chosen = leaf(device, call.dtype, call.tokens, call.hidden), assignment(rows, call.topk, device)
        return Copy(forward=lambda: permute(x, chosen)[0], inputs=[x])

    return AutogradWorkload(copy)


@builds(Unpermute)
def inverse_permutation(call: Unpermute, device: torch.device) -> AutogradWorkload:
    rows_of_each = rows_of_groups(call.tokens * call.topk, call.experts, BALANCED)

    def copy() -> Copy:
        rows = leaf(device, call.dtype, call.tokens * call.topk, call.hidden)
        weights = leaf(device, "fp32", call.tokens, call.topk)
        order = order_of(assignment(rows_of_each, call.topk, device))
        return Copy(forward=lambda: unpermute(rows, weights, order), inputs=[rows, weights])

    return AutogradWorkload(copy)


def assignment(rows: Sequence[int], topk: int, device: torch.device) -> torch.Tensor:
    """Experts [tokens, topk] drawn at random so that each is chosen as often as it has rows."""
    experts = torch.arange(len(rows), device=device).repeat_interleave(
        torch.tensor(rows, device=device), output_size=sum(rows)
    )
    return experts[torch.randperm(len(experts), device=device)].view(-1, topk)


def route(x: torch.Tensor, weight: torch.Tensor, topk: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Weights and experts, both [tokens, topk], of x [tokens, hidden]."""
    scores = torch.nn.functional.linear(x.float(), weight).softmax(dim=-1)
    weights, chosen = scores.topk(topk, dim=-1)
    return weights, chosen


def order_of(chosen: torch.Tensor) -> torch.Tensor:
    """Index of the choice in [tokens, topk], flattened, that each row holds once they are sorted by expert."""
    return chosen.flatten().argsort(stable=True)


def permute(x: torch.Tensor, chosen: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Rows sorted by expert, and their order."""
    order = order_of(chosen)
    return x.index_select(0, order // chosen.shape[1]), order


def unpermute(rows: torch.Tensor, weights: torch.Tensor, order: torch.Tensor) -> torch.Tensor:
    """The inverse: every row times its weight, added up by token."""
    tokens, topk = weights.shape
    weighted = rows * weights.flatten()[order].to(rows.dtype).unsqueeze(-1)
    return weighted.new_zeros(tokens, rows.shape[1]).index_add(0, order // topk, weighted)
